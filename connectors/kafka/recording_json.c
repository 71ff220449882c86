/* A record as one line of JSON. */
#include "connectors/kafka/json_walk.h"
#include "connectors/kafka/recording_form.h"

#include "core/base64.h"
#include "formats/json_escape.h"
#include "formats/text.h"

#include <inttypes.h>

/* --- Writing --- */

static void put_base64(struct str bytes, struct byte_buffer *out)
{
    buffer_append(out, "\"", 1);
    base64_encode(bytes.data, bytes.length, out);
    buffer_append(out, "\"", 1);
}

/* Appends a text, {"base64":"..."}, or null (data NULL). */
static void put_text(struct str text, struct byte_buffer *out)
{
    if (text.data == NULL) {
        buffer_append(out, "null", 4);
    } else if (text_is_utf8(text.data, text.length)) {
        json_quote(out, text);
    } else {
        buffer_append(out, "{\"base64\":", 10);
        put_base64(text, out);
        buffer_append(out, "}", 1);
    }
}

void recorded_put_headers(struct str headers, struct byte_buffer *out)
{
    struct str name, value;
    const char *before = "[[";
    while (record_take_header(&headers, &name, &value)) {
        buffer_append(out, before, strlen(before));
        put_text(name, out);
        buffer_append(out, ",", 1);
        put_text(value, out);
        before = "],[";
    }
    buffer_append(out, "]]", 2);
}

/* Whether the payload can be stored in the line as it is. */
static bool stands_as_is(struct str payload)
{
    const char *end = payload.data + payload.length;
    return payload.length > 0 && payload.data[0] != 'n' && json_walk_value(payload.data, end) == end &&
           memchr(payload.data, '\n', payload.length) == NULL && text_is_utf8(payload.data, payload.length);
}

void recorded_put_json(const struct recorded *recorded, struct byte_buffer *out)
{
    const struct kafka_record *record = &recorded->record;
    buffer_printf(out, "{\"offset\":%" PRId64 ",\"time\":%" PRId64, recorded->offset, recorded->time_ms);
    if (record->key.data != NULL) {
        buffer_append(out, ",\"key\":", 7);
        put_text(record->key, out);
    }
    if (record->headers.length > 0) {
        buffer_append(out, ",\"headers\":", 11);
        recorded_put_headers(record->headers, out);
    }
    if (record->value.data == NULL) {
        buffer_append(out, ",\"value\":null", 13);
    } else if (stands_as_is(record->value)) {
        buffer_append(out, ",\"value\":", 9);
        buffer_append(out, record->value.data, record->value.length);
    } else if (text_is_utf8(record->value.data, record->value.length)) {
        buffer_append(out, ",\"text\":", 8);
        json_quote(out, record->value);
    } else {
        buffer_append(out, ",\"base64\":", 10);
        put_base64(record->value, out);
    }
    buffer_append(out, "}\n", 2);
}

/* --- Reading --- */

static bool take_base64(struct str quoted, struct arena *arena, struct str *bytes)
{
    struct str text;
    if (!json_walk_text(quoted, arena, &text))
        return false;
    char *out = arena_alloc(arena, text.length + 4);
    size_t length = base64_decode(text.data, text.length, out);
    *bytes = (struct str){out, length};
    return length != SIZE_MAX;
}

/* Parses null, a text, or {"base64":"..."}. */
static bool take_text(struct str json, struct arena *arena, struct str *text)
{
    struct str name, value;
    *text = (struct str){NULL, 0};
    if (str_equal(json, STR("null")))
        return true;
    if (json.data[0] == '"')
        return json_walk_text(json, arena, text);
    const char *at = json.data + 1, *end = json.data + json.length;
    return json.data[0] == '{' && json_walk_member(&at, end, arena, &name, &value) &&
           str_is(name, "base64") && take_base64(value, arena, text);
}

bool recorded_take_headers(struct str json, struct arena *arena, struct str *headers)
{
    struct byte_buffer out = {0};
    struct str pair, part, name, value;
    const char *at = json.data + 1, *end = json.data + json.length;
    bool is_good = json.length > 0 && json.data[0] == '[';
    while (is_good && json_walk_element(&at, end, &pair)) {
        const char *inner = pair.data + 1, *behind = pair.data + pair.length;
        is_good = pair.data[0] == '[' && json_walk_element(&inner, behind, &part) &&
                  take_text(part, arena, &name) && name.data != NULL &&
                  json_walk_element(&inner, behind, &part) && take_text(part, arena, &value);
        if (is_good)
            record_put_header(&out, name, value);
    }
    is_good = is_good && at == end;
    *headers = (struct str){"", 0};
    if (is_good && out.length > 0)
        *headers = arena_str(arena, (struct str){out.data, out.length});
    buffer_free(&out);
    return is_good;
}

static bool take_whole(struct str json, int64_t *value)
{
    struct text_number number;
    const char *end = json.data + json.length;
    return text_number(json.data, end, &number) == end && text_number_int(&number, value) == TEXT_GOOD;
}

enum { HAS_OFFSET = 1, HAS_TIME = 2, HAS_PAYLOAD = 4, HAS_ALL = 7 };

/* Takes one member into the record. Returns NULL, or what is wrong with it. */
static const char *take_member(struct str name, struct str value, struct arena *arena,
                               struct recorded *recorded, unsigned *has)
{
    struct kafka_record *record = &recorded->record;
    bool is_good = true;
    if (str_is(name, "offset")) {
        is_good = take_whole(value, &recorded->offset) && recorded->offset >= 0;
        *has |= HAS_OFFSET;
    } else if (str_is(name, "time")) {
        is_good = take_whole(value, &recorded->time_ms);
        *has |= HAS_TIME;
    } else if (str_is(name, "key")) {
        return take_text(value, arena, &record->key) ? NULL : "`key` is neither text, base64 nor null";
    } else if (str_is(name, "headers")) {
        return recorded_take_headers(value, arena, &record->headers) ? NULL
                                                                     : "`headers` is not a list of pairs";
    } else {
        bool is_value = str_is(name, "value"), is_text = str_is(name, "text");
        if (!is_value && !is_text && !str_is(name, "base64"))
            return NULL; /* a member added by a later leat or by another tool */
        if (*has & HAS_PAYLOAD)
            return "the record has two payloads";
        *has |= HAS_PAYLOAD;
        if (is_value)
            record->value = str_equal(value, STR("null")) ? (struct str){NULL, 0} : value;
        else if (is_text ? !json_walk_text(value, arena, &record->value)
                         : !take_base64(value, arena, &record->value))
            return "the payload is neither text nor base64";
        return NULL;
    }
    return is_good ? NULL : "`offset` and `time` must be whole numbers";
}

const char *recorded_from_json(struct str line, struct arena *arena, struct recorded *recorded)
{
    const char *at = line.data + 1, *end = line.data + line.length;
    struct str name, value;
    unsigned has = 0;
    *recorded = (struct recorded){.record = {.headers = {"", 0}, .origin = {.partition = PARTITION_NONE}}};
    if (line.length == 0 || line.data[0] != '{')
        return "the record is not a JSON object";
    while (json_walk_member(&at, end, arena, &name, &value)) {
        const char *why = take_member(name, value, arena, recorded, &has);
        if (why != NULL)
            return why;
    }
    if (at == NULL || json_walk_blanks(at, end) != end)
        return "the record is not a JSON object";
    return has == HAS_ALL ? NULL : "the record lacks one of `offset`, `time` and `value`";
}
