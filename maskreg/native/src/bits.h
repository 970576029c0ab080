// Packed bits of masks: bit i of byte j is coordinate 8 j + i of a span, and zeros pad it to whole words of 64 bits.
#ifndef MASKREG_BITS_H
#define MASKREG_BITS_H

#include "loops.h"

#if defined(__AVX2__)
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

// `n` bits from bit `at` on, 1 to 64 of them; zeros above. No word is read that has none of them.
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

#endif
