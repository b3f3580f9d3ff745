/* parse_lex.c: the tokens of the IR's text. `%x` and `%"odd name"` are values, a % before a blank is the operator;
   `1.5d` and `3l` are numbers with a suffix; `; ...` up to the line's end is one token, `# ...` is a comment. */
#include "parser.h"

#include <math.h>
#include <stdlib.h>

static Loc here(const Parser *p, const char *from) {
  return (Loc){p->file, p->line, (int)(from - p->line_start) + 1, (int)max_i64(1, p->at - from)};
}

void irp_fail(Parser *p, const char *code, Loc loc, const char *fmt, ...) {
  if (p->failed) return;
  p->failed = true;
  va_list ap;
  va_start(ap, fmt);
  Str s = {0};
  str_vprintf(p->a, &s, fmt, ap);
  va_end(ap);
  diag_error(p->d, code, loc, "%s", s.at);
  p->at = p->end;
  p->tok = (Tok){.kind = TOK_END, .loc = loc, .text = ""};
}

static void skip_blanks(Parser *p) {
  for (; p->at < p->end; p->at++) {
    char c = *p->at;
    if (c == '\n')
      p->line++, p->line_start = p->at + 1;
    else if (c == '#')
      while (p->at + 1 < p->end && p->at[1] != '\n') p->at++;
    else if (c != ' ' && c != '\t' && c != '\r')
      return;
  }
}

static int hex_digit(char c) {
  return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* `from` is the character behind a backslash; returns what follows the escape, or NULL. */
static const char *unescape(const char *from, const char *end, char *out) {
  if (from >= end) return NULL;
  if (*from == '\\' || *from == '"') return *out = *from, from + 1;
  if (*from != 'x' || end - from < 3) return NULL;
  int high = hex_digit(from[1]), low = hex_digit(from[2]);
  if (high < 0 || low < 0 || high + low == 0) return NULL;
  return *out = (char)(high * 16 + low), from + 3;
}

static char *lex_quoted(Parser *p) {
  const char *from = p->at++;
  Str s = {0};
  str_put(p->a, &s, "");
  while (p->at < p->end && *p->at != '"') {
    char c[2] = {*p->at, 0};
    const char *next = c[0] == '\\' ? unescape(p->at + 1, p->end, c) : p->at + 1;
    if (!next || (p->at[0] != '\\' && (unsigned char)c[0] < 32)) {
      irp_fail(p, "E0901", here(p, p->at),
               "a string holds an escape that is not \\\\, \\\" or \\x and two hex digits, or a bare control character");
      return s.at;
    }
    str_put(p->a, &s, c);
    p->at = next;
  }
  if (p->at >= p->end)
    irp_fail(p, "E0901", here(p, from), "this string does not end");
  else
    p->at++;
  return s.at;
}

static char *lex_word(Parser *p) {
  const char *from = p->at;
  while (p->at < p->end && is_name_char(*p->at)) p->at++;
  return arena_strndup(p->a, from, (size_t)(p->at - from));
}

static void lex_value(Parser *p, Tok *t) {
  p->at++;
  t->kind = TOK_VALUE;
  t->text = *p->at == '"' ? lex_quoted(p) : lex_word(p);
}

static void skip_digits(Parser *p) {
  while (p->at < p->end && is_digit(*p->at)) p->at++;
}

static void lex_number(Parser *p, Tok *t) {
  const char *from = p->at;
  t->kind = TOK_NUMBER;
  skip_digits(p);
  if (p->at < p->end && *p->at == '.') t->real = true, p->at++, skip_digits(p);
  if (p->at < p->end && *p->at == 'e') {
    t->real = true;
    p->at++;
    if (p->at < p->end && (*p->at == '-' || *p->at == '+')) p->at++;
    skip_digits(p);
  }
  char *text = arena_strndup(p->a, from, (size_t)(p->at - from));
  if (p->at < p->end && strchr("dhbl", *p->at) && *p->at) t->suffix = *p->at++;
  bool large = false;
  for (const char *c = text; !t->real && *c; c++) {
    uint64_t digit = (uint64_t)(*c - '0');
    large |= __builtin_mul_overflow(t->whole, (uint64_t)10, &t->whole) || __builtin_add_overflow(t->whole, digit, &t->whole);
  }
  t->number = strtod(text, NULL);
  if (large || (!t->real && t->whole > (uint64_t)INT64_MAX + 1))
    irp_fail(p, "E0903", here(p, from), "this integer does not fit 64 bits");
  if (p->at < p->end && is_name_char(*p->at)) irp_fail(p, "E0901", here(p, from), "a letter follows this number");
}

static void lex_place(Parser *p, Tok *t) {
  const char *from = ++p->at;
  while (p->at < p->end && *p->at != '\n') p->at++;
  t->kind = TOK_PLACE;
  t->text = arena_strndup(p->a, from, (size_t)(p->at - from));
}

static void lex_punct(Parser *p, Tok *t) {
  static const char two[][3] = {"//", "<=", ">=", "==", "!=", ".."}, one[] = "<>=[](){}:,@~+-*/%";
  t->kind = TOK_PUNCT;
  for (int i = 0; i < COUNT(two); i++)
    if (p->at[0] == two[i][0] && p->end - p->at > 1 && p->at[1] == two[i][1]) t->text = two[i];
  const char *found = *p->at ? strchr(one, *p->at) : NULL;
  if (!*t->text && found) t->text = arena_strndup(p->a, found, 1);
  if (!*t->text)
    irp_fail(p, "E0901", here(p, p->at), "this character does not occur in the IR's text");
  else
    p->at += strlen(t->text);
}

void irp_next(Parser *p) {
  const char *before = p->at;
  skip_blanks(p);
  const char *from = p->at;
  Tok t = {.text = "", .spaced = from > before};
  t.loc = here(p, from);
  if (from < p->end) {
    char c = *from, next = from + 1 < p->end ? from[1] : 0;
    if (is_name_start(c))
      t.kind = TOK_NAME, t.text = lex_word(p);
    else if (c == '"')
      t.kind = TOK_STRING, t.text = lex_quoted(p);
    else if (c == '%' && (is_name_char(next) || next == '"'))
      lex_value(p, &t);
    else if (is_digit(c))
      lex_number(p, &t);
    else if (c == ';')
      lex_place(p, &t);
    else
      lex_punct(p, &t);
  }
  t.loc.len = here(p, from).len;
  if (!p->failed) p->tok = t;
}

/* ---- expecting ------------------------------------------------------------------------------------------- */

void irp_expected(Parser *p, const char *what) {
  const Tok *t = &p->tok;
  if (t->kind == TOK_END)
    irp_fail(p, "E0901", t->loc, "expected %s, the text ends", what);
  else
    irp_fail(p, "E0901", t->loc, "expected %s", what);
}

bool irp_at_word(const Parser *p, const char *word) { return p->tok.kind == TOK_NAME && !strcmp(p->tok.text, word); }
bool irp_at(const Parser *p, const char *punct) { return p->tok.kind == TOK_PUNCT && !strcmp(p->tok.text, punct); }

bool irp_take_word(Parser *p, const char *word) {
  if (!irp_at_word(p, word)) return false;
  irp_next(p);
  return true;
}

bool irp_take(Parser *p, const char *punct) {
  if (!irp_at(p, punct)) return false;
  irp_next(p);
  return true;
}

void irp_need_word(Parser *p, const char *word) {
  if (!irp_take_word(p, word)) irp_expected(p, arena_printf(p->a, "`%s`", word));
}

void irp_need(Parser *p, const char *punct) {
  if (!irp_take(p, punct)) irp_expected(p, arena_printf(p->a, "`%s`", punct));
}

static const char *take_text(Parser *p, bool ok, const char *what) {
  const char *text = p->tok.text;
  if (ok)
    irp_next(p);
  else
    irp_expected(p, what), text = "";
  return text;
}

const char *irp_name(Parser *p, const char *what) {
  return take_text(p, p->tok.kind == TOK_NAME || p->tok.kind == TOK_STRING, what);
}
const char *irp_string(Parser *p, const char *what) { return take_text(p, p->tok.kind == TOK_STRING, what); }
const char *irp_value_name(Parser *p) { return take_text(p, p->tok.kind == TOK_VALUE, "a value, %name"); }

ValueId irp_value(Parser *p) {
  Loc loc = p->tok.loc;
  const char *name = irp_value_name(p);
  ValueId v = p->failed ? -1 : ir_find_value(p->m, name);
  if (v < 0) irp_fail(p, "E0902", loc, "no value %%%s is defined before this place", name);
  return max_i64(v, 0);
}

int64_t irp_int(Parser *p, int64_t min, int64_t max, const char *what) {
  Tok t = p->tok;
  if (t.kind != TOK_NUMBER || t.real || t.suffix) return irp_expected(p, what), min;
  if (t.whole > (uint64_t)max || (int64_t)t.whole < min) {
    irp_fail(p, "E0903", t.loc, "%s must be from %lld to %lld", what, (long long)min, (long long)max);
    return min;
  }
  irp_next(p);
  return (int64_t)t.whole;
}

double irp_real(Parser *p, const char *what) {
  double sign = irp_take(p, "-") ? -1 : 1, v = p->tok.number;
  if (irp_at_word(p, "inf"))
    v = INFINITY;
  else if (irp_at_word(p, "nan"))
    v = NAN;
  else if (p->tok.kind != TOK_NUMBER || p->tok.suffix)
    return irp_expected(p, what), 0;
  irp_next(p);
  return sign * v;
}

int irp_one_of(Parser *p, const char *const *words, int n, const char *what) {
  for (int i = 0; i < n; i++)
    if (irp_take_word(p, words[i])) return i;
  irp_expected(p, what);
  return 0;
}

/* ---- places ------------------------------------------------------------------------------------------------ */

/* Loc.file indexes the files of the diagnostics and of the module alike; one that is only named has no text. */
static int intern_file(Parser *p, const char *name) {
  for (int i = 0; i < p->m->files.n; i++)
    if (!strcmp(p->m->files.at[i], name)) return i;
  vec_push(p->a, p->m->files, arena_strdup(p->a, name));
  return diags_add_file(p->d, name, "", 0);
}

static char *unescaped(Parser *p, const char *s) {
  Str out = {0};
  str_put(p->a, &out, "");
  for (const char *end = s + strlen(s); s < end;) {
    char c[2] = {*s, 0};
    const char *next = *s == '\\' ? unescape(s + 1, end, c) : s + 1;
    if (!next) next = s + 1; /* a backslash that a person wrote */
    str_put(p->a, &out, c);
    s = next;
  }
  return out.at;
}

static bool place_number(const char **s, int *out) {
  if (**s != ':' || !is_digit((*s)[1])) return false;
  int64_t v = 0;
  for (++*s; is_digit(**s); ++*s) v = min_i64(v * 10 + (**s - '0'), INT32_MAX);
  *out = (int)v;
  return true;
}

static const char *place_file(Parser *p, const char **s) {
  const char *from = *s;
  if (*from == '"') {
    const char *end = from + 1;
    while (*end && *end != '"') end += end[0] == '\\' && end[1] ? 2 : 1;
    *s = *end ? end + 1 : end;
    return unescaped(p, arena_strndup(p->a, from + 1, (size_t)(end - from - 1)));
  }
  while (is_file_char(**s)) ++*s;
  return arena_strndup(p->a, from, (size_t)(*s - from));
}

void irp_place(Parser *p, Loc *loc, const char **why) {
  if (p->tok.kind != TOK_PLACE) return;
  static const char because[] = "because ";
  const char *s = p->tok.text;
  while (*s == ' ') s++;
  if (strncmp(s, because, strlen(because))) {
    const char *file = place_file(p, &s);
    if (!place_number(&s, &loc->line)) {
      irp_fail(p, "E0901", p->tok.loc,
               "behind `;` stands file:line or file:line:col, then `, because` and a reason (a comment begins with #)");
      return;
    }
    place_number(&s, &loc->col);
    loc->file = intern_file(p, file);
    while (*s == ' ' || *s == ',' || *s == '\r') s++;
  }
  bool reason = !strncmp(s, because, strlen(because));
  if (reason && why)
    *why = unescaped(p, s + strlen(because));
  else if (*s)
    irp_fail(p, "E0901", p->tok.loc, "behind file:line stands `, because` and a reason, or nothing");
  irp_next(p);
}
