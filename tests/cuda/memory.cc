/* memory.cc: device memory, pinned memory, and second mappings of parts of them.

   Allocations are never next to each other and an address is never given out twice, so what was freed stays unusable.
   Fresh memory holds signalling NaNs. The host cannot touch device memory (it faults) except while operations run; not
   every return to the host closes it again, since that costs time.

     range: | device ........ | pinned ... | shared arrays | buffers: pages of the file again, each with a gap |
     file:  | device ........ | pinned ... | shared arrays | states of the bytes, one each                     |         */
#include "emulator.h"

#include <fcntl.h>
#include <map>
#include <sanitizer/asan_interface.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

namespace emu {

Space space;
enum : uint64_t { PAGE = 4096, RED = 256 };
enum { ALWAYS_CLOSED = 8 }; /* then one return of 16, or of more where that takes long */

struct Allocation {
  uint64_t bytes;
  bool freed;
};
static std::map<uint64_t, Allocation> allocations; /* by place */
static uint64_t device_next = RED, pinned_next = DEVICE_END + RED, used;

struct Buffer {
  uint64_t lo, hi, at; /* offsets in the range; the place of lo */
  std::string where;
};
static std::vector<Buffer> buffers;
static std::map<std::pair<uint64_t, uint64_t>, uint32_t> buffer_of; /* by place and bytes */
static std::vector<uint32_t> page_buffer;                           /* of pages from SHARED_END on */
static uint64_t buffer_next = SHARED_END + PAGE;

/* ---- the range ---------------------------------------------------------------------------------------------------------- */

static void faulted(int, siginfo_t *info, void *) {
  const void *p = info->si_addr;
  if (in_kernel)
    found("kernel %s, block %u, thread %u touches %p, where nothing is: %s", running_kernel(), now.block, now.thread, p,
          describe(p).c_str());
  if (in_space(p)) found("the host touches device memory at %p: %s", p, describe(p).c_str());
  signal(SIGSEGV, SIG_DFL); /* not ours: comes again */
  signal(SIGBUS, SIG_DFL);
}

static void watch_faults() {
  static char stack[64 << 10];
  stack_t s = {};
  s.ss_sp = stack, s.ss_size = sizeof stack;
  sigaltstack(&s, nullptr);
  struct sigaction a = {};
  a.sa_sigaction = faulted, a.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &a, nullptr);
  sigaction(SIGBUS, &a, nullptr);
}

void space_open() {
  if (space.base) return;
  space.file = memfd_create("dtcu", MFD_CLOEXEC);
  if (space.file < 0 || ftruncate(space.file, (off_t)(2 * SHARED_END))) found("no memory for a device");
  void *base = mmap(nullptr, RANGE_END, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) found("no addresses for a device");
  int flags = MAP_SHARED | MAP_FIXED | MAP_NORESERVE;
  mmap(base, DEVICE_END, PROT_NONE, flags, space.file, 0);
  mmap((char *)base + DEVICE_END, SHARED_END - DEVICE_END, PROT_READ | PROT_WRITE, flags, space.file, (off_t)DEVICE_END);
  void *state = mmap(nullptr, SHARED_END, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, space.file, (off_t)SHARED_END);
  if (state == MAP_FAILED) found("no addresses for a device");
  space.base = (char *)base, space.state = (uint8_t *)state;
  if (asan) ASAN_POISON_MEMORY_REGION(space.base + PINNED_END, SHARED_END - PINNED_END);
  watch_faults();
}

void open_device(bool open) {
  static bool is_open;
  static int closed;
  uint64_t pages = device_next / PAGE + 1;
  if (checked && is_open) return; /* instrumented host code says itself what it touches */
  if (open == is_open || (!open && closed >= ALWAYS_CLOSED && below((unsigned)(16 + pages / 32)))) return;
  if (!open) closed++;
  mprotect(space.base, pages * PAGE, open ? PROT_READ | PROT_WRITE : PROT_NONE);
  is_open = open;
}

/* ---- finding ------------------------------------------------------------------------------------------------------------ */

static const std::pair<const uint64_t, Allocation> *allocation_before(uint64_t at) {
  auto i = allocations.upper_bound(at);
  return i == allocations.begin() ? nullptr : &*--i;
}

static const Buffer *buffer_at(uint64_t offset) {
  uint64_t page = (offset - SHARED_END) / PAGE;
  return page < page_buffer.size() && page_buffer[page] ? &buffers[page_buffer[page] - 1] : nullptr;
}

bool buffer_place(uint64_t offset, uint64_t bytes, uint64_t *at) {
  const Buffer *b = buffer_at(offset);
  if (!b || offset < b->lo || offset + bytes > b->hi) return false;
  *at = offset - b->lo + b->at;
  return true;
}

bool place(const void *p, uint64_t bytes, uint64_t *at) {
  if (!in_space(p)) return false;
  uint64_t offset = (uint64_t)((const char *)p - space.base);
  if (offset >= SHARED_END) return buffer_place(offset, bytes, at);
  auto a = allocation_before(offset);
  *at = offset;
  return a && !a->second.freed && offset + bytes <= a->first + a->second.bytes;
}

bool is_pinned(const void *p) {
  uint64_t at;
  return place(p, 1, &at) && at >= DEVICE_END && at < PINNED_END;
}

static std::string bytes_text(uint64_t n) { return std::to_string(n) + (n == 1 ? " byte" : " bytes"); }

static std::string beside(uint64_t at, uint64_t start, uint64_t bytes) {
  if (at < start) return bytes_text(start - at) + " before the " + bytes_text(bytes);
  if (at >= start + bytes) return bytes_text(at - start - bytes) + " behind the " + bytes_text(bytes);
  return bytes_text(at - start) + " into the " + bytes_text(bytes);
}

std::string describe(const void *p) {
  if (!in_space(p)) return p ? "host memory, or nothing" : "null";
  uint64_t at = (uint64_t)((const char *)p - space.base);
  if (at >= PINNED_END && at < SHARED_END) return "no shared array of the block has it";
  if (at >= SHARED_END) {
    const Buffer *b = buffer_at(at);
    return b ? beside(at, b->lo, b->hi - b->lo) + " of the buffer of " + b->where : "no buffer";
  }
  auto a = allocation_before(at);
  if (!a) return "no allocation";
  return beside(at, a->first, a->second.bytes) + (a->first >= DEVICE_END ? " of pinned memory" : " of device memory") +
         (a->second.freed ? ", which was freed" : "");
}

/* ---- giving and taking ---------------------------------------------------------------------------------------------------- */

static void fresh(uint64_t at, uint64_t bytes) {
  char *p = space.base + at;
  for (uint64_t i = 0; i + 4 <= bytes; i += 4) memcpy(p + i, &POISON, 4);
  if (checked)
    memset(space.state + at, at < DEVICE_END ? FRESH : WRITTEN, bytes); /* what the host writes by memcpy is not seen */
  if (asan) {
    ASAN_POISON_MEMORY_REGION(p - RED, bytes + 2 * RED + (RED - bytes % RED) % RED);
    ASAN_UNPOISON_MEMORY_REGION(p, bytes);
  }
}

/* A gap of at least RED bytes follows. */
static void *give(uint64_t *next, uint64_t end, uint64_t bytes) {
  uint64_t at = *next, size = (bytes + RED - 1) / RED * RED + RED;
  if (bytes > end - at || size > end - at) return nullptr;
  *next = at + size;
  allocations[at] = {bytes, false};
  return space.base + at;
}

static void *give_device(uint64_t bytes) {
  if (bytes > settings().memory - used) return nullptr;
  void *p = give(&device_next, DEVICE_END, bytes);
  if (!p) return nullptr;
  used += bytes;
  mprotect(space.base, (device_next + PAGE - 1) / PAGE * PAGE, PROT_READ | PROT_WRITE); /* also the new part */
  open_device(true);
  fresh((uint64_t)((char *)p - space.base), bytes);
  return p;
}

static void take(void *p, bool pinned) {
  uint64_t at = (uint64_t)((char *)p - space.base);
  auto i = in_space(p) ? allocations.find(at) : allocations.end();
  if (i == allocations.end() || (at >= DEVICE_END) != pinned)
    found("%s of what it did not allocate: %s", pinned ? "cudaFreeHost" : "cudaFree", describe(p).c_str());
  if (i->second.freed) found("%s twice: %s", pinned ? "cudaFreeHost" : "cudaFree", describe(p).c_str());
  uint64_t bytes = i->second.bytes, inner = (at + PAGE - 1) / PAGE * PAGE, end = (at + bytes) / PAGE * PAGE;
  i->second.freed = true;
  if (!pinned) used -= bytes;
  if (checked) memset(space.state + at, FREED, bytes);
  for (uint64_t k = 0; k + 4 <= bytes && k < PAGE; k += 4) memcpy((char *)p + k, &POISON, 4);
  if (inner < end) fallocate(space.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)inner, (off_t)(end - inner));
  if (asan) ASAN_POISON_MEMORY_REGION(p, bytes);
}

void *buffer(void *start, int64_t bytes, const char *where) {
  Entry e;
  uint64_t at;
  if (e.error || bytes <= 0) return start;
  if (!place(start, (uint64_t)bytes, &at))
    found("%s: the buffer of %lld bytes is not in the arena: %s", where, (long long)bytes, describe(start).c_str());
  auto known = buffer_of.find({at, (uint64_t)bytes});
  if (known != buffer_of.end()) return space.base + buffers[known->second].lo;
  uint64_t first = at / PAGE * PAGE, size = (at + (uint64_t)bytes + PAGE - 1) / PAGE * PAGE - first;
  if (buffer_next + size + PAGE > RANGE_END) found("more buffers than fit into the range");
  mmap(space.base + buffer_next, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, space.file, (off_t)first);
  uint64_t lo = buffer_next + at - first;
  if (asan) ASAN_POISON_MEMORY_REGION(space.base + buffer_next - PAGE, size + 2 * PAGE);
  if (asan) ASAN_UNPOISON_MEMORY_REGION(space.base + lo, (uint64_t)bytes);
  buffer_of[{at, (uint64_t)bytes}] = (uint32_t)buffers.size();
  buffers.push_back({lo, lo + (uint64_t)bytes, at, where});
  buffer_next += size + PAGE;
  page_buffer.resize((buffer_next - SHARED_END) / PAGE, 0);
  for (uint64_t page = (lo - SHARED_END) / PAGE, i = 0; i < size / PAGE; i++) page_buffer[page + i] = (uint32_t)buffers.size();
  return space.base + lo;
}

} // namespace emu

using namespace emu;

extern "C" {

cudaError_t cudaMalloc(void **p, size_t bytes) {
  Entry e;
  if (e.error) return e.error;
  *p = nullptr;
  if (capturing()) return fail(cudaErrorStreamCaptureUnsupported);
  if (bytes && !(*p = give_device(bytes))) return fail(cudaErrorMemoryAllocation);
  return cudaSuccess;
}

cudaError_t cudaFree(void *p) {
  Entry e;
  if (e.error) return e.error;
  if (capturing()) return fail(cudaErrorStreamCaptureUnsupported);
  sync_device("cudaFree");
  open_device(true);
  if (p) take(p, false);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned) {
  Entry e;
  if (e.error) return e.error;
  *p = bytes ? give(&pinned_next, PINNED_END, bytes) : nullptr;
  if (bytes && !*p) return fail(cudaErrorMemoryAllocation);
  if (bytes) fresh((uint64_t)((char *)*p - space.base), bytes);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void **p, size_t bytes) { return cudaHostAlloc(p, bytes, 0); }

cudaError_t cudaFreeHost(void *p) {
  Entry e;
  if (e.error) return e.error;
  sync_device("cudaFreeHost");
  if (p) take(p, true);
  return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned) {
  Entry e;
  *device = host;
  return e.error ? e.error : is_pinned(host) ? cudaSuccess : fail(cudaErrorInvalidValue);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *a, const void *p) {
  Entry e;
  uint64_t at;
  if (e.error) return e.error;
  *a = {cudaMemoryTypeUnregistered, -1, nullptr, (void *)p};
  if (!place(p, 1, &at)) return cudaSuccess;
  bool pinned = at >= DEVICE_END;
  *a = {pinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice, device(), (void *)p, pinned ? (void *)p : nullptr};
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  Entry e;
  if (e.error) return e.error;
  *free = settings().memory - used, *total = settings().memory;
  return cudaSuccess;
}
}
