/* The newest dead letters of a run, for people who look while it goes on. An instance of a node keeps DEAD_KEPT_TURN of them in
 * DEAD_KEPT_NS: more nobody reads, a node that rejects few rows is seen beside one that rejects all, and a row that is not kept costs
 * a comparison. All instances put theirs into one ring, under a mutex that each takes that seldom. */
#include "run/lanes/internal.h"

#include "core/describe.h"
#include "core/mem.h"
#include "core/os.h"
#include "core/utf8.h"

#include <stdio.h>
#include <stdlib.h>

enum { LIST_SHOWN_MAX = 32 };

struct dead_kept {
    pthread_mutex_t mutex;
    uint64_t count;                                /* letters kept so far */
    struct run_dead_letter letters[RUN_DEAD_KEPT]; /* letter n is at (n - 1) % RUN_DEAD_KEPT */
};

struct dead_kept *dead_kept_new(void)
{
    struct dead_kept *kept = mem_calloc(1, sizeof(*kept));
    pthread_mutex_init(&kept->mutex, NULL);
    return kept;
}

void dead_kept_free(struct dead_kept *kept)
{
    if (kept == NULL)
        return;
    pthread_mutex_destroy(&kept->mutex);
    free(kept);
}

/* Copies what fits. A character that is cut stays cut. */
static uint32_t fill(char *to, size_t room, struct str text)
{
    size_t length = text.data == NULL ? 0 : MIN(text.length, room);
    if (length > 0)
        memcpy(to, text.data, length);
    return (uint32_t)length;
}

static void describe_cell(struct describe *d, const char *name, const struct column *column,
                          const struct type *type, uint32_t row)
{
    bool is_valid = column_is_valid(column, row);
    bool is_text = is_valid && (type->tag == TYPE_TEXT || type->tag == TYPE_BYTES);
    if (is_valid && type->tag == TYPE_LIST && column->lists[row].length > LIST_SHOWN_MAX) {
        char text[64];
        snprintf(text, sizeof(text), "%u elements", column->lists[row].length);
        describe_text(d, name, str_from(text));
    } else if (is_text && column->texts[row].length > RUN_DEAD_RECORD_BYTES) {
        describe_text(d, name, (struct str){column_text(column, row).data, RUN_DEAD_RECORD_BYTES});
    } else {
        describe_value(d, name, column, type, row);
    }
}

/* The row as JSON, or its beginning: the bytes of its record are gone. */
static uint32_t fill_row(char *to, size_t room, const struct batch *batch, uint32_t row)
{
    struct byte_buffer out = {0};
    struct arena names = {0};
    struct describe d;
    describe_begin(&d, &out, true);
    for (uint32_t i = 0; i < batch->schema->count && out.length <= room; i++) {
        const struct field *field = &batch->schema->fields[i];
        describe_cell(&d, arena_strndup(&names, field->name.data, field->name.length), &batch->columns[i],
                      &field->type, row);
    }
    describe_end(&d);
    uint32_t bytes = fill(to, room, (struct str){out.data, out.length - 1}); /* without the newline */
    arena_free(&names);
    buffer_free(&out);
    return bytes;
}

/* "orders-3 offset 42", or "data.jsonl record 16", counted from 0. */
static uint32_t fill_place(char *to, size_t room, const struct run *run, const struct row_origin *origin)
{
    struct partition_place place;
    bool is_known = sequencer_place(run, origin->partition, &place);
    int32_t number = 0;
    const char *topic = NULL;
    if (is_known && place.node->source_kind->partition_topic != NULL)
        topic = place.node->source_kind->partition_topic(place.source, place.local, &number);
    char *text = topic != NULL
                     ? mem_printf("%s-%d offset %llu", topic, (int)number, (unsigned long long)origin->record)
                     : mem_printf("%s%srecord %llu", place.name, place.name[0] == '\0' ? "" : " ",
                                  (unsigned long long)origin->record);
    uint32_t bytes = fill(to, room, str_from(text));
    free(text);
    return bytes;
}

void dead_kept_add(struct node_instance *node, const struct row_origin *origin,
                   const struct dead_letter *letter, const struct batch *batch, uint32_t row)
{
    struct run *run = node->stage->run;
    struct dead_kept *kept = run->lanes->dead_kept;
    struct run_dead_letter *made = mem_calloc(1, sizeof(*made));
    made->time_us = os_wall_us();
    made->node = node->node;
    made->place_bytes = fill_place(made->place, sizeof(made->place), run, origin);
    made->reason_bytes = fill(made->reason, sizeof(made->reason), letter->reason);
    made->record_bytes = letter->raw.data == NULL ? 0 : letter->raw.length;
    made->record_kept = letter->raw.data == NULL && batch != NULL
                            ? fill_row(made->record, sizeof(made->record), batch, row)
                            : fill(made->record, sizeof(made->record), letter->raw);
    pthread_mutex_lock(&kept->mutex);
    made->n = ++kept->count;
    kept->letters[(made->n - 1) % RUN_DEAD_KEPT] = *made;
    pthread_mutex_unlock(&kept->mutex);
    free(made);
}

uint32_t lanes_dead_letters(const struct run *run, uint64_t after, struct run_dead_letter *letters)
{
    struct dead_kept *kept = run->lanes->dead_kept;
    uint32_t count = 0;
    pthread_mutex_lock(&kept->mutex);
    uint64_t oldest = kept->count < RUN_DEAD_KEPT ? 0 : kept->count - RUN_DEAD_KEPT;
    for (uint64_t n = MAX(oldest, after > kept->count ? 0 : after); n < kept->count; n++)
        letters[count++] = kept->letters[n % RUN_DEAD_KEPT];
    pthread_mutex_unlock(&kept->mutex);
    return count;
}
