/* factors.c: what may be split in an op, read off its index expressions.

     %q[b,t,h,k] = nest sum[d] %n[b,t,d] * %wq[d,h,k]      n: b t d    wq: d h k    q: b t h k
     %x[b,t,d] = gather %wte[%tok[b,t], d]                 wte: row d  tok: b t     x: b t d
     %y[t] = nest %x[t] - (%x[t - 1] else 0.0)             x: -        (read at t and at t - 1)

   A dim of an operand is a factor when every read of it is exactly that index and the index runs over the whole
   dim; then both may be split alike. Of a dim that is read in any other way reads.c tells what a rank needs. A split
   factor that a result lacks leaves that result pending, unless the op runs along it (blocks.c). What cannot be split
   yet: attention's contracted and value indices. */
#include "blocks.h"

enum { UNREAD = -2 };

typedef struct {
  const Module *m;
  const Op *op;
  Factors *f;
  Arena *arena;
  const Expr *table; /* gather: the read whose dims by value may be split */
} Walk;

/* Reads of one dim agree on a factor, or the dim is whole. */
static void meet(int *have, int factor) { *have = *have == UNREAD || *have == factor ? factor : NO_FACTOR; }

static int factor_of(const Walk *w, const IExpr *e, int64_t size) {
  int i = ix_single(e);
  return i >= 0 && w->op->space.idx[i].range == size ? i : NO_FACTOR;
}

static void read_operand(Walk *w, int operand, int n, IExpr *const *ix, bool table);

static void walk_index(Walk *w, const IExpr *e) {
  for (int i = 0; i < e->n; i++) {
    const Term *t = &e->term[i];
    if (t->sub) walk_index(w, t->sub);
    if (t->kind != ATOM_VALUE) continue;
    w->f->in[t->operand].by_value = true;
    read_operand(w, t->operand, t->nat, t->at, false);
  }
}

static void note_read(Walk *w, int operand, int d, const IExpr *x) {
  OperandFactors *f = &w->f->in[operand];
  for (int i = 0; i < f->nreads[d]; i++)
    if (ix_equal(f->read[d][i], x)) return;
  const IExpr **longer = NEW_ARRAY(w->arena, const IExpr *, f->nreads[d] + 1);
  for (int i = 0; i < f->nreads[d]; i++) longer[i] = f->read[d][i];
  longer[f->nreads[d]++] = x;
  f->read[d] = longer;
}

static int table_factor(Walk *w, int64_t size) {
  Factors *f = w->f;
  f->range[f->n] = size;
  f->splits[f->n] = true;
  return f->n++;
}

static void read_operand(Walk *w, int operand, int n, IExpr *const *ix, bool table) {
  const Type *t = &w->m->values.at[w->op->in[operand]].type;
  for (int d = 0; d < n; d++) {
    bool row = table && ix[d]->n == 1 && ix[d]->term[0].kind == ATOM_VALUE;
    note_read(w, operand, d, ix[d]);
    meet(&w->f->in[operand].index[d], row ? table_factor(w, t->dim[d].size) : factor_of(w, ix[d], t->dim[d].size));
    walk_index(w, ix[d]);
  }
}

static void walk_expr(Walk *w, const Expr *e) {
  if (!e) return;
  for (int i = 0; i < 3; i++) walk_expr(w, e->arg[i]);
  walk_expr(w, e->otherwise);
  if (e->op == EX_READ) read_operand(w, e->operand, e->nix, e->ix, e == w->table);
  if (e->op == EX_INDEX) walk_index(w, e->ix[0]);
}

static void set_splittable(const Op *op, Factors *f) {
  const Space *s = &op->space;
  bool selects = op->kind == OP_ARGMAX || op->kind == OP_TOPK;
  bool attends = op->kind == OP_ATTENTION || op->kind == OP_ATTENTION_GRAD;
  for (int i = 0; i < s->n; i++) {
    f->blocks[i] = block_along(op, i);
    bool key = op->kind == OP_ATTENTION_GRAD && i >= s->nout && i < s->nout + op->nkey;
    f->splits[i] = f->works[i] = f->blocks[i] || key || !((selects || attends) && i >= s->nout);
  }
  if (op->kind == OP_SCAN) f->splits[op->along] = f->blocks[op->along];
  if (op->kind == OP_TOPK) f->splits[s->nout - 1] = false;
  if (!attends) return;
  int rows[MAX_RANK], n = attention_rows(op, rows);
  for (int i = 0; i < s->nout; i++) {
    f->splits[i] = false;
    for (int j = 0; j < n; j++) f->splits[i] |= rows[j] == i;
  }
}

/* Rows that scatter_add adds to are split by skipping what other ranks own: no less work. */
static void set_scattered(const Op *op, Factors *f) {
  for (int d = 0; d < op->space.nout; d++) f->works[d] = ix_single(op->into[d]) == d;
}

/* A gradient of attention is added where its operand is read. */
static void set_attention_results(const Module *m, const Op *op, Factors *f) {
  Walk w = {.m = m, .op = op, .f = f};
  for (int r = 0; r < op->nout; r++) {
    const Type *t = &m->values.at[op->out[r]].type;
    for (int d = 0; d < t->rank; d++)
      f->out[r].index[d] = r < 3 ? factor_of(&w, op->read[r]->ix[d], t->dim[d].size) : f->in[op->wrt[r - 3]].index[d];
  }
}

static void set_results(const Module *m, const Op *op, Factors *f) {
  if (op->kind == OP_ATTENTION_GRAD) {
    set_attention_results(m, op, f);
    return;
  }
  for (int r = 0; r < op->nout; r++)
    for (int d = 0; d < op->space.nout; d++) f->out[r].index[d] = d;
  if (op->kind == OP_ATTENTION) attention_rows(op, f->out[1].index);
}

/* Attention is split along its keys only where k or v are leaves that lie so: what is computed is as cheaply computed
   where it is needed. */
static void set_keys(const Module *m, const Op *op, Factors *f) {
  for (int i = op->space.nout; i < op->space.nout + op->nkey; i++) {
    bool comes = false;
    for (int r = 1; r < 3; r++) {
      const Value *v = &m->values.at[op->in[op->read[r]->operand]];
      const Type *t = &v->type;
      bool leaf = v->def && op_class(v->def->kind) == CLS_LEAF;
      for (int d = 0; d < t->rank && leaf; d++) comes |= f->in[op->read[r]->operand].index[d] == i && t->dim[d].split.n > 0;
    }
    f->splits[i] &= comes;
    f->works[i] = f->splits[i];
  }
}

Factors *part_factors(const Module *m, const Op *op, Arena *a) {
  assert(op_class(op->kind) == CLS_SPACE && "only an op with an index space has factors");
  Factors *f = NEW(a, Factors);
  f->n = op->space.n;
  f->in = NEW_ARRAY(a, OperandFactors, op->nin);
  f->out = NEW_ARRAY(a, OperandFactors, op->nout);
  for (int i = 0; i < op->space.n; i++) f->range[i] = op->space.idx[i].range;
  set_splittable(op, f);
  for (int o = 0; o < op->nin; o++)
    for (int d = 0; d < MAX_RANK; d++) f->in[o].index[d] = UNREAD;
  Walk w = {.m = m, .op = op, .f = f, .arena = a};
  bool sums = op->reduce == RED_NONE || op->reduce == RED_SUM;
  if (op->kind == OP_GATHER && op->body->op == EX_READ && !op->body->otherwise && sums) w.table = op->body;
  walk_expr(&w, op->body);
  for (int i = 0; i < op_reads(op); i++) walk_expr(&w, op->read[i]);
  if (op->kind == OP_SCATTER_ADD) {
    for (int d = 0; d < op->space.nout; d++) walk_index(&w, op->into[d]);
    set_scattered(op, f);
  }
  f->kind = op->kind == OP_NEST && op->reduce != RED_NONE ? op->reduce : RED_SUM;
  for (int o = 0; o < op->nin; o++)
    for (int d = 0; d < MAX_RANK; d++)
      if (f->in[o].index[d] == UNREAD) f->in[o].index[d] = NO_FACTOR;
  set_results(m, op, f);
  if (op_reads(op) > 0) set_keys(m, op, f);
  return f;
}

void part_visit(Region *r, int64_t times, PartVisit *f, void *cx) {
  for (int i = 0; i < r->ops.n; i++) {
    Op *op = r->ops.at[i];
    f(cx, r, op, times);
    if (op->body_region) part_visit(op->body_region, times * op->trip, f, cx);
  }
}

static void number_op(void *cx, Region *r, Op *op, int64_t times) {
  (void)r, (void)times;
  op->order = (*(int *)cx)++;
}

int part_number(Module *m) {
  int n = 0;
  for (int i = 0; i < m->programs.n; i++) part_visit(m->programs.at[i].body, 1, number_op, &n);
  return n;
}
