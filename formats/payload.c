/* Schemas of payloads: from a file at the start, or from a registry as payloads name them.
 *
 * With a registry there is one entry for each key (schema number and, for protobuf, message) that payloads
 * have named. The reader of the first such payload adds the entry; one thread fetches its schema and makes
 * its plan. Once an entry is ready or has failed it never changes and is never dropped. Keys that the
 * registry does not know are kept apart, in a bounded number of slots: payloads of noise fill no memory. */
#include "formats/payload.h"

#include "core/mem.h"
#include "core/os.h"
#include "core/refused.h"
#include "core/varint.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { HEADER_BYTES = 5, PATH_BYTES_MAX = 16, MISSING_SLOTS = 4096, BUCKETS = 1024, RECENT = 16 };
enum { INDEX_ZIGZAG_MAX = 1 << 28 };
enum { MISSING_BELIEVED_US = 60 * 1000 * 1000, MISSING_REST_US = 20 * 1000 };

static const struct payload_kind *const kinds[] = {&payload_avro, &payload_protobuf};

/* The schema, and for protobuf the message, that a payload names. */
struct payload_key {
    uint32_t number;
    uint32_t path_bytes;
    uint8_t path[PATH_BYTES_MAX]; /* the message indexes as in the payload; zeros behind path_bytes */
};

enum entry_state { ENTRY_ASKED, ENTRY_READY, ENTRY_FAILED };

struct payload_entry {
    struct payload_key key;
    struct payload_entry *chain; /* next entry of its bucket */
    struct payload_entry *next;  /* next entry of the queue */
    enum entry_state state;      /* under the mutex; never changes once ready or failed */
    struct arena arena;
    struct diag_list diags;
    const struct payload_plan *plan;
};

struct missing_slot {
    struct payload_key key;
    int64_t until_us; /* monotonic clock: until then the registry is not asked again; 0: the slot is free */
    const char *why;  /* why payloads with this key are bad; static */
};

struct payload {
    const struct payload_kind *kind;
    const struct payload_options *options;
    const struct schema *schema;
    const struct payload_plan *plain; /* without a registry: the plan of the one schema */
    struct str reader;
    struct arena arena;
    void (*wake)(void *engine);
    void *engine;

    struct schema_registry *registry;
    /* Entries of recent payloads, all ready; read without the mutex. */
    _Atomic(struct payload_entry *) recent[RECENT];
    pthread_t thread;
    pthread_mutex_t mutex; /* guards everything below */
    pthread_cond_t asked;
    bool is_stopping;
    uint32_t entries_count;
    struct payload_entry *buckets[BUCKETS];
    struct payload_entry *queue_first, *queue_last;
    struct missing_slot missing[MISSING_SLOTS];
};

/* --- options --- */

static const struct payload_kind *find_kind(const struct format_kind *format)
{
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++)
        if (kinds[i]->format == format)
            return kinds[i];
    return NULL;
}

bool payload_bind(const struct format_kind *format, const struct payload_options *options,
                  struct diag_list *diags, struct span span)
{
    const struct payload_kind *kind = find_kind(format);
    bool has_file = options->schema_file.length > 0, has_registry = options->registry.url.length > 0;
    struct diag *d;
    if (kind == NULL) {
        if (!has_file && !has_registry && options->message.length == 0)
            return true;
        diag_error(diags, DIAG_OPTIONS_CLASH, span,
                   "`schema_file`, `message` and `registry` are options of avro and protobuf, not of %s",
                   format->name);
        return false;
    }
    if (!has_file && !has_registry) {
        d = diag_error(diags, DIAG_OPTION_MISSING, span, "%s payloads need a schema", format->name);
        diag_hint(diags, d,
                  "give `schema_file: \"event%s\"` or `registry: { url: \"http://127.0.0.1:8081\" }`",
                  kind->has_path ? ".proto" : ".avsc");
        return false;
    }
    if (!kind->has_path && options->message.length > 0) {
        diag_error(diags, DIAG_OPTIONS_CLASH, span, "`message` is an option of protobuf, not of %s",
                   format->name);
        return false;
    }
    if (kind->has_path && has_file && has_registry) {
        d = diag_error(diags, DIAG_OPTIONS_CLASH, span,
                       "protobuf takes `schema_file` or `registry`, not both");
        diag_hint(diags, d, "with `registry`, payloads name their schema, and no file is needed");
        return false;
    }
    return !has_registry || schema_registry_bind(&options->registry, diags, span);
}

/* --- keys --- */

/* Reads the message indexes into `key` as they stand in the payload: their count, then each index, all zigzag
 * varints. False where the bytes are no such list, or an index is larger than any message can have. */
static bool read_path(const char *begin, const char *end, struct payload_key *key)
{
    uint64_t count, index;
    const char *at = varint_take(begin, end, &count);
    if (at == NULL || (count & 1) != 0 || count > 2 * PATH_BYTES_MAX)
        return false;
    for (uint64_t i = 0; i < count / 2; i++) {
        at = varint_take(at, end, &index);
        if (at == NULL || (index & 1) != 0 || index >= INDEX_ZIGZAG_MAX)
            return false;
    }
    if (at - begin > PATH_BYTES_MAX)
        return false;
    key->path_bytes = (uint32_t)(at - begin);
    memcpy(key->path, begin, key->path_bytes);
    return true;
}

/* Reads the key at the beginning of a payload. Returns the bytes before the body, or 0 where the payload does
 * not begin as a registry's clients write it. */
static size_t read_key(const struct payload *payload, const char *data, size_t bytes, struct payload_key *key)
{
    const uint8_t *at = (const uint8_t *)data;
    *key = (struct payload_key){0};
    if (bytes < HEADER_BYTES || at[0] != 0)
        return 0;
    key->number = (uint32_t)at[1] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 8 | at[4];
    if (payload->kind->has_path && !read_path(data + HEADER_BYTES, data + bytes, key))
        return 0;
    return HEADER_BYTES + key->path_bytes;
}

static bool key_equal(const struct payload_key *a, const struct payload_key *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

static uint64_t key_hash(const struct payload_key *key)
{
    uint64_t words[3];
    _Static_assert(sizeof(words) == sizeof(*key), "a key is three words");
    memcpy(words, key, sizeof(words));
    uint64_t hash = (words[0] ^ (words[1] << 29 | words[1] >> 35) ^ words[2]) * UINT64_C(0x9e3779b97f4a7c15);
    return hash >> 40;
}

static _Atomic(struct payload_entry *) *recent_slot(struct payload *payload, const struct payload_key *key)
{
    return &payload->recent[(key->number + key->path[1] + key->path[2]) % RECENT];
}

/* The key's entry if it is in `recent`; else NULL. Any thread, without the mutex. */
static struct payload_entry *find_recent(struct payload *payload, const struct payload_key *key)
{
    struct payload_entry *entry = atomic_load_explicit(recent_slot(payload, key), memory_order_acquire);
    return entry != NULL && key_equal(&entry->key, key) ? entry : NULL;
}

/* --- entries; all under the mutex --- */

static struct payload_entry *find_entry(struct payload *payload, const struct payload_key *key)
{
    struct payload_entry *entry = payload->buckets[key_hash(key) % BUCKETS];
    while (entry != NULL && !key_equal(&entry->key, key))
        entry = entry->chain;
    return entry;
}

static struct missing_slot *missing_slot(struct payload *payload, const struct payload_key *key)
{
    return &payload->missing[key_hash(key) % MISSING_SLOTS];
}

static void add_entry(struct payload *payload, const struct payload_key *key)
{
    struct payload_entry *entry = mem_calloc(1, sizeof(*entry));
    entry->key = *key;
    diag_list_init(&entry->diags, &entry->arena);
    entry->chain = payload->buckets[key_hash(key) % BUCKETS];
    payload->buckets[key_hash(key) % BUCKETS] = entry;
    payload->entries_count++;
    if (payload->queue_first == NULL)
        payload->queue_first = entry;
    else
        payload->queue_last->next = entry;
    payload->queue_last = entry;
    pthread_cond_signal(&payload->asked);
}

static void free_entry(struct payload_entry *entry)
{
    arena_free(&entry->arena);
    free(entry);
}

static void drop_entry(struct payload *payload, struct payload_entry *entry)
{
    struct payload_entry **at = &payload->buckets[key_hash(&entry->key) % BUCKETS];
    while (*at != entry)
        at = &(*at)->chain;
    *at = entry->chain;
    payload->entries_count--;
    free_entry(entry);
}

/* --- the fetching thread --- */

/* Fetches the entry's schema and compiles it. Returns why payloads with this key are bad (static text), or
 * NULL: then the entry has a plan or diagnostics. */
static const char *resolve(struct payload *payload, struct payload_entry *entry)
{
    struct registry_schema *writer = arena_new(&entry->arena, struct registry_schema);
    const char *name = arena_printf(&entry->arena, "schema %u", entry->key.number), *why = "";
    struct diag *d;
    switch (schema_registry_fetch(payload->registry, entry->key.number, &entry->arena, writer, &why)) {
    case REGISTRY_MISSING: return "the registry does not have the payload's schema";
    case REGISTRY_FOUND: break;
    case REGISTRY_FAILED:
        d = diag_error(&entry->diags, DIAG_SCHEMA_REGISTRY_FAILED, (struct span){0, 0},
                       "%s cannot be fetched from the registry: %s", name, why);
        diag_hint(&entry->diags, d, "no record was lost: start the job again when the registry answers");
        return NULL;
    }
    if (!str_is(writer->type, payload->kind->registry_type)) {
        d = diag_error(&entry->diags, DIAG_BAD_PAYLOAD_SCHEMA, (struct span){0, 0},
                       "%s is of type %.*s in the registry, but the source reads %s", name,
                       (int)MIN(writer->type.length, 32), writer->type.data, payload->kind->format->name);
        diag_hint(&entry->diags, d, "read another topic, or set another `format:`");
        return NULL;
    }
    struct payload_request request = {
        .arena = &entry->arena,
        .diags = &entry->diags,
        .schema = payload->schema,
        .writer = writer,
        .name = name,
        .reader = payload->reader,
        .message = payload->options->message,
        .path = payload->kind->has_path ? entry->key.path : NULL,
        .path_bytes = entry->key.path_bytes,
    };
    entry->plan = payload->kind->plan_new(&request);
    leat_assert(entry->plan != NULL || request.bad != NULL || entry->diags.errors > 0);
    return entry->plan == NULL ? request.bad : NULL;
}

static void *work(void *argument)
{
    struct payload *payload = argument;
    pthread_mutex_lock(&payload->mutex);
    for (;;) {
        while (payload->queue_first == NULL && !payload->is_stopping)
            pthread_cond_wait(&payload->asked, &payload->mutex);
        if (payload->is_stopping)
            break;
        struct payload_entry *entry = payload->queue_first;
        payload->queue_first = entry->next;
        pthread_mutex_unlock(&payload->mutex);
        const char *bad = resolve(payload, entry);
        if (bad != NULL)
            schema_registry_rest(payload->registry, MISSING_REST_US);
        pthread_mutex_lock(&payload->mutex);
        if (bad != NULL) {
            *missing_slot(payload, &entry->key) =
                (struct missing_slot){entry->key, os_monotonic_us() + MISSING_BELIEVED_US, bad};
            drop_entry(payload, entry);
        } else {
            entry->state = entry->plan != NULL ? ENTRY_READY : ENTRY_FAILED;
        }
        pthread_mutex_unlock(&payload->mutex);
        if (payload->wake != NULL)
            payload->wake(payload->engine);
        pthread_mutex_lock(&payload->mutex);
    }
    pthread_mutex_unlock(&payload->mutex);
    return NULL;
}

/* --- open, close --- */

/* Makes the plan for a schema file as if it were the writer's schema. With a registry, too: making the plan
 * shows whether the file fits the columns. */
static bool set_plain(struct payload *payload, const char *name, struct str text, struct str message,
                      struct diag_list *diags)
{
    struct registry_schema *writer = arena_new(&payload->arena, struct registry_schema);
    writer->text = arena_str(&payload->arena, text);
    payload->reader = writer->text;
    struct payload_request request = {
        .arena = &payload->arena,
        .diags = diags,
        .schema = payload->schema,
        .writer = writer,
        .name = name,
        .message = message,
        .is_file = true,
    };
    payload->plain = payload->kind->plan_new(&request);
    leat_assert(payload->plain != NULL || diags->errors > 0);
    return payload->plain != NULL;
}

static bool read_schema_file(struct payload *payload, struct diag_list *diags)
{
    char *path = arena_strndup(&payload->arena, payload->options->schema_file.data,
                               payload->options->schema_file.length);
    char *data = NULL;
    size_t bytes = 0;
    int error = os_read_file(path, PAYLOAD_SCHEMA_BYTES_MAX, &data, &bytes);
    if (error != 0) {
        struct diag *d = diag_error(diags, DIAG_FILE_UNREADABLE, (struct span){0, 0},
                                    "cannot read the schema file `%s`", path);
        diag_errno(diags, d, error);
        return false;
    }
    bool is_good = set_plain(payload, path, (struct str){data, bytes}, payload->options->message, diags);
    free(data);
    return is_good;
}

struct payload *payload_of_text(const struct format_kind *format, const char *name, struct str text,
                                struct str message, const struct schema *schema, struct diag_list *diags)
{
    struct payload *payload = mem_calloc(1, sizeof(*payload));
    payload->kind = find_kind(format);
    payload->schema = schema;
    if (set_plain(payload, name, text, message, diags))
        return payload;
    payload_close(payload);
    return NULL;
}

bool payload_open(const struct format_kind *format, const struct payload_options *options,
                  const struct schema *schema, void (*wake)(void *engine), void *engine,
                  struct diag_list *diags, struct payload **made)
{
    const struct payload_kind *kind = find_kind(format);
    *made = NULL;
    if (kind == NULL)
        return true;
    struct payload *payload = *made = mem_calloc(1, sizeof(*payload));
    payload->kind = kind;
    payload->options = options;
    payload->schema = schema;
    payload->wake = wake;
    payload->engine = engine;
    if (options->schema_file.length > 0 && !read_schema_file(payload, diags)) {
        payload_close(payload);
        *made = NULL;
        return false;
    }
    if (options->registry.url.length == 0)
        return true;
    payload->registry = schema_registry_open(&options->registry);
    pthread_mutex_init(&payload->mutex, NULL);
    pthread_cond_init(&payload->asked, NULL);
    refused_unless_begun(pthread_create(&payload->thread, NULL, work, payload));
    return true;
}

void payload_close(struct payload *payload)
{
    if (payload == NULL)
        return;
    if (payload->registry != NULL) {
        schema_registry_stop(payload->registry);
        pthread_mutex_lock(&payload->mutex);
        payload->is_stopping = true;
        pthread_cond_signal(&payload->asked);
        pthread_mutex_unlock(&payload->mutex);
        pthread_join(payload->thread, NULL);
        schema_registry_close(payload->registry);
        for (size_t i = 0; i < BUCKETS; i++)
            for (struct payload_entry *entry = payload->buckets[i], *next; entry != NULL; entry = next) {
                next = entry->chain;
                free_entry(entry);
            }
        pthread_cond_destroy(&payload->asked);
        pthread_mutex_destroy(&payload->mutex);
    }
    arena_free(&payload->arena);
    free(payload);
}

/* --- payload_ready, payload_report, payload_plan --- */

enum payload_status payload_ask(struct payload *payload, const char *data, size_t bytes)
{
    struct payload_key key;
    if (payload->registry == NULL || read_key(payload, data, bytes, &key) == 0)
        return PAYLOAD_READY;
    if (find_recent(payload, &key) != NULL)
        return PAYLOAD_READY;
    enum payload_status status = PAYLOAD_LATER;
    pthread_mutex_lock(&payload->mutex);
    struct payload_entry *entry = find_entry(payload, &key);
    const struct missing_slot *missing = missing_slot(payload, &key);
    if (entry == NULL && missing->until_us > os_monotonic_us() && key_equal(&missing->key, &key)) {
        status = PAYLOAD_READY;
    } else if (entry == NULL && payload->entries_count == PAYLOAD_SCHEMAS_MAX) {
        status = PAYLOAD_FAILED;
    } else if (entry == NULL) {
        add_entry(payload, &key);
    } else if (entry->state == ENTRY_READY) {
        atomic_store_explicit(recent_slot(payload, &key), entry, memory_order_release);
        status = PAYLOAD_READY;
    } else if (entry->state == ENTRY_FAILED) {
        status = PAYLOAD_FAILED;
    }
    pthread_mutex_unlock(&payload->mutex);
    return status;
}

void payload_report(struct payload *payload, const char *data, size_t bytes, const char *place,
                    struct diag_list *diags)
{
    struct payload_key key;
    if (read_key(payload, data, bytes, &key) == 0)
        return;
    pthread_mutex_lock(&payload->mutex);
    const struct payload_entry *entry = find_entry(payload, &key);
    if (entry == NULL) {
        struct diag *d =
            diag_error(diags, DIAG_BAD_PAYLOAD_SCHEMA, (struct span){0, 0},
                       "%s: the payloads so far name more than %d schemas", place, PAYLOAD_SCHEMAS_MAX);
        diag_hint(diags, d, "find the producer that registers new schemas again and again");
    }
    for (unsigned i = 0; entry != NULL && entry->state == ENTRY_FAILED && i < entry->diags.count; i++) {
        const struct diag *from = &entry->diags.items[i];
        struct diag *d = diag_error(diags, from->code, (struct span){0, 0}, "%s: %s", place, from->message);
        if (from->hint != NULL)
            diag_hint(diags, d, "%s", from->hint);
    }
    pthread_mutex_unlock(&payload->mutex);
}

const struct payload_plan *payload_plan(struct payload *payload, const char *data, size_t bytes,
                                        size_t *header, const char **reason)
{
    struct payload_key key;
    const struct payload_plan *plan = NULL;
    *header = 0;
    if (payload->registry == NULL)
        return payload->plain;
    *header = read_key(payload, data, bytes, &key);
    if (*header == 0) {
        *reason = payload->kind->has_path ? "the payload does not begin with a Schema Registry's header: 0, "
                                            "schema number, message indexes"
                                          : "the payload does not begin with a Schema Registry's header: 0, "
                                            "schema number";
        return NULL;
    }
    const struct payload_entry *recent = find_recent(payload, &key);
    if (recent != NULL)
        return recent->plan;
    pthread_mutex_lock(&payload->mutex);
    const struct payload_entry *entry = find_entry(payload, &key);
    const struct missing_slot *missing = missing_slot(payload, &key);
    *reason = key_equal(&missing->key, &key) && missing->why != NULL ? missing->why
                                                                     : "the payload's schema is not known";
    if (entry != NULL && entry->state == ENTRY_READY)
        plan = entry->plan;
    pthread_mutex_unlock(&payload->mutex);
    return plan;
}
