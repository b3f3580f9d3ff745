/* gen_body.c: random index expressions and bodies over the values made so far:

     sum[a1] where(%v3[b, 2 - a1] < f32(idx(b)), (%v1[2*a1 + b - 1] else 0.0), %v2)

   Every read is lawful: one that could leave its dim gets an `else`. */
#include "fuzz.h"

#include <ctype.h>
#include <math.h>

Build build_new(Gen *g, OpKind kind) { return (Build){.g = g, .op = ir_op(g->m, kind, (Loc){0})}; }

int build_operand(Build *b, ValueId v) {
  for (int i = 0; i < b->op->nin; i++)
    if (b->op->in[i] == v) return i;
  ir_in(b->g->m, b->op, v);
  return b->op->nin - 1;
}

static int64_t points(const Space *s) {
  int64_t n = 1;
  for (int i = 0; i < s->n; i++) n *= max_i64(s->idx[i].range, 1);
  return n;
}

int build_index(Build *b, Dim d) {
  Space *s = &b->s;
  if (b->closed || s->n >= 7 || points(s) * max_i64(d.size, 1) > GEN_POINTS) return -1;
  char base = d.name ? (char)tolower((unsigned char)d.name[0]) : 'i';
  int same = 0;
  for (int i = 0; i < s->n; i++) same += s->idx[i].name[0] == base;
  const char *name = same ? arena_printf(b->g->a, "%c%d", base, same) : arena_printf(b->g->a, "%c", base);
  s->idx[s->n] = (Index){.name = name, .dim = d.name, .range = d.size};
  b->dim[s->n] = (Dim){.name = d.name, .size = d.size};
  return s->n++;
}

static int index_over(Build *b, int64_t range) { /* a random one of that range, or -1 */
  int found = -1, n = 0;
  for (int i = 0; i < b->s.n; i++)
    if (b->s.idx[i].range == range && rng_below(&b->g->rng, ++n) == 0) found = i;
  return found;
}

static int any_index(Build *b) {
  if (b->s.n == 0 || rng_percent(&b->g->rng, 20)) {
    int i = build_index(b, b->g->dim[rng_below(&b->g->rng, GEN_DIMS)]);
    if (i >= 0) return i;
  }
  return b->s.n ? rng_below(&b->g->rng, b->s.n) : -1;
}

/* An index expression that may leave the dim: windows, strides, splits, merges, rotations, reversals. */
static IExpr *odd_index(Build *b, int64_t size) {
  Arena *a = b->g->a;
  Rng *r = &b->g->rng;
  int i = any_index(b), j = any_index(b);
  if (i < 0) return ix_const(a, rng_below(r, (int)size));
  IExpr *x = ix_index(a, i), *y = ix_index(a, j);
  int64_t shift = rng_percent(r, 70) ? rng_below(r, 5) - 2 : rng_below(r, 2 * (int)size + 1) - size;
  switch (rng_below(r, 10)) {
  case 0: return ix_const(a, rng_below(r, (int)size));
  case 1: return ix_add(a, ix_scale(a, x, 2), ix_add(a, y, ix_const(a, -1)));
  case 2: return ix_add(a, ix_const(a, size - 1), ix_scale(a, x, -1));
  case 3: return ix_mod(a, ix_add(a, x, ix_const(a, shift)), size);
  case 4: return ix_div(a, ix_add(a, x, ix_const(a, rng_below(r, 2))), 1 + rng_below(r, 3));
  case 5: return ix_add(a, ix_scale(a, x, b->s.idx[j].range), y);
  case 6: return ix_add(a, ix_add(a, x, ix_scale(a, y, -1)), ix_const(a, shift));
  case 7: return ix_add(a, ix_scale(a, x, 1 + rng_below(r, 3)), ix_const(a, shift)); /* padding, strides */
  case 8: return ix_div(a, ix_add(a, ix_scale(a, x, 1 + rng_below(r, 3)), y), 1 + rng_below(r, 3));
  default: return ix_add(a, x, ix_const(a, shift));
  }
}

IExpr *build_read_index(Build *b, const Dim *d, bool *inside, bool plain) {
  Rng *r = &b->g->rng;
  IExpr *x = NULL;
  if (plain || !rng_percent(r, b->g->odd)) {
    int i = rng_percent(r, 80) ? index_over(b, d->size) : -1;
    if (i < 0) i = build_index(b, *d);
    if (i < 0) i = index_over(b, d->size);
    if (i >= 0) x = ix_index(b->g->a, i);
  }
  if (!x && plain) x = ix_const(b->g->a, rng_below(r, (int)d->size));
  if (!x) x = odd_index(b, d->size);
  int64_t min, max;
  ix_bounds(x, &b->s, &min, &max);
  *inside = *inside && min >= 0 && max < d->size;
  return x;
}

static Expr *literal(Build *b) {
  static const double values[] = {0, 1, 2, -1, 3, 0.5, -0.25, 1.5};
  return ex_lit(b->g->a, F32, values[rng_below(&b->g->rng, b->g->o.small ? 5 : 8)]);
}

/* %x[e // 3, e % 3] of two dims that follow each other, the second of 3: all of both, or a part, by one index. */
static void merge_dims(Build *b, const Type *t, IExpr **ix, bool *inside) {
  Rng *r = &b->g->rng;
  Arena *a = b->g->a;
  int k = rng_below(r, t->rank - 1);
  int64_t row = t->dim[k + 1].size, all = t->dim[k].size * row;
  int i = build_index(b, (Dim){.size = rng_percent(r, 70) ? all : 1 + rng_below(r, (int)all)});
  if (i < 0) return;
  IExpr *e = ix_add(a, ix_index(a, i), ix_const(a, rng_percent(r, 60) ? 0 : rng_below(r, 5) - 2));
  ix[k] = ix_div(a, e, row), ix[k + 1] = ix_mod(a, e, row);
  int64_t min, max;
  ix_bounds(ix[k], &b->s, &min, &max);
  *inside = *inside && min >= 0 && max < t->dim[k].size;
}

Expr *build_read(Build *b, const Item *x, bool plain) {
  Gen *g = b->g;
  const Type t = g->m->values.at[x->v].type;
  IExpr **ix = NEW_ARRAY(g->a, IExpr *, t.rank);
  bool inside = true;
  if (t.rank > 1 && !plain && rng_percent(&g->rng, g->odd / 3)) merge_dims(b, &t, ix, &inside);
  for (int k = 0; k < t.rank; k++)
    if (!ix[k]) ix[k] = build_read_index(b, &t.dim[k], &inside, plain);
  Expr *otherwise = NULL;
  if (!inside) otherwise = dtype_is_int(t.dtype) ? ex_int(g->a, t.dtype, 0) : literal(b);
  return ex_read(g->a, build_operand(b, x->v), t.dtype, t.rank, ix, otherwise);
}

const Item *pick(Gen *g, DType d, int min_rank) {
  const Item *found = NULL;
  int n = 0;
  for (int i = 0; i < g->pool.n; i++) {
    const Type *t = &g->m->values.at[g->pool.at[i].v].type;
    int weight = i >= g->pool.n - 3 ? 3 : 1; /* recent values make chains */
    if (t->dtype != d || t->rank < min_rank) continue;
    n += weight;
    if (rng_below(&g->rng, n) < weight) found = &g->pool.at[i];
  }
  return found;
}

static Expr *real_leaf(Build *b, double *bound) {
  Gen *g = b->g;
  int kind = rng_below(&g->rng, 100);
  const Item *x = pick(g, F32, 0), *n = pick(g, I32, 0);
  *bound = 4;
  if (kind < 80 && x) {
    *bound = fmax(x->bound, 3);
    return build_read(b, x, rng_percent(&g->rng, 60));
  }
  if (kind < 88 && n) {
    *bound = (double)n->limit;
    return ex_cast(g->a, F32, build_read(b, n, true));
  }
  int i = kind < 95 ? any_index(b) : -1;
  if (i < 0) return literal(b);
  *bound = (double)b->s.idx[i].range;
  return ex_cast(g->a, F32, ex_index(g->a, ix_index(g->a, i)));
}

static Expr *int_value(Build *b) {
  Gen *g = b->g;
  const Item *n = pick(g, I32, 0);
  if (n && rng_percent(&g->rng, 40)) return build_read(b, n, rng_percent(&g->rng, 60));
  int i = any_index(b);
  if (i < 0 || rng_percent(&g->rng, 20)) return ex_int(g->a, I32, rng_below(&g->rng, 4));
  return ex_index(g->a, ix_add(g->a, ix_index(g->a, i), ix_const(g->a, rng_below(&g->rng, 3))));
}

static const ExprOp COMPARISONS[] = {EX_LT, EX_LE, EX_EQ, EX_NE, EX_GE, EX_GT};

Expr *build_condition(Build *b, int depth) {
  Gen *g = b->g;
  double unused;
  const Item *flag = pick(g, BOOL, 0);
  ExprOp op = COMPARISONS[rng_below(&g->rng, 6)];
  switch (rng_below(&g->rng, depth > 0 ? 6 : 3)) {
  case 0:
    if (flag) return build_read(b, flag, true);
    /* fallthrough */
  case 1: {
    Expr *x = int_value(b);
    return ex_2(g->a, op, x, int_value(b));
  }
  case 2:
  case 3: {
    Expr *x = build_real(b, 0, &unused);
    return ex_2(g->a, op, x, build_real(b, 0, &unused));
  }
  case 4: return ex_1(g->a, EX_NOT, build_condition(b, depth - 1));
  default: {
    Expr *x = build_condition(b, depth - 1);
    return ex_2(g->a, rng_percent(&g->rng, 50) ? EX_AND : EX_OR, x, build_condition(b, depth - 1));
  }
  }
}

/* Functions that only the domain modulo p can stand for. */
static Expr *smooth(Build *b, Expr *x, int depth) {
#define FN(op, ...) EX_##op,
  static const ExprOp fns[] = {
#include "ir/functions.def"
      EX_FLOOR, EX_STOP};
  double unused;
  if (rng_percent(&b->g->rng, 35)) return ex_2(b->g->a, EX_DIV, x, build_real(b, depth - 1, &unused));
  if (rng_percent(&b->g->rng, 20)) return ex_1(b->g->a, EX_EXP, ex_2(b->g->a, EX_SUB, x, build_real(b, depth - 1, &unused)));
  return ex_1(b->g->a, fns[rng_below(&b->g->rng, sizeof fns / sizeof *fns)], x);
}

Expr *build_real(Build *b, int depth, double *bound) {
  Arena *a = b->g->a;
  Rng *r = &b->g->rng;
  if (depth <= 0 || rng_percent(r, 15)) return real_leaf(b, bound);
  double other;
  Expr *x = build_real(b, depth - 1, bound);
  if (!b->g->o.small && rng_percent(r, 20)) return smooth(b, x, depth);
  switch (rng_below(r, 10)) {
  case 0:
  case 1: {
    Expr *y = build_real(b, depth - 1, &other);
    *bound += other;
    return ex_2(a, rng_percent(r, 70) ? EX_ADD : EX_SUB, x, y);
  }
  case 2:
  case 3:
  case 4: {
    Expr *y = build_real(b, depth - 1, &other);
    *bound *= other;
    return ex_2(a, EX_MUL, x, y);
  }
  case 5: return ex_1(a, rng_percent(r, 50) ? EX_NEG : EX_ABS, x);
  case 6: {
    Expr *y = build_real(b, depth - 1, &other);
    *bound = fmax(*bound, other);
    return ex_2(a, rng_percent(r, 50) ? EX_MIN : EX_MAX, x, y);
  }
  case 7:
  case 8: {
    Expr *c = build_condition(b, 1), *y = rng_percent(r, 40) ? ex_lit(a, F32, 0) : build_real(b, depth - 1, &other);
    if (y->op != EX_LITERAL) *bound = fmax(*bound, other);
    return rng_percent(r, 50) ? ex_where(a, c, x, y) : ex_where(a, c, y, x);
  }
  default: return x;
  }
}

/* ---- finishing ---- */

/* A random order of n indices in which `last` (or -1) comes at place `at`. */
static void shuffle(Rng *r, int *order, int n, int last, int at) {
  for (int i = 0; i < n; i++) order[i] = i;
  for (int i = n - 1; i > 0; i--) {
    int j = rng_below(r, i + 1), t = order[i];
    order[i] = order[j], order[j] = t;
  }
  for (int i = 0; i < n && last >= 0; i++)
    if (order[i] == last) order[i] = order[at], order[at] = last;
}

bool build_finish(Build *b, Expr *body, int nreduced, int last) {
  Gen *g = b->g;
  Space *s = &b->s, done = {.n = s->n, .nout = s->n - nreduced};
  if (done.nout < (last >= 0) || done.nout > 5) return false;
  int order[MAX_INDEX];
  shuffle(&g->rng, order, s->n, last, done.nout - 1);
  Dim dim[MAX_INDEX];
  for (int i = 0; i < s->n; i++) {
    done.idx[i] = s->idx[order[i]];
    dim[i] = b->dim[order[i]];
    b->by[order[i]] = ix_index(g->a, i);
  }
  b->s = done;
  memcpy(b->dim, dim, sizeof dim);
  b->op->space = done;
  b->op->body = ex_substitute(g->a, body, b->by, NULL);
  return true;
}

Type gen_type(DType d, int rank, const Dim *dims) {
  Type t = {.dtype = d, .rank = rank};
  for (int k = 0; k < rank; k++) t.dim[k] = (Dim){.name = dims[k].name, .size = dims[k].size};
  return t;
}

Type build_type(const Build *b, DType d, int nout) { return gen_type(d, nout, b->dim); }

ValueId build_append(Build *b, const char *name, Type t, double bound, int64_t limit) {
  Gen *g = b->g;
  ValueId v = ir_out(g->m, b->op, name, t);
  if (b->op->nout == 1) ir_append(g->m, g->region, b->op);
  vec_push(g->a, g->pool, ((Item){v, bound, limit}));
  return v;
}
