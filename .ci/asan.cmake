# cmake -C .ci/asan.cmake -G Ninja -B build-asan: everything under AddressSanitizer and UndefinedBehaviorSanitizer,
# each arena object its own malloc.
set(DTC_SANITIZE "address,undefined" CACHE STRING "")
