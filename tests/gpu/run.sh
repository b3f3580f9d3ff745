#!/usr/bin/env bash
# What needs a GPU: builds all, then oracles, compute-sanitizer, kernels beside a copy, products beside cuBLASLt alone, and a
# training step of a GPT-2 of 124M parameters, beside PyTorch's where that is installed. Prints one table; less than 8 minutes on
# one GPU. Exit code 1 when a result is wrong (times are only shown), 2 when there is no GPU.
# Usage: tests/gpu/run.sh [BUILD]      PYTHON=... names a python with PyTorch
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(mkdir -p "${1:-$root/build-gpu}" && cd "${1:-$root/build-gpu}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
table=$work/table failed=0
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
[ "$gpus" -gt 0 ] || { echo "tests/gpu/run.sh: no GPU is visible (nvidia-smi -L)" >&2; exit 2; }

row() { printf '%s|%s|%s|%s\n' "$1" "$2" "$3" "$4" >>"$table"; }
value() { sed -n "s/.*\"$1\": \"\{0,1\}\([^,\"}]*\).*/\1/p"; } # of one JSON line
div() { awk -v a="$1" -v b="$2" -v f="${3:-%.2f}" 'BEGIN { if (b > 0) printf f, a / b; else printf "-" }'; }
check() { # NAME LOG COMMAND...: a row that says whether it went well
  local name=$1 log=$work/$2.log
  shift 2
  if "$@" >"$log" 2>&1; then row "$name" ok "" ""; else row "$name" "FAILED" "" ""; failed=1; tail -n 30 "$log" >&2; fi
}

# ---- build -------------------------------------------------------------------------------------------------------------
cmake -G Ninja -B "$build" -S "$root" -DDTC_CUDA=ON >"$work/cmake.log" 2>&1 || { cat "$work/cmake.log" >&2; exit 1; }
ninja -C "$build" dtc dtrt_cuda dtc_gpu_tests >"$work/ninja.log" 2>&1 || { tail -n 40 "$work/ninja.log" >&2; exit 1; }
dtc=$build/dtc
arch=sm_$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '. ')
nvcc=$("$dtc" --version -v | sed -n 's/^CUDA compiler: //p')
lt=$("$dtc" --version -v | sed -n 's/^cuBLASLt: //p')

# ---- right? --------------------------------------------------------------------------------------------------------------
models='*on_one_rank'
[ "$gpus" -ge 3 ] && models="$models:*over_three"
[ "$gpus" -ge 4 ] && models="$models:*over_four"
check "oracles ($gpus GPU)" oracles "$build/tests/dtc_gpu_tests" --gtest_filter="$models"
for model in mlp conv charlm; do
  "$dtc" "$root/tests/peers/numeric/$model/model.dt" --target=cuda --arch="$arch" -o "$work/$model" >"$work/$model.log" 2>&1 ||
    { cat "$work/$model.log" >&2; exit 1; }
  command -v compute-sanitizer >/dev/null || continue
  for tool in memcheck racecheck initcheck synccheck; do
    check "compute-sanitizer $tool, $model" "$tool-$model" compute-sanitizer --tool "$tool" --target-processes all --error-exitcode 9 \
      "$work/$model" --steps 2 --no-graph --data-dir "$root/tests/peers/numeric/$model"
  done
done
command -v compute-sanitizer >/dev/null || row "compute-sanitizer" "not installed" "" ""

# ---- kernels beside a copy -------------------------------------------------------------------------------------------------
for file in "$root"/tests/gpu/kernels/*.dt; do
  name=$(basename "$file" .dt) bytes=$(sed -n '1s/.*bytes = \([0-9]*\).*/\1/p' "$file")
  "$dtc" "$file" --emit=cuda="$work/$name.cu" >/dev/null 2>"$work/$name.log" &&
    "$nvcc" -std=c++20 -O3 -arch="$arch" -I"$root/runtime/include" "$work/$name.cu" "$root/tests/gpu/bench.cu" "$lt" \
      -Xlinker -rpath -Xlinker "$(dirname "$lt")" -o "$work/$name" >>"$work/$name.log" 2>&1 &&
    "$work/$name" "$bytes" >"$work/$name.json" 2>>"$work/$name.log" || { failed=1; row "kernel $name" FAILED "" ""; cat "$work/$name.log" >&2; continue; }
  row "kernel $name" "$(value gb_per_s <"$work/$name.json") GB/s" "copy" "$(value ratio <"$work/$name.json")"
done

# ---- GPT-2, 124M parameters ------------------------------------------------------------------------------------------------
B=8 T=1024 tokens=$((8 * 1024)) parameters=124000000
head -c 8000000 /dev/urandom >"$work/corpus.bin" # tokens are its bytes
products="$tokens 768 768 96 768 768 $tokens 48 $tokens 3072 768 24 $tokens 768 3072 24 768 3072 $tokens 24
  $tokens 50257 768 1 $tokens 768 50257 1 50257 768 $tokens 1"
# shellcheck disable=SC2086
"$work/map" products $products >"$work/products.json"
device=$(value device <"$work/products.json")
case $device in # peak TFLOP/s, f32 and TF32 without sparsity, from the data sheets
*H100* | *H200*) peak_f32=67 peak_tf32=494 ;;
*A100*) peak_f32=19.5 peak_tf32=156 ;;
*) peak_f32=0 peak_tf32=0 ;;
esac

gpt() { # f32 or tf32, PEAK: builds and times it
  local name=$1 peak=$2 ms gflops alone peer precision=()
  [ "$name" = tf32 ] && precision=(--tf32)
  "$dtc" "$root/tests/bench/gpt2.dt" --mesh data=1,model=1 --set "B=$B,T=$T" --target=cuda --arch="$arch" "${precision[@]}" -o "$work/gpt-$name" \
    >"$work/gpt.log" 2>&1 && "$work/gpt-$name" --steps 16 --data-dir "$work" --log "$work/$name.jsonl" >>"$work/gpt.log" 2>&1 &&
    DTRT_PROFILE=1 "$work/gpt-$name" --steps 6 --data-dir "$work" >"$work/profile-$name" 2>&1 ||
    { failed=1; row "GPT-2 124M, $name" FAILED "" ""; tail -n 20 "$work/gpt.log" >&2; return; }
  ms=$(tail -n +5 "$work/$name.jsonl" | value ms | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }')
  gflops=$(sed -n 's/^ *products.* \([0-9.]*\) GFLOP\/s.*/\1/p' "$work/profile-$name" | head -n 1)
  alone=$(value "${name}_gflops" <"$work/products.json")
  row "products, $name" "${gflops:--} GFLOP/s" "cuBLASLt $alone" "$(div "${gflops:-0}" "$alone")"
  row "GPT-2 124M, $name" "$ms ms" "$(div "${tokens}000" "$ms" %.0f) tokens/s" \
    "MFU $(awk -v n=$parameters -v t="$T" -v k=$tokens -v ms="$ms" -v p="$peak" \
      'BEGIN { if (p > 0) printf "%.1f%%", 100 * k * (6 * n + 12 * 12 * 768 * t) / (ms * 1e-3) / (p * 1e12); else printf "-" }')"
  peer=$("${PYTHON:-python3}" "$root/tests/gpu/peer.py" $B $T "${precision[@]}" 2>"$work/peer.log" | value ms)
  [ -n "$peer" ] && row "GPT-2 124M, $name, PyTorch" "$peer ms" "PyTorch / dtc" "$(div "$peer" "$ms")"
}
gpt f32 "$peak_f32"
gpt tf32 "$peak_tf32"
"${PYTHON:-python3}" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null || row "PyTorch" "not installed" "" ""

# ---- the table -----------------------------------------------------------------------------------------------------------
printf '\n%s, %s GPU(s), %d s\n' "$device" "$gpus" "$SECONDS"
awk -F'|' '{ printf "%-38s %16s  %-22s %s\n", $1, $2, $3, $4 }' "$table"
exit $failed
