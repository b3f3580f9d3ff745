/* main.c: dtc_fuzz [--programs N] [--plans P] [--seed S] [--replay SEED] [--model "FILE D=8"]...: random programs (or
   the models in turn), each under P random layouts on random meshes, must mean the same whole and partitioned. Programs run in a
   worker process; when one fails (or ends the worker) its seed is printed, the program is shrunk and printed as IR text. */
#include "fuzz.h"

#include <argp.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_WORKERS = 64, MAX_MODELS = 64, BATCH = 50 /* emitted CUDA programs to a file */ };

typedef struct {
  int64_t programs, plans, max_devices;
  uint64_t seed, replay;
  int workers;
  bool seeded, replaying, verbose, no_shrink, keep_going, emitted;
  const char *cuda; /* emitted as CUDA, for this variant of the emulator */
  int nmodels;
  const char *model[MAX_MODELS];
} Options;

/* What the worker tells: where it is, what it has done. */
typedef struct {
  uint64_t seed;
  int plan;
  int64_t next, done, agreed, skipped, divided, worse;
  Verdict v;
} Progress;

static const GenOptions KINDS[2] = {
    {.small = true, .max_bound = 0x1p44, .gradients = true, .updates = true, .random = true, .repeats = true},
    {.small = false, .gradients = true, .updates = true, .random = true, .repeats = true},
};

/* Programs that also run as emitted C, whose f32 holds integers up to 2^24. */
static const GenOptions EMITTED = {
    .small = true, .max_bound = 0x1p22, .gradients = true, .updates = true, .repeats = true, .ranked = true};

/* The same with attention, its gradient and random numbers, which are compared within a bound. */
static const GenOptions EMITTED_REAL = {.small = true,
                                        .max_bound = 0x1p22,
                                        .gradients = true,
                                        .updates = true,
                                        .repeats = true,
                                        .ranked = true,
                                        .sinks = true,
                                        .random = true};

static CheckOptions how(const Options *o, uint64_t seed) {
  bool real = o->emitted && random_mix(seed ^ 2) % 3 == 0;
  CheckOptions c = {
      .small = !real && (o->emitted || random_mix(seed ^ 1) % 2), .emitted = o->emitted, .real = real, .seed = seed};
  c.target = o->cuda ? TARGET_CUDA : TARGET_C;
  c.variant = o->cuda;
  c.exact = o->emitted ? (int64_t)1 << 24 : 0;
  c.thorough = o->replaying || (seed % 8 == 0 && !o->emitted);
  c.related = !o->emitted && (o->replaying || o->nmodels > 0 || seed % 16 == 1);
  if (o->nmodels > 0) c.small = false, c.updates = true;
  return c;
}

static Module *make(Arena *a, const Options *o, uint64_t seed, int plan) {
  Module *m = o->nmodels > 0 ? fuzz_model(a, o->model[seed % (uint64_t)o->nmodels])
                             : fuzz_program(a, seed,
                                            how(o, seed).real ? EMITTED_REAL
                                            : o->emitted      ? EMITTED
                                                              : KINDS[!how(o, seed).small]);
  fuzz_annotate(m, random_mix(seed) + (uint64_t)plan, o->max_devices);
  return m;
}

/* Programs that passed all checks but the last: they are compiled and run together. */
typedef struct {
  Arena *a;
  Batch *batch;
  int n;
  struct {
    Arena *a;
    uint64_t seed;
    int plan;
  } of[BATCH];
} Waiting;

/* What became of one program; false when it failed. */
static bool count(Progress *p, uint64_t seed, int plan, const Verdict *v) {
  p->seed = seed;
  p->plan = plan;
  p->v = *v;
  p->done++;
  p->divided += v->divided;
  p->worse += v->worse;
  p->agreed += v->result == CHECK_AGREES;
  p->skipped += v->result == CHECK_SKIPPED;
  return v->result == CHECK_AGREES || v->result == CHECK_SKIPPED;
}

static bool run_waiting(Progress *p, Waiting *w) {
  const char *wrong[BATCH];
  bool ok = true;
  if (w->n) fuzz_batch_run(w->batch, wrong);
  for (int i = 0; i < w->n && ok; i++) {
    Verdict v = {.result = wrong[i] ? CHECK_DIFFERS : CHECK_AGREES};
    if (wrong[i]) snprintf(v.text, sizeof v.text, "emitted: %s", wrong[i]);
    ok = count(p, w->of[i].seed, w->of[i].plan, &v);
    arena_free(w->of[i].a);
  }
  if (w->n) arena_free(w->a);
  w->n = 0;
  return ok;
}

/* Runs one program under all plans; false when it fails. With `w`, agreement is found when that is full. */
static bool run_seed(const Options *o, Progress *p, uint64_t seed, Waiting *w) {
  for (int plan = 0; plan < o->plans; plan++) {
    Arena *a = arena_new();
    CheckOptions c = how(o, seed);
    if (w && w->n == 0) w->a = arena_new(), w->batch = fuzz_batch(w->a);
    c.batch = w ? w->batch : NULL;
    p->seed = seed;
    p->plan = plan;
    fuzz_check(make(a, o, seed, plan), a, c, &p->v);
    if (w && p->v.result == CHECK_AGREES) {
      w->of[w->n].a = a;
      w->of[w->n].seed = seed;
      w->of[w->n++].plan = plan;
      if (w->n == BATCH && !run_waiting(p, w)) return false;
      continue;
    }
    arena_free(a);
    Verdict v = p->v;
    if (!count(p, seed, plan, &v)) return false;
  }
  return true;
}

static uint64_t program_seed(const Options *o, int64_t i) {
  return o->replaying ? o->replay : random_mix(random_mix(o->seed) + (uint64_t)i);
}

/* A worker: programs p->next, p->next + workers, ... */
static void work(const Options *o, Progress *p) {
  mallopt(M_MMAP_THRESHOLD, 1 << 20); /* arena blocks are used again; larger pieces stay untouched until used */
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  Waiting *w = o->cuda && !o->replaying ? &(Waiting){0} : NULL;
  while (p->next * o->plans < o->programs) {
    int64_t i = p->next;
    p->next += o->workers;
    if (!run_seed(o, p, program_seed(o, i), w)) _exit(1);
  }
  if (w && !run_waiting(p, w)) _exit(1);
  _exit(0);
}

static void report_failure(const Options *o, const Progress *p, int status) {
  static const char *const said[] = {"agrees", "differs", "is unlawful", "is skipped", "crashed the compiler"};
  Arena *a = arena_new();
  Module *m = make(a, o, p->seed, p->plan);
  Verdict v = p->v;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 1) fuzz_check_apart(m, how(o, p->seed), &v);
  printf("\nFAILED: program %s; replay: dtc_fuzz%s%s", said[v.result],
         o->cuda      ? " --cuda="
         : o->emitted ? " --emitted"
                      : "",
         o->cuda ? o->cuda : "");
  for (int i = 0; i < o->nmodels; i++) printf(" --model \"%s\"", o->model[i]);
  printf(" --devices %lld --plans %lld --replay 0x%llx  (plan %d)\n%s\n", (long long)o->max_devices, (long long)o->plans,
         (unsigned long long)p->seed, p->plan, v.text);
  fflush(stdout);
  if (o->verbose) printf("\n%s", ir_print(m, a));
  if (!o->no_shrink) {
    Module *least = fuzz_shrink(a, m, how(o, p->seed), o->emitted ? 300 : 90, &v);
    printf("\nshrunk: %s\n%s", v.text, ir_print(least, a));
  }
  arena_free(a);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static pid_t start(const Options *o, Progress *p) {
  fflush(NULL);
  pid_t child = fork();
  if (child != 0) return child;
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  work(o, p);
  return 0;
}

static volatile sig_atomic_t stopped; /* by the signal of that number */

static void stop(int sig) { stopped = sig; }

/* Runs the workers until one fails, all are done or a signal stops them. Returns how many programs failed. */
static int run_workers(const Options *o, Progress *p) {
  pid_t child[MAX_WORKERS];
  int failures = 0, running = o->workers;
  for (int w = 0; w < o->workers; w++) {
    p[w].next = w;
    child[w] = start(o, &p[w]);
  }
  while (running > 0) {
    int status = 0, w = 0;
    pid_t ended = wait(&status);
    for (int k = 0; k < o->workers && stopped; k++)
      if (child[k] > 0) kill(child[k], SIGTERM);
    while (w < o->workers && child[w] != ended) w++;
    if (w == o->workers) continue;
    child[w] = 0;
    running--;
    if (status == 0 || stopped || (failures > 0 && !o->keep_going)) continue;
    failures++;
    if (!o->keep_going)
      for (int k = 0; k < o->workers; k++)
        if (child[k] > 0) kill(child[k], SIGTERM);
    report_failure(o, &p[w], status);
    if (!o->keep_going || failures >= 100) continue;
    child[w] = start(o, &p[w]);
    running++;
  }
  return failures;
}

static int fuzz(Options *o) {
  size_t bytes = sizeof(Progress) * MAX_WORKERS;
  Progress *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), sum = {0};
  if (p == MAP_FAILED) internal_error("cannot map memory");
  if (o->replaying)
    o->workers = 1, o->programs = 1;
  else
    printf("dtc_fuzz%s%s --devices %lld --programs %lld --plans %lld --seed %llu\n",
           o->cuda      ? " --cuda="
           : o->emitted ? " --emitted"
                        : "",
           o->cuda ? o->cuda : "", (long long)o->max_devices, (long long)o->programs, (long long)o->plans,
           (unsigned long long)o->seed);
  double begin = now();
  sigaction(SIGINT, &(struct sigaction){.sa_handler = stop}, NULL); /* wait ends, and what was done is said */
  sigaction(SIGTERM, &(struct sigaction){.sa_handler = stop}, NULL);
  int failures = run_workers(o, p);
  for (int w = 0; w < o->workers; w++) {
    sum.done += p[w].done, sum.agreed += p[w].agreed, sum.skipped += p[w].skipped;
    sum.divided += p[w].divided, sum.worse += p[w].worse;
  }
  printf("%lld programs x layouts: %lld agree, %lld left the exact range or are too large, %d failed; %.0f a second%s\n",
         (long long)sum.done, (long long)sum.agreed, (long long)sum.skipped, failures, (double)sum.done / (now() - begin),
         stopped ? "; stopped" : "");
  if (sum.divided > 0)
    printf("an axis divided into two: %lld plans, %lld of which receive more\n", (long long)sum.divided, (long long)sum.worse);
  return stopped ? 128 + stopped : failures > 0;
}

static error_t parse_option(int key, char *arg, struct argp_state *state) {
  Options *o = state->input;
  switch (key) {
  case 'n': o->programs = strtoll(arg, NULL, 0); return 0;
  case 'p': o->plans = strtoll(arg, NULL, 0); return 0;
  case 'j': o->workers = (int)max_i64(1, min_i64(strtoll(arg, NULL, 0), MAX_WORKERS)); return 0;
  case 'd': o->max_devices = strtoll(arg, NULL, 0); return 0;
  case 's': o->seed = strtoull(arg, NULL, 0), o->seeded = true; return 0;
  case 'r': o->replay = strtoull(arg, NULL, 0), o->replaying = true; return 0;
  case 'v': o->verbose = true; return 0;
  case 'q': o->no_shrink = true; return 0;
  case 'e': o->emitted = true; return 0;
  case 'c': o->emitted = true, o->cuda = arg ? arg : "plain"; return 0;
  case 'm':
    if (o->nmodels < MAX_MODELS) o->model[o->nmodels++] = arg;
    return 0;
  case 'k': o->keep_going = true; return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

int main(int argc, char **argv) {
  static const struct argp_option options[] = {
      {"programs", 'n', "N", 0, "programs x layouts to run (10000)", 0},
      {"plans", 'p', "P", 0, "layouts for each program (2)", 0},
      {"devices", 'd', "N", 0, "at most N devices in a mesh (16)", 0},
      {"workers", 'j', "N", 0, "processes that run them (one per core)", 0},
      {"seed", 's', "S", 0, "where to start (a fresh one)", 0},
      {"replay", 'r', "SEED", 0, "run the one program that a failure named", 0},
      {"verbose", 'v', NULL, 0, "print the failing program as it was made, too", 0},
      {"emitted", 'e', NULL, 0, "compile the emitted C and run it on real processes, too", 0},
      {"cuda", 'c', "VARIANT", OPTION_ARG_OPTIONAL,
       "compile emitted CUDA and run it on the emulator: plain (the default), address, checked", 0},
      {"model", 'm', "\"FILE D=8\"", 0, "instead of programs this model (and others, in turn), with sizes of dims", 0},
      {"keep-going", 'k', NULL, 0, "go on after a failure, up to 100", 0},
      {"no-shrink", 'q', NULL, 0, "do not shrink", 0},
      {0},
  };
  static const struct argp argp = {
      .options = options, .parser = parse_option, .doc = "Random programs must mean the same on every mesh."};
  Options o = {.programs = 10000,
               .plans = 2,
               .max_devices = 16,
               .workers = (int)max_i64(1, min_i64(sysconf(_SC_NPROCESSORS_ONLN), MAX_WORKERS))};
  argp_parse(&argp, argc, argv, 0, NULL, &o);
  if (!o.seeded) o.seed = random_mix((uint64_t)time(NULL) ^ ((uint64_t)getpid() << 32));
  return fuzz(&o);
}
