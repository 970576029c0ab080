// Fitting scales of rows and columns: maskreg/codec/scales.py.
#include "codec.h"

enum {
    WINDOW = 64,                      // levels
    RATES = WINDOW + 2 * MAX_SCALE,   // by level minus shift, from -15 on
    UNIT = 32767,                     // rates are multiples of its inverse
    SEEN = 384,                       // about so many coordinates of a line are sampled
    RUN = 32,                         // in a row, so many side by side: a line of the cache
    AHEAD = 4,                        // sampled rows from which on lines are fetched early; processors do not foresee them
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

static inline double distance(int32_t prediction, double goal) {
    return prediction < goal ? goal - prediction : prediction - goal;
}

// What a line has of each level. Predictions of no more than 767 coordinates fit 32 bits.
typedef int32_t predicts(const void *line, const int16_t *rates);

// The lowest shift whose prediction is closest to `moved`. Predictions grow with the shift: find the first that reaches
// the goal, then look whether one below is closer.
static inline __attribute__((always_inline)) int8_t best_shift(predicts *predicted, const void *line, double moved,
                                                               const int16_t *rates) {
    const double goal = moved * UNIT;
    int64_t low = 0, high = 2 * MAX_SCALE;
    int32_t below = -1, closest = -1;  // predictions of low - 1 and of high, where known
    // By level, under a shift of -15; the next shift begins one before.
    rates += 2 * MAX_SCALE;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        const int32_t prediction = predicted(line, rates - middle);
        if (prediction < goal) {
            low = middle + 1;
            below = prediction;
        } else {
            high = middle;
            closest = prediction;
        }
    }
    if (closest < 0) closest = predicted(line, rates - low);
    while (low && distance(below, goal) <= distance(closest, goal)) {
        low--;
        closest = below;
        if (low) below = predicted(line, rates - (low - 1));
    }
    return (int8_t)(low - MAX_SCALE);
}

static int32_t predicted_by_counts(const void *counts, const int16_t *rates) {
    const int16_t *restrict of_level = counts;
    int32_t total = 0;
    FOR_EACH(level, WINDOW) total += of_level[level] * rates[level];
    return total;
}

// Levels of a span: twice the exponents, from `offset` on. Kept within the window.
static inline uint16_t level_of(uint16_t code, int16_t offset) {
    int16_t level = (int16_t)(((code >> 6) & 0x1FE) - offset);
    level = level > 0 ? level : 0;
    return (uint16_t)(level < WINDOW ? level : WINDOW - 1);
}

// The sampled levels of a row, in whole runs but the last.
typedef struct {
    uint16_t levels[2 * SEEN + 2 * RUN];
    int64_t count;
} row_sample;

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
#include <immintrin.h>

// 64 rates fit two registers, from which 32 are looked up at once: no need to count levels first.
static int32_t predicted_by_levels(const void *line, const int16_t *rates) {
    const row_sample *sample = line;
    const __m512i low = _mm512_loadu_si512(rates), high = _mm512_loadu_si512(rates + 32), one = _mm512_set1_epi16(1);
    // Two sums, since each addition waits for the one before.
    __m512i even = _mm512_setzero_si512(), odd = even;
    int64_t k = 0;
    for (; k < sample->count; k += 2 * RUN) {
        const __m512i first = _mm512_loadu_si512(sample->levels + k);
        const __m512i second = _mm512_loadu_si512(sample->levels + k + RUN);
        even = _mm512_dpwssd_epi32(even, _mm512_permutex2var_epi16(low, first, high), one);
        odd = _mm512_dpwssd_epi32(odd, _mm512_permutex2var_epi16(low, second, high), one);
    }
    // Without those that fill the last two vectors.
    const int32_t beyond = (int32_t)(k - sample->count) * rates[WINDOW - 1];
    return _mm512_reduce_add_epi32(_mm512_add_epi32(even, odd)) - beyond;
}

static int8_t best_shift_of_row(row_sample *sample, double moved, const int16_t *rates) {
    FOR_EACH(j, 2 * RUN) sample->levels[sample->count + j] = WINDOW - 1;
    return best_shift(predicted_by_levels, sample, moved, rates);
}
#else
static int8_t best_shift_of_row(row_sample *sample, double moved, const int16_t *rates) {
    // Four histograms in turn: neighbors often share a level, and an increment waits for the store of the one before.
    int16_t parts[4][WINDOW] = {{0}};
    FOR_EACH(k, sample->count) parts[k & 3][sample->levels[k]]++;
    FOR_EACH(i, WINDOW) parts[0][i] = (int16_t)(parts[0][i] + parts[1][i] + parts[2][i] + parts[3][i]);
    return best_shift(predicted_by_counts, parts[0], moved, rates);
}
#endif

void maskreg_fit_rows(const uint16_t *source, int64_t n, int64_t rows, int64_t width, int64_t column, int32_t lowest,
                      const int16_t *rates, const int32_t *moved, int8_t *shifts) {
    const int64_t every = RUN * most(1, width / SEEN);
    FOR_EACH(row, rows) {
        const int64_t begin = most(0, row * width - column), end = least((row + 1) * width - column, n);
        row_sample sample;
        sample.count = 0;
        for (int64_t run = begin; run < end; run += every) {
            const int64_t length = least(RUN, end - run);
            uint16_t *restrict levels = sample.levels + sample.count;
            const uint16_t *restrict codes = source + run;
            if (run + AHEAD * width < n) __builtin_prefetch(codes + AHEAD * width);
            FOR_EACH(j, length) levels[j] = level_of(codes[j], (int16_t)lowest);
            sample.count += length;
        }
        const double share = (double)(moved[row] * sample.count) / (double)most(end - begin, 1);
        shifts[row] = best_shift_of_row(&sample, share, rates);
    }
}

void maskreg_fit_columns(const uint16_t *source, int64_t n, int64_t rows, int64_t width, int64_t column,
                         int32_t lowest, const int8_t *row_scales, const int16_t *rates, const int32_t *moved,
                         int8_t *shifts) {
    enum { COLUMNS = 256 };  // columns whose histograms fit the first-level cache
    const int64_t stride = most(1, rows / SEEN), sampled = (rows + stride - 1) / stride;
    for (int64_t start = 0; start < width; start += COLUMNS) {
        int16_t histograms[COLUMNS * WINDOW] = {0};
        uint16_t keys[COLUMNS];
        const int64_t columns = least(COLUMNS, width - start);
        for (int64_t row = 0; row < rows; row += stride) {
            const int64_t first = row * width - column + start;
            const int64_t begin = most(0, -first), end = least(columns, n - first);
            const int16_t offset = (int16_t)(lowest + row_scales[row]);
            const int64_t ahead = first + AHEAD * stride * width;
            for (int64_t j = begin; j < end && ahead + j < n; j += RUN) __builtin_prefetch(source + ahead + j);
            for (int64_t j = begin; j < end; j++) keys[j] = (uint16_t)(j * WINDOW + level_of(source[first + j], offset));
            for (int64_t j = begin; j < end; j++) histograms[keys[j]]++;
        }
        FOR_EACH(j, columns) {
            const double share = (double)(moved[start + j] * sampled) / (double)rows;
            shifts[start + j] = best_shift(predicted_by_counts, histograms + j * WINDOW, share, rates);
        }
    }
}
