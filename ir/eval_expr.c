/* eval_expr.c: bodies at points. A body is compiled once per op into nodes that know their scalar function; per
   rank its reads are bound to what the rank holds, and a read whose indices are affine and stay inside becomes one
   address computation:

     %x[2*b, t - 1] over t in [1, 4)   ->   base - 1 * stride_t + i_b * 2 * stride_b + i_t * stride_t

   The general read checks every index: outside the dim it is `else`, outside what the rank holds a fault.

   A body may be asked for its values at all points of a box at once: one walk down its nodes, each a short loop. */
#include "eval.h"

/* ---- compiling ---- */

typedef struct {
  EvalRun *r;
  const Op *op;
  Plan *plan;
} Compiler;

static Node *compile(Compiler *c, const Expr *x);

static Node *node_new(Compiler *c, ExprOp op, DType d) {
  Node *n = NEW(c->r->arena, Node);
  n->op = op;
  n->dtype = d;
  return n;
}

static Node *call(Compiler *c, ExprOp op, DType d, Node *x, Node *y) {
  Node *n = node_new(c, op, d);
  n->fn = domain_fn(c->r->d.kind, x->dtype, op);
  n->arg[0] = x;
  n->arg[1] = y;
  return n;
}

/* exp of x modulo p: what the text adds and subtracts becomes products and quotients. */
static Node *exponential(Compiler *c, const Expr *x) {
  DType d = x->dtype;
  switch (x->op) {
  case EX_SUB: return call(c, EX_DIV, d, exponential(c, x->arg[0]), exponential(c, x->arg[1]));
  case EX_ADD: return call(c, EX_MUL, d, exponential(c, x->arg[0]), exponential(c, x->arg[1]));
  case EX_STOP: return exponential(c, x->arg[0]);
  case EX_WHERE: {
    Node *n = node_new(c, EX_WHERE, d);
    n->arg[0] = compile(c, x->arg[0]);
    n->arg[1] = exponential(c, x->arg[1]);
    n->arg[2] = exponential(c, x->arg[2]);
    n->undecided = call(c, EX_EXP, d, compile(c, x), NULL);
    return n;
  }
  default: return call(c, EX_EXP, d, compile(c, x), NULL);
  }
}

static Read *read_new(Compiler *c, const Expr *x, ValueId v) {
  Read *r = NEW(c->r->arena, Read);
  r->expr = x;
  r->value = v;
  r->type = &c->r->m->values.at[v].type;
  vec_push(c->r->arena, c->plan->reads, r);
  return r;
}

static Node *compile_read(Compiler *c, const Expr *x) {
  const Op *op = c->op;
  Node *n = node_new(c, EX_READ, x->dtype);
  n->read = read_new(c, x, op->in[x->operand]);
  n->read->otherwise = x->otherwise ? compile(c, x->otherwise) : NULL;
  for (int i = 0; i < op->nwrt; i++)
    if (op->wrt[i] == x->operand) n->read->gradient = read_new(c, x, op->out[3 + i]);
  return n;
}

static Node *compile(Compiler *c, const Expr *x) {
  if (x->op == EX_READ) return compile_read(c, x);
  if (x->op == EX_EXP && c->r->d.kind == DOMAIN_MOD) return exponential(c, x->arg[0]);
  Node *n = node_new(c, x->op, x->dtype);
  if (x->op == EX_LITERAL) n->value = domain_literal(&c->r->d, x);
  if (x->op == EX_INDEX) n->ix = x->ix[0];
  for (int i = 0; i < 3 && x->arg[i]; i++) n->arg[i] = compile(c, x->arg[i]);
  bool special = x->op == EX_WHERE || x->op == EX_CAST || !n->arg[0];
  if (!special) n->fn = domain_fn(c->r->d.kind, n->arg[0]->dtype, x->op);
  return n;
}

static Plan *plan_compile(EvalRun *r, const Op *op) {
  Plan **slot = &r->plan[op->out[0]];
  if (*slot) return *slot;
  *slot = NEW(r->arena, Plan);
  Compiler c = {r, op, *slot};
  if (op->body) c.plan->body = compile(&c, op->body);
  for (int i = 0; i < op_reads(op); i++) c.plan->operand[i] = compile(&c, op->read[i]);
  for (int i = 0; i < 3 && op->kind == OP_ATTENTION_GRAD; i++)
    c.plan->operand[i]->read->gradient = read_new(&c, op->read[i], op->out[i]);
  return c.plan;
}

/* ---- index expressions ---- */

int64_t held_place(const Held *h, const int64_t *global) {
  int64_t at = 0;
  for (int k = 0; k < h->rank; k++) {
    int64_t local = global[k] - h->lo[k];
    if (local < 0 || local >= h->size[k]) return -1;
    at += local * h->stride[k];
  }
  return at;
}

static int64_t read_integer(Point *p, const Term *t) {
  int64_t g[MAX_RANK];
  for (int k = 0; k < t->nat; k++) g[k] = ix_value_at(p, t->at[k]);
  ValueId v = p->op->in[t->operand];
  const Held *h = held_of(p->run, v, p->rank);
  int64_t at = held_place(h, g);
  if (at >= 0) return h->at[at].i;
  domain_fail(p->d, "rank %d reads %%%s by value outside what it holds", p->rank, p->run->m->values.at[v].name);
  return 0;
}

static int64_t term_value(Point *p, const Term *t) {
  switch (t->kind) {
  case ATOM_INDEX: return p->i[t->index];
  case ATOM_DIV: return floor_div(ix_value_at(p, t->sub), t->k);
  case ATOM_MOD: return floor_mod(ix_value_at(p, t->sub), t->k);
  case ATOM_VALUE: return read_integer(p, t);
  }
  return 0;
}

int64_t ix_value_at(Point *p, const IExpr *x) {
  int64_t v = x->c;
  for (int i = 0; i < x->n; i++) v += x->term[i].coef * term_value(p, &x->term[i]);
  return v;
}

/* ---- binding ---- */

/* Adds the index of dim k to the read's address, if it is affine. */
static bool bind_dim(Read *r, const Point *p, int k) {
  const Held *h = r->held;
  const IExpr *x = r->expr->ix[k];
  int64_t min = x->c, max = x->c;
  for (int i = 0; i < x->n; i++) {
    const Term *t = &x->term[i];
    if (t->kind != ATOM_INDEX || r->n == MAX_INDEX) return false;
    int64_t a = t->coef * p->lo[t->index], b = t->coef * (p->hi[t->index] - 1);
    min += min_i64(a, b);
    max += max_i64(a, b);
    r->index[r->n] = t->index;
    r->stride[r->n++] = t->coef * h->stride[k];
  }
  r->base += (x->c - h->lo[k]) * h->stride[k];
  if (min < h->lo[k] || max >= h->lo[k] + h->size[k]) r->unsure[r->nunsure++] = k;
  return true;
}

static void bind(Read *r, const Point *p) {
  r->held = held_of(p->run, r->value, p->rank);
  r->n = r->nunsure = 0;
  r->base = 0;
  r->affine = true;
  for (int k = 0; k < r->held->rank && r->affine; k++) r->affine = bind_dim(r, p, k);
  r->direct = r->affine && r->nunsure == 0;
}

Point point_at(EvalRun *r, const Op *op, int rank) {
  Point p = {.run = r, .d = &r->d, .op = op, .plan = plan_compile(r, op), .rank = rank};
  for (int i = 0; i < op->space.n; i++) {
    const Index *x = &op->space.idx[i];
    p.hi[i] = x->range;
    if (r->o.ranks) split_range(&r->m->mesh, &x->split, x->range, rank, &p.lo[i], &p.hi[i]);
  }
  for (int i = 0; i < p.plan->reads.n; i++) bind(p.plan->reads.at[i], &p);
  return p;
}

/* ---- values ---- */

static Num zero(const Domain *d, DType of) { return domain_identity(d->kind, of, RED_SUM); }

/* A gather's table may be split along a dim read by value: the rank that holds the row contributes it, the
   others 0. What leaves the dim is `else` on the first of those ranks. */
static bool holds_first_part(const Point *p, const Read *r) {
  if (!p->run->o.ranks) return true;
  for (int k = 0; k < r->type->rank; k++)
    if (ix_by_value(r->expr->ix[k]) && split_coord(&p->run->m->mesh, &r->type->dim[k].split, p->rank) != 0) return false;
  return true;
}

static Num leaves_dim(Point *p, const Read *r, int k, int64_t g) {
  if (r->otherwise) return holds_first_part(p, r) ? node_value(p, r->otherwise) : zero(p->d, r->expr->dtype);
  domain_fail(p->d, "the value %lld is outside dim %d of %%%s, which has %lld elements", (long long)g, k,
              p->run->m->values.at[r->value].name, (long long)r->type->dim[k].size);
  return zero(p->d, r->expr->dtype);
}

int64_t direct_place(const Point *p, const Read *r) {
  int64_t at = r->base;
  for (int i = 0; i < r->n; i++) at += r->stride[i] * p->i[r->index[i]];
  return at;
}

int64_t read_step(const Read *r, int i) {
  int64_t step = 0;
  for (int k = 0; k < r->n; k++)
    if (r->index[k] == i) step += r->stride[k];
  return step;
}

/* Does it read what the rank holds, as far as its unsure dims go? */
static bool is_held(Point *p, const Read *r) {
  for (int i = 0; i < r->nunsure; i++) {
    int k = r->unsure[i];
    int64_t local = ix_value_at(p, r->expr->ix[k]) - r->held->lo[k];
    if (local < 0 || local >= r->held->size[k]) return false;
  }
  return true;
}

static Num read_value(Point *p, const Read *r) {
  if (r->affine && is_held(p, r)) return r->held->at[direct_place(p, r)];
  int64_t g[MAX_RANK];
  for (int k = 0; k < r->held->rank; k++) {
    g[k] = ix_value_at(p, r->expr->ix[k]);
    if (g[k] < 0 || g[k] >= r->type->dim[k].size) return leaves_dim(p, r, k, g[k]);
  }
  int64_t at = held_place(r->held, g);
  if (at >= 0) return r->held->at[at];
  for (int k = 0; k < r->held->rank; k++) {
    bool outside = g[k] < r->held->lo[k] || g[k] >= r->held->lo[k] + r->held->size[k];
    if (outside && !(p->op->kind == OP_GATHER && ix_by_value(r->expr->ix[k])))
      domain_fail(p->d, "rank %d reads element %lld of dim %d of %%%s, but holds [%lld, %lld)", p->rank, (long long)g[k], k,
                  p->run->m->values.at[r->value].name, (long long)r->held->lo[k], (long long)(r->held->lo[k] + r->held->size[k]));
  }
  return zero(p->d, r->expr->dtype);
}

/* Only the branch that is taken, if one is. */
static Num where_value(Point *p, const Node *n) {
  Num truth = node_value(p, n->arg[0]);
  if (p->d->kind != DOMAIN_MOD || truth.i == 0 || truth.i == 1) return node_value(p, n->arg[truth.i ? 1 : 2]);
  if (n->undecided) return node_value(p, n->undecided);
  return domain_where(p->d, n->dtype, truth, node_value(p, n->arg[1]), node_value(p, n->arg[2]));
}

Num node_value(Point *p, const Node *n) {
  switch (n->op) {
  case EX_LITERAL: return n->value;
  case EX_INDEX: return (Num){.i = ix_value_at(p, n->ix)};
  case EX_READ: return read_value(p, n->read);
  case EX_DOT: return p->dot;
  case EX_WHERE: return where_value(p, n);
  case EX_CAST: return domain_cast(p->d, n->arg[0]->dtype, n->dtype, node_value(p, n->arg[0]));
  default: break;
  }
  Num a = node_value(p, n->arg[0]);
  return n->fn(p->d, a, n->arg[1] ? node_value(p, n->arg[1]) : (Num){0});
}

/* ---- values at many points ---- */

static void value_each(Point *p, const Node *n, const Loop *l, Num *out) {
  for (bool go = loop_first(p, l); go; go = loop_next(p, l)) *out++ = node_value(p, n);
}

static Num *copy_points(const Num *from, int n, const int64_t *count, const int64_t *step, Num *out) {
  if (n == 0) {
    *out = *from;
    return out + 1;
  }
  for (int64_t i = 0; i < *count; i++, from += *step) {
    if (n == 1)
      *out++ = *from;
    else
      out = copy_points(from, n - 1, count + 1, step + 1, out);
  }
  return out;
}

static void read_values(Point *p, const Read *r, const Loop *l, Num *out) {
  int64_t count[MAX_INDEX], step[MAX_INDEX];
  loop_first(p, l);
  for (int k = 0; k < l->n; k++) {
    count[k] = p->hi[l->index[k]] - p->lo[l->index[k]];
    step[k] = read_step(r, l->index[k]);
  }
  copy_points(r->held->at + direct_place(p, r), l->n, count, step, out);
}

static void apply_second(Point *p, const Node *n, const Loop *l, int64_t count, Num *out) {
  Num second[BATCH];
  node_values(p, n->arg[1], l, count, second);
  for (int i = 0; i < count; i++) out[i] = n->fn(p->d, out[i], second[i]);
}

void node_values(Point *p, const Node *n, const Loop *l, int64_t count, Num *out) {
  if (n->op == EX_LITERAL) {
    for (int i = 0; i < count; i++) out[i] = n->value;
    return;
  }
  if (n->op == EX_READ && n->read->direct) return read_values(p, n->read, l, out);
  bool single = n->op == EX_READ || n->op == EX_INDEX || n->op == EX_DOT || n->op == EX_WHERE;
  if (single || count > BATCH) return value_each(p, n, l, out);
  node_values(p, n->arg[0], l, count, out);
  if (n->op == EX_CAST)
    for (int i = 0; i < count; i++) out[i] = domain_cast(p->d, n->arg[0]->dtype, n->dtype, out[i]);
  else if (n->arg[1])
    apply_second(p, n, l, count, out);
  else
    for (int i = 0; i < count; i++) out[i] = n->fn(p->d, out[i], (Num){0});
}

static int64_t read_place(Point *p, const Read *r) {
  if (r->affine) return is_held(p, r) ? direct_place(p, r) : -1;
  int64_t g[MAX_RANK];
  for (int k = 0; k < r->held->rank; k++) g[k] = ix_value_at(p, r->expr->ix[k]);
  return held_place(r->held, g);
}

void read_add(Point *p, const Read *r, const Loop *l, const Num *v) {
  ScalarFn *add = domain_fn(p->d->kind, r->type->dtype, EX_ADD);
  for (bool go = loop_first(p, l); go; go = loop_next(p, l), v++) {
    int64_t at = read_place(p, r);
    if (at >= 0) r->held->at[at] = add(p->d, r->held->at[at], *v);
  }
}

/* ---- loops ---- */

int64_t loop_points(const Point *p, const Loop *l) {
  int64_t n = 1;
  for (int k = 0; k < l->n; k++) n *= max_i64(0, p->hi[l->index[k]] - p->lo[l->index[k]]);
  return n;
}

Loop loop_range(int from, int to) {
  Loop l = {.n = to - from};
  for (int k = 0; k < l.n; k++) l.index[k] = from + k;
  return l;
}

bool loop_first(Point *p, const Loop *l) {
  for (int k = 0; k < l->n; k++) {
    int i = l->index[k];
    if (p->lo[i] >= p->hi[i]) return false;
    p->i[i] = p->lo[i];
  }
  return true;
}

bool loop_next(Point *p, const Loop *l) {
  for (int k = l->n - 1; k >= 0; k--) {
    int i = l->index[k];
    if (++p->i[i] < p->hi[i]) return true;
    p->i[i] = p->lo[i];
  }
  return false;
}
