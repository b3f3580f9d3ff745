/* buffers.c: where values live. Each value that a step leaves in memory gets a slot: a byte range of the arena for an
   interval of the program's time. Leaves have slots for ever; other slots overlap in space where their intervals do
   not overlap in time, the largest placed first, each in the smallest gap that holds it.

   Values share a slot, so that nothing is copied, where
     - a map or an all_reduce writes over an operand of the same shape that nobody reads later, element by element;
     - the next value of a leaf is written over the leaf, if nobody reads the old one later;
     - a repeat's invariant and stacked operands are what its body's arguments read; a stacked result is written by the
       body directly into its slice; a carried value is written over the previous one if that is dead by then.

     x1 = carried, slot 3          r = x1 + o, slot 5         y = r + f, slot 3 (x1 is dead: no copy at the end)

   The interval of a slot inside a repeat's body is a part of the repeat's: each iteration uses the same bytes. A
   collective's operands are in use until it is waited for. */
#include <limits.h>
#include <stdlib.h>

#include "cg.h"

enum { ALIGNMENT = 64 };
static const int64_t ARENA_LIMIT = (int64_t)1 << 46;

typedef struct {
  int64_t bytes, offset;
  int start, end; /* in clock ticks, inclusive */
  int last;       /* last step of `region` that uses a value in it */
  const Region *region;
  bool leaf;
  int claimed; /* tick at which a result was last put here in place */
} Slot;

typedef struct {
  Module *m;
  Arena *a;
  Users *users;
  VEC(Slot) slot;
  int *of;     /* slot of a value, or -1 */
  int *forced; /* slot that a value should have, or -1 */
  int *use;    /* last step of its own region that uses a value */
  int *made;   /* step that makes it */
  int *step;   /* of the program's ops, by Op.order */
  int *wait;   /* step that waits for it, of a collective's result */
  int clock;
  int64_t workspace;
} Planner;

static const Type *type_of(const Planner *p, ValueId v) { return &p->m->values.at[v].type; }

static int new_slot(Planner *p, int64_t bytes, const Region *r, int last) {
  Slot s = {
      .bytes = max_i64(1, bytes), .offset = -1, .start = p->clock, .end = p->clock, .last = last, .region = r, .claimed = -1};
  vec_push(p->a, p->slot, s);
  return p->slot.n - 1;
}

static void touch(Planner *p, ValueId v) {
  if (p->of[v] >= 0) p->slot.at[p->of[v]].end = p->clock;
}

static void put(Planner *p, ValueId v, int slot) {
  p->of[v] = slot;
  Slot *s = &p->slot.at[slot];
  if (p->use[v] > s->last && p->m->values.at[v].region == s->region) s->last = p->use[v];
  if (p->clock > s->end) s->end = p->clock;
}

/* ---- what may be written over ------------------------------------------------------------------------------- */

/* May the step write `out` where `x` lies, element by element? */
static bool in_place(const Planner *p, const Step *s, const GroupPlan *g, ValueId out, ValueId x) {
  const Op *op = s->op[0];
  if (g) return cg_group_in_place(g, p->m, out, x);
  if (op->kind != OP_ALL_REDUCE) return false;
  for (int i = 0; i < op->nin; i++)
    if (op->in[i] == x && op->out[i] == out) return true;
  return false;
}

static bool reusable(const Planner *p, int slot, int step, const Region *r, int64_t bytes) {
  if (slot < 0) return false;
  const Slot *s = &p->slot.at[slot];
  return !s->leaf && s->region == r && s->last <= step && s->bytes == max_i64(1, bytes) && s->claimed != p->clock;
}

/* What an op is done with when it is over: its operands, and for a wait those of its collective. */
static const Op *ends(const Planner *p, const Op *op) { return op->kind == OP_WAIT ? p->m->values.at[op->in[0]].def : op; }

/* Is `op` the last to read x, but for those who wait for it? */
static bool reads_last(const Planner *p, const Op *op, ValueId x) {
  const Users *u = &p->users[x];
  for (int i = 0; i < u->op.n; i++) {
    const Op *other = u->op.at[i];
    bool later = other->order > op->order || (op_is_collective(other->kind) && p->wait[other->out[0]] > p->made[op->out[0]]);
    if (other != op && later) return false;
  }
  return !u->yielded;
}

static int slot_for(Planner *p, const Step *s, const GroupPlan *g, int step, const Region *r, ValueId v) {
  int64_t bytes = cg_bytes(type_of(p, v));
  int best = -1; /* the oldest: text may number operands otherwise */
  for (int k = 0; k < s->n; k++)
    for (int i = 0; i < s->op[k]->nin; i++) {
      ValueId x = s->op[k]->in[i];
      if (s->op[k]->kind == OP_ALL_REDUCE && s->op[k]->out[i] != v) continue; // of many, only its own operand
      int until = p->wait[v] >= 0 && reads_last(p, s->op[k], x) ? p->wait[v] : step;
      if (reusable(p, p->of[x], until, r, bytes) && in_place(p, s, g, v, x) && (best < 0 || p->of[x] < best)) best = p->of[x];
    }
  if (best >= 0) {
    p->slot.at[best].claimed = p->clock;
    return best;
  }
  return new_slot(p, bytes, r, p->use[v]);
}

/* ---- steps --------------------------------------------------------------------------------------------------- */

static void place_leaf(Planner *p, const Op *op) {
  if (op->kind == OP_SETTING) return;
  int s = new_slot(p, cg_bytes(type_of(p, op->out[0])), op->body_region, INT_MAX);
  p->slot.at[s].leaf = true;
  p->of[op->out[0]] = s;
}

static void place_step(Planner *p, const Step *s, int step, const Region *r) {
  GroupPlan plan, *g = NULL;
  if (cg_can_group(p->m, s->op[0])) {
    if (!cg_plan_rows(p->a, p->m, s->op, s->n, &plan)) internal_error("a group of ops that fit no loop nest");
    g = &plan;
    bool cuda = p->m->target == TARGET_CUDA;
    int64_t scratch = cuda ? cg_teams(g, p->m, p->users, p->a).workspace : cg_row_buffers(g, p->m, p->users, NULL);
    p->workspace = max_i64(p->workspace, scratch);
  }
  for (int k = 0; k < s->n; k++) {
    p->workspace = max_i64(p->workspace, cg_op_workspace(p->m, s->op[k]));
    for (int i = 0; i < s->op[k]->nout; i++) {
      ValueId v = s->op[k]->out[i];
      if (g && !cg_escapes(g, p->m, p->users, v)) continue;
      put(p, v, p->forced[v] >= 0 ? p->forced[v] : slot_for(p, s, g, step, r, v));
    }
  }
}

/* ---- repeat -------------------------------------------------------------------------------------------------- */

static bool used_once(const Op *op, ValueId v) {
  int n = 0;
  for (int i = 0; i < op->nin; i++) n += op->in[i] == v;
  return n == 1;
}

static int carried_slot(Planner *p, const Op *op, int i, int step, const Region *r) {
  ValueId init = op->in[i];
  int64_t bytes = cg_bytes(type_of(p, op->out[i]));
  if (used_once(op, init) && reusable(p, p->of[init], step, r, bytes)) {
    p->slot.at[p->of[init]].claimed = p->clock;
    return p->of[init];
  }
  return new_slot(p, bytes, r, p->use[op->out[i]]);
}

static bool yielded_once(const Region *body, ValueId v) {
  int n = 0;
  for (int i = 0; i < body->yields.n; i++) n += body->yields.at[i] == v;
  return n == 1;
}

static void walk(Planner *p, Region *r);

static void place_repeat(Planner *p, const Op *op, int step, const Region *r) {
  Region *body = op->body_region;
  for (int i = 0; i < op->ncarried; i++) {
    int s = carried_slot(p, op, i, step, r);
    put(p, op->out[i], s);
    p->of[body->args.at[1 + i]] = s;
  }
  for (int i = op->ncarried; i < op->nin; i++) p->of[body->args.at[1 + i]] = p->of[op->in[i]];
  for (int i = op->ncarried; i < op->nout; i++) {
    put(p, op->out[i], new_slot(p, cg_bytes(type_of(p, op->out[i])), r, p->use[op->out[i]]));
    ValueId y = body->yields.at[i];
    if (p->m->values.at[y].def && yielded_once(body, y)) p->forced[y] = p->of[op->out[i]];
  }
  int64_t swapped = 0;
  for (int i = 0; i < op->ncarried; i++)
    if (!p->m->values.at[body->yields.at[i]].def) swapped += (cg_bytes(type_of(p, op->out[i])) + 63) / 64 * 64;
  p->workspace = max_i64(p->workspace, swapped);
  p->clock++;
  walk(p, body);
  p->clock++;
  for (int i = 0; i < op->nin; i++) touch(p, op->in[i]);
  for (int i = 0; i < op->nout; i++) touch(p, op->out[i]);
}

/* The next carried value goes where the previous one is, if that is dead by then. */
static void carried_in_place(Planner *p, const Region *body, const Steps *steps) {
  const Op *op = body->parent;
  for (int i = 0; op && i < op->ncarried; i++) {
    ValueId now = body->args.at[1 + i], next = body->yields.at[i];
    if (!p->m->values.at[next].def || !yielded_once(body, next) || p->forced[next] >= 0) continue;
    int at = p->made[next];
    const Step *s = &steps->at[at];
    GroupPlan plan, *g = NULL;
    if (cg_can_group(p->m, s->op[0]) && cg_plan_rows(p->a, p->m, s->op, s->n, &plan)) g = &plan;
    if (p->use[now] < at || (p->use[now] == at && in_place(p, s, g, next, now))) p->forced[next] = p->of[now];
  }
}

/* ---- updates ------------------------------------------------------------------------------------------------- */

static void update_in_place(Planner *p, const Op *update, const Steps *steps) {
  ValueId leaf = update->in[0], next = update->in[1];
  const Op *def = p->m->values.at[next].def;
  if (!def || op_class(def->kind) == CLS_LEAF || def->kind == OP_REPEAT || p->forced[next] >= 0) return;
  int at = p->made[next];
  const Step *s = &steps->at[at];
  GroupPlan plan, *g = NULL;
  if (cg_can_group(p->m, s->op[0]) && cg_plan_rows(p->a, p->m, s->op, s->n, &plan)) {
    g = &plan;
    if (!cg_escapes(g, p->m, p->users, next)) return;
  }
  for (int i = 0; i < p->users[leaf].op.n; i++) {
    const Op *op = p->users[leaf].op.at[i];
    int until = op_is_collective(op->kind) ? p->wait[op->out[0]] : p->step[op->order];
    if (op == update || until < at) continue;
    if (until > at || !in_place(p, s, g, next, leaf)) return;
  }
  p->forced[next] = p->of[leaf];
}

/* ---- time ---------------------------------------------------------------------------------------------------- */

/* Last uses by step. The next value of a leaf is used when the program ends. A stacked yield of an argument is copied
   when an iteration begins, so it is no use at its end. */
static void last_uses(Planner *p, const Region *r, const Steps *steps) {
  for (int i = 0; i < steps->n; i++)
    for (int k = 0; k < steps->at[i].n; k++) {
      const Op *op = steps->at[i].op[k];
      if (!r->parent) p->step[op->order] = i;
      for (int j = 0; j < op->nin; j++) {
        int now = op->kind == OP_UPDATE ? INT_MAX : i;
        if (p->use[op->in[j]] < now) p->use[op->in[j]] = now;
        if (op->kind == OP_WAIT) p->wait[op->in[j]] = i;
      }
      for (int j = 0; j < ends(p, op)->nin; j++) p->use[ends(p, op)->in[j]] = (int)max_i64(p->use[ends(p, op)->in[j]], i);
      for (int j = 0; j < op->nout; j++) p->made[op->out[j]] = i;
    }
  int ncarried = r->parent ? r->parent->ncarried : 0;
  for (int i = 0; i < r->yields.n; i++)
    if (i < ncarried || p->m->values.at[r->yields.at[i]].def) p->use[r->yields.at[i]] = INT_MAX;
}

static void walk(Planner *p, Region *r) {
  Steps steps = cg_steps(r, p->a);
  if (!r->parent) p->step = NEW_ARRAY(p->a, int, r->ops.n + 1);
  last_uses(p, r, &steps);
  for (int i = 0; i < r->ops.n; i++)
    if (op_class(r->ops.at[i]->kind) == CLS_LEAF) place_leaf(p, r->ops.at[i]);
  for (int i = r->ops.n - 1; i >= 0; i--)
    if (r->ops.at[i]->kind == OP_UPDATE) update_in_place(p, r->ops.at[i], &steps);
  carried_in_place(p, r, &steps);
  for (int i = 0; i < steps.n; i++) {
    Step *s = &steps.at[i];
    for (int k = 0; k < s->n; k++) {
      const Op *ended = ends(p, s->op[k]);
      for (int j = 0; j < s->op[k]->nin; j++) touch(p, s->op[k]->in[j]);
      for (int j = 0; j < ended->nin; j++) touch(p, ended->in[j]);
    }
    if (s->op[0]->kind == OP_REPEAT)
      place_repeat(p, s->op[0], i, r);
    else if (op_class(s->op[0]->kind) != CLS_LEAF)
      place_step(p, s, i, r);
    p->clock++;
  }
  for (int i = 0; i < r->yields.n; i++) touch(p, r->yields.at[i]);
  for (int i = 0; i < r->ops.n; i++)
    if (r->ops.at[i]->kind == OP_UPDATE) touch(p, r->ops.at[i]->in[1]);
}

/* ---- space --------------------------------------------------------------------------------------------------- */

static int64_t aligned(int64_t n) { return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static int by_size(const void *a, const void *b) {
  const Slot *x = *(Slot *const *)a, *y = *(Slot *const *)b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return x < y ? -1 : x > y;
}

static int64_t lay_out(Planner *p) {
  int64_t top = 0;
  Slot **order = NEW_ARRAY(p->a, Slot *, p->slot.n + 1);
  int n = 0;
  for (int i = 0; i < p->slot.n; i++) {
    Slot *s = &p->slot.at[i];
    s->bytes = min_i64(s->bytes, ARENA_LIMIT);
    if (!s->leaf) {
      order[n++] = s;
      continue;
    }
    s->offset = top;
    top = min_i64(ARENA_LIMIT, top + aligned(s->bytes));
  }
  int64_t floor = top;
  Gaps taken = {0};
  qsort(order, (size_t)n, sizeof *order, by_size);
  for (int i = 0; i < n; i++) {
    Slot *s = order[i];
    s->offset = min_i64(ARENA_LIMIT, cg_gap(&taken, s->start, s->end, aligned(s->bytes), floor));
    int64_t end = min_i64(ARENA_LIMIT, s->offset + aligned(s->bytes));
    cg_gap_take(p->a, &taken, s->start, s->end, s->offset, end);
    top = max_i64(top, end);
  }
  return top;
}

void cg_buffers(Module *m, PassContext *cx) {
  Arena *scratch = arena_new();
  Planner p = {.m = m, .a = scratch, .users = cg_users(m, scratch)};
  p.of = NEW_ARRAY(scratch, int, m->values.n + 1);
  p.forced = NEW_ARRAY(scratch, int, m->values.n + 1);
  p.use = NEW_ARRAY(scratch, int, m->values.n + 1);
  p.made = NEW_ARRAY(scratch, int, m->values.n + 1);
  p.wait = NEW_ARRAY(scratch, int, m->values.n + 1);
  for (int i = 0; i < m->values.n; i++) p.of[i] = p.forced[i] = p.use[i] = p.made[i] = p.wait[i] = -1;
  for (int i = 0; i < m->programs.n; i++) walk(&p, m->programs.at[i].body);
  m->arena_bytes = lay_out(&p);
  m->workspace_bytes = min_i64(ARENA_LIMIT, aligned(p.workspace));
  int64_t more = m->target == TARGET_CUDA ? min_i64(ARENA_LIMIT, cg_staging_bytes(m)) + cg_library_bytes(m) : 0;
  int64_t needed = m->arena_bytes + m->workspace_bytes + more;
  if (m->arena_bytes >= ARENA_LIMIT || m->workspace_bytes >= ARENA_LIMIT)
    diag_error(cx->diags, "E0801", (Loc){0}, "a rank would need more than 64 TiB of memory");
  else if (cx->memory_limit > 0 && needed > cx->memory_limit)
    diag_error(cx->diags, "E0802", (Loc){0}, "a rank needs %lld bytes, more than the limit of %lld", (long long)needed,
               (long long)cx->memory_limit);
  m->buffers = NEW_ARRAY(m->arena, Buffer, m->values.n + 1);
  for (int i = 0; i < m->values.n; i++) {
    m->buffers[i].offset = p.of[i] < 0 ? -1 : p.slot.at[p.of[i]].offset;
    m->buffers[i].bytes = p.of[i] < 0 ? 0 : cg_bytes(&m->values.at[i].type);
  }
  arena_free(scratch);
}
