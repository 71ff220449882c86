/* Sequence models against a plain one in double (sequential_plain.h), after 200 steps of random events. */
#include "sequential_plain.h"

static void test_sasrec(void **state)
{
    (void)state;
    check_case(&(struct rig_case){.name = "sasrec, sampled_softmax, adam",
                                  .loss = "sampled_softmax",
                                  .has_marks = true,
                                  .rows = OPT_ADAM,
                                  .dense = OPT_ADAM,
                                  .history = 9,
                                  .sides = 1,
                                  .contexts = 1,
                                  .batch = 5,
                                  .rehearse = 2,
                                  .pass_rows = 20,
                                  .negatives = 8},
               200);
    check_case(&(struct rig_case){.name = "sasrec, softmax, adagrad",
                                  .loss = "softmax",
                                  .rows = OPT_ADAGRAD,
                                  .dense = OPT_ADAGRAD,
                                  .history = 8,
                                  .contexts = 2,
                                  .batch = 7,
                                  .clip_norm = 0.05F},
               200);
}

/* Steps of one event; many draw nothing but the item itself, which is then not taught. */
static void test_small_steps(void **state)
{
    (void)state;
    check_case(&(struct rig_case){.name = "sasrec, bpr, one event a step",
                                  .loss = "bpr",
                                  .rows = OPT_ADAM,
                                  .dense = OPT_ADAGRAD,
                                  .history = 1,
                                  .sides = 2,
                                  .contexts = 3,
                                  .batch = 1,
                                  .rehearse = 2,
                                  .negatives = 1},
               200);
}

static void test_hstu(void **state)
{
    (void)state;
    check_case(&(struct rig_case){.name = "hstu, bce, adam",
                                  .loss = "bce",
                                  .is_hstu = true,
                                  .rows = OPT_ADAGRAD,
                                  .dense = OPT_ADAM,
                                  .history = 10,
                                  .sides = 2,
                                  .batch = 6,
                                  .negatives = 2},
               200);
    check_case(&(struct rig_case){.name = "hstu, bpr, adagrad",
                                  .loss = "bpr",
                                  .is_hstu = true,
                                  .has_marks = true,
                                  .rows = OPT_ADAM,
                                  .dense = OPT_ADAGRAD,
                                  .history = 7,
                                  .sides = 1,
                                  .contexts = 1,
                                  .batch = 4,
                                  .rehearse = 3,
                                  .negatives = 3},
               200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sasrec), cmocka_unit_test(test_small_steps),
                                       cmocka_unit_test(test_hstu)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tape_free();
    return failed;
}
