/* dtrt_math.h: the scalar functions of emitted kernels, as plain C that a compiler turns into vectors. f32 functions
   are within 2 ulp where not said otherwise, keep NaN and have the right values at infinities:

     dtrt_expf(-inf) = 0     dtrt_tanhf(inf) = 1     dtrt_logf(0) = -inf     dtrt_logf(-1) = NaN

   Polynomials are those of Cephes (S. Moshier, 1992) unless a name stands beside them. Emitted code is compiled with
   reassociation allowed; where a function's accuracy rests on an order of operations it is written with fma, which is
   never split or reordered. */
#ifndef DTRT_MATH_H
#define DTRT_MATH_H

#include "runtime/dtrt_scalar.h"

#define DTRT_FMA(x, y, z) __builtin_fmaf((x), (y), (z))

static inline float dtrt_rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }

/* exp(x) = 2^n exp(r), r = x - n ln 2 in [-0.35, 0.35]. 2^n is applied in two halves, so that results below 2^-126
   round once and overflow becomes inf. */
static inline float dtrt_expf(float x) {
  x = x > 89.0f ? 89.0f : x;
  x = x < -104.0f ? -104.0f : x;
  float n = __builtin_rintf(x * 1.44269504f);
  float r = DTRT_FMA(n, -0.693145752f, x);
  r = DTRT_FMA(n, -1.42860677e-6f, r);
  float p = 1.38319808e-3f; /* minimax on the interval, error 1 ulp (N. Juffa) */
  p = DTRT_FMA(p, r, 8.37550033e-3f);
  p = DTRT_FMA(p, r, 4.16689515e-2f);
  p = DTRT_FMA(p, r, 1.66664466e-1f);
  p = DTRT_FMA(p, r, 4.99999851e-1f);
  p = DTRT_FMA(p, r, 1.0f);
  p = DTRT_FMA(p, r, 1.0f);
  // half of 2^n goes into the exponent of p, where nothing can reassociate it (unsigned: n of a NaN is anything)
  uint32_t k = (uint32_t)(int32_t)n, half = (uint32_t)((int32_t)k >> 1);
  float scaled = dtrt_float_of((int32_t)((uint32_t)dtrt_bits_of(p) + (half << 23)));
  return scaled * dtrt_float_of((int32_t)((k - half + 127u) << 23));
}

/* ln(m 2^e) with m in [sqrt(1/2), sqrt(2)). Numbers below 2^-126 are scaled up first. */
static inline float dtrt_logf(float x) {
  bool tiny = x < 1.17549435e-38f;
  float y = tiny ? x * 8388608.0f : x;
  int32_t b = (int32_t)((uint32_t)dtrt_bits_of(y) + (0x3f800000u - 0x3f3504f3u));
  float e = (float)((b >> 23) - 127) - (tiny ? 23.0f : 0.0f);
  float f = dtrt_float_of((b & 0x007fffff) + 0x3f3504f3) - 1.0f;
  float z = f * f;
  float p = 7.0376836292e-2f;
  p = DTRT_FMA(p, f, -1.1514610310e-1f);
  p = DTRT_FMA(p, f, 1.1676998740e-1f);
  p = DTRT_FMA(p, f, -1.2420140846e-1f);
  p = DTRT_FMA(p, f, 1.4249322787e-1f);
  p = DTRT_FMA(p, f, -1.6668057665e-1f);
  p = DTRT_FMA(p, f, 2.0000714765e-1f);
  p = DTRT_FMA(p, f, -2.4999993993e-1f);
  p = DTRT_FMA(p, f, 3.3333331174e-1f);
  float r = DTRT_FMA(p * f, z, DTRT_FMA(e, -2.12194440e-4f, -0.5f * z));
  r = DTRT_FMA(e, 0.693359375f, f + r);
  r = x == INFINITY ? x : r;
  r = x == 0.0f ? -INFINITY : r;
  return x < 0.0f || x != x ? NAN : r;
}

/* ln(1 + x): near 0 by 2 atanh(s), s = x / (2 + x), which does not cancel. */
static inline float dtrt_log1pf(float x) {
  float s = x / (2.0f + x), z = s * s;
  float p = 0.15384615f;
  p = DTRT_FMA(p, z, 0.18181818f);
  p = DTRT_FMA(p, z, 0.22222222f);
  p = DTRT_FMA(p, z, 0.28571429f);
  p = DTRT_FMA(p, z, 0.4f);
  p = DTRT_FMA(p, z, 0.66666667f);
  float near = DTRT_FMA(p * z, s, 2.0f * s);
  float far = dtrt_logf(1.0f + x);
  return x > -0.5f && x < 1.0f ? near : far;
}

static inline float dtrt_tanhf(float x) {
  float a = __builtin_fabsf(x), z = x * x;
  float p = -5.70498872745e-3f;
  p = DTRT_FMA(p, z, 2.06390887954e-2f);
  p = DTRT_FMA(p, z, -5.37397155531e-2f);
  p = DTRT_FMA(p, z, 1.33314422036e-1f);
  p = DTRT_FMA(p, z, -3.33332819422e-1f);
  float near = DTRT_FMA(p * z, x, x);
  float far = __builtin_copysignf(1.0f - 2.0f / (dtrt_expf(2.0f * a) + 1.0f), x);
  return a < 0.625f ? near : far;
}

static inline float dtrt_sigmoidf(float x) { return 1.0f / (1.0f + dtrt_expf(-x)); }

/* N. Juffa's two branches, each under 1 ulp. */
static inline float dtrt_erff(float x) {
  float t = __builtin_fabsf(x), s = x * x;
  float r = DTRT_FMA(-1.72853470e-5f, t, 3.83197126e-4f);
  float u = DTRT_FMA(-3.88396438e-3f, t, 2.42546219e-2f);
  r = DTRT_FMA(r, s, u);
  r = DTRT_FMA(r, t, -1.06777877e-1f);
  r = DTRT_FMA(r, t, -6.34846687e-1f);
  r = DTRT_FMA(r, t, -1.28717512e-1f);
  r = DTRT_FMA(r, t, -t);
  float far = __builtin_copysignf(1.0f - dtrt_expf(r), x);
  far = t > 4.0f ? __builtin_copysignf(1.0f, x) : far;
  float p = -5.96761703e-4f;
  p = DTRT_FMA(p, s, 4.99119423e-3f);
  p = DTRT_FMA(p, s, -2.67681349e-2f);
  p = DTRT_FMA(p, s, 1.12819925e-1f);
  p = DTRT_FMA(p, s, -3.76125336e-1f);
  p = DTRT_FMA(p, s, 1.28379166e-1f);
  float near = DTRT_FMA(p, x, x);
  return t > 0.927734375f ? far : near;
}

/* sin(x + turns * pi / 2). Reduced in f64: good to |x| of about 10^9. */
static inline float dtrt_circle(float x, int32_t turns) {
  double n = __builtin_rint((double)x * 0.63661977236758134);
  double d = __builtin_fma(n, -1.5707963267341256, (double)x);
  float r = (float)__builtin_fma(n, -6.0771005065061922e-11, d), z = r * r;
  int32_t quarter = (int32_t)(int64_t)n + turns;
  float s = -1.9515295891e-4f;
  s = DTRT_FMA(s, z, 8.3321608736e-3f);
  s = DTRT_FMA(s, z, -1.6666654611e-1f);
  s = DTRT_FMA(s * z, r, r);
  float c = 2.443315711809948e-5f;
  c = DTRT_FMA(c, z, -1.388731625493765e-3f);
  c = DTRT_FMA(c, z, 4.166664568298827e-2f);
  c = DTRT_FMA(c * z, z, DTRT_FMA(-0.5f, z, 1.0f));
  float y = quarter & 1 ? c : s;
  return quarter & 2 ? -y : y;
}
static inline float dtrt_sinf(float x) { return dtrt_circle(x, 0); }
static inline float dtrt_cosf(float x) { return dtrt_circle(x, 1); }

#endif
