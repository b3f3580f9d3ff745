/* table.c: what dtc's plans move beside what XLA's partitioners and plans by hand move. Every case is a program:
   xla/NAME.dt (or IR text, xla/NAME.ir) for each row of xla/cases.csv that has a reference, more/NAME.dt with a line

     # expert: 12345 bytes      received per device and step, by a plan that the comment derives
     # share: 1/3               of the whole program's products, where the split dims do not allow 1/devices
     # model: ../NAME.dt        the program, where it is another file

   A case holds when dtc receives no more than its reference (a model: 16 KiB more, since references leave norm gains and
   scalars out) and its products are not repeated: at most 1.02 times that share. The cases that misses.txt names do not
   hold yet; one that it names and that holds is a failure too, so that the list only gets shorter.

     dtc_peers                  the table, exit code 1 if a case fails
     dtc_peers mlp_fsdp ...     some rows                                                                            */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <jansson.h>
#include <libgen.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ir/base.h"

extern char **environ;

enum { MODEL_SLACK = 16384, CSV_COLUMNS = 32, MAX_CASES = 512 };
static const double WORK_SLACK = 1.02;

typedef struct {
  const char *name, *path;
  bool model;
  double reference, share;               /* bytes; of the whole program's multiply-adds */
  double shardy, shardy_credited, gspmd; /* bytes, or -1 */
  double bytes, work, whole, live;       /* what dtc's plan comes to; bytes -1: dtc failed */
} Case;

typedef struct {
  Arena *a; /* of names and paths */
  int n;
  Case at[MAX_CASES];
} Cases;

static void stop(const char *what, const char *which) {
  fprintf(stderr, "dtc_peers: %s %s\n", what, which);
  exit(2);
}

static char *text_of(const char *path) {
  FILE *f = fopen(path, "rb");
  if (!f) return NULL;
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  for (int c; (c = fgetc(f)) != EOF;) fputc(c, out);
  fclose(f), fclose(out);
  return text;
}

static const char *path_of(Arena *a, const char *folder, const char *name, const char *suffix) {
  return arena_printf(a, DTC_TESTS "/peers/%s/%s%s", folder, name, suffix);
}

/* ---- the cases -------------------------------------------------------------------------------------------------- */

/* `# KEY: 12` or `# KEY: 1/3` in a comment; `otherwise` where there is none. */
static double noted(const char *text, const char *key, double otherwise) {
  char line[64];
  snprintf(line, sizeof line, "# %s: ", key);
  const char *at = strstr(text, line);
  if (!at) return otherwise;
  char *end;
  double x = strtod(at + strlen(line), &end);
  return *end == '/' ? x / strtod(end + 1, NULL) : x;
}

/* "(data = 2, model = 2)..." of the line that declares the mesh. */
static const char *mesh_of(const char *text) {
  const char *at = strstr(text, "\nmesh ");
  if (!at && strncmp(text, "mesh ", 5)) stop("no mesh in", text);
  return strchr(at ? at : text, '(');
}

static double devices(const char *text) {
  double n = 1;
  for (const char *at = mesh_of(text); *at && *at != ')'; at++)
    if (*at == '=') n *= atof(at + 1);
  return n;
}

/* The file that `# model: ` names, seen from the case's own; else the case itself. */
static const char *model_of(Arena *a, const char *text, const char *path) {
  const char *at = strstr(text, "# model: ");
  if (!at) return path;
  at += strlen("# model: ");
  return arena_printf(a, "%s/%.*s", dirname(arena_strdup(a, path)), (int)strcspn(at, "\n"), at);
}

static void add_case(Cases *cs, const char *name, const char *path, double reference) {
  char *notes = text_of(path);
  if (!notes || cs->n == MAX_CASES) stop("cannot read", path);
  path = model_of(cs->a, notes, path);
  char *text = text_of(path);
  if (!text) stop("cannot read", path);
  Case *c = &cs->at[cs->n++];
  *c = (Case){.name = name, .path = path, .shardy = -1, .shardy_credited = -1, .gspmd = -1};
  c->model = strstr(text, "\ntrain ") || strstr(text, "tap loss ");
  c->reference = noted(notes, "expert", reference);
  c->share = noted(notes, "share", 1 / devices(text));
  if (c->reference < 0) stop("no reference in", path);
  free(text), free(notes);
}

/* Cuts a line of comma-separated fields, some of them in quotes, in place. */
static int fields(char *line, char *field[CSV_COLUMNS]) {
  int n = 0;
  for (char *p = line; n < CSV_COLUMNS; p++) {
    bool quoted = *p == '"';
    field[n++] = p += quoted;
    p += strcspn(p, quoted ? "\"" : ",\n");
    if (quoted) *p++ = 0;
    if (*p != ',') return *p = 0, n;
    *p = 0;
  }
  return n;
}

static int column(char *const head[CSV_COLUMNS], int n, const char *name) {
  for (int i = 0; i < n; i++)
    if (!strcmp(head[i], name)) return i;
  stop("cases.csv has no column", name);
  return 0;
}

static void read_xla(Cases *cs) {
  FILE *f = fopen(DTC_TESTS "/peers/xla/cases.csv", "r");
  char line[4096], first[4096], *head[CSV_COLUMNS], *field[CSV_COLUMNS];
  if (!f || !fgets(first, sizeof first, f)) stop("cannot read", "cases.csv");
  int n = fields(first, head), name = column(head, n, "case"), reference = column(head, n, "ref_bytes");
  int bytes = column(head, n, "shardy_bytes"), credited = column(head, n, "shardy_credited"),
      gspmd = column(head, n, "gspmd_bytes");
  while (fgets(line, sizeof line, f)) {
    if (fields(line, field) != n) stop("cases.csv: a row is cut short:", line);
    /* Recomputation of whole layers by a switch is another program. */
    if (!*field[reference] || !strcmp(field[name], "gpt_fsdp4_remat")) continue;
    const char *dt = path_of(cs->a, "xla", field[name], ".dt"), *ir = path_of(cs->a, "xla", field[name], ".ir");
    add_case(cs, arena_strdup(cs->a, field[name]), access(dt, R_OK) ? ir : dt, atof(field[reference]));
    Case *c = &cs->at[cs->n - 1];
    c->shardy = atof(field[bytes]), c->shardy_credited = atof(field[credited]), c->gspmd = atof(field[gspmd]);
  }
  fclose(f);
}

static void read_more(Cases *cs) {
  glob_t g;
  if (glob(DTC_TESTS "/peers/more/*.dt", 0, NULL, &g)) return;
  for (size_t i = 0; i < g.gl_pathc; i++) {
    char *path = arena_strdup(cs->a, g.gl_pathv[i]), *name = basename(arena_strdup(cs->a, path));
    *strrchr(name, '.') = 0;
    add_case(cs, name, path, -1);
  }
  globfree(&g);
}

/* ---- what dtc does ------------------------------------------------------------------------------------------------ */

/* Runs dtc; what it says (warnings of plans that move much) goes to the file `said`. */
static bool run(char *const *argv, const char *said) {
  pid_t pid;
  int status;
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, said, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (posix_spawn(&pid, argv[0], &files, NULL, argv, environ)) stop("cannot run", argv[0]);
  posix_spawn_file_actions_destroy(&files);
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return false;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static double number(const char *path, const char *key) {
  json_t *all = json_load_file(path, 0, NULL);
  double x = all ? json_number_value(json_object_get(all, key)) : -1;
  json_decref(all);
  return x;
}

/* "data=1,model=1" for `mesh pod(data = 2, model = 2)` */
static void one_device(const char *text, char *mesh, size_t size) {
  size_t n = 0;
  for (const char *at = mesh_of(text) + 1; *at != ')'; at += strcspn(at, ",)")) {
    at += strspn(at, " ,");
    n += (size_t)snprintf(mesh + n, size - n, "%s%.*s=1", n ? "," : "", (int)strcspn(at, " ="), at);
  }
}

/* Plans a case; on = 1 device when `mesh` is given, which tells the whole program's work. */
static bool plan(const Case *c, const char *folder, const char *mesh, char *schedule, char *memory) {
  char emit[256], said[64];
  sprintf(schedule, "%s/schedule", folder), sprintf(memory, "%s/memory", folder), sprintf(said, "%s/said", folder);
  snprintf(emit, sizeof emit, "--emit=schedule-json=%s,memory-json=%s", schedule, memory);
  char *argv[12] = {DTC_BINARY, (char *)c->path, "--keep-gathered", "--cluster=bytes", "-Wno-all", emit};
  int n = 6;
  if (!strcmp(strrchr(c->path, '.'), ".ir")) argv[n++] = "--from=annotated";
  if (mesh) argv[n++] = "--mesh", argv[n++] = (char *)mesh;
  bool ok = run(argv, said);
  char *text = ok ? NULL : text_of(said);
  if (text) fputs(text, stderr);
  free(text);
  remove(said);
  return ok;
}

static void measure(Case *c, const char *folder) {
  char schedule[64], memory[64], mesh[256];
  c->bytes = -1;
  if (!plan(c, folder, NULL, schedule, memory)) return;
  c->bytes = number(schedule, "bytes_per_step"), c->work = number(schedule, "multiply_adds");
  c->live = number(memory, "arena_bytes");
  char *text = text_of(c->path);
  c->whole = noted(text, "work", -1);
  if (c->whole < 0) {
    one_device(text, mesh, sizeof mesh);
    if (plan(c, folder, mesh, schedule, memory)) c->whole = number(schedule, "multiply_adds");
  }
  free(text);
  remove(schedule), remove(memory);
}

static bool holds(const Case *c) {
  return c->bytes >= 0 && c->bytes <= c->reference + (c->model ? MODEL_SLACK : 0) && c->work <= WORK_SLACK * c->share * c->whole;
}

/* ---- the table ---------------------------------------------------------------------------------------------------- */

static const char *cell(char text[24], double x) {
  if (x < 0) return "";
  snprintf(text, 24, "%.0f", x);
  return text;
}

static const char *ratio(char text[24], double x, double y) {
  if (x < 0 || (y == 0 && x == 0)) return x < 0 ? "" : "1.00";
  snprintf(text, 24, "%.2f", x / y);
  return text;
}

static void print_head(void) {
  printf("%-28s %10s %10s %6s %10s %10s %10s %6s %10s\n", "", "dtc", "reference", "ratio", "Shardy", "credited", "GSPMD", "work",
         "peak live");
}

static void print_row(const Case *c, const char *verdict) {
  char t[8][24];
  printf("%-28s %10s %10s %6s %10s %10s %10s %6s %10s%s\n", c->name, cell(t[0], c->bytes), cell(t[1], c->reference),
         ratio(t[2], c->bytes, c->reference), cell(t[3], c->shardy), cell(t[4], c->shardy_credited), cell(t[5], c->gspmd),
         ratio(t[6], c->work, c->share * c->whole), cell(t[7], c->live), verdict);
  fflush(stdout);
}

/* Is there a line that begins with the name? */
static bool listed(const char *misses, const char *name) {
  size_t n = strlen(name);
  for (const char *p = misses; *p; p += strcspn(p, "\n"), p += *p == '\n')
    if (!strncmp(p, name, n) && strchr(" \n", p[n])) return true;
  return false;
}

static bool wanted(const Case *c, int argc, char **argv) {
  for (int i = 1; i < argc; i++)
    if (!strcmp(c->name, argv[i])) return true;
  return argc == 1;
}

int main(int argc, char **argv) {
  static Cases cs;
  char folder[] = "/tmp/dtc-peers-XXXXXX", *misses = text_of(DTC_TESTS "/peers/misses.txt");
  if (!misses || !mkdtemp(folder)) stop("cannot begin:", "misses.txt or a folder in /tmp");
  cs.a = arena_new();
  read_xla(&cs), read_more(&cs);
  printf("Bytes received per step by the device that receives most. work: multiply-adds of products on the busiest device,\n"
         "over the whole program's times the share that the split dims allow. peak live: bytes of a device's arena.\n\n");
  print_head();
  int rows = 0, held = 0, failed = 0;
  for (int i = 0; i < cs.n; i++) {
    Case *c = &cs.at[i];
    if (!wanted(c, argc, argv)) continue;
    measure(c, folder);
    bool ok = holds(c), miss = listed(misses, c->name);
    print_row(c, ok && miss ? "  HOLDS: take it off misses.txt" : ok ? "" : miss ? "  misses" : "  FAILS");
    rows++, held += ok, failed += ok == miss;
  }
  rmdir(folder);
  arena_free(cs.a), free(misses);
  printf("\n%d of %d cases hold; %d fail\n", held, rows, failed);
  return rows == 0 || failed;
}
