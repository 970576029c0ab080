// Fitting scales of rows and columns: maskreg/codec/scales.py.
#include "codec.h"

enum {
    WINDOW = 64,  // levels
    SHIFTS = 31,
    UNIT = 1 << 16,
};

void maskreg_count_moved(const uint8_t *tokens, int64_t n, int64_t rows, int64_t width, int64_t column,
                         int32_t *by_row, int32_t *by_column) {
    // Counters of a byte hold 255 rows; then they are emptied into wider ones.
    enum { PANEL = 255, COLUMNS = 4096 };
    memset(by_row, 0, (size_t)rows * sizeof *by_row);
    memset(by_column, 0, (size_t)width * sizeof *by_column);
    for (int64_t panel = 0; panel < rows; panel += PANEL)
        for (int64_t start = 0; start < width; start += COLUMNS) {
            uint8_t counters[COLUMNS] = {0};
            for (int64_t row = panel; row < least(panel + PANEL, rows); row++) {
                const int64_t first = row * width - column + start;
                const int64_t begin = most(0, -first), end = least(least(COLUMNS, width - start), n - first);
                int32_t total = 0;
                for (int64_t j = begin; j < end; j++) total += tokens[first + j] != MIDDLE;
                for (int64_t j = begin; j < end; j++) counters[j] = (uint8_t)(counters[j] + (tokens[first + j] != MIDDLE));
                by_row[row] += total;
            }
            FOR_EACH(j, least(COLUMNS, width - start)) by_column[start + j] += counters[j];
        }
}

// Coordinates predicted to move, in 65,536ths. No more than 767 are sampled, so it fits 32 bits.
static inline int32_t predicted(const int16_t *levels, const int32_t *rates) {
    int32_t total = 0;
    FOR_EACH(level, WINDOW) total += levels[level] * rates[level];
    return total;
}

static inline double distance(int32_t prediction, double goal) {
    return prediction < goal ? goal - prediction : prediction - goal;
}

// The lowest shift whose prediction is closest to `moved`, from 0. Predictions grow with the shift: find the first that
// reaches the goal, then look whether one below is closer.
static int64_t best_shift(const int16_t *levels, double moved, const int32_t *rates) {
    const double goal = moved * UNIT;
    int64_t low = 0, high = SHIFTS - 1;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (predicted(levels, rates + middle * WINDOW) < goal)
            low = middle + 1;
        else
            high = middle;
    }
    int32_t closest = predicted(levels, rates + low * WINDOW);
    while (low) {
        const int32_t below = predicted(levels, rates + (low - 1) * WINDOW);
        if (distance(below, goal) > distance(closest, goal)) break;
        low--;
        closest = below;
    }
    return low;
}

void maskreg_fit_rows(const uint16_t *source, int64_t n, int64_t rows, int64_t width, int64_t column, int64_t stride,
                      int32_t lowest, const int32_t *rates, const int32_t *moved, int8_t *shifts) {
    FOR_EACH(row, rows) {
        // Four histograms in turn: neighbors often share a level, and an increment waits for the store of the one before.
        int16_t parts[4][WINDOW] = {{0}}, levels[WINDOW];
        const int64_t begin = most(0, row * width - column), end = least((row + 1) * width - column, n);
        const int64_t sampled = (end - begin + stride - 1) / stride;
        FOR_EACH(k, sampled) {
            const int32_t level = ((source[begin + k * stride] >> 6) & 0x1FE) - lowest;
            parts[k & 3][level > 0 ? level : 0]++;
        }
        FOR_EACH(i, WINDOW) levels[i] = (int16_t)(parts[0][i] + parts[1][i] + parts[2][i] + parts[3][i]);
        const double share = (double)(moved[row] * sampled) / (double)most(end - begin, 1);
        shifts[row] = (int8_t)(best_shift(levels, share, rates) - SHIFTS / 2);
    }
}

void maskreg_fit_columns(const uint16_t *source, int64_t n, int64_t rows, int64_t width, int64_t column, int64_t stride,
                         int32_t lowest, const int8_t *row_scales, const int32_t *rates, const int32_t *moved,
                         int8_t *shifts) {
    enum { COLUMNS = 256 };  // whose histograms fit the first-level cache
    const int64_t sampled = (rows + stride - 1) / stride;
    for (int64_t start = 0; start < width; start += COLUMNS) {
        int16_t histograms[COLUMNS * WINDOW] = {0};
        uint16_t keys[COLUMNS];
        const int64_t columns = least(COLUMNS, width - start);
        for (int64_t row = 0; row < rows; row += stride) {
            const int64_t first = row * width - column + start;
            const int64_t begin = most(0, -first), end = least(columns, n - first);
            const int16_t offset = (int16_t)(lowest + row_scales[row]);
            for (int64_t j = begin; j < end; j++) {
                int16_t level = (int16_t)(((source[first + j] >> 6) & 0x1FE) - offset);
                level = level > 0 ? level : 0;
                level = level < WINDOW ? level : WINDOW - 1;
                keys[j] = (uint16_t)(j * WINDOW + level);
            }
            for (int64_t j = begin; j < end; j++) histograms[keys[j]]++;
        }
        FOR_EACH(j, columns) {
            const double share = (double)(moved[start + j] * sampled) / (double)rows;
            shifts[start + j] = (int8_t)(best_shift(histograms + j * WINDOW, share, rates) - SHIFTS / 2);
        }
    }
}
