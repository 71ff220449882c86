/* The database of a process: reading ranges of it. */
#include "state/store_internal.h"

#include "core/mem.h"

#include <stdlib.h>

enum { IMPORT_PAIRS = 1000 };

/* Without a size to read ahead: a scan of one key group would read that much of every file, and the database reads ahead by itself once
 * a scan goes on. */
static rocksdb_readoptions_t *scan_options(struct str limit)
{
    rocksdb_readoptions_t *options = rocksdb_readoptions_create();
    rocksdb_readoptions_set_iterate_upper_bound(options, limit.data, limit.length);
    rocksdb_readoptions_set_fill_cache(options, 0);
    return options;
}

/* Ends an iterator; false if it met an error, which the store keeps. */
static bool scan_end(struct state_store *store, rocksdb_iterator_t *iterator, rocksdb_readoptions_t *options)
{
    char *text = NULL;
    rocksdb_iter_get_error(iterator, &text);
    rocksdb_iter_destroy(iterator);
    rocksdb_readoptions_destroy(options);
    if (text != NULL)
        store_fail(store, "scanning state", text);
    return text == NULL;
}

static bool visit_pair(const rocksdb_iterator_t *iterator, store_visit *visit, void *argument)
{
    struct str key, value;
    key.data = rocksdb_iter_key(iterator, &key.length);
    value.data = rocksdb_iter_value(iterator, &value.length);
    return visit(argument, key, value);
}

bool store_scan(struct state_store *store, struct str first, struct str limit, store_visit *visit,
                void *argument)
{
    if (!store_has_database(store))
        return true;
    rocksdb_readoptions_t *options = scan_options(limit);
    rocksdb_iterator_t *iterator = rocksdb_create_iterator(atomic_load(&store->database), options);
    rocksdb_iter_seek(iterator, first.data, first.length);
    while (rocksdb_iter_valid(iterator) && visit_pair(iterator, visit, argument))
        rocksdb_iter_next(iterator);
    return scan_end(store, iterator, options);
}

/* Iterators of several ranges; those that have a pair are a heap, the smallest key first. */
struct heap {
    rocksdb_iterator_t **items;
    size_t count, skip; /* skip: bytes of a key that do not count */
};

static bool goes_before(const struct heap *h, size_t a, size_t b)
{
    struct str x, y;
    x.data = rocksdb_iter_key(h->items[a], &x.length);
    y.data = rocksdb_iter_key(h->items[b], &y.length);
    int order = memcmp(x.data + h->skip, y.data + h->skip, MIN(x.length, y.length) - h->skip);
    return order < 0 || (order == 0 && x.length < y.length);
}

static void sift_down(struct heap *h, size_t at)
{
    for (size_t child; (child = 2 * at + 1) < h->count; at = child) {
        child += child + 1 < h->count && goes_before(h, child + 1, child);
        if (!goes_before(h, child, at))
            return;
        rocksdb_iterator_t *item = h->items[at];
        h->items[at] = h->items[child];
        h->items[child] = item;
    }
}

bool store_scan_ranges(struct state_store *store, const struct store_range *ranges, uint32_t count,
                       store_visit *visit, void *argument)
{
    if (!store_has_database(store))
        return true;
    rocksdb_readoptions_t **options = mem_alloc(count * sizeof(*options));
    rocksdb_iterator_t **iterators = mem_alloc(count * sizeof(*iterators));
    struct heap heap = {.items = mem_alloc(count * sizeof(*heap.items)), .skip = ranges[0].bytes};
    for (uint32_t i = 0; i < count; i++) {
        options[i] = scan_options((struct str){ranges[i].limit, ranges[i].bytes});
        iterators[i] = rocksdb_create_iterator(atomic_load(&store->database), options[i]);
        rocksdb_iter_seek(iterators[i], ranges[i].first, ranges[i].bytes);
        if (rocksdb_iter_valid(iterators[i]))
            heap.items[heap.count++] = iterators[i];
    }
    for (size_t i = heap.count / 2; i-- > 0;)
        sift_down(&heap, i);
    while (heap.count > 0 && visit_pair(heap.items[0], visit, argument)) {
        rocksdb_iter_next(heap.items[0]);
        if (!rocksdb_iter_valid(heap.items[0]))
            heap.items[0] = heap.items[--heap.count];
        sift_down(&heap, 0);
    }
    bool is_good = true;
    for (uint32_t i = 0; i < count; i++)
        is_good = scan_end(store, iterators[i], options[i]) && is_good;
    free(options);
    free(iterators);
    free(heap.items);
    return is_good;
}

struct importing {
    struct state_store *store;
    rocksdb_writebatch_t *batch;
};

static bool import_pair(void *argument, struct str key, struct str value)
{
    const struct importing *importing = argument;
    rocksdb_writebatch_put(importing->batch, key.data, key.length, value.data, value.length);
    return rocksdb_writebatch_count(importing->batch) < IMPORT_PAIRS ||
           store_commit(importing->store, importing->batch);
}

void store_import_tables(struct state_store *store, struct state_store *from)
{
    struct importing importing = {store, store_batch_new()};
    for (const struct store_user *user = store->users; user != NULL; user = user->next) {
        if (!user->has_table)
            continue;
        struct store_group range = store_group(user->id, user->kind, user->table, 0);
        if (!store_scan(from, (struct str){range.first, range.bytes},
                        (struct str){range.limit, range.limit_bytes}, import_pair, &importing))
            store_fail(store, "reading the checkpoint's state", mem_strdup(state_store_error(from)));
    }
    if (rocksdb_writebatch_count(importing.batch) > 0)
        (void)!store_commit(store, importing.batch); /* the store keeps the error */
    rocksdb_writebatch_destroy(importing.batch);
}

bool store_flush(struct state_store *store)
{
    char *text = NULL;
    if (!store_has_database(store))
        return true;
    rocksdb_flushoptions_t *options = rocksdb_flushoptions_create();
    rocksdb_flush(atomic_load(&store->database), options, &text);
    rocksdb_flushoptions_destroy(options);
    if (text != NULL)
        store_fail(store, "writing state", text);
    return text == NULL;
}

uint64_t store_bytes(struct state_store *store, struct str first, struct str limit)
{
    uint64_t bytes = 0;
    char *text = NULL;
    if (!store_has_database(store))
        return 0;
    rocksdb_approximate_sizes(atomic_load(&store->database), 1, &first.data, &first.length, &limit.data,
                              &limit.length, &bytes, &text);
    bool is_good = text == NULL;
    free(text); /* an estimate that cannot be had is 0 */
    return is_good ? bytes : 0;
}
