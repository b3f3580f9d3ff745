/* products.cu: matrix products through cuBLASLt, beside the definition. */
#include "cases.h"

#include <cmath>
#include <cublasLt.h>
#include <vector>

/* A matrix as the layouts have it. */
struct M {
  int rows, cols, ld;
  bool by_rows;
  int at(int i, int j) const { return by_rows ? i * ld + j : i + j * ld; }
  int elements() const { return by_rows ? (rows - 1) * ld + cols : (cols - 1) * ld + rows; }
};
static float small(int i) { return (float)(i * 7 % 11 - 5); }
static float *device(const std::vector<float> &v) {
  float *p;
  CHECK(cudaMalloc(&p, v.size() * 4));
  CHECK(cudaMemcpy(p, v.data(), v.size() * 4, cudaMemcpyHostToDevice));
  return p;
}
static std::vector<float> host(const float *p, size_t n) {
  std::vector<float> v(n);
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(v.data(), p, n * 4, cudaMemcpyDeviceToHost));
  return v;
}
static cublasLtMatrixLayout_t layout(const M &m, int batch, int64_t stride) {
  cublasLtMatrixLayout_t l;
  cublasLtOrder_t order = m.by_rows ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
  CHECK(cublasLtMatrixLayoutCreate(&l, CUDA_R_32F, (uint64_t)m.rows, (uint64_t)m.cols, m.ld));
  CHECK(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order));
  CHECK(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch));
  CHECK(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
  return l;
}

/* One product, as a program would set it up. */
struct Product {
  M a, b, d;
  cublasOperation_t ta = CUBLAS_OP_N, tb = CUBLAS_OP_N;
  int batch = 1;
  int64_t sa = 0, sb = 0, sd = 0;
  float alpha = 1, beta = 0;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  float *bias = nullptr, *aux = nullptr;
  int64_t ldaux = 0;
  uint32_t align = 256;
  size_t less = 0; /* of workspace */
  cublasStatus_t run(const float *A, const float *B, float *D) const;
};

cublasStatus_t Product::run(const float *A, const float *B, float *D) const {
  cublasLtHandle_t h;
  cublasLtMatmulDesc_t o;
  cublasLtMatmulPreference_t p;
  cublasLtMatmulHeuristicResult_t r;
  int n;
  size_t most = 1 << 16;
  CHECK(cublasLtCreate(&h));
  CHECK(cublasLtMatmulDescCreate(&o, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  CHECK(cublasLtMatmulDescSetAttribute(o, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta));
  CHECK(cublasLtMatmulDescSetAttribute(o, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb));
  CHECK(cublasLtMatmulDescSetAttribute(o, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
  CHECK(cublasLtMatmulDescSetAttribute(o, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
  CHECK(cublasLtMatmulDescSetAttribute(o, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux));
  CHECK(cublasLtMatmulDescSetAttribute(o, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ldaux, sizeof ldaux));
  CHECK(cublasLtMatmulPreferenceCreate(&p));
  CHECK(cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most));
  CHECK(cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align, sizeof align));
  cublasLtMatrixLayout_t la = layout(a, batch, sa), lb = layout(b, batch, sb), ld = layout(d, batch, sd);
  if (cublasStatus_t s = cublasLtMatmulAlgoGetHeuristic(h, o, la, lb, ld, ld, p, 1, &r, &n)) return s;
  void *workspace;
  CHECK(cudaMalloc(&workspace, r.workspaceSize + 16));
  return cublasLtMatmul(h, o, &alpha, A, la, B, lb, &beta, D, ld, D, ld, &r.algo, workspace,
                        r.workspaceSize - (r.workspaceSize ? less : 0), nullptr);
}

/* Every order and transposition, against the sum it stands for; the gaps of leading dimensions are never written. */
CASE(products) {
  for (int way = 0; way < 32; way++) {
    int m = 5, n = 6, k = 4;
    Product x;
    x.ta = way & 1 ? CUBLAS_OP_T : CUBLAS_OP_N, x.tb = way & 2 ? CUBLAS_OP_T : CUBLAS_OP_N;
    auto make = [](int rows, int cols, bool by_rows) { return M{rows, cols, (by_rows ? cols : rows) + 3, by_rows}; };
    x.a = way & 1 ? make(k, m, way & 4) : make(m, k, way & 4), x.b = way & 2 ? make(n, k, way & 8) : make(k, n, way & 8),
    x.d = make(m, n, way & 16);
    x.alpha = 2, x.beta = way % 3 ? 3 : 0, x.batch = 2, x.sa = 64, x.sb = 64, x.sd = 96;
    std::vector<float> a, b, d;
    for (int i = 0; i < 192; i++) a.push_back(small(i)), b.push_back(small(3 * i)), d.push_back(small(5 * i));
    float *D = device(d);
    CHECK(x.run(device(a), device(b), D));
    std::vector<float> got = host(D, d.size()), want = d;
    for (int z = 0; z < 2; z++)
      for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
          float s = 0;
          for (int t = 0; t < k; t++)
            s += a[(size_t)(64 * z + (way & 1 ? x.a.at(t, i) : x.a.at(i, t)))] *
                 b[(size_t)(64 * z + (way & 2 ? x.b.at(j, t) : x.b.at(t, j)))];
          float &w = want[(size_t)(96 * z + x.d.at(i, j))];
          w = 2 * s + (x.beta != 0 ? 3 * w : 0);
        }
    EXPECT(got == want);
  }
}

static double gelu(double x) { return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

/* gelu(x w + bias) and its gradients, whose slope is taken by differences. */
CASE(epilogues) {
  int m = 8, n = 3, k = 2;
  std::vector<float> a, b, bias, sum;
  for (int i = 0; i < m * k; i++) a.push_back(small(i) / 4);
  for (int i = 0; i < k * n; i++) b.push_back(small(2 * i) / 4);
  for (int i = 0; i < m; i++) bias.push_back(small(i) / 8);
  Product x;
  x.a = {m, k, m, false}, x.b = {k, n, k, false}, x.d = {m, n, m, false};
  x.epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS, x.bias = device(bias), x.aux = device_floats(m * n), x.ldaux = m;
  float *A = device(a), *B = device(b), *D = device_floats(m * n);
  CHECK(x.run(A, B, D));
  std::vector<float> z = host(x.aux, (size_t)(m * n)), y = host(D, (size_t)(m * n));
  for (int i = 0; i < m; i++)
    for (int j = 0; j < n; j++) {
      double s = bias[(size_t)i];
      for (int t = 0; t < k; t++) s += a[(size_t)(i + m * t)] * b[(size_t)(t + k * j)];
      EXPECT(fabs(s - z[(size_t)(i + m * j)]) < 1e-6 && fabs(gelu(s) - y[(size_t)(i + m * j)]) < 1e-6);
    }
  x.epilogue = CUBLASLT_EPILOGUE_DGELU_BGRAD;
  x.bias = device_floats(m);
  CHECK(x.run(A, B, D));
  y = host(D, (size_t)(m * n)), sum = host(x.bias, (size_t)m);
  for (int i = 0; i < m; i++) {
    double total = 0;
    for (int j = 0; j < n; j++) {
      double s = 0, at = z[(size_t)(i + m * j)];
      for (int t = 0; t < k; t++) s += a[(size_t)(i + m * t)] * b[(size_t)(t + k * j)];
      double want = s * (gelu(at + 1e-5) - gelu(at - 1e-5)) / 2e-5;
      EXPECT(fabs(want - y[(size_t)(i + m * j)]) < 1e-5);
      total += want;
    }
    EXPECT(fabs(total - sum[(size_t)i]) < 1e-4);
  }
  x.epilogue = CUBLASLT_EPILOGUE_BGRADA, x.aux = nullptr;
  CHECK(x.run(A, B, D));
  sum = host(x.bias, (size_t)m);
  for (int i = 0; i < m; i++) EXPECT(fabs(sum[(size_t)i] - a[(size_t)i] - a[(size_t)(i + m)]) < 1e-6);
}

CASE(product_misaligned) {
  Product x;
  x.a = x.b = x.d = {4, 4, 4, false};
  x.align = bug ? 16 : 4;
  float *A = device_floats(17, small), *B = device_floats(16, small), *D = device_floats(16);
  CHECK(x.run(A + 1, B, D));
  CHECK(cudaDeviceSynchronize());
}

CASE(product_shapes) {
  Product x;
  x.a = {4, 4, 4, false}, x.b = {bug ? 5 : 4, 4, 5, false}, x.d = {4, 4, 4, false};
  float *A = device_floats(16, small), *B = device_floats(20, small), *D = device_floats(16);
  CHECK(x.run(A, B, D));
  CHECK(cudaDeviceSynchronize());
}

CASE(product_outside) {
  Product x;
  x.a = {4, 4, 4, false}, x.b = {4, 4, 4, false}, x.d = {4, bug ? 5 : 4, 4, false};
  x.b.cols = x.d.cols;
  float *A = device_floats(16, small), *B = device_floats(20, small), *D = device_floats(16);
  CHECK(x.run(A, B, D));
  CHECK(cudaDeviceSynchronize());
}

CASE(product_uninitialised) {
  Product x;
  x.a = x.b = x.d = {4, 4, 5, false};
  float *A = device_floats(20, small), *B = device_floats(20), *D = device_floats(20);
  CHECK(cudaMemset(B, 0, bug ? 60 : 80));
  CHECK(x.run(A, B, D));
  CHECK(cudaDeviceSynchronize());
}
