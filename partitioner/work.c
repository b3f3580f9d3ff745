/* work.c: how many multiply-adds the products of a program take on the rank that computes most. A product is a sum of a
   product of two reads at different indices; attention is two of them, its gradient five (the scores again, and one for
   each of the gradients of scores, queries, keys and values). Chunk 0 of a split is never shorter than another, so that
   rank is the first.

     %q[b,t,h]: f32[B=8@data, T=128, H=4@model] = nest sum[d: D=64] %n[b,t,d] * %w[d,h]     (8 / 2) 128 (4 / 2) 64      */
#include "part.h"

typedef struct {
  int n;
  const Expr *at[16];
} Reads;

static void add_read(void *cx, const Expr *read) {
  Reads *r = cx;
  if (r->n < 16) r->at[r->n++] = read;
}

static bool same_place(const Expr *x, const Expr *y) {
  bool same = x->nix == y->nix;
  for (int d = 0; same && d < x->nix; d++) same = ix_equal(x->ix[d], y->ix[d]);
  return same;
}

static bool multiplies(const Expr *x) {
  Reads l = {0}, r = {0};
  if (x->op == EX_MUL) ex_reads(x->arg[0], add_read, &l), ex_reads(x->arg[1], add_read, &r);
  for (int i = 0; i < l.n; i++)
    for (int j = 0; j < r.n; j++)
      if (!same_place(l.at[i], r.at[j])) return true;
  for (int i = 0; i < 3; i++)
    if (x->arg[i] && multiplies(x->arg[i])) return true;
  return false;
}

/* extent: per index, how much of it a rank computes. */
static double points(const Op *op, const int64_t *extent, uint32_t without) {
  double n = 1;
  for (int i = 0; i < op->space.n; i++)
    if (!(without >> i & 1)) n *= (double)extent[i];
  return n;
}

double part_op_points(const Op *op, int64_t extent[MAX_INDEX]) {
  for (int i = 0; i < op->space.n; i++) extent[i] = split_capacity(&op->space.idx[i].split, op->space.idx[i].range);
  return points(op, extent, 0);
}

static double attention_work(const Op *op, const int64_t *extent, double dots, double sums) {
  int rows[MAX_RANK], n = attention_rows(op, rows);
  uint32_t values = (1u << op->space.nout) - 1, contracted = ~0u << (op->space.nout + op->nkey);
  for (int i = 0; i < n; i++) values &= ~(1u << rows[i]);
  return dots * points(op, extent, values) + sums * points(op, extent, contracted);
}

double part_op_multiply_adds(const Op *op, const int64_t *extent) {
  if (op->kind == OP_ATTENTION) return attention_work(op, extent, 1, 1);
  if (op->kind == OP_ATTENTION_GRAD) return attention_work(op, extent, 3, 2);
  return op->kind == OP_NEST && op->reduce == RED_SUM && multiplies(op->body) ? points(op, extent, 0) : 0;
}

static void add_op(void *cx, Region *r, Op *op, int64_t times) {
  (void)r;
  if (op_class(op->kind) != CLS_SPACE) return;
  int64_t extent[MAX_INDEX];
  part_op_points(op, extent);
  *(double *)cx += (double)times * part_op_multiply_adds(op, extent);
}

double part_multiply_adds(const Module *m) {
  double sum = 0;
  for (int i = 0; i < m->programs.n; i++) part_visit(m->programs.at[i].body, 1, add_op, &sum);
  return sum;
}
