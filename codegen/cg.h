/* cg.h: what the files of codegen share. In the order of the pipeline: view (how a local buffer is laid out, who
   uses a value) -> product (which nests the BLAS takes) -> rows (how several ops share one loop nest) -> group ->
   schedule -> buffers, places (where a value lives) -> emit. */
#ifndef DTC_CG_H
#define DTC_CG_H

#include "codegen/codegen.h"

/* ---- view.c ------------------------------------------------------------------------------------------- */

/* Elements between neighbours along each dim of a value's local buffer: row-major over capacities. */
void cg_strides(const Type *t, int64_t stride[MAX_RANK]);
int64_t cg_capacity(const Index *i);                /* elements of the largest rank's part of an index */
bool cg_even(const Index *i);                       /* every rank has that many */
bool cg_same_index(const Index *a, const Index *b); /* same range, dealt out alike */
bool cg_is_split(const Split *s);                   /* does some rank hold another part of the dim than the whole? */
bool cg_same_part(const Index *i, const Dim *d);    /* a rank's part of the index is that of the dim, or both are whole */
int64_t cg_bytes(const Type *t);                    /* of the local buffer; a size beyond 2^62 is 2^62 */

/* Who reads a value: ops of its region (a repeat counts as a user of its operands), and its region's yields. */
typedef struct {
  VEC(Op *) op;
  bool yielded;
} Users;
Users *cg_users(const Module *m, Arena *a); /* by ValueId */

bool cg_takes(const Op *op, ValueId v); /* is it an operand? */

/* Calls f for every read of the body, of index expressions by value inside it (as reads of op operands), and of an
   attention's read[]; `ix` are the coordinates. */
typedef void ReadFn(void *cx, int operand, int n, IExpr *const *ix, const Expr *otherwise);
void cg_reads(const Op *op, ReadFn *f, void *cx);

/* ---- product.c ---------------------------------------------------------------------------------------- */

/* C[m,n] (+)= sum over k of A[m,k] B[k,n], for every value of the outer indices. Each of m, n, k is a run of one
   or more indices whose elements lie at one distance in both tensors that have them. */
typedef struct {
  int n;
  int index[MAX_INDEX]; /* outermost first */
} Run;
typedef struct {
  int a, b;    /* operands of A and B */
  bool ta, tb; /* stored transposed */
  Run m, n, k;
  int64_t lda, ldb, ldc;
  int nouter;
  int outer[MAX_INDEX];                                /* the indices that are left, in order; a reduced one accumulates */
  bool accumulates;                                    /* some outer index is reduced */
  int batch;                                           /* the outer index (not reduced) that becomes the BLAS's batch, or -1 */
  int64_t sa[MAX_INDEX], sb[MAX_INDEX], sc[MAX_INDEX]; /* by index: distance in A, B, C */
  const Dim *shift_a[MAX_INDEX],
      *shift_b[MAX_INDEX]; /* by index: the dim it reads, if that does not begin where the index does */
} Product;
bool cg_product(const Module *m, const Op *op, Product *out);

/* ---- rows.c: how several ops become one loop nest --------------------------------------------------------- */

typedef enum {
  MEMBER_MAP,    /* result indices = rows + inner */
  MEMBER_REDUCE, /* result indices = rows + kept; sums over inner indices, complete within a row */
  MEMBER_COLUMN, /* sums over all rows: the result has none of them */
} MemberKind;

typedef struct {
  Op *op;
  MemberKind kind;
  int row[MAX_INDEX];  /* which row an index of the op is, or -1 */
  int loop[MAX_INDEX]; /* which loop of the segment it is, or -1 */
  int segment;
} Member;

/* Loops inside a row, shared by one or more members. */
typedef struct {
  int n, nkeep; /* the first nkeep loops lie outside the accumulators (reductions that keep indices) */
  Index loop[MAX_INDEX];
} Segment;

typedef struct {
  int nrow;
  Index row[MAX_RANK];
  int nmember, nsegment;
  Member *member; /* in the order of the ops */
  Segment *segment;
} GroupPlan;

/* Finds rows and segments for ops of one region, in program order; false if they do not fit one nest. */
bool cg_plan_rows(Arena *a, const Module *m, Op *const *ops, int n, GroupPlan *out);
bool cg_can_group(const Module *m, const Op *op);                 /* is it of a kind that can be a member? */
int cg_member_of(const GroupPlan *g, const Module *m, ValueId v); /* which member makes v, or -1 */
/* Is v kept in memory of the arena, given who else needs it? If not it is a scalar or a row in the workspace. */
bool cg_escapes(const GroupPlan *g, const Module *m, const Users *users, ValueId v);
bool cg_scalar_in_row(const GroupPlan *g, const Member *x);               /* one value a row, or of a column one in all */
int64_t cg_row_elements(const GroupPlan *g, const Module *m, int member); /* of a member's part of a row, at capacity */
/* Is it kept in a row buffer, for other segments to read? */
bool cg_row_buffered(const GroupPlan *g, const Module *m, const Users *users, int member);
/* C: offset of each member's row buffer in the workspace (-1: none); returns their total. */
int64_t cg_row_buffers(const GroupPlan *g, const Module *m, const Users *users, int64_t *offset);
/* Every read of operand value x by the group touches only the element that `out` (a result of the group, same
   shape) is then written to, and none comes after that write. */
bool cg_group_in_place(const GroupPlan *g, const Module *m, ValueId out, ValueId x);

/* ---- schedule.c, overlap.c -------------------------------------------------------------------------------- */

/* A step of a region: one op, or the ops of a group. */
typedef struct {
  Op **op;
  int n;
} Step;
typedef VEC(Step) Steps;
Steps cg_steps(const Region *r, Arena *a);
void cg_raise_phases(Module *m, Region *r); /* an op's phase is at least that of what it reads */
void cg_overlap(Module *m, Arena *scratch); /* places waits, and what is done before them */

/* ---- buffers.c, places.c ---------------------------------------------------------------------------------- */

/* Where a value lies: in the arena at offset + sum of counter * stride; or it is a setting, or a repeat's counter. */
typedef enum { PLACE_NONE, PLACE_ARENA, PLACE_SETTING, PLACE_COUNTER } PlaceKind;
enum { MAX_DEPTH = 8 };
typedef struct {
  PlaceKind kind;
  int64_t offset;
  int n;
  ValueId counter[MAX_DEPTH];
  int64_t stride[MAX_DEPTH];
  int setting;
} Place;
Place *cg_places(const Module *m, Arena *a); /* by ValueId; from Module.buffers */
bool cg_same_place(const Place *a, const Place *b);

/* ---- epilogue.c ------------------------------------------------------------------------------------------- */

/* What a product of CUDA does with its result before it stores it, or sums up of an operand. */
typedef enum {
  EPILOGUE_BIAS,
  EPILOGUE_GELU,
  EPILOGUE_GELU_BIAS,
  EPILOGUE_DGELU,
  EPILOGUE_SUM_A, /* of A over k */
  EPILOGUE_SUM_B,
} EpilogueKind;
typedef struct {
  EpilogueKind kind;
  ValueId c, aux, bias; /* as in dtcu_Gemm; -1: none */
  ValueId also;         /* the sum before the gelu: a member that is no longer computed, or -1 */
  bool keeps;           /* the product's own result is stored, too: aux */
  Step rest;            /* of the group */
} Epilogue;
/* Can the product sum up one of its operands, and is that what `sum` is? Then the two are one step. */
bool cg_sums_operand(const Module *m, Arena *a, const Op *product, const Op *sum, EpilogueKind *kind);
/* Is it so, or would it be, were the operand read where it is computed again? Then it is read. */
bool cg_make_operands_sum(Module *m, const Op *product, Op *sum);
/* Can the product store what the group behind it computes? */
bool cg_epilogue(const Module *m, Arena *a, const Users *users, const Place *place, const Op *product, const Step *group,
                 Epilogue *out);

/* ---- gaps.c -------------------------------------------------------------------------------------------------- */

/* Spans of bytes that are taken for an interval of ticks (inclusive). */
typedef VEC(struct GapPage *) Gaps;
/* The first byte of the smallest gap from `floor` on that is free all that time and holds so many; above all if none. */
int64_t cg_gap(const Gaps *g, int start, int end, int64_t bytes, int64_t floor);
void cg_gap_take(Arena *a, Gaps *g, int start, int end, int64_t lo, int64_t hi);

/* ---- teams.c: CUDA: who runs what of a group -------------------------------------------------------------------

   A team of threads takes one row at a time: a thread, a block, or, where there are no rows, the whole grid. */
typedef enum { TEAM_THREAD, TEAM_BLOCK, TEAM_GRID } Team;

/* The loops of a segment in two parts, one inside the other, each outermost first (positions in Segment.loop). The team
   shares out the iterations of one of them; the other is run by each thread. */
typedef struct {
  int n[2], loop[2][MAX_INDEX];
  bool absorbed[MAX_INDEX]; /* by position: runs as part of the next inner loop */
  int shared;               /* which part is shared out, or -1 */
  bool between;             /* accumulators lie between the parts: reductions that keep the indices of the first */
  int vector;               /* neighbours along the innermost shared loop that a thread takes at a time: 4, or 1 */
} TeamLoops;

typedef struct {
  GroupPlan g; /* the group's, or with kept or reduced indices as rows */
  Team team;
  int threads;       /* of a block */
  int64_t blocks;    /* at most */
  TeamLoops *loops;  /* by segment */
  int64_t *buffer;   /* by member: offset in the workspace of the blocks' row buffers, -1: it has none in memory */
  bool *in_shared;   /* by member: its row buffer or its column's sums lie in shared memory */
  int64_t *partial;  /* by member: offset in the workspace of the blocks' parts of its sums, -1: none */
  bool *added;       /* by member: its blocks add their parts to the result as they come (--fast) */
  int64_t workspace; /* bytes */
} Teams;
Teams cg_teams(const GroupPlan *g, const Module *m, const Users *users, Arena *a);

/* ---- loops.c: the order of a segment's loops ---------------------------------------------------------------------- */

typedef struct {
  int n;
  int loop[MAX_INDEX];      /* outermost first: positions in Segment.loop */
  bool absorbed[MAX_INDEX]; /* by position in Segment.loop: runs as part of the next inner loop */
  bool accumulate;          /* a reduction that keeps indices runs a kept one innermost: results are added to in memory */
} LoopOrder;
/* Which rows run as part of the next inner one, because every access steps over all of the inner one at once. */
void cg_merged_rows(const Module *m, Arena *a, const GroupPlan *g, bool absorbed[MAX_RANK]);
LoopOrder cg_loop_order(const Module *m, Arena *a, const GroupPlan *g, int segment);

/* ---- staging.c ------------------------------------------------------------------------------------------------ */

Pending cg_over(const Module *m, const Op *op); /* digits over which a collective runs: its group differs in them only */
int64_t cg_staging_bytes(const Module *m);      /* CUDA: where collectives pack what they send, and receive */
int64_t cg_library_bytes(const Module *m);      /* CUDA: workspace of products */

/* ---- workspace of the kernels: emit_attention.c, emit_ops.c ------------------------------------------------- */
int64_t cg_attention_workspace(const Module *m, const Op *op);
int64_t cg_op_workspace(const Module *m, const Op *op); /* topk, sorted scatters */

#endif
