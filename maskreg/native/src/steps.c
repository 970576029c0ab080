// Steps of optimizers on a range of a mask's words: maskreg/train/optim/cpu_steps.py defines what is computed.
//
//     for each tile, of 16 to 128 words:
//         slopes = pack(gradient) * scale, or from the packed gradient
//         values = pack(weights), or their masters
//         update values by slopes and state                  loops over contiguous fp32, which become vectors
//         masters = values; spread(values) into the weights
//
// What is packed stays in the first-level cache from one loop to the next, so that memory is read and written once.
#include <math.h>

#include "loops.h"
#include "tiles.h"

enum {
    MOST_WORDS = 128,       // of a tile, where few coordinates are masked; where all are, it has 16
    ROOM = TILE_ENTRIES + SPARE,
    LANES = 8,              // partial sums, so that additions do not wait for each other
    SUM_WORDS = 128,        // whose squares are added to the partial sums from the first on
    BF16 = 2,               // bytes
    QUIET_NAN = 0x7FC0,     // bf16 that any NaN is rounded to
};

// Some words of a mask, and the entries that they have.
typedef struct {
    masked_words words;
    int64_t first, count;
} tile;

static inline uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// The tile that begins at a word: up to MOST_WORDS, but no more than TILE_ENTRIES.
static tile tile_at(const maskreg_bits *mask, int64_t begin, int64_t end) {
    for (int64_t words = MOST_WORDS;; words /= 2) {
        const int64_t stop = least(begin + words, end), first = mask->rank[begin];
        const int64_t last = stop < mask->count ? mask->rank[stop] : mask->nnz;
        if (last - first <= TILE_ENTRIES)
            return (tile){{mask->words, begin, stop, mask->count}, first, last - first};
    }
}

static void widen(const uint16_t *restrict codes, int64_t n, float *restrict values) {
    FOR_EACH(i, n) values[i] = float_of((uint32_t)codes[i] << 16);
}

static void scale_values(const float *restrict values, int64_t n, float scale, float *restrict out) {
    FOR_EACH(i, n) out[i] = values[i] * scale;
}

// The nearest bf16, to even on ties. Adding 0x7FFF carries into the upper half if the lower half exceeds a tie, 0x8000;
// adding the upper half's lowest bit too carries on the tie itself if that bit is odd: 0x3F808000 -> 0x3F80, but
// 0x3F818000 -> 0x3F82.
static inline uint32_t nearest(uint32_t wide) { return (wide + 0x7FFF + (wide >> 16 & 1)) >> 16; }

static inline int is_nan(uint32_t wide) { return (wide & 0x7FFFFFFF) > 0x7F800000; }

static void narrow(const float *restrict values, int64_t n, uint16_t *restrict codes) {
    FOR_EACH(i, n) {
        const uint32_t wide = bits_of(values[i]);
        codes[i] = (uint16_t)(is_nan(wide) ? QUIET_NAN : nearest(wide));
    }
}

// Masters, except where a code is not what its master rounds to: that weight was loaded, and counts.
static void take_masters(const float *restrict masters, const uint16_t *restrict codes, int64_t n,
                         float *restrict values) {
    FOR_EACH(i, n) {
        const uint32_t wide = bits_of(masters[i]), code = codes[i];
        // No weight is the rounding of a NaN.
        const int is_equal = nearest(wide) == code, is_its_rounding = is_equal & !is_nan(wide);
        values[i] = float_of(is_its_rounding ? wide : code << 16);
    }
}

static void pack_floats(const void *values, int64_t bytes, const tile *t, float *out) {
    uint16_t codes[ROOM];
    if (bytes == BF16) {
        pack_16(values, &t->words, codes);
        widen(codes, t->count, out);
    } else {
        pack_32(values, &t->words, out);
    }
}

static void load_slopes(const maskreg_tensors *tensors, const tile *t, float scale, float *slopes) {
    if (tensors->packed) {
        scale_values(tensors->packed + t->first, t->count, scale, slopes);
    } else {
        float unscaled[ROOM];
        pack_floats(tensors->gradient, tensors->gradient_bytes, t, unscaled);
        scale_values(unscaled, t->count, scale, slopes);
    }
}

static void load_values(const maskreg_tensors *tensors, const tile *t, float *values) {
    uint16_t codes[ROOM];
    if (tensors->master && tensors->weight_bytes == BF16) {
        pack_16(tensors->weights, &t->words, codes);
        take_masters(tensors->master + t->first, codes, t->count, values);
    } else {
        pack_floats(tensors->weights, tensors->weight_bytes, t, values);
    }
}

static void store_values(const maskreg_tensors *tensors, const tile *t, const float *values) {
    uint16_t codes[ROOM];
    if (tensors->master) memcpy(tensors->master + t->first, values, (size_t)t->count * sizeof *values);
    if (tensors->weight_bytes == BF16) {
        narrow(values, t->count, codes);
        spread_16(tensors->weights, &t->words, codes);
    } else {
        spread_32(tensors->weights, &t->words, values);
    }
}

static void update_adamw(float *restrict values, const float *restrict slopes, float *restrict exp_avg,
                         float *restrict exp_avg_sq, int64_t n, const maskreg_adamw *step) {
    const float keep = step->keep, part1 = step->part1, beta2 = step->beta2, part2 = step->part2;
    const float root = step->root, eps = step->eps, size = step->size;
    FOR_EACH(i, n) {
        const float slope = slopes[i], first = exp_avg[i] + part1 * (slope - exp_avg[i]);
        const float second = exp_avg_sq[i] * beta2 + part2 * slope * slope;
        exp_avg[i] = first;
        exp_avg_sq[i] = second;
        values[i] = values[i] * keep - size * first / (sqrtf(second) * root + eps);
    }
}

void maskreg_adamw_words(const maskreg_tensors *tensors, const maskreg_bits *mask, int64_t begin, int64_t end,
                         float *exp_avg, float *exp_avg_sq, const maskreg_adamw *step) {
    float slopes[ROOM], values[ROOM];
    for (int64_t at = begin; at < end;) {
        const tile t = tile_at(mask, at, end);
        at = t.words.end;
        if (!t.count) continue;
        load_slopes(tensors, &t, step->scale, slopes);
        load_values(tensors, &t, values);
        update_adamw(values, slopes, exp_avg + t.first, exp_avg_sq + t.first, t.count, step);
        store_values(tensors, &t, values);
    }
}

static void decay_weights(const float *restrict values, int64_t n, float decay, float *restrict slopes) {
    FOR_EACH(i, n) slopes[i] += decay * values[i];
}

static void update_plain(float *restrict values, const float *restrict slopes, int64_t n, float rate) {
    FOR_EACH(i, n) values[i] -= rate * slopes[i];
}

static void update_heavy(float *restrict values, const float *restrict slopes, float *restrict velocity, int64_t n,
                         float momentum, float rate) {
    FOR_EACH(i, n) {
        velocity[i] = velocity[i] * momentum + slopes[i];
        values[i] -= rate * velocity[i];
    }
}

static void update_nesterov(float *restrict values, const float *restrict slopes, float *restrict velocity, int64_t n,
                            float momentum, float rate) {
    FOR_EACH(i, n) {
        velocity[i] = velocity[i] * momentum + slopes[i];
        values[i] -= rate * (slopes[i] + momentum * velocity[i]);
    }
}

void maskreg_sgd_words(const maskreg_tensors *tensors, const maskreg_bits *mask, int64_t begin, int64_t end,
                       float *velocity, const maskreg_sgd *step) {
    float slopes[ROOM], values[ROOM];
    for (int64_t at = begin; at < end;) {
        const tile t = tile_at(mask, at, end);
        at = t.words.end;
        if (!t.count) continue;
        load_slopes(tensors, &t, step->scale, slopes);
        load_values(tensors, &t, values);
        // Adding 0 times a weight would change what is not finite.
        if (step->decay != 0) decay_weights(values, t.count, step->decay, slopes);
        if (!velocity) update_plain(values, slopes, t.count, step->rate);
        else if (step->nesterov) update_nesterov(values, slopes, velocity + t.first, t.count, step->momentum, step->rate);
        else update_heavy(values, slopes, velocity + t.first, t.count, step->momentum, step->rate);
        store_values(tensors, &t, values);
    }
}

static void add(const float *restrict values, int64_t n, float *restrict totals) {
    FOR_EACH(i, n) totals[i] += values[i];
}

void maskreg_accumulate_words(const void *gradient, int64_t bytes, const maskreg_bits *mask, int64_t begin, int64_t end,
                              float *total) {
    float slopes[ROOM];
    for (int64_t at = begin; at < end;) {
        const tile t = tile_at(mask, at, end);
        at = t.words.end;
        if (!t.count) continue;
        pack_floats(gradient, bytes, &t, slopes);
        add(slopes, t.count, total + t.first);
    }
}

// Add squares to the partial sums, in turn; `n` is a multiple of LANES.
static void add_squares(const float *restrict values, int64_t n, double *restrict sums) {
    double own[LANES];
    memcpy(own, sums, sizeof own);
    for (int64_t i = 0; i < n; i += LANES) {
        FOR_EACH(lane, LANES) own[lane] += (double)values[i + lane] * (double)values[i + lane];
    }
    memcpy(sums, own, sizeof own);
}

static double sum_of(const double *sums) {
    double sum = 0;
    FOR_EACH(lane, LANES) sum += sums[lane];
    return sum;
}

double maskreg_square_words(const void *gradient, int64_t bytes, const maskreg_bits *mask, int64_t begin, int64_t end) {
    float slopes[LANES + ROOM];
    double sums[LANES] = {0};
    for (int64_t at = begin; at < end;) {
        const int64_t stop = least(at + SUM_WORDS, end);
        int64_t left = 0;
        while (at < stop) {
            const tile t = tile_at(mask, at, stop);
            at = t.words.end;
            if (!t.count) continue;
            pack_floats(gradient, bytes, &t, slopes + left);
            const int64_t count = left + t.count, whole = count / LANES * LANES;
            add_squares(slopes, whole, sums);
            left = count - whole;
            FOR_EACH(i, left) slopes[i] = slopes[whole + i];
        }
        FOR_EACH(i, left) sums[0] += (double)slopes[i] * (double)slopes[i];
    }
    return sum_of(sums);
}

double maskreg_squares(const void *values, int64_t bytes, int64_t begin, int64_t end) {
    float floats[TILE_ENTRIES];
    double sums[LANES] = {0};
    for (int64_t at = begin; at < end; at += TILE_ENTRIES) {
        const int64_t count = least(TILE_ENTRIES, end - at), whole = count / LANES * LANES;
        if (bytes == BF16) widen((const uint16_t *)values + at, count, floats);
        const float *chunk = bytes == BF16 ? floats : (const float *)values + at;
        add_squares(chunk, whole, sums);
        for (int64_t i = whole; i < count; i++) sums[0] += (double)chunk[i] * (double)chunk[i];
    }
    return sum_of(sums);
}
