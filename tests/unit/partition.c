// partition.c: every golden input of the partitioner, printed and parsed back after each pass, is the same program on
// all ranks as on one device: integers mod a prime, so exactly; on several meshes, with chunks that are uneven and empty.
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "ir/ir.h"
#include "partitioner/partitioner.h"
#include "unit.h"

static const struct {
  const char *name;
  PassFn *run;
} PASSES[] = {{"gradient", ir_gradient}, {"update", ir_update},     {"propagate", part_propagate},
              {"reshard", part_reshard}, {"collect", part_collect}, {"hoist", part_hoist},
              {"save", part_save},       {"combine", part_combine}, {"localize", part_localize}};
enum { NPASSES = sizeof PASSES / sizeof *PASSES };

static Module *parse(Arena *a, const char *name, const char *text) {
  Diags *d = diags_new(a);
  Module *m = ir_parse(a, d, diags_add_file(d, name, text, strlen(text)));
  if (!m) diags_print(d, DIAG_TEXT, stdout), unit_fail(__FILE__, __LINE__, "%s does not parse", name);
  return m;
}

static int64_t differing(const Tensor *x, const Tensor *y) {
  int64_t n = 1, bad = 0;
  for (int d = 0; d < x->rank; d++) n *= x->size[d];
  for (int64_t i = 0; i < n; i++) bad += x->at[i].i != y->at[i].i;
  return bad;
}

static void compare(const Module *whole, const Module *parts, const char *file, const char *pass) {
  Arena *a = arena_new();
  const char *why = NULL;
  EvalRun *w = eval_new(whole, a, (EvalOptions){.domain = DOMAIN_MOD, .seed = 3});
  EvalRun *p = eval_new(parts, a, (EvalOptions){.domain = DOMAIN_MOD, .seed = 3, .ranks = true});
  if (!eval_step(w, &why) || !eval_step(p, &why)) unit_fail(__FILE__, __LINE__, "%s after %s: %s", file, pass, why);
  if (!eval_agree(p, &why)) unit_fail(__FILE__, __LINE__, "%s after %s, replicas: %s", file, pass, why);
  const Region *r = whole->programs.at[0].body;
  for (int i = 0; i < r->ops.n; i++) {
    const Op *op = r->ops.at[i];
    Tensor x = {0}, y = {0};
    if (op->kind == OP_TAP) x = eval_tap(w, op->tap, op->name), y = eval_tap(p, op->tap, op->name);
    if (op->kind == OP_PARAM || op->kind == OP_STATE) x = eval_leaf(w, op->name), y = eval_leaf(p, op->name);
    if (x.at && differing(&x, &y))
      unit_fail(__FILE__, __LINE__, "%s after %s: %s differs", file, pass, op->name ? op->name : "loss");
  }
  arena_free(a);
}

static void check_text(const Module *m, const char *file, const char *pass) {
  const char *text = ir_print(m, m->arena);
  Module *again = parse(m->arena, file, text);
  if (again && strcmp(text, ir_print(again, m->arena)))
    unit_fail(__FILE__, __LINE__, "%s after %s: printed and parsed back it differs:\n%s", file, pass, text);
}

// The input with another mesh.
static const char *on_mesh(Arena *a, const char *text, int64_t data, int64_t model) {
  const char *from = strstr(text, "mesh pod("), *to = from ? strchr(from, ')') : NULL;
  if (!to) return text;
  return arena_printf(a, "%.*smesh pod(data = %d, model = %d%s", (int)(from - text), text, (int)data, (int)model, to);
}

// Runs the passes that still lie before the input's stage.
static void try_input(const char *file, const char *text, int64_t data, int64_t model) {
  Arena *a = arena_new();
  Module *m = parse(a, file, on_mesh(a, text, data, model));
  PassContext cx = {.diags = diags_new(a), .keep_gathered = strstr(file, "keep_gathered") != NULL};
  Module *whole = NULL;
  for (int i = m->stage == STAGE_ANNOTATED ? (m->train.present ? 0 : 2) : 4; i < NPASSES; i++) {
    if (i >= 2 && !whole) whole = ir_clone(m, a);
    PASSES[i].run(m, &cx);
    ir_verify(m, PASSES[i].name, NULL);
    check_text(m, file, PASSES[i].name);
    bool plain = data == 2 && model == 2; /* elsewhere the end result says it all */
    if (i == NPASSES - 1 || (plain && m->stage >= STAGE_SHARDED)) compare(whole, m, file, PASSES[i].name);
  }
  arena_free(a);
}

static char *input_of(char *text) {
  char *from = strchr(text, '\n'), *to = strstr(text, "\n----\n");
  if (!from || !to) return NULL;
  to[1] = 0;
  return from + 1;
}

// No axis of these inputs is read by size but the mesh's own, so any mesh will do.
static void try_folder(const char *folder) {
  Arena *a = arena_new();
  glob_t found;
  int n = 0;
  if (glob(arena_printf(a, DTC_TESTS "/golden/%s/*.test", folder), 0, NULL, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; i++) {
      size_t len;
      const char *why;
      char *text = read_whole_file(a, found.gl_pathv[i], &len, &why), *input = text ? input_of(text) : NULL;
      if (!input || strncmp(input, "stage ", 6)) continue;
      static const int64_t meshes[][2] = {{2, 2}, {1, 1}, {3, 2}, {1, 4}};
      for (int k = 0; k < 4; k++) try_input(found.gl_pathv[i], input, meshes[k][0], meshes[k][1]);
      n++;
    }
    globfree(&found);
  }
  if (n == 0) unit_fail(__FILE__, __LINE__, "no golden inputs in %s", folder);
  arena_free(a);
}

UNIT(inputs_of_propagate_partitioned_are_the_whole) { try_folder("propagate"); }
UNIT(inputs_of_reshard_partitioned_are_the_whole) { try_folder("reshard"); }
UNIT(inputs_of_collect_partitioned_are_the_whole) { try_folder("collect"); }
UNIT(inputs_of_combine_partitioned_are_the_whole) { try_folder("combine"); }
UNIT(inputs_of_save_partitioned_are_the_whole) { try_folder("save"); }
UNIT(models_partitioned_are_the_whole) { try_folder("schedule"); }
