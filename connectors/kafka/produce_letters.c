#include "connectors/kafka/produce_letters.h"

#include "connectors/kafka/json_walk.h"
#include "connectors/kafka/recording_form.h"

#include "core/base64.h"
#include "core/civil.h"
#include "formats/text.h"

#include <inttypes.h>
#include <stdlib.h>

enum { TOPICS_MAX = 1024 };

static const struct span no_span = {0, 0};

/* --- One letter --- */

static bool take_whole(struct str json, int64_t *value)
{
    struct text_number number;
    const char *end = json.data + json.length;
    return text_number(json.data, end, &number) == end && text_number_int(&number, value) == TEXT_GOOD;
}

static bool take_base64(struct str quoted, struct arena *arena, struct str *bytes)
{
    struct str text;
    if (!json_walk_text(quoted, arena, &text))
        return false;
    char *out = arena_alloc(arena, text.length + 4);
    *bytes = (struct str){out, base64_decode(text.data, text.length, out)};
    return bytes->length != SIZE_MAX;
}

struct found {
    struct str key_bytes, raw_bytes;
    bool has_reason;
};

static bool take_member(struct str name, struct str value, struct arena *arena, struct letter *letter,
                        struct found *found)
{
    struct str text;
    int64_t time_us;
    found->has_reason |= str_is(name, "reason");
    if (str_equal(value, STR("null")))
        return true;
    if (str_is(name, "topic"))
        return json_walk_text(value, arena, &letter->topic);
    if (str_is(name, "partition"))
        return take_whole(value, &letter->partition);
    if (str_is(name, "offset"))
        return take_whole(value, &letter->offset);
    if (str_is(name, "key"))
        return json_walk_text(value, arena, &letter->key);
    if (str_is(name, "raw"))
        return json_walk_text(value, arena, &letter->raw);
    if (str_is(name, "key_bytes"))
        return take_base64(value, arena, &found->key_bytes);
    if (str_is(name, "raw_bytes"))
        return take_base64(value, arena, &found->raw_bytes);
    if (str_is(name, "headers"))
        return json_walk_text(value, arena, &text) && recorded_take_headers(text, arena, &letter->headers);
    if (str_is(name, "time") && json_walk_text(value, arena, &text) && civil_parse(text, &time_us))
        letter->time_ms = time_us / 1000;
    return true;
}

const char *letter_read(struct str json, struct arena *arena, struct letter *letter)
{
    struct str name, value;
    struct found found = {0};
    const char *end = json.data + json.length, *at = json_walk_blanks(json.data, end);
    *letter = (struct letter){.partition = -1, .offset = -1};
    if (at == end || *at++ != '{')
        return "it is no JSON object";
    while (json_walk_member(&at, end, arena, &name, &value))
        if (!take_member(name, value, arena, letter, &found))
            return arena_printf(arena, "its `%.*s` is not what a dead letter has there", STR_ARGS(name));
    if (at == NULL)
        return "it is no JSON object";
    if (!found.has_reason)
        return "it has no `reason`: it is no dead letter";
    if (found.key_bytes.data != NULL)
        letter->key = found.key_bytes;
    if (found.raw_bytes.data != NULL)
        letter->raw = found.raw_bytes;
    return NULL;
}

/* --- All of them --- */

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
    struct diag *d = diag_error(l->diags, DIAG_E0603, no_span, "number %" PRIu64 " cannot be read: %s",
                                bytes->number, why);
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
            ? diag_error(l->diags, DIAG_E0612, no_span,
                         "number %" PRIu64
                         " has neither the bytes of its record nor the place of it in a topic",
                         bytes->number)
            : diag_error(l->diags, DIAG_E0612, no_span,
                         "number %" PRIu64 " has no bytes, and `%.*s/%" PRId64 "` has offset %" PRId64
                         " no more",
                         bytes->number, STR_ARGS(letter->topic), letter->partition, letter->offset);
    diag_hint(l->diags, d,
              "what comes before it is sent; --skip-lost passes over such letters, and counts them");
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
    struct letters *l = calloc(1, sizeof(*l));
    leat_assert(l != NULL);
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
            diag_error(diags, DIAG_E0503, no_span, "the dead letters are of more than %d topics", TOPICS_MAX);
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
    struct topic_input *t = calloc(1, sizeof(*t));
    leat_assert(t != NULL);
    *t = (struct topic_input){reader, topic, partition, first, end};
    *input = (struct produce_input){t, true, next_of_topic, free};
    return first >= end || topic_reader_seek(reader, topic, partition, first);
}
