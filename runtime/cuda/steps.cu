/* steps.cu: the phases of a step on the device. The first step is launched kernel by kernel, and every step that the host
   looks into. The second is recorded while it is launched, a graph per phase, and from then on replayed. Phases run behind each
   other; the host waits for the forward pass to see the loss while the backward pass runs, and for the update at the step's end.

     step 1: launches     step 2: records F, B, U and runs them     step 3 ...: F, B, (loss) U

   While it waits the host looks after the communicators, and tells how far the collectives came (flight.c). */
#include "device.h"

#include <nvtx3/nvToolsExt.h>
#include <sched.h>
#include <time.h>

/* ---- waiting ---- */

void steps_wait(Rt *rt, cudaEvent_t e) {
  enum { SPIN_NS = 200000, WATCH_NS = 1000000 };
  uint64_t begun = 0, watched = 0;
  cudaError_t state;
  while ((state = cudaEventQuery(e)) == cudaErrorNotReady) {
    uint64_t now = rt_ns();
    if (!begun) rt_waiting(rt, true), begun = watched = now;
    if (now - watched > WATCH_NS) comm_watch(rt), watched = now;
    if (now - begun < SPIN_NS) {
      sched_yield();
    } else {
      struct timespec t = {0, 20000};
      nanosleep(&t, NULL);
    }
  }
  if (begun) rt_waiting(rt, false);
  device_checked(rt, state, "waiting for what was launched");
}

void rt_idle(Rt *rt) {
  Transport *t = rt->transport;
  for (cudaStream_t s : {t->comm, t->compute}) {
    CUDA(rt, cudaEventRecord(t->join, s));
    steps_wait(rt, t->join);
  }
  steps_faults(rt);
}

/* ---- faults of kernels ---- */

void steps_faults(Rt *rt) {
  const dtcu_Fault *f = rt->transport->fault;
  long long step = (long long)rt->cx.step + 1;
  if (f->kind == DTCU_OUT_OF_RANGE)
    rt_fail(rt, EXIT_DATA, "step %lld: %s (%s:%d) is read at %lld, outside [0, %lld)", step, f->tensor, rt->p->source, f->line,
            (long long)f->value, (long long)f->limit);
  if (f->kind == DTCU_NOT_FINITE)
    rt_fail(rt, EXIT_DATA, "step %lld: the loss is not finite; the first tensor with such a value is %s (%s:%d), %g on rank %d",
            step, f->tensor, rt->p->source, f->line, (double)dtrt_float_of((int32_t)f->value), rt->rank);
}

void dtcu_launched(dtrt_Context *cx, const char *kernel) {
  device_checked(cx->comm, cudaGetLastError(), kernel);
  if (cx->checking) rt_idle(cx->comm);
}

/* ---- steps of the program ---- */

void dtcu_step(dtrt_Context *cx, const char *where) {
  cx->comm->transport->where = where;
  nvtxRangePushA(where);
}
void dtcu_step_end(dtrt_Context *cx) {
  (void)cx;
  nvtxRangePop();
}

/* Kernels see whether the host is looking. */
static void tell_checking(Rt *rt) {
  Transport *t = rt->transport;
  if (t->host_context.checking == rt->cx.checking) return;
  t->host_context.checking = rt->cx.checking;
  device_put(rt, t->context, &t->host_context, sizeof t->host_context);
}

/* ---- recording ---- */

static void record(Rt *rt, Recorded *r, void (*f)(dtrt_Context *)) {
  Transport *t = rt->transport;
  cudaGraph_t graph;
  CUDA(rt, cudaStreamBeginCapture(t->compute, cudaStreamCaptureModeThreadLocal));
  t->capturing = true, t->forked = false, t->epoch++, r->nflights = 0;
  f(&rt->cx);
  if (t->forked) { /* collectives that a later phase waits for end with this one */
    CUDA(rt, cudaEventRecord(t->join, t->comm));
    CUDA(rt, cudaStreamWaitEvent(t->compute, t->join, 0));
  }
  t->capturing = false, t->epoch++;
  CUDA(rt, cudaStreamEndCapture(t->compute, &graph));
  CUDA(rt, cudaGraphInstantiate(&r->exec, graph, 0));
  CUDA(rt, cudaGraphDestroy(graph));
}

static void replay(Rt *rt, Recorded *r) {
  Transport *t = rt->transport;
  for (int i = 0; i < r->nflights; i++) rt_flight(rt, r->flight[i].collective, t->phase, r->flight[i].serial);
  CUDA(rt, cudaGraphLaunch(r->exec, t->compute));
}

void rt_run(Rt *rt, Phase phase, void (*f)(dtrt_Context *), bool plainly) {
  Transport *t = rt->transport;
  Recorded *r = &t->recorded[phase];
  t->phase = phase;
  t->where = NULL;
  tell_checking(rt);
  if (plainly || rt->o.no_graph || rt->cx.checking || rt->cx.step == rt->start) {
    f(&rt->cx);
  } else {
    if (!r->exec) record(rt, r, f);
    replay(rt, r);
  }
  CUDA(rt, cudaEventRecord(r->done, t->compute));
  r->pending = true;
}

void rt_settle(Rt *rt, Phase phase) {
  Transport *t = rt->transport;
  for (int i = 0; i <= (int)phase; i++) {
    Recorded *r = &t->recorded[i];
    if (!r->pending) continue;
    steps_wait(rt, r->done);
    r->pending = false;
  }
  for (int i = 0; i < rt->p->ntaps; i++)
    if (rt->is_shown[i] && t->tap_phase[i] <= (int)phase) memcpy(rt->shown[i], t->shown[i], sizeof rt->shown[i]);
  if (phase != AT_UPDATE) return;
  *t->mark = 0; /* all is done: a number that is replayed means the next step's */
  rt_flight_done(rt);
  steps_faults(rt);
}

void steps_open(Rt *rt) {
  Transport *t = rt->transport;
  t->tap_phase = (int *)rt_alloc((size_t)rt->p->ntaps, sizeof *t->tap_phase);
  for (Recorded &r : t->recorded) CUDA(rt, cudaEventCreateWithFlags(&r.done, cudaEventDisableTiming));
}

void steps_close(Rt *rt) {
  Transport *t = rt->transport;
  for (Recorded &r : t->recorded) {
    if (r.exec) CUDA(rt, cudaGraphExecDestroy(r.exec));
    CUDA(rt, cudaEventDestroy(r.done));
    free(r.flight);
  }
  free(t->tap_phase);
}
