#!/usr/bin/env bash
# Prints a .dt model of N distinct statements over a mesh of four ranks: a chain of small products and maps whose
# parameters are split by hand, fans of maps that are added up again, and blocks of several statements, each called once.
# Nothing repeats, so that every statement is a line of its own in every pass; bench/scale.sh times dtc on it.
# Usage: tests/bench/statements.sh N [KIND]
#   mixed (default), chain, fan, params, norms, blocks    as said; mixed has some of each
#   body                                                  one block of N statements, repeated 4 times
#   calls                                                 one block, called often
#   sums                                                  statements that add up 200 tensors each
#   dims                                                  every product over a dim of its own
#   shown                                                 every statement is a metric, too
set -euo pipefail
awk -v N="$1" -v KIND="${2:-mixed}" '
  # Each of these appends statements to the chain: x[i] from x[i - 1]. They return nothing; `n` counts statements.
  function product(    w) {
    printf "param w%d: f32[D, F @ model] = normal(0.02)\nparam v%d: f32[F @ model, D] = normal(0.02)\n", p, p
    printf "h%d[b,f] = relu(sum[d](x%d[b,d] * w%d[d,f]))\n", p, x, p
    printf "x%d[b,d] = x%d[b,d] + sum[f](h%d[b,f] * v%d[f,d])\n", x + 1, x, p, p
    p++; x++; n += 4
  }
  function map() {
    printf "x%d[b,d] = x%d[b,d] * %d.5 / %d + tanh(x%d[b,d])\n", x + 1, x, x % 7 + 1, x % 5 + 8, x
    x++; n++
  }
  function fan(width,    i) {
    for (i = 0; i < width; i++) printf "f%d_%d[b,d] = x%d[b,d] * %d.0 + sin(x%d[b,d])\n", x, i, x, i + 1, x
    printf "x%d[b,d] = (f%d_0[b,d]", x + 1, x
    for (i = 1; i < width; i++) printf " + f%d_%d[b,d]", x, i
    printf ") / %d.0\n", width
    x++; n += width + 1
  }
  function gain() {
    printf "param g%d: f32[D] = ones\n", p
    printf "x%d[b,d] = rmsnorm[d](x%d[b,d]) * g%d[d]\n", x + 1, x, p
    p++; x++; n += 2
  }
  function call(    k) {
    printf "block b%d(x: f32[B, D]) -> y {\n  param w: f32[D, F @ model] = normal(0.02)\n", p
    printf "  param v: f32[F @ model, D] = normal(0.02)\n  param g: f32[D] = ones\n"
    printf "  a[b,d] = rmsnorm[d](x[b,d]) * g[d]\n  h[b,f] = gelu(sum[d](a[b,d] * w[d,f]))\n"
    printf "  y[b,d] = x[b,d] + sum[f](h[b,f] * v[f,d])\n}\n"
    printf "x%d = b%d(x%d)\n", x + 1, p, x
    p++; x++; n += 8
  }
  # x must be a value of the program with a parameter before it, so that all have gradients.
  function begin() {
    print "mesh pod(data = 2, model = 2)\ndim B = 8, D = 16, F = 32, L = 4\ninput in0: f32[B @ data, D] = table(\"x.npy\")"
    print "param g: f32[D] = ones\nx0[b,d] = in0[b,d] * g[d]"
  }
  function end() {
    printf "loss = mean[b,d](x%d[b,d] * x%d[b,d])\n", x, x
    print "train loss { optimizer = adamw(lr = 1e-3)\n clip = 1.0 }"
  }
  function body(    i) {
    print "block f(x0: f32[B, D]) -> y {"
    for (; n < N - 1;) { product(); gain(); map(); map() }
    printf "y[b,d] = x%d[b,d] * 0.5\n}\n", x
    begin()
    printf "x%d = repeat(L) f(x0)\n", x
  }
  function calls(    i) {
    print "block f(x: f32[B, D]) -> y {\n  param w: f32[D, F @ model] = normal(0.02)\n  param v: f32[F @ model, D] = normal(0.02)"
    print "  h[b,f] = gelu(sum[d](x[b,d] * w[d,f]))\n  y[b,d] = x[b,d] + sum[f](h[b,f] * v[f,d])\n}"
    begin()
    for (; n < N; n++) { printf "x%d = f(x%d)\n", x + 1, x; x++ }
  }
  function own_dim() {
    printf "dim E%d = %d\nparam w%d: f32[D, E%d @ model] = normal(0.02)\n", x, 8 + x, x, x
    printf "x%d[b,d] = x%d[b,d] + sum[e,c](x%d[b,c] * w%d[c,e] * w%d[d,e])\n", x + 1, x, x, x, x
    x++; n += 3
  }
  function shown() {
    map()
    printf "metric m%d = mean[b,d](x%d[b,d])\n", x, x
    n++
  }
  BEGIN {
    if (KIND == "body") { body(); end(); exit }
    if (KIND == "calls") { calls(); end(); exit }
    begin()
    for (n = x = p = 0; n < N; round++) {
      if (KIND == "chain" || KIND == "mixed") for (i = 0; i < 4; i++) map()
      if (KIND == "fan" || KIND == "mixed") fan(KIND == "fan" ? 64 : 5)
      if (KIND == "params" || KIND == "mixed") product()
      if (KIND == "norms" || KIND == "mixed") gain()
      if (KIND == "blocks" || KIND == "mixed") call()
      if (KIND == "sums") fan(200)
      if (KIND == "dims") own_dim()
      if (KIND == "shown") shown()
    }
    end()
  }'
