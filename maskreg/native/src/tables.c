// Which cells share a frequency table, and the frequencies: maskreg/codec/tables.py defines what is computed.
#include <math.h>

#include "costs.h"

#if defined(__AVX512DQ__)
#include <immintrin.h>
#endif

enum {
    MAX_TABLES = 32,
    RARE = 40000,
    RUN = 64,  // losses that are compared at a time
};

// Groups of cells; a group is known by its first cell, and gone when its total is 0.
typedef struct {
    const double *logs;
    int64_t *counts;  // [cells, 64]
    int64_t cells, used;
    int64_t totals[CELLS];
    uint64_t occurs[CELLS];  // a bit for each token
    double bits[CELLS];
} groups;

// Pairs of groups that can be merged. One that is no more has an infinite loss, and members that are gone.
typedef struct {
    double *losses;  // those beyond the last are infinite, up to a multiple of RUN
    uint8_t *left, *right;
    int64_t listed;
} pairs;

// Tokens from the first that occurs to the last.
static inline double listed(uint64_t occurs) {
    return (double)(TOKENS - __builtin_clzll(occurs) - __builtin_ctzll(occurs));
}

// sums[k] = counts[left[k]] + counts[right[k]]
static inline void add_counts(const int64_t *counts, const words *left, const words *right, numbers *sums) {
#if defined(__AVX512DQ__)
    // As in costs.c: the compiler must not know that all are gathered.
    __mmask8 all = 0xFF;
    __asm__("" : "+r"(all));
    const __m512i zero = _mm512_setzero_si512();
    const __m512i a = _mm512_mask_i64gather_epi64(zero, all, (__m512i)*left, counts, 8);
    const __m512i b = _mm512_mask_i64gather_epi64(zero, all, (__m512i)*right, counts, 8);
    *sums = (numbers)_mm512_cvtepi64_pd(_mm512_add_epi64(a, b));
#else
    FOR_EACH(k, SIDE_BY_SIDE) (*sums)[k] = (double)(counts[(*left)[k]] + counts[(*right)[k]]);
#endif
}

// Bits lost when the groups of pairs are merged: of those numbered `chosen`, or of the first `n`. Most groups have few
// tokens, and neighbors the same, so others are left out.
static void lose(const groups *g, pairs *p, const int32_t *chosen, int64_t n) {
    counted rows;
    double bits[SIDE_BY_SIDE];
    for (int64_t i = 0; i < n; i += SIDE_BY_SIDE) {
        words of_left, of_right;
        uint64_t occurs = 0;
        FOR_EACH(k, SIDE_BY_SIDE) {
            // Fewer pairs than there are columns: the others repeat the last, in vain.
            const int64_t at = least(i + k, n - 1), pair = chosen ? chosen[at] : at;
            const int64_t left = p->left[pair], right = p->right[pair];
            const uint64_t own = g->occurs[left] | g->occurs[right];
            of_left[k] = (uint64_t)left * TOKENS;
            of_right[k] = (uint64_t)right * TOKENS;
            rows.totals[k] = (double)(g->totals[left] + g->totals[right]);
            rows.listed[k] = listed(own);
            occurs |= own;
        }
        int64_t tokens = 0;
        for (; occurs; occurs &= occurs - 1, tokens++) {
            const int64_t *counts = g->counts + __builtin_ctzll(occurs);
            add_counts(counts, &of_left, &of_right, rows.counts + tokens);
        }
        bits_of(&rows, tokens, g->logs, bits);
        FOR_EACH(k, least(SIDE_BY_SIDE, n - i)) {
            const int64_t pair = chosen ? chosen[i + k] : i + k;
            p->losses[pair] = bits[k] - g->bits[p->left[pair]] - g->bits[p->right[pair]];
        }
    }
}

// The first pair with the lowest loss.
static int64_t best_of(const pairs *p) {
    double lowest = INFINITY;
    int64_t best = 0;
    for (int64_t begin = 0; begin < p->listed; begin += RUN) {
        numbers lows = (numbers){0} + INFINITY;
        double low = INFINITY;
        for (int64_t i = begin; i < begin + RUN; i += SIDE_BY_SIDE) {
            numbers losses;
            memcpy(&losses, p->losses + i, sizeof losses);
            const words lower = (words)(losses < lows);
            lows = (numbers)(((words)losses & lower) | ((words)lows & ~lower));
        }
        FOR_EACH(k, SIDE_BY_SIDE) low = lows[k] < low ? lows[k] : low;
        best = low < lowest ? begin : best;
        lowest = low < lowest ? low : lowest;
    }
    while (best + 1 < p->listed && p->losses[best] > lowest) best++;
    return best;
}

// Whether cells share an edge; those that share a corner alone would double the pairs and save nothing.
static int neighbors(int64_t left, int64_t right, int64_t wide) {
    const int64_t across = right % wide - left % wide;
    return right / wide - left / wide + most(across, -across) <= 1;
}

// List all pairs of groups, or of neighbors alone.
static void list_pairs(const groups *g, int64_t wide, int near, pairs *p) {
    p->listed = 0;
    FOR_EACH(left, g->cells) {
        if (!g->totals[left]) continue;
        const int64_t end = near ? least(g->cells, left + wide + 2) : g->cells;
        for (int64_t right = left + 1; right < end; right++) {
            if (!g->totals[right] || (near && !neighbors(left, right, wide))) continue;
            p->left[p->listed] = (uint8_t)left;
            p->right[p->listed++] = (uint8_t)right;
        }
    }
    lose(g, p, NULL, p->listed);
    FOR_EACH(i, RUN) p->losses[p->listed + i] = INFINITY;
    memset(p->left + p->listed, 0, RUN);
    memset(p->right + p->listed, 0, RUN);
}

static void unite(groups *g, int64_t left, int64_t right, double loss) {
    FOR_EACH(token, TOKENS) g->counts[left * TOKENS + token] += g->counts[right * TOKENS + token];
    g->bits[left] = g->bits[left] + g->bits[right] + loss;
    g->bits[right] = 0;
    g->occurs[left] |= g->occurs[right];
    g->totals[left] += g->totals[right];
    g->totals[right] = 0;
    g->used--;
}

// After a merge: pairs with either become pairs with `left`, the first one of each partner; the others are no more.
static void renew(const groups *g, uint8_t left, uint8_t right, pairs *p) {
    uint8_t done[CELLS] = {0}, marks[RUN];
    int32_t chosen[CELLS];
    int64_t changed = 0;
    done[left] = done[right] = 1;
    for (int64_t begin = 0; begin < p->listed; begin += RUN) {
        const uint8_t *of_left = p->left + begin, *of_right = p->right + begin;
        FOR_EACH(i, RUN)
            marks[i] = (of_left[i] == left) | (of_left[i] == right) | (of_right[i] == left) | (of_right[i] == right);
        for (int64_t i = 0; i < RUN; i += 8) {
            // Eight marks at once, of which the lowest set bit tells the first.
            uint64_t eight;
            memcpy(&eight, marks + i, 8);
            for (; eight; eight &= eight - 1) {
                const int64_t pair = begin + i + (__builtin_ctzll(eight) >> 3);
                if (pair >= p->listed) break;
                const uint8_t a = p->left[pair], partner = a == left || a == right ? p->right[pair] : a;
                if (done[partner]) {
                    p->losses[pair] = INFINITY;
                    p->left[pair] = p->right[pair] = right;
                    continue;
                }
                done[partner] = 1;
                p->left[pair] = left;
                p->right[pair] = partner;
                chosen[changed++] = (int32_t)pair;
            }
        }
    }
    lose(g, p, chosen, changed);
}

// Every cell that occurs is a group.
static void begin_groups(groups *g) {
    counted rows = {.totals = {0}};
    g->used = 0;
    for (int64_t first = 0; first < g->cells; first += SIDE_BY_SIDE) {
        const int64_t count = least(SIDE_BY_SIDE, g->cells - first);
        uint64_t occurs = 0;
        FOR_EACH(k, count) {
            const int64_t *counts = g->counts + (first + k) * TOKENS;
            uint64_t own = 0;
            int64_t total = 0;
            FOR_EACH(token, TOKENS) {
                own |= (uint64_t)(counts[token] > 0) << token;
                total += counts[token];
            }
            g->occurs[first + k] = own;
            g->totals[first + k] = total;
            g->used += total > 0;
            rows.totals[k] = (double)total;
            rows.listed[k] = own ? listed(own) : 0;
            occurs |= own;
        }
        int64_t tokens = 0;
        for (; occurs; occurs &= occurs - 1, tokens++)
            FOR_EACH(k, count) rows.counts[tokens][k] = (double)g->counts[(first + k) * TOKENS + __builtin_ctzll(occurs)];
        double bits[SIDE_BY_SIDE];
        bits_of(&rows, tokens, g->logs, bits);
        memcpy(g->bits + first, bits, (size_t)count * sizeof *bits);
    }
}

// Fill the group of each cell: -1 when it never occurs. Returns the bits of all.
static double merge(groups *g, int64_t wide, pairs *p, int32_t *group) {
    begin_groups(g);
    FOR_EACH(cell, g->cells) group[cell] = g->totals[cell] ? (int32_t)cell : -1;
    for (int near = 1; near >= 0; near--) {
        list_pairs(g, wide, near, p);
        while (p->listed) {
            const int64_t best = best_of(p);
            const double loss = p->losses[best];
            // Merging at a loss, to get down to the limit, waits until all pairs compete.
            if (!(loss < 0 || (loss < INFINITY && !near && g->used > MAX_TABLES))) break;
            const uint8_t left = p->left[best], right = p->right[best];
            unite(g, left, right, loss);
            FOR_EACH(cell, g->cells) group[cell] = group[cell] == right ? left : group[cell];
            renew(g, left, right, p);
        }
    }
    double sum = 0;
    FOR_EACH(cell, g->cells) sum += g->bits[cell];
    return sum;
}

// Fill the frequencies of a group's tokens, which sum to 4,096. Tokens that are too rare become literals; what is missing
// goes to the most frequent, and what is too much is taken from it, as long as it is that: a slot changes its cost least.
static void normalize(const int64_t *counts, int64_t total, uint16_t *freqs) {
    int64_t kept[TOKENS];
    memcpy(kept, counts, sizeof kept);
    FOR_EACH(token, TOKENS) {
        if (token == MIDDLE || token == LITERAL || counts[token] * RARE >= total) continue;
        kept[LITERAL] += kept[token];
        kept[token] = 0;
    }
    int64_t left = SLOTS, highest = 0;
    FOR_EACH(token, TOKENS) {
        // Rounded to the nearest. The quotient of integers below 2^53 never rounds up to the next integer.
        const int32_t freq = (int32_t)((double)(2 * SLOTS * kept[token] + total) / (double)(2 * total));
        freqs[token] = (uint16_t)(kept[token] ? most(freq, 1) : 0);
        left -= freqs[token];
        highest = freqs[token] > freqs[highest] ? token : highest;
    }
    for (; left < 0; left++) {
        FOR_EACH(token, TOKENS) highest = freqs[token] > freqs[highest] ? token : highest;
        freqs[highest]--;
    }
    freqs[highest] = (uint16_t)(freqs[highest] + left);
}

int64_t maskreg_build_tables(int64_t *counts, int64_t cells, int64_t wide, const double *logs, double *losses,
                             uint8_t *members, uint8_t *of_cell, uint16_t *freqs, double *bits) {
    int32_t group[CELLS];
    uint8_t numbers[CELLS], before = 0;
    groups g = {.logs = logs, .counts = counts, .cells = cells};
    pairs p = {.losses = losses, .left = members, .right = members + cells * (cells - 1) / 2 + RUN};
    *bits = merge(&g, wide, &p, group);
    int64_t used = 0;
    FOR_EACH(cell, cells) {
        if (group[cell] != cell) continue;
        normalize(counts + cell * TOKENS, g.totals[cell], freqs + used * TOKENS);
        numbers[cell] = (uint8_t)used++;
    }
    FOR_EACH(cell, cells) {
        // A cell that never occurs repeats the table before it, which costs one bit.
        before = group[cell] >= 0 ? numbers[group[cell]] : before;
        of_cell[cell] = before;
    }
    return used;
}
