// Decoding sub-blocks of which few coordinates move: maskreg/codec/movers.py defines what is computed.
//
//     for each tile of 1,024 coordinates, of up to eight sub-blocks:
//         classes of coordinates, and sums of their hazards                                  movers.h
//         in turn, until the last mover of each tile is behind: decode the next mover
//
// They take turns because a mover's place, its ULP step and the number of the next wait for each other; other
// sub-blocks do not wait.
//
// Blocks come from outside. No word is read beyond the end of a sub-block; damage shows when too few were there, or when
// not everything is used up at the end.
#include "movers.h"

enum { PARTS = 8 };

typedef struct {
    uint64_t state;
    const uint8_t *word, *end;
    int complete;      // whether all words that were taken were there
    uint32_t number;   // the next number, above its sign
    int32_t reached;   // hazard that is decoded, from the tile's first coordinate
    int32_t wait;      // hazard until the next mover, or a little less; HAZARD_LIMIT where it is longer
    int64_t begin;     // of the tile, in the block
    uint32_t *positions;
    uint16_t *codes;
    int64_t count, room;  // of positions and codes
    tile tile;
    chances chances;
} part;

// Whether a word is due cannot be predicted, so there is no branch: one is read anyway.
static inline void take(part *p, uint32_t number, uint32_t start, uint32_t freq, uint32_t bits) {
    static const uint8_t none[sizeof(uint32_t)];
    const uint64_t state = freq * (p->state >> bits) + number - start;
    const int is_due = state < LOWEST_WIDE, is_there = p->word < p->end;
    uint32_t word;
    memcpy(&word, is_there ? p->word : none, sizeof word);
    p->state = is_due ? state << REFILL_BITS | word : state;
    p->word += (is_due & is_there) * (int)sizeof word;
    p->complete &= (!is_due) | is_there;
}

static inline uint32_t take_plain(part *p, uint32_t bits) {
    const uint32_t number = (uint32_t)(p->state & (((uint64_t)1 << bits) - 1));
    take(p, number, number, 1, bits);
    return number;
}

static inline uint32_t take_adaptive(part *p, chance *c, const uint32_t *rates) {
    const uint32_t share = share_of_zero(c), number = (uint32_t)(p->state & ((1 << CHANCE_BITS) - 1)), bit = number >= share;
    take(p, number, bit ? share : 0, bit ? (1 << CHANCE_BITS) - share : share, CHANCE_BITS);
    count_bit(c, bit, rates);
    return bit;
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

static inline void draw(part *p, const hazards *h, uint32_t beyond) {
    p->number = (uint32_t)(p->state >> 1 & ((1u << SURVIVAL_BITS) - 1));
    p->wait = p->number < beyond ? HAZARD_LIMIT : hazard_below(p->number, h->logarithms);
}

// The first coordinate of a tile up to whose end the hazard is at least `goal`, which is no more than the tile's;
// fills that hazard.
static inline int64_t reach(const tile *t, int32_t goal, const hazards *h, int32_t *after) {
#if defined(__AVX512VBMI2__)
    const __m512i wide = _mm512_set1_epi32(goal);
    const lookup table = fill_lookup(h);
    int64_t g = 0;
    for (int64_t i = 0; i < GROUPS; i += 16)
        g += __builtin_popcount(_mm512_cmplt_epi32_mask(_mm512_loadu_si512(t->ends + i), wide));
    const __m256i codes = _mm256_loadu_si256((const __m256i *)(t->codes + GROUP * g));
    const __m256i own = _mm512_castsi512_si256(hazards_of(_mm512_castsi256_si512(codes), &table));
    const __m512i before = _mm512_set1_epi32(g ? t->ends[g - 1] : 0);
    const __m512i ends = _mm512_add_epi32(running_sums(_mm512_cvtepu16_epi32(own)), before);
    const int64_t i = __builtin_popcount(_mm512_cmplt_epi32_mask(ends, wide));
    *after = _mm512_cvtsi512_si32(_mm512_permutexvar_epi32(_mm512_set1_epi32((int)i), ends));
    return GROUP * g + i;
#else
    int64_t g = 0;
    while (t->ends[g] < goal) g++;
    int64_t k = GROUP * g;
    int32_t sum = g ? t->ends[g - 1] : 0;
    while ((sum += h->by_exponent[exponent_of(t->codes[k])]) < goal) k++;
    *after = sum;
    return k;
#endif
}

// How many ULPs a mover moves; 0 where a literal follows.
static inline uint32_t take_length(part *p, uint16_t source, const uint32_t *rates) {
    const uint32_t exponent = exponent_of(source);
    chances *c = &p->chances;
    uint32_t k = 0;
    while (k < MOST_LONGER && take_adaptive(p, k ? c->longer + exponent + k : c->first + exponent, rates)) k++;
    if (k == MOST_LONGER) return 0;
    if (!k) return 1;
    const uint32_t length = (2 + take_adaptive(p, c->top + exponent + k, rates)) << (k - 1);
    return k > 1 ? length | take_plain(p, k - 1) : length;
}

// A literal may be what was there; then nothing moves. More than there is room for replace the last.
static inline void put(part *p, int64_t k, uint16_t code) {
    const int64_t at = least(p->count, p->room - 1);
    p->complete &= p->count < p->room;
    p->positions[at] = (uint32_t)(p->begin + k);
    p->codes[at] = code;
    p->count = at + (code != p->tile.codes[k]);
}

// Decode the next mover of the tile, or a long wait; returns 0 where neither ends in the tile.
static inline int decode_next(part *p, const hazards *h, uint32_t beyond) {
    const int32_t goal = p->reached + p->wait;
    if (goal > p->tile.total) return 0;
    if (p->number < beyond) {
        take(p, p->number, 0, beyond, SIGNED_BITS);
        p->reached = goal;
    } else {
        int32_t after;
        const int64_t k = reach(&p->tile, goal, h, &after);
        const uint16_t source = p->tile.codes[k];
        const int32_t before = after - h->by_exponent[exponent_of(source)];
        const uint32_t low = survival(h->powers, (uint32_t)least(after - p->reached, HAZARD_LIMIT));
        if (low > p->number) {
            p->wait++;
            return 1;
        }
        const uint32_t high = survival(h->powers, (uint32_t)most(before - p->reached, 0)), is_lower = p->state & 1;
        take(p, p->number, low, high - low, SIGNED_BITS);
        p->reached = after;
        const uint32_t length = exponent_of(source) < h->ones ? take_length(p, source, h->rates) : 1;
        const uint32_t value = (source & 0x8000u) | ((is_lower ? source - length : source + length) & 0x7FFF);
        put(p, k, (uint16_t)(length ? value : take_plain(p, LITERAL_BITS)));
    }
    draw(p, h, beyond);
    return 1;
}

// Where the movers of a sub-block go. Each takes more than a bit, and there are no more than coordinates; for every
// sub-block there is room for the fewer of both.
static inline int64_t room_before(int64_t k, int64_t length, const int64_t *starts) {
    return least(k * length, 8 * (starts[k] - starts[0]));
}

// As maskreg_decode_movers, of no more than PARTS sub-blocks from one on; `total` movers came before.
static int64_t decode_parts(const uint16_t *source, int64_t n, const hazards *h, const uint8_t *block, int64_t from,
                            int64_t count, int64_t length, const int64_t *starts, const maskreg_movers *movers,
                            int64_t *total) {
    part parts[PARTS];
    const uint32_t beyond = survival(h->powers, HAZARD_LIMIT);
    FOR_EACH(k, count) {
        part *p = parts + k;
        const int64_t at = room_before(from + k, length, starts);
        memcpy(&p->state, block + starts[from + k], sizeof p->state);
        p->word = block + starts[from + k] + sizeof p->state;
        p->end = block + starts[from + k + 1];
        p->complete = 1;
        p->reached = 0;
        p->positions = movers->positions + at, p->codes = movers->codes + at;
        p->count = 0, p->room = room_before(from + k + 1, length, starts) - at;
        fill_chances(&p->chances);
        draw(p, h, beyond);
    }
    for (int64_t start = 0; start < least(length, n - from * length); start += TILE) {
        uint32_t all = 0;
        FOR_EACH(k, count) {
            part *p = parts + k;
            p->begin = (from + k) * length + start;
            const int64_t m = least(least(TILE, length - start), n - p->begin);
            if (m <= 0) continue;
            all |= 1u << k;
            fill_tile(&p->tile, source + p->begin, m, h);
        }
        for (uint32_t busy = all; busy;) {
            for (uint32_t left = busy; left; left &= left - 1) {
                const int k = __builtin_ctz(left);
                if (!decode_next(parts + k, h, beyond)) busy &= ~(1u << k);
            }
        }
        for (uint32_t left = all; left; left &= left - 1) {
            part *p = parts + __builtin_ctz(left);
            p->reached -= p->tile.total;
        }
    }
    FOR_EACH(k, count) {
        part *p = parts + k;
        take(p, p->number, 0, survival(h->powers, (uint32_t)-p->reached), SIGNED_BITS);
        if (!p->complete || p->word != p->end || p->state != LOWEST_WIDE) return from + k + 1;
        memmove(movers->positions + *total, p->positions, (size_t)p->count * sizeof *p->positions);
        memmove(movers->codes + *total, p->codes, (size_t)p->count * sizeof *p->codes);
        *total += p->count;
    }
    return 0;
}

int64_t maskreg_decode_movers(const uint16_t *source, int64_t n, const maskreg_hazards *given, const uint8_t *block,
                              int64_t count, int64_t length, const int64_t *starts, const maskreg_movers *movers) {
    hazards h;
    fill_hazards(&h, given);
    int64_t total = 0;
    for (int64_t k = 0; k < count; k += PARTS) {
        const int64_t damaged =
            decode_parts(source, n, &h, block, k, least(PARTS, count - k), length, starts, movers, &total);
        if (damaged) return -damaged;
    }
    return total;
}
