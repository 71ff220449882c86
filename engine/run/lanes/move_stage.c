/* Moves of operators in stages with one instance: learners, and what stands before and behind them.
 *
 * Such an operator has no key groups: it moves as a whole, with a stage's second barrier of a change of the placement
 * (run/base/placements.h). Behind the barrier's micro-batch it gives its state as the records of a checkpoint, and is closed; a
 * fresh one, whose rows lie in another instance's database, takes these records and copies the rows, as at a start from a
 * checkpoint. Then it writes itself into the barrier's checkpoint, which is a base: what was saved before says nothing of what it
 * took. An operator that is followed (run/publish) stays where it is: who follows it has notes of this very one. */
#include "run/lanes/internal.h"

#include "core/diag_copy.h"
#include "core/operator_state.h"
#include "core/os.h"
#include "run/base/placements.h"
#include "state/checkpoint.h"

/* Opens a fresh instance that has the rows of the one before it in another store; NULL, both of them: the job has none. */
static bool open_node(struct node_instance *node, struct state_store *from, struct state_store *to)
{
    const struct operator_kind *kind = node->node->operator_kind;
    struct operator_context *context = &node->context;
    memcpy(context->config, node->node->config, kind->size);
    if (to == NULL)
        return operator_open(kind, context);
    context->state_store = to;
    state_store_spare_unknown(to);
    bool is_good = operator_open(kind, context) && operator_import(kind, context, from);
    if (context->cold_store != NULL)
        store_import_tables(to, from);
    state_store_drop(from, context->id);
    return is_good;
}

/* Takes the state's records in a fresh instance. False after a diagnostic, or a store has failed. */
static bool take_node(struct node_instance *node, struct str records, struct state_store *from,
                      struct state_store *to, struct diag_list *diags)
{
    const struct operator_kind *kind = node->node->operator_kind;
    struct operator_context *context = &node->context;
    context->diags = diags;
    struct snapshot_reader *reader = snapshot_memory_reader(records);
    bool is_good = open_node(node, from, to) && operator_restore(kind, context, reader);
    return checkpoint_reader_close(reader) && is_good;
}

static void say_failed(struct stage_instance *stage, const struct diag_list *diags)
{
    pthread_mutex_lock(&stage->run->diags_mutex);
    diag_add_all(stage->run->diags, diags);
    pthread_mutex_unlock(&stage->run->diags_mutex);
    run_fail(stage->run);
}

static void move_node(struct stage_instance *stage, struct node_instance *node, uint32_t home)
{
    struct run *run = stage->run;
    struct byte_buffer records;
    struct arena arena = {0};
    struct diag_list diags, *usual = node->context.diags;
    struct state_store *from = state_stores_of(&run->stores, node->home),
                       *to = state_stores_of(&run->stores, home);
    uint64_t written = to == NULL ? 0 : state_store_written(to);
    struct snapshot_writer *writer = snapshot_memory_begin(stage->slot->barrier);
    diag_list_init(&diags, &arena);
    bool is_good = operator_snapshot(node->node->operator_kind, &node->context, writer);
    is_good = snapshot_memory_end(writer, &records) && is_good;
    operator_close(node->node->operator_kind, &node->context);
    failpoint("move.stage");
    is_good = take_node(node, (struct str){records.data, records.length}, from, to, &diags) && is_good;
    node->context.diags = usual;
    if (!is_good)
        say_failed(stage, &diags);
    node->home = home;
    written = to == NULL ? 0 : state_store_written(to) - written;
    atomic_fetch_add(&run->lanes->moved_bytes, records.length + written);
    atomic_fetch_add(&run->lanes->moved_operators, 1);
    buffer_free(&records);
    arena_free(&arena);
    failpoint("move.stage_taken");
}

void stage_move(struct stage_instance *stage, const struct placement *next)
{
    int64_t begin = os_monotonic_us();
    if (stage->publishes)
        return;
    for (uint32_t i = 0; i < stage->stage->nodes_count && !run_has_failed(stage->run); i++) {
        struct node_instance *node = &stage->nodes[i];
        uint32_t home = placements_home(stage->run, next, node->context.place);
        if (placements_move_whole(stage->run, node->node) && home != node->home)
            move_node(stage, node, home);
    }
    note_move_stop(stage->run, begin);
}
