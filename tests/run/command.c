/* command.c: the dtc command as its users see it: the text of any pass is the input of the next; names of files and what
   they hold do no harm to what is emitted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "unit.h"

/* Runs dtc, which must succeed; what it writes is in the file that -o names. */
static bool dtc(const char *file, const char *a, const char *b, const char *out) {
  char *output;
  int rc = RUN(work_folder(), &output, DTC_BINARY, file, a, b, "-o", out);
  if (rc) unit_fail(file, 1, "dtc %s %s exits %d:\n%.2000s", a, b, rc, output);
  return rc == 0;
}

static void compare(const char *file, const char *pass, const char *want, const char *have) {
  char *x = read_text(want), *y = read_text(have);
  if (!x || !y || strcmp(x, y))
    unit_fail(file, 1, "the text of the pass before gives another result: see %s (%s, %s)", pass, want, have);
  free(x), free(y);
}

/* Stops after every pass, and goes on from that text: one pass further it is what dtc makes at once, and so at the end. */
static void pass_by_pass(const char *file) {
  static const char *const passes[] = {"recognise", "gradient", "update",   "propagate", "reshard",  "collect",
                                       "save",      "combine",  "localize", "group",     "schedule", "buffers"};
  enum { N = sizeof passes / sizeof *passes };
  const char *before = NULL, *last = work_path("last"), *end = work_path("end"), *next = work_path("next");
  if (!dtc(file, "--stop-after=buffers", "--keep-gathered", last)) return;
  for (int i = 0; i < N; i++) {
    char stop[64], from[64];
    const char *at = work_path("at_%s", passes[i]);
    snprintf(stop, sizeof stop, "--stop-after=%s", passes[i]);
    snprintf(from, sizeof from, "--from=%s", passes[i]);
    if (!dtc(file, stop, "--keep-gathered", at)) return;
    if (before) {
      char *output;
      CHECK_EQ(RUN(work_folder(), &output, DTC_BINARY, before, from, stop, "--keep-gathered", "-o", next), 0);
      compare(file, passes[i], at, next);
      CHECK_EQ(RUN(work_folder(), &output, DTC_BINARY, before, from, "--stop-after=buffers", "--keep-gathered", "-o", end), 0);
      compare(file, passes[i], last, end);
    }
    before = at;
  }
}

UNIT(each_pass_goes_on_from_the_text_of_the_one_before) {
  pass_by_pass(tests_path("../examples/charlm.dt"));
  pass_by_pass(tests_path("run/parts.dt"));
  pass_by_pass(tests_path("run/experts.dt"));
}

/* The C is for people: it gives no warning, whatever the compiler, the model and its names. */
static void compiles_cleanly(const char *file, const char *cc) {
  char *output;
  const char *c = work_path("clean.c"), *include = tests_path("../runtime/include");
  char emit[400], path[400];
  snprintf(emit, sizeof emit, "--emit=c=%s", c);
  snprintf(path, sizeof path, "-I%s", include);
  int rc = RUN(work_folder(), &output, DTC_BINARY, file, emit);
  if (rc) unit_fail(file, 1, "dtc exits %d:\n%.2000s", rc, output);
  rc = RUN(work_folder(), &output, cc, "-std=gnu17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", path, c);
  if (rc) unit_fail(file, 1, "%s exits %d:\n%.2000s", cc, rc, output);
}

UNIT(emitted_c_compiles_without_warnings) {
  static const char *const models[] = {"../examples/charlm.dt", "../examples/llama.dt", "../examples/mlp.dt",
                                       "run/vision.dt",         "run/parts.dt",         "run/encoder_decoder.dt",
                                       "run/experts.dt",        "run/recurrence.dt",    "run/convolution.dt"};
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) compiles_cleanly(tests_path(models[i]), "/usr/bin/gcc");
  const char *file = work_path("%s", "a'b\"c ??%s *.dt");
  write_text(file, "mesh int(while = 2, static = 2)\n"
                   "dim B = 4, D = 4\n"
                   "input float: f32[B @ while] = table(\"a */ ?%n'.npy\")\n"
                   "param main, register, dtrt_main, forward, printf: f32[D @ static] = ones\n"
                   "return[d] = main[d] * register[d] + dtrt_main[d] * forward[d] + printf[d]\n"
                   "for = sum[d](return[d])\n"
                   "loss = mean[b](float[b] * for * float[b])\n"
                   "metric errno = for\n"
                   "train loss {\n  optimizer = sgd(lr = 0.01)\n}\n");
  compiles_cleanly(file, "/usr/bin/gcc");
}
