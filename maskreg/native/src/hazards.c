// Choosing the model of a sparse block, for choose_model of maskreg/codec/sparse.py.
//
// All bits are in 1 / 2^21, and whole, so that no machine chooses otherwise.
#include "movers.h"

enum {
    BINADES = CLASSES + BINADES_OF_STEP - 2,
    HAZARDS = 61,
    LOGARITHM_BITS = 21,
    CLASS_BITS = 3,  // that a class takes, or a binade, about
};

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

// Bits of `total` coordinates of which `moved` move, with the hazard of index i; or of movers, with a share.
static inline int64_t cost_of(int64_t total, int64_t moved, const int64_t *costs, int64_t i) {
    return moved * costs[i] + (total - moved) * costs[HAZARDS + i];
}

// The index of the least cost; `steps`, the bits of each index, can be NULL.
static inline int64_t least_cost(int64_t total, int64_t moved, const int64_t *costs, const int64_t *steps) {
    int64_t index = 0, lowest = INT64_MAX;
    FOR_EACH(i, HAZARDS) {
        const int64_t cost = cost_of(total, moved, costs, i) + (steps ? steps[i] : 0);
        if (cost < lowest) lowest = cost, index = i;
    }
    return index;
}

// Choose the shares of binades, from the one above the first class on. Returns how many, 0 where it saves nothing.
static int64_t choose_binades(const int64_t *far, const int64_t *ends, const int64_t *tops, int64_t first,
                              const int64_t *share_costs, const int64_t *steps, int64_t likely_longer,
                              int64_t likely_top, uint8_t *longer, uint8_t *top) {
    int64_t reach = 0, used = 0, saved = 0;
    // All steps that end in lower binades count as if they went on: they are few.
    FOR_EACH(e, first + 1) reach += far[e];
    FOR_EACH(j, least(BINADES, EXPONENTS - 1 - first)) {
        const int64_t b = first + 1 + j, end = least(ends[b], reach);
        const int64_t on = reach - end, high = least(tops[b], end);
        longer[j] = (uint8_t)least_cost(reach, on, share_costs, j ? steps + HAZARDS * longer[j - 1] : NULL);
        top[j] = (uint8_t)least_cost(end, high, share_costs, j ? steps + HAZARDS * top[j - 1] : NULL);
        saved += cost_of(reach, on, share_costs, likely_longer) - cost_of(reach, on, share_costs, longer[j]);
        saved += cost_of(end, high, share_costs, likely_top) - cost_of(end, high, share_costs, top[j]);
        if (end) used = j + 1;
        reach = on + far[b];
    }
    return saved > used * (2 * CLASS_BITS) << LOGARITHM_BITS ? used : 0;
}

void maskreg_choose_model(const int64_t *counts, const int32_t *logarithms, const int64_t *costs,
                          const int64_t *share_costs, const int64_t *steps, int64_t likely_longer, int64_t likely_top,
                          uint8_t *chosen, int64_t *bits) {
    const int64_t *moved = counts + EXPONENTS, *far = counts + 2 * EXPONENTS;
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
    uint8_t *hazards = chosen + 3, *shares = hazards + CLASSES, *longer = shares + CLASSES;
    int64_t c = 0;
    *bits = 0;
    for (; c < CLASSES && (!c || movers[EXPONENTS] > movers[first + c]); c++) {
        const int64_t low = c ? first + c : 0, high = c < CLASSES - 1 ? first + c + 1 : EXPONENTS;
        const int64_t all = totals[high] - totals[low], own = movers[high] - movers[low];
        int64_t further = 0;
        for (int64_t e = low; e < high; e++) further += far[e];
        hazards[c] = (uint8_t)least_cost(all, own, costs, c ? steps + HAZARDS * hazards[c - 1] : NULL);
        shares[c] = (uint8_t)least_cost(own, further, share_costs, c ? steps + HAZARDS * shares[c - 1] : NULL);
        *bits += cost_of(all, own, costs, hazards[c]);
    }
    chosen[0] = (uint8_t)first, chosen[1] = (uint8_t)c;
    const int64_t *ends = far + EXPONENTS, *tops = ends + EXPONENTS;
    chosen[2] = (uint8_t)choose_binades(far, ends, tops, first, share_costs, steps, likely_longer, likely_top, longer,
                                        longer + BINADES);
}

int64_t maskreg_gain_of_lines(const int64_t *movers, int64_t n, const int32_t *logarithms) {
    int64_t known = 0, total = 0;
    FOR_EACH(i, n) {
        known += weighed(movers[i], logarithms);
        total += movers[i];
    }
    return known - weighed(total, logarithms) + weighed(n, logarithms) / n * total;
}
