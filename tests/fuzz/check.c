/* check.c: does a program mean the same however it is distributed? The annotated module is run whole, then taken
   through every pass; after localize and over the planned arena it is run on all ranks. Outputs, gradients and
   updated leaves must be equal to the last bit, and replicas must agree. A thorough check runs it after the passes
   before, too, and prints and reads it back at every stage; a related one plans it again as relate.c says it. */
#include "fuzz.h"

#include "codegen/codegen.h"
#include "partitioner/partitioner.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct {
  Module *m;
  Arena *a;
  CheckOptions o;
  EvalRun *whole;
  Verdict *out;
} Check;

__attribute__((format(printf, 3, 4))) static bool verdict(Check *c, CheckResult result, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(c->out->text, sizeof c->out->text, fmt, ap);
  va_end(ap);
  c->out->result = result;
  return false;
}

static bool reads_back(Check *c) {
  const char *text = ir_print(c->m, c->a), *why = NULL;
  if (!ir_verify(c->m, NULL, &why)) return verdict(c, CHECK_UNLAWFUL, "at stage %d: %s", c->m->stage, why);
  Diags *d = diags_new(c->a);
  Module *back = ir_parse(c->a, d, diags_add_file(d, "printed", text, strlen(text)));
  if (!back)
    return verdict(c, CHECK_UNLAWFUL, "stage %d is not read back: %s", c->m->stage, d->list.n ? d->list.at[0]->message : "");
  const char *again = ir_print(back, c->a), *x = text, *y = again;
  if (!strcmp(again, text)) return true;
  for (const char *p = text, *q = again; *p && *p == *q; p++, q++)
    if (*p == '\n') x = p + 1, y = q + 1;
  return verdict(c, CHECK_UNLAWFUL, "stage %d prints differently when read back:\n%.*s\n%.*s", c->m->stage, (int)strcspn(x, "\n"),
                 x, (int)strcspn(y, "\n"), y);
}

Tensor fuzz_leaf(Arena *a, const Module *m, const Op *op, CheckOptions o) {
  int64_t n = type_elements(&m->values.at[op->out[0]].type);
  Tensor x = {.at = NEW_ARRAY(a, Num, n)};
  uint64_t key = o.seed;
  for (const char *s = op->name; *s; s++) key = random_mix(key ^ (unsigned char)*s);
  for (int64_t e = 0; e < n; e++) {
    int64_t k = (int64_t)(random_mix(key + (uint64_t)e) % 7) - 3;
    x.at[e] = o.real ? (Num){.f = (double)k} : (Num){.i = k};
  }
  return x;
}

static void set_leaves(const Check *c, EvalRun *r) {
  const Region *g = c->m->programs.at[0].body;
  for (int i = 0; i < g->ops.n; i++) {
    const Op *op = g->ops.at[i];
    if ((op->kind != OP_PARAM && op->kind != OP_INPUT) || c->m->values.at[op->out[0]].type.dtype != F32) continue;
    Tensor x = fuzz_leaf(c->a, c->m, op, c->o);
    eval_set_leaf(r, op->name, &x);
  }
}

static EvalRun *run(Check *c, bool ranks, bool in_arena, const char **why) {
  EvalOptions o = {.domain = c->o.small ? DOMAIN_INT : DOMAIN_MOD,
                   .ranks = ranks,
                   .in_arena = in_arena,
                   .seed = c->o.seed,
                   .exact = c->o.exact,
                   .step = c->o.emitted ? 0 : 3};
  EvalRun *r = eval_new(c->m, c->a, o);
  if (c->o.emitted && c->o.small) set_leaves(c, r);
  return eval_step(r, why) ? r : NULL;
}

static bool same_tensor(Check *c, const Op *op, const char *what, const char *when, Tensor x, Tensor y) {
  int64_t n = type_elements(&c->m->values.at[op->nin ? op->in[0] : op->out[0]].type);
  for (int64_t e = 0; e < n; e++)
    if (x.at[e].i != y.at[e].i)
      return verdict(c, CHECK_DIFFERS, "%s: %s differs at element %lld: whole %lld, partitioned %lld", when, what, (long long)e,
                     (long long)x.at[e].i, (long long)y.at[e].i);
  return true;
}

static bool same_results(Check *c, EvalRun *r, const char *when) {
  const Region *g = c->m->programs.at[0].body;
  for (int i = 0; i < g->ops.n; i++) {
    const Op *op = g->ops.at[i];
    if (op->kind == OP_TAP && !same_tensor(c, op, op->name ? op->name : "loss", when, eval_tap(c->whole, op->tap, op->name),
                                           eval_tap(r, op->tap, op->name)))
      return false;
    if (op->kind != OP_PARAM && op->kind != OP_STATE) continue;
    if (!same_tensor(c, op, op->name, when, eval_leaf(c->whole, op->name), eval_leaf(r, op->name))) return false;
  }
  return true;
}

/* What the partitioner says that a rank receives in a step. */
static int64_t priced(const Module *m, const Region *g, int64_t times, int64_t rank) {
  int64_t bytes = 0;
  for (int i = 0; i < g->ops.n; i++) {
    const Op *op = g->ops.at[i];
    if (op->body_region) bytes += priced(m, op->body_region, times * op->trip, rank);
    for (int k = 0; op_is_collective(op->kind) && k < op->nin; k++)
      bytes += times * move_received(&m->mesh, op->kind, &m->values.at[op->in[k]].type, &m->values.at[op->out[k]].type, rank);
  }
  return bytes;
}

int64_t fuzz_bytes(const Module *m) {
  int64_t most = 0;
  for (int64_t rank = 0; rank < mesh_devices(&m->mesh); rank++) most = max_i64(most, priced(m, m->programs.at[0].body, 1, rank));
  return most;
}

static bool prices_agree(Check *c, const EvalRun *r, const char *when) {
  for (int64_t rank = 0; rank < mesh_devices(&c->m->mesh); rank++) {
    int64_t said = priced(c->m, c->m->programs.at[0].body, 1, rank), seen = eval_received(r, rank);
    if (said != seen)
      return verdict(c, CHECK_DIFFERS, "%s: rank %lld receives %lld bytes, priced at %lld", when, (long long)rank,
                     (long long)seen, (long long)said);
  }
  return true;
}

static bool agrees(Check *c, const char *when, bool in_arena) {
  const char *why = NULL;
  EvalRun *r = run(c, true, in_arena, &why);
  if (!r) return verdict(c, CHECK_DIFFERS, "%s: %s", when, why);
  if (!same_results(c, r, when)) return false;
  if (!eval_agree(r, &why)) return verdict(c, CHECK_DIFFERS, "%s: %s", when, why);
  return !c->o.thorough || c->m->stage < STAGE_COLLECTED || prices_agree(c, r, when);
}

typedef struct {
  const char *name;
  PassFn *fn;
  int run; /* on all ranks after it: 2 always, 1 when thorough */
  bool in_arena;
} PassRow;
static const PassRow PASSES[] = {
    {"propagate", part_propagate, 0, false}, {"reshard", part_reshard, 1, false}, {"collect", part_collect, 1, false},
    {"hoist", part_hoist, 1, false},         {"save", part_save, 0, false},       {"combine", part_combine, 1, false},
    {"localize", part_localize, 2, false},   {"group", cg_group, 0, false},       {"schedule", cg_schedule, 0, false},
    {"buffers", cg_buffers, 2, true},
};

/* A reshard to the layout that it has before the last use of every other value of the region. */
static void add_idle_reshards(Module *m, Region *g) {
  for (int i = 0; i < g->ops.n; i++) {
    Op *op = g->ops.at[i];
    if (op->body_region) add_idle_reshards(m, op->body_region);
    if (op_class(op->kind) != CLS_SPACE || op->nin == 0 || random_mix((uint64_t)i) % 2) continue;
    const Value v = m->values.at[op->in[0]];
    if (v.type.pending.n > 0 || v.type.rank == 0 || type_windowed(&v.type)) continue;
    Op *idle = ir_op(m, OP_RESHARD, op->loc);
    idle->phase = op->phase;
    idle->why = "it changes nothing";
    ir_in(m, idle, op->in[0]);
    ValueId same = ir_out(m, idle, v.name, v.type);
    for (int k = op->nin - 1; k >= 0; k--)
      if (op->in[k] == idle->in[0]) op->in[k] = same;
    ir_insert(m, g, i++, idle);
  }
}

static bool all_passes(Check *c, PassContext *cx) {
  for (size_t i = 0; i < sizeof PASSES / sizeof PASSES[0]; i++) {
    const PassRow *p = &PASSES[i];
    p->fn(c->m, cx);
    if (cx->diags->nerrors) return verdict(c, CHECK_UNLAWFUL, "after %s: %s", p->name, cx->diags->list.at[0]->message);
    if (c->o.idle && p->fn == part_reshard) add_idle_reshards(c->m, c->m->programs.at[0].body), ir_number(c->m);
    const char *why = NULL;
    bool planned = c->m->stage < STAGE_SCHEDULED || c->m->buffers; /* between schedule and buffers there is nothing to check */
    if (planned && !ir_verify(c->m, p->name, &why)) return verdict(c, CHECK_UNLAWFUL, "after %s: %s", p->name, why);
    if (p->run && c->o.thorough && !reads_back(c)) return false;
    if (p->run + c->o.thorough >= 2 && !agrees(c, p->name, p->in_arena)) return false;
  }
  return true;
}

/* What emitted programs without a train block show: outputs. */
static void taps_become_outputs(Module *m) {
  const Region *g = m->programs.at[0].body;
  for (int i = 0; i < g->ops.n; i++) {
    Op *op = g->ops.at[i];
    if (op->kind != OP_TAP || op->tap == TAP_OUTPUT) continue;
    op->name = arena_printf(m->arena, "shown.%s", op->name ? op->name : "loss");
    op->tap = TAP_OUTPUT;
  }
  m->train = (Train){0};
}

/* The whole program in f64, its parameters and inputs small integers. */
static EvalRun *run_real(Check *c, uint64_t noise, const char **why) {
  EvalRun *r = eval_new(c->m, c->a, (EvalOptions){.domain = DOMAIN_F64, .seed = c->o.seed, .noise = noise});
  set_leaves(c, r);
  return eval_step(r, why) ? r : NULL;
}

/* A run that noise ends says nothing. */
static Shown show(Check *c, const char **why) {
  Shown s = {.whole = c->whole && c->o.real ? run_real(c, 0, why) : c->whole};
  const char *unused;
  for (int k = 0; k < 4 && s.whole && c->o.real; k++) {
    s.moved[s.nmoved] = run_real(c, random_mix(c->o.seed + 1 + (uint64_t)k) | 1, &unused);
    s.nmoved += s.moved[s.nmoved] != NULL;
  }
  return s;
}

/* In a batch it is said later whether they do. */
static void emitted_agrees(Check *c, const Shown *shown) {
  if (c->o.batch) {
    fuzz_batch_add(c->o.batch, c->a, c->m, shown, c->o);
    return;
  }
  const char *why = fuzz_run_emitted(c->a, c->m, shown, c->o);
  if (why) verdict(c, CHECK_DIFFERS, "emitted: %s", why);
}

/* One program in 32 is planned for links that differ, every axis having its own: detours pay there, and their search
   takes several times as long as all the rest. NULL: the default. */
static const Cluster *draw_cluster(Arena *a, const Mesh *m, uint64_t seed) {
  static const double POWERS[] = {1, 10, 100, 1000};
  Rng r = {random_mix(seed ^ UINT64_C(0x6c696e6b73))};
  if (rng_below(&r, 32)) return NULL;
  Cluster *c = NEW(a, Cluster);
  *c = *cluster_default(a, m);
  for (int axis = 0; axis < m->naxes; axis++) {
    c->latency[axis] = 1e-9 * POWERS[rng_below(&r, 4)];
    c->bandwidth[axis] = 1e9 * POWERS[rng_below(&r, 4)];
  }
  return c;
}

static void check_once(Module *m, Arena *a, CheckOptions o, Verdict *out) {
  Check c = {.m = m, .a = a, .o = o, .out = out};
  PassContext cx = {.diags = diags_new(a), .cluster = draw_cluster(a, &m->mesh, o.seed)};
  *out = (Verdict){.result = CHECK_AGREES};
  if (o.thorough && !reads_back(&c)) return;
  if (m->train.present) ir_gradient(m, &cx);
  if (m->train.present && o.updates) ir_update(m, &cx);
  if (m->train.present && o.thorough && !reads_back(&c)) return;
  double points = ir_points(m, false, 0);
  if (points > CHECK_POINTS) {
    verdict(&c, CHECK_SKIPPED, "its gradient has %.1e points", points);
    return;
  }
  if (o.emitted) taps_become_outputs(m), m->target = o.target, m->least_product = 1; /* however small the spaces are */
  const char *why = NULL;
  c.m = ir_clone(m, a); /* the passes change m; the whole run keeps its own */
  c.whole = run(&c, false, false, &why);
  Shown shown = show(&c, &why);
  c.m = m;
  if (!shown.whole)
    verdict(&c, CHECK_SKIPPED, "%s", why);
  else if (all_passes(&c, &cx) && o.emitted)
    emitted_agrees(&c, &shown);
}

void fuzz_check(Module *m, Arena *a, CheckOptions o, Verdict *out) {
  const Module *annotated = o.related ? ir_clone(m, a) : NULL;
  if (annotated) m = ir_clone(annotated, a); /* as what is compared with it: names given away and lost are free again */
  check_once(m, a, o, out);
  o.related = false;
  if (annotated && out->result == CHECK_AGREES) fuzz_relate(annotated, m, a, o, out);
}

/* A compiler's fault ends the process, so shrinking tries in a child; what it says on stderr becomes the text. */
void fuzz_check_apart(const Module *m, CheckOptions o, Verdict *out) {
  o.thorough = true;
  Verdict *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int err[2];
  if (shared == MAP_FAILED || pipe(err)) internal_error("cannot start a child process");
  shared->result = CHECK_CRASHED;
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    dup2(err[1], 2);
    alarm(60);
    Arena *a = arena_new();
    fuzz_check(ir_clone(m, a), a, o, shared);
    _exit(0);
  }
  close(err[1]);
  char text[sizeof shared->text] = "";
  size_t n = 0;
  for (ssize_t got; n + 1 < sizeof text && (got = read(err[0], text + n, sizeof text - 1 - n)) > 0;) n += (size_t)got;
  close(err[0]);
  int status = 0;
  waitpid(child, &status, 0);
  *out = *shared;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return (void)munmap(shared, sizeof *shared);
  out->result = CHECK_CRASHED;
  int used = snprintf(out->text, sizeof out->text, WIFSIGNALED(status) ? "ended by signal %d: " : "ended with %d: ",
                      WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  memcpy(out->text + used, text, min_i64((int64_t)n, (int64_t)sizeof out->text - used - 1));
  munmap(shared, sizeof *shared);
}

typedef struct {
  CheckOptions o;
  Verdict *v;
} Failing;

static bool fails_alike(void *cx, const Module *m) {
  Failing *f = cx;
  Verdict v;
  fuzz_check_apart(m, f->o, &v);
  if (v.result != f->v->result) return false;
  *f->v = v;
  return true;
}

Module *fuzz_shrink(Arena *a, const Module *m, CheckOptions o, int seconds, Verdict *v) {
  return ir_shrink(a, m, seconds, fails_alike, &(Failing){o, v});
}
