/* Pieces of checkpoints: that each has a key group of its own where that is worth it, lies where the MANIFEST says, and has its
 * digest; and what a MANIFEST may not say of them. */
#include "state_run.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { LEAST_BYTES = 4 << 10 }; /* below, a piece takes in other groups */

/* Entries that change while they are written, and records in the order of time, come by key group all the same. */
static void test_pieces_have_a_group(void **state)
{
    (void)state;
    struct run r;
    struct manifest manifest;
    run_begin(&r, PLENTY, ENTRIES);
    run_change(&r, 1, 1);
    run_publish(&r, 1, true);
    run_change(&r, 3, 2);
    run_publish(&r, 2, false);
    for (uint64_t epoch = 1; epoch <= 2; epoch++) {
        run_read_manifest(&r, epoch, &manifest);
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
    run_end(&r);
}

/* --- Damage --- */

static void test_wrong_digest(void **state)
{
    (void)state;
    struct run r;
    struct manifest manifest;
    run_begin(&r, PLENTY, ENTRIES);
    run_change(&r, 1, 1);
    run_publish(&r, 1, true);
    run_read_manifest(&r, 1, &manifest);
    uint64_t last = manifest.pieces_count - 1;
    uint8_t *digests = (uint8_t *)(uintptr_t)manifest.piece_digests;
    digests[last * DIGEST_BYTES + 3] ^= 1;
    run_write_manifest(&r, &manifest);
    assert_false(checkpoint_verify(r.f.dir, (struct checkpoint_id){1, 1}, &r.f.diags));
    const struct diag *diag = fixture_diag(&r.f, DIAG_CHECKPOINT_DAMAGED);
    assert_non_null(diag);
    assert_non_null(strstr(diag->path, "state.bin"));
    assert_int_equal(diag->offset, manifest_piece(&manifest, last).offset);
    run_end(&r);
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
    run_begin(&r, PLENTY, ENTRIES);
    run_change(&r, 1, 1);
    run_publish(&r, 1, true);
    run_read_manifest(&r, 1, &manifest);
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
    run_end(&r);
}

/* Joins the run's first checkpoint, as the one part of a head, and returns how many records it has. */
static uint32_t count_joined(struct run *r)
{
    struct checkpoint_joint joint = {.directory = r->f.path, .id = {1, 1}};
    uint64_t bytes;
    uint32_t group, records = 0;
    struct str data;
    assert_true(checkpoint_digest(r->f.dir, joint.id, joint.digest, &bytes, &r->f.diags));
    struct checkpoint *joined = checkpoint_join(&joint, 1, STR("job"), &r->f.diags);
    assert_non_null(joined);
    struct snapshot_reader *reader = checkpoint_reader(joined, "", NULL, &r->f.diags);
    while (snapshot_get(reader, &group, &data))
        records++;
    assert_true(checkpoint_reader_close(reader));
    checkpoint_close(joined);
    return records;
}

/* A MANIFEST of before, with 15 fields, is read; it has pieces without digests. */
static void test_without_digests(void **state)
{
    (void)state;
    struct run r;
    struct manifest manifest, old;
    struct byte_buffer text = {0};
    const char *why;
    run_begin(&r, PLENTY, ENTRIES);
    run_change(&r, 1, 1);
    run_publish(&r, 1, true);
    run_read_manifest(&r, 1, &manifest);
    uint32_t records = count_joined(&r);
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
    run_write_manifest(&r, &old);
    assert_true(checkpoint_verify(r.f.dir, (struct checkpoint_id){1, 1}, &r.f.diags));
    assert_true(records > ENTRIES);
    assert_int_equal(count_joined(&r), records);
    buffer_free(&text);
    run_end(&r);
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
