// Decoding sub-blocks, several side by side: maskreg/codec/decode.py defines what is computed.
//
//     for each tile of 1,024 coordinates:
//         for each sub-block: cells and flips of its coordinates; cells become table numbers
//         decode the tokens of all, side by side                                              lanes.h
//         for each sub-block: values from source, tokens, flips and extra bits
//
// Blocks come from outside. Damage shows when a cursor passes its end, or when not everything is used up at the end.
// Until then nothing outside the block is read: a tile takes at most one word per token, and where fewer bytes than that
// are left of the block, they are copied to where more may be read.
#include "lanes.h"
#include "tokens.h"

enum {
    WORD_BYTES = 2 * (TILE + LANES),  // of the words that a tile may read: one per token, and a vector ahead
    // Extra bits per coordinate, in quarters, from which on all tokens are treated alike.
    CROWDED = 1,
};

// Where a sub-block is read.
typedef struct {
    const uint8_t *word, *word_end;
    int64_t bit, bit_end;  // of its extra bits, in bits of the block
    int crowded;           // whether many tokens have extra bits
} cursor;

typedef struct {
    const uint16_t *source;
    const uint8_t *tokens;
    const int8_t *flips;
    uint16_t *values;
} moves;

void maskreg_fill_decoding(const uint16_t *freqs, int64_t tables, uint32_t *entries) {
    FOR_EACH(row, tables) FOR_EACH(token, TOKENS) {
        const uint32_t freq = freqs[row * TOKENS + token], entry = freq << FREQ_SHIFT | (uint32_t)token;
        for (uint32_t slot = 0; slot < freq; slot++) *entries++ = entry + (slot << SLOT_SHIFT);
    }
}

// Replace cells by the numbers of their tables; 64 more may be written.
static void look_up(uint8_t *keys, int64_t n, const uint8_t *table, int64_t cells) {
#if defined(__AVX512VBMI__)
    (void)cells;
    const __m512i t0 = _mm512_loadu_si512(table), t1 = _mm512_loadu_si512(table + 64);
    const __m512i t2 = _mm512_loadu_si512(table + 128), t3 = _mm512_loadu_si512(table + 192);
    for (int64_t i = 0; i < n; i += 64) {
        const __m512i key = _mm512_loadu_si512(keys + i);
        const __m512i low = _mm512_permutex2var_epi8(t0, key, t1), high = _mm512_permutex2var_epi8(t2, key, t3);
        _mm512_storeu_si512(keys + i, _mm512_mask_blend_epi8(_mm512_movepi8_mask(key), low, high));
    }
#elif defined(__AVX2__)
    // A byte shuffle looks up 32 bytes at once, but only among 16, and gives 0 for an index whose highest bit is set. The
    // saturating sum sets that bit for every index of 16 or more; of the others it keeps the low 4 bits, which are used.
    // Keys 5 and 21, second group: 5 ^ 16 = 21 -> 0x85 -> 0, and 21 ^ 16 = 5 -> 0x75 -> table[16 + 5].
    for (int64_t i = 0; i < n; i += 32) {
        const __m256i key = _mm256_loadu_si256((const __m256i *)(keys + i));
        __m256i result = _mm256_setzero_si256();
        for (int64_t first = 0; first < cells; first += 16) {
            const __m256i own = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(table + first)));
            const __m256i index = _mm256_xor_si256(key, _mm256_set1_epi8((char)first));
            const __m256i near = _mm256_adds_epu8(index, _mm256_set1_epi8(0x70));
            result = _mm256_or_si256(result, _mm256_shuffle_epi8(own, near));
        }
        _mm256_storeu_si256((__m256i *)(keys + i), result);
    }
#else
    (void)cells;
    FOR_EACH(i, n) keys[i] = table[keys[i]];
#endif
}

// Fill the values of tokens without extra bits; those of others get some value.
static void apply_near(const moves *restrict m, int64_t n) {
    const uint16_t *restrict source = m->source;
    const uint8_t *restrict tokens = m->tokens;
    const int8_t *restrict flips = m->flips;
    uint16_t *restrict values = m->values;
    FOR_EACH(i, n) {
        // Negation without a branch: (s ^ -1) - (-1) = -s, and (s ^ 0) - 0 = s.
        const int16_t step = (int16_t)(((tokens[i] - MIDDLE) ^ flips[i]) - flips[i]);
        values[i] = (uint16_t)((source[i] & 0x8000) | ((source[i] + step) & 0x7FFF));
    }
}

static inline uint32_t bits_at(const uint8_t *bytes, int64_t bit, uint32_t count) {
    uint32_t four;
    memcpy(&four, bytes + (bit >> 3), 4);
    return (four >> (bit & 7)) & ((1u << count) - 1);
}

// The same where the block may end before four bytes: what lies beyond counts as zeros.
static inline uint32_t last_bits_at(const maskreg_shared *shared, int64_t bit, uint32_t count) {
    const int64_t first = bit >> 3, left = shared->block_bytes - first;
    if (left >= 4) return bits_at(shared->block, bit, count);
    uint8_t four[4] = {0};
    if (left > 0) memcpy(four, shared->block + first, (size_t)left);
    return bits_at(four, bit & 7, count);
}

// Fill the value of one token with extra bits; returns the bit after them. Never more than 16 are read.
static inline int64_t apply_one_far(const moves *m, int64_t i, const maskreg_shared *shared, int64_t bit) {
    const int32_t step = m->tokens[i] - MIDDLE, size = step < 0 ? -step : step;
    const int literal = m->tokens[i] == LITERAL;
    // A token that no valid table has would take more: it counts as a literal.
    const uint32_t count = literal ? LITERAL_BITS : (uint32_t)least(size - FEWER_BITS, LITERAL_BITS);
    const uint32_t extra = last_bits_at(shared, bit, count);
    const int32_t length = (int32_t)((1u << count) + extra + 1);
    const int32_t moved = m->source[i] + ((step < 0) != (m->flips[i] != 0) ? -length : length);
    m->values[i] = (uint16_t)(literal ? extra : (uint32_t)((m->source[i] & 0x8000) | (moved & 0x7FFF)));
    return bit + count;
}

#if defined(__AVX512F__) && defined(__AVX512BW__)
enum { AT_ONCE = 16 };

// Fill the values of 16 tokens, whatever they are; returns the bit after their extra bits.
static inline int64_t apply_several(const moves *m, int64_t i, const uint8_t *block, int64_t bit) {
    const __m512i zero = _mm512_setzero_si512(), one = _mm512_set1_epi32(1);
    const __m512i token = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(m->tokens + i)));
    const __m512i step = _mm512_sub_epi32(token, _mm512_set1_epi32(MIDDLE)), near = _mm512_abs_epi32(step);
    const __mmask16 far = _mm512_cmpgt_epi32_mask(near, _mm512_set1_epi32(NEAREST));
    const __mmask16 literal = _mm512_cmpeq_epi32_mask(token, _mm512_set1_epi32(LITERAL));
    const __m512i fewer = _mm512_sub_epi32(near, _mm512_set1_epi32(FEWER_BITS));
    const __m512i counts = _mm512_maskz_min_epi32(far, fewer, _mm512_set1_epi32(LITERAL_BITS));
    // Prefix sums of 4 0 16 0, say: added to themselves moved by 1 (4 4 16 16), by 2 (4 4 20 20), by 4 and by 8.
    __m512i after = counts;
    after = _mm512_add_epi32(after, _mm512_alignr_epi32(after, zero, 15));
    after = _mm512_add_epi32(after, _mm512_alignr_epi32(after, zero, 14));
    after = _mm512_add_epi32(after, _mm512_alignr_epi32(after, zero, 12));
    after = _mm512_add_epi32(after, _mm512_alignr_epi32(after, zero, 8));
    const __m512i own = _mm512_add_epi32(_mm512_sub_epi32(after, counts), _mm512_set1_epi32((int)(bit & 7)));
    __mmask16 all = 0xFFFF;
    __asm__("" : "+r"(all));
    const __m512i four =
        _mm512_mask_i32gather_epi32(zero, all, _mm512_srli_epi32(own, 3), (const int *)(block + (bit >> 3)), 1);
    const __m512i power = _mm512_sllv_epi32(one, counts);
    const __m512i extra = _mm512_and_si512(_mm512_srlv_epi32(four, _mm512_and_si512(own, _mm512_set1_epi32(7))),
                                           _mm512_sub_epi32(power, one));
    const __m512i length = _mm512_mask_add_epi32(near, far, _mm512_add_epi32(power, extra), one);
    const __m512i flip = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(m->flips + i)));
    const __m512i sign = _mm512_xor_si512(_mm512_srai_epi32(step, 31), flip);
    const __m512i code = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(m->source + i)));
    const __m512i moved = _mm512_add_epi32(code, _mm512_sub_epi32(_mm512_xor_si512(length, sign), sign));
    // The source's sign, and the magnitude that was reached.
    const __m512i value = _mm512_ternarylogic_epi32(_mm512_set1_epi32(0x8000), code, moved, 0xCA);
    _mm256_storeu_si256((__m256i *)(m->values + i), _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(value, literal, extra)));
    return bit + _mm_extract_epi32(_mm512_extracti32x4_epi32(after, 3), 3);
}
#elif defined(__AVX2__)
enum { AT_ONCE = 8 };

// Fill the values of 8 tokens, whatever they are; returns the bit after their extra bits.
static inline int64_t apply_several(const moves *m, int64_t i, const uint8_t *block, int64_t bit) {
    const __m256i zero = _mm256_setzero_si256(), one = _mm256_set1_epi32(1);
    const __m256i token = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(m->tokens + i)));
    const __m256i step = _mm256_sub_epi32(token, _mm256_set1_epi32(MIDDLE)), near = _mm256_abs_epi32(step);
    const __m256i far = _mm256_cmpgt_epi32(near, _mm256_set1_epi32(NEAREST));
    const __m256i literal = _mm256_cmpeq_epi32(token, _mm256_set1_epi32(LITERAL));
    const __m256i fewer = _mm256_sub_epi32(near, _mm256_set1_epi32(FEWER_BITS));
    const __m256i counts = _mm256_and_si256(far, _mm256_min_epi32(fewer, _mm256_set1_epi32(LITERAL_BITS)));
    // Prefix sums, first within each half; then the sum of the lower half goes to all lanes of the upper one.
    __m256i after = _mm256_add_epi32(counts, _mm256_slli_si256(counts, 4));
    after = _mm256_add_epi32(after, _mm256_slli_si256(after, 8));
    const __m256i half = _mm256_permutevar8x32_epi32(after, _mm256_set1_epi32(3));
    after = _mm256_add_epi32(after, _mm256_blend_epi32(zero, half, 0xF0));
    const __m256i own = _mm256_add_epi32(_mm256_sub_epi32(after, counts), _mm256_set1_epi32((int)(bit & 7)));
    __m256i all = _mm256_set1_epi32(-1);
    __asm__("" : "+x"(all));
    const __m256i four =
        _mm256_mask_i32gather_epi32(zero, (const int *)(const void *)(block + (bit >> 3)), _mm256_srli_epi32(own, 3), all, 1);
    const __m256i power = _mm256_sllv_epi32(one, counts);
    const __m256i extra = _mm256_and_si256(_mm256_srlv_epi32(four, _mm256_and_si256(own, _mm256_set1_epi32(7))),
                                           _mm256_sub_epi32(power, one));
    const __m256i long_one = _mm256_add_epi32(_mm256_add_epi32(power, extra), one);
    const __m256i length = _mm256_blendv_epi8(near, long_one, far);
    const __m256i flip = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(m->flips + i)));
    const __m256i sign = _mm256_xor_si256(_mm256_srai_epi32(step, 31), flip);
    const __m256i code = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(m->source + i)));
    const __m256i moved = _mm256_add_epi32(code, _mm256_sub_epi32(_mm256_xor_si256(length, sign), sign));
    // The source's sign, and the magnitude that was reached.
    const __m256i value = _mm256_or_si256(_mm256_and_si256(code, _mm256_set1_epi32(0x8000)),
                                          _mm256_and_si256(moved, _mm256_set1_epi32(0x7FFF)));
    const __m256i result = _mm256_blendv_epi8(value, extra, literal);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(result, result), 0x08);
    _mm_storeu_si128((__m128i *)(m->values + i), _mm256_castsi256_si128(packed));
    return bit + _mm256_extract_epi32(after, 7);
}
#endif

// Fill the values of all tokens of a tile; returns the bit after their extra bits. It checks no end: the caller gives
// as many bits as the tokens could take, and compares the result.
static int64_t apply_crowded(const moves *m, int64_t n, const uint8_t *block, int64_t bit) {
    int64_t i = 0;
#if defined(__AVX2__)
    for (; i + AT_ONCE <= n; i += AT_ONCE) bit = apply_several(m, i, block, bit);
#endif
    for (; i < n; i++) {
        const int32_t step = m->tokens[i] - MIDDLE, near = step < 0 ? -step : step, far = near > NEAREST;
        const int literal = m->tokens[i] == LITERAL;
        const uint32_t count = far ? (uint32_t)least(near - FEWER_BITS, LITERAL_BITS) : 0;
        const uint32_t extra = bits_at(block, bit, count);
        const int32_t length = far ? (int32_t)((1u << count) + extra + 1) : near;
        const int32_t moved = m->source[i] + ((step < 0) != (m->flips[i] != 0) ? -length : length);
        m->values[i] = (uint16_t)(literal ? extra : (uint32_t)((m->source[i] & 0x8000) | (moved & 0x7FFF)));
        bit += count;
    }
    return bit;
}

// Fill the values of a tile; returns the bit after its extra bits, -1 when there are too few.
static int64_t apply_tile(const moves *m, int64_t n, const maskreg_shared *shared, const cursor *c) {
    if (c->crowded) {
        // Reading may go on beyond the block, by as much as a tile may take.
        uint8_t room[LITERAL_BITS / 8 * TILE + 8];
        const int64_t first = c->bit >> 3, left = shared->block_bytes - first;
        const uint8_t *bits = shared->block + first;
        if (left < (int64_t)sizeof room) {
            memset(room, 0, sizeof room);
            memcpy(room, bits, (size_t)left);
            bits = room;
        }
        const int64_t end = 8 * first + apply_crowded(m, n, bits, c->bit & 7);
        return end <= c->bit_end ? end : -1;
    }
    uint16_t far[TILE + 64];
    apply_near(m, n);
    const int64_t count = find_far(m->tokens, n, far);
    int64_t bit = c->bit;
    FOR_EACH(f, count) {
        if (bit >= c->bit_end) return -1;
        bit = apply_one_far(m, far[f], shared, bit);
    }
    return bit <= c->bit_end ? bit : -1;
}

// As maskreg_decode_sub_blocks, of no more than ABREAST.
static int64_t decode_group(const uint16_t *source, int64_t n, int64_t position, const maskreg_shared *shared,
                            int64_t count, int64_t length, const int64_t *starts, const int64_t *sizes,
                            uint16_t *values) {
    tiles t;
    fill_orders(&t);
    int8_t flips[ABREAST][TILE + 64];
    uint8_t room[ABREAST][WORD_BYTES];
    cursor cursors[ABREAST];
    const int64_t cells =
        (shared->contexts.scaled ? SCALED_CLASSES : PLAIN_CLASSES) * (shared->contexts.rank ? SIZES : 1);
    FOR_EACH(k, count) {
        cursor *c = cursors + k;
        memcpy(t.states[k], shared->block + starts[k], sizeof t.states[k]);
        c->word = shared->block + starts[k] + sizeof t.states[k];
        c->word_end = c->word + 2 * sizes[2 * k];
        c->bit = 8 * (c->word_end - shared->block);
        c->bit_end = c->bit + sizes[2 * k + 1];
        c->crowded = 4 * sizes[2 * k + 1] >= CROWDED * length;
    }
    for (int64_t start = 0; start < least(length, n); start += TILE) {
        int64_t tokens[ABREAST], together = TILE;
        FOR_EACH(k, count) {
            const int64_t begin = k * length + start;
            tokens[k] = most(0, least(least(TILE, length - start), n - begin));
            together = least(together, tokens[k] / LANES * LANES);
            if (!tokens[k]) continue;
            classify(source + begin, tokens[k], position + begin, &shared->contexts, t.tables[k], flips[k]);
            look_up(t.tables[k], tokens[k], shared->table_of_cell, cells);
            const int64_t left = shared->block + shared->block_bytes - cursors[k].word;
            t.words[k] = cursors[k].word;
            if (left < WORD_BYTES) {
                memset(room[k], 0, WORD_BYTES);
                memcpy(room[k], cursors[k].word, (size_t)left);
                t.words[k] = room[k];
            }
        }
        decode_abreast(&t, shared->entries, count, together);
        FOR_EACH(k, count) {
            const int64_t begin = k * length + start, left = shared->block + shared->block_bytes - cursors[k].word;
            if (!tokens[k]) continue;
            // What the vectors left: the end of a tile, or what one sub-block has more of than another.
            decode_each(&t, shared->entries, k, together, tokens[k]);
            cursors[k].word += t.words[k] - (left < WORD_BYTES ? room[k] : cursors[k].word);
            if (cursors[k].word > cursors[k].word_end) return k + 1;
            const moves m = {source + begin, t.tokens[k], flips[k], values + begin};
            cursors[k].bit = apply_tile(&m, tokens[k], shared, cursors + k);
            if (cursors[k].bit < 0) return k + 1;
        }
    }
    FOR_EACH(k, count) {
        if (cursors[k].word != cursors[k].word_end || cursors[k].bit != cursors[k].bit_end) return k + 1;
        FOR_EACH(lane, LANES) if (t.states[k][lane] != LOWEST_STATE) return k + 1;
    }
    return 0;
}

int64_t maskreg_decode_sub_blocks(const uint16_t *source, int64_t n, int64_t position, const maskreg_shared *shared,
                                  int64_t count, int64_t length, const int64_t *starts, const int64_t *sizes,
                                  uint16_t *values) {
    for (int64_t k = 0; k < count; k += ABREAST) {
        const int64_t begin = k * length, group = least(ABREAST, count - k);
        const int64_t damaged = decode_group(source + begin, least(group * length, n - begin), position + begin, shared,
                                             group, length, starts + k, sizes + 2 * k, values + begin);
        if (damaged) return k + damaged;
    }
    return 0;
}
