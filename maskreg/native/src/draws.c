// Draws of coordinates by random words: maskreg/mask/philox.py and maskreg/mask/draw.py define what is computed.
//
//     for each tile of 4,096 coordinates:
//         its words, all at once
//         borders of its coordinates, by class
//         compare; pack or collect the few hits                            loops of their own, without branches
//
// The cipher multiplies 32 bits by 32 bits to 64. Vectors do that in the lower halves of lanes of 64 bits, and read no
// upper half: so a counter's words each live in such a lane, and upper halves can hold anything. The even and the odd
// counters of a block are two such vectors, merged at the end: (even & LOW) | odd << 32 is the words in order.
#include "bits.h"
#include "histogram.h"

enum { TILE = 4096, COLUMNS = TILE / 4, ROUNDS = 10 };

#define LOW 0xFFFFFFFFULL
#define SECOND (1ULL << 63)  // selects second words

#if defined(__AVX512F__)
typedef uint64_t lanes __attribute__((vector_size(64)));
#define PRODUCT(x, y) (lanes) _mm512_mul_epu32((__m512i)(x), (__m512i)(y))
#elif defined(__AVX2__)
typedef uint64_t lanes __attribute__((vector_size(32)));
#define PRODUCT(x, y) (lanes) _mm256_mul_epu32((__m256i)(x), (__m256i)(y))
#elif defined(__SSE2__)
#include <emmintrin.h>
typedef uint64_t lanes __attribute__((vector_size(16)));
#define PRODUCT(x, y) (lanes) _mm_mul_epu32((__m128i)(x), (__m128i)(y))
#else
typedef uint64_t lanes;
#define PRODUCT(x, y) (((x) & LOW) * (y))
#endif

enum { WIDTH = sizeof(lanes) / 8, BLOCK = 2 * WIDTH };

// Keys of the rounds.
typedef struct {
    uint64_t low[ROUNDS], high[ROUNDS];
} schedule;

static schedule schedule_of(uint64_t key) {
    schedule keys;
    FOR_EACH(round, ROUNDS) {
        keys.low[round] = (uint32_t)(key + (uint64_t)round * 0x9E3779B9);
        keys.high[round] = (uint32_t)((key >> 32) + (uint64_t)round * 0xBB67AE85);
    }
    return keys;
}

// Words of counters, in the lower halves.
static inline __attribute__((always_inline)) void cipher(const schedule *keys, lanes counter, uint64_t high,
                                                         lanes words[4]) {
    const lanes zero = {0}, by_left = zero + 0xD2511F53, by_right = zero + 0xCD9E8D57;
    lanes a = counter, b = counter >> 32, c = zero + high, d = zero + (high >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < ROUNDS; round++) {
        const lanes left = PRODUCT(a, by_left), right = PRODUCT(c, by_right);
        a = right >> 32 ^ b ^ (zero + keys->low[round]);
        b = right;
        c = left >> 32 ^ d ^ (zero + keys->high[round]);
        d = left;
    }
    words[0] = a, words[1] = b, words[2] = c, words[3] = d;
}

static void philox(const schedule *keys, uint64_t counter, uint64_t high, int64_t n, uint32_t *words) {
    uint64_t numbers[WIDTH];
    FOR_EACH(k, WIDTH) numbers[k] = 2 * (uint64_t)k;
    lanes even;
    memcpy(&even, numbers, sizeof even);
    even += counter;
    for (int64_t j = 0; j < n; j += BLOCK, even += BLOCK) {
        lanes of_even[4], of_odd[4];
        cipher(keys, even, high, of_even);
        cipher(keys, even + 1, high, of_odd);
        const size_t room = (size_t)least(BLOCK, n - j) * sizeof *words;
        FOR_EACH(row, 4) {
            const lanes merged = (of_even[row] & LOW) | of_odd[row] << 32;
            if (room == sizeof merged) memcpy(words + row * n + j, &merged, sizeof merged);
            else memcpy(words + row * n + j, &merged, room);
        }
    }
}

void maskreg_philox(uint64_t key, uint64_t counter, uint64_t high, int64_t n, uint32_t *words) {
    const schedule keys = schedule_of(key);
    philox(&keys, counter, high, n, words);
}

// Borders of coordinates; unchanged where there are no classes, so that one border holds for all.
static void look_up(const uint16_t *restrict classes, int64_t n, const uint32_t *restrict table,
                    uint32_t *restrict borders) {
    if (!classes) return;
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        uint64_t four;
        memcpy(&four, classes + i, sizeof four);
        borders[i] = table[four & 0xFFFF];
        borders[i + 1] = table[four >> 16 & 0xFFFF];
        borders[i + 2] = table[four >> 32 & 0xFFFF];
        borders[i + 3] = table[four >> 48];
    }
    for (; i < n; i++) borders[i] = table[classes[i]];
}

// Words have 31 bits: the lowest of 32 is left out.
static void mark_below(const uint32_t *restrict words, const uint32_t *restrict borders, int64_t n,
                       uint8_t *restrict marks) {
    FOR_EACH(i, n) marks[i] = words[i] >> 1 < borders[i];
}

static void mark_inside(const uint32_t *restrict words, const uint32_t *restrict lows, const uint32_t *restrict highs,
                        int64_t n, uint8_t *restrict marks) {
    FOR_EACH(i, n) marks[i] = (words[i] >> 1 >= lows[i]) & (words[i] >> 1 < highs[i]);
}

void maskreg_mark_drawn(const maskreg_span *span, const uint32_t *low, uint8_t *packed) {
    const schedule keys = schedule_of(span->seed);
    uint32_t words[TILE], borders[TILE];
    uint8_t marks[TILE];
    FOR_EACH(i, TILE) borders[i] = low[0];
    for (int64_t start = 0; start < span->numel; start += TILE) {
        const int64_t n = least(TILE, span->numel - start);
        philox(&keys, (uint64_t)(span->first + start) / 4, span->tensor, COLUMNS, words);
        look_up(span->classes ? span->classes + start : NULL, n, low, borders);
        mark_below(words, borders, n, marks);
        pack_marks(marks, n, packed + start / 8);
    }
}

// Append the marked coordinates to the hits, as far as they fit; returns how many there are then.
static int64_t collect(const uint32_t *words, const uint8_t *packed, int64_t n, int64_t start, int64_t inside,
                       const maskreg_hits *hits) {
    FOR_EACH(number, WORDS_OF(n)) {
        for (uint64_t rest = load_word(packed, number); rest; rest &= rest - 1, inside++) {
            const int64_t i = number * WORD + __builtin_ctzll(rest);
            if (inside >= hits->room) continue;
            hits->places[inside] = start + i;
            hits->words[inside] = words[i] >> 1;
        }
    }
    return inside;
}

int64_t maskreg_scan_words(const maskreg_span *span, const uint32_t *low, const uint32_t *high, int64_t kinds,
                           int64_t *below, const maskreg_hits *hits) {
    const schedule keys = schedule_of(span->seed);
    uint32_t words[TILE], lows[TILE], highs[TILE], tables[MAX_CLASSES][COUNTERS];
    uint8_t marks[TILE], packed[TILE / 8];
    int64_t inside = 0;
    memset(tables, 0, (size_t)kinds * sizeof *tables);
    FOR_EACH(i, TILE) lows[i] = low[0];
    FOR_EACH(i, TILE) highs[i] = high[0];
    for (int64_t start = 0; start < span->numel; start += TILE) {
        const int64_t n = least(TILE, span->numel - start);
        const uint16_t *classes = span->classes ? span->classes + start : NULL;
        philox(&keys, (uint64_t)(span->first + start) / 4, span->tensor, COLUMNS, words);
        look_up(classes, n, low, lows);
        look_up(classes, n, high, highs);
        mark_below(words, lows, n, marks);
        if (classes && kinds > 1) {
            count_marked(classes, marks, n, tables);
        } else {
            pack_marks(marks, n, packed);
            FOR_EACH(number, WORDS_OF(n)) below[0] += ones(load_word(packed, number));
        }
        mark_inside(words, lows, highs, n, marks);
        pack_marks(marks, n, packed);
        inside = collect(words, packed, n, start, inside, hits);
    }
    FOR_EACH(kind, kinds) below[kind] += sum_of(tables[kind]);
    return inside;
}

void maskreg_second_words(uint64_t seed, uint64_t tensor, const int64_t *coordinates, int64_t n, uint32_t *seconds) {
    const schedule keys = schedule_of(seed);
    for (int64_t start = 0; start < n; start += WIDTH) {
        const int64_t count = least(WIDTH, n - start);
        uint64_t numbers[WIDTH] = {0}, words[4][WIDTH];
        FOR_EACH(k, count) {
            const uint64_t i = (uint64_t)coordinates[start + k];
            numbers[k] = i / TILE * COLUMNS + i % COLUMNS + SECOND;
        }
        lanes counters, all[4];
        memcpy(&counters, numbers, sizeof counters);
        cipher(&keys, counters, tensor, all);
        memcpy(words, all, sizeof words);
        FOR_EACH(k, count) seconds[start + k] = (uint32_t)words[coordinates[start + k] % TILE / COLUMNS][k] >> 1;
    }
}
