/* Sparse decode rows: a task is one of them and one kv head, done in four rounds.
 *
 *   weigh    spans of tiles by their sketches
 *   choose   the tiles that are read
 *   read     of them RUN at a time, side by side as if they were all that there is
 *   join     the runs, added in order
 *
 * Where tasks are fewer than threads could use, the parts of a round are shared out; else a task
 * does its rounds alone. The bits are the same. */
#ifndef PANDO_SPARSE_H
#define PANDO_SPARSE_H

#include "choose.h"
#include "request.h"

#include <stdlib.h>

#define AHEAD 4 /* tiles */
#define RUN 64 /* tiles, a multiple of TILES */

/* room: [tasks][each], of a task rank and chosen [tiles], then of each row mass and peak [tiles].
 * parts: [tasks][runs][rows of a task], or NULL where a task joins its runs itself. */
struct sparse {
    const struct request *request;
    float *room;
    struct sums *parts;
    int64_t tasks, tiles, each, spans, runs;
};

/* One task: its rows (JOB_ROWS at most), where its tiles' numbers lie, how many tiles it sees and reads. */
struct chosen {
    struct job job;
    const struct request *request;
    const float *query; /* of the first row */
    struct asked asked[JOB_ROWS];
    struct weights weights[JOB_ROWS];
    int32_t *rank, *tile;
    int head, rows, tiles, keep;
};

static void begin_task(const struct sparse *s, int64_t i, struct chosen *c) {
    const struct request *a = s->request;
    int64_t token = a->num_tokens - a->num_sparse + i / a->num_kv_heads;
    int group = group_of(a);
    c->request = a;
    c->head = (int)(i % a->num_kv_heads);
    c->rows = load_rows(a, &c->job, c->head, token * group, (token + 1) * group);
    c->query = a->query + a->token_row[token] * a->query_token_stride +
               (int64_t)c->head * group * a->query_head_stride;
    c->tiles = (c->job.row[0].hi + LANES - 1) / LANES;
    c->keep = a->token_tiles[token];
    float *room = s->room + i * s->each;
    c->rank = (int32_t *)room;
    c->tile = c->rank + s->tiles;
    for (int r = 0; r < c->rows; r++)
        c->weights[r] = (struct weights){room + (2 + 2 * r) * s->tiles,
                                         room + (3 + 2 * r) * s->tiles};
}

INLINE const sketch *sketch_of(const struct chosen *c, int tile) {
    return c->request->sketches + block_of(c->request, c->job.row[0].table, tile, c->head);
}

static void weigh_tiles(struct chosen *c, int64_t index) {
    const struct request *a = c->request;
    struct span span = {.index = (int)index};
    int first = span.index * SPAN, n = c->rows;
    span.count = min_of(c->tiles - first, SPAN);
    if (span.count <= 0) return;
    span.keys = min_of(c->job.row[0].hi - first * LANES, SPAN * LANES);
    for (int t = 0; t < span.count; t++) {
        span.tile[t] = sketch_of(c, first + t);
        span.ahead[t] = sketch_of(c, min_of(first + t + AHEAD, c->tiles - 1));
    }
    for (int r = 0; r < n; r++) ask(&c->asked[r], c->query + r * a->query_head_stride, a->scale);
    EACH({ weigh_span(rows, &span, a->softcap, c->asked + i, c->weights + i); })
}

static void choose_tiles(struct chosen *c) {
    float *worth = (float *)c->tile;
    int spans = (c->tiles + SPAN - 1) / SPAN;
    memset(worth, 0, (size_t)spans * SPAN * sizeof *worth);
    for (int r = 0; r < c->rows; r++) rate(&c->weights[r], spans, worth);
    for (int t = 0; t < c->tiles; t++) c->rank[t] = rank_of(worth[t]);
    choose(c->rank, c->tiles, c->keep, c->tile);
}

/* Reads the chosen tiles of one run into the rows' runs. */
static void read_run(struct chosen *c, int64_t run) {
    struct job *j = &c->job;
    int seen = (c->keep - 1) * LANES + (j->row[0].context - 1) % LANES + 1;
    for (int r = 0; r < c->rows; r++) {
        clear(&j->run[r]);
        j->row[r].hi = seen;
    }
    int end = min_of(c->keep, (int)(run + 1) * RUN);
    for (int i = (int)run * RUN; i < end; i += TILES) {
        struct step s = {.first = 0, .end = min_of(end - i, TILES)};
        for (int t = 0; t < s.end; t++) {
            int next = min_of(i + t + TILES, c->keep - 1);
            const int32_t *table = j->row[0].table;
            s.tile[t] = c->request->pool + block_of(c->request, table, c->tile[i + t], c->head);
            s.next[t] = c->request->pool + block_of(c->request, table, c->tile[next], c->head);
        }
        take_step(j, 0, c->rows, &s, i * LANES);
    }
}

/* All of task i. */
static void whole_task(const void *context, int64_t i) {
    const struct sparse *s = context;
    struct chosen c;
    begin_task(s, i, &c);
    for (int64_t span = 0; span < s->spans; span++) weigh_tiles(&c, span);
    choose_tiles(&c);
    for (int64_t run = 0; run < s->runs; run++) {
        read_run(&c, run);
        for (int r = 0; r < c.rows; r++) fold(&c.job.total[r], &c.job.run[r]);
    }
    put_out(&c.job, c.rows);
}

static void weigh_task(const void *context, int64_t i) {
    const struct sparse *s = context;
    struct chosen c;
    begin_task(s, i / s->spans, &c);
    weigh_tiles(&c, i % s->spans);
}

static void choose_task(const void *context, int64_t i) {
    struct chosen c;
    begin_task(context, i, &c);
    choose_tiles(&c);
}

static void read_task(const void *context, int64_t i) {
    const struct sparse *s = context;
    struct chosen c;
    begin_task(s, i / s->runs, &c);
    read_run(&c, i % s->runs);
    memcpy(s->parts + i * c.rows, c.job.run, c.rows * sizeof *s->parts);
}

static void join_runs(const void *context, int64_t i) {
    const struct sparse *s = context;
    struct chosen c;
    begin_task(s, i, &c);
    for (int64_t run = 0; run < s->runs; run++)
        for (int r = 0; r < c.rows; r++)
            fold(&c.job.total[r], s->parts + (i * s->runs + run) * c.rows + r);
    put_out(&c.job, c.rows);
}

static void share_out(struct sparse *s) {
    struct crew *crew = s->request->crew;
    if (!s->parts) {
        share(crew, s->tasks, whole_task, s);
        return;
    }
    share(crew, s->tasks * s->spans, weigh_task, s);
    share(crew, s->tasks, choose_task, s);
    share(crew, s->tasks * s->runs, read_task, s);
    share(crew, s->tasks, join_runs, s);
}

/* Returns 0, or 1 when scratch memory could not be had. */
static int32_t attend_sparse(const struct request *a) {
    int64_t tiles = (a->max_context + LANES - 1) / LANES, group = group_of(a), keep = 0;
    for (int t = a->num_tokens - a->num_sparse; t < a->num_tokens; t++)
        keep = a->token_tiles[t] > keep ? a->token_tiles[t] : keep;
    struct sparse s = {.request = a, .tasks = (int64_t)a->num_sparse * a->num_kv_heads};
    s.spans = (tiles + SPAN - 1) / SPAN;
    s.tiles = s.spans * SPAN;
    s.each = (2 + 2 * group) * s.tiles;
    s.runs = (keep + RUN - 1) / RUN;
    int apart = a->crew && s.runs > 1 && s.tasks < 4 * a->crew->threads;
    s.room = aligned_alloc(64, s.tasks * s.each * sizeof *s.room);
    if (apart) s.parts = aligned_alloc(64, s.tasks * s.runs * group * sizeof *s.parts);
    int missing = !s.room || (apart && !s.parts);
    if (!missing) share_out(&s);
    free(s.room);
    free(s.parts);
    return missing;
}

#endif
