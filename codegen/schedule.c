/* schedule.c: the total order in which a rank runs its steps. A step is one op or the ops of one group. The order is
   the program's own, by phase: forward, backward, update, so that each phase becomes one function; an op only ever
   depends on ops of its own phase or of one before it. Then collectives move apart from their waits (overlap.c):
   from now on a collective only starts where it stands.

     %y.1: f32[D] = all_reduce %y      =>      %y.1: f32[D] = all_reduce %y
     %z[d]: f32[D] = nest %x[d]                %z[d]: f32[D] = nest %x[d]
     %w[d]: f32[D] = nest %y.1[d]              wait %y.1
                                               %w[d]: f32[D] = nest %y.1[d]                                      */
#include "cg.h"

Steps cg_steps(const Region *r, Arena *a) {
  Steps steps = {0};
  for (int i = 0; i < r->ops.n; i++) {
    Op *op = r->ops.at[i];
    Step *last = steps.n ? &steps.at[steps.n - 1] : NULL;
    if (last && op->group > 0 && last->op[0]->group == op->group) {
      last->n++;
    } else {
      Step s = {&r->ops.at[i], 1};
      vec_push(a, steps, s);
    }
  }
  return steps;
}

/* Stable: within a phase the order stays. Leaves come first. A later phase's op moves behind; what it makes is used
   only by its own or later phases. */
static void order_phases(Region *r, Arena *a) {
  VEC(Op *) sorted = {0};
  for (int leaf = 1; leaf >= 0; leaf--)
    for (int phase = PHASE_FORWARD; phase <= PHASE_UPDATE; phase++)
      for (int i = 0; i < r->ops.n; i++) {
        Op *op = r->ops.at[i];
        if ((op_class(op->kind) == CLS_LEAF) == leaf && (int)op->phase == phase) vec_push(a, sorted, op);
      }
  memcpy(r->ops.at, sorted.at, (size_t)sorted.n * sizeof *sorted.at);
}

/* A phase never precedes that of what it reads (a forward op that reads a gradient counts as backward). */
void cg_raise_phases(Module *m, Region *r) {
  for (int i = 0; i < r->ops.n; i++) {
    Op *op = r->ops.at[i];
    for (int k = 0; k < op->nin; k++) {
      const Op *def = m->values.at[op->in[k]].def;
      if (def && op_class(def->kind) != CLS_LEAF && def->phase > op->phase) op->phase = def->phase;
    }
  }
}

void cg_schedule(Module *m, PassContext *cx) {
  (void)cx;
  Arena *scratch = arena_new();
  for (int p = 0; p < m->programs.n; p++) {
    cg_raise_phases(m, m->programs.at[p].body);
    order_phases(m->programs.at[p].body, scratch);
  }
  cg_overlap(m, scratch);
  ir_number(m);
  m->stage = STAGE_SCHEDULED;
  arena_free(scratch);
}
