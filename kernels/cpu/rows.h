/* What rows do with a step: up to TILES tiles of 16 positions, found and in order.
 *
 * Every row does one and the same arithmetic on a step: for each key one chain of products over
 * HEAD_DIM; one step of online softmax; for each output element one chain over the positions that
 * the row sees. Rows only share the loading of tiles, and what a row does not see is never
 * multiplied. So it makes no difference to a row which others are beside it.
 *
 * Steps are gathered in runs of SPLIT positions: a run starts from nothing, and `fold` adds it to
 * what the row had. So runs may be computed apart and added in order. */
#ifndef PANDO_ROWS_H
#define PANDO_ROWS_H

#include "pages.h"

#define TILES 4
#define STEP (TILES * LANES)
#define SPLIT 4096 /* positions, a multiple of STEP */
#define LOWEST (-3.0e38f)
#define JOB_ROWS 24 /* few enough that threads end together, a multiple of MOST_ROWS */
#ifdef __AVX512F__
#define MOST_ROWS 6 /* that stay in registers */
#else
#define MOST_ROWS 3
#endif

struct row {
    const int32_t *table;
    float *out;
    int lo, hi, context; /* sees [lo, hi); its sequence holds [0, context) */
};

/* What online softmax knows of a run of positions. */
struct sums {
    _Alignas(64) float acc[WIDTH];
    v16 weight;
    float max;
};

struct job {
    _Alignas(64) float query[JOB_ROWS][HEAD_DIM];
    _Alignas(64) float weight[JOB_ROWS][STEP];
    struct sums run[JOB_ROWS], total[JOB_ROWS];
    struct row row[JOB_ROWS];
    float softcap;
    const struct row *then; /* taken behind the rows at hand, or NULL */
    block local[TILES]; /* of page sizes that are no multiple of 16 */
    const int32_t *local_table;
    int local_step;
};

/* Tiles [first, end) of one step hold what is seen; next[t]: taken behind tile t's step. */
struct step {
    const block *tile[TILES], *next[TILES];
    int first, end;
};

/* What is fetched while keys are multiplied, the values of the same tiles, and while these are added
 * up, the next step's keys: half a step lies ready in the nearest cache and half is on its way. As
 * lines are asked for at an even pace memory never waits, nor does arithmetic for room to ask. */
INLINE const element *half_of(const struct step *s, int half) {
    return half < TILES ? s->tile[half]->values[0] : s->next[half - TILES]->keys[0];
}

/* Asks for the line of which 16 elements are a part, once a line. */
INLINE void fetch16(const element *half, int index) {
    if (index * sizeof(element) % 4 == 0) FETCH(half + index * LANES);
}

INLINE void clear(struct sums *s) {
    memset(s->acc, 0, sizeof s->acc);
    s->weight = splat(0.0f);
    s->max = LOWEST;
}

/* Adds a run to what came before it. Adding to nothing is exact. */
INLINE void fold(struct sums *total, const struct sums *run) {
    float max = run->max > total->max ? run->max : total->max;
    v16 old = exp16(splat(total->max - max)), new = exp16(splat(run->max - max));
    for (int i = 0; i < WIDTH; i += LANES)
        store(total->acc + i, load(total->acc + i) * old + load(run->acc + i) * new);
    total->weight = total->weight * old + run->weight * new;
    total->max = max;
}

/* weight[r][16 t + lane] = query[r] . key for the tiles [t, t + tiles). Four of them together leave
 * the fetching of half 3 to `soften`, tile by tile each fetches one. */
INLINE void scores(const int rows, const int tiles, const struct step *s, int t, int ahead,
                   float (*query)[HEAD_DIM], float (*weight)[STEP]) {
    const int halves = tiles == TILES ? TILES - 1 : 1;
    v16 dot[MOST_ROWS][TILES];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int i = 0; i < tiles; i++) dot[r][i] = splat(0.0f);
#pragma GCC unroll 2
    for (int d = 0; d < HEAD_DIM; d++) {
        v16 key[TILES];
#pragma GCC unroll 4
        for (int i = 0; i < tiles; i++) key[i] = read16(s->tile[t + i]->keys[d]);
        if (ahead) {
#pragma GCC unroll 4
            for (int i = 0; i < halves; i++) fetch16(half_of(s, t + i), d);
        }
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int i = 0; i < tiles; i++) dot[r][i] += query[r][d] * key[i];
    }
#pragma GCC unroll 4
    for (int i = 0; i < tiles; i++) {
#if EIGHT_BIT
        v16 scale = load(s->tile[t + i]->key_scale);
#endif
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
#if EIGHT_BIT
            dot[r][i] *= scale;
#endif
            store(weight[r] + (t + i) * LANES, dot[r][i]);
        }
    }
}

/* acc[r][from..from + 16 n) += sum over lanes [lo, hi) in order of weight[r][lane] * value[lane]. */
INLINE void add_values(const int rows, const int n, const block *tile, const element *next,
                       int from, int lo, int hi, const float *weight, struct sums *run) {
    v16 sum[MOST_ROWS][4];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) sum[r][i] = load(run[r].acc + from + i * LANES);
    for (int lane = lo; lane < hi; lane++) {
        v16 value[4];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) {
            value[i] = read16(tile->values[lane] + from + i * LANES);
            KEEP(value[i]);
            if (next) fetch16(next + lane * WIDTH + from, i);
        }
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int i = 0; i < n; i++) sum[r][i] += weight[r * STEP + lane] * value[i];
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) store(run[r].acc + from + i * LANES, sum[r][i]);
}

INLINE void add_wide(const int rows, const block *tile, const element *next, int lo, int hi,
                     const float *weight, struct sums *run) {
    for (int from = 0; from < WIDTH; from += 4 * LANES) {
        if (from + 4 * LANES <= WIDTH)
            add_values(rows, 4, tile, next, from, lo, hi, weight, run);
        else
            add_values(rows, VECTORS % 4, tile, next, from, lo, hi, weight, run);
    }
}

INLINE void cap_scores(float *weight, float softcap, int end) {
    for (int i = 0; i < end * LANES; i += LANES) {
        v16 e = exp16(load(weight + i) * splat(2.0f / softcap));
        store(weight + i, splat(softcap) * (splat(1.0f) - splat(2.0f) / (e + splat(1.0f))));
    }
}

/* Which lanes of tile t see one that is within [lo, hi) of the step. */
INLINE m16 seen(int t, int lo, int hi) {
    const m16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return (lane + t * LANES >= lo) & (lane + t * LANES < hi);
}

/* Raises a row's maximum to its scores and shrinks what was summed so far. */
INLINE void raise_max(struct sums *run, const float *weight, int first, int end, int lo, int hi) {
    v16 most = splat(LOWEST);
    for (int t = first; t < end; t++)
        most = larger(pick(seen(t, lo, hi), load(weight + t * LANES), splat(LOWEST)), most);
    float peak = lane_max(most);
    if (!(peak > run->max)) return;
    v16 shrink = exp16(splat(run->max - peak));
    run->max = peak;
    run->weight *= shrink;
    for (int i = 0; i < WIDTH; i += LANES) store(run->acc + i, load(run->acc + i) * shrink);
}

/* Scores become weights; what is not seen weighs nothing. */
INLINE void weigh(struct sums *run, float *weight, const struct step *s, int lo, int hi) {
    const int whole = lo <= s->first * LANES && hi >= s->end * LANES;
    for (int t = s->first; t < s->end; t++) {
        v16 w = exp16(load(weight + t * LANES) - splat(run->max));
        if (!whole) w = pick(seen(t, lo, hi), w, splat(0.0f));
        run->weight += w;
#if EIGHT_BIT
        w *= load(s->tile[t]->value_scale);
#endif
        store(weight + t * LANES, w);
    }
}

/* One step of online softmax for rows [from, from + n). Late steps seldom raise a maximum: one
 * look at all rows together spares most of them the search for their own. next: fetched beside. */
INLINE void soften(struct job *j, int from, int n, const struct step *s, int start,
                   const element *next) {
    m16 above = {};
    for (int r = from; r < from + n; r++) {
        if (j->softcap > 0.0f) cap_scores(j->weight[r], j->softcap, s->end);
        for (int t = s->first; t < s->end; t++)
            above |= load(j->weight[r] + t * LANES) > splat(j->run[r].max);
    }
    for (int r = from; r < from + n; r++) {
        int lo = j->row[r].lo - start, hi = j->row[r].hi - start;
        if (any_lane(above)) raise_max(&j->run[r], j->weight[r], s->first, s->end, lo, hi);
        weigh(&j->run[r], j->weight[r], s, lo, hi);
        int begin = (r - from) * WIDTH / n, end = (r - from + 1) * WIDTH / n;
        for (int i = begin; next && i < end; i++) fetch16(next, i);
    }
}

INLINE int within(int lane, int most) { return lane < 0 ? 0 : lane > most ? most : lane; }

/* Adds the values of a tile's lanes to rows that each see [lo[r], hi[r]) of it: those that all see
 * together, what only some see row by row, in order of lanes. */
INLINE void add_tile(const int rows, const block *tile, const element *next, const int *lo,
                     const int *hi, const float *weight, struct sums *run) {
    int begin = 0, end = LANES;
    for (int r = 0; r < rows; r++) {
        begin = lo[r] > begin ? lo[r] : begin;
        end = hi[r] < end ? hi[r] : end;
    }
    if (end <= begin) begin = end = LANES;
    for (int r = 0; begin && r < rows; r++)
        add_wide(1, tile, NULL, lo[r], hi[r] < begin ? hi[r] : begin, weight + r * STEP, run + r);
    if (begin < end) add_wide(rows, tile, next, begin, end, weight, run);
    for (int r = 0; end < LANES && r < rows; r++)
        add_wide(1, tile, NULL, lo[r] > end ? lo[r] : end, hi[r], weight + r * STEP, run + r);
}

/* Adds the values of the step's tiles to rows [from, from + rows). */
INLINE void blend(const int rows, struct job *j, int from, const struct step *s, int start,
                  int ahead) {
    for (int t = s->first; t < s->end; t++) {
        int lo[MOST_ROWS], hi[MOST_ROWS], base = start + t * LANES;
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            lo[r] = within(j->row[from + r].lo - base, LANES);
            hi[r] = within(j->row[from + r].hi - base, LANES);
        }
        add_tile(rows, s->tile[t], ahead ? half_of(s, TILES + t) : NULL, lo, hi,
                 j->weight[from] + t * LANES, j->run + from);
    }
}

#define EACH(body)                                       \
    for (int i = 0, left; (left = n - i) > 0;) {         \
        if (left >= MOST_ROWS) {                         \
            const int rows = MOST_ROWS;                  \
            body i += rows;                              \
        } else if (MOST_ROWS > 3 && left >= 4) {         \
            const int rows = 4;                          \
            body i += rows;                              \
        } else if (left == 3) {                          \
            const int rows = 3;                          \
            body i += rows;                              \
        } else if (left == 2) {                          \
            const int rows = 2;                          \
            body i += rows;                              \
        } else {                                         \
            const int rows = 1;                          \
            body i += rows;                              \
        }                                                \
    }

/* Takes rows [from, from + n) over the step that begins at position `start`. */
static void take_step(struct job *j, int from, int n, const struct step *s, int start) {
#ifdef __AVX512F__
    const int together = s->first == 0 && s->end == TILES;
#else
    const int together = 0;
#endif
    EACH({
        if (together)
            scores(rows, TILES, s, 0, i == 0, j->query + from + i, j->weight + from + i);
        else
            for (int t = s->first; t < s->end; t++)
                scores(rows, 1, s, t, i == 0, j->query + from + i, j->weight + from + i);
    })
    EACH({ soften(j, from + i, rows, s, start, together && i == 0 ? half_of(s, 3) : NULL); })
    EACH({ blend(rows, j, from + i, s, start, i == 0); })
}

#endif
