/* streams.cu: order between operations, and between them and the host. */
#include "cases.h"

static __global__ void set(float *x, float value) { x[threadIdx.x] = value; }
static __global__ void add(const float *x, float *y) { y[threadIdx.x] = x[threadIdx.x] + 1; }

struct Two {
  cudaStream_t a, b;
  cudaEvent_t event, back;
  Two() {
    CHECK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&back, cudaEventDisableTiming));
  }
};

/* The answer is the same either way: x is 1 before and after. */
CASE(missing_event) {
  Two s;
  float *x = device_floats(64, one), *y = device_floats(64);
  DTCU_LAUNCH_ON(s.a, set, 1, 64, x, 1.0f);
  CHECK(cudaEventRecord(s.event, s.a));
  if (!bug) CHECK(cudaStreamWaitEvent(s.b, s.event));
  DTCU_LAUNCH_ON(s.b, add, 1, 64, x, y);
  EXPECT(sum_of(y, 64) == 128);
}

CASE(overwritten_while_read) {
  Two s;
  float *x = device_floats(64, one), *y = device_floats(64);
  DTCU_LAUNCH_ON(s.b, add, 1, 64, x, y);
  CHECK(cudaEventRecord(s.event, s.b));
  if (!bug) CHECK(cudaStreamWaitEvent(s.a, s.event));
  DTCU_LAUNCH_ON(s.a, set, 1, 64, x, 1.0f);
  EXPECT(sum_of(y, 64) == 128);
}

CASE(host_reads_too_early) {
  Two s;
  float *x = device_floats(64, one), *host;
  CHECK(cudaMallocHost(&host, 256));
  CHECK(cudaMemcpyAsync(host, x, 256, cudaMemcpyDeviceToHost, s.a));
  if (!bug) CHECK(cudaStreamSynchronize(s.a));
  static volatile float seen;
  seen = host[5];
  EXPECT(bug || seen == 1);
  CHECK(cudaDeviceSynchronize());
}

CASE(host_writes_too_early) {
  Two s;
  float *x = device_floats(64, one), *host;
  CHECK(cudaMallocHost(&host, 256));
  for (int i = 0; i < 64; i++) host[i] = 2;
  CHECK(cudaMemcpyAsync(x, host, 256, cudaMemcpyHostToDevice, s.a));
  if (!bug) CHECK(cudaStreamSynchronize(s.a));
  host[0] = 3;
  CHECK(cudaDeviceSynchronize());
}

CASE(host_touches_device_memory) {
  float *x = device_floats(64, one);
  if (bug) x[0] = 2;
  EXPECT(sum_of(x, 64) == 64);
}

CASE(copy_too_long) {
  float *x = device_floats(64, one), *y = device_floats(64);
  CHECK(cudaMemcpyAsync(y, x, bug ? 260 : 256, cudaMemcpyDeviceToDevice));
  CHECK(cudaDeviceSynchronize());
}

/* The legacy stream waits for blocking streams, and they for it. */
CASE(legacy_stream) {
  cudaStream_t a;
  CHECK(cudaStreamCreateWithFlags(&a, bug ? cudaStreamNonBlocking : cudaStreamDefault));
  float *x = device_floats(64, one), *y = device_floats(64);
  DTCU_LAUNCH_ON(a, set, 1, 64, x, 1.0f);
  DTCU_LAUNCH_ON(0, add, 1, 64, x, y);
  EXPECT(sum_of(y, 64) == 128);
}

/* set on a; then add on b and a second add on a, both after it; captured and run three times. */
CASE(graph) {
  Two s;
  float *x = device_floats(64, one), *y = device_floats(64, one), *z = device_floats(64);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamBeginCapture(s.a, cudaStreamCaptureModeThreadLocal));
  DTCU_LAUNCH_ON(s.a, add, 1, 64, y, x);
  CHECK(cudaEventRecord(s.event, s.a));
  CHECK(cudaStreamWaitEvent(s.b, s.event));
  DTCU_LAUNCH_ON(s.b, add, 1, 64, x, y);
  if (!bug) {
    CHECK(cudaEventRecord(s.back, s.b));
    CHECK(cudaStreamWaitEvent(s.a, s.back));
  }
  CHECK(cudaMemcpyAsync(z, bug ? x : y, 256, cudaMemcpyDeviceToDevice, s.a));
  if (bug) { /* joined, but after y is read */
    CHECK(cudaMemcpyAsync(z, y, 256, cudaMemcpyDeviceToDevice, s.a));
    CHECK(cudaEventRecord(s.back, s.b));
    CHECK(cudaStreamWaitEvent(s.a, s.back));
  }
  CHECK(cudaStreamEndCapture(s.a, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphDestroy(graph));
  for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(exec, s.a));
  EXPECT(sum_of(z, 64) == 64 * 7);
  CHECK(cudaGraphExecDestroy(exec));
}

CASE(unjoined_capture) {
  Two s;
  float *x = device_floats(64, one), *y = device_floats(64);
  cudaGraph_t graph;
  CHECK(cudaStreamBeginCapture(s.a, cudaStreamCaptureModeThreadLocal));
  CHECK(cudaEventRecord(s.event, s.a));
  CHECK(cudaStreamWaitEvent(s.b, s.event));
  DTCU_LAUNCH_ON(s.b, add, 1, 64, x, y);
  EXPECT(cudaStreamSynchronize(s.b) == cudaErrorStreamCaptureUnsupported);
  EXPECT(cudaStreamEndCapture(s.a, &graph) == cudaErrorStreamCaptureInvalidated);
  CHECK(cudaStreamBeginCapture(s.a, cudaStreamCaptureModeThreadLocal));
  CHECK(cudaEventRecord(s.event, s.a));
  CHECK(cudaStreamWaitEvent(s.b, s.event));
  DTCU_LAUNCH_ON(s.b, add, 1, 64, x, y);
  EXPECT(cudaStreamEndCapture(s.a, &graph) == cudaErrorStreamCaptureUnjoined);
}

/* One arena, two buffers side by side: what leaves the first lies in the second. */
struct Arena {
  char *arena;
};
static __global__ void fill(float *x, int n) {
  if ((int)threadIdx.x < n) x[threadIdx.x] = 1;
}
CASE(overrun_in_the_arena) {
#ifdef AT
  Arena program, *cx = &program;
  program.arena = (char *)device_floats(256, one);
  float *x = (float *)AT(0, 256), *y = (float *)AT(256, 256);
  EXPECT(AT(0, 256) == (void *)x);
  DTCU_LAUNCH_ON(0, fill, 1, 96, x, bug ? 65 : 64);
  DTCU_LAUNCH_ON(0, fill, 1, 96, y, 64);
  EXPECT(sum_of((float *)program.arena, 256) == 256);
#else
  (void)fill;
#endif
}

/* The host looks at what a kernel writes now: volatile says so. */
static __global__ void mark(volatile int *at, int *plain) {
  if (threadIdx.x == 0) *at = 1, *plain = 1;
}
CASE(polled) {
  cudaStream_t s;
  int *at;
  CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  CHECK(cudaHostAlloc(&at, 8, cudaHostAllocMapped));
  *(volatile int *)at = 0;
  DTCU_LAUNCH_ON(s, mark, 1, 32, at, at + 1);
  if (bug) EXPECT(at[1] != 7);
  while (!*(volatile int *)at) (void)cudaStreamQuery(s);
  CHECK(cudaStreamSynchronize(s));
  EXPECT(at[1] == 1);
}
