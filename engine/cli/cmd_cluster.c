/* leat cluster status|stop etcd://.../NAME: the workers of a job on several machines, as etcd knows them. */
#include "cli/argp.h"
#include "cli/commands.h"
#include "cli/run_cluster.h"
#include "cli/token.h"
#include "cluster/rendezvous.h"
#include "core/mem.h"
#include "core/os.h"

#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { KEY_JSON = 256, WAIT_MS = 200 };

struct arguments {
    const char *verb;
    struct run_cluster_flags flags;
    bool is_json;
};

/* What is known of the cluster. */
struct found {
    struct cluster_view view;
    struct rendezvous_round *round;
    bool has_round, has_ended; /* has_ended: at all workers of the round */
};

static const struct argp_option options_table[] = {
    {"json", KEY_JSON, NULL, 0, "status: as JSON", 0},
    {"etcd-authority", RUN_CLUSTER_ETCD_AUTHORITY, "FILE", 0,
     "TLS to etcd, whose certificates this authority (PEM) has signed", 1},
    {"etcd-certificate", RUN_CLUSTER_ETCD_CERTIFICATE, "FILE", 0, "this client's certificate for etcd (PEM)",
     1},
    {"etcd-key", RUN_CLUSTER_ETCD_KEY, "FILE", 0, "the certificate's private key (PEM)", 1},
    {"etcd-user", RUN_CLUSTER_ETCD_USER, "NAME", 0, "the user of etcd, with --etcd-password-file", 1},
    {"etcd-password-file", RUN_CLUSTER_ETCD_PASSWORD, "FILE", 0, "the user's password: the file's only word",
     1},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct arguments *arguments = state->input;
    switch (key) {
    case KEY_JSON: arguments->is_json = true; return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num == 0)
            arguments->verb = argument;
        else if (state->arg_num == 1)
            arguments->flags.cluster = argument;
        else
            argp_error(state, "give one cluster only");
        return 0;
    case ARGP_KEY_END:
        if (arguments->flags.cluster == NULL ||
            (strcmp(arguments->verb, "status") != 0 && strcmp(arguments->verb, "stop") != 0))
            argp_error(state, "give `status` or `stop`, and the cluster: etcd://HOST:PORT,HOST:PORT/NAME");
        run_cluster_check_etcd(&arguments->flags, state);
        return 0;
    default: return run_cluster_parse(key, argument, &arguments->flags, state);
    }
}

static volatile sig_atomic_t must_leave;

static void on_signal(int number LEAT_UNUSED)
{
    must_leave = 1;
}

static struct coordination *open_cluster(const struct run_cluster_flags *flags, struct diag_list *diags)
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

/* False after a diagnostic. */
static bool look(struct coordination *coordination, struct arena *arena, struct found *found,
                 struct diag_list *diags)
{
    *found = (struct found){.round = arena_calloc(arena, 1, sizeof(*found->round))};
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

/* Number of the member in the round that goes on; -1: it waits. */
static int number_of(const struct found *found, int64_t lease)
{
    for (uint32_t i = 0; found->has_round && !found->has_ended && i < found->round->count; i++)
        if (found->round->workers[i].lease == lease)
            return (int)i;
    return -1;
}

static void print_text(const struct found *found)
{
    const struct cluster_view *view = &found->view;
    if (found->has_ended)
        printf("incarnation %" PRIu64 ": the job has ended\n", view->incarnation);
    else if (found->has_round)
        printf("incarnation %" PRIu64 ": %u workers of %u lanes, begun from %s\n", view->incarnation,
               found->round->count, found->round->lanes,
               found->round->head.revision == 0 ? "nothing" : "a head");
    else
        printf("no incarnation yet\n");
    if (view->head.revision != 0)
        printf("head: %.*s\n", STR_ARGS(view->head.manifest));
    printf("%u members\n", view->members_count);
    for (uint32_t i = 0; i < view->members_count; i++) {
        const struct cluster_member *member = &view->members[i];
        int number = number_of(found, member->lease);
        char what[32];
        snprintf(what, sizeof(what), number < 0 ? "waits" : "worker %d", number);
        printf("  %-24.*s %-20.*s %-10s%s\n", STR_ARGS(member->address), STR_ARGS(member->host), what,
               member->lease == view->leader ? " leads" : "");
    }
}

static json_t *text_json(struct str text)
{
    return json_stringn_nocheck(text.length == 0 ? "" : text.data,
                                text.length); /* records were read as UTF-8 */
}

static void print_json(const struct found *found)
{
    const struct cluster_view *view = &found->view;
    json_t *members = json_array();
    for (uint32_t i = 0; i < view->members_count; i++) {
        const struct cluster_member *member = &view->members[i];
        int number = number_of(found, member->lease);
        json_array_append_new(members,
                              json_pack("{s:o, s:o, s:i, s:b, s:o}", "address", text_json(member->address),
                                        "host", text_json(member->host), "lanes", (int)member->lanes, "leads",
                                        member->lease == view->leader, "worker",
                                        number < 0 ? json_null() : json_integer(number)));
    }
    json_t *head =
        view->head.revision == 0
            ? json_null()
            : json_pack("{s:I, s:I, s:o}", "incarnation", (json_int_t)view->head.incarnation, "epoch",
                        (json_int_t)view->head.epoch, "manifest", text_json(view->head.manifest));
    json_t *json = json_pack("{s:I, s:b, s:b, s:o, s:o}", "incarnation", (json_int_t)view->incarnation,
                             "runs", found->has_round && !found->has_ended, "has_ended", found->has_ended,
                             "head", head, "members", members);
    json_dumpf(json, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(json);
}

/* Asks, and waits until nobody is there. */
static bool stop(struct coordination *coordination, struct arena *arena, struct found *found,
                 struct diag_list *diags)
{
    uint32_t said = UINT32_MAX;
    if (found->view.members_count > 0 && coordination_ask_stop(coordination, diags) != ETCD_DONE)
        return false;
    while (found->view.members_count > 0 && !must_leave) {
        if (found->view.members_count != said)
            fprintf(stderr, "%u workers are to stop, behind a checkpoint\n", found->view.members_count);
        said = found->view.members_count;
        nanosleep(&(struct timespec){.tv_nsec = WAIT_MS * 1000000L}, NULL);
        if (!look(coordination, arena, found, diags))
            return false;
    }
    if (must_leave)
        printf("the workers were asked to stop; not waiting for that\n");
    else if (found->view.head.revision != 0)
        printf("no worker runs; the job goes on from the head %.*s\n", STR_ARGS(found->view.head.manifest));
    else
        printf("no worker runs; there is no head yet\n");
    return true;
}

int cmd_cluster(int argc, char **argv)
{
    static const struct argp argp = {
        options_table,
        parse,
        "status|stop etcd://HOST:PORT,HOST:PORT/NAME",
        "Shows the workers of a job on several machines (`leat run --cluster`), or stops the job: all its workers end, "
        "behind a last checkpoint, from which it goes on when they are started again.\v"
        "Status: 0 done; 1 etcd does not answer, or there is no such cluster; 2 a flag or argument is wrong.",
        0,
        0,
        0};
    struct arguments arguments = {0};
    struct arena arena = {0};
    struct diag_list diags;
    struct found found;
    argp_command(&argp, argc, argv, &arguments);
    const struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    diag_list_init(&diags, &arena);
    struct coordination *coordination = open_cluster(&arguments.flags, &diags);
    bool is_good = coordination != NULL && look(coordination, &arena, &found, &diags);
    if (is_good && strcmp(arguments.verb, "stop") == 0)
        is_good = stop(coordination, &arena, &found, &diags);
    else if (is_good)
        (arguments.is_json ? print_json : print_text)(&found);
    diag_print(stderr, &diags, NULL, false);
    coordination_close(coordination);
    arena_free(&arena);
    return is_good ? EXIT_GOOD : EXIT_FAILED;
}
