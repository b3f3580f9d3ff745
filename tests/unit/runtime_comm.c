/* runtime_comm.c: collectives between real processes: random layouts on both sides, compared element by element
   with what the definition says. The rank's number is cut into atoms (prime digits), of which layouts use some;
   neighbours in a list are joined into one digit now and then, so that parts of digits meet too.

   Several collectives are under way at once, and are waited for in another order than they were started. Some
   destinations hold windows of their dims, which overlap or leave gaps.

   The buffers are filled and looked at through the host's view of the arena, so that the same tests run on every transport.

   A rank's contribution to element e is a small integer made of e and of the rank's pending atoms; every kind of
   reduction of such is exact in every type. */
#include "runtime/rt.h"
#include "runtime_run.h"
#include "unit.h"

#include <stdlib.h>
#include <string.h>

enum { NCOLL = 24, NBUF = 3, MAX_ATOMS = 4, AT_ONCE = 4 };

typedef struct {
  int natoms;
  dtrt_Digit atom[MAX_ATOMS];
} Mesh;

typedef struct {
  int n;
  int atom[MAX_ATOMS];
} Atoms; /* major to minor */

typedef struct {
  dtrt_Layout from, to;
  Atoms pending_from, pending_to;
  bool in_place;
  int64_t src, dst; /* offsets in the arena */
} Buffer;

/* One test program; the ranks inherit it. */
static struct {
  Mesh mesh;
  dtrt_Collective coll[NCOLL];
  dtrt_Layout from[NCOLL][NBUF], to[NCOLL][NBUF];
  Buffer buf[NCOLL][NBUF];
} T;

static unsigned next(unsigned *s, unsigned n) {
  *s = *s * 1664525u + 1013904223u;
  return (*s >> 8) % n;
}

static int digit_of(dtrt_Digit d, int rank) { return rank / d.stride % d.size; }

/* ---- making ---- */

static int digits(const Atoms *a, dtrt_Digit *out, unsigned *s) {
  int n = 0;
  for (int i = 0; i < a->n; i++) {
    dtrt_Digit d = T.mesh.atom[a->atom[i]];
    if (n && out[n - 1].stride == d.stride * d.size && next(s, 2)) {
      out[n - 1] = (dtrt_Digit){d.stride, d.size * out[n - 1].size};
      continue;
    }
    out[n++] = d;
  }
  return n;
}

static void fill_layout(dtrt_Layout *l, const Atoms *dims, const Atoms *pending, unsigned *s) {
  for (int i = 0; i < l->rank; i++) {
    int64_t k = 1;
    for (int j = 0; j < dims[i].n; j++) k *= T.mesh.atom[dims[i].atom[j]].size;
    l->dim[i].n = digits(&dims[i], l->dim[i].digit, s);
    l->dim[i].chunk = (l->dim[i].size + k - 1) / k;
  }
  l->npending = digits(pending, l->pending, s);
}

static void deal(Atoms *dims, int rank, Atoms *pending, const bool *must, unsigned *s) {
  int order[MAX_ATOMS];
  for (int i = 0; i < T.mesh.natoms; i++) {
    int j = (int)next(s, (unsigned)i + 1);
    order[i] = order[j];
    order[j] = i;
  }
  for (int i = 0; i < T.mesh.natoms; i++) {
    int a = order[i], where = (int)next(s, (unsigned)rank + 2);
    Atoms *to = where < rank ? &dims[where] : where == rank && (!must || must[a]) ? pending : NULL;
    if (to) to->atom[to->n++] = a;
  }
}

/* The dim becomes a window onto what random reads of its chunks need; its buffer has room for the largest rank's. */
static void make_window(dtrt_Dim *d, int nranks, unsigned *s) {
  int64_t k = 1, of = 1 + (int64_t)next(s, 10);
  for (int j = 0; j < d->n; j++) k *= d->digit[j].size;
  static const int64_t muls[] = {1, 1, 1, 2, 3, 0, -1, -2};
  d->window = (dtrt_Window){of, (of + k - 1) / k, muls[next(s, 8)], (int64_t)next(s, 7) - 3, 0, 1 + (int64_t)next(s, 3)};
  d->window.hi = d->window.lo + (int64_t)next(s, 4);
  d->chunk = 0;
  for (int r = 0; r < nranks; r++) {
    int64_t lo, n;
    dtrt_range(&(dtrt_Context){.rank = r}, d, &lo, &n);
    if (n > d->chunk) d->chunk = n;
  }
}

static void make_buffer(Buffer *b, int nranks, int64_t *arena, unsigned *s) {
  static const dtrt_dtype types[] = {DTRT_F32, DTRT_F32, DTRT_F64, DTRT_I32, DTRT_I64, DTRT_BOOL};
  *b = (Buffer){0};
  int rank = (int)next(s, 4);
  Atoms from[DTRT_MAX_RANK] = {0}, to[DTRT_MAX_RANK] = {0};
  b->from.dtype = types[next(s, 6)];
  b->from.rank = rank;
  b->from.reduce = (dtrt_reduce)(1 + next(s, 4));
  for (int i = 0; i < rank; i++) b->from.dim[i].size = (int64_t)next(s, 10);
  b->to = b->from;
  deal(from, rank, &b->pending_from, NULL, s);
  bool must[MAX_ATOMS] = {0};
  for (int i = 0; i < b->pending_from.n; i++) must[b->pending_from.atom[i]] = true;
  bool all_reduce = next(s, 3) == 0;
  if (all_reduce)
    memcpy(to, from, sizeof to);
  else
    deal(to, rank, &b->pending_to, must, s);
  fill_layout(&b->from, from, &b->pending_from, s);
  fill_layout(&b->to, to, &b->pending_to, s);
  for (int i = 0; i < rank && !all_reduce && b->pending_to.n == 0; i++)
    if (next(s, 3) == 0) make_window(&b->to.dim[i], nranks, s);
  size_t size = b->from.dtype == DTRT_BOOL ? 1 : b->from.dtype == DTRT_F64 || b->from.dtype == DTRT_I64 ? 8 : 4;
  int64_t nf = 1, nt = 1;
  bool equal = true;
  for (int i = 0; i < rank; i++) {
    nf *= b->from.dim[i].chunk, nt *= b->to.dim[i].chunk;
    equal &= b->from.dim[i].chunk == b->to.dim[i].chunk;
  }
  b->in_place = equal && next(s, 2);
  b->src = *arena;
  *arena += (nf * (int64_t)size + 63) / 64 * 64;
  b->dst = b->in_place ? b->src : *arena;
  if (!b->in_place) *arena += (nt * (int64_t)size + 63) / 64 * 64;
}

/* ---- checking, in the ranks ---- */

static int64_t contribution(const Buffer *b, int64_t e, int rank, const int *instead) {
  int64_t v = e * 7 + 3;
  for (int i = 0; i < b->pending_from.n; i++) {
    int a = b->pending_from.atom[i], d = instead && instead[a] >= 0 ? instead[a] : digit_of(T.mesh.atom[a], rank);
    v += d * (13 + 6 * a);
  }
  int64_t few = b->from.dtype == DTRT_BOOL ? 2 : b->from.reduce == DTRT_PROD ? 3 : 41;
  return b->from.dtype == DTRT_BOOL ? v % 3 == 0 : v % few + (b->from.reduce == DTRT_PROD);
}

static int64_t combine(const Buffer *b, int64_t x, int64_t y) {
  bool bools = b->from.dtype == DTRT_BOOL;
  switch (b->from.reduce) {
  case DTRT_SUM: return bools ? x | y : x + y;
  case DTRT_PROD: return x * y;
  case DTRT_MAX: return x > y ? x : y;
  default: return x < y ? x : y;
  }
}

/* Element e as rank must hold it afterwards: reduced over the atoms that are pending before but not after. */
static int64_t expected(const Buffer *b, int64_t e, int rank) {
  int gone[MAX_ATOMS], n = 0, instead[MAX_ATOMS] = {-1, -1, -1, -1}, count = 1;
  for (int i = 0; i < b->pending_from.n; i++) {
    bool kept = false;
    for (int j = 0; j < b->pending_to.n; j++) kept |= b->pending_to.atom[j] == b->pending_from.atom[i];
    if (!kept) gone[n++] = b->pending_from.atom[i], count *= T.mesh.atom[b->pending_from.atom[i]].size;
  }
  int64_t v = 0;
  for (int c = 0; c < count; c++) {
    for (int i = 0, rest = c; i < n; i++) {
      instead[gone[i]] = rest % T.mesh.atom[gone[i]].size;
      rest /= T.mesh.atom[gone[i]].size;
    }
    int64_t x = contribution(b, e, rank, instead);
    v = c ? combine(b, v, x) : x;
  }
  return v;
}

static void put(dtrt_dtype t, char *at, int64_t i, int64_t v) {
  if (t == DTRT_F32) ((float *)at)[i] = (float)v;
  if (t == DTRT_F64) ((double *)at)[i] = (double)v;
  if (t == DTRT_I32) ((int32_t *)at)[i] = (int32_t)v;
  if (t == DTRT_I64) ((int64_t *)at)[i] = v;
  if (t == DTRT_BOOL) at[i] = (char)v;
}
static int64_t get(dtrt_dtype t, const char *at, int64_t i) {
  if (t == DTRT_F32) return (int64_t)((const float *)at)[i];
  if (t == DTRT_F64) return (int64_t)((const double *)at)[i];
  if (t == DTRT_I32) return ((const int32_t *)at)[i];
  if (t == DTRT_I64) return ((const int64_t *)at)[i];
  return at[i];
}

enum { POISON = 99 };

/* Local element i of rank's buffer: its global number, or -1 beyond the extent. */
static int64_t global(const dtrt_Context *cx, const dtrt_Layout *l, int64_t i) {
  int64_t e = 0, scale = 1;
  for (int d = l->rank - 1; d >= 0; d--) {
    int64_t lo, n, at = i % l->dim[d].chunk;
    dtrt_range(cx, &l->dim[d], &lo, &n);
    if (at >= n) return -1;
    e += (lo + at) * scale;
    scale *= l->dim[d].size;
    i /= l->dim[d].chunk;
  }
  return e;
}
static int64_t local_elements(const dtrt_Layout *l) {
  int64_t n = 1;
  for (int d = 0; d < l->rank; d++) n *= l->dim[d].chunk;
  return n;
}

static size_t local_bytes(const dtrt_Layout *l) { return (size_t)local_elements(l) * rt_dtype_size(l->dtype); }

static void set_up(dtrt_Context *cx, const Buffer *b) {
  size_t from = local_bytes(&b->from), to = local_bytes(&b->to);
  char *dst = rt_borrow(cx->comm, cx->arena + b->dst, to, false);
  for (int64_t i = 0; i < local_elements(&b->to); i++) put(b->to.dtype, dst, i, b->to.dtype == DTRT_BOOL ? 1 : POISON);
  rt_return(cx->comm, cx->arena + b->dst, dst, to);
  char *src = rt_borrow(cx->comm, cx->arena + b->src, from, false);
  for (int64_t i = 0; i < local_elements(&b->from); i++) {
    int64_t e = global(cx, &b->from, i);
    put(b->from.dtype, src, i, e < 0 ? b->to.dtype == DTRT_BOOL ? 1 : POISON : contribution(b, e, cx->rank, NULL));
  }
  rt_return(cx->comm, cx->arena + b->src, src, from);
}

static void check_result(dtrt_Context *cx, const Buffer *b, const char *dst, const char *what) {
  for (int64_t i = 0; i < local_elements(&b->to); i++) {
    int64_t e = global(cx, &b->to, i), want = e < 0 ? (b->to.dtype == DTRT_BOOL ? 1 : POISON) : expected(b, e, cx->rank);
    if (e < 0 && b->in_place) continue; /* what the source had there */
    if (get(b->to.dtype, dst, i) != want) dtrt_out_of_range(cx, get(b->to.dtype, dst, i), want, what, (int)i);
  }
}

static void check_source(dtrt_Context *cx, const Buffer *b, const char *src, int id) {
  for (int64_t i = 0; i < local_elements(&b->from) && !b->in_place; i++) {
    int64_t e = global(cx, &b->from, i),
            want = e < 0 ? (b->to.dtype == DTRT_BOOL ? 1 : POISON) : contribution(b, e, cx->rank, NULL);
    if (get(b->from.dtype, src, i) != want) dtrt_out_of_range(cx, get(b->from.dtype, src, i), want, "source changed", id);
  }
}

static void check(dtrt_Context *cx, const Buffer *b, int id, int k) {
  char what[64];
  snprintf(what, sizeof what, "collective %d buffer %d rank %d", id, k, cx->rank);
  char *dst = rt_borrow(cx->comm, cx->arena + b->dst, local_bytes(&b->to), true);
  check_result(cx, b, dst, what);
  rt_return(cx->comm, NULL, dst, local_bytes(&b->to));
  char *src = rt_borrow(cx->comm, cx->arena + b->src, local_bytes(&b->from), true);
  check_source(cx, b, src, id);
  rt_return(cx->comm, NULL, src, local_bytes(&b->from));
}

static void start(dtrt_Context *cx, int id) {
  const void *src[NBUF];
  void *dst[NBUF];
  for (int k = 0; k < T.coll[id].nbuf; k++) {
    set_up(cx, &T.buf[id][k]);
    src[k] = cx->arena + T.buf[id][k].src;
    dst[k] = cx->arena + T.buf[id][k].dst;
  }
  dtrt_start(cx, id, src, dst);
}

static void finish(dtrt_Context *cx, int id) {
  dtrt_wait(cx, id);
  for (int k = 0; k < T.coll[id].nbuf; k++) check(cx, &T.buf[id][k], id, k);
}

static void forward(dtrt_Context *cx) {
  for (int id = 0; id < NCOLL; id += AT_ONCE) {
    for (int i = 0; i < AT_ONCE; i++) start(cx, id + i);
    for (int i = AT_ONCE - 1; i >= 0; i--) finish(cx, id + (id / AT_ONCE + i) % AT_ONCE);
  }
}

static void run_seed(unsigned seed, const int *sizes) {
  unsigned s = seed * 2654435761u + 17;
  int64_t arena = 0;
  int nranks = 1;
  memset(&T, 0, sizeof T);
  for (; sizes[T.mesh.natoms]; T.mesh.natoms++) nranks *= sizes[T.mesh.natoms];
  for (int i = 0, stride = nranks; i < T.mesh.natoms; i++) {
    stride /= sizes[i];
    T.mesh.atom[i] = (dtrt_Digit){stride, sizes[i]};
  }
  for (int id = 0; id < NCOLL; id++) {
    dtrt_Collective *c = &T.coll[id];
    *c = (dtrt_Collective){.kind = "exchange", .axes = "all", .file = "random", .line = id, .nbuf = 1 + (int)next(&s, NBUF)};
    c->from = T.from[id], c->to = T.to[id];
    for (int k = 0; k < c->nbuf; k++) {
      make_buffer(&T.buf[id][k], nranks, &arena, &s);
      T.from[id][k] = T.buf[id][k].from, T.to[id][k] = T.buf[id][k].to;
    }
    for (int a = 0; a < T.mesh.natoms; a++) { /* every atom that is used anywhere, and some that are not */
      bool used = next(&s, 4) == 0;
      for (int k = 0; k < c->nbuf; k++)
        for (int side = 0; side < 2; side++) {
          const dtrt_Layout *l = side ? &c->to[k] : &c->from[k];
          for (int d = 0; d <= l->rank; d++) {
            const dtrt_Digit *g = d < l->rank ? l->dim[d].digit : l->pending;
            for (int i = 0, n = d < l->rank ? l->dim[d].n : l->npending; i < n; i++)
              used |= g[i].stride <= T.mesh.atom[a].stride && T.mesh.atom[a].stride < g[i].stride * g[i].size;
          }
        }
      if (used) c->over[c->nover++] = T.mesh.atom[a];
    }
  }
  dtrt_Program p = {.abi = DTRT_ABI,
                    .source = "comm",
                    .version = "test",
                    .nranks = nranks,
                    .arena_bytes = arena,
                    .staging_bytes = 1 << 20,
                    .ncollectives = NCOLL,
                    .collective = T.coll,
                    .forward = forward};
  Ran r = RUN(&p);
  if (r.rc) unit_fail(__FILE__, __LINE__, "seed %u on %d ranks: exit %d\n%s", seed, nranks, r.rc, r.text);
}

UNIT(random_layout_pairs_on_one_to_eight_ranks) {
  static const int mesh[][MAX_ATOMS + 1] = {{1}, {2}, {3}, {2, 2}, {5}, {3, 2}, {7}, {2, 2, 2}, {2, 3}, {4, 2}, {2, 1, 2}};
  const char *more = getenv("DTC_RUNTIME_SEEDS");
  unsigned seeds = more ? (unsigned)atoi(more) : 44;
  for (unsigned seed = 0; seed < seeds; seed++) run_seed(seed, mesh[seed % (sizeof mesh / sizeof *mesh)]);
}

/* ---- an all-reduce beyond the caches: slices, stores past the caches ---- */

enum { BIG = 3000017 };
static void big_forward(dtrt_Context *cx) {
  float *x = (float *)cx->arena, *y = x + BIG;
  size_t bytes = 2 * BIG * sizeof *x;
  for (int round = 0; round < 2; round++) {
    float *view = rt_borrow(cx->comm, x, bytes, false);
    for (int64_t i = 0; i < BIG; i++) view[i] = (float)((i + cx->rank * 31) % 1000), view[BIG + i] = -1;
    rt_return(cx->comm, x, view, bytes);
    dtrt_collective(cx, round, (const void *[]){x}, (void *[]){round ? y : x});
    view = rt_borrow(cx->comm, x, bytes, true);
    for (int64_t i = 0; i < BIG; i++) {
      float want = 0, got = view[round * BIG + i];
      for (int r = 0; r < cx->nranks; r++) want += (float)((i + r * 31) % 1000);
      if (got != want) dtrt_out_of_range(cx, (int64_t)got, (int64_t)want, "big", (int)i);
    }
    rt_return(cx->comm, NULL, view, bytes);
  }
}

UNIT(all_reduce_larger_than_the_caches) {
  dtrt_Layout from = LAYOUT(DTRT_F32, BIG), to = from;
  from.npending = 1;
  from.pending[0] = (dtrt_Digit){1, 3};
  dtrt_Collective c = {"all_reduce", "data", "big", 1, 1, &from, &to, 1, {{1, 3}}};
  dtrt_Program p = {.abi = DTRT_ABI,
                    .source = "big",
                    .version = "test",
                    .nranks = 3,
                    .arena_bytes = 2 * BIG * 4,
                    .ncollectives = 2,
                    .collective = (dtrt_Collective[]){c, c},
                    .forward = big_forward};
  Ran r = RUN(&p);
  if (r.rc) unit_fail(__FILE__, __LINE__, "exit %d\n%s", r.rc, r.text);
}
