#include "connectors/kafka/progress_order.h"

#include "core/mem.h"
#include "core/order_log.h"

#include <stdlib.h>

/* The head of a piece; the bytes follow. */
struct piece_head {
    uint64_t life, epoch, next, bytes;
};

static uint64_t piece_bytes(uint64_t bytes, uint64_t piece)
{
    return MIN((uint64_t)PROGRESS_ORDER_PIECE, bytes - piece * PROGRESS_ORDER_PIECE);
}

uint64_t progress_orders_next(const struct progress_orders *orders)
{
    uint64_t next = 0;
    for (uint32_t i = 0; i < orders->count; i++)
        next = MAX(next, orders->items[i].next);
    return next;
}

/* Index of the segment that begins with `first`, or where it belongs. New ones usually belong at the end. */
static uint32_t find(const struct progress_orders *orders, uint64_t first)
{
    uint32_t low = 0, high = orders->count;
    if (high > 0 && orders->items[high - 1].first < first)
        return high;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (orders->items[middle].first < first)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_at(const struct progress_orders *orders, uint32_t at, uint64_t first)
{
    return at < orders->count && orders->items[at].first == first;
}

static void remove_at(struct progress_orders *orders, uint32_t at)
{
    orders->bytes -= orders->items[at].bytes;
    free(orders->items[at].data);
    orders->count--;
    memmove(orders->items + at, orders->items + at + 1, (orders->count - at) * sizeof(*orders->items));
}

static struct progress_order *insert_at(struct progress_orders *orders, uint32_t at)
{
    if (orders->count == orders->capacity) {
        orders->capacity = MAX(16U, 2 * orders->capacity);
        orders->items = mem_realloc(orders->items, orders->capacity * sizeof(*orders->items));
    }
    memmove(orders->items + at + 1, orders->items + at, (orders->count - at) * sizeof(*orders->items));
    orders->count++;
    return &orders->items[at];
}

static void add_piece(struct progress_orders *orders, struct progress_order *order, uint64_t piece,
                      struct str bytes)
{
    order->got++;
    if (!orders->keeps_data)
        return;
    size_t before = (size_t)piece * PROGRESS_ORDER_PIECE;
    order->data = mem_realloc(order->data, before + bytes.length);
    memcpy(order->data + before, bytes.data, bytes.length);
}

bool progress_orders_apply(struct progress_orders *orders, uint64_t first, uint64_t piece, struct str value)
{
    struct piece_head head;
    uint32_t at = find(orders, first);
    if (value.data == NULL) {
        if (piece == 0 && is_at(orders, at, first))
            remove_at(orders, at);
        return true;
    }
    if (value.length < sizeof(head))
        return false;
    memcpy(&head, value.data, sizeof(head));
    struct str bytes = {value.data + sizeof(head), value.length - sizeof(head)};
    if (head.next <= first || head.bytes == 0 || head.bytes > ORDER_SEGMENT_MAX ||
        piece >= progress_order_pieces(head.bytes) || bytes.length != piece_bytes(head.bytes, piece))
        return false;
    struct progress_order order = {.life = head.life,
                                   .epoch = head.epoch,
                                   .first = first,
                                   .next = head.next,
                                   .bytes = head.bytes,
                                   .pieces = progress_order_pieces(head.bytes)};
    if (piece == 0) {
        if (is_at(orders, at, first))
            remove_at(orders, at);
        if (orders->count == PROGRESS_ORDERS_MAX)
            return false;
        *insert_at(orders, at) = order;
        orders->bytes += order.bytes;
    }
    struct progress_order *known = is_at(orders, at, first) ? &orders->items[at] : NULL;
    if (known != NULL && known->life == order.life && known->epoch == order.epoch &&
        known->next == order.next && known->bytes == order.bytes && known->got == piece)
        add_piece(orders, known, piece, bytes);
    return true;
}

uint32_t progress_orders_void(const struct progress_orders *orders, uint64_t stored_next, uint32_t more,
                              uint64_t more_bytes)
{
    uint64_t bytes = orders->bytes + more_bytes;
    uint32_t count = 0;
    while (count + 1 < orders->count) {
        const struct progress_order *old = &orders->items[count];
        bool are_many =
            orders->count - count + more > PROGRESS_ORDERS_KEPT || bytes > PROGRESS_ORDER_BYTES_MAX;
        bool is_needless = old->next <= stored_next && count < PROGRESS_ORDERS_NEEDLESS;
        if (!are_many && !is_needless)
            break;
        bytes -= old->bytes;
        count++;
    }
    return count;
}

void progress_order_put(const struct progress_order *order, uint32_t piece, struct str segment,
                        struct byte_buffer *value)
{
    struct piece_head head = {order->life, order->epoch, order->next, segment.length};
    buffer_append(value, &head, sizeof(head));
    buffer_append(value, segment.data + (size_t)piece * PROGRESS_ORDER_PIECE,
                  (size_t)piece_bytes(segment.length, piece));
}

void progress_orders_clear(struct progress_orders *orders)
{
    for (uint32_t i = 0; i < orders->count; i++)
        free(orders->items[i].data);
    free(orders->items);
    *orders = (struct progress_orders){.keeps_data = orders->keeps_data};
}
