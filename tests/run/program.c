/* program.c: runs dtc and trained programs for tests, see program.h. */
#include "program.h"

#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

static char folder[64];

static int remove_one(const char *path, const struct stat *s, int type, struct FTW *f) {
  (void)s, (void)type, (void)f;
  return remove(path);
}

static void remove_folder(void) { nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

const char *work_folder(void) {
  if (folder[0]) return folder;
  strcpy(folder, "/tmp/dtc-run-XXXXXX");
  if (!mkdtemp(folder)) perror("mkdtemp"), exit(1);
  atexit(remove_folder);
  return folder;
}

static const char *path_in(const char *base, const char *fmt, va_list ap) {
  char *name = NULL, *path = NULL;
  if (vasprintf(&name, fmt, ap) < 0 || asprintf(&path, "%s/%s", base, name) < 0) abort();
  free(name);
  return path;
}

const char *work_path(const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  const char *p = path_in(work_folder(), fmt, ap);
  va_end(ap);
  return p;
}

const char *tests_path(const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  const char *moved = getenv("DTC_TESTS"), *p = path_in(moved ? moved : DTC_TESTS, fmt, ap);
  va_end(ap);
  return p;
}

void each_model(void (*f)(const char *dt)) {
  glob_t g = {0};
  if (glob(tests_path("run/*.dt"), 0, NULL, &g)) unit_fail(tests_path("run"), 1, "there is no model");
  for (size_t i = 0; i < g.gl_pathc; i++) f(g.gl_pathv[i] + strlen(tests_path("%s", "")));
  globfree(&g);
}

pid_t start_program(const char *cwd, const char *const *argv, const char *output_file) {
  remove(output_file); /* nobody shall read what the last one wrote */
  pid_t pid = fork();
  if (pid) return pid;
  int fd = open(output_file, O_WRONLY | O_CREAT | O_TRUNC, 0600), nothing = open("/dev/null", O_RDONLY);
  if (fd < 0 || chdir(cwd) || dup2(nothing, 0) < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0) _exit(126);
  execv(argv[0], (char *const *)argv);
  _exit(127);
}

int run_program(const char *cwd, const char *const *argv, char **output) {
  const char *file = work_path("output");
  pid_t pid = start_program(cwd, argv, file);
  int status = 0;
  waitpid(pid, &status, 0);
  if (output) *output = read_text(file);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool run_dtc(const char *what, const char *dt, const char *out, const char *const *more) {
  const char *argv[32] = {DTC_BINARY, dt, what, "-o", out};
  int n = 5;
  for (; *more; more++) argv[n++] = *more;
  char *output;
  int rc = run_program(work_folder(), argv, &output);
  if (rc) unit_fail(dt, 1, "dtc %s exits %d:\n%.4000s", what, rc, output);
  return rc == 0;
}

char *read_bytes(const char *path, size_t *bytes) {
  FILE *f = fopen(path, "rb"); /* read to its end: files of /proc have no size */
  if (!f) return NULL;
  size_t n = 0, room = 4096, got;
  char *s = malloc(room);
  while ((got = fread(s + n, 1, room - n - 1, f)) > 0)
    if ((n += got) + 1 == room) s = realloc(s, room *= 2);
  fclose(f);
  s[n] = 0;
  *bytes = n;
  return s;
}

char *read_text(const char *path) {
  size_t n;
  return read_bytes(path, &n);
}

bool write_text(const char *path, const char *text) {
  FILE *f = fopen(path, "wb");
  if (!f) return false;
  fputs(text, f);
  return fclose(f) == 0;
}

bool read_log(const char *path, TrainLog *log) {
  char *text = read_text(path);
  *log = (TrainLog){0};
  if (!text) return false;
  int lines = 0;
  for (char *p = text; *p; p++) lines += *p == '\n';
  log->loss = calloc((size_t)lines, sizeof(double));
  log->grad_norm = calloc((size_t)lines, sizeof(double));
  log->lr = calloc((size_t)lines, sizeof(double));
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
    json_t *j = json_loads(line, 0, NULL);
    if (!j) return false;
    log->loss[log->steps] = json_number_value(json_object_get(j, "loss"));
    log->grad_norm[log->steps] = json_number_value(json_object_get(j, "grad_norm"));
    log->lr[log->steps++] = json_number_value(json_object_get(j, "lr"));
    json_decref(j);
  }
  free(text);
  return true;
}

static double element(const char *dtype, const char *at, int64_t i) {
  if (!strcmp(dtype, "F64")) return ((const double *)(const void *)at)[i];
  if (!strcmp(dtype, "F32")) {
    float f;
    memcpy(&f, at + 4 * i, 4);
    return f;
  }
  if (!strcmp(dtype, "I32")) return ((const int32_t *)(const void *)at)[i];
  return (double)((const int64_t *)(const void *)at)[i];
}

bool read_tensors(const char *path, TensorFile *file) {
  *file = (TensorFile){0};
  FILE *f = fopen(path, "rb");
  uint64_t header;
  if (!f || fread(&header, 8, 1, f) != 1 || header > 100000000) return false;
  char *text = malloc(header), *data = NULL;
  if (fread(text, 1, header, f) != header) return false;
  json_t *j = json_loadb(text, header, 0, NULL);
  fseek(f, 0, SEEK_END);
  size_t bytes = (size_t)ftell(f) - 8 - header;
  data = malloc(bytes + 8);
  fseek(f, (long)(8 + header), SEEK_SET);
  if (!j || fread(data, 1, bytes, f) != bytes) return false;
  fclose(f);
  file->tensor = calloc(json_object_size(j), sizeof *file->tensor);
  const char *name;
  json_t *info, *dim;
  size_t i;
  json_object_foreach(j, name, info) {
    if (!strcmp(name, "__metadata__")) continue;
    NamedTensor *t = &file->tensor[file->n++];
    t->name = strdup(name);
    t->elements = 1;
    json_array_foreach(json_object_get(info, "shape"), i, dim) t->elements *= t->dim[t->rank++] = json_integer_value(dim);
    t->at = calloc((size_t)t->elements + 1, sizeof(double));
    const char *at = data + json_integer_value(json_array_get(json_object_get(info, "data_offsets"), 0));
    for (int64_t k = 0; k < t->elements; k++) t->at[k] = element(json_string_value(json_object_get(info, "dtype")), at, k);
  }
  free(text), free(data), json_decref(j);
  return true;
}

const NamedTensor *find_tensor(const TensorFile *file, const char *name) {
  for (int i = 0; i < file->n; i++)
    if (!strcmp(file->tensor[i].name, name)) return &file->tensor[i];
  return NULL;
}
