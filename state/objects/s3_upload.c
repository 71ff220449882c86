/* Large files, put in parts: begin, a part after the other, complete. An upload that fails is ended; what a killed process began
 * is found by objects_abandon. */
#include "core/hex.h"
#include "core/mem.h"
#include "core/os.h"
#include "state/objects/s3.h"

#include <errno.h>
#include <stdlib.h>

struct upload {
    struct objects *objects;
    struct str name;
    struct str id;
    int fd;
    uint64_t bytes, part_bytes;
    const char *path;
    struct byte_buffer parts;   /* the XML that completes the upload */
    struct byte_buffer digests; /* MD5 of each part, one behind the other */
    struct arena arena;
    struct diag_list *diags;
};

bool s3_say_short(const char *path, uint64_t bytes, int error, struct diag_list *diags)
{
    struct diag *d = diag_error(diags, DIAG_FILE_UNREADABLE, (struct span){0},
                                "expected a file of %llu bytes", (unsigned long long)bytes);
    diag_at(diags, d, path, -1, -1);
    if (error != 0)
        diag_errno(diags, d, error);
    else
        diag_cause(diags, d, "the file is shorter");
    return false;
}

/* Texts of the store, in XML that it gets back. */
static void append_escaped(struct byte_buffer *out, const char *text)
{
    for (; *text != '\0'; text++) {
        const char *escape = *text == '<'   ? "&lt;"
                             : *text == '>' ? "&gt;"
                             : *text == '&' ? "&amp;"
                             : *text == '"' ? "&quot;"
                                            : NULL;
        if (escape != NULL)
            buffer_append(out, escape, strlen(escape));
        else
            buffer_append(out, text, 1);
    }
}

static bool begin(struct upload *upload)
{
    struct s3_call call = {
        .method = "POST", .purpose = "begin to put", .name = upload->name, .expected = S3_ROOT_UPLOAD};
    s3_add_parameter(&call, "uploads", (struct str){0});
    if (s3_perform(upload->objects, &call, &upload->arena, upload->diags) != OBJECTS_DONE)
        return false;
    upload->id = call.document.upload_id;
    return true;
}

/* number: from 1. */
static bool send_part(struct upload *upload, uint32_t number, struct str body)
{
    struct arena arena = {.block_bytes = 1024};
    struct s3_call call = {.method = "PUT", .purpose = "put a part of", .name = upload->name, .body = body};
    uint8_t md5[S3_MD5_BYTES];
    char text[16];
    snprintf(text, sizeof(text), "%u", number);
    s3_add_parameter(&call, "partNumber", str_from(text));
    s3_add_parameter(&call, "uploadId", upload->id);
    bool ok = s3_perform(upload->objects, &call, &arena, upload->diags) == OBJECTS_DONE;
    if (ok) {
        buffer_printf(&upload->parts, "<Part><PartNumber>%u</PartNumber><ETag>&quot;", number);
        append_escaped(&upload->parts, call.etag);
        buffer_printf(&upload->parts, "&quot;</ETag></Part>");
        if (s3_md5(body.data, body.length, md5))
            buffer_append(&upload->digests, md5, sizeof(md5));
    }
    arena_free(&arena);
    return ok;
}

static bool send_parts(struct upload *upload)
{
    char *room = mem_alloc((size_t)upload->part_bytes);
    uint32_t number = 1;
    bool ok = true;
    for (uint64_t at = 0; ok && at < upload->bytes; at += upload->part_bytes, number++) {
        size_t length = (size_t)MIN(upload->part_bytes, upload->bytes - at), got = 0;
        int error = os_pread_all(upload->fd, room, length, at, &got);
        if (error != 0 || got < length)
            ok = s3_say_short(upload->path, upload->bytes, error, upload->diags);
        else
            ok = send_part(upload, number, (struct str){room, length});
        if (ok && (error = failpoint("objects.part")) != 0)
            ok = s3_say_short(upload->path, upload->bytes, error, upload->diags);
    }
    free(room);
    return ok;
}

/* The object's size is asked for where its digest does not tell that it is whole. */
static bool check_size(struct upload *upload)
{
    uint64_t bytes = 0;
    enum objects_result result = objects_s3.head(upload->objects, upload->name, &bytes, upload->diags);
    if (result == OBJECTS_FAILED)
        return false;
    if (result == OBJECTS_DONE && bytes == upload->bytes)
        return true;
    struct s3_call call = {.purpose = "put", .name = upload->name};
    s3_say(upload->objects, &call,
           &(struct s3_failure){S3_WRONG, result == OBJECTS_MISSING
                                              ? "there is no such object after all its parts were put"
                                              : "the object does not have the bytes of its parts"},
           1, upload->diags);
    return false;
}

/* Whether the ETag is that of the parts: MD5 of the parts' digests, and their number. */
static bool has_digest_of_parts(const struct upload *upload, struct str etag)
{
    uint8_t digest[S3_MD5_BYTES];
    char text[S3_MD5_TEXT];
    size_t count = upload->digests.length / S3_MD5_BYTES;
    if (count == 0 || !s3_md5(upload->digests.data, upload->digests.length, digest))
        return false;
    hex_text(digest, sizeof(digest), text);
    char *expected = mem_printf("\"%s-%zu\"", text, count);
    bool is_equal = str_is(etag, expected);
    free(expected);
    return is_equal;
}

static bool complete(struct upload *upload)
{
    struct byte_buffer body = {0};
    buffer_printf(&body, "<CompleteMultipartUpload>%.*s</CompleteMultipartUpload>", (int)upload->parts.length,
                  upload->parts.data);
    struct s3_call call = {.method = "POST",
                           .purpose = "complete",
                           .name = upload->name,
                           .body = {body.data, body.length},
                           .expected = S3_ROOT_COMPLETE,
                           .missing_codes = {"NoSuchUpload", "InvalidPart"}};
    s3_add_parameter(&call, "uploadId", upload->id);
    enum objects_result result = s3_perform(upload->objects, &call, &upload->arena, upload->diags);
    buffer_free(&body);
    if (result == OBJECTS_FAILED)
        return false;
    /* MISSING: a try before completed it, and its answer was lost; or the store has lost a part. */
    return (result == OBJECTS_DONE && has_digest_of_parts(upload, call.document.etag)) || check_size(upload);
}

bool s3_abort(struct objects *objects, struct str name, struct str upload_id, struct arena *arena,
              struct diag_list *diags)
{
    struct s3_call call = {.method = "DELETE",
                           .purpose = "end the upload of",
                           .name = name,
                           .may_miss = true,
                           .missing_codes = {"NoSuchUpload"}};
    s3_add_parameter(&call, "uploadId", upload_id);
    return s3_perform(objects, &call, arena, diags) != OBJECTS_FAILED;
}

bool s3_put_parts(struct objects *objects, struct str name, int fd, uint64_t bytes, const char *path,
                  struct diag_list *diags)
{
    struct upload upload = {.objects = objects,
                            .name = name,
                            .fd = fd,
                            .bytes = bytes,
                            .path = path,
                            .diags = diags,
                            .arena = {.block_bytes = 4096}};
    uint64_t least = (bytes + OBJECTS_PARTS_MAX - 1) / OBJECTS_PARTS_MAX;
    upload.part_bytes = MAX(objects->options.part_bytes, least);
    bool ok = upload.part_bytes <= OBJECTS_PART_BYTES_MAX;
    if (!ok) {
        struct diag *d =
            diag_error(diags, DIAG_STORE_FAILED, (struct span){0},
                       "`%s`: `%.*s` has %llu bytes, more than an object of %d parts may have", objects->url,
                       STR_ARGS(name), (unsigned long long)bytes, OBJECTS_PARTS_MAX);
        diag_hint(diags, d, "spread the state over more than one file, or store it elsewhere");
    }
    ok = ok && begin(&upload);
    if (ok && !(send_parts(&upload) && complete(&upload))) {
        struct arena spare = {.block_bytes = 4096};
        struct diag_list ignored; /* what matters has been said; objects_abandon removes what stays */
        diag_list_init(&ignored, &spare);
        s3_abort(objects, name, upload.id, &spare, &ignored);
        arena_free(&spare);
        ok = false;
    }
    buffer_free(&upload.parts);
    buffer_free(&upload.digests);
    arena_free(&upload.arena);
    return ok;
}
