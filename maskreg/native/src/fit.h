// The steps of fitting factors: maskreg/codec/factors.py defines what each computes.
//
// Levels are [m, w], within +-3; directions are [k, ...], within +-127; k is at most COMPONENTS; rotations are [k, r].
#ifndef MASKREG_FIT_H
#define MASKREG_FIT_H

#include "codec.h"

enum { COMPONENTS = 16 };

// Products with rows: sums = directions @ levels.T, [k, m]. And with columns: sums = directions @ levels, [k, w].
void forward(const int8_t *levels, int64_t m, int64_t w, const int8_t *directions, int64_t k, int32_t *sums);
void backward(const int8_t *levels, int64_t m, int64_t w, const int8_t *directions, int64_t k, int32_t *sums);

// Directions of rotation.T @ vectors, [r, n]; vectors are [k, n].
void as_directions(const int32_t *vectors, int64_t k, int64_t n, const double *rotation, int64_t r,
                   int8_t *directions);

// Orthogonal directions that span the same as vectors, both [k, n].
void orthogonal(const int32_t *vectors, int64_t k, int64_t n, int8_t *directions);

// `count` random numbers of -1 and 1: directions to begin with.
void random_signs(int64_t count, int8_t *signs);

// Principal directions of vectors, [k, w], whose products with the rows are `sums`, [k, m]: fills [k, k] and [k].
void sort_subspace(const int32_t *vectors, int64_t w, const int32_t *sums, int64_t m, int64_t k,
                   double *rotation, double *powers);

// Excess of other rows along directions, whose products with these rows are `sums`; `energies`, [w], is scratch.
void measure_excess(const int8_t *levels, int64_t m, int64_t w, const int32_t *vectors, const int32_t *sums, int64_t k,
                    const double *rotation, int32_t *energies, double *shares);

// rotation.T @ vectors, times a scale for each direction, [r], and rounded to factors, [r, n].
void quantize_factors(const int32_t *vectors, int64_t k, int64_t n, const double *rotation, int64_t r,
                      const double *scales, int8_t *factors);

// Median size of the changes that are counted in [256, 64].
int64_t typical_change(const int64_t *counts);

// Levels of the rows `first`, `first + stride`, ... of a block of n coordinates; `bounds` is [3], levels [rows, width].
void fill_levels(const uint16_t *source, const uint8_t *tokens, int64_t n, int64_t width, int64_t column,
                 const int16_t *bounds, int64_t first, int64_t stride, int64_t rows, int8_t *levels);

#endif
