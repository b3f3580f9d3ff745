/* atoms.h: the axis parts of several layouts, cut into digits of a rank's number, such that every part is a product of whole
   digits:

     a = 8 split as a(1:4) here and as a(1:2) there   ->   atoms of 2, 2 and 2                                          */
#ifndef DTC_ATOMS_H
#define DTC_ATOMS_H

#include "ir/ir.h"

enum { MAX_ATOMS = 64 };

typedef struct {
  AxisPart part;
  int64_t step; /* what its digit counts in a rank's number */
} Atom;

typedef struct {
  const Mesh *mesh;
  int n;
  Atom at[MAX_ATOMS];    /* outermost first; of an axis the major digits first; none of size 1 */
  bool coarse[MAX_AXES]; /* its parts have no common digits (halves and thirds): the axis is one atom */
} Atoms;

void atoms_of(Atoms *x, const Mesh *m, int n, const Type *const *types);
bool atom_in(const Atoms *x, int atom, AxisPart p);

/* Masks: bit i is atom i. */
uint64_t parts_mask(const Atoms *x, int n, const AxisPart *part);
int64_t mask_count(const Atoms *x, uint64_t mask); /* the product of their sizes */
/* The split's atoms, major to minor; -1 where a part is of a coarse axis. */
int split_atoms(const Atoms *x, const Split *s, int *out);
static inline uint64_t split_mask(const Atoms *x, const Split *s) { return parts_mask(x, s->n, s->part); }

/* Walks the ranks that differ from the first one in the atoms of a mask. */
typedef struct {
  int n;
  int64_t size[MAX_ATOMS], step[MAX_ATOMS], digit[MAX_ATOMS], rank;
} Walk;

static inline void walk_start(Walk *w, const Atoms *x, uint64_t mask, int64_t rank) {
  w->n = 0, w->rank = rank;
  for (int i = 0; i < x->n; i++) {
    if (!(mask >> i & 1)) continue;
    w->size[w->n] = x->at[i].part.size, w->step[w->n] = x->at[i].step, w->digit[w->n] = 0;
    w->rank -= part_coord(x->mesh, x->at[i].part, rank) * x->at[i].step;
    w->n++;
  }
}

static inline bool walk_next(Walk *w) {
  for (int i = w->n - 1; i >= 0; i--) {
    w->rank += w->step[i];
    if (++w->digit[i] < w->size[i]) return true;
    w->rank -= w->step[i] * w->size[i];
    w->digit[i] = 0;
  }
  return false;
}

#endif
