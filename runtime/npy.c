/* npy.c: reads .npy arrays strictly: versions 1 and 2, C order, '<f4' '<f8' '<i4' '<i8' '|b1', a header of exactly
   the three keys, and as many bytes as shape and type say.

     "\x93NUMPY" 1 0, 2 bytes header length, {'descr': '<f4', 'fortran_order': False, 'shape': (50, 16), }\n, data */
#include "rt.h"

#include <ctype.h>

typedef struct {
  const char *at, *end;
} Text;

static void skip_space(Text *t) {
  while (t->at < t->end && isspace((unsigned char)*t->at)) t->at++;
}

/* Consumes `word` after white space. */
static bool take(Text *t, const char *word) {
  skip_space(t);
  size_t n = strlen(word);
  if ((size_t)(t->end - t->at) < n || memcmp(t->at, word, n)) return false;
  t->at += n;
  return true;
}

static bool take_number(Text *t, int64_t *out) {
  skip_space(t);
  if (t->at == t->end || !isdigit((unsigned char)*t->at)) return false;
  for (*out = 0; t->at < t->end && isdigit((unsigned char)*t->at); t->at++)
    if (!rt_mul(*out, 10, out) || !rt_add(*out, *t->at - '0', out)) return false;
  return true;
}

const char *rt_npy_dtype(dtrt_dtype t) {
  static const char *const text[] = {
      [DTRT_F32] = "<f4", [DTRT_F64] = "<f8", [DTRT_F16] = "<f2", [DTRT_I32] = "<i4", [DTRT_I64] = "<i8", [DTRT_BOOL] = "|b1"};
  return text[t];
}

static const char *take_descr(Text *t, NpyArray *a) {
  static const dtrt_dtype known[] = {DTRT_F32, DTRT_F64, DTRT_I32, DTRT_I64, DTRT_BOOL};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    char quoted[8];
    snprintf(quoted, sizeof quoted, "'%s'", rt_npy_dtype(known[i]));
    if (!take(t, quoted)) continue;
    a->dtype = known[i];
    return NULL;
  }
  return "its dtype is not one of <f4 <f8 <i4 <i8 |b1";
}

static const char *take_shape(Text *t, NpyArray *a) {
  if (!take(t, "(")) return "its shape is malformed";
  while (!take(t, ")")) {
    if (a->rank == 32) return "it has more than 32 dims";
    if (!take_number(t, &a->dim[a->rank++])) return "its shape is malformed";
    if (!take(t, ",")) {
      if (a->rank == 1 || !take(t, ")")) return "its shape is malformed"; /* a tuple of one is (5,) */
      break;
    }
  }
  return NULL;
}

static const char *take_header(Text *t, NpyArray *a) {
  bool descr = false, order = false, shape = false;
  const char *wrong = NULL;
  if (!take(t, "{")) return "its header is malformed";
  while (!take(t, "}")) {
    if (!descr && take(t, "'descr'") && take(t, ":"))
      descr = true, wrong = take_descr(t, a);
    else if (!order && take(t, "'fortran_order'") && take(t, ":"))
      order = true, wrong = take(t, "False") ? NULL : "it is not in C order";
    else if (!shape && take(t, "'shape'") && take(t, ":"))
      shape = true, wrong = take_shape(t, a);
    else
      return "its header is malformed";
    if (wrong) return wrong;
    if (take(t, ",")) continue;
    if (!take(t, "}")) return "its header is malformed";
    break;
  }
  skip_space(t);
  return descr && order && shape && t->at == t->end ? NULL : "its header is malformed";
}

static const char *read_npy(const Mapped *m, NpyArray *a) {
  if (m->bytes < 10 || memcmp(m->at, "\x93NUMPY", 6)) return "it is no .npy file";
  int major = m->at[6];
  if ((major != 1 && major != 2) || m->at[7]) return "only .npy versions 1 and 2 can be read";
  int64_t start = major == 1 ? 10 : 12, length = m->at[8] | m->at[9] << 8;
  if (m->bytes < start) return "it is cut off";
  if (major == 2) length |= (int64_t)m->at[10] << 16 | (int64_t)m->at[11] << 24;
  if (length > m->bytes - start) return "it is cut off";
  Text t = {(const char *)m->at + start, (const char *)m->at + start + length};
  const char *wrong = take_header(&t, a);
  if (wrong) return wrong;
  a->elements = 1;
  int64_t bytes;
  for (int i = 0; i < a->rank; i++)
    if (!rt_mul(a->elements, a->dim[i], &a->elements)) return "its shape is too large";
  if (!rt_mul(a->elements, (int64_t)rt_dtype_size(a->dtype), &bytes)) return "its shape is too large";
  if (bytes > m->bytes - start - length) return "it is cut off: it has fewer bytes than its shape says";
  if (bytes < m->bytes - start - length) return "it has more bytes than its shape says";
  a->data = m->at + start + length;
  return NULL;
}

bool rt_npy_read(const Mapped *m, NpyArray *a, char *why) {
  *a = (NpyArray){0};
  const char *wrong = read_npy(m, a);
  if (wrong) snprintf(why, RT_MESSAGE, "cannot use %s: %s", m->name, wrong);
  return !wrong;
}
