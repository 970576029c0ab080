// The mask of a part of a tensor, cut out of the mask of the whole: maskreg/live/shards.py.
#include "bits.h"

enum { PIECE_WORDS = 64, PIECE = PIECE_WORDS * WORD };  // bits that are copied at a time

// How many of the bits from `at` to `end` are set.
static int64_t ones_between(const uint8_t *packed, int64_t at, int64_t end) {
    int64_t total = 0;
    if (at % WORD && at < end) {
        const int64_t n = least(WORD - at % WORD, end - at);
        total += ones(bits_at(packed, at, n));
        at += n;
    }
    const int64_t first = at / WORD, whole = most(0, end - at) / WORD;
    FOR_EACH(i, whole) total += ones(load_word(packed, first + i));
    at += whole * WORD;
    return at < end ? total + ones(bits_at(packed, at, end - at)) : total;
}

// Append `n` bits at bit `to`; those from there to the end of its word are 0.
static void append(const uint64_t *words, int64_t n, int64_t to, uint8_t *part) {
    const int64_t shift = to % WORD, first = to / WORD;
    uint64_t rest = shift ? load_word(part, first) : 0;
    FOR_EACH(i, WORDS_OF(n)) {
        store_word(part, first + i, rest | words[i] << shift);
        rest = shift ? words[i] >> (WORD - shift) : 0;
    }
    // Where the last word had fewer bits than would overflow, there can be no room for another.
    if (WORDS_OF(shift + n) > WORDS_OF(n)) store_word(part, first + WORDS_OF(n), rest);
}

int64_t maskreg_cut(const uint8_t *packed, int64_t words, int64_t first, int64_t stride, int64_t length, int64_t count,
                    uint8_t *part, int64_t *before, int64_t *inside) {
    uint64_t piece[PIECE_WORDS];
    int64_t seen = 0, to = 0, end = 0;
    FOR_EACH(span, count) {
        const int64_t begin = first + span * stride;
        seen += ones_between(packed, end, begin);
        end = begin + length;
        int64_t own = 0;
        for (int64_t at = begin; at < end; at += PIECE) {
            const int64_t n = least(PIECE, end - at);
            copy_bits(packed, at, n, piece);
            FOR_EACH(i, WORDS_OF(n)) own += ones(piece[i]);
            append(piece, n, to, part);
            to += n;
        }
        before[span] = seen;
        inside[span] = own;
        seen += own;
    }
    return seen + ones_between(packed, end, words * WORD);
}
