/* `leat run JOB --from DIR`: a new run that begins with the state of another run's checkpoint, in a directory or in an object
 * store (from_store.c).
 *
 * The run has an id of its own, because it does not continue what the other run did behind the checkpoint.
 * State is taken over part by part, by name (plan_node.part) and shape (core/shape.h). Where that is
 * impossible, every difference is reported at once, and only the parts that `--drop-state` names are left
 * behind.
 *
 * The generation of such a run records what it began from. Until its first checkpoint is published, a start
 * without --from begins there again, under the same run id; rows that had left the other run's outbox by
 * then are recorded under the other run's id. */
#include "run/checkpoints/internal.h"

#include "core/mem.h"
#include "core/os.h"
#include "core/shape.h"
#include "run/base/placements.h"
#include "run/base/positions.h"
#include "state/objects/objects.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { FROM_STEPS_MAX = 16 }; /* bound of directories that go_further takes, one after another */

/* --- The checkpoint --- */

static bool refuse_path(struct run *run, const char *path, const char *what)
{
    struct diag *d =
        diag_error(run->diags, DIAG_NO_CHECKPOINT, (struct span){0}, "--from: `%s` %s", path, what);
    diag_hint(
        run->diags, d,
        "name a checkpoint directory, a savepoint or an object store, or one of its checkpoints: --from DIR@3-17; `leat "
        "checkpoint list DIR` lists the checkpoints; or the file of a head's manifest, where there were several workers");
    return false;
}

/* Opens the parts that the manifest's file names. False after a diagnostic. */
static bool open_head_at(struct run *run, const char *path)
{
    struct byte_buffer manifest = {0};
    struct run_head *head = mem_calloc(1, sizeof(*head));
    if (run_head_load(path, &manifest, head, run->diags))
        run->resumed = run_head_open(head, (struct str){"", 0}, run->diags);
    free(head);
    buffer_free(&manifest);
    return run->resumed != NULL;
}

/* Opens the directory, or the object store's copy; of a head in a store, its parts, as run->resumed. False after a diagnostic. */
static bool open_directory(struct run *run)
{
    struct checkpoints *c = run->checkpoints;
    bool is_store = objects_is_url(str_from(c->from.path));
    char *real = is_store ? from_store_copy(run) : realpath(c->from.path, NULL);
    if (is_store && real != NULL && run_head_is_file(real)) {
        bool is_good = open_head_at(run, real);
        free(real);
        return is_good;
    }
    if (real == NULL)
        return !is_store &&
               refuse_path(run, c->from.path, errno == ENOENT ? "does not exist" : strerror(errno));
    struct checkpoint_dir_options options = {.path = real, .read_only = true};
    checkpoint_dir_close(c->from_dir);
    c->from_dir = checkpoint_dir_open(&options, run->diags);
    if (is_store) {
        free(real);
    } else {
        free(c->from.path);
        c->from.path = real;
    }
    return c->from_dir != NULL;
}

static bool take_drops(struct run *run)
{
    struct byte_buffer names = {0};
    for (uint32_t i = 0; i < run->options.drops_count; i++)
        buffer_printf(&names, "%s\n", run->options.drops[i]);
    struct str *dropped = &run->checkpoints->from.dropped;
    dropped->data = mem_alloc(names.length + 1);
    if (names.length > 0)
        memcpy((char *)(uintptr_t)dropped->data, names.data, names.length);
    dropped->length = names.length;
    buffer_free(&names);
    return true;
}

/* The directory has no checkpoint. If its newest run began from a checkpoint in another directory, takes that
 * directory and checkpoint instead, and returns true. The parts which that run dropped do not count: this
 * run's options name its own. */
static bool go_further(struct run *run)
{
    struct checkpoints *c = run->checkpoints;
    struct checkpoint_from further;
    struct run_id run_of_it;
    if (!checkpoint_find_from(c->from_dir, &further, &run_of_it))
        return false;
    free(c->from.path);
    c->from.path = further.path;
    c->from.id = further.id;
    further.path = NULL;
    checkpoint_from_free(&further);
    return true;
}

static bool refuse_finished(struct run *run)
{
    bool is_final = positions_state(checkpoint_info(run->resumed)->sources) == POSITIONS_FINAL;
    struct diag *d = diag_error(
        run->diags, DIAG_RESUME_OR_FRESH, (struct span){0}, "%s",
        is_final
            ? "the run of this checkpoint has finished: its sources have ended, and its watermark is at the end"
            : "the sources of this checkpoint have ended, and the job has another source, which cannot begin now");
    diag_hint(
        run->diags, d,
        "start from an earlier checkpoint, --from DIR@3-17; or keep the state and start the sources anew: "
        "--drop-state and the name of each source");
    return false;
}

/* Adds notes that say what the run begins with, and which records it reads again. */
static void note_start(struct run *run, const struct checkpoint_info *info)
{
    char id[33];
    for (int i = 0; i < 16; i++)
        snprintf(id + 2 * i, 3, "%02x", info->run.bytes[i]);
    run_note(run, "a new run, with the state of checkpoint %u-%llu in %s (run %.8s)", info->id.generation,
             (unsigned long long)info->id.epoch, run->checkpoints->from.path, id);
    run_note(
        run,
        "records that run %.8s read after that checkpoint are read again, and their rows are written again",
        id);
}

/* The path is that of a head's manifest, whose parts are one checkpoint. False after a diagnostic. */
static bool open_head(struct run *run)
{
    struct checkpoints *c = run->checkpoints;
    char *real = realpath(c->from.path, NULL);
    if (real == NULL)
        return refuse_path(run, c->from.path, "does not exist");
    free(c->from.path);
    c->from.path = real;
    return open_head_at(run, real);
}

bool from_open(struct run *run)
{
    struct checkpoints *c = run->checkpoints;
    if (c->from.path == NULL) {
        c->from.path = mem_strdup(run->options.from);
        c->from.path[checkpoint_name_split(c->from.path, &c->from.id)] = 0;
        if (!take_drops(run))
            return false;
    }
    enum checkpoint_found found = CHECKPOINT_NONE;
    for (int step = 0; found == CHECKPOINT_NONE; step++) {
        bool is_head = run_head_is_file(c->from.path);
        if (!(is_head ? open_head(run) : open_directory(run)))
            return false;
        if (run->resumed != NULL)
            break;
        if (c->from.id.generation != 0)
            run->resumed = checkpoint_open(c->from_dir, c->from.id, run->diags);
        else
            found = checkpoint_find(c->from_dir, &run->resumed, run->diags);
        if (run->resumed != NULL)
            break;
        if (c->from.id.generation != 0 || found == CHECKPOINT_REFUSED)
            return false;
        if (step == FROM_STEPS_MAX || !go_further(run))
            return refuse_path(run, c->from.path, "contains no checkpoint");
    }
    const struct checkpoint_info *info = checkpoint_info(run->resumed);
    c->from.id = info->id;
    run->is_resumed = run->is_from = true;
    note_start(run, info);
    return true;
}

bool from_has_begun(const struct run *run)
{
    const struct run_options *options = &run->options;
    struct checkpoint_id id;
    if (!options->is_restart)
        return false;
    char *path = strndup(options->from, checkpoint_name_split(options->from, &id));
    char *real = objects_is_url(str_from(path)) ? mem_strdup(path) : realpath(path, NULL);
    bool has_begun = real != NULL && checkpoint_began_from(run->dir, real);
    free(real);
    free(path);
    return has_begun;
}

bool from_is_unfinished(struct run *run)
{
    struct checkpoints *c = run->checkpoints;
    run->is_begun_again = checkpoint_find_from(run->dir, &c->from, &c->from_run);
    if (run->is_begun_again)
        run_note(
            run,
            "the newest run in `%s` started from another run's checkpoint and has written none of its own: "
            "it starts from that checkpoint again",
            run->path);
    return run->is_begun_again;
}

/* --- The checkpoint's parts --- */

struct matching {
    struct run *run;
    const struct parts *saved;
    bool *is_used; /* per name of --drop-state: the checkpoint has that part */
    const char *part;
    struct span span;
    bool keeps_figures_alone, have_moved; /* have_moved: key groups, in the checkpoint's run */
    uint32_t refused;                     /* differences of this part */
    struct diag *last;
    struct byte_buffer to_drop;
};

static bool next_name(struct str *left, struct str *name)
{
    const char *end = left->length == 0 ? NULL : memchr(left->data, '\n', left->length);
    if (end == NULL)
        return false;
    *name = (struct str){left->data, (size_t)(end - left->data)};
    *left = (struct str){end + 1, left->length - name->length - 1};
    return true;
}

static bool is_dropped(struct matching *m, struct str part)
{
    struct str left = m->run->checkpoints->from.dropped, name;
    bool is_found = false;
    for (uint32_t i = 0; next_name(&left, &name); i++)
        if (str_equal(name, part))
            is_found = m->is_used[i] = true;
    return is_found;
}

static void refuse(struct matching *m, const char *sentence)
{
    m->last =
        diag_error(m->run->diags, DIAG_OTHER_JOB, m->span, "`%s` does not match: %s", m->part, sentence);
    if (m->refused++ == 0)
        buffer_printf(&m->to_drop, " --drop-state %s", m->part);
}

static void tell_difference(void *argument, bool is_allowed, const char *sentence)
{
    struct matching *m = argument;
    if (is_allowed)
        run_note(m->run, "`%s` resumes with a change: %s", m->part, sentence);
    else if (m->keeps_figures_alone)
        m->refused++;
    else
        refuse(m, sentence);
}

static const struct plan_node *find_node(const struct run *run, struct str part)
{
    for (uint32_t i = 0; i < run->plan->nodes_count; i++)
        if (str_is(part, run->plan->nodes[i].part))
            return &run->plan->nodes[i];
    return NULL;
}

/* The first line of a shape, for messages: "dedup: by: imp_id within: 1h". */
static struct str first_line(struct str shape)
{
    const char *end = shape.length == 0 ? NULL : memchr(shape.data, '\n', shape.length);
    size_t length = end == NULL ? shape.length : (size_t)(end - shape.data);
    return length == 0 ? shape : (struct str){shape.data + 1, length - 1};
}

static void match_lost(struct matching *m, const struct part *part)
{
    struct arena *arena = &m->run->arena;
    if (part->name.length > 5 && memcmp(part->name.data, "sink/", 5) == 0) {
        run_note(m->run,
                 "`%s` is not in the job: rows that the checkpoint contains for this sink are not written",
                 m->part);
        return;
    }
    refuse(m, arena_printf(arena, "the checkpoint has `%.*s`, the job has no part of that name",
                           STR_ARGS(first_line(part->shape))));
}

/* Rows of a key group that has moved have a stay in their keys, those of a stage with one instance do not: neither finds the
 * other's. */
static void match_instances(struct matching *m, const struct part *part, const struct plan_node *node)
{
    bool is_single = part_is_single(m->run, node);
    if (m->have_moved && node->needs_memory && part->is_single != is_single)
        refuse(
            m,
            is_single
                ? "it had an instance for each lane, whose key groups have moved (--move), and has one instance now"
                : "it had one instance, and has one for each lane now, while key groups of other parts have moved "
                  "(--move)");
}

static void match_part(struct matching *m, const struct part *part)
{
    struct run *run = m->run;
    const struct plan_node *node = find_node(run, part->name);
    bool has_state = part->has_state && (node == NULL || node->has_state);
    m->part = arena_printf(&run->arena, "%.*s", STR_ARGS(part->name));
    m->span = node == NULL ? (struct span){0} : node->span;
    m->keeps_figures_alone =
        node != NULL && node->operator_kind != NULL && node->operator_kind->keeps_figures_alone;
    m->refused = 0;
    if (is_dropped(m, part->name)) {
        run_note(run, "`%s`: its state in the checkpoint is dropped", m->part);
        return;
    }
    if (node != NULL && node->is_stand_in) /* the state of the job's own sink is not for its stand-in */
        return;
    if (part->has_state && node == NULL)
        match_lost(m, part);
    else if (has_state)
        shape_compare(part->shape, node->shape, &run->arena, tell_difference, m);
    if (has_state && node != NULL)
        match_instances(m, part, node);
    if (node != NULL && m->refused == 0) {
        run->ids[node->place] = (uint16_t)part->id;
        run->has_saved[node->place] = true;
    }
}

static bool check_drops(struct matching *m)
{
    struct run *run = m->run;
    struct str left = run->checkpoints->from.dropped, name;
    bool is_good = true;
    for (uint32_t i = 0; next_name(&left, &name); i++) {
        if (m->is_used[i])
            continue;
        const char **names = arena_array(&run->arena, const char *, MAX(m->saved->count, 1));
        const char *all = "";
        uint32_t count = 0;
        for (uint32_t k = 0; k < m->saved->count; k++) {
            const struct part *part = &m->saved->items[k];
            if (!part->has_state)
                continue;
            names[count++] = arena_printf(&run->arena, "%.*s", STR_ARGS(part->name));
            all = arena_printf(&run->arena, "%s%s%s", all, *all == '\0' ? "" : ", ", names[count - 1]);
        }
        struct diag *d = diag_error(run->diags, DIAG_NO_COMMAND, (struct span){0},
                                    "--drop-state: the checkpoint has no part `%.*s`", STR_ARGS(name));
        const char *near = diag_nearest(name, names, count);
        if (near != NULL)
            diag_hint(run->diags, d, "did you mean `%s`? The checkpoint has: %s", near, all);
        else
            diag_hint(run->diags, d, "the checkpoint has: %s", all);
        is_good = false;
    }
    return is_good;
}

static void note_new(struct run *run)
{
    for (uint32_t i = 0; i < run->plan->nodes_count; i++) {
        const struct plan_node *node = &run->plan->nodes[i];
        bool is_figures = node->operator_kind != NULL && node->operator_kind->keeps_figures_alone;
        if (run->has_saved[i] || !node->has_state || is_figures)
            continue;
        if (node->tag == PLAN_SOURCE)
            run_note(run, "`%s` has no position in the checkpoint: it starts where the job says", node->part);
        else if (node->tag == PLAN_SINK)
            run_note(run, "`%s` starts with the rows after the checkpoint", node->part);
        else
            run_note(run, "`%s` starts empty", node->part);
    }
}

/* Whether sources go on that have ended in the checkpoint: all of them may, where operators have work left. */
static bool goes_on_finished(const struct run *run)
{
    enum positions_state state = positions_state(checkpoint_info(run->resumed)->sources);
    uint32_t saved = 0;
    for (uint32_t i = 0; i < run->plan->sources_count; i++)
        saved += run->has_saved[run->plan->sources[i]];
    return (state == POSITIONS_FINAL && saved > 0) ||
           (state == POSITIONS_ENDED && saved > 0 && saved < run->plan->sources_count);
}

bool from_match(struct run *run, const struct parts *saved)
{
    uint32_t drops = 0;
    struct str left = run->checkpoints->from.dropped, name;
    while (next_name(&left, &name))
        drops++;
    struct matching m = {
        .run = run, .saved = saved, .is_used = arena_array(&run->arena, bool, MAX(drops, 1))};
    struct placement placement = {0};
    if (!placements_load_stays(run->resumed, &placement, run->diags))
        return false;
    m.have_moved = placements_have_moved(&placement);
    for (uint32_t i = 0; i < saved->count; i++)
        match_part(&m, &saved->items[i]);
    if (m.last != NULL)
        diag_hint(run->diags, m.last,
                  "change the job back; or start without this state of the checkpoint:%.*s",
                  (int)m.to_drop.length, m.to_drop.data);
    bool is_good = check_drops(&m) && m.last == NULL;
    buffer_free(&m.to_drop);
    if (is_good && goes_on_finished(run))
        return refuse_finished(run);
    if (is_good)
        note_new(run);
    return is_good;
}
