/* gemm.c: matrix products, row-major f32, through oneDNN's sgemm (DTRT_DNNL) or the CBLAS; each rank is one thread. The
   choice is made when the runtime is built, so that runs repeat bit for bit.

     dtrt_gemm(cx, false, true, m, n, k, 1, a, lda, b, ldb, 0, c, ldc)      C[m,n] = A[m,k] B[n,k]^T

   Empty products need no library: with k = 0 C becomes beta C, and beta = 0 overwrites whatever was there, NaN
   too. */
#define _GNU_SOURCE
#include "memory.h"

#include <dlfcn.h>
#include <unistd.h>
#ifdef DTRT_DNNL
#include <dnnl.h>
#else
#include <cblas.h>
#endif

/* The library's threads come from whatever OpenMP or OpenBLAS it was linked to; neither need be there. */
void rt_one_thread(void) {
  static const char *const setter[] = {"omp_set_num_threads", "openblas_set_num_threads", "bli_thread_set_num_threads"};
  for (size_t i = 0; i < sizeof setter / sizeof *setter; i++) {
    void (*f)(int);
    *(void **)&f = dlsym(RTLD_DEFAULT, setter[i]);
    if (f) f(1);
  }
}

static void scale(int64_t m, int64_t n, float beta, float *c, int64_t ldc) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
}

/* A leading dimension means nothing where there is one row, but libraries check it. */
static int64_t leading(int64_t rows, int64_t columns, int64_t ld) { return rows <= 1 && ld < columns ? columns : ld; }

static void product(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda, const float *b,
                    int64_t ldb, float beta, float *c, int64_t ldc) {
  if (m <= 0 || n <= 0) return;
  if (k <= 0 || alpha == 0) {
    if (beta != 1) scale(m, n, beta, c, ldc);
    return;
  }
  lda = ta ? leading(k, m, lda) : leading(m, k, lda);
  ldb = tb ? leading(n, k, ldb) : leading(k, n, ldb);
  ldc = leading(m, n, ldc);
#ifdef DTRT_DNNL
  dnnl_status_t s = dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  if (s != dnnl_success) {
    fprintf(stderr, "dnnl_sgemm(%d, %d, %ld, %ld, %ld; %ld, %ld, %ld) failed with %d\n", ta, tb, (long)m, (long)n, (long)k,
            (long)lda, (long)ldb, (long)ldc, (int)s);
    _exit(EXIT_FAULT);
  }
#else
  cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, (int)m, (int)n, (int)k, alpha, a,
              (int)lda, b, (int)ldb, beta, c, (int)ldc);
#endif
}

void dtrt_gemm_batch(dtrt_Context *cx, int64_t batch, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha,
                     const float *a, int64_t lda, int64_t sa, const float *b, int64_t ldb, int64_t sb, float beta, float *c,
                     int64_t ldc, int64_t sc) {
  uint64_t begun = rt_product_begin(cx);
  for (int64_t i = 0; i < batch; i++) product(ta, tb, m, n, k, alpha, a + i * sa, lda, b + i * sb, ldb, beta, c + i * sc, ldc);
  rt_product_end(cx, begun, 2.0 * (double)batch * (double)m * (double)n * (double)k);
}

void dtrt_gemm(dtrt_Context *cx, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
               const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
  dtrt_gemm_batch(cx, 1, ta, tb, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0);
}
