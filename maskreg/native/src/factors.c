// The coarse copy that factors are fitted to, and sizes of predictions: maskreg/codec/factors.py.
#include "codec.h"

// Logarithmic size of a ULP step of 1 to 27, 8 per binade and linear within it: the lowest of the lines that continue
// each binade, since it bends down at every power of two. From 17 on, a step's class is 8 further.
static inline int16_t eighths(int16_t size) {
    const int16_t first = (int16_t)(8 * size - 8), second = (int16_t)(4 * size);
    const int16_t third = (int16_t)(2 * size + 8), fourth = (int16_t)(size + 16), far = (int16_t)(8 * size - 100);
    const int16_t low = first < second ? first : second, high = third < fourth ? third : fourth;
    const int16_t near = low < high ? low : high;
    return near > far ? near : far;
}

int64_t maskreg_typical_change(const int64_t *counts) {
    int64_t of_size[8 * 256 + 128] = {0}, moved = 0, typical = 0;
    FOR_EACH(exponent, 255) for (int step = -FARTHEST; step <= FARTHEST; step++) {
        const int64_t count = counts[exponent * TOKENS + MIDDLE + step];
        if (!count || !step) continue;
        of_size[8 * most(exponent, 1) + eighths((int16_t)(step < 0 ? -step : step))] += count;
        moved += count;
    }
    for (int64_t reached = of_size[0]; 2 * reached < moved;) reached += of_size[++typical];
    return typical;
}

static void levels_of(const uint16_t *restrict codes, const uint8_t *restrict tokens, int64_t n, const int16_t *bounds,
                      int8_t *restrict levels) {
    const int16_t b0 = bounds[0], b1 = bounds[1], b2 = bounds[2];
    FOR_EACH(j, n) {
        const int16_t step = (int16_t)(tokens[j] - MIDDLE), size = (int16_t)(step < 0 ? -step : step);
        const int16_t exponent = (int16_t)((codes[j] >> 4) & 0x7F8);
        const int16_t change = (int16_t)((exponent > 8 ? exponent : 8) + eighths(size));
        // Neither literals nor coordinates that did not move, nor numbers that are none.
        const int16_t valid = (int16_t)((size > 0) & (size <= FARTHEST) & (exponent < 0x7F8));
        const int16_t level = (int16_t)((change >= b0) + (change >= b1) + (change >= b2));
        const int16_t sign = (int16_t)((step ^ (int16_t)codes[j]) >> 15);
        levels[j] = (int8_t)(((level & -valid) ^ sign) - sign);
    }
}

void maskreg_fill_levels(const uint16_t *source, const uint8_t *tokens, int64_t n, int64_t width, int64_t column,
                         const int16_t *bounds, int64_t first, int64_t stride, int64_t rows, int8_t *levels) {
    FOR_EACH(row, rows) {
        int8_t *line = levels + row * width;
        const int64_t offset = (first + row * stride) * width - column;
        const int64_t begin = least(most(0, -offset), width), end = most(begin, least(width, n - offset));
        memset(line, 0, (size_t)begin);
        levels_of(source + offset + begin, tokens + offset + begin, end - begin, bounds, line + begin);
        memset(line + end, 0, (size_t)(width - end));
    }
}

void maskreg_count_predictions(const int8_t *row_factors, int64_t rows, const int8_t *column_factors, int64_t width,
                               int64_t rank, int64_t stride, int32_t *counts) {
    for (int64_t row = 0; row < rows; row += stride)
        for (int64_t begin = 0; begin < width; begin += TILE) {
            const int64_t n = least(TILE, width - begin);
            int16_t predicted[TILE] = {0};
            FOR_EACH(k, rank) {
                const int16_t factor = row_factors[k * rows + row];
                const int8_t *restrict factors = column_factors + k * width + begin;
                FOR_EACH(j, n) predicted[j] = (int16_t)(predicted[j] + factor * factors[j]);
            }
            FOR_EACH(j, n) counts[predicted[j] < 0 ? -predicted[j] : predicted[j]]++;
        }
}
