/* parser.h: the parts of the IR's parser: parse_lex.c (tokens), parse_type.c (types and lists of indices),
   parse_body.c (index expressions and bodies), parse_op.c (ops), parse.c (regions and the module). Private to ir/. */
#ifndef DTC_IR_PARSER_H
#define DTC_IR_PARSER_H

#include "text.h"

/* Limits on what hostile text may ask for. Nodes: of one op's expressions together (the tree of a long sum is
   as deep as it is long, and others walk it recursively). */
enum { MAX_DEPTH = 100, MAX_NODES = 4000, MAX_OPERANDS = 256, MAX_DEVICES = 1 << 20, MAX_TEXT_OPERANDS = 4096 };
#define MAX_SIZE ((int64_t)1 << 40)

typedef enum { TOK_END, TOK_NAME, TOK_STRING, TOK_VALUE, TOK_NUMBER, TOK_PUNCT, TOK_PLACE } TokKind;

typedef struct {
  TokKind kind;
  Loc loc;
  bool spaced;      /* blank space before it */
  const char *text; /* NAME, STRING, VALUE: the name itself; PUNCT: the characters; PLACE: what follows the `;` */
  bool real;        /* NUMBER: written with . or e, or inf or nan */
  char suffix;      /* NUMBER: 0 or one of LITERAL_SUFFIX */
  double number;
  uint64_t whole; /* NUMBER that is not real */
} Tok;

typedef struct {
  Arena *a;
  Diags *d;
  Module *m;
  int file;
  const char *at, *end, *line_start;
  int line;
  Tok tok; /* the next one */
  bool failed;
  int depth, nodes;
  Op *op; /* whose expressions are being parsed */
} Parser;

/* parse_lex.c. The first fault is reported and ends the text, so that every loop ends. */
void irp_next(Parser *p);
void irp_fail(Parser *p, const char *code, Loc loc, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void irp_expected(Parser *p, const char *what);
bool irp_at_word(const Parser *p, const char *word);
bool irp_at(const Parser *p, const char *punct);
bool irp_take_word(Parser *p, const char *word);
bool irp_take(Parser *p, const char *punct);
void irp_need_word(Parser *p, const char *word);
void irp_need(Parser *p, const char *punct);
const char *irp_name(Parser *p, const char *what);   /* bare or quoted */
const char *irp_string(Parser *p, const char *what); /* quoted */
const char *irp_value_name(Parser *p);
ValueId irp_value(Parser *p); /* one that is defined; 0 after a fault if there is none */
int64_t irp_int(Parser *p, int64_t min, int64_t max, const char *what);
double irp_real(Parser *p, const char *what);
int irp_one_of(Parser *p, const char *const *words, int n, const char *what);
void irp_place(Parser *p, Loc *loc, const char **why); /* the rest of the line behind `;`, if there is one */

/* parse_type.c */
const char *irp_extent(Parser *p, int64_t *size, Split *s); /* B=8@data; returns the name or NULL */
Type irp_type(Parser *p);
void irp_space(Parser *p, Space *s); /* [d: D=128, ...], appended */
int irp_find_index(const Space *s, const char *name);
void irp_add_index(Parser *p, Space *s, Index i, Loc loc);

/* parse_body.c */
IExpr *irp_index(Parser *p);
int irp_indices(Parser *p, IExpr **ix, int max); /* [i, j + 1]; returns how many */
Expr *irp_expr(Parser *p);
int irp_operand(Parser *p, ValueId v, Loc loc); /* appends it to p->op's operands unless it is one */

/* parse_op.c: everything of an op behind `=`, except a repeat's body, and the effects */
typedef struct {
  const char *name;
  Loc loc;
  Type type;
  bool indexed; /* [...] stood behind the name */
  int n;
  const char *index[MAX_RANK];
} Result;
typedef VEC(Result) Results;
void irp_results(Parser *p, Results *r);
void irp_op(Parser *p, Op *op, const Results *r);
void irp_suffixes(Parser *p, Op *op);

#endif
