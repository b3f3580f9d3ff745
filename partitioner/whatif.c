/* whatif.c: what an edit of the text would change, by planning the whole file again with it.

     all_reduce of r's sum over model    tried: r[b @ model, t, d]  r[b, t @ model, d]  r[b, t, d @ model]  wo[H, K, D] ...

   The claim of an explanation is so the difference of two plans, never an estimate. How many edits are tried is bounded by
   a count, not by time, so that the answer is the same everywhere. */
#include "whatif.h"

enum { MAX_NAMED = 1000 }; /* in files with more, a collective is not even looked at once the trials are spent */
/* Per collective, at least and at most; in all; trials times ops, a thousand of which take a second or two to plan. */
enum { MIN_AROUND = 2, MAX_AROUND = 16, MAX_TRIALS = 64, MAX_WORK = 3000 };

/* ---- totals -------------------------------------------------------------------------------------------------- */

PartTotals part_totals(const Module *m) {
  Arena *a = arena_new();
  Moves *s = moves_new(m, a);
  PartTotals t = {.bytes = part_bytes_per_step(m)};
  for (int i = 0; i < s->list.n; i++)
    if (s->list.at[i].slot == 0) t.calls += s->list.at[i].times;
  int64_t extent[MAX_INDEX];
  for (int i = 0; i < s->ops.n; i++) t.work += part_op_points(s->ops.at[i].op, extent) * (double)s->ops.at[i].times;
  arena_free(a);
  return t;
}

/* ---- edits ----------------------------------------------------------------------------------------------------- */

static bool same_text(const Written *x, const Written *y) {
  return x->loc.file == y->loc.file && x->loc.line == y->loc.line && x->loc.col == y->loc.col && x->loc.line > 0;
}

static void edit_type(Type *t, const Written *w, const PartEdit *e) {
  for (int d = 0; d < w->rank; d++) {
    Split *s = &t->dim[d + w->shift].split;
    bool taken = false;
    for (int i = 0; i < e->split.n; i++) taken |= split_uses(s, e->split.part[i]);
    if (taken && d != e->dim) *s = (Split){.fixed = true};
  }
  t->dim[e->dim + w->shift].split = e->split;
  t->dim[e->dim + w->shift].split.fixed = true;
}

static void edit_value(Module *m, const Written *w, const PartEdit *e) {
  Value *v = &m->values.at[w->v];
  edit_type(&v->type, w, e);
  if (v->def && op_class(v->def->kind) == CLS_SPACE) ir_sync_space(m, v->def);
  const Op *loop = v->def ? NULL : v->region->parent; /* a carried argument's pins are its result's too */
  if (loop && v->result >= 1 && v->result <= loop->ncarried) edit_type(&m->values.at[loop->out[v->result - 1]].type, w, e);
}

void part_edit(Module *m, const PartEdit *e) {
  for (int i = 0; i < m->written.n; i++)
    if (same_text(&m->written.at[i], e->at)) edit_value(m, &m->written.at[i], e);
}

const char *whatif_text(const WhatIf *w, const PartEdit *e) {
  const Module *m = w->moves->m;
  const Type *t = e->at->v < w->q->nhome ? &w->q->home[e->at->v] : &m->values.at[e->at->v].type;
  Str s = {0};
  str_put(w->a, &s, e->at->name);
  for (int d = 0; d < e->at->rank; d++) {
    const Split *split = d == e->dim ? &e->split : &t->dim[d + e->at->shift].split;
    bool moved = false;
    for (int i = 0; i < e->split.n; i++) moved |= d != e->dim && split_uses(split, e->split.part[i]);
    const char *axes = moved ? "" : ir_print_split(m, split, w->a);
    bool shown = d == e->dim || (e->at->dim[d].pinned && *axes);
    str_printf(w->a, &s, "%s%s%s%s", d ? ", " : "[", e->at->dim[d].name, shown ? " @ " : "", shown ? *axes ? axes : "none" : "");
  }
  str_put(w->a, &s, e->at->rank ? "]" : "");
  return s.at;
}

/* ---- trials -------------------------------------------------------------------------------------------------------- */

static bool exhausted(const WhatIf *w) { return w->trials.n == MAX_TRIALS || w->trials.n * (1 + w->moves->ops.n) > MAX_WORK; }

void whatif_share(WhatIf *w, int collectives) {
  int64_t all = min_i64(MAX_TRIALS, MAX_WORK / (1 + w->moves->ops.n)), each = all / max_i64(collectives, 1);
  w->around = (int)min_i64(max_i64(each, MIN_AROUND), MAX_AROUND);
}

static int try_edit(WhatIf *w, const PartEdit *e) {
  for (int i = 0; i < w->trials.n; i++) {
    const PartEdit *x = &w->trials.at[i].edit;
    if (same_text(x->at, e->at) && x->dim == e->dim && split_equal(&x->split, &e->split)) return i;
  }
  if (exhausted(w)) return -1;
  Trial t = {.edit = *e};
  t.valid = w->q->replan && w->q->replan(w->q->env, e, &t.totals);
  vec_push(w->a, w->trials, t);
  return w->trials.n - 1;
}

static void insert(WhatIf *w, TrialList *list, int trial) {
  if (trial < 0 || !w->trials.at[trial].valid) return;
  for (int i = 0; i < list->n; i++)
    if (list->at[i] == trial) return;
  vec_push(w->a, *list, trial);
  for (int i = list->n - 1; i > 0; i--) {
    int before = list->at[i - 1];
    if (w->trials.at[before].totals.bytes <= w->trials.at[trial].totals.bytes) break;
    list->at[i] = before;
    list->at[i - 1] = trial;
  }
}

/* `none` and the axes of the move for each dim, where that is not what the plan has. */
static void edits_of(WhatIf *w, const Written *at, const Pending *axes, int *left, TrialList *list) {
  if (!at || at->v >= w->q->nhome) return;
  const Type *t = &w->q->home[at->v];
  Split over = {.n = axes->n};
  memcpy(over.part, axes->part, sizeof over.part);
  int n = 2 * at->rank;
  for (int k = 0; k<n && * left> 0; k++) {
    int d = k % at->rank;
    PartEdit e = {at, d, k < at->rank ? over : (Split){0}};
    const Dim *dim = &t->dim[d + at->shift];
    if (split_equal(&dim->split, &e.split) || dim->size < split_count(&e.split)) continue;
    --*left;
    insert(w, list, try_edit(w, &e));
  }
}

static const Written *made_at(const Module *m, Loc loc) {
  for (int i = 0; i < m->written.n && loc.line; i++)
    if (m->written.at[i].loc.line == loc.line && m->written.at[i].loc.file == loc.file) return &m->written.at[i];
  return NULL;
}

TrialList whatif_around(WhatIf *w, const Transfer *v) {
  const Module *m = w->moves->m;
  if (v->from->rank == 0 || (m->written.n > MAX_NAMED && exhausted(w))) return (TrialList){0};
  Readers readers = moves_readers(w->moves, v);
  const Written *near[8] = {moves_written(w->moves, v->source), made_at(m, m->values.at[v->source].loc)};
  int n = 2, left = w->around;
  for (int i = 0; i < readers.n && n < 8; i++) near[n++] = made_at(m, readers.at[i].op->loc);
  TrialList list = {0};
  for (int i = 0; i < n; i++) {
    bool seen = false;
    for (int k = 0; k < i; k++) seen |= near[k] && near[i] && same_text(near[k], near[i]);
    if (!seen) edits_of(w, near[i], &v->axes, &left, &list);
  }
  return list;
}
