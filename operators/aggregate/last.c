/* last, first, since_last: by event time. Of rows with the same time, last takes the one that arrived later,
 * first the one that arrived earlier. since_last: microseconds from the latest row to the row that reads the
 * result; 0 if the latest row is later. */
#include "operators/aggregate/aggregate.h"

struct timed_partial {
    int64_t time, has;
    uint64_t value; /* a bool, or the 8 bytes of another type */
};

static void timed_set(struct timed_partial *p, const struct column *argument, uint32_t row, int64_t time)
{
    *p = (struct timed_partial){.time = time, .has = 1};
    if (argument == NULL)
        return;
    if (argument->tag == TYPE_BOOL)
        p->value = argument->bools[row];
    else
        memcpy(&p->value, &argument->ints[row], sizeof(p->value));
}

static void last_update(char *partial, const struct column *argument, uint32_t row, int64_t time)
{
    struct timed_partial *p = (struct timed_partial *)(void *)partial;
    if (!p->has || time >= p->time)
        timed_set(p, argument, row, time);
}

static void first_update(char *partial, const struct column *argument, uint32_t row, int64_t time)
{
    struct timed_partial *p = (struct timed_partial *)(void *)partial;
    if (!p->has || time < p->time)
        timed_set(p, argument, row, time);
}

static void last_merge(char *into, const char *from)
{
    struct timed_partial *a = (struct timed_partial *)(void *)into;
    const struct timed_partial *b = (const struct timed_partial *)(const void *)from;
    if (b->has && (!a->has || b->time >= a->time))
        *a = *b;
}

static void first_merge(char *into, const char *from)
{
    struct timed_partial *a = (struct timed_partial *)(void *)into;
    const struct timed_partial *b = (const struct timed_partial *)(const void *)from;
    if (b->has && (!a->has || b->time < a->time))
        *a = *b;
}

static void timed_finish(const char *partial, int64_t time, struct column_builder *out, uint32_t row)
{
    (void)time;
    const struct timed_partial *p = (const struct timed_partial *)(const void *)partial;
    if (!p->has)
        builder_null(out, row);
    else if (out->type.tag == TYPE_BOOL)
        out->column->bools[row] = p->value != 0;
    else
        memcpy(&out->column->ints[row], &p->value, sizeof(p->value));
}

static void since_last_finish(const char *partial, int64_t time, struct column_builder *out, uint32_t row)
{
    const struct timed_partial *p = (const struct timed_partial *)(const void *)partial;
    if (!p->has)
        builder_null(out, row);
    else
        out->column->ints[row] = MAX(time_add(time, p->time == TIME_MIN ? TIME_MAX : -p->time), 0);
}

/* --- Texts: the time, then the bytes --- */

static int64_t text_time(const char *partial)
{
    int64_t time;
    memcpy(&time, partial, sizeof(time));
    return time;
}

static void text_set(struct byte_buffer *partial, struct str text, int64_t time)
{
    buffer_clear(partial);
    buffer_append(partial, &time, sizeof(time));
    buffer_append(partial, text.data, text.length);
}

static void last_absorb(const struct aggregate *aggregate, struct byte_buffer *partial,
                        const struct aggregate_row *row)
{
    (void)aggregate;
    if (partial->length == 0 || row->time >= text_time(partial->data))
        text_set(partial, column_text(row->argument, row->row), row->time);
}

static void first_absorb(const struct aggregate *aggregate, struct byte_buffer *partial,
                         const struct aggregate_row *row)
{
    (void)aggregate;
    if (partial->length == 0 || row->time < text_time(partial->data))
        text_set(partial, column_text(row->argument, row->row), row->time);
}

static void last_combine(const struct aggregate *aggregate, struct byte_buffer *into, struct str from)
{
    (void)aggregate;
    if (from.length >= sizeof(int64_t) &&
        (into->length == 0 || text_time(from.data) >= text_time(into->data))) {
        buffer_clear(into);
        buffer_append(into, from.data, from.length);
    }
}

static void first_combine(const struct aggregate *aggregate, struct byte_buffer *into, struct str from)
{
    (void)aggregate;
    if (from.length >= sizeof(int64_t) &&
        (into->length == 0 || text_time(from.data) < text_time(into->data))) {
        buffer_clear(into);
        buffer_append(into, from.data, from.length);
    }
}

static void text_finish(const struct aggregate *aggregate, struct str partial, struct column_builder *out,
                        uint32_t row)
{
    (void)aggregate;
    if (partial.length < sizeof(int64_t))
        builder_null(out, row);
    else
        builder_text(out, row,
                     (struct str){partial.data + sizeof(int64_t), partial.length - sizeof(int64_t)});
}

#define TEXT_KIND(symbol, name_, type_, absorb_, combine_)                                                   \
    const struct aggregate_kind symbol = {.name = name_,                                                     \
                                          .argument = type_,                                                 \
                                          .result = AGGREGATE_ANY,                                           \
                                          .absorb = absorb_,                                                 \
                                          .combine = combine_,                                               \
                                          .finish_bytes = text_finish};

TEXT_KIND(aggregate_last_text, "last", TYPE_TEXT, last_absorb, last_combine)
TEXT_KIND(aggregate_last_bytes, "last", TYPE_BYTES, last_absorb, last_combine)
TEXT_KIND(aggregate_first_text, "first", TYPE_TEXT, first_absorb, first_combine)
TEXT_KIND(aggregate_first_bytes, "first", TYPE_BYTES, first_absorb, first_combine)

const struct aggregate_kind aggregate_last = {.name = "last",
                                              .argument = AGGREGATE_ANY,
                                              .result = AGGREGATE_ANY,
                                              .bytes = sizeof(struct timed_partial),
                                              .update = last_update,
                                              .merge = last_merge,
                                              .finish = timed_finish};

const struct aggregate_kind aggregate_first = {.name = "first",
                                               .argument = AGGREGATE_ANY,
                                               .result = AGGREGATE_ANY,
                                               .bytes = sizeof(struct timed_partial),
                                               .update = first_update,
                                               .merge = first_merge,
                                               .finish = timed_finish};

const struct aggregate_kind aggregate_since_last = {.name = "since_last",
                                                    .argument = AGGREGATE_NONE,
                                                    .result = TYPE_INT,
                                                    .bytes = sizeof(struct timed_partial),
                                                    .is_feature_only = true,
                                                    .update = last_update,
                                                    .merge = last_merge,
                                                    .finish = since_last_finish};
