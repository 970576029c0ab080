// Decoding sub-blocks, several side by side: maskreg/codec/subblocks.py defines what is computed.
//
//     for each tile of 512 or 1,024 coordinates:
//         for each sub-block: cells and flips of its coordinates; cells become table numbers
//         decode the tokens of all, side by side                                              lanes.h
//         for each sub-block: values from source, tokens, flips and extra bits
//
// Blocks come from outside. Damage shows when a cursor passes its end, or when not everything is used up at the end.
// Until then nothing outside the block is read: a tile takes at most one word per token, and where fewer bytes than that
// are left of the block, they are copied to where more can be read.
#include "lanes.h"
#include "values.h"

enum {
    WORD_BYTES = 2 * (TILE + AHEAD),  // of the words that a tile can read: one per token, and some ahead
    // More sub-blocks than so many take half tiles, because all that is about them has to fit the first-level cache.
    FEW = 4,
    // Extra bits per coordinate, in quarters, from which on all tokens are treated alike.
    CROWDED = 1,
};

// Where a sub-block is read.
typedef struct {
    const uint8_t *word, *word_end;
    int64_t bit, bit_end;  // of its extra bits, in bits of the block
    int crowded;           // whether many tokens have extra bits
} cursor;

void maskreg_fill_decoding(const uint16_t *freqs, int64_t tables, uint32_t *entries) {
    FOR_EACH(row, tables) FOR_EACH(token, TOKENS) {
        const uint32_t freq = freqs[row * TOKENS + token], entry = freq << FREQ_SHIFT | (uint32_t)token;
        for (uint32_t slot = 0; slot < freq; slot++) *entries++ = entry + (slot << SLOT_SHIFT);
    }
}

#if defined(__AVX2__) && !defined(__AVX512VBMI__)
enum { GROUP = 16, HALF = 128 };  // a shuffle looks up among so many bytes; keys of the lower half are below 128

// Look up 32 keys among `groups` of 16 bytes, at most 8; 0 for a key of 128 or more. A byte shuffle looks up by the low
// 4 bits, and gives 0 for a negative byte: such a key, or one that is less than what was subtracted. So each group but
// the first is given as the difference from the one before, and all that a key reaches together are its own.
//
//     key 37, groups a b c d:  a[5] ^ (a ^ b)[5] ^ (b ^ c)[5] ^ 0 = c[5], because 37, 21 and 5 are not negative; -11 is
static inline __attribute__((always_inline)) wide among(const wide *differences, const int groups, wide key) {
    wide result = _mm256_shuffle_epi8(differences[0], key);
    for (int g = 1; g < groups; g++) {
        key = _mm256_subs_epi8(key, _mm256_set1_epi8(GROUP));
        result = xor_wide(result, _mm256_shuffle_epi8(differences[g], key));
    }
    return result;
}

static inline __attribute__((always_inline)) void look_up_among(uint8_t *keys, int64_t n, const uint8_t *table,
                                                                const int groups) {
    const int lower = groups < HALF / GROUP ? groups : HALF / GROUP, upper = groups - lower;
    wide differences[CELLS / GROUP];
    for (int g = 0; g < groups; g++) differences[g] = repeat_wide(table + GROUP * g);
    for (int g = groups - 1; g > 0; g--)
        if (g != HALF / GROUP) differences[g] = xor_wide(differences[g], differences[g - 1]);
    for (int64_t i = 0; i < n; i += WIDE) {
        const wide key = load_wide(keys + i), high = xor_wide(key, _mm256_set1_epi8((char)HALF));
        wide number = among(differences, lower, key);
        if (upper) number = or_wide(number, among(differences + lower, upper, high));
        store_wide(keys + i, number);
    }
}
#endif

// Replace cells by the numbers of their tables; 64 more can be written.
static void look_up(uint8_t *keys, int64_t n, const uint8_t *table, int64_t cells) {
#if defined(__AVX512VBMI__)
    const wide t0 = load_wide(table), t1 = load_wide(table + 64), t2 = load_wide(table + 128), t3 = load_wide(table + 192);
    if (cells <= 128) {
        for (int64_t i = 0; i < n; i += WIDE)
            store_wide(keys + i, _mm512_permutex2var_epi8(t0, load_wide(keys + i), t1));
        return;
    }
    for (int64_t i = 0; i < n; i += WIDE) {
        const wide key = load_wide(keys + i);
        const wide low = _mm512_permutex2var_epi8(t0, key, t1), high = _mm512_permutex2var_epi8(t2, key, t3);
        store_wide(keys + i, _mm512_mask_blend_epi8(_mm512_movepi8_mask(key), low, high));
    }
#elif defined(__AVX2__)
    switch (cells) {
        case PLAIN_CLASSES: look_up_among(keys, n, table, PLAIN_CLASSES / GROUP); break;
        case SCALED_CLASSES: look_up_among(keys, n, table, SCALED_CLASSES / GROUP); break;
        case PLAIN_CLASSES * SIZES: look_up_among(keys, n, table, PLAIN_CLASSES * SIZES / GROUP); break;
        default: look_up_among(keys, n, table, CELLS / GROUP);
    }
#else
    (void)cells;
    FOR_EACH(i, n) keys[i] = table[keys[i]];
#endif
}

// Values of a tile; returns the bit after its extra bits, -1 when there are too few.
static int64_t take_values(const moves *m, int64_t n, const shared *own, const cursor *c) {
    uint8_t room[ROOM];
    const int64_t first = c->bit >> 3, left = own->block_bytes - first;
    const uint8_t *bits = own->block + first;
    if (left < ROOM) {
        memset(room, 0, sizeof room);
        memcpy(room, bits, (size_t)left);
        bits = room;
    }
    const int64_t end = 8 * first + apply_tile(m, n, own->contexts.rank > 0, c->crowded, bits, c->bit & 7);
    return end <= c->bit_end ? end : -1;
}

// As decode_sub_blocks, of no more than ABREAST.
static int64_t decode_group(const uint16_t *source, int64_t n, int64_t position, const shared *own, int64_t count,
                            int64_t length, const int64_t *starts, const int64_t *sizes, uint16_t *values) {
    tiles t;
    fill_orders(&t);
    int8_t flips[ABREAST][TILE + 64];
    uint8_t room[ABREAST][WORD_BYTES];
    cursor cursors[ABREAST];
    if (!own->contexts.rank) memset(flips, 0, sizeof flips);
    const int64_t cells =
        (own->contexts.scaled ? SCALED_CLASSES : PLAIN_CLASSES) * (own->contexts.rank ? SIZES : 1);
    FOR_EACH(k, count) {
        cursor *c = cursors + k;
        memcpy(t.states[k], own->block + starts[k], sizeof t.states[k]);
        c->word = own->block + starts[k] + sizeof t.states[k];
        c->word_end = c->word + 2 * sizes[2 * k];
        c->bit = 8 * (c->word_end - own->block);
        c->bit_end = c->bit + sizes[2 * k + 1];
        c->crowded = 4 * sizes[2 * k + 1] >= CROWDED * length;
    }
    const int64_t tile = count > FEW ? TILE / 2 : TILE;
    for (int64_t start = 0; start < least(length, n); start += tile) {
        int64_t tokens[ABREAST] = {0};
        FOR_EACH(k, count) {
            const int64_t begin = k * length + start;
            tokens[k] = most(0, least(least(tile, length - start), n - begin));
            if (!tokens[k]) continue;
            t.sources[k] = (uintptr_t)(source + begin) + sizeof *source * tile;
            t.values[k] = (uintptr_t)(values + begin);
            classify(source + begin, tokens[k], position + begin, &own->contexts, t.tables[k],
                     own->contexts.rank ? flips[k] : NULL);
            look_up(t.tables[k], tokens[k], own->table_of_cell, cells);
            const int64_t left = own->block + own->block_bytes - cursors[k].word;
            t.words[k] = cursors[k].word;
            if (left < WORD_BYTES) {
                memset(room[k], 0, WORD_BYTES);
                memcpy(room[k], cursors[k].word, (size_t)left);
                t.words[k] = room[k];
            }
        }
        // The last sub-block can be shorter. Side by side go all as far as it does, and then the others.
        const int64_t all = tokens[count - 1] / ROUND * ROUND, others = tokens[0] / ROUND * ROUND;
        decode_abreast(&t, own->entries, count, 0, all);
        decode_abreast(&t, own->entries, count - 1, all, others);
        FOR_EACH(k, count) {
            const int64_t begin = k * length + start, left = own->block + own->block_bytes - cursors[k].word;
            if (!tokens[k]) continue;
            decode_each(&t, own->entries, k, k < count - 1 ? others : all, tokens[k]);
            cursors[k].word += t.words[k] - (left < WORD_BYTES ? room[k] : cursors[k].word);
            if (cursors[k].word > cursors[k].word_end) return k + 1;
            const moves m = {source + begin, t.tokens[k], flips[k], values + begin};
            cursors[k].bit = take_values(&m, tokens[k], own, cursors + k);
            if (cursors[k].bit < 0) return k + 1;
        }
    }
    FOR_EACH(k, count) {
        if (cursors[k].word != cursors[k].word_end || cursors[k].bit != cursors[k].bit_end) return k + 1;
        FOR_EACH(lane, LANES) if (t.states[k][lane] != LOWEST_STATE) return k + 1;
    }
    return 0;
}

int64_t decode_sub_blocks(const uint16_t *source, int64_t n, int64_t position, const shared *own, int64_t count,
                          int64_t length, const int64_t *starts, const int64_t *sizes, uint16_t *values) {
    for (int64_t k = 0; k < count; k += ABREAST) {
        const int64_t begin = k * length, group = least(ABREAST, count - k);
        const int64_t damaged = decode_group(source + begin, least(group * length, n - begin), position + begin, own, group,
                                             length, starts + k, sizes + 2 * k, values + begin);
        if (damaged) return k + damaged;
    }
    return 0;
}
