/* launch.c: dtrt_main. A supervisor opens and checks all files, lays out one mapping for everybody, forks a process
   per rank and waits. Whatever happens to one process happens to all:

     a rank ends badly    the supervisor kills the others and says who, at which step, in which collective
     the supervisor dies  the kernel kills the ranks (PR_SET_PDEATHSIG)
     Ctrl-C, SIGTERM      a flag in shared memory; the ranks agree on the step to stop at and end in order

   The mapping is an unnamed memfd: when the last process ends it is gone.

     | Shared, barriers | arena + workspace of rank 0 | of rank 1 | ...
                          <-------- stride -------->

   A single rank shares its arena with nobody, so it lies in ordinary memory, which can have huge pages where the
   kernel gives them only to such. */
#define _GNU_SOURCE
#include "rt.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 2 << 20 };

static size_t pages(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

/* ---- memory ---- */

static void out_of_memory(Rt *rt, size_t bytes) {
  rt_fail(rt, EXIT_DATA, "the program needs %.1f GiB of memory in all (%d ranks): %s", (double)bytes / 0x1p30, rt->p->nranks,
          strerror(errno));
}

/* A limit on the size of files is meant for files with names. */
static int memory_file(size_t bytes) {
  struct rlimit limit, most;
  int fd = memfd_create("dtrt", MFD_CLOEXEC);
  if (fd < 0 || getrlimit(RLIMIT_FSIZE, &limit)) return -1;
  most = (struct rlimit){limit.rlim_max, limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &most);
  bool ok = ftruncate(fd, (off_t)bytes) == 0;
  int why = errno;
  setrlimit(RLIMIT_FSIZE, &limit);
  errno = why;
  return ok ? fd : -1;
}

static void map_memory(Rt *rt) {
  const dtrt_Program *p = rt->p;
  size_t control = sizeof(Shared) + (size_t)p->nranks * sizeof(RankState) + 64;
  size_t barriers = (size_t)rt_comm_barriers(p) * sizeof(Barrier);
  bool shared = p->nranks > 1;
  size_t head = pages(control + barriers), arenas = rt->stride * (size_t)p->nranks;
  size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
  errno = ENOMEM;
  if (head + arenas > memory) out_of_memory(rt, head + arenas);
  size_t bytes = head + (shared ? arenas : 0);
  int fd = memory_file(bytes);
  if (fd < 0) out_of_memory(rt, bytes);
  char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) out_of_memory(rt, bytes);
  close(fd);
  rt->shared = (Shared *)at;
  rt->barriers = (Barrier *)(at + (control + 63) / 64 * 64);
  rt->arenas = at + head;
  if (!shared) {
    char *mine = mmap(NULL, arenas + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mine == MAP_FAILED) out_of_memory(rt, arenas);
    rt->arenas = (char *)pages((size_t)mine);
  }
  for (int r = 0; r < p->nranks; r++) rt->shared->rank[r].collective = rt->shared->rank[r].last = -1;
}

/* First touch by the owner, so that memory is near it; also finds out now if there is not enough. */
static void touch(Rt *rt) {
  char *mine = rt->arenas + (size_t)rt->rank * rt->stride;
  madvise(mine, rt->stride, MADV_HUGEPAGE);
#ifdef MADV_POPULATE_WRITE
  if (madvise(mine, rt->stride, MADV_POPULATE_WRITE) == 0) return;
  if (errno == ENOMEM || errno == EFAULT)
    rt_fail(rt, EXIT_DATA, "rank %d: no memory for its %.1f MiB", rt->rank, (double)rt->stride / 0x1p20);
#endif
  for (size_t i = 0; i < rt->stride; i += 4096) mine[i] = 0;
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
  int lo = rt->rank * rt->ncores / rt->p->nranks, hi = (rt->rank + 1) * rt->ncores / rt->p->nranks, nth = 0;
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
  rt->terminal = rt->terminal && rank == 0;
  pin(rt);
  rt_one_thread();
  touch(rt);
  int rc = rt_train(rt);
  fflush(stdout);
  _exit(rc);
}

/* ---- the supervisor ---- */

static void end_all(int n, const pid_t *pid) {
  for (int r = 0; r < n; r++)
    if (pid[r] > 0) kill(pid[r], SIGKILL);
  for (int r = 0; r < n; r++)
    if (pid[r] > 0) waitpid(pid[r], NULL, 0);
}

static const char *phase_name(int phase) {
  static const char *const name[] = {"between steps", "loading data",       "forward", "backward", "update",
                                     "saving",        "after the last step"};
  return name[phase];
}

/* "at step 17, forward, in all_reduce over model (charlm.dt:26)" */
static void where(const Rt *rt, int rank, char *out, size_t size) {
  const RankState *s = &rt->shared->rank[rank];
  int running = atomic_load(&s->collective), last = atomic_load(&s->last), id = running >= 0 ? running : last;
  int n = snprintf(out, size, "at step %lld, %s", (long long)atomic_load(&s->step) + 1, phase_name(atomic_load(&s->phase)));
  if (id < 0 || id >= rt->p->ncollectives || n < 0 || (size_t)n >= size) {
    if (n > 0 && (size_t)n < size) snprintf(out + n, size - (size_t)n, ", before the first collective");
    return;
  }
  const dtrt_Collective *c = &rt->p->collective[id];
  snprintf(out + n, size - (size_t)n, ", %s %s over %s (%s:%d)", running >= 0 ? "in" : "after", c->kind, c->axes, c->file,
           c->line);
}

/* What the user reads when a rank ended with `status`; returns the exit code. */
static int explain(const Rt *rt, int rank, int status) {
  const Shared *s = rt->shared;
  char place[512];
  where(rt, rank, place, sizeof place);
  if (rt->terminal) fputc('\n', stdout);
  fflush(stdout);
  if (atomic_load(&s->failed)) {
    fprintf(stderr, "%s: %s\n", rt->o.argv0, s->message);
    return s->rc;
  }
  if (!WIFSIGNALED(status)) {
    fprintf(stderr, "%s: rank %d ended with exit code %d %s; all ranks were stopped\n", rt->o.argv0, rank, WEXITSTATUS(status),
            place);
    return EXIT_FAULT;
  }
  int sig = WTERMSIG(status);
  if (sig == SIGPIPE) {
    fprintf(stderr, "%s: nobody reads the output any more; stopped\n", rt->o.argv0);
    return EXIT_DATA;
  }
  fprintf(stderr, "%s: rank %d was killed by signal %d (%s) %s; all ranks were stopped%s\n", rt->o.argv0, rank, sig,
          strsignal(sig), place, sig == SIGKILL ? ". If nobody did this, the machine ran out of memory (dmesg)" : "");
  return sig == SIGSEGV || sig == SIGBUS || sig == SIGABRT || sig == SIGILL || sig == SIGFPE ? EXIT_FAULT : EXIT_DATA;
}

/* Ends everything after a rank ended badly, or after a second Ctrl-C (rank -1). */
static int break_off(Rt *rt, pid_t *pid, int rank, int status) {
  end_all(rt->p->nranks, pid);
  if (rt->shared->unfinished[0]) unlink(rt->shared->unfinished);
  if (rank >= 0) return explain(rt, rank, status);
  fprintf(stderr, "%s: stopped at once, nothing more was saved\n", rt->o.argv0);
  return EXIT_DATA;
}

static int supervise(Rt *rt, pid_t *pid, const sigset_t *signals) {
  for (int left = rt->p->nranks; left;) {
    int sig = sigwaitinfo(signals, NULL);
    if (sig < 0) continue;
    if (sig != SIGCHLD) {
      if (atomic_exchange(&rt->shared->stop, sig) && sig == SIGINT) return break_off(rt, pid, -1, 0);
      continue;
    }
    for (int r = 0; r < rt->p->nranks; r++) {
      int status;
      if (pid[r] <= 0 || waitpid(pid[r], &status, WNOHANG) <= 0) continue;
      if (WIFSTOPPED(status) || WIFCONTINUED(status)) continue;
      pid[r] = 0;
      left--;
      if (status) return break_off(rt, pid, r, status);
    }
  }
  return rt->shared->result;
}

static int start(Rt *rt) {
  sigset_t signals, before;
  sigemptyset(&signals);
  for (size_t i = 0; i < 4; i++) sigaddset(&signals, (int[]){SIGCHLD, SIGINT, SIGTERM, SIGHUP}[i]);
  sigprocmask(SIG_BLOCK, &signals, &before); /* the ranks keep them blocked and look for them between steps */
  pid_t me = getpid(), *pid = rt_alloc((size_t)rt->p->nranks, sizeof *pid);
  fflush(NULL);
  for (int r = 0; r < rt->p->nranks; r++) {
    pid[r] = fork();
    if (pid[r] == 0) run_rank(rt, r, me);
    if (pid[r] > 0) continue;
    int why = errno;
    end_all(r, pid);
    rt_fail(rt, EXIT_DATA, "cannot start rank %d: %s", r, strerror(why));
  }
  int rc = supervise(rt, pid, &signals);
  free(pid);
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
  rt.ncores = count_cores();
  rt.spins = p->nranks <= rt.ncores;
  rt.stride = pages((size_t)p->arena_bytes) + pages((size_t)p->workspace_bytes) + PAGE;
  rt.terminal = isatty(STDOUT_FILENO);
  rt.total = p->trains ? rt.o.steps : 1;
  signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit is an error like a full disk */
  rt_checkpoint_open(&rt);
  rt_data_open(&rt);
  map_memory(&rt);
  rt_report_start(&rt);
  return start(&rt);
}
