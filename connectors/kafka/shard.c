#include "connectors/kafka/shard.h"

#include "core/refused.h"

void shard_init(struct shard *shard, uint32_t number, const struct sender_options *options,
                struct outbox_room *room)
{
    *shard = (struct shard){.options = *options, .micro_batch = UINT64_MAX, .saved = {.first = UINT64_MAX}};
    shard->options.shard = number;
    outbox_init(&shard->outbox, room, (uint8_t)number);
}

/* --- Connecting --- */

bool shard_look(struct shard *shard)
{
    return sender_look(&shard->options, &shard->looked, &shard->looked_order, shard->sender.error,
                       sizeof(shard->sender.error));
}

bool shard_fence(struct shard *shard)
{
    return sender_fence(&shard->sender, &shard->options, &shard->outbox);
}

bool shard_open(struct shard *shard)
{
    return sender_open(&shard->sender);
}

bool shard_close(struct shard *shard)
{
    sender_close(&shard->sender);
    remake_free(&shard->remake);
    outbox_free(&shard->outbox);
    return true;
}

struct stepping {
    struct shard *shard;
    bool (*step)(struct shard *shard);
    bool is_good;
    pthread_t thread;
};

static void *step_main(void *argument)
{
    struct stepping *stepping = argument;
    stepping->is_good = stepping->step(stepping->shard);
    return NULL;
}

struct shard *shards_each(struct shard *shards, uint32_t count, bool (*step)(struct shard *shard))
{
    struct stepping steppings[SHARDS_MAX];
    struct shard *failed = NULL;
    leat_assert(count <= SHARDS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        steppings[i] = (struct stepping){.shard = &shards[i], .step = step};
        if (i > 0)
            refused_unless_begun(pthread_create(&steppings[i].thread, NULL, step_main, &steppings[i]));
    }
    if (count > 0)
        step_main(&steppings[0]);
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0)
            pthread_join(steppings[i].thread, NULL);
        if (!steppings[i].is_good && failed == NULL)
            failed = &shards[i];
    }
    return failed;
}

/* --- What is out --- */

static int compare_parts(const struct progress_part *a, const struct progress_part *b)
{
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return a->to < b->to ? -1 : a->to > b->to;
}

const char *shard_take_progress(struct shard *shard)
{
    const struct progress_part *last = progress_last(&shard->sender.progress);
    if (!shard->sender.had_life)
        return "the topic has no records of this run: the topic was emptied, or deleted and created again";
    if (shard->has_told && (last == NULL || compare_parts(last, &shard->told) < 0))
        return "notes of rows that were sent before the checkpoint are missing: the topic's end was cut off";
    const char *why = outbox_skip(&shard->outbox, last);
    /* What outbox_skip counted was sent by an earlier life. */
    shard->outbox.out_records = shard->outbox.out_bytes = 0;
    return why;
}

const char *shard_begin_remake(struct shard *shard, uint64_t next)
{
    const char *why = remake_begin(&shard->remake, &shard->sender.progress, next, &shard->saved);
    if (why == NULL && shard->remake.is_on)
        shard->floor = remake_floor(&shard->remake);
    return why;
}

uint64_t shard_out_next(const struct shard *shard)
{
    const struct progress_part *last = progress_last(&shard->sender.progress);
    return last == NULL ? 0 : last->next;
}

/* --- Rows --- */

enum remake_verdict shard_write(struct shard *shard, uint64_t micro_batch, const struct kafka_record *record)
{
    shard->index = micro_batch == shard->micro_batch ? shard->index + 1 : 0;
    shard->micro_batch = micro_batch;
    if (shard->remake.is_on) {
        enum remake_verdict verdict = remake_record(&shard->remake, micro_batch, shard->index, record);
        if (verdict != REMAKE_NEW)
            return verdict;
    }
    if (micro_batch < shard->floor)
        return REMAKE_DIFFERS;
    outbox_append(&shard->outbox, micro_batch, shard->index, record);
    return REMAKE_NEW;
}
