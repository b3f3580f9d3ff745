/* loop.c: what a rank does: fill the leaves, then per step load, forward, look at the loss, backward, update,
   report, save; and the functions by which emitted code shows values or gives up.

   All ranks must take the same way, because every step contains collectives. So whether to stop is decided once per
   step, at a meeting where rank 0 says what it saw. The loss has the same bits on every rank; it is looked at behind the
   backward pass, so that a device that runs on its own is not kept waiting, and before anything is updated. */
#define _GNU_SOURCE
#include "sync.h"

#include <math.h>
#include <signal.h>

/* From now on this rank is in `phase`. */
static void at(Rt *rt, Phase phase) {
  RankState *state = rt_state(rt);
  if (rt->o.profile) {
    rt_idle(rt);
    double now = rt_now();
    rt->phase_seconds[atomic_load_explicit(&state->phase, memory_order_relaxed)] += now - rt->phase_began;
    rt->phase_began = now;
  }
  atomic_store_explicit(&state->phase, phase, memory_order_relaxed);
}

/* ---- called by emitted code ---- */

static double scalar(dtrt_dtype t, const void *v) {
  switch (t) {
  case DTRT_F32: return *(const float *)v;
  case DTRT_F64: return *(const double *)v;
  case DTRT_I32: return *(const int32_t *)v;
  case DTRT_I64: return (double)*(const int64_t *)v;
  case DTRT_BOOL: return *(const bool *)v;
  default: return NAN;
  }
}

static bool output_wanted(const Rt *rt, const char *name) {
  if (!rt->p->trains) return true;
  for (int i = 0; i < rt->o.noutput; i++)
    if (strcmp(rt->o.output[i].name, name) == 0) return rt->cx.step + 1 == rt->total;
  return false;
}

void dtrt_tap(dtrt_Context *cx, int id, const void *value) {
  Rt *rt = cx->comm;
  const dtrt_Tap *tap = &rt->p->tap[id];
  size_t bytes = (size_t)rt_local_elements(&tap->layout) * rt_dtype_size(tap->layout.dtype);
  switch (tap->kind) {
  case DTRT_TAP_GRAD:
    if (rt->dumping) rt_grads_put(rt, tap, rt_reachable(rt, value, bytes));
    return;
  case DTRT_TAP_OUTPUT:
    if (!cx->checking && output_wanted(rt, tap->name)) rt_output(rt, tap, rt_reachable(rt, value, bytes));
    return;
  default: rt_show(rt, id, value, rt_dtype_size(tap->layout.dtype)); rt->is_shown[id] = true;
  }
}

/* From what was shown to the record of the step. */
static void read_shown(Rt *rt) {
  StepRecord *r = &rt->record;
  for (int i = 0; i < rt->p->ntaps; i++) {
    if (!rt->is_shown[i]) continue;
    double v = scalar(rt->p->tap[i].layout.dtype, rt->shown[i]);
    switch (rt->p->tap[i].kind) {
    case DTRT_TAP_LOSS: r->loss = v, r->has_loss = true; break;
    case DTRT_TAP_GRAD_NORM: r->grad_norm = v, r->has_norm = true; break;
    case DTRT_TAP_LR: r->lr = v, r->has_lr = true; break;
    default: r->metric[i] = v;
    }
  }
}

void dtrt_range(const dtrt_Context *cx, const dtrt_Dim *d, int64_t *lo, int64_t *n) {
  rt_dim_range(d, cx->rank, lo, n);
  *n -= *lo;
}

static _Noreturn void name_culprit(Rt *rt, float value, const char *tensor, int line) {
  rt_fail(rt, EXIT_DATA, "step %lld: the loss is not finite; the first tensor with such a value is %s (%s:%d), %g on rank %d",
          (long long)rt->cx.step + 1, tensor, rt->p->source, line, (double)value, rt->rank);
}

/* Is an element of this rank's part not finite? The first such one is put into *bad. */
static bool not_finite(Rt *rt, const float *x, const dtrt_Layout *layout, float *bad) {
  RtBox b = rt_box(layout, rt->rank);
  Piece p = rt_piece(&b, &b, layout, &b, layout);
  size_t bytes = (size_t)rt_local_elements(layout) * sizeof *x;
  const float *view = rt_borrow(rt, x, bytes, true);
  bool found = false;
  for (Runs r = rt_runs(&p, 0, p.elements); !found && rt_next_run(&r);)
    for (int64_t i = 0; i < r.n && !found; i++) {
      found = !isfinite(view[r.s + i]);
      if (found) *bad = view[r.s + i];
    }
  rt_return(rt, NULL, (void *)(uintptr_t)view, bytes);
  return found;
}

void dtrt_check_f32(dtrt_Context *cx, const float *x, int64_t n, const char *tensor, int line) {
  if (n <= 0) return;
  const float *view = rt_borrow(cx->comm, x, (size_t)n * sizeof *x, true);
  for (int64_t i = 0; i < n; i++)
    if (!isfinite(view[i])) name_culprit(cx->comm, view[i], tensor, line);
  rt_return(cx->comm, NULL, (void *)(uintptr_t)view, (size_t)n * sizeof *x);
}

void dtrt_check_part(dtrt_Context *cx, const float *x, const dtrt_Layout *layout, const char *tensor, int line) {
  float bad;
  if (not_finite(cx->comm, x, layout, &bad)) name_culprit(cx->comm, bad, tensor, line);
}

_Noreturn void dtrt_out_of_range(dtrt_Context *cx, int64_t value, int64_t limit, const char *tensor, int line) {
  rt_fail(cx->comm, EXIT_DATA, "step %lld: %s (%s:%d) is read at %lld, outside [0, %lld)", (long long)cx->step + 1, tensor,
          cx->comm->p->source, line, (long long)value, (long long)limit);
}

/* ---- a loss that is not finite ---- */

/* A parameter that is not finite went wrong in an earlier update; no forward pass need be blamed. */
static void check_parameters(Rt *rt) {
  for (int i = 0; i < rt->p->nleaves; i++) {
    const dtrt_Leaf *l = &rt->p->leaf[i];
    if (l->kind != DTRT_PARAM || l->layout.dtype != DTRT_F32) continue;
    float bad;
    if (not_finite(rt, (const float *)(rt->cx.arena + l->offset), &l->layout, &bad))
      rt_fail(rt, EXIT_DATA, "step %lld: the loss is not finite because the parameter %s (%s:%d) is not, since the update before",
              (long long)rt->cx.step + 1, l->name, rt->p->source, l->line);
  }
}

static void check_inputs(Rt *rt) {
  for (int i = 0; i < rt->p->nleaves; i++) {
    const dtrt_Leaf *l = &rt->p->leaf[i];
    if (l->kind != DTRT_INPUT || l->layout.dtype != DTRT_F32) continue;
    dtrt_check_part(&rt->cx, (const float *)(rt->cx.arena + l->offset), &l->layout, l->name, l->line);
  }
}

/* All ranks: runs the forward pass again with every tensor looked at. Does not return. */
static _Noreturn void find_culprit(Rt *rt) {
  rt_idle(rt);
  rt_world_barrier(rt);
  check_parameters(rt);
  rt_world_barrier(rt); /* a rank with a bad parameter ends the run before others blame a tensor */
  rt->cx.checking = true;
  rt_data_load(rt, rt->cx.step); /* the forward pass may have reused their memory */
  check_inputs(rt);
  rt_world_barrier(rt);
  rt_run(rt, AT_FORWARD, rt->p->forward, true);
  rt_settle(rt, AT_FORWARD);
  rt_world_barrier(rt);
  rt_fail(rt, EXIT_DATA, "step %lld: the loss is %g", (long long)rt->cx.step + 1, rt->record.loss);
}

/* ---- steps ---- */

/* Signals are blocked in the ranks; one that was sent to a rank counts like one sent to the program. */
static void note_signals(Rt *rt) {
  sigset_t pending;
  sigpending(&pending);
  for (size_t i = 0; i < 3; i++) {
    int sig = (int[]){SIGINT, SIGTERM, SIGHUP}[i];
    if (sigismember(&pending, sig)) atomic_store(&rt->shared->stop, sig);
  }
}

static bool agreed_to_stop(Rt *rt) {
  note_signals(rt);
  int stop = atomic_load(&rt->shared->stop);
  rt_meet(rt, &stop, sizeof stop);
  return stop != 0;
}

static bool writes_outputs(const Rt *rt) {
  for (int i = 0; i < rt->p->ntaps; i++)
    if (rt->p->tap[i].kind == DTRT_TAP_OUTPUT && output_wanted(rt, rt->p->tap[i].name)) return true;
  return false;
}

static void run_step(Rt *rt, int64_t step) {
  const dtrt_Program *p = rt->p;
  double t0 = rt_now();
  rt->cx.step = step;
  atomic_store_explicit(&rt_state(rt)->step, step, memory_order_relaxed);
  rt->dumping = rt->o.dump_grads && step == rt->start;
  bool plainly = rt->dumping || rt->o.profile || rt->o.trace || writes_outputs(rt);
  at(rt, AT_LOADING);
  rt_data_load(rt, step);
  at(rt, AT_FORWARD);
  if (p->forward) rt_run(rt, AT_FORWARD, p->forward, plainly);
  at(rt, AT_BACKWARD);
  if (rt->dumping) rt_grads_begin(rt);
  if (p->backward) rt_run(rt, AT_BACKWARD, p->backward, plainly);
  rt_settle(rt, AT_FORWARD);
  read_shown(rt);
  if (rt->record.has_loss && !isfinite(rt->record.loss) && !rt->o.keep_going) find_culprit(rt);
  at(rt, AT_UPDATE);
  if (p->update) rt_run(rt, AT_UPDATE, p->update, plainly);
  rt_settle(rt, AT_UPDATE);
  read_shown(rt);
  if (rt->dumping) rt_grads_end(rt);
  rt->dumping = false;
  rt->record.ms = (rt_now() - t0) * 1e3;
  at(rt, AT_START); /* between two steps */
  if (rt->rank == 0) rt_report_step(rt, step, &rt->record);
}

static void setup(Rt *rt) {
  const dtrt_Program *p = rt->p;
  rt->cx = (dtrt_Context){.rank = rt->rank, .nranks = p->nranks, .step = rt->start, .seed = rt->o.seed, .comm = rt};
  rt->record.metric = rt_alloc((size_t)p->ntaps, sizeof *rt->record.metric);
  rt->shown = rt_alloc((size_t)p->ntaps, sizeof *rt->shown);
  rt->is_shown = rt_alloc((size_t)p->ntaps, sizeof *rt->is_shown);
  if (rt->rank == 0) rt_save_check(rt), rt_report_open(rt);
  rt_comm_init(rt);
  rt_open(rt);
  rt_world_barrier(rt); /* until all have what they need nothing is printed but the line that says what is missing */
  if (rt->rank == 0) rt_report_start(rt);
  rt_leaves_fill(rt);
  rt_world_barrier(rt);
  rt->began = rt->phase_began = rt_now();
}

static bool save(Rt *rt, int64_t step) {
  at(rt, AT_SAVING);
  bool ok = rt_save(rt, step);
  at(rt, AT_START);
  return ok;
}

/* After an orderly stop: saves if that was asked for and says how to go on. */
static int interrupted(Rt *rt, int64_t step) {
  bool saved = rt->o.save && save(rt, step);
  if (rt->rank == 0) {
    if (rt->shared->bar) putchar('\n');
    fflush(stdout);
    if (saved)
      fprintf(stderr, "%s: interrupted after step %lld of %lld and saved; go on with: %s --resume %s\n", rt->o.argv0,
              (long long)step, (long long)rt->total, rt->o.argv0, rt->o.save);
    else
      fprintf(stderr, "%s: interrupted after step %lld of %lld; nothing was saved%s\n", rt->o.argv0, (long long)step,
              (long long)rt->total, rt->o.save ? "" : " (--save FILE.safetensors would have)");
  }
  return saved ? EXIT_SAVED : EXIT_DATA;
}

int rt_train(Rt *rt) {
  setup(rt);
  int rc = 0;
  int64_t step = rt->start;
  for (; step < rt->total; step++) {
    if (agreed_to_stop(rt)) break;
    run_step(rt, step);
    bool due = rt->o.save_every && (step + 1) % rt->o.save_every == 0 && step + 1 < rt->total;
    if (due) save(rt, step + 1); /* a full disk now may have room later: it has said so, and goes on */
  }
  if (step < rt->total)
    rc = interrupted(rt, step);
  else if (rt->o.save && !save(rt, step))
    rc = EXIT_DATA;
  at(rt, AT_END);
  if (rt->o.profile) rt_report_profile(rt, step - rt->start, rt_now() - rt->began);
  if (rt->rank == 0) rt_report_end(rt, step);
  if (rt->rank == rt->first) rt->shared->result = rc;
  rt_world_barrier(rt); /* all are done before any ends */
  rt_close(rt);
  rt_comm_free(rt);
  return 0;
}
