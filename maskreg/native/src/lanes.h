// The decoder's innermost loop: the tokens of several sub-blocks, side by side.
//
// Decoding a token waits for the one before in its lane: for the table, then the product, then the next word, some 45
// cycles. A vector decodes all 16 lanes of a sub-block at once, or half of them; sub-blocks do not wait for each other,
// so that up to eight of them keep the processor busy.
//
//     for i in 0, 16, 32, ... n:
//         for each sub-block, in all lanes at once:
//             entry = entries[4096 * tables[i] + (x & 4095)]                a gather; x is the lane's state
//             tokens[i] = entry & 127
//             x = (entry >> 19) * (x >> 12) + (entry >> 7 & 4095)
//             due = x < 2^16
//             x = due ? x << 16 | next word : x                             the next words go to the due lanes, in order
#ifndef MASKREG_LANES_H
#define MASKREG_LANES_H

#include "codec.h"

// Most sub-blocks side by side: as many as have their states in registers.
#if defined(__AVX2__) && !defined(__AVX512F__)
enum { ABREAST = 4 };
#else
enum { ABREAST = 8 };
#endif

// A tile of each of several sub-blocks.
typedef struct {
    const uint8_t *words[ABREAST];  // the next of each; as many as it has tokens, and 16 more, may be read
    uint32_t states[ABREAST][LANES];
    uint8_t tables[ABREAST][TILE + 64];  // of each coordinate
    uint8_t tokens[ABREAST][TILE + 64];  // filled
    uint64_t orders[256];                // of fill_orders, where the vectors need it
} tiles;

static inline uint32_t next_state(uint32_t entry, uint32_t x) {
    return (entry >> FREQ_SHIFT) * (x >> TABLE_BITS) + ((entry >> SLOT_SHIFT) & (SLOTS - 1));
}

// One sub-block's tokens [begin, end), lane by lane. It defines what the vectors compute.
static inline void decode_each(tiles *t, const uint32_t *entries, int64_t k, int64_t begin, int64_t end) {
    const uint8_t *words = t->words[k];
    for (int64_t i = begin; i < end; i++) {
        uint32_t *state = &t->states[k][i & (LANES - 1)];
        const uint32_t entry = entries[(uint32_t)t->tables[k][i] << TABLE_BITS | (*state & (SLOTS - 1))];
        t->tokens[k][i] = entry & 0x7F;
        const uint32_t x = next_state(entry, *state);
        // No branch, because whether a word is due is unpredictable: read it in any case, and move on when it was due.
        uint16_t word;
        memcpy(&word, words, sizeof word);
        const int due = x < LOWEST_STATE;
        *state = due ? x << 16 | word : x;
        words += due * sizeof word;
    }
    t->words[k] = words;
}

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#include <immintrin.h>

typedef __m512i vector;
enum { VECTORS = 1 };  // of a sub-block

static inline __attribute__((always_inline)) void decode_one(tiles *t, const uint32_t *entries, int64_t k, int64_t i,
                                                             vector *x, const uint8_t **words) {
    const __m512i slots = _mm512_set1_epi32(SLOTS - 1);
    // The compiler must not know that all lanes are gathered: it would leave out the zeros, and each gather would wait
    // for the last use of its register.
    __mmask16 all = 0xFFFF;
    __asm__("" : "+r"(all));
    const __m512i table = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(t->tables[k] + i)));
    const __m512i at = _mm512_or_si512(_mm512_slli_epi32(table, TABLE_BITS), _mm512_and_si512(*x, slots));
    const __m512i entry = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), all, at, entries, 4);
    const __m512i token = _mm512_and_si512(entry, _mm512_set1_epi32(0x7F));
    _mm_storeu_si128((__m128i *)(t->tokens[k] + i), _mm512_cvtepi32_epi8(token));
    const __m512i freq = _mm512_srli_epi32(entry, FREQ_SHIFT);
    const __m512i slot = _mm512_and_si512(_mm512_srli_epi32(entry, SLOT_SHIFT), slots);
    const __m512i y = _mm512_add_epi32(_mm512_mullo_epi32(freq, _mm512_srli_epi32(*x, TABLE_BITS)), slot);
    const __mmask16 due = _mm512_cmplt_epu32_mask(y, _mm512_set1_epi32(LOWEST_STATE));
    const __m512i near = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)*words));
    *x = _mm512_mask_or_epi32(y, due, _mm512_slli_epi32(y, 16), _mm512_maskz_expand_epi32(due, near));
    *words += 2 * __builtin_popcount(due);
}

#elif defined(__AVX2__)
#include <immintrin.h>

typedef __m256i vector;
enum { VECTORS = 2 };

// The entries of 8 lanes, each from its own table.
static inline __attribute__((always_inline)) __m256i entries_of(const uint32_t *entries, const uint8_t *tables,
                                                                __m256i x) {
    const __m256i table = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)tables));
    const __m256i slot = _mm256_and_si256(x, _mm256_set1_epi32(SLOTS - 1));
    const __m256i at = _mm256_or_si256(_mm256_slli_epi32(table, TABLE_BITS), slot);
    __m256i all = _mm256_set1_epi32(-1);
    // As with the wider vectors: keep the zeros.
    __asm__("" : "+x"(all));
    return _mm256_mask_i32gather_epi32(_mm256_setzero_si256(), (const int *)entries, at, all, 4);
}

// The new states of 8 lanes; the words move on.
static inline __attribute__((always_inline)) __m256i refilled(const tiles *t, __m256i entry, __m256i x,
                                                              const uint8_t **words) {
    const __m256i freq = _mm256_srli_epi32(entry, FREQ_SHIFT), low = _mm256_set1_epi32(LOWEST_STATE - 1);
    const __m256i slot = _mm256_and_si256(_mm256_srli_epi32(entry, SLOT_SHIFT), _mm256_set1_epi32(SLOTS - 1));
    const __m256i y = _mm256_add_epi32(_mm256_mullo_epi32(freq, _mm256_srli_epi32(x, TABLE_BITS)), slot);
    // Unsigned: y <= low where the smaller of both is y.
    const __m256i is_due = _mm256_cmpeq_epi32(_mm256_min_epu32(y, low), y);
    const uint32_t due = (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(is_due));
    const __m256i near = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)*words));
    const __m256i order = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(t->orders + due)));
    *words += 2 * __builtin_popcount(due);
    const __m256i word = _mm256_permutevar8x32_epi32(near, order);
    return _mm256_blendv_epi8(y, _mm256_or_si256(_mm256_slli_epi32(y, 16), word), is_due);
}

static inline __attribute__((always_inline)) void decode_one(tiles *t, const uint32_t *entries, int64_t k, int64_t i,
                                                             vector *x, const uint8_t **words) {
    const __m256i token = _mm256_set1_epi32(0x7F), places = _mm256_setr_epi32(0, 4, 1, 5, 0, 4, 1, 5);
    const __m256i low = entries_of(entries, t->tables[k] + i, x[0]);
    const __m256i high = entries_of(entries, t->tables[k] + i + 8, x[1]);
    // Packing works within each half of a vector; then four tokens each are put in their place.
    const __m256i pairs = _mm256_packus_epi32(_mm256_and_si256(low, token), _mm256_and_si256(high, token));
    const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(pairs, pairs), places);
    _mm_storeu_si128((__m128i *)(t->tokens[k] + i), _mm256_castsi256_si128(bytes));
    x[0] = refilled(t, low, x[0], words);
    x[1] = refilled(t, high, x[1], words);
}

// For each set of due lanes, which of the next words each lane takes, a byte each, lane 0 lowest: as many as there are
// due lanes below it. Lanes 1, 4 and 5 are due: set 0b00110010 = 50 has 0 0 0 0 1 2 0 0; what lanes get that are not due
// is not used. (F. Giesen, "Interleaved entropy coders", arXiv:1402.3392, section 4.)
static inline void fill_orders(tiles *t) {
    FOR_EACH(due, 256) t->orders[due] = _pdep_u64((uint64_t)due, 0x0101010101010101ULL) * 0x0101010101010100ULL;
}

#else
typedef uint32_t vector[LANES];
enum { VECTORS = 0 };
#endif

#if !defined(__AVX2__) || defined(__AVX512F__)
static inline void fill_orders(tiles *t) { (void)t; }
#endif

#if defined(__AVX2__)
static inline __attribute__((always_inline)) void decode_several(tiles *t, const uint32_t *entries, const int count,
                                                                 int64_t n) {
    vector x[ABREAST * VECTORS];
    const uint8_t *words[ABREAST];
#pragma GCC unroll 8
    for (int k = 0; k < count; k++) {
        memcpy(x + k * VECTORS, t->states[k], sizeof t->states[k]);
        words[k] = t->words[k];
    }
    for (int64_t i = 0; i < n; i += LANES) {
#pragma GCC unroll 8
        for (int k = 0; k < count; k++) decode_one(t, entries, k, i, x + k * VECTORS, words + k);
    }
#pragma GCC unroll 8
    for (int k = 0; k < count; k++) {
        memcpy(t->states[k], x + k * VECTORS, sizeof t->states[k]);
        t->words[k] = words[k];
    }
}

// The first `n` tokens of sub-blocks [0, count); `n` is a multiple of 16.
static void decode_abreast(tiles *t, const uint32_t *entries, int64_t count, int64_t n) {
    switch (count) {
        case 1: decode_several(t, entries, 1, n); break;
        case 2: decode_several(t, entries, 2, n); break;
        case 3: decode_several(t, entries, 3, n); break;
        case 4: decode_several(t, entries, 4, n); break;
#if defined(__AVX512F__)
        case 5: decode_several(t, entries, 5, n); break;
        case 6: decode_several(t, entries, 6, n); break;
        case 7: decode_several(t, entries, 7, n); break;
        case 8: decode_several(t, entries, 8, n); break;
#endif
    }
}
#else
static void decode_abreast(tiles *t, const uint32_t *entries, int64_t count, int64_t n) {
    FOR_EACH(k, count) decode_each(t, entries, k, 0, n);
}
#endif

#endif
