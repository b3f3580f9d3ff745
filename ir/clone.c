/* clone.c: ir_clone copies a module, with everything that hangs on it, into an arena. Value ids stay. */
#include "ir/ir.h"

static const char *text(Arena *a, const char *s) { return s ? arena_strdup(a, s) : NULL; }

static ValueId *ids(Arena *a, const ValueId *from, int n) {
  ValueId *r = NEW_ARRAY(a, ValueId, n);
  for (int i = 0; i < n; i++) r[i] = from[i];
  return r;
}

static Type clone_type(Arena *a, Type t) {
  for (int i = 0; i < t.rank; i++) t.dim[i].name = text(a, t.dim[i].name);
  return t;
}

static Expr *clone_body(Arena *a, const Expr *x) { return x ? ex_substitute(a, x, NULL, NULL) : NULL; }

static Region *clone_region(Module *m, const Region *from, Op *parent);

static Op *clone_op(Module *m, const Op *from) {
  Arena *a = m->arena;
  Op *op = NEW(a, Op);
  *op = *from;
  op->why = text(a, from->why);
  op->name = text(a, from->name);
  op->file = text(a, from->file);
  op->limit_dim = text(a, from->limit_dim);
  op->trip_dim = text(a, from->trip_dim);
  op->in = ids(a, from->in, from->nin);
  op->out = ids(a, from->out, from->nout);
  op->wrt = ids(a, from->wrt, from->nwrt);
  for (int i = 0; i < op->space.n; i++) {
    op->space.idx[i].name = text(a, from->space.idx[i].name);
    op->space.idx[i].dim = text(a, from->space.idx[i].dim);
  }
  op->body = clone_body(a, from->body);
  for (int i = 0; i < op_reads(op); i++) op->read[i] = clone_body(a, from->read[i]);
  if (from->into) {
    op->into = NEW_ARRAY(a, IExpr *, from->space.nout);
    for (int i = 0; i < from->space.nout; i++) op->into[i] = ix_substitute(a, from->into[i], NULL, NULL);
  }
  if (from->body_region) op->body_region = clone_region(m, from->body_region, op);
  return op;
}

static Region *clone_region(Module *m, const Region *from, Op *parent) {
  Region *r = ir_region(m, parent);
  for (int i = 0; i < from->ops.n; i++) vec_push(m->arena, r->ops, clone_op(m, from->ops.at[i]));
  for (int i = 0; i < from->args.n; i++) vec_push(m->arena, r->args, from->args.at[i]);
  for (int i = 0; i < from->yields.n; i++) vec_push(m->arena, r->yields, from->yields.at[i]);
  return r;
}

static Train clone_train(Arena *a, const Train *from) {
  Train t = *from;
  memset(&t.decay_names, 0, sizeof t.decay_names);
  for (int i = 0; i < from->decay_names.n; i++) vec_push(a, t.decay_names, text(a, from->decay_names.at[i]));
  return t;
}

Module *ir_clone(const Module *from, Arena *a) {
  Module *m = NEW(a, Module);
  m->arena = a;
  m->mesh = from->mesh;
  m->mesh.name = text(a, from->mesh.name);
  for (int i = 0; i < m->mesh.naxes; i++) m->mesh.axis[i].name = text(a, from->mesh.axis[i].name);
  m->stage = from->stage;
  m->target = from->target;
  m->tf32 = from->tf32;
  m->fast = from->fast;
  m->least_product = from->least_product;
  m->train = clone_train(a, &from->train);
  for (int i = 0; i < from->files.n; i++) vec_push(a, m->files, text(a, from->files.at[i]));
  for (int i = 0; i < from->written.n; i++) {
    Written w = from->written.at[i];
    w.name = text(a, w.name);
    for (int d = 0; d < w.rank; d++) w.dim[d].name = text(a, w.dim[d].name);
    vec_push(a, m->written, w);
  }
  m->values.cap = from->values.n; /* values are large: no room is left to grow into */
  m->values.at = NEW_ARRAY(a, Value, from->values.n);
  for (int i = 0; i < from->values.n; i++) {
    Value v = from->values.at[i];
    v.name = text(a, v.name);
    v.type = clone_type(a, v.type);
    vec_push(a, m->values, v);
  }
  for (int i = 0; i < from->programs.n; i++) {
    Program p = {from->programs.at[i].stage, clone_region(m, from->programs.at[i].body, NULL)};
    vec_push(a, m->programs, p);
  }
  if (from->buffers) {
    m->buffers = NEW_ARRAY(a, Buffer, from->values.n);
    memcpy(m->buffers, from->buffers, size_mul(sizeof(Buffer), (size_t)from->values.n));
  }
  m->arena_bytes = from->arena_bytes;
  m->workspace_bytes = from->workspace_bytes;
  ir_number(m);
  return m;
}
