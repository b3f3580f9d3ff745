/* print.h: what print.c (ops and the module) and print_body.c (names, numbers, types, bodies) share. Private to ir/. */
#ifndef DTC_IR_PRINT_H
#define DTC_IR_PRINT_H

#include "text.h"

typedef struct {
  const Module *m;
  Arena *a;
  Str s;
} Printer;

#define put(p, ...) str_printf((p)->a, &(p)->s, __VA_ARGS__)
#define puts_(p, text) str_put((p)->a, &(p)->s, (text))

static inline bool in_table(int i, int n) { return i >= 0 && i < n; }
#define WORD(table, i) (in_table((int)(i), COUNT(table)) ? (table)[i] : "?")

static inline ValueId operand(const Op *op, int i) { return in_table(i, op->nin) ? op->in[i] : -1; }

static inline bool all_chars(const char *s, bool (*ok)(char)) {
  for (; *s; s++)
    if (!ok(*s)) return false;
  return true;
}

void irw_int(Printer *p, int64_t v);
void irw_escaped(Printer *p, const char *s, bool quotes); /* what a string or a reason may not hold as it is */
void irw_quoted(Printer *p, const char *s);
void irw_name(Printer *p, const char *s); /* an index, a dim, an axis */
void irw_value(Printer *p, ValueId v);
void irw_values(Printer *p, const ValueId *v, int n);
void irw_real(Printer *p, double v, bool single); /* the fewest digits that are exact */
void irw_parts(Printer *p, const AxisPart *part, int n);
void irw_split(Printer *p, const Split *s);
void irw_extent(Printer *p, const char *name, int64_t size, const Split *s); /* B=8@data */
void irw_type(Printer *p, const Type *t);
void irw_index_name(Printer *p, const Op *op, int i);
void irw_index(Printer *p, const Op *op, const IExpr *x);
void irw_indices(Printer *p, const Op *op, IExpr *const *ix, int n);
void irw_expr(Printer *p, const Op *op, const Expr *x, int prec); /* in brackets if it binds less than prec */

#endif
