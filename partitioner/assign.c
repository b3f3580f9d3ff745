/* assign.c: the choice of layouts over the whole program. One mesh axis after the other, everything that the axis may do is
   chosen at once, at least cost, while the other axes stay (graph.c, minsum.c); then two axes, or all, as if they were one;
   again and again until no move finds anything better. Every step makes the plan cheaper, so this ends, and never with a
   plan that costs more than the one it began with (greedy.c).

     FSDP: x[b@data, d] . w[d@data, f]     the axis data: split b and gather w, or split d and reduce the result
     x[b@(data, model), d] needed whole    either axis alone: two gathers in the place of one; both: none

   The innermost axis goes first. Where one axis has chosen, the next finds another problem, and where tables had to be
   made small (minsum.h), another result; so small programs in which they had to be are planned in the other order as well,
   all axes together first, and the better plan is taken. In others axes are not taken together; in large ones one that saves
   less than a ten thousandth is not worth another round. */
#include "graph.h"

enum {
  MAX_SWEEPS = 8,
  MAX_TABLE = 1 << 16,
  SMALL = 600 /* variables times axes */,
  LARGE = 10000 /* variables */
};

/* ---- plans that are kept ----------------------------------------------------------------------------------------- */

typedef struct {
  Decision *decided;
  ValueState *state;
} Plans;

static Decision copy_decision(Arena *a, const Decision *d, int factors, int slots) {
  Decision out = {NEW_ARRAY(a, Split, factors + 1), NEW_ARRAY(a, Pending, slots + 1)};
  memcpy(out.split, d->split, sizeof *out.split * (size_t)factors);
  memcpy(out.sums, d->sums, sizeof *out.sums * (size_t)slots);
  return out;
}

static Plans *take_plans(Reshard *r) {
  Plans *p = NEW(r->scratch, Plans);
  p->decided = NEW_ARRAY(r->scratch, Decision, r->nops + 1);
  for (int i = 0; i < r->nops; i++)
    if (r->decided[i].split) p->decided[i] = copy_decision(r->scratch, &r->decided[i], r->factors[i]->n, r->operands[i].n);
  p->state = NEW_ARRAY(r->scratch, ValueState, r->m->values.n + 1);
  memcpy(p->state, r->state, sizeof *p->state * (size_t)r->m->values.n);
  return p;
}

static void put_plans(Reshard *r, const Plans *p) {
  for (int i = 0; i < r->nops; i++)
    if (r->decided[i].split) r->decided[i] = copy_decision(r->scratch, &p->decided[i], r->factors[i]->n, r->operands[i].n);
  memcpy(r->state, p->state, sizeof *p->state * (size_t)r->m->values.n);
}

/* ---- what is known of plans --------------------------------------------------------------------------------------- */

/* That an axis finds nothing better than a plan, in one way of making tables small. */
typedef struct {
  uint64_t plan;
  unsigned axes;
  bool hold, exact;
  double cost; /* of the plan */
} DeadEnd;

typedef struct {
  Reshard *r;
  int variables;     /* of the problem that was solved last */
  bool exact;        /* no table of the sweeps since this was set had to be made small */
  VEC(DeadEnd) dead; /* sweeps of small programs meet the same plans again and again */
} Sweeps;

static uint64_t hash_word(uint64_t h, int64_t x) { return (h ^ (uint64_t)x ^ h >> 29) * UINT64_C(0x9e3779b97f4a7c15); }

static uint64_t hash_parts(uint64_t h, int n, const AxisPart *part) {
  for (int i = 0; i < n; i++) h = hash_word(hash_word(hash_word(h, part[i].axis), part[i].pre), part[i].size);
  return hash_word(h, n);
}

static uint64_t hash_dims(uint64_t h, const Type *t) {
  for (int d = 0; d < t->rank; d++)
    h = hash_word(hash_parts(h, t->dim[d].split.n, t->dim[d].split.part), t->dim[d].split.granule);
  return h;
}

/* Of all that graph_decide writes. */
static uint64_t hash_plan(const Reshard *r) {
  uint64_t h = 1;
  for (int i = 0; i < r->nops; i++) {
    const Decision *d = &r->decided[i];
    for (int k = 0; d->split && k < r->factors[i]->n; k++)
      h = hash_word(hash_parts(h, d->split[k].n, d->split[k].part), d->split[k].granule);
    for (int o = 0; d->split && o < r->operands[i].n; o++) h = hash_parts(h, d->sums[o].n, d->sums[o].part);
  }
  for (int v = 0; v < r->m->values.n; v++) {
    const ValueState *s = &r->state[v];
    h = hash_dims(hash_dims(hash_word(h, s->delivers), &s->home), &s->place);
    h = hash_parts(h, s->place.pending.n, s->place.pending.part);
  }
  return h;
}

static const DeadEnd *dead_end(const Sweeps *s, uint64_t plan, unsigned axes, bool hold) {
  for (int i = s->dead.n - 1; i >= 0; i--) {
    const DeadEnd *d = &s->dead.at[i];
    if (d->plan == plan && d->axes == axes && d->hold == hold) return d;
  }
  return NULL;
}

/* Where nothing was made small there is but one way, and what it finds cannot be bettered by the same axis. */
static void note_dead_end(Sweeps *s, unsigned axes, bool hold, bool exact, double cost) {
  uint64_t plan = hash_plan(s->r);
  vec_push(s->r->scratch, s->dead, ((DeadEnd){plan, axes, hold, exact, cost}));
  if (exact) vec_push(s->r->scratch, s->dead, ((DeadEnd){plan, axes, !hold, exact, cost}));
}

/* ---- sweeps ---------------------------------------------------------------------------------------------------------- */

/* Axes that are chosen together, as if they were one. */
typedef struct {
  int n, axis[MAX_AXES];
  unsigned axes;
} Move;

enum { MAX_MOVES = MAX_AXES * (MAX_AXES + 1) / 2 + 1 };

static double improve(Sweeps *s, const Move *move, bool hold, bool *better) {
  const DeadEnd *known = dead_end(s, hash_plan(s->r), move->axes, hold);
  *better = false;
  if (known) s->exact &= known->exact;
  if (known) return known->cost;
  Arena *a = arena_new();
  Graph *g = graph_build(s->r, move->n, move->axis, a);
  const MinSum *p = graph_problem(g);
  int *x = NEW_ARRAY(a, int, p->n + 1);
  graph_now(g, x);
  bool exact;
  bool large = p->n > LARGE;
  double before = minsum_cost(p, x), after = minsum_improve(p, x, MAX_TABLE, hold, &exact);
  s->variables = p->n;
  s->exact &= exact;
  *better = after < before * (1 - (large ? 1e-4 : 1e-9));
  if (*better) graph_decide(g, x);
  if (!*better || exact) note_dead_end(s, move->axes, hold, exact, *better ? after : before);
  arena_free(a);
  return *better ? after : before;
}

/* Tries the moves in order until none finds anything better; the cost that is left. */
static double sweep(Sweeps *s, int n, const Move *move, bool hold) {
  double cost = 0;
  for (int i = 0, since = 0; i < MAX_SWEEPS * n && since < n; i++) {
    bool better;
    cost = improve(s, &move[i % n], hold, &better);
    since = better ? 0 : since + 1;
  }
  return cost;
}

static void add_move(int *n, Move *move, int naxes, const int *axis) {
  Move *m = &move[(*n)++];
  *m = (Move){.n = naxes};
  for (int i = 0; i < naxes; i++) m->axis[i] = axis[i], m->axes |= 1u << axis[i];
}

/* One axis each, the innermost first; then any two; then all. Returns how many; *single: how many of them are one axis. */
static int find_moves(const Mesh *m, Move move[MAX_MOVES], int *single) {
  int axis[MAX_AXES], naxes = 0, n = 0;
  for (int i = 0; i < m->naxes; i++)
    if (m->axis[i].size > 1) axis[naxes++] = i;
  for (int i = naxes - 1; i >= 0; i--) add_move(&n, move, 1, &axis[i]);
  *single = n;
  for (int i = naxes - 1; i >= 0; i--)
    for (int j = naxes - 1; j > i; j--) add_move(&n, move, 2, (int[]){axis[i], axis[j]});
  if (naxes > 2) add_move(&n, move, naxes, axis);
  return n;
}

void assign_layouts(Reshard *r) {
  Sweeps s = {.r = r, .exact = true};
  Move move[MAX_MOVES], other_way[MAX_MOVES];
  int single, n = find_moves(&r->m->mesh, move, &single);
  for (int i = 0; i < n; i++) other_way[i] = move[n - 1 - i];
  for (int v = 0; v < r->m->values.n; v++) /* a single use has it made as it needs it */
    if (r->state[v].uses.n < 2 && !r->state[v].pinned) r->state[v].delivers = false;
  if (n == 0) return;
  const Plans *greedy = r->nops < SMALL ? take_plans(r) : NULL;
  double cost = sweep(&s, single, move, false);
  if (!greedy || s.variables * single > SMALL) return;
  if (n > single) cost = sweep(&s, n, move, false);
  if (s.exact) return;
  const Plans *first = take_plans(r);
  put_plans(r, greedy);
  if (sweep(&s, n, other_way, true) >= cost) put_plans(r, first);
}
