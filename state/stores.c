#include "state/stores.h"

#include "state/store.h"

#include "core/mem.h"
#include "core/os.h"

#include <stdlib.h>

static char *path_of(const char *path, uint32_t number)
{
    return path == NULL ? NULL : number == 0 ? mem_strdup(path) : mem_printf("%s-%u", path, number);
}

static char *foreign_path(const struct state_stores *stores, uint32_t number)
{
    return mem_printf("%s-from-%u", stores->path, number);
}

/* Opens the checkpoint's database `number`, put into the directory `path`; without a database: an empty store. NULL after a
 * diagnostic. */
static struct state_store *open_restored(struct checkpoint *from, uint32_t number, const char *path,
                                         size_t memory_bytes, struct diag_list *diags)
{
    bool has_database = false;
    if (from != NULL && !checkpoint_restore_database(from, number, path, &has_database, diags))
        return NULL;
    return state_store_open(path, memory_bytes, has_database, diags);
}

bool state_stores_open(struct state_stores *stores, const struct state_stores_options *options,
                       struct diag_list *diags)
{
    leat_assert(options->count > 0 && options->count <= PLACEMENT_INSTANCES_MAX);
    uint32_t first = 0, none;
    uint32_t own = checkpoint_databases(options->from, options->part, &first),
             databases = checkpoint_databases(options->from, 0, &none);
    bool is_good = true, takes = options->part > 0 ? own == options->count || own == 0
                                                   : options->count == 1 && own <= 1 && !options->are_of_some;
    *stores = (struct state_stores){.path = options->path == NULL ? NULL : mem_strdup(options->path),
                                    .taken = takes ? own : 0,
                                    .taken_first = first};
    for (uint32_t i = 0; is_good && i < options->count; i++) {
        char *path = path_of(options->path, i);
        struct state_store *store = open_restored(i < stores->taken ? options->from : NULL, first + i, path,
                                                  options->memory_bytes / options->count, diags);
        free(path);
        is_good = store != NULL;
        if (is_good) {
            store_set_shared(store, options->are_shared);
            stores->items[stores->count++] = store;
        }
    }
    bool needs_all = options->needed == NULL || (options->part > 0 && !takes);
    for (uint32_t i = 0; is_good && i < databases; i++) {
        bool is_taken = i >= first && i < first + stores->taken;
        if (is_taken || (!needs_all && !bit_get(options->needed, i)))
            continue;
        char *path = foreign_path(stores, stores->foreign_count);
        struct state_store *store = open_restored(options->from, i, path, 0, diags);
        free(path);
        is_good = store != NULL;
        if (is_good)
            stores->foreign[stores->foreign_count++] = store;
    }
    return is_good;
}

static void close_foreign(struct state_stores *stores)
{
    for (uint32_t i = 0; i < stores->foreign_count; i++) {
        char *path = foreign_path(stores, i);
        state_store_close(stores->foreign[i]);
        (void)os_remove_tree(path); /* what stays is removed with the generation */
        free(path);
    }
    stores->foreign_count = 0;
}

void state_stores_import_cold(struct state_stores *stores)
{
    for (uint32_t i = 0; i < stores->count; i++)
        for (uint32_t k = 0; k < stores->foreign_count; k++)
            store_import_tables(stores->items[i], stores->foreign[k]);
}

void state_stores_imported(struct state_stores *stores)
{
    close_foreign(stores);
}

void state_stores_close(struct state_stores *stores)
{
    close_foreign(stores);
    for (uint32_t i = 0; i < stores->count; i++)
        state_store_close(stores->items[i]);
    free(stores->path);
    *stores = (struct state_stores){0};
}

bool state_stores_checkpoint(struct state_stores *stores, const struct checkpoint_writer *writer,
                             struct diag_list *diags)
{
    bool is_good = true;
    char path[CHECKPOINT_PATH_BYTES];
    for (uint32_t i = 0; i < stores->count; i++) {
        bool has_database;
        checkpoint_writer_database(writer, i, path);
        if (is_good)
            is_good = state_store_checkpoint(stores->items[i], path, &has_database, diags);
        else
            state_store_release(stores->items[i]);
    }
    return is_good;
}

void state_stores_release(struct state_stores *stores)
{
    for (uint32_t i = 0; i < stores->count; i++)
        state_store_release(stores->items[i]);
}

const char *state_stores_error(const struct state_stores *stores)
{
    const char *error = NULL;
    for (uint32_t i = 0; i < stores->count && error == NULL; i++)
        error = state_store_error(stores->items[i]);
    return error;
}

size_t state_stores_pressure(const struct state_stores *stores)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < stores->count; i++)
        bytes += state_store_pressure(stores->items[i]);
    return bytes;
}
