/* dtcu_device.h: what emitted kernels see on the device: the context, faults, reductions over a warp or a block, and
   the scalar functions under the names of dtrt_math.h. Compiled by nvcc, or by a C++ compiler whose cuda_runtime.h
   carries out the same words on the CPU.

     ss = dtcu_block_sum(ss);                           every thread of the block gets the same sum
     row = row < 0 || row >= 65 ? dtcu_out_of_range(cx, row, 65, "tok", 12) : row;

   A block is 32 to 1024 threads, a multiple of 32, along x. Reductions are trees of fixed shape: they repeat bit for bit.
   All threads of the block (of the warp) call them together. */
#ifndef DTCU_DEVICE_H
#define DTCU_DEVICE_H

#include <cuda_runtime.h>

#include "runtime/dtrt_random.h"
#include "runtime/dtrt_scalar.h"

/* A block's array, 16 bytes aligned; it may be written again only behind a barrier after its last use. */
#ifndef DTCU_SHARED
#define DTCU_SHARED(type, name, count) __shared__ __align__(16) type name[count]
#endif

/* Before a loop whose arrays must stay in registers. */
#ifdef __CUDACC__
#define DTCU_UNROLL _Pragma("unroll")
#else
#define DTCU_UNROLL
#endif

/* Runs a kernel on the compute stream. `blocks` is a number of blocks (0 runs one) or a dim3. */
#ifndef DTCU_LAUNCH
#define DTCU_LAUNCH(cx, kernel, blocks, threads, ...)                                                                            \
  do {                                                                                                                           \
    kernel<<<dtcu_grid(blocks), (threads), 0, dtcu_stream(cx)>>>(__VA_ARGS__);                                                   \
    dtcu_launched(cx, #kernel);                                                                                                  \
  } while (0)
#endif

static inline dim3 dtcu_grid(int64_t blocks) {
  return dim3((unsigned)(blocks < 1 ? 1 : blocks > INT32_MAX ? INT32_MAX : blocks));
}
static inline dim3 dtcu_grid(dim3 blocks) { return blocks; }

/* An argument that stays where the launch has put it: indexed without a copy. */
#ifndef __grid_constant__
#define __grid_constant__
#endif

/* ---- threads and pointers ---------------------------------------------------------------------------------------- */

/* The at-th n of consecutive numbers i; n is small and constant. */
#ifdef __CUDACC__
#define DTCU_EACH(i, n, at) _Pragma("unroll") for (int64_t i = (n) * (at); i < (n) * (at) + (n); i++)
#else
#define DTCU_EACH(i, n, at) for (int64_t i = (n) * (at); i < (n) * (at) + (n); i++)
#endif

/* A thread's number in the whole grid, and how many there are. */
static __device__ __forceinline__ int64_t dtcu_thread() { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }
static __device__ __forceinline__ int64_t dtcu_threads() { return (int64_t)gridDim.x * blockDim.x; }

/* This pointer is a multiple of 16 bytes: what a thread loads of four neighbours becomes one load. */
#define DTCU_ALIGNED(p) p = (decltype(p))__builtin_assume_aligned(p, 16)

/* ---- faults ------------------------------------------------------------------------------------------------------ */

enum { DTCU_NO_FAULT, DTCU_OUT_OF_RANGE, DTCU_NOT_FINITE };

/* Memory that the host reads while kernels run. Of several faults the one of the lowest line stays, of one line the one of
   the least value, so that the message repeats. */
typedef struct {
  int lock, kind, line;
  int64_t value, limit; /* out of range: the coordinate and its dim; not finite: the float's bits */
  char tensor[80];
} dtcu_Fault;

/* dtrt_Context as kernels see it; it lies in device memory, and so does what it points to. */
typedef struct {
  int rank, nranks;
  bool checking;
  uint64_t seed;
  const double *setting;
  char *workspace;
  dtcu_Fault *fault;
} dtcu_Context;

/* Four letters of a text of n. */
static __device__ __forceinline__ int dtcu_letters(const char *text, int n, int from) {
  int word = 0;
  for (int c = 0; c < 4; c++)
    if (from + c < n) word |= (int)(unsigned char)text[from + c] << 8 * c;
  return word;
}

/* Takes the lock of the record; warps whose threads diverge make progress (compute capability 7.0 and later). Blocks are
   not ordered otherwise, so that all fields are moved by atomics. Inline: around a call registers are spilled, though it is
   hardly ever taken. */
static __device__ __forceinline__ void dtcu_note(const dtcu_Context *cx, int kind, int64_t value, int64_t limit,
                                                 const char *tensor, int line) {
  typedef unsigned long long Word;
  dtcu_Fault *f = cx->fault;
  int n = 0;
  while (tensor[n] && n + 1 < (int)sizeof f->tensor) n++;
  for (bool noted = false; !noted;) {
    if (atomicCAS(&f->lock, 0, 1) != 0) continue;
    __threadfence();
    const int there = atomicAdd(&f->kind, 0), before = atomicAdd(&f->line, 0);
    if (there == DTCU_NO_FAULT || line < before || (line == before && value < (int64_t)atomicAdd((Word *)&f->value, 0))) {
      atomicExch(&f->line, line);
      atomicExch((Word *)&f->value, (Word)value);
      atomicExch((Word *)&f->limit, (Word)limit);
      for (int i = 0; i < (int)sizeof f->tensor; i += 4) atomicExch((int *)(f->tensor + i), dtcu_letters(tensor, n, i));
      atomicExch(&f->kind, kind);
    }
    __threadfence_system();
    atomicExch(&f->lock, 0);
    noted = true;
  }
}

/* A read by value left its dim. The kernel goes on with the coordinate 0; the host ends the run. */
static __device__ __forceinline__ int64_t dtcu_out_of_range(const dtcu_Context *cx, int64_t value, int64_t limit,
                                                            const char *tensor, int line) {
  dtcu_note(cx, DTCU_OUT_OF_RANGE, value, limit, tensor, line);
  return 0;
}

/* Notes the first of n elements that is not finite. */
static __device__ __forceinline__ void dtrt_check_f32(const dtcu_Context *cx, const float *x, int64_t n, const char *tensor,
                                                      int line) {
  for (int64_t i = 0; i < n; i++) {
    if (x[i] - x[i] == 0.0f) continue;
    dtcu_note(cx, DTCU_NOT_FINITE, dtrt_bits_of(x[i]), 0, tensor, line);
    return;
  }
}

/* ---- reductions -------------------------------------------------------------------------------------------------- */

static __device__ __forceinline__ int dtcu_lane() { return (int)threadIdx.x & 31; }
static __device__ __forceinline__ int dtcu_warp() { return (int)threadIdx.x >> 5; }

static __device__ __forceinline__ float dtcu_max2(float a, float b) { return dtrt_maxf(a, b); }
static __device__ __forceinline__ float dtcu_min2(float a, float b) { return dtrt_minf(a, b); }
static __device__ __forceinline__ double dtcu_max2(double a, double b) { return dtrt_max(a, b); }
static __device__ __forceinline__ double dtcu_min2(double a, double b) { return dtrt_min(a, b); }
template <typename T> static __device__ __forceinline__ T dtcu_max2(T a, T b) { return a > b ? a : b; }
template <typename T> static __device__ __forceinline__ T dtcu_min2(T a, T b) { return a < b ? a : b; }

struct dtcu_Sum {
  template <typename T> static __device__ __forceinline__ T of(T a, T b) { return a + b; }
};
struct dtcu_Prod {
  template <typename T> static __device__ __forceinline__ T of(T a, T b) { return a * b; }
};
struct dtcu_Max {
  template <typename T> static __device__ __forceinline__ T of(T a, T b) { return dtcu_max2(a, b); }
};
struct dtcu_Min {
  template <typename T> static __device__ __forceinline__ T of(T a, T b) { return dtcu_min2(a, b); }
};

/* The partner's operand and one's own change places between lanes, which no bit of these operations depends on: all
   lanes get the same result. */
template <typename Op, typename T> static __device__ __forceinline__ T dtcu_warp_reduce(T x) {
  for (int distance = 16; distance > 0; distance /= 2) x = Op::of(x, (T)__shfl_xor_sync(0xffffffffu, x, distance));
  return x;
}

template <typename Op, typename T> static __device__ __forceinline__ T dtcu_block_reduce(T x) {
  DTCU_SHARED(T, part, 32);
  x = dtcu_warp_reduce<Op>(x);
  if (dtcu_lane() == 0) part[dtcu_warp()] = x;
  __syncthreads();
  x = part[0];
  for (int w = 1; w < (int)blockDim.x / 32; w++) x = Op::of(x, part[w]);
  __syncthreads();
  return x;
}

template <typename T> static __device__ __forceinline__ T dtcu_warp_sum(T x) { return dtcu_warp_reduce<dtcu_Sum>(x); }
template <typename T> static __device__ __forceinline__ T dtcu_warp_prod(T x) { return dtcu_warp_reduce<dtcu_Prod>(x); }
template <typename T> static __device__ __forceinline__ T dtcu_warp_max(T x) { return dtcu_warp_reduce<dtcu_Max>(x); }
template <typename T> static __device__ __forceinline__ T dtcu_warp_min(T x) { return dtcu_warp_reduce<dtcu_Min>(x); }
template <typename T> static __device__ __forceinline__ T dtcu_block_sum(T x) { return dtcu_block_reduce<dtcu_Sum>(x); }
template <typename T> static __device__ __forceinline__ T dtcu_block_prod(T x) { return dtcu_block_reduce<dtcu_Prod>(x); }
template <typename T> static __device__ __forceinline__ T dtcu_block_max(T x) { return dtcu_block_reduce<dtcu_Max>(x); }
template <typename T> static __device__ __forceinline__ T dtcu_block_min(T x) { return dtcu_block_reduce<dtcu_Min>(x); }

/* The sum of x over this thread and those before it; *total: over the whole block. */
template <typename T> static __device__ __forceinline__ T dtcu_block_scan(T x, T *total) {
  DTCU_SHARED(T, part, 32);
  for (int distance = 1; distance < 32; distance *= 2) {
    T before = (T)__shfl_sync(0xffffffffu, x, dtcu_lane() - (dtcu_lane() >= distance ? distance : 0));
    if (dtcu_lane() >= distance) x = before + x;
  }
  if (dtcu_lane() == 31) part[dtcu_warp()] = x;
  __syncthreads();
  T before = 0, sum = 0;
  for (int w = 0; w < (int)blockDim.x / 32; w++) {
    if (w == dtcu_warp()) before = sum;
    sum += part[w];
  }
  __syncthreads();
  *total = sum;
  return dtcu_warp() == 0 ? x : before + x;
}

/* Lists the x of those threads that have a hit, in the threads' order; returns how many. The list may be read until the
   next call. */
template <typename T> static __device__ __forceinline__ int dtcu_block_list(bool hit, T x, T *list) {
  int hits;
  const int at = dtcu_block_scan((int)hit, &hits); /* its barrier: nobody reads the last list any more */
  if (hit) list[at - 1] = x;
  __syncthreads();
  return hits;
}

/* Descending order with the smallest place first among equals; a NaN is above everything, so that it shows. */
template <typename T> static __device__ __forceinline__ bool dtcu_above(T x, T y) { return x > y || (x != x && y == y); }
template <typename T> static __device__ __forceinline__ bool dtcu_before(T x, int64_t at, T y, int64_t there) {
  return dtcu_above(x, y) || (!dtcu_above(y, x) && at < there);
}

/* Makes (*best, *at) the first of itself and (x, place) in that order; a place < 0 is none. */
template <typename T> static __device__ __forceinline__ void dtcu_first(T *best, int64_t *at, T x, int64_t place) {
  if (place >= 0 && (*at < 0 || dtcu_before(x, place, *best, *at))) *best = x, *at = place;
}
/* The first of the block's threads. */
template <typename T> static __device__ __forceinline__ void dtcu_block_first(T *best, int64_t *at) {
  DTCU_SHARED(T, value, 32);
  DTCU_SHARED(int64_t, place, 32);
  for (int distance = 16; distance > 0; distance /= 2) {
    T x = (T)__shfl_xor_sync(0xffffffffu, *best, distance);
    int64_t p = (int64_t)__shfl_xor_sync(0xffffffffu, (long long)*at, distance);
    dtcu_first(best, at, x, p);
  }
  if (dtcu_lane() == 0) value[dtcu_warp()] = *best, place[dtcu_warp()] = *at;
  __syncthreads();
  for (int w = 0; w < (int)blockDim.x / 32; w++) dtcu_first(best, at, value[w], place[w]);
  __syncthreads();
}

/* ---- random numbers --------------------------------------------------------------------------------------------- */

/* Of a run of n elements, `first` the number of its first: draws those in the quad-th four that the run has a part in. */
static __device__ __forceinline__ void dtcu_random_quad(dtrt_Random site, bool normal, float *run, int64_t n, int64_t first,
                                                        int64_t quad) {
  float x[4];
  const int64_t at = (first / 4 + quad) * 4 - first;
  if (at >= n) return;
  dtrt_random_quad(site, (uint64_t)(first / 4 + quad), normal, x);
  DTCU_UNROLL
  for (int c = 0; c < 4; c++)
    if (at + c >= 0 && at + c < n) run[at + c] = x[c];
}

/* ---- scalar functions: CUDA's accurate ones, within 2 ulp ------------------------------------------------------------ */

static __device__ __forceinline__ float dtrt_expf(float x) { return expf(x); }
static __device__ __forceinline__ float dtrt_logf(float x) { return logf(x); }
static __device__ __forceinline__ float dtrt_log1pf(float x) { return log1pf(x); }
static __device__ __forceinline__ float dtrt_tanhf(float x) { return tanhf(x); }
static __device__ __forceinline__ float dtrt_erff(float x) { return erff(x); }
static __device__ __forceinline__ float dtrt_sinf(float x) { return sinf(x); }
static __device__ __forceinline__ float dtrt_cosf(float x) { return cosf(x); }
static __device__ __forceinline__ float dtrt_rsqrtf(float x) { return rsqrtf(x); }
static __device__ __forceinline__ float dtrt_sigmoidf(float x) { return 1.0f / (1.0f + expf(-x)); }

#endif
