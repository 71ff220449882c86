/* What the nodes of a stage instance give to followers (run/publish): gathered while a micro-batch runs, appended to the
 * log as one entry at its end. */
#include "run/lanes/internal.h"

#include "run/publish/publish.h"

#include "core/batch_codec.h"
#include "core/delta_log.h"
#include "core/os.h"

/* The share of its time that a learner may spend on cuts: before a cut that is expected to take t, with writing it, lie
 * 50 t without one, and what the last two both took beyond t is waited for before the next: a disk that stalls once says
 * nothing about the next cut. The more has changed, the longer a cut takes, and waits: so the share holds from the first
 * cut on, also while cuts grow. Notes of changes cost about as much again.
 *
 * A cut is expected to take what large ones took lately for a byte, as CPU time. What it took is time that passed, as the
 * waiting is: beside other processes both are longer, and the share stays. */
enum { CUT_SHARE = 50, MIB = 1 << 20, CUT_US_PER_MIB = 2000 };

/* A cut that the log has no room for is of no use. So one comes before it has CUT_PARTS of 4 of that room, whatever it
 * costs: of a learner whose rows come and go fast enough, what has changed grows faster than the wait for it can pass. */
enum { CUT_PARTS = 3 };

/* A learner that a checkpoint's writer holds is asked again after so long. */
enum { HELD_US = 1000 };

struct moment {
    int64_t cpu_us, us;
};

static struct moment moment_now(void)
{
    return (struct moment){os_thread_cpu_us(), os_monotonic_us()};
}

/* Adds what passed since. */
static void add_since(struct moment *spent, struct moment begun)
{
    struct moment now = moment_now();
    spent->cpu_us += now.cpu_us - begun.cpu_us;
    spent->us += now.us - begun.us;
}

static bool has_followed(const struct stage_instance *stage)
{
    for (uint32_t i = 0; i < stage->stage->nodes_count; i++)
        if (publish_following(stage->run, stage->stage->nodes[i]) != FOLLOWING_NOTHING)
            return true;
    return false;
}

/* Notes of changes begin with the first micro-batch that is published, and end with the first that is not. */
static void note_changes(struct node_instance *node, bool is_on)
{
    if (node->following != FOLLOWING_CUTS || node->publish.is_noted == is_on)
        return;
    if (!node->node->operator_kind->cut_note(&node->context, is_on) && is_on) {
        publish_refuse(node->stage->run);
        return;
    }
    node->publish.is_noted = is_on;
    node->publish.noted_us = node->publish.since_us = os_monotonic_us();
    node->publish.over_us = node->publish.over_both_us = 0;
    node->publish.us_per_mib = CUT_US_PER_MIB;
    if (!is_on)
        buffer_free(&node->stage->publish_entry);
}

void stage_publish_init(struct stage_instance *stage)
{
    if (stage->run->publisher == NULL)
        return;
    for (uint32_t i = 0; i < stage->stage->nodes_count; i++)
        stage->nodes[i].following = publish_following(stage->run, stage->stage->nodes[i]);
    stage->is_followed = has_followed(stage);
    leat_assert(!stage->is_followed ||
                stage->index > 0); /* of stage 0 one instance alone runs a micro-batch */
}

static void begin_entry(struct stage_instance *stage)
{
    struct publish_head head = {.version = PUBLISH_VERSION,
                                .stage = stage->index,
                                .instance = stage->instance,
                                .instances = stage->run->stage_instances[stage->index]};
    buffer_clear(&stage->publish_entry);
    buffer_append(&stage->publish_entry, &head, sizeof(head));
}

void stage_publish_begin(struct stage_instance *stage)
{
    stage->publishes = stage->slot->is_published;
    for (uint32_t i = 0; i < stage->stage->nodes_count; i++)
        note_changes(&stage->nodes[i], stage->publishes);
    if (!stage->publishes)
        return;
    begin_entry(stage);
    struct publish_record record = {.kind = PUBLISH_SOURCES,
                                    .bytes = (stage->run->plan->sources_count + 1) * sizeof(int64_t)};
    publish_put(&stage->publish_entry, &record, stage->slot->watermarks);
}

void stage_publish_rows(struct node_instance *node, uint32_t input, const struct batch *batch)
{
    struct byte_buffer *entry = &node->stage->publish_entry;
    const bool *columns = publish_columns(node->stage->run, node->node->place, input);
    if (columns == NULL)
        return;
    struct publish_record record = {
        .node = node->node->place, .kind = PUBLISH_ROWS, .input = (uint16_t)input};
    size_t place = publish_begin(entry, &record);
    batch_write_columns(batch, columns, entry);
    publish_finish(entry, place);
}

/* What a cut would cost now. */
static int64_t expect_us(const struct node_instance *node)
{
    size_t bytes = node->node->operator_kind->cut_bytes(&node->context);
    return (int64_t)(bytes * (uint64_t)node->publish.us_per_mib / MIB);
}

/* Whether the log would soon have no room for the cut. */
static bool is_large(const struct node_instance *node)
{
    size_t room = MIN(DELTA_ENTRY_MAX, (size_t)node->stage->run->plan->config.checkpoint.log_bytes);
    return node->node->operator_kind->cut_bytes(&node->context) >= room / 4 * CUT_PARTS;
}

/* When the learner may be cut, as much as has changed now, on the monotonic clock. Under LEAT_TEST_CUT=1: at once. */
static int64_t due_us(const struct node_instance *node)
{
    if (test_cut(BATCH_ROWS) == 1)
        return node->publish.since_us;
    int64_t wait_us = is_large(node) ? 0 : CUT_SHARE * (expect_us(node) + node->publish.over_both_us);
    return node->publish.since_us + MAX(publish_every_us(node->stage->run), wait_us);
}

/* Whether the learner gets its last cut, at the end of the run: if that takes a small share of the time since notes began.
 * Else the last checkpoint, which comes now, has what it lacks. */
static bool may_end(const struct node_instance *node)
{
    return os_monotonic_us() - node->publish.noted_us >= CUT_SHARE * expect_us(node);
}

/* Makes room for a cut at once: growing step by step, a buffer is copied and paged in twice. */
static void make_room(struct byte_buffer *entry, size_t bytes)
{
    if (bytes <= entry->capacity - entry->length)
        return;
    struct byte_buffer larger = {0};
    buffer_reserve(&larger, entry->length + bytes + bytes / 4);
    buffer_append(&larger, entry->data, entry->length);
    buffer_free(entry);
    *entry = larger;
}

/* Appends a cut of the learner to the entry. */
static void cut(struct node_instance *node)
{
    struct byte_buffer *entry = &node->stage->publish_entry;
    struct moment begun = moment_now();
    node->publish.expected_us = expect_us(node);
    make_room(entry, node->node->operator_kind->cut_bytes(&node->context));
    struct publish_record record = {.node = node->node->place, .kind = PUBLISH_CUT};
    size_t place = publish_begin(entry, &record);
    if (!node->node->operator_kind->cut(&node->context, entry)) {
        entry->length = place;
        publish_refuse(node->stage->run);
        return;
    }
    publish_finish(entry, place);
    node->publish.has_changed = false;
    node->publish.has_cut = true;
    node->publish.bytes = entry->length - place;
    struct moment spent = {0, 0};
    add_since(&spent, begun);
    node->publish.spent_us = spent.us;
    node->publish.cpu_us = spent.cpu_us;
}

/* The learner's cut is written, which took `spent`. */
static void settle(struct node_instance *node, struct moment spent)
{
    node->publish.spent_us += spent.us;
    node->publish.cpu_us += spent.cpu_us;
    int64_t over_us = MAX(node->publish.spent_us - node->publish.expected_us, 0);
    node->publish.over_both_us = MIN(over_us, node->publish.over_us);
    node->publish.over_us = over_us;
    node->publish.since_us = os_monotonic_us();
    node->publish.has_cut = false;
    if (node->publish.bytes >= MIB)
        node->publish.us_per_mib =
            (node->publish.us_per_mib + node->publish.cpu_us * MIB / (int64_t)node->publish.bytes) / 2 + 1;
}

/* Appends the entry to the log. */
static void append(struct stage_instance *stage, enum publish_entry kind, uint64_t micro_batch)
{
    bool has_cut = false;
    for (uint32_t i = 0; i < stage->stage->nodes_count; i++)
        has_cut = has_cut || stage->nodes[i].publish.has_cut;
    struct moment begun = has_cut ? moment_now() : (struct moment){0, 0};
    publish_append(stage->run, kind, stage->index, micro_batch,
                   (struct str){stage->publish_entry.data, stage->publish_entry.length});
    struct moment spent = {0, 0};
    if (has_cut)
        add_since(&spent, begun);
    for (uint32_t i = 0; i < stage->stage->nodes_count; i++)
        if (stage->nodes[i].publish.has_cut)
            settle(&stage->nodes[i], spent);
}

void stage_publish_node(struct node_instance *node)
{
    if (node->following == FOLLOWING_ROWS) {
        struct publish_record record = {
            .node = node->node->place, .kind = PUBLISH_END, .bytes = sizeof(node->context.watermark)};
        publish_put(&node->stage->publish_entry, &record, &node->context.watermark);
    } else if (node->following == FOLLOWING_CUTS && node->publish.is_noted) {
        node->publish.has_changed = true;
        if (node->stage->slot->is_end ? may_end(node) : os_monotonic_us() >= due_us(node))
            cut(node);
    }
}

void stage_publish_end(struct stage_instance *stage)
{
    append(stage, PUBLISH_BATCH, stage->slot->micro_batch);
}

int64_t stage_publish_rest(struct stage_instance *stage)
{
    int64_t again_us = INT64_MAX;
    for (uint32_t i = 0; i < stage->stage->nodes_count; i++) {
        struct node_instance *node = &stage->nodes[i];
        if (!node->publish.has_changed || !node->publish.is_noted)
            continue;
        int64_t left_us = due_us(node) - os_monotonic_us();
        if (left_us <= 0 && stage_node_is_held(node))
            left_us = HELD_US;
        if (left_us > 0) {
            again_us = MIN(again_us, left_us);
            continue;
        }
        begin_entry(stage);
        cut(node);
        if (node->publish.has_cut)
            append(stage, PUBLISH_REST, stage->next - 1);
    }
    return again_us;
}
