/* save.c: what the reverse of a repeat is handed. The gradient saved every value of the forward body that the reverse
   reads; now that collectives are known, a saved value goes again if the reverse can have it cheaply: a map of what it
   has anyway is computed again, what was gathered, or fetched from neighbours, is so again (its layout was chosen to be
   small), unless --keep-gathered. Products, row statistics and reduced sums stay.

     %x.all, %a.all, %t.all = repeat %l < L=4 ... { %a = nest sum[k] ..  %t[b,j] = nest tanh(%a[b,j])  yield .. save(%x, %a, %t) }
     repeat reverse ... each(%x.1 = %x.all, %a.1 = %a.all, %t.1 = %t.all) { %d[b,j] = nest .. %t.1[b,j] .. }
   becomes
     %x.all, %a.all = repeat ...                                                        save(%x, %a) }
     repeat reverse ... each(%x.1 = %x.all, %a.1 = %a.all) { %t.2[b,j] = nest tanh(%a.1[b,j])   %d[b,j] = nest .. %t.2[b,j] .. }
 */
#include "part.h"

#include <stdlib.h>

enum { NOWHERE = -1, NOT_TRIED = -2, DEEPEST = 6 }; /* of ops computed again one after the other, for one value */

typedef struct {
  Module *m;
  Arena *scratch;
  bool keep_gathered;
  Op *forward, *back;
  int n;             /* values before any was made */
  ValueId *argument; /* per result of forward: the reverse body's argument that it is handed to, or NOWHERE */
  ValueId *there;    /* per value of the forward body: the reverse body's, NOWHERE or NOT_TRIED */
  ValueId *instead;  /* per argument of the reverse body: what stands for it now, or NOWHERE */
  int *height;       /* per value of the forward body: how deep it is to compute again; more than DEEPEST: not at all */
  int *first;        /* per value of the reverse body: position of its first use */
  VEC(Op *) again;   /* clones, in the forward order */
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
  bool fetches = op_class(op->kind) == CLS_LAYOUT && type_windowed(&s->m->values.at[op->out[0]].type);
  if (op->kind == OP_ALL_GATHER || fetches) return !s->keep_gathered && op->nin == 1;
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

/* How deep it is to compute v again from what the reverse has; what is saved counts as there. Operands before results. */
static void find_heights(Save *s) {
  const Region *r = body(s->forward);
  for (int i = 0; i < r->args.n; i++) s->height[r->args.at[i]] = i > 0 && i <= s->forward->ncarried ? DEEPEST + 1 : 0;
  for (int i = 0; i < r->ops.n; i++) {
    const Op *op = r->ops.at[i];
    int deepest = op->nout == 1 && is_cheap(s, op) ? 0 : DEEPEST;
    for (int k = 0; k < op->nin; k++)
      if (s->there[op->in[k]] == NOT_TRIED && s->height[op->in[k]] > deepest) deepest = s->height[op->in[k]];
    for (int k = 0; k < op->nout; k++) s->height[op->out[k]] = deepest + 1;
  }
}

/* ---- putting clones where they are first needed ------------------------------------------------------------------- */

static ValueId now(const Save *s, ValueId v) {
  while (v < s->n && s->instead[v] != NOWHERE) v = s->instead[v];
  return v;
}

static void replace_operands(const Save *s, Op *op) {
  for (int k = 0; k < op->nin; k++) op->in[k] = now(s, op->in[k]);
}

/* In the reverse body, and in clones: those made before their operands were pruned read what stands for them. */
static void replace_pruned(Save *s) {
  Region *r = body(s->back);
  for (int i = 0; i < r->ops.n; i++) replace_operands(s, r->ops.at[i]);
  for (int i = 0; i < r->yields.n; i++) r->yields.at[i] = now(s, r->yields.at[i]);
  for (int i = 0; i < s->again.n; i++) replace_operands(s, s->again.at[i]);
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

static int by_order(const void *a, const void *b) { return (*(Op *const *)a)->order - (*(Op *const *)b)->order; }

/* A clone has the order of its original, so that it stands behind the clones that it reads. */
static void place_clones(Save *s) {
  if (!s->again.n) return;
  qsort(s->again.at, (size_t)s->again.n, sizeof *s->again.at, by_order);
  Region *r = body(s->back);
  s->first = NEW_ARRAY(s->scratch, int, s->m->values.n);
  find_first(s, s->m->values.n);
  Op **old = r->ops.at;
  int n = r->ops.n, *head = NEW_ARRAY(s->scratch, int, n + 1), *next = NEW_ARRAY(s->scratch, int, s->again.n);
  for (int i = 0; i <= n; i++) head[i] = -1;
  for (int k = s->again.n - 1; k >= 0; k--) {
    int at = s->first[s->again.at[k]->out[0]];
    next[k] = head[at], head[at] = k;
  }
  r->ops.at = NULL;
  r->ops.n = r->ops.cap = 0;
  for (int i = 0; i <= n; i++) {
    for (int k = head[i]; k >= 0; k = next[k]) ir_append(s->m, r, s->again.at[k]);
    if (i < n) ir_append(s->m, r, old[i]);
  }
}

/* ---- one pair of loops -------------------------------------------------------------------------------------------- */

static bool is_saved(const Module *m, const Op *forward, ValueId v) {
  return m->values.at[v].def == forward && m->values.at[v].result >= forward->nout - forward->nsaved;
}

/* The only op that reads what `forward` saved; or NULL. */
static Op *only_reader(const Module *m, const Region *r, const Op *forward) {
  Op *back = NULL;
  for (int i = forward->order + 1; i < r->ops.n; i++)
    for (int k = 0; k < r->ops.at[i]->nin; k++) {
      if (!is_saved(m, forward, r->ops.at[i]->in[k])) continue;
      if (back && back != r->ops.at[i]) return NULL;
      back = r->ops.at[i];
    }
  return back;
}

/* Where the reverse takes slices of what was saved. False if it takes something of it whole. */
static bool find_arguments(Save *s) {
  const Op *f = s->forward, *back = s->back;
  for (int o = 0; o < f->nout; o++) s->argument[o] = NOWHERE;
  for (int i = back->nin - 1; i >= back->ncarried + back->ninvariant; i--)
    if (is_saved(s->m, f, back->in[i])) s->argument[s->m->values.at[back->in[i]].result] = body(back)->args.at[1 + i];
  for (int i = 0; i < back->ncarried + back->ninvariant; i++)
    if (is_saved(s->m, f, back->in[i]) && s->argument[s->m->values.at[back->in[i]].result] == NOWHERE) return false;
  return true;
}

static void prune(Save *s) {
  const Op *f = s->forward;
  int first = f->nout - f->nsaved;
  for (int o = first; o < f->nout; o++)
    if (s->argument[o] != NOWHERE) s->there[body(f)->yields.at[o]] = s->argument[o];
  find_heights(s);
  for (int o = f->nout - 1; o >= first; o--) {
    ValueId v = body(f)->yields.at[o], arg = s->there[v];
    if (arg < 0 || arg >= s->n || s->height[v] > DEEPEST) continue;
    s->there[v] = NOT_TRIED;
    s->instead[arg] = reach(s, v);
  }
  replace_pruned(s);
}

/* ---- --keep-gathered ------------------------------------------------------------------------------------------------ */

static bool gathers_one(const Op *op) { return op->kind == OP_ALL_GATHER && op->nin == 1; }

/* Hands what the forward loop gathered to the reverse, in place of `again`. */
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
  s->instead[again] = part_hand_in(m, s->back, out, true, &t, name);
}

/* Per value of which the reverse may take slices: what the forward body calls such a slice. */
static ValueId *forward_slices(const Save *s) {
  const Op *f = s->forward;
  ValueId *slice = NEW_ARRAY(s->scratch, ValueId, s->n);
  for (int v = 0; v < s->n; v++) slice[v] = NOWHERE;
  for (int i = f->nin - 1; i >= f->ncarried + f->ninvariant; i--) slice[f->in[i]] = body(f)->args.at[1 + i];
  for (int o = f->nout - f->nsaved; o < f->nout; o++) slice[f->out[o]] = body(f)->yields.at[o];
  return slice;
}

/* The forward body's gathers by operand: the first one's position, and for each the next one of the same. */
typedef struct {
  int *first, *next;
} Gathers;

static Gathers forward_gathers(const Save *s) {
  const Region *f = body(s->forward);
  Gathers g = {NEW_ARRAY(s->scratch, int, s->n), NEW_ARRAY(s->scratch, int, f->ops.n + 1)};
  for (int v = 0; v < s->n; v++) g.first[v] = -1;
  for (int i = f->ops.n - 1; i >= 0; i--) {
    if (!gathers_one(f->ops.at[i])) continue;
    g.next[i] = g.first[f->ops.at[i]->in[0]];
    g.first[f->ops.at[i]->in[0]] = i;
  }
  return g;
}

/* What the forward loop gathered of the same slice into the same layout, or NOWHERE. */
static ValueId gathered_before(const Save *s, const Gathers *g, const ValueId *slice, const Op *again) {
  const Value *x = &s->m->values.at[again->in[0]];
  if (x->def || x->result - 1 < s->back->ncarried + s->back->ninvariant) return NOWHERE;
  ValueId here = slice[s->back->in[x->result - 1]];
  for (int i = here == NOWHERE ? -1 : g->first[here]; i >= 0; i = g->next[i]) {
    ValueId v = body(s->forward)->ops.at[i]->out[0];
    if (sharding_equal(&s->m->values.at[v].type, &s->m->values.at[again->out[0]].type)) return v;
  }
  return NOWHERE;
}

/* Both loops gather the same: slices of one outer value, or what the forward loop saves. */
static void keep_gathered(Save *s) {
  const Region *b = body(s->back);
  ValueId *slice = forward_slices(s), *before = NEW_ARRAY(s->scratch, ValueId, b->ops.n + 1);
  Gathers g = forward_gathers(s);
  for (int i = 0; i < b->ops.n; i++)
    before[i] = gathers_one(b->ops.at[i]) ? gathered_before(s, &g, slice, b->ops.at[i]) : NOWHERE;
  for (int i = 0; i < b->ops.n; i++)
    if (before[i] != NOWHERE) keep(s, before[i], b->ops.at[i]->out[0]);
  replace_pruned(s);
}

/* ---- the pass --------------------------------------------------------------------------------------------------------- */

static ValueId *filled(Arena *a, int n, ValueId value) {
  ValueId *list = NEW_ARRAY(a, ValueId, n + 1);
  for (int i = 0; i < n; i++) list[i] = value;
  return list;
}

static Save begin(Module *m, bool keep_gathered, Op *forward, Op *back) {
  Arena *a = arena_new();
  int n = m->values.n;
  return (Save){.m = m,
                .scratch = a,
                .keep_gathered = keep_gathered,
                .forward = forward,
                .back = back,
                .n = n,
                .argument = NEW_ARRAY(a, ValueId, forward->nout),
                .there = filled(a, n, NOT_TRIED),
                .instead = filled(a, n, NOWHERE),
                .height = NEW_ARRAY(a, int, n + 1)};
}

static void end(Save *s) {
  ir_number(s->m);
  arena_free(s->scratch);
}

static void save_pair(Module *m, const PassContext *cx, Op *forward, Op *back) {
  Save s = begin(m, cx->keep_gathered, forward, back);
  bool slices = find_arguments(&s);
  if (slices) prune(&s), place_clones(&s);
  end(&s);
  if (!slices || !cx->keep_gathered) return;
  s = begin(m, true, forward, back);
  keep_gathered(&s);
  end(&s);
}

static void save_region(Module *m, const PassContext *cx, Region *r) {
  for (int i = 0; i < r->ops.n; i++) {
    Op *op = r->ops.at[i];
    if (op->kind != OP_REPEAT) continue;
    save_region(m, cx, op->body_region);
    Op *back = op->nsaved ? only_reader(m, r, op) : NULL;
    if (back && back->kind == OP_REPEAT) save_pair(m, cx, op, back);
  }
}

void part_save(Module *m, PassContext *cx) {
  ir_number(m);
  for (int i = 0; i < m->programs.n; i++) save_region(m, cx, m->programs.at[i].body);
  ir_dead_code(m);
}
