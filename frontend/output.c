/* output.c: text to a file or to standard output. A file is written beside its place under another name and then
   renamed, so that nobody ever sees half of it; what is no regular file (a pipe, /dev/null) is written directly. */
#include "driver.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static bool failed(const char *path) {
  fprintf(stderr, "dtc: cannot write %s: %s\n", path, strerror(errno));
  return false;
}

/* Closes f; false if any of it, or of what was written before, went wrong. */
static bool write_and_close(FILE *f, const char *text) {
  bool ok = f && fputs(text, f) >= 0 && fflush(f) == 0;
  return (f && f != stdout ? fclose(f) == 0 : ok) && ok;
}

static mode_t default_mode(void) {
  mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

bool output_write(Arena *a, const char *path, const char *text) {
  struct stat s;
  if (!strcmp(path, "-")) return write_and_close(stdout, text) || failed("standard output");
  if (stat(path, &s) == 0 && !S_ISREG(s.st_mode)) return write_and_close(fopen(path, "w"), text) || failed(path);
  char *temporary = arena_printf(a, "%s.XXXXXX", path);
  int fd = mkstemp(temporary);
  if (fd < 0) return failed(path);
  bool ok = fchmod(fd, default_mode()) == 0 && write_and_close(fdopen(fd, "w"), text) && rename(temporary, path) == 0;
  if (ok) return true;
  failed(path);
  unlink(temporary);
  return false;
}
