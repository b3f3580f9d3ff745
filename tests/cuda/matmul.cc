/* matmul.cc: cuBLASLt's matrix product over f32: D = epilogue(alpha op(A) op(B) + beta C), by the definition.

   What NVIDIA's documentation demands is checked where a GPU would answer wrongly or not at all: shapes and leading
   dimensions that agree, the alignment that was promised to the heuristic, the workspace that the algorithm asked for. A
   matrix is a function of (row, column); whether it lies by rows or by columns is in its two strides.

     A 2 x 3 by columns, ld 2: element (i, j) at i + 2 j        by rows, ld 3: at 3 i + j                             */
#include "cublasLt.h"
#include "emulator.h"

struct cublasLtContext {
  int unused;
};
struct cublasLtMatmulDescOpaque {
  cublasComputeType_t compute;
  int32_t transa, transb, mode;
  uint32_t epilogue;
  float *bias, *aux;
  int64_t bias_stride, aux_ld, aux_stride;
};
struct cublasLtMatrixLayoutOpaque {
  int32_t type, order, batch;
  uint64_t rows, cols;
  int64_t ld, stride;
};
struct cublasLtMatmulPreferenceOpaque {
  uint64_t workspace;
  uint32_t align[4];
};

namespace emu {

typedef cublasLtMatrixLayoutOpaque Layout;
typedef cublasLtMatmulDescOpaque Desc;

/* A matrix as it is read: rows x cols, element (i, j) at p[i * down + j * right]. */
struct Matrix {
  float *p;
  int64_t rows, cols, down, right, stride;
};

static Matrix matrix(const float *p, const Layout &l, bool transposed) {
  bool by_rows = l.order == CUBLASLT_ORDER_ROW;
  Matrix m = {(float *)p, (int64_t)l.rows, (int64_t)l.cols, by_rows ? l.ld : 1, by_rows ? 1 : l.ld, l.stride};
  if (transposed) std::swap(m.rows, m.cols), std::swap(m.down, m.right);
  return m;
}

/* Tells access.cc of every element, by contiguous runs. */
static void touch(const Matrix &m, bool write, const char *what) {
  bool rows = m.right == 1;
  int64_t lines = rows ? m.rows : m.cols, length = rows ? m.cols : m.rows, step = rows ? m.down : m.right;
  if (!rows && m.down != 1) lines = m.rows * m.cols, length = 1;
  for (int64_t i = 0; i < lines; i++) {
    float *p = m.p + i * step;
    if (write)
      writes(p, (uint64_t)length * 4, what);
    else
      reads(p, (uint64_t)length * 4, what);
  }
}

static float rounded(float x, bool tf32) { /* to 10 bits of mantissa, nearest even */
  uint32_t b = (uint32_t)to_bits(x);
  if (!tf32 || (b & 0x7f800000) == 0x7f800000) return x;
  return from_bits<float>((b + 0xfff + (b >> 13 & 1)) & ~0x1fffu);
}

/* As rows: contiguous, so that the loop over the columns is fast. */
static std::vector<float> by_rows(const Matrix &m, bool tf32) {
  std::vector<float> out((size_t)(m.rows * m.cols));
  for (int64_t i = 0, at = 0; i < m.rows; i++)
    for (int64_t j = 0; j < m.cols; j++) out[(size_t)at++] = rounded(m.p[i * m.down + j * m.right], tf32);
  return out;
}

static std::vector<float> product(const Matrix &a, const Matrix &b, bool tf32) {
  std::vector<float> x = by_rows(a, tf32), y = by_rows(b, tf32), z((size_t)(a.rows * b.cols));
  for (int64_t i = 0; i < a.rows; i++)
    for (int64_t k = 0; k < a.cols; k++) {
      float f = x[(size_t)(i * a.cols + k)];
      const float *from = &y[(size_t)(k * b.cols)];
      float *to = &z[(size_t)(i * b.cols)];
      for (int64_t j = 0; j < b.cols; j++) to[j] += f * from[j];
    }
  return z;
}

/* Hendrycks and Gimpel 2016, the tanh form, as cuBLASLt has it. */
static float gelu(float x) { return 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x))); }
static float gelu_slope(float x) {
  float t = tanhf(0.7978845608f * (x + 0.044715f * x * x * x));
  return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 0.134145f * x * x);
}

/* alpha, beta, C, bias, gelu and its slope, into d. */
static void finish(const Desc &o, float alpha, float beta, const std::vector<float> &z, const Matrix &c, const Matrix &d,
                   const float *bias, const Matrix &aux) {
  for (int64_t i = 0; i < d.rows; i++)
    for (int64_t j = 0; j < d.cols; j++) {
      float x = alpha * z[(size_t)(i * d.cols + j)];
      if (beta != 0) x += beta * c.p[i * c.down + j * c.right];
      if (o.epilogue & 4) x += bias[i];
      if (aux.p && o.epilogue & 32) aux.p[i * aux.down + j * aux.right] = x;
      if (o.epilogue & 32) x = gelu(x);
      if (o.epilogue & 2) x = x > 0 ? x : 0;
      if (o.epilogue & 64) x *= gelu_slope(aux.p[i * aux.down + j * aux.right]);
      d.p[i * d.down + j * d.right] = x;
    }
}

static void sums(const Matrix &m, bool of_rows, float *out, const char *what) {
  int64_t n = of_rows ? m.rows : m.cols;
  writes(out, (uint64_t)n * 4, what);
  for (int64_t i = 0; i < n; i++) {
    float s = 0;
    for (int64_t j = 0; j < (of_rows ? m.cols : m.rows); j++)
      s += of_rows ? m.p[i * m.down + j * m.right] : m.p[j * m.down + i * m.right];
    out[i] = s;
  }
}

struct Product {
  Desc o;
  Layout a, b, c, d;
  const float *A, *B, *C;
  float *D, *alpha, *beta; /* pointers: device mode only */
  float alpha_value, beta_value;
  void *workspace;
  size_t bytes;
};

static void one(const Product &k, int64_t i) {
  const char *what = "a matrix product";
  float alpha = k.alpha ? *k.alpha : k.alpha_value, beta = k.beta ? *k.beta : k.beta_value;
  Matrix a = matrix(k.A + i * k.a.stride, k.a, k.o.transa), b = matrix(k.B + i * k.b.stride, k.b, k.o.transb);
  Matrix c = matrix(k.C + i * k.c.stride, k.c, false), d = matrix(k.D + i * k.d.stride, k.d, false), aux = {};
  float *bias = k.o.bias ? k.o.bias + i * k.o.bias_stride : nullptr;
  if (k.o.epilogue & 128) aux = {k.o.aux + i * k.o.aux_stride, d.rows, d.cols, 1, k.o.aux_ld, 0};
  touch(a, false, what), touch(b, false, what);
  if (beta != 0) touch(c, false, what);
  if (k.o.epilogue & 4) reads(bias, (uint64_t)d.rows * 4, what);
  if (aux.p) touch(aux, k.o.epilogue & 32, what);
  std::vector<float> z = product(a, b, k.o.compute == CUBLAS_COMPUTE_32F_FAST_TF32);
  touch(d, true, what);
  finish(k.o, alpha, beta, z, c, d, bias, aux);
  if (k.o.epilogue & 16) sums(d, true, bias, what);
  if (k.o.epilogue & 256) sums(a, true, bias, what);
  if (k.o.epilogue & 512) sums(b, false, bias, what);
}

static Step run(const Product &k) {
  if (k.bytes) { /* what the library leaves there is its own */
    writes(k.workspace, k.bytes, "the workspace of a matrix product");
    for (size_t i = 0; i + 4 <= k.bytes; i += 4) memcpy((char *)k.workspace + i, &POISON, 4);
  }
  if (k.alpha) reads(k.alpha, 4, "a matrix product");
  if (k.beta) reads(k.beta, 4, "a matrix product");
  for (int64_t i = 0; i < k.d.batch; i++) one(k, i);
  return Step::DONE;
}

/* ---- what is demanded -------------------------------------------------------------------------------------------------- */

static bool fits(const Layout &l) {
  return l.rows && l.cols && l.ld >= (int64_t)(l.order == CUBLASLT_ORDER_ROW ? l.cols : l.rows) && l.batch >= 1;
}

static bool known(uint32_t epilogue) {
  switch (epilogue) {
  case CUBLASLT_EPILOGUE_DEFAULT:
  case CUBLASLT_EPILOGUE_RELU:
  case CUBLASLT_EPILOGUE_BIAS:
  case CUBLASLT_EPILOGUE_RELU_BIAS:
  case CUBLASLT_EPILOGUE_GELU:
  case CUBLASLT_EPILOGUE_GELU_BIAS:
  case CUBLASLT_EPILOGUE_GELU_AUX:
  case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
  case CUBLASLT_EPILOGUE_DGELU:
  case CUBLASLT_EPILOGUE_DGELU_BGRAD:
  case CUBLASLT_EPILOGUE_BGRADA:
  case CUBLASLT_EPILOGUE_BGRADB: return true;
  default: return false;
  }
}

static cublasStatus_t legal(const Desc &o, const Layout &a, const Layout &b, const Layout &c, const Layout &d) {
  if (!fits(a) || !fits(b) || !fits(c) || !fits(d) || !known(o.epilogue)) return CUBLAS_STATUS_INVALID_VALUE;
  uint64_t m = o.transa ? a.cols : a.rows, k = o.transa ? a.rows : a.cols, n = o.transb ? b.rows : b.cols,
           kb = o.transb ? b.cols : b.rows;
  if (k != kb || d.rows != m || d.cols != n || c.rows != m || c.cols != n) return CUBLAS_STATUS_INVALID_VALUE;
  if (a.batch != d.batch || b.batch != d.batch || c.batch != d.batch || c.order != d.order) return CUBLAS_STATUS_INVALID_VALUE;
  if (o.epilogue != CUBLASLT_EPILOGUE_DEFAULT && d.order != CUBLASLT_ORDER_COL) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (o.epilogue & 128 && (o.aux_ld < (int64_t)d.rows || o.aux_ld % 8)) return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

/* An algorithm is what it was found for. */
struct Algorithm {
  uint64_t magic, shape;
  uint32_t workspace, align[4];
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

static uint64_t shape_of(const Desc &o, const Layout &a, const Layout &b, const Layout &d) {
  uint64_t h = 1469598103934665603u; /* FNV-1a */
  for (uint64_t x : {(uint64_t)o.transa, (uint64_t)o.transb, (uint64_t)o.epilogue, a.rows, a.cols, b.rows, b.cols, (uint64_t)a.ld,
                     (uint64_t)b.ld, (uint64_t)d.ld, (uint64_t)a.order, (uint64_t)b.order, (uint64_t)d.order, (uint64_t)d.batch})
    h = (h ^ x) * 1099511628211u;
  return h;
}

static bool aligned(const void *p, uint32_t n) { return (uintptr_t)p % n == 0; }

static cublasStatus_t check_algorithm(Product &k, const cublasLtMatmulAlgo_t *algo) {
  if (!algo) return CUBLAS_STATUS_SUCCESS; /* the library asks its heuristic itself */
  Algorithm x;
  memcpy(&x, algo, sizeof x);
  if (x.magic != POISON || x.shape != shape_of(k.o, k.a, k.b, k.d)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (k.bytes < x.workspace) return CUBLAS_STATUS_INVALID_VALUE;
  k.bytes = x.workspace; /* the rest is left alone */
  if (!aligned(k.A, x.align[0]) || !aligned(k.B, x.align[1]) || !aligned(k.C, x.align[2]) || !aligned(k.D, x.align[3]))
    found("a matrix product gets addresses %p %p %p %p, less aligned than the %u %u %u %u bytes promised when its algorithm was "
          "chosen",
          (const void *)k.A, (const void *)k.B, (const void *)k.C, (void *)k.D, x.align[0], x.align[1], x.align[2], x.align[3]);
  return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_pointers(const Product &k) {
  uint32_t e = k.o.epilogue;
  if (!k.A || !k.B || !k.D || (!k.C && k.beta_value != 0)) return CUBLAS_STATUS_INVALID_VALUE;
  if (e & (4 | 16 | 256 | 512) && !k.o.bias) return CUBLAS_STATUS_INVALID_VALUE;
  if (e & 128 && (!k.o.aux || !aligned(k.o.aux, 16))) return CUBLAS_STATUS_INVALID_VALUE;
  if (k.bytes && !aligned(k.workspace, 16)) return CUBLAS_STATUS_INVALID_VALUE;
  if (k.C == k.D && k.c.ld != k.d.ld) return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

/* Where an attribute lies. */
struct Slot {
  void *at;
  size_t bytes;
};
static cublasStatus_t put(Slot s, const void *value, size_t bytes) {
  if (!s.at) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!value || s.bytes != bytes) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(s.at, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

} // namespace emu

using namespace emu;

extern "C" {

const char *cublasLtGetStatusName(cublasStatus_t s) {
  switch (s) {
  case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
  case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
  case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
  case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
  default: return "CUBLAS_STATUS_UNKNOWN";
  }
}
const char *cublasLtGetStatusString(cublasStatus_t s) { return cublasLtGetStatusName(s); }
size_t cublasLtGetVersion(void) { return 120400; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t *h) {
  Entry e;
  if (e.error) return CUBLAS_STATUS_NOT_INITIALIZED;
  *h = new cublasLtContext{};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) {
  delete h;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *o, cublasComputeType_t compute, cudaDataType scale) {
  if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *o = new Desc{compute, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_POINTER_MODE_HOST, CUBLASLT_EPILOGUE_DEFAULT, nullptr, nullptr, 0, 0,
                0};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t o) {
  delete o;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t o, cublasLtMatmulDescAttributes_t which, const void *value,
                                              size_t bytes) {
  int32_t f32;
  switch (which) {
  case CUBLASLT_MATMUL_DESC_POINTER_MODE: return put({&o->mode, 4}, value, bytes);
  case CUBLASLT_MATMUL_DESC_TRANSA: return put({&o->transa, 4}, value, bytes);
  case CUBLASLT_MATMUL_DESC_TRANSB: return put({&o->transb, 4}, value, bytes);
  case CUBLASLT_MATMUL_DESC_EPILOGUE: return put({&o->epilogue, 4}, value, bytes);
  case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return put({&o->bias, 8}, value, bytes);
  case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE: return put({&o->bias_stride, 8}, value, bytes);
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return put({&o->aux, 8}, value, bytes);
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return put({&o->aux_ld, 8}, value, bytes);
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE: return put({&o->aux_stride, 8}, value, bytes);
  case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
    if (cublasStatus_t s = put({&f32, 4}, value, bytes)) return s;
    return f32 == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
  default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType type, uint64_t rows, uint64_t cols,
                                          int64_t ld) {
  if (type != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *l = new Layout{type, CUBLASLT_ORDER_COL, 1, rows, cols, ld, 0};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  delete l;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t which,
                                                const void *value, size_t bytes) {
  switch (which) {
  case CUBLASLT_MATRIX_LAYOUT_ORDER: return put({&l->order, 4}, value, bytes);
  case CUBLASLT_MATRIX_LAYOUT_ROWS: return put({&l->rows, 8}, value, bytes);
  case CUBLASLT_MATRIX_LAYOUT_COLS: return put({&l->cols, 8}, value, bytes);
  case CUBLASLT_MATRIX_LAYOUT_LD: return put({&l->ld, 8}, value, bytes);
  case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return put({&l->batch, 4}, value, bytes);
  case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return put({&l->stride, 8}, value, bytes);
  default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p) {
  *p = new cublasLtMatmulPreferenceOpaque{0, {256, 256, 256, 256}};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  delete p;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t which,
                                                    const void *value, size_t bytes) {
  switch (which) {
  case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return put({&p->workspace, 8}, value, bytes);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
    return put({&p->align[which - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], 4}, value, bytes);
  default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

/* Some algorithms want a part of the workspace that is offered. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t o, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t p, int requested,
                                              cublasLtMatmulHeuristicResult_t *result, int *returned) {
  Entry e;
  *returned = 0;
  if (requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
  if (cublasStatus_t s = legal(*o, *a, *b, *c, *d)) return s;
  if (settings().no_epilogue && o->epilogue != CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_NOT_SUPPORTED;
  uint64_t shape = shape_of(*o, *a, *b, *d), want = shape % 3 ? 4096 * (shape % 5) : 0;
  Algorithm x = {POISON, shape, (uint32_t)std::min(want, p->workspace), {}};
  std::copy(p->align, p->align + 4, x.align);
  *result = cublasLtMatmulHeuristicResult_t{};
  memcpy(&result->algo, &x, sizeof x);
  result->workspaceSize = x.workspace, result->state = CUBLAS_STATUS_SUCCESS, result->wavesCount = 1;
  *returned = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t o, const void *alpha, const void *A,
                              cublasLtMatrixLayout_t a, const void *B, cublasLtMatrixLayout_t b, const void *beta, const void *C,
                              cublasLtMatrixLayout_t c, void *D, cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t bytes, cudaStream_t stream) {
  Entry e;
  if (e.error) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (!handle || !o || !a || !b || !c || !d || !alpha || !beta) return CUBLAS_STATUS_INVALID_VALUE;
  bool on_host = o->mode == CUBLASLT_POINTER_MODE_HOST;
  Product k = {*o,      *a, *b, *c,        *d,   (const float *)A, (const float *)B, (const float *)C, (float *)D, nullptr,
               nullptr, 0,  0,  workspace, bytes};
  if (on_host)
    k.alpha_value = *(const float *)alpha, k.beta_value = *(const float *)beta;
  else
    k.alpha = (float *)alpha, k.beta = (float *)beta;
  if (cublasStatus_t s = legal(*o, *a, *b, *c, *d)) return s;
  if (cublasStatus_t s = check_pointers(k)) return s;
  if (cublasStatus_t s = check_algorithm(k, algo)) return s;
  return enqueue(stream, "a matrix product", [k] { return run(k); }) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
}
