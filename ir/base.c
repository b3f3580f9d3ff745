/* base.c: the arena, growable arrays, the string builder and checked sizes that everything else stands on.
   The only file that calls malloc and free. */
#include "ir/base.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>

enum { FIRST_BYTES = 1 << 13, BLOCK_BYTES = 1 << 18, ALIGN = 16 };

typedef struct Block {
  struct Block *next;
  size_t used, size;
  _Alignas(ALIGN) char data[];
} Block;

struct Arena {
  Block *blocks; /* the first is the one being filled */
  size_t next;   /* what the block after it will hold: small arenas, of which there are many, stay small */
};

static Block *block_new(size_t size, Block *next) {
  Block *b = calloc(1, size_add(sizeof(Block), size));
  if (!b) internal_error("out of memory (%zu bytes wanted)", size);
  b->size = size;
  b->next = next;
  return b;
}

/* malloc would map a block like ours by itself, and unmap it when it is freed. */
void arena_keep_memory(void) {
  mallopt(M_MMAP_THRESHOLD, 1 << 25);
  mallopt(M_TRIM_THRESHOLD, INT32_MAX);
}

Arena *arena_new(void) {
  Arena *a = calloc(1, sizeof *a);
  if (!a) internal_error("out of memory");
  a->next = FIRST_BYTES;
  return a;
}

void arena_free(Arena *a) {
  for (Block *b = a->blocks, *next; b; b = next) {
    next = b->next;
    free(b);
  }
  free(a);
}

void *arena_alloc(Arena *a, size_t bytes) {
  size_t need = size_add(bytes, ALIGN - 1) & ~(size_t)(ALIGN - 1);
#ifdef DTC_ARENA_MALLOC
  a->blocks = block_new(need, a->blocks);
  return a->blocks->data;
#else
  Block *b = a->blocks;
  if (!b || b->size - b->used < need) {
    if (need > BLOCK_BYTES / 4 && b) { /* a big object gets a block of its own, behind the one being filled */
      b->next = block_new(need, b->next);
      b->next->used = need;
      return b->next->data;
    }
    b = a->blocks = block_new(need > a->next ? need : a->next, b);
    if (a->next < BLOCK_BYTES) a->next *= 2;
  }
  void *p = b->data + b->used;
  b->used += need;
  return p;
#endif
}

char *arena_strndup(Arena *a, const char *s, size_t n) {
  char *p = arena_alloc(a, size_add(n, 1));
  memcpy(p, s, n);
  return p;
}

char *arena_strdup(Arena *a, const char *s) { return arena_strndup(a, s, strlen(s)); }

char *arena_printf(Arena *a, const char *fmt, ...) {
  Str s = {0};
  va_list ap;
  va_start(ap, fmt);
  str_vprintf(a, &s, fmt, ap);
  va_end(ap);
  return s.at;
}

void vec_grow(Arena *a, void **at, int n, int *cap, size_t item) {
  if (n < *cap) return;
  if (*cap > INT32_MAX / 2) internal_error("an array of %d items cannot grow", *cap);
  int want = *cap ? *cap * 2 : item > 256 ? 1 : 8;
  void *p = arena_alloc(a, size_mul(item, (size_t)want));
  if (n) memcpy(p, *at, size_mul(item, (size_t)n));
  *at = p;
  *cap = want;
}

/* Room for `more` characters and the terminator. */
static void str_reserve(Arena *a, Str *s, size_t more) {
  size_t need = size_add(size_add((size_t)s->n, more), 1);
  if (need <= (size_t)s->cap) return;
  if (need > INT32_MAX / 2) internal_error("a text of %zu bytes is too long", need);
  size_t cap = need < 64 ? 64 : need * 2;
  char *p = arena_alloc(a, cap);
  if (s->n) memcpy(p, s->at, (size_t)s->n);
  s->at = p;
  s->cap = (int)cap;
}

void str_put(Arena *a, Str *s, const char *text) {
  size_t n = strlen(text);
  str_reserve(a, s, n);
  memcpy(s->at + s->n, text, n + 1);
  s->n += (int)n;
}

void str_vprintf(Arena *a, Str *s, const char *fmt, va_list ap) {
  va_list again;
  va_copy(again, ap);
  int n = vsnprintf(NULL, 0, fmt, ap);
  if (n < 0) internal_error("cannot format \"%s\"", fmt);
  str_reserve(a, s, (size_t)n);
  vsnprintf(s->at + s->n, (size_t)n + 1, fmt, again);
  va_end(again);
  s->n += n;
}

void str_printf(Arena *a, Str *s, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  str_vprintf(a, s, fmt, ap);
  va_end(ap);
}

size_t size_mul(size_t a, size_t b) {
  size_t r;
  if (__builtin_mul_overflow(a, b, &r)) internal_error("size overflow: %zu * %zu", a, b);
  return r;
}

size_t size_add(size_t a, size_t b) {
  size_t r;
  if (__builtin_add_overflow(a, b, &r)) internal_error("size overflow: %zu + %zu", a, b);
  return r;
}

bool checked_mul(int64_t a, int64_t b, int64_t *out) { return !__builtin_mul_overflow(a, b, out); }
bool checked_add(int64_t a, int64_t b, int64_t *out) { return !__builtin_add_overflow(a, b, out); }

void internal_error(const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  fputs("dtc: internal error: ", stderr);
  vfprintf(stderr, fmt, ap);
  fputc('\n', stderr);
  va_end(ap);
  exit(70);
}

char *read_whole_file(Arena *a, const char *path, size_t *len, const char **why) {
  FILE *f = strcmp(path, "-") ? fopen(path, "rb") : stdin;
  if (!f) return *why = arena_strdup(a, strerror(errno)), NULL;
  Str s = {0};
  char buffer[65536];
  size_t n, total = 0;
  while ((n = fread(buffer, 1, sizeof buffer, f)) > 0 && (total += n) < (1u << 28)) {
    str_reserve(a, &s, n);
    memcpy(s.at + s.n, buffer, n);
    s.n += (int)n;
  }
  const char *fault = ferror(f) ? strerror(errno) : total >= (1u << 28) ? "larger than 256 MiB" : NULL;
  if (f != stdin) fclose(f);
  if (fault) return *why = arena_strdup(a, fault), NULL;
  str_reserve(a, &s, 0);
  s.at[s.n] = 0;
  *len = (size_t)s.n;
  return s.at;
}
