/*
 * The program of the differential tests (trial.h); prints TAP.
 *
 *   test_batch [--seed N] [--kernel NAME] [--case N] [--variant scalar|avx2|avx512|cuda] [--library PATH]
 *              [--reduced] [--part K/N]
 *
 * Without --variant: all variants of this CPU. cuda: on the first device that a device library finds, the one
 * of --library or as gpu_open_library. If that library is the host's model of a GPU (leat_cuda_on_host.so),
 * sizes are small, and each call has its own order of threads and its own poison. To reproduce a failure,
 * pass the seed, kernel, variant and case that its report names. --reduced: small sizes, and no guard zones,
 * for checkers that see the ends of allocations themselves and are slow (compute-sanitizer). --part: each Nth
 * kernel, from the Kth on (part.h). Exit status: 1 if a case failed, 77 if there is no such device.
 */
#include "part.h"
#include "trial_internal.h"

#include <dlfcn.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    void (*run)(struct suite *suite);
    size_t offset;
} suites[] = {
#define BATCH(name, args, tolerance, bytes, flops)                                                           \
    {#name, suite_##name, offsetof(struct batch_kernels, name)},
#include "kernels/kernels.def"
};

/* Instrumented scalar code is slow: sizes are small with sanitizers. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SMALL_HERE = true };
#else
enum { SMALL_HERE = false };
#endif

struct options {
    uint64_t seed;
    const char *kernel, *variant, *library;
    int only;
    bool is_reduced;
    struct part part;
};

static bool has_kernel(const struct batch_kernels *kernels, size_t offset)
{
    void (*function)(void);
    memcpy(&function, (const char *)kernels + offset, sizeof(function));
    return function != NULL;
}

/* Runs all chosen kernels with the given targets. Returns how many failed. */
static unsigned run_targets(const struct target *scalar, const struct target *targets, unsigned count,
                            const struct options *o)
{
    unsigned failed = 0;
    for (size_t i = 0; i < sizeof(suites) / sizeof(*suites); i++) {
        if (!part_has(&o->part, i) || (o->kernel != NULL && strcmp(o->kernel, suites[i].name) != 0))
            continue;
        struct suite suite = {.kernel = suites[i].name,
                              .scalar = scalar,
                              .targets_count = count,
                              .seed = o->seed,
                              .only = o->only,
                              .is_small = o->is_reduced || SMALL_HERE || targets->model_begin,
                              .text = ""};
        memcpy(suite.targets, targets, count * sizeof(*targets));
        if (!has_kernel(scalar->kernels, suites[i].offset) ||
            !has_kernel(targets->kernels, suites[i].offset)) {
            printf("not ok - %s, %s: there is no such kernel\n", suite.kernel, targets->name);
            failed++;
            continue;
        }
        suites[i].run(&suite);
        for (unsigned k = 0; k < count; k++) {
            bool is_ok = suite.failures[k] == 0 && suite.cases > 0;
            printf("%s - %s, %s: %u cases\n", is_ok ? "ok" : "not ok", suite.kernel, targets[k].name,
                   suite.cases);
            failed += !is_ok;
        }
        fflush(stdout);
    }
    return failed;
}

static unsigned run_cpu(const struct target *scalar, const struct options *o)
{
    struct target targets[TARGETS_MAX];
    unsigned count = 0, named = 0;
    for (int v = 0; v < KERNELS_VARIANTS; v++) {
        const char *name = kernels_variant_name((enum kernels_variant)v);
        const struct batch_kernels *kernels = batch_variant((enum kernels_variant)v);
        if (o->variant && strcmp(o->variant, name) != 0)
            continue;
        named++;
        if (!kernels)
            printf("ok - %s # SKIP this CPU does not support it\n", name);
        else
            targets[count++] =
                (struct target){.name = name, .kernels = kernels, .has_guards = !o->is_reduced};
    }
    if (named == 0)
        printf("Bail out! %s: not a variant: scalar, avx2, avx512 and cuda are\n", o->variant);
    return count > 0 ? run_targets(scalar, targets, count, o) : named == 0;
}

/* Sets model_begin if the device library is the host's model of a GPU. */
static void find_model(const struct options *o, struct target *target)
{
    const char *path = o->library ? o->library : getenv("LEAT_CUDA_LIBRARY");
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    void *symbol = library != NULL ? dlsym(library, "cuda_model_begin") : NULL;
    if (symbol)
        memcpy(&target->model_begin, &symbol, sizeof(target->model_begin));
}

/* Returns the exit status. */
static int run_device(const struct target *scalar, const struct options *o)
{
    struct gpu_error error = {0};
    const struct gpu_api *api = gpu_open_library(o->library, &error);
    struct gpu *gpu = api != NULL ? api->open(0, &error) : NULL;
    struct gpu_stream *stream = gpu != NULL ? api->stream(gpu, &error) : NULL;
    if (!stream) {
        printf("ok - cuda # SKIP no device: %s\n", error.text);
        return 77;
    }
    struct target target = {
        .name = "cuda", .kernels = api->kernels, .api = api, .gpu = gpu, .stream = stream};
    find_model(o, &target);
    target.has_guards = !o->is_reduced;
    unsigned failed = run_targets(scalar, &target, 1, o);
    api->stream_free(gpu, stream);
    api->close(gpu);
    return failed > 0;
}

static struct options read_options(int argc, char **argv)
{
    static const struct option names[] = {
        {"seed", required_argument, NULL, 's'},    {"kernel", required_argument, NULL, 'k'},
        {"variant", required_argument, NULL, 'v'}, {"case", required_argument, NULL, 'c'},
        {"library", required_argument, NULL, 'l'}, {"reduced", no_argument, NULL, 'r'},
        {"part", required_argument, NULL, 'p'},    {0}};
    struct options o = {.seed = 6, .only = -1, .part = {1, 1}};
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (c) {
        case 's': o.seed = strtoull(optarg, NULL, 0); break;
        case 'k': o.kernel = optarg; break;
        case 'v': o.variant = optarg; break;
        case 'c': o.only = atoi(optarg); break;
        case 'l': o.library = optarg; break;
        case 'r': o.is_reduced = true; break;
        case 'p':
            if (part_read(optarg, &o.part))
                break;
            /* fall through */
        default:
            fprintf(stderr,
                    "usage: %s [--seed N] [--kernel NAME] [--case N] "
                    "[--variant scalar|avx2|avx512|cuda] [--library PATH] [--reduced] [--part K/N]\n",
                    argv[0]);
            exit(2);
        }
    }
    return o;
}

int main(int argc, char **argv)
{
    struct options o = read_options(argc, argv);
    struct target scalar = {.name = "scalar", .kernels = batch_variant(KERNELS_SCALAR)};
    printf("# seed %llu\n", (unsigned long long)o.seed);
    if (o.variant != NULL && strcmp(o.variant, "cuda") == 0)
        return run_device(&scalar, &o);
    return run_cpu(&scalar, &o) > 0;
}
