/* emit.h: what the files that print C and CUDA share. Code is printed without indentation, line by line; emit.c indents it by
   its braces at the end. Identifiers come from the user's names made safe, so no text of the user's reaches the file
   but in that form, in quoted strings (emit_string) and in comments made safe (emit_comment). */
#ifndef DTC_EMIT_H
#define DTC_EMIT_H

#include "cg.h"

typedef struct {
  struct TakenName *all;
} Names; /* identifiers that are taken: emit_names.c */
typedef VEC(const char *) NameList;

typedef struct Dialect Dialect;
typedef struct Rows Rows; /* emit_rows.h */
typedef struct {
  const Module *m;
  Arena *a;
  const Dialect *d; /* C or CUDA */
  Users *users;
  Place *place;
  Names global;           /* identifiers taken at file level */
  Names *function;        /* and in forward, backward or update, whichever is being printed */
  Str kernels;            /* a function per group */
  VEC(const char *) dims; /* initialisers of the split dims seen so far */
  VEC(const char *) dim_names;
  VEC(const char *) layouts; /* initialisers of the layouts that host code names */
  VEC(const char *) layout_names;
  VEC(const Op *) collectives, taps;
  NameList collective_names, tap_names; /* of their numbers, an enum */
  const char **pointer;                 /* by ValueId: its variable in the function being printed, or NULL */
  bool uses_random;
  char *infinite; /* by ValueId: emit_finite.c */
} Emit;

/* ---- names: emit_names.c ---------------------------------------------------------------------------------------- */
const char *emit_name(Emit *e, Names *taken, const char *wish);       /* a C identifier that is not taken yet */
const char *emit_fresh_name(Emit *e, Names *taken, const char *wish); /* nor ever was: of a parameter, which is seen everywhere */
void emit_take(Emit *e, Names *taken, const char *name);              /* this very name */
bool emit_is_name(const Names *taken, const char *name);              /* of this scope, now or before */
void emit_release(Names *taken, const char *name);                    /* it may be used again */

void emit_string(Emit *e, Str *s, const char *text); /* as a C string literal */
const char *emit_ctype(DType d);
const char *emit_where(Emit *e, const Op *op); /* "charlm.dt:21", safe in a comment and in quotes, or "" */
const char *emit_file(const Emit *e, const Op *op);
void emit_digits(Emit *e, Str *s, const Split *split);           /* {{stride, size}, ...} */
void emit_layout(Emit *e, Str *s, const Type *t);                /* initialiser of a dtrt_Layout; zeros at the end are left out */
const char *emit_dim(Emit *e, int64_t size, const Split *split); /* the table of a split dim */
const char *emit_layout_table(Emit *e, const Type *t, const char *wish); /* a layout with a name */

/* ---- a kernel being printed: emit_kernel.c ------------------------------------------------------------------- */

/* This rank's part of an index: constant if it is whole or even, else asked for at the kernel's head. */
typedef struct {
  int64_t size;
  Split split;
  const char *name, *count; /* variables: its first element and how many; NULL if it is whole */
  bool used;
} Range;

typedef struct {
  const char *name;
  Place place;
  ValueId value;
  DType dtype;
  bool written;
} Param;

typedef struct {
  Emit *e;
  const char *name;
  Names local;
  VEC(Param) param;
  VEC(Range *) range;
  Str body;             /* C: the function's; CUDA: of the kernel that is being printed, or of the host's function if on_host */
  Str host;             /* CUDA: what the host's function does up to there */
  Str device;           /* CUDA: the kernels that are complete, */
  int nparts;           /* and how many */
  bool on_host;         /* calls products instead of running on the device itself */
  bool sees;            /* has a constant `see`: whether to look at values that stay inside it */
  bool needs_context;   /* the function takes cx */
  const char *piece[4]; /* a single call, printed where the kernel would be called, with three pointers between these */
} Kernel;

Kernel *emit_kernel(Emit *e, const Op *op, const char *wish);
/* What was printed since the last one is one launch of so many blocks and threads. In C nothing ends here: a function
   is one piece. */
void emit_launch(Kernel *k, const char *blocks, int threads);
void emit_zero(Kernel *k, const char *pointer, int64_t bytes); /* of memory, before the launch that is being printed */
bool emit_uses(const char *text, const char *name);            /* does that identifier stand in it? */
/* Prints the finished function and returns the call's parameters in k->param. In CUDA what no emit_launch has ended is
   run by one thread. */
void emit_kernel_end(Kernel *k, const Op *op, const char *what);
const char *emit_pointer(Kernel *k, ValueId v, bool written);
Range *emit_range(Kernel *k, int64_t size, const Split *split, const char *wish);
const char *emit_lo(Kernel *k, Range *r); /* "0" or the variable */
const char *emit_n(Kernel *k, Range *r);  /* a number or the variable */
void emit_ranges(Kernel *k, Str *out);    /* asks for those that are used */

/* ---- dialects: emit_c.c, emit_cuda.c ------------------------------------------------------------------------------

   What C and CUDA say differently. Texts of statements end in ";\n". */
struct Dialect {
  const char *restricted;          /* of a pointer to what no other one points to */
  void (*head)(Emit *e, Str *out); /* includes */
  /* A pointer to `bytes` bytes of the arena; type NULL: to no type. */
  const char *(*address)(Emit *e, const char *type, const char *offset, int64_t bytes);
  const char *(*pointers)(Emit *e, const char *list, bool written); /* an argument: an array of pointers */
  const char *(*step)(Emit *e, const Op *op, const char *call);     /* a call of a step, with its line of the .dt */
  const char *(*copy)(Emit *e, const char *to, const char *from, int64_t bytes);
  const char *(*put)(Emit *e, const char *to, const char *counter); /* a counter's value */
  void (*zero)(Kernel *k, const char *pointer, int64_t bytes);
  void (*launch)(Kernel *k, const char *blocks, int threads);
  void (*rows)(Rows *r);         /* a group's loops, with their statements */
  void (*kernel_end)(Kernel *k); /* prints it */
  /* A coordinate by value: the variable `at`, which must be in [0, limit); `rest`: the name of the value and its line. */
  const char *(*coordinate)(Emit *e, const char *at, const char *value, int64_t limit, const char *rest);
};
extern const Dialect emit_dialect_c, emit_dialect_cuda;

/* ---- expressions: emit_expr.c ----------------------------------------------------------------------------------- */

typedef struct {
  const char *name; /* local coordinate; NULL: absorbed by a merged loop */
  Range *range;
  int level; /* loop depth at which it is known */
} Var;

/* A coordinate by value that was read into a variable before the statement. */
typedef struct {
  const IExpr *x;
  const char *global, *local; /* its value; the same as a coordinate of the rank's part of the operand */
  const char *here;           /* condition under which this rank has that element, or NULL */
} Hoisted;

typedef struct Scope Scope;
struct Scope {
  Kernel *k;
  const Op *op;
  Var var[MAX_INDEX];
  int depth; /* of the statement */
  Str *pre;  /* [depth + 1]: statements to put at each depth; NULL: all go to k->body */
  Str *now;  /* statements right before this one */
  /* A value that is not in memory: its C expression at these coordinates, or NULL to read it from memory. */
  const char *(*value)(void *cx, Scope *s, ValueId v, int n, IExpr *const *ix);
  int (*made_at)(void *cx, ValueId v); /* depth at which such a value is known */
  void *cx;
  VEC(Hoisted) hoisted;
};

/* Reads the body's coordinates by value into variables, checking that they are in their dims. */
void emit_hoist(Scope *s);
void emit_hoist_dim(Scope *s, const IExpr *x, const Type *t, int d, bool guarded); /* one of them, of dim d of t */
const char *emit_expr(Scope *s, const Expr *x);
const char *emit_inside(Scope *s, const Expr *read); /* when a guarded read does not take its `else`; NULL: always */
const char *emit_index(Scope *s, const IExpr *x);    /* its global value */
/* The offset of coordinates `ix` in a buffer of type t. */
const char *emit_offset(Scope *s, const Type *t, int n, IExpr *const *ix);
const char *emit_own_offset(Scope *s, const Type *t,
                            int first); /* of the op's own result, at its indices; dims before `first` left out */
const char *emit_literal(Emit *e, DType d, double v, int64_t i);
const char *emit_sum(Emit *e, const char *a, const char *b); /* a + b, where either may be "0" */

/* ---- values that must be finite: emit_finite.c ----------------------------------------------------------------- */
bool emit_watched(Emit *e, const Op *op, int out);                /* is it looked at when the loss is not finite? */
const char *emit_watch(Emit *e, const Op *op, const char *place); /* in a kernel that sees: looks at one element */

/* ---- one function per kind of op ------------------------------------------------------------------------------- */
/* A kernel whose scope has a variable per index, all known at depth 0; statements go to the kernel's body. The names
   `reserved` (with spaces between) stay free for the caller. */
Kernel *emit_simple(Emit *e, const Op *op, const char *reserved, Scope *s);
void emit_for(Scope *s, int index); /* opens the loop over an index */
void emit_close(Kernel *k, int n);  /* closes n loops */
Kernel *emit_rows(Emit *e, const Step *s);
Kernel *emit_product(Emit *e, const Op *op);
Kernel *emit_scatter(Emit *e, const Op *op);
Kernel *emit_argmax(Emit *e, const Op *op);
Kernel *emit_topk(Emit *e, const Op *op);
Kernel *emit_scan(Emit *e, const Op *op);
Kernel *emit_random(Emit *e, const Op *op);
Kernel *emit_slice(Emit *e, const Op *op);
Kernel *emit_attention(Emit *e, const Op *op);
Kernel *emit_attention_grad(Emit *e, const Op *op);

void emit_functions(Emit *e, Str *out, bool has[3]);     /* forward, backward, update: which are not empty */
void emit_tables(Emit *e, Str *out);                     /* leaves, settings, collectives, taps */
void emit_program(Emit *e, Str *out, const bool has[3]); /* dtrt_Program and main */

#endif
