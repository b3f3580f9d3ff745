/* graph.h: the layouts of a whole program as choices whose costs add up in pairs (minsum.h), one mesh axis at a time:
   what all other axes do is held. reshard.h has what was decided so far; assign.c goes over the axes. */
#ifndef DTC_GRAPH_H
#define DTC_GRAPH_H

#include "minsum.h"
#include "reshard.h"

typedef struct Graph Graph;

/* The choices that axis `axis` leaves. They are numbered so that graph_now fills in what is decided at present. */
Graph *graph_build(Reshard *r, int axis, Arena *a);
const MinSum *graph_problem(const Graph *g);
void graph_now(const Graph *g, int *x);
void graph_decide(Graph *g, const int *x); /* writes the choices back: r->decided, homes */

#endif
