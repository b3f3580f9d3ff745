/* shrink.c: makes a program that shows a fault small. Edits are tried one at a time on a copy, and kept if the copy is
   still lawful and still shows it, until none helps:

     drop an output or an update; make an op a constant; replace a part of a body by one of its own parts or by 1;
     drop a layout; make a mesh axis or a dim smaller                                                             */
#include <time.h>

#include "ir/ir.h"

typedef struct {
  Arena *a;
  Module *m; /* the smallest so far */
  ShowsFn *shows;
  void *cx;
  time_t until;
} Shrink;

/* Is `m` lawful, and does it show the fault? Then it is the new smallest. */
static bool keep(Shrink *s, Module *m) {
  const char *why = NULL;
  ir_dead_code(m);
  ir_number(m);
  if (time(NULL) > s->until || !ir_verify(m, NULL, &why) || !s->shows(s->cx, m)) return false;
  s->m = m;
  return true;
}

static void list_ops(Arena *a, const Region *g, void *list) {
  VEC(Op *) *ops = list;
  for (int i = 0; i < g->ops.n; i++) {
    vec_push(a, *ops, g->ops.at[i]);
    if (g->ops.at[i]->body_region) list_ops(a, g->ops.at[i]->body_region, list);
  }
}

typedef VEC(Op *) Ops;
static Ops all_ops(Shrink *s, const Module *m) {
  Ops ops = {0};
  list_ops(s->a, m->programs.at[0].body, &ops);
  return ops;
}

static void remove_op(Region *g, const Op *op) {
  int n = 0;
  for (int i = 0; i < g->ops.n; i++)
    if (g->ops.at[i] != op) g->ops.at[n++] = g->ops.at[i];
  g->ops.n = n;
}

static bool drop_effect(Shrink *s, Module *m, Op *op) {
  if (op_class(op->kind) != CLS_EFFECT) return false;
  if (op->kind == OP_TAP && op->tap == TAP_LOSS) m->train = (Train){0};
  remove_op(m->programs.at[0].body, op);
  return keep(s, m);
}

static bool make_constant(Shrink *s, Module *m, Op *op) {
  if (op_class(op->kind) != CLS_SPACE || op->nout != 1 || op->nin == 0) return false;
  const Type *t = &m->values.at[op->out[0]].type;
  op->kind = OP_NEST;
  op->reduce = RED_NONE;
  op->nin = 0;
  op->reverse = false;
  op->into = NULL;
  op->space.n = op->space.nout;
  Expr *e = ex_int(s->a, I32, 1);
  for (int i = 0; i < op->space.nout; i++) e = ex_2(s->a, EX_ADD, e, ex_index(s->a, ix_scale(s->a, ix_index(s->a, i), i + 2)));
  op->body = t->dtype == F32 ? ex_cast(s->a, F32, e) : ex_int(s->a, t->dtype, 0);
  return keep(s, m);
}

/* Replaces node number `n` of the body (depth first) by `by`: 0..2 its argument of that number, 3 the literal 1,
   4 a read's `else`. */
static Expr *edit(Arena *a, Expr *x, int *n, int by, bool *done) {
  if ((*n)-- == 0) {
    Expr *y = by < 3                                              ? x->arg[by]
              : by == 3 && x->op != EX_LITERAL && x->dtype == F32 ? ex_lit(a, F32, 1)
              : by == 4                                           ? x->otherwise
                                                                  : NULL;
    *done = y && y->dtype == x->dtype;
    return *done ? y : x;
  }
  Expr *copy = NEW(a, Expr);
  *copy = *x;
  for (int i = 0; i < 3; i++)
    if (x->arg[i] && *n >= 0) copy->arg[i] = edit(a, x->arg[i], n, by, done);
  return copy;
}

static bool simplify_body(Shrink *s, int which) {
  for (int node = 0; node < 60; node++)
    for (int by = 0; by < 5; by++) {
      Module *m = ir_clone(s->m, s->a);
      Ops ops = all_ops(s, m);
      if (which >= ops.n || !ops.at[which]->body || ops.at[which]->kind == OP_GATHER) return false;
      bool done = false;
      int n = node;
      ops.at[which]->body = edit(s->a, ops.at[which]->body, &n, by, &done);
      if (n >= 0) return false; /* no such node */
      if (done && keep(s, m)) return true;
    }
  return false;
}

static bool drop_layout(Shrink *s) {
  for (ValueId v = 0; v < s->m->values.n; v++)
    for (int k = 0; k < s->m->values.at[v].type.rank; k++) {
      const Split *now = &s->m->values.at[v].type.dim[k].split;
      const Op *def = s->m->values.at[v].def;
      bool leaf = def && op_class(def->kind) == CLS_LEAF;
      if (now->n == 0 && now->fixed == leaf) continue;
      Module *m = ir_clone(s->m, s->a);
      m->values.at[v].type.dim[k].split = (Split){.fixed = leaf};
      if (keep(s, m)) return true;
    }
  return false;
}

static void resize_axis(Split *s, int axis, int64_t size) {
  int n = 0;
  for (int i = 0; i < s->n; i++) {
    if (s->part[i].axis != axis)
      s->part[n++] = s->part[i];
    else if (size > 1)
      s->part[n++] = (AxisPart){axis, 1, size};
    if (n > 1 && s->part[n - 1].axis == axis && s->part[n - 2].axis == axis) n--;
  }
  s->n = n;
}

static bool shrink_mesh(Shrink *s) {
  for (int a = 0; a < s->m->mesh.naxes; a++)
    for (int64_t size = 1; size < s->m->mesh.axis[a].size; size++) {
      Module *m = ir_clone(s->m, s->a);
      m->mesh.axis[a].size = size;
      for (ValueId v = 0; v < m->values.n; v++)
        for (int k = 0; k < m->values.at[v].type.rank; k++) resize_axis(&m->values.at[v].type.dim[k].split, a, size);
      if (keep(s, m)) return true;
    }
  return false;
}

static void resize_dim(Module *m, const Ops *ops, const char *name, int64_t size) {
  for (ValueId v = 0; v < m->values.n; v++) {
    Type *t = &m->values.at[v].type;
    for (int k = 0; k < t->rank; k++)
      if (t->dim[k].name && !strcmp(t->dim[k].name, name)) t->dim[k].size = size;
  }
  for (int i = 0; i < ops->n; i++) {
    Op *op = ops->at[i];
    for (int k = 0; k < op->space.n; k++)
      if (op->space.idx[k].dim && !strcmp(op->space.idx[k].dim, name)) op->space.idx[k].range = size;
    if (op->trip_dim && !strcmp(op->trip_dim, name)) op->trip = size;
    if (op->limit > size) op->limit = size;
  }
}

typedef struct {
  const char *name;
  int64_t size;
} Named;
typedef VEC(Named) NamedDims;

static NamedDims named_dims(Shrink *s) {
  NamedDims dims = {0};
  for (ValueId v = 0; v < s->m->values.n; v++)
    for (int k = 0; k < s->m->values.at[v].type.rank; k++) {
      const Dim *d = &s->m->values.at[v].type.dim[k];
      int i = 0;
      while (d->name && i < dims.n && strcmp(dims.at[i].name, d->name)) i++;
      if (d->name && i == dims.n) vec_push(s->a, dims, ((Named){d->name, d->size}));
    }
  return dims;
}

/* Small sizes are all tried, of large ones the half. */
static bool shrink_dim(Shrink *s) {
  enum { SMALL = 10 };
  NamedDims dims = named_dims(s);
  for (int i = 0; i < dims.n; i++)
    for (int64_t size = 1; size < dims.at[i].size; size = size < SMALL                 ? size + 1
                                                          : size < dims.at[i].size / 2 ? dims.at[i].size / 2
                                                                                       : dims.at[i].size) {
      Module *m = ir_clone(s->m, s->a);
      Ops ops = all_ops(s, m);
      resize_dim(m, &ops, dims.at[i].name, size);
      if (keep(s, m)) return true;
    }
  return false;
}

/* Tries `f` on every op, last first: what is dropped late frees what came before. */
static bool each_op(Shrink *s, bool (*f)(Shrink *, Module *, Op *)) {
  bool any = false;
  for (int i = all_ops(s, s->m).n - 1; i >= 0; i--) {
    Module *m = ir_clone(s->m, s->a);
    Ops ops = all_ops(s, m);
    if (i < ops.n) any = f(s, m, ops.at[i]) || any;
  }
  return any;
}

Module *ir_shrink(Arena *a, const Module *m, int seconds, ShowsFn *shows, void *cx) {
  Shrink s = {.a = a, .m = ir_clone(m, a), .shows = shows, .cx = cx, .until = time(NULL) + seconds};
  for (bool more = true; more && time(NULL) <= s.until;) {
    more = each_op(&s, drop_effect);
    more = each_op(&s, make_constant) || more;
    while (shrink_mesh(&s)) more = true;
    while (shrink_dim(&s)) more = true;
    while (drop_layout(&s)) more = true;
    for (int i = all_ops(&s, s.m).n - 1; i >= 0; i--)
      while (simplify_body(&s, i)) more = true;
  }
  return s.m;
}
