// The functions that Python calls. Lines that begin with # are left out when cffi reads this file.
//
// Arrays are C-contiguous and do not overlap unless said otherwise; numbers that say how long they are were checked by
// the caller. No function keeps state or allocates memory, so all may run on many threads.
#ifndef MASKREG_KERNELS_H
#define MASKREG_KERNELS_H
#include <stdint.h>

// Which instructions this machine has: 0 those of every processor of its architecture, 1 AVX2 and BMI2, 2 AVX-512 as of
// Ice Lake and Zen 4.
int maskreg_level(void);

// What decides the cells of a block's coordinates; maskreg/codec/contexts.py explains them.
typedef struct {
    int64_t width;
    int64_t rows;
    int32_t base;
    int32_t rank;
    int32_t scaled;                // whether there are scales
    const int8_t *row_scales;      // [rows]
    const int8_t *column_scales;   // [width]
    const int8_t *row_factors;     // [rank, rows]
    const int8_t *column_factors;  // [rank, width]
    const int16_t *bounds;         // [7]
} maskreg_contexts;

// What all sub-blocks of a block decode with.
typedef struct {
    maskreg_contexts contexts;
    const uint8_t *table_of_cell;  // [256]
    const uint32_t *entries;       // [tables * 4096]
    const uint8_t *block;          // [block_bytes]
    int64_t block_bytes;           // with 8 spare bytes at the end
} maskreg_shared;

// Decoding tables: `freqs` is [tables, 64], each row sums to 4,096; `entries` is [tables * 4096].
void maskreg_fill_decoding(const uint16_t *freqs, int64_t tables, uint32_t *entries);

// Decode `count` sub-blocks that follow each other, `length` coordinates each but the last, which has the rest of `n`.
// `starts` are bytes of the block; `sizes` is [count, 2], words and extra bits of each. Returns 0, or the number, from
// 1, of a sub-block that is damaged.
int64_t maskreg_decode_sub_blocks(const uint16_t *source, int64_t n, int64_t position, const maskreg_shared *shared,
                                  int64_t count, int64_t length, const int64_t *starts, const int64_t *sizes,
                                  uint16_t *values);
#endif
