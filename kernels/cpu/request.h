/* What attention.py asks for, and how a request's rows and pages are found. */
#ifndef PANDO_REQUEST_H
#define PANDO_REQUEST_H

#include "crew.h"
#include "rows.h"
#include "sketch.h"

/* Mirrored field by field in attention.py. Strides count floats. */
struct request {
    const float *query;
    const block *pool;
    const sketch *sketches; /* needed where a row is sparse */
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

static void put_out(struct job *j, int n) {
    for (int r = 0; r < n; r++) {
        float inverse = 1.0f / lane_sum(j->total[r].weight);
        for (int d = 0; d < HEAD_DIM; d++) j->row[r].out[d] = j->total[r].acc[d] * inverse;
    }
}

#endif
