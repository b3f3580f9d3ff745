/* cases.h: a case is a small program that is right, and wrong in one way with `bug`: then the emulator must say so.

     CASE(missing_barrier) { ... if (!bug) __syncthreads(); ... }                                                     */
#ifndef CASES_H
#define CASES_H

#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CHECK(call)                                                                                                              \
  do {                                                                                                                           \
    if (int check_status = (int)(call)) {                                                                                        \
      fprintf(stderr, "%s:%d: %s returned %d\n", __FILE__, __LINE__, #call, check_status);                                       \
      exit(1);                                                                                                                   \
    }                                                                                                                            \
  } while (0)
#define EXPECT(what)                                                                                                             \
  do {                                                                                                                           \
    if (!(what)) {                                                                                                               \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);                                                         \
      exit(1);                                                                                                                   \
    }                                                                                                                            \
  } while (0)

struct Case {
  const char *name;
  void (*run)(bool bug);
  Case *next;
  Case(const char *name, void (*run)(bool));
};
#define CASE(name)                                                                                                               \
  static void name(bool bug);                                                                                                    \
  static Case name##_case(#name, name);                                                                                          \
  static void name([[maybe_unused]] bool bug)

/* n floats of device memory, written by value(i) where one is given. */
float *device_floats(int n, float (*value)(int) = nullptr);
/* The sum of n floats of device memory, after all that runs. */
double sum_of(const float *x, int n);
inline float one(int) { return 1; }
inline float index_of(int i) { return (float)i; }

#endif
