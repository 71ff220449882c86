#include "cli/cluster_inputs.h"

#include "core/file_ends.h"
#include "core/hex.h"
#include "core/mem.h"
#include "core/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    NONCE_BYTES = 16,
    SEEN_US = 2000000, /* in which a network file system shows a file that another machine has made */
    LOOK_US = 50000,
};

static const char hint_files[] =
    "give all workers the same files under the same paths: copy them, or put them on a file system that all see; to change them, stop "
    "all workers first (`leat cluster stop`)";

/* --- Files of records --- */

/* A file of a source, with what is compared of it. */
struct ends {
    int64_t bytes;
    uint64_t head, tail;
};

/* Reads both ends within the first `bytes` bytes; bytes < 0: within all. 0 or an errno. */
static int read_ends(const char *path, int64_t bytes, struct ends *ends)
{
    struct stat stat;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int error = fd < 0 || fstat(fd, &stat) != 0 ? errno : !S_ISREG(stat.st_mode) ? EINVAL : 0;
    if (error == 0) {
        ends->bytes = stat.st_size;
        file_ends(fd, bytes < 0 ? stat.st_size : bytes, &ends->head, &ends->tail);
    }
    if (fd >= 0)
        close(fd);
    return error;
}

static void add_file(json_t *files, const char *path)
{
    struct ends ends;
    if (json_array_size(files) >= CLUSTER_INPUTS_FILES_MAX || read_ends(path, -1, &ends) != 0)
        return;
    json_t *entry =
        json_pack("[s, I, I, I]", path, (json_int_t)ends.bytes, (json_int_t)ends.head, (json_int_t)ends.tail);
    if (entry != NULL) /* else its name is no UTF-8 */
        json_array_append_new(files, entry);
}

/* Of a directory the regular files in it: those of a recording. */
static void add_path(json_t *files, const char *path)
{
    struct dirent **entries = NULL;
    struct stat stat_of;
    if (stat(path, &stat_of) != 0 || !S_ISDIR(stat_of.st_mode)) {
        add_file(files, path);
        return;
    }
    int count = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        char *name = mem_printf("%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.')
            add_file(files, name);
        free(name);
        free(entries[i]);
    }
    free(entries);
}

static void add_texts(json_t *files, const struct texts *texts)
{
    for (uint32_t i = 0; i < texts->count; i++) {
        char *pattern = mem_str(texts->items[i]);
        glob_t found = {0};
        if (access(pattern, F_OK) == 0)
            add_path(files, pattern);
        else if (glob(pattern, 0, NULL, &found) == 0)
            for (size_t k = 0; k < found.gl_pathc; k++)
                add_path(files, found.gl_pathv[k]);
        globfree(&found);
        free(pattern);
    }
}

static json_t *describe_files(const struct plan *plan)
{
    json_t *files = json_array();
    for (uint32_t i = 0; i < plan->sources_count; i++) {
        const struct plan_node *node = &plan->nodes[plan->sources[i]];
        for (struct option_walk w = option_walk(node->source_kind->options); option_next(&w);)
            if ((w.row.flags & OPTION_RECORDS) != 0)
                add_texts(files, (const void *)((const char *)node->config + w.row.offset));
    }
    return files;
}

/* --- Directories of file sinks --- */

/* The directory in which all files of the sink lie, or below which, where its path has a placeholder before; malloc'd. NULL: it is no
 * file sink. */
static char *sink_directory(const struct plan_node *node)
{
    if (node->tag != PLAN_SINK || node->owns.length == 0)
        return NULL;
    char *path = mem_str(node->owns);
    path[strcspn(path, "{")] = '\0';
    char *directory = os_directory(path);
    free(path);
    return directory;
}

/* Whether the name is that of a file that a leader of an earlier incarnation has made: PREFIX, the incarnation, `-` and the nonce. Names of
 * clusters may have `-` and digits, too: what follows `.leat-ctr-` may be of the cluster `ctr-2`. */
static bool is_earlier(const char *name, const char *prefix, uint64_t incarnation)
{
    char *end;
    size_t length = strlen(prefix);
    if (strncmp(name, prefix, length) != 0 || name[length] < '0' || name[length] > '9' ||
        strtoull(name + length, &end, 10) >= incarnation || *end != '-')
        return false;
    return strlen(end + 1) == 2 * (size_t)NONCE_BYTES &&
           strspn(end + 1, "0123456789abcdef") == 2 * (size_t)NONCE_BYTES;
}

/* Removes the files of earlier rounds, which a leader that was killed has left. prefix: ".leat-NAME-". */
static void forget_earlier(const char *directory, const char *prefix, uint64_t incarnation)
{
    DIR *stream = opendir(directory);
    for (struct dirent *entry; stream != NULL && (entry = readdir(stream)) != NULL;) {
        if (!is_earlier(entry->d_name, prefix, incarnation))
            continue;
        char *path = mem_printf("%s/%s", directory, entry->d_name);
        (void)unlink(path);
        free(path);
    }
    if (stream != NULL)
        closedir(stream);
}

/* Makes the round's file in each directory. False: it cannot be made, which the sink itself will say. */
static bool mark_directories(const struct plan *plan, const char *file, const char *prefix,
                             uint64_t incarnation)
{
    bool is_good = true;
    for (uint32_t i = 0; i < plan->nodes_count && is_good; i++) {
        char *directory = sink_directory(&plan->nodes[i]);
        if (directory == NULL)
            continue;
        char *path = mem_printf("%s/%s", directory, file);
        is_good = os_mkdirs(directory) == 0 && os_write_file(path, "", 0, NULL, NULL) == 0;
        if (is_good)
            forget_earlier(directory, prefix, incarnation);
        free(path);
        free(directory);
    }
    return is_good;
}

static bool is_seen(const char *path)
{
    for (int64_t until = os_monotonic_us() + SEEN_US; access(path, F_OK) != 0;) {
        if (os_monotonic_us() >= until)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = LOOK_US * 1000}, NULL);
    }
    return true;
}

static bool compare_directories(const struct plan *plan, const char *file, const char *who,
                                struct diag_list *diags)
{
    for (uint32_t i = 0; i < plan->nodes_count && file[0] != '\0'; i++) {
        char *directory = sink_directory(&plan->nodes[i]);
        if (directory == NULL)
            continue;
        char *path = mem_printf("%s/%s", directory, file);
        bool is_same = is_seen(path);
        if (!is_same) {
            struct diag *d = diag_error(
                diags, DIAG_WORKER_UNFIT, plan->nodes[i].path_span,
                "the directory `%s` of sink `%.*s` is not the one that %s sees under that path: `%s`, which that "
                "worker made there, is missing here",
                directory, STR_ARGS(plan->nodes[i].name), who, file);
            diag_hint(
                diags, d,
                "a file sink moves from worker to worker: its directory must be one that all of them see under the same path");
        }
        free(path);
        free(directory);
        if (!is_same)
            return false;
    }
    return true;
}

/* --- The text --- */

static json_t *describe_inputs(const struct plan *plan)
{
    struct arena arena = {.block_bytes = 4096};
    const struct plan_input *inputs = plan_inputs_measured(plan, &arena);
    json_t *list = json_array();
    for (uint32_t i = 0; i < plan->inputs_count; i++)
        json_array_append_new(list, json_pack("[I, s]", (json_int_t)inputs[i].bytes, inputs[i].digest));
    arena_free(&arena);
    return list;
}

char *cluster_inputs_describe(const struct plan *plan, struct str name, uint64_t incarnation)
{
    uint8_t nonce[NONCE_BYTES];
    char digits[2 * NONCE_BYTES + 1];
    leat_assert(getrandom(nonce, sizeof(nonce), 0) == (ssize_t)sizeof(nonce));
    hex_text(nonce, sizeof(nonce), digits);
    char *prefix = mem_printf(".leat-%.*s-", STR_ARGS(name)),
         *file = mem_printf("%s%010" PRIu64 "-%s", prefix, incarnation, digits);
    bool has_file = mark_directories(plan, file, prefix, incarnation);
    json_t *json = json_pack("{s:s, s:o, s:o}", "file", has_file ? file : "", "inputs", describe_inputs(plan),
                             "files", describe_files(plan));
    char *text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENSURE_ASCII);
    json_t *files = json_object_get(json, "files");
    while (strlen(text) > CLUSTER_INPUTS_BYTES_MAX &&
           json_array_size(files) > 0) { /* names of thousands of bytes */
        free(text);
        for (size_t left = json_array_size(files) / 2; json_array_size(files) > left;)
            json_array_remove(files, json_array_size(files) - 1);
        text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENSURE_ASCII);
    }
    json_decref(json);
    free(file);
    free(prefix);
    return text;
}

/* --- Comparing --- */

static bool differs(struct diag_list *diags, const char *what, const char *who, const char *there,
                    const char *here)
{
    struct diag *d = diag_error(diags, DIAG_WORKER_UNFIT, (struct span){0}, "%s: %s has %s, this worker %s",
                                what, who, there, here);
    diag_hint(diags, d, "%s", hint_files);
    return false;
}

static bool compare_input(const struct plan_input *own, const json_t *entry, const char *who,
                          struct arena *arena, struct diag_list *diags)
{
    int64_t bytes = json_integer_value(json_array_get(entry, 0));
    const char *digest = json_string_value(json_array_get(entry, 1));
    if (digest == NULL || strcmp(digest, own->digest) == 0)
        return digest != NULL;
    const char *there = digest[0] == '\0'
                            ? "none that it can read"
                            : arena_printf(arena, "%" PRId64 " bytes of digest %s", bytes, digest);
    const char *here = own->error != 0
                           ? arena_printf(arena, "cannot read it: %s", strerror(own->error))
                           : arena_printf(arena, "%" PRId64 " bytes of digest %s", own->bytes, own->digest);
    return differs(
        diags,
        arena_printf(arena, "%s `%.*s`, for %s", plan_input_kind(own->tag), STR_ARGS(own->name), own->where),
        who, there, here);
}

static bool compare_file(const json_t *entry, const char *who, struct arena *arena, struct diag_list *diags)
{
    const char *path = json_string_value(json_array_get(entry, 0)), *here = NULL;
    struct ends there = {json_integer_value(json_array_get(entry, 1)),
                         (uint64_t)json_integer_value(json_array_get(entry, 2)),
                         (uint64_t)json_integer_value(json_array_get(entry, 3))},
                own = {0};
    if (path == NULL || there.bytes < 0)
        return false;
    int error = read_ends(path, there.bytes, &own);
    if (error != 0)
        here = arena_printf(arena, "cannot read it: %s", strerror(error));
    else if (own.bytes < there.bytes)
        here = arena_printf(arena, "has %" PRId64 " bytes", own.bytes);
    else if (own.head != there.head || own.tail != there.tail)
        here = arena_printf(arena, "has another %s of these", own.head != there.head ? "beginning" : "end");
    return here == NULL || differs(diags, arena_printf(arena, "file `%s` of a source", path), who,
                                   arena_printf(arena, "%" PRId64 " bytes", there.bytes), here);
}

/* NULL: it is none of the three lists. */
static json_t *load(struct str text)
{
    json_t *json = json_loadb(text.length == 0 ? "" : text.data, text.length, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_string(json_object_get(json, "file")) && json_is_array(json_object_get(json, "inputs")) &&
        json_is_array(json_object_get(json, "files")))
        return json;
    json_decref(json);
    return NULL;
}

static bool compare(const struct plan *plan, const json_t *json, const char *who, struct diag_list *diags)
{
    struct arena arena = {.block_bytes = 4096};
    const json_t *inputs = json_object_get(json, "inputs"), *files = json_object_get(json, "files");
    const struct plan_input *own = plan_inputs_measured(plan, &arena);
    bool is_good = json_array_size(inputs) == plan->inputs_count;
    for (uint32_t i = 0; i < plan->inputs_count && is_good; i++)
        is_good = compare_input(&own[i], json_array_get(inputs, i), who, &arena, diags);
    for (size_t i = 0; i < json_array_size(files) && is_good; i++)
        is_good = compare_file(json_array_get(files, i), who, &arena, diags);
    is_good =
        is_good && compare_directories(plan, json_string_value(json_object_get(json, "file")), who, diags);
    arena_free(&arena);
    return is_good;
}

bool cluster_inputs_compare(const struct plan *plan, struct str text, const char *who,
                            struct diag_list *diags)
{
    json_t *json = load(text);
    uint32_t errors = diags->errors;
    bool is_good = json != NULL && compare(plan, json, who, diags);
    json_decref(json);
    if (!is_good && diags->errors == errors)
        diag_error(diags, DIAG_CLUSTER_LOST, (struct span){0}, "what %s says of its files is damaged", who);
    return is_good;
}

void cluster_inputs_forget(const struct plan *plan, struct str text)
{
    json_t *json = load(text);
    const char *file = json == NULL ? "" : json_string_value(json_object_get(json, "file"));
    for (uint32_t i = 0; i < plan->nodes_count && file[0] != '\0'; i++) {
        char *directory = sink_directory(&plan->nodes[i]);
        char *path = directory == NULL ? NULL : mem_printf("%s/%s", directory, file);
        if (path != NULL)
            (void)unlink(path);
        free(path);
        free(directory);
    }
    json_decref(json);
}
