/* save.c: what the reverse of a repeat is handed. The gradient saved every value of the forward body that the reverse
   reads; now that collectives are known, a saved value goes again if the reverse can have it cheaply: a map of what it
   has anyway is computed again, what was gathered is gathered again (its layout was chosen to be small), unless
   --keep-gathered. Products, row statistics and reduced sums stay.

     %x.all, %a.all, %t.all = repeat %l < L=4 ... { %a = nest sum[k] ..  %t[b,j] = nest tanh(%a[b,j])  yield .. save(%x, %a, %t) }
     repeat reverse ... each(%x.1 = %x.all, %a.1 = %a.all, %t.1 = %t.all) { %d[b,j] = nest .. %t.1[b,j] .. }
   becomes
     %x.all, %a.all = repeat ...                                                        save(%x, %a) }
     repeat reverse ... each(%x.1 = %x.all, %a.1 = %a.all) { %t.2[b,j] = nest tanh(%a.1[b,j])   %d[b,j] = nest .. %t.2[b,j] .. }
 */
#include "part.h"

enum { NOWHERE = -1, NOT_TRIED = -2 };

typedef struct {
  Module *m;
  Arena *scratch;
  bool keep_gathered;
  Op *forward, *back;
  ValueId *there;  /* per value of the forward body: the reverse body's, NOWHERE or NOT_TRIED */
  int *first;      /* per value of the reverse body: position of its first use */
  VEC(Op *) again; /* clones, in the forward order */
} Save;

static Region *body(const Op *repeat) { return repeat->body_region; }

/* ---- entries of a repeat ------------------------------------------------------------------------------------ */

static ValueId *insert_id(Module *m, ValueId *list, int n, int at, ValueId v) {
  ValueId *longer = NEW_ARRAY(m->arena, ValueId, n + 1);
  for (int i = 0; i < n; i++) longer[i < at ? i : i + 1] = list[i];
  longer[at] = v;
  return longer;
}

ValueId part_hand_in(Module *m, Op *repeat, ValueId outer, bool stacked, const Type *inside, const char *name) {
  int first = stacked ? repeat->ncarried + repeat->ninvariant : repeat->ncarried;
  int n = stacked ? repeat->nstacked : repeat->ninvariant;
  for (int i = first; i < first + n; i++)
    if (repeat->in[i] == outer) return body(repeat)->args.at[1 + i];
  ValueId arg = ir_arg(m, body(repeat), name, *inside);
  Region *r = body(repeat);
  for (int i = r->args.n - 1; i > 1 + first + n; i--) r->args.at[i] = r->args.at[i - 1];
  r->args.at[1 + first + n] = arg;
  repeat->in = insert_id(m, repeat->in, repeat->nin++, first + n, outer);
  *(stacked ? &repeat->nstacked : &repeat->ninvariant) += 1;
  return arg;
}

/* ---- what the reverse can have ------------------------------------------------------------------------------- */

static ValueId reach(Save *s, ValueId v);

static bool is_map(const Op *op) {
  return (op->kind == OP_NEST && op->space.n == op->space.nout) || op->kind == OP_RANDOM || op->kind == OP_SLICE;
}

/* A value much smaller than what it is computed from is kept. */
static bool worth_again(const Module *m, const Op *op) {
  int64_t out = type_capacity(&m->values.at[op->out[0]].type);
  for (int i = 0; i < op->nin; i++)
    if (type_capacity(&m->values.at[op->in[i]].type) / 8 > out) return false;
  return true;
}

static bool is_cheap(const Save *s, const Op *op) {
  if (op->kind == OP_ALL_GATHER) return !s->keep_gathered && op->nin == 1;
  return is_map(op) && worth_again(s->m, op);
}

static Op *clone_op(Save *s, const Op *op) {
  Op *again = NEW(s->m->arena, Op);
  *again = *op;
  again->phase = PHASE_BACKWARD;
  again->tag = TAG_NONE;
  again->in = again->out = NULL;
  again->nin = again->nout = 0;
  for (int i = 0; i < op->nin; i++) ir_in(s->m, again, s->there[op->in[i]]);
  if (op->why) again->why = arena_printf(s->m->arena, "%s; again for the reverse", op->why);
  return again;
}

static ValueId compute_again(Save *s, ValueId v) {
  const Op *def = s->m->values.at[v].def;
  if (!def || def->nout != 1 || !is_cheap(s, def)) return NOWHERE;
  for (int i = 0; i < def->nin; i++)
    if (reach(s, def->in[i]) == NOWHERE) return NOWHERE;
  Op *again = clone_op(s, def);
  ValueId out = ir_out(s->m, again, s->m->values.at[v].name, s->m->values.at[v].type);
  vec_push(s->scratch, s->again, again);
  return out;
}

/* An argument of the forward body that is the same, or a slice of the same, for the reverse. */
static ValueId argument_again(Save *s, ValueId v) {
  const Op *f = s->forward;
  int i = s->m->values.at[v].result - 1;
  if (i < 0) return body(s->back)->args.at[0];
  if (i < f->ncarried) return NOWHERE;
  Type t = s->m->values.at[v].type;
  return part_hand_in(s->m, s->back, f->in[i], i >= f->ncarried + f->ninvariant, &t, s->m->values.at[v].name);
}

static ValueId reach(Save *s, ValueId v) {
  if (s->there[v] != NOT_TRIED) return s->there[v];
  s->there[v] = NOWHERE; /* until known */
  ValueId w = s->m->values.at[v].def ? compute_again(s, v) : argument_again(s, v);
  return s->there[v] = w;
}

/* Can v be reached without any of what it stands for being saved itself? Checked before anything is made. */
static bool reachable(const Save *s, ValueId v, int depth) {
  if (s->there[v] >= 0) return true;
  const Value *x = &s->m->values.at[v];
  if (!x->def) return x->result - 1 < 0 || x->result - 1 >= s->forward->ncarried;
  if (depth == 0 || x->def->nout != 1 || !is_cheap(s, x->def)) return false;
  for (int i = 0; i < x->def->nin; i++)
    if (!reachable(s, x->def->in[i], depth - 1)) return false;
  return true;
}

/* ---- putting clones where they are first needed ------------------------------------------------------------------- */

static void replace_in(Region *r, ValueId from, ValueId to) {
  for (int i = 0; i < r->ops.n; i++)
    for (int k = 0; k < r->ops.at[i]->nin; k++)
      if (r->ops.at[i]->in[k] == from) r->ops.at[i]->in[k] = to;
  for (int i = 0; i < r->yields.n; i++)
    if (r->yields.at[i] == from) r->yields.at[i] = to;
}

static void find_first(const Save *s, int nvalues) {
  const Region *r = body(s->back);
  for (int v = 0; v < nvalues; v++) s->first[v] = r->ops.n;
  for (int i = r->ops.n - 1; i >= 0; i--)
    for (int k = 0; k < r->ops.at[i]->nin; k++) s->first[r->ops.at[i]->in[k]] = i;
  for (int i = s->again.n - 1; i >= 0; i--) {
    const Op *op = s->again.at[i];
    for (int k = 0; k < op->nin; k++)
      if (s->first[op->out[0]] < s->first[op->in[k]]) s->first[op->in[k]] = s->first[op->out[0]];
  }
}

static void place_clones(Save *s) {
  Region *r = body(s->back);
  s->first = NEW_ARRAY(s->scratch, int, s->m->values.n);
  find_first(s, s->m->values.n);
  Op **old = r->ops.at;
  int n = r->ops.n;
  r->ops.at = NULL;
  r->ops.n = r->ops.cap = 0;
  for (int i = 0; i <= n; i++) {
    for (int k = 0; k < s->again.n; k++)
      if (s->first[s->again.at[k]->out[0]] == i) ir_append(s->m, r, s->again.at[k]);
    if (i < n) ir_append(s->m, r, old[i]);
  }
}

/* ---- one pair of loops -------------------------------------------------------------------------------------------- */

static int slot_of(const Op *op, ValueId v) {
  for (int i = op->ncarried + op->ninvariant; op->kind == OP_REPEAT && i < op->nin; i++)
    if (op->in[i] == v) return i;
  return -1;
}

/* The reverse that takes all that `forward` saved, and nobody else does; or NULL. */
static Op *reverse_of(const Region *r, const Op *forward) {
  Op *back = NULL;
  for (int i = 0; i < r->ops.n; i++)
    for (int k = 0; k < r->ops.at[i]->nin; k++)
      for (int o = forward->nout - forward->nsaved; o < forward->nout; o++) {
        if (r->ops.at[i]->in[k] != forward->out[o]) continue;
        if (slot_of(r->ops.at[i], forward->out[o]) < 0 || (back && back != r->ops.at[i])) return NULL;
        back = r->ops.at[i];
      }
  return back;
}

static void prune(Save *s) {
  Op *f = s->forward;
  int n = s->m->values.n;
  s->there = NEW_ARRAY(s->scratch, ValueId, n);
  for (int v = 0; v < n; v++) s->there[v] = NOT_TRIED;
  int first = f->nout - f->nsaved;
  for (int o = first; o < f->nout; o++) {
    int slot = slot_of(s->back, f->out[o]);
    if (slot >= 0) s->there[body(f)->yields.at[o]] = body(s->back)->args.at[1 + slot];
  }
  for (int o = f->nout - 1; o >= first; o--) {
    ValueId v = body(f)->yields.at[o], arg = s->there[v];
    if (arg < 0 || arg >= n) continue;
    s->there[v] = NOT_TRIED;
    if (!reachable(s, v, 6)) {
      s->there[v] = arg;
      continue;
    }
    replace_in(body(s->back), arg, reach(s, v));
  }
  for (int i = 0; i < s->again.n; i++) /* clones made before their operands were pruned read those again */
    for (int k = 0; k < s->again.at[i]->nin; k++)
      for (int o = first; o < f->nout; o++) {
        int slot = slot_of(s->back, f->out[o]);
        if (slot >= 0 && s->again.at[i]->in[k] == body(s->back)->args.at[1 + slot])
          s->again.at[i]->in[k] = s->there[body(f)->yields.at[o]];
      }
}

/* Clones may have been made before the clones that they read now. */
static void sort_clones(Save *s) {
  for (int i = 0; i < s->again.n; i++)
    for (int k = 0; k < s->again.at[i]->nin; k++)
      for (int j = i + 1; j < s->again.n; j++) {
        if (s->again.at[j]->out[0] != s->again.at[i]->in[k]) continue;
        Op *late = s->again.at[j];
        for (int x = j; x > i; x--) s->again.at[x] = s->again.at[x - 1];
        s->again.at[i] = late;
        k = -1; /* look again at what now stands at i */
        break;
      }
}

/* ---- --keep-gathered ------------------------------------------------------------------------------------------------ */

static bool gathers_one(const Op *op) { return op->kind == OP_ALL_GATHER && op->nin == 1; }

/* Do both loops gather the same: slices of one outer value, or what the forward loop saves? */
static bool same_source(const Save *s, ValueId forward, ValueId back) {
  const Op *f = s->forward, *b = s->back;
  const Value *there = &s->m->values.at[back], *here = &s->m->values.at[forward];
  if (there->def || there->result - 1 < b->ncarried + b->ninvariant) return false;
  ValueId outer = b->in[there->result - 1];
  if (!here->def && here->result - 1 >= f->ncarried + f->ninvariant) return f->in[here->result - 1] == outer;
  for (int o = f->nout - f->nsaved; o < f->nout; o++)
    if (f->out[o] == outer && body(f)->yields.at[o] == forward) return true;
  return false;
}

static void keep(Save *s, ValueId v, ValueId again) {
  Module *m = s->m;
  Type t = m->values.at[v].type, all = {.dtype = t.dtype, .rank = t.rank + 1};
  if (t.rank == MAX_RANK) return;
  all.dim[0] = (Dim){.name = s->forward->trip_dim, .size = s->forward->trip};
  for (int d = 0; d < t.rank; d++) all.dim[d + 1] = t.dim[d];
  const char *name = m->values.at[v].name;
  vec_push(m->arena, body(s->forward)->yields, v);
  ValueId out = ir_out(m, s->forward, arena_printf(m->arena, "%s.all", name), all);
  s->forward->nsaved++;
  replace_in(body(s->back), again, part_hand_in(m, s->back, out, true, &t, name));
}

static void keep_gathered(Save *s) {
  const Region *f = body(s->forward), *b = body(s->back);
  for (int i = 0; i < b->ops.n; i++)
    for (int k = 0; k < f->ops.n; k++) {
      const Op *again = b->ops.at[i], *first = f->ops.at[k];
      if (!gathers_one(first) || !gathers_one(again) || !same_source(s, first->in[0], again->in[0])) continue;
      if (!sharding_equal(&s->m->values.at[first->out[0]].type, &s->m->values.at[again->out[0]].type)) continue;
      keep(s, first->out[0], again->out[0]);
      ir_number(s->m);
      break;
    }
}

static void save_region(Module *m, Arena *scratch, const PassContext *cx, Region *r) {
  for (int i = 0; i < r->ops.n; i++) {
    Op *op = r->ops.at[i];
    if (op->kind != OP_REPEAT) continue;
    save_region(m, scratch, cx, op->body_region);
    Op *back = op->nsaved ? reverse_of(r, op) : NULL;
    if (!back) continue;
    Save s = {.m = m, .scratch = scratch, .keep_gathered = cx->keep_gathered, .forward = op, .back = back};
    prune(&s);
    sort_clones(&s);
    place_clones(&s);
    ir_number(m);
    if (s.keep_gathered) keep_gathered(&s);
  }
}

void part_save(Module *m, PassContext *cx) {
  Arena *scratch = arena_new();
  ir_number(m);
  for (int i = 0; i < m->programs.n; i++) save_region(m, scratch, cx, m->programs.at[i].body);
  ir_dead_code(m);
  arena_free(scratch);
}
