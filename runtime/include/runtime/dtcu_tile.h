/* dtcu_tile.h: products of tiles in shared memory, the online softmax over a tile, and sums by atomics that repeat: what
   emitted attention kernels are made of.

   A block is lanes * lanes threads, lanes = 8 or 16. Thread (y, x) = (threadIdx.x / lanes, threadIdx.x % lanes) has of a
   tile of 4 lanes by 4 lanes the elements in rows y + lanes * i and columns x + lanes * j; i, j < 4: neighbours in x lie
   beside each other in memory. Sums over more than a tile's depth are continued by further calls. */
#ifndef DTCU_TILE_H
#define DTCU_TILE_H

#include "runtime/dtcu_device.h"

enum {
  DTCU_DEPTH = 32,             /* how much of a sum lies in shared memory at a time */
  DTCU_PITCH = DTCU_DEPTH + 4, /* from row to row: an odd number of 16 bytes, so that eight rows meet in no bank */
  DTCU_EXACT_BITS = 62         /* of dtcu_add's integers */
};

static __device__ __forceinline__ void dtcu_load4(float to[4], const float *from) {
  float4 v = *(const float4 *)from;
  to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}
static __device__ __forceinline__ void dtcu_load4(double to[4], const double *from) {
  for (int c = 0; c < 4; c++) to[c] = from[c];
}

/* s[row][column] += sum over k < DTCU_DEPTH of left[row][k] right[column][k], rows of both at DTCU_PITCH. */
template <typename T>
static __device__ __forceinline__ void dtcu_tile_dot(T (&s)[4][4], const T *left, const T *right, int lanes) {
  const int y = (int)threadIdx.x / lanes, x = (int)threadIdx.x % lanes;
  for (int k = 0; k < DTCU_DEPTH; k += 4) {
    T a[4][4], b[4][4];
    DTCU_UNROLL
    for (int i = 0; i < 4; i++) {
      dtcu_load4(a[i], left + (y + lanes * i) * DTCU_PITCH + k);
      dtcu_load4(b[i], right + (x + lanes * i) * DTCU_PITCH + k);
    }
    DTCU_UNROLL
    for (int i = 0; i < 4; i++) DTCU_UNROLL
    for (int j = 0; j < 4; j++) DTCU_UNROLL
    for (int c = 0; c < 4; c++) s[i][j] += a[i][c] * b[j][c];
  }
}

/* sum[row][column] += sum over u < DTCU_DEPTH of weight[row][u] values[u][column]; weight's rows lie 4 lanes + 4 apart, those
   of values N lanes. */
template <int N, typename T>
static __device__ __forceinline__ void dtcu_tile_add(T (&sum)[4][N], const T *weight, const T *values, int lanes) {
  const int y = (int)threadIdx.x / lanes, x = (int)threadIdx.x % lanes, pitch = 4 * lanes + 4;
  for (int u = 0; u < DTCU_DEPTH; u += 4) {
    T w[4][4];
    DTCU_UNROLL
    for (int i = 0; i < 4; i++) dtcu_load4(w[i], weight + (y + lanes * i) * pitch + u);
    DTCU_UNROLL
    for (int c = 0; c < 4; c++) DTCU_UNROLL
    for (int j = 0; j < N; j++) {
      T v = values[(u + c) * N * lanes + x + lanes * j];
      DTCU_UNROLL
      for (int i = 0; i < 4; i++) sum[i][j] += w[i][c] * v;
    }
  }
}

/* ---- softmax over tiles of keys that come one after the other -------------------------------------------------------

   Of each row: top, the largest score so far, total, the sum of exp(score - top), and sum, that of exp(score - top) times
   the values. A new tile that has a larger score scales what was summed before by exp(old top - new top). (Milakov and
   Gimelshein, "Online normalizer calculation for softmax", 2018.) Rows of only -inf have total 0. */

static __device__ __forceinline__ float dtcu_exp(float x) { return expf(x); }
static __device__ __forceinline__ double dtcu_exp(double x) { return exp(x); }
static __device__ __forceinline__ float dtcu_log(float x) { return logf(x); }
static __device__ __forceinline__ double dtcu_log(double x) { return log(x); }

/* exp(score - shift), where -inf has weight 0 whatever the shift. */
template <typename T> static __device__ __forceinline__ T dtcu_weight(T score, T shift) {
  return score == -(T)INFINITY ? (T)0 : dtcu_exp(score - (shift == -(T)INFINITY ? (T)0 : shift));
}

/* Takes a tile of scores in and leaves its weights exp(score - top). */
template <int N, typename T>
static __device__ __forceinline__ void dtcu_tile_softmax(T (&score)[4][4], T (&top)[4], T (&total)[4], T (&sum)[4][N],
                                                         int lanes) {
  DTCU_UNROLL
  for (int i = 0; i < 4; i++) {
    T most = dtcu_max2(dtcu_max2(score[i][0], score[i][1]), dtcu_max2(score[i][2], score[i][3]));
    for (int distance = lanes / 2; distance > 0; distance /= 2)
      most = dtcu_max2(most, (T)__shfl_xor_sync(0xffffffffu, most, distance));
    most = dtcu_max2(most, top[i]);
    const T keep = dtcu_weight(top[i], most);
    T tile = 0;
    DTCU_UNROLL
    for (int j = 0; j < 4; j++) {
      score[i][j] = dtcu_weight(score[i][j], most);
      tile += score[i][j];
    }
    for (int distance = lanes / 2; distance > 0; distance /= 2) tile += (T)__shfl_xor_sync(0xffffffffu, tile, distance);
    total[i] = total[i] * keep + tile;
    top[i] = most;
    DTCU_UNROLL
    for (int j = 0; j < N; j++) sum[i][j] *= keep;
  }
}

template <typename T> static __device__ __forceinline__ T dtcu_lse(T top, T total) {
  return total != (T)0 ? (top == -(T)INFINITY ? (T)0 : top) + dtcu_log(total) : -(T)INFINITY;
}

/* ---- sums at places that many threads may meet at -------------------------------------------------------------------

   In integers order does not matter. First the largest absolute value is found, then every value is added in units of
   a power of two so small that 2^count_bits of the largest still fit 62 bits, then the sums are converted. */

/* The bits of |x|: of such numbers they have the numbers' order, and NaN is above all. */
static __device__ __forceinline__ unsigned long long dtcu_magnitude(double x) {
  unsigned long long bits;
  memcpy(&bits, &x, sizeof bits);
  return bits & 0x7fffffffffffffffull;
}

/* Units per 1: 0 where the largest is 0 or not finite. */
static __device__ __forceinline__ double dtcu_exact_units(const unsigned long long *largest, int count_bits) {
  const int exponent = (int)(*largest >> 52) - 1022; /* largest < 2^exponent */
  if (*largest == 0 || exponent > 1024) return 0;
  const int power = DTCU_EXACT_BITS - count_bits - exponent;
  return ldexp(1.0, power > 1000 ? 1000 : power);
}

static __device__ __forceinline__ void dtcu_add(unsigned long long *cell, double x, double units) {
  atomicAdd(cell, (unsigned long long)llrint(x * units));
}

/* The sum in a cell. Where some value was not finite, it is not. */
static __device__ __forceinline__ double dtcu_exact_sum(unsigned long long cell, const unsigned long long *largest,
                                                        int count_bits) {
  const double units = dtcu_exact_units(largest, count_bits);
  return units != 0 ? (double)(long long)cell / units : *largest == 0 ? 0.0 : (double)NAN;
}

#endif
