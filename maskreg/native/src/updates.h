// What a step does to one coordinate, and how its weight gets from and to bf16. All arithmetic is fp32 in the order that
// is written here, without fused multiply-add: bits depend on neither processor nor threads, except for NaN payloads.
#ifndef MASKREG_UPDATES_H
#define MASKREG_UPDATES_H

#include <math.h>

#include "packing.h"

enum {
    BF16 = 2, FP32 = 4,  // bytes of a value
    QUIET_NAN = 0x7FC0,  // bf16 that any NaN is rounded to
};

INLINE uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

INLINE float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINE float widened(uint16_t code) { return float_of((uint32_t)code << 16); }

INLINE float float_at(const void *values, int64_t bytes, int64_t i) {
    return bytes == BF16 ? widened(((const uint16_t *)values)[i]) : ((const float *)values)[i];
}

// The nearest bf16, to even on ties. Adding 0x7FFF carries into the upper half if the lower half exceeds a tie, 0x8000;
// adding the upper half's lowest bit too carries on the tie itself if that bit is odd: 0x3F808000 -> 0x3F80, but
// 0x3F818000 -> 0x3F82. Not of a NaN.
INLINE uint32_t nearest(uint32_t wide) { return (wide + 0x7FFF + (wide >> 16 & 1)) >> 16; }

INLINE int is_nan(uint32_t wide) { return (wide & 0x7FFFFFFF) > 0x7F800000; }

INLINE uint16_t narrowed(float value) {
    const uint32_t wide = bits_of(value);
    return (uint16_t)(is_nan(wide) ? QUIET_NAN : nearest(wide));
}

// The value of a weight: its master, except where it is not what its master rounds to. Such a weight was loaded.
INLINE float value_of(uint16_t code, float master) {
    const uint32_t wide = bits_of(master);
    const int is_equal = nearest(wide) == code, is_its_rounding = is_equal & !is_nan(wide);
    return float_of(is_its_rounding ? wide : (uint32_t)code << 16);
}

// A value after a step of AdamW; `first` and `second`, its moments, are updated.
INLINE float updated(const maskreg_step *s, float value, float slope, float *first, float *second) {
    *first = *first + s->part1 * (slope - *first);
    *second = *second * s->beta2 + s->part2 * slope * slope;
    return value * s->keep - s->size * *first / (sqrtf(*second) * s->root + s->eps);
}

#endif
