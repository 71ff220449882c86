/* A turn of the loop: timers, then reading from all connections that have bytes, then `turn`, then sending what was
 * answered outside the protocols' own calls. */
#include "net/loop.h"

#include "core/mem.h"
#include "core/os.h"
#include "core/refused.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>

/* --- What connections share --- */

void loop_give_buffer(struct net_loop *loop, struct byte_buffer *buffer)
{
    if (buffer->capacity == 0)
        return;
    if (loop->buffers_count < SPARE_BUFFERS_MAX && buffer->capacity <= SPARE_BYTES_MAX) {
        buffer->length = 0;
        loop->buffers[loop->buffers_count++] = *buffer;
        *buffer = (struct byte_buffer){0};
    } else {
        buffer_free(buffer);
    }
}

const char *loop_date(struct net_loop *loop)
{
    int64_t second = os_wall_us() / US_PER_SECOND;
    if (second != loop->date_second) {
        static const char days[] = "SunMonTueWedThuFriSat", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
        time_t now = (time_t)second;
        struct tm tm;
        gmtime_r(&now, &tm);
        char text[64];
        snprintf(text, sizeof(text), "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT", days + 3 * tm.tm_wday,
                 tm.tm_mday, months + 3 * tm.tm_mon, tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
        memcpy(loop->date, text, DATE_BYTES);
        loop->date_second = second;
    }
    return loop->date;
}

void loop_refused(struct net_loop *loop, const struct net_listener *listener, int status)
{
    loop->counters.refused++;
    if (listener->service->refused != NULL)
        listener->service->refused(listener->user, status);
}

/* --- Turns --- */

static bool is_quiet(const struct net_loop *loop)
{
    return loop->live == NULL && loop->unsent == 0 && loop->lingering == 0;
}

static uint64_t requests_of(const struct net_loop *loop)
{
    return loop->counters.requests_http1 + loop->counters.requests_http2;
}

static void settle(struct net_loop *loop)
{
    do {
        loop->requests_settled = requests_of(loop);
        if (loop->has_news) {
            loop->has_news = false;
            if (loop->turn != NULL)
                loop->turn(loop->user);
        }
        while (loop->dirty != NULL)
            connection_settle(loop->dirty);
    } while (loop->has_news); /* connections went on with what they held back */
    net_exchanges_recycle(loop);
    if (loop->is_stopping && is_quiet(loop))
        uv_stop(&loop->uv);
}

void loop_settle_early(struct net_loop *loop)
{
    if (requests_of(loop) - loop->requests_settled >= TURN_REQUESTS) {
        settle(loop);
        park_look(loop);
    }
}

static void prepared(uv_prepare_t *prepare)
{
    settle(prepare->data);
    park_resume(prepare->data);
}

static void checked(uv_check_t *check)
{
    settle(check->data);
}

static void grace_passed(uv_timer_t *timer)
{
    uv_stop(timer->loop);
}

static void stop(struct net_loop *loop)
{
    if (loop->is_stopping)
        return;
    loop->is_stopping = true;
    uv_timer_start(&loop->grace, grace_passed, (uint64_t)(uintptr_t)loop->grace.data, 0);
    for (struct net_listener *listener = loop->listeners; listener != NULL; listener = listener->next)
        listener_close(listener);
    for (struct net_connection *connection = loop->connections, *next; connection != NULL;
         connection = next) {
        next = connection_next(connection);
        connection_stop(connection);
    }
}

static void woken(uv_async_t *async)
{
    struct net_loop *loop = async->data;
    if (atomic_exchange(&loop->must_wake, false))
        loop->has_news = true;
    if (!atomic_load(&loop->must_stop) || loop->is_stopping)
        return;
    /* What came before the stop is accepted and read in the first turns. */
    if (++loop->stop_turns > STOP_TURNS)
        stop(loop);
    else
        uv_async_send(async);
}

/* --- The loop --- */

struct net_loop *net_loop_new(uint64_t memory_max, void (*turn)(void *user), void *user)
{
    struct net_loop *loop = mem_calloc(1, sizeof(*loop));
    loop->memory_max = memory_max;
    loop->turn = turn;
    loop->user = user;
    loop->date_second = -1;
    /* A client that is gone must not end the process. */
    struct sigaction old;
    if (sigaction(SIGPIPE, NULL, &old) == 0 && old.sa_handler == SIG_DFL)
        signal(SIGPIPE, SIG_IGN);
    int error = uv_loop_init(&loop->uv);
    if (error == 0)
        error = uv_async_init(&loop->uv, &loop->async, woken);
    if (error != 0)
        refused_other("an event loop", uv_strerror(error));
    loop->async.data = loop;
    uv_prepare_init(&loop->uv, &loop->prepare);
    loop->prepare.data = loop;
    uv_prepare_start(&loop->prepare, prepared);
    uv_check_init(&loop->uv, &loop->check);
    loop->check.data = loop;
    uv_check_start(&loop->check, checked);
    uv_timer_init(&loop->uv, &loop->grace);
    deadlines_init(&loop->deadlines, &loop->uv);
    return loop;
}

void net_loop_free(struct net_loop *loop)
{
    if (loop == NULL)
        return;
    while (loop->connections != NULL)
        connection_abort(loop->connections, -1);
    for (struct net_listener *listener = loop->listeners; listener != NULL; listener = listener->next)
        listener_close(listener);
    for (struct net_every *every = loop->everys; every != NULL; every = every->next)
        uv_close((uv_handle_t *)&every->timer, NULL);
    uv_close((uv_handle_t *)&loop->prepare, NULL);
    uv_close((uv_handle_t *)&loop->check, NULL);
    uv_close((uv_handle_t *)&loop->async, NULL);
    uv_close((uv_handle_t *)&loop->grace, NULL);
    uv_close((uv_handle_t *)&loop->deadlines.timer, NULL);
    while (uv_run(&loop->uv, UV_RUN_DEFAULT) != 0)
        continue;
    int error = uv_loop_close(&loop->uv);
    leat_assert(error == 0);
    for (struct net_listener *listener = loop->listeners, *next; listener != NULL; listener = next) {
        next = listener->next;
        listener_free(listener);
    }
    for (struct net_every *every = loop->everys, *next; every != NULL; every = next) {
        next = every->next;
        free(every);
    }
    net_exchanges_free(loop);
    leat_assert(loop->counters.memory_now == 0 && loop->unsent == 0);
    while (loop->buffers_count > 0)
        buffer_free(&loop->buffers[--loop->buffers_count]);
    free(loop);
}

void net_loop_run(struct net_loop *loop, uint32_t grace_ms)
{
    loop->grace.data = (void *)(uintptr_t)grace_ms;
    uv_run(&loop->uv, UV_RUN_DEFAULT);
}

void net_loop_stop(struct net_loop *loop)
{
    atomic_store(&loop->must_stop, true);
    uv_async_send(&loop->async);
}

void net_loop_wake(struct net_loop *loop)
{
    atomic_store(&loop->must_wake, true);
    uv_async_send(&loop->async);
}

static void every_fired(uv_timer_t *timer)
{
    struct net_every *every = timer->data;
    every->call(every->user);
}

void net_loop_every(struct net_loop *loop, uint32_t every_ms, void (*call)(void *user), void *user)
{
    struct net_every *every = mem_calloc(1, sizeof(*every));
    every->call = call;
    every->user = user;
    every->next = loop->everys;
    loop->everys = every;
    uv_timer_init(&loop->uv, &every->timer);
    every->timer.data = every;
    uv_timer_start(&every->timer, every_fired, every_ms, every_ms);
}

struct net_counters net_loop_counters(const struct net_loop *loop)
{
    return loop->counters;
}
