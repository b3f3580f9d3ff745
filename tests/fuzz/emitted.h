/* emitted.h: what emitted.c (files in and out) and compiled.c (compilers and processes) share. */
#ifndef DTC_FUZZ_EMITTED_H
#define DTC_FUZZ_EMITTED_H

#include "fuzz.h"

typedef struct {
  Arena *a;
  const Module *m;
  Shown shown;
  CheckOptions o;
  const char *folder; /* of its own: inputs, outputs, run.log */
} Emitted;

void emitted_inputs(const Emitted *e);
bool emitted_parameters(const Emitted *e);     /* p.safetensors; false if there are none */
const char *emitted_compare(const Emitted *e); /* after the run: NULL, or what is wrong */

#endif
