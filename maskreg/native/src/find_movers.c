// Finding the coordinates at which two sides of a block differ.
#include "bits.h"

enum {
    USUAL = 4,  // movers among WORD coordinates, or fewer: listed without a branch
    AHEAD = 1 << 12,  // coordinates that are fetched early
    SPAN = 1 << 12,  // coordinates that the first-level cache holds
};

// A bit for each of WORD coordinates that differ.
static inline uint64_t differing(const uint16_t *source, const uint16_t *target) {
#if defined(__AVX512BW__)
    const uint32_t low = _mm512_cmpneq_epi16_mask(_mm512_loadu_si512(source), _mm512_loadu_si512(target));
    const uint32_t high = _mm512_cmpneq_epi16_mask(_mm512_loadu_si512(source + 32), _mm512_loadu_si512(target + 32));
    return (uint64_t)high << 32 | low;
#elif defined(__AVX2__)
    const __m256i *from = (const __m256i *)source, *to = (const __m256i *)target;
    __m256i same[4];
    FOR_EACH(k, 4) same[k] = _mm256_cmpeq_epi16(_mm256_loadu_si256(from + k), _mm256_loadu_si256(to + k));
    // Packing works within each half of a vector.
    const __m256i low = _mm256_permute4x64_epi64(_mm256_packs_epi16(same[0], same[1]), 0xD8);
    const __m256i high = _mm256_permute4x64_epi64(_mm256_packs_epi16(same[2], same[3]), 0xD8);
    return ~((uint64_t)(uint32_t)_mm256_movemask_epi8(high) << 32 | (uint32_t)_mm256_movemask_epi8(low));
#else
    if (!memcmp(source, target, WORD * sizeof *source)) return 0;
    uint64_t bits = 0;
    FOR_EACH(i, WORD) bits |= (uint64_t)(source[i] != target[i]) << i;
    return bits;
#endif
}

int64_t maskreg_find_movers(const uint16_t *source, const uint16_t *target, int64_t n, const maskreg_movers *movers) {
    uint32_t *positions = movers->positions;
    int64_t count = 0, coded = 0, i = 0;
    for (; i + WORD <= n; i += WORD) {
        if (i % SPAN == 0)
            for (; coded < count; coded++) movers->codes[coded] = target[positions[coded]];
        FOR_EACH(k, 2) {
            __builtin_prefetch(source + i + AHEAD + 32 * k);
            __builtin_prefetch(target + i + AHEAD + 32 * k);
        }
        uint64_t bits = differing(source + i, target + i);
        const int64_t end = count + ones(bits);
        for (int64_t k = count; k < count + USUAL || k < end; k++) {
            // Beyond the last, the place does not matter.
            positions[k] = (uint32_t)(i + __builtin_ctzll(bits | (uint64_t)1 << (WORD - 1)));
            bits &= bits - 1;
        }
        count = end;
    }
    for (; i < n; i++) {
        positions[count] = (uint32_t)i;
        count += source[i] != target[i];
    }
    for (; coded < count; coded++) movers->codes[coded] = target[positions[coded]];
    return count;
}
