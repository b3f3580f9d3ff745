/* comm.cu: collectives by NCCL on a stream of their own, as exchange.cu planned them. Starting one makes that stream wait for
   what the compute stream was given so far; waiting makes the compute stream wait for the collective. The host waits for nothing.

     compute  | kernels | start 3: event -> | kernels of step 9 | wait 3: <- event | kernels |
     comm                    | pack, NCCL, unpack, mark |

   All ranks start collectives in the program's order, on one stream, so that no two ranks can wait for each other. A message
   and its answer are in one group, so sends cannot block either. Every set of digits that some collective works over has a
   communicator, split off the world's; the world's is made from an id that rank 0 hands out at a meeting of all ranks. */
#include "device.h"

namespace {

/* ---- checks ---- */

ncclDataType_t type_of(dtrt_dtype t) {
  static const ncclDataType_t types[] = {ncclFloat32, ncclBfloat16, ncclFloat16, ncclFloat64, ncclInt32, ncclInt64, ncclUint8};
  return types[t];
}

/* Of bools, which are 0 and 1, a sum is any and a product is all. */
ncclRedOp_t operation(dtrt_dtype t, dtrt_reduce op) {
  switch (op) {
  case DTRT_PROD: return t == DTRT_BOOL ? ncclMin : ncclProd;
  case DTRT_MAX: return ncclMax;
  case DTRT_MIN: return ncclMin;
  default: return t == DTRT_BOOL ? ncclMax : ncclSum;
  }
}

/* ---- communicators ---- */

int by_stride(const void *a, const void *b) { return ((const dtrt_Digit *)a)->stride - ((const dtrt_Digit *)b)->stride; }

/* Digits in one form: ascending, without those of size 1, neighbours merged. */
int canonical(const dtrt_Collective *c, dtrt_Digit out[DTRT_MAX_PARTS]) {
  dtrt_Digit d[DTRT_MAX_PARTS];
  int n = 0, k = 0;
  for (int i = 0; i < c->nover; i++)
    if (c->over[i].size > 1) d[n++] = c->over[i];
  qsort(d, (size_t)n, sizeof *d, by_stride);
  for (int i = 0; i < n; i++) {
    if (k && out[k - 1].stride * out[k - 1].size == d[i].stride)
      out[k - 1].size *= d[i].size;
    else
      out[k++] = d[i];
  }
  return k;
}

bool same_group(const dtrt_Collective *a, const dtrt_Collective *b) {
  dtrt_Digit x[DTRT_MAX_PARTS], y[DTRT_MAX_PARTS];
  int n = canonical(a, x), m = canonical(b, y);
  return n == m && memcmp(x, y, (size_t)n * sizeof *x) == 0;
}

/* All ranks come here in the same order. */
int communicator(Rt *rt, int id) {
  Transport *t = rt->transport;
  const dtrt_Collective *c = rt->p->collective;
  const Comm *m = &rt->comm[id];
  if (m->nmembers == rt->p->nranks) return 0;
  for (int k = 1; k < t->ncomms; k++)
    if (same_group(&c[t->comm_first[k]], &c[id])) return k;
  t->comm_first[t->ncomms] = id;
  NCCL(rt, ncclCommSplit(t->nccl[0], m->member[0], rt->rank, &t->nccl[t->ncomms], NULL));
  return t->ncomms++;
}

bool is_alone(const Comm *m) { return m->nmembers == 1; }

} // namespace

ncclResult_t comm_checked(Rt *rt, ncclResult_t e, const char *call) {
  char place[256];
  if (e == ncclSuccess || e == ncclInProgress) return e;
  const Transport *t = rt->transport;
  rt_flight_show(rt);
  rt_fail(rt, EXIT_DATA, "%s: %.*s failed on rank %d: %s (%.300s)", device_place(rt, place), (int)strcspn(call, "("), call,
          rt->rank, ncclGetErrorString(e), ncclGetLastError(t->nccl ? t->nccl[0] : NULL));
}

void comm_watch(Rt *rt) {
  Transport *t = rt->transport;
  if (t->mark) rt_flight_mark(rt, *(volatile uint32_t *)t->mark);
  for (int k = 0; k < t->ncomms; k++) {
    ncclResult_t state = ncclSuccess;
    NCCL(rt, ncclCommGetAsyncError(t->nccl[k], &state));
    comm_checked(rt, state, "a collective");
  }
}

void comm_open(Rt *rt) {
  Transport *t = rt->transport;
  ncclUniqueId id = {};
  for (int i = 0; i < rt->p->ncollectives; i++) CUDA(rt, cudaEventCreateWithFlags(&t->exchange[i].done, cudaEventDisableTiming));
  if (rt->p->nranks == 1) return;
  t->nccl = (ncclComm_t *)rt_alloc((size_t)rt->p->ncollectives + 1, sizeof *t->nccl);
  t->comm_first = (int *)rt_alloc((size_t)rt->p->ncollectives + 1, sizeof *t->comm_first);
  if (rt->rank == 0) NCCL(rt, ncclGetUniqueId(&id));
  rt_meet(rt, &id, sizeof id);
  rt_waiting(rt, true);
  NCCL(rt, ncclCommInitRank(&t->nccl[0], rt->p->nranks, id, rt->rank));
  t->ncomms = 1;
  for (int i = 0; i < rt->p->ncollectives; i++) t->exchange[i].comm = is_alone(&rt->comm[i]) ? 0 : communicator(rt, i);
  rt_waiting(rt, false);
}

void comm_close(Rt *rt) {
  Transport *t = rt->transport;
  for (int i = 0; i < rt->p->ncollectives; i++) CUDA(rt, cudaEventDestroy(t->exchange[i].done));
  for (int k = t->ncomms - 1; k >= 0; k--) NCCL(rt, ncclCommDestroy(t->nccl[k]));
  free(t->nccl);
  free(t->comm_first);
}

/* ---- carrying out ---- */

namespace {

void all_reduce(Rt *rt, const dtrt_Collective *c, const Exchange *x, const Comm *m) {
  Transport *t = rt->transport;
  for (int i = 0; i < c->nbuf; i++)
    if (x->part[i].packed) move_pack(rt, c->to[i].dtype, &x->part[i].pack, m->src[i], t->staging + x->part[i].sent);
  NCCL(rt, ncclGroupStart());
  for (int i = 0; i < c->nbuf; i++) {
    const Part *p = &x->part[i];
    char *packed = t->staging + p->sent;
    dtrt_dtype dtype = c->to[i].dtype;
    if (p->elements)
      NCCL(rt, ncclAllReduce(p->packed ? packed : m->src[i], p->packed ? packed : m->dst[i], (size_t)p->elements, type_of(dtype),
                             operation(dtype, c->from[i].reduce), t->nccl[x->comm], t->comm));
  }
  NCCL(rt, ncclGroupEnd());
  for (int i = 0; i < c->nbuf; i++)
    if (x->part[i].packed)
      move_unpack(rt, c->to[i].dtype, DTRT_NONE, &x->part[i].unpack, m->src[i], t->staging + x->part[i].sent, m->dst[i]);
}

/* A copy of buffer i's source, which will be overwritten before all of it is read: behind what the collective has in the
   staging, each buffer at a place of its own. */
const void *apart(Rt *rt, int id, int i, const void *src) {
  Transport *t = rt->transport;
  const dtrt_Layout *from = rt->p->collective[id].from;
  int64_t at = t->exchange[id].staging, bytes = 0;
  for (int k = 0; k <= i; k++) {
    bytes = rt_local_elements(&from[k]) * (int64_t)rt_dtype_size(from[k].dtype);
    at += (int64_t)device_align((size_t)bytes);
  }
  if (at > rt->p->staging_bytes) rt_comm_fault(rt, id, "in place, and no room for a copy");
  char *copy = t->staging + at - device_align((size_t)bytes);
  CUDA(rt, cudaMemcpyAsync(copy, src, (size_t)bytes, cudaMemcpyDeviceToDevice, t->comm));
  return copy;
}

/* NCCL wants a part exactly at its place in the whole, or apart from it. */
bool in_the_way(const char *whole, const char *part, size_t bytes, const Comm *m) {
  return part != whole + (size_t)m->index * bytes && part + bytes > whole && whole + (size_t)m->nmembers * bytes > part;
}

void gather_or_scatter(Rt *rt, int id, const dtrt_Collective *c, const Exchange *x, const Comm *m) {
  Transport *t = rt->transport;
  NCCL(rt, ncclGroupStart()); /* NCCL begins at the end of the group: behind the copies */
  for (int i = 0; i < c->nbuf; i++) {
    dtrt_dtype dtype = c->to[i].dtype;
    size_t n = (size_t)x->part[i].elements, bytes = n * rt_dtype_size(dtype);
    const char *src = (const char *)m->src[i], *dst = (const char *)m->dst[i];
    bool overlaps = x->way == BY_ALL_GATHER ? in_the_way(dst, src, bytes, m) : in_the_way(src, dst, bytes, m);
    if (overlaps) src = (const char *)apart(rt, id, i, src);
    if (x->way == BY_ALL_GATHER)
      NCCL(rt, ncclAllGather(src, m->dst[i], n, type_of(dtype), t->nccl[x->comm], t->comm));
    else
      NCCL(rt,
           ncclReduceScatter(src, m->dst[i], n, type_of(dtype), operation(dtype, c->from[i].reduce), t->nccl[x->comm], t->comm));
  }
  NCCL(rt, ncclGroupEnd());
}

void messages(Rt *rt, const dtrt_Collective *c, const Exchange *x) {
  Transport *t = rt->transport;
  bool any = false;
  for (int i = 0; i < c->nbuf; i++) any = any || x->part[i].nsend || x->part[i].nrecv;
  if (!any) return;
  NCCL(rt, ncclGroupStart());
  for (int i = 0; i < c->nbuf; i++) {
    const Part *p = &x->part[i];
    for (int k = 0; k < p->nsend; k++)
      NCCL(rt, ncclSend(t->staging + p->sent + p->send[k].offset, (size_t)p->send[k].bytes, ncclUint8, p->send[k].member,
                        t->nccl[x->comm], t->comm));
    for (int k = 0; k < p->nrecv; k++)
      NCCL(rt, ncclRecv(t->staging + p->received + p->recv[k].offset, (size_t)p->recv[k].bytes, ncclUint8, p->recv[k].member,
                        t->nccl[x->comm], t->comm));
  }
  NCCL(rt, ncclGroupEnd());
}

void exchange(Rt *rt, int id, const dtrt_Collective *c, const Exchange *x, const Comm *m) {
  Transport *t = rt->transport;
  for (int i = 0; i < c->nbuf; i++) move_pack(rt, c->to[i].dtype, &x->part[i].pack, m->src[i], t->staging + x->part[i].sent);
  messages(rt, c, x);
  for (int i = 0; i < c->nbuf; i++) {
    const dtrt_Layout *to = &c->to[i];
    const void *src = m->src[i] == m->dst[i] && x->part[i].shifts ? apart(rt, id, i, m->src[i]) : m->src[i];
    if (m->plan[i].identity) move_identity(rt, to->dtype, to->reduce, m->dst[i], rt_local_elements(to));
    move_unpack(rt, to->dtype, c->from[i].npending ? c->from[i].reduce : DTRT_NONE, &x->part[i].unpack, src,
                t->staging + x->part[i].received, m->dst[i]);
  }
}

/* A phase that is recorded keeps its list, to be told at each replay. */
void note(Rt *rt, int id) {
  Transport *t = rt->transport;
  Recorded *r = &t->recorded[t->phase];
  t->serial++;
  move_mark(rt, t->mark, t->serial);
  if (!t->capturing) {
    rt_flight(rt, id, t->phase, t->serial);
    return;
  }
  if (r->nflights == MAX_PHASE_FLIGHTS) return; /* the last 64 are told in any case */
  if (r->nflights == r->room) {
    r->room = 2 * r->room + 16;
    void *grown = realloc(r->flight, (size_t)r->room * sizeof *r->flight);
    if (!grown) rt_fail(rt, EXIT_DATA, "out of memory");
    r->flight = (decltype(r->flight))grown;
  }
  r->flight[r->nflights++] = {id, t->serial};
}

} // namespace

void dtrt_start(dtrt_Context *cx, int id, const void *const *src, void *const *dst) {
  Rt *rt = cx->comm;
  Transport *t = rt->transport;
  const dtrt_Collective *c = &rt->p->collective[id];
  const Comm *m = rt_comm_start(rt, id, src, dst);
  Exchange *x = &t->exchange[id];
  CUDA(rt, cudaEventRecord(t->fork, t->compute));
  CUDA(rt, cudaStreamWaitEvent(t->comm, t->fork, 0));
  t->forked = true;
  rt_waiting(rt, true); /* the first use of a connection may wait for the other side */
  if (x->way == BY_ALL_REDUCE)
    all_reduce(rt, c, x, m);
  else if (x->way == BY_EXCHANGE)
    exchange(rt, id, c, x, m);
  else
    gather_or_scatter(rt, id, c, x, m);
  rt_waiting(rt, false);
  note(rt, id);
  CUDA(rt, cudaEventRecord(x->done, t->comm));
  x->epoch = t->epoch;
}

/* While times are taken: what the compute stream stands still for. */
static void take_time(Rt *rt, Comm *m) {
  Transport *t = rt->transport;
  CUDA(rt, cudaEventRecord(t->join, t->compute));
  steps_wait(rt, t->join);
  uint64_t begun = rt_ns();
  CUDA(rt, cudaEventRecord(t->join, t->comm));
  steps_wait(rt, t->join);
  m->ns_move += rt_ns() - begun;
  m->in_update = t->phase == AT_UPDATE;
}

void dtrt_wait(dtrt_Context *cx, int id) {
  Rt *rt = cx->comm;
  Transport *t = rt->transport;
  Exchange *x = &t->exchange[id];
  Comm *m = rt_comm_wait(rt, id);
  if (rt->o.profile) take_time(rt, m);
  if (t->capturing && x->epoch != t->epoch) return; /* it ended with the phase in which it was started */
  CUDA(rt, cudaStreamWaitEvent(t->compute, x->done, 0));
}

/* ---- rows of a tensor for rank 0's files ---- */

/* Elements [at, at + n) of a piece, as rank `from` has them, into rank 0's memory. */
static void fetch(Rt *rt, dtrt_dtype dtype, const Piece *p, int from, int64_t at, int64_t n, const void *mine, void *out) {
  Transport *t = rt->transport;
  size_t bytes = (size_t)n * rt_dtype_size(dtype);
  if (rt->rank != from && rt->rank != 0) return;
  if (rt->rank == from) {
    Move m = {};
    m.nloops = p->nloops, m.nsrc = 1, m.run = p->run, m.soff = p->soff, m.at = at, m.elements = n;
    memcpy(m.count, p->count, sizeof m.count);
    memcpy(m.sstep, p->sstep, sizeof m.sstep);
    move_pack_one(rt, dtype, &m, mine, t->gather);
    if (from) NCCL(rt, ncclSend(t->gather, bytes, ncclUint8, 0, t->nccl[0], t->comm));
  } else {
    NCCL(rt, ncclRecv(t->gather, bytes, ncclUint8, from, t->nccl[0], t->comm));
  }
  if (rt->rank == 0) CUDA(rt, cudaMemcpyAsync(out, t->gather, bytes, cudaMemcpyDeviceToHost, t->comm));
  CUDA(rt, cudaEventRecord(t->join, t->comm));
  steps_wait(rt, t->join);
}

void rt_gather_rows(Rt *rt, const dtrt_Layout *l, const void *mine, int64_t lo, int64_t hi, void *dst) {
  size_t size = rt_dtype_size(l->dtype);
  int64_t most = (int64_t)rt->transport->gather_bytes / (int64_t)size;
  Plan plan;
  rt_idle(rt);
  rt_rows_plan(rt, l, lo, hi, &plan);
  for (int k = 0; k < plan.npieces; k++) {
    const Piece *p = &plan.piece[k];
    for (int64_t at = 0; at < p->elements; at += most) {
      int64_t n = p->elements - at < most ? p->elements - at : most;
      char **part = (char **)rt_alloc((size_t)p->nsrc, sizeof *part), *sum = NULL;
      for (int s = 0; s < p->nsrc; s++) {
        part[s] = (char *)rt_alloc(rt->rank ? 0 : (size_t)n, size);
        fetch(rt, l->dtype, p, p->src[s], at, n, mine, part[s]);
      }
      sum = part[0];
      if (rt->rank == 0 && p->nsrc > 1) rt_reduce(l->dtype, l->reduce, p->nsrc, (const char *const *)part, 1, &sum, n, false);
      int64_t from = 0;
      for (Runs r = rt_runs(p, at, at + n); rt->rank == 0 && rt_next_run(&r); from += r.n)
        memcpy((char *)dst + (size_t)r.d * size, sum + (size_t)from * size, (size_t)r.n * size);
      for (int s = 0; s < p->nsrc; s++) free(part[s]);
      free(part);
    }
  }
  rt_plan_free(&plan);
}
