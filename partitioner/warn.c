/* warn.c: what a plan costs that the user may not have meant, as warnings with numbers and a caret at the line.

     implicit-gather  a tensor is put together because the op that reads it cannot run split, or (only for those who ask)
                      because two layouts want one axis; from 4096 bytes per step on
     replicated       all ranks of an axis compute a line alike
     padding          the longest part of an uneven dim computes more than its share: both from 1/10 of a device's work and
                      2^20 points per step on

   Work is counted in points of the index space: the multiply-adds of a product, the elements of a map. The optimizer is
   laid out as the parameters are and no text is about it alone, so it counts as work but is no warning.                  */
#include "moves.h"

#include <stdlib.h>

enum { LEAST_BYTES = 4096, LEAST_SHARE = 10, LEAST_POINTS = 1 << 20 };

typedef struct {
  const Module *m;
  Moves *moves;
  Diags *d;
  Arena *a;
  bool placed; /* locs point into d's files */
} Warn;

static Loc place(const Warn *w, Loc loc) { return w->placed ? loc : (Loc){0}; }

/* `q` where the text names it, else %q.sum. */
static const char *named(const Warn *w, ValueId v) {
  const Written *x = moves_written(w->moves, v);
  return x ? arena_printf(w->a, "`%s`", x->name) : arena_printf(w->a, "%%%s", w->m->values.at[v].name);
}

static const char *line_of(const Warn *w, Loc loc) {
  return w->placed || loc.line == 0 ? "" : arena_printf(w->a, "%s: ", moves_place(w->m, loc, w->a));
}

/* ---- implicit-gather --------------------------------------------------------------------------------------- */

/* The dims that the reader could have split instead, by name. */
static const char *others(const Warn *w, const Transfer *v, Reader r, int but) {
  Str s = {0};
  const Factors *f = part_factors(w->m, r.op, w->a);
  for (int i = 0; i < r.op->space.n; i++) {
    bool in_operand = false;
    for (int d = 0; d < v->from->rank; d++) in_operand |= d != but && f->in[r.slot].index[d] == i && v->from->dim[d].split.n == 0;
    if (in_operand && f->splits[i]) str_printf(w->a, &s, "%s`%s`", s.n ? " or " : "", r.op->space.idx[i].name);
  }
  return s.at;
}

static void help_gather(const Warn *w, Diag *g, const Transfer *v, Reader r, int d) {
  const char *axes = pending_text(&w->m->mesh, &v->axes, w->a), *free = others(w, v, r, d);
  if (free) diag_help(w->d, g, "split %s over %s instead: it can run split along that", free, axes);
}

static const char *dim_name(const Warn *w, const Type *t, int d) {
  return t->dim[d].name ? t->dim[d].name : arena_printf(w->a, "dim %d", d + 1);
}

static void cannot_run_split(const Warn *w, const Transfer *v, Reader r, int d, int index) {
  const char *what = named(w, v->source), *axes = pending_text(&w->m->mesh, &v->axes, w->a);
  Diag *g = diag_warning(w->d, "W0701", place(w, r.op->loc), "%s%s is gathered over %s: %lld bytes, %lld times a step",
                         line_of(w, r.op->loc), what, axes, (long long)v->bytes, (long long)v->times);
  if (index >= 0)
    diag_mark(w->d, g, "%s cannot run split along `%s`", op_text(r.op->kind), r.op->space.idx[index].name);
  else
    diag_mark(w->d, g, "this reads other places of %s of %s than its own", dim_name(w, v->from, d), what);
  Loc made = place(w, w->m->values.at[v->source].loc);
  if (made.line && made.line != r.op->loc.line) diag_label(w->d, g, made, "%s is split over %s", what, axes);
  help_gather(w, g, v, r, d);
}

/* A computed tensor, in no layout that the user wrote, is put together for another split of its reader. */
static bool clash(const Warn *w, const Transfer *v) {
  const Written *x = moves_written(w->moves, v->source);
  bool gathers = false;
  for (int d = 0; d < v->from->rank; d++)
    gathers |= moves_gathers(v->from, v->to, d) && !(x && d >= x->shift && d - x->shift < x->rank && x->dim[d - x->shift].pinned);
  return gathers && v->op->phase == PHASE_FORWARD && v->from->pending.n == 0;
}

/* Does another index of the reader use the axes that are gathered? Then it does run split over them, another way. */
static bool splits_otherwise(const Transfer *v, const Op *op) {
  for (int i = 0; i < v->axes.n; i++) {
    bool used = false;
    for (int k = 0; k < op->space.n; k++) used |= split_uses(&op->space.idx[k].split, v->axes.part[i]);
    if (!used) return false;
  }
  return true;
}

static void layouts_clash(const Warn *w, const Transfer *v) {
  Diag *g = diag_warning(w->d, "W0701", place(w, v->op->loc), "%s%s needs an %s over %s: %lld bytes, %lld times a step",
                         line_of(w, v->op->loc), named(w, v->source), op_text(v->op->kind),
                         pending_text(&w->m->mesh, &v->axes, w->a), (long long)v->bytes, (long long)v->times);
  const char *why = v->op->why ? v->op->why : "two layouts clash";
  diag_mark(w->d, g, "%.*s", (int)strcspn(why, ";"), why);
}

/* Warnings about IR text are for those who ask. */
static bool wanted(const Warn *w, const char *code) { return w->placed ? diag_wanted(w->d, code) : diag_asked(w->d, code); }

static void warn_gathers(const Warn *w) {
  if (!wanted(w, "W0701")) return;
  for (int i = 0; i < w->moves->list.n; i++) {
    const Transfer *v = &w->moves->list.at[i];
    if (v->bytes * v->times < LEAST_BYTES) continue;
    int d, index;
    Reader r = moves_obstacle(w->moves, v, &d, &index);
    if (r.op && !(index >= 0 && splits_otherwise(v, r.op)))
      cannot_run_split(w, v, r, d, index);
    else if (diag_asked(w->d, "W0701") && clash(w, v))
      layouts_clash(w, v);
  }
}

/* ---- replicated and padding -------------------------------------------------------------------------------------- */

typedef struct {
  double points;  /* of one rank's box, the longest */
  double even;    /* the same if every part had its share */
  double share;   /* the same if no two ranks computed the same */
  Pending unused; /* axes that split none of its indices */
  int longest;    /* the index whose parts are most uneven, or -1 */
} Work;

static Work work_of(const Warn *w, const Op *op) {
  int64_t extent[MAX_INDEX];
  Work k = {.points = part_op_points(op, extent), .even = 1, .longest = -1};
  const Mesh *mesh = &w->m->mesh;
  double uneven = 1, repeated = 1;
  for (int i = 0; i < op->space.n; i++) {
    const Index *x = &op->space.idx[i];
    double whole = (double)x->range, parts = (double)split_count(&x->split), most = (double)extent[i];
    k.even *= whole / parts;
    if (most * parts > uneven * whole) uneven = most * parts / whole, k.longest = i;
  }
  for (int a = 0; a < mesh->naxes; a++) {
    int64_t used = 1;
    for (int i = 0; i < op->space.n; i++)
      for (int p = 0; p < op->space.idx[i].split.n; p++)
        if (op->space.idx[i].split.part[p].axis == a) used *= op->space.idx[i].split.part[p].size;
    if (used == mesh->axis[a].size) continue;
    k.unused.part[k.unused.n++] = axis_whole(mesh, a);
    repeated *= (double)mesh->axis[a].size / (double)used;
  }
  k.share = k.even / repeated;
  return k;
}

/* What one op wastes; of a line: all its ops, and the worst of each kind. */
typedef struct {
  Loc loc;
  int number; /* in the program, so that the order is one */
  double repeated, padded;
  const Op *op, *worst, *worst_padded;
} Waste;

static int by_line(const void *x, const void *y) {
  const Waste *a = x, *b = y;
  if (a->loc.file != b->loc.file) return a->loc.file < b->loc.file ? -1 : 1;
  if (a->loc.line != b->loc.line) return a->loc.line < b->loc.line ? -1 : 1;
  return a->number < b->number ? -1 : a->number > b->number;
}

/* The wastes of op from `from` on that stand on one line, as one; returns where the next line begins. */
static int join_line(const Waste *w, int from, int n, Waste *line) {
  double repeated = 0, padded = 0;
  int i = from;
  *line = (Waste){.loc = w[from].loc};
  for (; i < n && w[i].loc.line == line->loc.line && w[i].loc.file == line->loc.file; i++) {
    line->repeated += w[i].repeated;
    line->padded += w[i].padded;
    if (w[i].repeated > repeated) repeated = w[i].repeated, line->worst = w[i].op;
    if (w[i].padded > padded) padded = w[i].padded, line->worst_padded = w[i].op;
  }
  return i;
}

static void replicated(const Warn *w, const Waste *x, double total) {
  Work k = work_of(w, x->worst);
  const char *axes = pending_text(&w->m->mesh, &k.unused, w->a);
  Diag *g = diag_warning(w->d, "W0702", place(w, x->loc),
                         "%sall ranks of %s compute this alike: %.0f of the %.0f points that each computes, %.0f %%",
                         line_of(w, x->loc), axes, x->repeated, total, 100 * x->repeated / total);
  const Space *s = &x->worst->space;
  const Factors *f = part_factors(w->m, x->worst, w->a);
  Str free = {0};
  for (int i = 0; i < s->n; i++)
    if (f->splits[i] && f->works[i] && s->idx[i].split.n == 0 && s->idx[i].range > 1)
      str_printf(w->a, &free, "%s`%s`", free.n ? ", " : "", s->idx[i].name);
  if (free.n) diag_help(w->d, g, "it could run split over %s along %s, if what it reads or makes is split there", axes, free.at);
}

static void padding(const Warn *w, const Waste *x, double total) {
  Work k = work_of(w, x->worst_padded);
  const Index *i = &x->worst_padded->space.idx[k.longest];
  long long parts = split_count(&i->split), most = split_capacity(&i->split, i->range);
  Diag *g = diag_warning(w->d, "W0703", place(w, x->loc),
                         "%s%lld ranks do not divide `%s`: waiting for the longest part costs %.0f of %.0f points",
                         line_of(w, x->loc), parts, i->name, x->padded, total);
  diag_mark(w->d, g, "%lld in %lld parts: up to %lld, %.4g on average", (long long)i->range, parts, most,
            (double)i->range / (double)parts);
}

static void warn_work(const Warn *w) {
  const Moves *s = w->moves;
  Waste *all = NEW_ARRAY(s->a, Waste, s->ops.n + 1), line;
  int n = 0;
  double total = 0;
  for (int i = 0; i < s->ops.n; i++) {
    const Op *op = s->ops.at[i].op;
    Work k = work_of(w, op);
    double times = (double)s->ops.at[i].times;
    total += k.points * times;
    if (op->loc.line > 0 && op->phase != PHASE_UPDATE)
      all[n++] = (Waste){op->loc, i, (k.even - k.share) * times, (k.points - k.even) * times, op, NULL, NULL};
  }
  bool repeats = wanted(w, "W0702"), pads = wanted(w, "W0703");
  qsort(all, (size_t)n, sizeof *all, by_line);
  for (int i = 0; i < n;) {
    i = join_line(all, i, n, &line);
    if (repeats && line.worst && line.repeated >= LEAST_POINTS && line.repeated * LEAST_SHARE >= total)
      replicated(w, &line, total);
    if (pads && line.worst_padded && line.padded >= LEAST_POINTS && line.padded * LEAST_SHARE >= total) padding(w, &line, total);
  }
}

void part_warn(const Module *m, Diags *d, bool placed) {
  Arena *a = arena_new();
  Warn w = {.m = m, .d = d, .a = d->arena, .placed = placed};
  w.moves = moves_new(m, a);
  warn_gathers(&w);
  warn_work(&w);
  arena_free(a);
}
