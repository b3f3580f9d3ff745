/* grad.c: the pass `gradient`. Reverse mode over the op table, before any layout is chosen: for every op from
   last to first, the rule of its kind turns the gradient of its results into contributions to the gradients of
   its operands; the gradient of a value is the sum of its contributions. The ops that are added carry phase
   backward, the line of the forward op they belong to, and whether they make the gradient of a parameter
   (nothing further back waits for those) or of anything else.

     %z[b,c]: f32[B=8, C=4] = nest sum[j: J=3] %h[b,j] * %w[j,c]
     ...
     %d.h[b,j]: f32[B=8, J=3] = nest sum[c: C=4] %d.z[b,c] * %w[j,c] [grad input] [backward]
     %d.w[j,c]: f32[J=3, C=4] = nest sum[b: B=8] %d.z[b,c] * %h[b,j] [grad weight] [backward]
     tap grad "w" %d.w [backward] */
#include "grad.h"

#include <ctype.h>

bool grad_is_active(const Grad *g, ValueId v) { return v < g->nforward && g->active[v]; }

Type grad_open(const Type *t) {
  Type open = {.dtype = t->dtype, .rank = t->rank};
  for (int d = 0; d < t->rank; d++) open.dim[d] = (Dim){.name = t->dim[d].name, .size = t->dim[d].size};
  return open;
}

const char *grad_name(const Grad *g, ValueId v) { return arena_printf(g->m->arena, "d.%s", g->m->values.at[v].name); }

Op *grad_op(const Grad *g, OpKind kind, Loc loc, GradTag tag) {
  Op *op = ir_op(g->m, kind, loc);
  op->phase = PHASE_BACKWARD;
  op->tag = tag;
  return op;
}

/* ---- making ops ---------------------------------------------------------------------------------------- */

const char *grad_index_name(Arena *a, const Space *sp, const char *dim) {
  char *base = arena_strdup(a, dim && isalpha((unsigned char)*dim) ? dim : "j");
  for (char *c = base; *c; c++) *c = (char)tolower((unsigned char)*c);
  const char *name = base;
  for (int n = 1, i = 0; i < sp->n; i++)
    if (!strcmp(sp->idx[i].name, name)) name = arena_printf(a, "%s%d", base, n++), i = -1;
  return name;
}

static Space grad_space(const Grad *g, ValueId v) {
  const Value *x = &g->m->values.at[v];
  const Op *def = x->def;
  Space sp = {0};
  if (def && op_class(def->kind) == CLS_SPACE && def->kind != OP_ATTENTION_GRAD && x->result == 0) {
    sp = def->space;
    sp.n = sp.nout;
    return sp;
  }
  for (int d = 0; d < x->type.rank; d++) {
    const char *name = grad_index_name(g->m->arena, &sp, x->type.dim[d].name);
    sp.idx[sp.n++] = (Index){.name = name, .dim = x->type.dim[d].name, .range = x->type.dim[d].size};
  }
  sp.nout = sp.n;
  return sp;
}

typedef struct {
  int *map;
} Used;

static void use_index(Used *u, const IExpr *x) {
  for (int i = 0; i < x->n; i++) {
    const Term *t = &x->term[i];
    if (t->kind == ATOM_VALUE) u->map[t->operand] = 1;
    if (t->sub) use_index(u, t->sub);
    for (int k = 0; k < t->nat; k++) use_index(u, t->at[k]);
  }
}

static void use_body(Used *u, const Expr *x) {
  if (x->op == EX_READ) u->map[x->operand] = 1;
  for (int i = 0; i < x->nix; i++) use_index(u, x->ix[i]);
  for (int i = 0; i < 3; i++)
    if (x->arg[i]) use_body(u, x->arg[i]);
  if (x->otherwise) use_body(u, x->otherwise);
}

ValueId grad_emit(Grad *g, Op *op, const char *name, Type t, const ValueList *in) {
  Arena *a = g->m->arena;
  Used u = {NEW_ARRAY(a, int, in->n + 1)};
  use_body(&u, op->body);
  for (int d = 0; op->into && d < t.rank; d++) use_index(&u, op->into[d]);
  for (int i = 0; i < in->n; i++) {
    if (!u.map[i]) continue;
    int at = 0;
    while (at < op->nin && op->in[at] != in->at[i]) at++;
    if (at == op->nin) ir_in(g->m, op, in->at[i]);
    u.map[i] = at;
  }
  op->body = ex_substitute(a, op->body, NULL, u.map);
  for (int d = 0; op->into && d < t.rank; d++) op->into[d] = ix_substitute(a, op->into[d], NULL, u.map);
  ValueId v = ir_out(g->m, op, name, t);
  ir_append(g->m, g->to, op);
  return v;
}

Expr *grad_read(Grad *g, ValueList *in, ValueId v, const int *index, int n) {
  Arena *a = g->m->arena;
  IExpr *ix[MAX_RANK];
  for (int i = 0; i < n; i++) ix[i] = ix_index(a, index[i]);
  vec_push(a, *in, v);
  return ex_read(a, in->n - 1, g->m->values.at[v].type.dtype, n, ix, NULL);
}

Expr *grad_read_out(Grad *g, ValueList *in, ValueId v) {
  static const int index[MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
  return grad_read(g, in, v, index, g->m->values.at[v].type.rank);
}

Expr *grad_read_through(Grad *g, ValueList *in, ValueId d) {
  const Op *def = g->m->values.at[d].def;
  bool copies = def && def->kind == OP_NEST && def->reduce == RED_NONE && def->phase == PHASE_BACKWARD && def->nin == 1;
  if (!copies || def->body->op != EX_READ || def->body->otherwise) return grad_read_out(g, in, d);
  int map[] = {in->n};
  vec_push(g->m->arena, *in, def->in[0]);
  return ex_substitute(g->m->arena, def->body, NULL, map);
}

ValueId grad_fill(Grad *g, ValueId like, double x, Loc loc) {
  Op *op = grad_op(g, OP_NEST, loc, g->weight[like] ? TAG_WEIGHT_GRAD : TAG_INPUT_GRAD);
  Type t = grad_open(&g->m->values.at[like].type);
  op->space = grad_space(g, like);
  op->body = ex_lit(g->m->arena, t.dtype, x);
  return grad_emit(g, op, grad_name(g, like), t, &(ValueList){0});
}

/* ---- contributions ------------------------------------------------------------------------------------- */

void grad_add(Grad *g, ValueId v, ValueId contribution) { vec_push(g->m->arena, g->cot[v], contribution); }

ValueId grad_total(Grad *g, ValueId v) {
  ValueList *c = &g->cot[v];
  if (c->n == 0) return -1;
  if (c->n == 1) return c->at[0];
  Op *op = grad_op(g, OP_NEST, g->m->values.at[v].loc, g->weight[v] ? TAG_WEIGHT_GRAD : TAG_INPUT_GRAD);
  ValueList in = {0};
  op->space = grad_space(g, v);
  for (int i = 0; i < c->n; i++) {
    Expr *x = grad_read_through(g, &in, c->at[i]);
    op->body = op->body ? ex_2(g->m->arena, EX_ADD, op->body, x) : x;
  }
  ValueId sum = grad_emit(g, op, grad_name(g, v), grad_open(&g->m->values.at[v].type), &in);
  *c = (ValueList){0};
  grad_add(g, v, sum);
  return sum;
}

static bool has_gradient(const Grad *g, const Op *op) {
  for (int i = 0; i < op->nout; i++)
    if (op->out[i] < g->nforward && g->cot[op->out[i]].n) return true;
  return false;
}

void grad_walk(Grad *g, const Region *r) {
  for (int i = r->ops.n - 1; i >= 0; i--) /* rules append to g->to, which may be r */
    if (has_gradient(g, r->ops.at[i])) grad_apply(g, r->ops.at[i]);
}

/* ---- what depends on a parameter ------------------------------------------------------------------------- */

static bool mark(Grad *g, ValueId v, bool active) {
  if (!active || g->active[v] || dtype_is_int(g->m->values.at[v].type.dtype)) return false;
  return g->active[v] = true;
}

static bool activate(Grad *g, const Region *r);

static bool activate_repeat(Grad *g, const Op *op) {
  const Region *b = op->body_region;
  bool changed = false;
  for (int i = 0; i < op->nin; i++) {
    changed |= mark(g, b->args.at[1 + i], g->active[op->in[i]]);
    if (i >= op->ncarried) g->weight[b->args.at[1 + i]] = g->weight[op->in[i]];
  }
  changed |= activate(g, b);
  for (int i = 0; i < op->nout; i++) {
    bool active = g->active[b->yields.at[i]];
    changed |= mark(g, op->out[i], active || (i < op->ncarried && g->active[op->in[i]]));
    if (i < op->ncarried) changed |= mark(g, b->args.at[1 + i], active);
  }
  return changed;
}

/* Returns whether anything became active; values carried by a loop need several rounds. */
static bool activate(Grad *g, const Region *r) {
  bool changed = false;
  for (int i = 0; i < r->ops.n; i++) {
    const Op *op = r->ops.at[i];
    bool active = op->kind == OP_PARAM && !op->frozen;
    for (int k = 0; k < op->nin; k++) active = active || g->active[op->in[k]];
    if (op->kind == OP_PARAM) g->weight[op->out[0]] = true;
    if (op->kind == OP_REPEAT)
      while (activate_repeat(g, op)) changed = true;
    else
      for (int k = 0; k < op->nout; k++) changed |= mark(g, op->out[k], active && op->kind != OP_RANDOM);
  }
  return changed;
}

/* ---- the pass --------------------------------------------------------------------------------------------- */

static bool can_pin(const Grad *g, ValueId v, ValueId param) {
  const Op *def = g->m->values.at[v].def;
  bool own = def->tag == TAG_WEIGHT_GRAD || (def->kind == OP_REPEAT && def->phase == PHASE_BACKWARD);
  const Type *t = &g->m->values.at[v].type, *want = &g->m->values.at[param].type;
  for (int d = 0; d < t->rank; d++) own = own && t->dim[d].size == want->dim[d].size && !t->dim[d].split.fixed;
  return own;
}

/* A parameter's gradient is laid out as the parameter. A value that is also the gradient of something else is
   copied first. */
static ValueId pinned(Grad *g, ValueId d, ValueId param) {
  if (!can_pin(g, d, param)) {
    Op *op = grad_op(g, OP_NEST, g->m->values.at[param].loc, TAG_WEIGHT_GRAD);
    ValueList in = {0};
    op->space = grad_space(g, param);
    op->body = grad_read_out(g, &in, d);
    d = grad_emit(g, op, grad_name(g, param), grad_open(&g->m->values.at[param].type), &in);
  }
  Type *t = &g->m->values.at[d].type;
  for (int k = 0; k < t->rank; k++) t->dim[k] = g->m->values.at[param].type.dim[k];
  return d;
}

static void param_gradient(Grad *g, const Op *param) {
  ValueId d = grad_total(g, param->out[0]);
  if (d < 0) {
    diag_warning(g->cx->diags, "W0501", param->loc, "the loss does not depend on parameter `%s`; its gradient is 0", param->name);
    d = grad_fill(g, param->out[0], 0, param->loc);
  }
  Op *tap = grad_op(g, OP_TAP, param->loc, TAG_NONE);
  tap->tap = TAP_GRAD;
  tap->name = param->name;
  ir_in(g->m, tap, pinned(g, d, param->out[0]));
  ir_append(g->m, g->to, tap);
}

void ir_gradient(Module *m, PassContext *cx) {
  if (!m->train.present) return;
  assert(m->stage == STAGE_ANNOTATED && m->programs.n == 1 && "gradients come before layouts and stages");
  ir_number(m);
  Region *r = m->programs.at[0].body;
  Grad g = {.m = m, .cx = cx, .to = r, .nforward = m->values.n};
  g.active = NEW_ARRAY(m->arena, bool, m->values.n);
  g.weight = NEW_ARRAY(m->arena, bool, m->values.n);
  g.cot = NEW_ARRAY(m->arena, ValueList, m->values.n);
  int nforward = r->ops.n;
  activate(&g, r);
  if (g.active[m->train.loss]) {
    grad_add(&g, m->train.loss, grad_fill(&g, m->train.loss, 1, m->train.loc));
    grad_walk(&g, r);
  }
  for (int i = 0; i < nforward; i++)
    if (r->ops.at[i]->kind == OP_PARAM && !r->ops.at[i]->frozen) param_gradient(&g, r->ops.at[i]);
  ir_number(m);
  ir_dead_code(m); /* gradients that were passed by */
}
