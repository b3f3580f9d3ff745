/* gen.c: a random program: leaves, then ops of every kind over what is there, then outputs, updates and, if asked
   for, the gradient of a scalar. The annotated module has no layouts yet (annotate.c). */
#include "fuzz.h"

#include <math.h>

static double product_of_reduced(const Build *b) {
  double n = 1;
  for (int i = b->op->space.nout; i < b->op->space.n; i++) n *= (double)b->s.idx[i].range;
  return n;
}

static bool too_large(const Gen *g, double bound) { return g->o.small && bound > g->o.max_bound; }

/* Large values are clamped before they are used again: sums and products must stay exact. */
static void clamp(Gen *g, Item x) {
  Type t = g->m->values.at[x.v].type;
  Build b = build_new(g, OP_NEST);
  IExpr *ix[MAX_RANK];
  for (int k = 0; k < t.rank; k++) ix[k] = ix_index(g->a, build_index(&b, t.dim[k]));
  for (int k = 0; k < t.rank; k++)
    if (ix_single(ix[k]) != k) return;
  Expr *e = ex_read(g->a, build_operand(&b, x.v), F32, t.rank,
                    memcpy(NEW_ARRAY(g->a, IExpr *, t.rank + 1), ix, sizeof ix[0] * (size_t)t.rank), NULL);
  e = ex_2(g->a, EX_MAX, ex_2(g->a, EX_MIN, e, ex_lit(g->a, F32, 5)), ex_lit(g->a, F32, -5));
  b.op->space = b.s;
  b.op->space.nout = b.s.n;
  b.op->body = e;
  build_append(&b, "c", build_type(&b, F32, b.s.n), 5, 0);
}

static void add_real(Build *b, double bound) {
  Gen *g = b->g;
  build_append(b, "v", build_type(b, F32, b->op->space.nout), bound, 0);
  if (g->o.small && bound > 60) {
    Item x = g->pool.at[g->pool.n - 1];
    if (rng_percent(&g->rng, 80)) g->pool.n--;
    clamp(g, x);
  }
}

static bool gen_map(Gen *g) {
  Build b = build_new(g, OP_NEST);
  double bound;
  Expr *e = build_real(&b, 1 + rng_below(&g->rng, 3), &bound);
  if (rng_percent(&g->rng, 10)) build_index(&b, g->dim[rng_below(&g->rng, GEN_DIMS)]); /* a broadcast */
  if (too_large(g, bound) || !build_finish(&b, e, 0, -1)) return false;
  add_real(&b, bound);
  return true;
}

static bool gen_reduce(Gen *g) {
  Build b = build_new(g, OP_NEST);
  double bound;
  Expr *e = build_real(&b, 1 + rng_below(&g->rng, 2), &bound);
  if (b.s.n == 0) return false;
  static const Reduce kinds[] = {RED_SUM, RED_SUM, RED_SUM, RED_MAX, RED_MIN, RED_PROD};
  b.op->reduce = kinds[rng_below(&g->rng, 6)];
  if (!build_finish(&b, e, 1 + rng_below(&g->rng, b.s.n), -1)) return false;
  double n = product_of_reduced(&b);
  if (b.op->reduce == RED_SUM) bound *= n;
  if (b.op->reduce == RED_PROD) bound = pow(bound, n);
  if (too_large(g, bound)) return false;
  add_real(&b, bound);
  return true;
}

/* A sum of products of two operands, as matrix products are. */
static bool gen_product(Gen *g) {
  Build b = build_new(g, OP_NEST);
  const Item *x = pick(g, F32, 1), *y = pick(g, F32, 1);
  if (!x || !y) return false;
  double bound = x->bound * y->bound;
  Expr *e = ex_2(g->a, EX_MUL, build_read(&b, x, true), build_read(&b, y, true));
  if (b.s.n == 0) return false;
  b.op->reduce = RED_SUM;
  if (!build_finish(&b, e, 1 + rng_below(&g->rng, b.s.n), -1)) return false;
  bound *= product_of_reduced(&b);
  if (too_large(g, bound)) return false;
  add_real(&b, bound);
  return true;
}

/* A read by value of an integer operand, as an index expression. */
static IExpr *by_value(Build *b, const Item *n) {
  const Expr *read = build_read(b, n, true);
  return ix_value(b->g->a, read->operand, read->nix, read->ix);
}

static bool gen_gather(Gen *g) {
  const Item *table = pick(g, rng_percent(&g->rng, 85) ? F32 : I32, 1), *n = pick(g, I32, 0);
  if (!table || !n) return false;
  Build b = build_new(g, OP_GATHER);
  const Type t = g->m->values.at[table->v].type;
  int row = rng_below(&g->rng, t.rank), operand = build_operand(&b, table->v);
  IExpr **ix = NEW_ARRAY(g->a, IExpr *, t.rank);
  bool inside = true;
  for (int k = 0; k < t.rank; k++)
    if (k != row) ix[k] = build_read_index(&b, &t.dim[k], &inside, rng_percent(&g->rng, 80));
  ix[row] = by_value(&b, n);
  bool shifted = rng_percent(&g->rng, 20);
  if (shifted)
    ix[row] = ix_add(g->a, ix_scale(g->a, ix[row], 1 + rng_below(&g->rng, 2)), ix_const(g->a, rng_below(&g->rng, 3) - 1));
  inside = inside && !shifted && n->limit <= t.dim[row].size && rng_percent(&g->rng, 80);
  Expr *otherwise = t.dtype == F32 ? ex_lit(g->a, F32, rng_below(&g->rng, 3)) : ex_int(g->a, I32, 0);
  Expr *e = ex_read(g->a, operand, t.dtype, t.rank, ix, inside ? NULL : otherwise);
  if (!build_finish(&b, e, 0, -1)) return false;
  build_append(&b, "g", build_type(&b, t.dtype, b.s.n), fmax(table->bound, 2), table->limit);
  return true;
}

static bool gen_scatter(Gen *g) {
  const Item *x = pick(g, F32, 1), *n = pick(g, I32, 1);
  if (!x || !n) return false;
  Dim rows = g->dim[rng_below(&g->rng, GEN_DIMS)];
  for (int i = 0; i < GEN_DIMS && rows.size < n->limit; i++) rows = g->dim[i];
  if (rows.size < n->limit || too_large(g, x->bound * GEN_POINTS)) return false;
  Build b = build_new(g, OP_SCATTER_ADD);
  IExpr *where = by_value(&b, n);
  Expr *e = build_read(&b, x, true);
  int nused = b.s.n, nkept = rng_below(&g->rng, min_i64(nused, 3) + 1), row = build_index(&b, rows);
  if (row < 0 || nused == nkept || nkept == MAX_RANK - 1) return false;
  if (!build_finish(&b, e, nused - nkept, row)) return false;
  where = ix_substitute(g->a, where, b.by, NULL);
  b.op->into = NEW_ARRAY(g->a, IExpr *, b.op->space.nout);
  for (int i = 0; i < b.op->space.nout; i++) b.op->into[i] = i == b.op->space.nout - 1 ? where : ix_index(g->a, i);
  double bound = x->bound * (double)GEN_POINTS;
  add_real(&b, bound);
  return true;
}

static bool gen_argmax(Gen *g) {
  Build b = build_new(g, OP_ARGMAX);
  double bound;
  Expr *e = build_real(&b, 1, &bound);
  if (b.s.n == 0 || too_large(g, bound) || !build_finish(&b, e, 1 + rng_below(&g->rng, b.s.n), -1)) return false;
  build_append(&b, "n", build_type(&b, I32, b.op->space.nout), 0, (int64_t)product_of_reduced(&b));
  return true;
}

static bool gen_topk(Gen *g) {
  Build b = build_new(g, OP_TOPK);
  double bound;
  Expr *e = build_real(&b, 1, &bound);
  Dim count = g->dim[rng_below(&g->rng, GEN_DIMS)];
  if (b.s.n == 0 || too_large(g, bound)) return false;
  int j = build_index(&b, count);
  if (j < 0 || !build_finish(&b, e, 1, j) || b.s.idx[b.s.n - 1].range < count.size) return false;
  Type v = build_type(&b, F32, b.op->space.nout), n = build_type(&b, I32, b.op->space.nout);
  int64_t limit = b.s.idx[b.s.n - 1].range;
  build_append(&b, "t", v, bound, 0);
  build_append(&b, "n", n, 0, limit);
  return true;
}

static bool gen_scan(Gen *g) {
  Build b = build_new(g, OP_SCAN);
  double bound;
  Expr *e = build_real(&b, 1, &bound);
  if (b.s.n == 0 || !build_finish(&b, e, 0, -1)) return false;
  b.op->along = rng_below(&g->rng, b.s.n);
  b.op->reverse = rng_percent(&g->rng, 30);
  bound *= (double)b.s.idx[b.op->along].range;
  if (too_large(g, bound)) return false;
  add_real(&b, bound);
  return true;
}

static void gen_tap(Gen *g, TapKind kind, const char *name, ValueId v);

/* The last value is shown, and nothing reads it: reals would spoil what is exact. */
static void show_sink(Gen *g, ValueId v) {
  g->pool.n--;
  gen_tap(g, TAP_OUTPUT, arena_printf(g->a, "sink%d", (int)v), v);
}

static bool gen_random(Gen *g) {
  if (!g->o.random || (g->o.sinks && g->depth > 0)) return false;
  Build b = build_new(g, OP_RANDOM);
  for (int n = rng_below(&g->rng, 3); n >= 0; n--) build_index(&b, g->dim[rng_below(&g->rng, GEN_DIMS)]);
  b.op->space = b.s;
  b.op->space.nout = b.s.n;
  b.op->name = arena_printf(g->a, "site%d", g->sites++);
  b.op->init = rng_percent(&g->rng, 50) ? INIT_NORMAL : INIT_UNIFORM;
  ir_in(g->m, b.op, g->step);
  for (int i = 0; i < g->counters.n; i++) ir_in(g->m, b.op, g->counters.at[i]);
  ValueId r = build_append(&b, "r", build_type(&b, F32, b.s.n), 3, 0);
  if (g->o.sinks) show_sink(g, r);
  return true;
}

/* Integers and flags made by maps. */
static bool gen_integer(Gen *g) {
  Build b = build_new(g, OP_NEST);
  int64_t limit = g->dim[rng_below(&g->rng, GEN_DIMS)].size;
  const Item *n = pick(g, I32, 0);
  bool flag = rng_percent(&g->rng, 40);
  Expr *e;
  if (flag) {
    e = build_condition(&b, 2);
  } else {
    int i = build_index(&b, g->dim[rng_below(&g->rng, GEN_DIMS)]);
    e = ex_index(g->a, ix_add(g->a, ix_index(g->a, i), ix_const(g->a, rng_below(&g->rng, 3))));
    if (n) e = ex_2(g->a, EX_ADD, e, build_read(&b, n, rng_percent(&g->rng, 70)));
    e = ex_2(g->a, EX_MOD, e, ex_int(g->a, I32, limit));
  }
  if (!build_finish(&b, e, 0, -1)) return false;
  build_append(&b, flag ? "p" : "n", build_type(&b, flag ? BOOL : I32, b.s.n), 0, limit);
  return true;
}

/* An op whose result has these dims; nothing else may be an index of its body. */
static Build build_shaped(Gen *g, OpKind kind, int rank, const Dim *dims) {
  Build b = build_new(g, kind);
  for (int k = 0; k < rank; k++) {
    b.s.idx[k] = (Index){.name = arena_printf(g->a, "i%d", k), .dim = dims[k].name, .range = dims[k].size};
    b.dim[k] = dims[k];
  }
  b.s.n = b.s.nout = rank;
  b.closed = true;
  return b;
}

ValueId gen_fitting(Gen *g, ValueId like, double *bound) {
  Type t = g->m->values.at[like].type;
  Build b = build_shaped(g, OP_NEST, t.rank, t.dim);
  IExpr **ix = NEW_ARRAY(g->a, IExpr *, t.rank);
  for (int k = 0; k < t.rank; k++) ix[k] = ix_index(g->a, k);
  double other = 0;
  Expr *e = ex_read(g->a, build_operand(&b, like), F32, t.rank, ix, NULL);
  e = ex_2(g->a, rng_percent(&g->rng, 70) ? EX_ADD : EX_MUL, e, build_real(&b, 1, &other));
  if (g->o.small) e = ex_2(g->a, EX_MAX, ex_2(g->a, EX_MIN, e, ex_lit(g->a, F32, 6)), ex_lit(g->a, F32, -6));
  b.op->space = b.s;
  b.op->body = e;
  *bound = 6;
  return build_append(&b, "f", gen_type(F32, t.rank, t.dim), 6, 0);
}

/* ---- attention ---- */

static ValueId gen_shaped(Gen *g, const char *name, int rank, const Dim *dims) {
  Build b = build_shaped(g, OP_NEST, rank, dims);
  double bound;
  Expr *e = build_real(&b, 1, &bound);
  if (g->o.sinks) e = ex_2(g->a, EX_MAX, ex_2(g->a, EX_MIN, e, ex_lit(g->a, F32, 3)), ex_lit(g->a, F32, -3)), bound = 3;
  b.op->space = b.s;
  b.op->body = e;
  return build_append(&b, name, gen_type(F32, rank, dims), bound, 0);
}

/* A read of value v at the indices of `op` that are listed. */
static Expr *read_at(Build *b, ValueId v, int n, const int *index) {
  IExpr **ix = NEW_ARRAY(b->g->a, IExpr *, n);
  for (int k = 0; k < n; k++) ix[k] = ix_index(b->g->a, index[k]);
  return ex_read(b->g->a, build_operand(b, v), F32, n, ix, NULL);
}

/* dot, scaled, sometimes with a bias and a mask. */
static Expr *gen_score(Build *b, int t, int u) {
  Gen *g = b->g;
  Expr *e = NEW(g->a, Expr);
  *e = (Expr){.op = EX_DOT, .dtype = F32};
  if (rng_percent(&g->rng, 50)) e = ex_2(g->a, EX_MUL, e, ex_lit(g->a, F32, 0.5));
  if (rng_percent(&g->rng, 40)) {
    Dim dims[2] = {b->dim[t], b->dim[u]};
    e = ex_2(g->a, EX_ADD, e, read_at(b, gen_shaped(g, "bias", 2, dims), 2, (int[]){t, u}));
  }
  if (rng_percent(&g->rng, 60)) {
    Expr *mask = ex_2(g->a, EX_LE, ex_index(g->a, ix_index(g->a, u)),
                      ex_index(g->a, ix_add(g->a, ix_index(g->a, t), ix_const(g->a, rng_below(&g->rng, 3) - 1))));
    e = ex_where(g->a, mask, e, ex_lit(g->a, F32, -INFINITY));
  }
  return e;
}

static bool gen_attention(Gen *g) {
  if (g->o.small && (!g->o.sinks || g->depth > 0)) return false;
  enum { B, T, E, U, K };
  Dim d[5];
  for (int i = 0; i < 5; i++) d[i] = g->dim[rng_below(&g->rng, GEN_DIMS)];
  if (d[B].size * d[T].size * d[U].size * (d[E].size + d[K].size) > 2 * GEN_POINTS) return false;
  ValueId q = gen_shaped(g, "q", 3, (Dim[]){d[B], d[T], d[K]}), k = gen_shaped(g, "k", 3, (Dim[]){d[U], d[K], d[B]}),
          v = gen_shaped(g, "u", 3, (Dim[]){d[B], d[U], d[E]});
  Build b = build_shaped(g, OP_ATTENTION, 5, d);
  b.s.nout = 3;
  b.op->nkey = 1;
  b.op->read[0] = read_at(&b, q, 3, (int[]){B, T, K});
  b.op->read[1] = read_at(&b, k, 3, (int[]){U, K, B});
  b.op->read[2] = read_at(&b, v, 3, (int[]){B, U, E});
  b.op->body = gen_score(&b, T, U);
  b.op->space = b.s;
  int rows[MAX_INDEX], n = attention_rows(b.op, rows);
  Dim dims[MAX_RANK];
  for (int i = 0; i < n; i++) dims[i] = d[rows[i]];
  ValueId att = build_append(&b, "att", gen_type(F32, 3, d), 0, 0);
  ir_out(g->m, b.op, "lse", gen_type(F32, n, dims)); /* only the gradient reads it */
  if (g->o.sinks) g->sink = g->pool.at[g->pool.n - 1], g->has_sink = true, show_sink(g, att);
  return true;
}

/* ---- repeat ---- */

static Type stacked_type(const Type *slice, Dim trip) {
  Dim dims[MAX_RANK] = {trip};
  for (int k = 0; k < slice->rank; k++) dims[1 + k] = slice->dim[k];
  return gen_type(slice->dtype, slice->rank + 1, dims);
}

static const Item *pick_stacked(Gen *g, Dim trip) {
  for (int i = 0; i < g->pool.n; i++) {
    const Type *t = &g->m->values.at[g->pool.at[i].v].type;
    bool fits = t->rank > 0 && t->dim[0].size == trip.size && t->dim[0].name && !strcmp(t->dim[0].name, trip.name);
    if (fits && rng_percent(&g->rng, 60)) return &g->pool.at[i];
  }
  return NULL;
}

/* Adds the operand and the region argument that stands for it; `drop` leading dims are taken off. */
static void loop_arg(Gen *g, Op *op, Gen *inner, Item x, int drop) {
  Type t = g->m->values.at[x.v].type;
  ir_in(g->m, op, x.v);
  ValueId arg = ir_arg(g->m, op->body_region, "a", gen_type(t.dtype, t.rank - drop, t.dim + drop));
  vec_push(g->a, inner->pool, ((Item){arg, fmax(x.bound, 6), x.limit}));
}

static ValueId loop_scalar(Gen *g, Op *op, ValueId v) {
  ir_in(g->m, op, v);
  op->ninvariant++;
  return ir_arg(g->m, op->body_region, "a", (Type){.dtype = I64});
}

/* What a `random` inside the loop needs: the step and all counters. */
static void loop_draws(Gen *g, Op *op, Gen *inner, ValueId counter) {
  inner->o.random = g->o.random && rng_percent(&g->rng, 40);
  if (!inner->o.random) return;
  inner->step = loop_scalar(g, op, g->step);
  for (int i = 0; i < g->counters.n; i++) vec_push(g->a, inner->counters, loop_scalar(g, op, g->counters.at[i]));
  vec_push(g->a, inner->counters, counter);
}

static void loop_results(Gen *g, Op *op, Gen *inner, Dim trip) {
  Region *body = op->body_region;
  for (int k = 0; k < op->ncarried; k++) {
    double bound;
    vec_push(g->a, body->yields, gen_fitting(inner, body->args.at[1 + k], &bound));
    Type t = g->m->values.at[op->in[k]].type;
    vec_push(g->a, g->pool, ((Item){ir_out(g->m, op, "z", gen_type(F32, t.rank, t.dim)), 6, 0}));
  }
  for (int n = rng_below(&g->rng, 3); n > 0; n--) {
    Item y = inner->pool.at[rng_below(&g->rng, inner->pool.n)];
    const Type t = g->m->values.at[y.v].type;
    if (t.rank >= 5) continue;
    vec_push(g->a, body->yields, y.v);
    vec_push(g->a, g->pool, ((Item){ir_out(g->m, op, "s", stacked_type(&t, trip)), y.bound, y.limit}));
  }
}

static bool gen_repeat(Gen *g) {
  const Item *x = pick(g, F32, 1);
  if (!g->o.repeats || g->depth >= 2 || !x || (g->o.small && x->bound > 100)) return false;
  Op *op = ir_op(g->m, OP_REPEAT, (Loc){0});
  Dim trip = g->dim[0];
  op->body_region = ir_region(g->m, op);
  op->trip = trip.size;
  op->trip_dim = trip.name;
  op->reverse = rng_percent(&g->rng, 20);
  Gen inner = *g;
  inner.region = op->body_region;
  inner.depth++;
  memset(&inner.pool, 0, sizeof inner.pool);
  memset(&inner.counters, 0, sizeof inner.counters);
  ValueId counter = ir_arg(g->m, op->body_region, "l", (Type){.dtype = I64});
  loop_arg(g, op, &inner, *x, 0);
  op->ncarried = 1;
  const Item *more = pick(g, F32, 0);
  if (more && rng_percent(&g->rng, 40) && (!g->o.small || more->bound <= 100)) loop_arg(g, op, &inner, *more, 0), op->ncarried++;
  loop_draws(g, op, &inner, counter);
  for (int n = rng_below(&g->rng, 3); n > 0; n--, op->ninvariant++) {
    const Item *with = pick(g, rng_percent(&g->rng, 70) ? F32 : I32, 0);
    loop_arg(g, op, &inner, with ? *with : *x, 0);
  }
  for (int n = rng_below(&g->rng, 3); n > 0; n--) {
    const Item *each = pick_stacked(g, trip);
    if (each) loop_arg(g, op, &inner, *each, 1), op->nstacked++;
  }
  inner.rng = g->rng;
  gen_region(&inner, 1 + rng_below(&inner.rng, 4));
  g->rng = inner.rng;
  loop_results(g, op, &inner, trip);
  g->sites = inner.sites;
  ir_append(g->m, g->region, op);
  return true;
}

/* ---- programs ---- */

void gen_region(Gen *g, int nops) {
  static bool (*const kinds[])(Gen *) = {gen_map,     gen_map,    gen_map,     gen_reduce,  gen_reduce,   gen_product,
                                         gen_product, gen_gather, gen_gather,  gen_scatter, gen_argmax,   gen_topk,
                                         gen_scan,    gen_random, gen_integer, gen_repeat,  gen_attention};
  for (int made = 0, tries = 0; made < nops && tries < 50; tries++)
    made += kinds[rng_below(&g->rng, (int)(sizeof kinds / sizeof *kinds))](g);
}

static void gen_dims(Gen *g) {
  static const char *const names[GEN_DIMS] = {"L", "A", "B", "C", "D"};
  g->odd = rng_percent(&g->rng, 25) ? 75 : 25; /* some programs are mostly windows */
  for (int i = 0; i < GEN_DIMS; i++) g->dim[i] = (Dim){.name = names[i], .size = 1 + rng_below(&g->rng, i == 0 ? 3 : 7)};
}

static void gen_leaf(Gen *g, OpKind kind, DType d) {
  Op *op = ir_op(g->m, kind, (Loc){0});
  Dim dims[4];
  int rank = g->o.ranked ? 1 + rng_below(&g->rng, 3) : rng_below(&g->rng, 4);
  for (int k = 0; k < rank; k++) dims[k] = g->dim[k == 0 && rng_percent(&g->rng, 30) ? 0 : 1 + rng_below(&g->rng, GEN_DIMS - 1)];
  int64_t limit = d == I32 ? g->dim[1 + rng_below(&g->rng, GEN_DIMS - 1)].size : 0;
  const char *name = arena_printf(g->a, "%c%d", kind == OP_PARAM ? 'w' : d == I32 ? 'e' : 'x', g->pool.n);
  op->source = SRC_TABLE;
  op->file = arena_printf(g->a, "%s.npy", name);
  op->limit = limit;
  op->name = name;
  if (kind == OP_PARAM) op->init = INIT_NORMAL, op->init_a = 1;
  ValueId v = ir_out(g->m, op, name, gen_type(d, rank, dims));
  ir_append(g->m, g->region, op);
  vec_push(g->a, g->pool, ((Item){v, 3, limit}));
}

static void gen_tap(Gen *g, TapKind kind, const char *name, ValueId v) {
  Op *op = ir_op(g->m, OP_TAP, (Loc){0});
  op->tap = kind;
  op->name = name;
  ir_in(g->m, op, v);
  ir_append(g->m, g->region, op);
}

static void gen_outputs(Gen *g, int nleaves) {
  for (int i = nleaves; i < g->pool.n; i++) {
    int age = g->pool.n - i;
    if (age <= 3 || rng_percent(&g->rng, 30)) gen_tap(g, TAP_OUTPUT, arena_printf(g->a, "o%d", i), g->pool.at[i].v);
  }
}

static void gen_updates(Gen *g, int nleaves) {
  for (int i = 0; i < nleaves; i++) {
    const Op *def = g->m->values.at[g->pool.at[i].v].def;
    if (def->kind != OP_PARAM || !rng_percent(&g->rng, 40)) continue;
    double bound;
    ValueId next = gen_fitting(g, g->pool.at[i].v, &bound);
    Op *op = ir_op(g->m, OP_UPDATE, (Loc){0});
    ir_in(g->m, op, g->pool.at[i].v);
    ir_in(g->m, op, next);
    ir_append(g->m, g->region, op);
  }
}

/* The sum of a real value is the loss; its gradients become taps of the parameters' names. */
static void gen_loss(Gen *g, int nleaves) {
  const Item *x = NULL;
  for (int i = nleaves; i < g->pool.n; i++)
    if (g->m->values.at[g->pool.at[i].v].type.dtype == F32) x = &g->pool.at[i];
  if (g->has_sink) x = &g->sink;
  if (!x) return;
  Build b = build_new(g, OP_NEST);
  Expr *e = build_read(&b, x, true);
  b.op->reduce = b.s.n ? RED_SUM : RED_NONE;
  if (!build_finish(&b, e, b.s.n, -1)) return;
  ValueId loss = build_append(&b, "loss", build_type(&b, F32, 0), 0, 0);
  gen_tap(g, TAP_LOSS, NULL, loss);
  g->m->train = (Train){.present = true, .loss = loss, .lr = 1, .optimizer = OPT_SGD, .steps = 1};
}

static void gen_step(Gen *g) {
  Op *op = ir_op(g->m, OP_STATE, (Loc){0});
  op->name = "step";
  g->step = ir_out(g->m, op, "step", (Type){.dtype = I64});
  ir_append(g->m, g->region, op);
}

Module *fuzz_program(Arena *a, uint64_t seed, GenOptions o) {
  Gen g = {.a = a, .m = ir_module(a), .rng = {seed}, .o = o};
  g.region = g.m->programs.at[0].body;
  g.m->mesh = (Mesh){.name = "m", .naxes = 1, .axis = {{"x", 1}}};
  gen_dims(&g);
  if (o.random) gen_step(&g);
  for (int i = 1 + rng_below(&g.rng, 2); i > 0; i--) gen_leaf(&g, OP_PARAM, F32);
  for (int i = 1 + rng_below(&g.rng, 2); i > 0; i--) gen_leaf(&g, OP_INPUT, F32);
  for (int i = 1 + rng_below(&g.rng, 2); i > 0; i--) gen_leaf(&g, OP_INPUT, I32);
  int nleaves = g.pool.n;
  gen_region(&g, 2 + rng_below(&g.rng, 8));
  if (o.gradients && rng_percent(&g.rng, 40)) gen_loss(&g, nleaves);
  gen_outputs(&g, nleaves);
  if (o.updates && !g.m->train.present) gen_updates(&g, nleaves);
  ir_number(g.m);
  return g.m;
}
