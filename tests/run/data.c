/* data.c: what a model needs to train: made up from the types of its inputs in its IR, 3 B + 1 rows, integers below their
   limit; or a text of words. The same on every call. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "unit.h"

static uint32_t draw(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 8;
}

/* A .npy file with the given rows; `type` as in IR text. */
static void write_npy(const char *path, const char *dtype, const int64_t *dim, int rank, int64_t limit, uint32_t seed) {
  FILE *f = fopen(path, "wb");
  char shape[256], header[512];
  int n = 0;
  int64_t elements = 1;
  for (int d = 0; d < rank; d++)
    n += snprintf(shape + n, sizeof shape - (size_t)n, "%lld,", (long long)dim[d]), elements *= dim[d];
  bool real = !strcmp(dtype, "f32");
  int len =
      snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", real ? "<f4" : "<i4", shape);
  while ((10 + len + 1) % 64) header[len++] = ' ';
  header[len++] = '\n';
  fwrite("\x93NUMPY\x01\x00", 1, 8, f);
  fputc(len & 255, f), fputc(len >> 8, f), fwrite(header, 1, (size_t)len, f);
  for (int64_t i = 0; i < elements; i++) {
    float x = (float)draw(&seed) / (float)(1 << 23) - 1;
    int32_t k = (int32_t)(draw(&seed) % (limit ? limit : 7));
    fwrite(real ? (void *)&x : (void *)&k, 4, 1, f);
  }
  fclose(f);
}

/* `%x: f32[B=8@data, 16] = input table("x.npy") limit V=256` -> x.npy in the work folder. */
static void make_table(const char *line) {
  char dtype[8] = "", file[128] = "";
  int64_t dim[8], limit = 0;
  int rank = 0;
  const char *colon = strstr(line, ": "), *open = strchr(line, '['), *close = strstr(line, "] = "),
             *name = strstr(line, "table(\"");
  if (!colon || !open || !close || !name || sscanf(colon, ": %7[a-z0-9]", dtype) != 1 ||
      sscanf(name, "table(\"%127[^\"]", file) != 1)
    return;
  for (const char *p = open + 1; p < close && rank < 8;) {
    const char *equals = p, *end = p + strcspn(p, ",]");
    while (equals < end && *equals != '=' && *equals != '@') equals++;
    dim[rank++] = strtoll(equals < end && *equals == '=' ? equals + 1 : p, NULL, 10);
    int depth = 0; /* a comma inside @(a, b) ends no dim */
    for (end = p; end < close && (depth || *end != ','); end++) depth += *end == '(' ? 1 : *end == ')' ? -1 : 0;
    p = end + 1;
  }
  const char *lim = strstr(close, " limit ");
  if (lim) {
    lim += 7;
    const char *equals = strchr(lim, '='), *space = strpbrk(lim, " \n");
    limit = strtoll(equals && (!space || equals < space) ? equals + 1 : lim, NULL, 10);
  }
  dim[0] = 3 * dim[0] + 1;
  write_npy(work_path("%s", file), dtype, dim, rank, limit, (uint32_t)file[0] * 977u + (uint32_t)rank);
}

bool make_data(const char *dt) {
  char *ir;
  if (RUN(tests_path("run"), &ir, DTC_BINARY, dt, "--emit=ir=-")) return unit_fail(dt, 1, "%.4000s", ir), false;
  for (char *line = strtok(ir, "\n"); line; line = strtok(NULL, "\n"))
    if (strstr(line, "= input ")) make_table(line);
  return true;
}

const char *make_corpus(void) {
  static const char *path;
  if (path) return path;
  path = work_path("corpus.txt");
  FILE *f = fopen(path, "wb");
  uint32_t x = 12345;
  for (int i = 0; i < 60000; i++) {
    x = x * 1664525u + 1013904223u;
    fputc(x >> 29 == 0 ? ' ' : 'a' + (int)((x >> 20) % 17 * (x >> 10 & 3) % 26), f);
  }
  fclose(f);
  return path;
}

const char *mesh_of(const char *dt, int first) {
  char *text = read_text(dt), *at = strstr(text, "\nmesh "), *out = calloc(1, 256);
  at = at ? strchr(at, '(') + 1 : text;
  for (int n = 0; *at && *at != ')'; n++) {
    at += strspn(at, " ,");
    sprintf(out + strlen(out), "%s%.*s=%d", n ? "," : "", (int)strcspn(at, " ="), at, n ? 1 : first);
    at += strcspn(at, ",)");
  }
  return out;
}
