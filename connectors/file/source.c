/* Source `file`: recorded events. */
#include "connectors/file/mark.h"
#include "connectors/file/reader.h"
#include "connectors/file/sort.h"
#include "formats/formats.h"

#include "core/mem.h"
#include "core/temporary.h"

#include <stdlib.h>

struct file_source {
    struct texts path;
    int format; /* 0: by suffix, else 1 + index in formats_all */
    struct column_ref order_by;
    struct str delimiter;
    bool has_header, trims;
    int64_t sort_memory;
    struct str sort_dir;

    const struct format_kind *format_kind;
    struct format_config format_config;
    struct path_list *lists;
    struct file_reader *readers;
    struct sorted_copy *copies; /* order_by: sorted copies, one per partition; else NULL */
    uint64_t *copied_files;     /* order_by: per partition, the digest of all its files (file_facts.before) */
    uint32_t partitions_count;
    pthread_mutex_t mutex; /* held while the source's diagnostics are added */
    bool has_mutex;
};

static const struct option file_options[] = {
    OPTION_TEXTS(
        struct file_source, path, "path", OPTION_REQUIRED | OPTION_RUNTIME | OPTION_READS | OPTION_RECORDS,
        NULL,
        "files, globs, or the directory of a recording; each file or glob is a partition, and its files are "
        "read in order of name"),
    OPTION_ENUM(struct file_source, format, "format", 0, "auto", "auto|json|csv|msgpack|batches",
                "format of the files; auto: by their suffix"),
    OPTION_COLUMN(
        struct file_source, order_by, "order_by", 0,
        "sort the records by this column on disk, before the job reads them; for files that are not "
        "in time order"),
    OPTION_TEXT(struct file_source, delimiter, "delimiter", 0, "\",\"", "csv: the character between fields"),
    OPTION_BOOL(struct file_source, has_header, "header", "true",
                "csv: the first line names the columns; false: no such line, and the fields are in the order "
                "of the schema"),
    OPTION_BOOL(
        struct file_source, trims, "trim", "false",
        "csv: ignore spaces and tabs around fields and column names, and accept numbers that begin with +"),
    OPTION_BYTES(struct file_source, sort_memory, "sort_memory", OPTION_RUNTIME, "64MiB", "4MiB", "64GiB",
                 "order_by: memory for sorting"),
    OPTION_TEXT(struct file_source, sort_dir, "sort_dir", OPTION_RUNTIME, "\"\"",
                "order_by: directory of the sorted copy during the run; by default TMPDIR or /tmp"),
    OPTIONS_END,
};

/* Takes the format of a path's suffix as the source's. Returns false after a diagnostic if another path has a
 * different format. */
static bool add_format(const struct format_kind **chosen, struct str path, struct diag_list *diags,
                       struct span span)
{
    const struct format_kind *format = format_by_suffix(path);
    if (format == NULL || *chosen == NULL || format == *chosen) {
        *chosen = format != NULL ? format : *chosen;
        return true;
    }
    struct diag *d = diag_error(diags, DIAG_OPTIONS_CLASH, span,
                                "the files of a source must have one format, and these files have %s and %s",
                                (*chosen)->name, format->name);
    diag_hint(diags, d, "read the files of each format by a source of their own, and `union` the sources");
    return false;
}

/* Chooses the format from the job's options and paths; leaves format_kind NULL where only the names of the
 * files can tell it. */
static bool choose_format(struct file_source *file, struct diag_list *diags, struct span span)
{
    if (file->format > 0)
        file->format_kind = formats_all[file->format - 1];
    for (uint32_t i = 0; file->format == 0 && i < file->path.count; i++)
        if (!add_format(&file->format_kind, file->path.items[i], diags, span))
            return false;
    return true;
}

/* Chooses the format by the names of the files, for globs or directories without a suffix. */
static bool choose_format_by_files(struct file_source *file, struct diag_list *diags, struct span span)
{
    bool is_open = file->format_kind == NULL;
    if (file->partitions_count == 0) {
        struct diag *none = diag_error(diags, DIAG_NO_FILE, span, "`path` names no file");
        diag_hint(diags, none, "give a file, a glob, or the directory of a recording");
        return false;
    }
    for (uint32_t i = 0; is_open && i < file->partitions_count; i++)
        for (uint32_t j = 0; j < file->lists[i].count; j++)
            if (!add_format(&file->format_kind, str_from(file->lists[i].paths[j]), diags, span))
                return false;
    if (file->format_kind != NULL)
        return true;
    struct diag *d = diag_error(diags, DIAG_OPTION_MISSING, span, "the name of `%s` does not tell its format",
                                file->lists[0].count > 0 ? file->lists[0].paths[0] : file->lists[0].name);
    diag_hint(diags, d, "say `format: json`, csv, msgpack or batches");
    return false;
}

static bool file_bind(struct source_bind *bind)
{
    struct file_source *file = bind->config;
    struct diag *d;
    if (bind->declared == NULL) {
        d = diag_error(bind->diags, DIAG_OPTION_MISSING, bind->span, "a file source needs a `schema:`");
        diag_hint(bind->diags, d, "for example `schema: { user_id: int, ts: time(ms) }`");
        return false;
    }
    bind->schema = bind->declared;
    bind->is_bounded = bind->is_replayable = true;
    if (!format_delimiter_check(file->delimiter, bind->diags, bind->span))
        return false;
    file->format_config = (struct format_config){.delimiter = file->delimiter.data[0],
                                                 .has_no_header = !file->has_header,
                                                 .may_lack = bind->may_lack,
                                                 .trims = file->trims};
    if (!choose_format(file, bind->diags, bind->span) ||
        (file->format_kind != NULL &&
         !format_schema_check(file->format_kind, bind->schema, bind->diags, bind->span)))
        return false;
    if (file->order_by.name.length == 0)
        return true;
    if (!column_resolve(&file->order_by, bind->schema, bind->arena, bind->diags))
        return false;
    enum type_tag tag = bind->schema->fields[file->order_by.index].type.tag;
    if (tag != TYPE_TIME && tag != TYPE_INT && tag != TYPE_FLOAT) {
        d = diag_error(bind->diags, DIAG_TYPE_CLASH, file->order_by.span,
                       "`order_by` takes a time or a number");
        diag_hint(bind->diags, d, "name a column of type time, int or float");
        return false;
    }
    return true;
}

/* Reads the partition's files once into a sorted copy, which is read instead of them. */
static bool sort_partition(struct source *source, uint32_t index)
{
    struct file_source *file = source->config;
    struct file_reader *reader = &file->readers[index];
    struct sort_request request = {
        .reader = reader,
        .column = (uint32_t)file->order_by.index,
        .directory = file->sort_dir.length == 0
                         ? temporary_root()
                         : arena_strndup(source->arena, file->sort_dir.data, file->sort_dir.length),
        .memory_bytes = file->sort_memory,
    };
    file->copied_files[index] = reader->facts[reader->list->count].before;
    bool is_good = sort_records(&request, &file->copies[index], source->arena);
    reader_close(reader);
    return is_good;
}

static bool file_open(struct source *source)
{
    struct file_source *file = source->config;
    if (!paths_expand(&file->path, source->arena, source->diags, source->span, &file->lists,
                      &file->partitions_count, &source->order_log))
        return false;
    pthread_mutex_init(&file->mutex, NULL);
    file->has_mutex = true;
    source->partitions_count = file->partitions_count;
    if (!choose_format_by_files(file, source->diags, source->span) ||
        !format_schema_check(file->format_kind, source->schema, source->diags, source->span))
        return false;
    file->readers = mem_calloc(file->partitions_count, sizeof(*file->readers));
    bool is_good = true, is_sorted = file->order_by.name.length > 0;
    if (is_sorted) {
        file->copies = mem_calloc(file->partitions_count, sizeof(*file->copies));
        file->copied_files = arena_array(source->arena, uint64_t, file->partitions_count);
    }
    for (uint32_t i = 0; i < file->partitions_count; i++) {
        struct file_reader *reader = &file->readers[i];
        *reader = (struct file_reader){.list = &file->lists[i],
                                       .format = file->format_kind,
                                       .config = &file->format_config,
                                       .schema = source->schema,
                                       .diags = source->diags,
                                       .span = source->span,
                                       .claims = source->claims,
                                       .mutex = &file->mutex};
        is_good &= reader_open(reader) && reader_check(reader);
        if (is_good && is_sorted)
            is_good = sort_partition(source, i);
    }
    return is_good;
}

static const char *file_partition_name(struct source *source, uint32_t partition)
{
    return ((struct file_source *)source->config)->lists[partition].name;
}

static bool file_seek(struct source *source, uint32_t partition, const struct source_position *position)
{
    struct file_source *file = source->config;
    return file->copies != NULL ? sorted_seek(&file->copies[partition], position)
                                : reader_seek(&file->readers[partition], position);
}

static enum read_status file_read(struct source *source, uint32_t partition, struct raw_batch *raw)
{
    struct file_source *file = source->config;
    return file->copies != NULL ? sorted_read(&file->copies[partition], raw)
                                : reader_read(&file->readers[partition], raw);
}

static void *file_decoder_new(struct source *source)
{
    struct file_source *file = source->config;
    /* The sorted copy holds rows of a block format as msgpack. */
    bool is_sorted = file->order_by.name.length > 0;
    return format_decoder_new(is_sorted ? sort_format(file->format_kind) : file->format_kind, source->schema,
                              &file->format_config);
}

static void file_decode(struct source *source LEAT_UNUSED, void *decoder, struct raw_batch *raw,
                        struct decode_output *output)
{
    format_decode(decoder, raw, output);
}

static void file_progress(struct source *source, struct source_progress *progress)
{
    struct file_source *file = source->config;
    *progress = (struct source_progress){.records_total = -1};
    for (uint32_t i = 0; i < file->partitions_count; i++) {
        const struct sorted_copy *copy = file->copies != NULL ? &file->copies[i] : NULL;
        progress->bytes_total += copy != NULL ? copy->bytes : file->readers[i].bytes_total;
        progress->bytes_done += copy != NULL ? sorted_done_bytes(copy) : reader_done_bytes(&file->readers[i]);
    }
}

static size_t file_mark(struct source *source, uint32_t partition, const struct source_position *position,
                        char out[SOURCE_MARK_BYTES])
{
    struct file_source *file = source->config;
    const struct file_reader *reader = &file->readers[partition];
    if (file->copies != NULL)
        return mark_make_copy(file->copied_files[partition], file->copies[partition].bytes, out);
    uint32_t at = (uint32_t)MIN(MAX(position->a, 0), reader->list->count);
    return mark_make(reader->list, reader->facts, at, out);
}

static bool file_mark_check(struct source *source, uint32_t partition, const struct source_position *position,
                            struct str mark)
{
    struct file_source *file = source->config;
    const struct file_reader *reader = &file->readers[partition];
    const struct mark_place place = {source->diags, source->span};
    if (file->copies != NULL)
        return mark_compare_copy(file->lists[partition].name, file->copied_files[partition],
                                 file->copies[partition].bytes, mark, &place);
    uint32_t at = (uint32_t)MIN(MAX(position->a, 0), (int64_t)UINT32_MAX);
    return mark_compare(reader->list, reader->facts, at, mark, &place);
}

static void file_close(struct source *source)
{
    struct file_source *file = source->config;
    for (uint32_t i = 0; file->readers != NULL && i < file->partitions_count; i++) {
        reader_close(&file->readers[i]);
        if (file->copies != NULL)
            sorted_close(&file->copies[i]);
    }
    free(file->readers);
    free(file->copies);
    if (file->has_mutex)
        pthread_mutex_destroy(&file->mutex);
    file->readers = NULL;
    file->copies = NULL;
    file->has_mutex = false;
}

const struct source_kind source_file = {
    .name = "file",
    .summary = "recorded events: files, globs of files, recordings",
    .example =
        "source clicks = file { path: \"rec/clicks-*.jsonl.zst\", schema: { user_id: int, ts: time(ms) }, "
        "event_time: ts }",
    .details =
        "Files may be compressed by gzip, zstd or lz4; zeros behind gzip data are ignored as padding. The "
        "files of one glob follow each other in order of name and are one partition; several globs in a list "
        "are several partitions, which are merged by time. A directory with a manifest.json is a recording "
        "and names its own partitions; where its manifest also names an `order_log`, as `leat run "
        "--record-order` writes it, rows are merged in that order (all sources of the job must have the same "
        "order log; `leat run --order` names another order log, or none). A record that does not fit the "
        "schema goes to dead letters; the records around it are not affected.",
    .options = file_options,
    .size = sizeof(struct file_source),
    .bind = file_bind,
    .open = file_open,
    .partition_name = file_partition_name,
    .seek = file_seek,
    .read = file_read,
    .decode = file_decode,
    .decoder_new = file_decoder_new,
    .decoder_free = format_decoder_free,
    .progress = file_progress,
    .mark = file_mark,
    .mark_check = file_mark_check,
    .close = file_close,
};
