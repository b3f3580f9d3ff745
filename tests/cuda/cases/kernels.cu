/* kernels.cu: what goes wrong within one kernel. */
#include "cases.h"

/* The sum of a block by shared memory. */
static __global__ void block_sum(const float *x, float *out, int barriers) {
  DTCU_SHARED(float, part, 128);
  int me = (int)threadIdx.x;
  part[me] = x[blockIdx.x * 128 + me];
  if (barriers) __syncthreads();
  for (int half = 64; half; half /= 2) {
    if (me < half) part[me] += part[me + half];
    __syncthreads();
  }
  if (me == 0) out[blockIdx.x] = part[0];
}
CASE(missing_barrier) {
  float *x = device_floats(512, index_of), *out = device_floats(4);
  DTCU_LAUNCH_ON(0, block_sum, 4, 128, x, out, !bug);
  EXPECT(sum_of(out, 4) == 511 * 256);
}

/* Every thread reads what its neighbour writes, and the answer does not depend on who is first. */
static __global__ void same_values(float *x, int wrong) {
  DTCU_SHARED(float, y, 64);
  int me = (int)threadIdx.x;
  y[me] = 1;
  if (!wrong) __syncthreads();
  x[me] = y[me ^ 1];
}
CASE(right_answer_without_barrier) {
  float *x = device_floats(64, one);
  DTCU_LAUNCH_ON(0, same_values, 1, 64, x, bug);
  EXPECT(sum_of(x, 64) == 64);
}

static __global__ void divergent(float *x, int wrong) {
  if (wrong && threadIdx.x == 5) return;
  __syncthreads();
  x[threadIdx.x] = 1;
}
CASE(divergent_barrier) {
  float *x = device_floats(64, one);
  DTCU_LAUNCH_ON(0, divergent, 1, 64, x, bug);
  EXPECT(sum_of(x, 64) == 64);
}

static __global__ void two_barriers(float *x, int wrong) {
  if (wrong && threadIdx.x < 32)
    __syncthreads();
  else
    __syncthreads();
  x[threadIdx.x] = 1;
}
CASE(two_barriers_meet) {
  float *x = device_floats(64, one);
  DTCU_LAUNCH_ON(0, two_barriers, 1, 64, x, bug);
  EXPECT(sum_of(x, 64) == 64);
}

static __global__ void warp_sum(const float *x, float *out, int wrong) {
  float s = x[threadIdx.x];
  if (wrong && threadIdx.x == 31) return;
  for (int by = 16; by; by /= 2) s += __shfl_down_sync(0xffffffffu, s, by);
  if (threadIdx.x == 0) *out = s;
}
CASE(missing_lane) {
  float *x = device_floats(32, index_of), *out = device_floats(1);
  DTCU_LAUNCH_ON(0, warp_sum, 1, 32, x, out, bug);
  EXPECT(sum_of(out, 1) == 496);
}

static __global__ void shuffles(float *out) {
  int lane = (int)threadIdx.x % 32;
  int ok = __shfl_sync(0xffffffffu, lane, 7) == 7;
  ok &= __shfl_xor_sync(0xffffffffu, (long long)lane, 5) == (lane ^ 5);
  ok &= __shfl_down_sync(0xffffffffu, (double)lane, 3) == (lane < 29 ? lane + 3 : lane);
  ok &= __shfl_up_sync(0xffffffffu, lane, 2, 8) == (lane % 8 < 2 ? lane : lane - 2);
  ok &= __shfl_sync(0xffffffffu, lane, 1, 16) == lane / 16 * 16 + 1;
  out[threadIdx.x] = (float)ok;
}
CASE(shuffles_are_right) {
  float *out = device_floats(96);
  DTCU_LAUNCH_ON(0, shuffles, 1, 96, out);
  EXPECT(sum_of(out, 96) == 96);
}

/* A shuffle orders no memory. */
static __global__ void warp_hands_over(float *x, int wrong) {
  DTCU_SHARED(float, y, 32);
  y[threadIdx.x] = 1;
  float by_register = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
  if (!wrong) __syncwarp();
  x[threadIdx.x] = y[threadIdx.x ^ 1] * by_register;
}
CASE(shuffle_is_no_barrier) {
  float *x = device_floats(32, one);
  DTCU_LAUNCH_ON(0, warp_hands_over, 1, 32, x, bug);
  EXPECT(sum_of(x, 32) == 32);
}

static __global__ void per_block(float *x, int wrong) {
  if (threadIdx.x == 0) x[wrong ? 0 : blockIdx.x] = 1;
}
CASE(blocks_write_the_same) {
  float *x = device_floats(4, one);
  DTCU_LAUNCH_ON(0, per_block, 4, 32, x, bug);
  EXPECT(sum_of(x, 4) == 4);
}

static __global__ void fill(float *x, int n) {
  for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n; i += (int)(gridDim.x * blockDim.x)) x[i] = 1;
}
CASE(overrun) {
  float *x = device_floats(100);
  DTCU_LAUNCH_ON(0, fill, 2, 32, x, bug ? 101 : 100);
  EXPECT(sum_of(x, 100) == 100);
}

static __global__ void overrun_shared_kernel(float *out, int n) {
  DTCU_SHARED(float, y, 33);
  DTCU_SHARED(float, z, 33);
  int me = (int)threadIdx.x;
  if (me < n) y[me] = 1, z[me] = 2;
  __syncthreads();
  if (me < 32) out[me] = y[me] + z[me];
}
CASE(overrun_shared) {
  float *out = device_floats(32);
  DTCU_LAUNCH_ON(0, overrun_shared_kernel, 1, 64, out, bug ? 34 : 33);
  EXPECT(sum_of(out, 32) == 96);
}

static __global__ void add(const float *x, float *y, int n) {
  int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] = x[i] + 1;
}
CASE(uninitialised) {
  float *x = device_floats(64), *y = device_floats(64);
  CHECK(cudaMemset(x, 0, bug ? 63 * 4 : 64 * 4));
  DTCU_LAUNCH_ON(0, add, 1, 64, x, y, 64);
  EXPECT(bug || sum_of(y, 64) == 64);
  CHECK(cudaDeviceSynchronize());
}

CASE(uninitialised_through_a_copy) {
  float *x = device_floats(64), *y = device_floats(64), *z = device_floats(64);
  CHECK(cudaMemset(x, 0, bug ? 63 * 4 : 64 * 4));
  CHECK(cudaMemcpyAsync(y, x, 64 * 4, cudaMemcpyDeviceToDevice));
  DTCU_LAUNCH_ON(0, add, 1, 64, y, z, 64);
  CHECK(cudaDeviceSynchronize());
}

static __global__ void shared_unwritten(float *out, int n) {
  DTCU_SHARED(float, y, 32);
  if ((int)threadIdx.x < n) y[threadIdx.x] = 1;
  __syncthreads();
  out[blockIdx.x * 32 + threadIdx.x] = y[threadIdx.x];
}
CASE(uninitialised_shared) {
  float *out = device_floats(64);
  DTCU_LAUNCH_ON(0, shared_unwritten, 2, 32, out, bug ? 31 : 32);
  CHECK(cudaDeviceSynchronize());
}

CASE(host_pointer_in_a_kernel) {
  static float on_host[64];
  float *x = device_floats(64, one);
  DTCU_LAUNCH_ON(0, add, 1, 64, x, bug ? on_host : x, 64);
  CHECK(cudaDeviceSynchronize());
}

CASE(use_after_free) {
  float *x = device_floats(64, one), *y = device_floats(64, one);
  if (bug) CHECK(cudaFree(x));
  DTCU_LAUNCH_ON(0, add, 1, 64, x, y, 64);
  CHECK(cudaDeviceSynchronize());
}

static __global__ void note(int *first, float *x) {
  atomicMin(first, (int)threadIdx.x + 7);
  x[threadIdx.x] = 1;
}
CASE(atomics) {
  int *first;
  float *x = device_floats(64);
  CHECK(cudaHostAlloc(&first, 4, cudaHostAllocMapped));
  *first = 1000;
  DTCU_LAUNCH_ON(0, note, 1, 64, first, x);
  CHECK(cudaDeviceSynchronize());
  EXPECT(*first == 7);
}
