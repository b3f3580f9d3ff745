/* math.c: the emitted code's own scalar functions against libm in f64, over all exponents. Errors in units of the last
   place of the f32 result. */
#include "runtime/dtrt_math.h"
#include "unit.h"

static double error_of(float got, double want) {
  if (isnan(want)) return isnan(got) ? 0 : INFINITY;
  if (isinf((float)want) || isinf(got)) return got == (float)want || fabs(want) > 3.4e38 ? 0 : INFINITY;
  int exponent;
  frexp(want, &exponent);
  return fabs(got - want) / ldexp(1, (exponent < -125 ? -125 : exponent) - 24);
}

/* Every 9973rd f32, which reaches all exponents and both signs. */
static void within(const char *name, float (*f)(float), double (*exact)(double), double lowest, double highest, double ulps) {
  for (uint64_t bits = 0; bits <= 0xffffffffu; bits += 9973) {
    float x = dtrt_float_of((int32_t)bits);
    if (x < lowest || x > highest) continue;
    double e = error_of(f(x), exact((double)x));
    if (e > ulps) {
      unit_fail(__FILE__, __LINE__, "%s(%.9g) is %.9g: off by %.3g ulp", name, x, f(x), e);
      return;
    }
  }
}

static double exact_sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double exact_rsqrt(double x) { return 1 / sqrt(x); }

UNIT(scalar_functions_are_within_their_ulps) {
  within("exp", dtrt_expf, exp, -INFINITY, INFINITY, 1);
  within("log", dtrt_logf, log, -INFINITY, INFINITY, 1.2);
  within("log1p", dtrt_log1pf, log1p, -INFINITY, INFINITY, 2);
  within("tanh", dtrt_tanhf, tanh, -INFINITY, INFINITY, 1.5);
  within("sigmoid", dtrt_sigmoidf, exact_sigmoid, -80, INFINITY, 2.5);
  within("erf", dtrt_erff, erf, -INFINITY, INFINITY, 1.2);
  within("sin", dtrt_sinf, sin, -1e6, 1e6, 2);
  within("cos", dtrt_cosf, cos, -1e6, 1e6, 2);
  within("rsqrt", dtrt_rsqrtf, exact_rsqrt, 0, INFINITY, 2);
}

UNIT(scalar_functions_at_infinities) {
  CHECK(dtrt_expf(-INFINITY) == 0 && dtrt_expf(INFINITY) == INFINITY && isnan(dtrt_expf(NAN)));
  CHECK(dtrt_logf(0) == -INFINITY && isnan(dtrt_logf(-1)) && dtrt_logf(INFINITY) == INFINITY);
  CHECK(dtrt_tanhf(-INFINITY) == -1 && dtrt_erff(INFINITY) == 1 && dtrt_sigmoidf(-INFINITY) == 0);
  CHECK(isnan(dtrt_maxf(NAN, 1)) && isnan(dtrt_maxf(1, NAN)) && isnan(dtrt_minf(NAN, 1)));
}

UNIT(floats_in_the_order_of_integers) {
  const float x[] = {-INFINITY, -3e38f, -1, -1e-40f, 0, 1e-40f, 1, 3e38f, INFINITY};
  for (int i = 0; i < 9; i++) CHECK(dtrt_unorder(dtrt_order(x[i])) == x[i]);
  for (int i = 0; i + 1 < 9; i++) CHECK(dtrt_order(x[i]) < dtrt_order(x[i + 1]));
}
