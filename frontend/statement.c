/* statement.c: one statement -> the ops that make its result, which is bound to the name on its left side.

     y[b, t @ model] = ...      indices, pins; the op that the right side ends in becomes %y itself where it can
     x = y                      no op: x names the same value
     x = x + y                  whole tensors of equal shapes, over indices named after their dims
     y[e[n]: E, d] += x[n,d]    a scatter_add                                                                            */
#include "lower.h"

#include <ctype.h>

Stmt stmt_new(Ctx *cx, Loc loc, const char *base) {
  return (Stmt){.cx = cx, .lw = cx->lw, .loc = loc, .base = base, .first = cx->lw->m->values.n, .nwhole = -1};
}

/* ---- left sides ------------------------------------------------------------------------------------------------ */

static bool lhs_name(Stmt *st, const AstLhsIndex *x) {
  if (x->index->kind == AST_NAME && !x->index->is_dim) return true;
  Diag *g = fault(st->lw, "E0316", x->index->loc, "on the left side stand distinct names of indices");
  if (x->index->kind == AST_READ) diag_help(st->lw->d, g, "`+=` adds by value: `y[e[n]: E, d] += x[n,d]`");
  return false;
}

static bool rank_fits(Stmt *st, const AstLhs *lhs) {
  if (lhs->index.n <= MAX_RANK) return true;
  fault(st->lw, "E0305", lhs->loc, "a tensor has at most %d dims, this one has %d", MAX_RANK, lhs->index.n);
  return false;
}

bool lhs_indices(Stmt *st, const AstLhs *lhs) {
  bool ok = rank_fits(st, lhs);
  for (int i = 0; ok && i < lhs->index.n; i++) {
    const AstLhsIndex *x = &lhs->index.at[i];
    ok = lhs_name(st, x) && index_bind(st, (AstName){x->index->name, x->index->loc}, x->range) >= 0;
  }
  return ok;
}

void pin_value(Ctx *cx, ValueId v, const AstLhs *lhs) {
  Type *t = &cx->lw->m->values.at[v].type;
  for (int i = 0; i < lhs->index.n && i < t->rank; i++)
    if (lhs->index.at[i].axes.present) pin_dim(cx, &lhs->index.at[i].axes, &t->dim[i], t);
  if (cx->lw->m->values.at[v].def) ir_sync_space(cx->lw->m, cx->lw->m->values.at[v].def);
  written_lhs(cx, v, lhs);
}

static bool has_pins(const AstLhs *lhs) {
  for (int i = 0; i < lhs->index.n; i++)
    if (lhs->index.at[i].axes.present) return true;
  return false;
}

/* ---- results ------------------------------------------------------------------------------------------------------ */

static Exactness exactness(const Frag *f) { return f->kind == FRAG_TYPED ? TYPED : f->kind == FRAG_INT ? EXACT_INT : EXACT_REAL; }

/* Is e the whole of a value that this statement made, index by index? */
static bool is_own_value(const Stmt *st, const Expr *e, int n) {
  if (e->op != EX_READ || e->otherwise || e->operand < st->first || e->nix != n) return false;
  for (int i = 0; i < n; i++)
    if (ix_single(e->ix[i]) != i) return false;
  return true;
}

TensorRef finish(Stmt *st, Frag f, int n, const AstLhs *lhs, const char *name) {
  Lower *lw = st->lw;
  if (f.kind == FRAG_BAD || st->bad) return (TensorRef){.bad = true};
  Expr *e = frag_expr(st, f);
  ValueId v = e->operand;
  if (is_own_value(st, e, n))
    ir_rename(lw->m, v, name);
  else
    v = nest(st, e, ((IndexSet)1 << n) - 1, 0, RED_NONE, NULL);
  if (lhs) pin_value(st->cx, v, lhs);
  Extent dim[MAX_RANK];
  for (int i = 0; i < n && i < MAX_RANK; i++) dim[i] = st->idx.at[i].range;
  return st->bad ? (TensorRef){.bad = true} : tensor_of(v, e->dtype, exactness(&f), n, dim);
}

/* ---- whole tensors --------------------------------------------------------------------------------------------------- */

/* The first tensor with dims that stands there by its bare name. */
static const AstExpr *find_whole(Ctx *cx, const AstExpr *e) {
  if (!e || e->kind == AST_READ || e->kind == AST_REDUCE) return NULL;
  if (e->kind == AST_NAME) {
    Symbol *s = scope_find(cx->scope, e->name);
    return s && s->kind == SYM_TENSOR && !s->tensor.bad && s->tensor.rank ? e : NULL;
  }
  const AstExpr *found = find_whole(cx, e->left);
  if (!found) found = find_whole(cx, e->right);
  for (int i = 0; i < e->args.n && !found; i++) found = find_whole(cx, e->args.at[i].value);
  return found;
}

static bool mentions(const AstExpr *e, const char *name) {
  if (!e) return false;
  if (e->name && !strcmp(e->name, name)) return true;
  for (int i = 0; i < e->binds.n; i++)
    if (!strcmp(e->binds.at[i].name.text, name) || mentions(e->binds.at[i].range, name)) return true;
  for (int i = 0; i < e->index.n; i++)
    if (mentions(e->index.at[i], name)) return true;
  for (int i = 0; i < e->args.n; i++)
    if (mentions(e->args.at[i].value, name)) return true;
  return mentions(e->left, name) || mentions(e->right, name) || mentions(e->otherwise, name);
}

/* An index that nobody wrote, named after its dim, told apart from those in the n expressions. */
static void bind_made(Stmt *st, Extent x, const AstExpr *const *e, int n, Loc loc, const char *why) {
  Arena *a = st->lw->a;
  char *name = arena_printf(a, "%s", x.name ? x.name : "i");
  *name = (char)tolower((unsigned char)*name);
  bool taken = true;
  while (taken) {
    taken = index_find(st, name) >= 0 || name_reserved(name);
    for (int i = 0; i < n; i++) taken |= mentions(e[i], name);
    if (taken) name = arena_printf(a, "%s_", name);
  }
  IndexVar v = {.name = name, .loc = loc, .range = x, .known = true, .range_loc = loc, .range_why = why};
  vec_push(a, st->idx, v);
}

static void bind_whole(Stmt *st, const TensorRef *t, const AstExpr *e, Loc loc, const char *name) {
  const char *why = arena_printf(st->lw->a, "`%s` is %s", name, shape_text(st->lw->a, t));
  for (int i = 0; i < t->rank; i++) bind_made(st, t->dim[i], &e, 1, loc, why);
  st->nwhole = t->rank;
}

TensorRef whole_value(Ctx *cx, const AstExpr *e, const char *name, Loc loc) {
  Symbol *s = e->kind == AST_NAME && !e->is_dim ? scope_find(cx->scope, e->name) : NULL;
  if (s && s->kind == SYM_TENSOR) return s->tensor;
  Stmt st = stmt_new(cx, loc, name);
  const AstExpr *whole = find_whole(cx, e);
  if (whole) bind_whole(&st, &scope_find(cx->scope, whole->name)->tensor, e, whole->loc, whole->name);
  int n = st.idx.n;
  return finish(&st, lower_expr(&st, e), n, NULL, name);
}

TensorRef copy_as(Ctx *cx, TensorRef t, DType d, const Type *pins, const char *name, Loc loc) {
  Lower *lw = cx->lw;
  Stmt st = stmt_new(cx, loc, name);
  bind_whole(&st, &t, NULL, loc, name);
  IndexSet all = live_set(&st);
  Expr *e = ex_cast(lw->a, d, read_value(&st, t.v, all));
  ValueId v = nest(&st, e, all, 0, RED_NONE, NULL);
  Type *type = &lw->m->values.at[v].type;
  for (int i = 0; pins && i < t.rank; i++) type->dim[i].split = pins->dim[i].split;
  ir_sync_space(lw->m, lw->m->values.at[v].def);
  return tensor_of(v, d, TYPED, t.rank, t.dim);
}

/* ---- whole results under a left side ------------------------------------------------------------------------------------ */

/* `y[b, t @ model] = f(x)`: the indices only say which dims there are and which are pinned. */
static bool whole_fits(Stmt *st, const AstLhs *lhs, const TensorRef *t) {
  Lower *lw = st->lw;
  if (lhs->index.n != t->rank) {
    fault(lw, "E0306", lhs->loc, "the right side is %s, the left side has %d indices", shape_text(lw->a, t), lhs->index.n);
    return false;
  }
  if (!lhs_indices(st, lhs)) return false;
  for (int i = 0; i < t->rank; i++) {
    IndexVar *v = &st->idx.at[i];
    if (v->known && !extents_agree(v->range, t->dim[i])) {
      fault(lw, "E0311", v->range_loc, "the right side has dim %s here", extent_text(lw->a, t->dim[i]));
      return false;
    }
  }
  return true;
}

void assign_result(Ctx *cx, const AstLhs *lhs, TensorRef t, Loc loc) {
  Lower *lw = cx->lw;
  if (!t.bad && lhs->brackets) {
    Stmt st = stmt_new(cx, loc, lhs->name.text);
    if (!whole_fits(&st, lhs, &t))
      t = (TensorRef){.bad = true};
    else if (has_pins(lhs)) {
      Exactness exact = t.exact;
      t = copy_as(cx, t, t.dtype, NULL, lhs->name.text, loc);
      t.exact = exact;
      pin_value(cx, t.v, lhs);
    }
  }
  scope_assign(lw, cx->scope, lhs->name, t);
}

/* ---- y[e[n]: E, d] += x[n,d] ------------------------------------------------------------------------------------------------
 */

/* The reductions around a part of the expression. */
typedef struct Around {
  const AstExpr *e;
  const struct Around *outer;
} Around;

static bool bound_around(const Around *at, const char *name) {
  for (; at; at = at->outer)
    for (int i = 0; is_reduction(at->e->name) && i < at->e->binds.n; i++)
      if (!strcmp(at->e->binds.at[i].name.text, name)) return true;
  return false;
}

/* Indices that live only in the reads by value: they are summed over. A bare name in a value position is one only if no
   scalar has it. */
static void bind_free(Stmt *st, const AstExpr *e, bool in_index, const Around *around) {
  if (!e) return;
  if (e->kind == AST_NAME && !e->is_dim && index_find(st, e->name) < 0 && !bound_around(around, e->name)) {
    bool other = !in_index && (scope_find(st->cx->scope, e->name) || name_reserved(e->name));
    if (!other) index_bind(st, (AstName){e->name, e->loc}, NULL);
  }
  Around here = {e, around};
  const Around *inside = e->kind == AST_REDUCE ? &here : around;
  for (int i = 0; i < e->index.n; i++) bind_free(st, e->index.at[i], true, inside);
  for (int i = 0; i < e->args.n; i++) bind_free(st, e->args.at[i].value, false, inside);
  bind_free(st, e->left, in_index, inside);
  bind_free(st, e->right, in_index, inside);
  bind_free(st, e->otherwise, false, inside);
}

static bool scatter_left(Stmt *st, const AstItem *it, const AstLhs *lhs) {
  Lower *lw = st->lw;
  bool by_value = false, ok = rank_fits(st, lhs);
  const AstExpr *written[MAX_RANK + 1] = {it->value};
  for (int i = 0; ok && i < lhs->index.n; i++) written[i + 1] = lhs->index.at[i].index;
  for (int i = 0; ok && i < lhs->index.n; i++) {
    const AstLhsIndex *x = &lhs->index.at[i];
    bool plain = x->index->kind == AST_NAME;
    Extent rows;
    if (plain) {
      ok = lhs_name(st, x) && index_bind(st, (AstName){x->index->name, x->index->loc}, x->range) >= 0;
      continue;
    }
    by_value = true;
    if (!x->range) {
      Diag *g = fault(lw, "E0318", x->loc, "a dim that is added to by value needs its range");
      diag_help(lw->d, g, "`y[e[n]: E] += ...`");
      return false;
    }
    if (!extent_of(st->cx, x->range, &rows)) return false;
    bind_made(st, rows, written, lhs->index.n + 1, x->range->loc, "its range is given here");
  }
  if (ok && !by_value) {
    Diag *g = fault(lw, "E0318", it->head, "`+=` adds by value into zeros: some index of the left side is a read");
    diag_help(lw->d, g, lhs->brackets ? "a sum over an index is written `sum[i](...)`" : "write `%s = %s + ...`", lhs->name.text,
              lhs->name.text);
  }
  return ok && by_value;
}

static bool scatter_into(Stmt *st, const AstLhs *lhs, IExpr **into) {
  bool ok = true;
  for (int i = 0; i < lhs->index.n; i++) {
    const AstLhsIndex *x = &lhs->index.at[i];
    into[i] = x->index->kind == AST_NAME ? ix_index(st->lw->a, i) : index_expr(st, x->index);
    ok &= into[i] != NULL;
    if (!into[i] || x->index->kind == AST_NAME) continue;
    if (!ix_by_value(into[i])) {
      fault(st->lw, "E0318", x->loc, "`+=` adds where a tensor of whole numbers says; this index reads none");
      ok = false;
    } else if (into[i]->n == 1 && into[i]->c == 0 && into[i]->term[0].kind == ATOM_VALUE && into[i]->term[0].coef == 1) {
      limit_input(st->lw, into[i]->term[0].operand, st->idx.at[i].range.size, st->idx.at[i].range.name);
    }
  }
  return ok;
}

static TensorRef scatter(Stmt *st, const AstItem *it) {
  TensorRef bad = {.bad = true};
  const AstLhs *lhs = &it->lhs.at[0];
  if (!scatter_left(st, it, lhs)) return bad;
  int n = lhs->index.n;
  for (int i = 0; i < n; i++)
    if (lhs->index.at[i].index->kind != AST_NAME) bind_free(st, lhs->index.at[i].index, true, NULL);
  for (int i = 0; i < n; i++)
    if (lhs->index.at[i].index->kind != AST_NAME) index_infer(st, 0, lhs->index.at[i].index);
  index_infer(st, 0, it->value);
  index_require(st, 0, it->value);
  IExpr *into[MAX_RANK];
  int faults = st->lw->faults;
  bool ok = scatter_into(st, lhs, into);
  Frag f = lower_expr(st, it->value);
  index_report(st, 0, faults);
  if (!frag_number(st, it->value->loc, &f) || !ok || st->bad) return bad;
  if (f.kind != FRAG_TYPED) f = frag_typed(frag_as(st, f, F32)); /* the data decides where it goes */
  Expr *e = f.e;
  IndexSet left = ((IndexSet)1 << n) - 1;
  if (e->op != EX_LITERAL) e = plain_read(st, e, ex_set(st, e), "add");
  Op *op = scatter_op(st, left, live_set(st) & ~left, e, into);
  pin_value(st->cx, op->out[0], lhs);
  Extent dim[MAX_RANK];
  for (int i = 0; i < n; i++) dim[i] = st->idx.at[i].range;
  return st->bad ? bad : tensor_of(op->out[0], e->dtype, exactness(&f), n, dim);
}

/* ---- statements
 * ---------------------------------------------------------------------------------------------------------------- */

static TensorRef indexed(Ctx *cx, const AstItem *it, const AstLhs *lhs) {
  Stmt st = stmt_new(cx, it->loc, lhs->name.text);
  if (!lhs_indices(&st, lhs)) return (TensorRef){.bad = true};
  index_infer(&st, 0, it->value);
  index_require(&st, 0, it->value);
  int n = st.idx.n, faults = cx->lw->faults;
  Frag f = lower_expr(&st, it->value);
  index_report(&st, 0, faults);
  return finish(&st, f, n, lhs, lhs->name.text);
}

static bool is_block_call(Ctx *cx, const AstItem *it) {
  if (it->repeat || it->as.text) return true;
  Symbol *s = it->value->kind == AST_CALL ? scope_function(cx->scope, it->value->name) : NULL;
  return s && s->kind == SYM_BLOCK;
}

static void assign_bad(Ctx *cx, const AstItem *it) {
  for (int i = 0; i < it->lhs.n; i++) scope_assign(cx->lw, cx->scope, it->lhs.at[i].name, (TensorRef){.bad = true});
}

void lower_statement(Ctx *cx, const AstItem *it) {
  Lower *lw = cx->lw;
  const AstLhs *lhs = &it->lhs.at[0];
  if (!spend(lw, it->loc)) return assign_bad(cx, it);
  for (int i = 1; i < it->lhs.n; i++)
    for (int j = 0; j < i; j++) names_differ(lw, it->lhs.at[j].name, it->lhs.at[i].name);
  if (is_block_call(cx, it)) return lower_call_statement(cx, it);
  if (it->value->kind == AST_REDUCE && !strcmp(it->value->name, "topk") && !it->add) return lower_topk(cx, it);
  if (it->lhs.n > 1) {
    fault(lw, "E0218", it->lhs.at[1].loc, "only a call of a block and topk give several results");
    return assign_bad(cx, it);
  }
  TensorRef t;
  if (it->add) {
    Stmt st = stmt_new(cx, it->loc, lhs->name.text);
    t = scatter(&st, it);
  } else if (lhs->brackets) {
    t = indexed(cx, it, lhs);
  } else {
    t = whole_value(cx, it->value, lhs->name.text, it->loc);
  }
  scope_assign(lw, cx->scope, lhs->name, t);
}
