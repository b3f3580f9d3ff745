/* emit_kernel.c: tables of dims, and the head of a kernel: its parameters and the ranges of split indices.

     static void layer_n_21(dtrt_Context *cx, const float *restrict x, float *restrict n) {
       int64_t b_lo, b_n;
       dtrt_range(cx, &dim_B_data, &b_lo, &b_n);                                                              */
#include "emit.h"

void emit_string(Emit *e, Str *s, const char *text) {
  str_put(e->a, s, "\"");
  for (const unsigned char *c = (const unsigned char *)(text ? text : ""); *c; c++) {
    if (*c >= 32 && *c < 127 && *c != '"' && *c != '\\' && *c != '?')
      str_printf(e->a, s, "%c", *c);
    else
      str_printf(e->a, s, "\\%03o", *c);
  }
  str_put(e->a, s, "\"");
}

const char *emit_ctype(DType d) {
  switch (d) {
  case F32: return "float";
  case F64: return "double";
  case I32: return "int32_t";
  case I64: return "int64_t";
  case BOOL: return "bool";
  default: internal_error("no C type for %s yet", dtype_name(d));
  }
}

const char *emit_file(const Emit *e, const Op *op) {
  return op->loc.line > 0 && op->loc.file >= 0 && op->loc.file < e->m->files.n ? e->m->files.at[op->loc.file] : "";
}

const char *emit_where(Emit *e, const Op *op) {
  if (op->loc.line <= 0) return "";
  Str s = {0};
  for (const char *c = emit_file(e, op); *c; c++)
    str_printf(e->a, &s, "%c", *c < 32 || *c > 126 || strchr("\\{}?*/", *c) ? '_' : *c);
  str_printf(e->a, &s, ":%d", op->loc.line);
  return s.at;
}

/* ---- dims ----------------------------------------------------------------------------------------------------- */

static void digit(Emit *e, Str *s, AxisPart p) {
  const Mesh *mesh = &e->m->mesh;
  int64_t stride = mesh->axis[p.axis].size / (p.pre * p.size);
  for (int i = p.axis + 1; i < mesh->naxes; i++) stride *= mesh->axis[i].size;
  str_printf(e->a, s, "{%lld, %lld}", (long long)stride, (long long)p.size);
}

static void digits(Emit *e, Str *s, int n, const AxisPart *p) {
  str_put(e->a, s, "{");
  for (int i = 0; i < n; i++) {
    if (i) str_put(e->a, s, ", ");
    digit(e, s, p[i]);
  }
  str_put(e->a, s, n ? "}" : "{0}}");
}

void emit_digits(Emit *e, Str *s, const Split *split) { digits(e, s, split->n, split->part); }

static void emit_dim_init(Emit *e, Str *s, int64_t size, const Split *split) {
  str_printf(e->a, s, "{%lld, %lld, %d, ", (long long)size, (long long)split_capacity(split, size), split->n);
  digits(e, s, split->n, split->part);
  const Window *w = &split->window;
  Split chunks = *split;
  chunks.window = (Window){0};
  if (split_windowed(split))
    str_printf(e->a, s, ", {%lld, %lld, %lld, %lld, %lld, %lld}}", (long long)w->of, (long long)split_capacity(&chunks, w->of),
               (long long)w->mul, (long long)w->lo, (long long)w->hi, (long long)w->div);
  else
    str_put(e->a, s, ", {0}}");
}

void emit_layout(Emit *e, Str *s, const Type *t) {
  static const char *const names[NDTYPES] = {"DTRT_F32", "DTRT_BF16", "DTRT_F16", "DTRT_F64",
                                             "DTRT_I32", "DTRT_I64",  "DTRT_BOOL"};
  static const char *const kinds[] = {"0", "DTRT_SUM", "DTRT_MAX", "DTRT_MIN", "DTRT_PROD"};
  str_printf(e->a, s, "{%s, %d, {", names[t->dtype], t->rank);
  for (int d = 0; d < t->rank; d++) {
    if (d) str_put(e->a, s, ", ");
    emit_dim_init(e, s, t->dim[d].size, &t->dim[d].split);
  }
  str_printf(e->a, s, "%s}, %d, %s, ", t->rank ? "" : "{0}", t->pending.n, t->pending.n ? kinds[t->pending.kind] : "0");
  digits(e, s, t->pending.n, t->pending.part);
  str_put(e->a, s, "}");
}

static const char *emit_dim(Emit *e, int64_t size, const Split *split) {
  Str init = {0};
  emit_dim_init(e, &init, size, split);
  for (int i = 0; i < e->dims.n; i++)
    if (!strcmp(e->dims.at[i], init.at)) return e->dim_names.at[i];
  Str wish = {0};
  str_printf(e->a, &wish, "dim_%lld", (long long)size);
  for (int i = 0; i < split->n; i++) str_printf(e->a, &wish, "_%s", e->m->mesh.axis[split->part[i].axis].name);
  if (split_windowed(split)) str_put(e->a, &wish, "_window");
  const char *name = emit_name(e, &e->global, wish.at);
  vec_push(e->a, e->dims, (const char *)init.at);
  vec_push(e->a, e->dim_names, name);
  return name;
}

/* ---- kernels ---------------------------------------------------------------------------------------------------- */

Kernel *emit_kernel(Emit *e, const Op *op, const char *wish) {
  Kernel *k = NEW(e->a, Kernel);
  k->e = e;
  const char *name = op->loc.line > 0 ? arena_printf(e->a, "%s_%d", wish, op->loc.line) : wish;
  k->name = emit_name(e, &e->global, name);
  return k;
}

const char *emit_pointer(Kernel *k, ValueId v, bool written) {
  Emit *e = k->e;
  const Place *place = &e->place[v];
  if (place->kind == PLACE_NONE) internal_error("%%%s has no place in memory", e->m->values.at[v].name);
  if (place->kind == PLACE_SETTING) return arena_printf(e->a, "(&cx->setting[%d])", place->setting);
  for (int i = 0; i < k->param.n; i++) {
    Param *p = &k->param.at[i];
    bool same = place->kind == PLACE_COUNTER ? p->value == v : p->place.kind == PLACE_ARENA && cg_same_place(&p->place, place);
    if (!same) continue;
    p->written |= written;
    return place->kind == PLACE_COUNTER ? arena_printf(e->a, "(&%s)", p->name) : p->name;
  }
  Param p = {emit_name(e, &k->local, e->m->values.at[v].name), *place, v, e->m->values.at[v].type.dtype, written};
  vec_push(e->a, k->param, p);
  return place->kind == PLACE_COUNTER ? arena_printf(e->a, "(&%s)", p.name) : p.name;
}

Range *emit_range(Kernel *k, int64_t size, const Split *split, const char *wish) {
  for (int i = 0; i < k->range.n; i++)
    if (k->range.at[i]->size == size && split_equal(&k->range.at[i]->split, split)) return k->range.at[i];
  Range *r = NEW(k->e->a, Range);
  *r = (Range){.size = size, .split = *split};
  if (cg_is_split(split)) {
    r->name = emit_name(k->e, &k->local, arena_printf(k->e->a, "%s_lo", wish));
    r->count = emit_name(k->e, &k->local, arena_printf(k->e->a, "%s_n", wish));
  }
  vec_push(k->e->a, k->range, r);
  return r;
}

const char *emit_lo(Kernel *k, Range *r) {
  (void)k;
  if (!r->name) return "0";
  r->used = true;
  return r->name;
}

const char *emit_n(Kernel *k, Range *r) {
  if (split_even(&r->split, r->size)) return arena_printf(k->e->a, "%lld", (long long)split_capacity(&r->split, r->size));
  r->used = true;
  return r->count;
}

static bool uses_context(const Kernel *k) {
  for (int i = 0; i < k->range.n; i++)
    if (k->range.at[i]->used) return true;
  return k->body.at && (strstr(k->body.at, "cx->") || strstr(k->body.at, "(cx, "));
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

void emit_kernel_end(Kernel *k, const Op *op, const char *what) {
  Emit *e = k->e;
  Str *out = &e->kernels;
  const char *where = emit_where(e, op),
             *body = k->sees ? emit_name(e, &e->global, arena_printf(e->a, "%s_body", k->name)) : NULL;
  k->needs_context = k->sees || uses_context(k);
  str_printf(e->a, out, "\n// %s%s%s\n", where, *where ? ": " : "", what);
  str_printf(e->a, out, k->sees ? "static inline __attribute__((always_inline)) void %s(bool see, " : "static void %s(",
             k->sees ? body : k->name);
  parameters(k);
  for (int i = 0; i < k->range.n; i++) {
    Range *r = k->range.at[i];
    if (!r->used) continue;
    str_printf(e->a, out, "int64_t %s, %s;\ndtrt_range(cx, &%s, &%s, &%s);\n", r->name, r->count, emit_dim(e, r->size, &r->split),
               r->name, r->count);
  }
  str_put(e->a, out, k->body.at ? k->body.at : "");
  str_put(e->a, out, "}\n");
  if (k->sees) both_ways(k, body);
}
