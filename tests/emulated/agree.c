/* agree.c: a model as C and as emulated CUDA, from the same seed and data: losses, gradient norms and the gradients of the first
   step agree, and every rank calls the same collectives in the same order.

   Bounds. Both round to f32, u = 2^-24 = 6e-8, and differ in the order of sums and in exp, tanh, ... (2 ulp each). A sum of n
   terms in another order differs by at most 2 log2(n) u of the sum of the magnitudes where both add in trees, 2 sqrt(n) u in
   all likelihood where not. With n up to 2^12 that is about 32 u = 2e-6 for an op, and a loss or gradient is behind some
   dozens of them, whose errors are independent: sqrt(36) * 2e-6 = 1.2e-5. So 1e-5 for losses and norms, relative, as between
   meshes (meshes.c); 2e-5 for a parameter's gradient in the L2 norm, relative to it, and 1e-6 of the norm of all where
   what it sums cancels. Three steps: each goes through the optimizer, whose division by sqrt(v) makes more of it where
   v is small. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulated.h"
#include "program.h"
#include "unit.h"

enum { STEPS = 3 };

typedef struct {
  const char *dt, *mesh, *set; /* in tests/; NULL: as written */
  const char *cuda;            /* an option of dtc for CUDA, or NULL */
} Case;

typedef struct {
  TrainLog log;
  TensorFile grads;
} Result;

/* ---- one program ---- */

/* Where a model's data are: beside it, or made up in the work folder. */
static const char *data_of(const char *dt) {
  if (strstr(dt, "examples/mlp.dt")) return tests_path("../examples");
  if (strstr(dt, "peers/numeric"))
    return tests_path("peers/numeric/%.*s", (int)strcspn(strstr(dt, "numeric/") + 8, "/"), strstr(dt, "numeric/") + 8);
  if (!strstr(dt, "examples/")) make_data(dt);
  make_corpus();
  return work_folder();
}

static bool train(const Case *c, const char *dt, const char *target, Result *r) {
  const char *program = work_path("%s-program", target), *log = work_path("%s-log", target),
             *grads = work_path("%s-grads", target);
  const char *more[8] = {NULL};
  int n = 0;
  if (c->mesh) more[n++] = "--mesh", more[n++] = c->mesh;
  if (c->set) more[n++] = "--set", more[n++] = c->set;
  if (c->cuda && strcmp(target, "c")) more[n++] = c->cuda;
  char *output;
  bool made = strcmp(target, "c") ? compile(dt, program, more) : compile_c(dt, program, more);
  if (!made) return false;
  setenv("DTRT_TRACE", work_path("%s-trace", target), 1);
  int rc = RUN(work_folder(), &output, program, "--steps", "3", "--log", log, "--dump-grads", grads, "--data-dir", data_of(dt));
  unsetenv("DTRT_TRACE");
  if (rc)
    unit_fail(dt, 1, "as %s on mesh %s the program exits %d:\n%.4000s", target, c->mesh ? c->mesh : "as written", rc, output);
  return rc == 0 && read_log(log, &r->log) && read_tensors(grads, &r->grads);
}

/* ---- comparing ---- */

static double norm(const NamedTensor *x, const NamedTensor *minus) {
  double sum = 0;
  for (int64_t i = 0; i < x->elements; i++) sum += pow(x->at[i] - (minus ? minus->at[i] : 0), 2);
  return sqrt(sum);
}

static void same_series(const Case *c, const char *what, const double *x, const double *y) {
  for (int s = 0; s < STEPS; s++)
    if (!(fabs(x[s] - y[s]) <= 1e-5 * fabs(x[s])))
      unit_fail(c->dt, 1, "on mesh %s, step %d: %s %.9g as C, %.9g as CUDA", c->mesh ? c->mesh : "as written", s + 1, what, x[s],
                y[s]);
}

static void same_gradients(const Case *c, const TensorFile *x, const TensorFile *y) {
  double all = 0;
  for (int i = 0; i < x->n; i++) all += pow(norm(&x->tensor[i], NULL), 2);
  if (x->n != y->n) unit_fail(c->dt, 1, "%d gradients as C, %d as CUDA", x->n, y->n);
  for (int i = 0; i < x->n; i++) {
    const NamedTensor *g = &x->tensor[i], *h = find_tensor(y, g->name);
    double bound = 2e-5 * norm(g, NULL) + 1e-6 * sqrt(all);
    if (!h || h->elements != g->elements)
      unit_fail(c->dt, 1, "no gradient of %s as CUDA", g->name);
    else if (!(norm(g, h) <= bound))
      unit_fail(c->dt, 1, "on mesh %s the gradient of %s is off by %.3g, bound %.3g", c->mesh ? c->mesh : "as written", g->name,
                norm(g, h), bound);
  }
}

/* A captured step is not called again: CUDA's trace ends before that of C, but holds the first step. */
static void same_order(const Case *c) {
  for (int rank = 0;; rank++) {
    const char *path[] = {work_path("c-trace.%d", rank), work_path("cuda-trace.%d", rank)};
    char *x = read_text(path[0]), *y = read_text(path[1]);
    if (!x && !y) return;
    size_t nx = x ? strlen(x) : 0, ny = y ? strlen(y) : 0;
    if (ny * STEPS < nx || ny > nx || strncmp(x, y, ny))
      unit_fail(c->dt, 1, "on mesh %s rank %d calls other collectives as CUDA than as C", c->mesh ? c->mesh : "as written", rank);
    remove(path[0]), remove(path[1]);
  }
}

static void agree(Case c) {
  Result as_c = {0}, as_cuda = {0};
  const char *dt = tests_path("%s", c.dt);
  if (!train(&c, dt, "c", &as_c) || !train(&c, dt, "cuda", &as_cuda)) {
    unit_fail(c.dt, 1, "did not train on %s", c.mesh ? c.mesh : "its mesh");
    return;
  }
  same_series(&c, "loss", as_c.log.loss, as_cuda.log.loss);
  same_series(&c, "gradient norm", as_c.log.grad_norm, as_cuda.log.grad_norm);
  same_gradients(&c, &as_c.grads, &as_cuda.grads);
  same_order(&c);
}

static void agree_all(const Case *c) {
  for (; c->dt; c++) agree(*c);
}

/* ---- what CI runs --------------------------------------------------------------------------------------------------- */

UNIT(examples_compute_as_cuda_what_they_do_as_c) {
  agree_all((const Case[]){{"../examples/mlp.dt", NULL, NULL},
                           {"../examples/charlm.dt", NULL, "T=16,D=32,L=2"},
                           {"../examples/charlm.dt", "data=1,model=1", "T=8,D=32,L=2"},
                           {"../examples/llama.dt", NULL, "T=16,D=64,L=2"},
                           {"../examples/charlm_3d.dt", NULL, "T=16,D=48,L=2"},
                           {"../examples/llama_3d.dt", NULL, "T=16,D=48,L=2"},
                           {0}});
}

/* With --fast, and where the library has no epilogues: atomics add in any order, which the same bounds are for, and kernels
   behind the product do what it does not. The model looks up by value and has a bias. */
UNIT(sums_in_any_order_agree) {
  setenv("DTCU_NO_EPILOGUE", "1", 1);
  agree((Case){"run/recommender.dt", .cuda = "--fast"});
  unsetenv("DTCU_NO_EPILOGUE");
}

static void every_model(bool many) {
  struct dirent **entries;
  int n = scandir(tests_path("run"), &entries, NULL, alphasort), models = 0;
  for (int i = 0; i < n; i++) {
    const char *dot = strrchr(entries[i]->d_name, '.');
    if (!dot || strcmp(dot, ".dt")) continue;
    char name[300];
    snprintf(name, sizeof name, "run/%s", entries[i]->d_name);
    agree((Case){name, NULL, NULL});
    for (int first = 1; many && first <= 8; first++)
      if (first == 1 || first == 3 || first == 8) agree((Case){name, mesh_of(tests_path("%s", name), first), NULL});
    models++;
  }
  CHECK(models > 0);
}

UNIT(models_compute_as_cuda_what_they_do_as_c) { every_model(false); }

/* ---- all: with --gtest_also_run_disabled_tests ------------------------------------------------------------------------ */

UNIT(DISABLED_examples_on_every_mesh) {
  static const struct {
    const char *dt, *set, *mesh[8];
  } table[] = {
      {"../examples/mlp.dt", NULL, {"data=1", "data=2", "data=3", "data=4", "data=8"}},
      {"../examples/charlm.dt",
       "T=16",
       {"data=1,model=1", "data=1,model=2", "data=2,model=2", "data=4,model=2", "data=1,model=3"}},
      {"../examples/llama.dt",
       "T=16",
       {"data=1,model=1", "data=2,model=1", "data=2,model=2", "data=2,model=4", "data=3,model=1"}},
      {"../examples/charlm_3d.dt", "T=16,D=48,L=2", {"data=1,seq=1,model=1", "data=2,seq=2,model=2", "data=1,seq=4,model=2"}},
      {"../examples/llama_3d.dt", "T=16,D=48,L=2", {"data=1,seq=1,model=1", "data=2,seq=2,model=2", "data=1,seq=2,model=4"}}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    for (const char *const *mesh = table[i].mesh; *mesh; mesh++) agree((Case){table[i].dt, *mesh, table[i].set});
}

UNIT(DISABLED_models_on_every_mesh) { every_model(true); }
