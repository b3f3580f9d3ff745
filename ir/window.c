/* window.c: what a rank holds of a dim that it reads through an index expression. The split deals out the index, the window
   tells what a chunk of it reads:

     x[i + p - 1], p < 3, i < 8 over x = 4       window(i < 8: i - 1 .. i + 1)     [0,3) [1,5) [3,7) [5,8)
     x[2*i], i < 4 over x = 4                    window(i < 4: 2*i .. 2*i)         [0,1) [2,3) [4,5) [6,7)
     x[7 - i], i < 8 over x = 4                  window(i < 8: 7 - i .. 7 - i)     [6,8) [4,6) [2,4) [0,2)
     x[64*h + k], k < 64, h < 6 over x = 4       [0,128) [128,256) [256,384) []: no window, granule 64

   The canonical form of a split is the plain one where there is one that holds the same on every rank, and `whole`
   where every rank holds all. */
#include "window.h"

void window_range(const Window *w, int64_t a, int64_t b, int64_t n, int64_t *lo, int64_t *hi) {
  *lo = *hi = n;
  if (a >= b) return;
  int64_t first = w->mul < 0 ? b - 1 : a, last = w->mul < 0 ? a : b - 1;
  int64_t from = floor_div(sat_add(sat_mul(w->mul, first), w->lo), w->div);
  int64_t to = floor_div(sat_add(sat_mul(w->mul, last), w->hi), w->div) + 1;
  *lo = min_i64(n, max_i64(0, from));
  *hi = min_i64(n, max_i64(*lo, to));
}

int64_t window_capacity(const Window *w, int64_t chunk, int64_t n) {
  if (chunk == 0) return 0;
  int64_t span = sat_add(sat_mul(w->mul < 0 ? -w->mul : w->mul, chunk - 1), sat_add(w->hi, -w->lo));
  return max_i64(0, min_i64(n, span / w->div + 1 + (span % w->div != 0)));
}

/* Parts that follow each other in one axis are one part. */
static void join_parts(Split *s) {
  int n = 0;
  for (int i = 0; i < s->n; i++) {
    AxisPart *last = n ? &s->part[n - 1] : NULL, p = s->part[i];
    if (last && last->axis == p.axis && last->pre * last->size == p.pre)
      last->size *= p.size;
    else
      s->part[n++] = p;
  }
  s->n = n;
}

/* x = d * (x / d) for all of the chunk's bounds: then rounding is the same everywhere. */
static void reduce_window(Window *w) {
  if (w->mul % w->div) return;
  w->mul /= w->div;
  w->lo = floor_div(w->lo, w->div);
  w->hi = floor_div(w->hi, w->div);
  w->div = 1;
}

static bool holds_all(const Window *w, int64_t chunk, int64_t k, int64_t n) {
  int64_t last = (k - 1) * chunk, lo[2], hi[2];
  if (last >= w->of) return false; /* some rank holds nothing */
  window_range(w, 0, min_i64(w->of, chunk), n, &lo[0], &hi[0]);
  window_range(w, last, w->of, n, &lo[1], &hi[1]);
  return max_i64(lo[0], lo[1]) == 0 && min_i64(hi[0], hi[1]) == n; /* bounds are monotone in between */
}

/* The chunk of the plain split that holds the same, or 0: chunk c of the index must read [c * step, (c + 1) * step). */
static int64_t plain_step(const Window *w, int64_t chunk, int64_t n) {
  if (w->mul <= 0 || sat_mul(w->mul, chunk) % w->div || w->lo < 0 || w->lo >= w->div) return 0;
  int64_t step = sat_mul(w->mul, chunk) / w->div;
  bool exact = floor_div(sat_add(sat_mul(w->mul, chunk - 1), w->hi), w->div) + 1 == step;
  bool all = floor_div(sat_add(sat_mul(w->mul, w->of - 1), w->hi), w->div) + 1 >= n;
  return exact && all ? step : 0;
}

/* The least granule, of those that the window suggests, that deals n out in chunks of `step`. */
static Split plain_split(const Split *s, int64_t step, int64_t n) {
  const Window *w = &s->window;
  Split out = *s;
  out.window = (Window){0};
  int64_t g = max_i64(s->granule, 1) * w->mul, tries[] = {1, g % w->div ? 1 : g / w->div, step};
  for (int i = 0; i < 3; i++) {
    out.granule = tries[i] > 1 ? tries[i] : 0;
    if (split_capacity(&out, n) == min_i64(step, n)) break;
  }
  return out;
}

Split split_canonical(Split s, int64_t n) {
  join_parts(&s);
  if (!split_windowed(&s)) return s;
  reduce_window(&s.window);
  const Window *w = &s.window;
  Split index = s, fine = s;
  index.window = fine.window = (Window){0};
  fine.granule = 0;
  int64_t k = split_count(&s), chunk = split_capacity(&index, w->of);
  if (split_capacity(&fine, w->of) == chunk) s.granule = 0;
  if (w->mul == 0 && s.n > 0 && chunk * (k - 1) < w->of) s.n = 0, s.granule = 0, s.window.of = 1, k = 1, chunk = 1;
  if (holds_all(w, chunk, k, n)) return (Split){.fixed = s.fixed};
  int64_t step = s.n > 0 ? plain_step(w, chunk, n) : 0;
  return step ? plain_split(&s, step, n) : s;
}

/* ---- inside ---------------------------------------------------------------------------------------------------- */

bool split_nests(const Split *inner, const Split *outer, int64_t n) {
  if (split_windowed(inner) || split_windowed(outer) || outer->n > inner->n) return false;
  int64_t chunks = 1;
  for (int i = 0; i < inner->n; i++) {
    if (i >= outer->n)
      chunks *= inner->part[i].size;
    else if (!part_equal(inner->part[i], outer->part[i]))
      return false;
  }
  return outer->n == 0 || split_capacity(outer, n) == chunks * split_capacity(inner, n);
}

bool split_inside(const Mesh *m, const Split *inner, const Split *outer, int64_t n) {
  if (split_whole(outer) || split_equal(inner, outer) || split_nests(inner, outer, n)) return true;
  bool axes[MAX_AXES] = {0};
  split_axes(inner, axes);
  split_axes(outer, axes);
  for (int64_t k = 0, ranks = ranks_along(m, axes); k < ranks; k++) {
    int64_t rank = rank_along(m, axes, k), lo, hi, from, to;
    split_range(m, inner, n, rank, &lo, &hi);
    split_range(m, outer, n, rank, &from, &to);
    if (lo < hi && (lo < from || hi > to)) return false;
  }
  return true;
}
