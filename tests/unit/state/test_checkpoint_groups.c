/* Restores of some key groups from an object store, a directory here: that they have what a whole restore has of these groups, and
 * read little else. */
#include "state/store_internal.h"

#include "state_run.h"

#include "core/os.h"

#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <cmocka.h>

enum { STORED_ENTRIES = 200000 }; /* of a database with some table files */

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

/* Opens the directory, with its lock, and the state of its newest checkpoint, as a start does; of that, databases are there. */
static struct checkpoint *open_there(struct run *there, const char *path, const struct group_set *groups)
{
    struct checkpoint *found;
    diag_list_init(&there->f.diags, &there->f.arena);
    there->f.dir = checkpoint_dir_open(
        &(struct checkpoint_dir_options){
            .path = path, .fingerprint = STR("job"), .profile = STR("cpu"), .groups = groups},
        &there->f.diags);
    assert_int_equal(checkpoint_find(there->f.dir, &found, &there->f.diags), CHECKPOINT_FOUND);
    assert_true(checkpoint_start_generation(there->f.dir, found, &there->f.diags));
    run_open_state(there, found, groups);
    return found;
}

/* Says what the state has of `counted`, and closes all. */
static struct content close_there(struct run *there, struct checkpoint *found,
                                  const struct group_set *counted)
{
    struct content content = {0};
    assert_true(time_queue_restored(there->queue, 0));
    checkpoint_close(found);
    for (uint32_t g = group_set_next(counted, 0); g < KEY_GROUPS; g = group_set_next(counted, g + 1))
        keyed_scan_group(there->table, g, add_entry, &content);
    struct time_record record;
    while (time_queue_pop(there->queue, TIME_MAX, &record)) {
        if (!group_set_has(counted, key_group(record.hash)))
            continue;
        content.records++;
        content.records_sum += record.hash * 31 + record.sequence * 7 + (uint64_t)record.time_us;
    }
    run_close_state(there);
    assert_int_equal(there->f.diags.count, 0);
    checkpoint_dir_close(there->f.dir);
    arena_free(&there->f.arena);
    return content;
}

/* What the newest checkpoint in the directory has of `counted`. */
static struct content load(struct run *r, const char *path, const struct group_set *groups,
                           const struct group_set *counted)
{
    struct run there = {.budget = r->budget, .databases = 1};
    struct checkpoint *found = open_there(&there, path, groups);
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
    return close_there(&there, found, counted);
}

/* What its database has of `counted`, once it has forgotten other groups. */
static struct content load_database(struct run *r, const char *path, const struct group_set *forgotten,
                                    const struct group_set *counted)
{
    struct run there = {.budget = r->budget, .databases = 1};
    struct checkpoint *found = open_there(&there, path, NULL);
    assert_true(keyed_table_forget_groups(there.table, forgotten) &&
                time_queue_forget_groups(there.queue, forgotten));
    return close_there(&there, found, counted);
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
        run_read_manifest(r, e, &manifest);
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

/* A base and two deltas, part of the state in databases: each choice of groups comes as it was, with few bytes. */
static void check_restore_groups(uint32_t databases)
{
    struct run r;
    run_begin_with(&r, LITTLE, ENTRIES, databases);
    run_change(&r, 1, 1);
    run_publish(&r, 1, true);
    run_change(&r, 3, 2);
    run_publish(&r, 2, false);
    run_change(&r, 7, 3);
    run_publish(&r, 3, false);
    put(&r, 3);
    for (uint32_t i = 0; i < databases; i++)
        assert_true(store_has_database(r.stores.items[i])); /* something was spilled */
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
    run_end(&r);
}

static void test_restore_groups(void **state)
{
    (void)state;
    check_restore_groups(1);
    check_restore_groups(2);
}

/* Of groups that have gone to another worker a database that goes on keeps nothing, and of the others all. */
static void test_forget_groups(void **state)
{
    struct run r;
    struct group_set none = {.words = {0}}, gone = groups_of("3, 100-171, 500-719"),
                     stay = groups_of("0-2, 4-99, 172-499");
    (void)state;
    run_begin(&r, LITTLE, ENTRIES);
    run_change(&r, 1, 1);
    run_publish(&r, 1, true);
    put(&r, 1);
    restore_whole(&r);
    const char *path = target(&r, "whole");
    struct content before = load_database(&r, path, &none, &gone),
                   after = load_database(&r, path, &gone, &gone);
    assert_true(before.entries > 1000 && before.records > 1000);
    assert_true(after.entries == 0 && after.records == 0);
    before = load_database(&r, path, &none, &stay);
    after = load_database(&r, path, &gone, &stay);
    assert_true(before.entries > 1000 && before.records > 1000);
    assert_memory_equal(&before, &after, sizeof(before));
    run_end(&r);
}

/* How many table files of a checkpoint are those of another one. */
static uint32_t count_shared(struct run *r, const char *one, const char *other)
{
    glob_t files;
    uint32_t shared = 0;
    assert_int_equal(glob(arena_printf(&r->f.arena, "%s/db/*.sst", one), 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        struct stat here, there;
        const char *path = arena_printf(&r->f.arena, "%s/db%s", other, strrchr(files.gl_pathv[i], '/'));
        assert_int_equal(stat(files.gl_pathv[i], &here), 0);
        shared += stat(path, &there) == 0 && here.st_ino == there.st_ino;
    }
    globfree(&files);
    return shared;
}

/* The first checkpoint of a life that goes on with databases as they were links their files; a base that copies them follows soon. */
static void test_share_databases(void **state)
{
    struct run r, there = {.budget = LITTLE, .databases = 1, .entries = 2000, .meanwhile = 1, .records = 1};
    uint64_t epoch = 2;
    (void)state;
    run_begin(&r, LITTLE, ENTRIES);
    run_change(&r, 1, 1);
    run_publish(&r, 1, true);
    put(&r, 1);
    restore_whole(&r);
    struct checkpoint *found = open_there(&there, target(&r, "whole"), NULL);
    checkpoint_share_databases(there.f.dir, found, 0);
    run_publish(&there, epoch, true);
    const char *first = target(&r, "whole/gen-000001/ckpt-000000000001"),
               *linked = target(&r, "whole/gen-000002/ckpt-000000000002");
    assert_true(count_shared(&r, first, linked) > 0);
    while (!checkpoint_wants_base(there.f.dir))
        run_publish(&there, ++epoch, false);
    assert_true(epoch <= 2 + CHECKPOINT_CHAIN_MAX / 2);
    run_publish(&there, ++epoch, true);
    const char *copied = arena_printf(&r.f.arena, "%s/gen-000002/ckpt-%012llu", target(&r, "whole"),
                                      (unsigned long long)epoch);
    assert_int_equal(count_shared(&r, linked, copied), 0);
    (void)close_there(&there, found, &(struct group_set){.words = {0}});
    run_end(&r);
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
    run_begin(&r, PLENTY, ENTRIES);
    run_change(&r, 1, 1);
    run_publish(&r, 1, true);
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
    run_end(&r);
}

/* What a process of some groups publishes says so, too. */
static void test_published_groups(void **state)
{
    (void)state;
    struct run r;
    struct manifest manifest;
    struct group_set groups = groups_of("0-71");
    run_begin(&r, PLENTY, ENTRIES);
    r.f.dir->groups = &groups;
    run_change(&r, 1, 1);
    run_publish(&r, 1, true);
    run_read_manifest(&r, 1, &manifest);
    assert_non_null(manifest.groups);
    assert_memory_equal(manifest.groups->words, groups.words, sizeof(groups.words));
    put(&r, 1);
    restore_whole(&r);
    demand_refused(&r, "whole", NULL);
    struct group_set others = groups_of("72-80");
    struct checkpoint_id id = {0};
    struct checkpoint_store_read read;
    assert_false(
        checkpoint_store_restore_groups(r.store, &id, target(&r, "some"), &others, &read, &r.f.diags));
    assert_non_null(fixture_diag(&r.f, DIAG_NO_CHECKPOINT));
    run_end(&r);
}

/* The disk is full while pieces are written: nothing is left of the copy. */
static void test_full_disk(void **state)
{
    (void)state;
    struct run r;
    struct group_set groups = groups_of("0-719");
    struct checkpoint_id id = {0};
    struct checkpoint_store_read read;
    static const char *const steps[] = {"ckpt.write", "ckpt.fsync", "ckpt.manifest"};
    run_begin(&r, LITTLE, ENTRIES);
    run_change(&r, 1, 1);
    run_publish(&r, 1, true);
    put(&r, 1);
    for (size_t i = 0; i < ARRAY_COUNT(steps); i++) {
        diag_list_init(&r.f.diags, &r.f.arena);
        setenv("LEAT_FAILPOINTS", arena_printf(&r.f.arena, "%s=error:ENOSPC@1", steps[i]), 1);
        assert_true(failpoints_init(&r.f.diags));
        assert_false(
            checkpoint_store_restore_groups(r.store, &id, target(&r, "some"), &groups, &read, &r.f.diags));
        assert_non_null(fixture_diag(&r.f, DIAG_CHECKPOINT_FAILED));
        assert_int_not_equal(access(target(&r, "some"), F_OK), 0);
        assert_int_not_equal(access(target(&r, "some.tmp"), F_OK), 0);
    }
    unsetenv("LEAT_FAILPOINTS");
    assert_true(failpoints_init(&r.f.diags));
    run_end(&r);
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
    run_begin(&r, PLENTY, ENTRIES);
    run_change(&r, 1, 1);
    run_publish(&r, 1, true);
    put(&r, 1);
    run_read_manifest(&r, 1, &manifest);
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
    run_end(&r);
}

/* Of a database that was merged, the table files of other groups do not come, and the rest opens without them. */
static void test_restore_database(void **state)
{
    (void)state;
    struct run r;
    struct manifest manifest;
    struct group_set groups = groups_of("100-171");
    run_begin(&r, LITTLE, STORED_ENTRIES);
    r.meanwhile = 400;
    r.records = 20;
    run_change(&r, 1, 1);
    run_publish(&r, 1, true);
    rocksdb_compact_range(atomic_load(&r.stores.items[0]->database), NULL, 0, NULL, 0);
    run_change(&r, 400, 2); /* some in files of level 0 again */
    run_publish(&r, 2, true);
    put(&r, 2);
    run_read_manifest(&r, 2, &manifest);
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
    run_end(&r);
}

static void demand_no_groups(struct run *r, const char *why)
{
    struct group_set groups = groups_of("0-71");
    struct checkpoint_id id = {0};
    struct checkpoint_store_read read;
    diag_list_init(&r->f.diags, &r->f.arena);
    assert_false(
        checkpoint_store_restore_groups(r->store, &id, target(r, "some"), &groups, &read, &r->f.diags));
    const struct diag *diag = fixture_diag(&r->f, DIAG_NO_CHECKPOINT);
    assert_non_null(diag);
    assert_non_null(strstr(diag->message, why));
    assert_non_null(strstr(diag->hint, "restore all of it"));
}

/* A checkpoint of before has no pieces: it comes as a whole alone. One of another version has what nobody here knows. */
static void test_no_pieces(void **state)
{
    (void)state;
    struct run r;
    struct manifest manifest;
    struct group_set groups = groups_of("0-71");
    char *text;
    size_t bytes;
    const size_t format_at = 8 + 3; /* behind the magic number and the head of the array of fields */
    run_begin(&r, PLENTY, ENTRIES);
    run_change(&r, 1, 1);
    run_publish(&r, 1, true);
    run_read_manifest(&r, 1, &manifest);
    manifest.piece_digests = NULL;
    run_write_manifest(&r, &manifest);
    put(&r, 1);
    demand_no_groups(&r, "before checkpoints had pieces");
    restore_whole(&r);
    assert_true(load(&r, target(&r, "whole"), NULL, &groups).entries > 0);
    const char *path = arena_printf(&r.f.arena, "%s/store/gen-000001-%s/ckpt-000000000001/MANIFEST", r.folder,
                                    r.store->token);
    assert_int_equal(os_read_file(path, MANIFEST_BYTES_MAX, &text, &bytes), 0);
    text[format_at]++;
    manifest_seal(text, bytes);
    fixture_write_file(path, text, bytes);
    free(text);
    demand_no_groups(&r, "another version");
    run_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restore_groups),  cmocka_unit_test(test_forget_groups),
        cmocka_unit_test(test_share_databases), cmocka_unit_test(test_restore_database),
        cmocka_unit_test(test_other_groups),    cmocka_unit_test(test_published_groups),
        cmocka_unit_test(test_full_disk),       cmocka_unit_test(test_damaged_piece),
        cmocka_unit_test(test_no_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
