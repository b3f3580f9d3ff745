/* parse.c: tokens -> the items of a file, one function per kind of item, in the order of the grammar.

     param w1, w2: f32[D, F @ model] = normal(0.02), frozen
     ITEM_PARAM names w1 w2, type f32[D, F @ model], value CALL normal(0.02), frozen

   A statement that is wrong is reported once and left out; the next line is read as if nothing had happened. */
#include "parse.h"

static AstItem *item_new(Parser *p, AstItemKind k) {
  AstItem *it = NEW(p->a, AstItem);
  it->kind = k;
  it->loc = it->head = syn_token(p)->loc;
  return it;
}

/* The keyword of an item. */
static AstItem *begin(Parser *p, AstItemKind k) {
  AstItem *it = item_new(p, k);
  p->at++;
  return it;
}

/* ---- braces ----------------------------------------------------------------------------------------------- */

/* Takes `{`, also one line too low. False if there is none, so that there is no body to read. */
static bool open_brace(Parser *p, Token *open) {
  *open = *syn_token(p);
  if (syn_take(p, TOK_LBRACE)) return true;
  bool low = open->kind == TOK_NL && syn_next(p)->kind == TOK_LBRACE;
  Diag *g = syn_expected(p, "`{`");
  if (g && low) diag_help(p->d, g, "the brace stands on the same line");
  if (!low) return syn_take(p, TOK_LBRACE);
  p->at += 2;
  return true;
}

/* Is there another line of a body in braces? Not where an item begins a line: there a brace was forgotten. */
static bool body_goes_on(const Parser *p) {
  const Token *t = syn_token(p);
  return t->kind != TOK_RBRACE && t->kind != TOK_EOF && !(t->first && tok_is_item(t->kind));
}

static void close_brace(Parser *p, const Token *open, const char *what) {
  if (syn_take(p, TOK_RBRACE)) return;
  Diag *g = diag_error(p->d, "E0103", open->loc, "this `{` is never closed");
  Loc here = syn_token(p)->loc;
  if (!syn_at(p, TOK_EOF)) diag_label(p->d, g, here, "what begins here cannot stand inside %s", what);
}

static bool at_end(const Parser *p) {
  const Token *t = syn_token(p);
  return t->first || t->kind == TOK_NL || t->kind == TOK_RBRACE || t->kind == TOK_EOF;
}

static void left_over(Parser *p) {
  TokKind k = syn_token(p)->kind;
  bool value = k == TOK_NAME || k == TOK_DIM || k == TOK_INT || k == TOK_FLOAT || k == TOK_LPAREN;
  Diag *g = syn_expected(p, "the end of the line");
  if (g && value) diag_help(p->d, g, "an operator or a comma is missing before it");
  if (g && (k == TOK_RPAREN || k == TOK_RBRACKET)) diag_help(p->d, g, "nothing is open that this bracket could close");
}

/* After each line of a body or file: nothing may be left of it. */
static void end_line(Parser *p) {
  if (!p->panic && !at_end(p)) left_over(p);
  while (p->panic && !syn_at(p, TOK_NL) && !syn_at(p, TOK_RBRACE) && !syn_at(p, TOK_EOF)) p->at++;
  syn_take(p, TOK_NL);
  p->panic = false;
}

/* ---- mesh, layout, dim, input, param, def ----------------------------------------------------------------- */

static AstAxis axis(Parser *p) {
  AstAxis x = {.name = syn_name(p, "the name of a mesh axis")};
  syn_need(p, TOK_ASSIGN, "`=`");
  Token t = syn_need(p, TOK_INT, "the number of devices along the axis");
  x.size = t.ival;
  x.size_loc = t.loc;
  return x;
}

static AstItem *mesh(Parser *p) {
  AstItem *it = begin(p, ITEM_MESH);
  it->name = syn_name(p, "the name of the mesh");
  Token open = syn_need(p, TOK_LPAREN, "`(`");
  do {
    AstAxis x = axis(p);
    vec_push(p->a, it->axes, x);
  } while (syn_take(p, TOK_COMMA));
  syn_close(p, TOK_RPAREN, &open);
  return it;
}

static AstItem *layout(Parser *p) {
  AstItem *it = begin(p, ITEM_LAYOUT);
  Token open;
  bool found = open_brace(p, &open), bad = p->panic;
  p->panic = false;
  while (found && body_goes_on(p)) {
    if (syn_take(p, TOK_NL)) continue;
    AstRule r = {.dim = syn_dim_name(p)};
    syn_need(p, TOK_COLON, "`:`");
    r.axes = syn_axes(p);
    syn_take(p, TOK_COMMA);
    vec_push(p->a, it->rules, r);
    bad |= p->panic;
    if (p->panic) end_line(p);
  }
  if (found) close_brace(p, &open, "a layout");
  p->panic |= bad;
  return it;
}

static AstItem *dim(Parser *p) {
  AstItem *it = begin(p, ITEM_DIM);
  do {
    AstDimDef x = {.name = syn_dim_name(p)};
    syn_need(p, TOK_ASSIGN, "`=`");
    x.value = syn_expr(p);
    vec_push(p->a, it->dims, x);
  } while (syn_take(p, TOK_COMMA));
  return it;
}

static void declared(Parser *p, AstItem *it, const char *what) {
  it->names = syn_names(p, what);
  Diag *g = syn_at(p, TOK_COLON) ? NULL : syn_expected(p, "`:` and a type");
  if (g) diag_help(p->d, g, "write its type behind the name: `%s: f32[B, D]`", it->names.at[0].text);
  syn_take(p, TOK_COLON);
  it->type = syn_type(p);
}

static AstItem *input(Parser *p) {
  AstItem *it = begin(p, ITEM_INPUT);
  declared(p, it, "the name of an input");
  Token t = syn_need(p, TOK_ASSIGN, "`=` and where the data comes from");
  if (t.kind == TOK_ASSIGN) it->value = syn_call(p, "`next_token(\"file\")` or `table(\"file.npy\")`");
  return it;
}

static AstItem *param(Parser *p) {
  AstItem *it = begin(p, ITEM_PARAM);
  declared(p, it, "the name of a parameter");
  syn_need(p, TOK_ASSIGN, "`=` and an initialiser");
  it->value = syn_expr(p);
  if (!syn_take(p, TOK_COMMA)) return it;
  Token t = *syn_token(p);
  it->frozen = t.kind == TOK_NAME && !strcmp(t.text, "frozen");
  if (it->frozen)
    p->at++;
  else
    syn_expected(p, "`frozen`");
  return it;
}

static AstItem *def(Parser *p) {
  AstItem *it = begin(p, ITEM_DEF);
  it->name = syn_name(p, "the name of a function");
  Token open = syn_need(p, TOK_LPAREN, "`(`");
  it->names = syn_names(p, "the name of an argument");
  syn_close(p, TOK_RPAREN, &open);
  syn_need(p, TOK_ASSIGN, "`=`");
  it->value = syn_expr(p);
  return it;
}

/* ---- use, output, metric, train --------------------------------------------------------------------------- */

static AstItem *use(Parser *p) {
  AstItem *it = begin(p, ITEM_USE);
  Token t = syn_need(p, TOK_STRING, "the name of a file in quotes");
  it->path = t.text;
  it->name = (AstName){t.text, t.loc};
  return it;
}

static AstItem *output(Parser *p) {
  AstItem *it = begin(p, ITEM_OUTPUT);
  it->names = syn_names(p, "the name of a tensor");
  return it;
}

static AstItem *metric(Parser *p) {
  AstItem *it = begin(p, ITEM_METRIC);
  it->name = syn_name(p, "the name of a metric");
  syn_need(p, TOK_ASSIGN, "`=`");
  it->value = syn_expr(p);
  return it;
}

static AstSetting setting(Parser *p) {
  AstSetting s = {.key = syn_name(p, "a setting")};
  syn_need(p, TOK_ASSIGN, "`=`");
  s.value = syn_setting(p);
  if (syn_at(p, TOK_NAME) && !strcmp(syn_token(p)->text, "over")) {
    p->at++;
    s.over = syn_axes(p);
  }
  return s;
}

static AstItem *train(Parser *p) {
  AstItem *it = begin(p, ITEM_TRAIN);
  it->name = syn_name(p, "the name of the loss");
  Token open;
  bool found = open_brace(p, &open), bad = p->panic;
  p->panic = false;
  while (found && body_goes_on(p)) {
    if (syn_take(p, TOK_NL)) continue;
    AstSetting s = setting(p);
    if (!p->panic) vec_push(p->a, it->settings, s);
    bad |= p->panic;
    end_line(p);
  }
  if (found) close_brace(p, &open, "a train block");
  p->panic |= bad;
  return it;
}

/* ---- statements ------------------------------------------------------------------------------------------- */

static AstLhsIndex lhs_index(Parser *p) {
  AstLhsIndex x = {.loc = syn_token(p)->loc};
  x.index = syn_expr(p);
  if (syn_take(p, TOK_COLON)) x.range = syn_expr(p);
  x.axes = syn_at_axes(p);
  x.loc = syn_span(p, x.loc);
  return x;
}

static AstLhs lhs(Parser *p) {
  AstLhs l = {.loc = syn_token(p)->loc};
  l.name = syn_name(p, "the name of a tensor");
  Token open = *syn_token(p);
  l.brackets = syn_take(p, TOK_LBRACKET);
  if (l.brackets) {
    do {
      AstLhsIndex x = lhs_index(p);
      vec_push(p->a, l.index, x);
    } while (syn_take(p, TOK_COMMA));
    syn_close(p, TOK_RBRACKET, &open);
  }
  l.loc = syn_span(p, l.loc);
  return l;
}

static void repeat(Parser *p, AstItem *it) {
  it->repeat = true;
  it->repeat_loc = syn_need(p, TOK_REPEAT, "`repeat`").loc;
  Token open = syn_need(p, TOK_LPAREN, "`(`"), count = *syn_token(p);
  if (count.kind == TOK_INT) {
    Diag *g = syn_fail(p, "E0116", count.loc, "a repeat counts over a dim");
    if (g) diag_help(p->d, g, "declare `dim L = %.20s` and write `repeat(L)`", count.text);
  }
  it->repeat_dim = syn_dim_name(p);
  it->repeat_axes = syn_at_axes(p);
  syn_close(p, TOK_RPAREN, &open);
  it->value = syn_call(p, "the call of a block");
}

static void right_side(Parser *p, AstItem *it) {
  if (syn_at(p, TOK_REPEAT))
    repeat(p, it);
  else
    it->value = syn_expr(p);
  Loc word = syn_token(p)->loc;
  if (!syn_take(p, TOK_AS)) return;
  if (it->value->kind != AST_CALL || it->value->parens) syn_fail(p, "E0117", word, "`as` names the call of a block");
  it->as = syn_name(p, "a name for the call");
}

/* Says what is meant to begin a line, where something else does. */
static void no_statement(Parser *p) {
  Token t = *syn_token(p);
  Diag *g = NULL;
  if (tok_goes_on(t.kind)) {
    g = syn_fail(p, "E0118", t.loc, "a line cannot begin with %s", tok_text(t.kind));
    if (g) diag_help(p->d, g, "end the line before it with %s, then it goes on here", tok_text(t.kind));
  } else {
    g = syn_expected(p, "a declaration or a statement");
    if (g && t.kind == TOK_REPEAT) diag_help(p->d, g, "a repeat is a right side: `x = repeat(L) layer(x)`");
    if (g && t.kind == TOK_DIM)
      diag_help(p->d, g, "dims are declared with `dim %s = ...`; tensors begin with a small letter", t.text);
  }
}

/* `parm w: f32[D] = ones`: two names in a row. */
static void misspelt_keyword(Parser *p, Token word) {
  static const char *const keywords[] = {"mesh",  "layout", "dim",    "input",  "param", "def",
                                         "block", "use",    "output", "metric", "train", NULL};
  Diag *g = syn_expected(p, "`=` or `[`");
  const char *near = g ? ast_suggest(word.text, keywords) : NULL;
  if (near) diag_help(p->d, g, "did you mean `%s`?", near);
}

static AstItem *statement(Parser *p) {
  AstItem *it = item_new(p, ITEM_STATEMENT);
  Token word = *syn_token(p), next = *syn_next(p);
  if (word.kind != TOK_NAME) {
    no_statement(p);
    return it;
  }
  do {
    AstLhs l = lhs(p);
    vec_push(p->a, it->lhs, l);
  } while (syn_take(p, TOK_COMMA));
  it->head = syn_token(p)->loc;
  it->add = syn_take(p, TOK_PLUSEQ);
  bool odd = next.kind == TOK_NAME || next.kind == TOK_DIM || next.kind == TOK_STRING || next.kind == TOK_LBRACE;
  if (!it->add && !syn_take(p, TOK_ASSIGN)) {
    if (odd)
      misspelt_keyword(p, word);
    else
      syn_expected(p, "`=`");
  }
  right_side(p, it);
  return it;
}

/* ---- blocks ----------------------------------------------------------------------------------------------- */

static AstParam block_argument(Parser *p) {
  AstParam x = {.name = syn_name(p, "the name of an argument")};
  syn_need(p, TOK_COLON, "`:` and a type");
  x.type = syn_type(p);
  return x;
}

static void block_header(Parser *p, AstItem *it) {
  it->name = syn_name(p, "the name of a block");
  Token open = syn_need(p, TOK_LPAREN, "`(`");
  do {
    AstParam x = block_argument(p);
    vec_push(p->a, it->args, x);
  } while (syn_take(p, TOK_COMMA));
  syn_close(p, TOK_RPAREN, &open);
  syn_need(p, TOK_ARROW, "`->` and the names of the results");
  open = *syn_token(p);
  if (syn_take(p, TOK_LPAREN)) {
    it->names = syn_names(p, "the name of a result");
    syn_close(p, TOK_RPAREN, &open);
  } else {
    AstName n = syn_name(p, "the name of a result");
    vec_push(p->a, it->names, n);
  }
}

static AstItem *item(Parser *p);

static void block_line(Parser *p, AstItem *block) {
  TokKind k = syn_token(p)->kind;
  AstItem *it = item(p);
  if (!p->panic && it->kind != ITEM_PARAM && it->kind != ITEM_STATEMENT) {
    Diag *g = syn_fail(p, "E0119", it->head, "%s cannot stand inside a block", tok_text(k));
    if (g) diag_help(p->d, g, "a block holds its params and statements; declare this before the block");
  }
  if (!p->panic) vec_push(p->a, block->body, it);
  end_line(p);
}

/* A keyword at the left margin that no block may hold shows that the brace before it was forgotten. */
static bool ends_block(const Parser *p) {
  const Token *t = syn_token(p);
  bool outer = tok_is_item(t->kind) && t->kind != TOK_PARAM;
  return t->kind == TOK_RBRACE || t->kind == TOK_EOF || (outer && t->first && t->loc.col == 1);
}

static AstItem *block(Parser *p) {
  AstItem *it = begin(p, ITEM_BLOCK);
  Token open;
  block_header(p, it);
  bool found = open_brace(p, &open), bad = p->panic;
  p->panic = false;
  while (found && !ends_block(p))
    if (!syn_take(p, TOK_NL)) block_line(p, it);
  if (found) close_brace(p, &open, "a block");
  p->panic |= bad;
  return it;
}

/* ---- the file --------------------------------------------------------------------------------------------- */

/* One item, without its line's end. Never NULL; worthless if p->panic. */
static AstItem *item(Parser *p) {
  static AstItem *(*const rule[])(Parser *) = {
      [TOK_MESH] = mesh,     [TOK_LAYOUT] = layout, [TOK_DIMS] = dim,    [TOK_INPUT] = input,
      [TOK_PARAM] = param,   [TOK_DEF] = def,       [TOK_BLOCK] = block, [TOK_USE] = use,
      [TOK_OUTPUT] = output, [TOK_METRIC] = metric, [TOK_TRAIN] = train,
  };
  TokKind k = syn_token(p)->kind;
  AstItem *it;
  if (p->depth >= AST_MAX_DEPTH) { /* blocks inside blocks */
    syn_fail(p, "E0106", syn_token(p)->loc, "this block is nested more than %d deep", AST_MAX_DEPTH);
    return item_new(p, ITEM_STATEMENT);
  }
  p->depth++;
  it = tok_is_item(k) ? rule[k](p) : statement(p);
  p->depth--;
  it->loc = syn_span(p, it->loc);
  return it;
}

static void file_line(Parser *p, Ast *t) {
  if (syn_at(p, TOK_RBRACE) || syn_at(p, TOK_LBRACE)) {
    Token brace = *syn_token(p);
    diag_error(p->d, "E0110", brace.loc, "no block begins or ends here");
    p->at++;
    return;
  }
  AstItem *it = item(p);
  if (!p->panic) vec_push(p->a, t->items, it);
  end_line(p);
}

Ast *ast_parse(Arena *a, Diags *d, int file) {
  Ast *t = NEW(a, Ast);
  Parser p = {.a = a, .d = d, .file = file, .lexed = lex_file(a, d, file), .dummy = NEW(a, AstExpr)};
  p.dummy->depth = 1;
  p.dummy->text = "";
  while (!syn_at(&p, TOK_EOF))
    if (!syn_take(&p, TOK_NL)) file_line(&p, t);
  return t;
}
