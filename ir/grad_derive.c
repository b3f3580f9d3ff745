/* grad_derive.c: derivatives of bodies, symbolically. A variable is everything in the body that reads one value
   at the same indices, so that x in gelu(x) is one variable however often it is written:

     d/dx[i] of x[i] * tanh(x[i])          = tanh(x[i]) + x[i] * (1.0 - tanh(x[i]) * tanh(x[i]))
     d/dx[i] of where(p[i], log(x[i]), 0)  = where(p[i], 1.0 / x[i], 0.0)

   NULL stands for a derivative that is 0 everywhere. Conventions at ties and kinks are language.md's: max and
   min give to the first of two equals, abs has 0 at 0, where sends into the branch taken only. */
#include "grad.h"

#include <math.h>

typedef struct {
  Grad *g;
  Arena *a;
  const Flow *f;
  ValueId value;
  const Expr *read;
} Derive;

static Expr *one(Arena *a, DType d) { return ex_lit(a, d, 1); }

static Expr *add(Arena *a, Expr *x, Expr *y) {
  if (!x || !y) return x ? x : y;
  if (ex_equal(x, y)) return ex_2(a, EX_MUL, ex_lit(a, x->dtype, 2), x);
  return ex_2(a, EX_ADD, x, y);
}

static Expr *negate(Arena *a, Expr *x) {
  if (!x) return NULL;
  if (x->op == EX_NEG) return x->arg[0];
  return x->op == EX_LITERAL ? ex_lit(a, x->dtype, -x->lit) : ex_1(a, EX_NEG, x);
}

static Expr *times(Arena *a, Expr *x, Expr *y);
static Expr *over(Arena *a, Expr *x, Expr *y);

/* Is it 0 in some branch that is a literal? Such a 0 must not meet an inf in the other factor. */
static bool has_zero_branch(const Expr *x) {
  return x->op == EX_WHERE &&
         (ex_is_lit(x->arg[1], 0) || ex_is_lit(x->arg[2], 0) || has_zero_branch(x->arg[1]) || has_zero_branch(x->arg[2]));
}

/* f(w, y) with f times or over, inside the branches of w. */
static Expr *inside_where(Arena *a, Expr *(*f)(Arena *, Expr *, Expr *), Expr *w, Expr *y) {
  Expr *u = w->arg[1], *v = w->arg[2];
  return ex_where(a, w->arg[0], ex_is_lit(u, 0) ? u : f(a, u, y), ex_is_lit(v, 0) ? v : f(a, v, y));
}

static Expr *times_in_order(Arena *a, Expr *x, Expr *y) { return times(a, y, x); }

static Expr *times(Arena *a, Expr *x, Expr *y) {
  if (!x || !y) return NULL;
  if (ex_is_lit(x, 1)) return y;
  if (ex_is_lit(y, 1)) return x;
  if (has_zero_branch(y)) return inside_where(a, times_in_order, y, x);
  if (has_zero_branch(x)) return inside_where(a, times, x, y);
  if (x->op == EX_NEG) return negate(a, times(a, x->arg[0], y));
  if (y->op == EX_NEG) return negate(a, times(a, x, y->arg[0]));
  if (ex_is_lit(x, -1)) return negate(a, y);
  if (ex_is_lit(y, -1)) return negate(a, x);
  if (y->op == EX_DIV && ex_is_lit(y->arg[0], 1)) return ex_2(a, EX_DIV, x, y->arg[1]);
  return ex_2(a, EX_MUL, x, y);
}

static Expr *over(Arena *a, Expr *x, Expr *y) {
  if (!x) return NULL;
  if (has_zero_branch(x)) return inside_where(a, over, x, y);
  return x->op == EX_NEG ? negate(a, over(a, x->arg[0], y)) : ex_2(a, EX_DIV, x, y);
}

static Expr *choose(Arena *a, Expr *c, Expr *x, Expr *y, DType d) {
  if (!x && !y) return NULL;
  if (x && y && ex_equal(x, y)) return x;
  return ex_where(a, c, x ? x : ex_lit(a, d, 0), y ? y : ex_lit(a, d, 0));
}

Expr *grad_times(Arena *a, Expr *cot, Expr *d) {
  if (d->op == EX_NEG) return negate(a, grad_times(a, cot, d->arg[0]));
  if (d->op == EX_MUL) return times(a, grad_times(a, cot, d->arg[0]), d->arg[1]);
  if (d->op == EX_DIV) return over(a, grad_times(a, cot, d->arg[0]), d->arg[1]);
  return times(a, cot, d);
}

/* Reads by value become reads, so that the condition of a guard can be computed by a map. */
Expr *grad_index_value(Grad *g, const ValueList *in, const IExpr *x) {
  Arena *a = g->m->arena;
  IExpr *plain = ix_const(a, x->c);
  Expr *sum = NULL;
  for (int i = 0; i < x->n; i++) {
    const Term *t = &x->term[i];
    IExpr atom = {.n = 1, .term = NEW(a, Term)};
    atom.term[0] = *t;
    if (!ix_by_value(&atom)) {
      plain = ix_add(a, plain, &atom);
      continue;
    }
    Expr *v;
    if (t->kind == ATOM_VALUE)
      v = ex_cast(a, I32, ex_read(a, t->operand, g->m->values.at[in->at[t->operand]].type.dtype, t->nat, t->at, NULL));
    else
      v = ex_2(a, t->kind == ATOM_DIV ? EX_FLOORDIV : EX_MOD, grad_index_value(g, in, t->sub), ex_int(a, I32, t->k));
    if (t->coef != 1) v = ex_2(a, EX_MUL, ex_int(a, I32, t->coef), v);
    sum = sum ? ex_2(a, EX_ADD, sum, v) : v;
  }
  if (!sum) return plain->n ? ex_index(a, plain) : ex_int(a, I32, plain->c);
  if (!plain->n && !plain->c) return sum;
  return ex_2(a, EX_ADD, sum, plain->n ? ex_index(a, plain) : ex_int(a, I32, plain->c));
}

static Expr *both(Arena *a, Expr *x, Expr *y) { return x && y ? ex_2(a, EX_AND, x, y) : x ? x : y; }

Expr *grad_inside(Grad *g, const Flow *f, const Expr *read) {
  Arena *a = g->m->arena;
  const Type *t = &g->m->values.at[f->in.at[read->operand]].type;
  Expr *cond = NULL;
  for (int d = 0; d < read->nix; d++) {
    int64_t lo, hi;
    ix_bounds(read->ix[d], &f->space, &lo, &hi);
    if (lo < 0) cond = both(a, cond, ex_2(a, EX_GE, grad_index_value(g, &f->in, read->ix[d]), ex_int(a, I32, 0)));
    if (hi >= t->dim[d].size)
      cond = both(a, cond, ex_2(a, EX_LT, grad_index_value(g, &f->in, read->ix[d]), ex_int(a, I32, t->dim[d].size)));
  }
  return cond;
}

static Expr *derive(Derive *s, Expr *x, Expr *value);

static Expr *derive_read(Derive *s, Expr *x) {
  if (s->f->in.at[x->operand] == s->value) {
    bool same = true;
    for (int d = 0; d < x->nix; d++) same = same && ix_equal(x->ix[d], s->read->ix[d]);
    if (same) return one(s->a, x->dtype); /* where it reads at all: the adjoint visits no other points */
  }
  Expr *d = x->otherwise ? derive(s, x->otherwise, NULL) : NULL, *inside = d ? grad_inside(s->g, s->f, x) : NULL;
  return d && inside ? choose(s->a, inside, NULL, d, x->dtype) : NULL;
}

/* u ** v: v u**(v-1) by u (0 for v = 0, also at u = 0); u**v log u by v (0 at u = 0 and v >= 0, where u**v is
   constant from the right). */
static Expr *derive_pow(Derive *s, Expr *x, Expr *du, Expr *dv) {
  Arena *a = s->a;
  Expr *u = x->arg[0], *v = x->arg[1], *zero = ex_lit(a, x->dtype, 0), *by_u = NULL, *by_v = NULL;
  if (du) {
    Expr *less = v->op == EX_LITERAL ? ex_lit(a, v->dtype, v->lit - 1) : ex_2(a, EX_SUB, v, one(a, v->dtype));
    Expr *power = ex_is_lit(less, 1) ? u : ex_is_lit(less, 0) ? one(a, u->dtype) : ex_2(a, EX_POW, u, less);
    by_u = times(a, times(a, v, power), du);
    if (ex_is_lit(v, 0)) by_u = NULL;
    if (v->op != EX_LITERAL) by_u = choose(a, ex_2(a, EX_EQ, v, zero), NULL, by_u, x->dtype);
  }
  if (dv) {
    Expr *flat = ex_2(a, EX_AND, ex_2(a, EX_EQ, u, zero), ex_2(a, EX_GE, v, zero));
    by_v = choose(a, flat, NULL, times(a, times(a, ex_2(a, EX_POW, u, v), ex_1(a, EX_LOG, u)), dv), x->dtype);
  }
  return add(a, by_u, by_v);
}

static Expr *derive_abs(Arena *a, Expr *u, Expr *du) {
  Expr *zero = ex_lit(a, u->dtype, 0);
  return ex_where(a, ex_2(a, EX_GT, u, zero), du, ex_where(a, ex_2(a, EX_LT, u, zero), negate(a, du), zero));
}

static Expr *derive_unary(Derive *s, Expr *x, Expr *value) {
  Arena *a = s->a;
  Expr *u = x->arg[0], *du;
  if (x->op == EX_FLOOR || x->op == EX_STOP || x->op == EX_NOT) return NULL;
  if (x->op == EX_CAST && dtype_is_int(u->dtype)) return NULL;
  if (!(du = derive(s, u, NULL))) return NULL;
  if (x->op == EX_CAST) return ex_is_lit(du, 1) ? one(a, x->dtype) : ex_cast(a, x->dtype, du);
  if (x->op == EX_NEG) return negate(a, du);
  if (x->op == EX_ABS) return derive_abs(a, u, du);
  Expr *slope = ex_slope(a, x->op, u, value ? value : x);
  if (!slope) internal_error("scalar operation %d has no derivative", x->op);
  return times(a, slope, du);
}

static Expr *derive_binary(Derive *s, Expr *x, Expr *value) {
  Arena *a = s->a;
  Expr *u = x->arg[0], *v = x->arg[1], *du = derive(s, u, NULL), *dv = derive(s, v, NULL);
  if (!du && !dv) return NULL;
  switch (x->op) {
  case EX_ADD: return add(a, du, dv);
  case EX_SUB: return add(a, du, negate(a, dv));
  case EX_MUL: return add(a, times(a, du, v), times(a, u, dv));
  case EX_DIV: return add(a, over(a, du, v), dv ? negate(a, times(a, over(a, value ? value : x, v), dv)) : NULL);
  case EX_POW: return derive_pow(s, x, du, dv);
  case EX_MOD: return du; /* v is a constant */
  case EX_MAX: return choose(a, ex_2(a, EX_GE, u, v), du, dv, x->dtype);
  case EX_MIN: return choose(a, ex_2(a, EX_LE, u, v), du, dv, x->dtype);
  default: return NULL; /* FLOORDIV is a step function */
  }
}

/* value: an expression that equals x and is cheaper, or NULL. */
static Expr *derive(Derive *s, Expr *x, Expr *value) {
  if (dtype_is_int(x->dtype)) return NULL;
  switch (x->op) {
  case EX_LITERAL:
  case EX_INDEX:
  case EX_DOT: return NULL;
  case EX_READ: return derive_read(s, x);
  case EX_WHERE: return choose(s->a, x->arg[0], derive(s, x->arg[1], value), derive(s, x->arg[2], value), x->dtype);
  default: return x->arg[1] ? derive_binary(s, x, value) : derive_unary(s, x, value);
  }
}

Expr *grad_derive(Grad *g, const Flow *f, const Expr *read) {
  Derive s = {g, g->m->arena, f, f->in.at[read->operand], read};
  return derive(&s, f->body, f->value);
}
