#!/usr/bin/env bash
# Prints a .dt model of N distinct statements over a mesh of four ranks: a chain of small products and maps whose
# parameters are split by hand, fans of maps that are added up again, and blocks of several statements, each called once.
# Nothing repeats, so that every statement is a line of its own in every pass; bench/scale.sh times dtc on it.
# Usage: tests/bench/statements.sh N [KIND]     KIND: mixed (default), chain, fan, params, deep, blocks
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
  BEGIN {
    print "mesh pod(data = 2, model = 2)\ndim B = 8, D = 16, F = 32\ninput in0: f32[B @ data, D] = table(\"x.npy\")"
    print "x0[b,d] = in0[b,d]"
    for (n = x = p = 0; n < N; round++) {
      if (KIND == "chain" || KIND == "mixed") for (i = 0; i < 4; i++) map()
      if (KIND == "fan" || KIND == "mixed") fan(KIND == "fan" ? 64 : 5)
      if (KIND == "params" || KIND == "mixed") product()
      if (KIND == "deep" || KIND == "mixed") gain()
      if (KIND == "blocks" || KIND == "mixed") call()
    }
    printf "loss = mean[b,d](x%d[b,d] * x%d[b,d])\n", x, x
    print "train loss { optimizer = adamw(lr = 1e-3)\n clip = 1.0 }"
  }'
