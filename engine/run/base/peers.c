#include "run/base/peers.h"

#include "core/mem.h"
#include "run/base/outbox.h"
#include "run/base/peer_figures.h"

#include <stdlib.h>

/* For each slot the micro-batch that was done last in it, and one more; 0: none. */
struct peer_progress {
    _Atomic uint64_t slots[SLOTS];
};

static struct peer_progress *progress_of(const struct run *run, uint32_t stage, uint32_t worker)
{
    return &run->peer_progress[stage * peers_count(run) + worker];
}

bool peers_refuse(struct run *run, const char *what)
{
    struct diag *d = diag_error(run->diags, DIAG_OPTIONS_CLASH, (struct span){0},
                                "several workers cannot run a job with %s yet", what);
    diag_hint(run->diags, d, "leave it out, or run the job on one worker");
    return false;
}

void peers_init(struct run *run)
{
    const struct run_peers *peers = run->options.peers;
    if (peers == NULL)
        return;
    const struct job_checkpoint *checkpoint = &run->plan->config.checkpoint;
    leat_assert(peers->count <= RUN_WORKERS_MAX && run->trace == NULL);
    leat_assert(checkpoint->directory.length == 0 || peers->directory != NULL);
    for (uint32_t i = 0; i < run->plan->stages_count; i++)
        leat_assert(peers_home(run, i) < peers->count);
    leat_assert((checkpoint->store.length > 0) == (peers->store != NULL));
    run->peer_progress =
        mem_calloc((size_t)run->plan->stages_count * peers_count(run), sizeof(*run->peer_progress));
    outboxes_init(run);
    peer_figures_init(run);
}

void peers_free(struct run *run)
{
    free(run->peer_progress);
    outboxes_free(run);
    peer_figures_free(run);
}

void peers_begin(struct byte_buffer *message, enum peer_message tag)
{
    message->length = 0;
    words_put(message, tag);
}

void peers_post(const struct run *run, uint32_t worker, const struct byte_buffer *message)
{
    leat_assert(worker != peers_self(run));
    outbox_post(run, worker, (struct str){message->data, message->length});
}

void peers_post_all(const struct run *run, const struct byte_buffer *message)
{
    for (uint32_t worker = 0; worker < peers_count(run); worker++)
        if (worker != peers_self(run))
            peers_post(run, worker, message);
}

void peers_flush(const struct run *run)
{
    const struct run_peers *peers = run->options.peers;
    if (peers != NULL && peers->flush != NULL)
        peers->flush(peers->engine);
}

void peers_send(const struct run *run, uint32_t worker, const struct byte_buffer *message)
{
    peers_post(run, worker, message);
    peers_flush(run);
}

void peers_send_all(const struct run *run, const struct byte_buffer *message)
{
    peers_post_all(run, message);
    peers_flush(run);
}

void peers_say_done(const struct run *run, uint32_t stage, uint64_t micro_batch)
{
    struct byte_buffer message = {0};
    peers_begin(&message, PEER_DONE);
    words_put(&message, stage);
    words_put(&message, micro_batch);
    peers_post_all(run, &message);
    buffer_free(&message);
}

bool peers_is_in_turn(const struct run *run, uint32_t stage, uint32_t worker, uint64_t first,
                      uint64_t micro_batch)
{
    if (micro_batch < first || !peers_has_stage(run, worker, stage))
        return false;
    const _Atomic uint64_t *slot = &progress_of(run, stage, worker)->slots[micro_batch & (SLOTS - 1)];
    uint64_t done = atomic_load_explicit(slot, memory_order_relaxed);
    return micro_batch - first < SLOTS ? done == 0 : done == micro_batch - SLOTS + 1;
}

bool peers_take_done(struct run *run, uint32_t worker, struct words *message, uint64_t first, uint64_t end)
{
    uint64_t stage = words_take(message), micro_batch = words_take(message);
    if (!peers_is_whole(message) || stage >= run->plan->stages_count || micro_batch >= end ||
        !peers_is_in_turn(run, (uint32_t)stage, worker, first, micro_batch))
        return false;
    _Atomic uint64_t *slot = &progress_of(run, (uint32_t)stage, worker)->slots[micro_batch & (SLOTS - 1)];
    atomic_store_explicit(slot, micro_batch + 1, memory_order_release);
    run_wake(run);
    return true;
}

bool peers_others_have_done(const struct run *run, uint32_t stage, uint64_t micro_batch)
{
    for (uint32_t worker = 0; worker < peers_count(run); worker++) {
        if (worker == peers_self(run) || !peers_has_stage(run, worker, stage))
            continue;
        const _Atomic uint64_t *slot = &progress_of(run, stage, worker)->slots[micro_batch & (SLOTS - 1)];
        if (atomic_load_explicit(slot, memory_order_acquire) != micro_batch + 1)
            return false;
    }
    return true;
}
