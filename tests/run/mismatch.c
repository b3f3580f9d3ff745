/* mismatch.c: a plan that is not the program. A compiler with a fault (tests/broken) says so once, exits 70, makes nothing
   else and leaves a small reproducer; a certificate whose plan was altered, hash and all, is not repeated. */
#define XXH_INLINE_ALL
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "program.h"
#include "unit.h"

static const char MODEL[] = "mesh m(x = 2, y = 2)\n"
                            "dim B = 8, D = 6, F = 10\n"
                            "input a: f32[B @ x, D] = table(\"a.npy\")\n"
                            "input t: f32[B @ x, F] = table(\"t.npy\")\n"
                            "param w: f32[D, F @ y] = normal(0.1)\n"
                            "param v: f32[F @ y, D] = normal(0.1)\n"
                            "h[b, f] = sum[d](a[b, d] * w[d, f])\n"
                            "r[b, f] = max(h[b, f], 0.0)\n"
                            "o[b, d] = sum[f](r[b, f] * v[f, d])\n"
                            "e[b, f] = t[b, f] - r[b, f]\n"
                            "loss = mean[b, f](e[b, f] * e[b, f] * e[b, f]) + mean[b, d](o[b, d])\n"
                            "train loss {\n  optimizer = sgd(lr = 0.01)\n}\n";

static const char *model(void) {
  const char *path = work_path("mismatch.dt");
  CHECK(write_text(path, MODEL));
  return path;
}

static int lines(const char *text) {
  int n = 0;
  for (; *text; text++) n += *text == '\n';
  return n;
}

static bool exists(const char *path) { return access(path, F_OK) == 0; }

UNIT(wrong_plan_exits_70_and_leaves_a_small_reproducer) {
  char *output, emit[400];
  const char *dt = model(), *c = work_path("mismatch.c"), *small = work_path("dtc-reproducer.ir");
  snprintf(emit, sizeof emit, "--emit=c=%s", c);
  CHECK_EQ(RUN(work_folder(), &output, DTC_BROKEN, dt, emit), 70);
  CHECK(strstr(output, "dtc: internal error: the plan that was made does not compute what the source says: "));
  CHECK(strstr(output, "dtc: dtc-reproducer.ir shows it; nothing else was made\n"));
  CHECK_EQ(lines(output), 2);
  CHECK(!exists(c));
  char *text = read_text(small);
  CHECK(text && strstr(text, "# dtc --from=propagate --certificate=/dev/null dtc-reproducer.ir\n") == text);
  CHECK(text && lines(text) < 20);
  /* the reproducer shows the fault, and is a program that a right compiler compiles */
  CHECK_EQ(RUN(work_folder(), &output, DTC_BROKEN, "--from=propagate", "--certificate=/dev/null", small), 70);
  CHECK_EQ(RUN(work_folder(), &output, DTC_BINARY, "--from=propagate", "--certificate=/dev/null", small), 0);
  CHECK(strstr(output, "certificate: plan equals the source modulo 2^61 - 1 on "));
  free(text);
}

/* The module under `key` with its first `was` made `is`, and the hash of that. */
static bool alter(json_t *certificate, const char *key, const char *was, const char *is) {
  json_t *module = json_object_get(certificate, key);
  const char *text = json_string_value(json_object_get(module, "text")), *at = text ? strstr(text, was) : NULL;
  char *altered = NULL, hash[24];
  if (!at || asprintf(&altered, "%.*s%s%s", (int)(at - text), text, is, at + strlen(was)) < 0) return false;
  snprintf(hash, sizeof hash, "%016llx", (unsigned long long)XXH3_64bits(altered, strlen(altered)));
  json_object_set_new(module, "text", json_string(altered));
  json_object_set_new(module, "xxh3", json_string(hash));
  free(altered);
  return true;
}

static void verify_altered(const char *key, const char *was, const char *is, int code, const char *says) {
  char *output;
  const char *file = work_path("certificate.json");
  json_t *o = json_load_file(file, 0, NULL);
  if (was && !alter(o, key, was, is)) return unit_fail(key, 1, "`%s` is not in the certificate", was);
  const char *altered = work_path("altered.json");
  CHECK_EQ(json_dump_file(o, altered, JSON_INDENT(1)), 0);
  json_decref(o);
  int rc = RUN(work_folder(), &output, DTC_BINARY, "verify", altered);
  if (rc != code || !strstr(output, says)) unit_fail(key, 1, "%s -> %s: exits %d, not %d:\n%.1000s", was, is, rc, code, output);
}

UNIT(altered_certificate_is_not_repeated) {
  char *output, to[400];
  snprintf(to, sizeof to, "--certificate=%s", work_path("certificate.json"));
  CHECK_EQ(RUN(work_folder(), &output, DTC_BINARY, model(), to), 0);
  const char *wrong = "certificate: the plan is not the program: ";
  verify_altered("plan", NULL, NULL, 0, "certificate: plan equals the source");
  verify_altered("plan", " - ", " + ", 1, wrong);
  verify_altered("source", " - ", " + ", 1, wrong);
  verify_altered("plan", "stage local", "stage annotated", 1, "its plan");
}
