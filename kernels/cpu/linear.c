/* y = x w^T + bias on packed weights. With HALF they are kept as float16 and widened as they are read;
 * sums are float32 all the same.
 *
 *   w [N][K]  ->  packed [ceil(N / PANEL)][K][PANEL]     zero padded; one panel is PANEL outputs
 *
 * Each y[m][n] is a sum over runs of RUN products, each run one chain of multiply-adds, the runs
 * added in order, the bias last, whatever M, N, the threads or the blocking: a row's result does
 * not depend on the rows beside it, bit for bit. (Runs, since the rounding error of one chain grows
 * with its length.)
 * Panels are the outer loop, so for few rows the weights stream from memory once. */
#include "crew.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if HALF && defined(__F16C__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define LANE 16
#define VECS 2
#define ROWS 12
#elif defined(__AVX2__)
#define LANE 8
#define VECS 2
#define ROWS 6
#else
#define LANE 4
#define VECS 4
#define ROWS 6
#endif
#define PANEL (LANE * VECS)
#define RUN 64   /* products in one chain */
#define AHEAD 16 /* panel rows to fetch ahead */
#define TASKS 4   /* per thread and call */
#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(LANE * 4)));

INLINE vec load(const float *p) {
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

#if HALF
typedef _Float16 weight;
#else
typedef float weight;
#endif

/* A vector of weights as floats. */
INLINE vec widen(const weight *p) {
#if !HALF
    return load(p);
#elif defined(__AVX512F__)
    return (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
#elif defined(__F16C__) && LANE == 8
    return (vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
#else
    vec v;
    for (int i = 0; i < LANE; i++) v[i] = (float)p[i];
    return v;
#endif
}

int32_t panel_width(void) { return PANEL; }

/* Packs rows of w (row stride ldw) into panels; out holds ceil(N / PANEL) * K * PANEL of them. */
void pack_weight(const float *w, int64_t ldw, weight *out, int32_t N, int32_t K) {
    for (int64_t n = 0; n < N; n += PANEL)
        for (int k0 = 0; k0 < K; k0 += 64)
            for (int i = 0; i < PANEL; i++)
                for (int k = k0; k < K && k < k0 + 64; k++)
                    out[n * K + (int64_t)k * PANEL + i] = (weight)(n + i < N ? w[(n + i) * ldw + k] : 0.0f);
}

/* x block of `rows` rows, packed [K][rows]; y row stride ldy; only `width` outputs are stored. */
INLINE void kernel(const int rows, const float *x, const weight *w, const float *bias, float *y,
                   int64_t ldy, int K, int width) {
    vec total[ROWS][VECS];
    for (int k0 = 0; k0 < K; k0 += RUN) {
        vec sum[ROWS][VECS];
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int i = 0; i < VECS; i++) sum[r][i] = (vec){};
        int end = K - k0 < RUN ? K : k0 + RUN;
        for (int k = k0; k < end; k++, x += rows, w += PANEL) {
            vec b[VECS];
            if (rows < 4)
                for (int i = 0; i < PANEL; i += 64 / sizeof *w)
                    __builtin_prefetch(w + AHEAD * PANEL + i, 0, 2);
#pragma GCC unroll 4
            for (int i = 0; i < VECS; i++) b[i] = widen(w + i * LANE);
#pragma GCC unroll 16
            for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
                for (int i = 0; i < VECS; i++) sum[r][i] += x[r] * b[i];
        }
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int i = 0; i < VECS; i++) total[r][i] = k0 ? total[r][i] + sum[r][i] : sum[r][i];
    }
    vec shift[VECS];
    float padded[PANEL] = {0};
    if (bias) memcpy(padded, bias, width * sizeof(float));
    for (int i = 0; i < VECS; i++) shift[i] = load(padded + i * LANE);
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int i = 0; i < VECS; i++) total[r][i] += shift[i];
        if (width == PANEL) {
            memcpy(y + r * ldy, total[r], sizeof total[r]);
        } else {
            memcpy(padded, total[r], sizeof padded);
            memcpy(y + r * ldy, padded, width * sizeof(float));
        }
    }
}

#define CASE(n)                                           \
    case n:                                               \
        kernel(n, x, w, bias, y, ldy, K, width);          \
        break;

static void block(int rows, const float *x, const weight *w, const float *bias, float *y,
                  int64_t ldy, int K, int width) {
    switch (rows) {
        CASE(1)
        CASE(2)
        CASE(3)
        CASE(4)
        CASE(5)
        CASE(6)
#if ROWS == 12
        CASE(7)
        CASE(8)
        CASE(9)
        CASE(10)
        CASE(11)
        CASE(12)
#endif
    }
}

struct product {
    const float *x, *bias;
    const weight *packed;
    float *y, *rows; /* rows: x in blocks, each [K][rows of the block] */
    int64_t ldx, M, N, K, blocks, panels, tasks;
};

/* First item of part i when `items` are dealt evenly to `parts`. */
INLINE int64_t begin(int64_t items, int64_t parts, int64_t i) { return items * i / parts; }

/* Packs one block of x. */
static void gather_task(const void *context, int64_t i) {
    const struct product *p = context;
    int64_t m0 = begin(p->M, p->blocks, i), n = begin(p->M, p->blocks, i + 1) - m0;
    for (int64_t r = 0; r < n; r++)
        for (int64_t k = 0; k < p->K; k++)
            p->rows[m0 * p->K + k * n + r] = p->x[(m0 + r) * p->ldx + k];
}

/* Computes a run of panels for all rows. */
static void panel_task(const void *context, int64_t task) {
    const struct product *p = context;
    const float *rows = p->M > 1 ? p->rows : p->x;
    int64_t end = begin(p->panels, p->tasks, task + 1);
    for (int64_t panel = begin(p->panels, p->tasks, task); panel < end; panel++) {
        int64_t n0 = panel * PANEL, left = p->N - n0;
        for (int64_t i = 0; i < p->blocks; i++) {
            int64_t m0 = begin(p->M, p->blocks, i), n = begin(p->M, p->blocks, i + 1) - m0;
            block((int)n, rows + m0 * p->K, p->packed + n0 * p->K, p->bias ? p->bias + n0 : NULL,
                  p->y + m0 * p->N + n0, p->N, (int)p->K, left < PANEL ? (int)left : PANEL);
        }
    }
}

/* Returns 0, or 1 when scratch memory for x could not be had. y is dense. */
int32_t linear(const float *x, int64_t ldx, const weight *packed, const float *bias, float *y,
               const int32_t *sizes /* M, N, K */, struct crew *crew) {
    struct product p = {.x = x, .packed = packed, .bias = bias, .y = y, .ldx = ldx,
                        .M = sizes[0], .N = sizes[1], .K = sizes[2]};
    p.blocks = (p.M + ROWS - 1) / ROWS;
    p.panels = (p.N + PANEL - 1) / PANEL;
    p.tasks = crew ? crew->threads * TASKS : 1;
    if (p.tasks > p.panels) p.tasks = p.panels;
    if (p.M > 1) {
        p.rows = aligned_alloc(64, (p.M * p.K * 4 + 63) / 64 * 64);
        if (!p.rows) return 1;
        share(p.blocks > 4 ? crew : NULL, p.blocks, gather_task, &p);
    }
    share(crew, p.tasks, panel_task, &p);
    free(p.rows);
    return 0;
}
