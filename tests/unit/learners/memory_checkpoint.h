/* Checkpoints in memory: what the engine gives to snapshot and restore. The test runs the deferred job. */
#ifndef LEAT_TESTS_UNIT_LEARNERS_MEMORY_CHECKPOINT_H
#define LEAT_TESTS_UNIT_LEARNERS_MEMORY_CHECKPOINT_H

#include "core/buffer.h"
#include "core/snapshot.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { CHAIN_MAX = 40 };

struct snapshot_writer {
    struct byte_buffer *records;
    uint32_t count, room;
    uint32_t fails_at; /* the disk fails at this record; 0: never */
    uint64_t epoch;
    bool is_base;
    snapshot_job *write;
    snapshot_done *done;
    void *argument;
};
/* parts: base, then deltas, then NULL. */
struct snapshot_reader {
    const struct snapshot_writer *parts[CHAIN_MAX];
    uint32_t part, next;
    bool was_corrupt;
};

bool snapshot_put(struct snapshot_writer *w, uint32_t group, const void *data, size_t bytes)
{
    assert_int_equal(group, SNAPSHOT_GLOBAL);
    assert_in_range(bytes, 1, 16 << 20);
    if (w->fails_at != 0 && w->count + 1 >= w->fails_at)
        return false;
    if (w->count == w->room)
        w->records = realloc(w->records, (w->room = w->room * 2 + 16) * sizeof(*w->records));
    w->records[w->count] = (struct byte_buffer){0};
    buffer_append(&w->records[w->count++], data, bytes);
    return true;
}

void snapshot_defer(struct snapshot_writer *w, snapshot_job *write, snapshot_done *done, void *argument)
{
    w->write = write, w->done = done, w->argument = argument;
}

uint64_t snapshot_epoch(const struct snapshot_writer *w)
{
    return w->epoch;
}

bool snapshot_is_base(const struct snapshot_writer *w)
{
    return w->is_base;
}

bool snapshot_get(struct snapshot_reader *r, uint32_t *group, struct str *data)
{
    while (r->parts[r->part] != NULL && r->next == r->parts[r->part]->count)
        r->part++, r->next = 0;
    if (r->parts[r->part] == NULL)
        return false;
    const struct byte_buffer *record = &r->parts[r->part]->records[r->next++];
    *group = SNAPSHOT_GLOBAL;
    *data = (struct str){record->data, record->length};
    return true;
}

void snapshot_corrupt(struct snapshot_reader *r, struct diag_list *diags, const char *what)
{
    (void)diags, (void)what;
    r->was_corrupt = true;
}

static inline void finish(struct snapshot_writer *w, bool is_published)
{
    assert_true(w->write(w->argument, w));
    w->done(w->argument, is_published);
}

static inline void checkpoint_free(struct snapshot_writer *w)
{
    for (uint32_t i = 0; i < w->count; i++)
        buffer_free(&w->records[i]);
    free(w->records);
}

#endif
