/* dead.c: ir_dead_code removes what no effect needs. Roots are taps, updates, the loss of the train block and
   parameters (they belong to the user's model, used or not). Liveness is per value; a repeat is taken apart
   by entries, so that a carried value that nobody reads goes, and what only it needed:

     %x1, %n.all = repeat %l < L=4 carry(%x = %x0) each(%w = %ws) { ... yield %y stack() save(%n) }
     with %n.all unused: %x1 = repeat ... { ... yield %y stack() save() }, and %n goes if %y does not need it */
#include "ir/ir.h"

typedef struct {
  Module *m;
  bool *live;
  bool changed;
} Live;

static void need(Live *l, ValueId v) {
  if (l->live[v]) return;
  l->live[v] = true;
  l->changed = true;
}

static bool is_root(const Op *op) { return op_class(op->kind) == CLS_EFFECT || op->kind == OP_PARAM; }

static bool any_live(const Live *l, const Op *op) {
  for (int i = 0; i < op->nout; i++)
    if (l->live[op->out[i]]) return true;
  return false;
}

static void mark_region(Live *l, const Region *r);

/* A carried entry is needed when its result is, or its argument in the body. */
static void mark_repeat_ends(Live *l, const Op *op) {
  const Region *b = op->body_region;
  for (int i = 0; i < op->nout; i++)
    if (l->live[op->out[i]]) {
      need(l, b->yields.at[i]);
      if (i < op->ncarried) need(l, op->in[i]);
    }
  for (int i = 0; i < op->nin; i++) {
    if (!l->live[b->args.at[1 + i]]) continue;
    need(l, op->in[i]);
    if (i < op->ncarried) need(l, b->yields.at[i]);
  }
}

static void mark_op(Live *l, const Op *op) {
  if (op->kind == OP_REPEAT) {
    mark_repeat_ends(l, op);
    mark_region(l, op->body_region);
    mark_repeat_ends(l, op);
    return;
  }
  bool layout = op_class(op->kind) == CLS_LAYOUT, all = is_root(op) || (!layout && any_live(l, op));
  for (int i = 0; i < op->nin; i++)
    if (all || (layout && l->live[op->out[i]])) need(l, op->in[i]);
}

static void mark_region(Live *l, const Region *r) {
  for (int i = r->ops.n - 1; i >= 0; i--) mark_op(l, r->ops.at[i]);
}

/* Keeps those of n entries of list that `keep` has; returns how many. */
static int compact(ValueId *list, int n, const bool *keep) {
  int kept = 0;
  for (int i = 0; i < n; i++)
    if (keep[i]) list[kept++] = list[i];
  return kept;
}

static int count(const bool *keep, int from, int to) {
  int n = 0;
  for (int i = from; i < to; i++) n += keep[i];
  return n;
}

static void sweep_repeat(Live *l, Op *op) {
  Arena *a = l->m->arena;
  Region *b = op->body_region;
  bool *in = NEW_ARRAY(a, bool, op->nin + 2), *out = NEW_ARRAY(a, bool, op->nout + 1);
  in[0] = true; /* the counter; in[1 + i] is for operand i */
  for (int i = 0; i < op->nin; i++) in[1 + i] = l->live[b->args.at[1 + i]];
  for (int i = 0; i < op->nout; i++) out[i] = l->live[op->out[i]];
  for (int i = 0; i < op->ncarried; i++) in[1 + i] = out[i] = in[1 + i] || out[i];
  int carried = op->ncarried, invariant = op->ninvariant;
  op->ncarried = count(out, 0, carried);
  op->ninvariant = count(in, 1 + carried, 1 + carried + invariant);
  op->nstacked = count(in, 1 + carried + invariant, 1 + op->nin);
  op->nsaved = count(out, op->nout - op->nsaved, op->nout);
  b->args.n = compact(b->args.at, b->args.n, in);
  op->nin = compact(op->in, op->nin, in + 1);
  b->yields.n = compact(b->yields.at, b->yields.n, out);
  op->nout = compact(op->out, op->nout, out);
}

static void sweep_layout(Live *l, Op *op) {
  bool *keep = NEW_ARRAY(l->m->arena, bool, op->nout);
  for (int i = 0; i < op->nout; i++) keep[i] = l->live[op->out[i]];
  op->nin = compact(op->in, op->nin, keep);
  op->nout = compact(op->out, op->nout, keep);
}

static void sweep_region(Live *l, Region *r) {
  int kept = 0;
  for (int i = 0; i < r->ops.n; i++) {
    Op *op = r->ops.at[i];
    if (!is_root(op) && !any_live(l, op)) continue;
    if (op->kind == OP_REPEAT) {
      sweep_repeat(l, op);
      sweep_region(l, op->body_region);
    }
    if (op_class(op->kind) == CLS_LAYOUT) sweep_layout(l, op);
    r->ops.at[kept++] = op;
  }
  r->ops.n = kept;
}

void ir_dead_code(Module *m) {
  Live l = {.m = m, .live = NEW_ARRAY(m->arena, bool, m->values.n + 1), .changed = true};
  if (m->train.present && m->train.loss >= 0) need(&l, m->train.loss);
  while (l.changed) { /* more than once only for values carried around a repeat */
    l.changed = false;
    for (int i = m->programs.n - 1; i >= 0; i--) mark_region(&l, m->programs.at[i].body);
  }
  for (int i = 0; i < m->programs.n; i++) sweep_region(&l, m->programs.at[i].body);
  ir_number(m);
}
