/* diag.c: collects what is wrong with a user's file, puts it in order and prints it, as text (diag_text.c) or as one
   JSON object per line.

     {"code": "E0103", "level": "error", "file": "a.dt", "line": 3, "col": 9, "len": 1, "message": "...", ...}

   Two diagnostics with one code at one place are one: recovery may meet a fault twice. */
#include "diag_text.h"

#include <jansson.h>
#include <stdlib.h>

enum { MAX_SHOWN = 50 };

static const struct {
  const char *code, *name;
  bool on;
} warnings[NWARNINGS] = {
#define WARN(code, name, on) {#code, name, on},
#include "ir/warnings.def"
};

Diags *diags_new(Arena *a) {
  Diags *d = NEW(a, Diags);
  d->arena = a;
  for (int i = 0; i < NWARNINGS; i++) d->policy[i].on = warnings[i].on;
  return d;
}

/* ---- which warnings --------------------------------------------------------------------------------------- */

static int by_code(const char *code) {
  int i = 0;
  while (i < NWARNINGS && strcmp(warnings[i].code, code)) i++;
  return i;
}

static const char *behind(const char *text, const char *prefix) {
  size_t n = strlen(prefix);
  return strncmp(text, prefix, n) ? NULL : text + n;
}

bool diag_policy(Diags *d, const char *option) {
  const char *name = option, *rest;
  bool error = false, on = true;
  if (!strcmp(name, "error")) name = "", error = true;
  if ((rest = behind(name, "error=")) != NULL) name = rest, error = true;
  if ((rest = behind(name, "no-error=")) != NULL) {
    for (int i = 0; i < NWARNINGS; i++)
      if (!strcmp(rest, warnings[i].name)) return d->policy[i].error = false, true;
    return false;
  }
  if ((rest = behind(name, "no-")) != NULL) name = rest, on = false;
  bool all = !*name || !strcmp(name, "all"), found = all;
  for (int i = 0; i < NWARNINGS; i++) {
    if (!all && strcmp(name, warnings[i].name)) continue;
    found = true;
    if (error) d->policy[i].error = true;
    if (error && all) continue; /* -Werror asks for no more than is shown */
    d->policy[i].said = d->policy[i].on = on;
  }
  return found;
}

bool diag_wanted(const Diags *d, const char *code) {
  int i = by_code(code);
  return i == NWARNINGS || d->policy[i].on;
}

bool diag_asked(const Diags *d, const char *code) {
  int i = by_code(code);
  return i < NWARNINGS && d->policy[i].on && d->policy[i].said;
}

int diags_add_file(Diags *d, const char *name, const char *text, size_t len) {
  SourceFile f = {arena_strdup(d->arena, name), text, len};
  vec_push(d->arena, d->files, f);
  return d->files.n - 1;
}

static const char *format(Arena *a, const char *fmt, va_list ap) {
  Str s = {0};
  str_vprintf(a, &s, fmt, ap);
  return s.at ? s.at : "";
}

static Diag *add(Diags *d, bool warning, const char *code, Loc loc, const char *fmt, va_list ap) {
  Diag *g = NEW(d->arena, Diag);
  int named = warning ? by_code(code) : NWARNINGS;
  if (named < NWARNINGS) g->name = warnings[named].name, warning = !d->policy[named].error;
  g->code = code;
  g->warning = warning;
  g->loc = loc;
  g->message = format(d->arena, fmt, ap);
  if (named < NWARNINGS && !d->policy[named].on) return g;
  vec_push(d->arena, d->list, g);
  *(warning ? &d->nwarnings : &d->nerrors) += 1;
  return g;
}

Diag *diag_error(Diags *d, const char *code, Loc loc, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  Diag *g = add(d, false, code, loc, fmt, ap);
  va_end(ap);
  return g;
}

Diag *diag_warning(Diags *d, const char *code, Loc loc, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  Diag *g = add(d, true, code, loc, fmt, ap);
  va_end(ap);
  return g;
}

void diag_mark(Diags *d, Diag *g, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  g->label = format(d->arena, fmt, ap);
  va_end(ap);
}

void diag_label(Diags *d, Diag *g, Loc loc, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  DiagLabel l = {loc, format(d->arena, fmt, ap)};
  va_end(ap);
  vec_push(d->arena, g->labels, l);
}

void diag_help(Diags *d, Diag *g, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  g->help = format(d->arena, fmt, ap);
  va_end(ap);
}

/* ---- order ------------------------------------------------------------------------------------------------ */

typedef struct {
  Diag *g;
  int added; /* breaks ties, so that the order is that of addition */
} Ranked;

/* What has no place comes first, then by file, line, column. */
static int by_place(const void *x, const void *y) {
  const Ranked *a = x, *b = y;
  const Loc *p = &a->g->loc, *q = &b->g->loc;
  if ((p->line == 0) != (q->line == 0)) return p->line == 0 ? -1 : 1;
  if (p->line && p->file != q->file) return p->file < q->file ? -1 : 1;
  if (p->line != q->line) return p->line < q->line ? -1 : 1;
  if (p->line && p->col != q->col) return p->col < q->col ? -1 : 1;
  return a->added < b->added ? -1 : a->added > b->added;
}

static bool same(const Diag *x, const Diag *y) {
  return x->loc.line && x->loc.line == y->loc.line && x->loc.file == y->loc.file && x->loc.col == y->loc.col &&
         !strcmp(x->code, y->code);
}

static Ranked *in_order(Diags *d) {
  Ranked *r = NEW_ARRAY(d->arena, Ranked, d->list.n + 1);
  for (int i = 0; i < d->list.n; i++) r[i] = (Ranked){d->list.at[i], i};
  qsort(r, (size_t)d->list.n, sizeof *r, by_place);
  return r;
}

/* ---- JSON ------------------------------------------------------------------------------------------------- */

static void set_text(Arena *a, json_t *o, const char *key, const char *text) {
  json_object_set_new(o, key, text ? json_string(diag_shown(a, text)) : json_null());
}

static void set_place(Diags *d, json_t *o, Loc loc) {
  bool known = loc.line > 0 && loc.file >= 0 && loc.file < d->files.n;
  set_text(d->arena, o, "file", known ? d->files.at[loc.file].name : NULL);
  json_object_set_new(o, "line", json_integer(known ? loc.line : 0));
  json_object_set_new(o, "col", json_integer(known ? loc.col : 0));
  json_object_set_new(o, "len", json_integer(known ? loc.len : 0));
}

static void print_json(Diags *d, const Diag *g, FILE *out) {
  json_t *o = json_object(), *labels = json_array();
  set_text(d->arena, o, "code", g->code);
  json_object_set_new(o, "level", json_string(g->warning ? "warning" : "error"));
  if (g->name) set_text(d->arena, o, "name", g->name);
  set_place(d, o, g->loc);
  set_text(d->arena, o, "message", g->message);
  set_text(d->arena, o, "label", g->label);
  for (int i = 0; i < g->labels.n; i++) {
    json_t *l = json_object();
    set_place(d, l, g->labels.at[i].loc);
    set_text(d->arena, l, "text", g->labels.at[i].text);
    json_array_append_new(labels, l);
  }
  json_object_set_new(o, "labels", labels);
  set_text(d->arena, o, "help", g->help);
  json_dumpf(o, out, JSON_PRESERVE_ORDER);
  fputc('\n', out);
  json_decref(o);
}

static void print_left_out(Diags *d, int n, DiagFormat format, FILE *out) {
  const char *text = arena_printf(d->arena, "%d further error%s not shown", n, n == 1 ? " is" : "s are");
  if (format == DIAG_TEXT) {
    fprintf(out, "\nerror: %s\n", text);
    return;
  }
  Diag g = {.code = "E0000", .message = text};
  print_json(d, &g, out);
}

void diags_print(Diags *d, DiagFormat format, FILE *out) {
  Ranked *r = in_order(d);
  int shown = 0, left_out = 0;
  bool any = false;
  for (int i = 0; i < d->list.n; i++) {
    const Diag *g = r[i].g;
    if (i > 0 && same(g, r[i - 1].g)) continue;
    if (!g->warning && shown == MAX_SHOWN) {
      left_out++;
      continue;
    }
    shown += !g->warning;
    if (any && format == DIAG_TEXT) fputc('\n', out);
    any = true;
    if (format == DIAG_JSON)
      print_json(d, g, out);
    else
      diag_text(d, g, out);
  }
  if (left_out) print_left_out(d, left_out, format, out);
}
