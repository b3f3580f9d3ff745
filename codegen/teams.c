/* teams.c: CUDA: the loop nest of a group on teams of threads. A team takes one row at a time and its threads share out the
   loops of each segment:

     ss[b,t] = sum[d] x[b,t,d] * x[b,t,d]     a block per row (b, t); a thread takes four neighbours along d at a time; the
     n[b,t,d] = x[b,t,d] * ss[b,t] * g[d]     block's threads add up what they have of ss
     m[l,d,f] = b * m[l,d,f] + g[l,d,f]       no rows: the whole grid shares out l * d * f
     s = sum[b,t,d] x[b,t,d]                  the same; each block has a part of s, a second pass adds them
     dg[d] = sum[b,t] dn[b,t,d]               a block per row (b, t); each block has a part of dg, a second pass adds them
     p[b] = sum[c] w[c] * z[b,c]              a block per row (b); if c is short, the grid shares out b

   So sums without rows (the last two) are rows as well: over what they keep, or over what they reduce, whichever leaves
   neighbours to neighbouring threads. All numbers here are static, so that results repeat bit for bit; only with --fast blocks
   add their parts to the result by atomics, which saves the second pass. */
#include "cg.h"

enum {
  MOST_THREADS = 256,
  WARP = 32,
  SHORT_ROW = 8,             /* elements: a thread takes such a row alone */
  SHORT_SUM = 16,            /* a thread adds up so many terms alone */
  ENOUGH_SUMS = 1 << 15,     /* of which each has a thread of its own */
  SHARED_BYTES = 40 << 10,   /* of a block */
  MOST_BLOCKS = 1 << 16,     /* then each takes several rows */
  MOST_PARTS = 1024,         /* blocks with a part of a sum each */
  MOST_PART_BYTES = 32 << 20 /* of all blocks, where a part is large: at least one */
};

static int64_t times(int64_t a, int64_t b) {
  int64_t n;
  return checked_mul(a, b, &n) ? min_i64(n, (int64_t)1 << 40) : (int64_t)1 << 40;
}

static int64_t elements(const Index *x, int n) {
  int64_t all = 1;
  for (int i = 0; i < n; i++) all = times(all, cg_capacity(&x[i]));
  return all;
}

/* Does each block have its own part of what x sums? */
static bool in_parts(const Teams *t, const Member *x) {
  return x->kind == MEMBER_COLUMN || (t->team == TEAM_GRID && x->kind == MEMBER_REDUCE && cg_scalar_in_row(&t->g, x));
}

/* ---- sums without rows ---------------------------------------------------------------------------------------------- */

/* Is there an atomic for it, and is a block's part of it added up before it goes to memory? */
static bool may_be_added(const Teams *t, const Module *m, int p) {
  const Member *x = &t->g.member[p];
  bool sum = x->op->reduce == RED_SUM && (x->op->body->dtype == F32 || x->op->body->dtype == F64);
  return m->fast && sum && (t->in_shared[p] || cg_scalar_in_row(&t->g, x));
}

/* The one segment's kept (or reduced) loops become the rows. */
static bool loops_to_rows(GroupPlan *g, Arena *a, bool kept) {
  Segment *s = NEW(a, Segment);
  int nkeep = g->segment[0].nkeep, first = kept ? 0 : nkeep, count = kept ? nkeep : g->segment[0].n - nkeep;
  if (count > MAX_RANK) return false;
  for (int i = 0; i < g->segment[0].n; i++) {
    if (i >= first && i < first + count)
      g->row[i - first] = g->segment[0].loop[i];
    else
      s->loop[s->n++] = g->segment[0].loop[i];
  }
  Member *member = NEW_ARRAY(a, Member, g->nmember);
  memcpy(member, g->member, (size_t)g->nmember * sizeof *member);
  for (Member *x = member; x < member + g->nmember; x++) {
    x->kind = kept ? MEMBER_REDUCE : MEMBER_COLUMN;
    for (int i = 0; i < x->op->space.n; i++) {
      bool moves = x->loop[i] >= first && x->loop[i] < first + count;
      x->row[i] = moves ? x->loop[i] - first : -1;
      x->loop[i] = moves ? -1 : kept ? x->loop[i] - nkeep : x->loop[i];
    }
  }
  g->nrow = count, g->segment = s, g->member = member;
  return true;
}

static void sums_as_rows(GroupPlan *g, const Module *m, Arena *a) {
  const Segment *s = &g->segment[0];
  if (g->nrow > 0 || g->nsegment != 1 || s->nkeep == 0) return;
  bool along_kept = cg_loop_order(m, a, g, 0).accumulate;
  int64_t kept = elements(s->loop, s->nkeep), reduced = elements(s->loop + s->nkeep, s->n - s->nkeep);
  if (reduced <= SHORT_SUM || (along_kept && kept >= ENOUGH_SUMS)) return;
  loops_to_rows(g, a, !along_kept);
}

/* ---- loops ---------------------------------------------------------------------------------------------------------- */

/* Of a segment without kept loops: those that every column keeps, so that an element of a column has one thread. */
static void kept_by_columns(const GroupPlan *g, int segment, bool kept[MAX_INDEX]) {
  for (int j = 0; j < g->segment[segment].n; j++) kept[j] = true;
  for (int p = 0; p < g->nmember; p++) {
    const Member *x = &g->member[p];
    if (x->segment != segment || x->kind != MEMBER_COLUMN || cg_scalar_in_row(g, x)) continue;
    for (int i = x->op->space.nout; i < x->op->space.n; i++)
      if (x->loop[i] >= 0) kept[x->loop[i]] = false;
  }
}

static int64_t part_elements(const Segment *s, const TeamLoops *l, int part) {
  int64_t n = 1;
  for (int i = 0; i < l->n[part]; i++) n = times(n, cg_capacity(&s->loop[l->loop[part][i]]));
  return n;
}

/* How many neighbours a thread takes at a time. */
static int vector(const Segment *s, const TeamLoops *l) {
  if (l->shared < 0 || l->n[l->shared] == 0 || (l->shared == 0 && l->n[1] > 0)) return 1;
  int64_t inner = 1;
  for (int i = l->n[l->shared] - 1, first = i; i >= 0; i--) {
    int j = l->loop[l->shared][i];
    if (i < first && !l->absorbed[j]) break;
    if (!cg_even(&s->loop[j])) return 1;
    inner = times(inner, cg_capacity(&s->loop[j]));
  }
  return inner % 4 == 0 && part_elements(s, l, l->shared) / 4 >= WARP ? 4 : 1;
}

static TeamLoops share_loops(const Teams *t, const Module *m, Arena *a, int segment) {
  const Segment *s = &t->g.segment[segment];
  LoopOrder o = cg_loop_order(m, a, &t->g, segment);
  TeamLoops l = {.between = s->nkeep > 0};
  bool first[MAX_INDEX];
  kept_by_columns(&t->g, segment, first);
  for (int j = 0; s->nkeep > 0 && j < s->n; j++) first[j] = j < s->nkeep;
  for (int at = 0; at < s->n; at++) {
    int j = o.loop[at], part = first[j] ? 0 : 1;
    l.loop[part][l.n[part]++] = j;
    l.absorbed[j] = o.absorbed[j] && first[o.loop[at + 1]] == first[j];
  }
  int64_t kept = part_elements(s, &l, 0), reduced = part_elements(s, &l, 1);
  l.shared = t->team == TEAM_THREAD || s->n == 0                                   ? -1
             : l.between && t->team == TEAM_BLOCK && kept < WARP && kept < reduced ? 1
                                                                                   : 0;
  l.vector = vector(s, &l);
  return l;
}

/* ---- the whole -------------------------------------------------------------------------------------------------------- */

static Team team_of(const GroupPlan *g, const Module *m, const Users *users) {
  int64_t longest = 0;
  bool handed = false;
  for (int s = 0; s < g->nsegment; s++)
    if (g->segment[s].n > 0) longest = max_i64(longest, elements(g->segment[s].loop, g->segment[s].n));
  for (int p = 0; p < g->nmember; p++)
    handed |= cg_row_buffered(g, m, users, p) || (g->member[p].kind == MEMBER_COLUMN && !cg_scalar_in_row(g, &g->member[p]));
  if (g->nrow == 0) return longest == 0 ? TEAM_THREAD : g->nsegment == 1 ? TEAM_GRID : TEAM_BLOCK;
  return longest <= SHORT_ROW && !handed ? TEAM_THREAD : TEAM_BLOCK;
}

static int64_t bytes_of(const Teams *t, const Module *m, int p) {
  return times(cg_row_elements(&t->g, m, p), dtype_size(t->g.member[p].op->body->dtype));
}

/* What every block has of its own, row buffers and parts of columns, lies in shared memory as far as it goes. */
static void place_in_shared(Teams *t, const Module *m, const Users *users) {
  int64_t left = SHARED_BYTES;
  for (int columns = 0; columns < 2; columns++)
    for (int p = 0; p < t->g.nmember; p++) {
      const Member *x = &t->g.member[p];
      bool column = x->kind == MEMBER_COLUMN && !cg_scalar_in_row(&t->g, x);
      if (columns ? !column : !cg_row_buffered(&t->g, m, users, p)) continue;
      t->in_shared[p] = bytes_of(t, m, p) <= left;
      if (t->in_shared[p]) left -= bytes_of(t, m, p);
    }
}

/* So many threads that each has something to do. */
static void count_threads(Teams *t) {
  int64_t most = t->team == TEAM_THREAD ? max_i64(1, elements(t->g.row, t->g.nrow)) : 1;
  for (int s = 0; s < t->g.nsegment; s++) {
    const TeamLoops *l = &t->loops[s];
    if (l->shared >= 0) most = max_i64(most, part_elements(&t->g.segment[s], l, l->shared) / l->vector);
  }
  bool alone = t->team == TEAM_THREAD && t->g.nrow == 0;
  t->threads = alone ? 1 : (int)min_i64(MOST_THREADS, ceil_div(most, WARP) * WARP);
  int64_t rows = elements(t->g.row, t->g.nrow);
  t->blocks = t->team == TEAM_BLOCK ? rows : alone ? 1 : ceil_div(most, t->threads);
}

static void count_blocks(Teams *t, const Module *m, const Users *users) {
  int64_t most = MOST_BLOCKS, bytes = 0;
  for (int p = 0; p < t->g.nmember; p++) {
    bool part = in_parts(t, &t->g.member[p]), buffer = cg_row_buffered(&t->g, m, users, p) && !t->in_shared[p];
    if (part || buffer) most = MOST_PARTS, bytes += bytes_of(t, m, p);
  }
  if (bytes > 0) most = min_i64(most, max_i64(1, MOST_PART_BYTES / bytes));
  t->blocks = max_i64(1, min_i64(t->blocks, most));
}

Teams cg_teams(const GroupPlan *g, const Module *m, const Users *users, Arena *a) {
  Teams t = {.g = *g};
  sums_as_rows(&t.g, m, a);
  t.team = team_of(&t.g, m, users);
  t.loops = NEW_ARRAY(a, TeamLoops, t.g.nsegment);
  for (int s = 0; s < t.g.nsegment; s++) t.loops[s] = share_loops(&t, m, a, s);
  t.buffer = NEW_ARRAY(a, int64_t, t.g.nmember);
  t.partial = NEW_ARRAY(a, int64_t, t.g.nmember);
  t.added = NEW_ARRAY(a, bool, t.g.nmember);
  t.in_shared = NEW_ARRAY(a, bool, t.g.nmember);
  place_in_shared(&t, m, users);
  count_threads(&t);
  count_blocks(&t, m, users);
  for (int p = 0; p < t.g.nmember; p++) {
    bool buffer = cg_row_buffered(&t.g, m, users, p) && !t.in_shared[p];
    bool several = in_parts(&t, &t.g.member[p]) && t.blocks > 1, partial = several && !may_be_added(&t, m, p);
    t.added[p] = several && !partial;
    t.buffer[p] = buffer ? t.workspace : -1;
    t.partial[p] = partial ? t.workspace : -1;
    if (buffer || partial) t.workspace += ceil_div(times(t.blocks, bytes_of(&t, m, p)), 64) * 64;
  }
  return t;
}
