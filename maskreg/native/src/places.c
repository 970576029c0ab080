// Values at given places: maskreg/flow/apply/moving.py and maskreg/codec/movers.py.
#include "loops.h"

enum { AHEAD = 128 };  // values that are fetched early: processors do not foresee their places

int64_t maskreg_exchange(uint16_t *values, const int32_t *places, const uint16_t *before, const uint16_t *after, int64_t n) {
    // In pieces, which stay in the cache between the check and the writing, so that memory is read once.
    enum { PIECE = 256 };
    for (int64_t start = 0; start < n; start += PIECE) {
        const int64_t end = least(start + PIECE, n);
        uint16_t differing = 0;
        for (int64_t k = start; k < end; k++) {
            __builtin_prefetch(values + places[least(k + AHEAD, n - 1)], 1);
            differing |= (uint16_t)(values[places[k]] ^ before[k]);
        }
        if (differing) return start;
        for (int64_t k = start; k < end; k++) values[places[k]] = after[k];
    }
    return n;
}

void maskreg_swap(uint16_t *values, const uint32_t *places, uint16_t *given, int64_t n) {
    FOR_EACH(k, n) {
        __builtin_prefetch(values + places[least(k + AHEAD, n - 1)], 1);
        const uint16_t value = values[places[k]];
        values[places[k]] = given[k];
        given[k] = value;
    }
}
