/* layout.c: which box of a tensor a rank holds, and from which ranks the boxes of another layout come. Every
   collective is this one question.

   Example, [4] over two ranks: from split to whole, rank 0 needs [0,4): the piece [0,2) comes from itself and
   [2,4) from rank 1 (an all-gather). From a pending sum to split, rank 1 needs [2,4): one piece with the sources
   0, 1 (a reduce-scatter).

   Laws. The boxes of a source form a grid, so two ranks' boxes are equal or disjoint; those of a destination with windows
   may overlap (halos) or leave gaps. Digits that occur in no dim and no pending list make replicas, whose bits are equal: any of
   them may serve. A rank prefers itself; what the other members want of a box, in the order of their ranks, makes one line of
   elements that is cut into equal shares for those that hold it, so that nobody sends more than has to be. Contributions that are
   reduced are those of the ranks that differ in the digits pending in `from` but not in `to`, in ascending order of these digits,
   so that all replicas of the result get the same bits. */
#include "rt.h"

#include <assert.h>

size_t rt_dtype_size(dtrt_dtype d) {
  static const size_t size[] = {4, 2, 2, 8, 4, 8, 1};
  return size[d];
}
const char *rt_dtype_name(dtrt_dtype d) {
  static const char *const name[] = {"f32", "bf16", "f16", "f64", "i32", "i64", "bool"};
  return name[d];
}
bool rt_is_real(dtrt_dtype t) { return t == DTRT_F32 || t == DTRT_BF16 || t == DTRT_F16 || t == DTRT_F64; }

static int digit_of(dtrt_Digit d, int rank) { return rank / d.stride % d.size; }

/* The number that several digits make, major to minor. */
static int number_of(int n, const dtrt_Digit *d, int rank) {
  int c = 0;
  for (int i = 0; i < n; i++) c = c * d[i].size + digit_of(d[i], rank);
  return c;
}

/* Chunk c of `size` elements. */
static void chunk_range(int64_t size, int64_t chunk, int64_t c, int64_t *lo, int64_t *hi) {
  *lo = chunk && c > size / chunk ? size : c * chunk;
  if (*lo > size) *lo = size;
  *hi = size - *lo < chunk ? size : *lo + chunk;
}

/* floor((mul * i + add) / div), cut to [lo, hi]. */
static int64_t read_at(const dtrt_Window *w, int64_t i, int64_t add, int64_t lo, int64_t hi) {
  __int128 x = (__int128)w->mul * i + add, q = x / w->div - (x % w->div < 0);
  return q < lo ? lo : q > hi ? hi : (int64_t)q;
}

void rt_dim_range(const dtrt_Dim *d, int rank, int64_t *lo, int64_t *hi) {
  const dtrt_Window *w = &d->window;
  int64_t c = number_of(d->n, d->digit, rank), a, b;
  if (w->of == 0) {
    chunk_range(d->size, d->chunk, c, lo, hi);
    return;
  }
  chunk_range(w->of, w->chunk, c, &a, &b);
  *lo = *hi = d->size;
  if (a >= b) return;
  int64_t first = w->mul < 0 ? b - 1 : a, last = w->mul < 0 ? a : b - 1;
  *lo = read_at(w, first, w->lo, 0, d->size);
  *hi = read_at(w, last, w->hi + w->div, *lo, d->size);
}

RtBox rt_box(const dtrt_Layout *l, int rank) {
  RtBox b = {0};
  for (int i = 0; i < l->rank; i++) rt_dim_range(&l->dim[i], rank, &b.lo[i], &b.hi[i]);
  return b;
}

RtBox rt_box_meet(const RtBox *a, const RtBox *b, int n) {
  RtBox m = {0};
  for (int i = 0; i < n; i++) {
    m.lo[i] = a->lo[i] > b->lo[i] ? a->lo[i] : b->lo[i];
    m.hi[i] = a->hi[i] < b->hi[i] ? a->hi[i] : b->hi[i];
  }
  return m;
}

int64_t rt_box_elements(const RtBox *b, int n) {
  int64_t e = 1;
  for (int i = 0; i < n; i++) {
    if (b->hi[i] <= b->lo[i]) return 0;
    e *= b->hi[i] - b->lo[i];
  }
  return e;
}

int64_t rt_whole_elements(const dtrt_Layout *l) {
  int64_t e = 1;
  for (int i = 0; i < l->rank; i++) e *= l->dim[i].size;
  return e;
}

int64_t rt_local_elements(const dtrt_Layout *l) {
  int64_t e = 1;
  for (int i = 0; i < l->rank; i++) e *= l->dim[i].chunk;
  return e;
}

dtrt_Layout rt_unsplit(const dtrt_Layout *l) {
  dtrt_Layout w = *l;
  w.npending = 0;
  for (int i = 0; i < w.rank; i++) w.dim[i] = (dtrt_Dim){.size = l->dim[i].size, .chunk = l->dim[i].size};
  return w;
}

/* ---- digits ---- */

/* Digit a without digit b: up to two digits, above and below b. Digits are ranges [stride, stride * size) of the
   rank's mixed-radix number; two of them are disjoint, or b lies inside a, or a inside b. */
static int cut(dtrt_Digit a, dtrt_Digit b, dtrt_Digit out[2]) {
  int a_end = a.stride * a.size, b_end = b.stride * b.size, n = 0;
  if (b_end <= a.stride || b.stride >= a_end) {
    out[n++] = a;
    return n;
  }
  if (b_end < a_end) out[n++] = (dtrt_Digit){b_end, a_end / b_end};
  if (b.stride > a.stride) out[n++] = (dtrt_Digit){a.stride, b.stride / a.stride};
  return n;
}

int rt_digits_minus(int na, const dtrt_Digit *a, int nb, const dtrt_Digit *b, dtrt_Digit *out) {
  dtrt_Digit now[2 * DTRT_MAX_PARTS], next[2 * DTRT_MAX_PARTS];
  int n = 0;
  for (int i = 0; i < na; i++)
    if (a[i].size > 1) now[n++] = a[i];
  for (int j = 0; j < nb; j++) {
    int m = 0;
    for (int i = 0; i < n && b[j].size > 1; i++) {
      dtrt_Digit piece[2];
      int k = cut(now[i], b[j], piece);
      for (int q = 0; q < k && m < 2 * DTRT_MAX_PARTS; q++) next[m++] = piece[q];
    }
    if (b[j].size > 1) memcpy(now, next, sizeof now), n = m;
  }
  memcpy(out, now, (size_t)n * sizeof *out);
  return n;
}

int rt_group(int nranks, int rank, int ndigits, const dtrt_Digit *digit, int *member) {
  int base = rank, n = 0;
  for (int i = 0; i < ndigits; i++) base -= digit_of(digit[i], rank) * digit[i].stride;
  for (int r = 0; r < nranks; r++) {
    int other = r;
    for (int i = 0; i < ndigits; i++) other -= digit_of(digit[i], r) * digit[i].stride;
    if (other == base) member[n++] = r;
  }
  return n;
}

/* ---- pieces ---- */

Piece rt_piece(const RtBox *b, const RtBox *s, const dtrt_Layout *sl, const RtBox *d, const dtrt_Layout *dl) {
  Piece p = {.run = 1, .elements = rt_box_elements(b, sl->rank)};
  int64_t sstep = 1, dstep = 1, count[DTRT_MAX_RANK], ss[DTRT_MAX_RANK], ds[DTRT_MAX_RANK];
  int n = 0; /* loops from the inside out, merged where both buffers go on without a gap */
  for (int i = sl->rank - 1; i >= 0; i--) {
    int64_t extent = b->hi[i] - b->lo[i];
    p.soff += (b->lo[i] - s->lo[i]) * sstep;
    p.doff += (b->lo[i] - d->lo[i]) * dstep;
    if (n == 0 && sstep == p.run && dstep == p.run)
      p.run *= extent;
    else if (n && sstep == ss[n - 1] * count[n - 1] && dstep == ds[n - 1] * count[n - 1])
      count[n - 1] *= extent;
    else if (extent != 1)
      count[n] = extent, ss[n] = sstep, ds[n] = dstep, n++;
    sstep *= sl->dim[i].chunk;
    dstep *= dl->dim[i].chunk;
  }
  p.nloops = n;
  for (int i = 0; i < n; i++) p.count[i] = count[n - 1 - i], p.sstep[i] = ss[n - 1 - i], p.dstep[i] = ds[n - 1 - i];
  return p;
}

/* One change of layout among the members of a group, as `me` sees it. */
typedef struct {
  const dtrt_Layout *from, *to;
  int nmembers, me;
  const int *member;
  int nreduced, nkept, nfresh, ncomb;
  dtrt_Digit reduced[2 * DTRT_MAX_PARTS], kept[2 * DTRT_MAX_PARTS], fresh[2 * DTRT_MAX_PARTS];
} Change;

static void change_of(Change *c) {
  const dtrt_Layout *from = c->from, *to = c->to;
  c->nreduced = rt_digits_minus(from->npending, from->pending, to->npending, to->pending, c->reduced);
  c->nkept = rt_digits_minus(from->npending, from->pending, c->nreduced, c->reduced, c->kept);
  c->nfresh = rt_digits_minus(to->npending, to->pending, from->npending, from->pending, c->fresh);
  c->ncomb = 1;
  for (int i = 0; i < c->nreduced; i++) c->ncomb *= c->reduced[i].size;
}

static bool same_sums(const Change *c, int q) { return number_of(c->nkept, c->kept, q) == number_of(c->nkept, c->kept, c->me); }

/* Who holds one contribution to a box, and, where it is not me: the line of elements that members want of them, of which mine
   begin at `before`. */
typedef struct {
  int n, *holder;
  bool own;
  int64_t before, all;
} Line;

static Line line_of(const Change *c, const RtBox *box, int contribution) {
  Line l = {.holder = rt_alloc((size_t)c->nmembers, sizeof *l.holder)};
  for (int k = 0; k < c->nmembers; k++) {
    int q = c->member[k];
    if (!same_sums(c, q)) continue;
    RtBox theirs = rt_box(c->from, q), want = rt_box(c->to, q);
    if (number_of(c->nreduced, c->reduced, q) == contribution && !memcmp(&theirs, box, sizeof *box)) {
      l.holder[l.n++] = q;
      l.own |= q == c->me;
    } else if (number_of(c->nfresh, c->fresh, q) == 0) {
      RtBox both = rt_box_meet(&want, box, c->to->rank);
      int64_t n = rt_box_elements(&both, c->to->rank);
      l.all += n;
      if (q < c->me) l.before += n;
    }
  }
  return l;
}

/* Who serves my element `at` of the box, and up to which element: holder j of n the j-th of n equal parts of the line. */
static int served_by(const Line *l, int me, int64_t at, int64_t *end) {
  if (l->own) return me;
  int64_t j = (int64_t)(((__int128)(l->before + at + 1) * l->n - 1) / l->all);
  int64_t stop = (int64_t)((__int128)l->all * (j + 1) / l->n) - l->before;
  if (stop < *end) *end = stop;
  return l->holder[j];
}

static void add_piece(Plan *plan, const Piece *piece, int ncomb) {
  plan->piece = realloc(plan->piece, (size_t)(plan->npieces + 1) * sizeof *plan->piece);
  assert(plan->piece && "a few pieces must fit in memory");
  plan->piece[plan->npieces] = *piece;
  plan->piece[plan->npieces].nsrc = ncomb;
  plan->piece[plan->npieces++].src = rt_alloc((size_t)ncomb, sizeof *piece->src);
}

/* All that I want of one box of the source, in pieces that have one server each of every contribution. */
static bool plan_box(const Change *c, const RtBox *box, const RtBox *mine, Plan *plan) {
  RtBox both = rt_box_meet(mine, box, c->to->rank);
  Piece whole = rt_piece(&both, box, c->from, mine, c->to);
  Line *line = rt_alloc((size_t)c->ncomb, sizeof *line);
  bool all = true;
  for (int i = 0; i < c->ncomb; i++) {
    line[i] = line_of(c, box, i);
    all &= line[i].n > 0;
  }
  for (int64_t at = 0, end; all && at < whole.elements; at = end) {
    Piece piece = whole;
    end = whole.elements;
    for (int i = 0; i < c->ncomb; i++) served_by(&line[i], c->me, at, &end);
    piece.at = at, piece.elements = end - at;
    add_piece(plan, &piece, c->ncomb);
    for (int i = 0; i < c->ncomb; i++) plan->piece[plan->npieces - 1].src[i] = served_by(&line[i], c->me, at, &end);
  }
  for (int i = 0; i < c->ncomb; i++) free(line[i].holder);
  free(line);
  return all;
}

/* Is rank member[k] the first whose box this is? */
static bool first_of_box(const Change *c, int k, const RtBox *box) {
  for (int i = 0; i < k; i++) {
    RtBox other = rt_box(c->from, c->member[i]);
    if (same_sums(c, c->member[i]) && !memcmp(&other, box, sizeof *box)) return false;
  }
  return true;
}

bool rt_plan(const dtrt_Layout *from, const dtrt_Layout *to, int nmembers, const int *member, int me, Plan *plan) {
  Change c = {.from = from, .to = to, .nmembers = nmembers, .member = member, .me = me};
  change_of(&c);
  RtBox mine = rt_box(to, me);
  *plan = (Plan){.elements = rt_box_elements(&mine, to->rank)};
  plan->identity = number_of(c.nfresh, c.fresh, me) != 0;
  if (plan->identity || plan->elements == 0) return true;
  bool all = true;
  for (int k = 0; k < nmembers; k++) {
    RtBox box = rt_box(from, member[k]), both = rt_box_meet(&mine, &box, to->rank);
    if (!same_sums(&c, member[k]) || rt_box_elements(&both, to->rank) == 0 || !first_of_box(&c, k, &box)) continue;
    all &= plan_box(&c, &box, &mine, plan);
  }
  int64_t found = 0;
  for (int i = 0; i < plan->npieces; i++) found += plan->piece[i].elements;
  return all && found == plan->elements;
}

void rt_plan_free(Plan *p) {
  for (int i = 0; i < p->npieces; i++) free(p->piece[i].src);
  free(p->piece);
  *p = (Plan){0};
}
