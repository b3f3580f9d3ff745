/* reshard.c: every op computes a box of its index space, and where a value is not held as it is needed a `reshard`
   stands before the first op that needs it; later ops that need the same share it.

     %y[b,t,d]: f32[B@data, T, D]{model: sum} = nest sum[h: H=4@model, k] %a[b,t,h,k] * %wo[h,k,d]
     %y.1: f32[B@data, T, D] = reshard %y                       ; because %r adds it to %x
     %r[b,t,d]: f32[B@data, T, D] = nest %x[b,t,d] + %y.1[b,t,d]

   First it is decided how each op's indices are split, which sums it passes on pending, and in which layouts values are
   made complete and handed around by repeats: op by op (greedy.c), then by cost over the whole program (assign.c). Then
   one walk edits the program accordingly. */
#include "reshard.h"
#include "blocks.h"

static Type *type_of(Reshard *r, ValueId v) { return &r->m->values.at[v].type; }

/* ---- versions ------------------------------------------------------------------------------------------ */

static ValueId emit_reshard(Reshard *r, ValueId v, const Version *from, const Type *to, const Op *user, int slot) {
  Loc loc = user ? user->loc : r->m->values.at[v].loc;
  Op *op = ir_op(r->m, OP_RESHARD, loc);
  const Op *def = r->m->values.at[v].def;
  bool completes = from->type.pending.n > 0 && def;
  op->phase = completes ? def->phase : user ? user->phase : r->region->parent->phase;
  if (completes && def->loc.line) op->loc = def->loc;
  op->why = reason_text(r, v, &from->type, to, user, slot);
  ir_in(r->m, op, from->id);
  ValueId out = ir_out(r->m, op, r->m->values.at[v].name, *to);
  ir_append(r->m, r->region, op);
  return out;
}

static ValueId add_version(Reshard *r, ValueId v, int source, const Type *need, const Op *user, int slot) {
  ValueState *s = &r->state[v];
  Version *n = NEW(r->scratch, Version);
  *n = (Version){*need, emit_reshard(r, v, s->have.at[source], need, user, slot)};
  vec_push(r->scratch, s->have, n);
  return n->id;
}

/* A complete layout is wanted that the first version is not: home is made, unless it is there. */
static void deliver(Reshard *r, ValueId v, const Op *user, int slot) {
  ValueState *s = &r->state[v];
  if (s->delivers && s->have.n == 1) add_version(r, v, 0, &s->home, user, slot);
}

static ValueId get_version(Reshard *r, ValueId v, const Type *need, const Op *user, int slot) {
  ValueState *s = &r->state[v];
  for (int round = 0; round < 2; round++) {
    for (int i = version_hidden(s) ? 1 : 0; i < s->have.n; i++)
      if (sharding_equal(&s->have.at[i]->type, need)) return s->have.at[i]->id;
    if (round == 0 && need->pending.n == 0) deliver(r, v, user, slot);
  }
  int source = 0;
  version_bytes(r, v, need, &source);
  return add_version(r, v, source, need, user, slot);
}

static void define(Reshard *r, ValueId v, const Type *raw) {
  Version *first = NEW(r->scratch, Version);
  *first = (Version){*raw, v};
  r->state[v].have.n = 0;
  vec_push(r->scratch, r->state[v].have, first);
  *type_of(r, v) = *raw;
}

/* ---- ops with an index space ----------------------------------------------------------------------------- */

static ValueId take_operand(Reshard *r, Op *op, int o, const Choice *c) {
  ValueId v = op->in[o];
  const Pending *sums = r->decided[op->order].sums[o].n ? &r->decided[op->order].sums[o] : NULL;
  int fit = version_fit(r, op, o, c, sums);
  if (fit < 0 && !sums) {
    deliver(r, v, op, o);
    fit = version_fit(r, op, o, c, sums);
  }
  if (fit >= 0 && fit < r->state[v].have.n) return r->state[v].have.at[fit]->id;
  Type need = choice_need(r, op, o, c, sums);
  return get_version(r, v, &need, op, o);
}

/* Does slot a's value come to be before slot b's? Text may number operands otherwise, so this orders reshards. */
static bool comes_first(const Reshard *r, const Op *op, int a, int b) {
  const Value *x = &r->m->values.at[op->in[a]], *y = &r->m->values.at[op->in[b]];
  int at = x->def ? x->def->order : -1, other = y->def ? y->def->order : -1;
  return at != other ? at < other : x->result < y->result;
}

static Choice decided_choice(const Reshard *r, const Op *op) {
  Choice c = {0};
  const Decision *d = &r->decided[op->order];
  for (int i = 0; i < r->factors[op->order]->n; i++) c.split[i] = d->split[i];
  return c;
}

/* What its results are pending over because its operands are. */
static Pending decided_sums(const Reshard *r, const Op *op) {
  Pending all = {0};
  for (int o = 0; o < r->operands[op->order].n; o++) {
    const Pending *p = &r->decided[op->order].sums[o];
    for (int i = 0; i < p->n; i++)
      if (!pending_has(&all, p->part[i])) all.kind = p->kind, all.part[all.n++] = p->part[i];
  }
  return all;
}

static void edit_space(Reshard *r, Op *op) {
  Choice c = decided_choice(r, op);
  Pending all = decided_sums(r, op);
  int *slot = NEW_ARRAY(r->scratch, int, op->nin + 1);
  for (int o = 0; o < op->nin; o++) {
    int at = o;
    for (; at > 0 && comes_first(r, op, o, slot[at - 1]); at--) slot[at] = slot[at - 1];
    slot[at] = o;
  }
  ValueId *in = NEW_ARRAY(r->scratch, ValueId, op->nin + 1);
  for (int o = 0; o < op->nin; o++) in[slot[o]] = take_operand(r, op, slot[o], &c);
  for (int o = 0; o < op->nin; o++) op->in[o] = in[o];
  for (int o = 0; o < op->nout; o++) {
    Type raw = choice_result(r, op, o, &c, all.n ? &all : NULL);
    define(r, op->out[o], &raw);
  }
  for (int i = 0; i < op->space.n; i++) op->space.idx[i].split = c.split[i];
  if (block_needed(op, c.split))
    block_op(r->m, r->region, op, r->before[op->order]);
  else if (r->before[op->order])
    block_before(r->m, r->region, op);
}

/* ---- repeat ------------------------------------------------------------------------------------------------ */

/* Zeros that count as pending: one term for each contributor, all of them 0. */
static ValueId pending_zeros(Reshard *r, ValueId v, const Type *t) {
  Op *op = ir_op(r->m, OP_NEST, r->m->values.at[v].loc);
  op->phase = r->m->values.at[v].def->phase;
  op->reduce = RED_SUM;
  op->body = ex_lit(r->m->arena, t->dtype, 0);
  op->space = r->m->values.at[v].def->space;
  for (int d = 0; d < t->rank; d++) op->space.idx[d].split = t->dim[d].split;
  Index *part = &op->space.idx[op->space.n++];
  *part = (Index){.name = "each.part", .range = 1};
  for (int i = 0; i < t->pending.n; i++) {
    part->range *= t->pending.part[i].size;
    part->split.part[part->split.n++] = t->pending.part[i];
  }
  ValueId out = ir_out(r->m, op, r->m->values.at[v].name, *t);
  ir_append(r->m, r->region, op);
  return out;
}

bool comes_stacked(const Reshard *r, ValueId v) {
  const Op *def = r->m->values.at[v].def;
  return def && (op_class(def->kind) == CLS_LEAF || def->kind == OP_REPEAT);
}

/* `whole` laid out as its slice is. */
static Type stacked_type(const Type *whole, const Type *slice) {
  Type t = *whole;
  for (int d = 0; d < t.rank; d++) t.dim[d].split = d ? slice->dim[d - 1].split : (Split){0};
  t.pending = slice->pending;
  return t;
}

static Type slice_type(const Type *slice, const Type *whole) {
  Type t = *slice;
  for (int d = 0; d < t.rank; d++) t.dim[d].split = whole->dim[d + 1].split;
  t.pending = whole->pending;
  return t;
}

/* A slice of what comes stacked, a leaf or another repeat's result, has its layout. */
static void place_slices(Reshard *r, Op *op) {
  for (int i = op->ncarried + op->ninvariant; i < op->nin; i++) {
    ValueState *slice = &r->state[op->body_region->args.at[1 + i]];
    if (comes_stacked(r, op->in[i])) slice->place = slice_type(&slice->place, &r->state[op->in[i]].have.at[0]->type);
  }
}

static void enter_repeat(Reshard *r, Op *op) {
  Region *body = op->body_region;
  place_slices(r, op);
  for (int i = 0; i < body->args.n; i++) define(r, body->args.at[i], &r->state[body->args.at[i]].place);
  for (int i = 0; i < op->nin; i++) {
    const Type *place = &r->state[body->args.at[1 + i]].place;
    Type need = i < op->ncarried + op->ninvariant ? *place : stacked_type(&r->state[op->in[i]].home, place);
    bool zeros = i < op->ncarried && need.pending.n > 0; /* a sum that the loop carries; what comes stacked has its terms */
    op->in[i] = zeros ? pending_zeros(r, op->in[i], &need) : get_version(r, op->in[i], &need, op, i);
  }
}

static void leave_repeat(Reshard *r, Op *op) {
  Region *body = op->body_region;
  for (int i = 0; i < op->nout; i++) {
    ValueId y = body->yields.at[i];
    ValueState *out = &r->state[op->out[i]];
    bool carried = i < op->ncarried;
    Type t = carried ? r->state[body->args.at[1 + i]].place : slice_type(&r->state[y].home, &out->place);
    body->yields.at[i] = get_version(r, y, &t, NULL, NO_SLOT);
    Type whole = carried ? t : out->place;
    Type named = out->home;
    for (int d = 0; d < named.rank; d++) named.dim[d].split = whole.dim[d].split;
    named.pending = whole.pending;
    define(r, op->out[i], &named);
  }
}

static void edit_region(Reshard *r, Region *region);

/* The repeat's own reshards stand before it, its body's inside; `region` is switched accordingly. */
static void edit_repeat(Reshard *r, Op *op) {
  enter_repeat(r, op);
  Region *outer = r->region;
  edit_region(r, op->body_region);
  r->region = op->body_region;
  leave_repeat(r, op);
  r->region = outer;
}

/* ---- the walk ------------------------------------------------------------------------------------------------ */

static void edit_effect(Reshard *r, Op *op) {
  int slot = op->kind == OP_UPDATE ? 1 : 0;
  ValueState *s = &r->state[op->in[slot]];
  Type need = op->kind == OP_UPDATE ? r->state[op->in[0]].wish : s->home;
  if (op->kind == OP_TAP && !s->pinned && !(s->delivers && s->have.n > 1)) { /* any complete layout will do */
    if (s->have.at[0]->type.pending.n == 0)
      need = s->have.at[0]->type;
    else if (!s->delivers)
      need.pending = (Pending){0};
  }
  op->in[slot] = get_version(r, op->in[slot], &need, op, slot);
}

static void edit_op(Reshard *r, Op *op) {
  switch (op_class(op->kind)) {
  case CLS_LEAF:
    for (int o = 0; o < op->nout; o++) define(r, op->out[o], &r->state[op->out[o]].wish);
    break;
  case CLS_SPACE: edit_space(r, op); break;
  case CLS_REGION: edit_repeat(r, op); break;
  case CLS_EFFECT: edit_effect(r, op); break;
  case CLS_LAYOUT: internal_error("a collective before the pass reshard");
  }
}

static void edit_region(Reshard *r, Region *region) {
  Op **ops = region->ops.at;
  int n = region->ops.n;
  region->ops.at = NULL;
  region->ops.n = region->ops.cap = 0;
  r->region = region;
  for (int i = 0; i < n; i++) {
    edit_op(r, ops[i]);
    vec_push(r->m->arena, region->ops, ops[i]); /* not ir_append: order is the key of side tables */
  }
}

/* ---- set-up ---------------------------------------------------------------------------------------------------- */

static void note_op(void *cx, Region *reg, Op *op, int64_t times) {
  (void)reg, (void)times;
  Reshard *r = cx;
  if (op_class(op->kind) == CLS_SPACE) r->factors[op->order] = part_factors(r->m, op, r->scratch);
  ValueId *in = NEW_ARRAY(r->scratch, ValueId, op->nin + 1);
  for (int o = 0; o < op->nin; o++) in[o] = op->in[o];
  r->operands[op->order] = (Operands){op->nin, in};
  for (int o = 0; o < op->nin; o++) vec_push(r->scratch, r->state[op->in[o]].uses, ((Use){op, o}));
  for (int i = 0; op->body_region && i < op->body_region->yields.n; i++)
    vec_push(r->scratch, r->state[op->body_region->yields.at[i]].uses, ((Use){op, NO_SLOT}));
}

static void note_wants(void *cx, Region *reg, Op *op, int64_t times) {
  (void)reg, (void)times;
  if (op_class(op->kind) == CLS_SPACE) choose_wants(cx, op);
}

static void note_order(Reshard *r, const Split *s) {
  for (int i = 0; i < s->n; i++)
    for (int k = i + 1; k < s->n; k++)
      if (s->part[i].axis > s->part[k].axis) r->inverted[s->part[i].axis] |= 1u << s->part[k].axis;
}

static void note_value(Reshard *r, ValueId v) {
  ValueState *s = &r->state[v];
  const Op *def = r->m->values.at[v].def;
  s->wish = *type_of(r, v);
  s->wish.pending = (Pending){0};
  for (int d = 0; d < s->wish.rank; d++) {
    Split *split = &s->wish.dim[d].split;
    s->fixed |= (unsigned)split->fixed << d;
    split->fixed = false;
    if (split->n == 0) split->granule = 0;
  }
  s->pinned = s->fixed && def && op_class(def->kind) != CLS_LEAF;
  for (int d = 0; d < s->wish.rank; d++) note_order(r, &s->wish.dim[d].split);
  s->home = s->place = s->wish;
}

/* Bytes that a rank needs, about: leaves and what repeats stack, mostly for their reverse, are kept during the step; at
   any time a few tensors more are alive. (codegen/buffers.c knows exactly, when all is decided.) */
static double bytes_needed(const Reshard *r) {
  enum { ALIVE = 3 };
  double sum = 0, largest = 0;
  for (int v = 0; v < r->m->values.n; v++) {
    const Op *def = r->m->values.at[v].def;
    if (!def) continue;
    bool leaf = op_class(def->kind) == CLS_LEAF, stacked = def->kind == OP_REPEAT && r->m->values.at[v].result >= def->ncarried;
    const Type *t = leaf ? &r->state[v].wish : &r->state[v].place;
    double bytes = (double)type_capacity(t) * (double)dtype_size(t->dtype);
    if (leaf || stacked)
      sum += bytes;
    else if (bytes > largest)
      largest = bytes;
  }
  return sum + ALIVE * largest;
}

/* The layouts of least cost; what is kept gets dearer until it fits the limit, or nothing helps. */
static void assign_within(Reshard *r, int64_t limit) {
  double byte = 0;
  for (int i = 0; i < r->m->mesh.naxes; i++)
    if (byte == 0 || 1 / r->cluster->bandwidth[i] > byte) byte = 1 / r->cluster->bandwidth[i];
  r->memory_price = 1e-9 * byte; /* settles ties */
  assign_layouts(r);
  if (limit <= 0) return;
  for (double price = 1e-3; price < 1e4 && bytes_needed(r) > (double)limit; price *= 10) {
    r->memory_price = price * byte;
    assign_layouts(r);
  }
}

void part_reshard(Module *m, PassContext *cx) {
  part_separate(m);
  part_terms(m);
  Arena *scratch = arena_new();
  int n = part_number(m), nvalues = m->values.n;
  Reshard r = {.m = m, .scratch = scratch};
  r.cluster = cx->cluster ? cx->cluster : cluster_default(scratch, &m->mesh);
  r.planner = plan_new(scratch, &m->mesh, r.cluster);
  plan_limit(r.planner, cx->memory_limit);
  r.keep_gathered = cx->keep_gathered;
  r.state = NEW_ARRAY(scratch, ValueState, nvalues + 1);
  r.factors = NEW_ARRAY(scratch, Factors *, n + 1);
  r.before = part_before(m, n, scratch);
  r.heads = part_heads(m, n, scratch);
  r.operands = NEW_ARRAY(scratch, Operands, n + 1);
  r.nops = n;
  r.decided = NEW_ARRAY(scratch, Decision, n + 1);
  r.want = NEW_ARRAY(scratch, Type **, n + 1);
  for (int v = 0; v < nvalues; v++) note_value(&r, v);
  for (int i = 0; i < m->programs.n; i++) part_visit(m->programs.at[i].body, 1, note_op, &r);
  for (int i = 0; i < m->programs.n; i++) part_visit(m->programs.at[i].body, 1, note_wants, &r);
  greedy_layouts(&r);
  if (!cx->propagate_only) assign_within(&r, cx->memory_limit);
  for (int v = 0; v < nvalues; v++) r.state[v].keep = true; /* only a pin hides how a value is made */
  for (int i = 0; i < m->programs.n; i++) edit_region(&r, m->programs.at[i].body);
  m->stage = STAGE_SHARDED;
  ir_number(m);
  ir_dead_code(m); /* zeros that became pending zeros */
  arena_free(scratch);
}
