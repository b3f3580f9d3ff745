/* reduce.c: sum mean max min prod argmax and topk.

     mean[t](x[b,t])              sum[t] %x[b,t], then / 128.0 where it is used: a pending sum passes a division
     max[u](f(x[t,u]))            %m.map[t,u] = f(x), then max[u] %m.map: the body of all but sums is one read
     v[b,j: 2], i[b,j] = topk[e](p[b,e])                                                                             */
#include "lower.h"

bool bind_reduced(Stmt *st, const AstExpr *e, const AstExpr *body, IndexSet *red) {
  int from = st->idx.n;
  bool ok = true;
  for (int i = 0; i < e->binds.n; i++) ok &= index_bind(st, e->binds.at[i].name, e->binds.at[i].range) >= 0;
  index_infer(st, from, body);
  index_require(st, from, body);
  for (int i = from; i < st->idx.n; i++) {
    ok &= !st->idx.at[i].bad;
    *red |= (IndexSet)1 << i;
  }
  return ok;
}

/* Binds the indices of a reduction and lowers its body with them. The body's fragment, FRAG_BAD after an error. */
static Frag bind_and_lower(Stmt *st, const AstExpr *e, const AstExpr *body, IndexSet *red) {
  int whole = st->nwhole, from = st->idx.n, faults = st->lw->faults;
  bool ok = bind_reduced(st, e, body, red);
  st->nwhole = -1;
  Frag f = lower_expr(st, body);
  st->nwhole = whole;
  index_report(st, from, faults);
  return ok ? f : frag_bad();
}

static const AstExpr *only_argument(Stmt *st, const AstExpr *e) {
  if (e->args.n == 1 && !e->args.at[0].each && !e->args.at[0].name.text) return e->args.at[0].value;
  fault(st->lw, "E0208", e->loc, "`%s[...]` takes one argument", e->name);
  return NULL;
}

static Frag extremum(Stmt *st, const AstExpr *e, Frag f, IndexSet red, Reduce reduce) {
  Expr *x = frag_expr(st, f);
  IndexSet s = ex_set(st, x);
  if (reduce == RED_PROD && (red & ~s)) x = plain_read(st, x, s | red, "map");
  if (!is_read(x)) x = plain_read(st, x, s, "map");
  s = ex_set(st, x) & ~red;
  red &= ex_set(st, x);
  ValueId v = nest(st, x, s, red, red ? reduce : RED_NONE, e->name);
  return frag_like(f.kind, read_value(st, v, s));
}

static Frag argmax(Stmt *st, Frag f, IndexSet red) {
  Expr *x = frag_expr(st, f);
  IndexSet s = ex_set(st, x) | red;
  x = plain_read(st, x, s, "map");
  Op *op = space_op(st, OP_ARGMAX, s & ~red, red, x, I32, "argmax");
  return frag_typed(read_value(st, op->out[0], s & ~red));
}

static Frag sum(Stmt *st, Frag f, IndexSet red) {
  Expr *x = f.kind == FRAG_INT ? frag_as(st, f, I64) : frag_expr(st, f);
  return frag_like(f.kind, sum_of(st, x, red, "sum"));
}

static Frag mean(Stmt *st, Frag f, IndexSet red) {
  f = frag_real(st, f);
  Expr *s = sum_of(st, frag_expr(st, f), red, "sum");
  return frag_like(f.kind, ex_2(st->lw->a, EX_DIV, s, ex_int(st->lw->a, s->dtype, range_product(st, red))));
}

static Frag reduce(Stmt *st, const AstExpr *e, Frag f, IndexSet red) {
  if (!strcmp(e->name, "sum")) return sum(st, f, red);
  if (!strcmp(e->name, "mean")) return mean(st, f, red);
  if (!strcmp(e->name, "argmax")) return argmax(st, f, red);
  Reduce r = !strcmp(e->name, "max") ? RED_MAX : !strcmp(e->name, "min") ? RED_MIN : RED_PROD;
  return extremum(st, e, f, red, r);
}

static bool known_reduction(Stmt *st, const AstExpr *e) {
  if (e->micro) {
    not_yet(st->lw, e->loc, "`micro`");
    return false;
  }
  if (!strcmp(e->name, "topk")) {
    Diag *g = fault(st->lw, "E0215", e->loc, "topk is a whole right side");
    diag_help(st->lw->d, g, "write `v[b, j: J], i[b, j] = topk[e](p[b, e])`");
    return false;
  }
  if (is_reduction(e->name)) return true;
  if (scope_function(st->cx->scope, e->name) || builtin_find(e->name))
    fault(st->lw, "E0208", e->loc, "`%s` is a function of values and takes no indices", e->name);
  else
    unknown_name(st->cx, e->head, "reduction", e->name, SYM_DEF);
  return false;
}

Frag lower_reduce(Stmt *st, const AstExpr *e) {
  if (st->env) return frag_bad(); /* a def holds none: reported where it is declared */
  if (is_normaliser(e->name)) return lower_normaliser(st, e);
  if (!known_reduction(st, e)) return frag_bad();
  const AstExpr *body = only_argument(st, e);
  if (!body) return frag_bad();
  int from = st->idx.n;
  IndexSet red = 0;
  Frag f = bind_and_lower(st, e, body, &red);
  if (frag_number(st, body->loc, &f))
    f = reduce(st, e, f, red);
  else
    f = frag_bad();
  index_drop(st, from);
  return f;
}

/* ---- topk ---------------------------------------------------------------------------------------------------------- */

static bool topk_form(Ctx *cx, const AstItem *it) {
  const AstExpr *e = it->value;
  bool ok = it->lhs.n <= 2 && e->binds.n == 1 && it->lhs.at[0].index.n >= 1;
  for (int k = 1; ok && k < it->lhs.n; k++) {
    ok = it->lhs.at[k].index.n == it->lhs.at[0].index.n;
    for (int i = 0; ok && i < it->lhs.at[k].index.n; i++) {
      const AstExpr *x = it->lhs.at[0].index.at[i].index, *y = it->lhs.at[k].index.at[i].index;
      ok = x->kind == AST_NAME && y->kind == AST_NAME && !strcmp(x->name, y->name) && !it->lhs.at[k].index.at[i].range;
    }
  }
  if (ok) return true;
  Diag *g = fault(cx->lw, "E0215", it->loc, "topk runs over one index and gives values and positions over the same indices");
  diag_help(cx->lw->d, g, "write `v[b, j: J], i[b, j] = topk[e](p[b, e])`");
  return false;
}

static bool topk_range(Stmt *st, int j, int e) {
  const IndexVar *k = &st->idx.at[j], *n = &st->idx.at[e];
  if (k->bad || n->bad || k->range.size <= n->range.size || st->lw->dry) return true;
  Diag *g = fault(st->lw, "E0214", k->loc, "topk is asked for %lld of %lld elements", (long long)k->range.size,
                  (long long)n->range.size);
  diag_label(st->lw->d, g, n->loc, "`%s` has %lld", n->name, (long long)n->range.size);
  return false;
}

static bool topk_lower(Stmt *st, const AstItem *it, TensorRef out[2]) {
  const AstExpr *body = only_argument(st, it->value);
  if (!lhs_indices(st, &it->lhs.at[0]) || !body) return false;
  index_infer(st, 0, body);
  int n = st->idx.n, j = n - 1;
  IndexSet red = 0;
  index_require(st, 0, body);
  int faults = st->lw->faults;
  Frag f = bind_and_lower(st, it->value, body, &red);
  index_report(st, 0, faults);
  if (!frag_number(st, body->loc, &f) || st->bad || !topk_range(st, j, n)) return false;
  IndexSet all = ((IndexSet)1 << n) - 1, rows = all & ~((IndexSet)1 << j);
  Expr *x = frag_expr(st, f);
  if (ex_set(st, x) >> j & 1) {
    fault(st->lw, "E0215", body->loc, "topk's argument may not use `%s`, which counts the results", st->idx.at[j].name);
    return false;
  }
  x = plain_read(st, x, rows | red, "map");
  Op *op = space_op(st, OP_TOPK, all, red, x, x->dtype, NULL);
  Type t = st->lw->m->values.at[op->out[0]].type;
  t.dtype = I32;
  ir_out(st->lw->m, op, it->lhs.n > 1 ? it->lhs.at[1].name.text : arena_printf(st->lw->a, "%s.at", st->base), t);
  st->lw->m->values.at[op->out[1]].region = st->cx->fr->region;
  Extent dim[MAX_RANK];
  for (int i = 0; i < n; i++) dim[i] = st->idx.at[i].range;
  Exactness exact = f.kind == FRAG_TYPED ? TYPED : f.kind == FRAG_INT ? EXACT_INT : EXACT_REAL;
  out[0] = tensor_of(op->out[0], x->dtype, exact, n, dim);
  out[1] = tensor_of(op->out[1], I32, TYPED, n, dim);
  return !st->bad;
}

void lower_topk(Ctx *cx, const AstItem *it) {
  TensorRef out[2] = {{.bad = true}, {.bad = true}};
  Stmt st = stmt_new(cx, it->loc, it->lhs.at[0].name.text);
  bool ok = topk_form(cx, it) && topk_lower(&st, it, out);
  for (int i = 0; i < it->lhs.n; i++) {
    TensorRef bad = {.bad = true};
    if (ok) pin_value(cx, out[i].v, &it->lhs.at[i]);
    scope_assign(cx->lw, cx->scope, it->lhs.at[i].name, ok && i < 2 ? out[i] : bad);
  }
}
