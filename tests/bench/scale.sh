#!/usr/bin/env bash
# How the time of each pass grows with the number of distinct statements (statements.sh), from text to emitted C: seconds
# of processor time per pass, and the factor between the last two columns, which should stay near that of the statements.
# Usage: tests/bench/scale.sh [PATH_TO_DTC [KIND [N...]]]     KIND as in statements.sh; N: 1000 2500 10000
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dtc=${1:-$here/../../build/dtc}
kind=${2:-mixed}
counts=("${@:3}")
[ ${#counts[@]} -gt 0 ] || counts=(1000 2500 10000)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for n in "${counts[@]}"; do
  "$here/statements.sh" "$n" "$kind" > "$work/model.dt"
  "$dtc" "$work/model.dt" --emit=c=/dev/null --time-passes 2>&1 | awk -v n="$n" '$2 == "ms" {print n, $3, $1 / 1000}'
done | awk '
  !($1 in seen) {seen[$1]; counts[++nc] = $1}
  !($2 in known) {known[$2]; passes[++np] = $2}
  {time[$1, $2] = $3}
  END {
    printf "%-12s", "statements"
    for (c = 1; c <= nc; c++) printf "%10d", counts[c]
    print (nc > 1 ? "    factor" : "")
    for (p = 1; p <= np; p++) {
      printf "%-12s", passes[p]
      for (c = 1; c <= nc; c++) printf "%10.3f", time[counts[c], passes[p]]
      before = nc > 1 ? time[counts[nc - 1], passes[p]] : 0
      print (before > 0.005 ? sprintf("%10.1f", time[counts[nc], passes[p]] / before) : "")
    }
  }'
