/* Each stage with followed nodes has an entry of each of its instances for each micro-batch. Entries wait until those of
 * all instances of all stages are there; then the micro-batch is applied, and the nodes get their watermarks: as lanes do
 * it, with the keys of all lanes in one instance. So the nodes are always as they were behind one micro-batch. */
#include "run/follow.h"

#include "run/lanes/merge.h"
#include "run/publish/publish.h"

#include "core/batch_codec.h"
#include "core/delta_log.h"
#include "core/mem.h"
#include "core/operator_state.h"
#include "core/os.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define UNSUITABLE "the log does not suit the job at micro-batch %" PRIu64
enum { LANES_MAX = 256, WAITING_BYTES_KEPT = 256 << 10, WEIGH_US = 100 * 1000 };

/* What one instance of a stage has published. */
struct follow_instance {
    bool has_come;
    uint64_t from, next; /* micro-batches from..next - 1 have come */
    struct byte_buffer waiting[SLOTS];
    struct str now; /* instead of `waiting`: the entry that is read now, which nothing has to wait for */
    int64_t times[SLOTS]; /* wall clock: when they were published */
};

struct follow_stage {
    bool is_followed;
    uint32_t instances; /* 0: not known yet */
    struct follow_instance *of;
};

struct follow {
    struct follow_ask ask;
    struct delta_tail *tail; /* NULL: there is no log */
    int64_t opened_us;       /* monotonic: when it was last tried */
    struct follow_stage stages[PLAN_STAGES_MAX];
    uint64_t next; /* the micro-batch to apply next */
    struct follow_figures figures;
    int64_t *sources;
    enum follow_state state;
    char why[FOLLOW_WHY_BYTES];
    struct arena arena;
    enum operator_following following[PLAN_NODES_MAX];
    const bool *columns[PLAN_NODES_MAX][OPERATOR_INPUTS_MAX]; /* of publish_columns_of */
    /* Of learners, wall clock: what they did since is in no cut yet; 0: all is. */
    int64_t uncut_since_us[PLAN_NODES_MAX];
    uint64_t tables_bytes;          /* of tables_bytes, before the first cut; 0: not known yet */
    int64_t weighed_us;             /* monotonic: when they were last looked at */
    const struct plan_node *filled; /* the node whose rows are in `lists`; NULL: they are empty */
    struct batch_list lists[OPERATOR_INPUTS_MAX]; /* by input */
};

struct follow *follow_new(const struct follow_ask *ask)
{
    struct follow *f = mem_calloc(1, sizeof(*f));
    const struct plan *plan = ask->plan;
    leat_assert(ask->copies <= FOLLOW_COPIES_MAX);
    f->ask = *ask;
    f->sources = mem_alloc((plan->sources_count + 1) * sizeof(*f->sources));
    for (uint32_t i = 0; i <= plan->sources_count; i++)
        f->sources[i] = TIME_MIN;
    f->figures = (struct follow_figures){.next = ask->next, .sources = f->sources};
    for (uint32_t i = 0; i < plan->nodes_count; i++) {
        const struct plan_node *node = &plan->nodes[i];
        f->following[i] = plan_following(plan, node);
        if (f->following[i] != FOLLOWING_NOTHING)
            f->stages[node->stage].is_followed = true;
        for (uint32_t k = 0; f->following[i] == FOLLOWING_ROWS && k < node->inputs_count; k++)
            f->columns[i][k] = publish_columns_of(node, k, &f->arena);
    }
    f->next = ask->next;
    return f;
}

static void release_lists(struct follow *f)
{
    for (uint32_t i = 0; i < OPERATOR_INPUTS_MAX; i++)
        batch_list_release(&f->lists[i]);
    f->filled = NULL;
}

void follow_free(struct follow *f)
{
    if (f == NULL)
        return;
    for (uint32_t s = 0; s < PLAN_STAGES_MAX; s++) {
        for (uint32_t i = 0; i < f->stages[s].instances; i++)
            for (uint32_t n = 0; n < SLOTS; n++)
                buffer_free(&f->stages[s].of[i].waiting[n]);
        free(f->stages[s].of);
    }
    release_lists(f);
    delta_tail_close(f->tail);
    arena_free(&f->arena);
    free(f->sources);
    free(f);
}

static void lose(struct follow *f, enum follow_state state, const char *format, ...) LEAT_PRINTF(3, 4);
static void lose(struct follow *f, enum follow_state state, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(f->why, sizeof(f->why), format, arguments);
    va_end(arguments);
    f->state = state;
}

/* --- Applying --- */

static void drop(struct operator_context *context LEAT_UNUSED, uint32_t output LEAT_UNUSED,
                 struct batch *batch)
{
    batch_release(batch);
}

static void ignore(struct operator_context *context LEAT_UNUSED, const struct batch *batch LEAT_UNUSED,
                   uint32_t row LEAT_UNUSED, const char *reason LEAT_UNUSED)
{
}

static const struct operator_reader nobody = {.emit = drop, .reject = ignore};

/* Lets the node process the rows of one instance in one micro-batch, as a lane does (lanes/stage.c). */
static void process(const struct plan_node *node, const struct operator_context *kept, uint64_t micro_batch,
                    const struct batch_list *lists)
{
    struct operator_context context = *kept;
    context.reader = &nobody;
    context.only_absorbs = true;
    context.counters = (struct counters){0};
    context.micro_batch = micro_batch;
    if (node->inputs_count > 1) { /* each of FOLLOWING_ROWS has process_merged then */
        struct merge merge;
        merge_init(&merge, lists, node);
        node->operator_kind->process_merged(&context, &merge);
        arena_reset(context.scratch);
        return;
    }
    for (struct batch *batch = lists[0].first; batch != NULL; batch = batch->next) {
        node->operator_kind->process(&context, 0, batch);
        arena_reset(context.scratch);
    }
}

static void set_watermark(const struct plan_node *node, struct operator_context *context, int64_t watermark)
{
    if (watermark < context->watermark)
        return;
    operator_on_watermark(node->operator_kind, context, watermark);
    arena_reset(context->scratch);
    context->watermark = watermark;
}

static const struct plan_node *node_of(const struct follow *f, const struct publish_record *record,
                                       enum operator_following following)
{
    bool is_good = record->node < f->ask.plan->nodes_count && f->following[record->node] == following;
    return is_good ? &f->ask.plan->nodes[record->node] : NULL;
}

static bool take_rows(struct follow *f, const struct publish_record *record, struct str bytes)
{
    const struct plan_node *node = node_of(f, record, FOLLOWING_ROWS);
    const bool *columns =
        node == NULL || record->input >= node->inputs_count ? NULL : f->columns[record->node][record->input];
    if (columns == NULL || (f->filled != NULL && f->filled != node))
        return false;
    struct batch *batch = batch_read_columns(f->ask.pool, node->bound[record->input].schema, columns, bytes);
    if (batch == NULL)
        return false;
    f->filled = node;
    f->figures.rows += batch->selected;
    batch_list_add(&f->lists[record->input], batch);
    return true;
}

/* The node has all rows that one instance had. */
static bool end_node(struct follow *f, const struct publish_record *record, struct str bytes,
                     uint64_t micro_batch, bool is_last)
{
    const struct plan_node *node = node_of(f, record, FOLLOWING_ROWS);
    int64_t watermark;
    if (node == NULL || bytes.length != sizeof(watermark) || (f->filled != NULL && f->filled != node))
        return false;
    memcpy(&watermark, bytes.data, sizeof(watermark));
    for (uint32_t copy = 0; copy < f->ask.copies; copy++) {
        struct operator_context *context = f->ask.context(f->ask.argument, copy, record->node);
        if (context == NULL)
            continue;
        process(node, context, micro_batch, f->lists);
        if (is_last)
            set_watermark(node, context, watermark);
    }
    release_lists(f);
    return true;
}

/* Memory of the learners' tables, in all copies together. */
static uint64_t tables_bytes(const struct follow *f)
{
    double bytes = 0;
    for (uint32_t copy = 0; copy < f->ask.copies; copy++) {
        for (uint32_t i = 0; i < f->ask.plan->nodes_count; i++) {
            const struct plan_node *node = &f->ask.plan->nodes[i];
            struct operator_context *context =
                f->following[i] == FOLLOWING_CUTS ? f->ask.context(f->ask.argument, copy, i) : NULL;
            struct report report = {0};
            if (context == NULL || node->operator_kind->report == NULL)
                continue;
            node->operator_kind->report(context, &report);
            const struct report_item *item = report_find(&report, "table_bytes");
            bytes += item != NULL ? item->value : 0;
        }
    }
    return (uint64_t)bytes;
}

/* Rows that the job has moved to disk stay in memory here, until a newer checkpoint has them on disk. */
static void weigh(struct follow *f)
{
    int64_t now = os_monotonic_us();
    if (f->weighed_us != 0 && now - f->weighed_us < WEIGH_US)
        return;
    f->weighed_us = now;
    uint64_t bytes = tables_bytes(f), most = (uint64_t)f->ask.plan->config.memory_bytes * f->ask.copies;
    if (f->tables_bytes == 0)
        f->tables_bytes = bytes;
    if (bytes > f->tables_bytes && bytes - f->tables_bytes > most)
        lose(f, FOLLOW_LOST,
             "rows that are new since the checkpoint take %" PRIu64 " MiB, more than the job's `memory`",
             (bytes - f->tables_bytes) >> 20);
}

static bool take_cut(struct follow *f, const struct publish_record *record, struct str bytes,
                     uint64_t micro_batch)
{
    const struct plan_node *node = node_of(f, record, FOLLOWING_CUTS);
    if (node == NULL)
        return false;
    for (uint32_t copy = 0; copy < f->ask.copies; copy++) {
        struct operator_context *context = f->ask.context(f->ask.argument, copy, record->node);
        if (context != NULL && !node->operator_kind->take_cut(context, bytes))
            return false;
    }
    f->figures.cuts++;
    f->uncut_since_us[record->node] = 0;
    f->figures.cut = MAX(f->figures.cut, micro_batch);
    return true;
}

static bool take_sources(struct follow *f, struct str bytes)
{
    uint32_t count = f->ask.plan->sources_count + 1;
    if (bytes.length != count * sizeof(int64_t))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        int64_t watermark;
        memcpy(&watermark, bytes.data + i * sizeof(watermark), sizeof(watermark));
        if (watermark != TIME_MAX) /* the end of the input makes no request late */
            f->sources[i] = MAX(f->sources[i], watermark);
    }
    return true;
}

/* Applies the records of an entry. is_last: no other instance's entry of the micro-batch is left. */
static bool apply(struct follow *f, struct str bytes, uint64_t micro_batch, bool is_last)
{
    size_t at = sizeof(struct publish_head);
    if (bytes.length < at)
        return false;
    while (at < bytes.length) {
        struct publish_record record;
        if (bytes.length - at < sizeof(record))
            return false;
        memcpy(&record, bytes.data + at, sizeof(record));
        at += sizeof(record);
        if (record.bytes > bytes.length - at)
            return false;
        struct str data = {bytes.data + at, record.bytes};
        bool is_good = record.kind == PUBLISH_SOURCES ? take_sources(f, data)
                       : record.kind == PUBLISH_ROWS  ? take_rows(f, &record, data)
                       : record.kind == PUBLISH_END   ? end_node(f, &record, data, micro_batch, is_last)
                       : record.kind == PUBLISH_CUT   ? take_cut(f, &record, data, micro_batch)
                                                      : false;
        if (!is_good)
            return false;
        at += (record.bytes + 7) / 8 * 8;
    }
    return true;
}

/* --- Entries --- */

static bool read_head(const struct follow *f, const struct delta_entry *entry, struct publish_head *head)
{
    if (entry->bytes.length < sizeof(*head))
        return false;
    memcpy(head, entry->bytes.data, sizeof(*head));
    return head->version == PUBLISH_VERSION && head->stage == entry->part &&
           head->stage < f->ask.plan->stages_count && f->stages[head->stage].is_followed &&
           head->instances > 0 && head->instances <= LANES_MAX && head->instance < head->instances;
}

/* Whether the log reaches back to the checkpoint for all instances of all followed stages, of which there is one. */
static bool reaches_back(const struct follow *f)
{
    bool is_any = false;
    for (uint32_t s = 0; s < f->ask.plan->stages_count; s++) {
        const struct follow_stage *stage = &f->stages[s];
        if (stage->is_followed && stage->instances == 0)
            return false;
        for (uint32_t i = 0; i < stage->instances; i++) {
            const struct follow_instance *instance = &stage->of[i];
            if (!instance->has_come || instance->from > f->ask.next || instance->next < f->ask.next)
                return false;
            is_any = true;
        }
    }
    return is_any;
}

/* Whether all instances of all stages have published the next micro-batch. */
static bool has_next(const struct follow *f)
{
    for (uint32_t s = 0; s < f->ask.plan->stages_count; s++)
        for (uint32_t i = 0; i < f->stages[s].instances; i++)
            if (f->stages[s].of[i].next <= f->next)
                return false;
    return true;
}

/* Learners of the stage did something at that time, which is in no cut yet unless the entry has one. */
static void note_uncut(struct follow *f, uint32_t stage, int64_t time_us)
{
    const struct plan_stage *of = &f->ask.plan->stages[stage];
    for (uint32_t i = 0; i < of->nodes_count; i++)
        if (f->following[of->nodes[i]] == FOLLOWING_CUTS && f->uncut_since_us[of->nodes[i]] == 0)
            f->uncut_since_us[of->nodes[i]] = time_us;
}

static void apply_stage(struct follow *f, uint32_t number)
{
    struct follow_stage *stage = &f->stages[number];
    for (uint32_t i = 0; i < stage->instances && f->state == FOLLOW_LIVE; i++) {
        struct follow_instance *of = &stage->of[i];
        struct byte_buffer *waiting = &of->waiting[f->next % SLOTS];
        struct str bytes = of->now.length > 0 ? of->now : (struct str){waiting->data, waiting->length};
        note_uncut(f, number, of->times[f->next % SLOTS]);
        if (!apply(f, bytes, f->next, i + 1 == stage->instances))
            lose(f, FOLLOW_BROKEN, UNSUITABLE, f->next);
        of->now = (struct str){NULL, 0};
        if (waiting->capacity > WAITING_BYTES_KEPT)
            buffer_free(waiting);
        else
            buffer_clear(waiting);
    }
}

static void apply_all(struct follow *f)
{
    while (f->state == FOLLOW_LIVE && has_next(f)) {
        for (uint32_t s = 0; s < f->ask.plan->stages_count; s++)
            apply_stage(f, s);
        f->next++;
    }
}

static void take_batch(struct follow *f, const struct delta_entry *entry)
{
    struct publish_head head;
    if (!read_head(f, entry, &head)) {
        lose(f, FOLLOW_LOST, "the log has an entry that no such job writes");
        return;
    }
    struct follow_stage *stage = &f->stages[head.stage];
    if (stage->instances == 0) {
        stage->of = mem_calloc(head.instances, sizeof(*stage->of));
        stage->instances = head.instances;
    }
    if (head.instances != stage->instances) {
        lose(f, FOLLOW_LOST, "the log has entries of %u and of %u lanes", stage->instances, head.instances);
        return;
    }
    struct follow_instance *of = &stage->of[head.instance];
    bool is_next = of->has_come && entry->number == of->next;
    if (!is_next && f->state == FOLLOW_LIVE) {
        lose(f, FOLLOW_LOST, "the log has micro-batch %" PRIu64 " instead of %" PRIu64, entry->number,
             of->next);
        return;
    }
    if (!is_next)
        of->from = entry->number;
    of->has_come = true;
    of->next = entry->number + 1;
    if (entry->number < f->next)
        return;
    if (entry->number - f->next >= SLOTS) {
        if (f->state == FOLLOW_LIVE)
            lose(f, FOLLOW_LOST, "the log lacks what other lanes did in micro-batch %" PRIu64, f->next);
        return;
    }
    struct byte_buffer *waiting = &of->waiting[entry->number % SLOTS];
    of->times[entry->number % SLOTS] = entry->time_us;
    buffer_clear(waiting);
    if (f->state == FOLLOW_LIVE && entry->number == f->next && has_next(f))
        of->now = entry->bytes; /* applied at once (take_entry) */
    else
        buffer_append(waiting, entry->bytes.data, entry->bytes.length);
}

/* A cut between two micro-batches, of a stage with one instance: applied now, or when the micro-batch before it is. */
static void take_rest(struct follow *f, const struct delta_entry *entry)
{
    struct publish_head head;
    if (!read_head(f, entry, &head) || head.instances != 1) {
        lose(f, FOLLOW_LOST, "the log has an entry that no such job writes");
        return;
    }
    struct follow_stage *stage = &f->stages[head.stage];
    if (entry->number + 1 < f->next || stage->instances == 0)
        return; /* the checkpoint has it */
    if (entry->number >= f->next && entry->number - f->next < SLOTS)
        buffer_append(&stage->of[0].waiting[entry->number % SLOTS], entry->bytes.data + sizeof(head),
                      entry->bytes.length - sizeof(head));
    else if (f->state == FOLLOW_LIVE && !apply(f, entry->bytes, entry->number, true))
        lose(f, FOLLOW_BROKEN, UNSUITABLE, entry->number);
}

static void take_entry(struct follow *f, const struct delta_entry *entry)
{
    f->figures.entries++;
    f->figures.bytes += entry->bytes.length;
    if (entry->kind == PUBLISH_ENDED)
        lose(f, FOLLOW_LOST, "the job publishes no more changes");
    else if (entry->kind == PUBLISH_BATCH)
        take_batch(f, entry);
    else if (entry->kind == PUBLISH_REST)
        take_rest(f, entry);
    else if (entry->kind != PUBLISH_BEAT)
        lose(f, FOLLOW_LOST, "the log has an entry of an unknown kind");
    if (f->state == FOLLOW_APART && entry->kind == PUBLISH_BATCH && reaches_back(f))
        f->state = FOLLOW_LIVE;
    if (f->state == FOLLOW_LIVE)
        weigh(f);
    apply_all(f);
    if (f->state == FOLLOW_LIVE) {
        f->figures.next = f->next;
        f->figures.seen_us = entry->time_us;
        for (uint32_t i = 0; i < f->ask.plan->nodes_count; i++)
            if (f->uncut_since_us[i] != 0)
                f->figures.seen_us = MIN(f->figures.seen_us, f->uncut_since_us[i]);
    }
}

/* --- Reading --- */

enum { OPEN_AGAIN_US = 200 * 1000 };

static void open_tail(struct follow *f)
{
    int64_t now = os_monotonic_us();
    if (f->opened_us != 0 && now - f->opened_us < OPEN_AGAIN_US)
        return;
    f->opened_us = now;
    char *directory = mem_printf("%s/log", f->ask.directory);
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    f->tail = delta_tail_open(directory, f->ask.generation, &diags);
    arena_free(&arena);
    free(directory);
}

static void note_status(struct follow *f, enum delta_tail_status status)
{
    bool is_there = status != DELTA_ENDED && status != DELTA_GONE;
    if (f->figures.entries == 0 && !is_there) { /* no process has written a log for this checkpoint yet */
        delta_tail_close(f->tail);
        f->tail = NULL;
        return;
    }
    if (status == DELTA_CLOSED)
        lose(f, FOLLOW_LOST, "the job has ended");
    else if (status == DELTA_ENDED)
        lose(f, FOLLOW_LOST, "the process of the job has ended");
    else if (status == DELTA_DAMAGED)
        lose(f, FOLLOW_LOST, "the log is damaged: %s", delta_tail_why(f->tail));
    else if (status == DELTA_GONE)
        lose(f, FOLLOW_LOST, "what follows is no longer in the log");
}

enum follow_state follow_step(struct follow *f, int64_t budget_us, bool *is_more)
{
    int64_t end = os_monotonic_us() + budget_us;
    *is_more = false;
    if (f->state >= FOLLOW_LOST)
        return f->state;
    if (f->tail == NULL)
        open_tail(f);
    while (f->tail != NULL && f->state < FOLLOW_LOST) {
        struct delta_entry entry;
        enum delta_tail_status status = delta_tail_next(f->tail, &entry);
        if (status == DELTA_NOTHING_YET)
            break;
        if (status == DELTA_ENTRY)
            take_entry(f, &entry);
        else
            note_status(f, status);
        *is_more = f->state < FOLLOW_LOST;
        if (os_monotonic_us() >= end)
            break;
        *is_more = false;
    }
    return f->state;
}

struct follow_figures follow_figures(const struct follow *f)
{
    return f->figures;
}

const char *follow_why(const struct follow *f)
{
    return f->why;
}

bool follow_has_log(const struct follow *f)
{
    return f->tail != NULL;
}

/* The log has begun, but behind the checkpoint; or it is of another life. */
bool follow_wants_checkpoint(const struct follow *f)
{
    if (f->state == FOLLOW_LOST || f->tail == NULL)
        return true;
    for (uint32_t s = 0; s < f->ask.plan->stages_count; s++)
        for (uint32_t i = 0; i < f->stages[s].instances; i++)
            if (f->state == FOLLOW_APART && f->stages[s].of[i].has_come &&
                f->stages[s].of[i].from > f->ask.next)
                return true;
    return false;
}
