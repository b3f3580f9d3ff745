/* sha256.c: SHA-256 (FIPS 180-4) and HMAC (RFC 2104), with which the starts of a run show each other that they know the job's
   token without sending it (link.c).

     rt_sha256("abc", 3, out)      out = ba7816bf 8f01cfea 414140de 5dae2223 b00361a3 96177a9c b410ff61 f20015ad     */
#include "link.h"

static uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t K[64] = {0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
                               0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
                               0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
                               0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
                               0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
                               0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
                               0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
                               0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static void block(uint32_t h[8], const unsigned char *p) {
  uint32_t w[64], v[8];
  for (int i = 0; i < 16; i++)
    w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
  for (int i = 16; i < 64; i++) {
    uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + w[i - 7] + (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
  }
  memcpy(v, h, sizeof v);
  for (int i = 0; i < 64; i++) {
    uint32_t a = v[0], e = v[4];
    uint32_t t = v[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & v[5]) ^ (~e & v[6])) + K[i] + w[i];
    uint32_t u = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
    memmove(v + 1, v, 7 * sizeof *v);
    v[4] += t, v[0] = t + u;
  }
  for (int i = 0; i < 8; i++) h[i] += v[i];
}

/* Of two texts, one after the other. */
static void hash2(const void *a, size_t na, const void *b, size_t nb, unsigned char out[32]) {
  uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  unsigned char last[64];
  size_t n = 0;
  for (size_t i = 0; i < na + nb; i++) {
    last[n++] = i < na ? ((const unsigned char *)a)[i] : ((const unsigned char *)b)[i - na];
    if (n == 64) block(h, last), n = 0;
  }
  last[n++] = 0x80;
  if (n > 56) {
    memset(last + n, 0, 64 - n);
    block(h, last);
    n = 0;
  }
  memset(last + n, 0, 56 - n);
  for (int i = 0; i < 8; i++) last[56 + i] = (unsigned char)((uint64_t)(na + nb) * 8 >> (56 - 8 * i));
  block(h, last);
  for (int i = 0; i < 32; i++) out[i] = (unsigned char)(h[i / 4] >> (24 - 8 * (i % 4)));
}

void rt_sha256(const void *data, size_t bytes, unsigned char out[32]) { hash2(data, bytes, NULL, 0, out); }

void rt_hmac(const unsigned char key[32], const void *data, size_t bytes, unsigned char out[32]) {
  unsigned char inner[64], outer[64], hash[32];
  memset(inner, 0x36, sizeof inner);
  memset(outer, 0x5c, sizeof outer);
  for (int i = 0; i < 32; i++) inner[i] ^= key[i], outer[i] ^= key[i];
  hash2(inner, sizeof inner, data, bytes, hash);
  hash2(outer, sizeof outer, hash, sizeof hash, out);
}
