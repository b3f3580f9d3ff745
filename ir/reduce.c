/* reduce.c: makes a program and the plan that was made of it smaller, alike, so that comparing the two is cheap and what
   may be wrong with the plan is still there: whole, short and empty chunks, granules, reach of halos, at least two of
   everything.

     source, plan with B=8@data, T=128, V=50257@model, L=126     ->     B=4@data, T=2, V=3@model, L=2

   Both keep their leaves, their ops and the text of their bodies. On a mesh of more ranks than wanted, axes become
   shorter as well, part by part: data = 64 of which one dim uses only data(1:8) is two digits, 8 and 8. */
#include "reduce.h"

/* ---- the mesh ---- */

static void add_cut(int64_t *cut, int *n, int64_t at) {
  for (int i = 0; i < *n; i++)
    if (cut[i] == at) return;
  int i = (*n)++;
  for (; i > 0 && cut[i - 1] > at; i--) cut[i] = cut[i - 1];
  cut[i] = at;
}

enum { MAX_CUTS = 64 };

typedef struct {
  int n;
  int64_t at[MAX_CUTS];
} Cuts;

static void cut_parts(Cuts *cuts, const AxisPart *part, int n) {
  for (int i = 0; i < n; i++) {
    Cuts *c = &cuts[part[i].axis];
    if (c->n > MAX_CUTS - 2) continue;
    add_cut(c->at, &c->n, part[i].pre);
    add_cut(c->at, &c->n, part[i].pre * part[i].size);
  }
}

static void each_split(Module *m, Region *g, void (*f)(void *cx, Split *s), void *cx) {
  for (int i = 0; i < g->ops.n; i++) {
    Op *op = g->ops.at[i];
    for (int k = 0; k < op->space.n; k++) f(cx, &op->space.idx[k].split);
    if (op->body_region) each_split(m, op->body_region, f, cx);
  }
}

/* Every list of axis parts of a module, as splits; pending sets are handed over as such. */
static void each_parts(Module *m, void (*f)(void *cx, Split *s), void (*g)(void *cx, Pending *p), void *cx) {
  for (ValueId v = 0; v < m->values.n; v++) {
    Type *t = &m->values.at[v].type;
    for (int d = 0; d < t->rank; d++) f(cx, &t->dim[d].split);
    g(cx, &t->pending);
  }
  for (int p = 0; p < m->programs.n; p++) each_split(m, m->programs.at[p].body, f, cx);
}

static void cut_split(void *cx, Split *s) { cut_parts(cx, s->part, s->n); }
static void cut_pending(void *cx, Pending *p) { cut_parts(cx, p->part, p->n); }

/* An axis whose cuts do not divide each other stays one digit, which cannot shrink. */
static bool chain(const Cuts *c) {
  for (int i = 1; i < c->n; i++)
    if (c->at[i] % c->at[i - 1]) return false;
  return true;
}

static void make_digits(Sizes *s, const Cuts *cuts, bool smaller) {
  for (int a = 0; a < s->mesh->naxes; a++) {
    Digits *d = &s->axis[a];
    const Cuts *c = &cuts[a];
    bool parts = chain(c);
    *d = (Digits){0};
    for (int i = 1; i < c->n && parts; i++) d->was[d->n++] = c->at[i] / c->at[i - 1];
    if (!parts) d->was[d->n++] = s->mesh->axis[a].size;
    for (int i = 0; i < d->n; i++) d->now[i] = smaller && parts ? min_i64(d->was[i], 2) : d->was[i];
  }
}

static int64_t axis_size(const Digits *d) {
  int64_t n = 1;
  for (int i = 0; i < d->n; i++) n *= d->now[i];
  return n;
}

static int64_t ranks_now(const Sizes *s) {
  int64_t n = 1;
  for (int a = 0; a < s->mesh->naxes; a++) n *= axis_size(&s->axis[a]);
  return n;
}

/* The pattern of some size of group `root` does not fit the smaller mesh: the shortest digit that deals it out grows. */
static bool grow(Sizes *s, int root) {
  int64_t *least = NULL, was = 0;
  for (int i = 0; i < s->dealt.n; i++) {
    if (size_root(s, s->dealt.at[i].size, NULL) != root) continue;
    const Split *split = s->dealt.at[i].split;
    for (int k = 0; k < split->n; k++) {
      Digits *d = &s->axis[split->part[k].axis];
      int64_t at = 1;
      for (int j = 0; j < d->n; at *= d->was[j++]) {
        bool used = at >= split->part[k].pre && at < split->part[k].pre * split->part[k].size;
        if (used && d->now[j] < d->was[j] && (!least || d->now[j] < *least)) least = &d->now[j], was = d->was[j];
      }
    }
  }
  if (least) *least = min_i64(was, *least + 1);
  return least != NULL;
}

static AxisPart smaller_part(const Sizes *s, AxisPart p) {
  const Digits *d = &s->axis[p.axis];
  AxisPart r = {p.axis, 1, 1};
  int64_t at = 1;
  for (int j = 0; j < d->n; at *= d->was[j++]) {
    if (at < p.pre)
      r.pre *= d->now[j];
    else if (at < p.pre * p.size)
      r.size *= d->now[j];
  }
  return r;
}

static void shrink_split(void *cx, Split *s) {
  for (int i = 0; i < s->n; i++) s->part[i] = smaller_part(cx, s->part[i]);
}
static void shrink_pending(void *cx, Pending *p) {
  for (int i = 0; i < p->n; i++) p->part[i] = smaller_part(cx, p->part[i]);
}

static void shrink_mesh(const Sizes *s, Module *m) {
  each_parts(m, shrink_split, shrink_pending, (void *)s);
  for (int a = 0; a < m->mesh.naxes; a++) m->mesh.axis[a].size = axis_size(&s->axis[a]);
}

/* ---- the whole ---- */

static int64_t solve(Sizes *s, int64_t max_ranks) {
  int failed;
  while ((failed = sizes_solve(s)) >= 0)
    if (!grow(s, failed) || ranks_now(s) > max_ranks) return failed;
  return -1;
}

bool ir_reduce(Module *source, Module *plan, int64_t max_ranks, int64_t least, const char **why) {
  Arena *scratch = arena_new();
  Mesh mesh = source->mesh;
  Sizes s = {.arena = scratch, .mesh = &mesh, .least = least};
  Cuts cuts[MAX_AXES] = {0};
  for (int a = 0; a < mesh.naxes; a++) {
    add_cut(cuts[a].at, &cuts[a].n, 1);
    add_cut(cuts[a].at, &cuts[a].n, mesh.axis[a].size);
  }
  each_parts(source, cut_split, cut_pending, cuts);
  if (plan) each_parts(plan, cut_split, cut_pending, cuts);
  bool smaller = mesh_devices(&mesh) > max_ranks;
  make_digits(&s, cuts, smaller);
  Links a, b;
  links_make(&a, &s, source);
  if (plan) {
    links_make(&b, &s, plan);
    links_same_names(&a, &b);
  }
  links_read(&a);
  if (plan) links_read(&b);
  int64_t failed = solve(&s, max_ranks);
  bool ok = failed < 0 && ranks_now(&s) <= max_ranks;
  if (ok) {
    links_apply(&a);
    if (plan) links_apply(&b);
    if (smaller) shrink_mesh(&s, source);
    if (smaller && plan) shrink_mesh(&s, plan);
  } else {
    *why = failed < 0 ? "axes are split in parts that have no common order"
                      : arena_printf(source->arena, "a dim of %lld elements is dealt out as it cannot be over fewer ranks",
                                     (long long)s.sizes.at[failed].n);
  }
  arena_free(scratch);
  return ok;
}
