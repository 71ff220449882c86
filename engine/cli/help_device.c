/* leat help device [NAME]: what kernels run on. Unlike the rest of the reference it describes this machine:
 * the CPU's variants, the device library, each GPU, and why one cannot be used. */
#include "cli/help.h"

#include "kernels/gpu.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { NAME_COLUMN = 11, FACT_COLUMN = 14 };

const char help_device_summary[] = "device: what kernels run on, as found on this machine";

struct found {
    const struct gpu_api *api; /* NULL: see `why` */
    struct gpu_device devices[GPU_DEVICES_MAX];
    int count;            /* -1: see `why` */
    struct gpu_error why; /* why devices cannot be listed, or none was found */
    int library, driver;  /* CUDA versions, as 1000 * major + 10 * minor; driver 0: none */
};

static void find(struct found *f)
{
    *f = (struct found){.count = -1};
    f->api = gpu_open_library(NULL, &f->why);
    if (f->api == NULL)
        return;
    f->api->versions(&f->library, &f->driver);
    f->count = f->api->devices(f->devices, &f->why);
    if (f->count == 0)
        f->why = (struct gpu_error){
            .failure = GPU_NO_DEVICE,
            .text = "The NVIDIA driver is installed and shows no device: the machine has none, "
                    "CUDA_VISIBLE_DEVICES hides it, or this container was not given one."};
    f->count = MIN(f->count, (int)GPU_DEVICES_MAX);
}

static double gib(uint64_t bytes)
{
    return (double)bytes / (double)(1 << 30);
}

static const char *version(struct arena *arena, int number)
{
    return arena_printf(arena, "%d.%d", number / 1000, number % 1000 / 10);
}

/* The CPU's kernel variants, best first: "avx512 (used), avx2, scalar". An invalid LEAT_KERNELS was
 * refused in main. */
static const char *cpu_variants(struct arena *arena)
{
    const char *reason = NULL, *text = "";
    const struct kernels *taken = kernels_pick_env(&reason);
    for (int v = KERNELS_VARIANTS; v-- > 0;)
        if (kernels_supports((enum kernels_variant)v)) {
            const char *name = kernels_variant_name((enum kernels_variant)v);
            bool is_taken = strcmp(taken->name, name) == 0;
            text = arena_printf(arena, "%s%s%s%s", text, text[0] != '\0' ? ", " : "", name,
                                is_taken ? " (used)" : "");
        }
    return text;
}

/* Describes the device library and its driver, or says why GPUs cannot be used. */
static const char *library_facts(const struct found *f, struct arena *arena)
{
    if (f->api == NULL)
        return arena_printf(arena, "not usable: %s. %s", gpu_failure_name(f->why.failure), f->why.text);
    const char *driver =
        f->driver == 0 ? "no driver" : arena_printf(arena, "driver for %s", version(arena, f->driver));
    const char *text =
        arena_printf(arena, "device library of CUDA %s, %s", version(arena, f->library), driver);
    return f->count > 0 ? text
                        : arena_printf(arena, "not usable: %s. %s (%s.)", gpu_failure_name(f->why.failure),
                                       f->why.text, text);
}

static const char *device_facts(const struct gpu_device *d, struct arena *arena)
{
    return d->is_usable ? arena_printf(arena, "%s, sm_%d, %.1f GiB, %.1f of them free", d->name,
                                       d->capability, gib(d->memory_bytes), gib(d->memory_free))
                        : arena_printf(arena, "%s, not usable: %s. %s", d->name,
                                       gpu_failure_name(d->why.failure), d->why.text);
}

/* --- All devices --- */

static void put_all(const struct found *f, struct byte_buffer *out, struct arena *arena)
{
    buffer_printf(out, "%s\n\n", help_device_summary);
    help_put_item(out, "cpu", cpu_variants(arena), NAME_COLUMN);
    help_put_item(out, "cuda", library_facts(f, arena), NAME_COLUMN);
    for (int d = 0; d < f->count; d++)
        help_put_item(out, arena_printf(arena, "cuda(%d)", d), device_facts(&f->devices[d], arena),
                      NAME_COLUMN);
    buffer_printf(out, "\n`leat help device NAME` shows more.\n");
}

/* --- One device --- */

static void put_cpu(struct byte_buffer *out)
{
    const char *reason = NULL;
    const struct kernels *taken = kernels_pick_env(&reason);
    buffer_printf(out, "device cpu: the machine's own cores, each kernel in several variants\n\n");
    for (int v = 0; v < KERNELS_VARIANTS; v++) {
        const char *name = kernels_variant_name((enum kernels_variant)v);
        bool is_taken = strcmp(taken->name, name) == 0;
        help_put_item(out, name,
                      is_taken ? "supported, and used"
                      : kernels_supports((enum kernels_variant)v)
                          ? "supported"
                          : "not supported by this CPU or its operating system",
                      FACT_COLUMN);
    }
    buffer_append(out, "\n", 1);
    help_put_wrapped(
        out, 2,
        "The best supported variant is used, or the variant that LEAT_KERNELS names; all give the same "
        "bits.");
}

static void put_library(const struct found *f, struct byte_buffer *out, struct arena *arena)
{
    char path[PATH_MAX];
    buffer_printf(out,
                  "device cuda: NVIDIA GPUs of compute capability %d.%d and later, through one library\n\n",
                  GPU_CAPABILITY_MIN / 10, GPU_CAPABILITY_MIN % 10);
    help_put_item(out, "library", gpu_library_path(path, sizeof(path)) ? path : "its path is not known",
                  FACT_COLUMN);
    if (f->api != NULL) {
        help_put_item(out, "built with", arena_printf(arena, "CUDA %s", version(arena, f->library)),
                      FACT_COLUMN);
        help_put_item(out, "driver",
                      f->driver == 0
                          ? "none"
                          : arena_printf(arena, "supports CUDA up to %s", version(arena, f->driver)),
                      FACT_COLUMN);
    }
    if (f->count > 0) {
        help_put_item(out, "devices", arena_printf(arena, "%d", f->count), FACT_COLUMN);
        return;
    }
    help_put_item(out, "not usable", gpu_failure_name(f->why.failure), FACT_COLUMN);
    buffer_append(out, "\n", 1);
    help_put_wrapped(out, 2, f->why.text);
}

static void put_device(const struct found *f, const char *name, const struct gpu_device *d,
                       struct byte_buffer *out, struct arena *arena)
{
    buffer_printf(out, "device %s: %s\n\n", name, d->name);
    if (d->capability > 0) {
        help_put_item(out, "capability",
                      arena_printf(arena, "%d.%d (sm_%d); at least %d.%d is needed", d->capability / 10,
                                   d->capability % 10, d->capability, GPU_CAPABILITY_MIN / 10,
                                   GPU_CAPABILITY_MIN % 10),
                      FACT_COLUMN);
        help_put_item(out, "memory",
                      d->is_usable ? arena_printf(arena, "%.1f GiB, %.1f of them free", gib(d->memory_bytes),
                                                  gib(d->memory_free))
                                   : arena_printf(arena, "%.1f GiB", gib(d->memory_bytes)),
                      FACT_COLUMN);
        help_put_item(out, "cores",
                      arena_printf(arena, "%d multiprocessors, %.0f MiB of second-level cache",
                                   d->multiprocessors, (double)d->l2_bytes / (1 << 20)),
                      FACT_COLUMN);
    }
    help_put_item(out, "library",
                  arena_printf(arena, "of CUDA %s; the driver supports CUDA up to %s",
                               version(arena, f->library), version(arena, f->driver)),
                  FACT_COLUMN);
    help_put_item(out, "usable",
                  d->is_usable ? "yes" : arena_printf(arena, "no: %s", gpu_failure_name(d->why.failure)),
                  FACT_COLUMN);
    if (!d->is_usable) {
        buffer_append(out, "\n", 1);
        help_put_wrapped(out, 2, d->why.text);
    }
}

/* The N of "cuda(N)"; -1: not of this form. */
static int number_of(const char *name)
{
    int number = -1, end = 0;
    if (strncmp(name, "cuda(", 5) != 0 || name[5] < '0' || name[5] > '9' ||
        sscanf(name, "cuda(%2d)%n", &number, &end) != 1 || end == 0 || name[end] != '\0')
        return -1;
    return number;
}

static bool put_one(const struct found *f, const char *name, struct byte_buffer *out, struct arena *arena)
{
    if (strcmp(name, "cpu") == 0) {
        put_cpu(out);
        return true;
    }
    int number = number_of(name);
    if (number >= 0 && number < f->count) {
        put_device(f, name, &f->devices[number], out, arena);
        return true;
    }
    /* If no GPU can be used at all, put_library says why. */
    if (strcmp(name, "cuda") != 0 && (number < 0 || f->count > 0))
        return false;
    put_library(f, out, arena);
    return true;
}

bool help_device(const char *name, struct byte_buffer *out)
{
    struct arena arena = {0};
    struct found found;
    bool is_known = true;
    find(&found);
    if (name == NULL)
        put_all(&found, out, &arena);
    else
        is_known = put_one(&found, name, out, &arena);
    arena_free(&arena);
    return is_known;
}
