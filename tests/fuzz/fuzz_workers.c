/* What a worker of a small job is told by the others, changed as the input says: the job's messages are recorded once, and each seven
 * bytes of the input change one of them. The worker may refuse a message, or wait for ever for another one; it must come to rest,
 * and where it stops it must say why (talk.c). */
#include "fuzz.h"
#include "run/base/peers.h"
#include "unit/run/arrivals.h"
#include "unit/run/later.h"
#include "unit/run/talk.h"

enum { WORD = sizeof(uint64_t), CHANGES_MAX = 8 };

static const char text[] = "source a = sequence { count: 40, keys: 9, rate: 900, event_time: ts }\n"
                           "source b = sequence { count: 30, keys: 9, rate: 300, seed: 4, event_time: ts }\n"
                           "stream u = a | union b\n"
                           "stream w = u | dedup by key within 1s\n"
                           "stream l = w | later 2\n"
                           "sink l = null from l\n";

static const char text_that_waits[] =
    "source a = arrivals { partitions: 2, count: 27, batch: 8, delay: 20ms, late: 3ms, event_time: ts, align: 5ms }\n"
    "stream w = a | dedup by key within 4ms\n"
    "stream l = w | later 2\n"
    "sink l = null from l\n";

static struct talk_job jobs[] = {
    {.text = text, .workers = 2, .lanes = 1, .self = 0, .leader = 0},
    {.text = text, .workers = 2, .lanes = 1, .self = 0, .leader = 1},
    {.text = text, .workers = 2, .lanes = 2, .self = 1, .leader = 0},
    /* a leader to whom another worker says that its sink is full */
    {.text = text, .workers = 3, .lanes = 1, .self = 1, .leader = 1},
    {.text = text, .workers = 2, .lanes = 1, .self = 1, .leader = 0, .is_tight = true},
    {.text = text_that_waits, .workers = 2, .lanes = 1, .self = 0, .leader = 0},
    {.text = text_that_waits, .workers = 2, .lanes = 1, .self = 0, .leader = 1}};
static struct script scripts[ARRAY_COUNT(jobs)];

static void copy(struct script *to, const struct script *from)
{
    to->items = calloc(from->count + CHANGES_MAX, sizeof(*to->items));
    must(to->items != NULL, "there is memory");
    to->count = from->count;
    for (uint32_t i = 0; i < from->count; i++) {
        to->items[i].from = from->items[i].from;
        buffer_append(&to->items[i].bytes, from->items[i].bytes.data, from->items[i].bytes.length);
    }
}

static void set_word(struct told *told, uint32_t index, uint64_t value)
{
    if ((index + 1) * WORD <= told->bytes.length)
        memcpy(told->bytes.data + index * WORD, &value, WORD);
}

static void add_to_word(struct told *told, uint32_t index, int64_t by)
{
    uint64_t value;
    if ((index + 1) * WORD > told->bytes.length)
        return;
    memcpy(&value, told->bytes.data + index * WORD, WORD);
    set_word(told, index, value + (uint64_t)by);
}

/* A message that is said once more goes to the end. */
static void say_again(struct script *script, uint32_t at)
{
    struct told *told = &script->items[script->count++];
    told->from = script->items[at].from;
    buffer_append(&told->bytes, script->items[at].bytes.data, script->items[at].bytes.length);
}

static void change(struct script *script, struct fuzz_input *input)
{
    uint32_t at = fuzz_below(input, script->count);
    struct told *told = &script->items[at];
    size_t length = told->bytes.length;
    uint8_t how = fuzz_byte(input), index = fuzz_byte(input), shift = fuzz_byte(input);
    uint32_t value = fuzz_below(input, UINT16_MAX), word = (uint32_t)(index % MAX(length / WORD, 1));
    switch (how % 8) {
    case 0: set_word(told, word, (uint64_t)value << shift % 64); break;
    case 1: add_to_word(told, word, (int64_t)(value % 9) - 4); break;
    case 2: set_word(told, word, UINT64_MAX - value); break;
    case 3:
        if (length > 0)
            told->bytes.data[(value + index) % length] ^= (char)shift;
        break;
    case 4: told->bytes.length = MIN(length, value); break;
    case 5: told->from = value % 4; break;
    case 6: say_again(script, at); break;
    default: {
        struct told other = *told;
        uint32_t to = value % script->count;
        *told = script->items[to];
        script->items[to] = other;
    }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + size};
    uint32_t which = fuzz_byte(&input) % ARRAY_COUNT(jobs);
    struct script script;
    jobs[which].registry = registry_with_arrivals(registry_with_later());
    later_lets_pass = true;
    if (scripts[which].count == 0)
        talk_record(&jobs[which], &scripts[which]);
    copy(&script, &scripts[which]);
    for (uint32_t i = 0; i < CHANGES_MAX && input.at < input.end; i++)
        change(&script, &input);
    (void)talk_give(&jobs[which], &script);
    script_free(&script);
    return 0;
}
