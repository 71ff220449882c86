/* Writing a checkpoint: each part collects its records in pieces, one for each run of records of a key group; the writer thread
 * appends the pieces to state.bin. */
#include "state/block_file.h"
#include "state/checkpoint_files.h"

#include "core/key.h"
#include "core/mem.h"
#include "core/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    PIECE_TARGET = 1 << 20,
    /* A piece with fewer bytes takes in the records of the next group, too: a row of the MANIFEST has 40 bytes. Of a large
     * state.bin a piece has at least this share, so that the MANIFEST stays within its bounds. */
    PIECE_LEAST = 4 << 10,
    PIECE_LEAST_SHIFT = 16,
    PART_NAME_MAX = 128
};

struct deferred {
    snapshot_job *write;
    snapshot_done *done;
    void *argument;
};

/* One part of a checkpoint. Until checkpoint_write the part belongs to the thread that calls snapshot_put,
 * from then on to the writer thread. */
struct snapshot_writer {
    struct checkpoint_writer *checkpoint;
    struct snapshot_writer *next;
    char name[PART_NAME_MAX];
    uint32_t index;
    struct byte_buffer buffer; /* records that are not in state.bin yet; empty while streaming */
    struct byte_buffer pieces; /* a struct manifest_piece per closed piece in `buffer`; offset: in `buffer` */
    struct manifest_piece open; /* the piece that records are added to; bytes 0: none */
    struct deferred *deferred;
    uint32_t deferred_count;
    const char *refusal;   /* set by snapshot_refuse: why the part cannot be written; NULL: not refused */
    uint64_t memory_epoch; /* of a part in memory, whose checkpoint is NULL */
    bool is_streaming;     /* the writer thread runs the part's jobs: records go directly into state.bin */
};

struct checkpoint_writer {
    struct checkpoint_dir *dir;
    struct checkpoint_info info;
    char *path, *temporary;
    pthread_mutex_t mutex; /* guards the list of parts */
    struct snapshot_writer *first, *last;
    uint32_t parts_count;
    struct block_file state;
    int error;
    const char *error_step;
    bool is_refused; /* error_step is a part's refusal; the errno in `error` is not shown */
    struct byte_buffer pieces, piece_digests; /* a struct manifest_piece, and DIGEST_BYTES, for each */
    struct manifest_file *files;
    uint32_t files_count;
    uint64_t written_bytes;
};

static const char held_step[] = "another process has taken over the directory";

/* --- Parts --- */

uint64_t snapshot_epoch(const struct snapshot_writer *writer)
{
    return writer->checkpoint == NULL ? writer->memory_epoch : writer->checkpoint->info.id.epoch;
}

bool snapshot_is_base(const struct snapshot_writer *writer)
{
    return writer->checkpoint == NULL || writer->checkpoint->info.previous.generation == 0;
}

void snapshot_defer(struct snapshot_writer *writer, snapshot_job *write, snapshot_done *done, void *argument)
{
    leat_assert(!writer->is_streaming);
    writer->deferred =
        mem_realloc(writer->deferred, (writer->deferred_count + 1) * sizeof(*writer->deferred));
    writer->deferred[writer->deferred_count++] = (struct deferred){write, done, argument};
}

void snapshot_refuse(struct snapshot_writer *writer, const char *why)
{
    writer->refusal = why;
}

struct snapshot_writer *checkpoint_part(struct checkpoint_writer *checkpoint, const char *name)
{
    struct snapshot_writer *part = mem_calloc(1, sizeof(*part));
    leat_assert(strlen(name) < sizeof(part->name));
    part->checkpoint = checkpoint;
    strcpy(part->name, name);
    pthread_mutex_lock(&checkpoint->mutex);
    if (checkpoint->last == NULL)
        checkpoint->first = part;
    else
        checkpoint->last->next = part;
    checkpoint->last = part;
    part->index = checkpoint->parts_count++;
    pthread_mutex_unlock(&checkpoint->mutex);
    return part;
}

/* --- state.bin --- */

static void fail(struct checkpoint_writer *checkpoint, int error, const char *step)
{
    if (error == 0 || checkpoint->error != 0)
        return;
    checkpoint->error = error;
    checkpoint->error_step = step;
}

static void fail_part(struct checkpoint_writer *checkpoint, const struct snapshot_writer *part)
{
    checkpoint->is_refused = checkpoint->error == 0 && part->refusal != NULL;
    fail(checkpoint, EIO, part->refusal != NULL ? part->refusal : part->name);
}

static void write_state(struct checkpoint_writer *checkpoint, const void *data, size_t bytes)
{
    if (checkpoint->error == 0)
        fail(checkpoint, block_file_append(&checkpoint->state, data, bytes), "writing state.bin");
}

/* The piece's bytes are the last of state.bin. */
static void add_piece(struct checkpoint_writer *checkpoint, const struct manifest_piece *piece)
{
    uint8_t digest[DIGEST_BYTES];
    if (checkpoint->error != 0)
        return;
    block_file_end_span(&checkpoint->state, digest);
    buffer_append(&checkpoint->pieces, piece, sizeof(*piece));
    buffer_append(&checkpoint->piece_digests, digest, sizeof(digest));
}

static void close_piece(struct snapshot_writer *part)
{
    if (part->open.bytes == 0)
        return;
    part->open.part = part->index;
    if (part->is_streaming)
        add_piece(part->checkpoint, &part->open);
    else
        buffer_append(&part->pieces, &part->open, sizeof(part->open));
    part->open = (struct manifest_piece){0};
}

/* Whether a record of the group belongs into another piece than the open one: a piece has one group, unless it would be too
 * small. */
static bool begins_piece(const struct snapshot_writer *part, uint32_t key_group)
{
    uint64_t before = part->is_streaming ? part->checkpoint->state.bytes : 0;
    return part->open.bytes >= MAX((uint64_t)PIECE_LEAST, before >> PIECE_LEAST_SHIFT) &&
           (key_group != part->open.group_max || part->open.group_min != part->open.group_max);
}

/* Writes the records that the part has collected in memory to state.bin; later records go to state.bin
 * directly. Writer thread. */
static void begin_streaming(struct snapshot_writer *part)
{
    struct checkpoint_writer *checkpoint = part->checkpoint;
    close_piece(part);
    for (size_t at = 0; at < part->pieces.length; at += sizeof(struct manifest_piece)) {
        struct manifest_piece piece;
        memcpy(&piece, part->pieces.data + at, sizeof(piece));
        const char *data = part->buffer.data + piece.offset;
        piece.offset = checkpoint->state.bytes;
        write_state(checkpoint, data, piece.bytes);
        add_piece(checkpoint, &piece);
    }
    buffer_free(&part->buffer);
    buffer_free(&part->pieces);
    part->is_streaming = true;
}

bool snapshot_put(struct snapshot_writer *part, uint32_t key_group, const void *data, size_t bytes)
{
    leat_assert(bytes <= CHECKPOINT_RECORD_MAX && (key_group < KEY_GROUPS || key_group == SNAPSHOT_GLOBAL));
    struct checkpoint_writer *checkpoint = part->checkpoint;
    if (part->is_streaming && checkpoint->error != 0)
        return false;
    if (begins_piece(part, key_group))
        close_piece(part);
    if (part->open.bytes == 0) {
        part->open.offset = part->is_streaming ? checkpoint->state.bytes : part->buffer.length;
        part->open.group_min = part->open.group_max = key_group;
    }
    uint32_t head[2] = {key_group, (uint32_t)bytes};
    if (part->is_streaming) {
        write_state(checkpoint, head, sizeof(head));
        write_state(checkpoint, data, bytes);
    } else {
        buffer_append(&part->buffer, head, sizeof(head));
        buffer_append(&part->buffer, data, bytes);
    }
    part->open.bytes += (uint32_t)(sizeof(head) + bytes);
    part->open.group_min = MIN(part->open.group_min, key_group);
    part->open.group_max = MAX(part->open.group_max, key_group);
    if (part->open.bytes >= PIECE_TARGET)
        close_piece(part);
    return !part->is_streaming || checkpoint->error == 0;
}

/* --- A part in memory --- */

struct snapshot_writer *snapshot_memory_begin(uint64_t epoch)
{
    struct snapshot_writer *part = mem_calloc(1, sizeof(*part));
    part->memory_epoch = epoch;
    return part;
}

bool snapshot_memory_end(struct snapshot_writer *part, struct byte_buffer *records)
{
    bool is_good = true;
    for (uint32_t i = 0; i < part->deferred_count; i++)
        is_good &= part->deferred[i].write(part->deferred[i].argument, part);
    for (uint32_t i = 0; i < part->deferred_count; i++)
        part->deferred[i].done(part->deferred[i].argument, false);
    *records = part->buffer;
    buffer_free(&part->pieces);
    free(part->deferred);
    free(part);
    return is_good;
}

/* --- One checkpoint --- */

bool checkpoint_wants_base(const struct checkpoint_dir *dir)
{
    return dir->last.generation == 0 || dir->chain >= CHECKPOINT_CHAIN_MAX ||
           (dir->chain > 2 && dir->delta_bytes > dir->base_bytes * 2);
}

static bool report(struct checkpoint_writer *checkpoint, struct diag_list *diags)
{
    if (checkpoint->error == 0)
        return true;
    struct diag *diag =
        diag_error(diags, DIAG_CHECKPOINT_FAILED, (struct span){0, 0}, "checkpoint %llu failed: %s",
                   (unsigned long long)checkpoint->info.id.epoch, checkpoint->error_step);
    if (checkpoint->is_refused)
        return false;
    diag_errno(diags, diag, checkpoint->error);
    diag_at(diags, diag, checkpoint->temporary, -1, -1);
    if (checkpoint->error == ENOSPC || checkpoint->error == EDQUOT)
        diag_hint(diags, diag,
                  "free some disk space: the job continues, and the next checkpoint will include the changes "
                  "of this checkpoint");
    return false;
}

static void free_writer(struct checkpoint_writer *checkpoint)
{
    while (checkpoint->first != NULL) {
        struct snapshot_writer *part = checkpoint->first;
        checkpoint->first = part->next;
        buffer_free(&part->buffer);
        buffer_free(&part->pieces);
        free(part->deferred);
        free(part);
    }
    for (uint32_t i = 0; i < checkpoint->files_count; i++) {
        free((char *)(uintptr_t)checkpoint->files[i].path.data);
        free((uint8_t *)(uintptr_t)checkpoint->files[i].digests);
    }
    block_file_close(&checkpoint->state);
    buffer_free(&checkpoint->pieces);
    buffer_free(&checkpoint->piece_digests);
    pthread_mutex_destroy(&checkpoint->mutex);
    free(checkpoint->files);
    free(checkpoint->path);
    free(checkpoint->temporary);
    free(checkpoint);
}

struct checkpoint_writer *checkpoint_begin(struct checkpoint_dir *dir, uint64_t epoch, bool is_base,
                                           struct diag_list *diags)
{
    leat_assert(dir->generation.generation != 0 && (is_base || dir->last.generation != 0));
    struct checkpoint_writer *checkpoint = mem_calloc(1, sizeof(*checkpoint));
    checkpoint->dir = dir;
    checkpoint->info.id = (struct checkpoint_id){dir->generation.generation, epoch};
    if (!is_base)
        checkpoint->info.previous = dir->last;
    pthread_mutex_init(&checkpoint->mutex, NULL);
    char path[PATH_BYTES];
    path_checkpoint(dir, checkpoint->info.id, path);
    fail(checkpoint, checkpoint_dir_check(dir), held_step);
    checkpoint->path = mem_strdup(path);
    checkpoint->temporary = mem_printf("%s.tmp", path);
    snprintf(path + strlen(path), sizeof(path) - strlen(path), ".tmp/state.bin");
    if (checkpoint->error == 0)
        fail(checkpoint, os_remove_tree(checkpoint->temporary),
             "removing the directory of an earlier attempt");
    if (checkpoint->error == 0)
        fail(checkpoint, os_mkdirs(checkpoint->temporary), "creating the checkpoint's directory");
    if (checkpoint->error == 0)
        fail(checkpoint, block_file_create(&checkpoint->state, path), "creating state.bin");
    if (checkpoint->error == 0)
        block_file_begin_spans(&checkpoint->state);
    if (!report(checkpoint, diags)) {
        free_writer(checkpoint);
        return NULL;
    }
    return checkpoint;
}

void checkpoint_writer_database(const struct checkpoint_writer *checkpoint, uint32_t number, char *path)
{
    char name[DATABASE_NAME_BYTES];
    database_name(number, name);
    snprintf(path, PATH_BYTES, "%s/%s", checkpoint->temporary, name);
}

uint64_t checkpoint_written_bytes(const struct checkpoint_writer *checkpoint)
{
    return checkpoint->written_bytes;
}

static void add_file(struct checkpoint_writer *checkpoint, const char *name, uint64_t bytes, uint8_t *digests)
{
    checkpoint->files =
        mem_realloc(checkpoint->files, (checkpoint->files_count + 1) * sizeof(*checkpoint->files));
    char *copy = mem_strdup(name);
    checkpoint->files[checkpoint->files_count++] = (struct manifest_file){str_from(copy), bytes, digests};
}

/* --- The database's files --- */

static bool is_table_file(const char *name)
{
    size_t length = strlen(name);
    return length > 4 && strcmp(name + length - 4, ".sst") == 0;
}

/* The digests of a database file that the previous checkpoint has, too; NULL: compute them. Only table files
 * (.sst) are never changed by the database. */
static const struct known_digest *known_digest(const struct checkpoint_dir *dir, const char *name,
                                               int64_t bytes)
{
    for (uint32_t i = 0; i < dir->known_count && is_table_file(name); i++)
        if (strcmp(dir->known[i].name, name) == 0 && dir->known[i].bytes == (uint64_t)bytes)
            return &dir->known[i];
    return NULL;
}

/* For a base checkpoint: replaces a file of the database by a copy, so that the checkpoint shares no inode
 * with earlier ones. */
static int separate(const char *path, uint64_t *bytes, uint8_t **digests)
{
    char copy[PATH_BYTES + 8];
    snprintf(copy, sizeof(copy), "%s.copy", path);
    int error = block_file_copy(path, copy, bytes, digests);
    return error == 0 ? os_rename(copy, path, NULL) : error;
}

static void add_database_file(struct checkpoint_writer *checkpoint, const char *database, const char *name)
{
    char path[PATH_BYTES], relative[NAME_MAX + DATABASE_NAME_BYTES + 1];
    snprintf(relative, sizeof(relative), "%s/%s", database, name);
    snprintf(path, sizeof(path), "%.*s/%s", PATH_BYTES - (int)sizeof(relative) - 1, checkpoint->temporary,
             relative);
    const struct checkpoint_dir *dir = checkpoint->dir;
    bool is_shared = dir->last.generation == 0 && dir->known_count > 0;
    bool is_copied = checkpoint->info.previous.generation == 0 && !is_shared;
    const struct known_digest *known = is_copied ? NULL : known_digest(dir, relative, os_file_bytes(path));
    uint64_t bytes = 0;
    uint8_t *digests = NULL;
    if (known != NULL) {
        size_t length = digest_count(known->bytes) * DIGEST_BYTES;
        digests = mem_alloc(MAX(length, 1));
        memcpy(digests, known->digests, length);
        add_file(checkpoint, relative, known->bytes, digests);
        return;
    }
    if (is_copied)
        fail(checkpoint, separate(path, &bytes, &digests), "copying a file of the database");
    else
        fail(checkpoint, digest_file(path, &bytes, &digests), "reading a file of the database");
    checkpoint->written_bytes += bytes;
    add_file(checkpoint, relative, bytes, digests);
}

static int by_name(const void *a, const void *b)
{
    const struct manifest_file *x = a, *y = b;
    return str_compare(x->path, y->path);
}

/* A store that has no database yet left no directory. */
static void add_database(struct checkpoint_writer *checkpoint, uint32_t number)
{
    uint32_t first = checkpoint->files_count;
    char path[PATH_BYTES], name[DATABASE_NAME_BYTES];
    database_name(number, name);
    checkpoint_writer_database(checkpoint, number, path);
    DIR *stream = opendir(path);
    if (stream == NULL && errno == ENOENT)
        return;
    checkpoint->info.databases = number + 1;
    if (stream == NULL) {
        fail(checkpoint, errno, "reading the database's checkpoint");
        return;
    }
    for (struct dirent *entry; checkpoint->error == 0 && (entry = readdir(stream)) != NULL;)
        if (entry->d_name[0] != '.')
            add_database_file(checkpoint, name, entry->d_name);
    closedir(stream);
    qsort(checkpoint->files + first, checkpoint->files_count - first, sizeof(*checkpoint->files), by_name);
    if (checkpoint->error == 0)
        fail(checkpoint, os_fsync_directory(path, "ckpt.fsync_directory"), "fsync of the database");
}

bool checkpoint_write(struct checkpoint_writer *checkpoint, uint32_t databases, struct diag_list *diags)
{
    for (struct snapshot_writer *part = checkpoint->first; part != NULL; part = part->next) {
        begin_streaming(part);
        for (uint32_t i = 0; i < part->deferred_count && checkpoint->error == 0; i++)
            if (part->deferred[i].write != NULL && !part->deferred[i].write(part->deferred[i].argument, part))
                fail_part(checkpoint, part);
        close_piece(part);
    }
    if (checkpoint->error == 0)
        fail(checkpoint, block_file_end(&checkpoint->state), "writing state.bin");
    add_file(checkpoint, "state.bin", checkpoint->state.bytes, block_file_take_digests(&checkpoint->state));
    checkpoint->written_bytes += checkpoint->state.bytes;
    for (uint32_t i = 0; i < databases && checkpoint->error == 0; i++)
        add_database(checkpoint, i);
    return report(checkpoint, diags);
}

bool checkpoint_write_order(struct checkpoint_writer *checkpoint, struct str segment, struct diag_list *diags)
{
    char path[PATH_BYTES];
    uint64_t bytes = 0;
    uint8_t *digests = NULL;
    snprintf(path, sizeof(path), "%s/order.log", checkpoint->temporary);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    fail(checkpoint, fd < 0 ? errno : os_write_all(fd, segment.data, segment.length, "ckpt.order"),
         "writing the order log");
    if (checkpoint->error == 0)
        fail(checkpoint, os_fsync(fd, "ckpt.fsync"), "fsync of the order log");
    if (fd >= 0)
        close(fd);
    if (checkpoint->error == 0)
        fail(checkpoint, digest_file(path, &bytes, &digests), "reading the order log");
    if (checkpoint->error == 0)
        add_file(checkpoint, "order.log", bytes, digests);
    checkpoint->written_bytes += bytes;
    return report(checkpoint, diags);
}

/* --- Publishing --- */

static void tell_parts(struct checkpoint_writer *checkpoint, bool is_published)
{
    for (struct snapshot_writer *part = checkpoint->first; part != NULL; part = part->next)
        for (uint32_t i = 0; i < part->deferred_count; i++)
            if (part->deferred[i].done != NULL)
                part->deferred[i].done(part->deferred[i].argument, is_published);
}

static void write_manifest(struct checkpoint_writer *checkpoint)
{
    struct manifest manifest = {.info = checkpoint->info,
                                .groups = checkpoint->dir->groups,
                                .files = checkpoint->files,
                                .files_count = checkpoint->files_count,
                                .parts_count = checkpoint->parts_count,
                                .pieces = checkpoint->pieces.data,
                                .pieces_count = checkpoint->pieces.length / sizeof(struct manifest_piece),
                                .piece_digests = (const uint8_t *)checkpoint->piece_digests.data};
    manifest.parts = mem_alloc(MAX(checkpoint->parts_count, 1) * sizeof(*manifest.parts));
    for (struct snapshot_writer *part = checkpoint->first; part != NULL; part = part->next)
        manifest.parts[part->index] = str_from(part->name);
    struct byte_buffer text = {0};
    manifest_encode(&manifest, &text);
    free(manifest.parts);
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/MANIFEST", checkpoint->temporary);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    fail(checkpoint, fd < 0 ? errno : os_write_all(fd, text.data, text.length, "ckpt.manifest"),
         "writing the MANIFEST");
    if (checkpoint->error == 0)
        fail(checkpoint, os_fsync(fd, "ckpt.fsync"), "fsync of the MANIFEST");
    if (fd >= 0)
        close(fd);
    checkpoint->written_bytes += text.length;
    buffer_free(&text);
}

/* Makes the written files durable, and renames their directory: from then on a resume finds the checkpoint.
 * After an error the remaining steps are left out. */
static void make_durable(struct checkpoint_writer *checkpoint)
{
    char generation[PATH_BYTES];
    path_generation(checkpoint->dir, checkpoint->info.id.generation, generation);
    if (checkpoint->error == 0)
        fail(checkpoint, os_fsync(checkpoint->state.fd, "ckpt.fsync"), "fsync of state.bin");
    if (checkpoint->error == 0)
        write_manifest(checkpoint);
    if (checkpoint->error == 0)
        fail(checkpoint, os_fsync_directory(checkpoint->temporary, "ckpt.fsync_directory"),
             "fsync of the checkpoint's directory");
    if (checkpoint->error == 0)
        fail(checkpoint, failpoint("ckpt.pre_rename"), "before the rename");
    if (checkpoint->error == 0)
        fail(checkpoint, checkpoint_dir_check(checkpoint->dir), held_step);
    if (checkpoint->error == 0 && checkpoint->dir->awaits_head) /* durable with the rename */
        fail(checkpoint, part_doubt(checkpoint->dir, checkpoint->info.id), "noting that no head names it");
    if (checkpoint->error != 0)
        return;
    fail(checkpoint, os_rename(checkpoint->temporary, checkpoint->path, "ckpt.rename"), "rename");
    if (checkpoint->error != 0)
        return;
    fail(checkpoint, failpoint("ckpt.post_rename"), "after the rename");
    if (checkpoint->error == 0)
        fail(checkpoint, os_fsync_directory(generation, "ckpt.fsync_parent"),
             "fsync of the generation's directory");
    /* The checkpoint is reported as failed, so it is renamed back and no resume finds it; unless another
     * process has taken over the directory, because that process may have resumed from it already. */
    if (checkpoint->error != 0 && checkpoint_dir_check(checkpoint->dir) == 0)
        (void)os_rename(checkpoint->path, checkpoint->temporary, NULL);
}

/* After publishing: stores in the checkpoint_dir the checkpoint's id, the sizes of base and deltas, and the
 * digests of the files of all databases, for the next checkpoint. */
static void remember(struct checkpoint_writer *checkpoint)
{
    struct checkpoint_dir *dir = checkpoint->dir;
    bool is_base = checkpoint->info.previous.generation == 0;
    bool is_shared = dir->last.generation == 0 && dir->known_count > 0;
    dir->last = checkpoint->info.id;
    dir->chain = is_shared ? CHECKPOINT_CHAIN_MAX / 2 : is_base ? 1 : dir->chain + 1;
    if (is_base) {
        dir->base_bytes = checkpoint->state.bytes;
        dir->delta_bytes = 0;
    } else {
        dir->delta_bytes += checkpoint->state.bytes;
    }
    for (uint32_t i = 0; i < dir->known_count; i++) {
        free(dir->known[i].name);
        free(dir->known[i].digests);
    }
    dir->known = mem_realloc(dir->known, MAX(checkpoint->files_count, 1) * sizeof(*dir->known));
    dir->known_count = 0;
    for (uint32_t i = 0; i < checkpoint->files_count; i++) {
        struct manifest_file *file = &checkpoint->files[i];
        if (!is_database_file(file->path))
            continue;
        dir->known[dir->known_count++] = (struct known_digest){
            (char *)(uintptr_t)file->path.data, file->bytes, (uint8_t *)(uintptr_t)file->digests};
        file->path.data = NULL;
        file->digests = NULL;
    }
}

bool checkpoint_publish(struct checkpoint_writer *checkpoint, const struct checkpoint_info *info,
                        struct diag_list *diags)
{
    struct checkpoint_dir *dir = checkpoint->dir;
    checkpoint->info.format = CHECKPOINT_FORMAT;
    checkpoint->info.fingerprint = dir->fingerprint;
    checkpoint->info.profile = dir->profile;
    checkpoint->info.run = dir->generation.run;
    checkpoint->info.sources = info->sources;
    checkpoint->info.notes = info->notes;
    checkpoint->info.created_us = info->created_us != 0 ? info->created_us : os_wall_us();
    make_durable(checkpoint);
    bool is_published = report(checkpoint, diags);
    if (!is_published) {
        checkpoint_abandon(checkpoint);
        return false;
    }
    remember(checkpoint);
    tell_parts(checkpoint, true);
    (void)failpoint("ckpt.published"); /* for tests; the checkpoint is published, a failure is ignored */
    free_writer(checkpoint);
    return true;
}

void checkpoint_abandon(struct checkpoint_writer *checkpoint)
{
    tell_parts(checkpoint, false);
    (void)os_remove_tree(checkpoint->temporary); /* if this fails, the next start removes the directory */
    free_writer(checkpoint);
}
