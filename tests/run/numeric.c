/* numeric.c: compiled models against values that another system computed (oracle.c): as written on one rank, with the batch
   over three ranks, and with weights over four. */
#include "program.h"
#include "unit.h"

static void check_model(const char *model, const char *variant) {
  const char *folder = tests_path("peers/numeric/%s", model), *dt = tests_path("peers/numeric/%s/%s.dt", model, variant);
  const char *train = work_path("%s-%s", model, variant), *log = work_path("log"), *grads = work_path("grads"),
             *final = work_path("final");
  if (!COMPILE(dt, train)) return;
  char *output;
  int rc = RUN(folder, &output, train, "--steps", "20", "--init", "init.safetensors", "--log", log, "--dump-grads", grads,
               "--save", final);
  if (rc) {
    unit_fail(dt, 1, "the program exits %d:\n%.4000s", rc, output);
    return;
  }
  check_oracle(dt, model, log, grads, final);
}

UNIT(mlp_on_one_rank) { check_model("mlp", "model"); }
UNIT(mlp_with_its_batch_over_three) { check_model("mlp", "data3"); }
UNIT(mlp_with_weights_over_four) { check_model("mlp", "weights4"); }
UNIT(conv_on_one_rank) { check_model("conv", "model"); }
UNIT(conv_with_its_batch_over_three) { check_model("conv", "data3"); }
UNIT(conv_with_weights_over_four) { check_model("conv", "weights4"); }
UNIT(charlm_on_one_rank) { check_model("charlm", "model"); }
UNIT(charlm_with_its_batch_over_three) { check_model("charlm", "data3"); }
UNIT(charlm_with_weights_over_four) { check_model("charlm", "weights4"); }
UNIT(llama_on_one_rank) { check_model("llama", "model"); }
UNIT(llama_with_its_batch_over_three) { check_model("llama", "data3"); }
UNIT(llama_with_weights_over_four) { check_model("llama", "weights4"); }
