// Fitting factors from beginning to end: maskreg/codec/factors.py defines what is computed.
#include <math.h>

#include "fit.h"

enum { LARGE = 1 << 20, FIRST_ROUNDS = 1, ROUNDS = 2, SPARE = 3 };
static const double PROMISING = 0.5, FINENESS = 3.3, GAIN = 8.0, PRICE = 4.5;

// A subspace and its principal directions, strongest first.
typedef struct {
    int64_t k;
    const maskreg_fit_room *room;
    double rotation[COMPONENTS * COMPONENTS], powers[COMPONENTS];
} subspace;

// The smallest changes of level 1, 2 and 3, where `typical` has level 2.
static void level_bounds(int64_t typical, int16_t *bounds) {
    const int64_t fraction = typical & 7, unit = (8 + fraction) << 4;
    int64_t change = 0;
    // A change of level 1 is above half a unit of 1 / 4 of the typical one, and so on: 4 * units > 1, 3 and 5 of them.
    FOR_EACH(level, 3) {
        while (4 * ((8 + change % 8) << change / 8) < (2 * level + 1) * unit + (level != 1)) change++;
        bounds[level] = (int16_t)(change + typical - fraction - 32);
    }
}

// One round: directions closer to those in which most rows vary.
static void refine(subspace *s, const int8_t *levels, int64_t m, int64_t w) {
    const maskreg_fit_room *r = s->room;
    forward(levels, m, w, r->directions, s->k, r->sums);
    orthogonal(r->sums, s->k, m, r->across);
    backward(levels, m, w, r->across, s->k, r->vectors);
    orthogonal(r->vectors, s->k, w, r->directions);
}

// Fill rotation and powers, sums and the widened directions.
static void sort(subspace *s, const int8_t *levels, int64_t m, int64_t w) {
    const maskreg_fit_room *r = s->room;
    FOR_EACH(i, s->k * w) r->vectors[i] = r->directions[i];
    forward(levels, m, w, r->directions, s->k, r->sums);
    sort_subspace(r->vectors, w, r->sums, m, s->k, s->rotation, s->powers);
}

// Excess of other rows along the directions of a subspace that was sorted.
static void excess(const subspace *s, const int8_t *others, int64_t m, int64_t w, double *shares) {
    const maskreg_fit_room *r = s->room;
    forward(others, m, w, r->directions, s->k, r->sums);
    measure_excess(others, m, w, r->vectors, r->sums, s->k, s->rotation, r->energies, shares);
}

static int64_t quantize(const subspace *s, int64_t rank, int64_t m, int64_t w, int8_t *row_factors,
                        int8_t *column_factors) {
    const double rows = (double)m, width = (double)w;
    const double step = FINENESS * sqrt((rows + width) / (rows * width));
    double rotation[COMPONENTS * COMPONENTS], left[COMPONENTS], right[COMPONENTS];
    FOR_EACH(c, rank) {
        const double root = sqrt(s->powers[c]), strength = root > 1e-30 ? root : 1e-30;
        const double size = sqrt(strength / sqrt(rows * width));
        left[c] = size * sqrt(rows) / strength / step;
        right[c] = size * sqrt(width) / step;
        FOR_EACH(i, s->k) rotation[i * rank + c] = s->rotation[i * s->k + c];
    }
    quantize_factors(s->room->sums, s->k, m, rotation, rank, left, row_factors);
    quantize_factors(s->room->vectors, s->k, w, rotation, rank, right, column_factors);
    return rank;
}

// The share of the energy from which on a component is worth it.
static double needed_share(const int64_t *counts, int64_t lines) {
    int64_t moved = 0;
    FOR_EACH(exponent, EXPONENTS) FOR_EACH(token, TOKENS)
        moved += token == MIDDLE ? 0 : counts[exponent * TOKENS + token];
    return PRICE * (double)lines / (GAIN * (double)most(moved, 1));
}

int64_t maskreg_fit_factors(const maskreg_matrix *x, const int64_t *counts, int64_t stride,
                            const maskreg_fit_room *room, int8_t *row_factors, int8_t *column_factors) {
    const int64_t rows = x->rows, w = x->width, other = stride / 2;
    const int64_t m = (rows + stride - 1) / stride, m_others = (rows - other + stride - 1) / stride;
    subspace s = {.k = least(COMPONENTS, m), .room = room};
    int8_t *sample = room->levels, *others = sample + m * w, *whole = others + m_others * w;
    int16_t bounds[3];
    double shares[COMPONENTS];
    const double needed = needed_share(counts, rows + w);
    level_bounds(typical_change(counts), bounds);
    fill_levels(x->source, x->tokens, x->n, w, x->column, bounds, 0, stride, m, sample);
    fill_levels(x->source, x->tokens, x->n, w, x->column, bounds, other, stride, m_others, others);
    random_signs(s.k * w, room->directions);
    int64_t rounds = 0;
    if (rows * w >= LARGE) {
        double highest = -INFINITY;
        for (; rounds < FIRST_ROUNDS; rounds++) refine(&s, sample, m, w);
        sort(&s, sample, m, w);
        excess(&s, others, m_others, w, shares);
        FOR_EACH(c, s.k) highest = shares[c] > highest ? shares[c] : highest;
        if (highest <= PROMISING * needed) return 0;
    }
    for (; rounds < ROUNDS; rounds++) refine(&s, sample, m, w);
    sort(&s, sample, m, w);
    excess(&s, others, m_others, w, shares);
    int64_t rank = 0;
    FOR_EACH(c, s.k) rank += shares[c] > needed;
    if (!rank) return 0;
    // All rows, of which every other one is in a sample of one in two.
    if (stride == 2)
        FOR_EACH(row, rows) memcpy(whole + row * w, (row & 1 ? others : sample) + row / 2 * w, (size_t)w);
    else
        fill_levels(x->source, x->tokens, x->n, w, x->column, bounds, 0, 1, rows, whole);
    const int64_t kept = least(rank + SPARE, s.k);
    double rotation[COMPONENTS * COMPONENTS];
    FOR_EACH(i, s.k) FOR_EACH(c, kept) rotation[i * kept + c] = s.rotation[i * s.k + c];
    as_directions(room->vectors, s.k, w, rotation, kept, room->directions);
    s.k = kept;
    refine(&s, whole, rows, w);
    sort(&s, whole, rows, w);
    return quantize(&s, rank, rows, w, row_factors, column_factors);
}
