/* staging.c: what a GPU needs besides arena and workspace: the staging, where collectives pack what they send and receive it,
   and the workspace of the library of products.

     all_gather f32[10] over 4, 3 elements each      sends 3 * 3 floats, receives 7 of them: 256 + 256 bytes

   One collective moves at a time, so that the largest counts. What NCCL has a form for needs no staging, which is not looked
   at here: the runtime decides that by the layouts of all ranks. */
#include "cg.h"

enum { ROUND = 256, LIBRARY_BYTES = 32 << 20 };

/* Parts that share digits without being the same become the whole axis: digits of a group are counted once. */
static void add_part(const Mesh *m, Pending *p, AxisPart part) {
  int n = 0;
  for (int i = 0; i < p->n; i++) {
    if (part_equal(p->part[i], part)) return;
    if (parts_overlap(p->part[i], part)) part = axis_whole(m, part.axis);
  }
  for (int i = 0; i < p->n; i++)
    if (!parts_overlap(p->part[i], part)) p->part[n++] = p->part[i];
  assert(n < MAX_PARTS && "a mesh has at most MAX_AXES axes, and their parts are merged");
  p->part[n++] = part;
  p->n = n;
}

Pending cg_over(const Module *m, const Op *op) {
  Pending over = {0};
  for (int k = 0; k < op->nin; k++) {
    Pending one = move_axes(&m->mesh, &m->values.at[op->in[k]].type, &m->values.at[op->out[k]].type);
    for (int i = 0; i < one.n; i++) add_part(&m->mesh, &over, one.part[i]);
  }
  return over;
}

static int64_t members(const Pending *p) {
  Split s = {.n = p->n};
  memcpy(s.part, p->part, sizeof s.part);
  return split_count(&s);
}

static int64_t times(int64_t a, int64_t b) {
  int64_t n;
  return checked_mul(a, b, &n) ? n : INT64_MAX / 4;
}

/* Does it end the same pending sums of all buffers, and are these over its whole group? */
static bool is_whole(const Module *m, const Op *op, int64_t group) {
  bool whole = op->kind == OP_ALL_REDUCE;
  for (int k = 0; k < op->nin; k++) {
    const Type *from = &m->values.at[op->in[k]].type, *to = &m->values.at[op->out[k]].type;
    whole = whole && members(&from->pending) == times(group, members(&to->pending));
  }
  return whole;
}

/* The most that a rank sends and receives of buffer k. An all_reduce over the whole group packs its box at most; of others
   that end pending sums, and where the most sent is not known, everyone may send all to everyone. */
static int64_t of_buffer(const Module *m, const Op *op, int k, int64_t group, bool whole) {
  const Type *from = &m->values.at[op->in[k]].type, *to = &m->values.at[op->out[k]].type;
  int64_t all = times(group - 1, cg_bytes(from)), sent = all, received = all;
  if (whole) {
    sent = cg_bytes(from), received = 0;
  } else if (op->kind != OP_ALL_REDUCE) {
    int64_t known = move_sent(&m->mesh, op->kind, from, to);
    sent = known >= 0 ? known : all;
    received = move_bytes(&m->mesh, op->kind, from, to);
  }
  return (sent + ROUND - 1) / ROUND * ROUND + (received + ROUND - 1) / ROUND * ROUND;
}

static int64_t most_in(const Module *m, const Region *r) {
  int64_t most = 0;
  for (int i = 0; i < r->ops.n; i++) {
    const Op *op = r->ops.at[i];
    if (op->body_region) most = max_i64(most, most_in(m, op->body_region));
    if (!op_is_collective(op->kind)) continue;
    Pending over = cg_over(m, op);
    int64_t bytes = 0, group = members(&over);
    bool whole = is_whole(m, op, group);
    for (int k = 0; k < op->nin; k++)
      if (!checked_add(bytes, of_buffer(m, op, k, group, whole), &bytes)) bytes = INT64_MAX / 4;
    most = max_i64(most, bytes);
  }
  return most;
}

int64_t cg_staging_bytes(const Module *m) {
  int64_t most = 0;
  for (int p = 0; p < m->programs.n; p++) most = max_i64(most, most_in(m, m->programs.at[p].body));
  return most;
}

static bool has_product(const Module *m, const Region *r) {
  Product p;
  for (int i = 0; i < r->ops.n; i++) {
    const Op *op = r->ops.at[i];
    if (op->kind == OP_NEST && cg_product(m, op, &p)) return true;
    if (op->body_region && has_product(m, op->body_region)) return true;
  }
  return false;
}

int64_t cg_library_bytes(const Module *m) {
  for (int p = 0; p < m->programs.n; p++)
    if (has_product(m, m->programs.at[p].body)) return LIBRARY_BYTES;
  return 0;
}
