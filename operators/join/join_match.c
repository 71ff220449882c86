/* The join's rows, one by one: a left row is matched with the right rows kept before it, then kept for later
 * ones; a right row likewise. */
#include "operators/join/join.h"

/* --- Rows out --- */

/* Makes an output row of m's row and `kept`, a row of the other side; kept NULL: of m's row alone. */
static void make_row(struct join_meeting *m, const struct key_row *kept)
{
    struct join *join = m->join;
    int side = m->prepared->side;
    struct joined_row *made = &m->made;
    int64_t time = m->prepared->batch->event_time[m->row];
    made->sides[1 - side].kept = kept;
    made->sides[1 - side].key = m->key;
    made->window_start = m->reach.from;
    made->window_end = time_add(m->reach.to, 1);
    made->time = time;
    if (kept != NULL) {
        if (side == 1) { /* kept->from .. to is the left row's reach; its event time is in its packed head */
            made->time = MAX(time, held_head_of(key_row_packed(kept)).event_time);
            made->window_start = kept->from;
            made->window_end = time_add(kept->to, 1);
        } else {
            made->time = MAX(time, kept->from);
        }
    }
    made->order.sub &= ~(uint64_t)(JOIN_SUB_RIGHT - 1);
    made->order.sub |= MIN(m->count, (uint64_t)JOIN_SUB_RIGHT - 1);
    m->count++;
    if (join->kind == JOIN_SEMI || join->kind == JOIN_ANTI) {
        struct joined_row left = *made;
        left.sides[1] = (struct joined_from){.kept = NULL};
        joined_add(join->joined, &left);
    } else {
        joined_add(join->joined, made);
    }
    m->is_paused |= joined_is_full(join->joined);
}

/* --- Keeping rows --- */

/* The row packed as bytes (held.h), in join->packed. */
static struct str pack(struct join_meeting *m)
{
    struct join *join = m->join;
    uint16_t row = (uint16_t)m->row;
    size_t offsets[2];
    held_pack(join->layouts[m->prepared->side], m->prepared->batch, &row, 1, m->context->scratch,
              &join->packed, offsets);
    return (struct str){join->packed.data, offsets[1]};
}

/* The right row's order key as bytes, in join->order_key; empty with `take all`. */
static struct str order_of(struct join_meeting *m)
{
    struct byte_buffer *out = &m->join->order_key;
    if (m->join->take == JOIN_ALL)
        return (struct str){NULL, 0};
    struct order_key key = ordering_key(&m->prepared->order, m->index);
    size_t bytes = ordering_key_bytes(&m->join->ordering, &key);
    buffer_clear(out);
    ordering_put(&m->join->ordering, &key, buffer_reserve(out, bytes));
    return (struct str){out->data, bytes};
}

static uint64_t keep(struct join_meeting *m, struct keyed_slot *slot, const struct key_row *head,
                     struct str order, struct str packed)
{
    struct key_row kept = *head;
    kept.order_bytes = (uint32_t)order.length;
    kept.row_bytes = (uint32_t)packed.length;
    uint64_t id = key_rows_add(&m->join->rows, slot, &kept, order.data, packed.data);
    if (id == UINT64_MAX)
        m->failed = "the row is longer than the longest that a join keeps";
    return id;
}

/* Whether the right row with the order key `a` is better than the one with the key `b`. */
static bool is_better(const struct join *join, struct str a, struct str b)
{
    struct order_key x, y;
    if (!ordering_get(&join->ordering, a, &x) || !ordering_get(&join->ordering, b, &y))
        return false;
    int order = ordering_compare(&join->ordering, &x, &y);
    return order < 0 || (order == 0 && join->take == JOIN_LAST);
}

/* --- A left row --- */

static bool is_in(const struct join_reach *reach, const struct key_row *kept)
{
    return kept->from >= reach->from && kept->from <= reach->to;
}

/* Copies the kept right row (head, order key, packed row) to join->best where it is the best so far. */
static void take_candidate(struct join_meeting *m, const struct key_row *kept)
{
    struct byte_buffer *best = &m->join->best;
    if (best->length > 0 && !is_better(m->join, key_row_order(kept),
                                       key_row_order((const struct key_row *)(const void *)best->data)))
        return;
    buffer_clear(best);
    buffer_append(best, kept, kept->bytes);
}

static unsigned meet_right(void *argument, const struct key_row *kept)
{
    struct join_meeting *m = argument;
    struct join *join = m->join;
    /* With `unique left` no other left row can come for this right row. */
    unsigned action = (join->unique & JOIN_UNIQUE_LEFT) != 0 ? KEY_ROW_DROP : KEY_ROW_STAY;
    m->has_partner = true;
    if (!is_in(&m->reach, kept))
        return action;
    bool is_first = !m->has_met;
    m->has_met = true;
    if (join->take != JOIN_ALL) {
        take_candidate(m, kept);
        return action;
    }
    bool is_pair = join->kind == JOIN_INNER || join->kind == JOIN_LEFT;
    if (is_pair || (join->kind == JOIN_SEMI && is_first))
        make_row(m, kept);
    if (!is_pair)
        return action == KEY_ROW_STAY ? KEY_ROW_STOP : action;
    return action | (m->is_paused ? KEY_ROW_STOP : KEY_ROW_STAY);
}

/* What became of a left row in one window. OUT: emitted. FILTERED: never to be emitted. KEPT: waiting. */
enum outcome { OUTCOME_OUT, OUTCOME_FILTERED, OUTCOME_KEPT, OUTCOME_FAILED };

/* Keeps the left row for later right rows, with its best right row so far, and sets its deadline. */
static enum outcome keep_left(struct join_meeting *m, struct keyed_slot *slot)
{
    struct join *join = m->join;
    struct key_row head = {.side = KEY_ROW_LEFT,
                           .is_marked = m->has_met,
                           .from = m->reach.from,
                           .to = m->reach.to,
                           .until = m->reach.until};
    uint64_t id = keep(m, slot, &head, (struct str){NULL, 0}, pack(m));
    if (id == UINT64_MAX)
        return OUTCOME_FAILED;
    if (join->best.length > 0) {
        struct key_row *best = (struct key_row *)(void *)join->best.data;
        struct key_row of_best = {
            .side = KEY_ROW_BEST, .from = (int64_t)id, .to = (int64_t)id, .until = m->reach.until};
        (void)keep(m, slot, &of_best, key_row_order(best), key_row_packed(best));
    }
    if (join->has_deadline)
        time_queue_push(join->queue, m->reach.until, m->key, key_hash(m->key),
                        (struct str){(const char *)&id, sizeof(id)});
    return OUTCOME_KEPT;
}

/* After all kept right rows were visited: keeps the left row where it must wait for more. */
static enum outcome end_left(struct join_meeting *m, struct keyed_slot *slot)
{
    const struct join *join = m->join;
    bool has_all = join->take == JOIN_ALL && (join->unique & JOIN_UNIQUE_RIGHT) != 0 && m->has_partner;
    if (m->has_met && join->kind == JOIN_ANTI)
        return OUTCOME_FILTERED;
    if (m->has_met && (has_all || join->kind == JOIN_SEMI))
        return OUTCOME_OUT;
    if (has_all && !join->has_deadline)
        return OUTCOME_FILTERED; /* its only partner is outside its reach */
    return keep_left(m, slot);
}

static void count_left(struct join_meeting *m, enum outcome outcome)
{
    struct counters *counters = &m->context->counters;
    uint64_t made = m->count;
    if (outcome == OUTCOME_FAILED)
        return; /* operator_reject counts the row */
    if (!m->join->is_single) {
        counters->absorbed++;
    } else if (outcome == OUTCOME_OUT) {
        counters->passed++;
        made--; /* the first output row counts as the row itself */
    } else if (outcome == OUTCOME_FILTERED) {
        counters->filtered++;
    } else if (m->join->has_deadline) {
        counters->held++;
    } else {
        counters->absorbed++;
    }
    counters->emitted += made;
}

/* Emits a left row that can match nothing. */
static void take_alone(struct join_meeting *m)
{
    make_row(m, NULL);
}

/* Visitor: sets the bool that `argument` points to: the key has a row that the query asks for. */
static unsigned meet_twin(void *argument, const struct key_row *kept LEAT_UNUSED)
{
    *(bool *)argument = true;
    return KEY_ROW_STOP;
}

static bool has_twin(struct join_meeting *m, struct keyed_slot *slot, enum key_row_side side)
{
    bool has_one = false;
    struct key_rows_query query = key_rows_query_of(side, INT64_MIN, INT64_MAX);
    (void)key_rows_visit(&m->join->rows, slot, &query, meet_twin, &has_one);
    return has_one;
}

static void begin_window(struct join_meeting *m)
{
    struct join *join = m->join;
    int64_t time = m->prepared->batch->event_time[m->row];
    m->reach = join_left_reach(join, time, join_high_of(join, m->prepared, m->row), m->window);
    bool sees_all = join->unique != 0;
    m->query = key_rows_query_of(KEY_ROW_RIGHT, sees_all ? INT64_MIN : m->reach.from,
                                 sees_all ? INT64_MAX : m->reach.to);
    m->has_met = m->has_partner = false;
    buffer_clear(&join->best);
}

bool join_take_left(struct join_meeting *m, struct keyed_slot *slot)
{
    struct join *join = m->join;
    bool is_alone = m->prepared->fates[m->index] == JOIN_ALONE;
    enum outcome outcome = is_alone ? OUTCOME_OUT : OUTCOME_FAILED;
    if (!m->has_begun) {
        int64_t time = m->prepared->batch->event_time[m->row];
        m->window = join->is_window ? windows_first(&join->windows, time) : 0;
        m->last_window = join->is_window ? windows_last(&join->windows, time) : 0;
        if (!is_alone && (join->unique & JOIN_UNIQUE_LEFT) != 0 && has_twin(m, slot, KEY_ROW_LEFT)) {
            m->failed = "`unique`: there is a row with this key already";
            return true;
        }
    }
    for (; m->window <= m->last_window; m->window++) {
        if (!m->has_begun)
            begin_window(m);
        m->has_begun = false;
        if (m->reach.until < m->context->watermark)
            continue;
        if (is_alone) {
            take_alone(m);
            continue;
        }
        m->is_paused = false;
        if (!key_rows_visit(&join->rows, slot, &m->query, meet_right, m) && m->is_paused &&
            join->kind != JOIN_SEMI) {
            m->has_begun = true;
            return false;
        }
        outcome = end_left(m, slot);
    }
    count_left(m, outcome);
    return true;
}

/* --- A right row --- */

/* With `take`: a kept left row that the new right row matches. */
struct waiting {
    uint64_t id;
    int64_t until;
    bool is_served; /* its best right row so far stays: the new row is not better */
};

static unsigned meet_left(void *argument, const struct key_row *kept)
{
    struct join_meeting *m = argument;
    struct join *join = m->join;
    m->has_partner = true;
    if (m->reach.from < kept->from || m->reach.from > kept->to)
        return KEY_ROW_STAY;
    m->has_met = true;
    if (join->take != JOIN_ALL) {
        struct waiting waiting = {.id = kept->id, .until = kept->until};
        buffer_append(&join->ids, &waiting, sizeof(waiting));
        return KEY_ROW_STAY;
    }
    if (join->kind == JOIN_ANTI)
        return KEY_ROW_DROP;
    make_row(m, kept);
    unsigned stop = m->is_paused ? KEY_ROW_STOP : KEY_ROW_STAY;
    if (join->kind == JOIN_SEMI || (join->unique & JOIN_UNIQUE_RIGHT) != 0)
        return stop | KEY_ROW_DROP;
    return stop | (join->kind == JOIN_LEFT && !kept->is_marked ? KEY_ROW_MARK : KEY_ROW_STAY);
}

/* The left row of that id in join->ids, which is sorted by id; NULL if it is not there. */
static struct waiting *find_waiting(const struct join *join, uint64_t id)
{
    struct waiting *waiting = (struct waiting *)(void *)join->ids.data;
    size_t low = 0, high = join->ids.length / sizeof(*waiting);
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (waiting[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    bool is_there = low < join->ids.length / sizeof(*waiting) && waiting[low].id == id;
    return is_there ? &waiting[low] : NULL;
}

struct rival {
    const struct join *join;
    struct str order;
};

/* Visitor of a left row's best right row: drops it if the new right row (the rival) is better. */
static unsigned meet_best(void *argument, const struct key_row *kept)
{
    const struct rival *rival = argument;
    struct waiting *waiting = find_waiting(rival->join, (uint64_t)kept->from);
    if (waiting == NULL)
        return KEY_ROW_STAY;
    waiting->is_served = !is_better(rival->join, rival->order, key_row_order(kept));
    return waiting->is_served ? KEY_ROW_STAY : KEY_ROW_DROP;
}

/* Makes the new right row the best of each left row in join->ids whose best so far is worse or missing. */
static void challenge(struct join_meeting *m, struct keyed_slot *slot)
{
    struct join *join = m->join;
    const struct waiting *waiting = (const struct waiting *)(const void *)join->ids.data;
    size_t count = join->ids.length / sizeof(*waiting);
    if (count == 0)
        return;
    struct rival rival = {join, order_of(m)};
    struct key_rows_query query =
        key_rows_query_of(KEY_ROW_BEST, (int64_t)waiting[0].id, (int64_t)waiting[count - 1].id);
    (void)key_rows_visit(&join->rows, slot, &query, meet_best, &rival);
    struct str packed = {NULL, 0};
    for (size_t i = 0; i < count; i++) {
        if (waiting[i].is_served)
            continue;
        if (packed.data == NULL)
            packed = pack(m);
        struct key_row head = {.side = KEY_ROW_BEST,
                               .from = (int64_t)waiting[i].id,
                               .to = (int64_t)waiting[i].id,
                               .until = waiting[i].until};
        (void)keep(m, slot, &head, rival.order, packed);
    }
    buffer_clear(&join->ids);
}

/* For semi and anti it only matters whether there is a right row, so one row per window (with `forever` one
 * in all) is enough. Returns whether such a row is kept already. */
static bool is_known(struct join_meeting *m, struct keyed_slot *slot)
{
    const struct join *join = m->join;
    bool has_right = join->kind == JOIN_INNER || join->kind == JOIN_LEFT;
    if (has_right || (!join->is_forever && (!join->is_window || !join->is_single)))
        return false;
    struct join_reach reach = {INT64_MIN, INT64_MAX, 0};
    if (join->is_window)
        reach = join_left_reach(join, m->reach.from, 0, windows_first(&join->windows, m->reach.from));
    bool has_one = false;
    struct key_rows_query query = key_rows_query_of(KEY_ROW_RIGHT, reach.from, reach.to);
    (void)key_rows_visit(&m->join->rows, slot, &query, meet_twin, &has_one);
    return has_one;
}

static void keep_right(struct join_meeting *m, struct keyed_slot *slot)
{
    struct join *join = m->join;
    int64_t time = m->reach.from;
    bool has_right = join->kind == JOIN_INNER || join->kind == JOIN_LEFT;
    struct key_row head = {
        .side = KEY_ROW_RIGHT, .from = time, .to = time, .until = join_right_until(join, time)};
    struct str nothing = {NULL, 0};
    (void)keep(m, slot, &head, order_of(m), has_right ? pack(m) : nothing);
}

bool join_take_right(struct join_meeting *m, struct keyed_slot *slot)
{
    struct join *join = m->join;
    if (!m->has_begun) {
        int64_t time = m->prepared->batch->event_time[m->row];
        m->reach = (struct join_reach){time, time, time};
        bool sees_all = (join->unique & JOIN_UNIQUE_LEFT) != 0;
        m->query = key_rows_query_of(KEY_ROW_LEFT, sees_all ? INT64_MIN : time, sees_all ? INT64_MAX : time);
        m->has_begun = true;
        if ((join->unique & JOIN_UNIQUE_RIGHT) != 0 && has_twin(m, slot, KEY_ROW_RIGHT)) {
            m->failed = "`unique`: there is a row with this key already";
            return true;
        }
    }
    m->is_paused = false;
    if (!key_rows_visit(&join->rows, slot, &m->query, meet_left, m))
        return false;
    challenge(m, slot);
    bool is_needed = (join->unique & JOIN_UNIQUE_LEFT) == 0 || !m->has_partner;
    if (is_needed && m->failed == NULL && !is_known(m, slot))
        keep_right(m, slot);
    m->context->counters.emitted += m->count;
    m->context->counters.absorbed += m->failed == NULL;
    return true;
}
