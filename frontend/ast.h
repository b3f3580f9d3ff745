/* ast.h: the syntax tree of a .dt file, between parse.c and the checks.

   Nodes live in an arena and carry the exact span they were written at. A node is one flat struct with a kind;
   its comment says which fields a kind uses, the others are zero. The tree says only what was written: which name
   is a dim, an index or a tensor is decided by the checks.

     y[b, t @ model, d] = x[b,t,d] + sum[f](m[b,t,f] * w2[f,d])
     ITEM_STATEMENT lhs: y, index (b) (t @ model) (d);  value: BINARY + (READ x) (REDUCE sum, bind f, arg BINARY *)

   Depth is bounded: no expression is deeper than AST_MAX_DEPTH nodes, so recursion over a tree is safe. */
#ifndef DTC_AST_H
#define DTC_AST_H

#include "ir/diag.h"

enum { AST_MAX_DEPTH = 400 };

typedef struct AstExpr AstExpr;
typedef struct AstItem AstItem;

typedef struct {
  const char *text; /* NULL: not written */
  Loc loc;
} AstName;
typedef VEC(AstName) AstNames;

/* `@ data`, `@ (pod, data)`, `@ none`. */
typedef struct {
  bool present;
  bool none;
  Loc loc;        /* what stands behind the @ */
  AstNames names; /* major to minor */
} AstAxes;

/* ---- expressions --------------------------------------------------------------------------------------- */

/* An index that a reduction or normaliser binds: `p: 2`, `d`. */
typedef struct {
  AstName name;
  AstExpr *range; /* or NULL */
} AstBind;

/* An argument of a call: `x`, `eps = 1e-6`, `each c`, `"file"`. */
typedef struct {
  AstName name; /* of a named argument, else text is NULL */
  bool each;
  AstExpr *value;
  Loc loc; /* whole argument */
} AstArg;

typedef enum {
  AST_INT,    /* ival */
  AST_FLOAT,  /* fval */
  AST_STRING, /* name: its text without quotes; only as an argument of a call */
  AST_NAME,   /* name: a dim (is_dim), an index, a tensor, `inf`, `pi`, or a word of a setting (also `1f1b`) */
  AST_READ,   /* name[index...], otherwise: what stands behind its `else`, or NULL */
  AST_CALL,   /* name(args...): a scalar function, cast, def, block, initialiser, source of data, optimizer, ... */
  AST_REDUCE, /* [micro] name[binds...](args...): sum, mean, softmax, xent, topk, ... */
  AST_UNARY,  /* op: AST_NEG or AST_NOT; left */
  AST_BINARY, /* op; left, right */
  AST_TUPLE   /* (args...): only in settings: betas = (0.9, 0.95), decay = (w1, w2) */
} AstExprKind;

typedef enum {
  AST_NEG,
  AST_NOT,
  AST_ADD,
  AST_SUB,
  AST_MUL,
  AST_DIV,
  AST_FLOORDIV,
  AST_MOD,
  AST_POW,
  AST_LT,
  AST_LE,
  AST_EQ,
  AST_NE,
  AST_GE,
  AST_GT,
  AST_AND,
  AST_OR
} AstOp;
const char *ast_op_text(AstOp op); /* "-", "not", "+", ... */

struct AstExpr {
  AstExprKind kind;
  Loc loc;     /* the whole expression (without parentheses around it) */
  Loc head;    /* the name or the operator */
  bool parens; /* it stood in parentheses */
  int depth;   /* 1 for a leaf */
  const char *name;
  bool is_dim; /* AST_NAME: begins with a capital letter */
  int64_t ival;
  double fval;
  const char *text; /* INT, FLOAT: as written */
  AstOp op;
  AstExpr *left, *right;
  VEC(AstExpr *) index;
  AstExpr *otherwise;
  bool micro;
  VEC(AstBind) binds;
  VEC(AstArg) args;
};

/* ---- types --------------------------------------------------------------------------------------------- */

typedef struct {
  AstExpr *size; /* a dim's name, or an expression of dims and literals */
  AstAxes axes;
} AstTypeDim;

typedef struct {
  AstName dtype; /* any word: the checks know which exist */
  bool brackets; /* `f32` has none */
  VEC(AstTypeDim) dims;
  Loc loc;
} AstType;

/* ---- items --------------------------------------------------------------------------------------------- */

typedef struct {
  AstName name;
  int64_t size;
  Loc size_loc;
} AstAxis; /* of the mesh */

typedef struct {
  AstName name;
  AstExpr *value;
} AstDimDef;

typedef struct {
  AstName dim;
  AstAxes axes;
} AstRule; /* of a layout */

typedef struct {
  AstName name;
  AstType type;
} AstParam; /* argument of a block */

/* `clip = 1.0`, `optimizer = adamw(lr = 2e-3)`, `decay = (a, b)`, `zero = 1 over (pod, data)`, `pipeline = 1f1b`. */
typedef struct {
  AstName key;
  AstExpr *value;
  AstAxes over; /* what stands behind `over` */
} AstSetting;

/* `i`, `i: S`, `i: S @ seq`, with += also `e[n]: E`. */
typedef struct {
  AstExpr *index;
  AstExpr *range; /* or NULL */
  AstAxes axes;
  Loc loc;
} AstLhsIndex;

typedef struct {
  AstName name;
  bool brackets; /* `x = ...` has none: a scalar or a whole tensor */
  VEC(AstLhsIndex) index;
  Loc loc;
} AstLhs;

typedef enum {
  ITEM_MESH,     /* name, axes */
  ITEM_LAYOUT,   /* rules */
  ITEM_DIM,      /* dims */
  ITEM_INPUT,    /* names, type, value: a call */
  ITEM_PARAM,    /* names, type, value, frozen */
  ITEM_DEF,      /* name, names: arguments, value */
  ITEM_BLOCK,    /* name, args, names: results, body: only ITEM_PARAM and ITEM_STATEMENT */
  ITEM_USE,      /* path; what it brings (dims, defs, blocks) stands directly before it in the list of items */
  ITEM_OUTPUT,   /* names */
  ITEM_METRIC,   /* name, value */
  ITEM_TRAIN,    /* name: the loss, settings */
  ITEM_STATEMENT /* lhs, add, value; repeat, as */
} AstItemKind;

struct AstItem {
  AstItemKind kind;
  Loc loc;  /* the whole item */
  Loc head; /* its keyword; of a statement its = or += */
  AstName name;
  AstNames names;
  AstType type;
  AstExpr *value;
  bool frozen;
  VEC(AstAxis) axes;
  VEC(AstRule) rules;
  VEC(AstDimDef) dims;
  VEC(AstParam) args;
  VEC(AstItem *) body;
  VEC(AstSetting) settings;
  const char *path;
  VEC(AstLhs) lhs;
  bool add;    /* += */
  bool repeat; /* = repeat(repeat_dim @ repeat_axes) value, where value is an AST_CALL */
  AstName repeat_dim;
  AstAxes repeat_axes;
  Loc repeat_loc; /* the word repeat */
  AstName as;     /* `... as stem`: value is an AST_CALL; text NULL if not written */
};

typedef struct {
  VEC(AstItem *) items; /* in order; of all files, see ITEM_USE */
} Ast;

/* parse.c: one file. Never NULL; after errors (in d) the items that could be read. */
Ast *ast_parse(Arena *a, Diags *d, int file);
/* use.c: a file with all that it uses, as one tree. `path` names the file (its folder is where `use` looks), "-"
   for standard input. A file that was used before brings nothing again. Never NULL. */
Ast *ast_load(Arena *a, Diags *d, int file, const char *path);
/* ast.c: an expression as it would be written, e.g. for messages; parentheses only where needed. */
const char *ast_expr_text(Arena *a, const AstExpr *e);
const char *ast_print(Arena *a, const Ast *t);

/* suggest.c: the word of `words` (NULL-terminated) nearest to `word`, if near enough to be a slip, else NULL. */
const char *ast_suggest(const char *word, const char *const *words);
/* The smallest span that covers both (x before y, same file). Spans may run over line ends. */
Loc loc_join(const Diags *d, Loc x, Loc y);

#endif
