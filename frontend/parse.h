/* parse.h: the state that the parser's files share: parse.c (items), parse_parts.c (types, axes, names) and
   parse_expr.c (expressions).

   On an error the parser reports, sets `panic` and jumps to the end of the statement. There no token fits any rule, so
   every function falls through with harmless results and without a second report; whoever called drops the item and
   clears `panic`. So no rule has to look for the failure of another. */
#ifndef DTC_PARSE_H
#define DTC_PARSE_H

#include "ast.h"
#include "lex.h"

typedef struct {
  Arena *a;
  Diags *d;
  int file;
  Lexed lexed;
  int at; /* in lexed.tokens */
  bool panic;
  bool in_setting; /* of a train block: words, strings and lists are values */
  int depth;       /* of nested rules */
  AstExpr *dummy;  /* stands for what could not be read */
} Parser;

/* tokens */
const Token *parse_token(const Parser *p);
const Token *parse_next(const Parser *p); /* the one after it */
bool parse_at(const Parser *p, TokKind k);
bool parse_take(Parser *p, TokKind k);                     /* if it is there */
Token parse_need(Parser *p, TokKind k, const char *what);  /* an error if it is not: "expected WHAT" */
void parse_close(Parser *p, TokKind k, const Token *open); /* the bracket that closes *open */
Loc parse_span(const Parser *p, Loc start);                /* from start to the last token taken */
/* Reports unless panicking, then panics. NULL if nothing was reported. */
Diag *parse_fail(Parser *p, const char *code, Loc loc, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
Diag *parse_expected(Parser *p, const char *what);

/* parts */
AstName parse_name(Parser *p, const char *what); /* small first letter */
AstName parse_dim_name(Parser *p);
AstNames parse_names(Parser *p, const char *what);
AstAxes parse_axes(Parser *p);
AstAxes parse_at_axes(Parser *p); /* [ "@" axes ] */
AstType parse_type(Parser *p);

/* expressions */
AstExpr *parse_expr(Parser *p);
AstExpr *parse_call(Parser *p, const char *what);
AstExpr *parse_setting(Parser *p);

#endif
