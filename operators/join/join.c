/* join: rows of two streams with equal keys and matching times.
 *
 * Which pairs there are. A left row of event time t matches right rows with a time in [t + low, t + high]
 * or, with `over`, in a window that holds t. The first of the two rows to come is kept, and the pair
 * is made when the second one comes; its event time is the later of the two. A row's deadline is the last
 * watermark at which it is still kept: for a left row t + high (t if high is negative), for a right row its
 * time - low (its time if low is positive), in a window join the last microsecond of the window. A row that
 * comes when the watermark is past its deadline is late. So a pair is made if, when its second row came, the
 * watermark was past neither row's deadline: exactly, even where a row lies in the table longer.
 *
 * Kinds. inner: a row for each pair. semi: the left row, once, at its first match. left: pairs as with
 * inner, and unmatched left rows at their deadline, with nulls. anti: only the unmatched left rows, at their
 * deadline. `take first|last|best`: at its deadline, the left row with one of the right rows that it
 * matched. A row emitted at a deadline has the left row's event time, and the output's watermark is held
 * back by `high`. Where the upper bound is an expression or a window's end, that delay has no bound known in
 * advance: the row then has the deadline as its event time.
 *
 * Order. The output rows that an input row makes as it comes take that row's place in the order, among
 * themselves in the order in which the rows it matched came. Rows emitted at deadlines are in the order
 * (deadline, hash of the key, arrival). The order does not depend on the number of lanes, on where batches
 * end, or on evictions.
 *
 * State: key_rows.h, with both sides of a key in one list; a time queue holds the deadlines, with the ids of
 * the left rows. With `take`, a right row is kept with its order key, and the best right row so far of each
 * left row is kept apart from it, so that a better one needs no rewriting of the left row. `unique right` (or
 * left): that side has at most one row per key, so a row of the other side that matched it is not kept any
 * longer; a second row of that side is a dead letter while the first is kept.
 *
 * Files: join_bind.c checks the options, join_block.c takes batches apart, join_match.c matches rows,
 * join_deadline.c handles deadlines, joined.h makes batches of the pairs, hot_keys.c reports keys with many
 * rows. */
#include "operators/join/join.h"

#include <stdlib.h>

enum { BUCKETS = 64, QUEUE_SHARE = 8 };

static const struct option join_options[] = {
    OPTION_STREAM(struct join, stream, "stream", OPTION_REQUIRED | OPTION_POSITIONAL,
                  "the other stream, the right side of the join"),
    OPTION_EXPRESSIONS(
        struct join, on, "on", OPTION_REQUIRED,
        "the key columns: `k` if both streams have it, `a = b` if the other stream's column is called `b`"),
    OPTION_EXPRESSION(
        struct join, within, "within", 0,
        "[from, to]: from when to when the other row's event time may be, relative to this row's; `to` may "
        "be an expression of this row's columns. `forever`: at any time; all rows are kept, in `memory:` and "
        "on disk"),
    OPTION_EXPRESSION(struct join, over, "over", 0,
                      "instead of `within`: rows match that are in the same window; tumbling(10s), "
                      "sliding(10s, 2s), cumulating(1d, 1h). Adds the columns window_start and window_end"),
    OPTION_DURATION(struct join, offset_us, "offset", 0, "0s", "-3650d", "3650d",
                    "windows begin later by this time: tumbling(1d) offset 6h"),
    OPTION_TEXT(struct join, zone, "zone", 0, NULL,
                "the time zone, as \"Europe/Berlin\": windows of whole days begin at its midnight; UTC "
                "by default"),
    OPTION_ENUM(
        struct join, kind, "kind", 0, "inner", "inner|left|anti|semi",
        "inner: a row for each pair; left: also the rows of this stream without a match; anti: only those "
        "without a match; semi: those with a match, each once"),
    OPTION_ENUM(struct join, take, "take", 0, "all", "all|first|last|best",
                "all: every pair; else one row at the deadline, with the match that is first or last by "
                "event time, or best by `order`"),
    OPTION_EXPRESSIONS(struct join, order, "order", 0,
                       "with `take best`: the order of the other stream's rows, best first: "
                       "`desc(price), ts`"),
    OPTION_ENUM(
        struct join, unique, "unique", 0, "none", "none|right|left|both",
        "the side that has at most one row for each key: a row of the other side that has matched it is no "
        "longer kept, and a second row with the key goes to dead letters"),
    OPTION_TEXT(struct join, prefix, "prefix", 0, NULL,
                "a prefix for the names of the other stream's columns"),
    OPTIONS_END,
};

/* --- State --- */

static struct state_plan plan_queue(const struct operator_context *context)
{
    const struct join *join = context->config;
    int64_t wait = join->is_window      ? join->windows.size_us
                   : join->high != NULL ? US_PER_MINUTE
                                        : join->high_us;
    return (struct state_plan){.is_absent = !join->has_deadline,
                               .memory_bytes =
                                   join->has_deadline ? (size_t)context->memory_bytes / QUEUE_SHARE : 0,
                               .bucket_us = MAX(wait / BUCKETS, 1)};
}

/* The operator's memory without the share of the queue. */
static size_t rows_bytes(const struct operator_context *context)
{
    return (size_t)context->memory_bytes - plan_queue(context).memory_bytes;
}

static struct state_plan plan_heads(const struct operator_context *context)
{
    return (struct state_plan){.memory_bytes = rows_bytes(context) / 4 * 3};
}

static struct state_plan plan_chunks(const struct operator_context *context)
{
    return (struct state_plan){.memory_bytes = rows_bytes(context) / 4};
}

static const struct state_member join_state[] = {
    STATE_LAYOUTS(struct join, layouts[0], 'L', inputs[0]),
    STATE_LAYOUTS(struct join, layouts[1], 'R', inputs[1]),
    STATE_HOT_KEYS(struct join, hot, 'H'),
    STATE_KEY_ROWS(struct join, rows, plan_heads, plan_chunks),
    STATE_QUEUE(struct join, queue, 'q', plan_queue, "state_held_bytes"),
    STATES_END,
};

static bool join_open(struct operator_context *context)
{
    struct join *join = context->config;
    join->joined =
        joined_new(context->pool, context->output, join->layouts, join->columns, join->window_column);
    join->block = join_block_new();
    return true;
}

static void join_facts(struct operator_context *context, uint32_t input, const struct batch *batch,
                       struct row_facts *facts)
{
    const struct join *join = context->config;
    int64_t time = batch->event_time[batch_row(batch, 0)];
    if (input == 1)
        row_facts_add_time(facts, "kept until watermark", join_right_until(join, time));
    else if (join->high == NULL)
        row_facts_add_time(facts, "waits until watermark",
                           join_left_reach(join, time, join->high_us,
                                           join->is_window ? windows_last(&join->windows, time) : 0)
                               .until);
}

/* --- Description, close --- */

struct describing {
    struct operator_context *context;
    struct join *join;
    struct describe *out;
    int side;
    bool is_there;
};

static unsigned describe_row(void *argument, const struct key_row *kept)
{
    struct describing *d = argument;
    d->is_there = true;
    describe_record(d->out, NULL);
    describe_time(d->out, "until", kept->until);
    if (kept->row_bytes == 0)
        describe_time(d->out, "time", kept->from);
    else
        held_describe(d->join->layouts[d->side], key_row_packed(kept), d->context, d->out);
    describe_close(d->out);
    return describe_is_full(d->out) ? KEY_ROW_STOP : KEY_ROW_STAY;
}

static bool join_describe(struct operator_context *context, struct state_query *query, struct describe *out)
{
    struct join *join = context->config;
    const struct keyed_slot *slot =
        keys_peek(context, query, join->rows.heads, join->keys[0], join->on.count);
    static const char *const names[] = {"left", "right"};
    struct describing d = {.context = context, .join = join, .out = out};
    for (d.side = 0; d.side < 2; d.side++) {
        struct key_rows_query all =
            key_rows_query_of(d.side == 0 ? KEY_ROW_LEFT : KEY_ROW_RIGHT, INT64_MIN, INT64_MAX);
        describe_list(out, names[d.side]);
        if (slot != NULL)
            key_rows_peek(&join->rows, slot, &all, describe_row, &d);
        describe_close(out);
    }
    keyed_peek_end(join->rows.heads);
    return d.is_there;
}

static void join_close(struct operator_context *context)
{
    struct join *join = context->config;
    joined_free(join->joined);
    free(join->block);
    buffer_free(&join->packed);
    buffer_free(&join->order_key);
    buffer_free(&join->ids);
    buffer_free(&join->best);
    buffer_free(&join->left);
    join->joined = NULL;
    join->block = NULL;
}

const struct operator_kind operator_join = {
    .name = "join",
    .summary = "joins rows of two streams that have equal keys and matching event times",
    .example =
        "events | join clicks on user_id, item_id within [0s, 5m] kind left take first prefix \"click_\"",
    .details =
        "The columns are those of the stream before the `|`, then those of the other stream, but not its key "
        "columns of the same name. A pair is emitted when the second of its rows arrives, and has the later "
        "event time of the two. A row without a match (`kind left` or `anti`), and the one row of `take "
        "first`, `last` or `best`, are emitted when the watermark is beyond the last event time that could "
        "match. They have their own event time, or that last event time if the upper bound is an expression "
        "or a window's end. A null in a key matches nothing and is counted. A row of either stream that "
        "arrives when the watermark is beyond the last event time that it could match goes to `NAME.late`, "
        "in the columns of both streams. A key that many rows have is named in the summary.",
    .options = join_options,
    .state = join_state,
    .size = sizeof(struct join),
    .determinism = DETERMINISM_BY_RECORD_ORDER,
    .keeps_columns = true,
    .uses_time = true,
    .inputs_min = 2,
    .inputs_max = 2,
    .bind = join_bind,
    .shape = join_shape,
    .open = join_open,
    .process_merged = join_process_merged,
    .facts = join_facts,
    .on_watermark = join_on_watermark,
    .describe = join_describe,
    .close = join_close,
};
