/* access.cc: races, reads of what nobody wrote, and accesses outside of what was given, of kernels and operations. In the
   checked variant programs are compiled with -fsanitize=thread, whose calls before every access come here instead of to
   its library.

   Every byte of device, pinned and shared memory knows its last write and its last reads: by which operation (lane and
   number), block, thread, and after how many barriers of the block and of the warp. So "happened before" is exact, in
   constant time:

     other operations    before, if the running one's clock has reached it (order of streams, events, synchronisation)
     one operation       the same thread; or the same block and fewer barriers; or the same warp and fewer __syncwarp

   Several readers are kept as the smallest of {thread, lanes of a warp, threads of a block, any} that has them all since
   the last barrier; an earlier read that is ordered before a later one adds nothing. Reads of two operations that are
   not ordered are both kept, of a third the oldest is lost.                                                             */
#include "emulator.h"

#include <link.h>
#include <sys/mman.h>

extern "C" const char __start_emu_ids[], __stop_emu_ids[];

namespace emu {

Actor now;
Bytes arguments;
bool in_kernel;
Clock host{1};
static Actor host_actor;

struct Lane {
  std::vector<const char *> name; /* of its operations, from 1 */
};
static std::vector<Lane> lanes(1);

/* ---- clocks ------------------------------------------------------------------------------------------------------------- */

void join(Clock &into, const Clock &from) {
  if (into.size() < from.size()) into.resize(from.size());
  for (size_t i = 0; i < from.size(); i++) into[i] = std::max(into[i], from[i]);
}

uint32_t new_lane() {
  lanes.emplace_back();
  return (uint32_t)lanes.size() - 1;
}

void begin_operation(const char *name, uint32_t lane, const Clock &clock) {
  lanes[lane].name.push_back(name);
  now = {clock, lane, (uint32_t)lanes[lane].name.size(), 0, 0, 0, 0};
  now.clock.resize(lanes.size());
}

Clock end_operation() {
  now.clock[now.lane] = now.seq;
  return now.clock;
}

void part(unsigned thread) { now.thread = (uint16_t)(thread % 1000 * 32); } /* each a warp of its own */

Clock host_release() {
  Clock at = host;
  host[0]++;
  return at;
}

/* ---- who touched what ------------------------------------------------------------------------------------------------------ */

enum : uint32_t { ANY_BLOCK = ~0u };
enum Who : uint8_t { THREAD, LANES, THREADS };
struct Cell {
  uint32_t seq, lane, block, epoch, warp_epoch;
  uint16_t thread;
  Who who;
  const void *pc;
};
struct Cells {
  Cell write, read[2];
};
/* 256 bytes: cells of 4 bytes each, or of single bytes once one was touched alone. */
struct Page {
  unsigned shift;
  Cells *cell;
};
static Page *pages;

static Page &page_of(uint64_t at) {
  if (!pages) {
    pages = (Page *)mmap(nullptr, (SHARED_END >> 8) * sizeof(Page), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) found("no memory for what is known of accesses");
  }
  Page &p = pages[at >> 8];
  if (!p.cell) p = {2, (Cells *)calloc(64, sizeof(Cells))};
  return p;
}

static void split(Page &p) {
  Cells *fine = (Cells *)calloc(256, sizeof(Cells));
  for (int i = 0; i < 256; i++) fine[i] = p.cell[i / 4];
  free(p.cell);
  p = {0, fine};
}

void forget(uint64_t at, uint64_t bytes) {
  if (!pages) return;
  for (uint64_t k = at >> 8; k <= (at + bytes - 1) >> 8; k++)
    if (pages[k].cell) memset(pages[k].cell, 0, (256 >> pages[k].shift) * sizeof(Cells));
}

static bool same_operation(const Cell &c, const Actor &a) { return c.lane == a.lane && c.seq == a.seq; }

static bool before(const Cell &c, const Actor &a) {
  if (!c.seq) return true;
  if (!same_operation(c, a)) return c.lane < a.clock.size() && a.clock[c.lane] >= c.seq;
  if (a.lane == 0) return true; /* the host */
  if (c.block != a.block) return false;
  if (c.epoch < a.epoch) return true;
  if (c.who == THREAD && c.thread == a.thread) return true;
  return c.who != THREADS && c.thread / 32 == a.thread / 32 && c.warp_epoch < a.warp_epoch;
}

static void set(Cell &c, const Actor &a, const void *pc) {
  c = {a.seq, a.lane, a.block, a.epoch, a.warp_epoch, a.thread, THREAD, pc};
}

/* The running thread reads too: c, of the same operation, becomes the smallest that has both. */
static void widen(Cell &c, const Actor &a, const void *pc) {
  if (before(c, a)) return set(c, a, pc);
  if (c.block != a.block) {
    c.block = ANY_BLOCK;
  } else if (c.who == THREADS || c.thread / 32 != a.thread / 32) {
    c.who = THREADS;
  } else {
    c.who = LANES;
  }
  c.pc = pc;
}

static void note_read(Cells &c, const Actor &a, const void *pc) {
  for (Cell &r : c.read)
    if (r.seq && same_operation(r, a)) return widen(r, a, pc);
  for (Cell &r : c.read)
    if (before(r, a)) return set(r, a, pc);
  c.read[0] = c.read[1];
  set(c.read[1], a, pc);
}

static std::string name_of(uint32_t lane, uint32_t seq) {
  return lane && seq <= lanes[lane].name.size() ? lanes[lane].name[seq - 1] : "the host";
}

static std::string who(const Actor &a) {
  std::string s = name_of(a.lane, a.seq);
  if (in_kernel) s = "kernel " + s + ", block " + std::to_string(a.block) + ", thread " + std::to_string(a.thread);
  return s;
}

static std::string at(const void *pc) {
  std::string s = place_of(pc);
  return s.empty() ? "" : " at " + s;
}

[[noreturn]] static void race(const Cell &c, const Actor &a, bool was_write, bool write, unsigned size, const void *p,
                              const void *pc) {
  const char *did = was_write ? "wrote" : "read";
  std::string other;
  if (!same_operation(c, a)) {
    other = name_of(c.lane, c.seq) + " " + did + at(c.pc) + "; no event, stream or synchronisation orders the two";
  } else if (c.block != a.block) {
    other = (c.block == ANY_BLOCK ? "other blocks " : "block " + std::to_string(c.block) + " ") + std::string(did) + at(c.pc) +
            "; blocks are not ordered";
  } else {
    other = (c.who == THREAD ? "thread " + std::to_string(c.thread) : "other threads") + " of the block " + did + at(c.pc) +
            "; no barrier is between the two";
  }
  found("race: %s %s %u bytes at %p (%s)%s, which %s", who(a).c_str(), write ? "writes" : "reads", size, p, describe(p).c_str(),
        at(pc).c_str(), other.c_str());
}

static void race_check(uint64_t place, unsigned size, bool write, const Actor &a, const void *p, const void *pc) {
  while (size) {
    Page &page = page_of(place);
    if (page.shift && (size < 4 || place % 4)) split(page);
    unsigned step = 1u << page.shift;
    Cells &c = page.cell[(place & 255) >> page.shift];
    if (!before(c.write, a)) race(c.write, a, true, write, size, p, pc);
    if (write) {
      for (Cell &r : c.read)
        if (!before(r, a)) race(r, a, false, true, size, p, pc);
      set(c.write, a, pc);
      c.read[0].seq = c.read[1].seq = 0;
    } else {
      note_read(c, a, pc);
    }
    place += step, size -= step;
  }
}

/* ---- states ------------------------------------------------------------------------------------------------------------------
 */

[[noreturn]] static void outside(const Actor &a, const void *p, unsigned size, bool write, const void *pc) {
  found("%s %s %u bytes outside of what was given, at %p%s: %s", who(a).c_str(), write ? "writes" : "reads", size, p,
        at(pc).c_str(), describe(p).c_str());
}

static void state_check(uint64_t place, unsigned size, bool write, const Actor &a, const void *p, const void *pc) {
  uint8_t *s = space.state + place;
  for (unsigned i = 0; i < size; i++) {
    if (s[i] == WRITTEN) continue;
    if (s[i] != FRESH) outside(a, (const char *)p + i, size - i, write, pc);
    if (!write)
      found("%s reads %u bytes at %p%s that nobody wrote: %s", who(a).c_str(), size, p, at(pc).c_str(), describe(p).c_str());
    s[i] = WRITTEN;
  }
}

/* ---- memory that is not the device's
 * --------------------------------------------------------------------------------------------- */

static std::vector<Bytes> constants; /* of programs: what no one can write */

static int collect(dl_phdr_info *info, size_t, void *) {
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) &h = info->dlpi_phdr[i];
    if (h.p_type == PT_LOAD && !(h.p_flags & PF_W)) constants.push_back({(const char *)info->dlpi_addr + h.p_vaddr, h.p_memsz});
  }
  return 0;
}

static bool within(const void *p, const Bytes &b) { return (size_t)((const char *)p - b.at) < b.n; }

static void kernel_outside(const void *p, unsigned size, bool write, const void *pc) {
  if (on_a_fibre(p) || within(p, {__start_emu_ids, (size_t)(__stop_emu_ids - __start_emu_ids)})) return;
  if (!write && within(p, arguments)) return;
  if (constants.empty()) dl_iterate_phdr(collect, nullptr);
  for (const Bytes &b : constants)
    if (!write && within(p, b)) return;
  found("%s %s %u bytes of the host's memory at %p%s", who(now).c_str(), write ? "writes" : "reads", size, p, at(pc).c_str());
}

static void host_access(const void *p, uint64_t offset, unsigned size, bool write, bool alone, const void *pc) {
  uint64_t place = offset;
  if (offset >= SHARED_END && !buffer_place(offset, size, &place)) place = 0;
  if (place < DEVICE_END || place >= PINNED_END)
    found("the host %s device memory at %p%s: %s", write ? "writes" : "reads", p, at(pc).c_str(), describe(p).c_str());
  host_actor.clock = host, host_actor.lane = 0, host_actor.seq = host[0];
  state_check(place, size, write, host_actor, p, pc);
  if (!alone) race_check(place, size, write, host_actor, p, pc);
}

/* `alone`: volatile, whose meaning is that others write it meanwhile. */
[[maybe_unused]] static void access(const void *p, unsigned size, bool write, const void *pc, bool alone = false) {
  uint64_t offset = (uint64_t)((const char *)p - space.base), place = offset;
  if (offset >= RANGE_END || !space.base) {
    if (in_kernel) kernel_outside(p, size, write, pc);
    return;
  }
  if (!in_kernel) return host_access(p, offset, size, write, alone, pc);
  if (offset >= SHARED_END && !buffer_place(offset, size, &place)) outside(now, p, size, write, pc);
  state_check(place, size, write, now, p, pc);
  if (!alone) race_check(place, size, write, now, p, pc);
}

uint64_t atomic_load(const void *p, size_t bytes) {
  uint64_t place = (uint64_t)((const char *)p - space.base), x = 0;
  if (checked && in_kernel && place < RANGE_END) {
    if (place >= SHARED_END && !buffer_place(place, bytes, &place))
      outside(now, p, (unsigned)bytes, true, __builtin_return_address(0));
    state_check(place, (unsigned)bytes, false, now, p, __builtin_return_address(0));
  }
  memcpy(&x, p, bytes);
  return x;
}
void atomic_store(void *p, size_t bytes, uint64_t bits) { memcpy(p, &bits, bytes); }

/* ---- operations
 * -------------------------------------------------------------------------------------------------------------------- */

static uint64_t whole(const void *p, uint64_t bytes, bool write, const char *what) {
  uint64_t at;
  if (!place(p, bytes, &at))
    found("%s %s %llu bytes at %p that were not given: from %s, to %s", what, write ? "writes" : "reads",
          (unsigned long long)bytes, p, describe(p).c_str(), describe((const char *)p + bytes - 1).c_str());
  return at;
}

static void run_of(const void *p, uint64_t bytes, bool write, const char *what, bool may_be_fresh) {
  if (!bytes) return;
  uint64_t at = whole(p, bytes, write, what);
  if (!checked) return;
  for (uint64_t i = 0, n; i < bytes; i += n) {
    n = std::min<uint64_t>(bytes - i, 256 - (at + i) % 256);
    if (!may_be_fresh) state_check(at + i, (unsigned)n, write, now, (const char *)p + i, nullptr);
    race_check(at + i, (unsigned)n, write, now, (const char *)p + i, nullptr);
  }
}

void reads(const void *p, uint64_t bytes, const char *what, bool may_be_fresh) { run_of(p, bytes, false, what, may_be_fresh); }
void writes(void *p, uint64_t bytes, const char *what) { run_of(p, bytes, true, what, false); }

bool all_fresh(const void *p, uint64_t bytes) {
  uint64_t at;
  return checked && bytes && place(p, bytes, &at) && at < DEVICE_END &&
         std::all_of(space.state + at, space.state + at + bytes, [](uint8_t s) { return s == FRESH; });
}

void copy_state(void *dst, const void *src, uint64_t bytes) {
  uint64_t d, s;
  if (checked && place(dst, bytes, &d) && place(src, bytes, &s)) memmove(space.state + d, space.state + s, bytes);
}

} // namespace emu

/* ---- what the compiler calls
 * ---------------------------------------------------------------------------------------------------------- */

#ifdef DTCU_CHECKED
using emu::access;

#define PC __builtin_return_address(0)
#define SIZED(n)                                                                                                                 \
  void __tsan_read##n(void *p) { access(p, n, false, PC); }                                                                      \
  void __tsan_write##n(void *p) { access(p, n, true, PC); }                                                                      \
  void __tsan_volatile_read##n(void *p) { access(p, n, false, PC, true); }                                                       \
  void __tsan_volatile_write##n(void *p) { access(p, n, true, PC, true); }                                                       \
  void __tsan_unaligned_read##n(void *p) { access(p, n, false, PC); }                                                            \
  void __tsan_unaligned_write##n(void *p) { access(p, n, true, PC); }

/* The host's own atomics are ordinary ones. */
#define ATOMIC(n, T)                                                                                                             \
  T __tsan_atomic##n##_load(const volatile T *p, int) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }                           \
  void __tsan_atomic##n##_store(volatile T *p, T x, int) { __atomic_store_n(p, x, __ATOMIC_SEQ_CST); }                           \
  T __tsan_atomic##n##_exchange(volatile T *p, T x, int) { return __atomic_exchange_n(p, x, __ATOMIC_SEQ_CST); }                 \
  T __tsan_atomic##n##_fetch_add(volatile T *p, T x, int) { return __atomic_fetch_add(p, x, __ATOMIC_SEQ_CST); }                 \
  T __tsan_atomic##n##_fetch_sub(volatile T *p, T x, int) { return __atomic_fetch_sub(p, x, __ATOMIC_SEQ_CST); }                 \
  T __tsan_atomic##n##_fetch_and(volatile T *p, T x, int) { return __atomic_fetch_and(p, x, __ATOMIC_SEQ_CST); }                 \
  T __tsan_atomic##n##_fetch_or(volatile T *p, T x, int) { return __atomic_fetch_or(p, x, __ATOMIC_SEQ_CST); }                   \
  T __tsan_atomic##n##_fetch_xor(volatile T *p, T x, int) { return __atomic_fetch_xor(p, x, __ATOMIC_SEQ_CST); }                 \
  int __tsan_atomic##n##_compare_exchange_strong(volatile T *p, T *was, T x, int, int) {                                         \
    return __atomic_compare_exchange_n(p, was, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                                    \
  }                                                                                                                              \
  int __tsan_atomic##n##_compare_exchange_weak(volatile T *p, T *was, T x, int, int) {                                           \
    return __atomic_compare_exchange_n(p, was, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                                    \
  }

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
void __tsan_read_range(void *p, unsigned long n) { access(p, (unsigned)n, false, PC); }
void __tsan_write_range(void *p, unsigned long n) { access(p, (unsigned)n, true, PC); }
SIZED(1)
SIZED(2)
SIZED(4)
SIZED(8)
SIZED(16) ATOMIC(8, uint8_t) ATOMIC(16, uint16_t) ATOMIC(32, uint32_t) ATOMIC(64, uint64_t) void __tsan_atomic_thread_fence(int) {
}
void __tsan_atomic_signal_fence(int) {}
}
#endif
