// The coarse copy that factors are fitted to, and sizes of predictions: maskreg/codec/factors.py.
#include "fit.h"

// Logarithmic size of a ULP step of 1 to 27, 8 per binade and linear within it: the lowest of the lines that continue
// each binade, since it bends down at every power of two. From 17 on, a step's class is 8 further.
static inline int16_t eighths(int16_t size) {
    const int16_t first = (int16_t)(8 * size - 8), second = (int16_t)(4 * size);
    const int16_t third = (int16_t)(2 * size + 8), fourth = (int16_t)(size + 16), far = (int16_t)(8 * size - 100);
    const int16_t low = first < second ? first : second, high = third < fourth ? third : fourth;
    const int16_t near = low < high ? low : high;
    return near > far ? near : far;
}

int64_t typical_change(const int64_t *counts) {
    int64_t of_size[8 * 256 + 128] = {0}, moved = 0, typical = 0;
    FOR_EACH(exponent, 255) {
        const int64_t *own = counts + exponent * TOKENS;
        int64_t all = 0;
        FOR_EACH(token, TOKENS) all += own[token];
        // Most exponents do not occur.
        if (all == own[MIDDLE]) continue;
        for (int step = -FARTHEST; step <= FARTHEST; step++) {
            const int64_t count = step ? own[MIDDLE + step] : 0;
            of_size[8 * most(exponent, 1) + eighths((int16_t)(step < 0 ? -step : step))] += count;
            moved += count;
        }
    }
    for (int64_t reached = of_size[0]; 2 * reached < moved;) reached += of_size[++typical];
    return typical;
}

// Bounds are compared in bytes: a change is its exponent's height, 8 per binade from `base` on, and its step's eighths,
// at most 116. The base is the highest multiple of 8 such that what lies below cannot reach the lowest bound; heights
// are cut off where all reach the highest.
typedef struct {
    uint16_t base;
    uint8_t bounds[3];
} byte_bounds;

static byte_bounds in_bytes(const int16_t *bounds) {
    enum { MOST_EIGHTHS = 8 * FARTHEST - 100 };
    byte_bounds b;
    // Exponents 0 and 1 count alike.
    b.base = (uint16_t)most(8, (bounds[0] - MOST_EIGHTHS - 1) / 8 * 8);
    FOR_EACH(i, 3) b.bounds[i] = (uint8_t)most(0, bounds[i] - b.base);
    return b;
}

#if defined(__AVX512VBMI__) && defined(__AVX512BW__)
#include <immintrin.h>

static void levels_of(const uint16_t *codes, const uint8_t *tokens, int64_t n, const byte_bounds *bounds, int8_t *levels) {
    enum { NONE = 0x80 };
    uint8_t of_token[TOKENS];
    FOR_EACH(token, TOKENS) {
        const int64_t size = token < MIDDLE ? MIDDLE - token : token - MIDDLE;
        of_token[token] = size && size <= FARTHEST ? (uint8_t)eighths((int16_t)size) : NONE;
    }
    const __m512i table = _mm512_loadu_si512(of_token), zero = _mm512_setzero_si512(), one = _mm512_set1_epi8(1);
    const __m512i base = _mm512_set1_epi16((int16_t)bounds->base), top = _mm512_set1_epi16(0x7F8);
    const __m512i b0 = _mm512_set1_epi8((char)bounds->bounds[0]), b1 = _mm512_set1_epi8((char)bounds->bounds[1]);
    const __m512i b2 = _mm512_set1_epi8((char)bounds->bounds[2]), order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    for (int64_t j = 0; j < n; j += 64) {
        const __mmask64 own = n - j < 64 ? ((__mmask64)1 << (n - j)) - 1 : ~(__mmask64)0;
        const __m512i code0 = _mm512_maskz_loadu_epi16((__mmask32)own, codes + j);
        const __m512i code1 = _mm512_maskz_loadu_epi16((__mmask32)(own >> 32), codes + j + 32);
        const __m512i token = _mm512_maskz_loadu_epi8(own, tokens + j);
        const __m512i exponent0 = _mm512_and_si512(_mm512_srli_epi16(code0, 4), top);
        const __m512i exponent1 = _mm512_and_si512(_mm512_srli_epi16(code1, 4), top);
        // Subtraction and packing both end at the border; packing takes turns with 16 bytes of each.
        const __m512i packed = _mm512_packus_epi16(_mm512_subs_epu16(exponent0, base), _mm512_subs_epu16(exponent1, base));
        const __m512i size = _mm512_permutexvar_epi8(token, table);
        const __m512i change = _mm512_adds_epu8(_mm512_permutexvar_epi64(order, packed), size);
        const __mmask64 numbers = (__mmask64)_mm512_cmpneq_epi16_mask(exponent1, top) << 32 |
                                  _mm512_cmpneq_epi16_mask(exponent0, top);
        const __mmask64 valid = numbers & ~_mm512_movepi8_mask(size);
        const __mmask64 down = _mm512_cmplt_epu8_mask(token, _mm512_set1_epi8(MIDDLE));
        const __mmask64 negative = (__mmask64)_mm512_movepi16_mask(code1) << 32 | _mm512_movepi16_mask(code0);
        __m512i level = _mm512_maskz_mov_epi8(_mm512_mask_cmpge_epu8_mask(valid, change, b0), one);
        level = _mm512_mask_add_epi8(level, _mm512_mask_cmpge_epu8_mask(valid, change, b1), level, one);
        level = _mm512_mask_add_epi8(level, _mm512_mask_cmpge_epu8_mask(valid, change, b2), level, one);
        _mm512_mask_storeu_epi8(levels + j, own, _mm512_mask_sub_epi8(level, down ^ negative, zero, level));
    }
}
#else
static inline uint8_t lower(uint8_t a, uint8_t b) { return a < b ? a : b; }
static inline uint8_t higher(uint8_t a, uint8_t b) { return a > b ? a : b; }

static void levels_of_tile(const uint16_t *restrict codes, const uint8_t *restrict tokens, int64_t n,
                           const byte_bounds *bounds, int8_t *restrict levels) {
    const uint8_t b0 = bounds->bounds[0], b1 = bounds->bounds[1], b2 = bounds->bounds[2];
    const uint16_t base = bounds->base;
    uint8_t heights[TILE], signs[TILE];
    uint16_t highest = 0;
    FOR_EACH(j, n) {
        const uint16_t exponent = (codes[j] >> 4) & 0x7F8, kept = exponent > base ? exponent : base;
        const uint16_t height = (uint16_t)(kept - base);
        heights[j] = (uint8_t)(height < 0xF8 ? height : 0xF8);
        highest = exponent > highest ? exponent : highest;
    }
    FOR_EACH(j, n) signs[j] = (uint8_t)(codes[j] >> 8);
    FOR_EACH(j, n) {
        const uint8_t up = (uint8_t)(tokens[j] - MIDDLE), down = (uint8_t)(MIDDLE - tokens[j]), size = lower(up, down);
        const uint8_t twice = (uint8_t)(size + size), four = (uint8_t)(twice + twice), eight = (uint8_t)(four + four);
        // As of eighths().
        const uint8_t first = lower((uint8_t)(eight - 8), four), second = lower((uint8_t)(twice + 8), (uint8_t)(size + 16));
        const uint8_t step = higher(lower(first, second), (uint8_t)(higher(eight, 100) - 100));
        const uint8_t change = (uint8_t)(heights[j] + lower(step, (uint8_t)~heights[j]));
        const uint8_t valid = (uint8_t)-((uint8_t)(size - 1) < FARTHEST);
        const uint8_t level = (uint8_t)(((change >= b0) + (change >= b1) + (change >= b2)) & valid);
        const uint8_t sign = (uint8_t)-((uint8_t)(signs[j] ^ up) >> 7);
        levels[j] = (int8_t)(uint8_t)((level ^ sign) - sign);
    }
    // Hardly ever are there numbers that are none.
    if (highest == 0x7F8) FOR_EACH(j, n) levels[j] = (codes[j] & 0x7F80) == 0x7F80 ? 0 : levels[j];
}

static void levels_of(const uint16_t *codes, const uint8_t *tokens, int64_t n, const byte_bounds *bounds, int8_t *levels) {
    for (int64_t j = 0; j < n; j += TILE) levels_of_tile(codes + j, tokens + j, least(TILE, n - j), bounds, levels + j);
}
#endif

void fill_levels(const uint16_t *source, const uint8_t *tokens, int64_t n, int64_t width, int64_t column,
                 const int16_t *bounds, int64_t first, int64_t stride, int64_t rows, int8_t *levels) {
    const byte_bounds in_byte = in_bytes(bounds);
    FOR_EACH(row, rows) {
        int8_t *line = levels + row * width;
        const int64_t offset = (first + row * stride) * width - column;
        const int64_t begin = least(most(0, -offset), width), end = most(begin, least(width, n - offset));
        memset(line, 0, (size_t)begin);
        levels_of(source + offset + begin, tokens + offset + begin, end - begin, &in_byte, line + begin);
        memset(line + end, 0, (size_t)(width - end));
    }
}

void maskreg_size_bounds(const int8_t *row_factors, int64_t rows, const int8_t *column_factors, int64_t width,
                         int64_t rank, int64_t stride, int32_t *counts, int16_t *bounds) {
    int64_t seen = 0;
    for (int64_t row = 0; row < rows; row += stride, seen += width)
        for (int64_t begin = 0; begin < width; begin += TILE) {
            const int64_t n = least(TILE, width - begin);
            int16_t predicted[TILE] = {0};
            FOR_EACH(k, rank) {
                const int16_t factor = row_factors[k * rows + row];
                const int8_t *restrict factors = column_factors + k * width + begin;
                FOR_EACH(j, n) predicted[j] = (int16_t)(predicted[j] + factor * factors[j]);
            }
            // Apart from counting, where it would become a branch.
            FOR_EACH(j, n) predicted[j] = (int16_t)(predicted[j] < 0 ? -predicted[j] : predicted[j]);
            FOR_EACH(j, n) counts[predicted[j]]++;
        }
    int64_t reached = counts[0];
    int16_t size = 0;
    for (int64_t bound = 1; bound < SIZES; bound++) {
        while (reached * SIZES <= seen * bound) reached += counts[++size];
        bounds[bound - 1] = size;
    }
}
