// Choosing classes and hazards of a sparse block: choose_hazards of maskreg/codec/sparse.py defines what is computed.
//
// All bits are in 1 / 2^21, and whole, so that no machine chooses otherwise.
#include "codec.h"

enum { CLASSES = 16, HAZARDS = 61, LOGARITHM_BITS = 21, CLASS_BITS = 3 };

// n log2(n), for n below 2^31.
static inline int64_t weighed(int64_t n, const int32_t *logarithms) {
    if (n < 2) return 0;
    const int octave = 63 - __builtin_clzll((uint64_t)n);
    const int64_t fraction = (n << (31 - octave)) - ((int64_t)1 << 31);
    const int64_t low = logarithms[fraction >> 23], slope = logarithms[(fraction >> 23) + 1] - low;
    return n * (((int64_t)octave << LOGARITHM_BITS) + low + (slope * (fraction >> 7 & 0xFFFF) >> 16));
}

static inline int64_t entropy(int64_t total, int64_t moved, const int32_t *logarithms) {
    if (!moved) return 0;
    return weighed(total, logarithms) - weighed(moved, logarithms) - weighed(total - moved, logarithms);
}

// The index of the least cost; `steps` can be NULL.
static inline int64_t least_cost(int64_t total, int64_t moved, const int64_t *costs, const int64_t *steps) {
    int64_t index = 0, lowest = INT64_MAX;
    FOR_EACH(i, HAZARDS) {
        const int64_t cost = moved * costs[i] + (total - moved) * costs[HAZARDS + i] + (steps ? steps[i] : 0);
        if (cost < lowest) lowest = cost, index = i;
    }
    return index;
}

int64_t maskreg_choose_hazards(const int64_t *counts, const int32_t *logarithms, const int64_t *costs,
                               const int64_t *steps, uint8_t *chosen, int64_t *bits) {
    const int64_t *moved = counts + EXPONENTS;
    int64_t total[EXPONENTS], before[EXPONENTS + 1] = {0}, last = 0;
    int64_t totals[EXPONENTS + 1] = {0}, movers[EXPONENTS + 1] = {0};  // of all lower exponents
    FOR_EACH(e, EXPONENTS) {
        total[e] = counts[e] > moved[e] ? counts[e] : moved[e];
        totals[e + 1] = totals[e] + total[e];
        movers[e + 1] = movers[e] + moved[e];
        before[e + 1] = before[e] + entropy(total[e], moved[e], logarithms);
        if (moved[e]) last = e;
    }
    int64_t first = 0, lowest = INT64_MAX;
    FOR_EACH(f, EXPONENTS - CLASSES + 1) {
        const int64_t end = f + CLASSES - 1;
        const int64_t used = last - f + 1 < 1 ? 1 : last - f + 1 > CLASSES ? CLASSES : last - f + 1;
        const int64_t own = entropy(totals[f + 1], movers[f + 1], logarithms) + before[end] - before[f + 1] +
                            entropy(totals[EXPONENTS] - totals[end], movers[EXPONENTS] - movers[end], logarithms) +
                            (used * CLASS_BITS << LOGARITHM_BITS);
        if (own < lowest) lowest = own, first = f;
    }
    chosen[0] = (uint8_t)first;
    int64_t classes = 0;
    *bits = 0;
    for (int64_t c = 0; c < CLASSES && (!c || movers[EXPONENTS] > movers[first + c]); c++) {
        const int64_t low = c ? first + c : 0, high = c < CLASSES - 1 ? first + c + 1 : EXPONENTS;
        const int64_t all = totals[high] - totals[low], own = movers[high] - movers[low];
        const int64_t index = least_cost(all, own, costs, c ? steps + HAZARDS * chosen[c] : NULL);
        *bits += own * costs[index] + (all - own) * costs[HAZARDS + index];
        chosen[++classes] = (uint8_t)index;
    }
    return classes;
}

int64_t maskreg_gain_of_lines(const int64_t *movers, int64_t n, const int32_t *logarithms) {
    int64_t known = 0, total = 0;
    FOR_EACH(i, n) {
        known += weighed(movers[i], logarithms);
        total += movers[i];
    }
    return known - weighed(total, logarithms) + weighed(n, logarithms) / n * total;
}
