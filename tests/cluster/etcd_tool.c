/* Calls engine/cluster for the tests, one command a line: words between tabs. Each is answered by a line of JSON: the outcome, what
 * came with it, and the diagnostics.
 *
 *     etcd_tool ADDRESS [NAME=VALUE...]     ADDRESS: etcd://H:P,.../NAME; request_ms, lease_s, compact_every, authority,
 *                                           certificate, key, user, password
 *     put K V [LEASE] | get K | prefix K | stale K | first K | at REVISION K | delete K | compact REVISION | status
 *     txn COMPARES THEN ELSE                "mod,equal,K,7|value,less,K,text", "put,K,V|delete,K|range,K"
 *     fill K COUNT BYTES                    puts K0000, K0001, ...
 *     grant TTL | keep LEASE | revoke LEASE | left LEASE
 *     watch K IS_PREFIX START | next WAIT_MS
 *     join DIGEST VERSION PROFILE ADDRESS HAS_HISTORY | member | campaign | leads | resign | begin | place TEXT |
 *     publish EPOCH [COUNT] | read | wait WAIT_MS | leave | forget | rebuild EPOCH INCARNATION |
 *     gather LEAST MOST WAIT_MS RETURN_MS APART_MS [REST_MS [standby]] | turn | doubt WORKER [unreached] | over INCARNATION |
 *     ended INCARNATION IS_FINISHED | leaves | prepared (the newest head)
 *     stop_in MS                            the step and the request that are in work then */
#include "cluster/rendezvous.h"
#include "core/hex.h"
#include "core/mem.h"
#include "core/os.h"

#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { WORDS_MAX = 8, LINE_BYTES = 2 << 20, OPS_MAX = 8 };

struct answer {
    struct arena arena;
    struct diag_list diags;
    enum etcd_outcome outcome;
    json_t *json;
};

static struct coordination *coordination;
static struct rendezvous *rendezvous;
static char own_address[64];
static struct etcd *etcd;
static struct etcd_watch *watch;
static uint64_t incarnation;
static int64_t stop_us;
static pthread_t stopper; /* while stop_us > 0 */

static int64_t number(const char *word)
{
    return strtoll(word, NULL, 10);
}

static void set(json_t *json, const char *name, json_t *value)
{
    leat_assert(value != NULL && json_object_set_new(json, name, value) == 0);
}

static json_t *text(struct str bytes)
{
    return json_stringn_nocheck(bytes.length == 0 ? "" : bytes.data, bytes.length);
}

static json_t *optional(const char *words)
{
    return words == NULL ? json_null() : json_string(words);
}

static void print_answer(struct answer *answer)
{
    static const char *const outcomes[] = {"unknown", "done", "refused"};
    json_t *diags = json_array();
    for (unsigned i = 0; i < answer->diags.count; i++) {
        const struct diag *diag = &answer->diags.items[i];
        json_array_append_new(diags, json_pack("{s:s, s:b, s:s, s:o}", "code", diag_code_name(diag->code),
                                               "warning", diag->severity == DIAG_WARNING, "message",
                                               diag->message, "hint", optional(diag->hint)));
    }
    set(answer->json, "diags", diags);
    set(answer->json, "outcome", json_string(outcomes[answer->outcome]));
    char *line = json_dumps(answer->json, JSON_COMPACT | JSON_ENSURE_ASCII);
    if (line == NULL || printf("%s\n", line) < 0 || fflush(stdout) != 0)
        exit(1);
    free(line);
}

/* --- The client --- */

static json_t *entry_json(const struct etcd_entry *entry)
{
    return json_pack("{s:o, s:o, s:I, s:I, s:I, s:I}", "key", text(entry->key), "value", text(entry->value),
                     "create", (json_int_t)entry->create_revision, "mod", (json_int_t)entry->mod_revision,
                     "version", (json_int_t)entry->version, "lease", (json_int_t)entry->lease);
}

static void show(struct answer *answer, const struct etcd_answer *got)
{
    json_t *entries = json_array();
    for (uint32_t i = 0; i < got->count; i++)
        json_array_append_new(entries, entry_json(&got->entries[i]));
    set(answer->json, "entries", entries);
    set(answer->json, "error", json_integer(got->error));
    set(answer->json, "compare", json_integer(got->compare));
    set(answer->json, "revision", json_integer(got->revision));
    set(answer->json, "lease", json_integer(got->lease));
    set(answer->json, "ttl", json_integer(got->ttl_s));
}

/* The next part of *rest up to the mark. */
static struct str part(char **rest, const char *mark)
{
    char *word = strsep(rest, mark);
    return str_from(word == NULL ? "" : word);
}

static uint32_t read_ops(char *words, struct etcd_op *ops)
{
    uint32_t count = 0;
    while (words != NULL && *words != '\0' && count < OPS_MAX) {
        char *one = strsep(&words, "|");
        struct etcd_op *op = &ops[count++];
        struct str kind = part(&one, ",");
        *op = (struct etcd_op){.key = part(&one, ","), .value = part(&one, ",")};
        op->kind = str_is(kind, "put") ? ETCD_PUT : str_is(kind, "delete") ? ETCD_DELETE : ETCD_RANGE;
        op->is_prefix = str_is(kind, "prefix");
    }
    return count;
}

static uint32_t read_compares(char *words, struct etcd_compare *compares)
{
    static const char *const targets[] = {"value", "version", "create", "mod"};
    static const char *const relations[] = {"equal", "not", "greater", "less"};
    uint32_t count = 0;
    while (words != NULL && *words != '\0' && count < OPS_MAX) {
        char *one = strsep(&words, "|");
        struct str target = part(&one, ","), relation = part(&one, ",");
        struct etcd_compare *compare = &compares[count++];
        for (int i = 0; i < 4; i++) {
            if (str_is(target, targets[i]))
                compare->target = (enum etcd_target)i;
            if (str_is(relation, relations[i]))
                compare->relation = (enum etcd_relation)i;
        }
        compare->key = part(&one, ",");
        compare->value = part(&one, ",");
        compare->number = number(compare->value.data);
    }
    return count;
}

static void run_txn(struct answer *answer, char **word)
{
    struct etcd_compare compares[OPS_MAX] = {0};
    struct etcd_op then_ops[OPS_MAX] = {0}, else_ops[OPS_MAX] = {0};
    struct etcd_answer got;
    struct etcd_txn txn = {.compares = compares, .then_ops = then_ops, .else_ops = else_ops};
    txn.compares_count = read_compares(word[1], compares);
    txn.then_count = read_ops(word[2], then_ops);
    txn.else_count = read_ops(word[3], else_ops);
    answer->outcome = etcd_txn(etcd, &txn, &answer->arena, &got, &answer->diags);
    show(answer, &got);
}

static void run_range(struct answer *answer, char **word)
{
    bool is_at = strcmp(word[0], "at") == 0;
    const struct etcd_range range = {.key = str_from(word[is_at ? 2 : 1]),
                                     .is_prefix =
                                         strcmp(word[0], "prefix") == 0 || strcmp(word[0], "first") == 0,
                                     .is_first_made = strcmp(word[0], "first") == 0,
                                     .is_serializable = strcmp(word[0], "stale") == 0,
                                     .revision = is_at ? number(word[1]) : 0};
    struct etcd_answer got;
    answer->outcome = etcd_range(etcd, &range, &answer->arena, &got, &answer->diags);
    show(answer, &got);
}

static void run_fill(struct answer *answer, char **word)
{
    size_t bytes = (size_t)number(word[3]);
    char *value = arena_calloc(&answer->arena, 1, bytes + 1);
    struct etcd_answer got = {0};
    memset(value, 'x', bytes);
    for (int64_t i = 0; i < number(word[2]); i++) {
        char *key = arena_printf(&answer->arena, "%s%04lld", word[1], (long long)i);
        answer->outcome = etcd_put(etcd, str_from(key), str_from(value), 0, &got, &answer->diags);
        set(answer->json, "filled", json_integer(i));
        if (answer->outcome != ETCD_DONE)
            break;
    }
    show(answer, &got);
}

static void run_status(struct answer *answer)
{
    struct etcd_status status;
    answer->outcome = etcd_status(etcd, &status, &answer->diags);
    json_object_update_new(answer->json,
                           json_pack("{s:I, s:I, s:b, s:b, s:s}", "bytes", (json_int_t)status.bytes, "in_use",
                                     (json_int_t)status.bytes_in_use, "has_leader", status.leader != 0,
                                     "out_of_space", status.is_out_of_space, "version", status.version));
}

static void run_next(struct answer *answer, int64_t wait_us)
{
    static const char *const names[] = {"quiet", "events", "progress", "compacted", "lost"};
    struct etcd_changes changes;
    enum etcd_watched watched = etcd_watch_next(watch, wait_us, &answer->arena, &changes, &answer->diags);
    json_t *events = json_array();
    for (uint32_t i = 0; i < changes.count; i++) {
        json_t *event = entry_json(&changes.events[i].entry);
        set(event, "delete", json_boolean(changes.events[i].is_delete));
        json_array_append_new(events, event);
    }
    answer->outcome = ETCD_DONE;
    set(answer->json, "watched", json_string(names[watched]));
    set(answer->json, "events", events);
    set(answer->json, "revision", json_integer(changes.revision));
}

static bool run_client(struct answer *answer, char **word)
{
    struct etcd_answer got = {0};
    struct str key = str_from(word[1]);
    struct diag_list *diags = &answer->diags;
    if (strcmp(word[0], "put") == 0)
        answer->outcome = etcd_put(etcd, key, str_from(word[2]), number(word[3]), &got, diags);
    else if (strcmp(word[0], "delete") == 0)
        answer->outcome = etcd_delete(etcd, key, false, &got, diags);
    else if (strcmp(word[0], "compact") == 0)
        answer->outcome = etcd_compact(etcd, number(word[1]), &got, diags);
    else if (strcmp(word[0], "grant") == 0)
        answer->outcome = etcd_lease_grant(etcd, number(word[1]), &got, diags);
    else if (strcmp(word[0], "keep") == 0)
        answer->outcome = etcd_lease_keep(etcd, number(word[1]), &got, diags);
    else if (strcmp(word[0], "revoke") == 0)
        answer->outcome = etcd_lease_revoke(etcd, number(word[1]), &got, diags);
    else if (strcmp(word[0], "left") == 0)
        answer->outcome = etcd_lease_left(etcd, number(word[1]), &got, diags);
    else
        return false;
    show(answer, &got);
    return true;
}

static bool run_client_more(struct answer *answer, char **word)
{
    if (strcmp(word[0], "get") == 0 || strcmp(word[0], "prefix") == 0 || strcmp(word[0], "first") == 0 ||
        strcmp(word[0], "stale") == 0 || strcmp(word[0], "at") == 0)
        run_range(answer, word);
    else if (strcmp(word[0], "txn") == 0)
        run_txn(answer, word);
    else if (strcmp(word[0], "fill") == 0)
        run_fill(answer, word);
    else if (strcmp(word[0], "status") == 0)
        run_status(answer);
    else if (strcmp(word[0], "next") == 0)
        run_next(answer, number(word[1]) * 1000);
    else if (strcmp(word[0], "watch") == 0) {
        etcd_watch_close(watch);
        watch = etcd_watch_open(etcd, str_from(word[1]), number(word[2]) != 0, number(word[3]));
        answer->outcome = ETCD_DONE;
    } else
        return false;
    return true;
}

/* --- The coordination --- */

static struct cluster_head head_of(struct arena *arena, int64_t epoch)
{
    return (struct cluster_head){.incarnation = incarnation,
                                 .epoch = (uint64_t)epoch,
                                 .manifest =
                                     str_from(arena_printf(arena, "manifests/%lld", (long long)epoch)),
                                 .digest = STR("0123456789abcdef0123456789abcdef")};
}

static void run_publish(struct answer *answer, char **word)
{
    int64_t first = number(word[1]), count = word[2][0] == '\0' ? 1 : number(word[2]), done = 0;
    for (; done < count; done++) {
        struct arena arena = {.block_bytes = 1024};
        struct cluster_head head = head_of(&arena, first + done);
        answer->outcome = coordination_publish(coordination, &head, &answer->diags);
        arena_free(&arena);
        if (answer->outcome != ETCD_DONE)
            break;
    }
    set(answer->json, "published", json_integer(done));
}

static void run_read(struct answer *answer)
{
    struct cluster_view view;
    answer->outcome = coordination_read(coordination, &answer->arena, &view, &answer->diags);
    if (answer->outcome != ETCD_DONE)
        return;
    char secret[2 * COORDINATION_SECRET_BYTES + 1];
    json_t *members = json_array();
    for (uint32_t i = 0; i < view.members_count; i++) {
        const struct cluster_member *member = &view.members[i];
        json_array_append_new(
            members, json_pack("{s:o, s:o, s:I, s:I, s:I, s:b, s:I}", "address", text(member->address),
                               "host", text(member->host), "lanes", (json_int_t)member->lanes, "clock",
                               (json_int_t)member->clock_us, "lease", (json_int_t)member->lease, "standby",
                               member->is_standby, "prepared", (json_int_t)member->prepared.epoch));
    }
    hex_text(view.secret, sizeof(view.secret), secret);
    json_object_update_new(
        answer->json,
        json_pack("{s:b, s:o, s:I, s:I, s:s, s:o, s:{s:I, s:I, s:I, s:I, s:I, s:o}}", "has_job", view.has_job,
                  "members", members, "leader", (json_int_t)view.leader, "incarnation",
                  (json_int_t)view.incarnation, "secret", secret, "placement", text(view.placement), "head",
                  "epoch", (json_int_t)view.head.epoch, "incarnation", (json_int_t)view.head.incarnation,
                  "revision", (json_int_t)view.head.revision, "previous", (json_int_t)view.head.previous,
                  "writer", (json_int_t)view.head.writer, "manifest", text(view.head.manifest)));
}

static struct cluster_member own_member(void)
{
    return (struct cluster_member){
        .address = str_from(own_address), .host = STR("host"), .lanes = 3, .clock_us = os_wall_us()};
}

static void run_join(struct answer *answer, char **word)
{
    const struct cluster_job job = {.digest = str_from(word[1]),
                                    .version = str_from(word[2]),
                                    .profile = str_from(word[3]),
                                    .by = str_from(word[4]),
                                    .run = str_from(word[4])};
    (void)snprintf(own_address, sizeof(own_address), "%s", word[4]);
    const struct cluster_member member = own_member();
    answer->outcome = coordination_join(coordination, &job, &member, number(word[5]) != 0, &answer->diags);
    set(answer->json, "lease", json_integer(coordination_lease(coordination)));
}

/* ask WORKERS DRAINS WITHOUT [REVISION]: in place of the request that is there, or of one of that revision. */
static void run_ask(struct answer *answer, char **word)
{
    struct cluster_view view;
    answer->outcome = coordination_read(coordination, &answer->arena, &view, &answer->diags);
    if (answer->outcome != ETCD_DONE)
        return;
    const struct cluster_wanted wanted = {.workers = (uint32_t)number(word[1]),
                                          .drains = number(word[2]),
                                          .without = {number(word[3])},
                                          .without_count = number(word[3]) != 0,
                                          .by = STR("a test"),
                                          .revision =
                                              word[4][0] != '\0' ? number(word[4]) : view.wanted.revision};
    answer->outcome = coordination_ask_workers(coordination, &wanted, &answer->diags);
}

static void run_member(struct answer *answer)
{
    answer->outcome = ETCD_DONE;
    json_object_update_new(answer->json,
                           json_pack("{s:b, s:I, s:b, s:I}", "member", coordination_is_member(coordination),
                                     "us", (json_int_t)coordination_member_us(coordination), "gone",
                                     coordination_is_gone(coordination), "lease",
                                     (json_int_t)coordination_lease(coordination)));
}

static void run_begin(struct answer *answer)
{
    uint8_t secret[COORDINATION_SECRET_BYTES] = {0};
    char digits[2 * COORDINATION_SECRET_BYTES + 1];
    uint64_t begun = 0;
    answer->outcome = coordination_begin(coordination, &begun, secret, &answer->diags);
    incarnation = answer->outcome == ETCD_DONE ? begun : incarnation;
    hex_text(secret, sizeof(secret), digits);
    set(answer->json, "incarnation", json_integer((json_int_t)begun));
    set(answer->json, "secret", json_string(digits));
}

static bool run_leader(struct answer *answer, char **word)
{
    struct diag_list *diags = &answer->diags;
    int64_t leader = 0;
    if (strcmp(word[0], "campaign") == 0) {
        answer->outcome = coordination_campaign(coordination, &leader, diags);
        set(answer->json, "leader", json_integer(leader));
    } else if (strcmp(word[0], "leads") == 0)
        answer->outcome = coordination_still_leads(coordination, diags);
    else if (strcmp(word[0], "resign") == 0)
        answer->outcome = coordination_resign(coordination, diags);
    else if (strcmp(word[0], "begin") == 0)
        run_begin(answer);
    else if (strcmp(word[0], "ask") == 0)
        run_ask(answer, word);
    else if (strcmp(word[0], "place") == 0)
        answer->outcome = coordination_place(coordination, str_from(word[1]), diags);
    else if (strcmp(word[0], "publish") == 0)
        run_publish(answer, word);
    else if (strcmp(word[0], "forget") == 0)
        answer->outcome = coordination_compact(coordination, diags);
    else
        return false;
    return true;
}

static void run_turn(struct answer *answer)
{
    const struct rendezvous_round *round;
    answer->outcome = rendezvous_turn(rendezvous, &round, &answer->diags);
    set(answer->json, "waits", json_string(rendezvous_waits_for(rendezvous)));
    set(answer->json, "missed", json_integer((json_int_t)rendezvous_missed(rendezvous)));
    set(answer->json, "ended", json_boolean(rendezvous_have_ended(rendezvous)));
    set(answer->json, "changes", json_boolean(rendezvous_changes(rendezvous)));
    set(answer->json, "must_leave", json_boolean(rendezvous_must_leave(rendezvous)));
    set(answer->json, "may_leave", json_boolean(rendezvous_may_leave(rendezvous)));
    const struct rendezvous_round *other = rendezvous_other(rendezvous);
    set(answer->json, "other", json_integer(other == NULL ? 0 : (json_int_t)other->incarnation));
    if (round == NULL)
        return;
    char secret[2 * COORDINATION_SECRET_BYTES + 1];
    json_t *workers = json_array();
    for (uint32_t i = 0; i < round->count; i++)
        json_array_append_new(workers, text(round->workers[i].address));
    hex_text(round->secret, sizeof(round->secret), secret);
    set(answer->json, "round",
        json_pack("{s:I, s:s, s:i, s:i, s:i, s:I, s:o}", "incarnation", (json_int_t)round->incarnation,
                  "secret", secret, "self", (int)round->self, "leader", (int)round->leader, "lanes",
                  (int)round->lanes, "head", (json_int_t)round->head.epoch, "workers", workers));
}

static bool run_rendezvous(struct answer *answer, char **word)
{
    answer->outcome = ETCD_DONE;
    if (strcmp(word[0], "gather") == 0) {
        const struct rendezvous_options options = {.coordination = coordination,
                                                   .least = (uint32_t)number(word[1]),
                                                   .most = (uint32_t)number(word[2]),
                                                   .wait_us = number(word[3]) * 1000,
                                                   .return_us = number(word[4]) * 1000,
                                                   .apart_us = number(word[5]) * 1000,
                                                   .grows = word[6][0] != '\0',
                                                   .rest_us = number(word[6]) * 1000,
                                                   .is_standby = word[6][0] != '\0' && word[7][0] != '\0'};
        rendezvous_free(rendezvous);
        rendezvous = rendezvous_new(&options, &answer->diags);
        answer->outcome = rendezvous != NULL ? ETCD_DONE : ETCD_REFUSED;
    } else if (strcmp(word[0], "turn") == 0)
        run_turn(answer);
    else if (strcmp(word[0], "doubt") == 0)
        rendezvous_doubt(rendezvous, (uint32_t)number(word[1]), word[2][0] != '\0');
    else if (strcmp(word[0], "over") == 0) {
        struct cluster_member member = own_member();
        answer->outcome =
            rendezvous_tell_over(rendezvous, &member, (uint64_t)number(word[1]), &answer->diags);
    } else if (strcmp(word[0], "prepared") == 0) {
        struct cluster_member member = own_member();
        const struct cluster_head *head = rendezvous_head(rendezvous);
        const struct cluster_prepared prepared = {head->incarnation, head->epoch, head->clock_us};
        answer->outcome = rendezvous_tell_prepared(rendezvous, &member, &prepared, &answer->diags);
    } else if (strcmp(word[0], "fits") == 0) {
        struct cluster_member member = own_member();
        answer->outcome =
            rendezvous_tell_fits(rendezvous, &member, (uint64_t)number(word[1]), &answer->diags);
    } else if (strcmp(word[0], "leaves") == 0) {
        struct cluster_member member = own_member();
        answer->outcome = rendezvous_tell_leaves(rendezvous, &member, &answer->diags);
    } else if (strcmp(word[0], "ended") == 0) {
        struct cluster_member member = own_member();
        answer->outcome = rendezvous_tell_ended(rendezvous, &member, (uint64_t)number(word[1]),
                                                number(word[2]) != 0, &answer->diags);
    } else
        return false;
    return true;
}

static void *stop_later(void *nothing)
{
    usleep((useconds_t)stop_us);
    coordination_stop(coordination);
    etcd_stop(etcd);
    return nothing;
}

static void run_stop(struct answer *answer, int64_t us)
{
    stop_us = us;
    leat_assert(us > 0 && pthread_create(&stopper, NULL, stop_later, NULL) == 0);
    answer->outcome = ETCD_DONE;
}

static void run_coordination(struct answer *answer, char **word)
{
    if (strcmp(word[0], "join") == 0)
        run_join(answer, word);
    else if (strcmp(word[0], "member") == 0)
        run_member(answer);
    else if (strcmp(word[0], "read") == 0)
        run_read(answer);
    else if (strcmp(word[0], "wait") == 0)
        answer->outcome = coordination_wait(coordination, number(word[1]) * 1000) ? ETCD_DONE : ETCD_UNKNOWN;
    else if (strcmp(word[0], "leave") == 0)
        answer->outcome = coordination_leave(coordination, &answer->diags);
    else if (strcmp(word[0], "stop_in") == 0)
        run_stop(answer, number(word[1]) * 1000);
    else if (strcmp(word[0], "rebuild") == 0) {
        const struct cluster_job job = {STR("digest"), STR("1.0"), STR("avx2"), STR("rebuilt"), STR("run")};
        struct cluster_head head = head_of(&answer->arena, number(word[1]));
        answer->outcome =
            coordination_rebuild(coordination, &job, &head, (uint64_t)number(word[2]), &answer->diags);
    } else
        exit(2);
}

static void run_line(char *line)
{
    static char nothing[] = "";
    struct answer answer = {.json = json_object()};
    char *words[WORDS_MAX] = {nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing},
         *rest = line;
    diag_list_init(&answer.diags, &answer.arena);
    for (size_t i = 0; i < WORDS_MAX && rest != NULL; i++)
        words[i] = strsep(&rest, "\t");
    if (!run_client(&answer, words) && !run_client_more(&answer, words) && !run_leader(&answer, words) &&
        !run_rendezvous(&answer, words))
        run_coordination(&answer, words);
    print_answer(&answer);
    json_decref(answer.json);
    arena_free(&answer.arena);
}

/* --- The program --- */

static void read_option(struct coordination_options *options, char *word)
{
    char *value = word;
    const char *name = strsep(&value, "=");
    const struct {
        const char *name;
        const char **to;
    } texts[] = {{"authority", &options->etcd.authority},
                 {"certificate", &options->etcd.certificate},
                 {"key", &options->etcd.key},
                 {"user", &options->etcd.user},
                 {"password", &options->etcd.password}};
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++)
        if (strcmp(name, texts[i].name) == 0)
            *texts[i].to = value;
    if (strcmp(name, "request_ms") == 0)
        options->etcd.request_us = number(value) * 1000;
    if (strcmp(name, "lease_s") == 0)
        options->lease_s = (uint32_t)number(value);
    if (strcmp(name, "compact_every") == 0)
        options->compact_every = (uint32_t)number(value);
}

static bool open_all(struct coordination_options *options, struct diag_list *diags)
{
    struct coordination_address address;
    coordination = coordination_open(options, diags);
    if (coordination == NULL)
        return false;
    struct etcd_options more = options->etcd;
    leat_assert(coordination_parse(options->address, &address, diags));
    more.endpoints = address.endpoints;
    etcd = etcd_open(&more, diags);
    return etcd != NULL;
}

int main(int count, char **arguments)
{
    struct answer answer = {.json = json_object()};
    if (count < 2)
        return 2;
    struct coordination_options options = {.address = str_from(arguments[1])};
    for (int i = 2; i < count; i++)
        read_option(&options, arguments[i]);
    char *line = mem_alloc(LINE_BYTES);
    diag_list_init(&answer.diags, &answer.arena);
    answer.outcome = open_all(&options, &answer.diags) ? ETCD_DONE : ETCD_REFUSED;
    print_answer(&answer);
    while (answer.outcome == ETCD_DONE && fgets(line, LINE_BYTES, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        run_line(line);
    }
    if (stop_us > 0)
        pthread_join(stopper, NULL);
    etcd_watch_close(watch);
    etcd_close(etcd);
    rendezvous_free(rendezvous);
    coordination_close(coordination);
    json_decref(answer.json);
    arena_free(&answer.arena);
    free(line);
    return 0;
}
