/* recognise.c: models with attentions of many forms give the same loss and gradients with and without the pass, in
   f64, and it finds the attention; what is no attention stays, with a note that says why. */
#include "frontend/frontend.h"
#include "unit.h"

#include <math.h>
#include <string.h>

static const char head[] = "mesh one(data = 1)\ndim B = 2, T = 4, U = 5, H = 2, R = 3, K = 3, E = 2, W = 2\n"
                           "param q: f32[B, T, H, K] = normal(1)\nparam q2: f32[B, T, H, R, K] = normal(1)\n"
                           "param k: f32[B, U, H, K] = normal(1)\nparam v: f32[B, U, H, E] = normal(1)\n"
                           "param k2: f32[B, U, W, H, K] = normal(1)\nparam v2: f32[B, U, W, H, E] = normal(1)\n"
                           "param bias: f32[H, T, U] = normal(1)\nparam slope: f32[H] = normal(1)\n"
                           "param c: f32[B, T, H, E] = normal(1)\n";

static Module *compile(Arena *a, const char *body, bool with, PassContext *cx) {
  const char *text = arena_printf(
      a, "%s%s\nloss = sum[b,t,h,e](a[b,t,h,e] * c[b,t,h,e])\ntrain loss {\n  optimizer = sgd(lr = 0.1)\n}\n", head, body);
  *cx = (PassContext){.diags = diags_new(a)};
  int file = diags_add_file(cx->diags, "test.dt", text, strlen(text));
  Module *m = frontend_module(a, cx->diags, file, "test.dt", &(FrontendOptions){0});
  const char *why = "";
  if (!m) {
    diags_print(cx->diags, DIAG_TEXT, stderr);
    unit_fail(__FILE__, __LINE__, "does not compile:\n%s", body);
    return NULL;
  }
  if (with) ir_recognise(m, cx);
  if (!ir_verify(m, "recognise", &why)) unit_fail(__FILE__, __LINE__, "%s", why);
  ir_gradient(m, cx);
  if (!ir_verify(m, "gradient", &why)) unit_fail(__FILE__, __LINE__, "%s", why);
  return m;
}

static int count(const Region *r, OpKind kind) {
  int n = 0;
  for (int i = 0; i < r->ops.n; i++) n += r->ops.at[i]->kind == kind;
  return n;
}

static EvalRun *run(Module *m, Arena *a) {
  EvalRun *r = eval_new(m, a, (EvalOptions){.domain = DOMAIN_F64, .seed = 5});
  const char *why = NULL;
  if (!eval_step(r, &why)) unit_fail(__FILE__, __LINE__, "%s", why);
  return r;
}

static void check_equal(const char *body, const char *what, Tensor x, Tensor y) {
  int64_t n = 1;
  if (x.rank != y.rank) return unit_fail(__FILE__, __LINE__, "%s of another rank in\n%s", what, body);
  for (int d = 0; d < x.rank; d++) n *= x.size[d];
  for (int64_t i = 0; i < n; i++)
    if (!(fabs(x.at[i].f - y.at[i].f) <= 1e-12 * (1 + fabs(x.at[i].f))))
      return unit_fail(__FILE__, __LINE__, "%s[%lld] is %.15g, without the pass %.15g, in\n%s", what, (long long)i, x.at[i].f,
                       y.at[i].f, body);
}

static void check(const char *body, int attentions, const char *note) {
  static const char *const params[] = {"q", "q2", "k", "v", "k2", "v2", "bias", "slope", "c"};
  Arena *a = arena_new();
  PassContext cx, plain_cx;
  Module *m = compile(a, body, true, &cx), *plain = compile(a, body, false, &plain_cx);
  if (m && plain) {
    CHECK_EQ(count(m->programs.at[0].body, OP_ATTENTION), attentions);
    CHECK_EQ(count(m->programs.at[0].body, OP_ATTENTION_GRAD), attentions);
    bool said = false;
    for (int i = 0; i < cx.notes.n && note; i++) said |= strstr(cx.notes.at[i].text, note) != NULL;
    if (note && !said) unit_fail(__FILE__, __LINE__, "no note says %s", note);
    if (!note && cx.notes.n) unit_fail(__FILE__, __LINE__, "a note: %s", cx.notes.at[0].text);
    EvalRun *x = run(m, a), *y = run(plain, a);
    check_equal(body, "loss", eval_tap(x, TAP_LOSS, NULL), eval_tap(y, TAP_LOSS, NULL));
    for (size_t i = 0; i < sizeof params / sizeof *params; i++)
      check_equal(body, params[i], eval_tap(x, TAP_GRAD, params[i]), eval_tap(y, TAP_GRAD, params[i]));
  }
  arena_free(a);
}

UNIT(attention_plain) {
  check("s[b,t,h,u] = sum[k](q[b,t,h,k] * k[b,u,h,k])\na[b,t,h,e] = sum[u](softmax[u](s[b,t,h,u]) * v[b,u,h,e])", 1, NULL);
}

UNIT(attention_scaled_masked_in_another_order) {
  check("s[b,h,t,u] = where(u <= t, sum[k](k[b,u,h,k] * q[b,t,h,k]) / sqrt(K), -inf)\n"
        "a[b,t,h,e] = sum[u](v[b,u,h,e] * softmax[u](s[b,h,t,u]))",
        1, NULL);
}

UNIT(attention_with_rows_of_only_masked_keys) {
  check("s[b,h,t,u] = where(u < t, sum[k](k[b,u,h,k] * q[b,t,h,k]), -inf)\n"
        "a[b,t,h,e] = sum[u](softmax[u](s[b,h,t,u]) * v[b,u,h,e])",
        1, NULL);
}

UNIT(attention_with_a_mask_of_its_own_and_bias) {
  check("mask[t: T, u: U] = u <= t + 1\ns[b,h,t,u] = sum[k](q[b,t,h,k] * k[b,u,h,k]) * 0.5 + bias[h,t,u]\n"
        "w[b,h,t,u] = where(mask[t,u], s[b,h,t,u] - slope[h] * (t - u), -inf)\n"
        "a[b,t,h,e] = sum[u](softmax[u](w[b,h,t,u]) * v[b,u,h,e])",
        1, NULL);
}

UNIT(attention_with_relative_positions) {
  check("p[b,t,h,d: T] = sum[k](q[b,t,h,k] * q[b,d,h,k])\n"
        "s[b,h,t,u] = sum[k](q[b,t,h,k] * k[b,u,h,k]) + (p[b,t,h,t-u] else 0)\n"
        "a[b,t,h,e] = sum[u](softmax[u](s[b,h,t,u]) * v[b,u,h,e])",
        1, NULL);
}

UNIT(attention_with_a_soft_cap) {
  check("s[b,t,h,u] = 3 * tanh(sum[k](q[b,t,h,k] * k[b,u,h,k]) / 3)\na[b,t,h,e] = sum[u](softmax[u](s[b,t,h,u]) * v[b,u,h,e])", 1,
        NULL);
}

UNIT(attention_of_grouped_heads) {
  check("s[b,t,h,r,u] = sum[k](q2[b,t,h,r,k] * k[b,u,h,k])\no[b,t,h,r,e] = sum[u](softmax[u](s[b,t,h,r,u]) * v[b,u,h,e])\n"
        "a[b,t,h,e] = sum[r](o[b,t,h,r,e])",
        1, NULL);
}

UNIT(attention_over_two_key_indices) {
  check("s[b,t,h,u,w] = sum[k](q[b,t,h,k] * k2[b,u,w,h,k])\na[b,t,h,e] = sum[u,w](softmax[u,w](s[b,t,h,u,w]) * v2[b,u,w,h,e])", 1,
        NULL);
}

UNIT(attention_of_keys_shared_by_heads) {
  check("s[b,t,h,u] = sum[k](q[b,t,h,k] * k[b,u,0,k])\na[b,t,h,e] = sum[u](softmax[u](s[b,t,h,u]) * v[b,u,0,e])", 0,
        "not made an attention");
}

UNIT(weights_that_are_used_elsewhere_stay) {
  check("s[b,t,h,u] = sum[k](q[b,t,h,k] * k[b,u,h,k])\np[b,t,h,u] = softmax[u](s[b,t,h,u])\n"
        "r[b,t,h] = sum[u](p[b,t,h,u] * u)\na[b,t,h,e] = sum[u](p[b,t,h,u] * v[b,u,h,e]) + r[b,t,h]",
        0, "used elsewhere");
}

UNIT(additive_attention_is_none) {
  check("s[b,t,h,u] = q[b,t,h,0] + k[b,u,h,0]\na[b,t,h,e] = sum[u](softmax[u](s[b,t,h,u]) * v[b,u,h,e])", 0,
        "no product of queries");
}

UNIT(softmax_over_another_index_is_no_attention) {
  check("s[b,t,h,u] = sum[k](q[b,t,h,k] * k[b,u,h,k])\na[b,t,h,e] = sum[u](softmax[t](s[b,t,h,u]) * v[b,u,h,e])", 0, NULL);
}
