/* blocks.c: ops that run along a split index. Where the index that a scan, an argmax or a topk runs along is split into
   k chunks of n, each rank does its chunk, small summaries are exchanged, and each rank finishes from all of them. All of
   this is said in ops that exist, with an index c over the chunks that is split as the index was and s within a chunk, so
   that n*c + s, on the rank of chunk c, is what that rank holds:

     %y[b,t@x] = scan[t] %x[b,t]            %l[b,c@x,s] = scan[s] %x[b, n*c + s]
                                            %e[b,c@x]   = nest %l[b, c, n - 1]
                                            %g[b,c]     = reshard %e                        the totals
                                            %o[b,c@x]   = nest sum[d] where(d < c, %g[b,d], 0)
                                            %y[b,t@x]   = nest %l[b, t // n, t % n] + %o[b, t // n]

                                            without x[b,t] itself: (%l[b, t // n, t % n - 1] else 0) + ...

     %i[b] = argmax[e@x] BODY               %m[b]       = nest max[e@x] BODY                pending, then completed
                                            %p[b]       = nest min[e@x] where(BODY == %m[b], idx(e), E)      likewise
                                            %i[b]       = nest where(%p[b] < E, %p[b], 0)   no number: the first

     %v[b,j], %i[b,j] = topk[e@x] BODY      %w[b,c@x,h], %q[b,c@x,h] = topk[s] BODY at n*c + s;   h < m = min(J, n)
                                            %g[b,c@x,h] = nest n*c + %q[b,c,h]
                                            reshard %w, %g                                  the candidates
                                            %v[b,j], %r[b,j] = topk[q: k*m] %w[b, q // m, q % m]
                                            %i[b,j] = gather %g[b, %r[b,j] // m, %r[b,j] % m]

     %i[b@x] = argmax[e@x] BODY             %w[b@x,j], %q[b@x,j] = topk[e@x] BODY;   j < 1
                                            %i[b@x]     = nest %q[b,0]                      candidates, to whom they concern

   Attention along its keys: blocks_attention.c.

   Uneven chunks: past the end a scan adds 0, and a topk sees the least value there is, which never wins: it comes after
   all of the dim's own, and equals keep their order because candidates are in the order of e. */
#include "blocks.h"

#include <limits.h>
#include <math.h>

bool block_along(const Op *op, int i) {
  const Space *s = &op->space;
  int rows[MAX_RANK];
  switch (op->kind) {
  case OP_SCAN: return i == op->along && s->n < MAX_INDEX && s->nout < MAX_RANK;
  case OP_ARGMAX: return i >= s->nout && i < s->n;
  case OP_TOPK: return i == s->nout && s->n < MAX_INDEX && s->nout < MAX_RANK;
  case OP_ATTENTION: return i >= s->nout && i < s->nout + op->nkey && attention_rows(op, rows) + op->nkey <= MAX_RANK;
  default: return false;
  }
}

static Deal deal_of(const Space *s, const Split *split, int index) {
  Deal d = {.index = index, .range = s->idx[index].range, .k = split->n ? split_count(split) : 1, .chunks = *split};
  d.n = max_i64(split_capacity(split, d.range), 1);
  d.chunks.granule = 0;
  return d;
}

/* ---- types and spaces -------------------------------------------------------------------------------------- */

static Index chunk_index(Arena *a, const Index *of, const Deal *d) {
  return (Index){.name = arena_printf(a, "%s.chunk", of->name), .range = d->k, .split = d->chunks};
}

Type block_type(const Space *s, int n, DType dtype, const Pending *p) {
  Type t = {.dtype = dtype, .rank = n, .pending = *p};
  for (int i = 0; i < n; i++) t.dim[i] = (Dim){.name = s->idx[i].dim, .size = s->idx[i].range, .split = s->idx[i].split};
  return t;
}

static Type without_split(Type t, int dim) {
  t.dim[dim].split = (Split){0};
  return t;
}

/* The first n dims split as the results are. */
static Type spread(Type t, int n, const Split *split) {
  for (int d = 0; d < n; d++) t.dim[d].split = split[d];
  return t;
}

/* The space in chunks: index i becomes the chunk, `more` indices are put at place `from`. */
static Space chunk_space(const Block *b, int from, int more) {
  Space s = b->at;
  for (int i = s.n - 1; i >= from; i--) s.idx[i + more] = s.idx[i];
  s.n += more;
  return s;
}

/* ---- building ------------------------------------------------------------------------------------------------- */

Op *block_new_op(const Block *b, OpKind kind) {
  Op *op = ir_op(b->m, kind, b->op->loc);
  op->phase = b->op->phase;
  op->tag = b->op->tag;
  return op;
}

ValueId block_add_op(const Block *b, Op *op, const char *what, Type t) {
  ValueId v = ir_out(b->m, op, arena_printf(b->m->arena, "%s.%s", b->name, what), t);
  if (op->nout == 1) ir_append(b->m, b->region, op);
  return v;
}

ValueId block_change_layout(const Block *b, ValueId v, const Type *to, const char *why) {
  Op *op = block_new_op(b, OP_RESHARD);
  op->why = why;
  ir_in(b->m, op, v);
  ValueId out = ir_out(b->m, op, b->m->values.at[v].name, *to);
  ir_append(b->m, b->region, op);
  return out;
}

const char *block_why_text(const Block *b, const char *what) {
  const Index *x = &b->at.idx[b->deal.index];
  return arena_printf(b->m->arena, "%%%s runs along %s, which is split over %s: %s", b->name, x->name,
                      ir_print_split(b->m, &b->deal.chunks, b->m->arena), what);
}

static void take_operands(const Block *b, Op *op) {
  for (int o = 0; o < b->op->nin; o++) ir_in(b->m, op, b->op->in[o]);
}

/* A read of operand `o` at the first n indices. */
static Expr *read_plain(const Block *b, int o, DType d, int n) {
  IExpr *ix[MAX_RANK];
  for (int i = 0; i < n; i++) ix[i] = ix_index(b->m->arena, i);
  return ex_read(b->m->arena, o, d, n, ix, NULL);
}

Expr *block_read_value(const Block *b, Op *op, ValueId v, int n, IExpr **ix) {
  ir_in(b->m, op, v);
  return ex_read(b->m->arena, op->nin - 1, b->m->values.at[v].type.dtype, n, ix, NULL);
}

void block_become(Op *op, OpKind kind) {
  op->kind = kind;
  op->nin = 0;
  op->reduce = RED_NONE;
  op->reverse = false;
  op->along = op->nkey = 0;
}

/* ---- bodies past the end ---------------------------------------------------------------------------------------- */

/* Reads that could now leave their dims get an `else`. */
static Expr *guard_reads(const Block *b, const Expr *x, const Space *s) {
  Arena *a = b->m->arena;
  Expr *y = NEW(a, Expr);
  *y = *x;
  for (int i = 0; i < 3; i++)
    if (x->arg[i]) y->arg[i] = guard_reads(b, x->arg[i], s);
  if (x->op != EX_READ || x->otherwise) return y;
  const Type *t = &b->m->values.at[b->op->in[x->operand]].type;
  for (int d = 0; d < x->nix; d++) {
    int64_t min, max;
    ix_bounds(x->ix[d], s, &min, &max);
    if (min < 0 || max >= t->dim[d].size) y->otherwise = ex_int(a, x->dtype, 0);
  }
  return y;
}

/* The body with `by` for the indices, in space s; where `place`, of the index dealt out, is past the end: `fill`. */
static Expr *chunk_body(const Block *b, const Space *s, IExpr *const *by, Expr *fill) {
  Arena *a = b->m->arena;
  const Deal *d = &b->deal;
  Expr *body = ex_substitute(a, b->op->body, by, NULL);
  if (d->n * d->k == d->range) return body;
  Expr *inside = ex_2(a, EX_LT, ex_index(a, by[d->index]), ex_int(a, I32, d->range));
  return ex_where(a, inside, guard_reads(b, body, s), fill);
}

/* n * chunk + within */
static IExpr *place_in_dim(const Block *b, int chunk, int within) {
  Arena *a = b->m->arena;
  return ix_add(a, ix_scale(a, ix_index(a, chunk), b->deal.n), ix_index(a, within));
}

/* ---- scan ---------------------------------------------------------------------------------------------------------- */

/* Each chunk by itself: %l[b,c,s]. */
static ValueId scan_chunks(const Block *b) {
  Arena *a = b->m->arena;
  int t = b->deal.index, within = b->at.nout;
  Op *op = block_new_op(b, OP_SCAN);
  take_operands(b, op);
  op->space = chunk_space(b, within, 1);
  op->space.nout = within + 1;
  op->space.idx[within] = (Index){.name = arena_printf(a, "%s.within", b->at.idx[t].name), .range = b->deal.n};
  op->space.idx[t] = chunk_index(a, &b->at.idx[t], &b->deal);
  op->along = within;
  op->reverse = b->op->reverse;
  IExpr *by[MAX_INDEX];
  for (int i = 0; i < b->at.n; i++) by[i] = i == t ? place_in_dim(b, t, within) : ix_index(a, i);
  op->body = chunk_body(b, &op->space, by, ex_int(a, b->op->body->dtype, 0));
  return block_add_op(b, op, "local", block_type(&op->space, within + 1, b->op->body->dtype, &b->sums));
}

/* The last element of each chunk, which has gone through all of it: %e[b,c]. */
static ValueId scan_totals(const Block *b, ValueId local) {
  Arena *a = b->m->arena;
  int n = b->at.nout;
  Op *op = block_new_op(b, OP_NEST);
  op->space = b->at;
  op->space.idx[b->deal.index] = chunk_index(a, &b->at.idx[b->deal.index], &b->deal);
  IExpr *ix[MAX_RANK];
  for (int i = 0; i < n; i++) ix[i] = ix_index(a, i);
  ix[n] = ix_const(a, b->op->reverse ? 0 : b->deal.n - 1);
  op->body = block_read_value(b, op, local, n + 1, ix);
  return block_add_op(b, op, "total", block_type(&op->space, n, op->body->dtype, &b->sums));
}

/* What the chunks before (in the scan's direction) add: %o[b,c]. */
static ValueId scan_offsets(const Block *b, ValueId totals) {
  Arena *a = b->m->arena;
  int t = b->deal.index, n = b->at.nout;
  Op *op = block_new_op(b, OP_NEST);
  op->reduce = RED_SUM;
  op->space = b->at;
  op->space.idx[t] = chunk_index(a, &b->at.idx[t], &b->deal);
  op->space.n = n + 1;
  op->space.idx[n] = (Index){.name = arena_printf(a, "%s.other", b->at.idx[t].name), .range = b->deal.k};
  IExpr *ix[MAX_RANK];
  for (int i = 0; i < n; i++) ix[i] = ix_index(a, i == t ? n : i);
  Expr *total = block_read_value(b, op, totals, n, ix);
  ExprOp before = b->op->reverse ? EX_GT : EX_LT;
  Expr *counts = ex_2(a, before, ex_index(a, ix_index(a, n)), ex_index(a, ix_index(a, t)));
  op->body = ex_where(a, counts, total, ex_int(a, total->dtype, 0));
  return block_add_op(b, op, "offset", block_type(&op->space, n, total->dtype, &b->sums));
}

static IExpr *one_back(const Block *b, IExpr *x, bool reverse) {
  return ix_add(b->m->arena, x, ix_const(b->m->arena, reverse ? 1 : -1));
}

static void block_scan(Block *b) {
  Arena *a = b->m->arena;
  int t = b->deal.index, n = b->at.nout;
  ValueId local = scan_chunks(b), total = scan_totals(b, local);
  Type whole = without_split(b->m->values.at[total].type, t);
  ValueId offset = scan_offsets(b, block_change_layout(b, total, &whole, block_why_text(b, "the totals of the chunks")));
  bool reverse = b->op->reverse;
  block_become(b->op, OP_NEST);
  IExpr *ix[MAX_RANK];
  for (int i = 0; i < n; i++) ix[i] = i == t ? ix_div(a, ix_index(a, t), b->deal.n) : ix_index(a, i);
  ix[n] = ix_mod(a, ix_index(a, t), b->deal.n);
  if (b->before) ix[n] = one_back(b, ix[n], reverse);
  Expr *own = block_read_value(b, b->op, local, n + 1, ix);
  if (b->before) own->otherwise = ex_int(a, own->dtype, 0);
  b->op->body = ex_2(a, EX_ADD, own, block_read_value(b, b->op, offset, n, ix));
}

/* ---- argmax ------------------------------------------------------------------------------------------------------- */

Pending block_parts(const Space *s, int from, int to, Reduce kind) {
  Pending p = {.kind = kind};
  for (int i = from; i < to; i++)
    for (int j = 0; j < s->idx[i].split.n; j++) p.part[p.n++] = s->idx[i].split.part[j];
  return p;
}

static Type argmax_type(const Space *s, DType dtype, Reduce kind) {
  Pending p = block_parts(s, s->nout, s->n, kind);
  return block_type(s, s->nout, dtype, &p);
}

Type block_completed(Type t) {
  t.pending = (Pending){0};
  return t;
}

/* A reduction of `body` over the op's own space, then completed, split as `results`. */
static ValueId reduce_all(const Block *b, Op *op, Reduce kind, const Space *results, const char *what, const char *why) {
  op->reduce = kind;
  op->space = b->at;
  Type raw = argmax_type(&b->at, op->body->dtype, kind), whole = block_completed(raw);
  for (int d = 0; d < whole.rank; d++) whole.dim[d].split = results->idx[d].split;
  return block_change_layout(b, block_add_op(b, op, what, raw), &whole, block_why_text(b, why));
}

/* The row-major number of a point in the whole range; *all: how many there are. */
static IExpr *number_of(const Block *b, int64_t *all) {
  Arena *a = b->m->arena;
  IExpr *x = ix_const(a, 0);
  *all = 1;
  for (int i = b->at.n - 1; i >= b->at.nout; i--) {
    x = ix_add(a, ix_scale(a, ix_index(a, i), *all), x);
    *all *= b->at.idx[i].range;
  }
  return x;
}

static void block_argmax(Block *b) {
  Arena *a = b->m->arena;
  int n = b->at.nout;
  Op *most = block_new_op(b, OP_NEST), *first = block_new_op(b, OP_NEST);
  take_operands(b, most), take_operands(b, first);
  most->body = b->op->body;
  ValueId max = reduce_all(b, most, RED_MAX, &b->at, "max", "the largest of all");
  ir_in(b->m, first, max);
  int64_t all;
  IExpr *number = number_of(b, &all);
  Expr *reached = ex_2(a, EX_EQ, b->op->body, read_plain(b, first->nin - 1, b->op->body->dtype, n));
  first->body = ex_where(a, reached, ex_index(a, number), ex_int(a, I32, all));
  ValueId at = reduce_all(b, first, RED_MIN, &b->op->space, "first", "the first place of the largest");
  block_become(b->op, OP_NEST);
  b->op->space.n = n;
  ir_in(b->m, b->op, at);
  Expr *found = read_plain(b, 0, I32, n);
  b->op->body = ex_where(a, ex_2(a, EX_LT, found, ex_int(a, I32, all)), found, ex_int(a, I32, 0));
}

/* ---- topk --------------------------------------------------------------------------------------------------------- */

static int64_t candidates(const Space *s, const Deal *d) {
  int64_t others = 1;
  for (int i = s->nout + 1; i < s->n; i++) others *= s->idx[i].range;
  return min_i64(s->idx[s->nout - 1].range, d->n * others);
}

static Expr *least(Arena *a, DType d) {
  if (!dtype_is_int(d)) return ex_lit(a, d, -INFINITY);
  return ex_int(a, d, d == I64 ? INT64_MIN : INT32_MIN);
}

/* The result's dims with the chunk before the winners. */
static Space candidate_space(Arena *a, const Space *at, const Deal *d) {
  int j = at->nout - 1;
  Space s = *at;
  s.n = s.nout = at->nout + 1;
  s.idx[j] = chunk_index(a, &at->idx[d->index], d);
  s.idx[j + 1] = (Index){.name = arena_printf(a, "%s.winner", at->idx[d->index].name), .range = candidates(at, d)};
  return s;
}

/* The winners of each chunk: values and numbers in the whole range. */
static void topk_chunks(const Block *b, ValueId *value, ValueId *number) {
  Arena *a = b->m->arena;
  int chunk = b->at.nout - 1, old = b->at.nout;
  Op *op = block_new_op(b, OP_TOPK), *global = block_new_op(b, OP_NEST);
  take_operands(b, op);
  Space winners = candidate_space(a, &b->at, &b->deal);
  op->space = winners;
  for (int i = old; i < b->at.n; i++) op->space.idx[op->space.n++] = b->at.idx[i];
  op->space.idx[old + 1] = (Index){.name = arena_printf(a, "%s.within", b->at.idx[old].name), .range = b->deal.n};
  IExpr *by[MAX_INDEX];
  for (int i = 0; i < b->at.n; i++) by[i] = ix_index(a, i < old ? i : i + 1);
  by[old] = place_in_dim(b, chunk, old + 1);
  op->body = chunk_body(b, &op->space, by, least(a, b->op->body->dtype));
  int64_t others = 1; /* the other selected indices count within the one that is dealt out */
  for (int i = old + 1; i < b->at.n; i++) others *= b->at.idx[i].range;
  *value = block_add_op(b, op, "chunk", block_type(&winners, winners.n, op->body->dtype, &b->sums));
  ValueId in_chunk = ir_out(b->m, op, arena_printf(a, "%s.within", b->name), block_type(&winners, winners.n, I32, &b->sums));
  ir_in(b->m, global, in_chunk);
  global->space = winners;
  Expr *start = ex_index(a, ix_scale(a, ix_index(a, chunk), b->deal.n * others));
  global->body = ex_2(a, EX_ADD, start, read_plain(b, 0, I32, winners.n));
  *number = block_add_op(b, global, "number", block_type(&winners, winners.n, I32, &b->sums));
}

/* Where candidate q is, of all in one row: [b, q // m, q % m]. */
static void place_candidate(const Block *b, IExpr **ix, const IExpr *q) {
  Arena *a = b->m->arena;
  int chunk = b->at.nout - 1;
  int64_t m = candidates(&b->at, &b->deal);
  for (int i = 0; i < chunk; i++) ix[i] = ix_index(a, i);
  ix[chunk] = ix_div(a, q, m);
  ix[chunk + 1] = ix_mod(a, q, m);
}

void block_move_first_result(Module *m, Op *from, Op *to) {
  ValueId v = from->out[0];
  to->out = NEW_ARRAY(m->arena, ValueId, 2);
  to->out[0] = v;
  to->nout = 1;
  m->values.at[v].def = to;
  from->out[0] = from->out[1];
  from->nout = 1;
  m->values.at[from->out[0]].result = 0;
}

/* The best of all candidates: %v and, as %r, which candidates they are. */
static Op *merge_candidates(const Block *b, ValueId value) {
  Arena *a = b->m->arena;
  int n = b->at.nout;
  Op *merge = block_new_op(b, OP_TOPK);
  merge->space = b->op->space;
  merge->space.n = n + 1;
  merge->space.idx[n] =
      (Index){.name = arena_printf(a, "%s.candidate", b->at.idx[n].name), .range = b->deal.k * candidates(&b->at, &b->deal)};
  IExpr *ix[MAX_RANK];
  place_candidate(b, ix, ix_index(a, n));
  merge->body = block_read_value(b, merge, value, n + 1, ix);
  Type places = b->m->values.at[b->op->out[1]].type;
  ir_append(b->m, b->region, merge);
  block_move_first_result(b->m, b->op, merge);
  ir_out(b->m, merge, arena_printf(a, "%s.place", b->name), places);
  return merge;
}

static void block_topk(Block *b) {
  Arena *a = b->m->arena;
  int n = b->at.nout;
  ValueId value, number;
  topk_chunks(b, &value, &number);
  Split result[MAX_INDEX];
  for (int i = 0; i < n; i++) result[i] = b->op->space.idx[i].split;
  Type values = spread(without_split(b->m->values.at[value].type, n - 1), n - 1, result), numbers = values;
  numbers.dtype = I32;
  value = block_change_layout(b, value, &values, block_why_text(b, "the candidates of all chunks"));
  number = block_change_layout(b, number, &numbers, block_why_text(b, "where the candidates are"));
  Op *merge = merge_candidates(b, value);
  block_become(b->op, OP_GATHER);
  ir_in(b->m, b->op, number);
  ir_in(b->m, b->op, merge->out[1]);
  b->op->space.n = n;
  IExpr *ix[MAX_RANK], *at[MAX_RANK];
  for (int i = 0; i < n; i++) at[i] = ix_index(a, i);
  place_candidate(b, ix, ix_value(a, 1, n, at));
  b->op->body = ex_read(a, 0, I32, n + 1, ix, NULL);
}

/* ---- argmax whose results are spread over the axes of the chunks ------------------------------------------------------ */

static int split_along(const Op *op, const Split *split) {
  int i = 0;
  while (!(split[i].n > 0 && block_along(op, i))) i++;
  return i;
}

/* Is it the best of candidates, each sent to whom it concerns? Numbers are row-major, so chunks are of the first index. */
static bool takes_candidates(const Op *op, const Split *split) {
  const Space *s = &op->space;
  if (op->kind != OP_ARGMAX || s->n + 1 >= MAX_INDEX || s->nout + 1 >= MAX_RANK || split[s->nout].n == 0) return false;
  for (int i = s->nout + 1; i < s->n; i++)
    if (split[i].n > 0) return false;
  for (int i = 0; i < s->nout; i++)
    for (int k = 0; k < split[i].n; k++)
      if (split_uses(&split[s->nout], split[i].part[k])) return true;
  return false;
}

static Space with_winner(const Space *of) {
  Space s = *of;
  for (int i = s.n++; i > s.nout; i--) s.idx[i] = s.idx[i - 1];
  s.idx[s.nout++] = (Index){.name = "best", .range = 1};
  return s;
}

/* The argmax reads what a topk of one, which comes before it in blocks, gives. */
static void block_candidates(Block *b) {
  Arena *a = b->m->arena;
  int n = b->op->space.nout;
  const Pending none = {0};
  Op *best = block_new_op(b, OP_TOPK);
  take_operands(b, best);
  best->space = with_winner(&b->op->space);
  IExpr *by[MAX_INDEX], *first[MAX_RANK];
  for (int i = 0; i < b->op->space.n; i++) by[i] = ix_index(a, i < n ? i : i + 1);
  best->body = ex_substitute(a, b->op->body, by, NULL);
  ir_out(b->m, best, arena_printf(a, "%s.best", b->name), block_type(&best->space, n + 1, best->body->dtype, &none));
  ValueId place = ir_out(b->m, best, arena_printf(a, "%s.place", b->name), block_type(&best->space, n + 1, I32, &none));
  block_op(b->m, b->region, best, false);
  ir_append(b->m, b->region, best);
  block_become(b->op, OP_NEST);
  b->op->space.n = n;
  for (int i = 0; i < n; i++) first[i] = ix_index(a, i);
  first[n] = ix_const(a, 0);
  b->op->body = block_read_value(b, b->op, place, n + 1, first);
}

/* ---- which ops, what they exchange --------------------------------------------------------------------------------- */

bool block_needed(const Op *op, const Split *split) {
  for (int i = 0; i < op->space.n; i++)
    if (split[i].n > 0 && block_along(op, i)) return true;
  return false;
}

bool block_spreads(const Op *op, int i) { return (op->kind == OP_ARGMAX || op->kind == OP_TOPK) && i < op->space.nout; }

static Split without_parts(const Split *s, const Split *but) {
  Split out = *s;
  out.n = 0;
  for (int i = 0; i < s->n; i++)
    if (!split_uses(but, s->part[i])) out.part[out.n++] = s->part[i];
  return out;
}

void block_chunk_splits(const Op *op, const Split *split, Split *out) {
  for (int i = 0; i < op->space.n; i++) {
    out[i] = split[i];
    for (int k = 0; k < op->space.n && block_spreads(op, i); k++)
      if (block_along(op, k)) out[i] = without_parts(&out[i], &split[k]);
  }
}

static void set_splits(Space *s, const Split *split) {
  for (int i = 0; i < s->n; i++) s->idx[i].split = split[i];
}

/* Of values and their places: s has a topk's space, split as its chunks are. */
static void candidate_moves(Arena *a, const Space *s, const Deal *deal, DType d, const Pending *sums, const Split *split,
                            BlockMove *out) {
  Space all = candidate_space(a, s, deal);
  Type t = block_type(&all, all.nout, d, sums);
  out[0] = (BlockMove){t, spread(without_split(t, all.nout - 2), all.nout - 2, split)};
  out[1] = out[0];
  out[1].from.dtype = out[1].to.dtype = I32;
}

static void argmax_moves(const Op *op, const Space *s, const Split *split, BlockMove *out) {
  Type t = argmax_type(s, op->body->dtype, RED_MAX);
  out[0] = (BlockMove){t, block_completed(t)};
  t = argmax_type(s, I32, RED_MIN);
  out[1] = (BlockMove){t, spread(block_completed(t), s->nout, split)};
}

int block_moves(const Module *m, const Op *op, const Split *split, const Pending *sums, BlockMove *out) {
  Space s = op->space;
  Split chunk[MAX_INDEX];
  block_chunk_splits(op, split, chunk);
  set_splits(&s, chunk);
  DType d = op->body->dtype;
  int i = split_along(op, split);
  Deal deal = deal_of(&s, &split[i], i);
  if (takes_candidates(op, split)) {
    s = with_winner(&s);
    deal.index++;
    candidate_moves(m->arena, &s, &deal, d, sums, split, out);
    return 2;
  }
  switch (op->kind) {
  case OP_SCAN: {
    s.idx[i] = chunk_index(m->arena, &op->space.idx[i], &deal);
    Type t = block_type(&s, s.nout, d, sums);
    out[0] = (BlockMove){t, without_split(t, i)};
    return 1;
  }
  case OP_TOPK: candidate_moves(m->arena, &s, &deal, d, sums, split, out); return 2;
  case OP_ATTENTION: return block_attention_moves(op, &s, out);
  default: argmax_moves(op, &s, split, out); return 2;
  }
}

static bool counts_again(const Op *op, int i) {
  if (op->kind != OP_ATTENTION || block_along(op, i)) return true;
  int row[MAX_RANK], n = attention_rows(op, row), k = 0;
  while (k < n && row[k] != i) k++;
  return k < n;
}

double block_points(const Op *op, const Split *split) {
  const Space *s = &op->space;
  int along = split_along(op, split);
  bool merges = op->kind == OP_TOPK || takes_candidates(op, split);
  double points = 1;
  Split chunk[MAX_INDEX];
  block_chunk_splits(op, split, chunk);
  for (int i = 0; i < s->n; i++)
    if (merges ? i < s->nout : counts_again(op, i))
      points *= (double)split_capacity(merges ? &split[i] : &chunk[i], s->idx[i].range);
  if (!merges) return points; /* argmax: a second time; scan: offsets are added; attention: its scores */
  Deal d = deal_of(s, &split[along], along);
  return points * (double)(d.k * (op->kind == OP_TOPK ? candidates(s, &d) : 1)); /* who has a result merges its candidates */
}

void block_before(Module *m, Region *region, Op *op) {
  Block b = {.m = m, .region = region, .op = op, .name = m->values.at[op->out[0]].name};
  Op *scan = block_new_op(&b, OP_SCAN);
  int n = op->space.nout, t = op->along;
  take_operands(&b, scan);
  scan->space = op->space, scan->along = t, scan->reverse = op->reverse, scan->body = op->body;
  ValueId v = block_add_op(&b, scan, "scan", m->values.at[op->out[0]].type);
  block_become(op, OP_NEST);
  IExpr *ix[MAX_RANK];
  for (int i = 0; i < n; i++) ix[i] = ix_index(m->arena, i);
  ix[t] = one_back(&b, ix[t], scan->reverse);
  op->body = block_read_value(&b, op, v, n, ix);
  op->body->otherwise = ex_int(m->arena, op->body->dtype, 0);
}

void block_op(Module *m, Region *region, Op *op, bool before) {
  Split split[MAX_INDEX];
  for (int i = 0; i < op->space.n; i++) split[i] = op->space.idx[i].split;
  Block b = {.m = m, .region = region, .op = op, .at = op->space, .before = before};
  Split chunk[MAX_INDEX];
  block_chunk_splits(op, split, chunk);
  set_splits(&b.at, chunk);
  b.deal = deal_of(&op->space, &split[split_along(op, split)], split_along(op, split));
  b.name = m->values.at[op->out[0]].name;
  b.sums = m->values.at[op->out[0]].type.pending;
  if (op->kind == OP_SCAN) block_scan(&b);
  if (op->kind == OP_ARGMAX) takes_candidates(op, split) ? block_candidates(&b) : block_argmax(&b);
  if (op->kind == OP_TOPK) block_topk(&b);
  if (op->kind == OP_ATTENTION) block_attention(&b);
}
