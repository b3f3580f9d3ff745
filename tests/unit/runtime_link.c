// sha256.c of the runtime against published vectors: FIPS 180-4's examples, RFC 4231's HMAC cases with keys of at most 32 bytes.
#include <stdio.h>
#include <string.h>

#include "runtime/link.h"
#include "unit.h"

static const char *hex(const unsigned char *h, char out[65]) {
  for (int i = 0; i < 32; i++) sprintf(out + 2 * i, "%02x", h[i]);
  return out;
}

static void check_sha(const char *text, const char *want) {
  unsigned char h[32];
  char got[65];
  rt_sha256(text, strlen(text), h);
  CHECK_STR(hex(h, got), want);
}

UNIT(sha256_of_published_examples) {
  check_sha("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  check_sha("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  check_sha("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  char million[1000001];
  memset(million, 'a', 1000000);
  million[1000000] = 0;
  check_sha(million, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

UNIT(hmac_of_published_examples) {
  unsigned char key[32] = {0}, h[32];
  char got[65];
  memset(key, 0x0b, 20);
  rt_hmac(key, "Hi There", 8, h);
  CHECK_STR(hex(h, got), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  memset(key, 0, sizeof key);
  memcpy(key, "Jefe", 4);
  rt_hmac(key, "what do ya want for nothing?", 28, h);
  CHECK_STR(hex(h, got), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}
