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
  Loop rows, features, keys, dots, keys_features, keys_dots;
  int64_t nfeatures, nkeys, ndots;
  Num *score, *weight, *dot; /* per key */
  Num *v, *a, *da, *dv;      /* per feature; v per key, too */
  Num *k, *q, *dq, *dk;      /* per contracted point; k per key, too */
  DType d;
  ScalarFn *add, *sub, *mul, *div, *max;
} Attention;

enum { READ_Q, READ_K, READ_V, READ_A, READ_LSE, READ_DA };

static Num *part(Num **rest, int64_t n) {
  Num *at = *rest;
  *rest += n;
  return at;
}

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
  a.keys_dots = loop_range(op->space.nout, op->space.n);
  a.keys_features = a.keys;
  for (int i = 0; i < a.features.n; i++) a.keys_features.index[a.keys_features.n++] = a.features.index[i];
  a.nfeatures = loop_points(p, &a.features), a.nkeys = loop_points(p, &a.keys), a.ndots = loop_points(p, &a.dots);
  Num *rest = eval_scratch(p->run, 3 * a.nkeys + (a.nkeys + 3) * (a.nfeatures + a.ndots));
  a.score = part(&rest, a.nkeys), a.weight = part(&rest, a.nkeys), a.dot = part(&rest, a.nkeys);
  a.v = part(&rest, a.nkeys * a.nfeatures), a.k = part(&rest, a.nkeys * a.ndots);
  a.a = part(&rest, a.nfeatures), a.da = part(&rest, a.nfeatures), a.dv = part(&rest, a.nfeatures);
  a.q = part(&rest, a.ndots), a.dq = part(&rest, a.ndots), a.dk = part(&rest, a.ndots);
  DomainKind kind = p->d->kind;
  a.add = domain_fn(kind, a.d, EX_ADD), a.sub = domain_fn(kind, a.d, EX_SUB), a.mul = domain_fn(kind, a.d, EX_MUL);
  a.div = domain_fn(kind, a.d, EX_DIV), a.max = domain_fn(kind, a.d, EX_MAX);
  return a;
}

static Num operand(Point *p, int read) { return node_value(p, p->plan->operand[read]); }

static Num zero(const Point *p, DType d) { return domain_identity(p->d->kind, d, RED_SUM); }

static void operands(Point *p, int read, const Loop *l, int64_t count, Num *out) {
  if (count) node_values(p, p->plan->operand[read], l, count, out);
}

/* The sum of x[i] * y[i * step]. */
static Num products(Point *p, const Attention *a, int64_t n, const Num *x, const Num *y, int64_t step) {
  return domain_add_products(p->d, a->d, zero(p, a->d), n, (Strip){x, 1}, (Strip){y, step});
}

/* Fills q, k, dot and score, and returns the largest. */
static Num find_scores(Point *p, const Attention *a) {
  Num top = domain_identity(p->d->kind, a->d, RED_MAX);
  int64_t u = 0;
  operands(p, READ_Q, &a->dots, a->ndots, a->q);
  operands(p, READ_K, &a->keys_dots, a->nkeys * a->ndots, a->k);
  for (bool go = loop_first(p, &a->keys); go; go = loop_next(p, &a->keys), u++) {
    a->dot[u] = p->dot = products(p, a, a->ndots, a->q, a->k + u * a->ndots, 1);
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
  operands(p, READ_V, &a->keys_features, a->nkeys * a->nfeatures, a->v);
  int64_t e = 0;
  for (bool go = loop_first(p, &a->features); go; go = loop_next(p, &a->features), e++) {
    int64_t at = held_place(out, p->i);
    if (at < 0) internal_error("%s: the result is not split as its indices are", eval_where(p->run, p->op));
    out->at[at] = empty ? zero(p, a->d) : a->div(p->d, products(p, a, a->nkeys, a->weight, a->v + e, a->nfeatures), sum);
  }
}

void eval_attention(Point *p) {
  Attention a = attention_of(p);
  for (bool go = loop_first(p, &a.rows); go && !p->d->failed; go = loop_next(p, &a.rows)) attend_row(p, &a);
}

/* ---- gradient ---- */

typedef struct {
  Point *p;
  const Attention *a;
  Num dot_slope;
} Walk;

static Num fn1(Walk *w, ExprOp op, Num x) { return domain_fn(w->p->d->kind, w->a->d, op)(w->p->d, x, (Num){0}); }
static Num fn2(Walk *w, ExprOp op, Num x, Num y) { return domain_fn(w->p->d->kind, w->a->d, op)(w->p->d, x, y); }

static void walk(Walk *w, const Node *n, Num g);

static void walk_read(Walk *w, const Node *n, Num g) {
  static const Loop HERE = {0};
  const Expr *x = n->read->expr;
  for (int k = 0; k < x->nix; k++) {
    int64_t at = ix_value_at(w->p, x->ix[k]);
    if (at >= 0 && at < n->read->type->dim[k].size) continue;
    if (n->read->otherwise) walk(w, n->read->otherwise, g);
    return;
  }
  if (n->read->gradient) read_add(w->p, n->read->gradient, &HERE, &g);
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

static void add_all(Point *p, int read, const Loop *l, const Num *v) {
  read_add(p, p->plan->operand[read]->read->gradient, l, v);
}

/* Of the key where p stands, the u-th: its part of q's, k's and v's gradients and of those of what the score reads. */
static void attend_key_back(Point *p, Attention *a, int64_t u, Num lse, Num mean) {
  Walk w = {p, a, zero(p, a->d)};
  Num weight = domain_exp_difference(p->d, a->score[u], lse);
  Num slope = a->sub(p->d, products(p, a, a->nfeatures, a->da, a->v + u * a->nfeatures, 1), mean);
  for (int64_t e = 0; e < a->nfeatures; e++) a->dv[e] = a->mul(p->d, weight, a->da[e]);
  add_all(p, READ_V, &a->features, a->dv);
  p->dot = a->dot[u];
  walk(&w, p->plan->body, a->mul(p->d, weight, slope));
  for (int64_t c = 0; c < a->ndots; c++) {
    a->dq[c] = a->add(p->d, a->dq[c], a->mul(p->d, w.dot_slope, a->k[u * a->ndots + c]));
    a->dk[c] = a->mul(p->d, w.dot_slope, a->q[c]);
  }
  add_all(p, READ_K, &a->dots, a->dk);
}

static void attend_row_back(Point *p, Attention *a) {
  Num none = domain_identity(p->d->kind, a->d, RED_MAX), nothing = zero(p, a->d), lse = operand(p, READ_LSE);
  find_scores(p, a);
  operands(p, READ_A, &a->features, a->nfeatures, a->a);
  operands(p, READ_DA, &a->features, a->nfeatures, a->da);
  operands(p, READ_V, &a->keys_features, a->nkeys * a->nfeatures, a->v);
  Num mean = products(p, a, a->nfeatures, a->da, a->a, 1);
  int64_t u = 0;
  for (int64_t c = 0; c < a->ndots; c++) a->dq[c] = nothing;
  for (bool go = loop_first(p, &a->keys); go; go = loop_next(p, &a->keys), u++)
    if (!domain_equal(p->d->kind, a->d, a->score[u], none)) attend_key_back(p, a, u, lse, mean); /* a masked k may be NaN */
  add_all(p, READ_Q, &a->dots, a->dq);
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
