# Flags of our own code: what links leat_flags has our include roots, warnings and sanitizers.
#
# LEAT_SANITIZE (presets asan, tsan, fuzz) names the sanitizers that everything is built with.
set(LEAT_SANITIZE "" CACHE STRING "sanitizers for all code, as for -fsanitize=")

# OFF where the compiler is one that nobody has tried: a new warning is no reason not to measure (./dev gpu).
option(LEAT_WERROR "warnings are errors" ON)

add_library(leat_flags INTERFACE)
target_include_directories(leat_flags INTERFACE ${LEAT_ROOT} ${LEAT_ROOT}/engine)
target_compile_options(leat_flags INTERFACE
    -Wall -Wextra $<$<BOOL:${LEAT_WERROR}>:-Werror> -Wshadow -Wconversion -fno-omit-frame-pointer
    $<$<COMPILE_LANGUAGE:C>:-std=gnu11>
    # Results must not depend on how a compiler fuses or reorders floating-point operations.
    -ffp-contract=off)
if(LEAT_SANITIZE)
    target_compile_options(leat_flags INTERFACE -fsanitize=${LEAT_SANITIZE} -fno-sanitize-recover=all)
    target_link_options(leat_flags INTERFACE -fsanitize=${LEAT_SANITIZE})
endif()
