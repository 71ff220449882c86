/* The workers of a job on several machines, as etcd knows them: for `leat cluster`. */
#include "cli/cluster_found.h"

#include "cli/cluster_places.h"
#include "cli/token.h"
#include "cluster/rates.h"
#include "core/os.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

struct coordination *cluster_found_open(const struct run_cluster_flags *flags, struct diag_list *diags)
{
    char *password = NULL;
    if (!token_read("--etcd-password-file", flags->password_file, &password, diags))
        return NULL;
    const struct coordination_options options = {.address = str_from(flags->cluster),
                                                 .etcd = {.authority = flags->authority,
                                                          .certificate = flags->certificate,
                                                          .key = flags->key,
                                                          .user = flags->user,
                                                          .password = password}};
    struct coordination *coordination = coordination_open(&options, diags);
    free(password);
    return coordination;
}

bool cluster_found_look(struct coordination *coordination, struct cluster_found *found,
                        struct diag_list *diags)
{
    struct arena *arena = &found->arena;
    arena_reset(arena);
    found->round = arena_calloc(arena, 1, sizeof(*found->round));
    found->has_round = found->has_ended = false;
    if (coordination_read(coordination, arena, &found->view, diags) != ETCD_DONE)
        return false;
    found->has_round = rendezvous_read(found->view.placement, arena, found->round, &found->has_ended) &&
                       found->round->incarnation == found->view.incarnation;
    if (found->view.has_job)
        return true;
    struct diag *d =
        diag_error(diags, DIAG_CLUSTER_LOST, (struct span){0}, "etcd knows of no cluster of that name");
    diag_hint(diags, d,
              "the name stands behind the endpoints: etcd://HOST:2379/NAME; `leat run --cluster` makes it");
    return false;
}

int cluster_found_number(const struct cluster_found *found, int64_t lease)
{
    uint32_t number = rendezvous_number(found->round, lease);
    return found->has_round && !found->has_ended && number < found->round->count ? (int)number : -1;
}

uint32_t cluster_found_waiting(const struct cluster_found *found, uint32_t *standbys)
{
    uint32_t waiting = 0, hot = 0;
    for (uint32_t i = 0; i < found->view.members_count; i++) {
        const struct cluster_member *member = &found->view.members[i];
        bool waits = cluster_found_number(found, member->lease) < 0 && !member->leaves;
        waiting += waits && !member->is_standby;
        hot += waits && member->is_standby;
    }
    *standbys = hot;
    return waiting;
}

/* How far the newest head is before what the standby has prepared: heads, and seconds between the two. */
static int64_t standby_lag(const struct cluster_view *view, const struct cluster_member *member, double *s)
{
    const struct cluster_prepared *prepared = &member->prepared;
    *s = (double)MAX(view->head.clock_us - prepared->clock_us, 0) / 1e6;
    return (int64_t)(view->head.epoch - MIN(prepared->epoch, view->head.epoch));
}

bool cluster_found_changes(const struct cluster_found *found)
{
    const struct cluster_view *view = &found->view;
    bool is_changing = found->has_round && !found->has_ended && found->round->changes;
    for (uint32_t i = 0; i < view->members_count; i++)
        is_changing |= view->members[i].leaves || view->members[i].lease == view->wanted.drains;
    return is_changing;
}

bool cluster_found_is_asked(const struct cluster_found *found)
{
    const struct cluster_wanted *wanted = &found->view.wanted;
    const struct rendezvous_round *round = found->round;
    if (!found->has_round || found->has_ended || wanted->revision <= round->wanted || wanted->drains != 0)
        return false;
    uint32_t count = wanted->workers == 0 ? round->most : MIN(wanted->workers, round->most), standbys;
    bool is_open =
        count < round->count || (count > round->count && cluster_found_waiting(found, &standbys) > 0);
    for (uint32_t i = 0; i < wanted->without_count; i++)
        is_open |= cluster_found_number(found, wanted->without[i]) >= 0;
    return is_open;
}

/* What the member does, in a word. */
static void describe_member(const struct cluster_found *found, const struct cluster_member *member,
                            char *text, size_t bytes)
{
    int number = cluster_found_number(found, member->lease);
    double lag_s;
    int64_t lag = standby_lag(&found->view, member, &lag_s);
    if (number < 0 && member->is_standby && !member->leaves && member->prepared.epoch == 0)
        snprintf(text, bytes, "standby, nothing prepared");
    else if (number < 0 && member->is_standby && !member->leaves)
        snprintf(text, bytes, "standby, %" PRId64 " heads and %.1f s behind", lag, lag_s);
    else if (number < 0)
        snprintf(text, bytes, member->leaves ? "leaves" : "waits");
    else
        snprintf(text, bytes, "worker %d%s", number, member->leaves ? ", leaves" : "");
}

static double head_age_s(const struct cluster_view *view)
{
    return (double)MAX(os_wall_us() - view->head.clock_us, 0) / 1e6;
}

static void print_place(void *user LEAT_UNUSED, const char *parts, uint32_t worker)
{
    printf("  worker %u has %s\n", worker, parts);
}

static void add_place(void *user, const char *parts, uint32_t worker)
{
    json_array_append_new(user, json_pack("{s:s, s:i}", "parts", parts, "worker", (int)worker));
}

/* The median of the rates, and pairs far below it. */
static void print_slow(const struct cluster_view *view)
{
    int64_t median = rates_median(view);
    if (median > 0)
        printf("links: %.1f MB/s in the median, when the workers met\n", (double)median / 1e6);
    for (uint32_t i = 0; i < view->members_count; i++) {
        const struct cluster_member *from = &view->members[i];
        for (uint32_t k = 0; k < from->rates_count; k++) {
            const struct cluster_member *to = cluster_view_member(view, from->rates[k].lease);
            if (to != NULL && rates_is_slow(from->rates[k].bytes_per_s, median))
                printf("  slow: %.*s to %.*s, %.1f MB/s\n", STR_ARGS(from->address), STR_ARGS(to->address),
                       (double)from->rates[k].bytes_per_s / 1e6);
        }
    }
}

void cluster_found_print(const struct cluster_found *found)
{
    const struct cluster_view *view = &found->view;
    const struct rendezvous_round *round = found->round;
    if (found->has_ended)
        printf("incarnation %" PRIu64 ": the job has ended\n", view->incarnation);
    else if (found->has_round)
        printf("incarnation %" PRIu64 ": %u workers of %u lanes, begun from %s; %u to %u may take part\n",
               view->incarnation, round->count, round->lanes,
               round->head.revision == 0 ? "nothing" : "a head", round->least, round->most);
    else
        printf("no incarnation yet\n");
    if (view->wanted.workers > 0)
        printf("asked for: %u workers (%.*s)\n", view->wanted.workers, STR_ARGS(view->wanted.by));
    if (view->head.revision != 0)
        printf("head: %.*s, of incarnation %" PRIu64 ", epoch %" PRIu64 ", %.1f s old\n",
               STR_ARGS(view->head.manifest), view->head.incarnation, view->head.epoch, head_age_s(view));
    if (cluster_found_changes(found))
        printf("the workers change: %s\n",
               found->has_round && !found->has_ended && round->changes
                   ? "the round ends at a checkpoint, and the next one begins with that"
                   : "asked for, and not begun");
    uint32_t standbys, waiting = cluster_found_waiting(found, &standbys);
    printf("%u members, %u of them wait", view->members_count, waiting);
    printf(standbys > 0 ? ", and %u are standbys\n" : "\n", standbys);
    for (uint32_t i = 0; i < view->members_count; i++) {
        const struct cluster_member *member = &view->members[i];
        char what[80];
        describe_member(found, member, what, sizeof(what));
        printf("  %-24.*s %-20.*s %-10s%s\n", STR_ARGS(member->address), STR_ARGS(member->host), what,
               member->lease == view->leader ? " leads" : "");
    }
    print_slow(view);
    if (found->has_round && !found->has_ended)
        cluster_places_show(round->places, round->count, print_place, NULL);
}

static json_t *text_json(struct str text)
{
    return json_stringn_nocheck(text.length == 0 ? "" : text.data,
                                text.length); /* records were read as UTF-8 */
}

/* How fast the member can send to others. */
static json_t *rates_json(const struct cluster_view *view, const struct cluster_member *member)
{
    json_t *rates = json_array();
    int64_t median = rates_median(view);
    for (uint32_t i = 0; i < member->rates_count; i++) {
        const struct cluster_rate *rate = &member->rates[i];
        const struct cluster_member *to = cluster_view_member(view, rate->lease);
        if (to != NULL)
            json_array_append_new(rates, json_pack("{s:o, s:I, s:b}", "to", text_json(to->address),
                                                   "bytes_per_s", (json_int_t)rate->bytes_per_s, "is_slow",
                                                   rates_is_slow(rate->bytes_per_s, median)));
    }
    return rates;
}

static json_t *member_json(const struct cluster_found *found, const struct cluster_member *member)
{
    int number = cluster_found_number(found, member->lease);
    double lag_s;
    int64_t lag = standby_lag(&found->view, member, &lag_s);
    bool is_ready = member->is_standby && member->prepared.epoch > 0;
    return json_pack("{s:o, s:o, s:i, s:b, s:b, s:o, s:b, s:o, s:o, s:o}", "address",
                     text_json(member->address), "host", text_json(member->host), "lanes", (int)member->lanes,
                     "leads", member->lease == found->view.leader, "leaves", member->leaves, "worker",
                     number < 0 ? json_null() : json_integer(number), "standby", member->is_standby,
                     "heads_behind", is_ready ? json_integer((json_int_t)lag) : json_null(), "behind_s",
                     is_ready ? json_real(lag_s) : json_null(), "sends", rates_json(&found->view, member));
}

void cluster_found_print_json(const struct cluster_found *found)
{
    const struct cluster_view *view = &found->view;
    uint32_t standbys, waiting = cluster_found_waiting(found, &standbys);
    json_t *members = json_array();
    for (uint32_t i = 0; i < view->members_count; i++)
        json_array_append_new(members, member_json(found, &view->members[i]));
    json_t *places = json_array();
    if (found->has_round && !found->has_ended)
        cluster_places_show(found->round->places, found->round->count, add_place, places);
    json_t *head = view->head.revision == 0
                       ? json_null()
                       : json_pack("{s:I, s:I, s:o, s:f}", "incarnation", (json_int_t)view->head.incarnation,
                                   "epoch", (json_int_t)view->head.epoch, "manifest",
                                   text_json(view->head.manifest), "age_s", head_age_s(view));
    json_t *json =
        json_pack("{s:I, s:b, s:b, s:b, s:i, s:i, s:i, s:o, s:i, s:i, s:o, s:o, s:o}", "incarnation",
                  (json_int_t)view->incarnation, "runs", found->has_round && !found->has_ended, "has_ended",
                  found->has_ended, "changes", cluster_found_changes(found), "least",
                  (int)found->round->least, "most", (int)found->round->most, "asked_for",
                  (int)view->wanted.workers, "asked_by", text_json(view->wanted.by), "waiting", (int)waiting,
                  "standbys", (int)standbys, "head", head, "members", members, "places", places);
    json_dumpf(json, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(json);
}
