/* lex.h: tokens of a .dt file (lex.c), with the line ends that count (lines.c). */
#ifndef DTC_LEX_H
#define DTC_LEX_H

#include "ir/diag.h"

/* Columns: enumerator, text, what it is: K a keyword that begins an item, W another reserved word, O an operator or
   sign after which a line goes on, P a sign after which it may end. */
#define TOKENS(T)                                                                                                                \
  T(MESH, "mesh", 'K')                                                                                                           \
  T(LAYOUT, "layout", 'K')                                                                                                       \
  T(DIMS, "dim", 'K')                                                                                                            \
  T(INPUT, "input", 'K')                                                                                                         \
  T(PARAM, "param", 'K')                                                                                                         \
  T(DEF, "def", 'K')                                                                                                             \
  T(BLOCK, "block", 'K')                                                                                                         \
  T(USE, "use", 'K')                                                                                                             \
  T(OUTPUT, "output", 'K')                                                                                                       \
  T(METRIC, "metric", 'K')                                                                                                       \
  T(TRAIN, "train", 'K')                                                                                                         \
  T(REPEAT, "repeat", 'W')                                                                                                       \
  T(AS, "as", 'W')                                                                                                               \
  T(EACH, "each", 'W')                                                                                                           \
  T(MICRO, "micro", 'W')                                                                                                         \
  T(NONE, "none", 'W')                                                                                                           \
  T(ELSE, "else", 'O')                                                                                                           \
  T(AND, "and", 'O')                                                                                                             \
  T(OR, "or", 'O')                                                                                                               \
  T(NOT, "not", 'O')                                                                                                             \
  T(ARROW, "->", 'O')                                                                                                            \
  T(PLUSEQ, "+=", 'O')                                                                                                           \
  T(POW, "**", 'O')                                                                                                              \
  T(FLOORDIV, "//", 'O')                                                                                                         \
  T(LE, "<=", 'O')                                                                                                               \
  T(GE, ">=", 'O')                                                                                                               \
  T(EQ, "==", 'O')                                                                                                               \
  T(NE, "!=", 'O')                                                                                                               \
  T(LT, "<", 'O')                                                                                                                \
  T(GT, ">", 'O')                                                                                                                \
  T(ASSIGN, "=", 'O')                                                                                                            \
  T(PLUS, "+", 'O')                                                                                                              \
  T(MINUS, "-", 'O')                                                                                                             \
  T(STAR, "*", 'O')                                                                                                              \
  T(SLASH, "/", 'O')                                                                                                             \
  T(PERCENT, "%", 'O')                                                                                                           \
  T(COMMA, ",", 'O')                                                                                                             \
  T(COLON, ":", 'O')                                                                                                             \
  T(AT, "@", 'O')                                                                                                                \
  T(LPAREN, "(", 'P')                                                                                                            \
  T(RPAREN, ")", 'P')                                                                                                            \
  T(LBRACKET, "[", 'P')                                                                                                          \
  T(RBRACKET, "]", 'P')                                                                                                          \
  T(LBRACE, "{", 'P')                                                                                                            \
  T(RBRACE, "}", 'P')

typedef enum {
#define T(K, text, what) TOK_##K,
  TOKENS(T)
#undef T
      TOK_NAME, /* begins with a small letter or _ */
  TOK_DIM,      /* begins with a capital letter */
  TOK_INT,
  TOK_FLOAT,
  TOK_WORD, /* begins with a digit: 1f1b */
  TOK_STRING,
  TOK_NL,  /* the end of a line, where it counts */
  TOK_BAD, /* an error was reported here */
  TOK_EOF,
  TOK_NKINDS
} TokKind;

typedef struct {
  TokKind kind;
  Loc loc;
  bool first;       /* of its line */
  const char *text; /* NAME, DIM, WORD, INT, FLOAT: as written; STRING: without quotes */
  int64_t ival;
  double fval;
} Token;
typedef VEC(Token) Tokens;

typedef struct {
  Tokens tokens;      /* ends with NL, EOF */
  VEC(size_t) starts; /* offset of line i + 1 */
} Lexed;

Lexed lex_file(Arena *a, Diags *d, int file);
const char *tok_text(TokKind k); /* "`mesh`", "a name", "the end of the line" */
bool tok_is_item(TokKind k);     /* begins an item */
bool tok_goes_on(TokKind k);     /* a line that ends in it goes on */
bool tok_is_word(TokKind k);     /* a reserved word */
/* lines.c: tokens of all lines -> the same with NL where a line's end counts and BAD where a bracket stays open. */
Tokens lex_lines(Arena *a, Diags *d, const Tokens *raw);

#endif
