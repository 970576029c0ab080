// Coding sub-blocks of which few coordinates move: maskreg/codec/movers.py defines what is computed.
//
// Numbers are listed in the order in which they are decoded, and then coded from the last to the first.
#include "movers.h"

// Numbers, and how many there are; more than `room` are counted, but not kept.
typedef struct {
    uint64_t *numbers;
    int64_t count, room;
} list;

// A number: its start, its frequency, which is below 2^29, its bits, whether it has a sign, and the sign.
enum { START_SHIFT = 36, FREQ_SHIFT_BITS = 7, FREQ_MASK = (1 << (START_SHIFT - FREQ_SHIFT_BITS)) - 1, BITS_SHIFT = 2 };

static inline uint64_t number_of(uint64_t start, uint64_t freq, uint64_t bits) {
    return start << START_SHIFT | freq << FREQ_SHIFT_BITS | bits << BITS_SHIFT;
}

static inline uint64_t signed_number_of(uint64_t start, uint64_t freq, uint64_t sign) {
    return number_of(start, freq, SURVIVAL_BITS) | 2 | sign;
}

static inline void put(list *l, uint64_t number) {
    if (l->count < l->room) l->numbers[l->count] = number;
    l->count++;
}

// The rest of a mover that moves by more than one ULP.
static inline void put_length(list *l, uint16_t source, uint16_t target, const hazards *h) {
    const uint32_t literal = (uint32_t)(source ^ target) >> 15;
    const int32_t step = (target & 0x7FFF) - (source & 0x7FFF);
    const uint32_t length = (uint32_t)(step < 0 ? -step : step);
    const uint32_t lower = literal ? LITERAL_BITS : 30 - (uint32_t)__builtin_clz(length);
    const uint32_t end = literal ? LITERAL_END : 2 * lower + (length >> lower & 1);
    const ends *own = h->ends + h->class_of[exponent_of(source)];
    put(l, number_of(own->starts[end], own->freqs[end], END_BITS));
    if (lower) put(l, number_of((literal ? target : length) & ((1u << lower) - 1), 1, lower));
}

// States of sub-blocks; their words up to `end`, before which others go; and their numbers from `first` on.
typedef struct {
    uint64_t state[PARTS];
    uint64_t word[PARTS], end[PARTS], number[PARTS], first[PARTS];  // addresses
} coders;

// Code a number of each sub-block that has one, from the last to the first. Returns 0 where none has.
static inline int code_numbers(coders *c) {
    int busy = 0;
    FOR_EACH(k, PARTS) {
        if (c->number[k] == c->first[k]) continue;
        uint64_t number;
        c->number[k] -= sizeof number;
        memcpy(&number, (const void *)c->number[k], sizeof number);
        const uint64_t start = number >> START_SHIFT, freq = number >> FREQ_SHIFT_BITS & FREQ_MASK;
        const uint64_t bits = number >> BITS_SHIFT & 31, is_signed = number >> 1 & 1, sign = number & 1;
        const uint64_t x = c->state[k];
        // Whether a word is due cannot be predicted, so one is written anyway.
        const uint64_t is_due = x >> (64 - bits - is_signed) >= freq, y = x >> REFILL_BITS * is_due;
        const uint32_t word = (uint32_t)x;
        memcpy((void *)(c->word[k] - sizeof word), &word, sizeof word);
        c->word[k] -= sizeof word * is_due;
        c->state[k] = (((y / freq) << bits) + y % freq + start) << is_signed | sign;
        busy = 1;
    }
    return busy;
}

enum { BATCH = 1024 };  // movers whose numbers are made at once

// Movers: their codes, the hazard from the mover or wait before, how many waits go on before; the numbers of that.
typedef struct {
    int64_t count;
    _Alignas(64) uint32_t since[BATCH], from[BATCH], to[BATCH];
    _Alignas(64) uint32_t far[BATCH];  // whether they move by more than one ULP
    uint32_t waits[BATCH];
    _Alignas(64) uint64_t numbers[BATCH];
} batch;

// Fill the numbers. No mover of a class without a share moves by more than one ULP; a frequency of 0 would be divided by,
// so it is 1 even there.
static void fill_numbers(batch *b, const hazards *h) {
#if defined(__AVX512VBMI2__)
    const __m512i form = all_of((int32_t)signed_number_of(0, 0, 0)), one = all_of(1), limit = all_of(HAZARD_LIMIT);
    const __m512i eight = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i others = _mm512_add_epi32(eight, all_of(8));
    for (int64_t i = 0; i < b->count; i += 16) {
        const __m512i from = _mm512_load_si512(b->from + i), to = _mm512_load_si512(b->to + i);
        const __m512i size = all_of(0x7FFF), apart = _mm512_andnot_si512(size, _mm512_xor_si512(from, to));
        const __m512i step = _mm512_sub_epi32(_mm512_and_si512(to, size), _mm512_and_si512(from, size));
        const __mmask16 far = _mm512_cmpneq_epi32_mask(_mm512_or_si512(_mm512_abs_epi32(step), apart), one);
        const __m512i since = _mm512_load_si512(b->since + i), class = classes_of(from, h);
        const __m512i until = _mm512_min_epu32(_mm512_add_epi32(since, of_classes(class, h->by_class)), limit);
        const __m512i low = survivals(until, h), high = survivals(since, h), width = _mm512_sub_epi32(high, low);
        const __m512i highest = all_further_of(width, of_classes(class, h->shares));
        const __m512i start = _mm512_mask_sub_epi32(low, far, high, highest), sign = _mm512_srli_epi32(step, 31);
        const __m512i freq = _mm512_mask_max_epu32(_mm512_sub_epi32(width, highest), far, highest, one);
        // signed_number_of(), in halves.
        const __m512i lower = _mm512_or_si512(_mm512_slli_epi32(freq, FREQ_SHIFT_BITS), _mm512_or_si512(form, sign));
        const __m512i upper = _mm512_or_si512(_mm512_slli_epi32(start, START_SHIFT - 32),
                                              _mm512_srli_epi32(freq, 32 - FREQ_SHIFT_BITS));
        _mm512_store_si512(b->numbers + i, _mm512_permutex2var_epi32(lower, eight, upper));
        _mm512_store_si512(b->numbers + i + 8, _mm512_permutex2var_epi32(lower, others, upper));
        _mm512_store_si512(b->far + i, _mm512_maskz_mov_epi32(far, one));
    }
#else
    FOR_EACH(i, b->count) {
        const uint32_t exponent = exponent_of((uint16_t)b->from[i]);
        const int32_t step = (int32_t)(b->to[i] & 0x7FFF) - (int32_t)(b->from[i] & 0x7FFF);
        const uint32_t until = (uint32_t)least(b->since[i] + h->by_exponent[exponent], HAZARD_LIMIT);
        const uint32_t low = survival(h->powers, until), high = survival(h->powers, b->since[i]);
        const uint32_t highest = further_of(high - low, h->shares[h->class_of[exponent]]);
        b->far[i] = (step * step != 1) | (b->from[i] ^ b->to[i]) >> 15;
        b->numbers[i] = b->far[i] ? signed_number_of(high - highest, highest | !highest, step < 0)
                                  : signed_number_of(low, high - low - highest, step < 0);
    }
#endif
}

static void put_batch(list *l, batch *b, const hazards *h) {
    fill_numbers(b, h);
    FOR_EACH(i, b->count) {
        for (uint32_t k = b->waits[i]; k; k--) put(l, signed_number_of(0, h->beyond, 0));
        put(l, b->numbers[i]);
        if (b->far[i]) put_length(l, (uint16_t)b->from[i], (uint16_t)b->to[i], h);
    }
    b->count = 0;
}

// List the numbers of a sub-block of `n` coordinates, of which the first is at `begin` in the block, and whose movers begin
// with the i-th. Returns the number of the first mover behind it.
static int64_t list_numbers(list *l, const uint16_t *source, int64_t n, const maskreg_movers *movers, int64_t i,
                            int64_t count, int64_t begin, const hazards *h) {
    tile t;
    batch b;
    b.count = 0;
    int64_t reached = 0;  // hazard from the tile's first coordinate
    for (int64_t start = 0; start < n; start += SPAN) {
        const int64_t size = least(SPAN, n - start), first = begin + start;
        fill_tile(&t, source + start, size, h);
        for (; i < count && movers->positions[i] < first + size; i++) {
            const int64_t k = movers->positions[i] - first, before = hazard_before(t.codes, k, h, groups_of(&t));
            const uint64_t since = (uint64_t)(before - reached);
            b.since[b.count] = since & (HAZARD_LIMIT - 1), b.waits[b.count] = (uint32_t)(since / HAZARD_LIMIT);
            b.from[b.count] = t.codes[k], b.to[b.count++] = movers->codes[i];
            reached = before + h->by_exponent[exponent_of(t.codes[k])];
            if (b.count == BATCH) put_batch(l, &b, h);
        }
        reached -= t.total;
    }
    put_batch(l, &b, h);
    for (; -reached >= HAZARD_LIMIT; reached += HAZARD_LIMIT) put(l, signed_number_of(0, h->beyond, 0));
    put(l, signed_number_of(0, survival(h->powers, (uint32_t)-reached), 0));
    return i;
}

int64_t maskreg_encode_movers(const uint16_t *source, int64_t n, const maskreg_movers *movers, int64_t count,
                              const maskreg_hazards *given, int64_t length, uint64_t *numbers, uint32_t *words,
                              int64_t room, uint8_t *coded, int64_t *sizes) {
    hazards h;
    fill_hazards(&h, given);
    list l = {numbers, 0, room};
    coders c;
    int64_t i = 0;
    for (int64_t begin = 0; begin < n;) {
        int64_t abreast = 0;
        memset(&c, 0, sizeof c);
        for (; abreast < PARTS && begin < n; abreast++, begin += length) {
            const int64_t first = l.count;
            i = list_numbers(&l, source + begin, least(length, n - begin), movers, i, count, begin, &h);
            if (l.count > room) return -1;
            c.state[abreast] = LOWEST_WIDE;
            c.first[abreast] = (uint64_t)(numbers + first), c.number[abreast] = (uint64_t)(numbers + l.count);
            c.word[abreast] = c.end[abreast] = (uint64_t)(words + l.count);
        }
        while (code_numbers(&c)) {}
        FOR_EACH(k, abreast) {
            const size_t bytes = c.end[k] - c.word[k];
            memcpy(coded, c.state + k, sizeof *c.state);
            memcpy(coded + sizeof *c.state, (const void *)c.word[k], bytes);
            *sizes = (int64_t)(sizeof *c.state + bytes);
            coded += *sizes++;
        }
    }
    return 0;
}

enum {
    COUNTERS = 8,
    AHEAD = 128,  // movers whose source is fetched early: processors do not foresee it
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
    int64_t *moved = counts + EXPONENTS, *far = counts + 2 * EXPONENTS, *ends = counts + 3 * EXPONENTS;
    uint32_t totals[COUNTERS][EXPONENTS] = {0}, movers_of[COUNTERS][2 * EXPONENTS] = {0};
    for (int64_t start = 0; start < n; start += every * TILE) {
        FOR_EACH(i, TILE / 32) __builtin_prefetch(source + start + every * TILE + 32 * i);
        count_exponents(source + start, least(TILE, n - start), totals);
    }
    FOR_EACH(i, count) {
        __builtin_prefetch(source + movers->positions[least(i + AHEAD, count - 1)]);
        const uint16_t from = source[movers->positions[i]], to = movers->codes[i];
        const int32_t step = (to & 0x7FFF) - (from & 0x7FFF);
        const uint32_t literal = (uint32_t)(from ^ to) >> 15, length = (uint32_t)(step < 0 ? -step : step) | literal;
        const uint32_t k = literal ? BINADES_OF_STEP : 31 - (uint32_t)__builtin_clz(length), e = exponent_of(from);
        movers_of[i % COUNTERS][(k > 0) * EXPONENTS + e]++;
        if (!k) continue;
        const uint32_t end = (uint32_t)least(e + k, EXPONENTS - 1);
        ends[end]++;
        ends[EXPONENTS + end] += !literal && length >> (k - 1) & 1;
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
