/* A few helper threads that take tasks off the calling thread's hands.
 *
 * Unlike an OpenMP team there is no barrier that all must reach: tasks are claimed one by one, and
 * the caller waits only for tasks that a helper has begun. On cores that are shared with other
 * processes a helper that is not scheduled costs nothing; an OpenMP barrier costs its whole time
 * slice. Idle helpers spin for some tens of microseconds (a step is hundreds of short calls), then
 * sleep. */
#define _GNU_SOURCE
#include "crew.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#define SPINS 1500
#define STACK_BYTES (1 << 20)

struct full_crew {
    struct crew crew;
    /* generation << 32 | next index to claim. A claim succeeds only in the generation whose job
     * was read, and a job changes only when all of its indices are done. */
    _Atomic uint64_t state;
    _Atomic int64_t count, done;
    _Atomic(task_fn *) task;
    _Atomic(const void *) context;
    atomic_int sleepers;
    atomic_flag busy;
    pthread_mutex_t lock;
    pthread_cond_t work;
};

static void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Claims and runs one task; returns 0 when none is left. */
static int work_once(struct full_crew *c) {
    uint64_t state = atomic_load(&c->state);
    for (;;) {
        task_fn *task = atomic_load(&c->task);
        const void *context = atomic_load(&c->context);
        int64_t index = (int64_t)(state & 0xffffffff);
        if (index >= atomic_load(&c->count)) return 0;
        if (atomic_compare_exchange_weak(&c->state, &state, state + 1)) {
            task(context, index);
            atomic_fetch_add(&c->done, 1);
            return 1;
        }
    }
}

static int has_work(struct full_crew *c) {
    return (int64_t)(atomic_load(&c->state) & 0xffffffff) < atomic_load(&c->count);
}

static void *help(void *argument) {
    struct full_crew *c = argument;
    for (;;) {
        for (int i = 0; i < SPINS; i++) {
            if (work_once(c)) i = 0;
            pause_briefly();
        }
        pthread_mutex_lock(&c->lock);
        atomic_fetch_add(&c->sleepers, 1);
        while (!has_work(c)) pthread_cond_wait(&c->work, &c->lock);
        atomic_fetch_sub(&c->sleepers, 1);
        pthread_mutex_unlock(&c->lock);
    }
    return NULL;
}

static void run(struct crew *crew, int64_t count, task_fn *task, const void *context) {
    struct full_crew *c = (struct full_crew *)crew;
    if (atomic_flag_test_and_set(&c->busy)) {
        /* Another thread has the helpers: go alone. */
        for (int64_t i = 0; i < count; i++) task(context, i);
        return;
    }
    uint64_t generation = (atomic_load(&c->state) >> 32) + 1;
    /* Closed first, so that no state read before is claimed against the new job's count. */
    atomic_store(&c->state, generation << 32 | 0xffffffff);
    atomic_store(&c->done, 0);
    atomic_store(&c->task, task);
    atomic_store(&c->context, context);
    atomic_store(&c->count, count);
    atomic_store(&c->state, (generation + 1) << 32);
    if (atomic_load(&c->sleepers)) {
        pthread_mutex_lock(&c->lock);
        pthread_cond_broadcast(&c->work);
        pthread_mutex_unlock(&c->lock);
    }
    while (work_once(c)) {
    }
    for (int spins = 0; atomic_load(&c->done) < count; spins++)
        spins < SPINS ? pause_briefly() : (void)sched_yield();
    atomic_flag_clear(&c->busy);
}

/* Returns a crew of the calling thread and threads - 1 helpers, or NULL; it lives for good. */
struct crew *new_crew(int32_t threads) {
    struct full_crew *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->crew.run = run;
    atomic_flag_clear(&c->busy);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->work, NULL);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    /* Signals are for the program's own threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    c->crew.threads = 1;
    for (int i = 1; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, help, c) == 0) c->crew.threads++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return &c->crew;
}
