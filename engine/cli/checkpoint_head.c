#include "cli/checkpoint_head.h"

#include "cli/checkpoint_job.h"
#include "control/summary.h"
#include "core/mem.h"
#include "run/head_store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* A head that was read; its texts point into the manifest. */
struct opened {
    struct byte_buffer manifest;
    struct run_head head;
    struct checkpoint_store *store; /* NULL: parts lie in directories */
    struct arena arena;
};

static bool refuse_name(const char *path, const char *which, struct diag_list *diags)
{
    struct diag *d =
        diag_error(diags, DIAG_NO_COMMAND, (struct span){0},
                   "`%s` is one checkpoint, of several workers: expected no name of a checkpoint, found `%s`",
                   path, which);
    diag_hint(diags, d, "leave out `%s`, or name the file of another head", which);
    return false;
}

static void close_head(struct opened *opened)
{
    checkpoint_store_close(opened->store);
    buffer_free(&opened->manifest);
    arena_free(&opened->arena);
    free(opened);
}

/* Reads the head that is named, or the newest, from the store of that URL. False after a diagnostic. */
static bool read_from_store(struct opened *opened, const char *url, const char *which,
                            struct diag_list *diags)
{
    struct checkpoint_id id = {0};
    struct objects_options options = {.url = {url, checkpoint_name_split(url, &id)}};
    if (which != NULL && !checkpoint_named(which, url, &id, diags))
        return false;
    opened->store = checkpoint_store_open(&options, diags);
    enum objects_result found =
        opened->store == NULL ? OBJECTS_FAILED
                              : run_head_in_store(opened->store, id, &opened->manifest, &opened->head, diags);
    if (found != OBJECTS_MISSING)
        return found == OBJECTS_DONE;
    struct diag *d =
        diag_error(diags, DIAG_NO_CHECKPOINT, (struct span){0}, "there is no such checkpoint in `%s`", url);
    diag_hint(diags, d, "`leat checkpoint list %.*s` shows what is there", STR_ARGS(options.url));
    return false;
}

/* The caller frees what it gets with close_head; NULL after a diagnostic. */
static struct opened *open_head(const char *path, const char *which, struct diag_list *diags)
{
    bool is_url = objects_is_url(str_from(path));
    if (!is_url && which != NULL && !refuse_name(path, which, diags))
        return NULL;
    struct opened *opened = mem_calloc(1, sizeof(*opened));
    if (is_url ? read_from_store(opened, path, which, diags)
               : run_head_load(path, &opened->manifest, &opened->head, diags))
        return opened;
    close_head(opened);
    return NULL;
}

/* Brings parts that lie in a store into the temporary directory. False after a diagnostic. */
static bool bring_parts(struct opened *opened, struct temporary_directory *temporary, struct diag_list *diags)
{
    if (opened->store == NULL)
        return true;
    if (temporary->path == NULL && !temporary_directory_make(temporary)) {
        int error = errno;
        struct diag *d = diag_error(diags, DIAG_STATE_FAILED, (struct span){0},
                                    "cannot create a temporary directory for the checkpoint");
        diag_errno(diags, d, error);
        diag_hint(diags, d, "set TMPDIR to a directory where this user may write");
        return false;
    }
    struct run_head_fetch fetch = {.store = opened->store, .to = temporary->path, .arena = &opened->arena};
    return run_head_fetch(&opened->head, &fetch, diags);
}

struct checkpoint *checkpoint_head_open(const char *path, const char *which,
                                        struct temporary_directory *temporary, struct diag_list *diags)
{
    struct opened *opened = open_head(path, which, diags);
    if (opened == NULL)
        return NULL;
    struct checkpoint *checkpoint = bring_parts(opened, temporary, diags)
                                        ? run_head_open(&opened->head, (struct str){"", 0}, diags)
                                        : NULL;
    close_head(opened);
    return checkpoint;
}

static void list_parts(const struct run_head *head)
{
    char bytes[32];
    printf("a head of %u workers, epoch %" PRIu64 "; worker %u led: its part has positions and order log\n",
           head->count, head->epoch, head->leader);
    for (uint32_t i = 0; i < head->count; i++) {
        const struct run_head_part *part = &head->parts[i];
        printf("worker %u  %u-%" PRIu64 "  %s  %.*s\n", part->worker, part->id.generation, part->id.epoch,
               format_bytes((double)part->bytes, bytes), STR_ARGS(part->directory));
    }
}

/* Shows or verifies one part. false after a diagnostic. */
static bool look_at_part(const struct run_head_part *part, bool is_show, struct diag_list *diags)
{
    char *path = mem_str(part->directory);
    static const struct group_set none; /* a part has some key groups */
    struct checkpoint_dir_options options = {.path = path, .read_only = true, .groups = &none};
    struct checkpoint_dir *dir = checkpoint_dir_open(&options, diags);
    struct byte_buffer out = {0};
    bool is_good = dir != NULL && (is_show ? checkpoint_show(dir, part->id, &out, diags)
                                           : checkpoint_verify(dir, part->id, diags));
    if (is_good)
        printf("worker %u%s\n%.*s", part->worker, is_show ? ":" : ": every byte is as written",
               (int)out.length, out.length == 0 ? "" : out.data);
    buffer_free(&out);
    checkpoint_dir_close(dir);
    free(path);
    return is_good;
}

/* Shows or verifies all parts, which must be those that the head names. false after a diagnostic. */
static bool look_at_parts(const struct run_head *head, bool is_show, struct diag_list *diags)
{
    struct checkpoint *checkpoint = run_head_open(head, (struct str){"", 0}, diags);
    struct byte_buffer out = {0};
    bool is_good = checkpoint != NULL;
    for (uint32_t i = 0; i < head->count && is_good; i++)
        is_good = look_at_part(&head->parts[i], is_show, diags);
    if (is_good && is_show) {
        run_describe_positions(checkpoint_info(checkpoint)->sources, &out);
        fwrite(out.data, 1, out.length, stdout);
    }
    buffer_free(&out);
    checkpoint_close(checkpoint);
    return is_good;
}

bool checkpoint_head_verb(const char *verb, const char *path, const char *which, struct diag_list *diags)
{
    bool is_list = strcmp(verb, "list") == 0, is_show = strcmp(verb, "show") == 0;
    if (!is_list && !is_show && strcmp(verb, "verify") != 0) {
        struct diag *d = diag_error(diags, DIAG_NO_COMMAND, (struct span){0},
                                    "`leat checkpoint %s` does not take the file of a head", verb);
        diag_hint(diags, d,
                  "`list`, `show` and `verify` do; `leat run JOB --from %s` starts a new run with its state",
                  path);
        return false;
    }
    struct opened *opened = open_head(path, which, diags);
    if (opened == NULL)
        return false;
    struct temporary_directory temporary = {0};
    if (is_list || is_show)
        list_parts(&opened->head);
    bool is_good =
        is_list || (bring_parts(opened, &temporary, diags) && look_at_parts(&opened->head, is_show, diags));
    close_head(opened);
    temporary_directory_remove(&temporary);
    return is_good;
}
