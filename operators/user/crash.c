/* Names the library that crashed: while a library's code runs, the thread knows which library it is, and the
 * handler of a fatal signal reports it before the process dies. The handler calls only functions that POSIX
 * declares async-signal-safe. */
#include "operators/user/user.h"

#include "core/log_line.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <ucontext.h>
#include <unistd.h>

enum { STACK_BYTES = 64 * 1024 };

static const int signals[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL};
static struct sigaction before[ARRAY_COUNT(signals)];

static _Thread_local struct user_call current;
static _Thread_local bool has_stack;

static const char *signal_name(int number)
{
    switch (number) {
    case SIGSEGV: return "a segmentation fault (SIGSEGV)";
    case SIGABRT: return "abort() (SIGABRT)";
    case SIGBUS: return "a bus error (SIGBUS)";
    case SIGFPE: return "an arithmetic error (SIGFPE)";
    default: return "an illegal instruction (SIGILL)";
    }
}

/* A message that one write() puts on stderr, because other threads may write there, too. */
struct message {
    char text[1024];
    size_t length;
};

static void add(struct message *message, const char *text)
{
    while (*text != '\0' && message->length < sizeof(message->text))
        message->text[message->length++] = *text++;
}

void user_say(const char *what, const struct user_call *call, const char *hint)
{
    static atomic_flag is_said = ATOMIC_FLAG_INIT;
    while (atomic_flag_test_and_set(&is_said)) /* another thread has reported, and ends the process */
        pause();
    struct message message = {.length = 0};
    const char *const texts[] = {
        "\nleat: error[E0616]: ", what,          " in ",     call->what, " `", call->name,
        "` of the library ",      call->library, "\nhint: ", hint,       "\n"};
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++)
        add(&message, texts[i]);
    log_last(LOG_LEVEL_ERROR, (struct str){message.text, message.length});
}

/* The address of the code that the signal interrupted. */
static const void *place_of(const void *where)
{
#if defined(__x86_64__)
    return (const void *)((const ucontext_t *)where)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (const void *)((const ucontext_t *)where)->uc_mcontext.pc;
#else
    return NULL;
#endif
}

static void on_signal(int number, siginfo_t *info, void *where)
{
    (void)info;
    struct user_call call = current;
    if (call.library == NULL) /* perhaps a thread that the library started */
        call = (struct user_call){user_library_at(place_of(where)),
                                  "code outside of callbacks:", "threads and handlers"};
    if (call.library != NULL)
        user_say(signal_name(number), &call,
                 "the checkpoints are not affected: mend the library, and start the job again");
    for (size_t i = 0; i < ARRAY_COUNT(signals); i++)
        if (signals[i] == number)
            sigaction(number, &before[i], NULL);
    raise(number); /* the former handler gets the signal when this handler has returned */
}

static void install(void)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < ARRAY_COUNT(signals); i++)
        sigaction(signals[i], &action, &before[i]);
}

/* Sets an alternate signal stack for the thread, so that a stack overflow can be reported. */
static void take_stack(void)
{
    static _Thread_local char stack[STACK_BYTES];
    stack_t old;
    has_stack = true;
    if (sigaltstack(NULL, &old) == 0 && (old.ss_flags & SS_DISABLE) == 0)
        return; /* a sanitizer has set one */
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof(stack)}, NULL);
}

void user_enter(const struct user_library *library, const char *what, const char *name)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
    if (!has_stack)
        take_stack();
    current = (struct user_call){library->path, what, name};
}

void user_leave(void)
{
    current.library = NULL;
}

struct user_call user_called(void)
{
    return current;
}

void user_set_called(struct user_call call)
{
    current = call;
}
