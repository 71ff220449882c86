/* The XML answers of S3, read whole (expat). Every answer is bounded: in bytes by who gets it, in depth, in the length of a text,
 * in entries. Document types and entities of their own are refused. One thread a document. */
#ifndef LEAT_STATE_OBJECTS_S3_XML_H
#define LEAT_STATE_OBJECTS_S3_XML_H

#include "core/arena.h"

enum {
    S3_XML_BYTES_MAX = 8 << 20,
    S3_XML_TEXT_MAX =
        4096, /* bytes of one element's text; longer ones are cut where nobody reads them, else refused */
    S3_XML_ENTRIES_MAX = 10000, /* of one answer; S3 sends at most 1,000 */
};

enum s3_root {
    S3_ROOT_OTHER, /* no answer that leat knows */
    S3_ROOT_ERROR,
    S3_ROOT_LIST,     /* ListBucketResult */
    S3_ROOT_UPLOAD,   /* InitiateMultipartUploadResult */
    S3_ROOT_COMPLETE, /* CompleteMultipartUploadResult */
    S3_ROOT_UPLOADS,  /* ListMultipartUploadsResult */
};

/* An object of a list, or an upload that is not complete. */
struct s3_entry {
    struct str key;       /* with the URL's prefix; not empty */
    uint64_t bytes;       /* of an object */
    struct str upload_id; /* of an upload; not empty */
    int64_t begun_us;     /* of an upload: microseconds since 1970, by the store's clock */
};

/* Texts lie in the arena; those that the answer lacks are empty. */
struct s3_document {
    enum s3_root root;
    struct str code, message; /* of an error; then `code` is not empty */
    struct str upload_id;     /* of a new upload; then it is not empty */
    struct str etag;          /* of a complete upload */
    struct s3_entry *entries;
    uint32_t count;
    bool
        is_truncated; /* more follows behind: next_token of a list, next_key and next_upload of uploads, which are not empty */
    struct str next_token, next_key, next_upload;
};

/* Reads an answer of at most S3_XML_BYTES_MAX bytes. False: *why says what is wrong (static, or in the arena). */
LEAT_CHECKED bool s3_xml_read(struct str xml, struct arena *arena, struct s3_document *document,
                              const char **why);
/* "2026-11-28T07:00:00.000Z" as microseconds since 1970. */
LEAT_CHECKED bool s3_time_read(struct str text, int64_t *us);

#endif
