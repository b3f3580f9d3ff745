/* sync.c: waiting for other ranks, and ending a run that cannot go on.

   A meeting is a barrier of all ranks, after which all have what rank 0 brought. Ranks that one supervisor started
   (launch.c) meet in shared memory. Where a launcher started them one by one, each rings its supervisor's bell; the
   supervisors agree (link.c), and each releases its rank. Rank 0's bytes lie in two slots in turn: it writes one of them again
   only when all have come to the next meeting, so have read it.

   A barrier counts arrivals and never goes back: n ranks have met for the k-th time when there are k * n. So coming and
   waiting are two things, and other work fits between them. How a rank waits was measured (2 cores, barrier without
   work): with a core per rank, spinning 0.07 us against 20 us for a futex; with more ranks than cores, sched_yield 2 us,
   futex 22, spinning thousands. So: as many cores as ranks: about 10,000 pauses, then sleep on a futex; fewer: up to 200
   times sched_yield, then sleep.

     rank 0  arrives (7), waits for 8        rank 1  arrives (8): the fourth meeting of two is complete            */
#define _GNU_SOURCE
#include "sync.h"

#include <assert.h>
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SPINS = 10000, YIELDS = 200 };

static void pause_briefly(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

/* The kernel compares 32 bits: the low half of the counter, which comes first in memory. */
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a futex on the low half of a 64-bit counter");
static void futex(_Atomic uint64_t *word, int op, uint32_t value) { syscall(SYS_futex, word, op, value, NULL, NULL, 0); }

uint64_t rt_arrive(Barrier *b, uint32_t n) {
  uint64_t come = atomic_fetch_add(&b->arrived, 1) + 1, full = (come + n - 1) / n * n;
  if (come == full && atomic_load(&b->sleepers)) futex(&b->arrived, FUTEX_WAKE, INT_MAX);
  return full;
}

void rt_await(Barrier *b, uint64_t full, bool spins) {
  for (int i = 0, n = spins ? SPINS : YIELDS; i < n; i++) {
    if (atomic_load_explicit(&b->arrived, memory_order_acquire) >= full) return;
    if (spins)
      pause_briefly();
    else
      sched_yield();
  }
  atomic_fetch_add(&b->sleepers, 1); /* before looking again, so that the last rank sees it or we see the last rank */
  for (uint64_t come; (come = atomic_load(&b->arrived)) < full;) futex(&b->arrived, FUTEX_WAIT, (uint32_t)come);
  atomic_fetch_sub(&b->sleepers, 1);
}

void rt_barrier(Barrier *b, uint32_t n, bool spins) {
  if (n > 1) rt_await(b, rt_arrive(b, n), spins);
}

/* To the supervisor: our one rank has come. */
static void ring(const Rt *rt) {
  uint64_t one = 1;
  while (write(rt->bell, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

void rt_meet(Rt *rt, void *data, size_t bytes) {
  assert(bytes <= RT_SLOT && "what rank 0 hands out at a meeting is small");
  Shared *s = rt->shared;
  char *slot = s->slot[rt->meetings++ & 1];
  if (rt->rank == 0 && bytes) memcpy(slot, data, bytes);
  if (rt->bell < 0) {
    rt_barrier(&s->world, (uint32_t)rt->nlocal, rt->spins);
  } else {
    ring(rt);
    rt_await(&s->released, rt->meetings, false);
  }
  if (bytes) memcpy(data, slot, bytes);
}

void rt_world_barrier(Rt *rt) { rt_meet(rt, NULL, 0); }

char *rt_unfinished(Rt *rt) { return rt->shared->unfinished; }

/* A message stays a line, whatever stands in variables and names of files. */
static void write_message(char out[RT_MESSAGE], const char *fmt, va_list ap) {
  vsnprintf(out, RT_MESSAGE, fmt, ap);
  for (; *out; out++)
    if ((unsigned char)*out < ' ' || *out == 127) *out = '?';
}

_Noreturn void rt_fail(Rt *rt, int rc, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  if (rt->rank < 0) { /* only the supervisor exists yet */
    char message[RT_MESSAGE];
    write_message(message, fmt, ap);
    fflush(stdout);
    fprintf(stderr, "%s: %s\n", rt->o.argv0, message);
    exit(rc);
  }
  int nobody = 0;
  if (atomic_compare_exchange_strong(&rt->shared->failed, &nobody, rt->rank + 1)) {
    write_message(rt->shared->message, fmt, ap);
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
