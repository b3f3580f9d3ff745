/* reshard.h: what reshard.c (the walk), choose.c (one op's splits) and reason.c (why a layout changes) share. */
#ifndef DTC_RESHARD_H
#define DTC_RESHARD_H

#include "part.h"

/* A value in one layout. While only planning, id is the value itself. */
typedef struct {
  Type type;
  ValueId id;
} Version;

typedef struct {
  const Op *op;
  int slot;
} Use;

typedef struct {
  Type home;           /* the layout from propagate, complete */
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

typedef struct {
  Split split[MAX_FACTORS];
} Choice;

typedef struct {
  Module *m;
  Arena *scratch;
  Planner *planner;
  ValueState *state;  /* per value of the module as it was */
  Factors **factors;  /* by op->order */
  Type ***want;       /* by op->order and slot: the layout wanted of operands that have other consumers too */
  Operands *operands; /* by op->order: as they were before the program is edited */
  bool build;         /* the last walk: edits the module */
  bool changed;       /* a value had to be completed after all: walk again */
  Region *region;     /* being rebuilt */
} Reshard;

/* choose.c */
bool version_hidden(const ValueState *s); /* nobody may use the first version but to complete it */
int version_fit(const Reshard *r, const Op *op, int slot, const Choice *c, const Pending *sums); /* or -1 */
double version_bytes(Reshard *r, ValueId v, const Type *need, int *source);
Type choice_need(const Reshard *r, const Op *op, int slot, const Choice *c, const Pending *sums);
Type choice_result(const Reshard *r, const Op *op, int result, const Choice *c, const Pending *sums);
void choose_wants(Reshard *r, const Op *op); /* fills r->want */
/* The splits of the op's factors at least cost; sums: what pending operands are pending over. */
Choice choose_splits(Reshard *r, const Op *op, const bool *pending, const Pending *sums);

/* reason.c */
const char *reason_text(const Reshard *r, ValueId v, const Type *from, const Type *to, const Op *user, int slot);

#endif
