// Coding sub-blocks of which few coordinates move: maskreg/codec/movers.py defines what is computed.
//
// Numbers are listed in the order in which they are decoded, because that is how adaptive bits go, and then coded from
// the last to the first.
#include "movers.h"

// Numbers, and how many there are; more than `room` are counted, but not kept.
typedef struct {
    uint32_t *numbers;  // [room, 3]: start, frequency, and 4 * bits + 2 with a sign + the sign
    int64_t count, room;
} list;

static inline void put_any(list *l, uint32_t start, uint32_t freq, uint32_t bits) {
    if (l->count < l->room) {
        uint32_t *own = l->numbers + 3 * l->count;
        own[0] = start, own[1] = freq, own[2] = bits;
    }
    l->count++;
}

static inline void put(list *l, uint32_t start, uint32_t freq, uint32_t bits) { put_any(l, start, freq, 4 * bits); }

static inline void put_signed(list *l, uint32_t start, uint32_t freq, uint32_t sign) {
    put_any(l, start, freq, 4 * SURVIVAL_BITS + 2 + sign);
}

static inline void put_adaptive(list *l, chance *c, uint32_t bit, const uint32_t *rates) {
    const uint32_t share = share_of_zero(c);
    put(l, bit ? share : 0, bit ? (1 << CHANCE_BITS) - share : share, CHANCE_BITS);
    count_bit(c, bit, rates);
}

static void put_length(list *l, chances *c, uint16_t source, uint16_t target, const uint32_t *rates) {
    const uint32_t exponent = exponent_of(source), literal = (uint32_t)(source ^ target) >> 15;
    const int32_t step = (target & 0x7FFF) - (source & 0x7FFF);
    const uint32_t length = (uint32_t)(step < 0 ? -step : step);
    const uint32_t k = literal ? MOST_LONGER : 31 - (uint32_t)__builtin_clz(length);
    for (uint32_t j = 0; j < k; j++) put_adaptive(l, j ? c->longer + exponent + j : c->first + exponent, 1, rates);
    if (literal) {
        put(l, target, 1, LITERAL_BITS);
        return;
    }
    put_adaptive(l, k ? c->longer + exponent + k : c->first + exponent, 0, rates);
    if (k) put_adaptive(l, c->top + exponent + k, length >> (k - 1) & 1, rates);
    if (k > 1) put(l, length & ((1u << (k - 1)) - 1), 1, k - 1);
}

// Code numbers, last to first; words go before the end of `words`. Returns how many there are.
static int64_t code(const list *l, uint64_t *state, uint32_t *words) {
    uint32_t *end = words + l->room, *word = end;
    uint64_t x = LOWEST_WIDE;
    for (int64_t i = l->count - 1; i >= 0; i--) {
        const uint32_t *own = l->numbers + 3 * i, start = own[0], freq = own[1];
        const uint32_t bits = own[2] >> 2, is_signed = own[2] >> 1 & 1, sign = own[2] & 1;
        // Whether a word is due cannot be predicted, so one is written anyway.
        const uint64_t is_due = x >> (64 - bits - is_signed) >= freq;
        word[-1] = (uint32_t)x;
        word -= is_due;
        x >>= REFILL_BITS * is_due;
        x = freq == 1 ? (x << bits) + start : ((x / freq) << bits) + x % freq + start;
        x = x << is_signed | sign;
    }
    *state = x;
    return end - word;
}

int64_t maskreg_encode_movers(const uint16_t *source, int64_t n, const maskreg_movers *movers, int64_t count,
                              int64_t begin, const maskreg_hazards *given, uint32_t *numbers, int64_t room,
                              uint64_t *state, uint32_t *words) {
    hazards h;
    fill_hazards(&h, given);
    list l = {numbers, 0, room};
    chances c;
    fill_chances(&c);
    tile t;
    int64_t i = 0, reached = 0;  // hazard from the tile's first coordinate
    const uint32_t beyond = survival(h.powers, HAZARD_LIMIT);
    for (int64_t start = 0; start < n; start += TILE) {
        fill_tile(&t, source + start, least(TILE, n - start), &h);
        for (; i < count && movers->positions[i] - begin < start + TILE; i++) {
            const int64_t k = movers->positions[i] - begin - start;
            const uint16_t from = t.codes[k], to = movers->codes[i];
            const int64_t before = hazard_before(t.codes, k, &h, t.ends);
            const int64_t after = before + h.by_exponent[exponent_of(from)];
            for (; before - reached >= HAZARD_LIMIT; reached += HAZARD_LIMIT) put_signed(&l, 0, beyond, 0);
            const uint32_t low = survival(h.powers, (uint32_t)least(after - reached, HAZARD_LIMIT));
            const uint32_t high = survival(h.powers, (uint32_t)(before - reached));
            put_signed(&l, low, high - low, (to & 0x7FFF) < (from & 0x7FFF));
            reached = after;
            if (exponent_of(from) < h.ones) put_length(&l, &c, from, to, h.rates);
        }
        reached -= t.total;
    }
    for (; -reached >= HAZARD_LIMIT; reached += HAZARD_LIMIT) put_signed(&l, 0, beyond, 0);
    put_signed(&l, 0, survival(h.powers, (uint32_t)-reached), 0);
    return l.count <= room ? code(&l, state, words) : -1;
}

enum {
    COUNTERS = 8,
    AHEAD = 16,  // movers whose source is fetched early: processors do not foresee it
};

// Several counters, because neighbors often have the same exponent, and an increment waits for the one before.
static void count_exponents(const uint16_t *restrict codes, int64_t n, uint32_t totals[COUNTERS][EXPONENTS]) {
    int64_t i = 0;
    for (; i + COUNTERS <= n; i += COUNTERS) {
        uint64_t low, high;
        memcpy(&low, codes + i, sizeof low);
        memcpy(&high, codes + i + 4, sizeof high);
        totals[0][low >> 7 & 0xFF]++;
        totals[1][low >> 23 & 0xFF]++;
        totals[2][low >> 39 & 0xFF]++;
        totals[3][low >> 55 & 0xFF]++;
        totals[4][high >> 7 & 0xFF]++;
        totals[5][high >> 23 & 0xFF]++;
        totals[6][high >> 39 & 0xFF]++;
        totals[7][high >> 55 & 0xFF]++;
    }
    for (; i < n; i++) totals[0][exponent_of(codes[i])]++;
}

void maskreg_count_movers(const uint16_t *source, int64_t n, int64_t every, const maskreg_movers *movers, int64_t count,
                          int64_t *counts) {
    int64_t *moved = counts + EXPONENTS, *far = counts + 2 * EXPONENTS;
    uint32_t totals[COUNTERS][EXPONENTS] = {0};
    for (int64_t start = 0; start < n; start += every * TILE)
        count_exponents(source + start, least(TILE, n - start), totals);
    FOR_EACH(i, count) {
        __builtin_prefetch(source + movers->positions[least(i + AHEAD, count - 1)]);
        const uint16_t from = source[movers->positions[i]], to = movers->codes[i];
        moved[exponent_of(from)]++;
        // 7fff and 8000, and ffff and 0000, are neighbors as numbers only.
        far[exponent_of(from)] += (uint16_t)(to - from + 1) > 2 || (from ^ to) >> 15;
    }
    FOR_EACH(part, COUNTERS) FOR_EACH(e, EXPONENTS) counts[e] += totals[part][e];
}

void maskreg_count_lines(const uint32_t *positions, int64_t count, int64_t width, int64_t column, int64_t *rows,
                         int64_t *columns) {
    // Movers rise, so the row of one begins in or after the row of the one before.
    int64_t row = 0, first = -column;
    FOR_EACH(i, count) {
        if (positions[i] - first >= width) {
            row = (positions[i] + column) / width;
            first = row * width - column;
        }
        rows[row]++;
        columns[positions[i] - first]++;
    }
}
