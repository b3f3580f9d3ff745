/* emitted.c: a random program as its users would run it: its inputs are .npy tables, its parameters a .safetensors file, its
   processes real (compiled.c); its outputs, read back from .npy, and the parameters that it saves after their updates must
   equal the interpreter's (attention and random numbers within a bound), and what its ranks count as received what the plan
   says. All values are integers that f32 holds exactly, so in any order of summation. */
#include "emitted.h"

#include <math.h>

static const char *path_of(const Emitted *e, const char *name) { return arena_printf(e->a, "%s/%s", e->folder, name); }

static void write_file(const Emitted *e, const char *name, const void *head, size_t nhead, const void *data, size_t n) {
  FILE *f = fopen(path_of(e, name), "wb");
  if (!f || fwrite(head, 1, nhead, f) != nhead || (n && fwrite(data, 1, n, f) != n) || fclose(f))
    internal_error("cannot write %s", path_of(e, name));
}

/* ---- values as bytes ---- */

static size_t bytes_of(const Type *t) { return (size_t)(type_elements(t) * dtype_size(t->dtype)); }

static void encode(DType d, Num v, bool real, char *to) {
  float f = real ? (float)v.f : (float)v.i;
  int32_t i = (int32_t)v.i;
  if (d == BOOL)
    *to = (char)v.i;
  else if (d == F32)
    memcpy(to, &f, 4);
  else if (d == I32)
    memcpy(to, &i, 4);
  else
    memcpy(to, &v.i, 8);
}

static double decode(DType d, const char *from) {
  float f;
  int32_t i;
  int64_t l;
  if (d == BOOL) return *from;
  if (d == F32) return memcpy(&f, from, 4), (double)f;
  if (d == I32) return memcpy(&i, from, 4), (double)i;
  return memcpy(&l, from, 8), (double)l;
}

static char *encoded(const Emitted *e, const Type *t, Tensor x) {
  char *data = NEW_ARRAY(e->a, char, bytes_of(t) + 1);
  for (int64_t i = 0; i < type_elements(t); i++) encode(t->dtype, x.at[i], e->o.real, data + i * dtype_size(t->dtype));
  return data;
}

static const char *shape(const Emitted *e, const Type *t, const char *last) {
  Str s = {0};
  str_put(e->a, &s, "");
  for (int k = 0; k < t->rank; k++) str_printf(e->a, &s, "%s%lld", k ? ", " : "", (long long)t->dim[k].size);
  if (t->rank == 1) str_put(e->a, &s, last);
  return s.n ? s.at : "";
}

static void write_npy(const Emitted *e, const char *name, const Type *t, Tensor x) {
  char head[256];
  memset(head, ' ', sizeof head);
  memcpy(head, "\x93NUMPY\x01\x00\xf6\x00", 10); /* 246 bytes follow, so that data begin at 256 */
  const char *text = arena_printf(e->a, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
                                  t->dtype == F32 ? "<f4" : "<i4", shape(e, t, ","));
  memcpy(head + 10, text, strlen(text));
  head[255] = '\n';
  write_file(e, name, head, sizeof head, encoded(e, t, x), bytes_of(t));
}

/* All parameters in one file; false if there are none. */
bool emitted_parameters(const Emitted *e) {
  Str head = {0}, data = {0};
  const Region *g = e->m->programs.at[0].body;
  for (int i = 0; i < g->ops.n; i++) {
    const Op *op = g->ops.at[i];
    if (op->kind != OP_PARAM) continue;
    const Type *t = &e->m->values.at[op->out[0]].type;
    int from = data.n;
    const char *bytes = encoded(e, t, fuzz_leaf(e->a, e->m, op, e->o));
    for (size_t b = 0; b < bytes_of(t); b++) vec_push(e->a, data, bytes[b]);
    str_printf(e->a, &head, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%d,%d]}", head.n ? "," : "", op->name,
               shape(e, t, ""), from, data.n);
  }
  if (!head.n) return false;
  const char *text = arena_printf(e->a, "%8s{%s}", "", head.at);
  uint64_t n = strlen(text) - 8;
  char *all = arena_strdup(e->a, text);
  memcpy(all, &n, 8);
  write_file(e, "p.safetensors", all, (size_t)n + 8, data.at, (size_t)data.n);
  return true;
}

void emitted_inputs(const Emitted *e) {
  const Region *g = e->m->programs.at[0].body;
  for (int i = 0; i < g->ops.n; i++) {
    const Op *op = g->ops.at[i];
    if (op->kind == OP_INPUT) write_npy(e, op->file, &e->m->values.at[op->out[0]].type, eval_leaf(e->shown.whole, op->name));
  }
}

/* ---- outputs and parameters ---- */

static Tensor shown_by(EvalRun *r, const Op *op) {
  return op->kind == OP_TAP ? eval_tap(r, op->tap, op->name) : eval_leaf(r, op->name);
}

/* What 16 times the noise does to the tensor, and the rounding of the largest element. */
static double real_bound(const Emitted *e, const Op *op, Tensor x, int64_t n) {
  double moved = 0, largest = 0;
  for (int k = 0; k < e->shown.nmoved; k++) {
    Tensor y = shown_by(e->shown.moved[k], op);
    for (int64_t i = 0; i < n; i++) moved = fmax(moved, fabs(y.at[i].f - x.at[i].f));
  }
  for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(x.at[i].f));
  return FUZZ_MOVES * moved + EVAL_NOISE * largest;
}

/* What the op shows, as the run has written it. */
static const char *compare_elements(const Emitted *e, const Op *op, const Type *t, const char *data) {
  Tensor x = shown_by(e->shown.whole, op);
  bool real = e->o.real && !dtype_is_int(t->dtype);
  double bound = real ? real_bound(e, op, x, type_elements(t)) : 0;
  for (int64_t i = 0; i < type_elements(t); i++) {
    double got = decode(t->dtype, data + i * dtype_size(t->dtype)), want = real ? x.at[i].f : (double)x.at[i].i;
    if (!(got == want || fabs(got - want) <= bound))
      return arena_printf(e->a, "%s %s, element %lld: interpreted %.9g, run %.9g, bound %.2g",
                          op->kind == OP_TAP ? "output" : "parameter", op->name, (long long)i, want, got, bound);
  }
  return NULL;
}

static const char *compare_output(const Emitted *e, const Op *op) {
  size_t n;
  const Type *t = &e->m->values.at[op->in[0]].type;
  const char *name = arena_printf(e->a, "%s.npy", op->name), *why = "", *file = read_whole_file(e->a, path_of(e, name), &n, &why);
  if (!file) return arena_printf(e->a, "output %s: %s", op->name, why);
  size_t head = n >= 10 ? 10 + (size_t)(unsigned char)file[8] + 256 * (size_t)(unsigned char)file[9] : 0;
  if (n != head + bytes_of(t)) return arena_printf(e->a, "output %s has %zu bytes", op->name, n);
  return compare_elements(e, op, t, file + head);
}

/* A parameter in the file that the run has saved, after its updates. */
static const char *compare_parameter(const Emitted *e, const Op *op) {
  size_t n, from, to;
  uint64_t head;
  const Type *t = &e->m->values.at[op->out[0]].type;
  const char *why = "", *file = read_whole_file(e->a, path_of(e, "saved.safetensors"), &n, &why);
  const char *at = file && n > 8 ? strstr(file + 8, arena_printf(e->a, "\"%s\":{", op->name)) : NULL;
  at = at ? strstr(at, "\"data_offsets\":[") : NULL;
  if (!at || sscanf(at, "\"data_offsets\":[%zu,%zu]", &from, &to) != 2)
    return arena_printf(e->a, "parameter %s was not saved: %s", op->name, why);
  memcpy(&head, file, 8);
  if (to - from != bytes_of(t) || head > n || to > n - 8 - head)
    return arena_printf(e->a, "parameter %s lies in bytes %zu to %zu of %zu", op->name, from, to, n);
  return compare_elements(e, op, t, file + 8 + head + from);
}

static const char *compare(const Emitted *e) {
  const Region *g = e->m->programs.at[0].body;
  const char *wrong = NULL;
  for (int i = 0; i < g->ops.n && !wrong; i++) {
    const Op *op = g->ops.at[i];
    if (op->kind == OP_TAP) wrong = compare_output(e, op);
    if (op->kind == OP_PARAM) wrong = compare_parameter(e, op);
  }
  return wrong;
}

/* ---- counters ---- */

static int64_t received(const Module *m, const Region *g, int64_t times, int64_t rank, int64_t *calls) {
  int64_t bytes = 0;
  for (int i = 0; i < g->ops.n; i++) {
    const Op *op = g->ops.at[i];
    if (op->body_region) bytes += received(m, op->body_region, times * op->trip, rank, calls);
    for (int k = 0; op_is_collective(op->kind) && k < op->nin; k++, *calls += times)
      bytes += times * move_received(&m->mesh, op->kind, &m->values.at[op->in[k]].type, &m->values.at[op->out[k]].type, rank);
  }
  return bytes;
}

/* What each rank says that it has received is what the plan says; the formulas of all-reduce round once per call. What
   all have sent is what all have received. */
static const char *compare_counters(const Emitted *e) {
  size_t n;
  const char *why, *at = read_whole_file(e->a, path_of(e, "run.log"), &n, &why);
  double all = 0;
  for (int64_t rank = 0; rank < mesh_devices(&e->m->mesh); rank++) {
    double in, out;
    int64_t calls = 0, planned = received(e->m, e->m->programs.at[0].body, 1, rank, &calls);
    at = at ? strstr(at, "  received ") : NULL;
    if (!at || sscanf(at, "  received %lf bytes per step; planned for the busiest rank %*d; sent %lf", &in, &out) != 2)
      return arena_printf(e->a, "rank %lld has not said what it received", (long long)rank);
    if (in < (double)planned - 0.1 || in > (double)(planned + calls) + 0.1)
      return arena_printf(e->a, "rank %lld received %.1f bytes, planned are %lld", (long long)rank, in, (long long)planned);
    all += in - out;
    at++;
  }
  return all > -1 && all < 1 ? NULL : arena_printf(e->a, "the ranks received %.1f bytes more than they sent", all);
}

const char *emitted_compare(const Emitted *e) {
  const char *wrong = compare(e);
  return wrong ? wrong : compare_counters(e);
}
