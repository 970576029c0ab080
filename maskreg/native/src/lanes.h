// The decoder's innermost loop: the tokens of several sub-blocks, side by side.
//
// Decoding a token waits for the one before in its lane: for the table, then the product, then the next word, some 45
// cycles. A vector decodes all 16 lanes of a sub-block at once, or half of them; sub-blocks do not wait for each other,
// so that up to eight of them keep the processor busy. Then the tables set the pace, which the second-level cache holds.
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

#if defined(__AVX2__)
#include <immintrin.h>
#endif

// ABREAST: most sub-blocks side by side, as many as have their states in registers.
// ROUND: tokens that the vectors decode of each before they go on with the first: one or more turns of all lanes.
#if defined(__AVX512VBMI2__)
enum { ABREAST = 8, ROUND = 4 * LANES };
#elif defined(__AVX2__)
enum { ABREAST = 4, ROUND = 2 * LANES };
#else
enum { ABREAST = 8, ROUND = LANES };
#endif

// A compiler would put the pointers of all sub-blocks into a vector, to add to them at once; reading by them would then
// wait until they are out of it.
#define KEEP_SCALAR(pointer) __asm__("" : "+r"(pointer))

enum { AHEAD = 32 };  // words that a vector can read, while it takes 16 at most

// A tile of each of several sub-blocks.
typedef struct {
    const uint8_t *words[ABREAST];  // the next of each; as many as it has tokens, and AHEAD more, can be read
    // Addresses of what is used soon: the source of the next tile, and the values of this one.
    uintptr_t sources[ABREAST], values[ABREAST];
    uint32_t states[ABREAST][LANES];
    uint8_t tables[ABREAST][TILE + 64];  // of each coordinate
    uint8_t tokens[ABREAST][TILE + 64];  // filled
#if defined(__AVX2__) && !defined(__AVX512VBMI2__)
    _Alignas(32) uint8_t orders[256][32];  // of fill_orders
#endif
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
        t->tokens[k][i] = entry & TOKEN_MASK;
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


#if defined(__AVX512VBMI2__)
enum { VECTORS = 1 };  // of a sub-block's states
typedef __m512i states;
typedef __m512i tokens_of_round;  // a byte for each turn in each lane

static inline void fill_orders(tiles *t) { (void)t; }

INLINE void decode_turn(tiles *t, const uint32_t *entries, int64_t k, int64_t i, states *x, tokens_of_round *tokens,
                        const uint8_t **words) {
    const __m512i slots = _mm512_set1_epi32(SLOTS - 1);
    // The compiler must not know that all lanes are gathered: it would leave out the zeros, and each gather would wait
    // for the last use of its register.
    __mmask16 all = 0xFFFF;
    __asm__("" : "+r"(all));
    const __m512i table = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(t->tables[k] + i)));
    const __m512i at = _mm512_or_si512(_mm512_slli_epi32(table, TABLE_BITS), _mm512_and_si512(*x, slots));
    const __m512i entry = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), all, at, entries, 4);
    // The lowest byte becomes the highest, above the bytes of earlier turns.
    *tokens = _mm512_shrdi_epi32(*tokens, entry, 8);
    const __m512i freq = _mm512_srli_epi32(entry, FREQ_SHIFT);
    const __m512i slot = _mm512_and_si512(_mm512_srli_epi32(entry, SLOT_SHIFT), slots);
    const __m512i y = _mm512_add_epi32(_mm512_mullo_epi32(freq, _mm512_srli_epi32(*x, TABLE_BITS)), slot);
    // In a due lane the upper half is 0. The words go to the upper halves of such lanes, from where a double shift
    // takes them.
    const __mmask16 due = _mm512_cmplt_epu32_mask(y, _mm512_set1_epi32(LOWEST_STATE));
    const __mmask32 upper = _mm512_mask_testn_epi16_mask(0xAAAAAAAA, y, y);
    const __m512i word = _mm512_maskz_expand_epi16(upper, _mm512_loadu_si512(*words));
    *x = _mm512_mask_shldi_epi32(y, due, y, word, 16);
    *words += 2 * _mm_popcnt_u64(due);
    KEEP_SCALAR(*words);
}

INLINE void put_tokens(tiles *t, int64_t k, int64_t i, tokens_of_round tokens) {
    // Token 16 j + l of the round is byte j of lane l.
    const __m512i lane = _mm512_setr_epi32(0x0C080400, 0x1C181410, 0x2C282420, 0x3C383430, 0x0D090501, 0x1D191511,
                                           0x2D292521, 0x3D393531, 0x0E0A0602, 0x1E1A1612, 0x2E2A2622, 0x3E3A3632,
                                           0x0F0B0703, 0x1F1B1713, 0x2F2B2723, 0x3F3B3733);
    const __m512i token = _mm512_and_si512(tokens, _mm512_set1_epi8(TOKEN_MASK));
    _mm512_storeu_si512(t->tokens[k] + i, _mm512_permutexvar_epi8(lane, token));
}

#elif defined(__AVX2__)
enum { VECTORS = 2 };
typedef __m256i states;
typedef char tokens_of_round;  // none: each turn puts its own

// For each set of due lanes, which bytes of the next words each lane takes, in order; 0x80 stands for a zero, in the
// upper half of a lane and where it is not due. Lanes 1, 4 and 5 are due, set 0b00110010 = 50: lane 1 takes bytes 0 and
// 1, lane 4 bytes 2 and 3, lane 5 bytes 4 and 5. (F. Giesen, "Interleaved entropy coders", arXiv:1402.3392, section 4.)
static inline void fill_orders(tiles *t) {
    memset(t->orders, 0x80, sizeof t->orders);
    FOR_EACH(due, 256) {
        uint8_t *order = t->orders[due], next = 0;
        for (uint32_t rest = (uint32_t)due; rest; rest &= rest - 1) {
            const uint32_t lane = (uint32_t)__builtin_ctz(rest);
            order[4 * lane] = next++;
            order[4 * lane + 1] = next++;
        }
    }
}

// The entries of 8 lanes, each from its own table.
INLINE __m256i entries_of(const uint32_t *entries, const uint8_t *tables, __m256i x) {
    const __m256i table = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)tables));
    const __m256i slot = _mm256_and_si256(x, _mm256_set1_epi32(SLOTS - 1));
    const __m256i at = _mm256_or_si256(_mm256_slli_epi32(table, TABLE_BITS), slot);
    __m256i all = _mm256_set1_epi32(-1);
    // As with the wider vectors: keep the zeros.
    __asm__("" : "+x"(all));
    return _mm256_mask_i32gather_epi32(_mm256_setzero_si256(), (const int *)entries, at, all, 4);
}

// The new states of 8 lanes; the words move on.
INLINE __m256i refilled(const tiles *t, __m256i entry, __m256i x, const uint8_t **words) {
    const __m256i freq = _mm256_srli_epi32(entry, FREQ_SHIFT);
    const __m256i slot = _mm256_and_si256(_mm256_srli_epi32(entry, SLOT_SHIFT), _mm256_set1_epi32(SLOTS - 1));
    const __m256i y = _mm256_add_epi32(_mm256_mullo_epi32(freq, _mm256_srli_epi32(x, TABLE_BITS)), slot);
    const __m256i is_due = _mm256_cmpeq_epi32(_mm256_srli_epi32(y, 16), _mm256_setzero_si256());
    const uint32_t due = (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(is_due));
    const __m256i near = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)*words));
    const __m256i word = _mm256_shuffle_epi8(near, _mm256_load_si256((const __m256i *)t->orders[due]));
    *words += 2 * _mm_popcnt_u64(due);
    KEEP_SCALAR(*words);
    return _mm256_or_si256(_mm256_sllv_epi32(y, _mm256_and_si256(is_due, _mm256_set1_epi32(16))), word);
}

INLINE void decode_turn(tiles *t, const uint32_t *entries, int64_t k, int64_t i, states *x, tokens_of_round *unused,
                        const uint8_t **words) {
    (void)unused;
    const __m256i token = _mm256_set1_epi32(TOKEN_MASK), places = _mm256_setr_epi32(0, 4, 1, 5, 0, 4, 1, 5);
    const __m256i low = entries_of(entries, t->tables[k] + i, x[0]);
    const __m256i high = entries_of(entries, t->tables[k] + i + 8, x[1]);
    // Packing works within each half of a vector; then four tokens each are put in their place.
    const __m256i pairs = _mm256_packus_epi32(_mm256_and_si256(low, token), _mm256_and_si256(high, token));
    const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(pairs, pairs), places);
    _mm_storeu_si128((__m128i *)(t->tokens[k] + i), _mm256_castsi256_si128(bytes));
    x[0] = refilled(t, low, x[0], words);
    x[1] = refilled(t, high, x[1], words);
}

INLINE void put_tokens(tiles *t, int64_t k, int64_t i, tokens_of_round none) { (void)t, (void)k, (void)i, (void)none; }

#else
static inline void fill_orders(tiles *t) { (void)t; }
#endif

#if defined(__AVX2__)
// Fetch what is used soon, in each turn one of its lines of 64 bytes, while the loop waits for the tables.
INLINE void look_ahead(const tiles *t, int64_t k, int64_t i, int turn) {
    const uintptr_t line = (uintptr_t)(2 * i + turn / 2 * 64);
    __builtin_prefetch((const void *)((turn & 1 ? t->values[k] : t->sources[k]) + line));
}

INLINE void decode_several(tiles *t, const uint32_t *entries, const int count, int64_t begin, int64_t end) {
    states x[ABREAST * VECTORS];
    tokens_of_round tokens[ABREAST] = {0};
    const uint8_t *words[ABREAST];
#pragma GCC unroll 8
    for (int k = 0; k < count; k++) {
        memcpy(x + k * VECTORS, t->states[k], sizeof t->states[k]);
        words[k] = t->words[k];
    }
    for (int64_t i = begin; i < end; i += ROUND) {
#pragma GCC unroll 4
        for (int turn = 0; turn < ROUND / LANES; turn++) {
#pragma GCC unroll 8
            for (int k = 0; k < count; k++) {
                decode_turn(t, entries, k, i + turn * LANES, x + k * VECTORS, tokens + k, words + k);
                look_ahead(t, k, i, turn);
            }
        }
#pragma GCC unroll 8
        for (int k = 0; k < count; k++) put_tokens(t, k, i, tokens[k]);
    }
#pragma GCC unroll 8
    for (int k = 0; k < count; k++) {
        memcpy(t->states[k], x + k * VECTORS, sizeof t->states[k]);
        t->words[k] = words[k];
    }
}

// Tokens [begin, end) of sub-blocks [0, count); both are multiples of ROUND.
static void decode_abreast(tiles *t, const uint32_t *entries, int64_t count, int64_t begin, int64_t end) {
    switch (count) {
        case 1: decode_several(t, entries, 1, begin, end); break;
        case 2: decode_several(t, entries, 2, begin, end); break;
        case 3: decode_several(t, entries, 3, begin, end); break;
        case 4: decode_several(t, entries, 4, begin, end); break;
#if defined(__AVX512VBMI2__)
        case 5: decode_several(t, entries, 5, begin, end); break;
        case 6: decode_several(t, entries, 6, begin, end); break;
        case 7: decode_several(t, entries, 7, begin, end); break;
        case 8: decode_several(t, entries, 8, begin, end); break;
#endif
    }
}
#else
static void decode_abreast(tiles *t, const uint32_t *entries, int64_t count, int64_t begin, int64_t end) {
    FOR_EACH(k, count) decode_each(t, entries, k, begin, end);
}
#endif

#endif
