/* emit_rows_c.c: the loops of a group for one thread.

   Sums along the innermost loop are f32 (the compiler makes lanes of them), those over further loops are f64, so that
   a long sum loses nothing. A maximum of floats is taken of their bits as ordered integers, which vectorises without
   being told that there are no NaNs. */
#include "emit_rows.h"

enum { LONG_SUM = 1 << 16, PIECE = 1 << 12 }; /* a merged sum longer than this is taken in pieces */

/* ---- loops ---------------------------------------------------------------------------------------------------------- */

static const char *loop_count(Rows *r, const Segment *seg, int at, int64_t *constant) {
  Emit *e = r->e;
  int64_t c = 1;
  const char *n = NULL;
  for (int i = at;; i--) {
    int j = r->order.loop[i];
    const Index *x = &seg->loop[j];
    if (cg_even(x))
      c *= cg_capacity(x);
    else
      n = emit_n(r->k, r->loop[j].range);
    if (i == 0 || !r->order.absorbed[r->order.loop[i - 1]]) break;
  }
  *constant = n ? -1 : c;
  if (!n) return arena_printf(e->a, "%lld", (long long)c);
  return c == 1 ? n : arena_printf(e->a, "%s * %lld", n, (long long)c);
}

static void open_segment(Rows *r, const Segment *seg) {
  Emit *e = r->e;
  r->order = cg_loop_order(e->m, e->a, &r->g, r->segment);
  int level = 0;
  for (int at = 0; at < seg->n; at++) {
    int j = r->order.loop[at];
    bool merged = r->order.absorbed[j];
    bool tail = at > 0 && r->order.absorbed[r->order.loop[at - 1]];
    if (!merged) level++;
    const char *name = merged ? NULL : emit_name(e, &r->k->local, tail ? "i" : seg->loop[j].name);
    r->loop[j] = rows_index(r, &seg->loop[j], name, level);
  }
  r->depth = level;
  for (int i = 0; i <= MAX_INDEX + 1; i++) r->pre[i] = (Str){0};
}

static void put(Rows *r, const Str *s) {
  if (s->at) str_put(r->e->a, r->out, s->at);
}

static bool sums_to_scalar(const Rows *r, const Member *x) {
  return x->kind == MEMBER_REDUCE || (x->kind == MEMBER_COLUMN && cg_scalar_in_row(&r->g, x));
}

/* Declares the accumulator of a reduction. One whose type is that of the result is the result. */
static void declare(Rows *r, const Member *x, Str *to, bool wide, const char **acc) {
  Emit *e = r->e;
  bool bits = rows_ordered_bits(r, x->op);
  const char *wish = e->m->values.at[x->op->out[0]].name;
  if (bits || wide) wish = arena_printf(e->a, bits ? "%s_bits" : "%s_sum", wish);
  *acc = emit_name(e, &r->k->local, wish);
  const char *type = bits ? "int32_t" : wide ? "double" : emit_ctype(x->op->body->dtype);
  str_printf(e->a, to, "%s %s = %s;\n", type, *acc, wide ? "0.0" : rows_identity(r, x->op, bits));
}

static bool wide_sum(const Member *x) { return x->op->reduce == RED_SUM && x->op->body->dtype == F32; }

/* A reduction is complete: its scalar, and its place in memory. */
static void finish(Rows *r, const Member *x, bool wide) {
  Emit *e = r->e;
  int p = (int)(x - r->g.member);
  const char *value = r->acc[p];
  if (rows_ordered_bits(r, x->op)) value = arena_printf(e->a, "dtrt_unorder(%s)", value);
  if (x->kind == MEMBER_COLUMN) {
    if (strcmp(value, r->total[p])) str_put(e->a, r->out, rows_combine(r, x->op, r->total[p], value, false));
    return;
  }
  if (cg_scalar_in_row(&r->g, x)) {
    if (value != r->acc[p] || wide) {
      const char *name = emit_name(e, &r->k->local, e->m->values.at[x->op->out[0]].name);
      str_printf(e->a, r->out, "const %s %s = %s%s;\n", emit_ctype(rows_type(r, x)->dtype), name, wide ? "(float)" : "", value);
      value = name;
    }
    r->scalar[p] = value;
  }
  Scope s = rows_scope(r, x, r->out);
  const char *to = rows_target(r, x, &s);
  if (to) str_printf(e->a, r->out, "%s = %s;\n", to, value);
  rows_watch(r, x, to ? to : value, r->out);
}

static void for_line(Rows *r, const char *i, const char *from, const char *to) {
  str_printf(r->e->a, r->out, "for (int64_t %s = %s; %s < %s; %s++) {\n", i, from, i, to, i);
}

/* Members of the segment that keep an accumulator over the loops below `at`. */
#define EACH_SUM(r, x)                                                                                                           \
  for (Member *x = (r)->g.member; x < (r)->g.member + (r)->g.nmember; x++)                                                       \
    if (x->segment == (r)->segment && sums_to_scalar(r, x))

/* The innermost loop; a long sum is taken in pieces of f32 that are added in f64. */
static void innermost_loop(Rows *r, const Segment *seg, int at, const Str *body, bool outer_sums) {
  Emit *e = r->e;
  int64_t constant;
  const char *n = loop_count(r, seg, at, &constant), *i = r->loop[r->order.loop[at]].name;
  const char **wide = NEW_ARRAY(e->a, const char *, r->g.nmember);
  bool sums = false;
  EACH_SUM(r, x) sums |= wide_sum(x);
  bool pieces = sums && (constant < 0 || constant > LONG_SUM) && !outer_sums;
  const char *start = "0", *end = n;
  if (pieces) {
    start = emit_name(e, &r->k->local, arena_printf(e->a, "%s_from", i));
    str_printf(e->a, r->out, "for (int64_t %s = 0; %s < %s; %s += %d) {\n", start, start, n, start, PIECE);
    end = emit_name(e, &r->k->local, arena_printf(e->a, "%s_to", i));
    str_printf(e->a, r->out, "const int64_t %s = dtrt_imin(%s, %s + %d);\n", end, n, start, PIECE);
  }
  EACH_SUM(r, x) {
    int p = (int)(x - r->g.member);
    if (!wide_sum(x) || !(outer_sums || pieces)) continue;
    wide[p] = r->acc[p];
    r->acc[p] = wide[p];
    const char *line = arena_printf(e->a, "float %s_part = 0.0f;\n", wide[p]);
    str_put(e->a, r->out, line);
  }
  for_line(r, i, start, end);
  put(r, &r->pre[r->depth]);
  put(r, body);
  str_put(e->a, r->out, "}\n");
  EACH_SUM(r, x) {
    int p = (int)(x - r->g.member);
    if (wide[p]) str_printf(e->a, r->out, "%s += %s_part;\n", wide[p], wide[p]);
  }
  if (pieces) str_put(e->a, r->out, "}\n");
}

static bool needs_pieces(Rows *r, const Segment *seg) {
  if (r->depth == 0) return false;
  int64_t constant;
  loop_count(r, seg, seg->n - 1, &constant);
  return r->depth > 1 || constant < 0 || constant > LONG_SUM;
}

/* Loops whose accumulators, if any, lie outside all of them. */
static void plain_segment(Rows *r, const Segment *seg) {
  Emit *e = r->e;
  bool wide = needs_pieces(r, seg);
  Str body = {0}, before = {0};
  EACH_SUM(r, x) {
    int p = (int)(x - r->g.member);
    // a column sum of one term a row goes straight to its total
    if (x->kind == MEMBER_COLUMN && r->depth == 0 && !rows_ordered_bits(r, x->op))
      r->acc[p] = r->total[p];
    else
      declare(r, x, &before, wide && wide_sum(x), &r->acc[p]);
  }
  const char **acc = NEW_ARRAY(e->a, const char *, r->g.nmember);
  for (int i = 0; i < r->g.nmember; i++) {
    Member *x = &r->g.member[i];
    if (x->segment != r->segment) continue;
    acc[i] = r->acc[i];
    if (wide && sums_to_scalar(r, x) && wide_sum(x)) r->acc[i] = arena_printf(e->a, "%s_part", acc[i]);
    if (x->kind == MEMBER_MAP)
      rows_map(r, x, &body);
    else
      rows_accumulate(r, x, &body);
    r->acc[i] = acc[i];
  }
  put(r, &before);
  put(r, &r->pre[0]);
  int opened = 0;
  for (int at = 0; at + 1 < seg->n; at++) {
    int j = r->order.loop[at];
    if (r->order.absorbed[j]) continue;
    int64_t constant;
    for_line(r, r->loop[j].name, "0", loop_count(r, seg, at, &constant));
    opened++;
    put(r, &r->pre[opened]);
  }
  if (r->depth == 0)
    put(r, &body);
  else
    innermost_loop(r, seg, seg->n - 1, &body, r->depth > 1);
  for (; opened > 0; opened--) str_put(e->a, r->out, "}\n");
  EACH_SUM(r, x) finish(r, x, wide && wide_sum(x));
  for (int i = 0; i < r->g.nmember; i++)
    if (r->g.member[i].segment == r->segment && !cg_scalar_in_row(&r->g, &r->g.member[i])) r->scalar[i] = NULL;
}

/* Reductions that keep indices, accumulators inside the kept loops. */
static void kept_loops(Rows *r, const Segment *seg) {
  Emit *e = r->e;
  Str body = {0};
  for (int at = 0; at < seg->nkeep; at++) {
    int64_t constant;
    int j = r->order.loop[at];
    for_line(r, r->loop[j].name, "0", loop_count(r, seg, at, &constant));
  }
  EACH_SUM(r, x) {
    int p = (int)(x - r->g.member);
    declare(r, x, r->out, false, &r->acc[p]);
    rows_accumulate(r, x, &body);
  }
  for (int at = 0; at <= seg->nkeep; at++) put(r, &r->pre[at]);
  for (int at = seg->nkeep; at < seg->n; at++) {
    int64_t constant;
    int j = r->order.loop[at];
    for_line(r, r->loop[j].name, "0", loop_count(r, seg, at, &constant));
    put(r, &r->pre[at + 1]);
  }
  put(r, &body);
  for (int at = seg->nkeep; at < seg->n; at++) str_put(e->a, r->out, "}\n");
  EACH_SUM(r, x) finish(r, x, false);
  for (int at = 0; at < seg->nkeep; at++) str_put(e->a, r->out, "}\n");
}

/* How many elements of a row buffer are sure to be this rank's: of an uneven dim, none. */
static int64_t row_elements(const Rows *r, const Member *x) {
  const Type *t = rows_type(r, x);
  int64_t n = 1;
  for (int d = r->g.nrow; d < t->rank; d++)
    n *= split_even(&t->dim[d].split, t->dim[d].size) ? split_capacity(&t->dim[d].split, t->dim[d].size) : 0;
  return n;
}

/* The same with a kept index innermost: results are added to in memory. */
static void kept_in_memory(Rows *r, const Segment *seg) {
  Emit *e = r->e;
  Str body = {0}, init = {0};
  for (Member *x = r->g.member; x < r->g.member + r->g.nmember; x++) {
    if (x->segment != r->segment) continue;
    rows_accumulate(r, x, &body);
    Scope s = rows_scope(r, x, &init);
    str_printf(e->a, &init, "%s = %s;\n", rows_target(r, x, &s), rows_identity(r, x->op, false));
  }
  int last = r->order.loop[seg->n - 1];
  int64_t constant;
  put(r, &r->pre[0]);
  for (int at = 0; at < seg->n; at++) {
    int j = r->order.loop[at];
    if (at == seg->nkeep - 1) {
      for_line(r, r->loop[last].name, "0", loop_count(r, seg, seg->n - 1, &constant));
      put(r, &init);
      str_put(e->a, r->out, "}\n");
    }
    for_line(r, r->loop[j].name, "0", loop_count(r, seg, at, &constant));
    put(r, &r->pre[at + 1]);
  }
  put(r, &body);
  for (int at = 0; at < seg->n; at++) str_put(e->a, r->out, "}\n");
  for (Member *x = r->g.member; x < r->g.member + r->g.nmember; x++) {
    int p = (int)(x - r->g.member);
    if (x->segment != r->segment || !r->buffer[p] || !r->k->sees || !emit_watched(e, x->op, 0)) continue;
    const char *i = emit_name(e, &r->k->local, "i"), *n = arena_printf(e->a, "%lld", (long long)row_elements(r, x));
    for_line(r, i, "0", n);
    rows_watch(r, x, arena_printf(e->a, "%s[%s]", r->buffer[p], i), r->out);
    str_put(e->a, r->out, "}\n");
  }
}

/* The names of a segment's loops are free again behind it. */
static void release_names(Rows *r, const Segment *seg) {
  for (int j = 0; j < seg->n; j++)
    if (r->loop[j].name) emit_release(&r->k->local, r->loop[j].name);
}

static void print_segment(Rows *r, int segment) {
  const Segment *seg = &r->g.segment[segment];
  r->segment = segment;
  open_segment(r, seg);
  if (seg->nkeep == 0)
    plain_segment(r, seg);
  else if (r->order.accumulate)
    kept_in_memory(r, seg);
  else
    kept_loops(r, seg);
  release_names(r, seg);
}

/* ---- columns --------------------------------------------------------------------------------------------------------- */

static const char *element_count(Rows *r, const Member *x) {
  return arena_printf(r->e->a, "%lld", (long long)type_capacity(rows_type(r, x)));
}

static void begin_columns(Rows *r) {
  Emit *e = r->e;
  for (int p = 0; p < r->g.nmember; p++) {
    const Member *x = &r->g.member[p];
    if (x->kind != MEMBER_COLUMN) continue;
    if (cg_scalar_in_row(&r->g, x)) {
      const char *name = emit_name(e, &r->k->local, e->m->values.at[x->op->out[0]].name);
      r->total[p] = name;
      str_printf(e->a, r->out, "%s %s = %s;\n", wide_sum(x) ? "double" : emit_ctype(x->op->body->dtype), name,
                 wide_sum(x) ? "0.0" : rows_identity(r, x->op, false));
    } else {
      const char *i = emit_name(e, &r->k->local, "i"), *to = emit_pointer(r->k, x->op->out[0], true);
      str_printf(e->a, r->out, "for (int64_t %s = 0; %s < %s; %s++) %s[%s] = %s;\n", i, i, element_count(r, x), i, to, i,
                 rows_identity(r, x->op, false));
    }
  }
}

static void end_columns(Rows *r) {
  for (int p = 0; p < r->g.nmember; p++) {
    const Member *x = &r->g.member[p];
    if (!r->total[p]) continue;
    str_printf(r->e->a, r->out, "*%s = %s%s;\n", emit_pointer(r->k, x->op->out[0], true), wide_sum(x) ? "(float)" : "",
               r->total[p]);
  }
}

/* ---- the whole ------------------------------------------------------------------------------------------------------- */

static void row_buffers(Rows *r) {
  Emit *e = r->e;
  int64_t *offset = NEW_ARRAY(e->a, int64_t, r->g.nmember);
  cg_row_buffers(&r->g, e->m, e->users, offset);
  for (int p = 0; p < r->g.nmember; p++) {
    if (offset[p] < 0) continue;
    const char *type = emit_ctype(rows_type(r, &r->g.member[p])->dtype);
    r->buffer[p] = emit_name(e, &r->k->local, arena_printf(e->a, "%s_row", e->m->values.at[r->g.member[p].op->out[0]].name));
    str_printf(e->a, r->out, "%s *%s %s = (%s *)(cx->workspace + %lld);\n", type, e->d->restricted, r->buffer[p], type,
               (long long)offset[p]);
  }
}

void emit_rows_c(Rows *r) {
  row_buffers(r);
  begin_columns(r);
  for (int i = 0; i < r->g.nrow; i++) {
    r->row[i] = rows_index(r, &r->g.row[i], emit_name(r->e, &r->k->local, r->g.row[i].name), 0);
    for_line(r, r->row[i].name, "0", emit_n(r->k, r->row[i].range));
  }
  for (int s = 0; s < r->g.nsegment; s++) print_segment(r, s);
  for (int i = 0; i < r->g.nrow; i++) str_put(r->e->a, r->out, "}\n");
  end_columns(r);
}
