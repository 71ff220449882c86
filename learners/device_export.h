/*
 * Rows of a set of tables from a GPU to the host, piece by piece: while one piece is copied to pinned memory
 * on a stream of its own, the next one is gathered, and the one before is handed to who asked. Two pieces of
 * device and of pinned memory. One thread; waits.
 */
#ifndef LEARNERS_DEVICE_EXPORT_H
#define LEARNERS_DEVICE_EXPORT_H

#include "kernels/gpu_table.h"

struct device_export_piece {
    struct gpu_row_head *heads, *device_heads;
    float *payloads, *device_payloads;
    uint32_t *device_count;
    struct gpu_event *gathered, *copied;
    uint32_t rows;
};

struct device_export {
    const struct gpu_api *api;
    struct gpu *gpu;
    struct gpu_stream *copies;
    size_t floats;
    uint32_t room; /* rows of a piece */
    struct device_export_piece pieces[2];
};

/* Some rows, by table and slot; valid during the call. false: no more of them. */
typedef bool device_export_emit(void *argument, const struct gpu_row_head *heads, const float *payloads,
                                uint32_t count);

bool device_export_init(struct device_export *out, const struct gpu_api *api, struct gpu *gpu, size_t floats,
                        uint32_t room, struct gpu_error *error);
void device_export_free(struct device_export *out);

/* All rows changed in epochs (since, closing] (since 0: all), as the work queued on `stream` leaves them. The
 * tables must not change before it returns. false: error, or emit said so (error: GPU_OK). */
bool device_export_run(struct device_export *out, struct gpu_tables *tables, struct gpu_stream *stream,
                       uint32_t since, uint32_t closing, device_export_emit *emit, void *argument,
                       struct gpu_error *error);

#endif
