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
    "  %e[b,t]: i32[B=8, T=16], %e.val[b,t]: f32[B=8, T=16] = topk[d: D=8] %x[b,t,d] * 2.0\n"
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
