# What every folder's CMakeLists.txt uses: leat_library here, flags and tests in the files beside this one.
get_filename_component(LEAT_ROOT ${CMAKE_CURRENT_LIST_DIR} DIRECTORY) # also where cmake/gpu is the top
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# With sanitizers, optimizing further takes longer than the tests gain; reports need lines, not variables.
set(optimization "-O2 -g")
if(LEAT_SANITIZE)
    set(optimization "-O1 -g1")
endif()
set(CMAKE_C_FLAGS_RELEASE "${optimization}")
set(CMAKE_CXX_FLAGS_RELEASE "${optimization}")
find_package(Threads REQUIRED)
include(leat_flags)
target_compile_definitions(leat_flags INTERFACE _GNU_SOURCE LEAT_SOURCE_DIR="${LEAT_ROOT}"
                           LEAT_VERSION="${PROJECT_VERSION}")
include(leat_tests)

# leat_library(NAME [sources...]): a static library of our own code; from the folder's *.c and *.cpp when no sources
# are named.
function(leat_library name)
    set(sources ${ARGN})
    if(NOT sources)
        file(GLOB sources CONFIGURE_DEPENDS *.c *.cpp)
    endif()
    if(sources)
        add_library(${name} STATIC ${sources})
        target_link_libraries(${name} PUBLIC leat_flags)
    else()
        add_library(${name} INTERFACE)
        target_link_libraries(${name} INTERFACE leat_flags)
    endif()
endfunction()
