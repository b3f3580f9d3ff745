/* grad_adjoint.c: nests are closed under their adjoint. If the body reads x[e(i)] at point i of its space and
   c(i) is what that read is worth (cotangent times derivative), then

     d.x[j] = sum over all i with e(i) = j of c(i)

   Each equation e(i) = j is solved for one index, so that nothing is summed that does not contribute:

     x[b,t]           b and t stay           d.x[b,t]  = sum[what is left] c
     x[2*i + p - 1]   i = (j - p + 1) // 2    d.x[j]    = sum[p] where((j - p + 1) % 2 == 0, c, 0)
     x[4*i + p], p<4  they count like digits  d.x[j]    = c at i = j // 4, p = j % 4
     x[m // 4, m % 4] m = 4*q + r, q, r stay  d.x[q,r]  = c
     x[t, t]          t stays, t == j        d.x[t,j]  = where(t == j, c, 0)

   The index with the largest range is eliminated; an equation that cannot be solved, or whose solution leaves more
   points than there were, becomes a condition, which is always right. Dims that are read by value are not solved:
   there the adjoint is a scatter_add. */
#include "grad.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
  Grad *g;
  Arena *a;
  const Flow *f;
  const Expr *read;
  const Type *type;       /* of what is read */
  Space space;            /* the forward op's indices, then those made here */
  bool result[MAX_INDEX]; /* is an index of the gradient */
  IExpr *is[MAX_INDEX];   /* an eliminated index in terms of others */
  int at[MAX_RANK];       /* the gradient's indices */
  const Expr *c;          /* what a point contributes */
  Expr *cond;             /* where it contributes at all; NULL: everywhere */
  bool full;
} Solver;

static int new_index(Solver *s, const char *wish, const char *dim, int64_t range) {
  if (s->space.n == MAX_INDEX) {
    s->full = true;
    return -1;
  }
  const char *name = grad_index_name(s->a, &s->space, wish);
  s->space.idx[s->space.n] = (Index){.name = name, .dim = dim, .range = range};
  return s->space.n++;
}

static bool is_unknown(const Solver *s, int i) { return !s->result[i] && !s->is[i]; }

static bool uses_solved(const Solver *s, const IExpr *x) {
  for (int i = 0; i < s->space.n; i++)
    if (s->is[i] && ix_uses(x, i)) return true;
  return false;
}

/* x without eliminated indices. Terminates: an index is expressed by indices that were unknown at the time. */
static IExpr *resolve(Solver *s, IExpr *x) {
  while (uses_solved(s, x)) x = ix_substitute(s->a, x, s->is, NULL);
  return ix_narrow(s->a, x, &s->space);
}

static void require(Solver *s, Expr *c) { s->cond = s->cond ? ex_2(s->a, EX_AND, s->cond, c) : c; }

/* Is x 0 when `index` leaves its range? So is a product of reads if one of them then leaves its dim: such reads get
   `else 0`. In other expressions 0 * inf may arise. */
static bool vanishes_outside(const Solver *s, const Expr *x, int index, bool *found) {
  if (x->op == EX_MUL) return vanishes_outside(s, x->arg[0], index, found) && vanishes_outside(s, x->arg[1], index, found);
  if (x->op == EX_NEG || (x->op == EX_CAST && !dtype_is_int(x->arg[0]->dtype)))
    return vanishes_outside(s, x->arg[0], index, found);
  if (x->op == EX_LITERAL) return isfinite(x->lit);
  if (x->op != EX_READ) return false;
  if (x->otherwise) return x->otherwise->op == EX_LITERAL && isfinite(x->otherwise->lit);
  const Type *t = &s->g->m->values.at[s->f->in.at[x->operand]].type;
  for (int d = 0; d < x->nix; d++) *found |= ix_single(x->ix[d]) == index && t->dim[d].size == s->space.idx[index].range;
  return true;
}

static void eliminate(Solver *s, int index, IExpr *x) {
  int64_t lo, hi, range = s->space.idx[index].range;
  bool found = false, implied = vanishes_outside(s, s->c, index, &found) && found;
  x = ix_narrow(s->a, x, &s->space);
  ix_bounds(x, &s->space, &lo, &hi);
  if (lo < 0 && !implied) require(s, ex_2(s->a, EX_GE, ex_index(s->a, x), ex_int(s->a, I32, 0)));
  if (hi >= range && !implied) require(s, ex_2(s->a, EX_LT, ex_index(s->a, x), ex_int(s->a, I32, range)));
  s->is[index] = x;
}

/* Is term k of x an unknown index that no other term of x uses? */
static bool can_solve(const Solver *s, const IExpr *x, int k) {
  const Term *t = &x->term[k];
  if (t->kind != ATOM_INDEX || !is_unknown(s, t->index)) return false;
  for (int i = 0; i < x->n; i++)
    if (i != k && x->term[i].sub && ix_uses(x->term[i].sub, t->index)) return false;
  return true;
}

/* The term of e that can be solved for with the largest range; or NULL. */
static const Term *best_index(const Solver *s, const IExpr *e) {
  const Term *best = NULL;
  for (int i = 0; i < e->n; i++) {
    const Term *t = &e->term[i];
    if (!can_solve(s, e, i)) continue;
    int64_t gain = best ? s->space.idx[t->index].range - s->space.idx[best->index].range : 1;
    if (gain > 0 || (gain == 0 && llabs(t->coef) < llabs(best->coef))) best = t;
  }
  return best;
}

/* The same with coefficient 1 or -1. */
static const Term *unit_term(const Solver *s, const IExpr *x) {
  for (int i = 0; i < x->n; i++)
    if (can_solve(s, x, i) && llabs(x->term[i].coef) == 1) return &x->term[i];
  return NULL;
}

/* How many values an atom sub // k or sub % k takes that can be split off; 0: none. */
static int64_t atom_gain(const Solver *s, const Term *t) {
  const Term *u = t->sub ? unit_term(s, t->sub) : NULL;
  if (!u || s->space.n + 2 > MAX_INDEX) return 0;
  return t->kind == ATOM_MOD ? t->k : ceil_div(s->space.idx[u->index].range, t->k);
}

static const Term *best_atom(const Solver *s, const IExpr *e) {
  const Term *best = NULL;
  for (int i = 0; i < e->n; i++)
    if (atom_gain(s, &e->term[i]) > (best ? atom_gain(s, best) : 0)) best = &e->term[i];
  return best;
}

static IExpr *minus(Arena *a, const IExpr *x, const IExpr *y) { return ix_add(a, x, ix_scale(a, y, -1)); }

/* c * i + rest = j, solved for i. */
static void solve_index(Solver *s, IExpr *e, const Term *t, int j) {
  Arena *a = s->a;
  int64_t c = t->coef, k = llabs(c);
  IExpr *rest = minus(a, e, ix_scale(a, ix_index(a, t->index), c)), *lhs = ix_index(a, j);
  IExpr *x = c > 0 ? minus(a, lhs, rest) : minus(a, rest, lhs);
  IExpr *left = ix_narrow(a, ix_mod(a, x, k), &s->space);
  if (left->n || left->c) require(s, ex_2(a, EX_EQ, ex_index(a, left), ex_int(a, I32, 0)));
  eliminate(s, t->index, ix_div(a, x, k));
}

/* sub // k or sub % k with sub = +-i + rest: i = +-(k * q + r - rest) with new unknowns q and r < k. */
static void split_atom(Solver *s, const Term *t) {
  Arena *a = s->a;
  const Term *u = unit_term(s, t->sub);
  int64_t lo, hi;
  ix_bounds(t->sub, &s->space, &lo, &hi);
  int64_t first = floor_div(lo, t->k), n = floor_div(hi, t->k) - first + 1;
  IExpr *q = n > 1 ? ix_index(a, new_index(s, "q", NULL, n)) : ix_const(a, 0);
  IExpr *r = ix_index(a, new_index(s, "r", NULL, t->k));
  IExpr *sub = ix_add(a, ix_scale(a, ix_add(a, q, ix_const(a, first)), t->k), r);
  IExpr *rest = minus(a, t->sub, ix_scale(a, ix_index(a, u->index), u->coef));
  eliminate(s, u->index, ix_scale(a, minus(a, sub, rest), u->coef));
}

/* Do terms i and u of e count like two digits, k*i + u with u < k, both unknown? Then k, else 0. */
static int64_t digits(const Solver *s, const IExpr *e, int i, int u) {
  const Term *major = &e->term[i], *minor = &e->term[u];
  int64_t k = llabs(major->coef);
  if (i == u || k < 2 || major->coef != k * minor->coef || !can_solve(s, e, i) || !can_solve(s, e, u)) return 0;
  return s->space.idx[minor->index].range <= k && s->space.idx[major->index].range <= INT64_MAX / k ? k : 0;
}

/* Digits are one unknown: its quotient by k and the remainder. The lowest first, so that their number is a digit of the next. */
static bool join_digits(Solver *s, const IExpr *e) {
  Arena *a = s->a;
  int major = 0, minor = 0;
  int64_t k = 0;
  for (int i = 0; i < e->n; i++)
    for (int u = 0; u < e->n; u++) {
      int64_t found = digits(s, e, i, u);
      if (found && (k == 0 || found < k)) k = found, major = e->term[i].index, minor = e->term[u].index;
    }
  if (k == 0 || s->space.n + 1 >= MAX_INDEX) return false;
  const Index *high = &s->space.idx[major];
  IExpr *number = ix_index(a, new_index(s, high->name, NULL, k * high->range));
  eliminate(s, minor, ix_mod(a, number, k));
  eliminate(s, major, ix_div(a, number, k));
  return true;
}

/* The points that are summed. */
static double unknown_points(const Solver *s) {
  double n = 1;
  for (int i = 0; i < s->space.n; i++)
    if (is_unknown(s, i)) n *= (double)s->space.idx[i].range;
  return n;
}

/* read->ix[d] = j as far as it can be solved. */
static void solve_equation(Solver *s, int d, int j) {
  for (;;) {
    IExpr *e = resolve(s, s->read->ix[d]);
    if (join_digits(s, e)) continue;
    const Term *index = best_index(s, e), *atom = best_atom(s, e);
    if (index && (!atom || s->space.idx[index->index].range >= atom_gain(s, atom))) return solve_index(s, e, index, j);
    if (!atom) return require(s, ex_2(s->a, EX_EQ, ex_index(s->a, ix_index(s->a, j)), ex_index(s->a, e)));
    split_atom(s, atom);
  }
}

/* e(i) = j for dim d, where j is a new index of the gradient. Quotients of two digits of the same index can be split for
   ever, each time into more. */
static void solve_dim(Solver *s, int d) {
  const Dim *dim = &s->type->dim[d];
  int j = new_index(s, dim->name, dim->name, dim->size);
  if (j < 0) return;
  s->result[s->at[d] = j] = true;
  if (ix_by_value(s->read->ix[d])) return;
  Solver unsolved = *s;
  solve_equation(s, d, j);
  if (!s->full && unknown_points(s) <= unknown_points(&unsolved)) return;
  *s = unsolved;
  require(s, ex_2(s->a, EX_EQ, ex_index(s->a, ix_index(s->a, j)), ex_index(s->a, resolve(s, s->read->ix[d]))));
}

static void solve(Solver *s) {
  bool done[MAX_RANK] = {0};
  for (int d = 0; d < s->type->rank; d++) {
    int i = ix_single(s->read->ix[d]);
    if (i < 0 || s->result[i] || s->space.idx[i].range != s->type->dim[d].size) continue;
    s->result[s->at[d] = i] = done[d] = true;
    s->space.idx[i].dim = s->type->dim[d].name;
  }
  for (int d = 0; d < s->type->rank && !s->full; d++)
    if (!done[d]) solve_dim(s, d);
}

/* The space of the gradient: its indices, then the unknown ones, which are summed. to[i] is where index i went. */
static Space result_space(const Solver *s, IExpr **to) {
  Space sp = {.nout = s->type->rank};
  for (int d = 0; d < s->type->rank; d++) {
    to[s->at[d]] = ix_index(s->a, sp.n);
    sp.idx[sp.n++] = s->space.idx[s->at[d]];
  }
  for (int i = 0; i < s->space.n; i++)
    if (is_unknown(s, i)) {
      to[i] = ix_index(s->a, sp.n);
      sp.idx[sp.n++] = s->space.idx[i];
    }
  return sp;
}

/* Every read that may now leave its dim gets `else 0`, and index expressions lose what the ranges decide. */
static Expr *tidy(Solver *s, const Space *sp, const Expr *x) {
  Expr *r = NEW(s->a, Expr);
  *r = *x;
  if (x->nix) r->ix = NEW_ARRAY(s->a, IExpr *, x->nix);
  for (int i = 0; i < x->nix; i++) r->ix[i] = ix_narrow(s->a, x->ix[i], sp);
  for (int i = 0; i < 3; i++)
    if (x->arg[i]) r->arg[i] = tidy(s, sp, x->arg[i]);
  if (x->otherwise) r->otherwise = tidy(s, sp, x->otherwise);
  if (x->op != EX_READ) return r;
  const Type *t = &s->g->m->values.at[s->f->in.at[x->operand]].type;
  for (int d = 0; d < x->nix && !r->otherwise; d++) {
    int64_t lo, hi;
    ix_bounds(r->ix[d], sp, &lo, &hi);
    if (!ix_by_value(r->ix[d]) && (lo < 0 || hi >= t->dim[d].size))
      r->otherwise = dtype_is_int(x->dtype) ? ex_int(s->a, x->dtype, 0) : ex_lit(s->a, x->dtype, 0);
  }
  return r;
}

/* The value that is, as it stands, the gradient: the body only renames the cotangent's indices. -1: none. */
static ValueId same_value(const Solver *s, const Space *sp, const Expr *body) {
  if (body->op != EX_READ || body->nix != sp->n || sp->n != s->type->rank || body->otherwise) return -1;
  ValueId v = s->f->in.at[body->operand];
  const Type *t = &s->g->m->values.at[v].type;
  for (int d = 0; d < sp->n; d++)
    if (ix_single(body->ix[d]) != d || t->dim[d].size != s->type->dim[d].size) return -1;
  return t->dtype == s->type->dtype ? v : -1;
}

static void too_many(Grad *g, const Flow *f, int most) {
  Diag *e = diag_error(g->cx->diags, "E0591", f->op->loc, "the gradient of this statement needs more than %d indices", most);
  diag_help(g->cx->diags, e, "split the statement in two");
}

/* May a read by value inside x leave its dim, over the indices of sp? */
static bool may_leave(const Solver *s, const Space *sp, const IExpr *x) {
  for (int i = 0; i < x->n; i++) {
    const Term *t = &x->term[i];
    if (t->sub && may_leave(s, sp, t->sub)) return true;
    for (int k = 0; t->kind == ATOM_VALUE && k < t->nat; k++) {
      int64_t lo, hi;
      ix_bounds(t->at[k], sp, &lo, &hi);
      if (lo < 0 || hi >= s->g->m->values.at[s->f->in.at[t->operand]].type.dim[k].size) return true;
    }
  }
  return false;
}

/* A row that is read with `else` may be any integer, and over the gradient's indices `x` may read it where it is not:
   then it goes through a map over those that it uses, which makes it 0 outside. The contribution is 0 there. */
static IExpr *safe_row(Solver *s, Flow *f, const Space *sp, const IExpr *x, int d) {
  Arena *a = s->a;
  Space own = {0};
  IExpr *by[MAX_INDEX] = {0}, *at[MAX_INDEX];
  Type t = {.dtype = I32};
  for (int i = 0; i < sp->n; i++) {
    if (!ix_uses(x, i)) continue;
    if (t.rank == MAX_RANK) return too_many(s->g, f, MAX_RANK), ix_const(a, 0);
    at[own.n] = ix_index(a, i);
    by[i] = ix_index(a, own.n);
    t.dim[t.rank++] = (Dim){.name = sp->idx[i].dim, .size = sp->idx[i].range};
    own.idx[own.n++] = sp->idx[i];
  }
  own.nout = own.n;
  Expr *row = tidy(s, sp, grad_index_value(s->g, &f->in, x)), *zero = ex_int(a, I32, 0);
  Expr *inside = ex_2(a, EX_AND, ex_2(a, EX_GE, row, zero), ex_2(a, EX_LT, row, ex_int(a, I32, s->type->dim[d].size)));
  Op *op = grad_op(s->g, OP_NEST, f->op->loc, TAG_INPUT_GRAD);
  op->space = own;
  op->body = ex_substitute(a, ex_where(a, inside, row, zero), by, NULL);
  vec_push(a, f->in, grad_emit(s->g, op, "row", t, &f->in));
  return ix_value(a, f->in.n - 1, own.n, at);
}

/* A read by value whose rows are all different: d.x[b,v] = where(v == row[b], c[b], 0), without a scatter. */
static Expr *in_row(Solver *s, const Space *sp, Expr *body, IExpr *const *by) {
  for (int d = s->read->nix - 1; d >= 0; d--) {
    if (!ix_by_value(s->read->ix[d])) continue;
    Expr *row = tidy(s, sp, ex_substitute(s->a, grad_index_value(s->g, &s->f->in, s->read->ix[d]), by, NULL));
    Expr *here = ex_2(s->a, EX_EQ, ex_index(s->a, ix_index(s->a, d)), row);
    body = ex_where(s->a, here, body, ex_lit(s->a, body->dtype, 0));
  }
  return body;
}

static IExpr **rows_of(Solver *s, Flow *f, const Space *sp, IExpr *const *by) {
  IExpr **into = NEW_ARRAY(s->a, IExpr *, s->read->nix);
  for (int d = 0; d < s->read->nix; d++) {
    IExpr *row = ix_substitute(s->a, s->read->ix[d], by, NULL);
    if (!ix_by_value(row))
      into[d] = ix_index(s->a, d);
    else
      into[d] = s->read->otherwise || may_leave(s, sp, row) ? safe_row(s, f, sp, row, d) : row;
  }
  return into;
}

static Op *adjoint_op(Solver *s, Flow *f, IExpr *const *by, Space sp, Expr *body) {
  bool by_value = false, sums = sp.n > sp.nout;
  for (int d = 0; d < s->read->nix; d++) by_value = by_value || ix_by_value(s->read->ix[d]);
  GradTag tag = s->g->weight[f->in.at[s->read->operand]] ? TAG_WEIGHT_GRAD : TAG_INPUT_GRAD;
  Op *op = grad_op(s->g, by_value && sums ? OP_SCATTER_ADD : OP_NEST, f->op->loc, tag);
  op->space = sp;
  op->body = by_value && !sums ? in_row(s, &sp, body, by) : body;
  if (op->kind == OP_SCATTER_ADD)
    op->into = rows_of(s, f, &sp, by);
  else
    op->reduce = sums ? RED_SUM : RED_NONE;
  return op;
}

/* Adds to the gradient of what `read` reads: c, summed where the read meets it. */
static void contribute(Grad *g, Flow *f, const Expr *read, Expr *c) {
  Arena *a = g->m->arena;
  ValueId x = f->in.at[read->operand];
  Type type = grad_open(&g->m->values.at[x].type);
  Solver s = {.g = g, .a = a, .f = f, .read = read, .c = c, .type = &type, .space = f->space};
  solve(&s);
  if (s.full) {
    too_many(g, f, MAX_INDEX);
    return;
  }
  IExpr *to[MAX_INDEX] = {0}, *by[MAX_INDEX] = {0};
  Space sp = result_space(&s, to);
  for (int i = 0; i < s.space.n; i++) by[i] = s.is[i] ? ix_substitute(a, resolve(&s, s.is[i]), to, NULL) : to[i];
  c = ex_cast(a, type.dtype, c);
  if (s.cond) c = ex_where(a, s.cond, c, ex_lit(a, c->dtype, 0));
  Expr *body = ex_simplify(a, tidy(&s, &sp, ex_substitute(a, c, by, NULL)));
  ValueId same = same_value(&s, &sp, body);
  if (same < 0) {
    Op *op = adjoint_op(&s, f, by, sp, body);
    same = grad_emit(g, op, grad_name(g, x), type, &f->in);
  }
  grad_add(g, x, same);
}

typedef struct {
  Grad *g;
  Flow *f;
  VEC(const Expr *) reads;
} Reads;

/* One of each set of reads of the same value at the same place, if a gradient is wanted there. */
static void collect(void *cx, const Expr *x) {
  Reads *r = cx;
  ValueId v = r->f->in.at[x->operand];
  if (!grad_is_active(r->g, v)) return;
  for (int i = 0; i < r->reads.n; i++) {
    const Expr *y = r->reads.at[i];
    bool same = r->f->in.at[y->operand] == v;
    for (int d = 0; d < x->nix && same; d++) same = ix_equal(x->ix[d], y->ix[d]);
    if (same) return;
  }
  vec_push(r->g->m->arena, r->reads, x);
}

void grad_flow(Grad *g, Flow *f, Expr *cot) {
  Reads r = {.g = g, .f = f};
  ex_reads(f->body, collect, &r);
  for (int i = 0; i < r.reads.n; i++) {
    const Expr *read = r.reads.at[i];
    Expr *d = grad_derive(g, f, read), *inside = NULL;
    if (!d) continue;
    d = grad_times(g->m->arena, cot, d);
    for (int k = 0; k < read->nix && read->otherwise; k++)
      if (ix_by_value(read->ix[k])) inside = grad_inside(g, f, read);
    if (inside) d = ex_where(g->m->arena, inside, d, ex_lit(g->m->arena, d->dtype, 0));
    contribute(g, f, read, d);
  }
}
