#include "control/history_internal.h"

#include "core/mem.h"
#include "core/os.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { ALIGN = 32, NAMES_BYTES_MAX = 1 << 20 };
static const uint64_t SECONDS_MAX = UINT64_C(1) << 60; /* of all lives */
static const char MAGIC[8] = "leathist";

/* In front of the file. Behind it: of each column its meaning (4 bytes), the bytes of its name (4 bytes), the name. */
struct history_head {
    char magic[8];
    uint32_t version, columns, row_bytes, names_bytes, rows[HISTORY_RINGS], unused;
    uint64_t digest; /* of the head with 0 here, and the names */
};

_Static_assert(sizeof(struct row) == ALIGN && sizeof(struct history_head) == 48,
               "these are written as they are");

static uint64_t head_digest(struct history_head head, const char *names)
{
    head.digest = 0;
    uint64_t seed = XXH3_64bits(&head, sizeof(head));
    return XXH3_64bits_withSeed(names, head.names_bytes, seed);
}

static size_t head_bytes_of(const struct history_head *head)
{
    return (sizeof(*head) + head->names_bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static void put_head(const struct history *history, struct byte_buffer *out)
{
    struct byte_buffer names = {0};
    for (uint32_t i = 0; i < history->columns_count; i++) {
        uint32_t numbers[2] = {history->columns[i].meaning, (uint32_t)strlen(history->columns[i].name)};
        buffer_append(&names, numbers, sizeof(numbers));
        buffer_append(&names, history->columns[i].name, numbers[1]);
    }
    struct history_head head = {.version = HISTORY_VERSION,
                                .columns = history->columns_count,
                                .row_bytes = (uint32_t)history->row_bytes,
                                .names_bytes = (uint32_t)names.length};
    memcpy(head.magic, MAGIC, sizeof(head.magic));
    for (uint32_t i = 0; i < HISTORY_RINGS; i++)
        head.rows[i] = history_rings[i].rows;
    head.digest = head_digest(head, names.data);
    buffer_append(out, &head, sizeof(head));
    buffer_append(out, names.data, names.length);
    memset(buffer_reserve(out, ALIGN), 0, ALIGN);
    out->length = head_bytes_of(&head);
    buffer_free(&names);
}

/* An old file, while it is read. */
struct old {
    int fd;
    struct history_head head;
    char *names;
    size_t head_bytes;
    uint32_t column[HISTORY_COLUMNS_MAX]; /* this history's column for each of the file's; UINT32_MAX: none */
    uint32_t damaged;                     /* rows that were left out */
};

/* What is wrong with the head; NULL: nothing. */
static const char *read_head(struct old *old)
{
    struct stat info;
    size_t got;
    struct history_head *head = &old->head;
    if (fstat(old->fd, &info) != 0 || !S_ISREG(info.st_mode))
        return "it is no regular file";
    if (os_pread_all(old->fd, head, sizeof(*head), 0, &got) != 0 || got < sizeof(*head) ||
        memcmp(head->magic, MAGIC, sizeof(MAGIC)) != 0)
        return "it does not begin as a history does";
    if (head->version != HISTORY_VERSION)
        return "another version of leat wrote it";
    if (head->columns == 0 || head->columns > HISTORY_COLUMNS_MAX || head->names_bytes > NAMES_BYTES_MAX ||
        head->row_bytes != sizeof(struct row) + head->columns * HISTORY_FIGURES * sizeof(float))
        return "its head is damaged";
    for (uint32_t i = 0; i < HISTORY_RINGS; i++)
        if (head->rows[i] != history_rings[i].rows)
            return "its rings have other sizes";
    old->head_bytes = head_bytes_of(head);
    if ((uint64_t)info.st_size != old->head_bytes + history_rows_bytes(head->row_bytes, HISTORY_RINGS, 0))
        return "its size is not what its head says";
    old->names = mem_alloc(MAX(head->names_bytes, 1U));
    if (os_pread_all(old->fd, old->names, head->names_bytes, sizeof(*head), &got) != 0 ||
        got < head->names_bytes || head_digest(*head, old->names) != head->digest)
        return "its head is damaged";
    return NULL;
}

/* Finds this history's columns in the file. False: the names do not fill what the head says. */
static bool match_columns(const struct history *history, struct old *old)
{
    size_t at = 0;
    for (uint32_t c = 0; c < old->head.columns; c++) {
        uint32_t numbers[2];
        old->column[c] = UINT32_MAX;
        if (old->head.names_bytes - at < sizeof(numbers))
            return false;
        memcpy(numbers, old->names + at, sizeof(numbers));
        at += sizeof(numbers);
        if (old->head.names_bytes - at < numbers[1])
            return false;
        struct str name = {old->names + at, numbers[1]};
        at += numbers[1];
        for (uint32_t i = 0; i < history->columns_count && old->column[c] == UINT32_MAX; i++)
            if (history->columns[i].meaning == numbers[0] && str_is(name, history->columns[i].name))
                old->column[c] = i;
    }
    return at == old->head.names_bytes;
}

struct found {
    uint64_t tick;
    uint32_t slot;
};

static int compare_ticks(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    return (x->tick > y->tick) - (x->tick < y->tick);
}

/* Reads a row of the file. False: it cannot be read, or is damaged. seconds 0: there is none. */
static bool read_row(const struct old *old, uint32_t ring, uint32_t slot, struct row *row)
{
    size_t got;
    uint64_t offset = old->head_bytes + history_rows_bytes(old->head.row_bytes, ring, slot);
    if (os_pread_all(old->fd, row, old->head.row_bytes, offset, &got) != 0 || got < old->head.row_bytes)
        return false;
    if (row->digest == 0 && row->seconds == 0)
        return true;
    return row->digest == history_row_digest(row, old->head.row_bytes, ring, slot) &&
           row->tick < SECONDS_MAX / history_rings[ring].seconds && row->covers > 0 &&
           row->covers <= row->tick + 1 && row->seconds > 0 && row->seconds <= HISTORY_ROWS_MAX;
}

/* The file's whole rows of a ring, in the order of ticks, into this history's ring. */
static void take_ring(struct history *history, struct old *old, uint32_t ring, struct row *row)
{
    uint32_t count = 0, damaged = 0, rows = history_rings[ring].rows;
    struct found *found = mem_calloc(rows, sizeof(*found));
    bool *is_damaged = mem_calloc(rows, sizeof(*is_damaged));
    for (uint32_t slot = 0; slot < rows; slot++) {
        is_damaged[slot] = !read_row(old, ring, slot, row);
        damaged += is_damaged[slot];
        if (!is_damaged[slot] && row->seconds > 0)
            found[count++] = (struct found){row->tick, slot};
    }
    qsort(found, count, sizeof(*found), compare_ticks);
    uint32_t behind = count == 0 ? 0 : (found[count - 1].slot + 1) % rows;
    old->damaged +=
        damaged - is_damaged[behind]; /* the row behind the newest was torn by the end of the process */
    for (uint32_t i = 0; i < count; i++) {
        if ((i > 0 && found[i].tick == found[i - 1].tick) || !read_row(old, ring, found[i].slot, row))
            continue;
        struct row *mine = history_row_begin(history, ring);
        memcpy(mine, row, sizeof(*row));
        for (size_t v = 0; v < (size_t)history->columns_count * HISTORY_FIGURES; v++)
            mine->values[v] = NAN;
        for (uint32_t c = 0; c < old->head.columns; c++)
            if (old->column[c] != UINT32_MAX)
                memcpy(mine->values + old->column[c] * HISTORY_FIGURES, row->values + c * HISTORY_FIGURES,
                       HISTORY_FIGURES * sizeof(float));
        history_row_end(history, ring, mine);
    }
    free(found);
    free(is_damaged);
}

/* Takes over what an earlier life left. */
void history_file_load(struct history *history, struct byte_buffer *said)
{
    struct old old = {.fd = open(history->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
    if (old.fd < 0 && errno == ENOENT)
        return;
    const char *wrong = old.fd < 0 ? strerror(errno) : read_head(&old);
    if (wrong == NULL && !match_columns(history, &old))
        wrong = "its head is damaged";
    if (wrong == NULL) {
        struct row *row = mem_aligned(ALIGN, old.head.row_bytes);
        for (uint32_t ring = 0; ring < HISTORY_RINGS; ring++)
            take_ring(history, &old, ring, row);
        free(row);
    } else {
        buffer_printf(said, "the run's history begins anew: %s cannot be used, because %s\n", history->path,
                      wrong);
    }
    if (old.damaged > 0)
        buffer_printf(said,
                      "%u rows of the run's history are damaged, and left out as gaps (%s); check the disk\n",
                      old.damaged, history->path);
    free(old.names);
    if (old.fd >= 0)
        close(old.fd);
}

static void lose_file(struct history *history, int error, struct byte_buffer *said)
{
    buffer_printf(said,
                  "%s cannot be written: %s; the run goes on, and its history is kept in memory until the "
                  "process ends\n",
                  history->path, strerror(error));
    pthread_mutex_lock(&history->mutex);
    history->is_on_disk = false;
    pthread_mutex_unlock(&history->mutex);
    if (history->fd >= 0)
        close(history->fd);
    history->fd = -1;
}

static int write_row(const struct history *history, uint32_t ring, uint64_t index)
{
    uint64_t slot = index % history_rings[ring].rows;
    return os_pwrite_all(history->fd, history_row(history, ring, index), history->row_bytes,
                         history->head_bytes + history_rows_bytes(history->row_bytes, ring, slot),
                         "history.write");
}

/* Writes the file that replaces the old one. Returns 0 or an errno. */
static int write_file(struct history *history, const char *temporary)
{
    struct byte_buffer head = {0};
    put_head(history, &head);
    history->head_bytes = head.length;
    if (unlink(temporary) != 0 && errno != ENOENT)
        return errno;
    history->fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (history->fd < 0)
        return errno;
    uint64_t bytes = history->head_bytes + history_rows_bytes(history->row_bytes, HISTORY_RINGS, 0);
    int error =
        ftruncate(history->fd, (off_t)bytes) != 0 ? errno : 0; /* rows that are not there take no disk */
    if (error == 0)
        error = os_pwrite_all(history->fd, head.data, head.length, 0, "history.write");
    for (uint32_t ring = 0; ring < HISTORY_RINGS; ring++) {
        for (uint64_t i = history_oldest(history, ring); i < history->rings[ring].count && error == 0; i++)
            error = write_row(history, ring, i);
        history->rings[ring].dirty = HISTORY_NO_SLOT;
    }
    if (error == 0)
        error = os_rename(temporary, history->path, NULL);
    buffer_free(&head);
    return error;
}

void history_file_begin(struct history *history, struct byte_buffer *said)
{
    char *temporary = mem_printf("%s.tmp", history->path);
    int error = write_file(history, temporary);
    history->is_on_disk = error == 0;
    if (error != 0) {
        (void)unlink(temporary);
        lose_file(history, error, said);
    }
    free(temporary);
}

void history_file_write(struct history *history, struct byte_buffer *said)
{
    int error = 0;
    for (uint32_t ring = 0; ring < HISTORY_RINGS; ring++) {
        if (history->rings[ring].dirty != HISTORY_NO_SLOT && history->fd >= 0 && error == 0)
            error = write_row(history, ring, (uint64_t)history->rings[ring].dirty);
        history->rings[ring].dirty = HISTORY_NO_SLOT;
    }
    if (error != 0)
        lose_file(history, error, said);
}
