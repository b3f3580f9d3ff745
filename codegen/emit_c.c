/* emit_c.c: the dialect C: a kernel is one function for one thread.

     // charlm.dt:26: n
     static void n_26(dtrt_Context *cx, const float *restrict x, float *restrict n) { ... }
     ...
       n_26(cx, x, n); // charlm.dt:26                                                                          */
#include "emit_rows.h"

static void head(Emit *e, Str *out) {
  str_put(e->a, out, "#include <string.h>\n\n#include \"runtime/dtrt.h\"\n#include \"runtime/dtrt_math.h\"\n");
  if (e->uses_random) str_put(e->a, out, "#include \"runtime/dtrt_random.h\"\n");
}

static const char *address(Emit *e, const char *type, const char *offset, int64_t bytes) {
  (void)type, (void)bytes;
  return arena_printf(e->a, "AT(%s)", offset);
}

static const char *pointers(Emit *e, const char *list, bool written) {
  return arena_printf(e->a, "(%s *const[]){%s}", written ? "void" : "const void", list);
}

static const char *step(Emit *e, const Op *op, const char *call) {
  bool attention = op->kind == OP_ATTENTION || op->kind == OP_ATTENTION_GRAD; // the profile has a line for it
  const char *where = emit_where(e, op);
  return arena_printf(e->a, "%s%s;%s%s\n%s", attention ? "dtrt_part(cx, DTRT_ATTENTION);\n" : "", call, *where ? " // " : "",
                      where, attention ? "dtrt_part(cx, DTRT_OTHER);\n" : "");
}

static const char *copy(Emit *e, const char *to, const char *from, int64_t bytes) {
  return arena_printf(e->a, "memcpy(%s, %s, %lld);\n", to, from, (long long)bytes);
}

static const char *put(Emit *e, const char *to, const char *counter) {
  return arena_printf(e->a, "memcpy(%s, &%s, 8);\n", to, counter);
}

static void zero(Kernel *k, const char *pointer, int64_t bytes) {
  str_printf(k->e->a, &k->body, "memset(%s, 0, %lld);\n", pointer, (long long)bytes);
}

static void launch(Kernel *k, const char *blocks, int threads) { (void)k, (void)blocks, (void)threads; }

static bool uses_context(const Kernel *k) {
  for (int i = 0; i < k->range.n; i++)
    if (k->range.at[i]->used) return true;
  return emit_uses(k->body.at, "cx");
}

static void parameters(Kernel *k) {
  Emit *e = k->e;
  Str *out = &e->kernels;
  if (k->needs_context) str_put(e->a, out, "dtrt_Context *cx");
  for (int i = 0; i < k->param.n; i++) {
    const Param *p = &k->param.at[i];
    if (i || k->needs_context) str_put(e->a, out, ", ");
    if (p->place.kind == PLACE_COUNTER)
      str_printf(e->a, out, "const int64_t %s", p->name);
    else
      str_printf(e->a, out, "%s%s *restrict %s", p->written ? "" : "const ", emit_ctype(p->dtype), p->name);
  }
  str_put(e->a, out, ") {\n");
}

/* The kernel itself: its body with `see` a constant, so that looking costs nothing when nobody looks. */
static void both_ways(Kernel *k, const char *body) {
  Emit *e = k->e;
  Str *out = &e->kernels, arguments = {0};
  for (int i = 0; i < k->param.n; i++) str_printf(e->a, &arguments, ", %s", k->param.at[i].name);
  str_printf(e->a, out, "static void %s(", k->name);
  parameters(k);
  str_printf(e->a, out, "if (cx->checking) %s(true, cx%s);\nelse %s(false, cx%s);\n}\n", body, arguments.at ? arguments.at : "",
             body, arguments.at ? arguments.at : "");
}

static void kernel_end(Kernel *k) {
  Emit *e = k->e;
  Str *out = &e->kernels;
  const char *body = k->sees ? emit_name(e, &e->global, arena_printf(e->a, "%s_body", k->name)) : NULL;
  k->needs_context = k->sees || uses_context(k);
  str_printf(e->a, out, k->sees ? "static inline __attribute__((always_inline)) void %s(bool see, " : "static void %s(",
             k->sees ? body : k->name);
  parameters(k);
  emit_ranges(k, out);
  str_put(e->a, out, k->body.at ? k->body.at : "");
  str_put(e->a, out, "}\n");
  if (k->sees) both_ways(k, body);
}

static const char *coordinate(Emit *e, const char *at, const char *value, int64_t limit, const char *rest) {
  return arena_printf(e->a, "const int64_t %s = %s;\nif (%s < 0 || %s >= %lld) dtrt_out_of_range(cx, %s, %lld, %s);\n", at, value,
                      at, at, (long long)limit, at, (long long)limit, rest);
}

const Dialect emit_dialect_c = {
    .restricted = "restrict",
    .head = head,
    .address = address,
    .pointers = pointers,
    .step = step,
    .copy = copy,
    .put = put,
    .zero = zero,
    .launch = launch,
    .rows = emit_rows_c,
    .kernel_end = kernel_end,
    .coordinate = coordinate,
};
