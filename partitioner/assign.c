/* assign.c: the choice of layouts over the whole program. One mesh axis after the other, everything that the axis may do is
   chosen at once, at least cost, while the other axes stay (graph.c, minsum.c); again and again until no axis finds
   anything better. Every step makes the plan cheaper, so this ends, and never with a plan that costs more than the one it
   began with (greedy.c).

     FSDP: x[b@data, d] . w[d@data, f]     the axis data: split b and gather w, or split d and reduce the result

   The innermost axis goes first. Where one axis has chosen, the next finds another problem, and where tables had to be
   made small (minsum.h), another result; so small programs are planned from the outermost axis on as well, and in both
   ways of making tables small, and the best plan is taken. */
#include "graph.h"

enum { MAX_SWEEPS = 8, MAX_TABLE = 1 << 16, SMALL = 600, MIDDLING = 1100 /* variables times axes */ };

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

static double improve(Reshard *r, int axis, bool hold, int *variables, bool *better) {
  Arena *a = arena_new();
  Graph *g = graph_build(r, axis, a);
  const MinSum *p = graph_problem(g);
  int *x = NEW_ARRAY(a, int, p->n + 1);
  graph_now(g, x);
  double before = minsum_cost(p, x), after = minsum_improve(p, x, MAX_TABLE, hold);
  *variables = p->n;
  *better = after < before * (1 - 1e-9);
  if (*better) graph_decide(g, x);
  arena_free(a);
  return *better ? after : before;
}

/* Visits the axes in order until none finds anything better; the cost that is left. */
static double sweep(Reshard *r, int n, const int *axis, bool hold, int *variables) {
  double cost = 0;
  for (int i = 0, since = 0; i < MAX_SWEEPS * n && since < n; i++) {
    bool better = false;
    cost = improve(r, axis[i % n], hold, variables, &better);
    since = better ? 0 : since + 1;
  }
  return cost;
}

/* The same, also by holding variables, as often as that helps. */
static double sweep_on(Reshard *r, int n, const int *axis, double cost) {
  int variables;
  for (double now = cost;; cost = now) {
    sweep(r, n, axis, true, &variables);
    now = sweep(r, n, axis, false, &variables);
    if (now >= cost * (1 - 1e-9)) return now;
  }
}

void assign_layouts(Reshard *r) {
  const Mesh *m = &r->m->mesh;
  int n = 0, axis[2][MAX_AXES], variables = 0;
  for (int i = 0; i < m->naxes; i++)
    if (m->axis[i].size > 1) axis[1][n++] = i;
  for (int i = 0; i < n; i++) axis[0][i] = axis[1][n - 1 - i];
  for (int v = 0; v < r->m->values.n; v++) /* a single use has it made as it needs it */
    if (r->state[v].uses.n < 2 && !r->state[v].pinned) r->state[v].delivers = false;
  if (n == 0) return;
  const Plans *greedy = r->nops < MIDDLING ? take_plans(r) : NULL, *best = NULL;
  double least = 0;
  for (int start = 0; start < (n > 1 ? 4 : 2); start++) {
    static const struct {
      int order;
      bool hold;
    } starts[] = {{0, false}, {1, true}, {1, false}, {0, true}};
    if (start > 0) put_plans(r, greedy);
    const int *order = axis[starts[start].order];
    double cost = sweep(r, n, order, starts[start].hold, &variables);
    if (!greedy || variables * n > MIDDLING) return;
    if (variables * n <= SMALL) cost = sweep_on(r, n, order, cost);
    if (!best || cost < least) best = take_plans(r), least = cost;
    if (variables * n > SMALL && start == 1) break;
  }
  put_plans(r, best);
}
