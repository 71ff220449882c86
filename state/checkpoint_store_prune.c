/* Pruning in an object store. First go the heads that are not kept; then what no head names and none has named since the pruning
 * before, ten minutes ago or more. A crash at any place leaves objects that nobody names, which the next life finds by its lists. */
#include "state/checkpoint_store_files.h"

#include "core/mem.h"
#include "core/os.h"

#include <stdlib.h>

/* What the kept heads name. False after a diagnostic. */
static bool add_named(struct checkpoint_store *store, const struct store_head *heads, const bool *kept,
                      uint32_t count, struct name_set *named, struct diag_list *diags)
{
    struct byte_buffer text = {0};
    bool ok = true;
    for (uint32_t i = 0; ok && i < count; i++) {
        struct arena arena = {0};
        struct checkpoint_head head;
        enum objects_result result =
            kept[i] ? store_head_get(store, heads[i].name, &arena, &text, &head, diags) : OBJECTS_MISSING;
        ok = result != OBJECTS_FAILED;
        for (uint32_t k = 0; result == OBJECTS_DONE && k < head.count; k++)
            name_set_add(named, head.files[k].object);
        arena_free(&arena);
    }
    buffer_free(&text);
    return ok;
}

/* When each head was put. A head that cannot be read is no reason to delete anything: false after a diagnostic. */
static bool read_times(struct checkpoint_store *store, const struct store_head *heads, uint32_t count,
                       int64_t *created_us, struct diag_list *diags)
{
    struct byte_buffer text = {0};
    bool ok = true;
    for (uint32_t i = 0; ok && i < count; i++) {
        struct arena arena = {0};
        struct checkpoint_head head;
        enum objects_result result = store_head_get(store, heads[i].name, &arena, &text, &head, diags);
        created_us[i] = result == OBJECTS_DONE ? head.created_us : TIME_MIN;
        ok = result != OBJECTS_FAILED;
        arena_free(&arena);
    }
    buffer_free(&text);
    return ok;
}

static bool delete_heads(struct checkpoint_store *store, const struct store_head *heads, const bool *kept,
                         uint32_t count, uint32_t *removed, struct diag_list *diags)
{
    for (uint32_t i = 0; i < count; i++) {
        if (kept[i])
            continue;
        if (!objects_delete(store->objects, heads[i].name, diags))
            return false;
        ++*removed;
    }
    return true;
}

static bool is_of(const struct store_sweep *sweep, struct str name)
{
    for (uint32_t i = 0; i < sweep->prefixes_count; i++) {
        size_t length = strlen(sweep->prefixes[i]);
        if (name.length > length && memcmp(name.data, sweep->prefixes[i], length) == 0)
            return true;
    }
    return false;
}

bool store_delete_unnamed(struct checkpoint_store *store, struct store_sweep *sweep, uint32_t *removed,
                          struct diag_list *diags)
{
    struct arena arena = {0};
    struct objects_entry *entries;
    uint32_t count, deleted = 0;
    struct name_set unnamed = {0}; /* now, and not before */
    bool ok = objects_list(store->objects, (struct str){"", 0}, &arena, &entries, &count, diags);
    sweep->is_done = true;
    for (uint32_t i = 0; ok && i < count; i++) {
        struct str name = entries[i].name;
        if (!is_of(sweep, name) || name_set_has(sweep->named, name))
            continue;
        name_set_remove(&store->present, name); /* who needs it from now on puts it again */
        if (!name_set_has(&store->unnamed, name)) {
            name_set_add(&unnamed, name);
            continue;
        }
        sweep->is_done = deleted < sweep->most;
        if (!sweep->is_done)
            break;
        ok = objects_delete(store->objects, name, diags);
        deleted += ok;
    }
    *removed += deleted;
    if (sweep->is_done) {
        name_set_free(&store->unnamed);
        store->unnamed = unnamed;
    } else {
        name_set_free(&unnamed);
    }
    arena_free(&arena);
    return ok;
}

bool store_prune_is_due(const struct checkpoint_store *store, int64_t now_us)
{
    return store->pruned_us == INT64_MIN ||
           now_us - store->pruned_us >= test_store_delay(CHECKPOINT_STORE_DELAY_US);
}

bool checkpoint_store_prune(struct checkpoint_store *store, const struct checkpoint_dir *holder,
                            const struct checkpoint_keep *keep, int64_t now_us, uint32_t *removed,
                            struct diag_list *diags)
{
    struct arena arena = {0};
    struct store_head *heads;
    struct name_set named = {0};
    uint32_t count, abandoned;
    *removed = 0;
    if (!store_prune_is_due(store, now_us))
        return true;
    static const char *const prefixes[] = {"gen-", "db/", "tables/"};
    struct store_sweep sweep = {prefixes, ARRAY_COUNT(prefixes), UINT32_MAX, &named, false};
    bool ok = store_heads(store, &arena, &heads, &count, diags);
    int64_t *created_us = arena_array(&arena, int64_t, ok ? MAX(count, 1U) : 1);
    bool *kept = arena_array(&arena, bool, ok ? MAX(count, 1U) : 1);
    ok = ok && read_times(store, heads, count, created_us, diags);
    if (ok)
        keep_mark(created_us, count, keep, kept);
    ok = ok && add_named(store, heads, kept, count, &named, diags) && store_check_holder(holder, diags) &&
         delete_heads(store, heads, kept, count, removed, diags) &&
         store_delete_unnamed(store, &sweep, removed, diags) &&
         objects_abandon(store->objects, test_store_delay(CHECKPOINT_STORE_DELAY_US), &abandoned, diags);
    if (ok)
        store->pruned_us = now_us;
    name_set_free(&named);
    arena_free(&arena);
    return ok;
}
