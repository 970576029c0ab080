// Counts on packed bits, by class and by stripe: maskreg/analysis/contingency.py and maskreg/mask/draw.py, ranking.py and
// rounding.py define what is computed.
#include "bits.h"
#include "histogram.h"

enum {
    TILE = 4096,  // coordinates processed at a time
    TILE_WORDS = TILE / WORD,
    CELLS = 4,  // of a 2x2 table
    PLANES = 16,
    ROW_PLANES = 4,
    ROWS_ABREAST = 15,  // rows of a matrix that are counted before their planes are full
};

void maskreg_count_both(const uint8_t *a, const uint8_t *b, int64_t words, int64_t *counts) {
    int64_t in_a = 0, in_b = 0, both = 0;
    FOR_EACH(i, words) {
        const uint64_t x = load_word(a, i), y = load_word(b, i);
        in_a += ones(x);
        in_b += ones(y);
        both += ones(x & y);
    }
    counts[0] = in_a, counts[1] = in_b, counts[2] = both;
}

int64_t maskreg_count_overlap(const uint8_t *a, const uint8_t *b, int64_t words) {
    int64_t both = 0;
    FOR_EACH(i, words) both += ones(load_word(a, i) & load_word(b, i));
    return both;
}

void maskreg_classify_codes(const uint16_t *restrict codes, int64_t n, uint16_t *restrict classes) {
    FOR_EACH(i, n) classes[i] = (uint16_t)((codes[i] >> 6 & 0x1FE) | !(codes[i] & 0x7F));
}

void maskreg_count_classes(const uint16_t *classes, int64_t n, const uint8_t *packed, int64_t kinds, int64_t *members,
                           int64_t *moved) {
    uint32_t counters[2 * MAX_CLASSES][COUNTERS];
    uint16_t keys[TILE];
    uint8_t marks[TILE];
    memset(counters, 0, 2 * (size_t)kinds * sizeof *counters);
    for (int64_t start = 0; start < n; start += TILE) {
        const int64_t length = least(TILE, n - start);
        const uint16_t *own = classes + start;
        unpack_bits(packed + start / 8, length, marks);
        FOR_EACH(i, length) keys[i] = (uint16_t)(own[i] << 1 | marks[i]);
        count_keys(keys, length, counters);
    }
    FOR_EACH(kind, kinds) {
        const int64_t inside = sum_of(counters[2 * kind + 1]);
        members[kind] += sum_of(counters[2 * kind]) + inside;
        moved[kind] += inside;
    }
}

void maskreg_count_cells(const uint16_t *codes, int64_t n, const uint8_t *a, const uint8_t *b, int64_t *counts) {
    uint32_t counters[CELLS * MAX_CLASSES][COUNTERS] = {{0}};
    uint16_t keys[TILE];
    uint8_t in_a[TILE], in_b[TILE];
    for (int64_t start = 0; start < n; start += TILE) {
        const int64_t length = least(TILE, n - start);
        const uint16_t *own = codes + start;
        unpack_bits(a + start / 8, length, in_a);
        unpack_bits(b + start / 8, length, in_b);
        // Code 0x3F80 (1.0) has exponent field 127 and mantissa 0, so class 255. In both masks: cell 1023. Shifting right
        // by 4 leaves 8 times the exponent.
        FOR_EACH(i, length)
            keys[i] = (uint16_t)((own[i] >> 4 & 0x7F8) | !(own[i] & 0x7F) << 2 | in_b[i] << 1 | in_a[i]);
        count_keys(keys, length, counters);
    }
    FOR_EACH(cell, CELLS * MAX_CLASSES) counts[cell] += sum_of(counters[cell]);
}

void maskreg_count_magnitudes(const uint16_t *codes, int64_t n, int64_t *counts) {
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        uint64_t four;
        memcpy(&four, codes + i, sizeof four);
        counts[four & 0x7FFF]++;
        counts[four >> 16 & 0x7FFF]++;
        counts[four >> 32 & 0x7FFF]++;
        counts[four >> 48 & 0x7FFF]++;
    }
    for (; i < n; i++) counts[codes[i] & 0x7FFF]++;
}

void maskreg_count_scores(const uint32_t *scores, int64_t n, int64_t upper, int64_t *counts) {
    if (upper < 0) FOR_EACH(i, n) counts[scores[i] >> 15]++;
    else FOR_EACH(i, n) if (scores[i] >> 15 == (uint64_t)upper) counts[scores[i] & 0x7FFF]++;
}

void maskreg_pack_smallest(const uint16_t *codes, int64_t n, int32_t border, int64_t ties, uint8_t *packed) {
    uint8_t marks[TILE];
    for (int64_t start = 0; start < n; start += TILE) {
        const int64_t length = least(TILE, n - start), own_ties = most(0, least(length, ties - start));
        const uint16_t *own = codes + start;
        FOR_EACH(i, own_ties) marks[i] = (own[i] & 0x7FFF) <= border;
        for (int64_t i = own_ties; i < length; i++) marks[i] = (own[i] & 0x7FFF) < border;
        pack_marks(marks, length, packed + start / 8);
    }
}

// Add a mask to counters of its coordinates, 64 side by side: word i of plane p holds bit p of each. The mask is a carry
// that ripples upwards: sum = plane ^ carry, next carry = plane & carry.
static inline void add_bits(uint64_t (*planes)[TILE_WORDS], int64_t count, uint64_t *restrict carry, int64_t words) {
    FOR_EACH(p, count) {
        uint64_t *restrict plane = planes[p];
        FOR_EACH(i, words) {
            const uint64_t both = plane[i] & carry[i];
            plane[i] ^= carry[i];
            carry[i] = both;
        }
    }
}

// Add the masks of a tile: `words` from word `first` on. Returns how many planes their number takes.
static int64_t add_masks(const uint8_t *const *masks, int64_t count, int64_t first, int64_t words,
                         uint64_t (*planes)[TILE_WORDS]) {
    uint64_t carry[TILE_WORDS];
    int64_t used = 0;
    FOR_EACH(k, count) {
        if (k + 1 >= (int64_t)1 << used) memset(planes[used++], 0, sizeof *planes);
        FOR_EACH(i, words) carry[i] = load_word(masks[k], first + i);
        add_bits(planes, used, carry, words);
    }
    return used;
}

void maskreg_count_agreeing(const uint8_t *const *masks, int64_t count, int64_t words, int64_t *counts) {
    uint64_t planes[PLANES][TILE_WORDS], equal[TILE_WORDS];
    for (int64_t first = 0; first < words; first += TILE_WORDS) {
        const int64_t own = least(TILE_WORDS, words - first), used = add_masks(masks, count, first, own, planes);
        for (int64_t number = 1; number <= count; number++) {
            memset(equal, 0xFF, sizeof equal);
            FOR_EACH(p, used) {
                const uint64_t flip = number >> p & 1 ? 0 : ~(uint64_t)0;
                FOR_EACH(i, own) equal[i] &= planes[p][i] ^ flip;
            }
            FOR_EACH(i, own) counts[number] += ones(equal[i]);
        }
    }
}

void maskreg_at_least(int64_t least_count, const uint8_t *const *masks, int64_t count, int64_t words, uint8_t *result) {
    uint64_t planes[PLANES][TILE_WORDS], more[TILE_WORDS], equal[TILE_WORDS];
    for (int64_t first = 0; first < words; first += TILE_WORDS) {
        const int64_t own = least(TILE_WORDS, words - first), used = add_masks(masks, count, first, own, planes);
        memset(more, 0, sizeof more);
        memset(equal, 0xFF, sizeof equal);
        for (int64_t p = used - 1; p >= 0; p--) {
            if (least_count >> p & 1) FOR_EACH(i, own) equal[i] &= planes[p][i];
            else FOR_EACH(i, own) {
                more[i] |= equal[i] & planes[p][i];
                equal[i] &= ~planes[p][i];
            }
        }
        FOR_EACH(i, own) store_word(result, first + i, more[i] | equal[i]);
    }
}

// One row, or a part of it: adds to the counts of its columns, and returns how many there are.
static int64_t add_row(const uint8_t *packed, int64_t at, int64_t n, int64_t *restrict columns) {
    int64_t total = 0;
    for (int64_t start = 0; start < n; start += WORD) {
        const int64_t length = least(WORD, n - start);
        const uint64_t word = bits_at(packed, at + start, length);
        total += ones(word);
        FOR_EACH(i, length) columns[start + i] += (int64_t)(word >> i & 1);
    }
    return total;
}

// Whole rows. The bits of a column are counted in planes of bits, up to 15, before they are added to its count.
static void add_rows(const uint8_t *packed, int64_t at, int64_t count, int64_t width, int64_t *restrict rows,
                     int64_t *restrict columns) {
    uint64_t planes[ROW_PLANES][TILE_WORDS], carry[TILE_WORDS];
    for (int64_t column = 0; column < width; column += TILE) {
        const int64_t n = least(TILE, width - column), words = WORDS_OF(n);
        for (int64_t first = 0; first < count; first += ROWS_ABREAST) {
            memset(planes, 0, sizeof planes);
            const int64_t end = least(count, first + ROWS_ABREAST);
            for (int64_t row = first; row < end; row++) {
                copy_bits(packed, at + row * width + column, n, carry);
                FOR_EACH(i, words) rows[row] += ones(carry[i]);
                add_bits(planes, ROW_PLANES, carry, words);
            }
            uint8_t sums[TILE] = {0}, marks[TILE];
            FOR_EACH(p, ROW_PLANES) {
                unpack_bits((const uint8_t *)planes[p], n, marks);
                FOR_EACH(i, n) sums[i] = (uint8_t)(sums[i] + (marks[i] << p));
            }
            FOR_EACH(i, n) columns[column + i] += sums[i];
        }
    }
}

void maskreg_count_stripes(const uint8_t *packed, int64_t start, int64_t numel, int64_t width, int64_t *rows,
                           int64_t *columns) {
    if (numel <= 0) return;
    int64_t row = start / width, at = 0;
    if (start % width) {
        at = least(numel, width - start % width);
        rows[row++] += add_row(packed, 0, at, columns + start % width);
    }
    const int64_t whole = (numel - at) / width;
    add_rows(packed, at, whole, width, rows + row, columns);
    at += whole * width;
    if (at < numel) rows[row + whole] += add_row(packed, at, numel - at, columns);
}
