/* agree.c: a model as C and as emulated CUDA, from the same seed and data: losses, gradient norms and the gradients of the first
   step agree, and every rank calls the same collectives in the same order. A model of tests/peers/numeric trains as long as
   its oracle did, and both must reach the oracle's values within its bounds, too.

   Bounds. Both round to f32, u = 2^-24 = 6e-8, and differ in the order of sums and in exp, tanh, ... (2 ulp each). A sum of n
   terms in another order differs by at most 2 log2(n) u of the sum of the magnitudes where both add in trees, 2 sqrt(n) u in
   all likelihood where not. With n up to 2^12 that is about 32 u = 2e-6 for an op, and a loss or gradient is behind some
   dozens of them, whose errors are independent: sqrt(36) * 2e-6 = 1.2e-5. So 1e-5 for losses and norms, relative, as between
   meshes (meshes.c); 2e-5 for a parameter's gradient in the L2 norm, relative to it, and 1e-6 of the norm of all where
   what it sums cancels. Three steps: each goes through the optimizer, whose division by sqrt(v) makes more of it where
   v is small. */
#include "agree.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "emulated.h"
#include "program.h"
#include "unit.h"

enum { STEPS = 3, ORACLE_STEPS = 20, BATCH = 6 };

typedef struct {
  TrainLog log;
  TensorFile grads;
} Result;

/* ---- one program ---- */

static const char *label(const Case *c, const char *target) {
  static char text[300];
  snprintf(text, sizeof text, "%s on %s as %s", c->model->dt, c->mesh ? c->mesh : "its own mesh", target);
  return text;
}

static const char *const *options(const Case *c, bool cuda) {
  static const char *more[6];
  int n = 0;
  if (c->mesh) more[n++] = "--mesh", more[n++] = c->mesh;
  if (c->model->set) more[n++] = "--set", more[n++] = c->model->set;
  if (c->model->fast && cuda) more[n++] = "--fast";
  more[n] = NULL;
  return more;
}

/* Where a model's data are: beside it, or made up in the work folder. llama3_405b.dt reads its own file name. */
static const char *data_of(const Model *m) {
  if (m->oracle) return tests_path("peers/numeric/%s", m->oracle);
  if (strstr(m->dt, "examples/mlp.dt")) return tests_path("../examples");
  if (!strstr(m->dt, "examples/")) make_data(tests_path("%s", m->dt));
  make_corpus();
  (void)!symlink("corpus.txt", work_path("corpus.u32"));
  return work_folder();
}

/* `number`: which of the programs in one file, or NULL. */
static bool train(const Case *c, const char *target, const char *program, const char *number, Result *r) {
  const char *data = data_of(c->model), *log = work_path("%s-log", target), *grads = work_path("%s-grads", target),
             *final = work_path("%s-final", target), *argv[24] = {program};
  const char *always[] = {number,       "--steps", c->model->oracle ? "20" : "3", "--log", log, "--dump-grads", grads,
                          "--data-dir", data},
             *trained[] = {"--init", tests_path("peers/numeric/%s/init.safetensors", c->model->oracle ? c->model->oracle : ""),
                           "--save", final};
  int n = 1;
  for (size_t i = number ? 0 : 1; i < sizeof always / sizeof *always; i++) argv[n++] = always[i];
  for (size_t i = 0; c->model->oracle && i < sizeof trained / sizeof *trained; i++) argv[n++] = trained[i];
  char *output;
  setenv("DTRT_TRACE", work_path("%s-trace", target), 1);
  int rc = run_program(work_folder(), argv, &output);
  unsetenv("DTRT_TRACE");
  if (rc) unit_fail(c->model->dt, 1, "%s exits %d:\n%.4000s", label(c, target), rc, output);
  if (rc || !read_log(log, &r->log) || !read_tensors(grads, &r->grads)) return false;
  if (c->model->oracle) check_oracle(label(c, target), c->model->oracle, log, grads, final);
  return true;
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
      unit_fail(c->model->dt, 1, "%s, step %d: %s %.9g, as C %.9g", label(c, "CUDA"), s + 1, what, y[s], x[s]);
}

static void same_gradients(const Case *c, const TensorFile *x, const TensorFile *y) {
  double all = 0;
  for (int i = 0; i < x->n; i++) all += pow(norm(&x->tensor[i], NULL), 2);
  if (x->n != y->n) unit_fail(c->model->dt, 1, "%s: %d gradients, as C %d", label(c, "CUDA"), y->n, x->n);
  for (int i = 0; i < x->n; i++) {
    const NamedTensor *g = &x->tensor[i], *h = find_tensor(y, g->name);
    double bound = 2e-5 * norm(g, NULL) + 1e-6 * sqrt(all);
    if (!h || h->elements != g->elements)
      unit_fail(c->model->dt, 1, "%s: no gradient of %s", label(c, "CUDA"), g->name);
    else if (!(norm(g, h) <= bound))
      unit_fail(c->model->dt, 1, "%s: the gradient of %s is off by %.3g, bound %.3g", label(c, "CUDA"), g->name, norm(g, h),
                bound);
  }
}

/* A captured step is not called again: CUDA's trace ends before that of C, but holds the first step. */
static void same_order(const Case *c, size_t steps) {
  for (int rank = 0;; rank++) {
    const char *path[] = {work_path("c-trace.%d", rank), work_path("cuda-trace.%d", rank)};
    char *x = read_text(path[0]), *y = read_text(path[1]);
    if (!x && !y) return;
    size_t nx = x ? strlen(x) : 0, ny = y ? strlen(y) : 0;
    if (ny * steps < nx || ny > nx || strncmp(x, y, ny))
      unit_fail(c->model->dt, 1, "%s: rank %d calls other collectives than as C", label(c, "CUDA"), rank);
    remove(path[0]), remove(path[1]), free(x), free(y);
  }
}

static void agree(const Case *c, const char *cuda, const char *number) {
  Result as_c = {0}, as_cuda = {0};
  const char *program = work_path("c-program");
  bool ran = run_dtc("--target=c", tests_path("%s", c->model->dt), program, options(c, false)) &&
             train(c, "c", program, NULL, &as_c) && train(c, "cuda", cuda, number, &as_cuda);
  if (!ran) {
    unit_fail(c->model->dt, 1, "%s did not train", label(c, "C or CUDA"));
    return;
  }
  same_series(c, "loss", as_c.log.loss, as_cuda.log.loss);
  same_series(c, "gradient norm", as_c.log.grad_norm, as_cuda.log.grad_norm);
  same_gradients(c, &as_c.grads, &as_cuda.grads);
  same_order(c, c->model->oracle ? ORACLE_STEPS : STEPS);
}

/* ---- several ---- */

static void agree_batch(const char *variant, int n, const Case *c) {
  const char *cu[BATCH], *program = work_path("cuda-program");
  bool fast = false;
  for (int i = 0; i < n; i++) {
    cu[i] = work_path("%d.cu", i);
    fast |= c[i].model->fast;
    if (!run_dtc("--emit=cuda", tests_path("%s", c[i].model->dt), cu[i], options(&c[i], true))) return;
  }
  if (!emulate_all(variant, fast, n, cu, program)) return;
  for (int i = 0; i < n; i++) agree(&c[i], program, (const char[]){(char)('0' + i), 0});
}

void agree_all(const char *variant, int n, const Case *c) {
  for (int from = 0; from < n; from += BATCH) agree_batch(variant, n - from < BATCH ? n - from : BATCH, c + from);
}

/* ---- meshes ---- */

/* The names of the axes in `mesh pod(data = 2, model = 2)`, and how many. */
static int axes_of(const char *dt, char name[][32]) {
  const char *at = strstr(read_text(dt), "\nmesh ");
  int n = 0;
  for (at = at ? strchr(at, '(') + 1 : ")"; *at != ')' && n < MAX_AXES; at += strcspn(at, ",)")) {
    at += strspn(at, " ,");
    snprintf(name[n++], 32, "%.*s", (int)strcspn(at, " ="), at);
  }
  return n;
}

/* Every way to make 1, 2, 4 and 8 ranks of the axes: `shift` counts through the powers of two of all axes, two bits each. */
int all_meshes(const Model *m, const char *mesh[MAX_MESHES]) {
  char name[MAX_AXES][32];
  int naxes = axes_of(tests_path("%s", m->dt), name), n = 0;
  for (int ranks = 0; ranks <= 3; ranks++)
    for (int shift = 0; shift < 1 << 2 * naxes; shift++) {
      char *text = calloc(1, 200);
      int sum = 0;
      for (int a = 0; a < naxes; a++) {
        int power = shift >> 2 * (naxes - 1 - a) & 3;
        sum += power;
        sprintf(text + strlen(text), "%s%s=%d", a ? "," : "", name[a], 1 << power);
      }
      if (sum == ranks && n < MAX_MESHES) mesh[n++] = text;
    }
  return n;
}
