/* before.c: sums of all that comes before. A running sum that is read nowhere but one place back, and as 0 in front of the
   first, is such a sum:

     %c[b,t] = scan[t] %x[b,t]                          %c[b,t] = scan[t] %x[b,t]        before: the sum without x[b,t]
     %y[b,t] = nest (%c[b, t - 1] else 0.0) * %g[t]     %y[b,t] = nest %c[b,t] * %g[t]

   Where t is split, no element comes from the rank before, since it is among the totals that all chunks exchange (blocks.c).
   The mark is a side table of the pass reshard, at whose end there are only ops that exist. */
#include "part.h"

typedef struct {
  Module *m;
  int *uses;   /* by value; what leaves its region counts as two */
  Op **reader; /* by value: the last of them */
  bool *before;
} Marks;

static void count_uses(void *cx, Region *r, Op *op, int64_t times) {
  (void)r, (void)times;
  Marks *k = cx;
  for (int o = 0; o < op->nin; o++) k->uses[op->in[o]]++, k->reader[op->in[o]] = op;
  for (int i = 0; op->body_region && i < op->body_region->yields.n; i++) k->uses[op->body_region->yields.at[i]] += 2;
}

typedef struct {
  Arena *a;
  const Space *space; /* of the reader */
  const Type *type;   /* of the sum */
  int slot, along, step;
  bool all; /* all reads so far are one place back */
} Reader;

static bool stays_inside(const Reader *r, const IExpr *x, int d) {
  int64_t lo, hi;
  ix_bounds(x, r->space, &lo, &hi);
  return !ix_by_value(x) && lo >= 0 && hi < r->type->dim[d].size;
}

static IExpr *place_after(const Reader *r, const Expr *read) { return ix_add(r->a, read->ix[r->along], ix_const(r->a, r->step)); }

static void check_read(void *cx, const Expr *read) {
  Reader *r = cx;
  if (read->operand != r->slot) return;
  r->all &= read->otherwise && ex_is_lit(read->otherwise, 0) && stays_inside(r, place_after(r, read), r->along);
  for (int d = 0; d < read->nix; d++) r->all &= d == r->along || stays_inside(r, read->ix[d], d);
}

static Expr *moved(const Reader *r, const Expr *x) {
  Expr *out = NEW(r->a, Expr);
  *out = *x;
  for (int i = 0; i < 3; i++)
    if (x->arg[i]) out->arg[i] = moved(r, x->arg[i]);
  if (x->otherwise) out->otherwise = moved(r, x->otherwise);
  if (x->op != EX_READ || x->operand != r->slot) return out;
  out->ix = NEW_ARRAY(r->a, IExpr *, x->nix);
  for (int d = 0; d < x->nix; d++) out->ix[d] = d == r->along ? place_after(r, x) : x->ix[d];
  out->otherwise = NULL;
  return out;
}

static void mark_scan(void *cx, Region *region, Op *op, int64_t times) {
  (void)region, (void)times;
  Marks *k = cx;
  if (op->kind != OP_SCAN || k->uses[op->out[0]] != 1) return;
  Op *reader = k->reader[op->out[0]];
  const Type *type = &k->m->values.at[op->out[0]].type;
  bool fixed = false;
  for (int d = 0; d < type->rank; d++) fixed |= type->dim[d].split.fixed;
  if (reader->kind != OP_NEST || fixed) return;
  Reader r = {k->m->arena, &reader->space, type, 0, op->along, op->reverse ? -1 : 1, true};
  while (reader->in[r.slot] != op->out[0]) r.slot++;
  Arena *scratch = arena_new();
  r.all = !part_factors(k->m, reader, scratch)->in[r.slot].by_value;
  arena_free(scratch);
  ex_reads(reader->body, check_read, &r);
  if (!r.all) return;
  reader->body = moved(&r, reader->body);
  k->before[op->order] = true;
}

bool *part_before(Module *m, int nops, Arena *a) {
  Marks k = {m, NEW_ARRAY(a, int, m->values.n + 1), NEW_ARRAY(a, Op *, m->values.n + 1), NEW_ARRAY(a, bool, nops + 1)};
  for (int i = 0; i < m->programs.n; i++) part_visit(m->programs.at[i].body, 1, count_uses, &k);
  for (int i = 0; i < m->programs.n; i++) part_visit(m->programs.at[i].body, 1, mark_scan, &k);
  return k.before;
}
