/* fragment.c: numbers and the types they take.

   A number made of only dims, indices and literals has no type yet: whole ones stay exact (an index expression where it
   is one), others are f64. Beside a typed value they take its type, rounded once:

     t * exp(-k / J)     REAL, f64            x[t] + t * exp(-k / J)     f32: x + f32(f64(t) * exp(...))
     u <= t              idx(u) <= idx(t)     2 * tok[b]                 i32: 2 * tok        tok[b] / 2    f32              */
#include "lower.h"

#include <math.h>

Frag frag_bad(void) { return (Frag){FRAG_BAD, NULL, NULL}; }
Frag frag_ix(IExpr *ix) { return (Frag){FRAG_INT, ix, NULL}; }
Frag frag_typed(Expr *e) { return (Frag){FRAG_TYPED, NULL, e}; }
Frag frag_like(FragKind kind, Expr *e) { return (Frag){kind, NULL, e}; }

static bool frag_const_int(const Frag *f, int64_t *value) {
  if (f->kind != FRAG_INT || !f->ix || f->ix->n) return false;
  *value = f->ix->c;
  return true;
}

bool frag_const(const Frag *f, double *value) {
  int64_t n;
  if (frag_const_int(f, &n)) *value = (double)n;
  if (f->kind == FRAG_REAL && f->e->op == EX_LITERAL) *value = f->e->lit;
  return (f->kind == FRAG_INT && f->ix && !f->ix->n) || (f->kind == FRAG_REAL && f->e->op == EX_LITERAL);
}

static bool fits_i32(Stmt *st, const IExpr *ix) {
  int64_t lo, hi;
  bounds_of(st, ix, &lo, &hi);
  return lo >= INT32_MIN && hi <= INT32_MAX;
}

/* An index expression in 64 bits: each atom on its own fits 32. */
static Expr *wide(Stmt *st, const IExpr *ix) {
  Arena *a = st->lw->a;
  Expr *sum = ix->c || !ix->n ? ex_int(a, I64, ix->c) : NULL;
  for (int i = 0; i < ix->n; i++) {
    IExpr *atom = ix_const(a, 0);
    atom->n = 1;
    atom->term = NEW(a, Term);
    atom->term[0] = ix->term[i];
    atom->term[0].coef = 1;
    Expr *e = ex_2(a, EX_MUL, ex_int(a, I64, ix->term[i].coef), ex_cast(a, I64, ex_index(a, atom)));
    sum = sum ? ex_2(a, EX_ADD, sum, e) : e;
  }
  return sum;
}

DType frag_dtype(Stmt *st, const Frag *f) {
  if (f->kind == FRAG_INT && f->ix) return fits_i32(st, f->ix) ? I32 : I64;
  return f->e->dtype;
}

Expr *frag_expr(Stmt *st, Frag f) {
  if (!f.ix) return f.e;
  if (f.ix->n == 0) return ex_int(st->lw->a, frag_dtype(st, &f), f.ix->c);
  return fits_i32(st, f.ix) ? ex_index(st->lw->a, f.ix) : wide(st, f.ix);
}

Expr *frag_as(Stmt *st, Frag f, DType d) {
  Arena *a = st->lw->a;
  if (f.ix && f.ix->n == 0) return ex_int(a, d, f.ix->c);
  Expr *e = frag_expr(st, f);
  if (e->op == EX_LITERAL && !dtype_is_int(e->dtype) && !dtype_is_int(d)) return ex_lit(a, d, e->lit);
  return ex_cast(a, d, e);
}

Frag frag_real(Stmt *st, Frag f) {
  if (f.kind == FRAG_INT) return frag_like(FRAG_REAL, frag_as(st, f, F64));
  if (f.kind == FRAG_TYPED && dtype_is_int(f.e->dtype)) return frag_typed(ex_cast(st->lw->a, F32, f.e));
  return f;
}

/* ---- types ----------------------------------------------------------------------------------------------------- */

static bool is_bool(const Frag *f) { return f->kind == FRAG_TYPED && f->e->dtype == BOOL; }

bool frag_number(Stmt *st, Loc loc, const Frag *f) {
  if (f->kind == FRAG_BAD) return false;
  if (!is_bool(f)) return true;
  Diag *g = fault(st->lw, "E0210", loc, "a number is wanted here, this is true or false");
  diag_help(st->lw->d, g, "a condition becomes a number by `where(c, 1, 0)` or `f32(c)`");
  return false;
}

bool frag_bool(Stmt *st, Loc loc, const Frag *f) {
  if (f->kind == FRAG_BAD) return false;
  if (is_bool(f)) return true;
  Diag *g = fault(st->lw, "E0210", loc, "a condition is wanted here, this is a number");
  diag_help(st->lw->d, g, "compare it: `x != 0`");
  return false;
}

static DType typed_meet(DType x, DType y) {
  bool xi = dtype_is_int(x), yi = dtype_is_int(y);
  assert((x == y || xi || yi) && "f32 is the only real type that computes");
  return xi && yi ? (x == I64 || y == I64 ? I64 : I32) : xi ? y : x;
}

bool frag_fits(Stmt *st, const Frag *f, DType d) {
  if (d != I32 || f->kind != FRAG_INT) return true;
  if (f->ix) return fits_i32(st, f->ix);
  return f->e->op != EX_LITERAL || (f->e->ilit >= INT32_MIN && f->e->ilit <= INT32_MAX);
}

FragKind frag_meet(Stmt *st, const Frag *x, const Frag *y, DType *d) {
  if (x->kind == FRAG_BAD || y->kind == FRAG_BAD) return FRAG_BAD;
  if (x->kind == FRAG_TYPED && y->kind == FRAG_TYPED) {
    *d = typed_meet(x->e->dtype, y->e->dtype);
    return FRAG_TYPED;
  }
  if (x->kind == FRAG_TYPED || y->kind == FRAG_TYPED) {
    const Frag *typed = x->kind == FRAG_TYPED ? x : y, *other = typed == x ? y : x;
    *d = typed->e->dtype;
    if (dtype_is_int(*d) && other->kind == FRAG_REAL) *d = F32;
    if (*d == I32 && !frag_fits(st, other, I32)) *d = I64;
    return FRAG_TYPED;
  }
  if (x->kind == FRAG_REAL || y->kind == FRAG_REAL) {
    *d = F64;
    return FRAG_REAL;
  }
  *d = frag_dtype(st, x) == I32 && frag_dtype(st, y) == I32 ? I32 : I64;
  return FRAG_INT;
}

/* ---- arithmetic -------------------------------------------------------------------------------------------------- */

/* What stays an index expression; NULL: nothing does. */
static IExpr *index_arith(Stmt *st, ExprOp op, const IExpr *x, const IExpr *y) {
  Arena *a = st->lw->a;
  switch (op) {
  case EX_ADD: return ix_add(a, x, y);
  case EX_SUB: return ix_add(a, x, ix_scale(a, y, -1));
  case EX_MUL: return y->n == 0 ? ix_scale(a, x, y->c) : x->n == 0 ? ix_scale(a, y, x->c) : NULL;
  case EX_FLOORDIV: return y->n == 0 && y->c > 0 ? ix_div(a, x, y->c) : NULL;
  case EX_MOD: return y->n == 0 && y->c > 0 ? ix_mod(a, x, y->c) : NULL;
  case EX_MIN: return x->n == 0 && y->n == 0 ? ix_const(a, min_i64(x->c, y->c)) : NULL;
  case EX_MAX: return x->n == 0 && y->n == 0 ? ix_const(a, max_i64(x->c, y->c)) : NULL;
  default: return NULL;
  }
}

/* A node over literals is a literal at once, so that constants are seen as such. */
static Expr *node2(Stmt *st, ExprOp op, Expr *x, Expr *y) {
  Expr *e = ex_2(st->lw->a, op, x, y);
  return x->op == EX_LITERAL && y->op == EX_LITERAL ? ex_simplify(st->lw->a, e) : e;
}

static bool whole_division(Stmt *st, const AstExpr *e, const Frag *x, const Frag *y) {
  int64_t k;
  bool whole = x->kind == FRAG_INT || (x->kind == FRAG_TYPED && dtype_is_int(x->e->dtype));
  if (whole && frag_const_int(y, &k) && k > 0) return true;
  Diag *g = fault(st->lw, "E0212", e->loc, "`%s` takes a whole number on the left and a positive constant on the right",
                  ast_op_text(e->op));
  if (!whole) diag_help(st->lw->d, g, "for reals write `floor(a / b)`");
  return false;
}

Frag frag_arith(Stmt *st, const AstExpr *e, ExprOp op, Frag x, Frag y) {
  bool ok = frag_number(st, e->left ? e->left->loc : e->loc, &x);
  ok &= frag_number(st, e->right ? e->right->loc : e->loc, &y);
  if (!ok) return frag_bad();
  bool whole = op == EX_FLOORDIV || op == EX_MOD;
  if (whole && !whole_division(st, e, &x, &y)) return frag_bad();
  if (op == EX_DIV) x = frag_real(st, x), y = frag_real(st, y);
  IExpr *ix = x.ix && y.ix ? index_arith(st, op, x.ix, y.ix) : NULL;
  if (ix) return frag_ix(ix);
  DType d;
  FragKind kind = frag_meet(st, &x, &y, &d);
  if (kind == FRAG_BAD) return frag_bad();
  if (kind == FRAG_INT && op != EX_MIN && op != EX_MAX) d = I64; /* a product of indices may need it */
  return frag_like(kind, node2(st, op, frag_as(st, x, d), frag_as(st, y, d)));
}

Frag frag_compare(Stmt *st, const AstExpr *e, ExprOp op, Frag x, Frag y) {
  bool ok = frag_number(st, e->left->loc, &x);
  ok &= frag_number(st, e->right->loc, &y);
  DType d;
  if (!ok || frag_meet(st, &x, &y, &d) == FRAG_BAD) return frag_bad();
  return frag_typed(node2(st, op, frag_as(st, x, d), frag_as(st, y, d)));
}

Frag frag_where(Stmt *st, Loc loc, Frag c, Frag x, Frag y) {
  if (c.kind == FRAG_BAD || x.kind == FRAG_BAD || y.kind == FRAG_BAD) return frag_bad();
  Arena *a = st->lw->a;
  if (is_bool(&x) && is_bool(&y)) return frag_typed(ex_where(a, c.e, x.e, y.e));
  bool ok = frag_number(st, loc, &x);
  DType d;
  FragKind kind = ok && frag_number(st, loc, &y) ? frag_meet(st, &x, &y, &d) : FRAG_BAD;
  if (kind == FRAG_BAD) return frag_bad();
  if (kind != FRAG_TYPED && !is_pure(st->lw, c.e)) kind = FRAG_TYPED, d = F32; /* the data decides: no constant any more */
  if (c.e->op == EX_LITERAL) { /* decided by sizes: the branch keeps being a constant */
    Frag taken = c.e->ilit ? x : y;
    return kind == FRAG_INT ? taken : frag_like(kind, frag_as(st, taken, d));
  }
  return frag_like(kind, ex_where(a, c.e, frag_as(st, x, d), frag_as(st, y, d)));
}

/* ---- powers -------------------------------------------------------------------------------------------------------- */

enum { MAX_POWER = 64 }; /* beyond it pow() is as good as products */

/* x ** n for n >= 1 by squaring; x is cheap. */
static Expr *product(Stmt *st, Expr *x, int64_t n) {
  Arena *a = st->lw->a;
  if (n == 1) return x;
  Expr *half = product(st, x, n / 2);
  if (n > 3) half = once(st, half, "pow");
  Expr *even = ex_2(a, EX_MUL, half, half);
  return n % 2 ? ex_2(a, EX_MUL, even, x) : even;
}

static Frag const_power(Stmt *st, double x, double y, bool whole) {
  double v = pow(x, y);
  if (whole && y >= 0 && fabs(v) < 9007199254740992.0) return frag_ix(ix_const(st->lw->a, (int64_t)v));
  return frag_like(FRAG_REAL, ex_lit(st->lw->a, F64, v));
}

static Frag whole_power(Stmt *st, Frag x, int64_t n) {
  Arena *a = st->lw->a;
  if (n < 0) x = frag_real(st, x);
  if (n == 0) return frag_like(x.kind, ex_int(a, frag_dtype(st, &x), 1));
  DType d = x.kind == FRAG_INT ? I64 : frag_dtype(st, &x);
  Expr *base = frag_as(st, x, d);
  Expr *e = product(st, n == 1 || n == -1 ? base : once(st, base, "base"), n < 0 ? -n : n);
  return frag_like(x.kind, n < 0 ? ex_2(a, EX_DIV, ex_lit(a, d, 1), e) : e);
}

Frag frag_power(Stmt *st, const AstExpr *e, Frag x, Frag y) {
  bool ok = frag_number(st, e->left->loc, &x);
  ok &= frag_number(st, e->right->loc, &y);
  if (!ok) return frag_bad();
  double cx, cy;
  int64_t n;
  if (frag_const(&x, &cx) && frag_const(&y, &cy)) return const_power(st, cx, cy, x.kind == FRAG_INT && y.kind == FRAG_INT);
  if (frag_const_int(&y, &n) && n >= -MAX_POWER && n <= MAX_POWER) return whole_power(st, x, n);
  x = frag_real(st, x), y = frag_real(st, y);
  DType d;
  FragKind kind = frag_meet(st, &x, &y, &d);
  if (kind == FRAG_BAD) return frag_bad();
  return frag_like(kind, ex_2(st->lw->a, EX_POW, frag_as(st, x, d), frag_as(st, y, d)));
}
