/* main.c: dtc_faults [--faults N] [--variants N] [--seconds S] [--seed S]: plans with a fault must be rejected by verifier or
   certificate if their meaning changed, plans that are only unusual must be accepted. A third of the programs are models, the
   others random. Each core has a worker, which tries every program in a child; counts are in shared memory.

     fault                 tried  lawful  changed  by laws  by certificate  MISSED                                  */
#include <argp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../frontend/driver.h"
#include "faults.h"
#include "online.h"

enum { MAX_ROWS = 64, MAX_WORKERS = 64, EDITS = 12 /* per program, of each sort */ };

typedef struct {
  int64_t tried, lawful, changed, by_laws, by_certificate, missed, refused, unknown;
} Count;

typedef struct {
  Count fault[MAX_ROWS], variant[MAX_ROWS], plans, online;
  int64_t programs, skipped;
  bool failed;
} Progress;

typedef struct {
  int64_t faults, variants, seconds, workers;
  uint64_t seed, only;
  bool seeded, verbose;
} Wishes;

typedef struct {
  Arena *a;
  uint64_t seed;
  const Wishes *o;
  Progress *p;
  PassContext cx;
  Module *source, *plan, *scheduled;
  Judge judge;
} Case;

/* ---- programs ---- */

static const char *const MODELS[] = {
    "examples/charlm.dt B=4 T=6 V=10 D=8 H=2 L=2",
    "examples/llama.dt B=4 T=6 V=10 D=16 G=2 R=2 F=12 L=2",
    "examples/mlp.dt B=10 P=6 H=9 C=5",
    "examples/charlm.dt B=3 T=5 V=7 D=6 H=3 L=3",
};
enum { NMODELS = sizeof MODELS / sizeof *MODELS };

static Module *make_program(Case *c) {
  static const GenOptions REAL = {.small = false, .gradients = true, .updates = true, .random = true, .repeats = true};
  bool model = c->seed % 3 == 0;
  Module *m = model ? fuzz_model(c->a, MODELS[c->seed / 3 % NMODELS]) : fuzz_program(c->a, c->seed, REAL);
  fuzz_annotate(m, random_mix(c->seed), 8);
  if (!m->train.present) return m;
  ir_gradient(m, &c->cx);
  if (model) ir_update(m, &c->cx);
  return m;
}

static Module *run_passes(Case *c, const Module *from, PassContext *cx, const char *first, const char *last) {
  Module *m = ir_clone(from, c->a);
  for (int i = pipeline_find(first); i <= pipeline_find(last); i++) {
    pipeline[i].run(m, cx);
    if (cx->diags->nerrors) return NULL;
  }
  return m;
}

/* ---- verdicts ---- */

static CertifyResult certificate_of(Case *c, const Module *plan, const Module *scheduled, const char **why) {
  CertifyInput in = {.source = c->source, .plan = plan, .scheduled = scheduled, .cx = &c->cx, .seed = c->seed};
  Certificate r = certify(c->a, &in);
  *why = r.why;
  return r.result;
}

static void tell(const Case *c, const char *what, const char *name, const char *why, const Module *m) {
  printf("%s: %s (seed 0x%llx)%s%s\n", what, name, (unsigned long long)c->seed, why ? ": " : "", why ? why : "");
  if (c->o->verbose) printf("%s\n--- the source\n%s", ir_print(m, c->a), ir_print(c->source, c->a));
  fflush(stdout);
}

/* An edit that finds no place at first may find another. */
static bool applies(const EditRow *row, Edit *e) {
  bool done = false;
  for (int i = 0; i < 20 && !done; i++) {
    done = row->fn(e);
    ir_number(e->m);
  }
  return done;
}

static void try_fault(Case *c, const EditRow *row, Count *n, uint64_t salt) {
  bool full = row->stage == STAGE_SCHEDULED;
  Edit e = {c->a, ir_clone(full ? c->scheduled : c->plan, c->a), {random_mix(c->seed ^ salt)}};
  const char *why = NULL;
  if (!applies(row, &e)) return;
  n->tried++;
  bool lawful = ir_verify(e.m, NULL, &why);
  Judgement j = judge_apart(&c->judge, e.m);
  bool changed = j == JUDGE_DIFFERS || j == JUDGE_CRASHES;
  n->lawful += lawful, n->changed += changed;
  n->by_laws += changed && !lawful;
  if (!changed || !lawful) return;
  CertifyResult r = certificate_of(c, full ? c->plan : e.m, full ? e.m : NULL, &why);
  n->by_certificate += r == CERTIFY_MISMATCH;
  n->unknown += r == CERTIFY_UNKNOWN;
  if (r == CERTIFY_EQUAL) n->missed++, tell(c, "MISSED", row->name, NULL, e.m);
}

static void expect_accepted(Case *c, const Module *m, const char *name, Count *n) {
  const char *why = NULL;
  n->tried++;
  if (!ir_verify(m, NULL, &why)) return; /* the edit was none after all */
  n->lawful++;
  if (judge_apart(&c->judge, m) != JUDGE_SAME) {
    n->changed++;
    return;
  }
  CertifyResult r = certificate_of(c, m, NULL, &why);
  n->unknown += r == CERTIFY_UNKNOWN;
  if (r == CERTIFY_MISMATCH) n->refused++, tell(c, "REFUSED", name, why, m);
}

static void try_variant(Case *c, const EditRow *row, Count *n, uint64_t salt) {
  Edit e = {c->a, ir_clone(c->plan, c->a), {random_mix(c->seed ^ salt)}};
  if (!applies(row, &e)) return;
  expect_accepted(c, e.m, row->name, n);
}

/* The same program planned with other wishes. */
static void try_plans(Case *c) {
  Module *m = ir_clone(c->source, c->a);
  PassContext cx = {.diags = diags_new(c->a), .propagate_only = c->seed % 2, .keep_gathered = c->seed / 2 % 2};
  const char *const names[] = {"bytes", "h100"};
  cx.cluster = cluster_find(c->a, cx.diags, &m->mesh, names[c->seed / 4 % 2]);
  m = run_passes(c, m, &cx, "propagate", "localize");
  if (m) expect_accepted(c, m, "another plan", &c->p->plans);
}

static void try_online(Case *c) {
  Case on = *c;
  if (!online_softmax(c->a, c->seed, &on.source, &on.plan)) internal_error("the program of softmax over ranks does not read");
  on.judge = judge_new(c->a, on.source, on.seed);
  expect_accepted(&on, on.plan, "softmax over ranks", &c->p->online);
}

/* ---- one program ---- */

static void try_program(Case *c) {
  const char *why = NULL;
  c->cx.diags = diags_new(c->a);
  c->source = make_program(c);
  c->plan = run_passes(c, c->source, &c->cx, "propagate", "localize");
  c->scheduled = c->plan ? run_passes(c, c->plan, &c->cx, "group", "buffers") : NULL;
  if (c->scheduled) c->judge = judge_new(c->a, c->source, c->seed);
  bool sound = c->scheduled && judge(&c->judge, c->plan) == JUDGE_SAME;
  CertifyResult r = sound ? certificate_of(c, c->plan, c->scheduled, &why) : CERTIFY_UNKNOWN;
  if (r == CERTIFY_MISMATCH) c->p->plans.refused++, tell(c, "REFUSED", "the plan itself", why, c->plan);
  if (r != CERTIFY_EQUAL) {
    c->p->skipped++;
    return;
  }
  for (int i = 0; i < EDITS; i++) {
    int f = (int)(random_mix(c->seed + 1000 + (uint64_t)i) % (uint64_t)nfaults),
        v = (int)(random_mix(c->seed + 2000 + (uint64_t)i) % (uint64_t)nvariants);
    try_fault(c, &faults[f], &c->p->fault[f], (uint64_t)i * 2 + 1);
    try_variant(c, &variants[v], &c->p->variant[v], (uint64_t)i * 2 + 2);
  }
  try_plans(c);
  try_online(c);
}

static bool run_child(const Wishes *o, Progress *p, uint64_t seed) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    alarm(120);
    Arena *a = arena_new();
    Case c = {.a = a, .seed = seed, .o = o, .p = p};
    try_program(&c);
    fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  p->programs++;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  printf("CRASHED: seed 0x%llx, status %d\n", (unsigned long long)seed, status);
  return false;
}

/* ---- the table ---- */

static void add_count(Count *t, const Count *c) {
  t->tried += c->tried, t->lawful += c->lawful, t->changed += c->changed, t->by_laws += c->by_laws;
  t->by_certificate += c->by_certificate, t->missed += c->missed, t->refused += c->refused, t->unknown += c->unknown;
}

static Count total(const Count *rows, int n) {
  Count t = {0};
  for (int i = 0; i < n; i++) add_count(&t, &rows[i]);
  return t;
}

static Progress all_workers(const Progress *p, int64_t n) {
  Progress t = {0};
  for (int64_t w = 0; w < n; w++) {
    for (int i = 0; i < nfaults; i++) add_count(&t.fault[i], &p[w].fault[i]);
    for (int i = 0; i < nvariants; i++) add_count(&t.variant[i], &p[w].variant[i]);
    add_count(&t.plans, &p[w].plans);
    add_count(&t.online, &p[w].online);
    t.programs += p[w].programs, t.skipped += p[w].skipped, t.failed |= p[w].failed;
  }
  return t;
}

static void print_fault(const char *name, const Count *c) {
  printf("%-34s %7lld %8lld %8lld %12lld %8lld %8lld\n", name, (long long)c->tried, (long long)c->changed, (long long)c->by_laws,
         (long long)c->by_certificate, (long long)c->unknown, (long long)c->missed);
}

static void print_variant(const char *name, const Count *c) {
  printf("%-34s %7lld %8lld %8lld %8lld\n", name, (long long)c->tried,
         (long long)(c->lawful - c->changed - c->unknown - c->refused), (long long)c->unknown, (long long)c->refused);
}

static int64_t accepted(const Progress *p) {
  Count t = total(p->variant, nvariants);
  return t.lawful - t.changed - t.unknown - t.refused + p->plans.lawful + p->online.lawful;
}

static void print_table(const Progress *p) {
  Count f = total(p->fault, nfaults), v = total(p->variant, nvariants);
  printf("\n%-34s %7s %8s %8s %12s %8s %8s\n", "fault", "tried", "changed", "by laws", "certificate", "unknown", "missed");
  for (int i = 0; i < nfaults; i++) print_fault(faults[i].name, &p->fault[i]);
  print_fault("all", &f);
  printf("\n%-34s %7s %8s %8s %8s\n", "valid but unusual", "tried", "accepted", "unknown", "refused");
  for (int i = 0; i < nvariants; i++) print_variant(variants[i].name, &p->variant[i]);
  print_variant("other options of the planner", &p->plans);
  print_variant("softmax over ranks", &p->online);
  v = (Count){.tried = v.tried + p->plans.tried + p->online.tried, .refused = v.refused + p->plans.refused + p->online.refused};
  printf("%lld programs, %lld of them skipped\n", (long long)p->programs, (long long)p->skipped);
}

/* ---- the command ---- */

static bool enough(const Wishes *o, const Progress *p) {
  Progress t = all_workers(p, o->workers);
  return total(t.fault, nfaults).changed >= o->faults && accepted(&t) >= o->variants;
}

/* Programs w, w + workers, ..., while the workers together have not enough. */
static void work(const Wishes *o, Progress *p, int64_t w, time_t until) {
  for (uint64_t i = (uint64_t)w; time(NULL) < until && !enough(o, p); i += (uint64_t)o->workers) {
    if (!run_child(o, &p[w], o->only ? o->only : random_mix(random_mix(o->seed) + i))) p[w].failed = true;
    if (o->only) return;
  }
}

static int run(Wishes *o) {
  size_t bytes = sizeof(Progress) * (size_t)o->workers;
  Progress *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) internal_error("cannot map memory");
  printf("dtc_faults --faults %lld --variants %lld --seconds %lld --seed %llu\n", (long long)o->faults, (long long)o->variants,
         (long long)o->seconds, (unsigned long long)o->seed);
  fflush(stdout);
  time_t begin = time(NULL);
  for (int64_t w = 0; w < o->workers; w++) {
    pid_t child = fork();
    if (child < 0) internal_error("cannot start a worker");
    if (child > 0) continue;
    work(o, p, w, begin + o->seconds);
    _exit(0);
  }
  while (wait(NULL) > 0) continue;
  Progress t = all_workers(p, o->workers);
  print_table(&t);
  printf("%lld seconds\n", (long long)(time(NULL) - begin));
  return t.failed || total(t.fault, nfaults).missed || total(t.variant, nvariants).refused || t.plans.refused || t.online.refused;
}

static error_t parse_option(int key, char *arg, struct argp_state *state) {
  Wishes *o = state->input;
  switch (key) {
  case 'f': o->faults = strtoll(arg, NULL, 0); return 0;
  case 'a': o->variants = strtoll(arg, NULL, 0); return 0;
  case 't': o->seconds = strtoll(arg, NULL, 0); return 0;
  case 's': o->seed = strtoull(arg, NULL, 0), o->seeded = true; return 0;
  case 'j': o->workers = max_i64(1, min_i64(strtoll(arg, NULL, 0), MAX_WORKERS)); return 0;
  case 'r': o->only = strtoull(arg, NULL, 0); return 0;
  case 'v': o->verbose = true; return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

int main(int argc, char **argv) {
  static const struct argp_option options[] = {
      {"faults", 'f', "N", 0, "faults that change the meaning (500)", 0},
      {"variants", 'a', "N", 0, "valid plans (500)", 0},
      {"seconds", 't', "S", 0, "at most (600)", 0},
      {"workers", 'j', "N", 0, "processes that try them (one per core)", 0},
      {"seed", 's', "S", 0, "where to start (a fresh one)", 0},
      {"replay", 'r', "SEED", 0, "run the one program that was named", 0},
      {"verbose", 'v', NULL, 0, "print the programs of what is missed or refused", 0},
      {0},
  };
  static const struct argp argp = {.options = options, .parser = parse_option, .doc = "Is the certificate to be trusted?"};
  Wishes o = {.faults = 500, .variants = 500, .seconds = 600};
  o.workers = max_i64(1, min_i64(sysconf(_SC_NPROCESSORS_ONLN), MAX_WORKERS));
  argp_parse(&argp, argc, argv, 0, NULL, &o);
  if (o.only) o.workers = 1;
  if (!o.seeded) o.seed = random_mix((uint64_t)time(NULL) ^ ((uint64_t)getpid() << 32));
  return run(&o);
}
