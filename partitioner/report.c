/* report.c: --emit=schedule for people and schedule-json for programs: one row per collective, in the order of the
   program, then totals. Bytes: what the rank that receives most receives each time; times: per step, loops multiplied
   in. The total is the largest sum over collectives of any one rank, not the sum of the largest.

     kind        axes   group  bytes   times  line         behind  why
     all_reduce  model  2      262144  4      charlm.dt:26 29, 30  %r adds it to %x

   `behind`: the lines that are computed while the collective is under way; a scheduled module is reported.         */
#include "moves.h"

#include <jansson.h>
#include <stdlib.h>

typedef struct {
  const Op *op;
  int64_t times, bytes, group, bound;
  const char *axes, *line;
  Pending over;
  Names behind;
} Row;

typedef struct {
  const Module *m;
  Arena *a;
  VEC(Row) rows;
  VEC(Traffic) moves;
  int *uses; /* by value */
} Report;

static const Type *type_of(const Report *r, ValueId v) { return &r->m->values.at[v].type; }

/* The value from which the steps of one plan came to v: they hand each other what nothing else uses. */
static ValueId plan_source(const Report *r, ValueId v) {
  for (;;) {
    const Op *op = r->m->values.at[v].def;
    if (!op || op_class(op->kind) != CLS_LAYOUT || r->uses[v] > 1) return v;
    v = op->in[r->m->values.at[v].result];
  }
}

/* The least that any way from the plan's source to the results can receive, without what the steps before count. */
static double op_bound(const Report *r, const Op *op) {
  double sum = 0;
  for (int i = 0; i < op->nin; i++) {
    const Type *from = type_of(r, plan_source(r, op->in[i])), *in = type_of(r, op->in[i]), *out = type_of(r, op->out[i]);
    double more = move_bound(&r->m->mesh, from, out) - (from == in ? 0 : move_bound(&r->m->mesh, from, in));
    sum += more > 0 ? more : 0;
  }
  return sum;
}

static void count_uses(void *cx, Region *region, Op *op, int64_t times) {
  (void)region, (void)times;
  Report *r = cx;
  for (int i = 0; i < op->nin; i++) r->uses[op->in[i]]++;
  for (int i = 0; op->body_region && i < op->body_region->yields.n; i++) r->uses[op->body_region->yields.at[i]]++;
}

/* Bytes sent by the rank that sends most; -1: not known. */
static int64_t op_sent(const Report *r, const Op *op) {
  int64_t sum = 0;
  for (int i = 0; i < op->nin; i++) {
    int64_t n = move_sent(&r->m->mesh, op->kind, type_of(r, op->in[i]), type_of(r, op->out[i]));
    if (n < 0) return -1;
    sum += n;
  }
  return sum;
}

static void add_row(void *cx, Region *region, Op *op, int64_t times) {
  Report *r = cx;
  if (!op_is_collective(op->kind)) return;
  Row row = {.op = op, .times = times, .line = moves_place(r->m, op->loc, r->a), .behind = part_behind(r->m, region, op, r->a)};
  price_axes(&r->m->mesh, op, r->m, &row.over, &row.group);
  row.axes = pending_text(&r->m->mesh, &row.over, r->a);
  int first = r->moves.n;
  for (int i = 0; i < op->nin; i++)
    vec_push(r->a, r->moves, ((Traffic){op->kind, type_of(r, op->in[i]), type_of(r, op->out[i]), 1}));
  row.bytes = (int64_t)moves_most(r->a, &r->m->mesh, op->nin, r->moves.at + first);
  for (int i = first; i < r->moves.n; i++) r->moves.at[i].times = (double)times;
  vec_push(r->a, r->rows, row);
}

static int64_t total(const Report *r) { return (int64_t)moves_most(r->a, &r->m->mesh, r->moves.n, r->moves.at); }

typedef struct {
  const char *axes;
  int64_t bytes, calls;
} AxesTotal;

/* The sums over all rows with the axes of row i, if it is the first of them. */
static bool axes_total(const Report *r, int i, AxesTotal *t) {
  *t = (AxesTotal){.axes = r->rows.at[i].axes};
  for (int k = 0; k < r->rows.n; k++) {
    const Row *row = &r->rows.at[k];
    if (strcmp(row->axes, t->axes)) continue;
    if (k < i) return false;
    t->bytes += row->bytes * row->times, t->calls += row->times;
  }
  return true;
}

/* ---- json ------------------------------------------------------------------------------------------------------ */

static json_t *row_json(const Report *r, const Row *row) {
  json_t *axes = json_array();
  for (int i = 0; i < row->over.n; i++) {
    Pending one = {.n = 1};
    one.part[0] = row->over.part[i];
    json_array_append_new(axes, json_string(pending_text(&r->m->mesh, &one, r->a)));
  }
  json_t *behind = json_array();
  for (int i = 0; i < row->behind.n; i++) json_array_append_new(behind, json_string(row->behind.at[i]));
  int64_t sent = op_sent(r, row->op);
  return json_pack("{s:s, s:o, s:I, s:I, s:o, s:I, s:i, s:o, s:s}", "kind", op_text(row->op->kind), "axes", axes, "group",
                   (json_int_t)row->group, "bytes", (json_int_t)row->bytes, "sent", sent < 0 ? json_null() : json_integer(sent),
                   "count", (json_int_t)row->times, "line", row->op->loc.line, "behind", behind, "why",
                   row->op->why ? row->op->why : "");
}

/* Of the calls over each set of axes, in the order in which they first occur. */
static json_t *axes_json(const Report *r) {
  json_t *all = json_array();
  for (int i = 0; i < r->rows.n; i++) {
    AxesTotal t;
    if (axes_total(r, i, &t))
      json_array_append_new(
          all, json_pack("{s:s, s:I, s:I}", "axes", t.axes, "bytes", (json_int_t)t.bytes, "calls", (json_int_t)t.calls));
  }
  return all;
}

static const char *report_json(const Report *r) {
  json_t *rows = json_array();
  for (int i = 0; i < r->rows.n; i++) json_array_append_new(rows, row_json(r, &r->rows.at[i]));
  json_t *all = json_pack("{s:o, s:o, s:I, s:f}", "collectives", rows, "over", axes_json(r), "bytes_per_step",
                          (json_int_t)total(r), "multiply_adds", part_multiply_adds(r->m));
  char *text = all ? json_dumps(all, JSON_INDENT(2)) : NULL;
  if (!text) internal_error("the schedule cannot be written as JSON");
  const char *out = arena_printf(r->a, "%s\n", text);
  free(text);
  json_decref(all);
  return out;
}

/* ---- text ------------------------------------------------------------------------------------------------------- */

enum { COLUMNS = 7, SHOWN = 4 }; /* SHOWN: lines that stand under `behind` */

/* The why without what other columns say: "REASON; 64 bytes over model[; together with 2 more]". */
static const char *short_why(const Report *r, const Op *op) {
  if (!op->why) return "";
  const char *cost = strstr(op->why, " bytes over ");
  while (cost && cost > op->why && *cost != ';') cost--;
  if (!cost || cost == op->why) return op->why;
  const char *more = strchr(cost + 1, ';');
  return arena_printf(r->a, "%.*s%s", (int)(cost - op->why), op->why, more ? more : "");
}

static const char *behind_text(const Report *r, const Row *row) {
  Str s = {0};
  for (int i = 0; i < row->behind.n && i < SHOWN; i++) str_printf(r->a, &s, "%s%s", i ? ", " : "", row->behind.at[i]);
  if (row->behind.n > SHOWN) str_put(r->a, &s, ", ...");
  return s.n ? s.at : "-";
}

static void put_cells(const Report *r, Str *s, const int *width, const char *const *cell, const char *why) {
  for (int c = 0; c < COLUMNS; c++) str_printf(r->a, s, c >= 2 && c <= 4 ? "%*s  " : "%-*s  ", width[c], cell[c]);
  str_printf(r->a, s, "%s\n", why);
}

static void put_totals(const Report *r, Str *s) {
  double moved = 0, bound = 0;
  for (int i = 0; i < r->rows.n; i++) {
    const Row *row = &r->rows.at[i];
    AxesTotal t;
    moved += (double)(row->bytes * row->times);
    bound += op_bound(r, row->op) * (double)row->times;
    if (axes_total(r, i, &t))
      str_printf(r->a, s, "over %s: %lld bytes in %lld calls\n", t.axes, (long long)t.bytes, (long long)t.calls);
  }
  str_printf(r->a, s, "total: %lld bytes received per step by the rank that receives most", (long long)total(r));
  str_printf(r->a, s, "; moved/bound %.2f\n", bound > 0 ? moved / bound : 1.0);
}

static const char *report_text(const Report *r) {
  static const char *const HEAD[COLUMNS] = {"kind", "axes", "group", "bytes", "times", "line", "behind"};
  Str s = {0};
  if (r->rows.n == 0) return "no collectives: nothing moves between ranks\n";
  const char *(*cell)[COLUMNS] = arena_alloc(r->a, sizeof *cell * (size_t)r->rows.n);
  int width[COLUMNS];
  for (int c = 0; c < COLUMNS; c++) width[c] = (int)strlen(HEAD[c]);
  for (int i = 0; i < r->rows.n; i++) {
    const Row *row = &r->rows.at[i];
    cell[i][0] = op_text(row->op->kind);
    cell[i][1] = row->axes;
    cell[i][2] = arena_printf(r->a, "%lld", (long long)row->group);
    cell[i][3] = arena_printf(r->a, "%lld", (long long)row->bytes);
    cell[i][4] = arena_printf(r->a, "%lld", (long long)row->times);
    cell[i][5] = row->line;
    cell[i][6] = behind_text(r, row);
    for (int c = 0; c < COLUMNS; c++) width[c] = (int)max_i64(width[c], (int64_t)strlen(cell[i][c]));
  }
  put_cells(r, &s, width, HEAD, "why");
  for (int i = 0; i < r->rows.n; i++) put_cells(r, &s, width, cell[i], short_why(r, r->rows.at[i].op));
  put_totals(r, &s);
  return s.at;
}

const char *part_report(const Module *m, Arena *a, bool json) {
  Report r = {.m = m, .a = a};
  r.uses = NEW_ARRAY(a, int, m->values.n + 1);
  for (int i = 0; i < m->programs.n; i++) part_visit(m->programs.at[i].body, 1, count_uses, &r);
  for (int i = 0; i < m->programs.n; i++) part_visit(m->programs.at[i].body, 1, add_row, &r);
  return json ? report_json(&r) : report_text(&r);
}

int64_t part_bytes_per_step(const Module *m) {
  Arena *a = arena_new();
  Report r = {.m = m, .a = a};
  for (int i = 0; i < m->programs.n; i++) part_visit(m->programs.at[i].body, 1, add_row, &r);
  int64_t n = total(&r);
  arena_free(a);
  return n;
}
