/* graph_repeat.c: a repeat in graph.c. Each carried value has one layout, from its init through the body's argument and
   yield to the result; an invariant's argument one, made before the loop; a slice the layout of the whole it is cut
   from; a stacked result that of its slices, with one dim more. What happens inside costs trip times. */
#include "graph.h"

/* `t` without its first dim, or with one more, as `like`. */
static Type shifted(const Type *like, const Type *t) {
  Type out = *like;
  int by = like->rank - t->rank;
  for (int d = 0; d < out.rank; d++) out.dim[d].split = d < by ? (Split){0} : t->dim[d - by].split;
  out.pending = t->pending;
  return out;
}

static int *shift_all(Graph *g, const Type *like, int n, const int *layouts) {
  int *out = NEW_ARRAY(g->a, int, n);
  for (int i = 0; i < n; i++) {
    Type t = shifted(like, graph_type(g, layouts[i]));
    out[i] = graph_layout(g, &t);
  }
  return out;
}

static void place_port(Graph *g, const PlaceVar *p, double times) { graph_set_port(g, p->v, p->var, p->n, p->layout, times); }

/* A carried argument; zeros that become pending cost nothing. */
static PlaceVar *add_carried(Graph *g, const Op *op, int i, double times) {
  ValueId arg = op->body_region->args.at[1 + i];
  const ValueState *s = graph_state(g, arg);
  PlaceVar *p = graph_place(g, arg, s->fixed, s->loops && !s->fixed);
  const Port *init = &g->port[op->in[i]];
  for (int k = 0; k < init->n; k++)
    for (int j = 0; j < p->n; j++) {
      bool pending = graph_type(g, p->layout[j])->pending.n > 0;
      double cost = pending ? (s->loops ? 0 : IMPOSSIBLE) : graph_take(g, init, k, p->layout[j]);
      graph_cost(g, init->var, k, p->var, j, cost >= IMPOSSIBLE ? IMPOSSIBLE : cost * times);
    }
  return p;
}

/* A slice has the layout of the whole; a whole that an op makes may be laid out anew before the loop. */
static void add_slice(Graph *g, const Op *op, int i, double times, double inner) {
  ValueId arg = op->body_region->args.at[1 + i];
  const Port *whole = &g->port[op->in[i]];
  const Type *like = &graph_state(g, arg)->home;
  if (graph_kept_slice(g, arg) && g->slice[op->in[i]] >= 0) {
    g->port[arg] = g->port[g->slice[op->in[i]]];
    vec_push(g->a, g->twins, ((Twin){g->slice[op->in[i]], arg}));
    return;
  }
  g->slice[op->in[i]] = arg;
  if (comes_stacked(g->r, op->in[i])) {
    graph_set_port(g, arg, whole->var, whole->n, shift_all(g, like, whole->n, whole->raw), inner);
    return;
  }
  PlaceVar *p = graph_place(g, arg, graph_state(g, arg)->fixed, false);
  graph_connect(g, whole, p->var, p->n, shift_all(g, &graph_state(g, op->in[i])->home, p->n, p->layout), times);
  place_port(g, p, inner);
}

/* Pending slices may be stacked when nothing but ops take the whole, and it is not split over the axes. */
static bool may_stack_pending(const Graph *g, const Op *op, int i) {
  const ValueState *s = graph_state(g, op->out[i]);
  bool may = i < op->nout - op->nsaved;
  for (int k = 0; k < g->n; k++) may &= !type_uses(&s->wish, g->whole[k]);
  for (int k = 0; k < s->uses.n; k++) may &= s->uses.at[k].op->kind != OP_REPEAT;
  return may;
}

/* What is saved for the reverse is saved as it is made, and gathered again there, unless --keep-gathered. */
static void add_stacked(Graph *g, const Op *op, int i, double times, double inner) {
  ValueId y = op->body_region->yields.at[i], out = op->out[i];
  PlaceVar *p = graph_place(g, out, graph_state(g, out)->fixed | 1, may_stack_pending(g, op, i));
  for (int k = 0; k < p->n; k++) {
    const Type *t = graph_type(g, p->layout[k]);
    g->p.unary[p->var][k] += g->r->memory_price * (double)type_capacity(t) * (double)dtype_size(t->dtype);
  }
  Port made = g->port[y];
  if (i >= op->nout - op->nsaved && !g->r->keep_gathered && !made.hidden) made.home = NULL;
  graph_connect(g, &made, p->var, p->n, shift_all(g, &graph_state(g, y)->home, p->n, p->layout), inner);
  place_port(g, p, times);
}

void graph_repeat(Graph *g, const Op *op, double times) {
  const Region *b = op->body_region;
  double inner = times * (double)op->trip;
  PlaceVar **carried = NEW_ARRAY(g->a, PlaceVar *, op->ncarried + 1);
  graph_set_one(g, b->args.at[0], &graph_state(g, b->args.at[0])->home, inner);
  for (int i = 0; i < op->ncarried; i++) {
    carried[i] = add_carried(g, op, i, times);
    place_port(g, carried[i], inner);
  }
  for (int i = op->ncarried; i < op->ncarried + op->ninvariant; i++) {
    PlaceVar *p = graph_place(g, b->args.at[1 + i], graph_state(g, b->args.at[1 + i])->fixed, false);
    graph_connect(g, &g->port[op->in[i]], p->var, p->n, p->layout, times);
    place_port(g, p, inner);
  }
  for (int i = op->ncarried + op->ninvariant; i < op->nin; i++) add_slice(g, op, i, times, inner);
  graph_region(g, b, inner);
  for (int i = 0; i < op->ncarried; i++) {
    graph_connect(g, &g->port[b->yields.at[i]], carried[i]->var, carried[i]->n, carried[i]->layout, inner);
    graph_set_port(g, op->out[i], carried[i]->var, carried[i]->n, carried[i]->layout, times);
  }
  for (int i = op->ncarried; i < op->nout; i++) add_stacked(g, op, i, times, inner);
}
