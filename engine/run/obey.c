/* Executing again by an order log: see order.h. */
#include "run/order.h"

#include "core/os.h"
#include "run/barrier.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MESSAGE_BYTES = 512 };

static bool is_redo(const struct run *run)
{
    return run->order->script.identity == 0;
}

/* Lanes may be running: the diagnostics are theirs too. */
static void LEAT_PRINTF(3, 4) refuse(struct run *run, enum diag_code code, const char *format, ...)
{
    const struct order_script *script = &run->order->script;
    char what[MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&run->diags_mutex);
    struct diag *d = diag_error(run->diags, code, (struct span){0}, "the order log does not fit: %s", what);
    if (script->path < script->paths_count)
        diag_at(run->diags, d, script->paths[script->path], (int64_t)script->offset, -1);
    diag_hint(run->diags, d,
              is_redo(run) ? "give the job the inputs it had, or start anew with --fresh"
                           : "give the run the recording that the log was written for, or let it compute the "
                             "order with --order=none");
    pthread_mutex_unlock(&run->diags_mutex);
    run_fail(run);
}

/* --- The script's segments
 * ----------------------------------------------------------------------------------------- */

static void close_path(struct order_script *script)
{
    if (script->fd >= 0)
        close(script->fd);
    script->fd = -1;
    script->path++;
    script->offset = 0;
}

static bool open_path(struct run *run)
{
    struct order_script *script = &run->order->script;
    const char *path = script->paths[script->path];
    script->fd = open(path, O_RDONLY | O_CLOEXEC);
    int64_t bytes = os_file_bytes(path);
    if (script->fd < 0 || bytes < 0) {
        refuse(run, DIAG_E0601, "it cannot be read: %s", strerror(errno));
        return false;
    }
    script->bytes = (uint64_t)bytes;
    return true;
}

static bool read_segment(struct run *run, const struct order_head *head)
{
    struct order_script *script = &run->order->script;
    uint64_t bytes = order_segment_bytes(head);
    free(script->text);
    script->text = malloc(bytes);
    leat_assert(script->text != NULL);
    size_t got = 0;
    int error = os_pread_all(script->fd, script->text, bytes, script->offset, &got);
    if (error != 0) {
        refuse(run, DIAG_E0601, "it cannot be read: %s", strerror(error));
        return false;
    }
    order_close(&script->reader);
    script->has_segment = order_open(&script->reader, (struct str){script->text, got});
    if (!script->has_segment)
        refuse(run, DIAG_E0603, "%s", script->reader.why);
    return script->has_segment;
}

/* The segment that has the number, or none: the script is through. False: an error. */
static bool find_segment(struct run *run, uint64_t number)
{
    struct order_script *script = &run->order->script;
    while (script->path < script->paths_count) {
        char text[ORDER_HEAD_BYTES];
        struct order_head head;
        size_t got = 0;
        if (script->fd < 0 && !open_path(run))
            return false;
        if (script->offset == script->bytes) {
            close_path(script);
            continue;
        }
        int error = os_pread_all(script->fd, text, sizeof(text), script->offset, &got);
        const char *why = error != 0 ? strerror(error) : order_head_read((struct str){text, got}, &head);
        if (why != NULL) {
            refuse(run, DIAG_E0603, "%s", why);
            return false;
        }
        if (head.next > number) {
            if (head.first <= number)
                return read_segment(run, &head);
            refuse(run, DIAG_E0603, "the numbers %llu to %llu are missing in it", (unsigned long long)number,
                   (unsigned long long)head.first - 1);
            return false;
        }
        script->offset += order_segment_bytes(&head);
    }
    return true;
}

/* --- From a segment's head to the number wanted
 * ------------------------------------------------------------------- */

/* What a partition of the log has given before the next entry. */
struct logged {
    uint64_t records;
    int64_t time;
    bool has_ended, is_there;
};

static uint32_t find_source(const struct run *run, struct str name)
{
    uint32_t source = 0;
    while (source < run->plan->sources_count &&
           !str_equal(run->plan->nodes[run->plan->sources[source]].name, name))
        source++;
    return source;
}

/* The partition of the run: of a source that can gain some by its name, which is made known here where the
 * log says that it was found; else the one in the same place of the source. UINT32_MAX: none. */
static uint32_t find_partition(struct run *run, const struct order_partition *added, uint32_t source,
                               uint32_t place)
{
    const struct sequencer *s = &run->sequencer;
    if (source == run->plan->sources_count)
        return UINT32_MAX;
    bool is_named = sequencer_is_named(run, source);
    uint32_t local = is_named ? sequencer_find_local(run, source, added->name) : place;
    for (uint32_t i = 0; i < s->partitions_count; i++)
        if (s->partitions[i].source == source && s->partitions[i].local == local)
            return i;
    if (!is_named || local == UINT32_MAX)
        return UINT32_MAX;
    struct partition *p = sequencer_add_partition(run, source, local);
    if (p == NULL)
        return UINT32_MAX;
    order_added(run, p);
    return p->id;
}

/* The partition's index in the run; UINT32_MAX after a diagnostic. */
static uint32_t map_partition(struct run *run, const struct order_partition *added)
{
    struct order_script *script = &run->order->script;
    uint32_t source = find_source(run, added->source);
    uint32_t place = source < run->plan->sources_count ? script->places[source]++ : 0;
    uint32_t index = find_partition(run, added, source, place);
    bool is_twice = false;
    for (uint32_t i = 0; i < added->id; i++)
        is_twice |= script->map[i] == index;
    if (index == UINT32_MAX || is_twice) {
        refuse(run, DIAG_E0604, "it has `%.*s`, partition %u of source `%.*s`, which this job does not read",
               STR_ARGS(added->name), place, STR_ARGS(added->source));
        return UINT32_MAX;
    }
    script->map[added->id] = index;
    return index;
}

/* Reads what stands before the number. */
static bool skip_to(struct run *run, uint64_t number, struct logged *logged)
{
    struct order_script *script = &run->order->script;
    struct order_reader *reader = &script->reader;
    struct order_entry entry;
    for (;;) {
        bool is_there = reader->number == number && (reader->has_begun || reader->at[0] != ORDER_PARTITION);
        if (is_there || reader->at == reader->end)
            return true;
        if (!order_next(reader, &entry)) {
            refuse(run, DIAG_E0603, "%s", reader->why);
            return false;
        }
        bool is_named = entry.tag == ORDER_PARTITION || entry.tag == ORDER_ADDED;
        uint32_t index = is_named ? map_partition(run, &entry.added) : script->map[entry.partition];
        if (index == UINT32_MAX)
            return false;
        struct logged *of = &logged[index];
        if (is_named)
            *of = (struct logged){entry.added.records, entry.added.time, entry.added.has_ended, true};
        of->records += entry.tag == ORDER_SLICE ? entry.records : 0;
        of->time = entry.tag == ORDER_SLICE ? entry.time : of->time;
        of->has_ended |= entry.tag == ORDER_ENDED;
    }
}

static bool fits_positions(struct run *run, const struct logged *logged, uint64_t number)
{
    struct sequencer *s = &run->sequencer;
    for (uint32_t i = 0; i < s->partitions_count; i++) {
        struct partition *p = &s->partitions[i];
        struct str source = run->plan->nodes[run->plan->sources[p->source]].name;
        struct str name = sequencer_partition_name(run, p);
        if (!logged[i].is_there) {
            refuse(run, DIAG_E0604, "it does not have `%.*s`, partition %u of source `%.*s`", STR_ARGS(name),
                   p->local, STR_ARGS(source));
            return false;
        }
        if (logged[i].records != p->records || logged[i].time != p->order_max) {
            refuse(run, DIAG_E0604,
                   "before number %llu it has %llu records of `%.*s` of source `%.*s`, order time %lld, and "
                   "the run has %llu, order time %lld",
                   (unsigned long long)number, (unsigned long long)logged[i].records, STR_ARGS(name),
                   STR_ARGS(source), (long long)logged[i].time, (unsigned long long)p->records,
                   (long long)p->order_max);
            return false;
        }
        p->is_over = logged[i].has_ended;
    }
    return true;
}

static bool begin_segment(struct run *run, uint64_t number)
{
    struct order_script *script = &run->order->script;
    struct logged *logged = calloc(MAX(run->sequencer.partitions_room, 1), sizeof(*logged));
    leat_assert(logged != NULL);
    memset(script->map, 0, ORDER_PARTITIONS_MAX * sizeof(*script->map));
    memset(script->places, 0, run->plan->sources_count * sizeof(*script->places));
    bool is_good = skip_to(run, number, logged) && fits_positions(run, logged, number);
    free(logged);
    return is_good;
}

/* --- The next number
 * ------------------------------------------------------------------------------------------------- */

static bool take_entries(struct run *run)
{
    struct order_script *script = &run->order->script;
    struct order_entry entry;
    script->slices_count = 0;
    memset(script->is_ended, 0, run->sequencer.partitions_room * sizeof(*script->is_ended));
    memset(script->is_idle, 0, run->sequencer.partitions_room * sizeof(*script->is_idle));
    while (order_next(&script->reader, &entry)) {
        uint32_t partition = script->map[entry.partition];
        switch (entry.tag) {
        case ORDER_ADDED:
            if (map_partition(run, &entry.added) == UINT32_MAX)
                return false;
            break;
        case ORDER_IDLE: script->is_idle[partition] = true; break;
        case ORDER_SLICE:
            for (uint32_t i = 0; i < script->slices_count; i++)
                if (script->slices[i].partition == partition) {
                    refuse(run, DIAG_E0603, "a number has two slices of a partition");
                    return false;
                }
            script->slices[script->slices_count++] =
                (struct order_slice){partition, entry.records, entry.time};
            break;
        case ORDER_ENDED: script->is_ended[partition] = true; break;
        case ORDER_CUT: script->cut = partition; /* fall through */
        case ORDER_NUMBER:
        case ORDER_LAST: script->tag = entry.tag; return true;
        default: refuse(run, DIAG_E0603, "an entry stands where none may"); return false;
        }
    }
    refuse(run, DIAG_E0603, "%s", script->reader.why != NULL ? script->reader.why : "a number has no end");
    return false;
}

/* Behind the last number of a segment: its end says how much was in it. */
static bool ends_well(struct run *run)
{
    struct order_script *script = &run->order->script;
    struct order_entry entry;
    if (order_next(&script->reader, &entry) && entry.tag == ORDER_EPOCH)
        return true;
    refuse(run, DIAG_E0603, "%s",
           script->reader.why != NULL ? script->reader.why : "a segment goes on behind its last number");
    return false;
}

/* False: the script is through, or there was an error. */
static bool next_number(struct run *run)
{
    struct order_script *script = &run->order->script;
    uint64_t number = atomic_load_explicit(&run->sequencer.formed, memory_order_relaxed);
    if (script->has_number)
        return true;
    if (!script->has_segment || script->reader.number >= script->reader.head.next) {
        bool is_good = !script->has_segment || ends_well(run);
        script->has_segment = false;
        is_good =
            is_good && find_segment(run, number) && (!script->has_segment || begin_segment(run, number));
        run->sequencer.is_obeying = is_good && script->has_segment;
        if (!run->sequencer.is_obeying)
            return false;
    }
    script->has_number = take_entries(run);
    return script->has_number;
}

/* --- Whether what is read fits
 * --------------------------------------------------------------------------------------- */

enum rows_state { ROWS_THERE, ROWS_LATER, ROWS_NEVER, ROWS_TOO_MANY_BATCHES };

/* Whether the partition has so many rows decoded; then the order time of the last of them. */
static enum rows_state rows_ready(const struct sequencer *s, struct partition *p, uint64_t wanted,
                                  uint64_t *found, int64_t *time)
{
    *found = 0;
    while (p->head < p->tail) {
        if (!partition_prepare(p))
            return ROWS_LATER;
        if (p->head_row < p->pieces[p->head % PIECES_MAX].batch->rows)
            break;
        partition_drop_head(p);
    }
    *time = p->order_max;
    for (uint64_t i = p->head; i < p->tail && *found < wanted; i++) {
        struct piece *piece = &p->pieces[i % PIECES_MAX];
        if (!atomic_load_explicit(&piece->is_ready, memory_order_acquire))
            return ROWS_LATER;
        uint32_t first = i == p->head ? p->head_row : 0;
        uint64_t rows = MIN(wanted - *found, piece->batch->rows - first);
        if (rows > 0)
            *time = MAX(*time, piece->batch->order_time[first + rows - 1]);
        *found += rows;
    }
    if (*found >= wanted)
        return ROWS_THERE;
    if (p->tail - p->head >= s->pieces_ahead)
        return ROWS_TOO_MANY_BATCHES;
    return p->is_ended && !p->is_reading ? ROWS_NEVER : ROWS_LATER;
}

static void slice_differs(struct run *run, const struct partition *p, const struct order_slice *slice,
                          const char *found)
{
    refuse(run, DIAG_E0604,
           "number %llu takes %llu records of `%.*s` of source `%.*s`, from record %llu on, up to order time "
           "%lld; found are %s",
           (unsigned long long)atomic_load(&run->sequencer.formed), (unsigned long long)slice->records,
           STR_ARGS(sequencer_partition_name(run, p)),
           STR_ARGS(run->plan->nodes[run->plan->sources[p->source]].name), (unsigned long long)p->records,
           (long long)slice->time, found);
}

static bool slice_is_ready(struct run *run, const struct order_slice *slice)
{
    struct partition *p = &run->sequencer.partitions[slice->partition];
    uint64_t found;
    int64_t time = p->order_max;
    char text[128];
    switch (rows_ready(&run->sequencer, p, slice->records, &found, &time)) {
    case ROWS_LATER: return false;
    case ROWS_NEVER:
        snprintf(text, sizeof(text), "%llu: the input is shorter", (unsigned long long)found);
        break;
    case ROWS_TOO_MANY_BATCHES: snprintf(text, sizeof(text), "more batches than are read ahead"); break;
    case ROWS_THERE:
        if (time == slice->time)
            return true;
        snprintf(text, sizeof(text), "records up to %lld", (long long)time);
    }
    slice_differs(run, p, slice, text);
    return false;
}

/* The log says that it has no more records. What came after a checkpoint to a file that grows is taken
 * behind the script. */
static bool end_is_ready(struct run *run, struct partition *p)
{
    uint64_t found;
    int64_t time;
    if (is_redo(run))
        return true;
    enum rows_state state = rows_ready(&run->sequencer, p, 1, &found, &time);
    if (state == ROWS_THERE)
        refuse(run, DIAG_E0604, "`%.*s` of source `%.*s` ends in it after %llu records, and has more",
               STR_ARGS(sequencer_partition_name(run, p)),
               STR_ARGS(run->plan->nodes[run->plan->sources[p->source]].name),
               (unsigned long long)p->records);
    return state == ROWS_NEVER;
}

enum obey_state obey_ready(struct run *run)
{
    struct order_script *script = &run->order->script;
    struct sequencer *s = &run->sequencer;
    if (atomic_load_explicit(&run->has_failed, memory_order_relaxed) || !next_number(run))
        return OBEY_WAIT;
    for (uint32_t i = 0; i < s->partitions_count; i++)
        if ((script->is_ended[i] || (script->tag == ORDER_LAST && !s->partitions[i].is_over)) &&
            !end_is_ready(run, &s->partitions[i]))
            return OBEY_WAIT;
    for (uint32_t i = 0; i < script->slices_count; i++)
        if (!slice_is_ready(run, &script->slices[i]))
            return OBEY_WAIT;
    return script->tag == ORDER_LAST ? OBEY_LAST : OBEY_NUMBER;
}

bool obey_is_beyond(const struct run *run)
{
    const struct order_script *script = &run->order->script;
    for (uint32_t i = 0; i < script->slices_count; i++) {
        const struct partition *p = &run->sequencer.partitions[script->slices[i].partition];
        if (p->pieces[p->head % PIECES_MAX].batch->order_time[p->head_row] < run->sequencer.until_us)
            return false;
    }
    return script->slices_count > 0;
}

static struct slice *add_slice(struct slot *slot)
{
    if (slot->slices_count == slot->slices_room) { /* a slice of several batches */
        slot->slices_room = MAX(slot->slices_room * 2, 8);
        slot->slices = realloc(slot->slices, slot->slices_room * sizeof(*slot->slices));
        leat_assert(slot->slices != NULL);
    }
    return &slot->slices[slot->slices_count++];
}

struct partition *obey_fill(struct run *run, struct slot *slot)
{
    struct order_script *script = &run->order->script;
    struct sequencer *s = &run->sequencer;
    for (uint32_t i = 0; i < s->partitions_count; i++)
        if (script->is_ended[i]) {
            s->partitions[i].is_over = true;
            order_ended(run, &s->partitions[i]);
        }
    for (uint32_t i = 0; i < s->partitions_count; i++)
        if (script->is_idle[i]) {
            s->partitions[i].is_idle = true;
            order_idle(run, &s->partitions[i]);
        }
    for (uint32_t i = 0; i < script->slices_count; i++) {
        struct partition *p = &s->partitions[script->slices[i].partition];
        for (uint64_t left = script->slices[i].records; left > 0;) {
            bool is_ready = partition_prepare(p);
            leat_assert(is_ready);
            uint32_t rows = p->pieces[p->head % PIECES_MAX].batch->rows;
            uint32_t count = (uint32_t)MIN(left, rows - p->head_row);
            if (count > 0)
                partition_cut(p, p->head_row + count, add_slice(slot));
            left -= count;
            if (left > 0)
                partition_drop_head(p);
        }
        p->since_cut = MIN(p->since_cut, BATCH_ROWS - 1); /* a log may have other cuts */
    }
    script->has_number = false;
    if (script->tag != ORDER_CUT)
        return NULL;
    s->partitions[script->cut].since_cut = 0;
    return &s->partitions[script->cut];
}

/* --- Which script
 * ---------------------------------------------------------------------------------------------------- */

static bool read_identity(struct run *run, const char *path, uint64_t *identity)
{
    char head_text[ORDER_HEAD_BYTES];
    struct order_head head;
    size_t got = 0;
    const char *why = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int error = fd < 0 ? errno : os_pread_all(fd, head_text, sizeof(head_text), 0, &got);
    if (error == 0)
        why = order_head_read((struct str){head_text, got}, &head);
    if (error == 0 && why == NULL)
        error = os_pread_all(fd, identity, sizeof(*identity), ORDER_HEAD_BYTES + head.bytes, &got);
    if (error == 0 && why == NULL && got < sizeof(*identity))
        why = "it ends within a segment";
    if (fd >= 0)
        close(fd);
    if (error == 0 && why == NULL) {
        *identity |= 1; /* 0: none */
        return true;
    }
    struct diag *d = diag_error(run->diags,
                                error == ENOENT ? DIAG_E0602
                                : error != 0    ? DIAG_E0601
                                                : DIAG_E0603,
                                (struct span){0}, "the order log `%s` cannot be obeyed%s%s", path,
                                why != NULL ? ": " : "", why != NULL ? why : "");
    if (error != 0)
        diag_errno(run->diags, d, error);
    diag_hint(run->diags, d,
              "name a file that `leat run --record-order` wrote, or compute the order with --order=none");
    return false;
}

/* What the recordings have: one log, in the manifest of each. */
static bool recorded_path(struct run *run, const char **path, uint64_t *identity)
{
    for (uint32_t i = 0; i < run->plan->sources_count; i++) {
        const char *own = run->sources[i].order_log;
        uint64_t found = 0;
        if (own != NULL && !read_identity(run, own, &found))
            return false;
        if (i > 0 && (found != *identity || (own != NULL && os_file_bytes(own) != os_file_bytes(*path)))) {
            struct diag *d =
                diag_error(run->diags, DIAG_E0604, run->plan->nodes[run->plan->sources[i]].span,
                           "the recordings of sources `%.*s` and `%.*s` do not have the same order log",
                           STR_ARGS(run->plan->nodes[run->plan->sources[0]].name),
                           STR_ARGS(run->plan->nodes[run->plan->sources[i]].name));
            diag_hint(run->diags, d,
                      "replay recordings of one run together, name a log with --order=FILE, or compute the "
                      "order with --order=none");
            return false;
        }
        *path = own;
        *identity = found;
    }
    return true;
}

bool obey_init(struct run *run)
{
    struct order_script *script = &run->order->script;
    const char *path = run->options.order;
    uint64_t identity = 0;
    bool is_good = path == NULL                ? recorded_path(run, &path, &identity)
                   : strcmp(path, "none") == 0 ? (path = NULL, true)
                                               : read_identity(run, path, &identity);
    uint32_t partitions = run->sequencer.partitions_room;
    script->places = arena_array(&run->arena, uint32_t, MAX(run->plan->sources_count, 1));
    if (!is_good)
        return false;
    uint32_t redo = 0;
    while (path == NULL && run->checkpoints != NULL && checkpoint_redo(run->checkpoints->dir, redo) != NULL)
        redo++;
    script->paths_count = path != NULL ? 1 : redo;
    script->paths = arena_array(&run->arena, const char *, MAX(script->paths_count, 1));
    for (uint32_t i = 0; i < script->paths_count; i++)
        script->paths[i] =
            arena_strdup(&run->arena, path != NULL ? path : checkpoint_redo(run->checkpoints->dir, i));
    script->identity = identity;
    script->redo_next = redo == 0 ? 0 : checkpoint_redo_next(run->checkpoints->dir);
    script->map = arena_array(&run->arena, uint32_t, ORDER_PARTITIONS_MAX);
    script->slices = arena_array(&run->arena, struct order_slice, MAX(partitions, 1));
    script->is_ended = arena_array(&run->arena, bool, MAX(partitions, 1));
    script->is_idle = arena_array(&run->arena, bool, MAX(partitions, 1));
    run->sequencer.is_obeying = script->paths_count > 0;
    return true;
}

uint64_t obey_identity(const struct run *run)
{
    return run->order->script.identity;
}

void obey_free(struct run *run)
{
    struct order_script *script = &run->order->script;
    if (script->fd >= 0)
        close(script->fd);
    order_close(&script->reader);
    free(script->text);
}
