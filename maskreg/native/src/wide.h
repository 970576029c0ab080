// Vectors of 32 or 64 bytes, as wide as the level has, for loops that compilers do not turn into good ones.
//
// Where WIDE is defined, it is their size in bytes. What packs or spreads bytes does so in the order of memory.
#ifndef MASKREG_WIDE_H
#define MASKREG_WIDE_H

#include "loops.h"

#if defined(__AVX512BW__) && defined(__AVX512VBMI__)
#include <immintrin.h>

#define WIDE 64
#define WIDE_OP(name) _mm512_##name

typedef __m512i wide;

static inline wide load_wide(const void *from) { return _mm512_loadu_si512(from); }
static inline void store_wide(void *to, wide v) { _mm512_storeu_si512(to, v); }
static inline wide and_wide(wide a, wide b) { return _mm512_and_si512(a, b); }
static inline wide or_wide(wide a, wide b) { return _mm512_or_si512(a, b); }
static inline wide xor_wide(wide a, wide b) { return _mm512_xor_si512(a, b); }

// 16 bytes, as often as they fit.
static inline wide repeat_wide(const uint8_t *from) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)from));
}

// Two vectors of 16 bits as one of bytes; what does not fit becomes the nearest.
static inline wide packed_wide(wide low, wide high) {
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), _mm512_packs_epi16(low, high));
}

// The lower and upper half of a vector of bytes as one of 16 bits.
static inline wide low_half(wide v) { return _mm512_cvtepi8_epi16(_mm512_castsi512_si256(v)); }
static inline wide high_half(wide v) { return _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(v, 1)); }

// counts - 1 where a > b, in 16 bits.
static inline wide less_where_greater(wide counts, wide a, wide b) {
    return _mm512_mask_add_epi16(counts, _mm512_cmpgt_epi16_mask(a, b), counts, _mm512_set1_epi16(-1));
}

// Sums of each of 16 numbers and all before it: 1 2 3 4, say, added to themselves moved by 1 (1 3 5 7), by 2 (1 3 6 10),
// by 4 and by 8.
static inline wide running_sums(wide numbers) {
    const wide zero = _mm512_setzero_si512();
    numbers = _mm512_add_epi32(numbers, _mm512_alignr_epi32(numbers, zero, 15));
    numbers = _mm512_add_epi32(numbers, _mm512_alignr_epi32(numbers, zero, 14));
    numbers = _mm512_add_epi32(numbers, _mm512_alignr_epi32(numbers, zero, 12));
    return _mm512_add_epi32(numbers, _mm512_alignr_epi32(numbers, zero, 8));
}

// A bit for each byte that is above the bound, unsigned.
static inline uint64_t bits_above(wide v, uint8_t bound) {
    return _mm512_cmpgt_epu8_mask(v, _mm512_set1_epi8((char)bound));
}

#elif defined(__AVX2__)
#include <immintrin.h>

#define WIDE 32
#define WIDE_OP(name) _mm256_##name

typedef __m256i wide;

static inline wide load_wide(const void *from) { return _mm256_loadu_si256((const __m256i *)from); }
static inline void store_wide(void *to, wide v) { _mm256_storeu_si256((__m256i *)to, v); }
static inline wide and_wide(wide a, wide b) { return _mm256_and_si256(a, b); }
static inline wide or_wide(wide a, wide b) { return _mm256_or_si256(a, b); }
static inline wide xor_wide(wide a, wide b) { return _mm256_xor_si256(a, b); }

static inline wide repeat_wide(const uint8_t *from) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)from));
}

static inline wide packed_wide(wide low, wide high) {
    return _mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xD8);
}

static inline wide low_half(wide v) { return _mm256_cvtepi8_epi16(_mm256_castsi256_si128(v)); }
static inline wide high_half(wide v) { return _mm256_cvtepi8_epi16(_mm256_extracti128_si256(v, 1)); }

static inline wide less_where_greater(wide counts, wide a, wide b) {
    return _mm256_add_epi16(counts, _mm256_cmpgt_epi16(a, b));
}

static inline uint64_t bits_above(wide v, uint8_t bound) {
    const wide within = _mm256_cmpeq_epi8(_mm256_min_epu8(v, _mm256_set1_epi8((char)bound)), v);
    return (uint32_t)~_mm256_movemask_epi8(within);
}
#endif

#endif
