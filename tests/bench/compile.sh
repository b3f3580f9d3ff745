#!/usr/bin/env bash
# Times dtc on a model of GPT-2's size (gpt2.dt): text to schedule, and everything with the C compiler; medians of 9.
# Then the sizes of IR and emitted C for 2 and for 48 layers, which are the same: a repeat stays a loop.
# Usage: tests/bench/compile.sh [PATH_TO_DTC]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dtc=${1:-$here/../../build/dtc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# median_ms COMMAND...: of 9 runs
median_ms() {
  for _ in 1 2 3 4 5 6 7 8 9; do
    start=$(date +%s%N)
    "$@" > /dev/null
    echo $((($(date +%s%N) - start) / 1000))
  done | sort -n | awk 'NR == 5 {printf "%.1f", $1 / 1000}'
}

echo "text to schedule: $(median_ms "$dtc" "$here/gpt2.dt" --emit=schedule=-) ms (at most 100)"
echo "everything:       $(median_ms "$dtc" "$here/gpt2.dt" -o "$work/train") ms (at most 3000)"
for layers in 2 12 48; do
  echo "$layers layers: IR $("$dtc" "$here/gpt2.dt" --set L=$layers --emit=spmd=- | wc -l) lines," \
    "C $("$dtc" "$here/gpt2.dt" --set L=$layers --emit=c=- | wc -l) lines"
done
