// The functions that Python calls. Lines that begin with # are left out when cffi reads this file.
//
// Arrays are C-contiguous and do not overlap unless said otherwise; numbers that say how long they are were checked by
// the caller. No function keeps state or allocates memory, so all can run on many threads.
#ifndef MASKREG_KERNELS_H
#define MASKREG_KERNELS_H
#include <stdint.h>

// Which instructions this machine has: 0 what every processor of its architecture has, 1 AVX2 and BMI2, 2 AVX-512
// as of Ice Lake and Zen 4.
int maskreg_level(void);

// Optimizers on the CPU: maskreg/train/optim/cpu_steps.py. Values are bits of bf16 or fp32, of 2 or 4 bytes; those that
// are not masked are never changed.

// The mask of a tensor.
typedef struct {
    int64_t count;          // of words: ceil(numel / 64)
    int64_t nnz;
    const uint64_t *words;  // [count]; bits of the last beyond the tensor's end are 0
    const int32_t *rank;    // [count], masked coordinates before each word
} maskreg_bits;

// The tensors of a step.
typedef struct {
    int64_t weight_bytes;
    int64_t gradient_bytes;
    void *weights;         // [numel]
    const void *gradient;  // [numel], unless it is packed
    const float *packed;   // [nnz], the gradient; or NULL
    float *master;         // [nnz]; or NULL, where weights are fp32
    float *first;          // [nnz], first moment
    float *second;         // [nnz], second moment
} maskreg_tensors;

// The numbers of a step of AdamW; AdamWFactors explains them.
typedef struct {
    float scale, keep, part1, beta2, part2, root, eps, size;
} maskreg_step;

// Ranges of words of several tensors. Threads that are given the same share the work.
typedef struct {
    int64_t count;        // of tensors
    int64_t words;        // of a range; the last of a tensor can have fewer
    const int64_t *ends;  // [count], ranges of a tensor and of all before it
    int64_t *next;        // [1], how many ranges are taken: 0 at first
} maskreg_ranges;

// A step of one tensor.
typedef struct {
    maskreg_step step;
    maskreg_tensors tensors;
    maskreg_bits mask;
} maskreg_update;

// Take steps; `updates` is [count].
void maskreg_take_steps(const maskreg_ranges *ranges, const maskreg_update *updates);

// Add masked values of words [begin, end) to `total`, [nnz].
void maskreg_accumulate_words(float *total, const void *gradient, int64_t bytes, const maskreg_bits *mask, int64_t begin,
                              int64_t end);

// Values of one tensor, `size` of them; the mask has no words where all count.
typedef struct {
    const void *values;
    int64_t bytes;
    int64_t size;
    maskreg_bits mask;
} maskreg_values;

// Sum of squares of each range: of the values that are masked, or of all. `values` is [count], `sums` as many as ranges.
void maskreg_sum_squares(const maskreg_ranges *ranges, const maskreg_values *values, double *sums);

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
    const uint8_t *column_pairs;   // [(rank + 1) / 2, width, 2], of maskreg_pair_factors
    const int16_t *bounds;         // [7]
} maskreg_contexts;

// Column factors of every two components side by side, as vectors multiply them.
void maskreg_pair_factors(const int8_t *factors, int64_t rank, int64_t width, uint8_t *pairs);

// Decoding tables: `freqs` is [tables, 64], each row sums to 4,096; `entries` is [tables * 4096].
void maskreg_fill_decoding(const uint16_t *freqs, int64_t tables, uint32_t *entries);

// A coded block, and what its header says, which was checked; maskreg/codec/layout.py has its bytes.
typedef struct {
    const uint8_t *block;  // [bytes]
    int64_t bytes;
    int64_t n;             // coordinates
    int64_t sub_blocks;    // at most 255
    int64_t length;        // coordinates of each but the last, which has the rest
    int64_t width;
    int64_t column;
    int64_t base;
    int64_t scaled;
    int64_t rank;
    int64_t tables;        // at most 32
    int64_t model_start;   // bytes of the block
    int64_t model_bytes;
} maskreg_coded;

// Bytes of scratch that decoding it needs.
int64_t maskreg_decode_room(const maskreg_coded *coded);

// What is damaged when a sub-block could not be read yet.
enum { MASKREG_BAD_MODEL = -3, MASKREG_SHORT_DIRECTORY, MASKREG_BAD_DIRECTORY };

// Decode `m` coordinates from `start` on, which is where a sub-block begins; they end where one ends. Returns 0, one of
// the above, or the number, from 1, of a sub-block that is damaged.
int64_t maskreg_decode_coded(const maskreg_coded *coded, const uint16_t *source, int64_t start, int64_t m,
                             uint8_t *scratch, uint16_t *values);

// Hazards of the coordinates of a block of which few move: maskreg/codec/movers.py.
typedef struct {
    const uint16_t *by_class;   // [16], at most 32,767
    const uint16_t *shares;     // [16], of movers that move by more than one ULP
    const uint16_t *longer;     // [29], by binade, of steps that go on
    const uint16_t *tops;       // [29], by binade, of steps that end with a top bit of 1
    const uint32_t *powers;     // [192]
    const int32_t *logarithms;  // [257]
    int64_t first;              // exponent of the first class
} maskreg_hazards;

// Coordinates of a block that move, ascending, and the codes that they become.
typedef struct {
    uint32_t *positions;
    uint16_t *codes;
} maskreg_movers;

// Find the movers of two sides of `n` codes, for all of which there is room, and 4 more; returns how many there are.
int64_t maskreg_find_movers(const uint16_t *source, const uint16_t *target, int64_t n, const maskreg_movers *movers);

// Decode `count` sub-blocks that follow each other, `length` coordinates each but the last, which has the rest of `n`.
// Sub-block k has the bytes from starts[k] to starts[k + 1] of the block: a state and whole words. There is room for as
// many movers as coordinates, or as 8 a byte if these are fewer. `before` are `befores` movers whose codes take the place
// of the source's. Returns how many there are, or minus the number, from 1, of a sub-block that is damaged.
int64_t maskreg_decode_movers(const uint16_t *source, int64_t n, const maskreg_hazards *hazards, const uint8_t *block,
                              int64_t count, int64_t length, const int64_t *starts, const maskreg_movers *before,
                              int64_t befores, const maskreg_movers *movers);

// What `m` movers of a source and, after them, `n` others move together. Returns how many there are.
int64_t maskreg_merge_movers(const uint16_t *source, const maskreg_movers *first, int64_t m, const maskreg_movers *last,
                             int64_t n, const maskreg_movers *merged);

// Code a block in sub-blocks of `length` coordinates; the last has the rest of `n`. Each has a state and words in `coded`,
// and sizes in bytes are filled. Returns -1 where `room` numbers are too few, else 0. `numbers` and `words`, [room], are
// scratch; of `coded` there are 8 bytes for each sub-block and 4 * room.
int64_t maskreg_encode_movers(const uint16_t *source, int64_t n, const maskreg_movers *movers, int64_t count,
                              const maskreg_hazards *hazards, int64_t length, uint64_t *numbers, uint32_t *words,
                              int64_t room, uint8_t *coded, int64_t *sizes);

// Choose the model of a sparse block, in which a coordinate moves: maskreg/codec/sparse.py. `counts` come from
// maskreg_count_movers. `logarithms` is [257], `costs` and `share_costs` are [2, 61], `steps` [61, 61]. `likely_longer`
// and `likely_top` are the indexes of binades that are not listed. Of `chosen`, the exponent of the first class is
// filled, the number of classes and of binades, and indexes: of hazards and shares [16], of longer and top shares [29].
// `bits` is how long it is to say where movers are.
void maskreg_choose_model(const int64_t *counts, const int32_t *logarithms, const int64_t *costs,
                          const int64_t *share_costs, const int64_t *steps, int64_t likely_longer, int64_t likely_top,
                          uint8_t *chosen, int64_t *bits);

// Count coordinates by exponent: all in tiles of 1,024 whose number is a multiple of `every`, all that move, and all that
// move by more than one ULP; and these by the binade in which they end, first all, then the ones with a top bit of 1.
// `counts` is [5, 256], added to.
void maskreg_count_movers(const uint16_t *source, int64_t n, int64_t every, const maskreg_movers *movers, int64_t count,
                          int64_t *counts);

// Count the movers of each row and of each column of a matrix; the block begins in column `column`. Counts are added to.
void maskreg_count_lines(const uint32_t *positions, int64_t count, int64_t width, int64_t column, int64_t *rows,
                         int64_t *columns);

// How much it saves to know how many movers each of `n` lines has, in 1 / 2^21 bits.
int64_t maskreg_gain_of_lines(const int64_t *movers, int64_t n, const int32_t *logarithms);

// Count the coordinates that differ in pieces of `length`, at most 65,535, of which one begins at each `stride`.
int64_t maskreg_count_differing(const uint16_t *source, const uint16_t *target, int64_t n, int64_t length, int64_t stride);

// Tokens of all coordinates, not flipped, and how many of each there are by exponent of the source, at a guess where
// there are 65,536 or more: `counts` is [256, 64], added to. `scratch` is [256, 64, 4].
void maskreg_tokens_of(const uint16_t *source, const uint16_t *target, int64_t n, uint8_t *tokens, int64_t *counts,
                       uint32_t *scratch);

// Keys of a span (cell << 6 | token): the cell of each coordinate, and its token, flipped where the cell says so; and
// how many there are of each: `counts` is [cells, 64], added to. `scratch` is [cells, 64, 4]. `tokens` can be the second
// half of `keys`; NULL for the tokens of keys that are there and not flipped.
void maskreg_classify_all(const uint16_t *source, int64_t n, int64_t position, const maskreg_contexts *contexts,
                          const uint8_t *tokens, uint16_t *keys, int64_t cells, int64_t *counts, uint32_t *scratch);

// Encoding tables: `freqs` is [tables, 64]; `slots`, [cells, 64], has for every token of a cell the first slot << 16 | the
// frequency, or 0.
void maskreg_fill_slots(const uint16_t *freqs, const uint8_t *of_cell, int64_t cells, uint32_t *slots);

// A block that is coded, and room for four of its sub-blocks; maskreg/codec/subblocks.py explains it.
typedef struct {
    const uint16_t *source;
    const uint16_t *target;
    uint16_t *keys;          // tokens that a table lacks are replaced by literals
    int64_t n;
    int64_t length;          // coordinates of each sub-block but the last, which has the rest
    const uint32_t *slots;   // by key
    const double *inverses;  // by frequency: see encode.c
    uint16_t *words;         // [4, words_room], 8 more than a sub-block has coordinates
    int64_t words_room;
    uint32_t *bits;          // [4, bits_room], 16 bits for each coordinate and 64 more
    int64_t bits_room;
} maskreg_coding;

// Code a block's sub-blocks: the directory and they themselves, as they are stored. Returns the bytes that they take;
// `out` has 8 more.
int64_t maskreg_encode_sub_blocks(const maskreg_coding *coding, uint8_t *out);

// Which cells share a table, and its frequencies: maskreg/codec/tables.py. `logs` are LOGS of
// tables.py, [4097].

// The exponent at which the best window of `classes` begins, and its bits; `counts` is [256, 64].
int64_t maskreg_plain_window(const int64_t *counts, int64_t classes, const double *logs, double *least_bits);

// Tables for at most 256 cells; returns how many there are, at most 32. `counts` is [cells, 64], integers that sum to
// less than 2^40, and becomes the counts of groups. `losses` [pairs + 64] and `members` [2, pairs + 64] are scratch for every
// two cells. `of_cell` [cells] and `freqs` [32, 64] are filled.
int64_t maskreg_build_tables(int64_t *counts, int64_t cells, int64_t wide, const double *logs, double *losses,
                             uint8_t *members, uint8_t *of_cell, uint16_t *freqs, double *bits);

// Contexts and tables of a block, to be packed or filled. Arrays of scales are there if `scaled`, of factors and bounds
// if `rank` is not 0.
typedef struct {
    int64_t rows;
    int64_t width;
    int32_t scaled;
    int32_t rank;            // at most 32
    int64_t cells;
    int64_t tables;
    int8_t *row_scales;      // [rows]
    int8_t *column_scales;   // [width]
    int8_t *row_factors;     // [rank, rows]
    int8_t *column_factors;  // [rank, width]
    int16_t *bounds;         // [7]
    uint8_t *of_cell;        // [cells]
    uint16_t *freqs;         // [tables, 64]
} maskreg_model;

// Bits that scales and factors take, with a Rice parameter for each line of them, at most 66. Tables are not read.
int64_t maskreg_side_bits(const maskreg_model *model);

// Pack a model; returns how many bits it took. `packed` has 8 bytes more than it takes.
int64_t maskreg_pack_model(const maskreg_model *model, uint8_t *packed);

// Fill the arrays of a model from `size` bytes; returns how many bits it took, or -1 when it is invalid.
int64_t maskreg_unpack_model(const uint8_t *packed, int64_t size, const maskreg_model *model);

// Fitting factors: maskreg/codec/factors.py.

// Octiles of the predictions of every `stride`-th row, by size: `bounds` is [7]. `counts` is [961 * rank + 1], of zeros.
void maskreg_size_bounds(const int8_t *row_factors, int64_t rows, const int8_t *column_factors, int64_t width,
                         int64_t rank, int64_t stride, int32_t *counts, int16_t *bounds);

// A block as rows of a matrix, of which the first and the last can be incomplete.
typedef struct {
    const uint16_t *source;  // [n]
    const uint8_t *tokens;   // [n]
    int64_t n;
    int64_t rows;
    int64_t width;
    int64_t column;  // of the first coordinate
} maskreg_matrix;

// Room for fitting factors to [rows, width].
typedef struct {
    int8_t *levels;      // [2 * rows + 2, width]
    int8_t *directions;  // [16, width]
    int8_t *across;      // [16, rows]
    int32_t *sums;       // [16, rows]
    int32_t *vectors;    // [16, width]
    int32_t *energies;   // [width]
} maskreg_fit_room;

// Factors of a block, with every `stride`-th row in the sample. `counts` is [256, 64]. Fills [rank, rows] and [rank, width],
// which have room for a rank of 16; returns the rank, 0 when none pays.
int64_t maskreg_fit_factors(const maskreg_matrix *matrix, const int64_t *counts, int64_t stride,
                            const maskreg_fit_room *room, int8_t *row_factors, int8_t *column_factors);

// Fitting scales: maskreg/codec/scales.py. Coordinates that moved, by row and by column.
void maskreg_count_moved(const uint8_t *tokens, int64_t n, int64_t rows, int64_t width, int64_t column,
                         int32_t *by_row, int32_t *by_column);

// Shifts of rows and of columns; `rates` is [94], `moved` is what maskreg_count_moved fills.
void maskreg_fit_rows(const uint16_t *source, int64_t n, int64_t rows, int64_t width, int64_t column, int32_t lowest,
                      const int16_t *rates, const int32_t *moved, int8_t *shifts);
void maskreg_fit_columns(const uint16_t *source, int64_t n, int64_t rows, int64_t width, int64_t column,
                         int32_t lowest, const int8_t *row_scales, const int16_t *rates, const int32_t *moved,
                         int8_t *shifts);

// Coordinates of a tensor, and whose random words they have; maskreg/mask/draw.py.
typedef struct {
    uint64_t seed;
    uint64_t tensor;          // stands for it
    int64_t first;            // a multiple of 4,096
    int64_t numel;
    const uint16_t *classes;  // [numel], or NULL when all are 0
} maskreg_span;

// Coordinates inside their windows, counted from the span's first, and their words.
typedef struct {
    int64_t room;
    int64_t *places;  // [room]
    uint32_t *words;  // [room]
} maskreg_hits;

// Four random words for each of `n` counters that follow each other: `words` is [4, n], a column for each.
void maskreg_philox(uint64_t key, uint64_t counter, uint64_t high, int64_t n, uint32_t *words);

// Packed bits of a span: 1 where the word lies below its class's border. `packed` has whole words of 64 bits.
void maskreg_mark_drawn(const maskreg_span *span, const uint32_t *low, uint8_t *packed);

// Count the words below `low`, by class where `kinds` is more than 1, and collect those from there up to `high`. `below`
// is [kinds], added to; `kinds` is at most 512. Returns how many are collected, or would be if there were room.
int64_t maskreg_scan_words(const maskreg_span *span, const uint32_t *low, const uint32_t *high, int64_t kinds,
                           int64_t *below, const maskreg_hits *hits);

// Second words of `n` coordinates, in any order.
void maskreg_second_words(uint64_t seed, uint64_t tensor, const int64_t *coordinates, int64_t n, uint32_t *seconds);

// Classes of bf16 codes: twice the exponent field, plus 1 where the mantissa is 0.
void maskreg_classify_codes(const uint16_t *codes, int64_t n, uint16_t *classes);

// Count coordinates by class, all and moved ones. `members` and `moved` are [kinds], added to; `kinds` is at most
// 512, and `n` less than 2^32.
void maskreg_count_classes(const uint16_t *classes, int64_t n, const uint8_t *packed, int64_t kinds, int64_t *members,
                           int64_t *moved);

// Count the 2x2 tables of two masks by class of the codes. `counts` is [512, 4], added to; `n` is less than 2^32.
void maskreg_count_cells(const uint16_t *codes, int64_t n, const uint8_t *a, const uint8_t *b, int64_t *counts);

// A span of a matrix, of which two masks are counted by row and column; maskreg/analysis/grid.py.
typedef struct {
    const uint16_t *codes;    // [n]; or NULL, where all coordinates are of one class
    const uint8_t *a;         // packed bits
    const uint8_t *b;
    int64_t n;                // coordinates
    int64_t start;            // the first, within the matrix
    int64_t width;            // of the matrix
    int64_t height_run;       // neighboring rows that are counted as one
    int64_t width_run;        // and columns
    const uint16_t *classes;  // [kinds], those that are counted, each once
    int64_t kinds;            // at most 16; 1 without codes
} maskreg_grid;

// Coordinates of other classes, in any order: there is room for n of them, and 64 more in `columns`.
typedef struct {
    uint32_t *rows;     // as counted; the first is the span's
    uint32_t *columns;  // of the matrix
    uint16_t *keys;     // 4 times the class, and the cell: neither, A only, B only, both
    int64_t count;      // filled
} maskreg_listed;

// Count 2x2 tables by class: `rows` is [rows of the span, kinds, 4] and `columns` [kinds, 4, columns], both added to.
void maskreg_count_grid(const maskreg_grid *grid, uint32_t *rows, uint32_t *columns, maskreg_listed *listed);

// Counts of some lines by class and cell; maskreg/analysis/grid.py.
typedef struct {
    void *const *counts;  // [kinds], of each class [4, length]
    int64_t kinds;
    int64_t length;       // lines
    int64_t bytes;        // of a count: 2, 4 or 8
} maskreg_lines;

// Add listed coordinates to the counts of their lines; 2^shift lines count as one. Counts are by class number:
// `kinds` is 512, and classes that are not listed can be NULL.
void maskreg_add_listed(const maskreg_lines *lines, const uint32_t *numbers, const uint16_t *keys, int64_t n,
                        int64_t shift);

// Weighted sums of every line: `weights` is [kinds, 4, m]; `sums` is [m, length], filled. m is a multiple of
// MASKREG_SUMS, up to MASKREG_MOST_SUMS.
enum { MASKREG_SUMS = 8, MASKREG_MOST_SUMS = 32 };
void maskreg_sum_lines(const maskreg_lines *lines, const double *weights, int64_t m, double *sums);

// Coordinates of a matrix by the numbers of their class, row and column; maskreg/analysis/margins.py.
typedef struct {
    const uint32_t *classes;  // [n]
    const uint32_t *rows;
    const uint32_t *columns;
    int64_t n;
} maskreg_points;

// How far each class, row and column raises the chance of its coordinates: a curve of the sum of all three.
typedef struct {
    const double *of_class;
    const double *of_row;
    const double *of_column;
    const double *curve;  // [steps + 1, 2], from `low` on: chances, and how much each rises to the next; linear between
    double low;
    double per_step;      // steps in a unit
    int64_t steps;
} maskreg_effects;

// Sum chances, and how much they rise by a step, over the points of each label, which are [n]: fills `chances` and
// `rises`, [count]. `room` is scratch, [count, 8].
void maskreg_sum_flips(const maskreg_points *points, const maskreg_effects *effects, const uint32_t *labels, int64_t count,
                       double *room, double *chances, double *rises);

// The chance of every point; `chances` is [n], filled.
void maskreg_find_flips(const maskreg_points *points, const maskreg_effects *effects, double *chances);

// Sum products of two values of every point by its row and by its column, both added to.
void maskreg_sum_products(const maskreg_points *points, const double *a, const double *b, double *by_row, double *by_column);

// Count codes by magnitude. `counts` is [32768], added to.
void maskreg_count_magnitudes(const uint16_t *codes, int64_t n, int64_t *counts);

// Count scores below 2^31 by their upper 16 bits; or, where `upper` is not negative, those with these upper bits by their
// lower 15. `counts` is [65536] or [32768], added to.
void maskreg_count_scores(const uint32_t *scores, int64_t n, int64_t upper, int64_t *counts);

// Packed bits of codes: 1 where the magnitude is below `border`, or the same among the first `ties` coordinates.
void maskreg_pack_smallest(const uint16_t *codes, int64_t n, int32_t border, int64_t ties, uint8_t *packed);

// Count the bits of two masks of `words` words of 64 bits: in A, in B, in both. `counts` is [3], filled.
void maskreg_count_both(const uint8_t *a, const uint8_t *b, int64_t words, int64_t *counts);

// Count the bits that are in both masks, which can be the same.
int64_t maskreg_count_overlap(const uint8_t *a, const uint8_t *b, int64_t words);

// Count coordinates by the number of masks that hold them, from 1 on. `count` is at most 255; `counts` is [count + 1],
// added to.
void maskreg_count_agreeing(const uint8_t *const *masks, int64_t count, int64_t words, int64_t *counts);

// Coordinates that are in so many of the masks or more; `count` is at most 65,535.
void maskreg_at_least(int64_t least_count, const uint8_t *const *masks, int64_t count, int64_t words, uint8_t *result);

// Add a span of a matrix, from its coordinate `start` on, to the counts of its rows and columns.
void maskreg_count_stripes(const uint8_t *packed, int64_t start, int64_t numel, int64_t width, int64_t *rows,
                           int64_t *columns);

// The mask of the coordinates in `count` spans of `length`, `stride` apart. `part` is filled with whole words; `before`
// and `inside` are [count], the bits before each span and in it. Returns how many bits the whole mask has.
int64_t maskreg_cut(const uint8_t *packed, int64_t words, int64_t first, int64_t stride, int64_t length, int64_t count,
                    uint8_t *part, int64_t *before, int64_t *inside);

// Add the squared differences of pairs of finite codes to `sums`, [16]: pair i to sum i mod 16, in order.
void maskreg_energy(const uint16_t *source, const uint16_t *target, int64_t n, double *sums);

// Compare codes: which coordinates moved under the exact rule, as packed bits; how many moved, how many differ and in how
// many a side is not finite, added to `counts`, [3]; and their energy, added to `sums` as above.
void maskreg_compare(const uint16_t *source, const uint16_t *target, int64_t n, uint8_t *packed, int64_t *counts,
                     double *sums);

// The same of movers, which take the place of codes: whether each moved under the exact rule, and their energy.
void maskreg_compare_movers(const maskreg_movers *movers, int64_t count, const uint16_t *replaced, uint8_t *moved,
                            double *sums);

// Replace values at places, of which none is there twice, in order, while they are what they are expected to be before.
// Returns how many were replaced: `n`, or fewer, where one of those that follow is another.
int64_t maskreg_exchange(uint16_t *values, const int32_t *places, const uint16_t *before, const uint16_t *after, int64_t n);

// Replace values at places, of which none is there twice, by those that are given, which become what was there.
void maskreg_swap(uint16_t *values, const uint32_t *places, uint16_t *given, int64_t n);

// Hash each leaf of a block of `n` codes with the movers' codes in it, of which `replaced`, [count], becomes what was there
// before. The last leaf has more than 120 codes. With `known`, hashes of leaves in which nothing moves stay as they are.
void maskreg_hash_after(const uint16_t *before, int64_t n, const maskreg_movers *movers, int64_t count, int64_t known,
                        uint8_t *hashes, uint16_t *replaced);
#endif
