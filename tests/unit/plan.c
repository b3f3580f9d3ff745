// plan.c: every way from one layout to another that the search finds is run by the interpreter on all ranks and gives
// the whole tensor; without pending sums no rank receives more than it lacks.
#include <stdlib.h>
#include <string.h>

#include "pair.h"
#include "unit.h"

static int64_t lacking(const Mesh *m, const Type *from, const Type *to) {
  int64_t most = 0;
  for (int64_t k = 0; k < mesh_devices(m); k++) most = max_i64(most, move_elements(m, from, to, k));
  return most * dtype_size(from->dtype);
}

static void try_pair(int naxes, const int64_t *axes, const int64_t *sizes, unsigned seed, bool pending) {
  Arena *a = arena_new();
  unsigned s = seed;
  Module *m = pair_mesh(a, naxes, axes);
  Type shape = pair_shape(3, sizes), from = pair_random(m, &shape, &s, pending), to = pair_random(m, &shape, &s, false);
  PairRun r = pair_run(m, &from, &to, "bytes");
  if (r.fault) unit_fail(__FILE__, __LINE__, "seed %u: %s\n%s", seed, r.fault, r.text);
  if (!pending && r.received != lacking(&m->mesh, &from, &to))
    unit_fail(__FILE__, __LINE__, "seed %u: received %lld of %lld\n%s", seed, (long long)r.received,
              (long long)lacking(&m->mesh, &from, &to), r.text);
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
  Module *m = pair_mesh(a, 2, (int64_t[]){2, 4});
  Type w = pair_shape(2, (int64_t[]){8, 8}), left = w, right = w, sum = w, both = w, turned = w, both_sums = w;
  AxisPart pa = axis_whole(&m->mesh, 0), pb = axis_whole(&m->mesh, 1);
  double bytes;
  pair_split(&left, 0, pb);
  pair_split(&right, 1, pb);
  pair_split(&both, 0, pa), pair_split(&both, 0, pb);
  pair_split(&turned, 0, pb), pair_split(&turned, 0, pa);
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
  Module *m = pair_mesh(a, 2, (int64_t[]){2, 4});
  Type from = pair_shape(2, (int64_t[]){8, 8}), to = from;
  from.pending = (Pending){.n = 1, .kind = RED_SUM, .part = {axis_whole(&m->mesh, 1)}};
  pair_split(&to, 0, axis_whole(&m->mesh, 0));
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
    Module *m = pair_mesh(a, 4, meshes[seed % 3]);
    Type shape = pair_shape(3, sizes), from = pair_random(m, &shape, &s, false), to = pair_random(m, &shape, &s, false);
    Pending over = move_axes(&m->mesh, &from, &to);
    if (move_most(&m->mesh, &from, &to) * 4 != lacking(&m->mesh, &from, &to))
      unit_fail(__FILE__, __LINE__, "seed %u: %lld elements, not %lld", seed, (long long)move_most(&m->mesh, &from, &to),
                (long long)lacking(&m->mesh, &from, &to) / 4);
    for (int64_t rank = 0; rank < mesh_devices(&m->mesh); rank++)
      if (!found_in_group(&m->mesh, &from, &to, &over, rank)) unit_fail(__FILE__, __LINE__, "seed %u: rank %d", seed, (int)rank);
    arena_free(a);
  }
}

// Elements that some rank of the group wants and none has: ranks that differ from `rank` in the axes `near` only.
static int64_t group_lacks(const Mesh *m, const Type *from, const Type *to, unsigned near, int64_t rank) {
  bool has[512] = {0}, wants[512] = {0};
  int64_t n = type_elements(to), lacks = 0;
  for (int64_t q = 0; q < mesh_devices(m); q++) {
    bool in = true;
    for (int a = 0; a < m->naxes; a++)
      in &= near >> a & 1 || part_coord(m, axis_whole(m, a), q) == part_coord(m, axis_whole(m, a), rank);
    Box have = type_box(m, from, q), want = type_box(m, to, q);
    for (int64_t e = 0; e < n && in; e++) {
      bool h = true, w = true;
      for (int64_t d = to->rank - 1, left = e; d >= 0; left /= to->dim[d--].size) {
        int64_t at = left % to->dim[d].size;
        h &= at >= have.lo[d] && at < have.hi[d], w &= at >= want.lo[d] && at < want.hi[d];
      }
      has[e] |= h, wants[e] |= w;
    }
  }
  for (int64_t e = 0; e < n; e++) lacks += wants[e] && !has[e];
  return lacks;
}

UNIT(what_near_ranks_lack_together_is_what_the_largest_group_at_an_end_lacks) {
  static const int64_t meshes[3][4] = {{2, 2, 2, 1}, {2, 3, 2, 1}, {4, 2, 2, 2}}, sizes[3] = {5, 4, 12};
  for (unsigned seed = 0; seed < 600; seed++) {
    Arena *a = arena_new();
    unsigned s = seed, near = 1 + seed / 3 % 14;
    Module *m = pair_mesh(a, 4, meshes[seed % 3]);
    Type shape = pair_shape(3, sizes), from = pair_random(m, &shape, &s, false), to = pair_random(m, &shape, &s, false);
    int64_t at_ends = 0;
    for (int64_t rank = 0; rank < mesh_devices(&m->mesh); rank++) {
      bool end = true;
      for (int axis = 0; axis < m->mesh.naxes; axis++) {
        int64_t c = part_coord(&m->mesh, axis_whole(&m->mesh, axis), rank), last = m->mesh.axis[axis].size - 1;
        end &= near >> axis & 1 ? c == 0 : c == 0 || c == last;
      }
      if (end) at_ends = max_i64(at_ends, group_lacks(&m->mesh, &from, &to, near, rank));
    }
    if (move_lacking(&m->mesh, &from, &to, near) != at_ends)
      unit_fail(__FILE__, __LINE__, "seed %u: %lld, not %lld", seed, (long long)move_lacking(&m->mesh, &from, &to, near),
                (long long)at_ends);
    arena_free(a);
  }
}

// Where links differ, a way is no dearer than one by a layout in which the minor parts of a dim have been gathered.
UNIT(no_detour_over_better_links_is_missed) {
  Arena *a = arena_new();
  Diags *d = diags_new(a);
  Module *m = pair_mesh(a, 3, (int64_t[]){4, 2, 8});
  Planner *p = plan_new(a, &m->mesh, cluster_find(a, d, &m->mesh, "h100"));
  Type shape = pair_shape(3, (int64_t[]){1024, 96, 4096});
  int shorter = 0;
  for (unsigned seed = 0; seed < 2000; seed++) {
    unsigned s = seed;
    Type from = pair_random(m, &shape, &s, false), to = pair_random(m, &shape, &s, false), on_the_way = from;
    Split *split = &on_the_way.dim[seed % 3].split;
    if (split->n == 0) continue;
    split->n--;
    if (type_capacity(&on_the_way) > max_i64(type_capacity(&from), type_capacity(&to))) continue;
    int layout[3] = {plan_layout(p, &from), plan_layout(p, &on_the_way), plan_layout(p, &to)};
    double whole = plan_price(p, layout[0], layout[2])->seconds, direct;
    double detour = plan_price(p, layout[0], layout[1])->seconds + plan_price(p, layout[1], layout[2])->seconds;
    direct = price_step(&m->mesh, cluster_find(a, d, &m->mesh, "h100"), OP_EXCHANGE, &from, &to).seconds;
    if (whole > detour * (1 + 1e-9)) unit_fail(__FILE__, __LINE__, "seed %u: %g s, the detour %g", seed, whole, detour);
    shorter += detour < direct * (1 - 1e-9);
  }
  CHECK(shorter > 50); // so that the test can fail
  arena_free(a);
}
