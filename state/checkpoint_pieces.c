/* Reading what state.bin has: the records of some parts and key groups, in runs of pieces; and all pieces, to verify them. The bytes
 * are data from outside: everything is checked. */
#include "state/checkpoint_files.h"

#include "core/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* --- Records --- */

struct snapshot_reader {
    struct checkpoint *first;      /* of the parts */
    struct checkpoint *checkpoint; /* the part of the link; NULL: `data` has all there is */
    struct diag_list *diags;
    char *prefix;
    const struct group_set *groups; /* NULL: all */
    uint32_t link;                  /* index in the chain */
    uint64_t next_piece;
    int fd;
    char *memory; /* holds a run of pieces, with room for whole blocks of the disk */
    char *data;   /* the run, in `memory` */
    size_t capacity, length, at;
    uint64_t run_offset;
    size_t record_at; /* offset of the last record in the run */
    bool is_failed;
};

static void state_path(const struct snapshot_reader *reader, char *path)
{
    /* When all records were read, `link` is the chain's length: the path is then that of the last link. */
    uint32_t last = MIN(reader->link, reader->checkpoint->count - 1);
    path_checkpoint(reader->checkpoint->dir, reader->checkpoint->chain[last].info.id, path);
    strcat(path, "/state.bin");
}

void snapshot_corrupt(struct snapshot_reader *reader, struct diag_list *diags, const char *what)
{
    char path[PATH_BYTES];
    if (reader == NULL || reader->checkpoint == NULL) { /* a record on its way between instances */
        diag_error(diags, DIAG_STATE_FAILED, (struct span){0}, "%s", what);
        if (reader != NULL)
            reader->is_failed = true;
        return;
    }
    state_path(reader, path);
    checkpoint_damaged(path, (int64_t)(reader->run_offset + reader->record_at), false, diags, what);
    reader->is_failed = true;
}

/* Goes on with the next link, in the order of epochs over the chains of all parts: of a key group that has moved, its giver's last link
 * has an earlier epoch than the first one of the worker that took it, which has all of it. */
static void next_link(struct snapshot_reader *reader)
{
    const struct checkpoint *now = reader->checkpoint;
    uint64_t epoch = now == NULL ? 0 : now->chain[reader->link].info.id.epoch;
    struct checkpoint *next = NULL;
    uint32_t next_link = 0;
    bool is_behind = now == NULL; /* the part comes after the link's own, at the same epoch */
    for (struct checkpoint *part = reader->first; part != NULL; part = part->next) {
        uint32_t link = 0;
        while (link < part->count && part->chain[link].info.id.epoch < epoch + !is_behind)
            link++;
        is_behind |= part == now;
        if (link == part->count ||
            (next != NULL && next->chain[next_link].info.id.epoch <= part->chain[link].info.id.epoch))
            continue;
        next = part;
        next_link = link;
    }
    if (reader->fd >= 0)
        close(reader->fd);
    reader->fd = -1;
    reader->next_piece = 0;
    reader->link = next != NULL ? next_link : now->count;
    reader->checkpoint = next != NULL ? next : reader->checkpoint;
}

struct snapshot_reader *checkpoint_reader(struct checkpoint *checkpoint, const char *prefix,
                                          const struct group_set *groups, struct diag_list *diags)
{
    struct snapshot_reader *reader = mem_calloc(1, sizeof(*reader));
    *reader = (struct snapshot_reader){
        .first = checkpoint, .diags = diags, .prefix = mem_strdup(prefix), .groups = groups, .fd = -1};
    next_link(reader);
    return reader;
}

struct snapshot_reader *snapshot_memory_reader(struct str records)
{
    struct snapshot_reader *reader = mem_calloc(1, sizeof(*reader));
    *reader =
        (struct snapshot_reader){.data = (char *)(uintptr_t)records.data, .length = records.length, .fd = -1};
    return reader;
}

bool checkpoint_reader_close(struct snapshot_reader *reader)
{
    bool is_good = !reader->is_failed;
    if (reader->fd >= 0)
        close(reader->fd);
    free(reader->prefix);
    free(reader->memory);
    free(reader);
    return is_good;
}

bool piece_has(const struct manifest_piece *piece, const struct group_set *groups)
{
    return piece->group_max >= KEY_GROUPS || group_set_next(groups, piece->group_min) <= piece->group_max;
}

/* Whether the piece may have records for this reader. */
static bool is_wanted(const struct snapshot_reader *reader, const struct manifest *manifest,
                      const struct manifest_piece *piece)
{
    struct str name = manifest->parts[piece->part];
    size_t length = strlen(reader->prefix);
    return name.length >= length && memcmp(name.data, reader->prefix, length) == 0 &&
           piece_has(piece, reader->groups);
}

/* Reads bytes of state.bin. False after E0702. */
static bool load(struct snapshot_reader *reader, uint64_t offset, uint32_t bytes)
{
    char path[PATH_BYTES];
    state_path(reader, path);
    reader->record_at = 0;
    reader->run_offset = offset;
    if (reader->fd < 0)
        reader->fd = uncached_open(path);
    if (reader->capacity < bytes) {
        reader->capacity = MAX(bytes, CHECKPOINT_CHUNK_BYTES);
        free(reader->memory);
        reader->memory = uncached_memory(reader->capacity);
    }
    int error =
        reader->fd < 0 ? errno : uncached_read(reader->fd, reader->memory, bytes, offset, &reader->data);
    if (error != 0) {
        snapshot_corrupt(reader, reader->diags, "state.bin ends inside a piece");
        return false;
    }
    reader->length = bytes;
    reader->at = 0;
    return true;
}

/* Compares a piece with its digest. False after E0702. */
static bool verify_piece(const struct manifest *manifest, uint64_t index, const char *data, const char *path,
                         struct diag_list *diags)
{
    struct manifest_piece piece = manifest_piece(manifest, index);
    uint8_t digest[DIGEST_BYTES];
    digest_of(data, piece.bytes, digest);
    if (memcmp(digest, manifest->piece_digests + index * DIGEST_BYTES, DIGEST_BYTES) == 0)
        return true;
    checkpoint_damaged(path, (int64_t)piece.offset, false, diags,
                       "the piece at this offset does not match its digest");
    return false;
}

/* Verifies the pieces from `first` on that were loaded. False after E0702. Of a manifest without digests of pieces checkpoint_join has
 * verified all files. */
static bool verify_run(struct snapshot_reader *reader, const struct manifest *manifest, uint64_t first)
{
    char path[PATH_BYTES];
    size_t at = 0;
    if (manifest->piece_digests == NULL)
        return true;
    state_path(reader, path);
    for (uint64_t i = first; i < reader->next_piece && !reader->is_failed; i++) {
        reader->is_failed = !verify_piece(manifest, i, reader->data + at, path, reader->diags);
        at += manifest_piece(manifest, i).bytes;
    }
    return !reader->is_failed;
}

/* Loads the next run of pieces that may have records for this reader and lie one behind another, over the whole chain: a MiB, or
 * one piece that is larger. False: end or error. */
static bool next_run(struct snapshot_reader *reader)
{
    for (; reader->checkpoint != NULL && reader->link < reader->checkpoint->count; next_link(reader)) {
        const struct manifest *manifest = &reader->checkpoint->chain[reader->link];
        uint64_t offset = 0, first = 0;
        uint32_t bytes = 0;
        for (; reader->next_piece < manifest->pieces_count; reader->next_piece++) {
            struct manifest_piece piece = manifest_piece(manifest, reader->next_piece);
            bool is_next = is_wanted(reader, manifest, &piece);
            if (bytes > 0 && (!is_next || piece.offset != offset + bytes ||
                              bytes + (uint64_t)piece.bytes > CHECKPOINT_CHUNK_BYTES))
                break;
            if (bytes == 0) {
                offset = piece.offset;
                first = reader->next_piece;
            }
            if (is_next)
                bytes += piece.bytes;
        }
        if (bytes > 0)
            return load(reader, offset, bytes) &&
                   (!reader->checkpoint->is_part || verify_run(reader, manifest, first));
    }
    return false;
}

bool snapshot_get(struct snapshot_reader *reader, uint32_t *key_group, struct str *data)
{
    while (!reader->is_failed) {
        if (reader->at == reader->length) {
            if (!next_run(reader))
                return false;
            continue;
        }
        uint32_t head[2] = {0, 0};
        reader->record_at = reader->at;
        if (reader->length - reader->at >= sizeof(head)) {
            memcpy(head, reader->data + reader->at, sizeof(head));
            reader->at += sizeof(head);
        }
        if (reader->at == reader->record_at || head[1] > reader->length - reader->at ||
            (head[0] >= KEY_GROUPS && head[0] != SNAPSHOT_GLOBAL)) {
            snapshot_corrupt(reader, reader->diags,
                             "a record is longer than its piece, or its key group is not valid");
            return false;
        }
        *key_group = head[0];
        *data = (struct str){reader->data + reader->at, head[1]};
        reader->at += head[1];
        if (head[0] == SNAPSHOT_GLOBAL || group_set_has(reader->groups, head[0]))
            return true;
    }
    return false;
}

/* --- Verifying --- */

bool pieces_verify(const struct checkpoint_dir *dir, const struct manifest *manifest, struct diag_list *diags)
{
    char path[PATH_BYTES], *data = NULL;
    if (manifest->piece_digests == NULL)
        return true;
    path_checkpoint(dir, manifest->info.id, path);
    strcat(path, "/state.bin");
    int fd = uncached_open(path), error = fd < 0 ? errno : 0;
    char *memory = uncached_memory(PIECE_BYTES_MAX);
    bool is_good = true;
    /* Windows of PIECE_BYTES_MAX, each from the first piece that was not within the window before. */
    for (uint64_t i = 0; error == 0 && is_good && i < manifest->pieces_count;) {
        struct manifest_piece last = manifest_piece(manifest, manifest->pieces_count - 1);
        uint64_t from = manifest_piece(manifest, i).offset,
                 bytes = MIN(last.offset + last.bytes - from, (uint64_t)PIECE_BYTES_MAX);
        error = uncached_read(fd, memory, (size_t)bytes, from, &data);
        for (; error == 0 && is_good && i < manifest->pieces_count; i++) {
            struct manifest_piece piece = manifest_piece(manifest, i);
            if (piece.offset + piece.bytes > from + bytes)
                break;
            is_good = verify_piece(manifest, i, data + (piece.offset - from), path, diags);
        }
    }
    free(memory);
    if (fd >= 0)
        close(fd);
    return error == 0 ? is_good : file_unreadable(path, error, diags);
}
