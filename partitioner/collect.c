/* collect.c: each reshard becomes the cheapest sequence of collectives (plan.c), and its why goes on with what it
   moves, beside the least that any way could move:

     %y.1: f32[B@data, T, D] = reshard %y            ; because %r adds it to %x
     %y.1: f32[B@data, T, D] = all_reduce %y         ; because %r adds it to %x; model: 262144 B of 262144              */
#include "part.h"

/* The layout of `step`, the names of `like`. */
static Type with_layout(const Type *like, const Type *step) {
  Type t = *like;
  for (int d = 0; d < t.rank; d++) t.dim[d].split = step->dim[d].split;
  t.pending = step->pending;
  return t;
}

static const char *cost_text(Module *m, const char *why, OpKind kind, const Type *from, const Type *to) {
  if (kind == OP_SLICE) return why;
  Pending axes = move_axes(&m->mesh, from, to);
  double moved = (double)move_bytes(&m->mesh, kind, from, to);
  const char *over = pending_text(&m->mesh, &axes, m->arena);
  if (from->pending.n > to->pending.n) return arena_printf(m->arena, "%s; %.0f bytes over %s", why, moved, over);
  return arena_printf(m->arena, "%s; %.0f bytes over %s, bound %.0f", why, moved, over, move_bound(&m->mesh, from, to));
}

static void collect_op(Module *m, Planner *p, Region *r, Op *op) {
  Type from = m->values.at[op->in[0]].type, to = m->values.at[op->out[0]].type;
  const Plan *plan = plan_find(p, &from, &to, NULL);
  ValueId v = op->in[0];
  Type have = from;
  if (plan->n == 0) { /* by hand: a reshard to the layout that the value has */
    op->kind = OP_SLICE;
    ir_append(m, r, op);
  }
  for (int i = 0; i < plan->n; i++) {
    bool last = i == plan->n - 1;
    Op *step = last ? op : ir_op(m, plan->at[i].kind, op->loc);
    Type t = with_layout(&to, &plan->at[i].to);
    step->kind = plan->at[i].kind;
    step->phase = op->phase;
    step->why = cost_text(m, op->why, step->kind, &have, &t);
    if (last) {
      step->in[0] = v;
    } else {
      ir_in(m, step, v);
      v = ir_out(m, step, m->values.at[op->out[0]].name, t);
    }
    ir_append(m, r, step);
    have = t;
  }
}

static void collect_region(Module *m, Planner *p, Region *r) {
  Op **ops = r->ops.at;
  int n = r->ops.n;
  r->ops.at = NULL;
  r->ops.n = r->ops.cap = 0;
  for (int i = 0; i < n; i++) {
    if (ops[i]->body_region) collect_region(m, p, ops[i]->body_region);
    if (ops[i]->kind == OP_RESHARD) {
      collect_op(m, p, r, ops[i]);
    } else {
      ir_append(m, r, ops[i]);
    }
  }
}

void part_collect(Module *m, PassContext *cx) {
  Arena *scratch = arena_new();
  Planner *p = plan_new(scratch, &m->mesh, cx->cluster);
  plan_limit(p, cx->memory_limit);
  for (int i = 0; i < m->programs.n; i++) collect_region(m, p, m->programs.at[i].body);
  m->stage = STAGE_COLLECTED;
  ir_number(m);
  arena_free(scratch);
}
