// Packing the masked values of a few words of a mask into a contiguous vector, and spreading them again.
//
// Values are the bits of bf16 or fp32. Frozen values are never written, and no value is ever computed with, so that even
// the bits of a NaN survive.
#ifndef MASKREG_TILES_H
#define MASKREG_TILES_H

#include <stdint.h>

enum {
    WORD_BITS = 64,
    TILE_ENTRIES = 1024,  // masked coordinates of a tile at most, so that all about them stays in the first-level cache
    SPARE = 64,           // entries past the last that vector instructions may touch
};

// Words [begin, end) of a mask of `count` words, of which the last may go beyond the tensor.
typedef struct {
    const uint64_t *words;
    int64_t begin, end, count;
} masked_words;

// Pack masked values; `packed` has room for SPARE entries more.
void pack_16(const uint16_t *values, const masked_words *m, uint16_t *packed);
void pack_32(const uint32_t *values, const masked_words *m, float *packed);

// Spread values to the masked coordinates; SPARE entries past the last are read.
void spread_16(uint16_t *values, const masked_words *m, const uint16_t *packed);
void spread_32(uint32_t *values, const masked_words *m, const float *packed);

#endif
