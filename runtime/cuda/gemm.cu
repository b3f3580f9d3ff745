/* gemm.cu: matrix products by cuBLASLt. Its matrices are column-major; a row-major one is its transpose, so that the library
   computes C^T = op(B)^T op(A)^T and nothing is copied:

     C[m,n] = A[m,k] B[n,k]^T, row-major      D = op(X) Y,  X = B as k x n, transposed, Y = A as k x m, D = C as n x m

   Bias, gelu, its gradient and sums of an operand are done by the library where it can; otherwise by kernels behind the product,
   which give the same. What a shape needs (layouts, the algorithm) is found out once and kept. Products run on the compute stream
   only, so that one workspace serves all. f32 is f32, unless the program was compiled with --tf32. */
#include "device.h"

namespace {

/* Everything that the choice of an algorithm depends on. Compared as bytes. */
typedef struct {
  int64_t m, n, k, lda, ldb, ldc, ldaux, batch, sa, sb, sc, saux;
  int32_t ta, tb, accumulates, epilogue, has_aux, align_a, align_b, align_c, align_aux;
} Shape;

typedef struct {
  Shape shape;
  bool fused; /* the library does the epilogue */
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t x, y, d;
  cublasLtMatmulAlgo_t algo;
} Known;

} // namespace

struct Products {
  cublasLtHandle_t handle;
  int n, room;
  Known *known;
};

cublasStatus_t gemm_checked(Rt *rt, cublasStatus_t e, const char *call) {
  char place[256];
  if (e == CUBLAS_STATUS_SUCCESS) return e;
  rt_fail(rt, EXIT_DATA, "%s: %.*s failed on rank %d: %s", device_place(rt, place), (int)strcspn(call, "("), call, rt->rank,
          cublasLtGetStatusString(e));
}

void gemm_open(Rt *rt) {
  Products *p = (Products *)rt_alloc(1, sizeof *p);
  rt->transport->products = p;
  CUBLAS(rt, cublasLtCreate(&p->handle));
}

void gemm_close(Rt *rt) {
  Products *p = rt->transport->products;
  for (int i = 0; i < p->n; i++) {
    Known *k = &p->known[i];
    for (cublasLtMatrixLayout_t l : {k->x, k->y, k->d}) CUBLAS(rt, cublasLtMatrixLayoutDestroy(l));
    CUBLAS(rt, cublasLtMatmulDescDestroy(k->desc));
  }
  CUBLAS(rt, cublasLtDestroy(p->handle));
  free(p->known);
  free(p);
}

/* ---- what the library is told ---- */

namespace {

int32_t alignment(const void *p) {
  int32_t a = 256;
  while ((uintptr_t)p % (uintptr_t)a) a /= 2;
  return a;
}

/* A leading dimension means nothing where there is one column, but the library checks it. */
int64_t leading(int64_t rows, int64_t columns, int64_t ld) { return columns <= 1 && ld < rows ? rows : ld; }

Shape shape_of(const dtcu_Gemm *g) {
  Shape s;
  memset(&s, 0, sizeof s);
  s.m = g->m, s.n = g->n, s.k = g->k;
  s.lda = leading(g->ta ? g->m : g->k, g->ta ? g->k : g->m, g->lda);
  s.ldb = leading(g->tb ? g->k : g->n, g->tb ? g->n : g->k, g->ldb);
  s.ldc = leading(g->n, g->m, g->ldc);
  s.batch = g->batch ? g->batch : 1;
  s.ta = g->ta, s.tb = g->tb, s.accumulates = g->beta != 0, s.epilogue = g->epilogue;
  if (s.batch > 1) s.sa = g->sa, s.sb = g->sb, s.sc = g->sc;
  s.align_a = alignment(g->a), s.align_b = alignment(g->b), s.align_c = alignment(g->c), s.align_aux = 256;
  s.has_aux = g->aux && g->epilogue != DTCU_PLAIN;
  if (s.has_aux) s.ldaux = g->ldaux, s.saux = s.batch > 1 ? g->saux : 0, s.align_aux = alignment(g->aux);
  return s;
}

cublasLtEpilogue_t library_name(const Shape *s) {
  switch (s->epilogue) {
  case DTCU_BIAS: return CUBLASLT_EPILOGUE_BIAS;
  case DTCU_GELU: return s->has_aux ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_GELU;
  case DTCU_GELU_BIAS: return s->has_aux ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_BIAS;
  case DTCU_DGELU: return CUBLASLT_EPILOGUE_DGELU;
  case DTCU_SUM_A: return CUBLASLT_EPILOGUE_BGRADB; /* the library's A is our B */
  case DTCU_SUM_B: return CUBLASLT_EPILOGUE_BGRADA;
  default: return CUBLASLT_EPILOGUE_DEFAULT;
  }
}

bool sums_operand(int32_t e) { return e == DTCU_SUM_A || e == DTCU_SUM_B; }
bool has_bias(int32_t e) { return e == DTCU_BIAS || e == DTCU_GELU_BIAS || sums_operand(e); }

template <typename T> void describe(Rt *rt, cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t a, T value) {
  CUBLAS(rt, cublasLtMatmulDescSetAttribute(d, a, &value, sizeof value));
}

cublasLtMatmulDesc_t describe_product(Rt *rt, const Shape *s) {
  cublasLtMatmulDesc_t d;
  CUBLAS(rt, cublasLtMatmulDescCreate(&d, rt->p->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
  describe(rt, d, CUBLASLT_MATMUL_DESC_TRANSA, s->tb ? CUBLAS_OP_T : CUBLAS_OP_N);
  describe(rt, d, CUBLASLT_MATMUL_DESC_TRANSB, s->ta ? CUBLAS_OP_T : CUBLAS_OP_N);
  describe(rt, d, CUBLASLT_MATMUL_DESC_EPILOGUE, library_name(s));
  if (s->has_aux) {
    describe(rt, d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, s->ldaux);
    if (s->batch > 1) describe(rt, d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, s->saux);
  }
  return d;
}

cublasLtMatrixLayout_t layout(Rt *rt, int64_t rows, int64_t columns, int64_t ld, int64_t batch, int64_t stride) {
  cublasLtMatrixLayout_t l;
  int32_t count = (int32_t)batch;
  CUBLAS(rt, cublasLtMatrixLayoutCreate(&l, CUDA_R_32F, (uint64_t)rows, (uint64_t)columns, ld));
  if (batch == 1) return l;
  CUBLAS(rt, cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
  CUBLAS(rt, cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
  return l;
}

/* Pointers of this call; they are looked at when an algorithm is chosen, too. */
void set_pointers(Rt *rt, const Known *k, const dtcu_Gemm *g) {
  if (!k->fused) return;
  if (has_bias(g->epilogue)) describe(rt, k->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, g->bias);
  if (k->shape.has_aux) describe(rt, k->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, g->aux);
}

template <typename T> void prefer(Rt *rt, cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t a, T value) {
  CUBLAS(rt, cublasLtMatmulPreferenceSetAttribute(p, a, &value, sizeof value));
}

bool choose_algorithm(Rt *rt, Known *k) {
  cublasLtMatmulPreference_t p;
  cublasLtMatmulHeuristicResult_t found = {};
  int n = 0;
  CUBLAS(rt, cublasLtMatmulPreferenceCreate(&p));
  prefer(rt, p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (size_t)rt->p->library_bytes);
  prefer(rt, p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)k->shape.align_b);
  prefer(rt, p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)k->shape.align_a);
  prefer(rt, p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)k->shape.align_c);
  prefer(rt, p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (uint32_t)k->shape.align_c);
  cublasStatus_t e =
      cublasLtMatmulAlgoGetHeuristic(rt->transport->products->handle, k->desc, k->x, k->y, k->d, k->d, p, 1, &found, &n);
  CUBLAS(rt, cublasLtMatmulPreferenceDestroy(p));
  if (e != CUBLAS_STATUS_SUCCESS || n == 0 || found.state != CUBLAS_STATUS_SUCCESS) return false;
  k->algo = found.algo;
  return true;
}

/* With the epilogue if the library has it for this shape, else without. */
Known learn(Rt *rt, const Shape *s, const dtcu_Gemm *g) {
  Known k = {};
  k.shape = *s;
  k.fused = !s->has_aux || (s->ldaux % 8 == 0 && s->align_aux >= 16);
  k.x = layout(rt, s->tb ? s->k : s->n, s->tb ? s->n : s->k, s->ldb, s->batch, s->sb);
  k.y = layout(rt, s->ta ? s->m : s->k, s->ta ? s->k : s->m, s->lda, s->batch, s->sa);
  k.d = layout(rt, s->n, s->m, s->ldc, s->batch, s->sc);
  if (k.fused) {
    k.desc = describe_product(rt, s);
    set_pointers(rt, &k, g);
    if (choose_algorithm(rt, &k)) return k;
    CUBLAS(rt, cublasLtMatmulDescDestroy(k.desc));
  }
  k.fused = false;
  Shape plain = *s;
  plain.epilogue = DTCU_PLAIN, plain.has_aux = false;
  k.desc = describe_product(rt, &plain);
  if (!choose_algorithm(rt, &k)) gemm_checked(rt, CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmulAlgoGetHeuristic");
  return k;
}

Known *known(Rt *rt, const dtcu_Gemm *g) {
  Products *p = rt->transport->products;
  Shape s = shape_of(g);
  for (int i = 0; i < p->n; i++)
    if (memcmp(&p->known[i].shape, &s, sizeof s) == 0) return &p->known[i];
  if (p->n == p->room) {
    p->room = 2 * p->room + 16;
    p->known = (Known *)realloc(p->known, (size_t)p->room * sizeof *p->known);
    if (!p->known) rt_fail(rt, EXIT_DATA, "out of memory");
  }
  p->known[p->n] = learn(rt, &s, g);
  return &p->known[p->n++];
}

/* ---- what the library does not do ---- */

enum { THREADS = 256 };

/* C = beta C, or 0: a product over nothing. */
__global__ void scale_kernel(float *c, int64_t m, int64_t n, int64_t ldc, int64_t sc, float beta) {
  c += blockIdx.y * sc;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < m * n; i += (int64_t)gridDim.x * blockDim.x) {
    float *x = &c[i / n * ldc + i % n];
    *x = beta == 0.0f ? 0.0f : beta * *x;
  }
}

/* gelu(x) = x/2 (1 + tanh u), u = sqrt(2/pi) (x + 0.044715 x^3) */
__device__ __forceinline__ float gelu(float x) { return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x))); }
__device__ __forceinline__ float gelu_slope(float x) {
  float t = tanhf(0.7978845608f * (x + 0.044715f * x * x * x));
  return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * 0.7978845608f * (1.0f + 0.134145f * x * x);
}

__global__ void epilogue_kernel(int epilogue, float *c, int64_t m, int64_t n, int64_t ldc, int64_t sc, const float *bias,
                                float *aux, int64_t ldaux, int64_t saux) {
  c += blockIdx.y * sc;
  if (aux) aux += blockIdx.y * saux;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < m * n; i += (int64_t)gridDim.x * blockDim.x) {
    int64_t row = i / n, column = i % n;
    float *x = &c[row * ldc + column], z = *x;
    if (epilogue == DTCU_BIAS || epilogue == DTCU_GELU_BIAS) z += bias[column];
    if (epilogue == DTCU_GELU || epilogue == DTCU_GELU_BIAS) {
      if (aux) aux[row * ldaux + column] = z;
      z = gelu(z);
    }
    if (epilogue == DTCU_DGELU) z *= gelu_slope(aux[row * ldaux + column]);
    *x = z;
  }
}

/* out[j] = sum over i < rows of x[i * si + j * sj], in a fixed order. A block has `wide` neighbouring j, so that what its
   threads read at a time lies together where sj is 1. */
__global__ void sums_kernel(float *out, const float *x, int64_t columns, int64_t rows, int64_t si, int64_t sj, int wide) {
  DTCU_SHARED(float, part, THREADS);
  int64_t j = (int64_t)blockIdx.x * wide + threadIdx.x % wide;
  float sum = 0;
  for (int64_t i = threadIdx.x / wide; i < rows && j < columns; i += THREADS / wide) sum += x[i * si + j * sj];
  part[threadIdx.x] = sum;
  for (int n = THREADS / 2; n >= wide; n /= 2) {
    __syncthreads();
    if ((int)threadIdx.x < n) part[threadIdx.x] += part[threadIdx.x + n];
  }
  if ((int)threadIdx.x < wide && j < columns) out[j] = part[threadIdx.x];
}

dim3 grid(const dtcu_Gemm *g) {
  int64_t blocks = (g->m * g->n + THREADS - 1) / THREADS;
  return dim3((unsigned)(blocks > 4096 ? 4096 : blocks), (unsigned)(g->batch ? g->batch : 1));
}

void scale(dtrt_Context *cx, const dtcu_Gemm *g) {
  DTCU_LAUNCH(cx, scale_kernel, grid(g), THREADS, (float *)g->c, g->m, g->n, g->ldc, g->sc, g->beta);
}

void sum_operand(dtrt_Context *cx, const dtcu_Gemm *g) {
  bool b = g->epilogue == DTCU_SUM_B, by_rows = b ? !g->tb : g->ta; // the rows that are summed are rows in memory
  int64_t columns = b ? g->n : g->m, ld = b ? g->ldb : g->lda;
  int wide = by_rows ? 32 : 1;
  DTCU_LAUNCH(cx, sums_kernel, (columns + wide - 1) / wide, THREADS, (float *)g->bias, (const float *)(b ? g->b : g->a), columns,
              g->k, by_rows ? ld : (int64_t)1, by_rows ? (int64_t)1 : ld, wide);
}

void epilogue(dtrt_Context *cx, const dtcu_Gemm *g) {
  if (sums_operand(g->epilogue))
    sum_operand(cx, g);
  else if (g->epilogue != DTCU_PLAIN)
    DTCU_LAUNCH(cx, epilogue_kernel, grid(g), THREADS, (int)g->epilogue, (float *)g->c, g->m, g->n, g->ldc, g->sc,
                (const float *)g->bias, (float *)g->aux, g->ldaux, g->saux);
}

void multiply(Rt *rt, const Known *k, const dtcu_Gemm *g) {
  Transport *t = rt->transport;
  set_pointers(rt, k, g);
  CUBLAS(rt, cublasLtMatmul(t->products->handle, k->desc, &g->alpha, g->b, k->x, g->a, k->y, &g->beta, g->c, k->d, g->c, k->d,
                            &k->algo, t->library, (size_t)rt->p->library_bytes, t->compute));
}

} // namespace

/* ---- what emitted code calls ---- */

void dtcu_gemm(dtrt_Context *cx, const dtcu_Gemm *g) {
  Rt *rt = cx->comm;
  bool fused = false;
  if (g->m <= 0 || g->n <= 0 || g->batch < 0) return;
  if (rt->o.profile) rt_idle(rt);
  uint64_t begun = rt_product_begin(cx);
  if (g->k <= 0 || g->alpha == 0) {
    if (g->beta != 1) scale(cx, g);
  } else {
    const Known *k = known(rt, g);
    multiply(rt, k, g);
    fused = k->fused;
  }
  if (!fused) epilogue(cx, g);
  if (!begun) return;
  rt_idle(rt);
  rt_product_end(cx, begun, 2.0 * (double)(g->batch ? g->batch : 1) * (double)g->m * (double)g->n * (double)g->k);
}

void dtrt_gemm_batch(dtrt_Context *cx, int64_t batch, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha,
                     const float *a, int64_t lda, int64_t sa, const float *b, int64_t ldb, int64_t sb, float beta, float *c,
                     int64_t ldc, int64_t sc) {
  dtcu_Gemm g = {};
  if (batch <= 0) return;
  g.dtype = DTRT_F32, g.batch = batch, g.ta = ta, g.tb = tb, g.m = m, g.n = n, g.k = k, g.alpha = alpha, g.beta = beta;
  g.a = a, g.lda = lda, g.sa = sa, g.b = b, g.ldb = ldb, g.sb = sb, g.c = c, g.ldc = ldc, g.sc = sc;
  dtcu_gemm(cx, &g);
}

void dtrt_gemm(dtrt_Context *cx, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
               const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
  dtrt_gemm_batch(cx, 1, ta, tb, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0);
}
