/* Sixteen float lanes in GCC/clang vector extensions: one register on AVX-512, two on AVX2, four on
 * NEON. Lanes never mix except in lane_max and lane_sum, whose order is fixed. */
#ifndef PANDO_VEC_H
#define PANDO_VEC_H

#include <stdint.h>
#include <string.h>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#define LANES 16
#define INLINE static inline __attribute__((always_inline))

typedef float v16 __attribute__((vector_size(64)));
typedef int32_t m16 __attribute__((vector_size(64)));

INLINE v16 load(const float *p) {
    v16 v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void store(float *p, v16 v) { memcpy(p, &v, sizeof v); }

INLINE v16 splat(float x) { return (v16){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }

/* mask lanes are -1 or 0, as vector comparisons give them. */
INLINE v16 pick(m16 mask, v16 yes, v16 no) {
    return (v16)(((m16)yes & mask) | ((m16)no & ~mask));
}

INLINE v16 larger(v16 a, v16 b) {
#ifdef __AVX512F__
    return (v16)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return pick(a > b, a, b);
#endif
}

/* Has a line brought into the cache. */
#define FETCH(p) __builtin_prefetch(p, 0, 3)

/* Keeps a loaded vector in its register, where the compiler would load it again at each use. */
#ifdef __AVX512F__
#define KEEP(v) __asm__("" : "+v"(v))
#else
#define KEEP(v) (void)(v)
#endif

#define ROTATE(v, n)                                                                           \
    __builtin_shufflevector(v, v, (0 + n) % 16, (1 + n) % 16, (2 + n) % 16, (3 + n) % 16,      \
                            (4 + n) % 16, (5 + n) % 16, (6 + n) % 16, (7 + n) % 16,            \
                            (8 + n) % 16, (9 + n) % 16, (10 + n) % 16, (11 + n) % 16,          \
                            (12 + n) % 16, (13 + n) % 16, (14 + n) % 16, (15 + n) % 16)

INLINE float lane_max(v16 v) {
    v = larger(v, ROTATE(v, 8));
    v = larger(v, ROTATE(v, 4));
    v = larger(v, ROTATE(v, 2));
    v = larger(v, ROTATE(v, 1));
    return v[0];
}

INLINE float lane_sum(v16 v) {
    v += ROTATE(v, 8);
    v += ROTATE(v, 4);
    v += ROTATE(v, 2);
    v += ROTATE(v, 1);
    return v[0];
}

INLINE int any_lane(m16 mask) {
    mask |= ROTATE(mask, 8);
    mask |= ROTATE(mask, 4);
    mask |= ROTATE(mask, 2);
    mask |= ROTATE(mask, 1);
    return mask[0] != 0;
}

/* e**x within 2 ulp on [-87.3, 88]; above, e**88; below, exactly 0; exp(0) is exactly 1.
 * Cephes' polynomial after x = n ln 2 + r. */
INLINE v16 exp16(v16 x) {
    const v16 magic = splat(12582912.0f); /* 1.5 * 2**23: adding it rounds to an integer */
    m16 flushed = x < splat(-87.3f);
    x = pick(x > splat(88.0f), splat(88.0f), x);
    v16 shifted = x * splat(1.44269504f) + magic;
    v16 n = shifted - magic;
    v16 r = x - n * splat(0.693359375f);
    r = r + n * splat(2.12194440e-4f);
    v16 y = splat(1.9875691500e-4f);
    y = y * r + splat(1.3981999507e-3f);
    y = y * r + splat(8.3334519073e-3f);
    y = y * r + splat(4.1665795894e-2f);
    y = y * r + splat(1.6666665459e-1f);
    y = y * r + splat(5.0000001201e-1f);
    y = y * (r * r) + (r + splat(1.0f));
    m16 exponent = ((m16)shifted - (m16)magic + 127) << 23;
    return pick(flushed, splat(0.0f), y * (v16)exponent);
}

#endif
