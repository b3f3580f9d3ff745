/* collective.cc: operations of NCCL as machines that never block: a step looks whether others have come, and does what it
   can. A collective has three steps, and a message two:

     post what is done and where my data lies -> all have posted: compare, read theirs into a copy -> all have read: store
     post what is sent -> received                     sent: compare, copy -> store

   So nobody's data is overwritten while others read it, and nobody goes on before all have come: NCCL promises less, which
   a program that hangs here may get away with there only by chance. Values are added in the order of the ranks.          */
#include "comm.h"

#include <algorithm>
#include <list>

namespace emu {

size_t size_of(ncclDataType_t t) {
  switch (t) {
  case ncclInt8:
  case ncclUint8: return 1;
  case ncclFloat16:
  case ncclBfloat16: return 2;
  case ncclInt32:
  case ncclUint32:
  case ncclFloat32: return 4;
  case ncclInt64:
  case ncclUint64:
  case ncclFloat64: return 8;
  }
  return 0;
}
bool can_reduce(ncclDataType_t t) { return size_of(t) && size_of(t) != 2; }

static const char *name_of(ncclDataType_t t) {
  static const char *const name[] = {"i8", "u8", "i32", "u32", "i64", "u64", "f16", "f32", "f64", "bf16"};
  return name[t];
}

std::string text_of(const Description &d) {
  static const char *const kind[] = {"all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "send", "recv"};
  static const char *const op[] = {"sum", "prod", "max", "min", "avg"};
  std::string s = kind[d.kind];
  if (d.kind == ALL_REDUCE || d.kind == REDUCE || d.kind == REDUCE_SCATTER) s += std::string(" (") + op[d.op] + ")";
  s += " of " + std::to_string(d.count) + " " + name_of(d.type);
  if (d.kind == REDUCE || d.kind == BROADCAST) s += " with root " + std::to_string(d.root);
  return s;
}

/* ---- values ------------------------------------------------------------------------------------------------------------- */

template <class T> static void reduce(ncclRedOp_t op, T *to, const T *from, uint64_t n) {
  for (uint64_t i = 0; i < n; i++) {
    switch (op) {
    case ncclSum:
    case ncclAvg: to[i] = (T)(to[i] + from[i]); break;
    case ncclProd: to[i] = (T)(to[i] * from[i]); break;
    case ncclMax: to[i] = std::max(to[i], from[i]); break;
    case ncclMin: to[i] = std::min(to[i], from[i]); break;
    }
  }
}
template <class T> static void divide(T *x, uint64_t n, int by) {
  for (uint64_t i = 0; i < n; i++) x[i] = (T)(x[i] / (T)by);
}

#define BY_TYPE(t, DO)                                                                                                           \
  switch (t) {                                                                                                                   \
  case ncclInt8: DO(int8_t) break;                                                                                               \
  case ncclUint8: DO(uint8_t) break;                                                                                             \
  case ncclInt32: DO(int32_t) break;                                                                                             \
  case ncclUint32: DO(uint32_t) break;                                                                                           \
  case ncclInt64: DO(int64_t) break;                                                                                             \
  case ncclUint64: DO(uint64_t) break;                                                                                           \
  case ncclFloat32: DO(float) break;                                                                                             \
  case ncclFloat64: DO(double) break;                                                                                            \
  default: break;                                                                                                                \
  }

static void reduce_bytes(const Description &d, char *to, const char *from, uint64_t n) {
#define DO(T) reduce(d.op, (T *)to, (const T *)from, n);
  BY_TYPE(d.type, DO)
#undef DO
}
static void average(const Description &d, char *x, uint64_t n, int by) {
#define DO(T) divide((T *)x, n, by);
  if (d.op == ncclAvg) BY_TYPE(d.type, DO)
#undef DO
}

/* What arrives: bytes, and which of them were written. */
struct Arrived {
  std::string bytes, states;
};

static void take(Arrived &a, int world_rank, uint64_t place, uint64_t bytes) {
  a.bytes.append(memory_of(world_rank) + place, bytes);
  if (checked) a.states.append((const char *)states_of(world_rank) + place, bytes);
}

static void store(const Arrived &a, void *dst) {
  uint64_t at;
  if (a.bytes.empty()) return;
  writes(dst, a.bytes.size(), "NCCL");
  memcpy(dst, a.bytes.data(), a.bytes.size());
  if (checked && !a.states.empty() && place(dst, a.bytes.size(), &at) && at < DEVICE_END)
    memcpy(space.state + at, a.states.data(), a.states.size());
}

/* ---- machines ------------------------------------------------------------------------------------------------------------ */

struct Machine {
  Member m;
  int at = 0; /* step */
  uint64_t number = 0;
  Arrived arrived;
};

static int rank_in_world(const ncclComm &c, int rank) { return c.board->world_rank[rank]; }

static bool same(const Description &a, const Description &b) {
  return a.kind == b.kind && a.type == b.type && a.op == b.op && a.root == b.root && a.count == b.count;
}

static void agree(const Machine &x) {
  const ncclComm &c = *x.m.comm;
  for (int r = 0; r < c.nranks; r++) {
    const Description &other = c.board->slot[r].what;
    if (!same(other, x.m.what))
      found("ranks do not do the same as collective %llu of communicator %u: rank %d does %s, rank %d does %s",
            (unsigned long long)x.number, c.board->id, rank_in_world(c, c.rank), text_of(x.m.what).c_str(), rank_in_world(c, r),
            text_of(other).c_str());
  }
}

/* This rank's result, out of what lies in the memory of all. */
static void compute(Machine &x) {
  const ncclComm &c = *x.m.comm;
  const Description &d = x.m.what;
  uint64_t bytes = d.count * size_of(d.type), skip = d.kind == REDUCE_SCATTER ? bytes * (uint64_t)c.rank : 0;
  if (d.kind == REDUCE && d.root != c.rank) return;
  if (d.kind == BROADCAST) return take(x.arrived, rank_in_world(c, d.root), c.board->slot[d.root].what.source, bytes);
  for (int r = 0; r < c.nranks; r++) {
    uint64_t source = c.board->slot[r].what.source + skip;
    if (d.kind == ALL_GATHER || r == 0)
      take(x.arrived, rank_in_world(c, r), source, bytes);
    else
      reduce_bytes(d, x.arrived.bytes.data(), memory_of(rank_in_world(c, r)) + source, d.count);
  }
  if (d.kind != ALL_GATHER) average(d, x.arrived.bytes.data(), d.count, c.nranks);
}

static bool all_of(const ncclComm &c, std::atomic<uint64_t> Slot::*counter, uint64_t n) {
  for (int r = 0; r < c.nranks; r++)
    if (c.board->slot[r].*counter < n) return false;
  return true;
}

static uint64_t sent_bytes(const Machine &x) {
  uint64_t bytes = x.m.what.count * size_of(x.m.what.type);
  return x.m.what.kind == REDUCE_SCATTER ? bytes * (uint64_t)x.m.comm->nranks : bytes;
}

static uint64_t place_of_source(const void *p, uint64_t bytes) {
  uint64_t at = 0;
  if (bytes) place(p, bytes, &at);
  return at;
}

static Step collective(Machine &x) {
  ncclComm &c = *x.m.comm;
  Slot &mine = c.board->slot[c.rank];
  bool gives = x.m.what.kind != BROADCAST || x.m.what.root == c.rank;
  switch (x.at) {
  case 0:
    if (gives) reads(x.m.src, sent_bytes(x), "NCCL", x.m.what.kind == ALL_GATHER || x.m.what.kind == BROADCAST);
    x.number = ++c.collectives;
    mine.what = x.m.what;
    mine.what.source = gives ? place_of_source(x.m.src, sent_bytes(x)) : 0;
    mine.posted = x.number;
    break;
  case 1:
    if (!all_of(c, &Slot::posted, x.number)) return Step::STUCK;
    agree(x);
    compute(x);
    mine.read = x.number;
    break;
  default:
    if (!all_of(c, &Slot::read, x.number)) return Step::STUCK;
    store(x.arrived, x.m.dst);
    x.arrived = Arrived();
    return Step::DONE;
  }
  x.at++;
  return Step::MOVED;
}

static Channel &channel(const ncclComm &c, int from, int to) { return c.board->channel[from * c.nranks + to]; }

static Step send(Machine &x) {
  ncclComm &c = *x.m.comm;
  int peer = x.m.what.root;
  Channel &ch = channel(c, c.rank, peer);
  if (x.at == 0) {
    if (ch.received + 1 != x.number) return Step::STUCK; /* one after another */
    reads(x.m.src, sent_bytes(x), "ncclSend", true);
    ch.what = x.m.what;
    ch.what.source = place_of_source(x.m.src, sent_bytes(x));
    ch.sent = x.number;
    x.at = 1;
    return Step::MOVED;
  }
  return ch.received < x.number ? Step::STUCK : Step::DONE;
}

static Step receive(Machine &x) {
  ncclComm &c = *x.m.comm;
  int peer = x.m.what.root;
  Channel &ch = channel(c, peer, c.rank);
  if (ch.sent < x.number) return Step::STUCK;
  if (ch.what.count != x.m.what.count || ch.what.type != x.m.what.type)
    found("message %llu of communicator %u: rank %d does %s to rank %d, which does %s", (unsigned long long)x.number, c.board->id,
          rank_in_world(c, peer), text_of(ch.what).c_str(), rank_in_world(c, c.rank), text_of(x.m.what).c_str());
  take(x.arrived, rank_in_world(c, peer), ch.what.source, sent_bytes(x));
  store(x.arrived, x.m.dst);
  ch.received = x.number;
  x.arrived = Arrived();
  return Step::DONE;
}

static Step step(Machine &x) {
  if (x.m.comm->aborted) return Step::DONE;
  return x.m.what.kind == SEND ? send(x) : x.m.what.kind == RECV ? receive(x) : collective(x);
}

/* ---- groups --------------------------------------------------------------------------------------------------------------- */

struct Group {
  std::vector<Machine> machine;
  std::vector<bool> done;
  size_t left;
  int number; /* of this process's operations */
};
static std::list<std::shared_ptr<Group>> running;
static int operations;

/* Collectives of a communicator go one after another, messages all at once. */
static bool may_go(const Group &g, size_t i) {
  if (g.done[i]) return false;
  auto one_by_one = [&](size_t k) { return g.machine[k].m.what.kind != SEND && g.machine[k].m.what.kind != RECV; };
  for (size_t k = 0; k < i && one_by_one(i); k++)
    if (!g.done[k] && one_by_one(k)) return false;
  return true;
}

static bool held_back(const Group &g) {
  const Settings &s = settings();
  bool error = world_rank == s.async_rank && g.number >= s.async_at;
  if (error && !world->failed) world->failed = true, moved();
  return error || (world_rank == s.stuck_rank && g.number >= s.stuck_at) || (world->failed && !g.machine[0].m.comm->aborted);
}

static Step go_on(Group &g) {
  if (held_back(g) && !g.machine[0].m.comm->aborted) return Step::STUCK;
  bool any = false;
  size_t n = g.machine.size(), first = below((unsigned)n);
  for (size_t k = 0; k < n; k++) {
    size_t i = (first + k) % n;
    if (!may_go(g, i)) continue;
    part((unsigned)i); /* at the same time as the others */
    Step s = step(g.machine[i]);
    if (s != Step::STUCK) any = true, moved();
    if (s == Step::DONE) g.done[i] = true, g.left--;
  }
  return !g.left ? Step::DONE : any ? Step::MOVED : Step::STUCK;
}

/* Messages between two ranks go in the order of the program, whichever of a group is looked at first. */
static void number_messages(Group &g) {
  for (Machine &x : g.machine) {
    ncclComm &c = *x.m.comm;
    if (x.m.what.kind == SEND) x.number = ++c.sent[(size_t)x.m.what.root];
    if (x.m.what.kind == RECV) x.number = ++c.received[(size_t)x.m.what.root];
  }
}

Task group_task(std::vector<Member> members) {
  return [members, g = std::shared_ptr<Group>()]() mutable {
    if (!g) {
      g = std::make_shared<Group>();
      for (const Member &m : members) g->machine.push_back({m, 0, 0, {}});
      number_messages(*g);
      g->left = members.size(), g->done.assign(g->left, false), g->number = ++operations;
      running.push_back(g);
    }
    Step s = go_on(*g);
    if (s == Step::DONE) running.remove(g);
    return s;
  };
}

static std::string waits_for(const Machine &x) {
  const ncclComm &c = *x.m.comm;
  int peer = x.m.what.root;
  std::string of = " (communicator " + std::to_string(c.board->id) + ")";
  if (x.m.what.kind == SEND) return "rank " + std::to_string(rank_in_world(c, peer)) + " to receive: " + text_of(x.m.what) + of;
  if (x.m.what.kind == RECV) return "rank " + std::to_string(rank_in_world(c, peer)) + " to send: " + text_of(x.m.what) + of;
  std::string who;
  for (int r = 0; r < c.nranks; r++)
    if ((x.at < 2 ? c.board->slot[r].posted : c.board->slot[r].read) < x.number)
      who += (who.empty() ? "" : ", ") + std::to_string(rank_in_world(c, r));
  return "ranks " + who + " in collective " + std::to_string(x.number) + " of communicator " + std::to_string(c.board->id) +
         ": " + text_of(x.m.what);
}

std::string waiting_operations() {
  std::string s;
  for (const auto &g : running)
    for (size_t i = 0; i < g->machine.size(); i++)
      if (may_go(*g, i)) s += (s.empty() ? "" : "; ") + waits_for(g->machine[i]);
  return s.empty() ? "nothing of NCCL's" : s;
}

} // namespace emu
