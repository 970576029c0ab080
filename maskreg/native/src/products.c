// Products of levels with directions: maskreg/codec/factors.py.
//
// All are bytes and all sums fit 32 bits, so that their order does not matter. Processors multiply unsigned bytes by
// signed ones and add the products of four neighbors, so levels of -3 .. 3 are raised to 0 .. 6:
//
//     sum of level * d = sum of (level + 3) * d - 3 * sum of d
//
// forward: neighbors are columns. Four rows and a few directions at a time: a load serves several products.
// backward: neighbors are rows. Panels of 64 rows; in each, the bytes of four rows are interleaved once for all
// directions:
//
//     rows  a0 a1 a2 ...  b0 b1 b2 ...  c0 c1 c2 ...  d0 d1 d2 ...    become    a0 b0 c0 d0  a1 b1 c1 d1  a2 b2 c2 d2 ...
#include "fit.h"

#if defined(__AVX2__)
#include <immintrin.h>

// ROWS * ABREAST sums are kept in registers.
enum { ROWS = 4, PANEL = 64, RAISED = 3 };

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
typedef __m512i vector;
enum { BYTES = 64, NUMBERS = 16, ABREAST = 4 };

static inline vector zeros(void) { return _mm512_setzero_si512(); }
static inline vector load(const void *from) { return _mm512_loadu_si512(from); }
static inline vector load_some(const void *from, int64_t n) {
    return _mm512_maskz_loadu_epi8(((uint64_t)1 << n) - 1, from);
}
static inline void store(void *to, vector v) { _mm512_storeu_si512(to, v); }
static inline vector raise(vector levels) { return _mm512_add_epi8(levels, _mm512_set1_epi8(RAISED)); }
static inline vector all(int32_t number) { return _mm512_set1_epi32(number); }
static inline vector dot(vector sums, vector levels, vector directions) {
    return _mm512_dpbusd_epi32(sums, levels, directions);
}
static inline int32_t total(vector sums) { return _mm512_reduce_add_epi32(sums); }

// Sums of 16 vectors at once, in order: each step adds halves of two, which become halves of one.
static inline vector totals(const vector *v) {
    vector fours[4];
    for (int i = 0; i < 4; i++) {
        const vector *own = v + 4 * i;
        const vector first = _mm512_add_epi32(_mm512_unpacklo_epi32(own[0], own[1]), _mm512_unpackhi_epi32(own[0], own[1]));
        const vector last = _mm512_add_epi32(_mm512_unpacklo_epi32(own[2], own[3]), _mm512_unpackhi_epi32(own[2], own[3]));
        fours[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(first, last), _mm512_unpackhi_epi64(first, last));
    }
    const vector low = _mm512_add_epi32(_mm512_shuffle_i32x4(fours[0], fours[1], 0x88),
                                        _mm512_shuffle_i32x4(fours[0], fours[1], 0xDD));
    const vector high = _mm512_add_epi32(_mm512_shuffle_i32x4(fours[2], fours[3], 0x88),
                                         _mm512_shuffle_i32x4(fours[2], fours[3], 0xDD));
    return _mm512_add_epi32(_mm512_shuffle_i32x4(low, high, 0x88), _mm512_shuffle_i32x4(low, high, 0xDD));
}
static inline vector low_bytes(vector a, vector b) { return _mm512_unpacklo_epi8(a, b); }
static inline vector high_bytes(vector a, vector b) { return _mm512_unpackhi_epi8(a, b); }
static inline vector low_pairs(vector a, vector b) { return _mm512_unpacklo_epi16(a, b); }
static inline vector high_pairs(vector a, vector b) { return _mm512_unpackhi_epi16(a, b); }
// Interleaving works within 16 bytes, of which it takes 4 after 4; so the fours that are to be neighbors go there first.
static inline vector spread(vector row) {
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), row);
}
#else
typedef __m256i vector;
enum { BYTES = 32, NUMBERS = 8, ABREAST = 2 };

static inline vector zeros(void) { return _mm256_setzero_si256(); }
static inline vector load(const void *from) { return _mm256_loadu_si256((const __m256i *)from); }
static inline vector load_some(const void *from, int64_t n) {
    int8_t bytes[BYTES] = {0};
    memcpy(bytes, from, (size_t)n);
    return load(bytes);
}
static inline void store(void *to, vector v) { _mm256_storeu_si256((__m256i *)to, v); }
static inline vector raise(vector levels) { return _mm256_add_epi8(levels, _mm256_set1_epi8(RAISED)); }
static inline vector all(int32_t number) { return _mm256_set1_epi32(number); }
static inline vector dot(vector sums, vector levels, vector directions) {
    // Two products are at most 2 * 6 * 127, which fits 16 bits.
    const vector pairs = _mm256_maddubs_epi16(levels, directions);
    return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
static inline int32_t total(vector sums) {
    int32_t numbers[NUMBERS], result = 0;
    store(numbers, sums);
    FOR_EACH(i, NUMBERS) result += numbers[i];
    return result;
}
static inline vector low_bytes(vector a, vector b) { return _mm256_unpacklo_epi8(a, b); }
static inline vector high_bytes(vector a, vector b) { return _mm256_unpackhi_epi8(a, b); }
static inline vector low_pairs(vector a, vector b) { return _mm256_unpacklo_epi16(a, b); }
static inline vector high_pairs(vector a, vector b) { return _mm256_unpackhi_epi16(a, b); }
static inline vector spread(vector row) {
    return _mm256_permutevar8x32_epi32(row, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
}
#endif


// A loop whose count is known once it is inlined: without it, what it fills would stay in memory.
#define UNROLLED(i, n) _Pragma("GCC unroll 4") for (int i = 0; i < (n); i++)

static int32_t correction(const int8_t *direction, int64_t n) {
    int32_t sum = 0;
    FOR_EACH(i, n) sum += direction[i];
    return RAISED * sum;
}

// Add the products of up to BYTES columns.
INLINE void forward_columns(const int8_t *levels, int64_t w, const int8_t *directions, int rows, int components,
                            int64_t n, vector (*sums)[ABREAST]) {
    vector d[ABREAST];
    UNROLLED(c, components) d[c] = n == BYTES ? load(directions + c * w) : load_some(directions + c * w, n);
    UNROLLED(r, rows) {
        // Beyond the end directions are 0.
        const vector raised = raise(n == BYTES ? load(levels + r * w) : load_some(levels + r * w, n));
        UNROLLED(c, components) sums[r][c] = dot(sums[r][c], raised, d[c]);
    }
}

// Sums of `rows` rows from `levels` on with `components` directions.
INLINE void forward_some(const int8_t *levels, int64_t w, const int8_t *directions, int rows, int components,
                         const int32_t *corrections, int32_t *sums, int64_t m) {
    vector partial[ROWS][ABREAST];
    UNROLLED(r, rows) UNROLLED(c, components) partial[r][c] = zeros();
    int64_t j = 0;
    for (; j + BYTES <= w; j += BYTES)
        forward_columns(levels + j, w, directions + j, rows, components, BYTES, partial);
    if (j < w) forward_columns(levels + j, w, directions + j, rows, components, w - j, partial);
#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
    if (rows == ROWS && components == ABREAST) {
        vector by_direction[ABREAST * ROWS];
        int32_t numbers[ABREAST][ROWS];
        UNROLLED(r, rows) UNROLLED(c, components) by_direction[c * ROWS + r] = partial[r][c];
        store(numbers, totals(by_direction));
        UNROLLED(c, components) UNROLLED(r, rows) sums[c * m + r] = numbers[c][r] - corrections[c];
        return;
    }
#endif
    UNROLLED(r, rows) UNROLLED(c, components) sums[c * m + r] = total(partial[r][c]) - corrections[c];
}

// The same with numbers of rows and directions that are known when this is compiled.
static void forward_rows(const int8_t *levels, int64_t w, const int8_t *directions, int64_t rows, int64_t components,
                         const int32_t *corrections, int32_t *sums, int64_t m) {
#define FORWARD(r, c) \
    if (rows == (r) && components == (c)) forward_some(levels, w, directions, r, c, corrections, sums, m)
    FORWARD(ROWS, 1);
    FORWARD(ROWS, 2);
    FORWARD(1, 1);
    FORWARD(1, 2);
#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
    FORWARD(ROWS, 3);
    FORWARD(ROWS, 4);
    FORWARD(1, 3);
    FORWARD(1, 4);
#endif
#undef FORWARD
}

void forward(const int8_t *levels, int64_t m, int64_t w, const int8_t *directions, int64_t k, int32_t *sums) {
    int32_t corrections[COMPONENTS];
    FOR_EACH(c, k) corrections[c] = correction(directions + c * w, w);
    for (int64_t row = 0; row < m;) {
        const int64_t rows = m - row >= ROWS ? ROWS : 1;
        for (int64_t c = 0; c < k; c += ABREAST)
            forward_rows(levels + row * w, w, directions + c * w, rows, least(ABREAST, k - c), corrections + c,
                         sums + c * m + row, m);
        row += rows;
    }
}

// Interleave the bytes of columns `[0, n)` of up to 64 rows; rows that lack are like the last.
static void interleave(const int8_t *levels, int64_t rows, int64_t w, int64_t n, vector (*quads)[4]) {
    for (int64_t row = 0; row < rows; row += 4) {
        vector four[4];
        for (int r = 0; r < 4; r++) {
            const int8_t *from = levels + least(row + r, rows - 1) * w;
            four[r] = spread(raise(n >= BYTES ? load(from) : load_some(from, n)));
        }
        const vector low01 = low_bytes(four[0], four[1]), high01 = high_bytes(four[0], four[1]);
        const vector low23 = low_bytes(four[2], four[3]), high23 = high_bytes(four[2], four[3]);
        vector *quad = quads[row / 4];
        quad[0] = low_pairs(low01, low23);
        quad[1] = high_pairs(low01, low23);
        quad[2] = low_pairs(high01, high23);
        quad[3] = high_pairs(high01, high23);
    }
}

// Add the products of a panel with `components` directions, of 64 bytes each, to BYTES sums of each, `stride` apart.
INLINE void backward_some(vector (*quads)[4], int64_t fours, const int8_t *directions, int components, int32_t *sums,
                          int64_t stride) {
    vector partial[ABREAST][4];
    UNROLLED(c, components) UNROLLED(q, 4) partial[c][q] = load(sums + c * stride + q * NUMBERS);
    for (int64_t f = 0; f < fours; f++) UNROLLED(c, components) {
        int32_t four;
        memcpy(&four, directions + c * PANEL + 4 * f, sizeof four);
        UNROLLED(q, 4) partial[c][q] = dot(partial[c][q], quads[f][q], all(four));
    }
    UNROLLED(c, components) UNROLLED(q, 4) store(sums + c * stride + q * NUMBERS, partial[c][q]);
}

static void backward_tile(vector (*quads)[4], int64_t fours, const int8_t *directions, int64_t components,
                          int32_t *sums, int64_t stride) {
#define BACKWARD(c) \
    if (components == (c)) backward_some(quads, fours, directions, c, sums, stride)
    BACKWARD(1);
    BACKWARD(2);
#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
    BACKWARD(3);
    BACKWARD(4);
#endif
#undef BACKWARD
}

void backward(const int8_t *levels, int64_t m, int64_t w, const int8_t *directions, int64_t k, int32_t *sums) {
    FOR_EACH(c, k) {
        const int32_t first = -correction(directions + c * m, m);
        FOR_EACH(j, w) sums[c * w + j] = first;
    }
    for (int64_t row = 0; row < m; row += PANEL) {
        const int64_t rows = least(PANEL, m - row), fours = (rows + 3) / 4;
        int8_t panel[COMPONENTS][PANEL] = {{0}};
        FOR_EACH(c, k) memcpy(panel[c], directions + c * m + row, (size_t)rows);
        for (int64_t j = 0; j < w; j += BYTES) {
            const int64_t n = least(BYTES, w - j);
            vector quads[PANEL / 4][4];
            interleave(levels + row * w + j, rows, w, n, quads);
            for (int64_t c = 0; c < k; c += ABREAST) {
                const int64_t components = least(ABREAST, k - c);
                int32_t *to = sums + c * w + j, room[ABREAST][BYTES];
                if (n == BYTES) {
                    backward_tile(quads, fours, panel[c], components, to, w);
                    continue;
                }
                FOR_EACH(i, components) memcpy(room[i], to + i * w, (size_t)n * sizeof *to);
                backward_tile(quads, fours, panel[c], components, room[0], BYTES);
                FOR_EACH(i, components) memcpy(to + i * w, room[i], (size_t)n * sizeof *to);
            }
        }
    }
}

#else

void forward(const int8_t *levels, int64_t m, int64_t w, const int8_t *directions, int64_t k, int32_t *sums) {
    enum { COLUMNS = 512 };
    memset(sums, 0, (size_t)(k * m) * sizeof *sums);
    for (int64_t begin = 0; begin < w; begin += COLUMNS) {
        // Widened once, because compilers find instructions for sums of products of 16 bits.
        const int64_t n = least(COLUMNS, w - begin);
        int16_t wide[COMPONENTS][COLUMNS], line[COLUMNS];
        FOR_EACH(c, k) FOR_EACH(j, n) wide[c][j] = directions[c * w + begin + j];
        FOR_EACH(row, m) {
            FOR_EACH(j, n) line[j] = levels[row * w + begin + j];
            FOR_EACH(c, k) {
                const int16_t *restrict direction = wide[c];
                int32_t sum = 0;
                FOR_EACH(j, n) sum += line[j] * direction[j];
                sums[c * m + row] += sum;
            }
        }
    }
}

void backward(const int8_t *levels, int64_t m, int64_t w, const int8_t *directions, int64_t k, int32_t *sums) {
    enum { PANEL = 64, COLUMNS = 512 };
    memset(sums, 0, (size_t)(k * w) * sizeof *sums);
    for (int64_t row = 0; row < m; row += PANEL)
        for (int64_t j = 0; j < w; j += COLUMNS) FOR_EACH(c, k) {
                // 64 rows sum to at most 64 * 3 * 127 = 24,384, which fits 16 bits.
                int16_t totals[COLUMNS] = {0};
                const int64_t n = least(COLUMNS, w - j);
                FOR_EACH(r, least(PANEL, m - row)) {
                    const int8_t *restrict line = levels + (row + r) * w + j;
                    const int16_t factor = directions[c * m + row + r];
                    FOR_EACH(i, n) totals[i] = (int16_t)(totals[i] + line[i] * factor);
                }
                FOR_EACH(i, n) sums[c * w + j + i] += totals[i];
            }
}
#endif
