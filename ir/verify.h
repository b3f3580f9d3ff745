/* verify.h: what the verifier's files share: verify.c (values, regions, the module), verify_op.c (each kind's shape),
   verify_body.c (bodies and index expressions), verify_layout.c (shardings and pending sums), verify_waits.c (collectives
   under way). A check returns false
   after the first law that is broken, which is then in c->why. Private to ir/. */
#ifndef DTC_IR_VERIFY_H
#define DTC_IR_VERIFY_H

#include "text.h"

typedef struct {
  const Module *m;
  Arena *scratch;
  const Op *op; /* being checked, or NULL */
  const char *why;
} Check;

bool broken(Check *c, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* false */
#define LAW(c, holds, ...)                                                                                                       \
  do {                                                                                                                           \
    if (!(holds)) return broken((c), __VA_ARGS__);                                                                               \
  } while (0)

static inline const Value *value_of(const Check *c, ValueId v) { return &c->m->values.at[v]; }
static inline const Type *type_of(const Check *c, ValueId v) { return &c->m->values.at[v].type; }
static inline bool same_shape(const Type *x, const Type *y) {
  if (x->dtype != y->dtype || x->rank != y->rank) return false;
  for (int d = 0; d < x->rank; d++)
    if (x->dim[d].size != y->dim[d].size) return false;
  return true;
}
static inline bool is_scalar(const Type *t, DType d) { return t->rank == 0 && t->dtype == d; }

const char *show_value(Check *c, ValueId v); /* "%x" */
const char *show_type(Check *c, const Type *t);
const char *show_index(Check *c, const IExpr *x);
const char *show_parts(Check *c, const AxisPart *part, int n); /* "data, model(1:2)", "nothing" */

bool check_op(Check *c, bool in_repeat);
bool check_body(Check *c, const Expr *x);
bool check_read(Check *c, int operand, int n, IExpr *const *ix, bool guarded);
bool check_into(Check *c);
bool check_type_layout(Check *c, ValueId v);
bool check_layout(Check *c);
bool check_waits(Check *c, const Region *r);

#endif
