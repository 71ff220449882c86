/* MANIFEST and GENERATION: a magic number, msgpack, and an xxh3-128 of everything before it. Written with
 * msgpack-c; read by the strict cursor below, which allocates no more than the text's length allows. */
#include "state/checkpoint_files.h"

#include <msgpack.h>
#include <xxhash.h>

enum {
    MAGIC_BYTES = 8,
    MANIFEST_FIELDS = 17,
    MANIFEST_FIELDS_FROM = 15, /* without digests of pieces, and without key groups */
    GENERATION_FIELDS = 9,
    PATH_LENGTH_MAX = 512
};

static const char manifest_magic[MAGIC_BYTES + 1] = "leatmf1\n";
static const char generation_magic[MAGIC_BYTES + 1] = "leatgn1\n";

/* --- Writing --- */

static int write_to_buffer(void *data, const char *bytes, size_t count)
{
    buffer_append(data, bytes, count);
    return 0;
}

static void pack_bytes(msgpack_packer *packer, struct str bytes)
{
    msgpack_pack_bin(packer, bytes.length);
    if (bytes.length > 0)
        msgpack_pack_bin_body(packer, bytes.data, bytes.length);
}

void digest_of(const void *data, size_t bytes, uint8_t digest[DIGEST_BYTES])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, bytes));
    memcpy(digest, canonical.digest, DIGEST_BYTES);
}

void manifest_seal(char *text, size_t bytes)
{
    leat_assert(bytes >= DIGEST_BYTES);
    digest_of(text, bytes - DIGEST_BYTES, (uint8_t *)text + bytes - DIGEST_BYTES);
}

static void seal_buffer(struct byte_buffer *out)
{
    buffer_reserve(out, DIGEST_BYTES);
    out->length += DIGEST_BYTES;
    manifest_seal(out->data, out->length);
}

void manifest_encode(const struct manifest *manifest, struct byte_buffer *out)
{
    const struct checkpoint_info *info = &manifest->info;
    buffer_append(out, manifest_magic, MAGIC_BYTES);
    msgpack_packer packer;
    msgpack_packer_init(&packer, out, write_to_buffer);
    msgpack_pack_array(&packer, MANIFEST_FIELDS);
    msgpack_pack_uint64(&packer, CHECKPOINT_FORMAT);
    msgpack_pack_uint64(&packer, info->id.generation);
    msgpack_pack_uint64(&packer, info->id.epoch);
    msgpack_pack_uint64(&packer, info->previous.generation);
    msgpack_pack_uint64(&packer, info->previous.epoch);
    pack_bytes(&packer, info->fingerprint);
    pack_bytes(&packer, info->profile);
    pack_bytes(&packer, info->sources);
    pack_bytes(&packer, info->notes);
    pack_bytes(&packer, (struct str){(const char *)info->run.bytes, sizeof(info->run.bytes)});
    msgpack_pack_uint64(&packer, (uint64_t)info->created_us);
    msgpack_pack_uint64(&packer, info->databases);
    msgpack_pack_array(&packer, (size_t)manifest->files_count * 3);
    for (uint32_t i = 0; i < manifest->files_count; i++) {
        const struct manifest_file *file = &manifest->files[i];
        pack_bytes(&packer, file->path);
        msgpack_pack_uint64(&packer, file->bytes);
        pack_bytes(&packer,
                   (struct str){(const char *)file->digests, digest_count(file->bytes) * DIGEST_BYTES});
    }
    msgpack_pack_array(&packer, manifest->parts_count);
    for (uint32_t i = 0; i < manifest->parts_count; i++)
        pack_bytes(&packer, manifest->parts[i]);
    pack_bytes(&packer,
               (struct str){manifest->pieces, manifest->pieces_count * sizeof(struct manifest_piece)});
    pack_bytes(&packer,
               (struct str){(const char *)manifest->piece_digests,
                            manifest->piece_digests == NULL ? 0 : manifest->pieces_count * DIGEST_BYTES});
    pack_bytes(&packer, manifest->groups == NULL ? STR("")
                                                 : (struct str){(const char *)manifest->groups->words,
                                                                sizeof(manifest->groups->words)});
    seal_buffer(out);
}

void generation_encode(const struct generation *generation, struct byte_buffer *out)
{
    buffer_append(out, generation_magic, MAGIC_BYTES);
    msgpack_packer packer;
    msgpack_packer_init(&packer, out, write_to_buffer);
    msgpack_pack_array(&packer, GENERATION_FIELDS);
    msgpack_pack_uint64(&packer, CHECKPOINT_FORMAT);
    msgpack_pack_uint64(&packer, generation->generation);
    msgpack_pack_uint64(&packer, generation->parent.generation);
    msgpack_pack_uint64(&packer, generation->parent.epoch);
    pack_bytes(&packer, (struct str){(const char *)generation->run.bytes, sizeof(generation->run.bytes)});
    pack_bytes(&packer, generation->from_path);
    msgpack_pack_uint64(&packer, generation->from.generation);
    msgpack_pack_uint64(&packer, generation->from.epoch);
    pack_bytes(&packer, generation->from_dropped);
    seal_buffer(out);
}

/* --- Reading --- */

struct cursor {
    const uint8_t *at, *end;
    bool is_bad;
};

static uint64_t take_be(struct cursor *cursor, uint32_t bytes)
{
    if (cursor->is_bad || (size_t)(cursor->end - cursor->at) < bytes) {
        cursor->is_bad = true;
        return 0;
    }
    uint64_t value = 0;
    for (uint32_t i = 0; i < bytes; i++)
        value = value << 8 | *cursor->at++;
    return value;
}

static uint64_t read_uint(struct cursor *cursor, uint64_t max)
{
    uint64_t tag = take_be(cursor, 1), value = tag;
    if (tag >= 0xcc && tag <= 0xcf)
        value = take_be(cursor, 1U << (tag - 0xcc));
    else if (tag > 0x7f)
        cursor->is_bad = true;
    if (value > max)
        cursor->is_bad = true;
    return cursor->is_bad ? 0 : value;
}

static struct str read_bytes(struct cursor *cursor)
{
    uint64_t tag = take_be(cursor, 1);
    if (tag < 0xc4 || tag > 0xc6) {
        cursor->is_bad = true;
        return (struct str){"", 0};
    }
    uint64_t length = take_be(cursor, 1U << (tag - 0xc4));
    if (cursor->is_bad || (uint64_t)(cursor->end - cursor->at) < length) {
        cursor->is_bad = true;
        return (struct str){"", 0};
    }
    struct str bytes = {(const char *)cursor->at, length};
    cursor->at += length;
    return bytes;
}

/* Reads the head of an array and returns its number of items; each item has at least one byte. */
static uint32_t read_array(struct cursor *cursor)
{
    uint64_t tag = take_be(cursor, 1), count = 0;
    if ((tag & 0xf0) == 0x90)
        count = tag & 0x0f;
    else if (tag == 0xdc || tag == 0xdd)
        count = take_be(cursor, tag == 0xdc ? 2 : 4);
    else
        cursor->is_bad = true;
    if (count > (uint64_t)(cursor->end - cursor->at))
        cursor->is_bad = true;
    return cursor->is_bad ? 0 : (uint32_t)count;
}

/* Checks the magic number and the digest, and sets the cursor to the bytes between them. */
static bool open_text(struct str text, const char *magic, struct cursor *cursor, const char **why)
{
    uint8_t digest[DIGEST_BYTES];
    if (text.length < MAGIC_BYTES + DIGEST_BYTES) {
        *why = "it is too short";
        return false;
    }
    if (memcmp(text.data, magic, MAGIC_BYTES) != 0) {
        *why = "it does not begin with the magic number of its kind of file";
        return false;
    }
    digest_of(text.data, text.length - DIGEST_BYTES, digest);
    if (memcmp(digest, text.data + text.length - DIGEST_BYTES, DIGEST_BYTES) != 0) {
        *why = "its digest does not match its bytes";
        return false;
    }
    cursor->at = (const uint8_t *)text.data + MAGIC_BYTES;
    cursor->end = (const uint8_t *)text.data + text.length - DIGEST_BYTES;
    cursor->is_bad = false;
    return true;
}

static void read_run(struct cursor *cursor, struct run_id *run)
{
    struct str bytes = read_bytes(cursor);
    if (bytes.length != sizeof(run->bytes))
        cursor->is_bad = true;
    else
        memcpy(run->bytes, bytes.data, sizeof(run->bytes));
}

/* Whether the path is relative and without "..": a manifest names only files of its own directory. */
static bool is_inside(struct str path)
{
    if (path.length == 0 || path.length > PATH_LENGTH_MAX || path.data[0] == '/')
        return false;
    for (size_t i = 0; i < path.length; i++)
        if (path.data[i] == '\0' || (path.data[i] == '.' && i + 1 < path.length && path.data[i + 1] == '.'))
            return false;
    return true;
}

static void read_files(struct cursor *cursor, struct arena *arena, struct manifest *manifest)
{
    uint32_t items = read_array(cursor);
    if (items % 3 != 0 || items / 3 > MANIFEST_FILES_MAX)
        cursor->is_bad = true;
    if (cursor->is_bad)
        return;
    manifest->files = arena_array(arena, struct manifest_file, MAX(items / 3, 1));
    for (uint32_t i = 0; i < items / 3 && !cursor->is_bad; i++) {
        struct manifest_file *file = &manifest->files[manifest->files_count++];
        file->path = read_bytes(cursor);
        file->bytes = read_uint(cursor, INT64_MAX);
        struct str digests = read_bytes(cursor);
        file->digests = (const uint8_t *)digests.data;
        if (!is_inside(file->path) || digests.length % DIGEST_BYTES != 0 ||
            digests.length / DIGEST_BYTES != digest_count(file->bytes))
            cursor->is_bad = true;
        manifest->info.bytes += file->bytes;
    }
    manifest->info.files = manifest->files_count;
}

static uint64_t state_bytes(const struct manifest *manifest)
{
    for (uint32_t i = 0; i < manifest->files_count; i++)
        if (str_is(manifest->files[i].path, "state.bin"))
            return manifest->files[i].bytes;
    return 0;
}

/* Reads the parts, and the pieces, which must lie within state.bin. */
static void read_parts(struct cursor *cursor, struct arena *arena, struct manifest *manifest)
{
    manifest->parts_count = read_array(cursor);
    if (cursor->is_bad)
        return;
    manifest->parts = arena_array(arena, struct str, MAX(manifest->parts_count, 1));
    for (uint32_t i = 0; i < manifest->parts_count; i++)
        manifest->parts[i] = read_bytes(cursor);
    struct str pieces = read_bytes(cursor);
    manifest->pieces = pieces.data;
    manifest->pieces_count = pieces.length / sizeof(struct manifest_piece);
    if (pieces.length % sizeof(struct manifest_piece) != 0)
        cursor->is_bad = true;
    uint64_t limit = state_bytes(manifest);
    for (uint64_t i = 0; i < manifest->pieces_count && !cursor->is_bad; i++) {
        struct manifest_piece piece = manifest_piece(manifest, i);
        if (piece.part >= manifest->parts_count || piece.bytes > PIECE_BYTES_MAX || piece.offset > limit ||
            piece.bytes > limit - piece.offset)
            cursor->is_bad = true;
    }
}

/* Whether a piece may have records of these key groups. */
static bool is_range(const struct manifest_piece *piece)
{
    return piece->group_min <= piece->group_max &&
           (piece->group_min < KEY_GROUPS || piece->group_min == SNAPSHOT_GLOBAL) &&
           (piece->group_max < KEY_GROUPS || piece->group_max == SNAPSHOT_GLOBAL);
}

/* Reads the digests of the pieces, which must then be all of state.bin, one behind another. */
static void read_piece_digests(struct cursor *cursor, struct manifest *manifest)
{
    struct str digests = read_bytes(cursor);
    if (digests.length == 0)
        return;
    manifest->piece_digests = (const uint8_t *)digests.data;
    uint64_t at = 0;
    if (digests.length % DIGEST_BYTES != 0 || digests.length / DIGEST_BYTES != manifest->pieces_count)
        cursor->is_bad = true;
    for (uint64_t i = 0; i < manifest->pieces_count && !cursor->is_bad; i++) {
        struct manifest_piece piece = manifest_piece(manifest, i);
        if (piece.offset != at || piece.bytes == 0 || !is_range(&piece))
            cursor->is_bad = true;
        at += piece.bytes;
    }
    if (at != state_bytes(manifest))
        cursor->is_bad = true;
}

/* Reads the key groups that the checkpoint has. */
static void read_groups(struct cursor *cursor, struct arena *arena, struct manifest *manifest)
{
    struct str words = read_bytes(cursor);
    if (words.length == 0)
        return;
    struct group_set *groups = arena_new(arena, struct group_set);
    if (words.length != sizeof(groups->words)) {
        cursor->is_bad = true;
        return;
    }
    memcpy(groups->words, words.data, words.length);
    if (KEY_GROUPS % 64 != 0 && groups->words[KEY_GROUPS / 64] >> KEY_GROUPS % 64 != 0)
        cursor->is_bad = true;
    manifest->groups = groups;
}

enum decode_result manifest_decode(struct str text, struct arena *arena, struct manifest *manifest,
                                   const char **why)
{
    struct cursor cursor;
    *manifest = (struct manifest){0};
    if (!open_text(text, manifest_magic, &cursor, why))
        return DECODE_DAMAGED;
    struct checkpoint_info *info = &manifest->info;
    *why = "its fields are not valid";
    uint32_t fields = read_array(&cursor);
    info->format = (uint32_t)read_uint(&cursor, UINT32_MAX);
    if (!cursor.is_bad && (info->format < CHECKPOINT_FORMAT_FROM || info->format > CHECKPOINT_FORMAT))
        return DECODE_OTHER_FORMAT;
    if (cursor.is_bad || (fields != MANIFEST_FIELDS_FROM && fields != MANIFEST_FIELDS))
        return DECODE_DAMAGED;
    info->id.generation = (uint32_t)read_uint(&cursor, UINT32_MAX);
    info->id.epoch = read_uint(&cursor, UINT64_MAX);
    info->previous.generation = (uint32_t)read_uint(&cursor, UINT32_MAX);
    info->previous.epoch = read_uint(&cursor, UINT64_MAX);
    info->fingerprint = read_bytes(&cursor);
    info->profile = read_bytes(&cursor);
    info->sources = read_bytes(&cursor);
    info->notes = read_bytes(&cursor);
    read_run(&cursor, &info->run);
    info->created_us = (int64_t)read_uint(&cursor, INT64_MAX);
    info->databases = (uint32_t)read_uint(&cursor, PLACEMENT_INSTANCES_MAX);
    read_files(&cursor, arena, manifest);
    if (!cursor.is_bad)
        read_parts(&cursor, arena, manifest);
    if (!cursor.is_bad && fields == MANIFEST_FIELDS)
        read_piece_digests(&cursor, manifest);
    if (!cursor.is_bad && fields == MANIFEST_FIELDS)
        read_groups(&cursor, arena, manifest);
    return cursor.is_bad || cursor.at != cursor.end ? DECODE_DAMAGED : DECODE_GOOD;
}

enum decode_result generation_decode(struct str text, struct generation *generation, const char **why)
{
    struct cursor cursor;
    *generation = (struct generation){0};
    if (!open_text(text, generation_magic, &cursor, why))
        return DECODE_DAMAGED;
    *why = "its fields are not valid";
    uint32_t fields = read_array(&cursor);
    uint64_t format = read_uint(&cursor, UINT32_MAX);
    if (!cursor.is_bad && (format < CHECKPOINT_FORMAT_FROM || format > CHECKPOINT_FORMAT))
        return DECODE_OTHER_FORMAT;
    generation->generation = (uint32_t)read_uint(&cursor, UINT32_MAX);
    generation->parent.generation = (uint32_t)read_uint(&cursor, UINT32_MAX);
    generation->parent.epoch = read_uint(&cursor, UINT64_MAX);
    read_run(&cursor, &generation->run);
    generation->from_path = read_bytes(&cursor);
    generation->from.generation = (uint32_t)read_uint(&cursor, UINT32_MAX);
    generation->from.epoch = read_uint(&cursor, UINT64_MAX);
    generation->from_dropped = read_bytes(&cursor);
    bool is_good = !cursor.is_bad && cursor.at == cursor.end && fields == GENERATION_FIELDS;
    return is_good ? DECODE_GOOD : DECODE_DAMAGED;
}
