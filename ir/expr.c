/* expr.c: the scalar body of an op, a tree over literals, index values and reads. Constructors fold nothing;
   ex_simplify folds constants and those identities that keep every result as it was, inf, NaN and -0 included:

     1.0 * x => x      --x => x      where(true, x, y) => x      f32(sqrt(64.0d)) => 8.0
     x + 0.0 stays (it makes 0.0 of -0.0), so does 0.0 * x (NaN for x = inf) */
#include "ir/ir.h"

#include <math.h>

static bool is_real(DType d) { return !dtype_is_int(d); }

/* A value of d, rounded once. f16 and bf16 are subsets of f32; they are rounded where they are stored. */
static double round_to(DType d, double v) { return d == F64 ? v : (double)(float)v; }

static Expr *node(Arena *a, ExprOp op, DType d) {
  Expr *x = NEW(a, Expr);
  x->op = op;
  x->dtype = d;
  return x;
}

Expr *ex_lit(Arena *a, DType d, double v) {
  Expr *x = node(a, EX_LITERAL, d);
  if (is_real(d))
    x->lit = round_to(d, v);
  else
    x->ilit = (int64_t)v;
  return x;
}

Expr *ex_int(Arena *a, DType d, int64_t v) {
  Expr *x = node(a, EX_LITERAL, d);
  if (is_real(d))
    x->lit = round_to(d, (double)v);
  else
    x->ilit = v;
  return x;
}

Expr *ex_index(Arena *a, IExpr *ix) {
  Expr *x = node(a, EX_INDEX, I32);
  x->nix = 1;
  x->ix = NEW(a, IExpr *);
  x->ix[0] = ix;
  return x;
}

Expr *ex_read(Arena *a, int operand, DType d, int n, IExpr **ix, Expr *otherwise) {
  Expr *x = node(a, EX_READ, d);
  x->operand = operand;
  x->nix = n;
  x->ix = NEW_ARRAY(a, IExpr *, n);
  for (int i = 0; i < n; i++) x->ix[i] = ix[i];
  x->otherwise = otherwise;
  return x;
}

static bool yields_bool(ExprOp op) { return op == EX_NOT || (op >= EX_LT && op <= EX_OR); }

Expr *ex_1(Arena *a, ExprOp op, Expr *x) {
  Expr *r = node(a, op, yields_bool(op) ? BOOL : x->dtype);
  r->arg[0] = x;
  return r;
}

Expr *ex_2(Arena *a, ExprOp op, Expr *x, Expr *y) {
  Expr *r = ex_1(a, op, x);
  r->arg[1] = y;
  return r;
}

Expr *ex_where(Arena *a, Expr *c, Expr *x, Expr *y) {
  Expr *r = node(a, EX_WHERE, x->dtype);
  r->arg[0] = c;
  r->arg[1] = x;
  r->arg[2] = y;
  return r;
}

Expr *ex_cast(Arena *a, DType d, Expr *x) {
  if (x->dtype == d) return x;
  Expr *r = node(a, EX_CAST, d);
  r->arg[0] = x;
  return r;
}

/* Literals are equal when their bits are: NaN equals itself, 0.0 and -0.0 differ. */
static bool same_node(const Expr *x, const Expr *y) {
  return x->op == y->op && x->dtype == y->dtype && x->operand == y->operand && x->nix == y->nix && x->ilit == y->ilit &&
         !memcmp(&x->lit, &y->lit, sizeof x->lit) && !x->otherwise == !y->otherwise;
}

bool ex_equal(const Expr *x, const Expr *y) {
  if (x == y) return true;
  if (!same_node(x, y)) return false;
  for (int i = 0; i < x->nix; i++)
    if (!ix_equal(x->ix[i], y->ix[i])) return false;
  for (int i = 0; i < 3; i++)
    if (!x->arg[i] != !y->arg[i] || (x->arg[i] && !ex_equal(x->arg[i], y->arg[i]))) return false;
  return !x->otherwise || ex_equal(x->otherwise, y->otherwise);
}

bool ex_uses(const Expr *x, int index) {
  for (int i = 0; i < x->nix; i++)
    if (ix_uses(x->ix[i], index)) return true;
  for (int i = 0; i < 3; i++)
    if (x->arg[i] && ex_uses(x->arg[i], index)) return true;
  return x->otherwise && ex_uses(x->otherwise, index);
}

bool ex_is_lit(const Expr *x, double v) {
  return x->op == EX_LITERAL && (is_real(x->dtype) ? x->lit == v : (double)x->ilit == v);
}

Expr *ex_slope(Arena *a, ExprOp op, Expr *u, Expr *y) {
#define LIT(v) ex_lit(a, u->dtype, v)
#define D1(op, x) ex_1(a, EX_##op, x)
#define D2(op, x, y) ex_2(a, EX_##op, x, y)
#define FN(op, name, value, f32, f64, slope)                                                                                     \
  case EX_##op: return slope;
  switch (op) {
#include "ir/functions.def"
  default: return NULL;
  }
#undef LIT
#undef D1
#undef D2
}

void ex_reads(const Expr *x, void (*f)(void *cx, const Expr *read), void *cx) {
  if (x->op == EX_READ) f(cx, x);
  for (int i = 0; i < 3; i++)
    if (x->arg[i]) ex_reads(x->arg[i], f, cx);
  if (x->otherwise) ex_reads(x->otherwise, f, cx);
}

Expr *ex_substitute(Arena *a, const Expr *x, IExpr *const *by, const int *operand_map) {
  Expr *r = NEW(a, Expr);
  *r = *x;
  if (x->op == EX_READ && operand_map) r->operand = operand_map[x->operand];
  if (x->nix) r->ix = NEW_ARRAY(a, IExpr *, x->nix);
  for (int i = 0; i < x->nix; i++) r->ix[i] = ix_substitute(a, x->ix[i], by, operand_map);
  for (int i = 0; i < 3; i++)
    if (x->arg[i]) r->arg[i] = ex_substitute(a, x->arg[i], by, operand_map);
  if (x->otherwise) r->otherwise = ex_substitute(a, x->otherwise, by, operand_map);
  return r;
}

/* ---- simplify ----------------------------------------------------------------------------------------- */

static double fold_real(ExprOp op, double x, double y) {
#define FN(op, name, value, ...)                                                                                                 \
  case EX_##op: return value;
  switch (op) {
  case EX_ADD: return x + y;
  case EX_SUB: return x - y;
  case EX_MUL: return x * y;
  case EX_DIV: return x / y;
  case EX_POW: return pow(x, y);
  case EX_NEG: return -x;
  case EX_MIN: return x < y ? x : y;
  case EX_MAX: return x > y ? x : y;
  case EX_ABS: return fabs(x);
  case EX_FLOOR: return floor(x);
#include "ir/functions.def"
  case EX_STOP: return x;
  default: internal_error("fold_real: operation %d gives no real", op);
  }
}

/* False where the result does not exist or leaves the type: such an expression stays as written. */
static bool fold_int(ExprOp op, DType d, int64_t x, int64_t y, int64_t *out) {
  bool ok = true;
  switch (op) {
  case EX_ADD: ok = checked_add(x, y, out); break;
  case EX_SUB: ok = !__builtin_sub_overflow(x, y, out); break;
  case EX_MUL: ok = checked_mul(x, y, out); break;
  case EX_NEG: ok = !__builtin_sub_overflow((int64_t)0, x, out); break;
  case EX_ABS: ok = x != INT64_MIN, *out = ok && x < 0 ? -x : x; break;
  case EX_FLOORDIV: ok = y > 0, *out = ok ? floor_div(x, y) : 0; break;
  case EX_MOD: ok = y > 0, *out = ok ? floor_mod(x, y) : 0; break;
  case EX_MIN: *out = min_i64(x, y); break;
  case EX_MAX: *out = max_i64(x, y); break;
  case EX_AND: *out = x && y; break;
  case EX_OR: *out = x || y; break;
  case EX_NOT: *out = !x; break;
  case EX_STOP: *out = x; break;
  default: return false;
  }
  return ok && (d != I32 || (*out >= INT32_MIN && *out <= INT32_MAX));
}

static bool fold_compare(ExprOp op, const Expr *x, const Expr *y, int64_t *out) {
  bool real = is_real(x->dtype);
  bool lt = real ? x->lit < y->lit : x->ilit < y->ilit, gt = real ? x->lit > y->lit : x->ilit > y->ilit;
  bool eq = real ? x->lit == y->lit : x->ilit == y->ilit;
  switch (op) {
  case EX_LT: *out = lt; return true;
  case EX_LE: *out = lt || eq; return true;
  case EX_EQ: *out = eq; return true;
  case EX_NE: *out = !eq; return true;
  case EX_GE: *out = gt || eq; return true;
  case EX_GT: *out = gt; return true;
  default: return false;
  }
}

static Expr *fold_cast(Arena *a, DType d, const Expr *x) {
  if (!is_real(x->dtype)) {
    bool fits = d != I32 || (x->ilit >= INT32_MIN && x->ilit <= INT32_MAX);
    return !fits ? NULL : d == BOOL ? ex_int(a, d, x->ilit != 0) : ex_int(a, d, x->ilit);
  }
  if (is_real(d)) return ex_lit(a, d, x->lit);
  if (d == BOOL) return ex_int(a, d, x->lit != 0);
  double limit = d == I32 ? 2147483648.0 : 9223372036854775808.0;
  return x->lit > -limit && x->lit < limit ? ex_int(a, d, (int64_t)x->lit) : NULL;
}

/* x is a node whose operands are all literals; NULL when it has no exact value of its type. */
static Expr *fold(Arena *a, const Expr *x) {
  const Expr *l = x->arg[0], *r = x->arg[1];
  int64_t v = 0;
  if (x->op == EX_CAST) return fold_cast(a, x->dtype, l);
  if (r && fold_compare(x->op, l, r, &v)) return ex_int(a, BOOL, v);
  if (!is_real(x->dtype)) return fold_int(x->op, x->dtype, l->ilit, r ? r->ilit : 0, &v) ? ex_int(a, x->dtype, v) : NULL;
  bool nan = isnan(l->lit) || (r && isnan(r->lit));
  if (x->op == EX_FLOORDIV || x->op == EX_MOD || (nan && (x->op == EX_MIN || x->op == EX_MAX))) return NULL;
  return ex_lit(a, x->dtype, fold_real(x->op, l->lit, r ? r->lit : 0));
}

static bool truth(const Expr *x, bool value) { return x->op == EX_LITERAL && x->dtype == BOOL && !x->ilit == !value; }

/* The operand that x is equal to, or NULL. */
static Expr *identity(Expr *x) {
  Expr *l = x->arg[0], *r = x->arg[1];
  bool whole = !is_real(x->dtype);
  switch (x->op) {
  case EX_ADD: return whole && ex_is_lit(l, 0) ? r : whole && ex_is_lit(r, 0) ? l : NULL;
  case EX_SUB: return ex_is_lit(r, 0) && !signbit(r->lit) ? l : NULL;
  case EX_MUL: return ex_is_lit(l, 1) ? r : ex_is_lit(r, 1) ? l : NULL;
  case EX_DIV:
  case EX_FLOORDIV: return ex_is_lit(r, 1) ? l : NULL;
  case EX_POW: return ex_is_lit(r, 1) ? l : NULL;
  case EX_NEG: return l->op == EX_NEG ? l->arg[0] : NULL;
  case EX_NOT: return l->op == EX_NOT ? l->arg[0] : NULL;
  case EX_AND: return truth(l, true) ? r : truth(r, true) ? l : truth(l, false) ? l : truth(r, false) ? r : NULL;
  case EX_OR: return truth(l, false) ? r : truth(r, false) ? l : truth(l, true) ? l : truth(r, true) ? r : NULL;
  case EX_MIN:
  case EX_MAX: return ex_equal(l, r) ? l : NULL;
  case EX_WHERE: return truth(l, true) ? r : truth(l, false) ? x->arg[2] : ex_equal(r, x->arg[2]) ? r : NULL;
  case EX_CAST: return x->dtype == l->dtype ? l : NULL;
  default: return NULL;
  }
}

Expr *ex_simplify(Arena *a, Expr *x) {
  Expr *r = NEW(a, Expr);
  *r = *x;
  int nargs = 0, nlits = 0;
  for (int i = 0; i < 3 && x->arg[i]; i++, nargs++) {
    r->arg[i] = ex_simplify(a, x->arg[i]);
    nlits += r->arg[i]->op == EX_LITERAL;
  }
  if (x->otherwise) r->otherwise = ex_simplify(a, x->otherwise);
  if (x->op == EX_INDEX && x->ix[0]->n == 0 && x->ix[0]->c >= INT32_MIN && x->ix[0]->c <= INT32_MAX)
    return ex_int(a, I32, x->ix[0]->c);
  Expr *same = nargs ? identity(r) : NULL;
  if (same) return same;
  Expr *folded = nargs && nlits == nargs && x->op != EX_WHERE ? fold(a, r) : NULL;
  return folded ? folded : r;
}
