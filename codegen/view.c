/* view.c: how a value's local buffer is laid out, and who uses a value.

   A rank's part of a tensor lies row-major with each dim's capacity, however short its own extent is:

     f32[B=10@data, T=8]  over data = 4: capacities 3 x 8, strides 8, 1                                     */
#include "cg.h"

bool cg_is_split(const Split *s) { return split_count(s) > 1 || split_windowed(s); }

bool cg_same_part(const Index *i, const Dim *d) {
  if (!cg_is_split(&i->split) && !cg_is_split(&d->split)) return true;
  return i->range == d->size && split_equal(&i->split, &d->split);
}

void cg_strides(const Type *t, int64_t stride[MAX_RANK]) {
  int64_t n = 1;
  for (int d = t->rank - 1; d >= 0; d--) {
    stride[d] = n;
    n *= split_capacity(&t->dim[d].split, t->dim[d].size);
  }
}

int64_t cg_capacity(const Index *i) { return split_capacity(&i->split, i->range); }
bool cg_even(const Index *i) { return split_even(&i->split, i->range); }
bool cg_same_index(const Index *a, const Index *b) { return a->range == b->range && split_equal(&a->split, &b->split); }

int64_t cg_bytes(const Type *t) {
  const int64_t limit = (int64_t)1 << 62;
  int64_t n = dtype_size(t->dtype);
  for (int d = 0; d < t->rank; d++)
    if (!checked_mul(n, split_capacity(&t->dim[d].split, t->dim[d].size), &n)) return limit;
  return min_i64(n, limit);
}

Users *cg_users(const Module *m, Arena *a) {
  Users *u = NEW_ARRAY(a, Users, m->values.n + 1);
  VEC(const Region *) todo = {0};
  for (int p = 0; p < m->programs.n; p++) vec_push(a, todo, m->programs.at[p].body);
  for (int r = 0; r < todo.n; r++) {
    const Region *region = todo.at[r];
    for (int i = 0; i < region->ops.n; i++) {
      Op *op = region->ops.at[i];
      for (int k = 0; k < op->nin; k++) {
        Users *x = &u[op->in[k]];
        if (!x->op.n || x->op.at[x->op.n - 1] != op) vec_push(a, x->op, op);
      }
      if (op->body_region) vec_push(a, todo, op->body_region);
    }
    for (int i = 0; i < region->yields.n; i++) u[region->yields.at[i]].yielded = true;
  }
  return u;
}

bool cg_takes(const Op *op, ValueId v) {
  for (int k = 0; k < op->nin; k++)
    if (op->in[k] == v) return true;
  return false;
}

static void ix_reads(const IExpr *x, ReadFn *f, void *cx) {
  for (int i = 0; i < x->n; i++) {
    const Term *t = &x->term[i];
    if (t->kind == ATOM_DIV || t->kind == ATOM_MOD) ix_reads(t->sub, f, cx);
    if (t->kind != ATOM_VALUE) continue;
    f(cx, t->operand, t->nat, t->at, NULL);
    for (int k = 0; k < t->nat; k++) ix_reads(t->at[k], f, cx);
  }
}

static void expr_reads(const Expr *x, ReadFn *f, void *cx) {
  if (!x) return;
  for (int i = 0; i < 3; i++) expr_reads(x->arg[i], f, cx);
  if (x->op == EX_READ) f(cx, x->operand, x->nix, x->ix, x->otherwise);
  for (int i = 0; i < x->nix; i++) ix_reads(x->ix[i], f, cx);
  expr_reads(x->otherwise, f, cx);
}

void cg_reads(const Op *op, ReadFn *f, void *cx) {
  expr_reads(op->body, f, cx);
  for (int i = 0; i < op_reads(op); i++) expr_reads(op->read[i], f, cx);
  for (int i = 0; op->into && i < op->space.nout; i++) ix_reads(op->into[i], f, cx);
}
