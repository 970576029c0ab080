// A block's model as bits, lowest first: FORMAT.md section 5.2 has every bit.
//
// Models come from outside: what lies beyond the end reads as zeros, and every number is checked before it is used.
#include "codec.h"

enum {
    PLAIN_BITS = 3,  // of a Rice code's parameter
    MOST_ONES = 24,  // of a quotient that are written together
    WINDOW = 57,     // bits that are at least in a word that begins at any bit of a byte
    MOST_RUN = 48,   // of ones in a window that leave room for a zero and a remainder
    BOUND_BITS = 15,
    INDEX_BITS = 5,
    TOKEN_BITS = 6,
    MAX_LINES = 66,  // 32 components and the scales, of rows and of columns
};

// Small integers that share a Rice parameter, none larger in magnitude than `largest`.
typedef struct {
    int8_t *values;
    int64_t size;
    int32_t largest;
} line;

// List scales, then factors component by component, rows before columns; returns how many lines there are.
static int64_t lines_of(const maskreg_model *m, line *lines) {
    int64_t count = 0;
    if (m->scaled) {
        lines[count++] = (line){m->row_scales, m->rows, MAX_SCALE};
        lines[count++] = (line){m->column_scales, m->width, MAX_SCALE};
    }
    FOR_EACH(k, m->rank) {
        lines[count++] = (line){m->row_factors + k * m->rows, m->rows, MAX_FACTOR};
        lines[count++] = (line){m->column_factors + k * m->width, m->width, MAX_FACTOR};
    }
    return count;
}

// 0, -1, 1, -2, 2, ... to 0, 1, 2, 3, 4, ...
static inline uint8_t folded_of(int8_t value) {
    const uint8_t twice = (uint8_t)((uint8_t)value << 1);
    return value < 0 ? (uint8_t)~twice : twice;
}

static int64_t rice_bits(const int8_t *values, int64_t n, uint32_t plain) {
    int64_t quotients = 0;
    for (int64_t begin = 0; begin < n; begin += 256) {
        // 256 bytes sum to less than 2^16: 16 bits give twice as many lanes as 32.
        const int64_t count = least(256, n - begin);
        uint16_t sum = 0;
        FOR_EACH(i, count) sum = (uint16_t)(sum + (uint8_t)(folded_of(values[begin + i]) >> plain));
        quotients += sum;
    }
    return quotients + n * (1 + plain);
}

// The parameter under which a line is shortest; fills how many bits it takes then.
static uint32_t choose_rice(const line *own, int64_t *fewest) {
    uint32_t plain = 0;
    *fewest = rice_bits(own->values, own->size, 0);
    while (plain + 1 < 1 << PLAIN_BITS) {
        const int64_t bits = rice_bits(own->values, own->size, plain + 1);
        // Convex: each further parameter adds a bit to every value and saves ever less of the quotients.
        if (bits >= *fewest) break;
        *fewest = bits;
        plain++;
    }
    return plain;
}

int64_t maskreg_side_bits(const maskreg_model *m) {
    line lines[MAX_LINES];
    const int64_t count = lines_of(m, lines);
    int64_t total = PLAIN_BITS * count;
    FOR_EACH(i, count) {
        int64_t bits;
        choose_rice(lines + i, &bits);
        total += bits;
    }
    return total;
}

// ---- Writing ----

// Bits of which whole bytes are in memory; there is room for 8 bytes beyond them.
typedef struct {
    uint8_t *byte;
    uint64_t word;
    uint32_t filled;  // bits of the word, less than 8
} writer;

static inline void put(writer *w, uint64_t value, uint32_t count) {
    w->word |= value << w->filled;
    w->filled += count;
    memcpy(w->byte, &w->word, sizeof w->word);
    w->byte += w->filled >> 3;
    w->word >>= w->filled & ~7u;
    w->filled &= 7;
}

static void put_rice(writer *out, const int8_t *restrict values, int64_t n, uint32_t plain) {
    writer w = *out;
    FOR_EACH(i, n) {
        const uint32_t folded = folded_of(values[i]), rest = folded & ((1u << plain) - 1);
        uint32_t ones = folded >> plain;
        for (; ones > MOST_ONES; ones -= MOST_ONES) put(&w, (1u << MOST_ONES) - 1, MOST_ONES);
        // Lowest first: the ones, a zero, the remainder.
        put(&w, (uint64_t)rest << (ones + 1) | ((1u << ones) - 1), ones + 1 + plain);
    }
    *out = w;
}

// The low `length` bits of `value`, 16 at most, in the opposite order.
static inline uint32_t reversed(uint32_t value, uint32_t length) {
    value = (value & 0x5555) << 1 | (value >> 1 & 0x5555);
    value = (value & 0x3333) << 2 | (value >> 2 & 0x3333);
    value = (value & 0x0F0F) << 4 | (value >> 4 & 0x0F0F);
    value = (value & 0x00FF) << 8 | (value >> 8 & 0x00FF);
    return value >> (16 - length);
}

static void put_gamma(writer *w, uint32_t value) {
    const uint32_t length = 32 - (uint32_t)__builtin_clz(value + 1);
    put(w, (uint64_t)reversed(value + 1, length) << (length - 1), 2 * length - 1);
}

static void put_tables(writer *w, const maskreg_model *m) {
    uint8_t before = 0;
    FOR_EACH(cell, m->cells) {
        const uint8_t table = m->of_cell[cell];
        put(w, table == before, 1);
        if (table != before) put(w, table, INDEX_BITS);
        before = table;
    }
    FOR_EACH(row, m->tables) {
        const uint16_t *freqs = m->freqs + row * TOKENS;
        uint32_t first = 0, last = TOKENS - 1;
        while (first < last && !freqs[first]) first++;
        while (first < last && !freqs[last]) last--;
        put(w, first | last << TOKEN_BITS, 2 * TOKEN_BITS);
        for (uint32_t token = first; token <= last; token++) put_gamma(w, freqs[token]);
    }
}

int64_t maskreg_pack_model(const maskreg_model *m, uint8_t *packed) {
    line lines[MAX_LINES];
    const int64_t count = lines_of(m, lines);
    writer w = {.byte = packed, .word = 0, .filled = 0};
    FOR_EACH(i, count) {
        int64_t bits;
        const uint32_t plain = choose_rice(lines + i, &bits);
        put(&w, plain, PLAIN_BITS);
        put_rice(&w, lines[i].values, lines[i].size, plain);
    }
    if (m->rank) FOR_EACH(i, SIZES - 1) put(&w, (uint64_t)m->bounds[i], BOUND_BITS);
    put_tables(&w, m);
    // The bytes that are not whole yet were written, too.
    return 8 * (w.byte - packed) + w.filled;
}

// ---- Reading ----

typedef struct {
    const uint8_t *bytes;
    int64_t size;
    int64_t bit;  // the next
} reader;

// The next 57 bits, and up to 7 more.
static inline uint64_t ahead(const reader *r) {
    const int64_t byte = r->bit >> 3, left = r->size - byte;
    uint64_t word = 0;
    if (left >= 8) memcpy(&word, r->bytes + byte, sizeof word);
    else if (left > 0) memcpy(&word, r->bytes + byte, (size_t)left);
    return word >> (r->bit & 7);
}

static inline uint32_t get(reader *r, uint32_t count) {
    const uint32_t value = (uint32_t)ahead(r) & ((1u << count) - 1);
    r->bit += count;
    return value;
}

// Ones that a word begins with, MOST_RUN of them at most.
static inline uint32_t leading_ones(uint64_t word) { return (uint32_t)__builtin_ctzll(~word | (uint64_t)1 << MOST_RUN); }

// Fill values with Rice codes; returns whether none is larger in magnitude than `largest`. Of a value that is, no more
// is read than shows it, so a block of ones takes no time. A word is read for as many values as it has whole.
static int get_rice(reader *in, int8_t *restrict values, int64_t n, uint32_t plain, int32_t largest) {
    reader r = *in;
    const uint32_t limit = 2 * (uint32_t)largest;
    uint64_t word = 0;
    uint32_t left = 0;  // bits of the word
    FOR_EACH(i, n) {
        uint32_t quotient = 0, run = leading_ones(word);
        if (run + 1 + plain > left || run == MOST_RUN) {
            word = ahead(&r);
            left = WINDOW;
            while ((run = leading_ones(word)) == MOST_RUN) {
                quotient += MOST_RUN;
                if (quotient << plain > limit) return 0;
                r.bit += MOST_RUN;
                word = ahead(&r);
            }
        }
        const uint32_t folded = (quotient + run) << plain | ((uint32_t)(word >> (run + 1)) & ((1u << plain) - 1));
        if (folded > limit) return 0;
        const uint32_t used = run + 1 + plain;
        r.bit += used;
        word >>= used;
        left -= used;
        values[i] = (int8_t)((int32_t)(folded >> 1) ^ -(int32_t)(folded & 1));
    }
    *in = r;
    return 1;
}

// A gamma code's value, -1 when it is larger than 4,096.
static int32_t get_gamma(reader *r) {
    const uint64_t word = ahead(r);
    // One zero more than 4,096 has; then the value is too large in any case.
    const uint32_t zeros = (uint32_t)__builtin_ctzll(word | 1u << (TABLE_BITS + 1));
    if (zeros > TABLE_BITS) return -1;
    const int32_t value = (int32_t)reversed((uint32_t)(word >> zeros) & ((2u << zeros) - 1), zeros + 1) - 1;
    r->bit += 2 * zeros + 1;
    return value <= SLOTS ? value : -1;
}

static int get_freqs(reader *r, uint16_t *freqs) {
    const uint32_t first = get(r, TOKEN_BITS), last = get(r, TOKEN_BITS);
    int32_t total = 0;
    memset(freqs, 0, TOKENS * sizeof *freqs);
    for (uint32_t token = first; token <= last; token++) {
        const int32_t freq = get_gamma(r), step = (int32_t)token - MIDDLE;
        const int known = (step >= -FARTHEST && step <= FARTHEST) || token == LITERAL;
        total += freq;
        if (freq < 0 || total > SLOTS || (freq && !known)) return 0;
        freqs[token] = (uint16_t)freq;
    }
    return total == SLOTS;
}

static int get_tables(reader *r, const maskreg_model *m) {
    uint32_t table = 0;
    FOR_EACH(cell, m->cells) {
        if (!get(r, 1)) table = get(r, INDEX_BITS);
        if (table >= m->tables) return 0;
        m->of_cell[cell] = (uint8_t)table;
    }
    FOR_EACH(row, m->tables) if (!get_freqs(r, m->freqs + row * TOKENS)) return 0;
    return 1;
}

int64_t maskreg_unpack_model(const uint8_t *packed, int64_t size, const maskreg_model *m) {
    line lines[MAX_LINES];
    const int64_t count = lines_of(m, lines);
    reader r = {.bytes = packed, .size = size, .bit = 0};
    FOR_EACH(i, count) {
        const uint32_t plain = get(&r, PLAIN_BITS);
        if (!get_rice(&r, lines[i].values, lines[i].size, plain, lines[i].largest)) return -1;
    }
    if (m->rank) FOR_EACH(i, SIZES - 1) m->bounds[i] = (int16_t)get(&r, BOUND_BITS);
    return get_tables(&r, m) ? r.bit : -1;
}
