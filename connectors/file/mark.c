/* Checks at a resume that the files are those that were read.
 *
 * A mark holds one digest of names, sizes and ends of the files before the file being read; and of the file
 * being read its name, its size when the job began, and digests of both its ends (core/file_ends.h) within that
 * size. So files may be moved to another directory, the file being read may have grown, and new files may
 * follow it. A file that was read and then replaced by another is refused; changed bytes in the middle of a
 * file are not noticed. */
#include "connectors/file/mark.h"

#include "core/file_ends.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

struct mark {
    uint64_t before, copied; /* copied: digest of all files, for a position in a sorted copy; else 0 */
    uint64_t name, head, tail;
    int64_t size;
    uint64_t has_file; /* 0: the position is behind the last file */
};

static uint64_t name_digest(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    return XXH3_64bits(name, strlen(name));
}

void mark_before(const struct path_list *list, struct file_facts *facts)
{
    for (uint32_t i = 0; i < list->count; i++) {
        uint64_t words[5] = {facts[i].before, name_digest(list->paths[i]), (uint64_t)facts[i].size,
                             facts[i].head, facts[i].tail};
        facts[i + 1].before = XXH3_64bits(words, sizeof(words)) | 1;
    }
}

size_t mark_make(const struct path_list *list, const struct file_facts *facts, uint32_t file,
                 char out[SOURCE_MARK_BYTES])
{
    struct mark mark = {.before = facts[file].before};
    if (file < list->count) {
        mark.name = name_digest(list->paths[file]);
        mark.head = facts[file].head;
        mark.tail = facts[file].tail;
        mark.size = facts[file].size;
        mark.has_file = 1;
    }
    memcpy(out, &mark, sizeof(mark));
    return sizeof(mark);
}

static bool refuse(const struct mark_place *place, const char *path, const char *what)
{
    struct diag *d = diag_error(place->diags, DIAG_FILE_CHANGED, place->span, "`%s` %s", path, what);
    diag_at(place->diags, d, path, -1, -1);
    diag_hint(
        place->diags, d,
        "restore the files as they were when the checkpoint was taken, or start anew with --fresh; only the "
        "file being read may have grown, and new files may follow it in order of name");
    return false;
}

size_t mark_make_copy(uint64_t files, int64_t bytes, char out[SOURCE_MARK_BYTES])
{
    struct mark mark = {.copied = files, .size = bytes, .has_file = 1};
    memcpy(out, &mark, sizeof(mark));
    return sizeof(mark);
}

static bool read_mark(const char *name, struct str saved, struct mark *mark, const struct mark_place *place)
{
    if (saved.length != sizeof(*mark))
        return refuse(place, name, "has a mark in the checkpoint that was not written by a file source");
    memcpy(mark, saved.data, sizeof(*mark));
    return true;
}

bool mark_compare_copy(const char *name, uint64_t files, int64_t bytes, struct str saved,
                       const struct mark_place *place)
{
    struct mark mark;
    if (!read_mark(name, saved, &mark, place))
        return false;
    return (mark.copied == files && mark.size == bytes) ||
           refuse(place, name,
                  "does not give the same files as when the checkpoint was taken: with `order_by` every file "
                  "must be unchanged");
}

bool mark_compare(const struct path_list *list, const struct file_facts *facts, uint32_t file,
                  struct str saved, const struct mark_place *place)
{
    struct mark mark;
    if (!read_mark(list->name, saved, &mark, place))
        return false;
    if (mark.copied != 0)
        return refuse(place, list->name,
                      "was read with `order_by` when the checkpoint was taken, and now is read without");
    if (file > list->count || mark.before != facts[file].before)
        return refuse(place, file > 0 && file <= list->count ? list->paths[file - 1] : list->name,
                      "or a file before it has changed since it was read: a file was replaced, renamed, "
                      "added or removed");
    if (mark.has_file == 0)
        return true;
    if (file == list->count)
        return refuse(place, list->name, "no longer includes the file that was being read");
    const char *path = list->paths[file];
    if (mark.name != name_digest(path))
        return refuse(place, path, "has taken the place of the file that was being read");
    if (facts[file].size < mark.size)
        return refuse(place, path, "is shorter than the file that was being read");
    uint64_t head = 0, tail = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        file_ends(fd, mark.size, &head, &tail);
        close(fd);
    }
    if (head != mark.head || tail != mark.tail)
        return refuse(place, path, "is not the file that was being read: its contents differ");
    return true;
}
