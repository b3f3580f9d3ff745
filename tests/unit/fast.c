/* fast.c: atomics on floats stand in programs made with --fast only. Attention's are on integers of 64 bits, in the runtime. */
#include <stdio.h>
#include <string.h>

#include "unit.h"

static int atomics_in(const char *model, const char *options) {
  char command[600], line[4096];
  int n = 0;
  snprintf(command, sizeof command, "'%s' '%s/%s' --emit=cuda=- %s 2>&1", DTC_BINARY, DTC_TESTS, model, options);
  FILE *f = popen(command, "r");
  while (f && fgets(line, sizeof line, f)) n += strstr(line, "atomic") != NULL;
  return f && pclose(f) == 0 ? n : -1;
}

UNIT(only_fast_programs_add_floats_by_atomics) {
  static const char *const models[] = {"../examples/charlm.dt", "../examples/llama.dt", "run/recommender.dt", "run/single.dt"};
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    CHECK_EQ(atomics_in(models[i], ""), 0);
    CHECK(atomics_in(models[i], "--fast") > 0);
  }
}
