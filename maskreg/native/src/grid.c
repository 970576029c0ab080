// The 2x2 tables of two masks by class, in every row and every column of a matrix: maskreg/analysis/grid.py.
//
// A class and a cell are a plane of bits: which coordinates are of that class and in that cell. A few classes have nearly
// all coordinates. Their planes are counted, 64 columns at a time; coordinates of other classes are listed.
//
//     for each tile of 1,024 columns:
//         for 8 rows at a time:
//             for each class:
//                 members = a bit for each coordinate of the class
//                 for each cell:
//                     plane = members & (A or not A) & (B or not B)
//                     counts of the rows += how many bits of the plane are set in each
//                     counters of the columns += plane                        which are planes too: see add_eight
//             list the coordinates of no class
//         counts of the columns += counters                                   before they are full, and at the end
//
// Where rows are short, several lie side by side in a tile, each in words of its own: rows of 100 columns 2 words each,
// so that a tile has 8 of them, and its counters are added to the counts of 100 columns 8 times.
#include "bits.h"

enum {
    TILE = 1024,  // columns
    TILE_WORDS = TILE / WORD,
    ABREAST = 8,   // rows that are added to the counters together
    PLANES = 8,    // of a counter
    FULL = 248,    // what counters have room for, a multiple of ABREAST
    CELLS = 4,     // of a 2x2 table
    CLASSES = 16,  // at most
    LISTED = 4,    // coordinates that are written at once
};

typedef struct {
    uint64_t in_a[ABREAST][TILE_WORDS], in_b[ABREAST][TILE_WORDS];
    uint64_t members[CLASSES][ABREAST][TILE_WORDS];
    uint64_t counters[CLASSES * CELLS][PLANES][TILE_WORDS];
} tile;

static inline uint16_t class_of(uint16_t code) { return (uint16_t)((code >> 6 & 0x1FE) | !(code & 0x7F)); }

// The bits [from, to) of a word.
static inline uint64_t bits_between(int64_t from, int64_t to) {
    from = most(0, least(WORD, from)), to = most(0, least(WORD, to));
    return to <= from ? 0 : ~(uint64_t)0 >> (WORD - (to - from)) << from;
}

// Bits [from, to) of some columns, of which column 0 is bit `at` of the span.
static void copy_columns(const uint8_t *packed, int64_t at, int64_t from, int64_t to, int64_t words, uint64_t *own) {
    memset(own, 0, (size_t)words * sizeof *own);
    if (!from) copy_bits(packed, at, to, own);
    // Only the first row of a span begins elsewhere.
    else for (int64_t i = from; i < to; i++) own[i / WORD] |= bits_at(packed, at + i, 1) << (i % WORD);
}

// List the bits of a word, of which the first is number `first`; returns how many there are. That varies from word to word
// and cannot be predicted, so four are written in any case, and what is too much is written over by the next.
static inline int64_t list_bits(uint64_t bits, uint32_t first, uint32_t *list) {
    const int64_t count = ones(bits);
    do {
        FOR_EACH(k, LISTED) {
            *list++ = first + (uint32_t)__builtin_ctzll(bits | (uint64_t)1 << (WORD - 1));
            bits &= bits - 1;
        }
    } while (bits);
    return count;
}

// Fill row `r` of a tile, in `words` words from `first_word` on, with the coordinates from `row` and `column` on; list
// coordinates without a class. Returns whether there are any coordinates.
static int fill_row(const maskreg_grid *g, int64_t row, int64_t column, tile *t, int64_t r, int64_t first_word, int64_t words,
                    maskreg_listed *listed) {
    const int64_t at = row * g->width + column - g->start;
    const int64_t from = most(0, -at), to = least(least(words * WORD, g->width - column), g->n - at);
    uint64_t *in_a = t->in_a[r] + first_word, *in_b = t->in_b[r] + first_word;
    if (to <= from) {
        memset(in_a, 0, (size_t)words * sizeof *in_a);
        memset(in_b, 0, (size_t)words * sizeof *in_b);
        FOR_EACH(k, g->kinds) memset(t->members[k][r] + first_word, 0, (size_t)words * sizeof *in_a);
        return 0;
    }
    copy_columns(g->a, at, from, to, words, in_a);
    copy_columns(g->b, at, from, to, words, in_b);
    uint64_t others[TILE_WORDS], whole[TILE_WORDS];
    FOR_EACH(w, words) others[w] = bits_between(from - w * WORD, to - w * WORD);
    if (!g->codes) {
        memcpy(t->members[0][r] + first_word, others, (size_t)words * sizeof *others);
        return 1;
    }
    const uint16_t *codes = g->codes + at;
    uint8_t exponents[TILE], marks[TILE + WORD];
    if (to - from < words * WORD) memset(exponents, 0, sizeof exponents), memset(marks, 0, sizeof marks);
    for (int64_t i = from; i < to; i++) {
        exponents[i] = (uint8_t)(codes[i] >> 7);
        marks[i] = !(codes[i] & 0x7F);
    }
    pack_marks(marks, words * WORD, (uint8_t *)whole);
    FOR_EACH(k, g->kinds) {
        const uint8_t exponent = (uint8_t)(g->classes[k] >> 1);
        const uint64_t flip = g->classes[k] & 1 ? 0 : ~(uint64_t)0;
        uint64_t *restrict own = t->members[k][r] + first_word;
        FOR_EACH(w, words) {
            own[w] = bytes_equal(exponents + w * WORD, exponent) & (whole[w] ^ flip) & others[w];
            others[w] ^= own[w];
        }
    }
    uint32_t *list = listed->columns + listed->count;
    int64_t count = 0;
    FOR_EACH(w, words) count += list_bits(others[w], (uint32_t)(w * WORD), list + count);
    const uint32_t line = (uint32_t)(row / g->height_run - g->start / g->width / g->height_run);
    FOR_EACH(k, count) {
        const uint32_t i = list[k];
        const uint64_t cell = (in_b[i / WORD] >> i % WORD & 1) << 1 | (in_a[i / WORD] >> i % WORD & 1);
        listed->keys[listed->count + k] = (uint16_t)((uint64_t)class_of(codes[i]) << 2 | cell);
        listed->rows[listed->count + k] = line;
        list[k] += (uint32_t)column;
    }
    listed->count += count;
    return 1;
}

// How many coordinates of a class are in each cell, of those in some words of row `r` of the tile.
static void count_row(const tile *t, int64_t kind, int64_t r, int64_t first_word, int64_t words, uint32_t *restrict counts) {
    const uint64_t *restrict own = t->members[kind][r] + first_word;
    const uint64_t *restrict in_a = t->in_a[r] + first_word, *restrict in_b = t->in_b[r] + first_word;
    // Four sums of at most 1,024, in 16 bits of one number each.
    uint64_t sums = 0;
    FOR_EACH(w, words) {
        const uint64_t a = own[w] & in_a[w], b = own[w] & in_b[w];
        sums += (uint64_t)ones(own[w]) | (uint64_t)ones(a) << 16 | (uint64_t)ones(b) << 32 | (uint64_t)ones(a & b) << 48;
    }
    const uint32_t all = sums & 0xFFFF, a = sums >> 16 & 0xFFFF, b = sums >> 32 & 0xFFFF, both = (uint32_t)(sums >> 48);
    counts[0] += all - a - b + both;
    counts[1] += a - both;
    counts[2] += b - both;
    counts[3] += both;
}

// Add three bits of one weight: one of that weight stays in `x`, `carry` has twice the weight.
#define ADD_THREE(x, y, z, carry)              \
    do {                                       \
        const uint64_t half = (x) ^ (y);       \
        carry = ((x) & (y)) | (half & (z));    \
        x = half ^ (z);                        \
    } while (0)

// Add 8 rows of a plane to the counters of its columns. Bit i of plane p of counters is bit p of the number that column i
// has counted to. Three bits of one weight add up to one of that weight and one of twice the weight, so 8 rows take seven
// such sums, and what they carry goes up through the other planes once:
//
//     row 0 + row 1 + ones -> ones, a two     row 2 + row 3 + ones -> ones, a two     two + two + twos -> twos, a four
//     rows 4 to 7 the same                                                            four + four + fours -> fours, an eight
static void add_eight(const tile *t, int64_t kind, int64_t cell, uint64_t (*restrict counters)[TILE_WORDS]) {
    const uint64_t(*own)[TILE_WORDS] = t->members[kind];
    const uint64_t not_a = cell & 1 ? 0 : ~(uint64_t)0, not_b = cell & 2 ? 0 : ~(uint64_t)0;
    FOR_EACH(w, TILE_WORDS) {
        uint64_t rows[ABREAST], two, second_two, four, second_four, carry;
        FOR_EACH(r, ABREAST) rows[r] = own[r][w] & (t->in_a[r][w] ^ not_a) & (t->in_b[r][w] ^ not_b);
        uint64_t one = counters[0][w], twos = counters[1][w], fours = counters[2][w];
        ADD_THREE(one, rows[0], rows[1], two);
        ADD_THREE(one, rows[2], rows[3], second_two);
        ADD_THREE(twos, two, second_two, four);
        ADD_THREE(one, rows[4], rows[5], two);
        ADD_THREE(one, rows[6], rows[7], second_two);
        ADD_THREE(twos, two, second_two, second_four);
        ADD_THREE(fours, four, second_four, carry);
        counters[0][w] = one, counters[1][w] = twos, counters[2][w] = fours;
        for (int64_t p = 3; p < PLANES; p++) {
            const uint64_t next = counters[p][w] & carry;
            counters[p][w] ^= carry;
            carry = next;
        }
    }
}

// Add the counters of `n` columns, from `first_word` on, to the counts of their columns, of which the first is `column`.
static void add_counters(const uint64_t (*counters)[TILE_WORDS], int64_t first_word, int64_t n, int64_t column, int64_t run,
                         uint32_t *restrict counts) {
    for (int64_t start = 0; start < n; start += WORD) {
        const int64_t length = least(WORD, n - start), first = column + start;
        uint8_t sums[WORD] = {0};
        FOR_EACH(p, PLANES) add_where(counters[p][first_word + start / WORD], (uint8_t)(1 << p), sums);
        if (run == 1) FOR_EACH(i, length) counts[first + i] += sums[i];
        else FOR_EACH(i, length) counts[(first + i) / run] += sums[i];
    }
}

void maskreg_count_grid(const maskreg_grid *g, uint32_t *rows, uint32_t *columns, maskreg_listed *listed) {
    const int64_t first = g->start / g->width, end = (g->start + g->n - 1) / g->width + 1;
    const int64_t words = least(TILE_WORDS, WORDS_OF(g->width)), beside = TILE_WORDS / words, step = ABREAST * beside;
    const int64_t all_columns = (g->width + g->width_run - 1) / g->width_run;
    tile t;
    memset(&t, 0, sizeof t);
    listed->count = 0;
    for (int64_t column = 0; column < g->width; column += TILE) {
        int64_t counted = 0;
        for (int64_t start = first; start < end; start += step) {
            FOR_EACH(k, step) {
                const int64_t row = start + k, r = k / beside, first_word = k % beside * words;
                if (!fill_row(g, row, column, &t, r, first_word, words, listed)) continue;
                uint32_t *line = rows + (row / g->height_run - first / g->height_run) * g->kinds * CELLS;
                FOR_EACH(kind, g->kinds) count_row(&t, kind, r, first_word, words, line + kind * CELLS);
            }
            counted += ABREAST;
            const int is_full = counted == FULL || start + step >= end;
            FOR_EACH(key, g->kinds * CELLS) {
                add_eight(&t, key / CELLS, key % CELLS, t.counters[key]);
                if (!is_full) continue;
                FOR_EACH(k, beside)
                    add_counters(t.counters[key], k * words, least(TILE, g->width - column), column, g->width_run,
                                 columns + key * all_columns);
                memset(t.counters[key], 0, sizeof t.counters[key]);
            }
            if (is_full) counted = 0;
        }
    }
}

void maskreg_add_listed(const maskreg_lines *lines, const uint32_t *numbers, const uint16_t *keys, int64_t n,
                        int64_t shift) {
    FOR_EACH(i, n) {
        void *own = lines->counts[keys[i] / CELLS];
        const int64_t number = keys[i] % CELLS * lines->length + (numbers[i] >> shift);
        if (lines->bytes == 2) ((uint16_t *)own)[number]++;
        else if (lines->bytes == 4) ((uint32_t *)own)[number]++;
        else ((uint64_t *)own)[number]++;
    }
}

#if defined(__AVX512F__)
enum { SIDE = 8 };
#elif defined(__AVX2__)
enum { SIDE = 4 };
#else
enum { SIDE = 2 };
#endif

// Sums of SIDE lines and MASKREG_SUMS weights are in registers together. Counts become floats before that, for a few keys
// of some lines.
typedef double side __attribute__((vector_size(8 * SIDE)));

enum { SOME_KEYS = 64, SOME_LINES = 128, SIDES = SOME_LINES / SIDE };

typedef struct {
    _Alignas(64) double values[SOME_KEYS][SOME_LINES];
    uint8_t any[SOME_KEYS][SIDES];  // whether any of the values is not 0
} values_of_keys;

// Counts of `n` keys and of `length` lines from `first` on.
static void load_values(const maskreg_lines *lines, int64_t key, int64_t n, int64_t first, int64_t length, values_of_keys *v) {
#define LOAD_AS(type)                                                                                  \
    do {                                                                                               \
        type own[SOME_LINES] = {0};                                                                    \
        const type *counts = (const type *)lines->counts[(key + k) / CELLS];                           \
        memcpy(own, counts + (key + k) % CELLS * lines->length + first, (size_t)length * sizeof *own); \
        double *values = v->values[k];                                                                 \
        FOR_EACH(i, SOME_LINES) values[i] = (double)own[i];                                            \
        FOR_EACH(s, SIDES) {                                                                           \
            type any = 0;                                                                              \
            FOR_EACH(i, SIDE) any |= own[s * SIDE + i];                                                \
            v->any[k][s] = any != 0;                                                                   \
        }                                                                                              \
    } while (0)
    FOR_EACH(k, n) {
        if (lines->bytes == 2) LOAD_AS(uint16_t);
        else if (lines->bytes == 4) LOAD_AS(uint32_t);
        else LOAD_AS(uint64_t);
    }
#undef LOAD_AS
}

// Add weighted values of `n` keys to the sums of some lines; the weights of two keys are `stride` apart.
static void add_weighted(const values_of_keys *v, int64_t n, const double *weights, int64_t stride,
                         side (*restrict sums)[MASKREG_SUMS]) {
    FOR_EACH(s, SIDES) {
        side own[MASKREG_SUMS];
#pragma GCC unroll 8
        FOR_EACH(j, MASKREG_SUMS) own[j] = sums[s][j];
        FOR_EACH(k, n) {
            // Most classes are rare.
            if (!v->any[k][s]) continue;
            side values;
            memcpy(&values, v->values[k] + s * SIDE, sizeof values);
#pragma GCC unroll 8
            FOR_EACH(j, MASKREG_SUMS) own[j] += weights[k * stride + j] * values;
        }
#pragma GCC unroll 8
        FOR_EACH(j, MASKREG_SUMS) sums[s][j] = own[j];
    }
}

void maskreg_sum_lines(const maskreg_lines *lines, const double *weights, int64_t m, double *sums) {
    const int64_t keys = lines->kinds * CELLS;
    for (int64_t first = 0; first < lines->length; first += SOME_LINES) {
        const int64_t length = least(SOME_LINES, lines->length - first);
        side own[MASKREG_MOST_SUMS / MASKREG_SUMS][SIDES][MASKREG_SUMS];
        memset(own, 0, sizeof own);
        for (int64_t key = 0; key < keys; key += SOME_KEYS) {
            const int64_t n = least(SOME_KEYS, keys - key);
            values_of_keys v;
            load_values(lines, key, n, first, length, &v);
            for (int64_t j = 0; j < m; j += MASKREG_SUMS)
                add_weighted(&v, n, weights + key * m + j, m, own[j / MASKREG_SUMS]);
        }
        FOR_EACH(j, m) FOR_EACH(i, length)
            sums[j * lines->length + first + i] = own[j / MASKREG_SUMS][i / SIDE][j % MASKREG_SUMS][i % SIDE];
    }
}
