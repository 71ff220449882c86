/* Plain files as input of `leat produce`. */
#include "connectors/kafka/json_walk.h"
#include "connectors/kafka/produce_input.h"
#include "connectors/kafka/recording_form.h"

#include "connectors/file/reader.h"
#include "core/civil.h"
#include "core/mem.h"
#include "formats/formats.h"

#include <math.h>
#include <msgpack.h>
#include <stdio.h>
#include <stdlib.h>

static const struct span no_span = {0, 0};

struct files {
    struct produce_files_options options;
    struct format_config config;
    const struct format_kind *format;
    struct path_list *lists;
    struct file_reader *readers;
    uint32_t count, at; /* count of partitions, and index of the one being read */
    pthread_mutex_t mutex;
    struct raw_batch raw;
    uint32_t row;
    uint64_t number;
    struct arena scratch;
    struct diag_list *diags;
};

/* --- Keys and times --- */

static bool take_msgpack(const msgpack_object *object, struct arena *arena, struct str *key)
{
    switch ((int)object->type) {
    case MSGPACK_OBJECT_STR:
    case MSGPACK_OBJECT_BIN:
        *key = arena_str(arena, (struct str){object->via.str.ptr, object->via.str.size});
        return true;
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
        *key = str_from(arena_printf(arena, "%llu", (unsigned long long)object->via.u64));
        return true;
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        *key = str_from(arena_printf(arena, "%lld", (long long)object->via.i64));
        return true;
    case MSGPACK_OBJECT_NIL: return true;
    default: return false;
    }
}

static const char *key_of_msgpack(struct str record, struct str column, struct arena *arena, struct str *key)
{
    msgpack_unpacked unpacked;
    const char *why = NULL;
    size_t used = 0;
    msgpack_unpacked_init(&unpacked);
    if (msgpack_unpack_next(&unpacked, record.data, record.length, &used) != MSGPACK_UNPACK_SUCCESS ||
        unpacked.data.type != MSGPACK_OBJECT_MAP) {
        why = "the record is not a msgpack map";
    } else {
        const msgpack_object_map *map = &unpacked.data.via.map;
        for (uint32_t i = 0; i < map->size && why == NULL; i++) {
            const msgpack_object *name = &map->ptr[i].key;
            if (name->type == MSGPACK_OBJECT_STR &&
                str_equal((struct str){name->via.str.ptr, name->via.str.size}, column) &&
                !take_msgpack(&map->ptr[i].val, arena, key))
                why = "the value is neither text nor a whole number";
        }
    }
    msgpack_unpacked_destroy(&unpacked);
    return why;
}

static const char *key_of_json(struct str record, struct str column, struct arena *arena, struct str *key)
{
    struct str name, value;
    const char *end = record.data + record.length, *at = json_walk_blanks(record.data, end);
    if (at == end || *at++ != '{')
        return "the record is not a JSON object";
    while (json_walk_member(&at, end, arena, &name, &value)) {
        if (!str_equal(name, column))
            continue;
        if (value.data[0] == '"')
            return json_walk_text(value, arena, key) ? NULL : "the text has an invalid escape sequence";
        if (!str_equal(value, STR("null")))
            *key = value;
        return NULL;
    }
    return at == NULL ? "the record is not a JSON object" : NULL;
}

/* Takes the next field of a csv line, without quotes. Returns false if there is none. */
static bool next_field(struct str *line, char delimiter, struct arena *arena, struct str *field)
{
    if (line->data == NULL)
        return false;
    const char *at = line->data, *end = at + line->length;
    if (at == end || *at != '"') {
        const char *behind = memchr(at, delimiter, line->length);
        *field = (struct str){at, (size_t)((behind == NULL ? end : behind) - at)};
        *line = behind == NULL ? (struct str){NULL, 0} : (struct str){behind + 1, (size_t)(end - behind - 1)};
        return true;
    }
    char *out = arena_alloc(arena, line->length), *to = out;
    for (at++; at < end && (*at != '"' || (at + 1 < end && at[1] == '"')); at++) {
        at += *at == '"';
        *to++ = *at;
    }
    *field = (struct str){out, (size_t)(to - out)};
    at += at < end;
    *line =
        at < end && *at == delimiter ? (struct str){at + 1, (size_t)(end - at - 1)} : (struct str){NULL, 0};
    return true;
}

static struct str without_line_end(struct str line)
{
    while (line.length > 0 && (line.data[line.length - 1] == '\n' || line.data[line.length - 1] == '\r'))
        line.length--;
    return line;
}

static const char *key_of_csv(struct str record, struct str header, char delimiter, struct str column,
                              struct arena *arena, struct str *key)
{
    struct str name, field;
    header = without_line_end(header);
    record = without_line_end(record);
    while (next_field(&header, delimiter, arena, &name)) {
        bool is_there = next_field(&record, delimiter, arena, &field);
        if (!str_equal(name, column))
            continue;
        if (is_there && field.length > 0)
            *key = field;
        return NULL;
    }
    return "the file has no such column";
}

const char *produce_column(struct str format, struct str record, struct str header, char delimiter,
                           struct str column, struct arena *arena, struct str *value)
{
    *value = (struct str){NULL, 0};
    if (str_is(format, "csv"))
        return key_of_csv(record, header, delimiter, column, arena, value);
    if (str_is(format, "msgpack"))
        return key_of_msgpack(record, column, arena, value);
    return key_of_json(record, column, arena, value);
}

/* Parses a time to milliseconds since 1970, rounding down. */
static bool parse_time(struct str text, int64_t per_s, int64_t *time_ms)
{
    int64_t whole;
    double part;
    if (literal_int(text, &whole)) {
        return time_from_units(whole, per_s > 1000 ? -(per_s / 1000) : 1000 / per_s, time_ms);
    }
    if (literal_float(text, &part)) {
        double milliseconds = floor(part * 1000 / (double)per_s);
        *time_ms = fabs(milliseconds) < 1e18 ? (int64_t)milliseconds : 0;
        return fabs(milliseconds) < 1e18;
    }
    if (!civil_parse(text, &whole))
        return false;
    *time_ms = whole / 1000;
    return true;
}

/* --- Records --- */

static void refuse_record(struct files *f, const char *why)
{
    int64_t line = raw_record_line(&f->raw, f->row);
    struct diag *d = diag_error(f->diags, DIAG_FILE_DAMAGED, no_span, "a record %s", why);
    diag_at(f->diags, d, f->raw.path, -1, line);
    diag_hint(f->diags, d,
              "the records before this record were sent; correct the record, and the same command continues");
}

/* Finds the value of a column. Returns false after a diagnostic. */
static bool take_column(struct files *f, const char *what, struct str column, struct str record,
                        struct str *value)
{
    const char *why = produce_column(str_from(f->format->name), record, f->raw.header, f->options.delimiter,
                                     column, &f->scratch, value);
    if (why != NULL)
        refuse_record(f, arena_printf(&f->scratch, "has no %s `%.*s`: %s", what, STR_ARGS(column), why));
    return why == NULL;
}

static bool take_columns(struct files *f, struct produced *record)
{
    struct str payload = record->record.value, time = {NULL, 0};
    const struct produce_files_options *o = &f->options;
    arena_reset(&f->scratch);
    if ((o->key.length > 0 && !take_column(f, "key", o->key, payload, &record->record.key)) ||
        (o->time.length > 0 && !take_column(f, "time", o->time, payload, &time)))
        return false;
    if (time.data == NULL || parse_time(time, o->time_per_s, &record->time_ms))
        return true;
    refuse_record(
        f, arena_printf(
               &f->scratch,
               "has `%.*s` for the time `%.*s`: neither a number nor a time such as 2026-01-31T12:00:00Z",
               STR_ARGS(time), STR_ARGS(o->time)));
    return false;
}

static enum recorded_status next(void *self, struct produced *record)
{
    struct files *f = self;
    while (f->row == f->raw.count) {
        if (f->at == f->count)
            return RECORDED_END;
        arena_reset(&f->raw.arena);
        f->row = f->raw.count = 0;
        enum read_status status = reader_read(&f->readers[f->at], &f->raw);
        if (status == READ_ERROR)
            return RECORDED_ERROR;
        f->at += status == READ_END;
        f->raw.count = status == READ_BATCH ? f->raw.count : 0;
    }
    *record = (struct produced){.number = f->number,
                                .record = {.value = raw_record_text(&f->raw, f->row),
                                           .headers = {"", 0},
                                           .partition = -1,
                                           .origin = {.partition = PARTITION_NONE}}};
    if (record->record.value.length > SOURCE_RECORD_BYTES_MAX) {
        refuse_record(f, "is longer than 1 MiB");
        return RECORDED_ERROR;
    }
    if (!take_columns(f, record))
        return RECORDED_ERROR;
    f->number++;
    f->row++;
    return RECORDED;
}

static void close_files(void *self)
{
    struct files *f = self;
    for (uint32_t i = 0; i < f->count; i++)
        reader_close(&f->readers[i]);
    pthread_mutex_destroy(&f->mutex);
    free(f->readers);
    arena_free(&f->raw.arena);
    arena_free(&f->scratch);
    free(f);
}

static bool choose_format(struct files *f)
{
    struct diag *d;
    if (f->options.format.length > 0)
        f->format = format_find(f->options.format);
    for (uint32_t i = 0; i < f->count && f->options.format.length == 0; i++)
        for (uint32_t k = 0; k < f->lists[i].count; k++) {
            const struct format_kind *format = format_by_suffix(str_from(f->lists[i].paths[k]));
            if (format == NULL || (f->format != NULL && f->format != format)) {
                d = diag_error(f->diags, DIAG_OPTION_MISSING, no_span,
                               "the name of `%s` does not tell the format of all files",
                               f->lists[i].paths[k]);
                diag_hint(f->diags, d, "say --format json, csv or msgpack; all files must have one format");
                return false;
            }
            f->format = format;
        }
    if (f->format != NULL && f->format->split != NULL && !f->format->is_blocks)
        return true;
    d = diag_error(f->diags, DIAG_OPTIONS_CLASH, no_span,
                   "files of format %s have no records that could be sent unchanged",
                   f->format == NULL ? "this" : f->format->name);
    diag_hint(f->diags, d,
              "give files of format json, csv or msgpack; a job with `sink x = kafka ...` sends rows "
              "of any source");
    return false;
}

bool produce_files(struct produce_input *input, const struct produce_files_options *options,
                   struct arena *arena, struct diag_list *diags)
{
    struct files *f = mem_calloc(1, sizeof(*f));
    const char *order_log;
    f->options = *options;
    f->diags = diags;
    pthread_mutex_init(&f->mutex, NULL);
    *input = (struct produce_input){.self = f, .next = next, .close = close_files};
    if (!paths_expand(&options->paths, arena, diags, (struct span){0, 0}, &f->lists, &f->count, &order_log) ||
        !choose_format(f)) {
        f->count = 0;
        return false;
    }
    f->config =
        (struct format_config){.delimiter = options->delimiter, .has_no_header = !options->has_header};
    static const struct schema no_columns = {0};
    f->readers = mem_calloc(f->count, sizeof(*f->readers));
    bool is_good = true;
    for (uint32_t i = 0; i < f->count; i++) {
        f->readers[i] = (struct file_reader){.list = &f->lists[i],
                                             .format = f->format,
                                             .config = &f->config,
                                             .schema = &no_columns,
                                             .diags = diags,
                                             .mutex = &f->mutex};
        is_good = is_good && reader_open(&f->readers[i]);
    }
    return is_good;
}
