/* The database of a process: RocksDB behind the few calls that state needs. docs/pitfalls.md says which
 * defaults of RocksDB lose data; the options below replace them. */
#include "state/store_internal.h"

#include "core/mem.h"
#include "core/os.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    FILTER_USERS_MAX = 1024,
    BLOOM_BITS = 10,
    BLOCK_BYTES = 4096,
    CHECKSUM_XXH3 = 4,
    LEVEL_LEAST = 8 << 20,
    FILE_MOST = 32 << 20,
    FLUSHED_FILES = 12,        /* flushed files that are merged into the first level at once */
    COMPACTION_READ = 64 << 10 /* bytes */
};

/* Values of a user that may be dropped: those that expire before the watermark. */
struct filter_rule {
    uint16_t id;
    uint8_t kind;
    bool has_table;
    uint32_t table;
    int64_t watermark;
};

struct filter {
    /* Every user has a rule. Then a value without a rule has no user any more, as after a change of the job:
     * it is dropped. */
    bool is_complete;
    uint32_t count;
    struct filter_rule rules[];
};

void store_fail(struct state_store *store, const char *what, char *text)
{
    char *message = mem_printf("%s: %s", what, text);
    free(text);
    char *expected = NULL;
    if (!atomic_compare_exchange_strong(&store->error, &expected, message))
        free(message);
}

const char *state_store_error(struct state_store *store)
{
    return atomic_load(&store->error);
}

/* --- The compaction filter --- */

static bool is_same_user(const struct filter_rule *rule, const struct store_user *user)
{
    return rule->id == user->id && rule->kind == user->kind && rule->has_table == user->has_table &&
           rule->table == user->table;
}

/* Returns whether to drop a value: it expired before the watermark of its user's last barrier, or the job has
 * no such user any more. */
static unsigned char filter_drops(void *state, int level, const char *key, size_t key_bytes,
                                  const char *value, size_t value_bytes, char **new_value, size_t *new_bytes,
                                  unsigned char *is_changed)
{
    (void)level, (void)new_value, (void)new_bytes;
    *is_changed = 0;
    const struct filter *filter = state;
    struct stored_value head;
    if (key_bytes < STORE_PREFIX_BYTES || value_bytes < sizeof(head))
        return 0;
    uint16_t id = (uint16_t)((unsigned char)key[0] << 8 | (unsigned char)key[1]);
    memcpy(&head, value, sizeof(head));
    uint32_t table = (uint32_t)((unsigned char)key[3] << 8 | (unsigned char)key[4]);
    for (uint32_t i = 0; i < filter->count; i++) {
        const struct filter_rule *rule = &filter->rules[i];
        if (rule->id == id && rule->kind == (uint8_t)key[2] && (!rule->has_table || rule->table == table))
            return head.expire_us < rule->watermark;
    }
    return filter->is_complete;
}

static const char *filter_name(void *state)
{
    (void)state;
    return "leat.expiry";
}

static void set_rules(struct state_store *store);

static rocksdb_compactionfilter_t *filter_create(void *state, rocksdb_compactionfiltercontext_t *context)
{
    (void)context;
    struct state_store *store = state;
    pthread_mutex_lock(&store->mutex);
    if (store->is_temporary)
        set_rules(store);
    size_t bytes = sizeof(struct filter) + store->rules->count * sizeof(struct filter_rule);
    struct filter *copy = mem_alloc(bytes);
    memcpy(copy, store->rules, bytes);
    pthread_mutex_unlock(&store->mutex);
    return rocksdb_compactionfilter_create(copy, free, filter_drops, filter_name);
}

static void factory_destroyed(void *state)
{
    (void)state;
}

void store_add_user(struct store_user *user)
{
    struct state_store *store = user->store;
    user->barrier_watermark = TIME_MIN;
    user->held_at = UINT64_MAX;
    pthread_mutex_lock(&store->mutex);
    user->next = store->users;
    store->users = user;
    pthread_mutex_unlock(&store->mutex);
}

void store_remove_user(struct store_user *user)
{
    struct state_store *store = user->store;
    if (store == NULL)
        return;
    pthread_mutex_lock(&store->mutex);
    for (struct store_user **at = &store->users; *at != NULL; at = &(*at)->next)
        if (*at == user) {
            *at = user->next;
            break;
        }
    pthread_mutex_unlock(&store->mutex);
}

/* Sets store->rules: for each id, kind and table, the lowest watermark of its users. Under the mutex. */
static void set_rules(struct state_store *store)
{
    struct filter *rules = store->rules;
    rules->count = 0;
    rules->is_complete = true;
    for (struct store_user *user = store->users; user != NULL; user = user->next) {
        int64_t watermark = __atomic_load_n(&user->barrier_watermark, __ATOMIC_ACQUIRE);
        uint32_t i = 0;
        while (i < rules->count && !is_same_user(&rules->rules[i], user))
            i++;
        if (i == rules->count && i < FILTER_USERS_MAX)
            rules->rules[rules->count++] =
                (struct filter_rule){user->id, user->kind, user->has_table, user->table, watermark};
        else if (i == FILTER_USERS_MAX)
            rules->is_complete = false;
        else
            rules->rules[i].watermark = MIN(rules->rules[i].watermark, watermark);
    }
}

/* --- Opening --- */

static void make_table_options(struct state_store *store)
{
    rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
    store->cache = rocksdb_cache_create_lru(store->memory_bytes / 2);
    rocksdb_block_based_options_set_block_cache(table, store->cache);
    rocksdb_block_based_options_set_block_size(table, BLOCK_BYTES);
    rocksdb_block_based_options_set_format_version(table, 5);
    rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom_full(BLOOM_BITS));
    /* Indexes and filters count as cache, so that the budget holds at any size of the database. */
    rocksdb_block_based_options_set_cache_index_and_filter_blocks(table, 1);
    rocksdb_block_based_options_set_cache_index_and_filter_blocks_with_high_priority(table, 1);
    /* In partitions: a read needs 4 KiB of a filter, not the filter of a whole file. */
    rocksdb_block_based_options_set_index_type(table,
                                               rocksdb_block_based_table_index_type_two_level_index_search);
    rocksdb_block_based_options_set_partition_filters(table, 1);
    rocksdb_block_based_options_set_metadata_block_size(table, BLOCK_BYTES);
    rocksdb_block_based_options_set_pin_top_level_index_and_filter(table, 1);
    rocksdb_block_based_options_set_data_block_index_type(
        table, rocksdb_block_based_table_data_block_index_type_binary_search_and_hash);
    rocksdb_block_based_options_set_checksum(table, CHECKSUM_XXH3);
    rocksdb_options_set_block_based_table_factory(store->options, table);
    rocksdb_block_based_options_destroy(table);
}

void store_keep_log_short(rocksdb_options_t *options)
{
    enum { LOG_FATAL = 4 };
    rocksdb_options_set_keep_log_file_num(options, 1);
    rocksdb_options_set_info_log_level(options, LOG_FATAL);
    rocksdb_options_set_stats_dump_period_sec(options, 0);
}

static void make_options(struct state_store *store)
{
    rocksdb_options_t *options = store->options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_atomic_flush(options, 1);
    rocksdb_options_set_compression(options, rocksdb_no_compression);
    size_t write_bytes = store->memory_bytes / 2;
    rocksdb_options_set_db_write_buffer_size(options, write_bytes);
    rocksdb_options_set_write_buffer_size(options, write_bytes / 3);
    rocksdb_options_set_max_write_buffer_number(options, 4);
    rocksdb_options_set_allow_concurrent_memtable_write(options, 0);
    rocksdb_options_set_memtable_whole_key_filtering(options, 1);
    rocksdb_options_set_memtable_prefix_bloom_size_ratio(options, 0.02);
    /* The first level is rewritten once for each few write buffers: a level many times as large as these
     * would be rewritten at many times the cost. */
    uint64_t level_bytes = MAX((uint64_t)write_bytes * 4, LEVEL_LEAST);
    rocksdb_options_set_max_bytes_for_level_base(options, level_bytes);
    rocksdb_options_set_target_file_size_base(options, MIN(level_bytes / 2, FILE_MOST));
    /* Merging a few flushed files into the first level rewrites nearly all of that level, so many are merged
     * at once. Writers are slowed down only where compactions do not keep up. */
    rocksdb_options_set_level0_file_num_compaction_trigger(options, FLUSHED_FILES);
    rocksdb_options_set_level0_slowdown_writes_trigger(options, 3 * FLUSHED_FILES);
    rocksdb_options_set_level0_stop_writes_trigger(options, 4 * FLUSHED_FILES);
    rocksdb_options_compaction_readahead_size(options, COMPACTION_READ);
    /* Tables mostly ask for keys that are there: the last level, which has most keys, needs no filter. */
    rocksdb_options_set_optimize_filters_for_hits(options, 1);
    rocksdb_options_set_max_background_jobs(options, 2);
    rocksdb_options_set_disable_auto_compactions(options, store->is_read_only);
    rocksdb_options_set_max_open_files(options, 512);
    store_keep_log_short(options);
    store->factory =
        rocksdb_compactionfilterfactory_create(store, factory_destroyed, filter_create, filter_name);
    rocksdb_options_set_compaction_filter_factory(options, store->factory);
    make_table_options(store);
    store->read_options = rocksdb_readoptions_create();
    store->write_options = rocksdb_writeoptions_create();
    rocksdb_writeoptions_disable_WAL(store->write_options, 1);
}

/* Opens the database where it is not open yet. The mutex keeps two lanes from opening it at once. */
static bool open_database(struct state_store *store, bool is_restored)
{
    if (atomic_load(&store->database) != NULL)
        return true;
    pthread_mutex_lock(&store->mutex);
    if (atomic_load(&store->database) != NULL) {
        pthread_mutex_unlock(&store->mutex);
        return true;
    }
    int error = is_restored ? 0 : os_remove_tree(store->directory);
    if (error == 0)
        error = os_mkdirs(store->directory);
    char *text = error == 0 ? NULL : mem_strdup(strerror(error));
    rocksdb_t *database = NULL;
    if (error == 0) {
        if (store->options == NULL)
            make_options(store);
        const char *family = "default";
        const rocksdb_options_t *options = store->options;
        database = rocksdb_open_column_families(store->options, store->directory, 1, &family, &options,
                                                &store->family, &text);
    }
    atomic_store(&store->database, database);
    pthread_mutex_unlock(&store->mutex);
    if (database == NULL)
        store_fail(store, store->directory, text);
    return database != NULL;
}

struct state_store *state_store_open(const char *directory, size_t memory_bytes, bool is_restored,
                                     struct diag_list *diags)
{
    struct state_store *store = mem_calloc(1, sizeof(*store));
    pthread_mutex_init(&store->mutex, NULL);
    store->memory_bytes = MAX(memory_bytes, (size_t)4 << 20);
    store->is_read_only = is_restored && memory_bytes == 0;
    store->rules = mem_calloc(1, sizeof(*store->rules) + FILTER_USERS_MAX * sizeof(struct filter_rule));
    if (directory != NULL)
        store->directory = mem_strdup(directory);
    if (directory != NULL && is_restored && !open_database(store, true)) {
        struct diag *diag = diag_error(diags, DIAG_STATE_FAILED, (struct span){0, 0},
                                       "the checkpoint's state database cannot be opened");
        diag_cause(diags, diag, "%s", state_store_error(store));
        state_store_close(store);
        return NULL;
    }
    return store;
}

void state_store_close(struct state_store *store)
{
    if (store == NULL)
        return;
    leat_assert(store->users == NULL);
    rocksdb_t *database = atomic_load(&store->database);
    if (database != NULL) {
        rocksdb_cancel_all_background_work(database, 1);
        rocksdb_column_family_handle_destroy(store->family);
        rocksdb_close(database);
        /* The threads of RocksDB, which have ended their work, read the store under the mutex last (filter_create): the thread
         * sanitizer sees this order, and not that of RocksDB itself. */
        pthread_mutex_lock(&store->mutex);
        pthread_mutex_unlock(&store->mutex);
    }
    if (store->options != NULL) {
        rocksdb_options_destroy(store->options); /* this also destroys the factory */
        rocksdb_cache_destroy(store->cache);
        rocksdb_readoptions_destroy(store->read_options);
        rocksdb_writeoptions_destroy(store->write_options);
    }
    pthread_mutex_destroy(&store->mutex);
    free(store->error);
    free(store->rules);
    free(store->directory);
    free(store);
}

/* --- Users and holds --- */

bool store_has_directory(const struct state_store *store)
{
    return store->directory != NULL;
}

bool store_has_database(const struct state_store *store)
{
    return atomic_load(&store->database) != NULL;
}

bool store_is_shared(const struct state_store *store)
{
    return !store->is_alone;
}

void store_set_shared(struct state_store *store, bool is_shared)
{
    store->is_alone = !is_shared;
}

void store_failed(struct state_store *store, const char *what, int error)
{
    store_fail(store, what, mem_strdup(strerror(error)));
}

int store_nameless_file(const struct state_store *store)
{
    char *path = mem_printf("%s.sort-XXXXXX", store->directory);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    free(path);
    return fd;
}

void state_store_set_temporary(struct state_store *store)
{
    store->is_temporary = true;
}

void store_note_watermark(struct store_user *user, int64_t watermark)
{
    if (user->store->is_temporary)
        __atomic_store_n(&user->barrier_watermark, watermark, __ATOMIC_RELEASE);
}

bool store_can_write(const struct store_user *user)
{
    const struct state_store *store = user->store;
    return store->directory != NULL && atomic_load(&store->releases) != user->held_at &&
           atomic_load(&store->error) == NULL;
}

void store_hold(struct store_user *user)
{
    user->held_at = atomic_load(&user->store->releases);
}

void state_store_release(struct state_store *store)
{
    atomic_fetch_add(&store->releases, 1);
}

void store_add_pressure(struct state_store *store, int64_t bytes)
{
    atomic_fetch_add(&store->pressure, bytes);
}

size_t state_store_pressure(struct state_store *store)
{
    return (size_t)MAX(atomic_load(&store->pressure), 0);
}

bool state_store_checkpoint(struct state_store *store, const char *path, bool *has_database,
                            struct diag_list *diags)
{
    rocksdb_t *database = atomic_load(&store->database);
    *has_database = database != NULL;
    char *text = NULL;
    int error = failpoint("ckpt.database");
    if (error != 0) {
        text = mem_strdup(strerror(error));
    } else if (database != NULL) {
        pthread_mutex_lock(&store->mutex);
        set_rules(store); /* all users have passed their barriers */
        pthread_mutex_unlock(&store->mutex);
        rocksdb_checkpoint_t *checkpoint = rocksdb_checkpoint_object_create(database, &text);
        if (text == NULL)
            rocksdb_checkpoint_create(checkpoint, path, 0, &text);
        if (checkpoint != NULL)
            rocksdb_checkpoint_object_destroy(checkpoint);
    }
    state_store_release(store);
    if (text == NULL)
        return true;
    struct diag *diag = diag_error(diags, DIAG_CHECKPOINT_FAILED, (struct span){0, 0},
                                   "the state database could not write a checkpoint");
    diag_cause(diags, diag, "%s", text);
    free(text);
    return false;
}

/* --- Reading and writing --- */

size_t store_prefix(char *out, uint16_t id, uint8_t kind, uint32_t group)
{
    out[0] = (char)(id >> 8);
    out[1] = (char)id;
    out[2] = (char)kind;
    out[3] = (char)(group >> 8);
    out[4] = (char)group;
    return STORE_PREFIX_BYTES;
}

struct store_group store_group(uint16_t id, uint8_t kind, uint32_t group, uint32_t stay)
{
    struct store_group range;
    range.bytes = store_prefix(range.first, id, kind, group);
    range.limit_bytes =
        store_prefix(range.limit, id, kind, stay == 0 || stay == UINT32_MAX ? group + 1 : group);
    for (int shift = 24; stay > 0 && shift >= 0; shift -= 8) {
        range.first[range.bytes++] = (char)(stay >> shift);
        if (stay < UINT32_MAX)
            range.limit[range.limit_bytes++] = (char)((stay + 1) >> shift);
    }
    return range;
}

rocksdb_writebatch_t *store_batch_new(void)
{
    return rocksdb_writebatch_create();
}

bool store_commit(struct state_store *store, rocksdb_writebatch_t *batch)
{
    char *text = NULL;
    int error = failpoint("state.evict");
    if (error != 0) {
        store_fail(store, "writing state", mem_strdup(strerror(error)));
        return false;
    }
    if (!open_database(store, false))
        return false;
    size_t bytes;
    rocksdb_writebatch_data(batch, &bytes);
    atomic_fetch_add_explicit(&store->written, bytes, memory_order_relaxed);
    rocksdb_write(atomic_load(&store->database), store->write_options, batch, &text);
    rocksdb_writebatch_clear(batch);
    if (text != NULL)
        store_fail(store, "writing state", text);
    return text == NULL;
}

uint64_t state_store_written(const struct state_store *store)
{
    return atomic_load_explicit(&store->written, memory_order_relaxed);
}

void state_store_spare_unknown(struct state_store *store)
{
    pthread_mutex_lock(&store->mutex);
    store->rules->is_complete = false;
    pthread_mutex_unlock(&store->mutex);
}

void state_store_drop(struct state_store *store, uint16_t id)
{
    char *text = NULL, first[STORE_PREFIX_BYTES] = {(char)(id >> 8), (char)id};
    uint32_t next =
        (uint32_t)id + 1; /* ids end below PARTS_ID_MAX, so that the next one has two bytes as well */
    char limit[STORE_PREFIX_BYTES] = {(char)(next >> 8), (char)next};
    rocksdb_t *database = atomic_load(&store->database);
    if (database == NULL)
        return;
    rocksdb_delete_range_cf(database, store->write_options, store->family, first, 2, limit, 2, &text);
    if (text != NULL)
        store_fail(store, "deleting state", text);
}

bool store_get(struct state_store *store, uint32_t count, const char *const *keys, const size_t *key_bytes,
               rocksdb_pinnableslice_t **values)
{
    leat_assert(count <= STORE_READ_MAX);
    char *errors[STORE_READ_MAX];
    memset(errors, 0, count * sizeof(errors[0]));
    memset(values, 0, count * sizeof(values[0]));
    rocksdb_batched_multi_get_cf(atomic_load(&store->database), store->read_options, store->family, count,
                                 keys, key_bytes, values, errors, false);
    bool is_good = true;
    for (uint32_t i = 0; i < count; i++)
        if (errors[i] != NULL) {
            store_fail(store, "reading state", errors[i]);
            is_good = false;
        }
    return is_good;
}

#ifdef __SANITIZE_THREAD__
/* RocksDB is not compiled with the thread sanitizer, so the sanitizer does not see its synchronization. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "called_from_lib:librocksdb.so\nrace:librocksdb.so\nmutex:librocksdb.so\n";
}
#endif
