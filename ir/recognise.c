/* recognise.c: the pass `recognise` finds softmax attention in what the statements were lowered to and makes it one
   op, whose scores need not be stored and whose gradient has an op of its own:

     %s.sum[b,h,t,u] = nest sum[k] %q[b,t,h,k] * %k[b,u,h,k]
     %s[b,h,t,u]     = nest where(idx(u) <= idx(t), %s.sum[b,h,t,u] / 8.0, -inf)
     %e[b,t,h,u]     = nest exp(%s[b,h,t,u] - shift)        the shift does not use u
     %z[b,t,h]       = nest sum[u] %e[b,t,h,u]
     %p[b,t,h,u]     = nest where(%z[b,t,h] > 0.0, %e[b,t,h,u] / %z[b,t,h], 0.0)
     %a[b,t,h,k]     = nest sum[u] %p[b,t,h,u] * %v[b,u,h,k]
   becomes
     %a[b,t,h,k], %a.lse[b,t,h] = attention keys[u] dot[k1] q %q[b,t,h,k1] k %k[b,u,h,k1] v %v[b,u,h,k]
                                  score where(idx(u) <= idx(t), dot / 8.0, -inf)

   Softmax does not change when its argument is shifted by what is the same for all keys, so any shift will do. Maps
   between the product and the softmax move into the score; other reads there (biases, masks) stay reads. Where values
   are multiplied by a softmax that is not of this form, a note says why. */
#include "ir/ir.h"

enum { MAX_STEPS = 1000 }; /* maps looked through for one op */

typedef VEC(ValueId) ValueList;

/* Expressions here are over the indices of `sum`, and an operand number is a ValueId. */
typedef struct {
  Module *m;
  Arena *a;
  Op *sum;         /* the sum of softmax times values */
  const char *why; /* it was softmax, but not attention: the reason; else NULL */
  int steps;
  Expr *weight, *value; /* its two factors */
  Expr *q, *k;
  const Op *product; /* of queries and keys */
  Space space;       /* of the attention */
} Match;

static bool is_key(const Match *s, int i) { return i >= s->sum->space.nout; }

static bool uses_keys(const Match *s, const Expr *x) {
  for (int i = s->sum->space.nout; i < s->sum->space.n; i++)
    if (ex_uses(x, i)) return true;
  return false;
}

static const Op *def_of(const Match *s, const Expr *x, Reduce reduce) {
  const Op *d = x->op == EX_READ && !x->otherwise ? s->m->values.at[x->operand].def : NULL;
  return d && d->kind == OP_NEST && d->reduce == reduce ? d : NULL;
}

/* What the map or sum that x reads computes there; the sum's own indices are by[nout ..). */
static Expr *body_at(Match *s, const Expr *x, const Op *def, IExpr *const *reduced) {
  IExpr *by[MAX_INDEX] = {0};
  for (int i = 0; i < def->space.n; i++) by[i] = i < def->space.nout ? x->ix[i] : reduced[i - def->space.nout];
  return ex_substitute(s->a, def->body, by, def->in);
}

/* Looks through maps that x only reads. */
static Expr *open_maps(Match *s, Expr *x) {
  const Op *d;
  while ((d = def_of(s, x, RED_NONE)) && s->steps++ < MAX_STEPS) x = body_at(s, x, d, NULL);
  return x;
}

static bool fail(Match *s, const char *why) {
  s->why = why;
  return false;
}

/* ---- softmax ------------------------------------------------------------------------------------------------------ */

/* z sums the very exponentials e over all keys: `sum[u] %e[b,t,u]` read at b, t beside %e[b,t,u]. */
static bool is_norm(Match *s, const Expr *z, const Expr *e) {
  const Op *d = def_of(s, z, RED_SUM);
  int nkey = s->sum->space.n - s->sum->space.nout;
  if (!d || d->body->op != EX_READ || d->body->otherwise || d->in[d->body->operand] != e->operand) return false;
  if (d->space.n - d->space.nout != nkey || uses_keys(s, z)) return false;
  bool summed[MAX_INDEX] = {false};
  for (int i = 0; i < e->nix; i++) {
    int at = ix_single(d->body->ix[i]), key = ix_single(e->ix[i]);
    if (at < 0) return false;
    if (at < d->space.nout && !ix_equal(z->ix[at], e->ix[i])) return false;
    if (at < d->space.nout) continue;
    if (key < 0 || !is_key(s, key) || summed[key] || s->sum->space.idx[key].range != d->space.idx[at].range) return false;
    summed[key] = true;
    nkey--;
  }
  return nkey == 0;
}

/* weight = where(z > 0, e / z, 0) or e / z; e = exp(score - shift) or exp(score). The score, or NULL. */
static Expr *softmax_score(Match *s) {
  Expr *p = open_maps(s, s->weight), *guard = NULL;
  if (p->op == EX_WHERE && ex_is_lit(p->arg[2], 0)) guard = p->arg[0], p = open_maps(s, p->arg[1]);
  if (p->op != EX_DIV || p->arg[0]->op != EX_READ || p->arg[1]->op != EX_READ) return NULL;
  Expr *e = p->arg[0], *z = p->arg[1], *x = open_maps(s, e);
  if (x->op != EX_EXP || !is_norm(s, z, e)) return NULL;
  if (guard && (guard->op != EX_GT || !ex_equal(guard->arg[0], z) || !ex_is_lit(guard->arg[1], 0)))
    return fail(s, "its softmax has a condition of its own"), NULL;
  x = x->arg[0];
  bool shifted = x->op == EX_SUB && !uses_keys(s, x->arg[1]);
  return shifted ? x->arg[0] : x;
}

/* ---- score ---------------------------------------------------------------------------------------------------------- */

static bool plain_indices(const Expr *x) {
  for (int i = 0; i < x->nix; i++)
    if (ix_single(x->ix[i]) < 0) return false;
  return x->op == EX_READ && !x->otherwise;
}

/* If x reads a sum of products of queries (which do not use keys) and keys: notes both. */
static bool is_dot(Match *s, const Expr *x) {
  const Op *d = def_of(s, x, RED_SUM);
  if (!d || d->body->op != EX_MUL || d->body->arg[0]->op != EX_READ || d->body->arg[1]->op != EX_READ) return false;
  int first = s->sum->space.n, ndot = d->space.n - d->space.nout;
  if (first + ndot > MAX_INDEX) return false;
  IExpr *dot[MAX_INDEX];
  for (int i = 0; i < ndot; i++) dot[i] = ix_index(s->a, first + i);
  Expr *both = body_at(s, x, d, dot);
  int k = uses_keys(s, both->arg[1]) ? 1 : 0;
  Expr *query = both->arg[1 - k], *key = both->arg[k];
  if (uses_keys(s, query) || !uses_keys(s, key) || !plain_indices(query) || !plain_indices(key)) return false;
  if (s->product && !(ex_equal(s->q, query) && ex_equal(s->k, key))) return false;
  s->product = d, s->q = query, s->k = key;
  return true;
}

static bool leads_to_dot(Match *s, const Expr *x);

static bool any_leads_to_dot(Match *s, const Expr *x) {
  if (x->op == EX_READ) return leads_to_dot(s, x);
  for (int i = 0; i < 3; i++)
    if (x->arg[i] && any_leads_to_dot(s, x->arg[i])) return true;
  return false;
}

static bool leads_to_dot(Match *s, const Expr *x) {
  if (is_dot(s, x)) return true;
  const Op *d = def_of(s, x, RED_NONE);
  return d && s->steps++ < MAX_STEPS && any_leads_to_dot(s, body_at(s, x, d, NULL));
}

/* Does x, maps looked through, read nothing? Masks made of indices alone belong into the score. */
static bool reads_nothing(Match *s, const Expr *x) {
  if (x->op == EX_READ) {
    const Op *d = def_of(s, x, RED_NONE);
    return d && s->steps++ < MAX_STEPS && reads_nothing(s, body_at(s, x, d, NULL));
  }
  for (int i = 0; i < 3; i++)
    if (x->arg[i] && !reads_nothing(s, x->arg[i])) return false;
  return true;
}

/* x with the product as EX_DOT and the maps on the way to it opened. */
static Expr *score_of(Match *s, Expr *x) {
  if (x->op == EX_READ && is_dot(s, x)) {
    Expr *dot = NEW(s->a, Expr);
    dot->op = EX_DOT;
    dot->dtype = x->dtype;
    return dot;
  }
  if (x->op == EX_READ) {
    const Op *d = def_of(s, x, RED_NONE);
    return d && (leads_to_dot(s, x) || reads_nothing(s, x)) ? score_of(s, body_at(s, x, d, NULL)) : x;
  }
  Expr *r = NEW(s->a, Expr);
  *r = *x;
  for (int i = 0; i < 3; i++)
    if (x->arg[i]) r->arg[i] = score_of(s, x->arg[i]);
  return r;
}

/* ---- the op ----------------------------------------------------------------------------------------------------------- */

static bool name_taken(const Space *sp, const char *name) {
  for (int i = 0; i < sp->n; i++)
    if (!strcmp(sp->idx[i].name, name)) return true;
  return false;
}

static Space attention_space(Match *s) {
  Space sp = s->sum->space;
  for (int i = s->product->space.nout; i < s->product->space.n; i++) {
    Index x = s->product->space.idx[i];
    const char *base = x.name;
    for (int n = 1; name_taken(&sp, x.name); n++) x.name = arena_printf(s->a, "%s%d", base, n);
    sp.idx[sp.n++] = x;
  }
  return sp;
}

typedef struct {
  Module *m;
  Op *op;
  int *map; /* ValueId -> operand number */
} Operands;

static void add_operand(void *cx, const Expr *read) {
  Operands *o = cx;
  for (int i = 0; i < o->op->nin; i++)
    if (o->op->in[i] == read->operand) return;
  o->map[read->operand] = o->op->nin;
  ir_in(o->m, o->op, read->operand);
}

static Type lse_type(const Match *s, const Op *op) {
  int row[MAX_RANK];
  Type t = {.dtype = op->body->dtype, .rank = attention_rows(op, row)};
  for (int d = 0; d < t.rank; d++) t.dim[d] = (Dim){.name = s->space.idx[row[d]].dim, .size = s->space.idx[row[d]].range};
  return t;
}

static Op *attention(Match *s, Expr *score) {
  Op *op = ir_op(s->m, OP_ATTENTION, s->sum->loc);
  Operands o = {s->m, op, NEW_ARRAY(s->a, int, s->m->values.n)};
  op->space = s->space;
  op->nkey = s->sum->space.n - s->sum->space.nout;
  Expr *reads[] = {s->q, s->k, s->value};
  for (int i = 0; i < 3; i++) add_operand(&o, reads[i]);
  ex_reads(score, add_operand, &o);
  for (int i = 0; i < 3; i++) op->read[i] = ex_substitute(s->a, reads[i], NULL, o.map);
  op->body = ex_substitute(s->a, score, NULL, o.map);
  op->out = NEW_ARRAY(s->a, ValueId, 1);
  op->out[op->nout++] = s->sum->out[0];
  ir_out(s->m, op, arena_printf(s->a, "%s.lse", s->m->values.at[op->out[0]].name), lse_type(s, op));
  return op;
}

/* Some row index must count queries that share their keys; one that keys or values have too does not. */
static bool has_queries(const Match *s) {
  for (int i = 0; i < s->sum->space.nout; i++)
    if (ex_uses(s->q, i) && !ex_uses(s->k, i) && !ex_uses(s->value, i)) return true;
  return false;
}

/* The rows of the softmax are the result's indices but the features, which values alone have. */
static bool features_are_free(const Match *s, const Expr *score) {
  for (int i = 0; i < s->sum->space.nout; i++)
    if (ex_uses(s->weight, i) && !ex_uses(s->q, i) && !ex_uses(s->k, i) && !ex_uses(score, i)) return false;
  return true;
}

/* The attention that s->sum is; NULL if it is none, with s->why set if it looks like one. */
static Op *match(Match *s, const int *uses) {
  const Op *sum = s->sum;
  if (sum->kind != OP_NEST || sum->reduce != RED_SUM || sum->body->op != EX_MUL) return NULL;
  Expr *body = ex_substitute(s->a, sum->body, NULL, sum->in), *score = NULL;
  for (int i = 0; i < 2 && !score && !s->why; i++) {
    s->weight = body->arg[i], s->value = body->arg[1 - i];
    if (s->weight->op == EX_READ && s->value->op == EX_READ) score = softmax_score(s);
  }
  if (!score) return NULL;
  if (uses[s->weight->operand] > 1) return fail(s, "its weights are used elsewhere too"), NULL;
  if (!plain_indices(s->value)) return fail(s, "values are not read at plain indices"), NULL;
  if (!leads_to_dot(s, score) && !any_leads_to_dot(s, score))
    return fail(s, "its score has no product of queries and keys read at plain indices"), NULL;
  s->space = attention_space(s);
  score = ex_simplify(s->a, score_of(s, score));
  if (!has_queries(s)) return fail(s, "no index of the queries is free of the keys' and values' indices"), NULL;
  if (!features_are_free(s, score)) return fail(s, "its weights have an index that its score does not have"), NULL;
  if (s->steps > MAX_STEPS) return fail(s, "too many maps lead to its score"), NULL;
  if (score->dtype != s->value->dtype || s->q->dtype != score->dtype) return fail(s, "its parts differ in type"), NULL;
  return attention(s, score);
}

/* ---- the pass ----------------------------------------------------------------------------------------------------------- */

static void count_uses(const Region *r, int *uses) {
  for (int i = 0; i < r->ops.n; i++) {
    const Op *op = r->ops.at[i];
    for (int k = 0; k < op->nin; k++) uses[op->in[k]]++;
    if (op->body_region) count_uses(op->body_region, uses);
  }
  for (int i = 0; i < r->yields.n; i++) uses[r->yields.at[i]]++;
}

static int recognise_region(Module *m, PassContext *cx, Region *r, const int *uses) {
  int found = 0;
  for (int i = 0; i < r->ops.n; i++) {
    Op *op = r->ops.at[i];
    if (op->body_region) found += recognise_region(m, cx, op->body_region, uses);
    Match s = {.m = m, .a = m->arena, .sum = op};
    Op *to = match(&s, uses);
    if (s.why)
      vec_push(m->arena, cx->notes,
               ((DiagLabel){op->loc, arena_printf(m->arena, "%%%s is a softmax times values but not made an attention: %s",
                                                  m->values.at[op->out[0]].name, s.why)}));
    if (!to) continue;
    r->ops.at[i] = to;
    found++;
  }
  return found;
}

void ir_recognise(Module *m, PassContext *cx) {
  ir_number(m);
  int *uses = NEW_ARRAY(m->arena, int, m->values.n), found = 0;
  for (int i = 0; i < m->programs.n; i++) count_uses(m->programs.at[i].body, uses);
  for (int i = 0; i < m->programs.n; i++) found += recognise_region(m, cx, m->programs.at[i].body, uses);
  ir_number(m);
  if (found) ir_dead_code(m); /* what is now inside attentions */
}
