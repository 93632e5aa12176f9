/* Keys in four bits and queries in eight, and their products in whole numbers: the arithmetic of
 * kernels/dflash.py, whose bits are the same whatever the processor has.
 *
 *   sketches [blocks][kv heads] of   one sketch stands beside each block of pages.h
 *     code   uint8 [WIDTH / 8][16][4]    of group g and one lane: code[d] + 8 of dimension 8 g + i in
 *     scale  float [16]                  the low half of byte i, of 8 g + 4 + i in the high half */
#ifndef PANDO_SKETCH_H
#define PANDO_SKETCH_H

#include "pages.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define GROUPS (WIDTH / 8)
#define OFFSET 8
#define LARGEST_KEY 7.0f
#define LARGEST_QUERY 127.0f

typedef struct {
    uint8_t code[GROUPS][LANES][4];
    float scale[LANES];
} sketch;

/* A query: four codes in each integer, in the order of a sketch's halves. less: what the offset of
 * the keys' codes adds to a product. factor: on a product times a key's scale. */
struct asked {
    int32_t code[2 * GROUPS];
    int32_t less;
    float factor;
};

/* Sketches the key in one lane of a block, as it is stored there. */
INLINE void sketch_lane(const block *b, int lane, sketch *s) {
    float key[HEAD_DIM];
    int8_t code[WIDTH];
    for (int d = 0; d < HEAD_DIM; d++) key[d] = key_of(b, d, lane);
    s->scale[lane] = codes_of(key, LARGEST_KEY, code);
    for (int g = 0; g < GROUPS; g++) {
        for (int i = 0; i < 4; i++) {
            int low = code[8 * g + i] + OFFSET, high = code[8 * g + 4 + i] + OFFSET;
            s->code[g][lane][i] = (uint8_t)(low | high << 4);
        }
    }
}

INLINE void ask(struct asked *a, const float *query, float scale) {
    int8_t code[WIDTH];
    a->factor = codes_of(query, LARGEST_QUERY, code) * scale;
    a->less = 0;
    for (int d = 0; d < WIDTH; d++) a->less += OFFSET * code[d];
    memcpy(a->code, code, sizeof a->code);
}

/* products[r][lane]: of 16 sketched keys with each query, sums over HEAD_DIM. */
INLINE void meet(const int rows, const sketch *s, const struct asked *a, m16 *products) {
#if defined(__AVX512VNNI__) && defined(__AVX512F__)
    const __m512i half = _mm512_set1_epi8(15);
    for (int r = 0; r < rows; r++) products[r] = (m16){};
#pragma GCC unroll 8
    for (int g = 0; g < GROUPS; g++) {
        __m512i both = _mm512_loadu_si512(s->code[g]);
        __m512i low = _mm512_and_si512(both, half);
        __m512i high = _mm512_and_si512(_mm512_srli_epi16(both, 4), half);
        for (int r = 0; r < rows; r++) {
            __m512i sum = (__m512i)products[r];
            sum = _mm512_dpbusd_epi32(sum, low, _mm512_set1_epi32(a[r].code[2 * g]));
            sum = _mm512_dpbusd_epi32(sum, high, _mm512_set1_epi32(a[r].code[2 * g + 1]));
            products[r] = (m16)sum;
        }
    }
#elif defined(__AVX2__)
    /* Two products of 0..15 and -127..127 fit into sixteen bits. */
    const __m256i half = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    union {
        __m256i part[2];
        m16 whole;
    } sum;
    for (int r = 0; r < rows; r++) {
        sum.whole = (m16){};
        for (int g = 0; g < GROUPS; g++) {
            __m256i low = _mm256_set1_epi32(a[r].code[2 * g]);
            __m256i high = _mm256_set1_epi32(a[r].code[2 * g + 1]);
            for (int p = 0; p < 2; p++) {
                __m256i both = _mm256_loadu_si256((const __m256i *)s->code[g] + p);
                __m256i x = _mm256_maddubs_epi16(_mm256_and_si256(both, half), low);
                __m256i y = _mm256_and_si256(_mm256_srli_epi16(both, 4), half);
                x = _mm256_add_epi16(x, _mm256_maddubs_epi16(y, high));
                sum.part[p] = _mm256_add_epi32(sum.part[p], _mm256_madd_epi16(x, ones));
            }
        }
        products[r] = sum.whole;
    }
#else
    for (int r = 0; r < rows; r++) {
        int8_t code[WIDTH];
        memcpy(code, a[r].code, sizeof code);
        for (int lane = 0; lane < LANES; lane++) {
            int32_t sum = 0;
            for (int g = 0; g < GROUPS; g++) {
                for (int i = 0; i < 4; i++) {
                    int both = s->code[g][lane][i];
                    sum += (both & 15) * code[8 * g + i] + (both >> 4) * code[8 * g + 4 + i];
                }
            }
            products[r][lane] = sum;
        }
    }
#endif
    for (int r = 0; r < rows; r++) products[r] -= a[r].less;
}

#endif
