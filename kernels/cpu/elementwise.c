/* The row-wise operations between the matrix products. A row's result depends on that row alone:
 * sums run over sixteen lanes in a fixed order, tails are padded to whole vectors. Strides count
 * floats. */
#include <math.h>

#include "vec.h"

#define PARALLEL_FLOATS 65536 /* below, threads cost more than they bring */

INLINE v16 load_part(const float *p, int n) {
    float lane[LANES] = {0};
    memcpy(lane, p, n * sizeof(float));
    return load(lane);
}

INLINE void store_part(float *p, v16 v, int n) {
    float lane[LANES];
    store(lane, v);
    memcpy(p, lane, n * sizeof(float));
}

INLINE void norm_row(const float *x, const float *weight, float *out, int width, float epsilon) {
    v16 sum = splat(0.0f);
    int i = 0;
    for (; i + LANES <= width; i += LANES) sum += load(x + i) * load(x + i);
    if (i < width) sum += load_part(x + i, width - i) * load_part(x + i, width - i);
    v16 inverse = splat(1.0f / sqrtf(lane_sum(sum) / width + epsilon));
    for (i = 0; i + LANES <= width; i += LANES)
        store(out + i, load(x + i) * inverse * load(weight + i));
    if (i < width)
        store_part(out + i,
                   load_part(x + i, width - i) * inverse * load_part(weight + i, width - i),
                   width - i);
}

/* out = x / rms(x) * weight over the last axis of x [rows][groups][width]; out may be x. */
void rms_norm(const float *x, const float *weight, float *out, const int64_t *strides,
              const int32_t *sizes /* rows, groups, width, threads */, float epsilon) {
    const int rows = sizes[0], groups = sizes[1], width = sizes[2];
    const int wide = sizes[3] > 1 && (int64_t)rows * groups * width >= PARALLEL_FLOATS;
#pragma omp parallel for num_threads(sizes[3]) if (wide)
    for (int t = 0; t < rows; t++)
        for (int g = 0; g < groups; g++)
            norm_row(x + t * strides[0] + g * strides[1], weight,
                     out + t * strides[2] + g * strides[3], width, epsilon);
}

/* x += delta, then out = x / rms(x) * weight; all [rows][width], dense. */
void add_rms_norm(float *x, const float *delta, const float *weight, float *out,
                  const int32_t *sizes /* rows, width, threads */, float epsilon) {
    const int rows = sizes[0], width = sizes[1];
    const int wide = sizes[2] > 1 && (int64_t)rows * width >= PARALLEL_FLOATS;
#pragma omp parallel for num_threads(sizes[2]) if (wide)
    for (int t = 0; t < rows; t++) {
        float *row = x + (int64_t)t * width;
        for (int i = 0; i < width; i++) row[i] += delta[(int64_t)t * width + i];
        norm_row(row, weight, out + (int64_t)t * width, width, epsilon);
    }
}

/* Rotates the first `heads` heads of x [rows][heads][2 half] in place, rotate-half layout.
 * cosine, sine: [positions][half]. */
void rope(float *x, const int64_t *positions, const float *cosine, const float *sine,
          const int64_t *strides, const int32_t *sizes /* rows, heads, half, threads */) {
    const int rows = sizes[0], heads = sizes[1], half = sizes[2];
    const int wide = sizes[3] > 1 && (int64_t)rows * heads * half >= PARALLEL_FLOATS;
#pragma omp parallel for num_threads(sizes[3]) if (wide)
    for (int t = 0; t < rows; t++) {
        const float *c = cosine + positions[t] * half, *s = sine + positions[t] * half;
        for (int h = 0; h < heads; h++) {
            float *restrict low = x + t * strides[0] + h * strides[1], *restrict high = low + half;
            for (int i = 0; i < half; i++) {
                float a = low[i], b = high[i];
                low[i] = a * c[i] - b * s[i];
                high[i] = b * c[i] + a * s[i];
            }
        }
    }
}

INLINE v16 silu(v16 x) { return x / (splat(1.0f) + exp16(-x)); }

/* out [rows][width] = silu(gate) * up, where x [rows][2 width] holds gate, then up. */
void silu_mul(const float *x, float *out, const int32_t *sizes /* rows, width, threads */) {
    const int rows = sizes[0], width = sizes[1];
    const int wide = sizes[2] > 1 && (int64_t)rows * width >= PARALLEL_FLOATS;
#pragma omp parallel for num_threads(sizes[2]) if (wide)
    for (int t = 0; t < rows; t++) {
        const float *gate = x + (int64_t)t * 2 * width, *up = gate + width;
        float *to = out + (int64_t)t * width;
        int i = 0;
        for (; i + LANES <= width; i += LANES)
            store(to + i, silu(load(gate + i)) * load(up + i));
        if (i < width)
            store_part(to + i, silu(load_part(gate + i, width - i)) * load_part(up + i, width - i),
                       width - i);
    }
}
