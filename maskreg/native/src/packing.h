// Packing the masked values of words into a contiguous vector, and spreading them again. Eight values with 0b00101100:
//
//     pack     values  a b c d e f g h   ->  c d f           stored at the current entry, with what is left of the
//                                                            vector; the next values begin 3 entries later, over it
//     spread   packed  p q r s t u v w   ->  . . p q . r . . written where bits are set
//
// Values are the bits of bf16 or fp32. Those that are not masked are never computed with and keep their bits, also as a
// NaN.
#ifndef MASKREG_PACKING_H
#define MASKREG_PACKING_H

#include "bits.h"

#if defined(__AVX2__)
#include <immintrin.h>
enum { HAS_VECTORS = 1 };
#else
enum { HAS_VECTORS = 0 };
#endif

enum {
    WORD_BITS = 64,
    SPARE = 64,  // entries past the last that can be written when packing, and read when spreading
    LINE = 64,   // bytes that memory answers with
};

// Whether to read all values of words [begin, end), rather than the masked ones alone: then most lines have one.
static inline int is_dense(const maskreg_bits *mask, int64_t begin, int64_t end, int64_t bytes) {
    const int64_t count = (end < mask->count ? mask->rank[end] : mask->nnz) - mask->rank[begin];
    return HAS_VECTORS && count * (int64_t)sizeof(float) > (end - begin) * bytes;
}

// Ask memory for what will be read soon.
INLINE void fetch(const void *at, int64_t bytes) {
    for (int64_t b = 0; b < bytes; b += LINE) __builtin_prefetch((const char *)at + b);
}

// What follows takes one word, of which `at` are the 64 coordinates. Bit by bit, lowest first:

static inline void pack_each_16(const uint16_t *at, uint64_t word, uint16_t *packed) {
    for (; word; word &= word - 1) *packed++ = at[__builtin_ctzll(word)];
}

static inline void pack_each_32(const uint32_t *at, uint64_t word, float *packed) {
    for (; word; word &= word - 1) memcpy(packed++, at + __builtin_ctzll(word), sizeof *packed);
}

static inline void spread_each_16(uint16_t *at, uint64_t word, const uint16_t *packed) {
    for (; word; word &= word - 1) at[__builtin_ctzll(word)] = *packed++;
}

static inline void spread_each_32(uint32_t *at, uint64_t word, const float *packed) {
    for (; word; word &= word - 1) memcpy(at + __builtin_ctzll(word), packed++, sizeof *packed);
}

#if defined(__AVX512VBMI2__)

// Lanes whose bit is not set are neither read nor written, so that a tensor's last word can be incomplete.
static inline int in_vectors(int whole) {
    (void)whole;
    return 1;
}

static inline void pack_lanes_16(const uint16_t *at, uint64_t word, uint16_t *packed) {
    const __mmask32 low = (__mmask32)word, high = (__mmask32)(word >> 32);
    const __m512i first = _mm512_maskz_loadu_epi16(low, at), second = _mm512_maskz_loadu_epi16(high, at + 32);
    _mm512_storeu_si512(packed, _mm512_maskz_compress_epi16(low, first));
    _mm512_storeu_si512(packed + ones(low), _mm512_maskz_compress_epi16(high, second));
}

static inline void pack_lanes_32(const uint32_t *at, uint64_t word, float *packed) {
    for (int part = 0; part < WORD_BITS; part += 16) {
        const __mmask16 mask = (__mmask16)(word >> part);
        const __m512i own = _mm512_maskz_loadu_epi32(mask, at + part);
        _mm512_storeu_si512(packed, _mm512_maskz_compress_epi32(mask, own));
        packed += ones(mask);
    }
}

static inline void spread_lanes_16(uint16_t *at, uint64_t word, const uint16_t *packed) {
    const __mmask32 low = (__mmask32)word, high = (__mmask32)(word >> 32);
    const __m512i first = _mm512_loadu_si512(packed), second = _mm512_loadu_si512(packed + ones(low));
    _mm512_mask_storeu_epi16(at, low, _mm512_maskz_expand_epi16(low, first));
    _mm512_mask_storeu_epi16(at + 32, high, _mm512_maskz_expand_epi16(high, second));
}

static inline void spread_lanes_32(uint32_t *at, uint64_t word, const float *packed) {
    for (int part = 0; part < WORD_BITS; part += 16) {
        const __mmask16 mask = (__mmask16)(word >> part);
        _mm512_mask_storeu_epi32(at + part, mask, _mm512_maskz_expand_epi32(mask, _mm512_loadu_si512(packed)));
        packed += ones(mask);
    }
}

#elif defined(__AVX2__)

// AVX2 only permutes. The order of lanes is made from the mask by pext and pdep, which compress and expand the bits of a
// word, here the numbers of lanes, one per byte:
//
//     pack     order = pext(7 6 5 4 3 2 1 0, bytes of 0b00101100) = 0 0 0 0 0 5 3 2      permute(values, order)
//     spread   order = pdep(7 6 5 4 3 2 1 0, bytes of 0b00101100) = 0 0 2 0 1 0 0 0      permute(packed, order)

static inline int in_vectors(int whole) { return whole; }

static const uint64_t NUMBERS_32 = 0x0706050403020100;
static const uint64_t NUMBERS_16 = 0x0E0C0A0806040200;  // of a lane's first byte

// All bits of a lane's byte if the lane's bit is set.
static inline uint64_t bytes_of(uint64_t octet) { return _pdep_u64(octet, 0x0101010101010101) * 0xFF; }

static inline __m256i order_32(uint64_t numbers) { return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)numbers)); }

static inline __m128i order_16(uint64_t numbers) {
    const __m128i first = _mm_cvtsi64_si128((int64_t)numbers);
    return _mm_unpacklo_epi8(first, _mm_or_si128(first, _mm_set1_epi8(1)));
}

static inline void pack_lanes_16(const uint16_t *at, uint64_t word, uint16_t *packed) {
    for (int part = 0; part < WORD_BITS; part += 8) {
        const uint64_t octet = word >> part & 0xFF;
        const __m128i own = _mm_loadu_si128((const __m128i *)(at + part));
        const __m128i order = order_16(_pext_u64(NUMBERS_16, bytes_of(octet)));
        _mm_storeu_si128((__m128i *)packed, _mm_shuffle_epi8(own, order));
        packed += ones(octet);
    }
}

static inline void pack_lanes_32(const uint32_t *at, uint64_t word, float *packed) {
    for (int part = 0; part < WORD_BITS; part += 8) {
        const uint64_t octet = word >> part & 0xFF;
        const __m256i own = _mm256_loadu_si256((const __m256i *)(at + part));
        const __m256i order = order_32(_pext_u64(NUMBERS_32, bytes_of(octet)));
        _mm256_storeu_si256((__m256i *)packed, _mm256_permutevar8x32_epi32(own, order));
        packed += ones(octet);
    }
}

static inline void spread_lanes_16(uint16_t *at, uint64_t word, const uint16_t *packed) {
    for (int part = 0; part < WORD_BITS; part += 8) {
        const uint64_t octet = word >> part & 0xFF, set = bytes_of(octet);
        const __m128i own = _mm_loadu_si128((const __m128i *)packed), lanes = _mm_cvtsi64_si128((int64_t)set);
        const __m128i new = _mm_shuffle_epi8(own, order_16(_pdep_u64(NUMBERS_16, set)));
        const __m128i old = _mm_loadu_si128((const __m128i *)(at + part));
        _mm_storeu_si128((__m128i *)(at + part), _mm_blendv_epi8(old, new, _mm_unpacklo_epi8(lanes, lanes)));
        packed += ones(octet);
    }
}

static inline void spread_lanes_32(uint32_t *at, uint64_t word, const float *packed) {
    for (int part = 0; part < WORD_BITS; part += 8) {
        const uint64_t octet = word >> part & 0xFF, set = bytes_of(octet);
        const __m256i own = _mm256_loadu_si256((const __m256i *)packed);
        const __m256i new = _mm256_permutevar8x32_epi32(own, order_32(_pdep_u64(NUMBERS_32, set)));
        const __m256i chosen = _mm256_cvtepi8_epi32(_mm_cvtsi64_si128((int64_t)set));
        _mm256_maskstore_epi32((int *)(at + part), chosen, new);
        packed += ones(octet);
    }
}

#else

static inline int in_vectors(int whole) {
    (void)whole;
    return 0;
}

#define pack_lanes_16 pack_each_16
#define pack_lanes_32 pack_each_32
#define spread_lanes_16 spread_each_16
#define spread_lanes_32 spread_each_32
#endif

// `whole` says whether all 64 coordinates exist; all but the last word of a mask are so.

static inline void pack_16(const uint16_t *at, uint64_t word, int whole, uint16_t *packed) {
    if (in_vectors(whole)) pack_lanes_16(at, word, packed);
    else pack_each_16(at, word, packed);
}

static inline void pack_32(const uint32_t *at, uint64_t word, int whole, float *packed) {
    if (in_vectors(whole)) pack_lanes_32(at, word, packed);
    else pack_each_32(at, word, packed);
}

static inline void spread_16(uint16_t *at, uint64_t word, int whole, const uint16_t *packed) {
    if (in_vectors(whole)) spread_lanes_16(at, word, packed);
    else spread_each_16(at, word, packed);
}

static inline void spread_32(uint32_t *at, uint64_t word, int whole, const float *packed) {
    if (in_vectors(whole)) spread_lanes_32(at, word, packed);
    else spread_each_32(at, word, packed);
}

#endif
