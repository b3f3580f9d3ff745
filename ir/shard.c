/* shard.c: which part of a tensor a rank holds. A split counts its axis parts, major to minor, as one number
   of k values; n elements, in whole units of the granule, are dealt out in equal chunks, so the last ranks
   come out short or empty:

     10 elements over data = 4: chunks of 3: [0,3) [3,6) [6,9) [9,10)
     6 heads of 64 merged in 384 over model = 4, granule 64: [0,128) [128,256) [256,384) []

   With a window (window.c) a rank holds what is read at its chunk of an index instead.                  */
#include "window.h"

int64_t mesh_devices(const Mesh *m) {
  int64_t n = 1;
  for (int i = 0; i < m->naxes; i++) n *= m->axis[i].size;
  return n;
}

int mesh_axis(const Mesh *m, const char *name) {
  for (int i = 0; i < m->naxes; i++)
    if (!strcmp(m->axis[i].name, name)) return i;
  return -1;
}

AxisPart axis_whole(const Mesh *m, int axis) { return (AxisPart){axis, 1, m->axis[axis].size}; }

static int64_t axis_stride(const Mesh *m, int axis) {
  int64_t n = 1;
  for (int i = axis + 1; i < m->naxes; i++) n *= m->axis[i].size;
  return n;
}

/* By how much a rank's number grows with its coordinate along the part. */
static int64_t part_step(const Mesh *m, AxisPart p) { return axis_stride(m, p.axis) * (m->axis[p.axis].size / (p.pre * p.size)); }

int64_t part_coord(const Mesh *m, AxisPart p, int64_t rank) { return rank / part_step(m, p) % p.size; }

void split_axes(const Split *s, bool axes[MAX_AXES]) {
  for (int i = 0; i < s->n; i++) axes[s->part[i].axis] = true;
}

int64_t ranks_along(const Mesh *m, const bool axes[MAX_AXES]) {
  int64_t n = 1;
  for (int i = 0; i < m->naxes; i++) n *= axes[i] ? m->axis[i].size : 1;
  return n;
}

int64_t rank_along(const Mesh *m, const bool axes[MAX_AXES], int64_t k) {
  int64_t rank = 0, stride = 1;
  for (int i = m->naxes - 1; i >= 0; i--) {
    if (axes[i]) rank += k % m->axis[i].size * stride, k /= m->axis[i].size;
    stride *= m->axis[i].size;
  }
  return rank;
}

bool part_equal(AxisPart a, AxisPart b) { return a.axis == b.axis && a.pre == b.pre && a.size == b.size; }

/* Digits [pre, pre * size) of the axis, as intervals of divisors. */
bool parts_overlap(AxisPart a, AxisPart b) { return a.axis == b.axis && a.pre < b.pre * b.size && b.pre < a.pre * a.size; }

int64_t split_count(const Split *s) {
  int64_t k = 1;
  for (int i = 0; i < s->n; i++) k *= s->part[i].size;
  return k;
}

bool split_windowed(const Split *s) { return s->window.of > 0; }

bool split_whole(const Split *s) { return s->n == 0 && !split_windowed(s); }

/* What is dealt out: the dim, or the range of the index that reads it through a window. */
static int64_t whole_of(const Split *s, int64_t n) { return split_windowed(s) ? s->window.of : n; }

static int64_t chunk_of(const Split *s, int64_t n) {
  int64_t g = s->granule > 1 ? s->granule : 1;
  return min_i64(n, ceil_div(ceil_div(n, g), split_count(s)) * g);
}

int64_t split_capacity(const Split *s, int64_t n) {
  int64_t chunk = chunk_of(s, whole_of(s, n));
  return split_windowed(s) ? window_capacity(&s->window, chunk, n) : chunk;
}

int64_t split_coord(const Mesh *m, const Split *s, int64_t rank) {
  int64_t c = 0;
  for (int i = 0; i < s->n; i++) c = c * s->part[i].size + part_coord(m, s->part[i], rank);
  return c;
}

Dealt dealt_out(const Mesh *m, const Split *s, int64_t n) {
  Dealt d; /* asked for very often: what is not used is not cleared */
  d.n = n, d.all = whole_of(s, n), d.chunk = chunk_of(s, d.all);
  d.window = split_windowed(s) ? &s->window : NULL;
  d.parts = s->n;
  for (int i = 0; i < s->n; i++) d.step[i] = part_step(m, s->part[i]), d.size[i] = s->part[i].size;
  return d;
}

void dealt_range(const Dealt *d, int64_t rank, int64_t *lo, int64_t *hi) {
  int64_t c = 0;
  for (int i = 0; i < d->parts; i++) c = c * d->size[i] + rank / d->step[i] % d->size[i];
  *lo = min_i64(d->all, c * d->chunk);
  *hi = min_i64(d->all, *lo + d->chunk);
  if (d->window) window_range(d->window, *lo, *hi, d->n, lo, hi);
}

void split_range(const Mesh *m, const Split *s, int64_t n, int64_t rank, int64_t *lo, int64_t *hi) {
  Dealt d = dealt_out(m, s, n);
  dealt_range(&d, rank, lo, hi);
}

bool split_even(const Split *s, int64_t n) {
  if (split_windowed(s)) { /* the same for all, but where it lies outside of the dim it is empty and the capacity 1 */
    int64_t lo, hi;
    window_range(&s->window, 0, s->window.of, n, &lo, &hi);
    return split_count(s) == 1 && hi - lo == split_capacity(s, n);
  }
  return split_capacity(s, n) * split_count(s) == n;
}

bool split_equal(const Split *a, const Split *b) {
  if (a->n != b->n) return false;
  for (int i = 0; i < a->n; i++)
    if (!part_equal(a->part[i], b->part[i])) return false;
  if (split_windowed(a) != split_windowed(b)) return false;
  if (split_windowed(a) && memcmp(&a->window, &b->window, sizeof a->window)) return false;
  return a->n == 0 || max_i64(a->granule, 1) == max_i64(b->granule, 1);
}

bool split_uses(const Split *s, AxisPart p) {
  for (int i = 0; i < s->n; i++)
    if (parts_overlap(s->part[i], p)) return true;
  return false;
}

bool pending_equal(const Pending *a, const Pending *b) {
  if (a->n != b->n || (a->n && a->kind != b->kind)) return false;
  for (int i = 0; i < a->n; i++) {
    bool found = false;
    for (int j = 0; j < b->n; j++) found |= part_equal(a->part[i], b->part[j]);
    if (!found) return false;
  }
  return true;
}

bool sharding_equal(const Type *a, const Type *b) {
  assert(a->rank == b->rank && "shardings of values of one shape");
  for (int d = 0; d < a->rank; d++)
    if (!split_equal(&a->dim[d].split, &b->dim[d].split)) return false;
  return pending_equal(&a->pending, &b->pending);
}

bool type_uses(const Type *t, AxisPart p) {
  for (int d = 0; d < t->rank; d++)
    if (split_uses(&t->dim[d].split, p)) return true;
  for (int i = 0; i < t->pending.n; i++)
    if (parts_overlap(t->pending.part[i], p)) return true;
  return false;
}

bool type_windowed(const Type *t) {
  for (int d = 0; d < t->rank; d++)
    if (split_windowed(&t->dim[d].split)) return true;
  return false;
}

Box type_box(const Mesh *m, const Type *t, int64_t rank) {
  Box b = {0};
  for (int d = 0; d < t->rank; d++) split_range(m, &t->dim[d].split, t->dim[d].size, rank, &b.lo[d], &b.hi[d]);
  return b;
}

int64_t type_elements(const Type *t) {
  int64_t n = 1;
  for (int d = 0; d < t->rank; d++)
    if (!checked_mul(n, t->dim[d].size, &n)) internal_error("a tensor with more than 2^63 elements");
  return n;
}

int64_t type_capacity(const Type *t) {
  int64_t n = 1;
  for (int d = 0; d < t->rank; d++)
    if (!checked_mul(n, split_capacity(&t->dim[d].split, t->dim[d].size), &n))
      internal_error("a tensor with more than 2^63 elements");
  return n;
}

static const struct {
  const char *name;
  int64_t size;
} DTYPES[NDTYPES] = {[F32] = {"f32", 4}, [BF16] = {"bf16", 2}, [F16] = {"f16", 2},  [F64] = {"f64", 8},
                     [I32] = {"i32", 4}, [I64] = {"i64", 8},   [BOOL] = {"bool", 1}};

int64_t dtype_size(DType d) { return DTYPES[d].size; }
const char *dtype_name(DType d) { return DTYPES[d].name; }
bool dtype_is_int(DType d) { return d == I32 || d == I64 || d == BOOL; }

bool dtype_by_name(const char *s, DType *out) {
  for (int d = 0; d < NDTYPES; d++)
    if (!strcmp(DTYPES[d].name, s)) return *out = (DType)d, true;
  return false;
}

int64_t move_elements(const Mesh *m, const Type *from, const Type *to, int64_t rank) {
  Box have = type_box(m, from, rank), want = type_box(m, to, rank);
  int64_t all = 1, common = 1;
  for (int d = 0; d < to->rank; d++) {
    all *= want.hi[d] - want.lo[d];
    common *= max_i64(0, min_i64(have.hi[d], want.hi[d]) - max_i64(have.lo[d], want.lo[d]));
  }
  return all - common;
}
