/* emulator.h: what the emulator's files share, in the order of a program's life: settings -> memory -> access ->
   kernels -> streams -> graphs -> NCCL.

   A process is one device, one host and one thread that is whichever of them runs. An operation (a kernel, a copy, a
   product, a collective) is queued and runs later: at a synchronisation, or at random. What may not be relied upon is
   random; DTCU_SEED replays it.                                                                                      */
#ifndef DTCU_EMULATOR_H
#define DTCU_EMULATOR_H

#include "cuda_runtime.h"

#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

namespace emu {

#ifdef DTCU_CHECKED
constexpr bool checked = true; /* accesses of kernels and host call access.cc */
#else
constexpr bool checked = false;
#endif
#ifdef __SANITIZE_ADDRESS__
constexpr bool asan = true;
#else
constexpr bool asan = false;
#endif

/* ---- device.cc: settings, chance, errors ------------------------------------------------------------------------- */

enum { EXIT_FOUND = 86 }; /* the emulator found a fault of the program */

struct Settings {
  uint64_t seed;
  int devices;
  bool no_driver, no_epilogue;
  uint64_t memory;            /* bytes of a device */
  int kernel_error;           /* the launch that fails, from 1; 0: none */
  int async_rank, stuck_rank; /* -1: none */
  int async_at, stuck_at;     /* operation of NCCL, from 1 */
};
const Settings &settings();

uint64_t chance();          /* 64 random bits */
void stir(uint64_t);        /* makes the chance of a rank its own */
unsigned below(unsigned n); /* 0 .. n - 1 */

/* Prints what was found, the seed, and ends the process with EXIT_FOUND. */
[[noreturn]] void found(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "file.cu:12 (function)" of an address in code; empty where nothing is known. */
std::string place_of(const void *pc);

/* Every entry: takes the lock, and says whether the process may use CUDA at all; remembers the error otherwise. */
struct Entry {
  cudaError_t error;
  Entry(bool needs_device = true);
  ~Entry();
  Entry(const Entry &) = delete;
};
cudaError_t fail(cudaError_t); /* remembers the error for cudaGetLastError */
void sticky(cudaError_t);      /* the device is lost: every call says so from now on */
cudaError_t lost_error();
/* Lets other threads and processes run for a moment; the lock is free meanwhile. */
void idle();
int device();

/* ---- memory.cc: addresses ------------------------------------------------------------------------------------------- */

/* All memory that kernels may see is one file in memory of this process, mapped as one range: device memory, pinned host
   memory, shared arrays; behind it second mappings of parts of it (buffers). An address is an offset in the range, and a
   place an offset in the file; they differ only for buffers. */
enum State : uint8_t { NOTHING, FRESH, WRITTEN, FREED }; /* of a byte of the file */
constexpr uint64_t GIB = 1ull << 30;
constexpr uint64_t DEVICE_END = 24 * GIB, PINNED_END = 28 * GIB, SHARED_END = PINNED_END + (1 << 20), RANGE_END = 96 * GIB;

struct Space {
  char *base;     /* of the range */
  uint8_t *state; /* of the file, by place (checked) */
  int file;
};
extern Space space;
void space_open();
inline bool in_space(const void *p) { return (uint64_t)((const char *)p - space.base) < RANGE_END && space.base; }
/* The place of an address. False where no allocation or buffer has all the bytes. */
bool place(const void *p, uint64_t bytes, uint64_t *at);
/* "24 bytes behind the 4096 bytes allocated at ..." */
std::string describe(const void *p);
bool is_pinned(const void *p);
/* Lets the host touch device memory (while operations run), or not. */
void open_device(bool open);
bool buffer_place(uint64_t offset, uint64_t bytes, uint64_t *at); /* the same for an offset behind SHARED_END */
constexpr uint32_t POISON = 0x7fa0dead;                           /* what fresh memory holds: a signalling NaN */

/* ---- access.cc: who may touch what ---------------------------------------------------------------------------------- */

/* Times of all lanes that happened before. A lane is what runs in order: the host (0), a stream, a branch of a graph. */
typedef std::vector<uint32_t> Clock;
void join(Clock &into, const Clock &from);

/* What runs now. */
struct Actor {
  Clock clock;
  uint32_t lane, seq; /* the operation */
  uint32_t block, epoch, warp_epoch;
  uint16_t thread;
};
struct Bytes {
  const char *at;
  size_t n;
};
extern Actor now;
extern Bytes arguments; /* of the running kernel */
extern bool in_kernel;  /* else host, or the emulator on behalf of an operation */

uint32_t new_lane();
/* Begins an operation of a lane that knows `clock`; end_operation returns what whoever comes after it knows. */
void begin_operation(const char *name, uint32_t lane, const Clock &clock);
Clock end_operation();
/* Parts of an operation that run at the same time (members of a group) are threads of it. */
void part(unsigned thread);

/* The host's clock, and a moment of it that others can wait for. */
extern Clock host;
Clock host_release();
void forget(uint64_t place, uint64_t bytes); /* who touched them */

/* An operation reads or writes whole runs of bytes. What it reads must be allocated; in the checked variant also written
   before (unless `may_be_fresh`: copies carry that on) and free of races. */
void reads(const void *p, uint64_t bytes, const char *what, bool may_be_fresh = false);
void writes(void *p, uint64_t bytes, const char *what);
bool all_fresh(const void *p, uint64_t bytes);               /* checked: nobody wrote any of them */
void copy_state(void *dst, const void *src, uint64_t bytes); /* which bytes were written goes along */

/* ---- block.cc, fibre.cc: kernels --------------------------------------------------------------------------------------- */

void run_kernel(const char *name, dim3 blocks, dim3 threads, const Body &);
const char *running_kernel();
/* The stack of a fibre is a kernel's own memory. */
bool on_a_fibre(const void *p);

/* ---- stream.cc: queues ---------------------------------------------------------------------------------------------------- */

enum class Step { STUCK, MOVED, DONE };
/* An operation: called until DONE. It is copied before its first call, so that a graph can run it again. */
typedef std::function<Step()> Task;
/* `clocked`: reads and writes memory, so it is an actor of its own. */
cudaError_t enqueue(cudaStream_t, const char *name, Task, bool clocked = true);
/* Runs one step of one operation. False where nothing can move. */
bool advance();
/* Waits until `done`, running what can run. */
void run_until(const std::function<bool()> &done, const char *what);
bool stream_exists(cudaStream_t);
/* The clock that a Task of an unclocked kind (events, graphs) hands on. */
Clock &stream_clock();
void sync_device(const char *what);
bool capturing();

/* ---- world.cc
 * ------------------------------------------------------------------------------------------------------------------
 */

/* Nothing can move in this process: true when no process can, with a text of who waits for whom in `why`. */
bool all_stuck(std::string *why);
void look(); /* before everything is looked at */
void not_stuck();
void polled_in_vain();

} // namespace emu
#endif
