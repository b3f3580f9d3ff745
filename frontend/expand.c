/* expand.c: normalisers as compositions of maps and reductions, one function each.

   softmax[u](x) of a statement named s, which recognise.c and grouping look for:
     %s.max[t]   = max[u] %x[t,u]
     %s.exp[t,u] = exp(%x[t,u] - where(%s.max[t] > -inf, stop_gradient(%s.max[t]), 0.0))
     %s.norm[t]  = sum[u] %s.exp[t,u]
     softmax     = where(%s.norm[t] > 0.0, %s.exp[t,u] / %s.norm[t], 0.0)
   The shift by the maximum has no gradient (it cancels). A row of only -inf has maximum -inf: it is shifted by 0 instead,
   its exponentials and their sum are 0, and the last line gives zeros without a gradient.                             */
#include "lower.h"

#include <math.h>

static Expr *lit(Stmt *st, const Expr *like, double v) { return ex_lit(st->lw->a, like->dtype, v); }
static Expr *op1(Stmt *st, ExprOp op, Expr *x) { return ex_1(st->lw->a, op, x); }
static Expr *op2(Stmt *st, ExprOp op, Expr *x, Expr *y) { return ex_2(st->lw->a, op, x, y); }

/* An operand of a normaliser: a plain read x over s, normalised along `along`. */
typedef struct {
  Stmt *st;
  Expr *x;
  IndexSet s, along, rows;
} Rows;

static Expr *reduce_rows(Rows *r, Expr *body, Reduce how, const char *suffix) {
  return read_value(r->st, nest(r->st, body, r->rows, r->along, how, suffix), r->rows);
}

static Expr *map_over(Rows *r, Expr *body, IndexSet s, const char *suffix) {
  return read_value(r->st, nest(r->st, body, s, 0, RED_NONE, suffix), s);
}

static Expr *mean_of(Rows *r, Expr *body, const char *suffix) {
  Expr *s = reduce_rows(r, body, RED_SUM, suffix);
  return op2(r->st, EX_DIV, s, ex_int(r->st->lw->a, s->dtype, range_product(r->st, r->along)));
}

/* What a row is shifted by: its maximum, 0 where that is -inf. */
static Expr *shift_of(Rows *r) {
  Stmt *st = r->st;
  Expr *m = reduce_rows(r, r->x, RED_MAX, "max");
  return ex_where(st->lw->a, op2(st, EX_GT, m, lit(st, m, -INFINITY)), op1(st, EX_STOP, m), lit(st, m, 0));
}

static Expr *exp_of(Rows *r, Expr *shift) {
  return map_over(r, op1(r->st, EX_EXP, op2(r->st, EX_SUB, r->x, shift)), r->s, "exp");
}

static Expr *softmax(Rows *r) {
  Stmt *st = r->st;
  Expr *e = exp_of(r, shift_of(r)), *z = reduce_rows(r, e, RED_SUM, "norm");
  return ex_where(st->lw->a, op2(st, EX_GT, z, lit(st, z, 0)), op2(st, EX_DIV, e, z), lit(st, z, 0));
}

static Expr *log_softmax(Rows *r) {
  Stmt *st = r->st;
  Expr *shift = shift_of(r), *z = reduce_rows(r, exp_of(r, shift), RED_SUM, "norm");
  Expr *shifted = op2(st, EX_SUB, r->x, shift);
  return ex_where(st->lw->a, op2(st, EX_GT, z, lit(st, z, 0)), op2(st, EX_SUB, shifted, op1(st, EX_LOG, z)), lit(st, z, 0));
}

/* x / sqrt(mean x^2 + eps) */
static Expr *scaled(Rows *r, Expr *x, double eps, const char *suffix) {
  Stmt *st = r->st;
  Expr *ms = mean_of(r, op2(st, EX_MUL, x, x), "squares");
  Expr *scale = map_over(r, op1(st, EX_RSQRT, op2(st, EX_ADD, ms, lit(st, ms, eps))), r->rows, suffix);
  return op2(st, EX_MUL, x, scale);
}

static Expr *layernorm(Rows *r, double eps) {
  Expr *mean = map_over(r, mean_of(r, r->x, "sum"), r->rows, "mean");
  Expr *centred = map_over(r, op2(r->st, EX_SUB, r->x, mean), r->s, "centred");
  return scaled(r, centred, eps, "rstd");
}

/* Inclusive, along one index. */
static Expr *scan(Rows *r, Expr *x, IndexSet s, int index) {
  Op *op = space_op(r->st, OP_SCAN, s, 0, x, x->dtype, "scan");
  op->along = __builtin_popcount(s & (((IndexSet)1 << index) - 1));
  return read_value(r->st, op->out[0], s);
}

/* Several indices run as one, the last fastest: all earlier rows of the outer index, then this row. */
static Expr *cumsum(Rows *r, Expr *x, IndexSet s, IndexSet along) {
  Stmt *st = r->st;
  int outer = __builtin_ctz(along);
  IndexSet inner = along & (along - 1);
  if (!inner) return scan(r, x, s, outer);
  Expr *rows = read_value(st, nest(st, x, s & ~inner, inner, RED_SUM, "row"), s & ~inner);
  Expr *before = scan(r, rows, s & ~inner, outer);
  for (int i = 0; i < before->nix; i++)
    if (ix_single(before->ix[i]) == outer) before->ix[i] = ix_add(st->lw->a, before->ix[i], ix_const(st->lw->a, -1));
  before->otherwise = ex_int(st->lw->a, before->dtype, 0);
  return op2(st, EX_ADD, cumsum(r, x, s, inner), before);
}

/* The class's number within the rows: indices count row-major as one. */
static IExpr *class_index(Rows *r) {
  Arena *a = r->st->lw->a;
  IExpr *c = ix_const(a, 0);
  for (int i = 0; i < r->st->idx.n; i++)
    if (r->along >> i & 1) c = ix_add(a, ix_scale(a, c, r->st->idx.at[i].range.size), ix_index(a, i));
  return c;
}

/* log sum exp z - z[t]. The last term is a sum over all classes, so that these may be split. */
static Expr *xent(Rows *r, Frag t) {
  Stmt *st = r->st;
  Arena *a = st->lw->a;
  Expr *shift = shift_of(r), *z = reduce_rows(r, exp_of(r, shift), RED_SUM, "norm");
  Frag c = frag_ix(class_index(r));
  DType d = frag_dtype(st, &c) == I32 && frag_dtype(st, &t) == I32 ? I32 : I64;
  Expr *hit = op2(st, EX_EQ, frag_as(st, c, d), frag_as(st, t, d));
  Expr *at = reduce_rows(r, ex_where(a, hit, r->x, lit(st, r->x, 0)), RED_SUM, "target");
  return op2(st, EX_SUB, op2(st, EX_ADD, op1(st, EX_LOG, z), shift), at);
}

/* -t log sigmoid(z) - (1 - t) log sigmoid(-z), each side of 0 by the form that does not overflow there. */
Expr *expand_bce(Stmt *st, Expr *z, Expr *t) {
  z = once(st, z, "logit");
  Expr *pos = op2(st, EX_ADD, z, op1(st, EX_LOG1P, op1(st, EX_EXP, op1(st, EX_NEG, z))));
  Expr *neg = op1(st, EX_LOG1P, op1(st, EX_EXP, z));
  Expr *softplus = ex_where(st->lw->a, op2(st, EX_GT, z, lit(st, z, 0)), pos, neg);
  return op2(st, EX_SUB, softplus, op2(st, EX_MUL, z, t));
}

/* ---- arguments --------------------------------------------------------------------------------------------------- */

static bool live_indices(Stmt *st, const AstExpr *e, IndexSet *along) {
  bool ok = true;
  for (int i = 0; i < e->binds.n; i++) {
    const AstBind *b = &e->binds.at[i];
    int k = index_find(st, b->name.text);
    if (k < 0) {
      Diag *g =
          fault(st->lw, "E0313", b->name.loc, "`%s` keeps its indices, but there is no index `%s` here", e->name, b->name.text);
      diag_help(st->lw->d, g, "put `%s` on the left side, or reduce over it outside: `sum[%s](... %s[%s](...))`", b->name.text,
                b->name.text, e->name, b->name.text);
      ok = false;
    } else if (b->range) {
      fault(st->lw, "E0313", b->range->loc, "`%s` keeps its indices: the range is given where `%s` is bound", e->name,
            b->name.text);
      ok = false;
    } else {
      *along |= (IndexSet)1 << k;
    }
  }
  return ok;
}

/* The values in order; a named eps apart. */
static bool norm_arguments(Stmt *st, const AstExpr *e, int want, const AstExpr **out, double *eps) {
  bool has_eps = !strcmp(e->name, "rmsnorm") || !strcmp(e->name, "layernorm"), ok = true;
  int n = 0;
  for (int i = 0; i < e->args.n; i++) {
    const AstArg *x = &e->args.at[i];
    if (x->name.text && has_eps && !strcmp(x->name.text, "eps")) {
      ok &= real_of(st->cx, x->value, eps);
      if (ok && !(*eps >= 0)) fault(st->lw, "E0214", x->loc, "eps must not be negative"), ok = false;
    } else if (x->name.text || x->each || x->value->kind == AST_STRING) {
      fault(st->lw, "E0209", x->loc, "`%s` has no such argument", e->name), ok = false;
    } else if (n++ < want) {
      out[n - 1] = x->value;
    }
  }
  if (n != want) fault(st->lw, "E0208", e->loc, "`%s[...]` takes %d argument%s, not %d", e->name, want, want == 1 ? "" : "s", n);
  return ok && n == want;
}

/* The class of xent: whole numbers, the same for all classes; inputs check them when they are loaded. */
static bool class_of(Rows *r, const AstExpr *e, Frag *t) {
  Stmt *st = r->st;
  if (!frag_number(st, e->loc, t)) return false;
  Expr *x = frag_expr(st, *t);
  if (!dtype_is_int(x->dtype)) {
    fault(st->lw, "E0317", e->loc, "a class is a whole number, this is real");
    return false;
  }
  if (ex_set(st, x) & r->along) {
    fault(st->lw, "E0313", e->loc, "the class may not use the indices that xent runs over");
    return false;
  }
  int64_t lo, hi, n = range_product(st, r->along);
  if (t->ix) bounds_of(st, t->ix, &lo, &hi);
  if (t->ix && (lo < 0 || hi >= n) && !st->bad && !st->lw->dry) {
    fault(st->lw, "E0214", e->loc, "the class runs from %lld to %lld, the classes from 0 to %lld", (long long)lo, (long long)hi,
          (long long)n - 1);
    return false;
  }
  if (x->op != EX_INDEX && !is_read(x)) *t = frag_like(t->kind, once(st, x, "class"));
  if (is_read(x)) {
    int only = __builtin_ctz(r->along);
    limit_input(st->lw, x->operand, n, r->along & (r->along - 1) ? NULL : st->idx.at[only].range.name);
  }
  return true;
}

static Expr *expand(Rows *r, const char *name, double eps) {
  if (!strcmp(name, "softmax")) return softmax(r);
  if (!strcmp(name, "log_softmax")) return log_softmax(r);
  if (!strcmp(name, "rmsnorm")) return scaled(r, r->x, eps, "rms");
  if (!strcmp(name, "layernorm")) return layernorm(r, eps);
  assert(!strcmp(name, "cumsum") && "every normaliser is here");
  return cumsum(r, r->x, r->s, r->along);
}

static Frag normalise(Stmt *st, const AstExpr *e) {
  bool is_xent = !strcmp(e->name, "xent");
  int from = st->idx.n;
  const AstExpr *arg[2] = {NULL, NULL};
  double eps = 1e-5;
  Rows r = {.st = st};
  if (e->micro) return not_yet(st->lw, e->loc, "`micro`"), frag_bad();
  bool ok = norm_arguments(st, e, is_xent ? 2 : 1, arg, &eps);
  ok = (is_xent || live_indices(st, e, &r.along)) && ok;
  if (!ok) return frag_bad();
  if (is_xent) ok = bind_reduced(st, e, arg[0], &r.along);
  int faults = st->lw->faults;
  Frag x = lower_expr(st, arg[0]), t = is_xent ? lower_expr(st, arg[1]) : frag_bad();
  if (is_xent) index_report(st, from, faults);
  if (!ok || !frag_number(st, arg[0]->loc, &x)) return frag_bad();
  if (strcmp(e->name, "cumsum")) x = frag_real(st, x);
  Expr *body = x.kind == FRAG_INT ? frag_as(st, x, I64) : frag_expr(st, x);
  r.s = ex_set(st, body) | r.along;
  r.rows = r.s & ~r.along;
  r.x = plain_read(st, body, r.s, "in");
  if (is_xent && !class_of(&r, arg[1], &t)) return frag_bad();
  return frag_like(x.kind, is_xent ? xent(&r, t) : expand(&r, e->name, eps));
}

/* xent is a reduction: its indices are its own. */
Frag lower_normaliser(Stmt *st, const AstExpr *e) {
  int from = st->idx.n, whole = st->nwhole;
  st->nwhole = -1;
  Frag f = normalise(st, e);
  st->nwhole = whole;
  index_drop(st, from);
  return f;
}
