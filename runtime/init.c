/* init.c: initial values of parameters, each element a pure function of seed, the parameter's full name and its
   global index, so that every mesh starts from the same bits.

     param wq: f32[D, H @ model, K] = normal(0.02)      element e is 0.02 * standard normal number e of site "wq" */
#include "rt.h"

#include <math.h>
typedef struct {
  uint64_t key;
  uint32_t step, path;
} dtrt_RandomSite;
/* The finaliser of splitmix64 (Steele, Lea and Flood 2014). */
static uint64_t dtrt_random_mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static uint64_t fnv1a64(const char *s) {
  uint64_t h = 0xcbf29ce484222325u;
  for (; *s; s++) h = (h ^ (unsigned char)*s) * 0x100000001b3u;
  return h;
}

static void dtrt_random_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
  uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; round++) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
    c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
    c1 = (uint32_t)p1;
    c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c3 = (uint32_t)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

static dtrt_RandomSite dtrt_random_site(uint64_t seed, const char *site, int64_t step, int n, const int64_t *counter) {
  dtrt_RandomSite s = {dtrt_random_mix(dtrt_random_mix(seed) ^ fnv1a64(site)), (uint32_t)step, 0};
  for (int i = 0; i < n; i++) s.path = s.path * 1000003u + (uint32_t)counter[i] + 1;
  return s;
}

static void block(dtrt_RandomSite s, uint64_t q, uint32_t w[4]) {
  uint32_t counter[4] = {(uint32_t)q, (uint32_t)(q >> 32), s.step, s.path};
  uint32_t key[2] = {(uint32_t)s.key, (uint32_t)(s.key >> 32)};
  dtrt_random_philox(counter, key, w);
}

static uint32_t dtrt_random_word(dtrt_RandomSite s, uint64_t element) {
  uint32_t w[4];
  block(s, element / 4, w);
  return w[element % 4];
}

static float dtrt_random_uniform(dtrt_RandomSite s, uint64_t element) {
  return (float)(dtrt_random_word(s, element) >> 8) * 0x1p-24f;
}

/* ln(u) of u = k * 2^-24, 1 <= k <= 2^24. u = m * 2^e with m in [sqrt(1/2), sqrt(2)), and with f = m - 1
   ln m = f - f^2/2 + f^3 P(f) (the polynomial of Cephes' logf, S. Moshier 1992). */
static float log_of(uint32_t k) {
  uint32_t bits;
  float u = (float)k * 0x1p-24f;
  memcpy(&bits, &u, 4);
  bits += 0x3f800000u - 0x3f3504f3u;
  float e = (float)((int32_t)(bits >> 23) - 127);
  bits = (bits & 0x007fffffu) + 0x3f3504f3u;
  memcpy(&u, &bits, 4);
  float f = u - 1.0f, z = f * f;
  float p = 7.0376836292e-2f;
  p = fmaf(p, f, -1.1514610310e-1f);
  p = fmaf(p, f, 1.1676998740e-1f);
  p = fmaf(p, f, -1.2420140846e-1f);
  p = fmaf(p, f, 1.4249322787e-1f);
  p = fmaf(p, f, -1.6668057665e-1f);
  p = fmaf(p, f, 2.0000714765e-1f);
  p = fmaf(p, f, -2.4999993993e-1f);
  p = fmaf(p, f, 3.3333331174e-1f);
  p = p * f;
  p = fmaf(e, -2.12194440e-4f, p * z);
  p = fmaf(-0.5f, z, p);
  return fmaf(e, 0.693359375f, f + p);
}

/* cos and sin of 2 pi k / 2^24: k is reduced to the nearest quarter turn exactly, then Cephes' polynomials on
   [-pi/4, pi/4]. */
static void turn(uint32_t k, float *c, float *s) {
  uint32_t shifted = k + (1u << 21), quarter = (shifted >> 22) & 3;
  float x = (float)((int32_t)(shifted & 0x3fffffu) - (1 << 21)) * 3.7450704e-7f; /* 2 pi / 2^24 */
  float z = x * x;
  float p = -1.9515295891e-4f;
  p = fmaf(p, z, 8.3321608736e-3f);
  p = fmaf(p, z, -1.6666654611e-1f);
  float sine = fmaf(p * z, x, x);
  float q = 2.443315711809948e-5f;
  q = fmaf(q, z, -1.388731625493765e-3f);
  q = fmaf(q, z, 4.166664568298827e-2f);
  float cosine = fmaf(q * z, z, fmaf(-0.5f, z, 1.0f));
  float co[4] = {cosine, -sine, -cosine, sine}, si[4] = {sine, cosine, -sine, -cosine};
  *c = co[quarter];
  *s = si[quarter];
}

static float dtrt_random_normal(dtrt_RandomSite s, uint64_t element) {
  uint32_t w[4];
  block(s, element / 4, w);
  const uint32_t *pair = w + (element % 4 & 2);
  float radius = sqrtf(-2.0f * log_of((pair[0] >> 8) + 1)), c, n;
  turn(pair[1] >> 8, &c, &n);
  return radius * (element % 2 ? n : c);
}

static double value(const dtrt_Leaf *l, dtrt_RandomSite site, uint64_t element) {
  switch (l->init) {
  case DTRT_ZEROS: return 0;
  case DTRT_ONES: return 1;
  case DTRT_CONST: return l->a;
  case DTRT_NORMAL: return l->a * (double)dtrt_random_normal(site, element);
  case DTRT_UNIFORM: return l->a + (l->b - l->a) * (double)dtrt_random_uniform(site, element);
  }
  return 0;
}

static void put(dtrt_dtype t, char *dst, double v) {
  switch (t) {
  case DTRT_I32: *(int32_t *)dst = (int32_t)v; return;
  case DTRT_I64: *(int64_t *)dst = (int64_t)v; return;
  case DTRT_BOOL: *(bool *)dst = v != 0; return;
  default: rt_convert(t, dst, DTRT_F64, &v, 1); return;
  }
}

void rt_draw(Rt *rt, const dtrt_Leaf *l) {
  dtrt_Layout whole = rt_unsplit(&l->layout);
  RtBox all = rt_box(&whole, rt->rank), mine = rt_box(&l->layout, rt->rank);
  Piece p = rt_piece(&mine, &all, &whole, &mine, &l->layout); /* source offsets are global element numbers */
  dtrt_RandomSite site = dtrt_random_site(rt->o.seed, l->name, 0, 0, NULL);
  size_t size = rt_dtype_size(l->layout.dtype);
  char *dst = rt->cx.arena + l->offset;
  for (Runs r = rt_runs(&p, 0, p.elements); rt_next_run(&r);)
    for (int64_t k = 0; k < r.n; k++) put(l->layout.dtype, dst + (size_t)(r.d + k) * size, value(l, site, (uint64_t)(r.s + k)));
}
