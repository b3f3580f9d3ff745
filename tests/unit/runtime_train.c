/* runtime_train.c: whole runs of the toy program: the same numbers on every mesh, resuming, stopping, dying, full
   disks, files to and fro. */
#include "runtime_toy.h"
#include "unit.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define OK(ran)                                                                                                                  \
  do {                                                                                                                           \
    Ran r_ = (ran);                                                                                                              \
    if (r_.rc) unit_fail(__FILE__, __LINE__, "%s: exit %d\n%s", #ran, r_.rc, r_.text);                                           \
  } while (0)
/* Exit code, and a part of the text. */
#define FAILS(ran, code, part)                                                                                                   \
  do {                                                                                                                           \
    Ran r_ = (ran);                                                                                                              \
    if (r_.rc != (code) || !strstr(r_.text, part))                                                                               \
      unit_fail(__FILE__, __LINE__, "%s: exit %d, expected %d and \"%s\"\n%s", #ran, r_.rc, code, part, r_.text);                \
  } while (0)

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The value of `key` in line n (from 0) of a log; NAN if it is not a number. */
static double logged(const char *path, int n, const char *key) {
  static char text[65536];
  char quoted[64];
  size_t bytes = run_read(path, text, sizeof text - 1);
  text[bytes] = 0;
  char *line = text;
  for (; n && line; n--) line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL;
  if (!line) return NAN;
  snprintf(quoted, sizeof quoted, "\"%s\": ", key);
  char *at = strstr(line, quoted), *end;
  if (!at) return NAN;
  double v = strtod(at += strlen(quoted), &end);
  return end == at ? NAN : v;
}

static bool same_file(const char *a, const char *b) {
  static char x[65536], y[65536];
  size_t n = run_read(a, x, sizeof x), m = run_read(b, y, sizeof y);
  return n && n == m && memcmp(x, y, n) == 0;
}

UNIT(one_to_four_ranks_give_the_same_bits) {
  toy_corpus(200);
  const char *log = run_path("log"), *first = run_path("1.st"), *other = run_path("n.st");
  double loss[10], token[10];
  for (int n = 1; n <= 4; n++) {
    OK(RUN(toy_program(n, true), "--data-dir", run_folder(), "--log", log, "--save", n == 1 ? first : other));
    for (int s = 0; s < 10; s++) {
      double l = logged(log, s, "loss");
      CHECK(logged(log, s, "step") == s + 1 && logged(log, s, "lr") == 0.25 && logged(log, s, "grad_norm") == 1.5);
      if (n == 1) loss[s] = l, token[s] = logged(log, s, "first");
      CHECK(l == loss[s] && token[s] == logged(log, s, "first"));
    }
    CHECK(n == 1 || same_file(first, other));
  }
  run_clean();
}

UNIT(resuming_on_any_mesh_continues_bit_for_bit) {
  toy_corpus(200);
  const char *whole = run_path("whole"), *part = run_path("part"), *rest = run_path("rest");
  OK(RUN(toy_program(2, true), "--data-dir", run_folder(), "--seed", "7", "--save", whole));
  OK(RUN(toy_program(3, true), "--data-dir", run_folder(), "--seed", "7", "--steps", "4", "--save", part));
  OK(RUN(toy_program(4, true), "--data-dir", run_folder(), "--resume", part, "--save", rest));
  CHECK(same_file(whole, rest));
  run_clean();
}

UNIT(another_seed_gives_another_order_and_other_values) {
  toy_corpus(200);
  const char *a = run_path("a"), *b = run_path("b");
  OK(RUN(toy_program(1, true), "--data-dir", run_folder(), "--log", a));
  OK(RUN(toy_program(1, true), "--data-dir", run_folder(), "--log", b, "--seed", "2"));
  int differ = 0;
  for (int s = 0; s < 10; s++) differ += logged(a, s, "loss") != logged(b, s, "loss");
  CHECK(differ > 5);
  run_clean();
}

/* 8 windows are the rows of two steps; the first tokens of all windows differ. */
UNIT(an_epoch_holds_every_window_once) {
  toy_corpus(8 * 3 + 1);
  const char *log = run_path("log");
  OK(RUN(toy_program(1, true), "--data-dir", run_folder(), "--log", log, "--steps", "40"));
  double all = 0;
  for (int i = 0; i < 8; i++) all += exp2((7 * 3 * i + 3 * i / 5) % 31);
  int as_before = 0;
  for (int s = 0; s < 40; s += 2) {
    CHECK(logged(log, s, "rows") + logged(log, s + 1, "rows") == all);
    as_before += s && logged(log, s, "rows") == logged(log, s - 2, "rows");
  }
  CHECK(as_before < 10); /* another order each time */
  run_clean();
}

UNIT(first_gradients_are_written_whole) {
  toy_corpus(200);
  const char *log = run_path("log"), *one = run_path("g1"), *three = run_path("g3");
  OK(RUN(toy_program(1, true), "--data-dir", run_folder(), "--steps", "3", "--log", log, "--dump-grads", one));
  OK(RUN(toy_program(3, true), "--data-dir", run_folder(), "--steps", "3", "--dump-grads", three));
  CHECK(same_file(one, three));
  char bytes[4096];
  float g[TOY_W];
  size_t n = run_read(one, bytes, sizeof bytes);
  CHECK(n > sizeof g);
  memcpy(g, bytes + n - sizeof g, sizeof g);
  for (int e = 0; e < TOY_W; e++) CHECK(g[e] == (float)e + (float)logged(log, 0, "loss") / 1024);
  run_clean();
}

/* An all-reduce of one f32 over three: each rank receives 2 (g-1)/g of 4 bytes. */
UNIT(bytes_received_are_those_planned) {
  toy_corpus(200);
  dtrt_Program *p = toy_program(3, true);
  p->plan_bytes = 5;
  setenv("DTRT_PROFILE", "1", 1);
  Ran r = RUN(p, "--data-dir", run_folder(), "--steps", "3");
  unsetenv("DTRT_PROFILE");
  CHECK_EQ(r.rc, 0);
  CHECK(strstr(r.text, "rank 2, per step:"));
  CHECK(strstr(r.text, "received 5.3 bytes per step; planned for the busiest rank 5; sent 5.3"));
  CHECK(strstr(r.text, "all_reduce     data      1.0 calls"));
  run_clean();
}

UNIT(a_program_for_another_processor_says_so) {
  dtrt_Program *p = toy_program(1, true);
  p->level = 9;
  Ran r = RUN(p, "--steps", "1");
  CHECK_EQ(r.rc, 1);
  CHECK(strstr(r.text, "which this one does not have: compile the model here"));
  p->level = 0;
  run_clean();
}

UNIT(outputs_become_npy_files) {
  toy_corpus(200);
  const char *y = run_path("y"), *z = run_path("z");
  char name[300], bytes[4096], other[4096];
  snprintf(name, sizeof name, "y=%s", y);
  OK(RUN(toy_program(1, false), "--data-dir", run_folder(), "--output", name));
  snprintf(name, sizeof name, "y=%s", z);
  OK(RUN(toy_program(4, false), "--data-dir", run_folder(), "--output", name));
  size_t n = run_read(y, bytes, sizeof bytes);
  CHECK(n == 128 + TOY_W * 4 || n == 64 + TOY_W * 4);
  CHECK(memcmp(bytes, "\x93NUMPY\x01", 8) == 0 && strstr(bytes + 10, "'shape': (6, 4)"));
  CHECK(run_read(z, other, sizeof other) == n && memcmp(bytes, other, n) == 0);
  run_clean();
}

UNIT(usage_errors_exit_2) {
  toy_corpus(200);
  dtrt_Program *p = toy_program(1, true);
  FAILS(RUN(p, "--steps", "x"), 2, "--steps needs a whole number");
  FAILS(RUN(p, "--seed", "-1"), 2, "--seed needs a whole number");
  FAILS(RUN(p, "--set", "lr.x=1"), 2, "there is no setting 'lr.x'; there are: optimizer.lr, bomb");
  FAILS(RUN(p, "--set", "optimizer.lr=fast"), 2, "needs a number");
  FAILS(RUN(p, "--data", "x=y"), 2, "there is no input 'x'; there are: tok, tgt");
  FAILS(RUN(p, "--save-every", "2"), 2, "--save-every needs --save");
  FAILS(RUN(p, "--init", "a", "--resume", "b"), 2, "exclude each other");
  FAILS(RUN(p, "--nonsense"), 2, "unrecognized option");
  FAILS(RUN(p, "--version"), 0, "toy.dt, compiled by dtc test");
  FAILS(RUN(p, "--help"), 0, "--dump-grads=FILE.safetensors");
  run_clean();
}

UNIT(a_loss_that_is_not_finite_names_step_and_tensor) {
  toy_corpus(200);
  const char *log = run_path("log");
  FAILS(RUN(toy_program(3, true), "--data-dir", run_folder(), "--set", "bomb=4"), 1,
        "step 4: the loss is not finite; the first tensor with such a value is h (toy.dt:12), nan on rank 2");
  OK(RUN(toy_program(3, true), "--data-dir", run_folder(), "--set", "bomb=4", "--keep-going", "--log", log));
  CHECK(isnan(logged(log, 3, "loss")) && logged(log, 9, "step") == 10);
  FAILS(RUN(toy_program(2, true), "--data-dir", run_folder(), "--set", "optimizer.lr=1e38"), 1,
        "the parameter w (toy.dt:3) is not");
  run_clean();
}

/* ---- stopping and dying ---- */

static void slowly(dtrt_Context *cx) {
  (void)cx;
  nanosleep(&(struct timespec){0, 5000000}, NULL);
}

/* The processes below `parent`, from /proc. */
static int children(pid_t parent, pid_t *out, int room) {
  char path[64], text[512];
  int n = 0;
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
  size_t bytes = run_read(path, text, sizeof text - 1);
  text[bytes] = 0;
  for (char *at = text, *end; n < room; at = end) {
    pid_t pid = (pid_t)strtol(at, &end, 10);
    if (end == at) break;
    out[n++] = pid;
  }
  return n;
}

static int files_in_folder(void) {
  int n = 0;
  DIR *d = opendir(run_folder());
  for (struct dirent *e; d && (e = readdir(d));) n += e->d_name[0] != '.';
  if (d) closedir(d);
  return n;
}

/* Ended; an orphan that nobody has waited for yet counts. */
static bool gone(const pid_t *pid, int n) {
  for (int i = 0; i < n; i++) {
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid[i]);
    if (run_read(path, text, sizeof text - 1) && !strstr(text, ") Z ")) return false;
  }
  return true;
}

/* Starts an endless run on n ranks, sends `sig` to rank `victim` (-1: the supervisor) after a while. */
static Ran strike(dtrt_Program *p, int victim, int sig, const char *save, pid_t *ranks, double *seconds) {
  int out;
  const char *log = run_path("log");
  unlink(log);
  pid_t pid = run_start(
      p, (const char *const[]){"--data-dir", run_folder(), "--steps", "100000", "--log", log, save ? "--save" : NULL, save, NULL},
      &out);
  for (double until = now() + 10; isnan(logged(log, 2, "step")) && now() < until;)
    nanosleep(&(struct timespec){0, 2000000}, NULL);
  int n = children(pid, ranks, 8);
  if (n != p->nranks) unit_fail(__FILE__, __LINE__, "%d processes for %d ranks", n, p->nranks);
  double start = now();
  kill(victim < 0 ? pid : ranks[victim], sig);
  Ran r = run_wait(pid, out);
  *seconds = now() - start;
  return r;
}

UNIT(a_killed_rank_takes_the_others_with_it) {
  for (int n = 1; n <= 4; n++) {
    toy_corpus(200);
    dtrt_Program *p = toy_program(n, true);
    toy_on_update(slowly);
    pid_t ranks[8];
    double seconds;
    char who[64];
    snprintf(who, sizeof who, "rank %d was killed by signal 9 (Killed) at step ", n - 1);
    Ran r = strike(p, n - 1, SIGKILL, NULL, ranks, &seconds);
    CHECK_EQ(r.rc, 1);
    CHECK(strstr(r.text, who) && strstr(r.text, "all_reduce over data (toy.dt:13)"));
    CHECK(seconds < 1);
    CHECK(gone(ranks, n));
    CHECK_EQ(files_in_folder(), 2); /* corpus.bin and the log */
    run_clean();
  }
}

UNIT(ranks_do_not_outlive_the_supervisor) {
  toy_corpus(200);
  dtrt_Program *p = toy_program(3, true);
  toy_on_update(slowly);
  pid_t ranks[8];
  double seconds;
  Ran r = strike(p, -1, SIGKILL, NULL, ranks, &seconds);
  CHECK_EQ(r.rc, 128 + SIGKILL);
  for (double until = now() + 1; !gone(ranks, 3) && now() < until;) nanosleep(&(struct timespec){0, 2000000}, NULL);
  CHECK(gone(ranks, 3));
  run_clean();
}

UNIT(sigterm_finishes_the_step_and_saves) {
  toy_corpus(200);
  const char *save = run_path("saved"), *rest = run_path("rest"), *whole = run_path("whole");
  dtrt_Program *p = toy_program(3, true);
  toy_on_update(slowly);
  pid_t ranks[8];
  double seconds;
  Ran r = strike(p, -1, SIGTERM, save, ranks, &seconds);
  CHECK_EQ(r.rc, 75);
  CHECK(strstr(r.text, "and saved; go on with: train --resume"));
  int steps = 0;
  while (!isnan(logged(run_path("log"), steps, "step"))) steps++;
  char total[16];
  snprintf(total, sizeof total, "%d", steps + 5);
  OK(RUN(toy_program(2, true), "--data-dir", run_folder(), "--resume", save, "--steps", total, "--save", rest));
  OK(RUN(toy_program(1, true), "--data-dir", run_folder(), "--steps", total, "--save", whole));
  CHECK(same_file(rest, whole));
  p = toy_program(2, true);
  toy_on_update(slowly);
  r = strike(p, 1, SIGTERM, NULL, ranks, &seconds); /* sent to a rank it means the same */
  CHECK_EQ(r.rc, 1);
  CHECK(strstr(r.text, "nothing was saved"));
  run_clean();
}

static void small_disk(dtrt_Context *cx) {
  if (cx->step == 1) setrlimit(RLIMIT_FSIZE, &(struct rlimit){300, 300});
}

UNIT(a_full_disk_leaves_the_previous_file) {
  toy_corpus(200);
  const char *save = run_path("saved"), *before = run_path("before");
  OK(RUN(toy_program(2, true), "--data-dir", run_folder(), "--steps", "1", "--save", before));
  dtrt_Program *p = toy_program(2, true);
  toy_on_update(small_disk);
  FAILS(RUN(p, "--data-dir", run_folder(), "--steps", "3", "--save", save, "--save-every", "1"), 1,
        "saved after step 3: File too large; the file that was there is unchanged");
  CHECK(same_file(save, before));
  CHECK_EQ(files_in_folder(), 3);
  FAILS(RUN(p, "--data-dir", run_folder(), "--steps", "3", "--save", "/no/such/folder/x"), 1,
        "cannot save /no/such/folder/x: No such file");
  run_clean();
}
