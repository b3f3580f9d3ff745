/* emit_loops.h: the order of a segment's loops. */
#ifndef DTC_EMIT_LOOPS_H
#define DTC_EMIT_LOOPS_H

#include "cg.h"

typedef struct {
  int n;
  int loop[MAX_INDEX];      /* outermost first: positions in Segment.loop */
  bool absorbed[MAX_INDEX]; /* by position in Segment.loop: runs as part of the next inner loop */
  bool accumulate;          /* a reduction that keeps indices runs a kept one innermost: results are added to in memory */
} LoopOrder;
LoopOrder emit_loop_order(const Module *m, Arena *a, const GroupPlan *g, int segment);

#endif
