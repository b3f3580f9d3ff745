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
                                       "combine",   "save",     "localize", "group",     "schedule", "buffers"};
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
