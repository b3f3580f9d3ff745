/* fibre.cc: the switch, by hand where the processor is known (15 ns with the bookkeeping of a barrier; swapcontext makes
   two system calls), and the pool of stacks. A stack ends in a page that faults.

     push what a call preserves -> store sp in from -> load sp of to -> pop -> return into to                     */
#include "fibre.h"
#include "emulator.h"

#include <sys/mman.h>
#include <unistd.h>
#include <vector>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace emu {

#if defined(__x86_64__)
extern "C" void emu_switch(void **from, void *to);
asm(".text\n.globl emu_switch\n.hidden emu_switch\n.type emu_switch, @function\nemu_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n.size emu_switch, .-emu_switch\n");
enum { SAVED = 6 };
#elif defined(__aarch64__)
extern "C" void emu_switch(void **from, void *to);
asm(".text\n.globl emu_switch\n.hidden emu_switch\n.type emu_switch, %function\nemu_switch:\n"
    "sub sp, sp, #160\n"
    "stp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\nstp x25, x26, [sp, #48]\n"
    "stp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\nstp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\n"
    "stp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\nmov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
    "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\nldp x25, x26, [sp, #48]\n"
    "ldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\nldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\n"
    "ldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\nadd sp, sp, #160\nret\n.size emu_switch, .-emu_switch\n");
#else
#error "a switch of stacks for this processor, like the two above"
#endif

/* Unoptimised and sanitized frames are large. */
constexpr size_t STACK = asan ? 512 << 10 : 128 << 10, GUARD = 16 << 10;
constexpr size_t POOL = 2048; /* a block has at most 1024 threads */

static char *stacks;
static size_t made;
static std::vector<Fibre *> pool;

static void *first_frame(char *top, void (*main)()) {
  void **sp = (void **)top;
#if defined(__x86_64__)
  *--sp = nullptr; /* where main would return to; then the stack is as after a call */
  *--sp = (void *)main;
  for (int i = 0; i < SAVED; i++) *--sp = nullptr;
#else
  sp -= 20;
  for (int i = 0; i < 20; i++) sp[i] = nullptr;
  sp[11] = (void *)main; /* x30 */
#endif
  return sp;
}

static Fibre *make(void (*main)()) {
  if (!stacks) {
    stacks = (char *)mmap(nullptr, POOL * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) found("no memory for stacks");
  }
  if (made == POOL) found("more than %zu threads wait", POOL);
  char *bottom = stacks + made++ * STACK;
  mprotect(bottom, GUARD, PROT_NONE);
  char *top = bottom + STACK - made % 61 * 64; /* else all stacks want the same lines of the cache */
  return new Fibre{first_frame(top, main), nullptr, bottom + GUARD, (size_t)(top - bottom) - GUARD};
}

Fibre *fibre_take(void (*main)()) {
  if (pool.empty()) return make(main);
  Fibre *f = pool.back();
  pool.pop_back();
  return f;
}

void fibre_give(Fibre *f) { pool.push_back(f); }

bool on_a_fibre(const void *p) { return stacks && (size_t)((const char *)p - stacks) < POOL * STACK; }

#ifdef __SANITIZE_ADDRESS__
static Fibre *left;
static void arrived(Fibre *me) {
  const void *bottom;
  size_t size;
  __sanitizer_finish_switch_fiber(me ? me->fake : nullptr, &bottom, &size);
  if (left && !left->bottom) left->bottom = bottom, left->size = size; /* the process's own stack */
}
void fibre_begins() { arrived(nullptr); }
void fibre_switch(Fibre *from, Fibre *to) {
  left = from;
  __sanitizer_start_switch_fiber(&from->fake, to->bottom, to->size);
  emu_switch(&from->sp, to->sp);
  arrived(from);
}
#else
void fibre_begins() {}
void fibre_switch(Fibre *from, Fibre *to) { emu_switch(&from->sp, to->sp); }
#endif

} // namespace emu
