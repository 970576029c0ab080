// Estimated bits of tokens and their tables, several at a time: maskreg/codec/tables.py defines them.
#ifndef MASKREG_COSTS_H
#define MASKREG_COSTS_H

#include "codec.h"

// As wide as this machine's vectors. Plain loops that are as short are unrolled before compilers look for vectors.
#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX2__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif
typedef double numbers __attribute__((vector_size(VECTOR_BYTES)));
typedef uint64_t words __attribute__((vector_size(VECTOR_BYTES)));

enum { SIDE_BY_SIDE = VECTOR_BYTES / 8 };

// Tokens counted, of several groups side by side. Each group's sum is then computed in the order of its tokens, on
// every machine, and yet a vector computes a token of all of them at once.
//
// Counts are float64, in which integers below 2^53 are exact, so logarithms and quotients need no conversion.
typedef struct {
    numbers counts[TOKENS];  // in order; tokens that no group has can be left out
    numbers totals;          // less than 2^40; 0 if the group is empty
    numbers listed;          // tokens from the first that occurs to the last
} counted;

// Bits of each group's tokens and of a table for them; 0 if it is empty. `tokens` rows of counts are used. `logs` are
// LOGS of tables.py.
void bits_of(const counted *groups, int64_t tokens, const double *logs, double *bits);

#endif
