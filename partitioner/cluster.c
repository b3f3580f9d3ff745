/* cluster.c: what links and devices can do: --cluster NAME|FILE.json -> a latency and a bandwidth for every mesh axis. A
   cluster is a list of levels, nearest first: so many devices of a node, then nodes. Axes are laid over it innermost =
   nearest. h100 (8 devices in a node) under the mesh (data = 4, tensor = 4):

     tensor  4 neighbours inside a node: NVLink
     data    steps of 4 devices over 16: two devices in each of two nodes, so it crosses to the network

   A step over an axis takes the slowest level that it crosses. Where several of its devices share a node, each of them
   carries its share of what goes from node to node: that level's bandwidth counts so many times. partitioner/README.md
   says where the built-in figures come from. */
#include <jansson.h>
#include <math.h>

#include "part.h"

enum { MAX_LEVELS = 8, MAX_FILE = 1 << 20 };

typedef struct {
  int64_t devices; /* within a unit of this level; of the last level all there are */
  double latency, bandwidth;
} Level;

typedef struct {
  const char *name;
  int n;
  Level level[MAX_LEVELS];
  double multiply_adds, memory;
  bool even;
} Levels;

/* bytes: a multiply-add weighs as much as a byte, so no byte is bought with repeated products (but those of heads.c); nor are
   bytes spent to deal uneven ones out better; other work only breaks ties. */
static const Levels BUILT_IN[] = {
    {"host", 1, {{0, 5e-6, 12e9}}, 50e9, 25e9},
    {"bytes", 1, {{0, 0, 1}}, 1, 1e30, true},
    {"h100", 2, {{8, 22e-6, 417e9}, {0, 118e-6, 50e9}}, 397e12, 3.35e12},
    {"a100", 2, {{8, 60e-6, 209e9}, {0, 118e-6, 25e9}}, 135e12, 2.04e12},
};
enum { NBUILT_IN = sizeof BUILT_IN / sizeof *BUILT_IN };

/* ---- axes over levels ------------------------------------------------------------------------------------------------ */

static void lay_axis(Cluster *c, const Levels *l, int axis, int64_t stride, int64_t size) {
  c->latency[axis] = 0, c->bandwidth[axis] = INFINITY;
  int64_t below = 1; /* devices within a unit of the level below */
  for (int i = 0; i < l->n; i++) {
    bool last = i == l->n - 1, crosses = last || stride < l->level[i].devices;
    double sharing = below > stride && stride * size % below == 0 && below % stride == 0 ? (double)(below / stride) : 1;
    if (crosses) {
      c->latency[axis] = fmax(c->latency[axis], l->level[i].latency);
      c->bandwidth[axis] = fmin(c->bandwidth[axis], l->level[i].bandwidth * sharing);
    }
    if (!last && l->level[i].devices % (stride * size) == 0) return; /* it fits into a unit of this level */
    below = l->level[i].devices;
  }
}

static const Cluster *lay(Arena *a, const Mesh *m, const Levels *l) {
  Cluster *c = NEW(a, Cluster);
  *c = (Cluster){.name = l->name, .multiply_adds = l->multiply_adds, .memory = l->memory, .even = l->even};
  int64_t stride = 1;
  for (int axis = m->naxes - 1; axis >= 0; axis--) {
    lay_axis(c, l, axis, stride, m->axis[axis].size);
    stride *= m->axis[axis].size;
  }
  return c;
}

const Cluster *cluster_default(Arena *a, const Mesh *m) { return lay(a, m, &BUILT_IN[0]); }

/* ---- files ------------------------------------------------------------------------------------------------------------- */

typedef struct {
  Arena *a;
  Diags *d;
  const char *path;
  bool ok;
} Reader;

__attribute__((format(printf, 2, 3))) static void fault(Reader *r, const char *fmt, ...) {
  if (!r->ok) return; /* one error is enough */
  va_list ap;
  va_start(ap, fmt);
  Str s = {0};
  str_vprintf(r->a, &s, fmt, ap);
  va_end(ap);
  r->ok = false;
  diag_error(r->d, "E0607", (Loc){0}, "cluster %s: %s", r->path, s.at);
}

static void known_keys(Reader *r, const char *what, json_t *object, int n, const char *const *names) {
  const char *key;
  json_t *value;
  json_object_foreach(object, key, value) {
    bool known = false;
    for (int i = 0; i < n; i++) known |= !strcmp(key, names[i]);
    if (!known) fault(r, "%s has no `%.40s`", what, key);
  }
}

static double number(Reader *r, const char *what, json_t *object, const char *key, double least, double most) {
  json_t *v = json_object_get(object, key);
  if (!v)
    fault(r, "%s needs `%s`", what, key);
  else if (!json_is_number(v))
    fault(r, "%s: `%s` has to be a number", what, key);
  double x = v && json_is_number(v) ? json_number_value(v) : least;
  if (!(x >= least && x <= most)) fault(r, "%s: `%s` is %g, not from %g to %g", what, key, x, least, most);
  return x;
}

/* Units of a level hold whole units of the level below. */
static int64_t devices(Reader *r, const char *what, json_t *object, int64_t below) {
  json_t *v = json_object_get(object, "devices");
  if (!v)
    fault(r, "%s needs `devices`: only the last level has all there are", what);
  else if (!json_is_integer(v))
    fault(r, "%s: `devices` has to be a whole number", what);
  int64_t n = v && json_is_integer(v) ? json_integer_value(v) : below;
  if (n < 1 || n > 1 << 30)
    fault(r, "%s: `devices` is %lld, not from 1 to 2^30", what, (long long)n);
  else if (n % below != 0 || (n == below && below > 1))
    fault(r, "%s: `devices` is %lld, no multiple of the %lld of the level before", what, (long long)n, (long long)below);
  return n;
}

static Level read_level(Reader *r, json_t *v, int i, int n, int64_t below) {
  static const char *const keys[] = {"devices", "latency", "bandwidth"};
  const char *what = arena_printf(r->a, "level %d", i + 1);
  Level l = {0};
  if (!json_is_object(v)) {
    fault(r, "%s has to be an object", what);
    return l;
  }
  known_keys(r, what, v, 3, keys);
  if (i < n - 1)
    l.devices = devices(r, what, v, below);
  else if (json_object_get(v, "devices"))
    fault(r, "%s is the last and has all devices there are: no `devices`", what);
  l.latency = number(r, what, v, "latency", 0, 1e3);
  l.bandwidth = number(r, what, v, "bandwidth", 1, 1e18);
  return l;
}

static void read_cluster(Reader *r, json_t *root, Levels *l) {
  static const char *const keys[] = {"levels", "multiply_adds", "memory"};
  if (!json_is_object(root)) {
    fault(r, "expected an object");
    return;
  }
  known_keys(r, "a cluster", root, 3, keys);
  json_t *levels = json_object_get(root, "levels");
  size_t n = json_array_size(levels);
  if (!levels)
    fault(r, "a cluster needs `levels`");
  else if (!json_is_array(levels) || n < 1 || n > MAX_LEVELS)
    fault(r, "`levels` has to be a list of 1 to %d levels", MAX_LEVELS);
  if (!r->ok) return;
  for (l->n = 0; l->n < (int)n && r->ok; l->n++)
    l->level[l->n] = read_level(r, json_array_get(levels, (size_t)l->n), l->n, (int)n, l->n ? l->level[l->n - 1].devices : 1);
  l->multiply_adds = number(r, "a cluster", root, "multiply_adds", 1, 1e30);
  l->memory = number(r, "a cluster", root, "memory", 1, 1e30);
}

static const Cluster *from_file(Reader *r, const Mesh *m) {
  size_t len = 0;
  const char *why = NULL, *text = read_whole_file(r->a, r->path, &len, &why);
  if (!text)
    fault(r, "cannot be read (%s), and the names are host, bytes, h100, a100", why);
  else if (len > MAX_FILE)
    fault(r, "has more than 1 MiB");
  if (!r->ok) return NULL;
  json_error_t e;
  json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &e);
  Levels l = {.name = r->path};
  if (!root)
    fault(r, "line %d: %s", e.line, e.text);
  else
    read_cluster(r, root, &l);
  json_decref(root);
  return r->ok ? lay(r->a, m, &l) : NULL;
}

const Cluster *cluster_find(Arena *a, Diags *d, const Mesh *m, const char *name) {
  for (int i = 0; i < NBUILT_IN; i++)
    if (!strcmp(name, BUILT_IN[i].name)) return lay(a, m, &BUILT_IN[i]);
  Reader r = {a, d, name, true};
  return from_file(&r, m);
}
