// bench.cu: in place of the runtime: runs the forward pass of an emitted program of one rank again and again and says how long it
// takes, beside a copy of the same number of bytes by cudaMemcpyAsync. For programs of a kernel or two, without
// collectives and products: tests/gpu/kernels.
//
//   nvcc ... softmax.cu bench.cu -lcublasLt -o softmax && ./softmax BYTES        -> {"ms": 0.41, "copy_ms": 0.38, "ratio": 0.93}
//   nvcc ... softmax.cu bench.cu -lcublasLt -o softmax && ./softmax products M N K ...   -> the time of these products by cuBLASLt
//
// BYTES is what the kernel must read and write; the ratio is that of the copy's time to the kernel's.
#include <cublasLt.h>

#include <cstdio>
#include <cstdlib>

#include "runtime/dtcu.h"

enum { WARMUP = 5, ROUNDS = 30 };

static cudaStream_t stream;
static dtcu_Context *device_context;

static void check(cudaError_t e, const char *what) {
  if (e == cudaSuccess) return;
  std::fprintf(stderr, "bench: %s: %s\n", what, cudaGetErrorString(e));
  std::exit(1);
}

// ---- what emitted code calls --------------------------------------------------------------------------------------------

extern "C" {
cudaStream_t dtcu_stream(const dtrt_Context *) { return stream; }
const dtcu_Context *dtcu_device(const dtrt_Context *) { return device_context; }
void dtcu_launched(dtrt_Context *, const char *kernel) { check(cudaGetLastError(), kernel); }
void dtcu_step(dtrt_Context *, const char *) {}
void dtcu_step_end(dtrt_Context *) {}
void dtcu_copy(dtrt_Context *, void *to, const void *from, int64_t bytes) {
  check(cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, stream), "copy");
}
void dtcu_zero(dtrt_Context *, void *to, int64_t bytes) { check(cudaMemsetAsync(to, 0, (size_t)bytes, stream), "zero"); }
void dtcu_put(dtrt_Context *, void *, int64_t) {}
void dtcu_gemm(dtrt_Context *, const dtcu_Gemm *) { std::abort(); }
void dtrt_gemm(dtrt_Context *, bool, bool, int64_t, int64_t, int64_t, float, const float *, int64_t, const float *, int64_t, float,
               float *, int64_t) {
  std::abort();
}
void dtrt_gemm_batch(dtrt_Context *, int64_t, bool, bool, int64_t, int64_t, int64_t, float, const float *, int64_t, int64_t,
                     const float *, int64_t, int64_t, float, float *, int64_t, int64_t) {
  std::abort();
}
void dtrt_start(dtrt_Context *, int, const void *const *, void *const *) { std::abort(); }
void dtrt_wait(dtrt_Context *, int) { std::abort(); }
void dtrt_collective(dtrt_Context *, int, const void *const *, void *const *) { std::abort(); }
void dtrt_tap(dtrt_Context *, int, const void *) {}
void dtrt_part(dtrt_Context *, dtrt_part_kind) {}
void dtrt_range(const dtrt_Context *, const dtrt_Dim *d, int64_t *lo, int64_t *n) { *lo = 0, *n = d->size; }
void dtrt_check_f32(dtrt_Context *, const float *, int64_t, const char *, int) {}
void dtrt_check_part(dtrt_Context *, const float *, const dtrt_Layout *, const char *, int) {}
}

// ---- timing -------------------------------------------------------------------------------------------------------------

// Milliseconds of one call, the mean of many behind each other.
template <class F> static double timed(F f) {
  cudaEvent_t from, to;
  float ms = 0;
  check(cudaEventCreate(&from), "event"), check(cudaEventCreate(&to), "event");
  for (int i = 0; i < WARMUP; i++) f();
  check(cudaEventRecord(from, stream), "event");
  for (int i = 0; i < ROUNDS; i++) f();
  check(cudaEventRecord(to, stream), "event");
  check(cudaEventSynchronize(to), "what was launched");
  check(cudaEventElapsedTime(&ms, from, to), "event");
  return (double)ms / (double)(int)ROUNDS;
}

static char *memory(int64_t bytes) {
  char *at = nullptr;
  check(cudaMalloc((void **)&at, (size_t)bytes + 256), "memory");
  check(cudaMemset(at, 0, (size_t)bytes), "memory");
  return at;
}

// C = A B with A m x k, B k x n, f32, by the first algorithm that the library proposes.
static double product(cublasLtHandle_t lt, int64_t m, int64_t n, int64_t k, cublasComputeType_t compute) {
  cublasLtMatmulDesc_t op;
  cublasLtMatrixLayout_t a, b, c;
  cublasLtMatmulPreference_t wish;
  cublasLtMatmulHeuristicResult_t found;
  size_t space = 32 << 20;
  int n_found = 0;
  float one = 1, zero = 0;
  cublasLtMatmulDescCreate(&op, compute, CUDA_R_32F);
  cublasLtMatrixLayoutCreate(&a, CUDA_R_32F, (uint64_t)m, (uint64_t)k, m);
  cublasLtMatrixLayoutCreate(&b, CUDA_R_32F, (uint64_t)k, (uint64_t)n, k);
  cublasLtMatrixLayoutCreate(&c, CUDA_R_32F, (uint64_t)m, (uint64_t)n, m);
  cublasLtMatmulPreferenceCreate(&wish);
  cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &space, sizeof space);
  char *at[] = {memory(4 * m * k), memory(4 * k * n), memory(4 * m * n), memory((int64_t)space)};
  if (cublasLtMatmulAlgoGetHeuristic(lt, op, a, b, c, c, wish, 1, &found, &n_found) != CUBLAS_STATUS_SUCCESS || !n_found) {
    std::fprintf(stderr, "bench: cuBLASLt has no algorithm\n");
    std::exit(1);
  }
  double ms = timed([&] {
    cublasStatus_t s = cublasLtMatmul(lt, op, &one, at[0], a, at[1], b, &zero, at[2], c, at[2], c, &found.algo, at[3], space, stream);
    if (s != CUBLAS_STATUS_SUCCESS) std::exit(1);
  });
  for (char *p : at) cudaFree(p);
  return ms;
}

// The sum over all that are named: M N K TIMES ...
static int products(int argc, char **argv) {
  cublasLtHandle_t lt;
  double ms[2] = {0, 0}, flop = 0;
  if (cublasLtCreate(&lt) != CUBLAS_STATUS_SUCCESS) return 1;
  for (int i = 0; i + 3 < argc; i += 4) {
    int64_t m = std::atoll(argv[i]), n = std::atoll(argv[i + 1]), k = std::atoll(argv[i + 2]), times = std::atoll(argv[i + 3]);
    ms[0] += (double)times * product(lt, m, n, k, CUBLAS_COMPUTE_32F);
    ms[1] += (double)times * product(lt, m, n, k, CUBLAS_COMPUTE_32F_FAST_TF32);
    flop += 2.0 * (double)times * (double)m * (double)n * (double)k;
  }
  cudaDeviceProp device;
  check(cudaGetDeviceProperties(&device, 0), "device");
  std::printf("{\"device\": \"%s\", \"f32_ms\": %.4f, \"tf32_ms\": %.4f, \"f32_gflops\": %.1f, \"tf32_gflops\": %.1f}\n", device.name,
              ms[0], ms[1], flop / ms[0] * 1e-6, flop / ms[1] * 1e-6);
  return 0;
}

int dtrt_main(const dtrt_Program *p, int argc, char **argv) {
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  if (argc > 2) return products(argc - 2, argv + 2);
  int64_t bytes = argc > 1 ? std::atoll(argv[1]) : 0;
  double setting[64] = {0};
  dtrt_Context cx = {};
  cx.nranks = 1;
  cx.arena = memory(p->arena_bytes);
  cx.workspace = memory(p->workspace_bytes);
  cx.setting = setting;
  dtcu_Context host = {};
  host.nranks = 1;
  host.workspace = cx.workspace;
  host.setting = (const double *)memory(sizeof setting);
  host.fault = (dtcu_Fault *)memory(sizeof *host.fault);
  device_context = (dtcu_Context *)memory(sizeof host);
  check(cudaMemcpy(device_context, &host, sizeof host, cudaMemcpyHostToDevice), "context");
  char *from = memory(bytes / 2), *to = memory(bytes / 2);
  double kernel = timed([&] { p->forward(&cx); });
  double copy = timed([&] { check(cudaMemcpyAsync(to, from, (size_t)bytes / 2, cudaMemcpyDeviceToDevice, stream), "copy"); });
  std::printf("{\"ms\": %.4f, \"copy_ms\": %.4f, \"ratio\": %.3f, \"gb_per_s\": %.1f}\n", kernel, copy, copy / kernel,
              (double)bytes / kernel * 1e-6);
  return 0;
}
