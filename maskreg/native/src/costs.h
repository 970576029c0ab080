// Estimated bits of tokens and their tables, several at a time: maskreg/codec/costs.py defines them.
#ifndef MASKREG_COSTS_H
#define MASKREG_COSTS_H

#include "codec.h"

enum { SIDE_BY_SIDE = 8 };  // as many float64 as the widest vectors hold

// Tokens counted, of several groups side by side. Each group's sum is then computed in the order of its tokens, on every
// machine, and yet a vector computes a token of all of them at once.
//
// Counts are float64, in which integers below 2^53 are exact, so logarithms and quotients need no conversion.
typedef struct {
    double counts[TOKENS][SIDE_BY_SIDE];  // tokens in order; those that no group has may be left out
    double totals[SIDE_BY_SIDE];          // less than 2^40; 0 if the group is empty
    double listed[SIDE_BY_SIDE];          // tokens from the first that occurs to the last
} counted;

// Bits of each group's tokens and of a table for them; 0 if it is empty. `tokens` rows of counts are used. `logs` are
// LOGS of costs.py.
void bits_of(const counted *groups, int64_t tokens, const double *logs, double *bits);

#endif
