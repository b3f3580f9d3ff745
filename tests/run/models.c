/* models.c: every tests/run/NAME.dt, a small model of some kind with annotations over a mesh, trains to the same losses
   and gradient norms on one rank, on its own mesh, and on one of three along its first axis. The data its inputs name
   are made up here from the types in its IR: 3 B + 1 rows, integers below their limit. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "unit.h"

enum { STEPS = 8 };

static uint32_t draw(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 8;
}

/* A .npy file with the given rows; `type` as in IR text. */
static void write_npy(const char *path, const char *dtype, const int64_t *dim, int rank, int64_t limit, uint32_t seed) {
  FILE *f = fopen(path, "wb");
  char shape[256], header[512];
  int n = 0;
  int64_t elements = 1;
  for (int d = 0; d < rank; d++)
    n += snprintf(shape + n, sizeof shape - (size_t)n, "%lld,", (long long)dim[d]), elements *= dim[d];
  bool real = !strcmp(dtype, "f32");
  int len =
      snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", real ? "<f4" : "<i4", shape);
  while ((10 + len + 1) % 64) header[len++] = ' ';
  header[len++] = '\n';
  fwrite("\x93NUMPY\x01\x00", 1, 8, f);
  fputc(len & 255, f), fputc(len >> 8, f), fwrite(header, 1, (size_t)len, f);
  for (int64_t i = 0; i < elements; i++) {
    float x = (float)draw(&seed) / (float)(1 << 23) - 1;
    int32_t k = (int32_t)(draw(&seed) % (limit ? limit : 7));
    fwrite(real ? (void *)&x : (void *)&k, 4, 1, f);
  }
  fclose(f);
}

/* `%x: f32[B=8@data, 16] = input table("x.npy") limit V=256` -> x.npy in the work folder. */
static void make_data(const char *line) {
  char dtype[8] = "", file[128] = "";
  int64_t dim[8], limit = 0;
  int rank = 0;
  const char *colon = strstr(line, ": "), *open = strchr(line, '['), *close = strstr(line, "] = "),
             *name = strstr(line, "table(\"");
  if (!colon || !open || !close || !name || sscanf(colon, ": %7[a-z0-9]", dtype) != 1 ||
      sscanf(name, "table(\"%127[^\"]", file) != 1)
    return;
  for (const char *p = open + 1; p < close && rank < 8;) {
    const char *equals = p, *end = p + strcspn(p, ",]");
    while (equals < end && *equals != '=' && *equals != '@') equals++;
    dim[rank++] = strtoll(equals < end && *equals == '=' ? equals + 1 : p, NULL, 10);
    int depth = 0; /* a comma inside @(a, b) ends no dim */
    for (end = p; end < close && (depth || *end != ','); end++) depth += *end == '(' ? 1 : *end == ')' ? -1 : 0;
    p = end + 1;
  }
  const char *lim = strstr(close, " limit ");
  if (lim) {
    lim += 7;
    const char *equals = strchr(lim, '='), *space = strpbrk(lim, " \n");
    limit = strtoll(equals && (!space || equals < space) ? equals + 1 : lim, NULL, 10);
  }
  dim[0] = 3 * dim[0] + 1;
  write_npy(work_path("%s", file), dtype, dim, rank, limit, (uint32_t)file[0] * 977u + (uint32_t)rank);
}

static bool make_all_data(const char *dt) {
  char *ir;
  if (RUN(tests_path("run"), &ir, DTC_BINARY, dt, "--emit=ir=-")) return unit_fail(dt, 1, "%.4000s", ir), false;
  for (char *line = strtok(ir, "\n"); line; line = strtok(NULL, "\n"))
    if (strstr(line, "= input ")) make_data(line);
  return true;
}

static bool train(const char *dt, const char *mesh, TrainLog *log) {
  const char *program = work_path("model-program"), *file = work_path("log");
  char *output = NULL;
  if (mesh ? !COMPILE(dt, program, "--mesh", mesh) : !COMPILE(dt, program)) return false;
  int rc = RUN(work_folder(), &output, program, "--steps", "8", "--log", file, "--data-dir", work_folder());
  if (rc) unit_fail(dt, 1, "on mesh %s the program exits %d:\n%.4000s", mesh ? mesh : "as written", rc, output);
  return rc == 0 && read_log(file, log) && log->steps == STEPS;
}

/* "data=1,model=1" or, with first = 3, "data=3,model=1", from the file's `mesh pod(data = 2, model = 2)`. */
static const char *mesh_of(const char *dt, int first) {
  char *text = read_text(dt), *at = strstr(text, "\nmesh "), *out = calloc(1, 256);
  at = at ? strchr(at, '(') + 1 : text;
  for (int n = 0; *at && *at != ')'; n++) {
    at += strspn(at, " ,");
    sprintf(out + strlen(out), "%s%.*s=%d", n ? "," : "", (int)strcspn(at, " ="), at, n ? 1 : first);
    at += strcspn(at, ",)");
  }
  return out;
}

static void check_model(const char *dt) {
  TrainLog one, many;
  if (!make_all_data(dt) || !train(dt, mesh_of(dt, 1), &one)) return;
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

UNIT(every_model_trains_alike_on_every_mesh) {
  struct dirent **entries;
  int n = scandir(tests_path("run"), &entries, NULL, alphasort), models = 0;
  for (int i = 0; i < n; i++) {
    const char *dot = strrchr(entries[i]->d_name, '.');
    if (!dot || strcmp(dot, ".dt")) continue;
    check_model(tests_path("run/%s", entries[i]->d_name));
    models++;
  }
  CHECK(models > 0);
}
