/* dtrt_random.h: the random numbers of emitted programs: the same bits as the compiler's interpreter draws
   (ir/random.c, where every formula is given), a pure function of seed, site, step, repeat counters and the element's
   global number, so that no mesh changes them.

     const dtrt_Random site = dtrt_random_site(cx->seed, "layer.drop", step, 1, (const int64_t[]){l});
     dtrt_random_uniform(site, out, n, first);          elements first .. first + n - 1 in [0, 1)

   Philox 4x32-10 (Salmon et al., 2011) keyed by seed and site; Box-Muller with own log, cos and sin. Every rounding is
   spelled out by fma, so that no compiler, CUDA's included, makes other bits of it. */
#ifndef DTRT_RANDOM_H
#define DTRT_RANDOM_H

#include "runtime/dtrt_scalar.h"

typedef struct {
  uint64_t key;
  uint32_t step, path;
} dtrt_Random;

DTRT_FN uint64_t dtrt_random_mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

DTRT_FN dtrt_Random dtrt_random_site(uint64_t seed, const char *site, int64_t step, int n, const int64_t *counter) {
  uint64_t h = 0xcbf29ce484222325u;
  for (; *site; site++) h = (h ^ (unsigned char)*site) * 0x100000001b3u;
  dtrt_Random r = {dtrt_random_mix(dtrt_random_mix(seed) ^ h), (uint32_t)step, 0};
  for (int i = 0; i < n; i++) r.path = r.path * 1000003u + (uint32_t)counter[i] + 1;
  return r;
}

DTRT_FN void dtrt_random_words(dtrt_Random s, uint64_t q, uint32_t w[4]) {
  uint32_t c0 = (uint32_t)q, c1 = (uint32_t)(q >> 32), c2 = s.step, c3 = s.path, k0 = (uint32_t)s.key,
           k1 = (uint32_t)(s.key >> 32);
  for (int round = 0; round < 10; round++) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
    c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
    c1 = (uint32_t)p1;
    c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c3 = (uint32_t)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  w[0] = c0, w[1] = c1, w[2] = c2, w[3] = c3;
}

DTRT_FN float dtrt_random_log(uint32_t k) { /* ln(k 2^-24) */
  uint32_t bits;
  float u = (float)k * 0x1p-24f;
  memcpy(&bits, &u, 4);
  bits += 0x3f800000u - 0x3f3504f3u;
  float e = (float)((int32_t)(bits >> 23) - 127);
  bits = (bits & 0x007fffffu) + 0x3f3504f3u;
  memcpy(&u, &bits, 4);
  float f = u - 1.0f, z = f * f;
  float p = 7.0376836292e-2f;
  p = __builtin_fmaf(p, f, -1.1514610310e-1f);
  p = __builtin_fmaf(p, f, 1.1676998740e-1f);
  p = __builtin_fmaf(p, f, -1.2420140846e-1f);
  p = __builtin_fmaf(p, f, 1.4249322787e-1f);
  p = __builtin_fmaf(p, f, -1.6668057665e-1f);
  p = __builtin_fmaf(p, f, 2.0000714765e-1f);
  p = __builtin_fmaf(p, f, -2.4999993993e-1f);
  p = __builtin_fmaf(p, f, 3.3333331174e-1f);
  p = p * f;
  p = __builtin_fmaf(e, -2.12194440e-4f, p * z);
  p = __builtin_fmaf(-0.5f, z, p);
  return __builtin_fmaf(e, 0.693359375f, f + p);
}

DTRT_FN void dtrt_random_turn(uint32_t k, float *c, float *s) { /* cos and sin of 2 pi k / 2^24 */
  uint32_t shifted = k + (1u << 21), quarter = (shifted >> 22) & 3;
  float x = (float)((int32_t)(shifted & 0x3fffffu) - (1 << 21)) * 3.7450704e-7f;
  float z = x * x;
  float p = -1.9515295891e-4f;
  p = __builtin_fmaf(p, z, 8.3321608736e-3f);
  p = __builtin_fmaf(p, z, -1.6666654611e-1f);
  float sine = __builtin_fmaf(p * z, x, x);
  float q = 2.443315711809948e-5f;
  q = __builtin_fmaf(q, z, -1.388731625493765e-3f);
  q = __builtin_fmaf(q, z, 4.166664568298827e-2f);
  float cosine = __builtin_fmaf(q * z, z, __builtin_fmaf(-0.5f, z, 1.0f));
  float co = quarter & 1 ? sine : cosine, si = quarter & 1 ? cosine : sine;
  *c = quarter == 1 || quarter == 2 ? -co : co;
  *s = quarter & 2 ? -si : si;
}

DTRT_FN void dtrt_random_quad(dtrt_Random s, uint64_t q, bool normal, float out[4]) {
  uint32_t w[4];
  dtrt_random_words(s, q, w);
  if (!normal) {
    for (int i = 0; i < 4; i++) out[i] = (float)(w[i] >> 8) * 0x1p-24f;
    return;
  }
  for (int i = 0; i < 4; i += 2) {
    float radius = __builtin_sqrtf(-2.0f * dtrt_random_log((w[i] >> 8) + 1)), c, n;
    dtrt_random_turn(w[i + 1] >> 8, &c, &n);
    out[i] = radius * c;
    out[i + 1] = radius * n;
  }
}

DTRT_FN void dtrt_random_fill(dtrt_Random s, float *out, int64_t n, int64_t first, bool normal) {
  float quad[4];
  for (int64_t at = first; at < first + n;) {
    dtrt_random_quad(s, (uint64_t)at / 4, normal, quad);
    for (int64_t end = at / 4 * 4 + 4; at < end && at < first + n; at++) out[at - first] = quad[at % 4];
  }
}

DTRT_FN void dtrt_random_uniform(dtrt_Random s, float *out, int64_t n, int64_t first) {
  dtrt_random_fill(s, out, n, first, false);
}
DTRT_FN void dtrt_random_normal(dtrt_Random s, float *out, int64_t n, int64_t first) { dtrt_random_fill(s, out, n, first, true); }

#endif
