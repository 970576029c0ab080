// Small matrices of subspace iteration: maskreg/codec/factors.py says what for.
//
// Sums of floats are in one order on every processor; sums of integers are exact in any.
#include <math.h>

#include "fit.h"

typedef double square[COMPONENTS][COMPONENTS];

// Vectors of 64-bit integers, and the products of 32-bit ones in them.
#if defined(__AVX512F__)
#include <immintrin.h>
typedef __m512i longs;
enum { VECTOR = 64 };
static inline longs add_products(longs sums, longs a, longs b) { return _mm512_add_epi64(sums, _mm512_mul_epi32(a, b)); }
#elif defined(__AVX2__)
#include <immintrin.h>
typedef __m256i longs;
enum { VECTOR = 32 };
static inline longs add_products(longs sums, longs a, longs b) { return _mm256_add_epi64(sums, _mm256_mul_epi32(a, b)); }
#else
typedef int64_t longs;
enum { VECTOR = 16 };
static inline longs add_products(longs sums, longs a, longs b) { return sums + a * b; }
#endif

typedef float floats __attribute__((vector_size(VECTOR)));

enum { PARTS = 8, FLOATS = VECTOR / 4, COLUMNS = PARTS * FLOATS };

// A loop whose count is known: without it, what it fills would stay in memory.
#define UNROLLED(i, n) _Pragma("GCC unroll 8") for (int i = 0; i < (n); i++)

// To the nearest integer, halves to the even one: at 1.5 * 2^23 floats are 1 apart.
static inline float rounded(float value) { return (value + 12582912.0f) - 12582912.0f; }

enum { SPAN = 256, LONGS_OF_SPAN = SPAN * 8 / sizeof(longs) };

typedef union {
    int64_t numbers[SPAN];
    longs vectors[LONGS_OF_SPAN];
} span;

// Widen up to 256 numbers, times weights if there are any; zeros follow.
static void widen(const int32_t *numbers, const int32_t *weights, int64_t n, span *wide) {
    if (weights)
        FOR_EACH(i, n) wide->numbers[i] = numbers[i] * weights[i];
    else
        FOR_EACH(i, n) wide->numbers[i] = numbers[i];
    for (int64_t i = n; i < SPAN; i++) wide->numbers[i] = 0;
}

// Add the products of four spans with one.
static void add_spans(const span *four, const span *with, int64_t *sums, int64_t stride) {
    union {
        longs vector;
        int64_t numbers[sizeof(longs) / 8];
    } partial[4];
    memset(partial, 0, sizeof partial);
    longs p0 = partial[0].vector, p1 = p0, p2 = p0, p3 = p0;
    FOR_EACH(i, LONGS_OF_SPAN) {
        const longs b = with->vectors[i];
        p0 = add_products(p0, four[0].vectors[i], b);
        p1 = add_products(p1, four[1].vectors[i], b);
        p2 = add_products(p2, four[2].vectors[i], b);
        p3 = add_products(p3, four[3].vectors[i], b);
    }
    partial[0].vector = p0;
    partial[1].vector = p1;
    partial[2].vector = p2;
    partial[3].vector = p3;
    FOR_EACH(r, 4) FOR_EACH(i, (int64_t)(sizeof(longs) / 8)) sums[r * stride] += partial[r].numbers[i];
}

// vectors @ vectors.T of [k, n], which is symmetric. `weights` multiply the columns of one side; NULL for none.
static void gram(const int32_t *vectors, const int32_t *weights, int64_t k, int64_t n, square result) {
    int64_t sums[COMPONENTS][COMPONENTS] = {{0}};
    span wide[COMPONENTS], weighted;
    // Rows go by fours.
    for (int64_t row = k; row < (k + 3) / 4 * 4; row++) memset(wide + row, 0, sizeof *wide);
    for (int64_t begin = 0; begin < n; begin += SPAN) {
        const int64_t count = least(SPAN, n - begin);
        FOR_EACH(row, k) widen(vectors + row * n + begin, NULL, count, wide + row);
        FOR_EACH(column, k) {
            if (weights) widen(vectors + column * n + begin, weights + begin, count, &weighted);
            // Rows from the diagonal on, by fours.
            for (int64_t row = column / 4 * 4; row < k; row += 4)
                add_spans(wide + row, weights ? &weighted : wide + column, &sums[row][column], COMPONENTS);
        }
    }
    FOR_EACH(row, k) FOR_EACH(column, row + 1) result[row][column] = result[column][row] = (double)sums[row][column];
}

static void inverse_root(square of, int64_t k, square root) {
    square lower = {{0}};
    FOR_EACH(row, k) FOR_EACH(column, row + 1) {
        double value = of[row][column];
        FOR_EACH(i, column) value -= lower[row][i] * lower[column][i];
        if (row == column)
            lower[row][row] = value > 1e-9 * of[row][row] ? sqrt(value) : 0;
        else
            lower[row][column] = lower[column][column] > 0 ? value / lower[column][column] : 0;
    }
    memset(root, 0, sizeof(square));
    FOR_EACH(column, k) {
        if (lower[column][column] == 0) continue;
        root[column][column] = 1 / lower[column][column];
        for (int64_t row = column - 1; row >= 0; row--) {
            double value = 0;
            for (int64_t i = row + 1; i <= column; i++) value -= lower[i][row] * root[i][column];
            root[row][column] = lower[row][row] > 0 ? value / lower[row][row] : 0;
        }
    }
}

static inline void turn(double *restrict p, double *restrict q, double c, double s) {
    FOR_EACH(i, COMPONENTS) {
        const double a = p[i], b = q[i];
        p[i] = c * a - s * b;
        q[i] = s * a + c * b;
    }
}

// Eigenvectors of a symmetric matrix, in rows; the matrix becomes diagonal.
static void eigen(square matrix, int64_t k, square vectors) {
    memset(vectors, 0, sizeof(square));
    FOR_EACH(i, k) vectors[i][i] = 1;
    int rotated = 1;
    for (int sweep = 0; sweep < 12 && rotated; sweep++) {
        rotated = 0;
        FOR_EACH(p, k) for (int64_t q = p + 1; q < k; q++) {
            const double pq = matrix[p][q], pp = matrix[p][p], qq = matrix[q][q];
            if (pq * pq <= 1e-3 * fabs(pp * qq)) continue;
            rotated = 1;
            const double theta = (qq - pp) / (2 * pq), size = 1 / (fabs(theta) + sqrt(theta * theta + 1));
            const double t = theta < 0 ? -size : size, c = 1 / sqrt(t * t + 1), s = t * c;
            FOR_EACH(i, k) {
                const double a = matrix[i][p], b = matrix[i][q];
                matrix[i][p] = c * a - s * b;
                matrix[i][q] = s * a + c * b;
            }
            turn(matrix[p], matrix[q], c, s);
            turn(vectors[p], vectors[q], c, s);
        }
    }
}

static void product(square left, square right, int64_t k, square result) {
    memset(result, 0, sizeof(square));
    FOR_EACH(i, k) FOR_EACH(inner, k) FOR_EACH(j, COMPONENTS) result[i][j] += left[i][inner] * right[inner][j];
}

static void transpose(square matrix) {
    FOR_EACH(i, COMPONENTS) FOR_EACH(j, i) {
        const double kept = matrix[i][j];
        matrix[i][j] = matrix[j][i];
        matrix[j][i] = kept;
    }
}

// Columns [begin, begin + COLUMNS) of rotation.T @ vectors: vectors are [k, n], the rotation is [k, r]. Beyond n zeros.
static void rotate(const int32_t *vectors, int64_t k, int64_t n, int64_t begin, const double *rotation, int64_t r,
                   float (*rotated)[COLUMNS]) {
    const int64_t count = least(COLUMNS, n - begin);
    union {
        float numbers[COLUMNS];
        floats vectors[PARTS];
    } wide[COMPONENTS];
    FOR_EACH(i, k) {
        const int32_t *vector = vectors + i * n + begin;
        FOR_EACH(j, count) wide[i].numbers[j] = (float)vector[j];
        for (int64_t j = count; j < COLUMNS; j++) wide[i].numbers[j] = 0;
    }
    FOR_EACH(c, r) {
        floats line[PARTS];
        UNROLLED(p, PARTS) line[p] = (floats){0};
        FOR_EACH(i, k) {
            const float factor = (float)rotation[i * r + c];
            // Half of a triangular matrix is 0.
            if (factor == 0) continue;
            UNROLLED(p, PARTS) line[p] += wide[i].vectors[p] * factor;
        }
        UNROLLED(p, PARTS) memcpy(rotated[c] + p * FLOATS, &line[p], sizeof line[p]);
    }
}

void as_directions(const int32_t *vectors, int64_t k, int64_t n, const double *rotation, int64_t r,
                   int8_t *directions) {
    float rotated[COMPONENTS][COLUMNS], largest[COLUMNS], top = 1e-30f;
    FOR_EACH(j, COLUMNS) largest[j] = top;
    // Twice the same, because once for the largest costs less than keeping all.
    for (int64_t begin = 0; begin < n; begin += COLUMNS) {
        rotate(vectors, k, n, begin, rotation, r, rotated);
        FOR_EACH(c, r) FOR_EACH(j, COLUMNS) {
            const float value = fabsf(rotated[c][j]);
            largest[j] = value > largest[j] ? value : largest[j];
        }
    }
    FOR_EACH(j, COLUMNS) top = largest[j] > top ? largest[j] : top;
    const float scale = 127 / top;
    for (int64_t begin = 0; begin < n; begin += COLUMNS) {
        rotate(vectors, k, n, begin, rotation, r, rotated);
        FOR_EACH(c, r) FOR_EACH(j, least(COLUMNS, n - begin))
            directions[c * n + begin + j] = (int8_t)(int32_t)rounded(rotated[c][j] * scale);
    }
}

void orthogonal(const int32_t *vectors, int64_t k, int64_t n, int8_t *directions) {
    square products, root;
    double rotation[COMPONENTS * COMPONENTS];
    gram(vectors, NULL, k, n, products);
    inverse_root(products, k, root);
    FOR_EACH(i, k) FOR_EACH(j, k) rotation[i * k + j] = root[i][j];
    as_directions(vectors, k, n, rotation, k, directions);
}

void sort_subspace(const int32_t *vectors, int64_t w, const int32_t *sums, int64_t m, int64_t k,
                   double *rotation, double *powers) {
    square products, root, inner, eigenvectors, partial;
    int64_t order[COMPONENTS];
    gram(vectors, NULL, k, w, products);
    inverse_root(products, k, root);
    gram(sums, NULL, k, m, products);
    transpose(root);
    product(root, products, k, partial);
    transpose(root);
    product(partial, root, k, inner);
    eigen(inner, k, eigenvectors);
    FOR_EACH(i, k) {
        // Strongest first; equal ones keep their order.
        const double power = inner[i][i] > 0 ? inner[i][i] : 0;
        int64_t rank = i;
        for (; rank > 0 && powers[rank - 1] < power; rank--) {
            powers[rank] = powers[rank - 1];
            order[rank] = order[rank - 1];
        }
        powers[rank] = power;
        order[rank] = i;
    }
    square sorted = {{0}};
    FOR_EACH(i, k) FOR_EACH(j, k) sorted[i][j] = eigenvectors[order[j]][i];
    product(root, sorted, k, partial);
    FOR_EACH(i, k) FOR_EACH(j, k) rotation[i * k + j] = partial[i][j];
}

void random_signs(int64_t count, int8_t *signs) {
    FOR_EACH(i, count) {
        uint64_t word = (uint64_t)i * 0x9E3779B97F4A7C15u;
        word = (word ^ word >> 31) * 0xBF58476D1CE4E5B9u;
        signs[i] = (int8_t)((int8_t)(word >> 62 & 2) - 1);
    }
}

void measure_excess(const int8_t *levels, int64_t m, int64_t w, const int32_t *vectors, const int32_t *sums, int64_t k,
                    const double *rotation, int32_t *energies, double *shares) {
    // Squares of up to 9: so many rows sum to 16 bits.
    enum { PANEL = 3640 };
    memset(energies, 0, (size_t)w * sizeof *energies);
    for (int64_t panel = 0; panel < m; panel += PANEL)
        for (int64_t begin = 0; begin < w; begin += TILE) {
            const int64_t n = least(TILE, w - begin);
            int16_t partial[TILE] = {0};
            for (int64_t row = panel; row < least(panel + PANEL, m); row++) {
                const int8_t *restrict line = levels + row * w + begin;
                FOR_EACH(j, n) partial[j] = (int16_t)(partial[j] + line[j] * line[j]);
            }
            FOR_EACH(j, n) energies[begin + j] += partial[j];
        }
    int64_t energy = 0;
    FOR_EACH(j, w) energy += energies[j];
    square products, expected, beyond;
    gram(sums, NULL, k, m, products);
    gram(vectors, energies, k, w, expected);
    FOR_EACH(i, k) FOR_EACH(j, k) beyond[i][j] = products[i][j] - expected[i][j];
    FOR_EACH(c, k) {
        double share = 0;
        FOR_EACH(i, k) FOR_EACH(j, k) share += rotation[i * k + c] * beyond[i][j] * rotation[j * k + c];
        shares[c] = share / (double)most(energy, 1);
    }
}

void quantize_factors(const int32_t *vectors, int64_t k, int64_t n, const double *rotation, int64_t r,
                      const double *scales, int8_t *factors) {
    float rotated[COMPONENTS][COLUMNS];
    for (int64_t begin = 0; begin < n; begin += COLUMNS) {
        rotate(vectors, k, n, begin, rotation, r, rotated);
        FOR_EACH(c, r) FOR_EACH(j, least(COLUMNS, n - begin)) {
            float value = rotated[c][j] * (float)scales[c];
            value = value > -MAX_FACTOR ? value : -MAX_FACTOR;
            value = value < MAX_FACTOR ? value : MAX_FACTOR;
            factors[c * n + begin + j] = (int8_t)(int32_t)rounded(value);
        }
    }
}
