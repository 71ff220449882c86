/* The load of key groups, as this worker's lanes see it: rows are counted where they are sent to keyed stages (exchange.c), the time
 * of nodes where they run (time.c).
 *
 * The key of most of a group's rows, where one key has that many, is found by votes (Boyer and Moore): of each batch one row votes for
 * its key, and against the key of its group that has more votes so far. */
#include "run/lanes/internal.h"

#include "run/base/loads.h"
#include "run/base/peers.h"

#include "core/describe.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/operator_state.h"

#include <stdio.h>
#include <stdlib.h>

void load_init(struct run *run)
{
    struct lanes *lanes = run->lanes;
    if (run->loads == NULL)
        return;
    lanes->load_before = arena_new(&run->arena, struct worker_load);
    for (uint32_t i = 0; i < run->plan->exchanges_count; i++) {
        struct exchange *x = &lanes->exchanges[i];
        if (x->consumers > 1 && x->plan->mode == EXCHANGE_HASH && x->own_spills > 0)
            x->load = arena_array(&run->arena, struct exchange_load, x->own_spills);
    }
}

void load_free(struct run *run)
{
    for (uint32_t i = 0; run->lanes->exchanges != NULL && i < run->plan->exchanges_count; i++) {
        const struct exchange *x = &run->lanes->exchanges[i];
        for (uint32_t k = 0; x->load != NULL && k < x->own_spills; k++)
            pthread_mutex_destroy(&x->load[k].mutex);
    }
}

/* Writes the key of the batch's row as people read it, cut where it is long. */
static void put_key(const struct exchange *x, const struct batch *batch, uint32_t row, char *text)
{
    struct byte_buffer out = {0};
    for (uint32_t i = 0; i < x->plan->key_count; i++) {
        const struct field *field = &batch->schema->fields[x->plan->key_columns[i]];
        char name[LOAD_KEY_BYTES];
        struct describe d;
        snprintf(name, sizeof(name), "%.*s", (int)MIN(field->name.length, sizeof(name) - 1),
                 field->name.data);
        if (i > 0)
            buffer_append(&out, ", ", 2);
        describe_begin(&d, &out, false);
        describe_value(&d, name, &batch->columns[x->plan->key_columns[i]], &field->type, row);
        describe_end(&d);
        while (out.length > 0 && out.data[out.length - 1] == '\n')
            out.length--;
    }
    snprintf(text, LOAD_KEY_BYTES, "%.*s", (int)MIN(out.length, LOAD_KEY_BYTES - 1), out.data);
    buffer_free(&out);
}

void load_vote(const struct exchange *x, struct exchange_load *load, const struct batch *batch,
               const struct key *keys)
{
    uint32_t voter = load->voter++ % batch->selected;
    uint64_t hash = key_hash(keys[voter]);
    struct load_key *key = &load->keys[key_group(hash)];
    pthread_mutex_lock(&load->mutex);
    if (key->votes == 0) {
        key->hash = hash;
        put_key(x, batch, batch_row(batch, voter), key->text);
    }
    if (key->hash != hash)
        key->votes--;
    else if (key->votes < LOAD_VOTES_MAX)
        key->votes++;
    pthread_mutex_unlock(&load->mutex);
}

/* The key of the group with the most votes; "": this worker has seen none. */
static void find_key(const struct run *run, uint32_t group, char *text)
{
    uint32_t votes = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < run->plan->exchanges_count; i++) {
        struct exchange *x = &run->lanes->exchanges[i];
        for (uint32_t k = 0; x->load != NULL && k < x->own_spills; k++) {
            pthread_mutex_lock(&x->load[k].mutex);
            if (x->load[k].keys[group].votes > votes) {
                votes = x->load[k].keys[group].votes;
                memcpy(text, x->load[k].keys[group].text, LOAD_KEY_BYTES);
            }
            pthread_mutex_unlock(&x->load[k].mutex);
        }
    }
}

/* Says of groups that are too large which key they have. */
static void tell_hot(struct run *run)
{
    double share;
    char key[LOAD_KEY_BYTES];
    for (uint32_t group = 0; (group = loads_next_hot(run, group, &share)) < KEY_GROUPS;) {
        find_key(run, group, key);
        log_say(
            LOG_LEVEL_WARNING,
            "one key has most of %.0f %% of the work by key, more than one of %u instances can have, and no placement "
            "mends that: %s (key group %u)",
            100 * share, peers_instances(run), key[0] == '\0' ? "its rows come at other workers" : key,
            group);
    }
}

/* Says what moves, of the change that was decided on last. */
static void tell_change(struct run *run)
{
    struct loads_change change;
    if (!loads_take_change(run, &change))
        return;
    log_say(
        LOG_LEVEL_INFO,
        "%u key groups move, with about %.2f of %.2f MiB of state: the busiest lane had %.2f times the mean load, and "
        "gets %.2f",
        change.groups, change.bytes / (1 << 20), change.of_bytes / (1 << 20), change.before, change.after);
}

void stage_weigh(struct stage_instance *stage)
{
    struct run *run = stage->run;
    struct state_weight weight = {.queued = 0};
    if (run->loads == NULL || !loads_is_keyed(run, stage->index))
        return;
    for (uint32_t k = 0; k < stage->stage->nodes_count; k++)
        if (stage->nodes[k].node->operator_kind != NULL)
            operator_weigh(stage->nodes[k].node->operator_kind, &stage->nodes[k].context, &weight);
    pthread_mutex_lock(&run->lanes->reports_mutex);
    stage->weight = weight;
    pthread_mutex_unlock(&run->lanes->reports_mutex);
}

/* All rows and time of this life, and the state of now. */
static void add_up(const struct run *run, struct worker_load *load)
{
    const struct lanes *lanes = run->lanes;
    for (uint32_t i = 0; i < run->plan->exchanges_count; i++) {
        const struct exchange *x = &lanes->exchanges[i];
        for (uint32_t k = 0; x->load != NULL && k < x->own_spills; k++)
            for (uint32_t group = 0; group < KEY_GROUPS; group++)
                load->stages[x->plan->to_stage].rows[group] +=
                    atomic_load_explicit(&x->load[k].rows[group], memory_order_relaxed);
    }
    for (uint32_t i = 0; i < lanes->stages_total; i++)
        for (uint32_t k = 0; k < lanes->stages[i]->stage->nodes_count; k++)
            load->stages[lanes->stages[i]->index].ns +=
                atomic_load_explicit(&lanes->stages[i]->nodes[k].own_ns, memory_order_relaxed);
    pthread_mutex_lock(&run->lanes->reports_mutex);
    for (uint32_t i = 0; i < lanes->stages_total; i++) {
        const struct state_weight *weight = &lanes->stages[i]->weight;
        load->stages[lanes->stages[i]->index].queued += weight->queued;
        for (uint32_t group = 0; group < KEY_GROUPS; group++)
            load->bytes[group] += weight->groups[group];
    }
    pthread_mutex_unlock(&run->lanes->reports_mutex);
}

void lanes_measure(struct run *run)
{
    struct worker_load *before = run->lanes->load_before;
    if (run->loads == NULL)
        return;
    struct worker_load *now = mem_calloc(1, sizeof(*now)), *since = mem_alloc(sizeof(*since));
    add_up(run, now);
    *since = *now;
    for (uint32_t i = 0; i < run->plan->stages_count; i++) {
        since->stages[i].ns -= before->stages[i].ns;
        for (uint32_t group = 0; group < KEY_GROUPS; group++)
            since->stages[i].rows[group] -= before->stages[i].rows[group];
    }
    *before = *now;
    if (peers_is_leader(run)) {
        loads_add(run, since);
        tell_hot(run);
        tell_change(run);
    } else {
        loads_say(run, since);
    }
    free(now);
    free(since);
}
