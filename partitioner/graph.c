/* graph.c: a program's layouts as choices whose costs add up in pairs, for one mesh axis (or several that are used as one).

     %q[b,t,h,k] = nest sum[d] %n[b,t,d] * %wq[d,h,k]          over model: split none, b, t, h, k or d; or pass on what n or
                                                               wq is pending over

   Variables: every op (which index the axis splits, or which operands' pending sums it passes on); every value that a
   repeat hands around (its layout); every value with several uses or a pin (its home: the layout in which it is made
   once for all uses that the op's own layout does not serve). An edge joins a variable that says how a value is made with
   one that says how it is needed: what the change of layout costs, times how often it runs. An op's own cost is its work.
   What a value's uses share is in its home, so that costs are sums over pairs. */
#include "graph.h"

/* A tap shows any complete layout; an update takes its leaf's. */
static void add_effect(Graph *g, const Op *op, double times) {
  ValueId v = op->in[op->kind == OP_UPDATE ? 1 : 0];
  const Port *p = &g->port[v];
  Type leaf = graph_state(g, op->in[0])->wish;
  int need = graph_layout(g, &leaf);
  for (int i = 0; i < p->n; i++) {
    double cost;
    if (op->kind == OP_UPDATE) {
      cost = graph_take(g, p, i, need);
    } else {
      Type any = type_complete(graph_type(g, p->raw[i]));
      cost = p->hidden ? 0 : graph_take(g, p, i, graph_layout(g, &any));
      if (p->home && graph_type(g, p->home[i])->pending.n == 0) cost = 0;
    }
    graph_cost(g, p->var, i, -1, 0, cost * times);
  }
}

void graph_region(Graph *g, const Region *region, double times) {
  for (int i = 0; i < region->ops.n; i++) {
    const Op *op = region->ops.at[i];
    switch (op_class(op->kind)) {
    case CLS_LEAF:
      for (int o = 0; o < op->nout; o++) graph_set_one(g, op->out[o], &graph_state(g, op->out[o])->wish, times);
      break;
    case CLS_SPACE: graph_op(g, op, times); break;
    case CLS_REGION: graph_repeat(g, op, times); break;
    case CLS_EFFECT: add_effect(g, op, times); break;
    case CLS_LAYOUT: internal_error("a collective before the pass reshard");
    }
  }
}

Graph *graph_build(Reshard *r, int n, const int *axis, Arena *a) {
  Graph *g = NEW(a, Graph);
  *g = (Graph){.r = r, .a = a, .n = n};
  for (int k = 0; k < n; k++) g->axis[k] = axis[k], g->whole[k] = axis_whole(&r->m->mesh, axis[k]), g->axes |= 1u << axis[k];
  for (int i = 0; i < r->m->mesh.naxes; i++)
    if (g->tie == 0 || g->tie > 1e-6 / r->cluster->bandwidth[i]) g->tie = 1e-6 / r->cluster->bandwidth[i];
  g->port = NEW_ARRAY(a, Port, r->m->values.n + 1);
  g->slice = NEW_ARRAY(a, ValueId, r->m->values.n + 1);
  for (int v = 0; v < r->m->values.n; v++) g->slice[v] = -1;
  for (int i = 0; i < r->m->programs.n; i++) graph_region(g, r->m->programs.at[i].body, 1);
  return g;
}

const MinSum *graph_problem(const Graph *g) { return &g->p; }
void graph_now(const Graph *g, int *x) {
  if (g->p.n) memcpy(x, g->now, sizeof *x * (size_t)g->p.n);
}

/* ---- back into decisions ---------------------------------------------------------------------------------------------- */

static void set_home(ValueState *s, const Type *home, bool delivers) {
  s->delivers = delivers;
  for (int d = 0; d < home->rank && home->pending.n == 0; d++) s->home.dim[d].split = home->dim[d].split;
}

static void decide_home(Graph *g, const HomeVar *h, int k) {
  const Type *home = graph_type(g, h->home[k]);
  bool delivers = h->home[k] != h->raw[k];
  set_home(&g->r->state[h->v], home, delivers);
  for (int i = 0; i < g->twins.n; i++)
    if (g->twins.at[i].first == h->v) set_home(&g->r->state[g->twins.at[i].v], home, delivers);
}

static void decide_place(Graph *g, const PlaceVar *p, int k) {
  ValueState *s = &g->r->state[p->v];
  const Type *t = graph_type(g, p->layout[k]);
  for (int d = 0; d < t->rank; d++) s->place.dim[d].split = t->dim[d].split;
  s->place.pending = t->pending;
}

void graph_decide(Graph *g, const int *x) {
  for (int i = 0; i < g->ops.n; i++) graph_decide_op(g, g->ops.at[i], x[g->ops.at[i]->var]);
  for (int i = 0; i < g->places.n; i++) decide_place(g, g->places.at[i], x[g->places.at[i]->var]);
  for (int i = 0; i < g->homes.n; i++) decide_home(g, g->homes.at[i], x[g->homes.at[i]->var]);
}
