/* compile.c: a .dt file -> its program for the GPUs of this machine, in place of tests/run/compile.c. */
#include "program.h"
#include "unit.h"

bool compile(const char *dt, const char *out, const char *const *more) {
  const char *argv[32] = {DTC_BINARY, dt, "--target=cuda", "-o", out};
  int n = 5;
  for (; *more; more++) argv[n++] = *more;
  char *output;
  int rc = run_program(work_folder(), argv, &output);
  if (rc) unit_fail(dt, 1, "dtc --target=cuda exits %d:\n%.4000s", rc, output);
  return rc == 0;
}
