/* partitioner.h: IR over whole tensors -> IR over one device's tensors, with collectives and a price. */
#ifndef DTC_PARTITIONER_H
#define DTC_PARTITIONER_H

#include "ir/ir.h"

/* The passes, in order. Each is described at the head of its file. */
PassFn part_propagate; /* annotated -> every value has a sharding */
PassFn part_reshard;   /* -> sharded: every op computes a box of its index space; `reshard` ops where layouts clash */
PassFn part_collect;   /* -> collected: each reshard becomes the cheapest sequence of collectives */
PassFn part_hoist;     /* collectives leave the loops in which they change nothing; equal ones are shared */
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
  bool even; /* products count by what ranks compute in the mean, not by the longest chunks: no byte evens them out */
} Cluster;

/* One step of a plan that changes a layout. */
typedef struct {
  OpKind kind;
  Type to;
} PlanStep;
typedef VEC(PlanStep) Plan;

/* What a plan costs: seconds under the cluster; bytes received by the rank that receives most, summed over steps; steps
   that move something. No way: seconds is infinite. */
typedef struct {
  double seconds, bytes;
  int steps;
} Price;
Price price_step(const Mesh *m, const Cluster *c, OpKind kind, const Type *from, const Type *to); /* price.c */

/* The cheapest way from layout `from` to layout `to` (same dtype and sizes): least time, then fewest bytes, then fewest
   steps, then standard collectives. Memoised: a price that is known costs one look into a hash table. planner.c */
typedef struct Planner Planner;
Planner *plan_new(Arena *a, const Mesh *m, const Cluster *c); /* c = NULL: the default cluster */
void plan_limit(Planner *p, int64_t bytes);                   /* no step in between may be larger on a device; 0: none */
const Plan *plan_find(Planner *p, const Type *from, const Type *to, Price *price); /* there has to be a way */
int plan_layout(Planner *p, const Type *t); /* a number for dtype, sizes, splits and pending; equal for equal ones */
const Type *plan_layout_type(const Planner *p, int layout);
const Price *plan_price(Planner *p, int from, int to); /* stays valid */

/* The cluster of a name (host, which is the default; bytes, h100, a100) or of a file (README.md), laid over the mesh. NULL
   after an error, which names file and value. cluster.c */
const Cluster *cluster_find(Arena *a, Diags *d, const Mesh *m, const char *name);
const Cluster *cluster_default(Arena *a, const Mesh *m);

/* The mesh axes that a collective runs over and its group size. */
void price_axes(const Mesh *m, const Op *op, const Module *mod, Pending *axes, int64_t *group);

/* Where the split of a value's dim came from, for explanations. A pass that decides one calls part_note, which does nothing
   where cx->origins is NULL; a later note of the same dim replaces an earlier one. origin.c */
typedef enum {
  ORIGIN_OPEN,   /* nobody asked for anything: whole */
  ORIGIN_USER,   /* `@`, a layout rule, or an input's or a parameter's type: Module.written says where */
  ORIGIN_SPREAD, /* as dim `dim` of value `from`, because they are one index of `via` */
  ORIGIN_COST    /* chosen: `why` says against what */
} OriginKind;
typedef struct {
  OriginKind kind;
  bool backward; /* SPREAD: from a result to an operand */
  ValueId from;
  int dim;
  const Op *via;
  const char *why; /* COST; lives as long as the module */
} Origin;
/* A wish that was not fulfilled: dim `dim` of v would have been split as dim `other` of `from` is. */
typedef struct {
  ValueId v, from;
  int dim, other;
  const Op *via;
  Split wanted;
} Unfulfilled;
typedef struct PartOrigins PartOrigins;
PartOrigins *part_origins_new(Arena *a);
void part_note(PartOrigins *o, ValueId v, int dim, Origin origin);
void part_note_unfulfilled(PartOrigins *o, Unfulfilled u); /* once per dim and split */
Origin part_origin(const PartOrigins *o, ValueId v, int dim);
int part_unfulfilled(const PartOrigins *o, ValueId v, int dim, const Unfulfilled **first); /* how many */

/* Warnings about a local module (warn.c): what is gathered, repeated, padded. `placed`: its places lie in d's files. */
void part_warn(const Module *m, Diags *d, bool placed);

/* --strict: an error for each collective that the user did not spell. strict.c */
void part_strict(const Module *m, Diags *d, bool placed);

/* ---- explanations: explain.c, whatif.c ---- */

/* What a plan costs per step: bytes received by the rank that receives most, calls of collectives, and the points of the
   index spaces that a rank computes. */
typedef struct {
  int64_t bytes, calls;
  double work;
} PartTotals;
PartTotals part_totals(const Module *m); /* of a local module */

/* An edit of the text: dim `dim` of the tensor written there is split so (@ none: n = 0), and no other dim of it has those
   axes any more. */
typedef struct {
  const Written *at;
  int dim;
  Split split;
} PartEdit;
void part_edit(Module *m, const PartEdit *e); /* applies it to an annotated module, as if it had been written */

typedef struct {
  const PartOrigins *origins;
  const Type *home; /* by value, of the first nhome: as laid out before reshard */
  int nhome;
  int line;          /* 0: all, else what the main file has on that line */
  const char *value; /* NULL, or a value's or a tensor's name, without % */
  bool (*replan)(void *env, const PartEdit *e, PartTotals *out); /* plans the file with the edit; false: it cannot */
  void *env;
} PartQuestion;
/* The text of dtc --explain; NULL if there is no such line or value. */
const char *part_explain(const Module *m, const PartQuestion *q, Arena *a);

/* ---- diff.c: what --diff compares ---- */

typedef struct {
  const char *kind, *axes, *what; /* what moves: the value's name */
  int64_t bytes, times;
  int line;
  bool calls; /* false: it shares the call of a row before */
} PartRow;
typedef struct {
  VEC(PartRow) at;
  PartTotals totals;
} PartRows;
PartRows *part_rows(const Module *m, Arena *a); /* of a local module */
/* What changes, as lines; NULL if nothing does. */
const char *part_diff(const PartRows *old, const PartRows *new, Arena *a);

/* --emit=schedule and schedule-json: one row per collective, then totals. report.c */
const char *part_report(const Module *m, Arena *a, bool json);
int64_t part_bytes_per_step(const Module *m); /* what the rank that receives most receives */

#endif
