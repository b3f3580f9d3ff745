/* emit_rows.h: a group being printed: what its loops in C (emit_rows_c.c) and in CUDA (emit_rows_cuda.c) share. */
#ifndef DTC_EMIT_ROWS_H
#define DTC_EMIT_ROWS_H

#include "emit.h"

struct Rows {
  Emit *e;
  Kernel *k;
  GroupPlan g;
  Teams teams; /* CUDA; g is its plan */
  bool *escapes;
  const char **scalar; /* by member: variable that holds its value now, or NULL */
  const char **buffer; /* by member: row buffer, or NULL */
  const char **column; /* by member: where a column is added up, NULL: at its own place */
  const char **acc;    /* by member: accumulator */
  const char **total;  /* by member: accumulator of a sum to a scalar over all rows */
  Var row[MAX_RANK];
  Str *out;
  const char *count; /* CUDA: variable for the count of the grid's one loop, or NULL: as a number */
  int64_t counted;   /* which is this number; 0: there is no such loop */
  /* With `count`: stores come after the reads of all neighbours that a thread takes at a time, kept in arrays till then. */
  const char *lane; /* index of such an array, or NULL */
  Str kept, stores; /* the arrays; a line per store */
  const char *one;  /* CUDA: stands before a store that one thread of the team does; NULL: a store of each thread's own */
  /* the segment being printed */
  int segment;
  LoopOrder order;
  Var loop[MAX_INDEX];
  int depth;
  Str pre[MAX_INDEX + 2];
};

const Type *rows_type(const Rows *r, const Member *x); /* of a member's value */
Scope rows_scope(Rows *r, const Member *x, Str *now);
Var rows_index(Rows *r, const Index *x, const char *name, int level);
/* Where member x's result is stored, or NULL if it is only a scalar. */
const char *rows_target(Rows *r, const Member *x, Scope *s);
void rows_store(Rows *r, const Member *x, const char *to, const char *value, Str *body);
bool rows_ordered_bits(const Rows *r, const Op *op); /* is a maximum taken of the floats' bits? */
const char *rows_identity(Rows *r, const Op *op, bool bits);
const char *rows_combine(Rows *r, const Op *op, const char *acc, const char *x, bool bits);
void rows_watch(Rows *r, const Member *x, const char *place, Str *body);
void rows_map(Rows *r, const Member *x, Str *body);        /* the statement of a map */
void rows_accumulate(Rows *r, const Member *x, Str *body); /* of a sum: into its accumulator, or its target */

Rows *rows_begin(Emit *e, const Step *step, Kernel *k);
const Op *rows_name_giver(const Rows *r); /* the last member whose value leaves the group: the function is named after it */
const char *rows_description(Rows *r);    /* what it makes */

void emit_rows_c(Rows *r);
void emit_rows_cuda(Rows *r);
const char *rows_text_cuda(Rows *r); /* the kernel's body */

#endif
