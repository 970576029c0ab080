// What coding and decoding movers share: maskreg/codec/movers.py defines it.
#ifndef MASKREG_MOVERS_H
#define MASKREG_MOVERS_H

#include "codec.h"
#include "wide.h"

enum {
    HAZARD_BITS = 13,  // a hazard of 1 << HAZARD_BITS halves the chance that nothing moves
    HAZARD_LIMIT = 8 << HAZARD_BITS,
    SURVIVAL_BITS = 28,
    SIGNED_BITS = SURVIVAL_BITS + 1,
    COARSE = 128,      // powers of each kind: see movers.py
    FINE = 64,
    SHARE_BITS = 16,
    CLASSES = 16,
    BINADES_OF_STEP = 15,  // above its own; as many for a literal, whose step does not count
    END_BITS = 16,     // of the number that says how a step ends: in which binade, with which top bit
    LITERAL_END = 2 * (BINADES_OF_STEP - 1),
    ENDS = 32,         // and more
    REFILL_BITS = 32,  // of a word of the stream, which refills a state
    GROUP = 16,        // coordinates whose hazards are added up
    SPAN = 512,        // coordinates of a tile: the tiles of all sub-blocks stay in the first-level cache
    GROUPS = SPAN / GROUP,
    PARTS = 16,        // sub-blocks that are worked on in turn
    FEW = 4,           // of them do not fill vectors
    LEAD = 16,         // before the sums of a tile, so that these are aligned
};

// How steps of a class end, by 2 * (binades above - 1) + top bit, and literals; beyond, nothing does.
typedef struct {
    uint16_t starts[ENDS], freqs[ENDS];  // of the numbers of END_BITS that say so
} ends;

// The hazards of a block, and what follows from them.
typedef struct {
    const uint16_t *by_class, *shares;
    const uint32_t *powers;
    const int32_t *logarithms;
    uint32_t first;
    uint32_t beyond;  // survival of HAZARD_LIMIT
    uint16_t by_exponent[EXPONENTS];
    uint8_t class_of[EXPONENTS];
    ends ends[CLASSES];
    // As vectors take them: lower and upper bytes of `by_class`, twice; the first class; each fourth logarithm, and how
    // much the next is above it.
    uint8_t low[32], high[32], firsts[32];
    uint32_t fourths[64], slopes[64];
} hazards;

// 2^28 times the probability that nothing moves within a hazard of at most HAZARD_LIMIT.
static inline uint32_t survival(const uint32_t *powers, uint32_t hazard) {
    const uint64_t coarse = powers[hazard >> 6 & (COARSE - 1)], fine = powers[COARSE + (hazard & (FINE - 1))];
    return (uint32_t)(coarse * fine >> (2 * 31 - SURVIVAL_BITS + (hazard >> HAZARD_BITS)));
}

// `longer` and `tops` from the first binade above the class on. Every end has a number at least.
static inline void fill_ends(ends *own, const uint16_t *longer, const uint16_t *tops) {
    int64_t left = 1 << END_BITS, at = 0;
    memset(own, 0xFF, sizeof *own);
    FOR_EACH(k, BINADES_OF_STEP - 1) {
        const int64_t needed = LITERAL_END - 2 * k - 1;
        const int64_t on = most(needed, least((int64_t)left * longer[k] >> SHARE_BITS, left - 2)), end = left - on;
        const int64_t top = most(1, least(end * tops[k] >> SHARE_BITS, end - 1));
        own->starts[2 * k] = (uint16_t)at, own->freqs[2 * k] = (uint16_t)(end - top);
        own->starts[2 * k + 1] = (uint16_t)(at + end - top), own->freqs[2 * k + 1] = (uint16_t)top;
        at += end, left = on;
    }
    own->starts[LITERAL_END] = (uint16_t)at, own->freqs[LITERAL_END] = (uint16_t)left;
}

static inline void fill_hazards(hazards *h, const maskreg_hazards *given) {
    h->by_class = given->by_class, h->shares = given->shares, h->first = (uint32_t)given->first;
    h->powers = given->powers, h->logarithms = given->logarithms;
    h->beyond = survival(h->powers, HAZARD_LIMIT);
    FOR_EACH(i, 64) {
        h->fourths[i] = (uint32_t)h->logarithms[4 * i];
        h->slopes[i] = (uint32_t)h->logarithms[4 * i + 4] - h->fourths[i];
    }
    FOR_EACH(i, 32) {
        const uint16_t hazard = given->by_class[i % 16];
        h->low[i] = (uint8_t)hazard, h->high[i] = (uint8_t)(hazard >> 8), h->firsts[i] = (uint8_t)given->first;
    }
    FOR_EACH(e, EXPONENTS) {
        const int64_t c = e - given->first;
        h->class_of[e] = (uint8_t)(c < 0 ? 0 : c > 15 ? 15 : c);
        h->by_exponent[e] = given->by_class[h->class_of[e]];
    }
    FOR_EACH(c, CLASSES) fill_ends(h->ends + c, given->longer + c, given->tops + c);
}

#define LOWEST_WIDE ((uint64_t)1 << REFILL_BITS)

// How many of the numbers of a mover, `width`, say that it moves by more than one ULP: the highest ones.
static inline uint32_t further_of(uint32_t width, uint32_t share) {
    const uint32_t numbers = (uint32_t)((uint64_t)width * share >> SHARE_BITS);
    return numbers + (!numbers & (share > 0));
}

#if defined(__AVX512VBMI2__)
static inline __m512i all_of(int32_t number) { return _mm512_set1_epi32(number); }

// Of 32, 64 or 128 numbers, one in each lane.
static inline __m512i of_32(__m512i index, const uint32_t *numbers) {
    return _mm512_permutex2var_epi32(_mm512_loadu_si512(numbers), index, _mm512_loadu_si512(numbers + 16));
}

static inline __m512i of_64(__m512i index, const uint32_t *numbers) {
    const __mmask16 upper = _mm512_test_epi32_mask(index, all_of(32));
    return _mm512_mask_mov_epi32(of_32(index, numbers), upper, of_32(index, numbers + 32));
}

static inline __m512i of_128(__m512i index, const uint32_t *numbers) {
    const __mmask16 upper = _mm512_test_epi32_mask(index, all_of(64));
    return _mm512_mask_mov_epi32(of_64(index, numbers), upper, of_64(index, numbers + 64));
}

static inline __m256i half_of(__m512i v, int upper) {
    return upper ? _mm512_extracti64x4_epi64(v, 1) : _mm512_castsi512_si256(v);
}

// The upper halves of the lanes of 64 bits become the lower ones.
static inline __m512i odd(__m512i v) { return _mm512_srli_epi64(v, 32); }

static inline __m512i interleaved(__m512i even, __m512i odd) {
    return _mm512_mask_mov_epi32(even, 0xAAAA, _mm512_slli_epi64(odd, 32));
}

// As survival().
static inline __m512i survivals(__m512i hazard, const hazards *h) {
    const __m512i a = of_128(_mm512_srli_epi32(hazard, 6), h->powers), b = of_64(hazard, h->powers + COARSE);
    const __m512i shift = _mm512_add_epi32(all_of(2 * 31 - SURVIVAL_BITS), _mm512_srli_epi32(hazard, HAZARD_BITS));
    const __m512i low = _mm512_srlv_epi64(_mm512_mul_epu32(a, b), _mm512_and_si512(shift, _mm512_set1_epi64(63)));
    return interleaved(low, _mm512_srlv_epi64(_mm512_mul_epu32(odd(a), odd(b)), odd(shift)));
}

// Classes of codes in lanes of 32 bits; what classes have, of 16.
static inline __m512i classes_of(__m512i codes, const hazards *h) {
    const __m512i exponents = _mm512_and_si512(_mm512_srli_epi32(codes, 7), all_of(0xFF));
    return _mm512_min_epu32(_mm512_subs_epu16(exponents, all_of((int32_t)h->first)), all_of(CLASSES - 1));
}

static inline __m512i of_classes(__m512i classes, const uint16_t *numbers) {
    const __m512i all = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)numbers));
    return _mm512_maskz_permutexvar_epi16(0x55555555, classes, all);
}

// As further_of().
static inline __m512i all_further_of(__m512i width, __m512i share) {
    const __m512i low = _mm512_srli_epi64(_mm512_mul_epu32(width, share), SHARE_BITS);
    const __m512i high = _mm512_srli_epi64(_mm512_mul_epu32(odd(width), odd(share)), SHARE_BITS);
    return _mm512_max_epu32(interleaved(low, high), _mm512_min_epu32(share, all_of(1)));
}

// What turns codes into hazards: the hazards of the classes, the first class, and the last.
typedef struct {
    __m512i by_class, first, last;
} lookup;

static inline lookup fill_lookup(const hazards *h) {
    const __m512i by_class = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)h->by_class));
    return (lookup){by_class, _mm512_set1_epi16((short)h->first), _mm512_set1_epi16(15)};
}

// Hazards of 32 codes, 16 bits each.
static inline __m512i hazards_of(__m512i codes, const lookup *t) {
    const __m512i exponents = _mm512_and_si512(_mm512_srli_epi16(codes, 7), _mm512_set1_epi16(0xFF));
    const __m512i classes = _mm512_min_epu16(_mm512_subs_epu16(exponents, t->first), t->last);
    return _mm512_permutexvar_epi16(classes, t->by_class);
}

// Sums of the four numbers in each quarter of four vectors; the sums of a quarter lie side by side.
static inline __m512i sums_of_four(__m512i a, __m512i b, __m512i c, __m512i d) {
    const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}
#elif defined(__AVX2__)
// Classes of exponents, bytes of 0 to 15.
static inline __m256i classes_of(__m256i exponents, const hazards *h) {
    return _mm256_min_epu8(_mm256_subs_epu8(exponents, load_wide(h->firsts)), _mm256_set1_epi8(15));
}

// Hazards of 16 codes.
static inline __m256i hazards_of(const uint16_t *codes, const hazards *h) {
    const __m256i all = load_wide(codes), upper = _mm256_set1_epi16(-256);
    // Each exponent is in both bytes of its code's place.
    const __m256i exponents = _mm256_blendv_epi8(_mm256_srli_epi16(all, 7), _mm256_slli_epi16(all, 1), upper);
    const __m256i classes = classes_of(exponents, h);
    const __m256i low = _mm256_shuffle_epi8(load_wide(h->low), classes);
    return _mm256_blendv_epi8(low, _mm256_shuffle_epi8(load_wide(h->high), classes), upper);
}

// Sums of each of 16 hazards and all before it, at most 65,535.
static inline __m256i running_sums_16(__m256i hazards) {
    hazards = _mm256_adds_epu16(hazards, _mm256_slli_si256(hazards, 2));
    hazards = _mm256_adds_epu16(hazards, _mm256_slli_si256(hazards, 4));
    hazards = _mm256_adds_epu16(hazards, _mm256_slli_si256(hazards, 8));
    // The upper half lacks the sum of the lower one.
    const __m256i lower = _mm256_permute2x128_si256(hazards, hazards, 0x08);
    return _mm256_adds_epu16(hazards, _mm256_shuffle_epi8(lower, _mm256_set1_epi16(0x0F0E)));
}

// Sums of the hazards of 16 codes, and of the 16 that follow: two numbers of 64 bits.
static inline __m128i sums_of_groups(const uint16_t *codes, const hazards *h) {
    const __m256i zero = _mm256_setzero_si256(), mask = _mm256_set1_epi16(0xFF);
    const __m256i a = _mm256_and_si256(_mm256_srli_epi16(load_wide(codes), 7), mask);
    const __m256i b = _mm256_and_si256(_mm256_srli_epi16(load_wide(codes + GROUP), 7), mask);
    // Packing works within each half of a vector: eight of a and eight of b, twice.
    const __m256i classes = classes_of(_mm256_packus_epi16(a, b), h);
    const __m256i low = _mm256_sad_epu8(_mm256_shuffle_epi8(load_wide(h->low), classes), zero);
    const __m256i high = _mm256_sad_epu8(_mm256_shuffle_epi8(load_wide(h->high), classes), zero);
    const __m256i sums = _mm256_add_epi64(low, _mm256_slli_epi64(high, 8));
    return _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
}

// Two pairs of such numbers, of 32 bits.
static inline __m128i four_of(__m128i a, __m128i b) {
    return _mm_castps_si128(_mm_shuffle_ps(_mm_castsi128_ps(a), _mm_castsi128_ps(b), 0x88));
}
#endif

// Sums of hazards from the first coordinate of a tile to the end of each group. All codes of the tile are read.
static inline void add_groups(const uint16_t *codes, const hazards *h, int32_t *groups) {
#if defined(__AVX512VBMI2__)
    const lookup t = fill_lookup(h);
    const __m512i one = _mm512_set1_epi16(1), last = _mm512_set1_epi32(15);
    // Groups 2 v and 2 v + 1 are the lower and upper half of vector v.
    const __m512i order = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    __m512i carry = _mm512_setzero_si512();
    for (int64_t g = 0; g < GROUPS; g += 16) {
        __m512i v[8];
        FOR_EACH(i, 8) v[i] = _mm512_madd_epi16(hazards_of(_mm512_loadu_si512(codes + GROUP * g + 32 * i), &t), one);
        const __m512i x = sums_of_four(v[0], v[1], v[2], v[3]), y = sums_of_four(v[4], v[5], v[6], v[7]);
        const __m512i sums = _mm512_add_epi32(_mm512_shuffle_i32x4(x, y, 0x88), _mm512_shuffle_i32x4(x, y, 0xDD));
        const __m512i all = _mm512_add_epi32(running_sums(_mm512_permutexvar_epi32(order, sums)), carry);
        _mm512_storeu_si512(groups + g, all);
        carry = _mm512_permutexvar_epi32(last, all);
    }
#elif defined(__AVX2__)
    const __m256i third = _mm256_set1_epi32(3), last = _mm256_set1_epi32(7), zero = _mm256_setzero_si256();
    __m256i carry = zero;
    for (int64_t g = 0; g < GROUPS; g += 8) {
        __m128i v[4];
        FOR_EACH(i, 4) v[i] = sums_of_groups(codes + GROUP * (g + 2 * i), h);
        __m256i sums = _mm256_set_m128i(four_of(v[2], v[3]), four_of(v[0], v[1]));
        sums = _mm256_add_epi32(sums, _mm256_slli_si256(sums, 4));
        sums = _mm256_add_epi32(sums, _mm256_slli_si256(sums, 8));
        // The sum of the lower half is missing in the upper one.
        sums = _mm256_add_epi32(sums, _mm256_blend_epi32(zero, _mm256_permutevar8x32_epi32(sums, third), 0xF0));
        sums = _mm256_add_epi32(sums, carry);
        store_wide(groups + g, sums);
        carry = _mm256_permutevar8x32_epi32(sums, last);
    }
#else
    int32_t sum = 0;
    FOR_EACH(g, GROUPS) {
        FOR_EACH(i, GROUP) sum += h->by_exponent[exponent_of(codes[GROUP * g + i])];
        groups[g] = sum;
    }
#endif
}

// Hazard of a tile's coordinates before the k-th; `groups` are the sums of add_groups, and a 0 is before them.
static inline int32_t hazard_before(const uint16_t *codes, int64_t k, const hazards *h, const int32_t *groups) {
    const int64_t g = k / GROUP;
    const int32_t sum = groups[g - 1];
#if defined(__AVX512VBMI2__)
    const lookup t = fill_lookup(h);
    const __m512i own = hazards_of(_mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(codes + GROUP * g))), &t);
    const __m512i wide = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(own));
    return sum + _mm512_mask_reduce_add_epi32((__mmask16)((1u << (k - GROUP * g)) - 1), wide);
#elif defined(__AVX2__)
    static const uint16_t ones_and_zeros[2 * GROUP] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const __m256i counted = load_wide(ones_and_zeros + GROUP * (g + 1) - k);
    const __m256i sums = _mm256_madd_epi16(hazards_of(codes + GROUP * g, h), counted);
    const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
    return sum + _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xB1)));
#else
    int32_t before = sum;
    for (int64_t i = GROUP * g; i < k; i++) before += h->by_exponent[exponent_of(codes[i])];
    return before;
#endif
}

// A tile of codes.
typedef struct {
    _Alignas(64) int32_t sums[LEAD + GROUPS + 16];  // of add_groups, after a 0, before more than any goal
    const uint16_t *codes;  // [SPAN]; those beyond its coordinates are 0
    int64_t total;          // hazard of its coordinates
    int64_t group;          // the one in which the last mover was found
    uint16_t room[SPAN];    // for the codes of the last, which can have fewer
} tile;

// Sums up to the end of each group; 0 before the first.
static inline int32_t *groups_of(tile *t) { return t->sums + LEAD; }

static inline void fill_tile(tile *t, const uint16_t *source, int64_t n, const hazards *h) {
    int32_t *groups = groups_of(t);
    t->codes = source;
    if (n < SPAN) {
        memcpy(t->room, source, (size_t)n * sizeof *source);
        memset(t->room + n, 0, (size_t)(SPAN - n) * sizeof *source);
        t->codes = t->room;
    }
    t->group = 0;
    groups[-1] = 0;
    memset(groups + GROUPS, 0x7F, 16 * sizeof *groups);
    add_groups(t->codes, h, groups);
    t->total = n < SPAN ? hazard_before(t->codes, n, h, groups) : groups[GROUPS - 1];
}

#endif
