/* driver.h: what the dtc command is made of: options.c, pipeline.c, certify.c, certificate.c, output.c, build.c and main.c, which
   uses them in this order. Only these files see all parts of the compiler. */
#ifndef DTC_DRIVER_H
#define DTC_DRIVER_H

#include "certify.h"
#include "frontend/frontend.h"
#include "partitioner/partitioner.h"

enum { EXIT_DONE = 0, EXIT_ERRORS = 1, EXIT_USAGE = 2, EXIT_DIFFER = 3, EXIT_INTERNAL = 70 };

/* What can be asked for with --emit, in the order in which it comes to be. */
typedef enum {
  EMIT_AST,
  EMIT_IR,
  EMIT_SPMD,
  EMIT_SCHEDULE,
  EMIT_SCHEDULE_JSON,
  EMIT_MEMORY,
  EMIT_MEMORY_JSON,
  EMIT_C,
  EMIT_CUDA,
  EMIT_EXE,
  EMIT_NKINDS
} EmitKind;

typedef struct {
  bool wanted;
  const char *path; /* "-": standard output; NULL: the default place */
} Emit;

typedef struct {
  Arena *arena;
  const char *file;        /* "-": standard input */
  const char *out;         /* -o, or NULL */
  bool check;              /* dtc check */
  bool verify;             /* dtc verify */
  const char *certificate; /* --certificate, or NULL */
  Emit emit[EMIT_NKINDS];
  FrontendOptions frontend;
  VEC(const char *) print_after; /* names of passes, or "all" */
  const char *from;              /* a stage or a pass, or NULL */
  const char *stop_after;        /* a pass, or NULL */
  bool time_passes, keep_gathered, propagate_only;
  const char *cluster;  /* --cluster: a name or a file, or NULL */
  int64_t memory_limit; /* --memory-limit: bytes, 0: none */
  DiagFormat errors;
  const char *cc; /* --cc, or NULL */
  Target target;
  bool target_given, tf32, fast;
  VEC(const char *) arch; /* --arch: "80", "90" */
  const char *nvcc;       /* --nvcc, or NULL */
  const char *explain;    /* NULL: nobody asks; "": all; a code, a line or a %value */
  const char *diff;       /* --diff: the file to compare with; FILE is the new one */
  bool strict;
  VEC(const char *) warnings; /* what stands behind -W */
  bool version, verbose;
} Options;

/* options.c: exits 2 after a message when the command line is wrong. */
Options options_parse(Arena *a, int argc, char **argv);

/* ---- pipeline.c ---------------------------------------------------------------------------------------------- */

typedef struct {
  const char *name;
  const char *does; /* one sentence */
  PassFn *run;
  Stage before, after;
} Pass;
extern const Pass pipeline[];
extern const int pipeline_length;
int pipeline_find(const char *pass); /* index, or -1 */
/* The first pass to run for --from: that pass, or the first one that takes that stage; -1 if there is neither. */
int pipeline_start(const char *from);

/* Milliseconds of each step, in order, for --time-passes. */
typedef struct {
  const char *name;
  double ms;
} Timing;
typedef struct {
  VEC(Timing) steps;
  double last; /* when the last step ended */
} Clock;
void clock_start(Clock *c);
void clock_step(Clock *c, Arena *a, const char *name); /* what ran since the last call; one name, one sum */
void clock_print(const Clock *c, FILE *out);

/* Runs passes [first, last] and verifies after each. After each one `seen` is called with its index. False when a pass
   reported errors. */
bool pipeline_run(Module *m, PassContext *cx, int first, int last, Clock *clock,
                  void (*seen)(void *env, const Module *m, int pass), void *env);

/* ---- replan.c ------------------------------------------------------------------------------------------------ */

typedef struct {
  const Module *module; /* as it was before the first pass */
  const PassContext *cx;
  int first; /* pass */
} Replan;
bool replan(void *env, const PartEdit *e, PartTotals *out); /* env: a Replan */

/* ---- certificate.c ------------------------------------------------------------------------------------------- */

/* Checks the plan, says so in one line on standard error, and writes the certificate to `path` unless that is NULL. Returns
   an exit code; where the plan is not the program, a reproducer is written. */
int certificate_make(Arena *a, const CertifyInput *in, const char *path);
/* Repeats the certificate that a file holds, on standard output. */
int certificate_verify(Arena *a, Diags *d, int file, const char *path);

/* ---- output.c ------------------------------------------------------------------------------------------------ */

/* Writes text to a file so that it is there whole or not at all, or to standard output for "-". False after a message. */
bool output_write(Arena *a, const char *path, const char *text);

/* ---- build.c ------------------------------------------------------------------------------------------------- */

/* The runtime that emitted programs are built with, found from where dtc itself is; false after a message. */
typedef struct {
  const char *library, *include; /* .../libdtrt.a or libdtrt_cuda.a, the folder of dtrt.h */
} Runtime;
bool build_runtime(Arena *a, Target t, Runtime *r);
const char *build_compiler(const Options *o, Target t);
/* C or CUDA text -> the program `out`, whole or not at all. Returns an exit code, after a message unless it is 0. */
int build_program(Arena *a, const Options *o, Target t, const char *text, const char *out);

#endif
