#include "connectors/file/paths.h"

#include "core/os.h"

#include <errno.h>
#include <glob.h>
#include <jansson.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { MANIFEST_BYTES_MAX = 16 << 20, PARTITIONS_MAX = 4096 };

static bool add_list(struct arena *arena, struct path_list **lists, uint32_t *count, struct path_list list)
{
    if (*count == PARTITIONS_MAX)
        return false;
    /* Doubles the room whenever the count is a power of two. */
    if ((*count & (*count - 1)) == 0) {
        struct path_list *larger = arena_array(arena, struct path_list, MAX(*count * 2, 1));
        if (*count > 0)
            memcpy(larger, *lists, *count * sizeof(list));
        *lists = larger;
    }
    (*lists)[(*count)++] = list;
    return true;
}

static bool bad_manifest(struct diag_list *diags, struct span span, const char *path, const char *what,
                         int line)
{
    struct diag *d =
        diag_error(diags, DIAG_FILE_DAMAGED, span, "the manifest `%s` is damaged: %s", path, what);
    diag_at(diags, d, path, -1, line);
    diag_hint(diags, d, "create the recording again, or name its files by a glob");
    return false;
}

/* Whether a file name of a manifest stays inside the directory. */
static bool is_inside(const char *name)
{
    if (name[0] == '\0' || name[0] == '/')
        return false;
    for (const char *at = name; at != NULL; at = strchr(at, '/') == NULL ? NULL : strchr(at, '/') + 1)
        if (strncmp(at, "..", 2) == 0 && (at[2] == '/' || at[2] == '\0'))
            return false;
    return true;
}

static bool manifest_partition(json_t *item, const char *directory, struct arena *arena,
                               struct path_list *list)
{
    const char *name = json_string_value(json_object_get(item, "name"));
    json_t *files = json_object_get(item, "files");
    if (name == NULL || !json_is_array(files))
        return false;
    *list = (struct path_list){.name = arena_printf(arena, "%s/%s", directory, name),
                               .paths = arena_array(arena, const char *, json_array_size(files)),
                               .count = (uint32_t)json_array_size(files)};
    for (uint32_t i = 0; i < list->count; i++) {
        const char *file = json_string_value(json_array_get(files, i));
        if (file == NULL || !is_inside(file))
            return false;
        list->paths[i] = arena_printf(arena, "%s/%s", directory, file);
    }
    return true;
}

static bool expand_directory(const char *directory, struct arena *arena, struct diag_list *diags,
                             struct span span, struct path_list **lists, uint32_t *count,
                             const char **order_log)
{
    const char *path = arena_printf(arena, "%s/manifest.json", directory);
    char *data;
    size_t bytes;
    int error = os_read_file(path, MANIFEST_BYTES_MAX, &data, &bytes);
    if (error != 0) {
        struct diag *d = diag_error(diags, error == ENOENT ? DIAG_NO_FILE : DIAG_FILE_UNREADABLE, span,
                                    "the directory `%s` has no manifest.json that can be read", directory);
        diag_errno(diags, d, error);
        diag_hint(diags, d,
                  "a recording has a manifest.json; for other files give a glob, such as `%s/*.jsonl`",
                  directory);
        return false;
    }
    json_error_t place;
    json_t *root = json_loadb(data, bytes, JSON_REJECT_DUPLICATES, &place);
    free(data);
    if (root == NULL)
        return bad_manifest(diags, span, path, place.text, place.line);
    if (json_object_get(root, "leat_recording") != NULL) {
        json_decref(root);
        struct diag *d =
            diag_error(diags, DIAG_NO_FILE, span, "`%s` is a recording of Kafka's topics", directory);
        diag_hint(diags, d, "replay the recording in place of a source `kafka`: --replay SOURCE=%s",
                  directory);
        return false;
    }
    json_t *partitions = json_object_get(root, "partitions");
    bool is_good = json_is_array(partitions) && json_array_size(partitions) > 0;
    for (size_t i = 0; is_good && i < json_array_size(partitions); i++) {
        struct path_list list;
        is_good = manifest_partition(json_array_get(partitions, i), directory, arena, &list) &&
                  add_list(arena, lists, count, list);
    }
    json_t *order = json_object_get(root, "order_log");
    bool has_order = json_is_string(order) && is_inside(json_string_value(order));
    if (has_order && *order_log == NULL)
        *order_log = arena_printf(arena, "%s/%s", directory, json_string_value(order));
    json_decref(root);
    if (!is_good)
        return bad_manifest(diags, span, path,
                            "expected `partitions`, each with a name and with files inside the directory",
                            -1);
    if (order != NULL && !has_order)
        return bad_manifest(diags, span, path, "`order_log` names no file inside the directory", -1);
    return true;
}

/* Reports that no file matches the pattern. error: errno of the failed look-up, for the hint. */
static void no_match(struct diag_list *diags, struct span span, const char *pattern, int error)
{
    struct diag *d = diag_error(diags, error == 0 || error == ENOENT ? DIAG_NO_FILE : DIAG_FILE_UNREADABLE,
                                span, "no file matches `%s`", pattern);
    if (error != 0)
        diag_errno(diags, d, error);
    diag_hint(diags, d, "paths are relative to the directory that leat was started in");
}

/* glob(3) calls glob_failed for each directory that it cannot read; its errno is kept here. */
static _Thread_local int glob_errno;
static int glob_failed(const char *path LEAT_UNUSED, int error)
{
    if (error != ENOENT && error != ENOTDIR)
        glob_errno = error;
    return 0;
}

static bool expand_glob(const char *pattern, struct arena *arena, struct diag_list *diags, struct span span,
                        struct path_list **lists, uint32_t *count)
{
    struct stat info;
    glob_t found = {0};
    struct path_list list = {.name = pattern};
    /* A name that exists is taken literally, even with brackets in it. */
    if (stat(pattern, &info) == 0) {
        list.paths = arena_array(arena, const char *, 1);
        list.paths[list.count++] = pattern;
        return add_list(arena, lists, count, list);
    }
    int error = errno;
    glob_errno = 0;
    int result = glob(pattern, 0, glob_failed, &found);
    if (result == 0) {
        list.paths = arena_array(arena, const char *, found.gl_pathc);
        for (size_t i = 0; i < found.gl_pathc; i++)
            if (stat(found.gl_pathv[i], &info) == 0 && !S_ISDIR(info.st_mode))
                list.paths[list.count++] = arena_strdup(arena, found.gl_pathv[i]);
    }
    globfree(&found);
    if (list.count == 0) {
        no_match(diags, span, pattern, glob_errno != 0 ? glob_errno : error == ENOENT ? 0 : error);
        return false;
    }
    return add_list(arena, lists, count, list);
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

bool paths_expand(const struct texts *entries, struct arena *arena, struct diag_list *diags, struct span span,
                  struct path_list **lists, uint32_t *count, const char **order_log)
{
    bool is_good = true;
    *lists = NULL;
    *count = 0;
    *order_log = NULL;
    for (uint32_t i = 0; i < entries->count; i++) {
        struct stat info;
        const char *path = arena_strndup(arena, entries->items[i].data, entries->items[i].length);
        uint32_t first = *count;
        if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
            is_good &= expand_directory(path, arena, diags, span, lists, count, order_log);
            continue;
        }
        is_good &= expand_glob(path, arena, diags, span, lists, count);
        /* Sorts by bytes, not by the user's locale. */
        if (*count > first)
            qsort((*lists)[first].paths, (*lists)[first].count, sizeof(char *), compare_paths);
    }
    return is_good;
}
