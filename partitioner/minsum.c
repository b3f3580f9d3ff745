/* minsum.c: variables are eliminated one by one, the one that leaves the smallest table first: all factors (tables) that
   contain it are added up and minimised over it.

     chain a - b - c: min over a of f(a, b) is a table over b; min over b of that + g(b, c) one over c; then c, b, a
     are read off backwards.

   Exact, unless the smallest table would be too large. Then the variable that most others depend on is held at what it
   is (which makes its factors smaller), and the rest is solved; the next round holds others. So no round makes it worse,
   and rounds end when one does not make it better. Ties keep the present choice, else the first. */
#include "minsum.h"

enum { MAX_ROUNDS = 6, MAX_SCOPE = 16, BUCKETS = 64 };

typedef struct {
  int n, var[MAX_SCOPE]; /* ascending */
  double *cost;          /* row-major in that order */
  bool dead;             /* absorbed into another factor */
} Factor;

typedef struct {
  const MinSum *p;
  Arena *arena; /* of the round */
  int *x;
  int64_t max_table;
  VEC(Factor) factor;
  VEC(int) * of;            /* per variable: its factors, dead ones too */
  VEC(int) bucket[BUCKETS]; /* variables by the logarithm of their table's size; may be out of date */
  bool *done;
  const bool *was_held; /* in the round before */
  bool *held;
  VEC(int) order;  /* of elimination */
  VEC(int) * kept; /* per eliminated variable: the factors it was read off */
} Round;

double minsum_cost(const MinSum *p, const int *x) {
  double sum = 0;
  for (int v = 0; v < p->n; v++) sum += p->unary[v][x[v]];
  for (int e = 0; e < p->edge.n; e++) {
    const MinSumEdge *g = &p->edge.at[e];
    sum += g->cost[x[g->a] * p->size[g->b] + x[g->b]];
  }
  return sum;
}

/* ---- factors ------------------------------------------------------------------------------------------- */

static void add_factor(Round *r, const Factor *f) {
  for (int i = 0; i < f->n; i++) vec_push(r->arena, r->of[f->var[i]], r->factor.n);
  vec_push(r->arena, r->factor, *f);
}

/* The variables of v's factors, v itself left out, ascending; -1 if there are too many. */
static int scope_of(const Round *r, int v, int *scope) {
  int n = 0;
  for (int i = 0; i < r->of[v].n; i++) {
    const Factor *f = &r->factor.at[r->of[v].at[i]];
    for (int k = 0; !f->dead && k < f->n; k++) {
      int u = f->var[k], at = 0;
      while (at < n && scope[at] < u) at++;
      if (u == v || (at < n && scope[at] == u)) continue;
      if (n == MAX_SCOPE) return -1;
      memmove(scope + at + 1, scope + at, sizeof *scope * (size_t)(n - at));
      scope[at] = u;
      n++;
    }
  }
  return n;
}

/* Entries of the sum of v's factors. */
static int64_t table_size(const Round *r, int v) {
  int scope[MAX_SCOPE], n = scope_of(r, v, scope);
  int64_t size = r->p->size[v];
  for (int i = 0; i < n && size <= r->max_table; i++) size *= r->p->size[scope[i]];
  return n < 0 ? INT64_MAX : size;
}

/* The entry of f when the variables take the values `value` (by variable). */
static double entry(const Round *r, const Factor *f, const int *value) {
  int64_t at = 0;
  for (int i = 0; i < f->n; i++) at = at * r->p->size[f->var[i]] + value[f->var[i]];
  return f->cost[at];
}

static double sum_of(const Round *r, int v, const int *value) {
  double sum = r->p->unary[v][value[v]];
  for (int i = 0; i < r->kept[v].n; i++) sum += entry(r, &r->factor.at[r->kept[v].at[i]], value);
  return sum;
}

/* ---- elimination ----------------------------------------------------------------------------------------- */

static void enqueue(Round *r, int v) {
  int64_t size = table_size(r, v);
  int b = 0;
  while (b < BUCKETS - 1 && size >> (b + 1)) b++;
  vec_push(r->arena, r->bucket[b], v);
}

static void keep_factors(Round *r, int v) {
  for (int i = 0; i < r->of[v].n; i++) {
    Factor *f = &r->factor.at[r->of[v].at[i]];
    if (f->dead) continue;
    f->dead = true;
    vec_push(r->arena, r->kept[v], r->of[v].at[i]);
  }
  vec_push(r->arena, r->order, v);
  r->done[v] = true;
}

/* A factor while the others' values are counted through: where it stands, and how far a step of each takes it. */
typedef struct {
  const double *cost;
  int64_t at, own, step[MAX_SCOPE]; /* own: of the variable that is minimised over */
} Cursor;

static Cursor cursor(const Round *r, const Factor *f, int v, const Factor *out) {
  Cursor c = {.cost = f->cost};
  int64_t stride = 1;
  for (int i = f->n - 1; i >= 0; stride *= r->p->size[f->var[i--]]) {
    if (f->var[i] == v) c.own = stride;
    for (int k = 0; k < out->n; k++)
      if (out->var[k] == f->var[i]) c.step[k] = stride;
  }
  return c;
}

/* min over v of the sum of its factors, as a factor of the others. */
static void eliminate(Round *r, int v) {
  Factor out = {0};
  out.n = scope_of(r, v, out.var);
  keep_factors(r, v);
  if (out.n == 0) return;
  const int *size = r->p->size;
  int nf = r->kept[v].n, count[MAX_SCOPE] = {0};
  int64_t entries = 1;
  for (int i = 0; i < out.n; i++) entries *= size[out.var[i]];
  Cursor *c = NEW_ARRAY(r->arena, Cursor, nf + 1);
  for (int f = 0; f < nf; f++) c[f] = cursor(r, &r->factor.at[r->kept[v].at[f]], v, &out);
  double *sum = NEW_ARRAY(r->arena, double, size[v]);
  out.cost = NEW_ARRAY(r->arena, double, entries);
  for (int64_t at = 0; at < entries; at++) {
    memcpy(sum, r->p->unary[v], sizeof *sum * (size_t)size[v]);
    for (int f = 0; f < nf; f++)
      for (int k = 0; k < size[v]; k++) sum[k] += c[f].cost[c[f].at + k * c[f].own];
    double best = sum[0];
    for (int k = 1; k < size[v]; k++) best = sum[k] < best ? sum[k] : best;
    out.cost[at] = best;
    int i = out.n - 1;
    for (; i >= 0 && ++count[i] == size[out.var[i]]; i--) {
      count[i] = 0;
      for (int f = 0; f < nf; f++) c[f].at -= (size[out.var[i]] - 1) * c[f].step[i];
    }
    for (int f = 0; i >= 0 && f < nf; f++) c[f].at += c[f].step[i];
  }
  add_factor(r, &out);
  for (int i = 0; i < out.n; i++) enqueue(r, out.var[i]);
}

/* v stays what it is: its factors lose it. */
static void hold(Round *r, int v) {
  r->done[v] = r->held[v] = true;
  for (int i = 0, n = r->of[v].n; i < n; i++) {
    Factor *f = &r->factor.at[r->of[v].at[i]];
    if (f->dead) continue;
    f->dead = true;
    Factor out = {0};
    int64_t inner = 1, outer = 1;
    for (int k = 0, behind = 0; k < f->n; k++) {
      if (f->var[k] == v)
        behind = 1;
      else
        out.var[out.n++] = f->var[k], *(behind ? &inner : &outer) *= r->p->size[f->var[k]];
    }
    if (out.n == 0) continue;
    out.cost = NEW_ARRAY(r->arena, double, inner *outer);
    for (int64_t o = 0; o < outer; o++)
      memcpy(out.cost + o * inner, f->cost + (o * r->p->size[v] + r->x[v]) * inner, sizeof(double) * (size_t)inner);
    add_factor(r, &out);
    for (int k = 0; k < out.n; k++) enqueue(r, out.var[k]);
  }
}

/* The variable with most neighbours, rather one that was not held before. */
static int most_bound(const Round *r) {
  int best = -1, most = -1, scope[MAX_SCOPE];
  for (int v = 0; v < r->p->n; v++) {
    if (r->done[v]) continue;
    int n = scope_of(r, v, scope), weight = n < 0 ? MAX_SCOPE + 1 : n;
    if (r->was_held && r->was_held[v]) weight -= 2 * MAX_SCOPE;
    if (best < 0 || weight > most) best = v, most = weight;
  }
  return best;
}

/* The variable with the smallest table, or -1 when all that are left are too large. */
static int smallest(Round *r) {
  for (int b = 0; b < BUCKETS; b++)
    while (r->bucket[b].n > 0) {
      int v = r->bucket[b].at[r->bucket[b].n - 1];
      int64_t size = r->done[v] ? 0 : table_size(r, v);
      if (r->done[v] || size >> b == 0 || (b < BUCKETS - 1 && size >> (b + 1))) {
        r->bucket[b].n--; /* out of date: it is queued where it belongs as well */
        continue;
      }
      return size <= r->max_table ? v : -1;
    }
  return -1;
}

static void start(Round *r) {
  int n = r->p->n;
  r->of = arena_alloc(r->arena, sizeof *r->of * (size_t)(n + 1));
  r->kept = arena_alloc(r->arena, sizeof *r->kept * (size_t)(n + 1));
  r->done = NEW_ARRAY(r->arena, bool, n + 1);
  for (int e = 0; e < r->p->edge.n; e++) {
    const MinSumEdge *g = &r->p->edge.at[e];
    assert(g->a < g->b && "edges name their variables in order");
    add_factor(r, &(Factor){2, {g->a, g->b}, g->cost, false});
  }
  for (int v = n - 1; v >= 0; v--) enqueue(r, v);
}

/* Against their order of elimination all others of its factors are known. */
static void read_off(Round *r, int *value) {
  for (int v = 0; v < r->p->n; v++) value[v] = r->x[v];
  for (int i = r->order.n - 1; i >= 0; i--) {
    int v = r->order.at[i], best = r->x[v];
    value[v] = best;
    double least = sum_of(r, v, value);
    for (int k = 0; k < r->p->size[v]; k++) {
      value[v] = k;
      double c = sum_of(r, v, value);
      if (c < least) least = c, best = k;
    }
    value[v] = best;
  }
}

/* One round; returns whether some variables had to be held. */
static bool solve(Round *r, int *value) {
  start(r);
  bool any = false;
  for (;;) {
    int v = smallest(r);
    if (v >= 0) {
      eliminate(r, v);
      continue;
    }
    v = most_bound(r);
    if (v < 0) break;
    hold(r, v);
    any = true;
  }
  read_off(r, value);
  return any;
}

double minsum_improve(const MinSum *p, int *x, int64_t max_table) {
  Arena *outer = arena_new();
  double cost = minsum_cost(p, x);
  bool *held = NULL;
  for (int i = 0; i < MAX_ROUNDS; i++) {
    Arena *arena = arena_new();
    Round r = {.p = p, .arena = arena, .x = x, .max_table = max_table, .was_held = held};
    r.held = NEW_ARRAY(outer, bool, p->n + 1);
    int *value = NEW_ARRAY(arena, int, p->n + 1);
    bool again = solve(&r, value);
    double now = minsum_cost(p, value);
    bool better = now < cost;
    if (better) memcpy(x, value, sizeof *x * (size_t)p->n), cost = now;
    held = r.held;
    arena_free(arena);
    if (!again || (!better && i > 1)) break;
  }
  arena_free(outer);
  return cost;
}
