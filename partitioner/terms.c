/* terms.c: terms of a sum that may come as pending sums are added first, by themselves:

     %d.x[b,t,d] = nest %d.y[b,t,d] + %p[b,t,d] + %q[b,t,d]          p and q sums of products
   becomes
     %d.x.terms[b,t,d] = nest %p[b,t,d] + %q[b,t,d]
     %d.x[b,t,d]       = nest %d.y[b,t,d] + %d.x.terms[b,t,d]

   A pending sum passes an op only if all terms are pending, so that %d.y, which is complete, would end p and q one by one;
   now they end together. A sum that only such a sum reads is opened: its terms are among them. Before the pass reshard
   decides what stays pending. */
#include "part.h"

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
  Op *op;
  int pending, complete; /* how many terms may be, or may not */
  int n, depth;
  Addend term[MAX_TERMS];
  bool opened; /* terms of other sums are among them, so that these are no longer needed */
} Terms;

static bool may_pend(const Module *m, ValueId v, int maps);

/* Is x linear in what it reads of values that may be pending? */
static bool passes(const Module *m, const Op *op, const Expr *x, int maps) {
  enum { MAX_OPERANDS = 64 };
  bool pending[MAX_OPERANDS] = {0};
  if (op->nin > MAX_OPERANDS) return false;
  for (int o = 0; o < op->nin; o++) pending[o] = may_pend(m, op->in[o], maps);
  return ex_linear_in(x, pending);
}

/* Could some split of the op that makes v leave it pending? */
static bool may_pend(const Module *m, ValueId v, int maps) {
  const Op *def = m->values.at[v].def;
  if (!def || maps == 0) return false;
  bool adds = def->kind == OP_SCATTER_ADD || def->kind == OP_ATTENTION_GRAD || def->kind == OP_GATHER;
  if (adds || (def->kind == OP_NEST && def->reduce == RED_SUM)) return true;
  return def->kind == OP_NEST && def->reduce == RED_NONE && passes(m, def, def->body, maps - 1);
}

/* ---- the terms ---------------------------------------------------------------------------------------------------- */

/* The sum whose only reader this is: its terms may be taken as terms here. */
static const Op *sum_read(const Terms *t, const Op *op, const Expr *x) {
  if (x->op != EX_READ || x->otherwise) return NULL;
  const Value *v = &t->m->values.at[op->in[x->operand]];
  const Op *def = v->def;
  bool sum = op->in[x->operand] < t->n0 && def && def->kind == OP_NEST && def->reduce == RED_NONE &&
             (def->body->op == EX_ADD || def->body->op == EX_SUB);
  if (!sum || v->region != t->region || t->uses[op->in[x->operand]] != 1) return NULL;
  for (int d = 0; d < v->type.rank; d++)
    if (v->type.dim[d].split.fixed || ix_by_value(x->ix[d])) return NULL;
  return def;
}

static void count_terms(Terms *t, const Op *op, const Expr *x, int depth) {
  if (x->op == EX_ADD || x->op == EX_SUB) {
    count_terms(t, op, x->arg[0], depth);
    count_terms(t, op, x->arg[1], depth);
    return;
  }
  bool pends = passes(t->m, op, x, MAX_MAPS);
  const Op *sum = !pends && depth < MAX_MAPS ? sum_read(t, op, x) : NULL;
  if (pends)
    t->pending++;
  else if (sum)
    count_terms(t, sum, sum->body, depth + 1);
  else
    t->complete++;
}

/* Where the terms of `from` are taken as terms of t->op: what its indices are there, and its operands. */
typedef struct {
  const Op *from;
  IExpr **index;
  int *slot;
} Inside;

static void add_terms(Terms *t, const Inside *in, const Expr *x, bool minus);

/* %r of %r[b, t] + %y[b, t], where %r is itself a sum. */
static void open_sum(Terms *t, const Inside *in, const Expr *x, const Op *sum, bool minus) {
  Arena *a = t->m->arena;
  const Expr *here = ex_substitute(a, x, in->index, in->slot);
  Inside next = {sum, here->ix, NEW_ARRAY(a, int, sum->nin + 1)};
  for (int o = 0; o < sum->nin; o++) {
    next.slot[o] = t->op->nin;
    ir_in(t->m, t->op, sum->in[o]);
  }
  t->opened = true;
  add_terms(t, &next, sum->body, minus);
}

static void add_terms(Terms *t, const Inside *in, const Expr *x, bool minus) {
  if (x->op == EX_ADD || x->op == EX_SUB) {
    add_terms(t, in, x->arg[0], minus);
    add_terms(t, in, x->arg[1], minus != (x->op == EX_SUB));
    return;
  }
  bool pends = passes(t->m, in->from, x, MAX_MAPS);
  const Op *sum = pends ? NULL : sum_read(t, in->from, x);
  if (sum && t->depth < MAX_MAPS) {
    t->depth++;
    open_sum(t, in, x, sum, minus);
    t->depth--;
    return;
  }
  t->term[t->n++] = (Addend){ex_substitute(t->m->arena, x, in->index, in->slot), minus, pends};
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

static void split_sum(Module *m, Region *r, int at, const Terms *t) {
  Arena *a = m->arena;
  Op *op = t->op, *first = ir_op(m, OP_NEST, op->loc);
  const Value *out = &m->values.at[op->out[0]];
  Type type = out->type;
  for (int d = 0; d < type.rank; d++) type.dim[d].split.fixed = false;
  first->phase = op->phase, first->tag = op->tag, first->space = op->space;
  set_body(m, first, sum_of(t, true), op->nin, op->in);
  ValueId sum = ir_out(m, first, arena_printf(a, "%s.terms", out->name), type);
  ir_insert(m, r, at, first);
  IExpr **ix = NEW_ARRAY(a, IExpr *, type.rank + 1);
  for (int d = 0; d < type.rank; d++) ix[d] = ix_index(a, d);
  ir_in(m, op, sum);
  Expr *read = ex_read(a, op->nin - 1, type.dtype, type.rank, ix, NULL);
  set_body(m, op, ex_2(a, EX_ADD, sum_of(t, false), read), op->nin, op->in);
}

static void find_terms(Terms *t) {
  Arena *a = t->m->arena;
  Inside whole = {t->op, NEW_ARRAY(a, IExpr *, t->op->space.n + 1), NEW_ARRAY(a, int, t->op->nin + 1)};
  for (int i = 0; i < t->op->space.n; i++) whole.index[i] = ix_index(a, i);
  for (int o = 0; o < t->op->nin; o++) whole.slot[o] = o;
  add_terms(t, &whole, t->op->body, false);
}

/* Returns whether other sums were opened. */
static bool split_sums(Module *m, Region *r, int n0, const int *uses) {
  bool opened = false;
  for (int i = 0; i < r->ops.n; i++) {
    Op *op = r->ops.at[i];
    if (op->body_region) opened |= split_sums(m, op->body_region, n0, uses);
    if (op->kind != OP_NEST || op->reduce != RED_NONE || op->space.n != op->space.nout) continue;
    Terms t = {.m = m, .region = r, .n0 = n0, .uses = uses, .op = op};
    count_terms(&t, op, op->body, 0);
    if (t.pending < 2 || t.complete == 0 || t.pending + t.complete > MAX_TERMS) continue;
    find_terms(&t);
    split_sum(m, r, i++, &t);
    opened |= t.opened;
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
  bool opened = false;
  for (int i = 0; i < m->programs.n; i++) part_visit(m->programs.at[i].body, 1, count_uses, uses);
  for (int i = 0; i < m->programs.n; i++) opened |= split_sums(m, m->programs.at[i].body, n, uses);
  if (opened) ir_dead_code(m);
  arena_free(scratch);
}
