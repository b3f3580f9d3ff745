/* minsum.c: variables are eliminated one by one, the one that leaves the smallest table first: all factors (tables) that
   contain it are added up and minimised over it.

     chain a - b - c: min over a of f(a, b) is a table over b; min over b of that + g(b, c) one over c; then c, b, a
     are read off backwards.

   Exact, unless the smallest table would be too large. Then the one of its variables that has most choices loses the
   half that looks worst (by what each costs if all its neighbours choose as suits it), but never its present one. So the
   result is never worse, and the next round, which starts from it, may keep other choices; rounds end when one finds
   nothing better. What a round does before it drops anything is done once for all of them. Ties keep the present choice,
   else the first. */
#include "minsum.h"

enum { MAX_ROUNDS = 6, MAX_PRUNES = 4, MAX_SCOPE = 16, BUCKETS = 64 };
static const int64_t FAR_TOO_LARGE = (int64_t)1 << 50;

typedef struct {
  int n, var[MAX_SCOPE];
  double *cost; /* row-major in that order */
  bool dead;    /* absorbed into another factor */
} Factor;

typedef struct {
  const MinSum *p;
  Arena *arena; /* of the round */
  int64_t max_table;
  int share;          /* one in so many choices is kept where tables are too large */
  const bool *before; /* narrowed in the round before */
  bool *narrowed;
  bool *spared; /* the present choice was dominated: only because of it the variable has it still */
  int *size;    /* per variable: choices it has left */
  int **choice; /* which they are */
  int *now;     /* which of them is the present one */
  VEC(Factor) factor;
  VEC(int) * of;            /* per variable: its factors, dead ones too */
  VEC(int) * living;        /* and those that are not, as far as they were looked at */
  VEC(int) bucket[BUCKETS]; /* variables by the logarithm of their table's size; may be out of date */
  bool *done;
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
  for (int i = 0; i < f->n; i++) {
    vec_push(r->arena, r->of[f->var[i]], r->factor.n);
    vec_push(r->arena, r->living[f->var[i]], r->factor.n);
  }
  vec_push(r->arena, r->factor, *f);
}

/* The variables of v's factors, v itself left out, ascending, and how many choices they have together with v, no longer
   counted once they are FAR_TOO_LARGE; -1 if there are too many variables, or as soon as the choices are more than `most`. */
static int scope_of(Round *r, int v, int64_t most, int64_t *choices, int *scope) {
  int n = 0;
  *choices = r->size[v];
  for (int i = 0; i < r->living[v].n;) {
    const Factor *f = &r->factor.at[r->living[v].at[i]];
    if (f->dead) {
      r->living[v].at[i] = r->living[v].at[--r->living[v].n];
      continue;
    }
    i++;
    for (int k = 0; k < f->n; k++) {
      int u = f->var[k], at = n;
      while (at > 0 && scope[at - 1] > u) at--;
      if (u == v || (at > 0 && scope[at - 1] == u)) continue;
      if (n == MAX_SCOPE || *choices > most) return -1;
      memmove(scope + at + 1, scope + at, sizeof *scope * (size_t)(n - at));
      scope[at] = u;
      if (*choices <= FAR_TOO_LARGE) *choices *= r->size[u];
      n++;
    }
  }
  return n;
}

/* Entries of the sum of v's factors. */
static int64_t table_size(Round *r, int v) {
  int scope[MAX_SCOPE];
  int64_t choices;
  int n = scope_of(r, v, FAR_TOO_LARGE, &choices, scope);
  return n < 0 && choices <= FAR_TOO_LARGE ? INT64_MAX : choices;
}

/* The entry of f when the variables take the values `value` (by variable). */
static double entry(const Round *r, const Factor *f, const int *value) {
  int64_t at = 0;
  for (int i = 0; i < f->n; i++) at = at * r->size[f->var[i]] + value[f->var[i]];
  return f->cost[at];
}

static double own_cost(const Round *r, int v, int k) { return r->p->unary[v][r->choice[v][k]]; }

static double sum_of(const Round *r, int v, const int *value) {
  double sum = own_cost(r, v, value[v]);
  for (int i = 0; i < r->kept[v].n; i++) sum += entry(r, &r->factor.at[r->kept[v].at[i]], value);
  return sum;
}

/* Entries of f before and behind each entry of variable v in it. */
static void around(const Round *r, const Factor *f, int v, int64_t *outer, int64_t *inner) {
  *outer = *inner = 1;
  bool behind = false;
  for (int i = 0; i < f->n; i++) {
    if (f->var[i] == v)
      behind = true;
    else
      *(behind ? inner : outer) *= r->size[f->var[i]];
  }
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

/* The sum of a variable's factors while the others' choices are counted through, the outermost slowest: what is known with
   the first i of them is summed up once for all choices of the rest, and a choice of the variable that goes is left out
   from where it is impossible. */
typedef struct {
  const double *cost;
  int64_t at, own, step[MAX_SCOPE]; /* where it stands, how far a choice of the one that goes takes it, or of another */
} Cursor;

typedef struct {
  int n, var[MAX_SCOPE];        /* variables that stay and have a choice; the last one where none has */
  int64_t block[MAX_SCOPE + 1]; /* entries that have the choices of the first i in common */
  int size[MAX_SCOPE];
  Cursor *c; /* factors [first[i], first[i + 1]) are known with the first i */
  int first[MAX_SCOPE + 2];
  int *choice[MAX_SCOPE + 1]; /* those of the one that goes that are possible, and their sums, with the first i known */
  double *sum[MAX_SCOPE + 1];
  double *row, *out;
} Table;

/* f with variable u, if it is one of its own, innermost. */
static Factor innermost(const Round *r, const Factor *f, int u) {
  Factor out = {0};
  int64_t outer, inner, size = r->size[u];
  around(r, f, u, &outer, &inner);
  if (inner == 1) return *f;
  for (int i = 0; i < f->n; i++)
    if (f->var[i] != u) out.var[out.n++] = f->var[i];
  out.var[out.n++] = u;
  double *to = out.cost = NEW_ARRAY(r->arena, double, outer *inner *size);
  for (int64_t o = 0; o < outer; o++)
    for (int64_t i = 0; i < inner; i++)
      for (int64_t k = 0; k < size; k++) *to++ = f->cost[(o * size + k) * inner + i];
  return out;
}

/* Also how many of the variables that stay must be known to know the factor's entries. */
static Cursor cursor(const Round *r, const Factor *f, int v, const Table *t, int *known) {
  Cursor c = {.cost = f->cost};
  int64_t stride = 1;
  *known = 0;
  for (int i = f->n - 1; i >= 0; stride *= r->size[f->var[i--]]) {
    if (f->var[i] == v) c.own = stride;
    for (int k = 0; k < t->n; k++) {
      if (t->var[k] != f->var[i]) continue;
      c.step[k] = stride;
      if (k >= *known) *known = k + 1;
    }
  }
  return c;
}

static void place_cursors(Table *t, const Round *r, int v) {
  int nf = r->kept[v].n, n = 0, last = t->var[t->n - 1], *known = NEW_ARRAY(r->arena, int, nf + 1);
  Cursor *c = NEW_ARRAY(r->arena, Cursor, nf + 1);
  t->c = NEW_ARRAY(r->arena, Cursor, nf + 1);
  for (int i = 0; i < nf; i++) {
    Factor f = innermost(r, &r->factor.at[r->kept[v].at[i]], last);
    c[i] = cursor(r, &f, v, t, &known[i]);
  }
  for (int i = 0; i <= t->n; i++) {
    t->first[i] = n;
    for (int f = 0; f < nf; f++)
      if (known[f] == i) t->c[n++] = c[f];
  }
  t->first[t->n + 1] = n;
}

static void table_start(Table *t, const Round *r, int v, const Factor *out) {
  *t = (Table){.out = out->cost};
  for (int i = 0; i < out->n; i++)
    if (r->size[out->var[i]] > 1 || (i == out->n - 1 && t->n == 0)) t->var[t->n++] = out->var[i];
  place_cursors(t, r, v);
  t->block[t->n] = 1;
  for (int i = t->n - 1; i >= 0; i--) t->size[i] = r->size[t->var[i]], t->block[i] = t->block[i + 1] * t->size[i];
  t->row = NEW_ARRAY(r->arena, double, t->size[t->n - 1]);
  for (int i = 0; i <= t->n; i++) {
    t->choice[i] = NEW_ARRAY(r->arena, int, r->size[v]);
    t->sum[i] = NEW_ARRAY(r->arena, double, r->size[v]);
  }
}

/* Adds the factors that are known with the first i to the sums of n choices, from sums[i - 1]; how many are possible. */
static int add_known(Table *t, int i, int n, const int *choice, const double *sums) {
  const Cursor *c = t->c + t->first[i], *end = t->c + t->first[i + 1];
  int left = 0;
  for (int k = 0; k < n; k++) {
    double sum = sums[k];
    for (const Cursor *f = c; f < end; f++) sum += f->cost[f->at + choice[k] * f->own];
    if (sum >= IMPOSSIBLE) continue;
    t->choice[i][left] = choice[k];
    t->sum[i][left++] = sum;
  }
  return left;
}

static double lesser(double a, double b) { return b < a ? b : a; }

/* The entries of all choices of the innermost variable that stays, side by side, as they lie in the factors that have it. */
static void fill_row(Table *t, int n) {
  const Cursor *c = t->c + t->first[t->n], *end = t->c + t->first[t->n + 1] - 1;
  int size = t->size[t->n - 1];
  double *restrict out = t->out, *restrict row = t->row;
  for (int x = 0; x < size; x++) out[x] = IMPOSSIBLE;
  for (int k = 0; k < n; k++) {
    double known = t->sum[t->n - 1][k];
    int64_t choice = t->choice[t->n - 1][k];
    const double *restrict cost = end->cost + end->at + choice * end->own;
    if (end == c) { /* most have but one */
      for (int x = 0; x < size; x++) out[x] = lesser(out[x], known + cost[x]);
      continue;
    }
    for (int x = 0; x < size; x++) row[x] = known;
    for (const Cursor *f = c; f < end; f++) {
      const double *restrict more = f->cost + f->at + choice * f->own;
      for (int x = 0; x < size; x++) row[x] += more[x];
    }
    for (int x = 0; x < size; x++) out[x] = lesser(out[x], row[x] + cost[x]);
  }
  t->out += size;
}

/* The entries that have the first i choices in common, with which n choices of the variable that goes are possible. */
static void fill(Table *t, int i, int n) {
  for (int64_t k = 0; n == 0 && k < t->block[i]; k++) *t->out++ = IMPOSSIBLE;
  if (n == 0) return;
  if (i == t->n - 1) return fill_row(t, n);
  Cursor *c = t->c + t->first[i + 1], *end = t->c + t->first[t->n + 1];
  for (int x = 0; x < t->size[i]; x++) {
    fill(t, i + 1, add_known(t, i + 1, n, t->choice[i], t->sum[i]));
    for (Cursor *f = c; f < end; f++) f->at += f->step[i];
  }
  for (Cursor *f = c; f < end; f++) f->at -= t->size[i] * f->step[i];
}

/* Rows of the table are as long as can be. */
static void widest_last(const Round *r, Factor *f) {
  int *last = &f->var[f->n - 1], *widest = last;
  for (int i = f->n - 1; i >= 0; i--)
    if (r->size[f->var[i]] > r->size[*widest]) widest = &f->var[i];
  int u = *widest;
  memmove(widest, widest + 1, sizeof *widest * (size_t)(last - widest));
  *last = u;
}

/* min over v of the sum of its factors, as a factor of the others. */
static void eliminate(Round *r, int v) {
  Factor out = {0};
  int64_t choices;
  out.n = scope_of(r, v, INT64_MAX, &choices, out.var);
  keep_factors(r, v);
  if (out.n == 0) return;
  widest_last(r, &out);
  out.cost = NEW_ARRAY(r->arena, double, choices / r->size[v]);
  int *all = NEW_ARRAY(r->arena, int, r->size[v]);
  double *own = NEW_ARRAY(r->arena, double, r->size[v]);
  for (int k = 0; k < r->size[v]; k++) all[k] = k, own[k] = own_cost(r, v, k);
  Table t;
  table_start(&t, r, v, &out);
  fill(&t, 0, add_known(&t, 0, r->size[v], all, own));
  add_factor(r, &out);
  for (int i = 0; i < out.n; i++) enqueue(r, out.var[i]);
}

/* ---- dropping choices ---------------------------------------------------------------------------------------- */

static void keep_entries(Round *r, Factor *f, int v, int n, const int *keep) {
  int64_t outer, inner;
  around(r, f, v, &outer, &inner);
  double *cost = NEW_ARRAY(r->arena, double, outer *inner *n);
  for (int64_t o = 0; o < outer; o++)
    for (int k = 0; k < n; k++)
      memcpy(cost + (o * n + k) * inner, f->cost + (o * r->size[v] + keep[k]) * inner, sizeof *cost * (size_t)inner);
  f->cost = cost;
}

/* keep: the choices that v keeps, ascending, the present one among them. */
static void keep_choices(Round *r, int v, int n, const int *keep) {
  for (int i = 0; i < r->of[v].n; i++) keep_entries(r, &r->factor.at[r->of[v].at[i]], v, n, keep);
  int now = r->now[v];
  for (int k = 0; k < n; k++) {
    if (keep[k] == now) r->now[v] = k;
    r->choice[v][k] = r->choice[v][keep[k]];
  }
  r->size[v] = n;
}

/* ---- choices that cannot be best --------------------------------------------------------------------------- */

/* How much less choice j of v costs than choice i, at least, whatever f's other variable chooses. */
static double least_gain(const Round *r, const Factor *f, int v, int i, int j) {
  int other = f->var[f->var[0] == v], own = f->var[0] == v;
  int64_t step = own ? 1 : r->size[v], row = own ? r->size[other] : 1;
  const double *a = f->cost + i * row, *b = f->cost + j * row;
  double least = a[0] - b[0];
  for (int k = 1; k < r->size[other]; k++) {
    double gain = a[k * step] - b[k * step];
    least = gain < least ? gain : least;
  }
  return least;
}

/* How much less j costs than i while the others choose as at present: no less than what it costs less whatever they do. */
static double present_gain(const Round *r, int v, int i, int j) {
  double gain = own_cost(r, v, i) - own_cost(r, v, j);
  for (int e = 0; e < r->of[v].n; e++) {
    const Factor *f = &r->factor.at[r->of[v].at[e]];
    bool first = f->var[0] == v;
    int now = r->now[f->var[first]];
    int64_t step = first ? 1 : r->size[v], row = first ? r->size[f->var[1]] : 1;
    gain += f->cost[i * row + now * step] - f->cost[j * row + now * step];
  }
  return gain;
}

/* Is choice j of v never worse than i? */
static bool dominated(const Round *r, int v, int i, int j) {
  if (present_gain(r, v, i, j) < 0) return false;
  double gain = own_cost(r, v, i) - own_cost(r, v, j);
  for (int e = 0; e < r->of[v].n; e++) gain += least_gain(r, &r->factor.at[r->of[v].at[e]], v, i, j);
  return gain >= 0;
}

/* Drops choices that another one is never worse than (Goldstein's criterion of dead ends); whether there were any. */
static bool drop_dominated(Round *r, int v) {
  int size = r->size[v], n = 0, *keep = NEW_ARRAY(r->arena, int, size);
  bool *gone = NEW_ARRAY(r->arena, bool, size);
  for (int i = 0; i < size; i++) {
    for (int j = 0; j < size && !gone[i]; j++) gone[i] = j != i && !gone[j] && dominated(r, v, i, j);
    if (i == r->now[v] && gone[i]) gone[i] = false, r->spared[v] = true;
  }
  for (int i = 0; i < size; i++)
    if (!gone[i]) keep[n++] = i;
  if (n < size) keep_choices(r, v, n, keep);
  return n < size;
}

static void prune(Round *r) {
  bool *again = NEW_ARRAY(r->arena, bool, r->p->n + 1);
  memset(again, true, sizeof *again * (size_t)r->p->n);
  for (int pass = 0, any = 1; any && pass < MAX_PRUNES; pass++) {
    any = 0;
    for (int v = 0; v < r->p->n; v++) {
      if (!again[v]) continue;
      again[v] = false;
      if (r->size[v] < 2 || !drop_dominated(r, v)) continue;
      any = 1;
      for (int e = 0; e < r->of[v].n; e++) {
        const Factor *f = &r->factor.at[r->of[v].at[e]];
        again[f->var[0]] = again[f->var[1]] = true;
      }
    }
  }
}

/* ---- when tables are too large ----------------------------------------------------------------------------- */

/* Adds to bound[k] the least that f can cost when v takes its choice k. */
static void add_least(const Round *r, const Factor *f, int v, double *bound) {
  int64_t outer, inner;
  around(r, f, v, &outer, &inner);
  for (int k = 0; k < r->size[v]; k++) {
    double least = 1e300;
    for (int64_t o = 0; o < outer; o++)
      for (int64_t i = 0; i < inner; i++) {
        double c = f->cost[(o * r->size[v] + k) * inner + i];
        least = c < least ? c : least;
      }
    bound[k] += least;
  }
}

/* v keeps the better part of its choices, and the present one. */
static void narrow(Round *r, int v) {
  int size = r->size[v], n = 0, left = max_i64(1, size / r->share), *keep = NEW_ARRAY(r->arena, int, size);
  double *bound = NEW_ARRAY(r->arena, double, size);
  for (int k = 0; k < size; k++) bound[k] = k == r->now[v] ? -1e300 : own_cost(r, v, k);
  for (int i = 0; i < r->of[v].n; i++)
    if (!r->factor.at[r->of[v].at[i]].dead) add_least(r, &r->factor.at[r->of[v].at[i]], v, bound);
  for (int k = 0; k < size && n < left; k++) {
    int better = 0;
    for (int i = 0; i < size; i++) better += bound[i] < bound[k] || (bound[i] == bound[k] && i < k);
    if (better < left) keep[n++] = k;
  }
  keep_choices(r, v, n, keep);
  r->narrowed[v] = true;
}

/* The variable with the smallest table; -1 when none is left. */
static int smallest(Round *r) {
  for (int b = 0; b < BUCKETS; b++)
    while (r->bucket[b].n > 0) {
      int v = r->bucket[b].at[r->bucket[b].n - 1];
      int64_t size = r->done[v] ? 0 : table_size(r, v);
      bool here = size >> b > 0 && (b == BUCKETS - 1 || size >> (b + 1) == 0);
      if (!r->done[v] && here) return v;
      r->bucket[b].n--; /* out of date */
      if (!r->done[v] && !here) enqueue(r, v);
      if (!r->done[v] && !here && size >> b == 0) return smallest(r); /* it has become smaller */
    }
  return -1;
}

/* A variable with one choice left is decided: its factors lose it. */
static void drop(Round *r, int v) {
  r->done[v] = true;
  for (int i = 0; i < r->of[v].n; i++) {
    Factor *f = &r->factor.at[r->of[v].at[i]];
    if (f->dead) continue;
    int n = 0;
    for (int k = 0; k < f->n; k++)
      if (f->var[k] != v) f->var[n++] = f->var[k];
    f->n = n;
  }
}

/* Of all that share a factor with v, the one with most choices. */
static int widest_neighbour(const Round *r, int v) {
  int best = v;
  for (int i = 0; i < r->of[v].n; i++) {
    const Factor *f = &r->factor.at[r->of[v].at[i]];
    for (int k = 0; !f->dead && k < f->n; k++)
      if (r->size[f->var[k]] > r->size[best]) best = f->var[k];
  }
  return best;
}

/* Rather one with many choices, and none that was narrowed in the round before. */
static int weight(const Round *r, int v) { return r->size[v] < 2 ? 0 : r->size[v] + (r->before && r->before[v] ? 0 : 1000); }

/* Makes v's table small enough. */
static void make_room(Round *r, int v) {
  int scope[MAX_SCOPE + 1];
  while (table_size(r, v) > r->max_table) {
    int64_t choices;
    int n = scope_of(r, v, INT64_MAX, &choices, scope), widest = v;
    for (int i = 0; i < n; i++)
      if (weight(r, scope[i]) > weight(r, widest)) widest = scope[i];
    if (n < 0) widest = widest_neighbour(r, v);
    narrow(r, widest);
    if (r->size[widest] == 1) drop(r, widest);
  }
}

static void start(Round *r, const int *x) {
  int n = r->p->n;
  r->of = arena_alloc(r->arena, sizeof *r->of * (size_t)(n + 1));
  r->living = arena_alloc(r->arena, sizeof *r->living * (size_t)(n + 1));
  r->kept = arena_alloc(r->arena, sizeof *r->kept * (size_t)(n + 1));
  r->done = NEW_ARRAY(r->arena, bool, n + 1);
  r->spared = NEW_ARRAY(r->arena, bool, n + 1);
  r->size = NEW_ARRAY(r->arena, int, n + 1);
  r->now = NEW_ARRAY(r->arena, int, n + 1);
  r->choice = NEW_ARRAY(r->arena, int *, n + 1);
  for (int v = 0; v < n; v++) {
    r->size[v] = r->p->size[v];
    r->now[v] = x[v];
    r->choice[v] = NEW_ARRAY(r->arena, int, r->size[v]);
    for (int k = 0; k < r->size[v]; k++) r->choice[v][k] = k;
  }
  for (int e = 0; e < r->p->edge.n; e++) {
    const MinSumEdge *g = &r->p->edge.at[e];
    assert(g->a < g->b && "edges name their variables in order");
    add_factor(r, &(Factor){2, {g->a, g->b}, g->cost, false});
  }
  prune(r);
  for (int v = n - 1; v >= 0; v--) enqueue(r, v);
}

/* Against their order of elimination all others of its factors are known. */
static void read_off(Round *r, int *x) {
  int *value = NEW_ARRAY(r->arena, int, r->p->n + 1);
  memcpy(value, r->now, sizeof *value * (size_t)r->p->n);
  for (int i = r->order.n - 1; i >= 0; i--) {
    int v = r->order.at[i], best = r->now[v];
    value[v] = best;
    double least = sum_of(r, v, value);
    for (int k = 0; k < r->size[v]; k++) {
      value[v] = k;
      double c = sum_of(r, v, value);
      if (c < least) least = c, best = k;
    }
    value[v] = best;
  }
  for (int v = 0; v < r->p->n; v++) x[v] = r->choice[v][value[v]];
}

/* ---- rounds ------------------------------------------------------------------------------------------------- */

/* What all rounds from x begin with: the variables whose tables are small enough are eliminated. Whether that is all. */
static bool begin(Round *r, const int *x) {
  start(r, x);
  int v = smallest(r);
  for (; v >= 0 && table_size(r, v) <= r->max_table; v = smallest(r)) eliminate(r, v);
  return v < 0;
}

/* Would begin(x) do what it did for the present choices? */
static bool begins_alike(const Round *r, const int *x) {
  for (int v = 0; v < r->p->n; v++)
    if (r->spared[v] && r->choice[v][r->now[v]] != x[v]) return false;
  return true;
}

static void *copied(Arena *a, const void *from, size_t size, int n) {
  void *to = arena_alloc(a, size_mul(size, (size_t)n + 1));
  if (n) memcpy(to, from, size * (size_t)n);
  return to;
}

#define COPY(at, n) ((at) = copied(r.arena, (at), sizeof *(at), (n)))
#define COPY_VEC(v) (COPY((v).at, (v).n), (v).cap = (v).n)

/* The round as begun, with x for the present choices. Tables stay where they are: nobody writes into them. */
static Round resume(const Round *begun, Arena *arena, const int *x) {
  Round r = *begun;
  int n = r.p->n;
  r.arena = arena;
  COPY(r.size, n), COPY(r.choice, n), COPY(r.done, n), COPY(r.now, n);
  COPY(r.of, n), COPY(r.living, n), COPY(r.kept, n);
  COPY_VEC(r.factor);
  COPY_VEC(r.order);
  for (int b = 0; b < BUCKETS; b++) COPY_VEC(r.bucket[b]);
  for (int v = 0; v < n; v++) {
    COPY_VEC(r.of[v]);
    COPY_VEC(r.living[v]);
    COPY(r.choice[v], r.size[v]);
    for (int k = 0; k < r.size[v]; k++)
      if (r.choice[v][k] == x[v]) r.now[v] = k;
    assert(r.choice[v][r.now[v]] == x[v] && "a round's result is among the choices that it began with");
  }
  return r;
}

static void finish(Round *r) {
  for (int v; (v = smallest(r)) >= 0; eliminate(r, v))
    if (table_size(r, v) > r->max_table) make_room(r, v);
}

double minsum_improve(const MinSum *p, int *x, int64_t max_table, bool hold, bool *exact) {
  static const int SHARE[] = {1 << 20, 2, 1 << 20, 4};
  Arena *outer = arena_new(), *shared = NULL;
  Round begun = {0};
  double cost = minsum_cost(p, x);
  int since = 0;
  bool solved = false;
  for (int i = 0; i < MAX_ROUNDS && since < 2 && !solved; i++) {
    if (!shared || !begins_alike(&begun, x)) {
      if (shared) arena_free(shared);
      shared = arena_new();
      begun = (Round){.p = p, .arena = shared, .max_table = max_table, .before = begun.before};
      solved = begin(&begun, x);
      *exact = solved && i == 0;
    }
    Arena *arena = arena_new();
    Round r = solved ? begun : resume(&begun, arena, x);
    r.share = SHARE[(i + !hold) % 4];
    r.narrowed = NEW_ARRAY(outer, bool, p->n + 1);
    int *out = NEW_ARRAY(arena, int, p->n + 1);
    finish(&r);
    read_off(&r, out);
    double now = minsum_cost(p, out);
    since = now < cost ? 0 : since + 1;
    if (now < cost) memcpy(x, out, sizeof *x * (size_t)p->n), cost = now;
    begun.before = r.narrowed;
    arena_free(arena);
  }
  arena_free(shared);
  arena_free(outer);
  return cost;
}
