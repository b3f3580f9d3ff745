/* emulated.h: what tests of emitted CUDA on the emulator share. */
#ifndef DTC_TEST_EMULATED_H
#define DTC_TEST_EMULATED_H

#include <stdbool.h>

/* The emulator's variant that DTC_VARIANT names (plain, address, checked; see tests/cuda/README.md), or plain. */
const char *emulated_variant(void);

/* n files of emitted CUDA -> one program: its first argument, 0 .. n - 1, says whose main runs with the others. fast: made with
   --fast, some of them. */
bool emulate_all(const char *variant, bool fast, int n, const char *const *cu, const char *program);

#endif
