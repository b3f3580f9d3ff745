/* emit_kernel.c: tables of dims and layouts, and what a kernel has in common in both dialects: its parameters and the ranges
   of split indices.

     static void layer_n_21(dtrt_Context *cx, const float *restrict x, float *restrict n) {
       int64_t b_lo, b_n;
       dtrt_range(cx, &dim_B_data, &b_lo, &b_n);                                                              */
#include <ctype.h>

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

/* Zeros at the end are left out, as C has it. */
static void dim_init(Emit *e, Str *s, int64_t size, const Split *split) {
  str_printf(e->a, s, "{%lld, %lld", (long long)size, (long long)split_capacity(split, size));
  const Window *w = &split->window;
  Split chunks = *split;
  chunks.window = (Window){0};
  if (split->n || split_windowed(split)) {
    str_printf(e->a, s, ", %d, ", split->n);
    digits(e, s, split->n, split->part);
  }
  if (split_windowed(split))
    str_printf(e->a, s, ", {%lld, %lld, %lld, %lld, %lld, %lld}", (long long)w->of, (long long)split_capacity(&chunks, w->of),
               (long long)w->mul, (long long)w->lo, (long long)w->hi, (long long)w->div);
  str_put(e->a, s, "}");
}

void emit_layout(Emit *e, Str *s, const Type *t) {
  static const char *const names[NDTYPES] = {"DTRT_F32", "DTRT_BF16", "DTRT_F16", "DTRT_F64",
                                             "DTRT_I32", "DTRT_I64",  "DTRT_BOOL"};
  static const char *const kinds[] = {"0", "DTRT_SUM", "DTRT_MAX", "DTRT_MIN", "DTRT_PROD"};
  str_printf(e->a, s, "{%s", names[t->dtype]);
  if (t->rank || t->pending.n) str_printf(e->a, s, ", %d, {", t->rank);
  for (int d = 0; d < t->rank; d++) {
    if (d) str_put(e->a, s, ", ");
    dim_init(e, s, t->dim[d].size, &t->dim[d].split);
  }
  if (t->rank || t->pending.n) str_put(e->a, s, t->rank ? "}" : "{0}}");
  if (t->pending.n) {
    str_printf(e->a, s, ", %d, %s, ", t->pending.n, kinds[t->pending.kind]);
    digits(e, s, t->pending.n, t->pending.part);
  }
  str_put(e->a, s, "}");
}

const char *emit_dim(Emit *e, int64_t size, const Split *split) {
  Str init = {0};
  dim_init(e, &init, size, split);
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

const char *emit_layout_table(Emit *e, const Type *t, const char *wish) {
  Str init = {0};
  emit_layout(e, &init, t);
  for (int i = 0; i < e->layouts.n; i++)
    if (!strcmp(e->layouts.at[i], init.at)) return e->layout_names.at[i];
  const char *name = emit_name(e, &e->global, wish);
  vec_push(e->a, e->layouts, (const char *)init.at);
  vec_push(e->a, e->layout_names, name);
  return name;
}

/* ---- kernels ---------------------------------------------------------------------------------------------------- */

Kernel *emit_kernel(Emit *e, const Op *op, const char *wish) {
  Kernel *k = NEW(e->a, Kernel);
  k->e = e;
  /* never a bare name: behind a function called x C++20 reads `threadIdx.x < n` as the beginning of template arguments */
  const char *name = op->loc.line > 0 ? arena_printf(e->a, "%s_%d", wish, op->loc.line) : arena_printf(e->a, "make_%s", wish);
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
  Param p = {emit_fresh_name(e, &k->local, e->m->values.at[v].name), *place, v, e->m->values.at[v].type.dtype, written};
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

void emit_ranges(Kernel *k, Str *out) {
  for (int i = 0; i < k->range.n; i++) {
    Range *r = k->range.at[i];
    if (!r->used) continue;
    str_printf(k->e->a, out, "int64_t %s, %s;\ndtrt_range(cx, &%s, &%s, &%s);\n", r->name, r->count,
               emit_dim(k->e, r->size, &r->split), r->name, r->count);
  }
}

bool emit_uses(const char *text, const char *name) {
  size_t n = strlen(name);
  for (const char *at = text ? strstr(text, name) : NULL; at; at = strstr(at + 1, name)) {
    bool begins = at == text || !(isalnum((unsigned char)at[-1]) || at[-1] == '_');
    if (begins && !isalnum((unsigned char)at[n]) && at[n] != '_') return true;
  }
  return false;
}

void emit_launch(Kernel *k, const char *blocks, int threads) { k->e->d->launch(k, blocks, threads); }

void emit_zero(Kernel *k, const char *pointer, int64_t bytes) { k->e->d->zero(k, pointer, bytes); }

void emit_kernel_end(Kernel *k, const Op *op, const char *what) {
  const char *where = emit_where(k->e, op);
  str_printf(k->e->a, &k->e->kernels, "\n// %s%s%s\n", where, *where ? ": " : "", what);
  k->e->d->kernel_end(k);
}
