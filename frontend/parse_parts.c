/* parse_parts.c: tokens and what every item is made of: names, axes, types.

     f32[B @ (pod, data), T, 2 * D @ none]   ->   AstType dtype f32, dims (B @ pod data) (T) (2 * D @ none)      */
#include "parse.h"

/* ---- tokens ----------------------------------------------------------------------------------------------- */

const Token *syn_token(const Parser *p) { return &p->lexed.tokens.at[p->at]; }

const Token *syn_next(const Parser *p) { return &p->lexed.tokens.at[p->at + (p->at + 1 < p->lexed.tokens.n)]; }

bool syn_at(const Parser *p, TokKind k) { return syn_token(p)->kind == k; }

bool syn_take(Parser *p, TokKind k) {
  if (!syn_at(p, k) || k == TOK_EOF) return false;
  p->at++;
  return true;
}

static size_t offset(const Parser *p, Loc l) { return p->lexed.starts.at[l.line - 1] + (size_t)l.col - 1; }

Loc syn_span(const Parser *p, Loc start) {
  if (p->at == 0) return start;
  Loc last = p->lexed.tokens.at[p->at - 1].loc;
  size_t from = offset(p, start), to = offset(p, last) + (size_t)last.len;
  start.len = to > from ? (int)(to - from) : start.len;
  return start;
}

/* ---- errors ----------------------------------------------------------------------------------------------- */

/* Goes where nothing of the statement is left: its line's end, or a brace that belongs to a block. Says whether it
   met a BAD token: then the statement has been reported. */
static bool skip_statement(Parser *p) {
  bool reported = false;
  for (TokKind k = syn_token(p)->kind; k != TOK_NL && k != TOK_EOF && k != TOK_LBRACE && k != TOK_RBRACE;) {
    reported |= k == TOK_BAD;
    p->at++;
    k = syn_token(p)->kind;
  }
  return reported;
}

Diag *syn_fail(Parser *p, const char *code, Loc loc, const char *fmt, ...) {
  if (p->panic) return NULL;
  va_list ap;
  va_start(ap, fmt);
  Str s = {0};
  str_vprintf(p->a, &s, fmt, ap);
  va_end(ap);
  p->panic = true;
  return skip_statement(p) ? NULL : diag_error(p->d, code, loc, "%s", s.at);
}

static const char *shown(Parser *p, const Token *t) {
  bool named = t->kind == TOK_NAME || t->kind == TOK_DIM || t->kind == TOK_WORD || t->kind == TOK_INT || t->kind == TOK_FLOAT;
  return named ? arena_printf(p->a, "`%.60s`", t->text) : tok_text(t->kind);
}

Diag *syn_expected(Parser *p, const char *what) {
  const Token *t = syn_token(p);
  return syn_fail(p, "E0110", t->loc, "expected %s, found %s", what, shown(p, t));
}

Token syn_need(Parser *p, TokKind k, const char *what) {
  Token t = *syn_token(p);
  if (!syn_take(p, k)) syn_expected(p, what);
  return t;
}

void syn_close(Parser *p, TokKind k, const Token *open) {
  if (syn_take(p, k)) return;
  Diag *g = syn_expected(p, arena_printf(p->a, "`,` or %s", tok_text(k)));
  if (g) diag_label(p->d, g, open->loc, "this bracket is still open");
}

/* ---- names ------------------------------------------------------------------------------------------------ */

static AstName name_of(const Token *t) { return (AstName){t->text, t->loc}; }

AstName syn_name(Parser *p, const char *what) {
  Token t = *syn_token(p);
  if (syn_take(p, TOK_NAME)) return name_of(&t);
  if (t.kind == TOK_DIM) {
    Diag *g = syn_fail(p, "E0114", t.loc, "%s does not begin with a capital letter: those are dims", what);
    if (g) diag_help(p->d, g, "call it `%c%s`", t.text[0] - 'A' + 'a', t.text + 1);
  } else if (tok_is_word(t.kind)) {
    Diag *g = syn_fail(p, "E0115", t.loc, "%s is a keyword and cannot be %s", tok_text(t.kind), what);
    if (g) diag_help(p->d, g, "choose another name, such as `%s_`", t.text);
  } else {
    syn_expected(p, what);
  }
  return (AstName){"", t.loc};
}

AstName syn_dim_name(Parser *p) {
  Token t = *syn_token(p);
  if (syn_take(p, TOK_DIM)) return name_of(&t);
  if (t.kind != TOK_NAME) {
    syn_expected(p, "a dim's name");
    return (AstName){"", t.loc};
  }
  Diag *g = syn_fail(p, "E0114", t.loc, "the name of a dim begins with a capital letter");
  char first = t.text[0];
  if (g && first >= 'a' && first <= 'z') diag_help(p->d, g, "call it `%c%s`", first - 'a' + 'A', t.text + 1);
  return (AstName){"", t.loc};
}

AstNames syn_names(Parser *p, const char *what) {
  AstNames v = {0};
  do {
    AstName n = syn_name(p, what);
    vec_push(p->a, v, n);
  } while (syn_take(p, TOK_COMMA));
  return v;
}

/* ---- axes and types --------------------------------------------------------------------------------------- */

AstAxes syn_axes(Parser *p) {
  AstAxes x = {.present = true, .loc = syn_token(p)->loc};
  Token open = *syn_token(p);
  if (syn_take(p, TOK_NONE)) {
    x.none = true;
  } else if (syn_take(p, TOK_LPAREN)) {
    x.names = syn_names(p, "the name of a mesh axis");
    syn_close(p, TOK_RPAREN, &open);
  } else {
    AstName n = syn_name(p, "the name of a mesh axis");
    vec_push(p->a, x.names, n);
  }
  x.loc = syn_span(p, x.loc);
  return x;
}

AstAxes syn_at_axes(Parser *p) { return syn_take(p, TOK_AT) ? syn_axes(p) : (AstAxes){0}; }

AstType syn_type(Parser *p) {
  AstType t = {.loc = syn_token(p)->loc};
  t.dtype = syn_name(p, "a type");
  Token open = *syn_token(p);
  t.brackets = syn_take(p, TOK_LBRACKET);
  if (t.brackets) {
    do {
      AstTypeDim dim = {.size = syn_expr(p)};
      dim.axes = syn_at_axes(p);
      vec_push(p->a, t.dims, dim);
    } while (syn_take(p, TOK_COMMA));
    syn_close(p, TOK_RBRACKET, &open);
  }
  t.loc = syn_span(p, t.loc);
  return t;
}
