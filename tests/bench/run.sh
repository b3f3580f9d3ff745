#!/usr/bin/env bash
# Times a training step beside PyTorch's (step.py). Installs PyTorch in a virtual environment below build/ at first use.
# Usage: tests/bench/run.sh [--cores 1|2] [--rounds N]
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
venv=${DTC_BENCH_VENV:-$root/build/bench-venv}
if [ ! -x "$venv/bin/python" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q torch numpy
fi
"$root/.ci/setup" "$root/build"
exec "$venv/bin/python" "$root/tests/bench/step.py" --corpus "$root/build/corpus.txt" "$@"
