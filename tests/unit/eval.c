/* eval.c: the reference interpreter, on programs of a few lines. `show` runs a program and prints a tap, so that a
   test reads: program, domain, expected numbers. */
#include "ir/ir.h"
#include "unit.h"

#include <math.h>

#include "runtime/dtrt_random.h"

typedef struct {
  Arena *a;
  Module *m;
  EvalRun *run;
  const char *why;
} Ran;

static Module *parsed(Arena *a, const char *text) {
  Diags *d = diags_new(a);
  Module *m = ir_parse(a, d, diags_add_file(d, "test", text, strlen(text)));
  if (!m) diags_print(d, DIAG_TEXT, stderr);
  return m;
}

static double no_setting(void *cx, const char *name, double otherwise) { return (void)cx, (void)name, otherwise; }

static Ran run_with(const char *text, EvalOptions o) {
  Ran r = {.a = arena_new()};
  r.m = parsed(r.a, text);
  CHECK(r.m);
  if (!r.m) return r;
  o.seed = 5;
  o.setting = no_setting;
  r.run = eval_new(r.m, r.a, o);
  eval_step(r.run, &r.why);
  return r;
}

static Ran whole(const char *text, DomainKind d) { return run_with(text, (EvalOptions){.domain = d}); }
static Ran ranks(const char *text, DomainKind d) { return run_with(text, (EvalOptions){.domain = d, .ranks = true}); }

/* The output `name` as text: reals with %g, or the fault. */
static const char *shown(Ran *r, const char *name) {
  if (!r->m) return "not parsed";
  if (r->why) return r->why;
  Tensor t = eval_tap(r->run, TAP_OUTPUT, name);
  if (t.rank < 0) return "no such output";
  int64_t n = 1;
  for (int k = 0; k < t.rank; k++) n *= t.size[k];
  DType d = F32;
  for (int i = 0; i < r->m->programs.at[0].body->ops.n; i++) {
    const Op *op = r->m->programs.at[0].body->ops.at[i];
    if (op->kind == OP_TAP && !strcmp(op->name, name)) d = r->m->values.at[op->in[0]].type.dtype;
  }
  Str s = {0};
  for (int64_t i = 0; i < n; i++) str_printf(r->a, &s, i ? " %g" : "%g", dtype_is_int(d) ? (double)t.at[i].i : t.at[i].f);
  return s.at;
}

static void done(Ran *r) { arena_free(r->a); }

#define SHOWS(text, how, domain, expected)                                                                                       \
  do {                                                                                                                           \
    Ran r_ = how(text, domain);                                                                                                  \
    CHECK_STR(shown(&r_, "y"), expected);                                                                                        \
    done(&r_);                                                                                                                   \
  } while (0)

/* %x[i] = i and %w[i,j] = 10 i + j, made from indices. */
#define HEAD "stage annotated\nmesh m(a = 2, b = 2)\nprogram stage 0 {\n"
#define X5 "  %x[i]: f32[N=5] = nest f32(idx(i))\n"

UNIT(sum_of_products) {
  SHOWS(HEAD X5 "  %y[j]: f32[J=2] = nest sum[i: N=5] %x[i] * f32(idx(10*i + j))\n  tap output \"y\" %y\n}\n", whole, DOMAIN_F64,
        "300 310");
}

UNIT(windows_and_else) {
  SHOWS(HEAD X5 "  %y[i]: f32[N=5] = nest (%x[i - 2] else 9.0) + %x[i // 2] + %x[(i + 3) % 5]\n  tap output \"y\" %y\n}\n", whole,
        DOMAIN_F64, "12 13 1 3 6");
}

UNIT(reductions_over_nothing_and_ties) {
  SHOWS(HEAD "  %x[i]: f32[N=4] = nest f32(idx(i % 2))\n  %y: i32 = argmax[i: N=4] %x[i]\n  tap output \"y\" %y\n}\n", whole,
        DOMAIN_F64, "1");
  SHOWS(HEAD "  %x[i]: f32[N=4] = nest f32(idx(i % 2))\n"
             "  %v[j]: f32[J=3], %y[j]: i32[J=3] = topk[i: N=4] %x[i]\n  tap output \"y\" %y\n}\n",
        whole, DOMAIN_F64, "1 3 0");
  SHOWS(HEAD X5 "  %y[i]: f32[N=5] = scan reverse[i] %x[i]\n  tap output \"y\" %y\n}\n", whole, DOMAIN_F64, "10 10 9 7 4");
}

#define TABLE HEAD "  %e[n]: i32[N=3] = nest idx(3 - n)\n  %t[i,j]: f32[R=4, J=2] = nest f32(idx(10*i + j))\n"
UNIT(gather_and_scatter) {
  SHOWS(TABLE "  %y[n,j]: f32[N=3, J=2] = gather %t[%e[n], j]\n  tap output \"y\" %y\n}\n", whole, DOMAIN_F64,
        "30 31 20 21 10 11");
  SHOWS(TABLE "  %y[n,j]: f32[N=3, J=2] = gather (%t[2*%e[n] - 4, j] else 7.0)\n  tap output \"y\" %y\n}\n", whole, DOMAIN_F64,
        "20 21 0 1 7 7");
  SHOWS(TABLE "  %y[n,j]: f32[N=3, J=2] = gather %t[%e[n] + 1, j]\n  tap output \"y\" %y\n}\n", whole, DOMAIN_F64,
        "gather %y: the value 4 is outside dim 0 of %t, which has 4 elements");
  SHOWS(TABLE "  %y[r,j]: f32[R=4, J=2] = scatter_add[n: N=3] into [%e[n] // 2, j] %t[n, j]\n  tap output \"y\" %y\n}\n", whole,
        DOMAIN_F64, "20 21 10 12 0 0 0 0");
}

UNIT(a_repeat_carries_takes_slices_and_stacks) {
  const char *text = HEAD "  %x[i]: f32[N=2] = nest f32(idx(i))\n  %w[l,i]: f32[L=3, N=2] = nest f32(idx(l + 1))\n"
                          "  %z: f32[N=2], %y: f32[L=3, N=2] = repeat %l < L=3 carry(%c = %x) with() each(%wl = %w) {\n"
                          "    %n[i]: f32[N=2] = nest %c[i] * f32(2.0) + %wl[i]\n    yield %n stack(%n) save()\n  }\n"
                          "  tap output \"y\" %y\n}\n";
  SHOWS(text, whole, DOMAIN_F64, "1 3 4 8 11 19");
}

/* ---- ranks ---- */

#define SHARDED "stage sharded\nmesh m(a = 2, b = 2)\nprogram stage 0 {\n"

UNIT(uneven_chunks_and_a_pending_sum) {
  const char *text = SHARDED "  %x[i]: f32[N=5@(a, b)] = nest f32(idx(i))\n"
                             "  %s: f32{a, b: sum} = nest sum[i: N=5@(a, b)] %x[i] * %x[i]\n  %y: f32 = reshard %s\n"
                             "  tap output \"y\" %y\n}\n";
  SHOWS(text, whole, DOMAIN_F64, "30");
  SHOWS(text, ranks, DOMAIN_F64, "30");
}

UNIT(a_split_table_contributes_where_the_row_is) {
  const char *text =
      SHARDED "  %e[n]: i32[N=3] = nest idx(3*n - 1)\n  %t[i]: f32[R=4@b] = nest f32(idx(i + 1))\n"
              "  %p[n]: f32[N=3]{b: sum} = gather (%t[%e[n]] else 7.0)\n  %y: f32[N=3] = reshard %p\n  tap output \"y\" %y\n}\n";
  SHOWS(text, ranks, DOMAIN_F64, "7 3 7");
}

UNIT(a_read_outside_the_box_is_a_fault) {
  const char *text = SHARDED "  %x[i]: f32[N=4@a] = nest f32(idx(i))\n  %y[i]: f32[N=4@a] = nest %x[3 - i]\n"
                             "  tap output \"y\" %y\n}\n";
  SHOWS(text, whole, DOMAIN_F64, "3 2 1 0");
  SHOWS(text, ranks, DOMAIN_F64, "nest %y: rank 0 reads element 3 of dim 0 of %x, but holds [0, 2)");
}

UNIT(received_bytes_follow_the_formulas) {
  const char *text = "stage collected\nmesh m(a = 4)\nprogram stage 0 {\n  %x[i]: f32[N=6@a] = nest f32(idx(i))\n"
                     "  %g: f32[N=6] = all_gather %x ; because of the test\n"
                     "  %s[j]: f32[J=8]{a: sum} = nest sum[i: N=6@a] %x[i] * f32(idx(j))\n"
                     "  %y: f32[J=8] = all_reduce %s ; because of the test\n  tap output \"y\" %y\n"
                     "  %one: f32{a: sum} = nest sum[i: N=6@a] %x[i]\n  %all: f32 = all_reduce %one ; because of the test\n}\n";
  Ran r = ranks(text, DOMAIN_INT);
  CHECK(!r.why);
  if (r.why) fprintf(stderr, "%s\n", r.why);
  /* 6 elements in chunks of 2: 2, 2, 2, 0; 2 * 3/4 of 32 bytes, and of 4 */
  CHECK_EQ(eval_received(r.run, 0), 4 * 4 + 48 + 6);
  CHECK_EQ(eval_received(r.run, 3), 6 * 4 + 48 + 6);
  CHECK(eval_agree(r.run, NULL));
  done(&r);
}

UNIT(replicas_that_differ_are_seen) {
  const char *text = SHARDED "  %x[i]: f32[N=4@a] = nest f32(idx(i))\n  %y: f32 = nest sum[i: N=4@a] %x[i]\n"
                             "  tap output \"y\" %y\n}\n"; /* unlawful: the sum is not said to be pending */
  Ran r = ranks(text, DOMAIN_INT);
  const char *why = "";
  CHECK(!eval_agree(r.run, &why));
  CHECK_STR(why, "%y differs between ranks 0 and 2");
  done(&r);
}

/* ---- the planned arena ---- */

static Ran planned(const char *text, DomainKind d) {
  return run_with(text, (EvalOptions){.domain = d, .ranks = true, .in_arena = true});
}

/* %y = %x + 2 %x, with the three values at given offsets. */
#define PLANNED(read, x, z, y)                                                                                                   \
  "stage scheduled\nmesh m(a = 1)\nprogram stage 0 {\n  %x[i]: f32[N=4] = nest f32(idx(i))\n"                                    \
  "  %z[i]: f32[N=4] = nest %x[i] * f32(2.0)\n  %y[i]: f32[N=4] = nest " read " + %z[i]\n  tap output \"y\" %y\n}\n\n"           \
  "buffers {\n  %x: " x "\n  %z: " z "\n  %y: " y "\n} arena 192 workspace 0\n"

UNIT(a_map_may_write_over_what_it_reads_in_place) {
  SHOWS(PLANNED("%x[i]", "0+16", "64+16", "64+16"), planned, DOMAIN_F64, "0 3 6 9");
}
UNIT(a_buffer_that_is_reused_too_early_is_seen) {
  SHOWS(PLANNED("%x[i]", "0+16", "0+16", "64+16"), planned, DOMAIN_F64, "0 4 8 12"); /* %x is gone: 2 %x + 2 %x */
  SHOWS(PLANNED("%x[i]", "0+16", "64+16", "72+16"), planned, DOMAIN_F64, "0 3 nan nan");
}
UNIT(a_map_that_reads_elsewhere_may_not_work_in_place) {
  SHOWS(PLANNED("%x[3 - i]", "0+16", "64+16", "0+16"), planned, DOMAIN_F64, "nan nan nan nan");
}

/* %u is computed while %y is under way; %z = %y + %u. */
#define UNDER_WAY(u, y)                                                                                                          \
  "stage scheduled\nmesh m(a = 2)\nprogram stage 0 {\n  %x[i]: f32[N=4]{a: sum} = nest sum[k: K=2@a:1] f32(idx(i) + 0 * "        \
  "idx(k))\n"                                                                                                                    \
  "  %y: f32[N=4] = all_reduce %x   ; because of it\n  %u[i]: f32[N=4] = nest f32(10 * idx(i))\n  wait %y\n"                     \
  "  %z[i]: f32[N=4] = nest %y[i] + %u[i]\n  tap output \"y\" %z\n}\n\n"                                                         \
  "buffers {\n  %x: 0+16\n  %u: " u "\n  %y: " y "\n  %z: 128+16\n} arena 192 workspace 0\n"

UNIT(a_collective_reads_and_writes_when_it_is_waited_for) {
  SHOWS(UNDER_WAY("64+16", "32+16"), planned, DOMAIN_F64, "0 12 24 36");
  SHOWS(UNDER_WAY("64+16", "0+16"), planned, DOMAIN_F64, "0 12 24 36"); /* in place */
}
UNIT(a_buffer_that_is_reused_while_it_is_under_way_is_seen) {
  SHOWS(UNDER_WAY("0+16", "32+16"), planned, DOMAIN_F64, "0 30 60 90"); /* the operand: twice %u is added up */
  SHOWS(UNDER_WAY("40+16", "32+16"), planned, DOMAIN_F64, "all_reduce %y: the buffer of %y was written while it was under way");
}

/* ---- domains ---- */

UNIT(small_integers_refuse_what_is_not_exact) {
  SHOWS(HEAD X5 "  %y[i]: f32[N=5] = nest %x[i] / f32(2.0)\n  tap output \"y\" %y\n}\n", whole, DOMAIN_INT,
        "nest %y: 1 / 2 is not exact on integers");
  SHOWS(HEAD X5 "  %y[i]: f32[N=5] = nest exp(%x[i])\n  tap output \"y\" %y\n}\n", whole, DOMAIN_INT,
        "nest %y: exp of 1 is not exact on integers");
}

static int64_t mod_output(const char *text, const char *name) {
  Ran r = whole(text, DOMAIN_MOD);
  CHECK(!r.why);
  int64_t v = eval_tap(r.run, TAP_OUTPUT, name).at[0].i;
  done(&r);
  return v;
}

UNIT(division_and_literals_modulo_p) {
  const char *text = HEAD "  %y: f32 = nest (f32(idx(3)) / f32(idx(7)) - f32(0.125)) * f32(idx(56))\n  tap output \"y\" %y\n}\n";
  CHECK_EQ(mod_output(text, "y"), 3 * 8 - 7);
}

/* Parts of a softmax merge modulo p when each is rescaled by exp(own max - common max), and not otherwise. */
UNIT(softmax_merging_modulo_p_needs_its_rescaling) {
  const char *text = HEAD "  %x[i]: f32[N=4] = nest f32(idx(i * 1000 + 17))\n  %m: f32 = nest max[i: N=4] %x[i]\n"
                          "  %w: f32 = nest sum[i: N=4] exp(%x[i] - %m)\n"
                          "  %m1: f32 = nest max[i: N1=2] %x[i]\n  %w1: f32 = nest sum[i: N1=2] exp(%x[i] - %m1)\n"
                          "  %m2: f32 = nest max[i: N1=2] %x[i + 2]\n  %w2: f32 = nest sum[i: N1=2] exp(%x[i + 2] - %m2)\n"
                          "  %good: f32 = nest %w1 * exp(%m1 - %m) + %w2 * exp(%m2 - %m)\n  %bad: f32 = nest %w1 + %w2\n"
                          "  tap output \"w\" %w\n  tap output \"good\" %good\n  tap output \"bad\" %bad\n}\n";
  CHECK_EQ(mod_output(text, "good"), mod_output(text, "w"));
  CHECK(mod_output(text, "bad") != mod_output(text, "w"));
}

static int64_t mod_expression(const char *body) {
  char text[600];
  snprintf(text, sizeof text, HEAD "  %%y: f32 = nest %s\n  tap output \"y\" %%y\n}\n", body);
  return mod_output(text, "y");
}

/* One input tells either branch of a comparison of two scalars, and x / 0, from others. */
UNIT(comparisons_modulo_p_depend_on_both_branches) {
#define WHERE(c, x, y) "where(" c ", f32(idx(" x ")), f32(idx(" y ")))"
#define X "f32(idx(7))"
#define Y "f32(idx(9)) / f32(2.0)"
  int64_t v = mod_expression(WHERE(X " > " Y, "1", "2"));
  CHECK(v != mod_expression(WHERE(X " > " Y, "3", "2")));
  CHECK(v != mod_expression(WHERE(X " > " Y, "1", "3")));
  CHECK(v != mod_expression(WHERE(X " < " Y, "1", "2")));
  CHECK_EQ(v, mod_expression(WHERE(Y " < " X, "1", "2")));
  CHECK_EQ(v, mod_expression(WHERE("not (" X " <= " Y ")", "1", "2")));
  CHECK_EQ(v, mod_expression(WHERE(X " <= " Y, "2", "1")));
  CHECK_EQ(mod_expression(WHERE(X " > " X, "1", "2")), 2);
  CHECK_EQ(mod_expression(WHERE(X " >= " X, "1", "2")), 1);
  CHECK_EQ(mod_expression(WHERE(X " > -inf", "1", "2")), 1);
  CHECK_EQ(mod_expression(WHERE("idx(3) > idx(2)", "1", "2")), 1);
  CHECK(mod_expression("f32(idx(5)) / f32(idx(0))") != 0);
}

/* ---- attention ---- */

#define QKV                                                                                                                      \
  HEAD "  %q[t,k]: f32[T=3, K=2] = nest f32(idx(t + k)) / f32(4.0)\n  %k[u,k]: f32[U=4, K=2] = nest f32(idx(u)) * f32(idx(k - "  \
       "1)) / "                                                                                                                  \
       "f32(3.0)\n"                                                                                                              \
       "  %v[u,e]: f32[U=4, E=2] = nest f32(idx(3*u - 2*e))\n"

UNIT(attention_is_softmax_times_v) {
  const char *text =
      QKV "  %a[t,e]: f32[T=3, E=2], %lse[t]: f32[T=3] = attention keys[u: U=4] dot[k: K=2] q %q[t,k] k %k[u,k] v %v[u,e] "
          "score where(idx(u) <= idx(t - 1), dot * 0.5, -inf)\n"
          "  %s[t,u]: f32[T=3, U=4] = nest sum[k: K=2] %q[t,k] * %k[u,k]\n"
          "  %w[t,u]: f32[T=3, U=4] = nest where(idx(u) <= idx(t - 1), exp(%s[t,u] * 0.5), 0.0)\n"
          "  %den[t]: f32[T=3] = nest sum[u: U=4] %w[t,u]\n  %num[t,e]: f32[T=3, E=2] = nest sum[u: U=4] %w[t,u] * %v[u,e]\n"
          "  %y[t,e]: f32[T=3, E=2] = nest where(%den[t] == 0.0, %a[t,e], where(abs(%a[t,e] - %num[t,e] / %den[t]) < 1e-12, 1.0, "
          "0.0))\n"
          "  tap output \"y\" %y\n}\n";
  SHOWS(text, whole, DOMAIN_F64, "0 0 1 1 1 1"); /* row 0 sees no key: zeros */
}

/* sum over t,e of g * a, whose gradients by q, k, v and a bias are checked against differences of 2e-5. */
static double attention_objective(int which, int element, double by, double *gradient) {
  static const char *const text =
      "stage annotated\nmesh m(a = 1)\nprogram stage 0 {\n  %q: f32[T=3@none, K=2@none] = param \"q\" normal(1.0)\n"
      "  %k: f32[U=4@none, K=2@none] = param \"k\" normal(1.0)\n  %v: f32[U=4@none, E=2@none] = param \"v\" normal(1.0)\n"
      "  %b: f32[T=3@none, U=4@none] = param \"b\" normal(1.0)\n  %g: f32[T=3@none, E=2@none] = param \"g\" normal(1.0)\n"
      "  %a[t,e]: f32[T=3, E=2], %lse[t]: f32[T=3] = attention keys[u: U=4] dot[k: K=2] q %q[t,k] k %k[u,k] v %v[u,e] "
      "score where(idx(u) <= idx(t), tanh(dot * 0.5) + %b[t,u], -inf)\n"
      "  %dq: f32[T=3, K=2], %dk: f32[U=4, K=2], %dv: f32[U=4, E=2], %db: f32[T=3, U=4] = attention_grad over[t: T=3, e: E=2] "
      "keys[u: U=4] dot[k: K=2] q %q[t,k] k %k[u,k] v %v[u,e] a %a[t,e] lse %lse[t] da %g[t,e] "
      "score where(idx(u) <= idx(t), tanh(dot * 0.5) + %b[t,u], -inf) wrt(%b)\n"
      "  %y: f32 = nest sum[t: T=3, e: E=2] %a[t,e] * %g[t,e]\n  tap output \"y\" %y\n"
      "  tap output \"q\" %dq\n  tap output \"k\" %dk\n  tap output \"v\" %dv\n  tap output \"b\" %db\n}\n";
  static const char *const name[] = {"q", "k", "v", "b"};
  Arena *a = arena_new();
  Module *m = parsed(a, text);
  CHECK(m);
  if (!m) return 0;
  EvalRun *r = eval_new(m, a, (EvalOptions){.seed = 3});
  eval_step(r, NULL);
  Tensor t = eval_leaf(r, name[which]);
  t.at[element].f += by;
  eval_set_leaf(r, name[which], &t);
  const char *why = NULL;
  CHECK(eval_step(r, &why));
  if (why) fprintf(stderr, "%s\n", why);
  double y = eval_tap(r, TAP_OUTPUT, "y").at[0].f;
  *gradient = eval_tap(r, TAP_OUTPUT, name[which]).at[element].f;
  arena_free(a);
  return y;
}

UNIT(attention_grad_agrees_with_differences) {
  static const int elements[] = {6, 8, 8, 12};
  for (int which = 0; which < 4; which++)
    for (int e = 0; e < elements[which]; e++) {
      double g, unused, h = 1e-5;
      double up = attention_objective(which, e, h, &unused), down = attention_objective(which, e, -h, &unused);
      attention_objective(which, e, 0, &g);
      CHECK(fabs((up - down) / (2 * h) - g) < 1e-8);
    }
}

/* ---- random numbers ---- */

UNIT(philox_gives_the_published_words) {
  uint32_t counter[4] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, key[2] = {0xa4093822, 0x299f31d0}, w[4];
  random_philox(counter, key, w);
  CHECK_EQ(w[0], 0xd16cfe09);
  CHECK_EQ(w[1], 0x94fdcceb);
  CHECK_EQ(w[2], 0x5001e420);
  CHECK_EQ(w[3], 0x24126ea1);
}

UNIT(normals_are_box_muller_to_rounding) {
  RandomSite s = random_site(1, "x", 3, 0, NULL);
  double sum = 0, square = 0;
  enum { N = 20000 };
  for (uint64_t e = 0; e < N; e += 2) {
    uint32_t a = random_word(s, e), b = random_word(s, e + 1);
    double r = sqrt(-2 * log(((a >> 8) + 1) * 0x1p-24)), turn = 2 * 3.14159265358979323846 * ((b >> 8) * 0x1p-24);
    CHECK(fabs(random_normal(s, e) - r * cos(turn)) < 1e-6);
    CHECK(fabs(random_normal(s, e + 1) - r * sin(turn)) < 1e-6);
    sum += random_normal(s, e) + random_normal(s, e + 1);
    square += r * r;
  }
  CHECK(fabs(sum / N) < 0.03);
  CHECK(fabs(square / N - 1) < 0.03);
}

UNIT(what_is_drawn_depends_on_site_step_and_counter_only) {
  int64_t c[] = {1, 2}, c2[] = {2, 1};
  uint32_t w = random_word(random_site(1, "x", 3, 2, c), 9);
  CHECK_EQ(w, random_word(random_site(1, "x", 3, 2, c), 9));
  CHECK(w != random_word(random_site(1, "x", 3, 2, c2), 9));
  CHECK(w != random_word(random_site(1, "x", 4, 2, c), 9));
  CHECK(w != random_word(random_site(1, "y", 3, 2, c), 9));
  CHECK(w != random_word(random_site(2, "x", 3, 2, c), 9));
  CHECK(w != random_word(random_site(1, "x", 3, 2, c), 10));
}

UNIT(the_runtime_draws_the_same_bits) {
  int64_t c[] = {3, 0};
  enum { N = 1000 };
  float u[N], n[N];
  dtrt_Random theirs = dtrt_random_site(77, "layer.drop", 12, 2, c);
  RandomSite ours = random_site(77, "layer.drop", 12, 2, c);
  int64_t first = ((int64_t)1 << 33) + 5; /* beyond 32 bits, not at a multiple of four */
  dtrt_random_uniform(theirs, u, N, first);
  dtrt_random_normal(theirs, n, N, first);
  int same = 0;
  for (int64_t i = 0; i < N; i++) {
    float ou = random_uniform(ours, (uint64_t)(first + i)), on = random_normal(ours, (uint64_t)(first + i));
    same += !memcmp(&ou, &u[i], 4) && !memcmp(&on, &n[i], 4);
  }
  CHECK_EQ(same, N);
}
