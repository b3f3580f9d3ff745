/* ir.h: what a program is. The text form is described in ir/README.md; every struct below has one.

   A Module is a mesh and a set of programs, one per pipeline stage. A program is a list of ops in SSA form.
   A value has a type: dtype, dims (global sizes!), how each dim is split over mesh axes, and over which
   axes the value is still a pending sum. At every stage, also after `localize`, shapes, indices and
   index expressions are in *global* coordinates: a rank's part of a tensor is a box (shard_box), a rank's
   part of an op is a box of its index space, and reading x[i] means element i - lo of the local box.
   So one text serves every stage and every rank, and localizing changes no expression. */
#ifndef DTC_IR_H
#define DTC_IR_H

#include "ir/base.h"
#include "ir/diag.h"

enum { MAX_AXES = 8, MAX_RANK = 8, MAX_PARTS = 8, MAX_INDEX = 16 };

/* ---- mesh and shardings: shard.c, window.c --------------------------------------------------------- */

typedef struct {
  const char *name;
  int64_t size;
} Axis;

typedef struct {
  const char *name;
  int naxes;
  Axis axis[MAX_AXES]; /* outermost first; rank = row-major index of the coordinates */
} Mesh;

/* A part of an axis of size S, in text `axis(pre:size)`: the coordinate c of the axis counts as
   (c / (S / (pre * size))) % size. The whole axis has pre = 1, size = S and prints as its name. */
typedef struct {
  int axis : 8, pre : 24, size; /* two words: types hold many of these, and a mesh has at most 2^20 devices */
} AxisPart;

/* What an op reads of a dim along which it is not simply split as that dim is: x[2*i + p - 1], i split. The split's parts
   deal out `of` elements (the range of i) in chunks [a, b); a rank holds what its chunk reads, from
   (mul * a + lo) / div to (mul * (b - 1) + hi) / div (a and b - 1 change places where mul < 0; division toward minus
   infinity), both inclusive, cut to the dim; nothing where the chunk is empty. So chunks overlap (a halo), leave gaps, or
   lie on other ranks than the dim's own would. A split into no parts may have one: every rank holds the same slice of the
   dim. of = 0: no window, the chunk itself. */
typedef struct {
  int64_t of, mul, lo, hi, div;
} Window;

/* How one dim of n elements is split: the parts, major to minor, count as one of their product k. With
   granule g (1 unless whole units must stay together) the dim is ceil(n / g) units, dealt out in chunks of
   ceil(units / k); the last ranks are short or empty. `fixed`: the user wrote it (`@ data`, `@ none`); an
   open dim has n = 0 and fixed = false; a split that is not fixed is propagate's choice. From sharded on it is false.
   Only what a collective makes has a window; it is complete, and no operand of another collective. */
typedef struct {
  int n;
  bool fixed;
  int64_t granule; /* 0 counts as 1 */
  AxisPart part[MAX_PARTS];
  Window window;
} Split;

typedef enum { RED_NONE, RED_SUM, RED_MAX, RED_MIN, RED_PROD } Reduce;

/* The axes over which a value is still a pending reduction (`kind`; n = 0: complete). A rank's element is
   its contribution. */
typedef struct {
  int n;
  Reduce kind;
  AxisPart part[MAX_PARTS];
} Pending;

typedef enum { F32, BF16, F16, F64, I32, I64, BOOL, NDTYPES } DType;

typedef struct {
  const char *name; /* the user's dim, e.g. "B", or NULL for a literal size */
  int64_t size;     /* global */
  Split split;
} Dim;

typedef struct {
  DType dtype;
  int rank;
  Dim dim[MAX_RANK];
  Pending pending;
} Type;

int64_t mesh_devices(const Mesh *m);
int mesh_axis(const Mesh *m, const char *name); /* -1 if there is none */
AxisPart axis_whole(const Mesh *m, int axis);
int64_t part_coord(const Mesh *m, AxisPart p, int64_t rank);
bool part_equal(AxisPart a, AxisPart b);
bool parts_overlap(AxisPart a, AxisPart b); /* share devices' coordinates of one axis */

bool split_whole(const Split *s); /* every rank holds all of the dim */
bool split_windowed(const Split *s);
int64_t split_count(const Split *s);                              /* k, the product of the parts; 1 if unsplit */
int64_t split_capacity(const Split *s, int64_t n);                /* elements of the largest chunk: static, sizes buffers */
int64_t split_coord(const Mesh *m, const Split *s, int64_t rank); /* which of the k chunks rank holds */
void split_range(const Mesh *m, const Split *s, int64_t n, int64_t rank, int64_t *lo, int64_t *hi); /* [lo, hi), may be empty */
bool split_even(const Split *s, int64_t n);       /* every rank has the same extent */
bool split_equal(const Split *a, const Split *b); /* same parts, granule and window; ignores fixed */
Split split_canonical(Split s, int64_t n);        /* one split for equal boxes: see window.c */
bool split_inside(const Mesh *m, const Split *inner, const Split *outer, int64_t n); /* on every rank */
/* The parts of outer begin those of inner, and each of its chunks is some of inner's: inside, told at a look. */
bool split_nests(const Split *inner, const Split *outer, int64_t n);
bool split_uses(const Split *s, AxisPart p);            /* some part overlaps p */
bool pending_equal(const Pending *a, const Pending *b); /* as sets */
bool sharding_equal(const Type *a, const Type *b);      /* all dims and pending */
bool type_uses(const Type *t, AxisPart p);              /* in a dim or pending */
bool type_windowed(const Type *t);                      /* some dim is */

/* Ranks that differ only in the axes marked, the others' coordinates being 0: how many, and the k-th. Enough to see
   what is true on every rank of splits that use only these axes. */
void split_axes(const Split *s, bool axes[MAX_AXES]); /* marks those of s */
int64_t ranks_along(const Mesh *m, const bool axes[MAX_AXES]);
int64_t rank_along(const Mesh *m, const bool axes[MAX_AXES], int64_t k);

typedef struct {
  int64_t lo[MAX_RANK], hi[MAX_RANK];
} Box;
Box type_box(const Mesh *m, const Type *t, int64_t rank); /* the part of the tensor that rank holds, global coordinates */
int64_t type_elements(const Type *t);                     /* global */
int64_t type_capacity(const Type *t);                     /* elements of a local buffer (product of capacities) */
int64_t dtype_size(DType d);
const char *dtype_name(DType d);
bool dtype_by_name(const char *s, DType *out);
bool dtype_is_int(DType d); /* I32 I64 BOOL */

/* Elements that `rank` must receive from others when a complete value goes from layout `from` to `to`. */
int64_t move_elements(const Mesh *m, const Type *from, const Type *to, int64_t rank);

/* ---- what a change of layout moves, without a look at every rank: traffic.c --------------------------------- */

/* The largest move_elements of any rank. Exact but where uneven dims share axes of more than 4096 coordinates: then it
   may be more. */
int64_t move_most(const Mesh *m, const Type *from, const Type *to);
/* What ranks that differ only in the axes `near` (bits) lack together, no element counted twice: that much comes to them over
   other axes, whatever the way. Of a group that lacks much; it may be less than the most, and is 0 where windows overlap and
   where groups are large. */
int64_t move_lacking(const Mesh *m, const Type *from, const Type *to, unsigned near);
bool type_inside(const Mesh *m, const Type *inner, const Type *outer); /* on every rank */
/* From how many other chunks of a dim split as `from` a rank lacks something, at most. */
int64_t move_neighbours(const Mesh *m, const Split *from, const Split *to, int64_t n);
/* The axis parts over which data moves, outermost first: ranks that agree in all others form a group, and each finds
   in its group what it lacks. */
Pending move_axes(const Mesh *m, const Type *from, const Type *to);

/* ---- index spaces and bodies: expr.c ----------------------------------------------------------------- */

typedef int ValueId; /* index into Module.values; -1: none */

typedef struct IExpr IExpr;
typedef struct Expr Expr;

/* An index expression: c + sum of coef * atom. An atom is an index of the space, `sub // k`, `sub % k`
   (k > 0, toward minus infinity), or a read by value: operand `operand` of the op (an integer tensor) at
   `at[0..nat)`. Zero coefficients do not occur; atoms are in order of appearance. */
typedef enum { ATOM_INDEX, ATOM_DIV, ATOM_MOD, ATOM_VALUE } AtomKind;
typedef struct {
  int64_t coef;
  AtomKind kind;
  int index;  /* ATOM_INDEX: position in Space.idx */
  IExpr *sub; /* ATOM_DIV, ATOM_MOD */
  int64_t k;
  int operand; /* ATOM_VALUE */
  int nat;
  IExpr **at;
} Term;
struct IExpr {
  int64_t c;
  int n;
  Term *term;
};

typedef enum {
#define EX(K, text, n, prec) EX_##K,
#include "ir/exprs.def"
  EX_LITERAL, /* .lit for real types, .ilit for integer types and bool */
  EX_INDEX,   /* an index expression as an i32 value: .ix[0] */
  EX_READ,    /* operand `operand` at .ix[0 .. rank); `otherwise` (or NULL) when an index leaves its dim */
  EX_DOT,     /* attention only: the sum over the contracted indices of q * k */
  EX_NOPS
} ExprOp;

/* Operands of an infix or call node agree in dtype, except: where's condition is bool; comparisons yield
   bool; a cast changes it. */
struct Expr {
  ExprOp op;
  DType dtype;
  Expr *arg[3];
  double lit;
  int64_t ilit;
  int operand;
  int nix;
  IExpr **ix;
  Expr *otherwise;
};

typedef struct {
  const char *name; /* unique within the space */
  const char *dim;  /* the user's dim, or NULL */
  int64_t range;    /* 0 .. range-1 */
  Split split;      /* from `sharded` on: which part of the range a rank computes. For a result index this
                       equals the split of the result's dim (kept equal by ir_sync_space) */
} Index;

/* The first `nout` indices are the results' dims in order; the others are reduced (nest, gather: nout <= n;
   scatter_add: the result's dims that are added to by value have an index too, see README). */
typedef struct {
  int n, nout;
  Index idx[MAX_INDEX];
} Space;

/* ---- ops ---------------------------------------------------------------------------------------------- */

typedef enum {
#define OP(K, text, cls, fn) OP_##K,
#include "ir/ops.def"
  OP_NKINDS
} OpKind;

typedef enum { CLS_LEAF, CLS_SPACE, CLS_REGION, CLS_LAYOUT, CLS_EFFECT } OpClass;
typedef enum { PHASE_FORWARD, PHASE_BACKWARD, PHASE_UPDATE } Phase;
typedef enum { TAG_NONE, TAG_INPUT_GRAD, TAG_WEIGHT_GRAD } GradTag;

typedef enum { INIT_ZEROS, INIT_ONES, INIT_NORMAL, INIT_UNIFORM, INIT_CONST } InitKind;
typedef enum { SRC_NEXT_TOKEN, SRC_TABLE } SourceKind;
typedef enum { TAP_LOSS, TAP_METRIC, TAP_OUTPUT, TAP_GRAD, TAP_GRAD_NORM, TAP_LR } TapKind;

typedef struct Region Region;

typedef struct Op {
  OpKind kind;
  Loc loc;         /* the user's line this comes from (line 0: none) */
  const char *why; /* a compiler-made op: what caused it ("%r adds it to %x"), and what it cost; else NULL */
  Phase phase;
  GradTag tag;
  int nin, nout;
  ValueId *in, *out;
  int order; /* position in its region, renewed by ir_number */
  int group; /* from pass `group` on: ops of one region with the same number > 0 are emitted as one loop nest */

  /* SPACE */
  Space space;
  Reduce reduce;
  Expr *body;
  IExpr **into; /* scatter_add: where body is added, one per result dim (ATOM_VALUE for dims by value) */
  bool reverse; /* scan, repeat */
  int along;    /* scan: the result index that it runs along (the space has no reduced index) */
  /* ATTENTION: the space's result indices are those of out[0]; the first nkey reduced indices are keys, the
     rest are contracted; body is the score; read[] holds the EX_READs q, k, v. out[1], lse, has the result
     indices that q, k or the score use (attention_rows).
     ATTENTION_GRAD: the same space and body; read[] goes on with a, lse and the gradient of a. Results: the
     gradients of the operands read as q, k, v, then of the operands wrt[0..nwrt) that the score reads. Each
     has its operand's shape and is zeros plus the contributions of all points of the space, added where
     that operand is read. */
  int nkey, nwrt, *wrt;
  Expr *read[6];

  /* LEAF, RANDOM, TAP */
  const char *name; /* "layer.wq", "adamw.m.wte", "optimizer.lr"; RANDOM: the site's call path */
  InitKind init;    /* PARAM; RANDOM: INIT_NORMAL or INIT_UNIFORM */
  double init_a, init_b;
  bool frozen;
  int nstack; /* PARAM, STATE: leading dims that a repeat stacked */
  TapKind tap;
  SourceKind source; /* INPUT */
  const char *file;
  bool shuffle;    /* SRC_TABLE: shuffled; SRC_NEXT_TOKEN: shuffled unless `sequential` */
  int source_part; /* 0: tokens, 1: shifted by one (the second name) */
  int64_t limit;   /* INPUT: values must be in [0, limit), checked when loaded; 0: no check */
  const char *limit_dim;

  /* REPEAT: in = [carried inits, invariants, stacked ins]; body->args = [counter (i64 scalar), carried,
     invariants, one slice of each stacked in]; body->yields = [next carried, one slice of each stacked out];
     out = [final carried, stacked outs]. The last nsaved stacked outs exist for the reverse only. The
     counter runs 0 .. trip-1, or downwards if `reverse`. */
  int64_t trip;
  const char *trip_dim;
  int ncarried, ninvariant, nstacked, nsaved;
  Region *body_region;
} Op;

struct Region {
  VEC(Op *) ops;
  VEC(ValueId) args, yields;
  Op *parent; /* the repeat, or NULL for a program */
};

/* Bytes that ranks receive when a collective of `kind` takes a value from layout `from` to `to`, g contributions to a
   pending sum: all_reduce 2 (g-1)/g of what the rank holds, reduce_scatter g-1 contributions to what it keeps, everything
   else the elements that it lacks. traffic.c */
int64_t move_received(const Mesh *m, OpKind kind, const Type *from, const Type *to, int64_t rank);
int64_t move_bytes(const Mesh *m, OpKind kind, const Type *from, const Type *to); /* the largest of any rank */
/* What the rank that receives most receives at least, whatever the way. Exact for complete values; for pending sums no way
   does better, but where dims are uneven or replicas few the best may do worse. */
double move_bound(const Mesh *m, const Type *from, const Type *to);
/* Bytes sent by the rank that sends most; -1 where that would take too long to find out. Which replica serves an element: of
   each box of the source, what the others of the group lack, in the order of the ranks that lack it, is one line of elements
   that is cut into equal shares for the ranks that hold the box. Nobody can be spared more: equal or disjoint boxes share
   no replicas. */
int64_t move_sent(const Mesh *m, OpKind kind, const Type *from, const Type *to);
typedef struct {
  OpKind kind;
  const Type *from, *to;
  double times;
} Traffic;
double moves_most(Arena *a, const Mesh *m, int n, const Traffic *move); /* the largest sum of any rank */

typedef struct {
  const char *name; /* unique in the module, without the % */
  Type type;
  Op *def;        /* the op that makes it, or NULL for a region's argument */
  int result;     /* which result of def, or which argument of region */
  Region *region; /* where it lives */
  Loc loc;
} Value;

typedef enum { STAGE_ANNOTATED, STAGE_SHARDED, STAGE_COLLECTED, STAGE_LOCAL, STAGE_SCHEDULED } Stage;

typedef enum { OPT_SGD, OPT_ADAMW } OptimizerKind;
typedef enum { LR_CONSTANT, LR_COSINE, LR_LINEAR } LrKind;
typedef enum { DECAY_ALL, DECAY_MATRICES, DECAY_NAMES } DecayKind;

/* The `train` block as written. The passes gradient and update turn it into ops; what ./train --set may
   change becomes OP_SETTING leaves there: optimizer.lr, optimizer.momentum, optimizer.beta1, .beta2, .eps,
   .weight_decay, lr.warmup, lr.steps, lr.floor, clip. */
typedef struct {
  bool present;
  ValueId loss;
  Loc loc;
  OptimizerKind optimizer;
  double lr, momentum, beta1, beta2, eps, weight_decay;
  bool nesterov;
  LrKind schedule;
  double warmup, schedule_steps, floor;
  bool has_clip;
  double clip;
  DecayKind decay;
  VEC(const char *) decay_names;
  int64_t steps; /* how many ./train runs unless told otherwise */
} Train;

/* Where a tensor's layout stands, or could stand, in the user's text: for messages; no pass decides by it. The same
   text may be several values (the stacked leaf and its slices, every call of a block). */
typedef struct {
  ValueId v;
  const char *name; /* as the user wrote it */
  Loc loc;          /* of the name */
  int rank, shift;  /* dim d of the text is dim d + shift of the value */
  struct {
    const char *name; /* the index, or the dim of a type */
    Loc at, rule;     /* the index or size; the layout rule that splits it (line 0: none) */
    bool pinned;      /* `@` stands there, or a rule, or it is an input's or a parameter's */
  } dim[MAX_RANK];
} Written;

/* A buffer of the scheduled program: byte range of the arena. Values share a buffer as alias analysis
   allows; see codegen/README.md. */
typedef struct {
  int64_t offset, bytes;
} Buffer;

typedef struct {
  int stage; /* pipeline stage */
  Region *body;
} Program;

/* What the program is made for; decides nothing before codegen. tf32: products may round their operands to 10 bits of
   mantissa; fast: sums may be in any order. Both only for CUDA. */
typedef enum { TARGET_C, TARGET_CUDA } Target;

typedef struct {
  Arena *arena;
  Mesh mesh;
  Stage stage;
  Target target;
  bool tf32, fast;
  VEC(Value) values;
  VEC(Program) programs;   /* one, until pipelines */
  VEC(const char *) files; /* names for Loc.file */
  VEC(Written) written;    /* in the order of the text's lowering; empty for IR text */
  Train train;
  Buffer *buffers; /* STAGE_SCHEDULED: per value; offset -1: not in the arena */
  int64_t arena_bytes, workspace_bytes;
  int64_t least_product;   /* codegen: multiplications in a call from which a sum of products goes to the BLAS; 0: its own
                              choice */
  struct NameTable *names; /* ir.c: which names are taken */
} Module;

/* What every pass is given besides the module. */
typedef struct {
  Diags *diags;
  bool keep_gathered;
  bool propagate_only;           /* --partition=propagate: no global choice */
  const struct Cluster *cluster; /* partitioner.h; NULL: its default */
  int64_t memory_limit;          /* bytes per device; 0: none */
  struct PartOrigins *origins;   /* partitioner.h: where shardings came from; NULL: nobody asks */
  VEC(DiagLabel) notes;          /* what was not done, and why: for those who ask, not warnings */
} PassContext;
typedef void PassFn(Module *m, PassContext *cx);

/* ---- building: ir.c ----------------------------------------------------------------------------------- */

Module *ir_module(Arena *a);
Region *ir_region(Module *m, Op *parent);
/* A new value; a name that is taken gets a suffix (.1, .2, ...). */
ValueId ir_value(Module *m, const char *name, Type t, Loc loc);
ValueId ir_find_value(Module *m, const char *name);          /* -1: none */
Op *ir_op(Module *m, OpKind kind, Loc loc);                  /* not yet in a region */
void ir_in(Module *m, Op *op, ValueId v);                    /* appends an operand */
ValueId ir_out(Module *m, Op *op, const char *name, Type t); /* appends a result: a new value */
void ir_append(Module *m, Region *r, Op *op);
void ir_insert(Module *m, Region *r, int at, Op *op);
ValueId ir_arg(Module *m, Region *r, const char *name, Type t); /* appends a region argument */
void ir_number(Module *m);                                      /* renews Op.order, Value.region everywhere, after edits */
void ir_sync_space(Module *m, Op *op);                          /* result dims' splits -> Space.idx[0..nout) */
void ir_dead_code(Module *m); /* removes ops whose results nobody needs (through regions: unused carried,
                                 invariant, stacked and saved entries go too) */
Module *ir_clone(const Module *m, Arena *a);
void ir_rename(Module *m, ValueId v, const char *name); /* a name that is taken gets a suffix */
int attention_rows(const Op *op, int *index);           /* which result indices lse's dims are; returns its rank */
int op_reads(const Op *op); /* how many of op->read are used: 3 for attention, 6 for its gradient, else 0 */
OpClass op_class(OpKind k);
const char *op_text(OpKind k);
bool op_is_collective(OpKind k); /* LAYOUT, other than reshard and slice */
/* The leaves of all programs by kind and name; those of one name in the order of the program. */
typedef VEC(Op *) Leaves;
Leaves ir_leaves(const Module *m, Arena *a);
Op *ir_find_leaf(const Leaves *l, OpKind kind, const char *name); /* or NULL */

/* expr.c: constructors fold nothing but keep normal form; simplify folds constants and the identities that
   hold for inf and NaN as well (x + 0 of integers, x * 1, where of a literal, double negation). */
IExpr *ix_const(Arena *a, int64_t c);
IExpr *ix_index(Arena *a, int index);
IExpr *ix_add(Arena *a, const IExpr *x, const IExpr *y);
IExpr *ix_scale(Arena *a, const IExpr *x, int64_t k);
IExpr *ix_div(Arena *a, const IExpr *x, int64_t k);
IExpr *ix_mod(Arena *a, const IExpr *x, int64_t k);
IExpr *ix_value(Arena *a, int operand, int n, IExpr **at);
/* All of ix_* keep the normal form and saturate at +-2^61, which no dim reaches. */
IExpr *ix_narrow(Arena *a, const IExpr *x, const Space *s); /* j // 4 is 0 and j % 4 is j where j is in [0, 4) */
bool ix_equal(const IExpr *x, const IExpr *y);
int ix_single(const IExpr *x); /* the index that x is, exactly (coef 1, c 0), or -1 */
bool ix_uses(const IExpr *x, int index);
bool ix_by_value(const IExpr *x); /* has an ATOM_VALUE */
/* The least and the greatest value over a box of indices, lo[i] <= index i < hi[i]; values count as any. */
void ix_range(const IExpr *x, const int64_t *lo, const int64_t *hi, int64_t *min, int64_t *max);
void ix_bounds(const IExpr *x, const Space *s, int64_t *min, int64_t *max); /* over the whole space, inclusive */
IExpr *ix_substitute(Arena *a, const IExpr *x, IExpr *const *by,
                     const int *operand_map); /* by[i] replaces index i; operand_map may be NULL */

Expr *ex_lit(Arena *a, DType d, double v);
Expr *ex_int(Arena *a, DType d, int64_t v);
Expr *ex_index(Arena *a, IExpr *ix);
Expr *ex_read(Arena *a, int operand, DType d, int n, IExpr **ix, Expr *otherwise);
Expr *ex_1(Arena *a, ExprOp op, Expr *x);
Expr *ex_2(Arena *a, ExprOp op, Expr *x, Expr *y); /* dtype of x, or bool for comparisons */
/* The derivative at u of a function of functions.def, whose value there is y; NULL for other operations. */
Expr *ex_slope(Arena *a, ExprOp op, Expr *u, Expr *y);
Expr *ex_where(Arena *a, Expr *c, Expr *x, Expr *y);
Expr *ex_cast(Arena *a, DType d, Expr *x); /* x itself if it has that type */
bool ex_uses(const Expr *x, int index);    /* in an EX_INDEX or where something is read */
bool ex_equal(const Expr *x, const Expr *y);
bool ex_is_lit(const Expr *x, double v);
Expr *ex_simplify(Arena *a, Expr *x);
Expr *ex_substitute(Arena *a, const Expr *x, IExpr *const *by, const int *operand_map);
void ex_reads(const Expr *x, void (*f)(void *cx, const Expr *read), void *cx); /* every EX_READ, also inside `otherwise` */

/* ---- text: print.c, parse.c ----------------------------------------------------------------------------- */
const char *ir_print(const Module *m, Arena *a); /* the whole module */
const char *ir_print_op(const Module *m, const Op *op, Arena *a);
const char *ir_print_type(const Module *m, const Type *t, Arena *a);
const char *ir_print_split(const Module *m, const Split *s, Arena *a); /* "data", "(pod, data)", "" */
Module *ir_parse(Arena *a, Diags *d, int file);                        /* NULL after errors (codes E09xx) */

/* ---- laws: verify.c --------------------------------------------------------------------------------------- */
/* Is the body a linear function of the operands that are pending[operand]: sums of them, each times something
   complete? The law under which a pending sum may pass a nest. A body that reads none of them is not linear. */
bool ex_linear_in(const Expr *body, const bool *pending);
/* Checks the laws of m->stage and of those before it; on a violation prints the op and the law and exits 70
   (`pass` names who broke it; NULL: nobody in particular), or, with `why`, returns false and the text. */
bool ir_verify(const Module *m, const char *pass, const char **why);

/* ---- gradient and optimizer: grad.c, update.c; recognise.c -------------------------------------------------- */
PassFn ir_recognise, ir_gradient, ir_update;

/* ---- smaller problems: reduce.c ------------------------------------------------------------------------------- */
/* Makes the sizes of a program and of the plan that was made of it (NULL: none) smaller, alike; in meshes of more than
   max_ranks also the axes; every size keeps `least` elements, if it has them (2: no less). Both keep their leaves, ops and
   results. false and *why: the mesh cannot shrink (and nothing has changed). Values that nobody has lose their dims. */
bool ir_reduce(Module *source, Module *plan, int64_t max_ranks, int64_t least, const char **why);

/* The smallest variant that edits of an annotated program lead to and of which `shows` still says true. shrink.c */
typedef bool ShowsFn(void *cx, const Module *m);
Module *ir_shrink(Arena *a, const Module *m, int seconds, ShowsFn *shows, void *cx);

/* ---- random numbers: random.c (the formulas are there; runtime/dtrt_random.h draws the same bits) ------------ */
typedef struct {
  uint64_t key;
  uint32_t step, path; /* path: the repeat counters folded into one word */
} RandomSite;
RandomSite random_site(uint64_t seed, const char *site, int64_t step, int n, const int64_t *counter);
uint32_t random_word(RandomSite s, uint64_t element); /* element: global, row-major */
float random_uniform(RandomSite s, uint64_t element); /* [0, 1) */
float random_normal(RandomSite s, uint64_t element);
uint64_t random_mix(uint64_t x); /* a bijection of 64 bits that looks random */
void random_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* ---- interpreter: eval.c, domain.c --------------------------------------------------------------------------- */
typedef enum { DOMAIN_F64, DOMAIN_INT, DOMAIN_MOD } DomainKind;
typedef union {
  double f;
  int64_t i;
} Num; /* f for reals in DOMAIN_F64, else i; integers and bools are always i */

typedef struct {
  int rank;
  int64_t size[MAX_RANK]; /* extents of the part that is held */
  Num *at;                /* row-major */
} Tensor;

typedef struct EvalRun EvalRun;
#define EVAL_NOISE 0x1p-21 /* 8 roundings to f32, or 2 of a function that is off by 2 ulp */
typedef struct {
  DomainKind domain;
  bool ranks;     /* false: whole tensors on one device, shardings ignored; true: all ranks in lockstep */
  bool in_arena;  /* ranks, STAGE_SCHEDULED: values live in the planned, poisoned arena */
  uint64_t seed;  /* of random leaves and of poison */
  int64_t exact;  /* DOMAIN_INT: no real may exceed this; 0 counts as 2^53 */
  uint64_t noise; /* DOMAIN_F64, not 0: a seed; what f32 does not hold is off by up to EVAL_NOISE, relatively: how far rounding
                     moves results */
  int64_t step;
  double (*setting)(void *cx, const char *name, double otherwise); /* or NULL: the defaults */
  void *cx;
} EvalOptions;
EvalRun *eval_new(const Module *m, Arena *a, EvalOptions o);
void eval_set_leaf(EvalRun *r, const char *name,
                   const Tensor *whole); /* param, state, input; unset ones are drawn from the seed */
/* Runs the program once. false and *why if a value was out of range, an integer left the exact range, ... */
bool eval_step(EvalRun *r, const char **why);
Tensor eval_tap(EvalRun *r, TapKind tap, const char *name); /* whole tensor, put together from all ranks (which must agree) */
Tensor eval_leaf(EvalRun *r, const char *name);             /* a param's or state's value after the updates */
bool eval_agree(EvalRun *r, const char **why);              /* replicas are equal on all ranks */
int64_t eval_received(const EvalRun *r, int64_t rank);      /* bytes that rank received in collectives so far */
int64_t eval_sent(const EvalRun *r, int64_t rank);          /* and sent */

/* compare.c: is the plan, on all ranks in lockstep, the source program, modulo 2^61 - 1 on random inputs? */
typedef enum { COMPARE_EQUAL, COMPARE_DIFFERENT, COMPARE_UNKNOWN /* the source fails on this input */ } Comparison;
Comparison ir_compare(const Module *source, const Module *plan, uint64_t seed, bool in_arena, Arena *a, const char **why);
/* lifetimes.c: of a scheduled program at full size, is every value still in its buffer when it is read? */
bool ir_check_lifetimes(const Module *m, const char **why);
/* What a step costs the interpreter: bodies that it evaluates, and for each op on each rank `ready` more. */
double ir_points(const Module *m, bool ranks, double ready);

#endif
