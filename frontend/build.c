/* build.c: emitted C -> a program, by the C compiler that was found when dtc was built (or --cc).

   A private folder beside the program holds model.c and the program until it is complete; then it is renamed into
   place and the folder removed, whatever happened. The compiler is started without a shell. Signals wait until that is
   done, so that an interrupt leaves nothing behind. */
#include "codegen/codegen.h"
#include "driver.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- what to build with ----------------------------------------------------------------------------------- */

static const char *own_folder(Arena *a) {
  char path[4096];
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  if (n <= 0) return ".";
  path[n] = 0;
  char *slash = strrchr(path, '/');
  if (slash) *slash = 0;
  return arena_strdup(a, path);
}

/* In the build tree the library lies beside dtc and the headers in the sources; installed, both lie in lib/dtc. */
bool build_runtime(Arena *a, Runtime *r) {
  const char *folder = own_folder(a);
  *r = (Runtime){arena_printf(a, "%s/libdtrt.a", folder), DTC_RUNTIME_SOURCE};
  if (access(r->library, R_OK) == 0 && access(DTC_RUNTIME_SOURCE "/runtime/dtrt.h", R_OK) == 0) return true;
  *r = (Runtime){arena_printf(a, "%s/" DTC_RUNTIME_REL "/libdtrt.a", folder),
                 arena_printf(a, "%s/" DTC_RUNTIME_REL "/include", folder)};
  if (access(r->library, R_OK) == 0) return true;
  fprintf(stderr, "dtc: cannot find the runtime, neither beside %s nor in %s: install dtc with `cmake --install`\n", folder,
          arena_printf(a, "%s/" DTC_RUNTIME_REL, folder));
  return false;
}

const char *build_compiler(const Options *o) { return o->cc ? o->cc : DTC_CC; }

typedef VEC(char *) Args;

static void arg(Arena *a, Args *v, const char *text) { vec_push(a, *v, arena_strdup(a, text)); }

static Args command(Arena *a, const Options *o, const Runtime *r, const char *c_file, const char *program) {
  Args v = {0};
  arg(a, &v, build_compiler(o));
  for (const char *const *flag = cg_c_flags(); *flag; flag++) arg(a, &v, *flag);
  if (*DTC_SANITIZE) arg(a, &v, "-fsanitize=" DTC_SANITIZE);
  arg(a, &v, "-DDTC_VERSION=\"" DTC_VERSION "\"");
  arg(a, &v, arena_printf(a, "-I%s", r->include));
  arg(a, &v, c_file);
  arg(a, &v, "-o");
  arg(a, &v, program);
  arg(a, &v, r->library);
  if (*DTC_BLAS) arg(a, &v, DTC_BLAS);
  for (const char *const *lib = (const char *const[]){"-ljansson", "-lm", "-lpthread", NULL}; *lib; lib++) arg(a, &v, *lib);
  vec_push(a, v, NULL);
  return v;
}

/* ---- running it ------------------------------------------------------------------------------------------- */

static void interrupts(sigset_t *s) {
  sigemptyset(s);
  for (const int *n = (const int[]){SIGINT, SIGTERM, SIGHUP, SIGQUIT, 0}; *n; n++) sigaddset(s, *n);
}

/* Runs a command with the signal mask `mask` and waits. Its exit status; -1 after a message if it did not run. */
static int run(char *const *argv, const sigset_t *mask) {
  extern char **environ;
  posix_spawnattr_t attr;
  pid_t pid;
  int status, error;
  posix_spawnattr_init(&attr);
  posix_spawnattr_setsigmask(&attr, mask);
  posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
  error = posix_spawnp(&pid, argv[0], NULL, &attr, argv, environ);
  posix_spawnattr_destroy(&attr);
  if (error) {
    fprintf(stderr, "dtc: cannot run the C compiler %s: %s\n", argv[0], strerror(error));
    return -1;
  }
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int compile(Arena *a, const Options *o, const char *c_text, const char *folder, const char *out, const sigset_t *mask) {
  const char *c_file = arena_printf(a, "%s/model.c", folder), *program = arena_printf(a, "%s/program", folder);
  Runtime r;
  if (!build_runtime(a, &r)) return EXIT_USAGE;
  if (!output_write(a, c_file, c_text)) return EXIT_ERRORS;
  Args v = command(a, o, &r, c_file, program);
  int status = run(v.at, mask);
  if (status < 0) return EXIT_USAGE;
  if (status > 0) {
    fprintf(stderr, "dtc: the C compiler %s failed (exit %d); --emit=c=FILE shows what it was given\n", v.at[0], status);
    return EXIT_INTERNAL;
  }
  if (rename(program, out) == 0) return EXIT_DONE;
  fprintf(stderr, "dtc: cannot write %s: %s\n", out, strerror(errno));
  return EXIT_ERRORS;
}

static void remove_folder(Arena *a, const char *folder) {
  unlink(arena_printf(a, "%s/model.c", folder));
  unlink(arena_printf(a, "%s/program", folder));
  rmdir(folder);
}

int build_program(Arena *a, const Options *o, const char *c_text, const char *out) {
  const char *slash = strrchr(out, '/');
  const char *here = *out == '/' ? "" : "./"; /* no name of ours begins with a minus */
  char *folder = arena_printf(a, "%s%.*s.dtc-XXXXXX", here, slash ? (int)(slash - out) + 1 : 0, out);
  struct stat s;
  if (stat(out, &s) == 0 && !S_ISREG(s.st_mode)) {
    fprintf(stderr, "dtc: %s is there and is no regular file\n", out);
    return EXIT_ERRORS;
  }
  sigset_t wait, before;
  interrupts(&wait);
  sigprocmask(SIG_BLOCK, &wait, &before);
  int code = EXIT_ERRORS;
  if (mkdtemp(folder)) {
    code = compile(a, o, c_text, folder, out, &before);
    remove_folder(a, folder);
  } else {
    fprintf(stderr, "dtc: cannot write %s: %s\n", out, strerror(errno));
  }
  sigprocmask(SIG_SETMASK, &before, NULL); /* an interrupt that came meanwhile ends dtc here */
  return code;
}
