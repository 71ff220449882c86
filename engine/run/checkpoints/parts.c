#include "run/checkpoints/internal.h"

#include "run/base/words.h"

#include <stdlib.h>

enum { PARTS_VERSION = 1, PART_HAS_STATE = 1, PART_IS_SINGLE = 2 };

bool part_is_single(const struct run *run, const struct plan_node *node)
{
    return run->plan->stages[node->stage].tag == STAGE_SINGLE;
}

void parts_put(const struct run *run, uint32_t next_id, struct byte_buffer *out)
{
    const struct plan *plan = run->plan;
    words_put(out, PARTS_VERSION);
    words_put(out, next_id);
    words_put(out, plan->nodes_count);
    for (uint32_t i = 0; i < plan->nodes_count; i++) {
        const struct plan_node *node = &plan->nodes[i];
        words_put(out, run->ids[i]);
        uint64_t single = part_is_single(run, node) ? PART_IS_SINGLE : 0;
        words_put(out, node->has_state ? PART_HAS_STATE | single : 0);
        words_put_text(out, str_from(node->part));
        words_put_text(out, node->shape);
    }
}

/* --- Reading: the bytes come from outside --- */

static bool decode(struct str record, struct arena *arena, struct parts *parts)
{
    struct words words = {.left = arena_str(arena, record)};
    uint64_t version = words_take(&words), next = words_take(&words), count = words_take(&words);
    if (version != PARTS_VERSION || next > PARTS_ID_MAX || count > PLAN_NODES_MAX)
        return false;
    *parts = (struct parts){.items = arena_array(arena, struct part, MAX(count, 1)),
                            .count = (uint32_t)count,
                            .next_id = (uint32_t)next};
    for (uint32_t i = 0; i < count; i++) {
        struct part *part = &parts->items[i];
        uint64_t id = words_take(&words);
        words.is_short |= id >= next;
        part->id = (uint32_t)id;
        uint64_t is = words_take(&words);
        part->has_state = (is & PART_HAS_STATE) != 0;
        part->is_single = (is & PART_IS_SINGLE) != 0;
        part->name = words_take_text(&words);
        part->shape = words_take_text(&words);
    }
    return !words.is_short && words.left.length == 0;
}

bool parts_read(struct checkpoint *checkpoint, struct arena *arena, struct parts *parts,
                struct diag_list *diags)
{
    struct snapshot_reader *reader = checkpoint_reader(checkpoint, "parts", NULL, diags);
    uint32_t group;
    struct str record;
    bool is_good = false;
    while (snapshot_get(reader, &group, &record)) /* all checkpoints of a chain have the same list */
        is_good = decode(record, arena, parts);
    if (!is_good)
        snapshot_corrupt(reader, diags, "the list of the job's parts is invalid");
    return checkpoint_reader_close(reader) && is_good;
}

const struct part *parts_find(const struct parts *parts, struct str name)
{
    for (uint32_t i = 0; i < parts->count; i++)
        if (str_equal(parts->items[i].name, name))
            return &parts->items[i];
    return NULL;
}

/* --- Ids --- */

/* For a resume: every node must have a part in the checkpoint, except sinks. False after a diagnostic. */
static bool match_all(struct run *run, const struct parts *saved)
{
    for (uint32_t i = 0; i < run->plan->nodes_count; i++) {
        const struct plan_node *node = &run->plan->nodes[i];
        const struct part *part = parts_find(saved, str_from(node->part));
        if (part != NULL) {
            run->ids[i] = (uint16_t)part->id;
            run->has_saved[i] = true;
        } else if (node->tag != PLAN_SINK) { /* a job may gain sinks */
            struct diag *d = diag_error(run->diags, DIAG_OTHER_JOB, node->span,
                                        "the checkpoint does not contain `%s`", node->part);
            diag_hint(run->diags, d, "`--from` starts a new run with the parts that the checkpoint contains");
            return false;
        }
    }
    return true;
}

bool parts_init(struct run *run, uint32_t *next_id)
{
    const struct plan *plan = run->plan;
    struct parts saved = {0};
    run->ids = arena_array(&run->arena, uint16_t, MAX(plan->nodes_count, 1));
    run->has_saved = arena_array(&run->arena, bool, MAX(plan->nodes_count, 1));
    if (run->is_resumed && !parts_read(run->resumed, &run->arena, &saved, run->diags))
        return false;
    if (run->is_from ? !from_match(run, &saved) : run->is_resumed && !match_all(run, &saved))
        return false;
    *next_id = saved.next_id;
    for (uint32_t i = 0; i < plan->nodes_count; i++)
        if (!run->has_saved[i]) {
            if (*next_id >= PARTS_ID_MAX) {
                diag_error(run->diags, DIAG_TOO_MANY, (struct span){0},
                           "these checkpoints have had more than %d parts", PARTS_ID_MAX);
                return false;
            }
            run->ids[i] = (uint16_t)(*next_id)++;
        }
    return true;
}
