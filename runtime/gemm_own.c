/* gemm_own.c: matrix products in portable vector C, for machines where no library is ahead of it.

     rt_product(false, true, m, n, k, 1, a, lda, b, ldb, false, c, ldc)      C[m,n] = A[m,k] B[n,k]^T

   After Goto & van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008). A panel of DEPTH rows of B is
   packed in strips of COLUMNS, which stay in the L1 while BLOCK rows of A pass; ROWS x COLUMNS sums stay in registers. A
   is packed only where its columns lie apart (ta); otherwise it is read in place, and while one block of it is worked
   on, the next is fetched into the L2. A strip of 384 x 16 floats is 24 KiB, a block of 96 x 384 is 144 KiB. Sums are
   taken in pieces of DEPTH terms, in the order of k: the same operands give the same bits. */
#include "rt.h"

#ifdef __AVX512F__
enum { LANES = 16, ROWS = 12 };
#else
enum { LANES = 8, ROWS = 6 };
#endif
enum { COLUMNS = 2 * LANES, DEPTH = 384, BLOCK = 96, WIDTH = 768 };

typedef float Vec __attribute__((vector_size(LANES * 4)));
typedef float VecAnywhere __attribute__((vector_size(LANES * 4), aligned(4)));
typedef float Eight __attribute__((vector_size(32)));
typedef float EightAnywhere __attribute__((vector_size(32), aligned(4)));

/* Scratch of a call; a rank is one thread. */
static float packed_a[DEPTH * BLOCK] __attribute__((aligned(64)));
static float packed_b[DEPTH * WIDTH] __attribute__((aligned(64)));

typedef struct {
  int64_t k, row, column; /* A[i, p] = a[i * row + p * column] */
  float alpha;
  bool add; /* C += alpha A B instead of C = alpha A B */
} Strip;

/* C[0 .. m) x COLUMNS of one strip of B; m is a constant where this is inlined. */
static inline __attribute__((always_inline)) void tile(int m, const Strip *s, int64_t row, int64_t column, const float *a,
                                                       const float *b, float *c, int64_t ldc) {
  Vec sum[ROWS][2];
  for (int i = 0; i < m; i++) {
    sum[i][0] = sum[i][1] = (Vec){0};
    __builtin_prefetch(c + i * ldc, 1);
    __builtin_prefetch(c + i * ldc + COLUMNS - 1, 1);
  }
  const float *low = a, *high = a + ROWS / 2 * row;
#pragma GCC unroll 4
  for (int64_t p = s->k; p > 0; p--, b += COLUMNS, low += column, high += column) {
    const Vec b0 = *(const Vec *)b, b1 = *(const Vec *)(b + LANES);
#pragma GCC unroll 12
    for (int i = 0; i < m; i++) {
      const float x = i < ROWS / 2 ? low[i * row] : high[(i - ROWS / 2) * row];
      sum[i][0] += x * b0, sum[i][1] += x * b1;
    }
  }
  for (int i = 0; i < m; i++)
    for (int h = 0; h < 2; h++) {
      VecAnywhere *o = (VecAnywhere *)(c + i * ldc + LANES * h);
      *o = s->add ? *o + s->alpha * sum[i][h] : s->alpha * sum[i][h];
    }
}

static void few(int m, const Strip *s, const float *a, const float *b, float *c, int64_t ldc) {
  switch (m) {
  case 8: tile(ROWS < 8 ? ROWS : 8, s, s->row, s->column, a, b, c, ldc); return;
  case 4: tile(4, s, s->row, s->column, a, b, c, ldc); return;
  case 2: tile(2, s, s->row, s->column, a, b, c, ldc); return;
  default: tile(1, s, s->row, s->column, a, b, c, ldc);
  }
}

/* Whole tiles have the strides of either form of A as constants; the last rows are 8, 4, 2 and 1. */
static void rows(int64_t m, const Strip *s, const float *a, const float *b, float *c, int64_t ldc) {
  if (m == ROWS && s->column == 1)
    tile(ROWS, s, s->row, 1, a, b, c, ldc);
  else if (m == ROWS)
    tile(ROWS, s, 1, ROWS, a, b, c, ldc);
  else
    for (int n = 8; n > 0; n /= 2)
      if (m & n) few(n, s, a, b, c, ldc), a += n * s->row, c += n * ldc;
}

/* The last columns are made beside C. */
static void columns(int64_t m, int64_t n, const Strip *s, const float *a, const float *b, float *c, int64_t ldc) {
  if (n >= COLUMNS) {
    rows(m, s, a, b, c, ldc);
    return;
  }
  float beside[ROWS * COLUMNS] __attribute__((aligned(64)));
  Strip fresh = *s;
  fresh.add = false;
  rows(m, &fresh, a, b, beside, COLUMNS);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) c[i * ldc + j] = (s->add ? c[i * ldc + j] : 0) + beside[i * COLUMNS + j];
}

/* ---- packing ---- */

/* Eight rows of eight, transposed: o[p * COLUMNS + i] = b[i * ldb + p]. */
static void transpose(const float *b, int64_t ldb, float *o) {
  Eight r[8], t[8];
  for (int i = 0; i < 8; i++) r[i] = *(const EightAnywhere *)(b + i * ldb);
  for (int i = 0; i < 8; i += 2) {
    t[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    t[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  for (int i = 0; i < 8; i += 4)
    for (int g = i; g < i + 2; g++) {
      r[g] = __builtin_shufflevector(t[g], t[g + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      r[g + 2] = __builtin_shufflevector(t[g], t[g + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  for (int g = 0; g < 4; g++) {
    *(Eight *)(o + g * COLUMNS) = __builtin_shufflevector(r[g], r[g + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    *(Eight *)(o + (g + 4) * COLUMNS) = __builtin_shufflevector(r[g], r[g + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

/* One strip of B, k x COLUMNS, of which n <= COLUMNS columns are there. */
static void pack_strip(bool tb, int64_t k, int64_t n, const float *b, int64_t ldb, float *o) {
  int64_t p = 0;
  if (n < COLUMNS) memset(o, 0, sizeof(float) * (size_t)(k * COLUMNS));
  if (!tb) {
    if (n == COLUMNS)
      for (; p < k; p++) memcpy(o + p * COLUMNS, b + p * ldb, COLUMNS * sizeof(float));
    for (; p < k; p++) memcpy(o + p * COLUMNS, b + p * ldb, sizeof(float) * (size_t)n);
    return;
  }
  if (n == COLUMNS)
    for (; p + 8 <= k; p += 8)
      for (int j = 0; j < COLUMNS; j += 8) transpose(b + j * ldb + p, ldb, o + p * COLUMNS + j);
  for (; p < k; p++)
    for (int64_t j = 0; j < n; j++) o[p * COLUMNS + j] = b[j * ldb + p];
}

/* A block of a transposed A: groups of ROWS rows, o[p * ROWS + i] = a[p * lda + i]. Where there is room to read on, a
   group is copied in whole vectors, each next one over what was too much. */
static void pack_block(int64_t m, int64_t k, const float *a, int64_t lda, float *o) {
  enum { COPIED = (ROWS + 7) / 8 * 8 };
  for (int64_t i = 0; i < m; i += ROWS, o += ROWS * k) {
    int64_t n = m - i < ROWS ? m - i : ROWS, p = 0;
    if (i + COPIED <= m)
      for (; p + 1 < k; p++) memcpy(o + p * ROWS, a + p * lda + i, COPIED * sizeof(float));
    for (; p < k; p++) memcpy(o + p * ROWS, a + p * lda + i, sizeof(float) * (size_t)n);
  }
}

/* ---- the loops ---- */

/* Fetches a matrix into the L2, a few lines at a time. */
typedef struct {
  const float *at;
  int64_t rows, lines, ld, row, line, each;
} Fetch;

static Fetch fetch(const float *at, int64_t rows, int64_t columns, int64_t ld, int64_t times) {
  int64_t lines = (columns + 15) / 16;
  return (Fetch){at, rows, lines, ld, 0, 0, (rows * lines + times - 1) / times};
}

static inline void fetch_some(Fetch *f) {
  for (int64_t i = 0; i < f->each && f->row < f->rows; i++) {
    __builtin_prefetch(f->at + f->row * f->ld + f->line * 16, 0, 2);
    if (++f->line == f->lines) f->line = 0, f->row++;
  }
}

/* C[m, n] += or = A[m, k] times the packed B; `after`: how many rows of A follow these. */
static void block(bool ta, int64_t m, int64_t n, int64_t after, const Strip *form, const float *a, int64_t lda, float *c,
                  int64_t ldc) {
  Strip s = *form;
  after = after < BLOCK ? after : BLOCK;
  int64_t tiles = (n + COLUMNS - 1) / COLUMNS * ((m + ROWS - 1) / ROWS);
  Fetch f = ta ? fetch(a + m, after > 0 ? s.k : 0, after, lda, tiles) : fetch(a + m * lda, after, s.k, lda, tiles);
  if (ta) pack_block(m, s.k, a, lda, packed_a);
  s.row = ta ? 1 : lda, s.column = ta ? ROWS : 1;
  for (int64_t j = 0; j < n; j += COLUMNS)
    for (int64_t i = 0; i < m; i += ROWS) {
      fetch_some(&f);
      columns(m - i < ROWS ? m - i : ROWS, n - j, &s, ta ? packed_a + i * s.k : a + i * lda, packed_b + j * s.k, c + i * ldc + j,
              ldc);
    }
}

void rt_product(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda, const float *b,
                int64_t ldb, bool add, float *c, int64_t ldc) {
  int64_t pieces = (k + DEPTH - 1) / DEPTH, depth = (k + pieces - 1) / pieces;
  for (int64_t j = 0; j < n; j += WIDTH) {
    int64_t width = n - j < WIDTH ? n - j : WIDTH;
    for (int64_t p = 0; p < k; p += depth) {
      Strip s = {.k = k - p < depth ? k - p : depth, .alpha = alpha, .add = add || p > 0};
      for (int64_t h = 0; h < width; h += COLUMNS)
        pack_strip(tb, s.k, width - h < COLUMNS ? width - h : COLUMNS, tb ? b + (j + h) * ldb + p : b + p * ldb + j + h, ldb,
                   packed_b + h * s.k);
      for (int64_t i = 0; i < m; i += BLOCK)
        block(ta, m - i < BLOCK ? m - i : BLOCK, width, m - i - BLOCK, &s, ta ? a + p * lda + i : a + i * lda + p, lda,
              c + i * ldc + j, ldc);
    }
  }
}
