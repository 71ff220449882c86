#include "run/base/spill.h"

#include "core/os.h"
#include "core/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum { FORGET_BYTES = 4 << 20 };

void spill_init(struct spill_file *file)
{
    *file = (struct spill_file){.fd = -1};
}

void spill_free(struct spill_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
}

bool spill_take_room(struct run *run, size_t bytes)
{
    size_t before = atomic_fetch_add_explicit(&run->waiting_bytes, bytes, memory_order_relaxed);
    if (likely(before + bytes <= run->waiting_budget))
        return true;
    spill_give_room(run, bytes);
    return false;
}

void spill_give_room(struct run *run, size_t bytes)
{
    atomic_fetch_sub_explicit(&run->waiting_bytes, bytes, memory_order_relaxed);
}

static void failed(struct run *run, int error)
{
    pthread_mutex_lock(&run->diags_mutex);
    struct diag *d =
        diag_error(run->diags, DIAG_DISK_FULL, (struct span){0},
                   "rows between the job's steps exceed the memory budget, and their spill file fails");
    diag_errno(run->diags, d, error);
    diag_hint(run->diags, d, "free space, set TMPDIR to a larger disk, or raise `memory:`");
    pthread_mutex_unlock(&run->diags_mutex);
    run_fail(run);
}

bool spill_write(struct run *run, struct spill_file *file, struct str bytes, uint64_t *offset)
{
    if (file->fd < 0)
        file->fd = temporary_file(temporary_root());
    if (file->fd < 0) {
        failed(run, errno);
        return false;
    }
    if (atomic_load_explicit(&file->outstanding, memory_order_acquire) == 0)
        file->end = 0;
    int error = os_pwrite_all(file->fd, bytes.data, bytes.length, file->end, "spill.write");
    *offset = file->end;
    file->end += bytes.length;
    if (error != 0) {
        failed(run, error);
        return false;
    }
    atomic_fetch_add(&file->outstanding, 1);
    atomic_fetch_add_explicit(&run->spilled_bytes, bytes.length, memory_order_relaxed);
    return true;
}

bool spill_read(struct run *run, struct spill_file *file, uint64_t offset, size_t bytes, char *to,
                size_t *got)
{
    int error = os_pread_all(file->fd, to, bytes, offset, got);
    if (error != 0)
        failed(run, error);
    return error == 0;
}

void spill_forget(struct spill_file *file, uint64_t offset)
{
    if (offset < file->forgotten)
        file->forgotten = 0; /* the file was written from its beginning again */
    if (offset - file->forgotten < FORGET_BYTES)
        return;
    /* A file system that cannot do that keeps the bytes until the file is empty. */
    (void)fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)file->forgotten,
                    (off_t)(offset - file->forgotten));
    file->forgotten = offset;
}

void spill_done(struct spill_file *file)
{
    atomic_fetch_sub_explicit(&file->outstanding, 1, memory_order_release);
}

void spill_damaged(struct run *run, uint64_t offset, size_t bytes, const char *what)
{
    pthread_mutex_lock(&run->diags_mutex);
    struct diag *d =
        diag_error(run->diags, DIAG_FILE_DAMAGED, (struct span){0},
                   "rows between the job's steps came back damaged from their spill file: its %zu bytes from "
                   "byte %llu on are no %s",
                   bytes, (unsigned long long)offset, what);
    diag_at(run->diags, d, temporary_root(), -1, -1);
    diag_hint(
        run->diags, d,
        "check the disk of this directory, where leat's spill files have no names; set TMPDIR to another one, or "
        "raise `memory:`, and start the job again");
    pthread_mutex_unlock(&run->diags_mutex);
    run_fail(run);
}
