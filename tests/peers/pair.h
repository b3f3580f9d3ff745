/* pair.h: one change of layout as a program that the interpreter runs on all ranks: for unit tests and the sweep. */
#ifndef DTC_PAIR_H
#define DTC_PAIR_H

#include "partitioner/partitioner.h"

Module *pair_mesh(Arena *a, int n, const int64_t *sizes); /* axes x, y, z, w */
Type pair_shape(int rank, const int64_t *sizes);          /* f32, whole and complete */
void pair_split(Type *t, int d, AxisPart p);
void pair_pend(Type *t, AxisPart p);
/* Puts each axis on a dim, into the pending sums (if allowed) or nowhere; the order within a dim follows from the seed too. */
Type pair_random(const Module *m, const Type *shape, unsigned *seed, bool pending);
const char *pair_name(const Mesh *m, const Type *t, Arena *a); /* "x,y|-|z", "x|-{y,z}" */

typedef struct {
  const char *fault;      /* NULL: every rank has its part of the whole, and replicas agree */
  int64_t received, sent; /* bytes, of the rank with most of either */
  int collectives, standard;
  const char *steps, *text; /* "slice all_gather"; the program */
} PairRun;
/* Lays a leaf out as `from` (where sums are pending, with contributions that differ), plans the way to `to` under the
   cluster of that name, and runs it. */
PairRun pair_run(Module *m, const Type *from, const Type *to, const char *cluster);

#endif
