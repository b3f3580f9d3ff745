/* lifetimes.c: does every value still lie in its buffer when it is read? The scheduled program is run over its arena at
   full size, with intervals of bytes in place of numbers: a result takes its interval, an operand must own all of its
   own.

     buffers { %x: 0+64 %y: 32+64 }   %y = nest 2.0 * %x[i]   %z = nest %x[i] + %y[i]      z reads x: bytes 32 to 63 are y's

   The rules of aliasing are those of the interpreter's arena (eval_arena.c). Of a repeat three iterations run: the first,
   one that stands for all between, the last; only slices differ between iterations. */
#include "eval.h"

typedef struct {
  int64_t lo, hi;
  ValueId owner;
} Span;

typedef struct {
  const Module *m;
  Arena *scratch;
  VEC(Span) spans;  /* in order, disjoint, without gaps that matter */
  int64_t *place;   /* where a value lies now, -1: outside of the arena */
  int64_t *bytes;   /* how much of it: of a slice, all that the iteration stands for */
  ValueId *content; /* whose bytes those are */
  VEC(const Op *) updates;
  const Op *now;
  const char *why;
} Arenas;

/* ---- intervals ---- */

static int first_after(const Arenas *s, int64_t at) { /* the first span that ends behind `at` */
  int lo = 0, hi = s->spans.n;
  while (lo < hi) {
    int mid = (lo + hi) / 2;
    if (s->spans.at[mid].hi <= at)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo;
}

/* Replaces spans [from, to) by the n given. */
static void splice(Arenas *s, int from, int to, const Span *by, int n) {
  int tail = s->spans.n - to, grow = n - (to - from);
  for (int i = 0; i < grow; i++) vec_push(s->scratch, s->spans, ((Span){0}));
  memmove(s->spans.at + from + n, s->spans.at + to, sizeof(Span) * (size_t)tail);
  for (int i = 0; i < n; i++) s->spans.at[from + i] = by[i];
  s->spans.n = from + n + tail;
}

static void own(Arenas *s, int64_t lo, int64_t hi, ValueId owner) {
  if (lo >= hi) return;
  int from = first_after(s, lo), to = from, n = 0;
  while (to < s->spans.n && s->spans.at[to].lo < hi) to++;
  Span by[3];
  if (from < to && s->spans.at[from].lo < lo) by[n++] = (Span){s->spans.at[from].lo, lo, s->spans.at[from].owner};
  by[n++] = (Span){lo, hi, owner};
  if (from < to && s->spans.at[to - 1].hi > hi) by[n++] = (Span){hi, s->spans.at[to - 1].hi, s->spans.at[to - 1].owner};
  splice(s, from, to, by, n);
}

/* The first byte of [lo, hi) that is not owner's, or -1. */
static int64_t lost(const Arenas *s, int64_t lo, int64_t hi, ValueId owner, ValueId *other) {
  for (int i = first_after(s, lo); lo < hi; lo = s->spans.at[i++].hi) {
    bool mine = i < s->spans.n && s->spans.at[i].lo <= lo && s->spans.at[i].owner == owner;
    if (mine) continue;
    *other = i < s->spans.n && s->spans.at[i].lo <= lo ? s->spans.at[i].owner : -1;
    return lo;
  }
  return -1;
}

/* ---- values ---- */

static int64_t local_bytes(const Arenas *s, ValueId v) {
  const Type *t = &s->m->values.at[v].type;
  return type_capacity(t) * dtype_size(t->dtype);
}

static const char *name_of(const Arenas *s, ValueId v) { return v < 0 ? "nothing" : s->m->values.at[v].name; }

static void load(Arenas *s, ValueId v) {
  if (s->place[v] < 0 || s->why) return;
  ValueId other;
  int64_t at = lost(s, s->place[v], s->place[v] + s->bytes[v], s->content[v], &other);
  if (at < 0) return;
  const char *reader = s->now && s->now->nout ? name_of(s, s->now->out[0]) : "the end";
  s->why = arena_printf(s->m->arena, "%%%s is read by %%%s, but byte %lld of the arena is no longer its own: %%%s lies there",
                        name_of(s, v), reader, (long long)at, name_of(s, other));
}

static void store(Arenas *s, ValueId v) {
  if (s->place[v] < 0) return;
  own(s, s->place[v], s->place[v] + s->bytes[v], v);
  s->content[v] = v;
}

/* ---- repeat ---- */

static void run_region(Arenas *s, const Region *g);

static void move_carried(Arenas *s, int n, const ValueId *from, const ValueId *to) {
  for (int k = 0; k < n; k++) load(s, from[k]);
  for (int k = 0; k < n; k++) store(s, to[k]);
}

/* Where slices [i, i + span) of a stacked value lie; all of it where that stands for several iterations itself. */
static void slices(const Arenas *s, ValueId whole, int64_t trip, int64_t i, int64_t span, int64_t *at, int64_t *bytes) {
  int64_t size = local_bytes(s, whole) / max_i64(1, trip);
  bool several = s->bytes[whole] != local_bytes(s, whole);
  *at = s->place[whole] + (several ? 0 : i * size);
  *bytes = several ? s->bytes[whole] : span * size;
}

/* Places the body's values for iterations [i, i + span). */
static void enter(Arenas *s, const Op *op, int64_t i, int64_t span) {
  const Region *g = op->body_region;
  for (int k = 0; k < op->nin; k++) {
    ValueId arg = g->args.at[1 + k], from = op->in[k];
    bool carried = k < op->ncarried, slice = k >= op->ncarried + op->ninvariant;
    s->place[arg] = s->place[carried ? op->out[k] : from];
    if (!carried) s->content[arg] = s->content[from];
    if (!carried && !slice) s->bytes[arg] = s->bytes[from];
    if (!slice || s->place[arg] < 0) continue;
    slices(s, from, op->trip, i, span, &s->place[arg], &s->bytes[arg]);
  }
  for (int k = op->ncarried; k < op->nout; k++) {
    ValueId y = g->yields.at[k];
    const Buffer *b = s->m->buffers;
    if (!s->m->values.at[y].def || b[y].offset < 0 || b[y].offset != b[op->out[k]].offset) continue;
    slices(s, op->out[k], op->trip, i, span, &s->place[y], &s->bytes[y]);
  }
}

/* A stacked result's slice becomes its own; arguments are copied when the iteration begins, the others when it ends. */
static void put_slices(Arenas *s, const Op *op, int64_t i, int64_t span, bool arguments) {
  for (int k = op->ncarried; k < op->nout; k++) {
    ValueId all = op->out[k], slice = op->body_region->yields.at[k];
    if (arguments != !s->m->values.at[slice].def || s->place[all] < 0) continue;
    load(s, slice);
    int64_t at, bytes;
    slices(s, all, op->trip, i, span, &at, &bytes);
    own(s, at, at + bytes, all);
    s->content[all] = all;
  }
}

static void iterate(Arenas *s, const Op *op, int64_t i, int64_t span) {
  const Region *g = op->body_region;
  enter(s, op, i, span);
  store(s, g->args.at[0]);
  put_slices(s, op, i, span, true);
  run_region(s, g);
  put_slices(s, op, i, span, false);
  move_carried(s, op->ncarried, g->yields.at, g->args.at + 1);
}

static void run_repeat(Arenas *s, const Op *op) {
  const ValueId *args = op->body_region->args.at + 1;
  for (int k = op->ncarried; k < op->nin; k++) load(s, op->in[k]);
  enter(s, op, 0, 1);
  move_carried(s, op->ncarried, op->in, args);
  int64_t n = op->trip, middle = max_i64(0, n - 2);
  int64_t at[3] = {0, 1, n - 1}, span[3] = {n > 0, middle, n > 1};
  for (int k = 0; k < 3 && !s->why; k++) {
    int j = op->reverse ? 2 - k : k;
    if (span[j]) iterate(s, op, at[j], span[j]);
  }
  s->now = op;
  move_carried(s, op->ncarried, args, op->out);
}

/* ---- ops ---- */

static bool in_place(const Arenas *s, const Op *op, int i) { return arena_in_place(s->m, op, op->out[i], s->place); }

/* A collective starts: until its wait, what it will write is nobody else's. */
static ValueId under_way(ValueId v) { return -2 - v; }

static void start(Arenas *s, const Op *op) {
  for (int i = 0; i < op->nout; i++) {
    ValueId v = op->out[i];
    if (s->place[v] >= 0 && !in_place(s, op, i)) own(s, s->place[v], s->place[v] + s->bytes[v], under_way(v));
  }
}

static void finish(Arenas *s, const Op *op) {
  for (int i = 0; i < op->nout && !s->why; i++) {
    ValueId v = op->out[i], other;
    if (s->place[v] < 0 || in_place(s, op, i) || lost(s, s->place[v], s->place[v] + s->bytes[v], under_way(v), &other) < 0)
      continue;
    s->why = arena_printf(s->m->arena, "%%%s is written where %%%s is under way", name_of(s, other), name_of(s, v));
  }
  for (int i = 0; i < op->nin; i++) load(s, op->in[i]);
  for (int i = 0; i < op->nout; i++) store(s, op->out[i]);
}

static void run_op(Arenas *s, const Op *op) {
  s->now = op;
  switch (op_class(op->kind)) {
  case CLS_LEAF: return;
  case CLS_REGION: run_repeat(s, op); return;
  case CLS_EFFECT:
    if (op->kind == OP_UPDATE) vec_push(s->scratch, s->updates, op);
    if (op->kind == OP_TAP) load(s, op->in[0]);
    if (op->kind == OP_WAIT) finish(s, s->m->values.at[op->in[0]].def);
    return;
  default: break;
  }
  if (op_is_collective(op->kind)) {
    start(s, op);
    return;
  }
  for (int i = 0; i < op->nout; i++)
    if (s->place[op->out[i]] >= 0 && !in_place(s, op, i))
      own(s, s->place[op->out[i]], s->place[op->out[i]] + s->bytes[op->out[i]], -1);
  for (int i = 0; i < op->nin; i++) load(s, op->in[i]);
  for (int i = 0; i < op->nout; i++) store(s, op->out[i]);
}

static void run_region(Arenas *s, const Region *g) {
  for (int i = 0; i < g->ops.n && !s->why; i++) run_op(s, g->ops.at[i]);
}

static void each_leaf(Arenas *s, void (*f)(Arenas *s, ValueId v)) {
  for (int p = 0; p < s->m->programs.n; p++) {
    const Region *g = s->m->programs.at[p].body;
    for (int i = 0; i < g->ops.n; i++)
      if (op_class(g->ops.at[i]->kind) == CLS_LEAF && g->ops.at[i]->kind != OP_INPUT) f(s, g->ops.at[i]->out[0]);
  }
}

static void each_input(Arenas *s) {
  for (int p = 0; p < s->m->programs.n; p++) {
    const Region *g = s->m->programs.at[p].body;
    for (int i = 0; i < g->ops.n; i++)
      if (g->ops.at[i]->kind == OP_INPUT) store(s, g->ops.at[i]->out[0]);
  }
}

bool ir_check_lifetimes(const Module *m, const char **why) {
  Arena *scratch = arena_new();
  Arenas s = {.m = m, .scratch = scratch};
  s.place = NEW_ARRAY(scratch, int64_t, m->values.n + 1);
  s.bytes = NEW_ARRAY(scratch, int64_t, m->values.n + 1);
  s.content = NEW_ARRAY(scratch, ValueId, m->values.n + 1);
  for (ValueId v = 0; v < m->values.n; v++) {
    s.place[v] = m->values.at[v].region ? m->buffers[v].offset : -1;
    s.bytes[v] = s.place[v] >= 0 ? local_bytes(&s, v) : 0;
    s.content[v] = v;
  }
  each_leaf(&s, store);
  each_input(&s);
  for (int p = 0; p < m->programs.n; p++) run_region(&s, m->programs.at[p].body);
  s.now = NULL;
  for (int i = 0; i < s.updates.n; i++) {
    load(&s, s.updates.at[i]->in[1]);
    store(&s, s.updates.at[i]->in[0]);
  }
  each_leaf(&s, load);
  *why = s.why;
  arena_free(scratch);
  return !*why;
}
