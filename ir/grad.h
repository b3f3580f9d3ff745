/* grad.h: what the files of the gradient share. grad.c walks programs backwards, grad_ops.c has a rule per op
   kind, grad_repeat.c the rule of a loop, grad_derive.c differentiates bodies, grad_adjoint.c turns a read of
   the forward op into a nest of the backward one. */
#ifndef DTC_GRAD_H
#define DTC_GRAD_H

#include "ir/ir.h"

typedef VEC(ValueId) ValueList;

typedef struct {
  Module *m;
  PassContext *cx;
  Region *to;     /* adjoint ops go to its end */
  int nforward;   /* values of the forward program: the arrays below have this length */
  bool *active;   /* real, and depends on a parameter that gets a gradient */
  bool *weight;   /* a parameter, or an argument of a repeat's body that is one or a slice of one */
  ValueList *cot; /* contributions to the gradient of each value; their sum is the gradient */
} Grad;

/* What a rule hands over: the forward op computed `body` at every point of `space`. */
typedef struct {
  const Op *op; /* place and names */
  Space space;
  ValueList in; /* what operand numbers in body (and in the cotangent) mean */
  Expr *body;
  Expr *value; /* body read back from the op's result, or NULL: saves computing it again */
} Flow;

/* grad.c */
bool grad_is_active(const Grad *g, ValueId v);
void grad_walk(Grad *g, const Region *r); /* applies the rules to r's ops, last to first */
ValueId grad_total(Grad *g, ValueId v);   /* the gradient of v: the sum of its contributions; -1: none */
void grad_add(Grad *g, ValueId v, ValueId contribution);
Type grad_open(const Type *t);                                           /* t without layout */
const char *grad_index_name(Arena *a, const Space *sp, const char *dim); /* as the dim, in lower case, unique in sp */
const char *grad_name(const Grad *g, ValueId v);                         /* d.v */
Op *grad_op(const Grad *g, OpKind kind, Loc loc, GradTag tag);
/* Appends an op with one result; operands that body and into do not use are left out. */
ValueId grad_emit(Grad *g, Op *op, const char *name, Type t, const ValueList *in);
ValueId grad_fill(Grad *g, ValueId like, double v, Loc loc); /* a constant of like's shape, named as its gradient */
Expr *grad_read(Grad *g, ValueList *in, ValueId v, const int *index, int n); /* v[index...], appended to in */
Expr *grad_read_out(Grad *g, ValueList *in, ValueId v);                      /* v at indices 0, 1, ... */
/* The same for a gradient v; if that only spreads or permutes another value, the other is read, so that what a sum
   sends back need not be stored for every element. */
Expr *grad_read_through(Grad *g, ValueList *in, ValueId v);

/* grad_ops.c */
void grad_apply(Grad *g, Op *op);

/* grad_repeat.c */
void grad_repeat(Grad *g, Op *op);

/* grad_derive.c: the derivative of f->body by all reads of operand `value` at ix, or NULL if it is 0. */
Expr *grad_derive(Grad *g, const Flow *f, const Expr *read);
Expr *grad_times(Arena *a, Expr *cot, Expr *derivative);     /* inside the branches of where: never 0 * inf */
Expr *grad_inside(Grad *g, const Flow *f, const Expr *read); /* the condition under which a guarded read reads; NULL: always */
Expr *grad_index_value(Grad *g, const ValueList *in, const IExpr *x); /* an index expression as an i32 value, reads included */

/* grad_adjoint.c: adds the contributions of a flow, whose cotangent is cot, to all that its body reads. */
void grad_flow(Grad *g, Flow *f, Expr *cot);

#endif
