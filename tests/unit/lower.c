/* lower.c: what statements mean, .dt text -> IR -> the reference interpreter in f64, against numbers worked out by hand
   or by the definition in plain C. x is 0.5 1 1.5 ... unless a test says otherwise. */
#include "frontend/frontend.h"
#include "unit.h"

#include <math.h>

typedef struct {
  Arena *a;
  EvalRun *run;
  bool ok;
} Run;

static Run start(const char *text) {
  static const FrontendOptions none;
  Run r = {.a = arena_new()};
  Diags *d = diags_new(r.a);
  int file = diags_add_file(d, "model.dt", text, strlen(text));
  Module *m = frontend_module(r.a, d, file, "model.dt", &none);
  const char *why = NULL;
  if (!m) unit_fail(__FILE__, __LINE__, "%s: %s", text, d->list.at[0]->message);
  if (m && !ir_verify(m, "frontend", &why)) unit_fail(__FILE__, __LINE__, "%s", why);
  r.ok = m && !why;
  if (r.ok) r.run = eval_new(m, r.a, (EvalOptions){.domain = DOMAIN_F64, .seed = 1});
  return r;
}

/* Leaf `name` of one dim. */
static void set(Run *r, const char *name, int n, const double *x, bool whole) {
  if (!r->ok) return;
  Tensor t = {.rank = 1, .size = {n}, .at = NEW_ARRAY(r->a, Num, n)};
  for (int i = 0; i < n; i++)
    if (whole)
      t.at[i].i = (int64_t)x[i];
    else
      t.at[i].f = x[i];
  eval_set_leaf(r->run, name, &t);
}

static void step(Run *r) {
  const char *why = NULL;
  if (r->ok && !eval_step(r->run, &why)) unit_fail(__FILE__, __LINE__, "%s", why), r->ok = false;
}

static void expect(Run *r, const char *output, int n, const double *want) {
  if (!r->ok) return;
  Tensor t = eval_tap(r->run, TAP_OUTPUT, output);
  for (int i = 0; i < n; i++) {
    bool same = isinf(want[i]) ? t.at[i].f == want[i] : fabs(t.at[i].f - want[i]) <= 1e-6 * fmax(1, fabs(want[i]));
    if (!same) unit_fail(__FILE__, __LINE__, "%s[%d] is %.9g, expected %.9g", output, i, t.at[i].f, want[i]);
  }
}

#define SET(r, name, ...) set(&r, name, sizeof(double[]){__VA_ARGS__} / sizeof(double), (double[]){__VA_ARGS__}, false)
#define SET_WHOLE(r, name, ...) set(&r, name, sizeof(double[]){__VA_ARGS__} / sizeof(double), (double[]){__VA_ARGS__}, true)
#define EXPECT(r, name, ...) expect(&r, name, sizeof(double[]){__VA_ARGS__} / sizeof(double), (double[]){__VA_ARGS__})

UNIT(softmax_of_a_row_of_only_minus_infinity_is_zeros) {
  Run r = start("dim T = 2\nparam x: f32[4] = ones\nm[t: T, u: T] = where(x[2*t + u] > 0, x[2*t + u], -inf)\n"
                "a[t,u] = softmax[u](m[t,u])\nl[t,u] = log_softmax[u](m[t,u])\noutput a, l\n");
  SET(r, "x", -1, -2, 1, 3);
  step(&r);
  double p = 1 / (1 + exp(2));
  EXPECT(r, "a", 0, 0, p, 1 - p);
  EXPECT(r, "l", 0, 0, log(p), log(1 - p));
  arena_free(r.a);
}

UNIT(norms_are_those_of_their_formulas) {
  Run r =
      start("dim T = 3\nparam x: f32[T] = ones\nn[t] = rmsnorm[t](x[t], eps = 0.5)\nl[t] = layernorm[t](x[t])\noutput n, l\n");
  SET(r, "x", 1, 2, 6);
  step(&r);
  double s = 1 / sqrt(41.0 / 3 + 0.5), v = 1 / sqrt(14.0 / 3 + 1e-5);
  EXPECT(r, "n", s, 2 * s, 6 * s);
  EXPECT(r, "l", -2 * v, -v, 3 * v);
  arena_free(r.a);
}

UNIT(cumsum_over_two_indices_counts_them_as_one) {
  Run r = start("param x: f32[6] = ones\nm[i: 2, j: 3] = x[3*i + j]\ny[i,j] = cumsum[i,j](m[i,j])\nz[i,j] = cumsum[i](m[i,j])\n"
                "output y, z\n");
  SET(r, "x", 1, 2, 3, 4, 5, 6);
  step(&r);
  EXPECT(r, "y", 1, 3, 6, 10, 15, 21);
  EXPECT(r, "z", 1, 2, 3, 5, 7, 9);
  arena_free(r.a);
}

UNIT(xent_over_two_indices_counts_classes_row_by_row) {
  Run r = start("param x: f32[4] = ones\ninput c: i32[1] = table(\"c.npy\")\n"
                "m[n: 1, i: 2, j: 2] = x[2*i + j]\ny[n] = xent[i,j](m[n,i,j], c[n])\noutput y\n");
  SET(r, "x", 1, 2, 3, 4);
  SET_WHOLE(r, "c", 2);
  step(&r);
  EXPECT(r, "y", log(exp(1) + exp(2) + exp(3) + exp(4)) - 3);
  arena_free(r.a);
}

UNIT(bce_is_stable_on_both_sides) {
  Run r = start("param z: f32[4] = ones\nparam t: f32[4] = ones\ny[i] = bce(z[i], t[i])\noutput y\n");
  SET(r, "z", 0, 200, -200, 1);
  SET(r, "t", 1, 0, 1, 0.25);
  step(&r);
  EXPECT(r, "y", log(2), 200, 200, log1p(exp(1)) - 0.25);
  arena_free(r.a);
}

UNIT(powers_and_constants) {
  Run r =
      start("param x: f32[2] = ones\na[i] = x[i] ** 5 - x[i] ** -2 + 2 ** -1\nb[i] = (x[i] + 1) ** 2 ** 2\nc[i] = -x[i] ** 2\n"
            "d[i] = 7 // 2 + (0 - 7) // 2 + (0 - 7) % 3 + x[i] * 0\noutput a, b, c, d\n");
  SET(r, "x", 2, 3);
  step(&r);
  EXPECT(r, "a", 32 - 0.25 + 0.5, 243 - 1.0 / 9 + 0.5);
  EXPECT(r, "b", 81, 256);
  EXPECT(r, "c", -4, -9);
  EXPECT(r, "d", 3 - 4 + 2, 3 - 4 + 2);
  arena_free(r.a);
}

UNIT(reads_outside_take_what_stands_behind_else) {
  Run r = start(
      "dim T = 3\nparam x: f32[T] = ones\ny[t: T] = (x[t-1] else (x[t] * 10))\nj[t: 5] = where(t < T, (x[t] else 0), (x[t-T] "
      "else -1))\n"
      "input e: i32[4] = table(\"e.npy\")\nz[n] = (x[e[n]] else 7)\nw[n] = (x[e[n]] else (2 * e[n]))\noutput y, j, z, w\n");
  SET(r, "x", 1, 2, 3);
  SET_WHOLE(r, "e", 0, -1, 2, 3);
  step(&r);
  EXPECT(r, "y", 10, 1, 2);
  EXPECT(r, "j", 1, 2, 3, 1, 2);
  EXPECT(r, "z", 1, 7, 3, 7);
  EXPECT(r, "w", 1, -2, 3, 6);
  arena_free(r.a);
}

UNIT(adding_by_value_and_selection) {
  Run r = start("param x: f32[4] = ones\ninput e: i32[4] = table(\"e.npy\")\ny[e[n]: 3] += x[n]\nc[e[n]: 3] += 1\n"
                "m[i: 1, n] = x[n]\nv[i, j: 3], p[i,j] = topk[n](m[i,n])\nq[i,j] = f32(p[i,j])\na[i] = f32(argmax[n](-m[i,n]))\n"
                "output y, c, v, q, a\n");
  SET(r, "x", 2, 5, 2, 5);
  SET_WHOLE(r, "e", 2, 0, 2, 2);
  step(&r);
  EXPECT(r, "y", 5, 0, 9);
  EXPECT(r, "c", 1, 0, 3);
  EXPECT(r, "v", 5, 5, 2);
  EXPECT(r, "q", 1, 3, 0);
  EXPECT(r, "a", 0);
  arena_free(r.a);
}

UNIT(products_of_several_are_their_sums) {
  Run r = start(
      "param x: f32[2] = ones\nparam y: f32[2] = ones\nm[i,j] = x[i] + 2 * y[j]\n"
      "a[k] = sum[i,j](m[i,j] * x[i] * y[j] * m[j,k] / 2 * 3)\nb = sum[i,j](m[i,j] * 4 - x[i])\nc = mean[i, j: 3](x[i] ** 2)\n"
      "d = prod[i,j](m[i,j])\noutput a, b, c, d\n");
  SET(r, "x", 1, 2);
  SET(r, "y", 3, 5);
  step(&r);
  double m[2][2] = {{7, 11}, {8, 12}}, x[2] = {1, 2}, y[2] = {3, 5}, a[2] = {0};
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < 2; i++)
      for (int j = 0; j < 2; j++) a[k] += m[i][j] * x[i] * y[j] * m[j][k] * 1.5;
  expect(&r, "a", 2, a);
  EXPECT(r, "b", 4 * 38 - 6);
  EXPECT(r, "c", 2.5);
  EXPECT(r, "d", 7 * 11 * 8 * 12);
  arena_free(r.a);
}

UNIT(angles_of_far_positions_are_exact_to_f32) {
  Run r =
      start("dim T = 100001\nparam s: f32[1] = ones\na[t: T] = t * exp(-0.1 * 3)\nc[i: 1] = cos(a[T - 1]) * s[i]\noutput c\n");
  SET(r, "s", 1);
  step(&r);
  EXPECT(r, "c", cos(100000 * exp(-0.1 * 3)));
  arena_free(r.a);
}

UNIT(blocks_and_repeats_compute_what_their_calls_say) {
  Run r = start("dim L = 3\nparam x: f32[2] = ones\nparam c: f32[L] = ones\nblock f(h: f32[N], k: f32, x: f32[N]) -> (y, a) {\n"
                "  y = 2 * h + k * x\n  a[n] = h[n]\n}\nh, a = repeat(L) f(0, each c, x)\ng, b = f(h, 1, x)\noutput h, a, g\n");
  SET(r, "x", 1, 10);
  SET(r, "c", 1, 2, 3);
  step(&r);
  EXPECT(r, "h", 11, 110);
  EXPECT(r, "a", 0, 0, 1, 10, 4, 40);
  EXPECT(r, "g", 23, 230);
  arena_free(r.a);
}
