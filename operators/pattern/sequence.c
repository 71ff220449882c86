#include "operators/pattern/sequence.h"

#include "core/describe.h"

/* An entry is the head, the waiting matches, and for each beginning, by rising number of steps: its times,
 * the length of its `keep` columns (4 bytes), and the bytes of these columns. */
void sequence_load(const struct sequence *sequence, const struct keyed_slot *slot,
                   struct sequence_state *state)
{
    uint32_t bytes = 0;
    const char *at = slot == NULL ? NULL : keyed_read(slot, &bytes);
    state->head = (struct sequence_head){0};
    state->undone = UINT32_MAX;
    state->has_added = false;
    if (bytes < sizeof(state->head))
        return;
    memcpy(&state->head, at, sizeof(state->head));
    at += sizeof(state->head);
    state->waiting = at;
    at += state->head.waiting * sizeof(struct sequence_waiting);
    for (uint32_t n = 1; n < sequence->steps; n++) {
        struct sequence_beginning *beginning = &state->of[n];
        uint32_t length;
        if ((state->head.begun & 1U << n) == 0)
            continue;
        memcpy(beginning->times, at, n * sizeof(int64_t));
        at += n * sizeof(int64_t);
        memcpy(&length, at, sizeof(length));
        at += sizeof(length);
        beginning->kept = (struct str){at, length};
        beginning->more = (struct str){NULL, 0};
        at += length;
    }
}

/* The i-th waiting match, in the order in which they were made. */
static struct sequence_waiting waiting_at(const struct sequence_state *state, uint32_t i)
{
    struct sequence_waiting waiting;
    memcpy(&waiting, state->waiting + i * sizeof(waiting), sizeof(waiting));
    return waiting;
}

bool sequence_waits(const struct sequence *sequence, const struct keyed_slot *slot, uint64_t id)
{
    struct sequence_state state;
    sequence_load(sequence, slot, &state);
    for (uint32_t i = 0; i < state.head.waiting; i++)
        if (waiting_at(&state, i).id == id)
            return true;
    return false;
}

static int64_t deadline_of(const struct sequence *sequence, int64_t first)
{
    return time_add(first, sequence->within_us);
}

static void append(struct byte_buffer *out, struct str text)
{
    if (text.length > 0)
        buffer_append(out, text.data, text.length);
}

/* Writes the head and the matches that still wait; returns their last deadline. */
static int64_t save_waiting(const struct sequence *sequence, const struct sequence_state *state,
                            int64_t watermark, struct byte_buffer *out)
{
    int64_t expire = TIME_MIN;
    struct sequence_head head = state->head;
    head.waiting = 0;
    buffer_append(out, &head, sizeof(head));
    for (uint32_t i = 0; i < state->head.waiting + state->has_added; i++) {
        struct sequence_waiting waiting = i < state->head.waiting ? waiting_at(state, i) : state->added;
        if (i == state->undone || deadline_of(sequence, waiting.first) < watermark)
            continue;
        buffer_append(out, &waiting, sizeof(waiting));
        expire = MAX(expire, deadline_of(sequence, waiting.first));
        head.waiting++;
    }
    memcpy(out->data, &head, sizeof(head));
    return expire;
}

void sequence_save(const struct sequence *sequence, struct keyed_table *table, struct keyed_slot *slot,
                   const struct sequence_state *state, int64_t watermark, struct byte_buffer *scratch)
{
    buffer_clear(scratch);
    int64_t expire = save_waiting(sequence, state, watermark, scratch);
    for (uint32_t n = 1; n < sequence->steps; n++) {
        const struct sequence_beginning *beginning = &state->of[n];
        if ((state->head.begun & 1U << n) == 0)
            continue;
        uint32_t length = (uint32_t)(beginning->kept.length + beginning->more.length);
        buffer_append(scratch, beginning->times, n * sizeof(int64_t));
        buffer_append(scratch, &length, sizeof(length));
        append(scratch, beginning->kept);
        append(scratch, beginning->more);
        expire = MAX(expire, deadline_of(sequence, beginning->times[0]));
    }
    char *data = keyed_write(table, slot, (uint32_t)scratch->length, expire);
    memcpy(data, scratch->data, scratch->length);
}

/* Whether a row of that time can be the next row of the beginning with `steps` steps. */
static bool can_follow(const struct sequence *sequence, const struct sequence_state *state, uint32_t steps,
                       int64_t watermark, int64_t time)
{
    const struct sequence_beginning *beginning = &state->of[steps];
    if ((state->head.begun & 1U << steps) == 0)
        return false;
    int64_t deadline = deadline_of(sequence, beginning->times[0]);
    return deadline >= watermark && time >= beginning->times[steps - 1] && time <= deadline;
}

/* Completes a match with a row that fits the last step. */
static void take_match(const struct sequence *sequence, struct sequence_state *state, int64_t time,
                       struct sequence_match *match)
{
    uint32_t before = sequence->steps - 1;
    match->kept = (struct str){NULL, 0};
    if (before > 0) {
        memcpy(match->times, state->of[before].times, before * sizeof(int64_t));
        match->kept = state->of[before].kept;
    }
    match->times[before] = time;
    state->head.begun = 0;
    if (!sequence->waits)
        return;
    match->id = ++state->head.id;
    state->has_added = true;
    state->added = (struct sequence_waiting){match->times[0], time, match->id};
}

/* Makes the beginning of `steps` steps one step longer. Returns false if the key has a later beginning with
 * steps + 1 steps, which stays. */
static bool take_step(struct sequence_state *state, uint32_t steps, int64_t time, struct str kept)
{
    struct sequence_beginning longer = {.times = {0}}, *other = &state->of[steps + 1];
    if (steps > 0)
        longer = state->of[steps];
    longer.times[steps] = time;
    longer.more = kept;
    if ((state->head.begun & 1U << (steps + 1)) != 0 && other->times[0] > longer.times[0])
        return false;
    *other = longer;
    state->head.begun |= 1U << (steps + 1);
    return true;
}

enum sequence_fate sequence_take(const struct sequence *sequence, struct sequence_state *state,
                                 int64_t watermark, uint32_t fits, int64_t time, struct str kept,
                                 struct sequence_match *match)
{
    uint32_t waiting = 0;
    for (uint32_t i = 0; i < state->head.waiting; i++) {
        struct sequence_waiting match_before = waiting_at(state, i);
        int64_t deadline = deadline_of(sequence, match_before.first);
        if (deadline < watermark)
            continue; /* the match has come out */
        waiting++;
        if (time < match_before.first || time > deadline)
            continue;
        if ((fits & SEQUENCE_UNLESS) == 0 || time < match_before.last)
            return SEQUENCE_UNUSED;
        state->undone = i;
        return SEQUENCE_UNDONE;
    }
    enum sequence_fate fate = SEQUENCE_UNUSED;
    for (uint32_t step = sequence->steps; step-- > 0;) {
        if ((fits & 1U << step) == 0 || (step > 0 && !can_follow(sequence, state, step, watermark, time)))
            continue;
        if (step + 1 == sequence->steps) {
            if (waiting == SEQUENCE_WAITING_MAX)
                return SEQUENCE_FULL;
            take_match(sequence, state, time, match);
            return SEQUENCE_MATCH;
        }
        if (take_step(state, step, time, kept))
            fate = SEQUENCE_TAKEN;
    }
    return fate;
}

bool sequence_describe(const struct sequence *sequence, const struct sequence_state *state, int64_t watermark,
                       const char *const *names, struct describe *out)
{
    bool is_there = state->head.begun != 0;
    describe_list(out, "begun");
    for (uint32_t n = 1; n < sequence->steps; n++) {
        if ((state->head.begun & 1U << n) == 0)
            continue;
        describe_record(out, NULL);
        for (uint32_t i = 0; i < n; i++)
            describe_time(out, names[i], state->of[n].times[i]);
        describe_close(out);
    }
    describe_close(out);
    describe_list(out, "waiting");
    for (uint32_t i = 0; i < state->head.waiting; i++) {
        struct sequence_waiting waiting = waiting_at(state, i);
        if (deadline_of(sequence, waiting.first) < watermark)
            continue;
        is_there = true;
        describe_record(out, NULL);
        describe_time(out, "first", waiting.first);
        describe_time(out, "last", waiting.last);
        describe_time(out, "deadline", deadline_of(sequence, waiting.first));
        describe_close(out);
    }
    describe_close(out);
    return is_there;
}
