/* fuzz.h: random programs under random layouts. A seed makes a program (gen*.c) or takes a model (model.c), makes a
   mesh and annotations (annotate.c); check.c runs it whole and partitioned, which must agree exactly; relate.c says what
   must not change when the same layouts are written differently; a failing one is made small; main.c is dtc_fuzz. */
#ifndef DTC_FUZZ_H
#define DTC_FUZZ_H

#include "ir/ir.h"

/* ---- rng: splitmix64 ---- */
typedef struct {
  uint64_t s;
} Rng;
static inline uint64_t rng_next(Rng *r) { return random_mix(r->s++); }
static inline int rng_below(Rng *r, int n) { return (int)(rng_next(r) % (uint64_t)n); }
static inline bool rng_percent(Rng *r, int p) { return rng_below(r, 100) < p; }

/* ---- gen.c ---- */

enum { GEN_DIMS = 5, GEN_POINTS = 1500 /* of an index space */ };

/* A value that ops may read: reals are at most `bound` in magnitude, integers lie in [0, limit). */
typedef struct {
  ValueId v;
  double bound;
  int64_t limit;
} Item;

typedef struct {
  bool small; /* integers only: piecewise linear functions, magnitudes below max_bound; else all functions, modulo p */
  double max_bound;
  bool gradients, updates, random, repeats;
  bool ranked; /* leaves have at least one dim (tables of rows have) */
  bool sinks;  /* attention and random numbers of small programs: nothing reads them but outputs and the loss */
} GenOptions;

typedef struct {
  Arena *a;
  Module *m;
  Rng rng;
  GenOptions o;
  Dim dim[GEN_DIMS];
  Region *region;
  VEC(Item) pool;
  VEC(ValueId) counters;
  ValueId step;
  Item sink; /* with has_sink: the last attention of a program with sinks */
  bool has_sink;
  int sites, depth;
  int odd; /* of a hundred reads of a dim, how many are by more than an index */
} Gen;

Module *fuzz_program(Arena *a, uint64_t seed, GenOptions o);
void gen_region(Gen *g, int nops); /* appends ops to g->region */
Type gen_type(DType d, int rank, const Dim *dims);
ValueId gen_fitting(Gen *g, ValueId like, double *bound); /* a new value of like's type, made by a map */

/* gen_body.c: an op under construction. Indices are numbered in order of creation until build_finish. */
typedef struct {
  Gen *g;
  Op *op;
  Space s;
  bool closed;          /* no new indices */
  Dim dim[MAX_INDEX];   /* of each index */
  IExpr *by[MAX_INDEX]; /* after build_finish: what became of index i */
} Build;

Build build_new(Gen *g, OpKind kind);
int build_operand(Build *b, ValueId v);
int build_index(Build *b, Dim d); /* a new index, or -1 when the space would become too large */
IExpr *build_read_index(Build *b, const Dim *d, bool *inside, bool plain);
Expr *build_read(Build *b, const Item *x, bool plain);
Expr *build_real(Build *b, int depth, double *bound);
Expr *build_condition(Build *b, int depth);
const Item *pick(Gen *g, DType d, int min_rank); /* or NULL */
/* Shuffles the indices, the last nreduced of which become reduced, and fills op->space and op->body. With
   `last` >= 0 that index stays the last result index. False if it cannot be done. */
bool build_finish(Build *b, Expr *body, int nreduced, int last);
Type build_type(const Build *b, DType d, int nout);
ValueId build_append(Build *b, const char *name, Type t, double bound, int64_t limit);

/* ---- annotate.c ---- */
void fuzz_annotate(Module *m, uint64_t seed, int64_t max_devices); /* a mesh, layouts of leaves, pins */

/* ---- model.c ---- */
/* A model, "charlm.dt T=6 D=8", its attention recognised and without layouts. Ends the process where it has errors. */
Module *fuzz_model(Arena *a, const char *spec);

/* ---- check.c ---- */
typedef enum { CHECK_AGREES, CHECK_DIFFERS, CHECK_UNLAWFUL, CHECK_SKIPPED, CHECK_CRASHED } CheckResult;
typedef struct {
  CheckResult result;
  bool divided, worse; /* relate.c divided an axis; then a rank receives more */
  char text[4000];
} Verdict;
typedef struct {
  bool small;    /* exact integers, else modulo p */
  bool thorough; /* run after every pass, print and read back at every stage */
  bool emitted;  /* compile and run what is emitted for `target` on real processes, too */
  bool real;     /* emitted: compare with reals, within a bound, not with exact integers */
  bool related;  /* check the relations of relate.c, too */
  bool updates;  /* append the optimizer */
  bool idle;     /* stand reshards that change nothing between the ops */
  Target target;
  const char *variant; /* of the emulator that runs CUDA, see tests/cuda */
  struct Batch *batch; /* where emitted programs wait to be compiled together; NULL: each alone */
  int64_t exact;       /* largest integer; 0: 2^53 */
  uint64_t seed;
} CheckOptions;
enum { CHECK_POINTS = 20000000 }; /* programs that evaluate more bodies, with their gradients, would take minutes */
/* Runs an annotated module whole and through all passes; the module is consumed. */
void fuzz_check(Module *m, Arena *a, CheckOptions o, Verdict *out);
int64_t fuzz_bytes(const Module *m); /* that the busiest rank receives in a step, from stage collected on */
/* The same, thoroughly, in a child process, so that a fault of the compiler is a verdict too. */
void fuzz_check_apart(const Module *m, CheckOptions o, Verdict *out);

/* ---- relate.c ---- */
/* `m` as annotated, `planned` as it then was scheduled: plans of the same thing said in another way. */
void fuzz_relate(const Module *m, Module *planned, Arena *a, CheckOptions o, Verdict *out);

/* ---- emitted.c, compiled.c ---- */
/* What the whole program shows; with o.real also how far rounding moves it: its runs with noise. */
typedef struct {
  EvalRun *whole, *moved[4];
  int nmoved;
} Shown;
/* Of emitted programs: a real leaf before the step, small integers made from seed and name. */
Tensor fuzz_leaf(Arena *a, const Module *m, const Op *op, CheckOptions o);
/* Compiles and runs a scheduled module with the leaves of the whole; its outputs, and the parameters that it saves, must be
   those of the whole: integers exactly, reals within FUZZ_MOVES times the farthest that one of their tensor was moved. NULL, or
   what is wrong. */
#define FUZZ_MOVES 16
const char *fuzz_run_emitted(Arena *a, const Module *m, const Shown *shown, CheckOptions o);

/* The same of several, which are compiled together; what they consist of (in `a`) must live until then. wrong[i]: of the
   i-th that was added. */
typedef struct Batch Batch;
Batch *fuzz_batch(Arena *a);
void fuzz_batch_add(Batch *b, Arena *a, const Module *m, const Shown *shown, CheckOptions o);
void fuzz_batch_run(Batch *b, const char **wrong);

/* The smallest program that fails in the same way (ir_shrink); *v: how. */
Module *fuzz_shrink(Arena *a, const Module *m, CheckOptions o, int seconds, Verdict *v);

#endif
