/* text.h: what printing and parsing share, so that they cannot disagree. Private to ir/. */
#ifndef DTC_IR_TEXT_H
#define DTC_IR_TEXT_H

#include "ir/ir.h"

static const char *const STAGE_TEXT[] = {"annotated", "sharded", "collected", "local", "scheduled"};
static const char *const REDUCE_TEXT[] = {"none", "sum", "max", "min", "prod"};
static const char *const INIT_TEXT[] = {"zeros", "ones", "normal", "uniform", "const"};
static const int INIT_NARGS[] = {0, 0, 1, 2, 1};
static const char *const TAP_TEXT[] = {"loss", "metric", "output", "grad", "grad_norm", "lr"};
static const bool TAP_NAMED[] = {false, true, true, true, false, false};
static const char *const READ_TEXT[] = {"q", "k", "v", "a", "lse", "da"};
/* What follows the digits of a literal: f32, bf16, f16, f64, i32, i64. */
static const char *const LITERAL_SUFFIX[] = {"", "b", "h", "d", "", "l"};

#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))

static inline bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
static inline bool is_name_char(char c) { return is_name_start(c) || is_digit(c) || c == '.'; }
static inline bool is_file_char(char c) { return is_name_char(c) || c == '/' || c == '-' || c == '+'; }

typedef struct {
  const char *name;
  int nargs, prec;
} ExText;
static const ExText EX_TEXT[] = {
#define EX(K, text, n, prec) {text, n, prec},
#include "ir/exprs.def"
};

/* print.c: which indices of the space stand behind the name of a result, in order; returns how many. */
int text_result_indices(const Op *op, int result, int *index);
const char *text_index(const Module *m, const Op *op, const IExpr *x, Arena *a);
const char *text_parts(const Module *m, const AxisPart *part, int n, Arena *a);

#endif
