/* faults.c: what a training program does when something goes wrong: a rank is killed, the disk is full, data or numbers
   are bad, the user interrupts. And what it must not lose: a resumed run continues bit for bit. */
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "program.h"
#include "unit.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void pause_ms(int ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL); }

/* charlm.dt, small, on 2 x 2 ranks, with a corpus beside it; compiled once. */
static const char *program(void) {
  static const char *path;
  if (path) return path;
  FILE *f = fopen(work_path("corpus.txt"), "wb");
  for (int i = 0; i < 20000; i++) fprintf(f, "%d ", i * 7919 % 10007);
  fclose(f);
  path = work_path("charlm");
  compile(tests_path("../examples/charlm.dt"), path, (const char *const[]){"--set", "T=16", "--set", "L=2", NULL});
  return path;
}

#define TRAIN(output, ...) RUN(work_folder(), output, program(), __VA_ARGS__)

static void expect(int rc, int want_rc, const char *output, const char *want) {
  if (rc != want_rc || !strstr(output, want))
    unit_fail(__FILE__, __LINE__, "exit %d, expected %d with \"%s\"; it printed\n%.3000s", rc, want_rc, want, output);
}

#define EXPECT_RUN(want_rc, want, ...)                                                                                           \
  do {                                                                                                                           \
    char *out_;                                                                                                                  \
    int rc_ = RUN(work_folder(), &out_, __VA_ARGS__);                                                                            \
    expect(rc_, want_rc, out_, want);                                                                                            \
  } while (0)
#define EXPECT_TRAIN(want_rc, want, ...) EXPECT_RUN(want_rc, want, program(), __VA_ARGS__)

/* The children of a process, from /proc. */
static int children(pid_t pid, pid_t *child, int most) {
  DIR *proc = opendir("/proc");
  int n = 0;
  for (struct dirent *e; (e = readdir(proc)) && n < most;) {
    char path[300], *stat = NULL;
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%s/stat", e->d_name);
    if (atoi(e->d_name) > 0) stat = read_text(path);
    const char *after = stat ? strrchr(stat, ')') : NULL;
    if (after && sscanf(after, ") %*c %d", &parent) == 1 && parent == pid) child[n++] = atoi(e->d_name);
    free(stat);
  }
  closedir(proc);
  return n;
}

/* Is there a process that runs? An orphan that ended may stay a zombie where nobody collects it. */
static bool runs(pid_t pid) {
  char path[64], state = 'Z';
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  char *stat = read_text(path);
  if (stat) sscanf(strrchr(stat, ')'), ") %c", &state);
  free(stat);
  return state != 'Z' && state != 'X';
}

static bool wait_for_text(const char *file, const char *text) {
  for (int i = 0; i < 3000; i++, pause_ms(10)) {
    char *s = read_text(file);
    bool found = s && strstr(s, text);
    free(s);
    if (found) return true;
  }
  return false;
}

static int wait_exit(pid_t pid, double *seconds) {
  double start = now();
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0 && now() - start < 20) pause_ms(2);
  *seconds = now() - start;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void kill_rank(int victim, int after_ms) {
  const char *output = work_path("killed");
  pid_t ranks[8], pid = start_program(work_folder(), (const char *const[]){program(), "--steps", "1000000", NULL}, output);
  if (!wait_for_text(output, "3/1000000")) {
    unit_fail(__FILE__, __LINE__, "the program does not reach step 3:\n%.2000s", read_text(output));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return;
  }
  pause_ms(after_ms);
  int n = children(pid, ranks, 8);
  CHECK_EQ(n, 4);
  if (n == 4)
    kill(ranks[victim], SIGKILL);
  else
    kill(pid, SIGTERM);
  double seconds;
  int rc = wait_exit(pid, &seconds);
  char *text = read_text(output), name[16];
  snprintf(name, sizeof name, "rank %d", victim);
  expect(rc, 1, text, name);
  expect(rc, 1, text, "step ");
  if (seconds > 1) unit_fail(__FILE__, __LINE__, "it took %.2f s to end", seconds);
  for (int r = 0; r < n; r++) CHECK(!runs(ranks[r]));
}

UNIT(a_killed_rank_takes_the_others_down_within_a_second) {
  for (int i = 0; i < 6; i++) kill_rank(i % 4, i * 7);
}

UNIT(a_killed_supervisor_leaves_no_rank) {
  const char *output = work_path("killed");
  pid_t ranks[8], pid = start_program(work_folder(), (const char *const[]){program(), "--steps", "1000000", NULL}, output);
  CHECK(wait_for_text(output, "2/1000000"));
  int n = children(pid, ranks, 8);
  CHECK_EQ(n, 4);
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  for (int i = 0; i < 100; i++, pause_ms(10)) {
    int alive = 0;
    for (int r = 0; r < n; r++) alive += runs(ranks[r]);
    if (!alive) return;
  }
  unit_fail(__FILE__, __LINE__, "a rank outlives its supervisor by a second");
}

static void interrupt(int signal, bool save) {
  const char *output = work_path("interrupted"), *saved = work_path("interrupted.safetensors");
  remove(saved);
  pid_t pid = start_program(work_folder(),
                            (const char *const[]){program(), "--steps", "1000000", save ? "--save" : NULL, saved, NULL}, output);
  CHECK(wait_for_text(output, "3/1000000"));
  kill(pid, signal);
  double seconds;
  int rc = wait_exit(pid, &seconds);
  if (save)
    expect(rc, 75, read_text(output), "--resume");
  else
    CHECK_EQ(rc, 1);
  TensorFile f;
  if (save) CHECK(read_tensors(saved, &f) && find_tensor(&f, "wte") && find_tensor(&f, "adamw.m.wte"));
}

UNIT(interrupts_finish_the_step_and_save) {
  interrupt(SIGINT, true);
  interrupt(SIGTERM, true);
  interrupt(SIGINT, false);
}

static void same_file(const char *a, const char *b) {
  TensorFile x, y;
  if (!read_tensors(a, &x) || !read_tensors(b, &y) || x.n != y.n || !x.n) {
    unit_fail(__FILE__, __LINE__, "%s and %s do not hold the same tensors", a, b);
    return;
  }
  for (int i = 0; i < x.n; i++) {
    const NamedTensor *t = find_tensor(&y, x.tensor[i].name);
    if (!t || t->elements != x.tensor[i].elements || memcmp(t->at, x.tensor[i].at, (size_t)t->elements * sizeof(double)))
      unit_fail(__FILE__, __LINE__, "%s differs", x.tensor[i].name);
  }
}

UNIT(a_resumed_run_continues_bit_for_bit) {
  EXPECT_TRAIN(0, "", "--steps", "12", "--save", work_path("whole"), "--log", work_path("whole.log"));
  EXPECT_TRAIN(0, "", "--steps", "5", "--save", work_path("part"));
  EXPECT_TRAIN(0, "", "--steps", "12", "--resume", work_path("part"), "--save", work_path("rest"), "--log",
               work_path("rest.log"));
  same_file(work_path("whole"), work_path("rest"));
  TrainLog whole, rest;
  CHECK(read_log(work_path("whole.log"), &whole) && read_log(work_path("rest.log"), &rest));
  CHECK_EQ(whole.steps, 12);
  CHECK_EQ(rest.steps, 7);
  for (int s = 0; s < rest.steps; s++) CHECK(rest.loss[s] == whole.loss[5 + s] && rest.grad_norm[s] == whole.grad_norm[5 + s]);
}

UNIT(a_saved_run_resumes_on_another_mesh) {
  const char *single = work_path("single");
  EXPECT_TRAIN(0, "", "--steps", "5", "--save", work_path("part"));
  EXPECT_TRAIN(0, "", "--steps", "9", "--log", work_path("many.log"), "--resume", work_path("part"));
  if (!COMPILE(tests_path("../examples/charlm.dt"), single, "--set", "T=16", "--set", "L=2", "--mesh", "data=1,model=1")) return;
  EXPECT_RUN(0, "", single, "--steps", "9", "--log", work_path("one.log"), "--resume", work_path("part"));
  TrainLog one, many;
  CHECK(read_log(work_path("one.log"), &one) && read_log(work_path("many.log"), &many));
  CHECK_EQ(one.steps, 4);
  for (int s = 0; s < one.steps; s++) CHECK(fabs(one.loss[s] / many.loss[s] - 1) < 1e-5);
}

UNIT(a_full_disk_leaves_the_previous_file) {
  char *out;
  const char *saved = work_path("limited");
  EXPECT_TRAIN(0, "", "--steps", "2", "--save", saved);
  char *before = read_text(saved);
  struct rlimit old, small = {100000, 100000};
  getrlimit(RLIMIT_FSIZE, &old);
  small.rlim_max = old.rlim_max;
  setrlimit(RLIMIT_FSIZE, &small);
  signal(SIGXFSZ, SIG_IGN);
  int rc = TRAIN(&out, "--steps", "3", "--save", saved);
  setrlimit(RLIMIT_FSIZE, &old);
  expect(rc, 1, out, "cannot save");
  CHECK(!strstr(out, "saved "));
  TensorFile f;
  CHECK(read_tensors(saved, &f) && !memcmp(before, read_text(saved), 64));
}

UNIT(what_is_no_regular_file_is_not_replaced) {
  const char *pipe = work_path("pipe");
  struct stat s;
  CHECK_EQ(mkfifo(pipe, 0600), 0);
  EXPECT_TRAIN(1, "cannot save", "--steps", "1", "--save", pipe);
  EXPECT_TRAIN(1, "cannot write", "--steps", "1", "--dump-grads", pipe);
  CHECK(stat(pipe, &s) == 0 && S_ISFIFO(s.st_mode));
}

UNIT(bad_data_is_one_clear_error) {
  write_text(work_path("empty.txt"), "");
  write_text(work_path("short.txt"), "abc");
  EXPECT_TRAIN(1, "nowhere.txt", "--data", "tok=nowhere.txt");
  EXPECT_TRAIN(1, "empty.txt", "--data", "tok=empty.txt");
  EXPECT_TRAIN(1, "short.txt", "--data", "tok=short.txt");
  EXPECT_TRAIN(2, "tak", "--data", "tak=corpus.txt");
  EXPECT_TRAIN(1, "empty.txt", "--resume", work_path("empty.txt"));
  EXPECT_TRAIN(1, "corpus.txt", "--init", work_path("corpus.txt"));
  EXPECT_TRAIN(2, "x", "--steps", "x");
  EXPECT_TRAIN(2, "fast", "--set", "optimizer.lr=fast");
}

/* ones.npy [4, 3], with one element that may differ. */
static void write_ones(float last) {
  FILE *f = fopen(work_path("ones.npy"), "wb");
  fprintf(f, "\x93NUMPY\x01%cv%c{'descr': '<f4', 'fortran_order': False, 'shape': (4, 3), }%58s\n", 0, 0, "");
  for (int i = 0; i < 12; i++) fwrite(i < 11 ? &(float){1} : &last, 4, 1, f);
  fclose(f);
}

UNIT(a_loss_that_is_not_finite_names_the_first_tensor_and_line) {
  const char *dt = work_path("diverge.dt"), *out_path = work_path("diverge");
  char *out;
  write_text(dt, "mesh pod(data = 2)\n"
                 "dim B = 4, D = 3\n"
                 "input x: f32[B @ data, D] = table(\"ones.npy\")\n"
                 "param w: f32[D] = ones\n"
                 "h[b]  = sum[d](x[b,d] * w[d])\n"
                 "bad[b] = log(h[b] - 3.0)\n"
                 "loss  = mean[b](bad[b])\n"
                 "train loss {\n  optimizer = sgd(lr = 1.0)\n}\n");
  write_ones(1);
  if (!COMPILE(dt, out_path)) return;
  int rc = RUN(work_folder(), &out, out_path, "--steps", "3");
  expect(rc, 1, out, "bad");
  expect(rc, 1, out, "diverge.dt:6");
  expect(rc, 1, out, "step 1");
  EXPECT_RUN(0, "", out_path, "--steps", "3", "--keep-going");
  write_ones(NAN);
  EXPECT_RUN(1, "is x (diverge.dt:3)", out_path, "--steps", "3");
}
