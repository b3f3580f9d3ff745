/* eval.c: the reference interpreter: a program run whole on one device, or on all ranks in lockstep over what each
   holds, in one of three number domains. Meaning never depends on the mesh, so the two must agree:

     EvalRun *w = eval_new(m, a, (EvalOptions){.domain = DOMAIN_INT, .seed = 7});
     EvalRun *p = eval_new(planned, a, (EvalOptions){.domain = DOMAIN_INT, .seed = 7, .ranks = true});
     eval_step(w, &why), eval_step(p, &why);      eval_tap(w, TAP_LOSS, NULL) equals eval_tap(p, TAP_LOSS, NULL)

   Leaves that were not set are drawn from the seed, element by global element, so both draw the same. */
#include "eval.h"

#include <stdlib.h>

/* ---- what the ranks hold ---- */

static const Type *type_of(const EvalRun *r, ValueId v) { return &r->m->values.at[v].type; }

static void shape_held(EvalRun *r, ValueId v, int rank) {
  const Type *t = type_of(r, v);
  Held *h = held_of(r, v, rank);
  h->rank = t->rank;
  h->n = 1;
  for (int k = t->rank - 1; k >= 0; k--) {
    int64_t lo = 0, hi = t->dim[k].size;
    if (r->o.ranks) split_range(&r->m->mesh, &t->dim[k].split, t->dim[k].size, rank, &lo, &hi);
    h->lo[k] = (int32_t)lo;
    h->size[k] = (int32_t)(hi - lo);
    h->stride[k] = (int32_t)h->n;
    if (!checked_mul(h->n, hi - lo, &h->n) || h->n > INT32_MAX || t->dim[k].size > INT32_MAX)
      internal_error("%%%s is too large for the interpreter", r->m->values.at[v].name);
    if (h->stride[k] == 0) h->stride[k] = 1; /* an empty box: nothing is at any place */
  }
  h->at = NEW_ARRAY(r->arena, Num, h->n);
  for (int64_t e = 0; e < h->n; e++) h->at[e] = domain_poison(r->d.kind, t->dtype, r->o.seed);
}

EvalRun *eval_new(const Module *m, Arena *a, EvalOptions o) {
  EvalRun *r = NEW(a, EvalRun);
  r->m = m;
  r->arena = a;
  r->o = o;
  r->d = (Domain){.kind = o.domain, .exact = o.exact ? o.exact : (int64_t)1 << 53, .key = random_mix(o.seed), .noise = o.noise};
  r->nranks = o.ranks ? (int)mesh_devices(&m->mesh) : 1;
  r->held = NEW_ARRAY(a, Held, (int64_t)m->values.n * r->nranks);
  r->plan = NEW_ARRAY(a, Plan *, m->values.n);
  r->set = NEW_ARRAY(a, bool, m->values.n);
  r->received = NEW_ARRAY(a, int64_t, r->nranks);
  r->sent = NEW_ARRAY(a, int64_t, r->nranks);
  for (ValueId v = 0; v < m->values.n; v++)
    for (int rank = 0; rank < r->nranks; rank++) shape_held(r, v, rank);
  assert((!o.in_arena || m->buffers) && "an arena has been planned");
  r->cells = NEW_ARRAY(a, Cell *, r->nranks);
  r->place = NEW_ARRAY(a, int64_t, m->values.n);
  for (ValueId v = 0; v < m->values.n && o.in_arena; v++) r->place[v] = m->buffers[v].offset;
  for (int rank = 0; rank < r->nranks && o.in_arena; rank++) r->cells[rank] = NEW_ARRAY(a, Cell, m->arena_bytes);
  return r;
}

Num *eval_scratch(EvalRun *r, int64_t n) {
  if (n > r->nscratch) {
    r->nscratch = 2 * n;
    r->scratch = NEW_ARRAY(r->arena, Num, r->nscratch);
  }
  return r->scratch;
}

const char *eval_where(const EvalRun *r, const Op *op) {
  const char *name = op->nout ? r->m->values.at[op->out[0]].name : op->nin ? r->m->values.at[op->in[0]].name : "";
  if (op->loc.line > 0 && op->loc.file < r->m->files.n)
    return arena_printf(r->arena, "%s %%%s (%s:%d)", op_text(op->kind), name, r->m->files.at[op->loc.file], op->loc.line);
  return arena_printf(r->arena, "%s %%%s", op_text(op->kind), name);
}

/* ---- leaves ---- */

static const char *leaf_name(const EvalRun *r, const Op *op) { return op->name ? op->name : r->m->values.at[op->out[0]].name; }

static bool is_data(const Op *op) { return op->kind == OP_PARAM || op->kind == OP_STATE || op->kind == OP_INPUT; }

/* Gives every rank its box of a whole tensor. */
static void deal(EvalRun *r, ValueId v, const Num *whole) {
  const Type *t = type_of(r, v);
  for (int rank = 0; rank < r->nranks; rank++) {
    Held *h = held_of(r, v, rank);
    for (int64_t e = 0; e < h->n; e++) {
      int64_t at = 0;
      for (int k = 0; k < h->rank; k++) at = at * t->dim[k].size + h->lo[k] + e / h->stride[k] % h->size[k];
      h->at[e] = whole[at];
    }
  }
  r->set[v] = true;
}

void eval_set_leaf(EvalRun *r, const char *name, const Tensor *whole) {
  for (int s = 0; s < r->m->programs.n; s++) {
    const Region *body = r->m->programs.at[s].body;
    for (int i = 0; i < body->ops.n; i++) {
      const Op *op = body->ops.at[i];
      if (is_data(op) && !strcmp(leaf_name(r, op), name)) deal(r, op->out[0], whole->at);
    }
  }
}

static void draw_leaf(EvalRun *r, const Op *op) {
  const Type *t = type_of(r, op->out[0]);
  int64_t n = type_elements(t);
  Num *whole = NEW_ARRAY(r->arena, Num, n);
  RandomSite s = random_site(r->o.seed, leaf_name(r, op), 0, 0, NULL);
  InitKind kind = op->kind == OP_PARAM ? op->init : op->kind == OP_STATE ? INIT_ZEROS : INIT_NORMAL;
  double a = op->kind == OP_INPUT ? 1 : op->init_a;
  for (int64_t e = 0; e < n; e++) {
    if (!dtype_is_int(t->dtype))
      whole[e] = domain_draw(&r->d, t->dtype, kind, s, (uint64_t)e, a, op->init_b);
    else if (op->kind == OP_INPUT)
      whole[e].i = random_word(s, (uint64_t)e) % (op->limit ? (uint64_t)op->limit : t->dtype == BOOL ? 2 : 4);
    else
      whole[e].i = op->kind == OP_STATE ? r->o.step : 0;
  }
  deal(r, op->out[0], whole);
}

static void set_setting(EvalRun *r, const Op *op) {
  double v = r->o.setting ? r->o.setting(r->o.cx, op->name, op->init_a) : op->init_a;
  for (int rank = 0; rank < r->nranks; rank++) held_of(r, op->out[0], rank)->at[0] = domain_real(&r->d, v);
}

static void run_leaf(EvalRun *r, const Op *op) {
  if (op->kind == OP_SETTING)
    set_setting(r, op);
  else if (!r->set[op->out[0]])
    draw_leaf(r, op);
}

/* ---- regions ---- */

static void run_region(EvalRun *r, const Region *g);

static void copy_held(EvalRun *r, ValueId from, ValueId to) {
  for (int rank = 0; rank < r->nranks; rank++) {
    const Held *a = held_of(r, from, rank), *b = held_of(r, to, rank);
    if (a->n != b->n) internal_error("%%%s and %%%s differ in shape", r->m->values.at[from].name, r->m->values.at[to].name);
    memcpy(b->at, a->at, sizeof(Num) * (size_t)a->n);
  }
}

/* The slice at `i` along the first dim of a stacked value, as a place in it. */
static Num *slice_at(EvalRun *r, ValueId stacked, ValueId slice, int64_t i, int rank) {
  const Held *s = held_of(r, stacked, rank), *x = held_of(r, slice, rank);
  if (s->rank != x->rank + 1 || s->n != x->n * s->size[0])
    internal_error("%%%s is no slice of %%%s", r->m->values.at[slice].name, r->m->values.at[stacked].name);
  return s->at + i * x->n;
}

static void set_counter(EvalRun *r, ValueId counter, int64_t i) {
  for (int rank = 0; rank < r->nranks; rank++) held_of(r, counter, rank)->at[0].i = i;
  arena_store(r, counter);
}

/* Invariants and slices: copies, or, in the arena, the same bytes. */
static void take_operands(EvalRun *r, const Op *op, int64_t i) {
  for (int k = op->ncarried; k < op->nin; k++) {
    ValueId from = op->in[k], arg = op->body_region->args.at[1 + k];
    if (r->o.in_arena && r->place[from] >= 0) continue;
    if (k < op->ncarried + op->ninvariant)
      copy_held(r, from, arg);
    else
      for (int rank = 0; rank < r->nranks; rank++) {
        Held *x = held_of(r, arg, rank);
        memcpy(x->at, slice_at(r, from, arg, i, rank), sizeof(Num) * (size_t)x->n);
      }
  }
}

/* Fills slice i of the stacked results: those that are arguments of the body when an iteration begins (later they
   may be overwritten in the arena), the others when it ends. */
static void put_slices(EvalRun *r, const Op *op, int64_t i, bool arguments) {
  for (int k = op->ncarried; k < op->nout; k++) {
    ValueId stacked = op->out[k], slice = op->body_region->yields.at[k];
    if (arguments != !r->m->values.at[slice].def) continue;
    if (arena_put_slice(r, stacked, slice, i)) continue;
    arena_load(r, slice);
    for (int rank = 0; rank < r->nranks; rank++) {
      const Held *x = held_of(r, slice, rank);
      memcpy(slice_at(r, stacked, slice, i, rank), x->at, sizeof(Num) * (size_t)x->n);
    }
  }
}

/* to[k] = from[k] for all k at once: a yield may be another carried argument. */
static void move_carried(EvalRun *r, int n, const ValueId *from, const ValueId *to) {
  int64_t total = 0;
  for (int k = 0; k < n; k++) {
    arena_load(r, from[k]);
    for (int rank = 0; rank < r->nranks; rank++) total += held_of(r, from[k], rank)->n;
  }
  Num *all = eval_scratch(r, total), *at = all;
  for (int k = 0; k < n; k++)
    for (int rank = 0; rank < r->nranks; rank++) {
      const Held *h = held_of(r, from[k], rank);
      memcpy(at, h->at, sizeof(Num) * (size_t)h->n);
      at += h->n;
    }
  for (int k = 0; k < n; k++) {
    for (int rank = 0; rank < r->nranks; rank++) {
      Held *h = held_of(r, to[k], rank);
      if (h->n != held_of(r, from[k], rank)->n) internal_error("a carried value of rank %d changes its shape", rank);
      memcpy(h->at, all, sizeof(Num) * (size_t)h->n);
      all += h->n;
    }
    arena_store(r, to[k]);
  }
}

static void run_repeat(EvalRun *r, const Op *op) {
  const Region *g = op->body_region;
  const ValueId *args = g->args.at;
  arena_enter(r, op, 0);
  move_carried(r, op->ncarried, op->in, args + 1);
  for (int64_t i = 0; i < op->trip && !r->d.failed; i++) {
    int64_t counter = op->reverse ? op->trip - 1 - i : i;
    arena_enter(r, op, counter);
    set_counter(r, args[0], counter);
    take_operands(r, op, counter);
    put_slices(r, op, counter, true);
    run_region(r, g);
    put_slices(r, op, counter, false);
    move_carried(r, op->ncarried, g->yields.at, args + 1);
  }
  move_carried(r, op->ncarried, args + 1, op->out);
}

/* ---- ops ---- */

static EvalFn *const SPACE_FN[OP_NKINDS] = {
    [OP_NEST] = eval_nest,     [OP_GATHER] = eval_nest,         [OP_SCATTER_ADD] = eval_scatter,
    [OP_ARGMAX] = eval_argmax, [OP_TOPK] = eval_topk,           [OP_SCAN] = eval_scan,
    [OP_RANDOM] = eval_random, [OP_ATTENTION] = eval_attention, [OP_ATTENTION_GRAD] = eval_attention_grad,
};

static void run_space(EvalRun *r, const Op *op) {
  for (int rank = 0; rank < r->nranks && !r->d.failed; rank++) {
    Point p = point_at(r, op, rank);
    SPACE_FN[op->kind](&p);
  }
}

static void run_effect(EvalRun *r, const Op *op) {
  if (op->kind == OP_TAP)
    vec_push(r->arena, r->taps, ((TapValue){op, held_whole(r, op->in[0])}));
  else if (r->o.in_arena)
    vec_push(r->arena, r->updates, ((LeafUpdate){op, {0}}));
  else
    vec_push(r->arena, r->updates, ((LeafUpdate){op, held_whole(r, op->in[1])}));
}

/* After the program. In the arena one leaf after another, from where its next value lies. */
static void update_leaves(EvalRun *r) {
  for (int i = 0; i < r->updates.n; i++) {
    const LeafUpdate *u = &r->updates.at[i];
    if (!r->o.in_arena) {
      deal(r, u->op->in[0], u->value.at);
      continue;
    }
    arena_load(r, u->op->in[1]);
    copy_held(r, u->op->in[1], u->op->in[0]);
    arena_store(r, u->op->in[0]);
  }
}

/* From stage scheduled on a collective only starts where it stands; its wait does the work. */
static void end_collective(EvalRun *r, const Op *op) {
  r->now = op;
  arena_land(r, op);
  eval_layout(r, op);
  for (int i = 0; i < op->nout; i++) arena_store(r, op->out[i]);
}

static void run_op(EvalRun *r, const Op *op) {
  OpClass c = op_class(op->kind);
  r->now = op;
  if (c == CLS_LEAF) return;
  if (r->m->stage == STAGE_SCHEDULED && op_is_collective(op->kind)) return arena_take_off(r, op);
  if (op->kind == OP_WAIT) return end_collective(r, r->m->values.at[op->in[0]].def);
  if (c == CLS_REGION) {
    run_repeat(r, op);
    return;
  }
  arena_before(r, op);
  if (c == CLS_SPACE)
    run_space(r, op);
  else if (c == CLS_LAYOUT)
    eval_layout(r, op);
  else
    run_effect(r, op);
  for (int i = 0; i < op->nout; i++) arena_store(r, op->out[i]);
}

static void run_region(EvalRun *r, const Region *g) {
  for (int i = 0; i < g->ops.n && !r->d.failed; i++) run_op(r, g->ops.at[i]);
}

static void each_leaf(EvalRun *r, void (*f)(EvalRun *r, const Op *op)) {
  for (int s = 0; s < r->m->programs.n; s++) {
    const Region *body = r->m->programs.at[s].body;
    for (int i = 0; i < body->ops.n; i++)
      if (op_class(body->ops.at[i]->kind) == CLS_LEAF) f(r, body->ops.at[i]);
  }
}

static void store_leaf(EvalRun *r, const Op *op) { arena_store(r, op->out[0]); }
static void load_leaf(EvalRun *r, const Op *op) {
  if (op->kind == OP_PARAM || op->kind == OP_STATE) arena_load(r, op->out[0]);
}

static void remember_leaf(EvalRun *r, const Op *op) {
  if (is_data(op)) vec_push(r->arena, r->leaves, op);
}

bool eval_step(EvalRun *r, const char **why) {
  r->taps.n = 0;
  r->updates.n = 0;
  each_leaf(r, run_leaf);
  if (r->ran) arena_poison_all(r);
  r->ran = true;
  each_leaf(r, store_leaf);
  for (int s = 0; s < r->m->programs.n && !r->d.failed; s++) run_region(r, r->m->programs.at[s].body);
  if (!r->d.failed) update_leaves(r);
  each_leaf(r, load_leaf);
  if (r->d.failed && why) *why = arena_printf(r->arena, "%s: %s", r->now ? eval_where(r, r->now) : "a leaf", r->d.why);
  return !r->d.failed;
}

/* ---- results ---- */

Tensor eval_tap(EvalRun *r, TapKind tap, const char *name) {
  for (int i = 0; i < r->taps.n; i++) {
    const Op *op = r->taps.at[i].op;
    if (op->tap == tap && (!name || (op->name && !strcmp(op->name, name)))) return r->taps.at[i].value;
  }
  return (Tensor){.rank = -1};
}

/* Leaves are asked for in the program's order, so each is looked for behind the one that was asked for last. */
Tensor eval_leaf(EvalRun *r, const char *name) {
  if (!r->leaves.n) each_leaf(r, remember_leaf);
  for (int i = 0; i < r->leaves.n; i++) {
    const Op *op = r->leaves.at[(r->next_leaf + i) % r->leaves.n];
    if (strcmp(leaf_name(r, op), name)) continue;
    r->next_leaf = (r->next_leaf + i + 1) % r->leaves.n;
    return held_whole(r, op->out[0]);
  }
  return (Tensor){.rank = -1};
}

/* The first rank that holds the same box and the same contribution as `rank`. */
static int first_replica(const EvalRun *r, ValueId v, int rank) {
  const Type *t = type_of(r, v);
  const Held *h = held_of(r, v, rank);
  for (int other = 0; other < rank; other++) {
    const Held *o = held_of(r, v, other);
    bool same = true;
    for (int k = 0; k < t->rank; k++) same = same && o->lo[k] == h->lo[k] && o->size[k] == h->size[k];
    for (int k = 0; k < t->pending.n; k++)
      same = same && part_coord(&r->m->mesh, t->pending.part[k], rank) == part_coord(&r->m->mesh, t->pending.part[k], other);
    if (same) return other;
  }
  return rank;
}

bool eval_agree(EvalRun *r, const char **why) {
  for (ValueId v = 0; v < r->m->values.n; v++)
    for (int rank = 1; rank < r->nranks; rank++) {
      int other = first_replica(r, v, rank);
      const Held *a = held_of(r, v, rank), *b = held_of(r, v, other);
      for (int64_t e = 0; e < a->n; e++) {
        if (domain_equal(r->d.kind, type_of(r, v)->dtype, a->at[e], b->at[e])) continue;
        if (why) *why = arena_printf(r->arena, "%%%s differs between ranks %d and %d", r->m->values.at[v].name, other, rank);
        return false;
      }
    }
  return true;
}

int64_t eval_received(const EvalRun *r, int64_t rank) { return r->received[rank]; }
int64_t eval_sent(const EvalRun *r, int64_t rank) { return r->sent[rank]; }
