/* reshard.h: what the files of the pass share: reshard.c (set-up, the walk that edits), greedy.c and choose.c (op by op),
   assign.c and graph*.c (the whole program), reason.c (why a layout changes). */
#ifndef DTC_RESHARD_H
#define DTC_RESHARD_H

#include "blocks.h"

/* A value in one layout. While it is only decided, id is the value itself. */
typedef struct {
  Type type;
  ValueId id;
} Version;

typedef struct {
  const Op *op;
  int slot;
} Use;

typedef struct {
  Type wish;           /* the layout from propagate, complete */
  Type home;           /* the layout in which it is made complete, once for all that want it complete */
  Type place;          /* of what a repeat hands around, arguments and stacked results: the layout there */
  unsigned fixed;      /* bit d: the user fixed dim d */
  bool delivers;       /* the first version is not what most want: home is made first */
  bool pinned;         /* the user, or a parameter's layout, asks for exactly that */
  bool keep;           /* stays pending, if it is: no consumer has refused it yet */
  bool loops;          /* a carried argument that may be pending: it starts as zeros */
  bool refused;        /* and turned out not to go around pending */
  Pending sums;        /* over what it then is */
  int64_t passed;      /* elements of the results that it was passed on to */
  VEC(Version *) have; /* versions so far; the first as its op makes it */
  VEC(Use) uses;
} ValueState;

typedef struct {
  int n;
  const ValueId *at;
} Operands;

enum { NO_SLOT = -1 };

typedef struct {
  Split split[MAX_FACTORS];
} Choice;

/* What was decided for an op with an index space. */
typedef struct {
  Split *split;  /* per factor */
  Pending *sums; /* per operand slot: over what it is taken while still pending */
} Decision;

typedef struct {
  Module *m;
  Arena *scratch;
  Planner *planner;
  const Cluster *cluster;
  bool keep_gathered;
  double memory_price;         /* seconds that a byte counts as which a rank keeps from forward to backward */
  ValueState *state;           /* per value of the module as it was */
  Factors **factors;           /* by op->order */
  const HeadCount *heads;      /* by op->order */
  const bool *before;          /* by op->order */
  Type ***want;                /* by op->order and slot: the layout wanted of operands that have other consumers too */
  Operands *operands;          /* by op->order: as they were before the program is edited */
  unsigned inverted[MAX_AXES]; /* bit b of [a]: a dim is split over a and then b, although b is outside of a */
  int nops;
  Decision *decided; /* by op->order: of the walks so far, then of the choice over the whole program */
  bool changed;      /* a value had to be completed after all: walk again */
  Region *region;    /* being rebuilt */
} Reshard;

/* reshard.c */
bool comes_stacked(const Reshard *r, ValueId v); /* a leaf's or a repeat's result: its slices are laid out as it is */

/* greedy.c: fills r->decided, homes, places and what is delivered, op by op. */
void greedy_layouts(Reshard *r);

/* choose.c */
bool version_hidden(const ValueState *s); /* nobody may use the first version but to complete it */
int version_fit(const Reshard *r, const Op *op, int slot, const Choice *c, const Pending *sums); /* or -1 */
double version_bytes(Reshard *r, ValueId v, const Type *need, int *source);
Type choice_need(const Reshard *r, const Op *op, int slot, const Choice *c, const Pending *sums);
Type choice_result(const Reshard *r, const Op *op, int result, const Choice *c, const Pending *sums);
/* What the op exchanges where it is done in blocks (block_moves), but for results that nobody reads. */
int choice_block_moves(const Reshard *r, const Op *op, const Choice *c, const Pending *sums, BlockMove *move);
void choose_wants(Reshard *r, const Op *op); /* fills r->want */
/* The splits of the op's factors at least cost; sums: what pending operands are pending over. */
Choice choose_splits(Reshard *r, const Op *op, const bool *pending, const Pending *sums);

/* assign.c: makes r->decided and the homes those of least cost over the whole program, as far as it finds them. */
void assign_layouts(Reshard *r);

/* reason.c */
const char *reason_text(const Reshard *r, ValueId v, const Type *from, const Type *to, const Op *user, int slot);

#endif
