/* terms.c: terms of a sum that may come as pending sums are added first, by themselves:

     %d.x[b,t,d] = nest %d.y[b,t,d] + %p[b,t,d] + %q[b,t,d]          p and q sums of products
   becomes
     %d.x.terms[b,t,d] = nest %p[b,t,d] + %q[b,t,d]
     %d.x[b,t,d]       = nest %d.y[b,t,d] + %d.x.terms[b,t,d]

   A pending sum passes an op only if all terms are pending, so that %d.y, which is complete, would end p and q one by one;
   now they end together. A sum that only such a sum reads is opened: its terms are among them.

   Where something smaller is made of a sum, one pending term is enough: it ends when it is small.

     %y[b,t,d] = nest %x[b,t,d] + %p[b,t,d];  %s[b,d] = nest sum[t] %m[b,t] * %y[b,t,d]
   becomes
     %s.terms[b,d] = nest sum[t] %m[b,t] * %p[b,t,d]
     %s.rest[b,d]  = nest sum[t] %m[b,t] * %x[b,t,d]
     %s[b,d]       = nest %s.rest[b,d] + %s.terms[b,d]

   and likewise for a slice. That is done where layouts, as far as they were propagated, leave p pending, and never to a
   product: it would be computed twice. Before the pass reshard decides what stays pending. */
#include "part.h"

#include <math.h>

enum { MAX_TERMS = 64, MAX_MAPS = 8 /* looked through */ };

typedef struct {
  Expr *x;
  bool minus, pends;
} Addend;

typedef struct {
  Module *m;
  const Region *region;
  int n0;          /* values before any was made here */
  const int *uses; /* of each of them */
  char *split;     /* of each: what is_split found, once it was asked */
  Op *op;
  bool shrinks; /* something smaller is made of the sum */
  int depth;
  VEC(ValueId) operands; /* the op's, then those of sums that were opened */
  int n, pending;        /* terms, and how many of them may be pending */
  Addend term[MAX_TERMS];
  double opened; /* elements of the largest sum that is opened; 0: none */
} Terms;

/* Does a layout that was propagated split an index that the results of the op lack? */
static bool find_split(const Module *m, const Op *op) {
  Arena *scratch = arena_new();
  const Factors *f = part_factors(m, op, scratch);
  bool found = false;
  for (int o = 0; o < op->nin; o++) {
    const Type *t = &m->values.at[op->in[o]].type;
    for (int d = 0; d < t->rank; d++) {
      int k = f->in[o].index[d];
      found |= t->dim[d].split.n > 0 && k != NO_FACTOR && f->splits[k] && (k >= op->space.nout || op->kind == OP_SCATTER_ADD);
    }
  }
  arena_free(scratch);
  return found;
}

static bool is_split(const Terms *t, ValueId v) {
  enum { NOT_ASKED, NO, YES };
  const Op *def = t->m->values.at[v].def;
  if (v >= t->n0) return find_split(t->m, def);
  if (t->split[v] == NOT_ASKED) t->split[v] = find_split(t->m, def) ? YES : NO;
  return t->split[v] == YES;
}

static bool may_pend(const Terms *t, ValueId v, int maps);

/* Is x linear in what it reads of values that may be pending? */
static bool passes(const Terms *t, const Op *op, const Expr *x, int maps) {
  enum { MAX_OPERANDS = 64 };
  bool pending[MAX_OPERANDS] = {0};
  if (op->nin > MAX_OPERANDS) return false;
  bool any = false;
  for (int o = 0; o < op->nin; o++) any |= pending[o] = may_pend(t, op->in[o], maps);
  return any && ex_linear_in(x, pending);
}

/* Could some split of the op that makes v leave it pending? */
static bool may_pend(const Terms *t, ValueId v, int maps) {
  const Op *def = t->m->values.at[v].def;
  if (!def || maps == 0) return false;
  bool adds = def->kind == OP_SCATTER_ADD || def->kind == OP_ATTENTION_GRAD || def->kind == OP_GATHER;
  if (adds || (def->kind == OP_NEST && def->reduce == RED_SUM)) return !t->shrinks || is_split(t, v);
  return def->kind == OP_NEST && def->reduce == RED_NONE && passes(t, def, def->body, maps - 1);
}

/* ---- the terms ---------------------------------------------------------------------------------------------------- */

/* The sum whose only reader this is: its terms may be taken as terms here. */
static const Op *sum_read(const Terms *t, const Op *op, const Expr *x) {
  if (x->op != EX_READ || x->otherwise) return NULL;
  const Value *v = &t->m->values.at[op->in[x->operand]];
  const Op *def = v->def;
  bool map = op->in[x->operand] < t->n0 && def && def->kind == OP_NEST && def->reduce == RED_NONE;
  if (!map || !(t->shrinks || def->body->op == EX_ADD || def->body->op == EX_SUB)) return NULL;
  if (v->region != t->region || t->uses[op->in[x->operand]] != 1) return NULL;
  for (int d = 0; d < v->type.rank; d++)
    if (v->type.dim[d].split.fixed || ix_by_value(x->ix[d])) return NULL;
  return def;
}

typedef struct {
  const Terms *t;
  const Op *op;
  bool found;
} Search;

static void find_term(void *cx, const Expr *read) {
  Search *s = cx;
  s->found |= may_pend(s->t, s->op->in[read->operand], MAX_MAPS) || sum_read(s->t, s->op, read);
}

static bool is_complete(const Terms *t, const Op *op, const Expr *x) {
  Search s = {t, op, false};
  ex_reads(x, find_term, &s);
  return !s.found;
}

/* The argument in which x is linear, all else in it being complete: sums in it are sums here; or -1. */
static int linear_argument(const Terms *t, const Op *op, const Expr *x) {
  if (!t->shrinks) return -1;
  switch (x->op) {
  case EX_NEG: return 0;
  case EX_DIV: return is_complete(t, op, x->arg[1]) ? 0 : -1;
  case EX_MUL: return is_complete(t, op, x->arg[1]) ? 0 : is_complete(t, op, x->arg[0]) ? 1 : -1;
  case EX_WHERE:
    if (!is_complete(t, op, x->arg[0])) return -1;
    return ex_is_lit(x->arg[2], 0) ? 1 : ex_is_lit(x->arg[1], 0) ? 2 : -1;
  default: return -1;
  }
}

/* How many of its terms may be pending. */
static int pending_terms(const Terms *t, const Op *op, const Expr *x, int depth) {
  if (x->op == EX_ADD || x->op == EX_SUB) return pending_terms(t, op, x->arg[0], depth) + pending_terms(t, op, x->arg[1], depth);
  if (passes(t, op, x, MAX_MAPS)) return 1;
  int linear = linear_argument(t, op, x);
  if (linear >= 0) return pending_terms(t, op, x->arg[linear], depth);
  const Op *sum = depth < MAX_MAPS ? sum_read(t, op, x) : NULL;
  return sum ? pending_terms(t, sum, sum->body, depth + 1) : 0;
}

/* Where the terms of `from` are taken as terms of t->op: what its indices are there, and its operands among t->operands. */
typedef struct {
  const Op *from;
  IExpr **index;
  int *slot;
} Inside;

/* What a term stands in: argument `at` of `x`, itself in `around`. */
typedef struct Context {
  const Inside *in;
  const Expr *x;
  int at;
  const struct Context *around;
} Context;

static void add_terms(Terms *t, const Inside *in, const Expr *x, bool minus, const Context *c);

/* %r of %r[b, t] + %y[b, t], where %r is itself a sum. */
static void open_sum(Terms *t, const Inside *in, const Expr *x, const Op *sum, bool minus, const Context *c) {
  Arena *a = t->m->arena;
  const Expr *here = ex_substitute(a, x, in->index, in->slot);
  Inside next = {sum, here->ix, NEW_ARRAY(a, int, sum->nin + 1)};
  for (int o = 0; o < sum->nin; o++) {
    next.slot[o] = t->operands.n;
    vec_push(a, t->operands, sum->in[o]);
  }
  t->opened = fmax(t->opened, (double)type_elements(&t->m->values.at[sum->out[0]].type));
  add_terms(t, &next, sum->body, minus, c);
}

static void add_term(Terms *t, const Inside *in, const Expr *x, bool minus, bool pends, const Context *c) {
  Arena *a = t->m->arena;
  if (t->n == MAX_TERMS) {
    t->pending = 0; /* left as it is */
    return;
  }
  Expr *term = ex_substitute(a, x, in->index, in->slot);
  for (; c; c = c->around) {
    Expr *outer = ex_substitute(a, c->x, c->in->index, c->in->slot);
    outer->arg[c->at] = term;
    term = outer;
  }
  t->term[t->n++] = (Addend){term, minus, pends};
  t->pending += pends;
}

static void add_terms(Terms *t, const Inside *in, const Expr *x, bool minus, const Context *c) {
  if (x->op == EX_ADD || x->op == EX_SUB) {
    add_terms(t, in, x->arg[0], minus, c);
    add_terms(t, in, x->arg[1], minus != (x->op == EX_SUB), c);
    return;
  }
  bool pends = passes(t, in->from, x, MAX_MAPS);
  int linear = pends ? -1 : linear_argument(t, in->from, x);
  const Op *sum = pends || t->depth == MAX_MAPS ? NULL : sum_read(t, in->from, x);
  bool hopeless = t->shrinks && !pends && pending_terms(t, in->from, x, t->depth) == 0;
  if (linear >= 0 && !hopeless) {
    Context inner = {in, x, linear, c};
    add_terms(t, in, x->arg[linear], minus, &inner);
  } else if (sum && !hopeless) {
    t->depth++;
    open_sum(t, in, x, sum, minus, c);
    t->depth--;
  } else {
    add_term(t, in, x, minus, pends, c);
  }
}

static void find_terms(Terms *t) {
  Arena *a = t->m->arena;
  Inside whole = {t->op, NEW_ARRAY(a, IExpr *, t->op->space.n + 1), NEW_ARRAY(a, int, t->op->nin + 1)};
  for (int i = 0; i < t->op->space.n; i++) whole.index[i] = ix_index(a, i);
  for (int o = 0; o < t->op->nin; o++) {
    whole.slot[o] = o;
    vec_push(a, t->operands, t->op->in[o]);
  }
  add_terms(t, &whole, t->op->body, false, NULL);
}

/* ---- the two sums ----------------------------------------------------------------------------------------------- */

/* The terms that may be pending, or the others, added up. */
static Expr *sum_of(const Terms *t, bool pends) {
  Arena *a = t->m->arena;
  Expr *sum = NULL;
  for (int i = 0; i < t->n; i++) {
    const Addend *x = &t->term[i];
    if (x->pends != pends) continue;
    Expr *term = x->x;
    if (!sum)
      sum = x->minus ? ex_1(a, EX_NEG, term) : term;
    else
      sum = ex_2(a, x->minus ? EX_SUB : EX_ADD, sum, term);
  }
  return sum;
}

static void mark_index(bool *read, const IExpr *x) {
  for (int i = 0; i < x->n; i++) {
    const Term *t = &x->term[i];
    if (t->sub) mark_index(read, t->sub);
    if (t->kind == ATOM_VALUE) read[t->operand] = true;
    for (int k = 0; k < t->nat; k++) mark_index(read, t->at[k]);
  }
}

static void mark(bool *read, const Expr *x) {
  if (x->op == EX_READ) read[x->operand] = true;
  for (int i = 0; i < x->nix; i++) mark_index(read, x->ix[i]);
  for (int i = 0; i < 3; i++)
    if (x->arg[i]) mark(read, x->arg[i]);
  if (x->otherwise) mark(read, x->otherwise);
}

/* op computes `body`, over operands of `from`, of which it takes those that it reads. */
static void set_body(Module *m, Op *op, const Expr *body, int n, const ValueId *from) {
  bool *read = NEW_ARRAY(m->arena, bool, n + 1);
  int *slot = NEW_ARRAY(m->arena, int, n + 1);
  IExpr *same[MAX_INDEX];
  mark(read, body);
  op->nin = 0, op->in = NULL;
  for (int o = 0; o < n; o++) {
    if (!read[o]) continue;
    slot[o] = op->nin;
    ir_in(m, op, from[o]);
  }
  for (int i = 0; i < op->space.n; i++) same[i] = ix_index(m->arena, i);
  op->body = ex_substitute(m->arena, body, same, slot);
}

/* An op like t->op of the terms that may be pending, or of the others, put before it. */
static ValueId sum_apart(Module *m, Region *r, int at, const Terms *t, bool pends) {
  const Op *op = t->op;
  Op *part = ir_op(m, OP_NEST, op->loc);
  const Value *out = &m->values.at[op->out[0]];
  Type type = out->type;
  for (int d = 0; d < type.rank; d++) type.dim[d].split.fixed = false;
  part->phase = op->phase, part->tag = op->tag, part->space = op->space, part->reduce = op->reduce;
  set_body(m, part, sum_of(t, pends), t->operands.n, t->operands.at);
  ir_insert(m, r, at, part);
  return ir_out(m, part, arena_printf(m->arena, "%s.%s", out->name, pends ? "terms" : "rest"), type);
}

static Expr *read_whole(Module *m, int slot, const Type *t) {
  IExpr **ix = NEW_ARRAY(m->arena, IExpr *, t->rank + 1);
  for (int d = 0; d < t->rank; d++) ix[d] = ix_index(m->arena, d);
  return ex_read(m->arena, slot, t->dtype, t->rank, ix, NULL);
}

/* Returns how many ops were put before t->op. */
static int split_sum(Module *m, Region *r, int at, Terms *t) {
  Op *op = t->op;
  bool reduces = op->reduce == RED_SUM;
  Type type = m->values.at[op->out[0]].type;
  ValueId sum = sum_apart(m, r, at, t, true), rest = reduces ? sum_apart(m, r, at + 1, t, false) : -1;
  int slot = t->operands.n;
  vec_push(m->arena, t->operands, sum);
  vec_push(m->arena, t->operands, rest);
  op->reduce = RED_NONE;
  op->space.n = op->space.nout;
  Expr *others = reduces ? read_whole(m, slot + 1, &type) : sum_of(t, false);
  set_body(m, op, ex_2(m->arena, EX_ADD, others, read_whole(m, slot, &type)), t->operands.n, t->operands.at);
  return reduces ? 2 : 1;
}

static double points(const Op *op, bool *product) {
  int64_t extent[MAX_INDEX];
  double n = 1;
  for (int i = 0; i < op->space.n; i++) n *= (double)(extent[i] = op->space.idx[i].range);
  *product = part_op_multiply_adds(op, extent) > 0;
  return n;
}

/* Is something smaller made of terms of which one may be pending? What is opened is computed no more often than it was. */
static bool shrinks(Terms *t) {
  bool product;
  double n = points(t->op, &product);
  t->shrinks = true;
  if (product || pending_terms(t, t->op, t->op->body, 0) == 0) return false;
  find_terms(t);
  bool smaller = t->op->reduce == RED_SUM ? t->opened == 0 || n <= t->opened : n < t->opened;
  return smaller && t->pending > 0 && t->pending < t->n;
}

static bool has_two(Terms *t) {
  if (t->op->reduce != RED_NONE || pending_terms(t, t->op, t->op->body, 0) < 2) return false;
  find_terms(t);
  return t->pending > 1 && t->pending < t->n;
}

/* Returns whether other sums were opened. */
static bool split_sums(const Terms *all, Region *r) {
  Module *m = all->m;
  bool opened = false;
  for (int i = 0; i < r->ops.n; i++) {
    Op *op = r->ops.at[i];
    if (op->body_region) opened |= split_sums(all, op->body_region);
    if (op->kind != OP_NEST || (op->reduce != RED_NONE && op->reduce != RED_SUM)) continue;
    Terms plain = *all, small, *t = &plain;
    plain.region = r, plain.op = op, small = plain;
    if (!has_two(&plain) && !shrinks(t = &small)) continue;
    i += split_sum(m, r, i, t);
    opened |= t->opened > 0;
  }
  return opened;
}

static void count_uses(void *cx, Region *r, Op *op, int64_t times) {
  (void)r, (void)times;
  int *uses = cx;
  for (int o = 0; o < op->nin; o++) uses[op->in[o]]++;
  for (int i = 0; op->body_region && i < op->body_region->yields.n; i++) uses[op->body_region->yields.at[i]]++;
}

void part_terms(Module *m) {
  if (mesh_devices(&m->mesh) == 1) return; /* nothing is pending */
  int n = m->values.n;
  Arena *scratch = arena_new();
  int *uses = NEW_ARRAY(scratch, int, n + 1);
  Terms all = {.m = m, .n0 = n, .uses = uses, .split = NEW_ARRAY(scratch, char, n + 1)};
  bool opened = false;
  for (int i = 0; i < m->programs.n; i++) part_visit(m->programs.at[i].body, 1, count_uses, uses);
  for (int i = 0; i < m->programs.n; i++) opened |= split_sums(&all, m->programs.at[i].body);
  if (opened) ir_dead_code(m);
  arena_free(scratch);
}
