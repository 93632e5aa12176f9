/* y = x w^T + bias on packed weights.
 *
 *   w [N][K]  ->  packed [ceil(N / PANEL)][K][PANEL]     zero padded; one panel is PANEL outputs
 *
 * Each y[m][n] is one chain of multiply-adds over k = 0..K-1, the bias last, whatever M, N, the
 * threads or the blocking: a row's result does not depend on the rows beside it, bit for bit.
 * Panels are the outer loop, so for few rows the weights stream from memory once. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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
#define AHEAD 16 /* panel rows to prefetch ahead */
#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(LANE * 4)));

INLINE vec load(const float *p) {
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

int32_t panel_width(void) { return PANEL; }

/* Packs rows of w (row stride ldw) into panels; out holds ceil(N / PANEL) * K * PANEL floats. */
void pack_weight(const float *w, int64_t ldw, float *out, int32_t N, int32_t K) {
    for (int64_t n = 0; n < N; n += PANEL)
        for (int k0 = 0; k0 < K; k0 += 64)
            for (int i = 0; i < PANEL; i++)
                for (int k = k0; k < K && k < k0 + 64; k++)
                    out[n * K + (int64_t)k * PANEL + i] = n + i < N ? w[(n + i) * ldw + k] : 0.0f;
}

/* x block of `rows` rows, packed [K][rows]; y row stride ldy; only `width` outputs are stored. */
INLINE void kernel(const int rows, const float *x, const float *w, const float *bias, float *y,
                   int64_t ldy, int K, int width) {
    vec sum[ROWS][VECS];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int i = 0; i < VECS; i++) sum[r][i] = (vec){};
    for (int k = 0; k < K; k++, x += rows, w += PANEL) {
        vec b[VECS];
        if (rows < 4)
            for (int i = 0; i < PANEL; i += 16) __builtin_prefetch(w + AHEAD * PANEL + i);
#pragma GCC unroll 4
        for (int i = 0; i < VECS; i++) b[i] = load(w + i * LANE);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int i = 0; i < VECS; i++) sum[r][i] += x[r] * b[i];
    }
    vec shift[VECS];
    float padded[PANEL] = {0};
    if (bias) memcpy(padded, bias, width * sizeof(float));
    for (int i = 0; i < VECS; i++) shift[i] = load(padded + i * LANE);
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int i = 0; i < VECS; i++) sum[r][i] += shift[i];
        if (width == PANEL) {
            memcpy(y + r * ldy, sum[r], sizeof sum[r]);
        } else {
            memcpy(padded, sum[r], sizeof padded);
            memcpy(y + r * ldy, padded, width * sizeof(float));
        }
    }
}

#define CASE(n)                                           \
    case n:                                               \
        kernel(n, x, w, bias, y, ldy, K, width);          \
        break;

static void block(int rows, const float *x, const float *w, const float *bias, float *y,
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

/* First row of block i when M rows are dealt evenly to `blocks` blocks. */
INLINE int64_t begin(int64_t M, int64_t blocks, int64_t i) { return M * i / blocks; }

/* Returns 0, or 1 when scratch memory for x could not be had. */
int32_t linear(const float *x, int64_t ldx, const float *packed, const float *bias, float *y,
               const int32_t *sizes /* M, N, K, threads */) {
    const int64_t M = sizes[0], N = sizes[1], K = sizes[2], threads = sizes[3];
    const int64_t blocks = (M + ROWS - 1) / ROWS, panels = (N + PANEL - 1) / PANEL;
    float *scratch = M > 1 ? aligned_alloc(64, (M * K * 4 + 63) / 64 * 64) : NULL;
    if (M > 1 && !scratch) return 1;
    const float *rows = M > 1 ? scratch : x;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        if (M > 1) {
#pragma omp for schedule(static)
            for (int64_t i = 0; i < blocks; i++) {
                int64_t m0 = begin(M, blocks, i), n = begin(M, blocks, i + 1) - m0;
                for (int64_t r = 0; r < n; r++)
                    for (int64_t k = 0; k < K; k++)
                        scratch[m0 * K + k * n + r] = x[(m0 + r) * ldx + k];
            }
        }
#pragma omp for schedule(static)
        for (int64_t p = 0; p < panels; p++) {
            int width = N - p * PANEL < PANEL ? (int)(N - p * PANEL) : PANEL;
            for (int64_t i = 0; i < blocks; i++) {
                int64_t m0 = begin(M, blocks, i), n = begin(M, blocks, i + 1) - m0;
                block((int)n, rows + m0 * K, packed + p * K * PANEL,
                      bias ? bias + p * PANEL : NULL, y + m0 * N + p * PANEL, N, (int)K, width);
            }
        }
    }
    free(scratch);
    return 0;
}
