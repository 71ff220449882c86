/* External merge sort: records are collected until the memory is full, sorted, and written as a run; runs are
 * merged, RUNS_AT_ONCE at a time, until one is left. A run's entry is its key, its length and its bytes. */
#include "connectors/file/sort.h"
#include "formats/formats.h"

#include "core/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { RUNS_AT_ONCE = 32, WRITE_BYTES = 1 << 20, RECORD_BYTES_MAX = BUFSIZ + (64 << 20) };

struct entry {
    uint64_t key;
    uint64_t offset; /* in sorter.bytes; rises with the record's number, so it decides among equal keys */
};

struct entry_head {
    uint64_t key;
    uint32_t length, unused;
};

struct run_list {
    int *fds;
    uint32_t count;
};

struct sorter {
    const struct sort_request *request;
    struct arena *arena;
    struct diag_list *diags;
    struct byte_buffer bytes; /* length and bytes of each record */
    struct entry *entries;
    size_t entries_count, entries_capacity;
    struct run_list runs;
    uint64_t last_key;
    void *encoder; /* of rows that have no bytes */
    struct str header;
    bool has_header;
};

const struct format_kind *sort_format(const struct format_kind *format)
{
    return format->is_blocks ? &format_msgpack : format;
}

static bool disk_failed(struct sorter *sorter, int error)
{
    struct diag *d =
        diag_error(sorter->diags, error == ENOSPC ? DIAG_E0608 : DIAG_E0605, (struct span){0, 0},
                   "`order_by` cannot write its sorted copy in `%s`", sorter->request->directory);
    diag_errno(sorter->diags, d, error);
    diag_hint(sorter->diags, d,
              "it takes as much room as the records before compression; name a place with `sort_dir`");
    return false;
}

/* A new file without a name in the directory. Its descriptor is never 0. */
static int temporary_file(const char *directory)
{
    char *path;
    leat_assert(asprintf(&path, "%s/leat-sort-XXXXXX", directory) >= 0);
    int fd = mkostemp(path, O_CLOEXEC), error = errno;
    if (fd >= 0)
        unlink(path);
    free(path);
    errno = error;
    return fd;
}

/* --- writing --- */

struct run_writer {
    int fd;
    int error;
    struct byte_buffer buffer;
};

static void write_bytes(struct run_writer *writer, const void *data, size_t bytes)
{
    buffer_append(&writer->buffer, data, bytes);
    if (writer->buffer.length < WRITE_BYTES)
        return;
    if (writer->error == 0)
        writer->error = os_write_all(writer->fd, writer->buffer.data, writer->buffer.length, "spill.write");
    buffer_clear(&writer->buffer);
}

static int finish_writing(struct run_writer *writer)
{
    if (writer->error == 0 && writer->buffer.length > 0)
        writer->error = os_write_all(writer->fd, writer->buffer.data, writer->buffer.length, "spill.write");
    buffer_free(&writer->buffer);
    return writer->error;
}

/* with_key: as a run; without: as the result, a frame of length and bytes. */
static void write_record(struct run_writer *writer, uint64_t key, const char *data, uint32_t length,
                         bool with_key)
{
    struct entry_head head = {key, length, 0};
    if (with_key)
        write_bytes(writer, &head, sizeof(head));
    else
        write_bytes(writer, &length, sizeof(length));
    write_bytes(writer, data, length);
}

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* What is in memory, sorted, into a new file; -1 after a diagnostic. */
static int write_sorted(struct sorter *sorter, bool with_key)
{
    qsort(sorter->entries, sorter->entries_count, sizeof(struct entry), compare_entries);
    struct run_writer writer = {.fd = temporary_file(sorter->request->directory)};
    if (writer.fd < 0) {
        disk_failed(sorter, errno);
        return -1;
    }
    for (size_t i = 0; i < sorter->entries_count; i++) {
        const char *at = sorter->bytes.data + sorter->entries[i].offset;
        uint32_t length;
        memcpy(&length, at, sizeof(length));
        write_record(&writer, sorter->entries[i].key, at + sizeof(length), length, with_key);
    }
    int error = finish_writing(&writer);
    buffer_clear(&sorter->bytes);
    sorter->entries_count = 0;
    if (error == 0)
        return writer.fd;
    close(writer.fd);
    disk_failed(sorter, error);
    return -1;
}

static void add_run(struct run_list *runs, int fd)
{
    runs->fds = realloc(runs->fds, (runs->count + 1) * sizeof(int));
    leat_assert(runs->fds != NULL);
    runs->fds[runs->count++] = fd;
}

static void close_runs(struct run_list *runs)
{
    for (uint32_t i = 0; i < runs->count; i++)
        if (runs->fds[i] >= 0)
            close(runs->fds[i]);
    free(runs->fds);
    *runs = (struct run_list){0};
}

/* --- merging --- */

struct run_reader {
    FILE *file;
    struct entry_head head;
    struct byte_buffer data;
    bool has_record;
    bool is_bad;
};

static void next_record(struct run_reader *reader)
{
    reader->has_record = fread(&reader->head, sizeof(reader->head), 1, reader->file) == 1;
    if (!reader->has_record) {
        reader->is_bad = ferror(reader->file) != 0;
        return;
    }
    buffer_clear(&reader->data);
    reader->is_bad = reader->head.length > RECORD_BYTES_MAX ||
                     fread(buffer_reserve(&reader->data, reader->head.length + 1), 1, reader->head.length,
                           reader->file) != reader->head.length;
    reader->has_record = !reader->is_bad;
}

/* Merges readers until all are at their end; among equal keys the earlier run goes first. False: a run cannot
 * be read back. */
static bool merge_readers(struct run_reader *readers, uint32_t count, struct run_writer *writer,
                          bool with_key)
{
    for (;;) {
        struct run_reader *least = NULL;
        for (uint32_t i = 0; i < count; i++) {
            if (readers[i].is_bad)
                return false;
            if (readers[i].has_record && (least == NULL || readers[i].head.key < least->head.key))
                least = &readers[i];
        }
        if (least == NULL)
            return true;
        write_record(writer, least->head.key, least->data.data, least->head.length, with_key);
        next_record(least);
    }
}

/* Merges `count` runs from `first` into a new file; they are closed. -1 after a diagnostic. */
static int merge_runs(struct sorter *sorter, uint32_t first, uint32_t count, bool with_key)
{
    struct run_reader readers[RUNS_AT_ONCE] = {0};
    struct run_writer writer = {.fd = temporary_file(sorter->request->directory)};
    writer.error = writer.fd < 0 ? errno : 0;
    for (uint32_t i = 0; i < count; i++) {
        int *fd = &sorter->runs.fds[first + i];
        lseek(*fd, 0, SEEK_SET);
        readers[i].file = fdopen(*fd, "rb");
        leat_assert(readers[i].file != NULL);
        *fd = -1;
        setvbuf(readers[i].file, NULL, _IOFBF, WRITE_BYTES);
        next_record(&readers[i]);
    }
    if (writer.error == 0 && !merge_readers(readers, count, &writer, with_key))
        writer.error = EIO;
    int error = finish_writing(&writer);
    for (uint32_t i = 0; i < count; i++) {
        fclose(readers[i].file);
        buffer_free(&readers[i].data);
    }
    if (error == 0)
        return writer.fd;
    if (writer.fd >= 0)
        close(writer.fd);
    disk_failed(sorter, error);
    return -1;
}

/* From any number of runs to the result. */
static int merge_all(struct sorter *sorter)
{
    while (sorter->runs.count > RUNS_AT_ONCE) {
        struct run_list merged = {0};
        for (uint32_t first = 0; first < sorter->runs.count; first += RUNS_AT_ONCE) {
            int fd = merge_runs(sorter, first, MIN(sorter->runs.count - first, RUNS_AT_ONCE), true);
            if (fd < 0) {
                close_runs(&merged);
                return -1;
            }
            add_run(&merged, fd);
        }
        close_runs(&sorter->runs);
        sorter->runs = merged;
    }
    return merge_runs(sorter, 0, sorter->runs.count, false);
}

/* --- collecting --- */

/* Order-preserving: the value as an unsigned number. */
static uint64_t key_of(const struct column *column, uint32_t row)
{
    uint64_t bits = (uint64_t)column->ints[row];
    if (column->tag == TYPE_FLOAT && column->ints[row] < 0)
        return ~bits;
    return bits ^ UINT64_C(1) << 63;
}

static bool add_record(struct sorter *sorter, uint64_t key, const char *data, uint32_t length)
{
    size_t used = sorter->bytes.length + sorter->entries_count * sizeof(struct entry);
    if (sorter->entries_count > 0 &&
        used + length + sizeof(length) + sizeof(struct entry) > (size_t)sorter->request->memory_bytes) {
        int fd = write_sorted(sorter, true);
        if (fd < 0)
            return false;
        add_run(&sorter->runs, fd);
    }
    if (sorter->entries_count == sorter->entries_capacity) {
        sorter->entries_capacity = MAX(sorter->entries_capacity * 2, 4096);
        sorter->entries = realloc(sorter->entries, sorter->entries_capacity * sizeof(struct entry));
        leat_assert(sorter->entries != NULL);
    }
    sorter->entries[sorter->entries_count++] = (struct entry){key, sorter->bytes.length};
    buffer_append(&sorter->bytes, &length, sizeof(length));
    buffer_append(&sorter->bytes, data, length);
    return true;
}

static bool add_batch(struct sorter *sorter, const struct raw_batch *raw, const struct batch *batch)
{
    const struct column *column = &batch->columns[sorter->request->column];
    struct byte_buffer encoded = {0};
    bool is_good = true;
    for (uint32_t row = 0; row < batch->rows && is_good; row++) {
        /* A bad record, and one without a value, stays behind the one before it. */
        if (column_is_valid(column, row))
            sorter->last_key = key_of(column, row);
        struct str text = raw_record_text(raw, row);
        if (sorter->encoder != NULL) {
            buffer_clear(&encoded);
            format_msgpack.encode(sorter->encoder, batch, row, 1, &encoded);
            text = (struct str){encoded.data, encoded.length};
        }
        is_good = add_record(sorter, sorter->last_key, text.data, (uint32_t)text.length);
    }
    buffer_free(&encoded);
    return is_good;
}

/* Records of files with different headers cannot follow each other in one. */
static bool check_header(struct sorter *sorter, const struct raw_batch *raw)
{
    if (sorter->request->reader->format->is_blocks)
        return true;
    if (!sorter->has_header) {
        sorter->has_header = true;
        sorter->header = arena_str(sorter->arena, raw->header);
    }
    if (str_equal(sorter->header, raw->header))
        return true;
    struct diag *d =
        diag_error(sorter->diags, DIAG_E0607, (struct span){0, 0},
                   "`order_by` takes files with the same header line; that of `%s` differs", raw->path);
    diag_hint(sorter->diags, d, "make them sources of their own and `union` them");
    return false;
}

static bool collect(struct sorter *sorter)
{
    struct file_reader *reader = sorter->request->reader;
    struct batch_pool *pool = batch_pool_new();
    void *decoder = reader->format->decoder_new(reader->schema, reader->config);
    struct raw_batch raw = {0};
    enum read_status status;
    bool is_good = true;
    while (is_good && (status = reader_read(reader, &raw)) != READ_END) {
        if (status == READ_ERROR) {
            is_good = false;
            break;
        }
        struct batch *batch = batch_new(pool, reader->schema, raw.count);
        struct decode_output output = {.batch = batch};
        output.bad = arena_alloc(&batch->arena, raw.count * sizeof(*output.bad));
        reader->format->decode(decoder, &raw, &output);
        is_good = check_header(sorter, &raw) && add_batch(sorter, &raw, batch);
        batch_release(batch);
    }
    arena_free(&raw.arena);
    reader->format->decoder_free(decoder);
    batch_pool_free(pool);
    return is_good;
}

/* --- the sorted file as a source --- */

static void frames_split(struct format_split *split)
{
    size_t used = 0;
    split->count = 0;
    while (split->count < split->max && split->bytes - used >= sizeof(uint32_t)) {
        uint32_t length;
        memcpy(&length, split->data + used, sizeof(length));
        if (split->bytes - used - sizeof(length) < length)
            break;
        split->records[split->count++] = (struct raw_record){(uint32_t)(used + sizeof(length)), length};
        used += sizeof(length) + length;
    }
    split->used = used;
    split->is_cut = split->is_end = false;
    split->lines = 0;
    split->need = 0;
    split->damage = NULL;
}

static bool replace_files(struct sorter *sorter, struct sorted_file *sorted, int fd)
{
    struct file_reader *reader = sorter->request->reader;
    sorted->fd = fd;
    snprintf(sorted->path, sizeof(sorted->path), "/proc/self/fd/%d", fd);
    sorted->paths[0] = sorted->path;
    sorted->list = (struct path_list){reader->list->name, sorted->paths, 1};
    struct file_reader given = *reader;
    reader_close(reader);
    *reader = (struct file_reader){.list = &sorted->list,
                                   .format = given.format,
                                   .config = given.config,
                                   .schema = given.schema,
                                   .split = frames_split,
                                   .fixed_header = sorter->header,
                                   .label = given.list->name,
                                   .diags = given.diags,
                                   .mutex = given.mutex};
    return reader_open(reader);
}

bool sort_records(const struct sort_request *request, struct sorted_file *sorted, struct arena *arena,
                  struct diag_list *diags)
{
    struct sorter sorter = {.request = request, .arena = arena, .diags = diags};
    if (request->reader->format->is_blocks)
        sorter.encoder = format_msgpack.encoder_new(request->reader->schema, NULL);
    int fd = -1;
    if (collect(&sorter)) {
        bool is_small = sorter.runs.count == 0;
        fd = write_sorted(&sorter, !is_small);
        if (fd >= 0 && !is_small) {
            add_run(&sorter.runs, fd);
            fd = merge_all(&sorter);
        }
    }
    if (sorter.encoder != NULL)
        format_msgpack.encoder_free(sorter.encoder);
    close_runs(&sorter.runs);
    free(sorter.entries);
    buffer_free(&sorter.bytes);
    return fd >= 0 && replace_files(&sorter, sorted, fd);
}

void sorted_close(struct sorted_file *sorted)
{
    if (sorted->fd > 0)
        close(sorted->fd);
    sorted->fd = 0;
}
