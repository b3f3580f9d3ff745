/* reduce.h: what the files that make a problem smaller share: reduce_sizes.c (sizes that shrink together, and how far),
   reduce_links.c (what a program says of its sizes), reduce.c (the mesh, the new program). Private to ir/.

     %y[i] = nest sum[p: P=3] %x[2*i + p]     x's dim has 2 elements less for every index i that goes; p stays

   A size is a dim of a value, the range of an index, a repeat's trip or the bound of an input's values. Sizes that must
   change together form a group; within it shrink(size) = ratio * shrink(the group's root). */
#ifndef DTC_IR_REDUCE_H
#define DTC_IR_REDUCE_H

#include "ir/ir.h"

typedef struct {
  int64_t num, den; /* > 0, in lowest terms */
} Ratio;

typedef struct {
  int64_t n, low; /* as it is; the least that it may become */
  int64_t step;   /* it shrinks by multiples of this */
  int64_t shrink; /* the answer */
  int parent;     /* itself: a root */
  Ratio ratio;    /* to the parent */
  bool fixed;     /* of a root: nothing in the group shrinks */
} Size;

/* How a mesh axis becomes smaller: the axis is a number of several digits, cut where some part of an axis begins. */
typedef struct {
  int n;
  int64_t was[64], now[64];
} Digits;

/* A way in which the elements of a size are dealt out. */
typedef struct {
  int size;
  const Split *split;
} Dealt;

typedef struct {
  Arena *arena;
  const Mesh *mesh;
  int64_t least; /* elements that every size keeps, if it has them */
  VEC(Size) sizes;
  VEC(Dealt) dealt;
  Digits axis[MAX_AXES];
} Sizes;

/* What an index expression e does with a dim of N elements. Written over at least half of it, both ends keep their
   distance: N shrinks by what e's range shrinks. A short piece stays where it is, counted from the nearer end. */
typedef enum { FIT_LINKED, FIT_START, FIT_END, FIT_PADDED } Fit;

/* reduce_sizes.c */
int size_new(Sizes *s, int64_t n);
void size_link(Sizes *s, int x, int y, Ratio r); /* shrink(x) = r * shrink(y) */
void size_fix(Sizes *s, int x);
int size_root(Sizes *s, int x, Ratio *to); /* shrink(x) = *to * shrink(root) */
void size_least(Sizes *s, int x, int64_t low);
void size_step(Sizes *s, int x, int64_t step);
bool ratio_times(Ratio x, Ratio y, Ratio *out); /* false: too large */
bool ratio_plus(Ratio x, Ratio y, Ratio *out);
/* Chooses how far every group shrinks; -1, or a size whose group cannot keep its pattern on the smaller mesh. */
int sizes_solve(Sizes *s);
/* The granule of a split when the size that it deals out becomes n. */
int64_t size_granule(const Sizes *s, const Split *split, int64_t was_n, int64_t n);

/* reduce_links.c: the sizes of one module. */
typedef struct {
  Sizes *s;
  Module *m;
  int *dim, *window, *content; /* of a value: its first dim, the first dim's window, the bound of its integers or -1 */
  Leaves leaves;
  VEC(int) space; /* per op in order of the walk: its first index (then the trip or the limit) */
} Links;
void links_make(Links *l, Sizes *s, Module *m);
void links_same_names(Links *a, Links *b); /* leaves, values and indices of the same name */
void links_read(Links *l);                 /* what reads say; once all equal sizes are linked */
void links_apply(Links *l);                /* gives the module its new sizes */

#endif
