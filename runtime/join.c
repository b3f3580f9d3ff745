/* join.c: are we one of several processes that a launcher started? Then its environment says which.

     torchrun --nproc-per-node 4 ./train      RANK=2 WORLD_SIZE=4 LOCAL_RANK=2 MASTER_ADDR=node7 MASTER_PORT=29500

   A launcher that started one process leaves the rest to us: it starts all ranks itself, on this host. A step of Slurm counts,
   the shell of a batch job does not. */
#include "link.h"

#include <errno.h>

typedef struct {
  const char *name, *rank, *size, *local_rank, *local_size;
} Launcher;

static const Launcher launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
};

static const char *set(const char *name) {
  const char *v = getenv(name);
  return v && *v ? v : NULL;
}

/* `otherwise` where the variable is not set. Slurm's "4(x2)" is 4. */
static int number(Rt *rt, const char *name, int otherwise) {
  const char *text = set(name);
  char *end;
  if (!text) return otherwise;
  errno = 0;
  long v = strtol(text, &end, 10);
  if (errno || end == text || (*end && *end != '(' && *end != ',') || v < 0 || v > 1 << 24)
    rt_fail(rt, EXIT_USAGE, "%s=%.64s is no number of a rank", name, text);
  return (int)v;
}

static const Launcher *launcher(Rt *rt) {
  for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
    if (set(launchers[i].rank) && set(launchers[i].size) && number(rt, launchers[i].size, 0) != 1) return &launchers[i];
  return NULL;
}

void rt_join(Rt *rt) {
  const Launcher *l = rt_spans_hosts ? launcher(rt) : NULL;
  int nranks = rt->p->nranks;
  rt->nlocal = rt->host_ranks = nranks;
  rt->bell = -1;
  if (!l) return;
  int size = number(rt, l->size, 0), rank = number(rt, l->rank, 0);
  if (size != nranks)
    rt_fail(rt, EXIT_USAGE, "%s started %d processes, but the program is compiled for a mesh of %d device%s", l->name, size,
            nranks, nranks == 1 ? "" : "s");
  if (rank >= size) rt_fail(rt, EXIT_USAGE, "%s=%d, but there are %d ranks", l->rank, rank, size);
  rt->launcher = l->name;
  rt->first = rank, rt->nlocal = 1;
  rt->host_rank = number(rt, l->local_rank, rank);
  rt->host_ranks = number(rt, l->local_size, size);
  rt->meet_at = set("MASTER_ADDR");
  rt->port = set("MASTER_PORT") ? set("MASTER_PORT") : "29500";
  if (!rt->meet_at && rt->host_ranks != size)
    rt_fail(rt, EXIT_USAGE, "%s started ranks on several hosts: set MASTER_ADDR to the address of rank 0's, and MASTER_PORT",
            l->name);
  if (!rt->meet_at) rt->meet_at = "127.0.0.1";
  number(rt, "MASTER_PORT", 0);
}
