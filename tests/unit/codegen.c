/* codegen.c: programs that are emitted, run and compared with the interpreter: dtc_tests as C (programs_c.c), dtc_cuda_tests as
   CUDA on the emulator (tests/emulated/programs.c). A program makes its data from its indices, computes and shows outputs.
   Distributed programs are compared in tests/run and by the fuzzer. */
#include "programs.h"

/* x[i,j] and friends: smooth data from indices. */
#define DATA                                                                                                                     \
  "%x[b,t,d]: f32[B=2, T=6, D=8] = nest sin(f32(idx(17*b + 5*t + 3*d)))\n"                                                       \
  "%w[d,f]: f32[D=8, F=12] = nest cos(f32(idx(7*d + 2*f)))\n"                                                                    \
  "%e[n]: i32[N=5] = nest idx(3*n + 1) % 6\n"

PROGRAM(reductions_maps_and_columns_share_rows,
        DATA "%ss[b,t]: f32[B=2, T=6] = nest sum[d: D=8] %x[b,t,d] * %x[b,t,d] ; m.dt:1\n"
             "%r[b,t]: f32[B=2, T=6] = nest rsqrt(%ss[b,t] / 8.0 + 0.00001) ; m.dt:1\n"
             "%n[b,t,d]: f32[B=2, T=6, D=8] = nest %x[b,t,d] * %r[b,t] ; m.dt:1\n"
             "%g[d]: f32[D=8] = nest sum[b: B=2, t: T=6] %n[b,t,d] * %x[b,t,d] ; m.dt:2\n"
             "%m[b,t]: f32[B=2, T=6] = nest max[d: D=8] %n[b,t,d] ; m.dt:2\n"
             "%p[b,t]: f32[B=2, T=6] = nest prod[d: D=8] %n[b,t,d] + 1.0 ; m.dt:2\n"
             "%all: f32 = nest sum[b: B=2, t: T=6] %m[b,t] - %p[b,t] ; m.dt:3\n"
             "%low: f32 = nest min[b: B=2, t: T=6, d: D=8] %n[b,t,d] ; m.dt:4\n"
             "tap output \"n\" %n\ntap output \"g\" %g\ntap output \"all\" %all\ntap output \"low\" %low\n")

PROGRAM(columns_that_keep_different_loops, "%x[b,i,j]: f32[B=6, I=5, J=7] = nest sin(f32(idx(17*b + 5*i + 3*j)))\n"
                                           "%m[b]: f32[B=6] = nest max[i: I=5, j: J=7] %x[b,i,j] ; m.dt:1\n"
                                           "%n[b,i,j]: f32[B=6, I=5, J=7] = nest %x[b,i,j] - %m[b] ; m.dt:1\n"
                                           "%d[i]: f32[I=5] = nest sum[b: B=6, j: J=7] %n[b,i,j] ; m.dt:1\n"
                                           "%e[j]: f32[J=7] = nest sum[b: B=6, i: I=5] %n[b,i,j] ; m.dt:1\n"
                                           "%r[b]: f32[B=6] = nest sum[i: I=5, j: J=7] %n[b,i,j] ; m.dt:1\n"
                                           "tap output \"d\" %d\ntap output \"e\" %e\ntap output \"r\" %r\n")

PROGRAM(few_sums_of_many_terms_in_a_row,
        "%x[b,j]: f32[B=6, J=300] = nest sin(f32(idx(17*b + 3*j)))\n"
        "%y[k,j]: f32[K=3, J=300] = nest cos(f32(idx(7*k + 2*j)))\n"
        "%m[b]: f32[B=6] = nest max[j: J=300] %x[b,j] ; m.dt:1\n"
        "%p[b,k]: f32[B=6, K=3] = nest sum[j: J=300] (%x[b,j] - %m[b]) * %y[k,j] + 1.0 ; m.dt:1\n"
        "%q[b,k]: f32[B=6, K=3] = nest %p[b,k] * %p[b,2 - k] ; m.dt:1\n"
        "tap output \"q\" %q\n")

PROGRAM(sums_without_rows, "%x[b,d]: f32[B=40, D=96] = nest sin(f32(idx(17*b + 3*d)))\n"
                           "%g[d]: f32[D=96] = nest sum[b: B=40] %x[b,d] * %x[b,d]\n"
                           "%y[b,d]: f32[B=40, D=96] = nest cos(f32(idx(17*b + 3*d)))\n"
                           "%p[b]: f32[B=40] = nest max[d: D=96] %y[b,d]\n"
                           "%w[h]: f32[H=5000] = nest sin(f32(idx(h)))\n"
                           "%s: f32 = nest sum[h: H=5000] exp(%w[h])\n"
                           "%z[f,c]: f32[F=33, C=4] = nest sin(f32(idx(3*f + c)))\n"
                           "%q[f]: f32[F=33] = nest prod[c: C=4] %z[f,c]\n"
                           "tap output \"g\" %g\ntap output \"p\" %p\ntap output \"s\" %s\ntap output \"q\" %q\n")

PROGRAM(rows_longer_than_a_cache, "%x[b,d]: f32[B=3, D=12000] = nest sin(f32(idx(17*b + 3*d)))\n"
                                  "%m[b]: f32[B=3] = nest max[d: D=12000] %x[b,d] ; m.dt:1\n"
                                  "%n[b,d]: f32[B=3, D=12000] = nest %x[b,d] - %m[b] ; m.dt:1\n"
                                  "%s[b]: f32[B=3] = nest sum[d: D=12000] %n[b,d] ; m.dt:1\n"
                                  "%o[b,d]: f32[B=3, D=12000] = nest %n[b,11999 - d] * 0.5 + %s[b] / 12000.0 ; m.dt:1\n"
                                  "%g[d]: f32[D=12000] = nest sum[b: B=3] %o[b,d] ; m.dt:1\n"
                                  "tap output \"g\" %g\n")

PROGRAM(rows_of_four, "%x[b,t,d]: f32[B=37, T=11, D=4] = nest sin(f32(idx(17*b + 5*t + 3*d)))\n"
                      "%m[b,t]: f32[B=37, T=11] = nest max[d: D=4] %x[b,t,d] ; m.dt:1\n"
                      "%e[b,t]: f32[B=37, T=11] = nest sum[d: D=4] exp(%x[b,t,d] - %m[b,t]) ; m.dt:1\n"
                      "%l: f32 = nest sum[b: B=37, t: T=11] log(%e[b,t]) + %m[b,t] ; m.dt:1\n"
                      "tap output \"l\" %l\ntap output \"e\" %e\n")

PROGRAM(products_take_the_blas_or_loops,
        DATA "%q[b,t,f]: f32[B=2, T=6, F=12] = nest sum[d: D=8] %x[b,t,d] * %w[d,f]\n"
             "%qt[f,t,b]: f32[F=12, T=6, B=2] = nest sum[d: D=8] %x[b,t,d] * %w[d,f]\n"
             "%dw[d,f]: f32[D=8, F=12] = nest sum[b: B=2, t: T=6] %x[b,t,d] * %q[b,t,f]\n"
             "%s[b,t,u]: f32[B=2, T=6, U=6] = nest sum[f: F=12] %q[b,t,f] * %q[b,u,f]\n"
             "%o[b,t,d]: f32[B=2, T=6, D=8] = nest sum[u: U=6] %s[b,t,u] * %x[b,u,d]\n"
             "%k[t,u]: f32[T=6, U=6] = nest sum[b: B=2, f: F=12] %q[b,t,f] * %q[b,u,f]\n"
             "%v[b,t]: f32[B=2, T=6] = nest sum[f: F=12] %q[b,t,f] * %w[0,f]\n"
             "tap output \"qt\" %qt\ntap output \"dw\" %dw\ntap output \"s\" %s\ntap output \"o\" %o\ntap output \"k\" %k\n"
             "tap output \"v\" %v\n")

#define TANH(x) "tanh(0.7978845608 * (" x " + 0.044715 * " x " * " x " * " x "))"
#define GELU(x) "0.5 * " x " * (1.0 + " TANH(x) ")"
#define GELU_SLOPE(x)                                                                                                            \
  "(0.5 * (1.0 + " TANH(x) ") + 0.5 * " x " * (1.0 - " TANH(x) " * " TANH(x) ") * 0.7978845608 * (1.0 + 0.134145 * " x " * " x   \
                                                                             "))"

PROGRAM(products_with_a_bias_and_gelu_behind_them,
        "%x[b,d]: f32[B=5, D=24] = nest sin(f32(idx(17*b + 3*d)))\n"
        "%w[d,f]: f32[D=24, F=40] = nest cos(f32(idx(7*d + 2*f))) * 0.2\n"
        "%c[f]: f32[F=40] = nest sin(f32(idx(5*f)))\n"
        "%a[b,f]: f32[B=5, F=40] = nest sum[d: D=24] %x[b,d] * %w[d,f] ; m.dt:1\n"
        "%ga[b,f]: f32[B=5, F=40] = nest " GELU(
            "%a[b,f]") " ; m.dt:1\n"
                       "%p[b,f]: f32[B=5, F=40] = nest sum[d: D=24] %x[b,d] * %w[d,f] ; m.dt:2\n"
                       "%q[b,f]: f32[B=5, F=40] = nest %p[b,f] + %c[f] ; m.dt:2\n"
                       "%gq[b,f]: f32[B=5, F=40] = nest " GELU(
                           "%q[b,f]") " ; m.dt:2\n"
                                      "%r[b,f]: f32[B=5, F=40] = nest sum[d: D=24] %x[b,d] * %w[d,f] ; m.dt:3\n"
                                      "%s[b,f]: f32[B=5, F=40] = nest %r[b,f] + %c[f] ; m.dt:3\n"
                                      "%h[b,f]: f32[B=5, F=40] = nest sum[d: D=24] %x[b,d] * %w[d,f] ; m.dt:4\n"
                                      "%gh[b,f]: f32[B=5, F=40] = nest " GELU(
                                          "%h[b,f]") " ; m.dt:4\n"
                                                     "%dh[b,f]: f32[B=5, F=40] = nest sum[d: D=24] %x[b,d] * %w[d,f] ; m.dt:5\n"
                                                     "%dq[b,f]: f32[B=5, F=40] = nest %dh[b,f] * " GELU_SLOPE(
                                                         "%q[b,f]") " ; m.dt:5\n"
                                                                    "tap output \"a\" %a\ntap output \"ga\" %ga\ntap output "
                                                                    "\"q\" %q\ntap output \"gq\" %gq\ntap output \"s\" %s\n"
                                                                    "tap output \"gh\" %gh\ntap output \"dq\" %dq\n")

PROGRAM(windows_guards_and_values,
        DATA "%h[b,t,d]: f32[B=2, T=6, D=8] = nest (%x[b,t - 1,d] else 0.5) + (%x[b,t,(d + 3) % 8] else 0.0) * 2.0\n"
             "%c[b,y,f]: f32[B=2, Y=3, F=12] = nest sum[p: P=2, d: D=8] (%x[b,2*y + p - 1,d] else 0.0) * %w[d,f]\n"
             "%z[b,t]: f32[B=2, T=6] = nest where(idx(t) > 2 and %x[b,t,0] > 0.0, log(%x[b,t,0]), -inf)\n"
             "%l[n,d]: f32[N=5, D=8] = gather %x[1,%e[n],d]\n"
             "%o[n,d]: f32[N=5, D=8] = gather (%x[1,%e[n] + 3,d] else 7.0)\n"
             "%a[v,d]: f32[V=6, D=8] = scatter_add[n: N=5] into [%e[n], d] %l[n,d] * 2.0\n"
             "%p[b,t,i,j]: f32[B=2, T=6, 2, 3] = nest %x[b,t,3*i + j + 1]\n"
             "tap output \"h\" %h\ntap output \"c\" %c\ntap output \"z\" %z\ntap output \"l\" %l\ntap output \"o\" %o\n"
             "tap output \"a\" %a\ntap output \"p\" %p\n")

PROGRAM(selection_scans_and_random_numbers,
        DATA "%i[b,t]: i32[B=2, T=6] = argmax[d: D=8] %x[b,t,d]\n"
             "%v[b,t,j]: f32[B=2, T=6, J=3], %k[b,t,j]: i32[B=2, T=6, J=3] = topk[d: D=8] %x[b,t,d]\n"
             "%s[b,t,d]: f32[B=2, T=6, D=8] = scan[t] %x[b,t,d] * 0.5\n"
             "%r[b,t,d]: f32[B=2, T=6, D=8] = scan reverse[d] %x[b,t,d]\n"
             "%step: i64 = state \"step\"\n"
             "%u[b,t]: f32[B=2, T=6] = random uniform \"drop\" step %step\n"
             "%g[b,t]: f32[B=2, T=6] = random normal \"noise\" step %step\n"
             "tap output \"i\" %i\ntap output \"v\" %v\ntap output \"k\" %k\ntap output \"s\" %s\ntap output \"r\" %r\n"
             "tap output \"u\" %u\ntap output \"g\" %g\n")

/* A NaN comes before everything, the first of several first: row 0 begins with one, 1 ends with two, 2 has none, 3 only these. */
PROGRAM(selection_puts_nan_first,
        "%x[b,d]: f32[B=4, D=40] = nest where(idx(b) == 0 and idx(d) == 0 or idx(b) == 1 and idx(d) > 37 or idx(b) == 3, nan, "
        "sin(f32(idx(17*b + 3*d))))\n"
        "%y[b,d]: f64[B=4, D=40] = nest f64(%x[b,d])\n"
        "%i[b]: i32[B=4] = argmax[d: D=40] %x[b,d]\n"
        "%k[b]: i32[B=4] = argmax[d: D=40] %y[b,d]\n"
        "%m[b]: f32[B=4] = nest max[d: D=40] %x[b,d]\n"
        "%v[b,j]: f32[B=4, J=3], %w[b,j]: i32[B=4, J=3] = topk[d: D=40] %x[b,d]\n"
        "tap output \"i\" %i\ntap output \"k\" %k\ntap output \"m\" %m\ntap output \"v\" %v\ntap output \"w\" %w\n")

PROGRAM(repeats_carry_stack_and_shift,
        DATA "%y[t]: f32[T=6] = nest %x[0,t,0]\n%z[t]: f32[T=6] = nest %x[1,t,1]\n"
             "%yf: f32[T=6], %zf: f32[T=6], %ys: f32[L=3, T=6], %zs: f32[L=3, T=6] = repeat %l < L=3 carry(%y1 = %y, %z1 = %z) "
             "with(%c: f32[B=2, T=6, D=8] = %x) {\n"
             "  %n[t]: f32[T=6] = nest %y1[t] * 0.5 + %c[1,t,2] + f32(%l)\n"
             "  yield %n, %y1 stack(%n, %z1)\n}\n"
             "%b: f32[T=6] = repeat reverse %l2 < L=3 carry(%b1 = %zf) each(%s = %ys) {\n"
             "  %m[t]: f32[T=6] = nest %b1[t] * 0.25 + %s[t]\n  yield %m\n}\n"
             "tap output \"yf\" %yf\ntap output \"zf\" %zf\ntap output \"ys\" %ys\ntap output \"zs\" %zs\ntap output \"b\" %b\n")

#define QKV                                                                                                                      \
  "%q[b,t,h,r,k]: f32[B=2, T=6, H=2, R=2, K=4] = nest sin(f32(idx(17*b + 5*t + 3*h + 11*r + k)))\n"                              \
  "%k[b,u,h,k]: f32[B=2, U=6, H=2, K=4] = nest cos(f32(idx(5*b + 7*u + 3*h + 2*k)))\n"                                           \
  "%v[b,u,h,e]: f32[B=2, U=6, H=2, E=3] = nest sin(f32(idx(3*b + 2*u + 13*h + 5*e)))\n"                                          \
  "%bias[h,t,u]: f32[H=2, T=6, U=6] = nest cos(f32(idx(h + 3*t + 5*u)))\n"                                                       \
  "%da[b,t,h,r,e]: f32[B=2, T=6, H=2, R=2, E=3] = nest cos(f32(idx(b + 3*t + 2*h + 7*r + e)))\n"
#define READS "q %q[b,t,h,r,k] k %k[b,u,h,k] v %v[b,u,h,e]"
#define TAPS "tap output \"a\" %a\ntap output \"lse\" %lse\ntap output \"dq\" %dq\ntap output \"dk\" %dk\ntap output \"dv\" %dv\n"
#define ATTENTION(score, wrt, db)                                                                                                \
  QKV "%a[b,t,h,r,e]: f32[B=2, T=6, H=2, R=2, E=3], %lse[b,t,h,r]: f32[B=2, T=6, H=2, R=2] = attention keys[u: U=6] dot[k: "     \
      "K=4] " READS " score " score "\n"                                                                                         \
      "%dq: f32[B=2, T=6, H=2, R=2, K=4], %dk: f32[B=2, U=6, H=2, K=4], %dv: f32[B=2, U=6, H=2, E=3]" db                         \
      " = attention_grad over[b: B=2, t: T=6, h: H=2, r: R=2, e: E=3] keys[u: U=6] dot[k: K=4] " READS                           \
      " a %a[b,t,h,r,e] lse %lse[b,t,h,r] da %da[b,t,h,r,e] score " score wrt "\n" TAPS

PROGRAM(attention_causal_with_grouped_heads, ATTENTION("where(idx(u) <= idx(t), dot * 0.5, -inf)", "", ""))

PROGRAM(attention_with_a_window_and_rows_that_see_nothing,
        ATTENTION("where(idx(t - u) >= 1 and idx(t - u) < 3, dot * 0.5, -inf)", "", ""))

PROGRAM(attention_with_a_bias_and_a_soft_cap,
        ATTENTION("tanh(dot * 0.5 + %bias[h,t,u]) * 3.0", " wrt(%bias)", ", %db: f32[H=2, T=6, U=6]") "tap output \"db\" %db\n")

PROGRAM(attention_over_two_key_indices,
        "%q[b,t,k]: f32[B=2, T=4, K=4] = nest sin(f32(idx(17*b + 5*t + k)))\n"
        "%k[b,u,w,k]: f32[B=2, U=3, W=2, K=4] = nest cos(f32(idx(5*b + 7*u + 3*w + 2*k)))\n"
        "%v[b,u,w,e]: f32[B=2, U=3, W=2, E=3] = nest sin(f32(idx(3*b + 2*u + 13*w + 5*e)))\n"
        "%da[b,t,e]: f32[B=2, T=4, E=3] = nest cos(f32(idx(b + 3*t + e)))\n"
        "%a[b,t,e]: f32[B=2, T=4, E=3], %lse[b,t]: f32[B=2, T=4] = attention keys[u: U=3, w: W=2] dot[k: K=4] q %q[b,t,k] k "
        "%k[b,u,w,k] "
        "v %v[b,u,w,e] score where(idx(u + w) != 1, dot, -inf)\n"
        "%dq: f32[B=2, T=4, K=4], %dk: f32[B=2, U=3, W=2, K=4], %dv: f32[B=2, U=3, W=2, E=3] = attention_grad over[b: B=2, t: "
        "T=4, e: "
        "E=3] keys[u: U=3, w: W=2] dot[k: K=4] q %q[b,t,k] k %k[b,u,w,k] v %v[b,u,w,e] a %a[b,t,e] lse %lse[b,t] da %da[b,t,e] "
        "score "
        "where(idx(u + w) != 1, dot, -inf)\n" TAPS)

/* More queries than a block has, keys that begin after the first. */
PROGRAM(
    attention_in_several_blocks,
    "%q[t,k]: f32[T=100, K=4] = nest sin(f32(idx(5*t + k)))\n"
    "%k[u,k]: f32[U=100, K=4] = nest cos(f32(idx(7*u + 2*k)))\n"
    "%v[u,e]: f32[U=100, E=3] = nest sin(f32(idx(2*u + 5*e)))\n"
    "%da[t,e]: f32[T=100, E=3] = nest cos(f32(idx(3*t + e)))\n"
    "%a[t,e]: f32[T=100, E=3], %lse[t]: f32[T=100] = attention keys[u: U=100] dot[k: K=4] q %q[t,k] k %k[u,k] v %v[u,e] score "
    "where(idx(u) <= idx(t) and idx(t) < idx(u + 30), dot, -inf)\n"
    "%dq: f32[T=100, K=4], %dk: f32[U=100, K=4], %dv: f32[U=100, E=3] = attention_grad over[t: T=100, e: E=3] keys[u: U=100] "
    "dot[k: K=4] q %q[t,k] k %k[u,k] v %v[u,e] a %a[t,e] lse %lse[t] da %da[t,e] score where(idx(u) <= idx(t) and idx(t) < "
    "idx(u + "
    "30), dot, -inf)\n" TAPS)

/* Read at other than plain indices: backwards, shifted. */
#define SHIFTED "q %q[b,5 - t,k] k %k[b,u,k + 1] v %v[b,6 - u,2 - e]"
PROGRAM(attention_of_shifted_reads,
        "%q[b,t,k]: f32[B=2, T=6, K=4] = nest sin(f32(idx(17*b + 5*t + k)))\n"
        "%k[b,u,k]: f32[B=2, U=7, K=5] = nest cos(f32(idx(5*b + 7*u + 2*k)))\n"
        "%v[b,u,e]: f32[B=2, U=7, E=3] = nest sin(f32(idx(3*b + 2*u + 5*e)))\n"
        "%da[b,t,e]: f32[B=2, T=6, E=3] = nest cos(f32(idx(b + 3*t + e)))\n"
        "%a[b,t,e]: f32[B=2, T=6, E=3], %lse[b,t]: f32[B=2, T=6] = attention keys[u: U=7] dot[k: K=4] " SHIFTED
        " score where(idx(u) <= idx(t + 1), dot, -inf)\n"
        "%dq: f32[B=2, T=6, K=4], %dk: f32[B=2, U=7, K=5], %dv: f32[B=2, U=7, E=3] = attention_grad over[b: B=2, t: T=6, e: E=3] "
        "keys[u: U=7] dot[k: K=4] " SHIFTED
        " a %a[b,t,e] lse %lse[b,t] da %da[b,t,e] score where(idx(u) <= idx(t + 1), dot, -inf)\n" TAPS)

PROGRAM(
    scalar_functions_agree,
    "%x[i]: f32[I=64] = nest f32(idx(i) - 32) * 0.375\n"
    "%a[i]: f32[I=64] = nest exp(%x[i]) / (1.0 + exp(%x[i])) + tanh(%x[i]) + sigmoid(%x[i]) + erf(%x[i] * 0.3)\n"
    "%b[i]: f32[I=64] = nest sin(%x[i]) + cos(%x[i] * 3.0) + log(abs(%x[i]) + 0.001) + log1p(abs(%x[i]) * 0.1) + "
    "sqrt(abs(%x[i]))\n"
    "%c[i]: f32[I=64] = nest floor(%x[i]) + pow(%x[i], 2.0) + pow(abs(%x[i]) + 1.0, 0.25) + max(%x[i], 0.0) - min(%x[i], 1.0)\n"
    "%d[i]: i32[I=64] = nest idx(i - 32) // 5 * 100 + idx(i - 32) % 5 + i32(%x[i])\n"
    "%e[i]: f64[I=64] = nest exp(f64(%x[i])) * 0.1d\n"
    "tap output \"a\" %a\ntap output \"b\" %b\ntap output \"c\" %c\ntap output \"d\" %d\ntap output \"e\" %e\n")
