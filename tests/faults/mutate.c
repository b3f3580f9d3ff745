/* mutate.c: faults as a partitioner or a planner of memory might make them. Each edit changes one place of a correct plan;
   most break a law, the others only what is computed:

     %y: f32[B=8] = all_reduce %x          ->  gone: users of %y read %x
     nest sum[t] %a[b,t] * %b[t]           ->  nest sum[t] %b[b,t] * %a[t], nest max[t] .., %a[b, t + 1] ..
     buffers { %x: 0+64 %y: 64+64 }        ->  buffers { %x: 0+64 %y: 32+64 }                                   */
#include "faults.h"

/* ---- finding a place ---- */

typedef VEC(Site) Sites;

static void list_sites(const Edit *e, Region *r, SiteFn *fits, Sites *list) {
  for (int i = 0; i < r->ops.n; i++) {
    Site s = {r, r->ops.at[i]};
    if (s.op->body_region) list_sites(e, s.op->body_region, fits, list);
    if (fits(e, &s)) vec_push(e->a, *list, s);
  }
}

bool edit_site(Edit *e, SiteFn *fits, Site *out) {
  Sites list = {0};
  list_sites(e, e->m->programs.at[0].body, fits, &list);
  if (list.n) *out = list.at[rng_below(&e->rng, list.n)];
  return list.n > 0;
}

void edit_replace(Region *r, int from, ValueId v, ValueId by) {
  for (int i = from; i < r->ops.n; i++)
    for (int k = 0; k < r->ops.at[i]->nin; k++)
      if (r->ops.at[i]->in[k] == v) r->ops.at[i]->in[k] = by;
  for (int i = 0; i < r->yields.n; i++)
    if (r->yields.at[i] == v) r->yields.at[i] = by;
}

static Type *type_of(const Edit *e, ValueId v) { return &e->m->values.at[v].type; }

static bool same_type(const Edit *e, ValueId x, ValueId y) {
  const Type *s = type_of(e, x), *t = type_of(e, y);
  if (x == y || s->dtype != t->dtype || s->rank != t->rank) return false;
  for (int d = 0; d < s->rank; d++)
    if (s->dim[d].size != t->dim[d].size) return false;
  return sharding_equal(s, t);
}

static bool is_collective(const Edit *e, const Site *s) { return (void)e, op_is_collective(s->op->kind); }
static bool is_space(const Edit *e, const Site *s) { return (void)e, op_class(s->op->kind) == CLS_SPACE && s->op->body; }
static bool is_repeat(const Edit *e, const Site *s) { return (void)e, s->op->kind == OP_REPEAT; }
static bool reduces(const Edit *e, const Site *s) { return (void)e, s->op->kind == OP_NEST && s->op->reduce; }
static bool has_operand(const Edit *e, const Site *s) { return (void)e, s->op->nin > 0 && s->op->kind != OP_WAIT; }

/* ---- collectives ---- */

static bool drop_collective(Edit *e) {
  Site s;
  if (!edit_site(e, is_collective, &s)) return false;
  for (int i = 0; i < s.op->nin; i++) edit_replace(s.region, s.op->order, s.op->out[i], s.op->in[i]);
  int n = 0;
  for (int i = 0; i < s.region->ops.n; i++)
    if (s.region->ops.at[i] != s.op) s.region->ops.at[n++] = s.region->ops.at[i];
  s.region->ops.n = n;
  return true;
}

static bool relabel_part(Edit *e, AxisPart *p) {
  const Mesh *m = &e->m->mesh;
  if (m->naxes < 2) return false;
  *p = axis_whole(m, (p->axis + 1 + rng_below(&e->rng, m->naxes - 1)) % m->naxes);
  return true;
}

/* The operand of a collective, and what made it, over another axis; or only the result. */
static bool wrong_axis(Edit *e) {
  Site s;
  if (!edit_site(e, is_collective, &s)) return false;
  int k = rng_below(&e->rng, s.op->nin);
  Type *t = type_of(e, rng_percent(&e->rng, 50) ? s.op->in[k] : s.op->out[k]);
  if (t->pending.n) return relabel_part(e, &t->pending.part[0]);
  for (int d = 0; d < t->rank; d++)
    if (t->dim[d].split.n) return relabel_part(e, &t->dim[d].split.part[0]);
  return false;
}

static bool sums_away(const Edit *e, const Site *s) {
  return s->op->kind == OP_ALL_REDUCE && type_of(e, s->op->out[0])->dtype == F32;
}

/* As a sum that was complete, added over the group once more. */
static bool reduce_twice(Edit *e) {
  Site s;
  if (!edit_site(e, sums_away, &s)) return false;
  ValueId v = s.op->out[0];
  const Type *from = type_of(e, s.op->in[0]);
  Op *op = ir_op(e->m, OP_NEST, s.op->loc);
  ir_in(e->m, op, v);
  Type t = *type_of(e, v);
  IExpr *ix[MAX_RANK];
  for (int d = 0; d < t.rank; d++) {
    op->space.idx[d] = (Index){.name = arena_printf(e->m->arena, "i%d", d), .range = t.dim[d].size, .split = t.dim[d].split};
    ix[d] = ix_index(e->m->arena, d);
  }
  op->space.n = op->space.nout = t.rank;
  Expr *x = ex_read(e->m->arena, 0, F32, t.rank, ix, NULL);
  op->body = ex_2(e->m->arena, EX_MUL, x, ex_lit(e->m->arena, F32, (double)from->pending.part[0].size));
  ValueId twice = ir_out(e->m, op, "twice", t);
  edit_replace(s.region, s.op->order + 1, v, twice);
  ir_insert(e->m, s.region, s.op->order + 1, op);
  return from->pending.part[0].size > 1;
}

static bool wrong_reduction(Edit *e) {
  Site s;
  if (!edit_site(e, reduces, &s)) return false;
  static const Reduce KINDS[] = {RED_SUM, RED_MAX, RED_MIN, RED_PROD};
  Reduce was = s.op->reduce;
  s.op->reduce = KINDS[rng_below(&e->rng, 4)];
  Pending *p = &type_of(e, s.op->out[0])->pending;
  if (p->n) p->kind = s.op->reduce; /* consistently, so that the laws hold */
  return s.op->reduce != was;
}

static bool forgotten_pending(Edit *e) {
  Site s;
  if (!edit_site(e, is_space, &s)) return false;
  Pending *p = &type_of(e, s.op->out[0])->pending;
  if (p->n == 0) return false;
  p->n--;
  return true;
}

/* ---- operands ---- */

static bool swap_operands(Edit *e) {
  Site s;
  if (!edit_site(e, has_operand, &s) || s.op->nin < 2) return false;
  int i = rng_below(&e->rng, s.op->nin), j = rng_below(&e->rng, s.op->nin);
  if (!same_type(e, s.op->in[i], s.op->in[j])) return false;
  ValueId t = s.op->in[i];
  s.op->in[i] = s.op->in[j], s.op->in[j] = t;
  return true;
}

static bool swap_results(Edit *e) {
  Site s;
  if (!edit_site(e, is_collective, &s) || s.op->nout < 2) return false;
  int i = rng_below(&e->rng, s.op->nout), j = rng_below(&e->rng, s.op->nout);
  if (!same_type(e, s.op->out[i], s.op->out[j])) return false;
  ValueId t = s.op->out[i];
  s.op->out[i] = s.op->out[j], s.op->out[j] = t;
  return true;
}

/* Another value of the same type and region that was there before. */
static bool stale_value(Edit *e) {
  Site s;
  if (!edit_site(e, has_operand, &s)) return false;
  int k = rng_below(&e->rng, s.op->nin), from = rng_below(&e->rng, e->m->values.n);
  for (int i = 0; i < e->m->values.n; i++) {
    ValueId v = (from + i) % e->m->values.n;
    const Value *x = &e->m->values.at[v];
    bool before = x->region == s.region && (!x->def || x->def->order < s.op->order);
    if (!before || !same_type(e, v, s.op->in[k])) continue;
    s.op->in[k] = v;
    return true;
  }
  return false;
}

static bool swap_yields(Edit *e) {
  Site s;
  if (!edit_site(e, is_repeat, &s)) return false;
  Region *b = s.op->body_region;
  if (b->yields.n < 2) return false;
  int i = rng_below(&e->rng, b->yields.n), j = rng_below(&e->rng, b->yields.n);
  if (!same_type(e, b->yields.at[i], b->yields.at[j])) return false;
  ValueId t = b->yields.at[i];
  b->yields.at[i] = b->yields.at[j], b->yields.at[j] = t;
  return true;
}

static bool other_direction(Edit *e) {
  Site s;
  if (!edit_site(e, is_repeat, &s)) return false;
  s.op->reverse = !s.op->reverse;
  return s.op->trip > 1;
}

/* ---- bodies ---- */

typedef VEC(Expr *) Nodes;

static void list_nodes(Arena *a, Expr *x, Nodes *list) {
  vec_push(a, *list, x);
  for (int i = 0; i < 3; i++)
    if (x->arg[i]) list_nodes(a, x->arg[i], list);
  if (x->otherwise) list_nodes(a, x->otherwise, list);
}

/* A random node of a random body of which `fits` is true. */
static Expr *some_node(Edit *e, bool (*fits)(const Expr *x), Site *s) {
  Nodes all = {0}, list = {0};
  if (!edit_site(e, is_space, s)) return NULL;
  list_nodes(e->a, s->op->body, &all);
  for (int i = 0; i < op_reads(s->op); i++) list_nodes(e->a, s->op->read[i], &all);
  for (int i = 0; i < all.n; i++)
    if (fits(all.at[i])) vec_push(e->a, list, all.at[i]);
  return list.n ? list.at[rng_below(&e->rng, list.n)] : NULL;
}

static bool has_index(const Expr *x) { return (x->op == EX_READ || x->op == EX_INDEX) && x->nix > 0; }
static bool has_two(const Expr *x) { return x->op == EX_READ && x->nix > 1; }
static bool is_guard(const Expr *x) {
  return (x->op == EX_READ && x->otherwise) || x->op == EX_WHERE || (x->op >= EX_LT && x->op <= EX_GT);
}
static bool is_real_literal(const Expr *x) { return x->op == EX_LITERAL && !dtype_is_int(x->dtype); }
static bool is_call(const Expr *x) {
  return x->op == EX_ADD || x->op == EX_SUB || x->op == EX_MUL || x->op == EX_DIV || x->op == EX_MAX ||
         (x->op >= EX_EXP && x->op <= EX_COS);
}

static bool off_by_one(Edit *e) {
  Site s;
  Expr *x = some_node(e, has_index, &s);
  if (!x) return false;
  x->ix[rng_below(&e->rng, x->nix)]->c += rng_percent(&e->rng, 50) ? 1 : -1;
  return true;
}

static bool swap_indices(Edit *e) {
  Site s;
  Expr *x = some_node(e, has_two, &s);
  if (!x) return false;
  int i = rng_below(&e->rng, x->nix), j = rng_below(&e->rng, x->nix);
  IExpr *t = x->ix[i];
  x->ix[i] = x->ix[j], x->ix[j] = t;
  return i != j;
}

static bool wrong_guard(Edit *e) {
  Site s;
  Expr *x = some_node(e, is_guard, &s);
  if (!x) return false;
  if (x->op == EX_WHERE) {
    Expr *t = x->arg[1];
    x->arg[1] = x->arg[2], x->arg[2] = t;
  } else if (x->op != EX_READ) {
    x->op = (ExprOp)(EX_LT + (x->op - EX_LT + 1) % (EX_GT - EX_LT + 1));
  } else if (rng_percent(&e->rng, 50)) {
    x->otherwise = NULL;
  } else {
    x->otherwise = dtype_is_int(x->dtype) ? ex_int(e->m->arena, x->dtype, 1) : ex_lit(e->m->arena, x->dtype, 1);
  }
  return true;
}

static bool wrong_literal(Edit *e) {
  Site s;
  Expr *x = some_node(e, is_real_literal, &s);
  if (!x || x->lit == 0) return false;
  x->lit *= 2;
  return true;
}

static bool wrong_function(Edit *e) {
  Site s;
  Expr *x = some_node(e, is_call, &s);
  if (!x) return false;
  if (x->arg[1])
    x->op = x->op == EX_ADD ? EX_SUB : x->op == EX_SUB ? EX_ADD : x->op == EX_MUL ? EX_ADD : EX_MUL;
  else
    x->op = x->op == EX_TANH ? EX_SIN : EX_TANH;
  return true;
}

/* ---- layouts ---- */

static bool wrong_granule(Edit *e) {
  Site s;
  if (!edit_site(e, has_operand, &s)) return false;
  Type *t = type_of(e, s.op->in[rng_below(&e->rng, s.op->nin)]);
  for (int d = 0; d < t->rank; d++)
    if (t->dim[d].split.n) return t->dim[d].split.granule = max_i64(1, t->dim[d].split.granule) + 1, true;
  return false;
}

static bool wrong_window(Edit *e) {
  Site s;
  if (!edit_site(e, is_collective, &s)) return false;
  Type *t = type_of(e, s.op->out[rng_below(&e->rng, s.op->nout)]);
  for (int d = 0; d < t->rank; d++) {
    Window *w = &t->dim[d].split.window;
    if (!w->of) continue;
    if (rng_percent(&e->rng, 50))
      w->lo++;
    else
      w->hi--;
    return true;
  }
  return false;
}

static bool forgotten_split(Edit *e) {
  Site s;
  if (!edit_site(e, is_space, &s) || s.op->space.n == 0) return false;
  Split *x = &s.op->space.idx[rng_below(&e->rng, s.op->space.n)].split;
  bool had = x->n > 0;
  *x = (Split){0};
  return had;
}

/* ---- effects and leaves ---- */

static bool is_update(const Edit *e, const Site *s) { return (void)e, s->op->kind == OP_UPDATE; }

static bool swap_updates(Edit *e) {
  Site s, t;
  if (!edit_site(e, is_update, &s) || !edit_site(e, is_update, &t) || !same_type(e, s.op->in[1], t.op->in[1])) return false;
  ValueId v = s.op->in[1];
  s.op->in[1] = t.op->in[1], t.op->in[1] = v;
  return true;
}

static bool is_random(const Edit *e, const Site *s) { return (void)e, s->op->kind == OP_RANDOM; }

static bool other_site(Edit *e) {
  Site s;
  if (!edit_site(e, is_random, &s)) return false;
  s.op->name = arena_printf(e->m->arena, "%s'", s.op->name);
  return true;
}

/* ---- buffers ---- */

static ValueId some_buffer(Edit *e) {
  int from = rng_below(&e->rng, e->m->values.n);
  for (int i = 0; i < e->m->values.n; i++) {
    ValueId v = (from + i) % e->m->values.n;
    const Op *def = e->m->values.at[v].def;
    bool computed = def && (op_class(def->kind) == CLS_SPACE || op_class(def->kind) == CLS_LAYOUT);
    if (computed && e->m->buffers[v].offset >= 0) return v;
  }
  return -1;
}

static bool overlapping_buffers(Edit *e) {
  ValueId v = some_buffer(e), u = some_buffer(e);
  if (v < 0 || e->m->buffers[u].offset == e->m->buffers[v].offset) return false;
  e->m->buffers[v].offset = e->m->buffers[u].offset;
  return true;
}

static bool moved_buffer(Edit *e) {
  ValueId v = some_buffer(e);
  if (v < 0) return false;
  e->m->buffers[v].offset += rng_percent(&e->rng, 50) ? -64 : 64;
  return true;
}

static bool independent_not(const Edit *e, const Site *s) {
  (void)e;
  return s->op->kind == OP_WAIT && s->op->order + 1 < s->region->ops.n;
}

/* A wait that comes one op too late. */
static bool late_wait(Edit *e) {
  Site s;
  if (!edit_site(e, independent_not, &s)) return false;
  Op **at = &s.region->ops.at[s.op->order];
  at[0] = at[1], at[1] = s.op;
  return true;
}

const EditRow faults[] = {
    {"drop a collective", drop_collective, STAGE_LOCAL},
    {"wrong axis", wrong_axis, STAGE_LOCAL},
    {"wrong reduction", wrong_reduction, STAGE_LOCAL},
    {"reduce twice", reduce_twice, STAGE_LOCAL},
    {"sum taken as complete", forgotten_pending, STAGE_LOCAL},
    {"swapped operands", swap_operands, STAGE_LOCAL},
    {"swapped results", swap_results, STAGE_LOCAL},
    {"stale value", stale_value, STAGE_LOCAL},
    {"swapped yields", swap_yields, STAGE_LOCAL},
    {"loop backwards", other_direction, STAGE_LOCAL},
    {"off by one", off_by_one, STAGE_LOCAL},
    {"swapped indices", swap_indices, STAGE_LOCAL},
    {"wrong guard", wrong_guard, STAGE_LOCAL},
    {"wrong literal", wrong_literal, STAGE_LOCAL},
    {"wrong function", wrong_function, STAGE_LOCAL},
    {"wrong granule", wrong_granule, STAGE_LOCAL},
    {"wrong window", wrong_window, STAGE_LOCAL},
    {"split forgotten", forgotten_split, STAGE_LOCAL},
    {"swapped updates", swap_updates, STAGE_LOCAL},
    {"other random numbers", other_site, STAGE_LOCAL},
    {"overlapping buffers", overlapping_buffers, STAGE_SCHEDULED},
    {"moved buffer", moved_buffer, STAGE_SCHEDULED},
    {"late wait", late_wait, STAGE_SCHEDULED},
};
const int nfaults = sizeof faults / sizeof *faults;
