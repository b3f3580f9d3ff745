/* blocks.h: ops that run along a split index become ops on chunks of it (blocks.c). */
#ifndef DTC_BLOCKS_H
#define DTC_BLOCKS_H

#include "part.h"

/* A change of layout that the rewritten op makes: what its price is made of. */
typedef struct {
  Type from, to;
} BlockMove;

bool block_along(const Op *op, int index);           /* op runs along that index, and can be rewritten where it is split */
bool block_needed(const Op *op, const Split *split); /* split: per index of the op's space */
/* At most two; of a topk the second is for the second result only. sums: what operands that it passes on are pending over. */
int block_moves(const Module *m, const Op *op, const Split *split, const Pending *sums, BlockMove *out);
/* What the ops that are added compute, beyond the op's own points divided by its splits. */
double block_points(const Op *op, const Split *split);
/* Appends to `region` the ops that come before `op`, which becomes the last of them. Its space says how it is split, its
   operands are as that wants them. */
void block_op(Module *m, Region *region, Op *op);

#endif
