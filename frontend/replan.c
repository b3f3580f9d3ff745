/* replan.c: the file planned again with an edit of its layouts, on a copy of the module, without messages: what an
   explanation claims about an edit is so the difference of two plans.

     part_edit(r[b, t @ model, d]) -> recognise ... localize -> bytes per step                                            */
#include "driver.h"

static void ignore(void *env, const Module *m, int pass) { (void)env, (void)m, (void)pass; }

bool replan(void *env, const PartEdit *e, PartTotals *out) {
  const Replan *r = env;
  Arena *a = arena_new();
  Module *m = ir_clone(r->module, a);
  part_edit(m, e);
  PassContext cx = *r->cx;
  cx.diags = diags_new(a);
  cx.origins = NULL;
  memset(&cx.notes, 0, sizeof cx.notes);
  Clock clock;
  clock_start(&clock);
  memset(&clock.steps, 0, sizeof clock.steps);
  bool ok = pipeline_run(m, &cx, r->first, pipeline_find("localize"), &clock, ignore, NULL);
  if (ok) *out = part_totals(m);
  arena_free(a);
  return ok;
}
