// Sub-blocks of movers that are decoded abreast: what a turn does in all of them at once, in a lane each.
//
// With vectors of 512 bits, no step waits for what is rare: a branch that was not foreseen would undo what is done of
// the sub-blocks that follow. Without them, and of few sub-blocks, the same happens lane by lane.
#ifndef MASKREG_ABREAST_H
#define MASKREG_ABREAST_H

#include "movers.h"

// For the number of each bit that is set.
#define FOR_BITS(k, bits) \
    for (uint32_t left = (bits), k = 0; left && (k = (uint32_t)__builtin_ctz(left), 1); left &= left - 1)

// What is known of each sub-block, in a lane each.
typedef struct {
    _Alignas(64) uint64_t state[PARTS];
    uint64_t word[PARTS], end[PARTS];  // addresses: the next word, and behind the last
    uint32_t number[PARTS];            // the next, above its sign
    int32_t wait[PARTS];               // hazard until the next mover, or a little less; HAZARD_LIMIT where it is longer
    int32_t reached[PARTS];            // hazard that is decoded, from the tile's first coordinate
    int32_t total[PARTS];              // hazard of the tile
    int32_t goal[PARTS];               // hazard up to the next mover
    int32_t after[PARTS];              // hazard up to its end
    int32_t place[PARTS];              // the mover, in its tile
    uint32_t is_lower[PARTS];          // its sign
    uint32_t from[PARTS], to[PARTS];   // its codes
    uint32_t missing;                  // sub-blocks of which a word was taken that is not there, a bit each
} lanes;

// The rest of a sub-block.
typedef struct {
    tile tile;
    const uint16_t *source;  // from the next tile on
    int64_t left;            // coordinates there
    int64_t position;        // of the tile in the block
    uint32_t *positions;
    uint16_t *codes;
    int64_t count, room;     // of positions and codes
    const uint32_t *before, *before_end;  // positions that other movers have changed in the source
    const uint16_t *before_codes;         // and their codes there
    uint16_t moved[SPAN];                 // room for a tile with these codes
} part;

// Take `freq` numbers of so many bits from `start` on, among which `number` is. Whether a word is due cannot be predicted,
// so nothing branches on that: one is read anyway.
static inline void take(lanes *l, int64_t i, uint64_t number, uint64_t start, uint64_t freq, uint32_t bits) {
    const uint64_t state = freq * (l->state[i] >> bits) + number - start, is_due = state < LOWEST_WIDE;
    uint32_t word = 0;
    if (l->word[i] < l->end[i]) {
        memcpy(&word, (const void *)l->word[i], sizeof word);
        l->word[i] += sizeof word * is_due;
    } else {
        l->missing |= (uint32_t)is_due << i;
    }
    l->state[i] = state << REFILL_BITS * is_due | (word & -is_due);
}

static inline uint32_t take_plain(lanes *l, int64_t i, uint32_t bits) {
    const uint32_t number = (uint32_t)(l->state[i] & (((uint64_t)1 << bits) - 1));
    take(l, i, number, number, 1, bits);
    return number;
}

// A lower bound of the least hazard whose survival is no more than a number that is at least HAZARD_LIMIT's; off by 2 at
// most. With number = 2^(27 - o) m, 1 <= m < 2, it is 8,192 (1 + o - log2(m)); between the logarithms of a table, the
// true one is above the line, by less than .02.
static inline int32_t hazard_below(uint32_t number, const int32_t *logarithms) {
    const uint32_t octave = (uint32_t)__builtin_clz(number) - (32 - SURVIVAL_BITS);
    const uint32_t fraction = number << octave & ((1u << (SURVIVAL_BITS - 1)) - 1);
    const uint32_t index = fraction >> (SURVIVAL_BITS - 1 - 8), rest = fraction & ((1u << (SURVIVAL_BITS - 1 - 8)) - 1);
    const int64_t slope = logarithms[index + 1] - logarithms[index];
    const int32_t logarithm = (int32_t)(logarithms[index] + (slope * rest >> (SURVIVAL_BITS - 1 - 8)));
    const int32_t hazard = (((((int32_t)octave + 1) << (HAZARD_BITS + 8)) - logarithm) >> 8) - 1;
    return hazard > 1 ? hazard : 1;
}

// Look at the number of the next mover: how far away it is at least.
static inline void draw(lanes *l, int64_t i, const hazards *h) {
    const uint32_t number = (uint32_t)(l->state[i] >> 1 & ((1u << SURVIVAL_BITS) - 1));
    l->number[i] = number;
    l->wait[i] = number < h->beyond ? HAZARD_LIMIT : hazard_below(number, h->logarithms);
}

#if defined(__AVX512VBMI2__)
// Sums of hazards up to each coordinate of the group in which a tile's hazard reaches `goal`; fills the group's number.
static inline __m512i sums_around(const tile *t, int32_t goal, const lookup *table, int64_t *g) {
    const int32_t *groups = t->sums + LEAD;
    const __mmask16 low = _mm512_cmplt_epi32_mask(_mm512_load_si512(groups), all_of(goal));
    const __mmask16 high = _mm512_cmplt_epi32_mask(_mm512_load_si512(groups + 16), all_of(goal));
    *g = _mm_popcnt_u32(_mm512_kunpackw(high, low));
    const __m256i codes = _mm256_loadu_si256((const __m256i *)(t->codes + GROUP * *g));
    const __m512i own = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(hazards_of(_mm512_castsi256_si512(codes), table)));
    return _mm512_add_epi32(running_sums(own), all_of(groups[*g - 1]));
}

// The first of some numbers where a bit is set.
static inline __m128i first_of(__mmask16 which, __m512i numbers) {
    return _mm512_castsi512_si128(_mm512_maskz_compress_epi32(which, numbers));
}

static inline int64_t reach(tile *t, int32_t goal, const hazards *h, int32_t *after) {
    const lookup table = fill_lookup(h);
    int64_t g;
    const __m512i sums = sums_around(t, goal, &table, &g);
    const __mmask16 reached = _mm512_cmple_epi32_mask(all_of(goal), sums);
    *after = _mm_cvtsi128_si32(first_of(reached, sums));
    return GROUP * g + __builtin_ctz(reached);
}
#else
// How many of some ascending sums are below a goal; one is not.
static inline int64_t groups_below(const int32_t *groups, int32_t goal) {
    int64_t g = 0;
#if defined(__AVX2__)
    const __m256i wide = _mm256_set1_epi32(goal);
    for (;; g += 16) {
        const __m256i low = _mm256_cmpgt_epi32(wide, load_wide(groups + g));
        const __m256i high = _mm256_cmpgt_epi32(wide, load_wide(groups + g + 8));
        const uint32_t lower = (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(low));
        const uint32_t below = (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(high)) << 8 | lower;
        if (below != 0xFFFF) return g + __builtin_ctz(~below);
    }
#else
    while (groups[g] < goal) g++;
    return g;
#endif
}

// The first coordinate of a tile up to whose end the hazard is at least `goal`, which is no more than the tile's;
// fills that hazard.
static inline int64_t reach(tile *t, int32_t goal, const hazards *h, int32_t *after) {
    const int32_t *groups = groups_of(t);
    t->group += groups_below(groups + t->group, goal);
    const int64_t g = t->group;
    int32_t sum = groups[g - 1];
    int64_t k = GROUP * g;
#if defined(__AVX2__)
    if (goal - sum <= UINT16_MAX) {
        const __m256i sums = running_sums_16(hazards_of(t->codes + k, h));
        const __m256i rest = _mm256_set1_epi16((short)(goal - sum - 1));
        const __m256i below = _mm256_cmpeq_epi16(_mm256_subs_epu16(sums, rest), _mm256_setzero_si256());
        const int64_t i = __builtin_popcount((uint32_t)_mm256_movemask_epi8(below)) / 2;
        _Alignas(32) uint16_t before[2 * GROUP];
        store_wide(before, _mm256_setzero_si256());
        store_wide(before + GROUP, sums);
        *after = sum + before[GROUP - 1 + i] + h->by_exponent[exponent_of(t->codes[k + i])];
        return k + i;
    }
#endif
    while ((sum += h->by_exponent[exponent_of(t->codes[k])]) < goal) k++;
    *after = sum;
    return k;
}
#endif

static inline uint16_t moved(uint64_t from, uint64_t is_lower, uint32_t length) {
    const uint32_t lower = -(uint32_t)is_lower;
    return (uint16_t)((from & 0x8000u) | (((uint32_t)from + ((length ^ lower) - lower)) & 0x7FFF));
}

// The code of a mover that moves by more than one ULP.
static inline uint16_t take_code(lanes *l, int64_t i, const hazards *h) {
    const ends *own = h->ends + h->class_of[exponent_of((uint16_t)l->from[i])];
    const uint16_t number = (uint16_t)l->state[i];
    int64_t below = 0;
    FOR_EACH(end, ENDS) below += own->starts[end] <= number;
    const int64_t end = least(below - 1, LITERAL_END);
    take(l, i, number, own->starts[end], own->freqs[end], END_BITS);
    // None, perhaps; then nothing is taken.
    const uint32_t lower = end == LITERAL_END ? LITERAL_BITS : (uint32_t)end / 2, low = take_plain(l, i, lower);
    return end == LITERAL_END ? (uint16_t)low : moved(l->from[i], l->is_lower[i], (2 + (end & 1)) << lower | low);
}

#if defined(__AVX512VBMI2__)
#define LOAD(name) _mm512_load_si512(l->name)
#define STORE(name, value) _mm512_store_si512(l->name, value)

// The lower halves of 16 states.
static inline __m512i lower_halves(const lanes *l) {
    const __m512i evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return _mm512_permutex2var_epi32(_mm512_load_si512(l->state), evens, _mm512_load_si512(l->state + 8));
}

// As draw(), in the lanes of some bits; off by 3 at most, as each fourth logarithm is used.
static inline void draw_wide(lanes *l, uint32_t which, const hazards *h) {
    enum { FRACTION = SURVIVAL_BITS - 1, REST = FRACTION - 6, FINER = 6 };
    const __m512i number = _mm512_and_si512(_mm512_srli_epi32(lower_halves(l), 1), all_of((1 << SURVIVAL_BITS) - 1));
    const __m512i octave = _mm512_sub_epi32(_mm512_lzcnt_epi32(number), all_of(32 - SURVIVAL_BITS));
    const __m512i fraction = _mm512_and_si512(_mm512_sllv_epi32(number, octave), all_of((1 << FRACTION) - 1));
    const __m512i index = _mm512_srli_epi32(fraction, REST);
    const __m512i rest = _mm512_srli_epi32(_mm512_and_si512(fraction, all_of((1 << REST) - 1)), FINER);
    const __m512i slope = of_64(index, h->slopes);
    const __m512i more = _mm512_srli_epi32(_mm512_mullo_epi32(slope, rest), REST - FINER);
    const __m512i logarithm = _mm512_add_epi32(of_64(index, h->fourths), more);
    const __m512i whole = _mm512_slli_epi32(_mm512_add_epi32(octave, all_of(1)), HAZARD_BITS + 8);
    const __m512i hazard = _mm512_sub_epi32(_mm512_srli_epi32(_mm512_sub_epi32(whole, logarithm), 8), all_of(1));
    const __mmask16 goes_on = _mm512_cmplt_epu32_mask(number, all_of((int32_t)h->beyond));
    const __m512i wait = _mm512_mask_mov_epi32(_mm512_max_epi32(hazard, all_of(1)), goes_on, all_of(HAZARD_LIMIT));
    STORE(number, _mm512_mask_mov_epi32(LOAD(number), (__mmask16)which, number));
    STORE(wait, _mm512_mask_mov_epi32(LOAD(wait), (__mmask16)which, wait));
}

// Set the goals. Returns the sub-blocks whose next mover is not in the tile, or whose wait goes on.
static inline uint32_t aim_wide(lanes *l, uint32_t busy, const hazards *h) {
    const __m512i goal = _mm512_maskz_add_epi32((__mmask16)busy, LOAD(reached), LOAD(wait));
    STORE(goal, goal);
    const __mmask16 drawn = _mm512_cmplt_epu32_mask(LOAD(number), all_of((int32_t)h->beyond));
    return busy & (_mm512_cmpgt_epi32_mask(goal, LOAD(total)) | drawn);
}

static inline void find_wide(lanes *l, part *parts, int64_t count, uint32_t busy, const hazards *h) {
    (void)busy;
    const lookup table = fill_lookup(h);
    __m512i after = _mm512_setzero_si512(), from = after;
#pragma GCC unroll 16
    for (int k = 0; k < PARTS; k++) {
        if (k % 4 == 0 && k >= count) break;
        const tile *t = &parts[k].tile;
        int64_t g;
        const __m512i sums = sums_around(t, l->goal[k], &table, &g);
        const __mmask16 reached = _mm512_cmple_epi32_mask(all_of(l->goal[k]), sums), lane = (__mmask16)(1 << k);
        const __m512i codes = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(t->codes + GROUP * g)));
        l->place[k] = (int32_t)(GROUP * g + __builtin_ctz(reached));
        after = _mm512_mask_broadcastd_epi32(after, lane, first_of(reached, sums));
        from = _mm512_mask_broadcastd_epi32(from, lane, first_of(reached, codes));
    }
    STORE(after, after);
    STORE(from, from);
}

static inline uint32_t take_eight(lanes *l, int64_t k, __mmask8 which, __m256i rest, __m256i freq) {
    const __m512i x = _mm512_load_si512(l->state + k), word = _mm512_load_si512(l->word + k);
    const __m512i times = _mm512_mullo_epi64(_mm512_cvtepu32_epi64(freq), _mm512_srli_epi64(x, SIGNED_BITS));
    const __m512i next = _mm512_add_epi64(times, _mm512_cvtepu32_epi64(rest));
    const __mmask8 due = _mm512_mask_cmplt_epu64_mask(which, next, _mm512_set1_epi64(LOWEST_WIDE));
    const __mmask8 there = _mm512_mask_cmplt_epu64_mask(due, word, _mm512_load_si512(l->end + k));
    const __m256i words = _mm512_mask_i64gather_epi32(_mm256_setzero_si256(), there, word, NULL, 1);
    const __m512i filled = _mm512_or_si512(_mm512_slli_epi64(next, REFILL_BITS), _mm512_cvtepu32_epi64(words));
    _mm512_store_si512(l->state + k, _mm512_mask_mov_epi64(_mm512_mask_mov_epi64(x, which, next), due, filled));
    _mm512_store_si512(l->word + k, _mm512_mask_add_epi64(word, there, word, _mm512_set1_epi64(sizeof(uint32_t))));
    return (uint32_t)(due & ~there) << k;
}

// Take the numbers of the movers that were found. Returns the sub-blocks where the coordinate does move (the wait was a
// lower bound; elsewhere it grows by one), and adds to `further` where it moves by more than one ULP.
static inline uint32_t take_wide(lanes *l, uint32_t found, const hazards *h, uint32_t *further) {
    const __m512i from = LOAD(from), after = LOAD(after), reached = LOAD(reached), number = LOAD(number);
    const __m512i class = classes_of(from, h), one = all_of(1), until = _mm512_sub_epi32(after, reached);
    const __m512i since = _mm512_sub_epi32(until, of_classes(class, h->by_class));
    const __m512i low = survivals(_mm512_min_epi32(until, all_of(HAZARD_LIMIT)), h);
    const __m512i high = survivals(_mm512_max_epi32(since, _mm512_setzero_si512()), h);
    const __mmask16 moving = _mm512_mask_cmple_epu32_mask((__mmask16)found, low, number);
    const __m512i width = _mm512_sub_epi32(high, low);
    const __m512i highest = all_further_of(width, of_classes(class, h->shares));
    const __m512i split = _mm512_sub_epi32(high, highest);
    const __mmask16 far = _mm512_mask_cmpge_epu32_mask(moving, number, split);
    const __m512i lower = _mm512_and_si512(lower_halves(l), one);
    const __m512i next = _mm512_add_epi32(from, _mm512_sub_epi32(one, _mm512_add_epi32(lower, lower)));
    STORE(is_lower, lower);
    STORE(to, _mm512_ternarylogic_epi32(all_of(0x7FFF), next, from, 0xCA));
    STORE(wait, _mm512_mask_add_epi32(LOAD(wait), (__mmask16)(found & ~moving), LOAD(wait), one));
    STORE(reached, _mm512_mask_mov_epi32(reached, moving, after));
    const __m512i rest = _mm512_sub_epi32(number, _mm512_mask_mov_epi32(low, far, split));
    const __m512i freq = _mm512_mask_mov_epi32(_mm512_sub_epi32(width, highest), far, highest);
    l->missing |= take_eight(l, 0, (__mmask8)moving, half_of(rest, 0), half_of(freq, 0));
    l->missing |= take_eight(l, 8, (__mmask8)(moving >> 8), half_of(rest, 1), half_of(freq, 1));
    *further |= far;
    return moving;
}
#else
#define draw_wide draw_each
#define aim_wide aim_each
#define find_wide find_each
#define take_wide take_each
#endif

static inline void draw_each(lanes *l, uint32_t which, const hazards *h) { FOR_BITS(k, which) draw(l, k, h); }

static inline uint32_t aim_each(lanes *l, uint32_t busy, const hazards *h) {
    uint32_t waiting = 0;
    FOR_BITS(k, busy) {
        l->goal[k] = l->reached[k] + l->wait[k];
        waiting |= (uint32_t)((l->goal[k] > l->total[k]) | (l->number[k] < h->beyond)) << k;
    }
    return waiting;
}

static inline void find_each(lanes *l, part *parts, int64_t count, uint32_t busy, const hazards *h) {
    (void)count;
    FOR_BITS(k, busy) {
        l->place[k] = (int32_t)reach(&parts[k].tile, l->goal[k], h, l->after + k);
        l->from[k] = parts[k].tile.codes[l->place[k]];
    }
}

static inline uint32_t take_each(lanes *l, uint32_t found, const hazards *h, uint32_t *further) {
    uint32_t moving = 0;
    FOR_BITS(k, found) {
        const uint32_t exponent = exponent_of((uint16_t)l->from[k]), number = l->number[k];
        const int64_t until = l->after[k] - l->reached[k], since = until - h->by_exponent[exponent];
        const uint32_t low = survival(h->powers, (uint32_t)least(until, HAZARD_LIMIT));
        if (low > number) {
            l->wait[k]++;
            continue;
        }
        const uint32_t high = survival(h->powers, (uint32_t)most(since, 0));
        const uint32_t highest = further_of(high - low, h->shares[h->class_of[exponent]]);
        const uint32_t is_far = number >= high - highest;
        l->is_lower[k] = l->state[k] & 1;
        l->to[k] = moved(l->from[k], l->is_lower[k], 1);
        take(l, k, number, is_far ? high - highest : low, is_far ? highest : high - highest - low, SIGNED_BITS);
        l->reached[k] = l->after[k];
        moving |= 1u << k;
        *further |= is_far << k;
    }
    return moving;
}

#endif
