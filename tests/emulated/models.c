/* models.c: which models and meshes agree.c compares: a selection that covers every example, oracle, number of ranks, split
   weights and three axes in CI, and all of them by

     build/tests/dtc_cuda_tests --gtest_also_run_disabled_tests

   Examples are small by --set: these sizes keep what is uneven (6 heads, 3 heads of a group, a prime number of words), and Llama
   3 405B its 126 layers as 2. */
#include <stdlib.h>

#include "agree.h"
#include "emulated.h"
#include "program.h"
#include "unit.h"

/* MODEL(test, file, sizes, oracle) */
#define MODELS(MODEL)                                                                                                            \
  MODEL(mlp, "../examples/mlp.dt", NULL, NULL)                                                                                   \
  MODEL(charlm, "../examples/charlm.dt", "B=4,T=16,D=32,L=2", NULL)                                                              \
  MODEL(llama, "../examples/llama.dt", "B=4,T=16,D=64,F=44,L=2", NULL)                                                           \
  MODEL(charlm_3d, "../examples/charlm_3d.dt", "B=4,T=16,V=1031,D=48,L=2", NULL)                                                 \
  MODEL(llama_3d, "../examples/llama_3d.dt", "B=4,T=16,V=1031,D=48,F=66,L=2", NULL)                                              \
  MODEL(llama3_405b, "../examples/llama3_405b.dt", "B=4,T=16,D=32,G=2,R=2,F=52,V=256,L=2", NULL)                                 \
  MODEL(oracle_mlp, "peers/numeric/mlp/model.dt", NULL, "mlp")                                                                   \
  MODEL(oracle_mlp_batch, "peers/numeric/mlp/data3.dt", NULL, "mlp")                                                             \
  MODEL(oracle_mlp_weights, "peers/numeric/mlp/weights4.dt", NULL, "mlp")                                                        \
  MODEL(oracle_mlp_cube, "peers/numeric/mlp/cube.dt", NULL, "mlp")                                                               \
  MODEL(oracle_conv, "peers/numeric/conv/model.dt", NULL, "conv")                                                                \
  MODEL(oracle_conv_batch, "peers/numeric/conv/data3.dt", NULL, "conv")                                                          \
  MODEL(oracle_conv_weights, "peers/numeric/conv/weights4.dt", NULL, "conv")                                                     \
  MODEL(oracle_conv_cube, "peers/numeric/conv/cube.dt", NULL, "conv")                                                            \
  MODEL(oracle_charlm, "peers/numeric/charlm/model.dt", NULL, "charlm")                                                          \
  MODEL(oracle_charlm_batch, "peers/numeric/charlm/data3.dt", NULL, "charlm")                                                    \
  MODEL(oracle_charlm_weights, "peers/numeric/charlm/weights4.dt", NULL, "charlm")                                               \
  MODEL(oracle_charlm_cube, "peers/numeric/charlm/cube.dt", NULL, "charlm")                                                      \
  MODEL(oracle_llama, "peers/numeric/llama/model.dt", NULL, "llama")                                                             \
  MODEL(oracle_llama_batch, "peers/numeric/llama/data3.dt", NULL, "llama")                                                       \
  MODEL(oracle_llama_weights, "peers/numeric/llama/weights4.dt", NULL, "llama")                                                  \
  MODEL(oracle_llama_cube, "peers/numeric/llama/cube.dt", NULL, "llama")

#define DECLARE(test, dt, set, oracle) static const Model test = {dt, set, oracle, false};
MODELS(DECLARE)

/* ---- what CI runs --------------------------------------------------------------------------------------------------- */

#define AGREE(variant, ...) agree_all(variant, sizeof((Case[]){__VA_ARGS__}) / sizeof(Case), (const Case[]){__VA_ARGS__})

UNIT(examples_compute_as_cuda_what_they_do_as_c) {
  AGREE(emulated_variant(), {&mlp, NULL}, {&charlm, "data=2,model=2"}, {&llama, "data=1,model=2"},
        {&charlm_3d, "data=2,seq=2,model=2"}, {&llama_3d, "data=1,seq=2,model=2"}, {&llama3_405b, "data=2,seq=2,model=2"});
}

UNIT(oracles_are_reached_as_cuda) {
  AGREE(emulated_variant(), {&oracle_mlp, NULL}, {&oracle_conv_weights, NULL}, {&oracle_charlm_cube, "data=1,seq=1,model=2"},
        {&oracle_llama_cube, "data=1,seq=2,model=2"});
}

/* With --fast, and where the library has no epilogues: atomics add in any order, which the same bounds are for, and kernels
   behind the product do what it does not. The model looks up by value and has a bias. */
UNIT(sums_in_any_order_agree) {
  static const Model recommender = {"run/recommender.dt", NULL, NULL, true};
  setenv("DTCU_NO_EPILOGUE", "1", 1);
  AGREE(emulated_variant(), {&recommender, NULL});
  unsetenv("DTCU_NO_EPILOGUE");
}

/* ---- under the detectors: races, unwritten memory, bounds; overruns -------------------------------------------------- */

/* As small as what is detected allows: two of everything, and dims that do not divide. */
static const Model tiny_charlm = {"../examples/charlm.dt", "B=3,T=5,V=256,D=12,H=3,L=2", NULL, false},
                   tiny_charlm_3d = {"../examples/charlm_3d.dt", "B=3,T=5,V=259,D=12,H=3,L=2", NULL, false},
                   tiny_llama_3d = {"../examples/llama_3d.dt", "B=3,T=5,V=259,D=24,F=10,L=2", NULL, false},
                   tiny_conv = {"run/convolution.dt", "N=3", NULL, false},
                   tiny_tiles = {"run/convolution_space.dt", "N=3", NULL, false},
                   tiny_experts = {"run/experts.dt", "N=6", NULL, false};

UNIT(nothing_is_found_in_small_models) {
  AGREE("checked", {&tiny_llama_3d, "data=1,seq=2,model=1"});
  AGREE("address", {&tiny_experts, "data=2,expert=1"});
}

UNIT(DISABLED_nothing_is_found_in_models) {
  const char *const variant[] = {"checked", "address"};
  for (int v = 0; v < 2; v++)
    AGREE(variant[v], {&tiny_charlm, "data=1,model=1"}, {&tiny_charlm, NULL}, {&tiny_charlm_3d, NULL}, {&tiny_llama_3d, NULL},
          {&tiny_conv, NULL}, {&tiny_tiles, NULL}, {&tiny_experts, "data=1,expert=1"}, {&tiny_experts, NULL});
}

/* ---- all: with --gtest_also_run_disabled_tests ------------------------------------------------------------------------ */

static void on_every_mesh(const Model *m) {
  const char *mesh[MAX_MESHES];
  Case c[MAX_MESHES];
  int n = all_meshes(m, mesh);
  for (int i = 0; i < n; i++) c[i] = (Case){m, mesh[i]};
  agree_all(emulated_variant(), n, c);
}

#define ON_EVERY_MESH(test, dt, set, oracle)                                                                                     \
  UNIT(DISABLED_##test##_on_every_mesh) { on_every_mesh(&test); }
MODELS(ON_EVERY_MESH)

/* The batch over three; everything else is on every mesh above. */
UNIT(DISABLED_uneven_batches) {
  AGREE(emulated_variant(), {&oracle_mlp_batch, NULL}, {&oracle_conv_batch, NULL}, {&oracle_charlm_batch, NULL},
        {&oracle_llama_batch, NULL}, {&charlm, "data=3,model=1"}, {&llama, "data=3,model=2"}, {&charlm, "data=1,model=3"},
        {&charlm_3d, "data=1,seq=3,model=2"}, {&mlp, "data=3"});
}

/* Models that are no examples: as written, on one rank and on eight. */
static void on_few_meshes(const char *dt) {
  const Model m = {dt, NULL, NULL, false};
  const char *path = tests_path("%s", dt);
  AGREE(emulated_variant(), {&m, mesh_of(path, 1)}, {&m, NULL}, {&m, mesh_of(path, 3)}, {&m, mesh_of(path, 8)});
}

UNIT(DISABLED_other_models) { each_model(on_few_meshes); }
