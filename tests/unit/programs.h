/* programs.h: programs in IR text for both targets, see codegen.c.

     PROGRAM(halves, "%x[i]: f32[I=4] = nest f32(idx(i)) * 0.5\ntap output \"x\" %x\n")          */
#ifndef DTC_TEST_PROGRAMS_H
#define DTC_TEST_PROGRAMS_H

#include "ir/ir.h"
#include "unit.h"

typedef struct {
  const char *name, *text;
} ProgramText;

void program_add(const char *name, const char *text);
void program_agrees(const char *name); /* the test: what it shows is what the interpreter says */

#define PROGRAM(test, text)                                                                                                      \
  __attribute__((constructor)) static void add_##test(void) { program_add(#test, text); }                                        \
  UNIT(test) { program_agrees(#test); }

/* programs.c */
int program_count(void);
const ProgramText *program_at(int i);
Module *program_scheduled(Arena *a, const ProgramText *p); /* NULL after a failure */

/* Of one target each: programs_c.c, ../emulated/programs.c */
extern const Target program_target;
/* What the program shows, a line `NAME VALUE` per element, outputs in their order; or what went wrong. */
const char *program_shown(Arena *a, const ProgramText *p, const Module *m);

#endif
