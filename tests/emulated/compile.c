/* compile.c: a .dt file -> its CUDA program for the emulator of tests/cuda, in place of tests/run/compile.c. DTC_VARIANT names
   the emulator's variant (plain, address, checked; see tests/cuda/README.md). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulated.h"
#include "program.h"
#include "unit.h"

bool compile_c(const char *dt, const char *out, const char *const *more) { return run_dtc("--target=c", dt, out, more); }

const char *emulated_variant(void) {
  const char *variant = getenv("DTC_VARIANT");
  return variant && *variant ? variant : "plain";
}

bool compile(const char *dt, const char *out, const char *const *more) {
  const char *cu = work_path("emulated.cu");
  if (!run_dtc("--emit=cuda", dt, cu, more)) return false;
  char *output;
  int rc = RUN(work_folder(), &output, "/bin/sh", DTC_EMULATOR "/emulate.sh", emulated_variant(), DTC_EMULATED, out, cu);
  if (rc) unit_fail(dt, 1, "emitted CUDA is no C++ (exit %d):\n%.4000s", rc, output);
  return rc == 0;
}
