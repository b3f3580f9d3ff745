/* device.cc: settings from the environment, chance, how a fault ends the process, errors that are remembered, and what the
   program may ask about its devices.

     DTCU_SEED=7         all that is random; printed when a fault is found
     DTCU_DEVICES=2      visible devices (8); 0: cudaErrorNoDevice
     DTCU_NO_DRIVER=1    cudaErrorInsufficientDriver
     DTCU_MEMORY=65536   bytes of a device (1 GiB)
     DTCU_NO_EPILOGUE=1  cuBLASLt has algorithms for plain products only
     DTCU_KERNEL_ERROR=n, DTCU_ASYNC_ERROR=rank:n, DTCU_STUCK=rank:n     the n-th launch, or operation of NCCL, fails     */
#include "emulator.h"

#include <cstdarg>
#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

extern "C" const char *__asan_default_options();

namespace emu {

/* ---- settings and chance --------------------------------------------------------------------------------------------- */

static uint64_t number(const char *name, uint64_t otherwise) {
  const char *text = getenv(name);
  char *end;
  if (!text || !*text) return otherwise;
  uint64_t x = strtoull(text, &end, 10);
  if (*end) found("%s=%s is not a number", name, text);
  return x;
}

/* "rank:n" */
static void rank_and_number(const char *name, int *rank, int *n) {
  const char *text = getenv(name);
  *rank = -1, *n = 0;
  if (text && *text && sscanf(text, "%d:%d", rank, n) != 2) found("%s=%s is not rank:number", name, text);
}

static uint64_t state;

static Settings read_settings() {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  Settings s = {};
  state = s.seed = (uint64_t)t.tv_nsec ^ (uint64_t)t.tv_sec << 20;
  s.seed = state = number("DTCU_SEED", s.seed % 1000000007);
  s.devices = (int)number("DTCU_DEVICES", 8);
  s.no_driver = number("DTCU_NO_DRIVER", 0) != 0;
  s.no_epilogue = number("DTCU_NO_EPILOGUE", 0) != 0;
  s.memory = number("DTCU_MEMORY", GIB);
  s.kernel_error = (int)number("DTCU_KERNEL_ERROR", 0);
  rank_and_number("DTCU_ASYNC_ERROR", &s.async_rank, &s.async_at);
  rank_and_number("DTCU_STUCK", &s.stuck_rank, &s.stuck_at);
  return s;
}

const Settings &settings() {
  static const Settings s = read_settings();
  return s;
}

uint64_t chance() { /* splitmix64, Steele, Lea and Flood 2014 */
  uint64_t z = state += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

unsigned below(unsigned n) { return (unsigned)((chance() >> 32) * n >> 32); }

void stir(uint64_t x) { state ^= x * 0xd6e8feb86659fd93; }

/* ---- the end ---------------------------------------------------------------------------------------------------------- */

void found(const char *format, ...) {
  va_list ap;
  va_start(ap, format);
  fflush(stdout);
  char text[8192];
  vsnprintf(text, sizeof text, format, ap);
  va_end(ap);
  fprintf(stderr, "dtcu emulator: %s\n  (DTCU_SEED=%llu replays this process)\n", text, (unsigned long long)settings().seed);
  fflush(stderr);
  _exit(EXIT_FOUND);
}

/* What a program prints. */
static std::string output_of(const char *const *argv) {
  int ends[2];
  if (pipe(ends)) return "";
  posix_spawn_file_actions_t fa;
  posix_spawn_file_actions_init(&fa);
  posix_spawn_file_actions_adddup2(&fa, ends[1], 1);
  posix_spawn_file_actions_addopen(&fa, 2, "/dev/null", 1 /* O_WRONLY */, 0);
  posix_spawn_file_actions_addclose(&fa, ends[0]);
  pid_t child;
  bool ok = !posix_spawnp(&child, argv[0], &fa, nullptr, (char *const *)argv, environ);
  posix_spawn_file_actions_destroy(&fa);
  close(ends[1]);
  std::string text;
  char part[512];
  for (ssize_t n; ok && (n = read(ends[0], part, sizeof part)) > 0;) text.append(part, (size_t)n);
  close(ends[0]);
  if (ok) waitpid(child, nullptr, 0);
  return text;
}

std::string place_of(const void *pc) {
  Dl_info where;
  if (!pc || !dladdr(pc, &where) || !where.dli_fname) return "";
  bool relative = ((const Elf64_Ehdr *)where.dli_fbase)->e_type == ET_DYN;
  char address[32];
  snprintf(address, sizeof address, "%#llx",
           (unsigned long long)((const char *)pc - 1 - (relative ? (const char *)where.dli_fbase : nullptr)));
  const char *argv[] = {"addr2line", "-C", "-f", "-i", "-s", "-e", where.dli_fname, address, nullptr};
  std::string text = output_of(argv), out; /* function, file:line, and again for what it was inlined into */
  for (size_t at = 0; at < text.size();) {
    size_t middle = text.find('\n', at), end = middle == text.npos ? middle : text.find('\n', middle + 1);
    if (end == text.npos) break;
    std::string function = text.substr(at, middle - at), line = text.substr(middle + 1, end - middle - 1);
    at = end + 1;
    line = line.substr(0, line.find(" (discriminator"));
    if (line.compare(0, 2, "??") == 0) continue;
    out += (out.empty() ? "" : ", in ") + line + " (" + function.substr(0, function.find('(')) + ")";
  }
  return out;
}

/* ---- errors ------------------------------------------------------------------------------------------------------------ */

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int depth;
static pid_t owner; /* the process that used CUDA first */
static cudaError_t last, lost;
static int current_device;

Entry::Entry(bool needs_device) : error(cudaSuccess) {
  pthread_mutex_lock(&lock);
  depth++;
  if (!needs_device) return;
  const Settings &s = settings();
  if (!owner) owner = getpid();
  if (owner != getpid())
    error = cudaErrorInitializationError; /* CUDA does not survive a fork */
  else if (s.no_driver)
    error = cudaErrorInsufficientDriver;
  else if (!s.devices)
    error = cudaErrorNoDevice;
  else if (lost)
    error = lost;
  else
    space_open();
  if (error) fail(error);
}

Entry::~Entry() {
  if (--depth == 0 && space.base) open_device(false);
  pthread_mutex_unlock(&lock);
}

cudaError_t fail(cudaError_t e) {
  if (e != cudaSuccess && e != cudaErrorNotReady) last = e;
  return e;
}

void sticky(cudaError_t e) { lost = last = e; }
cudaError_t lost_error() { return lost; }

void idle() {
  int held = depth;
  depth = 0;
  for (int i = 0; i < held; i++) pthread_mutex_unlock(&lock);
  static unsigned calls; /* others are most often about to move something */
  struct timespec t = {0, 50000};
  if (++calls % 16)
    sched_yield();
  else
    nanosleep(&t, nullptr);
  for (int i = 0; i < held; i++) pthread_mutex_lock(&lock);
  depth = held;
}

int device() { return current_device; }

} // namespace emu

using namespace emu;

extern "C" {

/* The emulator keeps what it knows to the end. */
const char *__asan_default_options() { return "detect_leaks=0:exitcode=86:allow_user_segv_handler=1"; }

cudaError_t cudaGetLastError(void) {
  Entry e(false);
  cudaError_t was = last;
  last = lost;
  return was;
}
cudaError_t cudaPeekAtLastError(void) { return last; }

struct Named {
  cudaError_t error;
  const char *name, *text;
};
static const Named named[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
};
static const Named *lookup(cudaError_t e) {
  for (const Named &n : named)
    if (n.error == e) return &n;
  return nullptr;
}
const char *cudaGetErrorName(cudaError_t e) { return lookup(e) ? lookup(e)->name : "cudaErrorUnknown"; }
const char *cudaGetErrorString(cudaError_t e) { return lookup(e) ? lookup(e)->text : "unknown error"; }

cudaError_t cudaDriverGetVersion(int *version) {
  *version = settings().no_driver ? 0 : CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
  Entry e;
  *count = e.error ? 0 : settings().devices;
  return e.error;
}
cudaError_t cudaGetDevice(int *d) {
  Entry e;
  *d = current_device;
  return e.error;
}
cudaError_t cudaSetDevice(int d) {
  Entry e;
  if (e.error) return e.error;
  if (d < 0 || d >= settings().devices) return fail(cudaErrorInvalidDevice);
  current_device = d;
  return cudaSuccess;
}
cudaError_t cudaSetDeviceFlags(unsigned) {
  Entry e;
  return e.error;
}

/* Roughly an H100; nothing may depend on it. */
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr a, int d) {
  Entry e;
  if (e.error) return e.error;
  if (d < 0 || d >= settings().devices) return fail(cudaErrorInvalidDevice);
  switch (a) {
  case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
  case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
  case cudaDevAttrWarpSize: *value = 32; break;
  case cudaDevAttrClockRate: *value = 1980000; break;
  case cudaDevAttrMultiProcessorCount: *value = 132; break;
  case cudaDevAttrMemoryClockRate: *value = 2619000; break;
  case cudaDevAttrGlobalMemoryBusWidth: *value = 5120; break;
  case cudaDevAttrL2CacheSize: *value = 50 << 20; break;
  case cudaDevAttrUnifiedAddressing: *value = 1; break;
  case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
  case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
  default: return fail(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int d) {
  Entry e;
  if (e.error) return e.error;
  if (d < 0 || d >= settings().devices) return fail(cudaErrorInvalidDevice);
  *p = cudaDeviceProp{};
  snprintf(p->name, sizeof p->name, "emulated device");
  p->totalGlobalMem = settings().memory, p->sharedMemPerBlock = 48 << 10;
  p->warpSize = 32, p->maxThreadsPerBlock = 1024, p->major = 9, p->multiProcessorCount = 132;
  p->l2CacheSize = 50 << 20, p->memoryBusWidth = 5120;
  p->asyncEngineCount = 3, p->concurrentKernels = 1, p->unifiedAddressing = 1, p->pciBusID = d;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *id, int bytes, int d) {
  Entry e;
  if (e.error) return e.error;
  snprintf(id, (size_t)bytes, "0000:%02x:00.0", d);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0, *greatest = -5;
  return cudaSuccess;
}

static int ranges;
int nvtxRangePushA(const char *) { return ranges++; }
int nvtxRangePop(void) {
  if (ranges == 0) found("nvtxRangePop without a range");
  return --ranges;
}
void nvtxMarkA(const char *) {}
}
