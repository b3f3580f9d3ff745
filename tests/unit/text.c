/* text.c: what is printed parses back to the same text, at every stage; what is hostile is refused, with a place. */
#include "ir/ir.h"
#include "unit.h"

#include <math.h>
#include <stdlib.h>

static Module *parse(Arena *a, const char *text, Diags **d) {
  *d = diags_new(a);
  return ir_parse(a, *d, diags_add_file(*d, "t.ir", text, strlen(text)));
}

/* The text itself is in the printed form. */
static void check_fixed_point(const char *text) {
  Arena *a = arena_new();
  Diags *d;
  Module *m = parse(a, text, &d);
  if (m)
    CHECK_STR(ir_print(m, a), text);
  else
    unit_fail(__FILE__, __LINE__, "line %d:%d: %s\n%s", d->list.at[0]->loc.line, d->list.at[0]->loc.col, d->list.at[0]->message,
              text);
  if (m) CHECK_STR(ir_print(ir_clone(m, a), a), text);
  arena_free(a);
}

static const char every_kind[] =
    "stage annotated\n"
    "mesh pod(data = 2, model = 4)\n"
    "train %loss { optimizer = adamw(lr = 0.002, beta1 = 0.9, beta2 = 0.95, eps = 1e-08, weight_decay = 0.1), lr = cosine(warmup "
    "= 50, "
    "steps = 1000, floor = 0.1), clip = 1, decay = (\"w\", \"layer.wq\"), steps = 1000 }   ; a.dt:40\n"
    "\n"
    "program stage 0 {\n"
    "  %tok: i32[B=8@data, T=16@none] = input \"tok\" next_token(\"corpus.txt\") part 0 limit V=32   ; a.dt:7\n"
    "  %tgt: i32[B=8@data, T=16@none] = input \"tgt\" next_token(\"corpus.txt\", sequential) part 1\n"
    "  %img: f32[B=8, 3] = input \"img\" table(\"x.npy\", shuffle)\n"
    "  %wte: f32[V=32@model, D=8@none] = param \"wte\" normal(0.02)   ; a.dt:9:3\n"
    "  %g: f32[D=8] = param \"g\" ones frozen\n"
    "  %c: f32[D=8@(data, model(1:2))] = param \"c\" const(-inf)\n"
    "  %u: f32[D=8@model(2:2) granule 2] = param \"u\" uniform(-1, 0.30000000000000004)\n"
    "  %wq: f32[L=4@none, D=8@none] = param \"layer.wq\" zeros stack 1\n"
    "  %mom: f32[V=32@model, D=8@none] = state \"adamw.m.wte\"\n"
    "  %step: i64 = state \"step\"\n"
    "  %lr: f64 = setting \"optimizer.lr\" 0.002\n"
    "  %x[b,t,d]: f32[B=8, T=16, D=8] = gather %wte[%tok[b,t], d]\n"
    "  %e.val[b,j]: f32[B=8, 2], %e[b,j]: i32[B=8, 2] = topk[t: T=16, d: D=8] %x[b,t,d] * 2.0\n"
    "  %am[b]: i32[B=8] = argmax[t: T=16, d: D=8] %x[b,t,d]\n"
    "  %sc[v,d]: f32[V=32, D=8] = scatter_add[b: B=8, t: T=16] into [%tok[b,t], d] %x[b,t,d] [grad weight] [backward]\n"
    "  %cs[b,t,d]: f32[B=8, T=16, D=8] = scan[t] %x[b,t,d]\n"
    "  %cr[b,t,d]: f32[B=8, T=16, D=8] = scan reverse[t] %x[b,t,d] [grad input] [backward]\n"
    "  %k[b,u,h,k]: f32[B=8, T=16, H=2, K=4] = nest %x[b, u, 4*h + k]\n"
    "  %a[b,t,h,e]: f32[B=8, T=16, H=2, K=4], %lse[b,t,h]: f32[B=8, T=16, H=2] = attention keys[u: T=16] dot[k: K=4] q "
    "%k[b,t,h,k] k "
    "%k[b,u,h,k] v %k[b,u,h,e] score where(idx(u) <= idx(t), dot / sqrt(4.0), -inf) + %g[h]\n"
    "  %dq: f32[B=8, T=16, H=2, K=4], %dk: f32[B=8, T=16, H=2, K=4], %dv: f32[B=8, T=16, H=2, K=4], %dg: f32[D=8] = "
    "attention_grad "
    "over[b: B=8, t: T=16, h: H=2, e: K=4] keys[u: T=16] dot[k: K=4] q %k[b,t,h,k] k %k[b,u,h,k] v %k[b,u,h,e] a %a[b,t,h,e] lse "
    "%lse[b,t,h] da %k[b,t,h,e] score dot + %g[h] wrt(%g) [backward]\n"
    "  %xf: f32[B=8, T=16, D=8], %all: f32[L=4, B=8, T=16, D=8], %n.all: f32[L=4, B=8, T=16, D=8] = repeat %l < L=4 carry(%x1 = "
    "%x) "
    "with(%s1 = %step) each(%wq1: f32[D=8] = %wq) [group 2] {   ; a.dt:20\n"
    "    %r[b,t,d]: f32[B=8, T=16, D=8] = random normal \"layer.dropout\" step %s1 at(%l)\n"
    "    %n[b,t,d]: f32[B=8, T=16, D=8] = nest %x1[b,t,d] * %wq1[d] + %r[b,t,d]   ; a.dt:21, because it is \\x0aso; \\\\ or so\n"
    "    %y[b,t,d]: f32[B=8, T=16, D=8] = nest (%n[b, t - 1, d] else 0.0)   ; because of the shift\n"
    "    yield %y stack(%y) save(%n)\n"
    "  }\n"
    "  %ab: f32[B=8, T=16, D=8] = repeat reverse %l2 < 4 carry(%x2 = %xf) {\n"
    "    yield %x2\n"
    "  }\n"
    "  %r0[b]: f32[B=8] = random uniform \"u\" step %step\n"
    "  %loss: f32 = nest sum[b: B=8, t: T=16, d: D=8] %xf[b,t,d]\n"
    "  tap loss %loss\n"
    "  tap metric \"acc\" %loss\n"
    "  tap output \"y\" %xf\n"
    "  tap grad \"wte\" %sc\n"
    "  tap grad_norm %loss\n"
    "  tap lr %lr\n"
    "  update %wte = %sc [update]\n"
    "}\n";

UNIT(every_op_kind_prints_as_it_was_read) { check_fixed_point(every_kind); }

UNIT(every_op_kind_obeys_the_laws) {
  Arena *a = arena_new();
  Diags *d;
  const char *why = "parsed";
  Module *m = parse(a, every_kind, &d);
  CHECK(m && ir_verify(m, "test", &why));
  CHECK_STR(why, "parsed");
  arena_free(a);
}

UNIT(layouts_and_capacities_stay) {
  check_fixed_point(
      "stage sharded\n"
      "mesh m(a = 2, b = 4)\n"
      "\n"
      "program stage 0 {\n"
      "  %x: f32[B=8@a, D=6@b(1:2) granule 3] = param \"x\" ones\n"
      "  %y[b]: f32[B=8@a]{b(1:2): max} = nest max[d: D=6@b(1:2) granule 3] %x[b,d]\n"
      "  %z: f32[B=8@(a, b(2:2), b(1:2)), 6] = reshard %x   ; because of it\n"
      "  %v: f32[B=8@a window(i < 9: 2*i - 1 .. 2*i + 1), D=6] = reshard %x   ; because of it\n"
      "  %u: f32[B=8@a granule 2 window(i < 9: (7 - i .. 9 - i) // 4), D=6] = reshard %x   ; because of it\n"
      "  %t: f32[B=8@none window(i < 1: -3 .. 4), D=6@b window(i < 6: -2*i .. -2*i)] = reshard %x   ; because of it\n"
      "}\n");
  check_fixed_point("stage collected\n"
                    "mesh m(a = 2)\n"
                    "\n"
                    "program stage 0 {\n"
                    "  %x: f32[B=8@a] = param \"x\" ones\n"
                    "  %s: f32{a: sum} = nest sum[b: B=8@a] %x[b]\n"
                    "  %r: f32, %q: f32 = all_reduce %s, %s   ; t.dt:3, because %x is split\n"
                    "}\n"
                    "\n"
                    "program stage 1 {\n"
                    "}\n");
  check_fixed_point(
      "stage scheduled\n"
      "mesh m(a = 4)\n"
      "train %s { optimizer = sgd(lr = 0.1, momentum = 0.9, nesterov = true, weight_decay = 0), lr = constant, decay = all, "
      "steps = 7 }\n"
      "\n"
      "program stage 0 {\n"
      "  %x: f32[B=10@a:3] = param \"x\" ones\n"
      "  %h: f32[B=10@a window(i < 10: i - 1 .. i + 1):5] = exchange %x   ; because of it\n"
      "  %s: f32{a: sum} = nest sum[b: B=10@a:3] %x[b] [group 1]\n"
      "}\n"
      "\n"
      "buffers {\n"
      "  %s: 64+4\n"
      "} arena 128 workspace 4096\n");
}

/* Names and reasons that are made to be misread. */
UNIT(the_target_stays) {
  const char *program = "\nprogram stage 0 {\n  %x: f32 = param \"x\" ones\n  tap output \"x\" %x\n}\n";
  for (const char *const *words = (const char *const[]){"", " tf32", " fast", " tf32 fast", NULL}; *words; words++) {
    char text[256];
    snprintf(text, sizeof text, "stage annotated\nmesh one(a = 1)\ntarget cuda%s\n%s", *words, program);
    check_fixed_point(text);
  }
}

UNIT(odd_names_and_reasons_come_back) {
  static const char *const odd[] = {"a b",      "",    "x\\\"y", "line\nend", "; because", "%",
                                    "\xc3\xa4", "1e5", "-",      "where(",    "\\x41",     "tab\t"};
  for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
    Arena *a = arena_new();
    Module *m = ir_module(a);
    m->mesh = (Mesh){.name = odd[i], .naxes = 1, .axis = {{odd[i], 2}}};
    vec_push(a, m->files, odd[i]);
    Op *op = ir_op(m, OP_NEST, (Loc){.line = 3, .col = 4});
    op->why = odd[i];
    op->body = ex_int(a, I32, 1);
    op->space = (Space){.n = 1, .nout = 1, .idx = {{odd[i], odd[i], 4, {0}}}};
    Dim dim = {odd[i], 4, {.n = 1, .fixed = true, .part = {{0, 1, 2}}}};
    ir_out(m, op, odd[i], (Type){I32, 1, {dim}, {0}});
    ir_append(m, m->programs.at[0].body, op);
    Op *tap = ir_op(m, OP_TAP, (Loc){0});
    tap->tap = TAP_OUTPUT;
    tap->name = odd[i];
    ir_in(m, tap, op->out[0]);
    ir_append(m, m->programs.at[0].body, tap);
    Diags *d;
    const char *text = ir_print(m, a);
    Module *back = parse(a, text, &d);
    CHECK(back != NULL);
    if (!back) unit_fail(__FILE__, __LINE__, "%s: %s", d->list.at[0]->message, text);
    if (back) CHECK_STR(ir_print(back, a), text);
    if (back) CHECK_STR(back->programs.at[0].body->ops.at[0]->why, odd[i]);
    if (back) CHECK_STR(back->programs.at[0].body->ops.at[1]->name, odd[i]);
    arena_free(a);
  }
}

static void refused(const char *code, int line, int col, const char *text) {
  Arena *a = arena_new();
  Diags *d;
  Module *m = parse(a, text, &d);
  CHECK(!m);
  CHECK_EQ(d->nerrors, 1);
  const Diag *g = d->nerrors ? d->list.at[0] : NULL;
  bool expected = g && !strcmp(g->code, code) && g->loc.line == line && g->loc.col == col;
  if (g && !expected) unit_fail(__FILE__, __LINE__, "%s at %d:%d: %s\n%s", g->code, g->loc.line, g->loc.col, g->message, text);
  arena_free(a);
}

#define P "stage annotated\nmesh m(a = 2)\nprogram stage 0 {\n"
UNIT(faults_are_reported_at_their_place) {
  refused("E0901", 1, 1, "");
  refused("E0901", 1, 7, "stage odd");
  refused("E0901", 4, 1, P);
  refused("E0901", 4, 5, P "%x: $");
  refused("E0901", 4, 11, P "%x: f32 = = }");
  refused("E0901", 4, 20, P "%x: f32 = nest 1.0 < 2.0 < 3.0 }");
  refused("E0901", 4, 17, P "%x: f32 = nest -(1.0) }");
  refused("E0901", 4, 17, P "%x: f32 = param \"no end");
  refused("E0901", 4, 20, P "%x: f32 = nest 1.0 ; why not\n}");
  refused("E0902", 4, 11, P "%x: f32 = next 1.0 }");
  refused("E0902", 4, 16, P "%x: f32 = nest %y }");
  refused("E0902", 4, 5, P "%x: f33 = nest 1.0 }");
  refused("E0902", 4, 11, P "%x: f32[8@b] = nest 1.0 }");
  refused("E0902", 4, 26, P "%x[i]: i32[8] = nest idx(j) }");
  refused("E0903", 4, 9, P "%x: f32[99999999999999999999] = nest 1.0 }");
  refused("E0903", 4, 9, P "%x: f32[9999999999999] = nest 1.0 }");
  refused("E0903", 4, 5, P "%x: f32[999999999, 999999999, 999999999] = nest 1.0 }");
  refused("E0903", 2, 21, "stage local mesh m(\na = 1000000, x = 1, b = 1000000)");
  refused("E0904", 5, 1, P "%x: f32 = nest 1.0\n%x: f32 = nest 1.0 }");
  refused("E0904", 4, 1, P "%x[i,i]: f32[2, 2] = nest 1.0 }");
  refused("E0905", 4, 9, "stage local mesh m(a = 2)\nprogram stage 0\n{\n%x: f32[8@a:5] = param \"x\" ones }");
#define S "stage sharded\nmesh m(a = 2)\nprogram stage 0 {\n"
  refused("E0901", 4, 29, S "%x: f32[8@a window(i < 8: 2*j .. 3)] = param \"x\" ones }");
  refused("E0901", 4, 31, S "%x: f32[8@a window(i < 8: 2*i , 3)] = param \"x\" ones }");
  refused("E0905", 4, 27, S "%x: f32[8@a window(i < 8: 2*i .. 3)] = param \"x\" ones }");
  refused("E0903", 4, 24, S "%x: f32[8@a window(i < 0: i .. i)] = param \"x\" ones }");
  refused("E0903", 4, 43, S "%x: f32[8@a window(i < 8: (i .. i + 1) // 0)] = param \"x\" ones }");
  refused("E0903", 4, 15, P "%x: f32[8@a(1:3)] = param \"x\" ones }");
}

/* Texts that ask for depth, length or many operands are refused before they cost anything. */
UNIT(hostile_sizes_are_refused) {
  Arena *a = arena_new();
  static const char *const open[] = {"(", "neg(", "max(1.0, ", "1.0 + ", "(%s else "};
  for (size_t i = 0; i < sizeof open / sizeof *open; i++) {
    Str s = {0};
    str_put(a, &s, P "%s: f32 = state \"s\"\n%x: f32 = nest ");
    for (int k = 0; k < 100000; k++) str_put(a, &s, open[i]);
    Diags *d;
    CHECK(!parse(a, s.at, &d));
    CHECK_EQ(d->nerrors, 1);
    CHECK_STR(d->list.at[0]->code, "E0903");
  }
  arena_free(a);
}

/* Any text, cut off or with a byte changed, is parsed or refused; what is parsed is verified or refused and prints to
   a fixed point. */
UNIT(damaged_texts_do_no_harm) {
  size_t n = strlen(every_kind);
  uint64_t seed = 1;
  for (int round = 0; round < 1000; round++) {
    Arena *a = arena_new();
    char *text = arena_strdup(a, every_kind);
    size_t len = n;
    for (int k = 0; k < 1 + round % 3; k++) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      size_t at = (seed >> 33) % n, from = (seed >> 20) % n;
      if (round % 7 == 0)
        len = at;
      else
        text[at] = round % 2 ? every_kind[from] : (char)(seed >> 50);
    }
    Diags *d = diags_new(a);
    Module *m = ir_parse(a, d, diags_add_file(d, "t.ir", arena_strndup(a, text, len), len));
    CHECK_EQ(m == NULL, d->nerrors > 0);
    const char *why, *printed = m ? ir_print(m, a) : "";
    Diags *again;
    Module *back = m ? parse(a, printed, &again) : NULL;
    if (m && !back) unit_fail(__FILE__, __LINE__, "%s: %s", again->list.at[0]->message, printed);
    if (back) CHECK_STR(ir_print(back, a), printed);
    if (m) ir_verify(m, "test", &why);
    arena_free(a);
  }
}

UNIT(bodies_keep_their_tree_and_their_digits) {
  check_fixed_point("stage annotated\n"
                    "mesh \"a mesh\"(\"x-y\" = 2)\n"
                    "\n"
                    "program stage 0 {\n"
                    "  %x: f32[N=8@\"x-y\"] = input table(\"a \\\"b\\\" \\x0a.npy\")\n"
                    "  %\"odd name\": i32[N=8] = input table(\"i.npy\") limit 8\n"
                    "  %s: f32 = nest sum[i: N=8] %x[i] - (%x[i] - %x[i]) - %x[i] * (%x[i] + %x[i]) / 3.0\n"
                    "  %1[i]: bool[N=8] = nest %x[i] < %s and (not(%x[i] <= 0.1) or true) and (%x[i] > 1e-30) == false\n"
                    "  %2[i]: f64[N=8] = nest f64(%x[i]) * 0.1d + infd - nand + -0.0d\n"
                    "  %3[i]: f32[N=8] = nest where(%1[i], max(%x[i], -inf), 0.33333334) + pow(1e+10, 100.0) + neg(2.0) + -2.0\n"
                    "  %4[i]: i64[N=8] = nest i64(%\"odd name\"[i]) // 3l % 2l + -9223372036854775808l\n"
                    "  %5[i]: bf16[N=8] = nest bf16(%x[i]) + 0.5b\n"
                    "  %6[i]: f32[N=8] = nest f32(idx(2*i - 7)) + (%x[7 - i + %\"odd name\"[-i]] else (%x[i + 9] else 1.0))\n"
                    "  %7[i]: f32[N=8] = nest %x[2*(i // 2)] + %x[(i + 1) % 4 - (i + 1) // 8] + %x[i // 4]\n"
                    "  %8[\"i j\"]: f32[\"N m\"=8] = nest max[k: 3, j: N=8] %x[j]\n"
                    "}\n");
}
