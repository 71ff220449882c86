#include "serve/served.h"

#include "core/mem.h"
#include "core/os.h"
#include "core/refused.h"
#include "core/wait.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct lines {
    struct byte_buffer text;
    uint32_t count;
};

struct served {
    struct served_options options;
    char *path;
    pthread_t thread;
    /* The thread's own. */
    struct lines writing;
    int fd; /* -1: a new file is needed */
    uint64_t number, file_bytes;
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t changed;
    struct lines waiting;
    struct served_counts counts;
    int error;
    bool must_stop;
};

static void name_of(const struct served *served, uint64_t number, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s-%06" PRIu64 ".jsonl", served->path, number);
}

enum { PATH_BYTES = 4096, NUMBER_BYTES = 32 /* behind the path, with the suffix */ };

/* Removes files that are no longer kept. */
static void prune(const struct served *served)
{
    char path[PATH_BYTES];
    for (uint64_t number = served->number - (uint64_t)served->options.keep; number > 0; number--) {
        name_of(served, number, path, sizeof(path));
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
static int open_next(struct served *served)
{
    char path[PATH_BYTES];
    do {
        name_of(served, ++served->number, path, sizeof(path));
        served->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    } while (served->fd < 0 && errno == EEXIST); /* of another process */
    if (served->fd < 0) {
        served->number--;
        return errno;
    }
    served->file_bytes = 0;
    if (served->options.keep > 0 && served->number > (uint64_t)served->options.keep)
        prune(served);
    return 0;
}

/* Writes the lines. A write that fails may leave half a line: the file is ended behind the last whole write. */
static int write_lines(struct served *served, const struct lines *lines)
{
    int error = served->fd < 0 ? open_next(served) : 0;
    if (error == 0)
        error = os_write_all(served->fd, lines->text.data, lines->text.length, "served.write");
    if (error != 0) {
        if (served->fd >= 0 && ftruncate(served->fd, (off_t)served->file_bytes) != 0) {
            close(served->fd);
            served->fd = -1;
        }
        return error;
    }
    served->file_bytes += lines->text.length;
    if (served->file_bytes >= (uint64_t)served->options.rotate_bytes) {
        close(served->fd);
        served->fd = -1;
    }
    return 0;
}

static void wait_a_moment(struct served *served)
{
    struct timespec until = wait_until(SERVED_WRITE_MS * 1000);
    while (!served->must_stop && wait_on(&served->changed, &served->mutex, &until))
        ;
}

static void *write_all(void *argument)
{
    struct served *served = argument;
    bool is_last = false;
    pthread_mutex_lock(&served->mutex);
    while (!is_last) {
        wait_a_moment(served);
        is_last = served->must_stop;
        struct lines lines = served->waiting;
        served->waiting = served->writing;
        served->writing = lines;
        pthread_mutex_unlock(&served->mutex);
        int error = lines.count == 0 ? 0 : write_lines(served, &lines);
        pthread_mutex_lock(&served->mutex);
        *(error == 0 ? &served->counts.lines : &served->counts.lost) += lines.count;
        if (error != 0)
            served->error = error;
        buffer_clear(&served->writing.text);
        served->writing.count = 0;
    }
    pthread_mutex_unlock(&served->mutex);
    return NULL;
}

/* Makes the directories and the first file. False after a diagnostic. */
static bool begin(struct served *served, struct diag_list *diags)
{
    char *folder = os_directory(served->path);
    const char *slash = strrchr(served->path, '/');
    /* A name that does not fit would be another file's, cut. */
    int error = strlen(served->path) + NUMBER_BYTES > PATH_BYTES ? ENAMETOOLONG : os_mkdirs(folder);
    served->number = newest_in(folder, slash == NULL ? served->path : slash + 1);
    if (error == 0)
        error = open_next(served);
    free(folder);
    if (error == 0)
        return true;
    diag_errno(diags,
               diag_error(diags, DIAG_OUTPUT_FAILED, (struct span){0},
                          "the log `%s-000001.jsonl` cannot be made", served->path),
               error);
    return false;
}

struct served *served_open(const struct served_options *options, struct diag_list *diags)
{
    struct served *served = mem_calloc(1, sizeof(*served));
    served->options = *options;
    served->path = mem_str(options->path);
    served->fd = -1;
    if (!begin(served, diags)) {
        free(served->path);
        free(served);
        return NULL;
    }
    pthread_mutex_init(&served->mutex, NULL);
    pthread_cond_init(&served->changed, NULL);
    refused_unless_begun(pthread_create(&served->thread, NULL, write_all, served));
    return served;
}

bool served_add(struct served *served, struct str lines, uint32_t count)
{
    pthread_mutex_lock(&served->mutex);
    bool has_room = served->waiting.text.length + lines.length <= SERVED_BUFFER_BYTES;
    if (has_room) {
        buffer_append(&served->waiting.text, lines.data, lines.length);
        served->waiting.count += count;
    } else {
        served->counts.lost += count;
    }
    pthread_mutex_unlock(&served->mutex);
    return has_room;
}

struct served_counts served_counts(struct served *served)
{
    pthread_mutex_lock(&served->mutex);
    struct served_counts counts = served->counts;
    pthread_mutex_unlock(&served->mutex);
    return counts;
}

int served_error(struct served *served)
{
    pthread_mutex_lock(&served->mutex);
    int error = served->error;
    served->error = 0;
    pthread_mutex_unlock(&served->mutex);
    return error;
}

void served_close(struct served *served)
{
    if (served == NULL)
        return;
    pthread_mutex_lock(&served->mutex);
    served->must_stop = true;
    pthread_cond_signal(&served->changed);
    pthread_mutex_unlock(&served->mutex);
    pthread_join(served->thread, NULL);
    pthread_cond_destroy(&served->changed);
    pthread_mutex_destroy(&served->mutex);
    if (served->fd >= 0)
        close(served->fd);
    buffer_free(&served->waiting.text);
    buffer_free(&served->writing.text);
    free(served->path);
    free(served);
}
