/* gpu.py asks this first: prints the devices of the library LEAT_CUDA_LIBRARY names, as one line of JSON. */
#include "kernels/gpu.h"

#include <stdio.h>

/* Replaces quotes, backslashes and control characters by blanks: they do not matter in names and reasons. */
static const char *clean(char *text)
{
    for (char *c = text; *c != '\0'; c++)
        if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ')
            *c = ' ';
    return text;
}

int main(void)
{
    struct gpu_error error = {0};
    struct gpu_device devices[GPU_DEVICES_MAX];
    int library = 0, driver = 0, count = -1;
    const struct gpu_api *api = gpu_open_library(NULL, &error);
    if (api != NULL) {
        api->versions(&library, &driver);
        count = api->devices(devices, &error);
    }
    printf("{\"library\": %d, \"driver\": %d, \"why\": \"%s\", \"devices\": [", library, driver,
           clean(error.text));
    for (int d = 0; d < count && d < GPU_DEVICES_MAX; d++)
        printf("%s{\"name\": \"%s\", \"sm\": %d, \"memory_gib\": %.1f, \"free_gib\": %.1f, \"usable\": %s, "
               "\"why\": \"%s\"}",
               d > 0 ? ", " : "", clean(devices[d].name), devices[d].capability,
               (double)devices[d].memory_bytes / (1 << 30), (double)devices[d].memory_free / (1 << 30),
               devices[d].is_usable ? "true" : "false", clean(devices[d].why.text));
    printf("]}\n");
    return 0;
}
