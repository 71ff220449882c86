/* The shape of a network's own options as text, by which a restore knows whether the network is the same. */
#include "learners/networks/networks.h"

#include "core/buffer.h"

void networks_put_widths(struct byte_buffer *out, const char *name, const uint32_t *widths)
{
    buffer_printf(out, "=%s:", name);
    for (; widths != NULL && *widths > 0; widths++)
        buffer_printf(out, " %u", *widths);
    buffer_printf(out, "\n");
}

void networks_put_shape(struct byte_buffer *out, const uint32_t *bottom, uint32_t cross_layers,
                        uint32_t experts, uint32_t labels)
{
    networks_put_widths(out, "bottom", bottom);
    buffer_printf(out, "=cross layers: %u, experts: %u, labels: %u\n", cross_layers, experts, labels);
}

void networks_put_attention(struct byte_buffer *out, uint32_t width)
{
    buffer_printf(out, "=attention: %u\n", width);
}

void networks_put_sequence(struct byte_buffer *out, uint32_t layers, uint32_t heads, uint32_t dim,
                           uint32_t hidden, bool is_causal)
{
    buffer_printf(out, "=sequence: layers: %u, heads: %u, dim: %u, hidden: %u, causal: %d\n", layers, heads,
                  dim, hidden, is_causal);
}

void networks_put_tower(struct byte_buffer *out, const uint32_t *hidden, uint32_t width)
{
    networks_put_widths(out, "tower", hidden);
    buffer_printf(out, "=width: %u\n", width);
}
