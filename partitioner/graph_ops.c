/* graph_ops.c: the variables of graph.c that are ops: their strategies with regard to the axis, what they cost, and what
   layouts of operands and results they mean.

     %q[b,t,h,k] = nest sum[d] %n[b,t,d] * %wq[d,h,k]     over model:

     split h: needs n whole and wq[d,h@model,k], gives q[b,t,h@model,k]
     split d: needs n[b,t,d@model] and wq[d@model,h,k], gives q{model: sum}                                              */
#include "graph.h"

enum { MAX_PASSING = 6 }; /* pending operands of which all sets are tried */

/* A map that only one other nest reads is computed there, in its loop. */
static bool is_fused(const Graph *g, const Op *op) {
  if (op->kind != OP_NEST || op->space.n != op->space.nout) return false;
  const ValueState *s = graph_state(g, op->out[0]);
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

/* Is the product of grouped heads repeated on more ranks than there are heads left for each to have one? */
static bool repeats_heads(const Graph *g, const Op *op, const Choice *c) {
  const HeadCount *h = &g->r->heads[op->order];
  int64_t ranks = mesh_devices(&g->r->m->mesh), heads = h->n;
  for (int i = 0; i < op->space.n && h->n > 0; i++) {
    int64_t k = split_count(&c->split[i]);
    ranks /= k;
    if (h->index >> i & 1) heads = (heads + k - 1) / k;
  }
  return h->n > 0 && ranks > heads;
}

/* Seconds that a rank works: multiply-adds of products, beyond its even share, which is due anyway (differences of large
   sums would drown what moves); of all else its result goes through memory twice, written and read (what an op reads was
   counted where it was made), but for a map in another's loop: of plans that are alike, the one that repeats fewer of its points.
 */
static double work_cost(const Graph *g, const Op *op, const Choice *c) {
  const Factors *f = g->r->factors[op->order];
  int64_t extent[MAX_INDEX], whole[MAX_INDEX];
  double results = 1;
  for (int i = 0; i < op->space.n; i++) {
    whole[i] = f->range[i];
    int64_t part = split_capacity(&c->split[i], f->range[i]);
    extent[i] = f->works[i] ? part : f->range[i];
    if (i < op->space.nout) results *= (double)part;
  }
  double products = part_op_multiply_adds(op, extent);
  if (g->r->cluster->even) products *= evened(f, op, c);
  double share = part_op_multiply_adds(op, whole) / (double)mesh_devices(&g->r->m->mesh);
  if (products > 0 && g->r->cluster->even && repeats_heads(g, op, c)) return g->tie * 1e-3 * (products - share);
  if (products > 0) return (products - share) / g->r->cluster->multiply_adds;
  if (is_fused(g, op)) return results * 1e-3 * g->tie;
  return results * (double)(2 * dtype_size(graph_state(g, op->out[0])->home.dtype)) / g->r->cluster->memory;
}

/* What an op that runs along a split index exchanges, and computes besides. */
static double block_cost(Graph *g, const Op *op, const Choice *c, const Pending *sums) {
  if (!block_needed(op, c->split)) return 0;
  BlockMove move[BLOCK_MOVES];
  int n = choice_block_moves(g->r, op, c, sums, move);
  double cost = block_points(op, c->split) * (double)dtype_size(graph_state(g, op->out[0])->home.dtype) / g->r->cluster->memory;
  for (int i = 0; i < n; i++) cost += graph_price(g, graph_layout(g, &move[i].from), graph_layout(g, &move[i].to));
  return cost;
}

static Choice base_choice(const Graph *g, const Op *op) {
  Choice c = {0};
  const Decision *d = &g->r->decided[op->order];
  for (int i = 0; i < g->r->factors[op->order]->n; i++) c.split[i] = split_without(&d->split[i], g->axes);
  return c;
}

static void apply(Choice *c, const Strategy *s) {
  for (int i = 0; i < s->n; i++) split_insert(&c->split[s->factor[i]], s->pos[i], s->part[i]);
}

/* How a choice of splits uses the axes. */
static Strategy strategy_of(const Graph *g, const Op *op, const Split *split) {
  Strategy s = {0};
  for (int i = 0; i < g->r->factors[op->order]->n; i++)
    for (int k = 0; k < split[i].n; k++) {
      if (!(g->axes >> split[i].part[k].axis & 1)) continue;
      assert(s.n < MAX_USES && "an axis has few parts");
      s.factor[s.n] = i, s.pos[s.n] = k, s.part[s.n] = split[i].part[k];
      s.n++;
    }
  return s;
}

static Strategy present_strategy(const Graph *g, const Op *op) {
  const Decision *d = &g->r->decided[op->order];
  Strategy s = strategy_of(g, op, d->split);
  for (int k = 0; k < g->n; k++)
    for (int o = 0; o < op->nin; o++)
      if (o < 32 && pending_over(&d->sums[o], g->axis[k])) s.passes[k] |= 1u << o;
  return s;
}

static bool same_strategy(const Strategy *a, const Strategy *b) {
  if (a->n != b->n || memcmp(a->passes, b->passes, sizeof a->passes)) return false;
  for (int i = 0; i < a->n; i++)
    if (a->factor[i] != b->factor[i] || a->pos[i] != b->pos[i] || !part_equal(a->part[i], b->part[i])) return false;
  return true;
}

static void add_strategy(const Graph *g, OpVar *v, Strategy s) {
  for (int i = 0; i < v->strategy.n; i++)
    if (same_strategy(&v->strategy.at[i], &s)) return;
  if (v->strategy.n < MAX_ENTRIES) vec_push(g->a, v->strategy, s);
}

/* ---- what may be done --------------------------------------------------------------------------------------------- */

/* Adds strategies with factor i split by the axes, at each place where they may stand; and then factor j as well. */
static void add_split(const Graph *g, OpVar *v, const Choice *base, int i, int j) {
  const Factors *f = g->r->factors[v->op->order];
  for (int pos = 0; pos <= base->split[i].n && f->splits[i]; pos++) {
    Choice c = *base;
    if (!graph_split(g, &c.split[i], pos, f->range[i])) continue;
    if (j < 0)
      add_strategy(g, v, strategy_of(g, v->op, c.split));
    else
      add_split(g, v, &c, j, -1);
  }
}

static void add_splits(const Graph *g, OpVar *v, const Choice *base) {
  for (int i = 0; i < g->r->factors[v->op->order]->n; i++) add_split(g, v, base, i, -1);
}

/* Both along what an argmax or a topk runs, and of its results. */
static void add_spread(const Graph *g, OpVar *v, const Choice *base) {
  const Factors *f = g->r->factors[v->op->order];
  for (int i = 0; i < f->n; i++)
    for (int j = 0; j < f->n && block_spreads(v->op, i); j++)
      if (f->blocks[j]) add_split(g, v, base, i, j);
}

static bool may_be_pending(const Graph *g, ValueId v) {
  const Port *p = &g->port[v];
  for (int i = 0; i < p->n && !p->hidden; i++) {
    const Pending *is = &graph_type(g, p->raw[i])->pending;
    bool all = is->kind == RED_SUM;
    for (int k = 0; k < g->n; k++) all &= pending_over(is, g->axis[k]);
    if (all) return true;
  }
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
      if (set >> i & 1) pending[slot[i]] = true, s.passes[0] |= 1u << slot[i];
    for (int k = 1; k < g->n; k++) s.passes[k] = s.passes[0];
    if (op->nin <= 32 && ex_linear_in(op->body, pending)) add_strategy(g, v, s);
  }
}

/* What slot o is pending over when it is taken, under a strategy; all: what the results are, by operands. */
static Pending slot_sums(const Graph *g, const Op *op, const Strategy *s, int o) {
  Pending p = pending_without(&g->r->decided[op->order].sums[o], g->axes);
  for (int k = 0; k < g->n && o < 32; k++) {
    if (!(s->passes[k] >> o & 1)) continue;
    p.kind = RED_SUM;
    p.part[p.n++] = g->whole[k];
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

/* ---- the variable -------------------------------------------------------------------------------------------------- */

/* Not both split over the axis and pending over what the others pass on: each axis is used once, but for results that are
   spread over the axes of chunks. */
static bool possible(const Graph *g, const Op *op, const Choice *c, const Pending *sums) {
  const Factors *f = g->r->factors[op->order];
  for (int i = 0; i < f->n; i++)
    for (int k = 0; k < c->split[i].n; k++) {
      for (int j = 0; j < sums->n; j++)
        if (parts_overlap(c->split[i].part[k], sums->part[j])) return false;
      for (int j = 0; j < i; j++)
        if (!(f->blocks[i] && block_spreads(op, j)) && split_uses(&c->split[j], c->split[i].part[k])) return false;
    }
  return true;
}

void graph_op(Graph *g, const Op *op, double times) {
  Reshard *r = g->r;
  OpVar *v = NEW(g->a, OpVar);
  v->op = op;
  Choice base = base_choice(g, op);
  add_strategy(g, v, present_strategy(g, op));
  add_strategy(g, v, (Strategy){0});
  add_splits(g, v, &base);
  add_spread(g, v, &base);
  add_passes(g, v);
  int n = v->strategy.n;
  v->var = graph_var(g, n, 0);
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
      need[o][k] = graph_layout(g, &t);
    }
    for (int o = 0; o < op->nout; o++) {
      Type t = choice_result(r, op, o, &c, all.n ? &all : NULL);
      made[o][k] = graph_layout(g, &t);
    }
  }
  for (int o = 0; o < op->nin; o++) graph_connect(g, &g->port[op->in[o]], v->var, n, need[o], times);
  graph_windows(g, op, v->var, n, need, times);
  for (int o = 0; o < op->nout; o++) graph_set_port(g, op->out[o], v->var, n, made[o], times);
}

void graph_decide_op(Graph *g, const OpVar *v, int k) {
  Decision *d = &g->r->decided[v->op->order];
  Choice c = base_choice(g, v->op);
  apply(&c, &v->strategy.at[k]);
  for (int o = 0; o < v->op->nin; o++) d->sums[o] = slot_sums(g, v->op, &v->strategy.at[k], o);
  for (int i = 0; i < g->r->factors[v->op->order]->n; i++) d->split[i] = c.split[i];
}
