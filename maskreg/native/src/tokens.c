// Tokens of coordinates, their keys, and how often each occurs: maskreg/codec/ulp_steps.py and subblocks.py.
#include "tokens.h"

#include "histogram.h"

enum {
    LONG = 1 << 16,    // coordinates from which on a sample is counted
    LONGER = 1 << 20,  // and from which on a smaller one
    FEW = 16,          // unless fewer than one in so many moved
};

// A token per coordinate. Size class = 13 + floor(log2(length - 1)).
#if defined(__AVX512VBMI__) && defined(__AVX512BW__)
// By two tables of 64 bytes: of the upper bits of length - 1, from 2^9 on, and of those from 2^3 on. The class of a
// larger length is larger, so it is the higher of both.
static const uint8_t UPPER_CLASSES[64] = {
    0, 22, 23, 23, 24, 24, 24, 24, 25, 25, 25, 25, 25, 25, 25, 25,
    26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26,
    27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27,
    27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27};
static const uint8_t LOWER_CLASSES[64] = {
    0, 0, 17, 17, 18, 18, 18, 18, 19, 19, 19, 19, 19, 19, 19, 19,
    20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20,
    21, 21, 21, 21, 21, 21, 21, 21, 21, 21, 21, 21, 21, 21, 21, 21,
    21, 21, 21, 21, 21, 21, 21, 21, 21, 21, 21, 21, 21, 21, 21, 21};

static void tokens_of_tile(const uint16_t *source, const uint16_t *target, int64_t n, uint8_t *tokens) {
    const __m512i upper = _mm512_loadu_si512(UPPER_CLASSES), lower = _mm512_loadu_si512(LOWER_CLASSES);
    const __m512i magnitude = _mm512_set1_epi16(0x7FFF), one = _mm512_set1_epi16(1), zero = _mm512_setzero_si512();
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), middle = _mm512_set1_epi8(MIDDLE);
    for (int64_t i = 0; i < n; i += 64) {
        FOR_EACH(line, 2) {
            __builtin_prefetch(source + i + TILE + 32 * line);
            __builtin_prefetch(target + i + TILE + 32 * line);
        }
        const __mmask64 own = n - i < 64 ? ((__mmask64)1 << (n - i)) - 1 : ~(__mmask64)0;
        const __m512i source0 = _mm512_maskz_loadu_epi16((__mmask32)own, source + i);
        const __m512i source1 = _mm512_maskz_loadu_epi16((__mmask32)(own >> 32), source + i + 32);
        const __m512i target0 = _mm512_maskz_loadu_epi16((__mmask32)own, target + i);
        const __m512i target1 = _mm512_maskz_loadu_epi16((__mmask32)(own >> 32), target + i + 32);
        const __m512i step0 = _mm512_sub_epi16(_mm512_and_si512(target0, magnitude), _mm512_and_si512(source0, magnitude));
        const __m512i step1 = _mm512_sub_epi16(_mm512_and_si512(target1, magnitude), _mm512_and_si512(source1, magnitude));
        const __m512i length0 = _mm512_abs_epi16(step0), length1 = _mm512_abs_epi16(step1);
        const __m512i far0 = _mm512_sub_epi16(length0, one), far1 = _mm512_sub_epi16(length1, one);
        // Packing ends at the borders of a byte, and takes turns with 16 bytes of each.
        const __m512i length = _mm512_packus_epi16(length0, length1);
        const __m512i high = _mm512_packus_epi16(_mm512_srli_epi16(far0, 9), _mm512_srli_epi16(far1, 9));
        const __m512i low = _mm512_packus_epi16(_mm512_srli_epi16(far0, 3), _mm512_srli_epi16(far1, 3));
        const __m512i class = _mm512_max_epu8(_mm512_permutexvar_epi8(high, upper), _mm512_permutexvar_epi8(low, lower));
        const __mmask64 near = _mm512_cmple_epu8_mask(length, _mm512_set1_epi8(NEAREST));
        const __m512i size = _mm512_mask_mov_epi8(class, near, length);
        const __mmask64 down = _mm512_movepi8_mask(_mm512_packs_epi16(step0, step1));
        const __mmask64 turned = _mm512_movepi8_mask(
            _mm512_packs_epi16(_mm512_xor_si512(source0, target0), _mm512_xor_si512(source1, target1)));
        const __m512i signed_size = _mm512_mask_sub_epi8(size, down, zero, size);
        const __m512i token = _mm512_mask_mov_epi8(_mm512_add_epi8(middle, signed_size), turned, _mm512_set1_epi8(LITERAL));
        _mm512_mask_storeu_epi8(tokens + i, own, _mm512_permutexvar_epi64(order, token));
    }
}
#else
// By comparisons: vectors of 16 bits have no count of leading zeros.
static void tokens_of_tile(const uint16_t *restrict source, const uint16_t *restrict target, int64_t n,
                           uint8_t *restrict tokens) {
    FOR_EACH(i, n) {
        const int16_t step = (int16_t)((target[i] & 0x7FFF) - (source[i] & 0x7FFF));
        const int16_t length = (int16_t)(step < 0 ? -step : step), far = (int16_t)(length - 1);
        const int16_t class =
            (int16_t)(NEAREST + 1 + (far >= 32) + (far >= 64) + (far >= 128) + (far >= 256) + (far >= 512) +
                      (far >= 1024) + (far >= 2048) + (far >= 4096) + (far >= 8192) + (far >= 16384));
        const int16_t size = length <= NEAREST ? length : class;
        const int16_t token = (int16_t)(MIDDLE + (step < 0 ? -size : size));
        tokens[i] = (uint8_t)((int16_t)(target[i] ^ source[i]) < 0 ? LITERAL : token);
    }
}
#endif

// Counters of exponents [low, high], and of 0, which zeros have; the others are neither cleared nor added up. While
// there were zeros alone, `high` is 0.
typedef struct {
    uint32_t (*counters)[COUNTERS];  // [256 * 64]
    int64_t low, high;
} rows_counted;

static void clear_rows(const rows_counted *r, int64_t begin, int64_t end) {
    if (begin < end) memset(r->counters + begin * TOKENS, 0, (size_t)((end - begin) * TOKENS) * sizeof *r->counters);
}

static void count_tokens(rows_counted *r, const uint16_t *restrict codes, const uint8_t *restrict tokens, int64_t n) {
    uint16_t keys[TILE], lowest = EXPONENTS, highest = 0;
    FOR_EACH(i, n) {
        const uint16_t exponent = (uint16_t)exponent_of(codes[i]), positive = exponent ? exponent : EXPONENTS;
        lowest = positive < lowest ? positive : lowest;
        highest = exponent > highest ? exponent : highest;
        keys[i] = (uint16_t)(((codes[i] >> 1) & 0xFF << 6) | tokens[i]);
    }
    const int64_t low = least(lowest, r->low), high = most(highest, r->high);
    clear_rows(r, low, r->high ? r->low : high + 1);
    if (r->high) clear_rows(r, r->high + 1, high + 1);
    r->low = low, r->high = high;
    count_keys(keys, n, r->counters);
}

// Whether a tile of a long span is in the sample: one in four, or in eight of a longer one, by a hash of its number,
// because tiles at equal distances can have the same columns of a matrix.
static int in_sample(int64_t tile, int64_t n) { return (uint32_t)tile * 2246822507u >> 29 < (n < LONGER ? 2 : 1); }

// How many were counted, and how many of these moved.
static int64_t sum_rows(const rows_counted *r, int64_t *moved) {
    int64_t all = 0, still = 0;
    for (int64_t row = 0; row <= r->high; row = row ? row + 1 : most(1, r->low)) {
        FOR_EACH(token, TOKENS) all += sum_of(r->counters[row * TOKENS + token]);
        still += sum_of(r->counters[row * TOKENS + MIDDLE]);
    }
    *moved = all - still;
    return all;
}

void maskreg_tokens_of(const uint16_t *source, const uint16_t *target, int64_t n, uint8_t *tokens, int64_t *counts,
                       uint32_t *scratch) {
    rows_counted r = {.counters = (uint32_t(*)[COUNTERS])scratch, .low = EXPONENTS, .high = 0};
    clear_rows(&r, 0, 1);
    for (int64_t start = 0; start < n; start += TILE) {
        const int64_t m = least(TILE, n - start);
        tokens_of_tile(source + start, target + start, m, tokens + start);
        if (n < LONG || in_sample(start / TILE, n)) count_tokens(&r, source + start, tokens + start, m);
    }
    int64_t all = n, moved;
    if (n >= LONG) {
        all = sum_rows(&r, &moved);
        // Each for as many as there are in all, unless few moved: then the rest is counted too.
        for (int64_t start = 0; FEW * moved < all && start < n; start += TILE)
            if (!in_sample(start / TILE, n)) count_tokens(&r, source + start, tokens + start, least(TILE, n - start));
        if (FEW * moved < all) all = n;
    }
    for (int64_t row = 0; row <= r.high; row = row ? row + 1 : most(1, r.low)) FOR_EACH(i, TOKENS) {
        const int64_t own = sum_of(r.counters[row * TOKENS + i]);
        counts[row * TOKENS + i] += all == n ? own : (own * n + all / 2) / all;
    }
}

// Cell and token, flipped where the cell says so. The tokens can lie where later keys will be.
static void make_keys(const uint8_t *restrict cells, const int8_t *restrict flips, const uint8_t *tokens, int64_t n,
                      uint16_t *keys) {
    FOR_EACH(i, n) {
        const int16_t step = (int16_t)(((tokens[i] - MIDDLE) ^ flips[i]) - flips[i]);
        // A literal has no direction.
        const int16_t token = tokens[i] == LITERAL ? LITERAL : (int16_t)(step + MIDDLE);
        keys[i] = (uint16_t)(cells[i] << 6 | token);
    }
}

void maskreg_classify_all(const uint16_t *source, int64_t n, int64_t position, const maskreg_contexts *contexts,
                          const uint8_t *tokens, uint16_t *keys, int64_t cells, int64_t *counts, uint32_t *scratch) {
    uint32_t(*counters)[COUNTERS] = (uint32_t(*)[COUNTERS])scratch;
    uint8_t own[TILE], here[TILE];
    int8_t flips[TILE];
    memset(counters, 0, (size_t)(cells * TOKENS) * sizeof *counters);
    for (int64_t start = 0; start < n; start += TILE) {
        const int64_t m = least(TILE, n - start);
        classify(source + start, m, position + start, contexts, own, flips);
        if (!tokens) FOR_EACH(i, m) here[i] = (uint8_t)(keys[start + i] & (TOKENS - 1));
        make_keys(own, flips, tokens ? tokens + start : here, m, keys + start);
        count_keys(keys + start, m, counters);
    }
    FOR_EACH(i, cells * TOKENS) counts[i] += sum_of(counters[i]);
}
