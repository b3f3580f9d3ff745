/* emit_names.c: identifiers of the emitted file: the user's names made safe, and told apart by a number.

     layer.wq -> layer_wq     x twice -> x, x_1     int -> vint     exp -> exp_1

   A scope is a set of names; those of the file and of the function being printed do not hide each other. A name that
   was asked for often remembers the next number to try, so that n names alike are made in n steps. */
#include <ctype.h>

#include "emit.h"

/* uthash takes its memory from the arena that is in scope as `arena`, and never gives it back. */
#define uthash_malloc(size) arena_alloc(arena, (size))
#define uthash_free(p, size) ((void)(p), (void)(size))
#include <uthash.h>

struct TakenName {
  const char *name;
  bool free;              /* may be taken */
  bool used;              /* has been taken, though it may be free again */
  struct TakenName *base; /* of x_3: x, and the 3 */
  int number;
  int next; /* of x: all of x_1 to x_<next - 1> are taken */
  UT_hash_handle hh;
};

/* What C, its library and the runtime call by a name; then C++; then CUDA. */
static const char RESERVED[] =
    " auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool true false asm "
    "typeof main cx AT unix linux INFINITY NAN NULL forward backward update check memcpy memset "
    "pow floor abs fabs y0 y1 yn j0 j1 jn gamma index time rint div exit signal printf abort malloc free select "
    "read write link dup I fmax fmin fma fmod trunc round cbrt exp2 expm1 size_t isnan isinf isfinite signbit copysign see "
    " and and_eq alignas alignof bitand bitor catch char16_t char32_t char8_t class co_await co_return co_yield compl concept "
    "const_cast consteval constexpr constinit decltype delete dynamic_cast explicit export friend mutable namespace new "
    "noexcept not not_eq nullptr operator or or_eq private protected public reinterpret_cast requires static_assert "
    "static_cast template this thread_local throw try typeid typename using virtual wchar_t xor xor_eq "
    " blockDim blockIdx dim3 gridDim threadIdx warpSize STEP std "
#define FN(op, name, ...) name " "
#include "ir/functions.def"
    ;

static bool stands_in_list(const char *s, size_t n) {
  for (const char *at = strstr(RESERVED, s); at; at = strstr(at + 1, s))
    if (at[-1] == ' ' && at[n] == ' ') return true;
  return false;
}

/* One of them, or its f32 form: `powf`. */
static bool reserved(const char *s) {
  size_t n = strlen(s);
  if (stands_in_list(s, n)) return true;
  if (n < 2 || s[n - 1] != 'f') return false;
  char base[64];
  snprintf(base, sizeof base, "%.*s", (int)min_i64(sizeof base - 1, (int64_t)n - 1), s);
  return stands_in_list(base, strlen(base));
}

/* Names of the runtime and of integer types: a number behind does not tell them apart. */
static bool reserved_prefix(const char *s) {
  return !strncmp(s, "dtrt_", 5) || !strncmp(s, "DTRT_", 5) || !strncmp(s, "dtcu_", 5) || !strncmp(s, "DTCU_", 5) ||
         !strncmp(s, "int", 3) || !strncmp(s, "uint", 4);
}

static struct TakenName *find(const Names *names, const char *name) {
  struct TakenName *n = NULL;
  HASH_FIND_STR(names->all, name, n);
  return n;
}

static bool is_taken(const Names *names, const char *name) {
  const struct TakenName *n = names ? find(names, name) : NULL;
  return n && !n->free;
}

static struct TakenName *entry(Arena *arena, Names *names, const char *name) {
  struct TakenName *n = find(names, name);
  if (n) return n;
  n = NEW(arena, struct TakenName);
  *n = (struct TakenName){.name = name, .free = true, .next = 1};
  HASH_ADD_KEYPTR(hh, names->all, n->name, strlen(n->name), n);
  return n;
}

static void take(struct TakenName *n) { n->free = false, n->used = true; }

void emit_take(Emit *e, Names *names, const char *name) { take(entry(e->a, names, name)); }

bool emit_is_name(const Names *taken, const char *name) { return find(taken, name) != NULL; }

void emit_release(Names *names, const char *name) {
  struct TakenName *n = find(names, name);
  assert(n && "only what was taken is released");
  n->free = true;
  if (n->base && n->number < n->base->next) n->base->next = n->number;
}

/* At most 40 characters, none but letters, digits and underscores. */
static const char *safe_name(Emit *e, const char *wish) {
  char safe[48];
  int n = 0;
  for (const char *c = wish; *c && n < 40; c++) safe[n++] = isalnum((unsigned char)*c) && !(*c & 0x80) ? *c : '_';
  safe[n] = 0;
  while (n > 0 && safe[n - 1] == '_') safe[--n] = 0;
  bool bare = isalpha((unsigned char)safe[0]) && !reserved_prefix(safe);
  return arena_printf(e->a, "%s%s", bare ? "" : "v", safe);
}

static const char *find_name(Emit *e, Names *taken, const char *wish, bool fresh) {
  const char *name = safe_name(e, wish);
  const Names *other = taken == &e->global ? e->function : &e->global;
  struct TakenName *base = entry(e->a, taken, name), *own = base;
  int k = 0;
  while (reserved(name) || !own->free || (fresh && own->used) || is_taken(other, name)) {
    k = k ? k + 1 : base->next;
    name = arena_printf(e->a, "%s_%d", base->name, k);
    own = entry(e->a, taken, name);
  }
  if (k) base->next = k + 1, own->base = base, own->number = k;
  take(own);
  return own->name;
}

const char *emit_name(Emit *e, Names *taken, const char *wish) { return find_name(e, taken, wish, false); }
const char *emit_fresh_name(Emit *e, Names *taken, const char *wish) { return find_name(e, taken, wish, true); }
