/* oracle.c: models, their gradients and their training against values that another system computed in f64
   (tests/peers/numeric; conventions in its README), in the reference interpreter: .dt text -> IR -> recognise,
   gradient, update -> 20 steps. f32 literals are rounded once when read, which is all that keeps this from agreeing
   to rounding errors of f64. */
#include "frontend/frontend.h"
#include "unit.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  Arena *a;
  char *folder;
  Module *m;
  EvalRun *run;
  json_t *expected;
} Oracle;

static char *slurp(Oracle *o, const char *name, size_t *len) {
  const char *why = NULL;
  char *text = read_whole_file(o->a, arena_printf(o->a, "%s/%s", o->folder, name), len, &why);
  if (!text) unit_fail(__FILE__, __LINE__, "%s/%s: %s", o->folder, name, why);
  return text;
}

/* ---- safetensors: u64 header length, a JSON header, raw little-endian data -------------------------------------------- */

typedef struct {
  json_t *header;
  const char *data;
} Tensors;

static bool open_tensors(Oracle *o, const char *name, Tensors *t) {
  size_t len;
  char *file = slurp(o, name, &len);
  uint64_t n;
  if (!file || len < 8) return false;
  memcpy(&n, file, 8);
  t->header = json_loadb(file + 8, n, 0, NULL);
  t->data = file + 8 + n;
  return t->header != NULL;
}

static double number_at(const char *data, bool wide, int64_t i) {
  float f;
  double d;
  if (wide) return memcpy(&d, data + 8 * i, 8), d;
  return memcpy(&f, data + 4 * i, 4), f;
}

static Tensor find_tensor(Oracle *o, const Tensors *t, const char *name) {
  json_t *entry = json_object_get(t->header, name), *shape = json_object_get(entry, "shape");
  Tensor r = {.rank = entry ? (int)json_array_size(shape) : -1};
  int64_t n = 1;
  for (int d = 0; d < r.rank; d++) n *= r.size[d] = json_integer_value(json_array_get(shape, (size_t)d));
  r.at = NEW_ARRAY(o->a, Num, n);
  bool wide = entry && !strcmp(json_string_value(json_object_get(entry, "dtype")), "F64");
  const char *data = t->data + json_integer_value(json_array_get(json_object_get(entry, "data_offsets"), 0));
  for (int64_t i = 0; i < n && entry; i++) r.at[i].f = number_at(data, wide, i);
  return r;
}

/* ---- data: .npy version 1, <f4 or <i4, rows first ----------------------------------------------------------------------- */

static void set_rows(Oracle *o, const Op *input, int step) {
  const Type *t = &o->m->values.at[input->out[0]].type;
  size_t len;
  char *file = slurp(o, input->file, &len);
  if (!file) return;
  const char *data = file + 10 + (unsigned char)file[8] + 256 * (unsigned char)file[9];
  int64_t row = type_elements(t) / t->dim[0].size, rows = (int64_t)(len - (size_t)(data - file)) / 4 / row;
  Tensor x = {.rank = t->rank, .at = NEW_ARRAY(o->a, Num, type_elements(t))};
  for (int64_t i = 0; i < type_elements(t); i++) {
    int64_t from = (step * t->dim[0].size + i / row) % rows * row + i % row;
    int32_t v;
    memcpy(&v, data + 4 * from, 4);
    if (dtype_is_int(t->dtype))
      x.at[i].i = v;
    else
      x.at[i].f = number_at(data, false, from);
  }
  eval_set_leaf(o->run, input->name ? input->name : o->m->values.at[input->out[0]].name, &x);
}

/* ---- models --------------------------------------------------------------------------------------------------------------- */

static bool compile(Oracle *o, bool recognised) {
  size_t len;
  char *text = slurp(o, "model.dt", &len);
  if (!text) return false;
  Diags *d = diags_new(o->a);
  int file = diags_add_file(d, "model.dt", text, len);
  o->m = frontend_module(o->a, d, file, arena_printf(o->a, "%s/model.dt", o->folder), &(FrontendOptions){0});
  if (!o->m) {
    diags_print(d, DIAG_TEXT, stderr);
    unit_fail(__FILE__, __LINE__, "%s does not compile", o->folder);
    return false;
  }
  PassContext cx = {.diags = d};
  if (recognised) ir_recognise(o->m, &cx);
  ir_verify(o->m, "recognise", NULL);
  ir_gradient(o->m, &cx);
  ir_verify(o->m, "gradient", NULL);
  ir_update(o->m, &cx);
  ir_verify(o->m, "update", NULL);
  o->run = eval_new(o->m, o->a, (EvalOptions){.domain = DOMAIN_F64});
  return true;
}

static void for_each(Oracle *o, OpKind kind, void (*f)(Oracle *o, const Op *op, void *cx), void *cx) {
  Region *r = o->m->programs.at[0].body;
  for (int i = 0; i < r->ops.n; i++)
    if (r->ops.at[i]->kind == kind) f(o, r->ops.at[i], cx);
}

static void set_param(Oracle *o, const Op *op, void *init) {
  Tensor x = find_tensor(o, init, op->name);
  if (x.rank < 0) return unit_fail(__FILE__, __LINE__, "%s: no initial value of %s", o->folder, op->name);
  eval_set_leaf(o->run, op->name, &x);
}

static void set_input(Oracle *o, const Op *op, void *step) { set_rows(o, op, *(int *)step); }

static void check_gradient(Oracle *o, const Op *op, void *grads) {
  Tensor want = find_tensor(o, grads, op->name), got = eval_tap(o->run, TAP_GRAD, op->name);
  if (want.rank < 0 || got.rank != want.rank) return unit_fail(__FILE__, __LINE__, "%s: no gradient of %s", o->folder, op->name);
  double off = 0, all = 0;
  for (int64_t i = 0; i < type_elements(&o->m->values.at[op->out[0]].type); i++) {
    off += (got.at[i].f - want.at[i].f) * (got.at[i].f - want.at[i].f);
    all += want.at[i].f * want.at[i].f;
  }
  if (!(sqrt(off) <= 1e-7 * sqrt(all) + 1e-12))
    unit_fail(__FILE__, __LINE__, "%s: gradient of %s is off by %.3g of %.3g", o->folder, op->name, sqrt(off), sqrt(all));
}

static void check_number(Oracle *o, TapKind tap, const char *what, int step, double bound) {
  double got = eval_tap(o->run, tap, NULL).at[0].f;
  double want = json_number_value(json_array_get(json_object_get(o->expected, what), (size_t)step));
  if (!(fabs(got - want) <= bound * fabs(want)))
    unit_fail(__FILE__, __LINE__, "%s: %s of step %d is %.15g, expected %.15g", o->folder, what, step, got, want);
}

static void run_steps(Oracle *o, int steps) {
  Tensors init, grads;
  if (!open_tensors(o, "init.safetensors", &init) || !open_tensors(o, "grads0.safetensors", &grads)) return;
  for_each(o, OP_PARAM, set_param, &init);
  for (int s = 0; s < steps; s++) {
    const char *why = NULL;
    for_each(o, OP_INPUT, set_input, &s);
    if (!eval_step(o->run, &why)) return unit_fail(__FILE__, __LINE__, "%s: %s", o->folder, why);
    check_number(o, TAP_LOSS, "loss", s, 2e-8);
    check_number(o, TAP_GRAD_NORM, "grad_norm", s, 5e-8);
    check_number(o, TAP_LR, "lr", s, 1e-12);
    if (s == 0) for_each(o, OP_PARAM, check_gradient, &grads);
  }
  json_decref(init.header);
  json_decref(grads.header);
}

static void check_model(const char *name, int steps, bool recognised) {
  Oracle o = {.a = arena_new()};
  o.folder = arena_printf(o.a, "%s/peers/numeric/%s", DTC_TESTS, name);
  size_t len;
  char *json = slurp(&o, "expected.json", &len);
  o.expected = json ? json_loadb(json, len, 0, NULL) : NULL;
  if (o.expected && compile(&o, recognised)) run_steps(&o, steps);
  json_decref(o.expected);
  arena_free(o.a);
}

UNIT(oracle_mlp) { check_model("mlp", 20, true); }
UNIT(oracle_conv) { check_model("conv", 4, true); }
UNIT(oracle_charlm) { check_model("charlm", 4, true); }
UNIT(oracle_charlm_as_written) { check_model("charlm", 2, false); }
UNIT(oracle_llama) { check_model("llama", 4, true); }
UNIT(oracle_llama_as_written) { check_model("llama", 2, false); }
