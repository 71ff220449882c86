/* An object store: named objects, each written once and never changed, in an S3 bucket or in a directory that machines share.
 *
 *     s3://BUCKET/PREFIX   any store that speaks S3. From the environment: the endpoint (AWS_ENDPOINT_URL_S3, else
 *                          AWS_ENDPOINT_URL, else Amazon's), the region (AWS_REGION, else AWS_DEFAULT_REGION, else us-east-1),
 *                          the keys (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN), and LEAT_S3_ADDRESSING:
 *                          `path` (the default with an endpoint of one's own) or `virtual` (BUCKET.HOST, the default at Amazon)
 *     file:/DIR            a directory; it is made if it is missing
 *
 * A name has parts between slashes: UTF-8 without control characters; no part is empty or begins with a dot; at most
 * OBJECTS_NAME_BYTES_MAX bytes. No name is the beginning of another up to a slash (a file is no directory). The caller gives a name to one content only. Who puts a name that is there puts the same bytes
 * once more; `file:` compares them (E0711).
 *
 * A request that got no answer, a torn one, or 408, 429 or 5xx is sent again, with growing pauses. What is put is checked by the
 * server (SHA-256 of each request, MD5), and by the answer's digest; what is got, by its length, and by MD5 where a whole object
 * comes in one answer and the store has its MD5. The keys are never printed.
 *
 * Errors: E0710 (the store is not reached, or refuses), E0711 (its bytes are wrong), E0608 and E0605 (a local file cannot be
 * written), E0601 (a local file cannot be read). One thread at a time, but for objects_cancel and objects_stats; several handles
 * of one store may be used at once. */
#ifndef LEAT_STATE_OBJECTS_OBJECTS_H
#define LEAT_STATE_OBJECTS_OBJECTS_H

#include "core/buffer.h"
#include "core/diag.h"

enum {
    OBJECTS_NAME_BYTES_MAX = 900,       /* of a name, and of the URL's prefix with it: S3 allows 1,024 */
    OBJECTS_PART_BYTES = 8 << 20,       /* of a file that is sent, or got, in parts */
    OBJECTS_PART_BYTES_MIN = 5 << 20,   /* S3 takes no smaller part, but for the last */
    OBJECTS_PARTS_MAX = 10000,          /* of one object */
    OBJECTS_PART_BYTES_MAX = 256 << 20, /* parts grow to this where PARTS_MAX would not do */
    OBJECTS_LIST_MAX = 4 << 20,         /* objects that one list returns */
    OBJECTS_TRIES_MAX = 100,
};

struct objects_options {
    struct str url;
    uint64_t part_bytes; /* 0: OBJECTS_PART_BYTES; else OBJECTS_PART_BYTES_MIN to _MAX */
    uint32_t tries;      /* of a request; 0: 8 */
    int64_t
        pause_us; /* before the second try, then twice as long each time, up to pause_longest_us; 0: 100 ms */
    int64_t pause_longest_us; /* 0: 10 s */
    int64_t stall_us; /* a connection that moves no byte for so long is given up; whole seconds; 0: 30 s */
};

struct objects;
/* Whether an object may have this name. Any thread. */
bool objects_name_is_good(struct str name);
/* Whether the text begins as the URL of an object store does, s3:// or file:. Any thread. */
bool objects_is_url(struct str text);
/* NULL after E0710 (the URL or the environment cannot be used). Sends nothing. Copies the options. A connection in plain text to
 * another machine is a warning (E0609). */
struct objects *objects_open(const struct objects_options *options, struct diag_list *diags);
void objects_close(struct objects *objects); /* NULL is allowed */
/* The URL as it was given; belongs to `objects`. */
const char *objects_url(const struct objects *objects);
/* Whether the store answers and lists what is below the URL. False after E0710. */
LEAT_CHECKED bool objects_check(struct objects *objects, struct diag_list *diags);

/* Puts bytes as one object; durable once it returns true. */
LEAT_CHECKED bool objects_put(struct objects *objects, struct str name, const void *data, size_t bytes,
                              struct diag_list *diags);
enum objects_new {
    OBJECTS_NEW_FAILED, /* after a diagnostic */
    OBJECTS_NEW_TAKEN,  /* another one has put it before, or is putting it */
    OBJECTS_NEW_ALONE, /* it is there, and of all that put it like this at one time this call alone gets this */
    OBJECTS_NEW_UNKNOWN, /* it is there, but the store knows no condition: another one may put it, too */
};
/* Puts bytes under a name that only one of several may give. A call whose answer was lost may be told TAKEN by its own object: compare. */
enum objects_new objects_put_new(struct objects *objects, struct str name, const void *data, size_t bytes,
                                 struct diag_list *diags);
/* Puts the first `bytes` bytes of a local file; in parts where they are more than part_bytes: a part that fails is sent again by
 * itself. A file with fewer bytes: E0601. */
LEAT_CHECKED bool objects_put_file(struct objects *objects, struct str name, const char *path, uint64_t bytes,
                                   struct diag_list *diags);

/* The same of an open file; path: its name, for messages. */
LEAT_CHECKED bool objects_put_fd(struct objects *objects, struct str name, int fd, uint64_t bytes,
                                 const char *path, struct diag_list *diags);

enum objects_result {
    OBJECTS_FAILED,  /* after a diagnostic */
    OBJECTS_MISSING, /* there is no object of that name; no diagnostic */
    OBJECTS_DONE,
};

/* Appends a whole object of at most bytes_max bytes to `out`; a larger one: E0711. After a failure `out` is as it was. */
enum objects_result objects_get(struct objects *objects, struct str name, size_t bytes_max,
                                struct byte_buffer *out, struct diag_list *diags);
/* Appends the `bytes` bytes at `offset`. An object that ends before them: E0711. */
enum objects_result objects_get_range(struct objects *objects, struct str name, uint64_t offset, size_t bytes,
                                      struct byte_buffer *out, struct diag_list *diags);
/* Gets a whole object of exactly `bytes` bytes into a new local file, in parts, and fsyncs it. After a failure there is no such
 * file. */
enum objects_result objects_get_file(struct objects *objects, struct str name, uint64_t bytes,
                                     const char *path, struct diag_list *diags);
/* *bytes: the object's size. */
enum objects_result objects_head(struct objects *objects, struct str name, uint64_t *bytes,
                                 struct diag_list *diags);

struct objects_entry {
    struct str name; /* without the URL's prefix */
    uint64_t bytes;
};
/* Lists all objects whose name begins with `prefix` (any text; "" for all), in the order of their bytes. *entries lies in the
 * arena. What has a name that objects cannot have is left out. */
LEAT_CHECKED bool objects_list(struct objects *objects, struct str prefix, struct arena *arena,
                               struct objects_entry **entries, uint32_t *count, struct diag_list *diags);
/* Deletes an object; one that is not there is no error. */
LEAT_CHECKED bool objects_delete(struct objects *objects, struct str name, struct diag_list *diags);
/* Removes what unfinished puts below the URL, older than age_us, have left: parts that nobody sees and everybody pays for. *count:
 * how many puts. */
LEAT_CHECKED bool objects_abandon(struct objects *objects, int64_t age_us, uint32_t *count,
                                  struct diag_list *diags);

/* The call in work, and all later ones, fail within about a second, without another request. Any thread. */
void objects_cancel(struct objects *objects);

struct objects_stats {
    uint64_t bytes_up, bytes_down; /* of bodies, tries that failed included */
    uint64_t requests, retries;    /* requests include retries; of `file:`, calls */
};
/* Any thread. */
void objects_stats(const struct objects *objects, struct objects_stats *stats);

#endif
