/* files.c: files in memory, and files that appear under their name only when they are complete.

   A new file has no name while it is written (O_TMPFILE); it then gets a temporary one next to its place and is
   renamed over the old file. So neither a full disk nor a kill leaves half a file, and the old one stays until the
   new one is on disk. On file systems without O_TMPFILE the temporary name exists from the start; it is kept in
   shared memory so that the supervisor can remove it when the writer dies. */
#define _GNU_SOURCE
#include "rt.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

bool rt_map(const char *name, Mapped *m, char *why) {
  *m = (Mapped){.name = name};
  struct stat st;
  int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not make us wait */
  if (fd < 0 || fstat(fd, &st)) {
    snprintf(why, RT_MESSAGE, "cannot read %s: %s", name, strerror(errno));
    if (fd >= 0) close(fd);
    return false;
  }
  bool regular = S_ISREG(st.st_mode);
  if (regular && st.st_size > 0) m->at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  int error = errno;
  close(fd);
  if (!regular || !st.st_size || m->at == MAP_FAILED) {
    snprintf(why, RT_MESSAGE,
             !regular      ? "%s is not a file"
             : !st.st_size ? "%s is empty"
                           : "cannot read %s: %s",
             name, strerror(error));
    return false;
  }
  m->bytes = st.st_size;
  return true;
}

void rt_unmap(Mapped *m) {
  if (m->bytes) munmap((void *)(uintptr_t)m->at, (size_t)m->bytes);
  *m = (Mapped){0};
}

static bool too_long(void) {
  errno = ENAMETOOLONG;
  return false;
}

static bool folder_of(const char *name, char out[PATH_MAX]) {
  char copy[PATH_MAX];
  if (snprintf(copy, sizeof copy, "%s", name) >= PATH_MAX) return too_long();
  snprintf(out, PATH_MAX, "%s", dirname(copy));
  return true;
}

bool rt_new_begin(NewFile *f, const char *name, char *mark) {
  char folder[PATH_MAX];
  *f = (NewFile){.name = name, .fd = -1};
  struct stat st;
  if (stat(name, &st) == 0 && !S_ISREG(st.st_mode)) { /* a rename would put a file in the place of /dev/null */
    errno = S_ISDIR(st.st_mode) ? EISDIR : ENOTSUP;
    return false;
  }
  if (!folder_of(name, folder)) return false;
  if (snprintf(f->temporary, sizeof f->temporary, "%s.%ld.tmp", name, (long)getpid()) >= (int)sizeof f->temporary)
    return too_long();
  f->fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
  if (f->fd >= 0) return true;
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) return false;
  strcpy(mark, f->temporary);
  f->fd = open(f->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  f->linked = f->fd >= 0;
  return f->linked;
}

bool rt_new_write(NewFile *f, const void *data, size_t bytes, int64_t at) {
  const char *p = data;
  while (bytes) {
    ssize_t n = pwrite(f->fd, p, bytes, at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      if (n == 0) errno = ENOSPC;
      return false;
    }
    p += n;
    at += n;
    bytes -= (size_t)n;
  }
  return true;
}

void rt_new_abort(NewFile *f, char *mark) {
  int error = errno;
  if (f->fd >= 0) close(f->fd);
  if (f->linked) unlink(f->temporary);
  *f = (NewFile){.fd = -1};
  *mark = 0;
  errno = error;
}

static bool give_name(NewFile *f, char *mark) {
  if (f->linked) return true;
  char proc[64];
  snprintf(proc, sizeof proc, "/proc/self/fd/%d", f->fd);
  strcpy(mark, f->temporary);
  unlink(f->temporary); /* of an earlier process with our number */
  f->linked = linkat(AT_FDCWD, proc, AT_FDCWD, f->temporary, AT_SYMLINK_FOLLOW) == 0;
  return f->linked;
}

bool rt_new_commit(NewFile *f, char *mark) {
  char folder[PATH_MAX];
  if (fsync(f->fd) || !give_name(f, mark) || rename(f->temporary, f->name)) return false;
  f->linked = false;
  *mark = 0;
  bool ok = close(f->fd) == 0 && folder_of(f->name, folder);
  f->fd = -1;
  int dir = ok ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1; /* so that the new name survives a power cut */
  if (dir >= 0) fsync(dir), close(dir);
  return ok;
}
