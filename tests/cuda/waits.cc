/* waits.cc: what to say when nothing of a process can go on. */
#include "emulator.h"

namespace emu {

bool all_stuck(std::string *why) {
  *why = "no operation that is queued can run";
  return true;
}
void not_stuck() {}
void polled_in_vain() {}

} // namespace emu
