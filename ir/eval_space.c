/* eval_space.c: the ops with an index space, each evaluated on one rank's box of it:

     %y[b,t] = nest sum[d] %x[b,d] * %w[d,t]     for b, t in the result's box: the sum over the rank's part of d

   A reduced index that is split leaves a pending result: each rank reduces its part, and an empty part gives
   the reduction's identity. */
#include "eval.h"

static Held *out_held(Point *p, int result) { return held_of(p->run, p->op->out[result], p->rank); }

static DType out_dtype(const Point *p, int result) { return p->run->m->values.at[p->op->out[result]].type.dtype; }

static Num fit(Point *p, DType d, Num v) {
  if (d == I32 && (v.i > INT32_MAX || v.i < INT32_MIN)) domain_fail(p->d, "%lld does not fit i32", (long long)v.i);
  return v;
}

/* Where the current point lies in a result whose dims are the space's first indices. */
static Num *result_place(Point *p, Held *h) {
  int64_t at = held_place(h, p->i);
  if (at < 0) internal_error("%s: the index space of rank %d is not the box of its result", eval_where(p->run, p->op), p->rank);
  return &h->at[at];
}

static bool is_result_box(const Point *p, const Held *h) {
  bool same = true;
  for (int k = 0; k < h->rank; k++) same = same && h->lo[k] == p->lo[k] && h->size[k] == p->hi[k] - p->lo[k];
  return same;
}

/* Results one after the other, each folded from so many points in a row. */
typedef struct {
  Num *at, acc, identity;
  ScalarFn *fold; /* or NULL: one point, one result */
  int64_t each, have;
  DType d;
} Results;

static void take_values(Point *p, Results *r, int count, const Num *v) {
  for (int i = 0; i < count; i++) {
    r->acc = r->fold ? r->fold(p->d, r->acc, v[i]) : v[i];
    if (++r->have < r->each) continue;
    *r->at++ = fit(p, r->d, r->acc);
    r->acc = r->identity, r->have = 0;
  }
}

/* Sums of products of two direct reads, by strips: the last reduced index, and those before it while both reads go on through
   them with the same step. */
static void nest_products(Point *p, Results *r, const Read *x, const Read *y) {
  int last = p->op->space.n - 1, cut = last;
  int64_t n = p->hi[last] - p->lo[last], dx = read_step(x, last), dy = read_step(y, last);
  for (; cut > p->op->space.nout && read_step(x, cut - 1) == n * dx && read_step(y, cut - 1) == n * dy; cut--)
    n *= p->hi[cut - 1] - p->lo[cut - 1];
  Loop strip = loop_range(cut, last + 1), outer = loop_range(0, cut);
  loop_first(p, &strip);
  for (bool go = loop_first(p, &outer); go && !p->d->failed; go = loop_next(p, &outer)) {
    Strip a = {x->held->at + direct_place(p, x), dx}, b = {y->held->at + direct_place(p, y), dy};
    r->acc = domain_add_products(p->d, r->d, r->acc, n, a, b);
    r->have += n;
    if (r->have < r->each) continue;
    *r->at++ = fit(p, r->d, r->acc);
    r->acc = r->identity, r->have = 0;
  }
}

/* All points in their order, in batches: a piece of one index and all of those behind it. */
static void nest_batches(Point *p, Results *r) {
  int n = p->op->space.n, cut = n - 1, behind = 1;
  while (cut > 0 && behind * (p->hi[cut] - p->lo[cut]) <= BATCH) behind *= (int)(p->hi[cut] - p->lo[cut]), cut--;
  Loop outer = loop_range(0, cut), batch = loop_range(cut, n);
  int64_t lo = p->lo[cut], hi = p->hi[cut], piece = BATCH / behind;
  for (bool go = loop_first(p, &outer); go && !p->d->failed; go = loop_next(p, &outer)) {
    for (int64_t at = lo; at < hi; at += piece) {
      Num v[BATCH];
      p->lo[cut] = at, p->hi[cut] = min_i64(at + piece, hi);
      int64_t count = loop_points(p, &batch);
      node_values(p, p->plan->body, &batch, count, v);
      take_values(p, r, (int)count, v);
    }
    p->lo[cut] = lo, p->hi[cut] = hi;
  }
}

static bool is_direct(const Node *n) { return n->op == EX_READ && n->read->direct; }

void eval_nest(Point *p) {
  const Op *op = p->op;
  Held *h = out_held(p, 0);
  Loop inner = loop_range(op->space.nout, op->space.n);
  Results r = {.at = h->at, .d = out_dtype(p, 0), .each = loop_points(p, &inner)};
  if (h->n == 0) return;
  if (!is_result_box(p, h)) domain_fail(p->d, "the index space of rank %d is not the box of its result", p->rank);
  r.acc = r.identity = domain_identity(p->d->kind, r.d, op->reduce);
  if (op->reduce) r.fold = domain_reduce(p->d->kind, r.d, op->reduce);
  for (int64_t e = 0; e < h->n && r.each == 0; e++) h->at[e] = r.identity;
  if (r.each == 0 || p->d->failed) return;
  const Node *x = p->plan->body;
  if (op->reduce == RED_SUM && inner.n && x->op == EX_MUL && is_direct(x->arg[0]) && is_direct(x->arg[1]))
    return nest_products(p, &r, x->arg[0]->read, x->arg[1]->read);
  if (op->space.n > 0) return nest_batches(p, &r);
  Num v = node_value(p, p->plan->body);
  take_values(p, &r, 1, &v);
}

/* The indices that a scatter runs over: all but those that only stand for a row added to by value. */
static Loop scatter_loop(const Op *op) {
  Loop l = {0};
  for (int i = 0; i < op->space.n; i++) {
    bool stands_for_row = i < op->space.nout && ix_by_value(op->into[i]);
    if (!stands_for_row) l.index[l.n++] = i;
  }
  return l;
}

static void scatter_point(Point *p, Held *h, const Type *t, ScalarFn *add, bool skip_outside) {
  int64_t g[MAX_RANK];
  for (int k = 0; k < t->rank; k++) {
    g[k] = ix_value_at(p, p->op->into[k]);
    bool outside = g[k] < 0 || g[k] >= t->dim[k].size;
    if (outside && !skip_outside)
      domain_fail(p->d, "the value %lld is outside dim %d, which has %lld elements", (long long)g[k], k,
                  (long long)t->dim[k].size);
    if (outside) return;
  }
  int64_t at = held_place(h, g);
  if (at >= 0) h->at[at] = fit(p, t->dtype, add(p->d, h->at[at], node_value(p, p->plan->body)));
}

void eval_scatter(Point *p) {
  Held *h = out_held(p, 0);
  const Type *t = &p->run->m->values.at[p->op->out[0]].type;
  ScalarFn *add = domain_reduce(p->d->kind, t->dtype, RED_SUM);
  for (int64_t e = 0; e < h->n; e++) h->at[e] = domain_identity(p->d->kind, t->dtype, RED_SUM);
  Loop l = scatter_loop(p->op);
  for (bool go = loop_first(p, &l); go && !p->d->failed; go = loop_next(p, &l)) scatter_point(p, h, t, add, false);
}

/* Row-major number of the reduced indices in the whole range. */
static int64_t reduced_number(const Point *p) {
  int64_t at = 0;
  for (int i = p->op->space.nout; i < p->op->space.n; i++) at = at * p->op->space.idx[i].range + p->i[i];
  return at;
}

void eval_argmax(Point *p) {
  const Op *op = p->op;
  Held *h = out_held(p, 0);
  Loop outer = loop_range(0, op->space.nout), inner = loop_range(op->space.nout, op->space.n);
  ScalarFn *exceeds = domain_exceeds(p->d->kind, p->plan->body->dtype);
  for (bool go = loop_first(p, &outer); go && !p->d->failed; go = loop_next(p, &outer)) {
    Num best = {0};
    int64_t at = -1;
    for (bool more = loop_first(p, &inner); more; more = loop_next(p, &inner)) {
      Num v = node_value(p, p->plan->body);
      if (at >= 0 && !exceeds(p->d, v, best).i) continue;
      best = v;
      at = reduced_number(p);
    }
    *result_place(p, h) = (Num){.i = max_i64(at, 0)};
  }
}

typedef struct {
  Num value;
  int64_t index;
} Entry;

/* Keeps list[0..n) in descending order, earlier entries first among equals. */
static int insert_entry(Point *p, Entry *list, int n, int cap, Entry e) {
  ScalarFn *exceeds = domain_exceeds(p->d->kind, p->plan->body->dtype);
  int at = n;
  while (at > 0 && exceeds(p->d, e.value, list[at - 1].value).i) at--;
  if (at == cap) return n;
  int last = n < cap ? n : cap - 1;
  for (int i = last; i > at; i--) list[i] = list[i - 1];
  list[at] = e;
  return last + 1;
}

void eval_topk(Point *p) {
  const Op *op = p->op;
  int j = op->space.nout - 1, cap = (int)op->space.idx[j].range;
  Held *values = out_held(p, 0), *indices = out_held(p, 1);
  Loop outer = loop_range(0, j), inner = loop_range(op->space.nout, op->space.n);
  Entry *list = (Entry *)eval_scratch(p->run, 2 * (int64_t)cap); /* an Entry is two words */
  for (bool go = loop_first(p, &outer); go && !p->d->failed; go = loop_next(p, &outer)) {
    int n = 0;
    for (bool more = loop_first(p, &inner); more; more = loop_next(p, &inner))
      n = insert_entry(p, list, n, cap, (Entry){node_value(p, p->plan->body), reduced_number(p)});
    for (p->i[j] = p->lo[j]; p->i[j] < p->hi[j]; p->i[j]++) {
      if (p->i[j] >= n) domain_fail(p->d, "topk of %d from %d elements", cap, n);
      *result_place(p, values) = list[p->i[j]].value;
      *result_place(p, indices) = (Num){.i = list[p->i[j]].index};
    }
  }
}

void eval_scan(Point *p) {
  const Op *op = p->op;
  Held *h = out_held(p, 0);
  int t = op->along;
  Loop outer = {0};
  for (int i = 0; i < op->space.nout; i++)
    if (i != t) outer.index[outer.n++] = i;
  ScalarFn *add = domain_reduce(p->d->kind, out_dtype(p, 0), RED_SUM);
  for (bool go = loop_first(p, &outer); go && !p->d->failed; go = loop_next(p, &outer)) {
    Num acc = domain_identity(p->d->kind, out_dtype(p, 0), RED_SUM);
    for (int64_t s = 0; s < p->hi[t] - p->lo[t]; s++) {
      p->i[t] = op->reverse ? p->hi[t] - 1 - s : p->lo[t] + s;
      acc = add(p->d, acc, node_value(p, p->plan->body));
      *result_place(p, h) = fit(p, out_dtype(p, 0), acc);
    }
  }
}

void eval_random(Point *p) {
  const Op *op = p->op;
  const Type *t = &p->run->m->values.at[op->out[0]].type;
  Held *h = out_held(p, 0);
  int64_t counter[MAX_INDEX];
  int n = op->nin - 1;
  assert(n >= 0 && n <= MAX_INDEX && "a random op has the step, then at most MAX_INDEX counters");
  for (int i = 0; i < n; i++) counter[i] = held_of(p->run, op->in[1 + i], p->rank)->at[0].i;
  RandomSite s = random_site(p->run->o.seed, op->name, held_of(p->run, op->in[0], p->rank)->at[0].i, n, counter);
  double scale = op->init == INIT_NORMAL ? 1 : 0;
  for (int64_t e = 0; e < h->n; e++) {
    int64_t element = 0;
    for (int k = 0; k < t->rank; k++) element = element * t->dim[k].size + h->lo[k] + e / h->stride[k] % h->size[k];
    h->at[e] = domain_draw(p->d, t->dtype, op->init, s, (uint64_t)element, scale, 1);
  }
}
