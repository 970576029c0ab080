// Counting coordinates by class.
#ifndef MASKREG_HISTOGRAM_H
#define MASKREG_HISTOGRAM_H

#include "loops.h"

enum {
    MAX_CLASSES = 512,
    // Neighbors often share a class, and an increment waits for the store of the one before: so every class has several
    // counters, which take turns and are added up at the end.
    COUNTERS = 4,
};

static inline int64_t sum_of(const uint32_t counters[COUNTERS]) {
    return (int64_t)counters[0] + counters[1] + counters[2] + counters[3];
}

// Four keys at a time, of which one load has all.
static inline void count_keys(const uint16_t *keys, int64_t n, uint32_t (*counters)[COUNTERS]) {
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        uint64_t four;
        memcpy(&four, keys + i, sizeof four);
        counters[four & 0xFFFF][0]++;
        counters[four >> 16 & 0xFFFF][1]++;
        counters[four >> 32 & 0xFFFF][2]++;
        counters[four >> 48][3]++;
    }
    for (; i < n; i++) counters[keys[i]][0]++;
}

// Those that are marked, 0 or 1.
static inline void count_marked(const uint16_t *keys, const uint8_t *marks, int64_t n, uint32_t (*counters)[COUNTERS]) {
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        uint64_t four;
        memcpy(&four, keys + i, sizeof four);
        counters[four & 0xFFFF][0] += marks[i];
        counters[four >> 16 & 0xFFFF][1] += marks[i + 1];
        counters[four >> 32 & 0xFFFF][2] += marks[i + 2];
        counters[four >> 48][3] += marks[i + 3];
    }
    for (; i < n; i++) counters[keys[i]][0] += marks[i];
}

#endif
