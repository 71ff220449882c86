/* Opens the device library, leat_cuda.so (gpu.h). The only host code that knows the library's name. */
#include "kernels/gpu.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY_NAME "leat_cuda.so"

static const struct gpu_api *refuse(struct gpu_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static const struct gpu_api *refuse(struct gpu_error *error, const char *format, ...)
{
    if (error == NULL)
        return NULL;
    error->failure = GPU_NO_LIBRARY;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof(error->text), format, arguments);
    va_end(arguments);
    return NULL;
}

/* Writes the path of leat_cuda.so beside the program; false: the program's path is not known, or too long. */
static bool beside_program(char *path, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", path, size);
    if (length < 0 || (size_t)length >= size)
        return false;
    path[length] = '\0';
    char *name = strrchr(path, '/');
    size_t folder = name == NULL ? 0 : (size_t)(name - path) + 1;
    if (folder + sizeof(LIBRARY_NAME) > size)
        return false;
    memcpy(path + folder, LIBRARY_NAME, sizeof(LIBRARY_NAME));
    return true;
}

static const struct gpu_api *open_path(const char *path, struct gpu_error *error)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return refuse(error, "The device library cannot be opened: %s.", dlerror());
    void *symbol = dlsym(library, "leat_gpu_api");
    if (symbol == NULL) {
        dlclose(library);
        return refuse(
            error,
            "%s is not leat's device library: it has no symbol leat_gpu_api. Set LEAT_CUDA_LIBRARY to the "
            "path of a " LIBRARY_NAME ".",
            path);
    }
    gpu_api_function *function;
    memcpy(&function, &symbol, sizeof(function)); /* ISO C has no cast between the two kinds of pointers */
    const struct gpu_api *api = function();
    if (api->version != GPU_API_VERSION)
        return refuse(
            error,
            "%s is of another build of leat: interface version %u was expected, %u found. Take the library "
            "that was built with this program.",
            path, (unsigned)GPU_API_VERSION, (unsigned)api->version);
    return api;
}

/* LEAT_CUDA_LIBRARY; NULL: not set, or empty. */
static const char *named_library(void)
{
    const char *named = getenv("LEAT_CUDA_LIBRARY");
    return named == NULL || named[0] == '\0' ? NULL : named;
}

bool gpu_library_path(char *path, size_t size)
{
    const char *named = named_library();
    if (named == NULL)
        return beside_program(path, size);
    int length = snprintf(path, size, "%s", named);
    return length > 0 && (size_t)length < size;
}

const struct gpu_api *gpu_open_library(const char *path, struct gpu_error *error)
{
    char found[PATH_MAX];
    if (path != NULL)
        return open_path(path, error);
    bool is_named = named_library() != NULL;
    if (!gpu_library_path(found, sizeof(found)))
        return is_named ? refuse(error, "LEAT_CUDA_LIBRARY has more than %zu bytes.", sizeof(found) - 1)
                        : refuse(error,
                                 "The path of " LIBRARY_NAME " beside this program cannot be determined: set "
                                 "LEAT_CUDA_LIBRARY to the library's path.");
    if (is_named || access(found, F_OK) == 0)
        return open_path(found, error);
#ifdef LEAT_WITH_CUDA
    return refuse(
        error,
        "%s is not there. The device library is built with this program: put it beside the program, or "
        "set LEAT_CUDA_LIBRARY to its path.",
        found);
#else
    return refuse(error,
                  "This leat was built without CUDA (LEAT_CUDA=OFF, or no nvcc was found). `./dev setup "
                  "--cuda` installs an nvcc; then build again.");
#endif
}

const char *gpu_failure_name(enum gpu_failure failure)
{
    static const char *const names[] = {
        [GPU_OK] = "ok",
        [GPU_NO_LIBRARY] = "no device library",
        [GPU_NO_DRIVER] = "no driver",
        [GPU_NO_DEVICE] = "no such device",
        [GPU_TOO_OLD] = "too old",
        [GPU_NO_MEMORY] = "no memory",
        [GPU_UNSUPPORTED] = "unsupported",
        [GPU_FAILED] = "failed",
    };
    return names[failure];
}
