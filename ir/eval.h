/* eval.h: what the files of the reference interpreter share.

     domain.c       numbers: scalar operation x domain
     eval_expr.c    bodies: an expression compiled once per op, evaluated at points of the index space
     eval_space.c   ops with an index space; eval_attention.c the attention pair
     eval_layout.c  ops that change a layout, and putting whole tensors together
     eval_arena.c   the planned arena of a scheduled program
     eval.c         runs, regions, leaves, taps

   A rank holds of every value a box in global coordinates (Held) and computes of every op a box of its index
   space. A read outside the box that is held is a fault, never a silent zero. */
#ifndef DTC_EVAL_H
#define DTC_EVAL_H

#include "ir/ir.h"

/* ---- domain.c ---- */

/* Reals of DOMAIN_INT and DOMAIN_MOD are int64_t: representatives of least magnitude, and three tokens. */
#define TOKEN_NEG_INF INT64_MIN
#define TOKEN_NAN (INT64_MIN + 1) /* also what was never written */
#define TOKEN_POS_INF INT64_MAX

typedef struct {
  DomainKind kind;
  int64_t exact;        /* DOMAIN_INT: the largest magnitude that counts as exact */
  uint64_t key;         /* of the hashes that stand for scalar functions */
  uint64_t noise;       /* of DOMAIN_F64: its generator's state, or 0 */
  Num divisor, inverse; /* DOMAIN_MOD: the last division */
  bool failed;
  char why[320];
} Domain;

typedef Num ScalarFn(Domain *d, Num a, Num b);

__attribute__((format(printf, 2, 3))) void domain_fail(Domain *d, const char *fmt, ...);
ScalarFn *domain_fn(DomainKind k, DType of, ExprOp op); /* `of`: the operands' dtype */
ScalarFn *domain_exceeds(DomainKind k, DType of);       /* 1 if a is above b in the order of max, argmax and topk */
ScalarFn *domain_reduce(DomainKind k, DType of, Reduce r);
Num domain_identity(DomainKind k, DType of, Reduce r);
typedef struct { /* numbers, one every so many */
  const Num *at;
  int64_t step;
} Strip;
Num domain_add_products(Domain *d, DType of, Num sum, int64_t n, Strip a, Strip b); /* sum + a[0] * b[0] + ... */
Num domain_real(Domain *d, double v);                                               /* a real literal or setting */
Num domain_literal(Domain *d, const Expr *lit);
Num domain_cast(Domain *d, DType from, DType to, Num v);
Num domain_where(Domain *d, DType of, Num truth, Num a, Num b); /* modulo p a comparison's truth may be between: domain.c */
Num domain_exp_difference(Domain *d, Num a, Num b);             /* exp(a - b), 0 for a = -inf */
Num domain_draw(Domain *d, DType of, InitKind kind, RandomSite s, uint64_t element, double a, double b);
bool domain_equal(DomainKind k, DType of, Num a, Num b); /* bit for bit, but NaN equals NaN */
Num domain_poison(DomainKind k, DType of, uint64_t salt);

/* ---- what a rank holds ---- */

typedef struct {
  Num *at;
  int64_t n; /* elements */
  int rank;
  int32_t lo[MAX_RANK], size[MAX_RANK], stride[MAX_RANK]; /* int32_t: there are many of these */
} Held;

/* ---- eval_expr.c ---- */

typedef struct Node Node;

/* A read, bound to one rank's box of the operand, or of the operand's gradient, to add to. Where all of its indices are
   affine, the element is base + sum of stride * index; direct: where they stay inside besides. */
typedef struct Read Read;
struct Read {
  const Expr *expr;
  Node *otherwise;
  Read *gradient; /* where a result of the op is it */
  ValueId value;
  const Type *type;
  const Held *held;
  bool affine, direct;
  int64_t base;
  int nunsure, unsure[MAX_RANK]; /* dims that some points leave */
  int n, index[MAX_INDEX];
  int64_t stride[MAX_INDEX];
};

struct Node {
  ExprOp op;
  DType dtype;
  ScalarFn *fn;
  Node *arg[3];
  Node *undecided; /* EX_WHERE below exp: its value where the truth is neither 0 nor 1 */
  Num value;       /* EX_LITERAL */
  const IExpr *ix; /* EX_INDEX */
  Read *read;
};

/* An op made ready: its body and reads as nodes, and every Read in one list for binding. */
typedef struct {
  Node *body, *operand[6]; /* operand: Op.read */
  VEC(Read *) reads;
} Plan;

/* A point of the index space on one rank. */
typedef struct {
  EvalRun *run;
  Domain *d;
  const Op *op;
  Plan *plan;
  int rank;
  int64_t i[MAX_INDEX], lo[MAX_INDEX], hi[MAX_INDEX];
  Num dot;
} Point;

Point point_at(EvalRun *r, const Op *op, int rank); /* binds the reads, sets the rank's box of the space */
Num node_value(Point *p, const Node *n);
int64_t ix_value_at(Point *p, const IExpr *x);

/* Loops over the listed indices, last fastest: for (bool go = loop_first(..); go; go = loop_next(..)). */
typedef struct {
  int n, index[MAX_INDEX];
} Loop;
Loop loop_range(int from, int to);
bool loop_first(Point *p, const Loop *l);
bool loop_next(Point *p, const Loop *l);

int64_t loop_points(const Point *p, const Loop *l);

/* How far the element that a direct read reads moves when index i takes a step. */
int64_t read_step(const Read *r, int i);
int64_t direct_place(const Point *p, const Read *r); /* where a direct read reads */

/* The node's values at all points of a loop, `count` of them, one at least; the other indices stand where p has them. More
   than BATCH are looked at one by one. */
enum { BATCH = 64 };
void node_values(Point *p, const Node *n, const Loop *l, int64_t count, Num *out);
/* Adds numbers, one for each point of a loop that has some, where the read reads there, if this rank holds that. */
void read_add(Point *p, const Read *r, const Loop *l, const Num *v);

/* ---- eval_space.c, eval_attention.c, eval_layout.c, eval_arena.c ---- */
typedef void EvalFn(Point *p);
EvalFn eval_nest, eval_scatter, eval_argmax, eval_topk, eval_scan, eval_random, eval_attention, eval_attention_grad;
void eval_layout(EvalRun *r, const Op *op);
int64_t held_place(const Held *h, const int64_t *global); /* offset of an element that is held, or -1 */
/* The whole tensor put together from what the ranks hold; pending contributions are combined. */
Tensor held_whole(EvalRun *r, ValueId v);

/* One byte of the arena: part `off` of an element of `size` bytes. */
typedef struct {
  Num v;
  uint8_t size, off;
} Cell;
void arena_poison_all(EvalRun *r);
void arena_load(EvalRun *r, ValueId v);  /* buffer -> Held, every rank */
void arena_store(EvalRun *r, ValueId v); /* Held -> buffer */
void arena_enter(EvalRun *r, const Op *repeat, int64_t counter);
void arena_take_off(EvalRun *r,
                    const Op *op);         /* a collective starts: its results are under way, unless they lie on its operands */
void arena_land(EvalRun *r, const Op *op); /* it ends: fails unless they still are; loads the operands */
bool arena_put_slice(EvalRun *r, ValueId stacked, ValueId slice, int64_t counter); /* false: not in the arena */
/* Does `out` of op lie on an operand, as it may: what lies there is not lost before the op runs? */
bool arena_in_place(const Module *m, const Op *op, ValueId out, const int64_t *place);
void arena_before(EvalRun *r, const Op *op); /* loads operands; what the results overwrite is lost first */

/* ---- eval.c ---- */
typedef struct {
  const Op *op;
  Tensor value;
} TapValue;

typedef struct {
  const Op *op;
  Tensor value; /* in_arena: still in its buffer */
} LeafUpdate;

struct EvalRun {
  const Module *m;
  Arena *arena;
  EvalOptions o;
  Domain d;
  int nranks;
  Held *held;  /* [value * nranks + rank] */
  Plan **plan; /* by the op's first result */
  bool *set;   /* leaves that have a value */
  VEC(TapValue) taps;
  VEC(LeafUpdate) updates; /* take effect after the step */
  VEC(const Op *) leaves;  /* once eval_leaf was asked: those that hold data */
  int next_leaf;           /* among them, where it looks first */
  int64_t *received;       /* bytes, per rank */
  int64_t *sent;           /* by the rule of move_sent */
  Cell **cells;            /* in_arena: per rank */
  int64_t *place;          /* in_arena: where each value lies now; -1: outside */
  bool ran;
  const Op *now; /* what is being run, for messages */
  Num *scratch;
  int64_t nscratch;
};

static inline Held *held_of(const EvalRun *r, ValueId v, int rank) { return &r->held[(int64_t)v * r->nranks + rank]; }
Num *eval_scratch(EvalRun *r, int64_t n);               /* room for n numbers until the next call */
const char *eval_where(const EvalRun *r, const Op *op); /* "%y (mlp.dt:12)" */

#endif
