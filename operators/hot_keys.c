#include "operators/hot_keys.h"

#include "core/mem.h"

#include <stdio.h>
#include <stdlib.h>

/* One of SAMPLE_EVERY rows is sampled. A key is reported when at least HOT_ROWS_MIN rows came and the key has
 * at least HOT_SHARE percent of them. HOT_KEYS: buckets of candidates; HOT_TEXT: bytes of a key's text;
 * HOT_LINES: keys that are ever reported. */
enum {
    SAMPLE_EVERY = 16,
    HOT_SHARE = 10,
    HOT_ROWS_MIN = 10000,
    HOT_KEYS = 64,
    HOT_TEXT = 64,
    HOT_LINES = 16
};

/* A bucket with one candidate key (majority vote): `count` goes up for each sampled row of the key, and down
 * for each sampled row of another key in the bucket. At 0 the next key becomes the candidate. */
struct hot_entry {
    struct key key;
    uint64_t count;
    char text[HOT_TEXT];
};

struct hot_keys {
    uint64_t epoch;               /* of the checkpoint it was restored from */
    uint64_t rows;                /* rows seen, for choosing the sample */
    uint64_t sampled[KEY_GROUPS]; /* sampled rows by key group: restored at any number of lanes */
    struct hot_entry keys[HOT_KEYS];
    /* Reported lines and their keys, each key once. A line never changes: the report may be read later. */
    char lines[HOT_LINES][HOT_TEXT + 96];
    struct key said[HOT_LINES];
    uint32_t lines_count;
};

/* Head of a snapshot record. Behind it: the sampled rows of `groups` key groups from first_group on, then
 * `entries` entries (struct hot_entry). */
struct hot_record {
    char kind[8];
    uint64_t epoch, rows;
    uint32_t lane, lanes;
    uint32_t first_group, groups;
    uint64_t entries;
};

static void put_value(char *out, size_t room, const struct column *column, uint32_t row)
{
    switch (column->tag) {
    case TYPE_BOOL: snprintf(out, room, "%s", column->bools[row] != 0 ? "true" : "false"); break;
    case TYPE_INT:
    case TYPE_TIME: snprintf(out, room, "%lld", (long long)column->ints[row]); break;
    case TYPE_FLOAT: snprintf(out, room, "%g", column->floats[row]); break;
    default: {
        struct str text = column_text(column, row);
        snprintf(out, room, "%.*s", (int)MIN(text.length, room - 1), text.data);
        for (char *at = out; *at != '\0'; at++)
            if ((unsigned char)*at < ' ')
                *at = '?';
    }
    }
}

static void put_key(char out[HOT_TEXT], const struct batch *batch, const int *columns, uint32_t count,
                    uint32_t row)
{
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < count && used + 3 < HOT_TEXT; i++) {
        if (i > 0)
            used += (size_t)snprintf(out + used, HOT_TEXT - used, ", ");
        put_value(out + used, HOT_TEXT - used, &batch->columns[columns[i]], row);
        used += strlen(out + used);
    }
}

void hot_keys_note(struct hot_keys *hot, const struct batch *batch, const int *columns,
                   uint32_t columns_count, const struct row_keys *keys)
{
    uint64_t first = (SAMPLE_EVERY - hot->rows % SAMPLE_EVERY) % SAMPLE_EVERY;
    hot->rows += batch->selected;
    for (uint64_t i = first; i < batch->selected; i += SAMPLE_EVERY) {
        if (keys->has_null[i])
            continue;
        uint32_t at = (uint32_t)(keys->hashes[i] % HOT_KEYS);
        hot->sampled[key_group(keys->hashes[i])]++;
        if (key_equal(hot->keys[at].key, keys->keys[i])) {
            hot->keys[at].count++;
        } else if (hot->keys[at].count > 0) {
            hot->keys[at].count--;
        } else {
            hot->keys[at].key = keys->keys[i];
            hot->keys[at].count = 1;
            put_key(hot->keys[at].text, batch, columns, columns_count, batch_row(batch, (uint32_t)i));
        }
    }
}

/* --- Checkpoints --- */

static bool hot_open(const struct state_member *row LEAT_UNUSED,
                     const struct operator_context *context LEAT_UNUSED, void *member)
{
    struct hot_keys *hot = mem_calloc(1, sizeof(*hot));
    memcpy(member, &hot, sizeof(hot));
    return true;
}

static bool hot_snapshot(const struct state_member *row, struct operator_context *context, void *object,
                         struct snapshot_writer *writer)
{
    const struct hot_keys *hot = object;
    struct hot_record head = {.kind = {row->tag},
                              .epoch = snapshot_epoch(writer),
                              .rows = hot->rows,
                              .lane = context->lane,
                              .lanes = context->lanes};
    struct byte_buffer record = {0};
    head.groups = group_set_limit(context->groups);
    head.first_group = MIN(group_set_next(context->groups, 0), head.groups);
    head.groups -= head.first_group;
    for (uint32_t i = 0; i < HOT_KEYS; i++)
        head.entries += hot->keys[i].count > 0;
    buffer_append(&record, &head, sizeof(head));
    buffer_append(&record, hot->sampled + head.first_group, head.groups * sizeof(*hot->sampled));
    for (uint32_t i = 0; i < HOT_KEYS; i++)
        if (hot->keys[i].count > 0)
            buffer_append(&record, &hot->keys[i], sizeof(hot->keys[i]));
    bool is_good = snapshot_put(writer, SNAPSHOT_GLOBAL, record.data, record.length);
    buffer_free(&record);
    return is_good;
}

/* Of two keys in one bucket the one with the larger count stays, with the difference of the counts. */
static void take_entry(struct hot_keys *hot, const struct hot_entry *entry)
{
    struct hot_entry *mine = &hot->keys[key_hash(entry->key) % HOT_KEYS];
    if (key_equal(mine->key, entry->key)) {
        mine->count += entry->count;
    } else if (mine->count >= entry->count) {
        mine->count -= entry->count;
    } else {
        uint64_t others = mine->count;
        *mine = *entry;
        mine->count -= others;
    }
    mine->text[HOT_TEXT - 1] = '\0';
}

/* Adds a record's figures, as far as they are of keys and key groups of this lane. */
static bool hot_restore(const struct state_member *row LEAT_UNUSED, struct operator_context *context,
                        void *object, struct snapshot_reader *reader, struct str record)
{
    struct hot_keys *hot = object;
    struct hot_record head;
    memcpy(&head, record.data, MIN(record.length, sizeof(head)));
    if (record.length < sizeof(head) || head.groups > KEY_GROUPS || head.entries > HOT_KEYS ||
        head.first_group > KEY_GROUPS - head.groups ||
        record.length !=
            sizeof(head) + head.groups * sizeof(*hot->sampled) + head.entries * sizeof(struct hot_entry)) {
        snapshot_corrupt(reader, context->diags,
                         "the record of the keys with many rows has an impossible form");
        return false;
    }
    if (head.epoch < hot->epoch)
        return true;
    if (head.epoch > hot->epoch)
        *hot = (struct hot_keys){.epoch = head.epoch};
    if (head.lane == context->lane && head.lanes == context->lanes)
        hot->rows = head.rows;
    const char *at = record.data + sizeof(head);
    for (uint32_t i = 0; i < head.groups; i++, at += sizeof(*hot->sampled)) {
        uint64_t sampled;
        memcpy(&sampled, at, sizeof(sampled));
        if (group_set_has(context->groups, head.first_group + i))
            hot->sampled[head.first_group + i] += sampled;
    }
    for (uint64_t i = 0; i < head.entries; i++, at += sizeof(struct hot_entry)) {
        struct hot_entry entry;
        memcpy(&entry, at, sizeof(entry));
        if (group_set_has(context->groups, key_group(key_hash(entry.key))))
            take_entry(hot, &entry);
    }
    return true;
}

/* --- Report --- */

/* A line about the hottest key; NULL: no key is hot. *rows: about how many rows have it. */
static const char *line_of(struct hot_keys *hot, double *rows)
{
    uint32_t most = 0;
    for (uint32_t i = 1; i < HOT_KEYS; i++)
        if (hot->keys[i].count > hot->keys[most].count)
            most = i;
    uint64_t count = hot->keys[most].count, sampled = 0;
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        sampled += hot->sampled[group];
    if (sampled * SAMPLE_EVERY < HOT_ROWS_MIN || count * 100 < sampled * HOT_SHARE)
        return NULL;
    *rows = (double)count * SAMPLE_EVERY;
    for (uint32_t i = 0; i < hot->lines_count; i++)
        if (key_equal(hot->said[i], hot->keys[most].key))
            return hot->lines[i];
    if (hot->lines_count == HOT_LINES)
        return hot->lines[HOT_LINES - 1];
    uint32_t line = hot->lines_count++;
    char key[HOT_TEXT];
    memcpy(key, hot->keys[most].text, sizeof(key));
    hot->said[line] = hot->keys[most].key;
    snprintf(hot->lines[line], sizeof(hot->lines[line]),
             "%s has more than %d %% of the rows of its lane, and no other lane can share the work on them",
             key, HOT_SHARE);
    return hot->lines[line];
}

static void hot_report(const struct state_member *row LEAT_UNUSED, void *hot, struct report *report)
{
    double rows = 0;
    const char *line = line_of(hot, &rows);
    if (line == NULL)
        return;
    report_add_text(report, "hot_key", line);
    report->items[report->count - 1].value = rows; /* report_merge keeps the lane with the most rows */
    report_add(report, "hot_key_rows_max", rows, false);
}

static void hot_close(void *hot)
{
    free(hot);
}

const struct state_kind state_hot_keys = {.is_pointer = true,
                                          .open = hot_open,
                                          .snapshot = hot_snapshot,
                                          .restore = hot_restore,
                                          .report = hot_report,
                                          .close = hot_close};
