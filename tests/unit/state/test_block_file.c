/* A file that is written in blocks has the right bytes and digests, whatever the sizes of the pieces, also if
 * the file system refuses to write past the page cache in the middle of a block. */
#include "state/block_file.h"

#include "core/os.h"
#include "state/checkpoint_files.h"
#include "unit/support/random.h"
#include "unit/support/temporary.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static const size_t sizes[] = {0,
                               1,
                               4095,
                               CHECKPOINT_CHUNK_BYTES - 1,
                               CHECKPOINT_CHUNK_BYTES,
                               CHECKPOINT_CHUNK_BYTES + 1,
                               3 * CHECKPOINT_CHUNK_BYTES + 4096};

struct fixture {
    char folder[TEMPORARY_PATH_BYTES], path[TEMPORARY_PATH_BYTES + 16], copy[TEMPORARY_PATH_BYTES + 16];
    char *data;
    struct test_random random;
};

static void set_rule(const char *rule)
{
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    setenv("LEAT_FAILPOINTS", rule, 1);
    assert_true(failpoints_init(&diags));
    arena_free(&arena);
}

static void begin(struct fixture *f)
{
    temporary_make(f->folder);
    snprintf(f->path, sizeof(f->path), "%s/a", f->folder);
    snprintf(f->copy, sizeof(f->copy), "%s/b", f->folder);
    f->random = (struct test_random){11};
    size_t bytes = sizes[ARRAY_COUNT(sizes) - 1];
    f->data = malloc(bytes);
    assert_non_null(f->data);
    for (size_t i = 0; i < bytes; i++)
        f->data[i] = (char)random_below(&f->random, 256);
}

static void end(struct fixture *f)
{
    free(f->data);
    temporary_remove(f->folder);
}

/* Writes the first `bytes` of the data in pieces of random length. */
static int write_pieces(struct fixture *f, struct block_file *file, size_t bytes)
{
    assert_int_equal(block_file_create(file, f->path), 0);
    for (size_t at = 0; at < bytes;) {
        size_t wanted = 1 + random_below(&f->random, 2 * CHECKPOINT_CHUNK_BYTES),
               piece = MIN(wanted, bytes - at);
        int error = block_file_append(file, f->data + at, piece);
        if (error != 0)
            return error;
        at += piece;
    }
    return block_file_end(file);
}

static void check_file(const struct fixture *f, const char *path, size_t bytes, uint64_t told,
                       const uint8_t *digests)
{
    char *found;
    size_t found_bytes;
    assert_int_equal(told, bytes);
    assert_int_equal(os_read_file(path, SIZE_MAX / 2, &found, &found_bytes), 0);
    assert_int_equal(found_bytes, bytes);
    assert_int_equal(memcmp(found, f->data, bytes), 0);
    free(found);
    uint8_t *expected;
    uint64_t read_bytes;
    assert_int_equal(digest_file(path, &read_bytes, &expected), 0);
    assert_memory_equal(digests, expected, digest_count(bytes) * DIGEST_BYTES);
    free(expected);
}

static void test_bytes_and_digests(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        struct block_file file;
        assert_int_equal(write_pieces(&f, &file, sizes[i]), 0);
        check_file(&f, f.path, sizes[i], file.bytes, (uint8_t *)file.digests.data);
        block_file_close(&file);
        uint64_t bytes;
        uint8_t *digests;
        assert_int_equal(block_file_copy(f.path, f.copy, &bytes, &digests), 0);
        check_file(&f, f.copy, sizes[i], bytes, digests);
        free(digests);
        assert_int_equal(remove(f.path), 0);
        assert_int_equal(remove(f.copy), 0);
    }
    end(&f);
}

static void test_refused(void **state)
{
    (void)state;
    struct fixture f;
    struct block_file file;
    begin(&f);
    size_t bytes = 2 * CHECKPOINT_CHUNK_BYTES + 17;
    /* The second write fails as if the file system refused to write past the page cache. */
    set_rule("ckpt.write=error:EINVAL@2");
    int error = write_pieces(&f, &file, bytes);
    if (error == 0)
        check_file(&f, f.path, bytes, file.bytes, (uint8_t *)file.digests.data);
    else
        assert_true(error == EINVAL && !file.is_direct); /* it wrote through the page cache from the start */
    block_file_close(&file);
    assert_int_equal(remove(f.path), 0);
    set_rule("ckpt.write=error:ENOSPC");
    assert_int_equal(write_pieces(&f, &file, bytes), ENOSPC);
    block_file_close(&file);
    uint64_t copied;
    uint8_t *digests;
    assert_int_equal(block_file_copy(f.path, f.path, &copied, &digests), EEXIST);
    free(digests);
    assert_int_equal(block_file_copy("/nowhere", f.copy, &copied, &digests), ENOENT);
    free(digests);
    set_rule("ckpt.write=sleep:0");
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bytes_and_digests),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
