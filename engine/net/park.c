/* Parked connections: under overload, who came last is read first.
 *
 * A pass is what libuv does between two turns of the loop: it reads from every connection that has bytes, in the order in
 * which the kernel noticed them. When thousands of clients wait, that order makes everybody wait for all others, and each
 * answer comes beyond its deadline. To refuse them costs a third of an answer, so that refusing all who are too many would
 * leave little time for answers. So a pass that has taken pass_us_max (net_loop_park) parks each further connection that
 * has bytes: they are not read. Behind a pass that ended in time, the connections that were parked last are read again:
 * what they have to say is fresh, and is answered within its deadline. The others wait, which costs nothing, for about
 * PARKED_US_MAX; then they are read, some in each pass, and what waited beyond its deadline is refused
 * (net_exchange.waited_us). */
#include "net/connection_state.h"

#include "core/os.h"

enum { OLD_PART = 16 }; /* such a part of the parked connections is read in a pass once it is old */

void park(struct net_connection *connection)
{
    struct net_loop *loop = connection->loop;
    int64_t now_us = os_monotonic_us();
    leat_assert(!connection->is_parked);
    uv_read_stop(connection_stream(connection));
    connection->is_parked = true;
    loop->counters.connections_parked++;
    if (connection->parked_us == 0) /* else it was to be read again, and is as old as it was */
        connection->parked_us = loop->pass_us;
    bool is_old = connection->parked_us < now_us - PARKED_US_MAX;
    connection->newer = is_old ? loop->oldest_parked : NULL;
    connection->older = is_old ? NULL : loop->newest_parked;
    *(connection->older != NULL ? &connection->older->newer : &loop->oldest_parked) = connection;
    *(connection->newer != NULL ? &connection->newer->older : &loop->newest_parked) = connection;
}

void park_forget(struct net_connection *connection)
{
    struct net_loop *loop = connection->loop;
    if (!connection->is_parked)
        return;
    connection->is_parked = false;
    loop->counters.connections_parked--;
    if (connection->newer != NULL)
        connection->newer->older = connection->older;
    else
        loop->newest_parked = connection->older;
    if (connection->older != NULL)
        connection->older->newer = connection->newer;
    else
        loop->oldest_parked = connection->newer;
}

static void resume(struct net_connection *connection)
{
    park_forget(connection);
    if (!connection->is_paused)
        connection_read(connection);
}

void net_loop_park(struct net_loop *loop, int64_t pass_us)
{
    loop->pass_us_max = pass_us;
}

void park_look(struct net_loop *loop)
{
    loop->is_late = loop->pass_us_max > 0 && loop->pass_us != 0 && !atomic_load(&loop->must_stop) &&
                    os_monotonic_us() - loop->pass_us >= loop->pass_us_max;
}

void park_resume(struct net_loop *loop)
{
    bool is_stopping = atomic_load(&loop->must_stop), was_late = loop->is_late && !is_stopping;
    loop->is_late = false;
    loop->pass_us = 0;
    if (loop->newest_parked == NULL)
        return;
    int64_t before_us = os_monotonic_us() - PARKED_US_MAX;
    uint64_t old_most = MAX((uint64_t)TURN_REQUESTS, loop->counters.connections_parked / OLD_PART);
    for (int i = 0; loop->newest_parked != NULL && !was_late && (is_stopping || i < TURN_REQUESTS); i++)
        resume(loop->newest_parked);
    for (uint64_t i = 0;
         loop->oldest_parked != NULL && i < old_most && loop->oldest_parked->parked_us < before_us; i++)
        resume(loop->oldest_parked);
    if (loop->newest_parked != NULL)
        uv_async_send(&loop->async); /* the loop must not wait for others while there are such */
}
