/* base.h: memory, growable arrays, strings and checked sizes. Everything in dtc allocates from an arena;
   nothing is freed one by one. Under DTC_ARENA_MALLOC (the sanitizer presets) every object is its own
   malloc, so that an overrun is seen. */
#ifndef DTC_BASE_H
#define DTC_BASE_H

#include <assert.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct Arena Arena;

Arena *arena_new(void);
void arena_free(Arena *a);
void arena_keep_memory(void); /* what arenas give back stays with the process: fewer pages are mapped and cleared anew */
void *arena_alloc(Arena *a, size_t bytes); /* zeroed, aligned to 16; exits 70 when memory is exhausted */
char *arena_strdup(Arena *a, const char *s);
char *arena_strndup(Arena *a, const char *s, size_t n);
char *arena_printf(Arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define NEW(a, T) ((T *)arena_alloc((a), sizeof(T)))
#define NEW_ARRAY(a, T, n) ((T *)arena_alloc((a), size_mul(sizeof(T), (size_t)(n))))

/* Growable array: `VEC(int) v = {0}; vec_push(arena, v, 3); for (int i = 0; i < v.n; i++) v.at[i]`. */
#define VEC(T)  \
  struct {      \
    T *at;      \
    int n, cap; \
  }
#define vec_push(a, v, x) \
  (vec_grow((a), (void **)&(v).at, (v).n, &(v).cap, sizeof(*(v).at)), (void)((v).at[(v).n++] = (x)))
void vec_grow(Arena *a, void **at, int n, int *cap, size_t item);

/* String builder; `s.at` is always terminated once something was written. */
typedef VEC(char) Str;
void str_put(Arena *a, Str *s, const char *text);
void str_printf(Arena *a, Str *s, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void str_vprintf(Arena *a, Str *s, const char *fmt, va_list ap);

/* Checked sizes: the first form aborts with exit 70 (a size that the caller should have checked), the
   second reports. All sizes that come from a user's file go through the second. */
size_t size_mul(size_t a, size_t b);
size_t size_add(size_t a, size_t b);
bool checked_mul(int64_t a, int64_t b, int64_t *out); /* false on overflow */
bool checked_add(int64_t a, int64_t b, int64_t *out);

static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; } /* a >= 0, b > 0 */
static inline int64_t floor_div(int64_t a, int64_t b) { /* b > 0; rounds toward minus infinity */
  int64_t q = a / b;
  return q - (a % b != 0 && a < 0);
}
static inline int64_t floor_mod(int64_t a, int64_t b) { return a - b * floor_div(a, b); }
static inline int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max_i64(int64_t a, int64_t b) { return a > b ? a : b; }

/* Arithmetic on places in a dim that may lie far outside: saturates at +-2^61, which no size reaches. */
#define FAR ((int64_t)1 << 61)
static inline int64_t sat_clamp(int64_t x) { return x > FAR ? FAR : x < -FAR ? -FAR : x; }
static inline int64_t sat_add(int64_t a, int64_t b) { return sat_clamp(sat_clamp(a) + sat_clamp(b)); }
static inline int64_t sat_mul(int64_t a, int64_t b) {
  int64_t r;
  if (!__builtin_mul_overflow(a, b, &r)) return sat_clamp(r);
  return (a < 0) == (b < 0) ? FAR : -FAR;
}

/* A fault of dtc itself: prints the reason and exits 70. */
_Noreturn void internal_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

char *read_whole_file(Arena *a, const char *path, size_t *len, const char **why); /* NULL and *why on failure */

#endif
