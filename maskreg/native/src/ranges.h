// Ranges of words of several tensors, of which each thread takes the next free one: so all are busy until the
// last one, however the tensors are sized.
#ifndef MASKREG_RANGES_H
#define MASKREG_RANGES_H

#include "loops.h"

// Words [begin, end) of a tensor, which are range `number` of all.
typedef struct {
    int64_t number, tensor, begin, end;
} range;

// Take a range, where there is one left; the end can lie behind its tensor's. A thread's ranges ascend, so
// that it looks for their tensors from its last one's on; `own` is 0 before the first.
INLINE int take_range(const maskreg_ranges *all, range *own) {
    own->number = __atomic_fetch_add(all->next, 1, __ATOMIC_RELAXED);
    while (own->tensor < all->count && own->number >= all->ends[own->tensor]) own->tensor++;
    if (own->tensor == all->count) return 0;
    own->begin = (own->number - (own->tensor ? all->ends[own->tensor - 1] : 0)) * all->words;
    own->end = own->begin + all->words;
    return 1;
}

#endif
