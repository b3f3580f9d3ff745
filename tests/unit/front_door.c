/* front_door.c: files that somebody damaged: every model and every text of the golden tests, cut, spliced and bent. Whatever is
   in a file, the answer is a module that obeys its laws, or errors; never a crash, a hang or an abort.

   Each batch runs in a process of its own, so that a crash is a failed test that says which seed did it. A longer run:
   DTC_FRONT_DOOR=100000 build/tests/dtc_tests --gtest_filter=unit/front_door.*                                            */
#include "frontend/frontend.h"
#include "ir/ir.h"
#include "unit.h"

#include <glob.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILES = 1500, BATCH = 100, SECONDS = 60 };

typedef VEC(const char *) Texts;

static uint64_t draw(uint64_t *seed, uint64_t n) { return (*seed = random_mix(*seed + 0x9e3779b97f4a7c15u)) % n; }

/* ---- texts ------------------------------------------------------------------------------------------------- */

static void add_files(Arena *a, Texts *out, const char *pattern, bool tests) {
  glob_t g;
  if (glob(pattern, 0, NULL, &g)) return;
  for (size_t i = 0; i < g.gl_pathc; i++) {
    size_t len;
    const char *why, *text = read_whole_file(a, g.gl_pathv[i], &len, &why);
    const char *end = text && tests ? strstr(text, "\n----\n") : NULL, *begin = text && tests ? strchr(text, '\n') : text;
    if (tests && end && begin && begin < end) text = arena_strndup(a, begin + 1, (size_t)(end - begin));
    if (text && strlen(text) < 20000) vec_push(a, *out, text);
  }
  globfree(&g);
}

static Texts corpus(Arena *a) {
  Texts t = {0};
  add_files(a, &t, DTC_TESTS "/../examples/*.dt", false);
  add_files(a, &t, DTC_TESTS "/golden/*/*.test", true);
  add_files(a, &t, DTC_TESTS "/errors/*.test", true);
  return t;
}

/* ---- damage -------------------------------------------------------------------------------------------------- */

static const char *const PIECES[] = {"9223372036854775807",
                                     "-9223372036854775808",
                                     "0",
                                     "-1",
                                     "1099511627776",
                                     "4294967296",
                                     "1e400",
                                     "nan",
                                     "@",
                                     "@ none",
                                     "@ (data, data)",
                                     "(",
                                     ")",
                                     "[",
                                     "]",
                                     "{",
                                     "}",
                                     ",",
                                     "%",
                                     "//",
                                     "..",
                                     "\"",
                                     "\xff",
                                     "\n",
                                     "#",
                                     "stage",
                                     "repeat",
                                     "sum[",
                                     "else",
                                     "%x",
                                     "granule 0",
                                     "granule 9223372036854775807",
                                     "{data: sum}",
                                     "~model(0:0)",
                                     "model(2:4)",
                                     "window",
                                     "f32[",
                                     "f64",
                                     "yield"};

static const char *splice(Arena *a, const char *text, size_t at, size_t cut, const char *piece) {
  size_t n = strlen(text);
  if (at > n) at = n;
  if (cut > n - at) cut = n - at;
  return arena_printf(a, "%.*s%s%s", (int)at, text, piece, text + at + cut);
}

/* Where the k-th word of the text begins, and its length. */
static void word(const char *text, uint64_t k, size_t *at, size_t *len) {
  size_t i = 0, n = strlen(text);
  for (; i < n; i += *len ? *len : 1) {
    *at = i;
    *len = strspn(text + i, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.0123456789");
    if (*len && k-- == 0) return;
  }
  *at = n, *len = 0;
}

static const char *damage(Arena *a, const Texts *t, const char *text, uint64_t *seed) {
  size_t n = strlen(text) + 1, at, len, from, size;
  const char *other = t->at[draw(seed, (uint64_t)t->n)];
  switch (draw(seed, 6)) {
  case 0: return arena_strndup(a, text, draw(seed, n));
  case 1: return splice(a, text, draw(seed, n), draw(seed, 9), "");
  case 2: return splice(a, text, draw(seed, n), draw(seed, 3), PIECES[draw(seed, sizeof PIECES / sizeof *PIECES)]);
  case 3: /* one word in place of another */
    word(text, draw(seed, n / 3 + 1), &at, &len);
    word(text, draw(seed, n / 3 + 1), &from, &size);
    return splice(a, text, at, len, arena_strndup(a, text + from, size));
  case 4: /* a piece of another file */
    from = draw(seed, strlen(other) + 1);
    size = draw(seed, 40);
    if (size > strlen(other) - from) size = strlen(other) - from;
    return splice(a, text, draw(seed, n), 0, arena_strndup(a, other + from, size));
  default: /* a number or name bent */
    word(text, draw(seed, n / 3 + 1), &at, &len);
    return splice(a, text, at, len, PIECES[draw(seed, 7)]);
  }
}

/* ---- the door --------------------------------------------------------------------------------------------------- */

static void enter(const char *text) {
  static const FrontendOptions none;
  Arena *a = arena_new();
  Diags *d = diags_new(a);
  diags_add_file(d, "a.dt", text, strlen(text));
  const char *why;
  if (!strncmp(text, "stage ", 6)) {
    Module *m = ir_parse(a, d, 0);
    if (m && !d->nerrors && ir_verify(m, NULL, &why)) ir_print(m, a);
  } else {
    Module *m = frontend_module(a, d, 0, "-", &none);
    if (m && !d->nerrors) ir_verify(m, "the frontend", NULL); /* what it makes obeys the laws */
  }
  FILE *nowhere = fopen("/dev/null", "w");
  if (nowhere) diags_print(d, DIAG_TEXT, nowhere), fclose(nowhere);
  arena_free(a);
}

static void batch(const Texts *t, uint64_t seed) {
  alarm(SECONDS);
  for (int i = 0; i < BATCH; i++) {
    Arena *a = arena_new();
    const char *text = t->at[draw(&seed, (uint64_t)t->n)];
    for (uint64_t k = 1 + draw(&seed, 4); k > 0; k--) text = damage(a, t, text, &seed);
    enter(text);
    arena_free(a);
  }
}

UNIT(damaged_files_are_errors_or_modules) {
  Arena *a = arena_new();
  Texts t = corpus(a);
  CHECK(t.n > 100);
  const char *more = getenv("DTC_FRONT_DOOR");
  int files = more ? atoi(more) : FILES;
  for (int i = 0; i * BATCH < files && t.n > 0; i++) {
    pid_t child = fork();
    if (child == 0) {
      batch(&t, (uint64_t)i + 1);
      _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (status != 0) unit_fail(__FILE__, __LINE__, "the batch of seed %d ends with status %x", i + 1, status);
  }
  arena_free(a);
}
