/* Causal attention over K/V pages, in place. Compiled once per HEAD_DIM and kind of element.
 *
 * A query row meets its keys in steps at absolute positions [64 i, 64 i + 64), whatever the page
 * size; rows.h has the arithmetic, pages.h the layout. A job is up to JOB_ROWS rows of one kv head.
 * Consecutive rows whose step lies in the same pages (tokens of one prefill, or sequences that
 * share a prefix) pass over it together. Where jobs are fewer than threads could use, long contexts
 * are cut at multiples of SPLIT positions and their parts added in order: the same bits. */
#include "request.h"
#include "sparse.h"

#include <stdlib.h>

/* A request's dense rows cut into jobs of one kv head and splits. parts: [jobs * heads][splits]
 * [JOB_ROWS], or NULL where a job takes all of its splits. */
struct work {
    const struct request *request;
    struct sums *parts;
    int64_t jobs, splits;
};

int64_t block_bytes(void) { return sizeof(block); }
int64_t sketch_bytes(void) { return sizeof(sketch); }
int32_t value_width(void) { return WIDTH; }
int32_t most_sparse_heads(void) { return JOB_ROWS; }

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

/* Tile t of what is taken behind a step: of its next step, or of the first one of `j->then`. */
INLINE const block *next_tile(const struct request *a, const struct job *j, const struct row *row,
                              int step, int t, int head) {
    int tile = (step + 1) * TILES + t;
    if (tile * LANES >= row->hi && j->then) {
        row = j->then;
        tile = row->lo / STEP * TILES + t;
    }
    return a->pool + block_of(a, row->table, min_of(tile, (row->hi - 1) / LANES), head);
}

/* Finds the tiles of a step that [row->lo, row->hi) sees, and those that are taken behind it. */
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
        s->tile[t] = a->pool + block_of(a, row->table, step * TILES + t, head);
        s->next[t] = next_tile(a, j, row, step, t, head);
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
        j.then = end < n ? &j.row[end] : NULL;
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
        j.then = end < n ? &j.row[end] : NULL;
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

/* Fills out [T][num_heads][HEAD_DIM]. Returns 0, or 1 when scratch memory could not be had. */
int32_t attend(const struct request *a) {
    if (a->num_tokens > a->num_sparse && attend_dense(a)) return 1;
    return a->num_sparse ? attend_sparse(a) : 0;
}

/* Stores one layer's new keys and values [T][kv heads][HEAD_DIM] in their slots; sketches: NULL, or
 * the keys' go there. */
void write_pages(const float *key, const float *value, block *pool, sketch *sketches,
                 const int64_t *slots, const int64_t *strides, int32_t num_tokens,
                 int32_t num_kv_heads) {
    for (int t = 0; t < num_tokens; t++) {
        size_t index = slots[t] / LANES, lane = slots[t] % LANES;
        for (int h = 0; h < num_kv_heads; h++) {
            size_t place = index * num_kv_heads + h;
            store_lane(pool + place, lane, key + t * strides[0] + h * strides[1],
                       value + t * strides[2] + h * strides[3]);
            if (sketches) sketch_lane(pool + place, lane, sketches + place);
        }
    }
}
