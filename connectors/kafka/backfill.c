#include "connectors/kafka/backfill.h"

#include "core/log.h"
#include "core/mem.h"
#include "core/os.h"

#include <stdio.h>
#include <stdlib.h>

/* AHEAD_RECORDS: fetching from the topic begins this many records before the recording's end, so that its
 * first records are there in time. */
enum { AHEAD_RECORDS = 16 * BATCH_ROWS, TOLD_MAX = 8 };

struct kafka_history {
    const struct recording_partition *of;
    struct recording_feed *feed;
};

static const struct span no_span = {0, 0};

/* --- Whether recording and topic meet --- */

static bool meets(const struct recording_partition *of, int64_t low, int64_t high, struct diag_list *diags)
{
    struct diag *d;
    if (of->next >= low && of->next <= high)
        return true;
    if (of->next < low) {
        d = diag_error(
            diags, DIAG_RECORDS_GONE, no_span,
            "the recording of `%s` ends before offset %lld, and the topic begins with offset %lld: the "
            "records between are gone",
            of->name, (long long)of->next, (long long)low);
        diag_hint(
            diags, d,
            "give `backfill` a recording that reaches further (`leat record` continues a recording as long "
            "as the topic has the records that follow); or leave `backfill` out, and begin with the oldest "
            "record of the topic");
        return false;
    }
    d = diag_error(
        diags, DIAG_NO_TOPIC, no_span,
        "the recording of `%s` goes up to offset %lld, and the topic up to %lld: the recording is not "
        "of this topic",
        of->name, (long long)of->next - 1, (long long)high - 1);
    diag_hint(
        diags, d,
        "the topic may have been deleted and created again, or belong to another cluster; give `backfill` a "
        "recording of the topic that this source reads");
    return false;
}

static const struct kafka_place *find_place(const struct kafka_place *places, uint32_t count,
                                            const struct recording_partition *of)
{
    for (uint32_t i = 0; i < count; i++)
        if (places[i].id == of->id && strcmp(places[i].topic, of->topic) == 0)
            return &places[i];
    return NULL;
}

/* Checks that every recorded partition of the source's topics exists. Returns false after a diagnostic. */
static bool has_places(const struct recording *recording, const struct kafka_topics *topics,
                       const struct kafka_place *places, uint32_t count, struct diag_list *diags)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < recording->partitions_count; i++) {
        const struct recording_partition *of = &recording->partitions[i];
        if (!kafka_topics_match(topics, of->topic))
            continue;
        found++;
        if (find_place(places, count, of) != NULL)
            continue;
        struct diag *d = diag_error(diags, DIAG_NO_TOPIC, no_span,
                                    "the recording has partition `%s`, and the topic does not", of->name);
        diag_hint(diags, d,
                  "the topic may have been deleted and created again, or belong to another cluster; give "
                  "`backfill` a recording of the topic that this source reads");
        return false;
    }
    if (found > 0)
        return true;
    struct diag *d =
        diag_error(diags, DIAG_NO_FILE, no_span, "`backfill` has no partition of this source's topics");
    diag_hint(diags, d, "name the directory that `leat record TOPIC --to DIR` wrote");
    return false;
}

/* Sets where a new job begins to read the partition: at the recording's beginning. False after a
 * diagnostic. */
static bool begin_place(const struct recording *recording, const struct kafka_place *place,
                        struct kafka_range *range, uint32_t *told, const struct source *source)
{
    char name[300];
    snprintf(name, sizeof(name), "%s/%d", place->topic, (int)place->id);
    const struct recording_partition *of = recording_find(recording, str_from(name));
    if (of == NULL && range->low > 0) {
        struct diag *d = diag_warning(
            source->diags, DIAG_RECORDS_GONE, no_span,
            "partition `%s` is not in the recording: it is read from offset %lld on, the oldest in the topic",
            name, (long long)range->low);
        diag_hint(source->diags, d,
                  "if the job needs older records, add a recording of this partition that has them");
    }
    if (of == NULL)
        return true;
    if (!meets(of, range->low, range->high, source->diags))
        return false;
    range->first = of->first;
    if ((*told)++ < TOLD_MAX)
        log_say(LOG_LEVEL_INFO,
                "source `%.*s`: `%s`: offsets %lld to %lld of the recording, then the topic, which has "
                "%lld to %lld",
                STR_ARGS(source->name), name, (long long)of->first, (long long)of->next - 1,
                (long long)range->low, (long long)range->high - 1);
    return true;
}

bool kafka_backfill_open(struct recording *recording, struct texts paths, const struct kafka_topics *topics,
                         struct source *source, const struct kafka_place *places, uint32_t count,
                         struct kafka_range *ranges)
{
    uint32_t told = 0;
    if (!recording_open(recording, paths.items, paths.count, NULL, 0, source->arena, source->diags) ||
        !has_places(recording, topics, places, count, source->diags))
        return false;
    bool is_good = true;
    /* A resumed job may be far behind the recording's end. */
    for (uint32_t i = 0; i < count && !source->is_resumed; i++)
        is_good &= begin_place(recording, &places[i], &ranges[i], &told, source);
    if (is_good && told > TOLD_MAX)
        log_say(LOG_LEVEL_INFO, "source `%.*s`: %u more partitions likewise", STR_ARGS(source->name),
                told - TOLD_MAX);
    return is_good;
}

/* --- One partition --- */

bool kafka_backfill_attach(struct kafka_partition *p, const struct recording *recording)
{
    struct kafka_shared *shared = p->shared;
    const struct recording_partition *of = recording_find(recording, str_from(p->name));
    if (of == NULL || of->next == of->first)
        return true;
    struct kafka_history *history = mem_calloc(1, sizeof(*history));
    history->of = of;
    history->feed =
        recording_feed_new(of, shared->meta, shared->payload, shared->source->diags, &shared->mutex);
    p->history = history;
    return recording_feed_seek(history->feed, &(struct source_position){.b = of->first});
}

void kafka_backfill_free(struct kafka_partition *p)
{
    if (p->history == NULL)
        return;
    recording_feed_free(p->history->feed);
    free(p->history);
    p->history = NULL;
}

bool kafka_backfill_seek(struct kafka_partition *p, const struct source_position *position, bool *is_good)
{
    const struct recording_partition *of = p->history->of;
    struct recording_feed *feed = p->history->feed;
    struct kafka_mark check = p->check;
    if (position->b < of->first || position->b >= of->next) {
        kafka_backfill_free(p);
        return false;
    }
    p->check.offset = -1;
    *is_good = meets(of, p->low, p->high, p->shared->source->diags) &&
               (check.offset < 0 ||
                recording_feed_mark_check(feed, (struct str){(const char *)&check, sizeof(check)})) &&
               recording_feed_seek(feed, position);
    return true;
}

/* Begins to fetch from the topic: from the recording's last record on, to compare it, if the topic still
 * has that record; else from the offset behind the recording. */
static bool ask_topic(struct kafka_partition *p)
{
    const struct recording_partition *of = p->history->of;
    p->check = of->mark;
    if (p->check.offset < p->low)
        p->check.offset = -1;
    return kafka_partition_start(p, p->check.offset >= 0 ? p->check.offset : of->next);
}

static enum read_status end(struct kafka_partition *p)
{
    bool is_good = p->queue != NULL || ask_topic(p);
    __atomic_store_n(&p->next, p->history->of->next, __ATOMIC_RELAXED);
    p->high = INT64_MAX; /* the end found when the job began is outdated: the partition is late until the
                            topic answers */
    kafka_backfill_free(p);
    return is_good ? READ_END : READ_ERROR;
}

/* For a bounded source: the last batch of the recording may be incomplete. The topic's first records
 * complete it, so that batches end at the same records wherever the records are stored. */
static void carry(struct kafka_partition *p, const struct raw_batch *raw)
{
    p->intake.carried = p->shared->is_bounded ? batch_share_of(&raw->next) : (struct batch_share){0};
}

static void note_mark(struct kafka_partition *p, const struct raw_batch *raw)
{
    char text[SOURCE_MARK_BYTES];
    struct kafka_mark mark;
    if (recording_feed_mark(p->history->feed, &raw->next, text) != sizeof(mark))
        return;
    memcpy(&mark, text, sizeof(mark));
    marks_add(&p->marks, &mark);
}

enum read_status kafka_backfill_read(struct kafka_partition *p, struct raw_batch *raw)
{
    const struct kafka_history *history = p->history;
    if (!kafka_rate_has(p->shared))
        return READ_LATER;
    enum read_status status = recording_feed_read(history->feed, raw);
    if (status == READ_END)
        return end(p);
    if (status != READ_BATCH)
        return status;
    kafka_rate_take(p->shared, raw->count);
    note_mark(p, raw);
    carry(p, raw);
    const struct kafka_frame *frame = raw->extra;
    __atomic_store_n(&p->time_us, frame->times[raw->count - 1], __ATOMIC_RELAXED);
    kafka_partition_pass(p, raw);
    if (p->queue == NULL && raw->next.b + AHEAD_RECORDS >= history->of->next && !ask_topic(p))
        return READ_ERROR;
    return READ_BATCH;
}
