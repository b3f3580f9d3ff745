#!/bin/sh
# run.sh PROGRAM CASE TEXT: the case runs clean with every seed, and with its bug ends with a message that has TEXT (grep -E).
# TEXT "-": it has no bug.
for seed in 1 2 3 4 5 6; do
  DTCU_SEED=$seed "$1" "$2" || { echo "seed $seed: not clean"; exit 1; }
  [ "$3" = - ] && continue
  out=$(DTCU_SEED=$seed "$1" "$2" bug 2>&1) && { echo "seed $seed: the bug was not found"; exit 1; }
  printf '%s\n' "$out" | grep -Eq -- "$3" || { printf 'seed %s: expected: %s\ngot: %s\n' "$seed" "$3" "$out"; exit 1; }
done
