#include "run/base/positions.h"

#include "run/run.h"
#include "run/trace.h"

#include "core/civil.h"

struct saved_partition saved_take_partition(struct words *saved)
{
    struct saved_partition p = {.source = words_take(saved), .name = words_take_text(saved)};
    p.has_offsets = words_take(saved) != 0;
    p.resume.a = (int64_t)words_take(saved);
    p.resume.b = (int64_t)words_take(saved);
    p.resume.record = words_take(saved);
    p.resume.line = (int64_t)words_take(saved);
    p.resume_rows = (uint32_t)words_take(saved);
    p.order_max = (int64_t)words_take(saved);
    p.event_max = (int64_t)words_take(saved);
    p.has_event = words_take(saved) != 0;
    p.has_own_order = words_take(saved) != 0;
    p.is_idle = words_take(saved) != 0;
    p.since_cut = (uint32_t)words_take(saved) % BATCH_ROWS;
    p.records = words_take(saved);
    p.marked = (int64_t)words_take(saved);
    p.keys = words_take_text(saved);
    p.mark = words_take_text(saved);
    return p;
}

/* Skips the words before the sources (as sequencer_restore reads them), and returns the number of sources. */
static uint64_t skip_head(struct words *saved)
{
    for (int word = 0; word < 7; word++)
        (void)words_take(saved);
    return words_take(saved);
}

void positions_watermarks(struct str positions, const struct plan *plan, int64_t *sources)
{
    struct words saved = {.left = positions};
    for (uint32_t i = 0; i < plan->sources_count; i++)
        sources[i] = TIME_MIN;
    for (int word = 0; word < 6; word++)
        (void)words_take(&saved);
    sources[plan->sources_count] = (int64_t)words_take(&saved);
    uint64_t count = words_take(&saved);
    for (uint64_t i = 0; i < count && !saved.is_short; i++) {
        struct str name = words_take_text(&saved);
        int64_t watermark = (int64_t)words_take(&saved);
        for (uint32_t k = 0; k < plan->sources_count && !saved.is_short; k++)
            if (str_equal(plan->nodes[plan->sources[k]].name, name))
                sources[k] = watermark;
    }
}

uint64_t positions_micro_batch(struct str positions)
{
    struct words saved = {.left = positions};
    (void)words_take(&saved);
    return words_take(&saved) == POSITIONS_VERSION ? words_take(&saved) : UINT64_MAX;
}

/* Sources that discover partitions identify a partition by its name; other sources, by its place in the
 * source. */
bool positions_are_before(struct str positions, const struct plan *plan, const struct trace *trace)
{
    struct words saved = {.left = positions};
    const struct plan_node *node = &plan->nodes[plan->sources[trace->source_index]];
    uint64_t wanted = UINT64_MAX, count = skip_head(&saved);
    for (uint64_t i = 0; i < count && !saved.is_short; i++) {
        wanted = str_equal(words_take_text(&saved), node->name) ? i : wanted;
        (void)words_take(&saved);
    }
    uint32_t place = 0;
    if (positions_micro_batch(positions) == UINT64_MAX)
        return false;
    for (count = words_take(&saved); count > 0 && !saved.is_short; count--) {
        struct saved_partition p = saved_take_partition(&saved);
        bool is_named = node->source_kind->discover != NULL;
        if (p.source != wanted ||
            !(is_named ? str_is(p.name, trace->partition_name) : place++ == trace->partition))
            continue;
        return trace->by == TRACE_BY_RECORD ? p.records <= (uint64_t)trace->at : p.resume.b <= trace->at;
    }
    return !saved.is_short; /* no record of the partition had been read */
}

enum positions_state positions_state(struct str positions)
{
    struct words saved = {.left = positions};
    uint64_t state = words_take(&saved);
    return state == POSITIONS_GO_ON || state == POSITIONS_ENDED ? (enum positions_state)state
                                                                : POSITIONS_FINAL;
}

int64_t positions_until(struct str positions)
{
    struct words saved = {.left = positions};
    if (positions_state(positions) != POSITIONS_GO_ON || positions_micro_batch(positions) == UINT64_MAX)
        return TIME_MIN;
    for (uint64_t sources = skip_head(&saved); sources > 0 && !saved.is_short; sources--) {
        (void)words_take_text(&saved);
        (void)words_take(&saved);
    }
    for (uint64_t count = words_take(&saved); count > 0 && !saved.is_short; count--)
        (void)saved_take_partition(&saved);
    int64_t until = (int64_t)words_take(&saved);
    return saved.is_short ? TIME_MIN : until;
}

static void describe_partition(const struct saved_partition *p, struct str source, int64_t watermark,
                               struct byte_buffer *out)
{
    char time[32] = "none";
    if (watermark != TIME_MIN && watermark != TIME_MAX)
        time[civil_format(watermark, time)] = '\0';
    buffer_printf(out, "  source %-24.*s %12llu records  ", STR_ARGS(source), (unsigned long long)p->records);
    if (p->has_offsets)
        buffer_printf(out, "next offset %lld", (long long)p->resume.b);
    else
        buffer_printf(out, "at %lld, %lld + %u", (long long)p->resume.a, (long long)p->resume.b,
                      p->resume_rows);
    buffer_printf(out, "  watermark %s  %.*s\n", time, STR_ARGS(p->name));
}

void run_describe_positions(struct str positions, struct byte_buffer *out)
{
    struct words saved = {.left = positions};
    static const char *const states[] = {
        [POSITIONS_GO_ON] = "",
        [POSITIONS_FINAL] = ", the last: all sources have ended",
        [POSITIONS_ENDED] = ": all sources have ended, and operators have work left",
    };
    (void)words_take(&saved); /* the state */
    uint64_t version = words_take(&saved), micro_batch = words_take(&saved), replayed = words_take(&saved),
             next = words_take(&saved), is_live = words_take(&saved);
    (void)words_take(&saved); /* the arrival clock */
    uint64_t sources = words_take(&saved);
    if (saved.is_short || version != POSITIONS_VERSION || sources > PLAN_SOURCES_MAX) {
        buffer_printf(out, "source positions of another version of leat: format %llu, not %d\n",
                      (unsigned long long)version, POSITIONS_VERSION);
        return;
    }
    buffer_printf(out, "micro-batch %llu%s\n", (unsigned long long)micro_batch,
                  states[positions_state(positions)]);
    if (replayed != 0)
        buffer_printf(out, "  replays the order log %016llx%s, micro-batch %llu of it is next\n",
                      (unsigned long long)replayed, is_live ? " of a live run" : "",
                      (unsigned long long)next);
    struct str names[PLAN_SOURCES_MAX];
    int64_t watermarks[PLAN_SOURCES_MAX];
    for (uint64_t i = 0; i < sources; i++) {
        names[i] = words_take_text(&saved);
        watermarks[i] = (int64_t)words_take(&saved);
    }
    uint64_t count = words_take(&saved);
    for (uint64_t i = 0; i < count && !saved.is_short; i++) {
        struct saved_partition p = saved_take_partition(&saved);
        if (saved.is_short || p.source >= sources)
            break;
        describe_partition(&p, names[p.source], watermarks[p.source], out);
    }
}
