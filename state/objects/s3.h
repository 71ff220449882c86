/* Requests to one S3 bucket. Private to state/objects. */
#ifndef LEAT_STATE_OBJECTS_S3_H
#define LEAT_STATE_OBJECTS_S3_H

#include "state/objects/s3_sign.h"
#include "state/objects/s3_xml.h"
#include "state/objects/store.h"

#include <curl/curl.h>

enum { S3_ETAG_TEXT = 160, S3_WHY_TEXT = 400 };

struct s3 {
    CURL *curl;
    char *base;                 /* "https://HOST", no slash behind it */
    char *host;                 /* HOST with a port that is not the scheme's own, as in the field `host` */
    char *bucket;               /* its name */
    char *root;                 /* path of the bucket, encoded: "", or "/BUCKET" */
    char *prefix;               /* of all names: "", or with a slash behind it */
    char *region, *authorities; /* authorities: a PEM file (AWS_CA_BUNDLE); NULL: the system's */
    char *access, *secret, *token;
    struct s3_keys keys;
    int64_t clock_us; /* what is added to this machine's clock, so that it is the store's */
    char why[CURL_ERROR_SIZE];
};

/* s3_open.c. Reads URL and environment; false after E0710. s3_free: also after a failed s3_make. */
LEAT_CHECKED bool s3_make(struct objects *objects, struct diag_list *diags);
void s3_free(struct objects *objects);

/* One request, tried until it is answered; filled in by the caller up to `document`. */
struct s3_call {
    const char *method;
    const char *purpose; /* for messages: "put" */
    struct str name;     /* of the object; empty: the bucket itself */
    struct s3_field parameters[S3_PARAMETERS_MAX];
    uint32_t parameters_count;
    struct str body;         /* sent with PUT and POST */
    enum s3_root expected;   /* what a good answer's body is; S3_ROOT_OTHER: not looked at */
    struct byte_buffer *out; /* where a good answer's body is appended; NULL: nowhere */
    size_t out_max;          /* bytes of it at most */
    bool has_range;          /* wants `out_max` bytes from `offset` on, just as many */
    uint64_t offset;
    bool is_new;                  /* only where there is no object of that name */
    bool may_miss;                /* 404 is an answer, unless the bucket is missing */
    const char *missing_codes[2]; /* as are errors with these codes; NULL: none */
    struct s3_document
        document;    /* of the answer, an error's too; texts lie in the arena that s3_perform got */
    long status;     /* 0: no answer */
    uint64_t length; /* the field content-length of the last answer; UINT64_MAX: none */
    uint64_t range_begin, range_end, range_total; /* its field content-range; total 0: none */
    int64_t date_us;                              /* its field date; 0: none */
    char etag[S3_ETAG_TEXT];                      /* its field etag, without quotes */
    bool has_own_digest;                          /* the store encrypts: the ETag is no MD5 */
};

void s3_add_parameter(struct s3_call *call, const char *name, struct str value);
/* Sends the request and waits for a good answer, with pauses between tries. MISSING: only with may_miss. */
enum objects_result s3_perform(struct objects *objects, struct s3_call *call, struct arena *arena,
                               struct diag_list *diags);

/* s3_errors.c */
struct s3_failure {
    enum s3_failed {
        S3_AGAIN,   /* may go well next time */
        S3_WRONG,   /* the same, but bytes came that are wrong: E0711 in the end */
        S3_DAMAGED, /* E0711, at once */
        S3_REFUSED, /* E0710, at once */
    } kind;
    const char *what; /* what was found; in the arena, or static; the keys may be in it */
};
/* Says why the request failed after `tries` tries, without the keys. Returns OBJECTS_FAILED. */
enum objects_result s3_say(const struct objects *objects, const struct s3_call *call,
                           const struct s3_failure *failure, uint32_t tries, struct diag_list *diags);
/* What an error's status and code say. */
struct s3_failure s3_judge(const struct s3_call *call, struct arena *arena);

/* s3_upload.c. As put_file of struct objects_kind, in parts. */
bool s3_put_parts(struct objects *objects, struct str name, int fd, uint64_t bytes, const char *path,
                  struct diag_list *diags);
/* Ends an upload without an object. */
bool s3_abort(struct objects *objects, struct str name, struct str upload_id, struct arena *arena,
              struct diag_list *diags);
/* E0601: the local file is not what it was said to be, or cannot be read (error: an errno). Returns false. */
bool s3_say_short(const char *path, uint64_t bytes, int error, struct diag_list *diags);

#endif
