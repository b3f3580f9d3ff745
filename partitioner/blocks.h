/* blocks.h: ops that run along a split index become ops on chunks of it (blocks.c), attention along its keys plain nests
   (blocks_attention.c). */
#ifndef DTC_BLOCKS_H
#define DTC_BLOCKS_H

#include "part.h"

enum { BLOCK_MOVES = 3 };

/* A change of layout that the rewritten op makes: what its price is made of. */
typedef struct {
  Type from, to;
} BlockMove;

bool block_along(const Op *op, int index);           /* op runs along that index, and can be rewritten where it is split */
bool block_needed(const Op *op, const Split *split); /* split: per index of the op's space */
/* Candidates go where the results are wanted: an argmax or a topk may have the axes of its chunks split result index i too. */
bool block_spreads(const Op *op, int i);
/* How the chunks are computed: the op's splits, but with no axis of its chunks elsewhere. */
void block_chunk_splits(const Op *op, const Split *split, Split *out);
/* At most BLOCK_MOVES; of a topk the second is for the second result only. sums: what operands that it passes on are
   pending over. */
int block_moves(const Module *m, const Op *op, const Split *split, const Pending *sums, BlockMove *out);
/* What the ops that are added compute, beyond the op's own points divided by its splits. */
double block_points(const Op *op, const Split *split);
/* Appends to `region` the ops that come before `op`, which becomes the last of them. Its space says how it is split, its
   operands are as that wants them. before: it is a scan without the element itself. */
void block_op(Module *m, Region *region, Op *op, bool before);
/* A scan that is the sum of what comes before (before.c), where it does not run along a split index: reads one place back. */
void block_before(Module *m, Region *region, Op *op);

/* ---- what the two files share ---- */

/* The index that a block op runs along, dealt out. */
typedef struct {
  int index;
  int64_t range, n, k; /* n elements in each of k chunks */
  Split chunks;        /* of the index over chunks */
} Deal;

typedef struct {
  Module *m;
  Region *region;
  Op *op;   /* the one that is rewritten */
  Space at; /* its space */
  Deal deal;
  Pending sums; /* what operands that it passes on are pending over */
  bool before;  /* a scan without the element itself */
  const char *name;
} Block;

Op *block_new_op(const Block *b, OpKind kind);                          /* of the rewritten op's place and phase */
ValueId block_add_op(const Block *b, Op *op, const char *what, Type t); /* its next result; with the first it is appended */
ValueId block_change_layout(const Block *b, ValueId v, const Type *to, const char *why);
const char *block_why_text(const Block *b, const char *what);
Expr *block_read_value(const Block *b, Op *op, ValueId v, int n, IExpr **ix); /* as a new operand of op */
void block_become(Op *op, OpKind kind);                    /* another kind of op with the same results and no operands */
void block_move_first_result(Module *m, Op *from, Op *to); /* the first result of `from` is now made by `to` */
Type block_type(const Space *s, int n, DType dtype, const Pending *p); /* over the first n indices */
Type block_completed(Type t);
Pending block_parts(const Space *s, int from, int to,
                    Reduce kind); /* of indices [from, to), as a reduction leaves them pending */

void block_attention(Block *b);
int block_attention_moves(const Op *op, const Space *split, BlockMove *out);

#endif
