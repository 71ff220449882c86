/* Ends of the process that are not leat's own: a library calls exit, from a callback, from a thread of its
 * own, in a constructor or destructor. The run is not finished then, whatever status the library gave: leat
 * names the library and ends the process with a failure.
 *
 * exit, _exit, _Exit, quick_exit and pthread_exit are defined here and exported by the program, so a library
 * that calls them gets these. libc's own functions that end a process (errx, error) do not call these;
 * at_end, which libc runs before the end, catches them. Only a library that makes the system call itself, or
 * calls exec, which puts another program into the process, ends leat unseen. Processes that a library forks may
 * end as they like. */
#include "operators/user/user.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STATUS_FAILED = 1 };

extern const char __executable_start, etext;

static _Atomic pid_t watched; /* the process that uses libraries; 0: none */
static atomic_bool is_ending; /* leat's own end has begun */

/* --- Addresses of libraries --- */

enum { LIBRARIES_MAX = 64 };
static struct {
    uintptr_t begin, end;
    const char *path;
} ranges[LIBRARIES_MAX];
static _Atomic uint32_t ranges_count;

struct range_search {
    const char *path;
    uintptr_t symbol;
};

/* Notes the library's addresses, first to last of its loaded segments, if `symbol` is among them. */
static int add_range(struct dl_phdr_info *info, size_t size, void *argument)
{
    const struct range_search *search = argument;
    uintptr_t begin = UINTPTR_MAX, end = 0;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD) {
            uintptr_t at = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            begin = MIN(begin, at);
            end = MAX(end, at + info->dlpi_phdr[i].p_memsz);
        }
    uint32_t count = atomic_load(&ranges_count);
    if (search->symbol < begin || search->symbol >= end || count == LIBRARIES_MAX)
        return 0;
    ranges[count].begin = begin;
    ranges[count].end = end;
    ranges[count].path = search->path;
    atomic_store(&ranges_count, count + 1);
    return 1;
}

const char *user_library_at(const void *address)
{
    uintptr_t at = (uintptr_t)address;
    for (uint32_t i = 0, count = atomic_load(&ranges_count); i < count; i++)
        if (at >= ranges[i].begin && at < ranges[i].end)
            return ranges[i].path;
    return NULL;
}

/* The library that ended the process, as a call to report: the library of the callback that the thread is in,
 * else that of the caller's code, else the only library that is loaded. */
static struct user_call who(const void *caller)
{
    struct user_call call = user_called();
    if (call.library != NULL)
        return call;
    const char *path = user_library_at(caller);
    bool is_only = atomic_load(&ranges_count) == 1;
    return (struct user_call){path != NULL ? path
                              : is_only    ? ranges[0].path
                                           : "that the job uses",
                              "code outside of callbacks:", "threads and handlers"};
}

/* --- Refusing an end --- */

static bool is_foreign(const void *caller)
{
    pid_t pid = atomic_load(&watched);
    return pid != 0 && pid == getpid() &&
           !((const char *)caller >= &__executable_start && (const char *)caller < &etext);
}

static _Noreturn void end(int status)
{
    for (;;)
        syscall(SYS_exit_group, status);
}

static _Noreturn void refuse(const void *caller, const char *what)
{
    struct user_call call = who(caller);
    user_say(what, &call,
             "a library must not end the process: report an error, or return from the call; the checkpoints "
             "are not affected");
    end(STATUS_FAILED);
}

static _Noreturn void refuse_status(const void *caller, const char *function, int status)
{
    char what[64];
    snprintf(what, sizeof(what), "%s(%d)", function, status);
    refuse(caller, what);
}

/* Called when libc is about to end the process. */
static void at_end(void)
{
    if (atomic_load(&watched) == getpid() && !atomic_load(&is_ending))
        refuse(NULL, "the end of the process");
}

void user_watch_ends(void)
{
    /* Registered again after each library: the handler that was registered last runs first. */
    atomic_store(&watched, getpid());
    (void)atexit(at_end);
    (void)at_quick_exit(at_end);
}

void user_watch_library(const char *path, const void *symbol)
{
    struct range_search search = {path, (uintptr_t)symbol};
    (void)dl_iterate_phdr(add_range, &search);
    user_watch_ends();
}

void user_ended(void)
{
    bool is_only = atomic_load(&ranges_count) == 1;
    atomic_store(&is_ending, true);
    (void)fflush(NULL); /* flushed now, in case a destructor of a library ends the process */
    if (atomic_load(&watched) == getpid())
        user_set_called((struct user_call){is_only ? ranges[0].path : "that the job uses",
                                           "code at the end of the process:", "destructors"});
}

/* --- Replacements of libc's functions --- */

typedef void ends_status(int status);
typedef void ends_thread(void *value);

static void *libcs(const char *name)
{
    void *function = dlsym(RTLD_NEXT, name);
    if (function == NULL)
        end(STATUS_FAILED);
    return function;
}

__attribute__((noreturn)) void exit(int status)
{
    if (is_foreign(__builtin_return_address(0)))
        refuse_status(__builtin_return_address(0), "exit", status);
    ((ends_status *)libcs("exit"))(status);
    end(status); /* not reached */
}

__attribute__((noreturn)) void quick_exit(int status)
{
    if (is_foreign(__builtin_return_address(0)))
        refuse_status(__builtin_return_address(0), "quick_exit", status);
    ((ends_status *)libcs("quick_exit"))(status);
    end(status); /* not reached */
}

__attribute__((noreturn)) void _exit(int status)
{
    if (is_foreign(__builtin_return_address(0)))
        refuse_status(__builtin_return_address(0), "_exit", status);
    end(status);
}

__attribute__((noreturn, alias("_exit"))) void _Exit(int status);

/* Refused in callbacks only: threads that the library started may end. */
__attribute__((noreturn)) void pthread_exit(void *value)
{
    if (is_foreign(__builtin_return_address(0)) && user_called().library != NULL)
        refuse(__builtin_return_address(0), "pthread_exit()");
    ((ends_thread *)libcs("pthread_exit"))(value);
    end(STATUS_FAILED); /* not reached */
}
