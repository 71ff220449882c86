/* Pieces of checkpoints: that each has a key group of its own where that is worth it, lies where the MANIFEST says, and has its
 * digest; and what a MANIFEST may not say of them. */
#include "state/checkpoint_files.h"
#include "state/state.h"

#include "checkpoint_fixture.h"
#include "core/mem.h"
#include "core/os.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum {
    ENTRIES = 40000,
    VALUE_BYTES = 100,
    RECORDS = 40000,
    ROUND = 100,
    LEAST_BYTES = 4 << 10, /* below, a piece takes in other groups */
    BUCKET_US = 1000
};

/* A run with a table and a time queue. */
struct run {
    struct fixture f;
    struct state_store *store;
    struct keyed_table *table;
    struct time_queue *queue;
};

static struct key key_of(uint32_t i)
{
    return (struct key){(uint64_t)i * 77 + 1, (uint64_t)1 << 56};
}

static void begin(struct run *r)
{
    *r = (struct run){.store = NULL};
    fixture_init(&r->f);
    fixture_open(&r->f, false);
    assert_true(checkpoint_start_generation(r->f.dir, NULL, &r->f.diags));
    r->store = state_store_open(NULL, 0, false, &r->f.diags);
    r->table = keyed_table_new(&(struct keyed_options){r->store, 1, 'k', 64 << 20, NULL});
    r->queue = time_queue_new(&(struct time_queue_options){r->store, 2, 'q', 64 << 20, BUCKET_US, NULL});
}

static void end(struct run *r)
{
    keyed_table_free(r->table);
    time_queue_free(r->queue);
    state_store_close(r->store);
    fixture_free(&r->f);
}

/* Writes every `step`th entry, and pushes as many records. */
static void change(struct run *r, uint32_t step, char seed)
{
    char value[VALUE_BYTES];
    memset(value, seed, sizeof(value));
    for (uint32_t i = 0; i < ENTRIES;) {
        struct key keys[ROUND];
        uint64_t hashes[ROUND];
        struct keyed_slot *slots[ROUND];
        uint32_t count = 0;
        for (; count < ROUND && i < ENTRIES; count++, i += step) {
            keys[count] = key_of(i);
            hashes[count] = key_hash(keys[count]);
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
    change(r, 2,
           (char)epoch); /* while the checkpoint is written: entries are saved in the order of the changes */
    assert_true(checkpoint_write(writer, 0, &r->f.diags));
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
    begin(&r);
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
    begin(&r);
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
    begin(&r);
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
    begin(&r);
    change(&r, 1, 1);
    publish(&r, 1, true);
    read_manifest(&r, 1, &manifest);
    manifest.piece_digests = NULL;
    manifest_encode(&manifest, &text);
    /* The head of an array of 15 is one byte instead of three; the last field, which is empty, has two. */
    const size_t magic = 8, head = 3, last = 2;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_have_a_group),
        cmocka_unit_test(test_wrong_digest),
        cmocka_unit_test(test_wrong_pieces),
        cmocka_unit_test(test_without_digests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
