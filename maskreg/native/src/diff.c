// Comparing two blocks of bf16 codes: the exact rule's mask, and how far the values moved.
#include "bits.h"

enum { TILE = 4096, LANES = 16, EXPONENT = 0x7F80, MAGNITUDE = 0x7FFF };

void maskreg_diff(const uint16_t *source, const uint16_t *target, int64_t n, uint8_t *packed, int64_t *counts) {
    uint8_t marks[TILE + WORD];
    for (int64_t start = 0; start < n; start += TILE) {
        const int64_t size = least(TILE, n - start);
        const uint16_t *a = source + start, *b = target + start;
        uint16_t moved = 0, differing = 0;
        FOR_EACH(i, size) {
            const uint16_t differs = a[i] != b[i], nonzero = ((a[i] | b[i]) & MAGNITUDE) != 0;
            marks[i] = (uint8_t)(differs & nonzero);
            moved = (uint16_t)(moved + (differs & nonzero));
            differing = (uint16_t)(differing + differs);
        }
        pack_marks(marks, size, packed + start / 8);
        counts[0] += moved;
        counts[1] += differing;
    }
}

static inline double value(uint16_t code) {
    const uint32_t bits = (uint32_t)code << 16;
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

// Both sides count as 0 where either is not finite.
static inline double squared_change(uint16_t a, uint16_t b) {
    const uint16_t finite = (uint16_t)-(((a & EXPONENT) != EXPONENT) & ((b & EXPONENT) != EXPONENT));
    const double change = value(b & finite) - value(a & finite);
    return change * change;
}

void maskreg_energy(const uint16_t *source, const uint16_t *target, int64_t n, double *sums) {
    double own[LANES];
    memcpy(own, sums, sizeof own);
    const int64_t whole = n / LANES * LANES;
    for (int64_t start = 0; start < whole; start += LANES)
        FOR_EACH(k, LANES) own[k] += squared_change(source[start + k], target[start + k]);
    FOR_EACH(k, n - whole) own[k] += squared_change(source[whole + k], target[whole + k]);
    memcpy(sums, own, sizeof own);
}

int64_t maskreg_count_differing(const uint16_t *source, const uint16_t *target, int64_t n, int64_t length, int64_t stride) {
    int64_t total = 0;
    for (int64_t at = 0; at + length <= n; at += stride) {
        const uint16_t *restrict from = source + at, *restrict to = target + at;
        // In 16 bits, as the codes are, which spares conversions.
        uint16_t own = 0;
        FOR_EACH(i, length) own = (uint16_t)(own + (from[i] != to[i]));
        total += own;
    }
    return total;
}
