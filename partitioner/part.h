/* part.h: what the partitioner's files share. Factors: which dims of an op's operands and results are split
   together, because they are the same index. */
#ifndef DTC_PART_H
#define DTC_PART_H

#include "partitioner/partitioner.h"

/* The indices of the op's space, and behind them one more for every dim of a gather's table that is read by
   value: splitting it makes the result pending, as if it were a reduced index. */
enum { MAX_FACTORS = MAX_INDEX + MAX_RANK, NO_FACTOR = -1 };

typedef struct {
  int index[MAX_RANK];  /* per dim, the factor that it is, or NO_FACTOR: read in some other way */
  int nreads[MAX_RANK]; /* operands: the expressions that read the dim, each once */
  const IExpr **read[MAX_RANK];
  bool by_value; /* read inside an index expression */
} OperandFactors;

typedef struct {
  int n; /* factors */
  int64_t range[MAX_FACTORS];
  bool splits[MAX_FACTORS]; /* may be split at all */
  bool works[MAX_FACTORS];  /* splitting it divides the work */
  bool blocks[MAX_FACTORS]; /* the op runs along it: split, it is done in blocks (blocks.h), and leaves nothing pending */
  Reduce kind;              /* of the pending reduction that a split factor outside of the result leaves */
  OperandFactors *in;       /* [nin] */
  OperandFactors *out;      /* [nout] */
} Factors;

/* Of an op of class SPACE. factors.c */
Factors *part_factors(const Module *m, const Op *op, Arena *a);

/* reads.c. What a rank needs of a dim of `size` elements that is read at x[0 .. n), the space's indices being split as
   index[] says: a plain split, a window, or all of it. */
Split part_read_split(int n, const IExpr *const *x, const Space *s, const Split *index, int64_t size);
/* The splits of the op's indices with which reads of the operand's dim d find most where it lies; no parts: none. */
void part_carry(const Op *op, const OperandFactors *f, const Type *t, int d, Split out[MAX_INDEX]);

/* separate.c. Reads of one operand that lie apart, and those that wrap around, become reads of several operands. */
void part_separate(Module *m);

/* terms.c. Terms of a sum that may be pending are added by an op of their own, so that they end together. */
void part_terms(Module *m);

/* boxes.c */
bool pending_has(const Pending *p, AxisPart x);
/* What the step from one layout to another is called: slice, all_gather, all_to_all, permute or exchange for complete
   dims, all_reduce or reduce_scatter where pending sums end. */
OpKind plan_kind(const Mesh *m, const Type *from, const Type *to);

/* price.c */
bool price_uniform(const Mesh *m, const Cluster *c); /* all axes are alike */
/* Of the slowest axis that the step crosses; there is one. */
void price_link(const Mesh *m, const Cluster *c, const Type *from, const Type *to, double *latency, double *bandwidth);
Price price_add(Price a, Price b);
int price_compare(Price a, Price b); /* < 0: a is better: time, then bytes, then steps */

/* planner.c: what the searches of a planner know of the way between two complete layouts. */
typedef struct {
  bool priced;
  Price price; /* in one step, of this kind; it may be another that costs the same */
  OpKind kind;
  double least; /* seconds of any way at least; < 0: not asked yet */
} Step;
Step *plan_step(Planner *p, int from, int to); /* stays valid */
const Mesh *plan_mesh(const Planner *p);
const Cluster *plan_cluster(const Planner *p);

/* plan.c: the search. Finds the cheapest way in which nothing is larger on a device than memory_limit bytes, if there is one;
   false if there is no way. With `plan`, also its steps, in memory of `a`. */
bool plan_search(Planner *p, int64_t memory_limit, int from, int to, Price *price, Arena *a, Plan *plan);

/* Calls f for every op, a repeat before its body; times: how often a step runs it. */
typedef void PartVisit(void *cx, Region *r, Op *op, int64_t times);
void part_visit(Region *r, int64_t times, PartVisit *f, void *cx);
/* Makes Op.order a number of its own for every op, bodies included: the key of side tables. Returns how many. */
int part_number(Module *m);

/* Multiply-adds of products per step, of the rank that computes most. work.c */
double part_multiply_adds(const Module *m);
/* The points of an op's space that the rank with the longest chunks computes; extent[i] of index i. */
double part_op_points(const Op *op, int64_t extent[MAX_INDEX]);
/* Of one op each time that it runs, when extent[i] of index i are computed; 0 if it is no product. */
double part_op_multiply_adds(const Op *op, const int64_t *extent);

/* Hands `outer` to the repeat as one more operand, invariant or stacked; its argument. An existing one is shared. save.c */
ValueId part_hand_in(Module *m, Op *repeat, ValueId outer, bool stacked, const Type *inside, const char *name);

/* The lines, or values, whose loops run between the start of a collective of region r and its wait. behind.c */
typedef VEC(const char *) Names;
Names part_behind(const Module *m, const Region *r, const Op *op, Arena *a);

/* before.c. By op->order: a scan that is the sum of all that comes before; what reads it reads it as such from then on. */
bool *part_before(Module *m, int nops, Arena *a);

/* heads.c. Of products that make the keys or values of grouped heads, or gradients of them: how many heads these have, and
   which of the op's indices they are; n = 0: it is no such product. By op->order. */
typedef struct {
  int64_t n;
  uint32_t index;
} HeadCount;
HeadCount *part_heads(const Module *m, int nops, Arena *a);

const char *pending_text(const Mesh *m, const Pending *p, Arena *a); /* "data, model" */

#endif
