/* Records of a checkpoint and bytes of a cut that were damaged, cut off, left out or moved: refused with a message, or
 * taken; a state that was taken can be looked through, changed and saved. */
#include "learners/tables/records.h"
#include "stored_rig.h"

enum { DENSE = 200, FLIPS = 2000, CUT_FLIPS = 1500 };

/* A copy of exact length, so that ASan sees reads behind it. */
static struct byte_buffer exact(const char *data, size_t length)
{
    struct byte_buffer copy = {.data = malloc(MAX(length, 1)), .length = length, .capacity = length};
    assert_non_null(copy.data);
    if (length > 0)
        memcpy(copy.data, data, length);
    return copy;
}

static struct snapshot_writer copy_of_writer(const struct snapshot_writer *from)
{
    struct snapshot_writer copy = {.count = from->count, .room = from->count};
    copy.records = calloc(from->count, sizeof(*copy.records));
    assert_non_null(copy.records);
    for (uint32_t i = 0; i < from->count; i++)
        copy.records[i] = exact(from->records[i].data, from->records[i].length);
    return copy;
}

/* A base and a delta of a world with cold rows. */
static struct world *make_chain(struct snapshot_writer chain[2])
{
    struct world *w = world_new(true, DENSE);
    for (int i = 0; i < 2; i++) {
        live(w);
        chain[i] = (struct snapshot_writer){.is_base = i == 0};
        assert_true(stored_snapshot(&w->stored, &chain[i]));
        assert_true(chain[i].write(chain[i].argument, &chain[i]));
        chain[i].done(chain[i].argument, true);
    }
    return w;
}

/* Whether the chain was taken; then the state is used. */
static bool is_taken(const struct snapshot_writer *chain, uint32_t count)
{
    struct world *w = world_new(true, DENSE);
    bool is_ok = restore(w, chain, count);
    if (is_ok && has_good_histories(w)) {
        struct byte_buffer out = dump(w, false);
        buffer_free(&out);
        live(w);
        struct snapshot_writer writer = {.is_base = true};
        assert_true(stored_snapshot(&w->stored, &writer));
        assert_true(writer.write(writer.argument, &writer));
        writer.done(writer.argument, true);
        writer_free(&writer);
    }
    world_free(w);
    return is_ok;
}

static void test_flipped_records(void **state)
{
    (void)state;
    struct snapshot_writer good[2];
    struct world *w = make_chain(good);
    uint32_t refused = 0, taken = 0;
    assert_true(is_taken(good, 2));
    for (int i = 0; i < FLIPS; i++) {
        struct snapshot_writer chain[2] = {copy_of_writer(&good[0]), copy_of_writer(&good[1])};
        for (uint64_t flips = 1 + draw(w, 2); flips > 0; flips--) {
            struct snapshot_writer *part = &chain[draw(w, 2)];
            struct byte_buffer *record = &part->records[draw(w, part->count)];
            size_t at = draw(w, draw(w, 2) == 0 ? MIN(record->length, (size_t)40) : record->length);
            record->data[at] = (char)(record->data[at] ^ 1 << draw(w, 8));
        }
        if (is_taken(chain, 2))
            taken++;
        else
            refused++;
        writer_free(&chain[0]);
        writer_free(&chain[1]);
    }
    assert_true(refused > FLIPS / 4 && taken > FLIPS / 20);
    writer_free(&good[0]);
    writer_free(&good[1]);
    world_free(w);
}

/* Each record of the barrier that is cut off, left out, or comes twice is refused. Of rows' records, whose number is not
 * known, only those that end inside an item are. */
static void test_records_missing(void **state)
{
    (void)state;
    struct snapshot_writer good[2];
    struct world *w = make_chain(good);
    uint32_t at_barrier = 1 + TABLES / 2 + 5; /* a head, totals of tables with stores, parts */
    for (uint32_t at = 0; at < good[1].count; at++) {
        size_t length = good[1].records[at].length;
        bool is_row = at >= at_barrier;
        for (size_t left = 0; left < length; left += 1 + (left > 60 ? draw(w, length) : 0)) {
            struct snapshot_writer chain[2] = {copy_of_writer(&good[0]), copy_of_writer(&good[1])};
            struct record_head head;
            memcpy(&head, good[1].records[at].data, sizeof(head));
            chain[1].records[at] =
                (buffer_free(&chain[1].records[at]), exact(good[1].records[at].data, left));
            bool is_short = left < sizeof(head) || (is_row && (left - sizeof(head)) % head.item_bytes != 0);
            if (is_short)
                assert_false(is_taken(chain, 2));
            else
                (void)is_taken(chain, 2);
            writer_free(&chain[0]);
            writer_free(&chain[1]);
        }
        if (is_row)
            continue;
        struct snapshot_writer chain[2] = {copy_of_writer(&good[0]), copy_of_writer(&good[1])};
        buffer_free(&chain[1].records[at]);
        for (uint32_t i = at; i + 1 < chain[1].count; i++)
            chain[1].records[i] = chain[1].records[i + 1];
        chain[1].count--;
        assert_false(is_taken(chain, 2)); /* left out */
        writer_free(&chain[1]);
        chain[1] = copy_of_writer(&good[1]);
        chain[1].records = realloc(chain[1].records, (chain[1].count + 1) * sizeof(*chain[1].records));
        for (uint32_t i = chain[1].count++; i > at; i--)
            chain[1].records[i] = chain[1].records[i - 1];
        chain[1].records[at] = exact(good[1].records[at].data, good[1].records[at].length);
        bool is_total = good[1].records[at].data[0] == 'T';
        assert_int_equal(is_taken(chain, 2), is_total); /* twice; a total says the same twice */
        writer_free(&chain[0]);
        writer_free(&chain[1]);
    }
    assert_false(is_taken(good, 0));
    struct snapshot_writer twice[2] = {good[0], good[0]};
    assert_false(is_taken(twice, 2)); /* an epoch comes after the one before it */
    writer_free(&good[0]);
    writer_free(&good[1]);
    world_free(w);
}

/* Each byte of the heads of records, changed; and rows before the parts. */
static void test_bad_heads(void **state)
{
    (void)state;
    struct snapshot_writer good[2];
    struct world *w = make_chain(good);
    for (uint32_t at = 0; at < good[1].count; at++) {
        char *head = good[1].records[at].data;
        bool is_row = head[0] == 'R' || head[0] == 'D' || head[0] == 'C', is_total = head[0] == 'T';
        for (size_t byte = 0; byte < sizeof(struct record_head); byte++) {
            bool is_used = byte < 2 || is_row || (is_total && byte != 3) || (head[0] == 'Q' && byte == 2);
            char before = head[byte];
            head[byte] = (char)(before ^ 0x40);
            if (is_used)
                assert_false(is_taken(good, 2));
            head[byte] = before;
        }
        if (!is_row)
            continue;
        head[3] ^= 1;
        assert_false(is_taken(good, 2)); /* of another shard that may exist */
        head[3] ^= 1;
        struct byte_buffer row = good[1].records[at];
        memmove(&good[1].records[2], &good[1].records[1], (at - 1) * sizeof(row));
        good[1].records[1] = row;
        assert_false(is_taken(good, 2)); /* behind the checkpoint's head */
        memmove(&good[1].records[1], &good[1].records[2], (at - 1) * sizeof(row));
        good[1].records[at] = row;
    }
    assert_true(is_taken(good, 2));
    writer_free(&good[0]);
    writer_free(&good[1]);
    world_free(w);
}

/* A checkpoint of a learner with other tables, other parts, without stores. */
static void test_other_learners(void **state)
{
    (void)state;
    struct snapshot_writer good[2];
    struct world *w = make_chain(good), *other = world_new(false, DENSE);
    assert_false(restore(other, good, 2)); /* there are no stores for cold rows */
    world_free(other);
    other = world_new(true, DENSE);
    other->stored.tables_count--;
    assert_false(restore(other, good, 2));
    world_free(other);
    other = world_new(true, DENSE);
    other->stored.parts_count--;
    assert_false(restore(other, good, 2));
    world_free(other);
    other = world_new(true, DENSE);
    other->stored.parts[2].name = "nothin";
    assert_false(restore(other, good, 2));
    world_free(other);
    other = world_new(true, DENSE + 1); /* load refuses */
    assert_false(restore(other, good, 2));
    world_free(other);
    writer_free(&good[0]);
    writer_free(&good[1]);
    world_free(w);
}

static bool takes(const struct snapshot_writer *base, const char *bytes, size_t length)
{
    struct world *follower = world_new(true, DENSE);
    struct byte_buffer copy = exact(bytes, length);
    assert_true(restore(follower, base, 1));
    bool is_ok = stored_take_cut(&follower->stored, (struct str){copy.data, length}, TABLE_STEP_NONE);
    if (is_ok && has_good_histories(follower)) {
        struct byte_buffer out = dump(follower, true);
        buffer_free(&out);
    }
    buffer_free(&copy);
    world_free(follower);
    return is_ok;
}

static void test_bad_cuts(void **state)
{
    (void)state;
    struct world *w = world_new(true, DENSE);
    struct snapshot_writer base = {.is_base = true};
    struct byte_buffer cut = {0};
    uint32_t refused = 0, taken = 0;
    live(w);
    assert_true(stored_cut_note(&w->stored, true));
    assert_true(stored_snapshot(&w->stored, &base));
    assert_true(base.write(base.argument, &base));
    base.done(base.argument, true);
    live(w);
    assert_true(stored_cut(&w->stored, &cut));
    assert_true(takes(&base, cut.data, cut.length));
    for (size_t length = 0; length < cut.length; length += 1 + draw(w, 200))
        assert_false(takes(&base, cut.data, length));
    for (int i = 0; i < CUT_FLIPS; i++) {
        size_t at = draw(w, draw(w, 2) == 0 ? 200 : cut.length);
        char before = cut.data[at];
        cut.data[at] = (char)(before ^ 1 << draw(w, 8));
        if (takes(&base, cut.data, cut.length))
            taken++;
        else
            refused++;
        cut.data[at] = before;
    }
    assert_true(refused > CUT_FLIPS / 4 && taken > CUT_FLIPS / 20);
    buffer_append(&cut, "", 1);
    assert_false(takes(&base, cut.data, cut.length));
    buffer_free(&cut);
    writer_free(&base);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flipped_records), cmocka_unit_test(test_records_missing),
        cmocka_unit_test(test_bad_heads),       cmocka_unit_test(test_other_learners),
        cmocka_unit_test(test_bad_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
