/* link.h: supervisors of one run that were started one by one, on one host or several, and find each other by a socket.
   join.c says who we are, meet.c brings the sockets together, link.c talks over them, sha256.c proves the job's token. */
#ifndef DTRT_LINK_H
#define DTRT_LINK_H

#include <poll.h>

#include "sync.h"

typedef struct {
  int fd, rank; /* of the rank whose supervisor is at the other end */
  bool ended;   /* it has said that its rank ended in order */
} Peer;

/* The supervisor of rank 0 is the hub; it has a socket to every other one, and those have one to it. */
struct Link {
  int npeers;
  Peer *peer;
  int here;          /* hub: ranks that have come to the meeting */
  uint64_t meetings; /* that are over */
  bool over, stuck;  /* somebody ended the run: */
  int rc;
  char message[RT_MESSAGE];
};

/* ---- meet.c ---- */

enum { RT_PORTS = 8, RT_LAST_PORT = 65535 - RT_PORTS }; /* rank 0 listens at the first free one of so many */

/* Fills link->peer; ends the process with one line if they do not come together in time. */
void rt_meet_peers(Rt *rt, Link *link);

/* ---- link.c ---- */

int rt_link_polls(const Rt *rt, struct pollfd *fd); /* what to wait for; room for nranks + 1 */
void rt_link_serve(Rt *rt, const struct pollfd *fd, int n);
void rt_link_stop(Rt *rt, int signal); /* to rank 0's supervisor */
/* Tells all others that the run is over. True if somebody else shows the message. */
bool rt_link_fail(Rt *rt, int rc, const char *message, bool stuck);
void rt_link_end(Rt *rt); /* our rank ended in order */

/* ---- sha256.c ---- */

void rt_sha256(const void *data, size_t bytes, unsigned char out[32]);
void rt_hmac(const unsigned char key[32], const void *data, size_t bytes, unsigned char out[32]);

#endif
