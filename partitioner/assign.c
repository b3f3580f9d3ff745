/* assign.c: the choice of layouts over the whole program. One mesh axis after the other, everything that the axis may do is
   chosen at once, at least cost, while the other axes stay (graph.c, minsum.c); again and again until no axis finds
   anything better. Every step makes the plan cheaper, so this ends, and never with a plan that costs more than the one it
   began with (greedy.c).

     FSDP: x[b@data, d] . w[d@data, f]     the axis data: split b and gather w, or split d and reduce the result

   The innermost axis goes first. Where one axis has chosen, the next finds another problem, and where tables had to be
   made small (minsum.h), another result; so small programs are planned from the outermost axis on as well, and in both
   ways of making tables small, and the best plan is taken. In large ones an axis that saves less than a ten thousandth is
   not worth another round. */
#include "graph.h"

enum {
  MAX_SWEEPS = 8,
  MAX_TABLE = 1 << 16,
  SMALL = 600,
  MIDDLING = 1100 /* variables times axes */,
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
  int axis;
  bool hold, exact;
  double cost; /* of the plan */
} DeadEnd;

typedef struct {
  Reshard *r;
  int n;             /* axes of more than one coordinate */
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

static const DeadEnd *dead_end(const Sweeps *s, uint64_t plan, int axis, bool hold) {
  for (int i = s->dead.n - 1; i >= 0; i--) {
    const DeadEnd *d = &s->dead.at[i];
    if (d->plan == plan && d->axis == axis && d->hold == hold) return d;
  }
  return NULL;
}

/* Where nothing was made small there is but one way, and what it finds cannot be bettered by the same axis. */
static void note_dead_end(Sweeps *s, int axis, bool hold, bool exact, double cost) {
  uint64_t plan = hash_plan(s->r);
  vec_push(s->r->scratch, s->dead, ((DeadEnd){plan, axis, hold, exact, cost}));
  if (exact) vec_push(s->r->scratch, s->dead, ((DeadEnd){plan, axis, !hold, exact, cost}));
}

/* ---- sweeps ---------------------------------------------------------------------------------------------------------- */

static double improve(Sweeps *s, int axis, bool hold, bool *better) {
  const DeadEnd *known = dead_end(s, hash_plan(s->r), axis, hold);
  *better = false;
  if (known) s->exact &= known->exact;
  if (known) return known->cost;
  Arena *a = arena_new();
  Graph *g = graph_build(s->r, axis, a);
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
  if (!*better || exact) note_dead_end(s, axis, hold, exact, *better ? after : before);
  arena_free(a);
  return *better ? after : before;
}

/* Visits the axes in order until none finds anything better; the cost that is left. */
static double sweep(Sweeps *s, const int *axis, bool hold) {
  double cost = 0;
  for (int i = 0, since = 0; i < MAX_SWEEPS * s->n && since < s->n; i++) {
    bool better;
    cost = improve(s, axis[i % s->n], hold, &better);
    since = better ? 0 : since + 1;
  }
  return cost;
}

/* The same, also by holding variables, as often as that helps. */
static double sweep_on(Sweeps *s, const int *axis, double cost) {
  for (double now = cost;; cost = now) {
    sweep(s, axis, true);
    now = sweep(s, axis, false);
    if (now >= cost * (1 - 1e-9)) return now;
  }
}

void assign_layouts(Reshard *r) {
  const Mesh *m = &r->m->mesh;
  Sweeps s = {.r = r};
  int axis[2][MAX_AXES];
  for (int i = 0; i < m->naxes; i++)
    if (m->axis[i].size > 1) axis[1][s.n++] = i;
  for (int i = 0; i < s.n; i++) axis[0][i] = axis[1][s.n - 1 - i];
  for (int v = 0; v < r->m->values.n; v++) /* a single use has it made as it needs it */
    if (r->state[v].uses.n < 2 && !r->state[v].pinned) r->state[v].delivers = false;
  if (s.n == 0) return;
  const Plans *greedy = r->nops < MIDDLING ? take_plans(r) : NULL, *best = NULL;
  double least = 0;
  bool settled[2] = {false, s.n == 1}; /* by order: nothing was made small, so that there is but one way */
  for (int start = 0; start < 4; start++) {
    static const struct {
      int order;
      bool hold;
    } starts[] = {{0, false}, {1, true}, {1, false}, {0, true}};
    const int order = starts[start].order;
    if (settled[order]) continue;
    if (start > 0) put_plans(r, greedy);
    s.exact = true;
    double cost = sweep(&s, axis[order], starts[start].hold);
    if (!greedy || s.variables * s.n > MIDDLING) return;
    if (s.variables * s.n <= SMALL) cost = sweep_on(&s, axis[order], cost);
    settled[order] = s.exact;
    if (!best || cost < least) best = take_plans(r), least = cost;
    if (s.variables * s.n > SMALL && start == 1) break;
  }
  put_plans(r, best);
}
