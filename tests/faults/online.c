/* online.c: softmax of rows that are split over ranks. The source takes the maximum of the whole row; in the plan every
   rank r takes that of its block of W, and the pairs (m[r], l[r]) are gathered and merged:

     l = sum over r of l[r] * exp(m[r] - m),  m = max over r of m[r]          p[b, r*W + w] = exp(x - m) / l           */
#include "online.h"

static const char *const SOURCE = "stage annotated\nmesh g(a = %d, b = %d)\nprogram stage 0 {\n"
                                  "  %%x: f32[B=%d@b, V=%d@a] = input \"x\" table(\"x.npy\")\n"
                                  "  %%m[b]: f32[B=%d] = nest max[v: V=%d] %%x[b,v]\n"
                                  "  %%e[b,v]: f32[B=%d, V=%d] = nest exp(%%x[b,v] - %%m[b])\n"
                                  "  %%l[b]: f32[B=%d] = nest sum[v: V=%d] %%e[b,v]\n"
                                  "  %%p[b,v]: f32[B=%d, V=%d] = nest %%e[b,v] / %%l[b]\n"
                                  "  %%z[b]: f32[B=%d] = nest log(%%l[b]) + %%m[b]\n"
                                  "  tap output \"p\" %%p\n  tap output \"z\" %%z\n}\n";

static Module *read(Arena *a, const char *text) {
  Diags *d = diags_new(a);
  Module *m = ir_parse(a, d, diags_add_file(d, "online", text, strlen(text)));
  if (!m || d->nerrors) diags_print(d, DIAG_TEXT, stdout);
  return m;
}

/* The plan, written line by line: b, r, v are dims that are split, with their capacities; R is whole. */
static const char *plan_text(Arena *a, int k, int g, int b, int w) {
  const char *B = arena_printf(a, "B=%d@b:%d", b, b / g), *R = arena_printf(a, "R=%d", k);
  const char *r = arena_printf(a, "R=%d@a:1", k), *v = arena_printf(a, "V=%d@a:%d", k * w, w);
  Str s = {0};
  str_printf(a, &s, "stage local\nmesh g(a = %d, b = %d)\nprogram stage 0 {\n", k, g);
  str_printf(a, &s, "%%x: f32[%s, %s] = input \"x\" table(\"x.npy\")\n", B, v);
  str_printf(a, &s, "%%mr[b,r]: f32[%s, %s] = nest max[w: W=%d] %%x[b, %d*r + w]\n", B, r, w, w);
  str_printf(a, &s, "%%lr[b,r]: f32[%s, %s] = nest sum[w: W=%d] exp(%%x[b, %d*r + w] - %%mr[b,r])\n", B, r, w, w);
  str_printf(a, &s, "%%mg: f32[%s, %s], %%lg: f32[%s, %s] = all_gather %%mr, %%lr ; because pairs are merged\n", B, R, B, R);
  str_printf(a, &s, "%%m[b]: f32[%s] = nest max[r: %s] %%mg[b,r]\n", B, R);
  str_printf(a, &s, "%%l[b]: f32[%s] = nest sum[r: %s] %%lg[b,r] * exp(%%mg[b,r] - %%m[b])\n", B, R);
  str_printf(a, &s, "%%p[b,v]: f32[%s, %s] = nest exp(%%x[b,v] - %%m[b]) / %%l[b]\n", B, v);
  str_printf(a, &s, "%%z[b]: f32[%s] = nest log(%%l[b]) + %%m[b]\n", B);
  const char *whole = arena_printf(a, "B=%d", b);
  str_printf(a, &s, "%%pg: f32[%s, V=%d] = all_gather %%p ; because it is shown\n", whole, k * w);
  str_printf(a, &s, "%%zg: f32[%s] = all_gather %%z ; because it is shown\n", whole);
  str_put(a, &s, "tap output \"p\" %pg\ntap output \"z\" %zg\n}\n");
  return s.at;
}

bool online_softmax(Arena *a, uint64_t seed, Module **source, Module **plan) {
  int k = 2 + (int)(seed % 3), g = 1 + (int)(seed / 3 % 2), b = g * (1 + (int)(seed / 7 % 3));
  int w = 1 + (int)(seed / 11 % 6), v = k * w;
  *source = read(a, arena_printf(a, SOURCE, k, g, b, v, b, v, b, v, b, v, b, v, b));
  *plan = read(a, plan_text(a, k, g, b, w));
  return *source && *plan;
}
