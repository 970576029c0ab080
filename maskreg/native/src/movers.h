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
    CHANCE_BITS = 16,
    LEAST_CHANCE = 64,
    MOST_SEEN = 61,    // bits of a chance that are counted
    MOST_LONGER = 15,  // longer bits of a literal
    BINADES = 288,     // that a step may reach, and more
    REFILL_BITS = 32,  // of a word of the stream, which refills a state
    GROUP = 16,        // coordinates whose hazards are added up
    GROUPS = TILE / GROUP,
};

// The hazards of a block, and what follows from them.
typedef struct {
    const uint16_t *by_class;
    const uint32_t *powers;
    const int32_t *logarithms;
    const uint32_t *rates;
    uint32_t first, ones;
    uint16_t by_exponent[EXPONENTS];
} hazards;

static inline void fill_hazards(hazards *h, const maskreg_hazards *given) {
    h->by_class = given->by_class, h->powers = given->powers, h->logarithms = given->logarithms, h->rates = given->rates;
    h->first = (uint32_t)given->first, h->ones = (uint32_t)given->ones;
    FOR_EACH(e, EXPONENTS) {
        const int64_t c = e - given->first;
        h->by_exponent[e] = given->by_class[c < 0 ? 0 : c > 15 ? 15 : c];
    }
}

#define LOWEST_WIDE ((uint64_t)1 << REFILL_BITS)

// Adaptive bits.
typedef struct {
    uint16_t zero;  // chance of a 0, in 1 / 65,536
    uint16_t seen;  // bits that came before, up to MOST_SEEN
} chance;

typedef struct {
    chance first[EXPONENTS];  // the first longer bit, by exponent
    chance longer[BINADES];   // the others, by the binade that is reached
    chance top[BINADES];      // likewise, the bit below the highest
} chances;

static inline void fill_chances(chances *c) {
    chance *all = c->first;
    FOR_EACH(i, (int64_t)(sizeof *c / sizeof *all)) all[i] = (chance){1 << (CHANCE_BITS - 1), 0};
}

static inline uint32_t share_of_zero(const chance *c) {
    const uint32_t zero = c->zero, highest = (1 << CHANCE_BITS) - LEAST_CHANCE;
    return zero < LEAST_CHANCE ? LEAST_CHANCE : zero > highest ? highest : zero;
}

static inline void count_bit(chance *c, uint32_t bit, const uint32_t *rates) {
    const int64_t goal = bit ? 0 : (1 << CHANCE_BITS) - 1;
    c->zero = (uint16_t)(c->zero + ((goal - c->zero) * (int64_t)rates[c->seen] >> CHANCE_BITS));
    c->seen = (uint16_t)(c->seen + (c->seen < MOST_SEEN));
}

// 2^28 times the probability that nothing moves within a hazard of at most HAZARD_LIMIT.
static inline uint32_t survival(const uint32_t *powers, uint32_t hazard) {
    const uint64_t coarse = powers[hazard >> 6 & (COARSE - 1)], fine = powers[COARSE + (hazard & (FINE - 1))];
    return (uint32_t)(coarse * fine >> (2 * 31 - SURVIVAL_BITS + (hazard >> HAZARD_BITS)));
}

#if defined(__AVX512VBMI2__)
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
#endif

// Sums of hazards from the first coordinate of a tile to the end of each group. All codes of the tile are read.
static inline void add_groups(const uint16_t *codes, const hazards *h, int32_t *ends) {
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
        _mm512_storeu_si512(ends + g, all);
        carry = _mm512_permutexvar_epi32(last, all);
    }
#else
    int32_t sum = 0;
    FOR_EACH(g, GROUPS) {
        FOR_EACH(i, GROUP) sum += h->by_exponent[exponent_of(codes[GROUP * g + i])];
        ends[g] = sum;
    }
#endif
}

// Hazard of a tile's coordinates before one.
static inline int32_t hazard_before(const uint16_t *codes, int64_t k, const hazards *h, const int32_t *ends) {
    const int64_t g = k / GROUP;
    int32_t sum = g ? ends[g - 1] : 0;
#if defined(__AVX512VBMI2__)
    const lookup t = fill_lookup(h);
    const __m512i own = hazards_of(_mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(codes + GROUP * g))), &t);
    const __m512i wide = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(own));
    return sum + _mm512_mask_reduce_add_epi32((__mmask16)((1u << (k - GROUP * g)) - 1), wide);
#else
    for (int64_t i = GROUP * g; i < k; i++) sum += h->by_exponent[exponent_of(codes[i])];
    return sum;
#endif
}

// A tile of codes.
typedef struct {
    const uint16_t *codes;  // [TILE]; those beyond its coordinates are 0
    int32_t total;          // hazard of its coordinates
    int32_t ends[GROUPS];
    uint16_t room[TILE];    // for the codes of the last, which may have fewer
} tile;

static inline void fill_tile(tile *t, const uint16_t *source, int64_t n, const hazards *h) {
    t->codes = source;
    if (n < TILE) {
        memcpy(t->room, source, (size_t)n * sizeof *source);
        memset(t->room + n, 0, (size_t)(TILE - n) * sizeof *source);
        t->codes = t->room;
    }
    add_groups(t->codes, h, t->ends);
    t->total = n < TILE ? hazard_before(t->codes, n, h, t->ends) : t->ends[GROUPS - 1];
}

#endif
