/* greedy.c: how ops are split and which sums stay pending, decided op by op in the order of the program: what
   --partition=propagate does, and what the choice over the whole program (assign.c) starts from.

   A sum is left pending while all its consumers can pass it on without its growing (the laws of ir/README.md), then
   completed once, in the layout that propagate gave it, for all of them. Which consumers pass it on depends on what
   their other operands are, so the program is walked until no value has to be completed that was thought to pass.
   Slices of stacked results and carried sums that start as zeros may be pending too: they are reduced once, behind the
   loop. */
#include "reshard.h"

/* ---- versions, as far as they are planned ------------------------------------------------------------------ */

static void add_version(Reshard *r, ValueId v, const Type *need) {
  Version *n = NEW(r->scratch, Version);
  *n = (Version){*need, v};
  vec_push(r->scratch, r->state[v].have, n);
}

/* A value that only its completed form may be used of gets it now. */
static void settle(Reshard *r, ValueId v) {
  ValueState *s = &r->state[v];
  if (version_hidden(s) && s->have.n == 1) add_version(r, v, &s->home);
}

static void get_version(Reshard *r, ValueId v, const Type *need) {
  ValueState *s = &r->state[v];
  settle(r, v);
  for (int i = version_hidden(s) ? 1 : 0; i < s->have.n; i++)
    if (sharding_equal(&s->have.at[i]->type, need)) return;
  add_version(r, v, need);
}

static void define(Reshard *r, ValueId v, const Type *raw) {
  ValueState *s = &r->state[v];
  Version *first = s->have.cap ? s->have.at[0] : NEW(r->scratch, Version); /* again in each walk */
  *first = (Version){*raw, v};
  s->have.n = 0;
  s->passed = 0;
  vec_push(r->scratch, s->have, first);
}

static void complete(Reshard *r, ValueId v) {
  if (r->state[v].have.at[0]->type.pending.n == 0 || !r->state[v].keep) return;
  r->state[v].keep = false;
  r->changed = true;
}

static bool is_pending(const Reshard *r, ValueId v) {
  const ValueState *s = &r->state[v];
  return s->have.at[0]->type.pending.n > 0 && s->keep && !s->pinned;
}

/* ---- ops with an index space ----------------------------------------------------------------------------- */

/* `x = x + contribution` where x is a carried argument that starts as zeros: from the next walk on x is pending too
   (this one goes on as if it were, and is void). */
static bool loop_accumulates(Reshard *r, const Op *op, const bool *pending, const Pending *sums) {
  bool found = false;
  for (int o = 0; o < op->nin; o++) {
    ValueState *s = &r->state[op->in[o]];
    if (pending[o] || !s->loops || s->refused || s->fixed || s->sums.n > 0 || s->uses.n != 1) continue;
    bool dealt_out = false; /* x is split over these axes: the sum ends in the loop, where it becomes smaller */
    for (int i = 0; i < sums->n; i++) dealt_out |= type_uses(&s->home, sums->part[i]);
    if (dealt_out) continue;
    s->sums = *sums;
    found = r->changed = true;
  }
  return found;
}

/* May the op pass on what its operands are pending over? If so *sums is what. */
static bool may_pass(Reshard *r, const Op *op, bool *pending, Pending *sums) {
  int n = 0;
  bool alike = true;
  for (int o = 0; o < op->nin; o++) {
    pending[o] = is_pending(r, op->in[o]);
    if (!pending[o]) continue;
    const Pending *p = &r->state[op->in[o]].have.at[0]->type.pending;
    if (n++ == 0) *sums = *p;
    alike &= pending_equal(p, sums) && p->kind == RED_SUM;
  }
  if (n == 0) return false;
  bool adds = op->kind == OP_NEST && (op->reduce == RED_NONE || op->reduce == RED_SUM);
  if (adds && alike && ex_linear_in(op->body, pending)) return true;
  return adds && alike && loop_accumulates(r, op, pending, sums);
}

static void complete_operands(Reshard *r, const Op *op, bool *pending) {
  for (int o = 0; o < op->nin; o++) {
    complete(r, op->in[o]);
    pending[o] = false;
  }
}

/* What is passed on must not be larger than what came. */
static bool grows(const Reshard *r, const Op *op, const bool *pending, const Choice *c, const Pending *sums) {
  Type raw = choice_result(r, op, 0, c, sums);
  int64_t in = 0;
  for (int o = 0; o < op->nin; o++)
    if (pending[o]) in += type_capacity(&r->state[op->in[o]].have.at[0]->type);
  return type_capacity(&raw) > in;
}

static void pass_on(Reshard *r, const Op *op, const bool *pending, const Choice *c, const Pending *sums) {
  Type raw = choice_result(r, op, 0, c, sums);
  for (int o = 0; o < op->nin; o++)
    if (pending[o]) r->state[op->in[o]].passed += type_capacity(&raw);
}

static void commit(Reshard *r, Op *op, const Choice *c, const bool *pending, const Pending *sums) {
  Decision *d = &r->decided[op->order];
  int n = r->factors[op->order]->n;
  if (!d->split) *d = (Decision){NEW_ARRAY(r->scratch, Split, n + 1), NEW_ARRAY(r->scratch, Pending, op->nin + 1)};
  for (int i = 0; i < n; i++) d->split[i] = c->split[i];
  for (int o = 0; o < op->nin; o++) {
    const Pending *p = pending[o] ? sums : NULL;
    d->sums[o] = p ? *p : (Pending){0};
    settle(r, op->in[o]);
    Type need = choice_need(r, op, o, c, p);
    if (version_fit(r, op, o, c, p) < 0) get_version(r, op->in[o], &need);
  }
  for (int o = 0; o < op->nout; o++) {
    Type raw = choice_result(r, op, o, c, sums);
    define(r, op->out[o], &raw);
  }
}

static void walk_space(Reshard *r, Op *op) {
  bool *pending = NEW_ARRAY(r->scratch, bool, op->nin + 1);
  Pending sums = {0};
  bool passes = may_pass(r, op, pending, &sums);
  Choice c;
  if (passes) {
    c = choose_splits(r, op, pending, &sums);
    passes = !grows(r, op, pending, &c, &sums);
  }
  if (passes) {
    pass_on(r, op, pending, &c, &sums);
    commit(r, op, &c, pending, &sums);
    return;
  }
  complete_operands(r, op, pending);
  c = choose_splits(r, op, pending, NULL);
  commit(r, op, &c, pending, NULL);
}

/* ---- repeat ------------------------------------------------------------------------------------------------ */

static bool is_zeros(const Reshard *r, ValueId v) {
  const Op *def = r->m->values.at[v].def;
  return def && def->kind == OP_NEST && def->space.n == def->space.nout && ex_is_lit(def->body, 0);
}

static void take(Reshard *r, ValueId v, const Type *need) {
  if (need->pending.n > 0) return; /* zeros of their own */
  complete(r, v);
  get_version(r, v, need);
}

static void enter_repeat(Reshard *r, Op *op) {
  Region *body = op->body_region;
  for (int i = 0; i < op->ncarried; i++) {
    ValueState *arg = &r->state[body->args.at[1 + i]];
    arg->loops = is_zeros(r, op->in[i]);
  }
  for (int i = 0; i < body->args.n; i++) {
    ValueState *arg = &r->state[body->args.at[i]];
    Type t = arg->home;
    t.pending = arg->sums;
    arg->keep = arg->keep || arg->sums.n > 0;
    define(r, body->args.at[i], &t);
  }
  for (int i = 0; i < op->nin; i++) {
    ValueId arg = body->args.at[1 + i];
    Type need = r->state[arg].have.at[0]->type;
    if (i >= op->ncarried + op->ninvariant) {
      need = r->state[op->in[i]].home;
      for (int d = 1; d < need.rank; d++) need.dim[d].split = r->state[arg].home.dim[d - 1].split;
      need.dim[0].split = (Split){0};
    }
    take(r, op->in[i], &need);
  }
}

/* The layout that a pending slice is stacked in: sums end in the loop where that makes the slice smaller, because its
   own layout deals it out over those axes; the others end behind the loop. */
static Type stack_layout(const Type *raw, const Type *home) {
  Type t = *home;
  for (int i = 0; i < raw->pending.n; i++) {
    if (type_uses(home, raw->pending.part[i])) continue;
    t.pending.kind = raw->pending.kind;
    t.pending.part[t.pending.n++] = raw->pending.part[i];
  }
  return t;
}

/* The layout of yield i: a carried one as its argument, a stacked one as above; what is saved is complete. */
static Type yield_layout(Reshard *r, const Op *op, int i) {
  ValueId y = op->body_region->yields.at[i];
  if (i < op->ncarried) {
    ValueState *arg = &r->state[op->body_region->args.at[1 + i]];
    Type t = arg->have.at[0]->type;
    if (t.pending.n > 0 && !(is_pending(r, y) && pending_equal(&r->state[y].have.at[0]->type.pending, &t.pending))) {
      arg->sums = (Pending){0};
      arg->refused = true;
      r->changed = true;
    }
    if (arg->sums.n == 0) complete(r, y);
    return t;
  }
  const Type *raw = &r->state[y].have.at[0]->type, *home = &r->state[y].home;
  bool saved = i >= op->nout - op->nsaved;
  if (is_pending(r, y) && !saved) {
    Type t = stack_layout(raw, home);
    if (t.pending.n > 0) return t;
  }
  complete(r, y);
  return *home;
}

static void leave_repeat(Reshard *r, Op *op) {
  Region *body = op->body_region;
  for (int i = 0; i < op->nout; i++) {
    ValueId y = body->yields.at[i];
    Type t = yield_layout(r, op, i);
    bool passed = t.pending.n > 0 && is_pending(r, y);
    if (passed) r->state[y].passed += type_capacity(&t);
    bool lost = t.pending.n > 0 && !passed; /* this walk is void: the next one completes the sum */
    if (!lost) get_version(r, y, &t);
    Type out = r->state[op->out[i]].home;
    int shift = i >= op->ncarried;
    if (shift) out.dim[0].split = (Split){0};
    for (int d = shift; d < out.rank; d++) out.dim[d].split = t.dim[d - shift].split;
    out.pending = t.pending;
    define(r, op->out[i], &out);
  }
}

static void walk_region(Reshard *r, Region *region);

static void walk_effect(Reshard *r, Op *op) {
  ValueId v = op->in[op->kind == OP_UPDATE ? 1 : 0];
  complete(r, v);
  Type need = r->state[op->in[0]].home;
  const Type *raw = &r->state[v].have.at[0]->type;
  if (op->kind == OP_TAP && !r->state[v].pinned && raw->pending.n == 0) need = *raw; /* any complete layout will do */
  get_version(r, v, &need);
}

static void walk_op(Reshard *r, Op *op) {
  switch (op_class(op->kind)) {
  case CLS_LEAF:
    for (int o = 0; o < op->nout; o++) define(r, op->out[o], &r->state[op->out[o]].home);
    break;
  case CLS_SPACE: walk_space(r, op); break;
  case CLS_REGION:
    enter_repeat(r, op);
    walk_region(r, op->body_region);
    leave_repeat(r, op);
    break;
  case CLS_EFFECT: walk_effect(r, op); break;
  case CLS_LAYOUT: internal_error("a collective before the pass reshard");
  }
}

static void walk_region(Reshard *r, Region *region) {
  for (int i = 0; i < region->ops.n; i++) walk_op(r, region->ops.at[i]);
}

/* A value passed on to several consumers is completed instead if they would send more. */
static void complete_what_spreads(Reshard *r, int nvalues) {
  for (int v = 0; v < nvalues; v++) {
    ValueState *s = &r->state[v];
    if (s->have.n == 0 || !is_pending(r, v) || s->uses.n < 2) continue;
    if (s->passed > type_capacity(&s->have.at[0]->type)) complete(r, v);
  }
}

static void note_outcome(Reshard *r, int v) {
  ValueState *s = &r->state[v];
  if (s->have.n == 0) return;
  s->delivers = version_hidden(s);
  s->place = s->have.at[0]->type;
}

void greedy_layouts(Reshard *r) {
  Module *m = r->m;
  int nvalues = m->values.n;
  for (int v = 0; v < nvalues; v++) r->state[v].keep = !r->state[v].pinned;
  do {
    r->changed = false;
    for (int i = 0; i < m->programs.n; i++) walk_region(r, m->programs.at[i].body);
    complete_what_spreads(r, nvalues);
  } while (r->changed);
  for (int v = 0; v < nvalues; v++) note_outcome(r, v);
}
