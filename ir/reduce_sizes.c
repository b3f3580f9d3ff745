/* reduce_sizes.c: groups of sizes that shrink together, each by as much as all of its members bear.

     T = 128, dealt out over 4 ranks, and a dim of 2 T + 3 = 259, dealt out over 2 in chunks of 130 and 129:
     T may become 8 and the other dim 19, where chunks are 10 and 9

   What is kept: how many ranks have a whole chunk, a short one, none, and what the short one lacks; two elements at
   least. On a smaller mesh there are fewer whole ones. */
#include "reduce.h"

enum { TRIES = 50000 };

/* ---- ratios ---- */

static int64_t gcd(int64_t a, int64_t b) {
  while (b) {
    int64_t t = a % b;
    a = b, b = t;
  }
  return a;
}

static bool lowest(int64_t num, int64_t den, Ratio *out) {
  int64_t g = gcd(num, den);
  *out = (Ratio){num / g, den / g};
  return out->num <= INT32_MAX && out->den <= INT32_MAX;
}

bool ratio_times(Ratio x, Ratio y, Ratio *out) { return lowest(x.num * y.num, x.den * y.den, out); }
bool ratio_plus(Ratio x, Ratio y, Ratio *out) {
  int64_t a = x.num * y.den, b = y.num * x.den, sum;
  return checked_add(a, b, &sum) && lowest(sum, x.den * y.den, out);
}

/* ---- groups ---- */

int size_new(Sizes *s, int64_t n) {
  int at = s->sizes.n;
  vec_push(s->arena, s->sizes, ((Size){.n = n, .low = min_i64(n, s->least), .step = 1, .parent = at, .ratio = {1, 1}}));
  return at;
}

int size_root(Sizes *s, int x, Ratio *to) {
  Ratio r = {1, 1};
  int root = x;
  for (; s->sizes.at[root].parent != root; root = s->sizes.at[root].parent)
    if (!ratio_times(r, s->sizes.at[root].ratio, &r)) s->sizes.at[x].fixed = true;
  while (s->sizes.at[x].parent != root && x != root) { /* halve the paths; ratios are exact, so this changes nothing */
    Size *at = &s->sizes.at[x], *up = &s->sizes.at[at->parent];
    if (up->parent == at->parent || !ratio_times(at->ratio, up->ratio, &at->ratio)) break;
    at->parent = up->parent;
    x = at->parent;
  }
  if (to) *to = r;
  return root;
}

void size_fix(Sizes *s, int x) { s->sizes.at[size_root(s, x, NULL)].fixed = true; }

void size_link(Sizes *s, int x, int y, Ratio r) {
  Ratio rx, ry, all;
  int a = size_root(s, x, &rx), b = size_root(s, y, &ry);
  bool small = ratio_times(r, ry, &all) && ratio_times(all, (Ratio){rx.den, rx.num}, &all); /* shrink(a) = all * shrink(b) */
  if (a == b) {
    if (!small || all.num != all.den) s->sizes.at[a].fixed = true;
    return;
  }
  if (!small) {
    s->sizes.at[a].fixed = s->sizes.at[b].fixed = true;
    return;
  }
  s->sizes.at[a].parent = b;
  s->sizes.at[a].ratio = all;
  s->sizes.at[b].fixed |= s->sizes.at[a].fixed;
}

void size_least(Sizes *s, int x, int64_t low) {
  Size *at = &s->sizes.at[x];
  at->low = max_i64(at->low, min_i64(low, at->n));
}

void size_step(Sizes *s, int x, int64_t step) {
  int64_t g = gcd(s->sizes.at[x].step, step);
  if (!checked_mul(s->sizes.at[x].step / g, step, &s->sizes.at[x].step)) size_fix(s, x);
}

/* ---- patterns ---- */

static int64_t digits_count(const Sizes *s, const Split *split) {
  int64_t k = 1;
  for (int i = 0; i < split->n; i++) {
    AxisPart p = split->part[i];
    const Digits *d = &s->axis[p.axis];
    int64_t at = 1;
    for (int j = 0; j < d->n; at *= d->was[j++])
      if (at >= p.pre && at < p.pre * p.size) k *= d->now[j];
  }
  return k;
}

typedef struct {
  int64_t chunk, used, last; /* elements of a whole chunk, ranks that have any, elements of the last of those */
} Deal;

static Deal deal(int64_t n, int64_t k, int64_t granule) {
  int64_t g = max_i64(granule, 1), chunk = min_i64(n, ceil_div(ceil_div(n, g), k) * g);
  if (chunk == 0) return (Deal){0};
  int64_t used = ceil_div(n, chunk);
  return (Deal){chunk, used, n - (used - 1) * chunk};
}

static int64_t towards(int64_t x, int64_t chunk) { return chunk ? floor_div(x, chunk) : 0; }

/* How the n elements that are left are dealt out over `now` ranks: as many whole, short and empty chunks as before, the
   short one lacking as much. A granule that is a whole chunk is what keeps chunks of two dims in step; it shrinks with
   them. On a smaller mesh without one: as they come, but a short and an empty one where there were such. */
static Deal target(const Split *split, int64_t was_n, int64_t was, int64_t n, int64_t now) {
  Deal x = deal(was_n, was, split->granule);
  if (x.chunk == 0) return x;
  if (was != now && split->granule <= 1) {
    Deal y = deal(n, now, 1);
    bool same = (x.last < x.chunk) == (y.last < y.chunk) && (x.used < was) == (y.used < now) && y.used >= min_i64(2, x.used);
    return same ? y : (Deal){0};
  }
  int64_t used = was == now ? x.used : x.used == was ? now : min_i64(x.used, now - 1), lacks = x.chunk - x.last;
  if (used == 0 || (n + lacks) % used) return (Deal){0};
  int64_t chunk = (n + lacks) / used;
  return (Deal){chunk, used, chunk - lacks};
}

static bool one_unit(const Split *split, int64_t n) {
  return split->granule > 1 && deal(n, split_count(split), split->granule).chunk == split->granule;
}

int64_t size_granule(const Sizes *s, const Split *split, int64_t was_n, int64_t n) {
  if (split->n == 0 || !one_unit(split, was_n)) return split->granule;
  return target(split, was_n, split_count(split), n, digits_count(s, split)).chunk;
}

static bool reaches_alike(const Window *w, int64_t was, int64_t now) { /* as many neighbours */
  int64_t mul = w->mul < 0 ? -w->mul : w->mul;
  return !w->of || w->div != 1 ||
         (towards(w->lo, was * mul) == towards(w->lo, now * mul) && towards(w->hi, was * mul) == towards(w->hi, now * mul));
}

/* Is n dealt out over now ranks as was_n was over was ranks? */
static bool alike(const Split *split, int64_t was_n, int64_t was, int64_t n, int64_t now) {
  if (was_n == 0) return n == 0;
  Deal x = deal(was_n, was, split->granule), y = target(split, was_n, was, n, now);
  if (y.chunk < min_i64(x.chunk, 2) || y.last < min_i64(x.last, 2)) return false;
  bool unit = one_unit(split, was_n);
  if (!unit && split->granule > 1 && (x.chunk - y.chunk) % split->granule) return false;
  Deal z = deal(n, now, unit ? y.chunk : split->granule);
  return z.chunk == y.chunk && z.used == y.used && reaches_alike(&split->window, x.chunk, y.chunk);
}

/* ---- solving ---- */

typedef struct {
  int64_t n, low, step;
  Ratio ratio;
  const Split *split; /* or NULL */
} Member;

typedef struct {
  VEC(Member) members; /* no two the same */
} Group;

static bool same_member(const Member *x, const Member *y) {
  bool same =
      x->n == y->n && x->low == y->low && x->step == y->step && x->ratio.num == y->ratio.num && x->ratio.den == y->ratio.den;
  if (!same || !x->split != !y->split) return false;
  return !x->split || (split_equal(x->split, y->split) && !memcmp(&x->split->window, &y->split->window, sizeof(Window)));
}

static void add_member(Sizes *s, Group *groups, int size, const Split *split) {
  Ratio r;
  int root = size_root(s, size, &r);
  const Size *at = &s->sizes.at[size];
  if (at->fixed) s->sizes.at[root].fixed = true;
  Member m = {at->n, at->low, at->step, r, split};
  Group *g = &groups[root];
  for (int i = 0; i < g->members.n; i++)
    if (same_member(&g->members.at[i], &m)) return;
  vec_push(s->arena, g->members, m);
}

static bool bears(const Sizes *s, const Member *m, int64_t shrink) {
  int64_t by;
  if (!checked_mul(shrink, m->ratio.num, &by) || by % m->ratio.den) return false;
  by /= m->ratio.den;
  if (by % m->step || m->n - by < m->low) return false;
  return !m->split || alike(m->split, m->n, split_count(m->split), m->n - by, digits_count(s, m->split));
}

/* The largest shrink of the root that all members bear; -1: not even none. */
static int64_t most(const Sizes *s, const Group *g, bool fixed) {
  int64_t top = fixed ? 0 : INT64_MAX, step = 1;
  for (int i = 0; i < g->members.n; i++) {
    const Member *m = &g->members.at[i];
    int64_t room = max_i64(0, m->n - m->low), scaled;
    top = min_i64(top, checked_mul(room, m->ratio.den, &scaled) ? scaled / m->ratio.num : INT64_MAX);
    int64_t need = m->ratio.den / gcd(m->ratio.num, m->ratio.den), longer; /* so that the member shrinks by a whole number */
    if (checked_mul(step / gcd(step, need), need, &longer)) step = longer;
  }
  top -= top % step;
  for (int tries = 0; top > 0 && tries < TRIES; tries++, top -= step) {
    bool ok = true;
    for (int i = 0; ok && i < g->members.n; i++) ok = bears(s, &g->members.at[i], top);
    if (ok) return top;
  }
  for (int i = 0; i < g->members.n; i++)
    if (!bears(s, &g->members.at[i], 0)) return -1;
  return 0;
}

int sizes_solve(Sizes *s) {
  Group *groups = NEW_ARRAY(s->arena, Group, s->sizes.n);
  int failed = -1;
  for (int i = 0; i < s->sizes.n; i++) add_member(s, groups, i, NULL);
  for (int i = 0; i < s->dealt.n; i++) add_member(s, groups, s->dealt.at[i].size, s->dealt.at[i].split);
  for (int i = 0; i < s->sizes.n; i++) {
    if (s->sizes.at[i].parent != i) continue;
    s->sizes.at[i].shrink = most(s, &groups[i], s->sizes.at[i].fixed);
    if (s->sizes.at[i].shrink < 0 && failed < 0) failed = i;
  }
  for (int i = 0; i < s->sizes.n && failed < 0; i++) {
    Ratio r;
    int root = size_root(s, i, &r);
    if (root != i) s->sizes.at[i].shrink = s->sizes.at[root].shrink * r.num / r.den;
  }
  return failed;
}
