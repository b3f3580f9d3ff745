/* judge.c: does a plan compute what its source does? By f64 at full size on 8 random inputs: taps and next values of leaves
   differ by at most 1e-6 of the largest magnitude of the tensor, and nothing is read that nobody wrote. Where all cancels, as in
   the gradient of scores whose values are alike, the largest magnitude is itself of rounding: how far noise of EVAL_NOISE
   moves source and plan says what rounding of f64, 2^-32 of it, may. The certificate has no part in this. */
#include <math.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "faults.h"

static const double TOLERANCE = 1e-6;
static const double ROUNDING = 0x1p-24; /* of what noise does: 2^-32, and 2^8 for sums in another order */

static bool close_enough(DType d, Num x, Num y, double bound) {
  if (dtype_is_int(d)) return x.i == y.i;
  if (isnan(x.f) || isnan(y.f)) return isnan(x.f) && isnan(y.f);
  if (isinf(x.f) || isinf(y.f)) return x.f == y.f;
  return fabs(x.f - y.f) <= bound;
}

/* How far noise moves a tensor. */
static double moves(Tensor x, const Tensor *moved, int64_t n) {
  double most = 0;
  for (int64_t e = 0; e < n && moved; e++)
    if (isfinite(x.at[e].f) && isfinite(moved->at[e].f)) most = fmax(most, fabs(moved->at[e].f - x.at[e].f));
  return most;
}

static bool same(const Type *t, Tensor x, Tensor y, const Tensor *moved_x, const Tensor *moved_y) {
  int64_t n = type_elements(t);
  if (x.rank != t->rank || y.rank != t->rank) return false;
  double bound = dtype_is_int(t->dtype) ? 0 : ROUNDING * fmax(moves(x, moved_x, n), moves(y, moved_y, n));
  for (int64_t e = 0; e < n && !dtype_is_int(t->dtype); e++)
    if (isfinite(x.at[e].f)) bound = fmax(bound, TOLERANCE * fabs(x.at[e].f));
  for (int64_t e = 0; e < n; e++)
    if (!close_enough(t->dtype, x.at[e], y.at[e], bound)) return false;
  return true;
}

static Tensor result(EvalRun *r, const Op *op) {
  return op->kind == OP_TAP ? eval_tap(r, op->tap, op->name) : eval_leaf(r, op->name);
}

static bool same_results(const Module *m, const Seen *x, const Seen *y) {
  const Region *g = m->programs.at[0].body;
  for (int i = 0; i < g->ops.n; i++) {
    const Op *op = g->ops.at[i];
    if (op->kind != OP_TAP && op->kind != OP_PARAM && op->kind != OP_STATE) continue;
    Tensor of_x, of_y;
    if (x->moved) of_x = result(x->moved, op);
    if (y->moved) of_y = result(y->moved, op);
    const Type *t = &m->values.at[op->kind == OP_TAP ? op->in[0] : op->out[0]].type;
    if (!same(t, result(x->run, op), result(y->run, op), x->moved ? &of_x : NULL, y->moved ? &of_y : NULL)) return false;
  }
  return true;
}

static EvalRun *stepped(const Module *m, Arena *a, EvalOptions o) {
  const char *why = NULL;
  EvalRun *r = eval_new(m, a, o);
  return eval_step(r, &why) ? r : NULL;
}

static EvalOptions noisy(EvalOptions o) {
  o.noise = o.seed | 1;
  return o;
}

/* A source that shows a NaN says nothing about the rest: numbers modulo p have none. */
static bool shows_nan(const Module *m, EvalRun *r) {
  const Region *g = m->programs.at[0].body;
  for (int i = 0; i < g->ops.n; i++) {
    const Op *op = g->ops.at[i];
    const Type *t = op->kind == OP_TAP ? &m->values.at[op->in[0]].type : NULL;
    int64_t n = t && !dtype_is_int(t->dtype) ? type_elements(t) : 0;
    Tensor x = n ? result(r, op) : (Tensor){0};
    for (int64_t e = 0; e < n; e++)
      if (isnan(x.at[e].f)) return true;
  }
  return false;
}

Judge judge_new(Arena *a, const Module *source, uint64_t seed) {
  Judge of = {.source = source};
  for (int i = 0; i < JUDGE_INPUTS; i++) {
    of.seed[i] = random_mix(seed + 77) + (uint64_t)i;
    EvalOptions o = {.domain = DOMAIN_F64, .seed = of.seed[i], .step = 3};
    Seen s = {.run = stepped(source, a, o)};
    if (!s.run || shows_nan(source, s.run)) continue;
    s.moved = stepped(source, a, noisy(o));
    of.source_on[i] = s;
  }
  return of;
}

static Judgement one_input(const Judge *of, const Module *plan, int i) {
  if (!of->source_on[i].run) return JUDGE_CANNOT;
  Arena *a = arena_new();
  EvalOptions o = {.domain = DOMAIN_F64, .seed = of->seed[i], .step = 3, .ranks = true, .in_arena = plan->buffers != NULL};
  Seen y = {.run = stepped(plan, a, o)};
  bool alike = y.run && same_results(of->source, &of->source_on[i], &y);
  if (y.run && !alike) { /* the plan's own noise may allow it */
    y.moved = stepped(plan, a, noisy(o));
    alike = same_results(of->source, &of->source_on[i], &y);
  }
  arena_free(a);
  return alike ? JUDGE_SAME : JUDGE_DIFFERS;
}

Judgement judge(const Judge *of, const Module *plan) {
  Judgement all = JUDGE_CANNOT;
  for (int i = 0; i < JUDGE_INPUTS; i++) {
    Judgement j = one_input(of, plan, i);
    if (j == JUDGE_DIFFERS) return j;
    if (j == JUDGE_SAME) all = j;
  }
  return all;
}

Judgement judge_apart(const Judge *of, const Module *plan) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    alarm(20);
    if (!freopen("/dev/null", "w", stderr)) _exit(JUDGE_CRASHES);
    _exit(judge(of, plan));
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) internal_error("cannot start a child process");
  return WIFEXITED(status) && WEXITSTATUS(status) <= JUDGE_CANNOT ? (Judgement)WEXITSTATUS(status) : JUDGE_CRASHES;
}
