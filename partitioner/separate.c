/* separate.c: reads of one operand that lie far apart become operands of their own (the same value twice), so that a rank
   fetches what each lacks and not all that lies between them; and a read that wraps around becomes two guarded ones:

     %y[i] = nest %x[(i + 10) % 12]                           i over x = 4
     %y[i] = nest where(idx(i) < 2, (%x[i + 10] else 0.0), (%x[i - 2] else 0.0))      x twice: 2 elements move, not 9

   Reads stay together while what they need in common is no larger than what they need one by one. Splits are those that
   propagate gave the result and the operands. Before the pass reshard decides how the op is split. */
#include "part.h"

typedef struct {
  Module *m;
  Arena *scratch;
  Op *op;
  Split index[MAX_INDEX]; /* as the op will probably be split */
  bool found;             /* a read that wraps around */
} Separate;

static const Type *type_in(const Separate *s, int slot) { return &s->m->values.at[s->op->in[slot]].type; }

/* The indices as the result is split, and those that the result lacks as an operand is. */
static void guess_splits(Separate *s) {
  const Factors *f = part_factors(s->m, s->op, s->scratch);
  bool taken[MAX_AXES] = {0};
  memset(s->index, 0, sizeof s->index);
  for (int o = -1; o < s->op->nin; o++) {
    const Type *t = o < 0 ? &s->m->values.at[s->op->out[0]].type : type_in(s, o);
    const OperandFactors *of = o < 0 ? &f->out[0] : &f->in[o];
    for (int d = 0; d < t->rank; d++) {
      int i = of->index[d];
      if (i < 0 || i >= s->op->space.n || s->index[i].n > 0) continue;
      bool free = true;
      for (int k = 0; k < t->dim[d].split.n; k++) free &= !taken[t->dim[d].split.part[k].axis];
      if (!free) continue;
      s->index[i] = t->dim[d].split;
      split_axes(&s->index[i], taken);
    }
  }
}

/* ---- reads that wrap around ------------------------------------------------------------------------------------- */

/* (e % k) without the remainder, `by` less */
static IExpr *shifted(const Separate *s, const IExpr *x, int64_t by) {
  return ix_add(s->m->arena, x->term[0].sub, ix_const(s->m->arena, -by));
}

/* The most that a rank holds of a dim of n elements. (A window's capacity counts what lies outside of the dim, too.) */
static int64_t most_held(const Separate *s, const Split *split, int64_t n) {
  if (!split_windowed(split)) return split_capacity(split, n);
  int64_t most = 0;
  for (int64_t rank = 0, ranks = mesh_devices(&s->m->mesh); rank < ranks; rank++) {
    int64_t lo, hi;
    split_range(&s->m->mesh, split, n, rank, &lo, &hi);
    most = max_i64(most, hi - lo);
  }
  return most;
}

/* Does x, at which a dim of `size` elements is read, wrap around once, so that a rank needs less of each side than of both?
   Then *from is where the first of the two periods begins. */
static bool wraps(const Separate *s, const IExpr *x, int64_t size, int64_t *from) {
  const Term *t = x->n == 1 ? &x->term[0] : NULL;
  if (!t || x->c != 0 || t->coef != 1 || t->kind != ATOM_MOD || ix_by_value(t->sub)) return false;
  int64_t lo, hi, whole[3] = {0};
  ix_bounds(t->sub, &s->op->space, &lo, &hi);
  *from = floor_div(lo, t->k) * t->k;
  if (hi >= *from + 2 * t->k || hi > INT32_MAX) return false;
  const IExpr *side[] = {x, shifted(s, x, *from), shifted(s, x, *from + t->k)};
  for (int i = 0; i < 3; i++) {
    Split need = part_read_split(1, &side[i], &s->op->space, s->index, size);
    whole[i] = most_held(s, &need, size);
  }
  return whole[0] > whole[1] + whole[2];
}

static Expr *read_shifted(Separate *s, const Expr *x, int d, int64_t by) {
  Arena *a = s->m->arena;
  IExpr *ix[MAX_RANK];
  for (int k = 0; k < x->nix; k++) ix[k] = x->ix[k];
  ix[d] = shifted(s, x->ix[d], by);
  Expr *zero = dtype_is_int(x->dtype) ? ex_int(a, x->dtype, 0) : ex_lit(a, x->dtype, 0);
  return ex_read(a, x->operand, x->dtype, x->nix, ix, x->otherwise ? x->otherwise : zero);
}

static Expr *unwrapped(Separate *s, const Expr *x) {
  if (!x) return NULL;
  Arena *a = s->m->arena;
  Expr *out = NEW(a, Expr);
  *out = *x;
  for (int i = 0; i < 3; i++) out->arg[i] = unwrapped(s, x->arg[i]);
  out->otherwise = unwrapped(s, x->otherwise);
  for (int d = 0; x->op == EX_READ && d < x->nix; d++) {
    int64_t from;
    if (!wraps(s, x->ix[d], type_in(s, x->operand)->dim[d].size, &from)) continue;
    const Term *t = &x->ix[d]->term[0];
    Expr *first = ex_2(a, EX_LT, ex_index(a, t->sub), ex_int(a, I32, from + t->k));
    return unwrapped(s, ex_where(a, first, read_shifted(s, out, d, from), read_shifted(s, out, d, from + t->k)));
  }
  return out;
}

static void find_wrap(void *cx, const Expr *read) {
  Separate *s = cx;
  int64_t from;
  for (int d = 0; d < read->nix; d++) s->found |= wraps(s, read->ix[d], type_in(s, read->operand)->dim[d].size, &from);
}

/* ---- reads that lie apart ---------------------------------------------------------------------------------------- */

/* Reads that are one operand. */
typedef struct {
  int slot, n;
  const Expr **read;
} Group;

typedef struct {
  Separate *s;
  int slot;
  VEC(Group) group;
} Apart;

static bool same_place(const Expr *x, const Expr *y) {
  for (int d = 0; d < x->nix; d++)
    if (!ix_equal(x->ix[d], y->ix[d])) return false;
  return true;
}

/* How much a rank needs for these reads, the last one being `more` if there is one. */
static double needs(const Separate *s, const Type *t, const Group *g, const Expr *more) {
  const IExpr **x = NEW_ARRAY(s->scratch, const IExpr *, g->n + 1);
  double all = 1;
  for (int d = 0; d < t->rank; d++) {
    int n = 0;
    for (int i = 0; i < g->n; i++) x[n++] = g->read[i]->ix[d];
    if (more) x[n++] = more->ix[d];
    Split split = part_read_split(n, x, &s->op->space, s->index, t->dim[d].size);
    all *= (double)most_held(s, &split, t->dim[d].size);
  }
  return all;
}

static void add_read(Arena *a, Group *g, const Expr *x) {
  const Expr **longer = NEW_ARRAY(a, const Expr *, g->n + 1);
  for (int i = 0; i < g->n; i++) longer[i] = g->read[i];
  longer[g->n++] = x;
  g->read = longer;
}

static void group_read(void *cx, const Expr *read) {
  Apart *a = cx;
  Separate *s = a->s;
  if (read->operand != a->slot) return;
  const Type *t = type_in(s, a->slot);
  Group alone = {a->slot, 0, NULL};
  double one = needs(s, t, &alone, read);
  for (int i = 0; i < a->group.n; i++) {
    Group *g = &a->group.at[i];
    bool known = false;
    for (int k = 0; k < g->n; k++) known |= same_place(g->read[k], read);
    if (known) return;
    if (needs(s, t, g, read) > needs(s, t, g, NULL) + one) continue;
    add_read(s->scratch, g, read);
    return;
  }
  add_read(s->scratch, &alone, read);
  vec_push(s->scratch, a->group, alone);
}

static int slot_of(const Apart *a, const Expr *read) {
  for (int i = 0; i < a->group.n; i++)
    for (int k = 0; k < a->group.at[i].n; k++)
      if (same_place(a->group.at[i].read[k], read)) return a->group.at[i].slot;
  return read->operand;
}

static Expr *assigned(const Apart *a, const Expr *x) {
  if (!x) return NULL;
  Expr *out = NEW(a->s->m->arena, Expr);
  *out = *x;
  for (int i = 0; i < 3; i++) out->arg[i] = assigned(a, x->arg[i]);
  out->otherwise = assigned(a, x->otherwise);
  if (x->op == EX_READ && x->operand == a->slot) out->operand = slot_of(a, x);
  return out;
}

/* What is split where it is read, but not read by value. */
static bool may_lie_apart(const Separate *s, const Factors *f, int slot) {
  const Type *t = type_in(s, slot);
  bool several = false, split = false;
  for (int d = 0; d < t->rank; d++) {
    several |= f->in[slot].nreads[d] > 1;
    split |= t->dim[d].split.n > 0 && f->in[slot].nreads[d] > 1;
  }
  return several && split && !f->in[slot].by_value;
}

static void separate_operand(Separate *s, int slot) {
  Apart a = {.s = s, .slot = slot};
  ex_reads(s->op->body, group_read, &a);
  if (a.group.n < 2) return;
  for (int i = 1; i < a.group.n; i++) {
    a.group.at[i].slot = s->op->nin;
    ir_in(s->m, s->op, s->op->in[slot]);
  }
  s->op->body = assigned(&a, s->op->body);
}

static void separate_op(void *cx, Region *r, Op *op, int64_t times) {
  (void)r, (void)times;
  Separate *s = cx;
  bool reads = op->kind == OP_NEST || op->kind == OP_SCAN || op->kind == OP_ARGMAX || op->kind == OP_TOPK;
  if (!reads) return;
  s->op = op;
  s->found = false;
  guess_splits(s);
  ex_reads(op->body, find_wrap, s);
  if (s->found) op->body = unwrapped(s, op->body);
  const Factors *f = part_factors(s->m, op, s->scratch);
  for (int o = 0, n = op->nin; o < n; o++)
    if (may_lie_apart(s, f, o)) separate_operand(s, o);
}

void part_separate(Module *m) {
  Separate s = {.m = m, .scratch = arena_new()};
  for (int i = 0; i < m->programs.n; i++) part_visit(m->programs.at[i].body, 1, separate_op, &s);
  arena_free(s.scratch);
}
