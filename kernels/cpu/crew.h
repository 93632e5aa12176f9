/* Shares a call's tasks between threads; see crew.c. A NULL crew means the calling thread alone. */
#ifndef PANDO_CREW_H
#define PANDO_CREW_H

#include <stdint.h>

typedef void task_fn(const void *context, int64_t index);

struct crew {
    void (*run)(struct crew *, int64_t count, task_fn *, const void *context);
    int64_t threads;
};

/* Runs task(context, i) once for every i in [0, count), in any order, on any thread. */
static inline void share(struct crew *crew, int64_t count, task_fn *task, const void *context) {
    if (crew && count > 1)
        crew->run(crew, count, task, context);
    else
        for (int64_t i = 0; i < count; i++) task(context, i);
}

#endif
