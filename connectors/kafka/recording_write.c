#include "connectors/kafka/recording_write.h"

#include "connectors/kafka/recording_form.h"

#include "core/mem.h"
#include "core/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zstd.h>

/* A reader needs memory for one frame of each partition. */
enum { FRAME_BYTES = 1 << 20, LEVEL = 3 };

static const char *const suffixes[] = {[RECORDING_JSONL] = "jsonl.zst", [RECORDING_MSGPACK] = "msgpack.zst"};

static int open_span(struct recording_writer *w, int64_t first)
{
    char *folder = mem_printf("%s/%s", w->directory, w->topic);
    int error = os_mkdirs(folder);
    free(folder);
    if (error != 0)
        return error;
    w->path = mem_printf("%s/%s/%05d-%020" PRId64 ".%s", w->directory, w->topic, (int)w->id, first,
                         suffixes[w->format]);
    w->part = mem_printf("%s.part", w->path);
    w->is_open = true;
    w->span = (struct recording_span){.first = first, .next = first, .first_ms = -1, .last_ms = -1};
    w->raw_bytes = 0;
    w->begin_us = os_monotonic_us();
    w->fd = open(w->part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return w->fd < 0 ? errno : 0;
}

void recording_packer_free(struct recording_packer *packer)
{
    ZSTD_freeCCtx(packer->context);
    packer->context = NULL;
    buffer_free(&packer->bytes);
}

static ZSTD_CCtx *context_of(struct recording_packer *packer)
{
    if (packer->context == NULL) {
        ZSTD_CCtx *context = ZSTD_createCCtx();
        leat_assert(context != NULL);
        ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, LEVEL);
        ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
        packer->context = context;
    }
    return packer->context;
}

/* Compresses the collected bytes as one frame and writes it. Returns 0 or an errno. */
static int write_frame(struct recording_writer *w)
{
    if (w->raw.length == 0)
        return 0;
    struct byte_buffer *packed = &w->packer->bytes;
    size_t room = ZSTD_compressBound(w->raw.length);
    buffer_clear(packed);
    size_t bytes =
        ZSTD_compress2(context_of(w->packer), buffer_reserve(packed, room), room, w->raw.data, w->raw.length);
    leat_assert(!ZSTD_isError(bytes)); /* cannot fail: there is room */
    w->span.bytes += (int64_t)bytes;
    w->raw_bytes += (int64_t)w->raw.length;
    buffer_clear(&w->raw);
    return os_write_all(w->fd, packed->data, bytes, "record.write");
}

int recording_writer_put(struct recording_writer *w, int64_t first, const struct recorded *record)
{
    int error = w->is_open ? 0 : open_span(w, first);
    if (error != 0)
        return error;
    leat_assert(record->offset >= w->span.next);
    if (w->format == RECORDING_JSONL)
        recorded_put_json(record, &w->raw);
    else
        recorded_put_msgpack(record, &w->raw);
    struct recording_span *span = &w->span;
    span->records++;
    span->next = record->offset + 1;
    if (record->time_ms > 0) {
        span->first_ms = span->first_ms < 0 ? record->time_ms : MIN(span->first_ms, record->time_ms);
        span->last_ms = MAX(span->last_ms, record->time_ms);
    }
    return w->raw.length < FRAME_BYTES ? 0 : write_frame(w);
}

static void forget(struct recording_writer *w)
{
    free(w->path);
    free(w->part);
    w->path = w->part = NULL;
    w->is_open = false;
    w->fd = -1;
    buffer_clear(&w->raw);
}

int recording_writer_finish(struct recording_writer *w, int64_t next, struct recording_span *span,
                            struct arena *arena)
{
    leat_assert(w->is_open && next >= w->span.next);
    int error = write_frame(w);
    if (error == 0)
        error = os_fsync(w->fd, "record.fsync");
    if (error == 0)
        error = os_rename(w->part, w->path, "record.rename");
    if (error != 0)
        return error;
    char *folder = mem_printf("%s/%s", w->directory, w->topic);
    error = os_fsync_directory(folder, "record.fsync");
    if (error == 0) /* the folder itself may be new */
        error = os_fsync_directory(w->directory, "record.fsync");
    free(folder);
    if (error != 0)
        return error;
    *span = w->span;
    span->next = next;
    span->path = arena_strdup(arena, w->path);
    span->file = span->path + strlen(w->directory) + 1;
    close(w->fd);
    forget(w);
    return 0;
}

void recording_writer_close(struct recording_writer *w)
{
    if (w->is_open) {
        if (w->fd >= 0)
            close(w->fd);
        unlink(w->part);
        forget(w);
    }
    buffer_free(&w->raw);
}

/* --- Beginning --- */

bool recording_refuse(const char *directory, enum diag_code code, const char *what, const char *hint,
                      struct diag_list *diags)
{
    struct diag *d = diag_error(diags, code, (struct span){0, 0}, "`%s`: %s", directory, what);
    diag_hint(diags, d, "%s", hint);
    return false;
}

static bool is_empty(const char *directory)
{
    DIR *listing = opendir(directory);
    struct dirent *entry;
    bool is_one = true;
    while (listing != NULL && (entry = readdir(listing)) != NULL)
        is_one &= entry->d_name[0] == '.' || strcmp(entry->d_name, "manifest.json.part") == 0 ||
                  recording_is_order_log(entry->d_name);
    if (listing != NULL)
        closedir(listing);
    return is_one;
}

bool recording_begin(const char *directory, struct recording *recording, int *lock_fd, struct arena *arena,
                     struct diag_list *diags)
{
    struct str name = str_from(directory);
    char *lock = mem_printf("%s/.lock", directory), *manifest = mem_printf("%s/manifest.json", directory);
    int error = os_mkdirs(directory);
    if (error == 0 && (*lock_fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0666)) < 0)
        error = errno;
    bool is_locked = error == 0 && os_lock(*lock_fd);
    bool is_there = access(manifest, F_OK) == 0;
    free(lock);
    free(manifest);
    if (error != 0) {
        struct diag *d =
            diag_error(diags, DIAG_OUTPUT_FAILED, (struct span){0, 0}, "`%s` cannot be written", directory);
        diag_errno(diags, d, error);
        diag_hint(diags, d,
                  "--to names the directory of the recording, which is created if it does not exist");
        return false;
    }
    if (!is_locked)
        return recording_refuse(directory, DIAG_OUTPUT_FAILED, "another process records into this directory",
                                "wait until that process has ended, or record into another directory", diags);
    if (is_there)
        return recording_open(recording, &name, 1, NULL, 0, arena, diags);
    return is_empty(directory) ||
           recording_refuse(directory, DIAG_OUTPUT_EXISTS, "the directory has files, and is not a recording",
                            "give --to an empty or new directory", diags);
}

/* --- Leftover files --- */

static bool is_span_name(const char *name)
{
    size_t id = strspn(name, "0123456789");
    if (id < 5 || name[id] != '-' || strspn(name + id + 1, "0123456789") != 20)
        return false;
    const char *suffix = name + id + 1 + 20;
    for (size_t i = 0; i < ARRAY_COUNT(suffixes); i++) {
        size_t length = strlen(suffixes[i]);
        if (suffix[0] == '.' && strncmp(suffix + 1, suffixes[i], length) == 0 &&
            (suffix[1 + length] == '\0' || strcmp(suffix + 1 + length, ".part") == 0))
            return true;
    }
    return false;
}

static bool is_named(const struct recording *recording, const char *topic, const char *name)
{
    for (uint32_t i = 0; i < recording->partitions_count; i++) {
        const struct recording_partition *p = &recording->partitions[i];
        if (strcmp(p->topic, topic) != 0)
            continue;
        for (uint32_t k = 0; k < p->spans_count; k++)
            if (strcmp(strrchr(p->spans[k].file, '/') + 1, name) == 0)
                return true;
    }
    return false;
}

void recording_sweep(const struct recording *recording, const char *directory, const char *topic)
{
    char *folder = mem_printf("%s/%s", directory, topic);
    DIR *listing = opendir(folder);
    struct dirent *entry;
    while (listing != NULL && (entry = readdir(listing)) != NULL)
        if (is_span_name(entry->d_name) && !is_named(recording, topic, entry->d_name))
            unlinkat(dirfd(listing), entry->d_name, 0);
    if (listing != NULL)
        closedir(listing);
    free(folder);
}
