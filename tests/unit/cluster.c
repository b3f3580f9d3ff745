// cluster.c: which link an axis has, and that no nonsense in a cluster file goes unnamed.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "partitioner/partitioner.h"
#include "unit.h"

static Mesh mesh_of(int n, const int64_t *sizes) {
  Mesh m = {.name = "m", .naxes = n};
  for (int i = 0; i < n; i++) m.axis[i] = (Axis){"abcd" + i, sizes[i]};
  return m;
}

static void file_with(const char *text, char path[32]) {
  strcpy(path, "/tmp/dtc-cluster-XXXXXX");
  int fd = mkstemp(path);
  CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
  close(fd);
}

UNIT(axes_are_laid_over_a_cluster_innermost_nearest) {
  Arena *a = arena_new();
  Diags *d = diags_new(a);
  Mesh m = mesh_of(3, (int64_t[]){4, 4, 4}); // 8 in a node: c inside, b over two nodes, two to a node; a outside
  const Cluster *c = cluster_find(a, d, &m, "h100");
  CHECK(c->bandwidth[2] == 417e9 && c->bandwidth[1] == 100e9 && c->bandwidth[0] == 50e9);
  CHECK(c->latency[2] == 22e-6 && c->latency[1] == 118e-6 && c->latency[0] == 118e-6);
  Mesh odd = mesh_of(2, (int64_t[]){2, 3}); // some groups of three lie in two nodes
  CHECK(cluster_find(a, d, &odd, "h100")->bandwidth[1] == 50e9);
  Mesh wide = mesh_of(1, (int64_t[]){64}); // eight of a node go to other nodes side by side
  CHECK(cluster_find(a, d, &wide, "h100")->bandwidth[0] == 400e9);
  CHECK(cluster_find(a, d, &m, "bytes")->latency[0] == 0 && cluster_find(a, d, &m, "bytes")->bandwidth[2] == 1);
  CHECK(!strcmp(cluster_default(a, &m)->name, "host") && d->nerrors == 0);
  arena_free(a);
}

UNIT(a_cluster_may_come_from_a_file) {
  Arena *a = arena_new();
  Diags *d = diags_new(a);
  Mesh m = mesh_of(2, (int64_t[]){2, 2});
  char path[32];
  file_with("{\"levels\": [{\"devices\": 2, \"latency\": 1e-6, \"bandwidth\": 4e10}, {\"latency\": 0, \"bandwidth\": 1e9}],"
            " \"multiply_adds\": 1e12, \"memory\": 2e11}",
            path);
  const Cluster *c = cluster_find(a, d, &m, path);
  unlink(path);
  CHECK(c && d->nerrors == 0);
  if (c) CHECK(c->bandwidth[1] == 4e10 && c->bandwidth[0] == 1e9 && c->latency[1] == 1e-6 && c->memory == 2e11);
  arena_free(a);
}

static void refuses(const char *text, const char *because) {
  Arena *a = arena_new();
  Diags *d = diags_new(a);
  Mesh m = mesh_of(1, (int64_t[]){2});
  char path[32];
  file_with(text, path);
  const Cluster *c = cluster_find(a, d, &m, path);
  unlink(path);
  CHECK(!c);
  CHECK_EQ(d->nerrors, 1);
  if (d->nerrors && (!strstr(d->list.at[0]->message, because) || !strstr(d->list.at[0]->message, path)))
    unit_fail(__FILE__, __LINE__, "%s\n%s, expected: %s", text, d->list.at[0]->message, because);
  arena_free(a);
}

#define REST ", \"multiply_adds\": 1e12, \"memory\": 1e11}"

UNIT(nonsense_in_a_cluster_file_is_one_error) {
  refuses("", "line 1");
  refuses("{", "line 1");
  refuses("[]", "expected an object");
  refuses("{}", "needs `levels`");
  refuses("{\"levels\": 3" REST, "list of 1 to 8");
  refuses("{\"levels\": []" REST, "list of 1 to 8");
  refuses("{\"levels\": [1]" REST, "level 1 has to be an object");
  refuses("{\"levels\": [{\"latency\": 0}]" REST, "level 1 needs `bandwidth`");
  refuses("{\"levels\": [{\"latency\": 0, \"bandwidth\": 0}]" REST, "`bandwidth` is 0");
  refuses("{\"levels\": [{\"latency\": -1, \"bandwidth\": 1e9}]" REST, "`latency` is -1");
  refuses("{\"levels\": [{\"latency\": 0, \"bandwidth\": \"fast\"}]" REST, "`bandwidth` has to be a number");
  refuses("{\"levels\": [{\"latency\": NaN, \"bandwidth\": 1e9}]" REST, "line 1");
  refuses("{\"levels\": [{\"latency\": 0, \"bandwidth\": 1e999}]" REST, "line 1");
  refuses("{\"levels\": [{\"latency\": 0, \"bandwidth\": 1e9, \"devices\": 8}]" REST, "the last");
  refuses("{\"levels\": [{\"latency\": 0, \"bandwidth\": 1e9}, {\"latency\": 0, \"bandwidth\": 1e9}]" REST,
          "level 1 needs `devices`");
  refuses("{\"levels\": [{\"latency\": 0, \"bandwidth\": 1e9, \"devices\": 2.5}, {\"latency\": 0, \"bandwidth\": 1e9}]" REST,
          "whole number");
  refuses("{\"levels\": [{\"latency\": 0, \"bandwidth\": 1e9, \"devices\": 0}, {\"latency\": 0, \"bandwidth\": 1e9}]" REST,
          "`devices` is 0");
  refuses(
      "{\"levels\": [{\"latency\": 0, \"bandwidth\": 1e9, \"devices\": 4}, {\"latency\": 0, \"bandwidth\": 1e9, \"devices\": 6},"
      " {\"latency\": 0, \"bandwidth\": 1e9}]" REST,
      "no multiple of the 4");
  refuses("{\"levels\": [{\"latency\": 0, \"bandwidth\": 1e9, \"lag\": 1}]" REST, "no `lag`");
  refuses("{\"levels\": [{\"latency\": 0, \"latency\": 0, \"bandwidth\": 1e9}]" REST, "line 1");
  refuses("{\"levels\": [{\"latency\": 0, \"bandwidth\": 1e9}], \"memory\": 1e11}", "needs `multiply_adds`");
  refuses("{\"levels\": [{\"latency\": 0, \"bandwidth\": 1e9}], \"speed\": 1" REST, "no `speed`");
  refuses("{\"levels\": [{\"latency\": 0, \"bandwidth\": 1e9}], \"multiply_adds\": 0, \"memory\": 1e11}", "`multiply_adds` is 0");
  char deep[10001] = "";
  memset(deep, '[', sizeof deep - 1);
  refuses(deep, "line 1");
}
