/* Records in etcd: JSON objects with a version, small, and read again with bounds. */
#include "cluster/coordination_internal.h"
#include "core/hex.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

enum { VERSION = 1 };

static struct str dump(json_t *json, struct arena *arena)
{
    char *text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
    leat_assert(text != NULL); /* the texts were checked: UTF-8 */
    struct str copy = arena_str(arena, str_from(text));
    free(text);
    json_decref(json);
    return copy;
}

static json_t *load(struct str text)
{
    json_t *json = json_loadb(text.data, text.length, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(json) && json_integer_value(json_object_get(json, "version")) == VERSION)
        return json;
    json_decref(json);
    return NULL;
}

static json_t *text_of(struct str text)
{
    leat_assert(text.length <= COORDINATION_TEXT_BYTES_MAX); /* else it could not be read again */
    json_t *json = json_stringn(text.length == 0 ? "" : text.data, text.length);
    return json != NULL ? json : json_string("?"); /* no UTF-8 */
}

static bool read_text(const json_t *json, const char *name, struct arena *arena, struct str *text)
{
    const json_t *member = json_object_get(json, name);
    if (!json_is_string(member) || json_string_length(member) > COORDINATION_TEXT_BYTES_MAX)
        return false;
    *text = arena_str(arena, (struct str){json_string_value(member), json_string_length(member)});
    return true;
}

/* From 0 to INT64_MAX. */
static bool read_count(const json_t *json, const char *name, int64_t *value)
{
    const json_t *member = json_object_get(json, name);
    *value = json_integer_value(member);
    return json_is_integer(member) && *value >= 0;
}

struct str job_write(const struct cluster_job *job, struct arena *arena)
{
    return dump(json_pack("{s:i, s:o, s:o, s:o, s:o, s:o}", "version", VERSION, "digest",
                          text_of(job->digest), "leat", text_of(job->version), "profile",
                          text_of(job->profile), "by", text_of(job->by), "run", text_of(job->run)),
                arena);
}

bool job_read(struct str text, struct arena *arena, struct cluster_job *job)
{
    json_t *json = load(text);
    bool ok = json != NULL && read_text(json, "digest", arena, &job->digest) &&
              read_text(json, "leat", arena, &job->version) &&
              read_text(json, "profile", arena, &job->profile) && read_text(json, "by", arena, &job->by) &&
              read_text(json, "run", arena, &job->run);
    json_decref(json);
    return ok;
}

struct str member_write(const struct cluster_member *member, struct arena *arena)
{
    return dump(json_pack("{s:i, s:o, s:o, s:I, s:I, s:I, s:I}", "version", VERSION, "address",
                          text_of(member->address), "host", text_of(member->host), "lanes",
                          (json_int_t)member->lanes, "clock_us", (json_int_t)member->clock_us, "over",
                          (json_int_t)member->over, "ended", (json_int_t)member->ended),
                arena);
}

bool member_read(struct str text, struct arena *arena, struct cluster_member *member)
{
    int64_t lanes = 0, over = 0, ended = 0;
    json_t *json = load(text);
    bool ok = json != NULL && read_text(json, "address", arena, &member->address) &&
              read_text(json, "host", arena, &member->host) && read_count(json, "lanes", &lanes) &&
              lanes <= UINT32_MAX && read_count(json, "clock_us", &member->clock_us) &&
              read_count(json, "over", &over) && read_count(json, "ended", &ended);
    member->lanes = (uint32_t)lanes;
    member->over = (uint64_t)over;
    member->ended = (uint64_t)ended;
    json_decref(json);
    return ok;
}

struct str cluster_head_write(const struct cluster_head *head, struct arena *arena)
{
    return dump(json_pack("{s:i, s:I, s:I, s:o, s:o, s:I, s:I}", "version", VERSION, "incarnation",
                          (json_int_t)head->incarnation, "epoch", (json_int_t)head->epoch, "manifest",
                          text_of(head->manifest), "digest", text_of(head->digest), "previous",
                          (json_int_t)head->previous, "writer", (json_int_t)head->writer),
                arena);
}

bool cluster_head_read(struct str text, struct arena *arena, struct cluster_head *head)
{
    int64_t incarnation = 0, epoch = 0;
    json_t *json = load(text);
    bool ok = json != NULL && read_count(json, "incarnation", &incarnation) &&
              read_count(json, "epoch", &epoch) && read_text(json, "manifest", arena, &head->manifest) &&
              read_text(json, "digest", arena, &head->digest) &&
              read_count(json, "previous", &head->previous) && read_count(json, "writer", &head->writer);
    head->incarnation = (uint64_t)incarnation;
    head->epoch = (uint64_t)epoch;
    json_decref(json);
    return ok;
}

struct str incarnation_write(uint64_t incarnation, const uint8_t secret[COORDINATION_SECRET_BYTES],
                             struct arena *arena)
{
    char digits[2 * COORDINATION_SECRET_BYTES + 1];
    hex_text(secret, COORDINATION_SECRET_BYTES, digits);
    return dump(json_pack("{s:i, s:I, s:s}", "version", VERSION, "incarnation", (json_int_t)incarnation,
                          "secret", digits),
                arena);
}

static bool read_secret(const json_t *json, struct arena *arena, uint8_t secret[COORDINATION_SECRET_BYTES])
{
    struct str digits;
    return read_text(json, "secret", arena, &digits) && hex_bytes(digits, secret, COORDINATION_SECRET_BYTES);
}

bool incarnation_read(struct str text, struct arena *arena, uint64_t *incarnation,
                      uint8_t secret[COORDINATION_SECRET_BYTES])
{
    int64_t number = 0;
    json_t *json = load(text);
    bool ok = json != NULL && read_count(json, "incarnation", &number) && read_secret(json, arena, secret);
    *incarnation = (uint64_t)number;
    json_decref(json);
    return ok;
}

struct str placement_write(struct str placement, int64_t writer, int64_t previous, struct arena *arena)
{
    char *text = arena_alloc(arena, placement.length + 64);
    int head = snprintf(text, 64, "%d %" PRId64 " %" PRId64 "\n", VERSION, writer, previous);
    memcpy(text + head, placement.length == 0 ? "" : placement.data, placement.length);
    return (struct str){text, (size_t)head + placement.length};
}

bool placement_read(struct str text, struct str *placement)
{
    const char *end =
        text.length < 2 || memcmp(text.data, "1 ", 2) != 0 ? NULL : memchr(text.data, '\n', text.length);
    if (end == NULL)
        return false;
    size_t head = (size_t)(end - text.data) + 1;
    *placement = (struct str){text.data + head, text.length - head};
    return true;
}
