/* partitioner.h: IR over whole tensors -> IR over one device's tensors, with collectives and a price. */
#ifndef DTC_PARTITIONER_H
#define DTC_PARTITIONER_H

#include "ir/ir.h"

/* The passes, in order. Each is described at the head of its file. */
PassFn part_propagate; /* annotated -> every value has a sharding */
PassFn part_reshard;   /* -> sharded: every op computes a box of its index space; `reshard` ops where layouts clash */
PassFn part_collect;   /* -> collected: each reshard becomes the cheapest sequence of collectives */
PassFn part_combine;   /* small collectives of the same kind and axes become one call */
PassFn part_save;      /* what the reverse of a repeat keeps, recomputes, or gathers again */
PassFn part_localize;  /* -> local: a set of programs, keyed by stage */

/* What time things take: seconds for a step of a collective that crosses an axis, bytes a second that a device
   receives over it (innermost axes are nearest), multiply-adds a second of products, bytes a second of memory for
   everything else. In the cluster `bytes` latency is 0, bandwidth 1 and work only breaks ties between plans that move the
   same (but for products: repeating those is never worth a byte). cluster.c */
typedef struct Cluster {
  const char *name;
  double latency[MAX_AXES], bandwidth[MAX_AXES];
  double multiply_adds, memory;
} Cluster;

/* One step of a plan that changes a layout. */
typedef struct {
  OpKind kind;
  Type to;
} PlanStep;
typedef VEC(PlanStep) Plan;

/* The cheapest way from layout `from` to layout `to` (same dtype and sizes): fewest received bytes, then
   fewest steps. Memoised per module. plan.c */
typedef struct Planner Planner;
Planner *plan_new(Arena *a, const Mesh *m);
const Plan *plan_find(Planner *p, const Type *from, const Type *to, double *bytes);

/* Bytes that `rank` receives when a collective of `kind` takes a value from layout `from` to `to`, by the
   formulas of the architecture: all-reduce 2 (g-1)/g, the others what comes from other ranks. price.c */
int64_t price_received(const Mesh *m, OpKind kind, const Type *from, const Type *to, int64_t rank);
/* The mesh axes that a collective runs over and its group size. */
void price_axes(const Mesh *m, const Op *op, const Module *mod, Pending *axes, int64_t *group);

/* --emit=schedule and schedule-json: one row per collective, then totals. report.c */
const char *part_report(const Module *m, Arena *a, bool json);

#endif
