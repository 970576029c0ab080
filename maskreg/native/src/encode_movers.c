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

// A sub-block's state, its words up to `end`, before which others go, and the numbers from `first` on that are to be coded.
typedef struct {
    uint64_t state;
    uint32_t *word, *end;
    const uint32_t *first, *number;
} coder;

// Code a number, from the last to the first.
static inline void code_one(coder *c) {
    const uint32_t start = c->number[-3], freq = c->number[-2], kind = c->number[-1];
    const uint32_t bits = kind >> 2, is_signed = kind >> 1 & 1, sign = kind & 1;
    const uint64_t x = c->state;
    // Whether a word is due cannot be predicted, so one is written anyway.
    const uint64_t is_due = x >> (64 - bits - is_signed) >= freq, y = x >> REFILL_BITS * is_due;
    c->word[-1] = (uint32_t)x;
    c->word -= is_due;
    c->state = (((y / freq) << bits) + y % freq + start) << is_signed | sign;
    c->number -= 3;
}

// List the numbers of a sub-block of `n` coordinates, of which the first is at `begin` in the block, and whose movers begin
// with the i-th. Returns the number of the first mover behind it.
static int64_t list_numbers(list *l, const uint16_t *source, int64_t n, const maskreg_movers *movers, int64_t i,
                            int64_t count, int64_t begin, const hazards *h) {
    chances c;
    fill_chances(&c);
    tile t;
    int64_t reached = 0;  // hazard from the tile's first coordinate
    const uint32_t beyond = survival(h->powers, HAZARD_LIMIT);
    for (int64_t start = 0; start < n; start += TILE) {
        const int64_t m = least(TILE, n - start);
        fill_tile(&t, source + start, m, h);
        for (; i < count && movers->positions[i] - begin < start + m; i++) {
            const int64_t k = movers->positions[i] - begin - start;
            const uint16_t from = t.codes[k], to = movers->codes[i];
            const int64_t before = hazard_before(t.codes, k, h, t.ends);
            const int64_t after = before + h->by_exponent[exponent_of(from)];
            for (; before - reached >= HAZARD_LIMIT; reached += HAZARD_LIMIT) put_signed(l, 0, beyond, 0);
            const uint32_t low = survival(h->powers, (uint32_t)least(after - reached, HAZARD_LIMIT));
            const uint32_t high = survival(h->powers, (uint32_t)(before - reached));
            put_signed(l, low, high - low, (to & 0x7FFF) < (from & 0x7FFF));
            reached = after;
            if (exponent_of(from) < h->ones) put_length(l, &c, from, to, h->rates);
        }
        reached -= t.total;
    }
    for (; -reached >= HAZARD_LIMIT; reached += HAZARD_LIMIT) put_signed(l, 0, beyond, 0);
    put_signed(l, 0, survival(h->powers, (uint32_t)-reached), 0);
    return i;
}

int64_t maskreg_encode_movers(const uint16_t *source, int64_t n, const maskreg_movers *movers, int64_t count,
                              const maskreg_hazards *given, int64_t length, uint32_t *numbers, uint32_t *words,
                              int64_t room, uint8_t *coded, int64_t *sizes) {
    hazards h;
    fill_hazards(&h, given);
    list l = {numbers, 0, room};
    coder coders[PARTS];
    int64_t i = 0;
    for (int64_t begin = 0; begin < n;) {
        int64_t abreast = 0;
        for (; abreast < PARTS && begin < n; abreast++, begin += length) {
            const int64_t first = l.count;
            i = list_numbers(&l, source + begin, least(length, n - begin), movers, i, count, begin, &h);
            if (l.count > room) return -1;
            uint32_t *end = words + l.count;
            coders[abreast] = (coder){LOWEST_WIDE, end, end, numbers + 3 * first, numbers + 3 * l.count};
        }
        // In turn, because a number waits for the state that the one before leaves.
        for (int busy = 1; busy;) {
            busy = 0;
            for (coder *c = coders; c < coders + abreast; c++) {
                if (c->number == c->first) continue;
                code_one(c);
                busy = 1;
            }
        }
        for (const coder *c = coders; c < coders + abreast; c++) {
            const size_t bytes = (size_t)(c->end - c->word) * sizeof *c->word;
            memcpy(coded, &c->state, sizeof c->state);
            memcpy(coded + sizeof c->state, c->word, bytes);
            *sizes = (int64_t)(sizeof c->state + bytes);
            coded += *sizes++;
        }
    }
    return 0;
}

enum {
    COUNTERS = 8,
    AHEAD = 64,  // movers whose source is fetched early: processors do not foresee it
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
    uint32_t totals[COUNTERS][EXPONENTS] = {0}, movers_of[COUNTERS][2 * EXPONENTS] = {0};
    for (int64_t start = 0; start < n; start += every * TILE) {
        FOR_EACH(i, TILE / 32) __builtin_prefetch(source + start + every * TILE + 32 * i);
        count_exponents(source + start, least(TILE, n - start), totals);
    }
    FOR_EACH(i, count) {
        __builtin_prefetch(source + movers->positions[least(i + AHEAD, count - 1)]);
        const uint16_t from = source[movers->positions[i]], to = movers->codes[i];
        // 7fff and 8000, and ffff and 0000, are neighbors as numbers only.
        const uint32_t is_far = (uint16_t)(to - from + 1) > 2 || (from ^ to) >> 15;
        movers_of[i % COUNTERS][is_far * EXPONENTS + exponent_of(from)]++;
    }
    FOR_EACH(part, COUNTERS) FOR_EACH(e, EXPONENTS) {
        counts[e] += totals[part][e];
        moved[e] += movers_of[part][e] + movers_of[part][EXPONENTS + e];
        far[e] += movers_of[part][EXPONENTS + e];
    }
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
