/* plan.c: the cheapest way from one layout to another, found by search (Dijkstra over layouts).

     [t@model, d] -> [t, d@model]              all_to_all
     [t, d]{model: sum} -> [t@model, d]        reduce_scatter
     [b, d]{data, model: sum} -> [b@data, d]   reduce_scatter over data, all_reduce over model

   Between complete layouts one step is the way where all links are alike: every rank receives exactly what it lacks,
   which no sequence can undercut. While sums are pending, a step ends some of them (where they were: all_reduce; dealt out
   over dims: reduce_scatter) or narrows dims (slice: free). Whatever is complete goes straight to the target; where the
   axes have different links, detours are tried as well: gathers of the minor parts first, parts in another order or on
   another dim. No layout in between is larger on a device than source and target (or the memory limit), unless there is no
   other way. A way of one step that meets the least that any can receive, or the least time that any can take, is taken
   without a search. */
#include "part.h"

enum { MAX_NODES = 3000, MAX_DETOURS = 300, MAX_SUMS = 3 };

typedef struct {
  int layout;
  const Type *type;
  Price price;
  int odd, before; /* steps that are no standard collective */
  OpKind kind;     /* of the step from `before` to here */
  bool done, complete;
} Node;

/* Links that are no faster than so much: all axes but those that are near. */
typedef struct {
  unsigned near; /* bits */
  double ranks;  /* in a group of near ones */
  double latency, bandwidth;
} Links;

typedef struct {
  Planner *planner;
  const Mesh *mesh;
  const Cluster *cluster;
  int start, end; /* layouts: */
  const Type *from, *to;
  bool uniform;
  int nlinks;
  Links link[MAX_AXES];
  double fastest;  /* bandwidth */
  int64_t largest; /* elements of a device that a layout in between may have */
  int target;      /* the node that is the target, or -1 */
  Arena *arena;
  VEC(Node) node;
} Search;

/* ---- layouts -------------------------------------------------------------------------------------------------------- */

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

/* ---- what a way takes at least ----------------------------------------------------------------------------------------- */

static void find_links(Search *s) {
  const Cluster *c = s->cluster;
  for (int a = 0; a < s->mesh->naxes; a++) {
    Links l = {0, 1, c->latency[a], c->bandwidth[a]};
    bool known = false;
    for (int i = 0; i < s->nlinks; i++) known |= s->link[i].bandwidth == l.bandwidth;
    if (known) continue;
    for (int b = 0; b < s->mesh->naxes; b++) {
      if (c->bandwidth[b] > l.bandwidth)
        l.near |= 1u << b, l.ranks *= (double)s->mesh->axis[b].size;
      else if (c->latency[b] < l.latency)
        l.latency = c->latency[b];
    }
    s->link[s->nlinks++] = l;
    if (!l.near) s->fastest = l.bandwidth;
  }
}

/* An exchange is what any change of a complete layout is; what else it may be costs the same, or nothing where nothing moves. */
static Step one_step(const Search *s, OpKind kind, int from, int to) {
  bool remember = kind == OP_EXCHANGE && !s->uniform; /* without detours few are asked for twice */
  Step *known = remember ? plan_step(s->planner, from, to) : NULL;
  if (known && known->priced) return *known;
  const Type *a = plan_layout_type(s->planner, from), *b = plan_layout_type(s->planner, to);
  Step step = {true, price_step(s->mesh, s->cluster, kind, a, b), kind, -1};
  if (kind == OP_EXCHANGE && step.price.bytes == 0) {
    step.kind = plan_kind(s->mesh, a, b);
    step.price = price_step(s->mesh, s->cluster, step.kind, a, b);
  }
  if (known) *known = step;
  return step;
}

/* From a complete layout: what ranks that are near each other lack together comes over the other axes, to each its share. */
static double least_seconds(const Search *s, int layout) {
  Step *known = plan_step(s->planner, layout, s->end);
  if (known->least >= 0) return known->least;
  double size = (double)dtype_size(s->to->dtype), direct = one_step(s, OP_EXCHANGE, layout, s->end).price.bytes;
  const Type *from = plan_layout_type(s->planner, layout);
  known->least = 0;
  for (int i = 0; i < s->nlinks; i++) {
    const Links *l = &s->link[i];
    double bytes = l->near ? (double)move_lacking(s->mesh, from, s->to, l->near) * size : direct;
    double seconds = bytes > 0 ? l->latency + bytes / l->ranks / l->bandwidth : 0;
    known->least = seconds > known->least ? seconds : known->least;
  }
  return known->least;
}

/* ---- nodes ---------------------------------------------------------------------------------------------------------- */

static bool better(Price a, int odd_a, Price b, int odd_b) {
  int c = price_compare(a, b);
  return c < 0 || (c == 0 && odd_a < odd_b);
}

/* Can a way through here still be better than what is known? */
static bool hopeless(const Search *s, int layout, Price price) {
  if (s->target < 0) return false;
  const Type *here = plan_layout_type(s->planner, layout);
  Price best = s->node.at[s->target].price;
  if (here->pending.n > s->to->pending.n) {
    double bytes = move_bound(s->mesh, here, s->to);
    price = price_add(price, (Price){bytes / s->fastest, bytes, 1});
  } else if (!s->uniform) {
    price.seconds += least_seconds(s, layout);
  }
  return price_compare(price, best) > 0;
}

static void reach(Search *s, int from, OpKind kind, const Type *to);

static void straight_on(Search *s, int at) { reach(s, at, OP_EXCHANGE, s->to); }

static int find_node(const Search *s, int layout) {
  int at = 0;
  while (at < s->node.n && s->node.at[at].layout != layout) at++;
  return at;
}

/* Dealing out needs every rank's part inside what it holds; that is asked last, of what would be an improvement, and so is
   which collective makes the change. */
static void reach(Search *s, int from, OpKind kind, const Type *to) {
  const Node *f = &s->node.at[from];
  if (sharding_equal(f->type, to)) return;
  bool final = sharding_equal(to, s->to);
  if (!final && type_capacity(to) > s->largest) return;
  int layout = final ? s->end : plan_layout(s->planner, to), at = find_node(s, layout);
  if (at < s->node.n && price_compare(f->price, s->node.at[at].price) > 0) return;
  Step step = one_step(s, kind, f->layout, layout);
  Price price = price_add(f->price, step.price);
  if (at < s->node.n && price_compare(price, s->node.at[at].price) > 0) return;
  if (!final && hopeless(s, layout, price)) return;
  kind = step.kind == OP_EXCHANGE ? plan_kind(s->mesh, f->type, to) : step.kind;
  int odd = f->odd + (kind == OP_EXCHANGE);
  if (at < s->node.n ? !better(price, odd, s->node.at[at].price, s->node.at[at].odd) : at == MAX_NODES) return;
  if (kind == OP_REDUCE_SCATTER && !type_inside(s->mesh, to, f->type)) return;
  bool complete = to->pending.n == s->to->pending.n;
  if (at == s->node.n) vec_push(s->arena, s->node, ((Node){0}));
  s->node.at[at] = (Node){layout, plan_layout_type(s->planner, layout), price, odd, from, kind, false, complete};
  if (final)
    s->target = at;
  else if (complete)
    straight_on(s, at);
}

/* ---- moves while sums are pending ------------------------------------------------------------------------------------ */

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

static void try_scatter(Search *s, int at, const Type *to) {
  if (type_valid(to)) reach(s, at, OP_REDUCE_SCATTER, to);
}

/* Deals the ended sums out over dim d, as its minor-most parts, in every order. */
static void scatter_over(Search *s, int at, const Type *ended, const Pending *over, unsigned which, int d) {
  static const int orders[6][MAX_SUMS] = {{0, 1, 2}, {1, 0, 2}, {0, 2, 1}, {2, 0, 1}, {1, 2, 0}, {2, 1, 0}};
  AxisPart part[MAX_SUMS];
  int n = 0;
  for (int i = 0; i < over->n; i++)
    if (which >> i & 1) part[n++] = over->part[i];
  for (int o = 0; o < (n == 1 ? 1 : n == 2 ? 2 : 6); o++) {
    Type to = *ended;
    Split *split = &to.dim[d].split;
    if (split->n + n > MAX_PARTS) return;
    for (int i = 0; i < n; i++) split->part[split->n++] = part[orders[o][i]];
    try_scatter(s, at, &to);
  }
}

/* The major parts of the target's split that nothing else of `t` uses. */
static Split allowed_prefix(Type *t, int d, const Split *target) {
  Split s = {.granule = target->granule};
  int own = t->dim[d].split.n;
  t->dim[d].split.n = 0;
  while (s.n < target->n && !type_uses(t, target->part[s.n])) s.part[s.n] = target->part[s.n], s.n++;
  t->dim[d].split.n = own;
  return s;
}

static Type sliced(const Search *s, const Type *here) {
  Type all = *here;
  for (int d = 0; d < all.rank; d++) {
    Split own = all.dim[d].split, one = allowed_prefix(&all, d, &s->to->dim[d].split);
    if (split_equal(&own, &one)) continue;
    all.dim[d].split = one;
    if (!type_valid(&all) || !type_inside(s->mesh, &all, here)) all.dim[d].split = own;
  }
  return all;
}

/* Deals them out where the target has them, and what else it splits that nothing is split by. */
static void scatter_as_wanted(Search *s, int at, const Type *ended, const Pending *over, unsigned which) {
  Type to = sliced(s, ended);
  for (int i = 0; i < over->n; i++)
    if (which >> i & 1 && !type_uses(&to, over->part[i])) return;
  try_scatter(s, at, &to);
}

/* Some of the sums end together. */
static void end_some(Search *s, int at, const Pending *over, unsigned which) {
  Type ended = end_sums(s->node.at[at].type, over, which);
  reach(s, at, OP_ALL_REDUCE, &ended);
  scatter_as_wanted(s, at, &ended, over, which);
  for (int d = 0; d < ended.rank; d++) scatter_over(s, at, &ended, over, which, d);
}

/* Replicas can share the work of a sum: each takes a part of a dim. */
static void slice_replicas(Search *s, int at) {
  Type here = *s->node.at[at].type;
  for (int a = 0; a < s->mesh->naxes; a++) {
    AxisPart p = axis_whole(s->mesh, a);
    if (p.size < 2 || type_uses(&here, p)) continue;
    for (int d = 0; d < here.rank; d++) {
      Type one = here;
      if (one.dim[d].split.n == MAX_PARTS) continue;
      one.dim[d].split.part[one.dim[d].split.n++] = p;
      if (type_inside(s->mesh, &one, &here)) reach(s, at, OP_SLICE, &one);
    }
  }
}

static void expand_pending(Search *s, int at) {
  Type here = *s->node.at[at].type, slice = sliced(s, &here);
  Pending over = {0};
  for (int i = 0; i < here.pending.n; i++)
    if (!pending_has(&s->to->pending, here.pending.part[i]) && over.n < MAX_SUMS) over.part[over.n++] = here.pending.part[i];
  for (unsigned which = (1u << over.n) - 1; which > 0; which--) end_some(s, at, &over, which);
  reach(s, at, OP_SLICE, &slice);
  slice_replicas(s, at);
}

/* ---- detours over better links ----------------------------------------------------------------------------------------- */

static void detour(Search *s, int at, const Type *to) {
  if (s->node.n < MAX_DETOURS && type_valid(to)) reach(s, at, OP_EXCHANGE, to);
}

static void expand_complete(Search *s, int at) {
  Type here = *s->node.at[at].type, slice = sliced(s, &here);
  reach(s, at, OP_SLICE, &slice);
  for (int d = 0; d < here.rank; d++) {
    Type to = here;
    for (Split *k = &to.dim[d].split; k->n > 0;) { /* the minor parts leave */
      AxisPart p = k->part[--k->n];
      detour(s, at, &to);
      for (int e = 0; e < here.rank; e++) { /* and the last of them enters another dim */
        Type moved = to;
        Split *other = &moved.dim[e].split;
        if (e == d || other->n == MAX_PARTS) continue;
        other->part[other->n++] = p;
        detour(s, at, &moved);
      }
    }
    for (int i = 0; i + 1 < here.dim[d].split.n; i++) { /* two parts change places */
      Type turned = here;
      turned.dim[d].split.part[i] = here.dim[d].split.part[i + 1];
      turned.dim[d].split.part[i + 1] = here.dim[d].split.part[i];
      detour(s, at, &turned);
    }
  }
}

/* ---- the search --------------------------------------------------------------------------------------------------------- */

static int cheapest_open(const Search *s) {
  int best = -1;
  for (int i = 0; i < s->node.n; i++) {
    const Node *n = &s->node.at[i];
    if (n->done || (n->complete && s->uniform && i != s->target)) continue;
    if (best < 0 || better(n->price, n->odd, s->node.at[best].price, s->node.at[best].odd)) best = i;
  }
  return best;
}

static bool run(Search *s) {
  s->node.n = 0, s->target = -1;
  bool complete = s->from->pending.n == s->to->pending.n;
  vec_push(s->arena, s->node, ((Node){.layout = s->start, .type = s->from, .before = -1, .complete = complete}));
  if (sharding_equal(s->from, s->to)) s->target = 0;
  if (complete) straight_on(s, 0);
  for (int at; (at = cheapest_open(s)) >= 0 && at != s->target;) {
    s->node.at[at].done = true;
    if (!s->node.at[at].complete)
      expand_pending(s, at);
    else
      expand_complete(s, at);
  }
  return s->target >= 0;
}

/* ---- ways that need no search -------------------------------------------------------------------------------------------- */

static bool reducible(const Type *from, const Type *to) {
  for (int i = 0; i < to->pending.n; i++)
    if (!pending_has(&from->pending, to->pending.part[i])) return false;
  return true;
}

/* Are all sums that end dealt out over the target's dims, of which every rank's part lies inside what it holds? */
static bool dealt_out(const Search *s) {
  for (int i = 0; i < s->from->pending.n; i++) {
    AxisPart p = s->from->pending.part[i];
    if (!pending_has(&s->to->pending, p) && !type_uses(s->to, p)) return false;
  }
  return !type_windowed(s->to) && type_inside(s->mesh, s->to, s->from);
}

/* At most one step that moves, over links that are alike, and no way can receive less. */
static bool direct(const Search *s, Price *price) {
  *price = (Price){0};
  if (sharding_equal(s->from, s->to)) return true;
  if (s->from->pending.n == s->to->pending.n) {
    *price = one_step(s, OP_EXCHANGE, s->start, s->end).price;
    return s->uniform || price->steps == 0 || price->seconds <= least_seconds(s, s->start) * (1 + 1e-9);
  }
  if (!s->uniform) return false;
  if (dealt_out(s)) {
    *price = price_step(s->mesh, s->cluster, OP_REDUCE_SCATTER, s->from, s->to);
  } else {
    Type slice = sliced(s, s->from), done = slice;
    done.pending = s->to->pending;
    if (!sharding_equal(&done, s->to)) return false;
    *price = price_step(s->mesh, s->cluster, OP_ALL_REDUCE, &slice, &done);
  }
  return price->bytes <= move_bound(s->mesh, s->from, s->to) * (1 + 1e-9) + 8;
}

/* ---- a standard collective in place of an exchange ------------------------------------------------------------------------ */

enum { MAX_FRESH = 4 };

/* What the target splits and the source does not. */
static int fresh_parts(const Type *from, const Type *to, AxisPart *fresh) {
  int n = 0;
  for (int d = 0; d < to->rank; d++)
    for (int i = 0; i < to->dim[d].split.n && n < MAX_FRESH; i++)
      if (!type_uses(from, to->dim[d].split.part[i])) fresh[n++] = to->dim[d].split.part[i];
  return n;
}

/* Replicas that each take their part of the source first, for free, may make a standard collective of an exchange, if nobody
   has to send more then. Tried: every fresh part as the minor part of every dim, or nowhere. */
static bool standard_after_slice(const Mesh *m, const Type *from, const Type *to, Type *slice, OpKind *kind) {
  AxisPart fresh[MAX_FRESH];
  int n = fresh_parts(from, to, fresh), ways = 1;
  int64_t bytes = move_most(m, from, to), sent = move_sent(m, OP_EXCHANGE, from, to);
  for (int i = 0; i < n; i++) ways *= to->rank + 1;
  for (int way = 1; way < ways; way++) {
    *slice = *from;
    for (int i = 0, left = way; i < n; i++, left /= to->rank + 1) {
      int d = left % (to->rank + 1) - 1;
      if (d >= 0 && slice->dim[d].split.n < MAX_PARTS) slice->dim[d].split.part[slice->dim[d].split.n++] = fresh[i];
    }
    if (!type_inside(m, slice, from)) continue;
    *kind = plan_kind(m, slice, to);
    if (*kind != OP_EXCHANGE && move_most(m, slice, to) <= bytes && move_sent(m, *kind, slice, to) <= sent) return true;
  }
  return false;
}

/* ---- the whole ------------------------------------------------------------------------------------------------------------- */

static void add_step(const Search *s, Arena *a, Plan *plan, OpKind kind, const Type *from, const Type *to) {
  Type slice;
  OpKind standard;
  if (kind == OP_EXCHANGE && standard_after_slice(s->mesh, from, to, &slice, &standard)) {
    vec_push(a, *plan, ((PlanStep){OP_SLICE, slice}));
    kind = standard;
  }
  vec_push(a, *plan, ((PlanStep){kind, *to}));
}

static void path_to(const Search *s, int at, Arena *a, Plan *plan) {
  const Node *n = &s->node.at[at];
  if (n->before < 0) return;
  path_to(s, n->before, a, plan);
  add_step(s, a, plan, n->kind, s->node.at[n->before].type, n->type);
}

bool plan_search(Planner *p, int64_t memory_limit, int start, int end, Price *price, Arena *a, Plan *plan) {
  const Mesh *m = plan_mesh(p);
  const Cluster *c = plan_cluster(p);
  const Type *from = plan_layout_type(p, start), *to = plan_layout_type(p, end);
  Search s = {p, m, c, start, end, from, to, .uniform = price_uniform(m, c)};
  if (!reducible(from, to)) return false;
  find_links(&s);
  bool simple = direct(&s, price);
  if (simple && !plan) return true;
  if (simple && from->pending.n == to->pending.n) {
    if (!sharding_equal(from, to)) add_step(&s, a, plan, plan_kind(m, from, to), from, to);
    return true;
  }
  s.arena = arena_new();
  s.largest = memory_limit ? memory_limit / dtype_size(from->dtype) : max_i64(type_capacity(from), type_capacity(to));
  bool found = run(&s);
  if (!found) {
    s.largest = INT64_MAX;
    found = run(&s);
  }
  if (found) *price = s.node.at[s.target].price;
  if (found && plan) path_to(&s, s.target, a, plan);
  arena_free(s.arena);
  return found;
}
