/* overlap.c: where collectives start and where they are waited for. A collective starts as soon as its operands are
   there and is waited for right before its first result is read; where nothing would be left to do in between, later
   steps that do not depend on it are moved up, or earlier ones that it does not depend on down:

     %d.x = all_reduce %d.x.1            %d.x = all_reduce %d.x.1                 starts
     %d.y = nest .. %d.x ..        =>    %d.w = nest sum .. %m .. %d.a ..         behind this, which was independent,
     %d.w = nest sum .. %m .. %d.a       wait %d.x                                nobody waits
                                         %d.y = nest .. %d.x ..

   Time is the position in the order that came in. The peak of the bytes alive over it (each value from its step to its
   last use, a repeat with the peak of its body) is a limit: a start, a wait or a step is moved only where the bytes that
   it keeps alive for longer stay below it. So overlap costs no memory but what the placing of buffers loses by it. */
#include "cg.h"

enum { REACH = 64 }; /* positions that anything moves at most */
enum {
  ENOUGH = 4096
}; /* points of an index space per element that is moved: between processes of a host 100 hide a
      collective, between GPUs of a node 10,000 */

typedef struct {
  const Op *op;
  int at;        /* where it stood */
  int64_t hides; /* points computed since it started */
} Flight;

/* What runs, in the order that goes out: a step, or a wait. */
typedef struct {
  int step;
  Op *wait; /* or NULL */
} Item;

typedef struct {
  Module *m;
  Arena *a;
  Steps step;      /* in the order that came in */
  bool phased;     /* a program: each phase is a function, and nothing leaves its phase */
  bool *done;      /* per step */
  int64_t *live;   /* bytes alive while a step runs */
  int64_t limit;   /* their peak */
  int *made;       /* by value: the step that makes it; -1: it is there from the beginning */
  int *last;       /* the last step that reads it */
  bool *under_way; /* by value: made by a collective that is not waited for yet */
  bool *needed;    /* by value, while looking back: read by what stays before a collective */
  VEC(Flight) flight;
  VEC(Item) out;
} Order;

static bool is_collective(const Step *s) { return op_is_collective(s->op[0]->kind); }

/* A value that only its own group reads is never in memory. */
static bool in_memory(const Order *o, ValueId v, const Users *users) {
  const Op *def = o->m->values.at[v].def;
  bool outside = users[v].yielded || def->group == 0 || users[v].op.n == 0;
  for (int i = 0; i < users[v].op.n; i++) outside |= users[v].op.at[i]->group != def->group;
  return outside;
}

static int64_t bytes_of(const Order *o, ValueId v) { return cg_bytes(&o->m->values.at[v].type); }

/* ---- bytes alive ------------------------------------------------------------------------------------------------- */

static void find_lives(Order *o, const Region *r) {
  for (int i = 0; i < o->step.n; i++)
    for (int k = 0; k < o->step.at[i].n; k++) {
      const Op *op = o->step.at[i].op[k];
      for (int j = 0; j < op->nout && op_class(op->kind) != CLS_LEAF; j++) o->made[op->out[j]] = o->last[op->out[j]] = i;
      for (int j = 0; j < op->nin; j++) o->last[op->in[j]] = op->kind == OP_UPDATE ? o->step.n - 1 : i;
    }
  for (int i = 0; i < r->yields.n; i++) o->last[r->yields.at[i]] = o->step.n - 1;
}

static void find_live_bytes(Order *o, const Users *users, const int64_t *body_peak) {
  int64_t *change = NEW_ARRAY(o->a, int64_t, o->step.n + 1), sum = 0;
  for (int i = 0; i < o->step.n; i++)
    for (int k = 0; k < o->step.at[i].n; k++) {
      const Op *op = o->step.at[i].op[k];
      for (int j = 0; j < op->nout; j++) {
        if (o->made[op->out[j]] < 0 || !in_memory(o, op->out[j], users)) continue;
        change[i] += bytes_of(o, op->out[j]);
        change[o->last[op->out[j]] + 1] -= bytes_of(o, op->out[j]);
      }
    }
  for (int i = 0; i < o->step.n; i++) {
    sum += change[i];
    o->live[i] = sum + body_peak[i];
    o->limit = max_i64(o->limit, o->live[i]);
  }
}

/* May `bytes` more be alive at steps [from, to)? If so they are. */
static bool keep_alive(Order *o, int from, int to, int64_t bytes) {
  for (int i = from; i < to && bytes; i++)
    if (o->live[i] > o->limit - bytes) return false;
  for (int i = from; i < to; i++) o->live[i] += bytes;
  return true;
}

/* ---- what may run now --------------------------------------------------------------------------------------------- */

static bool there(const Order *o, ValueId v) { return (o->made[v] < 0 || o->done[o->made[v]]) && !o->under_way[v]; }

static bool all_there(const Order *o, const Step *s) {
  for (int k = 0; k < s->n; k++)
    for (int i = 0; i < s->op[k]->nin; i++) {
      ValueId v = s->op[k]->in[i];
      bool own = o->made[v] >= 0 && o->step.at[o->made[v]].op == s->op;
      if (!own && !there(o, v)) return false;
    }
  return true;
}

static bool may_move(const Order *o, int step, int head) {
  const Step *s = &o->step.at[step];
  return !o->done[step] && (!o->phased || s->op[0]->phase == o->step.at[head].op[0]->phase) && all_there(o, s);
}

/* An all-reduce whose operand nobody reads later is done in place. */
static bool in_place(const Order *o, const Op *op, int i, int at) {
  return op->kind == OP_ALL_REDUCE && o->made[op->in[i]] >= 0 && o->last[op->in[i]] == at;
}

static int64_t points_of(const Step *s) {
  int64_t n = 0;
  for (int k = 0; k < s->n; k++) {
    int64_t points = 1;
    for (int i = 0; i < s->op[k]->space.n; i++)
      if (!checked_mul(points, cg_capacity(&s->op[k]->space.idx[i]), &points)) return INT64_MAX;
    if (s->op[k]->space.n && !checked_add(n, points, &n)) return INT64_MAX;
  }
  return n;
}

static int64_t elements_of(const Order *o, const Op *op) {
  int64_t n = 0;
  for (int i = 0; i < op->nout; i++) n += type_capacity(&o->m->values.at[op->out[i]].type);
  return n;
}

/* ---- moving -------------------------------------------------------------------------------------------------------- */

static void take(Order *o, int step) {
  const Step *s = &o->step.at[step];
  o->done[step] = true;
  int64_t points = points_of(s);
  for (int i = 0; i < o->flight.n; i++)
    if (!checked_add(o->flight.at[i].hides, points, &o->flight.at[i].hides)) o->flight.at[i].hides = INT64_MAX;
  vec_push(o->a, o->out, ((Item){step, NULL}));
  if (!is_collective(s)) return;
  vec_push(o->a, o->flight, ((Flight){s->op[0], step, 0}));
  for (int i = 0; i < s->op[0]->nout; i++) o->under_way[s->op[0]->out[i]] = true;
}

static void wait_for(Order *o, int flight) {
  const Op *op = o->flight.at[flight].op;
  Op *wait = ir_op(o->m, OP_WAIT, op->loc);
  wait->phase = op->phase;
  for (int i = 0; i < op->nout; i++) {
    ir_in(o->m, wait, op->out[i]);
    o->under_way[op->out[i]] = false;
  }
  vec_push(o->a, o->out, ((Item){-1, wait}));
  o->flight.n--;
  memmove(o->flight.at + flight, o->flight.at + flight + 1, sizeof(Flight) * (size_t)(o->flight.n - flight));
}

static void start_early(Order *o, int head) {
  int end = (int)min_i64(o->step.n, head + REACH);
  for (int q = head; q < end; q++) {
    const Op *op = o->step.at[q].op[0];
    if (!is_collective(&o->step.at[q]) || !may_move(o, q, head)) continue;
    int64_t bytes = 0;
    for (int i = 0; i < op->nout; i++) bytes += in_place(o, op, i, q) ? 0 : bytes_of(o, op->out[i]);
    if (keep_alive(o, head, q, bytes)) take(o, q);
  }
}

/* The flight that a step has to wait for, or -1. */
static int awaited(const Order *o, const Step *s) {
  for (int f = 0; f < o->flight.n; f++)
    for (int k = 0; k < s->n; k++)
      for (int i = 0; i < s->op[k]->nin; i++)
        for (int j = 0; j < o->flight.at[f].op->nout; j++)
          if (s->op[k]->in[i] == o->flight.at[f].op->out[j]) return f;
  return -1;
}

static bool hidden(const Order *o, const Flight *f) { return f->hides / ENOUGH >= elements_of(o, f->op); }

/* Moves a later step up to `head`, which waits for a collective that this step can hide. */
static bool hide(Order *o, int head, const Flight *f) {
  int end = (int)min_i64(o->step.n, head + REACH);
  for (int q = head + 1; q < end; q++) {
    const Step *s = &o->step.at[q];
    if (op_class(s->op[0]->kind) != CLS_SPACE || !may_move(o, q, head) || points_of(s) < elements_of(o, f->op)) continue;
    int64_t bytes = 0;
    for (int k = 0; k < s->n; k++)
      for (int i = 0; i < s->op[k]->nout; i++) bytes += bytes_of(o, s->op[k]->out[i]);
    if (!keep_alive(o, head, q, bytes)) continue;
    take(o, q);
    return true;
  }
  return false;
}

/* ---- moving down ----------------------------------------------------------------------------------------------------- */

static void need_operands(Order *o, const Item *x, bool needed) {
  for (int k = 0; k < (x->wait ? 1 : o->step.at[x->step].n); k++) {
    const Op *op = x->wait ? x->wait : o->step.at[x->step].op[k];
    for (int i = 0; i < op->nin; i++) o->needed[op->in[i]] = needed;
  }
}

static bool makes_needed(const Order *o, const Step *s) {
  for (int k = 0; k < s->n; k++)
    for (int i = 0; i < s->op[k]->nout; i++)
      if (o->needed[s->op[k]->out[i]]) return true;
  return false;
}

/* The step's operands stay until `head`, if there is room. */
static bool keep_operands(Order *o, const Step *s, int head) {
  for (int k = 0; k < s->n; k++)
    for (int i = 0; i < s->op[k]->nin; i++) {
      ValueId v = s->op[k]->in[i];
      if (o->made[v] < 0 || o->last[v] >= head) continue;
      if (!keep_alive(o, o->last[v] + 1, head, bytes_of(o, v))) return false;
      o->last[v] = head;
    }
  return true;
}

/* The item before the start of a flight that may stand behind it and hide it, or -1: nothing that stays before the start
   reads what it makes, and it hides no other flight. */
static int find_earlier(Order *o, const Flight *f, int start, int head) {
  int found = -1, first = start > REACH ? start - REACH : 0, open = 0;
  for (int i = start; i >= first && found < 0; i--) {
    const Item *x = &o->out.at[i];
    const Step *s = x->wait ? NULL : &o->step.at[x->step];
    if (x->wait) open++;
    if (s && i < start && is_collective(s) && !o->under_way[s->op[0]->out[0]]) open--;
    if (s && o->phased && s->op[0]->phase != f->op->phase) break;
    bool may = s && open == 0 && op_class(s->op[0]->kind) == CLS_SPACE && points_of(s) >= elements_of(o, f->op);
    if (may && !makes_needed(o, s) && keep_operands(o, s, head))
      found = i;
    else
      need_operands(o, x, true);
  }
  for (int i = first; i <= start; i++) need_operands(o, &o->out.at[i], false);
  return found;
}

/* Moves an earlier step, on which the flight does not depend, behind its start. */
static bool sink(Order *o, int head, Flight *f) {
  int start = o->out.n - 1;
  while (o->out.at[start].wait || o->step.at[o->out.at[start].step].op[0] != f->op) start--;
  int at = find_earlier(o, f, start, head);
  if (at < 0) return false;
  Item moved = o->out.at[at];
  memmove(o->out.at + at, o->out.at + at + 1, sizeof moved * (size_t)(start - at));
  o->out.at[start] = moved;
  if (!checked_add(f->hides, points_of(&o->step.at[moved.step]), &f->hides)) f->hides = INT64_MAX;
  return true;
}

/* Operands of what is under way that nobody else needs any more are kept while there is room. */
static void make_room(Order *o, int head) {
  for (int f = 0; f < o->flight.n;) {
    const Op *op = o->flight.at[f].op;
    int64_t bytes = 0;
    for (int i = 0; i < op->nin; i++)
      if (o->made[op->in[i]] >= 0 && o->last[op->in[i]] < head && !in_place(o, op, i, o->flight.at[f].at))
        bytes += bytes_of(o, op->in[i]);
    if (keep_alive(o, head, head + 1, bytes))
      f++;
    else
      wait_for(o, f);
  }
}

static void run_step(Order *o, int head) {
  const Step *s = &o->step.at[head];
  for (int f; (f = awaited(o, s)) >= 0;) {
    Flight *flight = &o->flight.at[f];
    if (!hidden(o, flight) && hide(o, head, flight))
      start_early(o, head);
    else if (hidden(o, flight) || !sink(o, head, flight))
      wait_for(o, f);
  }
  if (o->done[head]) return; /* a collective that has started meanwhile */
  make_room(o, head);
  take(o, head);
}

static void put_out(const Order *o, Region *r) {
  VEC(Op *) ops = {0};
  for (int i = 0; i < o->out.n; i++) {
    const Item *x = &o->out.at[i];
    if (x->wait) vec_push(o->a, ops, x->wait);
    for (int k = 0; !x->wait && k < o->step.at[x->step].n; k++) vec_push(o->a, ops, o->step.at[x->step].op[k]);
  }
  r->ops.n = 0;
  for (int i = 0; i < ops.n; i++) vec_push(o->m->arena, r->ops, ops.at[i]);
}

static int64_t order_region(Module *m, Arena *a, const Users *users, Region *r) {
  Order o = {.m = m, .a = a, .step = cg_steps(r, a), .phased = !r->parent};
  int64_t *body_peak = NEW_ARRAY(a, int64_t, o.step.n + 1);
  for (int i = 0; i < o.step.n; i++)
    if (o.step.at[i].op[0]->body_region) body_peak[i] = order_region(m, a, users, o.step.at[i].op[0]->body_region);
  o.done = NEW_ARRAY(a, bool, o.step.n + 1);
  o.live = NEW_ARRAY(a, int64_t, o.step.n + 1);
  o.made = NEW_ARRAY(a, int, m->values.n + 1);
  o.last = NEW_ARRAY(a, int, m->values.n + 1);
  o.under_way = NEW_ARRAY(a, bool, m->values.n + 1);
  o.needed = NEW_ARRAY(a, bool, m->values.n + 1);
  for (int v = 0; v < m->values.n; v++) o.made[v] = o.last[v] = -1;
  find_lives(&o, r);
  find_live_bytes(&o, users, body_peak);
  for (int head = 0, before = -1; head < o.step.n; head++) {
    const Op *op = o.step.at[head].op[0];
    bool leaf = op_class(op->kind) == CLS_LEAF;
    if (o.phased && !leaf && (int)op->phase != before)
      while (o.flight.n) wait_for(&o, 0);
    if (!leaf) before = (int)op->phase;
    if (!leaf && !o.done[head]) start_early(&o, head);
    if (!o.done[head]) run_step(&o, head);
  }
  while (o.flight.n) wait_for(&o, 0);
  put_out(&o, r);
  return o.limit;
}

void cg_overlap(Module *m, Arena *scratch) {
  Users *users = cg_users(m, scratch);
  for (int p = 0; p < m->programs.n; p++) order_region(m, scratch, users, m->programs.at[p].body);
}
