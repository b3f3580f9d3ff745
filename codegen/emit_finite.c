/* emit_finite.c: which values must be finite. When the loss is not, the step is run again and the first such value that
   has no right to be infinite is named. Infinities are legitimate where they were written:

     mask = where(u <= t, 0, -inf)     says so itself
     s    = q + mask                   reads such a value
     p    = exp(s - max)               does not: exp takes -inf to 0                                          */
#include "emit.h"

static bool infinite_value(Emit *e, ValueId v);

static bool infinite(Emit *e, const Op *op, const Expr *x) {
  if (!x) return false;
  switch (x->op) {
  case EX_LITERAL: return !dtype_is_int(x->dtype) && __builtin_isinf(x->lit);
  case EX_READ: return infinite_value(e, op->in[x->operand]) || infinite(e, op, x->otherwise);
  case EX_WHERE: return infinite(e, op, x->arg[1]) || infinite(e, op, x->arg[2]);
  case EX_EXP:
  case EX_TANH:
  case EX_SIGMOID: return false;
  default: return infinite(e, op, x->arg[0]) || infinite(e, op, x->arg[1]) || infinite(e, op, x->arg[2]);
  }
}

static bool infinite_value(Emit *e, ValueId v) {
  enum { UNKNOWN, NO, YES };
  const Op *op = e->m->values.at[v].def;
  if (!op || !op->body || op->kind == OP_ATTENTION) return false;
  if (e->infinite[v] == UNKNOWN) e->infinite[v] = infinite(e, op, op->body) ? YES : NO;
  return e->infinite[v] == YES;
}

bool emit_watched(Emit *e, const Op *op, int out) {
  bool lse = op->kind == OP_ATTENTION && out == 1;
  return op->phase == PHASE_FORWARD && e->m->values.at[op->out[out]].type.dtype == F32 && !lse &&
         !infinite_value(e, op->out[out]);
}

const char *emit_watch(Emit *e, const Op *op, const char *place) {
  Str s = {0};
  str_printf(e->a, &s, "if (see) dtrt_check_f32(cx, &%s, 1, ", place);
  emit_string(e, &s, e->m->values.at[op->out[0]].name);
  str_printf(e->a, &s, ", %d);\n", op->loc.line);
  return s.at;
}
