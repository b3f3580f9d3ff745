/* emit_attention.h: what the two forms of attention share. */
#ifndef DTC_EMIT_ATTENTION_H
#define DTC_EMIT_ATTENTION_H

#include "emit.h"

enum { READ_Q, READ_K, READ_V, READ_A, READ_LSE, READ_DA };
enum { ATTENTION_BYTES = 1 << 18 }; /* of one block's scores: they stay in the L2 */

typedef struct {
  int nrow, row[MAX_INDEX];         /* result indices that lse has */
  int nfeature, feature[MAX_INDEX]; /* the others */
  int64_t nkeys;
  int64_t pitch;       /* floats from one query's scores to the next's: an odd number of lines, so that rows spread over the L1 */
  int query, key, dot; /* for the form with blocks; query -1: it does not apply */
  int64_t block;       /* queries at a time */
} AttentionShape;
AttentionShape attention_shape(const Module *m, const Op *op);
bool attention_plain(const Expr *read); /* at different indices, nothing else */

typedef struct {
  Emit *e;
  Kernel *k;
  const Op *op;
  AttentionShape shape;
  Scope scope;
  int opened;
  const char *first, *count; /* the block's first query and how many */
  const char *lo, *keys;     /* its first visible key and how many */
  const char *i, *j;         /* query and key counted from there */
  const char *dot;           /* what `dot` is in the score */
} Blocks;

/* The derivative of a score by `dot` (of = NULL) or by one of its reads; NULL where it is zero everywhere. */
Expr *attention_slope(Arena *a, const Expr *score, const Expr *of);
const char *attention_gradient_text(Scope *s, const Expr *slope, const char *g); /* g * slope */
/* Calls `add` for every read of operand wrt[w] in the score: `value`, g times the score's derivative by it, belongs to
   element `at` of the operand's gradient, if `inside` (NULL: always). */
typedef void SlopeFn(void *cx, Scope *s, int w, const char *inside, const char *at, const char *value);
void attention_slopes(Scope *s, const char *g, SlopeFn *add, void *cx);
SlopeFn attention_add_slope; /* adds it there in memory */

/* Which local values [lo, hi) of index `index` the score lets through, as C; other indices run from `first` to `end`
   (local, not included), or have the value of their variable (NULL). emit_visible.c */
typedef struct {
  int index;
  const char *first[MAX_INDEX], *end[MAX_INDEX];
} Visible;
void attention_visible(const Scope *s, const Visible *box, const char **lo, const char **hi);

/* In CUDA; false: a row at a time. emit_attention_cuda.c */
bool attention_tiles(const Module *m, const Op *op);
int64_t attention_tiles_workspace(const Module *m, const Op *op);
Kernel *emit_attention_tiles(Emit *e, const Op *op);
Kernel *emit_attention_grad_tiles(Emit *e, const Op *op);

Kernel *emit_attention_by_rows(Emit *e, const Op *op);
Kernel *emit_attention_grad_by_rows(Emit *e, const Op *op);

#endif
