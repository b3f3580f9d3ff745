/* codegen.h: local IR -> schedule, groups, buffers -> C or CUDA. */
#ifndef DTC_CODEGEN_H
#define DTC_CODEGEN_H

#include "ir/ir.h"

/* The passes, in order. */
PassFn cg_group;    /* which ops share one loop nest (Op.group), which are products for the BLAS */
PassFn cg_schedule; /* -> scheduled: the total order in which a rank runs them */
PassFn cg_buffers;  /* arena offsets from lifetimes; in place where that is safe */

const char *cg_emit_c(const Module *m, Arena *a);                  /* the whole training program */
const char *cg_emit_cuda(const Module *m, Arena *a);               /* the same of Module.target TARGET_CUDA */
const char *const *cg_c_flags(void);                               /* what to compile it with; NULL ends the list */
const char *cg_memory_report(const Module *m, Arena *a, bool json); /* --emit=memory, memory-json */

#endif
