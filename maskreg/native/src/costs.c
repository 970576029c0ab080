// Estimated bits, and the window of exponents: maskreg/codec/costs.py defines what is computed.
#include <math.h>

#include "costs.h"

enum { EXPONENTS = 256, LOG_STEP_BITS = 12, MANTISSA_BITS = 52, BIAS = 1023, TABLE_HEAD_BITS = 17 };

#define WHOLE 0x1p52  // from here on, a float64 has no fraction: its mantissa is the integer

static inline uint64_t representation(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double represented(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// The binary logarithm of an integer that is at least 1. The exponent of a float64 is its integer part; the top 12 bits
// of the mantissa are an index into the table; the other 40, put at the top of a mantissa, are how far to interpolate.
// Conversions are made of shifts, because vectors have no others between integers and floats of 64 bits.
static inline double log2_of(double count, const double *logs) {
    const uint64_t bits = representation(count), top = (uint64_t)BIAS << MANTISSA_BITS;
    const uint64_t step = (bits >> (MANTISSA_BITS - LOG_STEP_BITS)) & ((1 << LOG_STEP_BITS) - 1);
    const uint64_t fraction = bits << LOG_STEP_BITS & (((uint64_t)1 << MANTISSA_BITS) - 1);
    const double rest = represented(fraction | top) - 1.0;
    const double whole = represented(bits >> MANTISSA_BITS | representation(WHOLE)) - (WHOLE + BIAS);
    return whole + logs[step] + rest * (logs[step + 1] - logs[step]);
}

void bits_of(const counted *restrict groups, int64_t tokens, const double *restrict logs, double *restrict bits) {
    double totals[SIDE_BY_SIDE], shares[SIDE_BY_SIDE], sums[SIDE_BY_SIDE];
    uint64_t exponents[SIDE_BY_SIDE] = {0};
    FOR_EACH(k, SIDE_BY_SIDE) totals[k] = groups->totals[k] < 1.0 ? 1.0 : groups->totals[k];
    FOR_EACH(k, SIDE_BY_SIDE) shares[k] = SLOTS / totals[k];
    FOR_EACH(k, SIDE_BY_SIDE) sums[k] = totals[k] * log2_of(totals[k], logs) + TABLE_HEAD_BITS;
    FOR_EACH(token, tokens) {
        const double *counts = groups->counts[token];
        FOR_EACH(k, SIDE_BY_SIDE) {
            // The frequency, count * 4096 / total rounded down: the integer nearest to an approximation, less 1 if it
            // is too large. The products compared are exact.
            const double count = counts[k], near = (count * shares[k] + WHOLE) - WHOLE;
            const double freq = near - (near * totals[k] > count * SLOTS ? 1.0 : 0.0);
            const double some = count < 1.0 ? 1.0 : count, lowest = count < 1.0 ? 1.0 : 2.0;
            const double size = freq + 1.0 < lowest ? lowest : freq + 1.0;
            exponents[k] += representation(size) >> MANTISSA_BITS;
            sums[k] -= count * log2_of(some, logs);
        }
    }
    FOR_EACH(k, SIDE_BY_SIDE) {
        // A gamma code has a bit, and two more for each power of two that its frequency plus 1 reaches.
        const double gammas = groups->listed[k] + 2.0 * (double)(int32_t)(exponents[k] - (uint64_t)tokens * BIAS);
        bits[k] = groups->totals[k] > 0 ? sums[k] + gammas : 0.0;
    }
}

// Rows of counts whose bits are due, and where they go.
typedef struct {
    counted rows;
    double *results[SIDE_BY_SIDE];
    int64_t used;
    const double *logs;
} queue;

static void flush(queue *q) {
    double bits[SIDE_BY_SIDE];
    bits_of(&q->rows, TOKENS, q->logs, bits);
    FOR_EACH(k, q->used) *q->results[k] = bits[k];
    q->used = 0;
}

// Put the bits of a row into `result`, at the latest with flush(); returns whether it has any tokens.
static int compute(queue *q, const int64_t *row, double *result) {
    int64_t total = 0, first = TOKENS, last = -1;
    FOR_EACH(token, TOKENS) total += row[token];
    *result = 0;
    if (!total) return 0;
    const int64_t k = q->used++;
    FOR_EACH(token, TOKENS) {
        first = row[token] && first == TOKENS ? token : first;
        last = row[token] ? token : last;
        q->rows.counts[token][k] = (double)row[token];
    }
    q->rows.totals[k] = (double)total;
    q->rows.listed[k] = (double)(last - first + 1);
    q->results[k] = result;
    if (q->used == SIDE_BY_SIDE) flush(q);
    return 1;
}

int64_t maskreg_plain_window(const int64_t *counts, int64_t classes, const double *logs, double *least_bits) {
    double bits[EXPONENTS], low[EXPONENTS + 1], high[EXPONENTS + 1];
    queue q = {.logs = logs};
    int64_t lowest = EXPONENTS, highest = -1;
    FOR_EACH(exponent, EXPONENTS) {
        if (compute(&q, counts + exponent * TOKENS, bits + exponent)) {
            lowest = least(lowest, exponent);
            highest = exponent;
        }
    }
    const int64_t final = most(0, highest - classes + 2);
    const int64_t begin = least(final, most(most(0, lowest - 1), final - classes));
    // Sums of the exponents that share the first table and of those that share the last, as the window moves up.
    int64_t below[TOKENS] = {0}, above[TOKENS] = {0};
    for (int64_t exponent = lowest; exponent < begin; exponent++)
        FOR_EACH(token, TOKENS) below[token] += counts[exponent * TOKENS + token];
    for (int64_t exponent = begin + classes - 1; exponent <= highest; exponent++)
        FOR_EACH(token, TOKENS) above[token] += counts[exponent * TOKENS + token];
    for (int64_t base = begin; base <= final; base++) {
        const int64_t inner = base + classes - 1;
        if (base < EXPONENTS) FOR_EACH(token, TOKENS) below[token] += counts[base * TOKENS + token];
        compute(&q, below, low + base);
        compute(&q, above, high + base);
        if (inner < EXPONENTS) FOR_EACH(token, TOKENS) above[token] -= counts[inner * TOKENS + token];
    }
    flush(&q);
    int64_t best = final;
    *least_bits = INFINITY;
    for (int64_t base = begin; base <= final; base++) {
        double cost = low[base] + high[base];
        for (int64_t exponent = base + 1; exponent < least(base + classes - 1, EXPONENTS); exponent++)
            cost += bits[exponent];
        best = cost < *least_bits ? base : best;
        *least_bits = cost < *least_bits ? cost : *least_bits;
    }
    return best;
}
