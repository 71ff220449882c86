/* Followers, restored from a checkpoint, take cuts of a learner that goes on learning, in random pieces, while
 * checkpoints begin and end: after each cut a follower predicts random requests bit for bit as the learner does. */
#include "learner_sets.h"

#include "learners/tables/cut.h"

#include <malloc.h>

enum { PIECE = 90, ROUNDS = 60, ASKED = 60, FOLLOWERS = 3, CUTS_MAX = ROUNDS, EVICTED = 40 };

static uint64_t seed;
static uint64_t draw(uint64_t below)
{
    return num_mix(++seed) % below;
}

/* --- Requests --- */

struct answers {
    double values[LABELS][ROWS];
    bool are_null[LABELS][ROWS];
};
static struct answers *taken; /* where answers go */

void operator_emit(struct operator_context *context, uint32_t output, struct batch *batch)
{
    for (uint32_t l = 0; taken != NULL && output == 0 && l + COLUMNS < batch->schema->count; l++) {
        const struct column *column = &batch->columns[COLUMNS + l];
        for (uint32_t i = 0; i < batch->selected; i++) {
            uint32_t row = batch_row(batch, i);
            taken->values[l][row] = column->floats[row];
            taken->are_null[l][row] = !column_is_valid(column, row);
        }
    }
    (void)context;
    batch_release(batch);
}

void operator_reject(struct operator_context *context, const struct batch *batch, uint32_t row,
                     const char *reason)
{
    (void)context, (void)batch;
    fail_msg("row %u is rejected: %s", row, reason);
}

static struct batch *make_events(struct bench *t, uint64_t number)
{
    struct batch *batch = make_batch(t->pool, t->bind.inputs[0].schema, number);
    for (uint32_t i = 11; i < ROWS; i += 97)
        batch->columns[COLUMN_PRICE].floats[i] = (double)INFINITY;
    for (uint32_t i = 5; i < ROWS; i += 61)
        batch_set_null(batch, &batch->columns[COLUMN_WEIGHT], i);
    return batch;
}

static void select_rows(struct batch *batch, uint32_t from, uint32_t count)
{
    static uint16_t rows[ROWS];
    for (uint32_t i = 0; i < count; i++)
        rows[i] = (uint16_t)(from + i);
    batch->sel = rows, batch->selected = count;
}

static void ask(struct bench *t, const struct operator_kind *kind, uint64_t number, uint32_t from,
                struct answers *answers)
{
    struct batch *batch = make_events(t, number);
    select_rows(batch, from, ASKED);
    memset(answers, 0, sizeof(*answers));
    taken = answers;
    kind->read(&t->context, 0, batch);
    taken = NULL;
    batch_release(batch);
}

static uint32_t compared, differing;

/* Requests like the last events, and like some still to come. */
static void compare(const struct operator_kind *kind, struct bench *t, struct bench *follower,
                    uint64_t number)
{
    static struct answers own, its;
    for (uint64_t n = number; n < number + 2; n++) {
        uint32_t from = (uint32_t)draw(ROWS - ASKED);
        ask(t, kind, n, from, &own);
        ask(follower, kind, n, from, &its);
        for (uint32_t l = 0; l < t->learner.labels_count; l++)
            for (uint32_t i = from; i < from + ASKED; i++) {
                if (own.are_null[l][i] != its.are_null[l][i] ||
                    memcmp(&own.values[l][i], &its.values[l][i], sizeof(double)) != 0)
                    fail_msg("%s, %s, seed %llu: row %u of batch %llu: %.17g, the follower says %.17g",
                             kind->name, now->name, (unsigned long long)seed, i, (unsigned long long)n,
                             own.values[l][i], its.values[l][i]);
                compared++;
                differing += own.values[l][i] != own.values[l][from];
            }
    }
}

/* --- The trainer, its checkpoints and its followers --- */

struct follower {
    struct bench bench;
    bool is_open;
};

struct run {
    const struct operator_kind *kind;
    struct bench trainer;
    uint64_t rows; /* events learned so far */
    struct byte_buffer cuts[CUTS_MAX];
    uint32_t cuts_count;
    /* The chain of published checkpoints, base first, and the one in progress. */
    struct snapshot_writer chain[3], open;
    uint32_t chained, first_cut,
        open_first_cut; /* first_cut: the first one after the newest checkpoint's barrier */
    bool is_open;
    uint64_t epoch;
    /* Copies of the trainer's stores as of the newest published checkpoint. */
    struct store *stores[MODEL_FIELDS_MAX];
    struct follower followers[FOLLOWERS];
};

static struct model *model_of(struct bench *t)
{
    return ((struct learner_config *)t->context.config)->state->model;
}

static uint32_t fields_of(struct bench *t)
{
    return ((struct learner_config *)t->context.config)->inputs.sparse_count;
}

static void learn(struct run *r)
{
    uint32_t at = (uint32_t)(r->rows % ROWS), count = 1 + (uint32_t)draw(PIECE);
    count = MIN(count, ROWS - at);
    struct batch *batch = make_events(&r->trainer, r->rows / ROWS);
    select_rows(batch, at, count);
    r->trainer.context.counters.in += count;
    r->kind->process(&r->trainer.context, 0, batch);
    r->rows += count;
    if (draw(3) == 0)
        r->kind->on_watermark(&r->trainer.context, (int64_t)r->rows * US_PER_SECOND);
    batch_release(batch);
    if (now->is_cold && draw(2) == 0)
        evict(&r->trainer, EVICTED);
}

static void begin_checkpoint(struct run *r)
{
    r->open = checkpoint(&r->trainer, r->kind, ++r->epoch, r->chained == 0 || r->chained == 3);
    r->open_first_cut = r->cuts_count;
    r->is_open = true;
}

static void free_chain(struct run *r)
{
    while (r->chained > 0)
        checkpoint_free(&r->chain[--r->chained]);
}

static void keep_stores(struct run *r)
{
    for (uint32_t f = 0; f < fields_of(&r->trainer) && now->is_cold; f++) {
        struct store *own = model_table(model_of(&r->trainer), f)->cold->store->self;
        if (r->stores[f] == NULL) {
            r->stores[f] = calloc(1, sizeof(struct store));
            r->stores[f]->row_bytes = own->row_bytes;
            r->stores[f]->rows = calloc(STORE_SLOTS, own->row_bytes);
        }
        store_fill(r->stores[f], own->copy);
    }
}

static void end_checkpoint(struct run *r, bool is_published)
{
    finish(&r->open, is_published);
    r->is_open = false;
    if (!is_published) {
        checkpoint_free(&r->open);
        return;
    }
    if (r->open.is_base)
        free_chain(r);
    r->chain[r->chained++] = r->open;
    r->first_cut = r->open_first_cut;
    keep_stores(r);
}

static void close_follower(struct run *r, struct follower *f)
{
    if (f->is_open)
        stop(&f->bench, r->kind);
    f->is_open = false;
}

static void restore_follower(struct run *r, struct follower *f)
{
    struct snapshot_reader from = {.part = 0};
    close_follower(r, f);
    for (uint32_t i = 0; i < r->chained; i++)
        from.parts[i] = &r->chain[i];
    memcpy(inherited, r->stores, sizeof(inherited));
    opens_to_read = true;
    start(&f->bench, r->kind);
    assert_true(r->kind->restore(&f->bench.context, &from));
    opens_to_read = false;
    memset(inherited, 0, sizeof(inherited));
    f->is_open = true;
}

static struct str cut_at(const struct run *r, uint32_t number)
{
    return (struct str){r->cuts[number].data, r->cuts[number].length};
}

/* A new follower takes the cuts since its checkpoint, and perhaps one more before them. */
static void follow(struct run *r, struct follower *f)
{
    restore_follower(r, f);
    uint32_t first = r->first_cut - (r->first_cut > 0 && draw(2) == 0);
    for (uint32_t i = first; i < r->cuts_count; i++)
        assert_true(r->kind->take_cut(&f->bench.context, cut_at(r, i)));
}

static bool has_pending(struct run *r)
{
    return model_of(&r->trainer)->pending > 0;
}

static uint32_t cuts_with_pending, cuts_in_checkpoints, moved_rows;

static void cut(struct run *r)
{
    cuts_with_pending += has_pending(r) && r->trainer.context.config != NULL;
    cuts_in_checkpoints += r->is_open;
    for (uint32_t f = 0; f < fields_of(&r->trainer); f++)
        moved_rows += model_table(model_of(&r->trainer), f)->cut->moved.length > 0;
    assert_true(r->kind->cut(&r->trainer.context, &r->cuts[r->cuts_count]));
    for (size_t i = 0; i < FOLLOWERS; i++)
        if (r->followers[i].is_open) {
            assert_true(r->kind->take_cut(&r->followers[i].bench.context, cut_at(r, r->cuts_count)));
            if (draw(8) == 0) /* twice: the same again */
                assert_true(r->kind->take_cut(&r->followers[i].bench.context, cut_at(r, r->cuts_count)));
        }
    r->cuts_count++;
}

static void compare_followers(struct run *r)
{
    for (size_t i = 0; i < FOLLOWERS; i++)
        if (r->followers[i].is_open)
            compare(r->kind, &r->trainer, &r->followers[i].bench, r->rows / ROWS);
}

/* Live rows, without epochs, and counts of keys that wait. */
static void compare_tables(struct run *r, struct bench *follower)
{
    for (uint32_t f = 0; f < fields_of(follower); f++) {
        const struct table *a = model_table(model_of(&r->trainer), f),
                           *b = model_table(model_of(follower), f);
        if (now->is_cold) { /* where a row lies differs */
            assert_int_equal(table_rows(a), table_rows(b));
            continue;
        }
        size_t counts[2];
        struct table_row **rows[2] = {table_sorted(a, &counts[0]), table_sorted(b, &counts[1])};
        assert_int_equal(counts[0], counts[1]);
        for (size_t i = 0; i < counts[0]; i++) {
            const struct table_row *x = rows[0][i], *y = rows[1][i];
            assert_true(x->key == y->key && x->count == y->count && x->seen == y->seen);
            const char *of_x = (const char *)table_payload(rows[0][i]),
                       *of_y = (const char *)table_payload(rows[1][i]);
            assert_true(a->options.read_first + a->options.read_bytes > 0);
            assert_memory_equal(of_x, of_y, a->options.read_first);
            assert_memory_equal(of_x + a->options.read_at, of_y + a->options.read_at, a->options.read_bytes);
        }
        free(rows[0]);
        free(rows[1]);
        assert_int_equal(a->expired_before, b->expired_before);
        for (uint64_t i = 0; a->bucket_counts != NULL && i < a->buckets; i++)
            assert_int_equal(a->bucket_counts[i], b->bucket_counts[i]);
        if (a->sketch.counts != NULL)
            assert_memory_equal(a->sketch.counts, b->sketch.counts, sketch_blocks(&a->sketch) * SKETCH_BLOCK);
    }
}

static void begin_run(struct run *r, const struct operator_kind *kind)
{
    *r = (struct run){.kind = kind};
    adjust = set_options;
    cold_store = now->is_cold ? store_new : NULL;
    start(&r->trainer, kind);
    for (int i = 0; i < 4; i++)
        learn(r);
    assert_true(kind->cut_note(&r->trainer.context, true));
    begin_checkpoint(r);
    end_checkpoint(r, true);
    restore_follower(r, &r->followers[0]);
}

static void end_run(struct run *r)
{
    if (r->is_open)
        end_checkpoint(r, false);
    for (size_t i = 0; i < FOLLOWERS; i++)
        close_follower(r, &r->followers[i]);
    free_chain(r);
    for (uint32_t i = 0; i < r->cuts_count; i++)
        buffer_free(&r->cuts[i]);
    for (uint32_t f = 0; f < MODEL_FIELDS_MAX; f++)
        if (r->stores[f] != NULL)
            store_free(r->stores[f]);
    stop(&r->trainer, r->kind);
}

static void check(const struct operator_kind *kind)
{
    static struct run r;
    begin_run(&r, kind);
    for (int round = 0; round < ROUNDS; round++) {
        learn(&r);
        if (r.is_open && draw(3) == 0)
            end_checkpoint(&r, draw(3) > 0);
        else if (!r.is_open && draw(3) == 0)
            begin_checkpoint(&r);
        if (draw(2) == 0)
            continue;
        cut(&r);
        if (draw(6) == 0)
            follow(&r, &r.followers[1 + draw(FOLLOWERS - 1)]);
        compare_followers(&r);
    }
    cut(&r);
    for (size_t i = 0; i < FOLLOWERS; i++)
        if (r.followers[i].is_open)
            compare_tables(&r, &r.followers[i].bench);
    end_run(&r);
}

static void test_followers(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    const size_t each = 3; /* a sanitizer takes several times as long */
#else
    const size_t each = 1;
#endif
    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++)
        for (size_t s = k % each; s < ARRAY_COUNT(sets); s += each) {
            now = &sets[s];
            check(kinds[k]);
        }
    assert_true(compared > 0 && differing > compared / 2);
    assert_true(cuts_with_pending > 0 && cuts_in_checkpoints > 0 && moved_rows > 0);
}

/* --- Notes --- */

static const struct options *set_of(const char *name)
{
    for (size_t s = 0; s < ARRAY_COUNT(sets); s++)
        if (strcmp(sets[s].name, name) == 0)
            return &sets[s];
    fail_msg("no set %s", name);
    return NULL;
}

/* The notes end, and begin again: a follower of a checkpoint since then takes the cuts since then. */
static void test_notes(void **state)
{
    static struct run r;
    (void)state;
    now = set_of("admission");
    begin_run(&r, kinds[0]);
    const struct learner_config *c = r.trainer.context.config;
    learn(&r);
    cut(&r);
    uint32_t before = c->state->epoch;
    assert_true(r.kind->cut_note(&r.trainer.context, false));
    assert_null(model_table(c->state->model, 0)->cut);
    assert_int_equal(c->state->epoch, before);
    learn(&r);
    assert_true(r.kind->cut_note(&r.trainer.context, true));
    learn(&r);
    assert_true(r.kind->cut_note(&r.trainer.context, true)); /* forgets */
    for (uint32_t f = 0; f < fields_of(&r.trainer); f++) {
        const struct table_cut *notes = model_table(c->state->model, f)->cut;
        assert_int_equal(notes->changed.count + notes->added.count + notes->removed.count, 0);
    }
    close_follower(&r, &r.followers[0]); /* it lacks what was learned meanwhile, and so do cuts from before */
    buffer_free(&r.cuts[0]);
    r.cuts_count = 0;
    begin_checkpoint(&r);
    end_checkpoint(&r, true);
    learn(&r);
    cut(&r);
    follow(&r, &r.followers[1]);
    compare_followers(&r);
    size_t length = r.cuts[r.cuts_count - 1].length;
    cut(&r); /* nothing has changed: no row is in the cut */
    assert_true(r.cuts[r.cuts_count - 1].length < length);
    compare_followers(&r);
    end_run(&r);
}

/* A learner that is restored goes on with its epochs: it has deltas and cuts as one that never stopped. */
static void test_restored(void **state)
{
    static struct run before, after;
    (void)state;
    now = set_of("admission");
    begin_run(&before, kinds[0]);
    for (int i = 0; i < 3; i++) {
        learn(&before);
        cut(&before);
        begin_checkpoint(&before);
        end_checkpoint(&before, true);
    }
    struct snapshot_reader from = {.parts = {&before.chain[0]}};
    uint32_t epoch = ((struct learner_config *)before.trainer.context.config)->state->epoch;
    after = (struct run){.kind = before.kind, .rows = before.rows, .epoch = before.epoch};
    start(&after.trainer, after.kind);
    for (uint32_t i = 0; i < before.chained; i++)
        from.parts[i] = &before.chain[i];
    assert_true(after.kind->restore(&after.trainer.context, &from));
    const struct learner_state *s = ((struct learner_config *)after.trainer.context.config)->state;
    assert_int_equal(s->epoch, epoch);
    assert_true(after.kind->cut_note(&after.trainer.context, true));
    for (int i = 0; i < 3; i++) {
        learn(&after);
        begin_checkpoint(&after); /* a base, then deltas */
        end_checkpoint(&after, true);
        learn(&after);
        cut(&after);
        follow(&after, &after.followers[i % FOLLOWERS]);
        compare_followers(&after);
    }
    end_run(&after);
    end_run(&before);
}

/* Epochs are 32 bits: cuts end before they run out; checkpoints go on. */
static void test_epochs_end(void **state)
{
    static struct run r;
    struct byte_buffer out = {0};
    (void)state;
    now = set_of("plain");
    begin_run(&r, kinds[0]);
    struct learner_state *s = ((struct learner_config *)r.trainer.context.config)->state;
    s->epoch = UINT32_MAX - (1U << 24) - 1;
    assert_true(r.kind->cut(&r.trainer.context, &out) && out.length > 0);
    buffer_clear(&out);
    assert_false(r.kind->cut(&r.trainer.context, &out));
    assert_int_equal(out.length, 0);
    assert_false(r.kind->cut_note(&r.trainer.context, true));
    assert_true(r.kind->cut_note(&r.trainer.context, false));
    begin_checkpoint(&r);
    end_checkpoint(&r, true);
    restore_follower(&r, &r.followers[1]);
    buffer_free(&out);
    end_run(&r);
}

/* --- A thousand cuts --- */

static size_t memory_of(struct bench *t)
{
    size_t bytes = 0;
    for (uint32_t f = 0; f < fields_of(t); f++) {
        const struct table *table = model_table(model_of(t), f);
        bytes += table_bytes(table) + table->free_capacity + table->limbo_capacity + table->removed.capacity;
    }
    return bytes;
}

/* The same events again and again: ids come and go within bounds, and so must memory stay. */
static void check_memory(const char *kind_name, const char *set)
{
    static struct run r;
    size_t own[2] = {0}, its[2] = {0}, heap[2] = {0};
    const struct operator_kind *kind = NULL;
    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++)
        kind = strcmp(kinds[k]->name, kind_name) == 0 ? kinds[k] : kind;
    now = set_of(set);
    begin_run(&r, kind);
    for (int n = 0; n < 1500; n++) {
        r.rows %= 2 * (uint64_t)ROWS;
        learn(&r);
        if (r.is_open || n % 7 == 0)
            r.is_open ? end_checkpoint(&r, n % 3 > 0) : begin_checkpoint(&r);
        buffer_free(&r.cuts[0]);
        r.cuts_count = 0;
        cut(&r);
        if (n != 499 && n != 1499)
            continue;
        compare_followers(&r);
        free_chain(&r);
        own[n > 499] = memory_of(&r.trainer), its[n > 499] = memory_of(&r.followers[0].bench);
        heap[n > 499] = mallinfo2().uordblks;
    }
    assert_true(own[1] <= own[0] + own[0] / 8 && its[1] <= its[0] + its[0] / 8);
    assert_true(heap[1] < heap[0] + (96 << 10));
    assert_int_equal(model_table(model_of(&r.followers[0].bench), 0)->removed.count, 0);
    end_run(&r);
}

static void test_memory(void **state)
{
    (void)state;
    check_memory("linear", "bounded");
    check_memory("deepfm", "bounded");
    check_memory("deepfm", "fp16");
    check_memory("fm", "expiry");
    check_memory("fm", "cold");
}

/* --- Damage --- */

static void take_damaged(struct run *r, const char *bytes, size_t length, bool is_bad)
{
    static struct answers answers;
    char *exact = malloc(MAX(length, 1)); /* a sanitizer sees reads behind it */
    memcpy(exact, bytes, length);
    restore_follower(r, &r->followers[0]);
    bool is_taken = r->kind->take_cut(&r->followers[0].bench.context, (struct str){exact, length});
    assert_true(!is_bad || !is_taken);
    if (is_taken)
        ask(&r->followers[0].bench, r->kind, r->rows / ROWS, 0, &answers);
    free(exact);
}

static void check_damaged(const struct operator_kind *kind)
{
    static struct run r;
    begin_run(&r, kind);
    learn(&r);
    learn(&r);
    close_follower(&r, &r.followers[0]);
    cut(&r);
    size_t length = r.cuts[0].length;
    char *copy = malloc(length + 1);
    memcpy(copy, r.cuts[0].data, length);
    copy[length] = 0;
    take_damaged(&r, copy, length + 1, true);
    for (int i = 0; i < 12; i++)
        take_damaged(&r, copy, i < 2 ? (size_t)i * (length - 1) : draw(length), true);
    for (int i = 0; i < 24; i++) {
        size_t head = MIN(length, (size_t)160), tail = MIN(length, (size_t)400);
        size_t at = i % 2 == 0 ? draw(head) : i % 4 == 1 ? length - 1 - draw(tail) : draw(length);
        char was = copy[at];
        copy[at] = (char)(i % 3 == 0 ? 0xff : was ^ (char)(1 << draw(8)));
        take_damaged(&r, copy, length, i % 2 == 0 && at < 8 && copy[at] != was); /* magic and version */
        copy[at] = was;
    }
    free(copy);
    end_run(&r);
}

static void test_damaged(void **state)
{
    (void)state;
    static const char *const names[] = {"bounded", "expiry", "trial", "fp16", "cold", "mean"};
    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++) {
        now = set_of(names[k % ARRAY_COUNT(names)]);
        check_damaged(kinds[k]);
        now = set_of("bounded");
        check_damaged(kinds[k]);
    }
}

static void test_kinds_have_cuts(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++)
        assert_true(kinds[k]->cut_note != NULL && kinds[k]->cut != NULL && kinds[k]->take_cut != NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds_have_cuts), cmocka_unit_test(test_followers),
        cmocka_unit_test(test_notes),           cmocka_unit_test(test_epochs_end),
        cmocka_unit_test(test_restored),        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
