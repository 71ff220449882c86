/* Records in etcd: JSON objects with a version, small, and read again with bounds. */
#include "cluster/coordination_internal.h"
#include "cluster/record.h"
#include "core/hex.h"

#include <inttypes.h>
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

static json_t *text_of(struct str text)
{
    leat_assert(text.length <= COORDINATION_TEXT_BYTES_MAX); /* else it could not be read again */
    json_t *json = json_stringn(text.length == 0 ? "" : text.data, text.length);
    return json != NULL ? json : json_string("?"); /* no UTF-8 */
}

static bool read_text(const json_t *json, const char *name, struct arena *arena, struct str *text)
{
    return record_text(json, name, COORDINATION_TEXT_BYTES_MAX, arena, text);
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
    json_t *json = record_load(text, VERSION);
    bool ok = json != NULL && read_text(json, "digest", arena, &job->digest) &&
              read_text(json, "leat", arena, &job->version) &&
              read_text(json, "profile", arena, &job->profile) && read_text(json, "by", arena, &job->by) &&
              read_text(json, "run", arena, &job->run);
    json_decref(json);
    return ok;
}

struct str member_write(const struct cluster_member *member, struct arena *arena)
{
    json_t *unreached = json_array();
    for (uint32_t i = 0; i < member->unreached_count; i++)
        json_array_append_new(unreached, text_of(member->unreached[i]));
    json_t *rates = json_array();
    for (uint32_t i = 0; i < member->rates_count; i++)
        json_array_append_new(rates, json_pack("[I, I]", (json_int_t)member->rates[i].lease,
                                               (json_int_t)member->rates[i].bytes_per_s));
    json_t *json = json_pack("{s:i, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:i, s:I, s:o, s:o}", "version",
                             VERSION, "address", text_of(member->address), "host", text_of(member->host),
                             "flags", text_of(member->flags), "lanes", (json_int_t)member->lanes, "clock_us",
                             (json_int_t)member->clock_us, "over", (json_int_t)member->over, "ended",
                             (json_int_t)member->ended, "leaves", (int)member->leaves, "fits",
                             (json_int_t)member->fits, "unreached", unreached, "rates", rates);
    if (member->is_standby)
        json_object_set_new(
            json, "standby",
            json_pack("{s:I, s:I, s:I}", "incarnation", (json_int_t)member->prepared.incarnation, "epoch",
                      (json_int_t)member->prepared.epoch, "clock_us", (json_int_t)member->prepared.clock_us));
    return dump(json, arena);
}

/* What a standby's record says beside; a member without it is none. False: it cannot be read. */
static bool read_standby(const json_t *json, struct cluster_member *member)
{
    int64_t incarnation = 0, epoch = 0;
    const json_t *standby = json_object_get(json, "standby");
    member->is_standby = standby != NULL;
    member->prepared = (struct cluster_prepared){0};
    if (standby == NULL)
        return true;
    bool ok = record_number(standby, "incarnation", INT64_MAX, &incarnation) &&
              record_number(standby, "epoch", INT64_MAX, &epoch) &&
              record_number(standby, "clock_us", INT64_MAX, &member->prepared.clock_us);
    member->prepared.incarnation = (uint64_t)incarnation;
    member->prepared.epoch = (uint64_t)epoch;
    return ok;
}

/* Texts of an array; what is no text is left out. */
static void read_unreached(const json_t *array, struct arena *arena, struct cluster_member *member)
{
    size_t count = MIN(json_array_size(array), (size_t)COORDINATION_MEMBERS_MAX);
    struct str *texts = arena_alloc(arena, (count + 1) * sizeof(*texts));
    member->unreached = texts;
    member->unreached_count = 0;
    for (size_t i = 0; i < count; i++) {
        const json_t *text = json_array_get(array, i);
        if (json_is_string(text))
            texts[member->unreached_count++] =
                arena_str(arena, (struct str){json_string_value(text), json_string_length(text)});
    }
}

/* Pairs of numbers; what is no such pair is left out. */
static void read_rates(const json_t *array, struct arena *arena, struct cluster_member *member)
{
    size_t count = MIN(json_array_size(array), (size_t)COORDINATION_MEMBERS_MAX);
    struct cluster_rate *rates = arena_alloc(arena, (count + 1) * sizeof(*rates));
    member->rates = rates;
    member->rates_count = 0;
    for (size_t i = 0; i < count; i++) {
        const json_t *pair = json_array_get(array, i), *rate = json_array_get(pair, 1);
        if (json_is_integer(json_array_get(pair, 0)) && json_integer_value(rate) > 0)
            rates[member->rates_count++] =
                (struct cluster_rate){json_integer_value(json_array_get(pair, 0)), json_integer_value(rate)};
    }
}

bool member_read(struct str text, struct arena *arena, struct cluster_member *member)
{
    int64_t lanes = 0, over = 0, ended = 0, leaves = 0, fits = 0;
    json_t *json = record_load(text, VERSION);
    bool ok =
        json != NULL && read_text(json, "address", arena, &member->address) &&
        read_text(json, "host", arena, &member->host) && read_text(json, "flags", arena, &member->flags) &&
        record_number(json, "lanes", INT64_MAX, &lanes) && lanes <= UINT32_MAX &&
        record_number(json, "clock_us", INT64_MAX, &member->clock_us) &&
        record_number(json, "over", INT64_MAX, &over) && record_number(json, "ended", INT64_MAX, &ended) &&
        record_number(json, "leaves", INT64_MAX, &leaves) && record_number(json, "fits", INT64_MAX, &fits) &&
        read_standby(json, member);
    member->lanes = (uint32_t)lanes;
    member->over = (uint64_t)over;
    member->ended = (uint64_t)ended;
    member->leaves = leaves != 0;
    member->fits = (uint64_t)fits;
    read_unreached(json_object_get(json, "unreached"), arena, member);
    read_rates(json_object_get(json, "rates"), arena, member);
    json_decref(json);
    return ok;
}

struct str cluster_head_write(const struct cluster_head *head, struct arena *arena)
{
    return dump(json_pack("{s:i, s:I, s:I, s:o, s:o, s:I, s:I, s:I}", "version", VERSION, "incarnation",
                          (json_int_t)head->incarnation, "epoch", (json_int_t)head->epoch, "manifest",
                          text_of(head->manifest), "digest", text_of(head->digest), "clock_us",
                          (json_int_t)head->clock_us, "previous", (json_int_t)head->previous, "writer",
                          (json_int_t)head->writer),
                arena);
}

bool cluster_head_read(struct str text, struct arena *arena, struct cluster_head *head)
{
    int64_t incarnation = 0, epoch = 0;
    json_t *json = record_load(text, VERSION);
    bool ok = json != NULL && record_number(json, "incarnation", INT64_MAX, &incarnation) &&
              record_number(json, "epoch", INT64_MAX, &epoch) &&
              read_text(json, "manifest", arena, &head->manifest) &&
              read_text(json, "digest", arena, &head->digest) &&
              record_number(json, "clock_us", INT64_MAX, &head->clock_us) &&
              record_number(json, "previous", INT64_MAX, &head->previous) &&
              record_number(json, "writer", INT64_MAX, &head->writer);
    head->incarnation = (uint64_t)incarnation;
    head->epoch = (uint64_t)epoch;
    json_decref(json);
    return ok;
}

struct str wanted_write(const struct cluster_wanted *wanted, struct arena *arena)
{
    json_t *without = json_array();
    for (uint32_t i = 0; i < wanted->without_count; i++)
        json_array_append_new(without, json_integer((json_int_t)wanted->without[i]));
    return dump(json_pack("{s:i, s:I, s:I, s:o, s:o}", "version", VERSION, "workers",
                          (json_int_t)wanted->workers, "drains", (json_int_t)wanted->drains, "by",
                          text_of(wanted->by), "without", without),
                arena);
}

bool wanted_read(struct str text, struct arena *arena, struct cluster_wanted *wanted)
{
    int64_t workers = 0;
    json_t *json = record_load(text, VERSION);
    const json_t *without = json_object_get(json, "without"), *drains = json_object_get(json, "drains");
    bool ok = json != NULL && record_number(json, "workers", INT64_MAX, &workers) && workers <= UINT32_MAX &&
              read_text(json, "by", arena, &wanted->by) && json_is_integer(drains) &&
              json_is_array(without) && json_array_size(without) <= COORDINATION_WITHOUT_MAX;
    wanted->workers = (uint32_t)workers;
    wanted->drains = json_integer_value(drains);
    wanted->without_count = ok ? (uint32_t)json_array_size(without) : 0;
    for (uint32_t i = 0; i < wanted->without_count; i++) {
        const json_t *lease = json_array_get(without, i);
        ok &= json_is_integer(lease);
        wanted->without[i] = json_integer_value(lease);
    }
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
    json_t *json = record_load(text, VERSION);
    bool ok = json != NULL && record_number(json, "incarnation", INT64_MAX, &number) &&
              read_secret(json, arena, secret);
    *incarnation = (uint64_t)number;
    json_decref(json);
    return ok;
}

struct str refusal_write(struct str what, struct str hint, struct arena *arena)
{
    return dump(
        json_pack("{s:i, s:o, s:o}", "version", VERSION, "what", text_of(what), "hint", text_of(hint)),
        arena);
}

bool refusal_read(struct str text, struct arena *arena, struct str *what, struct str *hint)
{
    json_t *json = record_load(text, VERSION);
    bool ok = json != NULL && read_text(json, "what", arena, what) && read_text(json, "hint", arena, hint);
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
