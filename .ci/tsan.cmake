# cmake -C .ci/tsan.cmake -G Ninja -B build-tsan: everything under ThreadSanitizer (of use for the runtime).
set(DTC_SANITIZE "thread" CACHE STRING "")
