/* Causal attention over K/V pages, in place. Compiled once per HEAD_DIM and kind of element.
 *
 * A query row meets its keys in steps at absolute positions [64 i, 64 i + 64), whatever the page
 * size; rows.h has the arithmetic, pages.h the layout. A job is up to JOB_ROWS rows of one kv head.
 * Consecutive rows whose step lies in the same pages (tokens of one prefill, or sequences that
 * share a prefix) pass over it together. Where jobs are fewer than threads could use, long contexts
 * are cut at multiples of SPLIT positions and their parts added in order: the same bits. */
#include "choose.h"
#include "crew.h"

#include <stdlib.h>

/* Mirrored field by field in attention.py. Strides count floats. */
struct request {
    const float *query;
    const block *pool;
    const float *bounds; /* needed where a row is sparse */
    float *out;
    const int32_t *block_table; /* [S][table_stride] */
    const int32_t *context_len; /* [S] */
    const int32_t *token_seq;   /* [T] sequence of each token, in job order; sparse ones last */
    const int32_t *token_row;   /* [T] row of query and out */
    const int32_t *token_pos;   /* [T] position */
    const int32_t *token_tiles; /* [T] tiles that a sparse token reads */
    int64_t query_token_stride, query_head_stride;
    int32_t num_tokens, num_sparse, num_heads, num_kv_heads, table_stride, page_size;
    int32_t max_context;
    int32_t sliding_window; /* 0: none */
    float scale, softcap;   /* softcap 0: none */
    struct crew *crew;
};

/* A request cut into jobs of one kv head and splits. parts: [jobs * heads][splits][JOB_ROWS], or
 * NULL where a job takes all of its splits. ranks: [sparse tokens * heads][2][tiles]. */
struct work {
    const struct request *request;
    struct sums *parts;
    int32_t *ranks;
    int64_t jobs, splits, tiles;
};

int64_t block_bytes(void) { return sizeof(block); }
int32_t value_width(void) { return WIDTH; }

INLINE int max_of(int a, int b) { return a > b ? a : b; }
INLINE int min_of(int a, int b) { return a < b ? a : b; }
INLINE int group_of(const struct request *a) { return a->num_heads / a->num_kv_heads; }

/* A tile's block of one kv head; only where the page size is a multiple of 16. */
INLINE size_t block_of(const struct request *a, const int32_t *table, int tile, int head) {
    int position = tile * LANES;
    size_t index = (size_t)table[position / a->page_size] * (a->page_size / LANES) +
                   position % a->page_size / LANES;
    return index * a->num_kv_heads + head;
}

/* Copies what a sequence holds of a step into the job's own blocks. */
static void gather(const struct request *a, struct job *j, const struct row *row, int step,
                   int head) {
    if (j->local_table == row->table && j->local_step == step) return;
    j->local_table = row->table;
    j->local_step = step;
    for (int t = 0; t < STEP && step * STEP + t < row->context; t++) {
        int position = step * STEP + t;
        size_t slot = (size_t)row->table[position / a->page_size] * a->page_size +
                      position % a->page_size;
        copy_lane(a->pool + slot / LANES * a->num_kv_heads + head, slot % LANES,
                  &j->local[t / LANES], t % LANES);
    }
}

/* Finds the tiles of a step that [row->lo, row->hi) sees, and those of the step behind it. */
static void locate(const struct request *a, struct job *j, const struct row *row, int step,
                   int head, struct step *s) {
    int start = step * STEP;
    s->first = max_of(row->lo - start, 0) / LANES;
    s->end = (min_of(row->hi - start, STEP) + LANES - 1) / LANES;
    if (a->page_size % LANES) {
        gather(a, j, row, step, head);
        for (int t = 0; t < TILES; t++) s->tile[t] = s->next[t] = &j->local[t];
        return;
    }
    for (int t = s->first; t < s->end; t++) {
        int tile = step * TILES + t, next = tile + TILES;
        s->tile[t] = a->pool + block_of(a, row->table, tile, head);
        s->next[t] = next * LANES < row->hi ? a->pool + block_of(a, row->table, next, head)
                                            : s->tile[t];
    }
}

/* Whether another row has the positions [from, to) in the same pages. */
INLINE int alike(const struct request *a, const struct row *row, const struct row *other, int from,
                 int to) {
    if (other->table == row->table) return 1;
    int first = from / a->page_size, end = (to + a->page_size - 1) / a->page_size;
    if (a->page_size % LANES || first >= end) return 0;
    return !memcmp(row->table + first, other->table + first, (end - first) * sizeof(int32_t));
}

/* Whether another row passes over a step together with `row`. Rows of one sequence do, whatever
 * they see of it; rows of two, where they see the same tiles in the same pages. */
INLINE int joins(const struct request *a, const struct row *row, const struct row *other,
                 int start) {
    if (other->hi <= start || other->lo >= start + STEP) return 0;
    if (other->table == row->table) return 1;
    int from = max_of(row->lo, start) / LANES, others = max_of(other->lo, start) / LANES;
    int to = (min_of(row->hi, start + STEP) + LANES - 1) / LANES;
    int end = (min_of(other->hi, start + STEP) + LANES - 1) / LANES;
    return from == others && to == end && alike(a, row, other, from * LANES, to * LANES);
}

/* Takes rows [from, end) over one step, those that share its tiles together. */
static void run_step(const struct request *a, struct job *j, int from, int end, int step,
                     int head) {
    int start = step * STEP;
    for (int r = from, n; r < end; r += n) {
        const struct row *row = &j->row[r];
        n = 1;
        if (row->hi <= start || row->lo >= start + STEP) continue;
        struct row all = *row;
        for (; r + n < end && joins(a, row, row + n, start); n++) {
            all.lo = min_of(all.lo, row[n].lo);
            all.hi = max_of(all.hi, row[n].hi);
        }
        struct step s;
        locate(a, j, &all, step, head, &s);
        take_step(j, r, n, &s, start);
    }
}

/* Loads flat rows [first, end) of one kv head; row x is query head x % group of token x / group. */
static int load_rows(const struct request *a, struct job *j, int head, int64_t first, int64_t end) {
    int group = group_of(a), n = 0;
    for (int64_t x = first; x < end; x++, n++) {
        int64_t token = x / group, h = (int64_t)head * group + x % group;
        int64_t t = a->token_row[token];
        int s = a->token_seq[token], position = a->token_pos[token], window = a->sliding_window;
        const float *q = a->query + t * a->query_token_stride + h * a->query_head_stride;
        for (int d = 0; d < HEAD_DIM; d++) j->query[n][d] = q[d] * a->scale;
        clear(&j->total[n]);
        j->row[n] = (struct row){a->block_table + (size_t)s * a->table_stride,
                                 a->out + (t * a->num_heads + h) * HEAD_DIM,
                                 window > 0 ? max_of(position - window + 1, 0) : 0, position + 1,
                                 a->context_len[s]};
    }
    j->softcap = a->softcap;
    j->local_table = NULL;
    return n;
}

/* Takes rows [from, end) over the positions of one split. */
static void run_split(const struct request *a, struct job *j, int from, int end, int64_t split,
                      int head) {
    int lo = j->row[from].lo, hi = j->row[from].hi;
    for (int r = from; r < end; r++) {
        lo = min_of(lo, j->row[r].lo);
        hi = max_of(hi, j->row[r].hi);
        clear(&j->run[r]);
    }
    lo = max_of(lo, (int)(split * SPLIT)) / STEP;
    hi = min_of(hi, (int)(split + 1) * SPLIT);
    for (int step = lo; step * STEP < hi; step++) run_step(a, j, from, end, step, head);
}

/* First row behind `from` that begins in other pages than it: it will share none with it. */
static int kin_end(const struct request *a, const struct job *j, int from, int n) {
    const struct row *row = &j->row[from];
    int end = from + 1;
    while (end < n && alike(a, row, &j->row[end], row->lo, row->lo + 1)) end++;
    return end;
}

static void put_out(struct job *j, int n) {
    for (int r = 0; r < n; r++) {
        float inverse = 1.0f / lane_sum(j->total[r].weight);
        for (int d = 0; d < HEAD_DIM; d++) j->row[r].out[d] = j->total[r].acc[d] * inverse;
    }
}

INLINE int64_t dense_rows(const struct request *a) {
    return (int64_t)(a->num_tokens - a->num_sparse) * group_of(a);
}

INLINE int load_job(const struct work *w, struct job *j, int64_t i) {
    int64_t rows = dense_rows(w->request), first = i % w->jobs * JOB_ROWS;
    int64_t end = first + JOB_ROWS < rows ? first + JOB_ROWS : rows;
    return load_rows(w->request, j, (int)(i / w->jobs), first, end);
}

/* All of job i. */
static void job_task(const void *context, int64_t i) {
    const struct work *w = context;
    struct job j;
    int n = load_job(w, &j, i);
    for (int from = 0, end; from < n; from = end) {
        end = kin_end(w->request, &j, from, n);
        for (int64_t split = 0; split < w->splits; split++) {
            run_split(w->request, &j, from, end, split, (int)(i / w->jobs));
            for (int r = from; r < end; r++) fold(&j.total[r], &j.run[r]);
        }
    }
    put_out(&j, n);
}

/* One split of a job, kept apart. */
static void split_task(const void *context, int64_t i) {
    const struct work *w = context;
    int64_t job = i / w->splits;
    struct job j;
    int n = load_job(w, &j, job);
    for (int from = 0, end; from < n; from = end) {
        end = kin_end(w->request, &j, from, n);
        run_split(w->request, &j, from, end, i % w->splits, (int)(job / w->jobs));
    }
    memcpy(w->parts + i * JOB_ROWS, j.run, n * sizeof *j.run);
}

/* Adds a job's splits. */
static void join_task(const void *context, int64_t i) {
    const struct work *w = context;
    struct job j;
    int n = load_job(w, &j, i);
    for (int64_t split = 0; split < w->splits; split++)
        for (int r = 0; r < n; r++)
            fold(&j.total[r], w->parts + (i * w->splits + split) * JOB_ROWS + r);
    put_out(&j, n);
}

/* Chooses the tiles of a sparse token and kv head; rank and chosen have room for all tiles. */
static void choose_tiles(const struct request *a, struct job *j, int n, int64_t token, int head,
                        int32_t *rank, int32_t *chosen) {
    const struct row *row = &j->row[0];
    int tiles = (row->hi + LANES - 1) / LANES;
    struct parted parts[JOB_ROWS];
    for (int r = 0; r < n; r++) part(&parts[r], j->query[r]);
    for (int i = 0; i < tiles; i++) {
        size_t ahead = block_of(a, row->table, min_of(i + 4, tiles - 1), head);
        for (int k = 0; k < 2 * WIDTH; k += LANES) FETCH(a->bounds + ahead * 2 * WIDTH + k);
        size_t own = block_of(a, row->table, i, head);
        rank[i] = rank_of(worth_of(a->bounds + own * 2 * WIDTH, parts, n));
    }
    choose(rank, tiles, a->token_tiles[token], chosen);
}

/* Rows of a sparse token and kv head: the chosen tiles, side by side as if they were all. */
static void run_chosen(const struct request *a, struct job *j, int n, int head,
                       const int32_t *chosen, int count) {
    int hi = (count - 1) * LANES + (j->row[0].hi - 1) % LANES + 1;
    for (int r = 0; r < n; r++) {
        clear(&j->run[r]);
        j->row[r].hi = hi;
    }
    for (int i = 0; i < count; i += TILES) {
        struct step s = {.first = 0, .end = min_of(count - i, TILES)};
        for (int t = 0; t < s.end; t++) {
            const int32_t *table = j->row[0].table;
            s.tile[t] = a->pool + block_of(a, table, chosen[i + t], head);
            s.next[t] = a->pool + block_of(a, table, chosen[min_of(i + t + TILES, count - 1)], head);
        }
        take_step(j, 0, n, &s, i * LANES);
    }
    for (int r = 0; r < n; r++) fold(&j->total[r], &j->run[r]);
}

static void sparse_task(const void *context, int64_t i) {
    const struct work *w = context;
    const struct request *a = w->request;
    int64_t token = a->num_tokens - a->num_sparse + i / a->num_kv_heads;
    int head = (int)(i % a->num_kv_heads), group = group_of(a);
    int32_t *rank = w->ranks + i * 2 * w->tiles, *chosen = rank + w->tiles;
    struct job j;
    int n = load_rows(a, &j, head, token * group, (token + 1) * group);
    choose_tiles(a, &j, n, token, head, rank, chosen);
    run_chosen(a, &j, n, head, chosen, a->token_tiles[token]);
    put_out(&j, n);
}

static int32_t attend_dense(const struct request *a) {
    struct work w = {.request = a, .splits = (a->max_context + SPLIT - 1) / SPLIT};
    w.jobs = (dense_rows(a) + JOB_ROWS - 1) / JOB_ROWS;
    int64_t tasks = w.jobs * a->num_kv_heads;
    if (!a->crew || w.splits == 1 || tasks >= 4 * a->crew->threads) {
        /* kv heads outermost: jobs that share pages find one head's K/V still in the cache. */
        share(a->crew, tasks, job_task, &w);
        return 0;
    }
    w.parts = aligned_alloc(64, tasks * w.splits * JOB_ROWS * sizeof *w.parts);
    if (!w.parts) return 1;
    share(a->crew, tasks * w.splits, split_task, &w);
    share(a->crew, tasks, join_task, &w);
    free(w.parts);
    return 0;
}

static int32_t attend_sparse(const struct request *a) {
    struct work w = {.request = a, .tiles = (a->max_context + LANES - 1) / LANES};
    int64_t tasks = (int64_t)a->num_sparse * a->num_kv_heads;
    w.ranks = malloc(tasks * 2 * w.tiles * sizeof *w.ranks);
    if (!w.ranks) return 1;
    share(a->crew, tasks, sparse_task, &w);
    free(w.ranks);
    return 0;
}

/* Fills out [T][num_heads][HEAD_DIM]. Returns 0, or 1 when scratch memory could not be had. */
int32_t attend(const struct request *a) {
    if (a->num_tokens > a->num_sparse && attend_dense(a)) return 1;
    return a->num_sparse ? attend_sparse(a) : 0;
}

/* Stores one layer's new keys and values [T][kv heads][HEAD_DIM] in their slots. bounds: NULL, or
 * those of the blocks written to are made anew. Slots of one sequence lie in order. */
void write_pages(const float *key, const float *value, block *pool, float *bounds,
                 const int64_t *slots, const int64_t *strides, int32_t num_tokens,
                 int32_t num_kv_heads) {
    for (int t = 0; t < num_tokens; t++) {
        size_t index = slots[t] / LANES, lane = slots[t] % LANES;
        int last = t + 1 == num_tokens || slots[t + 1] / LANES != (int64_t)index;
        for (int h = 0; h < num_kv_heads; h++) {
            block *b = pool + index * num_kv_heads + h;
            store_lane(b, lane, key + t * strides[0] + h * strides[1],
                       value + t * strides[2] + h * strides[3]);
            if (bounds && last)
                bound_block(b, lane + 1, bounds + (index * num_kv_heads + h) * 2 * WIDTH);
        }
    }
}
