/* assign.c: the choice of layouts over the whole program. One mesh axis after the other, everything that the axis may do is
   chosen at once, at least cost, while the other axes stay (graph.c, minsum.c); again and again until no axis finds
   anything better. Every step makes the plan cheaper, so this ends, and never with a plan that costs more than the one it
   began with (greedy.c).

     FSDP: x[b@data, d] . w[d@data, f]     the axis data: split b and gather w, or split d and reduce the result */
#include "graph.h"

#include <stdlib.h>

enum { MAX_SWEEPS = 8, MAX_TABLE = 1 << 16 };

static bool improve(Reshard *r, int axis) {
  Arena *a = arena_new();
  Graph *g = graph_build(r, axis, a);
  const MinSum *p = graph_problem(g);
  int *x = NEW_ARRAY(a, int, p->n + 1);
  graph_now(g, x);
  double before = minsum_cost(p, x), after = minsum_improve(p, x, MAX_TABLE);
  bool better = after < before * (1 - 1e-9);
  if (better) graph_decide(g, x);
  if (getenv("DTC_ASSIGN"))
    fprintf(stderr, "axis %d: %d variables, %d edges, %.17g -> %.17g\n", axis, p->n, p->edge.n, before, after);
  arena_free(a);
  return better;
}

void assign_layouts(Reshard *r) {
  const Mesh *m = &r->m->mesh;
  for (int v = 0; v < r->m->values.n; v++) /* a single use has it made as it needs it */
    if (r->state[v].uses.n < 2 && !r->state[v].pinned) r->state[v].delivers = false;
  int since = 0; /* axes in a row that found nothing better */
  for (int i = 0; i < MAX_SWEEPS * m->naxes && since < m->naxes; i++) {
    int axis = i % m->naxes;
    since = m->axis[axis].size > 1 && improve(r, axis) ? 0 : since + 1;
  }
  if (getenv("DTC_ASSIGN")) {
    Cluster free = *r->cluster;
    const Cluster *was = r->cluster;
    free.multiply_adds = free.memory = 1e300;
    r->cluster = &free;
    Arena *a = arena_new();
    Graph *g = graph_build(r, 0, a);
    int *x = NEW_ARRAY(a, int, graph_problem(g)->n + 1);
    graph_now(g, x);
    fprintf(stderr, "communication %.3f\n", minsum_cost(graph_problem(g), x));
    r->cluster = was;
    arena_free(a);
  }
}
