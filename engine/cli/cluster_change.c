#include "cli/cluster_change.h"

#include "core/option.h"
#include "core/os.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_MS = 100 };

/* What was asked for. */
struct asked {
    struct cluster_wanted wanted;
    uint32_t count; /* workers that there are to be; 0: of CLUSTER_DRAIN */
    uint64_t incarnation;
    bool is_of_round; /* of CLUSTER_DRAIN: the worker has a part in it */
};

bool cluster_change_refuse(struct diag_list *diags, const char *hint, const char *format, ...)
{
    char text[300];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    struct diag *d = diag_error(diags, DIAG_CHANGE_REFUSED, (struct span){0}, "%s", text);
    diag_hint(diags, d, "%s", hint);
    return false;
}

const struct cluster_member *cluster_change_find(const struct cluster_found *found, const char *name,
                                                 struct diag_list *diags)
{
    int64_t number;
    bool is_number = literal_int(str_from(name), &number);
    for (uint32_t i = 0; i < found->view.members_count; i++) {
        const struct cluster_member *member = &found->view.members[i];
        if (is_number ? cluster_found_number(found, member->lease) == number : str_is(member->address, name))
            return member;
    }
    cluster_change_refuse(
        diags, "`leat cluster status` shows the numbers and addresses of the workers that are there",
        "expected the number or address of a worker, found `%.200s`", name);
    return NULL;
}

static bool plan_grow(const struct cluster_change *change, const struct cluster_found *found,
                      struct asked *asked, struct diag_list *diags)
{
    static const char start[] = "start them: `leat run JOB --cluster=... --nodes=... --listen=...`";
    const struct rendezvous_round *round = found->round;
    uint32_t standbys, waiting = cluster_found_waiting(found, &standbys), most = round->most;
    if (round->count >= most)
        return cluster_change_refuse(
            diags, "a job may have more workers when it is started with another --nodes=LEAST:MOST",
            "the job has %u workers already, and no more may take part", round->count);
    if (change->workers > most || (change->workers != 0 && change->workers <= round->count))
        return cluster_change_refuse(diags, "--nodes=LEAST:MOST of `leat run` says how many may take part",
                                     "expected %u to %u workers, found %" PRId64, round->count + 1, most,
                                     change->workers);
    if (waiting == 0)
        return cluster_change_refuse(diags, start, "expected workers that wait, found none%s",
                                     standbys > 0 ? " but standbys, which take the places of others alone"
                                                  : "");
    if (change->workers > round->count + waiting)
        return cluster_change_refuse(diags, start, "expected %" PRId64 " workers that wait, found %u",
                                     change->workers - round->count, waiting);
    asked->wanted.workers = (uint32_t)change->workers;
    asked->count = change->workers > 0 ? (uint32_t)change->workers : MIN(most, round->count + waiting);
    return true;
}

static bool plan_shrink(const struct cluster_change *change, const struct cluster_found *found,
                        struct asked *asked, struct diag_list *diags)
{
    const struct rendezvous_round *round = found->round;
    if (change->workers < round->least || change->workers >= round->count)
        return cluster_change_refuse(
            diags, "--nodes=LEAST:MOST of `leat run` says how many the job has at least",
            "expected fewer than the %u workers that there are, and at least %u, found %" PRId64,
            round->count, round->least, change->workers);
    asked->wanted.workers = asked->count = (uint32_t)change->workers;
    if (change->names_count > round->count - asked->count)
        return cluster_change_refuse(diags,
                                     "the others that are to wait are chosen from the highest number down",
                                     "expected at most %u workers that are to wait, found %u",
                                     round->count - asked->count, change->names_count);
    for (uint32_t i = 0; i < change->names_count; i++) {
        const struct cluster_member *member = cluster_change_find(found, change->names[i], diags);
        if (member == NULL)
            return false;
        if (cluster_found_number(found, member->lease) < 0)
            return cluster_change_refuse(diags, "name workers that take part, or none",
                                         "the worker `%s` waits already", change->names[i]);
        if (member->lease == found->view.leader)
            return cluster_change_refuse(diags,
                                         "let it leave instead: `leat cluster drain`; then another one leads",
                                         "the worker `%s` leads, and cannot wait", change->names[i]);
        asked->wanted.without[asked->wanted.without_count++] = member->lease;
    }
    return true;
}

static bool plan_drain(const struct cluster_change *change, const struct cluster_found *found,
                       struct asked *asked, struct diag_list *diags)
{
    const struct rendezvous_round *round = found->round;
    const struct cluster_member *member = cluster_change_find(found, change->names[0], diags);
    if (member == NULL)
        return false;
    asked->is_of_round = cluster_found_number(found, member->lease) >= 0;
    uint32_t standbys, left = round->count - 1 + cluster_found_waiting(found, &standbys) + standbys;
    if (asked->is_of_round && left < round->least)
        return cluster_change_refuse(diags, "start another worker first; to end the job, `leat cluster stop`",
                                     "expected at least %u workers that are left (--nodes), found %u",
                                     round->least, left);
    asked->wanted.workers = found->view.wanted.workers;
    asked->wanted.drains = member->lease;
    return true;
}

bool cluster_change_can_begin(const struct cluster_found *found, struct diag_list *diags)
{
    if (!found->has_round || found->has_ended || found->view.members_count == 0)
        return cluster_change_refuse(diags,
                                     "start the workers first: `leat cluster status` shows who is there",
                                     "expected a job that runs, found none");
    if (cluster_found_changes(found))
        return cluster_change_refuse(diags, "wait until `leat cluster status` no longer shows it",
                                     "another change of the workers is under way");
    if (cluster_found_is_asked(found))
        return cluster_change_refuse(
            diags,
            "wait until that is done (`leat cluster status`), then ask again; both at once would be neither",
            "other workers were asked for, and have not begun to change: %.*s",
            STR_ARGS(found->view.wanted.by));
    return true;
}

/* Who asks for what, for others who ask. */
static struct str say_who(const struct cluster_change *change, struct arena *arena)
{
    static const char *const verbs[] = {"grow", "shrink", "drain"};
    char host[256] = "", number[24] = "";
    (void)gethostname(host, sizeof(host) - 1);
    if (change->workers > 0)
        snprintf(number, sizeof(number), " %" PRId64, change->workers);
    return str_from(arena_printf(arena, "`leat cluster %s%s`, pid %ld on %s", verbs[change->kind], number,
                                 (long)getpid(), host));
}

/* Fills in what is to be asked. False after a diagnostic: that cannot be. */
static bool plan(const struct cluster_change *change, const struct cluster_found *found, struct asked *asked,
                 struct diag_list *diags)
{
    *asked = (struct asked){.wanted = {.revision = found->view.wanted.revision},
                            .incarnation = found->view.incarnation};
    if (!cluster_change_can_begin(found, diags))
        return false;
    switch (change->kind) {
    case CLUSTER_GROW: return plan_grow(change, found, asked, diags);
    case CLUSTER_SHRINK: return plan_shrink(change, found, asked, diags);
    default: return plan_drain(change, found, asked, diags);
    }
}

static bool is_done(const struct cluster_found *found, const struct asked *asked)
{
    const struct rendezvous_round *round = found->round;
    bool is_new = found->has_round && found->view.incarnation > asked->incarnation && !round->changes;
    if (asked->count > 0)
        return is_new && round->count == asked->count;
    for (uint32_t i = 0; i < found->view.members_count; i++)
        if (found->view.members[i].lease == asked->wanted.drains)
            return false;
    return is_new || !asked->is_of_round;
}

/* Says what goes on, when that has changed. */
static void say(const struct cluster_found *found, char *said, size_t bytes)
{
    char text[200];
    if (found->has_round && found->round->changes)
        snprintf(text, sizeof(text), "incarnation %" PRIu64 " ends at a checkpoint", found->view.incarnation);
    else
        snprintf(text, sizeof(text), "incarnation %" PRIu64 ": %u workers", found->view.incarnation,
                 found->round->count);
    if (strcmp(text, said) != 0)
        fprintf(stderr, "%s\n", text);
    snprintf(said, bytes, "%s", text);
}

bool cluster_change(struct coordination *coordination, const struct cluster_change *change,
                    struct cluster_found *found, struct diag_list *diags)
{
    struct asked asked;
    char said[200] = "";
    int64_t begun_us = os_monotonic_us();
    if (!plan(change, found, &asked, diags))
        return false;
    asked.wanted.by = say_who(change, &found->arena);
    if (coordination_ask_workers(coordination, &asked.wanted, diags) != ETCD_DONE)
        return false;
    while (!is_done(found, &asked) && *change->must_leave == 0) {
        if (found->has_ended)
            return cluster_change_refuse(diags, "start the job again with as many workers as it is to have",
                                         "the job has ended before the workers had changed");
        if (os_monotonic_us() - begun_us >= change->within_us)
            return cluster_change_refuse(
                diags, "the workers go on with it all the same: `leat cluster status` shows how far they are",
                "the change was asked for, and is not done within %.0f s: expected %u workers, found %u",
                (double)change->within_us / 1e6,
                asked.count > 0 ? asked.count : found->round->count - asked.is_of_round, found->round->count);
        say(found, said, sizeof(said));
        nanosleep(&(struct timespec){.tv_nsec = WAIT_MS * 1000000L}, NULL);
        if (!cluster_found_look(coordination, found, diags))
            return false;
    }
    if (is_done(found, &asked))
        printf("incarnation %" PRIu64 ": %u workers, after %.1f s\n", found->view.incarnation,
               found->round->count, (double)(os_monotonic_us() - begun_us) / 1e6);
    else
        printf("the workers were asked to change; not waiting for that\n");
    return true;
}
