/* lines.c: where a line's end counts. A statement goes on while a ( or [ is open and after a line that ends in an
   operator or comma; everywhere else its line's end becomes a token NL.

     y[b] = x[b] +       tokens of both lines, then NL
            w[b]

   A bracket that is never closed would swallow the rest of the file. So where a line begins with what cannot stand
   inside a bracket (a keyword of an item, `}`, `name[...] =`), the open brackets are reported and end there. */
#include "lex.h"

enum { LOOK = 256 }; /* tokens that a line is looked through for its `] =` */

typedef struct {
  Arena *a;
  Diags *d;
  const Tokens *raw;
  Tokens out;
  VEC(Token) open; /* brackets */
} Lines;

static bool opens(TokKind k) { return k == TOK_LPAREN || k == TOK_LBRACKET; }
static bool closes(TokKind k) { return k == TOK_RPAREN || k == TOK_RBRACKET; }

static bool assigns(const Tokens *t, int i) { return i < t->n && (t->at[i].kind == TOK_ASSIGN || t->at[i].kind == TOK_PLUSEQ); }

/* Does a line that begins at raw token i read `name[...] =` or `name[...] +=`? */
static bool assigns_element(const Tokens *t, int i) {
  if (t->at[i].kind != TOK_NAME || i + 1 >= t->n || t->at[i + 1].kind != TOK_LBRACKET) return false;
  int depth = 0;
  for (int j = i + 1; j < t->n && j < i + LOOK; j++) {
    depth += opens(t->at[j].kind) - closes(t->at[j].kind);
    if (depth == 0) return assigns(t, j + 1);
  }
  return false;
}

static bool cannot_be_inside(const Tokens *t, int i) {
  TokKind k = t->at[i].kind;
  return k == TOK_EOF || k == TOK_RBRACE || (t->at[i].first && (tok_is_item(k) || assigns_element(t, i)));
}

static void put(Lines *x, TokKind k, Loc loc) {
  Token t = {.kind = k, .loc = loc};
  vec_push(x->a, x->out, t);
}

/* The place just behind the last token. */
static Loc behind(const Lines *x) {
  if (x->out.n == 0) return x->raw->at[0].loc;
  Loc l = x->out.at[x->out.n - 1].loc;
  return (Loc){l.file, l.line, l.col + l.len, 0};
}

static void end_line(Lines *x) {
  if (x->out.n > 0 && x->out.at[x->out.n - 1].kind != TOK_NL) put(x, TOK_NL, behind(x));
}

static void report_open(Lines *x, Loc next) {
  Token t = x->open.at[x->open.n - 1];
  Diag *g = diag_error(x->d, "E0103", t.loc, "this %s is never closed", tok_text(t.kind));
  if (next.line > t.loc.line && next.len > 0) diag_label(x->d, g, next, "what begins here cannot stand inside it");
  put(x, TOK_BAD, behind(x));
  x->open.n = 0;
}

static bool match(TokKind open, TokKind close) { return (open == TOK_LPAREN) == (close == TOK_RPAREN); }

/* A closing bracket of the other kind: reported, and BAD in its place; it closes what it matches further out, if there
   is anything, else the innermost bracket. One too many is left to the parser. */
static Token close_bracket(Lines *x, Token t) {
  if (x->open.n == 0) return t;
  Token o = x->open.at[--x->open.n];
  if (match(o.kind, t.kind)) return t;
  if (x->open.n > 0 && match(x->open.at[x->open.n - 1].kind, t.kind)) x->open.n--;
  Diag *g = diag_error(x->d, "E0103", t.loc, "%s cannot close %s", tok_text(t.kind), tok_text(o.kind));
  diag_label(x->d, g, o.loc, "opened here");
  t.kind = TOK_BAD;
  return t;
}

/* Does raw token i go on with the line before it, though no bracket is open? Not where a statement begins after an
   operator that lacks its operand; after a comma it may be one more name on the left. */
static bool goes_on(const Lines *x, int i) {
  TokKind last = x->out.n > 0 ? x->out.at[x->out.n - 1].kind : TOK_NL;
  bool statement = assigns_element(x->raw, i) || (x->raw->at[i].kind == TOK_NAME && assigns(x->raw, i + 1));
  return tok_goes_on(last) && !tok_is_item(x->raw->at[i].kind) && (last == TOK_COMMA || !statement);
}

Tokens lex_lines(Arena *a, Diags *d, const Tokens *raw) {
  Lines x = {.a = a, .d = d, .raw = raw};
  for (int i = 0; i < raw->n; i++) {
    Token t = raw->at[i];
    if (x.open.n > 0 && cannot_be_inside(raw, i)) report_open(&x, t.loc);
    if (t.kind == TOK_EOF || (t.first && x.open.n == 0 && !goes_on(&x, i))) end_line(&x);
    if (opens(t.kind)) vec_push(a, x.open, t);
    if (closes(t.kind)) t = close_bracket(&x, t);
    vec_push(a, x.out, t);
  }
  return x.out;
}
