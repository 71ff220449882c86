/* Pieces of checkpoints: that each has a key group of its own where that is worth it, lies where the MANIFEST says, and has its
 * digest; and what a MANIFEST may not say of them. Then restores of some key groups from an object store, a directory here: that
 * they have what a whole restore has of these groups, and read little else. */
#include "state/checkpoint_store_files.h"
#include "state/store_internal.h"
#include "state/stores.h"

#include "checkpoint_fixture.h"
#include "core/mem.h"
#include "core/os.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <xxhash.h>

#include <cmocka.h>

enum {
    ENTRIES = 40000,
    VALUE_BYTES = 100,
    ROUND = 100,
    LEAST_BYTES = 4 << 10, /* below, a piece takes in other groups */
    BUCKET_US = 1000,
    PLENTY = 64 << 20, /* nothing is evicted */
    LITTLE = 1 << 20,
    STORE_MEMORY = 8 << 20,
    STORED_ENTRIES = 200000
};

/* A run with a table and a time queue, and a folder with its object store and what is restored. */
struct run {
    struct fixture f;
    size_t budget;
    uint32_t entries;
    uint32_t meanwhile; /* of so many entries one changes while a checkpoint is written */
    uint32_t records;   /* of so many changes one adds a record */
    struct state_stores stores;
    struct keyed_table *table;
    struct time_queue *queue;
    char folder[TEMPORARY_PATH_BYTES];
    struct checkpoint_store *store;
    struct checkpoint_dir *reader;
};

static struct key key_of(uint32_t i)
{
    return (struct key){(uint64_t)i * 77 + 1, (uint64_t)1 << 56};
}

/* Opens the stores, from a checkpoint or empty, and the table and the queue with these key groups. */
static void open_state(struct run *r, struct checkpoint *from, const struct group_set *groups)
{
    struct state_stores_options options = {.path = checkpoint_database_path(r->f.dir, 0, &r->f.arena),
                                           .count = 1,
                                           .memory_bytes = STORE_MEMORY,
                                           .from = from};
    assert_true(state_stores_open(&r->stores, &options, &r->f.diags));
    struct state_store *store = r->stores.items[0];
    r->table = keyed_table_new(&(struct keyed_options){store, 1, 'k', r->budget, groups});
    r->queue = time_queue_new(&(struct time_queue_options){store, 2, 'q', r->budget, BUCKET_US, groups});
}

static void close_state(struct run *r)
{
    keyed_table_free(r->table);
    time_queue_free(r->queue);
    assert_null(state_stores_error(&r->stores));
    state_stores_close(&r->stores);
}

static void begin(struct run *r, size_t budget, uint32_t entries)
{
    *r = (struct run){.budget = budget, .entries = entries, .meanwhile = 2, .records = 1};
    fixture_init(&r->f);
    fixture_open(&r->f, false);
    assert_true(checkpoint_start_generation(r->f.dir, NULL, &r->f.diags));
    open_state(r, NULL, NULL);
    temporary_make(r->folder);
    const char *url = arena_printf(&r->f.arena, "file:%s/store", r->folder);
    r->store = checkpoint_store_open(&(struct objects_options){.url = str_from(url)}, &r->f.diags);
    r->reader = checkpoint_dir_open(&(struct checkpoint_dir_options){.path = r->f.path, .read_only = true},
                                    &r->f.diags);
}

static void end(struct run *r)
{
    close_state(r);
    checkpoint_store_close(r->store);
    checkpoint_dir_close(r->reader);
    fixture_free(&r->f);
    temporary_remove(r->folder);
}

/* Writes every `step`th entry, and pushes as many records. */
static void change(struct run *r, uint32_t step, char seed)
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

static void publish(struct run *r, uint64_t epoch, bool is_base)
{
    struct checkpoint_writer *writer = checkpoint_begin(r->f.dir, epoch, is_base, &r->f.diags);
    assert_non_null(writer);
    assert_true(keyed_table_snapshot(r->table, checkpoint_part(writer, "op/1/0")));
    assert_true(time_queue_snapshot(r->queue, checkpoint_part(writer, "op/2/0")));
    assert_true(state_stores_checkpoint(&r->stores, writer, &r->f.diags));
    change(r, r->meanwhile, (char)epoch); /* meanwhile: entries are saved, in the order of the changes */
    assert_true(checkpoint_write(writer, r->stores.count, &r->f.diags));
    struct checkpoint_info info = {.sources = STR("positions"), .notes = STR("notes")};
    assert_true(checkpoint_publish(writer, &info, &r->f.diags));
}

static void read_manifest(struct run *r, uint64_t epoch, struct manifest *manifest)
{
    const char *why;
    assert_int_equal(manifest_read(r->f.dir, (struct checkpoint_id){1, epoch}, &r->f.arena, manifest, &why),
                     DECODE_GOOD);
}

/* Entries that change while they are written, and records in the order of time, come by key group all the same. */
static void test_pieces_have_a_group(void **state)
{
    (void)state;
    struct run r;
    struct manifest manifest;
    begin(&r, PLENTY, ENTRIES);
    change(&r, 1, 1);
    publish(&r, 1, true);
    change(&r, 3, 2);
    publish(&r, 2, false);
    for (uint64_t epoch = 1; epoch <= 2; epoch++) {
        read_manifest(&r, epoch, &manifest);
        assert_non_null(manifest.piece_digests);
        uint64_t all = 0, of_a_group = 0;
        for (uint64_t i = 0; i < manifest.pieces_count; i++) {
            struct manifest_piece piece = manifest_piece(&manifest, i);
            all += piece.bytes;
            if (piece.group_min == 7 || (piece.group_min < 7 && piece.group_max >= 7))
                of_a_group += piece.bytes;
        }
        /* Two parts: each has at most a piece that group 7 shares with others before, and one that it shares with others behind. */
        assert_true(of_a_group > 0 && of_a_group < all / KEY_GROUPS * 2 + 2 * 2 * LEAST_BYTES);
        assert_true(manifest.pieces_count < all / LEAST_BYTES + 8);
        assert_true(checkpoint_verify(r.f.dir, (struct checkpoint_id){1, epoch}, &r.f.diags));
    }
    end(&r);
}

/* --- Damage --- */

static void write_manifest(struct run *r, const struct manifest *manifest)
{
    char path[PATH_BYTES];
    struct byte_buffer text = {0};
    manifest_encode(manifest, &text);
    path_checkpoint(r->f.dir, manifest->info.id, path);
    strcat(path, "/MANIFEST");
    fixture_write_file(path, text.data, text.length);
    buffer_free(&text);
}

static void test_wrong_digest(void **state)
{
    (void)state;
    struct run r;
    struct manifest manifest;
    begin(&r, PLENTY, ENTRIES);
    change(&r, 1, 1);
    publish(&r, 1, true);
    read_manifest(&r, 1, &manifest);
    uint64_t last = manifest.pieces_count - 1;
    uint8_t *digests = (uint8_t *)(uintptr_t)manifest.piece_digests;
    digests[last * DIGEST_BYTES + 3] ^= 1;
    write_manifest(&r, &manifest);
    assert_false(checkpoint_verify(r.f.dir, (struct checkpoint_id){1, 1}, &r.f.diags));
    const struct diag *diag = fixture_diag(&r.f, DIAG_CHECKPOINT_DAMAGED);
    assert_non_null(diag);
    assert_non_null(strstr(diag->path, "state.bin"));
    assert_int_equal(diag->offset, manifest_piece(&manifest, last).offset);
    end(&r);
}

static enum decode_result decode(const struct manifest *manifest)
{
    struct arena arena = {0};
    struct byte_buffer text = {0};
    struct manifest again;
    const char *why;
    manifest_encode(manifest, &text);
    enum decode_result result = manifest_decode((struct str){text.data, text.length}, &arena, &again, &why);
    buffer_free(&text);
    arena_free(&arena);
    return result;
}

/* Changes one piece of the table, and demands that the MANIFEST is refused then. */
static void refuse(struct manifest *manifest, uint64_t index, struct manifest_piece piece)
{
    struct manifest_piece before = manifest_piece(manifest, index);
    char *at = (char *)(uintptr_t)manifest->pieces + index * sizeof(piece);
    memcpy(at, &piece, sizeof(piece));
    assert_int_equal(decode(manifest), DECODE_DAMAGED);
    memcpy(at, &before, sizeof(before));
    assert_int_equal(decode(manifest), DECODE_GOOD);
}

static void test_wrong_pieces(void **state)
{
    (void)state;
    struct run r;
    struct manifest manifest;
    begin(&r, PLENTY, ENTRIES);
    change(&r, 1, 1);
    publish(&r, 1, true);
    read_manifest(&r, 1, &manifest);
    struct manifest_piece good = manifest_piece(&manifest, 5), bad = good;
    bad.offset++; /* a hole */
    refuse(&manifest, 5, bad);
    bad = good, bad.bytes--;
    refuse(&manifest, 5, bad);
    bad = good, bad.group_min = bad.group_max + 1;
    refuse(&manifest, 5, bad);
    bad = good, bad.group_max = KEY_GROUPS;
    refuse(&manifest, 5, bad);
    bad = good, bad.part = manifest.parts_count;
    refuse(&manifest, 5, bad);
    manifest.pieces_count--; /* the end of state.bin is in no piece */
    assert_int_equal(decode(&manifest), DECODE_DAMAGED);
    manifest.pieces_count++;
    assert_int_equal(decode(&manifest), DECODE_GOOD);
    end(&r);
}

/* A MANIFEST of before, with 15 fields, is read; it has pieces without digests. */
static void test_without_digests(void **state)
{
    (void)state;
    struct run r;
    struct manifest manifest, old;
    struct byte_buffer text = {0};
    const char *why;
    begin(&r, PLENTY, ENTRIES);
    change(&r, 1, 1);
    publish(&r, 1, true);
    read_manifest(&r, 1, &manifest);
    manifest.piece_digests = NULL;
    manifest_encode(&manifest, &text);
    /* The head of an array of 15 is one byte instead of three; the last two fields, which are empty, have two each. */
    const size_t magic = 8, head = 3, last = 4;
    text.data[magic] = (char)0x9f;
    memmove(text.data + magic + 1, text.data + magic + head, text.length - magic - head);
    text.length -= head - 1 + last;
    manifest_seal(text.data, text.length);
    assert_int_equal(manifest_decode((struct str){text.data, text.length}, &r.f.arena, &old, &why),
                     DECODE_GOOD);
    assert_null(old.piece_digests);
    assert_int_equal(old.pieces_count, manifest.pieces_count);
    write_manifest(&r, &old);
    assert_true(checkpoint_verify(r.f.dir, (struct checkpoint_id){1, 1}, &r.f.diags));
    buffer_free(&text);
    end(&r);
}

/* --- Restoring some key groups --- */

static void put(struct run *r, uint64_t epoch)
{
    struct checkpoint_id id;
    assert_true(checkpoint_store_put(r->store, r->reader, r->f.dir, &id, &r->f.diags));
    assert_int_equal(id.epoch, epoch);
}

static struct group_set groups_of(const char *text)
{
    struct group_set groups;
    assert_true(group_set_parse(str_from(text), &groups));
    return groups;
}

/* What a table and a queue have of some groups: sums of hashes, which say nothing of an order. */
struct content {
    uint64_t entries, entries_sum, records, records_sum;
};

static void add_entry(void *argument, const struct keyed_slot *slot)
{
    struct content *content = argument;
    uint32_t bytes;
    const char *value = keyed_read(slot, &bytes);
    content->entries++;
    content->entries_sum += XXH3_64bits(value, bytes) * 31 + key_hash(slot->key);
}

/* Opens the directory, with its lock, reads the newest checkpoint as a start does, and says what it has of `counted`. */
static struct content load(struct run *r, const char *path, const struct group_set *groups,
                           const struct group_set *counted)
{
    struct content content = {0};
    struct run there = {.budget = r->budget};
    diag_list_init(&there.f.diags, &there.f.arena);
    there.f.dir = checkpoint_dir_open(
        &(struct checkpoint_dir_options){
            .path = path, .fingerprint = STR("job"), .profile = STR("cpu"), .groups = groups},
        &there.f.diags);
    struct checkpoint *found;
    assert_int_equal(checkpoint_find(there.f.dir, &found, &there.f.diags), CHECKPOINT_FOUND);
    assert_true(checkpoint_start_generation(there.f.dir, found, &there.f.diags));
    open_state(&there, found, groups);
    for (uint32_t i = 1; i <= 2; i++) {
        struct snapshot_reader *reader =
            checkpoint_reader(found, i == 1 ? "op/1/" : "op/2/", groups, &there.f.diags);
        uint32_t group;
        struct str record;
        while (snapshot_get(reader, &group, &record))
            assert_true(i == 1 ? keyed_table_restore(there.table, reader, record, &there.f.diags)
                               : time_queue_restore(there.queue, reader, record, 0, &there.f.diags));
        assert_true(checkpoint_reader_close(reader));
    }
    assert_true(time_queue_restored(there.queue, 0));
    checkpoint_close(found);
    for (uint32_t g = group_set_next(counted, 0); g < KEY_GROUPS; g = group_set_next(counted, g + 1))
        keyed_scan_group(there.table, g, add_entry, &content);
    struct time_record record;
    while (time_queue_pop(there.queue, TIME_MAX, &record)) {
        if (!group_set_has(counted, key_group(record.hash)))
            continue;
        content.records++;
        content.records_sum += record.hash * 31 + record.sequence * 7 + (uint64_t)record.time_us;
    }
    close_state(&there);
    assert_int_equal(there.f.diags.count, 0);
    checkpoint_dir_close(there.f.dir);
    arena_free(&there.f.arena);
    return content;
}

static const char *target(struct run *r, const char *name)
{
    return arena_printf(&r->f.arena, "%s/%s", r->folder, name);
}

static void restore_whole(struct run *r)
{
    struct checkpoint_id id = {0};
    uint64_t bytes;
    assert_true(checkpoint_store_restore(r->store, &id, target(r, "whole"), &bytes, &r->f.diags));
}

static struct checkpoint_store_read restore_groups_to(struct run *r, const char *name,
                                                      const struct group_set *groups)
{
    struct checkpoint_id id = {0};
    struct checkpoint_store_read read;
    struct objects_stats before, after;
    checkpoint_store_stats(r->store, &before);
    assert_true(checkpoint_store_restore_groups(r->store, &id, target(r, name), groups, &read, &r->f.diags));
    checkpoint_store_stats(r->store, &after);
    assert_int_equal(after.bytes_down - before.bytes_down,
                     read.manifests + read.pieces + read.database + read.tables);
    return read;
}

/* The bytes of the pieces of the checkpoints up to `epoch` that may have the groups, and *all: of all of them. */
static uint64_t piece_bytes(struct run *r, uint64_t epoch, const struct group_set *groups, uint64_t *all)
{
    uint64_t bytes = 0;
    *all = 0;
    for (uint64_t e = 1; e <= epoch; e++) {
        struct manifest manifest;
        read_manifest(r, e, &manifest);
        for (uint64_t i = 0; i < manifest.pieces_count; i++) {
            struct manifest_piece piece = manifest_piece(&manifest, i);
            bool is_wanted = piece.group_max == SNAPSHOT_GLOBAL;
            for (uint32_t g = piece.group_min; !is_wanted && g <= piece.group_max; g++)
                is_wanted = group_set_has(groups, g);
            bytes += is_wanted ? piece.bytes : 0;
            *all += piece.bytes;
        }
    }
    return bytes;
}

static const char *const chosen[] = {"0-71", "3, 100-109, 500, 719", "0-719"};

/* A base and two deltas, part of the state in the database: each choice of groups comes as it was, with few bytes. */
static void test_restore_groups(void **state)
{
    (void)state;
    struct run r;
    begin(&r, LITTLE, ENTRIES);
    change(&r, 1, 1);
    publish(&r, 1, true);
    change(&r, 3, 2);
    publish(&r, 2, false);
    change(&r, 7, 3);
    publish(&r, 3, false);
    put(&r, 3);
    assert_true(store_has_database(r.stores.items[0])); /* it was spilled */
    restore_whole(&r);
    for (size_t i = 0; i < ARRAY_COUNT(chosen); i++) {
        struct group_set groups = groups_of(chosen[i]);
        uint64_t all, pieces = piece_bytes(&r, 3, &groups, &all);
        struct checkpoint_store_read read = restore_groups_to(&r, chosen[i], &groups);
        assert_true(read.pieces >= pieces && read.pieces <= pieces * 6 / 5 + (64 << 10));
        assert_true(i == 2 ? read.pieces == all : read.pieces < all / 4);
        assert_int_equal(read.tables, 0);
        struct content there = load(&r, target(&r, chosen[i]), &groups, &groups),
                       whole = load(&r, target(&r, "whole"), NULL, &groups);
        assert_memory_equal(&there, &whole, sizeof(there));
        assert_true(there.entries > 100 && there.records > 100);
    }
    assert_int_equal(r.f.diags.count, 0);
    end(&r);
}

static void demand_refused(struct run *r, const char *name, const struct group_set *groups)
{
    struct checkpoint *found;
    struct checkpoint_dir *dir = checkpoint_dir_open(
        &(struct checkpoint_dir_options){
            .path = target(r, name), .read_only = true, .fingerprint = STR("job"), .groups = groups},
        &r->f.diags);
    unsigned before = r->f.diags.errors;
    assert_int_equal(checkpoint_find(dir, &found, &r->f.diags), CHECKPOINT_REFUSED);
    assert_null(checkpoint_open(dir, (struct checkpoint_id){1, 1}, &r->f.diags));
    assert_int_equal(r->f.diags.errors, before + 2);
    const struct diag *diag = fixture_diag(&r->f, DIAG_FOREIGN_DIRECTORY);
    assert_non_null(diag);
    assert_non_null(strstr(diag->message, "0-71 alone"));
    assert_non_null(strstr(diag->hint, "leat checkpoint restore"));
    checkpoint_dir_close(dir);
}

/* Who needs other groups than were restored does not begin without them; neither does who copies the directory. */
static void test_other_groups(void **state)
{
    (void)state;
    struct run r;
    struct group_set groups = groups_of("0-71"), more = groups_of("0-72"), less = groups_of("7");
    begin(&r, PLENTY, ENTRIES);
    change(&r, 1, 1);
    publish(&r, 1, true);
    put(&r, 1);
    restore_groups_to(&r, "some", &groups);
    demand_refused(&r, "some", NULL);
    demand_refused(&r, "some", &more);
    assert_true(load(&r, target(&r, "some"), &less, &less).entries > 0);
    struct checkpoint_dir *dir = checkpoint_dir_open(
        &(struct checkpoint_dir_options){.path = target(&r, "some"), .read_only = true}, &r.f.diags);
    struct checkpoint_id id = {1, 1};
    uint64_t bytes;
    assert_true(checkpoint_copy(dir, &id, target(&r, "copy"), &bytes, &r.f.diags));
    checkpoint_dir_close(dir);
    demand_refused(&r, "copy", NULL);
    end(&r);
}

/* A byte of a piece that is wrong in the store is named, with its object and the piece's offset; other groups come all the same. */
static void test_damaged_piece(void **state)
{
    (void)state;
    struct run r;
    struct manifest manifest;
    struct group_set first = groups_of("0-9"), last = groups_of("700-719");
    struct checkpoint_id id = {1, 1};
    struct checkpoint_store_read read;
    begin(&r, PLENTY, ENTRIES);
    change(&r, 1, 1);
    publish(&r, 1, true);
    put(&r, 1);
    read_manifest(&r, 1, &manifest);
    struct manifest_piece piece = manifest_piece(&manifest, 1);
    assert_true(piece.group_max < 9);
    const char *object =
        arena_printf(&r.f.arena, "gen-000001-%s/ckpt-000000000001/state.bin", r.store->token);
    fixture_patch(target(&r, arena_printf(&r.f.arena, "store/%s", object)), piece.offset + 20, '?');
    assert_false(
        checkpoint_store_restore_groups(r.store, &id, target(&r, "some"), &first, &read, &r.f.diags));
    const struct diag *diag = fixture_diag(&r.f, DIAG_STORE_DAMAGED);
    assert_non_null(diag);
    assert_string_equal(diag->path, object);
    assert_int_equal(diag->offset, piece.offset);
    assert_int_not_equal(access(target(&r, "some"), F_OK), 0);
    restore_groups_to(&r, "some", &last);
    end(&r);
}

/* Of a database that was merged, the table files of other groups do not come, and the rest opens without them. */
static void test_restore_database(void **state)
{
    (void)state;
    struct run r;
    struct manifest manifest;
    struct group_set groups = groups_of("100-171");
    begin(&r, LITTLE, STORED_ENTRIES);
    r.meanwhile = 400;
    r.records = 20;
    change(&r, 1, 1);
    publish(&r, 1, true);
    rocksdb_compact_range(atomic_load(&r.stores.items[0]->database), NULL, 0, NULL, 0);
    change(&r, 400, 2); /* some in files of level 0 again */
    publish(&r, 2, true);
    put(&r, 2);
    read_manifest(&r, 2, &manifest);
    uint64_t all = 0;
    for (uint32_t i = 0; i < manifest.files_count; i++)
        all += is_database_file(manifest.files[i].path) ? manifest.files[i].bytes : 0;
    restore_whole(&r);
    struct checkpoint_store_read read = restore_groups_to(&r, "some", &groups);
    assert_true(read.database > 0 && read.database < all / 2);
    struct content there = load(&r, target(&r, "some"), &groups, &groups),
                   whole = load(&r, target(&r, "whole"), NULL, &groups);
    assert_memory_equal(&there, &whole, sizeof(there));
    assert_true(there.entries > STORED_ENTRIES / 20);
    assert_int_equal(r.f.diags.count, 0);
    end(&r);
}

/* A checkpoint of before has no pieces: it comes as a whole alone. */
static void test_no_pieces(void **state)
{
    (void)state;
    struct run r;
    struct manifest manifest;
    struct group_set groups = groups_of("0-71");
    struct checkpoint_id id = {0};
    struct checkpoint_store_read read;
    begin(&r, PLENTY, ENTRIES);
    change(&r, 1, 1);
    publish(&r, 1, true);
    read_manifest(&r, 1, &manifest);
    manifest.piece_digests = NULL;
    write_manifest(&r, &manifest);
    put(&r, 1);
    assert_false(
        checkpoint_store_restore_groups(r.store, &id, target(&r, "some"), &groups, &read, &r.f.diags));
    const struct diag *diag = fixture_diag(&r.f, DIAG_NO_CHECKPOINT);
    assert_non_null(diag);
    assert_non_null(strstr(diag->message, "before checkpoints had pieces"));
    restore_whole(&r);
    assert_true(load(&r, target(&r, "whole"), NULL, &groups).entries > 0);
    end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_have_a_group), cmocka_unit_test(test_wrong_digest),
        cmocka_unit_test(test_wrong_pieces),        cmocka_unit_test(test_without_digests),
        cmocka_unit_test(test_restore_groups),      cmocka_unit_test(test_other_groups),
        cmocka_unit_test(test_restore_database),    cmocka_unit_test(test_damaged_piece),
        cmocka_unit_test(test_no_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
