/* memory.h: the arenas of all ranks in one mapping, and what the collectives find there. */
#ifndef DTRT_MEMORY_H
#define DTRT_MEMORY_H

#include "sync.h"

struct Transport {
  Barrier *barriers; /* one for each collective and each first member of a group */
  char *arenas;      /* of rank 0 */
  size_t stride;
  uint64_t *full; /* [ncollectives]: what the barrier counts when all sources are ready */
};

/* The same address in another rank's arena. */
void *rt_peer(const Rt *rt, int rank, const void *mine);
bool rt_in_arena(const Rt *rt, const void *mine);
void rt_one_thread(void); /* gemm.c: tells the products' library */

#endif
