/* diag_text.c: one diagnostic as text, with the source lines and a caret under the exact span.

     error[E0204]: `b` ranges over B and over T
      --> a.dt:7:10
       |
     3 | param w: f32[B, D] = zeros
       |              - B is declared here
     ...
     7 | y[b] = x[b] * v[b]
       |                 ^ here it stands in T
       = help: ...

   The source is hostile: tabs, wide and combining characters, bytes that are no UTF-8 and lines of any length keep
   the caret under its character, and nothing of it reaches the terminal as a control sequence. */
#include "diag_text.h"

enum { WINDOW = 120, TAB = 4 }; /* columns of a long line that are shown; columns of a tab */

/* ---- characters ------------------------------------------------------------------------------------------- */

/* Decodes one character of s[0..n); returns its bytes, or 0 if they are no UTF-8 (overlong and surrogates too). */
static int decode(const unsigned char *s, size_t n, uint32_t *c) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  int len = s[0] < 0x80 ? 1 : (s[0] & 0xe0) == 0xc0 ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : (s[0] & 0xf8) == 0xf0 ? 4 : 0;
  if (len == 0 || (size_t)len > n) return 0;
  *c = len == 1 ? s[0] : s[0] & (0x7fu >> len);
  for (int i = 1; i < len; i++) {
    if ((s[i] & 0xc0) != 0x80) return 0;
    *c = *c << 6 | (s[i] & 0x3f);
  }
  return *c < least[len] || *c > 0x10ffff || (*c >= 0xd800 && *c < 0xe000) ? 0 : len;
}

/* Characters that would move the cursor or reorder the line: controls, marks of direction, separators. */
static bool unsafe(uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
         (c >= 0x2060 && c <= 0x206f) || c == 0xfeff;
}

/* Columns that a terminal gives a character: two for East Asian wide ones and emoji, none for combining marks. */
static int columns(uint32_t c) {
  if ((c >= 0x300 && c <= 0x36f) || (c >= 0x20d0 && c <= 0x20ff) || (c >= 0xfe00 && c <= 0xfe0f)) return 0;
  bool wide = (c >= 0x1100 && c <= 0x115f) || (c >= 0x2e80 && c <= 0xa4cf) || (c >= 0xac00 && c <= 0xd7a3) ||
              (c >= 0xf900 && c <= 0xfaff) || (c >= 0xfe30 && c <= 0xfe6f) || (c >= 0xff00 && c <= 0xff60) ||
              (c >= 0x1f300 && c <= 0x1faff) || (c >= 0x20000 && c <= 0x3fffd);
  return wide ? 2 : 1;
}

typedef struct {
  int bytes;   /* of the source */
  int columns; /* on the terminal */
  char text[16];
} Glyph;

static Glyph glyph(const char *s, size_t n) {
  Glyph g = {.bytes = 1, .columns = 0};
  uint32_t c;
  int len = decode((const unsigned char *)s, n, &c);
  if (s[0] == '\t') {
    snprintf(g.text, sizeof g.text, "%*s", TAB, "");
  } else if (len == 0) {
    snprintf(g.text, sizeof g.text, "\\x%02x", (unsigned char)s[0]);
  } else if (unsafe(c)) {
    g.bytes = len;
    snprintf(g.text, sizeof g.text, c < 0x80 ? "\\x%02x" : "\\u{%x}", (unsigned)c);
  } else {
    g.bytes = len;
    g.columns = columns(c);
    memcpy(g.text, s, (size_t)len);
    return g;
  }
  g.columns = (int)strlen(g.text);
  return g;
}

const char *diag_shown(Arena *a, const char *text) {
  Str out = {0};
  str_put(a, &out, "");
  for (size_t n = strlen(text); n > 0;) {
    Glyph g = glyph(text, n);
    str_put(a, &out, *text == '\n' ? "\n" : g.text);
    text += g.bytes;
    n -= (size_t)g.bytes;
  }
  return out.at;
}

/* ---- lines ------------------------------------------------------------------------------------------------ */

typedef struct {
  const char *at;
  int len;
} Line;

static Line source_line(const SourceFile *f, int line) {
  const char *p = f->text, *end = f->text + f->len;
  for (int i = 1; i < line && p < end; i++) {
    const char *nl = memchr(p, '\n', (size_t)(end - p));
    p = nl ? nl + 1 : end;
  }
  const char *nl = p < end ? memchr(p, '\n', (size_t)(end - p)) : NULL;
  int64_t len = (nl ? nl : end) - p;
  if (len > 0 && p[len - 1] == '\r') len--;
  return (Line){p, (int)min_i64(len, 1 << 20)};
}

/* A span on one line: columns [from, to) of the line as shown, at least one wide. */
typedef struct {
  int line, from, to;
  bool primary;
  const char *text;
} Mark;
typedef VEC(Mark) Marks;

static int shown_columns(Line l, int bytes) {
  int at = 0, cols = 0;
  while (at < bytes && at < l.len) {
    Glyph g = glyph(l.at + at, (size_t)(l.len - at));
    at += g.bytes;
    cols += g.columns;
  }
  return cols;
}

static Mark mark_of(const SourceFile *f, Loc loc, bool primary, const char *text) {
  Line l = source_line(f, loc.line);
  int64_t first = max_i64(loc.col - 1, 0), last = first + max_i64(loc.len, 1);
  int from = shown_columns(l, (int)min_i64(first, l.len)), to = shown_columns(l, (int)min_i64(last, l.len));
  return (Mark){loc.line, from, to > from ? to : from + 1, primary, text};
}

/* By line, then the primary first, then by column. Insertion sort: a diagnostic has a handful of marks. */
static void sort_marks(Marks *m) {
  for (int i = 1; i < m->n; i++)
    for (int j = i; j > 0; j--) {
      Mark *x = &m->at[j - 1], *y = &m->at[j];
      if (x->line < y->line || (x->line == y->line && (x->primary || (!y->primary && x->from <= y->from)))) break;
      Mark t = *x;
      *x = *y, *y = t;
    }
}

static void print_window(Line l, int start, FILE *out) {
  int at = 0, col = 0;
  fputs(start > 0 ? "..." : "", out);
  while (at < l.len && col < start + WINDOW) {
    Glyph g = glyph(l.at + at, (size_t)(l.len - at));
    if (col >= start) fputs(g.text, out);
    at += g.bytes;
    col += g.columns;
  }
  fputs(at < l.len ? "...\n" : "\n", out);
}

static void print_mark(Diags *d, Mark m, int start, int width, FILE *out) {
  int indent = m.from - start + (start > 0 ? 3 : 0);
  int n = (int)min_i64(m.to - m.from, max_i64(start + WINDOW - m.from, 1));
  indent = (int)max_i64(0, min_i64(indent, WINDOW + 3));
  fprintf(out, "%*s | %*s", width, "", indent, "");
  for (int i = 0; i < n; i++) fputc(m.primary ? '^' : '-', out);
  if (m.text && *m.text) fprintf(out, " %s", diag_shown(d->arena, m.text));
  fputc('\n', out);
}

/* The marks of one line under its text; a long line is cut to a window around its first mark. */
static void print_line(Diags *d, const SourceFile *f, const Mark *m, int n, int width, FILE *out) {
  Line l = source_line(f, m->line);
  int start = m->from < WINDOW - 20 ? 0 : m->from - WINDOW / 2;
  fprintf(out, "%*d | ", width, m->line);
  print_window(l, start, out);
  for (int i = 0; i < n; i++) print_mark(d, m[i], start, width, out);
}

static void print_marks(Diags *d, const SourceFile *f, const Marks *m, int width, FILE *out) {
  fprintf(out, "%*s |\n", width, "");
  for (int i = 0, n; i < m->n; i += n) {
    for (n = 1; i + n < m->n && m->at[i + n].line == m->at[i].line; n++) {
    }
    if (i > 0 && m->at[i].line > m->at[i - 1].line + 1) fprintf(out, "...\n");
    print_line(d, f, &m->at[i], n, width, out);
  }
}

/* ---- the whole -------------------------------------------------------------------------------------------- */

static bool known(const Diags *d, Loc loc) { return loc.line > 0 && loc.file >= 0 && loc.file < d->files.n; }

static Marks marks_in(Diags *d, const Diag *g, int file) {
  Marks m = {0};
  const SourceFile *f = &d->files.at[file];
  if (known(d, g->loc) && g->loc.file == file) vec_push(d->arena, m, mark_of(f, g->loc, true, g->label));
  for (int i = 0; i < g->labels.n; i++) {
    DiagLabel l = g->labels.at[i];
    if (known(d, l.loc) && l.loc.file == file) vec_push(d->arena, m, mark_of(f, l.loc, false, l.text));
  }
  sort_marks(&m);
  return m;
}

static int width_of(const Diags *d, const Diag *g) {
  int most = known(d, g->loc) ? g->loc.line : 1;
  for (int i = 0; i < g->labels.n; i++)
    if (known(d, g->labels.at[i].loc) && g->labels.at[i].loc.line > most) most = g->labels.at[i].loc.line;
  return snprintf(NULL, 0, "%d", most);
}

static void print_file(Diags *d, const Diag *g, Loc at, const char *arrow, int width, FILE *out) {
  fprintf(out, "%*s%s %s:%d:%d\n", width, "", arrow, diag_shown(d->arena, d->files.at[at.file].name), at.line, at.col);
  Marks m = marks_in(d, g, at.file);
  print_marks(d, &d->files.at[at.file], &m, width, out);
}

/* Labels in other files than the primary span, each file once, in order of the labels. */
static void print_others(Diags *d, const Diag *g, int width, FILE *out) {
  for (int i = 0; i < g->labels.n; i++) {
    Loc at = g->labels.at[i].loc;
    bool seen = !known(d, at) || (known(d, g->loc) && at.file == g->loc.file);
    for (int j = 0; j < i && !seen; j++) seen = g->labels.at[j].loc.line > 0 && g->labels.at[j].loc.file == at.file;
    if (!seen) print_file(d, g, at, ":::", width, out);
  }
}

void diag_text(Diags *d, const Diag *g, FILE *out) {
  int width = width_of(d, g);
  fprintf(out, "%s[%s]: %s", g->warning ? "warning" : "error", g->code, diag_shown(d->arena, g->message));
  if (g->name) fprintf(out, " [-W%s%s]", g->warning ? "" : "error=", g->name);
  fputc('\n', out);
  if (known(d, g->loc)) print_file(d, g, g->loc, "-->", width, out);
  print_others(d, g, width, out);
  if (g->help) fprintf(out, "%*s = help: %s\n", width, "", diag_shown(d->arena, g->help));
}
