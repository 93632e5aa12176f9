/* Which tiles a sparse row reads: kernels/dflash.py in C.
 *
 *   weigh    of a span of tiles and each row: the largest score by the sketches, and for each tile
 *            the sum of exp(score - it)
 *   rate     a tile's share of what a row attends to; the largest over rows
 *   choose   the tiles that are worth most */
#ifndef PANDO_CHOOSE_H
#define PANDO_CHOOSE_H

#include "rows.h"
#include "sketch.h"

#define FIRST_TILES 1
#define RECENT_TILES 4
#define SPAN 64 /* tiles that are weighed together, a multiple of LANES */

/* What is known of a row: mass of each tile, peak of each span. */
struct weights {
    float *mass, *peak;
};

/* Tiles of one span that a task weighs: where their sketches lie, and how many keys are seen. */
struct span {
    const sketch *tile[SPAN], *ahead[SPAN];
    int index, count, keys;
};

INLINE v16 scored(m16 product, const sketch *s, const struct asked *asked, float softcap) {
    v16 score = __builtin_convertvector(product, v16) * load(s->scale) * splat(asked->factor);
    if (softcap > 0.0f) {
        float capped[LANES];
        store(capped, score);
        cap_scores(capped, softcap, 1);
        score = load(capped);
    }
    return score;
}

INLINE void weigh_span(const int rows, const struct span *s, float softcap,
                       const struct asked *asked, struct weights *to) {
    float score[MOST_ROWS][SPAN * LANES];
    v16 most[MOST_ROWS];
    m16 products[MOST_ROWS];
    for (int r = 0; r < rows; r++) most[r] = splat(LOWEST);
    for (int t = 0; t < s->count; t++) {
        const char *ahead = (const char *)s->ahead[t];
        for (size_t k = 0; k < sizeof(sketch); k += 64) FETCH(ahead + k);
        meet(rows, s->tile[t], asked, products);
        for (int r = 0; r < rows; r++) {
            v16 found = scored(products[r], s->tile[t], asked + r, softcap);
            if (s->keys < (t + 1) * LANES)
                found = pick(seen(t, 0, s->keys), found, splat(LOWEST));
            most[r] = larger(found, most[r]);
            store(score[r] + t * LANES, found);
        }
    }
    for (int r = 0; r < rows; r++) {
        float peak = lane_max(most[r]), *mass = to[r].mass + s->index * SPAN;
        to[r].peak[s->index] = peak;
        for (int t = 0; t < s->count; t++)
            mass[t] = lane_sum(exp16(load(score[r] + t * LANES) - splat(peak)));
        for (int t = s->count; t < SPAN; t++) mass[t] = 0.0f;
    }
}

/* Raises worth to the share of the row's attention that lies in each tile of so many spans. */
static void rate(const struct weights *row, int spans, float *worth) {
    float most = LOWEST, shrink[LANES];
    v16 sum = splat(0.0f);
    for (int s = 0; s < spans; s++) most = row->peak[s] > most ? row->peak[s] : most;
    for (int s = 0; s < spans; s++) {
        store(shrink, exp16(splat(row->peak[s] - most)));
        for (int i = 0; i < SPAN; i += LANES) {
            v16 mass = load(row->mass + s * SPAN + i) * splat(shrink[0]);
            store(row->mass + s * SPAN + i, mass);
            sum += mass;
        }
    }
    v16 inverse = splat(1.0f / lane_sum(sum));
    for (int i = 0; i < spans * SPAN; i += LANES)
        store(worth + i, larger(load(row->mass + i) * inverse, load(worth + i)));
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
