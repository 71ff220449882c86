/* Opens and closes sources, adds partitions, and saves and restores their positions in checkpoints. */
#include "run/sequencer/internal.h"

#include "core/mem.h"
#include "core/os.h"
#include "run/base/peers.h"
#include "run/base/positions.h"
#include "run/order/order.h"

#include <stdlib.h>

static bool has_dead_letters(const struct plan *plan)
{
    for (uint32_t i = 0; i < plan->exchanges_count; i++)
        if (plan->exchanges[i].from.output == PLAN_OUTPUT_DEAD)
            return true;
    return false;
}

static bool open_source(struct run *run, uint32_t index)
{
    const struct plan_node *node = &run->plan->nodes[run->plan->sources[index]];
    struct source *source = &run->sources[index];
    *source = (struct source){.config = arena_copy(&run->arena, node->config, node->source_kind->size),
                              .schema = node->outputs[0],
                              .arena = &run->arena,
                              .diags = run->diags,
                              .span = node->path_span,
                              .claims = run->plan->claims,
                              .wake = sequencer_wake,
                              .engine = run,
                              .stop = run->options.stop,
                              .job = run->plan->name,
                              .name = node->name,
                              .has_dead_letters = has_dead_letters(run->plan),
                              .is_resumed = run->has_saved[node->place]};
    if (!node->source_kind->open(source))
        return false;
    leat_assert(source->partitions_count > 0);
    return true;
}

bool sequencer_is_named(const struct run *run, uint32_t source)
{
    return run_source_node(run, source)->source_kind->discover != NULL;
}

/* Whether the source reads records as they arrive, so that each end of a batch is a cut. */
static bool is_live_source(const struct run *run, uint32_t source)
{
    const struct plan_node *node = run_source_node(run, source);
    return node->is_live || !node->is_bounded || !node->is_replayable;
}

static bool refuse_partitions(struct run *run, uint32_t total)
{
    diag_error(run->diags, DIAG_TOO_MANY, (struct span){0},
               "%u partitions are more than the %d that a job can have", total, PARTITIONS_MAX);
    return false;
}

struct partition *sequencer_add_partition(struct run *run, uint32_t source, uint32_t local)
{
    struct sequencer *s = run->sequencer;
    const struct plan_node *node = run_source_node(run, source);
    if (s->partitions_count == s->partitions_room) {
        refuse_partitions(run, s->partitions_count + 1);
        return NULL;
    }
    struct partition *p = &s->partitions[s->partitions_count];
    p->id = s->partitions_count++;
    p->source = source;
    p->local = local;
    p->owner = p->id % peers_count(run);
    p->ring = s->pieces_ahead;
    p->pieces = mem_calloc(p->ring, sizeof(*p->pieces));
    p->order_max = p->event_max = p->order_fixed = p->event_fixed = p->arrival_max = p->marked = TIME_MIN;
    p->is_live = is_live_source(run, source);
    p->has_offsets = node->source_kind->has_offsets;
    p->has_own_order = node->is_live; /* then order is by arrival */
    if (node->source_kind->begin != NULL)
        node->source_kind->begin(&run->sources[source], local, &p->resume);
    p->offset = p->saved = p->resume.b;
    return p;
}

static bool open_sources(struct run *run)
{
    struct sequencer *s = run->sequencer;
    uint32_t total = 0;
    bool is_named = false;
    for (uint32_t i = 0; i < run->plan->sources_count; i++) {
        if (!open_source(run, i))
            return false;
        total += run->sources[i].partitions_count;
        is_named |= sequencer_is_named(run, i);
        /* Set only here: lanes read it without the mutex. */
        s->is_live |= is_live_source(run, i) || sequencer_is_named(run, i);
    }
    if (total > PARTITIONS_MAX)
        return refuse_partitions(run, total);
    /* Partitions may be added while lanes run, and the array must not move then. */
    s->partitions_room = is_named ? PARTITIONS_MAX : total;
    s->partitions = mem_calloc(s->partitions_room, sizeof(*s->partitions));
    s->known = arena_array(&run->arena, uint32_t, MAX(run->plan->sources_count, 1));
    return true;
}

void sequencer_add_partitions(struct run *run)
{
    struct sequencer *s = run->sequencer;
    for (uint32_t i = 0; i < run->plan->sources_count; i++) {
        s->known[i] = run->sources[i].partitions_count;
        for (uint32_t local = 0; local < s->known[i]; local++)
            sequencer_add_partition(run, i, local);
    }
}

bool sequencer_init(struct run *run)
{
    struct sequencer *s = mem_calloc(1, sizeof(*s));
    run->sequencer = s;
    pthread_mutex_init(&s->mutex, NULL);
    atomic_init(&s->wakes, 1);
    if (!open_sources(run))
        return false;
    uint32_t total = s->partitions_room;
    /* As in one process with as many lanes: more workers are longer ways of offers and numbers, too, which the rows ahead cover. */
    s->pieces_ahead = MIN(PIECES_MAX, 2 + 2 * peers_instances(run));
    s->until_us = run->options.until_us;
    s->cut_records = test_cut(BATCH_ROWS);
    s->load = ORDER_LOAD_MAX;
    watermark_init(run);
    ended_init(run);
    sequencer_peers_init(run);
    for (uint32_t i = 0; i < SLOTS; i++) {
        s->slots[i].slices = mem_alloc(total * sizeof(struct slice));
        s->slots[i].slices_room = total;
        s->slots[i].micro_batch = UINT64_MAX;
    }
    return true;
}

void sequencer_free(struct run *run)
{
    struct sequencer *s = run->sequencer;
    if (s == NULL)
        return;
    for (uint32_t i = 0; i < SLOTS; i++)
        for (uint32_t k = 0; k < s->slots[i].slices_count; k++)
            batch_release(s->slots[i].slices[k].batch);
    for (uint32_t i = 0; i < s->partitions_count; i++) {
        for (uint32_t k = 0; k < s->partitions[i].ring; k++) {
            struct piece *piece = &s->partitions[i].pieces[k];
            batch_release(piece->batch);
            arena_free(&piece->raw.arena);
        }
        free(s->partitions[i].pieces);
    }
    watermark_free(run);
    sequencer_peers_free(run);
    free(s->cut.slices);
    for (uint32_t i = 0; i < SLOTS; i++)
        free(s->slots[i].slices);
    free(s->partitions);
    for (uint32_t i = 0; i < run->plan->sources_count; i++) {
        const struct source_kind *kind = run_source_node(run, i)->source_kind;
        if (run->sources[i].config != NULL && kind->close != NULL)
            kind->close(&run->sources[i]);
    }
    pthread_mutex_destroy(&s->mutex);
    free(s);
    run->sequencer = NULL;
}

/* --- Positions in a checkpoint (base/positions.h) --- */

struct str sequencer_partition_name(struct run *run, const struct partition *p)
{
    const struct source_kind *kind = run_source_node(run, p->source)->source_kind;
    if (kind->partition_name == NULL)
        return (struct str){"", 0};
    struct str name = str_from(kind->partition_name(&run->sources[p->source], p->local));
    name.length = MIN(name.length, WORDS_TEXT_MAX);
    return name;
}

void sequencer_save_partition(struct run *run, struct partition *p, struct byte_buffer *out)
{
    const struct source_kind *kind = run_source_node(run, p->source)->source_kind;
    const struct source_position position = partition_position(p);
    p->saved = position.b;
    words_put(out, p->source);
    words_put_text(out, sequencer_partition_name(run, p));
    words_put(out, p->has_offsets);
    words_put(out, (uint64_t)position.a);
    words_put(out, (uint64_t)position.b);
    words_put(out, position.record);
    words_put(out, (uint64_t)position.line);
    words_put(out, p->resume_rows + p->skip_rows);
    words_put(out, (uint64_t)p->order_max);
    words_put(out, (uint64_t)p->event_max);
    words_put(out, p->has_event);
    words_put(out, p->has_own_order);
    words_put(out, p->is_idle);
    words_put(out, p->since_cut);
    words_put(out, p->records);
    words_put(out, (uint64_t)p->marked);
    size_t keys = out->length;
    words_put(out, 0);
    key_times_save(&p->keys, out);
    uint64_t keys_bytes = out->length - keys - sizeof(keys_bytes);
    memcpy(out->data + keys, &keys_bytes, sizeof(keys_bytes));
    char mark[SOURCE_MARK_BYTES];
    size_t bytes = kind->mark == NULL ? 0 : kind->mark(&run->sources[p->source], p->local, &position, mark);
    words_put_text(out, (struct str){mark, bytes});
}

/* Called when the micro-batch with the barrier is formed: all its rows are sequenced, and none after them. */
void sequencer_save(struct run *run, bool is_finished, struct byte_buffer *out)
{
    struct sequencer *s = run->sequencer;
    const struct plan *plan = run->plan;
    const struct replay_log *log = order_replay_log(run);
    enum positions_state state = is_finished          ? POSITIONS_FINAL
                                 : s->has_input_ended ? POSITIONS_ENDED
                                                      : POSITIONS_GO_ON;
    words_put(out, state);
    words_put(out, POSITIONS_VERSION);
    words_put(out, atomic_load(&s->formed) + 1);
    words_put(out, log->identity);
    words_put(out, s->logged_next);
    words_put(out, log->is_live);
    words_put(out, (uint64_t)s->source_watermarks[plan->sources_count]);
    words_put(out, plan->sources_count);
    for (uint32_t i = 0; i < plan->sources_count; i++) {
        words_put_text(out, plan->nodes[plan->sources[i]].name);
        words_put(out, (uint64_t)s->source_watermarks[i]);
    }
    words_put(out, s->partitions_count);
    s->has_risen = false;
    for (uint32_t i = 0; i < s->partitions_count; i++) {
        struct partition *p = &s->partitions[i];
        if (unlikely(s->peers != NULL))
            peers_put_position(run, p, out);
        else
            sequencer_save_partition(run, p, out);
    }
    if (state == POSITIONS_ENDED)
        ended_save(run, out);
    else if (state == POSITIONS_GO_ON && s->is_at_until)
        words_put(out, (uint64_t)s->until_us);
}

static bool refuse(struct run *run, const char *why)
{
    struct diag *d = diag_error(run->diags, DIAG_OTHER_JOB, (struct span){0}, "%s", why);
    diag_hint(run->diags, d,
              run->is_from
                  ? "give the job the same inputs as before, or start the source anew: --drop-state SOURCE"
                  : "give the job the same inputs as before, or start anew with --fresh");
    return false;
}

static bool refuse_version(struct run *run, uint64_t version)
{
    struct diag *d =
        diag_error(run->diags, DIAG_OTHER_JOB, (struct span){0},
                   "the checkpoint's positions are of format %llu, and this version of leat reads format %d",
                   (unsigned long long)version, POSITIONS_VERSION);
    diag_hint(
        run->diags, d,
        version < POSITIONS_VERSION
            ? "resume with the version of leat that wrote the checkpoint, or start anew with --fresh "
              "(positions up to format 6 count records from an offset on, which is wrong where offsets have "
              "gaps)"
            : "resume with the version of leat that wrote the checkpoint, or start anew with --fresh");
    return false;
}

static bool refuse_order(struct run *run)
{
    struct diag *d = diag_error(
        run->diags, DIAG_OTHER_JOB, (struct span){0},
        "the run replays another order log than before the checkpoint, or had none before, or has none now");
    diag_hint(run->diags, d,
              "give the run the same --order and recordings as before, or start anew with --fresh");
    return false;
}

static bool restore_partition(struct run *run, struct partition *p, const struct saved_partition *saved)
{
    struct source *source = &run->sources[p->source];
    const struct source_kind *kind = run_source_node(run, p->source)->source_kind;
    if (p->has_offsets != saved->has_offsets)
        return refuse(run, "the checkpoint has sources of other kinds than the job");
    p->resume = saved->resume;
    p->skip_rows = saved->resume_rows;
    p->offset = p->reach = p->saved = p->resume.b;
    p->order_max = p->order_fixed = saved->order_max;
    p->event_max = p->event_fixed = saved->event_max;
    p->has_event = p->has_event_fixed = saved->has_event;
    p->marked = saved->marked;
    p->has_own_order = saved->has_own_order;
    p->is_idle = saved->is_idle;
    p->since_cut = MIN(saved->since_cut, run->sequencer->cut_records - 1);
    p->records = saved->records;
    run->sequencer->records_before += p->records;
    run->sequencer->order_highest = MAX(run->sequencer->order_highest, p->order_max);
    if (!key_times_load(&p->keys, saved->keys))
        return refuse(run, "the checkpoint's positions are damaged");
    if (p->records == 0)
        return kind->begin == NULL || kind->seek(source, p->local, &p->resume);
    return (kind->mark_check == NULL || kind->mark_check(source, p->local, &p->resume, saved->mark)) &&
           kind->seek(source, p->local, &p->resume);
}

uint32_t sequencer_find_local(struct run *run, uint32_t source, struct str name)
{
    const struct source_kind *kind = run_source_node(run, source)->source_kind;
    for (uint32_t i = 0; kind->partition_name != NULL && i < run->sources[source].partitions_count; i++)
        if (str_is(name, kind->partition_name(&run->sources[source], i)))
            return i;
    return UINT32_MAX;
}

static bool refuse_gone(struct run *run, uint32_t source, struct str name)
{
    struct diag *d = diag_error(run->diags, DIAG_OTHER_JOB, run_source_node(run, source)->span,
                                "partition `%.*s` of source `%.*s` is in the checkpoint and no longer exists",
                                STR_ARGS(name), STR_ARGS(run_source_node(run, source)->name));
    if (run->is_from)
        diag_hint(run->diags, d,
                  "restore the partition with its records, or start the source anew: --drop-state %.*s",
                  STR_ARGS(run_source_node(run, source)->name));
    else
        diag_hint(run->diags, d, "restore the partition with its records, or start anew with --fresh");
    return false;
}

/* Adds a partition of the checkpoint, at its position. sources: per source of the checkpoint, its index in
 * the run; UINT32_MAX: its state is left behind. False after a diagnostic. */
static bool add_saved(struct run *run, const struct saved_partition *saved, const uint32_t *sources)
{
    uint32_t source = sources[saved->source];
    if (source == UINT32_MAX)
        return true;
    bool is_named = sequencer_is_named(run, source);
    uint32_t *next = &run->sequencer->known[source];
    uint32_t local = is_named ? sequencer_find_local(run, source, saved->name) : (*next)++;
    if (is_named && local == UINT32_MAX)
        return refuse_gone(run, source, saved->name);
    if (local >= run->sources[source].partitions_count)
        return refuse(run, "the checkpoint has more partitions than the sources have now");
    struct partition *p = sequencer_add_partition(run, source, local);
    return p != NULL && restore_partition(run, p, saved);
}

/* Adds the partitions of sources that the checkpoint does not have; their ids come after all others. */
static bool add_new_sources(struct run *run)
{
    for (uint32_t i = 0; i < run->plan->sources_count; i++)
        for (uint32_t local = 0;
             !run->has_saved[run->plan->sources[i]] && local < run->sources[i].partitions_count; local++) {
            run->sequencer->known[i] = local + 1;
            if (sequencer_add_partition(run, i, local) == NULL)
                return false;
        }
    return true;
}

/* Whether sources that cannot gain partitions have all those of the checkpoint. False after a diagnostic. */
static bool all_are_saved(struct run *run)
{
    for (uint32_t i = 0; i < run->plan->sources_count; i++)
        if (!sequencer_is_named(run, i) && run->sequencer->known[i] != run->sources[i].partitions_count)
            return refuse(run, "the checkpoint has fewer partitions than the sources have now");
    return true;
}

/* Restores watermarks, and finds by name which source of the checkpoint is which of the run. False after a
 * diagnostic. */
static bool take_sources(struct run *run, struct words *saved, uint64_t count, uint32_t *sources)
{
    const struct plan *plan = run->plan;
    for (uint64_t i = 0; i < count; i++) {
        struct str name = words_take_text(saved);
        int64_t watermark = (int64_t)words_take(saved);
        sources[i] = UINT32_MAX;
        for (uint32_t k = 0; k < plan->sources_count; k++)
            if (run->has_saved[plan->sources[k]] && str_equal(plan->nodes[plan->sources[k]].name, name)) {
                sources[i] = k;
                run->sequencer->source_watermarks[k] = watermark;
            }
        if (sources[i] == UINT32_MAX && !run->is_from)
            return refuse(run, "the checkpoint has other sources than the job");
    }
    return true;
}

bool sequencer_restore(struct run *run, struct str positions)
{
    struct sequencer *s = run->sequencer;
    struct replay_log *log = order_replay_log(run);
    struct words saved = {.left = positions};
    (void)words_take(&saved); /* the state */
    uint64_t version = words_take(&saved);
    if (version != POSITIONS_VERSION)
        return refuse_version(run, version);
    uint64_t micro_batch = words_take(&saved);
    uint64_t replayed = words_take(&saved), next = words_take(&saved), is_live = words_take(&saved);
    bool is_same_order = replayed == log->identity;
    if (!is_same_order && !run->is_from)
        return refuse_order(run);
    log->next = replayed == 0 || !is_same_order ? micro_batch : next;
    log->is_live = is_live != 0 && is_same_order;
    s->source_watermarks[run->plan->sources_count] = (int64_t)words_take(&saved);
    uint64_t sources_count = words_take(&saved);
    uint32_t sources[PLAN_SOURCES_MAX];
    saved.is_short |= sources_count > PLAN_SOURCES_MAX;
    if (!saved.is_short && sources_count != run->plan->sources_count && !run->is_from)
        return refuse(run, "the checkpoint has another number of sources than the job");
    if (!saved.is_short && !take_sources(run, &saved, sources_count, sources))
        return false;
    uint64_t count = words_take(&saved);
    bool is_good = !saved.is_short;
    for (uint64_t i = 0; is_good && i < count; i++) {
        struct saved_partition p = saved_take_partition(&saved);
        saved.is_short |= p.source >= sources_count;
        is_good = !saved.is_short && add_saved(run, &p, sources);
    }
    if (is_good && positions_state(positions) == POSITIONS_ENDED)
        saved.is_short |= !ended_restore(run, &saved);
    else if (is_good && positions_until(positions) != TIME_MIN)
        (void)words_take(&saved);
    if (saved.is_short || (is_good && saved.left.length > 0))
        return refuse(run, "the checkpoint's positions are damaged");
    is_good = is_good && add_new_sources(run) && all_are_saved(run);
    s->first = s->last_barrier = micro_batch;
    atomic_store(&s->formed, micro_batch);
    atomic_store(&s->claimed, micro_batch);
    return is_good;
}

enum { DESCRIBED_MAX = 8 };

void run_describe_order_end(const struct run *run, struct byte_buffer *out)
{
    const struct sequencer *s = run->sequencer;
    for (uint32_t i = 0; i < MIN(s->partitions_count, DESCRIBED_MAX); i++) {
        const struct partition *p = &s->partitions[i];
        const struct source_kind *kind = run_source_node(run, p->source)->source_kind;
        struct source *source = &run->sources[p->source];
        buffer_printf(out, "%s%s %llu records", i > 0 ? ", " : "",
                      kind->partition_name == NULL ? "" : kind->partition_name(source, p->local),
                      (unsigned long long)p->logged.records);
        if (kind->has_offsets)
            buffer_printf(out, " (the next offset is %lld)", (long long)p->logged.offset);
    }
    if (s->partitions_count > DESCRIBED_MAX)
        buffer_printf(out, " and %u more partitions", s->partitions_count - DESCRIBED_MAX);
}
