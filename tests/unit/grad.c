/* grad.c: every rule of the gradient against central differences of the forward program, in f64. A test is the
   ops of a program whose loss is %loss; parameters and inputs are drawn by the interpreter. */
#include "ir/ir.h"
#include "unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 11, RANDOM_PROGRAMS = 400 };

static Module *parse(Arena *a, const char *ops) {
  char *text = arena_printf(a,
                            "stage annotated\nmesh pod(data = 1)\n"
                            "train %%loss { optimizer = sgd(lr = 0.1, momentum = 0, nesterov = false, weight_decay = 0), lr = "
                            "constant, decay = all, steps = 1 }\n"
                            "program stage 0 {\n%s\n  tap loss %%loss\n}\n",
                            ops);
  Diags *d = diags_new(a);
  Module *m = ir_parse(a, d, diags_add_file(d, "test.ir", text, strlen(text)));
  if (!m) diags_print(d, DIAG_TEXT, stderr);
  return m;
}

/* Runs m with parameter `name` set to x (NULL: as drawn). */
static EvalRun *run(Module *m, Arena *a, const char *name, const Tensor *x) {
  EvalRun *r = eval_new(m, a, (EvalOptions){.domain = DOMAIN_F64, .seed = SEED});
  if (name) eval_set_leaf(r, name, x);
  const char *why = NULL;
  if (!eval_step(r, &why)) unit_fail(__FILE__, __LINE__, "the interpreter stopped: %s", why);
  return r;
}

static double loss_at(Module *m, const char *name, Tensor x, int64_t i, double v) {
  Arena *a = arena_new();
  double was = x.at[i].f;
  x.at[i].f = v;
  double loss = eval_tap(run(m, a, name, &x), TAP_LOSS, NULL).at[0].f;
  x.at[i].f = was;
  arena_free(a);
  return loss;
}

static void check_param(Module *forward, EvalRun *r, const Op *param, const char *what) {
  Tensor x = eval_leaf(r, param->name), g = eval_tap(r, TAP_GRAD, param->name);
  if (g.rank < 0) return unit_fail(__FILE__, __LINE__, "%s: no gradient of %s", what, param->name);
  int64_t n = type_elements(&forward->values.at[param->out[0]].type);
  for (int64_t i = 0; i < n; i++) {
    double h = 1e-5, v = x.at[i].f;
    double expected = (loss_at(forward, param->name, x, i, v + h) - loss_at(forward, param->name, x, i, v - h)) / (2 * h);
    if (fabs(g.at[i].f - expected) <= 1e-7 * (1 + fabs(expected))) continue;
    return unit_fail(__FILE__, __LINE__, "%s\nd %s[%lld] is %.12g, differences give %.12g", what, param->name, (long long)i,
                     g.at[i].f, expected);
  }
}

/* The program with its gradient agrees with differences of the program without; the text goes in and out. */
static void check(const char *ops) {
  Arena *a = arena_new();
  Module *forward = parse(a, ops), *m = parse(a, ops);
  if (!m) {
    unit_fail(__FILE__, __LINE__, "does not parse:\n%s", ops);
    arena_free(a);
    return;
  }
  const char *why = "";
  if (!ir_verify(m, "test", &why)) unit_fail(__FILE__, __LINE__, "%s\n%s", why, ops);
  ir_gradient(m, &(PassContext){.diags = diags_new(a)});
  if (!ir_verify(m, "gradient", &why)) unit_fail(__FILE__, __LINE__, "%s\n%s", why, ir_print(m, a));
  EvalRun *r = run(m, a, NULL, NULL);
  Region *body = forward->programs.at[0].body;
  for (int i = 0; i < body->ops.n; i++)
    if (body->ops.at[i]->kind == OP_PARAM) check_param(forward, r, body->ops.at[i], ops);
  if (getenv("DTC_SHOW")) puts(ir_print(m, a));
  arena_free(a);
}

/* loss = sum of a weighted map of two parameters. */
static void check_map(const char *expr) {
  Arena *a = arena_new();
  check(arena_printf(a,
                     "%%x: f32[I=3, J=4] = param \"x\" uniform(0.4, 1.6)\n%%z: f32[I=3, J=4] = param \"z\" normal(1.0)\n"
                     "%%c: f32[I=3, J=4] = input \"c\" table(\"c\")\n%%k: i32[I=3, J=4] = input \"k\" table(\"k\")\n"
                     "%%y[i,j]: f32[I=3, J=4] = nest %s\n"
                     "%%loss: f32 = nest sum[i: I=3, j: J=4] %%y[i,j] * %%c[i,j]",
                     expr));
  arena_free(a);
}

UNIT(gradient_of_arithmetic) {
  check_map("%x[i,j] + %z[i,j]");
  check_map("%x[i,j] - %z[i,j] * %z[i,j]");
  check_map("%z[i,j] / %x[i,j]");
  check_map("neg(%z[i,j]) * %x[i,j] * %x[i,j] / (%x[i,j] + f32(2.0))");
  check_map("%z[i,j] * %x[i,j] / %x[j // 2,j]");
}

UNIT(gradient_of_powers) {
  check_map("pow(%z[i,j], 2.0) + pow(%z[i,j], 3.0) + pow(%z[i,j], 1.0) + pow(%z[i,j], 0.0)");
  check_map("pow(%x[i,j], 0.5) + pow(%x[i,j], -1.5)");
  check_map("pow(%x[i,j], %z[i,j])");
  check_map("pow(2.0, %z[i,j])");
}

UNIT(gradient_of_functions) {
  static const char *const of_any[] = {"exp", "tanh", "sigmoid", "erf", "sin", "cos", "abs", "neg"};
  static const char *const of_positive[] = {"log", "log1p", "sqrt", "rsqrt"};
  Arena *a = arena_new();
  for (size_t i = 0; i < sizeof of_any / sizeof *of_any; i++) {
    check_map(arena_printf(a, "%s(%%z[i,j])", of_any[i]));
    check_map(arena_printf(a, "%s(%%z[i,j] * %%x[i,j]) * %%z[i,j]", of_any[i]));
  }
  for (size_t i = 0; i < sizeof of_positive / sizeof *of_positive; i++) {
    check_map(arena_printf(a, "%s(%%x[i,j])", of_positive[i]));
    check_map(arena_printf(a, "%%z[i,j] - %s(%%x[i,j] * 0.5)", of_positive[i]));
  }
  check_map("floor(%x[i,j] * 0.2) + %z[i,j]");
  check_map("0.5 * %z[i,j] * (1.0 + tanh(0.797 * (%z[i,j] + 0.0447 * %z[i,j] * %z[i,j] * %z[i,j])))");
  arena_free(a);
}

UNIT(gradient_of_choices) {
  check_map("max(%x[i,j], %z[i,j]) + min(%x[i,j], %z[i,j]) * 0.5");
  check_map("where(%z[i,j] > 0.0, log(%z[i,j]), %x[i,j])");
  check_map("where(idx(j) < 2, %z[i,j] * %x[i,j], sqrt(%x[i,j]))");
  check_map("where(%k[i,j] == 1, %z[i,j], f32(%k[i,j]))");
  check_map("where(%z[i,j] > 0.0, sqrt(where(%z[i,j] > 0.0, %z[i,j], 0.0)), 0.0)");
  check_map("where(not(%z[i,j] < 0.3 or %x[i,j] < 1.0 and %z[i,j] < 1.0), exp(%z[i,j]), %x[i,j])");
}

UNIT(gradient_of_casts) {
  check_map("f32(f64(%z[i,j]) * f64(%x[i,j]) * 3.0d)");
  check_map("f32(exp(f64(%z[i,j])))");
  check_map("f32(i32(%z[i,j])) + %x[i,j]");
}

/* y reads one parameter x of 6 x 5 elements in some way. */
static void check_read(const char *indices, const char *shape, const char *sums, const char *read) {
  Arena *a = arena_new();
  check(arena_printf(a,
                     "%%x: f32[I=6, J=5] = param \"x\" normal(1.0)\n%%w: f32[P=3] = param \"w\" normal(1.0)\n"
                     "%%c: f32[%s] = input \"c\" table(\"c\")\n%%y[%s]: f32[%s] = nest %s %s\n"
                     "%%o[%s]: f32[%s] = nest %%y[%s] * %%c[%s]\n%%l[%s]: f32[%s] = nest tanh(%%o[%s])\n"
                     "%%n: f32 = nest sum[p: P=3] %%w[p] * %%w[p]\n%%m: f32 = nest sum[%s] %%l[%s]\n%%loss: f32 = nest %%m + %%n",
                     shape, indices, shape, sums, read, indices, shape, indices, indices, indices, shape, indices,
                     arena_printf(a, "%s",
                                  !strcmp(indices, "a") ? arena_printf(a, "a: %s", shape)
                                                        : arena_printf(a, "a: %.*s, b: %s", (int)(strchr(shape, ',') - shape),
                                                                       shape, strchr(shape, ',') + 2)),
                     indices));
  arena_free(a);
}

UNIT(gradient_of_reads) {
  check_read("a,b", "A=5, B=6", "", "%x[b,a]");
  check_read("a,b", "A=6, B=5", "", "%x[a,b] * %w[1]");
  check_read("a", "A=5", "", "%x[a,a]");
  check_read("a,b", "A=6, B=2", "", "%x[a,3]");
  check_read("a,b", "A=6, B=4", "", "%x[a,b + 1] - %x[a,b]");
  check_read("a,b", "A=6, B=5", "", "(%x[a,b - 1] else 0.0) * %x[a,b]");
  check_read("a,b", "A=6, B=5", "", "(%x[a,b - 2] else tanh(%x[a,b]))");
  check_read("a,b", "A=6, B=5", "", "1.0 / (%x[a + 1,b + 2] else 3.0)");
  check_read("a,b", "A=5, B=5", "", "%x[5 - a,b]");
  check_read("a,b", "A=3, B=5", "", "%x[2*a,b] * %x[2*a + 1,b]");
  check_read("a,b", "A=9, B=5", "", "(%x[a - 2,b] else 1.0)");
  check_read("a,b", "A=12, B=5", "", "%x[a // 2,b]");
  check_read("a,b", "A=11, B=5", "", "%x[a // 2,b]");
  check_read("a,b", "A=14, B=5", "", "%x[a % 6,b]");
  check_read("a,b", "A=5, B=5", "", "%x[(a + 2) % 5,b]");
  check_read("a", "A=30", "", "%x[a // 5,a % 5]");
  check_read("a,b", "A=10, B=3", "", "(%x[(3*a + b) // 5,(3*a + b) % 5] else 0.5)");
  check_read("a,b", "A=5, B=5", "", "%x[(a + b) // 2,b]");
  check_read("a,b", "A=4, B=5", "", "%x[2*(a // 2) + a % 2,b]");
  check_read("a,b", "A=4, B=5", "", "%x[a // 2 + a % 3,b]");
}

UNIT(gradient_of_sums) {
  check_read("a", "A=6", "sum[j: J=5]", "%x[a,j] * %x[a,j]");
  check_read("a", "A=6", "sum[j: J=3]", "%x[a,j] * %w[j]");
  check_read("a,b", "A=6, B=6", "sum[j: J=5]", "%x[a,j] * %x[b,j]");
  check_read("a,b", "A=6, B=5", "sum[p: P=3]", "(%x[a,b + p - 1] else 0.0) * %w[p]");
  check_read("a,b", "A=6, B=5", "sum[p: P=3]", "(%x[a,b - p] else 0.0) * %w[p]");
  check_read("a,b", "A=6, B=3", "sum[p: P=3]", "(%x[a,2*b + p - 1] else 0.0) * %w[p]");
  check_read("a,b", "A=6, B=5", "sum[p: P=3]", "sqrt(2.0 + tanh((%x[a,b + p - 1] else 1.0))) * %w[p]");
  check_read("a,b", "A=3, B=2", "sum[p: P=3, q: Q=2]", "(%x[2*a + p - 1,2*b + q] else 0.0) * %w[p]");
  check_read("a,b", "A=3, B=5", "sum[q: Q=2]", "%x[2*a + q,b]");
  check_read("a", "A=4", "sum[i: I=6, j: J=5]", "where(idx(j) < idx(a), %x[i,j], 0.0) * %x[i,0]");
}

/* ---- random index expressions ------------------------------------------------------------------------------------ */

static uint64_t draws;
static int draw(int n) { return (int)(random_mix(++draws) % (uint64_t)n); }

/* A sum of some of the four indices, of their quotients and remainders, and a constant. */
static const char *random_index(Arena *a, int depth) {
  const char *text = "";
  int terms = 1 + draw(3);
  for (int i = 0; i < terms; i++) {
    const char *atom = (const char *[]){"a", "b", "p", "q"}[draw(4)];
    if (depth && draw(3) == 0)
      atom = arena_printf(a, draw(2) ? "((%s) // %d)" : "((%s) %% %d)", random_index(a, depth - 1), 1 + draw(4));
    text = arena_printf(a, "%s%s%d*%s", text, i == 0 ? "" : draw(2) ? " + " : " - ", 1 + draw(3), atom);
  }
  return draw(2) ? arena_printf(a, "%s %c %d", text, draw(2) ? '+' : '-', 1 + draw(4)) : text;
}

static void check_random(int seed) {
  static const char *const reduce[] = {"sum", "sum", "max", "prod"};
  draws = (uint64_t)seed << 32;
  Arena *a = arena_new();
  int n[6];
  for (int i = 0; i < 6; i++) n[i] = 1 + draw(i < 4 ? 4 : 7);
  const char *x = arena_printf(a, "(%%x[%s, %s] else 0.5)", random_index(a, 2), random_index(a, 1));
  const char *y = draw(2) ? "1.0" : arena_printf(a, "(%%x[%s, %s] else %%w)", random_index(a, 1), random_index(a, 0));
  check(arena_printf(a,
                     "%%x: f32[%d, %d] = param \"x\" normal(1.0)\n%%w: f32 = param \"w\" normal(1.0)\n%%c: f32[%d, %d] = input "
                     "\"c\" table(\"c\")\n"
                     "%%y[a,b]: f32[%d, %d] = nest %s[p: %d, q: %d] tanh(%s) * %s + 0.1 * f32(idx(p + 2*q + a))\n"
                     "%%loss: f32 = nest sum[a: %d, b: %d] %%y[a,b] * %%y[a,b] * %%c[a,b]",
                     n[4], n[5], n[0], n[1], n[0], n[1], reduce[draw(4)], n[2], n[3], x, y, n[0], n[1]));
  arena_free(a);
}

UNIT(gradient_of_random_reads) {
  for (int seed = 0; seed < RANDOM_PROGRAMS; seed++) check_random(seed);
}

UNIT(gradient_of_extremes_and_products) {
  check_read("a", "A=6", "max[j: J=5]", "%x[a,j]");
  check_read("a", "A=6", "min[j: J=5]", "tanh(%x[a,j]) * %w[j // 2]");
  check_read("a", "A=3", "max[i: I=6, j: J=5]", "%x[i,j] * %w[a]");
  check_read("a", "A=6", "prod[j: J=5]", "%x[a,j]");
  check_read("a", "A=6", "prod[j: J=5]", "where(idx(j) == idx(a), 0.0 * %x[a,j], %x[a,j])");
  check_read("a", "A=6", "prod[j: J=5]", "where(idx(j) == idx(a), 0.0, where(idx(j) == idx(a + 1), 0.0, %x[a,j] * %w[j // 2]))");
}

static const char by_value[] =
    "%x: f32[V=5, D=3] = param \"x\" normal(1.0)\n%w: f32[N=6, D=3] = param \"w\" normal(1.0)\n"
    "%e: i32[N=6] = input \"e\" table(\"e\") limit V=5\n%k: i32[N=6] = input \"k\" table(\"k\") limit W=9\n";

static void check_by_value(const char *ops) {
  Arena *a = arena_new();
  check(arena_printf(a, "%s%s", by_value, ops));
  arena_free(a);
}

UNIT(gradient_of_gather) {
  check_by_value("%y[n,d]: f32[N=6, D=3] = gather %x[%e[n], d]\n"
                 "%loss: f32 = nest sum[n: N=6, d: D=3] tanh(%y[n,d]) * %w[n,d]");
  check_by_value("%y[d,n]: f32[D=2, N=6] = gather %x[%e[n], d + 1]\n"
                 "%loss: f32 = nest sum[n: N=6, d: D=2] tanh(%y[d,n]) * %w[n,d]");
  check_by_value("%y[n,d]: f32[N=6, D=3] = gather (%x[%k[n] - 1, d] else %w[n,d])\n"
                 "%loss: f32 = nest sum[n: N=6, d: D=3] tanh(%y[n,d]) * %y[n,d]");
  check_by_value("%y[n]: f32[N=6] = gather %x[%e[n], %e[5 - n] // 2]\n"
                 "%loss: f32 = nest sum[n: N=6] tanh(%y[n]) * %w[n,0]");
}

UNIT(gradient_of_one_element_by_value) {
  check_by_value("%k3: i32[N=6] = input \"k3\" table(\"k3\") limit D=3\n%y[n]: f32[N=6] = gather %w[n, %k3[n]]\n"
                 "%loss: f32 = nest sum[n: N=6] tanh(%y[n]) * %x[n // 2,0]");
  check_by_value("%y[n]: f32[N=6] = gather (%w[n, %k[n] - 1] else tanh(%w[n,0]))\n"
                 "%loss: f32 = nest sum[n: N=6] tanh(%y[n]) * %x[n // 2,0]");
}

UNIT(gradient_of_scatter_add) {
  check_by_value("%y[v,d]: f32[V=5, D=3] = scatter_add[n: N=6] into [%e[n], d] %w[n,d]\n"
                 "%loss: f32 = nest sum[v: V=5, d: D=3] tanh(%y[v,d]) * %x[v,d]");
  check_by_value("%y[v,d]: f32[V=5, D=3] = scatter_add[n: N=6] into [%e[n], d] tanh(%w[n,d]) * %x[0,d] * %x[n // 2,1]\n"
                 "%loss: f32 = nest sum[v: V=5, d: D=3] tanh(%y[v,d]) * %x[v,d]");
}

UNIT(gradient_of_selection) {
  check_by_value("%v[n,j]: f32[N=6, J=2], %i[n,j]: i32[N=6, J=2] = topk[d: D=3] %w[n,d]\n"
                 "%loss: f32 = nest sum[n: N=6, j: J=2] tanh(%v[n,j]) * %x[j,0]");
  check_by_value("%v[n,j]: f32[N=6, J=2], %i[n,j]: i32[N=6, J=2] = topk[v: V=5] %w[n,v // 2] * %x[v,0]\n"
                 "%g[n,j]: f32[N=6, J=2] = gather %x[%i[n,j], 1]\n"
                 "%loss: f32 = nest sum[n: N=6, j: J=2] tanh(%v[n,j]) * %g[n,j]");
  check_by_value("%a[n]: i32[N=6] = argmax[d: D=3] %w[n,d]\n%y[n]: f32[N=6] = gather %w[n, %a[n]]\n"
                 "%loss: f32 = nest sum[n: N=6] tanh(%y[n]) * %x[n // 2,0]");
}

UNIT(gradient_of_scans) {
  check_by_value("%y[n,d]: f32[N=6, D=3] = scan[n] %w[n,d] * %x[n // 2,d]\n"
                 "%loss: f32 = nest sum[n: N=6, d: D=3] tanh(%y[n,d]) * %x[0,d]");
  check_by_value("%y[n,d]: f32[N=6, D=3] = scan reverse[d] %w[n,d]\n"
                 "%loss: f32 = nest sum[n: N=6, d: D=3] tanh(%y[n,d]) * %x[0,d]");
}

UNIT(gradient_of_softmax_and_dropout) {
  check_by_value("%step: i64 = state \"step\"\n%r[n,d]: f32[N=6, D=3] = random uniform \"drop\" step %step\n"
                 "%s[n,d]: f32[N=6, D=3] = nest where(idx(d) <= idx(n), %w[n,d], -inf)\n"
                 "%m[n]: f32[N=6] = nest max[d: D=3] stop_gradient(%s[n,d])\n"
                 "%q[n,d]: f32[N=6, D=3] = nest exp(%s[n,d] - %m[n])\n%z[n]: f32[N=6] = nest sum[d: D=3] %q[n,d]\n"
                 "%p[n,d]: f32[N=6, D=3] = nest where(%r[n,d] < 0.3, 0.0, %q[n,d] / %z[n] / 0.7)\n"
                 "%loss: f32 = nest sum[n: N=6, d: D=3] %p[n,d] * %x[n // 2,d]");
}

static const char leaves[] =
    "%x: f32[B=2, D=3] = param \"x\" normal(1.0)\n%w: f32[L=4, D=3, E=3] = param \"w\" normal(0.7) stack 1\n"
    "%b: f32[E=3] = param \"b\" normal(1.0)\n%c: f32[L=4, B=2] = input \"c\" table(\"c\")\n";

static void check_loop(const char *ops) {
  Arena *a = arena_new();
  check(arena_printf(a, "%s%s", leaves, ops));
  arena_free(a);
}

UNIT(gradient_of_repeat) {
  check_loop("%y: f32[B=2, D=3] = repeat %l < L=4 carry(%h = %x) with(%bb = %b) each(%ww = %w) {\n"
             "  %a[b,e]: f32[B=2, E=3] = nest sum[d: D=3] %h[b,d] * %ww[d,e]\n"
             "  %t[b,d]: f32[B=2, D=3] = nest tanh(%a[b,d] + %bb[d] * f32(%l)) + %h[b,d]\n"
             "  yield %t stack() save()\n}\n%loss: f32 = nest sum[b: B=2, d: D=3] %y[b,d] * %y[b,d]");
}

UNIT(gradient_of_stacked_results) {
  check_loop("%y: f32[B=2, D=3], %s: f32[L=4, B=2] = repeat %l < L=4 carry(%h = %x) with(%bb = %b) each(%ww = %w, %cc = %c) {\n"
             "  %a[b,e]: f32[B=2, E=3] = nest sum[d: D=3] %h[b,d] * %ww[d,e]\n"
             "  %t[b,d]: f32[B=2, D=3] = nest tanh(%a[b,d]) + %cc[b]\n"
             "  %o[b]: f32[B=2] = nest sum[d: D=3] %t[b,d] * %bb[d]\n"
             "  yield %t stack(%o) save()\n}\n%loss: f32 = nest sum[l: L=4, b: B=2] %s[l,b] * %s[l,b]");
}

UNIT(gradient_of_two_carried) {
  check_loop("%z[b,d]: f32[B=2, D=3] = nest 0.0\n%n: i64 = state \"step\"\n"
             "%y: f32[B=2, D=3], %q: f32[B=2, D=3], %n1: i64 = repeat %l < L=4 carry(%h = %x, %g = %z, %k = %n) with(%bb = %b) "
             "each() {\n"
             "  %t[b,d]: f32[B=2, D=3] = nest %g[b,d] + %h[b,d] * %bb[d]\n  %k1: i64 = nest %k + 1l\n"
             "  yield %t, %h, %k1 stack() save()\n}\n%loss: f32 = nest sum[b: B=2, d: D=3] %y[b,d] * %q[b,d]");
}

UNIT(gradient_of_nested_repeats) {
  check_loop(
      "%y: f32[B=2, D=3] = repeat %l < L=4 carry(%h = %x) with(%bb = %b) each(%ww = %w, %cc = %c) {\n"
      "  %s[b,d]: f32[B=2, D=3] = nest sin(%h[b,d])\n"
      "  %i: f32[B=2, D=3], %r: f32[E=3, B=2] = repeat %k < E=3 carry(%hh = %s) with(%b2 = %bb, %c2 = %cc) each(%v = %ww) {\n"
      "    %t[b,d]: f32[B=2, D=3] = nest tanh(%hh[b,d] * %v[d] + %b2[d] * %c2[b] * f32(%k))\n"
      "    %u[b]: f32[B=2] = nest %t[b,0] * %hh[b,1]\n"
      "    yield %t stack(%u) save()\n  }\n"
      "  %o[b,d]: f32[B=2, D=3] = nest %i[b,d] + %s[b,d] * %r[d,b]\n"
      "  yield %o stack() save()\n}\n%loss: f32 = nest sum[b: B=2, d: D=3] %y[b,d] * %y[b,d]");
}

/* The loop's carried value may pass through unchanged, be yielded twice, or be no one's input. */
UNIT(gradient_of_idle_carried) {
  check_loop(
      "%y: f32[B=2, D=3], %q: f32[B=2, D=3], %o: f32[B=2, D=3] = repeat %l < L=4 carry(%h = %x, %g = %x, %u = %x) with(%bb = %b) "
      "each() {\n  %t[b,d]: f32[B=2, D=3] = nest %h[b,d] * %bb[d] * %g[b,d]\n"
      "  yield %t, %g, %t stack() save()\n}\n%loss: f32 = nest sum[b: B=2, d: D=3] %y[b,d] * %q[b,d] + %o[b,d]");
}

/* ---- the passes' other promises -------------------------------------------------------------------------------- */

/* Values at which neither differences nor random parameters look: ties, kinks, and branches that are not taken. */
static double gradient_at(const char *y, double x0, double x1, int which) {
  Arena *a = arena_new();
  Module *m = parse(a, arena_printf(a, "%%x: f32[I=2] = param \"x\" zeros\n%%loss: f32 = nest %s", y));
  ir_gradient(m, &(PassContext){.diags = diags_new(a)});
  Num at[2] = {{.f = x0}, {.f = x1}};
  double g = eval_tap(run(m, a, "x", &(Tensor){1, {2}, at}), TAP_GRAD, "x").at[which].f;
  arena_free(a);
  return g;
}

UNIT(ties_go_to_the_first) {
  CHECK(gradient_at("max(%x[0], %x[1])", 2, 2, 0) == 1);
  CHECK(gradient_at("max(%x[0], %x[1])", 2, 2, 1) == 0);
  CHECK(gradient_at("min(%x[0], %x[1])", 2, 2, 0) == 1);
  CHECK(gradient_at("min(%x[0], %x[1])", 2, 2, 1) == 0);
  CHECK(gradient_at("max[i: I=2] %x[i]", 2, 2, 0) == 1);
  CHECK(gradient_at("max[i: I=2] %x[i]", 2, 2, 1) == 0);
  CHECK(gradient_at("min[i: I=2] %x[i]", 2, 2, 1) == 0);
}

UNIT(kinks_have_gradient_zero) {
  CHECK(gradient_at("abs(%x[0])", 0, 0, 0) == 0);
  CHECK(gradient_at("where(%x[0] > 0.0, %x[0], 0.0)", 0, 0, 0) == 0);
}

UNIT(branches_not_taken_give_no_nan) {
  CHECK(gradient_at("where(%x[0] > 0.0, sqrt(%x[0]), 1.0)", 0, 0, 0) == 0);
  CHECK(gradient_at("where(%x[0] > 0.0, 1.0 / %x[0], %x[0] * 3.0)", 0, 0, 0) == 3);
  CHECK(gradient_at("exp(where(%x[0] > 0.0, log(%x[0]), 0.0))", 0, 0, 0) == 0);
  CHECK(gradient_at("exp(where(%x[0] > 0.0, log(%x[0]), -inf))", 0, 0, 0) == 0);
  CHECK(gradient_at("pow(%x[0], 2.0)", 0, 0, 0) == 0);
  CHECK(gradient_at("pow(%x[0], %x[1])", 0, 2, 1) == 0);
  CHECK(gradient_at("pow(%x[0], %x[1])", 0, 1, 0) == 1);
}

UNIT(stop_gradient_stops) {
  CHECK(gradient_at("%x[0] * stop_gradient(%x[0])", 3, 0, 0) == 3);
  CHECK(gradient_at("floor(%x[0]) + f32(i32(%x[0]))", 3.5, 0, 0) == 0);
}

UNIT(product_with_zeros) {
  CHECK(gradient_at("prod[i: I=2] %x[i]", 0, 5, 0) == 5);
  CHECK(gradient_at("prod[i: I=2] %x[i]", 0, 5, 1) == 0);
  CHECK(gradient_at("prod[i: I=2] %x[i]", 0, 0, 0) == 0);
}

UNIT(unused_parameter_has_gradient_zero_and_a_warning) {
  Arena *a = arena_new();
  Module *m = parse(a, "%x: f32 = param \"x\" ones\n%y: f32[I=2] = param \"y\" ones\n%z: f32 = param \"z\" ones frozen\n"
                       "%loss: f32 = nest %x * %z");
  Diags *d = diags_new(a);
  ir_gradient(m, &(PassContext){.diags = d});
  CHECK_EQ(d->nwarnings, 1);
  CHECK_STR(d->list.at[0]->code, "W0501");
  EvalRun *r = run(m, a, NULL, NULL);
  CHECK(eval_tap(r, TAP_GRAD, "y").at[1].f == 0);
  CHECK_EQ(eval_tap(r, TAP_GRAD, "z").rank, -1);
  arena_free(a);
}

static void check_refused(const char *ops, const char *code) {
  Arena *a = arena_new();
  Module *m = parse(a, ops);
  Diags *d = diags_new(a);
  if (m) ir_gradient(m, &(PassContext){.diags = d});
  CHECK_EQ(d->nerrors, 1);
  if (d->nerrors) CHECK_STR(d->list.at[0]->code, code);
  arena_free(a);
}

UNIT(gradients_with_too_many_dims_are_refused) {
  check_refused("%x: f32[1, 1, 1, 1, 1, 1, 1, 2] = param \"x\" ones\n%l0: i64 = state \"step\"\n"
                "%y: f32[1, 1, 1, 1, 1, 1, 1, 2] = repeat %l < L=2 carry(%h = %x) {\n"
                "  %t[a,b,c,d,e,f,g,h]: f32[1, 1, 1, 1, 1, 1, 1, 2] = nest sin(%h[a,b,c,d,e,f,g,h])\n  yield %t\n}\n"
                "%loss: f32 = nest sum[a: 1, b: 1, c: 1, d: 1, e: 1, f: 1, g: 1, h: 2] %y[a,b,c,d,e,f,g,h]",
                "E0593");
  check_refused("%x: f32[2] = param \"x\" ones\n%e: i32[2] = input \"e\" table(\"e\") limit V=3\n"
                "%y[v]: f32[V=3] = scatter_add[a: 1, b: 1, c: 1, d: 1, e: 1, f: 1, g: 1, h: 1, i: 2] into [%e[i]] %x[i]\n"
                "%loss: f32 = nest sum[v: V=3] %y[v]",
                "E0592");
  check_refused(
      "%x: f32[9, 9, 9, 9, 9, 9, 9, 9] = param \"x\" ones\n"
      "%y[a,b,c,d,e,f,g,h]: f32[2, 2, 2, 2, 2, 2, 2, 2] = nest sum[i: 3] %x[2*a + i, 2*b, 2*c, 2*d, 2*e, 2*f, 2*g, 2*h]\n"
      "%loss: f32 = nest sum[a: 2, b: 2, c: 2, d: 2, e: 2, f: 2, g: 2, h: 2] %y[a,b,c,d,e,f,g,h]",
      "E0591");
}
