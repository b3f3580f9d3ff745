/* online.h: log of a sum of exponentials over a row that is split over ranks, merged from pairs (max, sum), as text. */
#ifndef DTC_FAULTS_ONLINE_H
#define DTC_FAULTS_ONLINE_H

#include "ir/ir.h"

bool online_softmax(Arena *a, uint64_t seed, Module **source, Module **plan);

#endif
