/* diff.c: two plans -> what changes from one to the other: collectives that are gone, new or changed, totals by axes, memory.

     - all_reduce over model of %y.sum    8192 bytes  1 times  line 8
     + reduce_scatter over model of %y.sum  4096 bytes  1 times  line 8
     over model      8192 -> 4096 bytes, 1 -> 1 calls

   Lines shift from file to file, so rows are matched by the name of what moves: first those that are equal in all else, then,
   in order, those that only share it. */
#include "moves.h"

PartRows *part_rows(const Module *m, Arena *a) {
  PartRows *r = NEW(a, PartRows);
  Arena *scratch = arena_new();
  Moves *s = moves_new(m, scratch);
  r->totals = part_totals(m);
  for (int i = 0; i < s->list.n; i++) {
    const Transfer *v = &s->list.at[i];
    const Value *x = &m->values.at[v->source];
    Loc loc = v->slot == 0 ? v->op->loc : x->loc;
    PartRow row = {
        .kind = op_text(v->op->kind), .axes = pending_text(&m->mesh, &v->axes, a), .bytes = v->bytes, .times = v->times};
    row.what = arena_strdup(a, x->name);
    row.line = loc.line;
    row.calls = v->slot == 0;
    vec_push(a, r->at, row);
  }
  arena_free(scratch);
  return r;
}

/* ---- which row is which --------------------------------------------------------------------------------------- */

static bool same_place(const PartRow *x, const PartRow *y) { return !strcmp(x->what, y->what); }

static bool equal(const PartRow *x, const PartRow *y) {
  return same_place(x, y) && !strcmp(x->kind, y->kind) && !strcmp(x->axes, y->axes) && x->bytes == y->bytes &&
         x->times == y->times;
}

/* match[i]: the row of `old` that row i of `new` was, or -1; taken: of old. */
static void pair(const PartRows *old, const PartRows *new, bool (*alike)(const PartRow *, const PartRow *), int *match,
                 bool *taken) {
  for (int i = 0; i < new->at.n; i++)
    for (int k = 0; k < old->at.n && match[i] < 0; k++)
      if (!taken[k] && alike(&old->at.at[k], &new->at.at[i])) match[i] = k, taken[k] = true;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static void put_row(Arena *a, Str *s, char sign, const PartRow *r) {
  str_printf(a, s, "%c %s over %s of %%%s: %lld bytes, %lld times a step", sign, r->kind, r->axes, r->what, (long long)r->bytes,
             (long long)r->times);
  if (r->line) str_printf(a, s, ", line %d", r->line);
  str_put(a, s, "\n");
}

static void sum(const PartRows *r, const char *axes, int64_t *bytes, int64_t *calls) {
  *bytes = *calls = 0;
  for (int i = 0; i < r->at.n; i++) {
    const PartRow *x = &r->at.at[i];
    if (strcmp(x->axes, axes)) continue;
    *bytes += x->bytes * x->times;
    *calls += x->calls ? x->times : 0;
  }
}

static bool seen_axes(const PartRows *r, int n, const char *axes) {
  for (int i = 0; i < n; i++)
    if (!strcmp(r->at.at[i].axes, axes)) return true;
  return false;
}

static void put_axes(Arena *a, Str *s, const PartRows *old, const PartRows *new, const char *axes) {
  int64_t was, is, called, calls;
  sum(old, axes, &was, &called);
  sum(new, axes, &is, &calls);
  if (was == is && called == calls) return;
  str_printf(a, s, "over %s: %lld -> %lld bytes in %lld -> %lld calls\n", axes, (long long)was, (long long)is, (long long)called,
             (long long)calls);
}

const char *part_diff(const PartRows *old, const PartRows *new, Arena *a) {
  Str s = {0};
  int *match = NEW_ARRAY(a, int, new->at.n + 1);
  bool *taken = NEW_ARRAY(a, bool, old->at.n + 1), same = old->at.n == new->at.n;
  for (int i = 0; i < new->at.n; i++) match[i] = -1;
  pair(old, new, equal, match, taken);
  for (int i = 0; i < new->at.n; i++) same &= match[i] >= 0;
  if (same && old->totals.bytes == new->totals.bytes) return NULL;
  pair(old, new, same_place, match, taken);
  for (int i = 0; i < old->at.n; i++)
    if (!taken[i]) put_row(a, &s, '-', &old->at.at[i]);
  for (int i = 0; i < new->at.n; i++) {
    if (match[i] >= 0 && equal(&old->at.at[match[i]], &new->at.at[i])) continue;
    if (match[i] >= 0) put_row(a, &s, '-', &old->at.at[match[i]]);
    put_row(a, &s, '+', &new->at.at[i]);
  }
  for (int i = 0; i < old->at.n; i++)
    if (!seen_axes(old, i, old->at.at[i].axes)) put_axes(a, &s, old, new, old->at.at[i].axes);
  for (int i = 0; i < new->at.n; i++)
    if (!seen_axes(new, i, new->at.at[i].axes) && !seen_axes(old, old->at.n, new->at.at[i].axes))
      put_axes(a, &s, old, new, new->at.at[i].axes);
  str_printf(a, &s, "received per step: %lld -> %lld bytes in %lld -> %lld calls\n", (long long)old->totals.bytes,
             (long long)new->totals.bytes, (long long)old->totals.calls, (long long)new->totals.calls);
  return s.at;
}
