/* link.c: what supervisors say to each other, each one frame on a socket between rank 0's (the hub) and another:

     ARRIVE   my rank has come to the meeting                to the hub
     GO       all have come; what rank 0 hands out           from the hub, when as many have come as there are ranks
     STOP     somebody wants an orderly end                  to the hub, where rank 0 sees it before its next step
     FAIL     the run is over: exit code and message         both ways; the hub shows it and passes it on
     BYE      my rank has ended in order                     both ways, so that the end of the connection means nothing bad

   A supervisor never waits here but for the rest of a frame, and for a few seconds at the end of a run. */
#define _GNU_SOURCE
#include "link.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

typedef enum { ARRIVE = 1, GO, STOP, FAIL, BYE } Kind;

typedef struct {
  uint32_t kind, bytes;
  int32_t value, stuck;
} Head;

enum { ECHO_MS = 5000 };

static bool is_hub(const Rt *rt) { return rt->first == 0; }

static void tell(const Peer *p, Kind kind, int value, bool stuck, const void *data, size_t bytes) {
  char frame[sizeof(Head) + RT_MESSAGE];
  Head head = {kind, (uint32_t)bytes, value, stuck};
  if (p->fd < 0) return;
  memcpy(frame, &head, sizeof head);
  if (bytes) memcpy(frame + sizeof head, data, bytes);
  for (size_t at = 0, n = sizeof head + bytes; at < n;) { /* who cannot be told is noticed when it is read from */
    ssize_t k = send(p->fd, frame + at, n - at, MSG_NOSIGNAL);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) return;
    at += (size_t)k;
  }
}

static void tell_all(const Link *l, Kind kind, int value, bool stuck, const void *data, size_t bytes) {
  for (int i = 0; i < l->npeers; i++) tell(&l->peer[i], kind, value, stuck, data, bytes);
}

static bool hear(const Peer *p, Head *head, char body[RT_MESSAGE]) {
  if (recv(p->fd, head, sizeof *head, MSG_WAITALL) != (ssize_t)sizeof *head) return false;
  if (head->kind < ARRIVE || head->kind > BYE || head->bytes > RT_MESSAGE) return false;
  return !head->bytes || recv(p->fd, body, head->bytes, MSG_WAITALL) == (ssize_t)head->bytes;
}

static void release(Rt *rt) {
  rt->link->meetings++;
  rt_arrive(&rt->shared->released, 1);
}

static void arrived(Rt *rt) {
  Link *l = rt->link;
  if (!is_hub(rt)) {
    tell(&l->peer[0], ARRIVE, 0, false, NULL, 0);
  } else if (++l->here == rt->p->nranks) {
    l->here = 0;
    tell_all(l, GO, 0, false, rt->shared->slot[l->meetings & 1], RT_SLOT);
    release(rt);
  }
}

static void over(Link *l, int rc, bool stuck, const char *message, size_t bytes) {
  if (l->over) return;
  size_t n = bytes < RT_MESSAGE ? bytes : RT_MESSAGE - 1;
  l->over = true, l->rc = rc, l->stuck = stuck;
  memcpy(l->message, message, n);
  l->message[n] = 0;
}

static void lost(Link *l, Peer *p) {
  char text[128];
  close(p->fd);
  p->fd = -1;
  if (p->ended) return;
  int n = snprintf(text, sizeof text, "the process of rank %d is gone; all ranks were stopped", p->rank);
  over(l, EXIT_DATA, false, text, (size_t)n);
}

static void serve_peer(Rt *rt, Peer *p) {
  Link *l = rt->link;
  Head head;
  char body[RT_MESSAGE];
  if (!hear(p, &head, body)) {
    lost(l, p);
  } else if (head.kind == BYE) {
    p->ended = true;
  } else if (head.kind == FAIL) {
    over(l, head.value, head.stuck, body, head.bytes);
  } else if (head.kind == STOP && is_hub(rt)) {
    atomic_store(&rt->shared->stop, head.value);
  } else if (head.kind == ARRIVE && is_hub(rt)) {
    arrived(rt);
  } else if (head.kind == GO && !is_hub(rt) && head.bytes == RT_SLOT) {
    memcpy(rt->shared->slot[l->meetings & 1], body, RT_SLOT);
    release(rt);
  }
}

int rt_link_polls(const Rt *rt, struct pollfd *fd) {
  const Link *l = rt->link;
  fd[0] = (struct pollfd){.fd = rt->bell, .events = POLLIN};
  for (int i = 0; i < l->npeers; i++) fd[1 + i] = (struct pollfd){.fd = l->peer[i].fd, .events = POLLIN};
  return 1 + l->npeers;
}

void rt_link_serve(Rt *rt, const struct pollfd *fd, int n) {
  uint64_t rung;
  if (fd[0].revents && read(rt->bell, &rung, sizeof rung) == sizeof rung) arrived(rt);
  for (int i = 1; i < n; i++)
    if (fd[i].revents && fd[i].fd >= 0) serve_peer(rt, &rt->link->peer[i - 1]);
}

void rt_link_stop(Rt *rt, int signal) {
  if (rt->link && !is_hub(rt)) tell(&rt->link->peer[0], STOP, signal, false, NULL, 0);
}

/* Until the hub has answered with the same, or is gone: a launcher kills all as soon as one of us ends. */
static bool echoed(Rt *rt) {
  Peer *p = &rt->link->peer[0];
  uint64_t end = rt_ns() + (uint64_t)ECHO_MS * 1000000;
  while (p->fd >= 0 && rt_ns() < end) {
    struct pollfd fd = {.fd = p->fd, .events = POLLIN};
    Head head;
    char body[RT_MESSAGE];
    if (poll(&fd, 1, 100) <= 0) continue;
    if (!hear(p, &head, body)) return false;
    if (head.kind == FAIL) return true;
  }
  return false;
}

bool rt_link_fail(Rt *rt, int rc, const char *message, bool stuck) {
  if (!rt->link) return false;
  tell_all(rt->link, FAIL, rc, stuck, message, strnlen(message, RT_MESSAGE - 1));
  return !is_hub(rt) && (rt->link->over || echoed(rt));
}

void rt_link_end(Rt *rt) {
  if (rt->link) tell_all(rt->link, BYE, 0, false, NULL, 0);
}

void rt_link_open(Rt *rt) {
  rt->link = rt_alloc(1, sizeof *rt->link);
  rt_meet_peers(rt, rt->link);
}
