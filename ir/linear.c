/* linear.c: ex_linear_in, the law under which a pending sum passes through a body. Of ranks' contributions p and q to
   a pending operand, body(p + q) = body(p) + body(q) must hold:

     2.0 * %p[i] / %x[i] + where(%c[i], %p[i], 0.0)     linear in p
     %p[i] + %x[i]                                      not: each rank would add x
     exp(%p[i]), %p[i] * %p[i]                          not                                                      */
#include "ir/ir.h"

/* A literal 0 is a complete value that may be added to a pending one, or stand in the other branch. */
typedef enum { COMPLETE, ZERO, LINEAR, OTHER } Degree;

static Degree degree(const Expr *x, const bool *pending);

static bool index_reads_pending(const IExpr *x, const bool *pending) {
  for (int i = 0; i < x->n; i++) {
    const Term *t = &x->term[i];
    if (t->kind == ATOM_VALUE && pending[t->operand]) return true;
    if (t->sub && index_reads_pending(t->sub, pending)) return true;
    for (int j = 0; j < t->nat; j++)
      if (index_reads_pending(t->at[j], pending)) return true;
  }
  return false;
}

/* Of two values of which one is taken, or which are added. */
static Degree alike(Degree x, Degree y) {
  if (x == OTHER || y == OTHER) return OTHER;
  if (x == y) return x;
  if (x == LINEAR || y == LINEAR) return x == ZERO || y == ZERO ? LINEAR : OTHER;
  return COMPLETE;
}

static Degree read_degree(const Expr *x, const bool *pending) {
  for (int i = 0; i < x->nix; i++)
    if (index_reads_pending(x->ix[i], pending)) return OTHER;
  Degree d = pending[x->operand] ? LINEAR : COMPLETE;
  return x->otherwise ? alike(d, degree(x->otherwise, pending)) : d;
}

/* Rounding to f32 or f64 counts as keeping sums; to narrower types it does not. */
static Degree cast_degree(DType from, DType to, Degree x) {
  bool keeps = from != BOOL && (to == F64 || to == F32 || (to == I64 && from == I32));
  return x == LINEAR && !keeps ? OTHER : x;
}

static Degree degree(const Expr *x, const bool *pending) {
  if (x->op == EX_READ) return read_degree(x, pending);
  if (x->op == EX_LITERAL) return ex_is_lit(x, 0) ? ZERO : COMPLETE;
  Degree arg[3] = {COMPLETE, COMPLETE, COMPLETE};
  bool complete = true;
  for (int i = 0; i < 3 && x->arg[i]; i++) {
    arg[i] = degree(x->arg[i], pending);
    complete &= arg[i] == COMPLETE || arg[i] == ZERO;
  }
  if (complete) return COMPLETE;
  switch (x->op) {
  case EX_ADD:
  case EX_SUB: return alike(arg[0], arg[1]);
  case EX_MUL: return arg[0] == OTHER || arg[1] == OTHER || arg[0] == arg[1] ? OTHER : LINEAR;
  case EX_DIV: return arg[1] == COMPLETE || arg[1] == ZERO ? arg[0] : OTHER;
  case EX_WHERE: return arg[0] == COMPLETE || arg[0] == ZERO ? alike(arg[1], arg[2]) : OTHER;
  case EX_NEG:
  case EX_STOP: return arg[0];
  case EX_CAST: return cast_degree(x->arg[0]->dtype, x->dtype, arg[0]);
  default: return OTHER;
  }
}

bool ex_linear_in(const Expr *body, const bool *pending) { return degree(body, pending) == LINEAR; }
