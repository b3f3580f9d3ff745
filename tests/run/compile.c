/* compile.c: a .dt file -> its program, as users get it: for the CPU (tests/run), for the GPUs of this machine (tests/gpu).
   tests/emulated has its own. */
#include "program.h"

#ifndef DTC_TARGET
#define DTC_TARGET "c"
#endif

bool compile(const char *dt, const char *out, const char *const *more) { return run_dtc("--target=" DTC_TARGET, dt, out, more); }
