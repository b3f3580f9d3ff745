/* device.h: what the files of cuda/ share: a rank's GPU, its memory and streams, and checked calls. device.cu opens it,
   steps.cu runs phases and waits for them, exchange.cu plans collectives, comm.cu carries them out, move.cu has the kernels,
   gemm.cu the products. */
#ifndef DTRT_DEVICE_H
#define DTRT_DEVICE_H

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <nccl.h>

#include "rt.h"
#include "runtime/dtcu.h"

/* Every status is looked at: what was called, in which step, at which line of the .dt file, on which rank. */
#define CUDA(rt, call) device_checked(rt, call, #call)
#define NCCL(rt, call) comm_checked(rt, call, #call)
#define CUBLAS(rt, call) gemm_checked(rt, call, #call)

/* On a stream of one's own; what was launched wrongly is seen at the next check. */
#ifndef DTCU_LAUNCH_ON
#define DTCU_LAUNCH_ON(stream, kernel, blocks, threads, ...) kernel<<<dtcu_grid(blocks), (threads), 0, (stream)>>>(__VA_ARGS__)
#endif

/* ---- move.cu ---- */

/* A box between two buffers, as Piece has it, or between one and a run of staging. Offsets in elements. */
typedef struct {
  int nloops, nsrc;
  int64_t run, soff, doff, at, elements;
  int64_t count[DTRT_MAX_RANK], sstep[DTRT_MAX_RANK], dstep[DTRT_MAX_RANK];
  int64_t place; /* packing: where in the staging the elements go */
  int64_t first; /* unpacking: which of the contributions' places are its own, nsrc of them */
} Move;
enum { OWN = -1 }; /* a contribution that is not in the staging but in this rank's own source */

typedef struct {
  int n;
  int64_t most;     /* elements of the largest */
  int lanes;        /* elements that may be moved at once, as far as offsets decide it */
  const Move *move; /* in device memory */
  const int64_t *places;
} Moves;

void move_pack(Rt *rt, dtrt_dtype t, const Moves *m, const void *src, void *staging);
void move_unpack(Rt *rt, dtrt_dtype t, dtrt_reduce op, const Moves *m, const void *src, const void *staging, void *dst);
void move_pack_one(Rt *rt, dtrt_dtype t, const Move *m, const void *src, void *staging);
void move_identity(Rt *rt, dtrt_dtype t, dtrt_reduce op, void *dst, int64_t n);
void move_mark(Rt *rt, uint32_t *mark, uint32_t serial);

/* ---- exchange.cu ---- */

typedef enum { BY_ALL_REDUCE, BY_ALL_GATHER, BY_REDUCE_SCATTER, BY_EXCHANGE } Way;

/* A message of one buffer to or from a member, in the staging. */
typedef struct {
  int member; /* its index in the group */
  int64_t offset, bytes;
} Message;

/* How one buffer of a collective moves on this rank. */
typedef struct {
  bool packed;            /* BY_ALL_REDUCE: the box is not one run, so it goes through the staging */
  int64_t elements;       /* of a standard collective: what NCCL counts */
  int64_t sent, received; /* where in the staging */
  int nsend, nrecv;
  Message *send, *recv;
  Moves pack, unpack;
  Move *moves; /* on the host, pack's then unpack's, until they are on the device */
  int64_t *places;
  int nplaces;
  bool shifts; /* own elements change their place: not in place */
} Part;

typedef struct {
  Way way;
  int comm;   /* which communicator */
  Part *part; /* [nbuf] */
  int64_t staging;
  cudaEvent_t done;
  int epoch; /* of the recording in which it was started */
} Exchange;

/* Plans all collectives. Returns how many bytes of device memory their tables need. */
size_t exchange_plan(Rt *rt);
/* Puts the tables there. */
void exchange_load(Rt *rt, char *at);
void exchange_free(Rt *rt);

/* ---- device.cu, steps.cu, comm.cu, gemm.cu ---- */

enum { MAX_PHASE_FLIGHTS = 65536, MAX_GATHER_BYTES = 8 << 20, VALUE_BYTES = 64 };

/* A phase as it is replayed. */
typedef struct {
  cudaGraphExec_t exec;
  cudaEvent_t done; /* what was run last is done */
  bool pending;
  int nflights, room;
  struct {
    int collective;
    uint32_t serial;
  } * flight;
} Recorded;

typedef struct Products Products;

struct Transport {
  int device;
  char *memory; /* the one allocation: arena | workspace | staging | library's workspace | tables, context, gathering */
  char *staging, *library, *gather;
  size_t gather_bytes; /* and a place for a value behind them */
  cudaStream_t compute, comm;
  cudaEvent_t fork, join, ring_used;
  dtcu_Context *context; /* on the device */
  dtcu_Context host_context;
  /* memory that host and device see */
  dtcu_Fault *fault;
  uint32_t *mark;   /* serial number of the last collective that is done */
  char (*shown)[8]; /* [ntaps] */
  double *setting;
  char *ring; /* where inputs wait to be copied */
  size_t ring_bytes, ring_at;
  int *tap_phase; /* [ntaps] in which each was shown */
  /* steps */
  Phase phase;
  Recorded recorded[AT_END];
  bool capturing, forked;
  int epoch;
  uint32_t serial;
  const char *where; /* the line of the .dt file */
  /* collectives */
  Exchange *exchange; /* [ncollectives] */
  int ncomms;
  ncclComm_t *nccl; /* the world first */
  int *comm_first;  /* [ncomms]: the collective whose group it is */
  Products *products;
};

cudaError_t device_checked(Rt *rt, cudaError_t e, const char *call);
ncclResult_t comm_checked(Rt *rt, ncclResult_t e, const char *call);
cublasStatus_t gemm_checked(Rt *rt, cublasStatus_t e, const char *call);
/* Into device memory, behind what the compute stream was given; it is there afterwards. (cudaMemcpy may return before that, and
   streams that block nobody do not wait for it.) */
void device_put(Rt *rt, void *dst, const void *src, size_t bytes);
/* "step 17, charlm.dt:31", for messages */
const char *device_place(Rt *rt, char out[256]);

/* Waits for an event while errors of the communicators are watched; the supervisor watches the time. */
void steps_wait(Rt *rt, cudaEvent_t e);
/* Ends the run if a kernel noted a fault. The device must be idle. */
void steps_faults(Rt *rt);
void steps_open(Rt *rt);
void steps_close(Rt *rt);

void comm_open(Rt *rt);
void comm_close(Rt *rt);
void comm_watch(Rt *rt);

void gemm_open(Rt *rt);
void gemm_close(Rt *rt);

static inline size_t device_align(size_t bytes) { return (bytes + 255) / 256 * 256; }

#endif
