// Steps of AdamW on a range of a mask's words, as maskreg/train/optim/cpu_steps.py describes them.
//
// Where vectors help, three cursors follow each other through a block of words:
//
//     spread     words whose entries are updated           back into the weights
//     update     64 entries, once they are packed          loops over contiguous fp32, which become vectors
//     pack       one word of weights and gradient          into buffers that stay in the first-level cache
//
// They take turns, in this order, for two reasons. None loads what was stored just before: such a load waits until the
// store has reached the cache. And none works for long, so that the processor always has loads from memory under way
// while it computes; almost all of the time is spent on those.
#include "packing.h"
#include "ranges.h"
#include "updates.h"

enum {
    BLOCK = 64,         // words
    CHUNK = 64,         // entries that are updated at once
    AHEAD = 8,          // words: how far ahead memory is asked for weights and gradients
    STATE_AHEAD = 256,  // entries: likewise, for the state
};

// Masked values of a block, of bf16 or fp32.
typedef union {
    uint16_t codes[BLOCK * WORD_BITS + SPARE];
    float floats[BLOCK * WORD_BITS + SPARE];
} packed_values;

// Pack a word's values to entry `at`, and prefetch the values of a later word.
INLINE void pack_word(const void *values, int64_t bytes, const maskreg_bits *mask, int64_t w, packed_values *p,
                      int64_t at) {
    const char *own = (const char *)values + w * WORD_BITS * bytes;
    const int whole = w + 1 < mask->count;
    if (w + AHEAD < mask->count) fetch(own + AHEAD * WORD_BITS * bytes, WORD_BITS * bytes);
    if (bytes == BF16) pack_16((const uint16_t *)own, mask->words[w], whole, p->codes + at);
    else pack_32((const uint32_t *)own, mask->words[w], whole, p->floats + at);
}

INLINE void spread_word(void *values, int64_t bytes, const maskreg_bits *mask, int64_t w, const packed_values *p,
                        int64_t at) {
    char *own = (char *)values + w * WORD_BITS * bytes;
    const int whole = w + 1 < mask->count;
    if (bytes == BF16) spread_16((uint16_t *)own, mask->words[w], whole, p->codes + at);
    else spread_32((uint32_t *)own, mask->words[w], whole, p->floats + at);
}

// `n` entries from number `at` of a block on; the block's first is entry `base` of the tensor.
typedef struct {
    const packed_values *gradient;
    packed_values *weights;
    int64_t base, at, n;
} chunk;

// Ask for the state of a later chunk.
INLINE void fetch_state(const maskreg_tensors *t, int64_t nnz, int64_t entry) {
    const int64_t later = entry + STATE_AHEAD;
    if (later + CHUNK > nnz) return;
    fetch(t->first + later, CHUNK * sizeof(float));
    fetch(t->second + later, CHUNK * sizeof(float));
    if (t->master) fetch(t->master + later, CHUNK * sizeof(float));
}

static void load_slopes(const maskreg_tensors *t, const chunk *c, float scale, float *restrict slopes) {
    const uint16_t *codes = c->gradient->codes + c->at;
    const float *floats = t->packed ? t->packed + c->base + c->at : c->gradient->floats + c->at;
    if (!t->packed && t->gradient_bytes == BF16) {
        FOR_EACH(i, c->n) slopes[i] = widened(codes[i]) * scale;
    } else {
        FOR_EACH(i, c->n) slopes[i] = floats[i] * scale;
    }
}

INLINE void update_entries(int64_t bytes, const maskreg_step *s, const maskreg_tensors *t, const chunk *c,
                           const float *restrict slopes, int64_t n) {
    const int64_t entry = c->base + c->at;
    float *restrict values = c->weights->floats + c->at, *restrict master = t->master;
    float *restrict first = t->first, *restrict second = t->second;
    uint16_t *restrict codes = c->weights->codes + c->at;
    FOR_EACH(i, n) {
        float m = first[entry + i], v = second[entry + i];
        float value = bytes == BF16 ? value_of(codes[i], master[entry + i]) : values[i];
        value = updated(s, value, slopes[i], &m, &v);
        first[entry + i] = m;
        second[entry + i] = v;
        if (bytes == BF16) master[entry + i] = value;
        if (bytes == BF16) codes[i] = narrowed(value);
        else values[i] = value;
    }
}

INLINE void update_chunk(const maskreg_step *step, const maskreg_tensors *t, const chunk *c) {
    _Alignas(64) float slopes[CHUNK];
    const maskreg_step s = *step;
    load_slopes(t, c, s.scale, slopes);
    // Whole chunks apart, because the length of their loops is known.
    if (t->weight_bytes == BF16 && c->n == CHUNK) update_entries(BF16, &s, t, c, slopes, CHUNK);
    else if (t->weight_bytes == BF16) update_entries(BF16, &s, t, c, slopes, c->n);
    else if (c->n == CHUNK) update_entries(FP32, &s, t, c, slopes, CHUNK);
    else update_entries(FP32, &s, t, c, slopes, c->n);
}

INLINE void step_block(const maskreg_step *s, const maskreg_tensors *t, const maskreg_bits *mask, int64_t begin,
                       int64_t end) {
    packed_values gradient, weights;
    const int64_t base = mask->rank[begin];
    int64_t spread = begin, packed = 0;
    chunk c = {&gradient, &weights, base, 0, CHUNK};
    for (int64_t w = begin; w < end; w++) {
        for (; spread < w && mask->rank[spread + 1] - base <= c.at; spread++)
            spread_word(t->weights, t->weight_bytes, mask, spread, &weights, mask->rank[spread] - base);
        if (packed - c.at >= CHUNK) {
            fetch_state(t, mask->nnz, base + c.at);
            update_chunk(s, t, &c);
            c.at += CHUNK;
        }
        if (!t->packed) pack_word(t->gradient, t->gradient_bytes, mask, w, &gradient, packed);
        pack_word(t->weights, t->weight_bytes, mask, w, &weights, packed);
        packed += ones(mask->words[w]);
    }
    for (; c.at < packed; c.at += c.n) {
        c.n = least(CHUNK, packed - c.at);
        update_chunk(s, t, &c);
    }
    for (; spread < end; spread++)
        spread_word(t->weights, t->weight_bytes, mask, spread, &weights, mask->rank[spread] - base);
}

// Each masked coordinate by itself, where it lies.
INLINE void step_each(int64_t bytes, const maskreg_step *step, const maskreg_tensors *tensors, const maskreg_bits *mask,
                      int64_t begin, int64_t end) {
    const maskreg_step s = *step;
    const maskreg_tensors t = *tensors;
    int64_t entry = mask->rank[begin];
    for (int64_t w = begin; w < end; w++) {
        for (uint64_t word = mask->words[w]; word; word &= word - 1, entry++) {
            const int64_t i = WORD_BITS * w + __builtin_ctzll(word);
            const float slope = t.packed ? t.packed[entry] : float_at(t.gradient, t.gradient_bytes, i);
            float *floats = t.weights;
            uint16_t *codes = t.weights;
            float m = t.first[entry], v = t.second[entry];
            float value = bytes == BF16 ? value_of(codes[i], t.master[entry]) : floats[i];
            value = updated(&s, value, slope * s.scale, &m, &v);
            t.first[entry] = m;
            t.second[entry] = v;
            if (bytes == BF16) t.master[entry] = value;
            if (bytes == BF16) codes[i] = narrowed(value);
            else floats[i] = value;
        }
    }
}

static void step_words(const maskreg_step *s, const maskreg_tensors *t, const maskreg_bits *mask, int64_t begin,
                       int64_t end) {
    for (int64_t at = begin, stop; at < end; at = stop) {
        stop = least(at + BLOCK, end);
        if (is_dense(mask, at, stop, t->weight_bytes)) step_block(s, t, mask, at, stop);
        else if (t->weight_bytes == BF16) step_each(BF16, s, t, mask, at, stop);
        else step_each(FP32, s, t, mask, at, stop);
    }
}

void maskreg_take_steps(const maskreg_ranges *ranges, const maskreg_update *updates) {
    for (range own = {0}; take_range(ranges, &own);) {
        const maskreg_update *u = updates + own.tensor;
        step_words(&u->step, &u->tensors, &u->mask, own.begin, least(own.end, u->mask.count));
    }
}

static void add_block(const void *gradient, int64_t bytes, const maskreg_bits *mask, int64_t begin, int64_t end,
                      float *restrict total) {
    packed_values packed;
    int64_t count = 0;
    for (int64_t w = begin; w < end; count += ones(mask->words[w++]))
        pack_word(gradient, bytes, mask, w, &packed, count);
    if (bytes == BF16) FOR_EACH(i, count) total[i] += widened(packed.codes[i]);
    else FOR_EACH(i, count) total[i] += packed.floats[i];
}

static void add_each(const void *gradient, int64_t bytes, const maskreg_bits *mask, int64_t begin, int64_t end,
                     float *total) {
    for (int64_t w = begin; w < end; w++)
        for (uint64_t word = mask->words[w]; word; word &= word - 1)
            *total++ += float_at(gradient, bytes, WORD_BITS * w + __builtin_ctzll(word));
}

void maskreg_accumulate_words(float *total, const void *gradient, int64_t bytes, const maskreg_bits *mask, int64_t begin,
                              int64_t end) {
    for (int64_t at = begin, stop; at < end; at = stop) {
        stop = least(at + BLOCK, end);
        const int dense = is_dense(mask, at, stop, bytes);
        (dense ? add_block : add_each)(gradient, bytes, mask, at, stop, total + mask->rank[at]);
    }
}
