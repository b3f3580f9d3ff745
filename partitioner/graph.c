/* graph.c: a program's layouts as choices whose costs add up in pairs, for one mesh axis.

     %q[b,t,h,k] = nest sum[d] %n[b,t,d] * %wq[d,h,k]          over model: split none, b, t, h, k or d; or pass on what n or
                                                               wq is pending over

   Variables: every op (which index the axis splits, or which operands' pending sums it passes on); every value that a
   repeat hands around (its layout); every value with several uses or a pin (its home: the layout in which it is made
   once for all uses that the op's own layout does not serve). An edge joins a variable that says how a value is made with
   one that says how it is needed: what the change of layout costs, times how often it runs. An op's own cost is its work.
   What a value's uses share is in its home, so that costs are sums over pairs. */
#include "graph.h"

#include "blocks.h"

enum { MAX_ENTRIES = 128, MAX_PASSING = 6 };

/* How an op uses the axis. */
typedef struct {
  int n, factor[2], pos[2]; /* inserted into the factor's split at that place */
  AxisPart part[2];
  unsigned passes; /* operand slots taken pending over the axis */
} Strategy;

typedef struct {
  const Op *op;
  int var;
  VEC(Strategy) strategy;
} OpVar;

typedef struct {
  ValueId v;
  int var, n;
  int raw[MAX_ENTRIES], home[MAX_ENTRIES];
} HomeVar;

typedef struct {
  ValueId v;
  int var, n;
  int layout[MAX_ENTRIES];
} PlaceVar;

/* How a value is made, by the choices of a variable (var -1: there is but one). */
typedef struct {
  int var, n;
  const int *raw, *home; /* layouts; home NULL: none */
  bool hidden;           /* only home may be used */
  double times;
} Port;

struct Graph {
  Reshard *r;
  Arena *a;
  int axis;
  double tie; /* seconds, far below what a byte takes: ties go to fewer bytes, then fewer steps */
  MinSum p;
  int cap;
  int *now; /* the present choice of each variable */
  VEC(OpVar *) ops;
  VEC(HomeVar *) homes;
  VEC(PlaceVar *) places;
  Port *port;     /* by value */
  ValueId *slice; /* by value: the argument that was the first to take it slice by slice, or -1 */
};

static const ValueState *state(const Graph *g, ValueId v) { return &g->r->state[v]; }

/* ---- variables and edges -------------------------------------------------------------------------------- */

static int add_var(Graph *g, int size, int now) {
  if (g->p.n == g->cap) {
    int cap = g->cap ? 2 * g->cap : 256;
    int *size2 = NEW_ARRAY(g->a, int, cap), *now2 = NEW_ARRAY(g->a, int, cap);
    double **unary = NEW_ARRAY(g->a, double *, cap);
    memcpy(size2, g->p.size, sizeof *size2 * (size_t)(g->p.size ? g->p.n : 0));
    memcpy(now2, g->now, sizeof *now2 * (size_t)(g->now ? g->p.n : 0));
    memcpy(unary, g->p.unary, sizeof *unary * (size_t)(g->p.unary ? g->p.n : 0));
    g->p.size = size2, g->now = now2, g->p.unary = unary, g->cap = cap;
  }
  assert(now >= 0 && now < size && "what was decided is among the choices");
  g->p.size[g->p.n] = size;
  g->now[g->p.n] = now;
  g->p.unary[g->p.n] = NEW_ARRAY(g->a, double, size);
  return g->p.n++;
}

/* The table of the edge between a < b, shared by all that is added between the two. */
static double *edge_table(Graph *g, int a, int b) {
  for (int i = g->p.edge.n - 1; i >= 0 && i >= g->p.edge.n - 8; i--)
    if (g->p.edge.at[i].a == a && g->p.edge.at[i].b == b) return g->p.edge.at[i].cost;
  double *cost = NEW_ARRAY(g->a, double, (int64_t)g->p.size[a] * g->p.size[b]);
  vec_push(g->a, g->p.edge, ((MinSumEdge){a, b, cost}));
  return cost;
}

/* Adds to the cost of u's choice i with v's choice j; u or v may be -1, for what has but one. */
static void add_cost(Graph *g, int u, int i, int v, int j, double cost) {
  if (cost == 0) return;
  if (u < 0 && v < 0) return; /* the same whatever is chosen */
  if (u < 0 || v < 0 || u == v) {
    if (u == v && i != j) return;
    g->p.unary[u < 0 ? v : u][u < 0 ? j : i] += cost;
    return;
  }
  if (u > v) {
    int k = u, l = i;
    u = v, i = j, v = k, j = l;
  }
  edge_table(g, u, v)[i * g->p.size[v] + j] += cost;
}

/* ---- layouts ---------------------------------------------------------------------------------------------- */

static int layout(Graph *g, const Type *t) { return plan_layout(g->r->planner, t); }
static const Type *type_at(const Graph *g, int id) { return plan_layout_type(g->r->planner, id); }

/* What changing a layout costs; nothing becomes pending by it. */
static double price(Graph *g, int from, int to) {
  if (from == to) return 0;
  const Type *f = type_at(g, from), *t = type_at(g, to);
  for (int i = 0; i < t->pending.n; i++)
    if (!pending_has(&f->pending, t->pending.part[i])) return IMPOSSIBLE;
  const Price *p = plan_price(g->r->planner, from, to);
  return p->seconds < IMPOSSIBLE ? p->seconds + g->tie * (p->bytes + 1e3 * p->steps) : IMPOSSIBLE;
}

static double take_cost(Graph *g, const Port *p, int i, int need) {
  bool pending = type_at(g, need)->pending.n > 0;
  if (p->hidden || (p->home && !pending)) {
    double home = pending ? IMPOSSIBLE : price(g, p->home[i], need);
    if (p->hidden) return home;
    double raw = price(g, p->raw[i], need);
    return raw < home ? raw : home;
  }
  return price(g, p->raw[i], need);
}

static void connect(Graph *g, const Port *p, int var, int n, const int *need, double times) {
  for (int i = 0; i < p->n; i++)
    for (int j = 0; j < n; j++) {
      double cost = take_cost(g, p, i, need[j]);
      add_cost(g, p->var, i, var, j, cost >= IMPOSSIBLE ? IMPOSSIBLE : cost * times);
    }
}

/* ---- the axis in a split ------------------------------------------------------------------------------------ */

static Split without(const Split *s, int axis) {
  Split out = *s;
  out.n = 0;
  for (int i = 0; i < s->n; i++)
    if (s->part[i].axis != axis) out.part[out.n++] = s->part[i];
  return out;
}

static void insert_part(Split *s, int pos, AxisPart p) {
  for (int i = s->n++; i > pos; i--) s->part[i] = s->part[i - 1];
  s->part[pos] = p;
}

static bool pending_over(const Pending *p, int axis) {
  for (int i = 0; i < p->n; i++)
    if (p->part[i].axis == axis) return true;
  return false;
}

static Pending pending_without(const Pending *p, int axis) {
  Pending out = *p;
  out.n = 0;
  for (int i = 0; i < p->n; i++)
    if (p->part[i].axis != axis) out.part[out.n++] = p->part[i];
  if (out.n == 0) out.kind = RED_NONE;
  return out;
}

static Type type_without(const Type *t, int axis, unsigned but) {
  Type out = *t;
  for (int d = 0; d < t->rank; d++)
    if (!(but >> d & 1)) out.dim[d].split = without(&t->dim[d].split, axis);
  out.pending = pending_without(&t->pending, axis);
  return out;
}

/* Is there something for at least half of the parts? Splits into more are left to those who ask for them. */
static bool worth_splitting(const Graph *g, const Split *s, int64_t n) {
  return n > 1 && split_count(s) * g->r->m->mesh.axis[g->axis].size < 2 * n;
}

/* May the axis stand at that place of a list: at its end, where it only divides chunks further, or with outer axes before
   it and inner ones behind it, unless somebody wrote it otherwise? */
static bool in_order(const Graph *g, const Split *s, int pos) {
  if (pos == s->n) return true;
  for (int i = 0; i < s->n; i++) {
    int first = i < pos ? s->part[i].axis : g->axis, second = i < pos ? g->axis : s->part[i].axis;
    if (first > second && !(g->r->inverted[first] >> second & 1)) return false;
  }
  return true;
}

/* The layouts of t that differ only in how the axis splits its open dims: not at all, or one dim at any place in its
   list. Dims of `fixed` stay as they are. */
static int variants(Graph *g, const Type *t, unsigned fixed, int *out, int max) {
  Type base = type_without(t, g->axis, fixed);
  int n = 0;
  out[n++] = layout(g, &base);
  AxisPart whole = axis_whole(&g->r->m->mesh, g->axis);
  for (int d = 0; d < t->rank && !type_uses(&base, whole); d++) {
    const Split *s = &base.dim[d].split;
    if (fixed >> d & 1 || !worth_splitting(g, s, base.dim[d].size) || s->n == MAX_PARTS) continue;
    for (int pos = 0; pos <= s->n && n < max; pos++) {
      if (!in_order(g, s, pos)) continue;
      Type one = base;
      insert_part(&one.dim[d].split, pos, whole);
      one.dim[d].split.granule = t->dim[d].split.granule;
      out[n++] = layout(g, &one);
    }
  }
  return n;
}

static int find(const int *list, int n, int x) {
  for (int i = 0; i < n; i++)
    if (list[i] == x) return i;
  return -1;
}

/* ---- homes ---------------------------------------------------------------------------------------------------- */

static Type complete_type(const Type *t) {
  Type out = *t;
  out.pending = (Pending){0};
  return out;
}

/* The dims of a computed value that the user fixed: such a value is used in its home only. (What is made in a fixed
   layout anyway, leaves and what a repeat hands around, may be used in another.) */
static unsigned pinned(const Graph *g, ValueId v) {
  const Op *def = g->r->m->values.at[v].def;
  return def && op_class(def->kind) != CLS_LEAF ? state(g, v)->fixed : 0;
}

/* A complete layout that agrees with what the user fixed. */
static bool obeys(const Type *t, const Type *home, unsigned fixed) {
  for (int d = 0; d < t->rank; d++)
    if (fixed >> d & 1 && !split_equal(&t->dim[d].split, &home->dim[d].split)) return false;
  return fixed == 0 || t->pending.n == 0;
}

static void add_pair(HomeVar *h, int raw, int home) {
  for (int i = 0; i < h->n; i++)
    if (h->raw[i] == raw && h->home[i] == home) return;
  if (h->n == MAX_ENTRIES) return;
  h->raw[h->n] = raw;
  h->home[h->n++] = home;
}

/* The home of v is a variable: pairs of how it is made and what it is made into. */
static void add_home(Graph *g, ValueId v) {
  const ValueState *s = state(g, v);
  Port *p = &g->port[v];
  unsigned fixed = pinned(g, v);
  HomeVar *h = NEW(g->a, HomeVar);
  Type present = complete_type(&s->home);
  int raw_now = p->raw[p->var < 0 ? 0 : g->now[p->var]], homes[MAX_ENTRIES];
  int nhomes = variants(g, &s->home, fixed, homes, 12);
  h->v = v;
  add_pair(h, raw_now, s->delivers ? layout(g, &present) : raw_now); /* at present */
  for (int i = 0; i < p->n; i++) {
    if (obeys(type_at(g, p->raw[i]), &s->home, fixed)) add_pair(h, p->raw[i], p->raw[i]);
    for (int k = 0; k < nhomes; k++) /* what a slice gives needs no home */
      if (fixed || price(g, p->raw[i], homes[k]) > g->tie) add_pair(h, p->raw[i], homes[k]);
  }
  h->var = add_var(g, h->n, 0);
  for (int i = 0; i < p->n; i++)
    for (int k = 0; k < h->n; k++) {
      double cost = p->raw[i] == h->raw[k] ? p->times * price(g, h->raw[k], h->home[k]) : IMPOSSIBLE;
      add_cost(g, p->var, i, h->var, k, cost);
    }
  vec_push(g->a, g->homes, h);
  *p = (Port){h->var, h->n, h->raw, h->home, fixed != 0, p->times};
}

/* With --keep-gathered the reverse of a loop has what the loop made of the same slice. */
static bool kept_slice(const Graph *g, ValueId v) { return g->r->keep_gathered && !g->r->m->values.at[v].def; }

static void set_port(Graph *g, ValueId v, int var, int n, const int *raw, double times) {
  g->port[v] = (Port){var, n, raw, NULL, false, times};
  const ValueState *s = state(g, v);
  if (s->uses.n >= 2 || (s->uses.n == 1 && (pinned(g, v) || kept_slice(g, v)))) add_home(g, v);
}

/* ---- values that a repeat hands around -------------------------------------------------------------------------- */

/* A variable for the layout of v; pending: it may also be pending over the axis. */
static PlaceVar *add_place(Graph *g, ValueId v, unsigned fixed, bool pending) {
  const ValueState *s = state(g, v);
  PlaceVar *p = NEW(g->a, PlaceVar);
  Type present = s->place;
  p->v = v;
  p->n = variants(g, &present, fixed, p->layout, 12);
  if (pending) {
    Type t = type_without(&present, g->axis, 0);
    t.pending.kind = RED_SUM;
    t.pending.part[t.pending.n++] = axis_whole(&g->r->m->mesh, g->axis);
    p->layout[p->n++] = layout(g, &t);
  }
  int is = layout(g, &present), now = find(p->layout, p->n, is);
  if (now < 0) now = p->n, p->layout[p->n++] = is;
  p->var = add_var(g, p->n, now);
  vec_push(g->a, g->places, p);
  return p;
}

/* `t` without its first dim, or with one more, as `like`. */
static Type shifted(const Type *like, const Type *t) {
  Type out = *like;
  int by = like->rank - t->rank;
  for (int d = 0; d < out.rank; d++) out.dim[d].split = d < by ? (Split){0} : t->dim[d - by].split;
  out.pending = t->pending;
  return out;
}

static int *shift_all(Graph *g, const Type *like, int n, const int *layouts) {
  int *out = NEW_ARRAY(g->a, int, n);
  for (int i = 0; i < n; i++) {
    Type t = shifted(like, type_at(g, layouts[i]));
    out[i] = layout(g, &t);
  }
  return out;
}

/* ---- ops with an index space -------------------------------------------------------------------------------------- */

/* A map that only one other nest reads is computed there, in its loop. */
static bool is_fused(const Graph *g, const Op *op) {
  if (op->kind != OP_NEST || op->space.n != op->space.nout) return false;
  const ValueState *s = state(g, op->out[0]);
  return s->uses.n == 1 && s->uses.at[0].op->kind == OP_NEST;
}

/* How much of its longest chunks a rank computes in the mean: 3/4 of 2 where 6 are dealt out to 4. */
static double evened(const Factors *f, const Op *op, const Choice *c) {
  double part = 1;
  for (int i = 0; i < op->space.n; i++)
    if (f->works[i] && c->split[i].n > 0)
      part *= (double)f->range[i] / ((double)split_count(&c->split[i]) * (double)split_capacity(&c->split[i], f->range[i]));
  return part;
}

/* Seconds that a rank works: multiply-adds of products, beyond its even share, which is due anyway (differences of large
   sums would drown what moves); of all else its result goes through memory twice, written and read (what an op reads was
   counted where it was made). */
static double work_cost(const Graph *g, const Op *op, const Choice *c) {
  const Factors *f = g->r->factors[op->order];
  int64_t extent[MAX_INDEX], whole[MAX_INDEX];
  double results = 1;
  for (int i = 0; i < op->space.n; i++) {
    whole[i] = f->range[i];
    extent[i] = f->works[i] ? split_capacity(&c->split[i], f->range[i]) : f->range[i];
    if (i < op->space.nout) results *= (double)extent[i];
  }
  double products = part_op_multiply_adds(op, extent);
  if (g->r->cluster->even) products *= evened(f, op, c);
  double share = part_op_multiply_adds(op, whole) / (double)mesh_devices(&g->r->m->mesh);
  if (products > 0) return (products - share) / g->r->cluster->multiply_adds;
  if (is_fused(g, op)) return 0;
  return results * (double)(2 * dtype_size(state(g, op->out[0])->home.dtype)) / g->r->cluster->memory;
}

/* What an op that runs along a split index exchanges, and computes besides. */
static double block_cost(Graph *g, const Op *op, const Choice *c, const Pending *sums) {
  if (!block_needed(op, c->split)) return 0;
  BlockMove move[BLOCK_MOVES];
  int n = block_moves(g->r->m, op, c->split, sums, move);
  if (op->kind == OP_TOPK && state(g, op->out[1])->uses.n == 0) n = 1;
  double cost = block_points(op, c->split) * (double)dtype_size(state(g, op->out[0])->home.dtype) / g->r->cluster->memory;
  for (int i = 0; i < n; i++) cost += price(g, layout(g, &move[i].from), layout(g, &move[i].to));
  return cost;
}

static Choice base_choice(const Graph *g, const Op *op) {
  Choice c = {0};
  const Decision *d = &g->r->decided[op->order];
  for (int i = 0; i < g->r->factors[op->order]->n; i++) c.split[i] = without(&d->split[i], g->axis);
  return c;
}

static void apply(Choice *c, const Strategy *s) {
  for (int i = 0; i < s->n; i++) insert_part(&c->split[s->factor[i]], s->pos[i], s->part[i]);
}

static Strategy present_strategy(const Graph *g, const Op *op) {
  const Decision *d = &g->r->decided[op->order];
  Strategy s = {0};
  for (int i = 0; i < g->r->factors[op->order]->n; i++)
    for (int k = 0; k < d->split[i].n; k++) {
      if (d->split[i].part[k].axis != g->axis) continue;
      assert(s.n < 2 && "an axis splits at most two indices");
      s.factor[s.n] = i, s.pos[s.n] = k, s.part[s.n] = d->split[i].part[k];
      s.n++;
    }
  for (int o = 0; o < op->nin; o++)
    if (o < 32 && pending_over(&d->sums[o], g->axis)) s.passes |= 1u << o;
  return s;
}

static bool same_strategy(const Strategy *a, const Strategy *b) {
  if (a->n != b->n || a->passes != b->passes) return false;
  for (int i = 0; i < a->n; i++)
    if (a->factor[i] != b->factor[i] || a->pos[i] != b->pos[i] || !part_equal(a->part[i], b->part[i])) return false;
  return true;
}

static int add_strategy(const Graph *g, OpVar *v, Strategy s) {
  for (int i = 0; i < v->strategy.n; i++)
    if (same_strategy(&v->strategy.at[i], &s)) return i;
  if (v->strategy.n < MAX_ENTRIES) vec_push(g->a, v->strategy, s);
  return v->strategy.n - 1;
}

static void add_splits(const Graph *g, OpVar *v, const Choice *base) {
  const Factors *f = g->r->factors[v->op->order];
  AxisPart whole = axis_whole(&g->r->m->mesh, g->axis);
  for (int i = 0; i < f->n; i++) {
    if (!f->splits[i] || !worth_splitting(g, &base->split[i], f->range[i]) || base->split[i].n == MAX_PARTS) continue;
    for (int pos = 0; pos <= base->split[i].n; pos++)
      if (in_order(g, &base->split[i], pos)) add_strategy(g, v, (Strategy){1, {i}, {pos}, {whole}, 0});
  }
}

static bool may_be_pending(const Graph *g, ValueId v) {
  const Port *p = &g->port[v];
  for (int i = 0; i < p->n && !p->hidden; i++)
    if (pending_over(&type_at(g, p->raw[i])->pending, g->axis) && type_at(g, p->raw[i])->pending.kind == RED_SUM) return true;
  return false;
}

/* The sets of operands that the op may take pending, and then its result is: what it computes is linear in them. */
static void add_passes(const Graph *g, OpVar *v) {
  const Op *op = v->op;
  if (op->kind != OP_NEST || !(op->reduce == RED_NONE || op->reduce == RED_SUM)) return;
  int slot[MAX_PASSING], n = 0;
  for (int o = 0; o < op->nin && o < 32; o++)
    if (may_be_pending(g, op->in[o]) && n < MAX_PASSING) slot[n++] = o;
  bool pending[32];
  for (unsigned set = 1; set < 1u << n; set++) {
    Strategy s = {0};
    memset(pending, 0, sizeof pending);
    for (int i = 0; i < n; i++)
      if (set >> i & 1) pending[slot[i]] = true, s.passes |= 1u << slot[i];
    if (op->nin <= 32 && ex_linear_in(op->body, pending)) add_strategy(g, v, s);
  }
}

/* What slot o is pending over when it is taken, under a strategy; all: what the results are, by operands. */
static Pending slot_sums(const Graph *g, const Op *op, const Strategy *s, int o) {
  Pending p = pending_without(&g->r->decided[op->order].sums[o], g->axis);
  if (o < 32 && s->passes >> o & 1) {
    p.kind = RED_SUM;
    p.part[p.n++] = axis_whole(&g->r->m->mesh, g->axis);
  }
  return p;
}

static Pending all_sums(const Graph *g, const Op *op, const Strategy *s) {
  Pending all = {0};
  for (int o = 0; o < op->nin; o++) {
    Pending p = slot_sums(g, op, s, o);
    for (int i = 0; i < p.n; i++)
      if (!pending_has(&all, p.part[i])) all.kind = p.kind, all.part[all.n++] = p.part[i];
  }
  return all;
}

/* Not both split over the axis and pending over what the others pass on: each axis is used once. */
static bool possible(const Graph *g, const Op *op, const Choice *c, const Pending *sums) {
  const Factors *f = g->r->factors[op->order];
  for (int i = 0; i < f->n; i++)
    for (int k = 0; k < c->split[i].n; k++) {
      for (int j = 0; j < sums->n; j++)
        if (parts_overlap(c->split[i].part[k], sums->part[j])) return false;
      for (int j = 0; j < i; j++)
        if (split_uses(&c->split[j], c->split[i].part[k])) return false;
    }
  return true;
}

static void add_op(Graph *g, const Op *op, double times) {
  Reshard *r = g->r;
  OpVar *v = NEW(g->a, OpVar);
  v->op = op;
  Choice base = base_choice(g, op);
  add_strategy(g, v, present_strategy(g, op));
  add_strategy(g, v, (Strategy){0});
  add_splits(g, v, &base);
  add_passes(g, v);
  int n = v->strategy.n;
  v->var = add_var(g, n, 0);
  vec_push(g->a, g->ops, v);
  int **need = NEW_ARRAY(g->a, int *, op->nin + 1), **made = NEW_ARRAY(g->a, int *, op->nout + 1);
  for (int o = 0; o < op->nin; o++) need[o] = NEW_ARRAY(g->a, int, n);
  for (int o = 0; o < op->nout; o++) made[o] = NEW_ARRAY(g->a, int, n);
  for (int k = 0; k < n; k++) {
    const Strategy *s = &v->strategy.at[k];
    Choice c = base;
    apply(&c, s);
    Pending all = all_sums(g, op, s);
    bool can = possible(g, op, &c, &all);
    g->p.unary[v->var][k] += can ? times * (work_cost(g, op, &c) + block_cost(g, op, &c, &all)) : IMPOSSIBLE;
    if (!can) c = base, all = (Pending){0};
    for (int o = 0; o < op->nin; o++) {
      Pending sums = can ? slot_sums(g, op, s, o) : (Pending){0};
      Type t = choice_need(r, op, o, &c, sums.n ? &sums : NULL);
      need[o][k] = layout(g, &t);
    }
    for (int o = 0; o < op->nout; o++) {
      Type t = choice_result(r, op, o, &c, all.n ? &all : NULL);
      made[o][k] = layout(g, &t);
    }
  }
  for (int o = 0; o < op->nin; o++) connect(g, &g->port[op->in[o]], v->var, n, need[o], times);
  for (int o = 0; o < op->nout; o++) set_port(g, op->out[o], v->var, n, made[o], times);
}

/* ---- the program ------------------------------------------------------------------------------------------------------ */

static void add_region(Graph *g, const Region *region, double times);

static void place_port(Graph *g, const PlaceVar *p, double times) { set_port(g, p->v, p->var, p->n, p->layout, times); }

static void fixed_port(Graph *g, ValueId v, const Type *t, double times) {
  int *one = NEW(g->a, int);
  *one = layout(g, t);
  set_port(g, v, -1, 1, one, times);
}

/* A carried argument; zeros that become pending cost nothing. */
static PlaceVar *add_carried(Graph *g, const Op *op, int i, double times) {
  ValueId arg = op->body_region->args.at[1 + i];
  const ValueState *s = state(g, arg);
  PlaceVar *p = add_place(g, arg, s->fixed, s->loops && !s->fixed);
  const Port *init = &g->port[op->in[i]];
  for (int k = 0; k < init->n; k++)
    for (int j = 0; j < p->n; j++) {
      bool pending = type_at(g, p->layout[j])->pending.n > 0;
      double cost = pending ? (s->loops ? 0 : IMPOSSIBLE) : take_cost(g, init, k, p->layout[j]);
      add_cost(g, init->var, k, p->var, j, cost >= IMPOSSIBLE ? IMPOSSIBLE : cost * times);
    }
  return p;
}

/* A slice has the layout of the whole; a whole that an op makes may be laid out anew before the loop. */
static void add_slice(Graph *g, const Op *op, int i, double times, double inner) {
  ValueId arg = op->body_region->args.at[1 + i];
  const Port *whole = &g->port[op->in[i]];
  const Type *like = &state(g, arg)->home;
  if (kept_slice(g, arg) && g->slice[op->in[i]] >= 0) {
    g->port[arg] = g->port[g->slice[op->in[i]]];
    return;
  }
  g->slice[op->in[i]] = arg;
  if (comes_stacked(g->r, op->in[i])) {
    set_port(g, arg, whole->var, whole->n, shift_all(g, like, whole->n, whole->raw), inner);
    return;
  }
  PlaceVar *p = add_place(g, arg, state(g, arg)->fixed, false);
  connect(g, whole, p->var, p->n, shift_all(g, &state(g, op->in[i])->home, p->n, p->layout), times);
  place_port(g, p, inner);
}

/* Pending slices may be stacked when nothing but ops take the whole, and it is not split over the axis. */
static bool may_stack_pending(const Graph *g, const Op *op, int i) {
  const ValueState *s = state(g, op->out[i]);
  if (i >= op->nout - op->nsaved || type_uses(&s->wish, axis_whole(&g->r->m->mesh, g->axis))) return false;
  for (int k = 0; k < s->uses.n; k++)
    if (s->uses.at[k].op->kind == OP_REPEAT) return false;
  return true;
}

/* What is saved for the reverse is saved as it is made, and gathered again there, unless --keep-gathered. */
static void add_stacked(Graph *g, const Op *op, int i, double times, double inner) {
  ValueId y = op->body_region->yields.at[i], out = op->out[i];
  PlaceVar *p = add_place(g, out, state(g, out)->fixed | 1, may_stack_pending(g, op, i));
  for (int k = 0; k < p->n; k++) {
    const Type *t = type_at(g, p->layout[k]);
    g->p.unary[p->var][k] += g->r->memory_price * (double)type_capacity(t) * (double)dtype_size(t->dtype);
  }
  Port made = g->port[y];
  if (i >= op->nout - op->nsaved && !g->r->keep_gathered && !made.hidden) made.home = NULL;
  connect(g, &made, p->var, p->n, shift_all(g, &state(g, y)->home, p->n, p->layout), inner);
  place_port(g, p, times);
}

static void add_repeat(Graph *g, const Op *op, double times) {
  const Region *b = op->body_region;
  double inner = times * (double)op->trip;
  PlaceVar **carried = NEW_ARRAY(g->a, PlaceVar *, op->ncarried + 1);
  fixed_port(g, b->args.at[0], &state(g, b->args.at[0])->home, inner);
  for (int i = 0; i < op->ncarried; i++) {
    carried[i] = add_carried(g, op, i, times);
    place_port(g, carried[i], inner);
  }
  for (int i = op->ncarried; i < op->ncarried + op->ninvariant; i++) {
    PlaceVar *p = add_place(g, b->args.at[1 + i], state(g, b->args.at[1 + i])->fixed, false);
    connect(g, &g->port[op->in[i]], p->var, p->n, p->layout, times);
    place_port(g, p, inner);
  }
  for (int i = op->ncarried + op->ninvariant; i < op->nin; i++) add_slice(g, op, i, times, inner);
  add_region(g, b, inner);
  for (int i = 0; i < op->ncarried; i++) {
    connect(g, &g->port[b->yields.at[i]], carried[i]->var, carried[i]->n, carried[i]->layout, inner);
    set_port(g, op->out[i], carried[i]->var, carried[i]->n, carried[i]->layout, times);
  }
  for (int i = op->ncarried; i < op->nout; i++) add_stacked(g, op, i, times, inner);
}

/* A tap shows any complete layout; an update takes its leaf's. */
static void add_effect(Graph *g, const Op *op, double times) {
  ValueId v = op->in[op->kind == OP_UPDATE ? 1 : 0];
  const Port *p = &g->port[v];
  Type leaf = state(g, op->in[0])->wish;
  int need = layout(g, &leaf);
  for (int i = 0; i < p->n; i++) {
    double cost;
    if (op->kind == OP_UPDATE) {
      cost = take_cost(g, p, i, need);
    } else {
      Type any = complete_type(type_at(g, p->raw[i]));
      cost = p->hidden ? 0 : take_cost(g, p, i, layout(g, &any));
      if (p->home && type_at(g, p->home[i])->pending.n == 0) cost = 0;
    }
    add_cost(g, p->var, i, -1, 0, cost * times);
  }
}

static void add_region(Graph *g, const Region *region, double times) {
  for (int i = 0; i < region->ops.n; i++) {
    const Op *op = region->ops.at[i];
    switch (op_class(op->kind)) {
    case CLS_LEAF:
      for (int o = 0; o < op->nout; o++) fixed_port(g, op->out[o], &state(g, op->out[o])->wish, times);
      break;
    case CLS_SPACE: add_op(g, op, times); break;
    case CLS_REGION: add_repeat(g, op, times); break;
    case CLS_EFFECT: add_effect(g, op, times); break;
    case CLS_LAYOUT: internal_error("a collective before the pass reshard");
    }
  }
}

Graph *graph_build(Reshard *r, int axis, Arena *a) {
  Graph *g = NEW(a, Graph);
  *g = (Graph){.r = r, .a = a, .axis = axis};
  for (int i = 0; i < r->m->mesh.naxes; i++)
    if (g->tie == 0 || g->tie > 1e-6 / r->cluster->bandwidth[i]) g->tie = 1e-6 / r->cluster->bandwidth[i];
  g->port = NEW_ARRAY(a, Port, r->m->values.n + 1);
  g->slice = NEW_ARRAY(a, ValueId, r->m->values.n + 1);
  for (int v = 0; v < r->m->values.n; v++) g->slice[v] = -1;
  for (int i = 0; i < r->m->programs.n; i++) add_region(g, r->m->programs.at[i].body, 1);
  return g;
}

const MinSum *graph_problem(const Graph *g) { return &g->p; }
void graph_now(const Graph *g, int *x) { memcpy(x, g->now, sizeof *x * (size_t)g->p.n); }

/* ---- back into decisions ---------------------------------------------------------------------------------------------- */

static void decide_op(Graph *g, const OpVar *v, int k) {
  Decision *d = &g->r->decided[v->op->order];
  Choice c = base_choice(g, v->op);
  apply(&c, &v->strategy.at[k]);
  for (int o = 0; o < v->op->nin; o++) d->sums[o] = slot_sums(g, v->op, &v->strategy.at[k], o);
  for (int i = 0; i < g->r->factors[v->op->order]->n; i++) d->split[i] = c.split[i];
}

static void decide_home(Graph *g, const HomeVar *h, int k) {
  ValueState *s = &g->r->state[h->v];
  const Type *home = type_at(g, h->home[k]);
  s->delivers = h->home[k] != h->raw[k];
  if (home->pending.n > 0) return;
  for (int d = 0; d < home->rank; d++) s->home.dim[d].split = home->dim[d].split;
}

static void decide_place(Graph *g, const PlaceVar *p, int k) {
  ValueState *s = &g->r->state[p->v];
  const Type *t = type_at(g, p->layout[k]);
  for (int d = 0; d < t->rank; d++) s->place.dim[d].split = t->dim[d].split;
  s->place.pending = t->pending;
}

void graph_decide(Graph *g, const int *x) {
  for (int i = 0; i < g->ops.n; i++) decide_op(g, g->ops.at[i], x[g->ops.at[i]->var]);
  for (int i = 0; i < g->places.n; i++) decide_place(g, g->places.at[i], x[g->places.at[i]->var]);
  for (int i = 0; i < g->homes.n; i++) decide_home(g, g->homes.at[i], x[g->homes.at[i]->var]);
}
