// Coding sub-blocks: maskreg/codec/subblocks.py and ulp_steps.py; FORMAT.md section 5.5 has every bit.
#include "tokens.h"

enum {
    FREQ_MASK = 0xFFFF,
    HIGHEST_BITS = 32 - TABLE_BITS,
    ABREAST = 4,      // sub-blocks that are coded side by side
    MAX_TABLES = 32,
    ENTRY_BYTES = 8,  // of the directory
};

// -- words: tokens are coded last to first, lane by lane --
//
//     slot = slots[key]                                    first slot << 16 | frequency; 0: the token becomes a literal
//     due = x >> 20 >= frequency                           the state would overflow
//     if due: put x & 0xFFFF before the words so far;  x >>= 16
//     x = x / frequency << 12 | x % frequency + first slot
//
// Instead of dividing, x is multiplied by an inverse: (1 + 2^-40) / frequency in float64. A quotient is below 2^20, so
// that the product is too large by at most 2^-20 and rounding, never too small, and the next whole number is at least
// 1 / 4096 away: the integer part is exact. Vectors of 512 bits compute inverses in float32 instead of gathering them:
// the quotient is then 1 too small at times, which the remainder tells.

typedef struct {
    uint16_t *keys;
    uint32_t *states;
    uint16_t *words;
    int64_t at;  // where the words so far begin
} span;

static void encode_each(span *s, const maskreg_coding *c, int64_t begin, int64_t end) {
    for (int64_t i = end - 1; i >= begin; i--) {
        uint32_t slot = c->slots[s->keys[i]], *state = s->states + (i & (LANES - 1));
        if (!slot) {
            s->keys[i] |= LITERAL;
            slot = c->slots[s->keys[i]];
        }
        const uint32_t freq = slot & FREQ_MASK;
        uint32_t x = *state;
        // No branch, as in decoding: the word is written in any case and kept when it is due.
        const int due = x >> HIGHEST_BITS >= freq;
        s->words[s->at - 1] = (uint16_t)x;
        s->at -= due;
        x = due ? x >> 16 : x;
        const uint32_t quotient = (uint32_t)(x * c->inverses[freq]);
        *state = (quotient << TABLE_BITS) + (x - quotient * freq) + (slot >> 16);
    }
}

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define HAS_VECTORS

typedef struct {
    __m512i x;
} vector_state;

static inline __attribute__((always_inline)) __m512i gathered(__m512i at, const uint32_t *from, __mmask16 lanes) {
    __asm__("" : "+r"(lanes));
    return _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), lanes, at, from, 4);
}

// Inverses of frequencies, too small by 2^-21 and at most 2^-23 more or less: a step of Newton's method takes the 14
// bits that the instruction gives to 28, and float32 rounds to 24.
static inline __attribute__((always_inline)) __m512 inverse(__m512i freq) {
    const __m512 f = _mm512_cvtepi32_ps(freq), near = _mm512_rcp14_ps(f);
    return _mm512_fmadd_ps(near, _mm512_fnmadd_ps(f, near, _mm512_set1_ps(1 - 0x1p-21f)), near);
}

static inline __attribute__((always_inline)) void encode_sixteen(span *s, const maskreg_coding *c, int64_t i,
                                                                 vector_state *state) {
    __m512i key = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(s->keys + i)));
    __m512i slot = gathered(key, c->slots, 0xFFFF), x = state->x;
    const __mmask16 missing = _mm512_testn_epi32_mask(slot, slot);
    if (missing) {
        key = _mm512_mask_or_epi32(key, missing, key, _mm512_set1_epi32(LITERAL));
        slot = _mm512_or_si512(slot, gathered(key, c->slots, missing));
        _mm256_storeu_si256((__m256i *)(s->keys + i), _mm512_cvtepi32_epi16(key));
    }
    const __m512i freq = _mm512_and_si512(slot, _mm512_set1_epi32(FREQ_MASK));
    const __mmask16 due = _mm512_cmpge_epu32_mask(_mm512_srli_epi32(x, HIGHEST_BITS), freq);
    const int count = __builtin_popcount(due);
    s->at -= count;
    _mm256_mask_storeu_epi16(s->words + s->at, (__mmask16)((1u << count) - 1),
                             _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(due, x)));
    x = _mm512_mask_srli_epi32(x, due, x, 16);
    // At most 3 / 4 below x / frequency, which is below 2^20.
    const __m512i quotient = _mm512_cvttps_epi32(_mm512_mul_ps(_mm512_cvtepu32_ps(x), inverse(freq)));
    const __m512i rest = _mm512_sub_epi32(x, _mm512_mullo_epi32(quotient, freq));
    const __mmask16 low = _mm512_cmpge_epi32_mask(rest, freq);
    // One more: 4,096 for the quotient, less a frequency for the remainder.
    const __m512i more = _mm512_sub_epi32(_mm512_set1_epi32(SLOTS), freq);
    x = _mm512_add_epi32(_mm512_slli_epi32(quotient, TABLE_BITS), _mm512_add_epi32(rest, _mm512_srli_epi32(slot, 16)));
    state->x = _mm512_mask_add_epi32(x, low, x, more);
}

#elif defined(__AVX2__)
#define HAS_VECTORS

typedef struct {
    __m256i x[2];
} vector_state;

static inline __attribute__((always_inline)) __m256i divided(__m256i x, __m256i freq, const double *inverses) {
    // Signed conversions alone are there: 2^31 is subtracted before and added after.
    const __m256i shifted = _mm256_xor_si256(x, _mm256_set1_epi32(INT32_MIN));
    const __m256d offset = _mm256_set1_pd(2147483648.0), ones = _mm256_castsi256_pd(_mm256_set1_epi64x(-1));
    const __m256d zero = _mm256_setzero_pd();
    const __m256d x0 = _mm256_add_pd(_mm256_cvtepi32_pd(_mm256_castsi256_si128(shifted)), offset);
    const __m256d x1 = _mm256_add_pd(_mm256_cvtepi32_pd(_mm256_extracti128_si256(shifted, 1)), offset);
    const __m256d by0 = _mm256_mask_i32gather_pd(zero, inverses, _mm256_castsi256_si128(freq), ones, 8);
    const __m256d by1 = _mm256_mask_i32gather_pd(zero, inverses, _mm256_extracti128_si256(freq, 1), ones, 8);
    const __m128i q0 = _mm256_cvttpd_epi32(_mm256_mul_pd(x0, by0)), q1 = _mm256_cvttpd_epi32(_mm256_mul_pd(x1, by1));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(q0), q1, 1);
}

static inline __attribute__((always_inline)) void encode_sixteen(span *s, const maskreg_coding *c, int64_t i,
                                                                 vector_state *state) {
    // The upper lanes' words come last, so they are written first.
    for (int half = 1; half >= 0; half--) {
        uint16_t *own = s->keys + i + 8 * half;
        const __m256i ones = _mm256_set1_epi32(-1), zero = _mm256_setzero_si256();
        __m256i key = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)own)), x = state->x[half];
        __m256i slot = _mm256_mask_i32gather_epi32(zero, (const int *)c->slots, key, ones, 4);
        const __m256i missing = _mm256_cmpeq_epi32(slot, zero);
        if (_mm256_movemask_epi8(missing)) {
            for (int lane = 0; lane < 8; lane++)
                if (!c->slots[own[lane]]) own[lane] |= LITERAL;
            key = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)own));
            slot = _mm256_mask_i32gather_epi32(zero, (const int *)c->slots, key, ones, 4);
        }
        const __m256i freq = _mm256_and_si256(slot, _mm256_set1_epi32(FREQ_MASK));
        // Both are below 2^20, so a signed comparison will do.
        const __m256i kept = _mm256_cmpgt_epi32(freq, _mm256_srli_epi32(x, HIGHEST_BITS));
        const uint32_t due = (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(kept)) ^ 0xFF;
        const int count = __builtin_popcount(due);
        // The due lanes' words go to the end of a vector that is stored before the words so far: what precedes them in
        // it is written over later.
        const uint64_t bytes = _pdep_u64(due, 0x0101010101010101ULL) * 0xFF;
        const uint64_t order = count ? _pext_u64(0x0706050403020100ULL, bytes) << (64 - 8 * count) : 0;
        const __m256i words = _mm256_permutevar8x32_epi32(x, _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)order)));
        const __m256i low = _mm256_and_si256(words, _mm256_set1_epi32(0xFFFF));
        const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x08);
        _mm_storeu_si128((__m128i *)(s->words + s->at - 8), _mm256_castsi256_si128(packed));
        s->at -= count;
        x = _mm256_blendv_epi8(_mm256_srli_epi32(x, 16), x, kept);
        const __m256i quotient = divided(x, freq, c->inverses);
        const __m256i rest = _mm256_sub_epi32(x, _mm256_mullo_epi32(quotient, freq));
        state->x[half] =
            _mm256_add_epi32(_mm256_slli_epi32(quotient, TABLE_BITS), _mm256_add_epi32(rest, _mm256_srli_epi32(slot, 16)));
    }
}
#endif

#ifdef HAS_VECTORS
// Tokens [begin, end), multiples of 16, of several spans side by side: see lanes.h.
static inline __attribute__((always_inline)) void encode_several(span *spans, const maskreg_coding *c, const int count,
                                                                 int64_t begin, int64_t end) {
    vector_state states[4];
#pragma GCC unroll 4
    for (int k = 0; k < count; k++) memcpy(states + k, spans[k].states, sizeof *states);
    for (int64_t i = end - LANES; i >= begin; i -= LANES) {
#pragma GCC unroll 4
        for (int k = 0; k < count; k++) {
            const int64_t ahead = i >= TILE ? k * c->length + i - TILE : 0;
            __builtin_prefetch(c->source + ahead, 0, 2);
            __builtin_prefetch(c->target + ahead, 0, 2);
            encode_sixteen(spans + k, c, i, states + k);
        }
    }
#pragma GCC unroll 4
    for (int k = 0; k < count; k++) memcpy(spans[k].states, states + k, sizeof *states);
}

static void encode_abreast(span *spans, const maskreg_coding *c, int64_t count, int64_t begin, int64_t end) {
    switch (count) {
        case 1: encode_several(spans, c, 1, begin, end); break;
        case 2: encode_several(spans, c, 2, begin, end); break;
        case 3: encode_several(spans, c, 3, begin, end); break;
        default: encode_several(spans, c, 4, begin, end);
    }
}
#else
static void encode_abreast(span *spans, const maskreg_coding *c, int64_t count, int64_t begin, int64_t end) {
    FOR_EACH(k, count) encode_each(spans + k, c, begin, end);
}
#endif

// -- extra bits --
//
// They come out in order, but tiles are coded last to first: so bits are put before those so far, as words are. Four
// tokens make a piece of up to 64 bits first, which does not wait for anything.

// Coordinates of a tile whose tokens have extra bits, and 3 more that have none.
typedef struct {
    uint16_t source[TILE + 64], target[TILE + 64], tokens[TILE + 64];
    int64_t count;
} far_ones;

static void find_far_ones(const uint16_t *source, const uint16_t *target, const uint16_t *keys, int64_t n, far_ones *f) {
    int64_t count = 0;
#if defined(__AVX512VBMI2__)
    for (int64_t i = 0; i < n; i += 32) {
        const __mmask32 own = n - i < 32 ? ((__mmask32)1 << (n - i)) - 1 : ~(__mmask32)0;
        const __m512i token = _mm512_and_si512(_mm512_maskz_loadu_epi16(own, keys + i), _mm512_set1_epi16(TOKENS - 1));
        // One comparison for both ends: what is below MIDDLE - NEAREST wraps around.
        const __m512i shifted = _mm512_sub_epi16(token, _mm512_set1_epi16(MIDDLE - NEAREST));
        const __mmask32 far = _mm512_mask_cmpgt_epu16_mask(own, shifted, _mm512_set1_epi16(2 * NEAREST));
        _mm512_storeu_si512(f->tokens + count, _mm512_maskz_compress_epi16(far, token));
        _mm512_storeu_si512(f->source + count, _mm512_maskz_compress_epi16(far, _mm512_maskz_loadu_epi16(own, source + i)));
        _mm512_storeu_si512(f->target + count, _mm512_maskz_compress_epi16(far, _mm512_maskz_loadu_epi16(own, target + i)));
        count += __builtin_popcount(far);
    }
#else
    uint8_t tokens[TILE + 64];
    uint16_t far[TILE + 64];
    FOR_EACH(i, n) tokens[i] = keys[i] & (TOKENS - 1);
    count = find_far(tokens, n, far);
    FOR_EACH(k, count) {
        f->tokens[k] = tokens[far[k]];
        f->source[k] = source[far[k]];
        f->target[k] = target[far[k]];
    }
#endif
    f->count = count;
}

// Extra bits of each token, and how many.
static void extra_of(const far_ones *f, uint32_t *restrict bits, uint32_t *restrict sizes) {
    FOR_EACH(k, f->count) {
        const int32_t token = f->tokens[k], step = (f->target[k] & 0x7FFF) - (f->source[k] & 0x7FFF);
        const uint32_t length = (uint32_t)(step < 0 ? -step : step);
        const int32_t size = (token < MIDDLE ? MIDDLE - token : token - MIDDLE) - FEWER_BITS;
        sizes[k] = (uint32_t)(size < LITERAL_BITS ? size : LITERAL_BITS);
        // Without the highest bit, which the token tells.
        const uint32_t near = (length - 1) & ((1u << sizes[k]) - 1);
        bits[k] = token == LITERAL ? f->target[k] : near;
    }
    FOR_EACH(k, 3) bits[f->count + k] = sizes[f->count + k] = 0;
}

// Bits are written from the end on, in words of 64.
typedef struct {
    uint8_t *before;   // the words so far
    uint64_t pending;  // bits that do not fill a word yet, at its top
    uint64_t filled;   // how many
} bit_writer;

// Put `size` bits before those so far, 1 to 64.
static inline void put_before(bit_writer *w, uint64_t bits, uint64_t size) {
    const uint64_t top = bits << (64 - size), filled = w->filled + size, pending = w->pending | top >> w->filled;
    // Written in any case, and kept when it is full. What did not fit is at the bottom of `bits`.
    memcpy(w->before - 8, &pending, sizeof pending);
    const uint64_t full = filled >> 6, rest = filled & 63;
    w->before -= 8 * full;
    w->pending = full ? bits << 1 << (63 - rest) : pending;
    w->pending = full && !rest ? 0 : w->pending;
    w->filled = rest;
}

// Extra bits of coordinates [begin, end) of sub-block k, a tile at most.
static void put_extra_bits(const maskreg_coding *c, int64_t k, int64_t begin, int64_t end, bit_writer *w) {
    const int64_t first = k * c->length + begin;
    far_ones far;
    uint32_t bits[TILE + 4], sizes[TILE + 4], lengths[TILE / 4 + 1];
    uint64_t pieces[TILE / 4 + 1];
    find_far_ones(c->source + first, c->target + first, c->keys + first, end - begin, &far);
    extra_of(&far, bits, sizes);
    const int64_t count = (far.count + 3) / 4;
    FOR_EACH(i, count) {
        const uint32_t *b = bits + 4 * i, *s = sizes + 4 * i, half = s[0] + s[1];
        const uint32_t low = b[0] | b[1] << s[0], high = b[2] | b[3] << s[2];
        pieces[i] = low | (uint64_t)high << half;
        lengths[i] = half + s[2] + s[3];
    }
    bit_writer own = *w;
    for (int64_t i = count - 1; i >= 0; i--) put_before(&own, pieces[i], lengths[i]);
    *w = own;
}

// Move the bits to `bits`, in whole words; returns how many they are.
static int64_t move_bits(const bit_writer *w, uint8_t *bits, const uint8_t *end) {
    const int64_t whole = (end - w->before) / 8, shift = (int64_t)(64 - w->filled) & 63;
    const uint8_t *from = w->filled ? w->before - 8 : w->before;
    const int64_t words = whole + (w->filled > 0);
    if (w->filled) memcpy(w->before - 8, &w->pending, sizeof w->pending);
    FOR_EACH(k, words) {
        uint64_t low, high = 0;
        memcpy(&low, from + 8 * k, sizeof low);
        if (k + 1 < words) memcpy(&high, from + 8 * (k + 1), sizeof high);
        low = low >> shift | high << 1 << (63 - shift);
        memcpy(bits + 8 * k, &low, sizeof low);
    }
    return 64 * whole + (int64_t)w->filled;
}

void maskreg_fill_slots(const uint16_t *freqs, const uint8_t *of_cell, int64_t cells, uint32_t *slots) {
    // The slots of each table, once it was needed: most cells share one.
    const uint32_t *filled[MAX_TABLES] = {NULL};
    FOR_EACH(cell, cells) {
        uint32_t *own = slots + cell * TOKENS;
        const int64_t table = of_cell[cell];
        if (filled[table]) {
            memcpy(own, filled[table], TOKENS * sizeof *own);
            continue;
        }
        uint32_t first = 0;
        FOR_EACH(token, TOKENS) {
            const uint32_t freq = freqs[table * TOKENS + token];
            own[token] = freq ? first << 16 | freq : 0;
            first += freq;
        }
        filled[table] = own;
    }
}

// Append bytes; returns where the next go.
static uint8_t *append(uint8_t *out, const void *bytes, int64_t size) {
    memcpy(out, bytes, (size_t)size);
    return out + size;
}

// Up to four sub-blocks, coded side by side. Their entries go to the directory; returns where the next begins.
static uint8_t *encode_group(const maskreg_coding *c, int64_t count, uint32_t *entries, uint8_t *out) {
    span spans[ABREAST];
    bit_writer writers[ABREAST];
    uint32_t states[ABREAST][LANES];
    const int64_t last = c->n - (count - 1) * c->length, together = last / TILE * TILE;
    FOR_EACH(k, count) {
        const int64_t own = k == count - 1 ? last : c->length;
        FOR_EACH(lane, LANES) states[k][lane] = LOWEST_STATE;
        spans[k] = (span){c->keys + k * c->length, states[k], c->words + k * c->words_room, c->words_room};
        writers[k] = (bit_writer){.before = (uint8_t *)(c->bits + (k + 1) * c->bits_room)};
        // From the end: lane by lane down to a multiple of 16, one sub-block down to where all go on, then all at once.
        for (int64_t end = own; end > together;) {
            const int64_t begin = (end - 1) / TILE * TILE, whole = end / LANES * LANES;
            encode_each(spans + k, c, whole, end);
            encode_abreast(spans + k, c, 1, begin, whole);
            put_extra_bits(c, k, begin, end, writers + k);
            end = begin;
        }
    }
    for (int64_t end = together; end > 0; end -= TILE) {
        encode_abreast(spans, c, count, end - TILE, end);
        FOR_EACH(k, count) put_extra_bits(c, k, end - TILE, end, writers + k);
    }
    FOR_EACH(k, count) {
        const int64_t words = c->words_room - spans[k].at;
        out = append(out, states[k], sizeof states[k]);
        out = append(out, spans[k].words + spans[k].at, 2 * words);
        const int64_t bits = move_bits(writers + k, out, (const uint8_t *)(c->bits + (k + 1) * c->bits_room));
        out += (bits + 7) / 8;
        entries[2 * k] = (uint32_t)words;
        entries[2 * k + 1] = (uint32_t)bits;
    }
    return out;
}

int64_t maskreg_encode_sub_blocks(const maskreg_coding *coding, uint8_t *out) {
    const int64_t count = (coding->n + coding->length - 1) / coding->length;
    uint8_t *entry = out, *end = out + ENTRY_BYTES * count;
    for (int64_t first = 0; first < count; first += ABREAST) {
        maskreg_coding own = *coding;
        uint32_t entries[2 * ABREAST];
        const int64_t begin = first * coding->length, abreast = least(ABREAST, count - first);
        own.source += begin, own.target += begin, own.keys += begin;
        own.n = least(abreast * coding->length, coding->n - begin);
        end = encode_group(&own, abreast, entries, end);
        entry = append(entry, entries, ENTRY_BYTES * abreast);
    }
    return end - out;
}
