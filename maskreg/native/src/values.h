// Values from the source, tokens, flips and extra bits: maskreg/codec/ulp_steps.py.
#ifndef MASKREG_VALUES_H
#define MASKREG_VALUES_H

#include "tokens.h"

// A tile.
typedef struct {
    const uint16_t *source;
    const uint8_t *tokens;
    const int8_t *flips;
    uint16_t *values;
} moves;

enum { ROOM = LITERAL_BITS / 8 * TILE + 8 };  // bytes of extra bits that can be read for a tile

// -- tokens without extra bits --

// Fill the values of tokens [begin, n); those with extra bits get some value.
static void apply_each(const moves *m, int64_t begin, int64_t n) {
    const uint16_t *restrict source = m->source;
    const uint8_t *restrict tokens = m->tokens;
    const int8_t *restrict flips = m->flips;
    uint16_t *restrict values = m->values;
    for (int64_t i = begin; i < n; i++) {
        // Negation without a branch: (s ^ -1) - (-1) = -s, and (s ^ 0) - 0 = s.
        const int16_t step = (int16_t)(((tokens[i] - MIDDLE) ^ flips[i]) - flips[i]);
        values[i] = (uint16_t)((source[i] & 0x8000) | ((source[i] + step) & 0x7FFF));
    }
}

#ifdef WIDE
static inline wide moved(wide source, wide step) {
    const wide sign = WIDE_OP(set1_epi16)(INT16_MIN), sum = WIDE_OP(add_epi16)(source, step);
#if WIDE == 64
    // Of three bits the first selects the second or the third.
    return _mm512_ternarylogic_epi32(sign, source, sum, 0xCA);
#else
    return or_wide(and_wide(sign, source), _mm256_andnot_si256(sign, sum));
#endif
}

// As apply_each, of WIDE tokens; returns which have extra bits.
static inline __attribute__((always_inline)) uint64_t apply_wide(const moves *m, int64_t i, const int flipped) {
    const wide tokens = load_wide(m->tokens + i);
    wide step = WIDE_OP(sub_epi8)(tokens, WIDE_OP(set1_epi8)(MIDDLE));
    if (flipped) {
        const wide flips = load_wide(m->flips + i);
        step = WIDE_OP(sub_epi8)(xor_wide(step, flips), flips);
    }
    store_wide(m->values + i, moved(load_wide(m->source + i), low_half(step)));
    store_wide(m->values + i + WIDE / 2, moved(load_wide(m->source + i + WIDE / 2), high_half(step)));
    return are_far(tokens);
}

// Of whole groups of 64 tokens.
static inline __attribute__((always_inline)) int64_t apply_groups(const moves *m, int64_t n, uint16_t *far,
                                                                  const int flipped) {
    int64_t count = 0;
    for (int64_t i = 0; i + 64 <= n; i += 64) {
        uint64_t bits = apply_wide(m, i, flipped);
        if (WIDE < 64) bits |= apply_wide(m, i + 64 - WIDE, flipped) << (64 - WIDE);
        count += list_bits(bits, i, far + count);
    }
    return count;
}
#endif

// Fill the values of all tokens, and list those with extra bits, whose values are still to come; returns how many.
static int64_t apply_near(const moves *m, int64_t n, int flipped, uint16_t *far) {
#ifdef WIDE
    int64_t count = flipped ? apply_groups(m, n, far, 1) : apply_groups(m, n, far, 0);
    const int64_t whole = n / 64 * 64;
    apply_each(m, whole, n);
    for (int64_t i = whole; i < n; i++) {
        far[count] = (uint16_t)i;
        count += (uint8_t)(m->tokens[i] - (MIDDLE - NEAREST)) > 2 * NEAREST;
    }
    return count;
#else
    (void)flipped;
    apply_each(m, 0, n);
    return find_far(m->tokens, n, far);
#endif
}

// -- tokens with extra bits --

static inline uint32_t bits_at(const uint8_t *bytes, int64_t bit, uint32_t count) {
    uint32_t four;
    memcpy(&four, bytes + (bit >> 3), 4);
    return (four >> (bit & 7)) & ((1u << count) - 1);
}

// Fill the value of one token with extra bits; returns the bit after them.
static inline int64_t apply_one_far(const moves *m, int64_t i, const uint8_t *block, int64_t bit) {
    const int32_t token = m->tokens[i], step = token - MIDDLE, size = step < 0 ? -step : step;
    // A literal's size gives too many, and so does a token that no valid table has.
    const uint32_t count = (uint32_t)(size - FEWER_BITS < LITERAL_BITS ? size - FEWER_BITS : LITERAL_BITS);
    const uint32_t extra = bits_at(block, bit, count), length = (1u << count) + extra + 1, source = m->source[i];
    const uint32_t negative = -(uint32_t)(step < 0) ^ (uint32_t)m->flips[i];
    const uint32_t reached = source + ((length ^ negative) - negative);
    m->values[i] = (uint16_t)(token == LITERAL ? extra : (source & 0x8000) | (reached & 0x7FFF));
    return bit + count;
}

#ifdef WIDE
#if WIDE == 64
enum { AT_ONCE = 16 };

// Fill the values of any 16 tokens; returns the bit after their extra bits.
static inline int64_t apply_several(const moves *m, int64_t i, const uint8_t *block, int64_t bit) {
    const __m512i zero = _mm512_setzero_si512(), one = _mm512_set1_epi32(1);
    const __m512i token = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(m->tokens + i)));
    const __m512i step = _mm512_sub_epi32(token, _mm512_set1_epi32(MIDDLE)), near = _mm512_abs_epi32(step);
    const __mmask16 far = _mm512_cmpgt_epi32_mask(near, _mm512_set1_epi32(NEAREST));
    const __mmask16 literal = _mm512_cmpeq_epi32_mask(token, _mm512_set1_epi32(LITERAL));
    const __m512i fewer = _mm512_sub_epi32(near, _mm512_set1_epi32(FEWER_BITS));
    const __m512i counts = _mm512_maskz_min_epi32(far, fewer, _mm512_set1_epi32(LITERAL_BITS));
    const __m512i after = running_sums(counts);
    const __m512i own = _mm512_add_epi32(_mm512_sub_epi32(after, counts), _mm512_set1_epi32((int)(bit & 7)));
    __mmask16 all = 0xFFFF;
    __asm__("" : "+r"(all));
    const __m512i four =
        _mm512_mask_i32gather_epi32(zero, all, _mm512_srli_epi32(own, 3), (const int *)(block + (bit >> 3)), 1);
    const __m512i power = _mm512_sllv_epi32(one, counts);
    const __m512i extra = _mm512_and_si512(_mm512_srlv_epi32(four, _mm512_and_si512(own, _mm512_set1_epi32(7))),
                                           _mm512_sub_epi32(power, one));
    const __m512i length = _mm512_mask_add_epi32(near, far, _mm512_add_epi32(power, extra), one);
    const __m512i flip = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(m->flips + i)));
    const __m512i sign = _mm512_xor_si512(_mm512_srai_epi32(step, 31), flip);
    const __m512i code = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(m->source + i)));
    const __m512i moved = _mm512_add_epi32(code, _mm512_sub_epi32(_mm512_xor_si512(length, sign), sign));
    // The source's sign, and the magnitude that was reached.
    const __m512i value = _mm512_ternarylogic_epi32(_mm512_set1_epi32(0x8000), code, moved, 0xCA);
    _mm256_storeu_si256((__m256i *)(m->values + i), _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(value, literal, extra)));
    return bit + _mm_extract_epi32(_mm512_extracti32x4_epi32(after, 3), 3);
}
#else
enum { AT_ONCE = 8 };

// Fill the values of any 8 tokens; returns the bit after their extra bits.
static inline int64_t apply_several(const moves *m, int64_t i, const uint8_t *block, int64_t bit) {
    const __m256i zero = _mm256_setzero_si256(), one = _mm256_set1_epi32(1);
    const __m256i token = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(m->tokens + i)));
    const __m256i step = _mm256_sub_epi32(token, _mm256_set1_epi32(MIDDLE)), near = _mm256_abs_epi32(step);
    const __m256i far = _mm256_cmpgt_epi32(near, _mm256_set1_epi32(NEAREST));
    const __m256i literal = _mm256_cmpeq_epi32(token, _mm256_set1_epi32(LITERAL));
    const __m256i fewer = _mm256_sub_epi32(near, _mm256_set1_epi32(FEWER_BITS));
    const __m256i counts = _mm256_and_si256(far, _mm256_min_epi32(fewer, _mm256_set1_epi32(LITERAL_BITS)));
    // Prefix sums, first within each half; then the sum of the lower half goes to all lanes of the upper one.
    __m256i after = _mm256_add_epi32(counts, _mm256_slli_si256(counts, 4));
    after = _mm256_add_epi32(after, _mm256_slli_si256(after, 8));
    const __m256i half = _mm256_permutevar8x32_epi32(after, _mm256_set1_epi32(3));
    after = _mm256_add_epi32(after, _mm256_blend_epi32(zero, half, 0xF0));
    const __m256i own = _mm256_add_epi32(_mm256_sub_epi32(after, counts), _mm256_set1_epi32((int)(bit & 7)));
    __m256i all = _mm256_set1_epi32(-1);
    __asm__("" : "+x"(all));
    const __m256i four =
        _mm256_mask_i32gather_epi32(zero, (const int *)(const void *)(block + (bit >> 3)), _mm256_srli_epi32(own, 3), all, 1);
    const __m256i power = _mm256_sllv_epi32(one, counts);
    const __m256i extra = _mm256_and_si256(_mm256_srlv_epi32(four, _mm256_and_si256(own, _mm256_set1_epi32(7))),
                                           _mm256_sub_epi32(power, one));
    const __m256i long_one = _mm256_add_epi32(_mm256_add_epi32(power, extra), one);
    const __m256i length = _mm256_blendv_epi8(near, long_one, far);
    const __m256i flip = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(m->flips + i)));
    const __m256i sign = _mm256_xor_si256(_mm256_srai_epi32(step, 31), flip);
    const __m256i code = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(m->source + i)));
    const __m256i moved = _mm256_add_epi32(code, _mm256_sub_epi32(_mm256_xor_si256(length, sign), sign));
    // The source's sign, and the magnitude that was reached.
    const __m256i value = _mm256_or_si256(_mm256_and_si256(code, _mm256_set1_epi32(0x8000)),
                                          _mm256_and_si256(moved, _mm256_set1_epi32(0x7FFF)));
    const __m256i result = _mm256_blendv_epi8(value, extra, literal);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(result, result), 0x08);
    _mm_storeu_si128((__m128i *)(m->values + i), _mm256_castsi256_si128(packed));
    return bit + _mm256_extract_epi32(after, 7);
}
#endif
#endif

// Fill the values of all tokens of a tile; returns the bit after their extra bits. It checks no end: the caller gives
// as many bits as the tokens could take, and compares the result.
static int64_t apply_crowded(const moves *m, int64_t n, const uint8_t *block, int64_t bit) {
    int64_t i = 0;
#ifdef WIDE
    for (; i + AT_ONCE <= n; i += AT_ONCE) bit = apply_several(m, i, block, bit);
#endif
    for (; i < n; i++) {
        const int32_t step = m->tokens[i] - MIDDLE, near = step < 0 ? -step : step, far = near > NEAREST;
        const int literal = m->tokens[i] == LITERAL;
        const uint32_t count = far ? (uint32_t)least(near - FEWER_BITS, LITERAL_BITS) : 0;
        const uint32_t extra = bits_at(block, bit, count);
        const int32_t length = far ? (int32_t)((1u << count) + extra + 1) : near;
        const int32_t moved = m->source[i] + ((step < 0) != (m->flips[i] != 0) ? -length : length);
        m->values[i] = (uint16_t)(literal ? extra : (uint32_t)((m->source[i] & 0x8000) | (moved & 0x7FFF)));
        bit += count;
    }
    return bit;
}

// Fill the values of a tile, whose extra bits begin at a bit of `block`; returns the bit after them. It checks no end: ROOM
// bytes can be read, and the caller compares the result.
static int64_t apply_tile(const moves *m, int64_t n, int flipped, int crowded, const uint8_t *block, int64_t bit) {
    if (crowded) return apply_crowded(m, n, block, bit);
    uint16_t far[TILE + 64];
    const int64_t count = apply_near(m, n, flipped, far);
    FOR_EACH(f, count) bit = apply_one_far(m, far[f], block, bit);
    return bit;
}

#endif
