/* report.c: what the user sees: a table at the start, a line per step, on a terminal a bar under it, the JSON lines
   of --log, and with DTRT_PROFILE=1 where the time went.

     step    17/1000  loss 2.8125  norm 1.21  lr 6.80e-04   105.3 ms     9723 tokens/s

   Steps are counted from 1: the step's number is how many updates were made when it ends. */
#define _GNU_SOURCE
#include "sync.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>

/* 1234567 as "1,234,567"; buffer of 32. */
static const char *thousands(int64_t v, char *out) {
  char digits[24];
  int n = snprintf(digits, sizeof digits, "%" PRId64, v), k = 0;
  for (int i = 0; i < n; i++) {
    out[k++] = digits[i];
    if ((n - 1 - i) % 3 == 0 && i < n - 1 && digits[i] != '-') out[k++] = ',';
  }
  out[k] = 0;
  return out;
}

static const char *bytes_text(double b, char *out) {
  const char *unit = b < 0x1p20 ? "KiB" : b < 0x1p30 ? "MiB" : "GiB";
  snprintf(out, 32, "%.1f %s", b / (b < 0x1p20 ? 0x1p10 : b < 0x1p30 ? 0x1p20 : 0x1p30), unit);
  return out;
}

void rt_report_start(const Rt *rt) {
  const dtrt_Program *p = rt->p;
  char a[32], b[32], c[32];
  printf("%s on", p->source);
  for (int i = 0; i < p->naxes; i++) printf("%s %s = %" PRId64, i ? "," : "", p->axis[i], p->axis_size[i]);
  printf("%s%d rank%s, %d core%s\n", p->naxes ? ": " : " ", p->nranks, p->nranks == 1 ? "" : "s", rt->ncores,
         rt->ncores == 1 ? "" : "s");
  printf("  parameters  %s\n", thousands(p->parameters, a));
  printf("  memory      %s planned per rank, %s in all\n", bytes_text(rt_memory(p), a), bytes_text(rt_memory(p) * p->nranks, b));
  if (p->nranks > 1)
    printf("  traffic     %s received per step by the busiest rank, planned\n", bytes_text((double)p->plan_bytes, a));
  rt_data_describe(rt, stdout);
  if (p->trains)
    printf("  steps       %s to %s, %s %s each, seed %" PRIu64 "\n", thousands(rt->start + 1, a), thousands(rt->total, b),
           thousands(p->tokens, c), p->unit, rt->o.seed);
  fflush(stdout);
}

/* ---- steps ---- */

static void bar(const Rt *rt, int64_t step) {
  enum { WIDTH = 30 };
  int64_t done = step + 1 - rt->start, all = rt->total - rt->start;
  int full = (int)(done * WIDTH / all);
  double eta = (rt_now() - rt->began) / (double)done * (double)(all - done);
  printf("[");
  for (int i = 0; i < WIDTH; i++) putchar(i < full ? '#' : '.');
  printf("] %3d%%  ETA %d:%02d:%02d", (int)(done * 100 / all), (int)(eta / 3600), (int)(eta / 60) % 60, (int)eta % 60);
}

static double tokens_per_second(const Rt *rt, const StepRecord *r) { return (double)rt->p->tokens / (r->ms * 1e-3); }

static void print_line(const Rt *rt, int64_t step, const StepRecord *r) {
  char total[32];
  int width = snprintf(total, sizeof total, "%" PRId64, rt->total);
  printf("%sstep %*" PRId64 "/%s", rt->terminal ? "\r\033[K" : "", width, step + 1, total);
  if (r->has_loss) printf("  loss %.4f", r->loss);
  if (r->has_norm) printf("  norm %.3g", r->grad_norm);
  if (r->has_lr) printf("  lr %.2e", r->lr);
  printf("  %8.2f ms  %8.0f %s/s", r->ms, tokens_per_second(rt, r), rt->p->unit);
  for (int i = 0; i < rt->p->ntaps; i++)
    if (rt->p->tap[i].kind == DTRT_TAP_METRIC) printf("  %s %.4g", rt->p->tap[i].name, r->metric[i]);
  putchar('\n');
  rt->shared->bar = rt->terminal && step + 1 < rt->total;
  if (rt->shared->bar) bar(rt, step);
  fflush(stdout);
}

static void json_number(FILE *f, const char *key, bool there, double v) {
  fprintf(f, ", \"");
  for (const char *c = key; *c; c++) {
    if (*c == '"' || *c == '\\') fputc('\\', f);
    if ((unsigned char)*c >= ' ') fputc(*c, f);
  }
  if (there && isfinite(v))
    fprintf(f, "\": %.9g", v);
  else
    fprintf(f, "\": null");
}

void rt_report_open(Rt *rt) {
  if (!rt->o.log) return;
  rt->logfile = fopen(rt->o.log, rt->o.resume ? "ae" : "we");
  if (!rt->logfile) rt_fail(rt, EXIT_DATA, "cannot write the log %s: %s", rt->o.log, strerror(errno));
}

static void log_line(Rt *rt, int64_t step, const StepRecord *r) {
  FILE *f = rt->logfile;
  fprintf(f, "{\"step\": %" PRId64, step + 1);
  json_number(f, "loss", r->has_loss, r->loss);
  json_number(f, "grad_norm", r->has_norm, r->grad_norm);
  json_number(f, "lr", r->has_lr, r->lr);
  json_number(f, "ms", true, r->ms);
  json_number(f, "tokens_per_s", true, tokens_per_second(rt, r));
  for (int i = 0; i < rt->p->ntaps; i++)
    if (rt->p->tap[i].kind == DTRT_TAP_METRIC) json_number(f, rt->p->tap[i].name, true, r->metric[i]);
  fprintf(f, "}\n");
  if (fflush(f)) rt_fail(rt, EXIT_DATA, "cannot write the log %s: %s", rt->o.log, strerror(errno));
}

void rt_report_step(Rt *rt, int64_t step, const StepRecord *r) {
  if (rt->p->trains || r->has_loss) print_line(rt, step, r);
  if (rt->o.log) log_line(rt, step, r);
}

void rt_report_end(Rt *rt, int64_t step) {
  if (rt->logfile) fclose(rt->logfile);
  if (!rt->p->trains) return;
  if (rt->start >= rt->total)
    printf("nothing to do: %" PRId64 " of %" PRId64 " steps were made\n", rt->start, rt->total);
  else if (step == rt->total && rt->o.save && rt->saved)
    printf("saved %s\n", rt->o.save);
  fflush(stdout);
}

/* ---- profile ---- */

static void profile_collectives(const Rt *rt, int64_t steps) {
  for (int i = 0; i < rt->p->ncollectives; i++) {
    const Comm *m = &rt->comm[i];
    const dtrt_Collective *c = &rt->p->collective[i];
    if (!m->calls || m->nmembers == 1) continue;
    fprintf(stderr, "    %-14s %-8s %4.1f calls  wait %8.3f ms  move %8.3f ms  %10.1f KiB in %10.1f out  %s:%d\n", c->kind,
            c->axes, (double)m->calls / (double)steps, (double)m->ns_wait * 1e-6 / (double)steps,
            (double)m->ns_move * 1e-6 / (double)steps, m->received * (double)m->calls / (double)steps / 1024,
            m->sent * (double)m->calls / (double)steps / 1024, c->file, c->line);
  }
}

/* What an update reads and writes of this rank: a parameter both, its gradient twice (the norm takes it too), state both. */
static double update_bytes(const Rt *rt) {
  double bytes = 0;
  for (int i = 0; i < rt->p->nleaves; i++) {
    const dtrt_Leaf *l = &rt->p->leaf[i];
    if (l->kind == DTRT_INPUT) continue;
    RtBox box = rt_box(&l->layout, rt->rank);
    bytes +=
        (double)rt_box_elements(&box, l->layout.rank) * (double)rt_dtype_size(l->layout.dtype) * (l->kind == DTRT_PARAM ? 4 : 2);
  }
  return bytes;
}

static void part_line(const char *name, double seconds, double total, int64_t steps, double work, const char *unit) {
  fprintf(stderr, "  %-14s %10.2f ms  %5.1f %%", name, seconds * 1e3 / (double)steps, 100 * seconds / total);
  if (work > 0 && seconds > 0) fprintf(stderr, "  %7.1f %s", work / seconds * 1e-9, unit);
  fputc('\n', stderr);
}

/* Where a rank's time went. The parts do not overlap and make up the total. */
static void profile_rank(const Rt *rt, int64_t steps, double seconds) {
  const PartTimes *part = rt->parts, *plain = &part[DTRT_OTHER], *attention = &part[DTRT_ATTENTION];
  const double *phase = rt->phase_seconds;
  double received = 0, sent = 0, outside = 0, all = 0, ns = 1e-9;
  for (int i = 0; i < rt->p->ncollectives; i++) {
    const Comm *m = &rt->comm[i];
    double time = (double)(m->ns_wait + m->ns_move) * ns;
    all += time, outside += m->in_update ? 0 : time;
    received += m->received * (double)m->calls;
    sent += m->sent * (double)m->calls;
  }
  double passes = phase[AT_FORWARD] + phase[AT_BACKWARD], products = (double)plain->product_ns * ns,
         attending = (double)attention->ns * ns, update = phase[AT_UPDATE] - (all - outside);
  fprintf(stderr, "rank %d, per step:    %10.2f ms  forward %.2f, backward %.2f, update %.2f\n", rt->rank,
          seconds * 1e3 / (double)steps, phase[AT_FORWARD] * 1e3 / (double)steps, phase[AT_BACKWARD] * 1e3 / (double)steps,
          phase[AT_UPDATE] * 1e3 / (double)steps);
  part_line("products", products, seconds, steps, plain->flop, "GFLOP/s");
  part_line("attention", attending, seconds, steps, attention->flop, "GFLOP/s");
  part_line("elementwise", passes - products - attending - outside, seconds, steps, 0, "");
  part_line("optimizer", update, seconds, steps, update_bytes(rt) * (double)steps, "GB/s");
  part_line("communication", all, seconds, steps, received, "GB/s received");
  part_line("other", seconds - passes - phase[AT_UPDATE], seconds, steps, 0, "");
  fprintf(stderr, "  received %.1f bytes per step; planned for the busiest rank %" PRIu64 "; sent %.1f\n",
          received / (double)steps, rt->p->plan_bytes, sent / (double)steps);
}

/* Ranks one after the other, so that their lines do not mix; the collectives in detail as rank 0 sees them. */
void rt_report_profile(Rt *rt, int64_t steps, double seconds) {
  if (steps <= 0) return;
  for (int r = 0; r < rt->p->nranks; r++) {
    rt_world_barrier(rt);
    if (r != rt->rank) continue;
    profile_rank(rt, steps, seconds);
    if (r == 0) profile_collectives(rt, steps);
    fflush(stderr);
  }
  rt_world_barrier(rt);
}
