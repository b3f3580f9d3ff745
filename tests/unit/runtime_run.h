/* runtime_run.h: runs hand-made dtrt_Programs in a process of their own, for the tests of the runtime. */
#ifndef DTC_RUNTIME_RUN_H
#define DTC_RUNTIME_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "runtime/dtrt.h"

typedef struct {
  int rc;          /* exit code, or 128 + signal */
  char text[8192]; /* what it wrote to both streams */
} Ran;

/* A fresh folder, removed with all files in it by ran_clean. */
const char *run_folder(void);
void run_clean(void);
const char *run_path(const char *name); /* in the folder; lives until run_clean */
void run_write(const char *path, const void *data, size_t bytes);
size_t run_read(const char *path, void *data, size_t room); /* 0 if it is not there */

pid_t run_start(const dtrt_Program *p, const char *const *args, int *out); /* args end with NULL, without argv[0] */
Ran run_wait(pid_t pid, int out);
#define RUN(p, ...) run_program(p, (const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})
Ran run_program(const dtrt_Program *p, const char *const *args);

/* A layout of whole dims; sizes end with -1. */
dtrt_Layout run_layout(dtrt_dtype t, const int64_t *size);
#define LAYOUT(t, ...) run_layout(t, (const int64_t[]){__VA_ARGS__ __VA_OPT__(, ) - 1})
/* Splits dim `dim` over one digit. */
void run_split(dtrt_Layout *l, int dim, int stride, int size);

#endif
