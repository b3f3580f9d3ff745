#!/usr/bin/env bash
# Times the planning of Llama 3 405B (examples/llama3_405b.dt), text to schedule, on meshes of 8 to 16,384 devices, and
# with 2 and 126 layers: seconds of processor time, the least of RUNS (3). Planning depends neither on how many layers a
# repeat has nor much on how many devices there are: at most 1 s each, the slowest mesh at most twice the fastest.
# Usage: tests/bench/plan.sh [PATH_TO_DTC [ARGUMENTS_OF_DTC...]], such as build/dtc --cluster h100
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dtc=${1:-$here/../../build/dtc}
arguments=("${@:2}")
model=$here/../../examples/llama3_405b.dt
runs=${RUNS:-3}
TIMEFORMAT='%U %S'

# seconds DTC_ARGUMENTS...
seconds() {
  for ((i = 0; i < runs; i++)); do
    { time "$dtc" "$model" --emit=schedule "${arguments[@]}" "$@" > /dev/null 2>&1; } 2>&1
  done | awk '{t = $1 + $2; if (NR == 1 || t < least) least = t} END {printf "%.3f\n", least}'
}

for mesh in 2,2,2 4,2,8 8,2,8 16,4,8 64,2,8 64,8,8 256,4,8 256,8,8; do
  IFS=, read -r data seq tensor <<< "$mesh"
  took=$(seconds --mesh "data=$data,seq=$seq,model=$tensor")
  printf '%6d devices (%s): %s s\n' $((data * seq * tensor)) "$mesh" "$took"
done | awk '{print; fflush(); t = $(NF - 1); if (NR == 1 || t < least) least = t; if (t > most) most = t}
  END {printf "slowest / fastest: %.2f (at most 2)\n", most / least}'
few=$(seconds --set L=2)
echo "2 layers: $few s, 126 layers: $(seconds) s"
