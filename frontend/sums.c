/* sums.c: sum[...](body) -> nests that are a sum of one read, of a map over at most two tensors, or of a product of two
   reads; the order of a longer product is chosen by work.

     sum[d](x[b,d] * w[d,f]) / s            one product, the division stays outside
     sum[d](rms[b] * r[b,d] * g[d] * w[d,f])   %.map[b,d] = rms * r * g, then sum[d] %.map * w: the factors of a map come
                                            at no price, and the products of d and f are fewer than those of b, d and f
     sum[i,j](a[n,i] * b[i,j] * c[j])       %.part[i] = sum[j] b * c, then sum[i] a * %.part                              */
#include "lower.h"

enum { MAX_FACTORS = 16, MAX_SEARCH = 6 };

typedef struct {
  Expr *e; /* NULL while only work is estimated */
  IndexSet s;
  bool map; /* not a read: has to become a value before it is summed with another */
} Factor;

/* body = +- times / over * product of f and free. */
typedef struct {
  Stmt *st;
  IndexSet red;
  int n;
  Factor f[MAX_FACTORS];
  VEC(Expr *) free;   /* factors that do not use the reduced indices */
  Expr *times, *over; /* outside of the sum, or NULL */
  bool negative;
} Product;

static Expr *mul(Stmt *st, Expr *x, Expr *y) { return !x ? y : !y ? x : ex_2(st->lw->a, EX_MUL, x, y); }

static void add_factor(Product *p, Expr *e, IndexSet s) {
  if (p->n == MAX_FACTORS) { /* the last one takes in what there is no room for */
    Factor *last = &p->f[MAX_FACTORS - 1];
    *last = (Factor){mul(p->st, last->e, e), last->s | s, true};
    return;
  }
  p->f[p->n++] = (Factor){e, s, !is_read(e)};
}

static void split_product(Product *p, Expr *e) {
  bool over = e->op == EX_DIV && !(ex_set(p->st, e->arg[1]) & p->red);
  if (e->op == EX_MUL) {
    split_product(p, e->arg[0]);
    split_product(p, e->arg[1]);
  } else if (e->op == EX_NEG) {
    p->negative = !p->negative;
    split_product(p, e->arg[0]);
  } else if (over) {
    p->over = mul(p->st, p->over, e->arg[1]);
    split_product(p, e->arg[0]);
  } else {
    IndexSet s = ex_set(p->st, e);
    if (s & p->red)
      add_factor(p, e, s);
    else
      vec_push(p->st->lw->a, p->free, e);
  }
}

/* A factor without reduced indices is multiplied where there are fewer elements: outside of the sum, or inside to a
   factor that has its indices. Numbers stay outside. */
static void place_free(Product *p) {
  IndexSet all = 0;
  for (int i = 0; i < p->n; i++) all |= p->f[i].s;
  int n = p->n;
  for (int i = 0; i < p->free.n; i++) {
    Expr *e = p->free.at[i];
    IndexSet s = ex_set(p->st, e);
    bool inside = false;
    for (int k = 0; s && k < n; k++)
      inside |= !(s & ~p->f[k].s) && volume(p->st, p->f[k].s) <= volume(p->st, (all | s) & ~p->red);
    if (inside)
      add_factor(p, e, s);
    else
      p->times = mul(p->st, p->times, e);
  }
}

/* ---- one nest ---------------------------------------------------------------------------------------------------- */

static Expr *one_nest(Stmt *st, Expr *body, IndexSet red, const char *suffix) {
  IndexSet out = ex_set(st, body) & ~red;
  return read_value(st, nest(st, body, out, red, RED_SUM, suffix), out);
}

static Expr *join(Stmt *st, const Factor *f, int n) {
  Expr *e = f[0].e;
  for (int i = 1; i < n; i++) e = mul(st, e, f[i].e);
  return e;
}

static IndexSet union_of(const Factor *f, int n) {
  IndexSet s = 0;
  for (int i = 0; i < n; i++) s |= f[i].s;
  return s;
}

/* What can be summed as soon as factors i and k (i = k: that one alone) are multiplied. */
static IndexSet summable(const Product *p, int i, int k) {
  IndexSet rest = 0;
  for (int j = 0; j < p->n; j++)
    if (j != i && j != k) rest |= p->f[j].s;
  return (p->f[i].s | p->f[k].s) & p->red & ~rest;
}

/* A product of two reads, or a sum of a map over at most two tensors of which nothing is computed again for other indices. */
static bool is_one_nest(Stmt *st, const Product *p) {
  if (tensors_in(join(st, p->f, p->n)) > 2) return false;
  IndexSet all = union_of(p->f, p->n);
  for (int i = 0; i < p->n; i++) {
    bool factor = p->n <= 2 && !p->f[i].map;
    if (p->f[i].s != all && (!factor || summable(p, i, i))) return false;
  }
  return true;
}

static bool has_full_factor(Stmt *st, const Expr *e, IndexSet all) {
  if (e->op == EX_NEG) return has_full_factor(st, e->arg[0], all);
  if (e->op != EX_MUL) return ex_set(st, e) == all;
  return has_full_factor(st, e->arg[0], all) || has_full_factor(st, e->arg[1], all);
}

/* sum(x + y) = sum(x) + sum(y) where x or y has no factor over all indices, so that none need be formed. */
static bool is_sum_of_less(Stmt *st, const Product *p) {
  const Expr *e = p->f[0].e;
  if (p->n != 1 || (e->op != EX_ADD && e->op != EX_SUB)) return false;
  return !has_full_factor(st, e->arg[0], p->f[0].s) || !has_full_factor(st, e->arg[1], p->f[0].s);
}

/* ---- products of several ------------------------------------------------------------------------------------------- */

static void remove_factor(Product *p, int i) {
  p->n--;
  for (; i < p->n; i++) p->f[i] = p->f[i + 1];
}

/* Factors over no more than the indices of map i join it. Returns where it stands now. */
static int absorb_into(Product *p, int i) {
  for (int k = p->n - 1; k >= 0; k--) {
    if (k == i || (p->f[k].s & ~p->f[i].s)) continue;
    Expr *x = p->f[k].e, *y = p->f[i].e;
    p->f[i].e = !y ? NULL : k < i ? mul(p->st, x, y) : mul(p->st, y, x);
    remove_factor(p, k);
    i -= k < i;
  }
  return i;
}

static void absorb(Product *p) {
  for (int i = 0; i < p->n; i++)
    if (p->f[i].map) i = absorb_into(p, i);
}

static Expr *factor_value(Product *p, int i) {
  Factor *f = &p->f[i];
  if (f->map) *f = (Factor){plain_read(p->st, f->e, f->s, "map"), f->s, false};
  return f->e;
}

/* Factors i < k become one. Without a sum the result is a map, which draws others in. */
static void replace_pair(Product *p, int i, int k, Factor f) {
  p->f[i] = f;
  remove_factor(p, k);
  if (f.map) absorb_into(p, i);
}

static Factor estimate(const Product *p, int i, int k) {
  IndexSet red = summable(p, i, k);
  return (Factor){NULL, (p->f[i].s | p->f[k].s) & ~red, !red};
}

/* Least work to multiply all factors, and the pair to begin with. Exhaustive for few, else the cheapest pair first. */
static double cheapest(const Product *p, int *bi, int *bk) {
  double best = -1;
  if (p->n < 2) return p->f[0].map && (p->f[0].s & p->red) ? volume(p->st, p->f[0].s) : 0; /* it is summed on its own */
  for (int i = 0; i < p->n; i++)
    for (int k = i + 1; k < p->n; k++) {
      double cost = volume(p->st, p->f[i].s | p->f[k].s);
      Product rest = *p;
      int x, y;
      replace_pair(&rest, i, k, estimate(p, i, k));
      if (p->n <= MAX_SEARCH) cost += cheapest(&rest, &x, &y);
      if (best < 0 || cost < best) best = cost, *bi = i, *bk = k;
    }
  return best;
}

static void multiply_pair(Product *p, int i, int k, const char *suffix) {
  IndexSet red = summable(p, i, k), out = (p->f[i].s | p->f[k].s) & ~red;
  if (!red) return replace_pair(p, i, k, (Factor){mul(p->st, p->f[i].e, p->f[k].e), out, true});
  Expr *body = mul(p->st, factor_value(p, i), factor_value(p, k));
  ValueId v = nest(p->st, body, out, red, RED_SUM, suffix);
  replace_pair(p, i, k, (Factor){read_value(p->st, v, out), out, false});
}

static void sum_alone(Product *p, int i, const char *suffix) {
  IndexSet red = summable(p, i, i), out = p->f[i].s & ~red;
  Expr *body = tensors_in(p->f[i].e) > 2 ? factor_value(p, i) : p->f[i].e;
  p->f[i] = (Factor){read_value(p->st, nest(p->st, body, out, red, RED_SUM, suffix), out), out, false};
}

static Expr *contract(Product *p, const char *suffix) {
  absorb(p);
  for (int i = 0; p->n > 1 && i < p->n; i++) /* what only one factor uses is summed there */
    if (summable(p, i, i)) sum_alone(p, i, "part");
  while (p->n > 1) {
    int i = 0, k = 1;
    cheapest(p, &i, &k);
    multiply_pair(p, i, k, p->n == 2 ? suffix : "part");
  }
  if (p->f[0].s & p->red) sum_alone(p, 0, suffix);
  return p->f[0].e;
}

/* ---- sums -------------------------------------------------------------------------------------------------------------- */

static Expr *sum_factors(Stmt *st, Product *p, const char *suffix) {
  if (is_one_nest(st, p)) return one_nest(st, join(st, p->f, p->n), p->red, suffix);
  if (is_sum_of_less(st, p)) {
    Expr *e = p->f[0].e, *x = sum_of(st, e->arg[0], p->red, suffix), *y = sum_of(st, e->arg[1], p->red, suffix);
    return ex_2(st->lw->a, e->op, x, y);
  }
  return contract(p, suffix);
}

/* An index that the body does not use counts its range. */
static Expr *times_range(Stmt *st, Expr *e, IndexSet unused) {
  Expr *n = ex_int(st->lw->a, e->dtype, range_product(st, unused));
  return unused ? ex_2(st->lw->a, EX_MUL, e, n) : e;
}

Expr *sum_of(Stmt *st, Expr *body, IndexSet red, const char *suffix) {
  Arena *a = st->lw->a;
  IndexSet unused = red & ~ex_set(st, body);
  Product p = {.st = st, .red = red & ~unused};
  split_product(&p, body);
  place_free(&p);
  Expr *sum = p.n ? sum_factors(st, &p, suffix) : NULL;
  Expr *e = mul(st, sum, p.times);
  if (p.negative) e = ex_1(a, EX_NEG, e);
  if (p.over) e = ex_2(a, EX_DIV, e, p.over);
  return times_range(st, e, unused);
}
