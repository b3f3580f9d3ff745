/* cluster.c: what links and devices can do. The default is `host`: processes of one machine that see each other's memory.

     host    5 us a step and 12 GB/s between any two ranks, 50e9 multiply-adds a second, 25 GB/s of memory             */
#include "part.h"

static const double HOST_LATENCY = 5e-6, HOST_BANDWIDTH = 12e9, HOST_MULTIPLY_ADDS = 50e9, HOST_MEMORY = 25e9;

const Cluster *cluster_default(Arena *a, const Mesh *m) {
  Cluster *c = NEW(a, Cluster);
  *c = (Cluster){.name = "host", .multiply_adds = HOST_MULTIPLY_ADDS, .memory = HOST_MEMORY};
  for (int i = 0; i < m->naxes; i++) c->latency[i] = HOST_LATENCY, c->bandwidth[i] = HOST_BANDWIDTH;
  return c;
}
