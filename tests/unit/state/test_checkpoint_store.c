/* Checkpoints in an object store, which is a directory here: what goes up, and how often; restoring, also past damage; pruning by a
 * clock that the test sets; heads by themselves. */
#include "state/checkpoint_store_files.h"

#include "checkpoint_fixture.h"
#include "core/hex.h"
#include "core/mem.h"

#include <setjmp.h>
#include <stdarg.h>

#include <xxhash.h>

#include <cmocka.h>

struct both {
    struct fixture f;
    char folder[TEMPORARY_PATH_BYTES]; /* with the store and what is restored */
    char url[TEMPORARY_PATH_BYTES + 16];
    struct checkpoint_store *store;
    struct checkpoint_dir *reader;
};

static void open_store(struct both *b)
{
    b->store = checkpoint_store_open(&(struct objects_options){.url = str_from(b->url)}, &b->f.diags);
    assert_non_null(b->store);
}

static void begin(struct both *b)
{
    *b = (struct both){.store = NULL};
    fixture_init(&b->f);
    fixture_open(&b->f, false);
    assert_true(checkpoint_start_generation(b->f.dir, NULL, &b->f.diags));
    temporary_make(b->folder);
    snprintf(b->url, sizeof(b->url), "file:%s/store", b->folder);
    open_store(b);
    b->reader = checkpoint_dir_open(&(struct checkpoint_dir_options){.path = b->f.path, .read_only = true},
                                    &b->f.diags);
    assert_non_null(b->reader);
}

static void end(struct both *b)
{
    checkpoint_store_close(b->store);
    checkpoint_dir_close(b->reader);
    fixture_free(&b->f);
    temporary_remove(b->folder);
}

static void put(struct both *b, uint64_t epoch)
{
    struct checkpoint_id id;
    assert_true(checkpoint_store_put(b->store, b->reader, b->f.dir, &id, &b->f.diags));
    assert_int_equal(id.epoch, epoch);
}

static uint64_t bytes_up(const struct both *b)
{
    struct objects_stats stats;
    checkpoint_store_stats(b->store, &stats);
    return stats.bytes_up;
}

static uint32_t count_objects(struct both *b, const char *prefix)
{
    struct objects_entry *entries;
    uint32_t count;
    assert_true(
        objects_list(b->store->objects, str_from(prefix), &b->f.arena, &entries, &count, &b->f.diags));
    return count;
}

/* Restores the checkpoint, and checks that its records are there; returns its epoch. */
static uint64_t restore(struct both *b, const char *name)
{
    char to[TEMPORARY_PATH_BYTES + 64];
    struct checkpoint_id id = {0};
    uint64_t bytes;
    snprintf(to, sizeof(to), "%s/%s", b->folder, name);
    assert_true(checkpoint_store_restore(b->store, &id, to, &bytes, &b->f.diags));
    struct checkpoint_dir *dir = checkpoint_dir_open(
        &(struct checkpoint_dir_options){
            .path = to, .read_only = true, .fingerprint = STR("job"), .profile = STR("cpu")},
        &b->f.diags);
    struct checkpoint *found = NULL;
    assert_int_equal(checkpoint_find(dir, &found, &b->f.diags), CHECKPOINT_FOUND);
    assert_int_equal(checkpoint_info(found)->id.epoch, id.epoch);
    assert_true(fixture_read(&b->f, found, "op/", NULL) > 0);
    checkpoint_close(found);
    checkpoint_dir_close(dir);
    return id.epoch;
}

/* The file of the store whose name begins and ends so; the caller frees it. */
static char *object_path(struct both *b, const char *prefix, const char *suffix)
{
    struct objects_entry *entries;
    uint32_t count;
    assert_true(
        objects_list(b->store->objects, str_from(prefix), &b->f.arena, &entries, &count, &b->f.diags));
    for (uint32_t i = 0; i < count; i++) {
        size_t length = strlen(suffix);
        struct str name = entries[i].name;
        if (name.length >= length && memcmp(name.data + name.length - length, suffix, length) == 0)
            return mem_printf("%s/store/%.*s", b->folder, STR_ARGS(name));
    }
    fail_msg("there is no %s...%s", prefix, suffix);
    return NULL;
}

static void test_goes_up_once(void **state)
{
    (void)state;
    struct both b;
    begin(&b);
    struct checkpoint_id id;
    assert_true(checkpoint_store_put(b.store, b.reader, b.f.dir, &id, &b.f.diags));
    assert_int_equal(id.generation, 0); /* nothing is published yet */
    assert_true(fixture_write(&b.f, 1, true));
    put(&b, 1);
    uint64_t first = bytes_up(&b);
    put(&b, 1);
    assert_int_equal(bytes_up(&b), first);
    assert_true(fixture_write(&b.f, 2, false));
    put(&b, 2);
    uint64_t second = bytes_up(&b) - first;
    assert_true(second > 0 && second < first * 3 / 2); /* the base did not go up again */
    assert_int_equal(count_objects(&b, "heads/"), 2);
    assert_int_equal(restore(&b, "first"), 2);
    assert_true(fixture_write(&b.f, 3, false)); /* epochs that the store never saw */
    assert_true(fixture_write(&b.f, 4, false));
    put(&b, 4);
    assert_int_equal(count_objects(&b, "heads/"), 3);
    assert_int_equal(restore(&b, "second"), 4);
    assert_int_equal(b.f.diags.count, 0);
    end(&b);
}

/* A process that begins anew has names of its own, and sends nothing that the store has: of the same checkpoint not even a head,
 * of the next one its own files. */
static void test_two_lives(void **state)
{
    (void)state;
    struct both b;
    begin(&b);
    assert_true(fixture_write(&b.f, 1, true));
    put(&b, 1);
    uint32_t before = count_objects(&b, ""), own = count_objects(&b, "gen-");
    uint64_t first = bytes_up(&b);
    checkpoint_store_close(b.store);
    open_store(&b);
    put(&b, 1);
    assert_int_equal(count_objects(&b, ""), before);
    assert_int_equal(bytes_up(&b), 0);
    assert_true(fixture_write(&b.f, 2, false));
    checkpoint_store_close(b.store);
    open_store(&b);
    put(&b, 2);
    assert_int_equal(count_objects(&b, "gen-"), 2 * own);
    assert_true(bytes_up(&b) < first * 3 / 2); /* the first one did not go up again */
    assert_int_equal(count_objects(&b, "heads/"), 2);
    assert_int_equal(restore(&b, "one"), 2);
    assert_int_equal(b.f.diags.count, 0);
    end(&b);
}

/* A MANIFEST with other bytes under the name of a checkpoint: another life's. Its files are not taken for this one's. */
static void test_another_life(void **state)
{
    (void)state;
    struct both b;
    begin(&b);
    assert_true(fixture_write(&b.f, 1, true));
    put(&b, 1);
    uint32_t own = count_objects(&b, "gen-");
    char *manifest = object_path(&b, "gen-", "ckpt-000000000001/MANIFEST");
    fixture_patch(manifest, 20, '?');
    free(manifest);
    checkpoint_store_close(b.store);
    open_store(&b);
    put(&b, 1);
    assert_int_equal(count_objects(&b, "gen-"), 2 * own);
    assert_int_equal(count_objects(&b, "heads/"), 2);
    assert_int_equal(b.f.diags.count, 0);
    end(&b);
}

static void test_damage(void **state)
{
    (void)state;
    struct both b;
    begin(&b);
    assert_true(fixture_write(&b.f, 1, true));
    put(&b, 1);
    assert_true(fixture_write(&b.f, 2, true));
    put(&b, 2);
    assert_true(fixture_write(&b.f, 3, true));
    put(&b, 3);
    char *head = object_path(&b, "heads/000001-000000000003", "");
    fixture_patch(head, 30, '?');
    char *bytes = object_path(&b, "gen-", "ckpt-000000000002/state.bin");
    fixture_patch(bytes, 100, '?');
    assert_int_equal(restore(&b, "older"), 1);
    assert_non_null(fixture_diag(&b.f, DIAG_STORE_DAMAGED));
    assert_non_null(fixture_diag(&b.f, DIAG_CHECKPOINT_DAMAGED));
    assert_int_equal(b.f.diags.errors, 0); /* warnings */
    char to[TEMPORARY_PATH_BYTES + 64];
    struct checkpoint_id id = {1, 2};
    uint64_t count;
    snprintf(to, sizeof(to), "%s/named", b.folder);
    assert_false(checkpoint_store_restore(b.store, &id, to, &count, &b.f.diags));
    assert_int_not_equal(access(to, F_OK), 0);
    id = (struct checkpoint_id){1, 7};
    assert_false(checkpoint_store_restore(b.store, &id, to, &count, &b.f.diags));
    assert_non_null(fixture_diag(&b.f, DIAG_NO_CHECKPOINT));
    snprintf(to, sizeof(to), "%s/older", b.folder);
    assert_false(checkpoint_store_restore(b.store, &id, to, &count, &b.f.diags));
    assert_non_null(fixture_diag(&b.f, DIAG_FOREIGN_DIRECTORY));
    free(head);
    free(bytes);
    end(&b);
}

static uint32_t prune(struct both *b, int64_t now_us)
{
    uint32_t removed;
    const struct checkpoint_keep keep = {.last = 1};
    assert_true(checkpoint_store_prune(b->store, b->f.dir, &keep, now_us, &removed, &b->f.diags));
    return removed;
}

static void test_pruning(void **state)
{
    (void)state;
    struct both b;
    begin(&b);
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        assert_true(fixture_write(&b.f, epoch, true));
        put(&b, epoch);
    }
    uint32_t each = count_objects(&b, "gen-") / 3;
    assert_int_equal(count_objects(&b, "gen-"), each * 3);
    const int64_t begun_us = 5 * US_PER_HOUR;
    assert_int_equal(prune(&b, begun_us), 2); /* two heads */
    assert_int_equal(count_objects(&b, "heads/"), 1);
    assert_int_equal(prune(&b, begun_us + CHECKPOINT_STORE_DELAY_US - 1), 0);
    assert_int_equal(count_objects(&b, "gen-"), each * 3);
    assert_true(fixture_write(&b.f, 4, false)); /* builds on 3, which only its own head names */
    put(&b, 4);
    assert_int_equal(prune(&b, begun_us + CHECKPOINT_STORE_DELAY_US), 2 * each + 1);
    assert_int_equal(count_objects(&b, "gen-"), each * 2);
    assert_int_equal(restore(&b, "kept"), 4);
    assert_int_equal(prune(&b, begun_us + 2 * CHECKPOINT_STORE_DELAY_US), 0);
    assert_int_equal(restore(&b, "again"), 4);
    assert_int_equal(b.f.diags.count, 0);
    /* Who does not hold the directory any more deletes nothing, and writes no head. */
    struct checkpoint_dir *thief = checkpoint_dir_open(
        &(struct checkpoint_dir_options){
            .path = b.f.path, .take_over = true, .fingerprint = STR("job"), .profile = STR("cpu")},
        &b.f.diags);
    assert_non_null(thief);
    uint32_t removed;
    const struct checkpoint_keep keep = {.last = 1};
    assert_false(checkpoint_store_prune(b.store, b.f.dir, &keep, 99 * US_PER_DAY, &removed, &b.f.diags));
    assert_non_null(fixture_diag(&b.f, DIAG_TAKEN_OVER));
    checkpoint_dir_close(thief);
    end(&b);
}

static void check_head(const char *text, const char *why_expected)
{
    struct arena arena = {0};
    struct checkpoint_head head;
    struct byte_buffer whole = {0};
    const char *why;
    XXH128_canonical_t canonical;
    char digest[2 * DIGEST_BYTES + 1];
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(text, strlen(text)));
    hex_text(canonical.digest, sizeof(canonical.digest), digest);
    buffer_printf(&whole, "%sdigest %s\n", text, digest);
    bool is_good = checkpoint_head_decode((struct str){whole.data, whole.length}, &arena, &head, &why);
    assert_true(is_good == (why_expected == NULL));
    if (why_expected != NULL)
        assert_non_null(strstr(why, why_expected));
    whole.data[3] ^= 1;
    assert_false(checkpoint_head_decode((struct str){whole.data, whole.length}, &arena, &head, &why));
    assert_false(checkpoint_head_decode((struct str){whole.data, whole.length / 2}, &arena, &head, &why));
    buffer_free(&whole);
    arena_free(&arena);
}

static void test_heads(void **state)
{
    (void)state;
#define HEAD "leat checkpoint head 1\ncheckpoint 7-42\ncreated 5\n"
    struct checkpoint_id id;
    check_head(HEAD "file 3\tdb/a\tgen-000007/x y\n", NULL);
    check_head(HEAD, NULL);
    check_head(HEAD "file 3\tdb/a\t../x\n", "bad line");
    check_head(HEAD "file 3\tdb/a\t/etc/x\n", "bad line");
    check_head(HEAD "file 3\tdb/a\tgen/../../x\n", "bad line");
    check_head(HEAD "file 99999999999999999999\tdb/a\tx\n", "bad line");
    check_head(HEAD "file 3\tx\n", "bad line");
    check_head("leat checkpoint head 2\ncheckpoint 7-42\ncreated 5\n", "another version");
    check_head("leat checkpoint head 1\ncheckpoint 7\ncreated 5\n", "no checkpoint");
    check_head("leat checkpoint head 1\ncheckpoint 7-1\ncreated -5\n", "no time");
    assert_true(checkpoint_head_name(STR("heads/000007-000000000042-abcd"), &id) && id.generation == 7 &&
                id.epoch == 42);
    assert_false(checkpoint_head_name(STR("heads/000000-000000000042-abcd"), &id));
    assert_false(checkpoint_head_name(STR("heads/7"), &id));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goes_up_once), cmocka_unit_test(test_two_lives),
        cmocka_unit_test(test_another_life), cmocka_unit_test(test_damage),
        cmocka_unit_test(test_pruning),      cmocka_unit_test(test_heads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
