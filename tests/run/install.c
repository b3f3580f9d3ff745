/* install.c: an installed dtc finds its runtime from wherever it was put, and works without the source tree's build. */
#include <stdio.h>
#include <string.h>

#include "program.h"
#include "unit.h"

UNIT(an_installed_dtc_works_wherever_it_is_moved) {
  const char *here = work_path("here"), *there = work_path("there"), *program = work_path("digits");
  char *output;
  int rc = RUN(work_folder(), &output, DTC_CMAKE, "--install", DTC_BUILD, "--prefix", here);
  if (rc || rename(here, there)) {
    unit_fail(__FILE__, __LINE__, "cmake --install exits %d:\n%.2000s", rc, output);
    return;
  }
  rc = RUN(work_folder(), &output, work_path("there/bin/dtc"), work_path("there/share/dtc/examples/mlp.dt"), "-o", program);
  if (rc) unit_fail(__FILE__, __LINE__, "the installed dtc exits %d:\n%.2000s", rc, output);
  rc = RUN(work_folder(), &output, program, "--data-dir", work_path("there/share/dtc/examples"), "--steps", "200");
  if (rc || !strstr(output, "step 200/200")) unit_fail(__FILE__, __LINE__, "the program exits %d:\n%.2000s", rc, output);
  rc = RUN(work_folder(), &output, program, "--version");
  CHECK(rc == 0 && strstr(output, "mlp.dt, compiled by dtc 0"));
}
