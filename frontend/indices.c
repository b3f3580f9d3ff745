/* indices.c: which indices are live, what they range over, and expressions of them.

   An index ranges over the dim it stands alone in; it is bound on the left side of a statement or by a reduction, and
   its range is inferred from the text in which it is live, before that is lowered:

     y[b,t] = sum[d](x[b,t,d] * w[d])      b and t from x; d, bound by sum, from x and w, which must agree
     m[t: T, u: T] = u <= t                given
     c[i: N] = (a[i] else 0)               given: a read with `else` binds nothing                                      */
#include "lower.h"

int index_find(const Stmt *st, const char *name) {
  for (int i = 0; i < st->idx.n; i++)
    if (!strcmp(st->idx.at[i].name, name)) return i;
  return -1;
}

void index_drop(Stmt *st, int to) { st->idx.n = to; }

IndexSet live_set(const Stmt *st) { return ((IndexSet)1 << st->idx.n) - 1; }

/* ---- binding --------------------------------------------------------------------------------------------------- */

static void give_range(IndexVar *v, Extent range, Loc loc, const char *why) {
  v->known = true;
  v->range = range;
  v->range_loc = loc;
  v->range_why = why;
}

int index_bind(Stmt *st, AstName name, const AstExpr *range) {
  Lower *lw = st->lw;
  int old = index_find(st, name.text);
  if (old >= 0) {
    Diag *g = fault(lw, "E0312", name.loc, "index `%s` is bound twice", name.text);
    diag_label(lw->d, g, st->idx.at[old].loc, "it is live from here on");
    diag_help(lw->d, g, "call this one by another name");
    st->bad = true;
    return -1;
  }
  if (name_reserved(name.text)) fault(lw, "E0203", name.loc, "`%s` is the name of a built-in function", name.text);
  if (st->idx.n == MAX_LIVE) {
    fault(lw, "E0320", name.loc, "more than %d indices are live here: give a part of the statement a name of its own", MAX_LIVE);
    vec_push(lw->a, st->unbound, name.text);
    st->bad = true;
    return -1;
  }
  IndexVar v = {.name = name.text, .loc = name.loc, .range = {NULL, 1}};
  Extent x;
  if (range && extent_of(st->cx, range, &x))
    give_range(&v, x, range->loc, arena_printf(lw->a, "its range is given as %s here", extent_text(lw->a, x)));
  else if (range)
    v.bad = st->bad = true;
  vec_push(lw->a, st->idx, v);
  return st->idx.n - 1;
}

static void unify(Stmt *st, IndexVar *v, Extent x, const AstExpr *at, const char *tensor) {
  Lower *lw = st->lw;
  if (v->bad) return;
  bool agree = v->known && (extents_agree(v->range, x) || (lw->dry && (!v->range.name || !x.name)));
  if (!v->known || (agree && !v->range.name && x.name)) { /* a literal size takes the name of a dim */
    const char *why = arena_printf(lw->a, "it ranges over %s here, in `%s`", extent_text(lw->a, x), tensor);
    give_range(v, x, at->loc, why);
    return;
  }
  if (agree) return;
  Diag *g = fault(lw, "E0311", at->loc, "index `%s` ranges over %s here, but over %s elsewhere", v->name, extent_text(lw->a, x),
                  extent_text(lw->a, v->range));
  diag_label(lw->d, g, v->range_loc, "%s", v->range_why);
  if (x.size == v->range.size) diag_help(lw->d, g, "dims agree by name, not by size: declare the tensors with the same dim");
  v->bad = st->bad = true;
}

static void infer_read(Stmt *st, int from, const AstExpr *e) {
  Symbol *s = scope_find(st->cx->scope, e->name);
  if (!s || s->kind != SYM_TENSOR || s->tensor.bad || s->tensor.rank != e->index.n) {
    st->blind = true;
    return;
  }
  for (int p = 0; p < e->index.n && !e->otherwise; p++) {
    const AstExpr *x = e->index.at[p];
    int i = x->kind == AST_NAME ? index_find(st, x->name) : -1;
    if (i >= from) unify(st, &st->idx.at[i], s->tensor.dim[p], x, e->name);
  }
}

void index_infer(Stmt *st, int from, const AstExpr *e) {
  if (!e) return;
  if (e->kind == AST_READ) infer_read(st, from, e);
  for (int i = 0; i < e->index.n; i++)
    if (e->index.at[i]->kind != AST_NAME) index_infer(st, from, e->index.at[i]);
  for (int i = 0; i < e->args.n; i++) index_infer(st, from, e->args.at[i].value);
  index_infer(st, from, e->left);
  index_infer(st, from, e->right);
  index_infer(st, from, e->otherwise);
}

/* May a position of a read with `else` be the one that leaves its dim? */
static bool may_leave(const Stmt *st, const AstExpr *x, Extent dim) {
  int i = x->kind == AST_NAME && !x->is_dim ? index_find(st, x->name) : -1;
  return i < 0 || (st->idx.at[i].known && !extents_agree(st->idx.at[i].range, dim));
}

/* `(x[n, i - 1] else 0)`: the guard is for i - 1, so n ranges over its dim if nothing else says more. `(a[i] else 0)`
   says nothing about i. */
static void infer_weakly(Stmt *st, int from, const AstExpr *e) {
  Symbol *s = scope_find(st->cx->scope, e->name);
  if (!s || s->kind != SYM_TENSOR || s->tensor.bad || s->tensor.rank != e->index.n) return;
  for (int p = 0; p < e->index.n; p++) {
    const AstExpr *x = e->index.at[p];
    int i = x->kind == AST_NAME ? index_find(st, x->name) : -1;
    bool guards_other = false;
    for (int q = 0; q < e->index.n; q++) guards_other |= q != p && may_leave(st, e->index.at[q], s->tensor.dim[q]);
    if (i >= from && !st->idx.at[i].known && guards_other) unify(st, &st->idx.at[i], s->tensor.dim[p], x, e->name);
  }
}

static void infer_guarded(Stmt *st, int from, const AstExpr *e) {
  if (!e) return;
  if (e->kind == AST_READ && e->otherwise) infer_weakly(st, from, e);
  for (int i = 0; i < e->index.n; i++) infer_guarded(st, from, e->index.at[i]);
  for (int i = 0; i < e->args.n; i++) infer_guarded(st, from, e->args.at[i].value);
  infer_guarded(st, from, e->left);
  infer_guarded(st, from, e->right);
  infer_guarded(st, from, e->otherwise);
}

void index_require(Stmt *st, int from, const AstExpr *body) {
  infer_guarded(st, from, body);
  for (int i = from; i < st->idx.n; i++) {
    IndexVar *v = &st->idx.at[i];
    if (v->known || v->bad) continue;
    v->bad = st->bad = true;
    v->missing = !st->blind;
  }
}

void index_report(Stmt *st, int from, int faults) {
  Lower *lw = st->lw;
  if (lw->faults > faults) return;
  for (int i = from; i < st->idx.n; i++) {
    const IndexVar *v = &st->idx.at[i];
    if (!v->missing) continue;
    Diag *g = fault(lw, "E0309", v->loc, "index `%s` has no range", v->name);
    diag_mark(lw->d, g, "it stands alone in no dim");
    diag_help(lw->d, g, "give it one: `%s: N`", v->name);
  }
}

/* ---- what an expression uses ------------------------------------------------------------------------------------- */

IndexSet ix_set(const Stmt *st, const IExpr *x) {
  IndexSet s = 0;
  for (int i = 0; i < st->idx.n; i++)
    if (ix_uses(x, i)) s |= (IndexSet)1 << i;
  return s;
}

IndexSet ex_set(const Stmt *st, const Expr *x) {
  IndexSet s = 0;
  for (int i = 0; i < st->idx.n; i++)
    if (ex_uses(x, i)) s |= (IndexSet)1 << i;
  return s;
}

void bounds_of(const Stmt *st, const IExpr *x, int64_t *min, int64_t *max) {
  Space s = {.n = st->idx.n};
  for (int i = 0; i < st->idx.n; i++) s.idx[i].range = st->idx.at[i].range.size;
  ix_bounds(x, &s, min, max);
}

double volume(const Stmt *st, IndexSet s) {
  double v = 1;
  for (int i = 0; i < st->idx.n; i++)
    if (s >> i & 1) v *= (double)st->idx.at[i].range.size;
  return v;
}

int64_t range_product(const Stmt *st, IndexSet s) {
  int64_t n = 1;
  for (int i = 0; i < st->idx.n; i++)
    if ((s >> i & 1) && !checked_mul(n, st->idx.at[i].range.size, &n)) return INT64_MAX; /* `nest` reports the size */
  return n;
}

/* ---- index expressions --------------------------------------------------------------------------------------------- */

static IExpr *index_name(Stmt *st, const AstExpr *e) {
  Lower *lw = st->lw;
  int i = index_find(st, e->name);
  if (i >= 0) return ix_index(lw->a, i);
  Symbol *s = scope_find(st->cx->scope, e->name);
  if (s && s->kind == SYM_DIM) return s->bad ? NULL : ix_const(lw->a, s->size);
  if (e->is_dim) {
    unknown_name(st->cx, e->loc, "dim", e->name, SYM_DIM);
    return NULL;
  }
  for (int k = 0; k < st->unbound.n; k++)
    if (!strcmp(st->unbound.at[k], e->name)) return NULL;
  vec_push(lw->a, st->unbound, e->name);
  Diag *g = fault(lw, "E0310", e->loc, "index `%s` is neither on the left side nor reduced", e->name);
  if (s)
    diag_help(lw->d, g, "a bare name inside [ ] is an index; the tensor `%s` is read by value with its own indices", e->name);
  else
    diag_help(lw->d, g, "put `%s` on the left side, or sum over it: `sum[%s](...)`", e->name, e->name);
  return NULL;
}

static IExpr *index_fault(Stmt *st, const AstExpr *e, const char *what) {
  Diag *g = fault(st->lw, "E0315", e->loc, "%s", what);
  diag_mark(st->lw->d, g, "an index is a sum of indices times constants, `i // c`, `i %% c`, or a read of whole numbers");
  return NULL;
}

static IExpr *index_binary(Stmt *st, const AstExpr *e) {
  Arena *a = st->lw->a;
  if (e->op == AST_DIV) return index_fault(st, e, "`/` does not stand in an index; use `//`");
  IExpr *x = index_expr(st, e->left), *y = index_expr(st, e->right);
  if (!x || !y) return NULL;
  bool constant = y->n == 0 && y->c > 0;
  switch (e->op) {
  case AST_ADD: return ix_add(a, x, y);
  case AST_SUB: return ix_add(a, x, ix_scale(a, y, -1));
  case AST_MUL:
    if (x->n && y->n) return index_fault(st, e, "an index times an index is no index expression");
    return y->n ? ix_scale(a, y, x->c) : ix_scale(a, x, y->c);
  case AST_FLOORDIV: return constant ? ix_div(a, x, y->c) : index_fault(st, e, "`//` is by a positive constant");
  case AST_MOD: return constant ? ix_mod(a, x, y->c) : index_fault(st, e, "`%` is by a positive constant");
  default: return index_fault(st, e, "this is no index expression");
  }
}

/* A tensor of whole numbers as an index. */
static IExpr *index_by_value(Stmt *st, const AstExpr *e) {
  Frag f = lower_expr(st, e);
  if (f.kind == FRAG_BAD || f.ix) return f.ix;
  if (!dtype_is_int(f.e->dtype) || f.e->dtype == BOOL) {
    Diag *g = fault(st->lw, "E0317", e->loc, "an index read by value must be whole, this is %s",
                    f.kind == FRAG_REAL ? "a real number" : dtype_name(f.e->dtype));
    diag_help(st->lw->d, g, "cast it, `i32(...)`, or give the tensor type i32");
    return NULL;
  }
  Expr *r = f.e->op == EX_READ && !f.e->otherwise ? f.e : plain_read(st, f.e, ex_set(st, f.e), "at");
  return ix_value(st->lw->a, r->operand, r->nix, r->ix);
}

static bool fits_32(int64_t x) { return x >= INT32_MIN && x <= INT32_MAX; }

/* No dim has more than 2^31 elements, so larger constants are slips. */
static bool is_small(const IExpr *x) {
  bool small = fits_32(x->c);
  for (int i = 0; i < x->n; i++)
    small = small && fits_32(x->term[i].coef) && fits_32(x->term[i].k) && (!x->term[i].sub || is_small(x->term[i].sub));
  return small;
}

static IExpr *index_kind(Stmt *st, const AstExpr *e) {
  switch (e->kind) {
  case AST_INT: return ix_const(st->lw->a, e->ival);
  case AST_NAME: return index_name(st, e);
  case AST_BINARY: return index_binary(st, e);
  case AST_READ:
  case AST_CALL:
  case AST_REDUCE: return index_by_value(st, e);
  case AST_UNARY:
    if (e->op != AST_NEG) break;
    IExpr *x = index_expr(st, e->left);
    return x ? ix_scale(st->lw->a, x, -1) : NULL;
  default: break;
  }
  return index_fault(st, e, "this is no index expression");
}

IExpr *index_expr(Stmt *st, const AstExpr *e) {
  IExpr *x = index_kind(st, e);
  return !x || is_small(x) ? x : index_fault(st, e, "a constant of this index does not fit 32 bits");
}
