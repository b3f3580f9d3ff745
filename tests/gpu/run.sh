#!/usr/bin/env bash
# What needs a GPU: oracles, a training step of a GPT-2 of 124M parameters beside PyTorch's where that is installed, products beside
# cuBLASLt alone, kernels beside a copy, compute-sanitizer. Prints one table, each row as soon as it is known; less than 8 minutes on
# one GPU, whatever fails or hangs. Exit code 1 when a result is wrong or missing (times are only shown), 2 when there is no GPU.
#
#   tests/gpu/run.sh [BUILD]              builds, compiles and runs, on one machine
#   tests/gpu/run.sh --prepare [BUILD]    builds and compiles all programs into BUILD/gpu; needs nvcc, and no GPU
#   tests/gpu/run.sh --run [BUILD]        runs what BUILD/gpu holds; needs a GPU, this folder tree, and no compiler
#
# Variables: PYTHON names a python with PyTorch; ARCH (sm_90) and GPUS (1) say what to prepare for where no GPU can be asked; LIMIT is
# the number of seconds for all (470).
# shellcheck disable=SC2317  # functions that `make` and `trap` call
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
mode=both
case ${1:-} in --prepare | --run) mode=${1#--} && shift ;; esac
build=$(mkdir -p "${1:-$root/build-gpu}" && cd "${1:-$root/build-gpu}" && pwd) || exit 1
made=$build/gpu python=${PYTHON:-python3}
mkdir -p "$made/log" "$made/lib"
present=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
gpus=${GPUS:-$((present ? present : 1))}
arch=${ARCH:-sm_90}
[ "$present" -gt 0 ] && arch=sm_$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '. ')
[ "$present" -gt 0 ] || [ "$mode" = prepare ] || { echo "tests/gpu/run.sh: no GPU is visible (nvidia-smi -L)" >&2; exit 2; }

oracles=(mlp conv charlm llama) checked=(mlp conv charlm) variants=(model)
[ "$gpus" -ge 3 ] && variants+=(data3)
[ "$gpus" -ge 4 ] && variants+=(weights4)
B=8 T=1024

# ---- without a GPU -----------------------------------------------------------------------------------------------------------

# NAME COMMAND...: makes $made/NAME in the background, as many at once as there are cores. What fails is missed when it is to run.
make() {
  while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
  { "${@:2}" >"$made/log/$1" 2>&1 || { rm -f "$made/$1" && echo "tests/gpu/run.sh: $1 was not made:" && tail -n 20 "$made/log/$1"; } >&2; } &
}
program() { "$build/dtc" "$2" --target=cuda --arch="$arch" "${@:3}" -o "$made/$1"; } # NAME FILE.dt OPTION...
bench() {                                                                             # NAME: a kernel of its own, with bench.cu in place of the runtime
  local lt
  lt=$("$build/dtc" --version -v | sed -n 's/^cuBLASLt: //p')
  "$build/dtc" "$root/tests/gpu/kernels/$1.dt" --emit=cuda="$made/log/$1.cu" &&
    "$("$build/dtc" --version -v | sed -n 's/^CUDA compiler: //p')" -std=c++20 -O3 -arch="$arch" -I"$root/runtime/include" \
      "$made/log/$1.cu" "$root/tests/gpu/bench.cu" "$lt" -Xlinker -rpath -Xlinker "$(dirname "$lt")" -o "$made/$1"
}

prepare() {
  local model variant file
  cmake -G Ninja -B "$build" -S "$root" -DDTC_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES="${arch#sm_}" >"$made/log/cmake" 2>&1 ||
    { cat "$made/log/cmake" >&2 && return 1; }
  ninja -C "$build" dtc dtrt_cuda dtc_gpu_tests >"$made/log/ninja" 2>&1 || { tail -n 40 "$made/log/ninja" >&2 && return 1; }
  cp "$build/tests/dtc_gpu_tests" "$made/"
  ldd "$made/dtc_gpu_tests" | awk '/jansson/ { print $3 }' | xargs -r cp -t "$made/lib"
  for model in "${oracles[@]}"; do
    for variant in "${variants[@]}"; do
      make "$model-$variant" program "$model-$variant" "$root/tests/peers/numeric/$model/$variant.dt"
    done
  done
  make gpt-f32 program gpt-f32 "$root/tests/bench/gpt2.dt" --mesh data=1,model=1 --set "B=$B,T=$T"
  make gpt-tf32 program gpt-tf32 "$root/tests/bench/gpt2.dt" --mesh data=1,model=1 --set "B=$B,T=$T" --tf32
  for file in "$root"/tests/gpu/kernels/*.dt; do make "$(basename "$file" .dt)" bench "$(basename "$file" .dt)"; done
  wait
}
if [ "$mode" != run ]; then prepare || exit 1; fi
if [ "$mode" = prepare ]; then
  missing=0
  for name in dtc_gpu_tests gpt-f32 gpt-tf32 mlp-model conv-model charlm-model llama-model map; do [ -x "$made/$name" ] || missing=1; done
  exit $missing
fi

# ---- with one ------------------------------------------------------------------------------------------------------------------

work=$(mktemp -d)
table=$work/table failed=0 limit=${LIMIT:-470}
: >"$table"
show() { awk -F'|' '{ printf "%-38s %16s  %-22s %s\n", $1, $2, $3, $4 }' "$@"; }
finish() {
  printf '\n%s, %s GPU(s), %d s\n' "$device" "$present" "$SECONDS"
  show "$table"
  rm -rf "$work"
}
device=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
trap finish EXIT
trap 'failed=1; exit 1' INT TERM

row() { printf '%s|%s|%s|%s\n' "$1" "$2" "${3:-}" "${4:-}" | tee -a "$table" | show; }
value() { sed -n "s/.*\"$1\": \"\{0,1\}\([^,\"}]*\).*/\1/p"; } # of JSON lines
div() { awk -v a="$1" -v b="$2" -v f="${3:-%.2f}" 'BEGIN { if (b > 0) printf f, a / b; else printf "-" }'; }
# SECONDS COMMAND...: within these and what is left of the limit
within() {
  local left=$((limit - SECONDS))
  [ "$left" -lt "$1" ] || left=$1
  [ "$left" -gt 2 ] || return 124
  timeout -k 5 "$left" "${@:2}"
}
lost() { # NAME LOG CODE: a row for what did not work
  failed=1
  if [ "$3" = 124 ]; then row "$1" "NO TIME"; else row "$1" FAILED "exit $3"; fi
  tail -n 25 "$2" >&2
}
check() { # NAME SECONDS COMMAND...: a row that says whether it went well
  local code=0
  within "$2" "${@:3}" >"$work/log" 2>&1 || code=$?
  if [ $code = 0 ]; then row "$1" ok; else lost "$1" "$work/log" $code; fi
}

# Libraries that the loader does not find: those of BUILD/gpu, and CUDA's and NCCL's among Python's packages.
if ldd "$made/gpt-f32" 2>/dev/null | grep -q 'not found'; then
  folders=$("$python" -c 'import glob, site; print(":".join(g for s in site.getsitepackages() for g in glob.glob(s + "/nvidia/*/lib")))' 2>/dev/null)
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$made/lib:$folders
fi

models='*on_one_rank'
[ "$gpus" -ge 3 ] && [ -x "$made/mlp-data3" ] && models="$models:*over_three"
[ "$gpus" -ge 4 ] && [ -x "$made/mlp-weights4" ] && models="$models:*over_four"
check "oracles ($gpus GPU)" 120 env DTC_PROGRAMS="$made" DTC_TESTS="$root/tests" "$made/dtc_gpu_tests" --gtest_filter="$models"

# ---- GPT-2, 124M parameters
tokens=$((B * T)) parameters=124000000
head -c 8000000 /dev/urandom >"$work/corpus.bin" # tokens are its bytes
products="$tokens 768 768 96 768 768 $tokens 48 $tokens 3072 768 24 $tokens 768 3072 24 768 3072 $tokens 24
  $tokens 50257 768 1 $tokens 768 50257 1 50257 768 $tokens 1"
# shellcheck disable=SC2086
within 40 "$made/map" products $products >"$work/products.json" 2>"$work/log" || lost "products of cuBLASLt" "$work/log" $?
case $device in # peak TFLOP/s, f32 and TF32 without sparsity, from the data sheets (of H100: SXM)
*H100* | *H200*) peak_f32=67 peak_tf32=494 ;;
*A100*) peak_f32=19.5 peak_tf32=156 ;;
*) peak_f32=0 peak_tf32=0 ;;
esac

gpt() { # f32 or tf32, PEAK
  local name=$1 peak=$2 ms='' gflops alone peer code=0 precision=()
  [ "$name" = tf32 ] && precision=(--tf32)
  within 60 "$made/gpt-$name" --steps 16 --data-dir "$work" --log "$work/$name.jsonl" >"$work/log" 2>&1 || code=$?
  if [ $code = 0 ]; then
    ms=$(tail -n +5 "$work/$name.jsonl" | value ms | sort -n | awk '{ v[NR] = $1 } END { if (NR) printf "%.2f", v[int((NR + 1) / 2)] }')
    row "GPT-2 124M, $name" "$ms ms" "$(div "${tokens}000" "$ms" %.0f) tokens/s" \
      "MFU $(awk -v n=$parameters -v t="$T" -v k=$tokens -v ms="$ms" -v p="$peak" \
        'BEGIN { if (p > 0) printf "%.1f%%", 100 * k * (6 * n + 12 * 12 * 768 * t) / (ms * 1e-3) / (p * 1e12); else printf "-" }')"
    within 60 env DTRT_PROFILE=1 "$made/gpt-$name" --steps 6 --data-dir "$work" >"$work/profile-$name" 2>&1 || code=$?
  fi
  if [ $code = 0 ]; then
    gflops=$(sed -n 's/^ *products.* \([0-9.]*\) GFLOP\/s.*/\1/p' "$work/profile-$name" | head -n 1)
    alone=$(value "${name}_gflops" <"$work/products.json")
    row "products, $name" "${gflops:--} GFLOP/s" "cuBLASLt ${alone:--}" "$(div "${gflops:-0}" "${alone:-0}")"
    grep -E '^ +(attention|elementwise|optimizer|other) ' "$work/profile-$name" | head -n 4 |
      while read -r part ms_part unit rest; do row "  $part, $name" "$ms_part $unit" "$(echo "$rest" | tr -s ' ')"; done
  else
    lost "GPT-2 124M, $name" "$work/log" $code
  fi
  [ "$torch" = yes ] || return
  within 90 "$python" "$root/tests/gpu/peer.py" $B $T "${precision[@]}" >"$work/peer" 2>"$work/log"
  peer=$(value ms <"$work/peer" | sort -n | head -n 1) # eager, then compiled
  if [ -n "$peer" ]; then row "GPT-2 124M, $name, PyTorch" "$peer ms" "PyTorch / dtc" "$(div "$peer" "${ms:-0}")"; else tail -n 5 "$work/log" >&2; fi
}
torch=no
within 60 "$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null && torch=yes
[ $torch = yes ] || row PyTorch "not installed"
gpt f32 "$peak_f32"
gpt tf32 "$peak_tf32"

# ---- kernels beside a copy
for file in "$root"/tests/gpu/kernels/*.dt; do
  name=$(basename "$file" .dt) bytes=$(sed -n '1s/.*bytes = \([0-9]*\).*/\1/p' "$file") code=0
  within 20 "$made/$name" "$bytes" >"$work/kernel.json" 2>"$work/log" || code=$?
  if [ $code != 0 ]; then lost "kernel $name" "$work/log" $code && continue; fi
  row "kernel $name" "$(value gb_per_s <"$work/kernel.json") GB/s" "copy's time / its own" "$(value ratio <"$work/kernel.json")"
done

# ---- compute-sanitizer: last, it takes what time is left
command -v compute-sanitizer >/dev/null || row compute-sanitizer "not installed"
for tool in memcheck racecheck synccheck initcheck; do
  command -v compute-sanitizer >/dev/null || break
  for model in "${checked[@]}"; do
    check "compute-sanitizer $tool, $model" 60 compute-sanitizer --tool $tool --target-processes all --error-exitcode 9 \
      "$made/$model-model" --steps 2 --no-graph --data-dir "$root/tests/peers/numeric/$model"
  done
done
exit $failed
