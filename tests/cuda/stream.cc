/* stream.cc: streams, events, and when operations run. An operation is queued; it runs when the host waits for it, or
   earlier, at random: sometimes at once, sometimes only at the end. Which of several streams goes on is random too.

     cudaMemcpyAsync(host, x, ..., a); host[0]     the copy has perhaps not happened: found by its value, or as a race
     kernel on a; kernel on b                      either first, unless b waits for an event of a                        */
#include "stream.h"

#include <algorithm>
#include <set>
#include <time.h>

namespace emu {

static std::set<CUstream_st *> streams;
static std::set<CUevent_st *> events;
static int captures;
static int launches;

static CUstream_st *new_stream(bool blocking) {
  CUstream_st *s = new CUstream_st{};
  s->lane = new_lane(), s->blocking = blocking;
  streams.insert(s);
  return s;
}

static CUstream_st *legacy() {
  static CUstream_st *const s = new_stream(true);
  return s;
}

CUstream_st *stream_of(cudaStream_t s) {
  if (!s || s == cudaStreamLegacy) return legacy();
  return streams.count(s) ? s : nullptr;
}

bool capturing() { return captures > 0; }

/* ---- running ------------------------------------------------------------------------------------------------------------------
 */

static Clock *current_clock;
Clock &stream_clock() { return *current_clock; }

Step step(Op &op, uint32_t lane, Clock &clock) {
  if (!op.started) {
    op.started = true;
    join(clock, op.issued);
    if (op.clocked) begin_operation(op.name, lane, clock);
  } else if (op.clocked) {
    now = op.actor;
  }
  current_clock = &clock;
  Step s = op.task();
  if (!op.clocked) return s;
  if (s == Step::DONE) clock = end_operation();
  op.actor = now;
  return s;
}

bool stream_exists(cudaStream_t s) { return stream_of(s) != nullptr; }

bool advance() {
  open_device(true);
  look();
  std::vector<CUstream_st *> some;
  for (CUstream_st *s : streams)
    if (!s->queue.empty()) some.push_back(s);
  for (size_t n = some.size(); n; n--) {
    size_t i = below((unsigned)n);
    CUstream_st *s = some[i];
    Step r = step(s->queue.front(), s->lane, s->clock);
    if (r == Step::DONE && !s->queue.empty()) s->queue.pop_front();
    if (r != Step::STUCK) {
      not_stuck();
      return true;
    }
    std::swap(some[i], some[n - 1]);
  }
  return false;
}

void run_until(const std::function<bool()> &done, const char *what) {
  while (!done()) {
    if (advance()) continue;
    std::string why;
    if (all_stuck(&why)) found("deadlock: the host waits in %s and nothing can go on\n%s", what, why.c_str());
    idle();
  }
}

/* How eager the device is: changes now and then. */
static void perhaps_run() {
  static unsigned eager = 3;
  if (eager == 3 || !below(32)) eager = below(3);
  if (eager == 0) return;
  for (unsigned n = eager == 1 ? below(4) : 1000; n && advance(); n--) {
  }
}

static void push(CUstream_st *s, const char *name, Task task, bool clocked) {
  s->queue.push_back({name, std::move(task), clocked, host_release()});
}

static double ms_now() {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static std::shared_ptr<Mark> push_mark(CUstream_st *s) {
  auto mark = std::make_shared<Mark>();
  push(
      s, "an event",
      [mark] {
        mark->done = true, mark->clock = stream_clock(), mark->ms = ms_now();
        return Step::DONE;
      },
      false);
  return mark;
}

static void push_wait(CUstream_st *s, std::shared_ptr<Mark> mark) {
  push(
      s, "a wait for an event",
      [mark] {
        if (!mark->done) return Step::STUCK;
        join(stream_clock(), mark->clock);
        return Step::DONE;
      },
      false);
}

cudaError_t enqueue(cudaStream_t stream, const char *name, Task task, bool clocked) {
  CUstream_st *s = stream_of(stream);
  if (!s) return fail(cudaErrorInvalidResourceHandle);
  if (s->capture) {
    capture_node(s, {name, std::move(task), clocked, {}});
    return cudaSuccess;
  }
  if (s != legacy()) {
    push(s, name, std::move(task), clocked);
  } else {
    if (captures) return fail(cudaErrorStreamCaptureImplicit);
    for (CUstream_st *other : streams)
      if (other->blocking && other != s) push_wait(s, push_mark(other));
    push(s, name, std::move(task), clocked);
    auto mark = push_mark(s);
    for (CUstream_st *other : streams)
      if (other->blocking && other != s) push_wait(other, mark);
  }
  not_stuck();
  perhaps_run();
  return cudaSuccess;
}

static void sync_stream(CUstream_st *s, const char *what) {
  run_until([s] { return s->queue.empty(); }, what);
  join(host, s->clock);
}

void sync_device(const char *what) {
  for (CUstream_st *s : streams) sync_stream(s, what);
}

/* The device is lost: nothing that is queued runs any more. */
static void drop_all() {
  for (CUstream_st *s : streams) s->queue.clear();
}

void launch(const char *kernel, dim3 blocks, dim3 threads, cudaStream_t stream, std::shared_ptr<const Body> body) {
  Entry e;
  if (e.error) return;
  uint64_t n = (uint64_t)threads.x * threads.y * threads.z;
  if (!n || n > 1024 || threads.z > 64 || !blocks.x || blocks.x > 0x7fffffff || !blocks.y || blocks.y > 65535 || !blocks.z ||
      blocks.z > 65535)
    return (void)fail(cudaErrorInvalidConfiguration);
  if (n % 32) found("kernel %s is launched with %llu threads: the dialect has multiples of 32", kernel, (unsigned long long)n);
  bool fails = ++launches == settings().kernel_error;
  enqueue(stream, kernel, [=] {
    if (fails)
      sticky(cudaErrorIllegalAddress), drop_all();
    else
      run_kernel(kernel, blocks, threads, *body);
    return Step::DONE;
  });
}

/* ---- copies
 * --------------------------------------------------------------------------------------------------------------------- */

/* One side of a copy, as the host may see it. */
static bool on_device(const void *p) { return in_space(p) && !is_pinned(p); }

static void copy(void *dst, const void *src, size_t bytes) {
  uint64_t at;
  if (in_space(src)) reads(src, bytes, "a copy", true);
  if (in_space(dst)) writes(dst, bytes, "a copy");
  if (!in_space(dst) && all_fresh(src, bytes))
    found("a copy to the host reads %zu bytes that nobody wrote: %s", bytes, describe(src).c_str());
  memmove(dst, src, bytes);
  if (on_device(dst) && place(src, bytes, &at) && at < DEVICE_END) copy_state(dst, src, bytes);
}

static bool right_kind(const void *dst, const void *src, cudaMemcpyKind kind) {
  bool to = on_device(dst), from = on_device(src);
  switch (kind) {
  case cudaMemcpyHostToHost: return !to && !from;
  case cudaMemcpyHostToDevice: return to && !from;
  case cudaMemcpyDeviceToHost: return !to && from;
  case cudaMemcpyDeviceToDevice: return to && from;
  default: return true;
  }
}

/* From pageable memory the bytes are taken at once; a copy to it has happened when the call returns. */
static cudaError_t copy_async(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream, bool wait) {
  CUstream_st *s = stream_of(stream);
  if (!s) return fail(cudaErrorInvalidResourceHandle);
  if (!bytes) return cudaSuccess;
  if (!right_kind(dst, src, kind)) return fail(cudaErrorInvalidValue);
  if (s->capture) return enqueue(stream, "a copy", [=] { return copy(dst, src, bytes), Step::DONE; });
  cudaError_t error;
  if (!in_space(src) && in_space(dst)) {
    auto taken = std::make_shared<std::string>((const char *)src, bytes);
    error = enqueue(stream, "a copy", [=] { return copy(dst, taken->data(), bytes), Step::DONE; });
  } else {
    error = enqueue(stream, "a copy", [=] { return copy(dst, src, bytes), Step::DONE; });
  }
  if (!error && (wait || !in_space(dst))) sync_stream(s, "a copy");
  return error;
}

} // namespace emu

using namespace emu;

extern "C" {

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  Entry e;
  return e.error ? e.error : copy_async(dst, src, bytes, kind, stream, false);
}
cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind) {
  Entry e;
  return e.error ? e.error : copy_async(dst, src, bytes, kind, nullptr, true);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream) {
  Entry e;
  if (e.error) return e.error;
  if (!bytes) return cudaSuccess;
  return enqueue(stream, "a memset", [=] {
    writes(p, bytes, "a memset");
    memset(p, value, bytes);
    return Step::DONE;
  });
}
cudaError_t cudaMemset(void *p, int value, size_t bytes) { return cudaMemsetAsync(p, value, bytes, nullptr); }

/* ---- streams
 * ------------------------------------------------------------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int) {
  Entry e;
  if (e.error) return e.error;
  legacy();
  *s = new_stream(!(flags & cudaStreamNonBlocking));
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) { return cudaStreamCreateWithPriority(s, flags, 0); }
cudaError_t cudaStreamCreate(cudaStream_t *s) { return cudaStreamCreateWithPriority(s, 0, 0); }

static cudaError_t waitable(cudaStream_t stream, CUstream_st **s) {
  if (!(*s = stream_of(stream))) return fail(cudaErrorInvalidResourceHandle);
  if (!(*s)->capture) return cudaSuccess;
  (*s)->capture->invalid = true;
  return fail(cudaErrorStreamCaptureUnsupported);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Entry e;
  CUstream_st *s;
  if (e.error) return e.error;
  if (cudaError_t error = waitable(stream, &s)) return error;
  run_until([s] { return s->queue.empty(); }, "cudaStreamDestroy");
  streams.erase(s);
  delete s;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Entry e;
  CUstream_st *s;
  if (e.error) return e.error;
  if (cudaError_t error = waitable(stream, &s)) return error;
  sync_stream(s, "cudaStreamSynchronize");
  return lost_error();
}

/* A program that asks again and again lets the device go on. */
static bool glance(const std::function<bool()> &done) {
  for (unsigned n = below(8); n && !done(); n--)
    if (!advance()) {
      polled_in_vain();
      idle();
      break;
    }
  return done();
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  Entry e;
  CUstream_st *s;
  if (e.error) return e.error;
  if (cudaError_t error = waitable(stream, &s)) return error;
  if (!glance([s] { return s->queue.empty(); })) return cudaErrorNotReady;
  join(host, s->clock);
  return lost_error();
}

cudaError_t cudaDeviceSynchronize(void) {
  Entry e;
  if (e.error) return e.error;
  if (captures) return fail(cudaErrorStreamCaptureUnsupported);
  sync_device("cudaDeviceSynchronize");
  return lost_error();
}
cudaError_t cudaDeviceReset(void) { return cudaDeviceSynchronize(); }

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t f, void *data) {
  Entry e;
  if (e.error) return e.error;
  return enqueue(
      stream, "a host function",
      [=] {
        Clock was = host;
        join(host, stream_clock());
        f(data);
        host = was;
        return Step::DONE;
      },
      false);
}

/* ---- events
 * --------------------------------------------------------------------------------------------------------------------------- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  Entry e;
  if (e.error) return e.error;
  *event = new CUevent_st{};
  (*event)->timed = !(flags & cudaEventDisableTiming);
  events.insert(*event);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Entry e;
  if (e.error) return e.error;
  if (!events.erase(event)) return fail(cudaErrorInvalidResourceHandle);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Entry e;
  if (e.error) return e.error;
  CUstream_st *s = stream_of(stream);
  if (!s || !events.count(event)) return fail(cudaErrorInvalidResourceHandle);
  event->capture = s->capture;
  if (s->capture) {
    event->nodes = s->frontier;
    return cudaSuccess;
  }
  if (s == legacy() && captures) return fail(cudaErrorStreamCaptureImplicit);
  event->mark = push_mark(s);
  perhaps_run();
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  Entry e;
  if (e.error) return e.error;
  CUstream_st *s = stream_of(stream);
  if (!s || !events.count(event)) return fail(cudaErrorInvalidResourceHandle);
  if (event->capture) return capture_wait(s, event);
  if (s->capture) return event->mark ? fail(cudaErrorStreamCaptureIsolation) : cudaSuccess;
  if (event->mark) push_wait(s, event->mark); /* an event that was never recorded is no wait */
  return cudaSuccess;
}

/* `come(done)` looks whether it has come, or waits until it has. */
static cudaError_t when_come(cudaEvent_t event, bool (*come)(const std::function<bool()> &done)) {
  Entry e;
  if (e.error) return e.error;
  if (!events.count(event)) return fail(cudaErrorInvalidResourceHandle);
  if (event->capture) return fail(cudaErrorCapturedEvent);
  auto mark = event->mark;
  if (!mark) return cudaSuccess;
  if (!come([&] { return mark->done || lost_error(); })) return cudaErrorNotReady;
  join(host, mark->clock);
  return lost_error();
}

cudaError_t cudaEventQuery(cudaEvent_t event) { return when_come(event, glance); }

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return when_come(event, [](const std::function<bool()> &done) {
    run_until(done, "cudaEventSynchronize");
    return true;
  });
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
  Entry e;
  if (e.error) return e.error;
  if (!events.count(from) || !events.count(to) || !from->timed || !to->timed || !from->mark || !to->mark)
    return fail(cudaErrorInvalidResourceHandle);
  if (!from->mark->done || !to->mark->done) return cudaErrorNotReady;
  *ms = (float)(to->mark->ms - from->mark->ms);
  return cudaSuccess;
}

/* ---- capture: what graph.cc does not know
 * ---------------------------------------------------------------------------------------------- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  Entry e;
  if (e.error) return e.error;
  CUstream_st *s = stream_of(stream);
  if (!s) return fail(cudaErrorInvalidResourceHandle);
  if (s == legacy()) return fail(cudaErrorStreamCaptureUnsupported);
  if (s->capture) return fail(cudaErrorIllegalState);
  s->capture = std::make_shared<Capture>();
  s->capture->stream.push_back(s);
  s->frontier.clear();
  s->branch = 0;
  captures++;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  Entry e;
  if (e.error) return e.error;
  CUstream_st *s = stream_of(stream);
  *graph = nullptr;
  if (!s || !s->capture) return fail(cudaErrorIllegalState);
  if (s->capture->stream[0] != s) return fail(cudaErrorStreamCaptureUnmatched);
  captures--;
  return capture_end(s, graph);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
  Entry e;
  if (e.error) return e.error;
  CUstream_st *s = stream_of(stream);
  if (!s) return fail(cudaErrorInvalidResourceHandle);
  *status = !s->capture           ? cudaStreamCaptureStatusNone
            : s->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                  : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *) { return cudaSuccess; }
}
