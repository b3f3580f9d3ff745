/* checkpoint.c: parameters and optimizer state from and to .safetensors files, first-step gradients, outputs.

   A saved file holds whole tensors under the leaves' names (`layer.wq`, `adamw.m.layer.wq`, `step`), whatever the
   mesh, and in its metadata the number of steps made and the seed; with these the data go on where they stopped.
   Rank 0 writes: rows of at most BLOCK bytes at a time come to it from the boxes that hold them, so that all ranks take part
   even if the disk is full. Every rank reads its own box from the mapped file.

     --init    parameters only, f64, bf16 and f16 are converted; state and step start at zero
     --resume  everything, bit for bit */
#define _GNU_SOURCE
#include "rt.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <unistd.h>

enum { BLOCK = 8 << 20 };

static bool saved_leaf(const dtrt_Leaf *l) { return l->kind != DTRT_INPUT; }

static const dtrt_Leaf *find_leaf(const dtrt_Program *p, const char *name) {
  for (int i = 0; i < p->nleaves; i++)
    if (saved_leaf(&p->leaf[i]) && strcmp(p->leaf[i].name, name) == 0) return &p->leaf[i];
  return NULL;
}

/* ---- reading ---- */

static bool same_shape(const dtrt_Layout *l, const StTensor *t) {
  if (t->rank != l->rank) return false;
  for (int i = 0; i < l->rank; i++)
    if (t->dim[i] != l->dim[i].size) return false;
  return true;
}

static void shape_text(char *out, size_t size, const char *dtype, int rank, const int64_t *dim) {
  int k = snprintf(out, size, "%s[", dtype);
  for (int i = 0; i < rank && k < (int)size - 40; i++)
    k += snprintf(out + k, size - (size_t)k, "%s%" PRId64, i ? ", " : "", dim[i]);
  snprintf(out + k, size - (size_t)k, "]");
}

static void check_tensor(Rt *rt, const dtrt_Leaf *l, bool exact) {
  const StTensor *t = rt_st_find(&rt->file, l->name);
  const char *file = rt->file.map.name;
  if (!t) rt_fail(rt, EXIT_DATA, "%s has no tensor %s (%s:%d)", file, l->name, rt->p->source, l->line);
  bool dtype = t->dtype == l->layout.dtype || (!exact && rt_is_real(t->dtype) && rt_is_real(l->layout.dtype));
  if (dtype && same_shape(&l->layout, t)) return;
  char has[256], wants[256];
  int64_t dim[DTRT_MAX_RANK];
  for (int i = 0; i < l->layout.rank; i++) dim[i] = l->layout.dim[i].size;
  shape_text(has, sizeof has, rt_dtype_name(t->dtype), t->rank, t->dim);
  shape_text(wants, sizeof wants, rt_dtype_name(l->layout.dtype), l->layout.rank, dim);
  rt_fail(rt, EXIT_DATA, "%s: %s is %s, but the program needs %s (%s:%d)", file, l->name, has, wants, rt->p->source, l->line);
}

static void check_file(Rt *rt, bool resume) {
  for (int i = 0; i < rt->p->nleaves; i++) {
    const dtrt_Leaf *l = &rt->p->leaf[i];
    if (l->kind == DTRT_PARAM || (resume && l->kind == DTRT_STATE)) check_tensor(rt, l, resume);
  }
  for (int i = 0; i < rt->file.n; i++)
    if (!find_leaf(rt->p, rt->file.tensor[i].name))
      rt_fail(rt, EXIT_DATA, "%s has a tensor %.200s that this program does not have", rt->file.map.name,
              rt->file.tensor[i].name);
}

static uint64_t metadata_number(Rt *rt, const char *key) {
  const char *text = rt_st_metadata(&rt->file, key);
  char *end;
  errno = 0;
  uint64_t v = text && *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
  if (!text || errno || *text < '0' || *text > '9' || *end)
    rt_fail(rt, EXIT_DATA, "cannot resume from %s: its metadata have no %s (was it written by --save?)", rt->file.map.name, key);
  return v;
}

void rt_checkpoint_open(Rt *rt) {
  const char *name = rt->o.resume ? rt->o.resume : rt->o.init;
  char why[RT_MESSAGE];
  if (!name) return;
  if (!rt_st_open(name, &rt->file, why)) rt_fail(rt, EXIT_DATA, "%s", why);
  rt->has_file = true;
  check_file(rt, rt->o.resume);
  if (!rt->o.resume) return;
  uint64_t step = metadata_number(rt, "step"), seed = metadata_number(rt, "seed");
  if (step > INT64_MAX / 2) rt_fail(rt, EXIT_DATA, "cannot resume from %s: its step is out of range", name);
  rt->start = (int64_t)step;
  if (!rt->o.seed_given) rt->o.seed = seed;
}

/* ---- filling ---- */

static void read_leaf(Rt *rt, const dtrt_Leaf *l) {
  const StTensor *t = rt_st_find(&rt->file, l->name);
  dtrt_Layout whole = rt_unsplit(&l->layout);
  RtBox all = rt_box(&whole, rt->rank), mine = rt_box(&l->layout, rt->rank);
  Piece p = rt_piece(&mine, &all, &whole, &mine, &l->layout);
  const unsigned char *src = rt->file.data + t->begin;
  size_t from = rt_dtype_size(t->dtype), to = rt_dtype_size(l->layout.dtype), bytes = (size_t)rt_local_elements(&l->layout) * to;
  char *dst = rt_borrow(rt, rt->cx.arena + l->offset, bytes, false);
  for (Runs r = rt_runs(&p, 0, p.elements); rt_next_run(&r);)
    rt_convert(l->layout.dtype, dst + (size_t)r.d * to, t->dtype, src + (size_t)r.s * from, r.n);
  rt_return(rt, rt->cx.arena + l->offset, dst, bytes);
}

void rt_leaves_fill(Rt *rt) {
  for (int i = 0; i < rt->p->nleaves; i++) {
    const dtrt_Leaf *l = &rt->p->leaf[i];
    bool from_file = rt->has_file && (l->kind == DTRT_PARAM || (rt->o.resume && l->kind == DTRT_STATE));
    if (from_file)
      read_leaf(rt, l);
    else if (l->kind == DTRT_PARAM)
      rt_draw(rt, l);
    else if (l->kind == DTRT_STATE)
      rt_clear(rt, rt->cx.arena + l->offset, (size_t)rt_local_elements(&l->layout) * rt_dtype_size(l->layout.dtype));
  }
  rt_st_close(&rt->file);
}

/* ---- writing ---- */

/* Where each tensor goes in a file of several. */
typedef struct {
  char *header; /* padded with spaces to 8 */
  size_t header_bytes;
  int64_t *at; /* [nleaves], of the file; -1: not in it */
  int64_t bytes;
} Contents;

static Contents contents(const Rt *rt, bool grads, int64_t step) {
  const dtrt_Program *p = rt->p;
  Contents c = {.at = rt_alloc((size_t)p->nleaves, sizeof *c.at)};
  char number[32];
  json_t *all = json_object(), *metadata = json_object();
  json_object_set_new(metadata, "format", json_string("dtc"));
  snprintf(number, sizeof number, "%" PRId64, step);
  json_object_set_new(metadata, "step", json_string(number));
  snprintf(number, sizeof number, "%" PRIu64, rt->o.seed);
  json_object_set_new(metadata, "seed", json_string(number));
  json_object_set_new(all, "__metadata__", metadata);
  int64_t at = 0;
  for (int i = 0; i < p->nleaves; i++) {
    const dtrt_Leaf *l = &p->leaf[i];
    c.at[i] = -1;
    if (!saved_leaf(l) || (grads && l->kind != DTRT_PARAM)) continue;
    int64_t bytes = rt_whole_elements(&l->layout) * (int64_t)rt_dtype_size(l->layout.dtype);
    json_t *shape = json_array();
    for (int d = 0; d < l->layout.rank; d++) json_array_append_new(shape, json_integer(l->layout.dim[d].size));
    json_object_set_new(all, l->name,
                        json_pack("{s:s, s:o, s:[I, I]}", "dtype", rt_st_dtype(l->layout.dtype), "shape", shape, "data_offsets",
                                  (json_int_t)at, (json_int_t)(at + bytes)));
    c.at[i] = at;
    at += bytes;
  }
  char *text = json_dumps(all, JSON_COMPACT);
  json_decref(all);
  size_t n = strlen(text), padded = (n + 7) / 8 * 8;
  c.header_bytes = 8 + padded;
  c.header = rt_alloc(c.header_bytes, 1);
  for (int i = 0; i < 8; i++) c.header[i] = (char)(padded >> (8 * i));
  memcpy(c.header + 8, text, n);
  memset(c.header + 8 + n, ' ', padded - n);
  free(text);
  for (int i = 0; i < p->nleaves; i++) c.at[i] += c.at[i] < 0 ? 0 : (int64_t)c.header_bytes;
  c.bytes = (int64_t)c.header_bytes + at;
  return c;
}

static void contents_free(Contents *c) {
  free(c->header);
  free(c->at);
}

/* All ranks: a tensor that lies at `mine` on every rank goes whole to position `at` of the file, which only rank 0 has; NULL:
   it cannot be written. False when that is found out here, with errno set. */
static bool write_tensor(Rt *rt, NewFile *f, const dtrt_Layout *l, const void *mine, int64_t at) {
  int64_t rows = l->rank ? l->dim[0].size : 1;
  int64_t row = rt_whole_elements(l) / (rows ? rows : 1) * (int64_t)rt_dtype_size(l->dtype);
  if (rt_whole_elements(l) == 0) return true;
  int64_t step = row > BLOCK ? 1 : BLOCK / row;
  if (step > rows) step = rows;
  char *block = rt_alloc((size_t)(rt->rank ? 0 : step), (size_t)row);
  int why = 0;
  for (int64_t lo = 0; lo < rows; lo += step) {
    int64_t hi = rows - lo < step ? rows : lo + step;
    rt_gather_rows(rt, l, mine, lo, hi, block);
    if (f && !why && !rt_new_write(f, block, (size_t)((hi - lo) * row), at + lo * row)) why = errno;
  }
  free(block);
  errno = why;
  return !why;
}

static void cannot_save(const Rt *rt, int64_t step, int why) {
  fflush(stdout);
  fprintf(stderr, "%s%s: cannot save %s after step %" PRId64 ": %s%s\n", rt->terminal ? "\n" : "", rt->o.argv0, rt->o.save, step,
          strerror(why), access(rt->o.save, F_OK) == 0 ? "; the file that was there is unchanged" : "");
}

/* What rank 0 returns counts. */
static bool save(Rt *rt, int64_t step) {
  NewFile f = {.fd = -1};
  char *mark = rt_unfinished(rt);
  Contents c = contents(rt, false, step);
  bool writes = rt->rank == 0;
  bool ok = !writes || (rt_new_begin(&f, rt->o.save, mark) && rt_new_write(&f, c.header, c.header_bytes, 0));
  int why = errno;
  for (int i = 0; i < rt->p->nleaves; i++) {
    const dtrt_Leaf *l = &rt->p->leaf[i];
    if (c.at[i] < 0 || write_tensor(rt, writes && ok ? &f : NULL, &l->layout, rt->cx.arena + l->offset, c.at[i])) continue;
    ok = false, why = errno;
  }
  if (writes && ok && !rt_new_commit(&f, mark)) ok = false, why = errno;
  if (!ok) {
    rt_new_abort(&f, mark);
    cannot_save(rt, step, why);
  }
  contents_free(&c);
  return ok;
}

void rt_save_check(Rt *rt) {
  NewFile f;
  if (!rt->o.save) return;
  if (!rt_new_begin(&f, rt->o.save, rt_unfinished(rt))) rt_fail(rt, EXIT_DATA, "cannot save %s: %s", rt->o.save, strerror(errno));
  rt_new_abort(&f, rt_unfinished(rt));
}

bool rt_save(Rt *rt, int64_t step) {
  rt_world_barrier(rt); /* all updates are done */
  rt->saved = save(rt, step);
  rt_meet(rt, &rt->saved, sizeof rt->saved);
  return rt->saved;
}

/* ---- gradients and outputs: rank 0 writes, and the others hand it what they have ---- */

static void cannot_write(Rt *rt, const char *name) { rt_fail(rt, EXIT_DATA, "cannot write %s: %s", name, strerror(errno)); }

void rt_grads_begin(Rt *rt) {
  char *mark = rt_unfinished(rt);
  Contents c = contents(rt, true, rt->cx.step);
  rt->grad_at = c.at;
  if (rt->rank) return free(c.header);
  if (!rt_new_begin(&rt->grads, rt->o.dump_grads, mark) || !rt_new_write(&rt->grads, c.header, c.header_bytes, 0) ||
      ftruncate(rt->grads.fd, (off_t)c.bytes)) /* what no gradient reaches is zeros */
    cannot_write(rt, rt->o.dump_grads);
  free(c.header);
}

void rt_grads_put(Rt *rt, const dtrt_Tap *tap, const void *value) {
  rt_world_barrier(rt);
  for (int i = 0; i < rt->p->nleaves; i++) {
    const dtrt_Leaf *l = &rt->p->leaf[i];
    if (rt->grad_at[i] < 0 || strcmp(l->name, tap->name)) continue;
    if (tap->layout.dtype != l->layout.dtype) rt_fail(rt, EXIT_FAULT, "the gradient of %s is not of its type", l->name);
    if (!write_tensor(rt, rt->rank ? NULL : &rt->grads, &tap->layout, value, rt->grad_at[i])) cannot_write(rt, rt->o.dump_grads);
  }
  rt_world_barrier(rt);
}

void rt_grads_end(Rt *rt) {
  if (rt->rank == 0 && !rt_new_commit(&rt->grads, rt_unfinished(rt))) cannot_write(rt, rt->o.dump_grads);
  free(rt->grad_at);
  rt->grad_at = NULL;
}

static const char *output_file(const Rt *rt, const char *name, char buffer[PATH_MAX]) {
  for (int i = rt->o.noutput - 1; i >= 0; i--)
    if (strcmp(rt->o.output[i].name, name) == 0) return rt->o.output[i].file;
  snprintf(buffer, PATH_MAX, "%s.npy", name);
  return buffer;
}

/* The head of a .npy file of this tensor; *bytes: how long it is. */
static char *npy_head(const dtrt_Layout *l, size_t *bytes) {
  char header[1024], shape[512] = "";
  int k = 0;
  for (int i = 0; i < l->rank; i++) k += snprintf(shape + k, sizeof shape - (size_t)k, "%" PRId64 ", ", l->dim[i].size);
  if (l->rank > 1) shape[k - 2] = 0; /* (2, 3), but (2,) */
  int n =
      snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", rt_npy_dtype(l->dtype), shape);
  int length = (10 + n + 1 + 63) / 64 * 64 - 10;
  char *head = rt_alloc((size_t)length + 10, 1);
  memcpy(head, "\x93NUMPY\x01", 8);
  head[8] = (char)length, head[9] = (char)(length >> 8);
  memset(head + 10, ' ', (size_t)length);
  memcpy(head + 10, header, (size_t)n);
  head[10 + length - 1] = '\n';
  *bytes = (size_t)length + 10;
  return head;
}

static void write_output(Rt *rt, const dtrt_Tap *tap, const void *value) {
  char path[PATH_MAX];
  const char *name = output_file(rt, tap->name, path);
  size_t bytes;
  char *head = npy_head(&tap->layout, &bytes);
  NewFile f;
  if (!rt_new_begin(&f, name, rt_unfinished(rt)) || !rt_new_write(&f, head, bytes, 0) ||
      !write_tensor(rt, &f, &tap->layout, value, (int64_t)bytes) || !rt_new_commit(&f, rt_unfinished(rt)))
    cannot_write(rt, name);
  free(head);
  printf("wrote %s\n", name);
}

void rt_output(Rt *rt, const dtrt_Tap *tap, const void *value) {
  if (!rt_npy_dtype(tap->layout.dtype))
    rt_fail(rt, EXIT_DATA, "the output %s cannot be written: .npy has no %s", tap->name, rt_dtype_name(tap->layout.dtype));
  rt_world_barrier(rt);
  if (rt->rank == 0)
    write_output(rt, tap, value);
  else
    write_tensor(rt, NULL, &tap->layout, value, 0);
  rt_world_barrier(rt);
}
