// work.c: what counts as the multiply-adds of products, on the rank that computes most.
#include <string.h>

#include "ir/ir.h"
#include "partitioner/part.h"
#include "unit.h"

static double work_of(const char *ops) {
  Arena *a = arena_new();
  Diags *d = diags_new(a);
  const char *text = arena_printf(a, "stage sharded\nmesh pod(data = 2, model = 4)\nprogram stage 0 {\n%s}\n", ops);
  Module *m = ir_parse(a, d, diags_add_file(d, "work.ir", text, strlen(text)));
  if (!m) diags_print(d, DIAG_TEXT, stdout);
  double n = m ? part_multiply_adds(m) : -1;
  arena_free(a);
  return n;
}

UNIT(a_product_counts_the_longest_chunks) {
  CHECK_EQ(work_of("%x: f32[B=8@data, D=10] = input \"x\" table(\"x\")\n"
                   "%w: f32[D=10, F=6@model] = input \"w\" table(\"w\")\n"
                   "%y[b,f]: f32[B=8@data, F=6@model] = nest sum[d: D=10] %x[b,d] * %w[d,f]\n"),
           4 * 2 * 10);
}

UNIT(a_product_in_a_loop_counts_as_often_as_it_runs) {
  CHECK_EQ(work_of("%x: f32[D=4, D=4] = input \"x\" table(\"x\")\n"
                   "%z: f32[D=4, D=4] = repeat %l < L=5 carry(%a = %x) with(%b = %x) {\n"
                   "  %y[i,j]: f32[D=4, D=4] = nest sum[k: D=4] %a[i,k] * %b[k,j]\n"
                   "  yield %y\n}\n"),
           5 * 4 * 4 * 4);
}

UNIT(sums_of_squares_and_maps_are_no_products) {
  CHECK_EQ(work_of("%x: f32[B=8, D=10] = input \"x\" table(\"x\")\n"
                   "%n[b]: f32[B=8] = nest sum[d: D=10] %x[b,d] * %x[b,d]\n"
                   "%y[b,d]: f32[B=8, D=10] = nest %x[b,d] * %n[b]\n"
                   "%m: f32 = nest max[b: B=8, d: D=10] %y[b,d]\n"),
           0);
}

UNIT(attention_is_two_products) {
  CHECK_EQ(
      work_of("%q: f32[T=8@data, H=4@model, K=3] = input \"q\" table(\"q\")\n"
              "%k: f32[T=8, H=4@model, K=3] = input \"k\" table(\"k\")\n"
              "%v: f32[T=8, H=4@model, E=5] = input \"v\" table(\"v\")\n"
              "%a[t,h,e]: f32[T=8@data, H=4@model, E=5], %l[t,h]: f32[T=8@data, H=4@model] = attention keys[u: T=8] dot[k: K=3] "
              "q %q[t,h,k] k %k[u,h,k] v %v[u,h,e] score where(idx(u) <= idx(t), dot, -inf)\n"),
      4 * 1 * 8 * (3 + 5));
}
