/* terms.c: terms of a sum that may come as pending sums are added first, by themselves:

     %d.x[b,t,d] = nest %d.y[b,t,d] + %p[b,t,d] + %q[b,t,d]          p and q sums of products
   becomes
     %d.x.terms[b,t,d] = nest %p[b,t,d] + %q[b,t,d]
     %d.x[b,t,d]       = nest %d.y[b,t,d] + %d.x.terms[b,t,d]

   A pending sum passes an op only if all terms are pending, so that %d.y, which is complete, would end p and q one by one;
   now they end together. Before the pass reshard decides what stays pending. */
#include "part.h"

enum { MAX_TERMS = 64, MAX_MAPS = 8 /* looked through */ };

typedef struct {
  const Expr *x;
  bool minus, pends;
} Addend;

typedef struct {
  Module *m;
  const Op *op;
  int n, pending;
  Addend term[MAX_TERMS];
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

static void add_terms(Terms *t, const Expr *x, bool minus) {
  if (x->op == EX_ADD || x->op == EX_SUB) {
    add_terms(t, x->arg[0], minus);
    add_terms(t, x->arg[1], minus != (x->op == EX_SUB));
    return;
  }
  if (t->n < MAX_TERMS) t->term[t->n] = (Addend){x, minus, passes(t->m, t->op, x, MAX_MAPS)};
  t->n++;
}

/* ---- the two sums ----------------------------------------------------------------------------------------------- */

/* The terms that may be pending, or the others, added up. */
static Expr *sum_of(const Terms *t, bool pends) {
  Arena *a = t->m->arena;
  Expr *sum = NULL;
  for (int i = 0; i < t->n; i++) {
    const Addend *x = &t->term[i];
    if (x->pends != pends) continue;
    Expr *term = NEW(a, Expr);
    *term = *x->x;
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
  Op *op = r->ops.at[at], *first = ir_op(m, OP_NEST, op->loc);
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

static void split_sums(Module *m, Region *r) {
  for (int i = 0; i < r->ops.n; i++) {
    const Op *op = r->ops.at[i];
    if (op->body_region) split_sums(m, op->body_region);
    if (op->kind != OP_NEST || op->reduce != RED_NONE || op->space.n != op->space.nout) continue;
    Terms t = {.m = m, .op = op};
    add_terms(&t, op->body, false);
    for (int k = 0; k < t.n && t.n <= MAX_TERMS; k++) t.pending += t.term[k].pends;
    if (t.n > MAX_TERMS || t.pending < 2 || t.pending == t.n) continue;
    split_sum(m, r, i++, &t);
  }
}

void part_terms(Module *m) {
  if (mesh_devices(&m->mesh) == 1) return; /* nothing is pending */
  for (int i = 0; i < m->programs.n; i++) split_sums(m, m->programs.at[i].body);
}
