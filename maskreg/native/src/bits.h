// Packed bits of masks: bit i of byte j is coordinate 8 j + i of a span, and zeros pad it to whole words of 64 bits.
#ifndef MASKREG_BITS_H
#define MASKREG_BITS_H

#include "loops.h"

#if defined(__AVX2__) || defined(__SSE2__)
#include <immintrin.h>
#endif

enum { WORD = 64 };

#define WORDS_OF(bits) (((bits) + WORD - 1) / WORD)

static inline uint64_t load_word(const uint8_t *packed, int64_t number) {
    uint64_t word;
    memcpy(&word, packed + 8 * number, sizeof word);
    return word;
}

static inline void store_word(uint8_t *packed, int64_t number, uint64_t word) {
    memcpy(packed + 8 * number, &word, sizeof word);
}

// How many bits are set.
static inline int64_t ones(uint64_t word) {
#if defined(__x86_64__) && !defined(__POPCNT__)
    // Without the instruction the compiler would call a function: add up pairs, fours and bytes instead, then all bytes.
    word -= word >> 1 & 0x5555555555555555ULL;
    word = (word & 0x3333333333333333ULL) + (word >> 2 & 0x3333333333333333ULL);
    word = (word + (word >> 4)) & 0x0F0F0F0F0F0F0F0FULL;
    return (int64_t)(word * 0x0101010101010101ULL >> 56);
#else
    return __builtin_popcountll(word);
#endif
}

// `n` bits from bit `at` on, 1 to 64 of them; zeros above. Only words that hold such bits are read.
static inline uint64_t bits_at(const uint8_t *packed, int64_t at, int64_t n) {
    const int64_t number = at / WORD, shift = at % WORD;
    uint64_t word = load_word(packed, number) >> shift;
    if (shift + n > WORD) word |= load_word(packed, number + 1) << (WORD - shift);
    return word & ~(uint64_t)0 >> (WORD - n);
}

// The same for any number of bits; fills WORDS_OF(n).
static inline void copy_bits(const uint8_t *packed, int64_t at, int64_t n, uint64_t *restrict words) {
    const int64_t first = at / WORD, shift = at % WORD, whole = n / WORD;
    if (!shift) FOR_EACH(k, whole) words[k] = load_word(packed, first + k);
    else FOR_EACH(k, whole)
        words[k] = load_word(packed, first + k) >> shift | load_word(packed, first + k + 1) << (WORD - shift);
    if (n % WORD) words[whole] = bits_at(packed, at + whole * WORD, n % WORD);
}

// Eight bits, each in a byte of its own: 0b101 -> bytes 1, 0, 1, 0, ...
static inline uint64_t spread(uint8_t bits) {
    // In all bytes; then in each only its own bit, 0 or a power of two, which carries into the highest bit.
    const uint64_t own = bits * 0x0101010101010101ULL & 0x8040201008040201ULL;
    return (own + 0x7F7F7F7F7F7F7F7FULL) >> 7 & 0x0101010101010101ULL;
}

// Whole words of `n` bits, a byte each.
static inline void unpack_bits(const uint8_t *packed, int64_t n, uint8_t *restrict marks) {
    FOR_EACH(number, WORDS_OF(n)) {
#if defined(__AVX512BW__)
        _mm512_storeu_si512(marks + number * WORD, _mm512_maskz_set1_epi8(load_word(packed, number), 1));
#else
        FOR_EACH(k, 8) {
            const uint64_t eight = spread(packed[8 * number + k]);
            memcpy(marks + number * WORD + 8 * k, &eight, sizeof eight);
        }
#endif
    }
}

// Bits of `n` marks, 0 or 1 in a byte each, as whole words; the marks of the last one, up to 63 behind `n`, are cleared.
static inline void pack_marks(uint8_t *restrict marks, int64_t n, uint8_t *restrict packed) {
    memset(marks + n, 0, (size_t)(WORDS_OF(n) * WORD - n));
    FOR_EACH(number, WORDS_OF(n)) {
        const uint8_t *own = marks + number * WORD;
#if defined(__AVX512BW__)
        const __m512i all = _mm512_loadu_si512(own);
        store_word(packed, number, _mm512_test_epi8_mask(all, all));
#elif defined(__AVX2__)
        // A mark's only bit becomes the highest of its byte.
        const __m256i low = _mm256_slli_epi16(_mm256_loadu_si256((const __m256i *)own), 7);
        const __m256i high = _mm256_slli_epi16(_mm256_loadu_si256((const __m256i *)(own + 32)), 7);
        const uint64_t upper = (uint32_t)_mm256_movemask_epi8(high);
        store_word(packed, number, upper << 32 | (uint32_t)_mm256_movemask_epi8(low));
#else
        FOR_EACH(k, 8) {
            // Byte j times 2^(56 - 7j) puts its bit at 56 + j: the highest byte of the product has all eight.
            uint64_t eight;
            memcpy(&eight, own + 8 * k, sizeof eight);
            packed[8 * number + k] = (uint8_t)(eight * 0x0102040810204080ULL >> 56);
        }
#endif
    }
}

// Add a value to each of 64 bytes whose bit is set.
static inline void add_where(uint64_t bits, uint8_t value, uint8_t *restrict bytes) {
#if defined(__AVX512BW__)
    const __m512i old = _mm512_loadu_si512(bytes);
    _mm512_storeu_si512(bytes, _mm512_mask_add_epi8(old, bits, old, _mm512_set1_epi8((char)value)));
#elif defined(__AVX2__)
    // Byte k of a vector looks at bit k % 8 of byte k / 8 of its half of the bits.
    const __m256i byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201ULL), added = _mm256_set1_epi8((char)value);
    FOR_EACH(half, 2) {
        const __m256i all = _mm256_shuffle_epi8(_mm256_set1_epi32((int32_t)(bits >> 32 * half)), byte);
        const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(all, bit), bit);
        __m256i *own = (__m256i *)(bytes + 32 * half);
        _mm256_storeu_si256(own, _mm256_add_epi8(_mm256_loadu_si256(own), _mm256_and_si256(set, added)));
    }
#else
    FOR_EACH(k, 8) {
        const uint64_t eight = spread((uint8_t)(bits >> 8 * k));
        FOR_EACH(i, 8) bytes[8 * k + i] = (uint8_t)(bytes[8 * k + i] + (uint8_t)(eight >> 8 * i) * value);
    }
#endif
}

// A bit for each of 64 bytes that has this value.
static inline uint64_t bytes_equal(const uint8_t *bytes, uint8_t value) {
#if defined(__AVX512BW__)
    return _mm512_cmpeq_epi8_mask(_mm512_loadu_si512(bytes), _mm512_set1_epi8((char)value));
#elif defined(__AVX2__)
    const __m256i all = _mm256_set1_epi8((char)value);
    const __m256i low = _mm256_cmpeq_epi8(_mm256_loadu_si256((const __m256i *)bytes), all);
    const __m256i high = _mm256_cmpeq_epi8(_mm256_loadu_si256((const __m256i *)(bytes + 32)), all);
    return (uint64_t)(uint32_t)_mm256_movemask_epi8(high) << 32 | (uint32_t)_mm256_movemask_epi8(low);
#elif defined(__SSE2__)
    uint64_t bits = 0;
    FOR_EACH(k, 4) {
        const __m128i own = _mm_loadu_si128((const __m128i *)(bytes + 16 * k));
        bits |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(own, _mm_set1_epi8((char)value))) << (16 * k);
    }
    return bits;
#else
    uint8_t marks[WORD], packed[WORD / 8];
    FOR_EACH(i, WORD) marks[i] = bytes[i] == value;
    FOR_EACH(k, WORD / 8) {
        uint64_t eight;
        memcpy(&eight, marks + 8 * k, sizeof eight);
        packed[k] = (uint8_t)(eight * 0x0102040810204080ULL >> 56);
    }
    return load_word(packed, 0);
#endif
}

#endif
