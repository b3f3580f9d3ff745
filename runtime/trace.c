/* trace.c: the order in which a rank calls its collectives, for comparing programs: the same plan as C and as CUDA must
   write the same. With DTRT_TRACE=PREFIX rank 2 writes PREFIX.2:

     start 3
     wait 3                                                                                                          */
#include "rt.h"

static FILE *opened(const Rt *rt) {
  char path[PATH_MAX];
  FILE *f = snprintf(path, sizeof path, "%s.%d", rt->o.trace, rt->rank) < (int)sizeof path ? fopen(path, "w") : NULL;
  if (f) setvbuf(f, NULL, _IOLBF, BUFSIZ); /* what a rank called before it died is there */
  return f;
}

void rt_trace(Rt *rt, const char *what, int id) {
  if (!rt->o.trace) return;
  if (!rt->trace && !(rt->trace = opened(rt))) rt_fail(rt, EXIT_DATA, "DTRT_TRACE: cannot write %s.%d", rt->o.trace, rt->rank);
  fprintf(rt->trace, "%s %d\n", what, id);
}
