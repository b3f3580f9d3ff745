/* join.c: are we one of several processes that a launcher started? Then its environment says which.

     torchrun --nproc-per-node 4 ./train      RANK=2 WORLD_SIZE=4 LOCAL_RANK=2 MASTER_ADDR=node7 MASTER_PORT=29500

   A launcher that started one process leaves the rest to us: it starts all ranks itself, on this host. What cannot be true
   (no number, a rank that there is not) ends the process with a line that names the variable. */
#define _GNU_SOURCE
#include "link.h"

#include <errno.h>
#include <net/if.h>

typedef struct {
  const char *name, *also; /* `also` must be set, too */
  const char *rank, *size, *local_rank, *local_size, *host;
} Launcher;

/* The innermost first, which is the one that started us: srun starts torchrun's agents, Open MPI's daemons and Hydra's proxies,
   whose processes see Slurm's variables as well. With srun's own PMI only Slurm's say which rank of its host a process is.
   A step of Slurm counts, the shell of a batch job, which has no STEP_NUM_TASKS, does not. */
static const Launcher launchers[] = {
    {"torchrun", NULL, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", NULL},
    {"mpirun", NULL, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
     NULL},
    {"mpiexec", "MPI_LOCALRANKID", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL},
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE",
     "SLURM_NODEID"},
    {"the launcher", NULL, "PMI_RANK", "PMI_SIZE", NULL, NULL, NULL},
};
enum { MOST = 1 << 24 };

static const char *set(const char *name) {
  const char *v = name ? getenv(name) : NULL;
  return v && *v ? v : NULL;
}

/* Digits at *at, which moves behind them; -1 where there are none, or too many. */
static int digits(const char **at) {
  int v = **at >= '0' && **at <= '9' ? 0 : -1;
  for (; **at >= '0' && **at <= '9'; ++*at) v = v < 0 || v > MOST ? -1 : 10 * v + (**at - '0');
  return v;
}

static int number(Rt *rt, const char *name, int low, int high) {
  const char *at = set(name);
  int v = at ? digits(&at) : -1;
  if (!at || *at || v < low || v > high)
    rt_fail(rt, EXIT_USAGE, "%s=%.64s: not a number from %d to %d", name, at ? getenv(name) : "", low, high);
  return v;
}

/* How many ranks are on a host: a number, or Slurm's list for all hosts: "4(x2),3" is 4, 4, 3. */
static int on_host(Rt *rt, const char *name, int host, int high) {
  for (const char *at = set(name);; at++) {
    int n = digits(&at), times = 1;
    if (at[0] == '(' && at[1] == 'x') {
      at += 2, times = digits(&at);
      if (*at == ')') at++;
    }
    if (n < 1 || n > high || times < 1 || (*at && *at != ',') || (!*at && host >= times))
      rt_fail(rt, EXIT_USAGE, "%s=%.64s: no number from 1 to %d for host %d", name, getenv(name), high, host);
    if (host < times) return n;
    host -= times;
  }
}

static const Launcher *launcher(Rt *rt) {
  for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
    const Launcher *l = &launchers[i];
    if (!set(l->rank) || (l->also && !set(l->also))) continue;
    if (!set(l->size)) rt_fail(rt, EXIT_USAGE, "%s=%.64s, but %s is not set", l->rank, getenv(l->rank), l->size);
    return number(rt, l->size, 1, MOST) > 1 ? l : NULL;
  }
  return NULL;
}

/* Where the supervisors meet. */
static void place(Rt *rt, const Launcher *l) {
  rt->meet_at = set("MASTER_ADDR");
  rt->port = set("MASTER_PORT") ? number(rt, "MASTER_PORT", 1, RT_LAST_PORT) : 29500;
  if (!rt->meet_at && rt->host_ranks != rt->p->nranks)
    rt_fail(rt, EXIT_USAGE, "%s started ranks on several hosts: set MASTER_ADDR to the address of rank 0's, and MASTER_PORT",
            l->name);
  if (!rt->meet_at) rt->meet_at = "127.0.0.1";
}

void rt_join(Rt *rt) {
  const Launcher *l = rt_spans_hosts ? launcher(rt) : NULL;
  const char *interface = rt_spans_hosts ? set("DTRT_INTERFACE") : NULL;
  int nranks = rt->p->nranks;
  rt->nlocal = rt->host_ranks = nranks;
  rt->bell = -1;
  if (interface && !if_nametoindex(interface))
    rt_fail(rt, EXIT_USAGE, "DTRT_INTERFACE=%.64s: there is no such network interface here", interface);
  if (!l) return;
  int size = number(rt, l->size, 1, MOST);
  if (size != nranks)
    rt_fail(rt, EXIT_USAGE, "%s started %d processes, but the program is compiled for a mesh of %d device%s", l->name, size,
            nranks, nranks == 1 ? "" : "s");
  rt->launcher = l->name;
  rt->first = rt->host_rank = number(rt, l->rank, 0, size - 1);
  rt->nlocal = 1;
  if (set(l->local_rank)) {
    if (set(l->local_size))
      rt->host_ranks = on_host(rt, l->local_size, set(l->host) ? number(rt, l->host, 0, size - 1) : 0, size);
    rt->host_rank = number(rt, l->local_rank, 0, rt->host_ranks - 1);
  }
  place(rt, l);
}
