/* eval_attention.c: attention and its gradient as their definitions say, with all scores of a row kept:

     row    = the result indices that q, k or the score use; the others (usually one) run over v's features
     s[u]   = score with dot = sum over the contracted indices of q * k
     p[u]   = exp(s[u] - max s) / sum of the same,   lse = max s + log(sum)       a row of only -inf: 0, -inf
     a[e]   = sum over u of p[u] * v[u,e]

   and backwards, with p[u] = exp(s[u] - lse) and da the gradient of a:

     dv[u,e] += p[u] * da[e]
     ds[u]    = p[u] * (sum over e of da[e] * v[u,e] - sum over e of da[e] * a[e])
     dq, dk and the gradients of what the score reads: ds times the score's derivative, by one walk down the body.

   Every contribution is added where its operand is read, if that place is in this rank's box of the gradient. */
#include "eval.h"

typedef struct {
  Loop rows, features, keys, dots;
  int64_t nkeys, ndots;
  Num *score, *weight, *slope, *dot, *v; /* per key, v of one feature */
  Num *q, *k, *dq;                       /* per contracted point; k per key and point */
  DType d;
  ScalarFn *add, *sub, *mul, *div, *max;
} Attention;

enum { READ_Q, READ_K, READ_V, READ_A, READ_LSE, READ_DA };

static Attention attention_of(Point *p) {
  const Op *op = p->op;
  Attention a = {.d = op->read[READ_V]->dtype};
  bool row[MAX_INDEX] = {false};
  a.rows.n = attention_rows(op, a.rows.index);
  for (int i = 0; i < a.rows.n; i++) row[a.rows.index[i]] = true;
  for (int i = 0; i < op->space.nout; i++)
    if (!row[i]) a.features.index[a.features.n++] = i;
  a.keys = loop_range(op->space.nout, op->space.nout + op->nkey);
  a.dots = loop_range(op->space.nout + op->nkey, op->space.n);
  a.nkeys = loop_points(p, &a.keys), a.ndots = loop_points(p, &a.dots);
  Num *scratch = eval_scratch(p->run, 5 * a.nkeys + (2 + a.nkeys) * a.ndots);
  a.score = scratch, a.weight = a.score + a.nkeys, a.slope = a.weight + a.nkeys, a.dot = a.slope + a.nkeys;
  a.v = a.dot + a.nkeys, a.q = a.v + a.nkeys, a.dq = a.q + a.ndots, a.k = a.dq + a.ndots;
  DomainKind k = p->d->kind;
  a.add = domain_fn(k, a.d, EX_ADD), a.sub = domain_fn(k, a.d, EX_SUB), a.mul = domain_fn(k, a.d, EX_MUL);
  a.div = domain_fn(k, a.d, EX_DIV), a.max = domain_fn(k, a.d, EX_MAX);
  return a;
}

static Num operand(Point *p, int read) { return node_value(p, p->plan->operand[read]); }

static Num zero(const Point *p, DType d) { return domain_identity(p->d->kind, d, RED_SUM); }

static void operands(Point *p, int read, const Loop *l, int64_t count, Num *out) {
  if (count) node_values(p, p->plan->operand[read], l, count, out);
}

/* Fills q, k, dot and score, and returns the largest. */
static Num find_scores(Point *p, const Attention *a) {
  Num top = domain_identity(p->d->kind, a->d, RED_MAX);
  int64_t u = 0;
  operands(p, READ_Q, &a->dots, a->ndots, a->q); /* the same for all keys */
  for (bool go = loop_first(p, &a->keys); go; go = loop_next(p, &a->keys), u++) {
    Num *k = a->k + u * a->ndots;
    operands(p, READ_K, &a->dots, a->ndots, k);
    a->dot[u] = p->dot = domain_add_products(p->d, a->d, zero(p, a->d), (int)a->ndots, a->q, k);
    a->score[u] = node_value(p, p->plan->body);
    top = a->max(p->d, top, a->score[u]);
  }
  return top;
}

static Num *row_place(Point *p, const Attention *a, Held *lse) {
  int64_t g[MAX_RANK];
  for (int k = 0; k < a->rows.n; k++) g[k] = p->i[a->rows.index[k]];
  int64_t at = held_place(lse, g);
  if (at < 0) internal_error("%s: lse is not split as the rows are", eval_where(p->run, p->op));
  return &lse->at[at];
}

static void attend_row(Point *p, Attention *a) {
  Held *out = held_of(p->run, p->op->out[0], p->rank), *lse = held_of(p->run, p->op->out[1], p->rank);
  Num none = domain_identity(p->d->kind, a->d, RED_MAX), top = find_scores(p, a), sum = zero(p, a->d);
  bool empty = domain_equal(p->d->kind, a->d, top, none);
  for (int64_t u = 0; u < a->nkeys && !empty; u++) {
    a->weight[u] = domain_exp_difference(p->d, a->score[u], top);
    sum = a->add(p->d, sum, a->weight[u]);
  }
  Num log_sum = empty ? zero(p, a->d) : domain_fn(p->d->kind, a->d, EX_LOG)(p->d, sum, (Num){0});
  *row_place(p, a, lse) = empty ? none : a->add(p->d, top, log_sum);
  for (bool go = loop_first(p, &a->features); go; go = loop_next(p, &a->features)) {
    Num acc = zero(p, a->d);
    operands(p, READ_V, &a->keys, a->nkeys, a->v);
    if (!empty) acc = domain_add_products(p->d, a->d, acc, (int)a->nkeys, a->weight, a->v);
    int64_t at = held_place(out, p->i);
    if (at < 0) internal_error("%s: the result is not split as its indices are", eval_where(p->run, p->op));
    out->at[at] = empty ? acc : a->div(p->d, acc, sum);
  }
}

void eval_attention(Point *p) {
  Attention a = attention_of(p);
  for (bool go = loop_first(p, &a.rows); go && !p->d->failed; go = loop_next(p, &a.rows)) attend_row(p, &a);
}

/* ---- gradient ---- */

static void add_at(Point *p, int result, const Expr *read, Num g) {
  const Op *op = p->op;
  Num *at = node_place(p, read, held_of(p->run, op->out[result], p->rank));
  if (at) *at = domain_fn(p->d->kind, read->dtype, EX_ADD)(p->d, *at, g);
}

typedef struct {
  Point *p;
  const Attention *a;
  Num dot_slope;
} Walk;

static Num fn1(Walk *w, ExprOp op, Num x) { return domain_fn(w->p->d->kind, w->a->d, op)(w->p->d, x, (Num){0}); }
static Num fn2(Walk *w, ExprOp op, Num x, Num y) { return domain_fn(w->p->d->kind, w->a->d, op)(w->p->d, x, y); }

static void walk(Walk *w, const Node *n, Num g);

static void walk_read(Walk *w, const Node *n, Num g) {
  const Op *op = w->p->op;
  const Expr *x = n->read->expr;
  for (int k = 0; k < x->nix; k++) {
    int64_t at = ix_value_at(w->p, x->ix[k]);
    if (at >= 0 && at < n->read->type->dim[k].size) continue;
    if (n->read->otherwise) walk(w, n->read->otherwise, g);
    return;
  }
  for (int i = 0; i < op->nwrt; i++)
    if (op->wrt[i] == x->operand) add_at(w->p, 3 + i, x, g);
}

/* The derivative at u of a function of one number with value y, where it has one. */
static bool slope(Walk *w, ExprOp op, Num u, Num y, Num *out) {
#define LIT(v) domain_real(w->p->d, v)
#define D1(op, x) fn1(w, EX_##op, x)
#define D2(op, x, y) fn2(w, EX_##op, x, y)
#define FN(op, name, value, f32, f64, slope)                                                                                     \
  case EX_##op: return *out = slope, true;
  switch (op) {
#include "ir/functions.def"
  default: return false;
  }
}

static void walk_product(Walk *w, const Node *n, Num g) {
  Num x = node_value(w->p, n->arg[0]), y = node_value(w->p, n->arg[1]);
  if (n->op == EX_MUL) {
    walk(w, n->arg[0], fn2(w, EX_MUL, g, y));
    walk(w, n->arg[1], fn2(w, EX_MUL, g, x));
  } else if (n->op == EX_DIV) {
    walk(w, n->arg[0], fn2(w, EX_DIV, g, y));
    walk(w, n->arg[1], fn1(w, EX_NEG, fn2(w, EX_DIV, fn2(w, EX_MUL, g, x), fn2(w, EX_MUL, y, y))));
  } else { /* pow: the exponent is a constant */
    Num less = fn2(w, EX_SUB, y, domain_real(w->p->d, 1));
    walk(w, n->arg[0], fn2(w, EX_MUL, fn2(w, EX_MUL, g, y), fn2(w, EX_POW, x, less)));
  }
}

static void walk_branches(Walk *w, Num truth, const Node *yes, const Node *no, Num g) {
  Num none = zero(w->p, w->a->d);
  if (truth.i != 0) walk(w, yes, domain_where(w->p->d, w->a->d, truth, g, none));
  if (truth.i != 1) walk(w, no, domain_where(w->p->d, w->a->d, truth, none, g));
}

/* Carries the gradient g of node n down to what the score reads. */
static void walk(Walk *w, const Node *n, Num g) {
  Num x, factor;
  switch (n->op) {
  case EX_READ: walk_read(w, n, g); return;
  case EX_DOT: w->dot_slope = fn2(w, EX_ADD, w->dot_slope, g); return;
  case EX_LITERAL:
  case EX_INDEX:
  case EX_STOP:
  case EX_FLOOR: return;
  case EX_ADD: walk(w, n->arg[0], g), walk(w, n->arg[1], g); return;
  case EX_SUB: walk(w, n->arg[0], g), walk(w, n->arg[1], fn1(w, EX_NEG, g)); return;
  case EX_NEG: walk(w, n->arg[0], fn1(w, EX_NEG, g)); return;
  case EX_MUL:
  case EX_DIV:
  case EX_POW: walk_product(w, n, g); return;
  case EX_WHERE: walk_branches(w, node_value(w->p, n->arg[0]), n->arg[1], n->arg[2], g); return;
  case EX_MAX:
  case EX_MIN: { /* ties go to the first */
    Num a = node_value(w->p, n->arg[0]), b = node_value(w->p, n->arg[1]);
    walk_branches(w, fn2(w, n->op == EX_MAX ? EX_GE : EX_LE, a, b), n->arg[0], n->arg[1], g);
    return;
  }
  case EX_ABS: {
    Num none = zero(w->p, w->a->d);
    x = node_value(w->p, n->arg[0]);
    factor = domain_where(w->p->d, w->a->d, fn2(w, EX_LT, x, none), fn1(w, EX_NEG, g), none);
    walk(w, n->arg[0], domain_where(w->p->d, w->a->d, fn2(w, EX_GT, x, none), g, factor));
    return;
  }
  case EX_CAST:
    if (!dtype_is_int(n->arg[0]->dtype) && !dtype_is_int(n->dtype)) walk(w, n->arg[0], g);
    return;
  default:
    x = node_value(w->p, n->arg[0]);
    if (slope(w, n->op, x, node_value(w->p, n), &factor)) walk(w, n->arg[0], fn2(w, EX_MUL, g, factor));
  }
}

/* weight[u] = p[u], and v's gradient; slope[u] = sum over e of da[e] * v[u,e]. Returns sum of da[e] * a[e]. */
static Num find_slopes(Point *p, Attention *a) {
  Num lse = operand(p, READ_LSE), mean = zero(p, a->d);
  for (int64_t u = 0; u < a->nkeys; u++) {
    a->weight[u] = domain_exp_difference(p->d, a->score[u], lse);
    a->slope[u] = zero(p, a->d);
  }
  for (bool go = loop_first(p, &a->features); go; go = loop_next(p, &a->features)) {
    Num da = operand(p, READ_DA);
    mean = a->add(p->d, mean, a->mul(p->d, da, operand(p, READ_A)));
    int64_t u = 0;
    operands(p, READ_V, &a->keys, a->nkeys, a->v);
    for (bool more = loop_first(p, &a->keys); more; more = loop_next(p, &a->keys), u++) {
      a->slope[u] = a->add(p->d, a->slope[u], a->mul(p->d, da, a->v[u]));
      add_at(p, READ_V, p->op->read[READ_V], a->mul(p->d, a->weight[u], da));
    }
  }
  return mean;
}

static void attend_row_back(Point *p, Attention *a) {
  Num none = domain_identity(p->d->kind, a->d, RED_MAX);
  find_scores(p, a);
  Num mean = find_slopes(p, a);
  int64_t u = 0, c = 0;
  for (int64_t i = 0; i < a->ndots; i++) a->dq[i] = zero(p, a->d);
  for (bool go = loop_first(p, &a->keys); go; go = loop_next(p, &a->keys), u++) {
    if (domain_equal(p->d->kind, a->d, a->score[u], none)) continue;
    p->dot = a->dot[u];
    Walk w = {p, a, zero(p, a->d)};
    walk(&w, p->plan->body, a->mul(p->d, a->weight[u], a->sub(p->d, a->slope[u], mean)));
    c = 0;
    for (bool more = loop_first(p, &a->dots); more; more = loop_next(p, &a->dots), c++) {
      a->dq[c] = a->add(p->d, a->dq[c], a->mul(p->d, w.dot_slope, a->k[u * a->ndots + c]));
      add_at(p, READ_K, p->op->read[READ_K], a->mul(p->d, w.dot_slope, a->q[c]));
    }
  }
  c = 0;
  for (bool go = loop_first(p, &a->dots); go; go = loop_next(p, &a->dots), c++) add_at(p, READ_Q, p->op->read[READ_Q], a->dq[c]);
}

void eval_attention_grad(Point *p) {
  Attention a = attention_of(p);
  for (int i = 0; i < p->op->nout; i++) {
    Held *h = held_of(p->run, p->op->out[i], p->rank);
    DType d = p->run->m->values.at[p->op->out[i]].type.dtype;
    for (int64_t e = 0; e < h->n; e++) h->at[e] = zero(p, d);
  }
  for (bool go = loop_first(p, &a.rows); go && !p->d->failed; go = loop_next(p, &a.rows)) attend_row_back(p, &a);
}
