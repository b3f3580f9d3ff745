/* loop.c: what a rank does: fill the leaves, then per step load, forward, look at the loss, backward, update,
   report, save; and the functions by which emitted code shows values or gives up.

   All ranks must take the same way, because every step contains collectives. So whether to stop is decided once per
   step: rank 0 writes down what it saw, a barrier, all read it (two slots in turn, so that rank 0 cannot overwrite
   what a slow rank has yet to read). The loss has the same bits on every rank. */
#define _GNU_SOURCE
#include "rt.h"

#include <math.h>
#include <signal.h>

/* From now on this rank is in `phase`. */
static void at(Rt *rt, Phase phase) {
  RankState *state = &rt->shared->rank[rt->rank];
  if (rt->o.profile) {
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

/* A value that other ranks may read: scalars in local variables get a place in shared memory. */
static const void *shown(Rt *rt, const dtrt_Tap *tap, const void *value) {
  if (rt_in_arena(rt, value)) return value;
  if (tap->layout.rank) rt_fail(rt, EXIT_FAULT, "%s is shown from outside the arena", tap->name);
  char *place = rt->arenas + (size_t)(rt->rank + 1) * rt->stride - 64; /* behind the workspace */
  memcpy(place, value, rt_dtype_size(tap->layout.dtype));
  return place;
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
  StepRecord *r = &rt->record;
  dtrt_dtype t = tap->layout.dtype;
  switch (tap->kind) {
  case DTRT_TAP_LOSS: r->loss = scalar(t, value), r->has_loss = true; return;
  case DTRT_TAP_GRAD_NORM: r->grad_norm = scalar(t, value), r->has_norm = true; return;
  case DTRT_TAP_LR: r->lr = scalar(t, value), r->has_lr = true; return;
  case DTRT_TAP_METRIC: r->metric[id] = scalar(t, value); return;
  case DTRT_TAP_GRAD:
    if (rt->dumping) rt_grads_put(rt, tap, shown(rt, tap, value));
    return;
  case DTRT_TAP_OUTPUT:
    if (!cx->checking && output_wanted(rt, tap->name)) rt_output(rt, tap, shown(rt, tap, value));
    return;
  }
}

void dtrt_range(const dtrt_Context *cx, const dtrt_Dim *d, int64_t *lo, int64_t *n) {
  rt_dim_range(d, cx->rank, lo, n);
  *n -= *lo;
}

void dtrt_check_f32(dtrt_Context *cx, const float *x, int64_t n, const char *tensor, int line) {
  Rt *rt = cx->comm;
  for (int64_t i = 0; i < n; i++)
    if (!isfinite(x[i]))
      rt_fail(rt, EXIT_DATA, "step %lld: the loss is not finite; the first tensor with such a value is %s (%s:%d), %g on rank %d",
              (long long)cx->step + 1, tensor, rt->p->source, line, (double)x[i], cx->rank);
}

/* The first element of this rank's part that is not finite, or NULL. */
static const float *not_finite(const float *x, const dtrt_Layout *layout, int rank) {
  RtBox b = rt_box(layout, rank);
  Piece p = rt_piece(&b, &b, layout, &b, layout);
  for (Runs r = rt_runs(&p, 0, p.elements); rt_next_run(&r);)
    for (int64_t i = 0; i < r.n; i++)
      if (!isfinite(x[r.s + i])) return &x[r.s + i];
  return NULL;
}

void dtrt_check_part(dtrt_Context *cx, const float *x, const dtrt_Layout *layout, const char *tensor, int line) {
  const float *bad = not_finite(x, layout, cx->rank);
  if (bad) dtrt_check_f32(cx, bad, 1, tensor, line);
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
    if (not_finite((const float *)(rt->cx.arena + l->offset), &l->layout, rt->rank))
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
  rt_world_barrier(rt);
  check_parameters(rt);
  rt_world_barrier(rt); /* a rank with a bad parameter ends the run before others blame a tensor */
  rt->cx.checking = true;
  rt_data_load(rt, rt->cx.step); /* the forward pass may have reused their memory */
  check_inputs(rt);
  rt_world_barrier(rt);
  rt->p->forward(&rt->cx);
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

static bool agreed_to_stop(Rt *rt, int64_t step) {
  _Atomic int *decision = &rt->shared->decision[step & 1];
  note_signals(rt);
  if (rt->rank == 0) atomic_store(decision, atomic_load(&rt->shared->stop));
  rt_world_barrier(rt);
  return atomic_load(decision) != 0;
}

static void run_step(Rt *rt, int64_t step) {
  const dtrt_Program *p = rt->p;
  double t0 = rt_now();
  rt->cx.step = step;
  rt->record.has_loss = rt->record.has_norm = rt->record.has_lr = false;
  atomic_store_explicit(&rt->shared->rank[rt->rank].step, step, memory_order_relaxed);
  at(rt, AT_LOADING);
  rt_data_load(rt, step);
  at(rt, AT_FORWARD);
  if (p->forward) p->forward(&rt->cx);
  if (rt->record.has_loss && !isfinite(rt->record.loss) && !rt->o.keep_going) find_culprit(rt);
  at(rt, AT_BACKWARD);
  rt->dumping = rt->o.dump_grads && step == rt->start;
  if (rt->dumping) rt_grads_begin(rt);
  if (p->backward) p->backward(&rt->cx);
  at(rt, AT_UPDATE);
  if (p->update) p->update(&rt->cx);
  if (rt->dumping) rt_grads_end(rt);
  rt->dumping = false;
  rt->record.ms = (rt_now() - t0) * 1e3;
  at(rt, AT_START); /* between two steps */
  if (rt->rank == 0) rt_report_step(rt, step, &rt->record);
}

static void setup(Rt *rt) {
  const dtrt_Program *p = rt->p;
  char *mine = rt->arenas + (size_t)rt->rank * rt->stride;
  size_t workspace = ((size_t)p->arena_bytes + 4095) / 4096 * 4096;
  rt->cx = (dtrt_Context){.rank = rt->rank,
                          .nranks = p->nranks,
                          .step = rt->start,
                          .arena = mine,
                          .workspace = mine + workspace,
                          .setting = rt->o.setting,
                          .seed = rt->o.seed,
                          .comm = rt};
  rt->record.metric = rt_alloc((size_t)p->ntaps, sizeof(double));
  if (rt->o.profile) rt_part_times(true);
  if (rt->rank == 0) rt_save_check(rt), rt_report_open(rt);
  rt_comm_init(rt);
  rt_leaves_fill(rt);
  rt_world_barrier(rt);
  rt->began = rt->phase_began = rt_now();
}

/* After an orderly stop: saves if that was asked for and says how to go on. */
static int interrupted(Rt *rt, int64_t step) {
  bool saved = rt->o.save && rt_save(rt, step);
  if (rt->rank == 0) {
    if (rt->terminal) putchar('\n'); /* below the bar */
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
    if (agreed_to_stop(rt, step)) break;
    run_step(rt, step);
    bool due = rt->o.save_every && (step + 1) % rt->o.save_every == 0 && step + 1 < rt->total;
    if (due) rt_save(rt, step + 1); /* a full disk now may have room later: it has said so, and goes on */
  }
  if (step < rt->total)
    rc = interrupted(rt, step);
  else if (rt->o.save && !rt_save(rt, step))
    rc = EXIT_DATA;
  at(rt, AT_END);
  if (rt->o.profile) rt_report_profile(rt, step - rt->start, rt_now() - rt->began);
  if (rt->rank == 0) rt_report_end(rt, step);
  if (rt->rank == 0) rt->shared->result = rc;
  rt_world_barrier(rt); /* all are done before any ends */
  rt_comm_free(rt);
  return 0;
}
