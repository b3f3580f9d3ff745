/* pair.c: [16,8,8] from x|-|- to -|x|-: a leaf, a nest that lays it out, a reshard, a tap -> collect -> the interpreter. */
#include "pair.h"

#include <stdlib.h>

Module *pair_mesh(Arena *a, int n, const int64_t *sizes) {
  static const char *const names[] = {"x", "y", "z", "w"};
  Module *m = ir_module(a);
  m->mesh.name = "m";
  m->mesh.naxes = n;
  for (int i = 0; i < n; i++) m->mesh.axis[i] = (Axis){names[i], sizes[i]};
  m->stage = STAGE_SHARDED;
  return m;
}

Type pair_shape(int rank, const int64_t *sizes) {
  Type t = {.dtype = F32, .rank = rank};
  for (int d = 0; d < rank; d++) t.dim[d].size = sizes[d];
  return t;
}

void pair_split(Type *t, int d, AxisPart p) { t->dim[d].split.part[t->dim[d].split.n++] = p; }

void pair_pend(Type *t, AxisPart p) {
  t->pending.kind = RED_SUM;
  t->pending.part[t->pending.n++] = p;
}

Type pair_random(const Module *m, const Type *shape, unsigned *seed, bool pending) {
  Type t = *shape;
  int first = rand_r(seed) % m->mesh.naxes;
  for (int i = 0; i < m->mesh.naxes; i++) {
    int axis = (first + i) % m->mesh.naxes, place = rand_r(seed) % (t.rank + (pending ? 2 : 1));
    if (place < t.rank) pair_split(&t, place, axis_whole(&m->mesh, axis));
    if (place == t.rank + 1) pair_pend(&t, axis_whole(&m->mesh, axis));
  }
  return t;
}

static void put_parts(const Mesh *m, Str *s, Arena *a, int n, const AxisPart *part) {
  for (int i = 0; i < n; i++) str_printf(a, s, "%s%s", i ? "," : "", m->axis[part[i].axis].name);
}

const char *pair_name(const Mesh *m, const Type *t, Arena *a) {
  Str s = {0};
  for (int d = 0; d < t->rank; d++) {
    str_put(a, &s, d ? "|" : "");
    if (t->dim[d].split.n == 0) str_put(a, &s, "-");
    put_parts(m, &s, a, t->dim[d].split.n, t->dim[d].split.part);
  }
  if (t->pending.n == 0) return s.at;
  str_put(a, &s, "{");
  put_parts(m, &s, a, t->pending.n, t->pending.part);
  str_put(a, &s, "}");
  return s.at;
}

/* ---- the program --------------------------------------------------------------------------------------------------- */

static IExpr **all_indices(Arena *a, int n) {
  IExpr **ix = NEW_ARRAY(a, IExpr *, n + 1);
  for (int i = 0; i < n; i++) ix[i] = ix_index(a, i);
  return ix;
}

/* out[i] = sum over the contributors r of x[i] * (r + 1): a value in layout `from`, each contribution different. */
static ValueId source(Module *m, const Type *from) {
  Arena *a = m->arena;
  Region *r = m->programs.at[0].body;
  Type shape = *from;
  for (int d = 0; d < shape.rank; d++) shape.dim[d].split = (Split){0};
  shape.pending = (Pending){0};
  Op *leaf = ir_op(m, OP_PARAM, (Loc){0}), *nest = ir_op(m, OP_NEST, (Loc){0});
  leaf->name = "x";
  leaf->init = INIT_NORMAL;
  leaf->init_a = 1;
  ValueId x = ir_out(m, leaf, "x", shape);
  ir_append(m, r, leaf);
  ir_in(m, nest, x);
  ValueId out = ir_out(m, nest, "p", *from);
  Space *s = &nest->space;
  s->nout = from->rank;
  static const char *const names[] = {"i", "j", "k", "l"};
  for (int d = 0; d < from->rank; d++) s->idx[s->n++] = (Index){names[d], NULL, from->dim[d].size, from->dim[d].split};
  Index each = {"r", NULL, 1, {0}};
  for (int i = 0; i < from->pending.n; i++) {
    each.range *= from->pending.part[i].size;
    each.split.part[each.split.n++] = from->pending.part[i];
  }
  nest->body = ex_read(a, 0, F32, from->rank, all_indices(a, from->rank), NULL);
  if (from->pending.n > 0) {
    IExpr *count = ix_add(a, ix_index(a, s->n), ix_const(a, 1));
    nest->body = ex_2(a, EX_MUL, nest->body, ex_cast(a, F32, ex_index(a, count)));
    nest->reduce = RED_SUM;
    s->idx[s->n++] = each;
  }
  ir_append(m, r, nest);
  return out;
}

static void reshard_and_show(Module *m, ValueId v, const Type *to) {
  Op *op = ir_op(m, OP_RESHARD, (Loc){0}), *tap = ir_op(m, OP_TAP, (Loc){0});
  op->why = "of the test";
  ir_in(m, op, v);
  ValueId out = ir_out(m, op, "y", *to);
  ir_append(m, m->programs.at[0].body, op);
  tap->tap = TAP_OUTPUT;
  tap->name = "y";
  ir_in(m, tap, out);
  ir_append(m, m->programs.at[0].body, tap);
}

/* ---- the run --------------------------------------------------------------------------------------------------------- */

static Tensor interpret(const Module *m, bool ranks, PairRun *out) {
  const char *why = NULL;
  EvalRun *r = eval_new(m, m->arena, (EvalOptions){.domain = DOMAIN_INT, .ranks = ranks, .seed = 7});
  if (!eval_step(r, &why) || (ranks && !eval_agree(r, &why))) out->fault = why;
  for (int64_t k = 0; ranks && k < mesh_devices(&m->mesh); k++) {
    out->received = max_i64(out->received, eval_received(r, k));
    out->sent = max_i64(out->sent, eval_sent(r, k));
  }
  return out->fault ? (Tensor){0} : eval_tap(r, TAP_OUTPUT, "y");
}

static void list_steps(const Module *m, PairRun *out) {
  const Region *r = m->programs.at[0].body;
  Str s = {0};
  str_put(m->arena, &s, "");
  for (int i = 0; i < r->ops.n; i++) {
    OpKind k = r->ops.at[i]->kind;
    if (op_class(k) != CLS_LAYOUT) continue;
    str_printf(m->arena, &s, "%s%s", s.n ? " " : "", op_text(k));
    out->collectives += op_is_collective(k);
    out->standard += op_is_collective(k) && k != OP_EXCHANGE;
  }
  out->steps = s.at;
}

PairRun pair_run(Module *m, const Type *from, const Type *to, const char *cluster) {
  PairRun out = {0};
  Diags *d = diags_new(m->arena);
  reshard_and_show(m, source(m, from), to);
  ir_number(m);
  Module *w = ir_clone(m, m->arena);
  PassContext cx = {.diags = d, .cluster = cluster_find(m->arena, d, &m->mesh, cluster)};
  part_collect(m, &cx);
  ir_verify(m, "collect", NULL);
  list_steps(m, &out);
  out.text = ir_print(m, m->arena);
  Tensor x = interpret(w, false, &out), y = interpret(m, true, &out);
  int64_t n = type_elements(from), differ = 0;
  for (int64_t i = 0; i < n && !out.fault; i++) differ += x.at[i].i != y.at[i].i;
  if (differ) out.fault = arena_printf(m->arena, "%lld elements differ", (long long)differ);
  return out;
}
