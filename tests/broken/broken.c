/* broken.c: linked into dtc_broken, a dtc whose collect has a fault, so that what dtc does about a wrong plan can be seen.

   The linker sends every call of part_collect here (--wrap). The first difference of the plan has its operands swapped:
   no law is broken, only the meaning changed.

     %d: nest[i] %x[i] - %y[i]        ->  nest[i] %y[i] - %x[i]                                                    */
#include "ir/ir.h"

void __real_part_collect(Module *m, PassContext *cx);
void __wrap_part_collect(Module *m, PassContext *cx);

static bool swap_in(Expr *x) {
  if (x->op == EX_SUB) {
    Expr *first = x->arg[0];
    x->arg[0] = x->arg[1], x->arg[1] = first;
    return true;
  }
  for (int i = 0; i < 3; i++)
    if (x->arg[i] && swap_in(x->arg[i])) return true;
  return false;
}

static bool swap_first(Region *r) {
  for (int i = 0; i < r->ops.n; i++) {
    Op *op = r->ops.at[i];
    if ((op->body && swap_in(op->body)) || (op->body_region && swap_first(op->body_region))) return true;
  }
  return false;
}

void __wrap_part_collect(Module *m, PassContext *cx) {
  __real_part_collect(m, cx);
  swap_first(m->programs.at[0].body);
}
