/* scalar.c: expressions, scalar functions, casts and defs -> fragments.

     def gelu(x) = 0.5 * x * (1 + tanh(c * (x + 0.044715 * x * x * x)))
     m[b,f] = gelu(sum[d](n[b,d] * w1[d,f]))    the argument is lowered once, where it is written, and stands for x in
                                                the def's body; what is used twice is made a value first             */
#include "lower.h"

#include <math.h>

/* ---- names ----------------------------------------------------------------------------------------------------- */

static bool def_argument(const DefEnv *env, const char *name, Frag *out) {
  for (int i = 0; i < env->def->names.n; i++) {
    if (strcmp(env->def->names.at[i].text, name)) continue;
    *out = env->arg[i];
    return true;
  }
  return false;
}

static Frag constant(Stmt *st, double v) { return frag_like(FRAG_REAL, ex_lit(st->lw->a, F64, v)); }

static Frag dim_name(Stmt *st, const AstExpr *e) {
  Symbol *s = scope_find(st->env ? st->lw->file : st->cx->scope, e->name);
  if (s && s->kind == SYM_DIM) return s->bad ? frag_bad() : frag_ix(ix_const(st->lw->a, s->size));
  unknown_name(st->cx, e->loc, "dim", e->name, SYM_DIM);
  return frag_bad();
}

/* A whole tensor by its bare name: `x + y`, all of one shape. */
static Frag whole_tensor(Stmt *st, const AstExpr *e, const Symbol *s) {
  Lower *lw = st->lw;
  const TensorRef *t = &s->tensor;
  if (st->nwhole < 0) {
    Diag *g = fault(lw, "E0319", e->loc, "`%s` needs its indices here", e->name);
    diag_label(lw->d, g, s->loc, "`%s` is %s", e->name, shape_text(lw->a, t));
    return frag_bad();
  }
  bool equal = t->rank == st->nwhole;
  IExpr *ix[MAX_RANK];
  for (int i = 0; i < t->rank; i++) {
    equal = equal && extents_agree(t->dim[i], st->idx.at[i].range);
    ix[i] = ix_index(lw->a, i);
  }
  if (equal) return read_tensor(st, t, ix);
  Diag *g =
      fault(lw, "E0307", e->loc, "whole tensors of one expression need equal shapes; `%s` is %s", e->name, shape_text(lw->a, t));
  diag_label(lw->d, g, st->idx.at[0].range_loc, "%s", st->idx.at[0].range_why);
  diag_help(lw->d, g, "there is no implicit broadcasting: write the indices");
  return frag_bad();
}

static Frag tensor_name(Stmt *st, const AstExpr *e, const Symbol *s) {
  if (s->tensor.bad) return frag_bad();
  return s->tensor.rank ? whole_tensor(st, e, s) : read_tensor(st, &s->tensor, NULL);
}

static Frag lower_name(Stmt *st, const AstExpr *e) {
  Lower *lw = st->lw;
  Frag f;
  if (st->env && def_argument(st->env, e->name, &f)) return f;
  if (!strcmp(e->name, "inf")) return constant(st, INFINITY);
  if (!strcmp(e->name, "pi")) return constant(st, M_PI);
  if (e->is_dim) return dim_name(st, e);
  if (st->env) return frag_bad();
  int i = index_find(st, e->name);
  Symbol *s = scope_find(st->cx->scope, e->name);
  if (i >= 0 && s && s->kind == SYM_TENSOR && s->tensor.rank == 0 && !s->tensor.bad) {
    Diag *g = fault(lw, "E0204", e->loc, "`%s` could be the index or the scalar tensor", e->name);
    diag_label(lw->d, g, st->idx.at[i].loc, "the index");
    diag_label(lw->d, g, s->loc, "the tensor");
    diag_help(lw->d, g, "rename one of them");
    return frag_bad();
  }
  if (i >= 0) return frag_ix(ix_index(lw->a, i));
  if (s) return tensor_name(st, e, s);
  unknown_name(st->cx, e->loc, "tensor or index", e->name, SYM_TENSOR);
  return frag_bad();
}

/* ---- operators -------------------------------------------------------------------------------------------------- */

static Frag unary(Stmt *st, const AstExpr *e) {
  Arena *a = st->lw->a;
  Frag x = lower_expr(st, e->left);
  if (e->op == AST_NOT) return frag_bool(st, e->left->loc, &x) ? frag_typed(ex_1(a, EX_NOT, x.e)) : frag_bad();
  if (!frag_number(st, e->left->loc, &x)) return frag_bad();
  if (x.ix) return frag_ix(ix_scale(a, x.ix, -1));
  Expr *r = ex_1(a, EX_NEG, x.e);
  return frag_like(x.kind, x.e->op == EX_LITERAL ? ex_simplify(a, r) : r);
}

static Frag logic(Stmt *st, const AstExpr *e, ExprOp op, Frag x, Frag y) {
  bool ok = frag_bool(st, e->left->loc, &x);
  ok &= frag_bool(st, e->right->loc, &y);
  return ok ? frag_typed(ex_2(st->lw->a, op, x.e, y.e)) : frag_bad();
}

static Frag binary(Stmt *st, const AstExpr *e) {
  static const ExprOp ops[] = {
      [AST_ADD] = EX_ADD, [AST_SUB] = EX_SUB, [AST_MUL] = EX_MUL, [AST_DIV] = EX_DIV, [AST_FLOORDIV] = EX_FLOORDIV,
      [AST_MOD] = EX_MOD, [AST_POW] = EX_POW, [AST_LT] = EX_LT,   [AST_LE] = EX_LE,   [AST_EQ] = EX_EQ,
      [AST_NE] = EX_NE,   [AST_GE] = EX_GE,   [AST_GT] = EX_GT,   [AST_AND] = EX_AND, [AST_OR] = EX_OR};
  Frag x = lower_expr(st, e->left), y = lower_expr(st, e->right);
  if (e->op == AST_AND || e->op == AST_OR) return logic(st, e, ops[e->op], x, y);
  if (e->op == AST_POW) return frag_power(st, e, x, y);
  return e->op >= AST_LT ? frag_compare(st, e, ops[e->op], x, y) : frag_arith(st, e, ops[e->op], x, y);
}

/* ---- scalar functions ---------------------------------------------------------------------------------------------- */

static Expr *mul(Stmt *st, Expr *x, Expr *y) { return ex_2(st->lw->a, EX_MUL, x, y); }
static Expr *add(Stmt *st, Expr *x, Expr *y) { return ex_2(st->lw->a, EX_ADD, x, y); }
static Expr *lit(Stmt *st, const Expr *like, double v) { return ex_lit(st->lw->a, like->dtype, v); }

/* 0.5 x (1 + s) */
static Expr *gate(Stmt *st, Expr *x, Expr *s) { return mul(st, mul(st, lit(st, x, 0.5), x), add(st, lit(st, x, 1), s)); }

/* D. Hendrycks, K. Gimpel, Gaussian Error Linear Units, 2016: the tanh form, sqrt(2 / pi) = 0.79788... */
static Expr *gelu(Stmt *st, Expr *x) {
  Expr *cube = mul(st, mul(st, mul(st, lit(st, x, 0.044715), x), x), x);
  Expr *inner = mul(st, lit(st, x, 0.7978845608028654), add(st, x, cube));
  return gate(st, x, ex_1(st->lw->a, EX_TANH, inner));
}

static Expr *composition(Stmt *st, const char *name, Expr *x) {
  Arena *a = st->lw->a;
  x = once(st, x, "arg");
  if (!strcmp(name, "silu")) return mul(st, x, ex_1(a, EX_SIGMOID, x));
  if (!strcmp(name, "gelu")) return gelu(st, x);
  assert(!strcmp(name, "gelu_erf") && "every composition of the table is here");
  return gate(st, x, ex_1(a, EX_ERF, mul(st, lit(st, x, M_SQRT1_2), x)));
}

static Frag dropout(Stmt *st, const AstExpr *e, Frag x) {
  Arena *a = st->lw->a;
  double p;
  if (!real_of(st->cx, e->args.at[1].value, &p)) return frag_bad();
  if (!(p >= 0 && p < 1)) {
    fault(st->lw, "E0214", e->args.at[1].value->loc, "a dropout probability lies in [0, 1), this is %g", p);
    return frag_bad();
  }
  Expr *v = frag_as(st, x, F32);
  if (p == 0) return frag_typed(v);
  Expr *u = draw(st, INIT_UNIFORM, ex_set(st, v), e->loc, "drop");
  return frag_typed(ex_where(a, ex_2(a, EX_GE, u, ex_lit(a, F32, p)), mul(st, v, lit(st, v, 1 / (1 - p))), lit(st, v, 0)));
}

static Frag bce(Stmt *st, Frag z, Frag t) {
  DType d;
  z = frag_real(st, z), t = frag_real(st, t);
  FragKind kind = frag_meet(st, &z, &t, &d);
  return kind == FRAG_BAD ? frag_bad() : frag_like(kind, expand_bce(st, frag_as(st, z, d), frag_as(st, t, d)));
}

static Frag function_1(Stmt *st, const Builtin *b, Frag x) {
  Arena *a = st->lw->a;
  if (b->op == EX_STOP && x.kind != FRAG_TYPED) return x;
  if (b->real) x = frag_real(st, x);
  Expr *v = x.kind == FRAG_INT ? frag_as(st, x, I64) : frag_expr(st, x);
  if (b->op == EX_NOPS) return frag_like(x.kind, composition(st, b->name, v));
  Expr *r = ex_1(a, b->op, v);
  return frag_like(x.kind, v->op == EX_LITERAL ? ex_simplify(a, r) : r);
}

static Frag builtin(Stmt *st, const AstExpr *e, const Builtin *b, const Frag *x) {
  const AstArg *args = e->args.at;
  if (!strcmp(b->name, "uniform")) return frag_typed(draw(st, INIT_UNIFORM, live_set(st), e->loc, "uniform"));
  if (!strcmp(b->name, "normal")) return frag_typed(draw(st, INIT_NORMAL, live_set(st), e->loc, "normal"));
  if (!strcmp(b->name, "where"))
    return frag_bool(st, args[0].value->loc, &x[0]) ? frag_where(st, e->loc, x[0], x[1], x[2]) : frag_bad();
  bool ok = true;
  for (int i = 0; i < b->nargs; i++) ok &= frag_number(st, args[i].value->loc, &x[i]);
  if (!ok) return frag_bad();
  if (!strcmp(b->name, "relu")) return frag_arith(st, e, EX_MAX, frag_ix(ix_const(st->lw->a, 0)), x[0]); /* at 0: to the 0 */
  if (!strcmp(b->name, "dropout")) return dropout(st, e, x[0]);
  if (!strcmp(b->name, "bce")) return bce(st, x[0], x[1]);
  return b->nargs == 2 ? frag_arith(st, e, b->op, x[0], x[1]) : function_1(st, b, x[0]);
}

static Frag cast(Stmt *st, const AstExpr *e, DType d, Frag x) {
  if (x.kind == FRAG_BAD || !dtype_supported(st->cx, d, e->head)) return frag_bad();
  double v = 0, limit = d == I32 ? 0x1p31 : 0x1p63;
  bool whole = frag_const(&x, &v) && dtype_is_int(d) && d != BOOL, fits = trunc(v) >= -limit && trunc(v) < limit;
  if (whole && !fits) {
    fault(st->lw, "E0214", e->args.at[0].loc, "%.12g is no number of type %s", v, dtype_name(d));
    return frag_bad();
  }
  if (d != BOOL || (x.kind == FRAG_TYPED && x.e->dtype == BOOL)) return frag_typed(frag_as(st, x, d));
  Expr *number = frag_expr(st, x);
  return frag_typed(ex_2(st->lw->a, EX_NE, number, ex_int(st->lw->a, number->dtype, 0)));
}

/* ---- calls ------------------------------------------------------------------------------------------------------------ */

enum { MAX_ARGS = 16, MAX_NESTING = 1500 }; /* nesting: of expressions through defs; bounds the stack */

static bool count_is(Stmt *st, const AstExpr *e, int want) {
  if (e->args.n == want && want <= MAX_ARGS) return true;
  fault(st->lw, "E0208", e->loc, "`%s` takes %d argument%s, not %d", e->name, want, want == 1 ? "" : "s", e->args.n);
  return false;
}

/* Lowers the arguments; all of them, so that each one's errors are seen. */
static bool arguments(Stmt *st, const AstExpr *e, Frag *out) {
  bool ok = true;
  for (int i = 0; i < e->args.n; i++) {
    const AstArg *x = &e->args.at[i];
    if (x->each || x->name.text || x->value->kind == AST_STRING) {
      fault(st->lw, "E0209", x->loc, "`%s` takes plain values here", e->name);
      ok = false;
      continue;
    }
    Frag f = lower_expr(st, x->value);
    if (i < MAX_ARGS) out[i] = f;
  }
  return ok;
}

static int uses_of(const AstExpr *e, const char *name) {
  if (!e) return 0;
  int n = e->kind == AST_NAME && !strcmp(e->name, name);
  for (int i = 0; i < e->args.n; i++) n += uses_of(e->args.at[i].value, name);
  return n + uses_of(e->left, name) + uses_of(e->right, name);
}

static Frag expand_def(Stmt *st, const AstExpr *e, Symbol *s, Frag *x) {
  for (int i = 0; i < e->args.n; i++) {
    if (x[i].kind == FRAG_BAD) return frag_bad();
    if (x[i].e && uses_of(s->item->value, s->item->names.at[i].text) > 1) x[i].e = once(st, x[i].e, s->item->names.at[i].text);
  }
  if (s->bad) return frag_bad();
  DefEnv env = {s->item, x, st->env, e->loc};
  const DefEnv *outer = st->env;
  st->env = &env;
  Frag f = lower_expr(st, s->item->value);
  st->env = outer;
  return f;
}

static Frag no_function(Stmt *st, const AstExpr *e) {
  Lower *lw = st->lw;
  if (is_reduction(e->name) || is_normaliser(e->name)) {
    Diag *g = fault(lw, "E0208", e->loc, "`%s` needs its indices", e->name);
    diag_help(lw->d, g, "write `%s[i](...)` with the indices that it runs over", e->name);
  } else {
    unknown_name(st->cx, e->head, "function", e->name, SYM_DEF);
  }
  return frag_bad();
}

static Frag lower_call(Stmt *st, const AstExpr *e) {
  Symbol *s = scope_function(st->cx->scope, e->name);
  Frag x[MAX_ARGS] = {{0}};
  if (s && s->kind == SYM_BLOCK) {
    Diag *g = fault(st->lw, "E0216", e->loc, "a call of a block is a whole right side");
    diag_help(st->lw->d, g, "give it a statement of its own: `y = %s(...)`", e->name);
    return frag_bad();
  }
  bool ok = arguments(st, e, x);
  DType d;
  const Builtin *b = builtin_find(e->name);
  if (s) return ok && count_is(st, e, s->item->names.n) ? expand_def(st, e, s, x) : frag_bad();
  if (dtype_by_name(e->name, &d)) return ok && count_is(st, e, 1) ? cast(st, e, d, x[0]) : frag_bad();
  if (!b) return no_function(st, e);
  return ok && count_is(st, e, b->nargs) ? builtin(st, e, b, x) : frag_bad();
}

static Frag lower_kind(Stmt *st, const AstExpr *e) {
  switch (e->kind) {
  case AST_INT: /* index arithmetic saturates at 2^61 */
    return e->ival >> 53 ? frag_like(FRAG_INT, ex_int(st->lw->a, I64, e->ival)) : frag_ix(ix_const(st->lw->a, e->ival));
  case AST_FLOAT: return constant(st, e->fval);
  case AST_NAME: return lower_name(st, e);
  case AST_READ: return lower_read(st, e);
  case AST_CALL: return lower_call(st, e);
  case AST_REDUCE: return lower_reduce(st, e);
  case AST_UNARY: return unary(st, e);
  case AST_BINARY: return binary(st, e);
  case AST_STRING:
  case AST_TUPLE: break;
  }
  fault(st->lw, "E0209", e->loc, "a number is wanted here");
  return frag_bad();
}

Frag lower_expr(Stmt *st, const AstExpr *e) {
  if (!spend(st->lw, e->loc)) return frag_bad();
  if (st->lw->nesting == MAX_NESTING) {
    fault(st->lw, "E0223", e->loc, "expressions nest too deep here, through defs");
    return frag_bad();
  }
  st->lw->nesting++;
  Frag f = lower_kind(st, e);
  st->lw->nesting--;
  return f;
}

/* ---- defs --------------------------------------------------------------------------------------------------------------- */

static void check_cycle(Ctx *cx, Symbol *def);

static void def_fault(Ctx *cx, Symbol *def, Loc loc, const char *what) {
  Diag *g = fault(cx->lw, "E0205", loc, "%s", what);
  diag_mark(cx->lw->d, g, "a def is made of its arguments, dims, literals and scalar functions");
  def->bad = true;
}

static void check_body_name(Ctx *cx, Symbol *def, const AstExpr *e) {
  for (int i = 0; i < def->item->names.n; i++)
    if (!strcmp(def->item->names.at[i].text, e->name)) return;
  if (e->is_dim || !strcmp(e->name, "inf") || !strcmp(e->name, "pi")) return;
  def_fault(cx, def, e->loc, arena_printf(cx->lw->a, "`%s` is no argument of `%s`", e->name, def->name));
}

static void check_body(Ctx *cx, Symbol *def, const AstExpr *e) {
  if (!e) return;
  if (e->kind == AST_READ) def_fault(cx, def, e->loc, "a def reads no tensors");
  if (e->kind == AST_REDUCE) def_fault(cx, def, e->loc, "a def holds no reductions");
  if (e->kind == AST_NAME) check_body_name(cx, def, e);
  DType d;
  if (e->kind == AST_CALL) {
    Symbol *s = scope_function(cx->scope, e->name);
    if (s && s->kind == SYM_DEF) check_cycle(cx, s);
    if (s && s->kind == SYM_BLOCK) def_fault(cx, def, e->loc, "a def calls no blocks");
    if (s && s->bad) def->bad = true;
    if (!s && !builtin_find(e->name) && !dtype_by_name(e->name, &d)) {
      unknown_name(cx, e->head, "function", e->name, SYM_DEF);
      def->bad = true;
    }
  }
  if (e->kind == AST_READ || e->kind == AST_REDUCE) return;
  for (int i = 0; i < e->args.n; i++) check_body(cx, def, e->args.at[i].value);
  check_body(cx, def, e->left);
  check_body(cx, def, e->right);
}

/* Defs may be used before their line, so a cycle is looked for along the calls. */
static void check_cycle(Ctx *cx, Symbol *def) {
  if (def->busy) {
    fault(cx->lw, "E0206", def->loc, "`%s` uses itself", def->name);
    def->bad = true;
  }
  if (def->busy || def->used) return;
  if (cx->lw->nesting == MAX_NESTING) {
    fault(cx->lw, "E0223", def->loc, "defs use each other too deep here");
    def->bad = true;
    return;
  }
  def->busy = def->used = true;
  cx->lw->nesting++;
  check_body(cx, def, def->item->value);
  cx->lw->nesting--;
  def->busy = false;
}

void check_def(Ctx *cx, Symbol *def) {
  const AstNames *names = &def->item->names;
  for (int i = 0; i < names->n; i++) {
    AstName x = names->at[i];
    if (name_reserved(x.text)) fault(cx->lw, "E0203", x.loc, "`%s` is the name of a built-in function", x.text);
    for (int k = 0; k < i; k++)
      if (!strcmp(names->at[k].text, x.text))
        diag_label(cx->lw->d, fault(cx->lw, "E0202", x.loc, "two arguments `%s`", x.text), names->at[k].loc, "the first one");
  }
  check_cycle(cx, def);
}
