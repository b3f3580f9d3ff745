/* models.c: every tests/run/NAME.dt, a small model of some kind with annotations over a mesh, trains to the same losses
   and gradient norms on one rank, on its own mesh, and on one of three along its first axis. */
#include <math.h>
#include <stdio.h>

#include "program.h"
#include "unit.h"

enum { STEPS = 8 };

static bool train(const char *dt, const char *mesh, TrainLog *log) {
  const char *program = work_path("model-program"), *file = work_path("log");
  char *output = NULL;
  if (mesh ? !COMPILE(dt, program, "--mesh", mesh) : !COMPILE(dt, program)) return false;
  int rc = RUN(work_folder(), &output, program, "--steps", "8", "--log", file, "--data-dir", work_folder());
  if (rc) unit_fail(dt, 1, "on mesh %s the program exits %d:\n%.4000s", mesh ? mesh : "as written", rc, output);
  return rc == 0 && read_log(file, log) && log->steps == STEPS;
}

static void check_model(const char *name) {
  const char *dt = tests_path("%s", name);
  TrainLog one, many;
  if (!make_data(dt) || !train(dt, mesh_of(dt, 1), &one)) return;
  if (!(one.loss[STEPS - 1] < one.loss[0] * 1.5))
    unit_fail(dt, 1, "the loss goes from %g to %g", one.loss[0], one.loss[STEPS - 1]);
  const char *meshes[] = {NULL, mesh_of(dt, 3)};
  for (int i = 0; i < 2; i++) {
    if (!train(dt, meshes[i], &many)) continue;
    for (int s = 0; s < STEPS; s++)
      if (!(fabs(many.loss[s] - one.loss[s]) <= 2e-5 * fabs(one.loss[s]) &&
            fabs(many.grad_norm[s] - one.grad_norm[s]) <= 5e-5 * one.grad_norm[s]))
        unit_fail(dt, 1, "mesh %s, step %d: loss %.9g, norm %.9g; on one rank %.9g, %.9g", meshes[i] ? meshes[i] : "as written",
                  s, many.loss[s], many.grad_norm[s], one.loss[s], one.grad_norm[s]);
  }
}

UNIT(every_model_trains_alike_on_every_mesh) { each_model(check_model); }
