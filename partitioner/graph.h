/* graph.h: the layouts of a whole program as choices whose costs add up in pairs (minsum.h), one mesh axis at a time, or
   several as if they were one: what all other axes do is held. reshard.h has what was decided so far; assign.c goes over the
   axes. */
#ifndef DTC_GRAPH_H
#define DTC_GRAPH_H

#include "minsum.h"
#include "reshard.h"

typedef struct Graph Graph;

/* The choices that n axes, ascending, leave, which are used as if they were one. They are numbered so that graph_now fills in
 * what is decided at present. graph.c */
Graph *graph_build(Reshard *r, int n, const int *axis, Arena *a);
const MinSum *graph_problem(const Graph *g);
void graph_now(const Graph *g, int *x);
void graph_decide(Graph *g, const int *x); /* writes the choices back: r->decided, homes */

/* ---- between graph.c, graph_vars.c, graph_ops.c and graph_repeat.c ------------------------------------------- */

enum {
  MAX_ENTRIES = 128, /* choices of a variable; more are left out: tables stay small */
  MAX_USES = 2 * MAX_PARTS
};

/* How an op uses the axes: what it does at present may be different for each. */
typedef struct {
  int n, factor[MAX_USES], pos[MAX_USES]; /* inserted into the factor's split at that place, one after the other */
  AxisPart part[MAX_USES];
  unsigned passes[MAX_AXES]; /* by axis: operand slots taken pending over it */
} Strategy;

typedef struct {
  const Op *op;
  int var;
  VEC(Strategy) strategy;
} OpVar;

typedef struct {
  ValueId v;
  int var, n;
  int raw[MAX_ENTRIES], home[MAX_ENTRIES];
} HomeVar;

typedef struct {
  ValueId v;
  int var, n;
  int layout[MAX_ENTRIES];
} PlaceVar;

/* How a value is made, by the choices of a variable (var -1: there is but one). */
typedef struct {
  int var, n;
  const int *raw, *home; /* layouts; home NULL: none */
  bool hidden;           /* only home may be used */
  double times;
} Port;

/* A slice that comes as the loop before had it: both have one home. */
typedef struct {
  ValueId first, v;
} Twin;

struct Graph {
  Reshard *r;
  Arena *a;
  int n, axis[MAX_AXES];
  unsigned axes;            /* the same as bits */
  AxisPart whole[MAX_AXES]; /* of each */
  double tie;               /* seconds, far below what a byte takes: ties go to fewer bytes, then fewer steps */
  MinSum p;
  int cap;
  int *now; /* the present choice of each variable */
  VEC(OpVar *) ops;
  VEC(HomeVar *) homes;
  VEC(PlaceVar *) places;
  Port *port;     /* by value */
  ValueId *slice; /* by value: the argument that was the first to take it slice by slice, or -1 */
  VEC(Twin) twins;
};

static inline const ValueState *graph_state(const Graph *g, ValueId v) { return &g->r->state[v]; }

/* graph.c. times: how often a step runs the region. */
void graph_region(Graph *g, const Region *region, double times);

/* graph_vars.c: variables and edges */
int graph_var(Graph *g, int size, int now); /* a new variable; now: its present choice */
/* Adds to the cost of u's choice i with v's choice j; u or v may be -1, for what has but one. */
void graph_cost(Graph *g, int u, int i, int v, int j, double cost);
/* Seconds from one layout to another, or IMPOSSIBLE; nothing becomes pending by it. */
double graph_price(Graph *g, int from, int to);
double graph_take(Graph *g, const Port *p, int i, int need); /* from the port's choice i, as made or at home */
/* Adds what it costs to take need[j], for var's choice j of n, from the port, `times` a step. */
void graph_connect(Graph *g, const Port *p, int var, int n, const int *need, double times);
/* What the choices of var (-1: one) make of v; its home, where it has one, becomes a variable. */
void graph_set_port(Graph *g, ValueId v, int var, int n, const int *raw, double times);
void graph_set_one(Graph *g, ValueId v, const Type *t, double times); /* v is made as t, whatever is chosen */
/* A variable for the layout of v, which a repeat hands around; pending: it may also be pending over the axes. */
PlaceVar *graph_place(Graph *g, ValueId v, unsigned fixed, bool pending);
bool graph_kept_slice(const Graph *g, ValueId v);

/* graph_vars.c: layouts */
int graph_layout(Graph *g, const Type *t);
const Type *graph_type(const Graph *g, int layout);
/* The axes split s, of a dim of `size` elements, from that place of its list on; false: that is not worth trying. */
bool graph_split(const Graph *g, Split *s, int pos, int64_t size);
Type type_complete(const Type *t);
Split split_without(const Split *s, unsigned axes);
void split_insert(Split *s, int pos, AxisPart p);
bool pending_over(const Pending *p, int axis);
Pending pending_without(const Pending *p, unsigned axes);

/* graph_ops.c */
void graph_op(Graph *g, const Op *op, double times);
void graph_decide_op(Graph *g, const OpVar *v, int strategy);

void graph_repeat(Graph *g, const Op *op, double times); /* graph_repeat.c */

/* graph_windows.c: what operands that are read in places cost together and not one by one is taken off the costs between
   them and the op's variable, of n choices; need: by operand and choice, the layout. */
void graph_windows(Graph *g, const Op *op, int var, int n, int *const *need, double times);

#endif
