/* random.c: the numbers that `random` ops and initialisers draw: a pure function of seed, site, step, repeat
   counters and global element index, so that no mesh, no microbatch and no order of execution changes them.
   runtime/include/runtime/dtrt_random.h draws the same bits; a unit test compares the two.

     RandomSite s = random_site(seed, "layer.drop", step, 1, &l);   random_uniform(s, element)

   The generator is Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).

     key      = mix(mix(seed) ^ fnv1a64(site)); its low word is k0, its high word k1
     counter  = (q & 0xffffffff, q >> 32, step & 0xffffffff, path) with q = element / 4
     path     = 0, then path * 1000003 + counter + 1 (mod 2^32) for each repeat counter, outermost first

   One counter gives four words w[0..3], for elements 4q .. 4q+3:

     uniform  u = (w[element % 4] >> 8) * 2^-24, in [0, 1)
     normal   Box-Muller on (w[0], w[1]) for elements 4q, 4q+1 and on (w[2], w[3]) for 4q+2, 4q+3:
              u1 = ((w[0] >> 8) + 1) * 2^-24, u2 = (w[1] >> 8) * 2^-24, r = sqrt(-2 ln u1),
              the even element is r cos(2 pi u2), the odd one r sin(2 pi u2)

   The floating-point part is f32 and uses only operations that IEEE 754 rounds in one way: + - * sqrt, and fmaf
   wherever a product meets a sum, so that no compiler may contract anything further. Every formula below is
   therefore a definition, coefficient by coefficient and in this order. */
#include "ir/ir.h"

#include <math.h>

/* The finaliser of splitmix64 (Steele, Lea and Flood 2014). */
uint64_t random_mix(uint64_t x) {
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

void random_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
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

RandomSite random_site(uint64_t seed, const char *site, int64_t step, int n, const int64_t *counter) {
  RandomSite s = {random_mix(random_mix(seed) ^ fnv1a64(site)), (uint32_t)step, 0};
  for (int i = 0; i < n; i++) s.path = s.path * 1000003u + (uint32_t)counter[i] + 1;
  return s;
}

static void block(RandomSite s, uint64_t q, uint32_t w[4]) {
  uint32_t counter[4] = {(uint32_t)q, (uint32_t)(q >> 32), s.step, s.path};
  uint32_t key[2] = {(uint32_t)s.key, (uint32_t)(s.key >> 32)};
  random_philox(counter, key, w);
}

uint32_t random_word(RandomSite s, uint64_t element) {
  uint32_t w[4];
  block(s, element / 4, w);
  return w[element % 4];
}

float random_uniform(RandomSite s, uint64_t element) { return (float)(random_word(s, element) >> 8) * 0x1p-24f; }

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

float random_normal(RandomSite s, uint64_t element) {
  uint32_t w[4];
  block(s, element / 4, w);
  const uint32_t *pair = w + (element % 4 & 2);
  float radius = sqrtf(-2.0f * log_of((pair[0] >> 8) + 1)), c, n;
  turn(pair[1] >> 8, &c, &n);
  return radius * (element % 2 ? n : c);
}
