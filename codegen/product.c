/* product.c: which nests are matrix products for the BLAS, and how. A sum of a product of two reads qualifies when
   every index lies in exactly two of A, B and the result C, or in all three:

     in A and C: m     in B and C: n     in A and B (reduced): k     in all three: batch

   Indices of a class that lie at one distance in both of their tensors are merged into a run, and one run of each
   class becomes the BLAS's m, n, k; what is left over is looped over around the call.

     q[b,t,h,j] = sum[d] x[b,t,d] * w[d,h,j]      m = (b,t)  n = (h,j)  k = (d)      one call, no copy
     s[b,h,t,u] = sum[j] q[b,t,h,j] * k[b,u,h,j]  m = (t)    n = (u)    k = (j)      ldb transposed; b, h around it  */
#include "cg.h"

enum { LEAST_PRODUCT = 512 }; /* multiplications per call below which a plain loop is as fast */

typedef enum { IN_A = 1, IN_B = 2, IN_C = 4 } Where;

typedef struct {
  const Op *op;
  Product *p;
  int where[MAX_INDEX];
} Search;

/* The distances of the op's indices in a read; false unless every coordinate is one index, each used once. */
static bool read_strides(const Module *m, const Op *op, const Expr *read, int64_t stride[MAX_INDEX], const Dim *shift[MAX_INDEX],
                         int where[MAX_INDEX], int bit) {
  if (read->op != EX_READ || read->otherwise || read->dtype != F32) return false;
  int64_t by_dim[MAX_RANK];
  cg_strides(&m->values.at[op->in[read->operand]].type, by_dim);
  for (int d = 0; d < read->nix; d++) {
    int i = ix_single(read->ix[d]);
    if (i < 0 || (where[i] & bit)) return false;
    where[i] |= bit;
    stride[i] = by_dim[d];
    const Dim *dim = &m->values.at[op->in[read->operand]].type.dim[d];
    shift[i] = cg_same_part(&op->space.idx[i], dim) ? NULL : dim;
  }
  return true;
}

static int64_t run_size(const Op *op, const Run *r) {
  int64_t n = 1;
  for (int i = 0; i < r->n; i++) n *= cg_capacity(&op->space.idx[r->index[i]]);
  return n;
}

/* i lies outside j, and stepping once along i is stepping over all of j, in both tensors. */
static bool joins(const Op *op, int i, int j, const int64_t *s1, const int64_t *s2) {
  const Index *x = &op->space.idx[j];
  return cg_even(x) && s1[i] == s1[j] * cg_capacity(x) && s2[i] == s2[j] * cg_capacity(x);
}

/* Is the index one element on every rank? Of one that is split, all ranks but one hold nothing, and do nothing. */
static bool is_one(const Index *x) { return x->range <= 1 && cg_even(x); }

/* Does a rank step along the index at all? One that does not joins anything, itself among them. */
static bool long_index(const Search *s, int i) { return cg_capacity(&s->op->space.idx[i]) > 1; }

/* The run that ends (innermost) in index j. */
static Run run_of(const Search *s, int cls, int j, const int64_t *s1, const int64_t *s2) {
  Run r = {0};
  int chain[MAX_INDEX], n = 0;
  for (int at = j; at >= 0;) {
    chain[n++] = at;
    int next = -1;
    for (int i = 0; i < s->op->space.n; i++)
      if (i != at && s->where[i] == cls && long_index(s, i) && joins(s->op, i, at, s1, s2)) next = i;
    at = next;
  }
  while (n > 0) r.index[r.n++] = chain[--n];
  return r;
}

/* All runs of a class that are not the tail of a longer one. */
static int runs_of(const Search *s, int cls, const int64_t *s1, const int64_t *s2, Run out[MAX_INDEX]) {
  int n = 0;
  for (int j = 0; j < s->op->space.n; j++) {
    if (s->where[j] != cls || !long_index(s, j)) continue;
    bool inner = true;
    for (int i = 0; i < s->op->space.n; i++)
      if (i != j && s->where[i] == cls && long_index(s, i) && joins(s->op, j, i, s1, s2)) inner = false;
    if (inner) out[n++] = run_of(s, cls, j, s1, s2);
  }
  return n;
}

/* Can the BLAS read these runs? Fills transposes and leading dimensions. C must have unit distance along n. */
static bool fits(Product *p, const Run *m, const Run *n, const Run *k) {
  int im = m->index[m->n - 1], in = n->index[n->n - 1], ik = k->index[k->n - 1];
  if (p->sc[in] != 1) return false;
  if (p->sa[ik] == 1)
    p->ta = false, p->lda = p->sa[im];
  else if (p->sa[im] == 1)
    p->ta = true, p->lda = p->sa[ik];
  else
    return false;
  if (p->sb[in] == 1)
    p->tb = false, p->ldb = p->sb[ik];
  else if (p->sb[ik] == 1)
    p->tb = true, p->ldb = p->sb[in];
  else
    return false;
  p->ldc = p->sc[im];
  p->m = *m, p->n = *n, p->k = *k;
  return true;
}

static void swap_operands(Search *s) {
  Product *p = s->p;
  int operand = p->a;
  p->a = p->b, p->b = operand;
  for (int i = 0; i < MAX_INDEX; i++) {
    int64_t t = p->sa[i];
    p->sa[i] = p->sb[i], p->sb[i] = t;
    const Dim *shift = p->shift_a[i];
    p->shift_a[i] = p->shift_b[i], p->shift_b[i] = shift;
    bool a = s->where[i] & IN_A, b = s->where[i] & IN_B;
    s->where[i] = (s->where[i] & IN_C) | (a ? IN_B : 0) | (b ? IN_A : 0);
  }
}

/* The runs with the most work per call. */
static int64_t best_runs(Search *s, Product *best) {
  Product *p = s->p;
  Run ms[MAX_INDEX], ns[MAX_INDEX], ks[MAX_INDEX];
  int nm = runs_of(s, IN_A | IN_C, p->sa, p->sc, ms), nn = runs_of(s, IN_B | IN_C, p->sb, p->sc, ns),
      nk = runs_of(s, IN_A | IN_B, p->sa, p->sb, ks);
  int64_t most = 0;
  for (int i = 0; i < nm; i++)
    for (int j = 0; j < nn; j++)
      for (int k = 0; k < nk; k++) {
        int64_t work = run_size(s->op, &ms[i]) * run_size(s->op, &ns[j]) * run_size(s->op, &ks[k]);
        if (work > most && fits(p, &ms[i], &ns[j], &ks[k])) most = work, *best = *p;
      }
  return most;
}

static bool in_run(const Run *r, int i) {
  for (int k = 0; k < r->n; k++)
    if (r->index[k] == i) return true;
  return false;
}

/* What is in no run is looped over; the last such index that is not reduced is the BLAS's batch, unless a sum
   over calls must stay inside it. */
static void outer_loops(const Op *op, Product *p) {
  p->nouter = 0, p->batch = -1, p->accumulates = false;
  for (int i = 0; i < op->space.n; i++) {
    if (is_one(&op->space.idx[i]) || in_run(&p->m, i) || in_run(&p->n, i) || in_run(&p->k, i)) continue;
    p->outer[p->nouter++] = i;
    if (i >= op->space.nout)
      p->accumulates = true;
    else
      p->batch = i;
  }
}

bool cg_product(const Module *m, const Op *op, Product *out) {
  const Expr *body = op->body;
  if (op->kind != OP_NEST || op->reduce != RED_SUM || body->op != EX_MUL || body->dtype != F32) return false;
  Product p = {.a = body->arg[0]->operand, .b = body->arg[1]->operand};
  Search s = {.op = op, .p = &p};
  if (!read_strides(m, op, body->arg[0], p.sa, p.shift_a, s.where, IN_A) ||
      !read_strides(m, op, body->arg[1], p.sb, p.shift_b, s.where, IN_B))
    return false;
  int64_t by_dim[MAX_RANK];
  cg_strides(&m->values.at[op->out[0]].type, by_dim);
  for (int i = 0; i < op->space.n; i++) {
    if (i < op->space.nout) s.where[i] |= IN_C, p.sc[i] = by_dim[i];
    bool one = s.where[i] == IN_A || s.where[i] == IN_B || s.where[i] == IN_C || s.where[i] == 0;
    if (one && !is_one(&op->space.idx[i])) return false;
  }
  Product best = {0}, swapped = {0};
  int64_t work = best_runs(&s, &best);
  swap_operands(&s);
  int64_t other = best_runs(&s, &swapped);
  if (work < other) best = swapped, work = other;
  if (work < (m->least_product ? m->least_product : LEAST_PRODUCT)) return false;
  outer_loops(op, &best);
  *out = best;
  return true;
}
