/* dtcu.h: what the host part of an emitted CUDA program sees, besides dtrt.h: launches on the compute stream, steps with
   their line, copies on the device, products with epilogues. Kernels see dtcu_device.h. Compiled by nvcc, or by a C++
   compiler whose cuda_runtime.h carries out the same words on the CPU.

     STEP("charlm.dt:26", n_26(cx, x, g1, n));
     STEP("charlm.dt:31", dtrt_collective(cx, all_gather_x, {x_1}, {x_2}));

   Pointers are device pointers. Nothing here waits for the device, except with cx->checking and with DTRT_PROFILE=1. A
   phase may be recorded once and replayed, so that what the host part passes by value must not depend on the step. */
#ifndef DTCU_H
#define DTCU_H

#include <cuda_runtime.h>
#include <initializer_list>

#include "runtime/dtrt.h"

#include "runtime/dtcu_device.h"

/* A buffer of `bytes` bytes in the arena. */
#ifndef AT
#define AT(offset, bytes) ((void *)(cx->arena + (offset)))
#endif

/* One step of the program: `where` is for messages and for the profiler's range. */
#define STEP(where, ...)                                                                                                         \
  do {                                                                                                                           \
    dtcu_step(cx, where);                                                                                                        \
    __VA_ARGS__;                                                                                                                 \
    dtcu_step_end(cx);                                                                                                           \
  } while (0)

extern "C" {

cudaStream_t dtcu_stream(const dtrt_Context *cx);        /* where kernels run */
const dtcu_Context *dtcu_device(const dtrt_Context *cx); /* the context as kernels see it, in device memory */
/* After every launch: was it accepted? With cx->checking waits, and ends the run if the kernel noted a fault. */
void dtcu_launched(dtrt_Context *cx, const char *kernel);
void dtcu_step(dtrt_Context *cx, const char *where);
void dtcu_step_end(dtrt_Context *cx);

/* In the order of the compute stream. The source may also be a setting (&cx->setting[i]). */
void dtcu_copy(dtrt_Context *cx, void *dst, const void *src, int64_t bytes);
void dtcu_zero(dtrt_Context *cx, void *dst, int64_t bytes);
void dtcu_put(dtrt_Context *cx, void *dst, int64_t value); /* eight bytes */

/* What a product does with its result before it is stored; z = alpha op(A) op(B) + beta C, all per element but for the
   bias [n], which every row gets. gelu is the one with tanh. */
typedef enum {
  DTCU_PLAIN,     /* C = z */
  DTCU_BIAS,      /* C = z + bias */
  DTCU_GELU,      /* aux = z,        C = gelu(z); nothing is kept where aux is NULL */
  DTCU_GELU_BIAS, /* aux = z + bias, C = gelu(z + bias) */
  DTCU_DGELU,     /* C = z * gelu'(aux) */
  DTCU_SUM_A,     /* C = z, bias[m] = sum over k of op(A) */
  DTCU_SUM_B      /* C = z, bias[n] = sum over k of op(B): beside a weight's gradient x^T dy that of the bias */
} dtcu_Epilogue;

/* `batch` products at distances sa, sb, sc (and saux) in elements; leading dimensions in elements. The library
   wants aux at a multiple of 16 bytes and ldaux of 8; elsewhere kernels behind the product do the same. */
typedef struct {
  dtrt_dtype dtype; /* of all tensors */
  int64_t batch;    /* 0 counts as 1 */
  bool ta, tb;
  int64_t m, n, k;
  float alpha, beta;
  const void *a;
  int64_t lda, sa;
  const void *b;
  int64_t ldb, sb;
  void *c;
  int64_t ldc, sc;
  dtcu_Epilogue epilogue;
  void *bias, *aux;
  int64_t ldaux, saux;
} dtcu_Gemm;
void dtcu_gemm(dtrt_Context *cx, const dtcu_Gemm *g);

} /* extern "C" */

/* dtrt_gemm with an epilogue, as emitted code calls it; aux lies as C does. */
inline void dtcu_gemm(dtrt_Context *cx, dtcu_Epilogue epilogue, const float *bias, const float *aux, bool ta, bool tb, int64_t m,
                      int64_t n, int64_t k, float alpha, const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                      float *c, int64_t ldc) {
  dtcu_Gemm g = {};
  g.dtype = DTRT_F32, g.ta = ta, g.tb = tb, g.m = m, g.n = n, g.k = k, g.alpha = alpha, g.beta = beta;
  g.a = a, g.lda = lda, g.b = b, g.ldb = ldb, g.c = c, g.ldc = ldc;
  g.epilogue = epilogue, g.bias = (void *)bias, g.aux = (void *)aux, g.ldaux = ldc;
  dtcu_gemm(cx, &g);
}

/* ---- collectives with lists of buffers as emitted code writes them -------------------------------------------------- */

inline void dtrt_start(dtrt_Context *cx, int id, std::initializer_list<const void *> src, std::initializer_list<void *> dst) {
  dtrt_start(cx, id, src.begin(), dst.begin());
}
inline void dtrt_collective(dtrt_Context *cx, int id, std::initializer_list<const void *> src,
                            std::initializer_list<void *> dst) {
  dtrt_collective(cx, id, src.begin(), dst.begin());
}

#include "runtime/dtcu_finish.h"

#endif
