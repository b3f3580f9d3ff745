/* emit_rows_cuda.c: the loops of a group for teams of threads, as teams.c shares them out.

     for (int64_t b = blockIdx.x; b < 8; b += gridDim.x) {                       a block per row
       float ss_part = 0.0f;
       for (int64_t d_4 = threadIdx.x; d_4 < 32; d_4 += blockDim.x) {            four neighbours a thread
         DTCU_EACH(d, 4, d_4) ss_part += x[...] * x[...];                        d = 4 * d_4 to 4 * d_4 + 3
       }
       const float ss = dtcu_block_sum(ss_part);                                 all threads know it
       const float r = dtrt_rsqrtf(ss / 128.0f + 1e-5f);
       if (threadIdx.x == 0) r_1[b] = r;
       ...
     }

   Of pointers that are known to lie at multiples of 16 bytes nvcc makes one load of the four. A sum over rows has a part per
   block, in shared memory where it fits; the parts are added by a second pass, in their order, or with --fast by atomics. */
#include "emit_rows.h"
#include "emit_spread.h"

/* A loop around statements, in braces unless there is only one. */
static const char *braced(Emit *e, const char *loop, const char *inside) {
  const char *end = strchr(inside, '\n');
  if (end && !end[1] && end > inside && end[-1] == ';') return arena_printf(e->a, "%s %s", loop, inside);
  return arena_printf(e->a, "%s {\n%s}\n", loop, inside);
}

/* Statements for each neighbour, then the stores that were put off, each for all of them. */
static const char *neighbours(Rows *r, const char *each, const char *inside) {
  Emit *e = r->e;
  Str s = {0};
  str_printf(e->a, &s, "%s%s", r->kept.at ? r->kept.at : "", braced(e, each, inside));
  for (const char *line = r->stores.at; line && *line; line = strchr(line, '\n') + 1)
    str_put(e->a, &s, braced(e, each, arena_printf(e->a, "%.*s\n", (int)(strchr(line, '\n') - line), line)));
  return s.at;
}

/* Runs `inside` for every combination of the loops, from number `first` in steps of `step`; with `vector`, for so many
   neighbours of the innermost one, whose count is a number, at a time. */
static const char *flat_loop(Rows *r, int n, const Extent *given, const char *first, const char *step, int vector,
                             const char *inside) {
  Emit *e = r->e;
  Extent x[MAX_INDEX], *last = &x[n - 1];
  Str s = {0};
  memcpy(x, given, (size_t)n * sizeof *x);
  if (vector > 1) {
    *last = (Extent){emit_name(e, &r->k->local, arena_printf(e->a, "%s_%d", given[n - 1].name, vector)),
                     arena_printf(e->a, "%lld", (long long)(last->most / vector)), last->most / vector};
    inside = neighbours(r, arena_printf(e->a, "DTCU_EACH(%s, %d, %s)", given[n - 1].name, vector, last->name), inside);
  }
  if (r->count && n == 1 && emit_is_number(last->count)) r->counted = last->most, last->count = r->count;
  const char *at = n > 1 ? emit_name(e, &r->k->local, "at") : last->name;
  str_printf(e->a, &s, "for (%s %s = %s; %s < %s; %s += %s) {\n", n > 1 ? emit_number_type(n, x) : "int64_t", at, first, at,
             emit_count(e, n, x), at, step);
  emit_unravel(r->k, &s, at, n, x, inside);
  str_printf(e->a, &s, "%s}\n", inside);
  if (n > 1) emit_release(&r->k->local, at);
  if (vector > 1) emit_release(&r->k->local, last->name);
  return s.at;
}

/* ---- a segment's loops --------------------------------------------------------------------------------------------- */

/* The loops of a part that are printed, each with those that it has absorbed; returns how many. */
static int visible(Rows *r, const Segment *seg, const TeamLoops *l, int part, const Var *var, Extent *out) {
  int n = 0;
  int64_t constant = 1, capacity = 1;
  const char *text = NULL;
  for (int i = 0; i < l->n[part]; i++) {
    int j = l->loop[part][i];
    const Index *x = &seg->loop[j];
    capacity = sat_mul(capacity, cg_capacity(x));
    if (cg_even(x))
      constant = sat_mul(constant, cg_capacity(x));
    else
      text = emit_n(r->k, var[j].range);
    if (l->absorbed[j]) continue;
    const char *count = !text          ? arena_printf(r->e->a, "%lld", (long long)constant)
                        : constant > 1 ? arena_printf(r->e->a, "%s * %lld", text, (long long)constant)
                                       : text;
    out[n++] = (Extent){var[j].name, count, capacity};
    constant = capacity = 1, text = NULL;
  }
  return n;
}

/* Names the loops and says at which depth each is known. */
static void name_loops(Rows *r, const Segment *seg, const TeamLoops *l) {
  int level = 0;
  for (int part = 0; part < 2; part++) {
    if (l->shared == part && l->n[part] > 0) level++;
    for (int i = 0; i < l->n[part]; i++) {
      int j = l->loop[part][i];
      bool tail = i > 0 && l->absorbed[l->loop[part][i - 1]];
      if (l->shared != part && !l->absorbed[j]) level++;
      const char *name = l->absorbed[j] ? NULL : emit_name(r->e, &r->k->local, tail ? "i" : seg->loop[j].name);
      r->loop[j] = rows_index(r, &seg->loop[j], name, level);
    }
  }
  r->depth = level;
  for (int i = 0; i <= MAX_INDEX + 1; i++) r->pre[i] = (Str){0};
}

static const char *first_thread(const Rows *r) { return r->teams.team == TEAM_BLOCK ? "threadIdx.x" : "dtcu_thread()"; }
static const char *all_threads(const Rows *r) { return r->teams.team == TEAM_BLOCK ? "blockDim.x" : "dtcu_threads()"; }

/* The loops of a part around a text. */
static const char *around(Rows *r, const Segment *seg, const TeamLoops *l, int part, const char *inside) {
  Arena *a = r->e->a;
  Extent x[MAX_INDEX];
  int n = visible(r, seg, l, part, r->loop, x), level = part == 1 ? r->depth : 0;
  if (part == 0) level = l->shared == 0 ? n > 0 : n;
  if (l->shared == part && n == 0) return arena_printf(a, "if (%s == 0) {\n%s}\n", first_thread(r), inside);
  if (l->shared == part) {
    if (r->pre[level].at) inside = arena_printf(a, "%s%s", r->pre[level].at, inside);
    return flat_loop(r, n, x, first_thread(r), all_threads(r), l->vector, inside);
  }
  for (int i = n - 1; i >= 0; i--, level--)
    inside = arena_printf(a, "for (int64_t %s = 0; %s < %s; %s++) {\n%s%s}\n", x[i].name, x[i].name, x[i].count, x[i].name,
                          r->pre[level].at ? r->pre[level].at : "", inside);
  return inside;
}

/* ---- reductions ------------------------------------------------------------------------------------------------------ */

static const char *word_of(const Op *op) {
  return op->reduce == RED_MAX ? "max" : op->reduce == RED_MIN ? "min" : op->reduce == RED_PROD ? "prod" : "sum";
}

/* `dtcu_block_sum(x)`: over the threads of a block, which all get it. */
static const char *over_block(Rows *r, const Op *op, const char *x) {
  if (r->teams.threads == 1) return x;
  return arena_printf(r->e->a, "dtcu_%s_%s(%s)", r->teams.threads == 32 ? "warp" : "block", word_of(op), x);
}

/* Is it summed up over everything, each block having a part? */
static bool in_total(const Rows *r, const Member *x) {
  return cg_scalar_in_row(&r->g, x) && (x->kind == MEMBER_COLUMN || (x->kind == MEMBER_REDUCE && r->teams.team == TEAM_GRID));
}

static const char *own_name(Rows *r, const Member *x, const char *suffix) {
  return emit_name(r->e, &r->k->local, arena_printf(r->e->a, "%s%s", r->e->m->values.at[x->op->out[0]].name, suffix));
}

static void declare(Rows *r, const Member *x, const char *name, Str *to) {
  str_printf(r->e->a, to, "%s %s = %s;\n", emit_ctype(x->op->body->dtype), name, rows_identity(r, x->op, false));
}

/* Do the team's threads each have a part of what the segment sums within a row? */
static bool threads_share(const TeamLoops *l) { return l->shared >= 0 && !(l->between && l->shared == 0); }

static void finish(Rows *r, const Member *x, const TeamLoops *l, Str *out) {
  Emit *e = r->e;
  int p = (int)(x - r->g.member);
  bool shares = threads_share(l);
  const char *value = r->acc[p];
  if (shares) {
    value = own_name(r, x, "");
    str_printf(e->a, out, "const %s %s = %s;\n", emit_ctype(rows_type(r, x)->dtype), value, over_block(r, x->op, r->acc[p]));
  }
  if (cg_scalar_in_row(&r->g, x)) r->scalar[p] = value;
  Scope s = rows_scope(r, x, out);
  const char *to = rows_target(r, x, &s);
  r->one = shares ? "if (threadIdx.x == 0) " : NULL;
  if (to) rows_store(r, x, to, value, out);
  rows_watch(r, x, value, out);
  r->one = NULL;
}

/* ---- barriers --------------------------------------------------------------------------------------------------------- */

/* Does y need what all threads have done of x? It reads x from memory, or writes what x reads. */
static bool waits_for(const Rows *r, const Member *x, const Member *y) {
  ValueId made = x->op->out[0];
  for (int n = 0; n < y->op->nin; n++)
    if (y->op->in[n] == made && !cg_scalar_in_row(&r->g, x)) return true;
  const Place *to = &r->e->place[y->op->out[0]];
  for (int n = 0; n < x->op->nin && to->kind == PLACE_ARENA; n++)
    if (cg_same_place(&r->e->place[x->op->in[n]], to)) return true;
  return false;
}

static bool needs_barrier(const Rows *r, int since, int segment) {
  if (r->teams.team != TEAM_BLOCK) return false;
  for (int i = 0; i < r->g.nmember; i++)
    for (int j = 0; j < r->g.nmember; j++) {
      const Member *x = &r->g.member[i], *y = &r->g.member[j];
      if (x->segment >= since && x->segment < segment && y->segment == segment && waits_for(r, x, y)) return true;
    }
  return false;
}

/* ---- segments -------------------------------------------------------------------------------------------------------- */

/* Returns the segment's text; *waited: it ends with a barrier. */
static const char *segment_text(Rows *r, int segment, bool *waited) {
  Emit *e = r->e;
  const Segment *seg = &r->g.segment[segment];
  const TeamLoops *l = &r->teams.loops[segment];
  Str body = {0}, declared = {0}, finished = {0}, text = {0};
  r->segment = segment;
  name_loops(r, seg, l);
  if (r->count && l->vector > 1) r->lane = arena_printf(e->a, "%s & 3", r->loop[l->loop[0][l->n[0] - 1]].name);
  r->one = r->depth == 0 && r->teams.team == TEAM_BLOCK ? "if (threadIdx.x == 0) " : NULL;
  for (Member *x = r->g.member; x < r->g.member + r->g.nmember; x++) {
    int p = (int)(x - r->g.member);
    if (x->segment != segment) continue;
    if (x->kind == MEMBER_REDUCE && !in_total(r, x)) {
      r->acc[p] = own_name(r, x, threads_share(l) ? "_part" : "");
      declare(r, x, r->acc[p], &declared);
    }
    if (x->kind == MEMBER_MAP)
      rows_map(r, x, &body);
    else
      rows_accumulate(r, x, &body);
  }
  for (Member *x = r->g.member; x < r->g.member + r->g.nmember; x++) {
    if (x->segment != segment || x->kind != MEMBER_REDUCE || in_total(r, x)) continue;
    finish(r, x, l, &finished);
    *waited |= threads_share(l) && !l->between && r->teams.threads > 32;
  }
  const char *inside = body.at ? body.at : "", *before = declared.at ? declared.at : "", *after = finished.at ? finished.at : "";
  if (l->n[1] > 0) inside = around(r, seg, l, 1, inside);
  if (l->between) inside = arena_printf(e->a, "%s%s%s", before, inside, after);
  if (l->n[0] > 0 || l->shared == 0) inside = around(r, seg, l, 0, inside);
  str_printf(e->a, &text, "%s%s%s%s", l->between ? "" : before, r->pre[0].at ? r->pre[0].at : "", inside,
             l->between ? "" : after);
  for (int j = 0; j < seg->n; j++)
    if (r->loop[j].name) emit_release(&r->k->local, r->loop[j].name);
  for (int i = 0; i < r->g.nmember; i++)
    if (r->g.member[i].segment == segment && !cg_scalar_in_row(&r->g, &r->g.member[i])) r->scalar[i] = NULL;
  r->one = NULL;
  return text.at;
}

/* ---- what a block has of its own ----------------------------------------------------------------------------------------- */

/* Row buffers and parts of columns: an array in shared memory, or the block's piece of the workspace. */
static const char *own_array(Rows *r, const Member *x, const char *suffix, int64_t offset, Str *out) {
  Emit *e = r->e;
  int p = (int)(x - r->g.member);
  long long n = cg_row_elements(&r->g, e->m, p);
  const char *name = own_name(r, x, suffix), *type = emit_ctype(rows_type(r, x)->dtype);
  if (r->teams.in_shared[p])
    str_printf(e->a, out, "DTCU_SHARED(%s, %s, %lld);\n", type, name, n);
  else
    str_printf(e->a, out, "%s *__restrict__ %s = (%s *)(cx->workspace + %lld) + (int64_t)blockIdx.x * %lld;\n", type, name, type,
               (long long)offset, n);
  return name;
}

static bool is_column(const Rows *r, const Member *x) { return x->kind == MEMBER_COLUMN && !cg_scalar_in_row(&r->g, x); }

static void begin(Rows *r) {
  Emit *e = r->e;
  Str init = {0};
  for (int p = 0; p < r->g.nmember; p++) {
    const Member *x = &r->g.member[p];
    if (r->teams.buffer[p] >= 0 || (r->teams.in_shared[p] && x->kind != MEMBER_COLUMN))
      r->buffer[p] = own_array(r, x, "_row", r->teams.buffer[p], r->out);
    if (in_total(r, x)) {
      r->total[p] = r->acc[p] = own_name(r, x, "_part");
      declare(r, x, r->acc[p], &init);
    }
    if (!is_column(r, x)) continue;
    if (r->teams.in_shared[p] || r->teams.partial[p] >= 0)
      r->column[p] = own_array(r, x, "_part", r->teams.partial[p], r->out);
    else
      r->column[p] = emit_pointer(r->k, x->op->out[0], true);
    const char *i = emit_name(e, &r->k->local, "i");
    str_printf(e->a, &init, "for (int64_t %s = threadIdx.x; %s < %lld; %s += blockDim.x) %s[%s] = %s;\n", i, i,
               (long long)cg_row_elements(&r->g, e->m, p), i, r->column[p], i, rows_identity(r, x->op, false));
    emit_release(&r->k->local, i);
  }
  if (init.at) str_put(e->a, r->out, init.at);
}

/* A block's part of a sum, element `at` of n, goes to its place among the parts; with one block, or by atomics, to the result. */
static const char *put_part(Rows *r, const Member *x, const char *at, long long n, const char *value) {
  Arena *a = r->e->a;
  int p = (int)(x - r->g.member);
  if (r->teams.partial[p] < 0)
    return arena_printf(a, r->teams.added[p] ? "atomicAdd(&%s[%s], %s);\n" : "%s[%s] = %s;\n",
                        emit_pointer(r->k, x->op->out[0], true), at, value);
  at = n == 1 ? "blockIdx.x" : arena_printf(a, "(int64_t)blockIdx.x * %lld + %s", n, at);
  return arena_printf(a, "((%s *)(cx->workspace + %lld))[%s] = %s;\n", emit_ctype(rows_type(r, x)->dtype),
                      (long long)r->teams.partial[p], at, value);
}

static void end_total(Rows *r, const Member *x) {
  int p = (int)(x - r->g.member);
  bool shares = r->teams.team != TEAM_BLOCK || r->teams.loops[x->segment].shared >= 0;
  const char *value = r->total[p];
  if (shares && r->teams.threads > 1) str_printf(r->e->a, r->out, "%s = %s;\n", value, over_block(r, x->op, value));
  str_printf(r->e->a, r->out, "if (threadIdx.x == 0) %s", put_part(r, x, "0", 1, value));
}

static void end(Rows *r) {
  Emit *e = r->e;
  bool waited = false;
  for (int p = 0; p < r->g.nmember; p++) {
    const Member *x = &r->g.member[p];
    if (in_total(r, x)) end_total(r, x);
    if (!is_column(r, x) || !r->teams.in_shared[p]) continue;
    if (!waited) str_put(e->a, r->out, "__syncthreads();\n");
    waited = true;
    const char *i = emit_name(e, &r->k->local, "i");
    long long n = cg_row_elements(&r->g, e->m, p);
    str_printf(e->a, r->out, "for (int64_t %s = threadIdx.x; %s < %lld; %s += blockDim.x) %s", i, i, n, i,
               put_part(r, x, i, n, arena_printf(e->a, "%s[%s]", r->column[p], i)));
    emit_release(&r->k->local, i);
  }
}

/* What blocks add to as they come begins at 0. */
static void zero_sums(Rows *r) {
  for (int p = 0; p < r->g.nmember; p++) {
    ValueId v = r->g.member[p].op->out[0];
    if (r->teams.added[p]) emit_zero(r->k, emit_pointer(r->k, v, true), cg_bytes(&r->e->m->values.at[v].type));
  }
}

/* The second passes, on the host. */
static void add_parts(Rows *r) {
  for (int p = 0; p < r->g.nmember; p++) {
    const Member *x = &r->g.member[p];
    if (r->teams.partial[p] < 0) continue;
    str_printf(r->e->a, &r->k->host, "dtcu_finish_%s(cx, (const %s *)(cx->workspace + %lld), %lld, %lld, %s);\n", word_of(x->op),
               emit_ctype(rows_type(r, x)->dtype), (long long)r->teams.partial[p], (long long)r->teams.blocks,
               (long long)cg_row_elements(&r->g, r->e->m, p), emit_pointer(r->k, x->op->out[0], true));
  }
}

/* ---- the whole --------------------------------------------------------------------------------------------------------- */

/* Rows that lie one behind another in every tensor count as one. */
static void name_rows(Rows *r) {
  bool absorbed[MAX_RANK] = {false};
  cg_merged_rows(r->e->m, r->e->a, &r->g, absorbed);
  for (int i = 0; i < r->g.nrow; i++) {
    const char *wish = i > 0 && absorbed[i - 1] ? "row" : r->g.row[i].name;
    r->row[i] = rows_index(r, &r->g.row[i], absorbed[i] ? NULL : emit_name(r->e, &r->k->local, wish), 0);
  }
}

static const char *rows_around(Rows *r, const char *inside) {
  Segment rows = {.n = r->g.nrow};
  TeamLoops l = {.n = {r->g.nrow}};
  for (int i = 0; i < r->g.nrow; i++) {
    rows.loop[i] = r->g.row[i];
    l.loop[0][i] = i;
    l.absorbed[i] = !r->row[i].name;
  }
  Extent x[MAX_INDEX];
  int n = visible(r, &rows, &l, 0, r->row, x);
  bool block = r->teams.team == TEAM_BLOCK;
  return flat_loop(r, n, x, block ? "blockIdx.x" : "dtcu_thread()", block ? "gridDim.x" : "dtcu_threads()", 1, inside);
}

/* Tells the compiler which pointers lie at multiples of 16 bytes, where a thread takes four neighbours. */
static const char *aligned(Rows *r, const char *body) {
  bool vectors = false;
  Str s = {0};
  for (int i = 0; i < r->g.nsegment; i++) vectors |= r->teams.loops[i].vector > 1;
  for (int i = 0; i < r->k->param.n && vectors; i++) {
    const Param *p = &r->k->param.at[i];
    bool several = cg_bytes(&r->e->m->values.at[p->value].type) >= 16;
    bool even = several && p->place.kind == PLACE_ARENA && p->place.offset % 16 == 0 && emit_uses(body, p->name);
    for (int k = 0; k < p->place.n; k++) even &= p->place.stride[k] % 16 == 0;
    if (even) str_printf(r->e->a, &s, "%sDTCU_ALIGNED(%s)", s.n ? ", " : "", p->name);
  }
  return s.n ? arena_printf(r->e->a, "%s;\n", s.at) : "";
}

const char *rows_text_cuda(Rows *r) {
  Arena *a = r->e->a;
  Str head = {0}, rows = {0}, tail = {0};
  bool columns = false, buffers = false;
  r->out = &head;
  begin(r);
  for (int p = 0; p < r->g.nmember; p++) columns |= r->column[p] != NULL, buffers |= r->buffer[p] != NULL;
  if (columns) str_put(a, &head, "__syncthreads();\n");
  name_rows(r);
  for (int s = 0, since = 0; s < r->g.nsegment; s++) {
    bool waited = false;
    if (needs_barrier(r, since, s)) str_put(a, &rows, "__syncthreads();\n"), since = s;
    str_put(a, &rows, segment_text(r, s, &waited));
    if (waited) since = s + 1;
  }
  if (buffers && r->g.nrow > 0) str_put(a, &rows, "__syncthreads();\n"); // the next row writes where this one reads
  r->out = &tail;
  end(r);
  const char *text = rows.at ? rows.at : "";
  if (r->g.nrow > 0) text = rows_around(r, text);
  text = arena_printf(a, "%s%s%s", head.at ? head.at : "", text, tail.at ? tail.at : "");
  return arena_printf(a, "%s%s", aligned(r, text), text);
}

void emit_rows_cuda(Rows *r) {
  str_put(r->e->a, &r->k->body, rows_text_cuda(r));
  zero_sums(r);
  emit_launch(r->k, arena_printf(r->e->a, "%lld", (long long)r->teams.blocks), r->teams.threads);
  add_parts(r);
}
