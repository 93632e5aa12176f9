/* What this machine can do at best: how fast memory is read. Only `kernels.bench` asks. */
#include "crew.h"
#include "vec.h"

struct reading {
    const float *from;
    int64_t part; /* floats in a task, a multiple of 64 */
    float *sums;
};

static void read_task(const void *context, int64_t i) {
    const struct reading *r = context;
    const float *p = r->from + i * r->part, *end = p + r->part;
    v16 sum[4] = {};
    for (; p < end; p += 4 * LANES)
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            FETCH(p + (32 + k) * LANES);
            sum[k] += load(p + k * LANES);
        }
    r->sums[i] = lane_sum(sum[0] + sum[1] + sum[2] + sum[3]);
}

/* Reads parts * part floats once; sums has room for one float a part. */
void read_memory(const float *from, int64_t parts, int64_t part, float *sums, struct crew *crew) {
    struct reading reading = {from, part, sums};
    share(crew, parts, read_task, &reading);
}
