/* nccl.cc: NCCL's functions: communicators, and which operations a program may ask for. collective.cc carries them out.

     ncclGroupStart(); ncclSend(a, ...); ncclRecv(b, ...); ncclGroupEnd();     one operation on the stream, in any order  */
#include "comm.h"

#include <algorithm>
#include <map>

using namespace emu;

namespace {

typedef std::shared_ptr<ncclComm> Shared;
std::map<ncclComm_t, Shared> comms;

struct Queued {
  Member member;
  cudaStream_t stream;
};
int group_depth;
std::vector<Queued> group;

Shared comm_of(ncclComm_t c) {
  auto i = comms.find(c);
  return i == comms.end() ? nullptr : i->second;
}

ncclComm_t new_comm(Board *b, int rank) {
  auto c = std::make_shared<ncclComm>();
  c->board = b, c->rank = rank, c->nranks = b->nranks;
  c->sent.resize((size_t)b->nranks), c->received.resize((size_t)b->nranks);
  comms[c.get()] = c;
  return c.get();
}

/* ---- operations --------------------------------------------------------------------------------------------------------- */

ncclResult_t enqueue_group() {
  std::vector<Queued> all;
  all.swap(group);
  while (!all.empty()) {
    std::vector<Member> members;
    std::vector<Queued> rest;
    cudaStream_t stream = all[0].stream;
    ncclComm *comm = all[0].member.comm.get();
    for (Queued &q : all) {
      if (q.stream == stream && q.member.comm.get() == comm)
        members.push_back(q.member);
      else
        rest.push_back(q);
    }
    if (enqueue(stream, "an operation of NCCL", group_task(members))) return ncclUnhandledCudaError;
    all.swap(rest);
  }
  return ncclSuccess;
}

/* Two ranges of memory that share bytes, though not as one in-place operation may. */
void refuse_overlap(const Member &m, uint64_t in, uint64_t out, uint64_t source_in_result, uint64_t result_in_source) {
  uint64_t s, d;
  if (!in || !out || !place(m.src, in, &s) || !place(m.dst, out, &d) || s >= d + out || d >= s + in) return;
  if (s == d + source_in_result || d == s + result_in_source) return;
  found("%s: source and result overlap, and not as in place", text_of(m.what).c_str());
}

ncclResult_t ask(Kind kind, const void *src, void *dst, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                 ncclComm_t comm, cudaStream_t stream) {
  Entry e;
  if (e.error) return ncclUnhandledCudaError;
  Shared c = comm_of(comm);
  bool reduces = kind == ALL_REDUCE || kind == REDUCE || kind == REDUCE_SCATTER, message = kind == SEND || kind == RECV;
  if (!c || c->aborted || !size_of(type) || (reduces && !can_reduce(type)) || op < 0 || op > ncclAvg) return ncclInvalidArgument;
  if (root < 0 || root >= c->nranks || !stream_exists(stream)) return ncclInvalidArgument;
  uint64_t bytes = count * size_of(type), all = bytes * (uint64_t)c->nranks, mine = bytes * (uint64_t)c->rank;
  uint64_t in = kind == REDUCE_SCATTER ? all : bytes, out = kind == ALL_GATHER ? all : bytes, at;
  bool gives = kind != RECV && (kind != BROADCAST || root == c->rank),
       takes = kind != SEND && (kind != REDUCE || root == c->rank);
  if (count && ((gives && !place(src, in, &at)) || (takes && !place(dst, out, &at)))) {
    fprintf(stderr, "dtcu emulator: %s: source: %s, result: %s\n", text_of({kind, type, op, root, count, 0}).c_str(),
            describe(src).c_str(), describe(dst).c_str());
    return ncclInvalidArgument;
  }
  if (!count && !message) return ncclSuccess;
  Member m = {c, {kind, type, op, root, count, 0}, src, dst};
  if (gives && takes) refuse_overlap(m, in, out, kind == ALL_GATHER ? mine : 0, kind == REDUCE_SCATTER ? mine : 0);
  group.push_back({m, stream});
  return group_depth ? ncclSuccess : enqueue_group();
}

/* ---- communicators ------------------------------------------------------------------------------------------------------- */

/* All ranks have come to their n-th call of the host on this communicator. */
bool meet(ncclComm &c, std::atomic<uint64_t> HostSlot::*counter, uint64_t n, const char *what) {
  return host_wait(
      [&] {
        for (int r = 0; r < c.nranks; r++)
          if (c.board->host[r].*counter < n) return false;
        return true;
      },
      what);
}

ncclResult_t check_devices(int nranks) {
  for (int i = 0; i < nranks; i++)
    for (int k = 0; k < i; k++)
      if (world->process[i].device == world->process[k].device) {
        fprintf(stderr, "dtcu emulator: ranks %d and %d both use device %d\n", k, i, world->process[i].device);
        return ncclInvalidUsage;
      }
  return ncclSuccess;
}

ncclResult_t init(ncclComm_t *comm, int nranks, const ncclUniqueId &id, int rank) {
  *comm = nullptr;
  if (nranks < 1 || rank < 0 || rank >= nranks) return ncclInvalidArgument;
  if (world || group_depth) return ncclInvalidUsage; /* one bootstrap per process, outside of groups */
  if (!world_enter(id, nranks, rank)) return ncclSystemError;
  std::atomic<uint64_t> &root = world->root;
  if (rank == 0) {
    uint64_t at = board_new(nranks);
    for (int i = 0; i < nranks; i++) board_at(at)->world_rank[i] = i;
    root = at;
  }
  if (!host_wait([&] { return root != 0; }, "ncclCommInitRank")) return ncclSystemError;
  *comm = new_comm(board_at(root), rank);
  (*comm)->board->host[rank].posted = ++(*comm)->host_calls;
  if (!meet(**comm, &HostSlot::posted, 1, "ncclCommInitRank")) return ncclSystemError;
  return check_devices(nranks);
}

/* The ranks of a color by key, then rank. */
std::vector<int> members_of(const ncclComm &c, int color) {
  std::vector<int> m;
  for (int r = 0; r < c.nranks; r++)
    if (c.board->host[r].color == color) m.push_back(r);
  std::stable_sort(m.begin(), m.end(), [&](int a, int b) { return c.board->host[a].key < c.board->host[b].key; });
  return m;
}

ncclResult_t split(ncclComm &c, int color, int key, ncclComm_t *out) {
  HostSlot &mine = c.board->host[c.rank];
  uint64_t n = ++c.host_calls;
  mine.color = color, mine.key = key, mine.posted = n;
  if (!meet(c, &HostSlot::posted, n, "ncclCommSplit")) return ncclSystemError;
  std::vector<int> members = color == NCCL_SPLIT_NOCOLOR ? std::vector<int>() : members_of(c, color);
  if (!members.empty() && members[0] == c.rank) {
    mine.board = board_new((int)members.size());
    for (size_t i = 0; i < members.size(); i++) board_at(mine.board)->world_rank[i] = c.board->world_rank[members[i]];
  }
  mine.named = n;
  if (!meet(c, &HostSlot::named, n, "ncclCommSplit")) return ncclSystemError;
  *out = nullptr;
  if (!members.empty()) {
    int rank = (int)(std::find(members.begin(), members.end(), c.rank) - members.begin());
    *out = new_comm(board_at(c.board->host[members[0]].board), rank);
  }
  mine.done = n;
  return meet(c, &HostSlot::done, n, "ncclCommSplit") ? ncclSuccess : ncclSystemError;
}

} // namespace

extern "C" {

ncclResult_t ncclGetVersion(int *v) {
  *v = NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char *ncclGetErrorString(ncclResult_t r) {
  static const char *const text[] = {"no error",
                                     "unhandled cuda error",
                                     "unhandled system error",
                                     "internal error",
                                     "invalid argument",
                                     "invalid usage",
                                     "remote process exited or there was a network error",
                                     "NCCL operation in progress"};
  return r >= 0 && r <= ncclInProgress ? text[r] : "unknown result code";
}
const char *ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  Entry e(false);
  world_make(id);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank) {
  Entry e;
  return e.error ? ncclUnhandledCudaError : init(comm, nranks, id, rank);
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
  if (config && config->blocking == 0) return ncclInvalidArgument; /* not modelled */
  return ncclCommInitRank(comm, nranks, id, rank);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out, ncclConfig_t *config) {
  Entry e;
  Shared c = comm_of(comm);
  if (e.error) return ncclUnhandledCudaError;
  if (!c || (color < 0 && color != NCCL_SPLIT_NOCOLOR) || (config && config->blocking == 0)) return ncclInvalidArgument;
  if (group_depth || capturing()) return ncclInvalidUsage;
  return split(*c, color, key, out);
}

ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  Entry e(false);
  return comms.erase(comm) ? ncclSuccess : ncclInvalidArgument;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  Entry e(false);
  Shared c = comm_of(comm);
  if (!c) return ncclInvalidArgument;
  c->aborted = true;
  comms.erase(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result) {
  Entry e(false);
  if (!comm_of(comm)) return ncclInvalidArgument;
  *result = world->failed ? ncclRemoteError : ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int *n) {
  *n = comm->nranks;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(const ncclComm_t, int *d) {
  *d = device();
  return ncclSuccess;
}

ncclResult_t ncclGroupStart(void) {
  Entry e(false);
  group_depth++;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd(void) {
  Entry e(false);
  if (!group_depth) return ncclInvalidUsage;
  return --group_depth ? ncclSuccess : enqueue_group();
}

ncclResult_t ncclAllReduce(const void *src, void *dst, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c, cudaStream_t s) {
  return ask(ALL_REDUCE, src, dst, n, t, op, 0, c, s);
}
ncclResult_t ncclReduce(const void *src, void *dst, size_t n, ncclDataType_t t, ncclRedOp_t op, int root, ncclComm_t c,
                        cudaStream_t s) {
  return ask(REDUCE, src, dst, n, t, op, root, c, s);
}
ncclResult_t ncclBroadcast(const void *src, void *dst, size_t n, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t s) {
  return ask(BROADCAST, src, dst, n, t, ncclSum, root, c, s);
}
ncclResult_t ncclAllGather(const void *src, void *dst, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t s) {
  return ask(ALL_GATHER, src, dst, n, t, ncclSum, 0, c, s);
}
ncclResult_t ncclReduceScatter(const void *src, void *dst, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
                               cudaStream_t s) {
  return ask(REDUCE_SCATTER, src, dst, n, t, op, 0, c, s);
}
ncclResult_t ncclSend(const void *src, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s) {
  return ask(SEND, src, nullptr, n, t, ncclSum, peer, c, s);
}
ncclResult_t ncclRecv(void *dst, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s) {
  return ask(RECV, nullptr, dst, n, t, ncclSum, peer, c, s);
}
}
