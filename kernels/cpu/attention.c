/* Causal attention over K/V pages, in place. Compiled once per HEAD_DIM.
 *
 *   K  [blocks][kv heads][HEAD_DIM][16]     one block holds 16 slots, lanes side by side
 *   V  [blocks][kv heads][16][WIDTH]        WIDTH = HEAD_DIM rounded up to 16; what lies behind
 *                                           HEAD_DIM is computed with and never given out
 *
 * A query row meets its keys in tiles at absolute positions [16 i, 16 i + 16), whatever the page
 * size, and every row does one and the same arithmetic on a tile: 16 dot products, each a chain
 * over HEAD_DIM; one online-softmax step; one chain over the tile's lanes per output element.
 * Rows only share the loading of a tile. So a row's result depends on nothing but its query and
 * the K/V at its positions, bit for bit.
 *
 * A job is up to JOB_ROWS rows of one kv head. Consecutive rows whose tile lies in the same block
 * (tokens of one prefill, or sequences that share a prefix page) pass over it together. */
#include "crew.h"
#include "vec.h"

#ifndef HEAD_DIM
#define HEAD_DIM 64
#endif
#define VECTORS ((HEAD_DIM + LANES - 1) / LANES)
#define WIDTH (VECTORS * LANES)
#define JOB_ROWS 32
#define AHEAD 2 /* tiles to fetch ahead */
#ifdef __AVX512F__
#define SCORE_ROWS 8
#define VALUE_ROWS 4
#else
#define SCORE_ROWS 3
#define VALUE_ROWS 1
#endif

/* Mirrored field by field in attention.py. Strides count floats. */
struct request {
    const float *query, *keys, *values;
    float *out;
    const int32_t *block_table;  /* [S][table_stride] */
    const int32_t *context_len;  /* [S] */
    const int32_t *token_seq;    /* [T] sequence of each token, in job order */
    const int32_t *token_row;    /* [T] row of query and out */
    const int32_t *token_pos;    /* [T] position */
    int64_t query_token_stride, query_head_stride;
    int32_t num_tokens, num_heads, num_kv_heads, table_stride, page_size;
    int32_t sliding_window; /* 0: none */
    float scale, softcap;   /* softcap 0: none */
    struct crew *crew;
};

struct row {
    const int32_t *table;
    float *out;
    int lo, hi, context; /* sees [lo, hi); its sequence holds [0, context) */
};

/* next: the block that the same row needs AHEAD tiles later, fetched while this is computed. */
struct tile {
    const float *keys, *values, *next_keys, *next_values;
};

/* The state of the online softmax and what one job works on. */
struct job {
    _Alignas(64) float query[JOB_ROWS][HEAD_DIM];
    _Alignas(64) float acc[JOB_ROWS][WIDTH];
    _Alignas(64) float weight[JOB_ROWS][LANES];
    v16 sum[JOB_ROWS];
    float max[JOB_ROWS];
    struct row row[JOB_ROWS];
    struct tile tile[JOB_ROWS];
    _Alignas(64) float local_keys[HEAD_DIM][LANES], local_values[LANES][WIDTH];
    const int32_t *local_table;
    int local_index;
};

int32_t value_width(void) { return WIDTH; }

INLINE size_t key_block(const struct request *a, size_t block, int head) {
    return (block * a->num_kv_heads + head) * HEAD_DIM * LANES;
}

INLINE size_t value_block(const struct request *a, size_t block, int head) {
    return (block * a->num_kv_heads + head) * LANES * WIDTH;
}

/* Collects a tile whose slots do not lie side by side (page size no multiple of 16). */
static struct tile gather(const struct request *a, struct job *j, const struct row *row, int index,
                          int head) {
    struct tile local = {&j->local_keys[0][0], &j->local_values[0][0], NULL, NULL};
    if (j->local_table == row->table && j->local_index == index) return local;
    j->local_table = row->table;
    j->local_index = index;
    for (int t = 0; t < LANES; t++) {
        int position = index * LANES + t;
        if (position >= row->context) break;
        size_t slot = (size_t)row->table[position / a->page_size] * a->page_size +
                      position % a->page_size;
        const float *k = a->keys + key_block(a, slot / LANES, head) + slot % LANES;
        const float *v = a->values + value_block(a, slot / LANES, head) + slot % LANES * WIDTH;
        for (int d = 0; d < HEAD_DIM; d++) j->local_keys[d][t] = k[d * LANES];
        memcpy(j->local_values[t], v, WIDTH * sizeof(float));
    }
    return local;
}

/* Block of a row's tile `index`; only where the page size is a multiple of 16. */
INLINE size_t block_of(const struct request *a, const struct row *row, int index) {
    int position = index * LANES;
    return (size_t)row->table[position / a->page_size] * (a->page_size / LANES) +
           position % a->page_size / LANES;
}

INLINE struct tile locate(const struct request *a, struct job *j, const struct row *row, int index,
                          int head) {
    if (a->page_size % LANES) return gather(a, j, row, index, head);
    size_t block = block_of(a, row, index);
    size_t next = (index + AHEAD) * LANES < row->hi ? block_of(a, row, index + AHEAD) : block;
    return (struct tile){
        a->keys + key_block(a, block, head), a->values + value_block(a, block, head),
        a->keys + key_block(a, next, head), a->values + value_block(a, next, head)};
}

/* weight[r][lane] = query[r] . key[lane]; next may be NULL. */
INLINE void scores(const int rows, const float *keys, const float *next,
                   float (*query)[HEAD_DIM], float (*weight)[LANES]) {
    v16 dot[SCORE_ROWS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) dot[r] = splat(0.0f);
#pragma GCC unroll 4
    for (int d = 0; d < HEAD_DIM; d++) {
        v16 key = load(keys + d * LANES);
        if (next) FETCH(next + d * LANES);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) dot[r] += query[r][d] * key;
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) store(weight[r], dot[r]);
}

/* acc[r][from..from+16n) += sum over lanes [lo, hi) in order of weight[r][t] * value[t]. */
INLINE void add_values(const int rows, const int n, const float *values, const float *next,
                       int lo, int hi, float (*weight)[LANES], float (*acc)[WIDTH]) {
    v16 sum[VALUE_ROWS][4];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) sum[r][i] = load(acc[r] + i * LANES);
    for (int t = lo; t < hi; t++) {
        v16 value[4];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) {
            value[i] = load(values + t * WIDTH + i * LANES);
            KEEP(value[i]);
            if (next) FETCH(next + t * WIDTH + i * LANES);
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int i = 0; i < n; i++) sum[r][i] += weight[r][t] * value[i];
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) store(acc[r] + i * LANES, sum[r][i]);
}

INLINE void add_wide(const int rows, const struct tile *tile, int ahead, int lo, int hi,
                     float (*weight)[LANES], float (*acc)[WIDTH]) {
    const float *next = ahead ? tile->next_values : NULL;
    for (int i = 0; i < VECTORS; i += 4) {
        float(*part)[WIDTH] = (float(*)[WIDTH])(acc[0] + i * LANES);
        const float *values = tile->values + i * LANES, *to = next ? next + i * LANES : NULL;
        if (i + 4 <= VECTORS)
            add_values(rows, 4, values, to, lo, hi, weight, part);
        else
            add_values(rows, VECTORS % 4, values, to, lo, hi, weight, part);
    }
}

/* One online-softmax step has three parts; each works on one row, in place on weight[r]. */
INLINE void cap_scores(const struct request *a, struct job *j, int r) {
    v16 e = exp16(load(j->weight[r]) * splat(2.0f / a->softcap));
    store(j->weight[r],
          splat(a->softcap) * (splat(1.0f) - splat(2.0f) / (e + splat(1.0f))));
}

/* Raises the row's maximum to its scores on the mask and shrinks what was summed so far. */
INLINE void raise_max(struct job *j, int r, m16 mask) {
    float peak = lane_max(pick(mask, load(j->weight[r]), splat(-3.0e38f)));
    if (!(peak > j->max[r])) return;
    v16 shrink = exp16(splat(j->max[r] - peak));
    j->max[r] = peak;
    j->sum[r] *= shrink;
    for (int i = 0; i < VECTORS; i++)
        store(j->acc[r] + i * LANES, load(j->acc[r] + i * LANES) * shrink);
}

/* Scores become weights; lanes off the mask weigh nothing. */
INLINE void weigh(struct job *j, int r, m16 mask) {
    v16 weight = exp16(load(j->weight[r]) - splat(j->max[r]));
    weight = pick(mask, weight, splat(0.0f));
    store(j->weight[r], weight);
    j->sum[r] += weight;
}

/* The step for rows that see the whole tile. Late tiles seldom raise a maximum: one look at all
 * rows together spares most of them the search for their own. */
static void soften(const struct request *a, struct job *j, int from, int n) {
    const m16 all = (m16){} == (m16){};
    m16 above = {};
    if (a->softcap > 0.0f)
        for (int r = from; r < from + n; r++) cap_scores(a, j, r);
    for (int r = from; r < from + n; r++) above |= load(j->weight[r]) > splat(j->max[r]);
    if (any_lane(above))
        for (int r = from; r < from + n; r++) raise_max(j, r, all);
    for (int r = from; r < from + n; r++) weigh(j, r, all);
}

#define SCORES(rows)                                                                   \
    scores(rows, tile->keys, i ? NULL : tile->next_keys, j->query + from + i,             \
           j->weight + from + i);                                                         \
    i += rows;
#define VALUES(rows)                                                                   \
    add_wide(rows, tile, i == 0, 0, LANES, j->weight + from + i, j->acc + from + i);      \
    i += rows;

/* Rows [from, from + n) all see the whole tile. */
static void whole_tile(const struct request *a, struct job *j, int from, int n,
                       const struct tile *tile) {
    for (int i = 0; i < n;) {
        if (n - i >= SCORE_ROWS) {
            SCORES(SCORE_ROWS)
#ifdef __AVX512F__
        } else if (n - i >= 6) {
            SCORES(6)
        } else if (n - i >= 4) {
            SCORES(4)
        } else if (n - i == 3) {
            SCORES(3)
#endif
        } else if (n - i == 2) {
            SCORES(2)
        } else {
            SCORES(1)
        }
    }
    for (int i = 0; i < n; i += SCORE_ROWS)
        soften(a, j, from + i, n - i < SCORE_ROWS ? n - i : SCORE_ROWS);
    for (int i = 0; i < n;) {
#ifdef __AVX512F__
        if (n - i >= 4) {
            VALUES(4)
        } else if (n - i == 3) {
            VALUES(3)
        } else if (n - i == 2) {
            VALUES(2)
        } else
#endif
        {
            VALUES(1)
        }
    }
}

/* One row sees lanes [lo, hi) of the tile; the others are never multiplied. */
static void part_tile(const struct request *a, struct job *j, int r, int lo, int hi,
                      const struct tile *tile) {
    const m16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const m16 mask = (lane >= lo) & (lane < hi);
    scores(1, tile->keys, tile->next_keys, j->query + r, j->weight + r);
    if (a->softcap > 0.0f) cap_scores(a, j, r);
    raise_max(j, r, mask);
    weigh(j, r, mask);
    add_wide(1, tile, 1, lo, hi, j->weight + r, j->acc + r);
}

/* Loads flat rows [first, end) of one kv head; row x is query head x % group of token x / group. */
static int load_rows(const struct request *a, struct job *j, int head, int64_t first, int64_t end) {
    int group = a->num_heads / a->num_kv_heads, n = 0;
    for (int64_t x = first; x < end; x++, n++) {
        int64_t token = x / group, h = (int64_t)head * group + x % group;
        int64_t t = a->token_row[token];
        int s = a->token_seq[token], position = a->token_pos[token], window = a->sliding_window;
        int lo = window > 0 && position >= window ? position - window + 1 : 0;
        const float *q = a->query + t * a->query_token_stride + h * a->query_head_stride;
        for (int d = 0; d < HEAD_DIM; d++) j->query[n][d] = q[d] * a->scale;
        memset(j->acc[n], 0, sizeof j->acc[n]);
        j->sum[n] = splat(0.0f);
        j->max[n] = -3.0e38f;
        j->row[n] = (struct row){a->block_table + (size_t)s * a->table_stride,
                                 a->out + (t * a->num_heads + h) * HEAD_DIM, lo, position + 1,
                                 a->context_len[s]};
    }
    return n;
}

static void run_tile(const struct request *a, struct job *j, int n, int index, int head) {
    int start = index * LANES, end = start + LANES;
    for (int r = 0; r < n;) {
        const struct row *row = &j->row[r];
        if (row->hi <= start || row->lo >= end) {
            r++;
            continue;
        }
        struct tile tile = locate(a, j, row, index, head);
        if (row->lo > start || row->hi < end) {
            int lo = row->lo > start ? row->lo - start : 0;
            int hi = row->hi < end ? row->hi - start : LANES;
            part_tile(a, j, r, lo, hi, &tile);
            r++;
            continue;
        }
        int m = 1;
        for (; r + m < n; m++) {
            const struct row *next = row + m;
            if (next->lo > start || next->hi < end) break;
            if (next->table == row->table) continue;
            if (a->page_size % LANES || block_of(a, next, index) != block_of(a, row, index)) break;
        }
        whole_tile(a, j, r, m, &tile);
        r += m;
    }
}

static void run_job(const struct request *a, struct job *j, int head, int64_t first, int64_t end) {
    int n = load_rows(a, j, head, first, end);
    int lo = j->row[0].lo, hi = j->row[0].hi;
    for (int r = 1; r < n; r++) {
        if (j->row[r].lo < lo) lo = j->row[r].lo;
        if (j->row[r].hi > hi) hi = j->row[r].hi;
    }
    j->local_table = NULL;
    for (int index = lo / LANES; index * LANES < hi; index++) run_tile(a, j, n, index, head);
    for (int r = 0; r < n; r++) {
        float inverse = 1.0f / lane_sum(j->sum[r]);
        for (int d = 0; d < HEAD_DIM; d++) j->row[r].out[d] = j->acc[r][d] * inverse;
    }
}

INLINE int64_t rows_of(const struct request *a) {
    return (int64_t)a->num_tokens * (a->num_heads / a->num_kv_heads);
}

INLINE int64_t jobs_of(const struct request *a) { return (rows_of(a) + JOB_ROWS - 1) / JOB_ROWS; }

static void attend_task(const void *context, int64_t i) {
    const struct request *a = context;
    int64_t rows = rows_of(a), jobs = jobs_of(a);
    int64_t first = i % jobs * JOB_ROWS, end = first + JOB_ROWS;
    struct job j;
    run_job(a, &j, (int)(i / jobs), first, end < rows ? end : rows);
}

/* Fills out [T][num_heads][HEAD_DIM]. kv heads outermost: sequences that share pages find one
 * head's K/V of the prefix still in the cache. */
void attend(const struct request *a) {
    share(a->crew, jobs_of(a) * a->num_kv_heads, attend_task, a);
}

/* Stores one layer's new keys and values [T][kv heads][HEAD_DIM] in their slots. */
void write_pages(const float *key, const float *value, float *keys, float *values,
                 const int64_t *slots, const int64_t *strides, int32_t num_tokens,
                 int32_t num_kv_heads) {
    struct request a = {.num_kv_heads = num_kv_heads};
    for (int t = 0; t < num_tokens; t++)
        for (int h = 0; h < num_kv_heads; h++) {
            size_t block = slots[t] / LANES, lane = slots[t] % LANES;
            const float *k = key + t * strides[0] + h * strides[1];
            const float *v = value + t * strides[2] + h * strides[3];
            float *to_k = keys + key_block(&a, block, h) + lane;
            float *to_v = values + value_block(&a, block, h) + lane * WIDTH;
            for (int d = 0; d < HEAD_DIM; d++) to_k[d * LANES] = k[d];
            memcpy(to_v, v, HEAD_DIM * sizeof(float));
        }
}
