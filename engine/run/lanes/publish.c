/* What the nodes of a stage instance give to followers (run/publish): gathered while a micro-batch runs, appended to the
 * log as one entry at its end. */
#include "run/lanes/internal.h"

#include "run/publish/publish.h"

#include "core/batch_codec.h"
#include "core/os.h"

/* The share of its time that a learner may spend on cuts: a cut that took t, with writing it, is followed by 50 t without
 * one. What notes of changes cost comes to these 2 %. */
enum { CUT_SHARE = 50 };
/* A learner that a checkpoint's writer holds is asked again after so long. */
enum { HELD_US = 1000 };

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
    if (!node->node->operator_kind->cut_note(&node->context, is_on) && is_on)
        publish_refuse(node->stage->run);
    else
        node->publish.is_noted = is_on;
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

/* Appends a cut of the learner to the entry. */
static void cut(struct node_instance *node)
{
    struct byte_buffer *entry = &node->stage->publish_entry;
    int64_t begun_us = os_monotonic_us();
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
    node->publish.spent_us = os_monotonic_us() - begun_us;
}

/* Appends the entry to the log, and says when the learners whose cuts it has may be cut again. Under LEAT_TEST_CUT=1: at
 * once. */
static void append(struct stage_instance *stage, enum publish_entry kind, uint64_t micro_batch)
{
    struct run *run = stage->run;
    int64_t begun_us = os_monotonic_us();
    publish_append(run, kind, stage->index, micro_batch,
                   (struct str){stage->publish_entry.data, stage->publish_entry.length});
    for (uint32_t i = 0; i < stage->stage->nodes_count; i++) {
        struct node_instance *node = &stage->nodes[i];
        if (!node->publish.has_cut)
            continue;
        int64_t now_us = os_monotonic_us(), spent_us = node->publish.spent_us + now_us - begun_us;
        bool is_test = test_cut(BATCH_ROWS) == 1;
        node->publish.due_us = now_us + (is_test ? 0 : MAX(publish_every_us(run), CUT_SHARE * spent_us));
        node->publish.has_cut = false;
    }
}

void stage_publish_node(struct node_instance *node)
{
    if (node->following == FOLLOWING_ROWS) {
        struct publish_record record = {
            .node = node->node->place, .kind = PUBLISH_END, .bytes = sizeof(node->context.watermark)};
        publish_put(&node->stage->publish_entry, &record, &node->context.watermark);
    } else if (node->following == FOLLOWING_CUTS && node->publish.is_noted) {
        node->publish.has_changed = true;
        if (node->stage->slot->is_end || os_monotonic_us() >= node->publish.due_us)
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
        int64_t left_us = node->publish.due_us - os_monotonic_us();
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
