/* reads.c: `x[b, t-1, d]`, with `else`, and reads by value.

     x[b,t]                      provably inside: a read
     (x[b,t-1] else 0)           a guarded read, `(%x[b,t - 1] else 0.0)`
     (x[b,t-1] else y[b])        where(t - 1 >= 0, (%x[b,t - 1] else 0.0), %y[b]): what a guard gives is a literal
     wte[tok[b,t], d]            a gather of its own; tok's values must lie in the dim, which inputs check when loaded   */
#include "lower.h"

static FragKind kind_of(Exactness x) { return x == TYPED ? FRAG_TYPED : x == EXACT_INT ? FRAG_INT : FRAG_REAL; }

Frag read_tensor(Stmt *st, const TensorRef *t, IExpr *const *ix) {
  return frag_like(kind_of(t->exact), ex_read(st->lw->a, t->v, t->dtype, t->rank, (IExpr **)ix, NULL));
}

void limit_input(Lower *lw, ValueId v, int64_t size, const char *dim) {
  Op *input = origin_of(lw, v);
  if (!input || (input->limit && input->limit <= size)) return;
  input->limit = size;
  input->limit_dim = dim;
}

static bool depends_on_bad(const Stmt *st, const IExpr *x) {
  for (int i = 0; i < st->idx.n; i++)
    if (st->idx.at[i].bad && ix_uses(x, i)) return true;
  return false;
}

/* Which dims the read may leave; without `else` only reads by value may, the others are errors. */
typedef struct {
  bool leaves[MAX_RANK];
  bool any, by_value, ok;
} Guard;

static void report_leaving(Stmt *st, const AstExpr *e, const Symbol *s, int p, int64_t lo, int64_t hi) {
  Lower *lw = st->lw;
  Extent dim = s->tensor.dim[p];
  Diag *g = fault(lw, "E0314", e->index.at[p]->loc, "this read of `%s` can leave dim %s", e->name, extent_text(lw->a, dim));
  diag_mark(lw->d, g, "runs from %lld to %lld, the dim from 0 to %lld", (long long)lo, (long long)hi, (long long)dim.size - 1);
  diag_label(lw->d, g, s->loc, "`%s` is %s", e->name, shape_text(lw->a, &s->tensor));
  diag_help(lw->d, g, "say what stands outside: `(%s else 0)`", ast_expr_text(lw->a, e));
}

static Guard guard_of(Stmt *st, const AstExpr *e, const Symbol *s, IExpr *const *ix) {
  Guard g = {.ok = true};
  for (int p = 0; p < s->tensor.rank; p++) {
    if (depends_on_bad(st, ix[p])) continue;
    int64_t lo, hi;
    bounds_of(st, ix[p], &lo, &hi);
    bool by_value = ix_by_value(ix[p]);
    g.by_value |= by_value;
    g.leaves[p] = by_value || lo < 0 || hi >= s->tensor.dim[p].size;
    g.any |= g.leaves[p];
    if (by_value || !g.leaves[p] || e->otherwise || st->lw->dry) continue;
    report_leaving(st, e, s, p, lo, hi);
    g.ok = false;
  }
  return g;
}

/* ---- what stands outside ----------------------------------------------------------------------------------------- */

/* An index expression as a number in 64 bits, its reads by value included. */
static Expr *index_value(Stmt *st, const IExpr *x) {
  Arena *a = st->lw->a;
  Expr *sum = ex_int(a, I64, x->c);
  for (int i = 0; i < x->n; i++) {
    const Term *t = &x->term[i];
    Expr *atom;
    if (t->kind == ATOM_INDEX)
      atom = ex_cast(a, I64, ex_index(a, ix_index(a, t->index)));
    else if (t->kind == ATOM_VALUE)
      atom = ex_cast(a, I64, ex_read(a, t->operand, st->lw->m->values.at[t->operand].type.dtype, t->nat, t->at, NULL));
    else
      atom = ex_2(a, t->kind == ATOM_DIV ? EX_FLOORDIV : EX_MOD, index_value(st, t->sub), ex_int(a, I64, t->k));
    sum = ex_2(a, EX_ADD, sum, t->coef == 1 ? atom : ex_2(a, EX_MUL, ex_int(a, I64, t->coef), atom));
  }
  return ex_simplify(a, sum);
}

static Expr *inside(Stmt *st, const Guard *g, const TensorRef *t, IExpr *const *ix) {
  Arena *a = st->lw->a;
  Expr *all = NULL;
  for (int p = 0; p < t->rank; p++) {
    if (!g->leaves[p]) continue;
    Expr *v = ix_by_value(ix[p]) ? index_value(st, ix[p]) : frag_expr(st, frag_ix(ix[p]));
    Expr *low = ex_2(a, EX_GE, v, ex_int(a, v->dtype, 0)), *high = ex_2(a, EX_LT, v, ex_int(a, v->dtype, t->dim[p].size));
    Expr *both = ex_2(a, EX_AND, low, high);
    all = all ? ex_2(a, EX_AND, all, both) : both;
  }
  return all;
}

/* The read with a literal outside: a value of its own where it is by value. */
static Expr *guarded(Stmt *st, const Guard *g, const TensorRef *t, IExpr *const *ix, Expr *otherwise) {
  Expr *read = ex_read(st->lw->a, t->v, t->dtype, t->rank, (IExpr **)ix, otherwise);
  if (!g->by_value) return read;
  IndexSet s = 0;
  for (int p = 0; p < t->rank; p++) s |= ix_set(st, ix[p]);
  Op *op = space_op(st, OP_GATHER, s, 0, read, t->dtype, "at");
  return read_value(st, op->out[0], s);
}

/* Can the number stand as a literal of the tensor's own type? */
static bool literal_fits(Stmt *st, const TensorRef *t, const Frag *other) {
  double v;
  if (!frag_const(other, &v)) return false;
  return other->kind == FRAG_INT ? frag_fits(st, other, t->dtype) : !dtype_is_int(t->dtype);
}

static Frag read_else(Stmt *st, const AstExpr *e, const Guard *g, const TensorRef *t, IExpr *const *ix) {
  Frag other = lower_expr(st, e->otherwise);
  if (other.kind == FRAG_BAD) return other;
  FragKind kind = kind_of(t->exact);
  if (!g->any) return frag_like(kind, guarded(st, g, t, ix, NULL));
  if (t->dtype != BOOL && literal_fits(st, t, &other))
    return frag_like(kind, guarded(st, g, t, ix, frag_as(st, other, t->dtype)));
  Frag read = frag_like(kind, guarded(st, g, t, ix, ex_int(st->lw->a, t->dtype, 0)));
  return frag_where(st, e->otherwise->loc, frag_typed(inside(st, g, t, ix)), read, other);
}

/* ---- reads ------------------------------------------------------------------------------------------------------------- */

static void limit_indices(Stmt *st, const TensorRef *t, IExpr *const *ix) {
  for (int p = 0; p < t->rank; p++) {
    const IExpr *x = ix[p];
    bool alone = x->n == 1 && x->c == 0 && x->term[0].coef == 1 && x->term[0].kind == ATOM_VALUE;
    if (alone) limit_input(st->lw, x->term[0].operand, t->dim[p].size, t->dim[p].name);
  }
}

static Symbol *tensor_read(Stmt *st, const AstExpr *e) {
  Lower *lw = st->lw;
  Symbol *s = scope_find(st->cx->scope, e->name);
  if (!s || s->kind != SYM_TENSOR) {
    unknown_name(st->cx, e->head, "tensor", e->name, SYM_TENSOR);
    return NULL;
  }
  if (s->tensor.bad) return NULL;
  if (s->tensor.rank == e->index.n) return s;
  Diag *g = fault(lw, "E0306", e->loc, "`%s` has %d dim%s, but is read with %d ind%s", e->name, s->tensor.rank,
                  s->tensor.rank == 1 ? "" : "s", e->index.n, e->index.n == 1 ? "ex" : "ices");
  diag_label(lw->d, g, s->loc, "`%s` is %s", e->name, shape_text(lw->a, &s->tensor));
  return NULL;
}

Frag lower_read(Stmt *st, const AstExpr *e) {
  if (st->env) return frag_bad(); /* a def reads no tensors: reported where it is declared */
  Symbol *s = tensor_read(st, e);
  IExpr *ix[MAX_RANK];
  bool ok = s != NULL;
  for (int p = 0; p < e->index.n; p++) {
    IExpr *x = index_expr(st, e->index.at[p]);
    ok &= x != NULL;
    if (p < MAX_RANK) ix[p] = x;
  }
  if (!ok) return frag_bad();
  const TensorRef *t = &s->tensor;
  Guard g = guard_of(st, e, s, ix);
  if (!g.ok) return frag_bad();
  if (e->otherwise) return read_else(st, e, &g, t, ix);
  limit_indices(st, t, ix);
  return frag_like(kind_of(t->exact), guarded(st, &g, t, ix, NULL));
}
