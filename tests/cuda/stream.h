/* stream.h: queues, events and captures, as stream.cc and graph.cc share them. */
#ifndef DTCU_STREAM_H
#define DTCU_STREAM_H

#include "emulator.h"

#include <deque>

namespace emu {

/* An operation that waits or runs. */
struct Op {
  const char *name;
  Task task;
  bool clocked;
  Clock issued; /* what the host knew */
  bool started = false;
  Actor actor = {};
};
/* One step of it, on a lane that knows `clock`. */
Step step(Op &, uint32_t lane, Clock &clock);

/* A moment of a stream: what an event that was recorded stands for. */
struct Mark {
  bool done = false;
  Clock clock;
  double ms = 0;
};

struct Node {
  Op op;
  std::vector<int> after; /* nodes */
  unsigned branch;        /* which stream it was captured from */
};
struct Capture {
  std::vector<Node> node;
  std::vector<cudaStream_t> stream; /* the first is where it began */
  bool invalid = false;
};

} // namespace emu

struct CUstream_st {
  uint32_t lane;
  bool blocking;
  emu::Clock clock;
  std::deque<emu::Op> queue;
  std::shared_ptr<emu::Capture> capture;
  std::vector<int> frontier; /* the captured nodes that the next one comes after */
  unsigned branch;
};
struct CUevent_st {
  std::shared_ptr<emu::Mark> mark; /* of the last record */
  bool timed;
  std::shared_ptr<emu::Capture> capture; /* recorded while capturing: */
  std::vector<int> nodes;
};

namespace emu {
/* The stream of a handle, null if there is none. */
CUstream_st *stream_of(cudaStream_t);
void capture_node(CUstream_st *, Op);
cudaError_t capture_wait(CUstream_st *, CUevent_st *);
cudaError_t capture_end(CUstream_st *, cudaGraph_t *);
} // namespace emu
#endif
