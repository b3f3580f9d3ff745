/* program.h: for tests that compile a .dt file and train: run dtc and the program it makes, read what they leave. */
#ifndef DTC_TEST_PROGRAM_H
#define DTC_TEST_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A fresh folder below /tmp, removed when the test program ends. */
const char *work_folder(void);
/* A path in the work folder; the result lives until the program ends. */
const char *work_path(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A path in the source tree's tests/. */
const char *tests_path(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Runs a program (argv ends with NULL) in folder `cwd`; its output goes to *output (both streams) unless NULL.
   Returns the exit code, or 128 + signal. */
int run_program(const char *cwd, const char *const *argv, char **output);
pid_t start_program(const char *cwd, const char *const *argv, const char *output_file);
#define RUN(cwd, output, ...) run_program(cwd, (const char *const[]){__VA_ARGS__, NULL}, output)
/* dtc FILE WHAT -o OUT MORE...: fails the test and returns false when dtc does. */
bool run_dtc(const char *what, const char *dt, const char *out, const char *const *more);
/* The program that a test is about, by dtc and what else it takes: fails the test and returns false when dtc does. */
bool compile(const char *dt, const char *out, const char *const *more);
#define COMPILE(dt, out, ...) compile(dt, out, (const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

/* data.c: tables for all inputs of a model in the work folder; false after a failure. */
bool make_data(const char *dt);
const char *make_corpus(void); /* corpus.txt there, for models that read bytes */
/* "data=1,model=1" or, with first = 3, "data=3,model=1", from the file's `mesh pod(data = 2, model = 2)`. */
const char *mesh_of(const char *dt, int first);

/* Calls f for every tests/run/NAME.dt, `dt` being "run/NAME.dt"; a failure where there is none. */
void each_model(void (*f)(const char *dt));

typedef struct {
  int steps;
  double *loss, *grad_norm, *lr;
} TrainLog;
bool read_log(const char *path, TrainLog *log);

typedef struct {
  char *name;
  int rank;
  int64_t dim[8], elements;
  double *at;
} NamedTensor;
typedef struct {
  int n;
  NamedTensor *tensor;
} TensorFile;
bool read_tensors(const char *path, TensorFile *file); /* F32, F64, I32, I64 */
const NamedTensor *find_tensor(const TensorFile *file, const char *name);

/* oracle.c */
void check_oracle(const char *dt, const char *model, const char *log, const char *grads, const char *final);

char *read_bytes(const char *path, size_t *bytes); /* NULL: no such file */
char *read_text(const char *path);
bool write_text(const char *path, const char *text);

#endif
