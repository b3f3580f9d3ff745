/* cuda_runtime.h of the emulator: the part of CUDA that runtime/cuda and emitted programs use, for a C++20 compiler and
   no GPU. Names, values and meaning are NVIDIA's; what is not here is not modelled, and does not compile.

     static __global__ void twice(float *x) { x[blockIdx.x * blockDim.x + threadIdx.x] *= 2; }
     DTCU_LAUNCH_ON(stream, twice, 4, 64, x);            // instead of twice<<<4, 64, 0, stream>>>(x)          */
#ifndef DTCU_EMULATED_CUDA_RUNTIME_H
#define DTCU_EMULATED_CUDA_RUNTIME_H

#define DTCU_EMULATED 1

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <source_location>
#include <type_traits>

/* ---- types ------------------------------------------------------------------------------------------------- */

#define CUDART_VERSION 12040

typedef enum cudaError {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInitializationError = 3,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidMemcpyDirection = 21,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorIllegalState = 401,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchFailure = 719,
  cudaErrorNotSupported = 801,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureMerge = 902,
  cudaErrorStreamCaptureUnmatched = 903,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorStreamCaptureImplicit = 906,
  cudaErrorCapturedEvent = 907,
  cudaErrorUnknown = 999
} cudaError_t;

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(16) longlong2 {
  long long x, y;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef struct CUgraphNode_st *cudaGraphNode_t;

/* The legacy stream: waits for all blocking streams, and they for it. */
#define cudaStreamLegacy ((cudaStream_t)0x1)

typedef enum {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4
} cudaMemcpyKind;

typedef enum {
  cudaMemoryTypeUnregistered = 0,
  cudaMemoryTypeHost = 1,
  cudaMemoryTypeDevice = 2,
  cudaMemoryTypeManaged = 3
} cudaMemoryType;
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
  void *devicePointer, *hostPointer;
};

typedef enum {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrClockRate = 13,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrMemoryClockRate = 36,
  cudaDevAttrGlobalMemoryBusWidth = 37,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrUnifiedAddressing = 41,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76
} cudaDeviceAttr;
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem, sharedMemPerBlock;
  int warpSize, maxThreadsPerBlock, major, minor, multiProcessorCount, l2CacheSize, memoryBusWidth;
  int asyncEngineCount, concurrentKernels, unifiedAddressing, pciBusID, pciDeviceID, pciDomainID;
};

enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
enum { cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };
enum { cudaEventRecordDefault = 0, cudaEventWaitDefault = 0 };
enum { cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2, cudaHostAllocWriteCombined = 4 };
enum { cudaDeviceScheduleAuto = 0, cudaDeviceScheduleSpin = 1, cudaDeviceScheduleYield = 2, cudaDeviceScheduleBlockingSync = 4 };
typedef enum {
  cudaStreamCaptureModeGlobal = 0,
  cudaStreamCaptureModeThreadLocal = 1,
  cudaStreamCaptureModeRelaxed = 2
} cudaStreamCaptureMode;
typedef enum {
  cudaStreamCaptureStatusNone = 0,
  cudaStreamCaptureStatusActive = 1,
  cudaStreamCaptureStatusInvalidated = 2
} cudaStreamCaptureStatus;
typedef void (*cudaHostFn_t)(void *);

/* ---- what the host calls --------------------------------------------------------------------------------------- */

extern "C" {
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char *cudaGetErrorName(cudaError_t);
const char *cudaGetErrorString(cudaError_t);

cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaSetDeviceFlags(unsigned flags);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *, int device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr, int device);
cudaError_t cudaDeviceGetPCIBusId(char *id, int bytes, int device);
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaDeviceReset(void);
cudaError_t cudaMemGetInfo(size_t *free, size_t *total);

cudaError_t cudaMalloc(void **, size_t bytes);
cudaError_t cudaFree(void *);
cudaError_t cudaMallocHost(void **, size_t bytes);
cudaError_t cudaHostAlloc(void **, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *);
cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *, const void *);
cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, cudaMemcpyKind);
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind, cudaStream_t = nullptr);
cudaError_t cudaMemset(void *, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void *, int value, size_t bytes, cudaStream_t = nullptr);

cudaError_t cudaStreamCreate(cudaStream_t *);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t);
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaStreamQuery(cudaStream_t);
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned flags = 0);
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t, void *data);

cudaError_t cudaEventCreate(cudaEvent_t *);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t = nullptr);
cudaError_t cudaEventQuery(cudaEvent_t);
cudaError_t cudaEventSynchronize(cudaEvent_t);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode);
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t *);
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus *);
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *, cudaGraph_t, unsigned long long flags = 0);
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t);
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t *, size_t *n);
cudaError_t cudaGraphDestroy(cudaGraph_t);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t);
}
template <class T> cudaError_t cudaMalloc(T **p, size_t bytes) { return cudaMalloc((void **)p, bytes); }
template <class T> cudaError_t cudaMallocHost(T **p, size_t bytes) { return cudaMallocHost((void **)p, bytes); }
template <class T> cudaError_t cudaHostAlloc(T **p, size_t bytes, unsigned flags) {
  return cudaHostAlloc((void **)p, bytes, flags);
}

/* ---- what kernels are written in --------------------------------------------------------------------------------- */

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
enum { warpSize = 32 };

namespace emu {
enum class Meet { BLOCK, WARP, SHUFFLE, SHUFFLE_DOWN, SHUFFLE_UP, SHUFFLE_XOR };
void meet_block(const std::source_location &);
/* All lanes of the mask meet; the bits that the lane receives (SHUFFLE...: `arg` is lane, distance or mask). */
uint64_t meet_warp(Meet, unsigned mask, uint64_t bits, int arg, int width, const std::source_location &);
/* A shared array of the running block, told by its declaration. */
void *shared(const void *declaration, const char *name, size_t element, size_t count, size_t align);
/* A kernel and its arguments; an object of `bytes`, all that a kernel may read of the host's memory. */
struct Body {
  size_t bytes;
  explicit Body(size_t bytes) : bytes(bytes) {}
  virtual ~Body() {}
  virtual void run() const = 0;
};
void launch(const char *kernel, dim3 blocks, dim3 threads, cudaStream_t, std::shared_ptr<const Body>);
/* The bytes of an arena's buffer; where accesses are checked under addresses of its own, so that its ends are known. */
void *buffer(void *start, int64_t bytes, const char *where);
/* What an atomic access is made of; exempt from the race check. */
uint64_t atomic_load(const void *, size_t bytes);
void atomic_store(void *, size_t bytes, uint64_t bits);

template <class T> uint64_t to_bits(T x) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>, "what a shuffle can carry");
  uint64_t bits = 0;
  std::memcpy(&bits, &x, sizeof x);
  return bits;
}
template <class T> T from_bits(uint64_t bits) {
  T x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

/* Plain classes: hundreds of launches to a file, and std::tuple and std::make_shared took half of the time to compile one. */
template <class F> struct Call final : Body {
  F call;
  explicit Call(F f) : Body(sizeof(Call)), call(std::move(f)) {}
  void run() const override { call(); }
};
template <class F> std::shared_ptr<const Body> call_of(F f) {
  return std::shared_ptr<const Body>((const Body *)new Call<F>(std::move(f)));
}
template <class... P>
void launch_kernel(const char *name, cudaStream_t stream, dim3 blocks, dim3 threads, void (*kernel)(P...),
                   std::type_identity_t<P>... values) {
  launch(name, blocks, threads, stream, call_of([=] { kernel(values...); }));
}
inline dim3 extent(dim3 d) { return d; }
template <class I, class = std::enable_if_t<std::is_integral_v<I>>> dim3 extent(I n) {
  return dim3(n < 0 || (uint64_t)n > 0x7fffffff ? 0 : n ? (unsigned)n : 1); /* 0 blocks run as one; a dim of 0 is refused */
}
} // namespace emu

#define DTCU_LAUNCH_ON(stream, kernel, blocks, threads, ...)                                                                     \
  emu::launch_kernel(#kernel, stream, emu::extent(blocks), emu::extent(threads), kernel __VA_OPT__(, ) __VA_ARGS__)
#define DTCU_LAUNCH(cx, kernel, blocks, threads, ...)                                                                            \
  (DTCU_LAUNCH_ON(dtcu_stream(cx), kernel, blocks, threads, __VA_ARGS__), dtcu_launched(cx, #kernel))
#define DTCU_SHARED(type, name, count)                                                                                           \
  static char name##_declaration;                                                                                                \
  type *const name = (type *)emu::shared(&name##_declaration, #name, sizeof(type), count, alignof(type))

#define EMU_STRING_(x) #x
#define EMU_STRING(x) EMU_STRING_(x)
#if defined(DTCU_CHECKED) || defined(__SANITIZE_ADDRESS__)
#define AT(offset, bytes) emu::buffer(cx->arena + (offset), bytes, __FILE__ ":" EMU_STRING(__LINE__))
#endif

#define EMU_HERE const std::source_location &here = std::source_location::current()
inline void __syncthreads(EMU_HERE) { emu::meet_block(here); }
inline void __syncwarp(unsigned mask = 0xffffffffu, EMU_HERE) { emu::meet_warp(emu::Meet::WARP, mask, 0, 0, 32, here); }
template <class T> T __shfl_sync(unsigned mask, T x, int lane, int width = 32, EMU_HERE) {
  return emu::from_bits<T>(emu::meet_warp(emu::Meet::SHUFFLE, mask, emu::to_bits(x), lane, width, here));
}
template <class T> T __shfl_down_sync(unsigned mask, T x, unsigned by, int width = 32, EMU_HERE) {
  return emu::from_bits<T>(emu::meet_warp(emu::Meet::SHUFFLE_DOWN, mask, emu::to_bits(x), (int)by, width, here));
}
template <class T> T __shfl_up_sync(unsigned mask, T x, unsigned by, int width = 32, EMU_HERE) {
  return emu::from_bits<T>(emu::meet_warp(emu::Meet::SHUFFLE_UP, mask, emu::to_bits(x), (int)by, width, here));
}
template <class T> T __shfl_xor_sync(unsigned mask, T x, int with, int width = 32, EMU_HERE) {
  return emu::from_bits<T>(emu::meet_warp(emu::Meet::SHUFFLE_XOR, mask, emu::to_bits(x), with, width, here));
}
template <class T> T __ldg(const T *p) { return *p; }

/* The threads of a process run one at a time and change only where they meet, so load and store are one step. */
template <class T, class F> T emu_atomic(T *p, F f) {
  T old = emu::from_bits<T>(emu::atomic_load(p, sizeof(T)));
  emu::atomic_store(p, sizeof(T), emu::to_bits<T>(f(old)));
  return old;
}
template <class T> T atomicCAS(T *p, std::type_identity_t<T> was, std::type_identity_t<T> x) {
  return emu_atomic(p, [=](T old) { return old == was ? x : old; });
}
template <class T> T atomicExch(T *p, std::type_identity_t<T> x) {
  return emu_atomic(p, [=](T) { return x; });
}
template <class T> T atomicMin(T *p, std::type_identity_t<T> x) {
  return emu_atomic(p, [=](T old) { return old < x ? old : x; });
}
template <class T> T atomicMax(T *p, std::type_identity_t<T> x) {
  return emu_atomic(p, [=](T old) { return old > x ? old : x; });
}
template <class T> T atomicAdd(T *p, std::type_identity_t<T> x) {
#ifndef DTCU_FAST
  static_assert(!std::is_floating_point_v<T>, "floats are added by atomics only with --fast: such sums have no order");
#endif
  return emu_atomic(p, [=](T old) { return (T)(old + x); });
}
inline void __threadfence() {}
inline void __threadfence_system() {}
inline void __threadfence_block() {}
[[noreturn]] inline void __trap() { __builtin_trap(); }

#include <math.h>
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __int_as_float(int x) { return emu::from_bits<float>((uint32_t)x); }
inline float __uint_as_float(unsigned x) { return emu::from_bits<float>(x); }
inline int __float_as_int(float x) { return (int)emu::to_bits(x); }
inline unsigned __float_as_uint(float x) { return (unsigned)emu::to_bits(x); }
inline long long __double_as_longlong(double x) { return (long long)emu::to_bits(x); }
inline double __longlong_as_double(long long x) { return emu::from_bits<double>((uint64_t)x); }
inline unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)((uint64_t)x * y >> 32); }
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return (unsigned long long)((unsigned __int128)x * y >> 64);
}
template <class A, class B, class T = std::common_type_t<A, B>> constexpr T min(A a, B b) { return (T)b < (T)a ? (T)b : (T)a; }
template <class A, class B, class T = std::common_type_t<A, B>> constexpr T max(A a, B b) { return (T)a < (T)b ? (T)b : (T)a; }

#endif
