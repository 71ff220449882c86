/* External merge sort. Records are collected until the memory is full, sorted, and written as a run.
 * RUNS_AT_ONCE consecutive runs of one level are merged into one run of the next level, so that neither open
 * files nor runs read at once grow with the number of records; at the end all remaining runs are merged into
 * the copy. An entry of a run is its key, its length and its bytes.
 *
 * Records are counted on input, in each run and in the copy; the job stops where the counts differ. */
#include "connectors/file/sort.h"
#include "formats/formats.h"

#include "core/mem.h"
#include "core/os.h"
#include "core/temporary.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { RUNS_AT_ONCE = 32, LEVELS_MAX = 16, RUNS_MAX = RUNS_AT_ONCE * LEVELS_MAX, WRITE_BYTES = 1 << 20 };

struct entry {
    uint64_t key;
    uint64_t offset; /* of the record in sorter.bytes; rises with the record's number, so it breaks ties of
                        equal keys */
};

struct entry_head {
    uint64_t key;
    uint32_t length, unused;
};

/* A sorted file: a run, or the copy. */
struct run {
    int fd;
    uint32_t level;
    uint64_t records;
    int64_t bytes;
};

struct sorter {
    const struct sort_request *request;
    struct file_reader *reader;
    struct arena *arena;
    struct diag_list *diags;
    struct byte_buffer bytes; /* length (uint32_t) and bytes of each collected record */
    struct entry *entries;
    size_t entries_count, entries_capacity;
    uint64_t records;          /* total collected so far */
    struct run runs[RUNS_MAX]; /* in the order of their records; levels do not rise */
    uint32_t runs_count;
    uint64_t last_key;
    void *encoder; /* encodes rows that have no bytes; else NULL */
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
        diag_error(sorter->diags, error == ENOSPC ? DIAG_DISK_FULL : DIAG_OUTPUT_FAILED, sorter->reader->span,
                   "`order_by` cannot write its sorted copy in `%s`", sorter->request->directory);
    diag_errno(sorter->diags, d, error);
    diag_hint(
        sorter->diags, d,
        "the sorted copy needs as much space as the records before compression; name a directory with enough "
        "space in `sort_dir`");
    return false;
}

/* Reports that a run does not contain the records written to it. Returns false. */
static bool run_lost(struct sorter *sorter, uint64_t expected, uint64_t found)
{
    struct diag *d =
        diag_error(sorter->diags, DIAG_FILE_DAMAGED, sorter->reader->span,
                   "the sorted copy of `%s` (`order_by`) is damaged: expected %llu records, found %llu",
                   sorter->reader->list->name, (unsigned long long)expected, (unsigned long long)found);
    diag_hint(sorter->diags, d,
              "check the disk of `sort_dir`, then start the job again, which sorts the records anew");
    return false;
}

/* --- writing --- */

struct run_writer {
    struct run run;
    int error;
    bool has_keys; /* true: a run, with entries as in entry_head; false: the copy, with frames of length and
                      bytes (sorted.h) */
    struct byte_buffer buffer;
};

static void begin_writing(struct sorter *sorter, struct run_writer *writer, bool has_keys)
{
    *writer = (struct run_writer){.run.fd = temporary_file(sorter->request->directory), .has_keys = has_keys};
    writer->error = writer->run.fd < 0 ? errno : 0;
}

static void write_out(struct run_writer *writer)
{
    if (writer->error == 0 && writer->buffer.length > 0)
        writer->error =
            os_write_all(writer->run.fd, writer->buffer.data, writer->buffer.length, "spill.write");
    writer->run.bytes += (int64_t)writer->buffer.length;
    buffer_clear(&writer->buffer);
}

static void write_record(struct run_writer *writer, uint64_t key, const char *data, uint32_t length)
{
    struct entry_head head = {key, length, 0};
    if (writer->has_keys)
        buffer_append(&writer->buffer, &head, sizeof(head));
    else
        buffer_append(&writer->buffer, &length, sizeof(length));
    buffer_append(&writer->buffer, data, length);
    writer->run.records++;
    if (writer->buffer.length >= WRITE_BYTES)
        write_out(writer);
}

/* Ends writing and sets `run` to the file written. Returns false after a diagnostic. */
static bool end_writing(struct sorter *sorter, struct run_writer *writer, struct run *run)
{
    write_out(writer);
    buffer_free(&writer->buffer);
    *run = writer->run;
    if (writer->error == 0)
        return true;
    if (run->fd >= 0)
        close(run->fd);
    return disk_failed(sorter, writer->error);
}

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Sorts the records in memory and writes them to a new file. Returns false after a diagnostic. */
static bool write_sorted(struct sorter *sorter, bool has_keys, struct run *run)
{
    struct run_writer writer;
    begin_writing(sorter, &writer, has_keys);
    if (sorter->entries_count > 1)
        qsort(sorter->entries, sorter->entries_count, sizeof(struct entry), compare_entries);
    for (size_t i = 0; i < sorter->entries_count && writer.error == 0; i++) {
        const char *at = sorter->bytes.data + sorter->entries[i].offset;
        uint32_t length;
        memcpy(&length, at, sizeof(length));
        write_record(&writer, sorter->entries[i].key, at + sizeof(length), length);
    }
    buffer_clear(&sorter->bytes);
    sorter->entries_count = 0;
    return end_writing(sorter, &writer, run);
}

/* --- merging --- */

struct run_reader {
    FILE *file;
    struct entry_head head;
    struct byte_buffer data;
    bool has_record;
    int error;
};

static void next_record(struct run_reader *reader)
{
    reader->has_record = fread(&reader->head, sizeof(reader->head), 1, reader->file) == 1;
    if (reader->has_record) {
        buffer_clear(&reader->data);
        reader->has_record = reader->head.length <= SORTED_RECORD_BYTES_MAX &&
                             fread(buffer_reserve(&reader->data, reader->head.length + 1), 1,
                                   reader->head.length, reader->file) == reader->head.length;
    }
    if (ferror(reader->file) != 0)
        reader->error = EIO;
}

/* Merges the readers until all are at their end; of entries with equal keys, the earlier run's comes first.
 * Returns 0 or an errno. A run that ends too early is not noticed here: merge_runs compares the counts of
 * records. */
static int merge_readers(struct run_reader *readers, uint32_t count, struct run_writer *writer)
{
    while (writer->error == 0) {
        struct run_reader *least = NULL;
        for (uint32_t i = 0; i < count; i++) {
            if (readers[i].error != 0)
                return readers[i].error;
            if (readers[i].has_record && (least == NULL || readers[i].head.key < least->head.key))
                least = &readers[i];
        }
        if (least == NULL)
            return 0;
        write_record(writer, least->head.key, least->data.data, least->head.length);
        next_record(least);
    }
    return writer->error;
}

/* Merges the last `count` runs into a new file and closes them. Returns false after a diagnostic. */
static bool merge_runs(struct sorter *sorter, uint32_t count, bool has_keys, struct run *merged)
{
    struct run_reader readers[RUNS_AT_ONCE] = {0};
    struct run *runs = &sorter->runs[sorter->runs_count - count];
    struct run_writer writer;
    uint64_t expected = 0;
    begin_writing(sorter, &writer, has_keys);
    for (uint32_t i = 0; i < count; i++) {
        expected += runs[i].records;
        lseek(runs[i].fd, 0, SEEK_SET);
        readers[i].file = fdopen(runs[i].fd, "rb");
        leat_assert(readers[i].file != NULL);
        setvbuf(readers[i].file, NULL, _IOFBF, WRITE_BYTES);
        next_record(&readers[i]);
    }
    sorter->runs_count -= count;
    if (writer.error == 0)
        writer.error = merge_readers(readers, count, &writer);
    for (uint32_t i = 0; i < count; i++) {
        fclose(readers[i].file);
        buffer_free(&readers[i].data);
    }
    if (!end_writing(sorter, &writer, merged))
        return false;
    if (merged->records == expected)
        return true;
    close(merged->fd);
    return run_lost(sorter, expected, merged->records);
}

/* Count of runs at the end of the list that have the last run's level. */
static uint32_t runs_of_level(const struct sorter *sorter)
{
    uint32_t count = 0;
    while (count < sorter->runs_count &&
           sorter->runs[sorter->runs_count - 1 - count].level == sorter->runs[sorter->runs_count - 1].level)
        count++;
    return count;
}

static bool add_run(struct sorter *sorter, struct run run)
{
    leat_assert(sorter->runs_count < RUNS_MAX);
    sorter->runs[sorter->runs_count++] = run;
    while (runs_of_level(sorter) == RUNS_AT_ONCE) {
        uint32_t level = sorter->runs[sorter->runs_count - 1].level + 1;
        if (!merge_runs(sorter, RUNS_AT_ONCE, true, &run))
            return false;
        run.level = level;
        sorter->runs[sorter->runs_count++] = run;
    }
    return true;
}

/* Merges all runs into the copy, the last (smallest) runs first. */
static bool merge_all(struct sorter *sorter, struct run *copy)
{
    while (sorter->runs_count > RUNS_AT_ONCE) {
        struct run run;
        if (!merge_runs(sorter, MIN(sorter->runs_count - RUNS_AT_ONCE + 1, (uint32_t)RUNS_AT_ONCE), true,
                        &run))
            return false;
        sorter->runs[sorter->runs_count++] = run;
    }
    return merge_runs(sorter, sorter->runs_count, false, copy);
}

/* --- collecting --- */

/* The row's value as an unsigned number of the same order. */
static uint64_t key_of(const struct column *column, uint32_t row)
{
    uint64_t bits = (uint64_t)column->ints[row];
    if (column->tag == TYPE_FLOAT && column->ints[row] < 0)
        return ~bits;
    return bits ^ UINT64_C(1) << 63;
}

static bool add_record(struct sorter *sorter, uint64_t key, struct str record)
{
    size_t used = sorter->bytes.length + sorter->entries_count * sizeof(struct entry);
    uint32_t length = (uint32_t)record.length;
    struct run run;
    if (sorter->entries_count > 0 &&
        used + length + sizeof(length) + sizeof(struct entry) > (size_t)sorter->request->memory_bytes &&
        (!write_sorted(sorter, true, &run) || !add_run(sorter, run)))
        return false;
    if (sorter->entries_count == sorter->entries_capacity) {
        sorter->entries_capacity = MAX(sorter->entries_capacity * 2, 4096);
        sorter->entries = mem_realloc(sorter->entries, sorter->entries_capacity * sizeof(struct entry));
    }
    sorter->entries[sorter->entries_count++] = (struct entry){key, sorter->bytes.length};
    buffer_append(&sorter->bytes, &length, sizeof(length));
    buffer_append(&sorter->bytes, record.data, length);
    sorter->records++;
    return true;
}

static bool too_large(struct sorter *sorter, const struct raw_batch *raw)
{
    struct diag *d =
        diag_error(sorter->diags, DIAG_FILE_DAMAGED, sorter->reader->span,
                   "`order_by` cannot sort a row of `%s` that is larger than 256 MiB", raw->path);
    diag_hint(sorter->diags, d, "write the recording again without such rows, or without `order_by`");
    return false;
}

static bool add_batch(struct sorter *sorter, const struct raw_batch *raw, const struct batch *batch)
{
    const struct column *column = &batch->columns[sorter->request->column];
    struct byte_buffer encoded = {0};
    bool is_good = true;
    for (uint32_t row = 0; row < batch->rows && is_good; row++) {
        /* A bad record, or one without a value, stays behind the record before it. */
        if (column_is_valid(column, row))
            sorter->last_key = key_of(column, row);
        struct str text = raw_record_text(raw, row);
        if (sorter->encoder != NULL) {
            buffer_clear(&encoded);
            format_msgpack.encode(sorter->encoder, batch, row, 1, &encoded);
            text = (struct str){encoded.data, encoded.length};
        }
        is_good = text.length <= SORTED_RECORD_BYTES_MAX ? add_record(sorter, sorter->last_key, text)
                                                         : too_large(sorter, raw);
    }
    buffer_free(&encoded);
    return is_good;
}

/* The header without a byte-order mark and line ends: files with the same columns may differ in these. */
static struct str header_content(struct str header)
{
    static const char mark[] = "\xef\xbb\xbf";
    if (header.length >= strlen(mark) && memcmp(header.data, mark, strlen(mark)) == 0)
        header = (struct str){header.data + strlen(mark), header.length - strlen(mark)};
    while (header.length > 0 && strchr("\r\n", header.data[header.length - 1]) != NULL)
        header.length--;
    return header;
}

/* Checks that the batch's file has the first file's header: the copy has one header for all records. */
static bool check_header(struct sorter *sorter, const struct raw_batch *raw)
{
    if (sorter->reader->format->is_blocks)
        return true;
    if (!sorter->has_header) {
        sorter->has_header = true;
        sorter->header = arena_str(sorter->arena, raw->header);
    }
    if (str_equal(header_content(sorter->header), header_content(raw->header)))
        return true;
    struct diag *d = diag_error(
        sorter->diags, DIAG_FILE_COLUMNS, sorter->reader->span,
        "`order_by` needs files with the same header line; the header line of `%s` differs", raw->path);
    diag_hint(sorter->diags, d,
              "read the files of each header line by a source of their own, and `union` the sources");
    return false;
}

static bool collect(struct sorter *sorter)
{
    struct file_reader *reader = sorter->reader;
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

/* Makes the copy from the records in memory and in runs. */
static bool make_copy(struct sorter *sorter, struct run *copy)
{
    struct run last;
    if (sorter->runs_count == 0)
        return write_sorted(sorter, false, copy);
    return write_sorted(sorter, true, &last) && add_run(sorter, last) && merge_all(sorter, copy);
}

bool sort_records(const struct sort_request *request, struct sorted_copy *copy, struct arena *arena)
{
    struct file_reader *reader = request->reader;
    struct sorter *sorter = mem_calloc(1, sizeof(*sorter));
    struct run sorted = {.fd = -1};
    *sorter = (struct sorter){.request = request, .reader = reader, .arena = arena, .diags = reader->diags};
    if (reader->format->is_blocks)
        sorter->encoder = format_msgpack.encoder_new(reader->schema, NULL);
    bool is_good = collect(sorter) && make_copy(sorter, &sorted);
    if (is_good && sorted.records != sorter->records) {
        close(sorted.fd);
        is_good = run_lost(sorter, sorter->records, sorted.records);
    }
    if (is_good)
        *copy = (struct sorted_copy){.fd = sorted.fd,
                                     .bytes = sorted.bytes,
                                     .records = sorted.records,
                                     .name = reader->list->name,
                                     .header = sorter->header,
                                     .diags = reader->diags,
                                     .span = reader->span,
                                     .mutex = reader->mutex};
    if (sorter->encoder != NULL)
        format_msgpack.encoder_free(sorter->encoder);
    for (uint32_t i = 0; i < sorter->runs_count; i++)
        close(sorter->runs[i].fd);
    free(sorter->entries);
    buffer_free(&sorter->bytes);
    free(sorter);
    return is_good;
}
