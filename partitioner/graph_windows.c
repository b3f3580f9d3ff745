/* graph_windows.c: several operands of one op of which ranks lack different places. Costs are of pairs, an operand and the
   op, so they add up the most that any rank lacks of each; but who lacks most of one may have all of another:

     %y[j@x] = nest where(idx(j) < 64, (%a[j] else 0.0), (%b[j - 64] else 0.0))      a, b of 64@x, x = 4

     lacked of a: 16 32  0  0, of b: 0 0 32 16, of both at most 32 and not 64

   What the operands cost is made less by that share. It depends on all of them at once, so it is found for the layouts
   that they have now. */
#include "graph.h"

#include <math.h>

/* Is some dim of the operand read otherwise than by an index? Else all ranks lack alike. */
static bool reads_places(const Graph *g, const Op *op, int slot) {
  const OperandFactors *f = &g->r->factors[op->order]->in[slot];
  for (int d = 0; d < graph_state(g, op->in[slot])->home.rank; d++)
    if (f->index[d] == NO_FACTOR) return true;
  return false;
}

/* The layout from which the port in its choice i is brought to `need`. */
static int source(Graph *g, const Port *p, int i, int need) {
  if (!p->home) return p->raw[i];
  bool home = p->hidden || graph_price(g, p->home[i], need) <= graph_price(g, p->raw[i], need);
  return home ? p->home[i] : p->raw[i];
}

/* Bytes of one exchange, or 0 where it is no exchange. */
static double exchanged(Graph *g, int from, int to) {
  const Type *f = graph_type(g, from), *t = graph_type(g, to);
  return f->pending.n || t->pending.n ? 0 : (double)move_bytes(&g->r->m->mesh, OP_EXCHANGE, f, t);
}

/* Of the bytes that the operands cost under the op's choice k one by one, the part that they cost together. */
static double joint_part(Graph *g, const Op *op, int *const *need, int k) {
  Traffic *move = NEW_ARRAY(g->a, Traffic, op->nin + 1);
  int n = 0;
  double sum = 0;
  for (int o = 0; o < op->nin; o++) {
    const Port *p = &g->port[op->in[o]];
    if (!reads_places(g, op, o)) continue;
    int from = source(g, p, p->var < 0 ? 0 : g->now[p->var], need[o][k]);
    double bytes = exchanged(g, from, need[o][k]);
    if (bytes == 0) continue;
    sum += bytes;
    move[n++] = (Traffic){OP_EXCHANGE, graph_type(g, from), graph_type(g, need[o][k]), 1};
  }
  return n < 2 ? 1 : moves_most(g->a, &g->r->m->mesh, n, move) / sum;
}

void graph_windows(Graph *g, const Op *op, int var, int n, int *const *need, double times) {
  double fastest = 0;
  for (int a = 0; a < g->r->m->mesh.naxes; a++) fastest = fmax(fastest, g->r->cluster->bandwidth[a]);
  int slots = 0;
  for (int o = 0; o < op->nin; o++) slots += reads_places(g, op, o);
  for (int k = 0; k < n && slots > 1; k++) {
    double part = joint_part(g, op, need, k);
    for (int o = 0; o < op->nin && part < 1; o++) {
      const Port *p = &g->port[op->in[o]];
      for (int i = 0; i < p->n && reads_places(g, op, o); i++) {
        double bytes = (1 - part) * exchanged(g, source(g, p, i, need[o][k]), need[o][k]);
        graph_cost(g, p->var, i, var, k, -times * bytes * (1 / fastest + g->tie));
      }
    }
  }
}
