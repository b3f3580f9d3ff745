/* move.cu: the kernels of collectives: boxes packed into staging memory, and unpacked or reduced from it. A box is walked in
   row-major order; what lies in the staging is the same elements without gaps. Contributions are added in the order of their
   list, as on the CPU, so that every replica gets the same bits.

     pack    [2,4) x [0,3) of a buffer with 8 columns -> 6 elements at `place`
     unpack  dst box = contribution 0 + contribution 1 + ..., each in the staging or in this rank's own source

   Where offsets allow it a thread moves 16 bytes at once. */
#include "device.h"

namespace {

enum { THREADS = 256, MOST_BLOCKS = 4096 };

template <typename T, int N> struct alignas(sizeof(T) * N) Lanes { T v[N]; };

/* A maximum or minimum of a NaN is a NaN, so that a bad number is not lost on its way to the loss. */
template <typename T> __device__ __forceinline__ T combine(dtrt_reduce op, T a, T b) {
  switch (op) {
  case DTRT_PROD: return a * b;
  case DTRT_MAX: return a > b || a != a ? a : b;
  case DTRT_MIN: return a < b || a != a ? a : b;
  default: return a + b;
  }
}
/* Integers wrap around. */
template <> __device__ __forceinline__ int32_t combine(dtrt_reduce op, int32_t a, int32_t b) {
  if (op == DTRT_SUM) return (int32_t)((uint32_t)a + (uint32_t)b);
  if (op == DTRT_PROD) return (int32_t)((uint32_t)a * (uint32_t)b);
  return op == DTRT_MAX ? (a > b ? a : b) : (a < b ? a : b);
}
template <> __device__ __forceinline__ int64_t combine(dtrt_reduce op, int64_t a, int64_t b) {
  if (op == DTRT_SUM) return (int64_t)((uint64_t)a + (uint64_t)b);
  if (op == DTRT_PROD) return (int64_t)((uint64_t)a * (uint64_t)b);
  return op == DTRT_MAX ? (a > b ? a : b) : (a < b ? a : b);
}
template <> __device__ __forceinline__ uint8_t combine(dtrt_reduce op, uint8_t a, uint8_t b) { /* bool: any, all */
  return op == DTRT_SUM || op == DTRT_MAX ? a | b : a & b;
}

/* Where element e of the box lies in a buffer with these steps. */
__device__ __forceinline__ int64_t offset(const Move &m, const int64_t *step, int64_t base, int64_t e) {
  int64_t row = e / m.run, at = base + e % m.run;
  for (int i = m.nloops - 1; i >= 0; i--) {
    at += row % m.count[i] * step[i];
    row /= m.count[i];
  }
  return at;
}

template <typename T, int N> __device__ void pack(const Move &m, const T *src, T *staging) {
  typedef Lanes<T, N> L;
  int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, all = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = first * N; i < m.elements; i += all * N)
    *(L *)(staging + m.place + i) = *(const L *)(src + offset(m, m.sstep, m.soff, m.at + i));
}

template <typename T, int N> __global__ void pack_kernel(const Move *move, int n, const T *src, T *staging) {
  for (int k = blockIdx.y; k < n; k += gridDim.y) pack<T, N>(move[k], src, staging);
}
template <typename T> __global__ void pack_one_kernel(Move m, const T *src, T *staging) { pack<T, 1>(m, src, staging); }

template <typename T, int N>
__device__ Lanes<T, N> contribution(const Move &m, int64_t place, int64_t i, const T *src, const T *staging) {
  typedef Lanes<T, N> L;
  return place == OWN ? *(const L *)(src + offset(m, m.sstep, m.soff, m.at + i)) : *(const L *)(staging + place + i);
}

template <typename T, int N>
__global__ void unpack_kernel(const Move *move, int n, const int64_t *places, dtrt_reduce op, const T *src, const T *staging,
                              T *dst) {
  typedef Lanes<T, N> L;
  int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, all = (int64_t)gridDim.x * blockDim.x;
  for (int k = blockIdx.y; k < n; k += gridDim.y) {
    const Move &m = move[k];
    const int64_t *place = places + m.first;
    for (int64_t i = first * N; i < m.elements; i += all * N) {
      L x = contribution<T, N>(m, place[0], i, src, staging);
      for (int s = 1; s < m.nsrc; s++) {
        L y = contribution<T, N>(m, place[s], i, src, staging);
        for (int l = 0; l < N; l++) x.v[l] = combine(op, x.v[l], y.v[l]);
      }
      *(L *)(dst + offset(m, m.dstep, m.doff, m.at + i)) = x;
    }
  }
}

template <typename T> __global__ void fill_kernel(T *dst, int64_t n, T value) {
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) dst[i] = value;
}

__global__ void mark_kernel(volatile uint32_t *mark, uint32_t serial) {
  if (threadIdx.x == 0) *mark = serial;
}

dim3 grid(int64_t elements, int lanes, int moves) {
  int64_t blocks = (elements / lanes + THREADS - 1) / THREADS, most = MOST_BLOCKS;
  return dim3((unsigned)dtrt_imax(1, dtrt_imin(blocks, most)), (unsigned)dtrt_imin(moves, 65535));
}

bool aligned(const void *p) { return (uintptr_t)p % 16 == 0; }

template <typename T, int N> void launch_pack(Rt *rt, const Moves *m, const void *src, void *staging) {
  auto kernel = pack_kernel<T, N>;
  DTCU_LAUNCH_ON(rt->transport->comm, kernel, grid(m->most, N, m->n), THREADS, m->move, m->n, (const T *)src, (T *)staging);
}

/* Copies do not look at what they copy: an unsigned integer of the same size. */
template <typename T> void pack_as(Rt *rt, const Moves *m, const void *src, void *staging) {
  constexpr int N = 16 / sizeof(T);
  if (m->lanes % N == 0 && aligned(src) && aligned(staging))
    launch_pack<T, N>(rt, m, src, staging);
  else
    launch_pack<T, 1>(rt, m, src, staging);
}

template <typename T, int N>
void launch_unpack(Rt *rt, dtrt_reduce op, const Moves *m, const void *src, const void *staging, void *dst) {
  auto kernel = unpack_kernel<T, N>;
  DTCU_LAUNCH_ON(rt->transport->comm, kernel, grid(m->most, N, m->n), THREADS, m->move, m->n, m->places, op, (const T *)src,
                 (const T *)staging, (T *)dst);
}

template <typename T> void unpack_as(Rt *rt, dtrt_reduce op, const Moves *m, const void *src, const void *staging, void *dst) {
  constexpr int N = 16 / sizeof(T);
  if (m->lanes % N == 0 && aligned(src) && aligned(staging) && aligned(dst))
    launch_unpack<T, N>(rt, op, m, src, staging, dst);
  else
    launch_unpack<T, 1>(rt, op, m, src, staging, dst);
}

template <typename T> void fill(Rt *rt, void *dst, int64_t n, T value) {
  auto kernel = fill_kernel<T>;
  DTCU_LAUNCH_ON(rt->transport->comm, kernel, grid(n, 1, 1), THREADS, (T *)dst, n, value);
}

void launched(Rt *rt, const char *what) { device_checked(rt, cudaGetLastError(), what); }

} // namespace

void move_pack(Rt *rt, dtrt_dtype t, const Moves *m, const void *src, void *staging) {
  if (m->n == 0) return;
  switch (rt_dtype_size(t)) {
  case 1: pack_as<uint8_t>(rt, m, src, staging); break;
  case 2: pack_as<uint16_t>(rt, m, src, staging); break;
  case 4: pack_as<uint32_t>(rt, m, src, staging); break;
  default: pack_as<uint64_t>(rt, m, src, staging); break;
  }
  launched(rt, "packing");
}

void move_pack_one(Rt *rt, dtrt_dtype t, const Move *m, const void *src, void *staging) {
  dim3 blocks = grid(m->elements, 1, 1);
  cudaStream_t s = rt->transport->comm;
  switch (rt_dtype_size(t)) {
  case 1: DTCU_LAUNCH_ON(s, pack_one_kernel<uint8_t>, blocks, THREADS, *m, (const uint8_t *)src, (uint8_t *)staging); break;
  case 2: DTCU_LAUNCH_ON(s, pack_one_kernel<uint16_t>, blocks, THREADS, *m, (const uint16_t *)src, (uint16_t *)staging); break;
  case 4: DTCU_LAUNCH_ON(s, pack_one_kernel<uint32_t>, blocks, THREADS, *m, (const uint32_t *)src, (uint32_t *)staging); break;
  default: DTCU_LAUNCH_ON(s, pack_one_kernel<uint64_t>, blocks, THREADS, *m, (const uint64_t *)src, (uint64_t *)staging); break;
  }
  launched(rt, "packing");
}

static bool reduces(const Moves *m, dtrt_reduce op) { return m->n && op != DTRT_NONE; }

void move_unpack(Rt *rt, dtrt_dtype t, dtrt_reduce op, const Moves *m, const void *src, const void *staging, void *dst) {
  if (m->n == 0) return;
  if (reduces(m, op)) switch (t) {
    case DTRT_F32: unpack_as<float>(rt, op, m, src, staging, dst); break;
    case DTRT_F64: unpack_as<double>(rt, op, m, src, staging, dst); break;
    case DTRT_I32: unpack_as<int32_t>(rt, op, m, src, staging, dst); break;
    case DTRT_I64: unpack_as<int64_t>(rt, op, m, src, staging, dst); break;
    default: unpack_as<uint8_t>(rt, op, m, src, staging, dst); break; /* bool; of the others there are no reductions */
    }
  else
    switch (rt_dtype_size(t)) {
    case 1: unpack_as<uint8_t>(rt, op, m, src, staging, dst); break;
    case 2: unpack_as<uint16_t>(rt, op, m, src, staging, dst); break;
    case 4: unpack_as<uint32_t>(rt, op, m, src, staging, dst); break;
    default: unpack_as<uint64_t>(rt, op, m, src, staging, dst); break;
    }
  launched(rt, "unpacking");
}

void move_identity(Rt *rt, dtrt_dtype t, dtrt_reduce op, void *dst, int64_t n) {
  char value[8];
  if (n == 0) return;
  rt_fill_identity(t, op, value, 1);
  switch (rt_dtype_size(t)) {
  case 1: fill(rt, dst, n, *(uint8_t *)value); break;
  case 4: fill(rt, dst, n, *(uint32_t *)value); break;
  default: fill(rt, dst, n, *(uint64_t *)value); break;
  }
  launched(rt, "filling");
}

void move_mark(Rt *rt, uint32_t *mark, uint32_t serial) {
  DTCU_LAUNCH_ON(rt->transport->comm, mark_kernel, 1, 32, mark, serial);
  launched(rt, "a mark");
}
