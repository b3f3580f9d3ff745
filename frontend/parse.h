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
const Token *syn_token(const Parser *p);
const Token *syn_next(const Parser *p); /* the one after it */
bool syn_at(const Parser *p, TokKind k);
bool syn_take(Parser *p, TokKind k);                     /* if it is there */
Token syn_need(Parser *p, TokKind k, const char *what);  /* an error if it is not: "expected WHAT" */
void syn_close(Parser *p, TokKind k, const Token *open); /* the bracket that closes *open */
Loc syn_span(const Parser *p, Loc start);                /* from start to the last token taken */
/* Reports unless panicking, then panics. NULL if nothing was reported. */
Diag *syn_fail(Parser *p, const char *code, Loc loc, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
Diag *syn_expected(Parser *p, const char *what);

/* parts */
AstName syn_name(Parser *p, const char *what); /* small first letter */
AstName syn_dim_name(Parser *p);
AstNames syn_names(Parser *p, const char *what);
AstAxes syn_axes(Parser *p);
AstAxes syn_at_axes(Parser *p); /* [ "@" axes ] */
AstType syn_type(Parser *p);

/* expressions */
AstExpr *syn_expr(Parser *p);
AstExpr *syn_call(Parser *p, const char *what);
AstExpr *syn_setting(Parser *p);

#endif
