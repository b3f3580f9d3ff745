/* localize.c: the program becomes one rank's. Shapes, indices and expressions stay global (ir/README.md), so all that
   happens is that the stage says so: from here on capacities are in the text and saved lists are final.

     %x: f32[B=10@data, D=8]   ->   %x: f32[B=10@data:5, D=8]                                                          */
#include "part.h"

void part_localize(Module *m, PassContext *cx) {
  (void)cx;
  ir_dead_code(m);
  m->stage = STAGE_LOCAL;
  ir_number(m);
}
