#include "core/delta_log_format.h"
#include "core/mem.h"
#include "core/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_BYTES = 64 << 10, KEEP_BYTES = 64 << 20, ASK_US = 100 * 1000 };

struct delta_tail {
    char *directory;
    uint32_t generation;
    int fd;             /* the segment that is read; -1: none was found yet */
    uint64_t segment;   /* its number */
    bool has_head;      /* its head was read */
    uint64_t read_from; /* offset in the segment behind what is in `data` */
    uint64_t digest;    /* of the entry before, or of the segment's head */
    struct delta_segment_head head;

    char *data; /* bytes [at, end) are still to be taken */
    size_t at, end, room;

    int64_t asked_us;               /* monotonic: when the writer's sign of life was looked at; 0: never */
    enum delta_tail_status verdict; /* DELTA_NOTHING_YET: it goes on */
    const char *why;
};

/* --- Bytes of the segment --- */

/* Bytes that the segment still holds, read or not; *is_removed: its file has no name any more. */
static uint64_t bytes_left(const struct delta_tail *tail, bool *is_removed)
{
    struct stat info;
    if (fstat(tail->fd, &info) != 0)
        return 0;
    *is_removed = info.st_nlink == 0;
    uint64_t unread = (uint64_t)info.st_size > tail->read_from ? (uint64_t)info.st_size - tail->read_from : 0;
    return unread + (tail->end - tail->at);
}

/* Makes room for `bytes` from `at` on. Memory that one large entry has taken is given back. */
static void make_room(struct delta_tail *tail, size_t bytes)
{
    size_t held = tail->end - tail->at;
    if (held > 0)
        memmove(tail->data, tail->data + tail->at, held);
    tail->at = 0;
    tail->end = held;
    bool is_large = tail->room > KEEP_BYTES && bytes <= READ_BYTES;
    if (bytes <= tail->room && !is_large)
        return;
    tail->room = is_large ? MAX(bytes, held) : MAX(bytes, MIN(tail->room * 2, (size_t)KEEP_BYTES));
    tail->data = mem_realloc(tail->data, tail->room);
}

/* Whether `bytes` are there to be taken; reads them. Asks for no more memory than the file has bytes. */
static bool has_bytes(struct delta_tail *tail, size_t bytes)
{
    if (tail->end - tail->at >= bytes)
        return true;
    bool is_removed;
    if (bytes > READ_BYTES && bytes_left(tail, &is_removed) < bytes)
        return false;
    if (tail->room - tail->at < MAX(bytes, (size_t)READ_BYTES))
        make_room(tail, MAX(bytes, (size_t)READ_BYTES));
    while (tail->end - tail->at < bytes) {
        ssize_t got = read(tail->fd, tail->data + tail->end, tail->room - tail->end);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        tail->end += (size_t)got;
        tail->read_from += (uint64_t)got;
    }
    return true;
}

/* --- Segments --- */

static enum delta_tail_status damaged(struct delta_tail *tail, const char *why)
{
    tail->why = why;
    return tail->verdict = DELTA_DAMAGED;
}

/* Goes on to the segment. false: there is no such file. */
static bool open_segment(struct delta_tail *tail, uint64_t segment)
{
    char path[DELTA_PATH_BYTES];
    if (!delta_segment_path(tail->directory, tail->generation, segment, path))
        return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return false;
    if (tail->fd >= 0)
        close(tail->fd);
    tail->fd = fd;
    tail->segment = segment;
    tail->has_head = false;
    tail->at = tail->end = 0;
    tail->read_from = 0;
    return true;
}

/* Opens the oldest segment; it may be dropped between the look and the opening. */
static bool open_oldest(struct delta_tail *tail)
{
    enum { TRIES = 16 };
    for (int i = 0; i < TRIES; i++) {
        uint64_t oldest = delta_log_oldest(tail->directory, tail->generation);
        if (oldest == 0)
            return false;
        if (open_segment(tail, oldest))
            return true;
    }
    return false;
}

static enum delta_tail_status take_head(struct delta_tail *tail)
{
    if (!has_bytes(tail, sizeof(tail->head)))
        return DELTA_NOTHING_YET;
    struct delta_segment_head head;
    memcpy(&head, tail->data + tail->at, sizeof(head));
    if (memcmp(head.magic, DELTA_MAGIC, sizeof(head.magic) - 1) != 0)
        return damaged(tail, "it is not a segment of a delta log");
    if (memcmp(head.magic, DELTA_MAGIC, sizeof(head.magic)) != 0)
        return damaged(tail, "it is a segment of another version of leat");
    if (head.digest != delta_segment_digest(&head))
        return damaged(tail, "the digest of a segment's head does not match its bytes");
    if (head.generation != tail->generation || head.segment != tail->segment ||
        head.run_length > DELTA_RUN_MAX)
        return damaged(tail, "a segment is not the one that its name says");
    tail->at += sizeof(head);
    tail->head = head;
    tail->digest = head.digest;
    tail->has_head = true;
    return DELTA_ENTRY;
}

/* --- Entries --- */

/* Takes the next entry from the segment: DELTA_NOTHING_YET: it is not there in full. */
static enum delta_tail_status take_entry(struct delta_tail *tail, struct delta_entry *entry)
{
    struct delta_entry_head head;
    if (!has_bytes(tail, sizeof(head)))
        return DELTA_NOTHING_YET;
    memcpy(&head, tail->data + tail->at, sizeof(head));
    if (head.check != delta_entry_check(&head, tail->digest))
        return damaged(tail, "the check of an entry's head does not match its bytes");
    if (head.length > DELTA_ENTRY_MAX || head.zero != 0 ||
        (head.kind > DELTA_KIND_MAX && head.kind != DELTA_KIND_NEXT && head.kind != DELTA_KIND_CLOSED))
        return damaged(tail, "an entry's head is invalid");
    size_t bytes = sizeof(head) + delta_padded(head.length);
    if (!has_bytes(tail, bytes))
        return DELTA_NOTHING_YET;
    const char *at = tail->data + tail->at;
    uint64_t digest =
        XXH3_64bits_withSeed(at + DELTA_DIGESTED_FROM, bytes - DELTA_DIGESTED_FROM, tail->digest);
    if (head.digest != digest)
        return damaged(tail, "the digest of an entry does not match its bytes");
    tail->digest = digest;
    tail->at += bytes;
    *entry = (struct delta_entry){.kind = head.kind,
                                  .part = head.part,
                                  .number = head.number,
                                  .time_us = head.time_us,
                                  .bytes = {at + sizeof(head), head.length}};
    return DELTA_ENTRY;
}

/* Takes what comes next, from this segment or the one behind it. */
static enum delta_tail_status take_next(struct delta_tail *tail, struct delta_entry *entry)
{
    if (tail->fd < 0 && !open_oldest(tail))
        return DELTA_NOTHING_YET;
    for (;;) {
        enum delta_tail_status status = tail->has_head ? DELTA_ENTRY : take_head(tail);
        if (status == DELTA_ENTRY)
            status = take_entry(tail, entry);
        if (status != DELTA_ENTRY || entry->kind <= DELTA_KIND_MAX)
            return status;
        if (entry->kind == DELTA_KIND_CLOSED)
            return tail->verdict = DELTA_CLOSED;
        /* The next segment's file was made before this entry was written. */
        if (!open_segment(tail, tail->segment + 1)) {
            tail->why = "the next segment was dropped";
            return tail->verdict = DELTA_GONE;
        }
    }
}

/* --- The end of the log --- */

/* Whether the writer of this generation lives; if not, *why says what is there instead. */
static enum delta_tail_status look_at_writer(const struct delta_tail *tail, const char **why)
{
    uint32_t generation;
    if (!delta_log_writer(tail->directory, &generation)) {
        *why = "no process writes the log";
        return DELTA_ENDED;
    }
    if (generation > tail->generation) {
        *why = "the log is of a later generation";
        return DELTA_GONE;
    }
    return DELTA_NOTHING_YET;
}

/* Whether the segment behind the open one has bytes: then the open one is complete. */
static bool next_has_begun(const struct delta_tail *tail)
{
    char path[DELTA_PATH_BYTES];
    return tail->fd >= 0 && delta_segment_path(tail->directory, tail->generation, tail->segment + 1, path) &&
           os_file_bytes(path) > 0;
}

/* What it means that nothing more is there, if still nothing is afterwards. */
static enum delta_tail_status look(struct delta_tail *tail, const char **why)
{
    bool is_removed = false;
    if (tail->fd >= 0)
        (void)bytes_left(tail, &is_removed);
    if (is_removed) {
        *why = "the segment was dropped before it was complete";
        return DELTA_GONE;
    }
    int64_t now_us = os_monotonic_us();
    if (tail->asked_us != 0 && now_us - tail->asked_us < ASK_US)
        return DELTA_NOTHING_YET;
    tail->asked_us = now_us;
    if (next_has_begun(tail)) {
        *why = "a segment ends before its last entry";
        return DELTA_DAMAGED;
    }
    return look_at_writer(tail, why);
}

enum delta_tail_status delta_tail_next(struct delta_tail *tail, struct delta_entry *entry)
{
    if (tail->verdict != DELTA_NOTHING_YET)
        return tail->verdict;
    enum delta_tail_status status = take_next(tail, entry);
    if (status != DELTA_NOTHING_YET)
        return status;
    const char *why = "";
    enum delta_tail_status verdict = look(tail, &why);
    if (verdict == DELTA_NOTHING_YET)
        return DELTA_NOTHING_YET;
    /* The writer may have written more before what the look has found. */
    status = take_next(tail, entry);
    if (status != DELTA_NOTHING_YET)
        return status;
    tail->why = why;
    return tail->verdict = verdict;
}

struct delta_tail *delta_tail_open(const char *directory, uint32_t generation, struct diag_list *diags)
{
    DIR *dir = opendir(directory);
    if (dir == NULL && errno != ENOENT) {
        struct diag *diag = diag_error(diags, DIAG_FILE_UNREADABLE, (struct span){0},
                                       "the delta log in %s cannot be read", directory);
        diag_errno(diags, diag, errno);
        return NULL;
    }
    if (dir != NULL)
        closedir(dir);
    struct delta_tail *tail = mem_calloc(1, sizeof(*tail));
    tail->directory = mem_strdup(directory);
    tail->generation = generation;
    tail->fd = -1;
    tail->verdict = DELTA_NOTHING_YET;
    tail->why = "";
    (void)open_oldest(tail);
    return tail;
}

struct str delta_tail_run(const struct delta_tail *tail)
{
    return (struct str){tail->head.run, tail->head.run_length};
}

const char *delta_tail_why(const struct delta_tail *tail)
{
    return tail->why;
}

void delta_tail_place(const struct delta_tail *tail, uint64_t *segment, uint64_t *offset)
{
    *segment = tail->segment;
    *offset = tail->read_from - (tail->end - tail->at);
}

void delta_tail_close(struct delta_tail *tail)
{
    if (tail == NULL)
        return;
    if (tail->fd >= 0)
        close(tail->fd);
    free(tail->data);
    free(tail->directory);
    free(tail);
}
