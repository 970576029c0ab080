// What the parts of the codec share. The format is described in maskreg/artifact/FORMAT.md, section 5.
#ifndef MASKREG_CODEC_H
#define MASKREG_CODEC_H

#include <stddef.h>

#include "loops.h"

enum {
    LANES = 16,       // coders of a sub-block, which take turns
    TABLE_BITS = 12,  // frequencies of a table sum to 1 << TABLE_BITS
    SLOTS = 1 << TABLE_BITS,
    SLOT_SHIFT = 7,  // an entry of a decoding table: token in 7 bits, slot in 12, frequency in 13
    FREQ_SHIFT = SLOT_SHIFT + TABLE_BITS,
    TOKEN_MASK = (1 << SLOT_SHIFT) - 1,
    TOKENS = 64,        // size of the alphabet
    MIDDLE = 32,        // token of a ULP step of 0
    NEAREST = 16,       // the longest ULP step without extra bits
    FARTHEST = 27,      // |v| of the longest size class
    FEWER_BITS = 13,    // a long ULP step has |v| minus this many extra bits
    LITERAL = 63,       // token of a code that is stored whole
    LITERAL_BITS = 16,  // its extra bits, and the most of any token
    LOWEST_STATE = 1 << 16,
    PLAIN_CLASSES = 16,
    SCALED_CLASSES = 32,
    SIZES = 8,    // size classes of predictions
    CELLS = 256,  // a cell's number is a byte
    EXPONENTS = 256,
    MAX_SCALE = 15,   // scales are within its plus and minus
    MAX_FACTOR = 31,  // likewise, factors
    TILE = 1024,  // coordinates processed at a time, so that all about them stays in the first-level cache
};

static inline uint32_t exponent_of(uint16_t code) { return code >> 7 & 0xFF; }

// Cells of `n <= TILE` coordinates, and which of their ULP steps are flipped: -1, else 0; `flips` can be NULL without factors.
// `position` is the first coordinate's, counted from the first column of the block's first row.
void classify(const uint16_t *codes, int64_t n, int64_t position, const maskreg_contexts *contexts, uint8_t *cells,
              int8_t *flips);

// What all sub-blocks of a block decode with.
typedef struct {
    maskreg_contexts contexts;
    const uint8_t *table_of_cell;  // [256]
    const uint32_t *entries;       // [tables * 4096]
    const uint8_t *block;          // [block_bytes]
    int64_t block_bytes;
} shared;

// Decode `count` sub-blocks that follow each other, `length` coordinates each but the last, which has the rest of `n`.
// `starts` are bytes of the block; `sizes` is [count, 2], words and extra bits of each. Returns 0, or the number, from
// 1, of a sub-block that is damaged.
int64_t decode_sub_blocks(const uint16_t *source, int64_t n, int64_t position, const shared *own, int64_t count,
                          int64_t length, const int64_t *starts, const int64_t *sizes, uint16_t *values);

#endif
