/* The log of what was served, in files PATH-000001.jsonl, PATH-000002.jsonl, ...: each has whole lines, and is followed by
 * another when it is long enough; the oldest ones go. */
#include "serve/served.h"

#include "core/mem.h"
#include "core/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct files {
    struct served_options options;
    char *path;
    int fd; /* -1: a new file is needed */
    uint64_t number, file_bytes;
};

static void name_of(const struct files *files, uint64_t number, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s-%06" PRIu64 ".jsonl", files->path, number);
}

enum { PATH_BYTES = 4096, NUMBER_BYTES = 32 /* behind the path, with the suffix */ };

/* Removes files that are no longer kept. */
static void prune(const struct files *files)
{
    char path[PATH_BYTES];
    for (uint64_t number = files->number - (uint64_t)files->options.keep; number > 0; number--) {
        name_of(files, number, path, sizeof(path));
        if (unlink(path) != 0)
            return;
    }
}

/* The highest number of a file that is there; 0: none is. */
static uint64_t newest_in(const char *folder, const char *name)
{
    uint64_t newest = 0;
    size_t length = strlen(name);
    DIR *stream = opendir(folder);
    for (struct dirent *entry; stream != NULL && (entry = readdir(stream)) != NULL;) {
        const char *digits = entry->d_name + length + 1;
        char *end;
        if (strncmp(entry->d_name, name, length) != 0 || entry->d_name[length] != '-' || *digits < '0' ||
            *digits > '9')
            continue;
        uint64_t number = strtoull(digits, &end, 10);
        if (strcmp(end, ".jsonl") == 0 && number < UINT64_MAX / 2)
            newest = MAX(newest, number);
    }
    if (stream != NULL)
        closedir(stream);
    return newest;
}

/* Opens the file of the next number. Returns 0 or an errno. */
static int open_next(struct files *files)
{
    char path[PATH_BYTES];
    do {
        name_of(files, ++files->number, path, sizeof(path));
        files->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    } while (files->fd < 0 && errno == EEXIST); /* of another process */
    if (files->fd < 0) {
        files->number--;
        return errno;
    }
    files->file_bytes = 0;
    if (files->options.keep > 0 && files->number > (uint64_t)files->options.keep)
        prune(files);
    return 0;
}

/* Writes the lines. A write that fails may leave half a line: the file is ended behind the last whole write. */
static int write_lines(struct files *files, struct str lines)
{
    int error = files->fd < 0 ? open_next(files) : 0;
    if (error == 0)
        error = os_write_all(files->fd, lines.data, lines.length, "served.write");
    if (error != 0) {
        if (files->fd >= 0 && ftruncate(files->fd, (off_t)files->file_bytes) != 0) {
            close(files->fd);
            files->fd = -1;
        }
        return error;
    }
    files->file_bytes += lines.length;
    if (files->file_bytes >= (uint64_t)files->options.rotate_bytes) {
        close(files->fd);
        files->fd = -1;
    }
    return 0;
}

/* Makes the directories and the first file. False after a diagnostic. */
static bool begin(struct files *files, struct diag_list *diags)
{
    char *folder = os_directory(files->path);
    const char *slash = strrchr(files->path, '/');
    /* A name that does not fit would be another file's, cut. */
    int error = strlen(files->path) + NUMBER_BYTES > PATH_BYTES ? ENAMETOOLONG : os_mkdirs(folder);
    files->number = newest_in(folder, slash == NULL ? files->path : slash + 1);
    if (error == 0)
        error = open_next(files);
    free(folder);
    if (error == 0)
        return true;
    diag_errno(diags,
               diag_error(diags, DIAG_OUTPUT_FAILED, (struct span){0},
                          "the log `%s-000001.jsonl` cannot be made", files->path),
               error);
    return false;
}

static void files_close(void *log)
{
    struct files *files = log;
    if (files->fd >= 0)
        close(files->fd);
    free(files->path);
    free(files);
}

static void *files_open(const struct line_log_open *open)
{
    struct files *files = mem_calloc(1, sizeof(*files));
    files->options = *(const struct served_options *)open->config;
    files->path = mem_str(files->options.path);
    files->fd = -1;
    if (begin(files, open->diags))
        return files;
    files_close(files);
    return NULL;
}

static void files_write(void *log, struct str lines, uint32_t count, const atomic_bool *is_ending LEAT_UNUSED,
                        struct line_log_settled *settled)
{
    int error = count == 0 ? 0 : write_lines(log, lines);
    *(error == 0 ? &settled->written : &settled->lost) += count;
    if (error != 0)
        snprintf(settled->failure, sizeof(settled->failure), "`%.500s-....jsonl` cannot be written: %s",
                 ((const struct files *)log)->path, strerror(error));
}

/* Nothing waits. */
static void files_finish(void *log LEAT_UNUSED, struct line_log_settled *settled LEAT_UNUSED)
{
}

const struct line_log_kind served_files = {
    .name = "files",
    .open = files_open,
    .write = files_write,
    .finish = files_finish,
    .close = files_close,
};
