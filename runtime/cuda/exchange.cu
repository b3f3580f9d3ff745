/* exchange.cu: plans how each collective is carried out on GPUs. Where all members have equal runs of memory in the order of
   their ranks it is one of NCCL's own; everything else is an exchange: what others need of this rank's boxes is packed into the
   staging, messages go to and come from the members, and pieces are unpacked or reduced into the result.

     all_gather [8] over 2, even              ncclAllGather
     all_gather [9] over 2 (5 and 4)          packs its own part, sends it, unpacks the other's
     all_reduce of a max over part of a group ncclAllReduce, if the box is one run; else packed first

   The staging of one collective: for each buffer first what is sent, by receiver, then what is received, by sender, each part
   beginning at a multiple of 256. Sender and receiver take pieces in the same order, that of the receiver's plan. */
#include "device.h"

namespace {

/* ---- NCCL's own forms ---- */

/* Does every member's part consist of n equal runs, one from each member in order (gathered), or of one run of n
   contributions (scattered)? Then *elements are in a run. */
bool regular(const dtrt_Layout *from, const dtrt_Layout *to, const Comm *m, bool gather, int64_t *elements) {
  *elements = -1;
  for (int q = 0; q < m->nmembers; q++) {
    Plan plan;
    bool ok = rt_plan(from, to, m->nmembers, m->member, m->member[q], &plan) && !plan.identity;
    ok = ok && plan.npieces == (gather ? m->nmembers : 1);
    for (int k = 0; ok && k < plan.npieces; k++) {
      const Piece *p = &plan.piece[k];
      if (*elements < 0) *elements = p->elements;
      ok = p->nloops == 0 && p->at == 0 && p->elements == *elements && p->nsrc == (gather ? 1 : m->nmembers);
      ok = ok && (gather ? p->soff == 0 && p->doff == k * *elements : p->doff == 0 && p->soff == q * *elements);
      for (int s = 0; ok && s < p->nsrc; s++) ok = p->src[s] == m->member[gather ? k : s];
    }
    rt_plan_free(&plan);
    if (!ok) return false;
  }
  return *elements > 0 && m->nmembers > 1;
}

Way choose(const dtrt_Collective *c, const Comm *m, Exchange *x) {
  if (m->whole) return BY_ALL_REDUCE;
  for (int gather = 1; gather >= 0; gather--) {
    bool all = c->nbuf > 0;
    for (int i = 0; i < c->nbuf && all; i++) all = regular(&c->from[i], &c->to[i], m, gather, &x->part[i].elements);
    if (all) return gather ? BY_ALL_GATHER : BY_REDUCE_SCATTER;
  }
  return BY_EXCHANGE;
}

/* ---- tables ---- */

typedef struct {
  Part *part;
  dtrt_dtype dtype;
  int nmoves, room, places_room;
} Building;

Move *add_move(Building *b, const Piece *p) {
  Part *part = b->part;
  if (b->nmoves == b->room) {
    b->room = 2 * b->room + 8;
    part->moves = (Move *)realloc(part->moves, (size_t)b->room * sizeof *part->moves);
    if (!part->moves) abort();
  }
  Move *m = &part->moves[b->nmoves++];
  *m = (Move){};
  m->nloops = p->nloops, m->nsrc = p->nsrc, m->run = p->run, m->soff = p->soff, m->doff = p->doff;
  m->at = p->at, m->elements = p->elements;
  memcpy(m->count, p->count, sizeof m->count);
  memcpy(m->sstep, p->sstep, sizeof m->sstep);
  memcpy(m->dstep, p->dstep, sizeof m->dstep);
  return m;
}

int64_t *add_places(Building *b, int n) {
  Part *part = b->part;
  if (part->nplaces + n > b->places_room) {
    b->places_room = 2 * b->places_room + n;
    part->places = (int64_t *)realloc(part->places, (size_t)b->places_room * sizeof *part->places);
    if (!part->places) abort();
  }
  part->nplaces += n;
  return part->places + part->nplaces - n;
}

bool has_source(const Piece *p, int rank) {
  for (int s = 0; s < p->nsrc; s++)
    if (p->src[s] == rank) return true;
  return false;
}

bool moves_within(const Piece *p) {
  if (p->soff != p->doff) return true;
  for (int i = 0; i < p->nloops; i++)
    if (p->sstep[i] != p->dstep[i]) return true;
  return false;
}

/* What other members want of mine, by member. Returns how many elements. */
int64_t plan_sends(Building *b, const dtrt_Layout *from, const dtrt_Layout *to, const Comm *m) {
  Part *part = b->part;
  int64_t at = 0, size = (int64_t)rt_dtype_size(b->dtype);
  part->send = (Message *)rt_alloc((size_t)m->nmembers, sizeof *part->send);
  for (int q = 0; q < m->nmembers; q++) {
    Plan plan;
    int64_t begin = at;
    if (q == m->index || !rt_plan(from, to, m->nmembers, m->member, m->member[q], &plan)) continue;
    for (int k = 0; k < plan.npieces; k++) {
      if (!has_source(&plan.piece[k], m->member[m->index])) continue;
      add_move(b, &plan.piece[k])->place = at;
      at += plan.piece[k].elements;
    }
    rt_plan_free(&plan);
    if (at > begin) part->send[part->nsend++] = (Message){q, begin * size, (at - begin) * size};
  }
  return at;
}

/* Where what member q sends begins, and how much it is: all my pieces that have it as a source. */
int64_t plan_receipts(Part *part, const Comm *m, int i, int64_t size) {
  int64_t at = 0;
  part->recv = (Message *)rt_alloc((size_t)m->nmembers, sizeof *part->recv);
  for (int q = 0; q < m->nmembers; q++) {
    int64_t begin = at;
    if (q == m->index) continue;
    for (int k = 0; k < m->plan[i].npieces; k++)
      if (has_source(&m->plan[i].piece[k], m->member[q])) at += m->plan[i].piece[k].elements;
    if (at > begin) part->recv[part->nrecv++] = (Message){q, begin * size, (at - begin) * size};
  }
  return at;
}

int index_of(const Comm *m, int rank) {
  int q = 0;
  while (m->member[q] != rank) q++;
  return q;
}

/* My pieces, with the places of their contributions in what was received. */
void plan_unpacking(Building *b, const Comm *m, int i, int64_t size) {
  Part *part = b->part;
  int64_t *next = (int64_t *)rt_alloc((size_t)m->nmembers, sizeof *next);
  for (int r = 0; r < part->nrecv; r++) next[part->recv[r].member] = part->recv[r].offset / size;
  for (int k = 0; k < m->plan[i].npieces; k++) {
    const Piece *p = &m->plan[i].piece[k];
    Move *move = add_move(b, p);
    move->first = part->nplaces;
    int64_t *place = add_places(b, p->nsrc);
    for (int s = 0; s < p->nsrc; s++) {
      int q = index_of(m, p->src[s]);
      bool own = q == m->index;
      place[s] = own ? (int64_t)OWN : next[q];
      if (own && moves_within(p)) part->shifts = true;
      if (!own) next[q] += p->elements;
    }
  }
  free(next);
}

/* The most elements, at most 16, of which all offsets and lengths are multiples. */
int common_lanes(const Moves *m, const Move *move, const int64_t *places, bool unpacking) {
  int lanes = 16;
  for (int k = 0; k < m->n; k++) {
    const Move *v = &move[k];
    int64_t all = v->run | v->soff | v->at | v->elements | (unpacking ? v->doff : v->place);
    for (int i = 0; i < v->nloops; i++) all |= v->sstep[i] | (unpacking ? v->dstep[i] : 0);
    for (int s = 0; unpacking && s < v->nsrc; s++) all |= places[v->first + s] == OWN ? 0 : places[v->first + s];
    while (all % lanes) lanes /= 2;
  }
  return lanes;
}

void finish_moves(Moves *m, int n, const Move *move, const int64_t *places, bool unpacking) {
  m->n = n;
  for (int k = 0; k < n; k++)
    if (move[k].elements > m->most) m->most = move[k].elements;
  m->lanes = common_lanes(m, move, places, unpacking);
}

void plan_exchange(const dtrt_Collective *c, const Comm *m, int i, Part *part) {
  Building b = {};
  b.part = part, b.dtype = c->to[i].dtype;
  int64_t size = (int64_t)rt_dtype_size(b.dtype);
  int64_t sent = plan_sends(&b, &c->from[i], &c->to[i], m);
  int npack = b.nmoves;
  int64_t received = plan_receipts(part, m, i, size);
  plan_unpacking(&b, m, i, size);
  finish_moves(&part->pack, npack, part->moves, part->places, false);
  finish_moves(&part->unpack, b.nmoves - npack, part->moves + npack, part->places, true);
  part->sent = sent * size, part->received = received * size;
}

/* A box that is one run is reduced where it lies. */
void plan_all_reduce(const dtrt_Collective *c, const Comm *m, int i, Part *part) {
  Building b = {};
  b.part = part, b.dtype = c->to[i].dtype;
  part->elements = m->plan[i].elements;
  if (m->plan[i].npieces == 0 || m->plan[i].piece[0].nloops == 0) return;
  part->packed = true;
  part->sent = part->elements * (int64_t)rt_dtype_size(b.dtype);
  add_move(&b, &m->plan[i].piece[0]);
  Move *unpack = add_move(&b, &m->plan[i].piece[0]);
  unpack->nsrc = 1, unpack->first = 0;
  *add_places(&b, 1) = 0;
  finish_moves(&part->pack, 1, part->moves, part->places, false);
  finish_moves(&part->unpack, 1, part->moves + 1, part->places, true);
}

/* Lays the buffers out in the staging. */
int64_t place_staging(Exchange *x, int nbuf) {
  int64_t at = 0;
  for (int i = 0; i < nbuf; i++) {
    Part *p = &x->part[i];
    int64_t sent = (int64_t)device_align((size_t)p->sent), received = (int64_t)device_align((size_t)p->received);
    p->sent = at;
    p->received = at + sent;
    at += sent + received;
  }
  return at;
}

size_t table_bytes(const Part *p) {
  return device_align((size_t)(p->pack.n + p->unpack.n) * sizeof *p->moves) +
         device_align((size_t)p->nplaces * sizeof *p->places);
}

} // namespace

size_t exchange_plan(Rt *rt) {
  Transport *t = rt->transport;
  size_t bytes = 0;
  t->exchange = (Exchange *)rt_alloc((size_t)rt->p->ncollectives, sizeof *t->exchange);
  for (int id = 0; id < rt->p->ncollectives; id++) {
    const dtrt_Collective *c = &rt->p->collective[id];
    const Comm *m = &rt->comm[id];
    Exchange *x = &t->exchange[id];
    x->part = (Part *)rt_alloc((size_t)c->nbuf, sizeof *x->part);
    x->way = choose(c, m, x);
    for (int i = 0; i < c->nbuf; i++) {
      if (x->way == BY_ALL_REDUCE) plan_all_reduce(c, m, i, &x->part[i]);
      if (x->way == BY_EXCHANGE) plan_exchange(c, m, i, &x->part[i]);
      bytes += table_bytes(&x->part[i]);
    }
    x->staging = place_staging(x, c->nbuf);
    if (x->staging > rt->p->staging_bytes) rt_comm_fault(rt, id, "the plan has too little room for packing");
  }
  return bytes;
}

void exchange_load(Rt *rt, char *at) {
  Transport *t = rt->transport;
  for (int id = 0; id < rt->p->ncollectives; id++)
    for (int i = 0; i < rt->p->collective[id].nbuf; i++) {
      Part *p = &t->exchange[id].part[i];
      size_t moves = (size_t)(p->pack.n + p->unpack.n) * sizeof *p->moves, places = (size_t)p->nplaces * sizeof *p->places;
      if (moves == 0) continue;
      p->pack.move = (const Move *)at;
      p->unpack.move = p->pack.move + p->pack.n;
      p->unpack.places = (const int64_t *)(at + device_align(moves));
      device_put(rt, at, p->moves, moves);
      if (places) device_put(rt, at + device_align(moves), p->places, places);
      at += table_bytes(p);
      free(p->moves);
      free(p->places);
      p->moves = NULL, p->places = NULL;
    }
}

void exchange_free(Rt *rt) {
  Transport *t = rt->transport;
  for (int id = 0; id < rt->p->ncollectives; id++) {
    for (int i = 0; i < rt->p->collective[id].nbuf; i++) {
      free(t->exchange[id].part[i].send);
      free(t->exchange[id].part[i].recv);
    }
    free(t->exchange[id].part);
  }
  free(t->exchange);
}
