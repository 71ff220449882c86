/* Silence: the other side of a link answers nothing, and nobody says that it has gone: its machine has, or the way to it is cut.
 *
 * The system asks an idle connection whether it is there, each third of silence_us, and breaks it once silence_us have passed since it
 * answered last, or since bytes wait that it takes. So nobody but the system wakes for that. */
#include "cluster/link_internal.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

enum { KEEP_ALIVE_MAX_S = 3600 };

void silence_watch(const struct connection *connection)
{
    int64_t silence_us = connection->links->options.silence_us;
    if (silence_us == 0)
        return;
    int on = 1, s = (int)MIN(MAX(silence_us / 3 / US_PER_SECOND, 1), (int64_t)KEEP_ALIVE_MAX_S);
    unsigned ms = (unsigned)MIN(silence_us / 1000, (int64_t)INT32_MAX);
    (void)setsockopt(connection->fd, IPPROTO_TCP, TCP_KEEPIDLE, &s, sizeof(s));
    (void)setsockopt(connection->fd, IPPROTO_TCP, TCP_KEEPINTVL, &s, sizeof(s));
    (void)setsockopt(connection->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
    (void)setsockopt(connection->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

/* Since when the other side has sent nothing, not even that it has what was sent. */
static int64_t silent_us(const struct connection *connection)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof(info);
    if (getsockopt(connection->fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
        return 0;
    return (int64_t)MIN(info.tcpi_last_ack_recv, info.tcpi_last_data_recv) * 1000;
}

bool silence_is_long(const struct connection *connection)
{
    int64_t silence_us = connection->links->options.silence_us;
    return silence_us > 0 && silent_us(connection) >= silence_us / 3 * 2;
}
