/* group.c: which ops of a region are emitted as one loop nest. Ops are taken in program order; each joins the latest
   group in which its operands are there, that it has data in common with, and with which it still makes one plan of
   rows and segments (rows.c); a group stands where its first op stood. Matrix products stay alone.

     n1[b,t] = sum[d] ...  ; m.dt:7     [group 1]          %n1, %n2, %n3 become one nest over b, t
     n2[b,t] = rsqrt(...)  ; m.dt:7     [group 1]
     q[b,t,h] = sum[d] ... ; m.dt:8                        a product
     n3[b,t,d] = ...       ; m.dt:7     [group 1]          moved up: its operands were there

   In CUDA a product takes along a sum of one of its operands, wherever that stood (epilogue.c). */
#include "cg.h"

enum {
  GROUP_LIMIT = 48, /* ops in a group */
  REACH = 12,       /* how many steps back an op looks for one */
  SUM_REACH = 64    /* how far from its product a sum is taken along */
};

typedef struct {
  VEC(Op *) op;
  bool open; /* may take more ops */
} Item;

typedef struct {
  Module *m;
  Arena *a;
  VEC(Item) item;
  int *where;   /* item that makes a value, or -1 */
  int next;     /* number of the next group */
  Users *users; /* CUDA */
} Grouping;

static bool is_scalar(const Module *m, ValueId v) { return m->values.at[v].type.rank == 0; }

/* Reads what the group makes, or something that is not a scalar that the group reads too; or both are scalars, or
   come from one line of the user's. */
static bool related(const Grouping *g, const Item *item, const Op *op) {
  const Op *first = item->op.at[0];
  if (op->space.n == 0 && first->space.n == 0) return true;
  for (int k = 0; k < item->op.n; k++) {
    const Op *other = item->op.at[k];
    if (op->loc.line > 0 && other->loc.line == op->loc.line && other->loc.file == op->loc.file) return true;
    for (int i = 0; i < op->nin; i++) {
      if (g->m->values.at[op->in[i]].def == other) return true;
      for (int j = 0; j < other->nin && !is_scalar(g->m, op->in[i]); j++)
        if (other->in[j] == op->in[i]) return true;
    }
  }
  return false;
}

static bool only_scalars(const Item *item) {
  for (int k = 0; k < item->op.n; k++)
    if (item->op.at[k]->space.n > 0) return false;
  return true;
}

static bool fits(const Grouping *g, const Item *item, Op *op) {
  const Op *first = item->op.at[0];
  if (!item->open || item->op.n >= GROUP_LIMIT || first->phase != op->phase || !related(g, item, op)) return false;
  if (only_scalars(item) != (op->space.n == 0) && first->loc.line != op->loc.line) return false; // they share no loop
  Op *all[GROUP_LIMIT + 1];
  memcpy(all, item->op.at, (size_t)item->op.n * sizeof *all);
  all[item->op.n] = op;
  GroupPlan plan;
  Arena *scratch = arena_new(); /* of one question: there are many */
  bool together = cg_plan_rows(scratch, g->m, all, item->op.n + 1, &plan);
  arena_free(scratch);
  return together;
}

static int earliest(const Grouping *g, const Op *op) {
  int at = 0;
  for (int i = 0; i < op->nin; i++) at = g->where[op->in[i]] > at ? g->where[op->in[i]] : at;
  return at;
}

static int find_group(const Grouping *g, Op *op) {
  if (!cg_can_group(g->m, op)) return -1;
  int first = earliest(g, op);
  if (first < g->item.n - REACH) first = g->item.n - REACH;
  for (int i = g->item.n - 1; i >= first; i--)
    if (fits(g, &g->item.at[i], op)) return i;
  return -1;
}

/* ---- sums of a product's operands ---------------------------------------------------------------------------------- */

static bool reads(const Item *item, ValueId v) {
  for (int k = 0; k < item->op.n; k++)
    if (cg_takes(item->op.at[k], v)) return true;
  return false;
}

/* Takes the op out of its item, if the others make a plan without it. */
static bool take_out(Grouping *g, Item *item, const Op *op) {
  Item rest = {0};
  GroupPlan plan;
  for (int k = 0; k < item->op.n; k++)
    if (item->op.at[k] != op) vec_push(g->a, rest.op, item->op.at[k]);
  if (rest.op.n > 0 && !cg_plan_rows(g->a, g->m, rest.op.at, rest.op.n, &plan)) return false;
  *item = rest;
  return true;
}

static bool may_be_taken(const Grouping *g, int product, const Op *sum) {
  int at = sum->kind == OP_NEST && sum->reduce == RED_SUM ? g->where[sum->out[0]] : -1;
  if (at < 0 || at == product || at < product - SUM_REACH || at > product + SUM_REACH) return false;
  for (int i = at; i < product; i++)
    if (reads(&g->item.at[i], sum->out[0])) return false; // before the product's step
  return g->item.at[product].op.at[0]->phase == sum->phase;
}

/* Joins the sum to the product's step. */
static bool take_along(Grouping *g, int product, Op *sum) {
  Item *from = &g->item.at[g->where[sum->out[0]]], was = *from;
  if (!take_out(g, from, sum)) return false;
  if (!cg_make_operands_sum(g->m, g->item.at[product].op.at[0], sum)) {
    *from = was;
    return false;
  }
  vec_push(g->a, g->item.at[product].op, sum);
  g->where[sum->out[0]] = product;
  return true;
}

/* Takes along a sum that reads x, as that of an operand would. */
static bool take_reader(Grouping *g, int product, ValueId x) {
  const Users *u = &g->users[x];
  for (int i = 0; i < u->op.n; i++)
    if (may_be_taken(g, product, u->op.at[i]) && take_along(g, product, u->op.at[i])) return true;
  return false;
}

/* Sums of an operand read it, or what it is computed from. */
static void sums_of_operands(Grouping *g) {
  for (int p = 0; p < g->item.n; p++) {
    const Op *op = g->item.at[p].op.n == 1 ? g->item.at[p].op.at[0] : NULL;
    if (!op || op->kind != OP_NEST || cg_can_group(g->m, op)) continue;
    bool taken = false;
    for (int i = 0; i < op->nin && !taken; i++) {
      const Op *def = g->m->values.at[op->in[i]].def;
      taken = take_reader(g, p, op->in[i]);
      for (int k = 0; def && def->kind == OP_NEST && k < def->nin && !taken; k++) taken = take_reader(g, p, def->in[k]);
    }
  }
}

/* ---- a region ------------------------------------------------------------------------------------------------------ */

static void group_region(Grouping *g, Region *r) {
  g->item.n = 0;
  for (int i = 0; i < r->args.n; i++) g->where[r->args.at[i]] = -1;
  for (int i = 0; i < r->ops.n; i++) {
    Op *op = r->ops.at[i];
    int at = find_group(g, op);
    if (at < 0) {
      at = g->item.n;
      vec_push(g->a, g->item, ((Item){.open = cg_can_group(g->m, op)}));
    }
    vec_push(g->a, g->item.at[at].op, op);
    for (int k = 0; k < op->nout; k++) g->where[op->out[k]] = at;
  }
  if (g->users) sums_of_operands(g);
  r->ops.n = 0;
  for (int i = 0; i < g->item.n; i++) {
    int number = g->item.at[i].op.n > 1 ? g->next++ : 0;
    for (int k = 0; k < g->item.at[i].op.n; k++) {
      g->item.at[i].op.at[k]->group = number;
      r->ops.at[r->ops.n++] = g->item.at[i].op.at[k];
    }
  }
  for (int i = 0; i < r->ops.n; i++)
    if (r->ops.at[i]->body_region) group_region(g, r->ops.at[i]->body_region);
}

void cg_group(Module *m, PassContext *cx) {
  (void)cx;
  Arena *scratch = arena_new();
  Grouping g = {.m = m, .a = scratch, .where = NEW_ARRAY(scratch, int, m->values.n + 1), .next = 1};
  for (int i = 0; i < m->values.n; i++) g.where[i] = -1;
  if (m->target == TARGET_CUDA) g.users = cg_users(m, scratch);
  for (int p = 0; p < m->programs.n; p++) {
    cg_raise_phases(m, m->programs.at[p].body);
    group_region(&g, m->programs.at[p].body);
  }
  ir_number(m);
  arena_free(scratch);
}
