/* fibre.h: stacks that can be left and entered again; a switch costs a few nanoseconds. Under AddressSanitizer it is told
   of every switch.

     Fibre *f = fibre_take(main);  fibre_switch(&home, f);   // runs main on a stack of its own, until it switches back */
#ifndef DTCU_FIBRE_H
#define DTCU_FIBRE_H

#include <cstddef>

namespace emu {

struct Fibre {
  void *sp;
  void *fake; /* AddressSanitizer's own stack */
  const void *bottom;
  size_t size;
};

/* A fibre from the pool, which begins in `main` at its first switch, or goes on where it was left before. */
Fibre *fibre_take(void (*main)());
void fibre_give(Fibre *);
/* Leaves `from` (its stack is the running one) and goes on in `to`. */
void fibre_switch(Fibre *from, Fibre *to);
/* What a fibre's main calls first. */
void fibre_begins();

} // namespace emu
#endif
