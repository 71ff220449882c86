/* Mirrors of workers' parts: what comes from the store, and how often; what goes; damage, missing objects, a full disk, a directory that
 * somebody else holds. */
#include "state/checkpoint_store_files.h"
#include "state/checkpoint_store_parts.h"

#include "checkpoint_fixture.h"
#include "core/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct both {
    struct fixture f;
    char folder[TEMPORARY_PATH_BYTES]; /* with the store, and the mirror `to` */
    char to[TEMPORARY_PATH_BYTES + 16];
    struct checkpoint_store *store;
    struct checkpoint_mirror *mirror;
    char name[CHECKPOINT_PART_NAME_BYTES]; /* of the newest part */
    struct checkpoint_store_part part;
};

static void begin(struct both *b)
{
    char url[TEMPORARY_PATH_BYTES + 16];
    *b = (struct both){.store = NULL};
    fixture_init(&b->f);
    fixture_open(&b->f, false);
    assert_true(checkpoint_start_generation(b->f.dir, NULL, &b->f.diags));
    temporary_make(b->folder);
    snprintf(url, sizeof(url), "file:%s/store", b->folder);
    snprintf(b->to, sizeof(b->to), "%s/to", b->folder);
    b->store = checkpoint_store_open(&(struct objects_options){.url = str_from(url)}, &b->f.diags);
    b->mirror = checkpoint_mirror_new(b->store, b->to, 0);
}

static void end(struct both *b)
{
    checkpoint_mirror_free(b->mirror);
    checkpoint_store_close(b->store);
    fixture_free(&b->f);
    temporary_remove(b->folder);
}

/* Another process goes on with the mirror. */
static void begin_again(struct both *b)
{
    checkpoint_mirror_free(b->mirror);
    b->mirror = checkpoint_mirror_new(b->store, b->to, 0);
}

/* Writes a checkpoint, and puts it as a part. */
static void put(struct both *b, uint64_t epoch, bool is_base)
{
    uint64_t bytes;
    b->part.id = (struct checkpoint_id){1, epoch};
    assert_true(fixture_write(&b->f, epoch, is_base));
    assert_true(checkpoint_store_put_part(b->store, b->f.dir, b->part.id, b->name, &b->f.diags));
    assert_true(checkpoint_digest(b->f.dir, b->part.id, b->part.digest, &bytes, &b->f.diags));
    b->part.name = str_from(b->name);
}

/* Bytes that came from the store. */
static uint64_t bring(struct both *b)
{
    uint64_t bytes = 0;
    assert_true(checkpoint_mirror_bring(b->mirror, &b->part, &bytes, &b->f.diags));
    return bytes;
}

static bool fails(struct both *b, enum diag_code code)
{
    uint64_t bytes = 0;
    bool fails = !checkpoint_mirror_bring(b->mirror, &b->part, &bytes, &b->f.diags) &&
                 fixture_diag(&b->f, code) != NULL;
    diag_list_init(&b->f.diags, &b->f.arena);
    return fails;
}

/* The mirror has these checkpoints, newest first, and the newest one opens with so many records. */
static void has(struct both *b, const char *expected, uint32_t records)
{
    const struct checkpoint_dir_options options = {.path = b->to, .read_only = true};
    char found[256] = "";
    struct checkpoint_dir *dir = checkpoint_dir_open(&options, &b->f.diags);
    uint32_t count;
    struct checkpoint_id *ids = checkpoint_ids(dir, &count);
    for (uint32_t i = 0; i < count; i++)
        snprintf(found + strlen(found), sizeof(found) - strlen(found), "%s%u-%llu", i == 0 ? "" : " ",
                 ids[i].generation, (unsigned long long)ids[i].epoch);
    assert_string_equal(found, expected);
    struct checkpoint *newest = checkpoint_open(dir, ids[0], &b->f.diags);
    assert_non_null(newest);
    assert_int_equal(fixture_read(&b->f, newest, "op/", NULL), records);
    checkpoint_close(newest);
    checkpoint_dir_close(dir);
    free(ids);
}

enum { RECORDS = 3 * (FIXTURE_RECORDS + 1) }; /* of each checkpoint */

static void test_comes_once(void **state)
{
    (void)state;
    struct both b;
    begin(&b);
    put(&b, 1, true);
    const struct checkpoint_store_part oldest = b.part;
    const char *name = arena_printf(&b.f.arena, "%s", b.name);
    uint64_t first = bring(&b);
    assert_true(first > 0);
    assert_int_equal(bring(&b), 0);
    put(&b, 2, false);
    uint64_t second = bring(&b);
    assert_true(second > 0 && second < first * 3 / 2);
    has(&b, "1-2 1-1", 2 * RECORDS);
    begin_again(&b);
    assert_int_equal(bring(&b), 0);
    put(&b, 3, true);
    assert_true(bring(&b) > 0);
    has(&b, "1-3", RECORDS); /* the chain before is gone */
    const char *empty = arena_printf(&b.f.arena, "%s/gen-000001/ckpt-000000000001", b.to);
    const struct checkpoint_store_part third = b.part;
    b.part = oldest;
    b.part.name = str_from(name);
    assert_int_equal(mkdir(empty, 0755), 0);
    assert_true(bring(&b) > 0); /* and nothing counts as verified that has come anew under its name */
    has(&b, "1-1", RECORDS);
    b.part = third;
    bring(&b);
    put(&b, 4, false);
    put(&b, 5, false); /* one was left out */
    bring(&b);
    has(&b, "1-5 1-4 1-3", 3 * RECORDS);
    assert_int_equal(b.f.diags.count, 0);
    end(&b);
}

static void test_damage(void **state)
{
    (void)state;
    struct both b;
    char path[TEMPORARY_PATH_BYTES + 128];
    begin(&b);
    put(&b, 1, true);
    bring(&b);
    snprintf(path, sizeof(path), "%s/gen-000001/ckpt-000000000001/state.bin", b.to);
    fixture_patch(path, 100, '?');
    begin_again(&b);
    assert_true(bring(&b) > 0); /* again */
    has(&b, "1-1", RECORDS);
    snprintf(path, sizeof(path), "%s/gen-000001/ckpt-000000000001/MANIFEST", b.to);
    fixture_patch(path, 20, '?'); /* another one under that name */
    begin_again(&b);
    assert_true(bring(&b) > 0);
    has(&b, "1-1", RECORDS);
    struct fixture there = b.f;
    there.dir =
        checkpoint_dir_open(&(struct checkpoint_dir_options){.path = b.to, .read_only = true}, &b.f.diags);
    fixture_set_time(&there, 1, 1700000000000000); /* the same, of another life; as long a text */
    checkpoint_dir_close(there.dir);
    b.f.arena = there.arena;
    begin_again(&b);
    assert_true(bring(&b) > 0);
    has(&b, "1-1", RECORDS);
    put(&b, 2, false);
    snprintf(path, sizeof(path), "%s/store/cluster/gen-000001-%s/ckpt-000000000002/state.bin", b.folder,
             b.store->token);
    fixture_patch(path, 100, '?');
    assert_true(fails(&b, DIAG_CHECKPOINT_DAMAGED));
    has(&b, "1-1", RECORDS);
    assert_int_equal(unlink(path), 0); /* as the leader deletes */
    assert_true(fails(&b, DIAG_STORE_DAMAGED));
    has(&b, "1-1", RECORDS);
    put(&b, 3, true);
    bring(&b);
    has(&b, "1-3", RECORDS);
    b.part.digest[0] ^= 1;
    assert_true(fails(&b, DIAG_STORE_DAMAGED)); /* it is not the one that the head names */
    end(&b);
}

static char byte_of(const char *path, long at)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    int byte = fgetc(file);
    fclose(file);
    return (char)byte;
}

static void test_room_and_holder(void **state)
{
    (void)state;
    struct both b;
    char path[TEMPORARY_PATH_BYTES + 128];
    begin(&b);
    put(&b, 1, true);
    checkpoint_mirror_free(b.mirror);
    b.mirror = checkpoint_mirror_new(b.store, b.to, INT64_MAX / 2);
    assert_true(fails(&b, DIAG_DISK_FULL));
    begin_again(&b);
    bring(&b);
    struct checkpoint_dir *holder =
        checkpoint_dir_open(&(struct checkpoint_dir_options){.path = b.to}, &b.f.diags);
    assert_non_null(holder);
    assert_int_equal(bring(&b), 0); /* it has the part */
    snprintf(path, sizeof(path), "%s/gen-000001/ckpt-000000000001/state.bin", b.to);
    char was = byte_of(path, 100);
    fixture_patch(path, 100, '?');
    begin_again(&b);
    assert_true(fails(&b, DIAG_CHECKPOINT_DAMAGED)); /* every byte counts */
    assert_int_equal(access(path, F_OK), 0);
    fixture_patch(path, 100, was);
    assert_int_equal(bring(&b), 0);
    put(&b, 2, false);
    assert_true(fails(&b, DIAG_CHECKPOINT_DAMAGED));
    has(&b, "1-1", RECORDS); /* and was left alone */
    checkpoint_mirror_forget(b.mirror);
    has(&b, "1-1", RECORDS);
    checkpoint_dir_close(holder);
    checkpoint_mirror_forget(checkpoint_mirror_new(NULL, b.to, 0));
    assert_int_not_equal(access(b.to, F_OK), 0);
    b.mirror = NULL;
    end(&b);
}

/* Puts the newest part anew, as if each of its checkpoints had a file db/1.sst with the content of one object. */
static void add_database(struct both *b)
{
    struct arena arena = {0};
    struct byte_buffer text = {0}, more = {0};
    struct checkpoint_head head, grown;
    assert_int_equal(store_head_get(b->store, str_from(b->name), &arena, &text, &head, &b->f.diags),
                     OBJECTS_DONE);
    grown = head;
    grown.files = arena_array(&arena, struct checkpoint_head_file, 2 * head.count);
    grown.count = 0;
    for (uint32_t i = 0; i < head.count; i++) {
        struct str name = head.files[i].name;
        grown.files[grown.count++] = head.files[i];
        if (name.length > 9 && memcmp(name.data + name.length - 8, "MANIFEST", 8) == 0)
            grown.files[grown.count++] = (struct checkpoint_head_file){
                .name = str_from(arena_printf(&arena, "%.*sdb/1.sst", (int)name.length - 8, name.data)),
                .object = STR("cluster/gen-000001-x/db/1-7"),
                .bytes = 7};
    }
    checkpoint_head_encode(&grown, &more);
    snprintf(b->name, sizeof(b->name), "cluster/parts/000001-%012llu-again",
             (unsigned long long)b->part.id.epoch);
    assert_true(objects_put(b->store->objects, str_from(b->name), more.data, more.length, &b->f.diags));
    assert_true(
        objects_put(b->store->objects, STR("cluster/gen-000001-x/db/1-7"), "content", 7, &b->f.diags));
    b->part.name = str_from(b->name);
    buffer_free(&text);
    buffer_free(&more);
    arena_free(&arena);
}

static nlink_t links_of(const struct both *b, uint64_t epoch)
{
    char path[TEMPORARY_PATH_BYTES + 128];
    struct stat info;
    snprintf(path, sizeof(path), "%s/gen-000001/ckpt-%012llu/db/1.sst", b->to, (unsigned long long)epoch);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, 7);
    return info.st_nlink;
}

/* Files of databases go from checkpoint to checkpoint by links, and into a base by a copy: the object comes once. */
static void test_databases(void **state)
{
    (void)state;
    struct both b;
    char path[TEMPORARY_PATH_BYTES + 64], own[TEMPORARY_PATH_BYTES + 64], more[TEMPORARY_PATH_BYTES + 64];
    begin(&b);
    put(&b, 1, true);
    add_database(&b);
    bring(&b);
    snprintf(path, sizeof(path), "%s/store/cluster/gen-000001-x/db/1-7", b.folder);
    for (uint64_t epoch = 2; epoch <= 3; epoch++) {
        put(&b, epoch, epoch == 3);
        add_database(&b);
        assert_int_equal(unlink(path), 0); /* nobody gets it again */
        bring(&b);
        assert_int_equal(links_of(&b, epoch), epoch == 3 ? 1 : 2);
        snprintf(own, sizeof(own), "%s/gen-000001/ckpt-%012llu/db/1.sst", b.to, (unsigned long long)epoch);
        snprintf(more, sizeof(more), "%s/more-%llu", b.folder, (unsigned long long)epoch);
        assert_int_equal(link(own, more), 0); /* a link that stays when the checkpoint goes */
    }
    assert_int_equal(b.f.diags.count, 0);
    end(&b);
}

/* A table of the job, in the directory from which parts are put. */
static void set_table(const struct both *b, const char *name, const char *text)
{
    char path[TEMPORARY_PATH_BYTES + 64];
    snprintf(path, sizeof(path), "%s/tables", b->f.path);
    (void)mkdir(path, 0755);
    snprintf(path, sizeof(path), "%s/tables/%s", b->f.path, name);
    if (text == NULL)
        assert_int_equal(unlink(path), 0);
    else
        fixture_write_file(path, text, strlen(text));
}

static bool is_there(const struct both *b, const char *name)
{
    char path[TEMPORARY_PATH_BYTES + 64];
    snprintf(path, sizeof(path), "%s/%s", b->to, name);
    return access(path, F_OK) == 0;
}

/* A byte of the newest checkpoint's state.bin is wrong in the store: the part does not come. */
static void spoil(struct both *b)
{
    char path[TEMPORARY_PATH_BYTES + 128];
    snprintf(path, sizeof(path), "%s/store/cluster/gen-000001-%s/ckpt-%012llu/state.bin", b->folder,
             b->store->token, (unsigned long long)b->part.id.epoch);
    fixture_patch(path, 100, '?');
    assert_true(fails(b, DIAG_CHECKPOINT_DAMAGED));
}

/* Of parts that did not come whole nothing stays for ever: neither checkpoints, nor tables, nor names. */
static void test_leftovers(void **state)
{
    (void)state;
    struct both b;
    begin(&b);
    set_table(&b, "a", "first");
    put(&b, 1, true);
    bring(&b);
    set_table(&b, "b", "second");
    put(&b, 2, true);
    put(&b, 3, false);
    spoil(&b);
    assert_true(is_there(&b, "gen-000001/ckpt-000000000002")); /* for the next time */
    put(&b, 4, true);
    spoil(&b);
    assert_false(is_there(&b, "gen-000001/ckpt-000000000002")); /* which has come without it */
    assert_true(is_there(&b, "gen-000001/ckpt-000000000001"));  /* the part before */
    put(&b, 5, true);
    b.part.digest[0] ^= 1;
    assert_true(fails(&b, DIAG_STORE_DAMAGED)); /* all of it has come, and is not what the head names */
    assert_true(is_there(&b, "tables/b"));
    set_table(&b, "b", NULL);
    put(&b, 6, true);
    bring(&b);
    has(&b, "1-6", RECORDS);
    assert_true(is_there(&b, "tables/a") && !is_there(&b, "tables/b"));
    set_table(&b, "a", NULL);
    put(&b, 7, false);
    begin_again(&b); /* which does not know the part before */
    bring(&b);
    assert_false(is_there(&b, "tables/a"));
    end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comes_once),      cmocka_unit_test(test_damage),
        cmocka_unit_test(test_room_and_holder), cmocka_unit_test(test_databases),
        cmocka_unit_test(test_leftovers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
