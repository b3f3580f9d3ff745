/* annotate.c: a random mesh and random wishes: leaves get a layout on every dim, some results are pinned on some
   dims. Several axes on one dim, parts of axes, `@ none`, granules and chunks that do not divide all occur:

     mesh m(x = 3, y = 4)      %w1: f32[A=5@(y, x), B=7@none]      %v2[a,b]: f32[A=5, B=7@y(1:2)] = ... */
#include "fuzz.h"

typedef struct {
  int n;
  AxisPart part[MAX_PARTS * 2];
} Parts;

/* What one tensor may use: every axis once, or a 4, 6 or 8 as a major 2 and the rest. */
static Parts all_parts(const Mesh *m, Rng *r) {
  Parts p = {0};
  for (int a = 0; a < m->naxes; a++) {
    int64_t size = m->axis[a].size;
    if (size >= 4 && size % 2 == 0 && rng_percent(r, 30)) {
      p.part[p.n++] = (AxisPart){a, 1, 2};
      p.part[p.n++] = (AxisPart){a, 2, size / 2};
    } else if (size > 1 || rng_percent(r, 30)) {
      p.part[p.n++] = axis_whole(m, a);
    }
  }
  for (int i = p.n - 1; i > 0; i--) {
    int j = rng_below(r, i + 1);
    AxisPart t = p.part[i];
    p.part[i] = p.part[j], p.part[j] = t;
  }
  return p;
}

static void wish(const Mesh *m, Rng *r, Type *t, bool leaf) {
  Parts parts = all_parts(m, r);
  for (int k = 0; k < t->rank; k++) {
    Split s = {.fixed = leaf || rng_percent(r, 60)};
    if (s.fixed && rng_percent(r, 60)) {
      for (int want = rng_percent(r, 75) ? 1 : 2; want > 0 && parts.n > 0; want--) s.part[s.n++] = parts.part[--parts.n];
      if (s.n && rng_percent(r, 8)) s.granule = 2 + rng_below(r, 2);
    }
    t->dim[k].split = s;
  }
}

static void annotate_region(Module *m, Rng *r, const Region *g) {
  for (int i = 0; i < g->ops.n; i++) {
    const Op *op = g->ops.at[i];
    if (op->body_region) annotate_region(m, r, op->body_region);
    OpClass c = op_class(op->kind);
    if (c == CLS_LEAF && op->kind != OP_SETTING) wish(&m->mesh, r, &m->values.at[op->out[0]].type, true);
    if (c == CLS_SPACE && rng_percent(r, 20)) wish(&m->mesh, r, &m->values.at[op->out[0]].type, false);
  }
}

void fuzz_annotate(Module *m, uint64_t seed, int64_t max_devices) {
  static const char *const names[] = {"x", "y", "z", "w"};
  static const int8_t sizes[] = {1, 2, 2, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8};
  Rng r = {random_mix(seed ^ 0x616e6e6f74617465u)};
  m->mesh = (Mesh){.name = "m", .naxes = 1 + rng_below(&r, 4)};
  do
    for (int a = 0; a < m->mesh.naxes; a++) m->mesh.axis[a] = (Axis){names[a], sizes[rng_below(&r, sizeof sizes)]};
  while (mesh_devices(&m->mesh) > max_devices);
  annotate_region(m, &r, m->programs.at[0].body);
}
