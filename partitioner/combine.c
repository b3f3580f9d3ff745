/* combine.c: reductions of the same kind over the same axes in the same phase that do not depend on each other become
   one op with several operands, behind the last op that makes one of them and before the first that uses one:

     %g1.1: f32[D] = all_reduce %g1        =>     %g1.1: f32[D], %g2.1: f32[D] = all_reduce %g1, %g2
     %g2.1: f32[D] = all_reduce %g2

   One call costs one wait of all ranks. A bucket ends at 64 MiB, so that large gradients can still be sent while
   others are computed. */
#include "part.h"

static const int64_t BUCKET_BYTES = 64 << 20;

typedef struct {
  Module *m;
  Region *r;
  int *made; /* per value: position of the op that makes it, -1 if none here */
  int *used; /* per value: position of its first use, or the region's end */
} Uses;

static int64_t op_bytes(const Module *m, const Op *op) {
  int64_t n = 0;
  for (int i = 0; i < op->nin; i++) {
    const Type *t = &m->values.at[op->in[i]].type;
    n += type_capacity(t) * dtype_size(t->dtype);
  }
  return n;
}

static void find_uses(Uses *u) {
  for (int v = 0; v < u->m->values.n; v++) u->made[v] = -1, u->used[v] = u->r->ops.n;
  for (int i = u->r->ops.n - 1; i >= 0; i--) {
    const Op *op = u->r->ops.at[i];
    for (int k = 0; k < op->nout; k++) u->made[op->out[k]] = i;
    for (int k = 0; k < op->nin; k++) u->used[op->in[k]] = i;
  }
}

/* Where an op may stand: behind *lo, before *hi. */
static void window(const Uses *u, const Op *op, int *lo, int *hi) {
  for (int k = 0; k < op->nin; k++)
    if (u->made[op->in[k]] > *lo) *lo = u->made[op->in[k]];
  for (int k = 0; k < op->nout; k++)
    if (u->used[op->out[k]] < *hi) *hi = u->used[op->out[k]];
}

static bool alike(const Module *m, const Op *a, const Op *b) {
  if (a->kind != b->kind || a->phase != b->phase) return false;
  const Type *fa = &m->values.at[a->in[0]].type, *fb = &m->values.at[b->in[0]].type;
  const Type *ta = &m->values.at[a->out[0]].type, *tb = &m->values.at[b->out[0]].type;
  if (fa->dtype != fb->dtype || fa->pending.kind != fb->pending.kind) return false;
  Pending pa = move_axes(&m->mesh, fa, ta), pb = move_axes(&m->mesh, fb, tb);
  return pending_equal(&pa, &pb);
}

static bool reduces(const Op *op) { return op->kind == OP_ALL_REDUCE || op->kind == OP_REDUCE_SCATTER; }

static const char *joint_why(Module *m, const Op *a, const Op *b) {
  const char *more = strstr(a->why, "; together with ");
  int n = a->nin + b->nin - 1;
  int keep = more ? (int)(more - a->why) : (int)strlen(a->why);
  return arena_printf(m->arena, "%.*s; together with %d more", keep, a->why, n);
}

/* Joins op j into op i and puts the joint op behind position lo. */
static void join(Uses *u, int i, int j, int lo) {
  Op *a = u->r->ops.at[i], *b = u->r->ops.at[j], *joint = ir_op(u->m, a->kind, a->loc);
  joint->phase = a->phase;
  joint->why = joint_why(u->m, a, b);
  int nin = a->nin + b->nin;
  joint->in = NEW_ARRAY(u->m->arena, ValueId, nin);
  joint->out = NEW_ARRAY(u->m->arena, ValueId, nin);
  joint->nin = joint->nout = nin;
  for (int k = 0; k < nin; k++) {
    const Op *from = k < a->nin ? a : b;
    joint->in[k] = from->in[k < a->nin ? k : k - a->nin];
    joint->out[k] = from->out[k < a->nin ? k : k - a->nin];
    u->m->values.at[joint->out[k]].def = joint;
    u->m->values.at[joint->out[k]].result = k;
  }
  int n = 0;
  Op **old = NEW_ARRAY(u->m->arena, Op *, u->r->ops.n);
  int count = u->r->ops.n;
  memcpy(old, u->r->ops.at, sizeof(Op *) * (size_t)count);
  for (int k = 0; k < count; k++) {
    if (k != i && k != j) u->r->ops.at[n++] = old[k];
    if (k == lo) u->r->ops.at[n++] = joint;
  }
  if (lo < 0) {
    memmove(u->r->ops.at + 1, u->r->ops.at, sizeof(Op *) * (size_t)n++);
    u->r->ops.at[0] = joint;
  }
  u->r->ops.n = n;
}

/* Joins the op at i with the first later one that fits. */
static bool join_next(Uses *u, int i) {
  Op *a = u->r->ops.at[i];
  for (int j = i + 1; j < u->r->ops.n; j++) {
    Op *b = u->r->ops.at[j];
    if (!reduces(b) || !alike(u->m, a, b) || op_bytes(u->m, a) + op_bytes(u->m, b) > BUCKET_BYTES) continue;
    int lo = -1, hi = u->r->ops.n;
    window(u, a, &lo, &hi);
    window(u, b, &lo, &hi);
    if (lo >= hi || lo == i || lo == j) continue;
    join(u, i, j, lo);
    return true;
  }
  return false;
}

static void combine_region(Module *m, Arena *scratch, Region *r) {
  for (int i = 0; i < r->ops.n; i++)
    if (r->ops.at[i]->body_region) combine_region(m, scratch, r->ops.at[i]->body_region);
  Uses u = {m, r, NEW_ARRAY(scratch, int, m->values.n + 1), NEW_ARRAY(scratch, int, m->values.n + 1)};
  find_uses(&u);
  for (int i = 0; i < r->ops.n; i++) {
    if (!reduces(r->ops.at[i]) || !join_next(&u, i)) continue;
    find_uses(&u);
    i = -1; /* the joint op may stand before i, and take more */
  }
}

void part_combine(Module *m, PassContext *cx) {
  (void)cx;
  Arena *scratch = arena_new();
  for (int i = 0; i < m->programs.n; i++) combine_region(m, scratch, m->programs.at[i].body);
  ir_number(m);
  arena_free(scratch);
}
