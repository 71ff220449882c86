#include "learners/stored/stored.h"
#include "learners/tables/cold.h"
#include "learners/tables/cut.h"
#include "learners/tables/records.h"
#include "learners/tables/sections.h"

#include "core/mem.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { PIECE_BYTES = 8 << 20 };
_Static_assert(STORED_TABLES_MAX <= UINT8_MAX, "record_head.field");

static void set_epoch(struct stored *s, uint32_t epoch)
{
    s->epoch = epoch;
    for (uint32_t p = 0; p < s->parts_count; p++)
        if (s->parts[p].set_epoch != NULL)
            s->parts[p].set_epoch(s->parts[p].of, epoch);
}

void stored_init(struct stored *s, struct table *const *tables, uint32_t tables_count,
                 const struct stored_part *parts, uint32_t parts_count)
{
    leat_assert(tables_count <= STORED_TABLES_MAX && parts_count <= STORED_PARTS_MAX);
    *s = (struct stored){.tables_count = tables_count, .parts_count = parts_count};
    for (uint32_t t = 0; t < tables_count; t++)
        s->tables[t] = tables[t];
    for (uint32_t p = 0; p < parts_count; p++) {
        size_t length = strlen(parts[p].name);
        leat_assert(length > 0 && length < STORED_NAME_BYTES);
        s->parts[p] = parts[p];
    }
    set_epoch(s, 1);
}

/* --- Writing a checkpoint --- */

/* A snapshot being written. Owned by the owner; the writer's thread reads it until it sets `outcome`. */
struct stored_snapshot {
    uint32_t tables_count, epoch;
    const struct table *of[STORED_TABLES_MAX];
    struct table_snapshot *tables[STORED_TABLES_MAX];
    const struct table_keys *removed[STORED_TABLES_MAX];
    atomic_int outcome; /* 0: not known; 1: published; 2: abandoned */
};

/* The record 'H'. */
struct checkpoint_record {
    struct record_head head;
    uint32_t epoch;
    uint16_t tables, parts;
};

/* The begin of a record 'Q'; the bytes follow. */
struct piece_record {
    struct record_head head;
    char name[STORED_NAME_BYTES]; /* then NULs */
};

static bool put_head(const struct stored *s, struct snapshot_writer *out)
{
    struct checkpoint_record record = {.head = {'H', STATE_VERSION, 0, 0, 0},
                                       .epoch = s->epoch,
                                       .tables = (uint16_t)s->tables_count,
                                       .parts = (uint16_t)s->parts_count};
    return snapshot_put(out, SNAPSHOT_GLOBAL, &record, sizeof(record));
}

/* Also where all rows are in memory: rows that came back from the store and have not changed are in it alone. */
static bool put_totals(const struct stored *s, struct snapshot_writer *out)
{
    bool is_ok = true;
    for (uint32_t t = 0; t < s->tables_count && is_ok; t++)
        if (s->tables[t]->cold != NULL)
            is_ok = record_put_total(out, t, table_rows(s->tables[t]));
    return is_ok;
}

static bool put_part(const struct stored_part *part, uint32_t since, struct snapshot_writer *out)
{
    struct byte_buffer bytes = {0}, piece = {0};
    struct piece_record record = {.head = {'Q', STATE_VERSION, 0, 0, 0}};
    bool is_ok = true;
    memcpy(record.name, part->name, strlen(part->name));
    part->save(part->of, since, &bytes);
    for (size_t at = 0; is_ok && record.head.field == 0; at += PIECE_BYTES) {
        size_t length = MIN(bytes.length - at, (size_t)PIECE_BYTES);
        record.head.field = at + length == bytes.length;
        buffer_clear(&piece);
        buffer_append(&piece, &record, sizeof(record));
        if (length > 0)
            buffer_append(&piece, bytes.data + at, length);
        is_ok = snapshot_put(out, SNAPSHOT_GLOBAL, piece.data, piece.length);
    }
    buffer_free(&bytes);
    buffer_free(&piece);
    return is_ok;
}

static bool write_rows(void *argument, struct snapshot_writer *out)
{
    const struct stored_snapshot *snapshot = argument;
    bool is_ok = true;
    for (uint32_t t = 0; t < snapshot->tables_count && is_ok; t++)
        is_ok = rows_write_table(out, snapshot->of[t], t, snapshot->tables[t], snapshot->removed[t]);
    return is_ok;
}

static void set_outcome(void *argument, bool is_published)
{
    struct stored_snapshot *snapshot = argument;
    atomic_store_explicit(&snapshot->outcome, is_published ? 1 : 2, memory_order_release);
}

bool stored_snapshot(struct stored *s, struct snapshot_writer *writer)
{
    stored_settle(s, false);
    leat_assert(s->snapshot == NULL);   /* one checkpoint at a time */
    leat_assert(s->epoch < UINT32_MAX); /* it takes billions of cuts, which end before (CUT_EPOCH_LAST) */
    uint32_t since = snapshot_is_base(writer) ? 0 : s->published;
    bool is_ok = put_head(s, writer) && put_totals(s, writer);
    for (uint32_t p = 0; p < s->parts_count && is_ok; p++)
        is_ok = put_part(&s->parts[p], since, writer);
    if (!is_ok)
        return false;
    struct stored_snapshot *snapshot = mem_calloc(1, sizeof(*snapshot));
    snapshot->tables_count = s->tables_count;
    snapshot->epoch = s->epoch;
    for (uint32_t t = 0; t < s->tables_count; t++) {
        struct table *table = s->tables[t];
        snapshot->of[t] = table;
        snapshot->tables[t] = table_snapshot_begin(table, since, s->epoch, &snapshot->removed[t]);
        if (table->cold != NULL)
            table_cold_barrier(table);
    }
    set_epoch(s, s->epoch + 1);
    s->snapshot = snapshot;
    snapshot_defer(writer, write_rows, set_outcome, snapshot);
    return true;
}

void stored_settle(struct stored *s, bool is_closing)
{
    struct stored_snapshot *snapshot = s->snapshot;
    if (snapshot == NULL)
        return;
    int outcome = atomic_load_explicit(&snapshot->outcome, memory_order_acquire);
    if (outcome == 0 && !is_closing)
        return;
    for (uint32_t t = 0; t < snapshot->tables_count; t++)
        table_snapshot_end(s->tables[t], outcome == 1);
    if (outcome == 1)
        s->published = snapshot->epoch;
    s->snapshot = NULL;
    free(snapshot);
}

/* --- Restoring --- */

/* A chain of checkpoints while its records are read. */
struct restoring {
    struct stored *s;
    uint32_t epoch;                             /* of the checkpoint being read; 0: none yet */
    uint32_t parts;                             /* of its parts, how many are there */
    bool is_in_part;                            /* pieces of the next one have been read */
    bool has_total[STORED_TABLES_MAX];          /* likewise, of its tables */
    uint64_t totals[STORED_TABLES_MAX];         /* of the checkpoint read last */
    struct byte_buffer bytes[STORED_PARTS_MAX]; /* of each part: the newest */
};

static const char refused_head[] = "a learner's checkpoint begins with a head that does not fit this job",
                  refused_lack[] = "a learner's checkpoint lacks a part or the number of a table's rows",
                  refused_part[] = "a part of a learner does not fit this job, or comes at the wrong place",
                  refused_rows[] = "a learner's rows do not fit this job, or come before its parts";

/* Whether all is there of the checkpoint that was being read. Rows may end anywhere: their number is not known. */
static bool is_whole(const struct restoring *r)
{
    if (r->epoch == 0 || r->parts < r->s->parts_count)
        return false;
    for (uint32_t t = 0; t < r->s->tables_count; t++)
        if (r->s->tables[t]->cold != NULL && !r->has_total[t])
            return false;
    return true;
}

static const char *take_head(struct restoring *r, struct str data)
{
    struct checkpoint_record record;
    if (r->epoch != 0 && !is_whole(r))
        return refused_lack;
    if (data.length != sizeof(record))
        return refused_head;
    memcpy(&record, data.data, sizeof(record));
    if (record.tables != r->s->tables_count || record.parts != r->s->parts_count ||
        record.epoch <= r->epoch || record.epoch == UINT32_MAX)
        return refused_head;
    r->epoch = record.epoch;
    r->parts = 0;
    memset(r->has_total, 0, sizeof(r->has_total));
    return NULL;
}

static const char *take_total(struct restoring *r, const struct record_head *head, struct str items)
{
    bool is_ok = r->epoch != 0 && r->parts == 0 && !r->is_in_part && head->field < r->s->tables_count &&
                 r->s->tables[head->field]->cold != NULL &&
                 record_total(head, items.data, items.length, &r->totals[head->field]);
    if (!is_ok)
        return refused_rows;
    r->has_total[head->field] = true;
    return NULL;
}

static const char *take_piece(struct restoring *r, struct str data)
{
    struct piece_record record;
    if (r->epoch == 0 || r->parts == r->s->parts_count || data.length < sizeof(record))
        return refused_part;
    memcpy(&record, data.data, sizeof(record));
    const struct stored_part *part = &r->s->parts[r->parts];
    if (record.head.field > 1 || strncmp(record.name, part->name, sizeof(record.name)) != 0)
        return refused_part;
    struct byte_buffer *bytes = &r->bytes[r->parts];
    if (!r->is_in_part)
        buffer_clear(bytes);
    buffer_append(bytes, data.data + sizeof(record), data.length - sizeof(record));
    r->is_in_part = record.head.field == 0;
    if (r->is_in_part)
        return NULL;
    r->parts++;
    const char *reason = part->is_journal ? part->load(part->of, bytes->data, bytes->length) : NULL;
    if (part->is_journal)
        buffer_free(bytes);
    return reason;
}

static const char *take_items(struct restoring *r, const struct record_head *head, struct str items)
{
    bool is_ok = r->epoch != 0 && r->parts == r->s->parts_count && head->field < r->s->tables_count;
    struct table *table = is_ok ? r->s->tables[head->field] : NULL;
    is_ok = is_ok && record_fits(table, head, items.length) &&
            record_is_of_shard(table, head, items.data, items.length) &&
            record_restore(table, head, items.data, items.length);
    return is_ok ? NULL : refused_rows;
}

/* Returns NULL, or why the record is refused. */
static const char *take_record(struct restoring *r, struct str data)
{
    struct record_head head;
    if (data.length < sizeof(head))
        return "a record of a learner is cut off";
    memcpy(&head, data.data, sizeof(head));
    if (head.version != STATE_VERSION)
        return "another version of leat wrote the state of a learner";
    struct str items = {data.data + sizeof(head), data.length - sizeof(head)};
    if (head.kind == 'H')
        return take_head(r, data);
    if (head.kind == 'T')
        return take_total(r, &head, items);
    return head.kind == 'Q' ? take_piece(r, data) : take_items(r, &head, items);
}

/* After the last record. */
static const char *finish(struct restoring *r)
{
    struct stored *s = r->s;
    if (!is_whole(r))
        return refused_lack;
    for (uint32_t t = 0; t < s->tables_count; t++) {
        table_restored(s->tables[t], r->epoch);
        if (s->tables[t]->cold != NULL)
            table_cold_restored(s->tables[t], r->totals[t]);
    }
    s->published = r->epoch;
    set_epoch(s, r->epoch + 1);
    for (uint32_t p = 0; p < s->parts_count; p++) {
        const struct stored_part *part = &s->parts[p];
        const char *reason =
            part->is_journal ? NULL : part->load(part->of, r->bytes[p].data, r->bytes[p].length);
        if (reason != NULL)
            return reason;
    }
    return NULL;
}

bool stored_restore(struct stored *s, struct operator_context *context, struct snapshot_reader *reader)
{
    struct restoring r = {.s = s};
    const char *reason = NULL;
    uint32_t group;
    struct str data;
    leat_assert(s->snapshot == NULL && !s->notes_changes);
    while (reason == NULL && snapshot_get(reader, &group, &data))
        reason = take_record(&r, data);
    if (reason == NULL)
        reason = finish(&r);
    if (reason != NULL)
        snapshot_corrupt(reader, context->diags, reason);
    for (uint32_t p = 0; p < s->parts_count; p++)
        buffer_free(&r.bytes[p]);
    return reason == NULL;
}

/* --- Cuts --- */

enum { CUT_VERSION = 1 };
static const uint32_t CUT_MAGIC = 0x74756373; /* "scut" */

struct cut_head {
    uint32_t magic, version, tables, parts;
};

/* Numbers of sections: a table's is its number, a part's comes after those of all tables. */
static uint32_t section_of_part(uint32_t part)
{
    return STORED_TABLES_MAX + part;
}

static struct cut_head head_of(const struct stored *s)
{
    return (struct cut_head){CUT_MAGIC, CUT_VERSION, s->tables_count, s->parts_count};
}

/* Ends the epoch in progress for cuts. */
static void note_from_here(struct stored *s)
{
    s->noted = s->epoch;
    set_epoch(s, s->epoch + 1);
}

bool stored_cut_note(struct stored *s, bool is_on)
{
    s->notes_changes = false;
    if (is_on && s->epoch >= CUT_EPOCH_LAST)
        return false;
    for (uint32_t t = 0; t < s->tables_count; t++)
        table_cut_note(s->tables[t], is_on, s->epoch);
    if (is_on)
        note_from_here(s);
    s->notes_changes = is_on;
    return true;
}

bool stored_cut(struct stored *s, struct byte_buffer *out)
{
    struct cut_head head = head_of(s);
    leat_assert(s->notes_changes);
    if (s->epoch >= CUT_EPOCH_LAST)
        return false;
    buffer_append(out, &head, sizeof(head));
    for (uint32_t t = 0; t < s->tables_count; t++) {
        size_t begin = section_begin(out, t);
        table_cut(s->tables[t], s->epoch, out);
        section_end(out, begin);
    }
    size_t parts_begin = out->length;
    for (uint32_t p = 0; p < s->parts_count; p++) {
        const struct stored_part *part = &s->parts[p];
        if (!part->is_for_readers)
            continue;
        size_t begin = section_begin(out, section_of_part(p));
        (part->save_reader != NULL ? part->save_reader : part->save)(part->of, s->noted, out);
        section_end(out, begin);
    }
    s->cut_parts_bytes = out->length - parts_begin;
    note_from_here(s);
    return true;
}

size_t stored_cut_bytes(const struct stored *s)
{
    size_t bytes = s->cut_parts_bytes;
    leat_assert(s->notes_changes);
    for (uint32_t t = 0; t < s->tables_count; t++)
        bytes += table_cut_bytes(s->tables[t]);
    return bytes;
}

bool stored_take_cut(struct stored *s, struct str bytes, uint32_t step)
{
    struct cut_head head, own = head_of(s);
    struct str section;
    leat_assert(!s->notes_changes && s->snapshot == NULL);
    if (bytes.length < sizeof(head))
        return false;
    memcpy(&head, bytes.data, sizeof(head));
    if (memcmp(&head, &own, sizeof(head)) != 0)
        return false;
    bytes = (struct str){bytes.data + sizeof(head), bytes.length - sizeof(head)};
    for (uint32_t t = 0; t < s->tables_count; t++)
        if (!section_take(&bytes, t, &section) ||
            !table_take_cut(s->tables[t], section.data, section.length, step))
            return false;
    for (uint32_t p = 0; p < s->parts_count; p++) {
        const struct stored_part *part = &s->parts[p];
        if (!part->is_for_readers)
            continue;
        if (!section_take(&bytes, section_of_part(p), &section) ||
            (part->load_reader != NULL ? part->load_reader : part->load)(part->of, section.data,
                                                                         section.length) != NULL)
            return false;
    }
    return bytes.length == 0;
}
