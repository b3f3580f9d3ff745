/* pipeline.c: the compiler as one table of passes, and the loop that runs it.

   .dt text -> frontend_module -> the passes below -> cg_emit_c -> C. After every pass the module must be at the stage
   that the table says and obey that stage's laws (ir_verify), so a fault is found where it is made. */
#include "codegen/codegen.h"
#include "driver.h"
#include "partitioner/partitioner.h"

#include <time.h>

const Pass pipeline[] = {
    {"recognise", "find attention in softmax times values", ir_recognise, STAGE_ANNOTATED, STAGE_ANNOTATED},
    {"gradient", "append the reverse of the loss", ir_gradient, STAGE_ANNOTATED, STAGE_ANNOTATED},
    {"update", "append clipping, the optimizer and the learning rate", ir_update, STAGE_ANNOTATED, STAGE_ANNOTATED},
    {"propagate", "give every value a sharding", part_propagate, STAGE_ANNOTATED, STAGE_ANNOTATED},
    {"reshard", "say where a value must change its layout", part_reshard, STAGE_ANNOTATED, STAGE_SHARDED},
    {"collect", "make each change the cheapest collectives", part_collect, STAGE_SHARDED, STAGE_COLLECTED},
    {"hoist", "move collectives out of loops, share equal ones", part_hoist, STAGE_COLLECTED, STAGE_COLLECTED},
    {"save", "choose what the reverse of a repeat keeps", part_save, STAGE_COLLECTED, STAGE_COLLECTED},
    {"combine", "join small collectives of one kind into one call", part_combine, STAGE_COLLECTED, STAGE_COLLECTED},
    {"localize", "make it the program of one device", part_localize, STAGE_COLLECTED, STAGE_LOCAL},
    {"group", "choose which ops share a loop, and which are products", cg_group, STAGE_LOCAL, STAGE_LOCAL},
    {"schedule", "put the ops in the order in which they run", cg_schedule, STAGE_LOCAL, STAGE_SCHEDULED},
    {"buffers", "give every value its place in memory", cg_buffers, STAGE_SCHEDULED, STAGE_SCHEDULED},
};
const int pipeline_length = sizeof pipeline / sizeof *pipeline;

static const char *const stage_names[] = {"annotated", "sharded", "collected", "local", "scheduled"};

int pipeline_find(const char *pass) {
  for (int i = 0; i < pipeline_length; i++)
    if (!strcmp(pipeline[i].name, pass)) return i;
  return -1;
}

int pipeline_start(const char *from) {
  for (int i = 0; i < pipeline_length; i++)
    if (!strcmp(stage_names[pipeline[i].before], from)) return i;
  return pipeline_find(from);
}

/* ---- time ------------------------------------------------------------------------------------------------- */

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* not the time that other programs take */
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

void clock_start(Clock *c) { c->last = now_ms(); }

void clock_step(Clock *c, Arena *a, const char *name) {
  double ms = now_ms() - c->last;
  int i = 0;
  while (i < c->steps.n && strcmp(c->steps.at[i].name, name)) i++;
  if (i == c->steps.n) vec_push(a, c->steps, ((Timing){name, 0}));
  c->steps.at[i].ms += ms;
  clock_start(c);
}

void clock_print(const Clock *c, FILE *out) {
  double total = 0;
  for (int i = 0; i < c->steps.n; i++) {
    total += c->steps.at[i].ms;
    fprintf(out, "%10.3f ms  %s\n", c->steps.at[i].ms, c->steps.at[i].name);
  }
  fprintf(out, "%10.3f ms  total\n", total);
}

/* ---- running ---------------------------------------------------------------------------------------------- */

bool pipeline_run(Module *m, PassContext *cx, int first, int last, Clock *clock,
                  void (*seen)(void *env, const Module *m, int pass), void *env) {
  for (int i = first; i <= last; i++) {
    const Pass *p = &pipeline[i];
    assert(m->stage == p->before && "the table and the passes agree on stages");
    p->run(m, cx);
    clock_step(clock, m->arena, p->name);
    if (cx->diags->nerrors) return false;
    if (m->stage != p->after) internal_error("%s left stage %s, not %s", p->name, stage_names[m->stage], stage_names[p->after]);
    bool in_order_only = m->stage == STAGE_SCHEDULED && !m->buffers; /* between schedule and buffers */
    if (!in_order_only) ir_verify(m, p->name, NULL);
    clock_step(clock, m->arena, "verify");
    seen(env, m, i);
    clock_start(clock);
  }
  return true;
}
