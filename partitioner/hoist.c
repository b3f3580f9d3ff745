/* hoist.c: a collective whose operands are the same in every iteration of a loop runs once, before it; equal collectives
   of one region and phase are one.

     %y = repeat %l < 4 carry(..) with(%w1 = %w) {          %w.1 = all_gather %w
       %w2 = all_gather %w1                          =>     %y = repeat %l < 4 carry(..) with(%w2 = %w.1) {
       %n[b,d] = nest sum[e] .. * %w2[e,d] }                  %n[b,d] = nest sum[e] .. * %w2[e,d] }

   What is hoisted is alive during the whole loop, what is shared until its last use: with --memory-limit both happen
   while what they hold for longer fits beside a rank's leaves. Forward and reverse share nothing, since what was gathered
   is gathered again rather than kept (save.c), unless --keep-gathered. A window belongs to its consumers and stays. */
#include "part.h"

typedef struct {
  Module *m;
  bool keep_gathered;
  int64_t room; /* bytes that may still be held for longer */
} Hoist;

static Type *type_of(const Hoist *h, ValueId v) { return &h->m->values.at[v].type; }

/* Takes room for an op's results; false, and none is taken, if there is not enough. */
static bool take_room(Hoist *h, const Op *op) {
  int64_t bytes = 0;
  for (int i = 0; i < op->nout; i++) {
    int64_t size = dtype_size(type_of(h, op->out[i])->dtype);
    if (!checked_mul(size, type_capacity(type_of(h, op->out[i])), &size) || !checked_add(bytes, size, &bytes)) return false;
  }
  if (bytes > h->room) return false;
  h->room -= bytes;
  return true;
}

/* ---- one value instead of another ---------------------------------------------------------------------------------- */

typedef struct {
  ValueId old, now;
} Pair;
typedef VEC(Pair) Pairs;

static ValueId now(const Pairs *p, ValueId v) {
  for (int i = 0; i < p->n; i++)
    if (p->at[i].old == v) return p->at[i].now;
  return v;
}

static void replace(Hoist *h, Region *r, const Pairs *p, Arena *scratch) {
  if (p->n == 0) return;
  ValueId *map = NEW_ARRAY(scratch, ValueId, h->m->values.n);
  for (int v = 0; v < h->m->values.n; v++) map[v] = v;
  for (int i = 0; i < p->n; i++) map[p->at[i].old] = p->at[i].now;
  for (int i = 0; i < r->ops.n; i++)
    for (int k = 0; k < r->ops.at[i]->nin; k++) r->ops.at[i]->in[k] = map[r->ops.at[i]->in[k]];
  for (int i = 0; i < r->yields.n; i++) r->yields.at[i] = map[r->yields.at[i]];
}

/* ---- out of loops ------------------------------------------------------------------------------------------------ */

/* The operand of the repeat that an argument of its body is in every iteration, or -1. */
static ValueId outside(const Op *repeat, ValueId v) {
  for (int i = repeat->ncarried; i < repeat->ncarried + repeat->ninvariant; i++)
    if (repeat->body_region->args.at[1 + i] == v) return repeat->in[i];
  return -1;
}

static bool may_leave(Hoist *h, const Op *repeat, const Op *op, const Pairs *p) {
  if (op_class(op->kind) != CLS_LAYOUT) return false;
  for (int i = 0; i < op->nin; i++)
    if (outside(repeat, now(p, op->in[i])) < 0 || type_windowed(type_of(h, op->out[i]))) return false;
  return take_room(h, op);
}

/* The op before the repeat at *at, its results as invariants of the body. */
static void hoist_op(Hoist *h, Region *r, int *at, const Op *op, Pairs *p, Arena *scratch) {
  Op *repeat = r->ops.at[*at], *before = ir_op(h->m, op->kind, op->loc);
  before->why = op->why;
  before->phase = repeat->phase;
  for (int i = 0; i < op->nin; i++) ir_in(h->m, before, outside(repeat, now(p, op->in[i])));
  for (int i = 0; i < op->nout; i++) {
    Type t = *type_of(h, op->out[i]);
    const char *name = h->m->values.at[op->out[i]].name;
    ValueId made = ir_out(h->m, before, name, t);
    vec_push(scratch, *p, ((Pair){op->out[i], part_hand_in(h->m, repeat, made, false, &t, name)}));
  }
  ir_insert(h->m, r, (*at)++, before);
}

static void hoist_region(Hoist *h, Region *r, Arena *scratch) {
  for (int at = 0; at < r->ops.n; at++) {
    Region *body = r->ops.at[at]->body_region;
    if (!body) continue;
    hoist_region(h, body, scratch);
    Pairs moved = {0};
    int n = 0;
    for (int i = 0, end = body->ops.n; i < end; i++) {
      Op *op = body->ops.at[i];
      if (may_leave(h, r->ops.at[at], op, &moved))
        hoist_op(h, r, &at, op, &moved, scratch);
      else
        body->ops.at[n++] = op;
    }
    body->ops.n = n;
    replace(h, body, &moved, scratch);
  }
}

/* ---- equal ones --------------------------------------------------------------------------------------------------- */

static bool equal(const Hoist *h, const Op *a, const Op *b) {
  if (a->kind != b->kind || a->nin != b->nin || (a->phase != b->phase && !h->keep_gathered)) return false;
  for (int i = 0; i < a->nin; i++)
    if (a->in[i] != b->in[i] || !sharding_equal(type_of(h, a->out[i]), type_of(h, b->out[i]))) return false;
  return true;
}

/* An earlier op of the region that does the same, or NULL. `last`: by value, the last op that changes its layout; `before`:
   by that op's order, the one before it. */
static Op *same_before(const Hoist *h, Op *const *last, Op *const *before, const Op *op) {
  for (Op *other = last[op->in[0]]; other; other = before[other->order])
    if (equal(h, other, op)) return other;
  return NULL;
}

static void share_region(Hoist *h, Region *r, Arena *scratch) {
  Op **last = NEW_ARRAY(scratch, Op *, h->m->values.n), **before = NEW_ARRAY(scratch, Op *, r->ops.n + 1);
  Pairs moved = {0};
  int n = 0;
  for (int i = 0; i < r->ops.n; i++) {
    Op *op = r->ops.at[i];
    if (op->body_region) share_region(h, op->body_region, scratch);
    if (op_class(op->kind) == CLS_LAYOUT) {
      for (int k = 0; k < op->nin; k++) op->in[k] = now(&moved, op->in[k]);
      Op *same = same_before(h, last, before, op);
      if (same && take_room(h, op)) {
        for (int k = 0; k < op->nout; k++) vec_push(scratch, moved, ((Pair){op->out[k], same->out[k]}));
        continue;
      }
      op->order = n;
      before[n] = last[op->in[0]];
      last[op->in[0]] = op;
    }
    r->ops.at[n++] = op;
  }
  r->ops.n = n;
  replace(h, r, &moved, scratch);
}

/* What a rank's leaves leave of the memory limit. */
static int64_t room_beside_leaves(const Module *m, int64_t limit) {
  if (limit == 0) return INT64_MAX;
  for (int i = 0; i < m->programs.at[0].body->ops.n; i++) {
    const Op *op = m->programs.at[0].body->ops.at[i];
    if (op_class(op->kind) != CLS_LEAF) continue;
    const Type *t = &m->values.at[op->out[0]].type;
    int64_t bytes;
    if (!checked_mul(type_capacity(t), dtype_size(t->dtype), &bytes)) return 0;
    limit = max_i64(0, limit - min_i64(limit, bytes));
  }
  return limit;
}

void part_hoist(Module *m, PassContext *cx) {
  Arena *scratch = arena_new();
  Hoist h = {m, cx->keep_gathered, room_beside_leaves(m, cx->memory_limit)};
  for (int i = 0; i < m->programs.n; i++) {
    hoist_region(&h, m->programs.at[i].body, scratch);
    share_region(&h, m->programs.at[i].body, scratch);
  }
  ir_dead_code(m); /* invariants that only what was hoisted has read */
  ir_number(m);
  arena_free(scratch);
}
