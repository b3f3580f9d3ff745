#!/bin/sh
# emulate.sh VARIANT LIBRARIES PROGRAM FILE.cu...: compiles and links emitted CUDA, or any CUDA in its dialect, against the
# emulator in the folder LIBRARIES. Variants: plain, address (AddressSanitizer), checked (races, unwritten memory, bounds).
#
# CXX and CXXFLAGS (-O1 -g) say how.
#
#   sh tests/cuda/emulate.sh checked build/tests train charlm.cu && DTCU_SEED=7 ./train --steps 3
#
# checked is compiled with the calls of -fsanitize=thread and linked without its library: access.cc answers them.
set -e
variant=$1 libraries=$2 program=$3
shift 3
here=$(dirname "$0")
case $variant in
plain) flags= link= ;;
address) flags="-fsanitize=address -fno-omit-frame-pointer" link=-fsanitize=address ;;
checked) flags="-DDTCU_CHECKED -fsanitize=thread --param tsan-instrument-func-entry-exit=0 --param tsan-distinguish-volatile=1 -fno-tree-loop-distribute-patterns" link= ;;
*) echo "emulate.sh: no variant $variant" >&2; exit 2 ;;
esac
cxx=${CXX:-g++}
objects=
trap 'rm -f $objects' EXIT
i=0
for file in "$@"; do
  i=$((i + 1))
  object=$program.$$.$i.o
  objects="$objects $object"
  $cxx -x c++ -std=c++20 ${CXXFLAGS:--O1 -g} $flags -I"$here/include" -I"$here/../../runtime/include" -c "$file" -o "$object"
done
$cxx $link $objects "$libraries/libdtrt_cuda_$variant.a" -ljansson -lm -lpthread -ldl -o "$program"
