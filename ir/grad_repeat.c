/* grad_repeat.c: the reverse of a loop is a loop, as long in the IR as its body. It runs the counter downwards and
   carries the gradients of what the forward loop carried, and a running sum for each invariant. It is handed
   again the invariants and slices of the forward loop, slices of the gradients of the stacked results, and what
   else its body reads of the forward body's values: those the forward loop saves, stacked.

     %y = repeat %l < L=4 carry(%x = %x0) with() each(%w = %ws) { %a[b,j] = nest sum[k] %x[b,k] * %w[k,j]
                                                                 %t[b,j] = nest tanh(%a[b,j])   yield %t stack() save() }
   becomes
     %y, %x.all, %t.all = repeat ... yield %t stack() save(%x, %t)
     %d.x0, %d.ws = repeat reverse %l.1 < L=4 carry(%d.t = %d.y) with() each(%w.1 = %ws, %x.1 = %x.all, %t.1 = %t.all) {
       %d.a[b,j] = nest %d.t[b,j] * (1.0 - %t.1[b,j] * %t.1[b,j])   ...   yield %d.x stack(%d.w) save() } */
#include "grad.h"

typedef struct {
  ValueId outer, arg, yield; /* what goes in, its name inside, what goes on to the next round (carried) */
  ValueId grad_of;           /* the operand of the forward op whose gradient comes out; -1: none */
} Entry;

typedef struct {
  Grad *g;
  Op *forward, *back;
  Region *body; /* the forward body */
  ValueId counter;
  VEC(Entry) carried, invariants, each, stacks;
} Reverse;

static Type slice_type(const Type *t) {
  Type s = {.dtype = t->dtype, .rank = t->rank - 1};
  for (int d = 1; d < t->rank; d++) s.dim[d - 1] = t->dim[d];
  return grad_open(&s);
}

static Type stack_type(const Op *repeat, const Type *t) {
  Type open = grad_open(t), s = {.dtype = t->dtype, .rank = t->rank + 1};
  s.dim[0] = (Dim){.name = repeat->trip_dim, .size = repeat->trip};
  for (int d = 0; d < t->rank; d++) s.dim[d + 1] = open.dim[d];
  return s;
}

static ValueId new_arg(Reverse *r, const char *name, Type t) {
  ValueId v = ir_value(r->g->m, name, t, r->forward->loc);
  r->g->m->values.at[v].region = r->back->body_region;
  return v;
}

static const Value *value(const Reverse *r, ValueId v) { return &r->g->m->values.at[v]; }

/* ---- gradients that go in ---------------------------------------------------------------------------------------- */

static void carry_in(Reverse *r) {
  Grad *g = r->g;
  for (int i = 0; i < r->forward->ncarried; i++) {
    ValueId arg = r->body->args.at[1 + i], yield = r->body->yields.at[i], out = r->forward->out[i];
    if (!grad_is_active(g, arg)) continue;
    ValueId d = grad_total(g, out);
    Entry e = {.outer = d < 0 ? grad_fill(g, out, 0, r->forward->loc) : d, .grad_of = r->forward->in[i]};
    e.arg = new_arg(r, grad_name(g, yield), grad_open(&value(r, arg)->type));
    vec_push(g->m->arena, r->carried, e);
    if (grad_is_active(g, yield)) grad_add(g, yield, e.arg);
  }
}

static void stacked_in(Reverse *r) {
  Grad *g = r->g;
  for (int i = r->forward->ncarried; i < r->forward->nout; i++) {
    ValueId yield = r->body->yields.at[i], d = grad_total(g, r->forward->out[i]);
    if (d < 0) continue;
    ValueId arg = new_arg(r, grad_name(g, yield), slice_type(&value(r, d)->type));
    vec_push(g->m->arena, r->each, ((Entry){.outer = d, .arg = arg}));
    grad_add(g, yield, arg);
  }
}

/* ---- gradients that come out --------------------------------------------------------------------------------------- */

static void carry_out(Reverse *r) {
  int k = 0;
  for (int i = 0; i < r->forward->ncarried; i++) {
    ValueId arg = r->body->args.at[1 + i];
    if (!grad_is_active(r->g, arg)) continue;
    ValueId d = grad_total(r->g, arg);
    r->carried.at[k++].yield = d < 0 ? grad_fill(r->g, arg, 0, r->forward->loc) : d;
  }
}

/* An invariant's gradient is summed over the rounds: the running sum is one more contribution. */
static void invariants_out(Reverse *r, Region *outside) {
  Grad *g = r->g;
  const Op *f = r->forward;
  for (int i = f->ncarried; i < f->ncarried + f->ninvariant; i++) {
    ValueId arg = r->body->args.at[1 + i];
    if (!grad_is_active(g, arg) || g->cot[arg].n == 0) continue;
    Entry e = {.grad_of = f->in[i]};
    e.arg = new_arg(r, arena_printf(g->m->arena, "%s.sum", grad_name(g, arg)), grad_open(&value(r, arg)->type));
    grad_add(g, arg, e.arg);
    e.yield = grad_total(g, arg);
    Region *inside = g->to;
    g->to = outside;
    e.outer = grad_fill(g, f->in[i], 0, f->loc);
    g->to = inside;
    vec_push(g->m->arena, r->carried, e);
  }
}

static void stacked_out(Reverse *r) {
  const Op *f = r->forward;
  for (int i = f->ncarried + f->ninvariant; i < f->nin; i++) {
    ValueId arg = r->body->args.at[1 + i], d = grad_is_active(r->g, arg) ? grad_total(r->g, arg) : -1;
    if (d >= 0) vec_push(r->g->m->arena, r->stacks, ((Entry){.yield = d, .grad_of = f->in[i]}));
  }
}

/* ---- what the reverse body reads of the forward body -------------------------------------------------------------- */

static ValueId save(Reverse *r, ValueId v) {
  Module *m = r->g->m;
  Type t = m->values.at[v].type;
  if (t.rank == MAX_RANK) {
    Diag *e = diag_error(r->g->cx->diags, "E0593", m->values.at[v].loc,
                         "the reverse of this repeat needs a tensor of %d dims for every repetition, which is too many", t.rank);
    diag_label(r->g->cx->diags, e, r->forward->loc, "repeated here");
    return v;
  }
  vec_push(m->arena, r->body->yields, v);
  const char *name = arena_printf(m->arena, "%s.all", m->values.at[v].name);
  ValueId all = ir_out(m, r->forward, name, stack_type(r->forward, &t));
  m->values.at[all].region = m->values.at[r->forward->out[0]].region;
  r->forward->nsaved++;
  ValueId arg = new_arg(r, m->values.at[v].name, grad_open(&t));
  vec_push(m->arena, r->each, ((Entry){.outer = all, .arg = arg}));
  return arg;
}

static ValueId again(Reverse *r, int operand, bool invariant) {
  ValueId arg = r->body->args.at[1 + operand];
  Entry e = {.outer = r->forward->in[operand], .arg = new_arg(r, value(r, arg)->name, grad_open(&value(r, arg)->type))};
  if (invariant)
    vec_push(r->g->m->arena, r->invariants, e);
  else
    vec_push(r->g->m->arena, r->each, e);
  return e.arg;
}

static ValueId import(Reverse *r, ValueId v) {
  const Value *x = value(r, v);
  const Op *f = r->forward;
  if (x->def || x->result - 1 >= f->nin) return save(r, v);
  if (x->result == 0) return r->counter;
  int operand = x->result - 1;
  return operand < f->ncarried ? save(r, v) : again(r, operand, operand < f->ncarried + f->ninvariant);
}

/* Values made since the pass began may belong to the forward body too: saved by a loop inside it. */
static void import_all(Reverse *r) {
  Module *m = r->g->m;
  int n = m->values.n;
  ValueId *stands = NEW_ARRAY(m->arena, ValueId, n);
  for (int i = 0; i < n; i++) stands[i] = -1;
  Region *back = r->back->body_region;
  for (int i = 0; i < back->ops.n; i++)
    for (int k = 0; k < back->ops.at[i]->nin; k++) {
      ValueId *v = &back->ops.at[i]->in[k];
      if (*v >= n || m->values.at[*v].region != r->body) continue;
      if (stands[*v] < 0) stands[*v] = import(r, *v);
      *v = stands[*v];
    }
}

/* ---- putting it together --------------------------------------------------------------------------------------------- */

static void enter(Reverse *r, const Entry *list, int n) {
  for (int i = 0; i < n; i++) {
    ir_in(r->g->m, r->back, list[i].outer);
    vec_push(r->g->m->arena, r->back->body_region->args, list[i].arg);
  }
}

static void leave(Reverse *r, const Entry *list, int n, bool stacked) {
  Module *m = r->g->m;
  for (int i = 0; i < n; i++) {
    vec_push(m->arena, r->back->body_region->yields, list[i].yield);
    Type t = m->values.at[list[i].yield].type;
    if (stacked) t = stack_type(r->forward, &t);
    ValueId out = ir_out(m, r->back, grad_name(r->g, list[i].grad_of), grad_open(&t));
    if (grad_is_active(r->g, list[i].grad_of)) grad_add(r->g, list[i].grad_of, out);
  }
}

static void assemble(Reverse *r) {
  Op *b = r->back;
  const Op *f = r->forward;
  b->trip = f->trip;
  b->trip_dim = f->trip_dim;
  b->reverse = !f->reverse;
  b->ncarried = r->carried.n;
  b->ninvariant = r->invariants.n;
  b->nstacked = r->each.n;
  vec_push(r->g->m->arena, b->body_region->args, r->counter);
  enter(r, r->carried.at, r->carried.n);
  enter(r, r->invariants.at, r->invariants.n);
  enter(r, r->each.at, r->each.n);
  leave(r, r->carried.at, r->carried.n, false);
  leave(r, r->stacks.at, r->stacks.n, true);
  ir_append(r->g->m, r->g->to, b);
  for (int i = 0; i < b->body_region->args.n; i++) r->g->m->values.at[b->body_region->args.at[i]].result = i;
}

void grad_repeat(Grad *g, Op *op) {
  assert(op->nsaved == 0 && "a repeat is reversed once");
  Reverse r = {.g = g, .forward = op, .body = op->body_region};
  r.back = grad_op(g, OP_REPEAT, op->loc, TAG_INPUT_GRAD);
  r.back->body_region = ir_region(g->m, r.back);
  const Value *counter = value(&r, r.body->args.at[0]);
  r.counter = new_arg(&r, counter->name, counter->type);
  carry_in(&r);
  stacked_in(&r);
  Region *outside = g->to;
  g->to = r.back->body_region;
  grad_walk(g, r.body);
  carry_out(&r);
  invariants_out(&r, outside);
  stacked_out(&r);
  g->to = outside;
  import_all(&r);
  assemble(&r);
}
