/* flight.c: which collectives the device was given and how far it came, in shared memory, so that the supervisor can tell
   even when the rank itself hangs in a call.

   Each has a serial number, which the device writes to a mark when it is done; they are done in the order in which they were
   given. A recorded phase keeps its numbers when it is replayed; so at the end of a step, when everything is done, the mark goes
   back to 0.

     rank 3, the last collectives:
       step 17  forward   all_gather over model (charlm.dt:31)   done
       step 17  forward   all_reduce over model (charlm.dt:34)   under way                                          */
#include "sync.h"

static const char *const phases[] = {"start", "loading", "forward", "backward", "update", "saving", "end"};

void rt_flight(Rt *rt, int collective, int phase, uint32_t serial) {
  RankState *s = rt_state(rt);
  uint64_t n = atomic_load(&s->flights);
  s->flight[n % RT_FLIGHTS] = (Flight){rt->cx.step, collective, phase, serial};
  atomic_store(&s->flights, n + 1);
}

void rt_flight_mark(Rt *rt, uint32_t serial) { atomic_store_explicit(&rt_state(rt)->mark, serial, memory_order_relaxed); }

void rt_flight_done(Rt *rt) {
  RankState *s = rt_state(rt);
  atomic_store(&s->mark, 0);
  atomic_store(&s->done, atomic_load(&s->flights));
}

void rt_waiting(Rt *rt, bool begins) {
  atomic_store_explicit(&rt_state(rt)->waiting_since, begins ? rt_ns() : 0, memory_order_relaxed);
}

void rt_flight_show(Rt *rt) { rt->shared->stuck = true; }

/* How many are done: those before the last step, and of the others up to the one that the mark names. */
static uint64_t count_done(const RankState *s, uint64_t first, uint64_t end) {
  uint64_t done = atomic_load(&s->done), from = done > first ? done : first;
  uint32_t mark = atomic_load(&s->mark);
  for (uint64_t n = end; mark && n > from; n--)
    if (s->flight[(n - 1) % RT_FLIGHTS].serial == mark) return n;
  return done;
}

void rt_flight_at(const Rt *rt, int r, int *running, int *last) {
  const RankState *s = &rt->shared->rank[r];
  uint64_t end = atomic_load(&s->flights), first = end > RT_FLIGHTS ? end - RT_FLIGHTS : 0, done = count_done(s, first, end);
  if (end == 0) return;
  *running = done < end ? s->flight[done % RT_FLIGHTS].collective : -1;
  *last = done > first ? s->flight[(done - 1) % RT_FLIGHTS].collective : -1;
}

void rt_flight_print(const Rt *rt, int r, FILE *out) {
  const RankState *s = &rt->shared->rank[r];
  uint64_t end = atomic_load(&s->flights), first = end > RT_FLIGHTS ? end - RT_FLIGHTS : 0, done = count_done(s, first, end);
  fprintf(out, end ? "rank %d, the last collectives:\n" : "rank %d was given no collective yet\n", rt->first + r);
  for (uint64_t n = first; n < end; n++) {
    const Flight *f = &s->flight[n % RT_FLIGHTS];
    if (f->collective < 0 || f->collective >= rt->p->ncollectives) continue;
    const dtrt_Collective *c = &rt->p->collective[f->collective];
    fprintf(out, "  step %lld  %-8s  %s over %s (%s:%d)  %s\n", (long long)f->step + 1, phases[f->phase], c->kind, c->axes,
            c->file, c->line,
            n < done    ? "done"
            : n == done ? "under way"
                        : "behind it");
  }
}
