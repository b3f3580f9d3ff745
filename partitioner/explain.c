/* explain.c: the text of `dtc --explain`: for each tensor of the file where the split of each dim came from, and which wishes
   lost; for each collective what made it, who wants it, what it costs, which edits of the file were planned as well and lost,
   and which one would do better.

     r  charlm.dt:32  f32[B @ data, T, D]
       B @ data    as x[B], by the loop on line 38, as tok[B]: written on line 11
       T           whole: nobody asks for a split
     all_reduce over model  charlm.dt:32  262144 bytes, 4 times a step: 1048576 of 6236220
       made by     %r.sum on line 32, split over model: sum over h
       for         %r on line 32: %r adds it to %x.1
       lost        r[b, t, d @ model] on line 32: 524288 bytes more                                                      */
#include "whatif.h"

#include <stdlib.h>

typedef struct {
  const Module *m;
  const PartQuestion *q;
  Arena *a;
  Moves *moves;
  WhatIf whatif;
  bool *exists; /* by value: computed by the final program */
  Str s;
} Explain;

enum { MAX_CHAIN = 64, COLUMN = 14 };

static void put(Explain *x, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(Explain *x, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  str_vprintf(x->a, &x->s, fmt, ap);
  va_end(ap);
}

/* ---- names and places --------------------------------------------------------------------------------------- */

static const char *line_text(Explain *x, Loc loc) {
  if (!loc.line) return "";
  bool main = loc.file == 0;
  return main ? arena_printf(x->a, " on line %d", loc.line) : arena_printf(x->a, " on %s", moves_place(x->m, loc, x->a));
}

static const char *name_of(Explain *x, ValueId v) {
  const Written *w = moves_written(x->moves, v);
  return w ? w->name : arena_printf(x->a, "%%%s", x->m->values.at[v].name);
}

/* "b" where the text names the dim so, else the IR's name, else its number. */
static const char *dim_name(Explain *x, ValueId v, int d) {
  const Written *w = moves_written(x->moves, v);
  const Dim *dim = &x->m->values.at[v].type.dim[d];
  if (w && d >= w->shift && d - w->shift < w->rank) return w->dim[d - w->shift].name;
  return dim->name ? dim->name : arena_printf(x->a, "dim %d", d + 1);
}

static const Type *home(Explain *x, ValueId v) { return v < x->q->nhome ? &x->q->home[v] : &x->m->values.at[v].type; }

static const char *layout_text(Explain *x, const Type *t) {
  Type plain = *t;
  for (int d = 0; d < plain.rank; d++) plain.dim[d].split.fixed = false;
  return ir_print_type(x->m, &plain, x->a);
}

/* ---- where a split came from ------------------------------------------------------------------------------------ */

static void put_user(Explain *x, ValueId v, int d) {
  const Written *w = moves_written(x->moves, v);
  bool in = w && d >= w->shift && d - w->shift < w->rank;
  const Op *def = x->m->values.at[v].def;
  if (w && d < w->shift) {
    put(x, "one for each round of the loop");
  } else if (in && w->dim[d - w->shift].rule.line) {
    put(x, "by the layout rule%s", line_text(x, w->dim[d - w->shift].rule));
  } else if (in) {
    bool leaf = def && op_class(def->kind) == CLS_LEAF && home(x, v)->dim[d].split.n == 0;
    put(x, "%s%s", leaf ? "declared without @" : "written", line_text(x, w->dim[d - w->shift].at));
  } else if (def && def->phase == PHASE_FORWARD) {
    put(x, "pinned%s", line_text(x, x->m->values.at[v].loc));
  } else {
    put(x, "laid out as its parameter");
  }
}

static void put_via(Explain *x, const Origin *o) {
  const char *what = o->via->kind == OP_REPEAT ? "the loop" : op_text(o->via->kind);
  put(x, "as %s[%s], %s by %s%s", name_of(x, o->from), dim_name(x, o->from, o->dim), o->backward ? "backward" : "forward", what,
      line_text(x, o->via->loc));
}

/* The chain back to where the split was written; steps of one name and line are one. */
static void put_origin(Explain *x, ValueId v, int d) {
  Origin o = part_origin(x->q->origins, v, d);
  for (int i = 0; i < MAX_CHAIN && o.kind == ORIGIN_SPREAD; i++) {
    if (i == 0) put_via(x, &o);
    ValueId from = o.from;
    int dim = o.dim;
    o = part_origin(x->q->origins, from, dim);
    if (o.kind == ORIGIN_SPREAD) continue;
    put(x, "; %s[%s] is ", name_of(x, from), dim_name(x, from, dim));
    v = from, d = dim;
  }
  if (o.kind == ORIGIN_USER) put_user(x, v, d);
  if (o.kind == ORIGIN_COST) put(x, "%s", o.why ? o.why : "chosen by cost");
  if (o.kind == ORIGIN_OPEN) put(x, "nobody asks for a split");
}

static bool pinned_whole(Explain *x, ValueId v, int d) {
  return part_origin(x->q->origins, v, d).kind == ORIGIN_USER && home(x, v)->dim[d].split.n == 0;
}

/* Which dim of v has an axis of the split; -1: none. */
static int holder(Explain *x, ValueId v, int d, const Split *wanted) {
  const Type *t = home(x, v);
  for (int k = 0; k < t->rank; k++)
    for (int i = 0; i < wanted->n; i++)
      if (k != d && split_uses(&t->dim[k].split, wanted->part[i])) return k;
  return -1;
}

static void put_wishes(Explain *x, ValueId v, int d) {
  const Unfulfilled *u = NULL;
  int n = part_unfulfilled(x->q->origins, v, d, &u);
  for (int i = 0; i < n; i++) {
    int other = holder(x, v, d, &u[i].wanted);
    put(x, "  %*s lost: %s, as %s[%s] by %s%s, because ", COLUMN, "", ir_print_split(x->m, &u[i].wanted, x->a),
        name_of(x, u[i].from), dim_name(x, u[i].from, u[i].other), op_text(u[i].via->kind), line_text(x, u[i].via->loc));
    if (pinned_whole(x, v, d)) {
      put(x, "it is pinned whole\n");
    } else if (other >= 0) {
      put(x, "%s has it: ", dim_name(x, v, other));
      put_origin(x, v, other);
      put(x, "\n");
    } else {
      put(x, "this was there before\n");
    }
  }
}

/* A dim as the plan computes it; where that is not what wishes came to, the choice was made by cost over the whole program. */
static void put_dim(Explain *x, ValueId v, const Type *t, int d) {
  const Split *wished = &home(x, v)->dim[d].split, *split = &t->dim[d].split;
  const char *axes = ir_print_split(x->m, split, x->a), *was = ir_print_split(x->m, wished, x->a);
  const char *what = *axes ? arena_printf(x->a, "%s @ %s", dim_name(x, v, d), axes) : dim_name(x, v, d);
  put(x, "  %-*s ", COLUMN, what);
  if (!*axes) put(x, "whole: ");
  if (split_equal(split, wished)) {
    put_origin(x, v, d);
  } else {
    put(x, "chosen by cost, where spreading %s%s: ", *was ? "gives " : "leaves it whole", was);
    put_origin(x, v, d);
  }
  put(x, "\n");
  if (split_equal(split, wished)) put_wishes(x, v, d);
}

static void put_tensor(Explain *x, ValueId v) {
  const Value *value = &x->m->values.at[v];
  const Type *t = x->exists[v] ? &value->type : home(x, v);
  put(x, "%s  %s  %s\n", name_of(x, v), moves_place(x->m, value->loc, x->a), layout_text(x, t));
  for (int d = 0; d < t->rank; d++) put_dim(x, v, t, d);
  if (!x->exists[v]) put(x, "  %-*s it has become part of another op\n", COLUMN, "not computed");
}

/* ---- collectives ---------------------------------------------------------------------------------------------------- */

static void put_maker(Explain *x, const Transfer *v) {
  const Value *s = &x->m->values.at[v->source];
  const Op *op = s->def;
  put(x, "  %-*s %s%s", COLUMN, "moves", name_of(x, v->source), line_text(x, s->loc));
  if (v->from->pending.n > 0 && op && op_class(op->kind) == CLS_SPACE) {
    Str over = {0};
    for (int i = op->space.nout; i < op->space.n; i++)
      if (op->space.idx[i].split.n > 0) str_printf(x->a, &over, "%s%s", over.n ? ", " : "", op->space.idx[i].name);
    put(x, ", a pending sum");
    if (over.n) put(x, ": %s is split, which it sums over", over.at);
  }
  put(x, "\n  %-*s %s\n  %-*s %s\n", COLUMN, "from", layout_text(x, v->from), COLUMN, "to", layout_text(x, v->to));
}

static void put_readers(Explain *x, const Transfer *v) {
  Readers r = moves_readers(x->moves, v);
  put(x, "  %-*s", COLUMN, "for");
  for (int i = 0; i < r.n && i < 4; i++) {
    const Op *op = r.at[i].op;
    const char *what = op->nout > 0 ? name_of(x, op->out[0]) : op_text(op->kind);
    if (r.at[i].slot < 0) what = "the end of the loop";
    put(x, "%s%s%s", i ? ", " : " ", what, line_text(x, op->loc));
  }
  if (r.n > 4) put(x, " and %d more", r.n - 4);
  const char *why = v->op->why ? v->op->why : "";
  if (*why && v->slot == 0) put(x, "\n  %-*s %.*s", COLUMN, "because", (int)strcspn(why, ";"), why);
  int d, index;
  Reader obstacle = moves_obstacle(x->moves, v, &d, &index);
  if (obstacle.op)
    put(x, "\n  %-*s %s%s cannot run split along %s as it is written", COLUMN, "", op_text(obstacle.op->kind),
        line_text(x, obstacle.op->loc), index >= 0 ? obstacle.op->space.idx[index].name : dim_name(x, v->source, d));
  put(x, "\n");
}

static const char *more_work(Explain *x, const PartTotals *t) {
  double ratio = x->whatif.now.work > 0 ? t->work / x->whatif.now.work : 1;
  return ratio > 1.01 || ratio < 0.99 ? arena_printf(x->a, ", and computes %.3g times as much", ratio) : "";
}

static void put_trials(Explain *x, const Transfer *v) {
  TrialList list = whatif_around(&x->whatif, v);
  int64_t now = x->whatif.now.bytes;
  int lost = 0, won = -1;
  for (int i = 0; i < list.n; i++) {
    const Trial *t = &x->whatif.trials.at[list.at[i]];
    if (t->totals.bytes < now && won < 0 && t->totals.work <= x->whatif.now.work * 1.02) won = list.at[i];
    if (t->totals.bytes <= now || lost == 2) continue;
    put(x, "  %-*s %s%s: %lld bytes more%s\n", COLUMN, lost++ ? "" : "lost", whatif_text(&x->whatif, &t->edit),
        line_text(x, t->edit.at->loc), (long long)(t->totals.bytes - now), more_work(x, &t->totals));
  }
  if (won < 0) return;
  const Trial *t = &x->whatif.trials.at[won];
  put(x, "  %-*s %s%s: saves %lld of %lld bytes per step%s\n", COLUMN, "better", whatif_text(&x->whatif, &t->edit),
      line_text(x, t->edit.at->loc), (long long)(now - t->totals.bytes), (long long)now, more_work(x, &t->totals));
}

static void put_move(Explain *x, const Transfer *v) {
  Loc loc = v->slot == 0 ? v->op->loc : x->m->values.at[v->source].loc;
  put(x, "%s over %s  %s  %lld bytes, %lld times a step: %lld of %lld\n", op_text(v->op->kind),
      pending_text(&x->m->mesh, &v->axes, x->a), moves_place(x->m, loc, x->a), (long long)v->bytes, (long long)v->times,
      (long long)(v->bytes * v->times), (long long)x->whatif.now.bytes);
  if (v->slot > 0) put(x, "  %-*s that of %s\n", COLUMN, "in one call", name_of(x, v->op->in[0]));
  put_maker(x, v);
  put_readers(x, v);
  put_trials(x, v);
}

/* ---- what is asked for ------------------------------------------------------------------------------------------------- */

static bool on_line(const Explain *x, Loc loc) { return loc.line == x->q->line && loc.file == 0; }

/* `wq`, "layer.wq" or %q.sum: the name in the text or in the IR. */
static bool is_named(Explain *x, ValueId v) {
  const Written *w = moves_written(x->moves, v);
  return !strcmp(x->m->values.at[v].name, x->q->value) || (w && !strcmp(w->name, x->q->value));
}

static bool asked_tensor(Explain *x, ValueId v, Loc loc) {
  if (x->q->value) return is_named(x, v);
  return x->q->line == 0 || on_line(x, loc);
}

static bool asked_move(Explain *x, const Transfer *v) {
  if (x->q->value) return is_named(x, v->source);
  return x->q->line == 0 || on_line(x, v->op->loc) || on_line(x, x->m->values.at[v->source].loc);
}

typedef struct {
  Loc loc;
  int i;
} Named;

static int by_text(const void *p, const void *q) {
  const Named *x = p, *y = q;
  if (x->loc.file != y->loc.file) return x->loc.file < y->loc.file ? -1 : 1;
  if (x->loc.line != y->loc.line) return x->loc.line < y->loc.line ? -1 : 1;
  if (x->loc.col != y->loc.col) return x->loc.col < y->loc.col ? -1 : 1;
  return x->i < y->i ? -1 : x->i > y->i;
}

/* Which of Module.written are the first that say their text: a leaf is told of, not its slices. */
static bool *first_of_text(const Explain *x) {
  int n = x->m->written.n;
  Named *order = NEW_ARRAY(x->a, Named, n + 1);
  bool *first = NEW_ARRAY(x->a, bool, n + 1);
  for (int i = 0; i < n; i++) order[i] = (Named){x->m->written.at[i].loc, i};
  qsort(order, (size_t)n, sizeof *order, by_text);
  for (int i = 0; i < n; i++) {
    Loc here = order[i].loc, before = i > 0 ? order[i - 1].loc : (Loc){0};
    first[order[i].i] = here.line != before.line || here.col != before.col || here.file != before.file;
  }
  return first;
}

static int put_tensors(Explain *x) {
  int n = 0;
  const bool *first = first_of_text(x);
  for (int i = 0; i < x->m->written.n; i++) {
    const Written *w = &x->m->written.at[i];
    if (!first[i] || !asked_tensor(x, w->v, w->loc)) continue;
    if (n++) put(x, "\n");
    put_tensor(x, w->v);
  }
  for (int v = 0; n == 0 && x->q->value && v < x->q->nhome; v++)
    if (x->exists[v] && is_named(x, v)) put_tensor(x, v), n++;
  return n;
}

static int put_moves(Explain *x) {
  int n = 0;
  for (int i = 0; i < x->moves->list.n; i++) n += asked_move(x, &x->moves->list.at[i]) && x->moves->list.at[i].from->rank > 0;
  whatif_share(&x->whatif, n);
  n = 0;
  for (int i = 0; i < x->moves->list.n; i++) {
    const Transfer *v = &x->moves->list.at[i];
    if (!asked_move(x, v)) continue;
    put(x, "%s", x->s.n ? "\n" : "");
    put_move(x, v);
    n++;
  }
  return n;
}

static void note_exists(void *cx, Region *r, Op *op, int64_t times) {
  (void)r, (void)times;
  Explain *x = cx;
  for (int i = 0; i < op->nout; i++) x->exists[op->out[i]] = true;
  for (int i = 0; op->body_region && i < op->body_region->args.n; i++) x->exists[op->body_region->args.at[i]] = true;
}

const char *part_explain(const Module *m, const PartQuestion *q, Arena *a) {
  Explain x = {.m = m, .q = q, .a = a, .moves = moves_new(m, a)};
  x.exists = NEW_ARRAY(a, bool, m->values.n + 1);
  for (int i = 0; i < m->programs.n; i++) part_visit(m->programs.at[i].body, 1, note_exists, &x);
  x.whatif = (WhatIf){.moves = x.moves, .q = q, .a = a, .now = part_totals(m)};
  bool all = !q->value && q->line == 0;
  if (all) put(&x, "mesh %s: %lld devices\n\n", m->mesh.name, (long long)mesh_devices(&m->mesh));
  int n = put_tensors(&x) + put_moves(&x);
  if (all && x.moves->list.n == 0) put(&x, "no collectives: nothing moves between ranks\n");
  return n || all ? x.s.at : NULL;
}
