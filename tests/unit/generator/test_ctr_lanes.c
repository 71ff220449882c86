/* Batches decoded by several threads at once, while another reads the report: the same rows and the same
 * report as with one thread. */
#include "core/connector.h"
#include "core/operator.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

extern const struct source_kind source_ctr;

enum { BATCHES = 48, THREADS = 3, LABELLED = 2 };

struct shared {
    struct arena arena;
    struct diag_list diags;
    struct source source;
    struct batch_pool *pool;
    struct raw_batch raws[BATCHES];
    char digests[BATCHES][33];
    atomic_uint next;
};

static void *option_place(void *config, const char *name)
{
    return (char *)config + option_find(source_ctr.options, str_from(name)).offset;
}

static void open_stream(struct shared *shared)
{
    memset(shared, 0, sizeof(*shared));
    diag_list_init(&shared->diags, &shared->arena);
    void *config = arena_calloc(&shared->arena, 1, source_ctr.size);
    *(int64_t *)option_place(config, "events") = BATCHES * BATCH_ROWS;
    *(int *)option_place(config, "stream") = LABELLED;
    *(double *)option_place(config, "rate") = 1.0;
    struct source_bind bind = {.config = config, .arena = &shared->arena, .diags = &shared->diags};
    assert_true(source_ctr.bind(&bind));
    shared->source = (struct source){
        .config = config, .schema = bind.schema, .arena = &shared->arena, .diags = &shared->diags};
    assert_true(source_ctr.open(&shared->source));
    shared->pool = batch_pool_new();
    for (uint32_t i = 0; i < BATCHES; i++)
        assert_int_equal(source_ctr.read(&shared->source, 0, &shared->raws[i]), READ_BATCH);
}

static void *decode_some(void *argument)
{
    struct shared *shared = argument;
    void *decoder = source_ctr.decoder_new(&shared->source);
    leat_assert(decoder != NULL);
    for (uint32_t i; (i = atomic_fetch_add(&shared->next, 1)) < BATCHES;) {
        struct batch *batch = batch_new(shared->pool, shared->source.schema, shared->raws[i].count);
        struct decode_output output = {.batch = batch};
        source_ctr.decode(&shared->source, decoder, &shared->raws[i], &output);
        memset(batch->event_time, 0, batch->rows * sizeof(*batch->event_time));
        struct batch_digest *digest = batch_digest_new();
        batch_digest_add(digest, batch);
        batch_digest_hex(digest, shared->digests[i]);
        batch_digest_free(digest);
        batch_release(batch);
    }
    source_ctr.decoder_free(decoder);
    return NULL;
}

static double run_with(struct shared *shared, int threads)
{
    open_stream(shared);
    pthread_t ids[THREADS];
    struct report report;
    for (int i = 0; i < threads; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, decode_some, shared), 0);
    do {
        report = (struct report){0};
        source_ctr.report(&shared->source, &report);
        assert_int_equal(report.count, 3);
    } while (atomic_load(&shared->next) < BATCHES);
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    report = (struct report){0};
    source_ctr.report(&shared->source, &report);
    return report.items[0].value;
}

static void close_stream(struct shared *shared)
{
    source_ctr.close(&shared->source);
    batch_pool_free(shared->pool);
    for (uint32_t i = 0; i < BATCHES; i++)
        arena_free(&shared->raws[i].arena);
    arena_free(&shared->arena);
}

static void test_any_number_of_threads_gives_the_same(void **state)
{
    (void)state;
    struct shared *one = calloc(1, sizeof(*one)), *many = calloc(1, sizeof(*many));
    assert_true(run_with(one, 1) == run_with(many, THREADS));
    for (uint32_t i = 0; i < BATCHES; i++)
        assert_string_equal(one->digests[i], many->digests[i]);
    assert_string_not_equal(one->digests[0], one->digests[1]);
    close_stream(one);
    close_stream(many);
    free(one);
    free(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_number_of_threads_gives_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
