/* model.c: a model of the user's as a program to fuzz: read and lowered as dtc does, with dims overridden, attention
   recognised, and all layouts taken off; annotate.c then gives it a mesh and layouts as to any other program.

     fuzz_model(a, "examples/charlm.dt B=4 T=6 V=10 D=8 H=2 L=2")                                          */
#include "fuzz.h"

#include "frontend/frontend.h"

#include <stdlib.h>

static const char *word(Arena *a, const char **text) {
  const char *from = *text + strspn(*text, " ");
  size_t n = strcspn(from, " ");
  *text = from + n;
  return n ? arena_strndup(a, from, n) : NULL;
}

static FrontendOptions overrides(Arena *a, const char *text) {
  FrontendOptions o = {0};
  for (const char *w = word(a, &text); w; w = word(a, &text)) {
    const char *equals = strchr(w, '=');
    if (!equals) internal_error("%s gives no dim a size", w);
    vec_grow(a, (void **)&o.dims.at, o.dims.n, &o.dims.cap, sizeof *o.dims.at);
    o.dims.at[o.dims.n].name = arena_strndup(a, w, (size_t)(equals - w));
    o.dims.at[o.dims.n++].value = strtoll(equals + 1, NULL, 10);
  }
  return o;
}

static void clear_spaces(const Region *g) {
  for (int i = 0; i < g->ops.n; i++) {
    Op *op = g->ops.at[i];
    for (int k = 0; k < op->space.n; k++) op->space.idx[k].split = (Split){0};
    if (op->body_region) clear_spaces(op->body_region);
  }
}

static void take_layouts_off(Module *m) {
  for (int i = 0; i < m->programs.n; i++) clear_spaces(m->programs.at[i].body);
  for (ValueId v = 0; v < m->values.n; v++)
    for (int k = 0; k < m->values.at[v].type.rank; k++) m->values.at[v].type.dim[k].split = (Split){0};
}

Module *fuzz_model(Arena *a, const char *spec) {
  const char *path = word(a, &spec), *why = NULL;
  size_t len = 0;
  char *text = path ? read_whole_file(a, path, &len, &why) : NULL;
  if (!text) internal_error("no model %s: %s", path ? path : "named", why ? why : "");
  FrontendOptions o = overrides(a, spec);
  PassContext cx = {.diags = diags_new(a)};
  Module *m = frontend_module(a, cx.diags, diags_add_file(cx.diags, path, text, len), path, &o);
  if (m) ir_recognise(m, &cx);
  if (!m || cx.diags->nerrors) {
    diags_print(cx.diags, DIAG_TEXT, stdout);
    internal_error("%s has errors", path);
  }
  take_layouts_off(m);
  return m;
}
