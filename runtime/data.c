/* data.c: fills the inputs of a step from files. A file is items of equal size: rows of a .npy table, or windows of
   T + 1 tokens at stride T. Row i of the batch at step s is item number s * B + i of an endless sequence that runs
   through all items again and again, each time in an order that is a pure function of the seed, the number of the
   round (epoch) and how many items there are; so resuming needs only the step, and tables of equal length stay
   together. A rank copies only its own box.

     5 rows, batch 2, in file order:  step 0: 0 1   step 1: 2 3   step 2: 4 0 (epoch 1)   ...

   The leading dims of an input number the batch's rows (one dim of a table, all but the last of tokens), the others
   lie inside an item; both are walked as pieces (layout.c). */
#include "rt.h"

#include <inttypes.h>

#include "runtime/dtrt_random.h"

enum { TOKEN_HEADER = 1024, SCAN_BYTES = 256 << 20 };

struct Source {
  Mapped map;
  const unsigned char *data;
  dtrt_dtype dtype;             /* of .npy */
  int width;                    /* bytes of a token, or 0: .npy */
  int64_t elements;             /* in the file */
  int64_t items, stride, first; /* element e of item i is first + i * stride + e of the file */
  int64_t batch;                /* rows per step over all ranks */
  Piece rows, inner;
  int64_t local; /* elements of a row in this rank's buffer */
  bool prepared; /* rows, inner, local */
};

/* ---- order ---- */

/* A Feistel network over the next even number of bits is a bijection; numbers beyond n are sent through it again
   until they land inside (on average fewer than four times). */
static uint64_t permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t at) {
  enum { ROUNDS = 8 };
  int half = 1;
  while (half < 32 && (n - 1) >> (2 * half)) half++;
  uint64_t mask = ((uint64_t)1 << half) - 1, key = dtrt_random_mix(dtrt_random_mix(dtrt_random_mix(seed) ^ epoch) ^ n);
  do {
    uint64_t left = at >> half, right = at & mask;
    for (uint64_t r = 0; r < ROUNDS; r++) {
      uint64_t next = left ^ (dtrt_random_mix(key ^ dtrt_random_mix(right * ROUNDS + r)) & mask);
      left = right;
      right = next;
    }
    at = left << half | right;
  } while (at >= n);
  return at;
}

static int64_t item_of(const Rt *rt, const dtrt_Leaf *l, const Source *s, int64_t number) {
  uint64_t n = (uint64_t)s->items, epoch = (uint64_t)number / n, at = (uint64_t)number % n;
  return (int64_t)(l->shuffle ? permute(rt->o.seed, epoch, n, at) : at);
}

/* ---- values ---- */

static int64_t token(const Source *s, int64_t i) {
  uint16_t h;
  uint32_t w;
  const unsigned char *p = s->data + i * s->width;
  if (s->width == 1) return *p;
  if (s->width == 2) return memcpy(&h, p, 2), h;
  return memcpy(&w, p, 4), w;
}

/* Elements [at, at + n) of the file as the leaf's type. */
static void fetch(const Source *s, dtrt_dtype t, int64_t at, int64_t n, void *dst) {
  if (!s->width) {
    memcpy(dst, s->data + (size_t)at * rt_dtype_size(t), (size_t)n * rt_dtype_size(t));
  } else if (t == DTRT_I64) {
    for (int64_t i = 0; i < n; i++) ((int64_t *)dst)[i] = token(s, at + i);
  } else {
    for (int64_t i = 0; i < n; i++) ((int32_t *)dst)[i] = (int32_t)token(s, at + i);
  }
}

static void check_limit(Rt *rt, const dtrt_Leaf *l, const Source *s, int64_t at, int64_t n, const void *v) {
  if (!l->limit || rt_is_real(l->layout.dtype) || l->layout.dtype == DTRT_BOOL) return;
  if (s->width == 1 && l->limit >= 256) return;
  for (int64_t i = 0; i < n; i++) {
    int64_t x = l->layout.dtype == DTRT_I64 ? ((const int64_t *)v)[i] : ((const int32_t *)v)[i];
    if (x >= 0 && x < l->limit) continue;
    rt_fail(rt, EXIT_DATA,
            "%s: the value %" PRId64 " at position %" PRId64 " is outside %s = %" PRId64 ", which the input %s (%s:%d) needs",
            s->map.name, x, at + i, l->limit_dim ? l->limit_dim : "the dim", l->limit, l->name, rt->p->source, l->line);
  }
}

/* Looks at a whole file before anything runs, unless it is huge: then each batch is checked as it is loaded. */
static void scan(Rt *rt, const dtrt_Leaf *l, const Source *s) {
  enum { STEP = 4096 };
  int64_t buffer[STEP];
  if (!l->limit || s->map.bytes > SCAN_BYTES || (s->width == 1 && l->limit >= 256)) return;
  for (int64_t at = 0; at < s->elements; at += STEP) {
    int64_t n = s->elements - at < STEP ? s->elements - at : STEP;
    fetch(s, l->layout.dtype, at, n, buffer);
    check_limit(rt, l, s, at, n, buffer);
  }
}

/* ---- opening ---- */

/* How many leading dims number the rows. */
static int leading(const dtrt_Leaf *l) {
  return l->source == DTRT_NEXT_TOKEN && l->layout.rank ? l->layout.rank - 1 : l->layout.rank ? 1 : 0;
}

static dtrt_Layout dims_of(const dtrt_Layout *l, int from, int to) {
  dtrt_Layout part = {.dtype = l->dtype, .rank = to - from};
  for (int i = from; i < to; i++) part.dim[i - from] = l->dim[i];
  return part;
}

static bool same_pair(const dtrt_Leaf *a, const dtrt_Leaf *b) {
  return a->source == DTRT_NEXT_TOKEN && b->source == DTRT_NEXT_TOKEN && a->line == b->line && strcmp(a->file, b->file) == 0;
}

/* The file of an input: --data for its name, else for the other name of its pair (tokens and the same shifted by
   one), else the program's, in --data-dir. */
static const char *file_of(const Rt *rt, const dtrt_Leaf *l) {
  const char *pair = NULL;
  for (int i = rt->o.ndata - 1; i >= 0; i--) {
    if (strcmp(rt->o.data[i].name, l->name) == 0) return rt->o.data[i].file;
    for (int k = 0; k < rt->p->nleaves && !pair; k++) {
      const dtrt_Leaf *other = &rt->p->leaf[k];
      if (other->kind == DTRT_INPUT && strcmp(rt->o.data[i].name, other->name) == 0 && same_pair(l, other))
        pair = rt->o.data[i].file;
    }
  }
  if (pair) return pair;
  if (!rt->o.data_dir || l->file[0] == '/') return l->file;
  size_t n = strlen(rt->o.data_dir) + strlen(l->file) + 2;
  char *path = rt_alloc(n, 1);
  snprintf(path, n, "%s/%s", rt->o.data_dir, l->file);
  return path;
}

/* llm.c's token files say what they are in their first word; anything else is bytes. */
static const char *open_tokens(const dtrt_Leaf *l, Source *s) {
  uint32_t header[3] = {0};
  s->data = s->map.at;
  s->width = 1;
  s->elements = s->map.bytes;
  if (s->map.bytes >= (int64_t)sizeof header) memcpy(header, s->map.at, sizeof header);
  if (header[0] == 20240520 || header[0] == 20240801) {
    uint32_t version = header[0] == 20240520 ? 1 : 7;
    s->width = header[0] == 20240520 ? 2 : 4;
    if (header[1] != version) return "it has a token file's magic number but another version";
    if (s->map.bytes < TOKEN_HEADER) return "it is cut off";
    s->elements = header[2];
    if (s->map.bytes - TOKEN_HEADER < s->elements * s->width) return "it is cut off: it has fewer tokens than its header says";
    if (s->map.bytes - TOKEN_HEADER > s->elements * s->width) return "it has more bytes than its header says";
    s->data += TOKEN_HEADER;
  }
  s->stride = l->layout.rank ? l->layout.dim[l->layout.rank - 1].size : 1;
  s->first = l->part;
  s->items = s->stride ? (s->elements - 1) / s->stride : 0;
  return s->items > 0 ? NULL : "it is shorter than one window of T + 1 tokens";
}

static const char *open_table(const dtrt_Leaf *l, Source *s, char *why) {
  NpyArray a;
  if (!rt_npy_read(&s->map, &a, why)) return why;
  s->data = a.data;
  s->elements = a.elements;
  s->stride = 1;
  int n = leading(l);
  bool fits = a.rank == (l->layout.rank ? l->layout.rank : 1);
  for (int i = n; i < l->layout.rank && fits; i++) {
    fits = a.dim[i] == l->layout.dim[i].size;
    s->stride *= a.dim[i];
  }
  int k = 0;
  char has[512], wants[512];
  k = snprintf(has, sizeof has, "%s[", rt_dtype_name(a.dtype));
  for (int i = 0; i < a.rank && k < 400; i++)
    k += snprintf(has + k, sizeof has - (size_t)k, "%s%" PRId64, i ? ", " : "", a.dim[i]);
  k = snprintf(wants, sizeof wants, "%s[rows", rt_dtype_name(l->layout.dtype));
  for (int i = n; i < l->layout.rank; i++)
    k += snprintf(wants + k, sizeof wants - (size_t)k, ", %" PRId64, l->layout.dim[i].size);
  if (!fits || a.dtype != l->layout.dtype) {
    snprintf(why, RT_MESSAGE, "%s is %s], but the input %s needs %s]", s->map.name, has, l->name, wants);
    return why;
  }
  s->items = a.dim[0];
  return s->items > 0 ? NULL : "it has no rows";
}

static void open_source(Rt *rt, const dtrt_Leaf *l, Source *s) {
  char why[RT_MESSAGE];
  if (!rt_map(file_of(rt, l), &s->map, why)) rt_fail(rt, EXIT_DATA, "input %s (%s:%d): %s", l->name, rt->p->source, l->line, why);
  const char *wrong = l->source == DTRT_TABLE ? open_table(l, s, why) : open_tokens(l, s);
  if (wrong == why) rt_fail(rt, EXIT_DATA, "input %s (%s:%d): %s", l->name, rt->p->source, l->line, why);
  if (wrong) rt_fail(rt, EXIT_DATA, "input %s (%s:%d): cannot use %s: %s", l->name, rt->p->source, l->line, s->map.name, wrong);
  s->batch = 1;
  for (int i = 0; i < leading(l); i++) s->batch *= l->layout.dim[i].size;
  scan(rt, l, s);
}

void rt_data_open(Rt *rt) {
  rt->source = rt_alloc((size_t)rt->p->nleaves, sizeof *rt->source);
  for (int i = 0; i < rt->p->nleaves; i++)
    if (rt->p->leaf[i].kind == DTRT_INPUT) open_source(rt, &rt->p->leaf[i], &rt->source[i]);
}

/* ---- loading ---- */

/* Which of the layout's elements this rank holds, as a piece of the whole. */
static Piece own_piece(const dtrt_Layout *l, int rank) {
  dtrt_Layout whole = rt_unsplit(l);
  RtBox all = rt_box(&whole, rank), mine = rt_box(l, rank);
  return rt_piece(&mine, &all, &whole, &mine, l);
}

static void prepare(const Rt *rt, const dtrt_Leaf *l, Source *s) {
  dtrt_Layout rows = dims_of(&l->layout, 0, leading(l)), inner = dims_of(&l->layout, leading(l), l->layout.rank);
  s->rows = own_piece(&rows, rt->rank);
  s->inner = own_piece(&inner, rt->rank);
  s->local = rt_local_elements(&inner);
  s->prepared = true;
}

static void load_row(Rt *rt, const dtrt_Leaf *l, const Source *s, int64_t item, char *dst) {
  size_t size = rt_dtype_size(l->layout.dtype);
  for (Runs r = rt_runs(&s->inner, 0, s->inner.elements); rt_next_run(&r);) {
    int64_t at = s->first + item * s->stride + r.s;
    fetch(s, l->layout.dtype, at, r.n, dst + (size_t)r.d * size);
    check_limit(rt, l, s, at, r.n, dst + (size_t)r.d * size);
  }
}

static void load(Rt *rt, const dtrt_Leaf *l, Source *s, int64_t step) {
  if (!s->prepared) prepare(rt, l, s);
  size_t row = (size_t)s->local * rt_dtype_size(l->layout.dtype),
         bytes = (size_t)rt_local_elements(&l->layout) * rt_dtype_size(l->layout.dtype);
  char *base = rt_borrow(rt, rt->cx.arena + l->offset, bytes, false);
  for (Runs r = rt_runs(&s->rows, 0, s->rows.elements); rt_next_run(&r);)
    for (int64_t k = 0; k < r.n; k++)
      load_row(rt, l, s, item_of(rt, l, s, step * s->batch + r.s + k), base + (size_t)(r.d + k) * row);
  rt_return(rt, rt->cx.arena + l->offset, base, bytes);
}

void rt_data_load(Rt *rt, int64_t step) {
  for (int i = 0; i < rt->p->nleaves; i++)
    if (rt->p->leaf[i].kind == DTRT_INPUT) load(rt, &rt->p->leaf[i], &rt->source[i], step);
}

void rt_data_describe(const Rt *rt, FILE *out) {
  for (int i = 0; i < rt->p->nleaves; i++) {
    const dtrt_Leaf *l = &rt->p->leaf[i];
    const Source *s = &rt->source[i];
    if (l->kind != DTRT_INPUT) continue;
    fprintf(out, "  %-11s ", l->name);
    if (l->source == DTRT_TABLE)
      fprintf(out, "%s, %" PRId64 " rows\n", s->map.name, s->items);
    else
      fprintf(out, "%s, %" PRId64 " tokens, %" PRId64 " windows of %" PRId64 "\n", s->map.name, s->elements, s->items, s->stride);
  }
}
