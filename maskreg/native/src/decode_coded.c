// Decoding a coded block, from its bytes: maskreg/codec/subblocks.py defines what is computed.
//
//     scales, factors and tables from the model                              model.c
//     decoding tables, and column factors as vectors multiply them           contexts.c
//     where sub-blocks begin, from the directory
//     the sub-blocks                                                         decode.c
//
// All of it in one call, because small blocks take no longer than many calls would.
#include "codec.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(begin, size) (void)0
#define ASAN_UNPOISON_MEMORY_REGION(begin, size) (void)0
#endif

enum {
    STATE_BYTES = 4 * LANES,
    ENTRY_BYTES = 8,  // of the directory
    MOST_SUB_BLOCKS = 255,
    GAP = 64,  // bytes between arrays, which AddressSanitizer watches, and what arrays are aligned to
};

// Where arrays are in the scratch; a gap is behind each.
typedef struct {
    int64_t entries, freqs, bounds, of_cell, row_scales, column_scales, row_factors, column_factors, pairs, end;
} places;

static int64_t rows_of(const maskreg_coded *c) { return (c->column + c->n + c->width - 1) / c->width; }

// Take so many bytes from `*end` on; returns where they begin. `scratch` is NULL when they are only counted.
static int64_t take(uint8_t *scratch, int64_t *end, int64_t bytes) {
    const int64_t begin = *end, all = (bytes + GAP - 1) / GAP * GAP + GAP;
    if (scratch) ASAN_POISON_MEMORY_REGION(scratch + begin + bytes, (size_t)(all - bytes));
    *end += all;
    return begin;
}

static places places_of(const maskreg_coded *c, uint8_t *scratch) {
    const int64_t rows = c->scaled || c->rank ? rows_of(c) : 0, width = c->scaled || c->rank ? c->width : 0;
    places p = {0};
    p.entries = take(scratch, &p.end, c->tables * SLOTS * (int64_t)sizeof(uint32_t));
    p.freqs = take(scratch, &p.end, c->tables * TOKENS * (int64_t)sizeof(uint16_t));
    p.bounds = take(scratch, &p.end, (SIZES - 1) * (int64_t)sizeof(int16_t));
    p.of_cell = take(scratch, &p.end, CELLS);
    p.row_scales = take(scratch, &p.end, c->scaled * rows);
    p.column_scales = take(scratch, &p.end, c->scaled * width);
    p.row_factors = take(scratch, &p.end, c->rank * rows);
    p.column_factors = take(scratch, &p.end, c->rank * width);
    p.pairs = take(scratch, &p.end, (c->rank + 1) / 2 * 2 * width);
    return p;
}

int64_t maskreg_decode_room(const maskreg_coded *coded) { return places_of(coded, NULL).end; }

// Read the model into scratch; returns whether it is valid.
static int read_model(const maskreg_coded *c, const places *p, uint8_t *scratch, shared *own) {
    uint8_t *of_cell = scratch + p->of_cell;
    uint16_t *freqs = (uint16_t *)(void *)(scratch + p->freqs);
    uint32_t *entries = (uint32_t *)(void *)(scratch + p->entries);
    const maskreg_model model = {
        .rows = rows_of(c),
        .width = c->width,
        .scaled = (int32_t)c->scaled,
        .rank = (int32_t)c->rank,
        .cells = (c->scaled ? SCALED_CLASSES : PLAIN_CLASSES) * (c->rank ? SIZES : 1),
        .tables = c->tables,
        .row_scales = (int8_t *)(scratch + p->row_scales),
        .column_scales = (int8_t *)(scratch + p->column_scales),
        .row_factors = (int8_t *)(scratch + p->row_factors),
        .column_factors = (int8_t *)(scratch + p->column_factors),
        .bounds = (int16_t *)(void *)(scratch + p->bounds),
        .of_cell = of_cell,
        .freqs = freqs,
    };
    const int64_t bits = maskreg_unpack_model(c->block + c->model_start, c->model_bytes, &model);
    if (bits < 0 || (bits + 7) / 8 != c->model_bytes) return 0;
    memset(of_cell + model.cells, 0, (size_t)(CELLS - model.cells));
    maskreg_fill_decoding(freqs, c->tables, entries);
    maskreg_pair_factors(model.column_factors, c->rank, c->width, scratch + p->pairs);
    own->contexts = (maskreg_contexts){
        .width = c->width,
        .rows = model.rows,
        .base = (int32_t)c->base,
        .rank = model.rank,
        .scaled = model.scaled,
        .row_scales = model.row_scales,
        .column_scales = model.column_scales,
        .row_factors = model.row_factors,
        .column_factors = model.column_factors,
        .column_pairs = scratch + p->pairs,
        .bounds = model.bounds,
    };
    own->table_of_cell = of_cell;
    own->entries = entries;
    return 1;
}

static uint32_t number_at(const uint8_t *bytes) {
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

// Read the directory; returns 0 or what is wrong with it.
static int64_t read_directory(const maskreg_coded *c, int64_t *starts, int64_t *sizes) {
    const uint8_t *entry = c->block + c->model_start + c->model_bytes;
    int64_t start = c->model_start + c->model_bytes + ENTRY_BYTES * c->sub_blocks;
    if (start > c->bytes) return MASKREG_SHORT_DIRECTORY;
    FOR_EACH(k, c->sub_blocks) {
        starts[k] = start;
        sizes[2 * k] = number_at(entry + ENTRY_BYTES * k);
        sizes[2 * k + 1] = number_at(entry + ENTRY_BYTES * k + ENTRY_BYTES / 2);
        start += STATE_BYTES + 2 * sizes[2 * k] + (sizes[2 * k + 1] + 7) / 8;
    }
    return start == c->bytes ? 0 : MASKREG_BAD_DIRECTORY;
}

int64_t maskreg_decode_coded(const maskreg_coded *coded, const uint16_t *source, int64_t start, int64_t m,
                             uint8_t *scratch, uint16_t *values) {
    int64_t starts[MOST_SUB_BLOCKS], sizes[2 * MOST_SUB_BLOCKS];
    shared own = {.block = coded->block, .block_bytes = coded->bytes};
    const places p = places_of(coded, scratch);
    int64_t damaged = read_model(coded, &p, scratch, &own) ? read_directory(coded, starts, sizes) : MASKREG_BAD_MODEL;
    if (!damaged) {
        const int64_t first = start / coded->length, count = (m + coded->length - 1) / coded->length;
        damaged = decode_sub_blocks(source, m, coded->column + start, &own, count, coded->length, starts + first,
                                    sizes + 2 * first, values);
        if (damaged) damaged += first;
    }
    ASAN_UNPOISON_MEMORY_REGION(scratch, (size_t)p.end);
    return damaged;
}
