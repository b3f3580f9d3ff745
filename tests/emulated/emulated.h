/* emulated.h: what tests of emitted CUDA on the emulator share. */
#ifndef DTC_TEST_EMULATED_H
#define DTC_TEST_EMULATED_H

#include <stdbool.h>

const char *emulated_variant(void);
/* As compile of program.h, but as C. */
bool compile_c(const char *dt, const char *out, const char *const *more);

#endif
