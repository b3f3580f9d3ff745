/* compare.c: do a source program and the plan that was made of it mean the same? The source is run whole, the plan on all
   ranks in lockstep, over its planned arena if asked, both on the same leaves, settings and step, drawn from a seed:

     loss, metrics, outputs, gradients and the next value of every param and state must be equal modulo 2^61 - 1,
     and ranks that hold the same part of a value must hold the same numbers

   Two programs that differ agree on a random input with probability about (their degree) / 2^61. */
#include "ir/ir.h"

/* ---- what running costs ---- */

static double region_points(const Module *m, const Region *g, bool ranks, double ready) {
  double sum = 0;
  for (int i = 0; i < g->ops.n; i++) {
    const Op *op = g->ops.at[i];
    if (op->body_region) sum += (double)op->trip * region_points(m, op->body_region, ranks, ready);
    double points = ranks ? (double)mesh_devices(&m->mesh) : 1;
    for (int k = 0; k < op->space.n; k++) {
      const Index *x = &op->space.idx[k];
      points *= (double)(ranks ? split_capacity(&x->split, x->range) : x->range);
    }
    sum += points + ready * (ranks ? (double)mesh_devices(&m->mesh) : 1);
    for (int k = 0; k < op->nout; k++) {
      const Type *t = &m->values.at[op->out[k]].type;
      double n = ranks ? (double)mesh_devices(&m->mesh) : 1;
      for (int d = 0; d < t->rank; d++) n *= (double)(ranks ? split_capacity(&t->dim[d].split, t->dim[d].size) : t->dim[d].size);
      sum += n;
    }
  }
  return sum;
}

double ir_points(const Module *m, bool ranks, double ready) {
  double sum = 0;
  for (int p = 0; p < m->programs.n; p++) sum += region_points(m, m->programs.at[p].body, ranks, ready);
  return sum;
}

/* ---- comparing ---- */

typedef struct {
  Arena *a;
  const char **why;
} Report;

static bool differs(const Report *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool differs(const Report *r, const char *fmt, ...) {
  Str s = {0};
  va_list ap;
  va_start(ap, fmt);
  str_vprintf(r->a, &s, fmt, ap);
  va_end(ap);
  *r->why = s.at;
  return false;
}

static bool same_tensor(const Report *r, const char *what, const Type *t, Tensor x, Tensor y) {
  bool shape = x.rank == t->rank && y.rank == t->rank;
  for (int d = 0; d < t->rank && shape; d++) shape = x.size[d] == y.size[d];
  if (!shape) return differs(r, "the plan does not have the %s of the source", what);
  for (int64_t e = 0, n = type_elements(t); e < n; e++)
    if (x.at[e].i != y.at[e].i)
      return differs(r, "%s differs at element %lld: whole %lld, partitioned %lld", what, (long long)e, (long long)x.at[e].i,
                     (long long)y.at[e].i);
  return true;
}

static const char *const TAPS[] = {"loss", "metric", "output", "gradient", "gradient's norm", "learning rate"};

static bool same_results(const Report *r, const Module *source, EvalRun *whole, EvalRun *parts) {
  for (int p = 0; p < source->programs.n; p++) {
    const Region *g = source->programs.at[p].body;
    for (int i = 0; i < g->ops.n; i++) {
      const Op *op = g->ops.at[i];
      const Type *t = op->nin || op->nout ? &source->values.at[op->nin ? op->in[0] : op->out[0]].type : NULL;
      if (op->kind == OP_TAP) {
        const char *what = arena_printf(r->a, "%s%s%s", TAPS[op->tap], op->name ? " " : "", op->name ? op->name : "");
        if (!same_tensor(r, what, t, eval_tap(whole, op->tap, op->name), eval_tap(parts, op->tap, op->name))) return false;
      }
      if (op->kind != OP_PARAM && op->kind != OP_STATE) continue;
      if (!same_tensor(r, arena_printf(r->a, "next value of %s", op->name), t, eval_leaf(whole, op->name),
                       eval_leaf(parts, op->name)))
        return false;
    }
  }
  return true;
}

/* Settings are drawn too, between 1 and 2, with the 52 bits of a double. */
static double draw_setting(void *cx, const char *name, double otherwise) {
  (void)otherwise;
  uint64_t h = *(const uint64_t *)cx;
  for (const char *c = name; *c; c++) h = random_mix(h ^ (uint64_t)*c);
  return 1 + (double)(h >> 12) * 0x1p-52;
}

Comparison ir_compare(const Module *source, const Module *plan, uint64_t seed, bool in_arena, Arena *a, const char **why) {
  EvalOptions o = {.domain = DOMAIN_MOD, .seed = seed, .step = 3, .setting = draw_setting, .cx = &seed};
  EvalRun *whole = eval_new(source, a, o);
  if (!eval_step(whole, why)) return COMPARE_UNKNOWN;
  o.ranks = true;
  o.in_arena = in_arena;
  EvalRun *parts = eval_new(plan, a, o);
  Report r = {a, why};
  bool same = eval_step(parts, why) && same_results(&r, source, whole, parts) && eval_agree(parts, why);
  return same ? COMPARE_EQUAL : COMPARE_DIFFERENT;
}
