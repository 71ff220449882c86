/* What all stores share: the URL, names, local files, waiting. */
#include "state/objects/store.h"

#include "core/mem.h"
#include "core/os.h"
#include "core/utf8.h"
#include "core/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { TRIES = 8, PAUSE_US = 100000, PAUSE_LONGEST_US = 10000000, STALL_US = 30000000 };

/* --- Opening --- */

static const struct objects_kind *const kinds[] = {&objects_file, &objects_s3};

static const struct objects_kind *kind_of(struct str url)
{
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        size_t length = strlen(kinds[i]->scheme);
        if (url.length > length && memcmp(url.data, kinds[i]->scheme, length) == 0)
            return kinds[i];
    }
    return NULL;
}

bool objects_is_url(struct str text)
{
    return kind_of(text) != NULL;
}

/* Whether the text is short and UTF-8 without control characters. */
static bool is_plain(struct str text)
{
    if (text.length > OBJECTS_NAME_BYTES_MAX)
        return false;
    for (size_t i = 0; i < text.length;) {
        uint32_t code = 0;
        size_t took = utf8_decode(text.data + i, text.length - i, &code);
        if (took == 0 || utf8_is_control(code))
            return false;
        i += took;
    }
    return true;
}

static bool bad_url(struct str url, struct diag_list *diags)
{
    struct diag *d = diag_error(diags, DIAG_STORE_FAILED, (struct span){0},
                                "expected the URL of an object store, found `%.*s`",
                                (int)MIN(url.length, (size_t)OBJECTS_NAME_BYTES_MAX), url.data);
    diag_hint(diags, d, "write `s3://bucket/prefix` or `file:/shared/directory`");
    return false;
}

static void set_defaults(struct objects_options *options)
{
    options->part_bytes = options->part_bytes == 0 ? OBJECTS_PART_BYTES : options->part_bytes;
    options->tries = options->tries == 0 ? TRIES : options->tries;
    options->pause_us = options->pause_us == 0 ? PAUSE_US : options->pause_us;
    options->pause_longest_us = options->pause_longest_us == 0 ? PAUSE_LONGEST_US : options->pause_longest_us;
    options->stall_us = options->stall_us == 0 ? STALL_US : options->stall_us;
    leat_assert(options->part_bytes >= OBJECTS_PART_BYTES_MIN &&
                options->part_bytes <= OBJECTS_PART_BYTES_MAX);
    leat_assert(options->tries <= OBJECTS_TRIES_MAX);
}

struct objects *objects_open(const struct objects_options *options, struct diag_list *diags)
{
    const struct objects_kind *kind = kind_of(options->url);
    if (kind == NULL || !is_plain(options->url)) {
        bad_url(options->url, diags);
        return NULL;
    }
    struct objects *objects = mem_calloc(1, sizeof(*objects));
    objects->kind = kind;
    objects->url = mem_str(options->url);
    objects->options = *options;
    objects->options.url = str_from(objects->url);
    set_defaults(&objects->options);
    pthread_mutex_init(&objects->mutex, NULL);
    pthread_cond_init(&objects->cancelled, NULL);
    if (!kind->open(objects, diags)) {
        objects_close(objects);
        return NULL;
    }
    return objects;
}

void objects_close(struct objects *objects)
{
    if (objects == NULL)
        return;
    objects->kind->close(objects);
    pthread_cond_destroy(&objects->cancelled);
    pthread_mutex_destroy(&objects->mutex);
    free(objects->url);
    free(objects);
}

const char *objects_url(const struct objects *objects)
{
    return objects->url;
}

/* --- Names --- */

bool objects_name_is_good(struct str name)
{
    if (name.length == 0 || !is_plain(name) || name.data[name.length - 1] == '/')
        return false;
    for (size_t i = 0; i < name.length; i++)
        if ((i == 0 || name.data[i - 1] == '/') && (name.data[i] == '/' || name.data[i] == '.'))
            return false;
    return true;
}

/* The caller makes names by rules of its own: a bad one is its bug, except where a name was read from the store. */
static bool check_name(const struct objects *objects, struct str name, struct diag_list *diags)
{
    if (atomic_load(&objects->is_cancelled))
        return objects_say_cancelled(objects, diags);
    if (objects_name_is_good(name))
        return true;
    struct diag *d = diag_error(diags, DIAG_STORE_DAMAGED, (struct span){0},
                                "`%s`: `%.*s` cannot be the name of an object", objects->url,
                                (int)MIN(name.length, (size_t)OBJECTS_NAME_BYTES_MAX), name.data);
    diag_hint(diags, d,
              "a name has at most %d bytes of UTF-8 without control characters, and no part that is empty or "
              "begins with a dot",
              OBJECTS_NAME_BYTES_MAX);
    return false;
}

/* --- Cancelling and waiting --- */

void objects_cancel(struct objects *objects)
{
    pthread_mutex_lock(&objects->mutex);
    atomic_store(&objects->is_cancelled, true);
    pthread_cond_broadcast(&objects->cancelled);
    pthread_mutex_unlock(&objects->mutex);
}

bool objects_pause(struct objects *objects, int64_t us)
{
    struct timespec until = wait_until(us);
    pthread_mutex_lock(&objects->mutex);
    while (!atomic_load(&objects->is_cancelled) && wait_on(&objects->cancelled, &objects->mutex, &until))
        continue;
    pthread_mutex_unlock(&objects->mutex);
    return !atomic_load(&objects->is_cancelled);
}

bool objects_say_cancelled(const struct objects *objects, struct diag_list *diags)
{
    diag_error(diags, DIAG_STORE_FAILED, (struct span){0},
               "`%s`: the request was given up, because leat is ending", objects->url);
    return false;
}

void objects_stats(const struct objects *objects, struct objects_stats *stats)
{
    *stats = (struct objects_stats){
        .bytes_up = atomic_load(&objects->bytes_up),
        .bytes_down = atomic_load(&objects->bytes_down),
        .requests = atomic_load(&objects->requests),
        .retries = atomic_load(&objects->retries),
    };
}

/* --- Local files --- */

static bool unreadable(const char *path, int error, struct diag_list *diags)
{
    struct diag *d = diag_error(diags, DIAG_FILE_UNREADABLE, (struct span){0}, "the file cannot be read");
    diag_at(diags, d, path, -1, -1);
    diag_errno(diags, d, error);
    return false;
}

static enum objects_result unwritable(const char *path, int error, struct diag_list *diags)
{
    bool is_full = error == ENOSPC || error == EDQUOT;
    struct diag *d = diag_error(diags, is_full ? DIAG_DISK_FULL : DIAG_OUTPUT_FAILED, (struct span){0},
                                "the file cannot be written");
    diag_at(diags, d, path, -1, -1);
    diag_errno(diags, d, error);
    if (is_full)
        diag_hint(diags, d, "make room there, or choose a directory on another disk");
    return OBJECTS_FAILED;
}

bool objects_put_fd(struct objects *objects, struct str name, int fd, uint64_t bytes, const char *path,
                    struct diag_list *diags)
{
    return check_name(objects, name, diags) && objects->kind->put_file(objects, name, fd, bytes, path, diags);
}

bool objects_put_file(struct objects *objects, struct str name, const char *path, uint64_t bytes,
                      struct diag_list *diags)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return unreadable(path, errno, diags);
    bool ok = objects_put_fd(objects, name, fd, bytes, path, diags);
    close(fd);
    return ok;
}

/* Copies the object to `fd`, part by part. */
static enum objects_result fill(struct objects *objects, struct str name, uint64_t bytes, int fd,
                                const char *path, struct diag_list *diags)
{
    struct byte_buffer part = {0};
    enum objects_result result = OBJECTS_DONE;
    uint64_t at = 0;
    do {
        size_t length = (size_t)MIN(objects->options.part_bytes, bytes - at);
        buffer_clear(&part);
        result = objects->kind->get_range(objects, name, at, length, &part, diags);
        int error = result == OBJECTS_DONE ? os_write_all(fd, part.data, length, "objects.restore") : 0;
        if (error != 0)
            result = unwritable(path, error, diags);
        at += length;
    } while (result == OBJECTS_DONE && at < bytes);
    buffer_free(&part);
    return result;
}

/* The object's size must be `bytes`: its end is where the caller's digests end. */
static enum objects_result check_size(struct objects *objects, struct str name, uint64_t bytes,
                                      struct diag_list *diags)
{
    uint64_t found = 0;
    enum objects_result result = objects->kind->head(objects, name, &found, diags);
    if (result != OBJECTS_DONE || found == bytes)
        return result;
    struct diag *d = diag_error(diags, DIAG_STORE_DAMAGED, (struct span){0},
                                "`%s`: expected `%.*s` with %llu bytes, found %llu", objects->url,
                                STR_ARGS(name), (unsigned long long)bytes, (unsigned long long)found);
    diag_hint(diags, d,
              "take another checkpoint; the object was cut, or replaced by something else than leat");
    return OBJECTS_FAILED;
}

enum objects_result objects_get_file(struct objects *objects, struct str name, uint64_t bytes,
                                     const char *path, struct diag_list *diags)
{
    if (!check_name(objects, name, diags))
        return OBJECTS_FAILED;
    enum objects_result result = check_size(objects, name, bytes, diags);
    if (result != OBJECTS_DONE)
        return result;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return unwritable(path, errno, diags);
    if (bytes > 0)
        result = fill(objects, name, bytes, fd, path, diags);
    int error = result == OBJECTS_DONE ? os_fsync(fd, NULL) : 0;
    if (close(fd) != 0 && error == 0)
        error = errno;
    if (error != 0)
        result = unwritable(path, error, diags);
    if (result != OBJECTS_DONE)
        unlink(path);
    return result;
}

/* --- The rest: the name is checked, then the kind does it --- */

bool objects_check(struct objects *objects, struct diag_list *diags)
{
    if (atomic_load(&objects->is_cancelled))
        return objects_say_cancelled(objects, diags);
    return objects->kind->check(objects, diags);
}

bool objects_put(struct objects *objects, struct str name, const void *data, size_t bytes,
                 struct diag_list *diags)
{
    return check_name(objects, name, diags) && objects->kind->put(objects, name, data, bytes, diags);
}

enum objects_new objects_put_new(struct objects *objects, struct str name, const void *data, size_t bytes,
                                 struct diag_list *diags)
{
    return check_name(objects, name, diags) ? objects->kind->put_new(objects, name, data, bytes, diags)
                                            : OBJECTS_NEW_FAILED;
}

enum objects_result objects_get(struct objects *objects, struct str name, size_t bytes_max,
                                struct byte_buffer *out, struct diag_list *diags)
{
    if (!check_name(objects, name, diags))
        return OBJECTS_FAILED;
    size_t before = out->length;
    enum objects_result result = objects->kind->get(objects, name, bytes_max, out, diags);
    if (result != OBJECTS_DONE)
        out->length = before;
    return result;
}

enum objects_result objects_get_range(struct objects *objects, struct str name, uint64_t offset, size_t bytes,
                                      struct byte_buffer *out, struct diag_list *diags)
{
    if (!check_name(objects, name, diags))
        return OBJECTS_FAILED;
    size_t before = out->length;
    enum objects_result result = objects->kind->get_range(objects, name, offset, bytes, out, diags);
    if (result != OBJECTS_DONE)
        out->length = before;
    return result;
}

enum objects_result objects_head(struct objects *objects, struct str name, uint64_t *bytes,
                                 struct diag_list *diags)
{
    return check_name(objects, name, diags) ? objects->kind->head(objects, name, bytes, diags)
                                            : OBJECTS_FAILED;
}

bool objects_delete(struct objects *objects, struct str name, struct diag_list *diags)
{
    return check_name(objects, name, diags) && objects->kind->remove(objects, name, diags);
}

bool objects_abandon(struct objects *objects, int64_t age_us, uint32_t *count, struct diag_list *diags)
{
    *count = 0;
    if (atomic_load(&objects->is_cancelled))
        return objects_say_cancelled(objects, diags);
    return objects->kind->abandon(objects, age_us, count, diags);
}

bool objects_list(struct objects *objects, struct str prefix, struct arena *arena,
                  struct objects_entry **entries, uint32_t *count, struct diag_list *diags)
{
    *entries = NULL;
    *count = 0;
    if (atomic_load(&objects->is_cancelled))
        return objects_say_cancelled(objects, diags);
    return objects->kind->list(objects, prefix, arena, entries, count, diags);
}

bool objects_entries_add(struct objects_entries *entries, struct str name, uint64_t bytes)
{
    if (entries->count == OBJECTS_LIST_MAX)
        return false;
    if (entries->count == entries->capacity) {
        entries->capacity = MAX(64U, entries->capacity * 2);
        entries->items = mem_realloc(entries->items, entries->capacity * sizeof(*entries->items));
    }
    entries->items[entries->count++] = (struct objects_entry){name, bytes};
    return true;
}
