/* Inside serve/: the messages between a mirror and an offer (serve/link.h).
 *
 *     GET /link/v1/checkpoint?job=NAME&fingerprint=F[&have=G-E&run=R][&want=1]
 *     GET /link/v1/file?job=NAME&fingerprint=F&pack=P&file=N&offset=X
 *     GET /link/v1/log?job=NAME&fingerprint=F&generation=G&segment=S&offset=X
 *
 * `checkpoint` answers the newest checkpoint as a list of files, a line "BYTES CHANGED NAME" each, which are open under the number
 * `pack` until nobody has asked for them for LINK_PACK_US; `want` asks the job for a new checkpoint. `file` answers bytes of
 * such a file, `log` bytes of a segment of the delta log, and waits for them for LINK_WAIT_MS. Answers have a struct
 * link_head before their bytes. Refusals are a status of 4xx or 5xx with a text. */
#ifndef LEAT_SERVE_LINK_FORMAT_H
#define LEAT_SERVE_LINK_FORMAT_H

#include "core/buffer.h"
#include "state/checkpoint.h"

#define LINK_PATH    "/link/v1/" /* with the version */
#define LINK_PACK_US (60 * INT64_C(1000000))

enum {
    LINK_BYTES_MAX = 1 << 20, /* of a file or a segment in an answer */
    LINK_LIST_MAX = 64 << 20, /* of a list of files */
    LINK_FILES_MAX = 1 << 20, /* in a list */
    LINK_NAME_MAX = 1024,     /* bytes of a name */
    LINK_WAIT_MS = 500,       /* for bytes of the log */
    LINK_RUN_DIGITS = 32,
};

enum link_kind { LINK_NONE, LINK_CHECKPOINT, LINK_FILE, LINK_LOG };

enum {
    LINK_SAME = 1,     /* checkpoint: the mirror has it */
    LINK_WRITTEN = 2,  /* log: a process writes it */
    LINK_GONE = 4,     /* log: what was asked for is not there; the copy begins anew */
    LINK_COMPLETE = 8, /* log: the segment ends behind these bytes */
    LINK_NEXT = 16,    /* log: the next segment's file is there */
};

/* Words are little-endian. */
struct link_head {
    char magic[8];
    uint64_t digest; /* xxh3-64 of all that follows, the bytes behind the head included */
    uint32_t kind, flags;
    uint32_t generation;       /* checkpoint, log: of the answer; 0: there is none */
    uint32_t length;           /* of the bytes behind the head */
    uint64_t place;            /* checkpoint: the epoch; file: its number; log: the segment */
    uint64_t offset;           /* checkpoint: the pack's number; else of the first byte */
    char run[LINK_RUN_DIGITS]; /* checkpoint: the run's id, as digits */
};

_Static_assert(sizeof(struct link_head) == 80, "heads are sent as they are");

/* Sets magic, length and digest of the head. */
void link_head_seal(struct link_head *head, struct str bytes);
/* Checks an answer's body and reads its head; *bytes: what is behind it. NULL, or a static text: what is wrong. */
const char *link_head_open(struct str body, enum link_kind kind, struct link_head *head, struct str *bytes);

/* What a request says; texts point into the query. A number that is missing is 0. */
struct link_ask {
    enum link_kind kind;
    struct str job, fingerprint, run;
    struct checkpoint_id have;
    uint32_t generation;
    uint64_t pack, file, segment, offset;
    bool wants;
};

/* false: the path or the query is not one of those above. */
bool link_ask_parse(struct str path, struct str query, struct link_ask *ask);
/* Appends the path and the query. */
void link_ask_write(const struct link_ask *ask, struct byte_buffer *out);

/* A file of a list. */
struct link_file {
    struct str name;
    uint64_t bytes;
    int64_t
        changed_us; /* wall clock: of the last change of its bytes; 0: of a checkpoint, which never changes */
};

void link_list_add(struct byte_buffer *list, const struct link_file *file);
/* Takes the first file off the list; false: *list is empty, or is none: *is_good. */
bool link_list_take(struct str *list, struct link_file *file, bool *is_good);
/* Whether a name is one that a mirror may write: "gen-N/ckpt-N/FILE" or "tables/FILE", without dots at the beginning of a
 * part. */
bool link_name_is_good(struct str name);
/* The bytes of "gen-N/ckpt-N" in a name of a checkpoint's file; 0: it is of another file. */
size_t link_name_checkpoint(struct str name);

#endif
