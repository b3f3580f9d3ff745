/* verify_waits.c: at stage scheduled a collective starts where it stands and ends at its `wait`, in the same region. In
   between it is under way: its results are not read, and, once buffers are planned, nothing is written where its operands
   and results lie.

     %y.1: f32[D] = all_reduce %y     ; ..., because ...        starts
     %z[d]: f32[D] = nest %x[d]                                 may not lie where %y or %y.1 does
     wait %y.1                                                  ends                                            */
#include "verify.h"

typedef VEC(const Op *) Flights; /* collectives under way */

static int flight_of(const Flights *f, ValueId result) {
  for (int i = 0; i < f->n; i++)
    for (int k = 0; k < f->at[i]->nout; k++)
      if (f->at[i]->out[k] == result) return i;
  return -1;
}

static bool end_flight(Check *c, Flights *f) {
  const Op *op = c->op;
  int at = flight_of(f, op->in[0]);
  LAW(c, at >= 0, "%s is waited for, but no collective that makes it is under way", show_value(c, op->in[0]));
  const Op *started = f->at[at];
  bool all = started->nout == op->nin;
  for (int k = 0; all && k < op->nin; k++) all = op->in[k] == started->out[k];
  LAW(c, all, "a wait names all results of its collective, in order");
  memmove(f->at + at, f->at + at + 1, sizeof *f->at * (size_t)(f->n - at - 1));
  f->n--;
  return true;
}

/* Do the bytes of x and y meet, at counters 0? */
static bool meet(const Module *m, ValueId x, ValueId y) {
  const Buffer *a = &m->buffers[x], *b = &m->buffers[y];
  return a->offset >= 0 && b->offset >= 0 && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* What the op writes lies nowhere where something is under way. A body's ops come one by one. */
static bool leaves_alone(Check *c, const Flights *f, const Op *op) {
  for (int i = 0; i < f->n; i++)
    for (int k = 0; k < op->nout; k++)
      for (int j = 0; j < f->at[i]->nin; j++) {
        ValueId v = op->out[k], from = f->at[i]->in[j], to = f->at[i]->out[j];
        LAW(c, !meet(c->m, v, from) && !meet(c->m, v, to), "%s lies where %s, which is under way to %s, does", show_value(c, v),
            show_value(c, from), show_value(c, to));
      }
  const Region *body = op->body_region;
  for (int i = 0; f->n && body && i < body->ops.n; i++)
    if (!leaves_alone(c, f, body->ops.at[i])) return false;
  return true;
}

static bool check_step(Check *c, Flights *f) {
  const Op *op = c->op;
  if (op->kind == OP_WAIT) return end_flight(c, f);
  for (int k = 0; k < op->nin; k++)
    LAW(c, flight_of(f, op->in[k]) < 0, "%s is used before it is waited for", show_value(c, op->in[k]));
  if (c->m->buffers && !leaves_alone(c, f, op)) return false;
  if (op_is_collective(op->kind)) vec_push(c->scratch, *f, op);
  return true;
}

bool check_waits(Check *c, const Region *r) {
  Flights f = {0};
  for (int i = 0; i < r->ops.n; i++) {
    c->op = r->ops.at[i];
    if (!check_step(c, &f)) return false;
  }
  c->op = f.n ? f.at[0] : NULL;
  LAW(c, f.n == 0, "%s is never waited for in its region", show_value(c, f.at[0]->out[0]));
  return true;
}
