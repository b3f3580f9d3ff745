#!/usr/bin/env bash
# Times dtc on a model of GPT-2's size (gpt2.dt): text to schedule, of which the choice of the plan (`reshard`) is most and the
# certificate a part, and everything with the C compiler. CPU time, user and system, medians of 9.
# Then the sizes of IR and emitted C for 2 and for 48 layers, which are nearly the same: a repeat stays a loop.
# Usage: tests/bench/compile.sh [PATH_TO_DTC]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dtc=${1:-$here/../../build/dtc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

median() { sort -n | awk 'NR == 5 {printf "%.0f", $1}'; }

# cpu_ms COMMAND...: of 9 runs
cpu_ms() {
  local TIMEFORMAT='%U %S'
  "$@" > /dev/null 2> "$work/errors" || { cat "$work/errors" >&2; exit 1; }
  for _ in 1 2 3 4 5 6 7 8 9; do { time "$@" > /dev/null 2>&1; } 2>&1 | awk '{print 1000 * ($1 + $2)}'; done | median
}

# pass_ms PASS: of 9 runs, as dtc --time says
pass_ms() {
  for _ in 1 2 3 4 5 6 7 8 9; do "$dtc" "$here/gpt2.dt" --time --emit=schedule=/dev/null 2>&1 | awk -v p="$1" '$3 == p {print $1}'; done | median
}

echo "text to schedule: $(cpu_ms "$dtc" "$here/gpt2.dt" --emit=schedule=-) ms"
echo "  of which reshard $(pass_ms reshard) ms, certify $(pass_ms certify) ms (as the clock has it)"
echo "everything:       $(cpu_ms "$dtc" "$here/gpt2.dt" -o "$work/train") ms"
for layers in 2 12 48; do
  echo "$layers layers: IR $("$dtc" "$here/gpt2.dt" --set L=$layers --emit=spmd=- | wc -l) lines," \
    "C $("$dtc" "$here/gpt2.dt" --set L=$layers --emit=c=- | wc -l) lines"
done
