// Values at given places: maskreg/flow/apply/moving.py.
#include "loops.h"

int maskreg_holds(const uint16_t *values, const int32_t *places, const uint16_t *expected, int64_t n) {
    // In pieces, so that the loop has no branch, and ends early all the same.
    enum { PIECE = 4096 };
    for (int64_t start = 0; start < n; start += PIECE) {
        const int64_t end = least(start + PIECE, n);
        uint16_t differing = 0;
        for (int64_t k = start; k < end; k++) differing |= (uint16_t)(values[places[k]] ^ expected[k]);
        if (differing) return 0;
    }
    return 1;
}

void maskreg_put(uint16_t *values, const int32_t *places, const uint16_t *given, int64_t n) {
    FOR_EACH(k, n) values[places[k]] = given[k];
}
