// Tokens of ULP steps: maskreg/codec/ulp_steps.py.
#ifndef MASKREG_TOKENS_H
#define MASKREG_TOKENS_H

#include "codec.h"
#include "wide.h"

#ifdef WIDE
// Which bytes of a vector are tokens with extra bits, a bit each.
static inline uint64_t are_far(wide tokens) {
    // One comparison for both ends: what is below MIDDLE - NEAREST wraps around.
    return bits_above(WIDE_OP(sub_epi8)(tokens, WIDE_OP(set1_epi8)(MIDDLE - NEAREST)), 2 * NEAREST);
}

// List the places of set bits, counted from `first`; returns how many. 64 can be written.
static inline int64_t list_bits(uint64_t bits, int64_t first, uint16_t *places) {
    const int64_t count = __builtin_popcountll(bits);
#if defined(__AVX512VBMI2__)
    const __m512i number = _mm512_cvtepu8_epi16(_mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17,
                                                                 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31));
    const __m512i low = _mm512_add_epi16(number, _mm512_set1_epi16((int16_t)first));
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(32));
    const int64_t lower = __builtin_popcount((uint32_t)bits);
    _mm512_storeu_si512(places, _mm512_maskz_compress_epi16((__mmask32)bits, low));
    _mm512_storeu_si512(places + lower, _mm512_maskz_compress_epi16((__mmask32)(bits >> 32), high));
#else
    // Few are set, and how many is unpredictable: four are written in any case, which spares most branches.
    int64_t written = 0;
    do {
        for (int k = 0; k < 4; k++, bits &= bits - 1) places[written++] = (uint16_t)(first + (int64_t)_tzcnt_u64(bits));
    } while (written < count);
#endif
    return count;
}
#endif

// List the coordinates whose tokens have extra bits, in order; returns how many. `tokens` can be read, and `far` written,
// 64 beyond the end.
static inline int64_t find_far(const uint8_t *tokens, int64_t n, uint16_t *far) {
    int64_t count = 0;
#ifdef WIDE
    for (int64_t i = 0; i < n; i += 64) {
        uint64_t bits = are_far(load_wide(tokens + i));
        if (WIDE < 64) bits |= are_far(load_wide(tokens + i + 64 - WIDE)) << (64 - WIDE);
        if (n - i < 64) bits &= ((uint64_t)1 << (n - i)) - 1;
        count += list_bits(bits, i, far + count);
    }
#else
    uint8_t marks[TILE + 8];
    FOR_EACH(i, n) marks[i] = (uint8_t)(tokens[i] - (MIDDLE - NEAREST)) > 2 * NEAREST;
    memset(marks + most(0, n), 0, 8);
    for (int64_t i = 0; i < n; i += 8) {
        // Eight marks at once, of which the lowest set bit tells the first.
        uint64_t eight;
        memcpy(&eight, marks + i, 8);
        for (; eight; eight &= eight - 1) far[count++] = (uint16_t)(i + (__builtin_ctzll(eight) >> 3));
    }
#endif
    return count;
}

#endif
