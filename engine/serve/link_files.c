#include "serve/link_files.h"

#include "core/mem.h"
#include "core/os.h"
#include "state/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char *path_below(const char *folder, struct str name)
{
    return mem_printf("%s/%.*s", folder, STR_ARGS(name));
}

/* --- Files that come --- */

bool link_file_is_in_place(const struct link_place *place, const struct link_file *file)
{
    struct stat info;
    size_t prefix = link_name_checkpoint(file->name);
    char *path =
        path_below(place->directory, prefix == 0 ? file->name : (struct str){file->name.data, prefix});
    bool is_there = stat(path, &info) == 0;
    free(path);
    if (!is_there || prefix != 0)
        return is_there;
    /* A table's LOG is replaced by another one, which may be as long. */
    int64_t changed_us = info.st_mtim.tv_sec * US_PER_SECOND + info.st_mtim.tv_nsec / 1000;
    return (uint64_t)info.st_size == file->bytes && changed_us == file->changed_us;
}

int link_file_open(const struct link_place *place, struct str name, int *error)
{
    char *path = path_below(place->incoming, name), *folder = os_directory(path);
    *error = os_mkdirs(folder);
    int fd = *error != 0 ? -1 : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (*error == 0 && fd < 0)
        *error = errno;
    free(folder);
    free(path);
    return fd;
}

int link_file_close(int fd, const struct link_file *file)
{
    struct timespec changed = {.tv_sec = file->changed_us / US_PER_SECOND,
                               .tv_nsec = file->changed_us % US_PER_SECOND * 1000};
    int error = futimens(fd, (const struct timespec[]){changed, changed}) != 0 ? errno : 0;
    close(fd);
    return error;
}

/* --- Places --- */

/* Moves a file or a checkpoint from `incoming` to its place, unless it is there. 0 or an errno. */
static int move(const struct link_place *place, struct str name)
{
    char *from = path_below(place->incoming, name), *to = path_below(place->directory, name),
         *folder = os_directory(to);
    bool has_come = access(from, F_OK) == 0;
    int error = has_come ? os_mkdirs(folder) : 0;
    if (error == 0 && has_come)
        error = os_rename(from, to, "ckpt.rename");
    free(folder);
    free(to);
    free(from);
    return error;
}

static int move_kind(const struct link_place *place, struct str list, bool is_tables)
{
    struct link_file file;
    struct str before = {"", 0};
    bool is_good;
    int error = 0;
    while (error == 0 && link_list_take(&list, &file, &is_good)) {
        size_t prefix = link_name_checkpoint(file.name);
        struct str name = prefix == 0 ? file.name : (struct str){file.name.data, prefix};
        if ((prefix == 0) == is_tables && !str_equal(name, before))
            error = move(place, name);
        before = name;
    }
    return error;
}

int link_files_move(const struct link_place *place, struct str list)
{
    int error = move_kind(place, list, true);
    return error != 0 ? error : move_kind(place, list, false);
}

/* --- Tables that nobody needs --- */

static int order(const void *a, const void *b)
{
    return str_compare(*(const struct str *)a, *(const struct str *)b);
}

/* Names of the list's tables, in order. */
struct names {
    struct str *items;
    size_t count;
};

static struct names names_of(struct str list)
{
    struct names names = {0};
    struct link_file file;
    size_t room = 0;
    bool is_good;
    while (link_list_take(&list, &file, &is_good)) {
        if (link_name_checkpoint(file.name) != 0)
            continue;
        if (names.count == room) {
            room = MAX(room * 2, (size_t)64);
            names.items = mem_realloc(names.items, room * sizeof(*names.items));
        }
        names.items[names.count++] = file.name;
    }
    if (names.count > 0)
        qsort(names.items, names.count, sizeof(*names.items), order);
    return names;
}

static bool has_name(const void *argument, const char *name)
{
    const struct names *names = argument;
    struct str wanted = str_from(name);
    return names->count > 0 && bsearch(&wanted, names->items, names->count, sizeof(wanted), order) != NULL;
}

void link_files_sweep(const struct link_place *place, struct str list)
{
    struct names names = names_of(list);
    checkpoint_tables_sweep(place->directory, has_name, &names);
    free(names.items);
}

int link_files_forget(const struct link_place *place)
{
    int error = 0;
    DIR *dir = opendir(place->directory);
    if (dir == NULL)
        return errno;
    for (const struct dirent *one; error == 0 && (one = readdir(dir)) != NULL;)
        if (strncmp(one->d_name, "gen-", 4) == 0) {
            char *path = path_below(place->directory, str_from(one->d_name));
            error = os_remove_tree(path);
            free(path);
        }
    closedir(dir);
    return error;
}
