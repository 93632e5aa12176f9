/* How one layer's K/V lies in memory, and how it gets there.
 *
 *   pool [blocks][kv heads] of      one block holds 16 slots of one kv head
 *     keys    element [HEAD_DIM][16]     lanes side by side
 *     key_scale  float [16]                 EIGHT_BIT only
 *     values  element [16][WIDTH]        WIDTH = HEAD_DIM rounded up to 16; what lies behind
 *     value_scale  float [16]            HEAD_DIM is computed with and never given out
 *
 * An element is a float, or with EIGHT_BIT an int8 that its lane's scale makes a float
 * (kernels/eight_bit.py). Keys and values of a block lie side by side: reading scattered blocks is
 * the faster the larger they are. */
#ifndef PANDO_PAGES_H
#define PANDO_PAGES_H

#include "vec.h"

#if EIGHT_BIT && defined(__AVX2__)
#include <immintrin.h>
#endif

#ifndef HEAD_DIM
#define HEAD_DIM 64
#endif
#define VECTORS ((HEAD_DIM + LANES - 1) / LANES)
#define WIDTH (VECTORS * LANES)

#if EIGHT_BIT
typedef int8_t element;
typedef struct {
    element keys[HEAD_DIM][LANES];
    float key_scale[LANES];
    element values[LANES][WIDTH];
    float value_scale[LANES];
} block;
#else
typedef float element;
typedef struct {
    element keys[HEAD_DIM][LANES];
    element values[LANES][WIDTH];
} block;
#endif

/* Sixteen elements as floats, not yet scaled. */
INLINE v16 read16(const element *p) {
#if !EIGHT_BIT
    return load(p);
#elif defined(__AVX512F__)
    return (v16)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
#elif defined(__AVX2__)
    union {
        __m256 half[2];
        v16 whole;
    } v;
    for (int i = 0; i < 2; i++) {
        __m128i bytes = _mm_loadl_epi64((const __m128i *)(p + 8 * i));
        v.half[i] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
    }
    return v.whole;
#else
    v16 v;
    for (int i = 0; i < LANES; i++) v[i] = (float)p[i];
    return v;
#endif
}

INLINE float key_of(const block *b, int d, int lane) {
#if EIGHT_BIT
    return (float)b->keys[d][lane] * b->key_scale[lane];
#else
    return b->keys[d][lane];
#endif
}

/* Codes of x[0..HEAD_DIM) up to `largest`, zeros behind; returns their scale (kernels/codes.py). */
INLINE float codes_of(const float *x, float largest, int8_t *code) {
    float peak = 0.0f, broken = 0.0f;
    for (int d = 0; d < HEAD_DIM; d++) {
        float size = __builtin_fabsf(x[d]);
        if (size > peak) peak = size;
        if (size != size) broken = size;
    }
    float scale = broken != 0.0f ? broken : peak / largest;
    float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    memset(code, 0, WIDTH);
    for (int d = 0; d < HEAD_DIM; d++) {
        float v = __builtin_rintf(x[d] * inverse);
        v = v > largest ? largest : v < -largest ? -largest : v;
        code[d] = (int8_t)(v == v ? v : 0.0f);
    }
    return scale;
}

#if EIGHT_BIT
/* Stores x in eight bits, `step` elements apart; returns its scale. */
INLINE float squeeze(const float *x, element *to, int step) {
    int8_t code[WIDTH];
    float scale = codes_of(x, 127.0f, code);
    for (int d = 0; d < HEAD_DIM; d++) to[d * step] = code[d];
    return scale;
}
#endif

INLINE void store_lane(block *b, int lane, const float *key, const float *value) {
#if EIGHT_BIT
    b->key_scale[lane] = squeeze(key, &b->keys[0][lane], LANES);
    b->value_scale[lane] = squeeze(value, b->values[lane], 1);
#else
    for (int d = 0; d < HEAD_DIM; d++) b->keys[d][lane] = key[d];
    memcpy(b->values[lane], value, HEAD_DIM * sizeof(float));
#endif
}

INLINE void copy_lane(const block *from, int lane, block *to, int to_lane) {
    for (int d = 0; d < HEAD_DIM; d++) to->keys[d][to_lane] = from->keys[d][lane];
    memcpy(to->values[to_lane], from->values[lane], sizeof from->values[0]);
#if EIGHT_BIT
    to->key_scale[to_lane] = from->key_scale[lane];
    to->value_scale[to_lane] = from->value_scale[lane];
#endif
}

#endif
