/* emit_visible.c: which values of one index a score lets through, for a box of the other indices: read off the conditions
   under which it is not -inf. Whatever is not understood lets everything through.

     where(u <= t && t - u < 128, dot * c, -inf), t from 64 to 128:     u from max(0, 64 - 127) to min(T, 127 + 1)  */
#include "emit_attention.h"

typedef struct {
  const Scope *s;
  const Visible *box;
  const char *lo, *hi;
} Bounds;

/* expr >= 0, of which x is +1 or -1 times: x <= rest, or x >= -rest, with the rest at whichever ends of the box make it
   largest. */
static void bound(Bounds *w, const IExpr *e) {
  Arena *arena = w->s->k->e->a;
  const Visible *box = w->box;
  int64_t cx = 0, beyond = 0; // an end is one behind the last
  Scope s = *w->s;
  for (int i = 0; i < e->n; i++) {
    const Term *t = &e->term[i];
    if (t->kind != ATOM_INDEX) return;
    if (t->index == box->index) {
      cx = t->coef;
    } else if (box->first[t->index]) {
      s.var[t->index].name = t->coef > 0 ? box->end[t->index] : box->first[t->index];
      beyond += t->coef > 0 ? t->coef : 0;
    }
  }
  if (cx != 1 && cx != -1) return;
  IExpr *rest = ix_add(arena, e, ix_scale(arena, ix_index(arena, box->index), -cx));
  const char *x = emit_index(&s, ix_add(arena, rest, ix_const(arena, (cx < 0) - beyond))),
             *own = emit_lo(s.k, s.var[box->index].range);
  if (cx < 0 && strcmp(own, "0")) x = emit_sum(s.k->e, x, arena_printf(arena, "-%s", own));
  if (cx > 0) x = arena_printf(arena, strcmp(own, "0") ? "-(%s) - %s" : "-(%s)", x, own);
  if (cx < 0)
    w->hi = arena_printf(arena, "dtrt_imin(%s, %s)", w->hi, x);
  else
    w->lo = arena_printf(arena, "dtrt_imax(%s, %s)", w->lo, x);
}

static void visible(Bounds *w, const Expr *c) {
  Arena *a = w->s->k->e->a;
  if (c->op == EX_AND) {
    visible(w, c->arg[0]);
    visible(w, c->arg[1]);
    return;
  }
  if (c->op < EX_LT || c->op > EX_GT || c->op == EX_NE || c->arg[0]->op == EX_READ) return;
  IExpr *side[2];
  for (int i = 0; i < 2; i++) {
    const Expr *x = c->arg[i];
    if (x->op == EX_INDEX)
      side[i] = x->ix[0];
    else if (x->op == EX_LITERAL && dtype_is_int(x->dtype))
      side[i] = ix_const(a, x->ilit);
    else
      return;
  }
  IExpr *more = ix_add(a, side[1], ix_scale(a, side[0], -1)), *less = ix_scale(a, more, -1), *one = ix_const(a, -1);
  if (c->op == EX_LE || c->op == EX_EQ) bound(w, more);
  if (c->op == EX_GE || c->op == EX_EQ) bound(w, less);
  if (c->op == EX_LT) bound(w, ix_add(a, more, one));
  if (c->op == EX_GT) bound(w, ix_add(a, less, one));
}

static bool minus_infinity(const Expr *x) { return x->op == EX_LITERAL && ex_is_lit(x, -__builtin_inf()); }

void attention_visible(const Scope *s, const Visible *box, const char **lo, const char **hi) {
  Bounds w = {s, box, "0", emit_n(s->k, s->var[box->index].range)};
  for (const Expr *x = s->op->body; x->op == EX_WHERE && minus_infinity(x->arg[2]); x = x->arg[1]) visible(&w, x->arg[0]);
  *lo = w.lo, *hi = w.hi;
}
