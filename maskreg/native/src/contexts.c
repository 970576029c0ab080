// Cells of coordinates, from the source's codes and the block's scales and factors: maskreg/codec/contexts.py.
#include "codec.h"
#include "wide.h"

enum {
    MOST_RANK = 32,
    // Added to column factors, -31 to 31, where they are multiplied as unsigned bytes.
    BIAS = 32,
};

// -- one loop for each step, as the compiler vectorizes it --

// Predictions along a row: the sum over components of row factor times column factor. In 16 bits throughout, which is
// exact (32 components of 31 * 31 sum to 30,752) and gives twice as many lanes as 32. Four components at a time: the
// sums are loaded and stored a quarter as often.
static void predict(const maskreg_contexts *c, int64_t row, int64_t column, int64_t n, int16_t *restrict predicted) {
    memset(predicted, 0, (size_t)n * sizeof *predicted);
    int64_t k = 0;
    for (; k + 4 <= c->rank; k += 4) {
        const int8_t *rows = c->row_factors + k * c->rows + row;
        const int16_t f0 = rows[0], f1 = rows[c->rows], f2 = rows[2 * c->rows], f3 = rows[3 * c->rows];
        const int8_t *c0 = c->column_factors + k * c->width + column;
        const int8_t *c1 = c0 + c->width, *c2 = c1 + c->width, *c3 = c2 + c->width;
        FOR_EACH(j, n)
            predicted[j] = (int16_t)(predicted[j] + f0 * c0[j] + f1 * c1[j] + f2 * c2[j] + f3 * c3[j]);
    }
    for (; k < c->rank; k++) {
        const int16_t factor = c->row_factors[k * c->rows + row];
        const int8_t *columns = c->column_factors + k * c->width + column;
        FOR_EACH(j, n) predicted[j] = (int16_t)(predicted[j] + factor * columns[j]);
    }
}

// Append the size class of each prediction to its cell, and say which ULP steps are flipped: where the prediction and
// the weight differ in sign, of which arithmetic shifts make 0 or -1.
static void refine(const uint16_t *restrict codes, const int16_t *restrict predicted, const int16_t *bounds, int64_t n,
                   uint8_t *restrict cells, int8_t *restrict flips) {
    const int16_t b0 = bounds[0], b1 = bounds[1], b2 = bounds[2], b3 = bounds[3];
    const int16_t b4 = bounds[4], b5 = bounds[5], b6 = bounds[6];
    FOR_EACH(j, n) {
        const int16_t p = predicted[j], size = (int16_t)(p < 0 ? -p : p);
        const int16_t reached = (int16_t)((size >= b0) + (size >= b1) + (size >= b2) + (size >= b3) + (size >= b4) +
                                          (size >= b5) + (size >= b6));
        cells[j] = (uint8_t)((cells[j] << 3) + reached);
        flips[j] = (int8_t)((p >> 15) ^ ((int16_t)codes[j] >> 15));
    }
}

static inline uint8_t clamped(int16_t level, int16_t classes) {
    level = level < 0 ? 0 : level;
    return (uint8_t)(level < classes ? level : classes - 1);
}

// `n` coordinates of a row.
static void classify_part(const maskreg_contexts *c, const uint16_t *restrict codes, int64_t row, int64_t column,
                          int64_t n, uint8_t *restrict cells, int8_t *restrict flips) {
    if (c->scaled) {
        const int16_t offset = (int16_t)(c->base + c->row_scales[row]);
        const int8_t *shifts = c->column_scales + column;
        // 2 * e, in one shift and mask.
        FOR_EACH(j, n) cells[j] = clamped((int16_t)(((codes[j] >> 6) & 0x1FE) - offset - shifts[j]), SCALED_CLASSES);
    } else {
        const int16_t offset = (int16_t)(c->base >> 1);
        FOR_EACH(j, n) cells[j] = clamped((int16_t)(((codes[j] >> 7) & 0xFF) - offset), PLAIN_CLASSES);
    }
    if (c->rank) {
        int16_t predicted[TILE];
        predict(c, row, column, n, predicted);
        refine(codes, predicted, c->bounds, n, cells, flips);
    } else if (flips) {
        memset(flips, 0, (size_t)n);
    }
}

// -- the same by vectors, all steps at once --
//
// A multiplication of unsigned by signed bytes adds up the products of two neighbors in 16 bits: of two components, if
// their column factors lie side by side. To be unsigned they are BIAS too large, and every prediction of a row begins
// with what that adds, negative. Sums can overflow on the way, which the sum of all undoes.
//
//     columns 3 -5, rows 7 2:    (3 + 32) * 7 + (-5 + 32) * 2 = 299 = 11 + 32 * (7 + 2)

void maskreg_pair_factors(const int8_t *factors, int64_t rank, int64_t width, uint8_t *pairs) {
    for (int64_t k = 0; k < rank; k += 2, pairs += 2 * width) {
        const int8_t *first = factors + k * width;
        // Its row factor will be 0 where there is none.
        const int8_t *second = k + 1 < rank ? first + width : first;
        FOR_EACH(j, width) {
            pairs[2 * j] = (uint8_t)(first[j] + BIAS);
            pairs[2 * j + 1] = (uint8_t)(second[j] + BIAS);
        }
    }
}

#ifdef WIDE
// What is needed of a row, and of the block, along it.
typedef struct {
    int32_t pairs[(MOST_RANK + 1) / 2];  // row factors of two components, twice
    wide start;                          // what predictions begin with
    wide below[SIZES - 1];               // the bounds, minus 1: what is greater reaches them
} row_numbers;

static inline void take_factors(const maskreg_contexts *c, int64_t row, row_numbers *numbers) {
    int32_t sum = 0;
    for (int64_t k = 0; k < c->rank; k += 2) {
        const int8_t *own = c->row_factors + k * c->rows + row;
        const int32_t first = own[0], second = k + 1 < c->rank ? own[c->rows] : 0;
        const uint32_t both = (uint32_t)((first & 0xFF) | (second & 0xFF) << 8);
        numbers->pairs[k / 2] = (int32_t)(both << 16 | both);
        sum += first + second;
    }
    numbers->start = WIDE_OP(set1_epi16)((int16_t)(-BIAS * sum));
    FOR_EACH(b, SIZES - 1) numbers->below[b] = WIDE_OP(set1_epi16)((int16_t)(c->bounds[b] - 1));
}

// Predictions of WIDE columns from `column` on.
static inline void predict_wide(const maskreg_contexts *c, const row_numbers *numbers, int64_t column, wide *low,
                                wide *high) {
    const uint8_t *columns = c->column_pairs + 2 * column;
    *low = *high = numbers->start;
    for (int64_t k = 0; 2 * k < c->rank; k++, columns += 2 * c->width) {
        const wide pair = WIDE_OP(set1_epi32)(numbers->pairs[k]);
        *low = WIDE_OP(add_epi16)(*low, WIDE_OP(maddubs_epi16)(load_wide(columns), pair));
        *high = WIDE_OP(add_epi16)(*high, WIDE_OP(maddubs_epi16)(load_wide(columns + WIDE), pair));
    }
}

// How many bounds a prediction reaches, negative.
static inline wide reached(wide predicted, const wide *below) {
    const wide size = WIDE_OP(abs_epi16)(predicted);
    wide count = WIDE_OP(set1_epi16)(0);
    for (int b = 0; b < SIZES - 1; b++) count = less_where_greater(count, size, below[b]);
    return count;
}

// In 16 bits each, the exponent or twice that, minus the offset.
static inline wide levels(wide codes, int scaled, wide offset) {
    const wide exponent = and_wide(WIDE_OP(srli_epi16)(codes, scaled ? 6 : 7), WIDE_OP(set1_epi16)(scaled ? 0x1FE : 0xFF));
    return WIDE_OP(sub_epi16)(exponent, offset);
}

// As classify_part; `n` is WIDE or more.
static inline __attribute__((always_inline)) void classify_wide(const maskreg_contexts *c, const uint16_t *codes,
                                                                int64_t row, int64_t column, int64_t n, uint8_t *cells,
                                                                int8_t *flips, const int scaled, const int ranked) {
    const wide offset = WIDE_OP(set1_epi16)((int16_t)(scaled ? c->base + c->row_scales[row] : c->base >> 1));
    const wide last = WIDE_OP(set1_epi8)((scaled ? SCALED_CLASSES : PLAIN_CLASSES) - 1), none = WIDE_OP(set1_epi8)(0);
    row_numbers numbers;
    if (ranked) take_factors(c, row, &numbers);
    for (int64_t j = 0; j < n; j += WIDE) {
        // The last vector can begin within the one before.
        j = least(j, n - WIDE);
        const wide low = load_wide(codes + j), high = load_wide(codes + j + WIDE / 2);
        // Bytes hold -128 to 127, and scales are 15 at most: what was too low or too high stays so.
        wide cell = packed_wide(levels(low, scaled, offset), levels(high, scaled, offset));
        if (scaled) cell = WIDE_OP(subs_epi8)(cell, load_wide(c->column_scales + column + j));
        cell = WIDE_OP(min_epi8)(WIDE_OP(max_epi8)(cell, none), last);
        if (ranked) {
            wide p, q;
            predict_wide(c, &numbers, column + j, &p, &q);
            const wide fewer = packed_wide(reached(p, numbers.below), reached(q, numbers.below));
            // Classes have 5 bits, so a shift of 16 bits moves none from one byte to the next.
            cell = WIDE_OP(sub_epi8)(WIDE_OP(slli_epi16)(cell, 3), fewer);
            const wide differ = WIDE_OP(srai_epi16)(xor_wide(p, low), 15), differs = WIDE_OP(srai_epi16)(xor_wide(q, high), 15);
            store_wide(flips + j, packed_wide(differ, differs));
        }
        store_wide(cells + j, cell);
    }
    if (!ranked && flips) memset(flips, 0, (size_t)n);
}
#endif

static inline void classify_row(const maskreg_contexts *c, const uint16_t *codes, int64_t row, int64_t column, int64_t n,
                                uint8_t *cells, int8_t *flips) {
#ifdef WIDE
    if (n < WIDE) classify_part(c, codes, row, column, n, cells, flips);
    else if (c->scaled && c->rank) classify_wide(c, codes, row, column, n, cells, flips, 1, 1);
    else if (c->rank) classify_wide(c, codes, row, column, n, cells, flips, 0, 1);
    else if (c->scaled) classify_wide(c, codes, row, column, n, cells, flips, 1, 0);
    else classify_wide(c, codes, row, column, n, cells, flips, 0, 0);
#else
    classify_part(c, codes, row, column, n, cells, flips);
#endif
}

void classify(const uint16_t *codes, int64_t n, int64_t position, const maskreg_contexts *c, uint8_t *cells,
              int8_t *flips) {
    if (n <= 0) return;
    if (!c->scaled && !c->rank) {
        // The exponent alone, for every row.
        classify_row(c, codes, 0, 0, n, cells, flips);
        return;
    }
    int64_t row = position / c->width, column = position % c->width;
    for (int64_t begin = 0; begin < n; row++, column = 0) {
        const int64_t length = least(n - begin, c->width - column);
        classify_row(c, codes + begin, row, column, length, cells + begin, flips ? flips + begin : flips);
        begin += length;
    }
}
