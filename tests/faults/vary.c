/* vary.c: changes that keep what a plan computes, though no pass would make them: sums in another order, exchanges there
   and back, an all-reduce in pieces, a reduction that comes later. Softmax over ranks, merged as pairs (max, sum), is a
   program of its own: source and plan as text, of random sizes. */
#include "faults.h"

static Type *type_of(const Edit *e, ValueId v) { return &e->m->values.at[v].type; }

/* ---- order ---- */

static bool is_map(const Edit *e, const Site *s) { return (void)e, s->op->kind == OP_NEST; }

static bool turn(Expr *x, Rng *r) {
  bool any = false;
  for (int i = 0; i < 3; i++)
    if (x->arg[i]) any |= turn(x->arg[i], r);
  if ((x->op != EX_ADD && x->op != EX_MUL) || rng_percent(r, 30)) return any;
  Expr *t = x->arg[0];
  x->arg[0] = x->arg[1], x->arg[1] = t;
  return true;
}

static bool other_order_of_terms(Edit *e) {
  Site s;
  return edit_site(e, is_map, &s) && turn(s.op->body, &e->rng);
}

static bool other_order_of_operands(Edit *e) {
  Site s;
  if (!edit_site(e, is_map, &s) || s.op->nin < 2) return false;
  int map[64], n = s.op->nin;
  if (n > 64) return false;
  for (int i = 0; i < n; i++) map[i] = n - 1 - i;
  s.op->body = ex_substitute(e->m->arena, s.op->body, NULL, map);
  for (int i = 0; i < n / 2; i++) {
    ValueId t = s.op->in[i];
    s.op->in[i] = s.op->in[n - 1 - i], s.op->in[n - 1 - i] = t;
  }
  return true;
}

static bool uses(const Op *later, const Op *op) {
  for (int i = 0; i < later->nin; i++)
    for (int k = 0; k < op->nout; k++)
      if (later->in[i] == op->out[k]) return true;
  return false;
}

static bool before_another(const Edit *e, const Site *s) {
  (void)e;
  int at = s->op->order;
  return at + 1 < s->region->ops.n && !uses(s->region->ops.at[at + 1], s->op);
}

static bool other_order_of_ops(Edit *e) {
  bool any = false;
  for (int n = 0; n < 20; n++) {
    Site s;
    if (!edit_site(e, before_another, &s)) return any;
    Op **at = &s.region->ops.at[s.op->order];
    at[0] = at[1], at[1] = s.op;
    ir_number(e->m);
    any = true;
  }
  return any;
}

static bool is_pending(const Edit *e, const Site *s) {
  return op_is_collective(s->op->kind) && type_of(e, s->op->in[0])->pending.n > 1;
}

static bool other_order_of_axes(Edit *e) {
  Site s;
  if (!edit_site(e, is_pending, &s)) return false;
  Pending *p = &type_of(e, s.op->in[0])->pending;
  AxisPart t = p->part[0];
  p->part[0] = p->part[p->n - 1], p->part[p->n - 1] = t;
  return true;
}

/* ---- redundant exchanges ---- */

static Op *moves(Edit *e, OpKind kind, ValueId v, Type to, ValueId *out) {
  Op *op = ir_op(e->m, kind, (Loc){0});
  op->why = "it changes nothing in the end";
  ir_in(e->m, op, v);
  *out = ir_out(e->m, op, "moved", to);
  return op;
}

static bool has_split_operand(const Edit *e, const Site *s) {
  if (op_class(s->op->kind) != CLS_SPACE || s->op->nin == 0) return false;
  const Type *t = type_of(e, s->op->in[0]);
  bool split = false;
  for (int d = 0; d < t->rank; d++) split |= t->dim[d].split.n > 0;
  return split && t->pending.n == 0 && !type_windowed(t);
}

/* To a layout and back, before one consumer. */
static bool there_and_back(Edit *e, OpKind there, OpKind back, bool (*away)(Edit *e, Type *t)) {
  Site s;
  if (!edit_site(e, has_split_operand, &s)) return false;
  ValueId v = s.op->in[0], far, home;
  Type t = *type_of(e, v), to = t;
  if (!away(e, &to)) return false;
  Op *first = moves(e, there, v, to, &far), *second = moves(e, back, far, t, &home);
  for (int i = 0; i < s.op->nin; i++)
    if (s.op->in[i] == v) s.op->in[i] = home;
  first->phase = second->phase = s.op->phase;
  ir_insert(e->m, s.region, s.op->order, first);
  ir_number(e->m);
  ir_insert(e->m, s.region, s.op->order, second);
  return true;
}

static bool whole(Edit *e, Type *t) {
  (void)e;
  for (int d = 0; d < t->rank; d++) t->dim[d].split = (Split){0};
  return true;
}

static bool elsewhere(Edit *e, Type *t) {
  int from = rng_below(&e->rng, t->rank), to = rng_below(&e->rng, t->rank);
  if (from == to) return false;
  Split x = t->dim[from].split;
  t->dim[from].split = t->dim[to].split;
  t->dim[to].split = x;
  t->dim[from].split.granule = t->dim[to].split.granule = 0;
  return true;
}

static bool gather_and_slice(Edit *e) { return there_and_back(e, OP_ALL_GATHER, OP_SLICE, whole); }
static bool exchange_twice(Edit *e) { return there_and_back(e, OP_EXCHANGE, OP_EXCHANGE, elsewhere); }

/* ---- reductions in pieces ---- */

static bool is_all_reduce(const Edit *e, const Site *s) { return (void)e, s->op->kind == OP_ALL_REDUCE && s->op->nin == 1; }

/* Puts `second` behind the all-reduce, which now makes `mid`; the result keeps its value. */
static void cut_in_two(Edit *e, const Site *s, OpKind first, Type mid, OpKind second) {
  ValueId out = s->op->out[0];
  ValueId half = ir_value(e->m, "half", mid, s->op->loc);
  s->op->kind = first;
  s->op->out[0] = half;
  Op *op = ir_op(e->m, second, s->op->loc);
  op->why = s->op->why;
  op->phase = s->op->phase;
  ir_in(e->m, op, half);
  op->out = NEW(e->m->arena, ValueId);
  op->out[0] = out;
  op->nout = 1;
  ir_insert(e->m, s->region, s->op->order + 1, op);
}

static bool scatter_and_gather(Edit *e) {
  Site s;
  if (!edit_site(e, is_all_reduce, &s)) return false;
  const Type *from = type_of(e, s.op->in[0]);
  Type mid = *type_of(e, s.op->out[0]);
  if (mid.rank == 0 || mid.pending.n) return false;
  int d = rng_below(&e->rng, mid.rank);
  Split *x = &mid.dim[d].split;
  if (x->n + from->pending.n > MAX_PARTS || x->granule > 1) return false;
  for (int i = 0; i < from->pending.n; i++) x->part[x->n++] = from->pending.part[i];
  for (int64_t r = 0; r < mesh_devices(&e->m->mesh); r++) /* inside what the rank holds, as a reduce-scatter must be */
    if (move_elements(&e->m->mesh, type_of(e, s.op->out[0]), &mid, r)) return false;
  cut_in_two(e, &s, OP_REDUCE_SCATTER, mid, OP_ALL_GATHER);
  return true;
}

static bool axis_by_axis(Edit *e) {
  Site s;
  if (!edit_site(e, is_all_reduce, &s)) return false;
  const Type *from = type_of(e, s.op->in[0]);
  Type mid = *type_of(e, s.op->out[0]);
  if (from->pending.n < 2 || mid.pending.n) return false;
  mid.pending = from->pending;
  mid.pending.part[0] = mid.pending.part[--mid.pending.n];
  cut_in_two(e, &s, OP_ALL_REDUCE, mid, OP_ALL_REDUCE);
  return true;
}

static int users(const Region *r, ValueId v, Op **last) {
  int n = 0;
  for (int i = 0; i < r->ops.n; i++)
    for (int k = 0; k < r->ops.at[i]->nin; k++)
      if (r->ops.at[i]->in[k] == v) n++, *last = r->ops.at[i];
  for (int i = 0; i < r->yields.n; i++) n += 2 * (r->yields.at[i] == v);
  return n;
}

/* y = all_reduce x; z = nest c * y   becomes   z.p = nest c * x; z = all_reduce z.p */
static bool reduce_later(Edit *e) {
  Site s;
  if (!edit_site(e, is_all_reduce, &s)) return false;
  ValueId x = s.op->in[0], y = s.op->out[0];
  const Type *from = type_of(e, x);
  Op *user = NULL;
  if (type_of(e, y)->pending.n || from->pending.kind != RED_SUM || users(s.region, y, &user) != 1) return false;
  if (user->kind != OP_NEST || (user->reduce && user->reduce != RED_SUM)) return false;
  bool pending[64] = {false};
  Type z = *type_of(e, user->out[0]);
  for (int i = 0; i < user->nin && i < 64; i++) pending[i] = user->in[i] == y;
  if (z.pending.n || user->nin > 64 || !ex_linear_in(user->body, pending)) return false;
  for (int i = 0; i < user->space.n; i++)
    for (int k = 0; k < from->pending.n; k++)
      if (split_uses(&user->space.idx[i].split, from->pending.part[k])) return false;
  for (int i = 0; i < user->nin; i++)
    if (user->in[i] == y) user->in[i] = x;
  ValueId out = user->out[0];
  z.pending = from->pending;
  user->out[0] = ir_value(e->m, "later", z, user->loc);
  s.op->in[0] = user->out[0];
  s.op->out[0] = out;
  int n = 0, at = 0;
  for (int i = 0; i < s.region->ops.n; i++) {
    if (s.region->ops.at[i] != s.op) s.region->ops.at[n++] = s.region->ops.at[i];
    if (s.region->ops.at[i] == user) at = n;
  }
  s.region->ops.n = n;
  ir_insert(e->m, s.region, at, s.op);
  return true;
}

const EditRow variants[] = {
    {"other order of terms", other_order_of_terms, STAGE_LOCAL},
    {"other order of operands", other_order_of_operands, STAGE_LOCAL},
    {"other order of ops", other_order_of_ops, STAGE_LOCAL},
    {"other order of axes", other_order_of_axes, STAGE_LOCAL},
    {"gather and slice", gather_and_slice, STAGE_LOCAL},
    {"exchange there and back", exchange_twice, STAGE_LOCAL},
    {"all-reduce as scatter and gather", scatter_and_gather, STAGE_LOCAL},
    {"all-reduce axis by axis", axis_by_axis, STAGE_LOCAL},
    {"reduction later", reduce_later, STAGE_LOCAL},
};
const int nvariants = sizeof variants / sizeof *variants;
