/* certify.c: every compile checks its own result. Source and plan are made smaller alike (ir_reduce), then

     the plan on all ranks in lockstep, and over the planned, poisoned arena, is the source on random inputs
     at full size, no buffer is overwritten while its value is still read
     all ranks run through the same collectives, and none waits for ever

     plan equals the source modulo 2^61 - 1 on 2 random inputs, 4 ranks, with B 8 to 4, T 128 to 2; arena and order checked

   A plan that cannot be run on a smaller mesh is made again for it, by the same passes. */
#include <math.h>

#include "driver.h"
#include "partitioner/partitioner.h"

static const double POINTS = 3e8; /* more bodies than this are not evaluated: two inputs take some seven seconds */
static const double DEAR = 1e7;   /* for more than this axes shrink on small meshes, too: a quarter of a second */
static const double CHEAP = 8e6;  /* some 100 ms: as many inputs as that allows, on dims as large as an eighth of it does */

typedef struct {
  Arena *a;
  const CertifyInput *in;
  Arena *small; /* holds the small ones: */
  Module *source, *plan;
  Certificate c;
} Certify;

static bool stop(Certify *c, CertifyResult result, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static bool stop(Certify *c, CertifyResult result, const char *fmt, ...) {
  Str s = {0};
  va_list ap;
  va_start(ap, fmt);
  str_vprintf(c->a, &s, fmt, ap);
  va_end(ap);
  c->c.result = result;
  c->c.why = s.at;
  return false;
}

/* ---- the small problem ---- */

static bool run_passes(Certify *c, Module *m, const char *first, const char *last) {
  for (int i = pipeline_find(first); i <= pipeline_find(last); i++) {
    pipeline[i].run(m, c->in->cx);
    if (c->in->cx->diags->nerrors) return stop(c, CERTIFY_UNKNOWN, "the smaller problem has no plan");
  }
  return true;
}

static bool plan_again(Certify *c, int64_t ranks) {
  const char *why = NULL;
  c->source = ir_clone(c->in->source, c->small);
  if (!ir_reduce(c->source, NULL, ranks, 2, &why)) return stop(c, CERTIFY_UNKNOWN, "%s", why);
  c->plan = ir_clone(c->source, c->small);
  c->c.planned_again = true;
  return run_passes(c, c->plan, "propagate", "localize");
}

static double points_with(const Certify *c, double ready) {
  return ir_points(c->source, false, ready) + ir_points(c->plan, true, ready);
}

static double points(const Certify *c) { return points_with(c, 0); }
static double cost(const Certify *c) { return points_with(c, 64); } /* an op is made ready on a rank in the time of 64 points */

/* Source and plan made smaller together, both lawful; false if the plan does not bear it. */
static bool shrink_both(Certify *c, int64_t ranks, int64_t least) {
  const char *why = NULL;
  c->source = ir_clone(c->in->source, c->small);
  c->plan = ir_clone(c->in->plan, c->small);
  return ir_reduce(c->source, c->plan, ranks, least, &why) && ir_verify(c->source, NULL, &why) && ir_verify(c->plan, NULL, &why);
}

/* On at most so many ranks; as large as is cheap: what a few integers decide shows only in larger dims. */
static bool shrink_enough(Certify *c, int64_t ranks) {
  static const int64_t LEAST[] = {2, 3, 5, 9};
  Certify best = *c;
  bool found = false, cheap = true;
  for (int i = 0; i < 4 && cheap; i++) {
    c->small = arena_new();
    bool both = shrink_both(c, ranks, LEAST[i]);
    if (both) cheap = cost(c) < CHEAP / 8;
    bool take = both && (cheap || !found);
    arena_free(take ? best.small : c->small);
    if (take) best = *c, found = true;
  }
  *c = best;
  return found;
}

static bool make_small(Certify *c) {
  const char *why = NULL;
  int64_t devices = mesh_devices(&c->in->plan->mesh);
  bool both = shrink_enough(c, CERTIFY_RANKS);
  if (both && points(c) > DEAR && devices > 1 && devices <= CERTIFY_RANKS) shrink_enough(c, devices - 1); /* if that can be */
  if (!both && !plan_again(c, CERTIFY_RANKS)) return false;
  c->c.ranks = mesh_devices(&c->plan->mesh);
  c->c.smaller_mesh = c->c.ranks < mesh_devices(&c->in->plan->mesh);
  if (!both && !ir_verify(c->source, NULL, &why)) return stop(c, CERTIFY_UNKNOWN, "the smaller source breaks a law: %s", why);
  if (!both && !ir_verify(c->plan, NULL, &why)) return stop(c, CERTIFY_MISMATCH, "the smaller plan breaks a law: %s", why);
  if (points(c) > POINTS) return stop(c, CERTIFY_UNKNOWN, "however small, it has %.1e points", points(c));
  return true;
}

/* "B 8 to 4, T 128 to 2": dims by their names, in order of appearance. */
static const char *sizes_text(Certify *c) {
  enum { SHOWN = 8 };
  const char *name[SHOWN];
  Str s = {0};
  int n = 0;
  str_put(c->a, &s, "");
  for (ValueId v = 0; v < c->source->values.n; v++) {
    const Type *was = &c->in->source->values.at[v].type, *now = &c->source->values.at[v].type;
    for (int d = 0; d < now->rank && n < SHOWN; d++) {
      bool seen = !was->dim[d].name || was->dim[d].size == now->dim[d].size;
      for (int i = 0; i < n && !seen; i++) seen = !strcmp(name[i], was->dim[d].name);
      if (seen) continue;
      str_printf(c->a, &s, "%s%s %lld to %lld", n ? ", " : "", was->dim[d].name, (long long)was->dim[d].size,
                 (long long)now->dim[d].size);
      name[n++] = was->dim[d].name;
    }
  }
  return s.at;
}

/* ---- running it ---- */

static bool compare(Certify *c, const Module *plan, uint64_t seed, bool in_arena) {
  Arena *scratch = arena_new();
  const char *why = "";
  Comparison r = ir_compare(c->source, plan, seed, in_arena, scratch, &why);
  const char *when = in_arena ? "over the planned arena, " : "";
  if (r == COMPARE_DIFFERENT) stop(c, CERTIFY_MISMATCH, "%s%s", when, why);
  if (r == COMPARE_UNKNOWN) stop(c, CERTIFY_UNKNOWN, "the source does not run on a random input: %s", why);
  arena_free(scratch);
  return r == COMPARE_EQUAL;
}

static uint64_t next_seed(Certify *c) { return c->c.seeds[c->c.inputs] = random_mix(c->in->seed + (uint64_t)c->c.inputs); }

/* On one input, and on more of them while that is cheap: what depends on a few conditions differs only on some. */
static bool same(Certify *c) {
  double affordable = CHEAP / fmax(cost(c), 1);
  int wanted = affordable < 2 ? 2 : affordable > CERTIFY_INPUTS ? CERTIFY_INPUTS : (int)affordable;
  while (c->c.inputs < wanted - 1) {
    if (!compare(c, c->plan, next_seed(c), false)) return false;
    c->c.inputs++;
  }
  return true;
}

/* From here on the smaller plan is a schedule. */
static bool same_in_arena(Certify *c) {
  Module *m = c->plan;
  const char *why = NULL;
  if (!run_passes(c, m, "group", "buffers")) return false;
  if (!ir_verify(m, NULL, &why)) return stop(c, CERTIFY_MISMATCH, "the schedule of the smaller plan breaks a law: %s", why);
  c->c.arena = compare(c, m, next_seed(c), true);
  c->c.inputs += c->c.arena;
  return c->c.arena;
}

static bool buffers_hold(Certify *c) {
  const char *why = NULL;
  if (!c->in->scheduled) return true;
  c->c.buffers = ir_check_lifetimes(c->in->scheduled, &why);
  return c->c.buffers || stop(c, CERTIFY_MISMATCH, "%s", why);
}

/* ---- the order of collectives ---- */

typedef VEC(const Op *) Calls;

static void list_calls(Arena *a, const Region *g, Calls *calls) {
  for (int i = 0; i < g->ops.n; i++) {
    const Op *op = g->ops.at[i];
    if (op->body_region) list_calls(a, op->body_region, calls);
    if (op_is_collective(op->kind)) vec_push(a, *calls, op);
  }
}

/* The first rank of those that differ from `rank` only in the axes of a call. */
static int64_t leader(const Mesh *m, const Pending *axes, int64_t rank) {
  for (int i = 0; i < axes->n; i++) {
    AxisPart p = axes->part[i];
    int64_t stride = m->axis[p.axis].size / (p.pre * p.size);
    for (int k = p.axis + 1; k < m->naxes; k++) stride *= m->axis[k].size;
    rank -= part_coord(m, p, rank) * stride;
  }
  return rank;
}

/* Every rank runs its queue of calls; a call is over when all of its group have come. */
static bool order_ends(Certify *c) {
  const Module *m = c->plan;
  Calls calls = {0};
  for (int p = 0; p < m->programs.n; p++) list_calls(c->a, m->programs.at[p].body, &calls);
  int64_t ranks = c->c.ranks, waiting = 0;
  int *next = NEW_ARRAY(c->a, int, ranks), *came = NEW_ARRAY(c->a, int, ranks *(calls.n + 1));
  bool *stands = NEW_ARRAY(c->a, bool, ranks);
  c->c.calls = calls.n;
  for (bool more = true; more;) {
    more = false;
    for (int64_t r = 0; r < ranks; r++) {
      if (next[r] == calls.n) continue;
      Pending axes;
      int64_t group;
      price_axes(&m->mesh, calls.at[next[r]], m, &axes, &group);
      int *all = &came[next[r] * ranks + leader(&m->mesh, &axes, r)];
      if (!stands[r]) *all += 1, stands[r] = more = true;
      if (*all == group) next[r]++, stands[r] = false, more = true;
    }
  }
  for (int64_t r = 0; r < ranks; r++) waiting += next[r] < calls.n;
  c->c.order = waiting == 0;
  return c->c.order || stop(c, CERTIFY_MISMATCH, "%lld ranks wait for ever in a collective", (long long)waiting);
}

/* ---- the whole ---- */

static const char *line(Certify *c) {
  const Certificate *r = &c->c;
  if (r->result == CERTIFY_UNKNOWN) return arena_printf(c->a, "not checked: %s", r->why);
  if (r->result == CERTIFY_MISMATCH) return arena_printf(c->a, "the plan is not the program: %s", r->why);
  const char *mesh = r->smaller_mesh ? " on a reduced mesh" : "", *again = r->planned_again ? " (planned again for it)" : "";
  return arena_printf(c->a, "plan equals the source modulo 2^61 - 1 on %d random inputs, %lld rank%s%s%s%s%s; %s%sorder checked",
                      r->inputs, (long long)r->ranks, r->ranks == 1 ? "" : "s", mesh, again, *r->sizes ? ", with " : "", r->sizes,
                      r->buffers ? "buffers, " : "", r->arena ? "arena and " : "");
}

Certificate certify(Arena *a, const CertifyInput *in) {
  Certify c = {.a = a, .in = in, .small = arena_new(), .c = {.sizes = ""}};
  if (make_small(&c)) {
    c.c.sizes = sizes_text(&c);
    (void)(same(&c) && same_in_arena(&c) && buffers_hold(&c) && order_ends(&c));
  }
  c.c.text = line(&c);
  arena_free(c.small);
  return c.c;
}
