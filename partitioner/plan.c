/* plan.c: the cheapest way from one layout to another, found by search (Dijkstra over layouts).

     [t@model, d] -> [t, d@model]              all_to_all
     [t, d]{model: sum} -> [t@model, d]        reduce_scatter
     [b, d]{data, model: sum} -> [b@data, d]   reduce_scatter over data, all_reduce over model

   While sums are pending, a step ends some of them (where they were: all_reduce; dealt out over a dim:
   reduce_scatter) or narrows a dim to what the target needs (slice: free). A complete layout goes straight to the
   target: every rank receives exactly what it lacks, which no sequence can undercut. Cost: received bytes of the rank
   that receives most, summed over steps, then the number of steps that move anything. */
#include "part.h"

/* uthash takes its memory from the arena that is in scope as `arena`, and never gives it back. */
#define uthash_malloc(size) arena_alloc(arena, (size))
#define uthash_free(p, size) ((void)(p), (void)(size))
#include <uthash.h>

enum { MAX_NODES = 3000, MAX_SUMS = 3 };

typedef struct {
  Type type;
  double bytes;
  int steps, before;
  OpKind kind; /* of the step from `before` to here */
  bool done;
} Node;

typedef struct {
  void *key;
  Plan plan;
  double bytes;
  UT_hash_handle hh;
} Memo;

struct Planner {
  Arena *arena;
  const Mesh *mesh;
  Memo *memo;
  VEC(Node) node; /* of the search in progress */
};

Planner *plan_new(Arena *a, const Mesh *m) {
  Planner *p = NEW(a, Planner);
  p->arena = a;
  p->mesh = m;
  return p;
}

double plan_step_bytes(const Mesh *m, OpKind kind, const Type *from, const Type *to) {
  int64_t most = 0;
  if (kind == OP_SLICE) return 0;
  for (int64_t r = 0, n = mesh_devices(m); r < n; r++) most = max_i64(most, price_received(m, kind, from, to, r));
  return (double)most;
}

/* ---- the search ------------------------------------------------------------------------------------- */

static bool type_valid(const Type *t) {
  for (int d = 0; d < t->rank; d++)
    for (int i = 0; i < t->dim[d].split.n; i++) {
      AxisPart p = t->dim[d].split.part[i];
      for (int j = 0; j < i; j++)
        if (parts_overlap(p, t->dim[d].split.part[j])) return false;
      for (int e = d + 1; e < t->rank; e++)
        if (split_uses(&t->dim[e].split, p)) return false;
      for (int j = 0; j < t->pending.n; j++)
        if (parts_overlap(p, t->pending.part[j])) return false;
    }
  return true;
}

static void reach(Planner *p, int from, OpKind kind, const Type *to) {
  const Node *f = &p->node.at[from];
  if (sharding_equal(&f->type, to)) return;
  double bytes = f->bytes + plan_step_bytes(p->mesh, kind, &f->type, to);
  int steps = f->steps + (kind != OP_SLICE);
  for (int i = 0; i < p->node.n; i++) {
    Node *have = &p->node.at[i];
    if (!sharding_equal(&have->type, to)) continue;
    if (bytes < have->bytes || (bytes == have->bytes && steps < have->steps))
      *have = (Node){*to, bytes, steps, from, kind, false};
    return;
  }
  if (p->node.n < MAX_NODES) vec_push(p->arena, p->node, ((Node){*to, bytes, steps, from, kind, false}));
}

static bool pending_has(const Pending *p, AxisPart x) {
  for (int i = 0; i < p->n; i++)
    if (part_equal(p->part[i], x)) return true;
  return false;
}

/* `t` with the sums in `which` (bits over over[]) ended. */
static Type end_sums(const Type *t, const Pending *over, unsigned which) {
  Type out = *t;
  Pending ending = {0};
  for (int i = 0; i < over->n; i++)
    if (which >> i & 1) ending.part[ending.n++] = over->part[i];
  out.pending.n = 0;
  for (int i = 0; i < t->pending.n; i++)
    if (!pending_has(&ending, t->pending.part[i])) out.pending.part[out.pending.n++] = t->pending.part[i];
  if (out.pending.n == 0) out.pending.kind = RED_NONE;
  return out;
}

/* Deals the ended sums out over dim d, as its minor-most parts, in every order. */
static void scatter_over(Planner *p, int at, const Type *ended, const Pending *over, unsigned which, int d) {
  static const int orders[6][MAX_SUMS] = {{0, 1, 2}, {1, 0, 2}, {0, 2, 1}, {2, 0, 1}, {1, 2, 0}, {2, 1, 0}};
  AxisPart part[MAX_SUMS];
  int n = 0;
  for (int i = 0; i < over->n; i++)
    if (which >> i & 1) part[n++] = over->part[i];
  for (int o = 0; o < (n == 1 ? 1 : n == 2 ? 2 : 6); o++) {
    Type to = *ended;
    Split *s = &to.dim[d].split;
    if (s->n + n > MAX_PARTS) return;
    for (int i = 0; i < n; i++) s->part[s->n++] = part[orders[o][i]];
    if (type_valid(&to) && box_inside(p->mesh, &to, &p->node.at[at].type)) reach(p, at, OP_REDUCE_SCATTER, &to);
  }
}

static int dim_parts(const Type *t) {
  int n = 0;
  for (int d = 0; d < t->rank; d++) n += t->dim[d].split.n;
  return n;
}

/* `to` deals out over its dims all the sums that end from `from` to it, and splits no dim otherwise. */
static bool deals_out(const Type *from, const Type *to) {
  int ended = 0;
  for (int i = 0; i < from->pending.n; i++) {
    if (pending_has(&to->pending, from->pending.part[i])) continue;
    if (!type_uses(to, from->pending.part[i])) return false;
    ended++;
  }
  return dim_parts(to) == dim_parts(from) + ended;
}

/* Some of the sums end together. */
static void end_some(Planner *p, int at, const Pending *over, unsigned which, const Type *target) {
  Type ended = end_sums(&p->node.at[at].type, over, which), whole = *target;
  reach(p, at, OP_ALL_REDUCE, &ended);
  whole.pending = ended.pending;
  if (type_valid(&whole) && deals_out(&p->node.at[at].type, &whole) && box_inside(p->mesh, &whole, &p->node.at[at].type))
    reach(p, at, OP_REDUCE_SCATTER, &whole);
  for (int d = 0; d < target->rank; d++) scatter_over(p, at, &ended, over, which, d);
}

/* The major parts of the target's split that nothing else of `t` uses. */
static Split allowed_prefix(const Type *t, int d, const Split *target) {
  Split s = {.granule = target->granule};
  Type rest = *t;
  rest.dim[d].split.n = 0;
  while (s.n < target->n && !type_uses(&rest, target->part[s.n])) s.part[s.n] = target->part[s.n], s.n++;
  return s;
}

static void slice_all(Planner *p, int at, const Type *target) {
  Type all = p->node.at[at].type;
  for (int d = 0; d < target->rank; d++) {
    Type one = all;
    one.dim[d].split = allowed_prefix(&all, d, &target->dim[d].split);
    if (type_valid(&one) && box_inside(p->mesh, &one, &p->node.at[at].type)) all = one;
  }
  reach(p, at, OP_SLICE, &all);
}

/* What leads to a window is a complete value without one. */
static Type without_windows(const Type *t) {
  Type out = *t;
  for (int d = 0; d < t->rank; d++) out.dim[d].split.window = (Window){0};
  return out;
}

static void expand(Planner *p, int at, const Type *to) {
  Type here = p->node.at[at].type, plain = without_windows(to); /* copies: reach moves nodes */
  const Type *target = here.pending.n == to->pending.n ? to : &plain;
  Pending over = {0};
  for (int i = 0; i < here.pending.n; i++)
    if (!pending_has(&target->pending, here.pending.part[i]) && over.n < MAX_SUMS) over.part[over.n++] = here.pending.part[i];
  if (over.n == 0) {
    reach(p, at, plan_kind(p->mesh, &here, target), target);
    return;
  }
  for (unsigned which = 1; which < 1u << over.n; which++) end_some(p, at, &over, which, target);
  slice_all(p, at, target);
}

static int cheapest_open(const Planner *p) {
  int best = -1;
  for (int i = 0; i < p->node.n; i++) {
    const Node *n = &p->node.at[i];
    if (n->done || !(best < 0 || n->bytes < p->node.at[best].bytes ||
                     (n->bytes == p->node.at[best].bytes && n->steps < p->node.at[best].steps)))
      continue;
    best = i;
  }
  return best;
}

static void search(Planner *p, const Type *from, const Type *to, Memo *out) {
  p->node.n = 0;
  vec_push(p->arena, p->node, ((Node){.type = *from, .before = -1}));
  int at;
  while ((at = cheapest_open(p)) >= 0 && !sharding_equal(&p->node.at[at].type, to)) {
    p->node.at[at].done = true;
    expand(p, at, to);
  }
  if (at < 0) internal_error("no way from one layout to another");
  out->bytes = p->node.at[at].bytes;
  int n = 0, path[MAX_NODES];
  for (int i = at; i > 0; i = p->node.at[i].before) path[n++] = i;
  while (n > 0) {
    const Node *s = &p->node.at[path[--n]];
    vec_push(p->arena, out->plan, ((PlanStep){s->kind, s->type}));
  }
}

/* ---- the memo: layouts as bytes ---------------------------------------------------------------------- */

enum { KEY_WORDS = 2 * (3 + MAX_RANK * (4 + 5 + 2 * MAX_PARTS) + MAX_PARTS * 2) };
typedef struct {
  int n;
  int64_t at[KEY_WORDS];
} Key;

static void key_parts(Key *k, int n, const AxisPart *part) {
  for (int i = 0; i < n; i++) {
    k->at[k->n++] = part[i].axis;
    k->at[k->n++] = part[i].pre * ((int64_t)1 << 32) + part[i].size;
  }
}

static void key_type(Key *k, const Type *t) {
  k->at[k->n++] = t->dtype;
  k->at[k->n++] = t->rank;
  k->at[k->n++] = t->pending.n * 8 + (t->pending.n ? t->pending.kind : 0);
  key_parts(k, t->pending.n, t->pending.part);
  for (int d = 0; d < t->rank; d++) {
    const Split *s = &t->dim[d].split;
    k->at[k->n++] = t->dim[d].size;
    k->at[k->n++] = s->n;
    k->at[k->n++] = s->n ? max_i64(s->granule, 1) : 1;
    key_parts(k, s->n, s->part);
    k->at[k->n++] = s->window.of;
    if (!split_windowed(s)) continue;
    const int64_t w[] = {s->window.mul, s->window.lo, s->window.hi, s->window.div};
    for (int i = 0; i < 4; i++) k->at[k->n++] = w[i];
  }
}

const Plan *plan_find(Planner *p, const Type *from, const Type *to, double *bytes) {
  Key k = {0};
  key_type(&k, from);
  key_type(&k, to);
  size_t size = sizeof(int64_t) * (size_t)k.n;
  Arena *arena = p->arena;
  Memo *m;
  HASH_FIND(hh, p->memo, k.at, size, m);
  if (!m) {
    m = NEW(arena, Memo);
    m->key = arena_alloc(arena, size);
    memcpy(m->key, k.at, size);
    search(p, from, to, m);
    HASH_ADD_KEYPTR(hh, p->memo, m->key, size, m);
  }
  if (bytes) *bytes = m->bytes;
  return &m->plan;
}
