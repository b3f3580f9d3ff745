// plan.c: every way from one layout to another that the search finds is run by the interpreter on all ranks and gives
// the whole tensor; without pending sums no rank receives more than it lacks.
#include <stdlib.h>
#include <string.h>

#include "ir/ir.h"
#include "partitioner/partitioner.h"
#include "unit.h"

static Module *with_mesh(Arena *a, int n, const int64_t *sizes) {
  static const char *const names[] = {"a", "b", "c", "d"};
  Module *m = ir_module(a);
  m->mesh.name = "m";
  m->mesh.naxes = n;
  for (int i = 0; i < n; i++) m->mesh.axis[i] = (Axis){names[i], sizes[i]};
  m->stage = STAGE_SHARDED;
  return m;
}

static Type whole(int rank, const int64_t *sizes) {
  Type t = {.dtype = F32, .rank = rank};
  for (int d = 0; d < rank; d++) t.dim[d].size = sizes[d];
  return t;
}

static void add_part(Type *t, int d, AxisPart p) { t->dim[d].split.part[t->dim[d].split.n++] = p; }

// Puts each axis on a dim, into the pending sums or nowhere; the order within a dim follows from `seed` too.
static Type random_layout(const Module *m, const Type *shape, unsigned *seed, bool pending) {
  Type t = *shape;
  int first = rand_r(seed) % m->mesh.naxes;
  for (int i = 0; i < m->mesh.naxes; i++) {
    int axis = (first + i) % m->mesh.naxes, place = rand_r(seed) % (t.rank + (pending ? 2 : 1));
    if (place < t.rank) add_part(&t, place, axis_whole(&m->mesh, axis));
    if (place == t.rank + 1) t.pending.kind = RED_SUM, t.pending.part[t.pending.n++] = axis_whole(&m->mesh, axis);
  }
  return t;
}

static IExpr **all_indices(Arena *a, int n) {
  IExpr **ix = NEW_ARRAY(a, IExpr *, n + 1);
  for (int i = 0; i < n; i++) ix[i] = ix_index(a, i);
  return ix;
}

// out[i] = sum over the contributors r of x[i] * (r + 1): a value in layout `from`, each contribution different.
static ValueId source(Module *m, const Type *from) {
  Arena *a = m->arena;
  Region *r = m->programs.at[0].body;
  Type shape = *from;
  for (int d = 0; d < shape.rank; d++) shape.dim[d].split = (Split){0};
  shape.pending = (Pending){0};
  Op *leaf = ir_op(m, OP_PARAM, (Loc){0}), *nest = ir_op(m, OP_NEST, (Loc){0});
  leaf->name = "x";
  leaf->init = INIT_NORMAL;
  leaf->init_a = 1;
  ValueId x = ir_out(m, leaf, "x", shape);
  ir_append(m, r, leaf);
  ir_in(m, nest, x);
  ValueId out = ir_out(m, nest, "p", *from);
  Space *s = &nest->space;
  s->nout = from->rank;
  static const char *const names[] = {"i", "j", "k", "l"};
  for (int d = 0; d < from->rank; d++) s->idx[s->n++] = (Index){names[d], NULL, from->dim[d].size, from->dim[d].split};
  Index each = {"r", NULL, 1, {0}};
  for (int i = 0; i < from->pending.n; i++) {
    each.range *= from->pending.part[i].size;
    each.split.part[each.split.n++] = from->pending.part[i];
  }
  nest->body = ex_read(a, 0, F32, from->rank, all_indices(a, from->rank), NULL);
  if (from->pending.n > 0) {
    IExpr *count = ix_add(a, ix_index(a, s->n), ix_const(a, 1));
    nest->body = ex_2(a, EX_MUL, nest->body, ex_cast(a, F32, ex_index(a, count)));
    nest->reduce = RED_SUM;
    s->idx[s->n++] = each;
  }
  ir_append(m, r, nest);
  return out;
}

static ValueId to_layout(Module *m, ValueId v, const Type *to) {
  Op *op = ir_op(m, OP_RESHARD, (Loc){0});
  op->why = "of the test";
  ir_in(m, op, v);
  ValueId out = ir_out(m, op, "y", *to);
  ir_append(m, m->programs.at[0].body, op);
  return out;
}

static void show(Module *m, ValueId v) {
  Op *op = ir_op(m, OP_TAP, (Loc){0});
  op->tap = TAP_OUTPUT;
  op->name = "y";
  ir_in(m, op, v);
  ir_append(m, m->programs.at[0].body, op);
}

static Tensor run(const Module *m, bool ranks, int64_t *received) {
  const char *why = NULL;
  EvalRun *r = eval_new(m, m->arena, (EvalOptions){.domain = DOMAIN_INT, .ranks = ranks, .seed = 7});
  if (!eval_step(r, &why)) unit_fail(__FILE__, __LINE__, "the interpreter: %s", why);
  if (ranks && !eval_agree(r, &why)) unit_fail(__FILE__, __LINE__, "replicas differ: %s", why);
  for (int64_t k = 0; ranks && k < mesh_devices(&m->mesh); k++) *received = max_i64(*received, eval_received(r, k));
  return eval_tap(r, TAP_OUTPUT, "y");
}

static int64_t lacking(const Mesh *m, const Type *from, const Type *to) {
  int64_t most = 0;
  for (int64_t k = 0; k < mesh_devices(m); k++) most = max_i64(most, move_elements(m, from, to, k));
  return most * dtype_size(from->dtype);
}

static void try_pair(int naxes, const int64_t *axes, const int64_t *sizes, unsigned seed, bool pending) {
  Arena *a = arena_new();
  unsigned s = seed;
  Module *m = with_mesh(a, naxes, axes);
  Type shape = whole(3, sizes), from = random_layout(m, &shape, &s, pending), to = random_layout(m, &shape, &s, false);
  show(m, to_layout(m, source(m, &from), &to));
  ir_number(m);
  Module *w = ir_clone(m, a);
  PassContext cx = {.diags = diags_new(a)};
  part_collect(m, &cx);
  ir_verify(m, "collect", NULL);
  int64_t received = 0;
  Tensor x = run(w, false, NULL), y = run(m, true, &received);
  int64_t n = type_elements(&shape), differ = 0;
  for (int64_t i = 0; i < n; i++) differ += x.at[i].i != y.at[i].i;
  if (differ) unit_fail(__FILE__, __LINE__, "seed %u: %lld elements differ\n%s", seed, (long long)differ, ir_print(m, a));
  if (!pending && received != lacking(&m->mesh, &from, &to))
    unit_fail(__FILE__, __LINE__, "seed %u: received %lld of %lld\n%s", seed, (long long)received,
              (long long)lacking(&m->mesh, &from, &to), ir_print(m, a));
  arena_free(a);
}

UNIT(plans_between_complete_layouts_move_what_is_lacking) {
  for (unsigned seed = 0; seed < 400; seed++) try_pair(3, (int64_t[]){2, 2, 2}, (int64_t[]){4, 8, 8}, seed, false);
}

UNIT(plans_on_uneven_dims_and_empty_shards_move_what_is_lacking) {
  for (unsigned seed = 0; seed < 400; seed++) try_pair(3, (int64_t[]){2, 3, 2}, (int64_t[]){5, 3, 7}, seed, false);
}

UNIT(plans_that_end_sums_give_the_whole) {
  for (unsigned seed = 0; seed < 400; seed++) try_pair(3, (int64_t[]){2, 2, 2}, (int64_t[]){4, 8, 8}, seed, true);
}

UNIT(plans_that_end_sums_on_uneven_dims_give_the_whole) {
  for (unsigned seed = 0; seed < 400; seed++) try_pair(3, (int64_t[]){2, 3, 2}, (int64_t[]){5, 3, 7}, seed, true);
}

// One step between two layouts, in words.
static const char *steps(Arena *a, const Module *m, const Type *from, const Type *to, double *bytes) {
  Planner *p = plan_new(a, &m->mesh, NULL);
  Price price;
  const Plan *plan = plan_find(p, from, to, &price);
  *bytes = price.bytes;
  Str s = {0};
  str_put(a, &s, "");
  for (int i = 0; i < plan->n; i++) str_printf(a, &s, "%s%s", i ? " " : "", op_text(plan->at[i].kind));
  return s.at;
}

UNIT(standard_collectives_have_their_names) {
  Arena *a = arena_new();
  Module *m = with_mesh(a, 2, (int64_t[]){2, 4});
  Type w = whole(2, (int64_t[]){8, 8}), left = w, right = w, sum = w, both = w, turned = w, both_sums = w;
  AxisPart pa = axis_whole(&m->mesh, 0), pb = axis_whole(&m->mesh, 1);
  double bytes;
  add_part(&left, 0, pb);
  add_part(&right, 1, pb);
  add_part(&both, 0, pa), add_part(&both, 0, pb);
  add_part(&turned, 0, pb), add_part(&turned, 0, pa);
  sum.pending = (Pending){.n = 1, .kind = RED_SUM, .part = {pb}};
  both_sums.pending = (Pending){.n = 2, .kind = RED_SUM, .part = {pa, pb}};
  CHECK_STR(steps(a, m, &w, &left, &bytes), "slice");
  CHECK_EQ(bytes, 0);
  CHECK_STR(steps(a, m, &left, &w, &bytes), "all_gather");
  CHECK_EQ(bytes, 48 * 4);
  CHECK_STR(steps(a, m, &left, &right, &bytes), "all_to_all");
  CHECK_EQ(bytes, 12 * 4);
  CHECK_STR(steps(a, m, &both, &turned, &bytes), "permute");
  CHECK_EQ(bytes, 8 * 4);
  CHECK_STR(steps(a, m, &sum, &w, &bytes), "all_reduce");
  CHECK_EQ(bytes, 2 * 3 * 64 / 4 * 4);
  CHECK_STR(steps(a, m, &sum, &left, &bytes), "reduce_scatter");
  CHECK_EQ(bytes, 3 * 16 * 4);
  CHECK_STR(steps(a, m, &both_sums, &both, &bytes), "reduce_scatter");
  CHECK_EQ(bytes, 7 * 8 * 4);
  arena_free(a);
}

// An all-reduce of what a slice leaves is cheaper than one of the whole.
UNIT(sums_end_after_the_slice) {
  Arena *a = arena_new();
  Module *m = with_mesh(a, 2, (int64_t[]){2, 4});
  Type from = whole(2, (int64_t[]){8, 8}), to = from;
  from.pending = (Pending){.n = 1, .kind = RED_SUM, .part = {axis_whole(&m->mesh, 1)}};
  add_part(&to, 0, axis_whole(&m->mesh, 0));
  double bytes;
  CHECK_STR(steps(a, m, &from, &to, &bytes), "slice all_reduce");
  CHECK_EQ(bytes, 2 * 3 * 32 / 4 * 4);
  arena_free(a);
}

// The largest over ranks of what they lack, and the groups, are told without a look at every rank; here every rank is looked at.
static bool found_in_group(const Mesh *m, const Type *from, const Type *to, const Pending *over, int64_t rank) {
  Box want = type_box(m, to, rank);
  int64_t need = 1, found = 0;
  for (int d = 0; d < to->rank; d++) need *= want.hi[d] - want.lo[d];
  for (int64_t q = 0; q < mesh_devices(m); q++) {
    Box have = type_box(m, from, q);
    bool counts = true; // in the group, and the first of its replicas
    for (int64_t axis = 0; axis < m->naxes; axis++) {
      AxisPart p = axis_whole(m, (int)axis);
      bool crossed = false;
      for (int i = 0; i < over->n; i++) crossed |= over->part[i].axis == axis;
      counts &= crossed || part_coord(m, p, q) == part_coord(m, p, rank);
    }
    for (int64_t b = 0; b < q && counts; b++) {
      Box other = type_box(m, from, b);
      bool in = !memcmp(&other, &have, sizeof have);
      for (int axis = 0; axis < m->naxes; axis++) {
        bool crossed = false;
        for (int i = 0; i < over->n; i++) crossed |= over->part[i].axis == axis;
        in &= crossed || part_coord(m, axis_whole(m, axis), b) == part_coord(m, axis_whole(m, axis), rank);
      }
      counts &= !in;
    }
    int64_t common = counts;
    for (int d = 0; d < to->rank; d++) common *= max_i64(0, min_i64(have.hi[d], want.hi[d]) - max_i64(have.lo[d], want.lo[d]));
    found += common;
  }
  return found >= need;
}

UNIT(what_moves_is_told_without_a_look_at_every_rank) {
  static const int64_t meshes[3][4] = {{2, 2, 2, 1}, {2, 3, 2, 1}, {4, 2, 2, 2}}, sizes[3] = {5, 4, 12};
  for (unsigned seed = 0; seed < 600; seed++) {
    Arena *a = arena_new();
    unsigned s = seed;
    Module *m = with_mesh(a, 4, meshes[seed % 3]);
    Type shape = whole(3, sizes), from = random_layout(m, &shape, &s, false), to = random_layout(m, &shape, &s, false);
    Pending over = move_axes(&m->mesh, &from, &to);
    if (move_most(&m->mesh, &from, &to) * 4 != lacking(&m->mesh, &from, &to))
      unit_fail(__FILE__, __LINE__, "seed %u: %lld elements, not %lld", seed, (long long)move_most(&m->mesh, &from, &to),
                (long long)lacking(&m->mesh, &from, &to) / 4);
    for (int64_t rank = 0; rank < mesh_devices(&m->mesh); rank++)
      if (!found_in_group(&m->mesh, &from, &to, &over, rank)) unit_fail(__FILE__, __LINE__, "seed %u: rank %d", seed, (int)rank);
    arena_free(a);
  }
}
