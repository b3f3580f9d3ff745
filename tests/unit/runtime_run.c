/* runtime_run.c: helpers of the runtime's tests, see runtime_run.h. */
#include "runtime_run.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64];
static char *paths[256];
static int npaths;

const char *run_folder(void) {
  if (!*folder) {
    strcpy(folder, "/tmp/dtrt-test-XXXXXX");
    if (!mkdtemp(folder)) abort();
  }
  return folder;
}

void run_clean(void) {
  if (!*folder) return;
  DIR *d = opendir(folder);
  for (struct dirent *e; d && (e = readdir(d));) unlinkat(dirfd(d), e->d_name, 0);
  if (d) closedir(d);
  rmdir(folder);
  *folder = 0;
  while (npaths) free(paths[--npaths]);
}

const char *run_path(const char *name) {
  char *p = NULL;
  if (npaths == 256 || asprintf(&p, "%s/%s", run_folder(), name) < 0) abort();
  return paths[npaths++] = p;
}

void run_write(const char *path, const void *data, size_t bytes) {
  FILE *f = fopen(path, "wb");
  if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f)) abort();
}

size_t run_read(const char *path, void *data, size_t room) {
  FILE *f = fopen(path, "rb");
  if (!f) return 0;
  size_t n = fread(data, 1, room, f);
  fclose(f);
  return n;
}

pid_t run_start(const dtrt_Program *p, const char *const *args, int *out) {
  int fd[2];
  if (pipe(fd)) abort();
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    char *argv[64] = {"./train"};
    int argc = 1;
    while (*args && argc < 63) argv[argc++] = (char *)(size_t)*args++;
    dup2(fd[1], 1);
    dup2(fd[1], 2);
    close(fd[0]);
    close(fd[1]);
    alarm(60); /* the default action ends a supervisor that hangs, and with it all ranks */
    int rc = dtrt_main(p, argc, argv);
    fflush(NULL);
    _exit(rc);
  }
  close(fd[1]);
  *out = fd[0];
  return pid;
}

Ran run_wait(pid_t pid, int out) {
  Ran r = {0};
  size_t n = 0;
  char rest[4096];
  for (ssize_t k; (k = read(out, n < sizeof r.text - 1 ? r.text + n : rest,
                            n < sizeof r.text - 1 ? sizeof r.text - 1 - n : sizeof rest)) > 0;)
    if (n < sizeof r.text - 1) n += (size_t)k;
  close(out);
  int status;
  waitpid(pid, &status, 0);
  r.rc = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return r;
}

Ran run_program(const dtrt_Program *p, const char *const *args) {
  int out;
  pid_t pid = run_start(p, args, &out);
  return run_wait(pid, out);
}

dtrt_Layout run_layout(dtrt_dtype t, const int64_t *size) {
  dtrt_Layout l = {.dtype = t, .reduce = DTRT_SUM};
  for (; *size >= 0; size++) l.dim[l.rank++] = (dtrt_Dim){.size = *size, .chunk = *size};
  return l;
}

void run_split(dtrt_Layout *l, int dim, int stride, int size) {
  dtrt_Dim *d = &l->dim[dim];
  d->digit[d->n++] = (dtrt_Digit){stride, size};
  int64_t k = 1;
  for (int i = 0; i < d->n; i++) k *= d->digit[i].size;
  d->chunk = (d->size + k - 1) / k;
}
