/* planner.c: what plan.c found, remembered. Layouts are numbered, and the price from one number to another is one look
   into a hash table: the global choice asks for the same pairs millions of times. The steps of a plan are worked out
   again when somebody wants them: most prices never become a plan.

     plan_price(p, plan_layout(p, &from), plan_layout(p, &to))->seconds                                             */
#include "part.h"

#include <math.h>

/* Keys are whole words. */
static unsigned hash_words(const void *key, size_t bytes) {
  uint64_t h = bytes, word;
  for (size_t i = 0; i < bytes; i += sizeof word) {
    memcpy(&word, (const char *)key + i, sizeof word);
    h = (h ^ word ^ h >> 29) * UINT64_C(0x9e3779b97f4a7c15);
  }
  return (unsigned)(h >> 32);
}

/* uthash takes its memory from the arena that is in scope as `arena`, and never gives it back. */
#define HASH_FUNCTION(key, bytes, hash) ((hash) = hash_words((key), (bytes)))
#define uthash_malloc(size) arena_alloc(arena, (size))
#define uthash_free(p, size) ((void)(p), (void)(size))
#include <uthash.h>

typedef struct {
  void *key;
  int number;
  UT_hash_handle hh;
} Layout;

typedef struct {
  int64_t pair;
  Price price;
  Plan *plan; /* or NULL: nobody asked yet */
  UT_hash_handle hh;
} Memo;

typedef struct {
  int64_t pair;
  Step step;
  UT_hash_handle hh;
} StepMemo;

struct Planner {
  Arena *arena;
  const Mesh *mesh;
  const Cluster *cluster;
  int64_t limit;
  Layout *layouts;
  VEC(const Type *) types;
  Memo *memos;
  StepMemo *steps;
};

Planner *plan_new(Arena *a, const Mesh *m, const Cluster *c) {
  Planner *p = NEW(a, Planner);
  p->arena = a;
  p->mesh = m;
  p->cluster = c ? c : cluster_default(a, m);
  return p;
}

void plan_limit(Planner *p, int64_t bytes) { p->limit = bytes; }

/* ---- layouts as words -------------------------------------------------------------------------------------------- */

enum { KEY_WORDS = 3 + MAX_RANK * (8 + 2 * MAX_PARTS) + MAX_PARTS * 2 };
typedef struct {
  int n;
  int64_t at[KEY_WORDS];
} Key;

static void key_parts(Key *k, int n, const AxisPart *part) {
  for (int i = 0; i < n; i++) {
    k->at[k->n++] = part[i].axis;
    k->at[k->n++] = part[i].pre * ((int64_t)1 << 32) + part[i].size;
  }
}

static void key_split(Key *k, const Split *s) {
  const Window *w = &s->window;
  k->at[k->n++] = s->n * 2 + (w->of != 0);
  k->at[k->n++] = s->n ? max_i64(s->granule, 1) : 1;
  key_parts(k, s->n, s->part);
  if (!w->of) return;
  k->at[k->n++] = w->of;
  k->at[k->n++] = w->mul;
  k->at[k->n++] = w->lo;
  k->at[k->n++] = w->hi;
  k->at[k->n++] = w->div;
}

static void key_type(Key *k, const Type *t) {
  k->n = 0;
  k->at[k->n++] = t->dtype;
  k->at[k->n++] = t->rank;
  k->at[k->n++] = t->pending.n * 8 + (t->pending.n ? (int)t->pending.kind : 0);
  key_parts(k, t->pending.n, t->pending.part);
  for (int d = 0; d < t->rank; d++) {
    k->at[k->n++] = t->dim[d].size;
    key_split(k, &t->dim[d].split);
  }
}

int plan_layout(Planner *p, const Type *t) {
  Key k;
  key_type(&k, t);
  Arena *arena = p->arena;
  size_t size = sizeof(int64_t) * (size_t)k.n;
  Layout *l;
  HASH_FIND(hh, p->layouts, k.at, size, l);
  if (l) return l->number;
  l = NEW(arena, Layout);
  l->key = arena_alloc(arena, size);
  memcpy(l->key, k.at, size);
  l->number = p->types.n;
  Type *copy = NEW(arena, Type);
  *copy = *t;
  vec_push(arena, p->types, copy);
  HASH_ADD_KEYPTR(hh, p->layouts, l->key, size, l);
  return l->number;
}

const Type *plan_layout_type(const Planner *p, int layout) { return p->types.at[layout]; }

const Mesh *plan_mesh(const Planner *p) { return p->mesh; }
const Cluster *plan_cluster(const Planner *p) { return p->cluster; }

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

static int64_t pair_of(int from, int to) { return (int64_t)from << 32 | to; }

Step *plan_step(Planner *p, int from, int to) {
  Arena *arena = p->arena;
  int64_t pair = pair_of(from, to);
  StepMemo *m;
  HASH_FIND(hh, p->steps, &pair, sizeof pair, m);
  if (m) return &m->step;
  m = NEW(arena, StepMemo);
  m->pair = pair;
  m->step.least = -1;
  HASH_ADD(hh, p->steps, pair, sizeof m->pair, m);
  return &m->step;
}

static Memo *memo_of(Planner *p, int from, int to) {
  Arena *arena = p->arena;
  int64_t pair = pair_of(from, to);
  Memo *m;
  HASH_FIND(hh, p->memos, &pair, sizeof pair, m);
  if (m) return m;
  m = NEW(arena, Memo);
  m->pair = pair;
  if (!plan_search(p, p->limit, from, to, &m->price, NULL, NULL)) m->price = (Price){INFINITY, INFINITY, 0};
  HASH_ADD(hh, p->memos, pair, sizeof m->pair, m);
  return m;
}

const Price *plan_price(Planner *p, int from, int to) { return &memo_of(p, from, to)->price; }

const Plan *plan_find(Planner *p, const Type *from, const Type *to, Price *price) {
  int a = plan_layout(p, from), b = plan_layout(p, to);
  Memo *m = memo_of(p, a, b);
  if (!m->plan) {
    m->plan = NEW(p->arena, Plan);
    if (!plan_search(p, p->limit, a, b, &m->price, p->arena, m->plan)) internal_error("no way from one layout to another");
  }
  if (price) *price = m->price;
  return m->plan;
}
