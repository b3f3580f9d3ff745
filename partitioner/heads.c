/* heads.c: which products make the keys and values of grouped heads, or are gradients of such, and how many heads they
   have. Where fewer heads than ranks are left to deal out, every rank makes what it needs of them, rather than to share
   that work and send the result (graph_ops.c):

     %q[b,t,g,r,k] = nest sum[d] %n[b,t,d] * %wq[d,g,r@model,k]     2 groups g of 4 heads r, model = 4
     %k[b,u,g,k]   = nest sum[d] %n[b,u,d] * %wk[d,g,k]             -> 2 heads, index g: all ranks need both of them
     %a[b,t,g,r,k], .. = attention keys[u] .. q %q k %k v %v

   Attention says which dims of its keys and values are heads: its rows that they have, but those (the batch) that a
   projection has only beside the keys' own index. Of plain products it is said by a read at h // 4, where four heads h
   share one; of their gradients, by reads at 4*g + r summed over r. From there it is followed through maps: of what is
   needed back to the product that makes it, of the gradients on to the products that take them. */
#include "part.h"

/* What the dims of a value are to the attention. */
typedef struct {
  bool known, key[MAX_RANK];
  int64_t heads[MAX_RANK]; /* that the dim counts; 1: it is something else */
} Roles;

/* The same of an op's indices. */
typedef struct {
  bool known, key[MAX_INDEX];
  int64_t heads[MAX_INDEX];
} IndexRoles;

typedef struct {
  const Module *m;
  Arena *a;
  VEC(const Op *) ops;  /* with an index space, in the program's order */
  Roles *needed, *made; /* by value: of keys and values; of their gradients */
} Heads;

static Roles no_heads(int rank) {
  Roles l = {.known = true};
  for (int d = 0; d < rank; d++) l.heads[d] = 1;
  return l;
}

/* ---- where it is said --------------------------------------------------------------------------------------- */

static Roles attention_roles(const Op *op, const Expr *read) {
  Roles l = no_heads(read->nix);
  int rows[MAX_RANK], n = attention_rows(op, rows);
  for (int d = 0; d < read->nix; d++) {
    for (int i = 0; i < n; i++)
      if (ix_uses(read->ix[d], rows[i])) l.heads[d] *= op->space.idx[rows[i]].range;
    for (int k = 0; k < op->nkey; k++) l.key[d] |= ix_uses(read->ix[d], op->space.nout + k);
  }
  return l;
}

static void note_attention(Heads *h, const Op *op) {
  for (int i = 1; i < 3; i++) { /* keys and values */
    Roles l = attention_roles(op, op->read[i]);
    h->needed[op->in[op->read[i]->operand]] = l;
    if (op->kind == OP_ATTENTION_GRAD) h->made[op->out[i]] = l;
  }
}

typedef struct {
  Heads *h;
  const Op *op;
  int reads, groups, group; /* group: the g of 4*g + r that reads have */
} Product;

/* The result index g of 4*g + r, r being summed over; or -1. */
static int group_of(const Op *op, const IExpr *x) {
  if (x->n != 2 || x->term[0].kind != ATOM_INDEX || x->term[1].kind != ATOM_INDEX) return -1;
  int i = x->term[0].index, j = x->term[1].index, nout = op->space.nout;
  return i < nout && j >= nout ? i : j < nout && i >= nout ? j : -1;
}

static void note_read(void *cx, const Expr *read) {
  Product *p = cx;
  int group = -1;
  for (int d = 0; d < read->nix; d++) {
    const IExpr *x = read->ix[d];
    if (group < 0) group = group_of(p->op, x);
    if (x->n != 1 || x->term[0].kind != ATOM_DIV) continue;
    ValueId v = p->op->in[read->operand];
    if (!p->h->needed[v].known) p->h->needed[v] = no_heads(read->nix);
    p->h->needed[v].heads[d] = p->h->m->values.at[v].type.dim[d].size;
  }
  p->reads++;
  p->groups += group >= 0 && (p->group < 0 || p->group == group);
  p->group = group;
}

static void note_product(Heads *h, const Op *op) {
  Product p = {.h = h, .op = op, .group = -1};
  ex_reads(op->body, note_read, &p);
  if (p.reads < 2 || p.groups < p.reads) return;
  h->made[op->out[0]] = no_heads(op->space.nout);
  h->made[op->out[0]].heads[p.group] = op->space.idx[p.group].range;
}

/* ---- from values to indices and back ------------------------------------------------------------------------- */

typedef struct {
  const Roles *of; /* by value */
  const Op *op;
  IndexRoles out;
} Reads;

/* Indices are what the dims are that are read at them. */
static void add_read(void *cx, const Expr *read) {
  Reads *s = cx;
  const Roles *l = &s->of[s->op->in[read->operand]];
  if (!l->known) return;
  s->out.known = true;
  for (int d = 0; d < read->nix; d++)
    for (int i = 0; i < s->op->space.n; i++) {
      if (!ix_uses(read->ix[d], i)) continue;
      s->out.key[i] |= l->key[d];
      s->out.heads[i] = max_i64(s->out.heads[i], l->heads[d]);
    }
}

static IndexRoles roles_read(const Roles *of, const Op *op) {
  Reads s = {.of = of, .op = op};
  for (int i = 0; i < op->space.n; i++) s.out.heads[i] = 1;
  ex_reads(op->body, add_read, &s);
  return s.out;
}

static IndexRoles roles_result(const Roles *l, const Op *op) {
  IndexRoles out = {.known = l->known};
  for (int i = 0; i < op->space.n; i++) {
    out.heads[i] = i < op->space.nout ? l->heads[i] : 1;
    out.key[i] = i < op->space.nout && l->key[i];
  }
  return out;
}

typedef struct {
  Heads *h;
  const Op *op;
  IndexRoles of;
} Back;

/* Dims that are read at several indices are what all these are together. */
static void pass_back(void *cx, const Expr *read) {
  Back *b = cx;
  Roles l = no_heads(read->nix);
  for (int d = 0; d < read->nix; d++)
    for (int i = 0; i < b->op->space.n; i++) {
      if (!ix_uses(read->ix[d], i)) continue;
      l.key[d] |= b->of.key[i];
      l.heads[d] *= b->of.heads[i];
    }
  Roles *to = &b->h->needed[b->op->in[read->operand]];
  if (!to->known) *to = l;
}

static bool is_map(const Op *op) { return op->kind == OP_NEST && op->space.n == op->space.nout; }

static void follow_maps(Heads *h) {
  for (int i = h->ops.n - 1; i >= 0; i--) {
    const Op *op = h->ops.at[i];
    if (!is_map(op) || !h->needed[op->out[0]].known) continue;
    Back b = {h, op, roles_result(&h->needed[op->out[0]], op)};
    ex_reads(op->body, pass_back, &b);
  }
  for (int i = 0; i < h->ops.n; i++) {
    const Op *op = h->ops.at[i];
    IndexRoles l = {.known = false};
    if (is_map(op)) l = roles_read(h->made, op);
    if (!l.known) continue;
    Roles *to = &h->made[op->out[0]];
    *to = no_heads(op->space.nout);
    for (int d = 0; d < op->space.nout; d++) to->key[d] = l.key[d], to->heads[d] = l.heads[d];
  }
}

/* ---- products -------------------------------------------------------------------------------------------------- */

typedef struct {
  const IndexRoles *of;
  int n; /* of the indices */
  uint32_t apart;
} Apart;

static void add_apart(Apart *a, uint32_t used) {
  for (int i = 0; i < a->n; i++)
    if ((used >> i & 1) && a->of->key[i]) return;
  a->apart |= used;
}

static void read_apart(void *cx, const Expr *read) {
  Apart *a = cx;
  uint32_t used = 0;
  for (int d = 0; d < read->nix; d++)
    for (int i = 0; i < a->n; i++)
      if (ix_uses(read->ix[d], i)) used |= 1u << i;
  add_apart(a, used);
}

/* Heads are what an operand or the result has without the keys' index: the weights do, and their gradient. */
static HeadCount count_heads(const Op *op, const IndexRoles *l) {
  Apart a = {.of = l, .n = op->space.n};
  ex_reads(op->body, read_apart, &a);
  add_apart(&a, (1u << op->space.nout) - 1);
  HeadCount c = {.n = 1};
  for (int i = 0; i < op->space.n; i++)
    if (l->heads[i] > 1 && (a.apart >> i & 1)) c.n *= l->heads[i], c.index |= 1u << i;
  return c;
}

static bool is_product(const Op *op) {
  int64_t one[MAX_INDEX];
  for (int i = 0; i < op->space.n; i++) one[i] = 1;
  return op->kind == OP_NEST && part_op_multiply_adds(op, one) > 0;
}

static void note_op(void *cx, Region *r, Op *op, int64_t times) {
  (void)r, (void)times;
  Heads *h = cx;
  if (op_class(op->kind) != CLS_SPACE) return;
  vec_push(h->a, h->ops, op);
  if (op->kind == OP_ATTENTION || op->kind == OP_ATTENTION_GRAD) note_attention(h, op);
  if (is_product(op)) note_product(h, op);
}

HeadCount *part_heads(const Module *m, int nops, Arena *a) {
  Heads h = {.m = m, .a = a};
  h.needed = NEW_ARRAY(a, Roles, m->values.n + 1);
  h.made = NEW_ARRAY(a, Roles, m->values.n + 1);
  for (int i = 0; i < m->programs.n; i++) part_visit(m->programs.at[i].body, 1, note_op, &h);
  follow_maps(&h);
  HeadCount *out = NEW_ARRAY(a, HeadCount, nops + 1);
  for (int i = 0; i < h.ops.n; i++) {
    const Op *op = h.ops.at[i];
    if (!is_product(op)) continue;
    IndexRoles l = roles_result(&h.needed[op->out[0]], op);
    if (!l.known) l = roles_read(h.made, op);
    if (l.known) out[op->order] = count_heads(op, &l);
  }
  return out;
}
