// Cells of coordinates, from the source's codes and the block's scales and factors: maskreg/codec/contexts.py.
#include "codec.h"

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

void classify(const uint16_t *restrict codes, int64_t n, int64_t position, const maskreg_contexts *c,
              uint8_t *restrict cells, int8_t *restrict flips) {
    if (n <= 0) return;
    int16_t predicted[TILE];
    int64_t row = position / c->width, column = position % c->width;
    if (!c->scaled) {
        // The exponent alone, whatever the row.
        const int16_t offset = (int16_t)(c->base >> 1);
        FOR_EACH(j, n) cells[j] = clamped((int16_t)(((codes[j] >> 7) & 0xFF) - offset), PLAIN_CLASSES);
    }
    if (!c->rank) memset(flips, 0, (size_t)n);
    for (int64_t begin = 0; begin < n && (c->scaled || c->rank); row++, column = 0) {
        const int64_t length = least(n - begin, c->width - column);
        if (c->scaled) {
            const int16_t offset = (int16_t)(c->base + c->row_scales[row]);
            const uint16_t *code = codes + begin;
            const int8_t *shifts = c->column_scales + column;
            uint8_t *cell = cells + begin;
            // 2 * e, in one shift and mask.
            FOR_EACH(j, length)
                cell[j] = clamped((int16_t)(((code[j] >> 6) & 0x1FE) - offset - shifts[j]), SCALED_CLASSES);
        }
        if (c->rank) {
            predict(c, row, column, length, predicted);
            refine(codes + begin, predicted, c->bounds, length, cells + begin, flips + begin);
        }
        begin += length;
    }
}
