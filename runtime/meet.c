/* meet.c: the supervisors of a run come together. Rank 0's listens at MASTER_ADDR:MASTER_PORT, the others connect to it. Each
   shows that it knows the job's token and runs the same program, before anything else is said, and without sending the token:

     rank -> hub   "dtrt-1", rank, 32 random bytes A
     hub -> rank   32 random bytes B, HMAC(key, "hub", rank, A, B)
     rank -> hub   HMAC(key, "rank", rank, B, A)                     key = SHA-256(token, what was compiled)

   Whoever does not is turned away. The token is DTRT_TOKEN; without it one is made of what all starts of a job know, which keeps
   jobs apart but is no secret. The hub listens at one address only: that of the interface DTRT_INTERFACE, else MASTER_ADDR
   itself, else (where that is another name of this host) the address that packets to it leave from. torchrun keeps MASTER_PORT
   for itself, so the hub takes the first free one of RT_PORTS ports, and the others try them in turn. */
#define _GNU_SOURCE
#include "link.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { NONCE = 32, HELLO_SECONDS = 2 };

typedef struct {
  char magic[8];
  uint32_t rank;
  unsigned char nonce[NONCE];
} Hello;

typedef struct {
  unsigned char nonce[NONCE], proof[32];
} Answer;

typedef struct {
  Rt *rt;
  unsigned char key[32];
  uint64_t deadline;
  struct addrinfo *address; /* of MASTER_ADDR */
  int port;
  const char *interface;           /* DTRT_INTERFACE, or NULL */
  struct sockaddr_storage mine[2]; /* its IPv4 and its IPv6 address, of family 0 where it has none */
  int refused;                     /* connections that did not prove what they had to */
} Meeting;

static const char MAGIC[8] = "dtrt-1";

/* ---- the token ---- */

static void make_key(Meeting *m) {
  const dtrt_Program *p = m->rt->p;
  const char *token = getenv("DTRT_TOKEN"), *job = getenv("TORCHELASTIC_RUN_ID");
  if (!job) job = getenv("SLURM_JOB_ID");
  char text[4096];
  int n = snprintf(text, sizeof text, "%s|%s|%s:%d|%s|%s|%d|%lld|%lld|%d", token ? token : "", token || !job ? "" : job,
                   m->rt->meet_at, m->rt->port, p->source, p->version, p->nranks, (long long)p->arena_bytes,
                   (long long)p->parameters, p->ncollectives);
  if (n < 0 || n >= (int)sizeof text) rt_fail(m->rt, EXIT_USAGE, "DTRT_TOKEN is too long");
  rt_sha256(text, (size_t)n, m->key);
}

static void prove(const Meeting *m, const char *who, uint32_t rank, const unsigned char *a, const unsigned char *b,
                  unsigned char out[32]) {
  unsigned char text[8 + 4 + 2 * NONCE] = {0};
  memcpy(text, who, strlen(who));
  memcpy(text + 8, &rank, 4);
  memcpy(text + 12, a, NONCE);
  memcpy(text + 12 + NONCE, b, NONCE);
  rt_hmac(m->key, text, sizeof text, out);
}

/* In a time that does not depend on where they differ. */
static bool same(const unsigned char *a, const unsigned char *b) {
  unsigned d = 0;
  for (int i = 0; i < 32; i++) d |= a[i] ^ b[i];
  return d == 0;
}

static void nonce(Meeting *m, unsigned char *out) {
  if (getrandom(out, NONCE, 0) != NONCE) rt_fail(m->rt, EXIT_DATA, "the system has no random numbers: %s", strerror(errno));
}

/* ---- sockets ---- */

static bool put(int fd, const void *data, size_t bytes) { return send(fd, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes; }
static bool take(int fd, void *data, size_t bytes) { return recv(fd, data, bytes, MSG_WAITALL) == (ssize_t)bytes; }

static void patience(int fd, int seconds) {
  struct timeval t = {.tv_sec = seconds};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
}

/* Of a connection that is kept: small frames at once, and a host that is gone is noticed. */
static void settle(int fd) {
  int on = 1, idle = 30, every = 10, times = 3;
  patience(fd, 30);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
}

static void set_port(struct sockaddr_storage *a, int port) {
  if (a->ss_family == AF_INET6)
    ((struct sockaddr_in6 *)a)->sin6_port = htons((uint16_t)port);
  else
    ((struct sockaddr_in *)a)->sin_port = htons((uint16_t)port);
}

static socklen_t size_of(const struct sockaddr_storage *a) {
  return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static struct sockaddr_storage *mine(Meeting *m, int family) { return &m->mine[family == AF_INET6]; }

/* Can this address be reached from where we are to stay? */
static bool reachable(Meeting *m, const struct addrinfo *a) { return !m->interface || mine(m, a->ai_family)->ss_family; }

static void find_interface(Meeting *m) {
  struct ifaddrs *all;
  m->interface = getenv("DTRT_INTERFACE");
  if (!m->interface || !*m->interface) m->interface = NULL;
  if (!m->interface) return;
  if (getifaddrs(&all)) rt_fail(m->rt, EXIT_DATA, "cannot list the network interfaces: %s", strerror(errno));
  for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
    int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
    if (strcmp(i->ifa_name, m->interface) || (family != AF_INET && family != AF_INET6) || mine(m, family)->ss_family) continue;
    memcpy(mine(m, family), i->ifa_addr, family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
  }
  freeifaddrs(all);
  for (const struct addrinfo *a = m->address; a; a = a->ai_next)
    if (reachable(m, a)) return;
  rt_fail(m->rt, EXIT_USAGE, "DTRT_INTERFACE=%.64s: it has no address of the kind of MASTER_ADDR=%.200s", m->interface,
          m->rt->meet_at);
}

static bool is_everywhere(const struct sockaddr *a) {
  if (a->sa_family == AF_INET) return ((const struct sockaddr_in *)a)->sin_addr.s_addr == htonl(INADDR_ANY);
  const struct in6_addr *six = &((const struct sockaddr_in6 *)a)->sin6_addr;
  return IN6_IS_ADDR_UNSPECIFIED(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr32[3] == htonl(INADDR_ANY));
}

/* The addresses of MASTER_ADDR: of one host, since nobody listens everywhere. */
static void resolve(Meeting *m) {
  const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
  int wrong = getaddrinfo(m->rt->meet_at, NULL, &hints, &m->address);
  if (wrong) rt_fail(m->rt, EXIT_DATA, "MASTER_ADDR=%.200s: %s", m->rt->meet_at, gai_strerror(wrong));
  for (const struct addrinfo *a = m->address; a; a = a->ai_next)
    if (is_everywhere(a->ai_addr))
      rt_fail(m->rt, EXIT_USAGE, "MASTER_ADDR=%.200s is not the address of one host", m->rt->meet_at);
}

/* The address from which packets to a leave. */
static bool route_to(const struct addrinfo *a, struct sockaddr_storage *out) {
  socklen_t n = sizeof *out;
  int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  bool ok = fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0 && getsockname(fd, (struct sockaddr *)out, &n) == 0;
  if (fd >= 0) close(fd);
  return ok;
}

/* ---- the hub ---- */

static int listen_at(const struct sockaddr_storage *where, int port) {
  struct sockaddr_storage a = *where;
  int on = 1, fd = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  set_port(&a, port);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, (struct sockaddr *)&a, size_of(&a)) == 0 && listen(fd, 128) == 0) return fd;
  int why = errno;
  close(fd);
  errno = why;
  return -1;
}

static int open_hub(Meeting *m) {
  for (const struct addrinfo *a = m->address; a; a = a->ai_next) {
    struct sockaddr_storage where = *mine(m, a->ai_family);
    bool given = m->interface != NULL;
    if (!reachable(m, a)) continue;
    if (!given) memcpy(&where, a->ai_addr, a->ai_addrlen);
    for (int i = 0; i < RT_PORTS; i++) {
      int fd = listen_at(&where, m->port + i);
      if (fd < 0 && errno == EADDRNOTAVAIL && !given && route_to(a, &where)) fd = listen_at(&where, m->port + i);
      if (fd >= 0) return fd;
      if (errno != EADDRINUSE) break;
    }
  }
  rt_fail(m->rt, EXIT_DATA, "rank 0 cannot listen at MASTER_ADDR=%.200s, ports %d to %d: %s", m->rt->meet_at, m->port,
          m->port + RT_PORTS - 1, strerror(errno));
}

static const Peer *known(const Link *l, int rank) {
  for (int i = 0; i < l->npeers; i++)
    if (l->peer[i].rank == rank) return &l->peer[i];
  return NULL;
}

/* The rank at the other end, or -1: no rank of this job. */
static int greet(Meeting *m, const Link *l, int fd) {
  Hello hello;
  Answer answer;
  unsigned char proof[32], want[32];
  if (!take(fd, &hello, sizeof hello) || memcmp(hello.magic, MAGIC, sizeof MAGIC)) return -1;
  if (hello.rank == 0 || hello.rank >= (uint32_t)m->rt->p->nranks || known(l, (int)hello.rank)) return -1;
  nonce(m, answer.nonce);
  prove(m, "hub", hello.rank, hello.nonce, answer.nonce, answer.proof);
  prove(m, "rank", hello.rank, answer.nonce, hello.nonce, want);
  if (!put(fd, &answer, sizeof answer) || !take(fd, proof, sizeof proof) || !same(proof, want)) return -1;
  return (int)hello.rank;
}

/* Says so once: it may be a stray scanner, or the reason why nobody comes. */
static void turn_away(Meeting *m, const struct sockaddr_storage *a) {
  char host[NI_MAXHOST] = "?";
  if (m->refused++) return;
  getnameinfo((const struct sockaddr *)a, size_of(a), host, sizeof host, NULL, 0, NI_NUMERICHOST);
  fprintf(stderr, "%s: turned away a connection from %s: another token, another program, or a rank that is here already\n",
          m->rt->o.argv0, host);
}

static void gather(Meeting *m, Link *l) {
  int listening = open_hub(m), others = m->rt->p->nranks - 1;
  l->peer = rt_alloc((size_t)others, sizeof *l->peer);
  while (l->npeers < others) {
    struct pollfd fd = {.fd = listening, .events = POLLIN};
    if (rt_ns() >= m->deadline)
      rt_fail(m->rt, EXIT_DATA, "only %d of %d ranks came to %.200s:%d in time (--timeout)", l->npeers + 1, m->rt->p->nranks,
              m->rt->meet_at, m->port);
    if (poll(&fd, 1, 200) <= 0) continue;
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof a;
    int peer = accept4(listening, (struct sockaddr *)&a, &n, SOCK_CLOEXEC);
    if (peer < 0) continue;
    patience(peer, HELLO_SECONDS);
    int rank = greet(m, l, peer);
    if (rank < 0) {
      turn_away(m, &a);
      close(peer);
      continue;
    }
    settle(peer);
    l->peer[l->npeers++] = (Peer){.fd = peer, .rank = rank};
  }
  close(listening);
}

/* ---- the others ---- */

static int connect_to(Meeting *m, const struct addrinfo *a, int port) {
  struct sockaddr_storage to = {0};
  const struct sockaddr_storage *from = m->interface ? mine(m, a->ai_family) : NULL;
  memcpy(&to, a->ai_addr, a->ai_addrlen);
  set_port(&to, port);
  int fd = reachable(m, a) ? socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
  if (fd < 0) return -1;
  patience(fd, HELLO_SECONDS);
  bool placed = !from || bind(fd, (const struct sockaddr *)from, size_of(from)) == 0;
  if (placed && connect(fd, (struct sockaddr *)&to, size_of(&to)) == 0) return fd;
  close(fd);
  return -1;
}

/* Is the hub of our job at the other end? */
static bool introduce(Meeting *m, int fd) {
  Hello hello = {.rank = (uint32_t)m->rt->first};
  Answer answer;
  unsigned char want[32], proof[32];
  memcpy(hello.magic, MAGIC, sizeof MAGIC);
  nonce(m, hello.nonce);
  if (!put(fd, &hello, sizeof hello) || !take(fd, &answer, sizeof answer)) return false;
  prove(m, "hub", hello.rank, hello.nonce, answer.nonce, want);
  if (!same(answer.proof, want)) return false;
  prove(m, "rank", hello.rank, answer.nonce, hello.nonce, proof);
  return put(fd, proof, sizeof proof);
}

static int find_hub(Meeting *m) {
  for (const struct addrinfo *a = m->address; a; a = a->ai_next)
    for (int i = 0; i < RT_PORTS; i++) {
      int fd = connect_to(m, a, m->port + i);
      if (fd < 0) continue;
      if (introduce(m, fd)) return fd;
      close(fd);
      m->refused++;
    }
  return -1;
}

static void reach(Meeting *m, Link *l) {
  int fd;
  while ((fd = find_hub(m)) < 0) {
    if (rt_ns() >= m->deadline)
      rt_fail(m->rt, EXIT_DATA, "rank %d found no rank 0 of this job at %.200s:%d in time (--timeout)%s", m->rt->first,
              m->rt->meet_at, m->port,
              m->refused ? ": what listens there has another token or another program, or has this rank already" : "");
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
  }
  settle(fd);
  l->peer = rt_alloc(1, sizeof *l->peer);
  l->peer[l->npeers++] = (Peer){.fd = fd};
}

void rt_meet_peers(Rt *rt, Link *l) {
  enum { LONG = 365 * 24 * 3600 };
  const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE"); /* torchrun listens at MASTER_PORT itself */
  uint64_t seconds = rt->o.timeout > 0 && rt->o.timeout < LONG ? (uint64_t)rt->o.timeout : LONG;
  Meeting m = {.rt = rt, .deadline = rt_ns() + seconds * 1000000000u};
  m.port = rt->port + (agent && strcmp(agent, "True") == 0);
  resolve(&m);
  find_interface(&m);
  make_key(&m);
  if (rt->first == 0)
    gather(&m, l);
  else
    reach(&m, l);
  freeaddrinfo(m.address);
}
