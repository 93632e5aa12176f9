/* Which tiles a sparse row reads: kernels/dflash.py in C. */
#ifndef PANDO_CHOOSE_H
#define PANDO_CHOOSE_H

#include "rows.h"

#define FIRST_TILES 1
#define RECENT_TILES 4

/* A query row in two parts, of which each meets one of a tile's bounds: where a score is largest
 * three quarters count, where it is smallest one quarter. */
struct parted {
    _Alignas(64) float up[WIDTH], down[WIDTH];
};

INLINE void part(struct parted *p, const float *query) {
    memset(p, 0, sizeof *p);
    for (int d = 0; d < HEAD_DIM; d++) {
        float size = __builtin_fabsf(query[d]);
        p->up[d] = 0.5f * query[d] + 0.25f * size;
        p->down[d] = 0.5f * query[d] - 0.25f * size;
    }
}

/* What a tile is worth to the row that it is worth most to. */
INLINE float worth_of(const float *bounds, const struct parted *rows, int n) {
    float best = LOWEST;
    for (int r = 0; r < n; r++) {
        v16 sum = splat(0.0f);
        for (int i = 0; i < WIDTH; i += LANES) {
            sum += load(rows[r].down + i) * load(bounds + i);
            sum += load(rows[r].up + i) * load(bounds + WIDTH + i);
        }
        float worth = lane_sum(sum);
        if (worth > best) best = worth;
    }
    return best;
}

/* Floats in the order of integers. */
INLINE int32_t rank_of(float x) {
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits < 0 ? bits ^ 0x7fffffff : bits;
}

INLINE int64_t count_at_least(const int32_t *rank, int n, int64_t least) {
    int64_t count = 0;
    for (int i = 0; i < n; i++) count += rank[i] >= least;
    return count;
}

/* Writes the `keep` tiles of n that are worth most to chosen, in order of position; of equals the
 * earlier. Those at both ends are always among them. rank: of each tile's worth, spoilt. */
static void choose(int32_t *rank, int n, int keep, int32_t *chosen) {
    for (int i = 0; i < FIRST_TILES; i++) rank[i] = INT32_MAX;
    for (int i = n - RECENT_TILES; i < n; i++) rank[i] = INT32_MAX;
    /* The largest threshold that at least `keep` reach; those above it are fewer than that. */
    int64_t low = INT32_MIN, high = INT32_MAX;
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (count_at_least(rank, n, middle) >= keep)
            low = middle;
        else
            high = middle - 1;
    }
    int64_t ties = keep - count_at_least(rank, n, low + 1);
    for (int i = 0, found = 0; i < n; i++) {
        if (rank[i] > low || (rank[i] == low && ties-- > 0)) chosen[found++] = i;
    }
}

#endif
