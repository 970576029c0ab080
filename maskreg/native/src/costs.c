// Estimated bits, and the window of exponents: maskreg/codec/tables.py defines what is computed.
#include <math.h>

#include "costs.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

enum { LOG_STEP_BITS = 12, MANTISSA_BITS = 52, BIAS = 1023, TABLE_HEAD_BITS = 17 };

#define WHOLE 0x1p52  // from here on, a float64 has no fraction
#define WHOLE_BITS ((uint64_t)(BIAS + MANTISSA_BITS) << MANTISSA_BITS)

// values[k] = table[indices[k]]
static inline void gather(const double *table, const words *indices, numbers *values) {
#if defined(__AVX512F__)
    // The compiler must not know that all are gathered: it would leave out the zeros, and each gather would wait for
    // the last use of its register.
    __mmask8 all = 0xFF;
    __asm__("" : "+r"(all));
    *values = (numbers)_mm512_mask_i64gather_pd(_mm512_setzero_pd(), all, (__m512i)*indices, table, 8);
#elif defined(__AVX2__)
    __m256d all = _mm256_castsi256_pd(_mm256_set1_epi64x(-1));
    __asm__("" : "+x"(all));
    *values = (numbers)_mm256_mask_i64gather_pd(_mm256_setzero_pd(), table, (__m256i)*indices, all, 8);
#else
    FOR_EACH(k, SIDE_BY_SIDE) (*values)[k] = table[(*indices)[k]];
#endif
}

// Replace integers that are at least 1 by their binary logarithms. The exponent of a float64 is the integer part; the
// top 12 bits of the mantissa are an index into the table; the other 40, put at the top of a mantissa, are how far to
// interpolate. Most processors cannot convert vectors between integers and floats of 64 bits, so bits are put together:
// WHOLE with an integer as its mantissa is WHOLE plus that integer.
static inline void log2_of(numbers *values, const double *logs) {
    const words bits = (words)*values, mantissa = bits & (((uint64_t)1 << MANTISSA_BITS) - 1);
    const words steps = mantissa >> (MANTISSA_BITS - LOG_STEP_BITS);
    const words fractions = bits << LOG_STEP_BITS & (((uint64_t)1 << MANTISSA_BITS) - 1);
    const numbers rest = (numbers)(fractions | (uint64_t)BIAS << MANTISSA_BITS) - 1.0;
    const numbers whole = (numbers)(bits >> MANTISSA_BITS | WHOLE_BITS) - (WHOLE + BIAS);
    numbers low, high;
    gather(logs, &steps, &low);
    gather(logs + 1, &steps, &high);
    *values = whole + low + rest * (high - low);
}

void bits_of(const counted *groups, int64_t tokens, const double *logs, double *bits) {
    const numbers ones = (numbers){0} + 1.0;
    // An empty group counts as one of 1.
    const words empty = (words)(groups->totals < 1.0);
    const numbers totals = groups->totals + (numbers)(empty & (words)ones), shares = (double)SLOTS / totals;
    numbers lengths = totals;
    log2_of(&lengths, logs);
    numbers sums = totals * lengths + (double)TABLE_HEAD_BITS;
    words exponents = {0};
    FOR_EACH(token, tokens) {
        const numbers counts = groups->counts[token];
        const words none = (words)(counts < 1.0);
        lengths = counts + (numbers)(none & (words)ones);
        log2_of(&lengths, logs);
        sums -= counts * lengths;
        // The frequency, count * 4096 / total rounded down: the integer nearest to an approximation, less 1 if it is
        // too large. The products compared are exact.
        const numbers near = (counts * shares + WHOLE) - WHOLE;
        const numbers freqs = near - (numbers)((words)(near * totals > counts * (double)SLOTS) & (words)ones);
        // The power of two that the frequency plus 1 reaches, and one more for a frequency that is raised to 1.
        exponents += (words)(freqs + 1.0) >> MANTISSA_BITS;
        exponents -= (words)(freqs < 1.0) & ~none;
    }
    // A gamma code has a bit, and two more for each power of two.
    exponents -= (uint64_t)tokens * BIAS;
    const numbers powers = (numbers)(exponents | WHOLE_BITS) - WHOLE;
    const numbers results = (numbers)(~empty & (words)(sums + (groups->listed + 2.0 * powers)));
    memcpy(bits, &results, sizeof results);
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
