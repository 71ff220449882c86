#include "connectors/file/sorted.h"

#include "core/mem.h"
#include "core/os.h"

#include <stdlib.h>
#include <unistd.h>

enum {
    FRAME_BYTES = sizeof(uint32_t),
    READ_FIRST_BYTES = 256 << 10,
    READ_MORE_BYTES = 64 << 10,
    WINDOW_BYTES = 1 << 20
};

static bool report(struct sorted_copy *copy, enum diag_code code, const char *what, int error_number)
{
    pthread_mutex_lock(copy->mutex);
    struct diag *d = diag_error(copy->diags, code, copy->span, "the sorted copy of `%s` (`order_by`) %s",
                                copy->name, what);
    if (error_number != 0)
        diag_errno(copy->diags, d, error_number);
    diag_at(copy->diags, d, copy->name, -1, -1);
    diag_hint(copy->diags, d, "%s",
              code == DIAG_FILE_CHANGED
                  ? "restore the files as they were when the checkpoint was taken, or start anew with --fresh"
                  : "check the disk of `sort_dir`, then start the job again, which sorts the records anew");
    pthread_mutex_unlock(copy->mutex);
    copy->is_failed = true;
    return false;
}

/* Whether record number `record` begins at `offset`; walks the frames from the first one. */
static bool is_record_at(struct sorted_copy *copy, uint64_t record, int64_t offset)
{
    char *window = mem_alloc(WINDOW_BYTES);
    int64_t begin = 0, at = 0;
    size_t got = 0;
    uint64_t count = 0;
    while (at < offset && count < record) {
        uint32_t length;
        if (at - begin + FRAME_BYTES > (int64_t)got) {
            begin = at;
            if (os_pread_all(copy->fd, window, WINDOW_BYTES, (uint64_t)at, &got) != 0 || got < FRAME_BYTES)
                break;
        }
        memcpy(&length, window + (at - begin), FRAME_BYTES);
        at += FRAME_BYTES + (int64_t)length;
        count++;
    }
    free(window);
    return at == offset && count == record;
}

bool sorted_seek(struct sorted_copy *copy, const struct source_position *position)
{
    copy->is_failed = false;
    if (position->a != 0 || position->b < 0 || position->b > copy->bytes ||
        !is_record_at(copy, position->record, position->b))
        return report(copy, DIAG_FILE_CHANGED, "does not have a record at the checkpoint's position", 0);
    copy->offset = position->b;
    copy->record = position->record;
    __atomic_store_n(&copy->bytes_done, copy->offset, __ATOMIC_RELAXED);
    return true;
}

int64_t sorted_done_bytes(const struct sorted_copy *copy)
{
    return __atomic_load_n(&copy->bytes_done, __ATOMIC_RELAXED);
}

void sorted_close(struct sorted_copy *copy)
{
    if (copy->fd > 0)
        close(copy->fd);
    copy->fd = 0;
}

/* Reads up to `want` bytes, beginning with the next frame, into the batch's arena. loaded: bytes read. */
static bool load(struct sorted_copy *copy, struct raw_batch *raw, size_t want, size_t *loaded)
{
    *loaded = 0;
    want = (size_t)MIN((int64_t)want, copy->bytes - copy->offset);
    raw->data = arena_alloc(&raw->arena, want + RAW_PADDING);
    int error = os_pread_all(copy->fd, raw->data, want, (uint64_t)copy->offset, loaded);
    if (error != 0)
        return report(copy, DIAG_FILE_UNREADABLE, "cannot be read back", error);
    return *loaded == want || report(copy, DIAG_FILE_DAMAGED, "is shorter than when it was written", 0);
}

/* Length of the record whose frame begins at data[at]; the record itself may not be loaded yet. Returns false
 * with a diagnostic if there is no valid frame. */
static bool frame_length(struct sorted_copy *copy, const struct raw_batch *raw, size_t at, uint32_t *length)
{
    memcpy(length, raw->data + at, FRAME_BYTES);
    int64_t rest = copy->bytes - copy->offset - (int64_t)(at + FRAME_BYTES);
    return (*length <= SORTED_RECORD_BYTES_MAX && *length <= rest) ||
           report(copy, DIAG_FILE_DAMAGED, "is damaged: no record begins at the expected place", 0);
}

/* Whether a batch that has records takes another one: the rule of core/connector.h, on bytes of the copy. */
static bool has_room(const struct sorted_copy *copy, const struct raw_batch *raw, size_t at, uint32_t length)
{
    return raw->count < BATCH_ROWS &&
           at + FRAME_BYTES + length - raw->records[0].offset <= SOURCE_BATCH_BYTES &&
           (copy->offset + (int64_t)at) / SOURCE_GRID_BYTES == copy->offset / SOURCE_GRID_BYTES;
}

/* Cuts a batch from the loaded bytes. used: bytes of its frames. need: bytes that must be loaded if the batch
 * continues beyond them or has no record yet; else 0. */
static bool cut(struct sorted_copy *copy, struct raw_batch *raw, size_t loaded, size_t *used, size_t *need)
{
    int64_t rest = copy->bytes - copy->offset;
    raw->count = 0;
    *used = *need = 0;
    while ((int64_t)*used < rest) {
        uint32_t length = 0;
        if (rest - (int64_t)*used < FRAME_BYTES)
            return report(copy, DIAG_FILE_DAMAGED, "is damaged: it ends inside a record", 0);
        bool is_loaded = loaded - *used >= FRAME_BYTES;
        if (is_loaded && !frame_length(copy, raw, *used, &length))
            return false;
        if (raw->count > 0 && !has_room(copy, raw, *used, length))
            return true;
        if (!is_loaded || loaded - *used < FRAME_BYTES + length) {
            *need = *used + FRAME_BYTES + length;
            return true;
        }
        raw->records[raw->count++] = (struct raw_record){(uint32_t)(*used + FRAME_BYTES), length};
        *used += FRAME_BYTES + length;
    }
    return true;
}

enum read_status sorted_read(struct sorted_copy *copy, struct raw_batch *raw)
{
    size_t loaded, used = 0, need = 1, want = copy->guess_bytes > 0 ? copy->guess_bytes : READ_FIRST_BYTES;
    arena_reset(&raw->arena);
    if (copy->is_failed)
        return READ_ERROR;
    if (copy->offset == copy->bytes) {
        if (copy->record == copy->records)
            return READ_END;
        report(copy, DIAG_FILE_DAMAGED, "does not have as many records as the files", 0);
        return READ_ERROR;
    }
    raw->records = arena_alloc(&raw->arena, BATCH_ROWS * sizeof(*raw->records));
    for (; need > 0; want = need + READ_MORE_BYTES) {
        if (!load(copy, raw, want, &loaded) || !cut(copy, raw, loaded, &used, &need))
            return READ_ERROR;
        leat_assert(need == 0 || need > loaded);
    }
    leat_assert(raw->count > 0);
    raw->position = (struct source_position){.b = copy->offset, .record = copy->record};
    copy->offset += (int64_t)used;
    copy->record += raw->count;
    copy->guess_bytes = MIN(used + used / 16 + 4096, (size_t)SOURCE_BATCH_BYTES);
    raw->next = (struct source_position){.b = copy->offset, .record = copy->record};
    raw->data_bytes = used;
    raw->path = copy->name;
    raw->header = copy->header;
    raw->first_line = raw->first_offset = -1; /* not known of sorted records */
    __atomic_store_n(&copy->bytes_done, copy->offset, __ATOMIC_RELAXED);
    return READ_BATCH;
}
