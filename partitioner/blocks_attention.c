/* blocks_attention.c: attention whose keys are split, as plain nests. Of a softmax along a split index only statistics of
   rows move, the largest score and the sum; then what each rank's keys add to the result:

     %a[b,t,e], %lse[b,t] = attention keys[u@x] ...      %s[b,t,u@x]  = nest score
                                                         %m[b,t]      = nest max[u@x] %s            completed
                                                         %p[b,t,u@x]  = nest exp(%s - %m), 0 where the score is -inf
                                                         %z[b,t]      = nest sum[u@x] %p            completed
                                                         %w[b,t,e]    = nest sum[u@x] %p * v        completed
                                                         %a[b,t,e]    = nest %w / %z,               0 in a row of only -inf
                                                         %lse[b,t]    = nest %m + log(%z),          -inf there

   Its gradient needs no rewriting: it has %lse, and adds what its keys give. */
#include "blocks.h"

#include <math.h>

typedef struct {
  Block *b;
  int n, row[MAX_RANK]; /* the rows: result indices that q, k or the score use */
  DType d;
} Attend;

static Arena *arena(const Attend *t) { return t->b->m->arena; }

/* ---- spaces: rows, then keys, then what is reduced ------------------------------------------------------------------ */

static Space rows_space(const Attend *t) {
  Space s = {.n = t->n, .nout = t->n};
  for (int i = 0; i < t->n; i++) s.idx[i] = t->b->at.idx[t->row[i]];
  return s;
}

/* Adds the op's indices [from, to), `by` says what each becomes. */
static void add_indices(const Attend *t, Space *s, int from, int to, IExpr **by) {
  for (int i = from; i < to; i++) {
    by[i] = ix_index(arena(t), s->n);
    s->idx[s->n++] = t->b->at.idx[i];
  }
}

static Space rows_and_keys(const Attend *t, IExpr **by) {
  Space s = rows_space(t);
  for (int i = 0; i < t->n; i++) by[t->row[i]] = ix_index(arena(t), i);
  add_indices(t, &s, t->b->at.nout, t->b->at.nout + t->b->op->nkey, by);
  s.nout = s.n;
  return s;
}

static Op *nest_over(const Attend *t, Space s, int nout, Reduce reduce) {
  Op *op = block_new_op(t->b, OP_NEST);
  op->space = s;
  op->space.nout = nout;
  op->reduce = reduce;
  return op;
}

static void take_operands(const Attend *t, Op *op) {
  for (int o = 0; o < t->b->op->nin; o++) ir_in(t->b->m, op, t->b->op->in[o]);
}

/* A read of v, which has the first n indices of op's space. */
static Expr *read_first(const Attend *t, Op *op, ValueId v, int n) {
  IExpr *ix[MAX_RANK];
  for (int i = 0; i < n; i++) ix[i] = ix_index(arena(t), i);
  return block_read_value(t->b, op, v, n, ix);
}

/* What a split reduction over the space's last indices leaves, and completed. */
static ValueId reduced(const Attend *t, Op *op, const char *what, const char *why) {
  const Space *s = &op->space;
  Pending over = block_parts(s, s->nout, s->n, op->reduce);
  Type raw = block_type(s, s->nout, op->body->dtype, &over), whole = block_completed(raw);
  ValueId v = block_add_op(t->b, op, what, raw);
  return over.n ? block_change_layout(t->b, v, &whole, block_why_text(t->b, why)) : v;
}

static ValueId mapped(const Attend *t, Op *op, const char *what) {
  const Pending none = {0};
  return block_add_op(t->b, op, what, block_type(&op->space, op->space.n, op->body->dtype, &none));
}

/* ---- the steps ---------------------------------------------------------------------------------------------------------- */

static ValueId dots(const Attend *t) {
  IExpr *by[MAX_INDEX] = {0};
  Space s = rows_and_keys(t, by);
  int n = s.n;
  add_indices(t, &s, t->b->at.nout + t->b->op->nkey, t->b->at.n, by);
  Op *op = nest_over(t, s, n, s.n > n ? RED_SUM : RED_NONE);
  take_operands(t, op);
  Expr *q = ex_substitute(arena(t), t->b->op->read[0], by, NULL);
  op->body = ex_2(arena(t), EX_MUL, q, ex_substitute(arena(t), t->b->op->read[1], by, NULL));
  const Pending none = {0};
  return block_add_op(t->b, op, "dot", block_type(&op->space, n, t->d, &none));
}

static Expr *with_dot(Arena *a, const Expr *x, Expr *dot) {
  if (x->op == EX_DOT) return dot;
  Expr *y = NEW(a, Expr);
  *y = *x;
  for (int i = 0; i < 3; i++)
    if (x->arg[i]) y->arg[i] = with_dot(a, x->arg[i], dot);
  return y;
}

static ValueId scores(const Attend *t, ValueId dot) {
  IExpr *by[MAX_INDEX] = {0};
  Space s = rows_and_keys(t, by);
  Op *op = nest_over(t, s, s.n, RED_NONE);
  take_operands(t, op);
  Expr *score = ex_substitute(arena(t), t->b->op->body, by, NULL);
  op->body = with_dot(arena(t), score, read_first(t, op, dot, s.n));
  return mapped(t, op, "score");
}

static ValueId over_keys(const Attend *t, ValueId v, Reduce reduce, const char *what, const char *why) {
  IExpr *by[MAX_INDEX] = {0};
  Space s = rows_and_keys(t, by);
  Op *op = nest_over(t, s, t->n, reduce);
  op->body = read_first(t, op, v, s.n);
  return reduced(t, op, what, why);
}

static Expr *lit(const Attend *t, double x) { return ex_lit(arena(t), t->d, x); }

static Expr *is_least(const Attend *t, Expr *x) { return ex_2(arena(t), EX_EQ, x, lit(t, -INFINITY)); }

static ValueId weights(const Attend *t, ValueId score, ValueId max) {
  Arena *a = arena(t);
  IExpr *by[MAX_INDEX] = {0};
  Space s = rows_and_keys(t, by);
  Op *op = nest_over(t, s, s.n, RED_NONE);
  Expr *x = read_first(t, op, score, s.n), *m = read_first(t, op, max, t->n);
  op->body = ex_where(a, is_least(t, x), lit(t, 0), ex_1(a, EX_EXP, ex_2(a, EX_SUB, x, m)));
  return mapped(t, op, "weight");
}

static ValueId weighted(const Attend *t, ValueId weight) {
  Arena *a = arena(t);
  const Op *old = t->b->op;
  Space s = t->b->at;
  s.n = s.nout + old->nkey;
  Op *op = nest_over(t, s, s.nout, RED_SUM);
  take_operands(t, op);
  IExpr *ix[MAX_RANK];
  for (int i = 0; i < t->n; i++) ix[i] = ix_index(a, t->row[i]);
  for (int i = 0; i < old->nkey; i++) ix[t->n + i] = ix_index(a, s.nout + i);
  Expr *p = block_read_value(t->b, op, weight, t->n + old->nkey, ix);
  op->body = ex_2(a, EX_MUL, p, old->read[2]);
  return reduced(t, op, "sum", "what each rank's keys give");
}

static Expr *read_row(const Attend *t, Op *op, ValueId v, bool rows_only) {
  IExpr *ix[MAX_RANK];
  for (int i = 0; i < t->n; i++) ix[i] = ix_index(arena(t), rows_only ? i : t->row[i]);
  return block_read_value(t->b, op, v, t->n, ix);
}

static Attend attend_of(Block *b, const Op *op) {
  Attend t = {.b = b, .d = op->body->dtype};
  t.n = attention_rows(op, t.row);
  return t;
}

void block_attention(Block *b) {
  Attend t = attend_of(b, b->op);
  Arena *a = arena(&t);
  int nout = b->at.nout;
  ValueId score = scores(&t, dots(&t));
  ValueId max = over_keys(&t, score, RED_MAX, "max", "the largest score of a row");
  ValueId weight = weights(&t, score, max);
  ValueId sum = over_keys(&t, weight, RED_SUM, "denominator", "the sum of a row");
  ValueId all = weighted(&t, weight);
  Op *result = nest_over(&t, b->at, nout, RED_NONE);
  result->space.n = nout;
  Expr *ratio = ex_2(a, EX_DIV, read_first(&t, result, all, nout), read_row(&t, result, sum, false));
  result->body = ex_where(a, is_least(&t, read_row(&t, result, max, false)), lit(&t, 0), ratio);
  ir_append(b->m, b->region, result);
  Space rows = rows_space(&t);
  block_move_first_result(b->m, b->op, result);
  block_become(b->op, OP_NEST);
  b->op->space = rows;
  Expr *m = read_row(&t, b->op, max, true), *log = ex_1(a, EX_LOG, read_row(&t, b->op, sum, true));
  b->op->body = ex_where(a, is_least(&t, m), lit(&t, -INFINITY), ex_2(a, EX_ADD, m, log));
}

int block_attention_moves(const Op *op, const Space *split, BlockMove *out) {
  Block b = {.at = *split};
  Attend t = attend_of(&b, op);
  Space rows = rows_space(&t);
  Pending over = block_parts(split, split->nout, split->nout + op->nkey, RED_MAX);
  for (int i = 0; i < 3; i++) {
    Type raw = i < 2 ? block_type(&rows, rows.n, t.d, &over) : block_type(split, split->nout, t.d, &over);
    out[i] = (BlockMove){raw, block_completed(raw)};
    over.kind = RED_SUM;
  }
  return 3;
}
