/* sync.c: waiting for other ranks, and ending a run that cannot go on.

   A barrier is a counter and a generation. The last of n ranks that arrives resets the counter and raises the
   generation; the others wait for that. How they wait was measured (2 cores, barrier without work): with a core
   per rank, spinning 0.07 us against 20 us for a futex; with more ranks than cores, sched_yield 2 us, futex 22,
   spinning thousands. So: as many cores as ranks: about 10,000 pauses, then sleep on a futex; fewer: up to 200
   times sched_yield, then sleep.

     rank 0  arrives (1 of 2), waits for generation 8        rank 1  arrives (2 of 2): counter = 0, generation = 8 */
#define _GNU_SOURCE
#include "rt.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SPINS = 10000, YIELDS = 200 };

static void pause_briefly(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

static void futex(_Atomic uint32_t *word, int op, uint32_t value) { syscall(SYS_futex, word, op, value, NULL, NULL, 0); }

static void wait_for_change(Barrier *b, uint32_t old, bool spins) {
  for (int i = 0, n = spins ? SPINS : YIELDS; i < n; i++) {
    if (atomic_load_explicit(&b->generation, memory_order_acquire) != old) return;
    if (spins)
      pause_briefly();
    else
      sched_yield();
  }
  atomic_fetch_add(&b->sleepers, 1); /* before looking again, so that the last rank sees it or we see the change */
  while (atomic_load(&b->generation) == old) futex(&b->generation, FUTEX_WAIT, old);
  atomic_fetch_sub(&b->sleepers, 1);
}

void rt_barrier(Barrier *b, uint32_t n, bool spins) {
  if (n <= 1) return;
  uint32_t generation = atomic_load_explicit(&b->generation, memory_order_relaxed); /* cannot rise before we arrive */
  if (atomic_fetch_add(&b->arrived, 1) + 1 < n) {
    wait_for_change(b, generation, spins);
    return;
  }
  atomic_store_explicit(&b->arrived, 0, memory_order_relaxed);
  atomic_fetch_add(&b->generation, 1);
  if (atomic_load(&b->sleepers)) futex(&b->generation, FUTEX_WAKE, INT_MAX);
}

void rt_world_barrier(Rt *rt) { rt_barrier(&rt->shared->world, (uint32_t)rt->p->nranks, rt->spins); }

_Noreturn void rt_fail(Rt *rt, int rc, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  if (rt->rank < 0) { /* only the supervisor exists yet */
    fflush(stdout);
    fprintf(stderr, "%s: ", rt->o.argv0);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    exit(rc);
  }
  int nobody = 0;
  if (atomic_compare_exchange_strong(&rt->shared->failed, &nobody, rt->rank + 1)) {
    vsnprintf(rt->shared->message, RT_MESSAGE, fmt, ap);
    rt->shared->rc = rc;
    fflush(stdout);
    _exit(rc);
  }
  va_end(ap);
  for (;;) pause(); /* another rank was first; the supervisor ends this one */
}

void *rt_alloc(size_t n, size_t size) {
  void *p = calloc(n ? n : 1, size ? size : 1);
  if (p) return p;
  fprintf(stderr, "out of memory: %zu x %zu bytes\n", n, size);
  _exit(EXIT_DATA);
}

bool rt_mul(int64_t a, int64_t b, int64_t *out) { return !__builtin_mul_overflow(a, b, out); }
bool rt_add(int64_t a, int64_t b, int64_t *out) { return !__builtin_add_overflow(a, b, out); }

uint64_t rt_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
double rt_now(void) { return (double)rt_ns() * 1e-9; }
