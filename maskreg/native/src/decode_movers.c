// Decoding sub-blocks of which few coordinates move: maskreg/codec/movers.py defines what is computed.
//
//     in turn, for each of up to eight sub-blocks:
//         find the next mover; where a tile of 1,024 coordinates is behind, add up hazards of the next       movers.h
//     likewise, of the movers whose ULP step is not given: take the first longer bit
//     likewise, of the few where it is 1: take the rest
//
// They take turns because a mover's place, its ULP step and the number of the next wait for each other; other
// sub-blocks do not wait. Longer bits are taken apart because they cannot be predicted: a wrong branch undoes what is
// done of the sub-blocks that follow.
//
// Blocks come from outside. No word is read beyond the end of a sub-block; damage shows when too few were there, or when
// not everything is used up at the end.
#include "movers.h"

enum { AHEAD = 32 };  // movers whose source is fetched early

// For each number of a bit that is set.
#define FOR_BITS(k, bits) \
    for (uint32_t left = (bits), k = 0; left && (k = (uint32_t)__builtin_ctz(left), 1); left &= left - 1)

typedef struct {
    uint64_t state;
    const uint8_t *word, *end;
    int complete;            // whether all words that were taken were there
    uint32_t number;         // the next number, above its sign
    int32_t reached;         // hazard that is decoded, from the tile's first coordinate
    int32_t wait;            // hazard until the next mover, or a little less; HAZARD_LIMIT where it is longer
    int64_t k;               // the mover, in its tile
    int32_t after;           // hazard up to its end, likewise from the tile's first coordinate
    uint32_t is_lower;       // its sign
    uint16_t from, to;       // its codes
    const uint16_t *source;  // from the next tile on
    int64_t left;            // coordinates there
    int64_t position;        // of the tile in the block
    uint32_t *positions;
    uint16_t *codes;
    int64_t count, room;     // of positions and codes
    const uint32_t *before, *before_end;  // places where something else than the source's codes counts as such
    const uint16_t *before_codes;
    uint16_t moved[TILE];    // room for a tile with these
    tile tile;
    chances chances;
} part;

// Whether a word is due cannot be predicted, so nothing branches on that: one is read anyway.
static inline void take(part *p, uint32_t number, uint32_t start, uint32_t freq, uint32_t bits) {
    const uint64_t state = freq * (p->state >> bits) + number - start, is_due = state < LOWEST_WIDE;
    uint32_t word = 0;
    if (p->word < p->end) {
        memcpy(&word, p->word, sizeof word);
        p->word += sizeof word * is_due;
    } else {
        p->complete &= !is_due;
    }
    p->state = state << REFILL_BITS * is_due | (word & -is_due);
}

static inline uint32_t take_plain(part *p, uint32_t bits) {
    const uint32_t number = (uint32_t)(p->state & (((uint64_t)1 << bits) - 1));
    take(p, number, number, 1, bits);
    return number;
}

static inline uint32_t take_adaptive(part *p, chance *c, const uint32_t *rates) {
    const uint32_t share = share_of_zero(c), number = (uint32_t)(p->state & ((1 << CHANCE_BITS) - 1));
    const uint32_t bit = number >= share;
    take(p, number, share & -bit, ((share ^ -bit) + bit) + (bit << CHANCE_BITS), CHANCE_BITS);
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

#if !defined(__AVX512VBMI2__)
// How many of the ends that rise are below a goal; the last is not.
static inline int64_t groups_below(const int32_t *ends, int32_t goal) {
    int64_t g = 0;
#if defined(__AVX2__)
    const __m256i wide = _mm256_set1_epi32(goal);
    for (;; g += 16) {
        const __m256i low = _mm256_cmpgt_epi32(wide, load_wide(ends + g));
        const __m256i high = _mm256_cmpgt_epi32(wide, load_wide(ends + g + 8));
        const uint32_t lower = (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(low));
        const uint32_t below = (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(high)) << 8 | lower;
        if (below != 0xFFFF) return g + __builtin_ctz(~below);
    }
#else
    while (ends[g] < goal) g++;
    return g;
#endif
}
#endif

// The first coordinate of a tile up to whose end the hazard is at least `goal`, which is no more than the tile's;
// fills that hazard.
static inline int64_t reach(tile *t, int32_t goal, const hazards *h, int32_t *after) {
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
    t->group += groups_below(t->ends + t->group, goal);
    const int64_t g = t->group;
    int32_t sum = g ? t->ends[g - 1] : 0;
    int64_t k = GROUP * g;
#if defined(__AVX2__)
    if (goal - sum <= UINT16_MAX) {
        const __m256i ends = running_sums_16(hazards_of(t->codes + k, h));
        const __m256i rest = _mm256_set1_epi16((short)(goal - sum - 1));
        const __m256i below = _mm256_cmpeq_epi16(_mm256_subs_epu16(ends, rest), _mm256_setzero_si256());
        const int64_t i = __builtin_popcount((uint32_t)_mm256_movemask_epi8(below)) / 2;
        _Alignas(32) uint16_t before[2 * GROUP];
        store_wide(before, _mm256_setzero_si256());
        store_wide(before + GROUP, ends);
        *after = sum + before[GROUP - 1 + i] + h->by_exponent[exponent_of(t->codes[k + i])];
        return k + i;
    }
#endif
    while ((sum += h->by_exponent[exponent_of(t->codes[k])]) < goal) k++;
    *after = sum;
    return k;
#endif
}

static __attribute__((noinline)) void next_tile(part *p, const hazards *h) {
    const int64_t m = least(TILE, p->left);
    const uint16_t *source = p->source;
    p->reached -= p->tile.total;
    p->position += TILE;
    if (p->before < p->before_end && *p->before < p->position + m) {
        uint32_t crossing = 0;
        memcpy(p->moved, source, (size_t)m * sizeof *source);
        for (; p->before < p->before_end && *p->before < p->position + m; p->before++) {
            uint16_t *code = p->moved + (*p->before - p->position);
            crossing |= exponent_of(*code ^ *p->before_codes);
            *code = *p->before_codes++;
        }
        // Few cross to another exponent; hazards stay as they are without. What was just written is slow to read.
        fill_tile(&p->tile, crossing || m < TILE ? p->moved : source, m, h);
        if (m == TILE) p->tile.codes = p->moved;
    } else {
        fill_tile(&p->tile, source, m, h);
    }
    p->source += m;
    p->left -= m;
    // Enough happens before the next.
    FOR_EACH(i, TILE / 32) __builtin_prefetch(p->source + 32 * i);
}

static inline uint16_t moved(const part *p, uint32_t length) {
    const uint32_t lower = -p->is_lower;
    return (uint16_t)((p->from & 0x8000u) | ((p->from + ((length ^ lower) - lower)) & 0x7FFF));
}

// The code of a mover whose first longer bit is 1.
static uint16_t take_code(part *p, const uint32_t *rates) {
    const uint32_t exponent = exponent_of(p->from);
    uint32_t k = 1;
    while (k < MOST_LONGER && take_adaptive(p, p->chances.longer + exponent + k, rates)) k++;
    if (k == MOST_LONGER) return (uint16_t)take_plain(p, LITERAL_BITS);
    const uint32_t length = (2 + take_adaptive(p, p->chances.top + exponent + k, rates)) << (k - 1);
    return moved(p, k > 1 ? length | take_plain(p, k - 1) : length);
}

// A literal can be what was there; then nothing moves.
static inline void put(part *p) {
    if (p->count == p->room) {
        p->complete = 0;
        return;
    }
    p->positions[p->count] = (uint32_t)(p->position + p->k);
    p->codes[p->count] = p->to;
    p->count += p->to != p->from;
}

// Find the next mover; returns 0 where there is none.
static inline int find_next(part *p, const hazards *h, uint32_t beyond) {
    for (;;) {
        const int32_t goal = p->reached + p->wait;
        if (goal > p->tile.total) {
            if (!p->left) return 0;
            next_tile(p, h);
        } else if (p->number < beyond) {
            take(p, p->number, 0, beyond, SIGNED_BITS);
            p->reached = goal;
            draw(p, h, beyond);
        } else {
            p->k = reach(&p->tile, goal, h, &p->after);
            p->from = p->tile.codes[p->k];
            return 1;
        }
    }
}

// Take the number of the mover that was found; returns 0 where it is another.
static inline int take_mover(part *p, const hazards *h) {
    const int32_t before = p->after - h->by_exponent[exponent_of(p->from)];
    const uint32_t low = survival(h->powers, (uint32_t)least(p->after - p->reached, HAZARD_LIMIT));
    if (low > p->number) {
        p->wait++;
        return 0;
    }
    const uint32_t high = survival(h->powers, (uint32_t)most(before - p->reached, 0));
    p->is_lower = p->state & 1;
    p->to = moved(p, 1);
    take(p, p->number, low, high - low, SIGNED_BITS);
    p->reached = p->after;
    return 1;
}

// Where the movers of a sub-block go. Each takes more than a bit, and there are no more than coordinates; for every
// sub-block there is room for the fewer of both.
static inline int64_t room_before(int64_t k, int64_t length, const int64_t *starts) {
    return least(k * length, 8 * (starts[k] - starts[0]));
}

// How many of some ascending positions are below one.
static int64_t first_from(const uint32_t *positions, int64_t count, int64_t position) {
    int64_t low = 0;
    while (low < count) {
        const int64_t middle = (low + count) / 2;
        if (positions[middle] < position) low = middle + 1;
        else count = middle;
    }
    return low;
}

// As maskreg_decode_movers, of no more than PARTS sub-blocks from one on; `total` movers came before.
static int64_t decode_parts(const uint16_t *source, int64_t n, const hazards *h, const uint8_t *block, int64_t from,
                            int64_t count, int64_t length, const int64_t *starts, const maskreg_movers *before,
                            int64_t befores, const maskreg_movers *movers, int64_t *total) {
    part parts[PARTS];
    const uint32_t beyond = survival(h->powers, HAZARD_LIMIT);
    FOR_EACH(k, count) {
        part *p = parts + k;
        const int64_t at = room_before(from + k, length, starts);
        memcpy(&p->state, block + starts[from + k], sizeof p->state);
        p->word = block + starts[from + k] + sizeof p->state;
        p->end = block + starts[from + k + 1];
        p->complete = 1;
        p->reached = p->tile.total = 0;
        p->position = (from + k) * length - TILE;
        const int64_t begin = least((from + k) * length, n);
        p->source = source + begin;
        p->left = least(length, n - begin);
        p->positions = movers->positions + at, p->codes = movers->codes + at;
        p->count = 0, p->room = room_before(from + k + 1, length, starts) - at;
        const int64_t first = first_from(before->positions, befores, begin);
        p->before = before->positions + first, p->before_end = before->positions + befores;
        p->before_codes = before->codes + first;
        fill_chances(&p->chances);
        draw(p, h, beyond);
    }
    for (uint32_t busy = (1u << count) - 1; busy;) {
        uint32_t found = 0, moving = 0, sized = 0, longer = 0;
        FOR_BITS(k, busy) {
            part *p = parts + k;
            if (!find_next(p, h, beyond)) continue;
            found |= 1u << k;
            if (!take_mover(p, h)) continue;
            moving |= 1u << k;
            sized |= (uint32_t)(exponent_of(p->from) < h->ones) << k;
        }
        FOR_BITS(k, sized) {
            part *p = parts + k;
            longer |= take_adaptive(p, p->chances.first + exponent_of(p->from), h->rates) << k;
        }
        FOR_BITS(k, longer) parts[k].to = take_code(parts + k, h->rates);
        FOR_BITS(k, moving) {
            put(parts + k);
            draw(parts + k, h, beyond);
        }
        busy = found;
    }
    FOR_EACH(k, count) {
        part *p = parts + k;
        take(p, p->number, 0, survival(h->powers, (uint32_t)(p->tile.total - p->reached)), SIGNED_BITS);
        if (!p->complete || p->word != p->end || p->state != LOWEST_WIDE) return from + k + 1;
        memmove(movers->positions + *total, p->positions, (size_t)p->count * sizeof *p->positions);
        memmove(movers->codes + *total, p->codes, (size_t)p->count * sizeof *p->codes);
        *total += p->count;
    }
    return 0;
}

int64_t maskreg_decode_movers(const uint16_t *source, int64_t n, const maskreg_hazards *given, const uint8_t *block,
                              int64_t count, int64_t length, const int64_t *starts, const maskreg_movers *before,
                              int64_t befores, const maskreg_movers *movers) {
    hazards h;
    fill_hazards(&h, given);
    int64_t total = 0;
    for (int64_t k = 0; k < count; k += PARTS) {
        const int64_t damaged = decode_parts(source, n, &h, block, k, least(PARTS, count - k), length, starts, before,
                                             befores, movers, &total);
        if (damaged) return -damaged;
    }
    return total;
}

int64_t maskreg_merge_movers(const uint16_t *source, const maskreg_movers *first, int64_t m, const maskreg_movers *last,
                             int64_t n, const maskreg_movers *merged) {
    int64_t i = 0, k = 0, count = 0;
    while (i < m && k < n) {
        __builtin_prefetch(source + first->positions[least(i + AHEAD, m - 1)]);
        // Which is next cannot be predicted, so nothing branches on that.
        const uint32_t a = first->positions[i], b = last->positions[k];
        const uint32_t from = first->codes[i], to = last->codes[k], is_last = -(uint32_t)(b <= a);
        merged->positions[count] = a ^ ((a ^ b) & is_last);
        merged->codes[count] = (uint16_t)(from ^ ((from ^ to) & is_last));
        count += (a != b) | (to != source[a]);
        i += a <= b;
        k += b <= a;
    }
    for (; i < m; i++, count++) merged->positions[count] = first->positions[i], merged->codes[count] = first->codes[i];
    for (; k < n; k++, count++) merged->positions[count] = last->positions[k], merged->codes[count] = last->codes[k];
    return count;
}
