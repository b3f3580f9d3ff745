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

/* Sets (or unsets) the variables of "RANK=@|WORLD_SIZE=2"; @ is the rank. */
static void variables(const char *text, int rank, bool on) {
  char *all = strdup(text), number[16];
  snprintf(number, sizeof number, "%d", rank);
  for (char *at = all, *next; at && *at; at = next) {
    if ((next = strchr(at, '|'))) *next++ = 0;
    char *value = strchr(at, '=');
    *value++ = 0;
    if (on)
      setenv(at, strcmp(value, "@") ? value : number, 1);
    else
      unsetenv(at);
  }
  free(all);
}

static Start start_with(const char *set, int rank, const char *const *args) {
  char place[96];
  Start s;
  snprintf(place, sizeof place, "MASTER_ADDR=127.0.0.1|MASTER_PORT=%d|DTRT_TOKEN=secret", port());
  variables(place, rank, true);
  variables(set, rank, true);
  s.pid = run_start(program(2, 64), args, &s.out);
  variables(set, rank, false);
  variables(place, rank, false);
  return s;
}

static const char TORCHRUN[] = "RANK=@|WORLD_SIZE=2|LOCAL_RANK=@|LOCAL_WORLD_SIZE=2";

static Start start_rank(int rank, const char *const *args) { return start_with(TORCHRUN, rank, args); }

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

static void both_come(const char *set, Start zero, Start one) {
  Ran a = run_wait(zero.pid, zero.out), b = run_wait(one.pid, one.out);
  if (a.rc || b.rc || *b.text || !strstr(a.text, "step 1/4  loss 3.0000") || !strstr(a.text, "step 4/4  loss 3.0000"))
    unit_fail(__FILE__, __LINE__, "%s: exit %d and %d:\n%s%s", set, a.rc, b.rc, a.text, b.text);
}

/* What launchers set. Where two of them are seen, the inner one counts. */
static const char *const LAUNCHERS[] = {
    TORCHRUN,
    "RANK=@|WORLD_SIZE=2",
    "SLURM_PROCID=@|SLURM_STEP_NUM_TASKS=2|SLURM_LOCALID=@|SLURM_STEP_TASKS_PER_NODE=2|SLURM_NODEID=0|SLURM_NTASKS=2",
    "SLURM_PROCID=@|SLURM_STEP_NUM_TASKS=2|SLURM_LOCALID=@|SLURM_STEP_TASKS_PER_NODE=2|PMI_RANK=@|PMI_SIZE=2",
    "OMPI_COMM_WORLD_RANK=@|OMPI_COMM_WORLD_SIZE=2|OMPI_COMM_WORLD_LOCAL_RANK=@|OMPI_COMM_WORLD_LOCAL_SIZE=2",
    "PMI_RANK=@|PMI_SIZE=2|MPI_LOCALRANKID=@|MPI_LOCALNRANKS=2",
    "PMI_RANK=@|PMI_SIZE=2",
    "RANK=@|WORLD_SIZE=2|SLURM_PROCID=0|SLURM_STEP_NUM_TASKS=3|SLURM_LOCALID=0",
    "OMPI_COMM_WORLD_RANK=@|OMPI_COMM_WORLD_SIZE=2|SLURM_PROCID=0|SLURM_STEP_NUM_TASKS=1",
    "PMI_RANK=@|PMI_SIZE=2|MPI_LOCALRANKID=@|SLURM_PROCID=0|SLURM_STEP_NUM_TASKS=3",
    "RANK=@|WORLD_SIZE=2|DTRT_INTERFACE=lo|MASTER_ADDR=localhost",
};

UNIT(two_starts_find_each_other_by_the_variables_of_every_launcher) {
  for (size_t i = 0; i < sizeof LAUNCHERS / sizeof *LAUNCHERS; i++) {
    Start one = start_with(LAUNCHERS[i], 1, ARGS()), zero = start_with(LAUNCHERS[i], 0, ARGS());
    both_come(LAUNCHERS[i], zero, one);
  }
}

/* One process, or no launcher at all (the shell of a batch job): this start makes both ranks. */
UNIT(a_launcher_of_one_process_leaves_the_ranks_to_us) {
  static const char *const alone[] = {"RANK=0|WORLD_SIZE=1|SLURM_PROCID=1|SLURM_STEP_NUM_TASKS=4",
                                      "SLURM_PROCID=0|SLURM_STEP_NUM_TASKS=1", "SLURM_PROCID=0|SLURM_NTASKS=4", "WORLD_SIZE=4"};
  for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) {
    Start s = start_with(alone[i], 0, ARGS());
    Ran r = run_wait(s.pid, s.out);
    CHECK_EQ(r.rc, 0);
    CONTAINS(r, "step 4/4  loss 3.0000");
  }
}

UNIT(a_port_that_somebody_else_listens_at_is_left_alone) {
  int taken = socket_at(port(), true);
  CHECK(taken >= 0);
  Start zero = start_rank(0, ARGS()), one = start_rank(1, ARGS());
  both_come("a port that is taken", zero, one);
  close(taken);
}

UNIT(who_does_not_know_the_token_is_turned_away) {
  char said[256];
  Start zero = start_rank(0, ARGS("--timeout", "3")),
        one = start_with("RANK=@|WORLD_SIZE=2|DTRT_TOKEN=guess", 1, ARGS("--timeout", "2"));
  Ran b = run_wait(one.pid, one.out), a = run_wait(zero.pid, zero.out);
  CHECK_EQ(a.rc, 1);
  CHECK_EQ(b.rc, 1);
  snprintf(said, sizeof said,
           "train: turned away a connection from 127.0.0.1: another token, another program, or a rank that is here already\n"
           "train: only 1 of 2 ranks came to 127.0.0.1:%d in time (--timeout)\n",
           port());
  CHECK_STR(a.text, said);
  snprintf(
      said, sizeof said,
      "train: rank 1 found no rank 0 of this job at 127.0.0.1:%d in time (--timeout): what listens there has another token or "
      "another program, or has this rank already\n",
      port());
  CHECK_STR(b.text, said);
}

UNIT(garbage_on_the_socket_does_no_harm) {
  Start zero = start_rank(0, ARGS());
  int fd = -1;
  for (int i = 0; i < 500 && fd < 0; i++) {
    fd = socket_at(port(), false);
    if (fd < 0) usleep(10000);
  }
  char junk[4096];
  memset(junk, 'x', sizeof junk);
  CHECK(fd >= 0 && send(fd, junk, sizeof junk, MSG_NOSIGNAL) > 0);
  Start one = start_rank(1, ARGS());
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
  Start zero = start_rank(0, args), one = start_rank(1, args);
  await_step(&zero);
  kill(one.pid, SIGKILL);
  run_wait(one.pid, one.out);
  CHECK(writes(&zero, "the process of rank 1 is gone"));
  CHECK_EQ(run_wait(zero.pid, zero.out).rc, 1);
}

UNIT(a_signal_to_one_start_ends_all_in_order) {
  const char *const *args = ARGS("--steps", "100000000");
  Start zero = start_rank(0, args), one = start_rank(1, args);
  await_step(&zero);
  kill(one.pid, SIGTERM);
  CHECK(writes(&zero, "interrupted after step "));
  CHECK_EQ(run_wait(zero.pid, zero.out).rc, 1);
  CHECK_EQ(run_wait(one.pid, one.out).rc, 1);
}

/* What variables must not say: the one line that is written, or its beginning, and the exit code. */
static const struct {
  const char *set;
  int rc;
  const char *line;
} WRONG[] = {
    {"RANK=x|WORLD_SIZE=2", 2, "RANK=x: not a number from 0 to 1\n"},
    {"RANK=-1|WORLD_SIZE=2", 2, "RANK=-1: not a number from 0 to 1\n"},
    {"RANK=2|WORLD_SIZE=2", 2, "RANK=2: not a number from 0 to 1\n"},
    {"RANK=0x1|WORLD_SIZE=2", 2, "RANK=0x1: not a number from 0 to 1\n"},
    {"RANK= 1|WORLD_SIZE=2", 2, "RANK= 1: not a number from 0 to 1\n"},
    {"RANK=18446744073709551617|WORLD_SIZE=2", 2, "RANK=18446744073709551617: not a number from 0 to 1\n"},
    {"RANK=0\nall is well\033[2J|WORLD_SIZE=2", 2, "RANK=0?all is well?[2J: not a number from 0 to 1\n"},
    {"RANK=0|WORLD_SIZE=two", 2, "WORLD_SIZE=two: not a number from 1 to 16777216\n"},
    {"RANK=0|WORLD_SIZE=0", 2, "WORLD_SIZE=0: not a number from 1 to 16777216\n"},
    {"RANK=0|WORLD_SIZE=4294967298", 2, "WORLD_SIZE=4294967298: not a number from 1 to 16777216\n"},
    {"RANK=1", 2, "RANK=1, but WORLD_SIZE is not set\n"},
    {"PMI_RANK=1|WORLD_SIZE=2", 2, "PMI_RANK=1, but PMI_SIZE is not set\n"},
    {"RANK=0|WORLD_SIZE=3", 2, "torchrun started 3 processes, but the program is compiled for a mesh of 2 devices\n"},
    {"SLURM_PROCID=2|SLURM_STEP_NUM_TASKS=3", 2,
     "srun started 3 processes, but the program is compiled for a mesh of 2 devices\n"},
    {"OMPI_COMM_WORLD_RANK=0|OMPI_COMM_WORLD_SIZE=3|SLURM_PROCID=0|SLURM_STEP_NUM_TASKS=2", 2,
     "mpirun started 3 processes, but the program is compiled for a mesh of 2 devices\n"},
    {"PMI_RANK=0|PMI_SIZE=3|MPI_LOCALRANKID=0", 2, "mpiexec started 3 processes, but "},
    {"PMI_RANK=0|PMI_SIZE=3", 2, "the launcher started 3 processes, but "},
    {"RANK=0|WORLD_SIZE=2|LOCAL_RANK=2|LOCAL_WORLD_SIZE=2", 2, "LOCAL_RANK=2: not a number from 0 to 1\n"},
    {"RANK=0|WORLD_SIZE=2|LOCAL_RANK=0|LOCAL_WORLD_SIZE=4", 2, "LOCAL_WORLD_SIZE=4: no number from 1 to 2 for host 0\n"},
    {"RANK=0|WORLD_SIZE=2|LOCAL_RANK=0|LOCAL_WORLD_SIZE=1|MASTER_ADDR=", 2,
     "torchrun started ranks on several hosts: set MASTER_ADDR to the address of rank 0's, and MASTER_PORT\n"},
    {"SLURM_PROCID=1|SLURM_STEP_NUM_TASKS=2|SLURM_LOCALID=0|SLURM_STEP_TASKS_PER_NODE=1(x2)|SLURM_NODEID=1|MASTER_ADDR=", 2,
     "srun started ranks on several hosts: "},
    {"SLURM_PROCID=1|SLURM_STEP_NUM_TASKS=2|SLURM_LOCALID=1|SLURM_STEP_TASKS_PER_NODE=2,1|SLURM_NODEID=1", 2,
     "SLURM_LOCALID=1: not a number from 0 to 0\n"},
    {"SLURM_PROCID=1|SLURM_STEP_NUM_TASKS=2|SLURM_LOCALID=0|SLURM_STEP_TASKS_PER_NODE=1|SLURM_NODEID=1", 2,
     "SLURM_STEP_TASKS_PER_NODE=1: no number from 1 to 2 for host 1\n"},
    {"SLURM_PROCID=1|SLURM_STEP_NUM_TASKS=2|SLURM_LOCALID=0|SLURM_STEP_TASKS_PER_NODE=1(x|SLURM_NODEID=1", 2,
     "SLURM_STEP_TASKS_PER_NODE=1(x: no number from 1 to 2 for host 1\n"},
    {"RANK=0|WORLD_SIZE=2|MASTER_PORT=http", 2, "MASTER_PORT=http: not a number from 1 to 65527\n"},
    {"RANK=1|WORLD_SIZE=2|MASTER_PORT=0", 2, "MASTER_PORT=0: not a number from 1 to 65527\n"},
    {"RANK=1|WORLD_SIZE=2|MASTER_PORT=65536", 2, "MASTER_PORT=65536: not a number from 1 to 65527\n"},
    {"RANK=0|WORLD_SIZE=2|MASTER_ADDR=0.0.0.0", 2, "MASTER_ADDR=0.0.0.0 is not the address of one host\n"},
    {"RANK=1|WORLD_SIZE=2|MASTER_ADDR=0", 2, "MASTER_ADDR=0 is not the address of one host\n"},
    {"RANK=0|WORLD_SIZE=2|MASTER_ADDR=999.1.1.1.", 1, "MASTER_ADDR=999.1.1.1.: "},
    {"RANK=0|WORLD_SIZE=2|MASTER_ADDR=nobody;reboot", 1, "MASTER_ADDR=nobody;reboot: "},
    {"RANK=0|WORLD_SIZE=2|DTRT_INTERFACE=none0", 2, "DTRT_INTERFACE=none0: there is no such network interface here\n"},
    {"DTRT_INTERFACE=l", 2, "DTRT_INTERFACE=l: there is no such network interface here\n"},
};

UNIT(variables_that_cannot_be_true_are_said_in_one_line) {
  for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
    Start s = start_with(WRONG[i].set, 0, ARGS());
    Ran r = run_wait(s.pid, s.out);
    const char *text = r.text, *end = strchr(text, '\n'), *line = WRONG[i].line;
    bool said = !strncmp(text, "train: ", 7) && !strncmp(text + 7, line, strlen(line)) && end && !end[1];
    if (r.rc != WRONG[i].rc || !said)
      unit_fail(__FILE__, __LINE__, "%s: exit %d, not %d:\n%s", WRONG[i].set, r.rc, WRONG[i].rc, r.text);
  }
}

UNIT(a_token_that_is_too_long_is_said_in_one_line) {
  char set[6000] = "RANK=1|WORLD_SIZE=2|DTRT_TOKEN=";
  memset(set + strlen(set), 'x', 5000);
  Start s = start_with(set, 1, ARGS());
  Ran r = run_wait(s.pid, s.out);
  CHECK_EQ(r.rc, 2);
  CHECK_STR(r.text, "train: DTRT_TOKEN is too long\n");
}

/* ---- what can be wrong with GPUs ---- */

/* One start of n ranks with a variable set. */
static Ran run_with(const char *name, const char *value, int nranks, int64_t arena, const char *const *args) {
  setenv(name, value, 1);
  Ran r = run_program(program(nranks, arena), args);
  unsetenv(name);
  return r;
}

/* Before anything else is written: the line is all. */
UNIT(gpus_that_are_not_there_are_said_in_one_line) {
  for (int nranks = 1; nranks <= 2; nranks++) {
    Ran r = run_with("DTCU_NO_DRIVER", "1", nranks, 64, ARGS());
    CHECK_EQ(r.rc, 1);
    CHECK_STR(r.text, "train: no GPU can be used: there is no NVIDIA driver here\n");
  }
  Ran r = run_with("DTCU_DEVICES", "0", 2, 64, ARGS());
  CHECK_EQ(r.rc, 1);
  CHECK_STR(r.text, "train: no GPU is visible (is CUDA_VISIBLE_DEVICES set?); the program needs 2\n");
  r = run_with("DTCU_DEVICES", "1", 2, 64, ARGS());
  CHECK_EQ(r.rc, 1);
  CHECK_STR(r.text, "train: the program needs 2 GPUs on this host, a rank each; 1 is visible\n");
}

UNIT(memory_is_compared_with_the_plan_before_it_is_taken) {
  Ran r = run_with("DTCU_MEMORY", "67108864", 1, 100 << 20, ARGS());
  const char *end = strchr(r.text, '\n');
  CHECK_EQ(r.rc, 1);
  CONTAINS(r, "train: rank 0 needs 108.0 MiB of GPU memory as planned, but ");
  CONTAINS(r, " free of 64.0 MiB\n");
  CHECK(end && !end[1]);
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
