/* kernels.c: emitted CUDA as nvcc sees it: every example and every model of the tests becomes a program for sm_80, sm_90 and PTX,
   linked to the real cuBLASLt and NCCL; the inputs of the golden tests that make a program become one object file. No
   warnings, and no kernel that spills registers. Prints what ptxas says of every kernel:

     kernel                                    sm_80  sm_90  shared  stack  spilled
     n_26_kernel                                  22     24    1024      0        0                                          */
#include <dirent.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "program.h"
#include "unit.h"

enum { ARCHS = 2, MAX_KERNELS = 4096 };
static const char *const ARCH[ARCHS] = {"sm_80", "sm_90"};

typedef struct {
  char name[96];
  int registers[ARCHS], shared, stack, spilled;
} Kernel;

typedef struct {
  int n;
  Kernel *kernel;
} Kernels;

/* What nvcc is given besides dtc's own options. */
static void strict(void) { setenv("NVCC_APPEND_FLAGS", "-Werror all-warnings -Xptxas -v -Xptxas -warn-spills", 1); }

/* ---- what ptxas says -------------------------------------------------------------------------------------------------- */

/* `_Z11n_26_kernelPKf` -> n_26_kernel; `_ZN2p34n_26E` -> n_26: the last name that is spelt with its length. */
static void plain_name(char *out, size_t size, const char *mangled) {
  snprintf(out, size, "%.*s", (int)strcspn(mangled, "'"), mangled);
  const char *at = mangled + strspn(mangled, "_ZN");
  for (char *end; *at >= '0' && *at <= '9';) {
    long n = strtol(at, &end, 10);
    if (n <= 0 || (size_t)n > strlen(end)) return;
    snprintf(out, size, "%.*s", (int)n, end);
    at = end + n;
  }
}

static Kernel *kernel_of(Kernels *k, const char *name) {
  for (int i = 0; i < k->n; i++)
    if (!strcmp(k->kernel[i].name, name)) return &k->kernel[i];
  if (k->n == MAX_KERNELS) return NULL;
  Kernel *new = &k->kernel[k->n++];
  memset(new, 0, sizeof *new);
  strcpy(new->name, name);
  return new;
}

static int larger(int x, int y) { return x > y ? x : y; }

/* The number before a word, such as `32 bytes smem`; 0 where there is none. */
static int number_before(const char *line, const char *word) {
  const char *at = strstr(line, word);
  if (!at) return 0;
  while (at > line && (at[-1] == ' ' || (at[-1] >= '0' && at[-1] <= '9'))) at--;
  return atoi(at);
}

static Kernels read_ptxas(char *text) {
  Kernels k = {0, calloc(MAX_KERNELS, sizeof(Kernel))};
  Kernel *now = NULL;
  int arch = 0;
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
    const char *entry = strstr(line, "Compiling entry function '"), *target = strstr(line, "' for '");
    char name[sizeof now->name];
    if (entry && target) {
      plain_name(name, sizeof name, entry + strlen("Compiling entry function '"));
      now = kernel_of(&k, name);
      for (arch = 0; arch < ARCHS - 1 && strncmp(target + 7, ARCH[arch], 5);) arch++;
    } else if (now && strstr(line, "bytes stack frame")) {
      now->stack = larger(now->stack, number_before(line, "bytes stack frame"));
      now->spilled = larger(now->spilled, number_before(line, "bytes spill stores") + number_before(line, "bytes spill loads"));
    } else if (now && strstr(line, " registers")) {
      now->registers[arch] = larger(now->registers[arch], number_before(line, " registers"));
      now->shared = larger(now->shared, number_before(line, "bytes smem"));
    }
  }
  return k;
}

static void judge(const char *what, char *ptxas) {
  Kernels k = read_ptxas(ptxas);
  if (!k.n) unit_fail(what, 1, "ptxas names no kernel");
  printf("\n%s: %d kernels\n%-48s %6s %6s %7s %6s %8s\n", what, k.n, "kernel", ARCH[0], ARCH[1], "shared", "stack", "spilled");
  for (int i = 0; i < k.n; i++) {
    const Kernel *x = &k.kernel[i];
    printf("%-48s %6d %6d %7d %6d %8d\n", x->name, x->registers[0], x->registers[1], x->shared, x->stack, x->spilled);
    if (x->spilled) unit_fail(what, 1, "%s spills %d bytes", x->name, x->spilled);
    if (!x->registers[0] || !x->registers[1]) unit_fail(what, 1, "%s was not compiled for both GPUs", x->name);
  }
  free(k.kernel);
}

/* ---- programs ----------------------------------------------------------------------------------------------------------- */

static bool has_gpu(void) { return access("/dev/nvidiactl", F_OK) == 0; }

/* Without a GPU a program ends with 1, and all that it writes is why. */
static void check_run(const char *dt, const char *program) {
  char *output;
  const char *data = tests_path("../examples");
  if (!strstr(dt, "/mlp.dt")) make_corpus(), data = work_folder();
  int rc = RUN(work_folder(), &output, program, "--steps", "1", "--data-dir", data);
  if (rc != 1 || strcmp(output, "nvcc-program: no GPU can be used: there is no NVIDIA driver here\n"))
    unit_fail(dt, 1, "without a GPU the program exits %d and says:\n%.2000s", rc, output);
}

static void check_program(const char *dt, const char *name) {
  const char *program = work_path("nvcc-program");
  char *output;
  int rc = RUN(work_folder(), &output, DTC_BINARY, dt, "--target=cuda", "-o", program);
  if (rc) {
    unit_fail(dt, 1, "dtc --target=cuda exits %d:\n%.4000s", rc, output);
    return;
  }
  judge(name, output);
  if (!has_gpu() && !strstr(name, "405b")) check_run(dt, program); /* nobody has its data */
}

static void check_folder(const char *folder) {
  struct dirent **entries;
  int n = scandir(tests_path("%s", folder), &entries, NULL, alphasort), models = 0;
  for (int i = 0; i < n; i++) {
    const char *dot = strrchr(entries[i]->d_name, '.');
    if (!dot || strcmp(dot, ".dt")) continue;
    check_program(tests_path("%s/%s", folder, entries[i]->d_name), entries[i]->d_name);
    models++;
  }
  CHECK(models > 0);
}

UNIT(every_example_is_a_program_for_gpus) {
  strict();
  check_folder("../examples");
}

/* ---- many small ones in one file ------------------------------------------------------------------------------------------ */

static void drop_comments(char *text) {
  char *to = text;
  for (char *line = text, *next; *line; line = next) {
    next = line + strcspn(line, "\n");
    next += *next == '\n';
    if (!strncmp(line, "//", 2)) continue;
    memmove(to, line, (size_t)(next - line));
    to += next - line;
  }
  *to = 0;
}

/* Does it say what one of the first n said? Golden tests of different passes often make the same program. */
static bool known(int n, const char *file) {
  char *text = read_text(file);
  bool same = false;
  drop_comments(text);
  for (int i = 0; i < n && !same; i++) {
    char *other = read_text(work_path("k%d.cu", i));
    drop_comments(other);
    same = !strcmp(text, other);
    free(other);
  }
  free(text);
  return same;
}

/* Emits the program of a text, if it makes a new one, and adds it to the file in a namespace of its own. */
static bool add(FILE *all, int i, const char *file, const char *from) {
  char *output, emit[300];
  snprintf(emit, sizeof emit, "--emit=cuda=%s", work_path("k%d.cu", i));
  int rc = from ? RUN(work_folder(), &output, DTC_BINARY, file, from, emit) : RUN(work_folder(), &output, DTC_BINARY, file, emit);
  if (rc || known(i, work_path("k%d.cu", i))) return false;
  fprintf(all, "namespace k%d {\n#include \"k%d.cu\"\n}\n", i, i);
  return true;
}

/* The input of a golden test, with its --from. */
static bool add_golden(FILE *all, int i, const char *path) {
  char *text = read_text(path), *eol = strchr(text, '\n'), *end = strstr(text, "\n----\n"), from[64] = "";
  if (!end || end < eol) return false;
  *end = *eol = 0;
  const char *at = strstr(text, "--from=");
  if (at) snprintf(from, sizeof from, "%.*s", (int)strcspn(at, " "), at);
  const char *input = work_path("golden-input");
  if (!write_text(input, eol + 1)) return false;
  return add(all, i, input, *from ? from : NULL);
}

/* Machine code of both GPUs from one PTX, which saves a third of the work; programs (above) are compiled as dtc does it. */
static void compile_all(const char *what) {
  char *output;
  int rc = RUN(work_folder(), &output, DTC_NVCC, "-std=c++20", "-O3", "-Xcompiler=-O0", "--threads=0",
               "-gencode=arch=compute_80,code=[sm_80,sm_90,compute_80]", "-I" DTC_RUNTIME_SOURCE, "-c", work_path("all.cu"), "-o",
               work_path("all.o"));
  if (rc)
    unit_fail(what, 1, "nvcc exits %d:\n%.4000s", rc, output);
  else
    judge(what, output);
}

/* All files that match, together. */
static void check_all(const char *what, const char *const *patterns, bool (*add_one)(FILE *all, int i, const char *path),
                      int least) {
  strict();
  int n = 0;
  FILE *all = fopen(work_path("all.cu"), "w");
  fprintf(all, "#include \"runtime/dtcu.h\"\n#include \"runtime/dtcu_attention.h\"\n");
  for (; *patterns; patterns++) {
    glob_t g;
    if (glob(tests_path("%s", *patterns), 0, NULL, &g)) continue;
    for (size_t i = 0; i < g.gl_pathc; i++) n += add_one(all, n, g.gl_pathv[i]);
    globfree(&g);
  }
  fclose(all);
  if (n < least) unit_fail(what, 1, "only %d make a program", n);
  compile_all(what);
}

UNIT(kernels_of_golden_tests) { check_all("golden tests", (const char *const[]){"golden/*/*.test", NULL}, add_golden, 50); }

static bool add_model(FILE *all, int i, const char *path) { return add(all, i, path, NULL); }

UNIT(DISABLED_kernels_of_test_models) {
  check_all("models", (const char *const[]){"run/*.dt", "peers/numeric/*/model.dt", NULL}, add_model, 15);
}

UNIT(a_missing_nvcc_is_one_line) {
  char *output;
  int rc = RUN(work_folder(), &output, DTC_BINARY, tests_path("run/single.dt"), "--target=cuda", "--nvcc=/no/such/nvcc", "-o",
               work_path("never"));
  CHECK_EQ(rc, 2);
  const char *line = strstr(output, "dtc: cannot run the CUDA compiler /no/such/nvcc: No such file or directory\n");
  if (!line || strchr(line, '\n')[1]) unit_fail(__FILE__, __LINE__, "it says: %.2000s", output);
}
