/* emit_slope.c: derivatives of an attention's score by `dot` and by what it reads.

     where(u <= t, dot * 0.25, -inf)  by dot:  where(u <= t, 0.25, 0)          NULL: zero everywhere

   Conventions are the language's: where sends into the branch taken, max and min to the first of equals. */
#include "emit_attention.h"

typedef struct {
  Arena *a;
  const Expr *of; /* a read of the score; NULL: `dot` */
} Slope;

static Expr *times(Arena *a, Expr *x, Expr *y) {
  if (ex_is_lit(x, 1)) return y;
  return ex_is_lit(y, 1) ? x : ex_2(a, EX_MUL, x, y);
}

static Expr *sum(Arena *a, Expr *x, Expr *y) { return !x ? y : !y ? x : ex_2(a, EX_ADD, x, y); }

static Expr *choose(Slope *s, Expr *c, Expr *x, Expr *y, DType d) {
  if (!x && !y) return NULL;
  return ex_where(s->a, c, x ? x : ex_lit(s->a, d, 0), y ? y : ex_lit(s->a, d, 0));
}

static Expr *sign(Arena *a, Expr *x) {
  Expr *zero = ex_lit(a, x->dtype, 0), *less = ex_where(a, ex_2(a, EX_LT, x, zero), ex_lit(a, x->dtype, -1), zero);
  return ex_where(a, ex_2(a, EX_GT, x, zero), ex_lit(a, x->dtype, 1), less);
}

static Expr *slope(Slope *s, Expr *x) {
  Arena *a = s->a;
  if (x == s->of || (!s->of && x->op == EX_DOT)) return ex_lit(a, x->dtype, 1);
  Expr *u = x->arg[0] ? slope(s, x->arg[0]) : NULL, *v = x->arg[1] ? slope(s, x->arg[1]) : NULL;
  switch (x->op) {
  case EX_READ:
  case EX_LITERAL:
  case EX_INDEX:
  case EX_STOP:
  case EX_FLOOR: return NULL;
  case EX_ADD: return sum(a, u, v);
  case EX_SUB: return sum(a, u, v ? ex_1(a, EX_NEG, v) : NULL);
  case EX_NEG: return u ? ex_1(a, EX_NEG, u) : NULL;
  case EX_ABS: return u ? times(a, u, sign(a, x->arg[0])) : NULL;
  case EX_MUL: return sum(a, u ? times(a, u, x->arg[1]) : NULL, v ? times(a, v, x->arg[0]) : NULL);
  case EX_DIV: {
    Expr *du = u ? ex_2(a, EX_DIV, u, x->arg[1]) : NULL;
    return sum(a, du, v ? ex_1(a, EX_NEG, ex_2(a, EX_DIV, times(a, v, x), x->arg[1])) : NULL);
  }
  case EX_POW: {
    Expr *less = ex_2(a, EX_POW, x->arg[0], ex_2(a, EX_SUB, x->arg[1], ex_lit(a, x->dtype, 1)));
    return u ? times(a, u, ex_2(a, EX_MUL, x->arg[1], less)) : NULL;
  }
  case EX_WHERE: return choose(s, x->arg[0], v, slope(s, x->arg[2]), x->dtype);
  case EX_MAX: return choose(s, ex_2(a, EX_GE, x->arg[0], x->arg[1]), u, v, x->dtype);
  case EX_MIN: return choose(s, ex_2(a, EX_LE, x->arg[0], x->arg[1]), u, v, x->dtype);
  case EX_CAST: return u && !dtype_is_int(x->dtype) ? ex_cast(a, x->dtype, u) : NULL;
  default: {
    Expr *f = u ? ex_slope(a, x->op, x->arg[0], x) : NULL;
    return f ? times(a, u, f) : NULL;
  }
  }
}

Expr *attention_slope(Arena *a, const Expr *score, const Expr *of) {
  Slope s = {a, of};
  Expr *d = slope(&s, (Expr *)score);
  return d ? ex_simplify(a, d) : NULL;
}

/* A zero branch stays outside of the product: it must not meet an inf in g. */
const char *attention_gradient_text(Scope *s, const Expr *slope, const char *g) {
  Emit *e = s->k->e;
  if (!slope) return "0.0f";
  if (slope->op == EX_WHERE) {
    const char *x = attention_gradient_text(s, slope->arg[1], g), *y = attention_gradient_text(s, slope->arg[2], g);
    return arena_printf(e->a, "(%s ? %s : %s)", emit_expr(s, slope->arg[0]), x, y);
  }
  if (ex_is_lit(slope, 0)) return "0.0f";
  if (ex_is_lit(slope, 1)) return g;
  const char *x = emit_expr(s, slope);
  return arena_printf(e->a, strpbrk(x, " ?") ? "%s * (%s)" : "%s * %s", g, x);
}

typedef struct {
  Scope *s;
  const char *g;
  int w; /* gradient of operand wrt[w] */
  SlopeFn *add;
  void *cx;
} Wrt;

static void slope_of(void *cx, const Expr *read) {
  Wrt *w = cx;
  const Op *op = w->s->op;
  Emit *e = w->s->k->e;
  if (read->operand != op->wrt[w->w]) return;
  Expr *d = attention_slope(e->a, op->body, read);
  if (!d) return;
  const Type *t = &e->m->values.at[op->out[3 + w->w]].type;
  w->add(w->cx, w->s, w->w, read->otherwise ? emit_inside(w->s, read) : NULL, emit_offset(w->s, t, read->nix, read->ix),
         attention_gradient_text(w->s, d, w->g));
}

void attention_slopes(Scope *s, const char *g, SlopeFn *add, void *cx) {
  for (int i = 0; i < s->op->nwrt; i++) {
    Wrt w = {s, g, i, add, cx};
    ex_reads(s->op->body, slope_of, &w);
  }
}

void attention_add_slope(void *cx, Scope *s, int w, const char *inside, const char *at, const char *value) {
  (void)cx;
  Kernel *k = s->k;
  if (inside) str_printf(k->e->a, &k->body, "if (%s) ", inside);
  str_printf(k->e->a, &k->body, "%s[%s] += %s;\n", emit_pointer(k, s->op->out[3 + w], true), at, value);
}
