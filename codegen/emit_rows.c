/* emit_rows.c: one function for a group: loops over its rows, in them the loops of its segments, in those a statement
   per member.

     for (int64_t b = 0; b < 8; b++) {
       for (int64_t t = 0; t < 128; t++) {
         float ss = 0.0f;
         for (int64_t d = 0; d < 64; d++) ss += x[...] * x[...];
         const float r = dtrt_rsqrtf(ss / 64.0f + 1e-5f);
         for (int64_t d = 0; d < 64; d++) n[...] = x[...] * r * g[d];
       }
     }

   Sums along the innermost loop are f32 (the compiler makes lanes of them), those over further loops are f64, so that
   a long sum loses nothing. A maximum of floats is taken of their bits as ordered integers, which vectorises without
   being told that there are no NaNs. */
#include "emit.h"
#include "emit_loops.h"

enum { LONG_SUM = 1 << 16, PIECE = 1 << 12 }; /* a merged sum longer than this is taken in pieces */

typedef struct {
  Emit *e;
  Kernel *k;
  GroupPlan g;
  bool *escapes;
  const char **scalar; /* by member: variable that holds its value now, or NULL */
  const char **buffer; /* by member: row buffer, or NULL */
  const char **acc;    /* by member: accumulator */
  const char **total;  /* by member: a column sum to a scalar, over all rows */
  Var row[MAX_RANK];
  Str *out;
  /* the segment being printed */
  int segment;
  LoopOrder order;
  Var loop[MAX_INDEX];
  int depth;
  Str pre[MAX_INDEX + 2];
} Rows;

static const Type *result_type(const Rows *r, const Member *x) { return &r->e->m->values.at[x->op->out[0]].type; }

static bool is_scalar_result(const Rows *r, const Member *x) {
  int dims = x->op->space.nout - (x->kind == MEMBER_COLUMN ? 0 : r->g.nrow);
  return dims == 0;
}

int64_t cg_row_buffers(const GroupPlan *g, const Module *m, const Users *users, int64_t *offset) {
  int64_t total = 0;
  for (int i = 0; i < g->nmember; i++) {
    const Member *x = &g->member[i];
    bool elsewhere = false;
    for (int j = 0; j < g->nmember; j++)
      for (int n = 0; n < g->member[j].op->nin; n++)
        elsewhere |= g->member[j].segment != x->segment && g->member[j].op->in[n] == x->op->out[0];
    bool wanted = x->kind != MEMBER_COLUMN && x->op->space.nout > g->nrow && elsewhere && !cg_escapes(g, m, users, x->op->out[0]);
    if (offset) offset[i] = wanted ? total : -1;
    if (!wanted) continue;
    Type row = m->values.at[x->op->out[0]].type;
    for (int d = g->nrow; d < row.rank; d++) row.dim[d - g->nrow] = row.dim[d];
    row.rank -= g->nrow;
    total += (cg_bytes(&row) + 63) / 64 * 64;
  }
  return total;
}

/* ---- values that are not in memory -------------------------------------------------------------------------- */

static const char *row_value(void *cx, Scope *s, ValueId v, int n, IExpr *const *ix) {
  Rows *r = cx;
  int p = cg_member_of(&r->g, r->e->m, v);
  if (p < 0) return NULL;
  const Member *made = &r->g.member[p];
  if (r->scalar[p] && (made->segment == r->segment || is_scalar_result(r, made))) return r->scalar[p];
  if (!r->buffer[p]) return NULL;
  Type inner = *result_type(r, made);
  for (int d = r->g.nrow; d < inner.rank; d++) inner.dim[d - r->g.nrow] = inner.dim[d];
  inner.rank -= r->g.nrow;
  return arena_printf(r->e->a, "%s[%s]", r->buffer[p], emit_offset(s, &inner, n - r->g.nrow, ix + r->g.nrow));
}

static int row_made_at(void *cx, ValueId v) {
  Rows *r = cx;
  int p = cg_member_of(&r->g, r->e->m, v);
  return p >= 0 && r->g.member[p].segment == r->segment ? MAX_INDEX + 1 : 0;
}

static Scope scope_of(Rows *r, const Member *x, Str *now) {
  Scope s = {
      .k = r->k, .op = x->op, .depth = r->depth, .pre = r->pre, .now = now, .value = row_value, .made_at = row_made_at, .cx = r};
  for (int i = 0; i < x->op->space.n; i++) s.var[i] = x->row[i] >= 0 ? r->row[x->row[i]] : r->loop[x->loop[i]];
  return s;
}

/* Where member x's result is stored, or NULL if it is only a scalar. */
static const char *target(Rows *r, const Member *x, Scope *s) {
  int p = (int)(x - r->g.member);
  const Type *t = result_type(r, x);
  if (r->escapes[p]) {
    const char *ptr = emit_pointer(r->k, x->op->out[0], true);
    return arena_printf(r->e->a, "%s[%s]", ptr, emit_own_offset(s, t, 0));
  }
  if (!r->buffer[p]) return NULL;
  Scope inner = *s;
  for (int d = r->g.nrow; d < t->rank; d++) inner.var[d - r->g.nrow] = s->var[d];
  Type row = *t;
  for (int d = r->g.nrow; d < t->rank; d++) row.dim[d - r->g.nrow] = t->dim[d];
  row.rank -= r->g.nrow;
  return arena_printf(r->e->a, "%s[%s]", r->buffer[p], emit_own_offset(&inner, &row, 0));
}

/* ---- accumulators ----------------------------------------------------------------------------------------------- */

static bool ordered_bits(const Op *op) { return (op->reduce == RED_MAX || op->reduce == RED_MIN) && op->body->dtype == F32; }

static const char *identity(Rows *r, const Op *op, bool bits) {
  DType d = op->body->dtype;
  switch (op->reduce) {
  case RED_PROD: return emit_literal(r->e, d, 1, 1);
  case RED_MAX:
  case RED_MIN: {
    bool max = op->reduce == RED_MAX;
    if (bits) return max ? "dtrt_order(-INFINITY)" : "dtrt_order(INFINITY)";
    if (d == F32 || d == F64) return max ? "-INFINITY" : "INFINITY";
    return d == BOOL ? max ? "false" : "true" : d == I32 ? max ? "INT32_MIN" : "INT32_MAX" : max ? "INT64_MIN" : "INT64_MAX";
  }
  default: return emit_literal(r->e, d, 0, 0);
  }
}

static const char *combine(Rows *r, const Op *op, const char *acc, const char *x, bool bits) {
  Emit *e = r->e;
  DType d = op->body->dtype;
  switch (op->reduce) {
  case RED_PROD: return arena_printf(e->a, "%s *= %s;\n", acc, x);
  case RED_MAX:
  case RED_MIN: {
    const char *f = op->reduce == RED_MAX ? "max" : "min";
    if (bits) return arena_printf(e->a, "%s = dtrt_i%s32(%s, dtrt_order(%s));\n", acc, f, acc, x);
    if (d == F32) return arena_printf(e->a, "%s = dtrt_%sf(%s, %s);\n", acc, f, acc, x);
    if (d == F64) return arena_printf(e->a, "%s = dtrt_%s(%s, %s);\n", acc, f, acc, x);
    return arena_printf(e->a, "%s = %s %c %s ? %s : %s;\n", acc, acc, op->reduce == RED_MAX ? '>' : '<', x, acc, x);
  }
  default: return arena_printf(e->a, "%s += %s;\n", acc, x);
  }
}

/* ---- statements --------------------------------------------------------------------------------------------------- */

static bool used_in_segment(const Rows *r, const Member *x) {
  for (int j = 0; j < r->g.nmember; j++)
    if (r->g.member[j].segment == x->segment)
      for (int n = 0; n < r->g.member[j].op->nin; n++)
        if (r->g.member[j].op->in[n] == x->op->out[0] && &r->g.member[j] != x) return true;
  return false;
}

/* In a kernel with values that stay inside it: looks at this one. */
static void watch(Rows *r, const Member *x, const char *place, Str *body) {
  if (r->k->sees && emit_watched(r->e, x->op, 0)) str_put(r->e->a, body, emit_watch(r->e, x->op, place));
}

static void map_statement(Rows *r, const Member *x, Str *body) {
  Emit *e = r->e;
  int p = (int)(x - r->g.member);
  Scope s = scope_of(r, x, body);
  emit_hoist(&s);
  const char *value = emit_expr(&s, x->op->body), *to = target(r, x, &s);
  if (used_in_segment(r, x) || is_scalar_result(r, x)) {
    DType d = result_type(r, x)->dtype;
    const char *name = emit_name(e, &r->k->local, e->m->values.at[x->op->out[0]].name);
    str_printf(e->a, body, "const %s %s = %s;\n", emit_ctype(d), name, value);
    r->scalar[p] = value = name;
  }
  if (to) str_printf(e->a, body, "%s = %s;\n", to, value);
  watch(r, x, to ? to : value, body);
}

static void accumulate_statement(Rows *r, const Member *x, Str *body) {
  int p = (int)(x - r->g.member);
  Scope s = scope_of(r, x, body);
  emit_hoist(&s);
  const char *value = emit_expr(&s, x->op->body);
  bool in_memory = !r->acc[p];
  const char *acc = in_memory ? target(r, x, &s) : r->acc[p];
  str_put(r->e->a, body, combine(r, x->op, acc, value, !in_memory && ordered_bits(x->op)));
}

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

static Var index_var(Rows *r, const Index *x, const char *name, int level) {
  Range *range = emit_range(r->k, x->range, &x->split, x->name);
  return (Var){name, range, level};
}

static void open_segment(Rows *r, const Segment *seg) {
  Emit *e = r->e;
  r->order = emit_loop_order(e->m, e->a, &r->g, r->segment);
  int level = 0;
  for (int at = 0; at < seg->n; at++) {
    int j = r->order.loop[at];
    bool merged = r->order.absorbed[j];
    bool tail = at > 0 && r->order.absorbed[r->order.loop[at - 1]];
    if (!merged) level++;
    const char *name = merged ? NULL : emit_name(e, &r->k->local, tail ? "i" : seg->loop[j].name);
    r->loop[j] = index_var(r, &seg->loop[j], name, level);
  }
  r->depth = level;
  for (int i = 0; i <= MAX_INDEX + 1; i++) r->pre[i] = (Str){0};
}

static void put(Rows *r, const Str *s) {
  if (s->at) str_put(r->e->a, r->out, s->at);
}

static bool sums_to_scalar(const Rows *r, const Member *x) {
  return x->kind == MEMBER_REDUCE || (x->kind == MEMBER_COLUMN && is_scalar_result(r, x));
}

/* Declares the accumulator of a reduction. One whose type is that of the result is the result. */
static void declare(Rows *r, const Member *x, Str *to, bool wide, const char **acc) {
  Emit *e = r->e;
  bool bits = ordered_bits(x->op);
  const char *wish = e->m->values.at[x->op->out[0]].name;
  if (bits || wide) wish = arena_printf(e->a, bits ? "%s_bits" : "%s_sum", wish);
  *acc = emit_name(e, &r->k->local, wish);
  const char *type = bits ? "int32_t" : wide ? "double" : emit_ctype(x->op->body->dtype);
  str_printf(e->a, to, "%s %s = %s;\n", type, *acc, wide ? "0.0" : identity(r, x->op, bits));
}

static bool wide_sum(const Member *x) { return x->op->reduce == RED_SUM && x->op->body->dtype == F32; }

/* A reduction is complete: its scalar, and its place in memory. */
static void finish(Rows *r, const Member *x, bool wide) {
  Emit *e = r->e;
  int p = (int)(x - r->g.member);
  const char *value = r->acc[p];
  if (ordered_bits(x->op)) value = arena_printf(e->a, "dtrt_unorder(%s)", value);
  if (x->kind == MEMBER_COLUMN) {
    if (strcmp(value, r->total[p])) str_put(e->a, r->out, combine(r, x->op, r->total[p], value, false));
    return;
  }
  if (is_scalar_result(r, x)) {
    if (value != r->acc[p] || wide) {
      const char *name = emit_name(e, &r->k->local, e->m->values.at[x->op->out[0]].name);
      str_printf(e->a, r->out, "const %s %s = %s%s;\n", emit_ctype(result_type(r, x)->dtype), name, wide ? "(float)" : "", value);
      value = name;
    }
    r->scalar[p] = value;
  }
  Scope s = scope_of(r, x, r->out);
  const char *to = target(r, x, &s);
  if (to) str_printf(e->a, r->out, "%s = %s;\n", to, value);
  watch(r, x, to ? to : value, r->out);
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
    if (x->kind == MEMBER_COLUMN && r->depth == 0 && !ordered_bits(x->op))
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
      map_statement(r, x, &body);
    else
      accumulate_statement(r, x, &body);
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
    if (r->g.member[i].segment == r->segment && !is_scalar_result(r, &r->g.member[i])) r->scalar[i] = NULL;
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
    accumulate_statement(r, x, &body);
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
  const Type *t = result_type(r, x);
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
    accumulate_statement(r, x, &body);
    Scope s = scope_of(r, x, &init);
    str_printf(e->a, &init, "%s = %s;\n", target(r, x, &s), identity(r, x->op, false));
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
    watch(r, x, arena_printf(e->a, "%s[%s]", r->buffer[p], i), r->out);
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
  return arena_printf(r->e->a, "%lld", (long long)type_capacity(result_type(r, x)));
}

static void begin_columns(Rows *r) {
  Emit *e = r->e;
  for (int p = 0; p < r->g.nmember; p++) {
    const Member *x = &r->g.member[p];
    if (x->kind != MEMBER_COLUMN) continue;
    if (is_scalar_result(r, x)) {
      const char *name = emit_name(e, &r->k->local, e->m->values.at[x->op->out[0]].name);
      r->total[p] = name;
      str_printf(e->a, r->out, "%s %s = %s;\n", wide_sum(x) ? "double" : emit_ctype(x->op->body->dtype), name,
                 wide_sum(x) ? "0.0" : identity(r, x->op, false));
    } else {
      const char *i = emit_name(e, &r->k->local, "i"), *to = emit_pointer(r->k, x->op->out[0], true);
      str_printf(e->a, r->out, "for (int64_t %s = 0; %s < %s; %s++) %s[%s] = %s;\n", i, i, element_count(r, x), i, to, i,
                 identity(r, x->op, false));
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

/* ---- the group --------------------------------------------------------------------------------------------------------- */

static void row_buffers(Rows *r) {
  Emit *e = r->e;
  int64_t *offset = NEW_ARRAY(e->a, int64_t, r->g.nmember);
  cg_row_buffers(&r->g, e->m, e->users, offset);
  for (int p = 0; p < r->g.nmember; p++) {
    if (offset[p] < 0) continue;
    const char *type = emit_ctype(result_type(r, &r->g.member[p])->dtype);
    r->buffer[p] = emit_name(e, &r->k->local, arena_printf(e->a, "%s_row", e->m->values.at[r->g.member[p].op->out[0]].name));
    str_printf(e->a, r->out, "%s *%s %s = (%s *)(cx->workspace + %lld);\n", type, e->d->restricted, r->buffer[p], type,
               (long long)offset[p]);
  }
}

/* The member the function is named after: the last one whose value leaves the group. */
static const Op *name_giver(const Rows *r) {
  for (int p = r->g.nmember - 1; p >= 0; p--)
    if (r->escapes[p] && !is_scalar_result(r, &r->g.member[p])) return r->g.member[p].op;
  return r->g.member[r->g.nmember - 1].op;
}

static const char *description(Rows *r) {
  Str s = {0};
  int n = 0;
  for (int p = 0; p < r->g.nmember; p++) {
    if (!r->escapes[p]) continue;
    if (n++ == 4) {
      str_put(r->e->a, &s, ", ...");
      break;
    }
    Names none = {0};
    str_printf(r->e->a, &s, "%s%s", n > 1 ? ", " : "",
               emit_name(r->e, &none, r->e->m->values.at[r->g.member[p].op->out[0]].name));
  }
  return s.at ? s.at : "";
}

Kernel *emit_rows(Emit *e, const Step *step) {
  Rows *r = NEW(e->a, Rows);
  r->e = e;
  if (!cg_plan_rows(e->a, e->m, step->op, step->n, &r->g)) internal_error("a group of ops that fit no loop nest");
  r->escapes = NEW_ARRAY(e->a, bool, r->g.nmember);
  r->scalar = NEW_ARRAY(e->a, const char *, r->g.nmember);
  r->buffer = NEW_ARRAY(e->a, const char *, r->g.nmember);
  r->acc = NEW_ARRAY(e->a, const char *, r->g.nmember);
  r->total = NEW_ARRAY(e->a, const char *, r->g.nmember);
  for (int p = 0; p < r->g.nmember; p++) r->escapes[p] = cg_escapes(&r->g, e->m, e->users, r->g.member[p].op->out[0]);
  const Op *named = name_giver(r);
  r->k = emit_kernel(e, named, e->m->values.at[named->out[0]].name);
  for (int p = 0; p < r->g.nmember; p++)
    if (!r->escapes[p] && emit_watched(e, r->g.member[p].op, 0)) r->k->sees = true;
  if (r->k->sees) emit_take(e, &r->k->local, "see");
  r->out = &r->k->body;
  row_buffers(r);
  begin_columns(r);
  for (int i = 0; i < r->g.nrow; i++) {
    r->row[i] = index_var(r, &r->g.row[i], emit_name(e, &r->k->local, r->g.row[i].name), 0);
    for_line(r, r->row[i].name, "0", emit_n(r->k, r->row[i].range));
  }
  for (int s = 0; s < r->g.nsegment; s++) print_segment(r, s);
  for (int i = 0; i < r->g.nrow; i++) str_put(e->a, r->out, "}\n");
  end_columns(r);
  emit_kernel_end(r->k, named, description(r));
  return r->k;
}
