// How far classes, rows and columns move a mask: maskreg/analysis/margins.py.
#include "loops.h"

enum {
    SOME = 256,  // points at a time
    LANES = 4,   // sums of a line, so that a sum need not wait for the one before
};

// Chances of some points from `first` on, and how much they rise to the next value of the curve.
static void find_some(const maskreg_points *p, const maskreg_effects *e, int64_t first, int64_t n, double *restrict chances,
                      double *restrict rises) {
    const uint32_t *restrict classes = p->classes + first, *restrict rows = p->rows + first;
    const uint32_t *restrict columns = p->columns + first;
    const double *restrict of_class = e->of_class, *restrict of_row = e->of_row, *restrict of_column = e->of_column;
    const double *restrict curve = e->curve;
    const double low = e->low, per_step = e->per_step, end = (double)e->steps;
    double places[SOME];
    FOR_EACH(i, n) {
        const double place = (of_class[classes[i]] + of_row[rows[i]] + of_column[columns[i]] - low) * per_step;
        places[i] = place < 0 ? 0 : place < end ? place : end;
    }
    FOR_EACH(i, n) {
        const int32_t whole = (int32_t)places[i], at = whole - (whole == e->steps);
        const double below = curve[at], rise = curve[at + 1] - below;
        chances[i] = below + rise * (places[i] - at);
        rises[i] = rise;
    }
}

void maskreg_sum_flips(const maskreg_points *points, const maskreg_effects *effects, const uint32_t *labels, double *sums) {
    double chances[SOME], rises[SOME];
    for (int64_t first = 0; first < points->n; first += SOME) {
        const int64_t n = least(SOME, points->n - first);
        find_some(points, effects, first, n, chances, rises);
        FOR_EACH(i, n) {
            double *own = sums + 2 * (LANES * (int64_t)labels[first + i] + i % LANES);
            own[0] += chances[i];
            own[1] += rises[i];
        }
    }
}

void maskreg_find_flips(const maskreg_points *points, const maskreg_effects *effects, double *chances) {
    double rises[SOME];
    for (int64_t first = 0; first < points->n; first += SOME)
        find_some(points, effects, first, least(SOME, points->n - first), chances + first, rises);
}
