/* memory.c: the arenas of ranks that are processes of one machine. They lie in one mapping that every rank sees whole, made
   before the ranks are forked, so that a peer's buffer is one's own address plus a multiple of the stride:

     | barriers | arena + workspace of rank 0 | of rank 1 | ...
                  <-------- stride -------->

   The mapping is an unnamed memfd: when the last process ends it is gone. A single rank shares its arena with nobody, so it
   lies in ordinary memory, which can have huge pages where the kernel gives them only to such. The host sees the arena as it is:
   nothing is copied to look at it, and what a phase did is there when it returns. */
#define _GNU_SOURCE
#include "memory.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { PAGE = 2 << 20 };

const bool rt_spans_hosts = false;

static size_t pages(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

double rt_memory(const dtrt_Program *p) { return (double)p->arena_bytes + (double)p->workspace_bytes; }

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

void rt_reserve(Rt *rt) {
  const dtrt_Program *p = rt->p;
  Transport *t = rt->transport = rt_alloc(1, sizeof *t);
  t->stride = pages((size_t)p->arena_bytes) + pages((size_t)p->workspace_bytes) + PAGE;
  bool shared = p->nranks > 1;
  size_t head = pages((size_t)p->ncollectives * (size_t)p->nranks * sizeof(Barrier)), arenas = t->stride * (size_t)p->nranks;
  size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
  errno = ENOMEM;
  if (head + arenas > memory) out_of_memory(rt, head + arenas);
  if (!shared) {
    char *mine = mmap(NULL, arenas + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mine == MAP_FAILED) out_of_memory(rt, arenas);
    t->arenas = (char *)pages((size_t)mine);
    t->barriers = rt_alloc((size_t)p->ncollectives, sizeof *t->barriers); /* nobody else comes to them */
    return;
  }
  int fd = memory_file(head + arenas);
  if (fd < 0) out_of_memory(rt, head + arenas);
  char *at = mmap(NULL, head + arenas, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) out_of_memory(rt, head + arenas);
  close(fd);
  t->barriers = (Barrier *)at;
  t->arenas = at + head;
}

/* First touch by the owner, so that memory is near it; also finds out now if there is not enough. */
static void touch(Rt *rt, char *mine, size_t bytes) {
  madvise(mine, bytes, MADV_HUGEPAGE);
#ifdef MADV_POPULATE_WRITE
  if (madvise(mine, bytes, MADV_POPULATE_WRITE) == 0) return;
  if (errno == ENOMEM || errno == EFAULT)
    rt_fail(rt, EXIT_DATA, "rank %d: no memory for its %.1f MiB", rt->rank, (double)bytes / 0x1p20);
#endif
  for (size_t i = 0; i < bytes; i += 4096) mine[i] = 0;
}

void rt_open(Rt *rt) {
  Transport *t = rt->transport;
  rt->cx.arena = t->arenas + (size_t)rt->rank * t->stride;
  rt->cx.workspace = rt->cx.arena + ((size_t)rt->p->arena_bytes + 4095) / 4096 * 4096;
  rt->cx.setting = rt->o.setting;
  t->full = rt_alloc((size_t)rt->p->ncollectives, sizeof *t->full);
  rt_one_thread();
  touch(rt, rt->cx.arena, t->stride);
}

void rt_close(Rt *rt) { free(rt->transport->full); }

bool rt_in_arena(const Rt *rt, const void *mine) {
  return (const char *)mine >= rt->cx.arena && (const char *)mine < rt->cx.arena + rt->transport->stride;
}
void *rt_peer(const Rt *rt, int rank, const void *mine) {
  return (char *)(uintptr_t)mine + ((ptrdiff_t)rank - rt->rank) * (ptrdiff_t)rt->transport->stride;
}

/* ---- the host's view, which is the arena ---- */

void *rt_borrow(Rt *rt, const void *at, size_t bytes, bool read) {
  (void)rt, (void)bytes, (void)read;
  return (void *)(uintptr_t)at;
}
void rt_return(Rt *rt, void *at, void *view, size_t bytes) { (void)rt, (void)at, (void)view, (void)bytes; }

void rt_clear(Rt *rt, void *at, size_t bytes) { (void)rt, (void)at, (void)bytes; } /* fresh memory is zeros */

void rt_run(Rt *rt, Phase phase, void (*f)(dtrt_Context *), bool plainly) {
  (void)phase, (void)plainly;
  f(&rt->cx);
}
void rt_settle(Rt *rt, Phase phase) { (void)rt, (void)phase; }
void rt_idle(Rt *rt) { (void)rt; }
void rt_show(Rt *rt, int id, const void *value, size_t bytes) { memcpy(rt->shown[id], value, bytes); }

/* Scalars in local variables get a place in shared memory, behind the workspace. */
const void *rt_reachable(Rt *rt, const void *value, size_t bytes) {
  if (rt_in_arena(rt, value)) return value;
  if (bytes > 64) rt_fail(rt, EXIT_FAULT, "a value is shown from outside the arena");
  return memcpy(rt->cx.arena + rt->transport->stride - 64, value, bytes);
}
