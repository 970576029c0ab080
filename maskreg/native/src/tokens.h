// Tokens of ULP steps: maskreg/codec/ulp_steps.py.
#ifndef MASKREG_TOKENS_H
#define MASKREG_TOKENS_H

#include "codec.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

// List the coordinates whose tokens have extra bits, in order; returns how many. `tokens` may be read, and `far` written,
// 64 beyond the end. Few tokens have some, and which is unpredictable, so there is no branch.
static inline int64_t find_far(const uint8_t *tokens, int64_t n, uint16_t *far) {
    int64_t count = 0;
    if (n <= 0) return count;
#if defined(__AVX512VBMI2__)
    __m512i number = _mm512_cvtepu8_epi16(_mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17,
                                                           18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31));
    for (int64_t i = 0; i < n; i += 64) {
        // One comparison for both ends: what is below MIDDLE - NEAREST wraps around.
        const __m512i shifted = _mm512_sub_epi8(_mm512_loadu_si512(tokens + i), _mm512_set1_epi8(MIDDLE - NEAREST));
        uint64_t mask = _mm512_cmpgt_epu8_mask(shifted, _mm512_set1_epi8(2 * NEAREST));
        if (n - i < 64) mask &= ((uint64_t)1 << (n - i)) - 1;
        for (int half = 0; half < 2; half++, mask >>= 32) {
            _mm512_storeu_si512(far + count, _mm512_maskz_compress_epi16((__mmask32)mask, number));
            count += __builtin_popcount((uint32_t)mask);
            number = _mm512_add_epi16(number, _mm512_set1_epi16(32));
        }
    }
#else
    uint8_t marks[TILE + 8];
    FOR_EACH(i, n) marks[i] = (uint8_t)(tokens[i] - (MIDDLE - NEAREST)) > 2 * NEAREST;
    memset(marks + n, 0, 8);
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
