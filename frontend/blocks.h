/* blocks.h: what blocks.c and repeat.c share: the ways of an argument into a block and of a result out of it. */
#ifndef DTC_BLOCKS_H
#define DTC_BLOCKS_H

#include "lower.h"

/* `in` is the callee's context; t the argument as the caller has it, shape as the signature says, in the block's names. */
bool block_bind_dims(Ctx *in, const AstParam *p, const TensorRef *t, Loc loc);
bool block_check_argument(Ctx *in, const AstParam *p, const TensorRef *t, const TensorRef *shape, Loc loc);
TensorRef block_convert(Ctx *cx, TensorRef t, const Type *type, const char *name, Loc loc);
void block_bind_argument(Ctx *in, const AstParam *p, TensorRef t, const TensorRef *shape);
bool block_result(Ctx *in, const AstItem *block, int i, TensorRef *out);
Extent block_outer_dim(const Ctx *in, Extent x);
TensorRef block_to_caller(const Ctx *in, TensorRef t);

/* out = repeat(L) f(x, c): out has one entry per result. repeat.c */
bool repeat_call(Ctx *cx, Ctx *in, const AstItem *it, Symbol *block, TensorRef *out);

#endif
