/* boxes.c: what the step from one layout to another is called, told by the layouts' parts and, where chunks are uneven,
   by the boxes that ranks hold before and after.

     x[t@model, d] -> x[t, d]         all_gather over model      x[t, d]{model: sum} -> x[t, d]         all_reduce
     x[t@model, d] -> x[t, d@model]   all_to_all over model      x[t, d]{model: sum} -> x[t@model, d]   reduce_scatter
     x[t, d]       -> x[t@model, d]   slice, nothing moves       x[t@(a, b)] -> x[t@(b, a)]             permute

   What is none of these is an exchange: each rank fetches what it lacks, wherever it is. With a window on one side of
   a rank's part one neighbour has it (permute), on both sides two (exchange). */
#include "part.h"

bool pending_has(const Pending *p, AxisPart x) {
  for (int i = 0; i < p->n; i++)
    if (part_equal(p->part[i], x)) return true;
  return false;
}

/* Parts of one axis that follow each other are one: (a(1:2), a(2:2)) is a(1:4). */
static Split joined(const Split *s) {
  Split out = {.granule = s->granule};
  for (int i = 0; i < s->n; i++) {
    AxisPart *last = out.n ? &out.part[out.n - 1] : NULL, p = s->part[i];
    if (last && last->axis == p.axis && last->pre * last->size == p.pre)
      last->size *= p.size;
    else
      out.part[out.n++] = p;
  }
  return out;
}

/* The rest of b behind a, which is a prefix of b; the last part of a may be the major digits of b's. */
static bool rest_behind(const Split *a, const Split *b, Split *rest) {
  *rest = (Split){0};
  if (a->n > b->n) return false;
  int i = 0;
  while (i < a->n && part_equal(a->part[i], b->part[i])) i++;
  if (i < a->n) {
    AxisPart p = a->part[i], q = b->part[i];
    if (i != a->n - 1 || p.axis != q.axis || p.pre != q.pre || q.size % p.size != 0) return false;
    rest->part[rest->n++] = (AxisPart){p.axis, p.pre * p.size, q.size / p.size};
    i++;
  }
  for (; i < b->n; i++) rest->part[rest->n++] = b->part[i];
  return true;
}

/* Every target chunk is put together from whole source chunks of the group. */
static bool is_gather(const Mesh *m, const Type *from, const Type *to) {
  for (int d = 0; d < to->rank; d++) {
    Split a = joined(&from->dim[d].split), b = joined(&to->dim[d].split), rest;
    if (!rest_behind(&b, &a, &rest)) return false;
  }
  return !type_windowed(to) && type_inside(m, from, to);
}

/* Every box of the target is a box of the source: the dims are cut into the same chunks. */
static bool same_grid(const Type *from, const Type *to) {
  for (int d = 0; d < to->rank; d++)
    if (split_capacity(&from->dim[d].split, to->dim[d].size) != split_capacity(&to->dim[d].split, to->dim[d].size)) return false;
  return !type_windowed(to);
}

/* A window that reaches into one neighbour only, the other dims as they were: each rank receives from one other. */
static bool one_neighbour(const Mesh *m, const Type *from, const Type *to) {
  int at = -1;
  for (int d = 0; d < to->rank; d++) {
    if (split_equal(&from->dim[d].split, &to->dim[d].split)) continue;
    if (at >= 0) return false;
    at = d;
  }
  return at >= 0 && move_neighbours(m, &from->dim[at].split, &to->dim[at].split, to->dim[at].size) <= 1;
}

/* Of every dim the same parts but for some at the end, which all leave or all enter; and what leaves some dims enters
   others. So each rank deals out its box in equal pieces. */
static bool is_all_to_all(const Mesh *m, const Type *from, const Type *to) {
  Pending left = {0}, entered = {0}, over = move_axes(m, from, to);
  for (int d = 0; d < to->rank; d++) {
    Split a = joined(&from->dim[d].split), b = joined(&to->dim[d].split), rest;
    bool leaves = rest_behind(&b, &a, &rest);
    if (!leaves && !rest_behind(&a, &b, &rest)) return false;
    Pending *p = leaves ? &left : &entered;
    for (int i = 0; i < rest.n && p->n < MAX_PARTS; i++) p->part[p->n++] = rest.part[i];
  }
  if (left.n == 0 || type_windowed(to)) return false;
  for (int i = 0; i < left.n; i++) {
    bool crossed = false;
    for (int k = 0; k < over.n; k++) crossed |= parts_overlap(over.part[k], left.part[i]);
    if (!crossed) return false;
  }
  int64_t group = 1, leaving = 1;
  for (int i = 0; i < over.n; i++) group *= over.part[i].size;
  for (int i = 0; i < left.n; i++) leaving *= left.part[i].size;
  return pending_equal(&left, &entered) && group == leaving;
}

OpKind plan_kind(const Mesh *m, const Type *from, const Type *to) {
  if (from->pending.n > to->pending.n) {
    bool same = true;
    for (int d = 0; d < to->rank; d++) same &= split_equal(&from->dim[d].split, &to->dim[d].split);
    return same ? OP_ALL_REDUCE : OP_REDUCE_SCATTER;
  }
  if (type_inside(m, to, from)) return OP_SLICE;
  if (is_gather(m, from, to)) return OP_ALL_GATHER;
  if (same_grid(from, to) || (type_windowed(to) && one_neighbour(m, from, to))) return OP_PERMUTE;
  return is_all_to_all(m, from, to) ? OP_ALL_TO_ALL : OP_EXCHANGE;
}
