/* lower.h: from the syntax tree to annotated IR; what the files scope.c, sizes.c, types.c, fragment.c, indices.c, reads.c,
   scalar.c, values.c, sums.c, reduce.c, expand.c, statement.c, blocks.c, repeat.c, leaves.c, train.c and module.c share.

   Checking and lowering are one walk, because what a name ranges over is known only from the values before it. An
   expression becomes a Frag: a piece of a scalar body over the statement's indices, not yet an op. What has to be a
   value of its own (the operand of a reduction, a read by value, ...) is made one by value_of, which turns a fragment
   into an op over just the indices that it uses:

     s[b,t] = sum[k](q[b,k] * w[k,t]) / sqrt(K)     Frag %s.sum[b,t] / 8.0 ; op %s.sum[b,t] = nest sum[k] %q * %w

   In a fragment an operand is a ValueId and an index a position in Stmt.idx; `nest` renumbers both. */
#ifndef DTC_LOWER_H
#define DTC_LOWER_H

#include "ast.h"
#include "frontend/frontend.h"

/* ---- what names stand for: scope.c ----------------------------------------------------------------------- */

/* A dim's size with the name it agrees by; NULL: a literal size, which agrees with any dim of that size. */
typedef struct {
  const char *name;
  int64_t size;
} Extent;

/* How far a tensor is still a number without a type: whole numbers, or reals in f64, made of only dims, indices and
   literals. They take the type that they meet. */
typedef enum { TYPED, EXACT_INT, EXACT_REAL } Exactness;

typedef struct {
  ValueId v;
  DType dtype;
  Exactness exact;
  int rank;
  Extent dim[MAX_RANK];
  bool bad; /* an error was reported where it was made; uses are silent */
} TensorRef;

typedef enum { SYM_DIM, SYM_TENSOR, SYM_DEF, SYM_BLOCK } SymKind;

typedef struct Scope Scope;
typedef struct Symbol {
  SymKind kind;
  const char *name;
  Loc loc;
  bool declared;     /* TENSOR: an input, a parameter or an argument, not a statement's result */
  bool bad;          /* DIM: no size is known. DEF: its body was faulted */
  int64_t size;      /* DIM */
  bool own;          /* DIM: of a block's signature, bound at the call */
  const char *outer; /* DIM, own: the caller's name of it, or NULL */
  Loc bound;         /* DIM, own: the argument that bound it */
  TensorRef tensor;
  const AstItem *item;         /* DEF, BLOCK */
  bool busy;                   /* DEF, BLOCK: being expanded: a second time would never end */
  bool used;                   /* BLOCK: some call of it was lowered */
  const struct Symbol *hidden; /* what it replaces */
} Symbol;

/* ---- the walk -------------------------------------------------------------------------------------------- */

typedef struct Frame Frame;

typedef struct {
  AstName dim;
  const AstAxes *axes;
} LayoutRule;

typedef struct {
  Arena *a;
  Diags *d;
  Module *m;
  const FrontendOptions *o;
  Scope *file; /* dims, defs, blocks and tensors of the file */
  Loc mesh_loc;
  VEC(LayoutRule) rules;
  VEC(bool) pure;                     /* per value: made of only dims, indices and literals */
  VEC(Op *) origin;                   /* per value: the input that it is a copy of, or NULL */
  VEC(int) operand;                   /* per value: its operand number in the op being made, -1 outside of `nest` */
  Scope *stems;                       /* names of calls so far */
  VEC(const char *) metrics, outputs; /* so far */
  int64_t fuel;                       /* nodes that may still be lowered */
  bool spent;                         /* an error said that it ran out */
  int faults;                         /* reported so far, also those that were reported before */
  int nesting;                        /* of lower_expr and of defs */
  bool lossy;                         /* lines that could not be read are missing: names may be unknown for that reason alone */
  bool dry;                           /* a block that nobody calls is checked: its own dims have no real size */
  const AstItem *train;
} Lower;

/* The region that ops go to, with what its repeat was given so far. */
struct Frame {
  Frame *outer; /* NULL: the program */
  Region *region;
  int64_t trip;
  const char *trip_dim;
  ValueId counter, step; /* step: -1 until somebody needs it */
  VEC(ValueId) invariant_in, invariant_arg, stacked_in, stacked_arg;
};

/* Where a statement stands. */
typedef struct {
  Lower *lw;
  Frame *fr;
  Scope *scope;
  const char *path;            /* of block calls, for names of parameters: "", "layer.attn." */
  const char *site;            /* the same for random numbers, calls told apart by their place */
  int depth;                   /* of block calls */
  const AstItem *const *items; /* the list that the statement is in, to number its calls */
  int nitems;
} Ctx;

typedef struct {
  const char *name;
  Loc loc;
  Extent range;
  bool known;
  bool bad;     /* its range was faulted: stay silent about what depends on it */
  bool missing; /* it has no range, which is not reported yet */
  Loc range_loc;
  const char *range_why; /* "`x` has it over T" */
} IndexVar;

typedef enum { FRAG_BAD, FRAG_INT, FRAG_REAL, FRAG_TYPED } FragKind;

/* INT: `ix`, or, where it is no index expression, `e` of type i32 or i64. REAL: `e` of type f64. TYPED: `e`. */
typedef struct {
  FragKind kind;
  IExpr *ix;
  Expr *e;
} Frag;

typedef uint32_t IndexSet; /* bit i: Stmt.idx.at[i] */
enum { MAX_LIVE = MAX_INDEX };

/* Arguments of the def that is being expanded. */
typedef struct DefEnv {
  const AstItem *def;
  const Frag *arg;
  const struct DefEnv *outer;
  Loc call;
} DefEnv;

typedef struct {
  Ctx *cx;
  Lower *lw;
  Loc loc;
  const char *base;  /* names of values made on the way begin with it */
  VEC(IndexVar) idx; /* the live ones, outermost first */
  ValueId first;     /* values from here on were made by this statement */
  bool bad;
  VEC(const char *) unbound; /* names in [ ] that are no indices: reported once */
  bool blind;                /* some tensor's shape is not known after an error: ranges may be missing for that reason alone */
  int nwhole;                /* whole tensors (`x = y + z`) are read at the indices 0 .. nwhole-1; -1: must be indexed */
  const DefEnv *env;
} Stmt;

/* ---- scope.c: names; errors ------------------------------------------------------------------------------- */

/* As diag_error, but a fault that was reported at the same place before (a block is lowered once per call) gives a
   diagnostic that is not listed. */
Diag *fault(Lower *lw, const char *code, Loc loc, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
Diag *not_yet(Lower *lw, Loc loc, const char *what);
Scope *scope_new(Arena *a, Scope *outer);
/* Tensors of the outer scope are not seen; its dims, defs and blocks are. */
Symbol *scope_find(Scope *s, const char *name);
Symbol *scope_function(Scope *s, const char *name); /* a def or a block */
/* Declares a name once: a clash is reported and gives a symbol that nobody finds. */
Symbol *scope_declare(Lower *lw, Scope *s, SymKind kind, AstName name);
/* A statement's result: replaces a tensor of that name. */
void scope_assign(Lower *lw, Scope *s, AstName name, TensorRef t);
void names_differ(Lower *lw, AstName first, AstName second); /* results of one call; a clash is reported */
void scope_put(Scope *s, Symbol *sym);                       /* no questions asked */
/* Reports an unknown name, with the nearest of that kind that is known. */
void unknown_name(Ctx *cx, Loc loc, const char *what, const char *name, SymKind kind);
bool name_reserved(const char *name); /* a built-in function */
typedef struct {
  const char *name;
  int nargs; /* -1: handled apart */
  ExprOp op; /* EX_NOPS: a composition, or handled apart */
  bool real; /* integers become real first */
} Builtin;
const Builtin *builtin_find(const char *name); /* a scalar function, or NULL; the whole table for NULL */
bool is_reduction(const char *name);
bool is_normaliser(const char *name);
bool spend(Lower *lw, Loc loc); /* one unit of fuel; false once it ran out */

/* ---- sizes.c: integer and real constants, dims, mesh, layout rules ---------------------------------------- */

bool size_of(Ctx *cx, const AstExpr *e, int64_t *out);  /* dims, integers, + - * / exact; reported if it is none */
bool extent_of(Ctx *cx, const AstExpr *e, Extent *out); /* a positive size with its dim's name */
bool real_of(Ctx *cx, const AstExpr *e, double *out);   /* a constant of literals, dims, sqrt, ...; reported */
bool extents_agree(Extent x, Extent y);
const char *extent_text(Arena *a, Extent x); /* "T" or "3" */
void lower_mesh(Ctx *cx, const AstItem *it);
void lower_dims(Ctx *cx, const AstItem *it);
void lower_layout(Ctx *cx, const AstItem *it);
void check_overrides(Ctx *cx, const Ast *ast);
void check_rules(Ctx *cx); /* its dims and axes exist */

/* ---- types.c ---------------------------------------------------------------------------------------------- */

/* `closed`: an input or a parameter: dims without @ follow the layout rules, else are unsplit. False after an error
   that leaves no shape. */
bool type_of(Ctx *cx, const AstType *t, bool closed, Type *type, TensorRef *shape);
/* Adds `@ axes` to a dim; `used` collects axes of the tensor. */
void pin_dim(Ctx *cx, const AstAxes *axes, Dim *dim, Type *whole);
int axis_named(Ctx *cx, AstName name);                                   /* of the mesh; -1 is reported */
Type type_for(Lower *lw, DType d, int rank, const Extent *dim, Loc loc); /* open; a size that overflows is reported */
TensorRef tensor_of(ValueId v, DType d, Exactness x, int rank, const Extent *dim);
const char *shape_text(Arena *a, const TensorRef *t); /* "f32[B, T]" */
bool dtype_supported(Ctx *cx, DType d, Loc loc);

/* ---- written.c: Module.written ----------------------------------------------------------------------------- */

/* A declared tensor: of an input, a parameter (`closed`), or a block's argument. v has `shift` dims more in front. */
void written_type(Ctx *cx, ValueId v, int shift, AstName name, const AstType *t, bool closed);
void written_lhs(Ctx *cx, ValueId v, const AstLhs *lhs);

/* ---- fragment.c: numbers and their types ------------------------------------------------------------------- */

Frag frag_bad(void);
Frag frag_ix(IExpr *ix);
Frag frag_typed(Expr *e);
Frag frag_like(FragKind kind, Expr *e);
bool frag_const(const Frag *f, double *value);    /* a number known now */
DType frag_dtype(Stmt *st, const Frag *f);        /* of the value that it would be stored as */
Expr *frag_as(Stmt *st, Frag f, DType d);         /* of type d; literals rounded once */
Expr *frag_expr(Stmt *st, Frag f);                /* of its own type */
Frag frag_real(Stmt *st, Frag f);                 /* integers become real: f32, exact ones f64 */
bool frag_fits(Stmt *st, const Frag *f, DType d); /* no whole number that is too large for the type */
/* The common type of two numbers. */
FragKind frag_meet(Stmt *st, const Frag *x, const Frag *y, DType *d);
Frag frag_arith(Stmt *st, const AstExpr *e, ExprOp op, Frag x, Frag y);
Frag frag_compare(Stmt *st, const AstExpr *e, ExprOp op, Frag x, Frag y);
Frag frag_power(Stmt *st, const AstExpr *e, Frag x, Frag y);
Frag frag_where(Stmt *st, Loc loc, Frag c, Frag x, Frag y);
bool frag_number(Stmt *st, Loc loc, const Frag *f); /* reports a bool */
bool frag_bool(Stmt *st, Loc loc, const Frag *f);   /* reports a number */

/* ---- indices.c: binding, ranges, index expressions ---------------------------------------------------------- */

int index_find(const Stmt *st, const char *name);             /* position in idx, or -1 */
int index_bind(Stmt *st, AstName name, const AstExpr *range); /* -1 after an error */
void index_infer(Stmt *st, int from, const AstExpr *body);    /* ranges of idx[from ..) from where they stand alone */
/* Ranges that only reads with `else` give; what has none is marked. */
void index_require(Stmt *st, int from, const AstExpr *body);
/* Reports them, unless the lines that could have given a range were faulted since `faults`. */
void index_report(Stmt *st, int from, int faults);
void index_drop(Stmt *st, int to);             /* they are not live any more */
IExpr *index_expr(Stmt *st, const AstExpr *e); /* NULL after an error */
IndexSet ix_set(const Stmt *st, const IExpr *x);
IndexSet ex_set(const Stmt *st, const Expr *x);
IndexSet live_set(const Stmt *st);
void bounds_of(const Stmt *st, const IExpr *x, int64_t *min, int64_t *max);
double volume(const Stmt *st, IndexSet s);
int64_t range_product(const Stmt *st, IndexSet s);

/* ---- reads.c ------------------------------------------------------------------------------------------------ */

Frag lower_read(Stmt *st, const AstExpr *e);
Frag read_tensor(Stmt *st, const TensorRef *t, IExpr *const *ix); /* no checks */
void limit_input(Lower *lw, ValueId v, int64_t size, const char *dim);

/* ---- values.c: fragments become values ---------------------------------------------------------------------- */

/* out[out] = reduce over red of body. The result's dims are in the order of the indices. */
ValueId nest(Stmt *st, Expr *body, IndexSet out, IndexSet red, Reduce reduce, const char *suffix);
Op *space_op(Stmt *st, OpKind kind, IndexSet out, IndexSet red, Expr *body, DType d, const char *suffix);
Op *scatter_op(Stmt *st, IndexSet out, IndexSet red, Expr *body, IExpr *const *into); /* into: one per result dim */
/* A fragment as a read of a value over `s` at single indices; itself if it is one already (`s` = what it uses). */
Expr *plain_read(Stmt *st, Expr *e, IndexSet s, const char *suffix);
bool is_read(const Expr *e);                       /* possibly shifted or guarded */
Expr *once(Stmt *st, Expr *e, const char *suffix); /* cheap, for what is used more than once */
Expr *read_value(Stmt *st, ValueId v, IndexSet s);
int tensors_in(const Expr *e);          /* distinct ones */
bool is_pure(Lower *lw, const Expr *e); /* reads only such values */
void origin_set(Lower *lw, ValueId v, Op *input);
Op *origin_of(Lower *lw, ValueId v);
Expr *draw(Stmt *st, InitKind kind, IndexSet s, Loc call, const char *suffix);

/* ---- expressions --------------------------------------------------------------------------------------------- */

Frag lower_expr(Stmt *st, const AstExpr *e);   /* scalar.c */
void check_def(Ctx *cx, Symbol *def);          /* scalar.c: a def's body, at its declaration */
Frag lower_reduce(Stmt *st, const AstExpr *e); /* reduce.c */
bool bind_reduced(Stmt *st, const AstExpr *e, const AstExpr *body, IndexSet *red); /* reduce.c */
void lower_topk(Ctx *cx, const AstItem *it);                                       /* reduce.c */
Expr *sum_of(Stmt *st, Expr *body, IndexSet red, const char *suffix);              /* sums.c */
Frag lower_normaliser(Stmt *st, const AstExpr *e);                                 /* expand.c */
Expr *expand_bce(Stmt *st, Expr *z, Expr *t);                                      /* expand.c */

/* ---- statements, blocks, leaves ------------------------------------------------------------------------------ */

Stmt stmt_new(Ctx *cx, Loc loc, const char *base);
/* The value of a fragment over the first n indices, under the statement's name. */
TensorRef finish(Stmt *st, Frag f, int n, const AstLhs *lhs, const char *name);
bool lhs_indices(Stmt *st, const AstLhs *lhs); /* binds them: plain names */
void pin_value(Ctx *cx, ValueId v, const AstLhs *lhs);
TensorRef whole_value(Ctx *cx, const AstExpr *e, const char *name, Loc loc); /* scalar or whole tensor; statement.c */
TensorRef copy_as(Ctx *cx, TensorRef t, DType d, const Type *pins, const char *name, Loc loc);
void lower_statement(Ctx *cx, const AstItem *it);
void lower_call_statement(Ctx *cx, const AstItem *it); /* y, aux = f(x) [as n], = repeat(L) f(x) */
void check_uncalled(Ctx *cx, Symbol *block);
void lower_items(Ctx *cx, const AstItem *const *items, int n);
void assign_result(Ctx *cx, const AstLhs *lhs, TensorRef t, Loc loc); /* whole tensor to `y` or `y[b, t @ model]` */

void lower_input(Ctx *cx, const AstItem *it);
void lower_param(Ctx *cx, const AstItem *it);
bool is_number(Ctx *cx, const TensorRef *t, Loc loc); /* reports a condition */
void lower_metric(Ctx *cx, const AstItem *it);
void lower_output(Ctx *cx, const AstItem *it);
void lower_train(Ctx *cx, const AstItem *it);

#endif
