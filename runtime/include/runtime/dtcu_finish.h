/* dtcu_finish.h: the second pass of a sum over many blocks, on the host's side of an emitted program; dtcu.h includes it.

     dtcu_finish_sum(cx, partial, 128, 768, g);         g[i] = sum over p < 128 of partial[p * 768 + i]

   The pieces are added in a fixed order, of f32 in f64, so that a run repeats bit for bit. Few results have a block each,
   whose threads share the pieces; of many, 32 neighbours have a block, whose warps share the pieces. */
#ifndef DTCU_FINISH_H
#define DTCU_FINISH_H

#include "runtime/dtcu_device.h"

enum { DTCU_FINISH_THREADS = 256, DTCU_FINISH_FEW = 64 };

/* What partial results of type T are added in. */
template <typename Op, typename T> struct dtcu_Wide { typedef T type; };
template <> struct dtcu_Wide<dtcu_Sum, float> { typedef double type; };

template <typename Op, typename T>
static __global__ void dtcu_finish_few(const T *__restrict__ partial, int64_t pieces, int64_t n, T *__restrict__ out) {
  typedef typename dtcu_Wide<Op, T>::type W;
  DTCU_SHARED(W, part, DTCU_FINISH_THREADS);
  int64_t i = blockIdx.x;
  int threads = (int)dtrt_imin(pieces, blockDim.x), me = (int)threadIdx.x;
  if (me < threads) {
    W x = (W)partial[me * n + i];
    for (int64_t p = me + threads; p < pieces; p += threads) x = Op::of(x, (W)partial[p * n + i]);
    part[me] = x;
  }
  for (int half = DTCU_FINISH_THREADS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (me < half && me + half < threads) part[me] = Op::of(part[me], part[me + half]);
  }
  if (me == 0) out[i] = (T)part[0];
}

template <typename Op, typename T>
static __global__ void dtcu_finish_many(const T *__restrict__ partial, int64_t pieces, int64_t n, T *__restrict__ out) {
  typedef typename dtcu_Wide<Op, T>::type W;
  DTCU_SHARED(W, part, DTCU_FINISH_THREADS);
  int64_t i = (int64_t)blockIdx.x * 32 + dtcu_lane();
  int warps = (int)dtrt_imin(pieces, blockDim.x / 32), me = dtcu_warp();
  if (i < n && me < warps) {
    W x = (W)partial[me * n + i];
    for (int64_t p = me + warps; p < pieces; p += warps) x = Op::of(x, (W)partial[p * n + i]);
    part[threadIdx.x] = x;
  }
  __syncthreads();
  if (i >= n || me > 0) return;
  W x = part[threadIdx.x];
  for (int w = 1; w < warps; w++) x = Op::of(x, part[w * 32 + threadIdx.x]);
  out[i] = (T)x;
}

/* pieces > 0; without results nothing is launched. */
template <typename Op, typename T>
static inline void dtcu_finish(dtrt_Context *cx, const T *partial, int64_t pieces, int64_t n, T *out) {
  auto finish_few = dtcu_finish_few<Op, T>, finish_many = dtcu_finish_many<Op, T>;
  if (n <= 0) return;
  if (n <= DTCU_FINISH_FEW)
    DTCU_LAUNCH(cx, finish_few, n, DTCU_FINISH_THREADS, partial, pieces, n, out);
  else
    DTCU_LAUNCH(cx, finish_many, (n + 31) / 32, DTCU_FINISH_THREADS, partial, pieces, n, out);
}

template <typename T> static inline void dtcu_finish_sum(dtrt_Context *cx, const T *partial, int64_t pieces, int64_t n, T *out) {
  dtcu_finish<dtcu_Sum>(cx, partial, pieces, n, out);
}
template <typename T> static inline void dtcu_finish_prod(dtrt_Context *cx, const T *partial, int64_t pieces, int64_t n, T *out) {
  dtcu_finish<dtcu_Prod>(cx, partial, pieces, n, out);
}
template <typename T> static inline void dtcu_finish_max(dtrt_Context *cx, const T *partial, int64_t pieces, int64_t n, T *out) {
  dtcu_finish<dtcu_Max>(cx, partial, pieces, n, out);
}
template <typename T> static inline void dtcu_finish_min(dtrt_Context *cx, const T *partial, int64_t pieces, int64_t n, T *out) {
  dtcu_finish<dtcu_Min>(cx, partial, pieces, n, out);
}

#endif
