// Coding sub-blocks: maskreg/codec/ulp_steps.py, encode.py and rans.py define what is computed.
#include "tokens.h"

enum {
    COUNTERS = 4,  // per key: neighbors often have the same key, and an increment waits for the store of the one before
    FREQ_MASK = 0xFFFF,
    HIGHEST_BITS = 32 - TABLE_BITS,
};

// -- tokens and counts --

static void count_tile(const uint16_t *restrict keys, int64_t n, int64_t size, uint32_t *restrict parts) {
    int64_t i = 0;
    for (; i + COUNTERS <= n; i += COUNTERS) {
        parts[keys[i]]++;
        parts[size + keys[i + 1]]++;
        parts[2 * size + keys[i + 2]]++;
        parts[3 * size + keys[i + 3]]++;
    }
    for (; i < n; i++) parts[keys[i]]++;
}

static void sum_up(const uint32_t *restrict parts, int64_t size, int64_t *restrict counts) {
    FOR_EACH(part, COUNTERS) FOR_EACH(i, size) counts[i] += parts[part * size + i];
}

// A token per coordinate. Size class = 13 + floor(log2(length - 1)), by comparisons: vectors of 16 bits have no count of
// leading zeros.
static void tokens_of_tile(const uint16_t *restrict source, const uint16_t *restrict target, int64_t n,
                           uint8_t *restrict tokens) {
    FOR_EACH(i, n) {
        const int16_t step = (int16_t)((target[i] & 0x7FFF) - (source[i] & 0x7FFF));
        const int16_t length = (int16_t)(step < 0 ? -step : step), far = (int16_t)(length - 1);
        const int16_t class =
            (int16_t)(NEAREST + 1 + (far >= 32) + (far >= 64) + (far >= 128) + (far >= 256) + (far >= 512) +
                      (far >= 1024) + (far >= 2048) + (far >= 4096) + (far >= 8192) + (far >= 16384));
        const int16_t size = length <= NEAREST ? length : class;
        const int16_t token = (int16_t)(MIDDLE + (step < 0 ? -size : size));
        tokens[i] = (uint8_t)((int16_t)(target[i] ^ source[i]) < 0 ? LITERAL : token);
    }
}

void maskreg_tokens_of(const uint16_t *source, const uint16_t *target, int64_t n, uint8_t *tokens, int64_t *counts,
                       uint32_t *scratch) {
    uint16_t keys[TILE];
    memset(scratch, 0, COUNTERS * 256 * TOKENS * sizeof *scratch);
    for (int64_t start = 0; start < n; start += TILE) {
        const int64_t m = least(TILE, n - start);
        tokens_of_tile(source + start, target + start, m, tokens + start);
        FOR_EACH(i, m) keys[i] = (uint16_t)(((source[start + i] >> 1) & 0xFF << 6) | tokens[start + i]);
        count_tile(keys, m, 256 * TOKENS, scratch);
    }
    sum_up(scratch, 256 * TOKENS, counts);
}

void maskreg_count_keys(const uint16_t *keys, int64_t n, int64_t cells, int64_t *counts, uint32_t *scratch) {
    memset(scratch, 0, (size_t)(COUNTERS * cells * TOKENS) * sizeof *scratch);
    count_tile(keys, n, cells * TOKENS, scratch);
    sum_up(scratch, cells * TOKENS, counts);
}

void maskreg_classify_all(const uint16_t *source, int64_t n, int64_t position, const maskreg_contexts *contexts,
                          const uint8_t *tokens, uint16_t *keys) {
    uint8_t cells[TILE];
    int8_t flips[TILE];
    for (int64_t start = 0; start < n; start += TILE) {
        const int64_t m = least(TILE, n - start);
        classify(source + start, m, position + start, contexts, cells, flips);
        const uint8_t *restrict own = tokens + start;
        uint16_t *restrict out = keys + start;
        FOR_EACH(i, m) {
            const int16_t step = (int16_t)(((own[i] - MIDDLE) ^ flips[i]) - flips[i]);
            // A literal has no direction.
            const int16_t token = own[i] == LITERAL ? LITERAL : (int16_t)(step + MIDDLE);
            out[i] = (uint16_t)(cells[i] << 6 | token);
        }
    }
}

// -- words: tokens are coded last to first, lane by lane --
//
//     slot = slots[key]                                    first slot << 16 | frequency; 0: the token becomes a literal
//     due = x >> 20 >= frequency                           the state would overflow
//     if due: put x & 0xFFFF before the words so far;  x >>= 16
//     x = x / frequency << 12 | x % frequency + first slot
//
// Instead of dividing, x is multiplied by an inverse: (1 + 2^-40) / frequency in float64. A quotient is below 2^20, so
// that the product is too large by at most 2^-20 and rounding, never too small, and the next whole number is at least
// 1 / 4096 away: the integer part is exact.

typedef struct {
    uint16_t *keys;
    uint32_t *states;
    uint16_t *words;
    int64_t at;  // where the words so far begin
} span;

static void encode_each(span *s, const maskreg_coding *c, int64_t begin, int64_t end) {
    for (int64_t i = end - 1; i >= begin; i--) {
        uint32_t slot = c->slots[s->keys[i]], *state = s->states + (i & (LANES - 1));
        if (!slot) {
            s->keys[i] |= LITERAL;
            slot = c->slots[s->keys[i]];
        }
        const uint32_t freq = slot & FREQ_MASK;
        uint32_t x = *state;
        // No branch, as in decoding: the word is written in any case and kept when it is due.
        const int due = x >> HIGHEST_BITS >= freq;
        s->words[s->at - 1] = (uint16_t)x;
        s->at -= due;
        x = due ? x >> 16 : x;
        const uint32_t quotient = (uint32_t)(x * c->inverses[freq]);
        *state = (quotient << TABLE_BITS) + (x - quotient * freq) + (slot >> 16);
    }
}

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#define HAS_VECTORS

typedef struct {
    __m512i x;
} vector_state;

static inline __attribute__((always_inline)) __m512i gathered(__m512i at, const uint32_t *from, __mmask16 lanes) {
    __asm__("" : "+r"(lanes));
    return _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), lanes, at, from, 4);
}

static inline __attribute__((always_inline)) __m512i divided(__m512i x, __m512i freq, const double *inverses) {
    const __m256i low = _mm512_castsi512_si256(freq), high = _mm512_extracti64x4_epi64(freq, 1);
    __mmask8 all = 0xFF;
    __asm__("" : "+r"(all));
    const __m512d zero = _mm512_setzero_pd();
    const __m512d by0 = _mm512_mask_i32gather_pd(zero, all, low, inverses, 8);
    const __m512d by1 = _mm512_mask_i32gather_pd(zero, all, high, inverses, 8);
    const __m512d x0 = _mm512_cvtepu32_pd(_mm512_castsi512_si256(x));
    const __m512d x1 = _mm512_cvtepu32_pd(_mm512_extracti64x4_epi64(x, 1));
    const __m256i q0 = _mm512_cvttpd_epu32(_mm512_mul_pd(x0, by0)), q1 = _mm512_cvttpd_epu32(_mm512_mul_pd(x1, by1));
    return _mm512_inserti64x4(_mm512_castsi256_si512(q0), q1, 1);
}

static inline __attribute__((always_inline)) void encode_sixteen(span *s, const maskreg_coding *c, int64_t i,
                                                                 vector_state *state) {
    const __m512i freqs = _mm512_set1_epi32(FREQ_MASK);
    __m512i key = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(s->keys + i)));
    __m512i slot = gathered(key, c->slots, 0xFFFF), x = state->x;
    const __mmask16 missing = _mm512_testn_epi32_mask(slot, slot);
    if (missing) {
        key = _mm512_mask_or_epi32(key, missing, key, _mm512_set1_epi32(LITERAL));
        slot = _mm512_or_si512(slot, gathered(key, c->slots, missing));
        _mm256_storeu_si256((__m256i *)(s->keys + i), _mm512_cvtepi32_epi16(key));
    }
    const __m512i freq = _mm512_and_si512(slot, freqs);
    const __mmask16 due = _mm512_cmpge_epu32_mask(_mm512_srli_epi32(x, HIGHEST_BITS), freq);
    const int count = __builtin_popcount(due);
    s->at -= count;
    _mm256_mask_storeu_epi16(s->words + s->at, (__mmask16)((1u << count) - 1),
                             _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(due, x)));
    x = _mm512_mask_srli_epi32(x, due, x, 16);
    const __m512i quotient = divided(x, freq, c->inverses);
    const __m512i rest = _mm512_sub_epi32(x, _mm512_mullo_epi32(quotient, freq));
    state->x = _mm512_add_epi32(_mm512_slli_epi32(quotient, TABLE_BITS), _mm512_add_epi32(rest, _mm512_srli_epi32(slot, 16)));
}

#elif defined(__AVX2__)
#define HAS_VECTORS

typedef struct {
    __m256i x[2];
} vector_state;

static inline __attribute__((always_inline)) __m256i divided(__m256i x, __m256i freq, const double *inverses) {
    // Signed conversions alone are there: 2^31 is subtracted before and added after.
    const __m256i shifted = _mm256_xor_si256(x, _mm256_set1_epi32(INT32_MIN));
    const __m256d offset = _mm256_set1_pd(2147483648.0), ones = _mm256_castsi256_pd(_mm256_set1_epi64x(-1));
    const __m256d zero = _mm256_setzero_pd();
    const __m256d x0 = _mm256_add_pd(_mm256_cvtepi32_pd(_mm256_castsi256_si128(shifted)), offset);
    const __m256d x1 = _mm256_add_pd(_mm256_cvtepi32_pd(_mm256_extracti128_si256(shifted, 1)), offset);
    const __m256d by0 = _mm256_mask_i32gather_pd(zero, inverses, _mm256_castsi256_si128(freq), ones, 8);
    const __m256d by1 = _mm256_mask_i32gather_pd(zero, inverses, _mm256_extracti128_si256(freq, 1), ones, 8);
    const __m128i q0 = _mm256_cvttpd_epi32(_mm256_mul_pd(x0, by0)), q1 = _mm256_cvttpd_epi32(_mm256_mul_pd(x1, by1));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(q0), q1, 1);
}

static inline __attribute__((always_inline)) void encode_sixteen(span *s, const maskreg_coding *c, int64_t i,
                                                                 vector_state *state) {
    // The upper lanes' words come last, so they are written first.
    for (int half = 1; half >= 0; half--) {
        uint16_t *own = s->keys + i + 8 * half;
        const __m256i ones = _mm256_set1_epi32(-1), zero = _mm256_setzero_si256();
        __m256i key = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)own)), x = state->x[half];
        __m256i slot = _mm256_mask_i32gather_epi32(zero, (const int *)c->slots, key, ones, 4);
        const __m256i missing = _mm256_cmpeq_epi32(slot, zero);
        if (_mm256_movemask_epi8(missing)) {
            for (int lane = 0; lane < 8; lane++)
                if (!c->slots[own[lane]]) own[lane] |= LITERAL;
            key = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)own));
            slot = _mm256_mask_i32gather_epi32(zero, (const int *)c->slots, key, ones, 4);
        }
        const __m256i freq = _mm256_and_si256(slot, _mm256_set1_epi32(FREQ_MASK));
        // Both are below 2^20, so a signed comparison will do.
        const __m256i kept = _mm256_cmpgt_epi32(freq, _mm256_srli_epi32(x, HIGHEST_BITS));
        const uint32_t due = (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(kept)) ^ 0xFF;
        const int count = __builtin_popcount(due);
        // The due lanes' words go to the end of a vector that is stored before the words so far: what precedes them in
        // it is written over later.
        const uint64_t bytes = _pdep_u64(due, 0x0101010101010101ULL) * 0xFF;
        const uint64_t order = count ? _pext_u64(0x0706050403020100ULL, bytes) << (64 - 8 * count) : 0;
        const __m256i words = _mm256_permutevar8x32_epi32(x, _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)order)));
        const __m256i low = _mm256_and_si256(words, _mm256_set1_epi32(0xFFFF));
        const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x08);
        _mm_storeu_si128((__m128i *)(s->words + s->at - 8), _mm256_castsi256_si128(packed));
        s->at -= count;
        x = _mm256_blendv_epi8(_mm256_srli_epi32(x, 16), x, kept);
        const __m256i quotient = divided(x, freq, c->inverses);
        const __m256i rest = _mm256_sub_epi32(x, _mm256_mullo_epi32(quotient, freq));
        state->x[half] =
            _mm256_add_epi32(_mm256_slli_epi32(quotient, TABLE_BITS), _mm256_add_epi32(rest, _mm256_srli_epi32(slot, 16)));
    }
}
#endif

#ifdef HAS_VECTORS
// Tokens [begin, end), multiples of 16, of several spans side by side: see lanes.h.
static inline __attribute__((always_inline)) void encode_several(span *spans, const maskreg_coding *c, const int count,
                                                                 int64_t begin, int64_t end) {
    vector_state states[4];
#pragma GCC unroll 4
    for (int k = 0; k < count; k++) memcpy(states + k, spans[k].states, sizeof *states);
    for (int64_t i = end - LANES; i >= begin; i -= LANES) {
#pragma GCC unroll 4
        for (int k = 0; k < count; k++) encode_sixteen(spans + k, c, i, states + k);
    }
#pragma GCC unroll 4
    for (int k = 0; k < count; k++) memcpy(spans[k].states, states + k, sizeof *states);
}

static void encode_abreast(span *spans, const maskreg_coding *c, int64_t count, int64_t begin, int64_t end) {
    switch (count) {
        case 1: encode_several(spans, c, 1, begin, end); break;
        case 2: encode_several(spans, c, 2, begin, end); break;
        case 3: encode_several(spans, c, 3, begin, end); break;
        default: encode_several(spans, c, 4, begin, end);
    }
}
#else
static void encode_abreast(span *spans, const maskreg_coding *c, int64_t count, int64_t begin, int64_t end) {
    FOR_EACH(k, count) encode_each(spans + k, c, begin, end);
}
#endif

// -- extra bits: first to last --

// Bits gather in a 64-bit word, of which the lower half goes to memory after each token whether it is full or not: that
// has no branch, and what is written too early is written again. Returns how many there are.
static int64_t put_extra_bits(const maskreg_coding *c, int64_t first, int64_t n, uint32_t *bits) {
    uint8_t tokens[TILE + 64];
    uint16_t far[TILE + 64];
    uint64_t pending = 0, filled = 0;
    int64_t word = 0;
    for (int64_t start = first; start < first + n; start += TILE) {
        const int64_t m = least(TILE, first + n - start);
        FOR_EACH(i, m) tokens[i] = c->keys[start + i] & 0x3F;
        const int64_t found = find_far(tokens, m, far);
        FOR_EACH(f, found) {
            const uint32_t token = tokens[far[f]], source = c->source[start + far[f]], target = c->target[start + far[f]];
            const uint32_t size = token < MIDDLE ? MIDDLE - token : token - MIDDLE;
            const uint32_t count = token == LITERAL ? LITERAL_BITS : size - FEWER_BITS;
            const uint32_t a = target & 0x7FFF, b = source & 0x7FFF, length = a > b ? a - b : b - a;
            const uint64_t extra = token == LITERAL ? target : length - 1 - (1u << count);
            pending |= extra << filled;
            filled += count;
            bits[word] = (uint32_t)pending;
            // When 32 bits are full: the next word, and shift by 32. Otherwise both are by 0.
            word += (int64_t)(filled >> 5);
            pending >>= filled & 32;
            filled &= 31;
        }
    }
    bits[word] = (uint32_t)pending;
    return 32 * word + (int64_t)filled;
}

void maskreg_encode_sub_blocks(const maskreg_coding *c, int64_t count) {
    span spans[4];
    const int64_t last = c->n - (count - 1) * c->length, together = last / LANES * LANES;
    FOR_EACH(k, count) {
        const int64_t own = k == count - 1 ? last : c->length, whole = own / LANES * LANES;
        uint32_t *states = c->states + k * LANES;
        FOR_EACH(lane, LANES) states[lane] = LOWEST_STATE;
        spans[k] = (span){c->keys + k * c->length, states, c->words + k * c->words_room, c->words_room};
        // From the end: lane by lane down to a multiple of 16, one sub-block down to where all go on, then all at once.
        encode_each(spans + k, c, whole, own);
        if (together < whole) encode_abreast(spans + k, c, 1, together, whole);
    }
    encode_abreast(spans, c, count, 0, together);
    FOR_EACH(k, count) {
        const int64_t own = k == count - 1 ? last : c->length;
        c->positions[k] = spans[k].at;
        c->extra_bits[k] = put_extra_bits(c, k * c->length, own, c->bits + k * c->bits_room);
    }
}
