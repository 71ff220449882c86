/* A recorded topic as input of `leat produce`. */
#include "connectors/kafka/produce_input.h"

#include "core/mem.h"

#include <stdlib.h>

struct head {
    struct recording_reader *reader;
    struct recorded record;
    int64_t time_ms; /* greatest time of the partition so far, so that merging keeps the partition's order */
    bool is_there;
};

struct merge {
    struct head *heads;
    uint32_t count, last; /* index of the head whose record was returned last; UINT32_MAX: none yet */
    uint64_t number;
    bool is_by_key, has_failed;
};

static void advance(struct merge *merge, struct head *head)
{
    enum recorded_status status = recording_reader_next(head->reader, &head->record);
    head->is_there = status == RECORDED;
    merge->has_failed |= status == RECORDED_ERROR;
    if (head->is_there && head->record.time_ms > head->time_ms)
        head->time_ms = head->record.time_ms;
}

static enum recorded_status next(void *self, struct produced *record)
{
    struct merge *merge = self;
    struct head *first = NULL;
    if (merge->last == UINT32_MAX)
        for (uint32_t i = 0; i < merge->count; i++)
            advance(merge, &merge->heads[i]);
    else
        advance(merge, &merge->heads[merge->last]);
    if (merge->has_failed)
        return RECORDED_ERROR;
    for (uint32_t i = 0; i < merge->count; i++)
        if (merge->heads[i].is_there && (first == NULL || merge->heads[i].time_ms < first->time_ms))
            first = &merge->heads[i];
    if (first == NULL) {
        merge->count = 0;
        merge->last = UINT32_MAX;
        return RECORDED_END;
    }
    merge->last = (uint32_t)(first - merge->heads);
    *record = (struct produced){merge->number++, first->record.time_ms, first->record.record};
    if (merge->is_by_key)
        record->record.partition = -1;
    return RECORDED;
}

static void close_merge(void *self)
{
    struct merge *merge = self;
    for (struct head *head = merge->heads; head->reader != NULL; head++)
        recording_reader_free(head->reader);
    free(merge->heads);
    free(merge);
}

void produce_recording(struct produce_input *input, const struct recording *recording, bool is_by_key,
                       struct diag_list *diags)
{
    struct merge *merge = mem_calloc(1, sizeof(*merge));
    *merge = (struct merge){.count = recording->partitions_count, .last = UINT32_MAX, .is_by_key = is_by_key};
    /* one more, without a reader, ends the list */
    merge->heads = mem_calloc((size_t)merge->count + 1, sizeof(*merge->heads));
    for (uint32_t i = 0; i < merge->count; i++) {
        merge->heads[i].reader = recording_reader_new(&recording->partitions[i], diags, NULL);
        merge->heads[i].time_ms = INT64_MIN;
    }
    *input = (struct produce_input){.self = merge, .next = next, .close = close_merge};
}
