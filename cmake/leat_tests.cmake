# How tests are declared.
#
#   add_leat_test(NAME SOURCE.c... LIBRARY...)                a cmocka executable
#   add_leat_test(NAME SOURCES a.c b.c LIBS x y LABELS lanes TIMEOUT 60 COST 9)
#   add_leat_script(NAME LABELS golden COMMAND python3 ...)   any other program; run in the repository's root
#   add_leat_device_test(NAME SOURCES a.c LIBS leat_kernels)  a program of device code, without cmocka; prints TAP lines. It
#                                                             opens the device library by gpu_open_library(NULL): here
#                                                             that of tests/cuda_on_host, on a GPU machine leat_cuda.so
#   add_leat_rig(NAME SOURCE.c... LIBRARY...)                 what several tests name among their libraries, compiled once
#   add_leat_fuzzer(NAME SOURCE.c... LIBRARY...)              a libFuzzer program, built by the preset `fuzz` alone;
#                                                             seeds: tests/fuzz/corpus/NAME/, words: tests/fuzz/NAME.dict
#
# PARTS N: N tests NAME_1 ... NAME_N, of the same program with `--part K/N` (tests/part.h): each has its share of the cases, and
# a loaded machine keeps none of them long.
# TIMEOUT: seconds that are plenty where nothing else runs; LEAT_TEST_LOAD times as many are let pass. That is for what hangs: a
# test ends by what it counts, not by a clock.
# COST: about how many seconds it takes in `./dev test`, where these are many, under ASan if it runs there; the longest begin
# first, so that none is waited for. (It counts, too, where ctest knows how long the test took before.)
# Labels decide where `./dev test` runs a test:
#   unit (the default), property   under ASan + UBSan
#   lanes                          under ASan + UBSan, and again under TSan
#   golden, crash, jobs, tidy      with the release build
#   operator                       with the release build, and only where a filter asks for it: one operator by itself
#   kafka                          with the release build, beside a real Kafka (tests/kafka)
#   timed                          besides one of these: what waits for others by a clock, as the workers of a cluster do. All but these and
#                                  Kafka's give way to them on a machine that is busy (nice)
# Where kernels and learners are built alone (LEAT_ALONE: cmake/gpu, for a bare GPU machine) there are tests of device code
# alone; `./dev gpu` runs them: with the argument `--reduced` they take small sizes (compute-sanitizer).
# Each of its phases builds just what it runs (the targets at the end of this file), the release build also what is no test;
# `./dev build` and `./dev test --fast` build all.
# A test that cannot run here prints why and ends with status 77. Lines `ok - what`, `not ok - what` and
# `ok - what # SKIP why` in a test's output count as sub-tests, as cmocka's do.
set(LEAT_TEST_TIMEOUT_S 120)
set(LEAT_TEST_LOAD 8)

# Sets arg_SOURCES, arg_LIBS, arg_LABELS, arg_COMMAND, arg_TIMEOUT; what has no keyword is a source by its suffix,
# else a library.
macro(leat_parse_test_arguments)
    cmake_parse_arguments(arg "" "TIMEOUT;COST;PARTS" "SOURCES;LIBS;LABELS;COMMAND" ${ARGN})
    foreach(item IN LISTS arg_UNPARSED_ARGUMENTS)
        if(item MATCHES "\\.(c|cc|cpp|cu)$")
            list(APPEND arg_SOURCES ${item})
        else()
            list(APPEND arg_LIBS ${item})
        endif()
    endforeach()
    if(NOT arg_LABELS)
        set(arg_LABELS unit)
    endif()
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT ${LEAT_TEST_TIMEOUT_S})
    endif()
    if(NOT arg_COST)
        set(arg_COST 1)
    endif()
endmacro()

# Notes where `./dev test` runs the programs of a test's command, by the test's labels.
function(leat_note_programs)
    foreach(word IN LISTS ARGN)
        if(word MATCHES "\\$<TARGET_FILE:([^>]+)>")
            set(program ${CMAKE_MATCH_1})
        elseif(TARGET ${word})
            set(program ${word})
        else()
            continue()
        endif()
        if("${arg_LABELS}" MATCHES "lanes")
            set_property(GLOBAL APPEND PROPERTY LEAT_LANE_TESTS ${program})
        endif()
        if("${arg_LABELS}" MATCHES "unit|property|lanes")
            set_property(GLOBAL APPEND PROPERTY LEAT_SANITIZED_TESTS ${program})
        endif()
        if("${arg_LABELS}" MATCHES "golden|crash|jobs|tidy|operator|kafka")
            set_property(GLOBAL APPEND PROPERTY LEAT_RELEASE_TESTS ${program})
        endif()
    endforeach()
endfunction()

function(add_leat_script name)
    if(NOT LEAT_TESTS OR LEAT_ALONE)
        return()
    endif()
    leat_parse_test_arguments(${ARGN})
    leat_note_programs(${arg_COMMAND})
    math(EXPR seconds "${arg_TIMEOUT} * ${LEAT_TEST_LOAD}")
    if(NOT "${arg_LABELS}" MATCHES "timed|kafka")
        list(POP_FRONT arg_COMMAND program)
        if(TARGET ${program})
            set(program $<TARGET_FILE:${program}>)
        endif()
        list(PREPEND arg_COMMAND nice -n 5 ${program})
    endif()
    if(arg_PARTS)
        set(names "")
        foreach(part RANGE 1 ${arg_PARTS})
            list(APPEND names ${name}_${part})
            add_test(NAME ${name}_${part} COMMAND ${arg_COMMAND} --part ${part}/${arg_PARTS} WORKING_DIRECTORY ${LEAT_ROOT})
        endforeach()
    else()
        set(names ${name})
        add_test(NAME ${name} COMMAND ${arg_COMMAND} WORKING_DIRECTORY ${LEAT_ROOT})
    endif()
    set_tests_properties(${names} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${seconds} SKIP_RETURN_CODE 77 COST ${arg_COST})
endfunction()

function(add_leat_rig name)
    if(NOT LEAT_TESTS)
        return()
    endif()
    leat_parse_test_arguments(${ARGN})
    add_library(${name} OBJECT EXCLUDE_FROM_ALL ${arg_SOURCES})
    target_include_directories(${name} PRIVATE ${LEAT_ROOT}/tests)
    target_link_libraries(${name} PUBLIC leat_flags ${arg_LIBS})
endfunction()

function(add_leat_test name)
    if(NOT LEAT_TESTS OR LEAT_ALONE)
        return()
    endif()
    leat_parse_test_arguments(${ARGN})
    add_executable(${name} ${arg_SOURCES})
    target_include_directories(${name} PRIVATE ${LEAT_ROOT}/tests)
    target_link_libraries(${name} PRIVATE leat_flags ${arg_LIBS} cmocka)
    add_leat_script(${name} COMMAND ${name} LABELS ${arg_LABELS} TIMEOUT ${arg_TIMEOUT} COST ${arg_COST} PARTS ${arg_PARTS})
endfunction()

function(add_leat_device_test name)
    if(NOT LEAT_TESTS)
        return()
    endif()
    leat_parse_test_arguments(${ARGN})
    add_executable(${name} ${arg_SOURCES})
    target_include_directories(${name} PRIVATE ${LEAT_ROOT}/tests)
    target_link_libraries(${name} PRIVATE leat_flags ${arg_LIBS})
    if(LEAT_ALONE)
        return()
    endif()
    add_leat_script(${name} COMMAND ${name} LABELS ${arg_LABELS} TIMEOUT ${arg_TIMEOUT} COST ${arg_COST})
    add_dependencies(${name} leat_cuda_on_host)
    set_property(TEST ${name} PROPERTY ENVIRONMENT LEAT_CUDA_LIBRARY=$<TARGET_FILE:leat_cuda_on_host>)
endfunction()

function(add_leat_fuzzer name)
    if(NOT LEAT_FUZZ)
        return()
    endif()
    leat_parse_test_arguments(${ARGN})
    add_executable(${name} ${arg_SOURCES})
    target_include_directories(${name} PRIVATE ${LEAT_ROOT}/tests)
    target_link_libraries(${name} PRIVATE leat_flags ${arg_LIBS})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzzers)
    set_property(GLOBAL APPEND PROPERTY LEAT_FUZZERS ${name})
endfunction()

# Programs and libraries of a folder and those below it.
function(leat_targets_below folder result)
    get_property(found DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
    get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
    foreach(below IN LISTS folders)
        leat_targets_below(${below} more)
        list(APPEND found ${more})
    endforeach()
    set(${result} ${found} PARENT_SCOPE)
endfunction()

# After all tests: the targets release_tests, sanitized_tests, lane_tests and fuzzers, which build just what a phase of
# `./dev test` needs; release_tests also what is no test.
function(leat_finish_tests)
    get_property(released GLOBAL PROPERTY LEAT_RELEASE_TESTS)
    get_property(sanitized GLOBAL PROPERTY LEAT_SANITIZED_TESTS)
    get_property(lane_tests GLOBAL PROPERTY LEAT_LANE_TESTS)
    get_property(fuzzers GLOBAL PROPERTY LEAT_FUZZERS)
    leat_targets_below(${CMAKE_SOURCE_DIR} all)
    list(REMOVE_ITEM all ${sanitized})
    foreach(target release_tests sanitized_tests lane_tests fuzzers)
        add_custom_target(${target})
    endforeach()
    add_dependencies(release_tests ${all} ${released})
    if(sanitized)
        add_dependencies(sanitized_tests ${sanitized})
    endif()
    if(lane_tests)
        add_dependencies(lane_tests ${lane_tests})
    endif()
    if(fuzzers)
        add_dependencies(fuzzers ${fuzzers})
    endif()
endfunction()
