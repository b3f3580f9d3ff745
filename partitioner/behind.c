/* behind.c: what a collective hides behind: the lines whose loops run between its start and its wait, in a scheduled
   program (before that stage, and where the two are neighbours, nothing).

     %y.1 = all_reduce %y          behind: 23, 24
     %q[b,t] = ...  ; m.dt:23
     %k[b,t] = ...  ; m.dt:24
     wait %y.1                                                                                                   */
#include "part.h"

static bool waits_for(const Op *op, const Op *started) { return op->kind == OP_WAIT && op->in[0] == started->out[0]; }

/* A line of the user's, or where there is none the value. */
static const char *name_of(const Module *m, const Op *op, Arena *a) {
  if (op->loc.line > 0) return arena_printf(a, "%d", op->loc.line);
  return arena_printf(a, "%%%s", m->values.at[op->out[0]].name);
}

static bool has(const Names *list, const char *name) {
  for (int i = 0; i < list->n; i++)
    if (!strcmp(list->at[i], name)) return true;
  return false;
}

Names part_behind(const Module *m, const Region *r, const Op *op, Arena *a) {
  Names list = {0};
  int end = op->order + 1;
  while (end < r->ops.n && !waits_for(r->ops.at[end], op)) end++;
  for (int i = op->order + 1; i < end && end < r->ops.n; i++) {
    const Op *step = r->ops.at[i];
    bool loops = op_class(step->kind) == CLS_REGION || (op_class(step->kind) == CLS_SPACE && step->space.n > 0);
    const char *name = loops ? name_of(m, step, a) : NULL;
    if (name && !has(&list, name)) vec_push(a, list, name);
  }
  return list;
}
