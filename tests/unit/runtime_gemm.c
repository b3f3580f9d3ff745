/* runtime_gemm.c: products of every form and of sizes around the tiles' edges, against sums in f64; nothing outside C is
   written, and the same operands give the same bits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/dtrt.h"
#include "unit.h"

typedef struct {
  bool ta, tb;
  int64_t m, n, k, lda, ldb, ldc;
  float alpha, beta;
} Shape;

static uint32_t seed;
static int below(int n) {
  seed = seed * 1664525u + 1013904223u;
  return (int)((seed >> 8) % (uint32_t)n);
}

static float *filled(int64_t n) {
  float *x = malloc((size_t)n * sizeof *x);
  for (int64_t i = 0; i < n; i++) x[i] = (float)below(200) / 100 - 1;
  return x;
}

static dtrt_Context nowhere; // products only count in it

static double exact(const Shape *s, const float *a, const float *b, float c, int64_t i, int64_t j) {
  double sum = 0;
  for (int64_t p = 0; p < s->k; p++)
    sum += (double)(s->ta ? a[p * s->lda + i] : a[i * s->lda + p]) * (double)(s->tb ? b[j * s->ldb + p] : b[p * s->ldb + j]);
  return (double)s->alpha * sum + (double)s->beta * (double)c;
}

static void check_shape(const Shape *s) {
  int64_t na = (s->ta ? s->k - 1 : s->m - 1) * s->lda + (s->ta ? s->m : s->k);
  int64_t nb = (s->tb ? s->n - 1 : s->k - 1) * s->ldb + (s->tb ? s->k : s->n), nc = s->m * s->ldc;
  float *a = filled(na), *b = filled(nb), *c = filled(nc), *before = malloc((size_t)nc * 4), *again = malloc((size_t)nc * 4);
  memcpy(before, c, (size_t)nc * 4);
  memcpy(again, c, (size_t)nc * 4);
  dtrt_gemm(&nowhere, s->ta, s->tb, s->m, s->n, s->k, s->alpha, a, s->lda, b, s->ldb, s->beta, c, s->ldc);
  dtrt_gemm(&nowhere, s->ta, s->tb, s->m, s->n, s->k, s->alpha, a, s->lda, b, s->ldb, s->beta, again, s->ldc);
  CHECK(memcmp(c, again, (size_t)nc * 4) == 0);
  int wrong = 0;
  for (int64_t i = 0; i < nc; i++) {
    double want = i % s->ldc < s->n ? exact(s, a, b, before[i], i / s->ldc, i % s->ldc) : (double)before[i];
    wrong += !(fabs((double)c[i] - want) <= 1e-6 * (double)(s->k + 10));
  }
  if (wrong)
    unit_fail(__FILE__, __LINE__, "%d of %d x %d x %d, ta %d, tb %d", wrong, (int)s->m, (int)s->n, (int)s->k, s->ta, s->tb);
  free(a), free(b), free(c), free(before), free(again);
}

UNIT(products_of_every_form_and_size) {
  seed = 1;
  for (int r = 0; r < 300; r++) {
    int most = r % 20 ? 60 : 500;
    Shape s = {.ta = below(2), .tb = below(2), .m = 1 + below(most), .n = 1 + below(most), .k = 1 + below(2 * most)};
    s.lda = (s.ta ? s.m : s.k) + below(3), s.ldb = (s.tb ? s.k : s.n) + below(3), s.ldc = s.n + below(3);
    s.alpha = below(2) ? 1 : 0.5f, s.beta = (float)below(3) / 2;
    check_shape(&s);
  }
  check_shape(&(Shape){.tb = true, .m = 7, .n = 1600, .k = 9, .lda = 9, .ldb = 9, .ldc = 1600, .alpha = 1}); /* two panels of B */
}

UNIT(a_product_over_nothing_scales_and_overwrites_nan) {
  float c[2] = {NAN, NAN}, d[2] = {2, 4};
  dtrt_gemm(&nowhere, false, false, 1, 2, 0, 1, NULL, 1, NULL, 2, 0, c, 2);
  dtrt_gemm(&nowhere, false, false, 1, 2, 0, 1, NULL, 1, NULL, 2, 0.5f, d, 2);
  CHECK(c[0] == 0 && c[1] == 0 && d[0] == 1 && d[1] == 2);
  float x = 3, y = 2, z = NAN;
  dtrt_gemm(&nowhere, false, false, 1, 1, 1, 1, &x, 1, &y, 1, 0, &z, 1);
  CHECK(z == 6);
}
