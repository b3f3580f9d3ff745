/* combine.c: collectives of the same kind over the same axes in the same phase that do not depend on each other become
   one op with several operands, behind the last op that makes one of them and before the first that uses one:

     %g1.1: f32[D] = all_reduce %g1        =>     %g1.1: f32[D], %g2.1: f32[D] = all_reduce %g1, %g2
     %g2.1: f32[D] = all_reduce %g2

   One call costs one wait of all ranks. A bucket ends at 64 MiB, so that large gradients can still be sent while
   others are computed. Gathers and exchanges share calls too where they are small: a call begins no later for one more
   than what that one would have waited, if its bytes take less time than a call does. Under the cluster `bytes`, where
   calls are free, none is.

   The other ops of a region stay where they are; n of them leave n + 1 slots, and a reduction may stand in those from
   `lo` to `hi`. Reductions that share a slot can be one call, so buckets are the cliques of an interval graph: taken by
   ascending lo, each joins the open bucket of its kind unless that must stand earlier, which makes the fewest. Where
   reductions follow directly on each other (over model, then over data) they are taken in rounds: a bucket of one round
   has its slot before the next round's lo are looked at. */
#include "part.h"

#include <limits.h>
#include <stdlib.h>

static const int64_t BUCKET_BYTES = 64 << 20;

typedef struct {
  Op *op;
  int kind; /* reductions of one kind may share a call */
  int64_t bytes;
  int order;         /* among all ops of the region */
  int depth, height; /* how many reductions lead to it, how many follow, each directly on the other */
  int round;
  int own;    /* the slot where it stands */
  int lo, hi; /* slots where it may stand; lo is known once the rounds before are placed */
  struct Bucket *bucket;
} Reduction;

typedef struct Bucket {
  VEC(Reduction *) member;
  int64_t bytes;
  int round, lo, hi; /* it stands in slot lo */
} Bucket;

typedef struct {
  const Op *example;
  Pending over;
  int depth;    /* of its deepest reduction */
  Bucket *open; /* in this round */
} Kind;

typedef struct {
  Module *m;
  Arena *scratch;
  const Cluster *cluster;
  int *made;        /* per value: the first slot in which it is there */
  int *used;        /* per value: the last slot before its first use */
  Reduction **from; /* per value: the reduction that makes it, or NULL */
  VEC(Kind) kinds;  /* as many as sets of axes occur */
  VEC(Reduction *) all;
  VEC(Op *) others;
  VEC(Bucket *) buckets;
} Combine;

static bool reduces(const Op *op) { return op->kind == OP_ALL_REDUCE || op->kind == OP_REDUCE_SCATTER; }

static const Type *type_of(const Combine *c, ValueId v) { return &c->m->values.at[v].type; }

/* Do its bytes take less time than a call? */
static bool is_small(const Combine *c, const Op *op) {
  if (!op_is_collective(op->kind)) return false;
  const Type *from = type_of(c, op->in[0]), *to = type_of(c, op->out[0]);
  double latency, bandwidth;
  price_link(&c->m->mesh, c->cluster, from, to, &latency, &bandwidth);
  return op->nin == 1 && (double)move_bytes(&c->m->mesh, op->kind, from, to) < latency * bandwidth;
}

static bool joins(const Combine *c, const Op *op) { return reduces(op) || is_small(c, op); }

/* ---- where reductions may stand ------------------------------------------------------------------------------ */

static int64_t op_bytes(const Combine *c, const Op *op) {
  int64_t n = 0;
  for (int i = 0; i < op->nin; i++) n += type_capacity(type_of(c, op->in[i])) * dtype_size(type_of(c, op->in[i])->dtype);
  return n;
}

static bool alike(const Combine *c, const Kind *k, const Op *op, const Pending *over) {
  const Type *a = type_of(c, k->example->in[0]), *b = type_of(c, op->in[0]);
  bool same = k->example->kind == op->kind && k->example->phase == op->phase && pending_equal(&k->over, over);
  return same && (!reduces(op) || (a->dtype == b->dtype && a->pending.kind == b->pending.kind));
}

static int kind_of(Combine *c, const Op *op) {
  Pending over = move_axes(&c->m->mesh, type_of(c, op->in[0]), type_of(c, op->out[0]));
  int k = 0;
  while (k < c->kinds.n && !alike(c, &c->kinds.at[k], op, &over)) k++;
  if (k == c->kinds.n) vec_push(c->scratch, c->kinds, ((Kind){.example = op, .over = over}));
  return k;
}

static void add_reduction(Combine *c, Op *op, int order) {
  Reduction *r = NEW(c->scratch, Reduction);
  *r = (Reduction){.op = op, .kind = kind_of(c, op), .order = order, .own = c->others.n, .bytes = op_bytes(c, op)};
  for (int k = 0; k < op->nin; k++) {
    const Reduction *before = c->from[op->in[k]];
    if (before && before->depth >= r->depth) r->depth = before->depth + 1;
  }
  for (int k = 0; k < op->nout; k++) c->from[op->out[k]] = r;
  Kind *kind = &c->kinds.at[r->kind];
  if (r->depth > kind->depth) kind->depth = r->depth;
  vec_push(c->scratch, c->all, r);
}

static void find_makers(Combine *c, const Region *r) {
  c->all.n = c->others.n = c->buckets.n = c->kinds.n = 0;
  for (int i = 0; i < r->ops.n; i++) {
    Op *op = r->ops.at[i];
    if (joins(c, op)) {
      add_reduction(c, op, i);
      continue;
    }
    vec_push(c->scratch, c->others, op);
    for (int k = 0; k < op->nout; k++) c->made[op->out[k]] = c->others.n;
  }
}

/* Its operands are used where its own results are. */
static int latest(Combine *c, Reduction *r) {
  r->hi = c->others.n;
  for (int k = 0; k < r->op->nout; k++) r->hi = (int)min_i64(r->hi, c->used[r->op->out[k]]);
  for (int k = 0; k < r->op->nin; k++) {
    Reduction *before = c->from[r->op->in[k]];
    if (before && before->height <= r->height) before->height = r->height + 1;
  }
  return r->hi;
}

/* From the end, so that what uses a reduction's result is known before the reduction. */
static void find_uses(Combine *c, const Region *r) {
  int slot = c->others.n, next = c->all.n;
  for (int i = r->ops.n - 1; i >= 0; i--) {
    const Op *op = r->ops.at[i];
    int last = joins(c, op) ? latest(c, c->all.at[--next]) : --slot;
    for (int k = 0; k < op->nin; k++) c->used[op->in[k]] = (int)min_i64(c->used[op->in[k]], last);
  }
}

/* A reduction waits for the deepest of its kind, as far as those that follow on it let it. Returns the number of rounds. */
static int find_rounds(Combine *c) {
  int rounds = 0;
  for (int i = 0; i < c->all.n; i++) rounds = (int)max_i64(rounds, c->all.at[i]->depth + 1);
  for (int i = 0; i < c->all.n; i++) {
    Reduction *r = c->all.at[i];
    r->round = c->kinds.at[r->kind].depth;
    for (int k = 0; k < r->op->nin; k++) {
      const Reduction *before = c->from[r->op->in[k]];
      if (before && before->round >= r->round) r->round = before->round + 1;
    }
    r->round = (int)min_i64(r->round, rounds - 1 - r->height);
  }
  return rounds;
}

static int earliest(const Combine *c, const Reduction *r) {
  int lo = 0;
  for (int k = 0; k < r->op->nin; k++) {
    const Reduction *before = c->from[r->op->in[k]];
    lo = (int)max_i64(lo, before ? before->bucket->lo : c->made[r->op->in[k]]);
  }
  return lo;
}

/* ---- buckets -------------------------------------------------------------------------------------------------- */

static bool takes(const Bucket *b, const Reduction *r) { return r->lo <= b->hi && b->bytes + r->bytes <= BUCKET_BYTES; }

static void add_to(Combine *c, Bucket *b, Reduction *r) {
  r->bucket = b;
  b->bytes += r->bytes;
  b->lo = (int)max_i64(b->lo, r->lo);
  b->hi = (int)min_i64(b->hi, r->hi);
  vec_push(c->scratch, b->member, r);
}

static Bucket *new_bucket(Combine *c, int round) {
  Bucket *b = NEW(c->scratch, Bucket);
  *b = (Bucket){.round = round, .hi = INT_MAX};
  vec_push(c->scratch, c->buckets, b);
  return b;
}

static int by_earliest(const void *a, const void *b) {
  const Reduction *const *x = a, *const *y = b;
  return (*x)->lo != (*y)->lo ? (*x)->lo - (*y)->lo : (*x)->order - (*y)->order;
}

static int by_order(const void *a, const void *b) {
  const Reduction *const *x = a, *const *y = b;
  return (*x)->order - (*y)->order;
}

/* What is larger than a bucket has one of its own, and the open one stays open. */
static void fill_buckets(Combine *c, Reduction **r, int n, int round) {
  for (int k = 0; k < c->kinds.n; k++) c->kinds.at[k].open = NULL;
  for (int i = 0; i < n; i++) {
    Kind *kind = &c->kinds.at[r[i]->kind];
    Bucket *b = kind->open && takes(kind->open, r[i]) ? kind->open : new_bucket(c, round);
    add_to(c, b, r[i]);
    if (b->bytes <= BUCKET_BYTES || !kind->open) kind->open = b;
  }
}

/* A reduction that found no other stays where it was, or goes behind a call that it needs and that stands later now. */
static void place_buckets(Combine *c, int first) {
  for (int i = first; i < c->buckets.n; i++) {
    Bucket *b = c->buckets.at[i];
    qsort(b->member.at, (size_t)b->member.n, sizeof *b->member.at, by_order);
    if (b->member.n == 1) b->lo = (int)max_i64(b->lo, b->member.at[0]->own);
  }
}

static void combine_round(Combine *c, int round) {
  VEC(Reduction *) now = {0};
  for (int i = 0; i < c->all.n; i++) {
    Reduction *r = c->all.at[i];
    if (r->round != round) continue;
    r->lo = earliest(c, r);
    vec_push(c->scratch, now, r);
  }
  if (!now.n) return;
  int first = c->buckets.n;
  qsort(now.at, (size_t)now.n, sizeof *now.at, by_earliest);
  fill_buckets(c, now.at, now.n, round);
  place_buckets(c, first);
}

/* ---- the region again ------------------------------------------------------------------------------------------ */

static Op *joint(const Combine *c, const Bucket *b) {
  Op *first = b->member.at[0]->op;
  if (b->member.n == 1) return first;
  Op *op = ir_op(c->m, first->kind, first->loc);
  op->phase = first->phase;
  for (int i = 0; i < b->member.n; i++) op->nin += b->member.at[i]->op->nin;
  op->nout = op->nin;
  op->in = NEW_ARRAY(c->m->arena, ValueId, op->nin);
  op->out = NEW_ARRAY(c->m->arena, ValueId, op->nin);
  for (int i = 0, n = 0; i < b->member.n; i++)
    for (int k = 0; k < b->member.at[i]->op->nin; k++, n++) {
      op->in[n] = b->member.at[i]->op->in[k];
      op->out[n] = b->member.at[i]->op->out[k];
    }
  op->why = arena_printf(c->m->arena, "%s; together with %d more", first->why, op->nin - 1);
  return op;
}

static int by_slot(const void *a, const void *b) {
  const Bucket *x = *(Bucket *const *)a, *y = *(Bucket *const *)b;
  if (x->lo != y->lo) return x->lo - y->lo;
  return x->round != y->round ? x->round - y->round : x->member.at[0]->order - y->member.at[0]->order;
}

static void combine_region(Combine *c, Region *r) {
  for (int i = 0; i < r->ops.n; i++)
    if (r->ops.at[i]->body_region) combine_region(c, r->ops.at[i]->body_region);
  find_makers(c, r);
  find_uses(c, r);
  int rounds = find_rounds(c);
  for (int round = 0; round < rounds; round++) combine_round(c, round);
  if (c->buckets.n) qsort(c->buckets.at, (size_t)c->buckets.n, sizeof *c->buckets.at, by_slot);
  r->ops.n = 0;
  for (int slot = 0, next = 0; slot <= c->others.n; slot++) {
    for (; next < c->buckets.n && c->buckets.at[next]->lo == slot; next++) ir_append(c->m, r, joint(c, c->buckets.at[next]));
    if (slot < c->others.n) ir_append(c->m, r, c->others.at[slot]);
  }
}

void part_combine(Module *m, PassContext *cx) {
  Arena *scratch = arena_new();
  int n = m->values.n + 1;
  Combine c = {
      .m = m, .scratch = scratch, .cluster = cx->cluster, .made = NEW_ARRAY(scratch, int, n), .used = NEW_ARRAY(scratch, int, n)};
  if (!c.cluster) c.cluster = cluster_default(scratch, &m->mesh);
  c.from = NEW_ARRAY(scratch, Reduction *, n);
  for (int v = 0; v < n; v++) c.used[v] = INT_MAX;
  for (int i = 0; i < m->programs.n; i++) combine_region(&c, m->programs.at[i].body);
  ir_number(m);
  arena_free(scratch);
}
