/* leat checkpoint list|show|verify|prune|save|restore DIR: shows and copies what is in
 * a checkpoint directory. */
#include "cli/argp.h"
#include "cli/checkpoint_head.h"
#include "cli/commands.h"
#include "control/summary.h"
#include "core/civil.h"
#include "core/mem.h"
#include "core/option.h"
#include "run/head_store.h"
#include "state/checkpoint_store_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { KEY_LAST = 256, KEY_TO, KEY_GROUP_LIST };

struct checkpoint_arguments {
    const char *verb, *directory, *which, *to;
    int64_t last;
    struct group_set groups; /* to restore */
    bool has_groups;         /* else all of them */
    struct arena arena;
    struct diag_list diags;
};

static const struct argp_option options_table[] = {
    {"last", KEY_LAST, "N", 0, "prune: how many of the newest checkpoints to keep (default: 1)", 0},
    {"to", KEY_TO, "DIR", 0, "save, restore: the directory to create; it must be empty or not exist", 0},
    {"groups", KEY_GROUP_LIST, "LIST", 0,
     "restore, from a store: these key groups alone, of 0 to 719, for example `0-71, 90`; no job goes on from DIR then",
     0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct checkpoint_arguments *a = state->input;
    switch (key) {
    case KEY_LAST:
        if (!literal_int(str_from(argument), &a->last) || a->last < 1)
            argp_error(state, "--last takes a number from 1, not `%s`", argument);
        return 0;
    case KEY_TO: a->to = argument; return 0;
    case KEY_GROUP_LIST:
        a->has_groups = true;
        if (!group_set_parse(str_from(argument), &a->groups))
            argp_error(state, "--groups takes key groups of 0 to %d, such as `0-71, 90`, each once, not `%s`",
                       KEY_GROUPS - 1, argument);
        return 0;
    case ARGP_KEY_ARG:
        if (a->verb == NULL)
            a->verb = argument;
        else if (a->directory == NULL)
            a->directory = argument;
        else if (a->which == NULL)
            a->which = argument;
        else
            argp_error(state, "too many arguments");
        return 0;
    case ARGP_KEY_END:
        if (a->verb == NULL || a->directory == NULL)
            argp_error(state, "give an action and a directory, for example `leat checkpoint list DIR`");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static void print_id(struct checkpoint_id id)
{
    printf("%u-%" PRIu64, id.generation, id.epoch);
}

static bool list(struct checkpoint_dir *dir, struct checkpoint_arguments *a)
{
    struct checkpoint_list found;
    if (!checkpoint_list(dir, &a->arena, &found, &a->diags))
        return false;
    if (found.count == 0)
        printf("no checkpoints in %s\n", a->directory);
    for (uint32_t i = 0; i < found.count; i++) {
        const struct checkpoint_info *info = &found.items[i];
        print_id(info->id);
        if (found.is_damaged[i]) {
            printf("  DAMAGED: `leat checkpoint verify` shows where\n");
            continue;
        }
        char time[32], bytes[32];
        printf("  %.*s  %s  %s", (int)civil_format(info->created_us, time), time,
               format_bytes((double)info->bytes, bytes),
               info->previous.generation == 0 ? "base" : "delta on ");
        if (info->previous.generation != 0)
            print_id(info->previous);
        printf("%s  %.*s\n", info->databases > 0 ? "  with database" : "", STR_ARGS(info->notes));
    }
    return true;
}

/* Parses the checkpoint's name, "3-17", if one is given, else sets *id to 0. false after a diagnostic. */
static bool named(struct checkpoint_arguments *a, struct checkpoint_id *id)
{
    *id = (struct checkpoint_id){0};
    if (a->which == NULL || checkpoint_id_parse(str_from(a->which), id))
        return true;
    struct diag *d = diag_error(&a->diags, DIAG_NO_COMMAND, (struct span){0},
                                "`%s` is not the name of a checkpoint", a->which);
    diag_hint(&a->diags, d, "`leat checkpoint list %s` shows their names, such as 3-17", a->directory);
    return false;
}

/* The named checkpoint, else the newest. false after a diagnostic. */
static bool choose(struct checkpoint_dir *dir, struct checkpoint_arguments *a, struct checkpoint_id *id)
{
    if (!named(a, id))
        return false;
    if (id->generation != 0)
        return true;
    struct checkpoint_list found;
    if (!checkpoint_list(dir, &a->arena, &found, &a->diags))
        return false;
    if (found.count == 0) {
        diag_error(&a->diags, DIAG_NO_CHECKPOINT, (struct span){0}, "there is no checkpoint in `%s`",
                   a->directory);
        return false;
    }
    *id = found.items[0].id;
    return true;
}

static bool show(struct checkpoint_dir *dir, struct checkpoint_arguments *a)
{
    struct checkpoint_id id;
    struct byte_buffer out = {0};
    bool is_good = choose(dir, a, &id) && checkpoint_show(dir, id, &out, &a->diags);
    struct checkpoint *opened = is_good ? checkpoint_open(dir, id, &a->diags) : NULL;
    if (opened != NULL)
        run_describe_positions(checkpoint_info(opened)->sources, &out);
    checkpoint_close(opened);
    fwrite(out.data, 1, out.length, stdout);
    buffer_free(&out);
    return opened != NULL;
}

static bool verify(struct checkpoint_dir *dir, struct checkpoint_arguments *a)
{
    struct checkpoint_id id;
    if (!choose(dir, a, &id) || !checkpoint_verify(dir, id, &a->diags))
        return false;
    print_id(id);
    printf(": every byte is as written\n");
    return true;
}

static bool prune(struct checkpoint_dir *dir, struct checkpoint_arguments *a)
{
    struct checkpoint_keep keep = {.last = a->last};
    uint32_t removed = 0;
    bool is_good = checkpoint_prune(dir, &keep, &removed, &a->diags);
    printf("%u removed\n", removed);
    return is_good;
}

/* Runs `save` and `restore`: a savepoint is a checkpoint directory, so both copy one directory to another. */
static bool copy(struct checkpoint_dir *dir, struct checkpoint_arguments *a)
{
    struct checkpoint_id id;
    uint64_t bytes;
    char text[32];
    bool is_save = strcmp(a->verb, "save") == 0;
    if (a->to == NULL) {
        struct diag *d = diag_error(&a->diags, DIAG_NO_COMMAND, (struct span){0},
                                    "`leat checkpoint %s` needs --to", a->verb);
        diag_hint(&a->diags, d,
                  is_save ? "for example `leat checkpoint save %s --to savepoint`"
                          : "for example `leat checkpoint restore %s --to state/ctr`",
                  a->directory);
        return false;
    }
    if (a->has_groups) {
        struct diag *d =
            diag_error(&a->diags, DIAG_NO_COMMAND, (struct span){0},
                       "`--groups` is for restores from an object store; `%s` is a directory", a->directory);
        diag_hint(&a->diags, d, "copy all of it: `leat checkpoint %s %s --to %s`", a->verb, a->directory,
                  a->to);
        return false;
    }
    if (!named(a, &id) || !checkpoint_copy(dir, &id, a->to, &bytes, &a->diags))
        return false;
    print_id(id);
    printf(": %s copied to %s, every byte checked\n", format_bytes((double)bytes, text), a->to);
    return true;
}

/* --- In an object store --- */

/* A line for each head of several workers. */
static bool list_manifests(struct checkpoint_store *store, struct checkpoint_arguments *a, uint32_t *count)
{
    struct checkpoint_id *ids;
    struct byte_buffer manifest = {0};
    struct run_head *head = mem_alloc(sizeof(*head));
    bool is_good = checkpoint_store_manifests(store, &a->arena, &ids, count, &a->diags);
    for (uint32_t i = 0; is_good && i < *count; i++) {
        uint64_t bytes = 0;
        char text[32];
        buffer_clear(&manifest);
        enum objects_result got = run_head_in_store(store, ids[i], &manifest, head, &a->diags);
        is_good = got != OBJECTS_FAILED;
        for (uint32_t k = 0; got == OBJECTS_DONE && k < head->count; k++)
            bytes += head->parts[k].bytes;
        if (got != OBJECTS_DONE)
            continue;
        print_id(ids[i]);
        printf("  %s  head of %u worker%s\n", format_bytes((double)bytes, text), head->count,
               head->count == 1 ? "" : "s");
    }
    free(head);
    buffer_free(&manifest);
    return is_good;
}

static bool list_store(struct checkpoint_store *store, struct checkpoint_arguments *a)
{
    struct checkpoint_head *heads;
    uint32_t count, manifests;
    if (!list_manifests(store, a, &manifests) ||
        !checkpoint_store_list(store, &a->arena, &heads, &count, &a->diags))
        return false;
    if (count + manifests == 0)
        printf("no checkpoints in %s\n", a->directory);
    for (uint32_t i = 0; i < count; i++) {
        char time[32], bytes[32];
        print_id(heads[i].id);
        printf("  %.*s  %s\n", (int)civil_format(heads[i].created_us, time), time,
               format_bytes((double)heads[i].bytes, bytes));
    }
    return true;
}

static bool restore_groups(struct checkpoint_store *store, struct checkpoint_arguments *a,
                           struct checkpoint_id id)
{
    struct checkpoint_store_read read;
    char groups[GROUP_SET_TEXT_BYTES], pieces[32], database[32], rest[32];
    if (!checkpoint_store_restore_groups(store, &id, a->to, &a->groups, &read, &a->diags))
        return false;
    group_set_text(&a->groups, groups);
    print_id(id);
    printf(
        ": key groups %s copied to %s, every byte checked: %s of pieces, %s of databases, %s of MANIFESTs and tables\n",
        groups, a->to, format_bytes((double)read.pieces, pieces),
        format_bytes((double)read.database, database),
        format_bytes((double)(read.manifests + read.tables), rest));
    return true;
}

/* No directory of a run is made of the parts of several workers. False after a diagnostic. */
static bool check_is_alone(struct checkpoint_store *store, struct checkpoint_arguments *a,
                           struct checkpoint_id id)
{
    struct checkpoint_id *ids;
    uint32_t count;
    bool is_manifest = false;
    if (!checkpoint_store_manifests(store, &a->arena, &ids, &count, &a->diags))
        return false;
    for (uint32_t i = 0; i < count; i++)
        is_manifest |= id.generation == 0 || (ids[i].generation == id.generation && ids[i].epoch == id.epoch);
    if (!is_manifest)
        return true;
    struct diag *d =
        diag_error(&a->diags, DIAG_NO_COMMAND, (struct span){0},
                   "the %s in `%s` is a head of several workers, of which no directory is made",
                   id.generation == 0 ? "newest checkpoint" : "checkpoint of that name", a->directory);
    diag_hint(
        &a->diags, d,
        "workers go on from it by themselves (`leat run JOB --cluster=...`), and `leat run JOB --from %s` begins a new "
        "run with it",
        a->directory);
    return false;
}

static bool restore_store(struct checkpoint_store *store, struct checkpoint_arguments *a)
{
    struct checkpoint_id id;
    uint64_t bytes;
    char text[32];
    if (a->to == NULL) {
        struct diag *d =
            diag_error(&a->diags, DIAG_NO_COMMAND, (struct span){0}, "`leat checkpoint restore` needs --to");
        diag_hint(&a->diags, d, "for example `leat checkpoint restore %s --to state/ctr`", a->directory);
        return false;
    }
    if (!named(a, &id) || !check_is_alone(store, a, id))
        return false;
    if (a->has_groups)
        return restore_groups(store, a, id);
    if (!checkpoint_store_restore(store, &id, a->to, &bytes, &a->diags))
        return false;
    print_id(id);
    printf(": %s copied to %s, every byte checked\n", format_bytes((double)bytes, text), a->to);
    return true;
}

static bool run_store_verb(struct checkpoint_arguments *a)
{
    bool is_list = strcmp(a->verb, "list") == 0;
    if (strcmp(a->verb, "show") == 0 || strcmp(a->verb, "verify") == 0)
        return checkpoint_head_verb(a->verb, a->directory, a->which, &a->diags);
    if (!is_list && strcmp(a->verb, "restore") != 0) {
        struct diag *d = diag_error(&a->diags, DIAG_NO_COMMAND, (struct span){0},
                                    "`leat checkpoint %s` does not work in an object store", a->verb);
        diag_hint(&a->diags, d,
                  "`list`, `show`, `verify` and `restore` do; restore the checkpoint into a directory first");
        return false;
    }
    struct objects_options options = {.url = str_from(a->directory)};
    struct checkpoint_store *store = checkpoint_store_open(&options, &a->diags);
    bool is_good = store != NULL && (is_list ? list_store(store, a) : restore_store(store, a));
    checkpoint_store_close(store);
    return is_good;
}

static const struct {
    const char *name;
    bool (*run)(struct checkpoint_dir *dir, struct checkpoint_arguments *a);
    bool writes;
} verbs[] = {{"list", list, false},  {"show", show, false}, {"verify", verify, false},
             {"prune", prune, true}, {"save", copy, false}, {"restore", copy, false}};

static bool run_verb(struct checkpoint_arguments *a)
{
    for (size_t i = 0; i < ARRAY_COUNT(verbs); i++) {
        if (strcmp(a->verb, verbs[i].name) != 0)
            continue;
        if (run_head_is_file(a->directory))
            return checkpoint_head_verb(a->verb, a->directory, a->which, &a->diags);
        if (access(a->directory, F_OK) != 0) {
            diag_error(&a->diags, DIAG_FOREIGN_DIRECTORY, (struct span){0}, "there is no directory `%s`",
                       a->directory);
            return false;
        }
        static const struct group_set none; /* a checkpoint of some key groups can be looked at, too */
        struct checkpoint_dir_options options = {
            .path = a->directory, .read_only = !verbs[i].writes, .groups = &none};
        struct checkpoint_dir *dir = checkpoint_dir_open(&options, &a->diags);
        bool is_good = dir != NULL && verbs[i].run(dir, a);
        checkpoint_dir_close(dir);
        return is_good;
    }
    struct diag *d = diag_error(&a->diags, DIAG_NO_COMMAND, (struct span){0},
                                "`leat checkpoint` has no action `%s`", a->verb);
    diag_hint(&a->diags, d, "the actions are list, show, verify, prune, save and restore");
    return false;
}

/* `DIR@3-17`, as `leat run --from` takes it, is `DIR 3-17`. */
static void split_name(struct checkpoint_arguments *a)
{
    struct checkpoint_id id;
    size_t bytes = a->which == NULL ? checkpoint_name_split(a->directory, &id) : strlen(a->directory);
    if (a->directory[bytes] == '\0')
        return;
    a->which = a->directory + bytes + 1;
    a->directory = arena_strndup(&a->arena, a->directory, bytes);
}

int cmd_checkpoint(int argc, char **argv)
{
    static const struct argp argp = {
        options_table,
        parse,
        "list|show|verify|prune|save|restore DIR [CHECKPOINT]",
        "Looks inside a checkpoint directory, saves a checkpoint, and restores a saved one.\vCHECKPOINT is a "
        "name as `list` prints it (generation-epoch), also in one with DIR, `DIR@3-17`; the default is the newest.\n\n"
        "`save DIR --to SAVEPOINT` copies a checkpoint and all checkpoints that it builds on, also while a "
        "job runs; `restore SAVEPOINT --to DIR` makes a checkpoint directory of the copy, from which the "
        "same run resumes (`leat run JOB`). `leat run JOB --from SAVEPOINT` starts a new run from the copy "
        "instead. Files that sinks wrote are not part of a savepoint.\n\n"
        "`list`, `show` and `verify` also take, for DIR, the file of a head: a checkpoint of several workers, whose parts lie in the "
        "directories that it names.\n\n"
        "`list`, `show`, `verify` and `restore` also take the URL that the job's `checkpoint: { store: ... }` names, "
        "`s3://BUCKET/PREFIX` or `file:/DIR`: where the job's own directory is lost, `restore` makes it "
        "again. Keys for S3 come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, "
        "AWS_ENDPOINT_URL_S3).",
        0,
        0,
        0};
    struct checkpoint_arguments arguments = {.last = 1};
    diag_list_init(&arguments.diags, &arguments.arena);
    argp_command(&argp, argc, argv, &arguments);
    split_name(&arguments);
    bool is_good =
        objects_is_url(str_from(arguments.directory)) ? run_store_verb(&arguments) : run_verb(&arguments);
    diag_print(stderr, &arguments.diags, NULL, isatty(STDERR_FILENO) != 0);
    arena_free(&arguments.arena);
    return is_good ? EXIT_GOOD : EXIT_FAILED;
}
