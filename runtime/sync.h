/* sync.h: what the processes of one start see of each other: a mapping made before they are forked. Only the supervisor
   (launch.c), the waiting (sync.c), the steps (loop.c), the bar (report.c) and shared/ see inside; everybody else calls rt.h's
   functions. */
#ifndef DTRT_SYNC_H
#define DTRT_SYNC_H

#include <stdatomic.h>

#include "rt.h"

typedef struct {
  _Alignas(64) _Atomic uint64_t arrived; /* since the run began */
  _Atomic uint32_t sleepers;
} Barrier;

/* One collective as it was handed to the device. */
typedef struct {
  int64_t step;
  int collective, phase;
  uint32_t serial; /* what the device's mark says when it is done */
} Flight;
enum { RT_FLIGHTS = 64 };

/* Where a rank is; read by the supervisor when a rank dies or is waited for too long. */
typedef struct {
  _Alignas(64) _Atomic int64_t step;
  _Atomic int phase;
  _Atomic int collective;         /* running now, or -1 */
  _Atomic int last;               /* the last one that ended, or -1 */
  _Atomic uint64_t waiting_since; /* for the device, in rt_ns(); 0: is not waiting */
  _Atomic uint32_t mark;          /* serial number of the last collective that the device finished */
  _Atomic uint64_t flights, done; /* handed to the device, and known to be done, since the run began */
  Flight flight[RT_FLIGHTS];      /* the last of them, number n at n % RT_FLIGHTS */
} RankState;

struct Shared {
  _Atomic int stop;   /* the signal that asked for an orderly end, or 0 */
  _Atomic int failed; /* 1 + the rank that ends the run with `message`, or 0 */
  int rc;             /* its exit code */
  bool stuck;         /* the message is about a device that stands still */
  char message[RT_MESSAGE];
  bool bar;                  /* the terminal shows how far the run is, in a line that has no end yet */
  int result;                /* exit code of a run that ended in order */
  char unfinished[PATH_MAX]; /* a file that is being written, removed when the run dies */
  Barrier world;             /* of the ranks of this start */
  Barrier released;          /* counts the meetings at which the ranks of all starts have come */
  char slot[2][RT_SLOT];     /* what rank 0 hands to all, at even and odd meetings */
  RankState rank[];          /* [nlocal] */
};

/* Comes to the meeting of n ranks; returns what to wait for. */
uint64_t rt_arrive(Barrier *b, uint32_t n);
/* Waits until all have come. spins: ranks <= cores. */
void rt_await(Barrier *b, uint64_t full, bool spins);
void rt_barrier(Barrier *b, uint32_t n, bool spins); /* both */

static inline RankState *rt_state(const Rt *rt) { return &rt->shared->rank[rt->rank - rt->first]; }

#endif
