/* strict.c: --strict: every collective that the user did not spell is an error. One is spelt if the layouts before and after
   it stand in the text:

     r[b @ data, t @ none, d @ none] = x[b,t,d] + sum[h,k](...)     completes the sum that its own right side leaves
     w1[d @ none, f @ model] = w[d,f]                               gathers w: f32[D @ data, F @ model]

   Before: each dim that changes is pinned where the tensor is made (an input's and a parameter's dims are); what has no
   name of its own, and a pending sum, belongs to its statement, whose left side must pin every dim. After: so must the left
   side of the statement that reads it. Spelt are also: the reduction of a parameter's gradient to the parameter's layout,
   what moves one number, and what the gradient of a statement moves if its left side pins every dim (a gradient has no
   text of its own).                                                                                                    */
#include "moves.h"

typedef struct {
  const Module *m;
  Moves *moves;
  Diags *d;
  Arena *a;
  bool placed;
} Strict;

/* A tensor that the statement on that line makes; all dims pinned, if there is such a one. */
static const Written *left_side(const Module *m, Loc loc) {
  const Written *found = NULL;
  for (int i = 0; i < m->written.n; i++) {
    const Written *w = &m->written.at[i];
    if (w->loc.line != loc.line || w->loc.file != loc.file) continue;
    bool all = true;
    for (int d = 0; d < w->rank; d++) all &= w->dim[d].pinned;
    found = w;
    if (all) break;
  }
  return found;
}

static bool states_all(const Written *w) {
  for (int d = 0; w && d < w->rank; d++)
    if (!w->dim[d].pinned) return false;
  return w != NULL;
}

static bool stated(const Strict *s, Loc loc) { return states_all(left_side(s->m, loc)); }

static bool before_is_spelt(const Strict *s, const Transfer *v) {
  const Written *w = moves_written(s->moves, v->source);
  Loc made = s->m->values.at[v->source].loc;
  if (v->from->pending.n > v->to->pending.n || !w) return stated(s, made);
  for (int d = 0; d < v->from->rank; d++) {
    bool changes = !split_equal(&v->from->dim[d].split, &v->to->dim[d].split), in = d >= w->shift && d - w->shift < w->rank;
    if (changes && !(in && w->dim[d - w->shift].pinned)) return false;
  }
  return true;
}

static bool of_gradient(const Strict *s, const Transfer *v) {
  Readers readers = moves_readers(s->moves, v);
  bool found = v->op->phase != PHASE_FORWARD && readers.n > 0;
  for (int i = 0; i < readers.n && found; i++) {
    const Op *op = readers.at[i].op;
    found = (op->kind == OP_TAP && op->tap == TAP_GRAD) || op->kind == OP_UPDATE || op->phase == PHASE_UPDATE;
  }
  return found;
}

static bool is_spelt(const Strict *s, const Transfer *v) {
  if (v->from->rank == 0 || of_gradient(s, v)) return true;
  if (v->op->phase != PHASE_FORWARD) return stated(s, v->op->loc);
  if (v->from->pending.n > v->to->pending.n) return before_is_spelt(s, v);
  return before_is_spelt(s, v) && stated(s, v->op->loc);
}

/* What to write: the side that is missing, with the layouts of the plan. */
static void help(const Strict *s, Diag *g, const Transfer *v) {
  bool before = before_is_spelt(s, v);
  const Written *w = before ? left_side(s->m, v->op->loc) : moves_written(s->moves, v->source);
  if (!w && !before) w = left_side(s->m, s->m->values.at[v->source].loc);
  if (!w || w->shift + w->rank != s->m->values.at[w->v].type.rank) return;
  const Type *t = before || w->v != v->source ? &s->m->values.at[w->v].type : v->from->pending.n > 0 ? v->to : v->from;
  diag_help(s->d, g, "`%s` on line %d says that it is meant", moves_spelling(s->m, w, t, -1, s->a), w->loc.line);
}

void part_strict(const Module *m, Diags *d, bool placed) {
  Arena *a = arena_new();
  Strict s = {.m = m, .d = d, .a = a, .placed = placed, .moves = moves_new(m, a)};
  for (int i = 0; i < s.moves->list.n; i++) {
    const Transfer *v = &s.moves->list.at[i];
    if (is_spelt(&s, v)) continue;
    const Value *x = &m->values.at[v->source];
    Diag *g =
        diag_error(d, "E0701", placed ? v->op->loc : (Loc){0}, "%s of %%%s over %s is not spelt: %lld bytes, %lld times a step",
                   op_text(v->op->kind), x->name, pending_text(&m->mesh, &v->axes, a), (long long)v->bytes, (long long)v->times);
    const char *why = v->op->why ? v->op->why : "";
    diag_mark(d, g, "%.*s", (int)strcspn(why, ";"), why);
    if (placed && x->loc.line && x->loc.line != v->op->loc.line) diag_label(d, g, x->loc, "made here");
    help(&s, g, v);
  }
  arena_free(a);
}
