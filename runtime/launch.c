/* launch.c: dtrt_main. A supervisor opens and checks all files, lays out what its ranks share, forks a process per rank and
   waits. Usually it starts all ranks of the mesh; started by a launcher (join.c) only one, and the supervisors are linked
   (link.c). Whatever happens to one process happens to all:

     a rank ends badly        the supervisors kill the others and one says who, at which step, in which collective
     the supervisor dies      the kernel kills its ranks (PR_SET_PDEATHSIG), the other supervisors end theirs
     Ctrl-C, SIGTERM          a flag in shared memory; the ranks agree on the step to stop at and end in order
     the device stands still  after --timeout seconds everything ends with the list of the last collectives (flight.c)

   A supervisor touches no device: what hangs there is a process that can be killed. */
#define _GNU_SOURCE
#include "link.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

static void share(Rt *rt) {
  size_t bytes = sizeof(Shared) + (size_t)rt->nlocal * sizeof(RankState);
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) rt_fail(rt, EXIT_DATA, "no memory to share between ranks: %s", strerror(errno));
  rt->shared = at;
  for (int r = 0; r < rt->nlocal; r++) rt->shared->rank[r].collective = rt->shared->rank[r].last = -1;
}

/* ---- a rank ---- */

static int count_cores(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

/* Deals the allowed cores out to the ranks in contiguous shares: one each when there are as many, all to a single
   rank. With fewer cores than ranks the kernel decides. */
static void pin(const Rt *rt) {
  cpu_set_t all, mine;
  if (!rt->spins || sched_getaffinity(0, sizeof all, &all)) return;
  CPU_ZERO(&mine);
  int local = rt->rank - rt->first, nth = 0;
  int lo = local * rt->ncores / rt->nlocal, hi = (local + 1) * rt->ncores / rt->nlocal;
  for (int c = 0; c < CPU_SETSIZE; c++) {
    if (!CPU_ISSET(c, &all)) continue;
    if (nth >= lo && nth < hi) CPU_SET(c, &mine);
    nth++;
  }
  sched_setaffinity(0, sizeof mine, &mine);
}

static _Noreturn void run_rank(Rt *rt, int rank, pid_t supervisor) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != supervisor) _exit(EXIT_DATA); /* it died before we asked to be told */
  rt->rank = rank;
  rt->host_rank += rank - rt->first;
  rt->terminal = rt->terminal && rank == 0;
  pin(rt);
  int rc = rt_train(rt);
  fflush(stdout);
  _exit(rc);
}

/* ---- what the user reads ---- */

static const char *phase_name(int phase) {
  static const char *const name[] = {"between steps", "loading data",       "forward", "backward", "update",
                                     "saving",        "after the last step"};
  return name[phase];
}

/* "at step 17, forward, in all_reduce over model (charlm.dt:26)" */
static void where(const Rt *rt, int rank, char *out, size_t size) {
  const RankState *s = &rt->shared->rank[rank - rt->first];
  int running = atomic_load(&s->collective), last = atomic_load(&s->last);
  rt_flight_at(rt, rank - rt->first, &running, &last);
  int id = running >= 0 ? running : last;
  int n = snprintf(out, size, "at step %lld, %s", (long long)atomic_load(&s->step) + 1, phase_name(atomic_load(&s->phase)));
  if (id < 0 || id >= rt->p->ncollectives || n < 0 || (size_t)n >= size) {
    if (n > 0 && (size_t)n < size) snprintf(out + n, size - (size_t)n, ", before the first collective");
    return;
  }
  const dtrt_Collective *c = &rt->p->collective[id];
  snprintf(out + n, size - (size_t)n, ", %s %s over %s (%s:%d)", running >= 0 ? "in" : "after", c->kind, c->axes, c->file,
           c->line);
}

/* How a run ended badly. */
typedef struct {
  int rc;
  bool stuck; /* with the list of the last collectives */
  char message[RT_MESSAGE];
} Ending;

static Ending explain(const Rt *rt, int rank, int status) {
  const Shared *s = rt->shared;
  Ending e = {.rc = EXIT_FAULT};
  char place[512];
  where(rt, rank, place, sizeof place);
  if (atomic_load(&s->failed)) {
    e.rc = s->rc, e.stuck = s->stuck;
    memcpy(e.message, s->message, sizeof e.message);
  } else if (!WIFSIGNALED(status)) {
    snprintf(e.message, sizeof e.message, "rank %d ended with exit code %d %s; all ranks were stopped", rank, WEXITSTATUS(status),
             place);
  } else if (WTERMSIG(status) == SIGPIPE) {
    e.rc = EXIT_DATA;
    snprintf(e.message, sizeof e.message, "nobody reads the output any more; stopped");
  } else {
    int sig = WTERMSIG(status);
    bool fault = sig == SIGSEGV || sig == SIGBUS || sig == SIGABRT || sig == SIGILL || sig == SIGFPE;
    e.rc = fault ? EXIT_FAULT : EXIT_DATA;
    snprintf(e.message, sizeof e.message, "rank %d was killed by signal %d (%s) %s; all ranks were stopped%s", rank, sig,
             strsignal(sig), place, sig == SIGKILL ? ". If nobody did this, the machine ran out of memory (dmesg)" : "");
  }
  return e;
}

/* Which local rank has waited for its device for too long, or -1. */
static int stuck_rank(const Rt *rt) {
  uint64_t now = rt_ns();
  for (int r = 0; r < rt->nlocal && rt->o.timeout > 0; r++) {
    uint64_t since = atomic_load(&rt->shared->rank[r].waiting_since);
    if (since && now > since && (now - since) / 1000000000u >= (uint64_t)rt->o.timeout) return rt->first + r;
  }
  return -1;
}

static Ending stands_still(const Rt *rt, int rank) {
  Ending e = {.rc = EXIT_DATA, .stuck = true};
  char place[512];
  where(rt, rank, place, sizeof place);
  snprintf(e.message, sizeof e.message, "rank %d has waited for its device for %lld s (--timeout) %s; all ranks were stopped",
           rank, (long long)rt->o.timeout, place);
  return e;
}

/* ---- the supervisor ---- */

static void end_all(int n, const pid_t *pid) {
  for (int r = 0; r < n; r++)
    if (pid[r] > 0) kill(pid[r], SIGKILL);
  for (int r = 0; r < n; r++)
    if (pid[r] > 0) waitpid(pid[r], NULL, 0);
}

/* Ends everything, here and everywhere. Of several supervisors the one of rank 0 shows the message. `heard`: another one
   ended the run. */
static int break_off(Rt *rt, const pid_t *pid, const Ending *e, bool heard) {
  end_all(rt->nlocal, pid);
  if (rt->shared->unfinished[0]) unlink(rt->shared->unfinished);
  if (rt->shared->bar) fputc('\n', stdout);
  fflush(stdout);
  for (int r = 0; e->stuck && r < rt->nlocal; r++) rt_flight_print(rt, r, stderr);
  if (rt->first == 0) fprintf(stderr, "%s: %s\n", rt->o.argv0, e->message);
  if (!rt_link_fail(rt, e->rc, e->message, e->stuck) && rt->first && !heard) fprintf(stderr, "%s: %s\n", rt->o.argv0, e->message);
  return e->rc;
}

/* The ranks that have ended. True if one ended badly. */
static bool reap(const Rt *rt, pid_t *pid, int *left, Ending *e) {
  for (int r = 0; r < rt->nlocal; r++) {
    int status;
    if (pid[r] <= 0 || waitpid(pid[r], &status, WNOHANG) <= 0) continue;
    if (WIFSTOPPED(status) || WIFCONTINUED(status)) continue;
    pid[r] = 0;
    --*left;
    if (!status) continue;
    *e = explain(rt, rt->first + r, status);
    return true;
  }
  return false;
}

/* True when the run must end at once. */
static bool take_signals(Rt *rt, int signals, pid_t *pid, int *left, Ending *e) {
  struct signalfd_siginfo s;
  while (read(signals, &s, sizeof s) == sizeof s) {
    int sig = (int)s.ssi_signo;
    if (sig == SIGCHLD) {
      if (reap(rt, pid, left, e)) return true;
    } else if (atomic_exchange(&rt->shared->stop, sig) && sig == SIGINT) {
      *e = (Ending){.rc = EXIT_DATA, .message = "stopped at once, nothing more was saved"};
      return true;
    } else {
      rt_link_stop(rt, sig);
    }
  }
  return false;
}

static int supervise(Rt *rt, pid_t *pid, int signals) {
  struct pollfd *fd = rt_alloc((size_t)rt->p->nranks + 2, sizeof *fd);
  Ending e = {0};
  int rc = -1;
  for (int left = rt->nlocal, stuck; left && rc < 0;) {
    fd[0] = (struct pollfd){.fd = signals, .events = POLLIN};
    int n = rt->link ? rt_link_polls(rt, fd + 1) : 0;
    poll(fd, (nfds_t)n + 1, 1000);
    if (rt->link) rt_link_serve(rt, fd + 1, n);
    if (take_signals(rt, signals, pid, &left, &e)) {
      rc = break_off(rt, pid, &e, false);
    } else if (left && rt->link && rt->link->over) {
      e = (Ending){.rc = rt->link->rc, .stuck = rt->link->stuck};
      memcpy(e.message, rt->link->message, sizeof e.message);
      rc = break_off(rt, pid, &e, true);
    } else if ((stuck = stuck_rank(rt)) >= 0) {
      e = stands_still(rt, stuck);
      rc = break_off(rt, pid, &e, false);
    }
  }
  free(fd);
  if (rc >= 0) return rc;
  rt_link_end(rt);
  return rt->shared->result;
}

static int start(Rt *rt) {
  sigset_t set, before;
  sigemptyset(&set);
  for (size_t i = 0; i < 4; i++) sigaddset(&set, (int[]){SIGCHLD, SIGINT, SIGTERM, SIGHUP}[i]);
  sigprocmask(SIG_BLOCK, &set, &before); /* the ranks keep them blocked and look for them between steps */
  int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (rt->link) rt->bell = eventfd(0, EFD_CLOEXEC);
  if (signals < 0 || (rt->link && rt->bell < 0)) rt_fail(rt, EXIT_DATA, "cannot wait for ranks: %s", strerror(errno));
  pid_t me = getpid(), *pid = rt_alloc((size_t)rt->nlocal, sizeof *pid);
  fflush(NULL);
  for (int r = 0; r < rt->nlocal; r++) {
    pid[r] = fork();
    if (pid[r] == 0) run_rank(rt, rt->first + r, me);
    if (pid[r] > 0) continue;
    int why = errno;
    end_all(r, pid);
    rt_fail(rt, EXIT_DATA, "cannot start rank %d: %s", rt->first + r, strerror(why));
  }
  int rc = supervise(rt, pid, signals);
  free(pid);
  close(signals);
  sigprocmask(SIG_SETMASK, &before, NULL);
  return rc;
}

const int rt_level = DTRT_LEVEL;

int rt_main(const dtrt_Program *p, int argc, char **argv) {
  Rt rt = {.p = p, .rank = -1};
  rt_options(p, argc, argv, &rt.o);
  if (p->abi != DTRT_ABI)
    rt_fail(&rt, EXIT_FAULT, "compiled for version %d of the runtime, linked to version %d", p->abi, DTRT_ABI);
  if (p->nranks < 1 || p->nranks > RT_MAX_RANKS)
    rt_fail(&rt, EXIT_DATA, "a mesh of %d devices; at most %d run here", p->nranks, RT_MAX_RANKS);
  rt_join(&rt);
  rt.ncores = count_cores();
  rt.spins = rt.nlocal <= rt.ncores;
  rt.terminal = isatty(STDOUT_FILENO) && rt.first == 0;
  rt.total = p->trains ? rt.o.steps : 1;
  signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit is an error like a full disk */
  rt_checkpoint_open(&rt);
  rt_data_open(&rt);
  share(&rt);
  rt_reserve(&rt);
  if (rt.launcher) rt_link_open(&rt);
  return start(&rt);
}
