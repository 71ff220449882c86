/* `read` of each learner kind gives the bits that `process` then reports for the row, whatever the request has as
 * label, weight and time, and changes nothing: a learner that answers requests ends with the checkpoint and the
 * report of one that is never asked. */
#include "learner_sets.h"

enum { PERIOD = 100 };

/* --- Predictions --- */

struct answers {
    double values[LABELS][ROWS];
    bool are_null[LABELS][ROWS];
};
static struct answers given, asked; /* by row: by `process`, by `read` */

static void keep(const struct operator_context *context, const struct batch *batch, struct answers *to)
{
    assert_ptr_equal(batch->schema, context->output);
    assert_int_equal(batch->columns[COLUMN_USER].tag, TYPE_INT);
    for (uint32_t l = 0; l + COLUMNS < batch->schema->count; l++) {
        const struct column *column = &batch->columns[COLUMNS + l];
        for (uint32_t i = 0; i < batch->selected; i++) {
            uint32_t row = batch_row(batch, i);
            to->values[l][row] = column->floats[row];
            to->are_null[l][row] = !column_is_valid(column, row);
        }
    }
}

void operator_emit(struct operator_context *context, uint32_t output, struct batch *batch)
{
    if (context->reader != NULL)
        context->reader->emit(context, output, batch);
    else if (output == 0)
        keep(context, batch, &given);
    if (context->reader == NULL)
        batch_release(batch);
}

void operator_reject(struct operator_context *context, const struct batch *batch, uint32_t row,
                     const char *reason)
{
    (void)context, (void)batch;
    fail_msg("row %u is rejected: %s", row, reason);
}

static void keep_asked(struct operator_context *context, uint32_t output, struct batch *batch)
{
    assert_int_equal(output, 0);
    keep(context, batch, &asked);
    batch_release(batch);
}

static const struct operator_reader reader = {.emit = keep_asked, .reject = operator_reject};

/* Asks for `count` rows of the batch from `row` on. */
static void ask(struct bench *t, const struct operator_kind *kind, struct batch *batch, uint32_t row,
                uint32_t count)
{
    static uint16_t rows[ROWS];
    struct operator_context copy = t->context;
    for (uint32_t i = 0; i < count; i++)
        rows[i] = (uint16_t)(row + i);
    batch->sel = rows, batch->selected = count;
    copy.counters = (struct counters){0};
    copy.reader = &reader;
    kind->read(&copy, 0, batch);
    assert_int_equal(copy.counters.emitted, count);
    assert_int_equal(copy.counters.dead + copy.counters.absorbed + copy.counters.filtered, 0);
}

static void process(struct bench *t, const struct operator_kind *kind, struct batch *batch, uint32_t row)
{
    uint16_t one = (uint16_t)row;
    batch->sel = &one, batch->selected = 1;
    t->context.counters.in++;
    kind->process(&t->context, 0, batch);
}

/* Events whose prices are infinite in some rows. */
static struct batch *make_events(struct bench *t, uint64_t number)
{
    struct batch *batch = make_batch(t->pool, t->bind.inputs[0].schema, number);
    for (uint32_t i = 11; i < ROWS; i += 97)
        batch->columns[COLUMN_PRICE].floats[i] = (double)INFINITY;
    for (uint32_t i = 5; i < ROWS; i += 61)
        batch_set_null(batch, &batch->columns[COLUMN_WEIGHT], i);
    return batch;
}

/* The same events as requests: without label and weight, and far in the future. */
static struct batch *make_requests(struct bench *t, uint64_t number)
{
    struct batch *batch = make_events(t, number);
    for (uint32_t i = 0; i < ROWS; i++) {
        batch_set_null(batch, &batch->columns[COLUMN_CLICKED], i);
        batch_set_null(batch, &batch->columns[COLUMN_WEIGHT], i);
        batch->event_time[i] = INT64_MAX / 2;
    }
    return batch;
}

/* --- The comparison --- */

static struct {
    uint32_t compared, unlabelled, rejected, pairs, labels_apart;
} counts;

static bool are_equal(double a, double b)
{
    return memcmp(&a, &b, sizeof(a)) == 0;
}

static void compare(const struct operator_kind *kind, uint32_t labels, uint32_t row)
{
    bool is_infinite = row % 97 == 11;
    for (uint32_t l = 0; l < labels; l++) {
        assert_int_equal(asked.are_null[l][row], is_infinite);
        if (!given.are_null[l][row] && !are_equal(asked.values[l][row], given.values[l][row]))
            fail_msg("%s, %s: row %u, label %u: asked %.17g, then reported %.17g", kind->name, now->name, row,
                     l, asked.values[l][row], given.values[l][row]);
        counts.compared += !given.are_null[l][row];
        counts.labels_apart += !are_equal(asked.values[l][row], asked.values[0][row]);
        counts.unlabelled += given.are_null[l][row] && !is_infinite;
        counts.rejected += given.are_null[l][row] && is_infinite;
    }
}

/* Two rows with the same features in one request: the second does not see the first. */
static void compare_pair(const struct operator_kind *kind, uint32_t labels, uint32_t row)
{
    if (row % copies != 0 || row < 8 || row % 97 == 10 || row % 97 == 11)
        return;
    for (uint32_t l = 0; l < labels; l++) {
        if (!are_equal(asked.values[l][row], asked.values[l][row + 1]))
            fail_msg("%s, %s: rows %u and %u of a request: %.17g and %.17g", kind->name, now->name, row,
                     row + 1, asked.values[l][row], asked.values[l][row + 1]);
        counts.pairs++;
    }
}

static double figure(const struct report *report, const char *name)
{
    const struct report_item *item = report_find(report, name);
    assert_non_null(item);
    return item->value;
}

/* What a set of options is for must have come about. */
static void check_report(const struct operator_kind *kind, const struct report *r)
{
    bool has_lists = strcmp(kind->name, "mf") != 0;
    assert_true(figure(r, "learned") > 0.0 && figure(r, "rows") > 0.0);
    assert_true(figure(r, "is_frozen") == (now->freezes ? 1.0 : 0.0));
    assert_true(now->admit_after < 2 || figure(r, "occurrences_waiting") > 0.0);
    assert_true(now->rows_max == 0 || figure(r, "rows_evicted") > 0.0);
    /* Cold rows expire in the store, uncounted. */
    assert_true(now->expire_s == 0 || now->is_cold || figure(r, "rows_expired") > 0.0);
    assert_true(now->list_max == 0 || !has_lists || figure(r, "ids_cut.tags") > 0.0);
    assert_true(!now->is_weighted || figure(r, "weightless") > 0.0);
    assert_true(!now->is_cold || (figure(r, "rows_cold") > 0.0 && figure(r, "rows_loaded") > 0.0));
}

static void compare_reports(const struct operator_kind *kind, struct bench *a, struct bench *b)
{
    static struct report reports[2];
    memset(reports, 0, sizeof(reports));
    kind->report(&a->context, &reports[0]);
    kind->report(&b->context, &reports[1]);
    assert_int_equal(reports[0].count, reports[1].count);
    for (uint32_t i = 0; i < reports[0].count; i++) {
        const struct report_item *x = &reports[0].items[i], *y = &reports[1].items[i];
        if (!are_equal(x->value, y->value) && !(isnan(x->value) && isnan(y->value)))
            fail_msg("%s, %s: %s: %.17g and %.17g", kind->name, now->name, x->name, x->value, y->value);
    }
    assert_memory_equal(&a->context.counters, &b->context.counters, sizeof(a->context.counters));
    check_report(kind, &reports[0]);
}

static void compare_records(const struct operator_kind *kind, const struct snapshot_writer *a,
                            const struct snapshot_writer *b)
{
    assert_int_equal(a->count, b->count);
    for (uint32_t i = 0; i < a->count; i++) {
        if (a->records[i].length != b->records[i].length ||
            memcmp(a->records[i].data, b->records[i].data, a->records[i].length) != 0)
            fail_msg("%s, %s: record %u of the checkpoint differs", kind->name, now->name, i);
    }
}

/* A learner that is restored from the checkpoint to answer requests answers as the one that goes on. */
static void compare_restored(const struct operator_kind *kind, struct bench *t,
                             const struct snapshot_writer *checkpoint)
{
    struct bench restored;
    struct snapshot_reader from = {.parts = {checkpoint}};
    const struct learner_config *c = t->context.config;
    for (uint32_t f = 0; f < c->inputs.sparse_count && now->is_cold; f++)
        inherited[f] = model_table(c->state->model, f)->cold->store->self;
    opens_to_read = true;
    start(&restored, kind);
    assert_true(kind->restore(&restored.context, &from));
    opens_to_read = false;
    memset(inherited, 0, sizeof(inherited));
    struct batch *batch = make_requests(t, NUMBERS), *same = make_requests(&restored, NUMBERS);
    for (uint32_t row = 0; row < ROWS; row += PERIOD) {
        ask(t, kind, batch, row, PERIOD);
        memcpy(&given, &asked, sizeof(given));
        ask(&restored, kind, same, row, PERIOD);
        for (uint32_t i = row; i < row + PERIOD; i++)
            compare(kind, t->learner.labels_count, i);
    }
    batch_release(batch);
    batch_release(same);
    stop(&restored, kind);
}

static uint32_t pending(const struct bench *t)
{
    return ((const struct learner_config *)t->context.config)->state->model->pending;
}

/* Requests before each event, for it and the one that follows. */
static void run(const struct operator_kind *kind, struct bench *t, struct bench *silent, uint64_t number)
{
    struct batch *requests = make_requests(t, number);
    struct batch *events = make_events(t, number), *same = make_events(silent, number);
    for (uint32_t i = 0; i < ROWS; i++) {
        ask(t, kind, requests, i, MIN(2U, ROWS - i));
        compare_pair(kind, t->learner.labels_count, i);
        process(silent, kind, same, i);
        process(t, kind, events, i);
        compare(kind, t->learner.labels_count, i);
        /* Between batches: within one, the look-ups of a request make the model look its batch's rows up again,
         * which may bring others of them up. */
        if (now->is_cold && (now->batch > 1 ? pending(t) == 0 : i % 20 == 0))
            evict(t, 30), evict(silent, 30);
        if ((i + 1) % PERIOD != 0)
            continue;
        kind->on_watermark(&t->context, events->event_time[i]);
        kind->on_watermark(&silent->context, events->event_time[i]);
    }
    batch_release(requests);
    batch_release(events);
    batch_release(same);
}

static void check(const struct operator_kind *kind)
{
    struct bench t, silent;
    adjust = set_options;
    cold_store = now->is_cold ? store_new : NULL;
    start(&t, kind);
    start(&silent, kind);
    struct snapshot_writer writers[2];
    for (uint64_t n = 0; n < NUMBERS; n++)
        run(kind, &t, &silent, n);
    compare_reports(kind, &t, &silent);
    writers[0] = checkpoint(&t, kind, 1, true);
    writers[1] = checkpoint(&silent, kind, 1, true);
    finish(&writers[0], true);
    finish(&writers[1], true);
    compare_records(kind, &writers[0], &writers[1]);
    compare_restored(kind, &t, &writers[0]);
    for (size_t i = 0; i < ARRAY_COUNT(writers); i++)
        checkpoint_free(&writers[i]);
    stop(&t, kind);
    stop(&silent, kind);
}

static void test_read(void **state)
{
    (void)state;
    copies = 2;
#ifdef __SANITIZE_ADDRESS__
    const size_t each = 3; /* a sanitizer takes several times as long */
#else
    const size_t each = 1;
#endif
    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++) {
        for (size_t s = k % each; s < ARRAY_COUNT(sets); s += each) {
            now = &sets[s];
            check(kinds[k]);
        }
    }
    assert_true(counts.compared > 0 && counts.unlabelled > 0 && counts.rejected > 0 && counts.pairs > 0);
    assert_true(counts.labels_apart > 0);
}

static void test_kinds_have_read(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++)
        assert_true(kinds[k]->read == learner_read && kinds[k]->reading == READING_ROW);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds_have_read), cmocka_unit_test(test_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
