/* oracle.c: what a trained program left (20 steps, tests/peers/numeric/MODEL) against values that another system computed:
   losses and gradient norms, the gradients of the first step, the final parameters; bounds in that folder's README. */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "program.h"
#include "unit.h"

static double number(json_t *j, const char *key) { return json_number_value(json_object_get(j, key)); }

static void check_series(const char *what, const char *dt, json_t *expected, const double *got, int steps, double bound) {
  for (int s = 0; s < steps; s++) {
    double want = json_number_value(json_array_get(expected, (size_t)s)), off = fabs(got[s] - want) / fabs(want);
    if (!(off <= bound))
      unit_fail(dt, 1, "%s of step %d is %.9g, expected %.9g: off by %.2g, bound %.2g", what, s, got[s], want, off, bound);
  }
}

static void check_gradient(const char *dt, const char *name, const NamedTensor *got, const NamedTensor *want, double bound) {
  if (!got || got->elements != want->elements) {
    unit_fail(dt, 1, "no gradient of %s, or of another shape", name);
    return;
  }
  double sum = 0;
  for (int64_t i = 0; i < want->elements; i++) sum += (got->at[i] - want->at[i]) * (got->at[i] - want->at[i]);
  if (!(sqrt(sum) <= bound)) unit_fail(dt, 1, "gradient of %s is off by %.3g, bound %.3g", name, sqrt(sum), bound);
}

static void check_final(const char *dt, const char *name, const NamedTensor *got, json_t *want) {
  if (!got) {
    unit_fail(dt, 1, "%s was not saved", name);
    return;
  }
  double sum = 0, square = 0;
  for (int64_t i = 0; i < got->elements; i++) sum += got->at[i], square += got->at[i] * got->at[i];
  double off2 = fabs(sqrt(square) - number(want, "final_l2")), off1 = fabs(sum - number(want, "final_sum"));
  if (!(off2 <= number(want, "final_l2_bound")))
    unit_fail(dt, 1, "final norm of %s is off by %.3g, bound %.3g", name, off2, number(want, "final_l2_bound"));
  if (!(off1 <= number(want, "final_sum_bound")))
    unit_fail(dt, 1, "final sum of %s is off by %.3g, bound %.3g", name, off1, number(want, "final_sum_bound"));
}

void check_oracle(const char *dt, const char *model, const char *log, const char *grads, const char *final) {
  json_t *expected = json_load_file(tests_path("peers/numeric/%s/expected.json", model), 0, NULL);
  json_t *bounds = json_object_get(expected, "bounds"), *param;
  TrainLog l;
  TensorFile g, g0, f;
  CHECK(read_log(log, &l) && l.steps == 20);
  CHECK(read_tensors(grads, &g) && read_tensors(tests_path("peers/numeric/%s/grads0.safetensors", model), &g0) &&
        read_tensors(final, &f));
  if (l.steps != 20 || !f.n) return;
  check_series("loss", dt, json_object_get(expected, "loss"), l.loss, 20, number(bounds, "loss_rel"));
  check_series("gradient norm", dt, json_object_get(expected, "grad_norm"), l.grad_norm, 20, number(bounds, "grad_norm_rel"));
  check_series("lr", dt, json_object_get(expected, "lr"), l.lr, 20, 1e-8);
  const char *name;
  json_object_foreach(json_object_get(expected, "params"), name, param) {
    check_gradient(dt, name, find_tensor(&g, name), find_tensor(&g0, name), number(param, "grad0_bound"));
    check_final(dt, name, find_tensor(&f, name), param);
  }
}
