/* Opening, joining, reading. */
#include "cluster/coordination.h"

#include "cluster/coordination_internal.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/os.h"

#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

enum { REQUEST_US = 5000000, LOST_PAUSE_MS = 100 };

/* --- The address --- */

static bool is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_name(struct str name)
{
    if (name.length == 0 || name.length > COORDINATION_NAME_BYTES_MAX || !is_alnum(name.data[0]))
        return false;
    for (size_t i = 0; i < name.length; i++)
        if (!is_alnum(name.data[i]) && strchr("-_.", name.data[i]) == NULL)
            return false;
    return true;
}

bool coordination_parse(struct str text, struct coordination_address *address, struct diag_list *diags)
{
    static const char scheme[] = "etcd://";
    size_t begin = sizeof(scheme) - 1;
    const char *what = "a cluster's address";
    struct diag *d;
    *address = (struct coordination_address){0};
    if (text.length >= begin && memcmp(text.data, scheme, begin) == 0 && text.length < 4096) {
        const char *slash = memchr(text.data + begin, '/', text.length - begin);
        size_t end = slash == NULL ? text.length : (size_t)(slash - text.data);
        address->endpoints = (struct str){text.data + begin, end - begin};
        if (slash != NULL)
            address->name = (struct str){slash + 1, text.length - end - 1};
        if (address->endpoints.length > 0 && is_name(address->name))
            return true;
        what = address->endpoints.length == 0 ? "etcd's endpoints in a cluster's address"
               : slash == NULL                ? "a name behind the endpoints"
                               : "a name of 1 to 64 letters, digits, `-`, `_` and `.` behind the endpoints";
    }
    d = diag_error(diags, DIAG_COORDINATION_FAILED, (struct span){0}, "expected %s, found `%.*s`", what,
                   (int)MIN(text.length, (size_t)200), text.data);
    diag_hint(diags, d, "write `etcd://etcd-1:2379,etcd-2:2379,etcd-3:2379/NAME`");
    return false;
}

/* --- Opening --- */

struct coordination *coordination_open(const struct coordination_options *options, struct diag_list *diags)
{
    struct coordination_address address;
    struct etcd_options etcd = options->etcd;
    if (!coordination_parse(options->address, &address, diags))
        return NULL;
    if (options->lease_s > COORDINATION_LEASE_S_MAX) {
        struct diag *d = diag_error(diags, DIAG_OUT_OF_RANGE, (struct span){0},
                                    "the lease of a worker: expected 1 to %d s, found %u s",
                                    COORDINATION_LEASE_S_MAX, options->lease_s);
        diag_hint(diags, d, "3 s is usual; a death is noticed after it");
        return NULL;
    }
    etcd.endpoints = address.endpoints;
    struct coordination *coordination = mem_calloc(1, sizeof(*coordination));
    coordination->name = mem_str(address.name);
    coordination->prefix = mem_printf("/leat/%s/", coordination->name);
    coordination->lease_s = options->lease_s == 0 ? COORDINATION_LEASE_S : options->lease_s;
    coordination->compact_every =
        options->compact_every == 0 ? COORDINATION_COMPACT_EVERY : options->compact_every;
    coordination->request_us = etcd.request_us > 0 ? etcd.request_us : REQUEST_US;
    coordination->etcd = etcd_open(&etcd, diags);
    if (coordination->etcd != NULL && keeper_start(&coordination->keeper, &etcd, diags))
        return coordination;
    coordination_close(coordination);
    return NULL;
}

void coordination_close(struct coordination *coordination)
{
    if (coordination == NULL)
        return;
    if (coordination->etcd != NULL) {
        keeper_stop(&coordination->keeper);
        etcd_watch_close(coordination->watch);
        etcd_close(coordination->etcd);
    }
    coordination_forget_doubts(coordination);
    free(coordination->name);
    free(coordination->prefix);
    free(coordination);
}

void coordination_stop(struct coordination *coordination)
{
    etcd_stop(coordination->etcd);
}

void coordination_forget_doubts(struct coordination *coordination)
{
    for (size_t i = 0; i < RECORD_COUNT; i++) {
        free(coordination->records[i].doubt);
        coordination->records[i].doubt = NULL;
    }
}

/* --- What all steps use --- */

struct str coordination_key(const struct coordination *coordination, struct arena *arena, const char *rest)
{
    return str_from(arena_printf(arena, "%s%s", coordination->prefix, rest));
}

struct str coordination_lease_key(const struct coordination *coordination, struct arena *arena,
                                  const char *folder, int64_t lease)
{
    return str_from(
        arena_printf(arena, "%s%s/%016llx", coordination->prefix, folder, (unsigned long long)lease));
}

enum etcd_outcome coordination_lost(const struct coordination *coordination, struct diag_list *diags,
                                    const char *format, ...)
{
    va_list arguments;
    char text[400];
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    struct diag *d = diag_error(diags, DIAG_CLUSTER_LOST, (struct span){0}, "cluster `%s` at `%s`: %s",
                                coordination->name, etcd_endpoint(coordination->etcd), text);
    diag_hint(
        diags, d,
        "stop all workers of this cluster; restore etcd's data, or write the record anew with `leat cluster rebuild "
        "etcd://.../%s --from=` the newest file in DIR/cluster/heads, or the URL of the job's store; then start them again",
        coordination->name);
    return ETCD_REFUSED;
}

enum etcd_outcome coordination_taken(const struct coordination *coordination, struct diag_list *diags,
                                     const char *format, ...)
{
    va_list arguments;
    char text[400];
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    struct diag *d =
        diag_error(diags, DIAG_TAKEN_OVER, (struct span){0}, "cluster `%s`: %s", coordination->name, text);
    diag_hint(diags, d,
              "this worker goes back to the head; if it is often so, give the workers a longer lease");
    return ETCD_REFUSED;
}

bool coordination_see(struct coordination *coordination, const struct etcd_answer *answer,
                      struct diag_list *diags)
{
    if (coordination->cluster != 0 && answer->cluster != 0 && answer->cluster != coordination->cluster) {
        coordination_lost(coordination, diags, "expected etcd's cluster %016llx, found cluster %016llx",
                          (unsigned long long)coordination->cluster, (unsigned long long)answer->cluster);
        return false;
    }
    if (answer->revision < coordination->revision) {
        coordination_lost(coordination, diags,
                          "expected etcd at revision %lld or later, found revision %lld: it has lost data",
                          (long long)coordination->revision, (long long)answer->revision);
        return false;
    }
    coordination->cluster = answer->cluster;
    coordination->revision = answer->revision;
    return true;
}

bool coordination_is_passing(enum etcd_error error)
{
    return error == ETCD_UNREACHABLE || error == ETCD_NO_LEADER || error == ETCD_BUSY ||
           error == ETCD_NO_ANSWER || error == ETCD_TIMED_OUT;
}

enum etcd_outcome coordination_failed(const struct etcd_answer *answer)
{
    return coordination_is_passing(answer->error) ? ETCD_UNKNOWN : answer->outcome;
}

/* --- Reading --- */

static bool read_lease(struct str text, int64_t *lease)
{
    char digits[17], *end;
    if (text.length != 16)
        return false;
    memcpy(digits, text.data, 16);
    digits[16] = '\0';
    *lease = (int64_t)strtoull(digits, &end, 16);
    return *end == '\0' && *lease != 0;
}

/* What stands behind `folder` in a key's rest; false: it is not in that folder. */
static bool is_in(struct str rest, const char *folder, struct str *name)
{
    size_t length = strlen(folder);
    if (rest.length < length || memcmp(rest.data, folder, length) != 0)
        return false;
    *name = (struct str){rest.data + length, rest.length - length};
    return true;
}

static bool read_member(const struct etcd_entry *entry, struct str name, struct arena *arena,
                        struct cluster_view *view)
{
    struct cluster_member *member = &view->members[view->members_count]; /* of as many as there are entries */
    if (view->members_count == COORDINATION_MEMBERS_MAX || !read_lease(name, &member->lease) ||
        !member_read(entry->value, arena, member))
        return false;
    member->since = entry->create_revision;
    view->members_count++;
    return true;
}

/* Keys come in order: members before those who are refused. */
static bool read_refusal(const struct coordination *coordination, const struct etcd_entry *entry,
                         struct str name, struct arena *arena, struct cluster_view *view)
{
    struct str what, hint;
    int64_t lease;
    if (!read_lease(name, &lease) || !refusal_read(entry->value, arena, &what, &hint))
        return false;
    for (uint32_t i = 0; i < view->members_count; i++)
        view->members[i].is_refused |= view->members[i].lease == lease;
    if (lease == coordination_lease(coordination)) {
        view->refusal = what;
        view->refusal_hint = hint;
    }
    return true;
}

static bool read_candidate(const struct etcd_entry *entry, struct str name, struct cluster_view *view)
{
    int64_t lease;
    if (!read_lease(name, &lease))
        return false;
    if (view->leader == 0 || entry->create_revision < view->leader_since) {
        view->leader = lease;
        view->leader_since = entry->create_revision;
    }
    return true;
}

/* A write in doubt follows what it followed, whatever is there now. */
static void note_revision(struct coordination *coordination, size_t which, int64_t revision)
{
    if (coordination->records[which].doubt == NULL)
        coordination->records[which].revision = revision;
}

static bool read_text(const struct etcd_entry *entry, struct cluster_text *text)
{
    *text = (struct cluster_text){entry->value, entry->mod_revision};
    return entry->value.length <= COORDINATION_TEXT_BYTES_MAX;
}

static bool read_entry(struct coordination *coordination, const struct etcd_entry *entry, struct arena *arena,
                       struct cluster_view *view)
{
    size_t prefix = strlen(coordination->prefix);
    struct str rest = {entry->key.data + prefix, entry->key.length - prefix}, name;
    if (is_in(rest, "members/", &name))
        return read_member(entry, name, arena, view);
    if (is_in(rest, "election/", &name))
        return read_candidate(entry, name, view);
    if (is_in(rest, "refused/", &name))
        return read_refusal(coordination, entry, name, arena, view);
    if (str_is(rest, "job")) {
        view->has_job = coordination->job_since == 0 || coordination->job_since == entry->create_revision;
        return job_read(entry->value, arena, &view->job);
    }
    if (str_is(rest, "incarnation")) {
        note_revision(coordination, RECORD_INCARNATION, entry->mod_revision);
        return incarnation_read(entry->value, arena, &view->incarnation, view->secret);
    }
    if (str_is(rest, "placement")) {
        note_revision(coordination, RECORD_PLACEMENT, entry->mod_revision);
        return placement_read(entry->value, &view->placement);
    }
    if (str_is(rest, "head")) {
        note_revision(coordination, RECORD_HEAD, entry->mod_revision);
        view->head.revision = entry->mod_revision;
        return cluster_head_read(entry->value, arena, &view->head);
    }
    if (str_is(rest, "wanted")) {
        view->wanted.revision = entry->mod_revision;
        return wanted_read(entry->value, arena, &view->wanted);
    }
    if (str_is(rest, "request"))
        return read_text(entry, &view->request);
    if (str_is(rest, "answer")) {
        note_revision(coordination, RECORD_ANSWER, entry->mod_revision);
        return read_text(entry, &view->answer);
    }
    if (str_is(rest, "stop"))
        view->stop = entry->mod_revision;
    return true; /* else of a later version */
}

static enum etcd_outcome read_view(struct coordination *coordination, const struct etcd_answer *answer,
                                   struct arena *arena, struct cluster_view *view, struct diag_list *diags)
{
    size_t prefix = strlen(coordination->prefix);
    view->revision = answer->revision;
    view->members = arena_array(arena, struct cluster_member, answer->count + 1);
    for (size_t i = 0; i < RECORD_COUNT; i++)
        note_revision(coordination, i, 0);
    for (uint32_t i = 0; i < answer->count; i++) {
        const struct etcd_entry *entry = &answer->entries[i];
        if (entry->key.length < prefix || memcmp(entry->key.data, coordination->prefix, prefix) != 0 ||
            !read_entry(coordination, entry, arena, view))
            return coordination_lost(coordination, diags, "its record `%.*s` is damaged",
                                     STR_ARGS(entry->key));
    }
    if (coordination->job_since != 0 && !view->has_job)
        return coordination_lost(coordination, diags, "the record that this worker joined is gone");
    coordination->incarnation = view->incarnation;
    coordination->has_read = true;
    return ETCD_DONE;
}

enum etcd_outcome coordination_read(struct coordination *coordination, struct arena *arena,
                                    struct cluster_view *view, struct diag_list *diags)
{
    const struct etcd_range range = {.key = str_from(coordination->prefix), .is_prefix = true};
    struct etcd_answer answer;
    *view = (struct cluster_view){0};
    if (etcd_range(coordination->etcd, &range, arena, &answer, diags) != ETCD_DONE)
        return coordination_failed(&answer);
    if (!coordination_see(coordination, &answer, diags))
        return ETCD_REFUSED;
    return read_view(coordination, &answer, arena, view, diags);
}

/* --- Waiting --- */

bool coordination_wait(struct coordination *coordination, int64_t wait_us)
{
    int64_t until = time_add(os_monotonic_us(), wait_us), left_us = wait_us;
    struct arena arena = {.block_bytes = 4096};
    struct etcd_changes changes;
    struct diag_list diags;
    enum etcd_watched watched;
    bool is_new;
    if (coordination->watch == NULL)
        coordination->watch = etcd_watch_open(coordination->etcd, str_from(coordination->prefix), true,
                                              coordination->revision + 1);
    do {
        arena_reset(&arena);
        diag_list_init(&diags, &arena);
        watched = etcd_watch_next(coordination->watch, left_us, &arena, &changes, &diags);
        if (watched == ETCD_WATCH_LOST)
            nanosleep(&(struct timespec){.tv_nsec = LOST_PAUSE_MS * 1000000L}, NULL);
        left_us = until - os_monotonic_us();
        is_new = watched == ETCD_WATCH_COMPACTED ||
                 (watched == ETCD_WATCH_EVENTS && changes.revision > coordination->revision);
    } while (left_us > 0 && watched != ETCD_WATCH_QUIET && !is_new);
    if (watched == ETCD_WATCH_COMPACTED) {
        etcd_watch_close(coordination->watch);
        coordination->watch = NULL;
    }
    arena_free(&arena);
    return is_new;
}
