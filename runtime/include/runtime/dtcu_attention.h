/* dtcu_attention.h: softmax(score(q k)) v by tiles, and its gradient. A program gives a class with what is its own: how many
   of what, where tensors lie, the score; the kernels here are the same for all.

     struct a_21_attention : dtcu_Attention {
       const float *q, *k, *v;
       float *a, *lse;
       typedef float T;
       enum { LANES = 16, DOTS = 32, FEATURES = 32 };
       __device__ T load_q(int64_t outer, int64_t query, int64_t dot) const { ... }
       ...
     };
     dtcu_attention(cx, a_21_attention{{32, 128, 128, 32, 32}, q, k, v, a, lse});

   For every `outer` (batch and head): queries are what q alone has, keys what k and v share; several indices of a kind are
   numbered row-major as one. A block has a tile of rows and goes over the tiles of columns it can see:

     forward       rows are queries, columns keys: online softmax, a += weight v
     gradient of q rows are queries, columns keys: dq += dS k, dS = p (dP - D) dscore/ddot, dP = da v^T, D = sum of da a
     of k and v    rows are keys, columns queries: dk += dS^T q, dv += p^T da

   Scores and p = exp(score - lse) are made again wherever they are needed (Dao et al., "FlashAttention", 2022), so that memory
   is that of one tile. Every gradient has one block that adds it up, in one order. Only gradients of biases meet from many
   blocks: they are summed in integers (dtcu_tile.h). */
#ifndef DTCU_ATTENTION_H
#define DTCU_ATTENTION_H

#include "runtime/dtcu_finish.h"
#include "runtime/dtcu_tile.h"

enum { DTCU_Q, DTCU_K, DTCU_V };

/* The sum of a bias' gradient, a cell per element. First looks for the largest, then adds. */
struct dtcu_BiasSum {
  bool adding;
  unsigned long long most, *cell;
  double units;
  __device__ __forceinline__ void put(int64_t at, double x) {
    if (adding)
      dtcu_add(cell + at, x, units);
    else
      most = dtcu_max2(most, dtcu_magnitude(x));
  }
};

/* What most programs have in common. The gradient of a tensor that lacks some outer index is added up over it: a block
   has one of `kept` combinations of those that it has, and goes through `looped` of the others. */
struct dtcu_Attention {
  enum { BIASES = 0, COUNT_BITS = 0 };
  int64_t outers, queries, keys, dots, features; /* how many of each this rank has; DOTS and FEATURES: at most */
  __device__ void visible_keys(int64_t, int64_t, int64_t, int64_t *, int64_t *) const {}
  __device__ void visible_queries(int64_t, int64_t, int64_t, int64_t *, int64_t *) const {}
  __host__ __device__ int64_t looped_q() const { return 1; }
  __host__ __device__ int64_t looped_k() const { return 1; }
  __host__ __device__ int64_t looped_v() const { return 1; }
  __host__ __device__ int64_t kept_q(int64_t outers) const { return outers; }
  __host__ __device__ int64_t kept_k(int64_t outers) const { return outers; }
  __host__ __device__ int64_t kept_v(int64_t outers) const { return outers; }
  __device__ int64_t outer_q(int64_t kept, int64_t) const { return kept; }
  __device__ int64_t outer_k(int64_t kept, int64_t) const { return kept; }
  __device__ int64_t outer_v(int64_t kept, int64_t) const { return kept; }
};

template <int OF, class A> static __host__ __device__ __forceinline__ int64_t dtcu_looped(const A &at) {
  return OF == DTCU_Q ? at.looped_q() : OF == DTCU_K ? at.looped_k() : at.looped_v();
}
template <int OF, class A> static __host__ __device__ __forceinline__ int64_t dtcu_kept(const A &at) {
  return OF == DTCU_Q ? at.kept_q(at.outers) : OF == DTCU_K ? at.kept_k(at.outers) : at.kept_v(at.outers);
}
template <int OF, class A> static __device__ __forceinline__ int64_t dtcu_outer(const A &at, int64_t kept, int64_t round) {
  return OF == DTCU_Q ? at.outer_q(kept, round) : OF == DTCU_K ? at.outer_k(kept, round) : at.outer_v(kept, round);
}

/* ---- loading tiles ------------------------------------------------------------------------------------------------- */

/* to[r][c] = at(row + r, column + c), 0 from `rows` and `columns` on: HIGH rows of WIDE. */
template <int HIGH, int WIDE, int PITCH, typename T, typename F>
static __device__ __forceinline__ void dtcu_load(T *to, int64_t row, int64_t rows, int64_t column, int64_t columns, F at) {
  for (int i = (int)threadIdx.x; i < HIGH * WIDE; i += (int)blockDim.x) {
    const int r = i / WIDE, c = i % WIDE;
    to[r * PITCH + c] = row + r < rows && column + c < columns ? at(row + r, column + c) : (T)0;
  }
}

/* s += left right^T over all of the depth. */
template <int LANES, typename T, typename F, typename G>
static __device__ __forceinline__ void dtcu_multiply(T (&s)[4][4], T *tile, int64_t row, int64_t rows, int64_t column,
                                                     int64_t columns, int64_t depth, F left, G right) {
  T *other = tile + 4 * LANES * DTCU_PITCH;
  for (int64_t d = 0; d < depth; d += DTCU_DEPTH) {
    __syncthreads();
    dtcu_load<4 * LANES, DTCU_DEPTH, DTCU_PITCH>(tile, row, rows, d, depth, left);
    dtcu_load<4 * LANES, DTCU_DEPTH, DTCU_PITCH>(other, column, columns, d, depth, right);
    __syncthreads();
    dtcu_tile_dot(s, tile, other, LANES);
  }
}

/* sum += w values, w this thread's part of the weights; weight and tile are in shared memory. */
template <int LANES, int N, typename T, typename F>
static __device__ __forceinline__ void dtcu_accumulate(T (&sum)[4][N], const T (&w)[4][4], T *weight, T *tile, int64_t column,
                                                       int64_t columns, int64_t from, int64_t width, F values) {
  const int y = (int)threadIdx.x / LANES, x = (int)threadIdx.x % LANES;
  DTCU_UNROLL
  for (int i = 0; i < 4; i++) DTCU_UNROLL
  for (int j = 0; j < 4; j++) weight[(y + LANES * i) * (4 * LANES + 4) + x + LANES * j] = w[i][j];
  for (int u = 0; u < 4 * LANES; u += DTCU_DEPTH) {
    __syncthreads();
    dtcu_load<DTCU_DEPTH, N * LANES, N * LANES>(tile, column + u, columns, from, width, values);
    __syncthreads();
    dtcu_tile_add(sum, weight + u, tile, LANES);
  }
}

/* How many of the columns of a result of `width` columns a thread has, and how many blocks share a row. */
template <int LANES> static __host__ __device__ constexpr int dtcu_parts(int width) {
  return (width + 8 * LANES - 1) / (8 * LANES);
}
template <int LANES> static __host__ __device__ constexpr int dtcu_columns(int width) {
  return (width + LANES * dtcu_parts<LANES>(width) - 1) / (LANES * dtcu_parts<LANES>(width));
}

static __host__ __device__ __forceinline__ int64_t dtcu_tiles(int64_t n, int tile) { return (n + tile - 1) / tile; }

/* ---- forward -------------------------------------------------------------------------------------------------------- */

template <class A> static __global__ __launch_bounds__(A::LANES *A::LANES) void dtcu_attention_kernel(const A at) {
  typedef typename A::T T;
  enum { L = A::LANES, TILE = 4 * L, N = dtcu_columns<L>(A::FEATURES), PARTS = dtcu_parts<L>(A::FEATURES) };
  DTCU_SHARED(T, tile, 2 * TILE * DTCU_PITCH);
  DTCU_SHARED(T, weight, TILE * (TILE + 4));
  const int y = (int)threadIdx.x / L, x = (int)threadIdx.x % L;
  const int64_t queries = at.queries, rows = dtcu_tiles(queries, TILE);
  for (int64_t item = blockIdx.x; item < at.outers * rows * PARTS; item += gridDim.x) {
    const int64_t part = item % PARTS, query = item / PARTS % rows * TILE, o = item / PARTS / rows, from = part * N * L;
    int64_t first = 0, keys = at.keys;
    at.visible_keys(o, query, dtrt_imin(query + TILE, queries), &first, &keys);
    T top[4], total[4] = {}, sum[4][N] = {};
    DTCU_UNROLL
    for (int i = 0; i < 4; i++) top[i] = -(T)INFINITY;
    for (int64_t key = first; key < keys; key += TILE) {
      T s[4][4] = {};
      dtcu_multiply<L>(
          s, tile, query, queries, key, keys, at.dots, [&](int64_t t, int64_t d) { return at.load_q(o, t, d); },
          [&](int64_t u, int64_t d) { return at.load_k(o, u, d); });
      DTCU_UNROLL
      for (int i = 0; i < 4; i++) DTCU_UNROLL
      for (int j = 0; j < 4; j++) {
        const int64_t t = query + y + L * i, u = key + x + L * j;
        s[i][j] = t < queries && u < keys ? at.score(o, t, u, s[i][j]) : -(T)INFINITY;
      }
      dtcu_tile_softmax(s, top, total, sum, L);
      dtcu_accumulate<L>(sum, s, weight, tile, key, keys, from, at.features,
                         [&](int64_t u, int64_t f) { return at.load_v(o, u, f); });
    }
    DTCU_UNROLL
    for (int i = 0; i < 4; i++) {
      const int64_t t = query + y + L * i;
      if (t >= queries) continue;
      DTCU_UNROLL
      for (int j = 0; j < N; j++)
        if (from + x + L * j < at.features) at.a_at(o, t, from + x + L * j) = total[i] != (T)0 ? sum[i][j] / total[i] : (T)0;
      if (x == 0 && part == 0) at.lse_at(o, t) = dtcu_lse(top[i], total[i]);
    }
  }
}

template <class A> static inline void dtcu_attention(dtrt_Context *cx, const A &at) {
  auto attention = dtcu_attention_kernel<A>;
  dtrt_part(cx, DTRT_ATTENTION);
  DTCU_LAUNCH(cx, attention, at.outers * dtcu_tiles(at.queries, 4 * A::LANES) * dtcu_parts<A::LANES>(A::FEATURES),
              A::LANES * A::LANES, at);
  dtrt_part(cx, DTRT_OTHER);
}

/* ---- gradient ------------------------------------------------------------------------------------------------------- */

/* D of every row, in the workspace. */
template <class A> static __global__ __launch_bounds__(32) void dtcu_attention_means(const A at) {
  typedef typename A::T T;
  const int64_t queries = at.queries;
  for (int64_t item = blockIdx.x; item < at.outers * queries; item += gridDim.x) {
    const int64_t o = item / queries, t = item % queries;
    T sum = 0;
    for (int64_t f = threadIdx.x; f < at.features; f += 32) sum += at.load_da(o, t, f) * at.load_a(o, t, f);
    sum = dtcu_warp_sum(sum);
    if (threadIdx.x == 0) at.mean_at(o, t) = sum;
  }
}

/* Of a tile: s = q k^T and dp = da v^T become p and p (dp - D), 0 where nothing is. Rows are queries or (KEYS_FIRST) keys.
   `then` is called for each point that there is with its score's `dot`, p and p (dp - D), and says what is kept of it. */
template <bool KEYS_FIRST, class A, typename F>
static __device__ __forceinline__ void dtcu_points(const A &at, int64_t o, typename A::T (&s)[4][4], typename A::T (&dp)[4][4],
                                                   int64_t row, int64_t rows, int64_t column, int64_t columns, F then) {
  typedef typename A::T T;
  const int y = (int)threadIdx.x / A::LANES, x = (int)threadIdx.x % A::LANES;
  DTCU_UNROLL
  for (int i = 0; i < 4; i++) DTCU_UNROLL
  for (int j = 0; j < 4; j++) {
    const int64_t r = row + y + A::LANES * i, c = column + x + A::LANES * j, t = KEYS_FIRST ? c : r, u = KEYS_FIRST ? r : c;
    if (r < rows && c < columns) {
      const T p = dtcu_weight(at.score(o, t, u, s[i][j]), at.load_lse(o, t));
      s[i][j] = then(t, u, s[i][j], p, p * (dp[i][j] - at.mean_at(o, t)));
    } else {
      s[i][j] = 0;
    }
  }
}

/* Of which tensor the gradient is: rows, columns and the values that are added. */
template <int OF, class A> static __global__ __launch_bounds__(A::LANES *A::LANES) void dtcu_attention_grad_kernel(const A at) {
  typedef typename A::T T;
  constexpr int L = A::LANES, TILE = 4 * L, WIDTH = OF == DTCU_V ? A::FEATURES : A::DOTS, N = dtcu_columns<L>(WIDTH),
                PARTS = dtcu_parts<L>(WIDTH);
  constexpr bool KEYS_FIRST = OF != DTCU_Q;
  DTCU_SHARED(T, tile, 2 * TILE * DTCU_PITCH);
  DTCU_SHARED(T, weight, TILE * (TILE + 4));
  const int y = (int)threadIdx.x / L, x = (int)threadIdx.x % L;
  const int64_t rows = KEYS_FIRST ? at.keys : at.queries, tiles = dtcu_tiles(rows, TILE),
                width = OF == DTCU_V ? at.features : at.dots, looped = dtcu_looped<OF>(at);
  for (int64_t item = blockIdx.x; item < dtcu_kept<OF>(at) * tiles * PARTS; item += gridDim.x) {
    const int64_t from = item % PARTS * N * L, row = item / PARTS % tiles * TILE, kept = item / PARTS / tiles;
    T sum[4][N] = {};
    for (int64_t round = 0; round < looped; round++) {
      const int64_t o = dtcu_outer<OF>(at, kept, round);
      int64_t column = 0, columns = KEYS_FIRST ? at.queries : at.keys;
      if (KEYS_FIRST)
        at.visible_queries(o, row, dtrt_imin(row + TILE, rows), &column, &columns);
      else
        at.visible_keys(o, row, dtrt_imin(row + TILE, rows), &column, &columns);
      for (; column < columns; column += TILE) {
        T s[4][4] = {}, dp[4][4] = {};
        auto q = [&](int64_t t, int64_t d) { return at.load_q(o, t, d); };
        auto k = [&](int64_t u, int64_t d) { return at.load_k(o, u, d); };
        auto v = [&](int64_t u, int64_t f) { return at.load_v(o, u, f); };
        auto da = [&](int64_t t, int64_t f) { return at.load_da(o, t, f); };
        if constexpr (KEYS_FIRST)
          dtcu_multiply<L>(s, tile, row, rows, column, columns, at.dots, k, q);
        else
          dtcu_multiply<L>(s, tile, row, rows, column, columns, at.dots, q, k);
        if constexpr (OF == DTCU_K) dtcu_multiply<L>(dp, tile, row, rows, column, columns, at.features, v, da);
        if constexpr (OF == DTCU_Q) dtcu_multiply<L>(dp, tile, row, rows, column, columns, at.features, da, v);
        dtcu_points<KEYS_FIRST>(at, o, s, dp, row, rows, column, columns, [&](int64_t t, int64_t u, T dot, T p, T g) {
          return OF == DTCU_V ? p : at.slope(o, t, u, dot, g);
        });
        if constexpr (OF == DTCU_Q)
          dtcu_accumulate<L>(sum, s, weight, tile, column, columns, from, width, k);
        else if constexpr (OF == DTCU_K)
          dtcu_accumulate<L>(sum, s, weight, tile, column, columns, from, width, q);
        else
          dtcu_accumulate<L>(sum, s, weight, tile, column, columns, from, width, da);
      }
    }
    DTCU_UNROLL
    for (int i = 0; i < 4; i++) DTCU_UNROLL
    for (int j = 0; j < N; j++) {
      const int64_t r = row + y + L * i, c = from + x + L * j;
      if (r >= rows || c >= width) continue;
      if constexpr (OF == DTCU_Q) at.dq_at(kept, r, c) = sum[i][j];
      if constexpr (OF == DTCU_K) at.dk_at(kept, r, c) = sum[i][j];
      if constexpr (OF == DTCU_V) at.dv_at(kept, r, c) = sum[i][j];
    }
  }
}

/* The gradients of what the score reads besides `dot`. */
template <class A>
static __global__ __launch_bounds__(A::LANES *A::LANES) void dtcu_attention_bias_kernel(const A at, bool adding) {
  typedef typename A::T T;
  enum { L = A::LANES, TILE = 4 * L };
  DTCU_SHARED(T, tile, 2 * TILE * DTCU_PITCH);
  const int64_t queries = at.queries, rows = dtcu_tiles(queries, TILE);
  dtcu_BiasSum sum[A::BIASES];
  DTCU_UNROLL
  for (int b = 0; b < A::BIASES; b++)
    sum[b] = {adding, 0, at.bias_cells(b), adding ? dtcu_exact_units(at.bias_largest(b), A::COUNT_BITS) : 0};
  for (int64_t item = blockIdx.x; item < at.outers * rows; item += gridDim.x) {
    const int64_t query = item % rows * TILE, o = item / rows;
    int64_t first = 0, keys = at.keys;
    at.visible_keys(o, query, dtrt_imin(query + TILE, queries), &first, &keys);
    for (int64_t key = first; key < keys; key += TILE) {
      T s[4][4] = {}, dp[4][4] = {};
      dtcu_multiply<L>(
          s, tile, query, queries, key, keys, at.dots, [&](int64_t t, int64_t d) { return at.load_q(o, t, d); },
          [&](int64_t u, int64_t d) { return at.load_k(o, u, d); });
      dtcu_multiply<L>(
          dp, tile, query, queries, key, keys, at.features, [&](int64_t t, int64_t f) { return at.load_da(o, t, f); },
          [&](int64_t u, int64_t f) { return at.load_v(o, u, f); });
      dtcu_points<false>(at, o, s, dp, query, queries, key, keys, [&](int64_t t, int64_t u, T dot, T p, T g) {
        at.biases(o, t, u, dot, g, sum);
        return p;
      });
    }
  }
  if (adding) return;
  DTCU_UNROLL
  for (int b = 0; b < A::BIASES; b++) {
    const unsigned long long most = dtcu_block_max(sum[b].most);
    if (threadIdx.x == 0) atomicMax(at.bias_largest(b), most);
  }
}

template <class A> static __global__ __launch_bounds__(256) void dtcu_attention_bias_finish(const A at, int b, int64_t n) {
  for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < n; i += (int64_t)gridDim.x * 256)
    at.bias_put(b, i, dtcu_exact_sum(at.bias_cells(b)[i], at.bias_largest(b), A::COUNT_BITS));
}

template <int OF, class A> static inline void dtcu_attention_grad_of(dtrt_Context *cx, const A &at) {
  const int64_t rows = OF == DTCU_Q ? at.queries : at.keys, width = OF == DTCU_V ? (int)A::FEATURES : (int)A::DOTS;
  auto attention_grad = dtcu_attention_grad_kernel<OF, A>;
  DTCU_LAUNCH(cx, attention_grad, dtcu_kept<OF>(at) * dtcu_tiles(rows, 4 * A::LANES) * dtcu_parts<A::LANES>((int)width),
              A::LANES * A::LANES, at);
}

template <class A> static inline void dtcu_attention_grad(dtrt_Context *cx, const A &at) {
  auto means = dtcu_attention_means<A>;
  dtrt_part(cx, DTRT_ATTENTION);
  DTCU_LAUNCH(cx, means, at.outers * at.queries, 32, at);
  dtcu_attention_grad_of<DTCU_Q>(cx, at);
  dtcu_attention_grad_of<DTCU_K>(cx, at);
  dtcu_attention_grad_of<DTCU_V>(cx, at);
  dtrt_part(cx, DTRT_OTHER);
}

/* Behind it, for a score that reads something whose gradient is wanted; the cells and what is largest are zeroed before. */
template <class A> static inline void dtcu_attention_bias_grad(dtrt_Context *cx, const A &at) {
  auto attention_bias = dtcu_attention_bias_kernel<A>;
  auto attention_bias_finish = dtcu_attention_bias_finish<A>;
  const int64_t blocks = at.outers * dtcu_tiles(at.queries, 4 * A::LANES);
  dtrt_part(cx, DTRT_ATTENTION);
  DTCU_LAUNCH(cx, attention_bias, blocks, A::LANES * A::LANES, at, false);
  DTCU_LAUNCH(cx, attention_bias, blocks, A::LANES * A::LANES, at, true);
  for (int b = 0; b < A::BIASES; b++)
    DTCU_LAUNCH(cx, attention_bias_finish, (at.bias_elements(b) + 255) / 256, 256, at, b, at.bias_elements(b));
  dtrt_part(cx, DTRT_OTHER);
}

#endif
