/* verify.c: for every law of the IR a module that breaks it, and a part of what the verifier says then (NULL: no
   law is broken). LEAVES stand before the lines of the stages annotated and sharded. */
#include "ir/ir.h"
#include "unit.h"

#define LEAVES                                                                                                                   \
  "%x: f32[B=8@a, D=4] = param \"x\" ones\n"                                                                                     \
  "%w: f32[D=4@b, E=6] = param \"w\" ones\n"                                                                                     \
  "%s: i64 = state \"step\"\n"                                                                                                   \
  "%n: i32[B=8@a] = input \"n\" table(\"n.npy\") limit 4\n"

static void law(const char *stage, const char *body, const char *reason) {
  Arena *a = arena_new();
  Diags *d = diags_new(a);
  bool bare = !strncmp(body, "stage", 5);
  const char *leaves = strcmp(stage, "annotated") && strcmp(stage, "sharded") ? "" : LEAVES;
  const char *text =
      bare ? body : arena_printf(a, "stage %s\nmesh m(a = 2, b = 2)\nprogram stage 0 {\n%s%s\n}\n", stage, leaves, body);
  Module *m = ir_parse(a, d, diags_add_file(d, "t.ir", text, strlen(text)));
  const char *why = "all laws hold";
  if (!m)
    unit_fail(__FILE__, __LINE__, "%d:%d: %s\n%s", d->list.at[0]->loc.line, d->list.at[0]->loc.col, d->list.at[0]->message, text);
  else {
    bool ok = ir_verify(m, "test", &why);
    bool expected = reason ? !ok && strstr(why, reason) : ok;
    if (!expected) unit_fail(__FILE__, __LINE__, "expected %s\ngot %s\nof %s", reason ? reason : "no fault", why, body);
  }
  arena_free(a);
}

static void annotated(const char *body, const char *reason) { law("annotated", body, reason); }
static void sharded(const char *body, const char *reason) { law("sharded", body, reason); }

UNIT(values_are_used_in_their_region) {
  annotated("%y: f32[B=8, D=4] = repeat %l < 3 carry(%c = %x) {\n%z[b,d]: f32[B=8, D=4] = nest %x[b,d]\nyield %z }",
            "%x is used in another region");
  annotated("%y: f32[B=8, D=4] = repeat %l < 3 carry(%c = %x) {\nyield %c }\n%z[b,d]: f32[B=8, D=4] = nest %c[b,d]",
            "%c is used in another region");
  annotated("%y: f32[B=8, D=4] = repeat %l < 3 carry(%c = %x) {\nyield %x }", "%x is used in another region");
}

UNIT(dtypes_agree) {
  annotated("%y[b]: f32[B=8] = nest %x[b,0] + 1", "the operands of `+` are f32 and i32");
  annotated("%y[b]: f32[B=8] = nest %n[b]", "the body gives i32, the result is f32");
  annotated("%y[b]: f32[B=8] = nest f32(%n[b] / 2)", "`/` does not take i32");
  annotated("%y[b]: f32[B=8] = nest f32(exp(%n[b]))", "`exp` does not take i32");
  annotated("%y[b]: f32[B=8] = nest where(%n[b], 1.0, 0.0)", "the condition of where is i32");
  annotated("%y[b]: bool[B=8] = nest %n[b] and true", "`and` does not take i32");
  annotated("%y[b]: bool[B=8] = nest (%n[b] < 2) + true", "`+` does not take bool");
  annotated("%y[b]: f32[B=8] = nest (%x[b + 1, 0] else 0)", "`else` gives i32 for a read of f32");
  annotated("%y: bool = nest max[b: B=8] %n[b] > 0", "bool has no max");
  annotated("%y[b]: f32[B=8] = nest dot", "`dot` stands only in the score");
}

UNIT(reads_stay_inside) {
  annotated("%y[b]: f32[B=8] = nest %x[b]", "%x has 2 dims and is read with 1 indices");
  annotated("%y[b]: f32[B=8] = nest %x[b + 1, 0]", "dim 0 of %x has 8 elements; its index b + 1 runs from 1 to 8");
  annotated("%y[b]: f32[B=8] = nest %x[b, -1]", "runs from -1 to -1");
  annotated("%y[b]: f32[B=8] = nest %x[b, 3 - b // 2]", NULL);
  annotated("%y[b]: f32[B=8] = nest (%x[b + 1, 0] else 0.0)", NULL);
  annotated("%y[i]: f32[0] = nest %x[99, i]", NULL);
  annotated("%y[b]: f32[B=8] = gather %x[%n[b], b // 2]", NULL);
  annotated("%y[b]: f32[B=8] = gather %x[%n[b], b]", "dim 1 of %x has 4 elements; its index b runs from 0 to 7");
  annotated("%y[b]: f32[B=8] = gather %x[%n[b + 1], 0]", "dim 0 of %n has 8 elements");
  annotated("%y[b]: f32[B=8] = nest %x[%n[b], 0]", "only gather's read and scatter_add's `into`");
  annotated("%y[b]: f32[B=8] = gather %x[b, 0]", "one read with an index that is read by value");
  annotated("%e[b]: f32[B=8] = nest 1.0\n%y[b]: f32[B=8] = gather %x[%e[b], 0]", "that is an integer, not f32");
}

UNIT(every_op_is_made_of_its_parts) {
  annotated("%y[b]: f32[B=8] = nest none[d: D=4] %x[b,d]", "nest has no reduced index");
  annotated("%y[b]: i32[B=8] = argmax[] %x[b,0]", "selects along at least one index");
  annotated("%y[b]: f32[B=8] = argmax[d: D=4] %x[b,d]", "positions of type i32, not f32");
  annotated("%v[b,j]: f32[B=8, 5], %i[b,j]: i32[B=8, 5] = topk[d: D=4] %x[b,d]", "topk wants 5 of 4");
  annotated("%v[b,j]: f32[B=8, 4], %i[b,j]: i32[B=8, 4] = topk[d: D=4] %x[b,j]", "index j counts the winners");
  annotated("%v[b,j]: f32[B=8, 3], %i[b,j]: i32[B=8, 2] = topk[d: D=4] %x[b,d]",
            "dim 1 of %i has 2 elements, its index j a range of 3");
  annotated("%y[r,d]: f32[R=4, D=4] = scatter_add[b: B=8] into [%n[b], d] %x[b,r]", "index r stands for a row");
  annotated("%y[r,d]: f32[R=4, D=4] = scatter_add[b: B=8] into [%n[b], 3 - d] %x[b,d]",
            "is added to at 3 - d: that is its own index, d, or read by value");
  annotated("%y[b]: f32[B=8] = random uniform \"u\" step %n", "the step and the counters are i64, %n is i32[B=8@a]");
  annotated("%y[b]: i32[B=8] = random uniform \"u\" step %s", "random numbers are real");
  annotated("%p: f32 = param \"x\" zeros", "two leaves are called param \"x\"");
  annotated("%p: f32 = setting \"lr\" 0.1", "a setting is f64, not f32");
  annotated("%p: f32 = param \"p\" zeros stack 1", "1 of 0 dims are stacked");
  annotated("tap loss %x", "tap loss shows a scalar");
  annotated("update %x = %w", "%x is f32[B=8@a, D=4], its next value f32[D=4@b, E=6]");
  annotated("%y[b,d]: f32[B=8, D=4] = nest %x[b,d]\nupdate %y = %x", "%y is updated: that must be a param or a state");
  annotated("update %x = %x\nupdate %x = %x", "%x is updated twice");
}

#define ATTEND(score, q, k, v)                                                                                                   \
  "%q: f32[T=8, K=4] = param \"q\" ones\n"                                                                                       \
  "%a[t,e]: f32[T=8, E=4], %l[t]: f32[T=8] = attention keys[u: T=8] dot[k: K=4] q %q[" q "] k %q[" k "] v %q[" v                 \
  "] score " score
UNIT(attention_reads_what_it_may) {
  annotated(ATTEND("dot / 2.0", "t,k", "u,k", "u,e"), NULL);
  annotated(ATTEND("dot", "(t + u) // 2, k", "u,k", "u,e"), "q cannot depend on the key u");
  annotated(ATTEND("dot", "t,k", "u,k", "u,k"), "v cannot depend on the contracted index k");
  annotated(ATTEND("dot + %q[t,k]", "t,k", "u,k", "u,e"), "sees the contracted index k only through `dot`");
  annotated(ATTEND("i32(dot)", "t,k", "u,k", "u,e"), "are real and of one type");
}

UNIT(a_repeat_agrees_with_its_body) {
  annotated(
      "%y: f32[B=8, D=4] = repeat %l < 3 carry(%c: f32[B=8, D=5] = %x) {\n%z[b,d]: f32[B=8, D=5] = nest %c[b,d]\nyield %z }",
      "carried %c is f32[B=8, D=5], %x is");
  annotated("%y: f32[B=8, D=4] = repeat %l < 3 carry(%c = %x) {\n%z[b,d]: f32[B=8, D=3] = nest %c[b,d]\nyield %z }",
            "carried %z is f32[B=8, D=3]");
  annotated("%y: f32[B=8, D=4] = repeat %l < 3 carry(%c = %x) each(%e = %w) {\nyield %c }",
            "%w, f32[D=4@b, E=6], is not 3 times %e");
  annotated("%y: f32[B=8, D=4], %z: f32[2, B=8, D=4] = repeat %l < 3 carry(%c = %x) {\nyield %c stack(%c) }",
            "%z, f32[2, B=8, D=4], is not 3 times %c");
  annotated("%y: f32[B=8, D=4] = repeat %l < 3 carry(%c = %x) {\n%p: f32 = param \"p\" ones\nyield %c }",
            "a leaf stands in the program");
}

UNIT(axes_exist_and_are_used_once) {
  sharded("%y[b,d]: f32[B=8@a, D=4@a] = nest %x[b,0]", "%y uses axis a twice");
  sharded("%y[b,d]: f32[B=8@a, D=4]{a: sum} = nest %x[b,0]", "%y uses axis a twice");
}

UNIT(reads_are_of_parts_that_the_rank_holds) {
  sharded("%y[b,d]: f32[B=8@a, D=4] = nest %x[b,d]", NULL);
  sharded("%y[b]: f32[B=8] = nest %x[b,0]", "dim 0 of %x is split over a and read by b: rank 0 reads [0, 8) and holds [0, 4)");
  sharded("%y[b]: f32[B=8@b] = nest %x[b,0]", "dim 0 of %x is split over a and read by b: rank 1 reads [4, 8) and holds [0, 4)");
  sharded("%y[b]: f32[B=8@a] = nest %x[7 - b, 0]", "read by 7 - b: rank 0 reads [4, 8) and holds [0, 4)");
  sharded("%y[b]: f32[4@a] = nest %x[b,0]", "dim 0 of %x is split over a and read by b: rank 2 reads [2, 4) and holds [4, 8)");
  sharded("%y[b]: f32[B=8@a granule 3] = nest %x[b,0]", "dim 0 of %x is split over a");
  sharded("%y[b]: f32[B=8] = gather %w[%n[b], 0]", "dim 0 of %n is split over a");
}

#define WINDOW(w, read) "%h: f32[B=8@a window(i < 8: " w "), D=4] = reshard %x\n%y[b]: f32[B=8@a] = nest " read
UNIT(windows_hold_what_is_read) {
  sharded(WINDOW("i - 1 .. i + 1", "(%h[b - 1, 0] else 0.0) + (%h[b + 1, 0] else 0.0)"), NULL);
  sharded(WINDOW("i .. i + 1", "(%h[b - 1, 0] else 0.0)"), "read by b - 1: rank 2 reads [3, 7) and holds [4, 8)");
  sharded(WINDOW("7 - i .. 7 - i", "%h[7 - b, 0]"), NULL);
  sharded(WINDOW("(i .. i) // 2", "%h[b // 2, 0]"), NULL);
  sharded("%h: f32[B=8@none window(i < 1: 7 .. 7), D=4] = reshard %x\n%y[b]: f32[B=8@a] = nest %h[7, 0]", NULL);
  sharded("%h: f32[B=8@none window(i < 1: 7 .. 7), D=4] = reshard %x\n%y[b]: f32[B=8@a] = nest %h[6, 0]",
          "rank 0 reads [6, 7) and holds [7, 8)");
  sharded("%h: f32[B=8@a window(i < 8: i .. i), D=4] = param \"h\" ones", "only a complete value that a collective makes");
  sharded(WINDOW("i .. i + 1", "%h[b,0]\n%z: f32[B=8, D=4] = reshard %h"), "%h has a window: no collective starts from it");
  sharded(WINDOW("i .. i + 1", "%h[b,0]\ntap output \"h\" %h"), "%h has a window: it is for its consumers only");
  sharded(WINDOW("i .. i + 1", "%h[b,0]\n%z: f32[B=8@a, D=4] = repeat %l < 3 carry(%c: f32[B=8@a, D=4] = %h) {\nyield %c }\n"),
          "must be laid out alike");
}

UNIT(a_split_reduced_index_leaves_a_pending_value) {
  sharded("%y[d]: f32[D=4]{a: sum} = nest sum[b: B=8@a] %x[b,d]", NULL);
  sharded("%y[d]: f32[D=4]{a: max} = nest max[b: B=8@a] %x[b,d]", NULL);
  sharded("%y[d]: f32[D=4] = nest sum[b: B=8@a] %x[b,d]",
          "index b is reduced and split over a: %y must be a pending sum over it");
  sharded("%y[d]: f32[D=4]{a: sum} = nest max[b: B=8@a] %x[b,d]", "%y must be a pending max over it");
  sharded("%y[b]: f32[B=8@a]{b: sum} = nest %x[b,0]",
          "%y is pending over b, but no operand is and no reduced index is split over it");
  sharded("%y[b,e]: f32[B=8@a, E=6]{b: sum} = gather %w[%n[b], e]", NULL);
  sharded("%y[b,e]: f32[B=8@a, E=6] = gather %w[%n[b], e]", "the rows of %w are split over b: %y must be a pending sum over it");
  sharded("%y[b,e]: f32[B=8@a, E=6]{b: sum} = gather (%w[%n[b], e] else 0.0)", "dim 0 of %w is split over b and read by %n[b]");
  sharded("%y[b]: i32[B=8] = argmax[d: D=4@b] %w[d,0]", "what is selected along is whole");
  sharded("%y[b]: f32[B=8@a] = scan[b] %x[b,0]", "a scan runs along a whole dim");
}

#define PENDING                                                                                                                  \
  "%p[d]: f32[D=4]{a: sum} = nest sum[b: B=8@a] %x[b,d]\n%q[d]: f32[D=4] = nest 2.0\n%g[d]: f32[D=4]{a: max} = nest max[b: "     \
  "B=8@a] %x[b,d]\n"
UNIT(pending_sums_pass_only_what_is_linear) {
  sharded(PENDING "%y[d]: f32[D=4]{a: sum} = nest neg(2.0 * %p[d] / %q[d]) + where(%q[d] > 0.0, %p[3 - d], 0.0)", NULL);
  sharded(PENDING "%y: f32{a: sum} = nest sum[d: D=4] %p[d] - 0.0", NULL);
  sharded(PENDING "%y[d]: f32[D=4]{a: sum} = scan[d] (%p[d] else 0.0)", NULL);
  sharded(PENDING "%y[d]: f32[D=4] = nest %p[d]", "%p is a pending sum over a, the result is not");
  sharded(PENDING "%y[d]: f32[D=4]{a: sum} = nest %p[d] + %q[d]", "not linear in what is a pending sum over a");
  sharded(PENDING "%y[d]: f32[D=4]{a: sum} = nest %p[d] * %p[d]", "not linear");
  sharded(PENDING "%y[d]: f32[D=4]{a: sum} = nest 1.0 / %p[d]", "not linear");
  sharded(PENDING "%y[d]: f32[D=4]{a: sum} = nest where(%p[d] > 0.0, %p[d], 0.0)", "not linear");
  sharded(PENDING "%y[d]: f32[D=4]{a: sum} = nest (%p[d] else 1.0)", "not linear");
  sharded(PENDING "%y[d]: bf16[D=4]{a: sum} = nest bf16(%p[d])", "not linear");
  sharded(PENDING "%y: f32{a: sum} = nest max[d: D=4] %p[d]", "an operand's sum over a is pending, the op reduces by max");
  sharded(PENDING "%y[d]: i32[D=4]{a: sum} = argmax[e: D=4] %p[e]", "argmax takes no operand that is pending");
  sharded(PENDING "%y[b,d]: f32[B=8@a, D=4] = nest %p[d] * %x[b,d]", "%p is a pending sum over a, the result is not");
  sharded(PENDING "%y[d]: f32[D=4]{a: sum} = nest sum[b: B=8@a] %p[d] * %x[b,d]",
          "%p is pending over a, over which index b is split");
  sharded(PENDING "%y[d]: f32[D=4]{a: max} = nest %g[d]", NULL);
  sharded(PENDING "%y: f32{a: max} = nest max[d: D=4] %g[d]", NULL);
  sharded(PENDING "%y[d]: f32[D=4]{a: max} = nest 2.0 * %g[d]", "a pending max over a passes only a body that is one read");
  sharded(PENDING "tap output \"p\" %p", "%p is pending: what leaves the program is complete");
}

/* q's rows t are split: dq is split alike, dk and dv have contributions of every rank's rows. */
#define ATTENTION_GRAD(dq, dk, t)                                                                                                \
  "%q: f32[T=8@a, K=4] = state \"q\"\n%k: f32[T=8, K=4] = state \"k\"\n%a: f32[T=8@a, E=4] = state \"a\"\n"                      \
  "%l: f32[T=8@a] = state \"l\"\n%dq: f32[" dq "], %dk: f32[" dk "]{a: sum}, %dv: f32[T=8, E=4]{a: sum} = attention_grad "       \
  "over[t: T=8" t ", e: E=4] keys[u: T=8] dot[k: K=4] q %q[t,k] k %k[u,k] v %k[u,e] a %a[t,e] lse %l[t] da %a[t,e] score dot"
UNIT(gradients_of_attention_are_added_where_their_operand_is_read) {
  sharded(ATTENTION_GRAD("T=8@a, K=4", "T=8, K=4", "@a"), NULL);
  sharded(ATTENTION_GRAD("T=8, K=4", "T=8, K=4", "@a"), "index t is reduced and split over a: %dq must be a pending sum over it");
  sharded(ATTENTION_GRAD("T=8@a, K=4", "T=8, K=4", ""),
          "dim 0 of %dq is split over a, but no index that is split alike is added at");
  sharded(ATTENTION_GRAD("T=8@a, K=4", "T=8@b, K=4", "@a"), "dim 0 of %dk is split over b");
  sharded(ATTENTION_GRAD("T=8@a, K=4", "T=8, K=5", "@a"), "%dk is the gradient of %k, f32[T=8, K=4]");
}

UNIT(a_repeat_keeps_layouts) {
  sharded("%y: f32[B=8, D=4] = repeat %l < 3 carry(%c = %x) {\nyield %c }", "must be laid out alike");
  sharded("%y: f32[B=8@a, D=4] = repeat %l < 3 carry(%c: f32[B=8, D=4] = %x) {\nyield %c }",
          "%x, f32[B=8@a, D=4], and %c, f32[B=8, D=4], must be laid out alike");
  sharded("%y: f32[B=8@a, D=4] = repeat %l < 8 carry(%c = %x) each(%e = %x) {\nyield %c }",
          "dim 0 of %x runs over the repetitions");
  sharded("%y: f32[B=8@a, D=4], %z: f32[3, B=8, D=4] = repeat %l < 3 carry(%c = %x) {\nyield %c stack(%c) }", "and its slice %c");
  sharded("%y: f32[B=8@a, D=4] = repeat %l < 4 carry(%c = %x) each(%e: f32[E=6@b] = %w) {\nyield %c }", "dim 0 of %w runs over");
}

UNIT(collectives_come_at_their_stage_and_fit) {
  sharded("%y: f32[B=8, D=4] = reshard %x", NULL);
  sharded("%y: f32[B=8, D=5] = reshard %x", "reshard %y is f32[B=8, D=5], %x is f32[B=8@a, D=4]");
  sharded("%y: f32[B=8, D=4] = all_gather %x", "collectives appear at stage collected");
#define X "%x: f32[B=8@a, D=4] = param \"x\" ones\n%s[d]: f32[D=4]{a: sum} = nest sum[b: B=8@a] %x[b,d]\n"
  law("collected", X "%y: f32[B=8, D=4] = reshard %x", "no reshard is left");
  law("collected", X "%y: f32[B=8, D=4] = all_gather %x", "a collective says why it is there");
  law("collected", X "%y: f32[B=8, D=4] = all_gather %x   ; because %z reads it whole", NULL);
  law("collected", X "%y: f32[B=8@(a, b), D=4] = slice %x", NULL);
  law("collected", X "%y: f32[B=8@b, D=4] = slice %x", "slice does not lead from f32[B=8@a, D=4] to f32[B=8@b, D=4]");
  law("collected", X "%y: f32[B=8@(a, b), D=4] = all_gather %x   ; because of it", "all_gather does not lead from");
  law("collected", X "%y: f32[D=4] = all_reduce %s   ; because of it", NULL);
  law("collected", X "%y: f32[D=4@a] = all_reduce %s   ; because of it", "all_reduce does not lead from");
  law("collected", X "%y: f32[D=4@a] = reduce_scatter %s   ; because of it", NULL);
  law("collected", X "%y: f32[B=8@a, D=4]{b: sum} = exchange %x   ; because of it",
      "%y becomes pending over b: exchange cannot do that");
}

UNIT(buffers_cover_what_leaves_a_group) {
#define SCHEDULED(g, buffers)                                                                                                    \
  "stage scheduled\nmesh m(a = 2)\nprogram stage 0 {\n%x: f32[B=10@a:5] = param \"x\" ones\n%y[b]: f32[B=10@a:5] = nest "        \
  "%x[b] " g "\n%z[b]: f32[B=10@a:5] = nest %y[b] " g "\ntap output \"z\" %z\n}\nbuffers { " buffers " } arena 64 workspace 0\n"
  law("", SCHEDULED("", "%y: 0+20 %z: 32+20"), NULL);
  law("", SCHEDULED("[group 1]", "%z: 32+20"), NULL);
  law("", SCHEDULED("", "%z: 32+20"), "%y is used outside of its group and has no buffer");
  law("", SCHEDULED("[group 1]", ""), "%z is used outside of its group and has no buffer");
  law("", SCHEDULED("", "%y: 0+20 %z: 48+20"), "leaves the arena of 64 bytes");
  law("", SCHEDULED("", "%y: 0+16 %z: 32+20"), "the buffer of %y has 16 bytes, it needs 20");
}

#define FLIGHT(between, end, buffers)                                                                                            \
  "stage scheduled\nmesh m(a = 2)\nprogram stage 0 {\n%x[b]: f32[B=4]{a: sum} = nest sum[k: K=8@a:4] f32(idx(k) * idx(b))\n"     \
  "%v[b]: f32[B=4] = nest f32(idx(b))\n%y: f32[B=4] = all_reduce %x ; because of it\n" between "\n" end                          \
  "\n%z[b]: f32[B=4] = nest %y[b] + %u[b]\ntap output \"z\" %z\n}\nbuffers { " buffers " } arena 128 workspace 0\n"
#define APART "%x: 0+16 %v: 16+16 %y: 32+16 %u: 48+16 %z: 64+16"
#define U(read) "%u[b]: f32[B=4] = nest " read
UNIT(a_collective_is_under_way_until_it_is_waited_for) {
  law("", FLIGHT(U("%v[b]"), "wait %y", APART), NULL);
  law("", FLIGHT(U("%v[b]"), "wait %y", "%x: 0+16 %v: 16+16 %y: 0+16 %u: 48+16 %z: 64+16"), NULL); /* in place */
  law("", FLIGHT(U("%v[b]"), "wait %y", "%x: 0+16 %v: 16+16 %y: 32+16 %u: 0+16 %z: 64+16"),
      "%u lies where %x, which is under way to %y, does");
  law("", FLIGHT(U("%v[b]"), "wait %y", "%x: 0+16 %v: 16+16 %y: 32+16 %u: 40+16 %z: 64+16"), "%u lies where %x, which is under");
  law("", FLIGHT(U("%y[b]"), "wait %y", APART), "%y is used before it is waited for");
  law("", FLIGHT(U("%v[b]"), "", APART), "%y is used before it is waited for");
  law("", FLIGHT(U("%v[b]"), "wait %y\nwait %y", APART), "no collective that makes it is under way");
  law("", FLIGHT(U("%v[b]"), "wait %v", APART), "%v is waited for, but no collective that makes it");
  law("", FLIGHT(U("%v[b]"), "wait %y, %v", APART), "a wait names all results of its collective");
  law("collected", "%y: f32[B=4] = param \"y\" ones\nwait %y", "collectives are waited for at stage scheduled");
}

/* Laws that no text can break: values that are put together by hand. */
static Module *two_values(Arena *a, ValueId *x, ValueId *y) {
  Module *m = ir_module(a);
  m->mesh.name = "m";
  Op *op = ir_op(m, OP_STATE, (Loc){0});
  op->name = "x";
  *x = ir_out(m, op, "x", (Type){.dtype = F32});
  ir_append(m, m->programs.at[0].body, op);
  Op *next = ir_op(m, OP_NEST, (Loc){0});
  ir_in(m, next, *x);
  next->body = ex_read(a, 0, F32, 0, NULL, NULL);
  *y = ir_out(m, next, "y", (Type){.dtype = F32});
  ir_append(m, m->programs.at[0].body, next);
  return m;
}

static void check_by_hand(Module *m, const char *reason) {
  const char *why = "all laws hold";
  bool ok = ir_verify(m, "test", &why);
  if (reason ? ok || !strstr(why, reason) : !ok)
    unit_fail(__FILE__, __LINE__, "expected %s\ngot %s", reason ? reason : "no fault", why);
}

UNIT(values_are_defined_once_and_before_use) {
  Arena *a = arena_new();
  ValueId x, y;
  check_by_hand(two_values(a, &x, &y), NULL);
  Module *m = two_values(a, &x, &y);
  m->programs.at[0].body->ops.at[1]->in[0] = y;
  check_by_hand(m, "%y is used before it is defined");
  m = two_values(a, &x, &y);
  m->programs.at[0].body->ops.at[1]->out[0] = x;
  check_by_hand(m, "%x is defined twice");
  m = two_values(a, &x, &y);
  m->values.at[y].name = "x";
  check_by_hand(m, "two values are called %x");
  m = two_values(a, &x, &y);
  m->programs.at[0].body->ops.at[1]->order = 7;
  check_by_hand(m, "ir_number was not called");
  m = two_values(a, &x, &y);
  m->values.at[y].result = 1;
  check_by_hand(m, "ir_number was not called");
  arena_free(a);
}

UNIT(a_wish_does_not_outlive_the_annotated_stage) {
  Arena *a = arena_new();
  ValueId x, y;
  Module *m = two_values(a, &x, &y);
  m->stage = STAGE_SHARDED;
  m->values.at[x].type.pending = (Pending){.n = 1, .kind = RED_SUM, .part = {{3, 1, 1}}};
  check_by_hand(m, "%x uses axis number 3 of a mesh of 0");
  arena_free(a);
}

UNIT(a_broken_law_is_shown_with_its_op) {
  Arena *a = arena_new();
  ValueId x, y;
  Module *m = two_values(a, &x, &y);
  m->programs.at[0].body->ops.at[1]->body->dtype = F64;
  const char *why = NULL;
  CHECK(!ir_verify(m, "propagate", &why));
  const char *alone = NULL;
  CHECK(!ir_verify(m, NULL, &alone));
  CHECK_STR(alone, "  %y: f32 = nest %x\nthe body reads %x as f64, it is f32");
  CHECK_STR(why, "pass propagate broke a law of stage annotated:\n  %y: f32 = nest %x\nthe body reads %x as f64, it is f32");
  arena_free(a);
}
