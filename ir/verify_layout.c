/* verify_layout.c: from stage sharded on every op's operands and results agree on how each index is split, and sums
   are pending only where the laws of ir/README.md let them:

     %y[b]{model: sum} = nest sum[d: D=8@model] %x[b,d]       x: f32[B=4, D=8@model]: d's parts are among y's sums
     %z[b]{model: sum} = nest 2.0 * %y[b]                     linear in y, which is pending
     %z[b] = nest exp(%x[b,0])                                x is split where it is read by something else: refused */
#include "verify.h"

static bool has_part(const AxisPart *part, int n, AxisPart p) {
  for (int i = 0; i < n; i++)
    if (part_equal(part[i], p)) return true;
  return false;
}

static bool in_pending(const Type *t, AxisPart p) { return has_part(t->pending.part, t->pending.n, p); }

static bool complete(const Type *t) { return t->pending.n == 0; }

/* ---- one type ------------------------------------------------------------------------------------------------- */

typedef struct {
  AxisPart part[2 * MAX_PARTS * MAX_RANK];
  int n;
} Used;

/* Whose parts they are: a value's, or those of an index of the op's space. Put into words only when needed. */
typedef struct {
  ValueId value; /* -1: */
  int index;
} Owner;

static const char *show_owner(Check *c, Owner o) {
  return o.value >= 0 ? show_value(c, o.value) : arena_printf(c->scratch, "index %s", c->op->space.idx[o.index].name);
}

static bool use_parts(Check *c, Owner o, Used *used, const AxisPart *part, int n) {
  const Mesh *m = &c->m->mesh;
  LAW(c, n >= 0 && n <= MAX_PARTS, "%s is split over %d axes", show_owner(c, o), n);
  for (int i = 0; i < n; i++) {
    AxisPart p = part[i];
    LAW(c, p.axis >= 0 && p.axis < m->naxes, "%s uses axis number %d of a mesh of %d", show_owner(c, o), p.axis, m->naxes);
    const Axis *axis = &m->axis[p.axis];
    LAW(c, p.pre >= 1 && p.size >= 1 && axis->size % ((int64_t)p.pre * p.size) == 0,
        "%s uses a part (%lld:%lld) of axis %s, which has %lld", show_owner(c, o), (long long)p.pre, (long long)p.size,
        axis->name, (long long)axis->size);
    for (int j = 0; j < used->n; j++)
      LAW(c, !parts_overlap(p, used->part[j]), "%s uses axis %s twice", show_owner(c, o), axis->name);
    used->part[used->n++] = p;
  }
  return true;
}

bool check_type_layout(Check *c, ValueId v) {
  const Type *t = type_of(c, v);
  Used used;
  used.n = 0;
  for (int d = 0; d < t->rank; d++) {
    const Split *s = &t->dim[d].split;
    if (!use_parts(c, (Owner){v, 0}, &used, s->part, s->n)) return false;
    LAW(c, s->granule >= 0, "%s has a granule of %lld", show_value(c, v), (long long)s->granule);
    const Window *w = &s->window;
    LAW(c, w->of >= 0 && (w->of == 0 || w->div > 0), "the window of dim %d of %s is none", d, show_value(c, v));
    LAW(c, !s->fixed || c->m->stage == STAGE_ANNOTATED, "dim %d of %s is still a wish of the user", d, show_value(c, v));
  }
  if (!use_parts(c, (Owner){v, 0}, &used, t->pending.part, t->pending.n)) return false;
  const Op *def = value_of(c, v)->def;
  bool may = def && op_class(def->kind) == CLS_LAYOUT && complete(t);
  LAW(c, may || !type_windowed(t), "%s has a window, but only a complete value that a collective makes may have one",
      show_value(c, v));
  bool known = t->pending.kind > RED_NONE && t->pending.kind <= RED_PROD;
  LAW(c, complete(t) || known, "%s is pending, but over no reduction", show_value(c, v));
  return true;
}

/* ---- reads ------------------------------------------------------------------------------------------------------ */

/* The rank's box of the index space; false where it is empty in an index that x uses: then nothing is read. */
static bool space_box(const Check *c, const IExpr *x, int64_t rank, int64_t *lo, int64_t *hi) {
  const Space *s = &c->op->space;
  for (int i = 0; i < s->n; i++) {
    lo[i] = 0, hi[i] = s->idx[i].range;
    if (!ix_uses(x, i)) continue;
    split_range(&c->m->mesh, &s->idx[i].split, s->idx[i].range, rank, &lo[i], &hi[i]);
    if (lo[i] == hi[i]) return false;
  }
  return true;
}

/* What x can be on some rank, cut to the dim, lies inside what that rank holds. Only the axes that occur are looked at. */
static bool reads_what_it_holds(Check *c, ValueId v, int dim, const IExpr *x) {
  const Mesh *m = &c->m->mesh;
  const Dim *d = &type_of(c, v)->dim[dim];
  const Space *s = &c->op->space;
  int single = ix_single(x);
  if (split_whole(&d->split)) return true;
  if (single >= 0 && s->idx[single].range == d->size && split_equal(&s->idx[single].split, &d->split)) return true;
  bool axes[MAX_AXES] = {0};
  split_axes(&d->split, axes);
  for (int i = 0; i < s->n; i++)
    if (ix_uses(x, i)) split_axes(&s->idx[i].split, axes);
  for (int64_t k = 0, n = ranks_along(m, axes); k < n; k++) {
    int64_t rank = rank_along(m, axes, k), lo[MAX_INDEX], hi[MAX_INDEX], min, max, from, to;
    if (!space_box(c, x, rank, lo, hi)) continue;
    ix_range(x, lo, hi, &min, &max);
    min = max_i64(min, 0), max = min_i64(max, d->size - 1);
    split_range(m, &d->split, d->size, rank, &from, &to);
    LAW(c, min > max || (min >= from && max < to),
        "dim %d of %s is split over %s and read by %s: rank %lld reads [%lld, %lld) and holds [%lld, %lld)", dim,
        show_value(c, v), show_parts(c, d->split.part, d->split.n), show_index(c, x), (long long)rank, (long long)min,
        (long long)max + 1, (long long)from, (long long)to);
  }
  return true;
}

static bool index_layout(Check *c, const IExpr *x);

static bool read_layout(Check *c, int operand, int n, IExpr *const *ix, bool table) {
  ValueId v = c->op->in[operand];
  for (int d = 0; d < n; d++) {
    if (!index_layout(c, ix[d])) return false;
    bool row = table && ix_by_value(ix[d]); /* its parts are the result's to sum: pending_layout */
    LAW(c, !row || !split_windowed(&type_of(c, v)->dim[d].split), "the rows of %s have a window", show_value(c, v));
    if (!row && !reads_what_it_holds(c, v, d, ix[d])) return false;
  }
  return true;
}

static bool index_layout(Check *c, const IExpr *x) {
  for (int i = 0; i < x->n; i++) {
    const Term *t = &x->term[i];
    if (t->sub && !index_layout(c, t->sub)) return false;
    if (t->kind == ATOM_VALUE && !read_layout(c, t->operand, t->nat, t->at, false)) return false;
  }
  return true;
}

static bool body_layout(Check *c, const Expr *x, bool table) {
  if (x->op == EX_READ && !read_layout(c, x->operand, x->nix, x->ix, table)) return false;
  if (x->op == EX_INDEX && !index_layout(c, x->ix[0])) return false;
  for (int i = 0; i < 3; i++)
    if (x->arg[i] && !body_layout(c, x->arg[i], false)) return false;
  return !x->otherwise || body_layout(c, x->otherwise, false);
}

/* ---- pending sums ------------------------------------------------------------------------------------------------ */

/* The one read of a gather whose rows may be dealt out: a rank gives 0 for rows that it does not hold. */
static const Expr *table_read(const Op *op) { return op->kind == OP_GATHER && !op->body->otherwise ? op->body : NULL; }

static bool table_has_part(const Check *c, AxisPart p) {
  const Expr *read = table_read(c->op);
  for (int d = 0; read && d < read->nix; d++) {
    const Split *s = &type_of(c, c->op->in[read->operand])->dim[d].split;
    if (ix_by_value(read->ix[d]) && has_part(s->part, s->n, p)) return true;
  }
  return false;
}

/* ---- which indices tell elements of a result apart ------------------------------------------------------------ */

typedef struct {
  int operand, dim, index;
} Meet;

static void meet_read(void *cx, const Expr *read) {
  Meet *m = cx;
  if (read->operand != m->operand) return;
  int i = ix_single(read->ix[m->dim]);
  m->index = m->index == -2 || m->index == i ? i : -1;
}

/* The index at which contributions to dim d of attention_grad's result r are added, or -1. */
static int added_at(const Op *op, int r, int d) {
  if (r < 3) return ix_single(op->read[r]->ix[d]);
  Meet m = {op->wrt[r - 3], d, -2};
  ex_reads(op->body, meet_read, &m);
  return m.index;
}

static bool index_of_result(const Check *c, int r, int index) {
  const Op *op = c->op;
  if (op->kind != OP_ATTENTION_GRAD) return index < op->space.nout;
  const Type *t = type_of(c, op->out[r]);
  const Index *x = &op->space.idx[index];
  for (int d = 0; d < t->rank; d++)
    if (added_at(op, r, d) == index && x->range == t->dim[d].size && split_equal(&x->split, &t->dim[d].split)) return true;
  return false;
}

static Reduce reduction(const Op *op) { return op->kind == OP_NEST && op->reduce != RED_NONE ? op->reduce : RED_SUM; }

/* Which operands are pending over p; the others of the op are complete in p. */
static bool *operands_over(Check *c, AxisPart p, int *n) {
  bool *set = NEW_ARRAY(c->scratch, bool, c->op->nin + 1);
  *n = 0;
  for (int i = 0; i < c->op->nin; i++) *n += set[i] = in_pending(type_of(c, c->op->in[i]), p);
  return set;
}

/* An operand's pending reduction passes this op. */
static bool passes(Check *c, AxisPart p, Reduce kind, const bool *set) {
  const Op *op = c->op;
  const char *over = show_parts(c, &p, 1);
  bool adds = op->kind == OP_NEST || op->kind == OP_GATHER || op->kind == OP_SCATTER_ADD || op->kind == OP_SCAN;
  LAW(c, adds, "%s takes no operand that is pending, as one is over %s", op_text(op->kind), over);
  bool alike = op->reduce == RED_NONE || op->reduce == kind;
  LAW(c, alike, "an operand's %s over %s is pending, the op reduces by %s", REDUCE_TEXT[kind], over, REDUCE_TEXT[op->reduce]);
  if (kind == RED_SUM) {
    LAW(c, ex_linear_in(op->body, set), "the body is not linear in what is a pending sum over %s", over);
    return true;
  }
  bool copies = op->body->op == EX_READ && !op->body->otherwise && set[op->body->operand];
  LAW(c, copies && op->kind == OP_NEST, "a pending %s over %s passes only a body that is one read", REDUCE_TEXT[kind], over);
  return true;
}

/* Each part that operands are pending over: the result is, too, and no index is split over it. */
static bool operand_sums(Check *c) {
  const Op *op = c->op;
  for (int i = 0; i < op->nin; i++) {
    const Type *t = type_of(c, op->in[i]);
    for (int k = 0; k < t->pending.n; k++) {
      AxisPart p = t->pending.part[k];
      const char *name = show_value(c, op->in[i]), *over = show_parts(c, &p, 1);
      const Type *out = type_of(c, op->out[0]);
      LAW(c, in_pending(out, p) && out->pending.kind == t->pending.kind, "%s is a pending %s over %s, the result is not", name,
          REDUCE_TEXT[t->pending.kind], over);
      for (int j = 0; j < op->space.n; j++)
        LAW(c, !split_uses(&op->space.idx[j].split, p), "%s is pending over %s, over which index %s is split", name, over,
            op->space.idx[j].name);
      int n;
      const bool *set = operands_over(c, p, &n);
      if (!passes(c, p, t->pending.kind, set)) return false;
    }
  }
  return true;
}

/* Each index that is split and does not tell elements of a result apart leaves that result pending. */
static bool index_sums(Check *c, int r) {
  const Op *op = c->op;
  const Type *t = type_of(c, op->out[r]);
  for (int i = 0; i < op->space.n; i++) {
    const Split *s = &op->space.idx[i].split;
    for (int k = 0; k < s->n && !index_of_result(c, r, i); k++)
      LAW(c, in_pending(t, s->part[k]) && t->pending.kind == reduction(op),
          "index %s is reduced and split over %s: %s must be a pending %s over it", op->space.idx[i].name,
          show_parts(c, &s->part[k], 1), show_value(c, op->out[r]), REDUCE_TEXT[reduction(op)]);
  }
  const Expr *read = table_read(op);
  for (int d = 0; read && d < read->nix; d++) {
    const Split *s = &type_of(c, op->in[read->operand])->dim[d].split;
    for (int k = 0; k < s->n && ix_by_value(read->ix[d]); k++)
      LAW(c, in_pending(t, s->part[k]) && t->pending.kind == RED_SUM,
          "the rows of %s are split over %s: %s must be a pending sum over it", show_value(c, op->in[read->operand]),
          show_parts(c, &s->part[k], 1), show_value(c, op->out[r]));
  }
  return true;
}

/* And nothing else does. */
static bool no_other_sums(Check *c, int r) {
  const Op *op = c->op;
  const Type *t = type_of(c, op->out[r]);
  for (int k = 0; k < t->pending.n; k++) {
    AxisPart p = t->pending.part[k];
    int operands;
    operands_over(c, p, &operands);
    bool from = operands > 0 || table_has_part(c, p);
    for (int i = 0; i < op->space.n; i++)
      from |= !index_of_result(c, r, i) && has_part(op->space.idx[i].split.part, op->space.idx[i].split.n, p);
    LAW(c, from, "%s is pending over %s, but no operand is and no reduced index is split over it", show_value(c, op->out[r]),
        show_parts(c, &p, 1));
  }
  return true;
}

/* ---- ops ----------------------------------------------------------------------------------------------------------- */

static bool whole(Check *c, int index, const char *why) {
  const Split *s = &c->op->space.idx[index].split;
  LAW(c, s->n == 0, "index %s is split over %s: %s", c->op->space.idx[index].name, show_parts(c, s->part, s->n), why);
  return true;
}

static bool whole_indices(Check *c) {
  const Op *op = c->op;
  const Space *s = &op->space;
  bool attends = op->kind == OP_ATTENTION || op->kind == OP_ATTENTION_GRAD;
  bool selects = op->kind == OP_ARGMAX || op->kind == OP_TOPK;
  int first = s->nout + (op->kind == OP_ATTENTION_GRAD ? op->nkey : 0); /* each rank adds what its keys give */
  for (int i = first; i < s->n && (attends || selects); i++)
    if (!whole(c, i, attends ? "keys and contracted indices are whole" : "what is selected along is whole")) return false;
  if (op->kind == OP_SCAN) return whole(c, op->along, "a scan runs along a whole dim");
  if (op->kind == OP_TOPK) return whole(c, s->nout - 1, "the winners are whole");
  int rows[MAX_INDEX], n = attends ? attention_rows(op, rows) : 0;
  for (int i = 0; i < s->nout && attends; i++) {
    bool row = false;
    for (int j = 0; j < n; j++) row |= rows[j] == i;
    if (!row && !whole(c, i, "an index that only v has is whole")) return false;
  }
  return true;
}

/* Results' dims are split as their indices are. */
static bool result_splits(Check *c, int r) {
  const Op *op = c->op;
  const Type *t = type_of(c, op->out[r]);
  int index[MAX_INDEX], n = text_result_indices(op, r, index);
  for (int d = 0; d < n; d++) {
    const Index *x = &op->space.idx[index[d]];
    LAW(c, split_equal(&x->split, &t->dim[d].split), "dim %d of %s is split over %s, its index %s over %s", d,
        show_value(c, op->out[r]), show_parts(c, t->dim[d].split.part, t->dim[d].split.n), x->name,
        show_parts(c, x->split.part, x->split.n));
  }
  if (op->kind != OP_ATTENTION_GRAD) return true;
  for (int d = 0; d < t->rank; d++) {
    const Split *split = &t->dim[d].split;
    int i = added_at(op, r, d);
    bool own = i >= 0 && op->space.idx[i].range == t->dim[d].size && split_equal(&op->space.idx[i].split, split);
    LAW(c, split->n == 0 || own, "dim %d of %s is split over %s, but no index that is split alike is added at", d,
        show_value(c, op->out[r]), show_parts(c, split->part, split->n));
  }
  return true;
}

static bool space_layout(Check *c) {
  const Op *op = c->op;
  Used used;
  used.n = 0;
  for (int i = 0; i < op->space.n; i++) {
    const Split *x = &op->space.idx[i].split;
    if (!use_parts(c, (Owner){-1, i}, &used, x->part, x->n)) return false;
    LAW(c, !split_windowed(x), "index %s has a window", op->space.idx[i].name);
  }
  for (int r = 0; r < op->nout; r++)
    if (!result_splits(c, r)) return false;
  if (!whole_indices(c)) return false;
  if (op->body && !body_layout(c, op->body, table_read(op) != NULL)) return false;
  for (int i = 0; i < op_reads(op); i++)
    if (!body_layout(c, op->read[i], false)) return false;
  for (int d = 0; op->into && d < op->space.nout; d++)
    if (!index_layout(c, op->into[d])) return false;
  if (!operand_sums(c)) return false;
  for (int r = 0; r < op->nout; r++)
    if (!index_sums(c, r) || !no_other_sums(c, r)) return false;
  return true;
}

static bool same_layout(Check *c, ValueId x, ValueId y) {
  LAW(c, sharding_equal(type_of(c, x), type_of(c, y)), "%s, %s, and %s, %s, must be laid out alike", show_value(c, x),
      show_type(c, type_of(c, x)), show_value(c, y), show_type(c, type_of(c, y)));
  return true;
}

static bool stacked_layout(Check *c, ValueId all, ValueId slice) {
  const Type *w = type_of(c, all), *s = type_of(c, slice);
  bool same = pending_equal(&w->pending, &s->pending);
  for (int d = 0; d < s->rank; d++) same &= split_equal(&w->dim[d + 1].split, &s->dim[d].split);
  LAW(c, w->dim[0].split.n == 0, "dim 0 of %s runs over the repetitions and is never split", show_value(c, all));
  LAW(c, same, "%s, %s, and its slice %s, %s, must be laid out alike", show_value(c, all), show_type(c, w), show_value(c, slice),
      show_type(c, s));
  return true;
}

static bool repeat_layout(Check *c) {
  const Op *op = c->op;
  const Region *b = op->body_region;
  for (int i = 0; i < op->nin; i++) {
    bool slice = i >= op->ncarried + op->ninvariant;
    if (slice ? !stacked_layout(c, op->in[i], b->args.at[1 + i]) : !same_layout(c, op->in[i], b->args.at[1 + i])) return false;
  }
  for (int i = 0; i < op->nout; i++) {
    bool ok = i < op->ncarried ? same_layout(c, op->out[i], op->in[i]) && same_layout(c, b->yields.at[i], op->in[i])
                               : stacked_layout(c, op->out[i], b->yields.at[i]);
    if (!ok) return false;
  }
  return true;
}

/* On every rank, inner's box lies inside outer's. Ranks are looked at one by one only where type_inside does not see it. */
static bool inside(const Mesh *m, const Type *inner, const Type *outer) {
  if (type_inside(m, inner, outer)) return true;
  for (int64_t r = 0, n = mesh_devices(m); r < n; r++)
    if (move_elements(m, outer, inner, r)) return false;
  return true;
}

static bool fits_kind(const Check *c, const Type *from, const Type *to) {
  const Mesh *m = &c->m->mesh;
  bool ends = to->pending.n < from->pending.n, same_dims = true;
  for (int d = 0; d < to->rank; d++) same_dims &= split_equal(&from->dim[d].split, &to->dim[d].split);
  switch (c->op->kind) {
  case OP_ALL_REDUCE: return ends && same_dims;
  case OP_REDUCE_SCATTER: return ends && inside(m, to, from);
  case OP_SLICE: return !ends && inside(m, to, from);
  case OP_ALL_GATHER: return !ends && inside(m, from, to);
  case OP_ALL_TO_ALL:
  case OP_PERMUTE:
  case OP_SEND:
  case OP_RECV: return !ends;
  default: return true;
  }
}

static bool change_of_layout(Check *c) {
  const Op *op = c->op;
  for (int i = 0; i < op->nin; i++) {
    const Type *from = type_of(c, op->in[i]), *to = type_of(c, op->out[i]);
    LAW(c, !type_windowed(from), "%s has a window: no collective starts from it", show_value(c, op->in[i]));
    for (int k = 0; k < to->pending.n; k++)
      LAW(c, in_pending(from, to->pending.part[k]) && from->pending.kind == to->pending.kind,
          "%s becomes pending over %s: %s cannot do that", show_value(c, op->out[i]), show_parts(c, &to->pending.part[k], 1),
          op_text(op->kind));
    LAW(c, fits_kind(c, from, to), "%s does not lead from %s to %s", op_text(op->kind), show_type(c, from), show_type(c, to));
  }
  return true;
}

bool check_layout(Check *c) {
  const Op *op = c->op;
  switch (op_class(op->kind)) {
  case CLS_SPACE: return space_layout(c);
  case CLS_REGION: return repeat_layout(c);
  case CLS_LAYOUT: return change_of_layout(c);
  case CLS_LEAF: LAW(c, complete(type_of(c, op->out[0])), "a leaf is complete"); return true;
  case CLS_EFFECT: break;
  }
  if (op->kind == OP_WAIT) return true;
  for (int i = 0; i < op->nin; i++) {
    LAW(c, complete(type_of(c, op->in[i])), "%s is pending: what leaves the program is complete", show_value(c, op->in[i]));
    LAW(c, !type_windowed(type_of(c, op->in[i])), "%s has a window: it is for its consumers only", show_value(c, op->in[i]));
  }
  return op->kind != OP_UPDATE || same_layout(c, op->in[0], op->in[1]);
}
