/* comm.c: collectives between processes that see each other's memory.

   Starting a collective says that this rank's sources are ready, and does not wait; waiting for it is: wait until the group's
   sources are ready, copy or reduce the pieces (collective.c), wait until everybody has read.

     rank 0: start 3, own work, wait 3        rank 1: (late) start 3, wait 3: rank 0 has lost nothing by it

   Every group of a collective has a barrier of its own, so that several may be under way in any order.

   An all-reduce over a whole group is done in place and with the least traffic ("push"): rank j of g sums the j-th
   slice over all buffers and stores it into all of them.

     rank 0: x[0:2) = x0 + x1 -> both      rank 1: x[2:4) = x0 + x1 -> both

   Several buffers go together and count as one sequence of elements, so small ones do not make empty slices. Where
   source and destination are the same memory and it is not a push, the result waits in memory of this process until
   all have read. */
#include "memory.h"

enum { SLICE_ALIGN = 16 }; /* elements: two ranks never write one cache line */
enum { STREAM_BYTES = 8 << 20 };

/* Results larger than the caches are stored past them. */
static bool streams(const Comm *m) { return m->bytes >= STREAM_BYTES; }

static Barrier *barrier_of(const Rt *rt, int id) {
  return &rt->transport->barriers[(size_t)id * (size_t)rt->p->nranks + (size_t)rt->comm[id].member[0]];
}

/* One piece from its sources into dst. */
static void pull(const Rt *rt, const dtrt_Layout *to, dtrt_reduce op, const Piece *p, const void *src, char *dst, bool stream) {
  size_t size = rt_dtype_size(to->dtype);
  const char *from[RT_MAX_RANKS], *at[RT_MAX_RANKS];
  for (int s = 0; s < p->nsrc; s++) from[s] = rt_peer(rt, p->src[s], src);
  for (Runs r = rt_runs(p, p->at, p->at + p->elements); rt_next_run(&r);) {
    char *d = dst + (size_t)r.d * size;
    size_t offset = (size_t)r.s * size;
    if (p->nsrc == 1) {
      if (d != from[0] + offset) rt_copy(d, from[0] + offset, (size_t)r.n * size, stream);
      continue;
    }
    for (int s = 0; s < p->nsrc; s++) at[s] = from[s] + offset;
    rt_reduce(to->dtype, op, p->nsrc, at, 1, &d, r.n, stream);
  }
}

static void pull_all(const Rt *rt, const dtrt_Layout *from, const dtrt_Layout *to, const Plan *plan, const void *src, void *dst,
                     bool stream) {
  if (plan->identity) rt_fill_identity(to->dtype, to->reduce, dst, rt_local_elements(to));
  for (int k = 0; k < plan->npieces; k++) pull(rt, to, from->reduce, &plan->piece[k], src, dst, stream);
}

static int64_t slice_start(int64_t total, int index, int n) {
  int64_t s = (total / n * index + total % n * index / n + SLICE_ALIGN - 1) / SLICE_ALIGN * SLICE_ALIGN;
  return index == n || s > total ? total : s;
}

/* Elements [lo, hi) of buffer i: the sum over the group, stored into all of it. */
static void push(const Rt *rt, const dtrt_Collective *c, const Comm *m, int i, const void *src, void *dst, int64_t lo,
                 int64_t hi) {
  size_t size = rt_dtype_size(c->to[i].dtype);
  bool stream = streams(m) && src != dst; /* in place the lines were just read */
  const Piece *p = &m->plan[i].piece[0];  /* one: the whole box */
  const char *from[RT_MAX_RANKS], *at[RT_MAX_RANKS];
  char *into[RT_MAX_RANKS], *to[RT_MAX_RANKS];
  for (int s = 0; s < m->nmembers; s++) {
    from[s] = rt_peer(rt, p->src[s], src);
    into[s] = rt_peer(rt, m->member[s], dst);
  }
  for (Runs r = rt_runs(p, lo, hi); rt_next_run(&r);) {
    for (int s = 0; s < m->nmembers; s++) {
      at[s] = from[s] + (size_t)r.s * size;
      to[s] = into[s] + (size_t)r.d * size;
    }
    rt_reduce(c->to[i].dtype, c->from[i].reduce, m->nmembers, at, m->nmembers, to, r.n, stream);
  }
}

static void push_all(const Rt *rt, const dtrt_Collective *c, const Comm *m, const void *const *src, void *const *dst) {
  int64_t lo = slice_start(m->elements, m->index, m->nmembers), hi = slice_start(m->elements, m->index + 1, m->nmembers);
  int64_t first = 0;
  for (int i = 0; i < c->nbuf; i++) {
    int64_t n = m->plan[i].elements, a = lo - first, b = hi - first;
    if (a < 0) a = 0;
    if (b > n) b = n;
    if (a < b) push(rt, c, m, i, src[i], dst[i], a, b);
    first += n;
  }
}

/* Where source and destination are the same memory: NULL, or memory for the result until all have read. */
static void *bounce(const dtrt_Layout *to, const Comm *m, const void *src, const void *dst) {
  if (src != dst || m->local) return NULL;
  return rt_alloc((size_t)rt_local_elements(to), rt_dtype_size(to->dtype));
}

/* Only the extent: what lies beyond it in the destination is not ours to overwrite. */
static void unbounce(const Rt *rt, const dtrt_Layout *to, void *held, void *dst) {
  if (!held) return;
  RtBox b = rt_box(to, rt->rank);
  Piece p = rt_piece(&b, &b, to, &b, to);
  size_t size = rt_dtype_size(to->dtype);
  for (Runs r = rt_runs(&p, 0, p.elements); rt_next_run(&r);)
    memcpy((char *)dst + (size_t)r.d * size, (char *)held + (size_t)r.s * size, (size_t)r.n * size);
  free(held);
}

static void pull_buffers(Rt *rt, const dtrt_Collective *c, Comm *m, Barrier *barrier) {
  const void *const *src = m->src;
  void *const *dst = m->dst;
  void *held[c->nbuf];
  for (int i = 0; i < c->nbuf; i++) {
    held[i] = bounce(&c->to[i], m, src[i], dst[i]);
    pull_all(rt, &c->from[i], &c->to[i], &m->plan[i], src[i], held[i] ? held[i] : dst[i], streams(m));
  }
  if (streams(m)) rt_stream_end();
  if (!m->local) rt_barrier(barrier, (uint32_t)m->nmembers, rt->spins);
  for (int i = 0; i < c->nbuf; i++) unbounce(rt, &c->to[i], held[i], dst[i]);
}

void dtrt_start(dtrt_Context *cx, int id, const void *const *src, void *const *dst) {
  Rt *rt = cx->comm;
  Comm *m = rt_comm_start(rt, id, src, dst);
  for (int i = 0; i < rt->p->collective[id].nbuf; i++)
    if (!rt_in_arena(rt, src[i]) || !rt_in_arena(rt, dst[i])) rt_comm_fault(rt, id, "a buffer lies outside the arena");
  if (!m->local) rt->transport->full[id] = rt_arrive(barrier_of(rt, id), (uint32_t)m->nmembers);
}

void dtrt_wait(dtrt_Context *cx, int id) {
  Rt *rt = cx->comm;
  const dtrt_Collective *c = &rt->p->collective[id];
  Comm *m = rt_comm_wait(rt, id);
  Barrier *barrier = barrier_of(rt, id);
  RankState *state = rt_state(rt);
  uint64_t t0 = rt->o.profile ? rt_ns() : 0, t1 = t0;
  atomic_store_explicit(&state->collective, id, memory_order_relaxed);
  if (!m->local) rt_await(barrier, rt->transport->full[id], rt->spins);
  if (rt->o.profile) t1 = rt_ns();
  if (m->whole) {
    push_all(rt, c, m, m->src, m->dst);
    if (streams(m)) rt_stream_end();
    rt_barrier(barrier, (uint32_t)m->nmembers, rt->spins);
  } else {
    pull_buffers(rt, c, m, barrier);
  }
  atomic_store_explicit(&state->last, id, memory_order_relaxed);
  atomic_store_explicit(&state->collective, -1, memory_order_relaxed);
  if (!rt->o.profile) return;
  m->in_update = atomic_load_explicit(&state->phase, memory_order_relaxed) == AT_UPDATE;
  m->ns_wait += t1 - t0;
  m->ns_move += rt_ns() - t1;
}

void rt_gather_rows(Rt *rt, const dtrt_Layout *l, const void *mine, int64_t lo, int64_t hi, void *dst) {
  if (rt->rank) return; /* rank 0 sees all arenas; nobody goes on before it has read */
  Plan plan;
  rt_rows_plan(rt, l, lo, hi, &plan);
  dtrt_Layout whole = rt_unsplit(l);
  for (int k = 0; k < plan.npieces; k++) pull(rt, &whole, l->reduce, &plan.piece[k], mine, dst, false);
  rt_plan_free(&plan);
}
