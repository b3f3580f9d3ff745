/* compiled.c: scheduled programs -> emitted text -> compiled -> run on their inputs -> compared.

   C is compiled by itself. CUDA is compiled as C++ against the emulator of tests/cuda, many programs to a file because the
   headers take most of the time: each stands in a namespace, and the first argument chooses one.

     namespace p0 {
     #include "0.cu"
     }
     int main(int argc, char **argv) { return programs[atoi(argv[1])](argc - 1, argv + 1); }                                  */
#include "codegen/codegen.h"
#include "emitted.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef VEC(const char *) Args;

struct Batch {
  Arena *a;
  const char *folder;
  VEC(Emitted) programs;
};

enum { COMPILE_SECONDS = 600, RUN_SECONDS = 300 /* hangs end, a loaded machine does not */ };

/* ---- processes ---- */

/* Runs argv in the folder with its output in `log`; NULL, or how it ended. */
static const char *run(Arena *a, const char *folder, const char *const *argv, const char *log, unsigned seconds) {
  const char *path = arena_printf(a, "%s/%s", folder, log), *why;
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    if (fd < 0 || chdir(folder)) _exit(126);
    dup2(fd, 1), dup2(fd, 2);
    setenv("DTRT_PROFILE", "1", 1); /* its counters are compared, too */
    alarm(seconds);
    execvp(argv[0], (char *const *)argv);
    _exit(127);
  }
  int status = 0;
  size_t n;
  waitpid(child, &status, 0);
  if (status == 0) return NULL;
  const char *said = read_whole_file(a, path, &n, &why);
  return arena_printf(a, "%s ended with status %d: %.3000s", argv[0], status, said ? said : "");
}

static void args(Arena *a, Args *v, const char *const *more) {
  for (; *more; more++) vec_push(a, *v, *more);
}
#define ARGS(a, v, ...) args(a, v, (const char *const[]){__VA_ARGS__, NULL})

/* ---- compiling ---- */

static void write_text(Arena *a, const char *folder, const char *name, const char *text) {
  FILE *f = fopen(arena_printf(a, "%s/%s", folder, name), "wb");
  if (!f || fputs(text, f) < 0 || fclose(f)) internal_error("cannot write %s/%s", folder, name);
}

/* As dtc does, but without the optimizer's time. */
static const char *compile_c(Arena *a, const char *folder) {
  Args v = {0};
  ARGS(a, &v, DTC_CC);
  args(a, &v, cg_c_flags());
  ARGS(a, &v, "-O1", "-I" DTC_RUNTIME_SOURCE, "0.c", "-o", "program", DTC_RUNTIME_LIBRARY, DTC_BLAS, "-ljansson", "-lm",
       "-lpthread");
  vec_push(a, v, NULL);
  return run(a, folder, v.at, "build.log", COMPILE_SECONDS);
}

static const char *all_of(Arena *a, int n) {
  Str s = {0}, names = {0};
  str_put(a, &s, "#include \"runtime/dtcu.h\"\n#include \"runtime/dtcu_attention.h\"\n#include <cstdlib>\n");
  for (int i = 0; i < n; i++) {
    str_printf(a, &s, "namespace p%d {\n#include \"%d.cu\"\n}\n", i, i);
    str_printf(a, &names, "%sp%d::main", i ? ", " : "", i);
  }
  str_printf(a, &s, "static int (*const programs[])(int, char **) = {%s};\n", names.at);
  str_put(a, &s, "int main(int argc, char **argv) { return programs[std::atoi(argv[1])](argc - 1, argv + 1); }\n");
  return s.at;
}

static const char *compile_cuda(Arena *a, const char *folder, int n, const char *variant) {
  const char *argv[] = {"sh", DTC_EMULATOR "/emulate.sh", variant, DTC_EMULATED, "program", "all.cu", NULL};
  write_text(a, folder, "all.cu", all_of(a, n));
  if (!strcmp(variant, "plain")) setenv("CXXFLAGS", "-O0", 1); /* what is found needs no lines of the text */
  return run(a, folder, argv, "build.log", COMPILE_SECONDS);
}

static const char *compile(const Batch *b) {
  const Emitted *e = b->programs.at;
  bool cuda = e->o.target == TARGET_CUDA;
  for (int i = 0; i < b->programs.n; i++)
    write_text(b->a, b->folder, arena_printf(b->a, cuda ? "%d.cu" : "%d.c", i),
               cuda ? cg_emit_cuda(e[i].m, e[i].a) : cg_emit_c(e[i].m, e[i].a));
  return cuda ? compile_cuda(b->a, b->folder, b->programs.n, e->o.variant) : compile_c(b->a, b->folder);
}

/* ---- running ---- */

static const char *run_one(const Batch *b, int i) {
  const Emitted *e = &b->programs.at[i];
  Args v = {0};
  ARGS(e->a, &v, arena_printf(e->a, "%s/program", b->folder));
  if (e->o.target == TARGET_CUDA) ARGS(e->a, &v, arena_printf(e->a, "%d", i));
  ARGS(e->a, &v, "--steps", "1", "--seed", arena_printf(e->a, "%llu", (unsigned long long)e->o.seed));
  setenv("DTCU_DEVICES", arena_printf(e->a, "%lld", (long long)mesh_devices(&e->m->mesh)), 1);
  emitted_inputs(e);
  if (emitted_parameters(e)) ARGS(e->a, &v, "--init", "p.safetensors", "--save", "saved.safetensors");
  vec_push(e->a, v, NULL);
  const char *wrong = run(e->a, e->folder, v.at, "run.log", RUN_SECONDS);
  return wrong ? wrong : emitted_compare(e);
}

static void remove_folder(const char *folder) {
  pid_t child = fork();
  if (child == 0) {
    execlp("rm", "rm", "-rf", "--", folder, (char *)NULL);
    _exit(127);
  }
  waitpid(child, NULL, 0);
}

/* ---- a batch ---- */

Batch *fuzz_batch(Arena *a) {
  const char *tmp = getenv("TMPDIR");
  char *folder = arena_printf(a, "%s/dtc-fuzz-XXXXXX", tmp ? tmp : "/tmp");
  if (!mkdtemp(folder)) internal_error("cannot make a folder %s", folder);
  Batch *b = NEW(a, Batch);
  b->a = a;
  b->folder = folder;
  return b;
}

void fuzz_batch_add(Batch *b, Arena *a, const Module *m, const Shown *shown, CheckOptions o) {
  const char *folder = arena_printf(b->a, "%s/%d", b->folder, b->programs.n);
  if (mkdir(folder, 0700)) internal_error("cannot make a folder %s", folder);
  vec_push(b->a, b->programs, ((Emitted){a, m, *shown, o, folder}));
}

/* Where a file of several does not compile, each is compiled alone, to find out which it is. */
void fuzz_batch_run(Batch *b, const char **wrong) {
  const char *why = compile(b);
  for (int i = 0; i < b->programs.n; i++) {
    const Emitted *e = &b->programs.at[i];
    wrong[i] = !why ? run_one(b, i) : b->programs.n == 1 ? why : fuzz_run_emitted(e->a, e->m, &e->shown, e->o);
  }
  remove_folder(b->folder);
}

const char *fuzz_run_emitted(Arena *a, const Module *m, const Shown *shown, CheckOptions o) {
  Batch *b = fuzz_batch(a);
  const char *wrong = NULL;
  fuzz_batch_add(b, a, m, shown, o);
  fuzz_batch_run(b, &wrong);
  return wrong;
}
