/* certificate.c: the certificate as a file, repeating it from that file alone, and a reproducer of a mismatch.

     dtc model.dt --certificate=model.json        {"certificate": 1, "dtc": "0.1.0", "source": "stage annotated ...", ...}
     dtc verify model.json                        certificate: plan equals the source modulo 2^61 - 1 on 2 random inputs ...

   The file holds the text of both programs at full size; whoever repeats it trusts the reader of that text, the
   interpreter and ir_reduce, not the partitioner. Files come from anywhere. */
#define XXH_INLINE_ALL
#include <jansson.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include "codegen/codegen.h"
#include "driver.h"
#include "partitioner/partitioner.h"

enum { VERSION = 1 };

static const char *hash_of(Arena *a, const char *text) {
  return arena_printf(a, "%016llx", (unsigned long long)XXH3_64bits(text, strlen(text)));
}

/* ---- writing ---- */

static json_t *module_json(Arena *a, const Module *m) {
  const char *text = ir_print(m, a);
  return json_pack("{ss ss}", "xxh3", hash_of(a, text), "text", text);
}

static json_t *inputs_json(const Certificate *c) {
  json_t *list = json_array();
  for (int i = 0; i < c->inputs; i++) {
    char hex[24];
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)c->seeds[i]);
    json_array_append_new(list, json_string(hex));
  }
  return list;
}

static bool write_file(Arena *a, const char *path, const CertifyInput *in, const Certificate *c) {
  json_t *o = json_pack("{si ss ss sb}", "certificate", VERSION, "dtc", DTC_VERSION, "says", c->text, "holds",
                        c->result == CERTIFY_EQUAL);
  json_object_set_new(o, "seed", json_integer((json_int_t)in->seed));
  json_object_set_new(o, "modulus", json_integer(((json_int_t)1 << 61) - 1));
  json_object_set_new(o, "inputs", inputs_json(c));
  json_object_set_new(o, "ranks", json_integer(c->ranks));
  json_object_set_new(o, "smaller_mesh", json_boolean(c->smaller_mesh));
  json_object_set_new(o, "planned_again", json_boolean(c->planned_again));
  json_object_set_new(o, "sizes", json_string(c->sizes));
  json_object_set_new(o, "collectives", json_integer(c->calls));
  json_object_set_new(o, "checked", json_pack("{sb sb sb}", "arena", c->arena, "buffers", c->buffers, "order", c->order));
  json_object_set_new(o, "source", module_json(a, in->source));
  json_object_set_new(o, "plan", module_json(a, in->plan));
  if (in->scheduled) json_object_set_new(o, "scheduled", module_json(a, in->scheduled));
  char *text = json_dumps(o, JSON_INDENT(1));
  bool ok = text && output_write(a, path, arena_printf(a, "%s\n", text));
  free(text);
  json_decref(o);
  return ok;
}

/* ---- a reproducer ---- */

enum { MISMATCH_AGAIN = 3, REPRODUCE_SECONDS = 20 };

static int check_again(const Module *source, const PassContext *as) {
  Arena *a = arena_new();
  PassContext cx = *as;
  cx.diags = diags_new(a);
  memset(&cx.notes, 0, sizeof cx.notes);
  Module *m = ir_clone(source, a), *plan = NULL;
  for (int i = pipeline_find("propagate"); i < pipeline_length; i++) {
    pipeline[i].run(m, &cx);
    if (cx.diags->nerrors) return 0;
    if (!strcmp(pipeline[i].name, "localize")) plan = ir_clone(m, a);
  }
  CertifyInput in = {.source = source, .plan = plan, .scheduled = m, .cx = &cx};
  return certify(a, &in).result == CERTIFY_MISMATCH ? MISMATCH_AGAIN : 0;
}

/* In a child, because a variant may end the compiler. */
static bool still_differs(void *cx, const Module *m) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    alarm(10);
    if (!freopen("/dev/null", "w", stderr)) _exit(0);
    _exit(check_again(m, cx));
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == MISMATCH_AGAIN;
}

static int mismatch(Arena *a, const CertifyInput *in, const Certificate *c, const char *path) {
  const Module *least = in->source;
  if (still_differs(in->cx, least)) least = ir_shrink(a, least, REPRODUCE_SECONDS, still_differs, in->cx);
  const char *text =
      arena_printf(a, "# dtc --from=propagate --certificate=/dev/null %s\n# %s\n%s", path, c->why, ir_print(least, a));
  bool written = output_write(a, path, text);
  fprintf(stderr, "dtc: internal error: the plan that was made does not compute what the source says: %s\n", c->why);
  if (written) fprintf(stderr, "dtc: %s shows it; nothing else was made\n", path);
  return EXIT_INTERNAL;
}

int certificate_make(Arena *a, const CertifyInput *in, const char *path) {
  Certificate c = certify(a, in);
  if (c.result == CERTIFY_MISMATCH) return mismatch(a, in, &c, "dtc-reproducer.ir");
  fprintf(stderr, "certificate: %s\n", c.text);
  return !path || write_file(a, path, in, &c) ? EXIT_DONE : EXIT_ERRORS;
}

/* ---- repeating it ---- */

typedef struct {
  Arena *a;
  Diags *diags;
  const char *path;
  json_t *json;
} Reader;

static Module *refuse(Reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static Module *refuse(Reader *r, const char *fmt, ...) {
  Str s = {0};
  va_list ap;
  va_start(ap, fmt);
  str_vprintf(r->a, &s, fmt, ap);
  va_end(ap);
  diag_error(r->diags, "E0610", (Loc){0}, "%s is no certificate that can be repeated: %s", r->path, s.at);
  return NULL;
}

/* The module under `key`: the text that was hashed, readable, at its stage, lawful. */
static Module *read_module_at(Reader *r, const char *key, Stage stage) {
  const char *hash = NULL, *text = NULL, *why = NULL;
  if (json_unpack(r->json, "{s{ss ss}}", key, "xxh3", &hash, "text", &text)) return refuse(r, "it has no %s", key);
  if (strcmp(hash, hash_of(r->a, text))) return refuse(r, "the text of its %s was changed", key);
  Diags *d = diags_new(r->a);
  Module *m = ir_parse(r->a, d, diags_add_file(d, key, text, strlen(text)));
  if (!m || d->nerrors) return refuse(r, "its %s does not read: %s", key, d->list.n ? d->list.at[0]->message : "");
  if (m->stage != stage) return refuse(r, "its %s is at another stage", key);
  if (!ir_verify(m, NULL, &why)) return refuse(r, "its %s breaks a law: %s", key, why);
  return m;
}

/* Is `y`, without buffers and in another order, the plan x? Every value of it has the same type there. */
static bool same_plan(Module *x, const Module *y) {
  for (ValueId v = 0; v < y->values.n; v++) {
    ValueId u = ir_find_value(x, y->values.at[v].name);
    const Type *s = &y->values.at[v].type, *t = u < 0 ? NULL : &x->values.at[u].type;
    bool same = t && s->dtype == t->dtype && s->rank == t->rank && sharding_equal(s, t);
    for (int d = 0; d < s->rank && same; d++) same = s->dim[d].size == t->dim[d].size;
    if (!same) return false;
  }
  return true;
}

static int repeat(Reader *r) {
  json_int_t version = 0, seed = 0;
  if (json_unpack(r->json, "{sI sI}", "certificate", &version, "seed", &seed) || version != VERSION)
    return refuse(r, "it is not of version %d", VERSION), EXIT_ERRORS;
  PassContext cx = {.diags = r->diags};
  Module *source = read_module_at(r, "source", STAGE_ANNOTATED);
  Module *plan = source ? read_module_at(r, "plan", STAGE_LOCAL) : NULL, *scheduled = NULL;
  if (plan && json_object_get(r->json, "scheduled")) {
    scheduled = read_module_at(r, "scheduled", STAGE_SCHEDULED);
    if (scheduled && !scheduled->buffers) scheduled = refuse(r, "its schedule has no buffers");
    if (scheduled && !same_plan(plan, scheduled)) scheduled = refuse(r, "its schedule is not that of its plan");
    if (!scheduled) return EXIT_ERRORS;
  }
  if (!plan) return EXIT_ERRORS;
  CertifyInput in = {.source = source, .plan = plan, .scheduled = scheduled, .cx = &cx, .seed = (uint64_t)seed};
  Certificate c = certify(r->a, &in);
  printf("certificate: %s\n", c.text);
  return c.result == CERTIFY_EQUAL ? EXIT_DONE : EXIT_ERRORS;
}

int certificate_verify(Arena *a, Diags *d, int file, const char *path) {
  Reader r = {.a = a, .diags = d, .path = path};
  json_error_t error;
  r.json = json_loadb(d->files.at[file].text, d->files.at[file].len, JSON_REJECT_DUPLICATES, &error);
  if (!r.json) return refuse(&r, "line %d: %s", error.line, error.text), EXIT_ERRORS;
  int code = repeat(&r);
  json_decref(r.json);
  return code;
}
