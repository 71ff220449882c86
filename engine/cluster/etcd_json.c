/* JSON of etcd's gateway: keys and values in base64, numbers of 64 bits as texts, and nothing for what is 0, false or empty. So
 * an absent member is a value, and what an answer must have is demanded by name. */
#include "cluster/etcd_internal.h"

#include "core/base64.h"
#include "core/mem.h"

#include <errno.h>
#include <stdlib.h>

/* --- Writing --- */

json_t *etcd_base64(struct str bytes)
{
    struct byte_buffer text = {0};
    base64_encode(bytes.length == 0 ? "" : bytes.data, bytes.length, &text);
    json_t *json = json_stringn_nocheck(text.length == 0 ? "" : text.data, text.length);
    buffer_free(&text);
    return json;
}

json_t *etcd_prefix_end(struct str prefix)
{
    size_t length = prefix.length;
    while (length > 0 && (unsigned char)prefix.data[length - 1] == 0xff)
        length--;
    if (length == 0)
        return etcd_base64((struct str){"\0", 1}); /* to the end of all keys */
    char *end = mem_str((struct str){prefix.data, length});
    end[length - 1] = (char)((unsigned char)end[length - 1] + 1);
    json_t *json = etcd_base64((struct str){end, length});
    free(end);
    return json;
}

/* --- Reading --- */

/* The member as a text of at most 20 digits, which may begin with a minus; NULL: another thing. "0": absent. */
static const char *number_of(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    if (value == NULL)
        return "0";
    const char *text = json_string_value(value);
    if (text == NULL || json_string_length(value) > 20)
        return NULL;
    size_t digits = strspn(text + (*text == '-'), "0123456789");
    return digits > 0 && text[(*text == '-') + digits] == '\0' ? text : NULL;
}

bool etcd_int(const json_t *object, const char *name, int64_t *value)
{
    const char *text = number_of(object, name);
    errno = 0;
    *value = text == NULL ? 0 : strtoll(text, NULL, 10);
    return text != NULL && errno == 0;
}

bool etcd_uint(const json_t *object, const char *name, uint64_t *value)
{
    const char *text = number_of(object, name);
    errno = 0;
    *value = text == NULL || *text == '-' ? 0 : strtoull(text, NULL, 10);
    return text != NULL && *text != '-' && errno == 0;
}

bool etcd_bool(const json_t *object, const char *name, bool *value)
{
    const json_t *member = json_object_get(object, name);
    *value = json_is_true(member);
    return member == NULL || json_is_boolean(member);
}

bool etcd_bytes(const json_t *object, const char *name, struct arena *arena, struct str *value)
{
    const json_t *member = json_object_get(object, name);
    *value = STR("");
    if (member == NULL)
        return true;
    if (!json_is_string(member))
        return false;
    size_t length = json_string_length(member);
    char *bytes = arena_alloc(arena, length / 4 * 3 + 1);
    size_t got = base64_decode(json_string_value(member), length, bytes);
    if (got == SIZE_MAX)
        return false;
    bytes[got] = '\0';
    *value = (struct str){bytes, got};
    return true;
}

bool etcd_entry_read(const json_t *kv, struct arena *arena, struct etcd_entry *entry)
{
    *entry = (struct etcd_entry){0};
    return json_is_object(kv) && etcd_bytes(kv, "key", arena, &entry->key) && entry->key.length > 0 &&
           etcd_bytes(kv, "value", arena, &entry->value) &&
           etcd_int(kv, "create_revision", &entry->create_revision) &&
           etcd_int(kv, "mod_revision", &entry->mod_revision) && etcd_int(kv, "version", &entry->version) &&
           etcd_int(kv, "lease", &entry->lease) && entry->mod_revision > 0 &&
           entry->create_revision <= entry->mod_revision;
}

bool etcd_entries_read(const json_t *kvs, struct arena *arena, struct etcd_answer *answer)
{
    size_t more = json_array_size(kvs);
    if (kvs != NULL && !json_is_array(kvs))
        return false;
    if (more == 0)
        return true;
    if (more > ETCD_KEYS_MAX - answer->count)
        return false;
    struct etcd_entry *entries = arena_array(arena, struct etcd_entry, answer->count + more);
    if (answer->count > 0)
        memcpy(entries, answer->entries, answer->count * sizeof(*entries));
    for (size_t i = 0; i < more; i++)
        if (!etcd_entry_read(json_array_get(kvs, i), arena, &entries[answer->count + i]) ||
            entries[answer->count + i].create_revision <= 0)
            return false;
    answer->entries = entries;
    answer->count += (uint32_t)more;
    return true;
}

bool etcd_header_read(const json_t *answer, uint64_t *cluster, int64_t *revision)
{
    const json_t *header = json_object_get(answer, "header");
    return json_is_object(header) && etcd_uint(header, "cluster_id", cluster) &&
           etcd_int(header, "revision", revision) && *revision >= 0;
}

/* --- A txn --- */

static bool holds(const struct etcd_compare *compare, const struct etcd_entry *entry)
{
    int order;
    if (compare->target == ETCD_VALUE) {
        if (entry->create_revision == 0)
            return false; /* a key that is not there has no value, not even an unequal one */
        order = str_compare(entry->value, compare->value);
    } else {
        int64_t found = compare->target == ETCD_VERSION           ? entry->version
                        : compare->target == ETCD_CREATE_REVISION ? entry->create_revision
                                                                  : entry->mod_revision;
        order = (found > compare->number) - (found < compare->number);
    }
    switch (compare->relation) {
    case ETCD_EQUAL: return order == 0;
    case ETCD_NOT_EQUAL: return order != 0;
    case ETCD_GREATER: return order > 0;
    default: return order < 0;
    }
}

/* The ranges of the operations `ops` of the responses, from the first on; *at: the response that comes next. */
static bool read_ranges(const json_t *responses, const struct etcd_op *ops, uint32_t count, size_t *at,
                        struct arena *arena, struct etcd_answer *out)
{
    for (uint32_t i = 0; i < count; i++, ++*at) {
        const json_t *response = json_array_get(responses, *at);
        const char *name = ops[i].kind == ETCD_PUT     ? "response_put"
                           : ops[i].kind == ETCD_RANGE ? "response_range"
                                                       : "response_delete_range";
        const json_t *inner = json_object_get(response, name);
        if (!json_is_object(inner))
            return false;
        if (ops[i].kind == ETCD_RANGE && !etcd_entries_read(json_object_get(inner, "kvs"), arena, out))
            return false;
    }
    return true;
}

/* Which compare does not hold, by the ranges that etcd_txn added behind else_ops. */
static bool find_compare(const json_t *responses, const struct etcd_txn *txn, struct arena *arena,
                         struct etcd_answer *out)
{
    for (uint32_t i = 0; i < txn->compares_count; i++) {
        const struct etcd_compare *compare = &txn->compares[i];
        const struct etcd_op range = {
            .kind = ETCD_RANGE, .key = compare->key, .is_prefix = compare->is_prefix};
        struct etcd_answer read = {0};
        size_t at = txn->else_count + i;
        if (!read_ranges(responses, &range, 1, &at, arena, &read) || (read.count > 1 && !range.is_prefix))
            return false;
        const struct etcd_entry none = {0};
        bool hold = read.count > 0 || holds(compare, &none);
        for (uint32_t k = 0; k < read.count; k++)
            hold &= holds(compare, &read.entries[k]);
        if (!hold) {
            out->compare = i;
            return true;
        }
    }
    return false; /* all hold, and yet it was refused: not etcd */
}

bool etcd_txn_read(const json_t *answer, const struct etcd_txn *txn, struct arena *arena,
                   struct etcd_answer *out)
{
    bool succeeded;
    size_t at = 0;
    const json_t *responses = json_object_get(answer, "responses");
    if (!etcd_header_read(answer, &out->cluster, &out->revision) ||
        !etcd_bool(answer, "succeeded", &succeeded))
        return false;
    const struct etcd_op *ops = succeeded ? txn->then_ops : txn->else_ops;
    uint32_t count = succeeded ? txn->then_count : txn->else_count;
    if (json_array_size(responses) != count + (succeeded ? 0 : txn->compares_count))
        return false;
    if (!read_ranges(responses, ops, count, &at, arena, out))
        return false;
    out->outcome = succeeded ? ETCD_DONE : ETCD_REFUSED;
    out->error = succeeded ? ETCD_NO_ERROR : ETCD_COMPARE;
    return succeeded || find_compare(responses, txn, arena, out);
}

/* --- A watch --- */

static bool read_events(const json_t *events, struct arena *arena, struct etcd_changes *changes)
{
    size_t count = json_array_size(events);
    if (!json_is_array(events) || count > ETCD_KEYS_MAX)
        return false;
    changes->events = arena_array(arena, struct etcd_event, count);
    changes->count = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        const json_t *event = json_array_get(events, i), *type = json_object_get(event, "type");
        struct etcd_event *out = &changes->events[i];
        out->is_delete = type != NULL;
        if (type != NULL && (!json_is_string(type) || strcmp(json_string_value(type), "DELETE") != 0))
            return false;
        if (!etcd_entry_read(json_object_get(event, "kv"), arena, &out->entry) ||
            (i > 0 && out->entry.mod_revision < out[-1].entry.mod_revision))
            return false;
        changes->revision = out->entry.mod_revision;
    }
    return true;
}

/* "result" of a line. */
static bool read_result(const json_t *result, struct arena *arena, enum etcd_watched *watched,
                        struct etcd_changes *changes, struct etcd_failure *failure)
{
    uint64_t cluster;
    int64_t compacted;
    bool is_created, is_cancelled;
    const json_t *events = json_object_get(result, "events");
    if (!etcd_header_read(result, &cluster, &changes->revision) ||
        !etcd_int(result, "compact_revision", &compacted) || !etcd_bool(result, "created", &is_created) ||
        !etcd_bool(result, "canceled", &is_cancelled))
        return false;
    if (is_cancelled && compacted > 0) {
        *watched = ETCD_WATCH_COMPACTED;
        changes->revision = compacted;
        return true;
    }
    if (is_cancelled) {
        const json_t *reason = json_object_get(result, "cancel_reason");
        *watched = ETCD_WATCH_LOST;
        etcd_judge(reason, STR("a watch that was ended"), 200, failure);
        return true;
    }
    *watched = is_created ? ETCD_WATCH_QUIET : events == NULL ? ETCD_WATCH_PROGRESS : ETCD_WATCH_EVENTS;
    return events == NULL || read_events(events, arena, changes);
}

bool etcd_watch_read(const char *line, size_t length, struct arena *arena, enum etcd_watched *watched,
                     struct etcd_changes *changes, struct etcd_failure *failure)
{
    json_t *json = json_loadb(line, length, JSON_REJECT_DUPLICATES, NULL);
    const json_t *result = json_object_get(json, "result"), *error = json_object_get(json, "error");
    bool ok = false;
    *changes = (struct etcd_changes){0};
    if (json_is_object(result)) {
        ok = read_result(result, arena, watched, changes, failure);
    } else if (error != NULL) {
        *watched = ETCD_WATCH_LOST;
        etcd_judge(json, (struct str){line, length}, 200, failure);
        ok = true;
    }
    json_decref(json);
    return ok;
}
