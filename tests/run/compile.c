/* compile.c: a .dt file -> its program, as users get it: for the CPU (tests/run), for the GPUs of this machine (tests/gpu). Those
   that are made already (tests/gpu/run.sh --prepare) lie in the folder DTC_PROGRAMS under the names that are asked for.
   tests/emulated has its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "program.h"

#ifndef DTC_TARGET
#define DTC_TARGET "c"
#endif

static bool is_made(const char *out) {
  const char *folder = getenv("DTC_PROGRAMS"), *name = strrchr(out, '/');
  char *path = NULL;
  if (!folder || !name || asprintf(&path, "%s%s", folder, name) < 0) return false;
  bool made = access(path, X_OK) == 0 && symlink(path, out) == 0;
  free(path);
  return made;
}

bool compile(const char *dt, const char *out, const char *const *more) {
  return is_made(out) || run_dtc("--target=" DTC_TARGET, dt, out, more);
}
