/* rows.c: how several ops share one loop nest. A group loops over rows, the leading indices that its members have
   in common; within a row come segments, each a loop over inner indices that one or more members share:

     ss[b,t]  = sum[d] x[b,t,d] * x[b,t,d]        for b, t:                  rows
     r[b,t]   = rsqrt(ss[b,t] / D + eps)            for d: ss += ...         segment 0  (reduce)
     n[b,t,d] = x[b,t,d] * r[b,t] * g[d]            r = ...                  segment 1  (map, no loop)
     dg[d]    = sum[b,t] dn[b,t,d] * n[b,t,d]       for d: n = ..., dg += .. segment 2  (map and column)

   A member may read a value of the group in the same segment where it has just been made (same indices), and any
   element of its row in a later segment. A column sum is complete only after the nest. */
#include "cg.h"

enum { ROW_LIMIT = 1 << 16 }; /* elements of a row that later segments read again: it should stay in the L2 */

bool cg_can_group(const Module *m, const Op *op) {
  Product p;
  return op->kind == OP_GATHER || (op->kind == OP_NEST && !cg_product(m, op, &p));
}

static int maker(const Member *member, int n, const Module *m, ValueId v) {
  const Op *def = m->values.at[v].def;
  for (int i = 0; def && i < n; i++)
    if (member[i].op == def) return i;
  return -1;
}

int cg_member_of(const GroupPlan *g, const Module *m, ValueId v) { return maker(g->member, g->nmember, m, v); }

/* ---- which index of a member is which row --------------------------------------------------------------- */

typedef struct {
  const Module *m;
  GroupPlan *g;
  Member *self;
  int at; /* members before this one are placed */
  bool ok;
} Check;

static bool leading_rows(const Op *op, const GroupPlan *g) {
  if (op->space.nout < g->nrow) return false;
  for (int r = 0; r < g->nrow; r++)
    if (!cg_same_index(&op->space.idx[r], &g->row[r])) return false;
  return true;
}

/* A value of the group is read in the reader's own row only; a column sum not at all. */
static void check_read(void *cx, int operand, int n, IExpr *const *ix, const Expr *otherwise) {
  (void)otherwise, (void)n;
  Check *c = cx;
  int p = maker(c->g->member, c->at, c->m, c->self->op->in[operand]);
  if (p < 0) return;
  if (c->g->member[p].kind == MEMBER_COLUMN) c->ok = false;
  for (int r = 0; r < c->g->nrow && c->ok; r++) {
    int i = ix_single(ix[r]);
    if (i < 0 || c->self->row[i] != r) c->ok = false;
  }
}

static bool reads_fit(Check *c) {
  c->ok = true;
  cg_reads(c->self->op, check_read, c);
  return c->ok;
}

static void no_rows(Member *self) {
  for (int i = 0; i < MAX_INDEX; i++) self->row[i] = -1;
}

static bool as_row_op(Check *c) {
  if (!leading_rows(c->self->op, c->g)) return false;
  no_rows(c->self);
  for (int r = 0; r < c->g->nrow; r++) c->self->row[r] = r;
  c->self->kind = c->self->op->reduce == RED_NONE ? MEMBER_MAP : MEMBER_REDUCE;
  return reads_fit(c);
}

/* For a column sum: the reduced indices at the row positions of the first read whose leading dims look like rows. */
static void column_rows(void *cx, int operand, int n, IExpr *const *ix, const Expr *otherwise) {
  (void)otherwise;
  Check *c = cx;
  const Op *op = c->self->op;
  bool mine = maker(c->g->member, c->at, c->m, op->in[operand]) >= 0;
  if ((c->ok && !mine) || n < c->g->nrow) return;
  int row[MAX_INDEX];
  for (int i = 0; i < MAX_INDEX; i++) row[i] = -1;
  for (int r = 0; r < c->g->nrow; r++) {
    int i = ix_single(ix[r]);
    if (i < op->space.nout || row[i] >= 0 || !cg_same_index(&op->space.idx[i], &c->g->row[r])) return;
    row[i] = r;
  }
  memcpy(c->self->row, row, sizeof row);
  c->ok = true;
}

static bool as_column(Check *c) {
  const Op *op = c->self->op;
  if (op->reduce == RED_NONE || c->g->nrow == 0 || op->space.n - op->space.nout < c->g->nrow) return false;
  no_rows(c->self);
  c->ok = false;
  cg_reads(op, column_rows, c);
  if (!c->ok) return false;
  c->self->kind = MEMBER_COLUMN;
  return reads_fit(c);
}

/* ---- segments --------------------------------------------------------------------------------------------- */

/* The loops that a member wants inside a row: kept indices, then the rest. */
static Segment wanted(Member *self) {
  const Op *op = self->op;
  Segment s = {0};
  for (int i = 0; i < op->space.n; i++) {
    self->loop[i] = -1;
    if (self->row[i] >= 0) continue;
    self->loop[i] = s.n;
    s.loop[s.n++] = op->space.idx[i];
    if (self->kind == MEMBER_REDUCE && i < op->space.nout) s.nkeep = s.n;
  }
  return s;
}

static bool same_loops(const Segment *a, const Segment *b) {
  if (a->n != b->n || a->nkeep != b->nkeep) return false;
  for (int i = 0; i < a->n; i++)
    if (!cg_same_index(&a->loop[i], &b->loop[i])) return false;
  return true;
}

typedef struct {
  const Module *m;
  const GroupPlan *g;
  const Member *self;
  const Segment *want;
  int first; /* the first segment in which all operands are there */
} Place0;

/* Reads exactly the element that the maker's iteration of the same loops makes. */
static bool elementwise(const GroupPlan *g, const Member *self, int n, IExpr *const *ix, int nloops, const Expr *otherwise) {
  if (otherwise || n - g->nrow != nloops) return false;
  for (int d = g->nrow; d < n; d++) {
    int i = ix_single(ix[d]);
    if (i < 0 || self->loop[i] != d - g->nrow) return false;
  }
  return true;
}

static void after_operand(void *cx, int operand, int n, IExpr *const *ix, const Expr *otherwise) {
  Place0 *c = cx;
  int p = maker(c->g->member, c->g->nmember, c->m, c->self->op->in[operand]);
  if (p < 0) return;
  const Member *made = &c->g->member[p];
  const Segment *s = &c->g->segment[made->segment];
  bool same = made->kind == MEMBER_MAP && same_loops(s, c->want) && elementwise(c->g, c->self, n, ix, s->n, otherwise);
  int at = made->segment + !same;
  if (at > c->first) c->first = at;
}

static void place_member(const Module *m, GroupPlan *g, Member *self) {
  Segment want = wanted(self);
  Place0 c = {m, g, self, &want, 0};
  cg_reads(self->op, after_operand, &c);
  int s = c.first;
  while (s < g->nsegment && !same_loops(&g->segment[s], &want)) s++;
  if (s == g->nsegment) g->segment[g->nsegment++] = want;
  self->segment = s;
}

/* ---- the plan ------------------------------------------------------------------------------------------------ */

static bool plan_over(const Module *m, Op *const *ops, int n, GroupPlan *g) {
  g->nmember = g->nsegment = 0;
  for (int i = 0; i < n; i++) {
    Member *self = &g->member[i];
    self->op = ops[i];
    Check c = {m, g, self, i, true};
    if (!as_row_op(&c) && !as_column(&c)) return false;
    place_member(m, g, self);
    g->nmember = i + 1;
  }
  return true;
}

static int64_t largest_row(const GroupPlan *g) {
  int64_t most = 1;
  for (int s = 0; s < g->nsegment; s++) {
    int64_t n = 1;
    for (int i = 0; i < g->segment[s].n; i++)
      if (!checked_mul(n, max_i64(1, cg_capacity(&g->segment[s].loop[i])), &n)) return INT64_MAX;
    most = max_i64(most, n);
  }
  return most;
}

/* With several segments a row is passed over several times: as many leading indices as possible become rows. With
   one there is nothing to keep, and the whole space is one loop. */
bool cg_plan_rows(Arena *a, const Module *m, Op *const *ops, int n, GroupPlan *out) {
  *out = (GroupPlan){.member = NEW_ARRAY(a, Member, n), .segment = NEW_ARRAY(a, Segment, n)};
  if (plan_over(m, ops, n, out) && (out->nsegment == 1 || largest_row(out) <= 64)) return true;
  for (int nrow = MAX_RANK; nrow > 0; nrow--) {
    const Op *tried = NULL;
    for (int i = 0; i < n; i++) {
      if (ops[i]->space.nout < nrow) continue;
      out->nrow = nrow;
      for (int r = 0; r < nrow; r++) out->row[r] = ops[i]->space.idx[r];
      if (tried && leading_rows(tried, out)) continue;
      tried = ops[i];
      if (plan_over(m, ops, n, out) && largest_row(out) <= ROW_LIMIT) return true;
    }
  }
  out->nrow = 0;
  return n == 1 && plan_over(m, ops, n, out);
}

/* ---- questions about a plan ---------------------------------------------------------------------------------- */

bool cg_escapes(const GroupPlan *g, const Module *m, const Users *users, ValueId v) {
  int made = cg_member_of(g, m, v);
  assert(made >= 0 && "only values of the group are asked about");
  if (users[v].yielded || g->member[made].kind == MEMBER_COLUMN) return true;
  for (int i = 0; i < users[v].op.n; i++) {
    bool inside = false;
    for (int k = 0; k < g->nmember; k++) inside |= g->member[k].op == users[v].op.at[i];
    if (!inside) return true;
  }
  if (users[v].op.n == 0) return true;
  if (g->nrow > 0 || m->values.at[v].type.rank == 0) return false;
  // without rows the row is the whole value: kept in the arena if another segment needs it
  for (int k = 0; k < g->nmember; k++)
    if (g->member[k].segment != g->member[made].segment && cg_takes(g->member[k].op, v)) return true;
  return false;
}

typedef struct {
  const GroupPlan *g;
  const Member *reader, *writer;
  ValueId x;
  int rank;
  bool ok;
} InPlace;

static void touches_own_element(void *cx, int operand, int n, IExpr *const *ix, const Expr *otherwise) {
  InPlace *c = cx;
  if (c->reader->op->in[operand] != c->x || !c->ok) return;
  const GroupPlan *g = c->g;
  bool before = c->reader <= c->writer && c->reader->segment <= c->writer->segment; // as the ops and as the loops run
  c->ok = before && n == c->rank && elementwise(g, c->reader, n, ix, c->rank - g->nrow, otherwise);
  for (int r = 0; r < g->nrow && c->ok; r++) {
    int i = ix_single(ix[r]);
    c->ok = i >= 0 && c->reader->row[i] == r;
  }
  // the reader's loops are the writer's, one for one
  for (int d = g->nrow; d < n && c->ok; d++) {
    const Segment *s = &g->segment[c->reader->segment];
    c->ok = cg_same_index(&s->loop[d - g->nrow], &g->segment[c->writer->segment].loop[d - g->nrow]);
  }
}

static bool same_buffer_shape(const Type *a, const Type *b) {
  if (a->rank != b->rank || a->dtype != b->dtype) return false;
  for (int d = 0; d < a->rank; d++)
    if (a->dim[d].size != b->dim[d].size || !split_equal(&a->dim[d].split, &b->dim[d].split)) return false;
  return true;
}

bool cg_group_in_place(const GroupPlan *g, const Module *m, ValueId out, ValueId x) {
  int w = cg_member_of(g, m, out);
  const Type *t = &m->values.at[out].type;
  if (w < 0 || g->member[w].kind != MEMBER_MAP || !same_buffer_shape(t, &m->values.at[x].type)) return false;
  // reads of the same value in an iteration of loops that the writer does not have would come too late
  InPlace c = {g, NULL, &g->member[w], x, t->rank, true};
  for (int k = 0; k < g->nmember && c.ok; k++) {
    c.reader = &g->member[k];
    if (cg_takes(c.reader->op, x)) cg_reads(c.reader->op, touches_own_element, &c);
  }
  return c.ok;
}

/* ---- row buffers --------------------------------------------------------------------------------------------------- */

bool cg_scalar_in_row(const GroupPlan *g, const Member *x) {
  return x->op->space.nout == (x->kind == MEMBER_COLUMN ? 0 : g->nrow);
}

int64_t cg_row_elements(const GroupPlan *g, const Module *m, int member) {
  const Member *x = &g->member[member];
  const Type *t = &m->values.at[x->op->out[0]].type;
  int64_t n = 1;
  for (int d = x->kind == MEMBER_COLUMN ? 0 : g->nrow; d < t->rank; d++)
    if (!checked_mul(n, split_capacity(&t->dim[d].split, t->dim[d].size), &n)) return (int64_t)1 << 62;
  return n;
}

bool cg_row_buffered(const GroupPlan *g, const Module *m, const Users *users, int member) {
  const Member *x = &g->member[member];
  ValueId v = x->op->out[0];
  bool elsewhere = false;
  for (int j = 0; j < g->nmember; j++)
    for (int n = 0; n < g->member[j].op->nin; n++) elsewhere |= g->member[j].segment != x->segment && g->member[j].op->in[n] == v;
  return x->kind != MEMBER_COLUMN && !cg_scalar_in_row(g, x) && elsewhere && !cg_escapes(g, m, users, v);
}

int64_t cg_row_buffers(const GroupPlan *g, const Module *m, const Users *users, int64_t *offset) {
  const int64_t limit = (int64_t)1 << 62;
  int64_t total = 0, bytes = 0;
  for (int i = 0; i < g->nmember; i++) {
    bool wanted = cg_row_buffered(g, m, users, i);
    if (offset) offset[i] = wanted ? total : -1;
    if (!wanted) continue;
    if (!checked_mul(cg_row_elements(g, m, i), dtype_size(m->values.at[g->member[i].op->out[0]].type.dtype), &bytes))
      return limit;
    if (!checked_add(total, (min_i64(bytes, limit - 63) + 63) / 64 * 64, &total)) return limit;
  }
  return total;
}
