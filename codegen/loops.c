/* loops.c: in which order the loops of a segment run, and which of them are one. Every access of its members is
   looked at as a linear function of the loops: the loop along which most accesses touch neighbours runs innermost, and
   two neighbouring loops are merged where every access steps over all of the inner one when the outer one steps once:

     m[l,d,f] = b * m[l,d,f] + c * g[l,d,f]      one loop over l * d * f                                       */
#include "cg.h"

typedef struct {
  int64_t stride[MAX_INDEX]; /* by loop */
} Access;

typedef struct {
  const Module *m;
  const Member *self;
  const Type *t; /* of the operand that is looked at */
  VEC(Access) access;
  bool fixed[MAX_INDEX]; /* the loop's own value is needed: it cannot be merged */
  Arena *a;
  const GroupPlan *g, *made; /* its members; the group as it is made */
} Look;

static void pin_index(Look *k, int i) {
  if (k->self->loop[i] >= 0) k->fixed[k->self->loop[i]] = true;
}

static void pin_all(Look *k, const IExpr *x) {
  for (int i = 0; i < MAX_INDEX && i < k->self->op->space.n; i++)
    if (ix_uses(x, i)) pin_index(k, i);
}

/* The value of these coordinates' access; a dim is pinned unless it is a sum of indices at fixed distances. */
static void look_at(Look *k, const Type *t, int first, int n, IExpr *const *ix, bool guarded) {
  int64_t stride[MAX_RANK];
  cg_strides(t, stride);
  Access a = {0};
  for (int d = first; d < n; d++) {
    int64_t lo = 0, hi = 0;
    ix_bounds(ix[d], &k->self->op->space, &lo, &hi);
    if (guarded && (lo < 0 || hi >= t->dim[d].size)) pin_all(k, ix[d]);
    for (int i = 0; i < ix[d]->n; i++) {
      const Term *term = &ix[d]->term[i];
      if (term->kind == ATOM_INDEX) {
        int loop = k->self->loop[term->index];
        if (loop >= 0) a.stride[loop] += term->coef * stride[d];
        // where the index's part begins in the dim's part is added to its own loop
        if (!cg_same_part(&k->self->op->space.idx[term->index], &t->dim[d])) pin_index(k, term->index);
      } else {
        IExpr one = {.n = 1, .term = (Term *)term};
        pin_all(k, &one);
        for (int j = 0; j < k->self->op->space.n; j++)
          if (k->self->loop[j] >= 0 && ix_uses(&one, j)) a.stride[k->self->loop[j]] = 1 << 20;
      }
    }
  }
  vec_push(k->a, k->access, a);
}

static void look_read(void *cx, int operand, int n, IExpr *const *ix, const Expr *otherwise) {
  Look *k = cx;
  ValueId v = k->self->op->in[operand];
  int p = cg_member_of(k->g, k->m, v);
  const Member *made = k->made->member;
  if (p >= 0 && made[p].segment == made[k->self - k->g->member].segment) return; // a scalar of the same iteration
  look_at(k, &k->m->values.at[v].type, p >= 0 ? k->g->nrow : 0, n, ix, otherwise != NULL);
}

static void look_indices(Look *k, const Expr *x) {
  if (!x) return;
  for (int i = 0; i < 3; i++) look_indices(k, x->arg[i]);
  if (x->op == EX_INDEX) pin_all(k, x->ix[0]);
  look_indices(k, x->otherwise);
}

static void look_write(Look *k) {
  const Op *op = k->self->op;
  IExpr *ix[MAX_RANK];
  int first = k->self->kind == MEMBER_COLUMN ? 0 : k->g->nrow;
  for (int d = 0; d < op->space.nout; d++) ix[d] = ix_index(k->a, d);
  if (op->space.nout > first) look_at(k, &k->m->values.at[op->out[0]].type, first, op->space.nout, ix, false);
}

static int innermost(const Look *k, const Segment *s) {
  int best = s->n - 1;
  int64_t most = INT64_MIN;
  for (int j = s->n - 1; j >= 0; j--) {
    int64_t score = 0;
    for (int i = 0; i < k->access.n; i++) {
      int64_t stride = k->access.at[i].stride[j];
      score += stride == 1 ? 2 : stride == 0 ? 0 : -2;
    }
    if (s->loop[j].range < 4) score -= 4;
    if (score > most) most = score, best = j;
  }
  return best;
}

static bool merges(const Look *k, const Segment *s, int outer, int inner) {
  if (k->fixed[outer] || k->fixed[inner] || !cg_even(&s->loop[inner])) return false;
  for (int i = 0; i < k->access.n; i++)
    if (k->access.at[i].stride[outer] != k->access.at[i].stride[inner] * cg_capacity(&s->loop[inner])) return false;
  return true;
}

/* What the members of a segment read and write. */
static Look look_around(const Module *m, Arena *a, const GroupPlan *g, const GroupPlan *made, int segment) {
  Look k = {.m = m, .a = a, .g = g, .made = made};
  for (int i = 0; i < g->nmember; i++) {
    if (g->member[i].segment != segment) continue;
    k.self = &g->member[i];
    cg_reads(k.self->op, look_read, &k);
    look_indices(&k, k.self->op->body);
    look_write(&k);
  }
  return k;
}

LoopOrder cg_loop_order(const Module *m, Arena *a, const GroupPlan *g, int segment) {
  const Segment *s = &g->segment[segment];
  Look k = look_around(m, a, g, g, segment);
  LoopOrder o = {.n = s->n};
  int last = s->n > 0 ? innermost(&k, s) : -1;
  o.accumulate = s->nkeep > 0 && last < s->nkeep;
  for (int j = 0, at = 0; j < s->n; j++)
    if (j != last) o.loop[at++] = j;
  if (s->n > 0) o.loop[s->n - 1] = last;
  for (int at = 0; at + 1 < s->n; at++) o.absorbed[o.loop[at]] = s->nkeep == 0 && merges(&k, s, o.loop[at], o.loop[at + 1]);
  return o;
}

/* The rows are looked at as the loops of a nest that has no others. What one segment hands to another is looked at too: a row's
   own index may stand inside of it, c[d,a,a] of rows d, a. */
void cg_merged_rows(const Module *m, Arena *a, const GroupPlan *g, bool absorbed[MAX_RANK]) {
  Segment rows = {.n = g->nrow};
  for (int r = 0; r < g->nrow; r++) rows.loop[r] = g->row[r];
  GroupPlan nest = {.nmember = g->nmember, .nsegment = 1, .member = NEW_ARRAY(a, Member, g->nmember), .segment = &rows};
  for (int i = 0; i < g->nmember; i++) {
    nest.member[i] = g->member[i];
    nest.member[i].segment = 0;
    memcpy(nest.member[i].loop, g->member[i].row, sizeof nest.member[i].loop);
  }
  Look k = look_around(m, a, &nest, g, 0);
  for (int r = 0; r < g->nrow; r++) absorbed[r] = r + 1 < g->nrow && merges(&k, &rows, r, r + 1);
}
