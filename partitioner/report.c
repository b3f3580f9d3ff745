/* report.c: --emit=schedule for people and schedule-json for programs: one row per collective, in the order of the
   program, then totals. Bytes: what the rank that receives most receives each time; times: per step, loops multiplied
   in. The total is the largest sum over collectives of any one rank, not the sum of the largest.

     kind        axes   group  bytes   times  line         behind  why
     all_reduce  model  2      262144  4      charlm.dt:26 29, 30  %r adds it to %x

   `behind`: the lines that are computed while the collective is under way; a scheduled module is reported.         */
#include "part.h"

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
} Report;

static const Type *type_of(const Report *r, ValueId v) { return &r->m->values.at[v].type; }

/* The least that any way from the operands' layouts to the results' can receive. */
static int64_t op_bound(const Report *r, Planner *p, const Op *op) {
  double sum = 0;
  for (int i = 0; i < op->nin; i++) {
    Price price;
    plan_find(p, type_of(r, op->in[i]), type_of(r, op->out[i]), &price);
    sum += price.bytes;
  }
  return (int64_t)sum;
}

static const char *line_text(const Report *r, Loc loc) {
  if (loc.line == 0) return "-";
  const char *file = loc.file >= 0 && loc.file < r->m->files.n ? r->m->files.at[loc.file] : "line";
  return arena_printf(r->a, "%s:%d", file, loc.line);
}

static void add_row(void *cx, Region *region, Op *op, int64_t times) {
  Report *r = cx;
  if (!op_is_collective(op->kind)) return;
  Row row = {.op = op, .times = times, .line = line_text(r, op->loc), .behind = part_behind(r->m, region, op, r->a)};
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
  return json_pack("{s:s, s:o, s:I, s:I, s:I, s:i, s:o, s:s}", "kind", op_text(row->op->kind), "axes", axes, "group",
                   (json_int_t)row->group, "bytes", (json_int_t)row->bytes, "count", (json_int_t)row->times, "line",
                   row->op->loc.line, "behind", behind, "why", row->op->why ? row->op->why : "");
}

static const char *report_json(const Report *r) {
  json_t *rows = json_array();
  for (int i = 0; i < r->rows.n; i++) json_array_append_new(rows, row_json(r, &r->rows.at[i]));
  json_t *all = json_pack("{s:o, s:I, s:f}", "collectives", rows, "bytes_per_step", (json_int_t)total(r), "multiply_adds",
                          part_multiply_adds(r->m));
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

static void put_totals(const Report *r, Str *s, Planner *p) {
  double moved = 0, bound = 0;
  for (int i = 0; i < r->rows.n; i++) {
    const Row *row = &r->rows.at[i];
    bool seen = false;
    for (int k = 0; k < i; k++) seen |= !strcmp(r->rows.at[k].axes, row->axes);
    moved += (double)(row->bytes * row->times);
    bound += (double)(op_bound(r, p, row->op) * row->times);
    if (seen) continue;
    int64_t bytes = 0, calls = 0;
    for (int k = i; k < r->rows.n; k++)
      if (!strcmp(r->rows.at[k].axes, row->axes))
        bytes += r->rows.at[k].bytes * r->rows.at[k].times, calls += r->rows.at[k].times;
    str_printf(r->a, s, "over %s: %lld bytes in %lld calls\n", row->axes, (long long)bytes, (long long)calls);
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
  put_totals(r, &s, plan_new(r->a, &r->m->mesh, NULL));
  return s.at;
}

const char *part_report(const Module *m, Arena *a, bool json) {
  Report r = {.m = m, .a = a};
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
