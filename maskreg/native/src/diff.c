// Comparing two blocks of bf16 codes: the exact rule's mask, and how far the values moved.
#include "bits.h"

enum { TILE = 4096, LANES = 16, EXPONENT = 0x7F80, MAGNITUDE = 0x7FFF };

static void diff(const uint16_t *source, const uint16_t *target, int64_t n, uint8_t *packed, int64_t *counts) {
    uint8_t marks[TILE + WORD];
    uint16_t moved = 0, differing = 0;
    FOR_EACH(i, n) {
        const uint16_t differs = source[i] != target[i], nonzero = ((source[i] | target[i]) & MAGNITUDE) != 0;
        marks[i] = (uint8_t)(differs & nonzero);
        moved = (uint16_t)(moved + (differs & nonzero));
        differing = (uint16_t)(differing + differs);
    }
    pack_marks(marks, n, packed);
    counts[0] += moved;
    counts[1] += differing;
}

// At most TILE pairs of which a side is not finite.
static int64_t count_nonfinite(const uint16_t *source, const uint16_t *target, int64_t n) {
    uint16_t count = 0;
    FOR_EACH(i, n) {
        const uint16_t a = (source[i] & EXPONENT) == EXPONENT, b = (target[i] & EXPONENT) == EXPONENT;
        count = (uint16_t)(count + (a | b));
    }
    return count;
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

static void add_energy(const uint16_t *source, const uint16_t *target, int64_t n, double *sums) {
    double own[LANES];
    memcpy(own, sums, sizeof own);
    const int64_t whole = n / LANES * LANES;
    for (int64_t start = 0; start < whole; start += LANES)
        FOR_EACH(k, LANES) own[k] += squared_change(source[start + k], target[start + k]);
    FOR_EACH(k, n - whole) own[k] += squared_change(source[whole + k], target[whole + k]);
    memcpy(sums, own, sizeof own);
}

#ifdef __AVX512BW__
// Two codes share 32 bits. Shifting makes a number of the even one and masking of the odd one, so nothing is moved
// between lanes, which is what takes the time here. Even and odd sums are kept apart.
typedef struct {
    __m512d even, odd;
} Sums;

static const int64_t EVENS[8] = {0, 2, 4, 6, 8, 10, 12, 14};

static inline __m512d squares(__m256i before, __m256i after) {
    const __m512d change =
        _mm512_sub_pd(_mm512_cvtps_pd(_mm256_castsi256_ps(after)), _mm512_cvtps_pd(_mm256_castsi256_ps(before)));
    return _mm512_mul_pd(change, change);
}

static inline __mmask16 are_finite(__m256i codes) {
    const __m256i exponent = _mm256_set1_epi16(EXPONENT);
    return _mm256_cmpneq_epi16_mask(_mm256_and_si256(codes, exponent), exponent);
}

// Returns how many of the 16 pairs are finite.
static inline int64_t add_squares(__m256i a, __m256i b, Sums *sums) {
    const __m256i odd = _mm256_set1_epi32((int)0xFFFF0000);
    const __mmask16 finite = are_finite(a) & are_finite(b);
    const __m256i before = _mm256_maskz_mov_epi16(finite, a), after = _mm256_maskz_mov_epi16(finite, b);
    sums->even = _mm512_add_pd(sums->even, squares(_mm256_slli_epi32(before, 16), _mm256_slli_epi32(after, 16)));
    sums->odd = _mm512_add_pd(sums->odd, squares(_mm256_and_si256(before, odd), _mm256_and_si256(after, odd)));
    return __builtin_popcount(finite);
}

// As many whole words as there are; returns how many coordinates they have.
static int64_t compare_words(const uint16_t *source, const uint16_t *target, int64_t n, uint8_t *packed,
                             int64_t *counts, double *sums) {
    const __m512i magnitude = _mm512_set1_epi16(MAGNITUDE), evens = _mm512_loadu_si512(EVENS);
    const int64_t whole = n / WORD * WORD;
    int64_t finite = 0;
    Sums own = {_mm512_i64gather_pd(evens, sums, 8), _mm512_i64gather_pd(evens, sums + 1, 8)};
    for (int64_t i = 0; i < whole; i += 32) {
        const __m512i a = _mm512_loadu_si512(source + i), b = _mm512_loadu_si512(target + i);
        const uint32_t differs = _mm512_cmpneq_epi16_mask(a, b);
        const uint32_t moved = differs & _mm512_test_epi16_mask(_mm512_or_si512(a, b), magnitude);
        memcpy(packed + i / 8, &moved, sizeof moved);
        counts[0] += __builtin_popcount(moved);
        counts[1] += __builtin_popcount(differs);
        finite += add_squares(_mm512_castsi512_si256(a), _mm512_castsi512_si256(b), &own);
        finite += add_squares(_mm512_extracti64x4_epi64(a, 1), _mm512_extracti64x4_epi64(b, 1), &own);
    }
    counts[2] += whole - finite;
    _mm512_i64scatter_pd(sums, evens, own.even, 8);
    _mm512_i64scatter_pd(sums + 1, evens, own.odd, 8);
    return whole;
}
#else
static int64_t compare_words(const uint16_t *source, const uint16_t *target, int64_t n, uint8_t *packed,
                             int64_t *counts, double *sums) {
    (void)source, (void)target, (void)n, (void)packed, (void)counts, (void)sums;
    return 0;
}
#endif

// What compare_words leaves is done in tiles, so that all but the first of three loops find theirs in the cache.
void maskreg_compare(const uint16_t *source, const uint16_t *target, int64_t n, uint8_t *packed, int64_t *counts,
                     double *sums) {
    int64_t start = compare_words(source, target, n, packed, counts, sums);
    for (; start < n; start += TILE) {
        const int64_t size = least(TILE, n - start);
        diff(source + start, target + start, size, packed + start / 8, counts);
        counts[2] += count_nonfinite(source + start, target + start, size);
        add_energy(source + start, target + start, size, sums);
    }
}

void maskreg_energy(const uint16_t *source, const uint16_t *target, int64_t n, double *sums) {
    add_energy(source, target, n, sums);
}

void maskreg_compare_movers(const maskreg_movers *movers, int64_t count, const uint16_t *replaced, uint8_t *moved,
                            double *sums) {
    FOR_EACH(i, count) {
        const uint16_t from = replaced[i], to = movers->codes[i];
        moved[i] = (from != to) & (((from | to) & MAGNITUDE) != 0);
        sums[movers->positions[i] % LANES] += squared_change(from, to);
    }
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
