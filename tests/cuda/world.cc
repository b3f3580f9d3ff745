/* world.cc: the memory that the processes of one bootstrap share, and how it is known that none of them can go on.

   Whoever makes the unique id makes a file in memory, which has no name; the id says process and descriptor, and the
   others open it as /proc/PID/fd/N. So nothing is left behind, and forked and separately started processes are the same.

   Everything that moves anywhere counts `progress`. A process that looked at all it has to do in vain notes the count
   from before the look. When all have noted the present count, nothing can ever move: a deadlock, known without a clock. */
#include "comm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

namespace emu {

World *world;
int world_rank = -1;

struct Id {
  uint32_t magic;
  int pid, file;
  uint64_t nonce;
};
static_assert(sizeof(Id) <= NCCL_UNIQUE_ID_BYTES);

static World *map_world(int file) {
  void *p = mmap(nullptr, WORLD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (p == MAP_FAILED) found("no memory for what processes share");
  return (World *)p;
}

void world_make(ncclUniqueId *id) {
  int file = memfd_create("dtcu world", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, (off_t)WORLD_BYTES)) found("no memory for what processes share");
  World *w = map_world(file);
  w->next = (sizeof(World) + 63) / 64 * 64;
  munmap(w, WORLD_BYTES);
  Id x = {POISON, getpid(), file, chance()};
  memset(id, 0, sizeof *id);
  memcpy(id, &x, sizeof x);
}

static void leaves() {
  if (!world || world->process[world_rank].pid != getpid()) return;
  world->process[world_rank].gone = true;
  moved();
}

/* Registers this process; the board of all ranks is the first one. */
bool world_enter(const ncclUniqueId &id, int nranks, int rank) {
  Id x;
  memcpy(&x, &id, sizeof x);
  if (x.magic != POISON || nranks > MAX_PROCESSES) return false;
  char name[64];
  snprintf(name, sizeof name, "/proc/%d/fd/%d", x.pid, x.file);
  int file = open(name, O_RDWR | O_CLOEXEC);
  if (file < 0) return false;
  world = map_world(file);
  close(file);
  world_rank = rank;
  int none = 0;
  if (!world->nranks.compare_exchange_strong(none, nranks) && none != nranks)
    found("rank %d starts a communicator of %d ranks, others of %d", rank, nranks, none);
  Process &p = world->process[rank];
  p.file = space.file, p.device = device();
  none = 0;
  if (!p.pid.compare_exchange_strong(none, getpid())) return false;
  atexit(leaves);
  stir((uint64_t)rank);
  moved();
  return true;
}

Board *board_at(uint64_t offset) { return (Board *)((char *)world + offset); }

uint64_t board_new(int nranks) {
  uint64_t bytes = sizeof(Board) + sizeof(Channel) * (uint64_t)nranks * (uint64_t)nranks;
  uint64_t at = world->next.fetch_add((bytes + 63) / 64 * 64);
  if (at + bytes > WORLD_BYTES) found("too many communicators");
  board_at(at)->nranks = nranks, board_at(at)->id = world->boards++;
  return at;
}

/* ---- memory of others -------------------------------------------------------------------------------------------------- */

struct Mapped {
  const char *memory;
  const uint8_t *states;
};

static Mapped map_process(int rank) {
  char name[64];
  snprintf(name, sizeof name, "/proc/%d/fd/%d", world->process[rank].pid.load(), world->process[rank].file);
  int file = open(name, O_RDONLY | O_CLOEXEC);
  if (file < 0) found("rank %d has ended (%s), and rank %d needs its memory", rank, strerror(errno), world_rank);
  Mapped m = {(char *)mmap(nullptr, PINNED_END, PROT_READ, MAP_SHARED | MAP_NORESERVE, file, 0),
              (uint8_t *)mmap(nullptr, PINNED_END, PROT_READ, MAP_SHARED | MAP_NORESERVE, file, (off_t)SHARED_END)};
  close(file);
  if (m.memory == MAP_FAILED || m.states == MAP_FAILED) found("no addresses for the memory of rank %d", rank);
  return m;
}

static const Mapped &mapped(int rank) {
  static Mapped all[MAX_PROCESSES];
  if (!all[rank].memory) all[rank] = map_process(rank);
  return all[rank];
}
const char *memory_of(int rank) { return mapped(rank).memory; }
const uint8_t *states_of(int rank) { return mapped(rank).states; }

/* ---- waiting ------------------------------------------------------------------------------------------------------------ */

static uint64_t looked_at; /* the world's progress before the last look at everything */
static int in_vain;

void moved() { world->progress++; }
void look() {
  if (world) looked_at = world->progress;
}
void not_stuck() {
  in_vain = 0;
  if (world) world->process[world_rank].vain = 0;
}

/* Ended without leaving: killed, or by _exit. */
static bool dead(Process &p) {
  char name[64], text[256] = {0};
  if (p.gone) return true;
  if (kill(p.pid, 0) && errno == ESRCH) return p.gone = true;
  snprintf(name, sizeof name, "/proc/%d/stat", p.pid.load());
  int file = open(name, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  ssize_t n = read(file, text, sizeof text - 1);
  close(file);
  const char *end = n > 0 ? strrchr(text, ')') : nullptr;
  if (end && end[1] == ' ' && end[2] == 'Z') p.gone = true; /* ended, and not waited for */
  return p.gone;
}

static std::string who_waits() {
  std::string s;
  for (int i = 0; i < world->nranks; i++) {
    Process &p = world->process[i];
    s += "  rank " + std::to_string(i) + (p.gone ? " has ended" : std::string(" waits for ") + p.waits_for) +
         (i + 1 < world->nranks ? "\n" : "");
  }
  return s;
}

bool all_stuck(std::string *why) {
  if (!world) {
    *why = "  no operation that is queued can run";
    return true;
  }
  if (settings().stuck_rank >= 0 || settings().async_rank >= 0) return false; /* asked for */
  Process &me = world->process[world_rank];
  if (me.vain != looked_at + 1) {
    snprintf(me.waits_for, TEXT, "%s", waiting_operations().c_str());
    me.vain = looked_at + 1;
  }
  bool all = true;
  for (int i = 0; i < world->nranks && all; i++) {
    Process &p = world->process[i];
    if (!p.pid) return false;
    all = p.vain == looked_at + 1 || p.gone || (++in_vain % 256 == 0 && dead(p));
  }
  if (!all || world->progress != looked_at) return false;
  *why = who_waits();
  return true;
}

/* The host looks again and again; after some time it is as good as waiting. */
void polled_in_vain() {
  std::string why;
  if (++in_vain < 1000 || !world) return;
  if (all_stuck(&why)) found("deadlock: nothing that is queued can go on\n%s", why.c_str());
}

static double seconds() {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

bool host_wait(const std::function<bool()> &done, const char *what) {
  const char *patience = getenv("DTCU_PATIENCE");
  double end = seconds() + (patience ? atof(patience) : 60);
  while (!done()) {
    if (!advance()) idle();
    if (seconds() > end) {
      fprintf(stderr, "dtcu emulator: rank %d waits for others in %s\n", world_rank, what);
      return false;
    }
  }
  return true;
}

} // namespace emu
