/* comm.h: what processes of one bootstrap share, as world.cc, collective.cc and nccl.cc see it. */
#ifndef DTCU_COMM_H
#define DTCU_COMM_H

#include "emulator.h"
#include "nccl.h"

#include <atomic>

namespace emu {

enum { MAX_PROCESSES = 256, TEXT = 512 };

/* A process of the world: all that others need to read its memory, and what it waits for. */
struct Process {
  std::atomic<int> pid; /* 0: not there yet */
  int file, device;
  std::atomic<bool> gone;
  std::atomic<uint64_t> vain; /* 1 + the world's progress at which a look at everything moved nothing */
  char waits_for[TEXT];
};

enum Kind { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, SEND, RECV };
/* An operation, as ranks compare it. */
struct Description {
  Kind kind;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root; /* or peer */
  uint64_t count;
  uint64_t source; /* place in the process's memory */
};
std::string text_of(const Description &);

/* One per rank of a communicator. Numbers count its collectives from 1. */
struct Slot {
  std::atomic<uint64_t> posted, read;
  Description what;
};
/* For calls of the host that meet (split). */
struct HostSlot {
  std::atomic<uint64_t> posted, named, done;
  int color, key;
  uint64_t board; /* of the new communicator, given by the first of a color */
};
/* From one rank to another. */
struct Channel {
  std::atomic<uint64_t> sent, received;
  Description what;
};
struct Board {
  uint32_t id;
  int nranks;
  int world_rank[MAX_PROCESSES];
  Slot slot[MAX_PROCESSES];
  HostSlot host[MAX_PROCESSES];
  Channel channel[]; /* [from * nranks + to] */
};

struct World {
  std::atomic<int> nranks;
  std::atomic<uint64_t> progress; /* counts everything that ever moved */
  std::atomic<uint64_t> next;     /* free from here */
  std::atomic<uint64_t> root;     /* the board of all ranks */
  std::atomic<uint32_t> boards;
  std::atomic<bool> failed; /* an asynchronous error was injected */
  Process process[MAX_PROCESSES];
};
constexpr uint64_t WORLD_BYTES = GIB;
extern World *world;
extern int world_rank;

void world_make(ncclUniqueId *); /* a new one; its file is found by process and descriptor */
bool world_enter(const ncclUniqueId &, int nranks, int rank);
Board *board_at(uint64_t offset);
uint64_t board_new(int nranks); /* returns its offset */
void moved();                   /* something did */
/* The memory of another process and the states of its bytes. */
const char *memory_of(int world_rank);
const uint8_t *states_of(int world_rank);
/* Waits for other hosts; false after DTCU_PATIENCE seconds. */
bool host_wait(const std::function<bool()> &done, const char *what);

} // namespace emu

struct ncclComm {
  emu::Board *board;
  int rank, nranks;
  uint64_t collectives, host_calls;
  std::vector<uint64_t> sent, received; /* [nranks] */
  bool aborted;
};

namespace emu {

/* One operation of a group. */
struct Member {
  std::shared_ptr<ncclComm> comm;
  Description what;
  const void *src;
  void *dst;
};
/* Operations of one communicator on one stream that go on together. */
Task group_task(std::vector<Member>);
size_t size_of(ncclDataType_t); /* 0: not modelled */
bool can_reduce(ncclDataType_t);
std::string waiting_operations();

} // namespace emu
#endif
