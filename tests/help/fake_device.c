/* A library for devices without a device. LEAT_FAKE_DEVICES says what it shows:
 *   two      one usable device and one that is too old
 *   busy     one device that cannot be opened
 *   none     a driver, and no device
 *   driver   a driver that is too old
 *   version  the functions of another build of leat */
#include "kernels/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_asked(const char *what)
{
    const char *asked = getenv("LEAT_FAKE_DEVICES");
    return asked != NULL && strcmp(asked, what) == 0;
}

static void versions(int *library, int *driver)
{
    *library = 13000;
    *driver = is_asked("driver") ? 12040 : 13010;
}

static const struct gpu_device hopper = {.name = "A device of 2022",
                                         .capability = 90,
                                         .multiprocessors = 132,
                                         .memory_bytes = (uint64_t)141 << 30,
                                         .memory_free = (uint64_t)140 << 30,
                                         .l2_bytes = (uint64_t)50 << 20,
                                         .is_usable = true};
static const struct gpu_device pascal = {.name = "A device of 2016",
                                         .capability = 61,
                                         .multiprocessors = 28,
                                         .memory_bytes = (uint64_t)11 << 30,
                                         .l2_bytes = (uint64_t)2 << 20,
                                         .why = {GPU_TOO_OLD, "It has compute capability 6.1."}};

static int devices(struct gpu_device *devices, struct gpu_error *error)
{
    if (is_asked("driver")) {
        *error = (struct gpu_error){GPU_NO_DRIVER, "The NVIDIA driver knows CUDA up to 12.4."};
        return -1;
    }
    if (is_asked("none"))
        return 0;
    devices[0] = hopper;
    devices[1] = pascal;
    if (is_asked("two"))
        return 2;
    devices[0].is_usable = false;
    devices[0].why = (struct gpu_error){GPU_FAILED, "Somebody has it for himself."};
    return 1;
}

const struct gpu_api *leat_gpu_api(void);
const struct gpu_api *leat_gpu_api(void)
{
    static struct gpu_api api = {.version = GPU_API_VERSION, .devices = devices, .versions = versions};
    if (is_asked("version"))
        api.version = GPU_API_VERSION + 1;
    return &api;
}
