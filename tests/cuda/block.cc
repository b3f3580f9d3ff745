/* block.cc: kernels. The blocks of a grid run one after another in random order; a block's threads are fibres. A thread
   runs until it meets others (a barrier, a shuffle) or ends; then a random one that can go on does. A thread that ends
   hands its stack to the next that has not begun, so a kernel without barriers never switches.

     __syncthreads by all but one thread, which returned:
       dtcu emulator: kernel rows, block 2: 63 threads wait at rows.cu:12 (__syncthreads), thread 5 has returned      */
#include "emulator.h"
#include "fibre.h"

#include <sanitizer/asan_interface.h>
#include <string>

#define IDS __attribute__((section("emu_ids"))) /* kernels may read them */
IDS uint3 threadIdx, blockIdx;
IDS dim3 blockDim, gridDim;

namespace emu {

struct Thread {
  Fibre *fibre;
  bool begun, ended, waits;
  Meet meet;
  std::source_location where;
  unsigned mask;
  uint64_t bits, result;
  int arg;
};
/* The lanes of a warp that wait for each other. */
struct Warp {
  unsigned arrived;
  uint32_t epoch;
};
struct Shared {
  const void *declaration;
  const char *name;
  char *at;
  size_t bytes;
};
struct Block {
  unsigned threads, live, at_barrier;
  uint32_t epoch;
  unsigned running;  /* thread */
  unsigned starting; /* what a fibre that begins or is free runs */
  std::vector<Thread> thread;
  std::vector<Warp> warp;
  std::vector<unsigned> ready, unstarted;
  std::vector<Shared> shared;
  size_t shared_end; /* bytes of the shared range used so far, and of arrays */
  size_t shared_bytes;
};

static Block block;
static Fibre home;
static const Body *body;
static const char *kernel;

/* The order in which things run: as it comes, backwards, or any. */
static void shuffle(std::vector<unsigned> &v, unsigned n) {
  v.resize(n);
  unsigned way = below(4);
  for (unsigned i = 0; i < n; i++) v[i] = way == 1 ? n - 1 - i : i;
  if (way < 2) return;
  for (unsigned i = n; i > 1; i--) std::swap(v[i - 1], v[below(i)]);
}

static void becomes(unsigned t) {
  block.running = t;
  threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
  now.thread = (uint16_t)t, now.epoch = block.epoch, now.warp_epoch = block.warp[t / 32].epoch;
}

enum class Next { NONE, BEGINS, GOES_ON };
/* Who runs next; a thread that begins is in block.starting, one that goes on in *t. */
static Next choose(unsigned *t) {
  unsigned fresh = (unsigned)block.unstarted.size(), n = fresh + (unsigned)block.ready.size();
  if (!n) return Next::NONE;
  unsigned i = fresh == n ? 0 : below(n);
  if (i < fresh) {
    block.starting = block.unstarted.back();
    block.unstarted.pop_back();
    return Next::BEGINS;
  }
  i -= fresh;
  *t = block.ready[i];
  block.ready[i] = block.ready.back();
  block.ready.pop_back();
  return Next::GOES_ON;
}

static void thread_main() {
  fibre_begins();
  for (;;) {
    unsigned t = block.starting;
    block.thread[t].begun = true;
    becomes(t);
    body->run();
    block.thread[t].ended = true;
    block.live--;
    Fibre *mine = block.thread[t].fibre, *to = &home;
    Next next = choose(&t);
    if (next == Next::BEGINS) {
      block.thread[block.starting].fibre = mine;
      continue;
    }
    fibre_give(mine);
    if (next == Next::GOES_ON) becomes(t), to = block.thread[t].fibre;
    fibre_switch(mine, to);
  }
}

/* The running thread waits; returns when it is chosen again. */
static void leave() {
  Thread &me = block.thread[block.running];
  unsigned t = 0;
  Fibre *to = &home;
  switch (choose(&t)) {
  case Next::NONE: break;
  case Next::BEGINS: to = block.thread[block.starting].fibre = fibre_take(thread_main); break;
  case Next::GOES_ON:
    becomes(t);
    to = block.thread[t].fibre;
    break;
  }
  if (to != me.fibre) fibre_switch(me.fibre, to);
}

static bool same(const std::source_location &a, const std::source_location &b) {
  return a.line() == b.line() && a.column() == b.column() &&
         (a.file_name() == b.file_name() || !strcmp(a.file_name(), b.file_name()));
}

static const char *meeting(Meet m) {
  static const char *const name[] = {"__syncthreads",    "__syncwarp",     "__shfl_sync",
                                     "__shfl_down_sync", "__shfl_up_sync", "__shfl_xor_sync"};
  return name[(int)m];
}

static std::string waits_at(const Thread &t) {
  return std::string(t.where.file_name()) + ":" + std::to_string(t.where.line()) + " (" + meeting(t.meet) + ")";
}

/* Threads wait and nobody can come: says who waits where, and who does not. */
[[noreturn]] static void divergent() {
  std::string text;
  int lines = 0;
  std::vector<bool> told(block.threads);
  for (unsigned t = 0; t < block.threads && lines < 6; t++) {
    if (told[t]) continue;
    const Thread &a = block.thread[t];
    unsigned n = 0;
    for (unsigned u = t; u < block.threads; u++) {
      const Thread &b = block.thread[u];
      if (a.ended != b.ended || (!a.ended && (a.meet != b.meet || !same(a.where, b.where)))) continue;
      told[u] = true, n++;
    }
    std::string who =
        n == 1 ? "thread " + std::to_string(t) : std::to_string(n) + " threads (the first is " + std::to_string(t) + ")";
    text += (lines++ ? ", " : "") + who + (a.ended ? " returned" : (n == 1 ? " waits at " : " wait at ") + waits_at(a));
  }
  found("kernel %s, block %u: threads that must meet do not: %s", kernel, now.block, text.c_str());
}

static void release(unsigned t) {
  block.thread[t].waits = false;
  block.ready.push_back(t);
}

static void arrive(Meet m, const std::source_location &where) {
  Thread &me = block.thread[block.running];
  me.meet = m, me.where = where, me.waits = true;
}

void meet_block(const std::source_location &here) {
  if (!in_kernel) found("%s:%u: a barrier outside a kernel", here.file_name(), here.line());
  arrive(Meet::BLOCK, here);
  if (++block.at_barrier < block.threads) return leave();
  for (const Thread &t : block.thread)
    if (t.meet != Meet::BLOCK || !same(t.where, here)) divergent();
  block.at_barrier = 0;
  block.epoch++;
  unsigned me = block.running;
  for (unsigned t = 0; t < block.threads; t++)
    if (t != me) release(t);
  block.thread[me].waits = false;
  becomes(me);
}

/* The lane that `lane` reads from. */
static int source(const Thread &t, int lane, int width) {
  int first = lane / width * width, end = first + width, from = lane;
  switch (t.meet) {
  case Meet::SHUFFLE: from = first + (int)((unsigned)t.arg % (unsigned)width); break;
  case Meet::SHUFFLE_DOWN: from = lane + t.arg; break;
  case Meet::SHUFFLE_UP: from = lane - t.arg; break;
  case Meet::SHUFFLE_XOR: from = lane ^ t.arg; break;
  default: break;
  }
  return from < first || from >= end ? lane : from;
}

static void exchange(Thread *lanes, unsigned mask, int width) {
  for (int i = 0; i < 32; i++) {
    if (!(mask >> i & 1)) continue;
    int from = source(lanes[i], i, width);
    if (!(mask >> from & 1))
      found("kernel %s, block %u: lane %d at %s reads lane %d, which is not in the mask %08x", kernel, now.block, i,
            waits_at(lanes[i]).c_str(), from, mask);
    lanes[i].result = lanes[from].bits;
  }
}

uint64_t meet_warp(Meet m, unsigned mask, uint64_t bits, int arg, int width, const std::source_location &here) {
  if (!in_kernel) found("%s:%u: a meeting of a warp outside a kernel", here.file_name(), here.line());
  unsigned me = block.running, lane = me % 32, base = me - lane;
  Thread *lanes = &block.thread[base];
  Warp &warp = block.warp[me / 32];
  arrive(m, here);
  Thread &mine = block.thread[me];
  mine.mask = mask, mine.bits = bits, mine.arg = arg;
  if (!(mask >> lane & 1))
    found("kernel %s, block %u: lane %u at %s is not in its mask %08x", kernel, now.block, lane, waits_at(mine).c_str(), mask);
  if (warp.arrived) { /* those who wait agree */
    unsigned i = (unsigned)__builtin_ctz(warp.arrived);
    if (lanes[i].mask != mask || lanes[i].meet != m || !same(lanes[i].where, here))
      found("kernel %s, block %u: lanes of warp %u wait for each other at different places: lane %u at %s with mask %08x, lane "
            "%u at %s "
            "with mask %08x",
            kernel, now.block, me / 32, i, waits_at(lanes[i]).c_str(), lanes[i].mask, lane, waits_at(mine).c_str(), mask);
  }
  warp.arrived |= 1u << lane;
  if (warp.arrived != mask) {
    leave();
    return mine.result;
  }
  warp.arrived = 0;
  if (m == Meet::WARP && mask == 0xffffffffu) warp.epoch++; /* a shuffle orders no memory */
  exchange(lanes, mask, width);
  for (unsigned i = 0; i < 32; i++)
    if (i != lane && (mask >> i & 1)) release(base + i);
  mine.waits = false;
  becomes(me);
  return mine.result;
}

/* ---- shared arrays --------------------------------------------------------------------------------------------------- */

enum { SHARED_LIMIT = 48 << 10, RED = 64 };

static void shared_clear() {
  if (block.shared.empty()) return;
  if (asan) ASAN_POISON_MEMORY_REGION(space.base + PINNED_END, block.shared_end);
  if (checked) {
    memset(space.state + PINNED_END, NOTHING, block.shared_end);
    forget(PINNED_END, block.shared_end);
  }
  block.shared.clear();
  block.shared_end = block.shared_bytes = 0;
}

void *shared(const void *declaration, const char *name, size_t element, size_t count, size_t align) {
  if (!in_kernel) found("shared array %s outside a kernel", name);
  for (const Shared &s : block.shared)
    if (s.declaration == declaration) return s.at;
  align = std::max<size_t>(align, 16); /* what AddressSanitizer can tell apart, and more */
  size_t bytes = element * count, at = (block.shared_end + RED + align - 1) / align * align;
  block.shared_bytes += bytes;
  if (block.shared_bytes > SHARED_LIMIT)
    found("kernel %s: %zu bytes of shared arrays, more than %d, with %s[%zu]", kernel, block.shared_bytes, SHARED_LIMIT, name,
          count);
  char *p = space.base + PINNED_END + at;
  if (asan) ASAN_UNPOISON_MEMORY_REGION(p, bytes);
  for (size_t i = 0; i < bytes; i++) p[i] = (char)(POISON >> 8 * (i % 4));
  if (checked) memset(space.state + PINNED_END + at, FRESH, bytes);
  block.shared_end = at + bytes + RED;
  block.shared.push_back({declaration, name, p, bytes});
  return p;
}

/* ---- grids -------------------------------------------------------------------------------------------------------------- */

static void run_block(unsigned index) {
  blockIdx = {index % gridDim.x, index / gridDim.x % gridDim.y, index / (gridDim.x * gridDim.y)};
  now.block = index;
  block.epoch = 0, block.at_barrier = 0, block.live = block.threads;
  block.thread.assign(block.threads, Thread{});
  block.warp.assign((block.threads + 31) / 32, Warp{});
  block.ready.clear();
  shuffle(block.unstarted, block.threads);
  shared_clear();
  unsigned t;
  choose(&t);
  block.thread[block.starting].fibre = fibre_take(thread_main);
  fibre_switch(&home, block.thread[block.starting].fibre);
  if (block.live) divergent();
}

const char *running_kernel() { return kernel; }

void run_kernel(const char *name, dim3 blocks, dim3 threads, const Body &f) {
  kernel = name, body = &f;
  home = Fibre{};
  arguments = {(const char *)&f, f.bytes};
  gridDim = blocks, blockDim = threads;
  block.threads = threads.x * threads.y * threads.z;
  std::vector<unsigned> order;
  shuffle(order, blocks.x * blocks.y * blocks.z);
  in_kernel = true;
  for (unsigned i : order) run_block(i);
  in_kernel = false;
  shared_clear();
}

} // namespace emu
