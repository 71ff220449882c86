/* The sequencer's beginning and end, and its place in checkpoints: where each partition goes on. */
#include "run/internal.h"

#include <stdlib.h>

static bool open_source(struct run *run, uint32_t index)
{
    const struct plan_node *node = &run->plan->nodes[run->plan->sources[index]];
    struct source *source = &run->sources[index];
    *source = (struct source){
        .config = node->config, .schema = node->outputs[0], .arena = &run->arena, .diags = run->diags};
    if (!node->source_kind->open(source))
        return false;
    leat_assert(source->partitions_count > 0);
    return true;
}

bool sequencer_init(struct run *run)
{
    struct sequencer *s = &run->sequencer;
    pthread_mutex_init(&s->mutex, NULL);
    uint32_t total = 0;
    for (uint32_t i = 0; i < run->plan->sources_count; i++) {
        if (!open_source(run, i))
            return false;
        total += run->sources[i].partitions_count;
    }
    if (total > PARTITIONS_MAX) {
        diag_error(run->diags, DIAG_E0503, (struct span){0},
                   "%u partitions are more than the %d that a job can have", total, PARTITIONS_MAX);
        return false;
    }
    s->partitions = calloc(total, sizeof(*s->partitions));
    leat_assert(s->partitions != NULL);
    for (uint32_t i = 0; i < run->plan->sources_count; i++)
        for (uint32_t local = 0; local < run->sources[i].partitions_count; local++) {
            struct partition *p = &s->partitions[s->partitions_count];
            p->id = s->partitions_count++;
            p->source = i;
            p->local = local;
            p->order_max = p->event_max = TIME_MIN;
            const struct plan_node *node = &run->plan->nodes[run->plan->sources[i]];
            p->is_live = !node->is_bounded || !node->is_replayable;
        }
    s->pieces_ahead = MIN(PIECES_MAX, 2 + 2 * run->lanes_count);
    s->until_us = run->options.until_us;
    s->source_watermarks = arena_array(&run->arena, int64_t, MAX(run->plan->sources_count, 1));
    for (uint32_t i = 0; i < run->plan->sources_count; i++)
        s->source_watermarks[i] = TIME_MIN;
    for (uint32_t i = 0; i < SLOTS; i++) {
        run->slots[i].slices = arena_array(&run->arena, struct slice, total);
        run->slots[i].watermarks = arena_array(&run->arena, int64_t, MAX(run->plan->sources_count, 1));
        run->slots[i].number = UINT64_MAX;
    }
    return true;
}

void sequencer_free(struct run *run)
{
    struct sequencer *s = &run->sequencer;
    for (uint32_t i = 0; i < s->partitions_count; i++)
        for (uint32_t k = 0; k < PIECES_MAX; k++) {
            struct piece *piece = &s->partitions[i].pieces[k];
            batch_release(piece->batch);
            arena_free(&piece->raw.arena);
        }
    free(s->partitions);
    s->partitions = NULL;
    s->partitions_count = 0;
    if (run->sources != NULL)
        for (uint32_t i = 0; i < run->plan->sources_count; i++) {
            const struct source_kind *kind = run->plan->nodes[run->plan->sources[i]].source_kind;
            if (run->sources[i].config != NULL && kind->close != NULL)
                kind->close(&run->sources[i]);
        }
    pthread_mutex_destroy(&s->mutex);
}

enum { POSITIONS_VERSION = 2, PARTITION_WORDS = 10 };

static void put(struct byte_buffer *out, uint64_t value)
{
    buffer_append(out, &value, sizeof(value));
}

/* Called when the number with the barrier is formed: everything before it is taken, nothing after it. */
void sequencer_save(struct run *run, struct byte_buffer *out)
{
    struct sequencer *s = &run->sequencer;
    put(out, POSITIONS_VERSION);
    put(out, atomic_load(&s->formed) + 1);
    put(out, run->plan->sources_count);
    for (uint32_t i = 0; i < run->plan->sources_count; i++)
        put(out, (uint64_t)s->source_watermarks[i]);
    put(out, s->partitions_count);
    for (uint32_t i = 0; i < s->partitions_count; i++) {
        const struct partition *p = &s->partitions[i];
        put(out, (uint64_t)p->resume.a);
        put(out, (uint64_t)p->resume.b);
        put(out, p->resume.record);
        put(out, p->resume_rows);
        put(out, (uint64_t)p->order_max);
        put(out, (uint64_t)p->event_max);
        put(out, p->has_event);
        put(out, p->has_own_order);
        put(out, p->since_cut);
        put(out, p->records);
    }
}

static uint64_t take(struct str *from)
{
    uint64_t value = 0;
    if (from->length >= sizeof(value)) {
        memcpy(&value, from->data, sizeof(value));
        from->data += sizeof(value);
        from->length -= sizeof(value);
    }
    return value;
}

bool sequencer_restore(struct run *run, struct str saved)
{
    struct sequencer *s = &run->sequencer;
    size_t words = 4 + run->plan->sources_count + (size_t)s->partitions_count * PARTITION_WORDS;
    uint64_t version = take(&saved), number = take(&saved), sources = take(&saved);
    if (version != POSITIONS_VERSION || sources != run->plan->sources_count ||
        saved.length != (words - 3) * sizeof(uint64_t)) {
        struct diag *d =
            diag_error(run->diags, DIAG_E0703, (struct span){0},
                       "the checkpoint was taken over other sources or another number of partitions");
        diag_hint(run->diags, d, "give the job the inputs it had, or start anew with --fresh");
        return false;
    }
    for (uint32_t i = 0; i < sources; i++)
        s->source_watermarks[i] = (int64_t)take(&saved);
    if (take(&saved) != s->partitions_count)
        return false;
    for (uint32_t i = 0; i < s->partitions_count; i++) {
        struct partition *p = &s->partitions[i];
        p->resume.a = (int64_t)take(&saved);
        p->resume.b = (int64_t)take(&saved);
        p->resume.record = take(&saved);
        p->resume_rows = p->skip_rows = (uint32_t)take(&saved);
        p->order_max = (int64_t)take(&saved);
        p->event_max = (int64_t)take(&saved);
        p->has_event = take(&saved) != 0;
        p->has_own_order = take(&saved) != 0;
        p->since_cut = (uint32_t)take(&saved) % BATCH_ROWS;
        p->records = take(&saved);
        run->records_before += p->records;
        const struct source_kind *kind = run->plan->nodes[run->plan->sources[p->source]].source_kind;
        if (p->records > 0 && !kind->seek(&run->sources[p->source], p->local, &p->resume))
            return false;
    }
    s->first = number;
    atomic_store(&s->formed, number);
    atomic_store(&s->claimed, number);
    return true;
}
