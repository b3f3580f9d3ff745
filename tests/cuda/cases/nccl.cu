/* nccl.cu: several processes. Each case forks them before it uses CUDA. */
#include "cases.h"

#include <nccl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

struct Meeting {
  ncclUniqueId id;
  volatile int ready;
};

/* What a rank has. */
struct Rank {
  int rank, n;
  bool bug;
  ncclComm_t comm;
  cudaStream_t s, other;
};

static void be(int rank, int n, bool bug, Meeting *m, void (*run)(Rank &)) {
  CHECK(cudaSetDevice(rank));
  if (rank == 0) {
    CHECK(ncclGetUniqueId(&m->id));
    __sync_synchronize();
    m->ready = 1;
  }
  while (!m->ready) usleep(100);
  Rank r = {rank, n, bug, nullptr, nullptr, nullptr};
  CHECK(ncclCommInitRank(&r.comm, n, m->id, rank));
  CHECK(cudaStreamCreateWithFlags(&r.s, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&r.other, cudaStreamNonBlocking));
  run(r);
  CHECK(ncclCommDestroy(r.comm));
  exit(0);
}

/* Runs n ranks; ends as the first that fails does. */
static void ranks(int n, bool bug, void (*run)(Rank &)) {
  Meeting *m = (Meeting *)mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  std::vector<pid_t> child;
  for (int i = 0; i < n; i++) {
    child.push_back(fork());
    if (!child.back()) be(i, n, bug, m, run);
  }
  int status, code = 0;
  for (int left = n; left && !code; left--) {
    wait(&status);
    code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  }
  for (pid_t p : child)
    if (code) usleep(20000), kill(p, SIGKILL);
  if (code) exit(code);
}

/* Device floats: rank * 100 + i. */
static float *mine(const Rank &r, int n) {
  float *x;
  std::vector<float> host;
  for (int i = 0; i < n; i++) host.push_back((float)(r.rank * 100 + i));
  CHECK(cudaMalloc(&x, (size_t)n * 4));
  CHECK(cudaMemcpyAsync(x, host.data(), (size_t)n * 4, cudaMemcpyHostToDevice, r.s));
  CHECK(cudaStreamSynchronize(r.s));
  return x;
}
static float at(const float *x, int i) {
  float v;
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(&v, x + i, 4, cudaMemcpyDeviceToHost));
  return v;
}

CASE(collectives) {
  ranks(4, bug, [](Rank &r) {
    float *x = mine(r, 8), *y = mine(r, 8), *all = device_floats(32), *part = device_floats(2);
    CHECK(ncclAllReduce(x, y, 8, ncclFloat32, ncclSum, r.comm, r.s));
    EXPECT(at(y, 3) == 600 + 12);
    CHECK(ncclAllReduce(x, x, 8, ncclFloat32, ncclMax, r.comm, r.s));
    EXPECT(at(x, 7) == 307);
    float *own = mine(r, 8);
    CHECK(ncclAllGather(own, all, 8, ncclFloat32, r.comm, r.s));
    EXPECT(at(all, 17) == 201);
    CHECK(ncclReduceScatter(own, part, 2, ncclFloat32, ncclSum, r.comm, r.s));
    EXPECT(at(part, 1) == 600 + 4 * (2 * r.rank + 1));
    CHECK(ncclReduceScatter(own, own + 2 * r.rank, 2, ncclFloat32, ncclSum, r.comm, r.s));
    EXPECT(at(own, 2 * r.rank) == 600 + 4 * 2 * r.rank);
    CHECK(ncclBroadcast(own, y, 1, ncclFloat32, 0, r.comm, r.s));
    EXPECT(at(y, 0) == 600);
  });
}

/* Pairs {0, 2}, {1, 3}, in the order of descending rank. */
CASE(split) {
  ranks(4, bug, [](Rank &r) {
    ncclComm_t pair, none;
    int n, me;
    CHECK(ncclCommSplit(r.comm, r.rank % 2, -r.rank, &pair, nullptr));
    CHECK(ncclCommSplit(r.comm, NCCL_SPLIT_NOCOLOR, 0, &none, nullptr));
    EXPECT(!none);
    CHECK(ncclCommCount(pair, &n));
    CHECK(ncclCommUserRank(pair, &me));
    EXPECT(n == 2 && me == (r.rank < 2 ? 1 : 0));
    float *x = mine(r, 4), *all = device_floats(8);
    CHECK(ncclAllGather(x, all, 4, ncclFloat32, pair, r.s));
    EXPECT(at(all, 0) == 100 * (r.rank % 2 + 2) && at(all, 4) == 100 * (r.rank % 2));
    CHECK(ncclCommDestroy(pair));
  });
}

/* Everyone to everyone, sends first: only as a group can that go on. */
CASE(exchange) {
  ranks(4, bug, [](Rank &r) {
    float *x = mine(r, 8), *y = device_floats(32);
    if (!r.bug) CHECK(ncclGroupStart());
    for (int p = 0; p < r.n; p++) CHECK(ncclSend(x, 8, ncclFloat32, p, r.comm, r.s));
    for (int p = 0; p < r.n; p++) CHECK(ncclRecv(y + 8 * p, 8, ncclFloat32, p, r.comm, r.s));
    if (!r.bug) CHECK(ncclGroupEnd());
    EXPECT(at(y, 8 * 3 + 2) == 302);
  });
}

CASE(counts_differ) {
  ranks(2, bug, [](Rank &r) {
    float *x = mine(r, 8);
    CHECK(ncclAllReduce(x, x, r.bug && r.rank ? 7 : 8, ncclFloat32, ncclSum, r.comm, r.s));
    EXPECT(at(x, 3) == 106);
  });
}

CASE(kinds_differ) {
  ranks(2, bug, [](Rank &r) {
    float *x = mine(r, 8), *all = device_floats(16);
    if (r.bug && r.rank) CHECK(ncclAllReduce(x, x, 8, ncclFloat32, ncclSum, r.comm, r.s));
    CHECK(ncclAllGather(x, all, 8, ncclFloat32, r.comm, r.s));
    EXPECT(at(all, 9) == 101);
  });
}

CASE(messages_differ) {
  ranks(2, bug, [](Rank &r) {
    float *x = mine(r, 8);
    if (r.rank)
      CHECK(ncclSend(x, 8, ncclFloat32, 0, r.comm, r.s));
    else
      CHECK(ncclRecv(x, r.bug ? 4 : 8, ncclFloat32, 1, r.comm, r.s));
    EXPECT(at(x, 3) == 103);
  });
}

/* Two communicators of the same ranks, used in different order. */
CASE(orders_differ) {
  ranks(2, bug, [](Rank &r) {
    ncclComm_t second;
    CHECK(ncclCommSplit(r.comm, 0, 0, &second, nullptr));
    float *x = mine(r, 8), *y = mine(r, 8);
    bool swapped = r.bug && r.rank == 1;
    CHECK(ncclAllReduce(x, x, 8, ncclFloat32, ncclSum, swapped ? second : r.comm, r.s));
    CHECK(ncclAllReduce(y, y, 8, ncclFloat32, ncclSum, swapped ? r.comm : second, r.s));
    EXPECT(at(x, 3) == 106);
    EXPECT(at(y, 3) == 106);
  });
}

/* A rank that ends and leaves another waiting. */
CASE(rank_ends) {
  ranks(2, bug, [](Rank &r) {
    float *x = mine(r, 8);
    if (r.bug && r.rank) return;
    CHECK(ncclAllReduce(x, x, 8, ncclFloat32, ncclSum, r.comm, r.s));
    EXPECT(at(x, 3) == 106);
  });
}

/* Two communication streams go on at the same time, whatever the order on each rank. */
CASE(two_streams) {
  ranks(2, bug, [](Rank &r) {
    ncclComm_t second;
    CHECK(ncclCommSplit(r.comm, 0, 0, &second, nullptr));
    float *x = mine(r, 8), *y = mine(r, 8);
    for (int i = 0; i < 2; i++) {
      if ((i ^ r.rank) & 1)
        CHECK(ncclAllReduce(x, x, 8, ncclFloat32, ncclSum, r.comm, r.s));
      else
        CHECK(ncclAllReduce(y, y, 8, ncclFloat32, ncclSum, second, r.other));
    }
    EXPECT(at(x, 3) == 106);
    EXPECT(at(y, 3) == 106);
  });
}

/* Compute on one stream, communicate on another: the result is read without a wait. */
static __global__ void add_one(float *x) {
  if (threadIdx.x < 8) x[threadIdx.x] += 1;
}
CASE(collective_without_event) {
  ranks(2, bug, [](Rank &r) {
    cudaEvent_t ready, done;
    CHECK(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    float *x = mine(r, 8);
    CHECK(cudaEventRecord(ready, r.s));
    CHECK(cudaStreamWaitEvent(r.other, ready));
    CHECK(ncclAllReduce(x, x, 8, ncclFloat32, ncclSum, r.comm, r.other));
    CHECK(cudaEventRecord(done, r.other));
    if (!r.bug) CHECK(cudaStreamWaitEvent(r.s, done));
    DTCU_LAUNCH_ON(r.s, add_one, 1, 32, x);
    EXPECT(at(x, 3) == 107 || r.bug);
  });
}

/* Captured and replayed, with communication on a second stream. */
CASE(collective_in_a_graph) {
  ranks(2, bug, [](Rank &r) {
    cudaEvent_t ready, done;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    float *x = mine(r, 8), *y = mine(r, 8);
    CHECK(cudaStreamBeginCapture(r.s, cudaStreamCaptureModeThreadLocal));
    DTCU_LAUNCH_ON(r.s, add_one, 1, 32, x);
    CHECK(cudaEventRecord(ready, r.s));
    CHECK(cudaStreamWaitEvent(r.other, ready));
    CHECK(ncclAllReduce(x, x, 8, ncclFloat32, ncclSum, r.comm, r.other));
    DTCU_LAUNCH_ON(r.s, add_one, 1, 32, y);
    CHECK(cudaEventRecord(done, r.other));
    CHECK(cudaStreamWaitEvent(r.s, done));
    CHECK(cudaStreamEndCapture(r.s, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(exec, r.s));
    EXPECT(at(x, 0) == (2 * (2 * (100 + 2) + 2) + 2));
    EXPECT(at(y, 0) == (float)(r.rank * 100 + 3));
  });
}

CASE(overlap_not_in_place) {
  ranks(2, bug, [](Rank &r) {
    float *x = mine(r, 16);
    CHECK(ncclAllGather(x + (r.bug ? 4 : 8 * r.rank), x, 8, ncclFloat32, r.comm, r.s));
    EXPECT(at(x, 0) == 0);
  });
}

/* What is not written does not travel as if it were. */
CASE(uninitialised_from_another_rank) {
  ranks(2, bug, [](Rank &r) {
    float *x = device_floats(8), *all = device_floats(16);
    CHECK(cudaMemset(x, 0, r.rank && r.bug ? 28 : 32));
    CHECK(cudaDeviceSynchronize());
    CHECK(ncclAllGather(x, all, 8, ncclFloat32, r.comm, r.s));
    DTCU_LAUNCH_ON(r.s, add_one, 1, 32, all + 8);
    CHECK(cudaDeviceSynchronize());
  });
}

/* CUDA does not survive a fork. */
CASE(fork_after_use) {
  int n, status;
  if (bug) CHECK(cudaGetDeviceCount(&n));
  pid_t child = fork();
  if (!child) exit((int)cudaSetDevice(0));
  waitpid(child, &status, 0);
  CHECK(WEXITSTATUS(status));
}

/* With DTCU_STUCK or DTCU_ASYNC_ERROR a collective never ends: asked again and again, its stream is never ready. */
CASE(asynchronous_error) {
  setenv("DTCU_ASYNC_ERROR", "1:2", 1);
  ranks(2, bug, [](Rank &r) {
    float *x = mine(r, 8);
    ncclResult_t e = ncclSuccess;
    for (int i = 0; i < 2; i++) CHECK(ncclAllReduce(x, x, 8, ncclFloat32, ncclSum, r.comm, r.s));
    while (e == ncclSuccess) {
      EXPECT(cudaStreamQuery(r.s) == cudaErrorNotReady);
      CHECK(ncclCommGetAsyncError(r.comm, &e));
    }
    EXPECT(e == ncclRemoteError);
    CHECK(ncclCommAbort(r.comm));
    CHECK(cudaStreamSynchronize(r.s));
    exit(0);
  });
}
