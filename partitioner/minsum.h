/* minsum.h: the least sum of costs of choices that depend on each other in pairs. */
#ifndef DTC_MINSUM_H
#define DTC_MINSUM_H

#include "ir/base.h"

static const double IMPOSSIBLE = 1e30; /* the cost of what must not be chosen; sums of it stay finite */

/* cost[i * size of b + j]: when variable a takes its choice i and b its choice j. */
typedef struct {
  int a, b;
  double *cost;
} MinSumEdge;

typedef struct {
  int n;
  int *size;      /* [n] choices of each variable, at least 1 */
  double **unary; /* [n][size] */
  VEC(MinSumEdge) edge;
} MinSum;

double minsum_cost(const MinSum *p, const int *x);

/* Makes x, an assignment, one that costs no more: the best there is when no table of more than max_table entries is
   needed (always so for chains and trees whose variables have up to sqrt(max_table) choices), else the best that a few
   rounds find; hold: they begin by holding variables at what they are rather than by leaving them their better choices.
   exact: the result is the best there is. Deterministic. Returns its cost. minsum.c */
double minsum_improve(const MinSum *p, int *x, int64_t max_table, bool hold, bool *exact);

#endif
