/* emit_ops.c: a plain loop nest for each of the ops that are neither nests nor products: scatter_add, argmax, topk,
   scan, random, slice.

     for n, d: dwte[tok[n] * 64 + d] += dx[n * 64 + d]              scatter_add, in order: sums are deterministic

   CUDA has other kernels for most (emit_ops_cuda.c). */
#include "emit_ops.h"
#include "emit_spread.h"

Kernel *emit_simple(Emit *e, const Op *op, const char *reserved, Scope *s) {
  Kernel *k = emit_kernel(e, op, e->m->values.at[op->out[0]].name);
  char *words = arena_strdup(e->a, reserved), *rest = NULL;
  for (char *w = strtok_r(words, " ", &rest); w; w = strtok_r(NULL, " ", &rest)) emit_take(e, &k->local, w);
  *s = (Scope){.k = k, .op = op, .now = &k->body};
  for (int i = 0; i < op->space.n; i++) {
    const Index *x = &op->space.idx[i];
    s->var[i].range = emit_range(k, x->range, &x->split, x->name);
    s->var[i].name = emit_name(e, &k->local, x->name);
  }
  return k;
}

void emit_for(Scope *s, int index) {
  const Var *v = &s->var[index];
  str_printf(s->k->e->a, &s->k->body, "for (int64_t %s = 0; %s < %s; %s++) {\n", v->name, v->name, emit_n(s->k, v->range),
             v->name);
}

void emit_close(Kernel *k, int n) {
  for (; n > 0; n--) str_put(k->e->a, &k->body, "}\n");
}

#define LINE(...) str_printf(e->a, &k->body, __VA_ARGS__)

static const Type *out_type(const Emit *e, const Op *op, int i) { return &e->m->values.at[op->out[i]].type; }

/* ---- scatter_add ----------------------------------------------------------------------------------------------- */

static bool stands_for_row(const Op *op, int i) { return i < op->space.nout && ix_by_value(op->into[i]); }

/* Is coordinate d of the result this rank's by construction? */
static bool own_coordinate(const Op *op, const Type *t, int d) {
  int i = ix_single(op->into[d]);
  return !cg_is_split(&t->dim[d].split) || (i >= 0 && cg_same_part(&op->space.idx[i], &t->dim[d]));
}

/* Adds the body where it belongs: statements behind which this is known, and the addition. */
static void scatter_item(Scope *s, const char *out, bool atomic) {
  Emit *e = s->k->e;
  const Op *op = s->op;
  const Type *t = out_type(e, op, 0);
  Str here = {0};
  emit_hoist(s);
  for (int d = 0; d < op->space.nout; d++)
    if (ix_by_value(op->into[d]) || !own_coordinate(op, t, d)) emit_hoist_dim(s, op->into[d], t, d, !ix_by_value(op->into[d]));
  for (int i = 0; i < s->hoisted.n; i++)
    for (int d = 0; d < op->space.nout; d++)
      if (s->hoisted.at[i].x == op->into[d] && s->hoisted.at[i].here)
        str_printf(e->a, &here, "%s%s", here.n ? " && " : "", s->hoisted.at[i].here);
  if (here.n) str_printf(e->a, s->now, "if (%s) ", here.at);
  const char *value = emit_expr(s, op->body), *to = emit_offset(s, t, op->space.nout, op->into);
  str_printf(e->a, s->now, atomic ? "atomicAdd(&%s[%s], %s);\n" : "%s[%s] += %s;\n", out, to, value);
}

/* In CUDA only with --fast: a thread has an item, and adds by atomics. */
Kernel *emit_scatter(Emit *e, const Op *op) {
  bool cuda = e->m->target == TARGET_CUDA, real = op->body->dtype == F32 || op->body->dtype == F64;
  if (cuda && !(e->m->fast && real)) return emit_scatter_cuda(e, op);
  Scope s;
  Kernel *k = emit_simple(e, op, "", &s);
  const char *out = emit_pointer(k, op->out[0], true);
  emit_zero(k, out, cg_bytes(out_type(e, op, 0)));
  // summed indices first, so that the last dims of the result run innermost
  int loops = 0, order[MAX_INDEX], opened;
  Extent x[MAX_INDEX];
  for (int i = op->space.nout; i < op->space.n; i++) order[loops++] = i;
  for (int i = 0; i < op->space.nout; i++)
    if (!stands_for_row(op, i)) order[loops++] = i;
  for (int l = 0; l < loops; l++) s.var[order[l]].level = cuda ? 1 : l + 1, x[l] = emit_extent(&s, order[l]);
  Str pre[MAX_INDEX + 1] = {0}, body = {0};
  s.depth = cuda ? 1 : loops, s.pre = pre, s.now = &body;
  scatter_item(&s, out, cuda);
  if (pre[0].at) str_put(e->a, &k->body, pre[0].at);
  const char *grid = emit_by_threads(k, 256, loops, x, pre + 1, &opened);
  str_put(e->a, &k->body, body.at);
  emit_close(k, opened);
  emit_launch(k, grid, 256);
  emit_kernel_end(k, op, cuda ? "adds by value" : "adds by value, in order");
  return k;
}

/* ---- selection --------------------------------------------------------------------------------------------------- */

const char *emit_reduced_number(Scope *s) {
  Arena *a = s->k->e->a;
  IExpr *at = ix_const(a, 0);
  for (int i = s->op->space.nout; i < s->op->space.n; i++)
    at = ix_add(a, ix_scale(a, at, s->op->space.idx[i].range), ix_index(a, i));
  return emit_index(s, at);
}

/* That x comes before y in descending order. */
static const char *above(Emit *e, DType t, const char *x, const char *y) {
  if (dtype_is_int(t)) return arena_printf(e->a, "%s > %s", x, y);
  return arena_printf(e->a, "dtrt_above%s(%s, %s)", t == F64 ? "" : "f", x, y);
}

Kernel *emit_argmax(Emit *e, const Op *op) {
  if (e->m->target == TARGET_CUDA) return emit_argmax_cuda(e, op);
  Scope s;
  Kernel *k = emit_simple(e, op, "", &s);
  const char *best = emit_name(e, &k->local, "best"), *at = emit_name(e, &k->local, "at"), *x = emit_name(e, &k->local, "x"),
             *type = emit_ctype(op->body->dtype), *out = emit_pointer(k, op->out[0], true);
  for (int i = 0; i < op->space.nout; i++) emit_for(&s, i);
  LINE("%s %s = 0;\nint64_t %s = -1;\n", type, best, at);
  for (int i = op->space.nout; i < op->space.n; i++) emit_for(&s, i);
  emit_hoist(&s);
  const char *value = emit_expr(&s, op->body);
  LINE("const %s %s = %s;\nif (%s < 0 || %s) {\n%s = %s;\n%s = %s;\n}\n", type, x, value, at, above(e, op->body->dtype, x, best),
       best, x, at, emit_reduced_number(&s));
  emit_close(k, op->space.n - op->space.nout);
  LINE("%s[%s] = (int32_t)(%s < 0 ? 0 : %s);\n", out, emit_own_offset(&s, out_type(e, op, 0), 0), at, at);
  emit_close(k, op->space.nout);
  emit_kernel_end(k, op, "where the largest is, the first among equals");
  return k;
}

int64_t cg_op_workspace(const Module *m, const Op *op) {
  if (op->kind == OP_TOPK && m->target == TARGET_C) return 16 * op->space.idx[op->space.nout - 1].range + 64;
  if (op->kind == OP_ATTENTION || op->kind == OP_ATTENTION_GRAD) return cg_attention_workspace(m, op);
  return 0;
}

Kernel *emit_topk(Emit *e, const Op *op) {
  if (e->m->target == TARGET_CUDA) return emit_topk_cuda(e, op);
  Scope s;
  Kernel *k = emit_simple(e, op, "", &s);
  int j = op->space.nout - 1;
  long long cap = op->space.idx[j].range;
  const char *list = emit_name(e, &k->local, "list"), *where = emit_name(e, &k->local, "where"),
             *n = emit_name(e, &k->local, "n"), *at = emit_name(e, &k->local, "at"), *x = emit_name(e, &k->local, "x"),
             *i = emit_name(e, &k->local, "i"), *type = emit_ctype(op->body->dtype);
  const char *v = emit_pointer(k, op->out[0], true), *w = emit_pointer(k, op->out[1], true);
  LINE("int64_t *%s %s = (int64_t *)cx->workspace;\n", e->d->restricted, where);
  LINE("%s *%s %s = (%s *)(cx->workspace + %lld);\n", type, e->d->restricted, list, type, 8 * cap);
  for (int o = 0; o < j; o++) emit_for(&s, o);
  LINE("int64_t %s = 0;\n", n);
  for (int o = op->space.nout; o < op->space.n; o++) emit_for(&s, o);
  emit_hoist(&s);
  const char *value = emit_expr(&s, op->body);
  LINE("const %s %s = %s;\nint64_t %s = %s;\n", type, x, value, at, n);
  LINE("while (%s > 0 && %s) %s--;\n", at, above(e, op->body->dtype, x, arena_printf(e->a, "%s[%s - 1]", list, at)), at);
  LINE("if (%s == %lld) continue;\nif (%s < %lld) %s++;\n", at, cap, n, cap, n);
  LINE("for (int64_t %s = %s - 1; %s > %s; %s--) %s[%s] = %s[%s - 1], %s[%s] = %s[%s - 1];\n", i, n, i, at, i, list, i, list, i,
       where, i, where, i);
  LINE("%s[%s] = %s;\n%s[%s] = %s;\n", list, at, x, where, at, emit_reduced_number(&s));
  emit_close(k, op->space.n - op->space.nout);
  emit_for(&s, j);
  const char *rank = emit_index(&s, ix_index(e->a, j));
  LINE("%s[%s] = %s[%s];\n", v, emit_own_offset(&s, out_type(e, op, 0), 0), list, rank);
  LINE("%s[%s] = (int32_t)%s[%s];\n", w, emit_own_offset(&s, out_type(e, op, 1), 0), where, rank);
  emit_close(k, j + 1);
  emit_kernel_end(k, op, "the largest, in descending order");
  return k;
}

/* ---- scan ---------------------------------------------------------------------------------------------------------- */

/* Each element is the one before it along the scanned index plus the body; the indices behind it run innermost. */
Kernel *emit_scan(Emit *e, const Op *op) {
  if (e->m->target == TARGET_CUDA) return emit_scan_cuda(e, op);
  Scope s;
  Kernel *k = emit_simple(e, op, "", &s);
  const Type *t = out_type(e, op, 0);
  int64_t stride[MAX_RANK];
  cg_strides(t, stride);
  int a = op->along;
  const char *out = emit_pointer(k, op->out[0], true), *i = s.var[a].name, *n = emit_n(k, s.var[a].range), *step = i;
  for (int o = 0; o < a; o++) emit_for(&s, o);
  if (op->reverse) {
    step = emit_name(e, &k->local, "step");
    LINE("for (int64_t %s = 0; %s < %s; %s++) {\nconst int64_t %s = %s - 1 - %s;\n", step, step, n, step, i, n, step);
  } else {
    emit_for(&s, a);
  }
  for (int o = a + 1; o < op->space.nout; o++) emit_for(&s, o);
  emit_hoist(&s);
  const char *value = emit_expr(&s, op->body), *at = emit_own_offset(&s, t, 0);
  LINE("%s[%s] = %s > 0 ? %s[%s %c %lld] + %s : %s;\n", out, at, step, out, at, op->reverse ? '+' : '-', (long long)stride[a],
       value, value);
  emit_close(k, op->space.nout);
  emit_kernel_end(k, op, "running sums");
  return k;
}

/* ---- random ---------------------------------------------------------------------------------------------------------- */

static const char *scalar(Kernel *k, ValueId v) {
  const char *p = emit_pointer(k, v, false);
  return arena_printf(k->e->a, "(int64_t)*%s", p);
}

void emit_random_site(Kernel *k, const Op *op, const char *site, const char *counter) {
  Emit *e = k->e;
  Str counters = {0}, name = {0};
  for (int i = 1; i < op->nin; i++) str_printf(e->a, &counters, "%s%s", i > 1 ? ", " : "", scalar(k, op->in[i]));
  emit_string(e, &name, op->name);
  LINE("const int64_t %s[] = {%s};\n", counter, counters.n ? counters.at : "0");
  LINE("const dtrt_Random %s = dtrt_random_site(cx->seed, %s, %s, %d, %s);\n", site, name.at, scalar(k, op->in[0]), op->nin - 1,
       counter);
  e->uses_random = true;
}

IExpr *emit_element_number(Emit *e, const Op *op) {
  IExpr *x = ix_const(e->a, 0);
  for (int i = 0; i < op->space.nout; i++) x = ix_add(e->a, ix_scale(e->a, x, op->space.idx[i].range), ix_index(e->a, i));
  return x;
}

/* Rows along the last dim; the counter of an element is its global number. */
Kernel *emit_random(Emit *e, const Op *op) {
  if (e->m->target == TARGET_CUDA) return emit_random_cuda(e, op);
  Scope s;
  Kernel *k = emit_simple(e, op, "", &s);
  const Type *t = out_type(e, op, 0);
  int last = op->space.nout - 1;
  const char *site = emit_name(e, &k->local, "site"), *counter = emit_name(e, &k->local, "counter"),
             *out = emit_pointer(k, op->out[0], true);
  emit_random_site(k, op, site, counter);
  for (int i = 0; i < last; i++) emit_for(&s, i);
  const char *n = last >= 0 ? emit_n(k, s.var[last].range) : "1";
  if (last >= 0) s.var[last].name = "0";
  LINE("dtrt_random_%s(%s, %s + %s, %s, %s);\n", op->init == INIT_NORMAL ? "normal" : "uniform", site, out,
       emit_own_offset(&s, t, 0), n, emit_index(&s, emit_element_number(e, op)));
  emit_close(k, last > 0 ? last : 0);
  emit_kernel_end(k, op, "random numbers");
  return k;
}

/* ---- slice ----------------------------------------------------------------------------------------------------------- */

/* `number`: of the rank among those of whom one keeps the value, or NULL. */
static void slice_one(Emit *e, Kernel *k, const Type *from, const Type *to, const char *x, const char *y, const char *number) {
  int64_t sx[MAX_RANK], sy[MAX_RANK];
  cg_strides(from, sx);
  cg_strides(to, sy);
  const char *ox = "0", *oy = "0";
  Extent extent[MAX_RANK];
  for (int d = 0; d < to->rank; d++) {
    const char *i = emit_name(e, &k->local, to->dim[d].name ? to->dim[d].name : "i");
    Range *t = emit_range(k, to->dim[d].size, &to->dim[d].split, i),
          *f = emit_range(k, from->dim[d].size, &from->dim[d].split, i);
    extent[d] = (Extent){i, emit_n(k, t), split_capacity(&to->dim[d].split, to->dim[d].size)};
    const char *lo = emit_lo(k, t), *base = emit_lo(k, f);
    const char *at = t == f ? i : emit_sum(e, lo, i);
    if (t != f && strcmp(base, "0")) at = arena_printf(e->a, "%s - %s", at, base);
    const char *xd = sx[d] == 1 ? at : arena_printf(e->a, "(%s) * %lld", at, (long long)sx[d]);
    const char *yd = sy[d] == 1 ? i : arena_printf(e->a, "%s * %lld", i, (long long)sy[d]);
    ox = emit_sum(e, ox, xd), oy = emit_sum(e, oy, yd);
  }
  int opened;
  const char *grid = emit_by_threads(k, 256, to->rank, extent, NULL, &opened);
  if (number)
    LINE("%s[%s] = %s == 0 ? %s[%s] : 0;\n", y, oy, number, x, ox);
  else
    LINE("%s[%s] = %s[%s];\n", y, oy, x, ox);
  emit_close(k, opened);
  emit_launch(k, grid, 256);
}

/* A complete value becomes a pending sum by one rank of the group keeping it: which one this is, or NULL. */
static const char *fresh_number(Kernel *k, const Type *from, const Type *to) {
  Split fresh = {0};
  for (int i = 0; i < to->pending.n; i++) {
    bool old = false;
    for (int j = 0; j < from->pending.n; j++) old |= part_equal(from->pending.part[j], to->pending.part[i]);
    if (!old) fresh.part[fresh.n++] = to->pending.part[i];
  }
  if (fresh.n == 0) return NULL;
  if (to->pending.kind != RED_SUM) internal_error("a complete value becomes a pending %d", to->pending.kind);
  return emit_lo(k, emit_range(k, split_count(&fresh), &fresh, "part"));
}

Kernel *emit_slice(Emit *e, const Op *op) {
  Kernel *k = emit_kernel(e, op, e->m->values.at[op->out[0]].name);
  for (int i = 0; i < op->nout; i++) {
    const char *x = emit_pointer(k, op->in[i], false), *y = emit_pointer(k, op->out[i], true);
    const Type *from = &e->m->values.at[op->in[i]].type, *to = out_type(e, op, i);
    const char *number = fresh_number(k, from, to);
    slice_one(e, k, from, to, x, y, number);
  }
  emit_kernel_end(k, op, "this rank's part of a whole");
  return k;
}
