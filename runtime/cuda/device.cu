/* device.cu: a rank's GPU. It is chosen by the rank's number on its host, the plan is compared with the free memory, and then
   everything is one allocation:

     | arena | workspace | staging | library's workspace | tables of collectives | context, settings | gathering |

   A rank of its own process calls CUDA for the first time here, after the fork. */
#include "device.h"

extern "C" const bool rt_spans_hosts = true;

/* ---- messages ---- */

const char *device_place(Rt *rt, char out[256]) {
  const Transport *t = rt->transport;
  if (t && t->where)
    snprintf(out, 256, "step %lld, %.200s", (long long)rt->cx.step + 1, t->where);
  else
    snprintf(out, 256, "step %lld", (long long)rt->cx.step + 1);
  return out;
}

cudaError_t device_checked(Rt *rt, cudaError_t e, const char *call) {
  char place[256];
  if (e == cudaSuccess) return e;
  rt_fail(rt, EXIT_DATA, "%s: %.*s failed on rank %d: %s (%s)", device_place(rt, place), (int)strcspn(call, "("), call, rt->rank,
          cudaGetErrorString(e), cudaGetErrorName(e));
}

void device_put(Rt *rt, void *dst, const void *src, size_t bytes) {
  cudaStream_t s = rt->transport->compute;
  CUDA(rt, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, s));
  CUDA(rt, cudaStreamSynchronize(s));
}

static const char *gibibytes(double bytes, char out[32]) {
  bool small = bytes < 0x1p30;
  snprintf(out, 32, small ? "%.1f MiB" : "%.1f GiB", bytes / (small ? 0x1p20 : 0x1p30));
  return out;
}

/* ---- which GPU ---- */

static int count_devices(Rt *rt) {
  int n = 0, driver = 0, runtime = 0;
  cudaError_t e = cudaGetDeviceCount(&n);
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (e == cudaErrorInsufficientDriver && driver == 0)
    rt_fail(rt, EXIT_DATA, "no GPU can be used: there is no NVIDIA driver here");
  if (e == cudaErrorInsufficientDriver)
    rt_fail(rt, EXIT_DATA, "no GPU can be used: the NVIDIA driver is for CUDA %d.%d, the program for CUDA %d.%d", driver / 1000,
            driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
  if (e == cudaErrorNoDevice || (e == cudaSuccess && n == 0))
    rt_fail(rt, EXIT_DATA, "no GPU is visible (is CUDA_VISIBLE_DEVICES set?); the program needs %d", rt->host_ranks);
  if (e != cudaSuccess) rt_fail(rt, EXIT_DATA, "no GPU can be used: %s (%s)", cudaGetErrorString(e), cudaGetErrorName(e));
  return n;
}

/* A launcher may show every rank its own GPU only. */
static int choose_device(Rt *rt) {
  int n = count_devices(rt);
  if (n == 1 && rt->launcher) return 0;
  if (n < rt->host_ranks)
    rt_fail(rt, EXIT_DATA, "the program needs %d GPUs on this host, a rank each; %d %s visible", rt->host_ranks, n,
            n == 1 ? "is" : "are");
  return rt->host_rank;
}

/* ---- memory ---- */

double rt_memory(const dtrt_Program *p) {
  return (double)p->arena_bytes + (double)p->workspace_bytes + (double)p->staging_bytes + (double)p->library_bytes;
}

static size_t take(size_t *at, size_t bytes) {
  size_t here = *at;
  *at += device_align(bytes);
  return here;
}

static void check_memory(Rt *rt, size_t needed) {
  size_t free, total;
  char has[32], all[32], needs[32];
  struct cudaDeviceProp p;
  CUDA(rt, cudaMemGetInfo(&free, &total));
  if (needed <= free) return;
  CUDA(rt, cudaGetDeviceProperties(&p, rt->transport->device));
  rt_fail(rt, EXIT_DATA, "rank %d needs %s of GPU memory as planned, but %s (GPU %d) has %s free of %s", rt->rank,
          gibibytes((double)needed, needs), p.name, rt->transport->device, gibibytes((double)free, has),
          gibibytes((double)total, all));
}

/* What is gathered comes out of the arena, a part at a time. */
static void allocate(Rt *rt, size_t tables) {
  const dtrt_Program *p = rt->p;
  Transport *t = rt->transport;
  const size_t gather_bytes =
      p->arena_bytes < MAX_GATHER_BYTES ? device_align((size_t)p->arena_bytes + 1) : (size_t)MAX_GATHER_BYTES;
  size_t bytes = 0;
  take(&bytes, (size_t)p->arena_bytes);
  size_t workspace = take(&bytes, (size_t)p->workspace_bytes), staging = take(&bytes, (size_t)p->staging_bytes),
         library = take(&bytes, (size_t)p->library_bytes), moves = take(&bytes, tables),
         context = take(&bytes, sizeof *t->context), setting = take(&bytes, (size_t)p->nsettings * sizeof *t->setting),
         gather = take(&bytes, gather_bytes + VALUE_BYTES);
  check_memory(rt, bytes);
  CUDA(rt, cudaMalloc((void **)&t->memory, bytes));
  t->staging = t->memory + staging;
  t->library = t->memory + library;
  t->gather = t->memory + gather, t->gather_bytes = gather_bytes;
  t->context = (dtcu_Context *)(t->memory + context);
  rt->cx.arena = t->memory;
  rt->cx.workspace = t->memory + workspace;
  exchange_load(rt, t->memory + moves);
  t->host_context.setting = (const double *)(t->memory + setting);
}

static void *pinned(Rt *rt, size_t bytes) {
  void *at;
  CUDA(rt, cudaHostAlloc(&at, bytes ? bytes : 1, cudaHostAllocDefault));
  memset(at, 0, bytes ? bytes : 1);
  return at;
}

static size_t input_bytes(const Rt *rt) {
  size_t bytes = 0;
  for (int i = 0; i < rt->p->nleaves; i++) {
    const dtrt_Layout *l = &rt->p->leaf[i].layout;
    if (rt->p->leaf[i].kind == DTRT_INPUT) bytes += device_align((size_t)rt_local_elements(l) * rt_dtype_size(l->dtype));
  }
  return bytes;
}

static void share(Rt *rt) {
  Transport *t = rt->transport;
  size_t settings = (size_t)rt->p->nsettings * sizeof *t->setting;
  t->fault = (dtcu_Fault *)pinned(rt, sizeof *t->fault);
  t->mark = (uint32_t *)pinned(rt, sizeof *t->mark);
  t->shown = (char(*)[8])pinned(rt, (size_t)rt->p->ntaps * sizeof *t->shown);
  t->setting = (double *)pinned(rt, settings);
  t->ring_bytes = input_bytes(rt);
  t->ring = (char *)pinned(rt, t->ring_bytes);
  memcpy(t->setting, rt->o.setting, settings);
  rt->cx.setting = t->setting;
  CUDA(rt, cudaMemcpyAsync((void *)t->host_context.setting, t->setting, settings, cudaMemcpyHostToDevice, t->compute));
}

/* The context as kernels see it. */
static void set_context(Rt *rt) {
  Transport *t = rt->transport;
  t->host_context.rank = rt->rank;
  t->host_context.nranks = rt->p->nranks;
  t->host_context.checking = rt->cx.checking;
  t->host_context.seed = rt->cx.seed;
  t->host_context.workspace = rt->cx.workspace;
  CUDA(rt, cudaHostGetDevicePointer((void **)&t->host_context.fault, t->fault, 0));
  device_put(rt, t->context, &t->host_context, sizeof t->host_context);
}

void rt_reserve(Rt *rt) { rt->transport = NULL; } /* what is before the fork must not touch CUDA */

void rt_open(Rt *rt) {
  Transport *t = (Transport *)rt_alloc(1, sizeof *t);
  const char *interface = getenv("DTRT_INTERFACE");
  rt->transport = t;
  char exactly[64];
  snprintf(exactly, sizeof exactly, "=%.60s", interface ? interface : ""); /* else NCCL takes all that begin so */
  if (interface && *interface) setenv("NCCL_SOCKET_IFNAME", exactly, 0);   /* the user's own choice stays */
  size_t tables = exchange_plan(rt);
  t->device = choose_device(rt);
  CUDA(rt, cudaSetDevice(t->device));
  CUDA(rt, cudaStreamCreateWithFlags(&t->compute, cudaStreamNonBlocking));
  CUDA(rt, cudaStreamCreateWithFlags(&t->comm, cudaStreamNonBlocking));
  for (cudaEvent_t *e : {&t->fork, &t->join, &t->ring_used}) CUDA(rt, cudaEventCreateWithFlags(e, cudaEventDisableTiming));
  allocate(rt, tables);
  share(rt);
  set_context(rt);
  steps_open(rt);
  gemm_open(rt);
  comm_open(rt);
}

void rt_close(Rt *rt) {
  Transport *t = rt->transport;
  rt_idle(rt);
  steps_close(rt); /* a communicator is not given up while recorded phases use it */
  comm_close(rt);
  gemm_close(rt);
  exchange_free(rt);
  for (void *at : {(void *)t->fault, (void *)t->mark, (void *)t->shown, (void *)t->setting, (void *)t->ring})
    CUDA(rt, cudaFreeHost(at));
  for (cudaEvent_t e : {t->fork, t->join, t->ring_used}) CUDA(rt, cudaEventDestroy(e));
  CUDA(rt, cudaFree(t->memory));
  CUDA(rt, cudaStreamDestroy(t->comm));
  CUDA(rt, cudaStreamDestroy(t->compute));
  free(t);
  rt->transport = NULL;
}

/* ---- the host's view of the arena ---- */

/* A piece of pinned memory, as long as inputs take turns in it; else ordinary memory. */
static void *ring_take(Rt *rt, size_t bytes) {
  Transport *t = rt->transport;
  if (bytes == 0 || bytes > t->ring_bytes) return NULL;
  if (t->ring_at + device_align(bytes) > t->ring_bytes) t->ring_at = 0;
  if (t->ring_at == 0) steps_wait(rt, t->ring_used); /* what was copied from it is copied */
  void *at = t->ring + t->ring_at;
  t->ring_at += device_align(bytes);
  return at;
}

static bool in_ring(const Transport *t, const void *at) {
  return (const char *)at >= t->ring && (const char *)at < t->ring + t->ring_bytes;
}

void *rt_borrow(Rt *rt, const void *at, size_t bytes, bool read) {
  void *view = read ? NULL : ring_take(rt, bytes);
  if (!view) view = rt_alloc(bytes, 1);
  if (!read) return view;
  CUDA(rt, cudaMemcpyAsync(view, at, bytes, cudaMemcpyDefault, rt->transport->compute));
  CUDA(rt, cudaStreamSynchronize(rt->transport->compute));
  return view;
}

void rt_return(Rt *rt, void *at, void *view, size_t bytes) {
  Transport *t = rt->transport;
  if (at) CUDA(rt, cudaMemcpyAsync(at, view, bytes, cudaMemcpyHostToDevice, t->compute));
  if (in_ring(t, view)) {
    CUDA(rt, cudaEventRecord(t->ring_used, t->compute));
    return;
  }
  if (at) CUDA(rt, cudaStreamSynchronize(t->compute));
  free(view);
}

void rt_clear(Rt *rt, void *at, size_t bytes) { CUDA(rt, cudaMemsetAsync(at, 0, bytes, rt->transport->compute)); }

static bool on_device(Rt *rt, const void *at) {
  struct cudaPointerAttributes a;
  CUDA(rt, cudaPointerGetAttributes(&a, at));
  return a.type == cudaMemoryTypeDevice;
}

void rt_show(Rt *rt, int id, const void *value, size_t bytes) {
  Transport *t = rt->transport;
  t->tap_phase[id] = t->phase;
  if (on_device(rt, value))
    CUDA(rt, cudaMemcpyAsync(t->shown[id], value, bytes, cudaMemcpyDeviceToHost, t->compute));
  else
    memcpy(t->shown[id], value, bytes); /* a setting or a counter of the host */
}

/* Settings and counters of the host get a place on the device. */
const void *rt_reachable(Rt *rt, const void *value, size_t bytes) {
  Transport *t = rt->transport;
  if (on_device(rt, value)) return value;
  if (bytes > VALUE_BYTES) rt_fail(rt, EXIT_FAULT, "a value is shown from outside the arena");
  char *place = t->gather + t->gather_bytes;
  device_put(rt, place, value, bytes);
  return place;
}

/* ---- what emitted host code calls ---- */

cudaStream_t dtcu_stream(const dtrt_Context *cx) { return cx->comm->transport->compute; }
const dtcu_Context *dtcu_device(const dtrt_Context *cx) { return cx->comm->transport->context; }

void dtcu_copy(dtrt_Context *cx, void *dst, const void *src, int64_t bytes) {
  if (bytes > 0) CUDA(cx->comm, cudaMemcpyAsync(dst, src, (size_t)bytes, cudaMemcpyDefault, cx->comm->transport->compute));
}

void dtcu_zero(dtrt_Context *cx, void *dst, int64_t bytes) {
  if (bytes > 0) CUDA(cx->comm, cudaMemsetAsync(dst, 0, (size_t)bytes, cx->comm->transport->compute));
}

static __global__ void put_kernel(int64_t *dst, int64_t value) {
  if (threadIdx.x == 0) *dst = value;
}
void dtcu_put(dtrt_Context *cx, void *dst, int64_t value) { DTCU_LAUNCH(cx, put_kernel, 1, 32, (int64_t *)dst, value); }
