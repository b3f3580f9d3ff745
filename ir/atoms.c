/* atoms.c: axis parts -> atoms: see atoms.h. */
#include "atoms.h"

enum { MAX_BOUNDS = 66 };
typedef struct {
  int n;
  int64_t at[MAX_BOUNDS];
  bool full;
} Cuts;

static void add_cut(Cuts *c, int64_t x) {
  int i = 0;
  while (i < c->n && c->at[i] < x) i++;
  if (i < c->n && c->at[i] == x) return;
  c->full |= c->n == MAX_BOUNDS;
  if (c->full) return;
  memmove(c->at + i + 1, c->at + i, sizeof *c->at * (size_t)(c->n - i));
  c->at[i] = x;
  c->n++;
}

static void add_cuts(Cuts *cuts, int n, const AxisPart *part) {
  for (int i = 0; i < n; i++) {
    add_cut(&cuts[part[i].axis], part[i].pre);
    add_cut(&cuts[part[i].axis], part[i].pre * part[i].size);
  }
}

static void add_axis(Atoms *x, int axis, int64_t stride, const Cuts *c) {
  int64_t size = x->mesh->axis[axis].size;
  x->coarse[axis] = c->full;
  for (int i = 0; i + 1 < c->n; i++) x->coarse[axis] |= c->at[i + 1] % c->at[i] != 0;
  if (x->coarse[axis]) {
    x->at[x->n++] = (Atom){axis_whole(x->mesh, axis), stride};
    return;
  }
  for (int i = 0; i + 1 < c->n; i++) {
    assert(x->n < MAX_ATOMS && "atoms have two values or more, and a mesh at most 2^62 devices");
    x->at[x->n++] = (Atom){{axis, c->at[i], c->at[i + 1] / c->at[i]}, stride * (size / c->at[i + 1])};
  }
}

void atoms_of(Atoms *x, const Mesh *m, int n, const Type *const *types) {
  Cuts cuts[MAX_AXES];
  x->mesh = m, x->n = 0;
  for (int a = 0; a < m->naxes; a++) {
    cuts[a].n = 0, cuts[a].full = false;
    add_cut(&cuts[a], 1);
    add_cut(&cuts[a], m->axis[a].size);
  }
  for (int i = 0; i < n; i++) {
    for (int d = 0; d < types[i]->rank; d++) add_cuts(cuts, types[i]->dim[d].split.n, types[i]->dim[d].split.part);
    add_cuts(cuts, types[i]->pending.n, types[i]->pending.part);
  }
  int64_t stride = mesh_devices(m);
  for (int a = 0; a < m->naxes; a++) {
    stride /= m->axis[a].size;
    add_axis(x, a, stride, &cuts[a]);
  }
}

bool atom_in(const Atoms *x, int atom, AxisPart p) {
  AxisPart a = x->at[atom].part;
  return a.axis == p.axis && (x->coarse[p.axis] || (a.pre >= p.pre && a.pre * a.size <= p.pre * p.size));
}

uint64_t parts_mask(const Atoms *x, int n, const AxisPart *part) {
  uint64_t mask = 0;
  for (int k = 0; k < n; k++)
    for (int i = 0; i < x->n; i++)
      if (atom_in(x, i, part[k])) mask |= UINT64_C(1) << i;
  return mask;
}

int64_t mask_count(const Atoms *x, uint64_t mask) {
  int64_t n = 1;
  for (int i = 0; i < x->n; i++)
    if (mask >> i & 1) n *= x->at[i].part.size;
  return n;
}

int split_atoms(const Atoms *x, const Split *s, int *out) {
  int n = 0;
  for (int k = 0; k < s->n; k++) {
    if (x->coarse[s->part[k].axis]) return -1;
    for (int i = 0; i < x->n; i++)
      if (atom_in(x, i, s->part[k])) out[n++] = i;
  }
  return n;
}
