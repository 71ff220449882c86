#include "connectors/kafka/produce_letters.h"

#include "connectors/kafka/recording_form.h"

#include "core/base64.h"
#include "core/civil.h"
#include "core/mem.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

enum { TOPICS_MAX = 1024 };

static const struct span no_span = {0, 0};

/* --- One letter --- */

/* Each returns false where the member is of another type. Where it is missing or null, the result stays as it
 * was. */
static bool take_text(const json_t *json, const char *name, struct arena *arena, struct str *text)
{
    const json_t *value = json_object_get(json, name);
    if (value == NULL || json_is_null(value))
        return true;
    *text = arena_str(arena, (struct str){json_string_value(value), json_string_length(value)});
    return json_is_string(value);
}

static bool take_base64(const json_t *json, const char *name, struct arena *arena, struct str *bytes)
{
    struct str text = {NULL, 0};
    if (!take_text(json, name, arena, &text))
        return false;
    if (text.data != NULL)
        *bytes = (struct str){text.data, base64_decode(text.data, text.length, (char *)(uintptr_t)text.data)};
    return bytes->length != SIZE_MAX;
}

static bool take_whole(const json_t *json, const char *name, int64_t *number)
{
    const json_t *value = json_object_get(json, name);
    if (value == NULL || json_is_null(value))
        return true;
    *number = json_integer_value(value);
    return json_is_integer(value);
}

static const char *read_members(const json_t *json, struct arena *arena, struct letter *letter)
{
    struct str time = {NULL, 0}, headers = {NULL, 0};
    int64_t time_us;
    const char *wrong = !take_text(json, "topic", arena, &letter->topic)       ? "topic"
                        : !take_whole(json, "partition", &letter->partition)   ? "partition"
                        : !take_whole(json, "offset", &letter->offset)         ? "offset"
                        : !take_text(json, "key", arena, &letter->key)         ? "key"
                        : !take_base64(json, "key_bytes", arena, &letter->key) ? "key_bytes"
                        : !take_text(json, "raw", arena, &letter->raw)         ? "raw"
                        : !take_base64(json, "raw_bytes", arena, &letter->raw) ? "raw_bytes"
                        : !take_text(json, "headers", arena, &headers)         ? "headers"
                        : headers.data != NULL && !recorded_take_headers(headers, arena, &letter->headers)
                            ? "headers"
                        : !take_text(json, "time", arena, &time) ? "time"
                                                                 : NULL;
    if (wrong != NULL)
        return arena_printf(arena, "its `%s` is not valid in a dead letter", wrong);
    if (json_object_get(json, "reason") == NULL)
        return "it has no `reason`, which every dead letter has";
    if (time.data != NULL && civil_parse(time, &time_us))
        letter->time_ms = time_us / 1000;
    return NULL;
}

const char *letter_read(struct str text, struct arena *arena, struct letter *letter)
{
    json_t *json = json_loadb(text.data, text.length, JSON_ALLOW_NUL, NULL);
    *letter = (struct letter){.partition = -1, .offset = -1};
    const char *why = json_is_object(json) ? read_members(json, arena, letter) : "it is not a JSON object";
    json_decref(json);
    return why;
}

/* --- All letters --- */

struct letters {
    struct produce_input bytes;
    struct letters_options options;
    struct diag_list *diags;
    struct arena scratch;
};

static bool read_letter(struct letters *l, const struct produced *bytes, struct letter *letter)
{
    arena_reset(&l->scratch);
    const char *why = letter_read(bytes->record.value, &l->scratch, letter);
    if (why == NULL)
        return true;
    struct diag *d = diag_error(l->diags, DIAG_FILE_DAMAGED, no_span,
                                "dead letter %" PRIu64 " cannot be read: %s", bytes->number, why);
    diag_hint(l->diags, d,
              "dead letters are rows of `sink NAME = file from dead_letters { path: \"dead.jsonl\" }`, "
              "or of a kafka sink, as JSON");
    return false;
}

static enum recorded_status lose(struct letters *l, const struct produced *bytes, const struct letter *letter)
{
    if (l->options.skips_lost) {
        ++*l->options.lost;
        return RECORDED;
    }
    struct diag *d =
        letter->offset < 0
            ? diag_error(l->diags, DIAG_RECORDS_GONE, no_span,
                         "dead letter %" PRIu64
                         " has neither the bytes of its record nor the record's place in a topic",
                         bytes->number)
            : diag_error(l->diags, DIAG_RECORDS_GONE, no_span,
                         "dead letter %" PRIu64 " has no bytes, and `%.*s/%" PRId64
                         "` no longer has offset %" PRId64,
                         bytes->number, STR_ARGS(letter->topic), letter->partition, letter->offset);
    diag_hint(l->diags, d,
              "the dead letters before it were sent; --skip-lost skips dead letters whose record is lost, "
              "and counts them");
    return RECORDED_ERROR;
}

/* Finds the letter's record, in the letter or in its topic. RECORDED_END: it cannot be found any more. */
static enum recorded_status find_record(struct letters *l, const struct letter *letter,
                                        struct produced *record)
{
    struct recorded found;
    if (letter->raw.data != NULL) {
        record->record = (struct kafka_record){.key = letter->key,
                                               .value = letter->raw,
                                               .headers = letter->headers,
                                               .origin = {.partition = PARTITION_NONE}};
        record->time_ms = letter->time_ms;
        return RECORDED;
    }
    if (letter->topic.length == 0 || letter->offset < 0 || letter->partition < 0 ||
        letter->partition > INT32_MAX)
        return RECORDED_END;
    enum recorded_status status = topic_reader_get(
        l->options.reader, arena_strndup(&l->scratch, letter->topic.data, letter->topic.length),
        (int32_t)letter->partition, letter->offset, &found);
    if (status == RECORDED) {
        record->record = found.record;
        record->time_ms = found.time_ms;
    }
    return status;
}

static enum recorded_status next(void *self, struct produced *record)
{
    struct letters *l = self;
    struct letter letter;
    for (;;) {
        struct produced bytes;
        enum recorded_status status = l->bytes.next(l->bytes.self, &bytes);
        if (status != RECORDED)
            return status;
        if (!read_letter(l, &bytes, &letter))
            return RECORDED_ERROR;
        if (l->options.topic != NULL && !str_is(letter.topic, l->options.topic))
            continue;
        status = find_record(l, &letter, record);
        record->number = bytes.number;
        if (status == RECORDED) {
            record->record.partition =
                l->options.keeps_partition && letter.partition >= 0 && letter.partition <= INT32_MAX
                    ? (int32_t)letter.partition
                    : -1;
            return RECORDED;
        }
        if (status == RECORDED_ERROR || lose(l, &bytes, &letter) == RECORDED_ERROR)
            return RECORDED_ERROR;
    }
}

static void close_letters(void *self)
{
    struct letters *l = self;
    l->bytes.close(l->bytes.self);
    arena_free(&l->scratch);
    free(l);
}

void produce_letters(struct produce_input *input, const struct produce_input *letters,
                     const struct letters_options *options, struct diag_list *diags)
{
    struct letters *l = mem_calloc(1, sizeof(*l));
    *l = (struct letters){.bytes = *letters, .options = *options, .diags = diags};
    *input = (struct produce_input){l, letters->may_be_cut, next, close_letters};
}

bool letters_topics(struct produce_input *letters, struct arena *arena, struct texts *topics,
                    struct diag_list *diags)
{
    struct letters l = {.bytes = *letters, .diags = diags};
    struct produced bytes;
    struct letter letter;
    enum recorded_status status;
    bool is_good = true;
    *topics = (struct texts){arena_array(arena, struct str, TOPICS_MAX), 0};
    while (is_good && (status = letters->next(letters->self, &bytes)) != RECORDED_END) {
        is_good = status == RECORDED && read_letter(&l, &bytes, &letter);
        bool is_known = !is_good;
        for (uint32_t i = 0; i < topics->count && !is_known; i++)
            is_known = str_equal(topics->items[i], letter.topic);
        if (is_known)
            continue;
        if (topics->count == TOPICS_MAX) {
            diag_error(diags, DIAG_TOO_MANY, no_span, "the dead letters are of more than %d topics",
                       TOPICS_MAX);
            is_good = false;
        } else {
            topics->items[topics->count++] = arena_str(arena, letter.topic);
        }
    }
    arena_free(&l.scratch);
    return is_good;
}

/* --- From a topic --- */

struct topic_input {
    struct topic_reader *reader;
    const char *topic;
    int32_t partition;
    int64_t next, end;
};

static enum recorded_status next_of_topic(void *self, struct produced *record)
{
    struct topic_input *t = self;
    struct recorded found;
    if (t->next >= t->end)
        return RECORDED_END;
    enum recorded_status status = topic_reader_next(t->reader, &found);
    if (status != RECORDED)
        return status;
    if (found.offset >= t->end)
        return RECORDED_END;
    t->next = found.offset + 1;
    *record = (struct produced){(uint64_t)found.offset, found.time_ms, found.record};
    return RECORDED;
}

bool produce_topic(struct produce_input *input, struct topic_reader *reader, const char *topic,
                   int32_t partition, int64_t first, int64_t end)
{
    struct topic_input *t = mem_calloc(1, sizeof(*t));
    *t = (struct topic_input){reader, topic, partition, first, end};
    *input = (struct produce_input){t, true, next_of_topic, free};
    return first >= end || topic_reader_seek(reader, topic, partition, first);
}
