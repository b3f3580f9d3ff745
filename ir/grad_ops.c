/* grad_ops.c: the rule of each op kind. Most kinds only say what a point of their index space is worth (the
   cotangent of their body there) and leave the rest to grad_flow:

     nest sum     %y[i]     = sum[r] body          the gradient of y[i], whatever r is
     nest max     %y[i]     = max[r] body          the same where r is the first that attains it, else 0
     scan[t]      %y[t]     = scan[t] body         a scan of the gradient of y from the other end
     topk[e]      %v[j], .. = topk[e] body         the gradient of v[j] where e is the j-th index chosen, else 0
     scatter_add  %y[e[n]] += body                 the gradient of y, gathered at e[n] */
#include "grad.h"

/* The forward op as a flow; its operands come first in `in`. */
static Flow flow_of(const Grad *g, const Op *op) {
  Flow f = {.op = op, .space = op->space, .body = op->body};
  for (int i = 0; i < op->nin; i++) vec_push(g->m->arena, f.in, op->in[i]);
  return f;
}

/* Indices of several dims as one, row-major: over the reduced indices of a space. */
static IExpr *row_major(Arena *a, const Space *sp) {
  IExpr *flat = ix_const(a, 0);
  for (int i = sp->nout; i < sp->n; i++) flat = ix_add(a, ix_scale(a, flat, sp->idx[i].range), ix_index(a, i));
  return flat;
}

static Expr *only_where(Arena *a, Expr *cond, Expr *x) { return ex_where(a, cond, x, ex_lit(a, x->dtype, 0)); }

/* ---- nest -------------------------------------------------------------------------------------------------- */

/* A backward op over the space and operands of the flow's op. */
static ValueId over_same_space(Grad *g, const Flow *f, OpKind kind, Reduce reduce, Expr *body, const char *name, Type t) {
  Op *op = grad_op(g, kind, f->op->loc, TAG_INPUT_GRAD);
  op->space = f->space;
  op->reduce = reduce;
  op->body = body;
  return grad_emit(g, op, name, t, &f->in);
}

/* max and min: to the first of equals. */
static Expr *first_extreme(Grad *g, Flow *f, Expr *cot) {
  Arena *a = g->m->arena;
  const Value *y = &g->m->values.at[f->op->out[0]];
  Type t = grad_open(&y->type);
  t.dtype = I32;
  Expr *body = f->op->reduce == RED_MIN ? ex_1(a, EX_NEG, f->body) : f->body;
  ValueId at = over_same_space(g, f, OP_ARGMAX, RED_NONE, body, arena_printf(a, "%s.at", y->name), t);
  Expr *chosen = grad_read_out(g, &f->in, at);
  return only_where(a, ex_2(a, EX_EQ, chosen, ex_index(a, row_major(a, &f->space))), cot);
}

/* prod: the product of the others. With p the product of the factors that are not 0 and z the number of those
   that are, it is p / x for a factor x that is not 0 (if z = 0), and p for the only one that is. */
static Expr *product_of_others(Grad *g, Flow *f, Expr *cot) {
  Arena *a = g->m->arena;
  const Value *y = &g->m->values.at[f->op->out[0]];
  const char *name = y->name;
  Type t = grad_open(&y->type);
  Expr *zero = ex_lit(a, t.dtype, 0), *one = ex_lit(a, t.dtype, 1), *is_zero = ex_2(a, EX_EQ, f->body, zero);
  ValueId z = over_same_space(g, f, OP_NEST, RED_SUM, ex_where(a, is_zero, one, zero), arena_printf(a, "%s.zeros", name), t);
  ValueId p = over_same_space(g, f, OP_NEST, RED_PROD, ex_where(a, is_zero, one, f->body), arena_printf(a, "%s.others", name), t);
  Expr *zeros = grad_read_out(g, &f->in, z), *others = grad_read_out(g, &f->in, p);
  Expr *all = ex_2(a, EX_MUL, cot, others);
  return ex_where(a, is_zero, only_where(a, ex_2(a, EX_EQ, zeros, one), all),
                  only_where(a, ex_2(a, EX_EQ, zeros, zero), ex_2(a, EX_DIV, all, f->body)));
}

/* Also gather: a nest whose body is one read. */
static void rule_nest(Grad *g, Op *op) {
  Flow f = flow_of(g, op);
  Expr *cot = grad_read_through(g, &f.in, grad_total(g, op->out[0]));
  if (op->reduce == RED_NONE) f.value = grad_read_out(g, &f.in, op->out[0]);
  if (op->reduce == RED_MAX || op->reduce == RED_MIN) cot = first_extreme(g, &f, cot);
  if (op->reduce == RED_PROD) cot = product_of_others(g, &f, cot);
  grad_flow(g, &f, cot);
}

/* ---- by value, selection, scans ------------------------------------------------------------------------------ */

/* The body runs over the indices that are not rows; there it is worth the gradient of the row it was added to. */
static void rule_scatter(Grad *g, Op *op) {
  Arena *a = g->m->arena;
  Flow f = flow_of(g, op);
  ValueId dy = grad_total(g, op->out[0]);
  Type t = {.dtype = op->body->dtype};
  Space sp = {0};
  IExpr *to[MAX_INDEX] = {0}, *at[MAX_RANK];
  for (int i = 0; i < op->space.n; i++) {
    if (i < op->space.nout && ix_by_value(op->into[i])) continue;
    to[i] = ix_index(a, sp.n);
    if (t.rank < MAX_RANK) t.dim[t.rank++] = (Dim){.name = op->space.idx[i].dim, .size = op->space.idx[i].range};
    sp.idx[sp.n++] = op->space.idx[i];
  }
  sp.nout = sp.n;
  if (sp.n > MAX_RANK) {
    diag_error(g->cx->diags, "E0592", op->loc, "the gradient of this `+=` needs a tensor of more than %d dims", MAX_RANK);
    return;
  }
  for (int d = 0; d < op->space.nout; d++) at[d] = ix_substitute(a, op->into[d], to, NULL);
  vec_push(a, f.in, dy);
  Op *rows = grad_op(g, OP_GATHER, op->loc, TAG_INPUT_GRAD);
  rows->space = sp;
  rows->body = ex_read(a, f.in.n - 1, t.dtype, op->space.nout, at, NULL);
  ValueId v = grad_emit(g, rows, arena_printf(a, "%s.rows", grad_name(g, op->out[0])), t, &f.in);
  f.space = sp;
  f.body = ex_substitute(a, op->body, to, NULL);
  grad_flow(g, &f, grad_read_out(g, &f.in, v));
}

/* v[.., j] comes from e = i[.., j]: the body, over (.., e), is worth sum[j] where(i[.., j] == e, d.v[.., j], 0). */
static void rule_topk(Grad *g, Op *op) {
  Arena *a = g->m->arena;
  ValueId dv = grad_total(g, op->out[0]);
  if (dv < 0) return; /* only the integer result was used */
  int j = op->space.nout - 1, n = 0;
  Space sp = {.n = op->space.n};
  IExpr *to[MAX_INDEX];
  Type t = {.dtype = op->body->dtype};
  for (int i = 0; i < op->space.n; i++) { /* (.., e, j): what is chosen from becomes the result, j is summed */
    if (i == j) continue;
    sp.idx[n] = op->space.idx[i];
    t.dim[n] = (Dim){.name = sp.idx[n].dim, .size = sp.idx[n].range};
    to[i] = ix_index(a, n++);
  }
  t.rank = sp.nout = n;
  sp.idx[n] = op->space.idx[j];
  to[j] = ix_index(a, n);
  Flow f = flow_of(g, op);
  int place[MAX_RANK];
  for (int i = 0; i < op->space.nout; i++) place[i] = ix_single(to[i]);
  Expr *chosen = grad_read(g, &f.in, op->out[1], place, op->space.nout);
  Expr *worth = grad_read(g, &f.in, dv, place, op->space.nout);
  IExpr *e = ix_substitute(a, row_major(a, &op->space), to, NULL);
  Op *sum = grad_op(g, OP_NEST, op->loc, TAG_INPUT_GRAD);
  sum->space = sp;
  sum->reduce = RED_SUM;
  sum->body = only_where(a, ex_2(a, EX_EQ, chosen, ex_cast(a, chosen->dtype, ex_index(a, e))), worth);
  ValueId v = grad_emit(g, sum, arena_printf(a, "%s.all", grad_name(g, op->out[0])), t, &f.in);
  f.space = sp;
  f.space.n = f.space.nout;
  f.body = ex_substitute(a, op->body, to, NULL);
  grad_flow(g, &f, grad_read_out(g, &f.in, v));
}

static void rule_scan(Grad *g, Op *op) {
  Flow f = flow_of(g, op);
  ValueId dy = grad_total(g, op->out[0]);
  Op *back = grad_op(g, OP_SCAN, op->loc, TAG_INPUT_GRAD);
  back->space = op->space;
  back->along = op->along;
  back->reverse = !op->reverse;
  back->body = grad_read_out(g, &f.in, dy);
  const char *name = arena_printf(g->m->arena, "%s.scan", grad_name(g, op->out[0]));
  ValueId v = grad_emit(g, back, name, grad_open(&g->m->values.at[dy].type), &f.in);
  grad_flow(g, &f, grad_read_out(g, &f.in, v));
}

/* ---- attention ------------------------------------------------------------------------------------------------- */

typedef struct {
  Grad *g;
  const Op *op;
  Op *back;
} Wanted;

/* Operands that the score reads and that want a gradient, each once. */
static void want(void *cx, const Expr *read) {
  Wanted *w = cx;
  if (!grad_is_active(w->g, w->op->in[read->operand])) return;
  for (int i = 0; i < w->back->nwrt; i++)
    if (w->back->wrt[i] == read->operand) return;
  w->back->wrt[w->back->nwrt++] = read->operand;
}

static void attention_result(Grad *g, Op *back, ValueId x) {
  ir_out(g->m, back, grad_name(g, x), grad_open(&g->m->values.at[x].type));
}

static void rule_attention(Grad *g, Op *op) {
  Arena *a = g->m->arena;
  ValueId da = grad_total(g, op->out[0]);
  assert(g->cot[op->out[1]].n == 0 && "lse is read by the gradient only");
  Op *back = grad_op(g, OP_ATTENTION_GRAD, op->loc, TAG_INPUT_GRAD);
  back->space = op->space;
  back->nkey = op->nkey;
  back->body = op->body;
  back->wrt = NEW_ARRAY(a, int, op->nin + 1);
  ValueList in = {0};
  for (int i = 0; i < op->nin; i++) vec_push(a, in, op->in[i]);
  for (int i = 0; i < 3; i++) back->read[i] = op->read[i];
  int rows[MAX_RANK], nrows = attention_rows(op, rows);
  back->read[3] = grad_read_out(g, &in, op->out[0]);
  back->read[4] = grad_read(g, &in, op->out[1], rows, nrows);
  back->read[5] = grad_read_out(g, &in, da);
  ex_reads(op->body, want, &(Wanted){g, op, back});
  for (int i = 0; i < in.n; i++) ir_in(g->m, back, in.at[i]);
  for (int i = 0; i < 3; i++) attention_result(g, back, op->in[op->read[i]->operand]);
  for (int i = 0; i < back->nwrt; i++) attention_result(g, back, op->in[back->wrt[i]]);
  ir_append(g->m, g->to, back);
  for (int i = 0; i < back->nout; i++) {
    ValueId x = op->in[i < 3 ? op->read[i]->operand : back->wrt[i - 3]];
    if (grad_is_active(g, x)) grad_add(g, x, back->out[i]);
  }
}

/* ---- the table ---------------------------------------------------------------------------------------------------- */

static void rule_none(Grad *g, Op *op) { (void)g, (void)op; }

#define rule_repeat grad_repeat /* changes the forward op: it saves what its reverse needs */
#define rule_leaf rule_none
#define rule_argmax rule_none
#define rule_random rule_none
#define rule_attention_grad rule_none
#define rule_layout rule_none
#define rule_tap rule_none
#define rule_wait rule_none
#define rule_update rule_none

void grad_apply(Grad *g, Op *op) {
  static void (*const rule[])(Grad *, Op *) = {
#define OP(K, text, cls, fn) [OP_##K] = rule_##fn,
#include "ir/ops.def"
  };
  rule[op->kind](g, op);
}
