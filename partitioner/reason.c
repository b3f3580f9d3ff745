/* reason.c: why a layout changes, in one clause: the consumer that asks for it and what clashed.

     %r adds it to %x                              a pending sum meets a complete value
     %q needs all of t, along which %n is split over model
     the gradient of layer.g1 is laid out as it is         */
#include "reshard.h"

static const char *name_of(const Reshard *r, ValueId v) { return r->m->values.at[v].name; }

/* In a sum of terms: the first other term that is a read, where operand `slot` is read in a term by itself. */
static const Expr *added_to(const Expr *e, int slot) {
  if (e->op != EX_ADD && e->op != EX_SUB) return NULL;
  for (int i = 0; i < 2; i++)
    if (e->arg[i]->op == EX_READ && e->arg[i]->operand == slot) return e->arg[1 - i];
  const Expr *left = added_to(e->arg[0], slot);
  return left ? left : added_to(e->arg[1], slot);
}

/* A dim that is split and has to be whole, or split otherwise. */
static const char *dim_reason(const Reshard *r, ValueId v, const Type *from, const Type *to, const Op *user, int slot, int d) {
  Arena *a = r->m->arena;
  const Factors *f = r->factors[user->order];
  int i = f->in[slot].index[d];
  const char *who = name_of(r, user->out[0]), *dim = from->dim[d].name ? from->dim[d].name : "a dim";
  if (i != NO_FACTOR && i < user->space.n) dim = user->space.idx[i].name;
  if (split_windowed(&to->dim[d].split) || (i == NO_FACTOR && to->dim[d].split.n > 0))
    return arena_printf(a, "%%%s reads along %s what other ranks hold of %%%s", who, dim, name_of(r, v));
  const char *over = ir_print_split(r->m, &from->dim[d].split, a), *to_over = ir_print_split(r->m, &to->dim[d].split, a);
  if (to->dim[d].split.n > 0 && from->dim[d].split.n > 0)
    return arena_printf(a, "%%%s is split over %s along %s, %%%s over %s", who, to_over, dim, name_of(r, v), over);
  if (to->dim[d].split.n > 0) return arena_printf(a, "%%%s is split over %s along %s", who, to_over, dim);
  if (i != NO_FACTOR && !f->splits[i])
    return arena_printf(a, "%s cannot run split along %s yet, and %%%s is split over %s", op_text(user->kind), dim, name_of(r, v),
                        over);
  if (i == NO_FACTOR)
    return arena_printf(a, "%%%s reads places all over %s, along which %%%s is split over %s", who, dim, name_of(r, v), over);
  return arena_printf(a, "%%%s needs all of %s, along which %%%s is split over %s", who, dim, name_of(r, v), over);
}

static const char *space_reason(const Reshard *r, ValueId v, const Type *from, const Type *to, const Op *user, int slot) {
  Arena *a = r->m->arena;
  const char *who = name_of(r, user->out[0]);
  if (from->pending.n > 0) {
    const Expr *other = user->body ? added_to(user->body, slot) : NULL;
    if (other && other->op == EX_READ) return arena_printf(a, "%%%s adds it to %%%s", who, name_of(r, user->in[other->operand]));
    return arena_printf(a, "%%%s needs the whole %s", who, from->pending.kind == RED_SUM ? "sum" : "reduction");
  }
  for (int d = 0; d < to->rank; d++)
    if (!split_equal(&from->dim[d].split, &to->dim[d].split)) return dim_reason(r, v, from, to, user, slot, d);
  return arena_printf(a, "for %%%s", who);
}

const char *reason_text(const Reshard *r, ValueId v, const Type *from, const Type *to, const Op *user, int slot) {
  Arena *a = r->m->arena;
  if (!user) return arena_printf(a, "the loop hands %%%s on in that layout", name_of(r, v));
  switch (user->kind) {
  case OP_TAP:
    if (user->tap == TAP_GRAD) return arena_printf(a, "the gradient of %s is laid out as it is", user->name);
    return arena_printf(a, "%%%s is shown, complete", name_of(r, v));
  case OP_UPDATE: return arena_printf(a, "it is the next %%%s", name_of(r, user->in[0]));
  case OP_REPEAT: return "the loop takes it in that layout";
  default: break;
  }
  if (r->state[v].pinned && sharding_equal(to, &r->state[v].home))
    return arena_printf(a, "%%%s is pinned to that layout", name_of(r, v));
  return space_reason(r, v, from, to, user, slot);
}

const char *pending_text(const Mesh *m, const Pending *p, Arena *a) {
  Str s = {0};
  str_put(a, &s, "");
  for (int i = 0; i < p->n; i++) {
    AxisPart x = p->part[i];
    str_printf(a, &s, "%s%s", i ? ", " : "", m->axis[x.axis].name);
    if (x.size != m->axis[x.axis].size) str_printf(a, &s, "(%lld:%lld)", (long long)x.pre, (long long)x.size);
  }
  return s.at;
}
