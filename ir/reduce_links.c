/* reduce_links.c: what a program says of its sizes, and giving it new ones.

     %y[b,i] = nest %x[b, 2*i + 1]      b's range, y's first dim and x's first dim are one size; x's second dim has two
                                        elements less for every i that goes
     %z[b,d] = gather %w[%tok[b], d]    w has as many rows as tok has values: tok's limit

   A position in the text stays what it is, or, where an index counts down or a piece lies near a dim's end, moves with
   the end; both programs read alike, so they move alike. */
#include "reduce.h"
#include "text.h"

/* ---- sizes of a module ---- */

static const Type *type_of(const Links *l, ValueId v) { return &l->m->values.at[v].type; }

static void deal_out(Sizes *s, int size, const Split *split) {
  if (split->n) vec_push(s->arena, s->dealt, ((Dealt){size, split}));
}

/* A windowed dim is dealt out as the index that reads it is. */
static void make_value(Links *l, ValueId v) {
  const Type *t = type_of(l, v);
  l->dim[v] = l->s->sizes.n;
  for (int d = 0; d < t->rank; d++) size_new(l->s, t->dim[d].size);
  l->window[v] = l->s->sizes.n;
  for (int d = 0; d < t->rank; d++) {
    const Split *split = &t->dim[d].split;
    int of = split->window.of ? size_new(l->s, split->window.of) : -1;
    if (!split->window.of) size_new(l->s, 0); /* so that window[v] + d is this dim's */
    deal_out(l->s, of >= 0 ? of : l->dim[v] + d, split);
  }
}

static void same_dims(Links *l, ValueId x, ValueId y, int skip_x) {
  for (int d = 0; d < type_of(l, y)->rank; d++) size_link(l->s, l->dim[x] + skip_x + d, l->dim[y] + d, (Ratio){1, 1});
}

static void make_space(Links *l, const Op *op) {
  int at = l->s->sizes.n;
  for (int i = 0; i < op->space.n; i++) {
    size_new(l->s, op->space.idx[i].range);
    deal_out(l->s, at + i, &op->space.idx[i].split);
  }
  for (int r = 0; r < op->nout && op->kind != OP_ATTENTION_GRAD; r++) {
    int index[MAX_INDEX], n = text_result_indices(op, r, index);
    for (int d = 0; d < n; d++) size_link(l->s, l->dim[op->out[r]] + d, at + index[d], (Ratio){1, 1});
  }
  for (int r = 0; r < op->nout && op->kind == OP_ATTENTION_GRAD; r++)
    same_dims(l, op->out[r], op->in[r < 3 ? op->read[r]->operand : op->wrt[r - 3]], 0);
  if (op->kind == OP_TOPK)
    for (int i = op->space.nout; i < op->space.n; i++) size_least(l->s, at + i, op->space.idx[op->space.nout - 1].range);
}

static void make_repeat(Links *l, const Op *op) {
  int trip = size_new(l->s, op->trip);
  const Region *b = op->body_region;
  for (int i = 0; i < op->nin; i++) {
    bool slice = i >= op->ncarried + op->ninvariant;
    same_dims(l, op->in[i], b->args.at[1 + i], slice);
    if (slice) size_link(l->s, l->dim[op->in[i]], trip, (Ratio){1, 1});
  }
  for (int i = 0; i < op->nout; i++) {
    bool stacked = i >= op->ncarried;
    same_dims(l, op->out[i], b->yields.at[i], stacked);
    if (stacked) size_link(l->s, l->dim[op->out[i]], trip, (Ratio){1, 1});
    if (!stacked) same_dims(l, op->out[i], op->in[i], 0);
  }
}

typedef void OpFn(Links *l, Op *op, int at);

/* Every op, bodies before their repeat, with the place of its sizes (or -1 while they are made). */
static void each_op(Links *l, const Region *g, OpFn *f, int *n) {
  for (int i = 0; i < g->ops.n; i++) {
    if (g->ops.at[i]->body_region) each_op(l, g->ops.at[i]->body_region, f, n);
    int at = *n < l->space.n ? l->space.at[*n] : -1;
    ++*n;
    f(l, g->ops.at[i], at);
  }
}

static void every_op(Links *l, OpFn *f) {
  int n = 0;
  for (int p = 0; p < l->m->programs.n; p++) each_op(l, l->m->programs.at[p].body, f, &n);
}

static void make_op(Links *l, Op *op, int unused) {
  (void)unused;
  vec_push(l->s->arena, l->space, l->s->sizes.n);
  switch (op_class(op->kind)) {
  case CLS_LEAF: size_new(l->s, op->limit); break;
  case CLS_SPACE: make_space(l, op); break;
  case CLS_REGION: make_repeat(l, op); break;
  case CLS_LAYOUT:
    for (int i = 0; i < op->nin; i++) same_dims(l, op->out[i], op->in[i], 0);
    break;
  case CLS_EFFECT:
    if (op->kind == OP_UPDATE) same_dims(l, op->in[0], op->in[1], 0);
    break;
  }
}

/* ---- the bound of integers that serve as indices ---- */

static void bound_op(Links *l, Op *op, int at) {
  if (op->kind == OP_INPUT && op->limit) l->content[op->out[0]] = at;
  bool one = op->space.n == op->space.nout + 1;
  if (op->kind == OP_ARGMAX && one) l->content[op->out[0]] = at + op->space.nout;
  if (op->kind == OP_TOPK && one) l->content[op->out[1]] = at + op->space.nout;
  if (op_class(op->kind) == CLS_LAYOUT)
    for (int i = 0; i < op->nin; i++) l->content[op->out[i]] = l->content[op->in[i]];
  if ((op->kind != OP_NEST && op->kind != OP_GATHER) || !dtype_is_int(type_of(l, op->out[0])->dtype)) return;
  const Expr *x = op->body;
  if (x->op == EX_INDEX && ix_single(x->ix[0]) >= 0) l->content[op->out[0]] = at + ix_single(x->ix[0]);
  if (x->op == EX_READ && !x->otherwise) l->content[op->out[0]] = l->content[op->in[x->operand]];
}

/* What enters a body goes in before the body's own ops are looked at. */
static void bound_region(Links *l, const Region *g, int *n) {
  for (int i = 0; i < g->ops.n; i++) {
    Op *op = g->ops.at[i];
    for (int k = op->ncarried; op->body_region && k < op->nin; k++)
      l->content[op->body_region->args.at[1 + k]] = l->content[op->in[k]];
    if (op->body_region) bound_region(l, op->body_region, n);
    int at = l->space.at[(*n)++];
    if (!op->body_region) bound_op(l, op, at);
    for (int k = op->ncarried; op->body_region && k < op->nout; k++)
      l->content[op->out[k]] = l->content[op->body_region->yields.at[k]];
  }
}

void links_make(Links *l, Sizes *s, Module *m) {
  *l = (Links){.s = s, .m = m};
  l->dim = NEW_ARRAY(s->arena, int, m->values.n + 1);
  l->window = NEW_ARRAY(s->arena, int, m->values.n + 1);
  l->content = NEW_ARRAY(s->arena, int, m->values.n + 1);
  for (ValueId v = 0; v < m->values.n; v++) {
    l->content[v] = -1;
    if (!m->values.at[v].region) m->values.at[v].type = (Type){.dtype = type_of(l, v)->dtype}; /* nobody has it */
    make_value(l, v);
  }
  l->leaves = ir_leaves(m, s->arena);
  every_op(l, make_op);
  for (int p = 0, n = 0; p < m->programs.n; p++) bound_region(l, m->programs.at[p].body, &n);
}

/* ---- the same in two modules ---- */

/* The op of `b` that corresponds to `op`: it makes the leaf of that name, or its first result has its name. */
static const Op *twin(const Links *b, const Op *op, const char *name) {
  if (op_class(op->kind) == CLS_LEAF) return ir_find_leaf(&b->leaves, op->kind, op->name);
  ValueId v = ir_find_value(b->m, name);
  return v >= 0 && b->m->values.at[v].region ? b->m->values.at[v].def : NULL;
}

static void same_values(Links *a, Links *b, ValueId x, ValueId y) {
  const Type *tx = type_of(a, x), *ty = type_of(b, y);
  for (int d = 0; d < tx->rank && tx->rank == ty->rank; d++)
    if (tx->dim[d].size == ty->dim[d].size) size_link(a->s, a->dim[x] + d, b->dim[y] + d, (Ratio){1, 1});
}

static void same_ops(Links *a, Links *b, const Op *x, int at, const Op *y, int bt) {
  if (op_class(x->kind) == CLS_LEAF) {
    same_values(a, b, x->out[0], y->out[0]);
    if (x->limit == y->limit) size_link(a->s, at, bt, (Ratio){1, 1});
  }
  if (x->kind == OP_REPEAT && y->kind == OP_REPEAT && x->trip == y->trip) size_link(a->s, at, bt, (Ratio){1, 1});
  for (int i = 0; i < x->space.n; i++)
    for (int j = 0; j < y->space.n; j++)
      if (!strcmp(x->space.idx[i].name, y->space.idx[j].name) && x->space.idx[i].range == y->space.idx[j].range)
        size_link(a->s, at + i, bt + j, (Ratio){1, 1});
}

static void same_region(Links *a, Links *b, const int *place, const Region *g, int *n) {
  for (int i = 0; i < g->ops.n; i++) {
    const Op *op = g->ops.at[i];
    if (op->body_region) same_region(a, b, place, op->body_region, n);
    int at = a->space.at[(*n)++];
    const Op *other = op->nout ? twin(b, op, a->m->values.at[op->out[0]].name) : NULL;
    if (!other || !other->nout) continue;
    same_values(a, b, op->out[0], other->out[0]);
    same_ops(a, b, op, at, other, place[other->out[0]]);
  }
}

static void note_places(const Links *l, int *place, const Region *g, int *n) {
  for (int i = 0; i < g->ops.n; i++) {
    if (g->ops.at[i]->body_region) note_places(l, place, g->ops.at[i]->body_region, n);
    int at = l->space.at[(*n)++];
    if (g->ops.at[i]->nout) place[g->ops.at[i]->out[0]] = at;
  }
}

void links_same_names(Links *a, Links *b) {
  int *place = NEW_ARRAY(a->s->arena, int, b->m->values.n + 1);
  for (int p = 0, n = 0; p < b->m->programs.n; p++) note_places(b, place, b->m->programs.at[p].body, &n);
  for (int p = 0, n = 0; p < a->m->programs.n; p++) same_region(a, b, place, a->m->programs.at[p].body, &n);
}

/* ---- reads ---- */

typedef struct {
  int size;
  Ratio ratio;
} Piece;
typedef struct {
  Piece at[32];
  int n;
  bool unknown; /* values that nothing bounds */
} Pieces;       /* of an expression: its range shrinks by the sum of ratio * shrink(size) */

typedef struct {
  Links *l;
  const Op *op;
  int at;
  bool late; /* the second round: sums of several sizes */
} Reader;

static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

static void add_piece(Pieces *p, int size, Ratio r) {
  if (p->n == 32)
    p->unknown = true;
  else
    p->at[p->n++] = (Piece){size, r};
}

/* What shrinks the range of x, each piece `by` times. */
static void pieces_of(const Reader *r, const IExpr *x, Ratio by, Pieces *out) {
  for (int i = 0; i < x->n; i++) {
    const Term *t = &x->term[i];
    Ratio all;
    bool known = ratio_times(by, (Ratio){magnitude(t->coef), 1}, &all);
    if (known && t->kind == ATOM_DIV) known = ratio_times(all, (Ratio){1, t->k}, &all);
    int content = t->kind == ATOM_VALUE ? r->l->content[r->op->in[t->operand]] : -1;
    if (!known || (t->kind == ATOM_VALUE && content < 0))
      out->unknown = true;
    else if (t->kind == ATOM_INDEX)
      add_piece(out, r->at + t->index, all);
    else if (t->kind == ATOM_VALUE)
      add_piece(out, content, all);
    else if (t->kind == ATOM_DIV)
      pieces_of(r, t->sub, all, out);
  }
}

/* Joins pieces of one group; returns the place of the piece that covers most. */
static int gather_pieces(Sizes *s, Pieces *p) {
  int n = 0, most = 0;
  for (int i = 0; i < p->n; i++) {
    Ratio r, sum;
    int root = size_root(s, p->at[i].size, &r), j = 0;
    for (; j < n; j++) {
      Ratio rj;
      if (size_root(s, p->at[j].size, &rj) != root || r.num != rj.num || r.den != rj.den) continue;
      if (!ratio_plus(p->at[j].ratio, p->at[i].ratio, &sum)) p->unknown = true;
      p->at[j].ratio = sum;
      break;
    }
    if (j == n) p->at[n++] = p->at[i];
  }
  p->n = n;
  for (int i = 1; i < n; i++) {
    const Piece *a = &p->at[i], *b = &p->at[most];
    double x = (double)s->sizes.at[a->size].n * (double)a->ratio.num / (double)a->ratio.den;
    double y = (double)s->sizes.at[b->size].n * (double)b->ratio.num / (double)b->ratio.den;
    if (x > y) most = i;
  }
  return most;
}

/* Under // and % everything repeats with period k. */
static void periods(const Reader *r, const IExpr *x) {
  for (int i = 0; i < x->n; i++) {
    const Term *t = &x->term[i];
    if (t->kind != ATOM_DIV && t->kind != ATOM_MOD) continue;
    periods(r, t->sub);
    Pieces p = {0};
    pieces_of(r, t->sub, (Ratio){1, 1}, &p);
    for (int j = 0; j < p.n; j++) {
      Ratio c = p.at[j].ratio;
      if (c.den != 1 || p.unknown) {
        size_fix(r->l->s, p.at[j].size);
        continue;
      }
      int64_t step = t->k;
      for (int64_t f = c.num; f > 1 && step % f == 0; f = 1) step /= f;
      size_step(r->l->s, p.at[j].size, step);
      if (t->kind == ATOM_MOD) size_least(r->l->s, p.at[j].size, step);
    }
  }
}

static Fit fit_of(int64_t min, int64_t max, int64_t n, bool guarded) {
  int64_t extent = max - min + 1;
  if (guarded && extent / 2 > n) return FIT_PADDED;
  if (extent >= n - extent) return FIT_LINKED;
  return min <= n - 1 - max ? FIT_START : FIT_END;
}

static Fit fit(const IExpr *x, const Space *s, int64_t n, bool guarded, int64_t *min, int64_t *max) {
  *min = 0, *max = n - 1;
  if (ix_by_value(x)) return FIT_LINKED;
  ix_bounds(x, s, min, max);
  return fit_of(*min, *max, n, guarded);
}

/* x[k + 64 else 0] where k runs over all of x. */
static bool shifts(const IExpr *x, const Space *s, int64_t n, bool guarded) {
  return guarded && x->n == 1 && x->term[0].kind == ATOM_INDEX && x->term[0].coef == 1 && s->idx[x->term[0].index].range == n;
}

static bool near(int64_t c, int64_t n) { return c < 4 || c < n / 8; }

/* Where position c of n is when they are `now`: near an end it keeps its distance, between it keeps its share. */
static int64_t position(int64_t c, int64_t n, int64_t now) {
  int64_t p = magnitude(c);
  if (now == n || p > n || near(p, n)) return c;
  p = near(n - p, n) ? now - (n - p) : (int64_t)((double)p * (double)now / (double)n);
  return c < 0 ? -p : p;
}

static int64_t room(int64_t c, int64_t n) {
  int64_t p = magnitude(c);
  return p > n || near(p, n) ? p + 2 : near(n - p, n) ? n - p + 2 : 4;
}

/* Enough of a padded read's index stays that it meets the dim. */
static void reach(const Reader *r, const IExpr *x) {
  for (int i = 0; i < x->n; i++)
    if (x->term[i].kind == ATOM_INDEX && x->term[i].coef > 0 && x->c < 0)
      size_least(r->l->s, r->at + x->term[i].index, 2 + (1 - x->c) / x->term[i].coef);
}

static void linked(const Reader *r, int dim, const IExpr *x) {
  Sizes *s = r->l->s;
  Pieces p = {0};
  pieces_of(r, x, (Ratio){1, 1}, &p);
  int most = gather_pieces(s, &p);
  if ((p.n > 1 || p.unknown) && !r->late) return;
  for (int i = 0; i < p.n; i++)
    if (i != most || p.unknown) size_fix(s, p.at[i].size);
  if (p.n == 0 || p.unknown)
    size_fix(s, dim);
  else
    size_link(s, dim, p.at[most].size, p.at[most].ratio);
}

static void read_dim(const Reader *r, int dim, const IExpr *x, bool guarded) {
  int64_t min, max, n = r->l->s->sizes.at[dim].n;
  if (!r->late) periods(r, x);
  switch (fit(x, &r->op->space, n, guarded, &min, &max)) {
  case FIT_LINKED:
    linked(r, dim, x);
    if (guarded) size_least(r->l->s, dim, shifts(x, &r->op->space, n, true) ? room(x->c, n) : magnitude(x->c) + 2);
    break;
  case FIT_START: size_least(r->l->s, dim, max + 2); break;
  case FIT_END: size_least(r->l->s, dim, min > 0 ? n - min + 1 : n); break;
  case FIT_PADDED: reach(r, x); break;
  }
}

static void read_values(const Reader *r, const IExpr *x) {
  for (int i = 0; i < x->n; i++) {
    const Term *t = &x->term[i];
    if (t->sub) read_values(r, t->sub);
    for (int k = 0; t->kind == ATOM_VALUE && k < t->nat; k++) read_dim(r, r->l->dim[r->op->in[t->operand]] + k, t->at[k], false);
  }
}

static void one_read(void *cx, const Expr *read) {
  Reader *r = cx;
  for (int k = 0; k < read->nix; k++) {
    read_values(r, read->ix[k]);
    read_dim(r, r->l->dim[r->op->in[read->operand]] + k, read->ix[k], read->otherwise != NULL);
  }
}

/* What a window covers of a dim of n elements, as fit() of the read that it serves. */
static Fit window_fit(const Window *w, int64_t n, int64_t *min, int64_t *max) {
  int64_t last = sat_mul(w->mul, w->of - 1);
  *min = floor_div(sat_add(w->lo, min_i64(0, last)), w->div);
  *max = floor_div(sat_add(w->hi, max_i64(0, last)), w->div);
  return fit_of(*min, *max, n, true);
}

/* A windowed dim and the index whose parts deal it out: one follows from the other as if it were read. */
static void read_window(const Links *l, const Window *w, int dim, int of) {
  Sizes *s = l->s;
  int64_t min, max, n = s->sizes.at[dim].n;
  Fit f = window_fit(w, n, &min, &max);
  if (w->div > 1) size_step(s, of, w->div);
  if (f == FIT_START) size_least(s, dim, max + 2);
  if (f == FIT_END) size_least(s, dim, min > 0 ? n - min + 1 : n);
  if (f != FIT_LINKED) return;
  Ratio ratio = {1, 1};
  bool known = w->mul && magnitude(w->mul) <= INT32_MAX && w->div <= INT32_MAX;
  if (known && ratio_times((Ratio){magnitude(w->mul), 1}, (Ratio){1, w->div}, &ratio))
    size_link(s, dim, of, ratio);
  else
    size_fix(s, of), size_fix(s, dim);
}

static void read_windows(const Links *l, ValueId v) {
  const Type *t = type_of(l, v);
  for (int d = 0; d < t->rank; d++)
    if (t->dim[d].split.window.of) read_window(l, &t->dim[d].split.window, l->dim[v] + d, l->window[v] + d);
}

static void read_op(Links *l, Op *op, int at, bool late) {
  Reader r = {l, op, at, late};
  if (op_class(op->kind) != CLS_SPACE) return;
  if (op->body) ex_reads(op->body, one_read, &r);
  for (int i = 0; i < op_reads(op); i++) one_read(&r, op->read[i]);
  for (int d = 0; op->into && d < op->space.nout; d++) {
    if (ix_single(op->into[d]) == d) continue;
    read_values(&r, op->into[d]);
    read_dim(&r, at + d, op->into[d], true);
  }
}

static void read_early(Links *l, Op *op, int at) { read_op(l, op, at, false); }
static void read_late(Links *l, Op *op, int at) { read_op(l, op, at, true); }

void links_read(Links *l) {
  for (ValueId v = 0; v < l->m->values.n; v++) read_windows(l, v);
  every_op(l, read_early);
  every_op(l, read_late);
}

/* ---- new sizes ---- */

static int64_t shrink_of(const Links *l, int size) { return l->s->sizes.at[size].shrink; }
static int64_t left(const Links *l, int size) { return l->s->sizes.at[size].n - shrink_of(l, size); }

/* How much the range of one term shrinks. */
static int64_t term_shrink(const Reader *r, const Term *t) {
  int64_t sum = 0;
  switch (t->kind) {
  case ATOM_INDEX: return magnitude(t->coef) * shrink_of(r->l, r->at + t->index);
  case ATOM_VALUE: {
    int content = r->l->content[r->op->in[t->operand]];
    return content < 0 ? 0 : magnitude(t->coef) * shrink_of(r->l, content);
  }
  case ATOM_MOD: return 0;
  case ATOM_DIV:
    for (int i = 0; i < t->sub->n; i++) sum += term_shrink(r, &t->sub->term[i]);
    return magnitude(t->coef) * (sum / t->k);
  }
  return 0;
}

static void move_dim(const Reader *r, int dim, IExpr *x, bool guarded);

/* What counts down keeps its last value. */
static void keep_least(const Reader *r, IExpr *x) {
  for (int i = 0; i < x->n; i++) {
    const Term *t = &x->term[i];
    if (t->sub) keep_least(r, t->sub);
    for (int k = 0; t->kind == ATOM_VALUE && k < t->nat; k++) move_dim(r, r->l->dim[r->op->in[t->operand]] + k, t->at[k], false);
    if (t->coef < 0) x->c -= term_shrink(r, t);
  }
}

static void move_dim(const Reader *r, int dim, IExpr *x, bool guarded) {
  int64_t min, max;
  int64_t n = r->l->s->sizes.at[dim].n;
  Fit f = fit(x, &r->op->space, n, guarded, &min, &max);
  if (shifts(x, &r->op->space, n, guarded)) x->c = position(x->c, n, left(r->l, dim));
  keep_least(r, x);
  if (f != FIT_END) return;
  x->c -= shrink_of(r->l, dim);
  for (int i = 0; i < x->n; i++) x->c += term_shrink(r, &x->term[i]);
}

static void move_read(void *cx, const Expr *read) {
  Reader *r = cx;
  for (int k = 0; k < read->nix; k++) move_dim(r, r->l->dim[r->op->in[read->operand]] + k, read->ix[k], read->otherwise != NULL);
}

static void apply_split(const Links *l, Split *split, int dealt) {
  split->granule = size_granule(l->s, split, l->s->sizes.at[dealt].n, left(l, dealt));
}

/* idx(k) < 64: the literal is a position of k's range. */
static void move_literals(const Reader *r, Expr *x) {
  for (int i = 0; i < 3 && x->arg[i]; i++) move_literals(r, x->arg[i]);
  if (x->otherwise) move_literals(r, x->otherwise);
  if (x->op < EX_LT || x->op > EX_GT || !x->arg[1]) return;
  for (int i = 0; i < 2; i++) {
    const Expr *index = x->arg[i];
    Expr *lit = x->arg[1 - i];
    int k = index->op == EX_INDEX ? ix_single(index->ix[0]) : -1;
    if (k >= 0 && lit->op == EX_LITERAL && lit->ilit >= 0)
      lit->ilit = position(lit->ilit, r->op->space.idx[k].range, left(r->l, r->at + k));
  }
}

static void apply_op(Links *l, Op *op, int at) {
  Reader r = {l, op, at, true};
  if (op_class(op->kind) == CLS_LEAF) op->limit = left(l, at);
  if (op->kind == OP_REPEAT) op->trip = left(l, at);
  if (op_class(op->kind) != CLS_SPACE) return;
  if (op->body) move_literals(&r, op->body);
  if (op->body) ex_reads(op->body, move_read, &r);
  for (int i = 0; i < op_reads(op); i++) move_read(&r, op->read[i]);
  for (int d = 0; op->into && d < op->space.nout; d++)
    if (ix_single(op->into[d]) != d) move_dim(&r, at + d, op->into[d], true);
  for (int i = 0; i < op->space.n; i++) {
    apply_split(l, &op->space.idx[i].split, at + i);
    op->space.idx[i].range = left(l, at + i);
  }
}

/* The bounds of a window move as the expression does that it serves. */
static void apply_window(const Links *l, Window *w, int dim, int of) {
  int64_t min, max, s = magnitude(w->mul) * shrink_of(l, of), by = w->mul < 0 ? -s : 0;
  if (window_fit(w, l->s->sizes.at[dim].n, &min, &max) == FIT_END) by += s - w->div * shrink_of(l, dim);
  int64_t n = l->s->sizes.at[dim].n;
  if (w->mul == 1 && w->div == 1 && w->of == n)
    w->lo = position(w->lo, n, left(l, dim)), w->hi = position(w->hi, n, left(l, dim));
  w->of = left(l, of);
  w->lo += by, w->hi += by;
}

static void apply_value(Links *l, ValueId v) {
  Type *t = &l->m->values.at[v].type;
  for (int d = 0; d < t->rank; d++) {
    Split *split = &t->dim[d].split;
    bool windowed = split->window.of > 0;
    apply_split(l, split, (windowed ? l->window[v] : l->dim[v]) + d);
    if (windowed) apply_window(l, &split->window, l->dim[v] + d, l->window[v] + d);
    t->dim[d].size = left(l, l->dim[v] + d);
  }
}

void links_apply(Links *l) {
  every_op(l, apply_op);
  for (ValueId v = 0; v < l->m->values.n; v++) apply_value(l, v);
}
