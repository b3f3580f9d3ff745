/* windows.c: programs whose ranks hold windows of a dim (halos, a single place, the far end, every other place), compiled
   from IR text: on four ranks the outputs have the same bits as on one, and what the runtime counts as received and sent
   is what the schedule says. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "unit.h"

/* The mesh's sizes come first: with one device every window is the whole dim. */
static const char *const WINDOWS =
    "stage sharded\nmesh pod(data = %d, model = %d)\n"
    "program stage 0 {\n"
    "  %%x: f32[B=3, T=10@(data, model)] = param \"x\" normal(1)\n"
    "  %%x.1: f32[B=3, T=10@(data, model) window(i < 10: i - 5 .. i + 1)] = reshard %%x   ; because %%y reads around\n"
    "  %%x.2: f32[B=3, T=10@(data, model) window(i < 10: i - 1 .. i)] = reshard %%x       ; because %%z reads before\n"
    "  %%x.3: f32[B=3, T=10@none window(i < 1: 9 .. 9)] = reshard %%x                     ; because %%w reads the last\n"
    "  %%x.4: f32[B=3, T=10@(data, model) window(i < 10: 9 - i .. 9 - i)] = reshard %%x   ; because %%v reads from the end\n"
    "  %%x.5: f32[B=3, T=10@(data, model) window(i < 5: 2*i .. 2*i + 1)] = reshard %%x    ; because %%u reads pairs\n"
    "  %%y[b,t]: f32[B=3, T=10@(data, model)] = nest (%%x.1[b, t - 5] else 0.0) + (%%x.1[b, t + 1] else 1.0)\n"
    "  %%z[b,t]: f32[B=3, T=10@(data, model)] = nest (%%x.2[b, t - 1] else 0.0) - %%x.2[b,t]\n"
    "  %%w[b]: f32[B=3] = nest %%x.3[b,9]\n"
    "  %%v[b,t]: f32[B=3, T=10@(data, model)] = nest %%x.4[b, 9 - t] + %%w[b]\n"
    "  %%u[b,t]: f32[B=3, 5@(data, model)] = nest %%x.5[b, 2*t] * %%x.5[b, 2*t + 1]\n"
    "  tap output \"y\" %%y\n  tap output \"z\" %%z\n  tap output \"v\" %%v\n  tap output \"u\" %%u\n}\n";

static bool run_on(int data, int model, char **output) {
  char text[4096];
  snprintf(text, sizeof text, WINDOWS, data, model);
  const char *ir = work_path("windows.ir"), *program = work_path("windows-program");
  if (!write_text(ir, text) || !COMPILE(ir, program, "--from=collect")) return false;
  setenv("DTRT_PROFILE", "1", 1);
  int rc = RUN(work_folder(), output, program);
  unsetenv("DTRT_PROFILE");
  if (rc) unit_fail(__FILE__, __LINE__, "on %d x %d the program exits %d:\n%.4000s", data, model, rc, *output);
  return rc == 0;
}

UNIT(ranks_that_hold_windows_compute_what_one_rank_does) {
  static const char *const names[] = {"y", "z", "v", "u"};
  size_t bytes[4];
  char *one[4], *output;
  if (!run_on(1, 1, &output)) return;
  for (int i = 0; i < 4; i++) one[i] = read_bytes(work_path("%s.npy", names[i]), &bytes[i]);
  for (int data = 1; data <= 4; data++) {
    if (!run_on(data, 2, &output)) return;
    for (int i = 0; i < 4; i++) {
      size_t n;
      char *many = read_bytes(work_path("%s.npy", names[i]), &n);
      if (n != bytes[i] || memcmp(many, one[i], n))
        unit_fail(__FILE__, __LINE__, "output %s differs on %d ranks", names[i], 2 * data);
    }
  }
}

UNIT(what_windows_receive_is_what_was_planned) {
  char *output, *said_of_it;
  if (!run_on(2, 2, &output)) return;
  const char *ir = work_path("windows.ir"), *schedule = work_path("windows.json");
  if (RUN(work_folder(), &said_of_it, DTC_BINARY, ir, "--from=collect", "--emit=schedule-json", "-o", schedule))
    return unit_fail(__FILE__, __LINE__, "no schedule: %.1000s", said_of_it);
  json_t *plan = json_load_file(schedule, 0, NULL);
  double planned = json_number_value(json_object_get(plan, "bytes_per_step")), most = 0, received = 0, sent = 0;
  int ranks = 0;
  for (const char *at = output; (at = strstr(at, "  received ")); at++, ranks++) {
    double in = 0, out = 0;
    long long said = 0;
    CHECK_EQ(sscanf(at, "  received %lf bytes per step; planned for the busiest rank %lld; sent %lf", &in, &said, &out), 3);
    CHECK(said == (long long)planned);
    most = in > most ? in : most;
    received += in, sent += out;
  }
  CHECK_EQ(ranks, 4);
  CHECK(most == planned);
  CHECK(received == sent && received > 0);
  json_decref(plan);
}
