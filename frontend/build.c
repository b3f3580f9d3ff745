/* build.c: emitted C or CUDA -> a program, by the compiler that was found when dtc was built (or --cc, --nvcc).

     clang -O3 ... -I runtime/include model.c libdtrt.a libdnnl.so ... -o program
     nvcc -O3 ... -gencode=arch=compute_80,code=sm_80 -I runtime/include model.cu libdtrt_cuda.a libcublasLt.so libnccl.so ... -o
   program

   A private folder beside the program holds the text and the program until it is complete; then it is renamed into
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

static bool has(const char *path) { return access(path, R_OK) == 0; }

static bool not_found(Target t, const char *folder, const char *installed) {
  if (t == TARGET_CUDA && !*DTC_NVCC)
    fprintf(stderr, "dtc: this dtc was built without CUDA (%s); --emit=cuda shows the program\n", DTC_NO_CUDA);
  else
    fprintf(stderr, "dtc: cannot find the runtime, neither beside %s nor in %s: install dtc with `cmake --install`\n", folder,
            installed);
  return false;
}

/* In the build tree the library lies beside dtc and the headers in the sources; installed, both lie in lib/dtc. */
bool build_runtime(Arena *a, Target t, Runtime *r) {
  const char *folder = own_folder(a), *installed = arena_printf(a, "%s/" DTC_RUNTIME_REL, folder);
  const char *name = t == TARGET_CUDA ? "libdtrt_cuda.a" : "libdtrt.a";
  *r = (Runtime){arena_printf(a, "%s/%s", folder, name), DTC_RUNTIME_SOURCE};
  if (has(r->library) && has(DTC_RUNTIME_SOURCE "/runtime/dtrt.h")) return true;
  *r = (Runtime){arena_printf(a, "%s/%s", installed, name), arena_printf(a, "%s/include", installed)};
  return has(r->library) || not_found(t, folder, installed);
}

const char *build_compiler(const Options *o, Target t) {
  if (t == TARGET_CUDA) return o->nvcc ? o->nvcc : DTC_NVCC;
  return o->cc ? o->cc : DTC_CC;
}

/* What differs between the targets beside their commands. */
static const struct {
  const char *compiler, *file, *emit; /* in messages; the text's name in the private folder */
} build_names[] = {[TARGET_C] = {"the C compiler", "model.c", "c"}, [TARGET_CUDA] = {"the CUDA compiler", "model.cu", "cuda"}};

typedef VEC(char *) Args;

static void arg(Arena *a, Args *v, const char *text) { vec_push(a, *v, arena_strdup(a, text)); }

static void args(Arena *a, Args *v, const char *const *text) {
  for (; *text; text++) arg(a, v, *text);
}

static void c_command(Arena *a, Args *v) {
  args(a, v, cg_c_flags());
  if (*DTC_SANITIZE) arg(a, v, "-fsanitize=" DTC_SANITIZE);
}

/* Machine code for each GPU that is named, and PTX of the last one, from which later GPUs' is made when the program starts. */
static void cuda_command(Arena *a, const Options *o, Args *v) {
  static const char *const usual[] = {"80", "90"};
  const char *const *arch = o->arch.n ? o->arch.at : usual;
  int n = o->arch.n ? o->arch.n : 2;
  args(a, v, (const char *const[]){"-std=c++20", "-O3", "-lineinfo", "--threads=0", NULL});
  if (o->cc) arg(a, v, arena_printf(a, "-ccbin=%s", o->cc));
  for (int i = 0; i < n; i++) {
    const char *ptx = i == n - 1 ? arena_printf(a, ",compute_%s", arch[i]) : "";
    arg(a, v, arena_printf(a, "-gencode=arch=compute_%s,code=[sm_%s%s]", arch[i], arch[i], ptx));
  }
}

/* The libraries that the runtime needs, where they were found. */
static void libraries(Arena *a, Args *v, Target t) {
  static const char *const cuda[] = {DTC_CUBLASLT, DTC_NCCL, NULL}, *const c[] = {DTC_BLAS, NULL};
  for (const char *const *lib = t == TARGET_CUDA ? cuda : c; *lib && **lib; lib++) {
    const char *slash = strrchr(*lib, '/');
    arg(a, v, *lib);
    if (t == TARGET_CUDA && slash)
      args(a, v,
           (const char *const[]){"-Xlinker", "-rpath", "-Xlinker", arena_printf(a, "%.*s", (int)(slash - *lib), *lib), NULL});
  }
  args(a, v, (const char *const[]){"-ljansson", "-lm", "-lpthread", NULL});
}

static Args command(Arena *a, const Options *o, Target t, const Runtime *r, const char *file, const char *program) {
  Args v = {0};
  arg(a, &v, build_compiler(o, t));
  if (t == TARGET_CUDA)
    cuda_command(a, o, &v);
  else
    c_command(a, &v);
  arg(a, &v, "-DDTC_VERSION=\"" DTC_VERSION "\"");
  arg(a, &v, arena_printf(a, "-I%s", r->include));
  args(a, &v, (const char *const[]){file, "-o", program, r->library, NULL});
  libraries(a, &v, t);
  vec_push(a, v, NULL);
  return v;
}

/* ---- running it ------------------------------------------------------------------------------------------- */

static void interrupts(sigset_t *s) {
  sigemptyset(s);
  for (const int *n = (const int[]){SIGINT, SIGTERM, SIGHUP, SIGQUIT, 0}; *n; n++) sigaddset(s, *n);
}

/* Runs a command with the signal mask `mask` and waits. Its exit status; -1 after a message if it did not run. */
static int run(Target t, char *const *argv, const sigset_t *mask) {
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
    fprintf(stderr, "dtc: cannot run %s %s: %s\n", build_names[t].compiler, argv[0], strerror(error));
    return -1;
  }
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int compile(Arena *a, const Options *o, Target t, const char *text, const char *folder, const char *out,
                   const sigset_t *mask) {
  const char *file = arena_printf(a, "%s/%s", folder, build_names[t].file), *program = arena_printf(a, "%s/program", folder);
  Runtime r;
  if (!build_runtime(a, t, &r)) return EXIT_USAGE;
  if (!output_write(a, file, text)) return EXIT_ERRORS;
  Args v = command(a, o, t, &r, file, program);
  int status = run(t, v.at, mask);
  if (status < 0) return EXIT_USAGE;
  if (status > 0) {
    fprintf(stderr, "dtc: %s %s failed (exit %d); --emit=%s=FILE shows what it was given\n", build_names[t].compiler, v.at[0],
            status, build_names[t].emit);
    return EXIT_INTERNAL;
  }
  if (rename(program, out) == 0) return EXIT_DONE;
  fprintf(stderr, "dtc: cannot write %s: %s\n", out, strerror(errno));
  return EXIT_ERRORS;
}

static void remove_folder(Arena *a, Target t, const char *folder) {
  unlink(arena_printf(a, "%s/%s", folder, build_names[t].file));
  unlink(arena_printf(a, "%s/program", folder));
  rmdir(folder);
}

int build_program(Arena *a, const Options *o, Target t, const char *text, const char *out) {
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
    code = compile(a, o, t, text, folder, out, &before);
    remove_folder(a, t, folder);
  } else {
    fprintf(stderr, "dtc: cannot write %s: %s\n", out, strerror(errno));
  }
  sigprocmask(SIG_SETMASK, &before, NULL); /* an interrupt that came meanwhile ends dtc here */
  return code;
}
