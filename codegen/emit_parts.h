/* emit_parts.h: CUDA: one launch for steps that do the same to different tensors. */
#ifndef DTC_EMIT_PARTS_H
#define DTC_EMIT_PARTS_H

#include "emit_rows.h"

enum { MAX_FIELDS = 32 };

/* A call of such a kernel: fields that all parts share are arguments, the others and n make the table. */
typedef struct {
  const char *name;
  const Op *op;
  int nparts, nfield;
  bool common[MAX_FIELDS];
  ValueId *value; /* [part * nfield + field] */
  int64_t *n;     /* by part: iterations of its loop */
  Kernel *kernel; /* of one part that is like no other: a group's kernel */
} PartsCall;
typedef VEC(PartsCall) PartsCalls;

/* Of the steps from `from` on so many as become the calls; 0: none. */
int emit_parts(Emit *e, const Steps *steps, int from, int to, PartsCalls *calls);

#endif
