/* What free batches keep. */
#include "cmocka_all.h"
#include "core/batch.h"

static struct field fields[] = {{.name = {"id", 2}, .type = {.tag = TYPE_INT}}};
static const struct schema schema = {.fields = fields, .count = ARRAY_COUNT(fields)};

static void fill(struct batch *batch)
{
    memset(arena_alloc(&batch->arena, 20000), 1, 20000);
}

/* After a burst, free batches keep no more than the budget; what they keep is used again. */
static void test_budget_of_free_batches(void **state)
{
    (void)state;
    enum { BURST = 300, BUDGET = 4 << 20 };
    struct batch_pool *pool = batch_pool_new();
    batch_pool_set_budget(pool, BUDGET);
    for (int round = 0; round < 3; round++) {
        struct batch *batches[BURST];
        for (int i = 0; i < BURST; i++) {
            bool is_view = i % 2 == 1;
            batches[i] = is_view ? batch_derive(batches[i - 1], &schema) : batch_new(pool, &schema, 50);
            fill(batches[i]);
        }
        assert_int_equal(batch_pool_kept_bytes(pool), 0);
        for (int i = 0; i < BURST; i++)
            batch_release(batches[i]);
        assert_int_equal(batch_pool_alive(pool), 0);
        assert_true(batch_pool_kept_bytes(pool) <= BUDGET);
        assert_true(batch_pool_kept_bytes(pool) > BUDGET - (256 << 10));
    }
    size_t kept = batch_pool_kept_bytes(pool);
    struct batch *batch = batch_new(pool, &schema, 50);
    assert_true(batch_pool_kept_bytes(pool) < kept);
    batch_release(batch);
    assert_int_equal(batch_pool_kept_bytes(pool), kept);
    batch_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budget_of_free_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
