// Leaf hashes of what a block becomes: maskreg/flow/hashing.py defines what is computed.
//
// The hash is XXH3 of 128 bits (Y. Collet, https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md) of more than 240
// bytes. It takes blocks of 1,024 bytes, and that is how much is copied to put movers into it, in the first-level cache.
#include "bits.h"

enum {
    LEAF = 1 << 18,  // codes
    STRIPE = 32,     // codes that are taken in at once
    STRIPES = 16,    // of a block
    BLOCK = STRIPES * STRIPE,
    SUMS = 8,
    SECRET = 192,    // bytes
    HASH = 16,       // bytes
    AHEAD = 8,       // blocks that are fetched early
};

static const uint64_t P32_1 = 0x9E3779B1, P32_2 = 0x85EBCA77, P32_3 = 0xC2B2AE3D;
static const uint64_t P64_1 = 0x9E3779B185EBCA87, P64_2 = 0xC2B2AE3D27D4EB4F, P64_3 = 0x165667B19E3779F9;
static const uint64_t P64_4 = 0x85EBCA77C2B2AE63, P64_5 = 0x27D4EB2F165667C5, MIX = 0x165667919E3779F9;

static const uint8_t secret[SECRET] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

static inline uint64_t secret_at(int64_t at) {
    uint64_t word;
    memcpy(&word, secret + at, sizeof word);
    return word;
}

// Take in stripes, with the secret from a byte on, and from 8 bytes further on for each.
static inline void take_in(uint64_t *sums, const uint16_t *codes, int64_t stripes, int64_t at) {
#if defined(__AVX2__)
    __m256i low = _mm256_loadu_si256((__m256i *)sums), high = _mm256_loadu_si256((__m256i *)(sums + 4));
    FOR_EACH(k, stripes) {
        const __m256i *own = (const __m256i *)(codes + k * STRIPE), *keys = (const __m256i *)(secret + at + 8 * k);
        const __m256i a = _mm256_loadu_si256(own), b = _mm256_loadu_si256(own + 1);
        const __m256i x = _mm256_xor_si256(a, _mm256_loadu_si256(keys));
        const __m256i y = _mm256_xor_si256(b, _mm256_loadu_si256(keys + 1));
        // The neighbor's number is added too.
        low = _mm256_add_epi64(low, _mm256_shuffle_epi32(a, 0x4E));
        high = _mm256_add_epi64(high, _mm256_shuffle_epi32(b, 0x4E));
        low = _mm256_add_epi64(low, _mm256_mul_epu32(x, _mm256_srli_epi64(x, 32)));
        high = _mm256_add_epi64(high, _mm256_mul_epu32(y, _mm256_srli_epi64(y, 32)));
    }
    _mm256_storeu_si256((__m256i *)sums, low);
    _mm256_storeu_si256((__m256i *)(sums + 4), high);
#else
    FOR_EACH(k, stripes) {
        uint64_t own[SUMS], keys[SUMS];
        memcpy(own, codes + k * STRIPE, sizeof own);
        memcpy(keys, secret + at + 8 * k, sizeof keys);
        FOR_EACH(i, SUMS) {
            const uint64_t key = own[i] ^ keys[i];
            sums[i] += own[i ^ 1] + (key & 0xFFFFFFFF) * (key >> 32);
        }
    }
#endif
}

static uint64_t merged(const uint64_t *sums, int64_t at, uint64_t result) {
    for (int64_t i = 0; i < SUMS; i += 2) {
        const uint64_t a = sums[i] ^ secret_at(at + 8 * i), b = sums[i + 1] ^ secret_at(at + 8 * i + 8);
        const unsigned __int128 product = (unsigned __int128)a * b;
        result += (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    result = (result ^ result >> 37) * MIX;
    return result ^ result >> 32;
}

// Movers that are still to be put in, and where the codes go that they replace.
typedef struct {
    const uint32_t *positions;
    const uint16_t *codes;
    uint16_t *replaced;
    int64_t left;
} rest;

// Codes of a block from `at` on, with their movers: in `room` if there are any.
static inline const uint16_t *with_movers(const uint16_t *codes, int64_t at, int64_t n, rest *r, uint16_t *room) {
    if (!r->left || *r->positions >= at + n) return codes + at;
    memcpy(room, codes + at, (size_t)n * sizeof *room);
    for (; r->left && *r->positions < at + n; r->left--) {
        uint16_t *place = room + (*r->positions++ - at);
        *r->replaced++ = *place;
        *place = *r->codes++;
    }
    return room;
}

static void hash_leaf(const uint16_t *codes, int64_t at, int64_t n, rest *r, uint8_t *hash) {
    const uint64_t bytes = 2 * (uint64_t)n;
    uint64_t sums[SUMS] = {P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1};
    uint16_t rooms[2][BLOCK], tail[STRIPE + BLOCK];
    const int64_t blocks = (n - 1) / BLOCK, m = n - blocks * BLOCK;
    const uint16_t *next = with_movers(codes, at, blocks ? BLOCK : m, r, rooms[0]);
    FOR_EACH(k, blocks) {
        const uint16_t *own = next;
        // Ahead, because what was just written is not read at once.
        next = with_movers(codes, at + (k + 1) * BLOCK, k + 1 < blocks ? BLOCK : m, r, rooms[(k + 1) % 2]);
        FOR_EACH(i, STRIPES) __builtin_prefetch(codes + at + (k + AHEAD) * BLOCK + i * STRIPE);
        take_in(sums, own, STRIPES, 0);
        FOR_EACH(i, SUMS) sums[i] = (sums[i] ^ sums[i] >> 47 ^ secret_at(SECRET - 64 + 8 * i)) * P32_1;
        if (k + 1 == blocks) memcpy(tail, own + BLOCK - STRIPE, STRIPE * sizeof *tail);
    }
    memcpy(tail + STRIPE, next, (size_t)m * sizeof *tail);
    take_in(sums, tail + STRIPE, (m - 1) / STRIPE, 0);
    take_in(sums, tail + m, 1, SECRET - 64 - 7);
    const uint64_t halves[2] = {merged(sums, SECRET - 64 - 11, ~(bytes * P64_2)), merged(sums, 11, bytes * P64_1)};
    FOR_EACH(i, HASH) hash[i] = (uint8_t)(halves[i / 8] >> (56 - i % 8 * 8));
}

void maskreg_hash_after(const uint16_t *before, int64_t n, const maskreg_movers *movers, int64_t count, int64_t known,
                        uint8_t *hashes, uint16_t *replaced) {
    rest r = {movers->positions, movers->codes, replaced, count};
    for (int64_t at = 0; at < n; at += LEAF, hashes += HASH) {
        const int64_t own = least(LEAF, n - at);
        if (!known || (r.left && *r.positions < at + own)) hash_leaf(before, at, own, &r, hashes);
    }
}
