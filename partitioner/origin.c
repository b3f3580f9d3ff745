/* origin.c: where the split of each dim of each value came from, and which wishes were not fulfilled, in side arrays by value
   id. propagate fills them while it decides; a later pass that decides otherwise notes that. Explanations read them.

     part_note(cx->origins, v, d, (Origin){.kind = ORIGIN_COST, .why = "chosen by cost: 4096 bytes less than whole"})      */
#include "part.h"

typedef struct {
  Origin dim[MAX_RANK];
  VEC(Unfulfilled) wishes; /* in the order of their dims */
} Row;

struct PartOrigins {
  Arena *arena;
  VEC(Row) rows;
};

PartOrigins *part_origins_new(Arena *a) {
  PartOrigins *o = NEW(a, PartOrigins);
  o->arena = a;
  return o;
}

static Row *row_of(PartOrigins *o, ValueId v) {
  while (o->rows.n <= v) vec_push(o->arena, o->rows, ((Row){0}));
  return &o->rows.at[v];
}

void part_note(PartOrigins *o, ValueId v, int dim, Origin origin) {
  if (o) row_of(o, v)->dim[dim] = origin;
}

void part_note_unfulfilled(PartOrigins *o, Unfulfilled u) {
  if (!o) return;
  Row *r = row_of(o, u.v);
  int at = r->wishes.n;
  for (int i = 0; i < r->wishes.n; i++)
    if (r->wishes.at[i].dim == u.dim && split_equal(&r->wishes.at[i].wanted, &u.wanted)) return;
  vec_push(o->arena, r->wishes, u);
  for (; at > 0 && r->wishes.at[at - 1].dim > u.dim; at--) {
    r->wishes.at[at] = r->wishes.at[at - 1];
    r->wishes.at[at - 1] = u;
  }
}

Origin part_origin(const PartOrigins *o, ValueId v, int dim) { return o && v < o->rows.n ? o->rows.at[v].dim[dim] : (Origin){0}; }

int part_unfulfilled(const PartOrigins *o, ValueId v, int dim, const Unfulfilled **first) {
  int n = 0;
  if (!o || v >= o->rows.n) return 0;
  const Row *r = &o->rows.at[v];
  for (int i = 0; i < r->wishes.n; i++) {
    if (r->wishes.at[i].dim != dim) continue;
    if (n++ == 0) *first = &r->wishes.at[i];
  }
  return n;
}
