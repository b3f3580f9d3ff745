/* lex.c: the text of a .dt file -> tokens.

     y[b] = 2*x[b]  # twice   ->   NAME y, [, NAME b, ], =, INT 2, *, NAME x, [, NAME b, ], NL, EOF

   The source is any bytes. What is no token is reported once per run of such characters and left in the stream as
   BAD, so that the parser drops the statement without a second report. */
#include "lex.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

typedef struct {
  Arena *a;
  Diags *d;
  int file;
  const char *s; /* the whole text, s[n] == 0 */
  size_t n, at;
  int line;
  size_t line_start;
  bool first;
  Lexed out;
} Lexer;

static const struct {
  const char *text;
  char what;
} token_table[] = {
#define T(K, text, what) {text, what},
    TOKENS(T)
#undef T
};

bool tok_is_item(TokKind k) { return k < TOK_NAME && token_table[k].what == 'K'; }
bool tok_goes_on(TokKind k) { return k < TOK_NAME && token_table[k].what == 'O'; }
bool tok_is_word(TokKind k) { return k < TOK_NAME && token_table[k].text[0] >= 'a' && token_table[k].text[0] <= 'z'; }

const char *tok_text(TokKind k) {
  static const char *const quoted[] = {
#define T(K, text, what) "`" text "`",
      TOKENS(T)
#undef T
  };
  static const char *const others[] = {"a name",   "a dim's name",        "a number",       "a number",       "a word",
                                       "a string", "the end of the line", "something else", "the end of file"};
  return k < TOK_NAME ? quoted[k] : others[k - TOK_NAME];
}

/* ---- characters ------------------------------------------------------------------------------------------- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || is_upper(c) || c == '_'; }
static bool is_word(char c) { return is_letter(c) || is_digit(c); }
static char peek(const Lexer *x, size_t k) { return k < x->n - x->at ? x->s[x->at + k] : 0; }

static Loc here(const Lexer *x, size_t from) {
  return (Loc){x->file, x->line, (int)(from - x->line_start) + 1, (int)(x->at - from)};
}

static Token *push(Lexer *x, TokKind k, size_t from) {
  Token t = {.kind = k, .loc = here(x, from), .first = x->first};
  x->first = false;
  vec_push(x->a, x->out.tokens, t);
  return &x->out.tokens.at[x->out.tokens.n - 1];
}

/* ---- what is no token ------------------------------------------------------------------------------------- */

static const struct {
  const char *wrong, *help;
} slips[] = {
    {"\xc3\x97", "write `*`"},
    {"\xc2\xb7", "write `*`"},
    {"\xe2\x88\x92", "write `-`"},
    {"\xe2\x80\x93", "write `-`"},
    {"\xe2\x89\xa4", "write `<=`"},
    {"\xe2\x89\xa5", "write `>=`"},
    {"\xe2\x89\xa0", "write `!=`"},
    {"\xe2\x86\x92", "write `->`"},
    {"\xe2\x80\x9c", "strings stand in straight double quotes"},
    {"\xe2\x80\x9d", "strings stand in straight double quotes"},
    {"'", "strings stand in double quotes"},
    {";", "a statement ends at the end of its line; put the next one on a line of its own"},
    {"^", "a power is written `**`"},
    {"&", "logic is written `and`"},
    {"|", "logic is written `or`"},
    {"!", "logic is written `not`"},
    {".", "a number begins with a digit: `0.5`"},
    {"\\", "a line goes on by itself after an operator, after a comma and inside brackets"},
};

/* Bytes to skip at a character that begins no token: the rest of a UTF-8 sequence goes with its first byte. */
static size_t odd_length(const Lexer *x) {
  size_t k = 1;
  if ((unsigned char)peek(x, 0) >= 0xc0)
    while (k < 4 && ((unsigned char)peek(x, k) & 0xc0) == 0x80) k++;
  return k;
}

static void lex_odd(Lexer *x) {
  size_t from = x->at, k = odd_length(x);
  while (peek(x, k) == x->s[from] && k < 4) k++; /* && and ;; are one slip */
  x->at += k;
  const char *text = arena_strndup(x->a, x->s + from, k), *help = NULL;
  for (size_t i = 0; i < sizeof slips / sizeof *slips; i++)
    if (!strncmp(text, slips[i].wrong, strlen(slips[i].wrong))) help = slips[i].help;
  bool again = x->out.tokens.n > 0 && x->out.tokens.at[x->out.tokens.n - 1].kind == TOK_BAD && !x->first;
  Token *t = push(x, TOK_BAD, from);
  if (again) return;
  Diag *g = *text ? diag_error(x->d, "E0101", t->loc, "`%s` is no part of the language", text)
                  : diag_error(x->d, "E0101", t->loc, "a zero byte is no part of the language");
  if (help) diag_help(x->d, g, "%s", help);
}

/* ---- numbers, words, strings ------------------------------------------------------------------------------ */

static void lex_number(Lexer *x) {
  size_t from = x->at;
  bool real = false;
  while (is_digit(peek(x, 0))) x->at++;
  if (peek(x, 0) == '.') {
    real = true;
    for (x->at++; is_digit(peek(x, 0));) x->at++;
  }
  char e = peek(x, 0), sign = peek(x, 1);
  size_t skip = sign == '+' || sign == '-' ? 2 : 1;
  if ((e == 'e' || e == 'E') && is_digit(peek(x, skip))) {
    real = true;
    for (x->at += skip; is_digit(peek(x, 0));) x->at++;
  }
  bool word = is_word(peek(x, 0));
  while (is_word(peek(x, 0))) x->at++;
  Token *t = push(x, word ? TOK_WORD : real ? TOK_FLOAT : TOK_INT, from);
  t->text = arena_strndup(x->a, x->s + from, x->at - from);
  if (word) return;
  errno = 0;
  t->fval = strtod(t->text, NULL);
  if (real && !isfinite(t->fval)) {
    diag_error(x->d, "E0104", t->loc, "%s is more than f64 can hold", t->text);
    t->fval = 1; /* no error follows from it */
  }
  if (real) return;
  t->ival = strtoll(t->text, NULL, 10);
  if (errno == ERANGE) diag_error(x->d, "E0104", t->loc, "%.40s is more than i64 can hold", t->text);
}

static void lex_word(Lexer *x) {
  size_t from = x->at;
  while (is_word(peek(x, 0))) x->at++;
  const char *text = arena_strndup(x->a, x->s + from, x->at - from);
  TokKind k = is_upper(*text) ? TOK_DIM : TOK_NAME;
  for (int i = 0; i < (int)TOK_NAME; i++)
    if (!strcmp(text, token_table[i].text)) k = (TokKind)i;
  push(x, k, from)->text = text;
}

static void lex_string(Lexer *x) {
  size_t from = x->at++;
  bool control = false;
  for (; x->at < x->n && x->s[x->at] != '"' && x->s[x->at] != '\n'; x->at++)
    control |= (unsigned char)x->s[x->at] < 0x20 || x->s[x->at] == 0x7f;
  bool closed = peek(x, 0) == '"';
  const char *text = arena_strndup(x->a, x->s + from + 1, x->at - from - 1);
  x->at += closed;
  Token *t = push(x, closed && !control ? TOK_STRING : TOK_BAD, from);
  t->text = text;
  if (!closed)
    diag_help(x->d, diag_error(x->d, "E0102", t->loc, "this string has no end"), "close it with `\"` on the same line");
  else if (control)
    diag_error(x->d, "E0105", t->loc, "this string contains a control character");
}

static void lex_sign(Lexer *x) {
  for (int k = 0; k < (int)TOK_NAME; k++) {
    size_t len = strlen(token_table[k].text);
    if (tok_is_word((TokKind)k) || len > x->n - x->at || strncmp(x->s + x->at, token_table[k].text, len)) continue;
    x->at += len;
    push(x, (TokKind)k, x->at - len);
    return;
  }
  lex_odd(x);
}

/* ---- the whole -------------------------------------------------------------------------------------------- */

static void begin_line(Lexer *x) {
  x->line++;
  x->line_start = x->at;
  x->first = true;
  vec_push(x->a, x->out.starts, x->at);
}

static void lex_token(Lexer *x) {
  char c = x->s[x->at];
  if (is_digit(c))
    lex_number(x);
  else if (is_letter(c))
    lex_word(x);
  else if (c == '"')
    lex_string(x);
  else
    lex_sign(x);
}

Lexed lex_file(Arena *a, Diags *d, int file) {
  SourceFile f = d->files.at[file];
  Lexer x = {.a = a, .d = d, .file = file, .s = f.text, .n = f.len};
  if (f.len >= 3 && !memcmp(f.text, "\xef\xbb\xbf", 3)) x.at = 3; /* byte order mark */
  begin_line(&x);
  x.line_start = x.out.starts.at[0] = 0;
  while (x.at < x.n) {
    char c = x.s[x.at];
    if (c == '\n') {
      x.at++;
      begin_line(&x);
    } else if (c == '#') {
      while (x.at < x.n && x.s[x.at] != '\n') x.at++;
    } else if (c == ' ' || c == '\t' || (c == '\r' && (x.at + 1 == x.n || x.s[x.at + 1] == '\n'))) {
      x.at++;
    } else {
      lex_token(&x);
    }
  }
  push(&x, TOK_EOF, x.at);
  x.out.tokens = lex_lines(a, d, &x.out.tokens);
  return x.out;
}
