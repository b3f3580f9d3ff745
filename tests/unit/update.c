/* update.c: optimizers, schedules and clipping against the formulas of the language, written out here step by step.
   The model has a matrix w [2,1] and a scalar b with gradients 0.8 w + 0.6 and 1. */
#include "ir/ir.h"
#include "unit.h"

#include <math.h>
#include <string.h>

enum { STEPS = 4 };

typedef struct {
  Arena *a;
  EvalRun *run;
} Trained;

static Trained train(const char *settings) {
  Trained t = {arena_new(), NULL};
  const char *text = arena_printf(t.a,
                                  "stage annotated\nmesh pod(data = 1)\ntrain %%loss { %s, steps = 4 }\nprogram stage 0 {\n"
                                  "  %%w: f32[I=2, J=1] = param \"w\" const(0.5)\n  %%b: f32 = param \"b\" const(0.25)\n"
                                  "  %%q: f32 = nest sum[i: I=2, j: J=1] 0.4 * %%w[i,j] * %%w[i,j] + 0.6 * %%w[i,j]\n"
                                  "  %%loss: f32 = nest %%q + %%b\n  tap loss %%loss\n}\n",
                                  settings);
  Diags *d = diags_new(t.a);
  Module *m = ir_parse(t.a, d, diags_add_file(d, "test.ir", text, strlen(text)));
  if (!m) {
    diags_print(d, DIAG_TEXT, stderr);
    unit_fail(__FILE__, __LINE__, "does not parse: %s", settings);
    return t;
  }
  PassContext cx = {.diags = d};
  const char *why = "";
  ir_gradient(m, &cx);
  ir_update(m, &cx);
  if (!ir_verify(m, "update", &why)) unit_fail(__FILE__, __LINE__, "%s\n%s", why, ir_print(m, t.a));
  t.run = eval_new(m, t.a, (EvalOptions){.domain = DOMAIN_F64});
  return t;
}

static bool close_to(double x, double y) {
  return fabs(x - y) <= 1e-6 * (1 + fabs(y));
} /* settings are rounded to f32 literals */

static void step(Trained *t, double w, double b, double lr, double norm, int line) {
  const char *why = NULL;
  if (!t->run || !eval_step(t->run, &why)) return unit_fail(__FILE__, line, "stopped: %s", why);
  double w1 = eval_leaf(t->run, "w").at[1].f, b1 = eval_leaf(t->run, "b").at[0].f;
  double lr1 = eval_tap(t->run, TAP_LR, NULL).at[0].f, norm1 = eval_tap(t->run, TAP_GRAD_NORM, NULL).at[0].f;
  if (!close_to(w1, w) || !close_to(b1, b)) unit_fail(__FILE__, line, "w %.9g, b %.9g; expected %.9g, %.9g", w1, b1, w, b);
  if (!close_to(lr1, lr) || !close_to(norm1, norm))
    unit_fail(__FILE__, line, "lr %.9g, norm %.9g; expected %.9g, %.9g", lr1, norm1, lr, norm);
}

static double slope(double w) { return 0.8 * w + 0.6; }
static double norm_of(double w) { return sqrt(2 * slope(w) * slope(w) + 1); }

UNIT(sgd_steps_down_the_gradient) {
  Trained t = train("optimizer = sgd(lr = 0.1, momentum = 0, nesterov = false, weight_decay = 0.5), lr = constant, decay = all");
  double w = 0.5, b = 0.25;
  for (int s = 0; s < STEPS; s++) {
    double n = norm_of(w);
    w -= 0.1 * (slope(w) + 0.5 * w), b -= 0.1 * (1 + 0.5 * b);
    step(&t, w, b, 0.1, n, __LINE__);
  }
  CHECK_EQ(eval_leaf(t.run, "sgd.v.w").rank, -1); /* no momentum, no state */
  CHECK_EQ(eval_leaf(t.run, "step").at[0].i, STEPS);
  arena_free(t.a);
}

static void sgd_with_momentum(bool nesterov) {
  Trained t = train(
      nesterov ? "optimizer = sgd(lr = 0.1, momentum = 0.9, nesterov = true, weight_decay = 0), lr = constant, decay = all"
               : "optimizer = sgd(lr = 0.1, momentum = 0.9, nesterov = false, weight_decay = 0), lr = constant, decay = all");
  double w = 0.5, b = 0.25, vw = 0, vb = 0;
  for (int s = 0; s < STEPS; s++) {
    double n = norm_of(w), g = slope(w);
    vw = 0.9 * vw + g, vb = 0.9 * vb + 1;
    w -= 0.1 * (nesterov ? g + 0.9 * vw : vw), b -= 0.1 * (nesterov ? 1 + 0.9 * vb : vb);
    step(&t, w, b, 0.1, n, __LINE__);
  }
  CHECK(close_to(eval_leaf(t.run, "sgd.v.w").at[0].f, vw));
  arena_free(t.a);
}

UNIT(sgd_momentum) { sgd_with_momentum(false); }
UNIT(sgd_nesterov) { sgd_with_momentum(true); }

typedef struct {
  double p, m, v;
} Moments;

static void adam(Moments *x, double g, int s, double lr, double decay) {
  x->m = 0.9 * x->m + 0.1 * g;
  x->v = 0.999 * x->v + 0.001 * g * g;
  double m = x->m / (1 - pow(0.9, s + 1)), v = x->v / (1 - pow(0.999, s + 1));
  x->p -= lr * (m / (sqrt(v) + 1e-8) + decay * x->p);
}

/* Decay on w and b as given, lr by the schedule, gradients clipped to norm `clip` (0: not). */
static void adamw(const char *settings, double decay_w, double decay_b, double (*lr_at)(int), double clip) {
  Arena *a = arena_new();
  Trained t = train(
      arena_printf(a, "optimizer = adamw(lr = 0.01, beta1 = 0.9, beta2 = 0.999, eps = 1e-08, weight_decay = 0.1), %s", settings));
  Moments w = {.p = 0.5}, b = {.p = 0.25};
  for (int s = 0; s < STEPS; s++) {
    double n = norm_of(w.p), scale = clip > 0 && n > clip ? clip / n : 1, lr = 0.01 * lr_at(s);
    adam(&w, scale * slope(w.p), s, lr, decay_w);
    adam(&b, scale, s, lr, decay_b);
    step(&t, w.p, b.p, lr, n, __LINE__);
  }
  CHECK(close_to(eval_leaf(t.run, "adamw.m.w").at[0].f, w.m));
  CHECK(close_to(eval_leaf(t.run, "adamw.v.b").at[0].f, b.v));
  arena_free(t.a);
  arena_free(a);
}

static double constant(int s) { return (void)s, 1; }

static double cosine(int s) { /* warmup 2, steps 4, floor 0.1 */
  double u = (s - 2) / 2.0;
  return s < 2 ? (s + 1) / 2.0 : 0.1 + 0.9 * (1 + cos(acos(-1) * u)) / 2;
}

static double linear(int s) { /* warmup 1, steps 3, floor 0.2 */
  double u = fmin(1, (s - 1) / 2.0);
  return s < 1 ? 1 : 0.2 + 0.8 * (1 - u);
}

UNIT(adamw_decays_all) { adamw("lr = constant, decay = all", 0.1, 0.1, constant, 0); }
UNIT(adamw_decays_matrices_only) { adamw("lr = constant, decay = matrices", 0.1, 0, constant, 0); }
UNIT(adamw_decays_what_is_named) { adamw("lr = constant, decay = (\"b\")", 0, 0.1, constant, 0); }
UNIT(lr_cosine) { adamw("lr = cosine(warmup = 2, steps = 4, floor = 0.1), decay = all", 0.1, 0.1, cosine, 0); }
UNIT(lr_linear_stays_at_its_floor) { adamw("lr = linear(warmup = 1, steps = 3, floor = 0.2), decay = all", 0.1, 0.1, linear, 0); }
UNIT(clip_scales_a_long_gradient) { adamw("lr = constant, clip = 0.5, decay = all", 0.1, 0.1, constant, 0.5); }
UNIT(clip_leaves_a_short_gradient) { adamw("lr = constant, clip = 50, decay = all", 0.1, 0.1, constant, 50); }
