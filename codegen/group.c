/* group.c: which ops of a region are emitted as one loop nest. Ops are taken in program order; each joins the latest
   group in which its operands are there, that it has data in common with, and with which it still makes one plan of
   rows and segments (rows.c); a group stands where its first op stood. Matrix products stay alone.

     n1[b,t] = sum[d] ...  ; m.dt:7     [group 1]          %n1, %n2, %n3 become one nest over b, t
     n2[b,t] = rsqrt(...)  ; m.dt:7     [group 1]
     q[b,t,h] = sum[d] ... ; m.dt:8                        a product
     n3[b,t,d] = ...       ; m.dt:7     [group 1]          moved up: its operands were there                   */
#include "cg.h"

enum { GROUP_LIMIT = 48, REACH = 12 }; /* ops in a group; how many steps back an op looks for one */

typedef struct {
  VEC(Op *) op;
  bool open; /* may take more ops */
} Item;

typedef struct {
  Module *m;
  Arena *a;
  VEC(Item) item;
  int *where; /* item that makes a value, or -1 */
  int next;   /* number of the next group */
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
  return cg_plan_rows(g->a, g->m, all, item->op.n + 1, &plan);
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
  for (int p = 0; p < m->programs.n; p++) {
    cg_raise_phases(m, m->programs.at[p].body);
    group_region(&g, m->programs.at[p].body);
  }
  ir_number(m);
  arena_free(scratch);
}
