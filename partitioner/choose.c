/* choose.c: how one op's index space is split. Every factor is split as one of its dims is, or not at all; of all
   combinations the cheapest wins. For %q[b,t,h,k] = sum[d] %n[b,t@model,d] * %wq[d,h@model,k]:

     t@model: gather wq, then q to its layout h@model
     h@model: gather n (shared with k and v: a third of the price)      <- wins
     neither: gather both, and all ranks do all the work

   Cost in bytes: bringing the operands, bringing the result to its layout, 64 KiB per collective (about 5 us at
   12 GB/s, as measured between processes of one host), and two per point
   of the local space: less than what gathering a map's result would cost, so that maps of whole operands are computed
   on all ranks, but so much that products are split wherever they can be. */
#include "reshard.h"

enum { MAX_CANDIDATES = 12, MAX_LEAVES = 1 << 15 };
static const double BYTES_PER_POINT = 2, BYTES_PER_STEP = 65536;

typedef struct {
  Reshard *r;
  const Op *op;
  const Factors *f;
  const bool *pending; /* per slot */
  const Pending *sums;
  int n[MAX_FACTORS];
  Split candidate[MAX_FACTORS][MAX_CANDIDATES];
  Choice now, best;
  double cost;
  int leaves;
} Search;

/* A slice costs no wait, and a reduction hardly one: reductions are combined. */
static double waits(const Plan *p) {
  int n = 0;
  for (int i = 0; i < p->n; i++)
    n += p->at[i].kind != OP_SLICE && p->at[i].kind != OP_ALL_REDUCE && p->at[i].kind != OP_REDUCE_SCATTER;
  return BYTES_PER_STEP * n;
}

bool version_hidden(const ValueState *s) {
  const Type *raw = &s->have.at[0]->type;
  if (raw->pending.n > 0) return s->pinned || !s->keep;
  return s->pinned && !sharding_equal(raw, &s->home);
}

/* ---- what a choice needs and makes --------------------------------------------------------------------- */

/* An axis splits one dim of a value: whoever comes first. */
static bool used_before(const Type *t, int d, const Split *s) {
  for (int e = 0; e < d; e++)
    for (int i = 0; i < s->n; i++)
      if (split_uses(&t->dim[e].split, s->part[i])) return true;
  return false;
}

/* The splits of the indices, as reads see them: in blocks all chunks are as long as the first, the last ones too
   (blocks.h); `s` is the space with such ranges. */
static Choice read_splits(const Op *op, const Factors *f, const Choice *c, Space *s) {
  Choice out = *c;
  *s = op->space;
  for (int i = 0; i < s->n; i++) {
    if (!f->blocks[i] || c->split[i].n == 0) continue;
    int64_t n = split_capacity(&c->split[i], s->idx[i].range);
    s->idx[i].range = n * split_count(&c->split[i]);
    out.split[i].granule = n > 1 ? n : 0;
  }
  return out;
}

Type choice_need(const Reshard *r, const Op *op, int slot, const Choice *all, const Pending *sums) {
  Type t = r->state[op->in[slot]].home;
  const OperandFactors *f = &r->factors[op->order]->in[slot];
  bool pends = sums && sums->n > 0; /* only what is complete has windows */
  Space space;
  Choice seen, chunk;
  const Choice *c = all;
  if (block_needed(op, all->split)) {
    chunk = *all, c = &chunk;
    block_chunk_splits(op, all->split, chunk.split);
  }
  bool known = false;
  for (int d = 0; d < t.rank; d++) {
    Split *s = &t.dim[d].split;
    if (f->index[d] != NO_FACTOR) {
      *s = c->split[f->index[d]];
    } else {
      if (!known) seen = read_splits(op, r->factors[op->order], c, &space), known = true;
      *s = part_read_split(f->nreads[d], f->read[d], &space, seen.split, t.dim[d].size);
    }
    if (used_before(&t, d, s) || (pends && split_windowed(s))) *s = (Split){0};
  }
  t.pending = sums ? *sums : (Pending){0};
  return t;
}

/* On every rank t holds what is needed; only a table that is read by value has to be split as chosen. */
static bool fits(const Reshard *r, const Type *t, const Type *need, const int *index, int nspace) {
  if (!pending_equal(&t->pending, &need->pending)) return false;
  for (int d = 0; d < t->rank; d++) {
    const Split *have = &t->dim[d].split, *want = &need->dim[d].split;
    bool table = index[d] >= nspace;
    if (table ? !split_equal(have, want) : !split_inside(&r->m->mesh, want, have, t->dim[d].size)) return false;
  }
  return true;
}

int version_fit(const Reshard *r, const Op *op, int slot, const Choice *c, const Pending *sums) {
  const ValueState *s = &r->state[op->in[slot]];
  const int *index = r->factors[op->order]->in[slot].index;
  Type need = choice_need(r, op, slot, c, sums);
  for (int i = version_hidden(s) ? 1 : 0; i < s->have.n; i++)
    if (fits(r, &s->have.at[i]->type, &need, index, op->space.n)) return i;
  if (version_hidden(s) && s->have.n == 1 && fits(r, &s->home, &need, index, op->space.n))
    return s->have.n; /* it will be, at no cost to this op: completing is due anyway */
  return -1;
}

double version_bytes(Reshard *r, ValueId v, const Type *need, int *source) {
  const ValueState *s = &r->state[v];
  double best = -1;
  if (version_hidden(s) && s->have.n == 1) {
    *source = 1;
    Price price;
    plan_find(r->planner, &s->home, need, &price);
    return price.bytes;
  }
  for (int i = version_hidden(s) ? 1 : 0; i < s->have.n; i++) {
    Price price;
    if (need->pending.n > s->have.at[i]->type.pending.n || type_windowed(&s->have.at[i]->type)) continue;
    const Plan *p = plan_find(r->planner, &s->have.at[i]->type, need, &price);
    double bytes = price.bytes + waits(p);
    if (best < 0 || bytes < best) best = bytes, *source = i;
  }
  return best;
}

Type choice_result(const Reshard *r, const Op *op, int result, const Choice *c, const Pending *sums) {
  const Factors *f = r->factors[op->order];
  Type t = r->state[op->out[result]].home;
  bool in_result[MAX_FACTORS] = {0};
  for (int d = 0; d < t.rank; d++) {
    int i = f->out[result].index[d];
    t.dim[d].split = i == NO_FACTOR ? (Split){0} : c->split[i];
    if (i != NO_FACTOR) in_result[i] = true;
  }
  t.pending = sums ? *sums : (Pending){0};
  for (int i = 0; i < f->n; i++)
    for (int k = 0; k < c->split[i].n && !in_result[i] && !f->blocks[i]; k++) {
      assert(t.pending.n < MAX_PARTS && "an axis is used once");
      t.pending.kind = f->kind;
      t.pending.part[t.pending.n++] = c->split[i].part[k];
    }
  return t;
}

/* ---- candidates ---------------------------------------------------------------------------------------- */

static void add_candidate(Search *s, int factor, const Split *split) {
  for (int i = 0; i < split->n; i++)
    for (int j = 0; s->sums && j < s->sums->n; j++)
      if (parts_overlap(split->part[i], s->sums->part[j])) return;
  for (int i = 0; i < s->n[factor]; i++)
    if (split_equal(&s->candidate[factor][i], split)) return;
  if (s->n[factor] == MAX_CANDIDATES - 1) return; /* one place is for `not at all` */
  Split *c = &s->candidate[factor][s->n[factor]++];
  *c = *split;
  c->fixed = false;
}

/* The split itself, its major parts, and each of its parts alone. */
static void add_dim(Search *s, int factor, const Split *split) {
  if (factor == NO_FACTOR || !s->f->splits[factor] || split->n == 0 || split_windowed(split)) return;
  add_candidate(s, factor, split);
  for (int n = split->n - 1; n > 0; n--) {
    Split major = *split;
    major.n = n;
    add_candidate(s, factor, &major);
  }
  for (int i = 1; i < split->n; i++) {
    Split one = {.n = 1, .granule = split->granule};
    one.part[0] = split->part[i];
    add_candidate(s, factor, &one);
  }
}

static void add_type(Search *s, const OperandFactors *f, const Type *t) {
  for (int d = 0; d < t->rank; d++) {
    Split carried[MAX_INDEX];
    add_dim(s, f->index[d], &t->dim[d].split);
    if (f->index[d] != NO_FACTOR) continue;
    part_carry(s->op, f, t, d, carried);
    for (int i = 0; i < s->op->space.n; i++) add_dim(s, i, &carried[i]);
  }
}

/* What an op runs along may be whole instead, and another of its indices split over the same axes: a sort by rows. */
static void add_exchanged(Search *s) {
  for (int i = 0; i < s->f->n; i++)
    for (int k = 0; s->f->blocks[i] && k < s->n[i]; k++) {
      Split same = s->candidate[i][k];
      same.granule = 0;
      for (int j = 0; j < s->f->n; j++)
        if (s->f->splits[j] && !s->f->blocks[j]) add_candidate(s, j, &same);
    }
}

static void find_candidates(Search *s) {
  for (int o = 0; o < s->op->nout; o++) add_type(s, &s->f->out[o], &s->r->state[s->op->out[o]].home);
  for (int o = 0; o < s->op->nin; o++) {
    const ValueState *v = &s->r->state[s->op->in[o]];
    for (int i = 0; i < v->have.n; i++) add_type(s, &s->f->in[o], &v->have.at[i]->type);
    add_type(s, &s->f->in[o], &v->home);
  }
  add_exchanged(s);
  for (int i = 0; i < s->f->n; i++) s->candidate[i][s->n[i]++] = (Split){0};
}

/* ---- cost ---------------------------------------------------------------------------------------------- */

/* How a consumer would want its operand if it were split as its result is laid out. */
static Choice wanted(const Reshard *r, const Op *op) {
  const Factors *f = r->factors[op->order];
  Choice c = {0};
  const Type *out = &r->state[op->out[0]].home;
  for (int d = 0; d < out->rank; d++)
    if (f->out[0].index[d] != NO_FACTOR && f->splits[f->out[0].index[d]]) c.split[f->out[0].index[d]] = out->dim[d].split;
  for (int o = 0; o < op->nin; o++) {
    const Type *t = &r->state[op->in[o]].home;
    for (int d = 0; d < t->rank; d++) {
      int i = f->in[o].index[d];
      if (i == NO_FACTOR || !f->splits[i] || c.split[i].n > 0) continue;
      bool free = true;
      for (int k = 0; k < t->dim[d].split.n; k++)
        for (int j = 0; j < f->n; j++) free &= !split_uses(&c.split[j], t->dim[d].split.part[k]);
      if (free) c.split[i] = t->dim[d].split;
    }
  }
  return c;
}

void choose_wants(Reshard *r, const Op *op) {
  Choice c = wanted(r, op);
  r->want[op->order] = NEW_ARRAY(r->scratch, Type *, op->nin + 1);
  for (int o = 0; o < op->nin; o++) {
    if (r->state[op->in[o]].uses.n < 2) continue;
    r->want[op->order][o] = NEW(r->scratch, Type);
    *r->want[op->order][o] = choice_need(r, op, o, &c, NULL);
  }
}

/* Consumers that want v in the same layout share the price of making it. */
static int sharers(const Reshard *r, ValueId v, const Type *need) {
  const ValueState *s = &r->state[v];
  int n = 0;
  for (int i = 0; s->uses.n > 1 && i < s->uses.n; i++) {
    Type **want = r->want[s->uses.at[i].op->order];
    n += want && sharding_equal(want[s->uses.at[i].slot], need);
  }
  return n > 1 ? n : 1;
}

static double operand_cost(Search *s, int slot) {
  const Pending *sums = s->pending[slot] ? s->sums : NULL;
  if (version_fit(s->r, s->op, slot, &s->now, sums) >= 0) return 0;
  Type need = choice_need(s->r, s->op, slot, &s->now, sums);
  int source;
  double bytes = version_bytes(s->r, s->op->in[slot], &need, &source);
  return bytes > 0 ? bytes / sharers(s->r, s->op->in[slot], &need) : bytes;
}

/* Could the op that makes v leave it pending over p? Every part of p splits an index that v lacks. */
static bool could_pend(const Reshard *r, ValueId v, const Pending *p) {
  const Op *op = r->m->values.at[v].def;
  if (!op || op_class(op->kind) != CLS_SPACE) return false;
  const Factors *f = r->factors[op->order];
  int found = 0;
  for (int i = 0; i < p->n; i++) {
    bool splits = false;
    for (int o = 0; o < r->operands[op->order].n; o++) {
      const Type *t = &r->state[r->operands[op->order].at[o]].home;
      for (int d = 0; d < t->rank; d++) {
        int k = f->in[o].index[d];
        bool lacks = k != NO_FACTOR && f->splits[k];
        for (int e = 0; e < MAX_RANK; e++) lacks &= f->out[0].index[e] != k || e >= r->state[v].home.rank;
        splits |= lacks && split_uses(&t->dim[d].split, p->part[i]);
      }
    }
    found += splits;
  }
  return found == p->n;
}

/* Terms of one sum share the price of completing it, which is due already if one of them is pending; 0 then. */
static double share_of_sum(const Reshard *r, ValueId v, const Type *raw) {
  const ValueState *s = &r->state[v];
  if (raw->pending.n == 0 || raw->pending.kind != RED_SUM || s->pinned || !s->keep || s->uses.n != 1) return 1;
  const Op *user = s->uses.at[0].op;
  if (user->kind != OP_NEST || !(user->reduce == RED_NONE || user->reduce == RED_SUM)) return 1;
  int n = r->operands[user->order].n, terms = 0;
  bool pending[64] = {0}, due = false;
  if (n > 64) return 1;
  for (int o = 0; o < n; o++) {
    ValueId w = r->operands[user->order].at[o];
    bool known = w != v && r->state[w].have.n > 0 && pending_equal(&r->state[w].have.at[0]->type.pending, &raw->pending);
    pending[o] = w == v || (known ? r->state[w].keep : could_pend(r, w, &raw->pending));
    due |= known && r->state[w].keep;
    terms += pending[o];
  }
  if (!ex_linear_in(user->body, pending)) return 1;
  return due ? 0 : 1.0 / terms;
}

static double result_cost(Search *s, int result) {
  ValueId v = s->op->out[result];
  Type raw = choice_result(s->r, s->op, result, &s->now, s->sums);
  Price price;
  const Type *home = &s->r->state[v].home;
  if (sharding_equal(&raw, home) || s->r->state[v].uses.n == 0) return 0;
  const Plan *p = plan_find(s->r->planner, &raw, home, &price);
  return (price.bytes + waits(p)) * share_of_sum(s->r, v, &raw);
}

static double points(const Search *s) {
  double n = 1;
  for (int i = 0; i < s->op->space.n; i++)
    if (s->f->works[i]) n *= (double)split_capacity(&s->now.split[i], s->f->range[i]);
  return n;
}

int choice_block_moves(const Reshard *r, const Op *op, const Choice *c, const Pending *sums, BlockMove *move) {
  int n = block_moves(r->m, op, c->split, sums, move);
  bool places_unread = op->kind == OP_TOPK && r->state[op->out[1]].uses.n == 0;
  return places_unread ? 1 : n;
}

/* What an op that runs along a split index exchanges. */
static double block_cost(Search *s) {
  if (!block_needed(s->op, s->now.split)) return 0;
  const Pending none = {0};
  BlockMove move[BLOCK_MOVES];
  int n = choice_block_moves(s->r, s->op, &s->now, s->sums ? s->sums : &none, move);
  double cost = block_points(s->op, s->now.split) * BYTES_PER_POINT;
  Price price;
  for (int i = 0; i < n; i++) {
    const Plan *p = plan_find(s->r->planner, &move[i].from, &move[i].to, &price);
    cost += price.bytes + waits(p);
  }
  return cost;
}

static void consider(Search *s) {
  double cost = points(s) * BYTES_PER_POINT + block_cost(s);
  for (int o = 0; o < s->op->nin && cost < s->cost; o++) cost += operand_cost(s, o);
  for (int o = 0; o < s->op->nout && cost < s->cost; o++) cost += result_cost(s, o);
  if (cost >= s->cost) return;
  s->cost = cost;
  s->best = s->now;
}

static bool clashes(const Search *s, int factor, const Split *c) {
  for (int i = 0; i < factor; i++)
    for (int k = 0; k < c->n; k++)
      if (split_uses(&s->now.split[i], c->part[k])) return true;
  return false;
}

static void try_factor(Search *s, int factor) {
  if (s->leaves >= MAX_LEAVES) return;
  if (factor == s->f->n) {
    s->leaves++;
    consider(s);
    return;
  }
  for (int i = 0; i < s->n[factor]; i++) {
    const Split *c = &s->candidate[factor][i];
    if (clashes(s, factor, c)) continue;
    s->now.split[factor] = *c;
    try_factor(s, factor + 1);
  }
  s->now.split[factor] = (Split){0};
}

Choice choose_splits(Reshard *r, const Op *op, const bool *pending, const Pending *sums) {
  Search s; /* large, and mostly unused: not cleared */
  s.r = r, s.op = op, s.f = r->factors[op->order], s.pending = pending, s.sums = sums;
  s.cost = 1e300, s.leaves = 0;
  memset(s.n, 0, sizeof s.n);
  memset(&s.now, 0, sizeof s.now);
  find_candidates(&s);
  try_factor(&s, 0);
  assert(s.cost < 1e300 && "no split at all is always possible");
  return s.best;
}
