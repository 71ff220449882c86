#include "state_run.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { ROUND = 100, BUCKET_US = 1000, STORE_MEMORY = 8 << 20 };

static struct key key_of(uint32_t i)
{
    return (struct key){(uint64_t)i * 77 + 1, (uint64_t)1 << 56};
}

void run_open_state(struct run *r, struct checkpoint *from, const struct group_set *groups)
{
    struct state_stores_options options = {.path = checkpoint_database_path(r->f.dir, 0, &r->f.arena),
                                           .count = r->databases,
                                           .memory_bytes = STORE_MEMORY,
                                           .are_shared = r->databases == 1,
                                           .from = from};
    assert_true(state_stores_open(&r->stores, &options, &r->f.diags));
    struct state_store *first = r->stores.items[0], *last = r->stores.items[r->databases - 1];
    r->table = keyed_table_new(&(struct keyed_options){first, 1, 'k', r->budget, groups});
    r->queue = time_queue_new(&(struct time_queue_options){last, 2, 'q', r->budget, BUCKET_US, groups});
    for (uint32_t i = 0; i < r->stores.foreign_count; i++)
        assert_true(keyed_table_import(r->table, r->stores.foreign[i]) &&
                    time_queue_import(r->queue, r->stores.foreign[i]));
    state_stores_imported(&r->stores);
}

void run_close_state(struct run *r)
{
    keyed_table_free(r->table);
    time_queue_free(r->queue);
    assert_null(state_stores_error(&r->stores));
    state_stores_close(&r->stores);
}

void run_begin_with(struct run *r, size_t budget, uint32_t entries, uint32_t databases)
{
    *r = (struct run){
        .budget = budget, .entries = entries, .databases = databases, .meanwhile = 2, .records = 1};
    fixture_init(&r->f);
    fixture_open(&r->f, false);
    assert_true(checkpoint_start_generation(r->f.dir, NULL, &r->f.diags));
    run_open_state(r, NULL, NULL);
    temporary_make(r->folder);
    const char *url = arena_printf(&r->f.arena, "file:%s/store", r->folder);
    r->store = checkpoint_store_open(&(struct objects_options){.url = str_from(url)}, &r->f.diags);
    r->reader = checkpoint_dir_open(&(struct checkpoint_dir_options){.path = r->f.path, .read_only = true},
                                    &r->f.diags);
}

void run_end(struct run *r)
{
    run_close_state(r);
    checkpoint_store_close(r->store);
    checkpoint_dir_close(r->reader);
    fixture_free(&r->f);
    temporary_remove(r->folder);
}

void run_change(struct run *r, uint32_t step, char seed)
{
    char value[VALUE_BYTES];
    memset(value, seed, sizeof(value));
    for (uint32_t i = 0; i < r->entries;) {
        struct key keys[ROUND];
        uint64_t hashes[ROUND];
        struct keyed_slot *slots[ROUND];
        uint32_t count = 0;
        for (; count < ROUND && i < r->entries; count++, i += step) {
            keys[count] = key_of(i);
            hashes[count] = key_hash(keys[count]);
            if (i / step % r->records == 0)
                time_queue_push(r->queue, i % 7919, keys[count], hashes[count], (struct str){value, 10});
        }
        keyed_begin(r->table, keys, hashes, count, slots);
        for (uint32_t k = 0; k < count; k++)
            memcpy(keyed_write(r->table, slots[k], VALUE_BYTES, INT64_MAX), value, VALUE_BYTES);
        keyed_end(r->table);
    }
}

void run_publish(struct run *r, uint64_t epoch, bool is_base)
{
    struct checkpoint_writer *writer = checkpoint_begin(r->f.dir, epoch, is_base, &r->f.diags);
    assert_non_null(writer);
    assert_true(keyed_table_snapshot(r->table, checkpoint_part(writer, "op/1/0")));
    assert_true(time_queue_snapshot(r->queue, checkpoint_part(writer, "op/2/0")));
    assert_true(state_stores_checkpoint(&r->stores, writer, &r->f.diags));
    run_change(r, r->meanwhile, (char)epoch); /* meanwhile: entries are saved, in the order of the changes */
    assert_true(checkpoint_write(writer, r->stores.count, &r->f.diags));
    struct checkpoint_info info = {.sources = STR("positions"), .notes = STR("notes")};
    assert_true(checkpoint_publish(writer, &info, &r->f.diags));
}

void run_read_manifest(struct run *r, uint64_t epoch, struct manifest *manifest)
{
    const char *why;
    assert_int_equal(manifest_read(r->f.dir, (struct checkpoint_id){1, epoch}, &r->f.arena, manifest, &why),
                     DECODE_GOOD);
}

void run_write_manifest(struct run *r, const struct manifest *manifest)
{
    char path[PATH_BYTES];
    struct byte_buffer text = {0};
    manifest_encode(manifest, &text);
    path_checkpoint(r->f.dir, manifest->info.id, path);
    strcat(path, "/MANIFEST");
    fixture_write_file(path, text.data, text.length);
    buffer_free(&text);
}
