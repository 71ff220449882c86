/* Cuts a partition's bytes into raw batches.
 *
 * Bytes are read straight into the raw batch's arena: as many as the last batch took and a few more. Bytes
 * behind the last record are carried over to the next batch. How many bytes were read at once has no
 * influence on where a batch ends: the rule in core/connector.h decides that from the records alone. */
#include "connectors/file/reader.h"

#include "connectors/file/mark.h"

#include "core/file_ends.h"
#include "core/mem.h"
#include "core/os.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    READ_FIRST_BYTES = 256 << 10,
    READ_LEAST_BYTES = 64 << 10,
    HEADER_BYTES_MAX = 1 << 20,
    /* A batch (which begins with a record), one more record, and enough bytes to detect one that is too
     * long. */
    BUFFER_BYTES = SOURCE_BATCH_BYTES + SOURCE_RECORD_BYTES_MAX + READ_LEAST_BYTES,
    /* Limit for formats with blocks: a block of wide rows may need more than BUFFER_BYTES. */
    BLOCK_BYTES_MAX = 256 << 20,
};

static const char *open_path(const struct file_reader *reader)
{
    return reader->list->paths[reader->file];
}

/* Reports an error of the open file; the reader fails from then on. */
static bool report(struct file_reader *reader, enum diag_code code, const char *what, int error_number,
                   int64_t offset)
{
    static const char *const ways_out[] = {
        [DIAG_FILE_UNREADABLE] = "check that the file is there and that this user may read it",
        [DIAG_FILE_DAMAGED] = "get an undamaged copy of the file; the records before this place were read",
        [DIAG_FILE_CHANGED] =
            "give leat files that no process writes to any more, then start again with --fresh",
        [DIAG_FILE_COLUMNS] = "correct the source's `schema:`, or the file",
    };
    const char *path = open_path(reader);
    pthread_mutex_lock(reader->mutex);
    struct diag *d = diag_error(reader->diags, code, reader->span, "`%s` %s", path, what);
    if (error_number != 0)
        diag_errno(reader->diags, d, error_number);
    diag_at(reader->diags, d, path, offset, -1);
    if (code < ARRAY_COUNT(ways_out) && ways_out[code] != NULL)
        diag_hint(reader->diags, d, "%s", ways_out[code]);
    pthread_mutex_unlock(reader->mutex);
    reader->is_failed = true;
    return false;
}

static bool report_input(struct file_reader *reader)
{
    return report(reader, reader->input.error, reader->input.reason, reader->input.error_number,
                  reader->input.disk_offset);
}

bool reader_open(struct file_reader *reader)
{
    uint32_t count = reader->list->count;
    reader->facts = mem_calloc(count + 1, sizeof(*reader->facts));
    reader->headers = mem_calloc(count + 1, sizeof(*reader->headers));
    reader->header_bytes = mem_calloc(count + 1, sizeof(*reader->header_bytes));
    reader->carry = mem_alloc(BUFFER_BYTES + RAW_PADDING);
    reader->guess_bytes = READ_FIRST_BYTES;
    reader->line = 1;
    bool is_good = true;
    for (uint32_t i = 0; i < count; i++) {
        struct stat info;
        reader->file = i;
        /* Opening checks more than stat: permissions, kind, compression. */
        if (!input_open(&reader->input, open_path(reader), -1))
            is_good = report_input(reader);
        else if (fstat(reader->input.fd, &info) == 0) {
            claims_opened(reader->claims, reader->input.fd);
            reader->facts[i].size = info.st_size;
            reader->facts[i].changed = info.st_mtim;
            file_ends(reader->input.fd, info.st_size, &reader->facts[i].head, &reader->facts[i].tail);
        }
        reader->bytes_total += reader->facts[i].size;
        input_close(&reader->input);
    }
    mark_before(reader->list, reader->facts);
    reader->file = 0;
    return is_good;
}

void reader_close(struct file_reader *reader)
{
    input_close(&reader->input);
    if (reader->headers != NULL)
        for (uint32_t i = 0; i < reader->list->count; i++)
            free(reader->headers[i]);
    free(reader->facts);
    free(reader->headers);
    free(reader->header_bytes);
    free(reader->carry);
    reader->facts = NULL;
    reader->headers = NULL;
    reader->header_bytes = NULL;
    reader->carry = NULL;
}

int64_t reader_done_bytes(const struct file_reader *reader)
{
    return __atomic_load_n(&reader->bytes_done, __ATOMIC_RELAXED);
}

/* Reads up to `want` more bytes behind data[*filled]; at the end or on an error, sets has_ended instead. */
static void read_more(struct file_reader *reader, char *data, size_t *filled, size_t want)
{
    size_t got;
    if (!input_read(&reader->input, data + *filled, want, &got))
        reader->has_ended = reader->has_input_error = true;
    else if (got == 0)
        reader->has_ended = true;
    *filled += got;
    /* Lets system tools show the progress: /proc/PID/fdinfo, `pv -d PID`. */
    (void)lseek(reader->input.fd, reader->input.disk_offset, SEEK_SET);
    __atomic_store_n(&reader->bytes_done, reader->bytes_before + reader->input.disk_offset, __ATOMIC_RELAXED);
}

/* Checks that the open file has not changed since the job began. has_torn_end: its last record is incomplete.
 * Returns false after a diagnostic. */
static bool check_facts(struct file_reader *reader, bool has_torn_end)
{
    struct stat info;
    const struct file_facts *facts = &reader->facts[reader->file];
    if (fstat(reader->input.fd, &info) != 0)
        return true;
    bool is_touched =
        info.st_mtim.tv_sec != facts->changed.tv_sec || info.st_mtim.tv_nsec != facts->changed.tv_nsec;
    if (info.st_size < facts->size)
        return report(reader, DIAG_FILE_CHANGED, "became shorter while it was read", 0, info.st_size);
    if (info.st_size == facts->size && is_touched)
        return report(reader, DIAG_FILE_CHANGED, "was written to while it was read", 0, -1);
    if (info.st_size > facts->size && has_torn_end)
        return report(reader, DIAG_FILE_CHANGED,
                      "grew while it was read, and its last record was not complete", 0, facts->size);
    if (info.st_size > facts->size) {
        pthread_mutex_lock(reader->mutex);
        struct diag *d = diag_warning(
            reader->diags, DIAG_FILE_CHANGED, reader->span,
            "`%s` grew while it was read: the %lld bytes added since the job began were not read",
            open_path(reader), (long long)(info.st_size - facts->size));
        diag_hint(reader->diags, d, "give leat files that no process writes to any more");
        pthread_mutex_unlock(reader->mutex);
    }
    return true;
}

/* Reads the header of the open file into headers[file] unless it is there already. The bytes behind the
 * header stay in `carry`. */
static bool read_header(struct file_reader *reader)
{
    const char *damage = NULL;
    size_t used = 0;
    enum format_header_status status = HEADER_READ;
    if (reader->format->header != NULL)
        do {
            if (!reader->has_ended)
                read_more(reader, reader->carry, &reader->carry_bytes, READ_LEAST_BYTES);
            if (reader->has_input_error && reader->carry_bytes == 0)
                return report_input(reader);
            status = reader->format->header(reader->config, reader->carry, reader->carry_bytes,
                                            reader->has_ended, &used, &damage);
            if (status == HEADER_MORE && (reader->has_ended || reader->carry_bytes > HEADER_BYTES_MAX))
                return report(reader, DIAG_FILE_DAMAGED, "has a header that does not end", 0, 0);
        } while (status == HEADER_MORE);
    if (status == HEADER_BAD)
        return report(reader, DIAG_FILE_DAMAGED, damage, 0, 0);
    reader->offset = (int64_t)used;
    reader->account = (struct byte_account){.before = reader->offset};
    if (reader->headers[reader->file] != NULL)
        goto done;
    char *copy = mem_alloc(used + 1);
    memcpy(copy, reader->carry, used);
    reader->headers[reader->file] = copy;
    reader->header_bytes[reader->file] = used;
    if (reader->format->header_check != NULL && reader->facts[reader->file].size > 0) {
        pthread_mutex_lock(reader->mutex);
        unsigned before = reader->diags->count;
        bool is_good = reader->format->header_check(reader->schema, reader->config, (struct str){copy, used},
                                                    reader->diags);
        for (unsigned i = before; i < reader->diags->count; i++) {
            reader->diags->items[i].span = reader->span;
            diag_at(reader->diags, &reader->diags->items[i], open_path(reader), 0, -1);
        }
        pthread_mutex_unlock(reader->mutex);
        reader->is_failed |= !is_good;
        if (!is_good)
            return false;
    }
done:
    reader->carry_bytes -= used;
    memmove(reader->carry, reader->carry + used, reader->carry_bytes);
    return true;
}

/* Opens the file number reader->file at its first record. */
static bool open_file(struct file_reader *reader)
{
    reader->carry_bytes = 0;
    reader->has_ended = reader->has_input_error = reader->has_end_mark = false;
    reader->line = 1;
    reader->offset = 0;
    if (!input_open(&reader->input, open_path(reader), reader->facts[reader->file].size))
        return report_input(reader);
    reader->is_open = true;
    if (!read_header(reader))
        return false;
    for (size_t i = 0; i < reader->header_bytes[reader->file]; i++)
        reader->line += reader->headers[reader->file][i] == '\n';
    return true;
}

static void close_file(struct file_reader *reader)
{
    if (!reader->is_open)
        return;
    input_close(&reader->input);
    reader->is_open = false;
}

bool reader_check(struct file_reader *reader)
{
    bool is_good = reader->list->count == 0 || open_file(reader);
    close_file(reader);
    return is_good;
}

bool reader_seek(struct file_reader *reader, const struct source_position *position)
{
    close_file(reader);
    reader->is_failed = false;
    reader->record = position->record;
    reader->bytes_before = 0;
    if (position->a < 0 || position->a > reader->list->count) {
        reader->file = 0;
        return report(reader, DIAG_FILE_CHANGED,
                      "no longer has its place in the order of the files: files were added or removed", 0,
                      -1);
    }
    reader->file = (uint32_t)position->a;
    for (uint32_t i = 0; i < reader->file; i++)
        reader->bytes_before += reader->facts[i].size;
    if (reader->file == reader->list->count)
        return true;
    if (!open_file(reader))
        return false;
    if (position->b <= reader->offset)
        return true;
    if (reader->input.compression == COMPRESSION_NONE || position->b > reader->input.offset) {
        if (!input_seek(&reader->input, position->b))
            return report_input(reader);
        reader->carry_bytes = 0;
        reader->has_ended = reader->has_input_error = false;
    } else {
        size_t skipped = (size_t)(position->b - reader->offset);
        leat_assert(skipped <= reader->carry_bytes);
        reader->carry_bytes -= skipped;
        memmove(reader->carry, reader->carry + skipped, reader->carry_bytes);
    }
    reader->offset = position->b;
    reader->account = (struct byte_account){.before = position->b};
    reader->line = position->line;
    return true;
}

/* State of the batch being cut. */
struct cut {
    size_t capacity; /* of raw->data, bytes */
    size_t filled;   /* bytes in raw->data */
    size_t used;     /* bytes of raw->data that belong to the batch */
    uint32_t lines;
    bool is_done;
    bool is_cut; /* the last record is too long; the rest of its line belongs to no record */
    size_t need;
    const char *damage;
};

/* Applies the rule for the end of a batch (core/connector.h): removes the records behind that end from *raw;
 * the next batch begins with the first of them. before: count of records that were checked already. */
static void apply_rule(const struct file_reader *reader, struct raw_batch *raw, uint32_t before,
                       struct cut *cut)
{
    for (uint32_t i = MAX(before, 1); i < raw->count; i++) {
        const struct raw_record *record = &raw->records[i];
        if (record->offset + record->length <= SOURCE_BATCH_BYTES &&
            (reader->offset + record->offset) / SOURCE_GRID_BYTES == reader->offset / SOURCE_GRID_BYTES)
            continue;
        raw->count = i;
        cut->used = record->offset;
        cut->is_done = true;
        cut->is_cut = false;
        cut->lines = 0;
        for (size_t j = 0; j < cut->used && reader->format->has_lines; j++)
            cut->lines += raw->data[j] == '\n';
        return;
    }
}

/* Removes the bytes before the first record (empty lines, an end mark), which belong to no batch: so a batch
 * begins with a record, and the whole batch fits the buffer. */
static void drop_lead(struct file_reader *reader, struct raw_batch *raw, struct cut *cut, size_t lead)
{
    account_between(&reader->account, reader->format, raw->data, lead);
    for (size_t i = 0; i < lead && reader->format->has_lines; i++)
        if (raw->data[i] == '\n') {
            reader->line++;
            cut->lines--;
        }
    for (uint32_t i = 0; i < raw->count; i++)
        raw->records[i].offset -= (uint32_t)lead;
    reader->offset += (int64_t)lead;
    cut->used -= lead;
    cut->filled -= lead;
    memmove(raw->data, raw->data + lead, cut->filled);
}

/* Cuts records from the bytes read since the last call. */
static void split_more(struct file_reader *reader, struct raw_batch *raw, struct cut *cut)
{
    struct format_split split = {
        .config = reader->config,
        .data = raw->data + cut->used,
        .bytes = cut->filled - cut->used,
        .is_last = reader->has_ended && !reader->has_input_error,
        .max = BATCH_ROWS - raw->count,
        .records = raw->records + raw->count,
    };
    reader->format->split(&split);
    uint32_t before = raw->count;
    bool is_block = reader->format->is_blocks;
    raw->count += split.count;
    for (uint32_t i = before; i < raw->count && !is_block; i++)
        raw->records[i].offset += (uint32_t)cut->used;
    cut->used += split.used;
    cut->lines += split.lines;
    cut->is_cut = split.is_cut;
    cut->damage = split.damage;
    cut->need = split.need;
    reader->has_end_mark |= split.is_end;
    cut->is_done =
        raw->count == BATCH_ROWS || split.is_cut || split.damage != NULL || (is_block && split.count > 0);
    leat_assert(cut->used <= cut->filled);
    size_t lead = raw->count == 0 ? cut->used : is_block ? 0 : raw->records[0].offset;
    if (lead > 0)
        drop_lead(reader, raw, cut, lead);
    if (is_block || raw->count == 0)
        return;
    if (raw->count > before)
        apply_rule(reader, raw, before, cut);
    /* Empty lines may reach beyond the limit: then the next record cannot belong to this batch. */
    if (cut->used > SOURCE_BATCH_BYTES)
        cut->is_done = true;
}

/* Drops the rest of a line whose record is too long. */
static void drop_line(struct file_reader *reader)
{
    for (;;) {
        char *newline = memchr(reader->carry, '\n', reader->carry_bytes);
        size_t dropped = newline == NULL ? reader->carry_bytes : (size_t)(newline - reader->carry) + 1;
        reader->offset += (int64_t)dropped;
        reader->account.dropped += (int64_t)dropped;
        reader->carry_bytes -= dropped;
        memmove(reader->carry, reader->carry + dropped, reader->carry_bytes);
        if (newline != NULL) {
            reader->line++;
            return;
        }
        if (reader->has_ended)
            return;
        read_more(reader, reader->carry, &reader->carry_bytes, BUFFER_BYTES - reader->carry_bytes);
    }
}

static struct source_position reader_position(const struct file_reader *reader)
{
    return (struct source_position){.a = reader->file,
                                    .b = reader->offset,
                                    .record = reader->record,
                                    .line = reader->format->has_lines ? reader->line : 0};
}

/* Fills in the position, place and size of the batch, and moves the reader behind it. */
static void finish_batch(struct file_reader *reader, struct raw_batch *raw, const struct cut *cut)
{
    size_t left = cut->filled - cut->used;
    raw->position = reader_position(reader);
    raw->path = open_path(reader);
    raw->header = (struct str){reader->headers[reader->file], reader->header_bytes[reader->file]};
    raw->first_offset = reader->offset;
    raw->first_line = reader->format->has_lines ? reader->line : -1;
    account_batch(&reader->account, reader->format, raw->data, cut->used, raw->records, raw->count);
    raw->data_bytes = cut->used;
    memcpy(reader->carry, raw->data + cut->used, left);
    reader->carry_bytes = left;
    reader->offset += (int64_t)cut->used;
    reader->line += cut->lines;
    reader->record += raw->count;
    reader->guess_bytes = MIN(cut->used + cut->used / 16 + 4096, (size_t)BUFFER_BYTES);
    if (cut->is_cut)
        drop_line(reader);
    if (reader->format->is_blocks)
        raw->records = NULL;
    raw->next = reader_position(reader);
}

static void tell_padding(struct file_reader *reader)
{
    pthread_mutex_lock(reader->mutex);
    struct diag *d = diag_warning(reader->diags, DIAG_FILE_DAMAGED, reader->span,
                                  "`%s` has %lld bytes of zeros behind its gzip data: the zeros are ignored",
                                  open_path(reader), (long long)reader->input.padding);
    diag_hint(reader->diags, d, "such padding comes from tapes and block devices; `gzip -d` ignores it, too");
    pthread_mutex_unlock(reader->mutex);
}

/* Call when the open file has ended without another batch: checks that it was whole and has not changed.
 * Returns false after a diagnostic. */
static bool end_file(struct file_reader *reader, const struct cut *cut)
{
    const struct file_facts *facts = &reader->facts[reader->file];
    if (reader->has_input_error && reader->input.error == DIAG_FILE_DAMAGED && !check_facts(reader, true))
        return false;
    if (reader->has_input_error)
        return report_input(reader);
    leat_assert(cut->used == 0);
    if (cut->damage != NULL)
        return report(reader, DIAG_FILE_DAMAGED, cut->damage, 0, reader->offset);
    if (cut->filled > 0)
        return report(reader, DIAG_FILE_DAMAGED, "is truncated: it ends inside a record", 0, reader->offset);
    if (reader->format->has_end_mark && !reader->has_end_mark && facts->size > 0)
        return report(reader, DIAG_FILE_DAMAGED, "is truncated: its end mark is missing", 0, reader->offset);
    leat_assert(reader->offset == reader->input.offset);
    leat_assert(reader->input.disk_offset == facts->size);
    account_check(&reader->account, reader->input.offset);
    if (reader->input.padding > 0)
        tell_padding(reader);
    return check_facts(reader, false);
}

/* Makes room for `need` bytes in raw->data. False after a diagnostic: no block may be that large. */
static bool make_room(struct file_reader *reader, struct raw_batch *raw, struct cut *cut, size_t need)
{
    if (need <= cut->capacity)
        return true;
    if (need > BLOCK_BYTES_MAX)
        return report(reader, DIAG_FILE_DAMAGED, "is damaged: it has a block that is impossibly large", 0,
                      reader->offset);
    char *data = arena_alloc(&raw->arena, need + RAW_PADDING);
    memcpy(data, raw->data, cut->filled);
    raw->data = data;
    cut->capacity = need;
    return true;
}

/* Cuts the next batch of the open file. READ_END: the file has no more records. */
static enum read_status read_batch(struct file_reader *reader, struct raw_batch *raw)
{
    struct cut cut = {.capacity = BUFFER_BYTES, .filled = reader->carry_bytes};
    raw->count = 0;
    raw->data = arena_alloc(&raw->arena, BUFFER_BYTES + RAW_PADDING);
    raw->records = arena_alloc(&raw->arena, BATCH_ROWS * sizeof(*raw->records));
    memcpy(raw->data, reader->carry, cut.filled);
    for (size_t goal = reader->guess_bytes;;) {
        /* `goal` limits the read-ahead: bytes that are carried over must fit the next batch's buffer. */
        if (!reader->has_ended && cut.filled < goal)
            read_more(reader, raw->data, &cut.filled, goal - cut.filled);
        split_more(reader, raw, &cut);
        if (cut.is_done || reader->has_ended)
            break;
        goal = cut.need > 0 ? cut.need : MIN(cut.filled + READ_LEAST_BYTES, cut.capacity);
        if (!make_room(reader, raw, &cut, goal))
            return READ_ERROR;
        leat_assert(cut.filled < goal);
    }
    if (raw->count == 0)
        return end_file(reader, &cut) ? READ_END : READ_ERROR;
    /* A last record without a line end may be half of a record that is just being written. */
    bool is_unended = reader->has_ended && reader->format->has_lines && cut.used == cut.filled &&
                      raw->data[cut.filled - 1] != '\n';
    if (is_unended && !check_facts(reader, true))
        return READ_ERROR;
    finish_batch(reader, raw, &cut);
    return READ_BATCH;
}

enum read_status reader_read(struct file_reader *reader, struct raw_batch *raw)
{
    arena_reset(&raw->arena);
    for (;;) {
        if (reader->is_failed)
            return READ_ERROR;
        if (reader->file == reader->list->count)
            return READ_END;
        if (!reader->is_open && !open_file(reader))
            return READ_ERROR;
        enum read_status status = read_batch(reader, raw);
        if (status != READ_END)
            return status;
        close_file(reader);
        reader->bytes_before += reader->facts[reader->file].size;
        reader->file++;
    }
}
