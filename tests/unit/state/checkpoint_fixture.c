#include "checkpoint_fixture.h"

#include "core/key.h"
#include "core/order_log.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const parts[] = {"op/1/0", "op/1/1", "op/12/0"};

void fixture_init(struct fixture *f)
{
    *f = (struct fixture){.dir = NULL};
    temporary_make(f->path);
    diag_list_init(&f->diags, &f->arena);
}

void fixture_free(struct fixture *f)
{
    checkpoint_dir_close(f->dir);
    arena_free(&f->arena);
    temporary_remove(f->path);
}

void fixture_open(struct fixture *f, bool take_over)
{
    f->dir = checkpoint_dir_open(&(struct checkpoint_dir_options){.path = f->path,
                                                                  .take_over = take_over,
                                                                  .fingerprint = STR("job"),
                                                                  .profile = STR("cpu"),
                                                                  .keep = {.last = 3}},
                                 &f->diags);
    assert_non_null(f->dir);
}

static bool put_records(struct snapshot_writer *writer, uint64_t epoch, uint32_t first, uint32_t limit)
{
    bool is_good = true;
    for (uint32_t i = first; i < limit; i++) {
        char text[64];
        int length = snprintf(text, sizeof(text), "record %u of epoch %llu", i, (unsigned long long)epoch);
        is_good &= snapshot_put(writer, i * 60 + 7, text, (size_t)length);
    }
    return is_good;
}

static bool deferred_write(void *argument, struct snapshot_writer *writer)
{
    (void)argument;
    return put_records(writer, snapshot_epoch(writer), FIXTURE_RECORDS / 2, FIXTURE_RECORDS);
}

static void deferred_done(void *argument, bool is_published)
{
    struct fixture *f = argument;
    f->done_published += is_published;
    f->done_abandoned += !is_published;
}

static bool write_order(struct fixture *f, struct checkpoint_writer *writer, uint64_t epoch, uint64_t first,
                        uint64_t next)
{
    struct byte_buffer partitions = {0}, entries = {0}, text = {0};
    struct order_partition partition = {0, STR("source"), STR("in.jsonl"), first * 100, 0, 0, 0};
    order_put_partition(&partitions, ORDER_PARTITION, &partition);
    for (uint64_t number = first; number < next; number++) {
        const struct order_slice slice = {
            .records = 100, .time = (int64_t)number, .time_before = (int64_t)MAX(number, 1) - 1};
        order_put_slice(&entries, &slice);
        order_put(&entries, ORDER_MICRO_BATCH);
    }
    struct order_head head = {.epoch = epoch, .first = first, .next = next};
    order_seal(&head, (struct str){partitions.data, partitions.length},
               (struct str){entries.data, entries.length}, (struct str){"", 0}, next - first,
               (next - first) * 100, &text);
    bool is_good = checkpoint_write_order(writer, (struct str){text.data, text.length}, &f->diags);
    buffer_free(&partitions);
    buffer_free(&entries);
    buffer_free(&text);
    return is_good;
}

bool fixture_write(struct fixture *f, uint64_t epoch, bool is_base)
{
    return fixture_write_numbers(f, epoch, is_base, (epoch - 1) * 10, epoch * 10);
}

bool fixture_write_numbers(struct fixture *f, uint64_t epoch, bool is_base, uint64_t first, uint64_t next)
{
    struct checkpoint_writer *writer = checkpoint_begin(f->dir, epoch, is_base, &f->diags);
    if (writer == NULL)
        return false;
    for (size_t i = 0; i < ARRAY_COUNT(parts); i++) {
        struct snapshot_writer *part = checkpoint_part(writer, parts[i]);
        assert_true(snapshot_is_base(part) == is_base);
        assert_true(snapshot_put(part, SNAPSHOT_GLOBAL, "global", 6));
        assert_true(put_records(part, epoch, 0, FIXTURE_RECORDS / 2));
        snapshot_defer(part, deferred_write, i == 0 ? deferred_done : NULL, f);
    }
    if (!checkpoint_write(writer, 0, &f->diags) || !write_order(f, writer, epoch, first, next)) {
        checkpoint_abandon(writer);
        return false;
    }
    struct checkpoint_info info = {.sources = STR("positions"), .notes = STR("notes")};
    return checkpoint_publish(writer, &info, &f->diags);
}

uint32_t fixture_read(struct fixture *f, struct checkpoint *checkpoint, const char *prefix,
                      const struct group_set *groups)
{
    struct snapshot_reader *reader = checkpoint_reader(checkpoint, prefix, groups, &f->diags);
    uint32_t group, records = 0;
    struct str data;
    unsigned long long last_epoch = 0;
    while (snapshot_get(reader, &group, &data)) {
        records++;
        if (group == SNAPSHOT_GLOBAL) {
            assert_true(str_is(data, "global"));
            continue;
        }
        char text[64];
        unsigned number;
        unsigned long long epoch;
        snprintf(text, sizeof(text), "%.*s", STR_ARGS(data));
        assert_int_equal(sscanf(text, "record %u of epoch %llu", &number, &epoch), 2);
        assert_int_equal(group, number * 60 + 7);
        assert_true(epoch >= last_epoch); /* base, then deltas */
        assert_true(group_set_has(groups, group));
        last_epoch = epoch;
    }
    assert_true(checkpoint_reader_close(reader));
    return records;
}

const struct diag *fixture_diag(const struct fixture *f, enum diag_code code)
{
    for (unsigned i = 0; i < f->diags.count; i++)
        if (f->diags.items[i].code == code)
            return &f->diags.items[i];
    return NULL;
}

void fixture_patch(const char *path, size_t offset, char byte)
{
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0 && pwrite(fd, &byte, 1, (off_t)offset) == 1);
    close(fd);
}

void fixture_write_file(const char *path, const char *text, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(fd >= 0 && write(fd, text, bytes) == (ssize_t)bytes);
    close(fd);
}

void fixture_set_time(struct fixture *f, uint64_t epoch, int64_t created_us)
{
    struct manifest manifest;
    const char *why;
    char path[4096];
    assert_int_equal(manifest_read(f->dir, (struct checkpoint_id){1, epoch}, &f->arena, &manifest, &why),
                     DECODE_GOOD);
    manifest.info.created_us = created_us;
    struct byte_buffer text = {0};
    manifest_encode(&manifest, &text);
    path_checkpoint(f->dir, (struct checkpoint_id){1, epoch}, path);
    strcat(path, "/MANIFEST");
    fixture_write_file(path, text.data, text.length);
    buffer_free(&text);
}
