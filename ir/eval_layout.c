/* eval_layout.c: ops that change a layout, by their definition: put the value together, contribution by
   contribution, combine those that the result is no longer pending over, and cut each rank's box:

     %y: f32[8@model]{} = reduce_scatter %x: f32[8]{model: sum}     whole = sum over model, then box by box

   A class is a set of ranks with equal coordinates over the operand's pending parts: its ranks hold one
   contribution between them. A result that becomes pending over new parts is held by the ranks whose
   coordinates over those are 0; the others hold the identity.

   Received bytes are counted by the architecture's formulas: 2 (g - 1) / g of the operand for an all-reduce,
   else every element that comes from another rank. */
#include "eval.h"

static const Type *type_of(const EvalRun *r, ValueId v) { return &r->m->values.at[v].type; }

static int64_t class_count(const Pending *p) {
  int64_t n = 1;
  for (int i = 0; i < p->n; i++) n *= p->part[i].size;
  return n;
}

static int64_t class_of(const Mesh *m, const Pending *p, int64_t rank) {
  int64_t c = 0;
  for (int i = 0; i < p->n; i++) c = c * p->part[i].size + part_coord(m, p->part[i], rank);
  return c;
}

/* ---- copying boxes, row by row ---- */

typedef void RowFn(EvalRun *r, Num *held, Num *whole, int64_t n, ScalarFn *fold);

static void copy_in(EvalRun *r, Num *held, Num *whole, int64_t n, ScalarFn *fold) {
  (void)r, (void)fold;
  memcpy(whole, held, sizeof(Num) * (size_t)n);
}
static void copy_out(EvalRun *r, Num *held, Num *whole, int64_t n, ScalarFn *fold) {
  (void)r, (void)fold;
  memcpy(held, whole, sizeof(Num) * (size_t)n);
}
static void fold_out(EvalRun *r, Num *held, Num *whole, int64_t n, ScalarFn *fold) {
  for (int64_t i = 0; i < n; i++) held[i] = fold(&r->d, held[i], whole[i]);
}

static void each_row(EvalRun *r, const Type *t, Held *h, Num *whole, RowFn *f, ScalarFn *fold) {
  if (h->n == 0) return;
  int64_t row = h->rank ? h->size[h->rank - 1] : 1;
  for (int64_t e = 0; e < h->n; e += row) {
    int64_t at = 0;
    for (int k = 0; k < h->rank; k++) at = at * t->dim[k].size + h->lo[k] + e / h->stride[k] % h->size[k];
    f(r, h->at + e, whole + at, row, fold);
  }
}

/* The whole tensor of every class, one after another. */
static Num *contributions(EvalRun *r, ValueId v) {
  const Type *t = type_of(r, v);
  int64_t n = type_elements(t), classes = r->o.ranks ? class_count(&t->pending) : 1;
  Num *all = eval_scratch(r, n * classes), poison = domain_poison(r->d.kind, t->dtype, r->o.seed);
  for (int64_t i = 0; i < n * classes; i++) all[i] = poison;
  for (int rank = 0; rank < r->nranks; rank++) {
    int64_t c = r->o.ranks ? class_of(&r->m->mesh, &t->pending, rank) : 0;
    each_row(r, t, held_of(r, v, rank), all + c * n, copy_in, NULL);
  }
  return all;
}

Tensor held_whole(EvalRun *r, ValueId v) {
  const Type *t = type_of(r, v);
  int64_t n = type_elements(t), classes = r->o.ranks ? class_count(&t->pending) : 1;
  Num *all = contributions(r, v);
  Tensor out = {.rank = t->rank, .at = NEW_ARRAY(r->arena, Num, n + 1)};
  for (int k = 0; k < t->rank; k++) out.size[k] = t->dim[k].size;
  memcpy(out.at, all, sizeof(Num) * (size_t)n);
  ScalarFn *fold = classes > 1 ? domain_reduce(r->d.kind, t->dtype, t->pending.kind) : NULL;
  for (int64_t c = 1; c < classes; c++) fold_out(r, out.at, all + c * n, n, fold);
  return out;
}

/* ---- one rank's result ---- */

static bool covered(const Pending *by, AxisPart q) {
  for (int i = 0; i < by->n; i++)
    if (parts_overlap(by->part[i], q)) return true;
  return false;
}

/* Is rank without a contribution, because the result becomes pending over parts where it is not first? */
static bool holds_identity(const Mesh *m, const Pending *from, const Pending *to, int64_t rank) {
  for (int i = 0; i < to->n; i++)
    if (!covered(from, to->part[i]) && part_coord(m, to->part[i], rank) != 0) return true;
  return false;
}

/* Do `other`'s contributions go into the result of `rank`? They agree on all that stays pending. */
static bool contributes(const Mesh *m, const Pending *from, const Pending *to, int64_t other, int64_t rank) {
  for (int i = 0; i < to->n; i++)
    if (covered(from, to->part[i]) && part_coord(m, to->part[i], other) != part_coord(m, to->part[i], rank)) return false;
  return true;
}

static int64_t overlap(const Held *a, const Held *b) {
  int64_t n = 1;
  for (int k = 0; k < a->rank; k++)
    n *= max_i64(0, min_i64(a->lo[k] + a->size[k], b->lo[k] + b->size[k]) - max_i64(a->lo[k], b->lo[k]));
  return n;
}

static void cut(EvalRun *r, const Op *op, int which, const Num *all, int rank) {
  const Mesh *m = &r->m->mesh;
  const Type *from = type_of(r, op->in[which]), *to = type_of(r, op->out[which]);
  Held *h = held_of(r, op->out[which], rank);
  Reduce kind = from->pending.n ? from->pending.kind : to->pending.kind;
  int64_t n = type_elements(from), classes = class_count(&from->pending), combined = 0, moved = 0;
  bool none = holds_identity(m, &from->pending, &to->pending, rank);
  Num identity = domain_identity(r->d.kind, to->dtype, kind);
  for (int64_t i = 0; i < h->n && none; i++) h->at[i] = identity;
  for (int64_t c = 0; c < classes && !none; c++) {
    int64_t other = 0;
    while (class_of(m, &from->pending, other) != c) other++;
    if (!contributes(m, &from->pending, &to->pending, other, rank)) continue;
    ScalarFn *fold = combined ? domain_reduce(r->d.kind, to->dtype, kind) : NULL;
    each_row(r, to, h, (Num *)all + c * n, fold ? fold_out : copy_out, fold);
    bool own = class_of(m, &from->pending, rank) == c;
    moved += h->n - (own ? overlap(h, held_of(r, op->in[which], rank)) : 0);
    combined++;
  }
  moved *= dtype_size(to->dtype);
  if (op->kind == OP_ALL_REDUCE && combined > 0) moved = 2 * (combined - 1) * h->n * dtype_size(to->dtype) / combined;
  if (op_is_collective(op->kind)) r->received[rank] += moved;
}

/* ---- who sends (the rule is at move_sent) ---- */

/* The rank of the group that has all coordinates 0 in it: ranks of one group have the same. */
static int64_t group_of(const Mesh *m, const Pending *over, int64_t rank) {
  int64_t out = 0;
  for (int x = 0; x < m->naxes; x++) {
    int64_t size = m->axis[x].size, c = part_coord(m, axis_whole(m, x), rank);
    for (int i = 0; i < over->n; i++)
      if (over->part[i].axis == x) c -= part_coord(m, over->part[i], rank) * (size / (over->part[i].pre * over->part[i].size));
    out = out * size + c;
  }
  return out;
}

static bool same_box(const Held *a, const Held *b) { return overlap(a, b) == a->n && a->n == b->n; }

/* group, class: of every rank, the class over the operand's pending parts. */
static void count_sent(EvalRun *r, const Op *op, int which, int rank, const int64_t *group, const int64_t *class) {
  const Mesh *m = &r->m->mesh;
  const Type *from = type_of(r, op->in[which]), *to = type_of(r, op->out[which]);
  const Held *mine = held_of(r, op->in[which], rank);
  int64_t line = 0, replicas = 0, index = 0;
  for (int q = 0; q < r->nranks && mine->n > 0; q++) {
    if (group[q] != group[rank]) continue;
    if (class[q] == class[rank] && same_box(held_of(r, op->in[which], q), mine))
      index += q < rank, replicas++;
    else if (contributes(m, &from->pending, &to->pending, rank, q) && !holds_identity(m, &from->pending, &to->pending, q))
      line += overlap(held_of(r, op->out[which], q), mine);
  }
  if (replicas) r->sent[rank] += (line * (index + 1) / replicas - line * index / replicas) * dtype_size(from->dtype);
}

static void count_sent_by_all(EvalRun *r, const Op *op, int which) {
  const Mesh *m = &r->m->mesh;
  const Type *from = type_of(r, op->in[which]);
  Pending over = move_axes(m, from, type_of(r, op->out[which]));
  int64_t *group = (int64_t *)eval_scratch(r, 2 * r->nranks), *class = group + r->nranks; /* a Num is as large */
  for (int q = 0; q < r->nranks; q++) group[q] = group_of(m, &over, q), class[q] = class_of(m, &from->pending, q);
  for (int rank = 0; rank < r->nranks; rank++) count_sent(r, op, which, rank, group, class);
}

void eval_layout(EvalRun *r, const Op *op) {
  for (int i = 0; i < op->nin; i++) {
    Num *all = contributions(r, op->in[i]);
    for (int rank = 0; r->o.ranks && rank < r->nranks; rank++) {
      int64_t before = r->received[rank];
      cut(r, op, i, all, rank);
      if (op->kind == OP_ALL_REDUCE) r->sent[rank] += r->received[rank] - before;
    }
    if (r->o.ranks && op_is_collective(op->kind) && op->kind != OP_ALL_REDUCE) count_sent_by_all(r, op, i);
    if (!r->o.ranks) memcpy(held_of(r, op->out[i], 0)->at, all, sizeof(Num) * (size_t)type_elements(type_of(r, op->out[i])));
  }
}
