/* main.c: dtc_fuzz [--programs N] [--plans P] [--seed S] [--replay SEED]: random programs, each under P random
   layouts on random meshes, must mean the same whole and partitioned. Programs run in a worker process; when one
   fails (or ends the worker) its seed is printed, the program is shrunk and printed as IR text. */
#include "fuzz.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct {
  int64_t programs, plans, max_devices;
  uint64_t seed, replay;
  bool seeded, replaying, verbose, no_shrink;
} Options;

/* What the worker tells: where it is, what it has done. */
typedef struct {
  uint64_t seed;
  int plan;
  int64_t done, agreed, skipped;
  Verdict v;
} Progress;

static const GenOptions KINDS[2] = {
    {.small = true, .max_bound = 0x1p44, .gradients = true, .updates = true, .random = true, .repeats = true},
    {.small = false, .gradients = true, .updates = true, .random = true, .repeats = true},
};

static bool is_small(uint64_t seed) { return random_mix(seed ^ 1) % 2; }

static Module *make(Arena *a, uint64_t seed, int plan, int64_t max_devices) {
  Module *m = fuzz_program(a, seed, KINDS[!is_small(seed)]);
  fuzz_annotate(m, random_mix(seed) + (uint64_t)plan, max_devices);
  return m;
}

/* Runs one program under all plans; false when it fails. */
static bool run_seed(const Options *o, Progress *p, uint64_t seed) {
  for (int plan = 0; plan < o->plans; plan++) {
    Arena *a = arena_new();
    p->seed = seed;
    p->plan = plan;
    fuzz_check(make(a, seed, plan, o->max_devices), a, is_small(seed), 0, seed, &p->v);
    arena_free(a);
    p->done++;
    if (p->v.result == CHECK_AGREES)
      p->agreed++;
    else if (p->v.result == CHECK_SKIPPED)
      p->skipped++;
    else
      return false;
  }
  return true;
}

static void work(const Options *o, Progress *p) {
  if (o->replaying) {
    if (!run_seed(o, p, o->replay)) _exit(1);
    return;
  }
  for (int64_t i = 0; p->done < o->programs; i++)
    if (!run_seed(o, p, random_mix(o->seed + (uint64_t)i))) _exit(1);
}

static int report_failure(const Options *o, const Progress *p, int status) {
  static const char *const said[] = {"agrees", "differs", "is unlawful", "is skipped", "crashed the compiler"};
  Arena *a = arena_new();
  Module *m = make(a, p->seed, p->plan, o->max_devices);
  Verdict v = p->v;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 1) fuzz_check_apart(m, is_small(p->seed), 0, p->seed, &v);
  printf("\nFAILED: program %s; replay: dtc_fuzz --plans %lld --replay 0x%llx  (plan %d)\n%s\n", said[v.result],
         (long long)o->plans, (unsigned long long)p->seed, p->plan, v.text);
  fflush(stdout);
  if (o->verbose) printf("\n%s", ir_print(m, a));
  if (!o->no_shrink) {
    Module *least = fuzz_shrink(a, m, is_small(p->seed), 0, p->seed, &v);
    printf("\nshrunk: %s\n%s", v.text, ir_print(least, a));
  }
  arena_free(a);
  return 1;
}

static int fuzz(const Options *o) {
  Progress *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) internal_error("cannot map memory");
  if (!o->replaying) printf("dtc_fuzz --programs %lld --seed %llu\n", (long long)o->programs, (unsigned long long)o->seed);
  fflush(NULL);
  struct timespec t0, t1;
  clock_gettime(CLOCK_MONOTONIC, &t0);
  pid_t child = fork();
  if (child == 0) {
    work(o, p);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  clock_gettime(CLOCK_MONOTONIC, &t1);
  double s = (double)(t1.tv_sec - t0.tv_sec) + (double)(t1.tv_nsec - t0.tv_nsec) * 1e-9;
  printf("%lld programs x layouts, %lld agree, %lld leave the exact range, %.0f a second\n", (long long)p->done,
         (long long)p->agreed, (long long)p->skipped, (double)p->done / s);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : report_failure(o, p, status);
}

static error_t parse_option(int key, char *arg, struct argp_state *state) {
  Options *o = state->input;
  switch (key) {
  case 'n': o->programs = strtoll(arg, NULL, 0); return 0;
  case 'p': o->plans = strtoll(arg, NULL, 0); return 0;
  case 'd': o->max_devices = strtoll(arg, NULL, 0); return 0;
  case 's': o->seed = strtoull(arg, NULL, 0), o->seeded = true; return 0;
  case 'r': o->replay = strtoull(arg, NULL, 0), o->replaying = true; return 0;
  case 'v': o->verbose = true; return 0;
  case 'q': o->no_shrink = true; return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

int main(int argc, char **argv) {
  static const struct argp_option options[] = {
      {"programs", 'n', "N", 0, "programs x layouts to run (10000)", 0},
      {"plans", 'p', "P", 0, "layouts for each program (2)", 0},
      {"devices", 'd', "N", 0, "at most N devices in a mesh (16)", 0},
      {"seed", 's', "S", 0, "where to start (a fresh one)", 0},
      {"replay", 'r', "SEED", 0, "run the one program that a failure named", 0},
      {"verbose", 'v', NULL, 0, "print the failing program as it was made, too", 0},
      {"no-shrink", 'q', NULL, 0, "do not shrink", 0},
      {0},
  };
  static const struct argp argp = {
      .options = options, .parser = parse_option, .doc = "Random programs must mean the same on every mesh."};
  Options o = {.programs = 10000, .plans = 2, .max_devices = 16};
  argp_parse(&argp, argc, argv, 0, NULL, &o);
  if (!o.seeded) o.seed = random_mix((uint64_t)time(NULL) ^ ((uint64_t)getpid() << 32));
  return fuzz(&o);
}
