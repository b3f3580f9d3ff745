/* collective.c: what every collective of the program moves, worked out once when the program begins: the ranks of its
   group, which pieces of whose buffers make up this rank's part of the results (layout.c), and how many bytes that is.
   All-gather, reduce-scatter, all-to-all, permute and exchange differ only in their pieces; only an all-reduce of the same box
   over a whole group is known as such, because it can be done with less traffic.

     [4] over two ranks, a pending sum -> whole: `whole`, 4 elements; from split to whole: two pieces, received 8 bytes     */
#include "rt.h"

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
static bool is_whole(const dtrt_Collective *c, int nmembers) {
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

/* What an all-reduce moves, by the formula of the schedule: 2 (g - 1) / g of the whole. */
static double whole_bytes(const dtrt_Collective *c, const Comm *m) {
  double bytes = 0, g = m->nmembers;
  for (int i = 0; i < c->nbuf; i++)
    bytes += 2 * (g - 1) / g * (double)m->plan[i].elements * (double)rt_dtype_size(c->to[i].dtype);
  return bytes;
}

/* What this rank receives and sends; and is every member content with what it has? All must agree on that, so all are
   looked at. */
static void count_bytes(const dtrt_Collective *c, Comm *m, int rank) {
  m->local = !m->whole;
  m->received = m->sent = m->whole ? whole_bytes(c, m) : 0;
  for (int k = 0; k < m->nmembers && !m->whole; k++)
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
  m->member = (int *)rt_alloc((size_t)rt->p->nranks, sizeof *m->member);
  m->nmembers = rt_group(rt->p->nranks, rt->rank, c->nover, c->over, m->member);
  while (m->member[m->index] != rt->rank) m->index++;
  m->whole = is_whole(c, m->nmembers);
  m->src = rt_alloc((size_t)c->nbuf, sizeof *m->src);
  m->dst = rt_alloc((size_t)c->nbuf, sizeof *m->dst);
  m->plan = rt_alloc((size_t)c->nbuf, sizeof *m->plan);
  for (int i = 0; i < c->nbuf; i++) {
    if (!rt_plan(&c->from[i], &c->to[i], m->nmembers, m->member, rt->rank, &m->plan[i]))
      rt_comm_fault(rt, id, "part of the result is on no rank of the group");
    if (c->from[i].npending && !rt_can_reduce(c->from[i].dtype)) rt_comm_fault(rt, id, "no reductions of this type");
    m->elements += m->plan[i].elements;
    m->bytes += m->plan[i].elements * (int64_t)rt_dtype_size(c->to[i].dtype);
  }
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
  rt->comm = NULL;
}

void rt_comm_fault(Rt *rt, int id, const char *what) {
  const dtrt_Collective *c = &rt->p->collective[id];
  rt_fail(rt, EXIT_FAULT, "%s over %s, %s:%d: %s", c->kind, c->axes, c->file, c->line, what);
}

Comm *rt_comm_start(Rt *rt, int id, const void *const *src, void *const *dst) {
  Comm *m = &rt->comm[id];
  rt_trace(rt, "start", id);
  if (m->started) rt_comm_fault(rt, id, "started again before it was waited for");
  for (int i = 0; i < rt->p->collective[id].nbuf; i++) m->src[i] = src[i], m->dst[i] = dst[i];
  m->started = true;
  return m;
}

Comm *rt_comm_wait(Rt *rt, int id) {
  Comm *m = &rt->comm[id];
  rt_trace(rt, "wait", id);
  if (!m->started) rt_comm_fault(rt, id, "waited for before it was started");
  m->started = false;
  m->calls++;
  return m;
}

void dtrt_collective(dtrt_Context *cx, int id, const void *const *src, void *const *dst) {
  dtrt_start(cx, id, src, dst);
  dtrt_wait(cx, id);
}

/* ---- rows of a tensor, for files ---- */

void rt_rows_plan(Rt *rt, const dtrt_Layout *l, int64_t lo, int64_t hi, Plan *plan) {
  dtrt_Layout whole = rt_unsplit(l);
  int *all = rt_alloc((size_t)rt->p->nranks, sizeof *all), n = 0;
  for (int r = 0; r < rt->p->nranks; r++) all[r] = r;
  if (!rt_plan(l, &whole, rt->p->nranks, all, 0, plan)) rt_fail(rt, EXIT_FAULT, "part of a tensor that is written is on no rank");
  free(all);
  RtBox rows = rt_box(&whole, 0);
  if (l->rank) rows.lo[0] = lo, rows.hi[0] = hi;
  for (int k = 0; k < plan->npieces; k++) { /* all sources of a piece hold the same box */
    Piece *p = &plan->piece[k];
    RtBox theirs = rt_box(l, p->src[0]), both = rt_box_meet(&rows, &theirs, l->rank);
    if (p->at > 0 || rt_box_elements(&both, l->rank) == 0) { /* who serves a box's first elements serves all of it here */
      free(p->src);
      continue;
    }
    Piece cut = rt_piece(&both, &theirs, l, &rows, &whole);
    cut.nsrc = p->nsrc;
    cut.src = p->src;
    plan->piece[n++] = cut;
  }
  plan->npieces = n;
}
