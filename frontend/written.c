/* written.c: Module.written: for each tensor that the text names, where its layout stands or could stand. Messages use it
   to point at an `@`, and to say which one would help:

     r[b, t @ model, d] = ...          name r, dims b, t (pinned), d, each with its place
     param w: f32[D, F @ model] = ...  name w, dims D, F; a parameter's dims are all pinned, some by a layout rule      */
#include "lower.h"

static void add(Ctx *cx, Written w) {
  if (!cx->lw->dry) vec_push(cx->lw->a, cx->lw->m->written, w);
}

static Loc rule_of(const Lower *lw, const char *dim) {
  for (int i = 0; dim && i < lw->rules.n; i++)
    if (!strcmp(lw->rules.at[i].dim.text, dim)) return lw->rules.at[i].dim.loc;
  return (Loc){0};
}

void written_type(Ctx *cx, ValueId v, int shift, AstName name, const AstType *t, bool closed) {
  Written w = {.v = v, .name = name.text, .loc = name.loc, .rank = (int)min_i64(t->dims.n, MAX_RANK), .shift = shift};
  for (int i = 0; i < w.rank; i++) {
    const AstTypeDim *d = &t->dims.at[i];
    w.dim[i].name = ast_expr_text(cx->lw->a, d->size);
    w.dim[i].at = d->size->loc;
    w.dim[i].pinned = closed || d->axes.present;
    if (closed && !d->axes.present) w.dim[i].rule = rule_of(cx->lw, w.dim[i].name);
  }
  add(cx, w);
}

void written_lhs(Ctx *cx, ValueId v, const AstLhs *lhs) {
  Written w = {.v = v, .name = lhs->name.text, .loc = lhs->name.loc, .rank = (int)min_i64(lhs->index.n, MAX_RANK)};
  for (int i = 0; i < w.rank; i++) {
    const AstLhsIndex *x = &lhs->index.at[i];
    w.dim[i].name = ast_expr_text(cx->lw->a, x->index);
    w.dim[i].at = x->loc;
    w.dim[i].pinned = x->axes.present;
  }
  add(cx, w);
}
