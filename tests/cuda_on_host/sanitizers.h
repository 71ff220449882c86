/* What the model tells ASan and TSan; nothing in other builds. */
#ifndef CUDA_ON_HOST_SANITIZERS_H
#define CUDA_ON_HOST_SANITIZERS_H

#if defined(__SANITIZE_ADDRESS__)
#define MODEL_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MODEL_ASAN 1
#endif
#endif

/* The model itself is compiled without -fsanitize=thread; CMakeLists.txt says whether the rest is. */
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
#else
static inline void tsan_release(void *)
{
}
static inline void tsan_acquire(void *)
{
}
#endif

#ifdef MODEL_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#endif
