/* graph.cc: what a capture collects and how a graph runs: nodes in any order that their dependencies allow, with the
   arguments of the time they were captured.

     capture on a: k1; event on a; b waits; k2 on b, k3 on a; event on b; a waits     k1 -> {k2, k3}, in any order     */
#include "stream.h"

#include <algorithm>

struct CUgraph_st {
  std::vector<emu::Node> node;
  unsigned branches;
};
struct CUgraphExec_st {
  std::vector<emu::Node> node;
  std::vector<uint32_t> lane; /* of each branch */
  bool running;
};

namespace emu {

void capture_node(CUstream_st *s, Op op) {
  Capture &c = *s->capture;
  c.node.push_back({std::move(op), s->frontier, s->branch});
  s->frontier = {(int)c.node.size() - 1};
}

cudaError_t capture_wait(CUstream_st *s, CUevent_st *event) {
  if (!s->capture) {
    if (event->capture->invalid) return fail(cudaErrorStreamCaptureInvalidated);
    s->capture = event->capture;
    s->frontier.clear();
    s->branch = (unsigned)s->capture->stream.size();
    s->capture->stream.push_back(s);
  }
  if (s->capture != event->capture) return fail(cudaErrorStreamCaptureMerge);
  for (int n : event->nodes)
    if (std::find(s->frontier.begin(), s->frontier.end(), n) == s->frontier.end()) s->frontier.push_back(n);
  return cudaSuccess;
}

static void mark_before(const Capture &c, const std::vector<int> &from, std::vector<bool> &seen) {
  std::vector<int> todo = from;
  while (!todo.empty()) {
    int n = todo.back();
    todo.pop_back();
    if (seen[n]) continue;
    seen[n] = true;
    todo.insert(todo.end(), c.node[n].after.begin(), c.node[n].after.end());
  }
}

cudaError_t capture_end(CUstream_st *s, cudaGraph_t *graph) {
  std::shared_ptr<Capture> c = s->capture;
  std::vector<bool> seen(c->node.size());
  mark_before(*c, s->frontier, seen);
  bool joined = std::find(seen.begin(), seen.end(), false) == seen.end();
  for (CUstream_st *each : c->stream) each->capture = nullptr, each->frontier.clear();
  if (c->invalid) return fail(cudaErrorStreamCaptureInvalidated);
  if (!joined) return fail(cudaErrorStreamCaptureUnjoined);
  *graph = new CUgraph_st{c->node, (unsigned)c->stream.size()};
  return cudaSuccess;
}

/* A launch of a graph: its nodes, each with what its end knew. */
struct Run {
  CUgraphExec_st *exec;
  std::vector<Node> node;
  std::vector<bool> done;
  std::vector<Clock> clock;
  size_t left;
};

static bool ready(const Run &r, size_t i) {
  return !r.done[i] && std::all_of(r.node[i].after.begin(), r.node[i].after.end(), [&](int n) { return r.done[n]; });
}

static void begin(Run &r) {
  r.exec->running = true;
  r.node = r.exec->node;
  r.left = r.node.size();
  r.done.assign(r.left, false);
  r.clock.assign(r.left, Clock());
}

static Step run(Run &r, Clock &start) {
  std::vector<size_t> some;
  for (size_t i = 0; i < r.node.size(); i++)
    if (ready(r, i)) some.push_back(i);
  for (size_t n = some.size(); n; n--) {
    size_t k = below((unsigned)n), i = some[k];
    Op &op = r.node[i].op;
    if (!op.started) {
      r.clock[i] = start;
      for (int before : r.node[i].after) join(r.clock[i], r.clock[before]);
    }
    Step s = step(op, r.exec->lane[r.node[i].branch], r.clock[i]);
    if (s == Step::DONE) r.done[i] = true, r.left--;
    if (s != Step::STUCK) return Step::MOVED;
    std::swap(some[k], some[n - 1]);
  }
  return Step::STUCK;
}

} // namespace emu

using namespace emu;

extern "C" {

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
  Entry e;
  if (e.error) return e.error;
  *exec = new CUgraphExec_st{graph->node, {}, false};
  for (unsigned i = 0; i < graph->branches; i++) (*exec)->lane.push_back(new_lane());
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  Entry e;
  if (e.error) return e.error;
  auto r = std::make_shared<Run>();
  r->exec = exec;
  return enqueue(
      stream, "a graph",
      [r, begun = false]() mutable {
        if (!begun && r->exec->running) return Step::STUCK; /* a graph does not run twice at a time */
        if (!begun) begun = true, begin(*r);
        Clock &clock = stream_clock(), start = clock;
        Step s = r->left ? run(*r, start) : Step::MOVED;
        if (r->left) return s;
        for (const Clock &c : r->clock) join(clock, c);
        r->exec->running = false;
        return Step::DONE;
      },
      false);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n) {
  if (nodes) return fail(cudaErrorNotSupported);
  *n = graph->node.size();
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  Entry e;
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  Entry e;
  if (exec) run_until([&] { return !exec->running; }, "cudaGraphExecDestroy");
  delete exec;
  return cudaSuccess;
}
}
