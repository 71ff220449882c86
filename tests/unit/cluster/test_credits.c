/* Credits, attacked by a simulation: workers in a circle, each of which needs frames of the others to finish a number, random
 * windows and frames, messages that take their time. Each worker gives frames back without waiting for others, as a run does: nobody
 * may wait for ever, and nobody may send beyond the credits. Where workers hold frames until their stage is done, the same simulation
 * stands still: it can fail. */
#include "../core/cmocka_all.h"
#include "../support/random.h"
#include "cluster/credits.h"

enum {
    SEEDS = 1000,
    WORKERS = 3,
    STAGES = 4,
    NUMBERS = 24,   /* micro-batches of a run */
    AHEAD = 8,      /* of them may be in work at once */
    FRAMES = 3,     /* of a stage to each worker, at most */
    MAIL_MAX = 512, /* messages under way from one worker to another */
};

/* A frame of number `number` for stage `stage`; or a message of credits: stage 0. */
struct mail {
    uint64_t number, bytes, granted;
    uint32_t stage;
};

struct way {
    struct credits_sender sender;
    struct credits_receiver receiver;
    struct mail spilled[NUMBERS * STAGES * FRAMES]; /* by the sender: in the order in which they were made */
    uint32_t spilled_count;
    uint64_t untaken; /* bytes that came, and that the receiver has not looked at */
    struct mail mail[MAIL_MAX];
    uint32_t mail_from, mail_to;
    struct mail news[MAIL_MAX]; /* of credits, the other way */
    uint32_t news_from, news_to;
};

struct worker {
    uint32_t came[NUMBERS + 1][STAGES + 1]; /* frames that came for a stage of a number */
    bool is_done[NUMBERS + 1][STAGES + 1];
    uint64_t unfinished;                             /* the lowest number that is not finished */
    uint64_t held[NUMBERS + 1][STAGES + 1][WORKERS]; /* bytes to give back with the stage */
};

struct world {
    struct test_random random;
    struct worker workers[WORKERS];
    struct way ways[WORKERS][WORKERS]; /* [from][to] */
    uint32_t frames[STAGES + 1];       /* of each worker's stage before to each worker */
    bool holds;                        /* frames, until their stage is done */
};

/* Sends what the sender has spilled and may send, in any order of numbers: what is held back does not stop the others. */
static bool send_spilled(struct way *way)
{
    bool is_moved = false;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < way->spilled_count; i++) {
        const struct mail *mail = &way->spilled[i];
        if (way->mail_to - way->mail_from < MAIL_MAX && mail->bytes <= credits_room(&way->sender)) {
            credits_charge(&way->sender, mail->bytes);
            way->mail[way->mail_to++ % MAIL_MAX] = *mail;
            is_moved = true;
        } else
            way->spilled[kept++] = *mail;
    }
    way->spilled_count = kept;
    return is_moved;
}

static void tell(struct way *way)
{
    if (!credits_must_tell(&way->receiver) || way->news_to - way->news_from >= MAIL_MAX)
        return;
    credits_told(&way->receiver);
    way->news[way->news_to++ % MAIL_MAX] = (struct mail){.granted = way->receiver.told};
}

/* One message of this way arrives. */
static bool arrive(struct world *world, uint32_t from, uint32_t to)
{
    struct way *way = &world->ways[from][to];
    if (way->news_from != way->news_to && random_chance(&world->random, 50)) {
        const struct mail *news = &way->news[way->news_from++ % MAIL_MAX];
        assert_true(credits_hear(&way->sender, news->granted));
        return true;
    }
    if (way->mail_from == way->mail_to)
        return false;
    const struct mail *mail = &way->mail[way->mail_from++ % MAIL_MAX];
    assert_true(credits_is_allowed(&way->receiver, mail->bytes));
    credits_receive(&way->receiver, mail->bytes);
    struct worker *worker = &world->workers[to];
    worker->came[mail->number][mail->stage]++;
    if (world->holds)
        worker->held[mail->number][mail->stage][from] += mail->bytes;
    else
        way->untaken += mail->bytes;
    return true;
}

/* Gives back what came, whichever number it is of. */
static bool take(struct way *way)
{
    bool is_moved = way->untaken > 0;
    credits_release(&way->receiver, way->untaken);
    way->untaken = 0;
    return is_moved;
}

/* Gives back what was held for a stage that is done, and makes the frames of the next one. */
static void finish_stage(struct world *world, uint32_t self, uint64_t number, uint32_t stage)
{
    struct worker *worker = &world->workers[self];
    worker->is_done[number][stage] = true;
    for (uint32_t from = 0; from < WORKERS; from++)
        credits_release(&world->ways[from][self].receiver, worker->held[number][stage][from]);
    while (worker->unfinished <= NUMBERS && worker->is_done[worker->unfinished][STAGES])
        worker->unfinished++;
    if (stage == STAGES)
        return;
    for (uint32_t to = 0; to < WORKERS; to++)
        for (uint32_t i = 0; i < world->frames[stage + 1]; i++) {
            struct way *way = &world->ways[self][to];
            uint64_t most = MIN(way->receiver.window, UINT64_C(2000));
            uint64_t bytes = 1 + random_below(&world->random, (uint32_t)most);
            way->spilled[way->spilled_count++] = (struct mail){number, bytes, 0, stage + 1};
        }
}

/* A stage of a number runs when all its frames are there and the stages before it are done: the latest stage first. */
static bool work(struct world *world, uint32_t self)
{
    struct worker *worker = &world->workers[self];
    uint64_t last = MIN((uint64_t)NUMBERS, worker->unfinished + AHEAD - 1);
    for (uint64_t number = worker->unfinished; number <= last; number++)
        for (uint32_t stage = STAGES; stage >= 1; stage--) {
            bool is_next = stage == 1 || worker->is_done[number][stage - 1];
            bool is_there = stage == 1 || worker->came[number][stage] == world->frames[stage] * WORKERS;
            bool in_order = number == 1 || worker->is_done[number - 1][stage];
            if (!worker->is_done[number][stage] && is_next && is_there && in_order) {
                finish_stage(world, self, number, stage);
                return true;
            }
        }
    return false;
}

static void prepare(struct world *world, uint64_t seed, bool holds)
{
    memset(world, 0, sizeof(*world));
    world->random.state = seed;
    world->holds = holds;
    for (uint32_t i = 0; i < WORKERS; i++)
        world->workers[i].unfinished = 1;
    for (uint32_t stage = 2; stage <= STAGES; stage++)
        world->frames[stage] = 1 + random_below(&world->random, FRAMES);
    for (uint32_t from = 0; from < WORKERS; from++)
        for (uint32_t to = 0; to < WORKERS; to++)
            world->ways[from][to].receiver.window =
                1 + random_below(&world->random, 1 << random_below(&world->random, 16));
}

/* One thing that happens at a place; the order of places is chance, all of them come. */
static bool step(struct world *world, uint32_t place)
{
    uint32_t from = place % WORKERS, to = place / WORKERS % WORKERS;
    struct way *way = &world->ways[from][to];
    switch (place / WORKERS / WORKERS) {
    case 0: return arrive(world, from, to);
    case 1: return send_spilled(way);
    case 2: {
        uint32_t before = way->news_to;
        tell(way);
        return way->news_to != before;
    }
    case 3: return take(way);
    default: return to == 0 && work(world, from);
    }
}

/* false: nothing can happen any more, and numbers are unfinished. */
static bool run(struct world *world)
{
    enum { PLACES = 5 * WORKERS * WORKERS };
    for (;;) {
        for (uint32_t tries = 0; tries < PLACES; tries++)
            (void)step(world, random_below(&world->random, PLACES));
        bool is_moved = false;
        for (uint32_t place = 0; place < PLACES; place++)
            is_moved |= step(world, place);
        bool is_done = true;
        for (uint32_t i = 0; i < WORKERS; i++)
            is_done &= world->workers[i].unfinished == NUMBERS + 1;
        if (is_done)
            return true;
        /* arrive() leaves news lying by chance: a still world has none. */
        bool is_silent = true;
        for (uint32_t place = 0; place < WORKERS * WORKERS; place++) {
            const struct way *way = &world->ways[place % WORKERS][place / WORKERS];
            is_silent &= way->news_from == way->news_to && way->mail_from == way->mail_to;
        }
        if (!is_moved && is_silent)
            return false;
    }
}

static struct world the_world;

static void test_nobody_waits_for_ever(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        prepare(&the_world, seed, false);
        if (!run(&the_world))
            fail_msg("seed %llu: all wait", (unsigned long long)seed);
    }
}

static void test_held_frames_stand_still(void **state)
{
    (void)state;
    uint32_t still = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        prepare(&the_world, seed, true);
        still += !run(&the_world);
    }
    print_message("of 100 seeds %u stand still where frames are held\n", still);
    assert_true(still > 20);
}

static void test_rule(void **state)
{
    (void)state;
    struct credits_sender sender = {0};
    assert_int_equal(credits_room(&sender), 0);
    assert_true(credits_hear(&sender, 100));
    assert_int_equal(credits_room(&sender), 100);
    credits_charge(&sender, 60);
    assert_int_equal(credits_room(&sender), 40);
    credits_charge(&sender, 40);
    assert_int_equal(credits_room(&sender), 0);
    assert_true(credits_hear(&sender, 160));
    assert_int_equal(credits_room(&sender), 60);
    assert_true(credits_hear(&sender, 160)); /* the same once more grants nothing */
    assert_int_equal(credits_room(&sender), 60);
}

static void test_bad_news(void **state)
{
    (void)state;
    struct credits_sender sender = {.granted = 100, .charged = 50};
    assert_false(credits_hear(&sender, 99));
    assert_false(credits_hear(&sender, 51 + CREDITS_WINDOW_MAX));
    assert_false(credits_hear(&sender, UINT64_MAX));
    assert_true(sender.granted == 100 && sender.charged == 50);
    assert_true(credits_hear(&sender, 50 + CREDITS_WINDOW_MAX));
}

static void test_receiver_checks(void **state)
{
    (void)state;
    struct credits_receiver receiver = {.window = 80};
    assert_false(credits_is_allowed(&receiver, 1)); /* nothing was told */
    assert_true(credits_must_tell(&receiver));
    credits_told(&receiver);
    assert_false(credits_must_tell(&receiver));
    assert_true(credits_is_allowed(&receiver, 80) && !credits_is_allowed(&receiver, 81));
    credits_receive(&receiver, 80);
    assert_false(credits_is_allowed(&receiver, 1));
    credits_release(&receiver, 9);
    assert_false(credits_must_tell(&receiver)); /* too little to wake the sender for */
    credits_release(&receiver, 1);
    assert_true(credits_must_tell(&receiver) && credits_is_urgent(&receiver));
    assert_false(credits_is_allowed(&receiver, 10)); /* not before it is told */
    credits_told(&receiver);
    assert_true(credits_is_allowed(&receiver, 10) && !credits_is_allowed(&receiver, 11));
    assert_false(credits_must_tell(&receiver) || credits_is_urgent(&receiver));
    /* The last bytes are always told, however few they are, but not at once. */
    credits_release(&receiver, 69);
    credits_told(&receiver);
    credits_release(&receiver, 1);
    assert_true(credits_must_tell(&receiver) && !credits_is_urgent(&receiver));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rule),
        cmocka_unit_test(test_bad_news),
        cmocka_unit_test(test_receiver_checks),
        cmocka_unit_test(test_nobody_waits_for_ever),
        cmocka_unit_test(test_held_frames_stand_still),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
