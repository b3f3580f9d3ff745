/* dtrt_scalar.h: the scalar helpers that are the same on every machine: integers, the order of floats, floor division,
   NaN-keeping maxima. C for the CPU; compiled by nvcc they can be called on host and device.

     dtrt_floordiv(-3, 2) = -2     dtrt_floormod(-3, 2) = 1     dtrt_maxf(NaN, 1) = NaN                        */
#ifndef DTRT_SCALAR_H
#define DTRT_SCALAR_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define DTRT_FN static __host__ __device__ __forceinline__
#else
#define DTRT_FN static inline
#endif

DTRT_FN float dtrt_float_of(int32_t bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
DTRT_FN int32_t dtrt_bits_of(float x) {
  int32_t bits;
  memcpy(&bits, &x, 4);
  return bits;
}

/* Floats in the order of integers: x < y exactly when dtrt_order(x) < dtrt_order(y). A maximum of these needs no
   promise that there are no NaNs to become a vector instruction. The function is its own inverse. */
DTRT_FN int32_t dtrt_order(float x) {
  int32_t b = dtrt_bits_of(x);
  return b ^ (b >> 31 & 0x7fffffff);
}
DTRT_FN float dtrt_unorder(int32_t b) { return dtrt_float_of(b ^ (b >> 31 & 0x7fffffff)); }

DTRT_FN int32_t dtrt_imax32(int32_t a, int32_t b) { return a > b ? a : b; }
DTRT_FN int32_t dtrt_imin32(int32_t a, int32_t b) { return a < b ? a : b; }
DTRT_FN int64_t dtrt_imax(int64_t a, int64_t b) { return a > b ? a : b; }
DTRT_FN int64_t dtrt_imin(int64_t a, int64_t b) { return a < b ? a : b; }
DTRT_FN int64_t dtrt_iabs(int64_t a) { return a < 0 ? -a : a; }
/* b > 0; toward minus infinity. */
DTRT_FN int64_t dtrt_floordiv(int64_t a, int64_t b) { return a / b - (a % b < 0); }
DTRT_FN int64_t dtrt_floormod(int64_t a, int64_t b) {
  int64_t r = a % b;
  return r < 0 ? r + b : r;
}
DTRT_FN int64_t dtrt_div(int64_t a, int64_t b) { return a / b; }

/* NaN in either operand gives NaN. */
DTRT_FN float dtrt_maxf(float a, float b) { return a > b || a != a ? a : b; }
DTRT_FN float dtrt_minf(float a, float b) { return a < b || a != a ? a : b; }
DTRT_FN double dtrt_max(double a, double b) { return a > b || a != a ? a : b; }
DTRT_FN double dtrt_min(double a, double b) { return a < b || a != a ? a : b; }

/* Does x come before y in descending order? A NaN comes before every number, so that it shows. */
DTRT_FN bool dtrt_abovef(float x, float y) { return x > y || (x != x && y == y); }
DTRT_FN bool dtrt_above(double x, double y) { return x > y || (x != x && y == y); }

DTRT_FN float dtrt_squaref(float x) { return x * x; }
DTRT_FN double dtrt_square(double x) { return x * x; }
DTRT_FN float dtrt_fmodf(float a, float b) { return a - b * __builtin_floorf(a / b); }
DTRT_FN double dtrt_fmod(double a, double b) { return a - b * __builtin_floor(a / b); }
DTRT_FN double dtrt_rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
DTRT_FN double dtrt_sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

#endif
