/* boxes.c: what the step from one layout to another is, told by the boxes that the ranks hold before and after;
   dims that their axes do not divide need no rule of their own.

     x[t@model, d] -> x[t, d]         all_gather over model      x[t, d]{model: sum} -> x[t, d]         all_reduce
     x[t@model, d] -> x[t, d@model]   all_to_all over model      x[t, d]{model: sum} -> x[t@model, d]   reduce_scatter
     x[t, d]       -> x[t@model, d]   slice, nothing moves       x[t@(a, b)] -> x[t@(b, a)]             permute

   What is none of these is an exchange: each rank fetches what it lacks, wherever it is. With a window on one side of
   a rank's part one neighbour has it (permute), on both sides two (exchange). */
#include "part.h"

typedef struct {
  int n;
  AxisPart at[4 * MAX_PARTS];
} Parts;

static bool parts_have(const Parts *s, AxisPart p) {
  for (int i = 0; i < s->n; i++)
    if (part_equal(s->at[i], p)) return true;
  return false;
}

static void parts_add(Parts *s, AxisPart p) {
  if (!parts_have(s, p)) s->at[s->n++] = p;
}

static int64_t box_elements(const Box *b, int rank) {
  int64_t n = 1;
  for (int d = 0; d < rank; d++) n *= b->hi[d] - b->lo[d];
  return n;
}

static int64_t box_common(const Box *a, const Box *b, int rank) {
  int64_t n = 1;
  for (int d = 0; d < rank; d++) n *= max_i64(0, min_i64(a->hi[d], b->hi[d]) - max_i64(a->lo[d], b->lo[d]));
  return n;
}

bool box_inside(const Mesh *m, const Type *inner, const Type *outer) {
  for (int64_t r = 0, n = mesh_devices(m); r < n; r++)
    if (move_elements(m, outer, inner, r)) return false;
  return true;
}

/* The parts in which the layouts differ: of each dim what follows the common major parts, and the sums that end. */
static Parts differing(const Type *from, const Type *to) {
  Parts s = {0};
  for (int d = 0; d < to->rank; d++) {
    const Split *a = &from->dim[d].split, *b = &to->dim[d].split;
    int same = 0;
    bool apart = split_windowed(b) && !split_equal(a, b); /* then chunks do not nest: data crosses all of them */
    while (!apart && same < a->n && same < b->n && part_equal(a->part[same], b->part[same])) same++;
    for (int i = same; i < a->n; i++) parts_add(&s, a->part[i]);
    for (int i = same; i < b->n; i++) parts_add(&s, b->part[i]);
  }
  Parts kept = {0};
  for (int i = 0; i < to->pending.n; i++) parts_add(&kept, to->pending.part[i]);
  for (int i = 0; i < from->pending.n; i++)
    if (!parts_have(&kept, from->pending.part[i])) parts_add(&s, from->pending.part[i]);
  return s;
}

static bool same_group(const Mesh *m, const Parts *over, int64_t a, int64_t b) {
  for (int x = 0; x < m->naxes; x++) {
    AxisPart whole = axis_whole(m, x);
    int64_t ca = part_coord(m, whole, a), cb = part_coord(m, whole, b), left = ca - cb;
    if (left == 0) continue;
    /* Equal outside of the digits in `over`: take those digits off both coordinates. */
    for (int i = 0; i < over->n; i++) {
      AxisPart p = over->at[i];
      if (p.axis == x) left -= (part_coord(m, p, a) - part_coord(m, p, b)) * (whole.size / (p.pre * p.size));
    }
    if (left != 0) return false;
  }
  return true;
}

/* Where chunks are equal they nest: then the differing parts are all that data crosses. */
static bool nests(const Type *from, const Type *to, const Parts *over) {
  Parts s = differing(from, to);
  for (int i = 0; i < s.n; i++)
    if (!parts_have(over, s.at[i])) return false;
  for (int d = 0; d < to->rank; d++)
    if (!split_even(&from->dim[d].split, from->dim[d].size) || !split_even(&to->dim[d].split, to->dim[d].size)) return false;
  return true;
}

/* Can every rank find all it lacks within its group? Boxes of replicas overlap, so elements are counted once per
   distinct box. (More than 64 of them count as not found: then the step is an exchange over more axes, which is right
   as well.) */
static bool covers(const Mesh *m, const Type *from, const Type *to, const Parts *over) {
  if (nests(from, to, over)) return true;
  int64_t n = mesh_devices(m);
  for (int64_t r = 0; r < n; r++) {
    Box want = type_box(m, to, r), seen[64];
    int64_t need = box_elements(&want, to->rank), found = 0;
    int nseen = 0;
    for (int64_t q = 0; q < n && found < need; q++) {
      if (!same_group(m, over, r, q)) continue;
      Box have = type_box(m, from, q);
      bool repeated = false;
      for (int i = 0; i < nseen; i++) repeated |= !memcmp(&seen[i], &have, sizeof have);
      if (repeated) continue;
      if (nseen == 64) return false;
      seen[nseen++] = have;
      found += box_common(&want, &have, to->rank);
    }
    if (found < need) return false;
  }
  return true;
}

static Parts moving(const Mesh *m, const Type *from, const Type *to) {
  Parts s = differing(from, to);
  if (covers(m, from, to, &s)) return s;
  /* Chunks of uneven dims do not nest: data also crosses axes whose place in the layout stays. */
  for (int d = 0; d < to->rank; d++) {
    for (int i = 0; i < from->dim[d].split.n; i++) parts_add(&s, from->dim[d].split.part[i]);
    for (int i = 0; i < to->dim[d].split.n; i++) parts_add(&s, to->dim[d].split.part[i]);
  }
  return s;
}

Pending plan_axes(const Mesh *m, const Type *from, const Type *to) {
  Parts s = moving(m, from, to);
  Pending p = {.kind = RED_NONE};
  for (int axis = 0; axis < m->naxes; axis++) { /* outermost first */
    int first = p.n;
    bool overlap = false;
    for (int i = 0; i < s.n && p.n < MAX_PARTS; i++) {
      if (s.at[i].axis != axis) continue;
      for (int k = first; k < p.n; k++) overlap |= parts_overlap(p.part[k], s.at[i]);
      p.part[p.n++] = s.at[i];
    }
    if (overlap) p.n = first, p.part[p.n++] = axis_whole(m, axis); /* a group counts every device once */
  }
  return p;
}

static bool is_prefix(const Split *a, const Split *b) {
  if (a->n > b->n) return false;
  for (int i = 0; i < a->n; i++)
    if (!part_equal(a->part[i], b->part[i])) return false;
  return true;
}

/* Every target chunk is put together from whole source chunks of the group. */
static bool is_gather(const Mesh *m, const Type *from, const Type *to) {
  for (int d = 0; d < to->rank; d++)
    if (!is_prefix(&to->dim[d].split, &from->dim[d].split)) return false;
  Parts over = differing(from, to);
  return box_inside(m, from, to) && covers(m, from, to, &over);
}

/* Of what is wanted, does `have` alone hold all that `own` lacks? */
static bool one_sends(const Box *want, const Box *own, const Box *have, int64_t lacks, int rank) {
  Box both = *own;
  for (int d = 0; d < rank; d++)
    both.lo[d] = max_i64(own->lo[d], have->lo[d]), both.hi[d] = max_i64(both.lo[d], min_i64(own->hi[d], have->hi[d]));
  return box_common(want, have, rank) - box_common(want, &both, rank) == lacks;
}

/* Each rank receives what it lacks from one other; without windows it then holds what that one held. */
static bool is_permute(const Mesh *m, const Type *from, const Type *to) {
  int64_t n = mesh_devices(m);
  if (n > 64) return false;
  bool windowed = type_windowed(to);
  for (int64_t r = 0; r < n; r++) {
    Box want = type_box(m, to, r);
    int64_t lacks = move_elements(m, from, to, r);
    bool found = windowed && lacks == 0;
    for (int64_t q = 0; q < n && !found; q++) {
      Box have = type_box(m, from, q), own = type_box(m, from, r);
      found = windowed ? one_sends(&want, &own, &have, lacks, to->rank) : !memcmp(&want, &have, sizeof want);
    }
    if (!found) return false;
  }
  return true;
}

/* The axes that leave some dims enter others. */
static bool is_all_to_all(const Mesh *m, const Type *from, const Type *to) {
  Parts left = {0}, entered = {0};
  for (int d = 0; d < to->rank; d++) {
    const Split *a = &from->dim[d].split, *b = &to->dim[d].split;
    for (int i = 0; i < a->n; i++)
      if (!split_uses(b, a->part[i])) parts_add(&left, a->part[i]);
    for (int i = 0; i < b->n; i++)
      if (!split_uses(a, b->part[i])) parts_add(&entered, b->part[i]);
  }
  if (left.n == 0 || left.n != entered.n) return false;
  for (int i = 0; i < left.n; i++)
    if (!parts_have(&entered, left.at[i])) return false;
  return covers(m, from, to, &left);
}

OpKind plan_kind(const Mesh *m, const Type *from, const Type *to) {
  if (from->pending.n > to->pending.n) {
    bool same = true;
    for (int d = 0; d < to->rank; d++) same &= split_equal(&from->dim[d].split, &to->dim[d].split);
    return same ? OP_ALL_REDUCE : OP_REDUCE_SCATTER;
  }
  if (box_inside(m, to, from)) return OP_SLICE;
  bool windowed = type_windowed(to);
  if (!windowed && is_gather(m, from, to)) return OP_ALL_GATHER;
  if (!windowed && is_all_to_all(m, from, to)) return OP_ALL_TO_ALL;
  return is_permute(m, from, to) ? OP_PERMUTE : OP_EXCHANGE;
}
