/* graph_vars.c: the variables of graph.c that are layouts: homes, and what a repeat hands around; what it costs to take a
   value as it is made (a port) where it is needed, which is all that edges are made of.

     %w: [D=8@data, F=8], two uses; axis data     home: [D, F], [D@data, F] or [D, F@data], each priced from how %w is made */
#include "graph.h"

enum { MAX_HOMES = 12 }; /* layouts of one value that are compared: its open dims, each at a few places of a list */

/* ---- variables and edges -------------------------------------------------------------------------------- */

int graph_var(Graph *g, int size, int now) {
  if (g->p.n == g->cap) {
    int cap = g->cap ? 2 * g->cap : 256;
    int *size2 = NEW_ARRAY(g->a, int, cap), *now2 = NEW_ARRAY(g->a, int, cap);
    double **unary = NEW_ARRAY(g->a, double *, cap);
    if (g->p.n) { /* else there is nothing to copy from */
      memcpy(size2, g->p.size, sizeof *size2 * (size_t)g->p.n);
      memcpy(now2, g->now, sizeof *now2 * (size_t)g->p.n);
      memcpy(unary, g->p.unary, sizeof *unary * (size_t)g->p.n);
    }
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
void graph_cost(Graph *g, int u, int i, int v, int j, double cost) {
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

int graph_layout(Graph *g, const Type *t) { return plan_layout(g->r->planner, t); }
const Type *graph_type(const Graph *g, int id) { return plan_layout_type(g->r->planner, id); }

/* What changing a layout costs; nothing becomes pending by it. */
double graph_price(Graph *g, int from, int to) {
  if (from == to) return 0;
  const Type *f = graph_type(g, from), *t = graph_type(g, to);
  if (t->pending.n > 0 && f->pending.kind != t->pending.kind) return IMPOSSIBLE;
  for (int i = 0; i < t->pending.n; i++)
    if (!pending_has(&f->pending, t->pending.part[i])) return IMPOSSIBLE;
  const Price *p = plan_price(g->r->planner, from, to);
  return p->seconds < IMPOSSIBLE ? p->seconds + g->tie * (p->bytes + 1e3 * p->steps) : IMPOSSIBLE;
}

double graph_take(Graph *g, const Port *p, int i, int need) {
  bool pending = graph_type(g, need)->pending.n > 0;
  if (p->hidden || (p->home && !pending)) {
    double home = pending ? IMPOSSIBLE : graph_price(g, p->home[i], need);
    if (p->hidden) return home;
    double raw = graph_price(g, p->raw[i], need);
    return raw < home ? raw : home;
  }
  return graph_price(g, p->raw[i], need);
}

void graph_connect(Graph *g, const Port *p, int var, int n, const int *need, double times) {
  for (int i = 0; i < p->n; i++)
    for (int j = 0; j < n; j++) {
      double cost = graph_take(g, p, i, need[j]);
      graph_cost(g, p->var, i, var, j, cost >= IMPOSSIBLE ? IMPOSSIBLE : cost * times);
    }
}

/* ---- the axis in a split ------------------------------------------------------------------------------------ */

Split split_without(const Split *s, unsigned axes) {
  Split out = *s;
  out.n = 0;
  for (int i = 0; i < s->n; i++)
    if (!(axes >> s->part[i].axis & 1)) out.part[out.n++] = s->part[i];
  return out;
}

void split_insert(Split *s, int pos, AxisPart p) {
  for (int i = s->n++; i > pos; i--) s->part[i] = s->part[i - 1];
  s->part[pos] = p;
}

bool pending_over(const Pending *p, int axis) {
  for (int i = 0; i < p->n; i++)
    if (p->part[i].axis == axis) return true;
  return false;
}

Pending pending_without(const Pending *p, unsigned axes) {
  Pending out = *p;
  out.n = 0;
  for (int i = 0; i < p->n; i++)
    if (!(axes >> p->part[i].axis & 1)) out.part[out.n++] = p->part[i];
  if (out.n == 0) out.kind = RED_NONE;
  return out;
}

static Type type_without(const Type *t, unsigned axes, unsigned but) {
  Type out = *t;
  for (int d = 0; d < t->rank; d++)
    if (!(but >> d & 1)) out.dim[d].split = split_without(&t->dim[d].split, axes);
  out.pending = pending_without(&t->pending, axes);
  return out;
}

/* May the axis stand at that place of a list: at its end, where it only divides chunks further, or with outer axes before
   it and inner ones behind it, unless somebody wrote it otherwise? */
static bool in_order(const Graph *g, int axis, const Split *s, int pos) {
  if (pos == s->n) return true;
  for (int i = 0; i < s->n; i++) {
    int first = i < pos ? s->part[i].axis : axis, second = i < pos ? axis : s->part[i].axis;
    if (first > second && !(g->r->inverted[first] >> second & 1)) return false;
  }
  return true;
}

bool graph_split(const Graph *g, Split *s, int pos, int64_t size) {
  int64_t parts = split_count(s);
  for (int k = 0; k < g->n; k++) parts *= g->whole[k].size;
  /* there is something for at least half of the parts; splits into more are left to those who ask for them */
  if (size <= 1 || parts >= 2 * size || s->n + g->n > MAX_PARTS) return false;
  for (int k = 0; k < g->n; k++)
    if (!in_order(g, g->axis[k], s, pos)) return false;
  for (int k = 0; k < g->n; k++) split_insert(s, pos + k, g->whole[k]);
  return true;
}

/* The layouts of t that differ only in how the axes split its open dims: not at all, or one dim at any place in its list.
   Dims of `fixed` stay as they are. */
static int variants(Graph *g, const Type *t, unsigned fixed, int *out, int max) {
  Type base = type_without(t, g->axes, fixed);
  int n = 0;
  bool used = false;
  out[n++] = graph_layout(g, &base);
  for (int k = 0; k < g->n; k++) used |= type_uses(&base, g->whole[k]);
  for (int d = 0; d < t->rank && !used; d++) {
    for (int pos = 0; pos <= base.dim[d].split.n && n < max && !(fixed >> d & 1); pos++) {
      Type one = base;
      if (!graph_split(g, &one.dim[d].split, pos, t->dim[d].size)) continue;
      one.dim[d].split.granule = t->dim[d].split.granule;
      out[n++] = graph_layout(g, &one);
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

Type type_complete(const Type *t) {
  Type out = *t;
  out.pending = (Pending){0};
  return out;
}

/* The dims of a computed value that the user fixed: such a value is used in its home only. (What is made in a fixed
   layout anyway, leaves and what a repeat hands around, may be used in another.) */
static unsigned pinned(const Graph *g, ValueId v) {
  const Op *def = g->r->m->values.at[v].def;
  return def && op_class(def->kind) != CLS_LEAF ? graph_state(g, v)->fixed : 0;
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
  const ValueState *s = graph_state(g, v);
  Port *p = &g->port[v];
  unsigned fixed = pinned(g, v);
  HomeVar *h = NEW(g->a, HomeVar);
  Type present = type_complete(&s->home);
  int raw_now = p->raw[p->var < 0 ? 0 : g->now[p->var]], homes[MAX_ENTRIES];
  int nhomes = variants(g, &s->home, fixed, homes, MAX_HOMES);
  h->v = v;
  add_pair(h, raw_now, s->delivers ? graph_layout(g, &present) : raw_now); /* at present */
  for (int i = 0; i < p->n; i++) {
    if (obeys(graph_type(g, p->raw[i]), &s->home, fixed)) add_pair(h, p->raw[i], p->raw[i]);
    for (int k = 0; k < nhomes; k++) /* what a slice gives needs no home */
      if (fixed || graph_price(g, p->raw[i], homes[k]) > g->tie) add_pair(h, p->raw[i], homes[k]);
  }
  h->var = graph_var(g, h->n, 0);
  for (int i = 0; i < p->n; i++)
    for (int k = 0; k < h->n; k++) {
      double cost = p->raw[i] == h->raw[k] ? p->times * graph_price(g, h->raw[k], h->home[k]) : IMPOSSIBLE;
      graph_cost(g, p->var, i, h->var, k, cost);
    }
  vec_push(g->a, g->homes, h);
  *p = (Port){h->var, h->n, h->raw, h->home, fixed != 0, p->times};
}

/* With --keep-gathered the reverse of a loop has what the loop made of the same slice. */
bool graph_kept_slice(const Graph *g, ValueId v) { return g->r->keep_gathered && !g->r->m->values.at[v].def; }

void graph_set_port(Graph *g, ValueId v, int var, int n, const int *raw, double times) {
  g->port[v] = (Port){var, n, raw, NULL, false, times};
  const ValueState *s = graph_state(g, v);
  if (s->uses.n >= 2 || (s->uses.n == 1 && (pinned(g, v) || graph_kept_slice(g, v)))) add_home(g, v);
}

void graph_set_one(Graph *g, ValueId v, const Type *t, double times) {
  int *one = NEW(g->a, int);
  *one = graph_layout(g, t);
  graph_set_port(g, v, -1, 1, one, times);
}

/* ---- values that a repeat hands around -------------------------------------------------------------------------- */

/* A variable for the layout of v; pending: it may also be pending over the axis. */
PlaceVar *graph_place(Graph *g, ValueId v, unsigned fixed, bool pending) {
  const ValueState *s = graph_state(g, v);
  PlaceVar *p = NEW(g->a, PlaceVar);
  Type present = s->place;
  p->v = v;
  p->n = variants(g, &present, fixed, p->layout, MAX_HOMES);
  if (pending) {
    Type t = type_without(&present, g->axes, 0);
    t.pending.kind = RED_SUM;
    for (int k = 0; k < g->n; k++) t.pending.part[t.pending.n++] = g->whole[k];
    p->layout[p->n++] = graph_layout(g, &t);
  }
  int is = graph_layout(g, &present), now = find(p->layout, p->n, is);
  if (now < 0) now = p->n, p->layout[p->n++] = is;
  p->var = graph_var(g, p->n, now);
  vec_push(g->a, g->places, p);
  return p;
}
