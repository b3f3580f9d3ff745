/* places.c: Module.buffers says where values lie when every repeat is at its counter 0; a place adds how that moves
   with the counters of the repeats around it. Of a repeat over %l with a stacked operand %w at 4096, slices of 512:

     the body's argument %w1 lies at 4096 + l * 512; a result that the body writes into its slice likewise.        */
#include "cg.h"

typedef struct {
  const Module *m;
  Place *place;
  int settings;
} Placing;

static Place moved(Place p, ValueId counter, int64_t stride) {
  if (p.kind != PLACE_ARENA) return p;
  if (p.n == MAX_DEPTH) internal_error("repeats nested more than %d deep", MAX_DEPTH);
  p.counter[p.n] = counter;
  p.stride[p.n++] = stride;
  return p;
}

static Place fixed(const Module *m, ValueId v) {
  if (m->buffers[v].offset < 0) return (Place){0};
  return (Place){.kind = PLACE_ARENA, .offset = m->buffers[v].offset};
}

static void place_region(Placing *p, const Region *r);

static void place_repeat(Placing *p, const Op *op) {
  const Region *body = op->body_region;
  ValueId counter = body->args.at[0];
  p->place[counter] = (Place){.kind = PLACE_COUNTER};
  for (int i = 0; i < op->nin; i++) {
    ValueId arg = body->args.at[1 + i];
    if (i < op->ncarried)
      p->place[arg] = p->place[op->out[i]];
    else if (i < op->ncarried + op->ninvariant)
      p->place[arg] = p->place[op->in[i]];
    else
      p->place[arg] = moved(p->place[op->in[i]], counter, cg_bytes(&p->m->values.at[arg].type));
  }
  place_region(p, body);
}

/* What the body writes directly into its slice of a stacked result. */
static void place_slices(Placing *p, const Region *body) {
  const Op *op = body->parent;
  for (int i = op->ncarried; i < op->nout; i++) {
    ValueId y = body->yields.at[i];
    if (p->m->values.at[y].def && p->m->buffers[y].offset == p->m->buffers[op->out[i]].offset)
      p->place[y] = moved(p->place[op->out[i]], body->args.at[0], cg_bytes(&p->m->values.at[y].type));
  }
}

static void place_region(Placing *p, const Region *r) {
  for (int i = 0; i < r->ops.n; i++) {
    const Op *op = r->ops.at[i];
    for (int k = 0; k < op->nout; k++) p->place[op->out[k]] = fixed(p->m, op->out[k]);
    if (op->kind == OP_SETTING) p->place[op->out[0]] = (Place){.kind = PLACE_SETTING, .setting = p->settings++};
  }
  if (r->parent) place_slices(p, r);
  for (int i = 0; i < r->ops.n; i++)
    if (r->ops.at[i]->kind == OP_REPEAT) place_repeat(p, r->ops.at[i]);
}

Place *cg_places(const Module *m, Arena *a) {
  Placing p = {m, NEW_ARRAY(a, Place, m->values.n + 1), 0};
  for (int i = 0; i < m->programs.n; i++) place_region(&p, m->programs.at[i].body);
  return p.place;
}

bool cg_same_place(const Place *a, const Place *b) {
  if (a->kind != b->kind || a->offset != b->offset || a->n != b->n || a->setting != b->setting) return false;
  for (int i = 0; i < a->n; i++)
    if (a->counter[i] != b->counter[i] || a->stride[i] != b->stride[i]) return false;
  return true;
}
