/* dtrt.h: everything an emitted program sees. A program is one static table (dtrt_Program) and three
   functions; dtrt_main does the rest: the command line, starting a process per device, data, collectives,
   saving. Layouts are in digits of the rank, so the runtime knows no axes:
   digit = (rank / stride) % size. */
#ifndef DTRT_H
#define DTRT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus /* CUDA programs are C++ */
#define DTRT_NORETURN [[noreturn]]
extern "C" {
#else
#define DTRT_NORETURN _Noreturn
#endif

enum { DTRT_ABI = 3, DTRT_MAX_RANK = 8, DTRT_MAX_PARTS = 8 };

/* What the including file is compiled for: the level of x86-64 (4: AVX-512, 3: AVX2, 2: SSE4.2), 0 elsewhere. */
#if defined(__AVX512F__)
#define DTRT_LEVEL 4
#elif defined(__AVX2__)
#define DTRT_LEVEL 3
#elif defined(__SSE4_2__)
#define DTRT_LEVEL 2
#elif defined(__x86_64__)
#define DTRT_LEVEL 1
#else
#define DTRT_LEVEL 0
#endif

typedef enum { DTRT_F32, DTRT_BF16, DTRT_F16, DTRT_F64, DTRT_I32, DTRT_I64, DTRT_BOOL } dtrt_dtype;

typedef struct {
  int32_t stride, size;
} dtrt_Digit;

/* What a rank holds of a dim in order to read it at (mul * i + lo ... mul * i + hi) / div, for i in its chunk [a, b) of
   `of` elements dealt out in chunks of `chunk`: from (mul * a + lo) / div to (mul * (b - 1) + hi) / div, both inclusive
   (a and b - 1 change places where mul < 0; division toward minus infinity), cut to the dim; nothing where the chunk is
   empty. of = 0: no window. */
typedef struct {
  int64_t of, chunk, mul, lo, hi, div;
} dtrt_Window;

/* One dim of `size` elements in chunks of `chunk`: the rank whose digits (major to minor) make the number c
   holds elements [min(c * chunk, size), min((c + 1) * chunk, size)), or what its window says. Local buffers are row-major
   with `chunk` elements along each dim, however short the ranks' extents are. */
typedef struct {
  int64_t size, chunk;
  int n;
  dtrt_Digit digit[DTRT_MAX_PARTS];
  dtrt_Window window;
} dtrt_Dim;

typedef enum { DTRT_NONE, DTRT_SUM, DTRT_MAX, DTRT_MIN, DTRT_PROD } dtrt_reduce;

typedef struct {
  dtrt_dtype dtype;
  int rank;
  dtrt_Dim dim[DTRT_MAX_RANK];
  int npending; /* digits over which the value is still a pending reduction */
  dtrt_reduce reduce;
  dtrt_Digit pending[DTRT_MAX_PARTS];
} dtrt_Layout;

typedef enum { DTRT_PARAM, DTRT_STATE, DTRT_INPUT } dtrt_leaf_kind;
typedef enum { DTRT_ZEROS, DTRT_ONES, DTRT_NORMAL, DTRT_UNIFORM, DTRT_CONST } dtrt_init;
typedef enum { DTRT_NEXT_TOKEN, DTRT_TABLE } dtrt_source;

/* A tensor that exists before the step. `offset` is its place in every rank's arena. */
typedef struct {
  dtrt_leaf_kind kind;
  const char *name; /* "layer.wq", "adamw.m.wte", "step" (i64 scalar), "tok" */
  dtrt_Layout layout;
  int64_t offset;
  dtrt_init init; /* param: drawn by dtrt_random from (seed, name, global element index) */
  double a, b;
  dtrt_source source; /* input */
  const char *file;
  bool shuffle;
  int part;      /* next_token: 0 the tokens, 1 the same shifted by one */
  int64_t limit; /* input: every value must be in [0, limit); 0: any */
  const char *limit_dim;
  int line; /* of the .dt file */
} dtrt_Leaf;

typedef struct {
  const char *name; /* "optimizer.lr" */
  double value;
} dtrt_Setting;

/* One collective of the program; nbuf buffers (> 1 when combined) change from layout `from` to `to`. The
   group: all ranks that differ only in `over`. */
typedef struct {
  const char *kind; /* "all_reduce", "all_gather", ... */
  const char *axes; /* for messages: "model" */
  const char *file; /* the .dt line */
  int line;
  int nbuf;
  const dtrt_Layout *from, *to; /* [nbuf] */
  int nover;
  dtrt_Digit over[DTRT_MAX_PARTS];
} dtrt_Collective;

typedef struct dtrt_Comm dtrt_Comm; /* the runtime's own */
typedef struct {
  int rank, nranks;
  int64_t step;
  char *arena;           /* of this rank; the leaves and all buffers */
  char *workspace;       /* scratch of this rank, workspace_bytes */
  const double *setting; /* in the order of dtrt_Program.setting */
  uint64_t seed;
  bool checking; /* the loss was not finite: look at every tensor */
  dtrt_Comm *comm;
} dtrt_Context;

typedef enum { DTRT_TAP_LOSS, DTRT_TAP_METRIC, DTRT_TAP_OUTPUT, DTRT_TAP_GRAD, DTRT_TAP_GRAD_NORM, DTRT_TAP_LR } dtrt_tap_kind;
typedef struct {
  dtrt_tap_kind kind;
  const char *name;
  dtrt_Layout layout;
} dtrt_Tap;

typedef struct {
  int abi, level;     /* DTRT_ABI, DTRT_LEVEL */
  const char *source; /* "charlm.dt" */
  const char *version;
  int naxes;
  const char *axis[8];
  int64_t axis_size[8];
  int nranks;
  int64_t arena_bytes, workspace_bytes; /* per rank */
  int64_t staging_bytes, library_bytes; /* CUDA: where collectives pack and receive; workspace of the products' library */
  int nleaves;
  const dtrt_Leaf *leaf;
  int nsettings;
  const dtrt_Setting *setting;
  int ncollectives;
  const dtrt_Collective *collective;
  int ntaps;
  const dtrt_Tap *tap;
  int64_t steps;
  int64_t tokens;   /* per step, over all ranks: what tokens/s counts (elements of the first input, or its rows) */
  const char *unit; /* "tokens" or "rows" */
  int64_t parameters;
  uint64_t plan_bytes; /* received per step by the rank that receives most, as planned */
  bool trains;         /* has a train block; false: outputs only */
  bool tf32;           /* CUDA: products may round their operands to TF32 */
  void (*forward)(dtrt_Context *), (*backward)(dtrt_Context *), (*update)(dtrt_Context *); /* NULL where empty */
} dtrt_Program;

/* The whole of main(). Returns the exit code: 0 done, 1 an error in data, files or numbers, 2 usage,
   70 a fault of ours, 75 interrupted and saved. */
int dtrt_main(const dtrt_Program *p, int argc, char **argv);

/* ---- what emitted functions call ---------------------------------------------------------------------- */

/* Starts collective `id` (index into dtrt_Program.collective) on the buffers, which lie in the arena or the workspace at
   the same offset on every rank. src[i] may equal dst[i] where the layouts have equal chunks. Does not block. Until the
   wait the sources may be read only, and the results not even that. */
void dtrt_start(dtrt_Context *cx, int id, const void *const *src, void *const *dst);
/* Blocks until this rank's results are there and its sources may be overwritten. */
void dtrt_wait(dtrt_Context *cx, int id);
/* Both at once. */
void dtrt_collective(dtrt_Context *cx, int id, const void *const *src, void *const *dst);

/* Shows a value: the loss (checked for being finite), metrics, gradients (for --dump-grads), outputs. */
void dtrt_tap(dtrt_Context *cx, int id, const void *value);

/* What follows is part of this, for DTRT_PROFILE=1. */
typedef enum { DTRT_OTHER, DTRT_ATTENTION, DTRT_PARTS } dtrt_part_kind;
void dtrt_part(dtrt_Context *cx, dtrt_part_kind part);

/* This rank's part [*lo, *lo + *n) of a dim. */
void dtrt_range(const dtrt_Context *cx, const dtrt_Dim *d, int64_t *lo, int64_t *n);

/* With cx->checking: ends the run when one of n elements is not finite, naming tensor and line. */
void dtrt_check_f32(dtrt_Context *cx, const float *x, int64_t n, const char *tensor, int line);

/* The same for this rank's part of a buffer of this layout, where ranks' extents differ. */
void dtrt_check_part(dtrt_Context *cx, const float *x, const dtrt_Layout *layout, const char *tensor, int line);

/* A read by value left its dim: ends the run, naming the value and the line (exit 1). */
DTRT_NORETURN void dtrt_out_of_range(dtrt_Context *cx, int64_t value, int64_t limit, const char *tensor, int line);

/* C = alpha * op(A) op(B) + beta * C, row-major f32; op is transposition where ta or tb. Leading dimensions in
   elements. The batched form runs `batch` of them at distances sa, sb, sc. */
void dtrt_gemm(dtrt_Context *cx, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
               const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
void dtrt_gemm_batch(dtrt_Context *cx, int64_t batch, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha,
                     const float *a, int64_t lda, int64_t sa, const float *b, int64_t ldb, int64_t sb, float beta, float *c,
                     int64_t ldc, int64_t sc);

#ifdef __cplusplus
}
#endif
#endif
