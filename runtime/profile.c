/* profile.c: where a step's time goes, for DTRT_PROFILE=1: what the products took, and what the parts of a program that it
   marks as attention took as a whole. Phases are timed by loop.c, collectives by the transport. */
#include "rt.h"

#include <time.h>

uint64_t rt_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
double rt_now(void) { return (double)rt_ns() * 1e-9; }

uint64_t rt_product_begin(const dtrt_Context *cx) { return cx->comm && cx->comm->o.profile ? rt_ns() : 0; }

void rt_product_end(const dtrt_Context *cx, uint64_t begun, double flop) {
  if (!begun) return;
  PartTimes *t = &cx->comm->parts[cx->comm->part];
  t->products++;
  t->product_ns += rt_ns() - begun;
  t->flop += flop;
}

void dtrt_part(dtrt_Context *cx, dtrt_part_kind part) {
  Rt *rt = cx->comm;
  if (!rt || !rt->o.profile) return;
  rt_idle(rt);
  uint64_t now = rt_ns();
  if (rt->part != DTRT_OTHER) rt->parts[rt->part].ns += now - rt->part_since;
  rt->part = part, rt->part_since = now;
}
