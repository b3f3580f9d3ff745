/* rt.h: what the runtime's own files share; emitted programs see only runtime/dtrt.h. A table of contents, in
   the order in which a run passes through it: options -> join -> launch -> link -> sync -> layout -> move -> collective ->
   transport -> leaves -> data -> files -> loop -> report. C, and C++ for cuda/. */
#ifndef DTRT_RT_H
#define DTRT_RT_H

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/dtrt.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dtrt_Comm Rt; /* everything of one process, see the end of this file */

typedef struct Shared Shared;       /* sync.h */
typedef struct Transport Transport; /* shared/ or cuda/ */
typedef struct Link Link;           /* link.c */

enum { RT_MESSAGE = 4096, RT_SLOT = 256, RT_MAX_RANKS = 1024 };
enum { EXIT_DATA = 1, EXIT_USAGE = 2, EXIT_FAULT = 70, EXIT_SAVED = 75 };

/* A malloc that ends the program with exit 1 when memory is exhausted; zeroed. `n` objects of `size` bytes,
   checked. */
void *rt_alloc(size_t n, size_t size);
bool rt_mul(int64_t a, int64_t b, int64_t *out); /* false on overflow; operands >= 0 */
bool rt_add(int64_t a, int64_t b, int64_t *out);

/* ---- cpu.c, launch.c: from dtrt_main on ------------------------------------------------------------------ */

extern const int rt_level; /* what the runtime itself is compiled for */
int rt_main(const dtrt_Program *p, int argc, char **argv);

/* ---- options.c: the command line ----------------------------------------------------------------------- */

typedef struct {
  const char *name, *file;
} NamedFile;

typedef struct {
  const char *argv0;
  int64_t steps, save_every;
  uint64_t seed;
  bool seed_given, keep_going, profile, no_graph;
  int64_t timeout; /* seconds that the device may need for what it was given; 0: any */
  const char *data_dir, *log, *init, *save, *resume, *dump_grads;
  const char *trace; /* DTRT_TRACE, or NULL */
  int ndata, noutput;
  NamedFile *data, *output;
  double *setting; /* [p->nsettings] */
} Options;

/* Exits 2 on a usage error, 0 after --help and --version. */
void rt_options(const dtrt_Program *p, int argc, char **argv, Options *o);

/* ---- sync.c: meetings of all ranks, and the end of a run that cannot go on -------------------------------- */

typedef enum { AT_START, AT_LOADING, AT_FORWARD, AT_BACKWARD, AT_UPDATE, AT_SAVING, AT_END } Phase;

/* All ranks meet, on all hosts, and leave with rank 0's `bytes` (at most RT_SLOT) bytes at data. */
void rt_meet(Rt *rt, void *data, size_t bytes);
void rt_world_barrier(Rt *rt); /* a meeting at which nothing is handed out */

/* Ends the whole run with a message and exit code rc. The first rank that calls it is heard. */
DTRT_NORETURN void rt_fail(Rt *rt, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
char *rt_unfinished(Rt *rt); /* the mark of a file that is being written, see rt_new_begin */

/* ---- flight.c: collectives that the device was given, for the message of a run that stands still ------------- */

void rt_flight(Rt *rt, int collective, int phase, uint32_t serial); /* handed to the device */
void rt_flight_mark(Rt *rt, uint32_t serial);                       /* the device has done this one and those before */
void rt_flight_done(Rt *rt);                                        /* it has done all of them */
void rt_waiting(Rt *rt, bool begins);                               /* for the device: the supervisor looks at the clock */
void rt_flight_show(Rt *rt);                                        /* the message of rt_fail comes with the list */
/* Which collective local rank r's device is in, and which it did last; nothing is changed where it was given none. */
void rt_flight_at(const Rt *rt, int r, int *running, int *last);
/* Lines about the last collectives of local rank r. */
void rt_flight_print(const Rt *rt, int r, FILE *out);

/* ---- join.c, link.c: being one of several starts --------------------------------------------------------------- */

/* Is this process started by torchrun, srun, mpirun or a PMI launcher? Then its rank, how many, and where they meet. */
void rt_join(Rt *rt);
/* Meets the other supervisors at rt->meet_at; ends the process with one line if that fails. */
void rt_link_open(Rt *rt);

/* ---- layout.c: boxes, and which piece of them comes from where ------------------------------------------- */

typedef struct {
  int64_t lo[DTRT_MAX_RANK], hi[DTRT_MAX_RANK];
} RtBox;

size_t rt_dtype_size(dtrt_dtype d);
const char *rt_dtype_name(dtrt_dtype d);
void rt_dim_range(const dtrt_Dim *d, int rank, int64_t *lo, int64_t *hi);
RtBox rt_box(const dtrt_Layout *l, int rank);
RtBox rt_box_meet(const RtBox *a, const RtBox *b, int n);
int64_t rt_box_elements(const RtBox *b, int n);  /* 0 if empty */
int64_t rt_whole_elements(const dtrt_Layout *l); /* of the whole tensor */
int64_t rt_local_elements(const dtrt_Layout *l); /* of a rank's buffer: product of the chunks */
dtrt_Layout rt_unsplit(const dtrt_Layout *l);    /* the same tensor, complete on every rank */

/* A box as it lies in two buffers: `run` contiguous elements, within loops (outermost first). Where nsrc > 1
   the element is the reduction over the source ranks, in this order; their buffers have the same layout. */
typedef struct {
  int nloops;
  int64_t run, soff, doff;
  int64_t at, elements; /* of the box, row-major: from which element on, how many */
  int64_t count[DTRT_MAX_RANK], sstep[DTRT_MAX_RANK], dstep[DTRT_MAX_RANK];
  int nsrc;
  int *src;
} Piece;

/* The box `b`, source buffer of box s in chunks of sl, destination of box d in chunks of dl. */
Piece rt_piece(const RtBox *b, const RtBox *s, const dtrt_Layout *sl, const RtBox *d, const dtrt_Layout *dl);

typedef struct {
  int npieces;
  Piece *piece;
  bool identity; /* this rank contributes the reduction's identity: it holds nothing of a pending `to` */
  int64_t elements;
} Plan;

/* What rank `me` must copy or reduce, and from which of the members, to hold its part of `to`. False if some
   element is on no member. */
bool rt_plan(const dtrt_Layout *from, const dtrt_Layout *to, int nmembers, const int *member, int me, Plan *plan);
void rt_plan_free(Plan *p);

/* The ranks that differ from `rank` only in the digits, ascending. Returns how many; member has room for all. */
int rt_group(int nranks, int rank, int ndigits, const dtrt_Digit *digit, int *member);
/* Digits of a that are not among b, a's digits cut where needed. Returns how many (at most 2 * DTRT_MAX_PARTS). */
int rt_digits_minus(int na, const dtrt_Digit *a, int nb, const dtrt_Digit *b, dtrt_Digit *out);

/* ---- move.c: copying and reducing runs of elements -------------------------------------------------------- */

/* Iterates over the contiguous runs of a piece's elements [at, end), counted in the piece's row-major order. */
typedef struct {
  const Piece *p;
  int64_t left, in_run;
  int64_t i[DTRT_MAX_RANK];
  int64_t s, d, n; /* the current run: source and destination offsets, elements */
} Runs;
Runs rt_runs(const Piece *p, int64_t at, int64_t end);
bool rt_next_run(Runs *r);

/* Copies, or reduces nsrc sources and stores the result in all ndst destinations. `stream`: past the caches. */
void rt_copy(void *dst, const void *src, size_t bytes, bool stream);
void rt_reduce(dtrt_dtype t, dtrt_reduce op, int nsrc, const char *const *src, int ndst, char *const *dst, int64_t n,
               bool stream);
bool rt_can_reduce(dtrt_dtype t);
void rt_fill_identity(dtrt_dtype t, dtrt_reduce op, void *dst, int64_t n);
void rt_stream_end(void);
/* Values of type `from` as type `to` (f64, f32, bf16, f16 among each other). */
void rt_convert(dtrt_dtype to, void *dst, dtrt_dtype from, const void *src, int64_t n);
bool rt_is_real(dtrt_dtype t);

/* ---- collective.c: what a collective moves, planned once --------------------------------------------------------- */

typedef struct {
  int nmembers, index; /* this rank's place among them */
  int *member;
  bool local;            /* nothing comes from another rank */
  bool whole;            /* an all-reduce over the whole group, of the same box on every member */
  int64_t elements;      /* of this rank's parts of all results */
  int64_t bytes;         /* the same in bytes */
  double received, sent; /* bytes from and to other ranks, each time */
  bool started;          /* and not yet waited for: */
  const void **src;      /* [nbuf] */
  void **dst;
  Plan *plan;                       /* [nbuf] */
  uint64_t calls, ns_wait, ns_move; /* the times only when profiling */
  bool in_update;                   /* where it is called; known when profiling */
} Comm;

void rt_comm_init(Rt *rt);
void rt_comm_free(Rt *rt);
/* Begins and ends the time between dtrt_start and dtrt_wait; both end the run if they are called out of turn. */
Comm *rt_comm_start(Rt *rt, int id, const void *const *src, void *const *dst);
Comm *rt_comm_wait(Rt *rt, int id);
DTRT_NORETURN void rt_comm_fault(Rt *rt, int id, const char *what);

/* The part of a plan for rank 0 to hold rows [lo, hi) of dim 0, whole and complete (everything if l is a scalar): the pieces,
   cut to the rows, that lie in a buffer of those rows. */
void rt_rows_plan(Rt *rt, const dtrt_Layout *l, int64_t lo, int64_t hi, Plan *plan);

/* ---- transport: shared/ (memory that all ranks see) or cuda/ (devices and NCCL); a program is linked with one ------- */

extern const bool rt_spans_hosts; /* its ranks may be started one by one, on several hosts */
void rt_reserve(Rt *rt);          /* in the supervisor, before the ranks are forked */
void rt_open(Rt *rt); /* in a rank, collectives are planned: its device, its arena; sets cx.arena, cx.workspace, cx.setting */
void rt_close(Rt *rt);
double rt_memory(const dtrt_Program *p); /* bytes per rank in all */

/* The host's view of [at, at + bytes) of the arena, to read and write. Zeros where `read` is false and the view is not the
   arena itself. */
void *rt_borrow(Rt *rt, const void *at, size_t bytes, bool read);
/* Gives it back, written (at) or only read (NULL). */
void rt_return(Rt *rt, void *at, void *view, size_t bytes);

/* Zeros, where nothing was put into the arena yet. */
void rt_clear(Rt *rt, void *at, size_t bytes);

/* Runs a phase of the step. `plainly`: with the host looking at what happens inside. */
void rt_run(Rt *rt, Phase phase, void (*f)(dtrt_Context *), bool plainly);
/* Waits until this step's phases up to this one are done and their taps are in rt->shown. */
void rt_settle(Rt *rt, Phase phase);
void rt_idle(Rt *rt); /* waits until the device has done all that it was given */
/* The scalar at `value` goes to rt->shown[id], at the latest when its phase is settled. */
void rt_show(Rt *rt, int id, const void *value, size_t bytes);
/* Where rt_gather_rows finds a value that may lie outside the arena, if it is a scalar. */
const void *rt_reachable(Rt *rt, const void *value, size_t bytes);
/* All ranks call it. Rows [lo, hi) of dim 0 (everything if the tensor is a scalar) of a tensor that lies at `mine` on every
   rank, whole and complete, into rank 0's dst. */
void rt_gather_rows(Rt *rt, const dtrt_Layout *l, const void *mine, int64_t lo, int64_t hi, void *dst);

/* ---- npy.c, safetensors.c: files ------------------------------------------------------------------------------ */

/* A file as it lies in memory. */
typedef struct {
  const char *name;
  const unsigned char *at;
  int64_t bytes;
} Mapped;
/* False with a text in why (RT_MESSAGE bytes) that names the file. */
bool rt_map(const char *name, Mapped *m, char *why);
void rt_unmap(Mapped *m);

typedef struct {
  dtrt_dtype dtype;
  int rank;
  int64_t dim[32];
  const unsigned char *data;
  int64_t elements;
} NpyArray;
bool rt_npy_read(const Mapped *m, NpyArray *a, char *why);
const char *rt_npy_dtype(dtrt_dtype t); /* "<f4", or NULL */

typedef struct {
  const char *name; /* points into the JSON */
  dtrt_dtype dtype;
  int rank;
  int64_t dim[32];
  int64_t begin, end; /* of the data part */
} StTensor;
typedef struct {
  Mapped map;
  const unsigned char *data;
  int n;
  StTensor *tensor; /* by begin */
  void *json;
} StFile;
bool rt_st_open(const char *name, StFile *f, char *why);
void rt_st_close(StFile *f);
const StTensor *rt_st_find(const StFile *f, const char *name);
const char *rt_st_dtype(dtrt_dtype t);                        /* "F32" */
const char *rt_st_metadata(const StFile *f, const char *key); /* or NULL */

/* A file that appears under its name only when complete. */
typedef struct {
  const char *name;
  int fd;
  bool linked; /* the temporary file has a name */
  char temporary[PATH_MAX];
} NewFile;
/* All return false with errno set. `mark` (PATH_MAX bytes, shared) holds the temporary name while there is one. */
bool rt_new_begin(NewFile *f, const char *name, char *mark);
bool rt_new_write(NewFile *f, const void *data, size_t bytes, int64_t at);
bool rt_new_commit(NewFile *f, char *mark);
void rt_new_abort(NewFile *f, char *mark);

/* ---- checkpoint.c: leaves to and from files --------------------------------------------------------------------- */

/* Opens --init or --resume and checks it against the program; step and seed come from a resumed file. */
void rt_checkpoint_open(Rt *rt);
/* Fills this rank's leaves: from the file, or drawn (init.c). */
void rt_draw(Rt *rt, const dtrt_Leaf *l);
void rt_leaves_fill(Rt *rt);
/* Ends the run if --save could not write, before time is spent on training. */
void rt_save_check(Rt *rt);
/* All ranks call it; true if the file is there. Otherwise rank 0 has said why. */
bool rt_save(Rt *rt, int64_t step);
/* --dump-grads: whole gradients under the parameters' names. */
void rt_grads_begin(Rt *rt);
void rt_grads_put(Rt *rt, const dtrt_Tap *tap, const void *value);
void rt_grads_end(Rt *rt);
void rt_output(Rt *rt, const dtrt_Tap *tap, const void *value);

/* ---- data.c: inputs ------------------------------------------------------------------------------------------------ */

typedef struct Source Source;
void rt_data_open(Rt *rt); /* opens and checks all files */
void rt_data_load(Rt *rt, int64_t step);
void rt_data_describe(const Rt *rt, FILE *out);

/* ---- report.c: what the user sees ------------------------------------------------------------------------------------ */

typedef struct {
  double loss, grad_norm, lr, ms;
  double *metric; /* [p->ntaps], those that are metrics */
  bool has_loss, has_norm, has_lr;
} StepRecord;

void rt_report_start(const Rt *rt);
void rt_report_open(Rt *rt); /* the log */
void rt_report_step(Rt *rt, int64_t step, const StepRecord *r);
void rt_report_end(Rt *rt, int64_t step);
void rt_report_profile(Rt *rt, int64_t steps, double seconds);

/* ---- trace.c: with DTRT_TRACE a line for each call, see there ------------------------------------------------------------ */
void rt_trace(Rt *rt, const char *what, int id);

/* ---- loop.c, profile.c --------------------------------------------------------------------------------------------------- */

int rt_train(Rt *rt); /* in each rank; returns its exit code */

/* Of DTRT_PROFILE=1. A product takes the time between the two calls. */
typedef struct {
  uint64_t products, product_ns, ns; /* ns: the part as a whole; of DTRT_OTHER it is not taken */
  double flop;
} PartTimes;
uint64_t rt_product_begin(const dtrt_Context *cx);
void rt_product_end(const dtrt_Context *cx, uint64_t begun, double flop);
double rt_now(void); /* seconds */
uint64_t rt_ns(void);

/* Everything of one process. Before the processes start rank is -1; the supervisor keeps it so. */
struct dtrt_Comm {
  const dtrt_Program *p;
  Options o;
  Shared *shared;
  Transport *transport;
  int first, nlocal;         /* this start's ranks: first ... first + nlocal - 1 */
  int host_rank, host_ranks; /* of the first of them among the ranks on this host */
  const char *launcher;      /* "torchrun", or NULL: we start all ranks */
  const char *meet_at;       /* where the supervisors meet */
  int port;
  Link *link; /* of the supervisor, or NULL */
  int bell;   /* rings the supervisor when all local ranks have come to a meeting, or -1 */
  int rank, ncores;
  bool spins;
  int64_t start, total; /* steps run from start to total */
  uint64_t meetings;
  Comm *comm;     /* [p->ncollectives] */
  Source *source; /* [p->nleaves], of the inputs */
  StFile file;    /* --init or --resume */
  bool has_file, saved;
  NewFile grads;    /* --dump-grads, while it is written */
  int64_t *grad_at; /* [p->nleaves], where in it */
  bool dumping;
  char (*shown)[8]; /* [p->ntaps], scalars that were shown */
  bool *is_shown;
  StepRecord record;
  FILE *logfile, *trace;
  bool terminal;
  double began, phase_began, phase_seconds[AT_END + 1];
  dtrt_part_kind part; /* what the program is doing, for the profile */
  uint64_t part_since;
  PartTimes parts[DTRT_PARTS];
  dtrt_Context cx;
};

#ifdef __cplusplus
}
#endif
#endif
