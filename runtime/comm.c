/* comm.c: collectives between processes that see each other's memory.

   When the program begins, every rank works out for every collective which pieces of which ranks' buffers make up
   its part of the result (layout.c). Starting a collective says that this rank's sources are ready, and does not wait;
   waiting for it is: wait until the group's sources are ready, copy or reduce the pieces, wait until everybody has
   read. All-gather, reduce-scatter, all-to-all, permute and exchange differ only in their pieces.

     rank 0: start 3, own work, wait 3        rank 1: (late) start 3, wait 3: rank 0 has lost nothing by it

   Every group of a collective has a barrier of its own, so that several may be under way in any order.

   An all-reduce over a whole group is done in place and with the least traffic ("push"): rank j of g sums the j-th
   slice over all buffers and stores it into all of them.

     rank 0: x[0:2) = x0 + x1 -> both      rank 1: x[2:4) = x0 + x1 -> both

   Several buffers go together and count as one sequence of elements, so small ones do not make empty slices. Where
   source and destination are the same memory and it is not a push, the result waits in memory of this process until
   all have read. */
#include "rt.h"

enum { SLICE_ALIGN = 16 }; /* elements: two ranks never write one cache line */
enum { STREAM_BYTES = 8 << 20 };

/* One for each collective and each first member of a group. */
int64_t rt_comm_barriers(const dtrt_Program *p) { return (int64_t)p->ncollectives * p->nranks; }

/* ---- plans ---- */

static bool same_dims(const dtrt_Layout *a, const dtrt_Layout *b) {
  if (a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++) {
    const dtrt_Dim *x = &a->dim[i], *y = &b->dim[i];
    dtrt_Digit rest[2 * DTRT_MAX_PARTS];
    if (x->size != y->size || x->chunk != y->chunk || y->window.of || rt_digits_minus(x->n, x->digit, y->n, y->digit, rest) ||
        rt_digits_minus(y->n, y->digit, x->n, x->digit, rest))
      return false;
    for (int k = 0; k < x->n && x->n == y->n; k++)
      if (x->digit[k].stride != y->digit[k].stride) return false; /* another order of the digits */
  }
  return true;
}

/* Does every member reduce the same box over exactly the whole group? */
static bool is_push(const dtrt_Collective *c, int nmembers) {
  for (int i = 0; i < c->nbuf; i++) {
    const dtrt_Layout *f = &c->from[i], *t = &c->to[i];
    dtrt_Digit reduced[2 * DTRT_MAX_PARTS], rest[2 * DTRT_MAX_PARTS];
    int n = rt_digits_minus(f->npending, f->pending, t->npending, t->pending, reduced), count = 1;
    for (int k = 0; k < n; k++) count *= reduced[k].size;
    if (!same_dims(f, t) || count != nmembers || rt_digits_minus(n, reduced, c->nover, c->over, rest) ||
        rt_digits_minus(t->npending, t->pending, f->npending, f->pending, rest))
      return false;
  }
  return nmembers > 1;
}

/* Bytes that a rank with this plan receives from `from` (-1: from any other rank). */
static double plan_bytes(const dtrt_Layout *to, const Plan *p, int rank, int from) {
  int64_t n = 0;
  for (int k = 0; k < p->npieces; k++)
    for (int s = 0; s < p->piece[k].nsrc; s++)
      if (from < 0 ? p->piece[k].src[s] != rank : p->piece[k].src[s] == from) n += p->piece[k].elements;
  return (double)n * (double)rt_dtype_size(to->dtype);
}

/* What a push moves, by the formula of the schedule: 2 (g - 1) / g of the whole. */
static double push_bytes(const dtrt_Collective *c, const Comm *m) {
  double bytes = 0, g = m->nmembers;
  for (int i = 0; i < c->nbuf; i++)
    bytes += 2 * (g - 1) / g * (double)m->plan[i].elements * (double)rt_dtype_size(c->to[i].dtype);
  return bytes;
}

/* What this rank receives and sends; and is every member content with what it has? All must agree on that, so all are
   looked at. */
static void count_bytes(const dtrt_Collective *c, Comm *m, int rank) {
  m->local = !m->push;
  m->received = m->sent = m->push ? push_bytes(c, m) : 0;
  for (int k = 0; k < m->nmembers && !m->push; k++)
    for (int i = 0; i < c->nbuf; i++) {
      Plan p;
      int other = m->member[k];
      bool ok = rt_plan(&c->from[i], &c->to[i], m->nmembers, m->member, other, &p);
      double bytes = plan_bytes(&c->to[i], &p, other, -1);
      m->local = m->local && ok && bytes == 0;
      if (other == rank)
        m->received += bytes;
      else
        m->sent += plan_bytes(&c->to[i], &p, other, rank);
      rt_plan_free(&p);
    }
}

static void comm_init(Rt *rt, int id) {
  const dtrt_Collective *c = &rt->p->collective[id];
  Comm *m = &rt->comm[id];
  m->member = rt_alloc((size_t)rt->p->nranks, sizeof *m->member);
  m->nmembers = rt_group(rt->p->nranks, rt->rank, c->nover, c->over, m->member);
  while (m->member[m->index] != rt->rank) m->index++;
  m->barrier = &rt->barriers[(size_t)id * (size_t)rt->p->nranks + (size_t)m->member[0]];
  m->push = is_push(c, m->nmembers);
  m->src = rt_alloc((size_t)c->nbuf, sizeof *m->src);
  m->dst = rt_alloc((size_t)c->nbuf, sizeof *m->dst);
  m->plan = rt_alloc((size_t)c->nbuf, sizeof *m->plan);
  int64_t bytes = 0;
  for (int i = 0; i < c->nbuf; i++) {
    if (!rt_plan(&c->from[i], &c->to[i], m->nmembers, m->member, rt->rank, &m->plan[i]))
      rt_fail(rt, EXIT_FAULT, "collective %d (%s over %s, %s:%d): part of the result is on no rank of the group", id, c->kind,
              c->axes, c->file, c->line);
    if (c->from[i].npending && !rt_can_reduce(c->from[i].dtype))
      rt_fail(rt, EXIT_FAULT, "%s over %s, %s:%d: reductions of %s are not supported", c->kind, c->axes, c->file, c->line,
              rt_dtype_name(c->from[i].dtype));
    m->elements += m->plan[i].elements;
    bytes += m->plan[i].elements * (int64_t)rt_dtype_size(c->to[i].dtype);
  }
  m->stream = bytes >= STREAM_BYTES;
  count_bytes(c, m, rt->rank);
}

void rt_comm_init(Rt *rt) {
  rt->comm = rt_alloc((size_t)rt->p->ncollectives, sizeof *rt->comm);
  for (int i = 0; i < rt->p->ncollectives; i++) comm_init(rt, i);
}

void rt_comm_free(Rt *rt) {
  for (int i = 0; i < rt->p->ncollectives; i++) {
    for (int k = 0; k < rt->p->collective[i].nbuf; k++) rt_plan_free(&rt->comm[i].plan[k]);
    free(rt->comm[i].plan);
    free(rt->comm[i].member);
    free(rt->comm[i].src);
    free(rt->comm[i].dst);
  }
  free(rt->comm);
}

/* ---- moving ---- */

bool rt_in_arena(const Rt *rt, const void *mine) {
  const char *base = rt->arenas + (size_t)rt->rank * rt->stride;
  return (const char *)mine >= base && (const char *)mine < base + rt->stride;
}
void *rt_peer(const Rt *rt, int rank, const void *mine) {
  return (char *)(uintptr_t)mine + ((ptrdiff_t)rank - rt->rank) * (ptrdiff_t)rt->stride;
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
  bool stream = m->stream && src != dst; /* in place the lines were just read */
  const Piece *p = &m->plan[i].piece[0]; /* one: the whole box */
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

static void pull_buffers(Rt *rt, const dtrt_Collective *c, Comm *m, const void *const *src, void *const *dst) {
  void *held[c->nbuf];
  for (int i = 0; i < c->nbuf; i++) {
    held[i] = bounce(&c->to[i], m, src[i], dst[i]);
    pull_all(rt, &c->from[i], &c->to[i], &m->plan[i], src[i], held[i] ? held[i] : dst[i], m->stream);
  }
  if (m->stream) rt_stream_end();
  if (!m->local) rt_barrier(m->barrier, (uint32_t)m->nmembers, rt->spins);
  for (int i = 0; i < c->nbuf; i++) unbounce(rt, &c->to[i], held[i], dst[i]);
}

_Noreturn static void fault(Rt *rt, const dtrt_Collective *c, const char *what) {
  rt_fail(rt, EXIT_FAULT, "%s over %s, %s:%d: %s", c->kind, c->axes, c->file, c->line, what);
}

void dtrt_start(dtrt_Context *cx, int id, const void *const *src, void *const *dst) {
  Rt *rt = cx->comm;
  const dtrt_Collective *c = &rt->p->collective[id];
  Comm *m = &rt->comm[id];
  rt_trace(rt, "start", id);
  if (m->started) fault(rt, c, "started again before it was waited for");
  for (int i = 0; i < c->nbuf; i++) {
    if (!rt_in_arena(rt, src[i]) || !rt_in_arena(rt, dst[i])) fault(rt, c, "a buffer lies outside the arena");
    m->src[i] = src[i], m->dst[i] = dst[i];
  }
  m->started = true;
  if (!m->local) m->full = rt_arrive(m->barrier, (uint32_t)m->nmembers);
}

void dtrt_wait(dtrt_Context *cx, int id) {
  Rt *rt = cx->comm;
  const dtrt_Collective *c = &rt->p->collective[id];
  Comm *m = &rt->comm[id];
  RankState *state = &rt->shared->rank[rt->rank];
  uint64_t t0 = rt->o.profile ? rt_ns() : 0, t1 = t0;
  rt_trace(rt, "wait", id);
  if (!m->started) fault(rt, c, "waited for before it was started");
  m->started = false;
  atomic_store_explicit(&state->collective, id, memory_order_relaxed);
  if (!m->local) rt_await(m->barrier, m->full, rt->spins);
  if (rt->o.profile) t1 = rt_ns();
  if (m->push) {
    push_all(rt, c, m, m->src, m->dst);
    if (m->stream) rt_stream_end();
    rt_barrier(m->barrier, (uint32_t)m->nmembers, rt->spins);
  } else {
    pull_buffers(rt, c, m, m->src, m->dst);
  }
  m->calls++;
  atomic_store_explicit(&state->last, id, memory_order_relaxed);
  atomic_store_explicit(&state->collective, -1, memory_order_relaxed);
  if (!rt->o.profile) return;
  m->in_update = atomic_load_explicit(&state->phase, memory_order_relaxed) == AT_UPDATE;
  m->ns_wait += t1 - t0;
  m->ns_move += rt_ns() - t1;
}

void dtrt_collective(dtrt_Context *cx, int id, const void *const *src, void *const *dst) {
  dtrt_start(cx, id, src, dst);
  dtrt_wait(cx, id);
}

void rt_gather_rows(Rt *rt, const dtrt_Layout *l, const void *mine, int64_t lo, int64_t hi, void *dst) {
  dtrt_Layout whole = rt_unsplit(l);
  int *all = rt_alloc((size_t)rt->p->nranks, sizeof *all);
  for (int r = 0; r < rt->p->nranks; r++) all[r] = r;
  Plan plan;
  if (!rt_plan(l, &whole, rt->p->nranks, all, rt->rank, &plan))
    rt_fail(rt, EXIT_FAULT, "part of a tensor that is written is on no rank");
  RtBox rows = rt_box(&whole, rt->rank);
  if (l->rank) rows.lo[0] = lo, rows.hi[0] = hi;
  for (int k = 0; k < plan.npieces; k++) { /* cut to the rows: all sources of a piece hold the same box */
    Piece *p = &plan.piece[k];
    if (p->at > 0) continue; /* who serves the first elements of a box serves all of it here */
    RtBox theirs = rt_box(l, p->src[0]), both = rt_box_meet(&rows, &theirs, l->rank);
    if (rt_box_elements(&both, l->rank) == 0) continue;
    Piece cut = rt_piece(&both, &theirs, l, &rows, &whole);
    cut.nsrc = p->nsrc;
    cut.src = p->src;
    pull(rt, &whole, l->reduce, &cut, mine, dst, false);
  }
  rt_plan_free(&plan);
  free(all);
}
