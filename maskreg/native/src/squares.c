// Sums of squares in a fixed order: the squares of a coordinate go to one of 32 lanes, and words of four pieces take
// turns. Nine words A to I, of which the last can be incomplete, have the pieces A B, C D, E F and G H:
//
//     words       A C E G B D F H I
//     lane 0      A[0]^2 + A[32]^2 + C[0]^2 + C[32]^2 + E[0]^2 + ... + I[32]^2
//     sum         lane 0 + lane 1 + ...
//
// Four pieces of the values are read side by side: memory answers several streams of requests faster than one.
#include "packing.h"
#include "ranges.h"
#include "updates.h"

enum {
    PIECES = 4,
    LANES = 32,  // partial sums, so that additions do not wait for each other
    AHEAD = 4,   // words: how far ahead memory is asked, in each piece
};

// Words of values, of which those are masked whose bits are set.
typedef struct {
    const void *values;
    const uint64_t *mask;  // [count]; or NULL where all are masked
    int64_t count;
    uint64_t last;         // mask of the last word, which can be incomplete
} words;

INLINE uint64_t mask_at(const words *all, int64_t w) {
    return w + 1 == all->count ? all->last : all->mask ? all->mask[w] : ~(uint64_t)0;
}

// A word that is complete; 0 is added where nothing is masked.
INLINE void add_word(const words *all, int64_t bytes, int64_t w, double *restrict sums) {
    const uint64_t mask = mask_at(all, w);
    for (int64_t part = 0; part < WORD_BITS; part += LANES) {
        const uint32_t set = (uint32_t)(mask >> part);
        FOR_EACH(lane, LANES) {
            const uint32_t bits = bits_of(float_at(all->values, bytes, WORD_BITS * w + part + lane));
            const double value = float_of(bits & -(set >> lane & 1));
            sums[lane] += value * value;
        }
    }
}

INLINE void add_each(const words *all, int64_t bytes, int64_t w, double *restrict sums) {
    for (uint64_t mask = mask_at(all, w); mask; mask &= mask - 1) {
        const int64_t bit = __builtin_ctzll(mask);
        const double value = float_at(all->values, bytes, WORD_BITS * w + bit);
        sums[bit % LANES] += value * value;
    }
}

INLINE double sum_of_squares(const words *all, int64_t bytes, int dense) {
    const int64_t piece = (all->count - 1) / PIECES;  // words, without the last
    double sums[LANES] = {0}, total = 0;
    FOR_EACH(w, piece) {
        FOR_EACH(p, PIECES) {
            const int64_t own = p * piece + w;
            if (dense && own + AHEAD < all->count)
                fetch((const char *)all->values + (own + AHEAD) * WORD_BITS * bytes, WORD_BITS * bytes);
            if (dense) add_word(all, bytes, own, sums);
            else add_each(all, bytes, own, sums);
        }
    }
    for (int64_t w = PIECES * piece; w < all->count; w++) add_each(all, bytes, w, sums);
    FOR_EACH(lane, LANES) total += sums[lane];
    return total;
}

static double squares_of(const words *all, int64_t bytes, int dense) {
    if (bytes == BF16) return dense ? sum_of_squares(all, BF16, 1) : sum_of_squares(all, BF16, 0);
    return dense ? sum_of_squares(all, FP32, 1) : sum_of_squares(all, FP32, 0);
}

static double masked_squares(const maskreg_values *v, int64_t begin, int64_t end) {
    const char *own = (const char *)v->values + WORD_BITS * begin * v->bytes;
    const words all = {own, v->mask.words + begin, end - begin, v->mask.words[end - 1]};
    return squares_of(&all, v->bytes, is_dense(&v->mask, begin, end, v->bytes));
}

static double all_squares(const maskreg_values *v, int64_t begin, int64_t end) {
    const int64_t beyond = most(WORD_BITS * end - v->size, 0);  // coordinates that the last word lacks
    const char *own = (const char *)v->values + WORD_BITS * begin * v->bytes;
    const words all = {own, NULL, end - begin, ~(uint64_t)0 >> beyond};
    return squares_of(&all, v->bytes, HAS_VECTORS);
}

void maskreg_sum_squares(const maskreg_ranges *ranges, const maskreg_values *values, double *sums) {
    for (range own = {0}; take_range(ranges, &own);) {
        const maskreg_values *v = values + own.tensor;
        const int64_t end = least(own.end, WORDS_OF(v->size));
        sums[own.number] = (v->mask.words ? masked_squares : all_squares)(v, own.begin, end);
    }
}
