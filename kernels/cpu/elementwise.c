/* The row-wise operations between the matrix products. A row's result depends on that row alone:
 * sums run over sixteen lanes in a fixed order, tails are padded to whole vectors. Strides count
 * floats. */
#include <math.h>

#include "crew.h"
#include "vec.h"

#define SHARED_FLOATS 65536 /* below, helpers cost more than they bring */
#define TASK_ROWS 32

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

/* One call's arguments; what a member means is said at the function that fills it. */
struct rows {
    const float *x, *delta, *weight, *cosine, *sine;
    const int64_t *positions, *strides;
    float *out, *in_place;
    int64_t rows, groups, width;
    float epsilon;
    void (*row)(const struct rows *, int64_t row);
};

static void rows_task(const void *context, int64_t task) {
    const struct rows *a = context;
    int64_t end = (task + 1) * TASK_ROWS;
    for (int64_t t = task * TASK_ROWS; t < (end < a->rows ? end : a->rows); t++) a->row(a, t);
}

static void each_row(const struct rows *a, struct crew *crew) {
    int wide = a->rows * a->groups * a->width >= SHARED_FLOATS;
    share(wide ? crew : NULL, (a->rows + TASK_ROWS - 1) / TASK_ROWS, rows_task, a);
}

static void norm_groups(const struct rows *a, int64_t t) {
    for (int64_t g = 0; g < a->groups; g++)
        norm_row(a->x + t * a->strides[0] + g * a->strides[1], a->weight,
                 a->out + t * a->strides[2] + g * a->strides[3], (int)a->width, a->epsilon);
}

/* out = x / rms(x) * weight over the last axis of x [rows][groups][width]; out may be x. */
void rms_norm(const float *x, const float *weight, float *out, const int64_t *strides,
              const int32_t *sizes /* rows, groups, width */, float epsilon, struct crew *crew) {
    struct rows a = {.x = x, .weight = weight, .out = out, .strides = strides, .rows = sizes[0],
                     .groups = sizes[1], .width = sizes[2], .epsilon = epsilon,
                     .row = norm_groups};
    each_row(&a, crew);
}

static void add_norm(const struct rows *a, int64_t t) {
    float *row = a->in_place + t * a->width;
    for (int64_t i = 0; i < a->width; i++) row[i] += a->delta[t * a->width + i];
    norm_row(row, a->weight, a->out + t * a->width, (int)a->width, a->epsilon);
}

/* x += delta, then out = x / rms(x) * weight; all [rows][width], dense. */
void add_rms_norm(float *x, const float *delta, const float *weight, float *out,
                  const int32_t *sizes /* rows, width */, float epsilon, struct crew *crew) {
    struct rows a = {.in_place = x, .delta = delta, .weight = weight, .out = out,
                     .rows = sizes[0], .groups = 1, .width = sizes[1], .epsilon = epsilon,
                     .row = add_norm};
    each_row(&a, crew);
}

static void rotate(const struct rows *a, int64_t t) {
    const int64_t half = a->width / 2;
    const float *c = a->cosine + a->positions[t] * half, *s = a->sine + a->positions[t] * half;
    for (int64_t h = 0; h < a->groups; h++) {
        float *restrict low = a->in_place + t * a->strides[0] + h * a->strides[1];
        float *restrict high = low + half;
        for (int64_t i = 0; i < half; i++) {
            float x = low[i], y = high[i];
            low[i] = x * c[i] - y * s[i];
            high[i] = y * c[i] + x * s[i];
        }
    }
}

/* Rotates x [rows][heads][width] in place, rotate-half layout. cosine, sine: [positions][width/2]. */
void rope(float *x, const int64_t *positions, const float *cosine, const float *sine,
          const int64_t *strides, const int32_t *sizes /* rows, heads, width */,
          struct crew *crew) {
    struct rows a = {.in_place = x, .positions = positions, .cosine = cosine, .sine = sine,
                     .strides = strides, .rows = sizes[0], .groups = sizes[1],
                     .width = sizes[2], .row = rotate};
    each_row(&a, crew);
}

INLINE v16 silu(v16 x) { return x / (splat(1.0f) + exp16(-x)); }

static void gated(const struct rows *a, int64_t t) {
    const int64_t width = a->width;
    const float *gate = a->x + t * 2 * width, *up = gate + width;
    float *to = a->out + t * width;
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) store(to + i, silu(load(gate + i)) * load(up + i));
    int left = (int)(width - i);
    if (left) store_part(to + i, silu(load_part(gate + i, left)) * load_part(up + i, left), left);
}

/* out [rows][width] = silu(gate) * up, where x [rows][2 width] holds gate, then up. */
void silu_mul(const float *x, float *out, const int32_t *sizes /* rows, width */,
              struct crew *crew) {
    struct rows a = {.x = x, .out = out, .rows = sizes[0], .groups = 1, .width = sizes[1],
                     .row = gated};
    each_row(&a, crew);
}
