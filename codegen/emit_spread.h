/* emit_spread.h: CUDA's loops over the grid. */
#ifndef DTC_EMIT_SPREAD_H
#define DTC_EMIT_SPREAD_H

#include "emit.h"

/* One of several counts whose combinations are dealt out. */
typedef struct {
  const char *name, *count; /* the variable that says which, and how many, as C */
  int64_t most;             /* no rank has more */
} Extent;
Extent emit_extent(Scope *s, int index);

/* Open a loop over all combinations, a thread or a block to each; return how many blocks to launch. In C those by threads
   are loops inside each other; `opened`: how many to close. `inside`, if given: statements for the beginning of each loop. */
const char *emit_by_threads(Kernel *k, int threads, int n, const Extent *x, const Str *inside, int *opened);
const char *emit_by_blocks(Kernel *k, int n, const Extent *x);
int emit_threads(int64_t items); /* in a block that has so many to share */

const char *emit_count(Emit *e, int n, const Extent *x); /* of the combinations, as C */
bool emit_is_number(const char *count);
const char *emit_factor(Emit *e, const char *x); /* in parentheses, unless it is one word */
int64_t emit_most(int n, const Extent *x);
const char *emit_number_type(int n, const Extent *x); /* that holds their numbers */
/* Declares the variables that combination `number` stands for; only those that the statements `user` use, if given. */
void emit_unravel(Kernel *k, Str *out, const char *number, int n, const Extent *x, const char *user);

#endif
