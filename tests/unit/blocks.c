// blocks.c: an op that runs along a split index, done in chunks, is the same op: whole against whole, exactly.
#include <string.h>

#include "ir/ir.h"
#include "partitioner/blocks.h"
#include "unit.h"

static Module *parse(Arena *a, const char *text) {
  Diags *d = diags_new(a);
  Module *m = ir_parse(a, d, diags_add_file(d, "blocks", text, strlen(text)));
  if (!m) diags_print(d, DIAG_TEXT, stdout), unit_fail(__FILE__, __LINE__, "does not parse:\n%s", text);
  return m;
}

// Every op that can runs in `k` chunks along the index named `index`.
static int rewrite(Module *m, const char *index, int64_t k) {
  Region *g = m->programs.at[0].body;
  Op **ops = g->ops.at;
  int n = g->ops.n, done = 0;
  m->mesh = (Mesh){.name = "m", .naxes = 1, .axis = {{"x", k}}};
  g->ops.at = NULL;
  g->ops.n = g->ops.cap = 0;
  for (int i = 0; i < n; i++) {
    Split split[MAX_INDEX] = {0};
    Space *s = &ops[i]->space;
    for (int j = 0; j < s->n; j++)
      if (!strcmp(s->idx[j].name, index)) split[j] = (Split){.n = 1, .part = {axis_whole(&m->mesh, 0)}};
    if (op_class(ops[i]->kind) == CLS_SPACE && block_needed(ops[i], split)) {
      for (int j = 0; j < s->n; j++) s->idx[j].split = split[j];
      block_op(m, g, ops[i], false);
      done++;
    }
    ir_append(m, g, ops[i]);
  }
  ir_dead_code(m);
  ir_number(m);
  return done;
}

static void same_in_chunks(const char *text, const char *index, int64_t k, DomainKind domain) {
  Arena *a = arena_new();
  const char *why = NULL;
  Module *m = parse(a, text), *whole = ir_clone(m, a);
  CHECK(rewrite(m, index, k) > 0);
  if (!ir_verify(m, NULL, &why)) unit_fail(__FILE__, __LINE__, "%s in %d: %s\n%s", index, (int)k, why, ir_print(m, a));
  EvalRun *x = eval_new(whole, a, (EvalOptions){.domain = domain, .seed = 5});
  EvalRun *y = eval_new(m, a, (EvalOptions){.domain = domain, .seed = 5});
  if (!eval_step(x, &why) || !eval_step(y, &why)) unit_fail(__FILE__, __LINE__, "%s in %d: %s", index, (int)k, why);
  const Region *g = whole->programs.at[0].body;
  for (int i = 0; i < g->ops.n && !why; i++) {
    const Op *op = g->ops.at[i];
    if (op->kind != OP_TAP) continue;
    Tensor p = eval_tap(x, op->tap, op->name), q = eval_tap(y, op->tap, op->name);
    int64_t n = type_elements(&whole->values.at[op->in[0]].type), bad = 0;
    for (int64_t e = 0; e < n; e++) bad += p.at[e].i != q.at[e].i;
    if (bad) unit_fail(__FILE__, __LINE__, "%s in %d: %d of %s differ\n%s", index, (int)k, (int)bad, op->name, ir_print(m, a));
  }
  arena_free(a);
}

static void in_all_chunks(const char *text, const char *index) {
  for (int64_t k = 1; k <= 9; k++) same_in_chunks(text, index, k, DOMAIN_INT);
}

#define PROGRAM(body)                                                                                                            \
  "stage annotated\nmesh m(x = 1)\nprogram stage 0 {\n"                                                                          \
  "%x: f32[B=3, T=7] = input \"x\" table(\"x.npy\")\n%z: f32[T=7, B=3] = input \"z\" table(\"z.npy\")\n" body "}\n"

UNIT(a_scan_in_chunks_is_the_scan) {
  in_all_chunks(PROGRAM("%y[b,t]: f32[B=3, T=7] = scan[t] %x[b,t] * 2.0 + f32(idx(t))\ntap output \"y\" %y\n"), "t");
}

UNIT(a_scan_that_runs_backwards_in_chunks) {
  in_all_chunks(PROGRAM("%y[t,b]: f32[T=7, B=3] = scan reverse[t] %x[b,t] + (%z[t - 1,b] else 1.0)\ntap output \"y\" %y\n"), "t");
}

UNIT(an_argmax_in_chunks_is_the_first_of_the_largest) {
  in_all_chunks(PROGRAM("%i[b]: i32[B=3] = argmax[t: T=7] max(%x[b,t], 1.0)\ntap output \"i\" %i\n"), "t");
}

UNIT(an_argmax_over_two_indices_counts_row_major) {
  const char *text = PROGRAM("%i[t]: i32[T=7] = argmax[b: B=3, u: T=7] min(%x[b,u], 0.0) + %z[t,b]\ntap output \"i\" %i\n");
  in_all_chunks(text, "u");
  in_all_chunks(text, "b");
}

UNIT(a_topk_in_chunks_keeps_the_order_of_equals) {
  in_all_chunks(PROGRAM("%v[b,j]: f32[B=3, J=4], %i[b,j]: i32[B=3, J=4] = topk[t: T=7] min(%x[b,t], 1.0)\n"
                        "tap output \"v\" %v\ntap output \"i\" %i\n"),
                "t");
}

UNIT(a_topk_of_all_is_a_sort_and_of_two_indices_counts_row_major) {
  in_all_chunks(PROGRAM("%v[b,j]: f32[B=3, J=7], %i[b,j]: i32[B=3, J=7] = topk[t: T=7] %x[b,t]\n"
                        "tap output \"v\" %v\ntap output \"i\" %i\n"),
                "t");
  in_all_chunks(PROGRAM("%v[j]: f32[J=5], %i[j]: i32[J=5] = topk[t: T=7, b: B=3] %x[b,t]\n"
                        "tap output \"v\" %v\ntap output \"i\" %i\n"),
                "t");
}

UNIT(integers_are_selected_too) {
  in_all_chunks(PROGRAM("%n[b,t]: i32[B=3, T=7] = nest i32(%x[b,t])\n"
                        "%v[b,j]: i32[B=3, J=3], %i[b,j]: i32[B=3, J=3] = topk[t: T=7] %n[b,t] - 5\n"
                        "%k[b]: i32[B=3] = argmax[t: T=7] %n[b,t]\n%s[b,t]: i32[B=3, T=7] = scan[t] %n[b,t]\n"
                        "tap output \"v\" %v\ntap output \"i\" %i\ntap output \"k\" %k\ntap output \"s\" %s\n"),
                "t");
}

UNIT(attention_along_split_keys_is_plain_nests) {
  const char *text = "stage annotated\nmesh m(x = 1)\nprogram stage 0 {\n"
                     "%q: f32[B=2, T=3, H=2, K=2] = input \"q\" table(\"q.npy\")\n"
                     "%k: f32[B=2, U=5, K=2] = input \"k\" table(\"k.npy\")\n"
                     "%v: f32[U=5, B=2, E=3] = input \"v\" table(\"v.npy\")\n"
                     "%a[b,t,e,h]: f32[B=2, T=3, E=3, H=2], %s[b,t,h]: f32[B=2, T=3, H=2] = attention keys[u: U=5] dot[k: K=2] "
                     "q %q[b,t,h,k] k %k[b,u,k] v %v[u,b,e] score where(idx(u) < idx(2*t), dot * 0.5, -inf)\n"
                     "tap output \"a\" %a\ntap output \"s\" %s\n}\n";
  for (int64_t k = 1; k <= 6; k++) same_in_chunks(text, "u", k, DOMAIN_MOD);
}
