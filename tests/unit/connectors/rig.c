#include "unit/connectors/rig.h"

#include "core/os.h"
#include "lang/lang.h"
#include "unit/formats/harness.h"

#include <dirent.h>
#include <lz4frame.h>
#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

/* Binds options in job-language text into a new struct of `size` bytes, in the arena; NULL
 * after diagnostics. */
static void *bind_options(struct arena *arena, struct diag_list *diags, const struct option *table,
                          size_t size, const char *text)
{
    struct option_env env = {arena, diags, lang_parse_value};
    struct ast *block = lang_parse_value(arena, diags, str_from(text));
    leat_assert(block != NULL && block->tag == AST_BLOCK);
    void *config = arena_calloc(arena, 1, size);
    if (!option_bind(table, "the kind", (struct span){0, 0}, block->entries, block->entries_count, config,
                     &env))
        return NULL;
    return config;
}

/* --- sources --- */

bool rig_source_bind(struct rig_source *rig, const struct source_kind *kind, const char *options,
                     const char *schema)
{
    *rig = (struct rig_source){.kind = kind};
    diag_list_init(&rig->diags, &rig->arena);
    void *config = bind_options(&rig->arena, &rig->diags, kind->options, kind->size, options);
    if (config == NULL)
        return false;
    struct source_bind bind = {.config = config,
                               .arena = &rig->arena,
                               .diags = &rig->diags,
                               .declared = schema == NULL ? NULL : harness_schema(&rig->arena, schema)};
    if (!kind->bind(&bind))
        return false;
    rig->is_bound = true;
    rig->source =
        (struct source){.config = config, .schema = bind.schema, .arena = &rig->arena, .diags = &rig->diags};
    return true;
}

bool rig_source_begin(struct rig_source *rig)
{
    rig->is_open = rig->kind->open(&rig->source);
    if (!rig->is_open)
        return false;
    rig->pool = batch_pool_new();
    if (rig->kind->decoder_new != NULL)
        rig->decoder = rig->kind->decoder_new(&rig->source);
    return true;
}

bool rig_source_open(struct rig_source *rig, const struct source_kind *kind, const char *options,
                     const char *schema)
{
    return rig_source_bind(rig, kind, options, schema) && rig_source_begin(rig);
}

void rig_source_close(struct rig_source *rig)
{
    if (rig->decoder != NULL)
        rig->kind->decoder_free(rig->decoder);
    if (rig->is_bound && rig->kind->close != NULL)
        rig->kind->close(&rig->source);
    batch_pool_free(rig->pool);
    arena_free(&rig->arena);
    *rig = (struct rig_source){0};
}

static char *decode(struct rig_source *rig, struct raw_batch *raw)
{
    struct byte_buffer out = {0};
    struct batch *batch = batch_new(rig->pool, rig->source.schema, raw->count);
    struct decode_output output = {.batch = batch};
    output.bad = arena_array(&batch->arena, struct bad_record, raw->count);
    rig->kind->decode(&rig->source, rig->decoder, raw, &output);
    harness_render(rig->source.schema, &output, &out);
    buffer_append(&out, "", 1);
    batch_release(batch);
    return out.data;
}

struct rig_reading rig_read(struct rig_source *rig, uint32_t partition)
{
    struct rig_reading reading = {0};
    struct raw_batch raw = {0};
    for (;;) {
        arena_reset(&raw.arena);
        reading.status = rig->kind->read(&rig->source, partition, &raw);
        if (reading.status != READ_BATCH)
            break;
        leat_assert(raw.count > 0 && raw.count <= BATCH_ROWS);
        reading.batches = realloc(reading.batches, (reading.count + 1) * sizeof(*reading.batches));
        leat_assert(reading.batches != NULL);
        reading.batches[reading.count++] = (struct rig_batch){.position = raw.position,
                                                              .next = raw.next,
                                                              .count = raw.count,
                                                              .first_line = raw.first_line,
                                                              .first_offset = raw.first_offset,
                                                              .text = decode(rig, &raw),
                                                              .path = strdup(raw.path)};
    }
    arena_free(&raw.arena);
    return reading;
}

void rig_reading_free(struct rig_reading *reading)
{
    for (size_t i = 0; i < reading->count; i++) {
        free(reading->batches[i].text);
        free(reading->batches[i].path);
    }
    free(reading->batches);
    *reading = (struct rig_reading){0};
}

char *rig_text(const struct rig_reading *reading)
{
    struct byte_buffer out = {0};
    for (size_t i = 0; i < reading->count; i++)
        buffer_append(&out, reading->batches[i].text, strlen(reading->batches[i].text));
    buffer_append(&out, "", 1);
    return out.data;
}

const char *rig_error(const struct diag_list *diags)
{
    const char *code = "";
    for (unsigned i = 0; i < diags->count; i++) {
        if (diags->items[i].severity != DIAG_ERROR)
            continue;
        leat_assert(code[0] == '\0');
        code = diag_code_name(diags->items[i].code);
    }
    return code;
}

const char *rig_message(struct rig_source *rig)
{
    const struct diag *d = &rig->diags.items[0];
    leat_assert(rig->diags.count > 0);
    return arena_printf(&rig->arena, "%s; %s; %s; in %s at %lld", d->message, d->hint == NULL ? "" : d->hint,
                        d->cause == NULL ? "" : d->cause, d->path == NULL ? "" : d->path,
                        (long long)d->offset);
}

/* --- checkpoints --- */

struct snapshot_writer {
    struct rig_checkpoint *checkpoint;
    snapshot_job *jobs[16];
    snapshot_done *dones[16];
    void *arguments[16];
    size_t jobs_count;
};

struct snapshot_reader {
    struct rig_checkpoint *checkpoint; /* being read now: the base first, then each delta */
    struct rig_checkpoint *last;       /* the one to restore */
};

bool snapshot_put(struct snapshot_writer *writer, uint32_t key_group, const void *data, size_t bytes)
{
    struct rig_checkpoint *checkpoint = writer->checkpoint;
    leat_assert(checkpoint->count < ARRAY_COUNT(checkpoint->records) && key_group == SNAPSHOT_GLOBAL);
    struct rig_record *record = &checkpoint->records[checkpoint->count++];
    record->data = malloc(bytes + 1);
    leat_assert(record->data != NULL);
    memcpy(record->data, data, bytes);
    record->bytes = bytes;
    return true;
}

void snapshot_defer(struct snapshot_writer *writer, snapshot_job *write, snapshot_done *done, void *argument)
{
    leat_assert(writer->jobs_count < ARRAY_COUNT(writer->jobs));
    writer->jobs[writer->jobs_count] = write;
    writer->dones[writer->jobs_count] = done;
    writer->arguments[writer->jobs_count++] = argument;
}

void snapshot_refuse(struct snapshot_writer *writer LEAT_UNUSED, const char *why LEAT_UNUSED)
{
}

bool snapshot_is_base(const struct snapshot_writer *writer)
{
    return writer->checkpoint->previous == NULL;
}

uint64_t snapshot_epoch(const struct snapshot_writer *writer)
{
    return writer->checkpoint->epoch;
}

bool snapshot_get(struct snapshot_reader *reader, uint32_t *key_group, struct str *data)
{
    struct rig_checkpoint *checkpoint = reader->checkpoint, *last = reader->last;
    while (checkpoint->next == checkpoint->count && checkpoint != last) {
        for (checkpoint = last; checkpoint->previous != reader->checkpoint;)
            checkpoint = checkpoint->previous;
        checkpoint->next = 0;
        reader->checkpoint = checkpoint;
    }
    if (checkpoint->next == checkpoint->count)
        return false;
    *key_group = SNAPSHOT_GLOBAL;
    *data =
        (struct str){checkpoint->records[checkpoint->next].data, checkpoint->records[checkpoint->next].bytes};
    checkpoint->next++;
    return true;
}

void snapshot_corrupt(struct snapshot_reader *reader, struct diag_list *diags, const char *what)
{
    reader->checkpoint->is_corrupt = true;
    diag_error(diags, DIAG_CHECKPOINT_DAMAGED, (struct span){0, 0}, "%s", what);
}

void rig_checkpoint_free(struct rig_checkpoint *checkpoint)
{
    for (size_t i = 0; i < checkpoint->count; i++)
        free(checkpoint->records[i].data);
    *checkpoint = (struct rig_checkpoint){0};
}

/* --- sinks --- */

struct claims *rig_claims;
const struct rig_life *rig_life;

/* Calls the sink's `begin`, as the engine does once every part of a run is open. */
static bool begin(struct rig_sink *rig)
{
    if (rig->kind->begin == NULL || rig->kind->begin(&rig->context))
        return true;
    diag_error(&rig->diags, rig->context.error_code, (struct span){0, 0}, "%s", rig->context.error);
    return false;
}

bool rig_sink_open(struct rig_sink *rig, const struct sink_kind *kind, const char *options,
                   const struct schema *input, bool has_checkpoints, struct rig_checkpoint *from)
{
    *rig = (struct rig_sink){.kind = kind};
    diag_list_init(&rig->diags, &rig->arena);
    void *config = bind_options(&rig->arena, &rig->diags, kind->options, kind->size, options);
    if (config == NULL)
        return false;
    struct sink_bind bind = {.config = config, .arena = &rig->arena, .diags = &rig->diags, .input = input};
    if (kind->bind != NULL && !kind->bind(&bind))
        return false;
    rig->context = (struct sink_context){.config = config,
                                         .input = input,
                                         .arena = &rig->arena,
                                         .diags = &rig->diags,
                                         .claims = rig_claims,
                                         .is_resumed = from != NULL,
                                         .has_checkpoints = has_checkpoints};
    if (rig_life != NULL) {
        rig->context.life = rig_life->life;
        rig->context.replaces_parts = rig_life->replaces_parts && from == NULL;
        rig->context.check = rig_life->check;
        rig->context.engine = rig_life->engine;
    }
    if (!kind->open(&rig->context))
        return false;
    if (from == NULL)
        return begin(rig);
    struct snapshot_reader reader = {from, from};
    while (reader.checkpoint->previous != NULL)
        reader.checkpoint = reader.checkpoint->previous;
    reader.checkpoint->next = 0;
    return kind->restore(&rig->context, &reader) && begin(rig);
}

bool rig_sink_snapshot(struct rig_sink *rig, uint64_t epoch, struct rig_checkpoint *checkpoint)
{
    return rig_sink_snapshot_on(rig, epoch, NULL, true, checkpoint);
}

bool rig_sink_snapshot_on(struct rig_sink *rig, uint64_t epoch, struct rig_checkpoint *previous,
                          bool is_published, struct rig_checkpoint *checkpoint)
{
    rig_checkpoint_free(checkpoint);
    checkpoint->epoch = epoch;
    checkpoint->previous = previous;
    struct snapshot_writer writer = {.checkpoint = checkpoint};
    bool is_good = rig->kind->snapshot(&rig->context, &writer);
    for (size_t i = 0; i < writer.jobs_count; i++)
        is_good = is_good && writer.jobs[i](writer.arguments[i], &writer);
    for (size_t i = 0; i < writer.jobs_count; i++)
        writer.dones[i](writer.arguments[i], is_good && is_published);
    return is_good;
}

void rig_sink_close(struct rig_sink *rig)
{
    if (rig->context.config != NULL && rig->kind->close != NULL)
        rig->kind->close(&rig->context);
    arena_free(&rig->arena);
    *rig = (struct rig_sink){0};
}

/* --- files --- */

void rig_write_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    leat_assert(file != NULL && (bytes == 0 || fwrite(data, 1, bytes, file) == bytes));
    leat_assert(fclose(file) == 0);
}

char *rig_read_file(const char *path, size_t *bytes)
{
    char *data = NULL;
    return os_read_file(path, (size_t)1 << 30, &data, bytes) == 0 ? data : NULL;
}

char *rig_compress(const char *kind, const void *data, size_t bytes, size_t *packed)
{
    size_t room = bytes + bytes / 8 + (1 << 16);
    char *out = malloc(room);
    leat_assert(out != NULL);
    if (strcmp(kind, ".gz") == 0) {
        z_stream stream = {0};
        leat_assert(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
        stream.next_in = (Bytef *)data;
        stream.avail_in = (uInt)bytes;
        stream.next_out = (Bytef *)out;
        stream.avail_out = (uInt)room;
        leat_assert(deflate(&stream, Z_FINISH) == Z_STREAM_END);
        *packed = stream.total_out;
        deflateEnd(&stream);
    } else if (strcmp(kind, ".zst") == 0) {
        ZSTD_CCtx *context = ZSTD_createCCtx();
        ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
        *packed = ZSTD_compress2(context, out, room, data, bytes);
        leat_assert(!ZSTD_isError(*packed));
        ZSTD_freeCCtx(context);
    } else {
        LZ4F_preferences_t preferences = {.frameInfo = {.contentChecksumFlag = LZ4F_contentChecksumEnabled}};
        *packed = LZ4F_compressFrame(out, room, data, bytes, &preferences);
        leat_assert(!LZ4F_isError(*packed));
    }
    return out;
}

static int compare_names(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

char *rig_list(const char *directory)
{
    struct dirent **entries;
    struct byte_buffer out = {0};
    int count = scandir(directory, &entries, NULL, compare_names);
    for (int i = 0; i < count; i++) {
        if (entries[i]->d_name[0] != '.')
            buffer_printf(&out, "%s%s", out.length > 0 ? " " : "", entries[i]->d_name);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    buffer_append(&out, "", 1);
    return out.data;
}
