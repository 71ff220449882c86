/* The variants this machine can run, and the choice of one. */
#include "kernels/batch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

extern const struct kernels kernels_table_scalar;
extern const struct batch_kernels batch_table_scalar;
static const char *const names[KERNELS_VARIANTS] = {"scalar", "avx2", "avx512"};

#if defined(__x86_64__)
#include <cpuid.h>

extern const struct kernels kernels_table_avx2;
extern const struct kernels kernels_table_avx512;
extern const struct batch_kernels batch_table_avx2;
extern const struct batch_kernels batch_table_avx512;
static const struct kernels *const tables[KERNELS_VARIANTS] = {&kernels_table_scalar, &kernels_table_avx2,
                                                               &kernels_table_avx512};
static const struct batch_kernels *const batch_tables[KERNELS_VARIANTS] = {
    &batch_table_scalar, &batch_table_avx2, &batch_table_avx512};

/* The register state that the operating system saves: XCR0, or 0 if the CPU has no OSXSAVE. */
static uint64_t os_saved_state(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return 0;
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

bool kernels_supports(enum kernels_variant variant)
{
    enum { YMM = 0x6, ZMM = 0xe6 }; /* XCR0 bits: sse, avx; ZMM: also opmask, ZMM_Hi256, Hi16_ZMM */
    unsigned a, b, c, d;
    if (variant == KERNELS_SCALAR)
        return true;
    uint64_t saved = os_saved_state();
    if ((saved & YMM) != YMM || !__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_FMA) || !(c & bit_AVX) ||
        !(c & bit_F16C))
        return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2))
        return false;
    if (variant == KERNELS_AVX2)
        return true;
    unsigned wanted = bit_AVX512F | bit_AVX512DQ | bit_AVX512VL | bit_AVX512BW;
    return variant == KERNELS_AVX512 && (saved & ZMM) == ZMM && (b & wanted) == wanted;
}
#else
static const struct kernels *const tables[KERNELS_VARIANTS] = {&kernels_table_scalar, NULL, NULL};
static const struct batch_kernels *const batch_tables[KERNELS_VARIANTS] = {&batch_table_scalar, NULL, NULL};

bool kernels_supports(enum kernels_variant variant)
{
    return variant == KERNELS_SCALAR;
}
#endif

const struct kernels *kernels_variant(enum kernels_variant variant)
{
    assert(variant >= 0 && variant < KERNELS_VARIANTS);
    return kernels_supports(variant) ? tables[variant] : NULL;
}

const struct batch_kernels *batch_variant(enum kernels_variant variant)
{
    assert(variant >= 0 && variant < KERNELS_VARIANTS);
    return kernels_supports(variant) ? batch_tables[variant] : NULL;
}

const struct batch_kernels *batch_beside(const struct kernels *kernels)
{
    for (int v = 0; v < KERNELS_VARIANTS; v++) {
        if (kernels == tables[v])
            return batch_tables[v];
    }
    assert(false);
    return NULL;
}

const char *kernels_variant_name(enum kernels_variant variant)
{
    assert(variant >= 0 && variant < KERNELS_VARIANTS);
    return names[variant];
}

const struct kernels *kernels_pick(const char *forced, const char **reason)
{
    assert(reason != NULL);
    *reason = NULL;
    bool is_forced = forced != NULL && *forced;
    for (int v = KERNELS_VARIANTS - 1; v >= 0; v--) {
        if (is_forced && strcmp(forced, names[v]) != 0)
            continue;
        const struct kernels *table = kernels_variant((enum kernels_variant)v);
        if (table != NULL)
            return table;
        if (is_forced) {
            *reason = "this CPU or operating system does not support the kernel variant";
            return NULL;
        }
    }
    *reason = "not a kernel variant: the variants are scalar, avx2 and avx512";
    return NULL;
}

const struct kernels *kernels_pick_env(const char **reason)
{
    return kernels_pick(getenv("LEAT_KERNELS"), reason);
}

void kernels_count(struct kernels_calls *calls, const struct kernels *kernels)
{
    for (int v = 0; v < KERNELS_VARIANTS; v++) {
        if (kernels == tables[v])
            calls->calls[v]++;
    }
}

opt_function opt_pick(const struct kernels *kernels, enum opt_kind kind)
{
    switch (kind) {
    case OPT_SGD: return kernels->opt_sgd;
    case OPT_MOMENTUM: return kernels->opt_momentum;
    case OPT_ADAGRAD: return kernels->opt_adagrad;
    case OPT_ADAGRAD_ROW: return kernels->opt_adagrad_row;
    case OPT_ADAGRAD_BLOCK: return kernels->opt_adagrad_block;
    case OPT_ADAM: return kernels->opt_adam;
    case OPT_FTRL: return kernels->opt_ftrl;
    case OPT_NEWTON: return kernels->opt_newton;
    case OPT_KINDS: break;
    }
    assert(false);
    return NULL;
}
