/* emit_cuda.c: the dialect CUDA: a kernel is one or more __global__ functions and a function of the host that launches
   them. The host asks for the ranges of split indices and passes those that a kernel uses by value.

     // charlm.dt:26: n
     static __global__ void n_26_kernel(const dtcu_Context *cx, const float *__restrict__ x, float *__restrict__ n, int64_t t_n) {
       ...
     }
     static void n_26(dtrt_Context *cx, const float *x, float *n) {
       int64_t t_lo, t_n;
       dtrt_range(cx, &dim_128_model, &t_lo, &t_n);
       DTCU_LAUNCH(cx, n_26_kernel, 128, 256, dtcu_device(cx), x, n, t_n);
     }
     ...
       STEP("charlm.dt:26", n_26(cx, x, n));

   Only what tests/cuda can run on a CPU is used: see codegen/README.md.                                          */
#include "emit_rows.h"

static void head(Emit *e, Str *out) {
  if (e->m->fast) str_put(e->a, out, "#define DTCU_FAST // sums may be in any order\n");
  str_put(e->a, out, "#include \"runtime/dtcu.h\"\n#include \"runtime/dtcu_attention.h\"\n");
}

/* The macro is dtcu.h's; where kernels are checked it knows by the size what may be touched. */
static const char *address(Emit *e, const char *type, const char *offset, int64_t bytes) {
  return arena_printf(e->a, type ? "(%s *)AT(%s, %lld)" : "%sAT(%s, %lld)", type ? type : "", offset, (long long)bytes);
}

static const char *pointers(Emit *e, const char *list, bool written) {
  (void)written;
  return arena_printf(e->a, "{%s}", list);
}

static const char *step(Emit *e, const Op *op, const char *call) {
  return arena_printf(e->a, "STEP(\"%s\", %s);\n", emit_where(e, op), call);
}

static const char *copy(Emit *e, const char *to, const char *from, int64_t bytes) {
  return arena_printf(e->a, "dtcu_copy(cx, %s, %s, %lld);\n", to, from, (long long)bytes);
}

static const char *put(Emit *e, const char *to, const char *counter) {
  return arena_printf(e->a, "dtcu_put(cx, %s, %s);\n", to, counter);
}

/* ---- kernels -------------------------------------------------------------------------------------------------------- */

/* The parameters of a kernel, or the arguments of its launch: of the context, the pointers and the ranges what it uses. */
static const char *used(const Kernel *k, const char *body, bool declared) {
  Emit *e = k->e;
  Str s = {0};
  if (emit_uses(body, "cx")) str_put(e->a, &s, declared ? "const dtcu_Context *cx" : "dtcu_device(cx)");
  for (int i = 0; i < k->param.n; i++) {
    const Param *p = &k->param.at[i];
    if (!emit_uses(body, p->name)) continue;
    str_put(e->a, &s, s.n ? ", " : "");
    if (!declared)
      str_put(e->a, &s, p->name);
    else if (p->place.kind == PLACE_COUNTER)
      str_printf(e->a, &s, "int64_t %s", p->name);
    else
      str_printf(e->a, &s, "%s%s *__restrict__ %s", p->written ? "" : "const ", emit_ctype(p->dtype), p->name);
  }
  for (int i = 0; i < k->range.n; i++) {
    const char *name[] = {k->range.at[i]->name, k->range.at[i]->count};
    for (int j = 0; j < 2; j++)
      if (name[j] && emit_uses(body, name[j]))
        str_printf(e->a, &s, "%s%s%s", s.n ? ", " : "", declared ? "int64_t " : "", name[j]);
  }
  return s.at ? s.at : "";
}

static void launch(Kernel *k, const char *blocks, int threads) {
  Emit *e = k->e;
  if (!k->body.n) return;
  const char *body = k->body.at, *see = emit_uses(body, "see") ? "const bool see = cx->checking;\n" : "";
  // a block is one warp at least
  body = arena_printf(e->a, "%s%s%s", threads == 1 ? "if (threadIdx.x > 0) return;\n" : "", see, body);
  const char *name =
      emit_name(e, &e->global, arena_printf(e->a, k->nparts ? "%s_kernel_%d" : "%s_kernel", k->name, k->nparts + 1));
  str_printf(e->a, &k->device, "static __global__ void __launch_bounds__(%d) %s(%s) {\n%s}\n", threads == 1 ? 32 : threads, name,
             used(k, body, true), body);
  const char *arguments = used(k, body, false);
  str_printf(e->a, &k->host, "DTCU_LAUNCH(cx, %s, %s, %d%s%s);\n", name, blocks, threads == 1 ? 32 : threads,
             *arguments ? ", " : "", arguments);
  k->body = (Str){0};
  k->nparts++;
}

static void zero(Kernel *k, const char *pointer, int64_t bytes) {
  Str *to = k->on_host ? &k->body : &k->host;
  str_printf(k->e->a, to, "dtcu_zero(cx, %s, %lld);\n", pointer, (long long)bytes);
}

static void kernel_end(Kernel *k) {
  Emit *e = k->e;
  Str *out = &e->kernels;
  if (!k->on_host) launch(k, "1", 1);
  k->needs_context = true;
  str_printf(e->a, out, "%sstatic void %s(dtrt_Context *cx", k->device.at ? k->device.at : "", k->name);
  for (int i = 0; i < k->param.n; i++) {
    const Param *p = &k->param.at[i];
    if (p->place.kind == PLACE_COUNTER)
      str_printf(e->a, out, ", int64_t %s", p->name);
    else
      str_printf(e->a, out, ", %s%s *%s", p->written ? "" : "const ", emit_ctype(p->dtype), p->name);
  }
  str_put(e->a, out, ") {\n");
  emit_ranges(k, out);
  str_printf(e->a, out, "%s%s}\n", k->host.at ? k->host.at : "", k->body.at ? k->body.at : "");
}

static const char *coordinate(Emit *e, const char *at, const char *value, int64_t limit, const char *rest) {
  return arena_printf(e->a, "int64_t %s = %s;\nif (%s < 0 || %s >= %lld) %s = dtcu_out_of_range(cx, %s, %lld, %s);\n", at, value,
                      at, at, (long long)limit, at, at, (long long)limit, rest);
}

const Dialect emit_dialect_cuda = {
    .restricted = "__restrict__",
    .head = head,
    .address = address,
    .pointers = pointers,
    .step = step,
    .copy = copy,
    .put = put,
    .zero = zero,
    .launch = launch,
    .rows = emit_rows_cuda,
    .kernel_end = kernel_end,
    .coordinate = coordinate,
};
