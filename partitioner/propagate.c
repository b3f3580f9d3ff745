/* propagate.c: every value gets a sharding. What the user wrote is fixed; it spreads along factors (dims that are the
   same index of an op) into dims that are still open, forward and backward, through repeats too, until nothing
   changes:

     %x[b@data, d], param %w[d, f@model], %y[b, f] = nest sum[d] %x[b,d] * %w[d,f]     =>  %y[b@data, f@model]

   A dim that is read by an index expression suggests how those indices are split, and they how the dim is (reads.c):

     %x[b, h@model, k], %y[b, d] = nest %x[b, d // 64, d % 64]                      =>  %y[b, d@model granule 64]

   An axis stands once in a value, so wishes clash; who spreads first wins: the layout of inputs (the batch), then of
   parameters and what is laid out as they are, then pins on computed tensors (so that with the residual stream pinned
   t@model the products keep the layout of their weights). Within one of these, the order of the program decides.
   `@none` is a wish as well, but does not spread. A split dim that is not `fixed` afterwards was decided here. */
#include "part.h"

enum { BY_INPUT, BY_PARAM, BY_PIN, NWISHES };

typedef struct {
  Module *m;
  Arena *scratch;
  Factors **factors;         /* by op->order, which numbers all ops of the module here */
  uint8_t (*wish)[MAX_RANK]; /* whose wish a value's dim follows */
  int level;
  bool changed;
  PartOrigins *origins; /* or NULL */
} Spread;

/* A dim of a value. */
typedef struct {
  ValueId v;
  int d;
  bool result; /* of the op that ties it, not an operand */
} Place;

static Dim *dim_at(Spread *s, Place p) { return &s->m->values.at[p.v].type.dim[p.d]; }

static bool spreads(Spread *s, Place p) { return dim_at(s, p)->split.n > 0 && s->wish[p.v][p.d] <= s->level; }

static void fill(Spread *s, Place from, Place to, const Op *via) {
  Dim *source = dim_at(s, from), *open = dim_at(s, to);
  if (open->split.fixed || open->split.n > 0 || open->size != source->size) return;
  const Type *t = &s->m->values.at[to.v].type;
  for (int i = 0; i < source->split.n; i++)
    if (type_uses(t, source->split.part[i])) return;
  open->split = source->split;
  open->split.fixed = false;
  s->wish[to.v][to.d] = s->wish[from.v][from.d];
  part_note(s->origins, to.v, to.d, (Origin){ORIGIN_SPREAD, from.result && !to.result, from.v, from.d, via, NULL});
  s->changed = true;
}

/* All these places are one factor: the first that may spread fills the open ones. */
static void tie(Spread *s, int n, const Place *p, const Op *via) {
  int best = -1;
  for (int i = 0; i < n; i++)
    if (spreads(s, p[i]) && (best < 0 || s->wish[p[i].v][p[i].d] < s->wish[p[best].v][p[best].d])) best = i;
  if (best < 0) return;
  for (int i = 0; i < n; i++)
    if (i != best) fill(s, p[best], p[i], via);
  for (int i = 0; s->origins && s->level == NWISHES && i < n; i++) {
    const Split *wanted = &dim_at(s, p[best])->split;
    if (split_equal(wanted, &dim_at(s, p[i])->split)) continue;
    part_note_unfulfilled(s->origins, (Unfulfilled){p[i].v, p[best].v, p[i].d, p[best].d, via, *wanted});
  }
}

static void tie_values(Spread *s, int n, const ValueId *v, const int *shift, const Op *via) {
  const Type *t = &s->m->values.at[v[0]].type;
  for (int d = 0; d < t->rank - shift[0]; d++) {
    Place p[4];
    for (int i = 0; i < n; i++) p[i] = (Place){v[i], d + shift[i], i > n / 2};
    tie(s, n, p, via);
  }
}

static void spread_space(Spread *s, const Op *op) {
  const Factors *f = s->factors[op->order];
  Place *p = NEW_ARRAY(s->scratch, Place, (op->nin + op->nout) * MAX_RANK);
  for (int i = 0; i < op->space.n; i++) {
    if (!f->splits[i]) continue;
    int n = 0;
    for (int o = 0; o < op->nin; o++)
      for (int d = 0; d < s->m->values.at[op->in[o]].type.rank; d++)
        if (f->in[o].index[d] == i) p[n++] = (Place){op->in[o], d, false};
    for (int o = 0; o < op->nout; o++)
      for (int d = 0; d < s->m->values.at[op->out[o]].type.rank; d++)
        if (f->out[o].index[d] == i) p[n++] = (Place){op->out[o], d, true};
    if (n > 1) tie(s, n, p, op);
  }
}

/* ---- dims that are read in some other way than by one index -------------------------------------------------------- */

/* Fills an open dim with a split that another dim's suggests: parts in their order, whole units kept together. */
static void suggest(Spread *s, Place from, Place to, const Split *split, const Op *via) {
  Dim *open = dim_at(s, to);
  if (split->n == 0 || open->split.fixed || open->split.n > 0 || open->size < split_count(split)) return;
  const Type *t = &s->m->values.at[to.v].type;
  for (int i = 0; i < split->n; i++)
    if (type_uses(t, split->part[i])) return;
  open->split = *split;
  s->wish[to.v][to.d] = s->wish[from.v][from.d];
  part_note(s->origins, to.v, to.d, (Origin){ORIGIN_SPREAD, from.result && !to.result, from.v, from.d, via, NULL});
  s->changed = true;
}

/* The first place whose dim is index i of the op, of those that spread at present. */
static bool spreading(Spread *s, const Op *op, int i, Place *p) {
  const Factors *f = s->factors[op->order];
  for (int o = -op->nout; o < op->nin; o++) {
    ValueId v = o < 0 ? op->out[o + op->nout] : op->in[o];
    const int *index = o < 0 ? f->out[o + op->nout].index : f->in[o].index;
    for (int d = 0; d < s->m->values.at[v].type.rank; d++) {
      *p = (Place){v, d, o < 0};
      if (index[d] == i && spreads(s, *p)) return true;
    }
  }
  return false;
}

/* Reads of less than half of the dim say little about how the rest should lie. */
static bool reads_most(const Op *op, const OperandFactors *f, int d, int64_t size) {
  int64_t lo = size, hi = -1;
  for (int i = 0; i < f->nreads[d]; i++) {
    int64_t from, to;
    ix_bounds(f->read[d][i], &op->space, &from, &to);
    lo = min_i64(lo, max_i64(from, 0)), hi = max_i64(hi, min_i64(to, size - 1));
  }
  return hi - lo + 1 >= size / 2;
}

/* The dim's split says how the indices that it is read by are best split. */
static void suggest_indices(Spread *s, const Op *op, const OperandFactors *of, Place dim) {
  const Factors *f = s->factors[op->order];
  Split carried[MAX_INDEX];
  part_carry(op, of, &s->m->values.at[dim.v].type, dim.d, carried);
  for (int i = 0; i < op->space.n; i++) {
    if (carried[i].n == 0 || !f->splits[i]) continue;
    for (int o = 0; o < op->nout; o++)
      for (int d = 0; d < s->m->values.at[op->out[o]].type.rank; d++)
        if (f->out[o].index[d] == i) suggest(s, dim, (Place){op->out[o], d, true}, &carried[i], op);
    for (int o = 0; o < op->nin; o++)
      for (int d = 0; d < s->m->values.at[op->in[o]].type.rank; d++)
        if (f->in[o].index[d] == i) suggest(s, dim, (Place){op->in[o], d, false}, &carried[i], op);
  }
}

/* And the splits of the indices, what the dim's would be. */
static void suggest_dim(Spread *s, const Op *op, const OperandFactors *of, Place dim) {
  Split index[MAX_INDEX] = {0};
  Place from = dim, p;
  for (int i = 0; i < op->space.n; i++)
    if (spreading(s, op, i, &p)) index[i] = dim_at(s, p)->split, index[i].fixed = false, from = p;
  if (from.v == dim.v && from.d == dim.d) return;
  Split need = part_read_split(of->nreads[dim.d], of->read[dim.d], &op->space, index, dim_at(s, dim)->size);
  if (split_windowed(&need)) need.granule = 0;
  need.window = (Window){0};
  suggest(s, from, dim, &need, op);
}

static void spread_reads(Spread *s, const Op *op) {
  const Factors *f = s->factors[op->order];
  for (int o = 0; o < op->nin; o++) {
    const Type *t = &s->m->values.at[op->in[o]].type;
    for (int d = 0; d < t->rank; d++) {
      const OperandFactors *of = &f->in[o];
      Place p = {op->in[o], d, false};
      if (of->index[d] != NO_FACTOR || of->nreads[d] == 0 || !reads_most(op, of, d, t->dim[d].size)) continue;
      if (spreads(s, p))
        suggest_indices(s, op, of, p);
      else
        suggest_dim(s, op, of, p);
    }
  }
}

/* Carried: init, argument, yield, result. Invariant: operand, argument. Stacked: dim 0 stays whole, the others are
   those of the slice. */
static void spread_repeat(Spread *s, const Op *op) {
  const Region *r = op->body_region;
  for (int i = 0; i < op->ncarried; i++)
    tie_values(s, 4, (ValueId[]){r->args.at[1 + i], op->in[i], r->yields.at[i], op->out[i]}, (int[]){0, 0, 0, 0}, op);
  for (int i = op->ncarried; i < op->nin; i++) {
    int shift = i >= op->ncarried + op->ninvariant;
    tie_values(s, 2, (ValueId[]){op->in[i], r->args.at[1 + i]}, (int[]){shift, 0}, op);
  }
  for (int i = op->ncarried; i < op->nout; i++) tie_values(s, 2, (ValueId[]){op->out[i], r->yields.at[i]}, (int[]){1, 0}, op);
}

static void spread_op(Spread *s, const Op *op) {
  if (op_class(op->kind) == CLS_SPACE) spread_space(s, op), spread_reads(s, op);
  if (op->kind == OP_REPEAT) spread_repeat(s, op);
  if (op->kind == OP_UPDATE) tie_values(s, 2, op->in, (int[]){0, 0}, op);
}

static void spread_region(Spread *s, const Region *r, bool forward) {
  for (int i = 0; i < r->ops.n; i++) {
    const Op *op = r->ops.at[forward ? i : r->ops.n - 1 - i];
    if (forward) spread_op(s, op);
    if (op->body_region) spread_region(s, op->body_region, forward);
    spread_op(s, op);
  }
}

/* Over an axis of one device nothing is split. */
static void drop_single_parts(Type *t) {
  for (int d = 0; d < t->rank; d++) {
    Split *s = &t->dim[d].split;
    int n = 0;
    for (int i = 0; i < s->n; i++)
      if (s->part[i].size > 1) s->part[n++] = s->part[i];
    s->n = n;
  }
}

/* What the user wrote; what is laid out as a parameter is its gradient or state. */
static void note_fixed(Spread *s, ValueId v) {
  const Type *t = &s->m->values.at[v].type;
  for (int d = 0; d < t->rank; d++)
    if (t->dim[d].split.fixed) part_note(s->origins, v, d, (Origin){.kind = ORIGIN_USER, .from = v, .dim = d});
}

/* ---- set-up ------------------------------------------------------------------------------------------ */

static void prepare_op(void *cx, Region *r, Op *op, int64_t times) {
  (void)r, (void)times;
  Spread *s = cx;
  if (op_class(op->kind) == CLS_SPACE) s->factors[op->order] = part_factors(s->m, op, s->scratch);
  int wish = op->kind == OP_INPUT ? BY_INPUT : op_class(op->kind) == CLS_LEAF ? BY_PARAM : BY_PIN;
  for (int o = 0; o < op->nout; o++) memset(s->wish[op->out[o]], wish, MAX_RANK);
  for (int i = op->ncarried; i < op->nin && op->body_region; i++) { /* what a loop hands on of an input or a parameter */
    const Op *leaf = s->m->values.at[op->in[i]].def;
    if (leaf && op_class(leaf->kind) == CLS_LEAF) memcpy(s->wish[op->body_region->args.at[1 + i]], s->wish[op->in[i]], MAX_RANK);
  }
}

/* Gradients and moments are pinned as their parameter and so are its wish. */
static void prepare_update(void *cx, Region *r, Op *op, int64_t times) {
  (void)r, (void)times;
  Spread *s = cx;
  if (op->kind == OP_TAP && op->tap == TAP_GRAD) memset(s->wish[op->in[0]], BY_PARAM, MAX_RANK);
  if (op->kind == OP_UPDATE) memset(s->wish[op->in[1]], BY_PARAM, MAX_RANK);
}

void part_propagate(Module *m, PassContext *cx) {
  Spread s = {.m = m, .scratch = arena_new(), .origins = cx->origins};
  s.wish = arena_alloc(s.scratch, size_mul(sizeof *s.wish, (size_t)m->values.n + 1));
  memset(s.wish, BY_PIN, sizeof *s.wish * (size_t)m->values.n);
  for (int v = 0; v < m->values.n; v++) drop_single_parts(&m->values.at[v].type);
  for (int v = 0; v < m->values.n; v++) note_fixed(&s, v);
  s.factors = NEW_ARRAY(s.scratch, Factors *, part_number(m) + 1);
  for (int i = 0; i < m->programs.n; i++) part_visit(m->programs.at[i].body, 1, prepare_op, &s);
  for (int i = 0; i < m->programs.n; i++) part_visit(m->programs.at[i].body, 1, prepare_update, &s);
  for (s.level = 0; s.level < NWISHES; s.level++) do {
      s.changed = false;
      for (int i = 0; i < m->programs.n; i++) spread_region(&s, m->programs.at[i].body, true);
      for (int i = 0; i < m->programs.n; i++) spread_region(&s, m->programs.at[i].body, false);
    } while (s.changed);
  for (int i = 0; s.origins && i < m->programs.n; i++) spread_region(&s, m->programs.at[i].body, true); /* what was not met */
  ir_number(m);
  arena_free(s.scratch);
}
