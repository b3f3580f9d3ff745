/* price.c: what a step of a plan costs: bytes received by the rank that receives most (ir/traffic.c has the formulas), and
   the time that this takes under a cluster: the latency and the bytes by the bandwidth of the slowest axis that is
   crossed. Over 4 ranks: all_reduce of 100 f32: 600 bytes; all_gather of [100] in four parts: 300. */
#include "part.h"

bool price_uniform(const Mesh *m, const Cluster *c) {
  for (int a = 1; a < m->naxes; a++)
    if (c->latency[a] != c->latency[0] || c->bandwidth[a] != c->bandwidth[0]) return false;
  return true;
}

void price_link(const Mesh *m, const Cluster *c, const Type *from, const Type *to, double *latency, double *bandwidth) {
  *latency = c->latency[0], *bandwidth = c->bandwidth[0];
  if (price_uniform(m, c)) return;
  Pending over = move_axes(m, from, to);
  *latency = 0, *bandwidth = 1e300;
  for (int i = 0; i < over.n; i++) {
    double l = c->latency[over.part[i].axis], b = c->bandwidth[over.part[i].axis];
    *latency = l > *latency ? l : *latency;
    *bandwidth = b < *bandwidth ? b : *bandwidth;
  }
}

Price price_step(const Mesh *m, const Cluster *c, OpKind kind, const Type *from, const Type *to) {
  Price p = {.bytes = (double)move_bytes(m, kind, from, to), .steps = kind != OP_SLICE};
  if (kind == OP_SLICE || m->naxes == 0) return p;
  double latency, bandwidth;
  price_link(m, c, from, to, &latency, &bandwidth);
  p.seconds = latency + p.bytes / bandwidth;
  return p;
}

Price price_add(Price a, Price b) { return (Price){a.seconds + b.seconds, a.bytes + b.bytes, a.steps + b.steps}; }

/* Sums of the same numbers in another order count as equal. */
static int compare(double a, double b) {
  double slack = 1e-9 * (a > b ? a : b);
  return a < b - slack ? -1 : a > b + slack;
}

int price_compare(Price a, Price b) {
  int by_time = compare(a.seconds, b.seconds), by_bytes = compare(a.bytes, b.bytes);
  if (by_time) return by_time;
  if (by_bytes) return by_bytes;
  return a.steps < b.steps ? -1 : a.steps > b.steps;
}

void price_axes(const Mesh *m, const Op *op, const Module *mod, Pending *axes, int64_t *group) {
  const Type *from = &mod->values.at[op->in[0]].type, *to = &mod->values.at[op->out[0]].type;
  *axes = move_axes(m, from, to);
  *group = 1;
  for (int i = 0; i < axes->n; i++) *group *= axes->part[i].size;
}
