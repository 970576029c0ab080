// Decoding sub-blocks of which few coordinates move: maskreg/codec/movers.py defines what is computed.
//
//     in turn, of up to 16 sub-blocks at once:                                                             abreast.h
//         aim: up to which hazard the next mover lies
//         next tile: where a tile of 512 coordinates is behind, add up the hazards of the next              movers.h
//         find: the coordinate, in each
//         take: the mover's number; and in the few where it moves by more than one ULP: how far
//         draw: the number of the next
//
// They go together because a mover's place, its ULP step and the number of the next wait for each other; other
// sub-blocks do not wait.
//
// Blocks come from outside. No word is read beyond the end of a sub-block; damage shows when too few were there, or when
// not everything is used up at the end.
#include "abreast.h"

enum { AHEAD = 128 };  // movers whose source is fetched early

static void next_tile(part *p, const hazards *h) {
    const int64_t m = least(SPAN, p->left);
    const uint16_t *source = p->source;
    p->position += SPAN;
    if (p->before < p->before_end && *p->before < p->position + m) {
        uint32_t crossing = 0;
        memcpy(p->moved, source, (size_t)m * sizeof *source);
        for (; p->before < p->before_end && *p->before < p->position + m; p->before++) {
            uint16_t *code = p->moved + (*p->before - p->position);
            crossing |= exponent_of(*code ^ *p->before_codes);
            *code = *p->before_codes++;
        }
        // Hazards are the source's unless a code crosses to another exponent, which is rare. What was just written is
        // slow to read.
        fill_tile(&p->tile, crossing || m < SPAN ? p->moved : source, m, h);
        if (m == SPAN) p->tile.codes = p->moved;
    } else {
        fill_tile(&p->tile, source, m, h);
    }
    p->source += m;
    p->left -= m;
    // The next tile; until it is read, there is time enough to fetch it.
    FOR_EACH(i, SPAN / 32) __builtin_prefetch(p->source + 32 * i);
}

// Go on to the tile of the next mover, and over waits. Returns 0 where there is no mover.
static __attribute__((noinline)) uint32_t go_on(lanes *l, part *p, int64_t i, const hazards *h) {
    for (;;) {
        l->goal[i] = l->reached[i] + l->wait[i];
        if (l->goal[i] > l->total[i]) {
            if (!p->left) return 0;
            l->reached[i] -= l->total[i];
            next_tile(p, h);
            l->total[i] = (int32_t)p->tile.total;
        } else if (l->number[i] < h->beyond) {
            take(l, i, l->number[i], 0, h->beyond, SIGNED_BITS);
            l->reached[i] = l->goal[i];
            draw(l, i, h);
        } else {
            return 1;
        }
    }
}

// Where the movers of a sub-block go. Each takes more than a bit, and there are no more than coordinates; for every
// sub-block there is room for the fewer of both.
static inline int64_t room_before(int64_t k, int64_t length, const int64_t *starts) {
    return least(k * length, 8 * (starts[k] - starts[0]));
}

// How many of some ascending positions are below a given one.
static int64_t first_from(const uint32_t *positions, int64_t count, int64_t position) {
    int64_t low = 0;
    while (low < count) {
        const int64_t middle = (low + count) / 2;
        if (positions[middle] < position) low = middle + 1;
        else count = middle;
    }
    return low;
}

// As maskreg_decode_movers, of no more than PARTS sub-blocks from one on; `total` movers came before.
static int64_t decode_parts(const uint16_t *source, int64_t n, const hazards *h, const uint8_t *block, int64_t from,
                            int64_t count, int64_t length, const int64_t *starts, const maskreg_movers *before,
                            int64_t befores, const maskreg_movers *movers, int64_t *total) {
    const int wide = count > FEW;
    part parts[PARTS];
    lanes l;
    memset(&l, 0, sizeof l);
    FOR_EACH(k, count) {
        part *p = parts + k;
        const int64_t at = room_before(from + k, length, starts);
        memcpy(l.state + k, block + starts[from + k], sizeof *l.state);
        l.word[k] = (uint64_t)(block + starts[from + k] + sizeof *l.state);
        l.end[k] = (uint64_t)(block + starts[from + k + 1]);
        p->position = (from + k) * length - SPAN;
        const int64_t begin = least((from + k) * length, n);
        p->source = source + begin;
        p->left = least(length, n - begin);
        p->positions = movers->positions + at, p->codes = movers->codes + at;
        p->count = 0, p->room = room_before(from + k + 1, length, starts) - at;
        const int64_t first = first_from(before->positions, befores, begin);
        p->before = before->positions + first, p->before_end = before->positions + befores;
        p->before_codes = before->codes + first;
        draw(&l, k, h);
    }
    // find_wide() looks at lanes without a sub-block, too.
    for (int64_t k = count; k < PARTS; k++) {
        memset(&parts[k].tile.sums, 0, sizeof parts[k].tile.sums);
        memset(parts[k].tile.room, 0, 64);
        parts[k].tile.codes = parts[k].tile.room;
    }
    for (uint32_t busy = (1u << count) - 1; busy;) {
        const uint32_t waiting = wide ? aim_wide(&l, busy, h) : aim_each(&l, busy, h);
        FOR_BITS(k, waiting) {
            if (go_on(&l, parts + k, k, h)) continue;
            busy &= ~(1u << k);
            l.goal[k] = 0;
        }
        if (wide) find_wide(&l, parts, count, busy, h);
        else find_each(&l, parts, count, busy, h);
        uint32_t further = 0;
        const uint32_t moving = wide ? take_wide(&l, busy, h, &further) : take_each(&l, busy, h, &further);
        FOR_BITS(k, further) l.to[k] = take_code(&l, k, h);
        FOR_BITS(k, moving) {
            part *p = parts + k;
            const int64_t at = least(p->count, p->room - 1);
            l.missing |= (uint32_t)(p->count > at) << k;
            p->positions[at] = (uint32_t)(p->position + l.place[k]);
            p->codes[at] = (uint16_t)l.to[k];
            // A literal can be what was there; then nothing moves.
            p->count = at + (l.to[k] != l.from[k]);
        }
        if (wide) draw_wide(&l, moving, h);
        else draw_each(&l, moving, h);
    }
    FOR_EACH(k, count) {
        const part *p = parts + k;
        take(&l, k, l.number[k], 0, survival(h->powers, (uint32_t)(l.total[k] - l.reached[k])), SIGNED_BITS);
        if (l.missing >> k & 1 || l.word[k] != l.end[k] || l.state[k] != LOWEST_WIDE) return from + k + 1;
        memmove(movers->positions + *total, p->positions, (size_t)p->count * sizeof *p->positions);
        memmove(movers->codes + *total, p->codes, (size_t)p->count * sizeof *p->codes);
        *total += p->count;
    }
    return 0;
}

int64_t maskreg_decode_movers(const uint16_t *source, int64_t n, const maskreg_hazards *given, const uint8_t *block,
                              int64_t count, int64_t length, const int64_t *starts, const maskreg_movers *before,
                              int64_t befores, const maskreg_movers *movers) {
    hazards h;
    fill_hazards(&h, given);
    int64_t total = 0;
    for (int64_t k = 0; k < count; k += PARTS) {
        const int64_t damaged = decode_parts(source, n, &h, block, k, least(PARTS, count - k), length, starts, before,
                                             befores, movers, &total);
        if (damaged) return -damaged;
    }
    return total;
}

int64_t maskreg_merge_movers(const uint16_t *source, const maskreg_movers *first, int64_t m, const maskreg_movers *last,
                             int64_t n, const maskreg_movers *merged) {
    int64_t i = 0, k = 0, count = 0;
    while (i < m && k < n) {
        __builtin_prefetch(source + first->positions[least(i + AHEAD, m - 1)]);
        // Which is next cannot be predicted, so nothing branches on that.
        const uint32_t a = first->positions[i], b = last->positions[k];
        const uint32_t from = first->codes[i], to = last->codes[k], is_last = -(uint32_t)(b <= a);
        merged->positions[count] = a ^ ((a ^ b) & is_last);
        merged->codes[count] = (uint16_t)(from ^ ((from ^ to) & is_last));
        count += (a != b) | (to != source[a]);
        i += a <= b;
        k += b <= a;
    }
    for (; i < m; i++, count++) merged->positions[count] = first->positions[i], merged->codes[count] = first->codes[i];
    for (; k < n; k++, count++) merged->positions[count] = last->positions[k], merged->codes[count] = last->codes[k];
    return count;
}
