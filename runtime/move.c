/* move.c: runs of elements copied, reduced, converted.

   A reduction works in blocks that stay in the L1 cache: the first two sources are combined into the block, the
   others are added to it in order, then it is stored to every destination. So a source may be a destination, and
   memory is read once per source and written once per destination. Where the result outgrows the caches, stores go
   past them (1.4 times as fast: no line is read in order to be overwritten). */
#include "rt.h"

#include <math.h>
#ifdef __AVX__
#include <immintrin.h>
#endif

enum { BLOCK_BYTES = 8192 };

/* ---- runs ---- */

Runs rt_runs(const Piece *p, int64_t at, int64_t end) {
  Runs r = {.p = p, .left = end - at, .in_run = p->run ? at % p->run : 0, .s = p->soff, .d = p->doff};
  if (p->elements == 0 || at >= end) return (Runs){.p = p};
  int64_t row = at / p->run;
  for (int i = p->nloops - 1; i >= 0; i--) {
    r.i[i] = row % p->count[i];
    row /= p->count[i];
    r.s += r.i[i] * p->sstep[i];
    r.d += r.i[i] * p->dstep[i];
  }
  r.s += r.in_run;
  r.d += r.in_run;
  return r;
}

/* From the end of a run to the start of the next. */
static void advance(Runs *r) {
  const Piece *p = r->p;
  r->s -= p->run; /* s and d stand behind the run that was handed out */
  r->d -= p->run;
  for (int i = p->nloops - 1; i >= 0; i--) {
    r->s += p->sstep[i];
    r->d += p->dstep[i];
    if (++r->i[i] < p->count[i]) return;
    r->s -= p->sstep[i] * p->count[i];
    r->d -= p->dstep[i] * p->count[i];
    r->i[i] = 0;
  }
}

bool rt_next_run(Runs *r) {
  if (r->n) { /* not the first */
    r->s += r->n;
    r->d += r->n;
    r->in_run = 0;
    if (r->left > 0) advance(r);
  }
  if (r->left <= 0) return false;
  int64_t rest = r->p->run - r->in_run;
  r->n = rest < r->left ? rest : r->left;
  r->left -= r->n;
  return true;
}

/* ---- stores ---- */

#if defined(__AVX512F__)
enum { LINE = 64 };
static void stream_line(char *d, const char *s) { _mm512_stream_si512((void *)d, _mm512_loadu_si512(s)); }
#elif defined(__AVX__)
enum { LINE = 64 };
static void stream_line(char *d, const char *s) {
  _mm256_stream_si256((void *)d, _mm256_loadu_si256((const void *)s));
  _mm256_stream_si256((void *)(d + 32), _mm256_loadu_si256((const void *)(s + 32)));
}
#else
enum { LINE = 64 };
static void stream_line(char *d, const char *s) { memcpy(d, s, LINE); }
#endif

void rt_copy(void *dst, const void *src, size_t bytes, bool stream) {
  char *d = dst;
  const char *s = src;
  if (!stream || bytes < 4 * LINE) {
    memcpy(d, s, bytes);
    return;
  }
  size_t head = (LINE - (uintptr_t)d % LINE) % LINE, lines = (bytes - head) / LINE;
  memcpy(d, s, head);
  d += head, s += head;
  for (size_t i = 0; i < lines; i++) stream_line(d + i * LINE, s + i * LINE);
  memcpy(d + lines * LINE, s + lines * LINE, bytes - head - lines * LINE);
}

void rt_stream_end(void) {
#ifdef __SSE__
  __builtin_ia32_sfence();
#endif
}

/* ---- reductions ---- */

/* A maximum or minimum of a NaN is a NaN, so that a bad number is not lost on its way to the loss. */
#define MAX_OF(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define MIN_OF(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
/* out = a op b; out may be a. U: the type in which + and * cannot overflow undefinedly. */
#define COMBINE(NAME, T, U)                                                                                                      \
  static void NAME(dtrt_reduce op, T *out, const T *a, const T *b, int64_t n) {                                                  \
    switch (op) {                                                                                                                \
    case DTRT_NONE: return;                                                                                                      \
    case DTRT_SUM:                                                                                                               \
      for (int64_t i = 0; i < n; i++) out[i] = (T)((U)a[i] + (U)b[i]);                                                           \
      return;                                                                                                                    \
    case DTRT_PROD:                                                                                                              \
      for (int64_t i = 0; i < n; i++) out[i] = (T)((U)a[i] * (U)b[i]);                                                           \
      return;                                                                                                                    \
    case DTRT_MAX:                                                                                                               \
      for (int64_t i = 0; i < n; i++) out[i] = MAX_OF(a[i], b[i]);                                                               \
      return;                                                                                                                    \
    case DTRT_MIN:                                                                                                               \
      for (int64_t i = 0; i < n; i++) out[i] = MIN_OF(a[i], b[i]);                                                               \
      return;                                                                                                                    \
    }                                                                                                                            \
  }
COMBINE(combine_f32, float, float)
COMBINE(combine_f64, double, double)
COMBINE(combine_i32, int32_t, uint32_t)
COMBINE(combine_i64, int64_t, uint64_t)

static void combine_bool(dtrt_reduce op, bool *out, const bool *a, const bool *b, int64_t n) {
  bool any = op == DTRT_SUM || op == DTRT_MAX; /* else all */
  for (int64_t i = 0; i < n; i++) out[i] = any ? a[i] | b[i] : a[i] & b[i];
}

static void combine(dtrt_dtype t, dtrt_reduce op, void *out, const void *a, const void *b, int64_t n) {
  switch (t) {
  case DTRT_F32: combine_f32(op, out, a, b, n); return;
  case DTRT_F64: combine_f64(op, out, a, b, n); return;
  case DTRT_I32: combine_i32(op, out, a, b, n); return;
  case DTRT_I64: combine_i64(op, out, a, b, n); return;
  case DTRT_BOOL: combine_bool(op, out, a, b, n); return;
  default: return; /* rt_can_reduce */
  }
}

bool rt_can_reduce(dtrt_dtype t) { return t != DTRT_BF16 && t != DTRT_F16; }

void rt_reduce(dtrt_dtype t, dtrt_reduce op, int nsrc, const char *const *src, int ndst, char *const *dst, int64_t n,
               bool stream) {
  _Alignas(64) char block[BLOCK_BYTES];
  size_t size = rt_dtype_size(t);
  int64_t step = BLOCK_BYTES / (int64_t)size;
  for (int64_t at = 0; at < n; at += step) {
    int64_t k = n - at < step ? n - at : step;
    size_t offset = (size_t)at * size, bytes = (size_t)k * size;
    if (nsrc == 1)
      memcpy(block, src[0] + offset, bytes);
    else
      combine(t, op, block, src[0] + offset, src[1] + offset, k);
    for (int s = 2; s < nsrc; s++) combine(t, op, block, block, src[s] + offset, k);
    for (int d = 0; d < ndst; d++) rt_copy(dst[d] + offset, block, bytes, stream);
  }
}

void rt_fill_identity(dtrt_dtype t, dtrt_reduce op, void *dst, int64_t n) {
  bool least = op == DTRT_MAX;
  for (int64_t i = 0; i < n; i++) switch (t) {
    case DTRT_F32: ((float *)dst)[i] = op == DTRT_SUM ? 0 : op == DTRT_PROD ? 1 : least ? -INFINITY : INFINITY; break;
    case DTRT_F64: ((double *)dst)[i] = op == DTRT_SUM ? 0 : op == DTRT_PROD ? 1 : least ? -INFINITY : INFINITY; break;
    case DTRT_I32: ((int32_t *)dst)[i] = op == DTRT_SUM ? 0 : op == DTRT_PROD ? 1 : least ? INT32_MIN : INT32_MAX; break;
    case DTRT_I64: ((int64_t *)dst)[i] = op == DTRT_SUM ? 0 : op == DTRT_PROD ? 1 : least ? INT64_MIN : INT64_MAX; break;
    case DTRT_BOOL: ((bool *)dst)[i] = op == DTRT_PROD || op == DTRT_MIN; break;
    default: break; /* rt_can_reduce */
    }
}

/* ---- conversions ---- */

static double real_at(dtrt_dtype t, const char *src) { /* a file's elements need not be aligned */
  uint16_t h;
  uint32_t w;
  float f;
  double d;
  _Float16 half;
  switch (t) {
  case DTRT_F64: memcpy(&d, src, 8); return d;
  case DTRT_F32: memcpy(&f, src, 4); return f;
  case DTRT_F16: memcpy(&half, src, 2); return (double)half;
  default: /* bf16: the upper half of an f32 */
    memcpy(&h, src, 2);
    w = (uint32_t)h << 16;
    memcpy(&f, &w, 4);
    return f;
  }
}

static void put_real(dtrt_dtype t, char *dst, double v) {
  float f = (float)v;
  _Float16 half = (_Float16)v;
  uint32_t w;
  memcpy(&w, &f, 4);
  uint16_t h = (uint16_t)(f != f ? w >> 16 | 0x40 : (w + 0x7fff + (w >> 16 & 1)) >> 16); /* to nearest even */
  switch (t) {
  case DTRT_F64: memcpy(dst, &v, 8); return;
  case DTRT_F32: memcpy(dst, &f, 4); return;
  case DTRT_F16: memcpy(dst, &half, 2); return;
  default: memcpy(dst, &h, 2); return;
  }
}

void rt_convert(dtrt_dtype to, void *dst, dtrt_dtype from, const void *src, int64_t n) {
  if (to == from) {
    memcpy(dst, src, (size_t)n * rt_dtype_size(to));
    return;
  }
  for (int64_t i = 0; i < n; i++)
    put_real(to, (char *)dst + (size_t)i * rt_dtype_size(to), real_at(from, (const char *)src + (size_t)i * rt_dtype_size(from)));
}
