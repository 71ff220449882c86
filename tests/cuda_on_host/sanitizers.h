/* The model's calls of ASan and TSan; empty in other builds. */
#ifndef LEAT_TESTS_CUDA_ON_HOST_SANITIZERS_H
#define LEAT_TESTS_CUDA_ON_HOST_SANITIZERS_H

#if defined(__SANITIZE_ADDRESS__)
#define MODEL_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MODEL_ASAN 1
#endif
#endif

/* The model itself is compiled without -fsanitize=thread; CMakeLists.txt defines MODEL_TSAN if the rest is
 * compiled with it. */
#ifdef MODEL_TSAN
#include <sanitizer/tsan_interface.h>
static inline void tsan_release(void *object)
{
    __tsan_release(object);
}
static inline void tsan_acquire(void *object)
{
    __tsan_acquire(object);
}
/* While such an object lives, TSan attributes what is done to the given fiber, and not to the running one. */
struct tsan_as {
    void *before;

    explicit tsan_as(void *fiber) : before(__tsan_get_current_fiber())
    {
        __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync);
    }
    ~tsan_as()
    {
        __tsan_switch_to_fiber(before, __tsan_switch_to_fiber_no_sync);
    }
};
#else
static inline void tsan_release(void *)
{
}
static inline void tsan_acquire(void *)
{
}
struct tsan_as {
    explicit tsan_as(void *)
    {
    }
    ~tsan_as()
    {
    }
};
#endif

#ifdef MODEL_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#endif
