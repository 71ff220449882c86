#include "core/refused.h"

#include "core/diag.h"
#include "core/log_line.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucontext.h>
#include <unistd.h>

enum {
    STACK_BYTES = 2 << 20,
    MAIN_STACK_BYTES = 8 << 20,
    PROBE_BYTES = 8 << 20,
    DESCRIPTORS_MAX = 1 << 16,
    FRAMES_MAX = 24,
    LAST_WORDS_S = 5
};

/* The diagnostic code as text: programs that need only embedding tables link this file without diag.c. */
static const char code_text[] = "E0803";
_Static_assert(DIAG_MEMORY_REFUSED != DIAG_NONE, "the code is one of diag_codes.def");

static _Atomic int64_t budget_bytes;

/* Defined in refused_cxx.cpp. */
void refused_init_cxx(void);

/* --- The message: built and written in one piece, without allocation --- */

struct message {
    char text[1024]; /* a longer message is cut */
    size_t length;
};

static void add(struct message *message, const char *text)
{
    while (*text != '\0' && message->length < sizeof(message->text))
        message->text[message->length++] = *text++;
}

/* Appends a size like "118 MiB". */
static void add_bytes(struct message *message, size_t bytes)
{
    static const char *const units[] = {" bytes", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
    size_t unit = 0;
    for (; bytes >= 10000 && unit + 1 < ARRAY_COUNT(units); unit++)
        bytes = (bytes + 512) / 1024;
    char digits[24];
    size_t at = sizeof(digits);
    digits[--at] = '\0';
    do
        digits[--at] = (char)('0' + bytes % 10);
    while ((bytes /= 10) > 0);
    add(message, digits + at);
    add(message, units[unit]);
}

/* Bytes of this process: its whole address space, or the resident part; 0: not known. */
static size_t own_bytes(bool is_resident)
{
    char text[128];
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    size_t pages[2] = {0, 0}, at = 0;
    for (ssize_t i = 0; i < length && at < 2; i++)
        if (text[i] >= '0' && text[i] <= '9')
            pages[at] = pages[at] * 10 + (size_t)(text[i] - '0');
        else
            at++;
    return pages[is_resident] * (size_t)sysconf(_SC_PAGESIZE);
}

static size_t limit_of(int resource)
{
    struct rlimit limit;
    return getrlimit((__rlimit_resource_t)resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY
               ? SIZE_MAX
               : (size_t)limit.rlim_cur;
}

static _Noreturn void end(const struct message *message)
{
    log_last(LOG_LEVEL_ERROR, (struct str){message->text, message->length});
    _exit(EXIT_REFUSED);
}

/* Lets only the first thread write a message; other threads wait here for the end of the process. */
static void be_the_one(void)
{
    static atomic_flag is_said = ATOMIC_FLAG_INIT;
    while (atomic_flag_test_and_set(&is_said))
        pause();
}

static void begin(struct message *message)
{
    add(message, "\nleat: error[");
    add(message, code_text);
    add(message, "]: the system refused ");
}

static void add_ways_out(struct message *message)
{
    int64_t budget = atomic_load(&budget_bytes);
    add(message,
        "\nhint: raise what `ulimit -a` or the container's memory limit allows, or stop other programs");
    if (budget > 0) {
        add(message, "; or lower `memory:` of the job, which is ");
        add_bytes(message, (size_t)budget);
        add(message, ", or its `workers:`");
    }
    add(message, "; checkpoints are kept\n");
}

void refused_memory(size_t bytes)
{
    be_the_one();
    struct message message = {.length = 0};
    size_t limit = limit_of(RLIMIT_AS);
    begin(&message);
    if (bytes > 0)
        add_bytes(&message, bytes);
    else
        add(&message, "a library");
    add(&message, bytes > 0 ? " of memory: this process has " : " memory: this process has ");
    add_bytes(&message, own_bytes(true));
    add(&message, " resident, and ");
    add_bytes(&message, own_bytes(false));
    add(&message, " of address space");
    if (limit != SIZE_MAX) {
        add(&message, " of the ");
        add_bytes(&message, limit);
        add(&message, " that are allowed (ulimit -v)");
    }
    add_ways_out(&message);
    end(&message);
}

void refused_other(const char *what, const char *why)
{
    be_the_one();
    struct message message = {.length = 0};
    begin(&message);
    add(&message, what);
    if (why != NULL) {
        add(&message, ": ");
        add(&message, why);
    }
    add_ways_out(&message);
    end(&message);
}

void refused_unless_begun(int error)
{
    if (error != 0)
        refused_other("a thread", strerror(error));
}

void refused_budget(int64_t memory_bytes)
{
    atomic_store(&budget_bytes, memory_bytes);
}

size_t refused_space_left(void)
{
    size_t limit = limit_of(RLIMIT_AS), taken = own_bytes(false);
    return limit == SIZE_MAX ? SIZE_MAX : limit > taken ? limit - taken : 0;
}

/* --- Libraries that end the process --- */

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

/* Whether the system still refuses memory. Many libraries abort, or use a null pointer, when an allocation
 * fails; if memory is refused now, that was the likely cause of the signal. */
static bool is_out_of_memory(void)
{
    void *probe = mmap(NULL, PROBE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (probe == MAP_FAILED)
        return true;
    munmap(probe, PROBE_BYTES);
    return false;
}

static void add_hex(struct message *message, uintptr_t number)
{
    char digits[2 * sizeof(number) + 1];
    size_t at = sizeof(digits) - 1;
    digits[at] = '\0';
    do
        digits[--at] = "0123456789abcdef"[number % 16];
    while ((number /= 16) > 0);
    add(message, digits + at);
}

/* The calls that led here, as `file+0xOFFSET` each, for addr2line. */
static void add_places(struct message *message)
{
    void *frames[FRAMES_MAX];
    int count = backtrace(frames, FRAMES_MAX);
    for (int i = 0; i < count; i++) {
        Dl_info found;
        if (dladdr(frames[i], &found) == 0 || found.dli_fname == NULL)
            continue;
        const char *name = strrchr(found.dli_fname, '/');
        add(message, " ");
        add(message, name == NULL ? found.dli_fname : name + 1);
        add(message, "+0x");
        add_hex(message, (uintptr_t)frames[i] - (uintptr_t)found.dli_fbase);
    }
}

/* The instruction and the address of the signal, without a look at the stack or the loader. */
static void add_origin(struct message *message, const siginfo_t *info, const void *context)
{
    extern const char __executable_start[], etext[];
    uintptr_t at = 0;
#ifdef __x86_64__
    at = (uintptr_t)((const ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#else
    (void)context;
#endif
    bool is_own = at >= (uintptr_t)__executable_start && at < (uintptr_t)etext;
    add(message, is_own ? " leat+0x" : " instruction 0x");
    add_hex(message, is_own ? at - (uintptr_t)__executable_start : at);
    add(message, ", address 0x");
    add_hex(message, (uintptr_t)info->si_addr);
}

/* Names the signal, where it came from, and, with has_places, the calls that led there, for a report. */
static void say_signal(int number, const siginfo_t *info, const void *context, bool has_places)
{
    struct message message = {.length = 0};
    add(&message, number == SIGSEGV  ? "\nleat: ended by SIGSEGV"
                  : number == SIGBUS ? "\nleat: ended by SIGBUS"
                                     : "\nleat: ended by SIGABRT");
    add(&message, ". This is a bug in leat, or in a library that leat uses; checkpoints are kept\n"
                  "hint: please report these places:");
    if (has_places)
        add_places(&message);
    else
        add_origin(&message, info, context);
    add(&message, "\n");
    log_last(LOG_LEVEL_ERROR, (struct str){message.text, message.length});
}

/* Ends the process soon, whatever happens: another thread may hold a lock of the loader, which add_places takes, for ever. */
static void end_soon(void)
{
    sigset_t alarms;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    signal(SIGALRM, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
    alarm(LAST_WORDS_S);
}

/* While add_places looks at a stack that is damaged, or where another thread fails at the same time. */
static void on_second_signal(int number, siginfo_t *info, void *context)
{
    signal(number, SIG_DFL);
    say_signal(number, info, context, false);
    raise(number);
}

static void handle(int number, void (*handler)(int number, siginfo_t *info, void *context))
{
    /* SA_NODEFER: else a signal of the handler itself would end the process without a word. */
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_ONSTACK | SA_SIGINFO | SA_NODEFER};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    if (is_out_of_memory())
        refused_memory(0);
    handle(number, on_second_signal);
    end_soon();
    say_signal(number, info, context, true);
    signal(number, SIG_DFL);
    raise(number); /* the signal's default action */
}

static void watch_libraries(void)
{
    void *frame[1];
    (void)backtrace(frame, 1); /* loads what it needs now, for a handler must not */
    handle(SIGABRT, on_signal);
    handle(SIGSEGV, on_signal);
    handle(SIGBUS, on_signal);
}

#else /* sanitizers have handlers of their own */

static void watch_libraries(void)
{
}

#endif

/* --- Limits --- */

/* Sets the default stack size to at least STACK_BYTES, for threads that set none (also those of libraries):
 * otherwise it would be the value of `ulimit -s` at the start. */
static bool make_stacks(void)
{
    pthread_attr_t attributes;
    size_t bytes = 0;
    struct rlimit limit;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    bool is_good = pthread_getattr_default_np(&attributes) == 0 &&
                   pthread_attr_getstacksize(&attributes, &bytes) == 0 &&
                   (bytes >= STACK_BYTES || (pthread_attr_setstacksize(&attributes, STACK_BYTES) == 0 &&
                                             pthread_setattr_default_np(&attributes) == 0));
    pthread_attr_destroy(&attributes);
    /* The main thread's stack grows up to the current limit, so the limit can be raised now. */
    if (!is_good || getrlimit(RLIMIT_STACK, &limit) != 0)
        return false;
    if (limit.rlim_cur >= MAIN_STACK_BYTES)
        return true;
    rlim_t most = limit.rlim_max;
    limit.rlim_cur = MIN(most, (rlim_t)MAIN_STACK_BYTES);
    if (setrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur >= STACK_BYTES)
        return true;
    limit = (struct rlimit){MAIN_STACK_BYTES, MAIN_STACK_BYTES}; /* only root can raise the hard limit */
    return setrlimit(RLIMIT_STACK, &limit) == 0;
}

static void raise_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= DESCRIPTORS_MAX)
        return;
    limit.rlim_cur = MIN(limit.rlim_max, (rlim_t)DESCRIPTORS_MAX);
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

bool refused_init(void)
{
    signal(SIGXFSZ, SIG_IGN);
    raise_descriptors();
    watch_libraries();
    refused_init_cxx();
    if (make_stacks())
        return true;
    fprintf(stderr,
            "leat: error[%s]: the system refused a stack of 2 MiB\nhint: raise its limit: ulimit -s 8192\n",
            code_text);
    return false;
}

/* --- Allocations of leat's own code ---
 *
 * With `--wrap=malloc` the linker turns each call of malloc into a call of __wrap_malloc, and __real_malloc
 * into the real malloc. */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t length);
int __real_posix_memalign(void **memory, size_t alignment, size_t bytes);
int __real_vasprintf(char **text, const char *format, va_list arguments);
FILE *__real_open_memstream(char **text, size_t *length);

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t length);
int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes);
int __wrap_asprintf(char **text, const char *format, ...);
int __wrap_vasprintf(char **text, const char *format, va_list arguments);
FILE *__wrap_open_memstream(char **text, size_t *length);

#ifdef LEAT_WRAPS_MALLOC

void *__wrap_malloc(size_t bytes)
{
    void *memory = __real_malloc(bytes);
    if (unlikely(memory == NULL) && bytes > 0)
        refused_memory(bytes);
    return memory;
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    void *memory = __real_calloc(count, bytes);
    size_t all;
    if (unlikely(memory == NULL) && count > 0 && bytes > 0)
        refused_memory(size_multiply(count, bytes, &all) ? all : SIZE_MAX);
    return memory;
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    void *larger = __real_realloc(memory, bytes);
    if (unlikely(larger == NULL) && bytes > 0)
        refused_memory(bytes);
    return larger;
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    void *memory = __real_aligned_alloc(alignment, bytes);
    if (unlikely(memory == NULL) && bytes > 0)
        refused_memory(bytes);
    return memory;
}

int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    int error = __real_posix_memalign(memory, alignment, bytes);
    if (unlikely(error == ENOMEM))
        refused_memory(bytes);
    return error;
}

char *__wrap_strdup(const char *text)
{
    char *copy = __real_strdup(text);
    if (unlikely(copy == NULL))
        refused_memory(strlen(text) + 1);
    return copy;
}

char *__wrap_strndup(const char *text, size_t length)
{
    char *copy = __real_strndup(text, length);
    if (unlikely(copy == NULL))
        refused_memory(length + 1);
    return copy;
}

int __wrap_vasprintf(char **text, const char *format, va_list arguments)
{
    int length = __real_vasprintf(text, format, arguments);
    if (unlikely(length < 0))
        refused_memory(0);
    return length;
}

int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes);
int __wrap_asprintf(char **text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = __wrap_vasprintf(text, format, arguments);
    va_end(arguments);
    return length;
}

FILE *__wrap_open_memstream(char **text, size_t *length)
{
    FILE *file = __real_open_memstream(text, length);
    if (unlikely(file == NULL))
        refused_memory(0);
    return file;
}

#define real(function) __real_##function

#else
#define real(function) function
#endif

void *refused_ask(size_t bytes)
{
    return real(malloc)(bytes);
}

void *refused_ask_zeroed(size_t count, size_t bytes)
{
    return real(calloc)(count, bytes);
}

void *refused_ask_again(void *memory, size_t bytes)
{
    return real(realloc)(memory, bytes);
}
