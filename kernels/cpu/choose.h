/* Which tiles a sparse row reads: kernels/dflash.py in C.
 *
 *   weigh    of each tile and row: the largest score by the sketches, and the sum of exp(score - it)
 *   rate     a tile's share of what a row attends to; the largest over rows
 *   choose   the tiles that are worth most */
#ifndef PANDO_CHOOSE_H
#define PANDO_CHOOSE_H

#include "rows.h"
#include "sketch.h"

#define FIRST_TILES 1
#define RECENT_TILES 4

/* What is known of a row's tiles, [tiles] each; their number is rounded up to 16. */
struct weights {
    float *peak, *mass;
};

/* Weighs a tile of which `lanes` keys are seen. */
INLINE void weigh_tile(const int rows, const sketch *s, int lanes, int tile, float softcap,
                       const struct asked *asked, struct weights *to) {
    m16 products[MOST_ROWS];
    meet(rows, s, asked, products);
    for (int r = 0; r < rows; r++) {
        v16 score = __builtin_convertvector(products[r], v16) * load(s->scale);
        score *= splat(asked[r].factor);
        if (softcap > 0.0f) {
            float capped[LANES];
            store(capped, score);
            cap_scores(capped, softcap, 1);
            score = load(capped);
        }
        score = pick(seen(0, 0, lanes), score, splat(LOWEST));
        float peak = lane_max(score);
        to[r].peak[tile] = peak;
        to[r].mass[tile] = lane_sum(exp16(score - splat(peak)));
    }
}

/* Raises worth to the share of the row's attention that lies in each of n tiles. */
static void rate(const struct weights *row, int n, float *worth) {
    v16 most = splat(LOWEST), sum = splat(0.0f);
    for (int i = n; i % LANES; i++) {
        row->peak[i] = LOWEST;
        row->mass[i] = 0.0f;
    }
    for (int i = 0; i < n; i += LANES) most = larger(load(row->peak + i), most);
    v16 peak = splat(lane_max(most));
    for (int i = 0; i < n; i += LANES)
        sum += load(row->mass + i) * exp16(load(row->peak + i) - peak);
    v16 inverse = splat(1.0f / lane_sum(sum));
    for (int i = 0; i < n; i += LANES) {
        v16 share = load(row->mass + i) * exp16(load(row->peak + i) - peak) * inverse;
        store(worth + i, larger(share, load(worth + i)));
    }
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
