// How far classes, rows and columns move a mask: maskreg/analysis/margins.py.
#include "loops.h"

enum {
    SOME = 256,  // points at a time
    LANES = 4,   // sums of a line, so that a sum need not wait for the one before
};

// A chance, and how much it rises to the next value of the curve.
typedef double step __attribute__((vector_size(16), aligned(8)));

// Where some points from `first` on lie on the curve.
static void place_some(const maskreg_points *p, const maskreg_effects *e, int64_t first, int64_t n, double *restrict places) {
    const uint32_t *restrict classes = p->classes + first, *restrict rows = p->rows + first;
    const uint32_t *restrict columns = p->columns + first;
    const double *restrict of_class = e->of_class, *restrict of_row = e->of_row, *restrict of_column = e->of_column;
    const double low = e->low, per_step = e->per_step, end = (double)e->steps;
    FOR_EACH(i, n) {
        const double place = (of_class[classes[i]] + of_row[rows[i]] + of_column[columns[i]] - low) * per_step;
        places[i] = place < 0 ? 0 : place < end ? place : end;
    }
}

INLINE step find(const maskreg_effects *e, double place) {
    const int32_t at = (int32_t)place;
    step own = ((const step *)e->curve)[at];
    own[0] += own[1] * (place - at);
    return own;
}

void maskreg_sum_flips(const maskreg_points *points, const maskreg_effects *effects, const uint32_t *labels, int64_t count,
                       double *room, double *chances, double *rises) {
    double places[SOME];
    step *restrict sums = (step *)room;
    memset(room, 0, (size_t)(count * LANES) * sizeof *sums);
    for (int64_t first = 0; first < points->n; first += SOME) {
        const int64_t n = least(SOME, points->n - first);
        place_some(points, effects, first, n, places);
        FOR_EACH(i, n) sums[LANES * (int64_t)labels[first + i] + i % LANES] += find(effects, places[i]);
    }
    FOR_EACH(label, count) {
        const step *own = sums + LANES * label, sum = own[0] + own[1] + own[2] + own[3];
        chances[label] = sum[0];
        rises[label] = sum[1];
    }
}

void maskreg_find_flips(const maskreg_points *points, const maskreg_effects *effects, double *chances) {
    double places[SOME];
    for (int64_t first = 0; first < points->n; first += SOME) {
        const int64_t n = least(SOME, points->n - first);
        place_some(points, effects, first, n, places);
        FOR_EACH(i, n) chances[first + i] = find(effects, places[i])[0];
    }
}

void maskreg_sum_products(const maskreg_points *points, const double *a, const double *b, double *by_row, double *by_column) {
    FOR_EACH(i, points->n) {
        const double both = a[i] * b[i];
        by_row[points->rows[i]] += both;
        by_column[points->columns[i]] += both;
    }
}
