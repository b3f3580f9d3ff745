/* judge.c: does a plan compute what its source does? By f64 at full size on 8 random inputs: taps and next values of leaves
   differ by at most 1e-6 of the largest magnitude of the tensor, and nothing is read that nobody wrote. Where all cancels, as in
   the gradient of scores whose values are alike, the largest magnitude is itself of rounding: how far noise of EVAL_NOISE
   moves the source says what rounding of f64, 2^-32 of it, may. The certificate has no part in this. */
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

/* moved: x with noise, or NULL. */
static bool same(const Type *t, Tensor x, Tensor y, const Tensor *moved) {
  double bound = 0;
  int64_t n = type_elements(t);
  if (x.rank != t->rank || y.rank != t->rank) return false;
  for (int64_t e = 0; e < n && !dtype_is_int(t->dtype); e++) {
    if (!isfinite(x.at[e].f)) continue;
    bound = fmax(bound, TOLERANCE * fabs(x.at[e].f));
    if (moved && isfinite(moved->at[e].f)) bound = fmax(bound, ROUNDING * fabs(moved->at[e].f - x.at[e].f));
  }
  for (int64_t e = 0; e < n; e++)
    if (!close_enough(t->dtype, x.at[e], y.at[e], bound)) return false;
  return true;
}

static Tensor result(EvalRun *r, const Op *op) {
  return op->kind == OP_TAP ? eval_tap(r, op->tap, op->name) : eval_leaf(r, op->name);
}

static bool same_results(const Module *m, EvalRun *x, EvalRun *y, EvalRun *noisy) {
  const Region *g = m->programs.at[0].body;
  for (int i = 0; i < g->ops.n; i++) {
    const Op *op = g->ops.at[i];
    if (op->kind != OP_TAP && op->kind != OP_PARAM && op->kind != OP_STATE) continue;
    Tensor moved = noisy ? result(noisy, op) : (Tensor){0};
    const Type *t = &m->values.at[op->kind == OP_TAP ? op->in[0] : op->out[0]].type;
    if (!same(t, result(x, op), result(y, op), noisy ? &moved : NULL)) return false;
  }
  return true;
}

Judge judge_new(Arena *a, const Module *source, uint64_t seed) {
  Judge of = {.source = source};
  const char *why = NULL;
  for (int i = 0; i < JUDGE_INPUTS; i++) {
    of.seed[i] = random_mix(seed + 77) + (uint64_t)i;
    EvalOptions o = {.domain = DOMAIN_F64, .seed = of.seed[i], .step = 3};
    EvalRun *x = eval_new(source, a, o);
    o.noise = of.seed[i] | 1;
    EvalRun *noisy = eval_new(source, a, o);
    if (eval_step(x, &why)) of.run[i] = x;
    if (of.run[i] && eval_step(noisy, &why)) of.moved[i] = noisy;
  }
  return of;
}

static Judgement one_input(const Judge *of, const Module *plan, int i) {
  if (!of->run[i]) return JUDGE_CANNOT;
  Arena *a = arena_new();
  const char *why = NULL;
  EvalOptions o = {.domain = DOMAIN_F64, .seed = of->seed[i], .step = 3, .ranks = true, .in_arena = plan->buffers != NULL};
  EvalRun *y = eval_new(plan, a, o);
  Judgement j = eval_step(y, &why) && same_results(of->source, of->run[i], y, of->moved[i]) ? JUDGE_SAME : JUDGE_DIFFERS;
  arena_free(a);
  return j;
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
