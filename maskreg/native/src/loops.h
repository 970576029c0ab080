// What every kernel is written with.
#ifndef MASKREG_LOOPS_H
#define MASKREG_LOOPS_H

#include <stdint.h>
#include <string.h>

#include "kernels.h"

// For loops that have no branches, or whose count is known, where an argument is a constant.
#define INLINE static inline __attribute__((always_inline))
#define FOR_EACH(i, n) for (int64_t i = 0; i < (n); i++)

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

#endif
