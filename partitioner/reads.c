/* reads.c: what a rank needs of a dim that an op reads through index expressions, given how the op's indices are split; and
   back, how the indices would be split so that such reads find what they need where it lies.

     x[i + p - 1], i@x, p < 3          window(i < n: i - 1 .. i + 1): a row more on each side
     x[n - 1 - i], i@x                 window(i < n: n - 1 - i .. n - 1 - i)
     x[64*h + k], h@x, k < 64          x granule 64: whole units, no window
     x[4*i + j], i@x(1:2), j@x(2:2)    x: the parts of i, then those of j
     x[e // 4, e % 4], e@x             x(1:2) and x(2:2), where chunks of e divide 4 and are divided by it
     x[3], x[p + 3] with p whole       the same slice on every rank

   An expression is bounded by a Form: on a rank whose chunk of an index z is [a, b) its values lie between
   (mul * a + lo) / div and (mul * (b - 1) + hi) / div. The forms of terms that are split alike add up; those of terms that
   are split over different axes join to the form of one index if they count like digits, otherwise one of them counts
   with its whole range. */
#include "part.h"

typedef struct {
  Split split;                     /* of z; no parts: the bounds do not depend on the rank (mul = 0, div = 1) */
  int64_t range, mul, lo, hi, div; /* z in [0, range) */
} Form;

static bool moves(const Form *f) { return f->split.n > 0; }

static Form constant(int64_t lo, int64_t hi) { return (Form){.range = 1, .lo = lo, .hi = hi, .div = 1}; }

static int64_t chunk(const Form *f) { return split_capacity(&f->split, f->range); }

static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

/* All values, on whatever rank. */
static Form everywhere(const Form *f) {
  int64_t last = sat_mul(f->mul, max_i64(f->range - 1, 0));
  return constant(floor_div(sat_add(min_i64(last, 0), f->lo), f->div), floor_div(sat_add(max_i64(last, 0), f->hi), f->div));
}

/* How many values a rank sees at most, about. */
static double extent(const Form *f) {
  return ((double)magnitude(f->mul) * (double)(chunk(f) - 1) + (double)(f->hi - f->lo)) / (double)f->div + 1;
}

static Form reduced(Form f) {
  if (f.mul % f.div) return f;
  f.mul /= f.div, f.lo = floor_div(f.lo, f.div), f.hi = floor_div(f.hi, f.div), f.div = 1;
  return f;
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

static bool same_index(const Form *a, const Form *b) { return a->range == b->range && split_equal(&a->split, &b->split); }

/* floor(x / d) + floor(y / e) lies between ceil((e*(x - d + 1) + d*(y - e + 1)) / (d*e)) and floor((e*x + d*y) / (d*e));
   bounds that move against each other are as far apart as the chunk is long. */
static Form add_same(const Form *a, const Form *b) {
  int64_t d = a->div, e = b->div, both = sat_mul(d, e);
  if (both >= FAR) {
    Form x = everywhere(a), y = everywhere(b);
    return constant(sat_add(x.lo, y.lo), sat_add(x.hi, y.hi));
  }
  Form f = *a;
  int64_t am = sat_mul(a->mul, e), bm = sat_mul(b->mul, d);
  f.div = both;
  f.mul = sat_add(am, bm);
  f.lo = sat_add(sat_add(sat_mul(e, a->lo - d + 1), sat_mul(d, b->lo - e + 1)), both - 1);
  f.hi = sat_add(sat_mul(e, a->hi), sat_mul(d, b->hi));
  if ((am < 0) == (bm < 0)) return reduced(f);
  int64_t apart = sat_mul(min_i64(magnitude(am), magnitude(bm)), chunk(a) - 1);
  f.lo = sat_add(f.lo, -apart), f.hi = sat_add(f.hi, apart);
  return reduced(f);
}

static Form shifted(const Form *f, const Form *by) {
  Form out = *f;
  out.lo = sat_add(f->lo, sat_mul(by->lo, f->div));
  out.hi = sat_add(f->hi, sat_mul(by->hi, f->div));
  return out;
}

/* Digits: a rank has one value of `major`, and a step of that is as long as all chunks of `minor` together. */
static bool join(const Form *major, const Form *minor, Form *out) {
  int64_t q = chunk(minor), k = split_count(&minor->split), g = major->split.n + minor->split.n;
  if (major->div != 1 || minor->div != 1 || chunk(major) != 1 || g > MAX_PARTS) return false;
  for (int i = 0; i < minor->split.n; i++)
    if (split_uses(&major->split, minor->split.part[i])) return false; /* wishes of two values may clash */
  if (major->mul != sat_mul(minor->mul, sat_mul(k, q))) return false;
  *out = *minor;
  out->split = major->split;
  for (int i = 0; i < minor->split.n; i++) out->split.part[out->split.n++] = minor->split.part[i];
  out->split.granule = q > 1 ? q : 0;
  out->range = sat_add(sat_mul(major->range - 1, sat_mul(k, q)), minor->range);
  out->lo = sat_add(major->lo, minor->lo), out->hi = sat_add(major->hi, minor->hi);
  return true;
}

static Form add(const Form *a, const Form *b) {
  Form f;
  if (!moves(b)) return shifted(a, b);
  if (!moves(a)) return shifted(b, a);
  if (same_index(a, b)) return add_same(a, b);
  if (join(a, b, &f) || join(b, a, &f)) return f;
  Form all_a = everywhere(a), all_b = everywhere(b), keep_a = shifted(a, &all_b), keep_b = shifted(b, &all_a);
  return extent(&keep_a) <= extent(&keep_b) ? keep_a : keep_b;
}

/* ---- multiples, quotients, remainders ----------------------------------------------------------------------------- */

static Form scaled(Form f, int64_t k) {
  int64_t lo = f.lo - f.div + 1, hi = f.hi, round = f.div - 1;
  f.mul = sat_mul(f.mul, k);
  f.lo = k > 0 ? sat_add(sat_mul(k, lo), round) : sat_add(sat_mul(k, hi), round);
  f.hi = k > 0 ? sat_mul(k, hi) : sat_mul(k, lo);
  return reduced(f);
}

/* The parts of s as major ones and minor ones whose product is k; an axis is divided where need be. */
static bool take_minor(const Split *s, int64_t k, Split *major, Split *minor) {
  *major = *minor = (Split){0};
  AxisPart low[MAX_PARTS];
  int n = s->n, m = 0;
  while (n > 0 && k > 1 && k % s->part[n - 1].size == 0) k /= s->part[n - 1].size, low[m++] = s->part[--n];
  for (int i = 0; i < n; i++) major->part[major->n++] = s->part[i];
  if (k > 1) {
    if (n == 0 || s->part[n - 1].size % k) return false;
    AxisPart *last = &major->part[n - 1];
    last->size /= k;
    low[m++] = (AxisPart){last->axis, last->pre * last->size, k};
  }
  while (m > 0) minor->part[minor->n++] = low[--m];
  return true;
}

/* Does z count like two digits, the lower one of k values? Then z // k and z % k are indices of their own. */
static bool digits(const Form *f, int64_t k, Split *major, Split *minor) {
  bool plain = moves(f) && f->mul == 1 && f->div == 1 && f->lo == 0 && f->hi == 0;
  if (!plain || k % chunk(f)) return false;
  return take_minor(&f->split, k / chunk(f), major, minor);
}

static Form of_index(const Split *s, int64_t range) {
  if (s->n == 0) return constant(0, max_i64(range - 1, 0));
  return (Form){*s, range, 1, 0, 0, 1};
}

static Form quotient(Form f, int64_t k) {
  Split major, minor;
  if (digits(&f, k, &major, &minor)) return of_index(&major, ceil_div(f.range, k));
  if (!moves(&f)) return constant(floor_div(f.lo, k), floor_div(f.hi, k));
  if (sat_mul(f.div, k) >= FAR) {
    Form all = everywhere(&f);
    return quotient(all, k);
  }
  f.div *= k;
  return reduced(f);
}

static Form remainder_of(Form f, int64_t k) {
  Split major, minor;
  if (digits(&f, k, &major, &minor)) return of_index(&minor, k);
  Form all = everywhere(&f);
  int64_t q = floor_div(all.lo, k);
  if (q != floor_div(all.hi, k)) return constant(0, k - 1);
  all = constant(sat_mul(-q, k), sat_mul(-q, k));
  return shifted(&f, &all);
}

static Form form_of(const IExpr *x, const Space *s, const Split *index);

static Form form_of_atom(const Term *t, const Space *s, const Split *index) {
  switch (t->kind) {
  case ATOM_INDEX: return of_index(&index[t->index], s->idx[t->index].range);
  case ATOM_DIV: return quotient(form_of(t->sub, s, index), t->k);
  case ATOM_MOD: return remainder_of(form_of(t->sub, s, index), t->k);
  case ATOM_VALUE: break;
  }
  return constant(-FAR, FAR);
}

/* From the shortest step to the longest, so that digits meet in order. */
static Form form_of(const IExpr *x, const Space *s, const Split *index) {
  Form sum = constant(x->c, x->c);
  int64_t done = 0;
  for (;;) {
    int64_t next = INT64_MAX;
    for (int k = 0; k < x->n; k++)
      if (magnitude(x->term[k].coef) > done) next = min_i64(next, magnitude(x->term[k].coef));
    if (next == INT64_MAX) return sum;
    for (int k = 0; k < x->n; k++) {
      if (magnitude(x->term[k].coef) != next) continue;
      Form f = scaled(form_of_atom(&x->term[k], s, index), x->term[k].coef);
      sum = add(&sum, &f);
    }
    done = next;
  }
}

/* ---- needs -------------------------------------------------------------------------------------------------------- */

static Split window_of(const Form *f) {
  Split s = f->split;
  s.fixed = false;
  s.window = (Window){f->range, f->mul, f->lo, f->hi, f->div};
  return s;
}

/* Both needs; bounds that do not move alike are taken together as they are on all ranks. */
static Form hull(const Form *a, const Form *b) {
  bool alike = moves(a) == moves(b) && (!moves(a) || same_index(a, b)) && a->mul == b->mul && a->div == b->div;
  Form f = alike ? *a : everywhere(a), g = alike ? *b : everywhere(b);
  f.lo = min_i64(f.lo, g.lo), f.hi = max_i64(f.hi, g.hi);
  return f;
}

Split part_read_split(int n, const IExpr *const *x, const Space *s, const Split *index, int64_t size) {
  if (n == 0) return (Split){0};
  Form f = form_of(x[0], s, index);
  for (int i = 1; i < n; i++) {
    Form g = form_of(x[i], s, index);
    f = hull(&f, &g);
  }
  if (f.lo <= -FAR || f.hi >= FAR) return (Split){0};
  return split_canonical(window_of(&f), size);
}

/* ---- and back ------------------------------------------------------------------------------------------------------ */

static void carry(const IExpr *x, const Space *s, const Split *parts, int64_t unit, Split *out);

static void carry_atom(const Term *t, const Space *s, const Split *parts, int64_t unit, Split *out) {
  int64_t k = magnitude(t->coef);
  unit = unit % k ? 1 : unit / k;
  if (t->kind == ATOM_DIV) carry(t->sub, s, parts, sat_mul(unit, t->k), out);
  if (t->kind != ATOM_INDEX) return;
  out[t->index] = *parts;
  out[t->index].granule = unit > 1 ? unit : 0;
}

static double reach_of(const Term *t, const Space *s) {
  IExpr one = {.n = 1, .term = (Term *)t};
  int64_t min, max;
  ix_bounds(&one, s, &min, &max);
  return (double)max - (double)min;
}

/* The term that reaches furthest takes the parts; if it has fewer values than those deal out, the major ones, as many as
   it has values, and the next term the others. */
static void carry(const IExpr *x, const Space *s, const Split *parts, int64_t unit, Split *out) {
  Split rest = *parts;
  bool done[MAX_INDEX + 1] = {0};
  for (int round = 0; round < x->n && round < MAX_INDEX && rest.n > 0; round++) {
    int best = -1;
    for (int i = 0; i < x->n && i < MAX_INDEX; i++)
      if (!done[i] && (best < 0 || reach_of(&x->term[i], s) > reach_of(&x->term[best], s))) best = i;
    const Term *t = &x->term[best];
    done[best] = true;
    int64_t values = (int64_t)(reach_of(t, s) / (double)magnitude(t->coef)) + 1, k = split_count(&rest);
    Split major = rest, minor = {0};
    if (values > 1 && k > values && k % values == 0 && !take_minor(&rest, k / values, &major, &minor)) major = rest;
    carry_atom(t, s, &major, unit, out);
    rest = minor;
    unit = 1;
  }
}

/* x[e // k, e % k]: the parts of the first dim, then those of the second, belong to e. */
static const IExpr *halves_of(const OperandFactors *f, int d) {
  if (f->nreads[d] != 1 || f->nreads[d + 1] != 1) return NULL;
  const IExpr *x = f->read[d][0], *y = f->read[d + 1][0];
  bool lone = x->n == 1 && y->n == 1 && x->c == 0 && y->c == 0 && x->term[0].coef == 1 && y->term[0].coef == 1;
  if (!lone || x->term[0].kind != ATOM_DIV || y->term[0].kind != ATOM_MOD || x->term[0].k != y->term[0].k) return NULL;
  return ix_equal(x->term[0].sub, y->term[0].sub) ? x->term[0].sub : NULL;
}

void part_carry(const Op *op, const OperandFactors *f, const Type *t, int d, Split out[MAX_INDEX]) {
  memset(out, 0, sizeof *out * MAX_INDEX);
  Split parts = t->dim[d].split;
  if (f->nreads[d] == 0) return;
  const IExpr *whole = d + 1 < t->rank ? halves_of(f, d) : NULL;
  parts.window = (Window){0};
  parts.fixed = false;
  if (whole && t->dim[d + 1].split.n > 0 && parts.n + t->dim[d + 1].split.n <= MAX_PARTS) {
    for (int i = 0; i < t->dim[d + 1].split.n; i++) parts.part[parts.n++] = t->dim[d + 1].split.part[i];
    carry(whole, &op->space, &parts, 1, out);
    return;
  }
  if (parts.n > 0) carry(f->read[d][0], &op->space, &parts, max_i64(parts.granule, 1), out);
}
