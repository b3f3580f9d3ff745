/* starts.c: how ranks on GPUs are started, and how runs end that cannot go on, through the emulator. The program has one
   number per step, 1.5 times the ranks, made by a copy and an all-reduce that are recorded in the second step and replayed:

     RANK=0 WORLD_SIZE=2 ./train & RANK=1 WORLD_SIZE=2 ./train       step 4/4  loss 3.0000                            */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime_run.h"
#include "unit.h"

void dtcu_copy(dtrt_Context *cx, void *dst, const void *src, int64_t bytes); /* dtcu.h is C++ */

static void forward(dtrt_Context *cx) {
  double *x = (double *)cx->arena;
  dtcu_copy(cx, x, &cx->setting[0], sizeof *x);
  dtrt_collective(cx, 0, (const void *[]){x}, (void *[]){x});
  dtrt_tap(cx, 0, x);
}

/* Valid until the next call. */
static const dtrt_Program *program(int nranks, int64_t arena) {
  static dtrt_Layout from, to;
  static dtrt_Collective c;
  static dtrt_Tap tap;
  static dtrt_Program p;
  static const dtrt_Setting setting = {"value", 1.5};
  to = LAYOUT(DTRT_F64, -1);
  to.rank = 0;
  from = to;
  from.npending = 1, from.pending[0] = (dtrt_Digit){1, nranks};
  c = (dtrt_Collective){"all_reduce", "data", "sum.dt", 7, 1, &from, &to, 1, {{1, nranks}}};
  tap = (dtrt_Tap){DTRT_TAP_LOSS, "", to};
  p = (dtrt_Program){.abi = DTRT_ABI,
                     .source = "sum.dt",
                     .version = "test",
                     .nranks = nranks,
                     .arena_bytes = arena,
                     .nsettings = 1,
                     .setting = &setting,
                     .ncollectives = 1,
                     .collective = &c,
                     .ntaps = 1,
                     .tap = &tap,
                     .steps = 4,
                     .unit = "rows",
                     .trains = true,
                     .forward = forward};
  return &p;
}

/* ---- two starts ---- */

typedef struct {
  pid_t pid;
  int out;
} Start;

static int port(void) { return 20000 + getpid() % 20000; }

/* What torchrun would have set, with a token of the job. */
static Start start_rank(int rank, int size, const char *token, const char *const *args) {
  char number[16];
  Start s;
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  snprintf(number, sizeof number, "%d", port());
  setenv("MASTER_PORT", number, 1);
  snprintf(number, sizeof number, "%d", size);
  setenv("WORLD_SIZE", number, 1);
  setenv("LOCAL_WORLD_SIZE", number, 1);
  snprintf(number, sizeof number, "%d", rank);
  setenv("RANK", number, 1);
  setenv("LOCAL_RANK", number, 1);
  setenv("DTRT_TOKEN", token, 1);
  s.pid = run_start(program(2, 64), args, &s.out);
  static const char *const names[] = {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
                                      "RANK",        "LOCAL_RANK",  "DTRT_TOKEN"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
  return s;
}

static int socket_at(int at, bool listens) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)at), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  bool ok =
      listens ? !bind(fd, (struct sockaddr *)&a, sizeof a) && !listen(fd, 8) : !connect(fd, (struct sockaddr *)&a, sizeof a);
  if (ok) return fd;
  close(fd);
  return -1;
}

static void contains(const Ran *r, const char *text, int line) {
  if (!strstr(r->text, text)) unit_fail(__FILE__, line, "exit %d, no '%s' in:\n%s", r->rc, text, r->text);
}
#define CONTAINS(r, text) contains(&(r), text, __LINE__)
#define ARGS(...) ((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static void both_come(Start zero, Start one) {
  Ran a = run_wait(zero.pid, zero.out), b = run_wait(one.pid, one.out);
  CHECK_EQ(a.rc, 0);
  CHECK_EQ(b.rc, 0);
  CONTAINS(a, "step 1/4  loss 3.0000");
  CONTAINS(a, "step 4/4  loss 3.0000");
  CHECK_STR(b.text, "");
}

UNIT(two_starts_find_each_other_by_the_variables_of_torchrun) {
  Start one = start_rank(1, 2, "secret", ARGS()), zero = start_rank(0, 2, "secret", ARGS());
  both_come(zero, one);
}

UNIT(a_port_that_somebody_else_listens_at_is_left_alone) {
  int taken = socket_at(port(), true);
  CHECK(taken >= 0);
  Start zero = start_rank(0, 2, "secret", ARGS()), one = start_rank(1, 2, "secret", ARGS());
  both_come(zero, one);
  close(taken);
}

UNIT(who_does_not_know_the_token_is_turned_away) {
  Start zero = start_rank(0, 2, "secret", ARGS("--timeout", "3")), one = start_rank(1, 2, "guess", ARGS("--timeout", "2"));
  Ran b = run_wait(one.pid, one.out), a = run_wait(zero.pid, zero.out);
  CHECK_EQ(a.rc, 1);
  CHECK_EQ(b.rc, 1);
  CONTAINS(a, "turned away a connection from 127.0.0.1");
  CONTAINS(a, "only 1 of 2 ranks came");
  CONTAINS(b, "rank 1 found no rank 0 of this job at 127.0.0.1");
}

UNIT(garbage_on_the_socket_does_no_harm) {
  Start zero = start_rank(0, 2, "secret", ARGS());
  int fd = -1;
  for (int i = 0; i < 500 && fd < 0; i++) {
    fd = socket_at(port(), false);
    if (fd < 0) usleep(10000);
  }
  char junk[4096];
  memset(junk, 'x', sizeof junk);
  CHECK(fd >= 0 && send(fd, junk, sizeof junk, MSG_NOSIGNAL) > 0);
  Start one = start_rank(1, 2, "secret", ARGS());
  Ran a = run_wait(zero.pid, zero.out), b = run_wait(one.pid, one.out);
  close(fd);
  CHECK_EQ(a.rc, 0);
  CHECK_EQ(b.rc, 0);
  CONTAINS(a, "turned away a connection");
  CONTAINS(a, "step 4/4  loss 3.0000");
}

/* Reads what a start writes until it has made a step. */
static void await_step(const Start *s) {
  char seen[4096];
  for (size_t n = 0; n < sizeof seen - 1;) {
    ssize_t k = read(s->out, seen + n, sizeof seen - 1 - n);
    if (k <= 0) return;
    seen[n += (size_t)k] = 0;
    if (strstr(seen, "  loss ")) return;
  }
}

/* Reads to the end; is the text in it? */
static bool writes(const Start *s, const char *text) {
  char seen[8192] = "";
  size_t n = 0, keep = strlen(text);
  bool found = false;
  for (ssize_t k; (k = read(s->out, seen + n, sizeof seen - 1 - n)) > 0;) {
    seen[n += (size_t)k] = 0;
    found |= strstr(seen, text) != NULL;
    if (n <= keep) continue;
    memmove(seen, seen + n - keep, keep + 1);
    n = keep;
  }
  return found;
}

UNIT(a_start_that_dies_takes_the_others_with_it) {
  const char *const *args = ARGS("--steps", "100000000");
  Start zero = start_rank(0, 2, "secret", args), one = start_rank(1, 2, "secret", args);
  await_step(&zero);
  kill(one.pid, SIGKILL);
  run_wait(one.pid, one.out);
  CHECK(writes(&zero, "the process of rank 1 is gone"));
  CHECK_EQ(run_wait(zero.pid, zero.out).rc, 1);
}

UNIT(a_signal_to_one_start_ends_all_in_order) {
  const char *const *args = ARGS("--steps", "100000000");
  Start zero = start_rank(0, 2, "secret", args), one = start_rank(1, 2, "secret", args);
  await_step(&zero);
  kill(one.pid, SIGTERM);
  CHECK(writes(&zero, "interrupted after step "));
  CHECK_EQ(run_wait(zero.pid, zero.out).rc, 1);
  CHECK_EQ(run_wait(one.pid, one.out).rc, 1);
}

UNIT(the_wrong_number_of_processes_is_said_in_one_line) {
  setenv("RANK", "0", 1), setenv("WORLD_SIZE", "3", 1);
  Ran r = RUN(program(2, 64));
  unsetenv("RANK"), unsetenv("WORLD_SIZE");
  CHECK_EQ(r.rc, 2);
  CHECK_STR(r.text, "train: torchrun started 3 processes, but the program is compiled for a mesh of 2 devices\n");
}

/* ---- what can be wrong with GPUs ---- */

/* One start of n ranks with a variable set; the last line, which must be the only one after the table. */
static Ran run_with(const char *name, const char *value, int nranks, int64_t arena, const char *const *args) {
  setenv(name, value, 1);
  Ran r = run_program(program(nranks, arena), args);
  unsetenv(name);
  return r;
}

UNIT(gpus_that_are_not_there_are_said_in_one_line) {
  Ran r = run_with("DTCU_NO_DRIVER", "1", 2, 64, ARGS());
  CHECK_EQ(r.rc, 1);
  CONTAINS(r, "\ntrain: no GPU can be used: ");
  r = run_with("DTCU_DEVICES", "0", 2, 64, ARGS());
  CHECK_EQ(r.rc, 1);
  CONTAINS(r, "\ntrain: no GPU is visible");
  r = run_with("DTCU_DEVICES", "1", 2, 64, ARGS());
  CHECK_EQ(r.rc, 1);
  CONTAINS(r, "\ntrain: the program needs 2 GPUs on this host, a rank each; 1 is visible\n");
}

UNIT(memory_is_compared_with_the_plan_before_it_is_taken) {
  Ran r = run_with("DTCU_MEMORY", "67108864", 1, 100 << 20, ARGS());
  CHECK_EQ(r.rc, 1);
  CONTAINS(r, "\ntrain: rank 0 needs 108.0 MiB of GPU memory as planned, but ");
  CONTAINS(r, " free of 64.0 MiB\n");
}

/* ---- runs that stand still ---- */

UNIT(a_collective_that_never_ends_ends_the_run_with_the_last_ones) {
  Ran r = run_with("DTCU_STUCK", "1:3", 2, 64, ARGS("--timeout", "2"));
  CHECK_EQ(r.rc, 1);
  CONTAINS(r, "has waited for its device for 2 s (--timeout) at step 3, ");
  CONTAINS(r, ", in all_reduce over data (sum.dt:7); all ranks were stopped\n");
  CONTAINS(r, "rank 0, the last collectives:\n  step 1  forward   all_reduce over data (sum.dt:7)  done\n");
  CONTAINS(r, "  step 3  forward   all_reduce over data (sum.dt:7)  under way\n");
}

UNIT(an_error_of_a_communicator_ends_the_run) {
  Ran r = run_with("DTCU_ASYNC_ERROR", "1:3", 2, 64, ARGS());
  CHECK_EQ(r.rc, 1);
  CONTAINS(r, "a collective failed on rank ");
  CONTAINS(r, "the last collectives:\n");
}

UNIT(an_error_of_a_kernel_ends_the_run) {
  Ran r = run_with("DTCU_KERNEL_ERROR", "2", 2, 64, ARGS("--no-graph"));
  CHECK_EQ(r.rc, 1);
  CONTAINS(r, "cudaErrorIllegalAddress");
}
