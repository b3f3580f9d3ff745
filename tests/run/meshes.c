/* meshes.c: one model file on many meshes: 20 losses and gradient norms agree with those of one rank. f32 sums in
   another order, over 20 steps of training: 1e-5 relative. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "unit.h"

static bool train(const char *dt, const char *mesh, const char *set, TrainLog *log) {
  const char *program = work_path("mesh-program"), *file = work_path("log");
  char *output = NULL;
  bool ok = set ? COMPILE(dt, program, "--mesh", mesh, "--set", set) : COMPILE(dt, program, "--mesh", mesh);
  if (!ok) return false;
  make_corpus();
  int rc = RUN(work_folder(), &output, program, "--steps", "20", "--log", file, "--data-dir", work_folder());
  if (rc) unit_fail(dt, 1, "on %s the program exits %d:\n%.4000s", mesh, rc, output);
  return rc == 0 && read_log(file, log) && log->steps == 20;
}

static void check_agree(const char *dt, const char *mesh, const TrainLog *one, const TrainLog *many) {
  for (int s = 0; s < 20; s++) {
    double loss = fabs(many->loss[s] / one->loss[s] - 1), norm = fabs(many->grad_norm[s] / one->grad_norm[s] - 1);
    if (!(loss <= 1e-5 && norm <= 1e-5))
      unit_fail(dt, 1, "on %s, step %d: loss %.9g, norm %.9g; on one rank %.9g, %.9g", mesh, s, many->loss[s], many->grad_norm[s],
                one->loss[s], one->grad_norm[s]);
  }
}

/* `dt` on one rank and on each mesh; set: a --set to make it small, or NULL. */
static void check_meshes(const char *dt, const char *set, const char *one, const char *const *meshes) {
  TrainLog single, many;
  if (!train(dt, one, set, &single)) {
    unit_fail(dt, 1, "did not train on %s", one);
    return;
  }
  for (; *meshes; meshes++)
    if (train(dt, *meshes, set, &many))
      check_agree(dt, *meshes, &single, &many);
    else
      unit_fail(dt, 1, "did not train on %s", *meshes);
}

/* The example with its mesh's two axes both on the batch. */
static const char *batch_over_both(const char *dt) {
  char *text = read_text(dt), *at = strstr(text, "[B @ data, T]");
  const char *copy = work_path("both.dt");
  FILE *f = fopen(copy, "wb");
  fprintf(f, "%.*s[B @ (data, model), T]%s", (int)(at - text), text, at + strlen("[B @ data, T]"));
  fclose(f);
  char *rest = read_text(copy);
  for (char *p; (p = strstr(rest, " @ model,")) || (p = strstr(rest, " @ model]"));) memset(p, ' ', strlen(" @ model"));
  write_text(copy, rest);
  return copy;
}

UNIT(charlm_on_eight_meshes) {
  check_meshes(tests_path("../examples/charlm.dt"), "T=32", "data=1,model=1",
               (const char *const[]){"data=2,model=1", "data=1,model=2", "data=2,model=2", "data=4,model=1", "data=1,model=4",
                                     "data=3,model=1", "data=1,model=3", NULL});
}

UNIT(llama_on_meshes) {
  check_meshes(tests_path("../examples/llama.dt"), "T=32", "data=1,model=1",
               (const char *const[]){"data=2,model=2", "data=1,model=3", "data=3,model=1", NULL});
}

UNIT(charlm_with_both_axes_on_the_batch) {
  const char *dt = batch_over_both(tests_path("../examples/charlm.dt"));
  check_meshes(dt, "T=32", "data=1,model=1", (const char *const[]){"data=2,model=2", "data=3,model=2", NULL});
}

/* 6 heads over 4 ranks and 50257 words over 8; sequences split between blocks, and from end to end. */
UNIT(charlm_on_three_axes) {
  check_meshes(tests_path("../examples/charlm_3d.dt"), "T=16,D=48,L=2", "data=1,seq=1,model=1",
               (const char *const[]){"data=2,seq=2,model=2", NULL});
}

UNIT(llama_on_three_axes) {
  check_meshes(tests_path("../examples/llama_3d.dt"), "T=16,D=48,L=2", "data=1,seq=1,model=1",
               (const char *const[]){"data=2,seq=2,model=2", NULL});
}
