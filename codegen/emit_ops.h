/* emit_ops.h: what the kernels of emit_ops.c share with those of emit_ops_cuda.c. */
#ifndef DTC_EMIT_OPS_H
#define DTC_EMIT_OPS_H

#include "emit.h"

const char *emit_reduced_number(Scope *s); /* the row-major number of the reduced indices in their whole ranges */
void emit_random_site(Kernel *k, const Op *op, const char *site, const char *counter); /* declares both */
IExpr *emit_element_number(Emit *e, const Op *op); /* row-major, of the result's element in the whole */

Kernel *emit_scatter_cuda(Emit *e, const Op *op);
Kernel *emit_argmax_cuda(Emit *e, const Op *op);
Kernel *emit_topk_cuda(Emit *e, const Op *op);
Kernel *emit_scan_cuda(Emit *e, const Op *op);
Kernel *emit_random_cuda(Emit *e, const Op *op);

#endif
