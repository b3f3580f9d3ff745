/* values.c: fragments become values: one op over just the indices that are used, in the order in which they are live.

     fragment  exp(%x[b,t] - %m[b])   over {b, t}    op  %y.exp[b,t]: f32[B=8, T=128] = nest exp(%x[b,t] - %m[b])       */
#include "lower.h"

/* ---- ops over an index space ---------------------------------------------------------------------------------- */

static void add_operand(Lower *lw, Op *op, ValueId v) {
  while (lw->operand.n < lw->m->values.n) vec_push(lw->a, lw->operand, -1);
  if (lw->operand.at[v] >= 0) return;
  lw->operand.at[v] = op->nin;
  ir_in(lw->m, op, v);
}

static void add_index_operands(Lower *lw, Op *op, const IExpr *x) {
  for (int i = 0; i < x->n; i++) {
    const Term *t = &x->term[i];
    if (t->sub) add_index_operands(lw, op, t->sub);
    if (t->kind != ATOM_VALUE) continue;
    add_operand(lw, op, t->operand);
    for (int k = 0; k < t->nat; k++) add_index_operands(lw, op, t->at[k]);
  }
}

static void add_operands(Lower *lw, Op *op, const Expr *e) {
  if (e->op == EX_READ) add_operand(lw, op, e->operand);
  for (int i = 0; i < e->nix; i++) add_index_operands(lw, op, e->ix[i]);
  for (int i = 0; i < 3; i++)
    if (e->arg[i]) add_operands(lw, op, e->arg[i]);
  if (e->otherwise) add_operands(lw, op, e->otherwise);
}

static void add_indices(const Stmt *st, Space *s, IndexSet set, IExpr **by) {
  for (int i = 0; i < st->idx.n; i++) {
    if (!(set >> i & 1)) continue;
    const IndexVar *v = &st->idx.at[i];
    by[i] = ix_index(st->lw->a, s->n);
    s->idx[s->n++] = (Index){.name = v->name, .dim = v->range.name, .range = v->range.size};
  }
}

/* A tensor has at most MAX_RANK dims; beyond it only so many are kept, after an error. */
static IndexSet fewer(Stmt *st, IndexSet s) {
  if (__builtin_popcount(s) <= MAX_RANK) return s;
  Diag *g = fault(st->lw, "E0305", st->loc, "a tensor with %d dims would be needed on the way; %d are the most",
                  __builtin_popcount(s), MAX_RANK);
  diag_help(st->lw->d, g, "compute parts of the statement in statements of their own");
  st->bad = true;
  while (__builtin_popcount(s) > MAX_RANK) s &= s - 1;
  return s;
}

static const char *value_name(Stmt *st, const char *suffix) {
  return suffix ? arena_printf(st->lw->a, "%s.%s", st->base, suffix) : st->base;
}

static Type space_type(Stmt *st, DType d, const Space *s) {
  Extent dim[MAX_RANK];
  for (int i = 0; i < s->nout; i++) dim[i] = (Extent){s->idx[i].dim, s->idx[i].range};
  return type_for(st->lw, d, s->nout, dim, st->loc);
}

static bool pure_value(Lower *lw, ValueId v) { return v < lw->pure.n && lw->pure.at[v]; }

static void set_pure(Lower *lw, const Op *op) {
  while (lw->pure.n < lw->m->values.n) vec_push(lw->a, lw->pure, false);
  bool pure = true;
  for (int i = 0; i < op->nin; i++) pure &= pure_value(lw, op->in[i]);
  lw->pure.at[op->out[0]] = pure;
}

static void set_into(Lower *lw, Op *op, int n, IExpr *const *into, IExpr *const *by) {
  op->into = NEW_ARRAY(lw->a, IExpr *, n);
  for (int i = 0; i < n; i++) add_index_operands(lw, op, into[i]);
  for (int i = 0; i < n; i++) op->into[i] = ix_substitute(lw->a, into[i], by, lw->operand.at);
}

/* `into`: where a scatter_add adds, one per result dim; else NULL. */
static Op *make(Stmt *st, OpKind kind, IndexSet out, IndexSet red, Expr *body, IExpr *const *into, DType d, const char *suffix) {
  Lower *lw = st->lw;
  Op *op = ir_op(lw->m, kind, st->loc);
  IExpr *by[MAX_LIVE] = {0};
  add_indices(st, &op->space, fewer(st, out), by);
  op->space.nout = op->space.n;
  add_indices(st, &op->space, red & ~out, by);
  if (body) {
    body = ex_simplify(lw->a, body);
    add_operands(lw, op, body);
    op->body = ex_substitute(lw->a, body, by, lw->operand.at);
    if (into) set_into(lw, op, op->space.nout, into, by);
    for (int i = 0; i < op->nin; i++) lw->operand.at[op->in[i]] = -1;
  }
  ir_out(lw->m, op, value_name(st, suffix), space_type(st, d, &op->space));
  if (body) set_pure(lw, op);
  ir_append(lw->m, st->cx->fr->region, op);
  ir_sync_space(lw->m, op);
  spend(lw, st->loc);
  return op;
}

Op *space_op(Stmt *st, OpKind kind, IndexSet out, IndexSet red, Expr *body, DType d, const char *suffix) {
  return make(st, kind, out, red, body, NULL, d, suffix);
}

Op *scatter_op(Stmt *st, IndexSet out, IndexSet red, Expr *body, IExpr *const *into) {
  return make(st, OP_SCATTER_ADD, out, red, body, into, body->dtype, NULL);
}

ValueId nest(Stmt *st, Expr *body, IndexSet out, IndexSet red, Reduce reduce, const char *suffix) {
  Op *op = space_op(st, OP_NEST, out, red, body, body->dtype, suffix);
  op->reduce = reduce;
  const Expr *e = body->op == EX_CAST && dtype_is_int(body->dtype) ? body->arg[0] : body;
  if (!red && e->op == EX_READ && dtype_is_int(e->dtype)) origin_set(st->lw, op->out[0], origin_of(st->lw, e->operand));
  return op->out[0];
}

Expr *read_value(Stmt *st, ValueId v, IndexSet s) {
  IExpr *ix[MAX_RANK];
  int n = 0;
  for (int i = 0; i < st->idx.n && n < MAX_RANK; i++)
    if (s >> i & 1) ix[n++] = ix_index(st->lw->a, i);
  return ex_read(st->lw->a, v, st->lw->m->values.at[v].type.dtype, n, ix, NULL);
}

/* ---- kinds of fragments ------------------------------------------------------------------------------------------- */

bool is_read(const Expr *e) { return e->op == EX_READ; }

/* At distinct single indices. */
static bool is_plain_read(const Expr *e) {
  if (e->op != EX_READ || e->otherwise) return false;
  for (int i = 0; i < e->nix; i++) {
    if (ix_single(e->ix[i]) < 0) return false;
    for (int j = 0; j < i; j++)
      if (ix_equal(e->ix[i], e->ix[j])) return false;
  }
  return true;
}

/* May it be computed twice? */
static bool is_cheap(const Expr *e) {
  if (e->op == EX_CAST || e->op == EX_NEG || e->op == EX_STOP) return is_cheap(e->arg[0]);
  return e->op == EX_READ || e->op == EX_LITERAL || e->op == EX_INDEX;
}

Expr *plain_read(Stmt *st, Expr *e, IndexSet s, const char *suffix) {
  if (is_plain_read(e) && ex_set(st, e) == s) return e;
  return read_value(st, nest(st, e, s, 0, RED_NONE, suffix), s);
}

Expr *once(Stmt *st, Expr *e, const char *suffix) {
  if (is_cheap(e)) return e;
  IndexSet s = ex_set(st, e);
  return read_value(st, nest(st, e, s, 0, RED_NONE, suffix), s);
}

typedef struct {
  ValueId seen[8];
  int n;
} Seen;

static void see(void *cx, const Expr *read) {
  Seen *s = cx;
  for (int i = 0; i < s->n; i++)
    if (s->seen[i] == read->operand) return;
  if (s->n < 8) s->seen[s->n++] = read->operand;
}

/* Counts up to 8. */
int tensors_in(const Expr *e) {
  Seen s = {.n = 0};
  ex_reads(e, see, &s);
  return s.n;
}

typedef struct {
  Lower *lw;
  bool pure;
} Purity;

static void see_pure(void *cx, const Expr *read) {
  Purity *p = cx;
  p->pure &= pure_value(p->lw, read->operand);
}

bool is_pure(Lower *lw, const Expr *e) {
  Purity p = {lw, true};
  ex_reads(e, see_pure, &p);
  return p.pure;
}

/* ---- where integers come from ---------------------------------------------------------------------------------------- */

void origin_set(Lower *lw, ValueId v, Op *input) {
  while (lw->origin.n <= v) vec_push(lw->a, lw->origin, NULL);
  lw->origin.at[v] = input;
}

Op *origin_of(Lower *lw, ValueId v) { return v >= 0 && v < lw->origin.n ? lw->origin.at[v] : NULL; }

/* ---- random numbers --------------------------------------------------------------------------------------------------- */

/* The value of an outer frame as seen in this one: an invariant of every repeat between. */
static ValueId seen_in(Lower *lw, Frame *fr, const Frame *home, ValueId v) {
  if (fr == home) return v;
  ValueId in = seen_in(lw, fr->outer, home, v);
  for (int i = 0; i < fr->invariant_in.n; i++)
    if (fr->invariant_in.at[i] == in) return fr->invariant_arg.at[i];
  const Value *outer = &lw->m->values.at[in];
  Type t = outer->type;
  ValueId arg = ir_arg(lw->m, fr->region, outer->name, t);
  vec_push(lw->a, fr->invariant_in, in);
  vec_push(lw->a, fr->invariant_arg, arg);
  return arg;
}

static Frame *program_frame(Frame *fr) {
  while (fr->outer) fr = fr->outer;
  return fr;
}

static ValueId step_in(Ctx *cx, Frame *fr) {
  Lower *lw = cx->lw;
  Frame *top = program_frame(fr);
  if (top->step < 0) {
    Op *op = ir_op(lw->m, OP_STATE, (Loc){0});
    op->name = "step";
    top->step = ir_out(lw->m, op, "step", (Type){.dtype = I64});
    ir_append(lw->m, top->region, op);
  }
  return seen_in(lw, fr, top, top->step);
}

static void add_counters(Lower *lw, Op *op, Frame *fr, Frame *home) {
  if (!home->outer) return;
  add_counters(lw, op, fr, home->outer);
  ir_in(lw->m, op, seen_in(lw, fr, home, home->counter));
}

/* Calls of blocks and defs that lead here, then the place in the text; the same wherever the file lies. */
static const char *site_text(Stmt *st, Loc call) {
  Lower *lw = st->lw;
  Str s = {0};
  str_put(lw->a, &s, st->cx->site);
  for (const DefEnv *e = st->env; e; e = e->outer)
    str_printf(lw->a, &s, "%s:%d:%d>", e->def->name.text, e->call.line, e->call.col);
  const char *file = lw->d->files.at[call.file].name, *slash = strrchr(file, '/');
  if (call.file) str_printf(lw->a, &s, "%s:", slash ? slash + 1 : file);
  str_printf(lw->a, &s, "%d:%d", call.line, call.col);
  return s.at;
}

Expr *draw(Stmt *st, InitKind kind, IndexSet s, Loc call, const char *suffix) {
  Lower *lw = st->lw;
  ValueId step = step_in(st->cx, st->cx->fr);
  Op *op = space_op(st, OP_RANDOM, s, 0, NULL, F32, suffix);
  op->init = kind;
  op->init_b = 1;
  op->name = site_text(st, call);
  ir_in(lw->m, op, step);
  add_counters(lw, op, st->cx->fr, st->cx->fr);
  return read_value(st, op->out[0], s);
}
