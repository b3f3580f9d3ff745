/* update.c: the pass `update`. From the gradients that `gradient` left in taps to the next parameters: the global
   norm, clipping, the learning rate of this step and the optimizer, all as ordinary ops of phase update. What the
   user may change per run is a `setting`; learning rate and bias corrections are f64 scalars of the step, since in
   f32 1 - 0.999 is off by 1e-5.

     sgd     g += weight_decay p;  v <- momentum v + g;  p <- p - lr v      (nesterov: p <- p - lr (g + momentum v))
     adamw   m <- beta1 m + (1 - beta1) g;  v <- beta2 v + (1 - beta2) g g;
             p <- p - lr (m / (1 - beta1^(s+1)) / (sqrt(v / (1 - beta2^(s+1))) + eps) + weight_decay p)

   with s the step before its update. Loshchilov & Hutter, Decoupled Weight Decay Regularization, 2019. */
#include "grad.h"

#include <math.h>

typedef struct {
  Module *m;
  Arena *a;
  Region *to;
  Leaves leaves; /* new ones */
  ValueId step;
  ValueId scale;                                                                  /* of gradients: clipping; -1: none */
  ValueId lr, momentum, decay, beta1, beta2, rest1, rest2, unbias1, unbias2, eps; /* f32 scalars; -1: not needed */
} Update;

/* ---- leaves ------------------------------------------------------------------------------------------------------ */

static ValueId new_leaf(Update *u, Op *op, Type t) {
  ValueId v = ir_out(u->m, op, op->name, t);
  vec_push(u->a, u->leaves, op);
  return v;
}

static ValueId setting(Update *u, const char *name, double otherwise) {
  Op *op = ir_op(u->m, OP_SETTING, u->m->train.loc);
  op->phase = PHASE_UPDATE;
  op->name = name;
  op->init_a = otherwise;
  return new_leaf(u, op, (Type){.dtype = F64});
}

static ValueId state(Update *u, const char *name, const Op *param) {
  Op *op = ir_op(u->m, OP_STATE, param ? param->loc : u->m->train.loc);
  op->phase = PHASE_UPDATE;
  op->name = name;
  op->nstack = param ? param->nstack : 0;
  return new_leaf(u, op, param ? u->m->values.at[param->out[0]].type : (Type){.dtype = I64});
}

/* ---- bodies ------------------------------------------------------------------------------------------------------ */

/* A map under construction: reads are at the result's own indices, or of scalars. */
typedef struct {
  Update *u;
  Type type;
  ValueList in;
} Map;

static Expr *rd(Map *b, ValueId v) {
  int at = 0;
  while (at < b->in.n && b->in.at[at] != v) at++;
  if (at == b->in.n) vec_push(b->u->a, b->in, v);
  const Type *t = &b->u->m->values.at[v].type;
  IExpr *ix[MAX_RANK];
  for (int d = 0; d < t->rank; d++) ix[d] = ix_index(b->u->a, d);
  return ex_read(b->u->a, at, t->dtype, t->rank, ix, NULL);
}

static Expr *num(Map *b, double v) { return ex_lit(b->u->a, b->type.dtype, v); }
static Expr *add(Map *b, Expr *x, Expr *y) { return ex_2(b->u->a, EX_ADD, x, y); }
static Expr *sub(Map *b, Expr *x, Expr *y) { return ex_2(b->u->a, EX_SUB, x, y); }
static Expr *mul(Map *b, Expr *x, Expr *y) { return ex_2(b->u->a, EX_MUL, x, y); }
static Expr *quot(Map *b, Expr *x, Expr *y) { return ex_2(b->u->a, EX_DIV, x, y); }
static Expr *as(Map *b, DType d, Expr *x) { return ex_cast(b->u->a, d, x); }

static Op *new_op(Update *u, OpKind kind, Loc loc) {
  Op *op = ir_op(u->m, kind, loc);
  op->phase = PHASE_UPDATE;
  return op;
}

/* Indices over t's dims; `nout` of them are the result's. */
static Space space_of(const Update *u, const Type *t, int nout) {
  Space sp = {.nout = nout};
  for (int d = 0; d < t->rank; d++) {
    const char *name = grad_index_name(u->a, &sp, t->dim[d].name);
    sp.idx[sp.n++] = (Index){.name = name, .dim = t->dim[d].name, .range = t->dim[d].size};
  }
  return sp;
}

static ValueId emit(Map *b, const char *name, Expr *body, Loc loc) {
  Op *op = new_op(b->u, OP_NEST, loc);
  op->space = space_of(b->u, &b->type, b->type.rank);
  op->body = ex_simplify(b->u->a, body);
  for (int i = 0; i < b->in.n; i++) ir_in(b->u->m, op, b->in.at[i]);
  ValueId v = ir_out(b->u->m, op, name, b->type);
  ir_append(b->u->m, b->u->to, op);
  return v;
}

static Map scalar(Update *u, DType d) { return (Map){.u = u, .type = {.dtype = d}}; }

static void tap(Update *u, TapKind kind, ValueId v) {
  Op *op = new_op(u, OP_TAP, u->m->train.loc);
  op->tap = kind;
  ir_in(u->m, op, v);
  ir_append(u->m, u->to, op);
}

static void next(Update *u, ValueId leaf, ValueId value, Loc loc) {
  Op *op = new_op(u, OP_UPDATE, loc);
  ir_in(u->m, op, leaf);
  ir_in(u->m, op, value);
  ir_append(u->m, u->to, op);
}

/* ---- norm and clipping ----------------------------------------------------------------------------------------------- */

/* Squares of f32 leave its range above 1e19, so they are summed in f64. */
static ValueId sum_of_squares(Update *u, ValueId g, const char *param) {
  const Type t = u->m->values.at[g].type;
  Map b = {.u = u, .type = t};
  Expr *x = as(&b, F64, rd(&b, g));
  Op *op = new_op(u, OP_NEST, u->m->train.loc);
  op->space = space_of(u, &t, 0);
  op->reduce = t.rank ? RED_SUM : RED_NONE;
  op->body = mul(&b, x, x);
  ir_in(u->m, op, g);
  ValueId v = ir_out(u->m, op, arena_printf(u->a, "norm2.%s", param), (Type){.dtype = F64});
  ir_append(u->m, u->to, op);
  return v;
}

static ValueId global_norm(Update *u, const ValueList *gradients, Op *const *params) {
  ValueList squares = {0};
  for (int i = 0; i < gradients->n; i++) vec_push(u->a, squares, sum_of_squares(u, gradients->at[i], params[i]->name));
  Map b = scalar(u, F64);
  Expr *sum = num(&b, 0);
  for (int i = 0; i < squares.n; i++) sum = i ? add(&b, sum, rd(&b, squares.at[i])) : rd(&b, squares.at[i]);
  ValueId v = emit(&b, "grad_norm", ex_1(u->a, EX_SQRT, sum), u->m->train.loc);
  tap(u, TAP_GRAD_NORM, v);
  return v;
}

/* min(1, c / norm), without dividing by a norm of 0. */
static ValueId clip_scale(Update *u, ValueId norm) {
  const Train *t = &u->m->train;
  if (!t->has_clip) return -1;
  ValueId c = setting(u, "clip", t->clip);
  Map b = scalar(u, F64);
  Expr *n = rd(&b, norm), *clip = rd(&b, c);
  return emit(&b, "clip_scale", ex_where(u->a, ex_2(u->a, EX_GT, n, clip), quot(&b, clip, n), num(&b, 1)), t->loc);
}

/* ---- scalars of the step ------------------------------------------------------------------------------------------------ */

/* What multiplies the optimizer's lr: (s+1)/warmup up to warmup, then a fall to floor that ends at step `steps`. */
static Expr *schedule(Map *b, const Train *t, ValueId warmup, ValueId steps, ValueId floor) {
  Arena *a = b->u->a;
  Expr *s = as(b, F64, rd(b, b->u->step)), *w = rd(b, warmup), *f = rd(b, floor), *one = num(b, 1);
  Expr *length = sub(b, rd(b, steps), w), *past = sub(b, s, w);
  Expr *u = ex_where(a, ex_2(a, EX_LT, past, length), quot(b, past, length), one);
  Expr *fall = sub(b, one, u);
  if (t->schedule == LR_COSINE) fall = quot(b, add(b, one, ex_1(a, EX_COS, mul(b, num(b, M_PI), u))), num(b, 2));
  Expr *after = add(b, f, mul(b, sub(b, one, f), fall));
  return ex_where(a, ex_2(a, EX_LT, s, w), quot(b, add(b, s, one), w), after);
}

static ValueId learning_rate(Update *u) {
  const Train *t = &u->m->train;
  ValueId base = setting(u, "optimizer.lr", t->lr), warmup = -1, steps = -1, floor = -1;
  if (t->schedule != LR_CONSTANT) {
    warmup = setting(u, "lr.warmup", t->warmup);
    steps = setting(u, "lr.steps", t->schedule_steps);
    floor = setting(u, "lr.floor", t->floor);
  }
  Map b = scalar(u, F64);
  Expr *lr = rd(&b, base);
  if (t->schedule != LR_CONSTANT) lr = mul(&b, lr, schedule(&b, t, warmup, steps, floor));
  ValueId v = emit(&b, "lr", lr, t->loc);
  tap(u, TAP_LR, v);
  return v;
}

/* An f64 scalar, rounded once for the maps over parameters. */
static ValueId rounded(Update *u, ValueId v, const char *name) {
  Map b = scalar(u, F32);
  return emit(&b, name, as(&b, F32, rd(&b, v)), u->m->train.loc);
}

static ValueId one_minus(Update *u, ValueId v, const char *name) {
  Map b = scalar(u, F64);
  Map r = scalar(u, F32);
  Expr *x = as(&r, F32, sub(&b, num(&b, 1), rd(&r, v)));
  return emit(&r, name, x, u->m->train.loc);
}

/* 1 / (1 - beta^(s+1)) */
static ValueId unbias(Update *u, ValueId beta, const char *name) {
  Map b = scalar(u, F64), r = scalar(u, F32);
  Expr *one = num(&b, 1), *s = as(&r, F64, rd(&r, u->step)), *power = ex_2(u->a, EX_POW, rd(&r, beta), add(&b, s, one));
  return emit(&r, name, as(&r, F32, quot(&b, one, sub(&b, one, power))), u->m->train.loc);
}

static void adamw_scalars(Update *u) {
  const Train *t = &u->m->train;
  ValueId beta1 = setting(u, "optimizer.beta1", t->beta1), beta2 = setting(u, "optimizer.beta2", t->beta2);
  u->eps = rounded(u, setting(u, "optimizer.eps", t->eps), "eps");
  u->beta1 = rounded(u, beta1, "beta1");
  u->beta2 = rounded(u, beta2, "beta2");
  u->rest1 = one_minus(u, beta1, "rest1");
  u->rest2 = one_minus(u, beta2, "rest2");
  u->unbias1 = unbias(u, beta1, "unbias1");
  u->unbias2 = unbias(u, beta2, "unbias2");
}

static void scalars(Update *u) {
  const Train *t = &u->m->train;
  u->lr = rounded(u, learning_rate(u), "lr.f32");
  u->decay = rounded(u, setting(u, "optimizer.weight_decay", t->weight_decay), "weight_decay");
  if (t->optimizer == OPT_ADAMW)
    adamw_scalars(u);
  else if (t->momentum != 0)
    u->momentum = rounded(u, setting(u, "optimizer.momentum", t->momentum), "momentum");
}

/* ---- parameters ---------------------------------------------------------------------------------------------------------- */

static bool decays(const Train *t, const Op *param, const Type *type) {
  if (t->decay == DECAY_ALL) return true;
  if (t->decay == DECAY_MATRICES) return type->rank - param->nstack >= 2;
  for (int i = 0; i < t->decay_names.n; i++)
    if (!strcmp(t->decay_names.at[i], param->name)) return true;
  return false;
}

/* A scalar of the step, in the parameter's type. */
static Expr *factor(Map *b, ValueId scalar) { return as(b, b->type.dtype, rd(b, scalar)); }

static Expr *clipped(Map *b, ValueId g) {
  Expr *x = rd(b, g);
  return b->u->scale < 0 ? x : mul(b, x, factor(b, b->u->scale));
}

static Map over(Update *u, ValueId like) { return (Map){.u = u, .type = u->m->values.at[like].type}; }

static ValueId adamw(Update *u, const Op *param, ValueId g) {
  ValueId p = param->out[0];
  ValueId m = state(u, arena_printf(u->a, "adamw.m.%s", param->name), param);
  ValueId v = state(u, arena_printf(u->a, "adamw.v.%s", param->name), param);
  Map a = over(u, p), b = over(u, p), c = over(u, p);
  Expr *mean = add(&a, mul(&a, factor(&a, u->beta1), rd(&a, m)), mul(&a, factor(&a, u->rest1), clipped(&a, g)));
  ValueId m1 = emit(&a, arena_printf(u->a, "adamw.m.%s.next", param->name), mean, param->loc);
  Expr *x = clipped(&b, g),
       *square = add(&b, mul(&b, factor(&b, u->beta2), rd(&b, v)), mul(&b, factor(&b, u->rest2), mul(&b, x, x)));
  ValueId v1 = emit(&b, arena_printf(u->a, "adamw.v.%s.next", param->name), square, param->loc);
  Expr *up = mul(&c, rd(&c, m1), factor(&c, u->unbias1));
  Expr *down = add(&c, ex_1(u->a, EX_SQRT, mul(&c, rd(&c, v1), factor(&c, u->unbias2))), factor(&c, u->eps));
  Expr *change = quot(&c, up, down);
  if (decays(&u->m->train, param, &c.type)) change = add(&c, change, mul(&c, factor(&c, u->decay), rd(&c, p)));
  Expr *p1 = sub(&c, rd(&c, p), mul(&c, factor(&c, u->lr), change));
  next(u, m, m1, param->loc);
  next(u, v, v1, param->loc);
  return emit(&c, arena_printf(u->a, "%s.next", param->name), p1, param->loc);
}

static Expr *decayed(Map *b, const Op *param, ValueId g) {
  Expr *x = clipped(b, g);
  if (!decays(&b->u->m->train, param, &b->type)) return x;
  return add(b, x, mul(b, factor(b, b->u->decay), rd(b, param->out[0])));
}

static ValueId sgd(Update *u, const Op *param, ValueId g) {
  ValueId p = param->out[0];
  Map c = over(u, p);
  Expr *change;
  if (u->momentum < 0) {
    change = decayed(&c, param, g);
  } else {
    ValueId v = state(u, arena_printf(u->a, "sgd.v.%s", param->name), param);
    Map b = over(u, p);
    Expr *speed = add(&b, mul(&b, factor(&b, u->momentum), rd(&b, v)), decayed(&b, param, g));
    ValueId v1 = emit(&b, arena_printf(u->a, "sgd.v.%s.next", param->name), speed, param->loc);
    next(u, v, v1, param->loc);
    change = rd(&c, v1);
    if (u->m->train.nesterov) change = add(&c, decayed(&c, param, g), mul(&c, factor(&c, u->momentum), change));
  }
  Expr *p1 = sub(&c, rd(&c, p), mul(&c, factor(&c, u->lr), change));
  return emit(&c, arena_printf(u->a, "%s.next", param->name), p1, param->loc);
}

static void advance(Update *u) {
  Map b = scalar(u, I64);
  ValueId v = emit(&b, "step.next", add(&b, rd(&b, u->step), ex_int(u->a, I64, 1)), u->m->train.loc);
  next(u, u->step, v, u->m->train.loc);
}

/* ---- the pass ---------------------------------------------------------------------------------------------------------------
 */

/* New leaves go behind those at the start of the program. */
static void put_leaves(Update *u) {
  Leaves ops = {0};
  int i = 0;
  for (; i < u->to->ops.n && op_class(u->to->ops.at[i]->kind) == CLS_LEAF; i++) vec_push(u->a, ops, u->to->ops.at[i]);
  for (int k = 0; k < u->leaves.n; k++) vec_push(u->a, ops, u->leaves.at[k]);
  for (; i < u->to->ops.n; i++) vec_push(u->a, ops, u->to->ops.at[i]);
  u->to->ops.at = ops.at;
  u->to->ops.n = ops.n;
  u->to->ops.cap = ops.cap;
}

void ir_update(Module *m, PassContext *cx) {
  (void)cx;
  if (!m->train.present) return;
  Region *r = m->programs.at[0].body;
  Update u = {.m = m, .a = m->arena, .to = r, .scale = -1, .momentum = -1};
  Leaves old = ir_leaves(m, m->arena);
  const Op *step = ir_find_leaf(&old, OP_STATE, "step");
  u.step = step ? step->out[0] : state(&u, "step", NULL);
  ValueList gradients = {0};
  VEC(Op *) params = {0};
  for (int i = 0; i < r->ops.n; i++) {
    Op *op = r->ops.at[i];
    if (op->kind != OP_TAP || op->tap != TAP_GRAD) continue;
    vec_push(m->arena, gradients, op->in[0]);
    vec_push(m->arena, params, ir_find_leaf(&old, OP_PARAM, op->name));
  }
  ValueId norm = global_norm(&u, &gradients, params.at);
  u.scale = clip_scale(&u, norm);
  if (u.scale >= 0) u.scale = rounded(&u, u.scale, "clip_scale.f32");
  scalars(&u);
  for (int i = 0; i < params.n; i++) {
    ValueId p1 =
        m->train.optimizer == OPT_ADAMW ? adamw(&u, params.at[i], gradients.at[i]) : sgd(&u, params.at[i], gradients.at[i]);
    next(&u, params.at[i]->out[0], p1, params.at[i]->loc);
  }
  advance(&u);
  put_leaves(&u);
  ir_number(m);
}
